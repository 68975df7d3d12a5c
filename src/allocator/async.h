/* SPDX-License-Identifier: MIT
 *
 * async.h: stream-ordered allocation.
 */
#ifndef GP_ALLOCATOR_ASYNC_H
#define GP_ALLOCATOR_ASYNC_H

#include "allocator/served.h"
#include <stdbool.h>
#include <stdint.h>

/* Stream-ordered allocation for callers that name device and stream themselves: PyTorch's pluggable
 * allocator (torch.c) and the C interface (capi.c).  The memory lives in the device's primary
 * context, which is retained once and never released.
 *
 * Without the hooks the library does not see streams, captures and peers.  A fence for "any stream"
 * then synchronises the whole context, memory is not made accessible to peers, and only the private
 * pools that a caller begins before a capture keep the cache from disturbing it. */

struct gp_async {
    struct gp_served_context *served;
    struct gp_cache *cache;
    int saved_errno;
};

/* Starts the library if it is not started, enters the library's code and finds the device's cache.  0: call
 * gp_async_leave afterwards.  Otherwise a GP_CU_* number: 3 no driver, or switched off, or a forked child; 1 no such
 * device; or the driver's error. */
uint32_t gp_async_enter(struct gp_async *async, int device);
void gp_async_leave(const struct gp_async *async);
/* The same for calls that name no device: served and cache are NULL. */
uint32_t gp_async_enter_any(struct gp_async *async);

/* What most calls need, outside gp_async_enter: an allocation from the thread's own cache, and a free into it.  False:
 * nothing happened, and the call has to go the long way, through gp_async_enter.  errno stays. */
bool gp_async_give(uint64_t bytes, int device, uint64_t stream, uint64_t *address);
bool gp_async_take(uint64_t address);

/* Inside gp_async_enter.  api: the function's name for the failure report.  flags: GP_REQUEST_*.  Returns a GP_CU_*
 * number. */
uint32_t gp_async_alloc(struct gp_async *async, const char *api, uint64_t bytes, uint64_t stream, unsigned flags,
                        uint64_t *address);
/* at_once: the caller caches memory itself, so a driver allocation of its own goes back to the driver.  This and the
 * next two return false if the address is not in memory of the cache.  Inside gp_async_enter_any. */
bool gp_async_free(uint64_t address, bool at_once);
bool gp_async_record_stream(uint64_t address, uint64_t stream);
/* The driver allocation or address range that contains an address. */
bool gp_async_base(uint64_t address, uint64_t *base, uint64_t *bytes);
/* Inside gp_async_enter.  fraction: 0 (no limit) to 1 of the device's total bytes.  Returns a GP_CU_* number. */
uint32_t gp_async_set_fraction(struct gp_async *async, double fraction);

#endif
