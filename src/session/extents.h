/* SPDX-License-Identifier: MIT
 *
 * extents.h: the list of extents that the session shows.
 */
#ifndef GP_SESSION_EXTENTS_H
#define GP_SESSION_EXTENTS_H

#include <gpuprof/wire.h>

/* The memory of the process as extents (struct gp_wire_extent): a walker over the cache and the
 * accounts (extents.c, also used by api/), and the memfd by which a viewer gets the extents
 * (extents.c, drain thread only). */

/* visit runs under a lock of the cache or of the pointer map: it must be short, must not wait, and
 * must not call into either.  rest (may be NULL) runs without a lock, after at most GP_EXTENTS_REST
 * extents. */
typedef void gp_extent_fn(void *arg, const struct gp_wire_extent *piece);
#define GP_EXTENTS_REST 2048u

/* index: a device, GP_WIRE_HOST, or GP_EXTENTS_EVERY.  Visits the cache's segments by address, each
 * followed by its blocks, then the program's own memory in no order; see struct gp_wire_extents. */
#define GP_EXTENTS_EVERY UINT32_MAX
void gp_extents_walk(unsigned index, void *arg, gp_extent_fn *visit, void (*rest)(void *arg));

/* Writes the extents of every device and the host into a sealed memfd.  Returns its descriptor;
 * -EBUSY: a viewer still has the last one; -errno. */
int gp_extents_lay(void);
/* Closes the memfd when the viewer has opened it or has died.  Does nothing if there is none. */
void gp_extents_drop(void);

/* Around a fork, in the program's thread: no descriptor is created or closed in between, so the
 * child knows its descriptors. */
void gp_extents_fork_begin(void);
void gp_extents_fork_end(void);
/* In the child: closes its copy. */
void gp_extents_forget(void);

#endif
