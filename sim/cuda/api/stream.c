/* SPDX-License-Identifier: MIT
 * Entry points of streams (stream.c, order.c). */
#include "cuda/graph.h"

#include <string.h>

/* ---- life -------------------------------------------------------------------------------------------------------- */

static CUresult sim_stream_create(CUstream *out, unsigned int flags, int priority)
{
    struct sim_context *c;
    CUresult r = sim_context_current(&c);

    return r ? r : sim_stream_new(out, c, flags, priority, NULL);
}

/* Work that is still queued goes on; only the handle dies.  The legacy stream takes over the duty
 * to be waited for. */
static CUresult sim_stream_destroy(CUstream h)
{
    struct sim_stream *s = (struct sim_stream *)h, *rest;

    if (!h || h == CU_STREAM_LEGACY || h == CU_STREAM_PER_THREAD || !sim_stream_valid(h))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_tool_event(SIM_TOOL_RESOURCE, SIM_TOOL_STREAM_DESTROY_STARTING, s->context, s, NULL);
    if (!sim_stream_valid(h))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_capture_stream_gone(s);
    rest = sim_stream_special(s->context, SIM_STREAM_REST, s->non_blocking, true);
    sim_point_join(&rest->point, &s->point);
    sim_stream_drop(s);
    return CUDA_SUCCESS;
}

SIM_API2(124, 2000, cuStreamCreate, CUstream *, phStream, unsigned int, Flags)
{
    return sim_stream_create(phStream, Flags, 0);
}

SIM_API3(367, 5050, cuStreamCreateWithPriority, CUstream *, phStream, unsigned int, flags, int, priority)
{
    return sim_stream_create(phStream, flags, priority);
}

SIM_API1(326, 4000, cuStreamDestroy_v2, CUstream, hStream)
{
    return sim_stream_destroy(hStream);
}

SIM_API1(127, 2000, cuStreamDestroy, CUstream, hStream)
{
    return sim_stream_destroy(hStream);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

SIM_API1_PTSZ(125, 439, 2000, cuStreamQuery, CUstream, hStream)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (!r)
        r = sim_capture_refuse(s);
    if (r)
        return r;
    sim_stream_order(s);
    if (!sim_point_finished(&s->point))
        return CUDA_ERROR_NOT_READY;
    sim_point_observe(&s->point);
    return CUDA_SUCCESS;
}

SIM_API1_PTSZ(126, 440, 2000, cuStreamSynchronize, CUstream, hStream)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (!r)
        r = sim_capture_refuse(s);
    if (r)
        return r;
    sim_stream_order(s);
    sim_point_wait(&s->point);
    sim_tool_event(SIM_TOOL_SYNCHRONIZE, SIM_TOOL_STREAM_SYNCHRONIZED, sim_context_peek(), hStream, NULL);
    return CUDA_SUCCESS;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

SIM_API2_PTSZ(368, 434, 5050, cuStreamGetPriority, CUstream, hStream, int *, priority)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !priority)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *priority = s->priority;
    return CUDA_SUCCESS;
}

SIM_API2_PTSZ(369, 435, 5050, cuStreamGetFlags, CUstream, hStream, unsigned int *, flags)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !flags)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *flags = s->flags;
    return CUDA_SUCCESS;
}

SIM_API2_PTSZ(693, 694, 12000, cuStreamGetId, CUstream, hStream, unsigned long long *, streamId)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !streamId)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *streamId = s->id;
    return CUDA_SUCCESS;
}

SIM_API2_PTSZ(774, 775, 12080, cuStreamGetDevice, CUstream, hStream, CUdevice *, device)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !device)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *device = s->device;
    return CUDA_SUCCESS;
}

SIM_API2_PTSZ(483, 484, 9020, cuStreamGetCtx, CUstream, hStream, CUcontext *, pctx)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !pctx)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *pctx = sim_context_handle(s->context);
    return CUDA_SUCCESS;
}

SIM_API3_PTSZ(759, 760, 12050, cuStreamGetCtx_v2, CUstream, hStream, CUcontext *, pCtx, CUgreenCtx *, pGreenCtx)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !pCtx)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *pCtx = sim_context_handle(s->context);
    if (pGreenCtx)
        *pGreenCtx = s->green;
    return CUDA_SUCCESS;
}

SIM_API4(758, 12050, cuGreenCtxStreamCreate, CUstream *, phStream, CUgreenCtx, greenCtx, unsigned int, flags, int,
         priority)
{
    struct sim_context *c = sim_context_find((CUcontext)greenCtx);

    /* Green contexts have no legacy stream of their own, so a blocking stream has nothing to block
     * on. */
    if (!c || !c->parent || !(flags & CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_stream_new(phStream, c, flags, priority, greenCtx);
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static bool sim_attribute_known(CUstreamAttrID attr)
{
    return attr == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW || attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
           attr == CU_LAUNCH_ATTRIBUTE_PRIORITY || attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
           attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

SIM_API2_PTSZ(572, 573, 11000, cuStreamCopyAttributes, CUstream, dst, CUstream, src)
{
    struct sim_stream *to, *from;
    CUresult r = sim_stream_resolve(dst, &to);

    if (!r)
        r = sim_stream_resolve(src, &from);
    if (r)
        return r;
    if (to->context != from->context)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(to->attribute, from->attribute, sizeof to->attribute);
    return CUDA_SUCCESS;
}

SIM_API3_PTSZ(574, 575, 11000, cuStreamGetAttribute, CUstream, hStream, CUstreamAttrID, attr, CUstreamAttrValue *,
              value_out)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !value_out || !sim_attribute_known(attr))
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *value_out = s->attribute[attr];
    return CUDA_SUCCESS;
}

SIM_API3_PTSZ(576, 577, 11000, cuStreamSetAttribute, CUstream, hStream, CUstreamAttrID, attr, const CUstreamAttrValue *,
              value)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !value || !sim_attribute_known(attr))
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    s->attribute[attr] = *value;
    return CUDA_SUCCESS;
}
