/* SPDX-License-Identifier: MIT
 *
 * fence.h: when is earlier work done?  Which streams there are, which captures are under way, and the events that stand
 * for a point in all of them.  Called by serve_context.c (streams, captures), backend.c (fences) and served.c.
 *
 * A fence for "any stream" must cover every stream that can touch the memory: one event on the legacy stream waits for
 * all blocking and all per-thread streams of its context (cuda.h: CU_STREAM_LEGACY), every non-blocking stream needs
 * one of its own.  Several events are brought together in a stream of ours (gather): it waits for each of them, and the
 * fence is one event at its end.  A stream that is destroyed with work in it leaves an event there as well.
 *
 * Captures: while one is under way nothing is recorded, because an event on the legacy stream would break it.  The two
 * sides exclude each other as Dekker's algorithm does:
 *
 *      recorder: recording += 1, then look at closed        beginner: closed += 1, then wait for recording == 0
 *
 * both sequentially consistent, so that at least one sees the other.  Destroying a stream uses the same door.
 */
#ifndef GP_ALLOCATOR_FENCE_H
#define GP_ALLOCATOR_FENCE_H

#include <stdbool.h>
#include <stdint.h>

struct gp_served_context;

/* Streams and captures are seen from now on (the hooks are in place).  Before and without that, a fence for any stream
 * is a synchronisation of the context. */
void gp_fence_watch(void);

void gp_stream_born(struct gp_served_context *served, void *stream, unsigned flags);
/* Work that no event of ours can stand for may run on this device (-1: any) from now on: green contexts, unknown
 * contexts. */
void gp_stream_doubt(int device);
/* Before the driver destroys it: its work is remembered, nobody here uses the handle any more. */
void gp_stream_dying(void *stream);

/* Around the driver's begin: closes the door; ok false opens it again. */
void gp_capture_begin(void);
void gp_capture_began(void *stream, bool ok);
void gp_capture_ended(void *stream);
/* A capture of our own knowledge without a stream (PyTorch's begin .. end of a private pool). */
void gp_capture_announce(int delta);
bool gp_capture_under_way(void);

/* The backend's fence functions (cache.h). */
uint32_t gp_fence_record(struct gp_served_context *served, const uint64_t *streams, unsigned count, uint64_t *fence);
uint32_t gp_fence_query(struct gp_served_context *served, uint64_t fence);
uint32_t gp_fence_wait(struct gp_served_context *served, uint64_t fence);

/* The context is gone: so are its streams, events and captures. */
void gp_fence_forget(struct gp_served_context *served);

#endif
