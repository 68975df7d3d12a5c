/* SPDX-License-Identifier: MIT
 *
 * policy.c: the available allocators, as data. Callers of gp_cache_new and the tools' help texts
 * read it. The rules that interpret the data are in policy.c; the options that change it are parsed
 * in conf.c.
 */
#include "cache/policy.h"
#include <string.h>

/* ==== the policies ================================================================================================ */

#define GP_POLICY_MIB(n) ((uint64_t)(n) << 20)

/* PyTorch's constants: kMinBlockSize, kSmallSize, kSmallBuffer, kLargeBuffer, kMinLargeAlloc, kRoundLarge. */
#define GP_TORCH_GRANULE       512
#define GP_TORCH_SMALL         GP_POLICY_MIB(1)
#define GP_TORCH_SMALL_SEGMENT GP_POLICY_MIB(2)
#define GP_TORCH_LARGE_SEGMENT GP_POLICY_MIB(20)
#define GP_TORCH_OWN_SEGMENT   GP_POLICY_MIB(10)
#define GP_TORCH_ROUND         GP_POLICY_MIB(2)
/* Paddle's FLAGS_alignment_size and its buddy allocator's smallest chunk. */
#define GP_PADDLE_GRANULE 256

static const struct gp_policy policies[] = {
    {
        .name = "caching",
        /* The driver's own alignment; a smaller one would break what cuMemAlloc promises. */
        .granule_bytes = 512,
        /* Small and large blocks are kept apart, or a few long-lived small blocks would pin whole
         * large pages. 1 MiB is also the border in the statistics (core/base/gauge.c). */
        .small_bytes = GP_POLICY_MIB(1),
        .max_split_bytes = UINT64_MAX,
        .max_round_bytes = GP_POLICY_MIB(20),
        .small_rest_bytes = 512,
        /* A rest of any size is split off: it joins its neighbours again when they are freed, while
         * an unsplit rest is wasted for as long as the block lives. */
        .large_rest_bytes = 0,
        .streams_share = true,
        /* If pages cannot be mapped, the segments are those of PyTorch. */
        .small_segment_bytes = GP_TORCH_SMALL_SEGMENT,
        .large_segment_bytes = GP_TORCH_LARGE_SEGMENT,
        .own_segment_bytes = GP_TORCH_OWN_SEGMENT,
        .segment_round_bytes = GP_TORCH_ROUND,
        .growable = true,
        /* A driver call costs by the handle, not by the byte, so handles are large. But a handle
         * can move only if it is idle as a whole, so a handle larger than the tensors of a step is
         * pinned by any of them that stays: with 128 MiB, story one of test_scenario_story.c fails
         * for 1 GiB; with 64 MiB, a CNN's trace spends more time in the driver than with `pytorch`.
         * page.c makes handles smaller while little is reserved. */
        .small_page_bytes = GP_POLICY_MIB(2),
        .large_page_bytes = GP_POLICY_MIB(80),
        .moves_pages = true,
        /* Moving stalls a stream, growing costs memory. So grow while the reserve stays within 4 %
         * of the peak of allocated memory. This leaves 1 % for partly filled pages before the
         * utilization target of 0.95 is missed. */
        .slack_fraction = 0.04,
        /* Checked when a new segment is made, not at frees: a program that frees everything between
         * steps keeps its memory, and a program whose sizes drift keeps at most a quarter idle. */
        .dedicated_idle_fraction = 0.25,
        /* A thread's cache must span the sizes that the thread cycles through. With 512 blocks of
         * evenly mixed sizes, and blocks up to an eighth too large, one allocation in 32 finds no
         * block (1 / (blocks x slack / 2)), and a block that is found is 1 % too large on average.
         * 128 MiB hold 256 such blocks. All of it is flushed before an allocation fails. */
        .thread_blocks = 512,
        .thread_bytes = GP_POLICY_MIB(128),
        .thread_block_bytes = GP_POLICY_MIB(1),
        .thread_slack_shift = 3,
    },
    {
        .name = "pytorch",
        .granule_bytes = GP_TORCH_GRANULE,
        .small_bytes = GP_TORCH_SMALL,
        .max_split_bytes = UINT64_MAX,
        .max_round_bytes = GP_TORCH_LARGE_SEGMENT, /* max_non_split_rounding_mb: 20 */
        .small_rest_bytes = GP_TORCH_GRANULE,
        .large_rest_bytes = GP_TORCH_SMALL, /* a rest that no large request could use stays with its block */
        .oldest_first = true,               /* PyTorch 2.13 and newer */
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
        /* Only for expandable_segments:True; chunks of Paddle's VMM variant have about this
         * size. */
        .small_page_bytes = GP_POLICY_MIB(2),
        .large_page_bytes = GP_POLICY_MIB(20),
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
        /* There is only one chunk; without sharing, a second stream would find no memory. */
        .streams_share = true,
        .own_segment_bytes = 0,
        .segment_round_bytes = GP_PADDLE_GRANULE,
        .first_fraction = 0.92, /* FLAGS_fraction_of_gpu_memory_to_use */
        .only_first = true,
        .dedicated_idle_fraction = 1,
    },
    {
        .name = "passthrough",
        .granule_bytes = 512, /* the alignment of cuMemAlloc */
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

/* ==== their rules ================================================================================================= */
/* How a policy's numbers are applied. Pure functions without state, locks or allocation, because the
 * mechanism calls them on its fast path. */

static uint64_t policy_round_up(uint64_t bytes, uint64_t step)
{
    if ((step & (step - 1)) == 0) /* as granules are: a division takes longer than the rest of a request's rounding */
        return step ? (bytes + step - 1) & ~(step - 1) : bytes;
    return (bytes + step - 1) / step * step;
}

static uint64_t policy_log2(uint64_t bytes)
{
    return 63u - (unsigned)__builtin_clzll(bytes);
}

/* PyTorch's intervals: below 2 MB, 2-4 MB, ...; the last one is unbounded. */
static uint64_t policy_divisions(const struct gp_policy *policy, uint64_t bytes)
{
    uint64_t index = policy_log2(bytes);
    index = index > 20 ? index - 20 : 0; /* 2^20: the first interval is named 1 MB */
    return policy->divisions[index < GP_POLICY_DIVISIONS ? index : GP_POLICY_DIVISIONS - 1];
}

/* Rounds up to one of `divisions` equal steps between powers of two. */
static uint64_t policy_divide(uint64_t bytes, uint64_t divisions)
{
    uint64_t step = ((uint64_t)1 << policy_log2(bytes)) >> policy_log2(divisions);
    return policy_round_up(bytes, step);
}

uint64_t gp_policy_round(const struct gp_policy *policy, uint64_t bytes)
{
    uint64_t granule = policy->granule_bytes;
    if (bytes < granule)
        return granule;
    uint64_t divisions = policy_divisions(policy, bytes);
    /* For smaller sizes a division would be smaller than the granule. */
    if (divisions > 1 && bytes > granule * divisions)
        return policy_divide(bytes, divisions);
    return policy_round_up(bytes, granule);
}

bool gp_policy_is_small(const struct gp_policy *policy, uint64_t block_bytes)
{
    return block_bytes <= policy->small_bytes;
}

uint64_t gp_policy_segment(const struct gp_policy *policy, uint64_t block_bytes)
{
    if (gp_policy_is_small(policy, block_bytes))
        return policy->small_segment_bytes;
    if (block_bytes < policy->own_segment_bytes && policy->large_segment_bytes >= block_bytes)
        return policy->large_segment_bytes;
    return policy_round_up(block_bytes, policy->segment_round_bytes);
}

bool gp_policy_may_take(const struct gp_policy *policy, uint64_t have, uint64_t want, bool growable)
{
    if (have < want)
        return false;
    /* In a growable segment the excess is always split off. */
    if (growable)
        return true;
    if (policy->large_rest_bytes == UINT64_MAX) /* never split: limits the waste to the allowed rounding */
        return have - want <= policy->max_round_bytes;
    if (want < policy->max_split_bytes)
        return have < policy->max_split_bytes;
    return have - want < policy->max_round_bytes;
}

bool gp_policy_splits(const struct gp_policy *policy, uint64_t have, uint64_t want, bool small, bool growable)
{
    uint64_t rest = have - want;
    if (small || growable)
        return rest >= policy->small_rest_bytes;
    return want < policy->max_split_bytes && rest > policy->large_rest_bytes;
}

bool gp_policy_is_oversize(const struct gp_policy *policy, uint64_t block_bytes)
{
    return block_bytes >= policy->max_split_bytes;
}
