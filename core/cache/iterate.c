/* SPDX-License-Identifier: MIT
 *
 * iterate.c: visits every segment and block while other threads use the cache; the lock is held for
 * at most GP_CACHE_REST visits at a time (cache.h).
 *
 * It first collects the segments' addresses, then looks up each by its address, which also shows
 * whether the segment still exists. While the lock is released, a cursor keeps the next block's
 * record; block.c corrects it when that block is joined with the one before it, or dropped.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mremap */
#endif
#include "base/lock.h"
#include "cache/block.h"
#include "cache/cache.h"
#include "cache/internal.h"
#include "cache/threadcache.h"
#include <sys/mman.h>

struct gp_iteration {
    struct gp_cache *cache;
    void *arg;
    bool (*segment)(void *arg, const struct gp_cache_segment *segment);
    bool (*block)(void *arg, const struct gp_cache_block *block);
    void (*rest)(void *arg);
    struct gp_cursor cursor;
    uint64_t *addresses;
    uint64_t count, room; /* of the addresses */
    unsigned visits;      /* since the last rest */
};

/* ---- public descriptions
 * ---------------------------------------------------------------------------------------- */

static struct gp_cache_segment segment_shown(const struct gp_segment *segment)
{
    return (struct gp_cache_segment){segment->address,         segment->bytes,    segment->heap->stream,
                                     segment->heap->kind.pool, segment->growable, segment->dedicated,
                                     segment->heap->kind.small};
}

static struct gp_cache_block block_shown(const struct gp_block *block)
{
    static const enum gp_cache_state states[] = {
        [GP_BLOCK_LIVE] = GP_CACHE_LIVE,   [GP_BLOCK_WAITING] = GP_CACHE_WAITING,
        [GP_BLOCK_IDLE] = GP_CACHE_IDLE,   [GP_BLOCK_UNMAPPED] = GP_CACHE_UNMAPPED,
        [GP_BLOCK_CACHED] = GP_CACHE_IDLE, [GP_BLOCK_TAKEN] = GP_CACHE_IDLE};
    /* Other threads allocate blocks from their caches, and free them, without the lock: the state is read once.
     * [block.A2] acquire: what belongs to a live block; pairs with [block.R1]. */
    const unsigned state = (unsigned)(__atomic_load_n(&block->word, __ATOMIC_ACQUIRE) & GP_BLOCK_STATE);
    bool live = state == GP_BLOCK_LIVE;
    return (struct gp_cache_block){
        .address = block->address,
        .bytes = block->bytes,
        .requested_bytes = __atomic_load_n(&block->requested_bytes, __ATOMIC_RELAXED),
        .stream = __atomic_load_n(&block->stream, __ATOMIC_RELAXED),
        .state = states[state],
        .tag = live ? __atomic_load_n(&block->tag, __ATOMIC_RELAXED) : 0,
        .time_ns = live ? __atomic_load_n(&block->time_ns, __ATOMIC_RELAXED) : 0,
    };
}

/* ---- walk under the lock
 * ---------------------------------------------------------------------------------------- */

static struct gp_segment *segment_after(struct gp_cache *cache, uint64_t address, bool first)
{
    struct gp_segment *next = NULL;
    for (struct gp_segment *segment = cache->segments; segment; segment = segment->next)
        if ((first || segment->address > address) && (!next || segment->address < next->address))
            next = segment;
    return next;
}

static bool segment_visit(const struct gp_segment *segment, void *arg,
                          bool (*visit_segment)(void *, const struct gp_cache_segment *),
                          bool (*visit_block)(void *, const struct gp_cache_block *))
{
    const struct gp_cache_segment shown = segment_shown(segment);
    if (visit_segment && !visit_segment(arg, &shown))
        return false;
    for (const struct gp_block *block = segment->first; block && visit_block; block = block->after) {
        const struct gp_cache_block one = block_shown(block);
        if (!visit_block(arg, &one))
            return false;
    }
    return true;
}

void gp_cache_walk(struct gp_cache *cache, void *arg,
                   bool (*segment)(void *arg, const struct gp_cache_segment *segment),
                   bool (*block)(void *arg, const struct gp_cache_block *block))
{
    gp_lock_take(&cache->lock);
    gp_thread_flush(cache);
    struct gp_segment *at = segment_after(cache, 0, true);
    while (at && segment_visit(at, arg, segment, block))
        at = segment_after(cache, at->address, false);
    gp_lock_give(&cache->lock);
}

/* ---- resting ----------------------------------------------------------------------------------------------------- */

static void iterate_rest(struct gp_iteration *iteration)
{
    gp_lock_give(&iteration->cache->lock);
    if (iteration->rest)
        iteration->rest(iteration->arg);
    gp_lock_pass(&iteration->cache->lock);
    gp_lock_take(&iteration->cache->lock);
    iteration->visits = 0;
}

/* ---- the segments' addresses ------------------------------------------------------------------------------------- */

/* Makes room for one more batch. Takes no lock. */
static bool iterate_room(struct gp_iteration *iteration)
{
    uint64_t room = iteration->room ? iteration->room * 2 : GP_CACHE_REST;
    if (iteration->count + GP_CACHE_REST <= iteration->room)
        return true;
    void *at = iteration->room ? mremap(iteration->addresses, iteration->room * 8, room * 8, MREMAP_MAYMOVE)
                               : mmap(NULL, room * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return false;
    iteration->addresses = at;
    iteration->room = room;
    return true;
}

static bool iterate_gather(struct gp_iteration *iteration)
{
    bool room = iterate_room(iteration);
    gp_lock_take(&iteration->cache->lock);
    gp_block_cursor_enter(iteration->cache, &iteration->cursor);
    iteration->cursor.segment = iteration->cache->segments;
    while (room && iteration->cursor.segment) {
        for (unsigned i = 0; i < GP_CACHE_REST && iteration->cursor.segment; i++) {
            iteration->addresses[iteration->count++] = iteration->cursor.segment->address;
            iteration->cursor.segment = iteration->cursor.segment->next;
        }
        gp_lock_give(&iteration->cache->lock);
        gp_lock_pass(&iteration->cache->lock);
        room = iterate_room(iteration);
        gp_lock_take(&iteration->cache->lock);
    }
    gp_block_cursor_leave(iteration->cache, &iteration->cursor);
    gp_lock_give(&iteration->cache->lock);
    return room;
}

static void iterate_sift(uint64_t *heap, uint64_t at, uint64_t count)
{
    for (uint64_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && heap[child + 1] > heap[child];
        if (heap[at] >= heap[child])
            return;
        uint64_t low = heap[at];
        heap[at] = heap[child];
        heap[child] = low;
    }
}

/* Heapsort, because libc's qsort may call malloc. */
static void iterate_sort(uint64_t *addresses, uint64_t count)
{
    for (uint64_t i = count / 2; i-- > 0;)
        iterate_sift(addresses, i, count);
    for (uint64_t i = count; i-- > 1;) {
        uint64_t last = addresses[i];
        addresses[i] = addresses[0];
        addresses[0] = last;
        iterate_sift(addresses, 0, i);
    }
}

/* ---- one segment ------------------------------------------------------------------------------------------------- */

/* Shows the block from `next` on, where the last visit ended; the block may have changed since. */
static bool iterate_block(struct gp_iteration *iteration, const struct gp_block *block, uint64_t next)
{
    struct gp_cache_block one = block_shown(block);
    if (one.address != next) { /* joined with what was shown before, or allocated again with a part of it */
        one.bytes -= next - one.address;
        one.address = next;
        one.requested_bytes = one.tag = one.time_ns = 0;
        one.state = one.state == GP_CACHE_UNMAPPED ? GP_CACHE_UNMAPPED : GP_CACHE_IDLE;
    }
    iteration->visits++;
    return iteration->block(iteration->arg, &one);
}

static bool iterate_blocks(struct gp_iteration *iteration, const struct gp_cache_segment *shown)
{
    uint64_t next = shown->address, end = shown->address + shown->bytes;
    while (iteration->cursor.block) {
        struct gp_block *block = iteration->cursor.block;
        /* The block that it was joined with may have been split since. */
        if (block->address + block->bytes > next) {
            if (!iterate_block(iteration, block, next))
                return false;
            next = block->address + block->bytes;
        }
        iteration->cursor.block = block->after;
        if (iteration->visits >= GP_CACHE_REST)
            iterate_rest(iteration);
    }
    if (next == end)
        return true;
    iteration->visits++;
    return iteration->block(iteration->arg,
                            &(struct gp_cache_block){
                                .address = next, .bytes = end - next, .stream = shown->stream, .state = GP_CACHE_IDLE});
}

static bool iterate_segment(struct gp_iteration *iteration, uint64_t address)
{
    struct gp_block *first = gp_table_at(iteration->cache, address);
    struct gp_segment *segment = first && gp_block_state(first) != GP_BLOCK_SPARE ? first->segment : NULL;
    if (!segment || segment->address != address)
        return true; /* released meanwhile */
    const struct gp_cache_segment shown = segment_shown(segment);
    iteration->cursor.block = first;
    iteration->visits++;
    bool more = iteration->segment(iteration->arg, &shown) && iterate_blocks(iteration, &shown);
    if (more && iteration->visits >= GP_CACHE_REST)
        iterate_rest(iteration);
    return more;
}

void gp_cache_iterate(struct gp_cache *cache, void *arg,
                      bool (*segment)(void *arg, const struct gp_cache_segment *segment),
                      bool (*block)(void *arg, const struct gp_cache_block *block), void (*rest)(void *arg))
{
    struct gp_iteration iteration = {.cache = cache, .arg = arg, .segment = segment, .block = block, .rest = rest};
    gp_thread_pass(cache);
    bool more = iterate_gather(&iteration);
    if (!more) /* no memory for the addresses: walk under the lock, in one go */
        gp_cache_walk(cache, arg, segment, block);
    iterate_sort(iteration.addresses, iteration.count);
    gp_lock_take(&cache->lock);
    gp_block_cursor_enter(cache, &iteration.cursor);
    for (uint64_t i = 0; more && i < iteration.count; i++)
        more = iterate_segment(&iteration, iteration.addresses[i]);
    gp_block_cursor_leave(cache, &iteration.cursor);
    gp_lock_give(&cache->lock);
    if (iteration.room)
        munmap(iteration.addresses, iteration.room * 8);
    if (rest)
        rest(arg);
}
