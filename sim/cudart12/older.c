/* SPDX-License-Identifier: MIT
 * Calls of CUDA 12 whose newer form has the name of CUDA 13 (forms.names), and calls that CUDA 13
 * does not have any more. */
/* The headers declare the forms of CUDA 13. */
#define cudaEventElapsedTime cudaEventElapsedTime_v2
#define cudaGraphGetEdges    cudaGraphGetEdges_v2
#define cudaMemcpyBatchAsync rt_memcpy_batch_13
#include "cudart/runtime.h"
#undef cudaEventElapsedTime
#undef cudaGraphGetEdges
#undef cudaMemcpyBatchAsync

RT_API(RT_CONTEXT, 323, cudaGraphGetEdges, cudaGraph_t, graph, cudaGraphNode_t *, from, cudaGraphNode_t *, to, size_t *,
       numEdges)
{
    return rt_error_from(D->cuGraphGetEdges(graph, from, to, NULL, numEdges));
}

RT_API(RT_CONTEXT, 305, cudaGraphNodeGetDependencies, cudaGraphNode_t, node, cudaGraphNode_t *, pDependencies, size_t *,
       pNumDependencies)
{
    return rt_error_from(D->cuGraphNodeGetDependencies(node, pDependencies, NULL, pNumDependencies));
}

RT_API(RT_CONTEXT, 306, cudaGraphNodeGetDependentNodes, cudaGraphNode_t, node, cudaGraphNode_t *, pDependentNodes,
       size_t *, pNumDependentNodes)
{
    return rt_error_from(D->cuGraphNodeGetDependentNodes(node, pDependentNodes, NULL, pNumDependentNodes));
}

RT_API(RT_CONTEXT, 308, cudaGraphRemoveDependencies, cudaGraph_t, graph, const cudaGraphNode_t *, from,
       const cudaGraphNode_t *, to, size_t, numDependencies)
{
    return rt_error_from(D->cuGraphRemoveDependencies(graph, from, to, NULL, numDependencies));
}

/* failIdx: the largest number if the error is of no single copy, which is all that is known here. */
RT_TWINS(RT_CONTEXT, 482, 483, _ptsz, cudaMemcpyBatchAsync, void **, dsts, void **, srcs, size_t *, sizes, size_t,
         count, struct cudaMemcpyAttributes *, attrs, size_t *, attrsIdxs, size_t, numAttrs, size_t *, failIdx,
         cudaStream_t, stream)
{
    CUresult result = D->cuMemcpyBatchAsync((CUdeviceptr *)dsts, (CUdeviceptr *)srcs, sizes, count,
                                            (CUmemcpyAttributes *)attrs, attrsIdxs, numAttrs, stream);

    if (result && failIdx)
        *failIdx = SIZE_MAX;
    return rt_error_from(result);
}

/* Params of the first form are shorter; none of their fields is read. */
RT_TWINS(RT_CONTEXT, 279, 280, _ptsz, cudaSignalExternalSemaphoresAsync, const cudaExternalSemaphore_t *, extSemArray,
         const void *, paramsArray, unsigned int, numExtSems, cudaStream_t, stream)
{
    return rt_error_from(D->cuSignalExternalSemaphoresAsync(extSemArray, paramsArray, numExtSems, stream));
}

RT_TWINS(RT_CONTEXT, 281, 282, _ptsz, cudaWaitExternalSemaphoresAsync, const cudaExternalSemaphore_t *, extSemArray,
         const void *, paramsArray, unsigned int, numExtSems, cudaStream_t, stream)
{
    return rt_error_from(D->cuWaitExternalSemaphoresAsync(extSemArray, paramsArray, numExtSems, stream));
}

RT_API(RT_CONTEXT, 139, cudaEventElapsedTime, float *, ms, cudaEvent_t, start, cudaEvent_t, end)
{
    return rt_error_from(D->cuEventElapsedTime(ms, start, end));
}

/* ---- the names before CUDA 4 ------------------------------------------------------------------------------------- */

RT_EXPORT cudaError_t cudaThreadExit(void);
RT_API0(RT_INIT, 123, cudaThreadExit)
{
    return rt_device_reset();
}

RT_EXPORT cudaError_t cudaThreadSynchronize(void);
RT_API0(RT_CONTEXT, 126, cudaThreadSynchronize)
{
    return rt_error_from(D->cuCtxSynchronize());
}

RT_API(RT_CONTEXT, 127, cudaThreadGetLimit, size_t *, pValue, enum cudaLimit, limit)
{
    return rt_error_from(D->cuCtxGetLimit(pValue, (CUlimit)limit));
}

RT_API(RT_CONTEXT, 128, cudaThreadSetLimit, enum cudaLimit, limit, size_t, value)
{
    return rt_error_from(D->cuCtxSetLimit((CUlimit)limit, value));
}

RT_API(RT_CONTEXT, 150, cudaThreadGetCacheConfig, int *, pCacheConfig)
{
    return rt_error_from(D->cuCtxGetCacheConfig((CUfunc_cache *)pCacheConfig));
}

RT_API(RT_CONTEXT, 146, cudaThreadSetCacheConfig, int, cacheConfig)
{
    return rt_error_from(D->cuCtxSetCacheConfig((CUfunc_cache)cacheConfig));
}
