/* SPDX-License-Identifier: MIT
 *
 * internal.h: declarations that the files of session/ share.
 */
#ifndef GP_SESSION_INTERNAL_H
#define GP_SESSION_INTERNAL_H

#include "base/numbers.h"
#include "session/extents.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* ==== functions of gpuprof.h ====================================================================================== */
/* Helpers shared by the functions of gpuprof.h in this folder. The program calls these functions on
 * any of its threads. They never start the library, call CUDA, allocate or print. */

/* False: nothing is known in this process (not injected, switched off, a forked child, start not
 * finished, or a signal handler that interrupted our own code). After true, call the leave
 * function with the same variable; it restores errno. */
bool gp_session_api_enter(int *saved_errno);
void gp_session_api_leave(int saved_errno);

/* Call it between the two: brings the polled parts of the numbers up to date, if there are any. */
void gp_session_api_poll(void);

/* ==== memory files ================================================================================================ */
/* The memfds of the session and of the extents. */

/* Creates an empty memfd that can be sealed, close-on-exec, with a number above those that programs
 * rely on.  Returns it or -errno.  Any thread. */
int gp_session_memfd(const char *name);

/* ==== segments with their blocks ================================================================================== */
/* The segments of a framework with the blocks inside them. The accounts know both in no order;
 * viewers want a segment, then its blocks by address without a gap. Called by extents.c. Memory
 * comes from mmap, and is returned at the end. */

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
