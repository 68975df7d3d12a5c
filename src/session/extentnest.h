/* SPDX-License-Identifier: MIT
 *
 * extentnest.h: the segments of a framework with the blocks inside them. The accounts know both in
 * no order; viewers want a segment, then its blocks by address without a gap. Called by
 * extentwalk.c. Memory comes from mmap, and is returned at the end.
 */
#ifndef GP_SESSION_EXTENTNEST_H
#define GP_SESSION_EXTENTNEST_H

#include "session/extents.h"

struct gp_nest_list {
    struct gp_wire_extent *items;
    uint64_t count, room;
};

struct gp_nest {
    struct gp_nest_list segments, blocks;
    uint64_t missed; /* there was no memory for these */
};

/* Adds a segment or a block of a framework. Makes no system call: gp_extent_nest_rest must have been called
 * since the last GP_TAP_REST additions. */
void gp_extent_nest_add(struct gp_nest *nest, const struct gp_wire_extent *extent);
/* Makes room for GP_TAP_REST more of each. Call it first, and without a lock. */
void gp_extent_nest_rest(struct gp_nest *nest);
/* Visits everything in order, and frees the memory. Adjacent growable segments are one. A block
 * outside every segment, which was freed meanwhile, is left out. */
void gp_extent_nest_end(struct gp_nest *nest, void *arg, gp_extent_fn *visit, void (*rest)(void *arg));

#endif
