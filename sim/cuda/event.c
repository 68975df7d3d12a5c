/* SPDX-License-Identifier: MIT
 * Events: a remembered point of a stream, waited for by the host or by other streams, or a set of
 * graph nodes when the stream was capturing.  Called by api/event.c and by graph event nodes. */
#include "cuda/stream.h"

#include <stdlib.h>

struct sim_event *sim_events;

struct sim_event *sim_event_first(void)
{
    return sim_events;
}

CUresult sim_event_find(CUevent h, struct sim_event **out)
{
    for (struct sim_event *e = sim_events; e; e = e->next)
        if ((CUevent)e == h) {
            *out = e;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_HANDLE;
}

void sim_event_drop(struct sim_event *e)
{
    for (struct sim_event **at = &sim_events; *at; at = &(*at)->next)
        if (*at == e) {
            *at = e->next;
            break;
        }
    sim_point_drop(&e->point);
    sim_nodes_drop(&e->frontier);
    free(e);
}

void sim_context_events_end(struct sim_context *c)
{
    struct sim_event *next;

    for (struct sim_event *e = sim_events; e; e = next) {
        next = e->next;
        if (e->context == c)
            sim_event_drop(e);
    }
}

/* ---- events of another process ----------------------------------------------------------------------------------- */

/* Outside a capture: the event now stands for all work of s so far. */
CUresult sim_event_record(struct sim_event *e, struct sim_stream *s)
{
    CUresult r = sim_capture_implicit(s);

    if (r)
        return r;
    if (e->context != s->context)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_stream_order(s);
    sim_capture_event_clear(e);
    sim_point_copy(&e->point, &s->point);
    e->recorded = true;
    return CUDA_SUCCESS;
}

/* An event that was never recorded does not block. */
void sim_event_wait(struct sim_event *e, struct sim_stream *s)
{
    sim_stream_order(s);
    if (e->recorded)
        sim_point_join(&s->point, &e->point);
}
