/* SPDX-License-Identifier: MIT
 * Runtime calls for streams, events, host functions and stream capture.  Called by programs.
 * Stream and event handles, flags, capture modes and edge data are the driver's own. */
#include "cudart/runtime.h"

#include <stdlib.h>

RT_API(RT_CONTEXT, 129, cudaStreamCreate, cudaStream_t *, pStream)
{
    return rt_error_from(D->cuStreamCreate(pStream, cudaStreamDefault));
}

RT_API(RT_CONTEXT, 198, cudaStreamCreateWithFlags, cudaStream_t *, pStream, unsigned int, flags)
{
    return rt_error_from(D->cuStreamCreate(pStream, flags));
}

RT_API(RT_CONTEXT, 202, cudaStreamCreateWithPriority, cudaStream_t *, pStream, unsigned int, flags, int, priority)
{
    return rt_error_from(D->cuStreamCreateWithPriority(pStream, flags, priority));
}

RT_API(RT_CONTEXT, 201, cudaStreamDestroy, cudaStream_t, stream)
{
    return rt_error_from(D->cuStreamDestroy(stream));
}

RT_TWINS(RT_CONTEXT, 203, 237, _ptsz, cudaStreamGetPriority, cudaStream_t, hStream, int *, priority)
{
    return rt_error_from(D->cuStreamGetPriority(hStream, priority));
}

RT_TWINS(RT_CONTEXT, 204, 238, _ptsz, cudaStreamGetFlags, cudaStream_t, hStream, unsigned int *, flags)
{
    return rt_error_from(D->cuStreamGetFlags(hStream, flags));
}

RT_TWINS(RT_CONTEXT, 441, 442, _ptsz, cudaStreamGetId, cudaStream_t, hStream, unsigned long long *, streamId)
{
    return rt_error_from(D->cuStreamGetId(hStream, streamId));
}

RT_TWINS(RT_CONTEXT, 480, 481, _ptsz, cudaStreamGetDevice, cudaStream_t, hStream, int *, device)
{
    return rt_error_from(D->cuStreamGetDevice(hStream, device));
}

RT_TWINS(RT_CONTEXT, 147, 247, _ptsz, cudaStreamWaitEvent, cudaStream_t, stream, cudaEvent_t, event, unsigned int,
         flags)
{
    return rt_error_from(D->cuStreamWaitEvent(stream, event, flags));
}

RT_TWINS(RT_CONTEXT, 131, 239, _ptsz, cudaStreamSynchronize, cudaStream_t, stream)
{
    return rt_error_from(D->cuStreamSynchronize(stream));
}

RT_TWINS(RT_CONTEXT, 132, 240, _ptsz, cudaStreamQuery, cudaStream_t, stream)
{
    return rt_error_from(D->cuStreamQuery(stream));
}

RT_TWINS(RT_CONTEXT, 208, 241, _ptsz, cudaStreamAttachMemAsync, cudaStream_t, stream, void *, devPtr, size_t, length,
         unsigned int, flags)
{
    return rt_error_from(D->cuStreamAttachMemAsync(stream, rt_device_pointer(devPtr), length, flags));
}

/* The program's callback takes the runtime's error type: this carries it through the driver's. */
struct rt_stream_callback {
    cudaStreamCallback_t callback;
    void *user;
};

static void rt_stream_callback_run(CUstream stream, CUresult status, void *user)
{
    struct rt_stream_callback call = *(struct rt_stream_callback *)user;

    free(user);
    call.callback(stream, rt_error_from(status), call.user);
}

RT_TWINS(RT_CONTEXT, 197, 248, _ptsz, cudaStreamAddCallback, cudaStream_t, stream, cudaStreamCallback_t, callback,
         void *, userData, unsigned int, flags)
{
    struct rt_stream_callback *call = callback ? malloc(sizeof *call) : NULL;
    CUresult result;

    if (!call)
        return callback ? cudaErrorMemoryAllocation : cudaErrorInvalidValue;
    *call = (struct rt_stream_callback){callback, userData};
    result = D->cuStreamAddCallback(stream, rt_stream_callback_run, call, flags);
    if (result)
        free(call);
    return rt_error_from(result);
}

RT_TWINS(RT_CONTEXT, 284, 285, _ptsz, cudaLaunchHostFunc, cudaStream_t, stream, cudaHostFn_t, fn, void *, userData)
{
    return rt_error_from(D->cuLaunchHostFunc(stream, fn, userData));
}

RT_API(RT_CONTEXT, 133, cudaEventCreate, cudaEvent_t *, event)
{
    return rt_error_from(D->cuEventCreate(event, cudaEventDefault));
}

RT_API(RT_CONTEXT, 134, cudaEventCreateWithFlags, cudaEvent_t *, event, unsigned int, flags)
{
    return rt_error_from(D->cuEventCreate(event, flags));
}

RT_TWINS(RT_CONTEXT, 135, 242, _ptsz, cudaEventRecord, cudaEvent_t, event, cudaStream_t, stream)
{
    return rt_error_from(D->cuEventRecord(event, stream));
}

RT_TWINS(RT_CONTEXT, 370, 371, _ptsz, cudaEventRecordWithFlags, cudaEvent_t, event, cudaStream_t, stream, unsigned int,
         flags)
{
    return rt_error_from(D->cuEventRecordWithFlags(event, stream, flags));
}

RT_API(RT_CONTEXT, 138, cudaEventQuery, cudaEvent_t, event)
{
    return rt_error_from(D->cuEventQuery(event));
}

RT_API(RT_CONTEXT, 137, cudaEventSynchronize, cudaEvent_t, event)
{
    return rt_error_from(D->cuEventSynchronize(event));
}

RT_API(RT_CONTEXT, 136, cudaEventDestroy, cudaEvent_t, event)
{
    return rt_error_from(D->cuEventDestroy(event));
}

RT_API(RT_CONTEXT, 486, cudaEventElapsedTime, float *, ms, cudaEvent_t, start, cudaEvent_t, end)
{
    return rt_error_from(D->cuEventElapsedTime(ms, start, end));
}

RT_TWINS(RT_CONTEXT, 315, 316, _ptsz, cudaStreamBeginCapture, cudaStream_t, stream, enum cudaStreamCaptureMode, mode)
{
    return rt_error_from(D->cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}

RT_TWINS(RT_CONTEXT, 452, 453, _ptsz, cudaStreamBeginCaptureToGraph, cudaStream_t, stream, cudaGraph_t, graph,
         const cudaGraphNode_t *, dependencies, const cudaGraphEdgeData *, dependencyData, size_t, numDependencies,
         enum cudaStreamCaptureMode, mode)
{
    return rt_error_from(D->cuStreamBeginCaptureToGraph(stream, graph, dependencies,
                                                        (const CUgraphEdgeData *)dependencyData, numDependencies,
                                                        (CUstreamCaptureMode)mode));
}

RT_TWINS(RT_CONTEXT, 319, 320, _ptsz, cudaStreamEndCapture, cudaStream_t, stream, cudaGraph_t *, pGraph)
{
    return rt_error_from(D->cuStreamEndCapture(stream, pGraph));
}

RT_TWINS(RT_CONTEXT, 317, 318, _ptsz, cudaStreamIsCapturing, cudaStream_t, stream, enum cudaStreamCaptureStatus *,
         pCaptureStatus)
{
    return rt_error_from(D->cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)pCaptureStatus));
}

RT_TWINS(RT_CONTEXT, 461, 462, _ptsz, cudaStreamGetCaptureInfo, cudaStream_t, stream, enum cudaStreamCaptureStatus *,
         captureStatus_out, unsigned long long *, id_out, cudaGraph_t *, graph_out, const cudaGraphNode_t **,
         dependencies_out, const cudaGraphEdgeData **, edgeData_out, size_t *, numDependencies_out)
{
    cuuint64_t id = 0;
    CUresult result =
        D->cuStreamGetCaptureInfo(stream, (CUstreamCaptureStatus *)captureStatus_out, &id, graph_out, dependencies_out,
                                  (const CUgraphEdgeData **)edgeData_out, numDependencies_out);

    if (!result && id_out)
        *id_out = id;
    return rt_error_from(result);
}

RT_TWINS(RT_CONTEXT, 463, 464, _ptsz, cudaStreamUpdateCaptureDependencies, cudaStream_t, stream, cudaGraphNode_t *,
         dependencies, const cudaGraphEdgeData *, dependencyData, size_t, numDependencies, unsigned int, flags)
{
    return rt_error_from(D->cuStreamUpdateCaptureDependencies(
        stream, dependencies, (const CUgraphEdgeData *)dependencyData, numDependencies, flags));
}

RT_API(RT_INIT, 327, cudaThreadExchangeStreamCaptureMode, enum cudaStreamCaptureMode *, mode)
{
    return rt_error_from(D->cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode));
}

/* ---- attributes, which have the driver's layout ------------------------------------------------------------------ */

RT_TWINS(RT_CONTEXT, 341, 342, _ptsz, cudaStreamCopyAttributes, cudaStream_t, dst, cudaStream_t, src)
{
    return rt_error_from(D->cuStreamCopyAttributes(dst, src));
}

RT_TWINS(RT_CONTEXT, 343, 344, _ptsz, cudaStreamGetAttribute, cudaStream_t, hStream, CUstreamAttrID, attr,
         CUstreamAttrValue *, value_out)
{
    return rt_error_from(D->cuStreamGetAttribute(hStream, attr, value_out));
}

RT_TWINS(RT_CONTEXT, 345, 346, _ptsz, cudaStreamSetAttribute, cudaStream_t, hStream, CUstreamAttrID, attr,
         const CUstreamAttrValue *, value)
{
    return rt_error_from(D->cuStreamSetAttribute(hStream, attr, value));
}
