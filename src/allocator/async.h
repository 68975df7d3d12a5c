/* SPDX-License-Identifier: MIT
 *
 * async.h: memory for callers that name device and stream themselves: PyTorch's pluggable allocator (torch.c) and the C
 * interface (capi.c).  It lives in the device's primary context, which is retained once and never released, and is
 * ordered by stream.
 *
 * Without the hooks nobody tells us about streams, captures and peers.  Then a fence for "any stream" is a
 * synchronisation of the context, memory is not opened to peers, and what must not disturb a capture relies on the
 * private pools that the caller begins before it captures.
 */
#ifndef GP_ALLOCATOR_ASYNC_H
#define GP_ALLOCATOR_ASYNC_H

#include "allocator/served.h"
#include <stdbool.h>
#include <stdint.h>

struct gp_async {
    struct gp_served_context *served;
    struct gp_cache *cache;
    int saved_errno;
};

/* Starts the library if nobody did, enters our code and finds the device's cache.  0: a leave is due.  GP_CU_*
 * otherwise: 3 no driver, or switched off, or a forked child; 1 no such device; or what the driver said. */
uint32_t gp_async_enter(struct gp_async *lend, int device);
void gp_async_leave(const struct gp_async *lend);
/* The same for what needs no device: served and cache are NULL. */
uint32_t gp_async_enter_any(struct gp_async *lend);

uint32_t gp_async_alloc(struct gp_async *lend, const char *api, uint64_t bytes, uint64_t stream, uint64_t *address);
/* False: not a block of ours.  Inside gp_async_enter_any. */
bool gp_async_free(uint64_t address);
bool gp_async_record_stream(uint64_t address, uint64_t stream);
/* The driver allocation or address range behind an address. */
bool gp_async_base(uint64_t address, uint64_t *base, uint64_t *bytes);
uint32_t gp_async_set_fraction(struct gp_async *lend, double fraction);

#endif
