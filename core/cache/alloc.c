/* SPDX-License-Identifier: MIT
 *
 * alloc.c: the allocation of a block (cache.h has the contract). An allocation tries these steps in
 * order until one serves it:
 *
 *      1. idle memory of its heap
 *      2. waiting blocks whose fence is reached; a request whose heap has enough unordered frees
 *         waits for their fence rather than grow, as cuMemFree would have waited
 *      3. idle memory of destroyed streams, after a fence (only_first: of any other stream)
 *      4. garbage collection (pytorch)
 *      5. new memory, or idle pages from elsewhere (caching: whichever keeps reserved near the
 *         peak of allocated)
 *      6. releasing oversize segments, then new memory (pytorch with max_split_size)
 *      7. idle memory of other streams, after a fence (streams_share), then of all threads' caches
 *         and of all waiting blocks
 *      8. releasing all idle memory, then new memory: a retry
 *
 * Every step but the first runs under `grow`.
 */
#include "base/compiler.h"
#include "base/lock.h"
#include "cache/block.h"
#include "cache/cache.h"
#include "cache/gauges.h"
#include "cache/internal.h"
#include "cache/page.h"
#include "cache/policy.h"
#include "cache/segment.h"
#include "cache/threadcache.h"
#include "cache/wait.h"

#define GP_REQUEST_MOST (1ull << 60) /* PyTorch refuses 1 EiB and more before it calls the driver */

struct gp_attempt { /* a request while it goes through the steps */
    struct gp_cache *cache;
    struct gp_heap *heap;
    const struct gp_request *request;
    uint64_t bytes;
    struct gp_block *block;
    uint32_t error;
};

static void flush_threads(struct gp_cache *cache)
{
    gp_lock_take(&cache->lock);
    gp_thread_flush(cache);
    gp_lock_give(&cache->lock);
}

static bool try_idle(struct gp_attempt *attempt)
{
    gp_lock_take(&attempt->cache->lock);
    attempt->block = gp_block_heap_give(attempt->cache, attempt->heap, attempt->request, attempt->bytes);
    gp_lock_give(&attempt->cache->lock);
    return attempt->block != NULL;
}

/* A block of the thread's own cache that is larger than the cache would give: the rest is split off. */
static bool try_own_cache(struct gp_attempt *attempt)
{
    struct gp_cache *cache = attempt->cache;
    gp_lock_take(&cache->lock);
    if (!attempt->heap->kind.pool && attempt->heap->kind.small &&
        gp_thread_yield(cache, attempt->request, attempt->bytes))
        attempt->block = gp_block_heap_give(cache, attempt->heap, attempt->request, attempt->bytes);
    gp_lock_give(&cache->lock);
    return attempt->block != NULL;
}

static bool try_waiting(struct gp_attempt *attempt)
{
    struct gp_cache *cache = attempt->cache;
    gp_lock_take(&cache->lock);
    bool waits = cache->waiting_bytes > 0;
    bool any = attempt->heap->unordered_bytes >= attempt->bytes;
    gp_lock_give(&cache->lock);
    if (!waits)
        return false;
    gp_wait_settle(cache, any, false);
    if (try_idle(attempt))
        return true;
    if (!any)
        return false;
    gp_wait_settle(cache, true, true);
    return try_idle(attempt);
}

static bool attempt_may_grow(const struct gp_attempt *attempt)
{
    return attempt->cache->policy.growable && !attempt->heap->kind.linear;
}

static uint32_t attempt_map(struct gp_attempt *attempt, bool make)
{
    enum gp_growth how = make ? GP_GROW_AHEAD : GP_GROW_MOVE;
    for (;;) {
        uint32_t error =
            gp_page_grow(attempt->cache, attempt->heap, attempt->request, attempt->bytes, how, &attempt->block);
        if (error == GP_BACKEND_BUSY) /* another thread took the memory; move pages once, then make new ones */
            how = how == GP_GROW_MOVE ? GP_GROW_AHEAD : how;
        else if (error == GP_BACKEND_OOM && how == GP_GROW_AHEAD)
            how = GP_GROW_EXACT;
        else
            return error;
    }
}

static bool try_grow(struct gp_attempt *attempt, bool make)
{
    struct gp_cache *cache = attempt->cache;
    if (!attempt_may_grow(attempt))
        attempt->error = gp_segment_grow(cache, attempt->heap, attempt->request, attempt->bytes, &attempt->block);
    else
        attempt->error = attempt_map(attempt, make);
    return attempt->error == 0;
}

/* Each moved byte lets the reserve grow by 1/32 byte: moving pages 32 times costs about as much as
 * keeping as much memory for good. This stops a workload whose demand slightly exceeds its peak
 * from moving pages back and forth forever. */
#define GP_MOVES_EARN 32

/* True if idle pages should be mapped here instead of making new ones: new ones would make the
 * reserve larger than the peak of allocated memory allows, and there are enough idle pages; or new
 * ones would exceed it by a quarter of the slack, and idle pages serve at least half of the request.
 * Without the second case, image sizes by chance in a diffusion model left 22 % of the reserve unused. */
static bool attempt_moves(const struct gp_attempt *attempt)
{
    struct gp_cache *cache = attempt->cache;
    if (!cache->policy.moves_pages || !attempt_may_grow(attempt))
        return false;
    gp_lock_take(&cache->lock);
    uint64_t used = cache->reserved_bytes - cache->idle_bytes - cache->waiting_bytes + attempt->bytes;
    uint64_t peak = used > cache->peak_bytes ? used : cache->peak_bytes;
    uint64_t allowed =
        (uint64_t)((1 + cache->policy.slack_fraction) * (double)peak) + cache->moved_bytes / GP_MOVES_EARN;
    uint64_t grown = cache->reserved_bytes + attempt->bytes, idle = grown > allowed ? gp_page_idle(cache) : 0;
    uint64_t most = allowed + (uint64_t)(cache->policy.slack_fraction / 4 * (double)peak);
    bool moves = grown > allowed && (idle >= attempt->bytes || (grown > most && idle > attempt->bytes / 2));
    gp_lock_give(&cache->lock);
    return moves;
}

/* Under lock: a fitting idle block of another stream. destroyed_only: only of destroyed streams.
 * quiet: only one that no work uses. */
static struct gp_block *attempt_foreign(struct gp_attempt *attempt, bool destroyed_only, bool quiet)
{
    struct gp_cache *cache = attempt->cache;
    for (struct gp_heap *heap = cache->heaps; heap; heap = heap->next) {
        if (heap == attempt->heap || !gp_heap_kind_same(&heap->kind, &attempt->heap->kind) ||
            (destroyed_only && heap->stream != GP_STREAM_DESTROYED))
            continue;
        struct gp_block *fit = gp_block_heap_find(cache, heap, attempt->bytes);
        if (fit && (!quiet || fit->epoch <= cache->settled))
            return fit;
    }
    return NULL;
}

/* Allocates such a block after a fence. The block stays in its heap, and waits for the requesting
 * stream when it is freed. */
static bool try_share(struct gp_attempt *attempt, bool destroyed_only)
{
    struct gp_cache *cache = attempt->cache;
    gp_lock_take(&cache->lock);
    bool there = attempt_foreign(attempt, destroyed_only, false) != NULL;
    gp_lock_give(&cache->lock);
    if (!there || !gp_wait_all(cache))
        return false;
    gp_lock_take(&cache->lock);
    struct gp_block *fit = attempt_foreign(attempt, destroyed_only, true);
    if (fit)
        attempt->block = gp_block_give(cache, fit, attempt->request, attempt->bytes);
    gp_lock_give(&cache->lock);
    return fit != NULL;
}

/* Bytes that each thread's cache may hold while the reserve grows: 2 % of the smallest training run
 * (1.7 GiB) among the traces, and enough that a loop over mixed sizes finds a block that fits. All
 * threads together may hold four times as much. */
#define GP_THREAD_KEEP  (32u << 20)
#define GP_THREADS_KEEP (4u * GP_THREAD_KEEP)

/* If pages would have to move, a fitting block of another stream is tried first: it costs a fence
 * and no mapping. */
static bool try_memory(struct gp_attempt *attempt)
{
    /* attempt_moves counts the threads' cached blocks as used. Flush them, so that the reserve does
     * not grow because of them. */
    if (gp_thread_holds_more(attempt->cache, GP_THREAD_KEEP, GP_THREADS_KEEP)) {
        if (try_own_cache(attempt))
            return true;
        flush_threads(attempt->cache);
        if (try_idle(attempt))
            return true;
    }
    bool move = attempt_moves(attempt);
    if (move && attempt->cache->policy.streams_share && try_share(attempt, false))
        return true;
    return try_grow(attempt, !(move && gp_wait_all(attempt->cache)));
}

static bool try_idle_pages(struct gp_attempt *attempt)
{
    struct gp_cache *cache = attempt->cache;
    if (!attempt_may_grow(attempt) || !cache->policy.moves_pages)
        return false;
    gp_lock_take(&cache->lock);
    bool there = gp_page_idle(cache) > 0;
    gp_lock_give(&cache->lock);
    return there && try_grow(attempt, false);
}

static bool try_again(struct gp_attempt *attempt)
{
    struct gp_cache *cache = attempt->cache;
    if (attempt->error != GP_BACKEND_OOM)
        return false;
    if (cache->policy.max_split_bytes != UINT64_MAX &&
        gp_segment_release_oversize(cache, attempt->heap, attempt->bytes) && try_grow(attempt, true))
        return true;
    if (try_share(attempt, !cache->policy.streams_share))
        return true;
    flush_threads(cache);
    gp_wait_settle(cache, true, true);
    if (try_idle(attempt))
        return true;
    if (!gp_wait_all(cache))
        return false;
    if (try_idle_pages(attempt))
        return true;
    __atomic_fetch_add(&cache->x_retries, 1, __ATOMIC_RELAXED); /* a count */
    gp_cache_tell(cache, GP_CACHE_RETRY, 0, attempt->bytes, attempt->request->stream, 0);
    gp_segment_release(cache, 0);
    gp_page_release(cache, 0);
    gp_page_drop_ranges(cache);
    return try_grow(attempt, true);
}

/* Under grow. */
static bool try_each_step(struct gp_attempt *attempt)
{
    struct gp_cache *cache = attempt->cache;
    if (try_idle(attempt) || try_waiting(attempt) || try_share(attempt, !cache->policy.only_first))
        return true;
    gp_page_drop_ranges(cache);
    if (attempt->heap->kind.dedicated)
        gp_segment_trim_dedicated(cache);
    gp_segment_collect(cache);
    return try_memory(attempt) || try_again(attempt);
}

/* Under lock. */
static bool attempt_heap(struct gp_attempt *attempt)
{
    const struct gp_policy *policy = &attempt->cache->policy;
    const struct gp_request *request = attempt->request;
    bool dedicated = request->flags & GP_REQUEST_DEDICATED;
    const struct gp_heap_kind kind = {
        .pool = request->pool,
        .small = gp_policy_is_small(policy, attempt->bytes),
        .linear = dedicated || request->flags & GP_REQUEST_LINEAR || !policy->growable,
        .dedicated = dedicated,
    };
    attempt->heap = gp_block_heap_of(attempt->cache, &kind, request->stream);
    return attempt->heap != NULL;
}

static uint32_t alloc_slow(struct gp_attempt *attempt)
{
    struct gp_cache *cache = attempt->cache;
    gp_lock_take(&cache->grow);
    gp_lock_take(&cache->lock);
    bool served = attempt_heap(attempt); /* look it up again: the stream may have been destroyed since */
    gp_lock_give(&cache->lock);
    served = served && try_each_step(attempt);
    gp_lock_give(&cache->grow);
    if (served)
        return 0;
    if (attempt->error == GP_BACKEND_OOM)
        gp_cache_tell(cache, GP_CACHE_OOM, 0, attempt->request->bytes, attempt->request->stream, 0);
    return attempt->error ? attempt->error : GP_BACKEND_OOM;
}

static __attribute__((noinline)) uint32_t cache_alloc_slow(struct gp_cache *cache, const struct gp_request *request,
                                                           struct gp_grant *out)
{
    struct gp_attempt attempt = {.cache = cache, .request = request};
    if (request->bytes > GP_REQUEST_MOST) {
        gp_cache_tell(cache, GP_CACHE_OOM, 0, request->bytes, request->stream, 0);
        return GP_BACKEND_OOM;
    }
    attempt.bytes = gp_policy_round(&cache->policy, request->bytes);
    gp_lock_take(&cache->lock);
    /* Ages are for garbage collection, which PyTorch counts in its requests for large blocks. */
    cache->clock += request->flags & GP_REQUEST_DEDICATED || !gp_policy_is_small(&cache->policy, attempt.bytes);
    if (attempt_heap(&attempt))
        attempt.block = gp_block_heap_give(cache, attempt.heap, request, attempt.bytes);
    gp_lock_give(&cache->lock);
    if (!attempt.block) {
        uint32_t error = alloc_slow(&attempt);
        if (error)
            return error;
    }
    struct gp_block *block = attempt.block;
    uint64_t time_ns = gp_cache_gauges_alloc(cache, request->shard, block);
    gp_block_begun(cache, block, time_ns);
    *out = (struct gp_grant){block->address, block->bytes, block->requested_bytes, request->stream, request->tag,
                             time_ns,        block};
    return 0;
}

uint32_t gp_cache_alloc(struct gp_cache *cache, const struct gp_request *request, struct gp_grant *out)
{
    return GP_LIKELY(gp_cache_give(cache, request, out)) ? 0 : cache_alloc_slow(cache, request, out);
}
