/* SPDX-License-Identifier: MIT
 *
 * mapping.h: what growable memory consists of, per served context: address ranges, physical handles and mappings.  The
 * driver keeps all of them when the context dies, and a mapping must be made accessible to peers that are enabled
 * later, so this table remembers them.  Called by backend.c; mark.c keeps its marks in the same table.
 */
#ifndef GP_ALLOCATOR_MAPPING_H
#define GP_ALLOCATOR_MAPPING_H

#include <stdbool.h>
#include <stdint.h>

enum gp_mapping_kind {
    GP_MAPPING_NONE,
    GP_MAPPING_RANGE,
    GP_MAPPING_HANDLE,
    GP_MAPPING_MAPPED,
    GP_MAPPING_BUFFER, /* mark.h: the id of a block */
    GP_MAPPING_SYNCED, /* mark.h: SYNC_MEMOPS is on for a block */
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

#endif
