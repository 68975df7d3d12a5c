/* SPDX-License-Identifier: MIT
 * Which streams capture into which graph, and which calls a capture forbids.  Called by every file that puts work into
 * streams; capture.c makes the nodes. */
#include "cuda/graph.h"

struct sim_capture *sim_captures;

/* Target of events that were recorded in a capture that has ended: such an event is unusable until
 * it is recorded again. */
struct sim_capture sim_capture_over = {.invalid = true};

void sim_capture_invalidate(struct sim_capture *c)
{
    c->invalid = true;
}

CUresult sim_capture_broken(struct sim_capture *c, CUresult why)
{
    if (c->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    sim_capture_invalidate(c);
    return why;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

bool sim_stream_capturing(const struct sim_stream *s)
{
    return s->capture != NULL;
}

CUresult sim_capture_refuse(struct sim_stream *s)
{
    if (s->capture)
        return sim_capture_broken(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return sim_capture_implicit(s);
}

/* Work in the legacy stream would wait for the blocking streams, and waiting for a capture is
 * impossible. */
CUresult sim_capture_implicit(const struct sim_stream *s)
{
    bool any = false;

    if (s->kind != SIM_STREAM_LEGACY || s->capture)
        return CUDA_SUCCESS;
    for (struct sim_stream *o = sim_stream_first(); o; o = o->next)
        if (o->capture && o->context == s->context && !o->non_blocking) {
            sim_capture_invalidate(o->capture);
            any = true;
        }
    return any ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

/* Does c forbid the calling thread an unsafe call? NVIDIA does not list these calls. Programs have met allocations, also
 * by cuMemAllocAsync in a stream that does not capture, queries of events and cuMemPoolGetAttribute; the other calls
 * about pools are held to be like it.  cuMemGetInfo is allowed: PyTorch asks it inside a capture when memory is short, and
 * its test on real GPUs gets the error for that. */
static bool sim_capture_forbids(const struct sim_capture *c)
{
    bool relaxed = sim_self.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED, own = c->thread == gettid();

    if (relaxed && (own || !sim_spec.capture_strict))
        return false;
    if (own)
        return c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return (relaxed || sim_self.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL) &&
           c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult sim_capture_check(void)
{
    CUresult r = CUDA_SUCCESS;

    for (struct sim_capture *c = sim_captures; c; c = c->next)
        if (sim_capture_forbids(c)) {
            sim_capture_invalidate(c);
            r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return r;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

void sim_capture_event_clear(struct sim_event *e)
{
    e->capture = NULL;
    sim_nodes_drop(&e->frontier);
}
