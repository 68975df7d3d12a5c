/* SPDX-License-Identifier: MIT
 *
 * segment.c: gets segments from the backend and releases them. Called under `grow`. Takes `lock`
 * for the records, and never holds it while the backend runs. A segment is released only when it is
 * one idle block.
 */
#include "cache/segment.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "cache/arena.h"
#include "cache/block.h"
#include "cache/cache.h"
#include "cache/gauges.h"
#include "cache/internal.h"
#include "cache/policy.h"

bool gp_segment_allowed(struct gp_cache *cache, uint64_t bytes)
{
    uint64_t limit = __atomic_load_n(&cache->limit_bytes, __ATOMIC_RELAXED);
    if (!limit && cache->policy.memory_fraction > 0 && !cache->total_bytes) {
        uint64_t free_bytes;
        gp_cache_called(cache);
        cache->backend.memory(cache->backend.self, &free_bytes, &cache->total_bytes);
    }
    if (!limit && cache->policy.memory_fraction > 0)
        limit = (uint64_t)(cache->policy.memory_fraction * (double)cache->total_bytes);
    gp_lock_take(&cache->lock);
    uint64_t reserved = cache->reserved_bytes;
    gp_lock_give(&cache->lock);
    return !limit || reserved + bytes <= limit;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

struct gp_segment *gp_segment_new(struct gp_cache *cache, struct gp_heap *heap, uint64_t address, uint64_t bytes)
{
    struct gp_segment *segment = gp_arena_slab_take(&cache->segment_records);
    if (!segment)
        return NULL;
    segment->heap = heap;
    segment->address = address;
    segment->bytes = bytes;
    segment->number = cache->segments_made++;
    segment->first = gp_block_new(cache, segment, address, bytes);
    if (!segment->first) {
        gp_arena_slab_give(&cache->segment_records, segment);
        return NULL;
    }
    segment->next = cache->segments;
    if (segment->next)
        segment->next->before = segment;
    cache->segments = segment;
    if (!cache->highest || segment->address < cache->lowest)
        cache->lowest = segment->address;
    if (segment->address + segment->bytes > cache->highest)
        cache->highest = segment->address + segment->bytes;
    return segment;
}

void gp_segment_drop(struct gp_cache *cache, struct gp_segment *segment)
{
    struct gp_block *next;
    if (GP_UNLIKELY(cache->cursors))
        gp_block_cursor_segment_removed(cache, segment);
    for (struct gp_block *block = segment->first; block; block = next) {
        next = block->after;
        gp_block_drop(cache, block);
    }
    if (segment->before)
        segment->before->next = segment->next;
    else
        cache->segments = segment->next;
    if (segment->next)
        segment->next->before = segment->before;
    gp_arena_slab_give(&cache->segment_records, segment);
}

bool gp_segment_is_idle(const struct gp_segment *segment)
{
    return !segment->growable && !segment->heap->pinned && gp_block_state(segment->first) == GP_BLOCK_IDLE &&
           !segment->first->after;
}

/* ---- growing ----------------------------------------------------------------------------------------------------- */

static uint64_t segment_first_chunk(struct gp_cache *cache)
{
    uint64_t free_bytes = 0, step = 2u << 20;
    gp_cache_called(cache);
    if (cache->backend.memory(cache->backend.self, &free_bytes, &cache->total_bytes) != 0)
        return 0;
    return (uint64_t)(cache->policy.first_fraction * (double)free_bytes) / step * step;
}

static uint64_t segment_size(struct gp_cache *cache, const struct gp_heap *heap, uint64_t bytes, bool *first_chunk)
{
    const struct gp_policy *policy = &cache->policy;
    *first_chunk = false;
    if (heap->kind.dedicated) {
        uint64_t step = policy->segment_round_bytes > 1 ? policy->segment_round_bytes : 1;
        return (bytes + step - 1) / step * step;
    }
    if (policy->first_fraction > 0 && !cache->first_made) {
        uint64_t chunk = segment_first_chunk(cache);
        cache->first_made = true;
        *first_chunk = chunk >= bytes;
        if (*first_chunk)
            return chunk;
    }
    return gp_policy_segment(policy, bytes);
}

/* Under lock: adds the records of an idle segment. *time_ns: when it entered the gauges. */
static struct gp_segment *segment_link(struct gp_cache *cache, struct gp_heap *heap, uint64_t address, uint64_t bytes,
                                       bool first_chunk, uint64_t *time_ns)
{
    struct gp_segment *segment = gp_segment_new(cache, heap, address, bytes);
    if (!segment)
        return NULL;
    segment->dedicated = heap->kind.dedicated;
    segment->first_chunk = first_chunk;
    segment->oversize = gp_policy_is_oversize(&cache->policy, bytes);
    cache->reserved_bytes += bytes;
    *time_ns = gp_cache_gauges_reserve(cache, heap, bytes, true, segment->oversize, true);
    gp_block_idle(cache, segment->first);
    return segment;
}

static struct gp_block *segment_enter(struct gp_cache *cache, struct gp_heap *heap, uint64_t address, uint64_t bytes,
                                      const struct gp_request *request, uint64_t want, bool first_chunk,
                                      uint64_t *time_ns)
{
    gp_lock_take(&cache->lock);
    struct gp_segment *segment = segment_link(cache, heap, address, bytes, first_chunk, time_ns);
    struct gp_block *block = segment ? gp_block_give(cache, segment->first, request, want) : NULL;
    gp_lock_give(&cache->lock);
    return block;
}

uint32_t gp_segment_grow(struct gp_cache *cache, struct gp_heap *heap, const struct gp_request *request, uint64_t bytes,
                         struct gp_block **out)
{
    bool first_chunk;
    uint64_t address, time_ns, size = segment_size(cache, heap, bytes, &first_chunk);
    if (!gp_segment_allowed(cache, size))
        return GP_BACKEND_OOM;
    gp_cache_called(cache);
    uint32_t error = cache->backend.allocate(cache->backend.self, size, &address);
    if (error && first_chunk) { /* the fraction was too large: allocate for the request only */
        first_chunk = false;
        size = gp_policy_segment(&cache->policy, bytes);
        gp_cache_called(cache);
        error = cache->backend.allocate(cache->backend.self, size, &address);
    }
    if (error)
        return error;
    *out = segment_enter(cache, heap, address, size, request, bytes, first_chunk, &time_ns);
    if (!*out) { /* no memory for the record */
        gp_cache_called(cache);
        cache->backend.free(cache->backend.self, address);
        return GP_BACKEND_OOM;
    }
    __atomic_fetch_add(&cache->x_device_allocs, 1, __ATOMIC_RELAXED); /* a count */
    gp_cache_tell_for(cache, GP_CACHE_SEGMENT_ALLOC, address, size, heap->stream, time_ns, request->tag);
    return 0;
}

/* ---- releasing
 * ----------------------------------------------------------------------------------------------
 * - */

/* False: the backend refused the free. */
static bool segment_free(struct gp_cache *cache, const struct gp_unlinked_segment *unlinked)
{
    gp_cache_called(cache);
    if (cache->backend.free(cache->backend.self, unlinked->address) != 0)
        return false;
    __atomic_fetch_add(&cache->x_device_frees, 1, __ATOMIC_RELAXED); /* a count */
    gp_cache_tell(cache, GP_CACHE_SEGMENT_FREE, unlinked->address, unlinked->bytes, unlinked->stream,
                  unlinked->time_ns);
    return true;
}

void gp_segment_unlink_idle(struct gp_cache *cache, struct gp_segment *segment, struct gp_unlinked_segment *out)
{
    *out = (struct gp_unlinked_segment){segment->heap->kind, segment->heap->stream, segment->address, segment->bytes, 0,
                                        segment->first_chunk};
    gp_block_unidle(cache, segment->first);
    cache->reserved_bytes -= segment->bytes;
    out->time_ns = gp_cache_gauges_reserve(cache, segment->heap, segment->bytes, true, segment->oversize, false);
    gp_segment_drop(cache, segment);
}

bool gp_segment_free_unlinked(struct gp_cache *cache, const struct gp_unlinked_segment *unlinked)
{
    if (segment_free(cache, unlinked))
        return true;
    /* The cache still owns the memory. No call has waited for its work, so it goes to a heap whose
     * memory is reused only after a fence. */
    uint64_t time_ns;
    gp_lock_take(&cache->lock);
    struct gp_heap *after_fence = gp_block_heap_of(cache, &unlinked->kind, GP_STREAM_DESTROYED);
    if (after_fence)
        segment_link(cache, after_fence, unlinked->address, unlinked->bytes, unlinked->first_chunk, &time_ns);
    gp_lock_give(&cache->lock);
    return false;
}

/* Releases the best of the idle segments that `wanted` accepts. Returns its bytes; 0: none. */
static uint64_t segment_free_one(struct gp_cache *cache, bool (*wanted)(const struct gp_segment *, void *),
                                 bool (*better)(const struct gp_segment *, const struct gp_segment *), void *arg)
{
    struct gp_segment *best = NULL;
    gp_lock_take(&cache->lock);
    for (struct gp_segment *segment = cache->segments; segment; segment = segment->next)
        if (wanted(segment, arg) && (!best || better(segment, best)) && gp_segment_is_idle(segment))
            best = segment;
    if (!best) {
        gp_lock_give(&cache->lock);
        return 0;
    }
    struct gp_unlinked_segment unlinked;
    gp_segment_unlink_idle(cache, best, &unlinked);
    gp_lock_give(&cache->lock);
    return gp_segment_free_unlinked(cache, &unlinked) ? unlinked.bytes : 0;
}

static bool segment_larger(const struct gp_segment *a, const struct gp_segment *b)
{
    return a->bytes > b->bytes;
}

static bool segment_older(const struct gp_segment *a, const struct gp_segment *b)
{
    return a->first->born < b->first->born;
}

static bool segment_is_dedicated(const struct gp_segment *segment, void *arg)
{
    (void)arg;
    return segment->dedicated;
}

/* So many segments are released after one look at all of them. */
#define SEGMENTS_AT_ONCE 16u

/* Under lock: the largest idle segments, the largest first; among equal ones in the list's order. */
static unsigned segment_largest(const struct gp_cache *cache, struct gp_segment **best)
{
    unsigned count = 0;
    for (struct gp_segment *segment = cache->segments; segment; segment = segment->next) {
        bool full = count == SEGMENTS_AT_ONCE;
        if ((full && segment->bytes <= best[count - 1]->bytes) || !gp_segment_is_idle(segment))
            continue;
        unsigned at = full ? count - 1 : count++;
        for (; at && best[at - 1]->bytes < segment->bytes; at--)
            best[at] = best[at - 1];
        best[at] = segment;
    }
    return count;
}

/* Releases the largest ones.  False: there is none, at most keep_bytes are idle, or the backend refused. */
static bool segment_release_some(struct gp_cache *cache, uint64_t keep_bytes, uint64_t *given)
{
    struct gp_segment *best[SEGMENTS_AT_ONCE];
    struct gp_unlinked_segment unlinked[SEGMENTS_AT_ONCE];
    unsigned count = 0, freed = 0;
    gp_lock_take(&cache->lock);
    unsigned most = cache->idle_bytes > keep_bytes ? segment_largest(cache, best) : 0;
    for (; count < most && cache->idle_bytes > keep_bytes; count++)
        gp_segment_unlink_idle(cache, best[count], &unlinked[count]);
    gp_lock_give(&cache->lock);
    for (unsigned i = 0; i < count; i++) {
        bool done = gp_segment_free_unlinked(cache, &unlinked[i]);
        *given += done ? unlinked[i].bytes : 0;
        freed += done;
    }
    return count > 0 && freed == count;
}

uint64_t gp_segment_release(struct gp_cache *cache, uint64_t keep_bytes)
{
    uint64_t given = 0;
    while (segment_release_some(cache, keep_bytes, &given))
        ;
    return given;
}

struct segment_oversize {
    const struct gp_heap *heap;
    uint64_t least;
};

static bool segment_is_oversize(const struct gp_segment *segment, void *arg)
{
    const struct segment_oversize *wanted = arg;
    return segment->oversize && segment->heap == wanted->heap && segment->bytes >= wanted->least;
}

static bool segment_smaller(const struct gp_segment *a, const struct gp_segment *b)
{
    return a->bytes < b->bytes;
}

bool gp_segment_release_oversize(struct gp_cache *cache, const struct gp_heap *heap, uint64_t bytes)
{
    uint64_t need = bytes > cache->policy.max_split_bytes ? bytes : cache->policy.max_split_bytes, given, once = 1;
    struct segment_oversize wanted = {heap, need};
    /* One that is large enough by itself; otherwise the largest ones until they suffice. */
    given = segment_free_one(cache, segment_is_oversize, segment_smaller, &wanted);
    for (wanted.least = 0; once && given < need; given += once)
        once = segment_free_one(cache, segment_is_oversize, segment_larger, &wanted);
    return given >= need;
}

struct gp_collection {
    uint64_t clock, threshold;
};

static bool segment_is_old(const struct gp_segment *segment, void *arg)
{
    const struct gp_collection *collection = arg;
    return !segment->heap->kind.small && collection->clock - segment->first->born >= collection->threshold;
}

void gp_segment_collect(struct gp_cache *cache)
{
    const struct gp_policy *policy = &cache->policy;
    uint64_t limit = __atomic_load_n(&cache->limit_bytes, __ATOMIC_RELAXED);
    if (!limit && policy->memory_fraction > 0 && policy->memory_fraction < 1)
        limit = (uint64_t)(policy->memory_fraction * (double)cache->total_bytes);
    uint64_t floor = (uint64_t)(policy->gc_threshold * (double)limit), given = 0;
    gp_lock_take(&cache->lock);
    uint64_t reserved = cache->reserved_bytes;
    gp_lock_give(&cache->lock);
    if (policy->gc_threshold <= 0 || !limit || reserved <= floor)
        return;
    uint64_t target = reserved - floor;
    for (bool progress = true; progress && given < target;) {
        uint64_t ages = 0, count = 0;
        gp_lock_take(&cache->lock);
        struct gp_collection collection = {.clock = cache->clock};
        for (struct gp_segment *segment = cache->segments; segment; segment = segment->next)
            if (gp_segment_is_idle(segment) && !segment->heap->kind.small) {
                ages += collection.clock - segment->first->born;
                count++;
            }
        gp_lock_give(&cache->lock);
        /* The oldest part by the average, all of it, whatever the target, as in PyTorch: a whole number is at least the
         * average where it is at least that, rounded up. */
        collection.threshold = count ? (ages + count - 1) / count : 0;
        progress = false;
        for (uint64_t once = 1; count && once; given += once) {
            once = segment_free_one(cache, segment_is_old, segment_older, &collection);
            progress |= once > 0;
        }
    }
}

void gp_segment_trim_dedicated(struct gp_cache *cache)
{
    double most = cache->policy.dedicated_idle_fraction;
    for (uint64_t once = 1; once && most < 1;) {
        gp_lock_take(&cache->lock);
        bool over = (double)cache->dedicated_idle_bytes > most * (double)cache->reserved_bytes;
        gp_lock_give(&cache->lock);
        if (!over)
            return;
        once = segment_free_one(cache, segment_is_dedicated, segment_older, NULL);
    }
}
