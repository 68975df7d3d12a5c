/* SPDX-License-Identifier: MIT
 * walk.c: visits every segment and block of the caches on a device; see allocator.h. */
#include "allocator/allocator.h"
#include "allocator/served.h"
#include "cache/cache.h"

void gp_allocator_walk(int device, void *arg, gp_allocator_segment_fn *segment, gp_allocator_block_fn *block)
{
    for (unsigned i = 0; i < gp_served_count(); i++) {
        struct gp_cache *cache = gp_served_cache(&gp_served_contexts[i]);
        if (cache && gp_served_contexts[i].device == device)
            gp_cache_walk(cache, arg, segment, block);
    }
}

void gp_allocator_iterate(int device, void *arg, gp_allocator_segment_fn *segment, gp_allocator_block_fn *block,
                          void (*rest)(void *arg))
{
    for (unsigned i = 0; i < gp_served_count(); i++) {
        struct gp_cache *cache = gp_served_cache(&gp_served_contexts[i]);
        if (cache && gp_served_contexts[i].device == device)
            gp_cache_iterate(cache, arg, segment, block, rest);
    }
}
