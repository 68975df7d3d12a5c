/* SPDX-License-Identifier: MIT
 *
 * fence.h: a fence tells when earlier work is done.  Called by backend.c for the cache, and at a context's end.
 *
 * A fence for "any stream" must cover every stream that can touch the memory.  One event on the legacy stream waits for
 * all blocking and all per-thread streams of its context (cuda.h: CU_STREAM_LEGACY); every non-blocking stream needs an
 * event of its own.  If there are several events, a stream of ours waits for each of them (gather.h), and the fence is
 * one event at that stream's end.
 */
#ifndef GP_ALLOCATOR_FENCE_H
#define GP_ALLOCATOR_FENCE_H

#include <stdint.h>

struct gp_served_context;

/* The backend's fence functions (cache.h).  Any thread, inside the library's code. */
uint32_t gp_fence_record(struct gp_served_context *served, const uint64_t *streams, unsigned count, uint64_t *fence);
uint32_t gp_fence_query(struct gp_served_context *served, uint64_t fence);
uint32_t gp_fence_wait(struct gp_served_context *served, uint64_t fence);

/* The context is gone, and its streams, events and captures with it. */
void gp_fence_forget(struct gp_served_context *served);

#endif
