/* SPDX-License-Identifier: MIT
 *
 * site.h: records at which call site device memory was allocated. Called by account/ and allocator/
 * on the application's thread, inside a gp_thread_enter/leave pair, with no lock held; independent
 * of CUDA. It never calls malloc, waits for another thread only for a table's lock, and never
 * fails: sites that do not fit are counted in the tables (wire.h).
 *
 * When sites are off, every call here is one load and a branch.
 */
#ifndef GP_SITE_SITE_H
#define GP_SITE_SITE_H

#include "base/compiler.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* Bytes of session memory that the tables need; pages are used only as the tables fill. */
uint64_t gp_site_bytes(void);

/* Call once, at start. memory: zeroed, shared, `bytes` long, page-aligned. modes: GP_SITES_*, not
 * 0. 0 or -errno. */
int gp_site_start(void *memory, uint64_t bytes, uint32_t modes);

extern uint32_t gp_site_modes; /* constant after start; 0: off */
static inline bool gp_site_on(void)
{
    return GP_UNLIKELY(gp_site_modes != 0);
}

/* Sets where one sentence is written if Python frames are missing: the reason. text: in the
 * session, zeroed. Call before gp_site_start. */
void gp_site_explain_to(char *text, uint64_t bytes);

/* The site of the calling thread's stack for memory of that kind on that device (index in the
 * session); 0: off, or unknown. summed: the site counts among the device's bytes (the memory that
 * PyTorch's allocated_bytes sums); otherwise only its own row has numbers. */
uint32_t gp_site_here(int device, enum gp_wire_kind kind, bool summed);

/* Count an allocation and a free at a site, in any order and on any thread. Site 0 is ignored; it
 * is also the site of memory allocated before sites were switched on. */
void gp_site_alloc(uint32_t site, uint64_t bytes);
void gp_site_free(uint32_t site, uint64_t bytes);

/* Restarts the peaks of a device and of its sites; -1: of all devices. */
void gp_site_reset(int device);

#endif
