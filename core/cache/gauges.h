/* SPDX-License-Identifier: MIT
 *
 * gauges.h: the gauges of the device.
 */
#ifndef GP_CACHE_GAUGES_H
#define GP_CACHE_GAUGES_H

#include "cache/internal.h"
#include <stdbool.h>
#include <stdint.h>

/* They return the time of the change; 0: the cache has no times, or no gauge changed. */
uint64_t gp_cache_gauges_alloc(struct gp_cache *cache, unsigned shard, const struct gp_block *block);
uint64_t gp_cache_gauges_free(struct gp_cache *cache, unsigned shard, const struct gp_block *block);
/* gp_cache_gauges_free and gp_cache_gauges_done in one update on the thread's own shard. The credit stays in
 * that shard, so the next allocation can use it without the slow path. */
uint64_t gp_cache_gauges_end(struct gp_cache *cache, unsigned shard, const struct gp_block *block);
void gp_cache_gauges_done(struct gp_cache *cache,
                          const struct gp_block *block); /* after the wait: the block is inactive */
void gp_cache_gauges_split(struct gp_cache *cache, const struct gp_block *block, bool up);
uint64_t gp_cache_gauges_reserve(struct gp_cache *cache, const struct gp_heap *heap, uint64_t bytes, bool segment,
                                 bool oversize, bool up);

#endif
