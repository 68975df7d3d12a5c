/* SPDX-License-Identifier: MIT
 *
 * piece.h: what growable memory consists of, per context: reservations, physical handles, mappings.  The driver keeps
 * all of it when the context dies, and a mapping must be opened to peers that come later, so somebody must know it.
 * Called by backend.c; and by mark.c, which keeps its marks in the same table.
 */
#ifndef GP_SHIM_PIECE_H
#define GP_SHIM_PIECE_H

#include <stdbool.h>
#include <stdint.h>

enum gp_piece_kind {
    GP_PIECE_NONE,
    GP_PIECE_RANGE,
    GP_PIECE_HANDLE,
    GP_PIECE_MAPPING,
    GP_PIECE_BUFFER, /* mark.h: the id of a block */
    GP_PIECE_SYNCED,
};

struct gp_piece {
    uint64_t key;   /* address or handle */
    uint64_t bytes; /* > 0 */
    uint32_t next;  /* in its bucket or the free list; index + 1 */
    uint8_t kind, home;
};

/* False: no room (a million of them). */
bool gp_piece_add(enum gp_piece_kind kind, unsigned home, uint64_t key, uint64_t bytes);
/* Its bytes, and it is forgotten; 0: unknown. */
uint64_t gp_piece_take(enum gp_piece_kind kind, uint64_t key);
/* The same, and it stays. */
uint64_t gp_piece_find(enum gp_piece_kind kind, uint64_t key);
/* A copy of the next piece of that kind and home from index *at on; pieces come and go meanwhile. */
bool gp_piece_next(enum gp_piece_kind kind, unsigned home, unsigned *at, struct gp_piece *out);

#endif
