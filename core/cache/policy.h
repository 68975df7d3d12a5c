/* SPDX-License-Identifier: MIT
 *
 * policy.h: the differences between the allocators, as data, and the rules that interpret it. The
 * rules are pure functions of a policy and sizes; the mechanism (cache.h) calls them and contains
 * no rules of its own.
 *
 * Sources: PyTorch's CUDACachingAllocator (sizes, pools, splits, collection, expandable segments),
 * Paddle's auto_growth_best_fit_allocator and buddy_allocator, and their documentation of the
 * options.
 */
#ifndef GP_CACHE_POLICY_H
#define GP_CACHE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GP_POLICY_DIVISIONS 16 /* intervals of roundup_power2_divisions: 1 MB, 2 MB ... 64 GB and beyond (PyTorch) */

struct gp_policy {
    char name[16];

    /* Blocks. */
    uint64_t granule_bytes;                 /* block sizes are multiples of it, and at least this */
    uint64_t small_bytes;                   /* requests up to this size use the small pool; 0: one pool for all */
    uint8_t divisions[GP_POLICY_DIVISIONS]; /* 0: no rounding to divisions of powers of two */
    uint64_t max_split_bytes;               /* larger blocks are never split and count as oversize; UINT64_MAX: none */
    uint64_t max_round_bytes;               /* an oversize request accepts a block at most this much larger */
    uint64_t small_rest_bytes,
        large_rest_bytes; /* a rest is split off when it is at least (small) / more than (large) */
    bool takes_high_end;  /* an allocation takes the upper end of a split block (Paddle) */
    bool
        oldest_first; /* of idle blocks of one size, one of the segment that was made first; false: the lowest address */
    bool streams_share; /* idle memory of one stream may serve another, after a fence */

    /* Segments. */
    uint64_t small_segment_bytes; /* of the small pool */
    uint64_t large_segment_bytes; /* for requests below own_segment_bytes; 0: as large as the request */
    uint64_t own_segment_bytes;   /* from this size on a request gets a segment of its own size ... */
    uint64_t segment_round_bytes; /* ... rounded up to a multiple of this */
    double first_fraction;        /* prealloc: the first segment is this fraction of the free memory; 0: off */
    bool only_first; /* prealloc: a request that does not fit the first segment gets a driver allocation of its own */
    bool frees_at_once; /* an idle segment is released at every free (passthrough; Paddle's FLAGS_free_idle_chunk) */

    /* Growable segments: address ranges that pages are mapped into. */
    bool growable;
    uint64_t small_page_bytes, large_page_bytes; /* physical memory is made in handles of at most this */
    bool
        whole_pages; /* only these sizes are mapped, and blocks chosen for how far they can grow, as PyTorch does it; else
                            * also a part of a page, where that is enough */
    bool moves_pages;      /* idle pages are unmapped in one place and mapped in another before new ones are made ... */
    double slack_fraction; /* ... unless reserved stays below (1 + this) x the peak of allocated bytes */

    /* Collection and limits. */
    double gc_threshold;    /* of the limit; 0: off (garbage_collection_threshold) */
    double memory_fraction; /* of the device's total; 0: none (per_process_memory_fraction) */
    /* idle bytes in dedicated segments, at most this fraction of reserved; above it, the oldest are
     * released */
    double dedicated_idle_fraction;

    /* A thread's own cache of idle blocks. */
    uint32_t thread_blocks;      /* most blocks in it; 0: none */
    uint64_t thread_bytes;       /* most bytes in it */
    uint64_t thread_block_bytes; /* largest block that goes into it */
    uint32_t thread_slack_shift; /* a block may be up to size >> shift too large; 0: exact sizes only */
};

/* name: caching, pytorch, auto_growth, prealloc or passthrough. NULL: unknown name. */
const struct gp_policy *gp_policy_find(const char *name);
/* The policy at this index, in the order of the documentation; NULL after the last. */
const struct gp_policy *gp_policy_at(unsigned index);

/* Applies the text of GPUPROF_ALLOC_CONF (the grammar of PYTORCH_CUDA_ALLOC_CONF, k:v,k:v) to
 * *policy. Every known key is accepted for every policy; `why` names settings that have no effect
 * there. Returns 0, or -EINVAL with the error in `why` and *policy unchanged. Keys:
 * max_split_size_mb max_non_split_rounding_mb garbage_collection_threshold roundup_power2_divisions
 * expandable_segments large_segment_size_mb per_process_memory_fraction. Accepted without effect,
 * with the reason in `why`: backend release_lock_on_cudamalloc pinned_*
 * graph_capture_record_stream_reuse throw_on_cudamalloc_oom expandable_segments_reserve*. */
int gp_policy_configure(struct gp_policy *policy, const char *text, char *why, size_t why_bytes);
/* The keys of that text, those with an effect first; NULL after the last. */
const char *gp_policy_key(unsigned index);

/* ---- the rules -------------------------------------------------------------------------------------------------- */

/* The block's size for a request. */
uint64_t gp_policy_round(const struct gp_policy *policy, uint64_t bytes);
/* Does a block of this size belong to the small pool? */
bool gp_policy_is_small(const struct gp_policy *policy, uint64_t block_bytes);
/* The size of the segment to allocate when no idle block serves a block of this size. */
uint64_t gp_policy_segment(const struct gp_policy *policy, uint64_t block_bytes);
/* May an idle block of `have` bytes serve a request of `want`? (The oversize rules.) growable: the
 * block lies in a growable segment. */
bool gp_policy_may_take(const struct gp_policy *policy, uint64_t have, uint64_t want, bool growable);
/* Is the rest of `have - want` split off? */
bool gp_policy_splits(const struct gp_policy *policy, uint64_t have, uint64_t want, bool small, bool growable);
bool gp_policy_is_oversize(const struct gp_policy *policy, uint64_t block_bytes);

#endif
