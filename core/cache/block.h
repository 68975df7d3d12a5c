/* SPDX-License-Identifier: MIT
 *
 * block.h: blocks, and the indexes and heaps of idle ones.
 */
#ifndef GP_CACHE_BLOCK_H
#define GP_CACHE_BLOCK_H

#include "cache/cache.h"
#include "cache/internal.h"
#include <stdbool.h>
#include <stdint.h>

unsigned gp_block_index_class(uint64_t bytes);
void gp_block_index_put(struct gp_index *index, struct gp_block *block);
void gp_block_index_take(struct gp_index *index, struct gp_block *block);
struct gp_block *gp_block_index_largest(const struct gp_index *index);
/* The stream's heap of this kind, or a new one. NULL: no memory. */
struct gp_heap *gp_block_heap_of(struct gp_cache *cache, const struct gp_heap_kind *kind, uint64_t stream);
struct gp_block *gp_block_new(struct gp_cache *cache, struct gp_segment *segment, uint64_t address, uint64_t bytes);
void gp_block_drop(struct gp_cache *cache, struct gp_block *block);
void gp_block_idle(struct gp_cache *cache,
                   struct gp_block *block); /* joins it with its idle neighbours and puts it into the index */
void gp_block_unidle(struct gp_cache *cache, struct gp_block *block);
void gp_block_unmapped(struct gp_cache *cache, struct gp_block *block);
/* Shortens a block that is in no index to first_bytes and returns a new block for the rest, whose
 * state the caller sets. NULL: no memory. */
struct gp_block *gp_block_cut(struct gp_cache *cache, struct gp_block *block, uint64_t first_bytes);
/* An idle block that the policy's rules allow for this size; NULL: none. */
struct gp_block *gp_block_heap_find(struct gp_cache *cache, struct gp_heap *heap, uint64_t bytes);
struct gp_block *gp_block_heap_give(struct gp_cache *cache, struct gp_heap *heap, const struct gp_request *request,
                                    uint64_t bytes);
/* Allocates from this idle block, without checking the policy's rules for its size. */
struct gp_block *gp_block_give(struct gp_cache *cache, struct gp_block *block, const struct gp_request *request,
                               uint64_t bytes);
/* The heap's stream was destroyed: joins the heap with the other heaps of its class. True: *place,
 * which pointed to it, points to the next heap. False: it is the first of its class and stays.
 * Under grow too. */
bool gp_block_heap_retire(struct gp_cache *cache, struct gp_heap *heap, struct gp_heap **place);

/* Under lock: */
void gp_block_cursor_enter(struct gp_cache *cache, struct gp_cursor *cursor);
void gp_block_cursor_leave(struct gp_cache *cache, struct gp_cursor *cursor);
void gp_block_cursor_segment_removed(struct gp_cache *cache, const struct gp_segment *segment);

#endif
