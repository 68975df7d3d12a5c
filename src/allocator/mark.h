/* SPDX-License-Identifier: MIT
 *
 * mark.h: what a program attached to a block, or was told about it, that must go with the block and not with the
 * segment: SYNC_MEMOPS and the buffer id.  Most programs ask for neither, and the free path then reads one word.
 * Called by serve.c and serve_pointer.c.
 */
#ifndef GP_ALLOCATOR_MARK_H
#define GP_ALLOCATOR_MARK_H

#include "allocator/served.h"
#include <stdbool.h>
#include <stdint.h>

/* The block's buffer id: unique in the process, also against what lay there before (cuda.h:
 * CU_POINTER_ATTRIBUTE_BUFFER_ID; registration caches rely on it).  0: no room, the driver's answer must do. */
uint64_t gp_mark_buffer(const struct gp_served_context *served, uint64_t block);

/* SYNC_MEMOPS is a switch of the whole driver allocation: remembers that it is on for this block. */
void gp_mark_synced(const struct gp_served_context *served, uint64_t block, bool on);
bool gp_mark_is_synced(uint64_t block);

/* Before the block at `address`, if one begins there, is free: its marks go.  The next owner of a whole segment finds
 * SYNC_MEMOPS as the driver makes it; in a shared segment the switch stays on, which is slower for the neighbours and
 * wrong for nobody. */
void gp_mark_drop(struct gp_served_context *served, uint64_t address);
void gp_mark_forget(const struct gp_served_context *served); /* the context is gone */

#endif
