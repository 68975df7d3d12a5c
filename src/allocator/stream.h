/* SPDX-License-Identifier: MIT
 *
 * stream.h: what fence.c asks about streams and captures; the rest of stream.c is declared in fence.h.
 */
#ifndef GP_ALLOCATOR_STREAM_H
#define GP_ALLOCATOR_STREAM_H

#include <stdbool.h>
#include <stdint.h>

struct gp_served_context;

/* Does gp_fence_watch hold? */
bool gp_stream_watched(void);
/* The next live non-blocking stream of the served from index *at on.  Between gp_door_enter and gp_door_leave it stays
 * alive. */
bool gp_stream_next(const struct gp_served_context *served, unsigned *at, void **stream);
/* Can an event be recorded in this very stream?  Not if it is gone, "any", or each thread's own. */
bool gp_stream_nameable(const struct gp_served_context *served, uint64_t stream);
void gp_stream_forget(struct gp_served_context *served);

/* The recorder's side of the door (fence.h).  False: closed. */
bool gp_door_enter(void);
void gp_door_leave(void);

/* fence.c: what is in `stream` now stays a part of the fences to come. */
uint32_t gp_gather_leave(struct gp_served_context *served, void *stream);

#endif
