/* SPDX-License-Identifier: MIT
 *
 * stream.h: the program's streams and the captures that are under way.  serve_context.c reports them, torch.c and
 * capi.c announce captures, fence.c asks.
 *
 * While a capture is under way no fence is recorded, because an event on the legacy stream would break the capture.
 * The two sides exclude each other as in Dekker's algorithm:
 *
 *      fence: fencing += 1, then load blocked        capture: blocked += 1, then wait for fencing == 0
 *
 * Both are sequentially consistent, so at least one side sees the other.  Destroying a stream blocks fences in the same
 * way.
 */
#ifndef GP_ALLOCATOR_STREAM_H
#define GP_ALLOCATOR_STREAM_H

#include <stdbool.h>
#include <stdint.h>

struct gp_served_context;

/* The hooks are in place: streams and captures are seen from now on.  Before and without that, a fence for any stream
 * synchronises the context. */
void gp_stream_watch(void);
bool gp_stream_watched(void);

/* ---- streams: any thread ---------------------------------------------------------------------------------------- */

void gp_stream_add(struct gp_served_context *served, void *stream, unsigned flags);
/* From now on work may run on this device (-1: any) for which we cannot record an event: in green contexts, or in
 * contexts that we do not know. */
void gp_stream_untracked(int device);
/* Called before the driver destroys the stream.  Keeps its work in mind; on return nothing here uses the handle. */
void gp_stream_remove(void *stream);
/* The context is gone, and its streams and captures with it. */
void gp_stream_forget(struct gp_served_context *served);

/* The next live non-blocking stream of the context from index *at on.  It stays alive between gp_stream_fencing_begin and
 * gp_stream_fencing_end. */
bool gp_stream_next(const struct gp_served_context *served, unsigned *at, void **stream);
/* Can an event be recorded in exactly this stream?  Not if it is gone, "any", or each thread's own. */
bool gp_stream_nameable(const struct gp_served_context *served, uint64_t stream);

/* ---- captures: any thread --------------------------------------------------------------------------------------- */

/* Around the driver's begin.  gp_stream_capture_begin blocks fences; gp_stream_capture_began with ok false unblocks them again. */
void gp_stream_capture_begin(void);
void gp_stream_capture_began(void *stream, bool ok);
void gp_stream_capture_ended(void *stream);
/* +1, -1: the caller knows that a capture may begin and has ended, without a stream (PyTorch's private pools). */
void gp_stream_capture_announce(int delta);
bool gp_stream_capture_under_way(void);

/* ---- fences ----------------------------------------------------------------------------------------------------- */

/* Around recording a fence.  False: a capture is under way or a stream is being destroyed, so record nothing. */
bool gp_stream_fencing_begin(void);
void gp_stream_fencing_end(void);
/* Around synchronising whole contexts, begun before gp_stream_fencing_end.  It may take as long as the device works: streams are
 * destroyed meanwhile, and a capture waits only until the driver must have begun to wait. */
void gp_stream_syncing_begin(void);
void gp_stream_syncing_end(void);

#endif
