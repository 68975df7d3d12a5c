/* SPDX-License-Identifier: MIT
 * Entry points of events (event.c). */
#include "cuda/stream.h"

#include <string.h>

static CUresult sim_event_create(CUevent *out, unsigned int flags)
{
    const unsigned int known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    struct sim_context *c;
    struct sim_event *e;
    CUresult r = sim_context_current(&c);

    if (r)
        return r;
    if (!out || flags & ~known || (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    e = sim_grow(NULL, sizeof *e);
    *e = (struct sim_event){.next = sim_events, .context = sim_context_owner(c), .flags = flags};
    sim_events = e;
    *out = (CUevent)e;
    return CUDA_SUCCESS;
}

SIM_API2(118, 2000, cuEventCreate, CUevent *, phEvent, unsigned int, Flags)
{
    return sim_event_create(phEvent, Flags);
}

/* ---- events of another process ----------------------------------------------------------------------------------- */

/* Work runs when it is submitted: what another process recorded before it sent the handle has
 * happened.  So an opened event is one that has passed. */
#define SIM_EVENT_MAGIC 0x74766573u

SIM_API2(334, 4010, cuIpcGetEventHandle, CUipcEventHandle *, pHandle, CUevent, event)
{
    const uint32_t magic = SIM_EVENT_MAGIC;
    struct sim_event *e;
    CUresult r = sim_event_find(event, &e);

    if (r)
        return r;
    if (!pHandle || !(e->flags & CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_VALUE;
    memset(pHandle, 0, sizeof *pHandle);
    memcpy(pHandle, &magic, sizeof magic);
    return CUDA_SUCCESS;
}

SIM_API2(335, 4010, cuIpcOpenEventHandle, CUevent *, phEvent, CUipcEventHandle, handle)
{
    uint32_t magic;

    memcpy(&magic, &handle, sizeof magic);
    if (magic != SIM_EVENT_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_event_create(phEvent, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
}

static CUresult sim_event_destroy(CUevent h)
{
    struct sim_event *e;
    CUresult r = sim_event_find(h, &e);

    if (!r)
        sim_event_drop(e);
    return r;
}

SIM_API1(325, 4000, cuEventDestroy_v2, CUevent, hEvent)
{
    return sim_event_destroy(hEvent);
}

SIM_API1(122, 2000, cuEventDestroy, CUevent, hEvent)
{
    return sim_event_destroy(hEvent);
}

static CUresult sim_event_record_call(CUevent h, CUstream hs, unsigned int flags)
{
    struct sim_event *e;
    struct sim_stream *s;
    CUresult r = sim_event_find(h, &e);

    if (!r)
        r = sim_stream_resolve(hs, &s);
    if (r)
        return r;
    if (flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_stream_capturing(s))
        return sim_capture_event_record(s, e, flags & CU_EVENT_RECORD_EXTERNAL);
    return sim_event_record(e, s);
}

SIM_API2_PTSZ(119, 441, 2000, cuEventRecord, CUevent, hEvent, CUstream, hStream)
{
    return sim_event_record_call(hEvent, hStream, 0);
}

SIM_API3_PTSZ(587, 588, 11010, cuEventRecordWithFlags, CUevent, hEvent, CUstream, hStream, unsigned int, flags)
{
    return sim_event_record_call(hEvent, hStream, flags);
}

SIM_API3_PTSZ(295, 436, 3020, cuStreamWaitEvent, CUstream, hStream, CUevent, hEvent, unsigned int, Flags)
{
    struct sim_event *e;
    struct sim_stream *s;
    CUresult r = sim_event_find(hEvent, &e);

    if (!r)
        r = sim_stream_resolve(hStream, &s);
    if (r)
        return r;
    if (Flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_stream_capturing(s) || e->capture)
        return sim_capture_event_wait(s, e, Flags & CU_EVENT_WAIT_EXTERNAL);
    r = sim_capture_implicit(s);
    if (!r)
        sim_event_wait(e, s);
    return r;
}

/* ---- the host asks or waits -------------------------------------------------------------------------------------- */

/* Asking an event is among the calls that a capture forbids to other threads too, even if the event
 * has nothing to do with it (pytorch/pytorch pull 148594, 104555). */
static CUresult sim_event_ask(CUevent h, struct sim_event **out)
{
    CUresult r = sim_event_find(h, out);

    if (!r)
        r = sim_capture_event_refuse(*out);
    return r ? r : sim_capture_check();
}

SIM_API1(120, 2000, cuEventQuery, CUevent, hEvent)
{
    struct sim_event *e;
    CUresult r = sim_event_ask(hEvent, &e);

    if (r || !e->recorded)
        return r;
    if (!sim_point_finished(&e->point))
        return CUDA_ERROR_NOT_READY;
    sim_point_observe(&e->point);
    return CUDA_SUCCESS;
}

SIM_API1(121, 2000, cuEventSynchronize, CUevent, hEvent)
{
    struct sim_event *e;
    CUresult r = sim_event_ask(hEvent, &e);

    if (!r && e->recorded)
        sim_point_wait(&e->point);
    return r;
}

static CUresult sim_event_elapsed(float *ms, CUevent start, CUevent end)
{
    struct sim_event *a, *b;
    CUresult r = sim_event_find(start, &a);

    if (!r)
        r = sim_event_find(end, &b);
    if (r)
        return r;
    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    if (!a->recorded || !b->recorded || a->context != b->context || (a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sim_point_finished(&a->point) || !sim_point_finished(&b->point))
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(int64_t)(b->point.finish_ns - a->point.finish_ns) / 1e6);
    /* Where work takes no time, at least the documented resolution: programs divide by it, as
     * PyTorch's compiler does. */
    if (*ms == 0 && start != end)
        *ms = 0.0005f;
    return CUDA_SUCCESS;
}

SIM_API3(123, 2000, cuEventElapsedTime, float *, pMilliseconds, CUevent, hStart, CUevent, hEnd)
{
    return sim_event_elapsed(pMilliseconds, hStart, hEnd);
}

SIM_API3(780, 12080, cuEventElapsedTime_v2, float *, pMilliseconds, CUevent, hStart, CUevent, hEnd)
{
    return sim_event_elapsed(pMilliseconds, hStart, hEnd);
}

/* ---- whole contexts ---------------------------------------------------------------------------------------------- */

static CUresult sim_context_record(struct sim_context *c, CUevent h)
{
    struct sim_event *e;
    CUresult r = sim_event_find(h, &e);

    if (r)
        return r;
    if (!c || e->context != sim_context_owner(c))
        return CUDA_ERROR_INVALID_HANDLE;
    for (struct sim_stream *s = sim_stream_first(); s; s = s->next)
        if (s->context == e->context && s->capture)
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_capture_event_clear(e);
    sim_point_drop(&e->point);
    for (struct sim_stream *s = sim_stream_first(); s; s = s->next)
        if (s->context == e->context)
            sim_point_join(&e->point, &s->point);
    e->recorded = true;
    return CUDA_SUCCESS;
}

static CUresult sim_context_wait(struct sim_context *c, CUevent h)
{
    struct sim_event *e;
    CUresult r = sim_event_find(h, &e);

    if (r)
        return r;
    if (!c)
        return CUDA_ERROR_INVALID_HANDLE;
    for (struct sim_stream *s = sim_stream_first(); s; s = s->next)
        if (s->context == sim_context_owner(c) && !s->capture)
            sim_event_wait(e, s);
    return CUDA_SUCCESS;
}

SIM_API2(755, 12050, cuCtxRecordEvent, CUcontext, hCtx, CUevent, hEvent)
{
    return sim_context_record(sim_context_find(hCtx), hEvent);
}

SIM_API2(756, 12050, cuCtxWaitEvent, CUcontext, hCtx, CUevent, hEvent)
{
    return sim_context_wait(sim_context_find(hCtx), hEvent);
}
