/* SPDX-License-Identifier: MIT
 * walk.c: every segment and block of our caches on a device (shim.h). */
#include "allocator/home.h"
#include "allocator/shim.h"

void gp_shim_walk(int device, void *arg, gp_shim_segment_fn *segment, gp_shim_block_fn *block)
{
    for (unsigned i = 0; i < gp_home_count(); i++) {
        struct gp_cache *cache = gp_home_has(&gp_homes[i]);
        if (cache && gp_homes[i].device == device)
            gp_cache_walk(cache, arg, segment, block);
    }
}

void gp_shim_tour(int device, void *arg, gp_shim_segment_fn *segment, gp_shim_block_fn *block, void (*rest)(void *arg))
{
    for (unsigned i = 0; i < gp_home_count(); i++) {
        struct gp_cache *cache = gp_home_has(&gp_homes[i]);
        if (cache && gp_homes[i].device == device)
            gp_cache_tour(cache, arg, segment, block, rest);
    }
}
