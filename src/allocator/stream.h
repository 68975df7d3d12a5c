/* SPDX-License-Identifier: MIT
 *
 * stream.h: streams, captures and fences.
 */
#ifndef GP_ALLOCATOR_STREAM_H
#define GP_ALLOCATOR_STREAM_H

#include "allocator/served.h"
#include <stdbool.h>
#include <stdint.h>

/* The program's streams and the captures that are under way.  serve_context.c reports them, torch.c
 * and capi.c announce captures, fences ask.
 *
 * While a capture is under way no fence is recorded, because an event on the legacy stream would
 * break the capture. The two sides exclude each other as in Dekker's algorithm:
 *
 *      fence: fencing += 1, then load blocked        capture: blocked += 1, then wait for fencing == 0
 *
 * Both are sequentially consistent, so at least one side sees the other.  Destroying a stream blocks
 * fences in the same way. */

/* The hooks are in place: streams and captures are seen from now on.  Before and without that, a fence for any stream
 * synchronises the context. */
void gp_stream_watch(void);

void gp_stream_add(struct gp_served_context *served, void *stream, unsigned flags);
/* From now on work may run on this device (-1: any) for which we cannot record an event: in green contexts, or in
 * contexts that we do not know. */
void gp_stream_untracked(int device);
/* Called before the driver destroys the stream.  Keeps its work in mind; on return nothing here uses the handle. */
void gp_stream_remove(void *stream);
/* The next live non-blocking stream of the context from index *at on.  It stays alive between
 * gp_stream_fencing_begin and gp_stream_fencing_end. */
bool gp_stream_next(const struct gp_served_context *served, unsigned *at, void **stream);
/* Can an event be recorded in exactly this stream?  Not if it is gone, "any", or each thread's own. */
bool gp_stream_nameable(const struct gp_served_context *served, uint64_t stream);

/* Around the driver's begin.  gp_stream_capture_begin blocks fences; gp_stream_capture_began with
 * ok false unblocks them again. */
void gp_stream_capture_begin(void);
void gp_stream_capture_began(void *stream, bool ok);
void gp_stream_capture_ended(void *stream);
/* +1, -1: the caller knows that a capture may begin and has ended, without a stream (PyTorch's private pools). */
void gp_stream_capture_announce(int delta);
bool gp_stream_capture_under_way(void);

/* Around recording a fence.  False: a capture is under way or a stream is being destroyed, so record nothing. */
bool gp_stream_fencing_begin(void);
void gp_stream_fencing_end(void);

/* A fence tells when earlier work is done.  Called by backend.c for the cache, and at a context's
 * end.
 *
 * A fence for "any stream" must cover every stream that can touch the memory.  One event on the
 * legacy stream waits for all blocking and all per-thread streams of its context (cuda.h:
 * CU_STREAM_LEGACY); every non-blocking stream needs an event of its own.  If there are several
 * events, a stream of ours waits for each of them, and the fence is one event at that
 * stream's end. */

/* The backend's fence functions (cache.h).  Any thread, inside the library's code. */
uint32_t gp_stream_fence_record(struct gp_served_context *served, const uint64_t *streams, unsigned count,
                                uint64_t *fence);
uint32_t gp_stream_fence_query(struct gp_served_context *served, uint64_t fence);
uint32_t gp_stream_fence_wait(struct gp_served_context *served, uint64_t fence);

/* The context is gone, and its streams, events and captures with it. */
void gp_stream_fence_forget(struct gp_served_context *served);

#endif
