/* SPDX-License-Identifier: MIT
 *
 * mark.h: properties that belong to a block and not to its segment: SYNC_MEMOPS, which the program may set, and the
 * buffer id, which it may read.  Most programs use neither, and then the free path reads one word.
 * Called by serve.c and serve_pointer.c on any thread.
 */
#ifndef GP_ALLOCATOR_MARK_H
#define GP_ALLOCATOR_MARK_H

#include "allocator/served.h"
#include <stdbool.h>
#include <stdint.h>

/* The block's buffer id: unique in the process, also compared with earlier blocks at the same address (cuda.h:
 * CU_POINTER_ATTRIBUTE_BUFFER_ID; registration caches rely on it).  0: no room, use the driver's answer. */
uint64_t gp_mark_buffer(const struct gp_served_context *served, uint64_t block);

/* The driver has SYNC_MEMOPS only for a whole driver allocation; this remembers whether it is on for this block. */
void gp_mark_synced(const struct gp_served_context *served, uint64_t block, bool on);
bool gp_mark_is_synced(uint64_t block);

/* Removes the marks of the block that starts at `address`, if one does.  Called before the block is free.  In a segment
 * of its own, SYNC_MEMOPS is switched off for the next owner; in a shared segment it stays on, which makes the other
 * blocks slower but is correct. */
void gp_mark_drop(struct gp_served_context *served, uint64_t address);
void gp_mark_forget(const struct gp_served_context *served); /* the context is gone */

#endif
