/* SPDX-License-Identifier: MIT
 *
 * inspect.c: queries about the cache's memory. Nothing here changes the cache, except that some functions flush the
 * threads' caches first.
 */
#include "base/lock.h"
#include "cache/block.h"
#include "cache/cache.h"
#include "cache/internal.h"
#include "cache/page.h"
#include "cache/segment.h"
#include "cache/threadcache.h"

/* ---- one address ------------------------------------------------------------------------------------------------- */

/* Programs ask about many addresses that are not of the cache: those do not cost a walk as long as
 * they lie below or above all of its segments, as host and managed memory mostly does. */
static struct gp_segment *segment_at(struct gp_cache *cache, uint64_t address)
{
    if (address < cache->lowest || address >= cache->highest)
        return NULL;
    struct gp_segment *segment = cache->segments;
    while (segment && address - segment->address >= segment->bytes)
        segment = segment->next;
    return segment;
}

/* The block that contains the address, in any state. Walks the segment unless the address is a
 * block's start: addresses inside a block are looked up only now and then. */
static struct gp_block *block_at(struct gp_cache *cache, uint64_t address)
{
    struct gp_block *block = gp_table_at(cache, address);
    if (block)
        return block;
    struct gp_segment *segment = segment_at(cache, address);
    for (block = segment ? segment->first : NULL; block && address - block->address >= block->bytes;)
        block = block->after;
    return block;
}

bool gp_cache_find(struct gp_cache *cache, uint64_t address, struct gp_grant *out)
{
    gp_lock_take(&cache->lock);
    struct gp_block *block = block_at(cache, address);
    bool live = block && gp_block_state(block) == GP_BLOCK_LIVE;
    if (live && out)
        *out = (struct gp_grant){block->address,
                                 block->bytes,
                                 __atomic_load_n(&block->requested_bytes, __ATOMIC_RELAXED),
                                 block->stream,
                                 gp_block_tag_of(cache, block),
                                 0,
                                 block};
    gp_lock_give(&cache->lock);
    return live;
}

bool gp_cache_begins(const struct gp_cache *cache, uint64_t address)
{
    const struct gp_block *block = gp_table_at(cache, address);
    return block && gp_block_state(block) != GP_BLOCK_UNMAPPED;
}

bool gp_cache_owns(struct gp_cache *cache, uint64_t address)
{
    gp_lock_take(&cache->lock);
    const struct gp_block *block = block_at(cache, address);
    bool owns = block && gp_block_state(block) != GP_BLOCK_UNMAPPED;
    gp_lock_give(&cache->lock);
    return owns;
}

bool gp_cache_segment_of(struct gp_cache *cache, uint64_t address, uint64_t *base, uint64_t *bytes, bool *dedicated)
{
    gp_lock_take(&cache->lock);
    const struct gp_block *block = block_at(cache, address);
    bool live = block && gp_block_state(block) == GP_BLOCK_LIVE;
    if (live) {
        *base = block->segment->address;
        *bytes = block->segment->bytes;
        *dedicated = block->segment->dedicated;
    }
    gp_lock_give(&cache->lock);
    return live;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Live blocks of a segment that also holds idle memory. */
static uint64_t segment_pinning(const struct gp_segment *segment)
{
    uint64_t live = 0, idle = 0;
    for (const struct gp_block *block = segment->first; block; block = block->after) {
        live += gp_block_state(block) == GP_BLOCK_LIVE;
        idle += gp_block_state(block) == GP_BLOCK_IDLE;
    }
    return idle ? live : 0;
}

void gp_cache_numbers(struct gp_cache *cache, struct gp_cache_numbers *out)
{
    *out = (struct gp_cache_numbers){0};
    gp_lock_take(&cache->lock);
    gp_thread_flush(cache);
    out->reserved_bytes = cache->reserved_bytes;
    out->waiting_bytes = cache->waiting_bytes;
    out->idle_bytes = cache->idle_bytes;
    out->allocated_bytes = cache->reserved_bytes - cache->idle_bytes - cache->waiting_bytes;
    for (const struct gp_heap *heap = cache->heaps; heap; heap = heap->next) {
        const struct gp_block *largest = gp_block_index_largest(&heap->idle);
        if (largest && largest->bytes > out->largest_idle_bytes)
            out->largest_idle_bytes = largest->bytes;
        out->idle_pieces += heap->idle.count;
    }
    for (const struct gp_segment *segment = cache->segments; segment; segment = segment->next) {
        out->pinning_blocks += segment_pinning(segment);
        if (gp_segment_is_idle(segment))
            out->releasable_bytes += segment->bytes;
    }
    out->releasable_bytes += gp_page_idle(cache);
    gp_lock_give(&cache->lock);
    out->retries = __atomic_load_n(&cache->x_retries, __ATOMIC_RELAXED);
    out->syncs = __atomic_load_n(&cache->x_syncs, __ATOMIC_RELAXED);
    out->device_allocs = __atomic_load_n(&cache->x_device_allocs, __ATOMIC_RELAXED);
    out->device_frees = __atomic_load_n(&cache->x_device_frees, __ATOMIC_RELAXED);
    out->backend_calls = __atomic_load_n(&cache->x_calls, __ATOMIC_RELAXED);
}
