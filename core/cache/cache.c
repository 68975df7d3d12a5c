/* SPDX-License-Identifier: MIT
 *
 * cache.c: creation and destruction of a cache, the free of a block, destroyed streams and the size
 * limit. cache.h has the contract; alloc.c has the allocation of a block.
 */
#include "cache/cache.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/lock.h"
#include "cache/arena.h"
#include "cache/block.h"
#include "cache/gauges.h"
#include "cache/internal.h"
#include "cache/page.h"
#include "cache/policy.h"
#include "cache/segment.h"
#include "cache/threadcache.h"
#include "cache/wait.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* ---- creation and destruction
 * ----------------------------------------------------------------------------------- */

static bool cache_open(struct gp_cache *cache)
{
    cache->blocks.item_bytes = sizeof(struct gp_block);
    cache->segment_records.item_bytes = sizeof(struct gp_segment);
    cache->heap_records.item_bytes = sizeof(struct gp_heap) + 2 * GP_INDEX_CLASSES * sizeof(struct gp_block *);
    cache->page_records.item_bytes = sizeof(struct gp_page);
    cache->use_records.item_bytes = sizeof(struct gp_uses);
    cache->pool_records.item_bytes = sizeof(struct gp_pool);
    cache->fenced_records.item_bytes = sizeof(struct gp_fenced_blocks);
    if (!gp_arena_table_open(cache))
        return false;
    cache->owns_gauges = cache->gauges == NULL;
    if (cache->owns_gauges && gp_counter_new(&cache->gauges, GP_GAUGES, 64) != 0)
        return false;
    return gp_thread_open(cache);
}

static void cache_close(struct gp_cache *cache)
{
    struct gp_slab *slabs[] = {
        &cache->blocks,      &cache->segment_records, &cache->heap_records,   &cache->page_records,
        &cache->use_records, &cache->pool_records,    &cache->fenced_records, &cache->mids};
    for (unsigned i = 0; i < GP_COUNT(slabs); i++)
        gp_arena_slab_end(slabs[i]);
    gp_arena_table_close(cache);
    gp_thread_close(cache);
    if (cache->owns_gauges && cache->gauges)
        gp_counter_free(cache->gauges);
    munmap(cache, sizeof(*cache));
}

int gp_cache_new(struct gp_cache **out, const struct gp_cache_setup *setup)
{
    struct gp_cache *cache = mmap(NULL, sizeof(*cache), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (cache == MAP_FAILED)
        return -ENOMEM;
    cache->policy = *setup->policy;
    cache->backend = setup->backend;
    cache->gauges = setup->gauges;
    cache->limit_bytes = setup->limit_bytes;
    cache->listener = setup->listener;
    cache->listen = setup->listen;
    cache->times = setup->times;
    cache->wants_time = setup->wants_time;
    cache->grow = (struct gp_lock)GP_LOCK_INIT(GP_RANK_GROW);
    cache->lock = (struct gp_lock)GP_LOCK_INIT(GP_RANK_CACHE);
    cache->grow.alone = cache->lock.alone = setup->alone;
    if (!cache->backend.page_bytes)
        cache->policy.growable = false;
    if (!cache_open(cache)) {
        cache_close(cache);
        return -ENOMEM;
    }
    cache->uncounted = setup->uncounted && !cache->threads; /* the gates of these are the gauges' */
    *out = cache;
    return 0;
}

/* Ends a block whose segment is dropped, in whatever state the block is. */
static void cache_end_block(struct gp_cache *cache, struct gp_block *block)
{
    if (gp_block_state(block) == GP_BLOCK_TAKEN) {
        uint64_t time_ns = gp_cache_gauges_end(cache, 0, block);
        const struct gp_cache_event lost = {GP_CACHE_LOST,
                                            block->address,
                                            block->bytes,
                                            block->stream,
                                            time_ns,
                                            block->requested_bytes,
                                            gp_block_tag_of(cache, block)};
        if (cache->listen)
            cache->listen(cache->listener, &lost);
    }
    if (gp_block_state(block) == GP_BLOCK_IDLE)
        gp_block_unidle(cache, block);
    if (gp_block_state(block) == GP_BLOCK_UNMAPPED)
        gp_block_index_take(&block->segment->heap->unmapped, block);
    gp_wait_uses_drop(cache, block);
}

static void cache_tell_end(struct gp_cache *cache, const struct gp_segment *segment, uint64_t time_ns)
{
    uint64_t stream = segment->heap->stream;
    if (!segment->growable)
        gp_cache_tell(cache, GP_CACHE_SEGMENT_FREE, segment->address, segment->bytes, stream, time_ns);
    for (const struct gp_page *page = segment->pages; page; page = page->next)
        gp_cache_tell(cache, GP_CACHE_SEGMENT_UNMAP, page->address, page->bytes, stream, time_ns);
}

/* Under grow. Drops the records of one segment. False: no segment is left. */
static bool cache_end_segment(struct gp_cache *cache, bool call_backend)
{
    gp_lock_take(&cache->lock);
    gp_wait_forget(cache);
    struct gp_segment *segment = cache->segments;
    if (!segment) {
        gp_lock_give(&cache->lock);
        return false;
    }
    uint64_t held = segment->growable ? 0 : segment->bytes;
    for (struct gp_page *page = segment->pages; page; page = page->next)
        held += page->bytes;
    /* First claim the live blocks, so that they can no longer be freed; then take the freed ones
     * out of the threads' caches. */
    for (struct gp_block *block = segment->first; block; block = block->after)
        gp_block_claim(block);
    gp_thread_flush(cache);
    for (struct gp_block *block = segment->first; block; block = block->after)
        cache_end_block(cache, block);
    cache->reserved_bytes -= held;
    uint64_t time_ns =
        gp_cache_gauges_reserve(cache, segment->heap, held, !segment->growable, segment->oversize, false);
    cache_tell_end(cache, segment, time_ns);
    struct gp_segment dropped = *segment;
    gp_segment_drop(cache, segment);
    while (!call_backend && dropped.pages) {
        struct gp_page *page = dropped.pages;
        dropped.pages = page->next;
        gp_arena_slab_give(&cache->page_records, page);
    }
    gp_lock_give(&cache->lock);
    if (call_backend && dropped.growable)
        gp_page_end(cache, &dropped);
    if (call_backend && !dropped.growable) {
        gp_cache_called(cache);
        cache->backend.free(cache->backend.self, dropped.address);
    }
    return true;
}

void gp_cache_forget(struct gp_cache *cache)
{
    gp_lock_take(&cache->grow);
    while (cache_end_segment(cache, false))
        ;
    cache->first_made = false;
    gp_lock_give(&cache->grow);
}

void gp_cache_free(struct gp_cache *cache)
{
    gp_lock_take(&cache->grow);
    gp_wait_settle(cache, true, true);
    gp_wait_all(cache);
    while (cache_end_segment(cache, true))
        ;
    gp_lock_give(&cache->grow);
    cache_close(cache);
}

const struct gp_policy *gp_cache_policy(const struct gp_cache *cache)
{
    return &cache->policy;
}

/* ---- free -------------------------------------------------------------------------------------------------------- */

/* Under lock. The stream's order protects the block only if its heap belongs to that stream: a
 * block from another stream's heap has to wait. */
static bool block_must_wait(struct gp_cache *cache, struct gp_block *block, bool unordered)
{
    if (unordered || block->stream == GP_STREAM_DESTROYED)
        return true;
    if (block->stream == block->segment->heap->stream)
        return block->uses != NULL;
    struct gp_uses *own = gp_arena_slab_take(&cache->use_records);
    if (!own) { /* no record: wait for a fence over all streams */
        gp_wait_uses_drop(cache, block);
        return true;
    }
    own->stream = block->stream;
    own->next = block->uses;
    block->uses = own;
    return true;
}

/* True if this free releases the whole segment. The driver's own free does the waiting then. */
static bool segment_goes_at_once(const struct gp_cache *cache, const struct gp_block *block, enum gp_free_order order)
{
    const struct gp_segment *segment = block->segment;
    return !segment->growable && !segment->heap->pinned && !block->before && !block->after &&
           (cache->policy.frees_at_once || (order == GP_FREE_RETURN && segment->dedicated) ||
            (cache->policy.only_first && !segment->first_chunk && !segment->dedicated));
}

/* Under lock, which it gives back: frees a block that the caller has claimed. */
static void cache_release_claimed(struct gp_cache *cache, struct gp_block *block, enum gp_free_order order,
                                  unsigned shard, struct gp_grant *out)
{
    __builtin_prefetch(block->before); /* gp_block_idle looks at both */
    __builtin_prefetch(block->after);
    struct gp_segment *segment = block->segment;
    struct gp_unlinked_segment dropped;
    if (order == GP_FREE_BY_STREAM)
        order = block->stream == GP_STREAM_ANY ? GP_FREE_UNORDERED : GP_FREE_ORDERED;
    *out = (struct gp_grant){
        block->address, block->bytes, block->requested_bytes, block->stream, gp_block_tag_of(cache, block), 0, block};
    bool at_once = segment_goes_at_once(cache, block, order);
    if (!at_once && block_must_wait(cache, block, order != GP_FREE_ORDERED)) {
        out->time_ns = gp_cache_gauges_free(cache, shard, block);
        gp_wait_for(cache, block, order != GP_FREE_ORDERED || block->stream == GP_STREAM_DESTROYED);
    } else {
        gp_wait_uses_drop(cache, block);
        out->time_ns = gp_cache_gauges_end(cache, shard, block);
        gp_block_idle(cache, block);
        if (at_once)
            gp_segment_unlink_idle(cache, segment, &dropped);
    }
    bool record = gp_wait_wants_record(cache);
    gp_lock_give(&cache->lock);
    if (at_once)
        gp_segment_free_unlinked(cache, &dropped);
    /* The holder may be waiting for the device, and a free may not: a later free or an allocation
     * records the fence then. */
    if (record && gp_lock_try(&cache->grow)) {
        gp_wait_record(cache);
        gp_lock_give(&cache->grow);
    }
}

static __attribute__((noinline)) bool cache_release_slow(struct gp_cache *cache, uint64_t address,
                                                         enum gp_free_order order, unsigned shard, struct gp_grant *out)
{
    gp_lock_take(&cache->lock);
    struct gp_block *block = gp_table_at(cache, address);
    if (!block || !gp_block_claim(block)) {
        gp_lock_give(&cache->lock);
        return false;
    }
    cache_release_claimed(cache, block, order, shard, out);
    return true;
}

bool gp_cache_release(struct gp_cache *cache, uint64_t address, enum gp_free_order order, unsigned shard,
                      struct gp_grant *out)
{
    struct gp_grant unused;
    out = out ? out : &unused;
    return GP_LIKELY(gp_cache_take(cache, address, order, shard, out)) ||
           cache_release_slow(cache, address, order, shard, out);
}

void gp_cache_release_block(struct gp_cache *cache, struct gp_block *block, enum gp_free_order order, unsigned shard)
{
    struct gp_grant unused;
    if (cache->threads) {
        gp_cache_release(cache, gp_block_at(block), order, shard, NULL);
        return;
    }
    gp_lock_take(&cache->lock);
    gp_block_become(block, GP_BLOCK_TAKEN); /* no other thread can claim it */
    cache_release_claimed(cache, block, order, shard, &unused);
}

bool gp_cache_record_stream(struct gp_cache *cache, uint64_t address, uint64_t stream)
{
    gp_lock_take(&cache->lock);
    struct gp_block *block = gp_table_at(cache, address);
    bool live = block && gp_block_state(block) == GP_BLOCK_LIVE;
    struct gp_uses *use = live ? block->uses : NULL;
    while (use && use->stream != stream)
        use = use->next;
    if (live && !use && stream != block->stream) {
        use = gp_arena_slab_take(&cache->use_records);
        if (use) {
            use->stream = stream;
            use->next = block->uses;
            block->uses = use;
            gp_block_bar(block);
        }
    }
    gp_lock_give(&cache->lock);
    return live;
}

/* ---- streams and limit
 * ----------------------------------------------------------------------------------------- */

/* The number may be reused for another stream, so no block may keep it. */
void gp_cache_stream_gone(struct gp_cache *cache, uint64_t stream)
{
    gp_lock_take(&cache->grow); /* a thread that grows a heap relies on it */
    gp_lock_take(&cache->lock);
    for (struct gp_segment *segment = cache->segments; segment; segment = segment->next)
        for (struct gp_block *block = segment->first; block; block = block->after)
            if (block->stream == stream)
                gp_block_bar(block);
    gp_thread_flush(cache);
    struct gp_heap **place = &cache->heaps, *heap;
    while ((heap = *place))
        if (heap->stream != stream || !gp_block_heap_retire(cache, heap, place))
            place = &heap->next;
    for (struct gp_segment *segment = cache->segments; segment; segment = segment->next)
        for (struct gp_block *block = segment->first; block; block = block->after) {
            if (block->stream == stream)
                __atomic_store_n(&block->stream, GP_STREAM_DESTROYED,
                                 __ATOMIC_RELAXED); /* threadcache.c reads it without the lock */
            bool indexed = gp_block_state(block) == GP_BLOCK_IDLE || gp_block_state(block) == GP_BLOCK_UNMAPPED;
            for (struct gp_uses *use = indexed ? NULL : block->uses; use; use = use->next)
                if (use->stream == stream)
                    use->stream = GP_STREAM_DESTROYED;
        }
    gp_lock_give(&cache->lock);
    gp_lock_give(&cache->grow);
}

uint64_t gp_cache_trim(struct gp_cache *cache, uint64_t keep_bytes)
{
    uint64_t given = 0;
    gp_lock_take(&cache->grow);
    gp_lock_take(&cache->lock);
    gp_thread_flush(cache);
    gp_lock_give(&cache->lock);
    gp_wait_settle(cache, true, true);
    if (gp_cache_idle(cache) > keep_bytes && gp_wait_all(cache)) {
        given = gp_segment_release(cache, keep_bytes);
        given += gp_page_release(cache, keep_bytes);
    }
    gp_lock_give(&cache->grow);
    return given;
}

void gp_cache_set_limit(struct gp_cache *cache, uint64_t limit_bytes)
{
    __atomic_store_n(&cache->limit_bytes, limit_bytes, __ATOMIC_RELAXED);
}

uint64_t gp_cache_limit(const struct gp_cache *cache)
{
    return __atomic_load_n(&cache->limit_bytes, __ATOMIC_RELAXED);
}
