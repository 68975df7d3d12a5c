/* SPDX-License-Identifier: MIT
 *
 * privatepool.c: private pools, which hold the memory of the graphs captured into them. While a
 * pool is in use its heaps are pinned: a captured graph may run again and use memory that is idle
 * there, so this memory is not moved or released. Called by the program's threads through cache.h;
 * never calls the backend.
 */
#include "base/lock.h"
#include "cache/arena.h"
#include "cache/cache.h"
#include "cache/internal.h"
#include <errno.h>

static struct gp_pool **cache_pool(struct gp_cache *cache, uint64_t id)
{
    struct gp_pool **place = &cache->pools;
    while (*place && (*place)->id != id)
        place = &(*place)->next;
    return place;
}

/* Under lock. */
static void cache_pin(struct gp_cache *cache, uint64_t id, bool pinned)
{
    for (struct gp_heap *heap = cache->heaps; heap; heap = heap->next)
        if (heap->kind.pool == id)
            heap->pinned = pinned;
}

int gp_cache_pool_begin(struct gp_cache *cache, uint64_t id)
{
    gp_lock_take(&cache->lock);
    struct gp_pool **place = cache_pool(cache, id);
    if (!*place && (*place = gp_arena_slab_take(&cache->pool_records)))
        (*place)->id = id;
    struct gp_pool *pool = *place;
    if (pool && pool->references++ == 0)
        cache_pin(cache, id, true);
    gp_lock_give(&cache->lock);
    return pool ? 0 : -ENOMEM;
}

int gp_cache_pool_release(struct gp_cache *cache, uint64_t id)
{
    gp_lock_take(&cache->lock);
    struct gp_pool **place = cache_pool(cache, id), *pool = *place;
    if (pool && --pool->references == 0) {
        cache_pin(cache, id, false);
        *place = pool->next;
        gp_arena_slab_give(&cache->pool_records, pool);
    }
    gp_lock_give(&cache->lock);
    return pool ? 0 : -ENOENT;
}
