/* SPDX-License-Identifier: MIT
 *
 * iterate.c: every segment and block while others go on: the lock is held for a few dozen at a time (cache.h).
 *
 * First the segments' addresses are noted, then each is looked up by its address, which also says whether it is still
 * there.  In between, the next block is kept by its record: the cache corrects it when the block is swallowed by the
 * one before it, or goes.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mremap */
#endif
#include "cache/internal.h"
#include <sys/mman.h>

struct gp_iterating {
    struct gp_cache *cache;
    void *arg;
    bool (*segment)(void *arg, const struct gp_cache_segment *segment);
    bool (*block)(void *arg, const struct gp_cache_block *block);
    void (*rest)(void *arg);
    struct gp_iteration tour;
    uint64_t *addresses;
    uint64_t count, room; /* of the addresses */
    unsigned visits;      /* since the last rest */
};

/* ---- what the outside sees --------------------------------------------------------------------------------------- */

struct gp_cache_segment gp_segment_shown(const struct gp_segment *segment)
{
    return (struct gp_cache_segment){segment->address,  segment->bytes,     segment->heap->stream, segment->heap->pool,
                                     segment->growable, segment->dedicated, segment->heap->small};
}

struct gp_cache_block gp_block_shown(const struct gp_block *block)
{
    static const enum gp_cache_state states[] = {
        [GP_BLOCK_LIVE] = GP_CACHE_LIVE,   [GP_BLOCK_WAITING] = GP_CACHE_WAITING,
        [GP_BLOCK_IDLE] = GP_CACHE_IDLE,   [GP_BLOCK_UNMAPPED] = GP_CACHE_UNMAPPED,
        [GP_BLOCK_CACHED] = GP_CACHE_IDLE, [GP_BLOCK_TAKEN] = GP_CACHE_IDLE};
    bool live = gp_block_state(block) == GP_BLOCK_LIVE;
    /* A block in a thread's cache is given without the lock. */
    return (struct gp_cache_block){
        .address = block->address,
        .bytes = block->bytes,
        .requested_bytes = __atomic_load_n(&block->requested_bytes, __ATOMIC_RELAXED),
        .stream = __atomic_load_n(&block->stream, __ATOMIC_RELAXED),
        .state = states[gp_block_state(block)],
        .tag = live ? __atomic_load_n(&block->tag, __ATOMIC_RELAXED) : 0,
        .time_ns = live ? __atomic_load_n(&block->time_ns, __ATOMIC_RELAXED) : 0,
    };
}

/* ---- resting ----------------------------------------------------------------------------------------------------- */

void gp_iterate_block_gone(struct gp_cache *cache, const struct gp_block *block, struct gp_block *into)
{
    for (struct gp_iteration *tour = cache->tours; tour; tour = tour->next)
        if (tour->block == block)
            tour->block = into;
}

void gp_iterate_segment_gone(struct gp_cache *cache, const struct gp_segment *segment)
{
    for (struct gp_iteration *tour = cache->tours; tour; tour = tour->next) {
        if (tour->block && tour->block->segment == segment)
            tour->block = NULL;
        if (tour->segment == segment)
            tour->segment = segment->next;
    }
}

static void iterate_begin(struct gp_iterating *touring)
{
    gp_lock_take(&touring->cache->lock);
    touring->tour.next = touring->cache->tours;
    touring->cache->tours = &touring->tour;
}

static void iterate_end(struct gp_iterating *touring)
{
    struct gp_iteration **place = &touring->cache->tours;
    while (*place != &touring->tour)
        place = &(*place)->next;
    *place = touring->tour.next;
    gp_lock_give(&touring->cache->lock);
}

static void iterate_rest(struct gp_iterating *touring)
{
    gp_lock_give(&touring->cache->lock);
    if (touring->rest)
        touring->rest(touring->arg);
    gp_lock_pass(&touring->cache->lock);
    gp_lock_take(&touring->cache->lock);
    touring->visits = 0;
}

/* ---- the segments' addresses ------------------------------------------------------------------------------------- */

/* Room for one more batch.  Under no lock. */
static bool iterate_room(struct gp_iterating *touring)
{
    uint64_t room = touring->room ? touring->room * 2 : 512;
    if (touring->count + GP_CACHE_REST <= touring->room)
        return true;
    void *at = touring->room ? mremap(touring->addresses, touring->room * 8, room * 8, MREMAP_MAYMOVE)
                             : mmap(NULL, room * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return false;
    touring->addresses = at;
    touring->room = room;
    return true;
}

static bool iterate_gather(struct gp_iterating *touring)
{
    bool room = iterate_room(touring);
    iterate_begin(touring);
    touring->tour.segment = touring->cache->segments;
    while (room && touring->tour.segment) {
        for (unsigned i = 0; i < GP_CACHE_REST && touring->tour.segment; i++) {
            touring->addresses[touring->count++] = touring->tour.segment->address;
            touring->tour.segment = touring->tour.segment->next;
        }
        gp_lock_give(&touring->cache->lock);
        gp_lock_pass(&touring->cache->lock);
        room = iterate_room(touring);
        gp_lock_take(&touring->cache->lock);
    }
    iterate_end(touring);
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

/* Heapsort: libc's qsort may call malloc. */
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

/* From `next` on: where the last piece ended, in whatever the block is now. */
static bool iterate_block(struct gp_iterating *touring, const struct gp_block *block, uint64_t next)
{
    struct gp_cache_block one = gp_block_shown(block);
    if (one.address != next) { /* joined with what was shown before, or given out again with a part of it */
        one.bytes -= next - one.address;
        one.address = next;
        one.requested_bytes = one.tag = one.time_ns = 0;
        one.state = one.state == GP_CACHE_UNMAPPED ? GP_CACHE_UNMAPPED : GP_CACHE_IDLE;
    }
    touring->visits++;
    return touring->block(touring->arg, &one);
}

static bool iterate_blocks(struct gp_iterating *touring, const struct gp_cache_segment *shown)
{
    uint64_t next = shown->address, end = shown->address + shown->bytes;
    while (touring->tour.block) {
        struct gp_block *block = touring->tour.block;
        /* What swallowed it may have been cut since. */
        if (block->address + block->bytes > next) {
            if (!iterate_block(touring, block, next))
                return false;
            next = block->address + block->bytes;
        }
        touring->tour.block = block->after;
        if (touring->visits >= GP_CACHE_REST)
            iterate_rest(touring);
    }
    if (next == end)
        return true;
    touring->visits++;
    return touring->block(touring->arg,
                          &(struct gp_cache_block){
                              .address = next, .bytes = end - next, .stream = shown->stream, .state = GP_CACHE_IDLE});
}

static bool iterate_segment(struct gp_iterating *touring, uint64_t address)
{
    struct gp_block *first = gp_table_at(touring->cache, address);
    struct gp_segment *segment = first && gp_block_state(first) != GP_BLOCK_SPARE ? first->segment : NULL;
    if (!segment || segment->address != address)
        return true; /* gone */
    const struct gp_cache_segment shown = gp_segment_shown(segment);
    touring->tour.block = first;
    touring->visits++;
    bool more = touring->segment(touring->arg, &shown) && iterate_blocks(touring, &shown);
    if (more && touring->visits >= GP_CACHE_REST)
        iterate_rest(touring);
    return more;
}

void gp_cache_iterate(struct gp_cache *cache, void *arg,
                      bool (*segment)(void *arg, const struct gp_cache_segment *segment),
                      bool (*block)(void *arg, const struct gp_cache_block *block), void (*rest)(void *arg))
{
    struct gp_iterating touring = {.cache = cache, .arg = arg, .segment = segment, .block = block, .rest = rest};
    bool more = iterate_gather(&touring);
    if (!more) /* no memory for the addresses: then rather all at once than not at all */
        gp_cache_walk(cache, arg, segment, block);
    iterate_sort(touring.addresses, touring.count);
    iterate_begin(&touring);
    for (uint64_t i = 0; more && i < touring.count; i++)
        more = iterate_segment(&touring, touring.addresses[i]);
    iterate_end(&touring);
    if (touring.room)
        munmap(touring.addresses, touring.room * 8);
    if (rest)
        rest(arg);
}
