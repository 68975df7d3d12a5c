/* SPDX-License-Identifier: MIT
 * Calls that CUDA 13 changed, in the form of CUDA 12, for libcudart.so.12.  That library has all
 * objects of sim/cudart too; forms.names renames there what is defined here again, to the name
 * that the newer form has in CUDA 12, or to a name that is not exported. */
/* The headers declare the forms of CUDA 13. */
#define cudaMemAdvise                       cudaMemAdvise_v2
#define cudaMemPrefetchAsync                cudaMemPrefetchAsync_v2
#define cudaGraphAddDependencies            cudaGraphAddDependencies_v2
#define cudaGraphAddNode                    cudaGraphAddNode_v2
#define cudaStreamGetCaptureInfo            cudaStreamGetCaptureInfo_v3
#define cudaStreamUpdateCaptureDependencies cudaStreamUpdateCaptureDependencies_v2
#define cudaPointerGetAttributes            rt_pointer_attributes_13
#include "cudart/runtime.h"
#undef cudaMemAdvise
#undef cudaMemPrefetchAsync
#undef cudaGraphAddDependencies
#undef cudaGraphAddNode
#undef cudaStreamGetCaptureInfo
#undef cudaStreamUpdateCaptureDependencies
#undef cudaPointerGetAttributes

/* ---- managed memory: a device where CUDA 13 has a location ------------------------------------------------------- */

static CUmemLocation rt_device_location(int device)
{
    return device == cudaCpuDeviceId ? (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}
                                     : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

RT_API(RT_CONTEXT, 254, cudaMemAdvise, const void *, devPtr, size_t, count, enum cudaMemoryAdvise, advice, int, device)
{
    return rt_error_from(
        D->cuMemAdvise(rt_device_pointer(devPtr), count, (CUmem_advise)advice, rt_device_location(device)));
}

RT_TWINS(RT_CONTEXT, 252, 253, _ptsz, cudaMemPrefetchAsync, const void *, devPtr, size_t, count, int, dstDevice,
         cudaStream_t, stream)
{
    return rt_error_from(
        D->cuMemPrefetchAsync(rt_device_pointer(devPtr), count, rt_device_location(dstDevice), 0, stream));
}

/* ---- graphs: no data of edges ------------------------------------------------------------------------------------ */

RT_API(RT_CONTEXT, 307, cudaGraphAddDependencies, cudaGraph_t, graph, const cudaGraphNode_t *, from,
       const cudaGraphNode_t *, to, size_t, numDependencies)
{
    return rt_error_from(D->cuGraphAddDependencies(graph, from, to, NULL, numDependencies));
}

RT_EXPORT cudaError_t cudaGraphAddNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                       const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                       struct cudaGraphNodeParams *nodeParams);
RT_EXPORT cudaError_t cudaGraphAddNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                       const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                       struct cudaGraphNodeParams *nodeParams)
{
    return cudaGraphAddNode_v2(pGraphNode, graph, pDependencies, NULL, numDependencies, nodeParams);
}

static cudaError_t rt_capture_info(const struct rt_driver *D, cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                   unsigned long long *id_out, cudaGraph_t *graph, const cudaGraphNode_t **dependencies,
                                   size_t *count)
{
    cuuint64_t id = 0;
    CUresult result =
        D->cuStreamGetCaptureInfo(stream, (CUstreamCaptureStatus *)status, &id, graph, dependencies, NULL, count);

    if (!result && id_out)
        *id_out = id;
    return rt_error_from(result);
}

RT_TWINS(RT_CONTEXT, 324, 325, _ptsz, cudaStreamGetCaptureInfo, cudaStream_t, stream, enum cudaStreamCaptureStatus *,
         captureStatus_out, unsigned long long *, id_out)
{
    return rt_capture_info(D, stream, captureStatus_out, id_out, NULL, NULL, NULL);
}

RT_TWINS(RT_CONTEXT, 409, 410, _ptsz, cudaStreamGetCaptureInfo_v2, cudaStream_t, stream, enum cudaStreamCaptureStatus *,
         captureStatus_out, unsigned long long *, id_out, cudaGraph_t *, graph_out, const cudaGraphNode_t **,
         dependencies_out, size_t *, numDependencies_out)
{
    return rt_capture_info(D, stream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out);
}

RT_TWINS(RT_CONTEXT, 411, 412, _ptsz, cudaStreamUpdateCaptureDependencies, cudaStream_t, stream, cudaGraphNode_t *,
         dependencies, size_t, numDependencies, unsigned int, flags)
{
    return rt_error_from(D->cuStreamUpdateCaptureDependencies(stream, dependencies, NULL, numDependencies, flags));
}

/* ---- shorter structs --------------------------------------------------------------------------------------------- */

struct rt_pointer_attributes_12 {
    enum cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};

RT_EXPORT cudaError_t cudaPointerGetAttributes(struct rt_pointer_attributes_12 *attributes, const void *ptr);
RT_EXPORT cudaError_t cudaPointerGetAttributes(struct rt_pointer_attributes_12 *attributes, const void *ptr)
{
    struct cudaPointerAttributes all;
    cudaError_t status = rt_pointer_attributes_13(attributes ? &all : NULL, ptr);

    if (status == cudaSuccess)
        *attributes = (struct rt_pointer_attributes_12){all.type, all.device, all.devicePointer, all.hostPointer};
    return status;
}
