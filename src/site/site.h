/* SPDX-License-Identifier: MIT
 *
 * site.h: where in the program memory was asked for.  Called by account/ and shim/ on the application's thread, inside
 * a gp_thread_enter/leave pair, with no lock held; knows no CUDA.  Never allocates from malloc, never waits for another
 * thread longer than a table's lock, never fails: what does not fit is counted in the tables (wire.h).
 *
 * Off, everything here is one load and a branch.
 */
#ifndef GP_SITE_SITE_H
#define GP_SITE_SITE_H

#include "base/compiler.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* Bytes of session memory that the tables want (touched as they fill). */
uint64_t gp_site_bytes(void);

/* Once, at start: memory is zeroed, shared, `bytes` long, on a page.  modes: GP_SITES_*, not 0.  0 or -errno. */
int gp_site_start(void *memory, uint64_t bytes, uint32_t modes);

extern uint32_t gp_site_modes; /* const after start; 0: off */
static inline bool gp_site_on(void)
{
    return GP_UNLIKELY(gp_site_modes != 0);
}

/* The site of the calling thread's stack for memory of that kind on that device (index in the session); 0: off, or
 * unknown.  summed: it counts among the device's bytes (what PyTorch's allocated_bytes sums); else its row alone has
 * numbers. */
uint32_t gp_site_here(int device, enum gp_wire_kind kind, bool summed);

/* Memory of a site comes and goes.  site 0: nothing.  In any order and on any thread; a free of what was allocated
 * before the sites were switched on has site 0. */
void gp_site_alloc(uint32_t site, uint64_t bytes);
void gp_site_free(uint32_t site, uint64_t bytes);

/* Peaks begin anew, of the device and of its sites (-1: all). */
void gp_site_reset(int device);

#endif
