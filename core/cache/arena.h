/* SPDX-License-Identifier: MIT
 *
 * arena.h: memory for records, and the table of addresses.
 */
#ifndef GP_CACHE_ARENA_H
#define GP_CACHE_ARENA_H

#include "cache/internal.h"
#include <stdbool.h>
#include <stdint.h>

void *gp_arena_slab_take(struct gp_slab *slab);
void gp_arena_slab_give(struct gp_slab *slab, void *item);
void gp_arena_slab_end(struct gp_slab *slab);
bool gp_arena_table_open(struct gp_cache *cache);
void gp_arena_table_close(struct gp_cache *cache);
/* Makes room for the address, so that gp_arena_table_set cannot fail. */
bool gp_arena_table_ready(struct gp_cache *cache, uint64_t address);
void gp_arena_table_set(struct gp_cache *cache, uint64_t address, struct gp_block *block);

#endif
