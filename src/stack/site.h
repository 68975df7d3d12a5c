/* SPDX-License-Identifier: MIT
 *
 * site.h: records at which call site device memory was allocated. Called by account/ and allocator/
 * on the application's thread, inside a gp_thread_enter/leave pair, with no lock held; independent
 * of CUDA. It never calls malloc, waits for another thread only for a table's lock, and never
 * fails: sites that do not fit are counted in the tables (wire.h).
 *
 * When sites are off, every call here is one load and a branch.
 */
#ifndef GP_STACK_SITE_H
#define GP_STACK_SITE_H

#include "base/compiler.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* Bytes of session memory that the tables need; pages are used only as the tables fill. */
uint64_t gp_site_bytes(void);

/* Call once, at start. memory: zeroed, shared, `bytes` long, page-aligned. modes: GP_SITES_*, not
 * 0. 0 or -errno. */
int gp_site_start(void *memory, uint64_t bytes, uint32_t modes);

/* Changes the modes of a running program; 0: off. memory as above, used unless the tables exist.
 * Blocks that have a site keep it. One thread at a time, which is not the program's. 0 or -errno,
 * which leaves all as it was. */
int gp_site_switch(void *memory, uint64_t bytes, uint32_t modes);

extern uint32_t gp_site_modes; /* GP_SITES_*; 0: off */
static inline bool gp_site_on(void)
{
    return GP_UNLIKELY(__atomic_load_n(&gp_site_modes, __ATOMIC_RELAXED) != 0);
}

/* Some memory was allocated while stacks were off. From then on every block counts: those without a
 * site count at the site "before stacks" of their device. */
extern uint32_t gp_site_partial;
static inline bool gp_site_is_partial(void)
{
    /* [partial.A] acquire: the tables; pairs with [partial.R]. */
    return GP_UNLIKELY(__atomic_load_n(&gp_site_partial, __ATOMIC_ACQUIRE) != 0);
}

/* Count a summed block without a site; only if gp_site_is_partial. */
void gp_site_plain_alloc(unsigned device, uint64_t bytes);
void gp_site_plain_free(unsigned device, uint64_t bytes);

/* Corrects "before stacks", so that all summed sites of the device together hold `bytes` in `count`
 * blocks. It finds what was live when stacks were switched, and later what a thread that was inside
 * a call at that moment counted twice or not at all. Without effect unless gp_site_is_partial. One
 * thread at a time. */
void gp_site_settle(unsigned device, int64_t bytes, int64_t count);

/* Sets where one sentence is written if Python frames are missing: the reason. text: in the
 * session, zeroed. Call before gp_site_start. */
void gp_site_explain_to(char *text, uint64_t bytes);

/* The site of the calling thread's stack for memory of that kind on that device (index in the
 * session); 0: off, or no such device. A stack that cannot be read has a site without frames. summed: the site counts among the device's bytes (the memory that
 * PyTorch's allocated_bytes sums); otherwise only its own row has numbers. */
uint32_t gp_site_here(int device, enum gp_wire_kind kind, bool summed);

/* Count an allocation and a free at a site, in any order and on any thread. Site 0 is ignored. */
void gp_site_alloc(uint32_t site, uint64_t bytes);
void gp_site_free(uint32_t site, uint64_t bytes);

/* Restarts the peaks of a device and of its sites; -1: of all devices. */
void gp_site_reset(int device);

#endif
