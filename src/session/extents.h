/* SPDX-License-Identifier: MIT
 *
 * extents.h: the memory of the process piece by piece: the one walker over the cache and the accounts (extentwalk.c; api/ uses
 * it too), and the memfd by which a viewer takes the pieces away (extents.c; the drain thread alone).
 */
#ifndef GP_SESSION_EXTENTS_H
#define GP_SESSION_EXTENTS_H

#include <gpuprof/wire.h>
#include <stdint.h>

/* visit runs under a lock of the cache or of the pointer map: short, no waiting, no call into either.  rest (may be
 * NULL) runs under none, after GP_EXTENTS_REST pieces at most. */
typedef void gp_extent_fn(void *arg, const struct gp_wire_extent *piece);
#define GP_EXTENTS_REST 2048u

/* index: a device, GP_WIRE_HOST, or GP_EXTENTS_EVERY.  The cache's segments by address, each followed by its blocks;
 * then the program's own memory in no order, see struct gp_wire_extents. */
#define GP_EXTENTS_EVERY UINT32_MAX
void gp_extents_walk(unsigned index, void *arg, gp_extent_fn *visit, void (*rest)(void *arg));

/* ---- the drain thread ------------------------------------------------------------------------------------------- */

/* Lays the pieces of every device and the host out in a sealed memfd.  Its descriptor; -EBUSY: the last one is still
 * lent; -errno. */
int gp_extents_lay(void);
/* The viewer has it, or is gone: closes it.  Nothing if none is out. */
void gp_extents_drop(void);

/* ---- fork ------------------------------------------------------------------------------------------------------- */

/* Around a fork, in the program's thread: no descriptor is made or closed meanwhile, so that the child knows what it
 * has. */
void gp_extents_fork_begin(void);
void gp_extents_fork_end(void);
/* The child closes its copy. */
void gp_extents_forget(void);

#endif
