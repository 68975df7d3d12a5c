/* SPDX-License-Identifier: MIT
 *
 * policy.c: the allocators that can be asked for, as data.  Read by cache_new's callers and by the tools' help; holds
 * no rule (rules.c) and knows no option (conf.c).
 */
#include "cache/policy.h"
#include <string.h>

#define GP_KIB(n) ((uint64_t)(n) << 10)
#define GP_MIB(n) ((uint64_t)(n) << 20)

/* PyTorch's constants: kMinBlockSize, kSmallSize, kSmallBuffer, kLargeBuffer, kMinLargeAlloc, kRoundLarge. */
#define GP_TORCH_GRANULE       512
#define GP_TORCH_SMALL         GP_MIB(1)
#define GP_TORCH_SMALL_SEGMENT GP_MIB(2)
#define GP_TORCH_LARGE_SEGMENT GP_MIB(20)
#define GP_TORCH_OWN_SEGMENT   GP_MIB(10)
#define GP_TORCH_ROUND         GP_MIB(2)
/* Paddle's FLAGS_alignment_size and its buddy allocator's smallest chunk. */
#define GP_PADDLE_GRANULE 256

static const struct gp_policy policies[] = {
    {
        .name = "caching",
        /* The driver's own alignment; below it nothing could be promised that cuMemAlloc promises. */
        .granule_bytes = 512,
        /* Small and large blocks live apart, or a few small ones that stay would pin whole large pages.  1 MiB is the
         * border of the statistics too (account/gauge.c). */
        .small_bytes = GP_MIB(1),
        .max_split_bytes = UINT64_MAX,
        .max_round_bytes = GP_MIB(20),
        .small_rest_bytes = 512,
        /* A rest of any size is kept apart: it joins its neighbours again when they are freed, while an unsplit one is
         * lost for as long as the block lives. */
        .large_rest_bytes = 0,
        .streams_share = true,
        /* Where pages cannot be mapped, the same segments as PyTorch's. */
        .small_segment_bytes = GP_TORCH_SMALL_SEGMENT,
        .large_segment_bytes = GP_TORCH_LARGE_SEGMENT,
        .own_segment_bytes = GP_TORCH_OWN_SEGMENT,
        .segment_round_bytes = GP_TORCH_ROUND,
        .growable = true,
        /* A driver call costs by the handle, not by the byte, so handles are large; but only a handle that is idle as a
         * whole can move, so one that is larger than the tensors of a step is pinned by whichever of them stays: with
         * 128 MiB story one of test_scenario_story.c fails for 1 GiB, with 64 MiB a CNN's trace spends more time in
         * the driver than `pytorch` does.  The mechanism makes them smaller where little is reserved. */
        .small_page_bytes = GP_MIB(2),
        .large_page_bytes = GP_MIB(80),
        .moves_pages = true,
        /* Moving stalls a stream, growing costs memory: grow while the reserve stays within 4 % of the peak of what was
         * allocated, which leaves 1 % for pages begun and not filled before 0.95 of use is missed. */
        .slack_fraction = 0.04,
        /* Checked when a new one is made, not at frees: a program that frees everything between steps keeps its memory,
         * and one whose sizes drift does not pile up more than a quarter. */
        .dedicated_idle_fraction = 0.25,
        /* What a thread holds must span the sizes that it cycles through: with 512 blocks of evenly mixed sizes, and
         * blocks up to an eighth too large, one allocation in 32 finds none (1 / (blocks x slack / 2)); the one that it
         * finds is 1 % too large on average.  128 MiB is what 256 of them take.  All of it is taken back before an
         * allocation fails. */
        .thread_blocks = 512,
        .thread_bytes = GP_MIB(128),
        .thread_block_bytes = GP_MIB(1),
        .thread_slack_shift = 3,
    },
    {
        .name = "pytorch",
        .granule_bytes = GP_TORCH_GRANULE,
        .small_bytes = GP_TORCH_SMALL,
        .max_split_bytes = UINT64_MAX,
        .max_round_bytes = GP_TORCH_LARGE_SEGMENT, /* max_non_split_rounding_mb: 20 */
        .small_rest_bytes = GP_TORCH_GRANULE,
        .large_rest_bytes = GP_TORCH_SMALL, /* a rest that no large request could use stays where it is */
        .small_segment_bytes = GP_TORCH_SMALL_SEGMENT,
        .large_segment_bytes = GP_TORCH_LARGE_SEGMENT,
        .own_segment_bytes = GP_TORCH_OWN_SEGMENT,
        .segment_round_bytes = GP_TORCH_ROUND,
        /* expandable_segments:True makes it growable; its pages are as large as the segments would be. */
        .growable = false,
        .small_page_bytes = GP_TORCH_SMALL_SEGMENT,
        .large_page_bytes = GP_TORCH_LARGE_SEGMENT,
        .dedicated_idle_fraction = 1,
    },
    {
        .name = "auto_growth",
        .granule_bytes = GP_PADDLE_GRANULE,
        .small_bytes = 0, /* FLAGS_small_pool_size_in_mb: 0 */
        .max_split_bytes = UINT64_MAX,
        .max_round_bytes = 0,
        .small_rest_bytes = GP_PADDLE_GRANULE,
        .large_rest_bytes = 0,
        .takes_high_end = true,
        /* FLAGS_auto_growth_chunk_size_in_mb: 0, so a chunk is as large as the request that missed. */
        .small_segment_bytes = 0,
        .large_segment_bytes = 0,
        .own_segment_bytes = 0,
        .segment_round_bytes = GP_PADDLE_GRANULE,
        /* For expandable_segments:True alone; Paddle's VMM variant has chunks of this order. */
        .small_page_bytes = GP_MIB(2),
        .large_page_bytes = GP_MIB(20),
        .dedicated_idle_fraction = 1,
    },
    {
        .name = "prealloc",
        .granule_bytes = GP_PADDLE_GRANULE,
        .small_bytes = 0,
        .max_split_bytes = UINT64_MAX,
        .max_round_bytes = 0,
        .small_rest_bytes = GP_PADDLE_GRANULE,
        .large_rest_bytes = 0,
        /* The one chunk is all there is; a stream that came second would otherwise find none of it. */
        .streams_share = true,
        .own_segment_bytes = 0,
        .segment_round_bytes = GP_PADDLE_GRANULE,
        .first_fraction = 0.92, /* FLAGS_fraction_of_gpu_memory_to_use */
        .only_first = true,
        .dedicated_idle_fraction = 1,
    },
    {
        .name = "passthrough",
        .granule_bytes = 512, /* what cuMemAlloc itself aligns to */
        .small_bytes = 0,
        .max_split_bytes = UINT64_MAX,
        .max_round_bytes = 0,
        .small_rest_bytes = UINT64_MAX,
        .large_rest_bytes = UINT64_MAX,
        .own_segment_bytes = 0,
        .segment_round_bytes = 512,
        .frees_at_once = true,
        .dedicated_idle_fraction = 0,
    },
};

const struct gp_policy *gp_policy_at(unsigned index)
{
    return index < sizeof policies / sizeof policies[0] ? &policies[index] : NULL;
}

const struct gp_policy *gp_policy_find(const char *name)
{
    const struct gp_policy *policy;
    for (unsigned i = 0; (policy = gp_policy_at(i)) != NULL; i++)
        if (strcmp(policy->name, name) == 0)
            return policy;
    return NULL;
}
