/* SPDX-License-Identifier: MIT
 *
 * mapping.h: what growable memory consists of, per context: reservations, physical handles, mappings.  The driver keeps
 * all of it when the context dies, and a mapping must be opened to peers that come later, so somebody must know it.
 * Called by backend.c; and by mark.c, which keeps its marks in the same table.
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
    GP_MAPPING_SYNCED,
};

struct gp_mapping {
    uint64_t key;   /* address or handle */
    uint64_t bytes; /* > 0 */
    uint32_t next;  /* in its bucket or the free list; index + 1 */
    uint8_t kind, served;
};

/* False: no room (a million of them). */
bool gp_mapping_add(enum gp_mapping_kind kind, unsigned served, uint64_t key, uint64_t bytes);
/* Its bytes, and it is forgotten; 0: unknown. */
uint64_t gp_mapping_take(enum gp_mapping_kind kind, uint64_t key);
/* The same, and it stays. */
uint64_t gp_mapping_find(enum gp_mapping_kind kind, uint64_t key);
/* A copy of the next piece of that kind and served from index *at on; pieces come and go meanwhile. */
bool gp_mapping_next(enum gp_mapping_kind kind, unsigned served, unsigned *at, struct gp_mapping *out);

#endif
