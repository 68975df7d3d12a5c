/* SPDX-License-Identifier: MIT
 *
 * gather.h: the events of a served context, and its gather stream: a stream of ours that waits for the work of other
 * streams, so that one event at its end stands for all of them.  Called by fence.c, and by stream.c for a stream that is
 * destroyed with work in it.
 *
 * Any thread, inside the library's code and with the context current.  Results are CUresult numbers or GP_BACKEND_*.
 */
#ifndef GP_ALLOCATOR_GATHER_H
#define GP_ALLOCATOR_GATHER_H

#include <stdint.h>

struct gp_served_context;

/* Records an event in `stream`. */
uint32_t gp_gather_record(struct gp_served_context *served, void *stream, void **event);
/* The event is not needed any more. */
void gp_gather_recycle(struct gp_served_context *served, void *event);
/* The context's gather stream, created at the first call. */
uint32_t gp_gather_stream(struct gp_served_context *served, void **out);
/* Makes `into` wait for the work that is in `stream` now.  Makes the stream's context, `served`, current itself. */
uint32_t gp_gather_add(struct gp_served_context *served, void *stream, void *into);
/* Adds the work of `stream`, which is about to be destroyed, to the context's own gather stream. */
uint32_t gp_gather_keep(struct gp_served_context *served, void *stream);

#endif
