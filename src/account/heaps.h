/* SPDX-License-Identifier: MIT
 *
 * heaps.h: what heap.c, heapblock.c, heapsegment.c and heappiece.c share; heap.c says what heaps are.
 * All of it is under the lock of heap.c.
 */
#ifndef GP_ACCOUNT_HEAPS_H
#define GP_ACCOUNT_HEAPS_H

#include "account/account.h"
#include "ds/span.h"

extern struct gp_heaps {
    struct gp_span_set heaps;  /* link, size: of the driver allocation; flag: over mappings */
    struct gp_span_set blocks; /* flag: rest */
    struct gp_span_set left;   /* segments that have lost their last heap */
    struct gp_span_set pieces; /* link: handle; size: heaps; flag: has lost its last one */
    uint32_t x_left;           /* segments in `left`; read without the lock too, as is x_mapped */
    uint32_t x_mapped;         /* heaps over mappings */
    uint32_t x_settling;       /* a segment becomes plain: others may see the record before its events are written */
} gp_heaps;

/* heapblock.c.  Counts the block, and makes its record. */
void gp_heaps_block_enter(const struct gp_span *block, uint32_t site);
/* Returns the call site of the block. */
uint32_t gp_heaps_block_leave(const struct gp_span *block);
/* like: has the device and the owner. */
void gp_heaps_block_put(uint64_t address, uint64_t bytes, const struct gp_span *like, bool rest, uint32_t site);
/* All blocks in the range end. */
void gp_heaps_blocks_end(uint64_t address, uint64_t bytes);

struct gp_heap_change {
    uint64_t address, bytes;        /* the heap's */
    struct gp_record before, after; /* of the driver allocation */
    bool done;
};

/* heapsegment.c.  The first heap of a driver allocation. */
void gp_heaps_segment_begin(const struct gp_heap_change *change);
/* A heap in a segment that had lost its last one. */
void gp_heaps_segment_again(const struct gp_heap_change *change);
/* Another heap in the segment: its memory is no rest any more. */
void gp_heaps_segment_carve(uint64_t address, uint64_t bytes);
/* A segment without heaps becomes a plain allocation. */
void gp_heaps_segment_settle(uint64_t key);
void gp_heaps_left_put(const struct gp_record *segment);
void gp_heaps_left_drop(struct gp_span *segment);

/* heappiece.c.  The mapping is a segment of heaps that exist. */
void gp_heaps_piece_put(const struct gp_record *mapping);
/* A mapping below a heap that begins. */
void gp_heaps_piece_join(uint64_t address, uint64_t bytes, struct gp_span *heap);
/* It has no heap: a plain mapping. */
void gp_heaps_piece_settle(struct gp_span *piece);
/* The driver has unmapped it. */
void gp_heaps_piece_gone(struct gp_span *piece);
/* Whether all of the range is memory of pieces. */
bool gp_heaps_hold(uint64_t address, uint64_t bytes);
/* The end of a heap over mappings, and without what lies below it. */
void gp_heaps_mapped_end(struct gp_span *heap);
void gp_heaps_mapped_drop(struct gp_span *heap);

#endif
