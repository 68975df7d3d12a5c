/* SPDX-License-Identifier: MIT
 *
 * mapping.h: growable memory, and properties of blocks.
 */
#ifndef GP_ALLOCATOR_MAPPING_H
#define GP_ALLOCATOR_MAPPING_H

#include "allocator/served.h"
#include <stdbool.h>
#include <stdint.h>

/* What growable memory consists of, per served context: address ranges, physical handles and
 * mappings.  The driver keeps all of them when the context dies, and a mapping must be made
 * accessible to peers that are enabled later, so this table remembers them.  Called by backend.c;
 * mapping.c keeps its marks in the same table. */

enum gp_mapping_kind {
    GP_MAPPING_NONE,
    GP_MAPPING_RANGE,
    GP_MAPPING_HANDLE,
    GP_MAPPING_MAPPED,
    GP_MAPPING_BUFFER, /* the id of a block */
    GP_MAPPING_SYNCED, /* SYNC_MEMOPS is on for a block */
};

struct gp_mapping {
    uint64_t key;   /* address or handle */
    uint64_t bytes; /* > 0 */
    uint32_t next;  /* in its bucket or the free list; index + 1 */
    uint8_t kind, served;
};

/* `served` is the index of the served context.  All functions: any thread.  False: the table is full (2^20 rows). */
bool gp_mapping_add(enum gp_mapping_kind kind, unsigned served, uint64_t key, uint64_t bytes);
/* Removes the row and returns its bytes; 0: unknown. */
uint64_t gp_mapping_take(enum gp_mapping_kind kind, uint64_t key);
/* Returns the bytes and keeps the row; 0: unknown. */
uint64_t gp_mapping_find(enum gp_mapping_kind kind, uint64_t key);
/* Copies the next row of that kind and context from index *at on.  Other threads may add and remove rows meanwhile. */
bool gp_mapping_next(enum gp_mapping_kind kind, unsigned served, unsigned *at, struct gp_mapping *out);

/* Properties that belong to a block and not to its segment: SYNC_MEMOPS, which the program may set,
 * and the buffer id, which it may read.  Most programs use neither, and then the free path reads one
 * word. Called by serve.c on any thread. */

/* The block's buffer id: unique in the process, also compared with earlier blocks at the same address (cuda.h:
 * CU_POINTER_ATTRIBUTE_BUFFER_ID; registration caches rely on it).  0: no room, use the driver's answer. */
uint64_t gp_mapping_mark_buffer(const struct gp_served_context *served, uint64_t block);

/* The driver has SYNC_MEMOPS only for a whole driver allocation; this remembers whether it is on for this block. */
void gp_mapping_mark_synced(const struct gp_served_context *served, uint64_t block, bool on);
bool gp_mapping_mark_is_synced(uint64_t block);

/* Removes the marks of the block that starts at `address`, if one does.  Called before the block is free.  In a segment
 * of its own, SYNC_MEMOPS is switched off for the next owner; in a shared segment it stays on, which makes the other
 * blocks slower but is correct. */
void gp_mapping_mark_drop(struct gp_served_context *served, uint64_t address);
void gp_mapping_mark_forget(const struct gp_served_context *served); /* the context is gone */

#endif
