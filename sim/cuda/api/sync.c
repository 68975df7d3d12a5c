/* SPDX-License-Identifier: MIT
 * Calls about a whole context's streams: waiting for all of them, their priorities, and attaching
 * managed memory. Only entry points. */
#include "cuda/graph.h"

/* A context stands for all its streams: waiting for it is waiting for the ones that capture. */
static CUresult sim_context_refuse(struct sim_context *c)
{
    for (struct sim_stream *s = sim_stream_first(); s; s = s->next)
        if (s->context == c && s->capture)
            return sim_capture_refuse(s);
    return CUDA_SUCCESS;
}

static CUresult sim_context_wait_for(struct sim_context *c)
{
    CUresult r = sim_context_refuse(sim_context_owner(c));
    uint32_t uid = c->uid;

    if (!r)
        r = sim_stream_synchronize(sim_context_owner(c));
    if (r)
        return r;
    c = sim_context_by_uid(uid); /* the wait drops the lock */
    if (c)
        sim_tool_event(SIM_TOOL_SYNCHRONIZE, SIM_TOOL_CONTEXT_SYNCHRONIZED, c, NULL, NULL);
    return CUDA_SUCCESS;
}

SIM_API0(17, 2000, cuCtxSynchronize)
{
    struct sim_context *c;
    CUresult r = sim_context_current(&c);

    return r ? r : sim_context_wait_for(c);
}

SIM_API1(800, 13000, cuCtxSynchronize_v2, CUcontext, ctx)
{
    struct sim_context *c = sim_context_find(ctx);

    return c ? sim_context_wait_for(c) : CUDA_ERROR_INVALID_CONTEXT;
}

/* The levels that stream.c gives out: six, as recent devices have. */
SIM_API2(370, 5050, cuCtxGetStreamPriorityRange, int *, leastPriority, int *, greatestPriority)
{
    struct sim_context *c;
    CUresult r = sim_context_current(&c);

    if (r)
        return r;
    if (leastPriority)
        *leastPriority = 0;
    if (greatestPriority)
        *greatestPriority = -5;
    return CUDA_SUCCESS;
}

/* The access mode of managed memory does not change its size: the call is checked, ordered in the
 * stream, and has no other effect. */
SIM_API4_PTSZ(377, 438, 6000, cuStreamAttachMemAsync, CUstream, hStream, CUdeviceptr, dptr, size_t, length,
              unsigned int, flags)
{
    const struct sim_memory *m = sim_memory_find(dptr);
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (!r)
        r = sim_capture_refuse(s);
    if (r)
        return r;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!m || m->type != SIM_MEMORY_MANAGED || m->base != dptr || (length && length != m->size) ||
        (flags == CU_MEM_ATTACH_SINGLE && s->kind != SIM_STREAM_CREATED))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_op_begin(s);
}
