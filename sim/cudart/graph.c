/* SPDX-License-Identifier: MIT
 * Runtime calls for graphs and their memory.  Called by programs.  Handles, allocation parameters,
 * edge data and results have the driver's layout; kernel, copy, memset and general node parameters
 * are converted here. */
#include "cudart/runtime.h"

RT_API(RT_CONTEXT, 286, cudaGraphCreate, cudaGraph_t *, pGraph, unsigned int, flags)
{
    return rt_error_from(D->cuGraphCreate(pGraph, flags));
}

RT_API(RT_CONTEXT, 314, cudaGraphDestroy, cudaGraph_t, graph)
{
    return rt_error_from(D->cuGraphDestroy(graph));
}

RT_API(RT_CONTEXT, 301, cudaGraphClone, cudaGraph_t *, pGraphClone, cudaGraph_t, originalGraph)
{
    return rt_error_from(D->cuGraphClone(pGraphClone, originalGraph));
}

RT_API(RT_CONTEXT, 309, cudaGraphDestroyNode, cudaGraphNode_t, node)
{
    return rt_error_from(D->cuGraphDestroyNode(node));
}

RT_API(RT_CONTEXT, 322, cudaGraphGetNodes, cudaGraph_t, graph, cudaGraphNode_t *, nodes, size_t *, numNodes)
{
    return rt_error_from(D->cuGraphGetNodes(graph, nodes, numNodes));
}

RT_API(RT_CONTEXT, 303, cudaGraphNodeGetType, cudaGraphNode_t, node, enum cudaGraphNodeType *, pType)
{
    return rt_error_from(D->cuGraphNodeGetType(node, (CUgraphNodeType *)pType));
}

RT_API(RT_CONTEXT, 458, cudaGraphAddDependencies, cudaGraph_t, graph, const cudaGraphNode_t *, from,
       const cudaGraphNode_t *, to, const cudaGraphEdgeData *, edgeData, size_t, numDependencies)
{
    return rt_error_from(
        D->cuGraphAddDependencies(graph, from, to, (const CUgraphEdgeData *)edgeData, numDependencies));
}

cudaError_t rt_kernel_node(const struct cudaKernelNodeParams *from, CUDA_KERNEL_NODE_PARAMS *to)
{
    CUfunction function;
    cudaError_t status = from ? rt_kernel_function(from->func, &function) : cudaErrorInvalidValue;

    if (status != cudaSuccess)
        return status;
    *to = (CUDA_KERNEL_NODE_PARAMS){
        .func = function,
        .gridDimX = from->gridDim.x,
        .gridDimY = from->gridDim.y,
        .gridDimZ = from->gridDim.z,
        .blockDimX = from->blockDim.x,
        .blockDimY = from->blockDim.y,
        .blockDimZ = from->blockDim.z,
        .sharedMemBytes = from->sharedMemBytes,
        .kernelParams = from->kernelParams,
        .extra = from->extra,
    };
    return cudaSuccess;
}

RT_API(RT_CONTEXT, 289, cudaGraphAddKernelNode, cudaGraphNode_t *, pGraphNode, cudaGraph_t, graph,
       const cudaGraphNode_t *, pDependencies, size_t, numDependencies, const struct cudaKernelNodeParams *,
       pNodeParams)
{
    CUDA_KERNEL_NODE_PARAMS node;
    cudaError_t status = rt_kernel_node(pNodeParams, &node);

    if (status != cudaSuccess)
        return status;
    return rt_error_from(D->cuGraphAddKernelNode(pGraphNode, graph, pDependencies, numDependencies, &node));
}

static cudaError_t rt_add_copy(const struct rt_driver *D, cudaGraphNode_t *node, cudaGraph_t graph,
                               const cudaGraphNode_t *dependencies, size_t count, const struct cudaMemcpy3DParms *from)
{
    CUDA_MEMCPY3D copy;
    cudaError_t status = rt_copy3d(from, &copy);

    if (status != cudaSuccess)
        return status;
    return rt_error_from(D->cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, rt_context_current()));
}

RT_API(RT_CONTEXT, 290, cudaGraphAddMemcpyNode, cudaGraphNode_t *, pGraphNode, cudaGraph_t, graph,
       const cudaGraphNode_t *, pDependencies, size_t, numDependencies, const struct cudaMemcpy3DParms *, pCopyParams)
{
    return rt_add_copy(D, pGraphNode, graph, pDependencies, numDependencies, pCopyParams);
}

RT_API(RT_CONTEXT, 352, cudaGraphAddMemcpyNode1D, cudaGraphNode_t *, pGraphNode, cudaGraph_t, graph,
       const cudaGraphNode_t *, pDependencies, size_t, numDependencies, void *, dst, const void *, src, size_t, count,
       enum cudaMemcpyKind, kind)
{
    struct cudaMemcpy3DParms copy = {
        .srcPtr = {(void *)(uintptr_t)src, count, count, 1},
        .dstPtr = {dst, count, count, 1},
        .extent = {count, 1, 1},
        .kind = kind,
    };

    return rt_add_copy(D, pGraphNode, graph, pDependencies, numDependencies, &copy);
}

cudaError_t rt_set_node(const struct cudaMemsetParams *from, CUDA_MEMSET_NODE_PARAMS *to)
{
    if (!from)
        return cudaErrorInvalidValue;
    *to = (CUDA_MEMSET_NODE_PARAMS){
        .dst = rt_device_pointer(from->dst),
        .pitch = from->pitch,
        .value = from->value,
        .elementSize = from->elementSize,
        .width = from->width,
        .height = from->height,
    };
    return cudaSuccess;
}

RT_API(RT_CONTEXT, 293, cudaGraphAddMemsetNode, cudaGraphNode_t *, pGraphNode, cudaGraph_t, graph,
       const cudaGraphNode_t *, pDependencies, size_t, numDependencies, const struct cudaMemsetParams *, pMemsetParams)
{
    CUDA_MEMSET_NODE_PARAMS node;
    cudaError_t status = rt_set_node(pMemsetParams, &node);

    if (status != cudaSuccess)
        return status;
    return rt_error_from(
        D->cuGraphAddMemsetNode(pGraphNode, graph, pDependencies, numDependencies, &node, rt_context_current()));
}

RT_API(RT_CONTEXT, 296, cudaGraphAddHostNode, cudaGraphNode_t *, pGraphNode, cudaGraph_t, graph,
       const cudaGraphNode_t *, pDependencies, size_t, numDependencies, const struct cudaHostNodeParams *, pNodeParams)
{
    return rt_error_from(D->cuGraphAddHostNode(pGraphNode, graph, pDependencies, numDependencies,
                                               (const CUDA_HOST_NODE_PARAMS *)pNodeParams));
}

RT_API(RT_CONTEXT, 298, cudaGraphAddChildGraphNode, cudaGraphNode_t *, pGraphNode, cudaGraph_t, graph,
       const cudaGraphNode_t *, pDependencies, size_t, numDependencies, cudaGraph_t, childGraph)
{
    return rt_error_from(D->cuGraphAddChildGraphNode(pGraphNode, graph, pDependencies, numDependencies, childGraph));
}

RT_API(RT_CONTEXT, 300, cudaGraphAddEmptyNode, cudaGraphNode_t *, pGraphNode, cudaGraph_t, graph,
       const cudaGraphNode_t *, pDependencies, size_t, numDependencies)
{
    return rt_error_from(D->cuGraphAddEmptyNode(pGraphNode, graph, pDependencies, numDependencies));
}

RT_API(RT_CONTEXT, 362, cudaGraphAddEventRecordNode, cudaGraphNode_t *, pGraphNode, cudaGraph_t, graph,
       const cudaGraphNode_t *, pDependencies, size_t, numDependencies, cudaEvent_t, event)
{
    return rt_error_from(D->cuGraphAddEventRecordNode(pGraphNode, graph, pDependencies, numDependencies, event));
}

RT_API(RT_CONTEXT, 365, cudaGraphAddEventWaitNode, cudaGraphNode_t *, pGraphNode, cudaGraph_t, graph,
       const cudaGraphNode_t *, pDependencies, size_t, numDependencies, cudaEvent_t, event)
{
    return rt_error_from(D->cuGraphAddEventWaitNode(pGraphNode, graph, pDependencies, numDependencies, event));
}

RT_API(RT_CONTEXT, 419, cudaGraphAddMemAllocNode, cudaGraphNode_t *, pGraphNode, cudaGraph_t, graph,
       const cudaGraphNode_t *, pDependencies, size_t, numDependencies, struct cudaMemAllocNodeParams *, nodeParams)
{
    return rt_error_from(D->cuGraphAddMemAllocNode(pGraphNode, graph, pDependencies, numDependencies,
                                                   (CUDA_MEM_ALLOC_NODE_PARAMS *)nodeParams));
}

RT_API(RT_CONTEXT, 420, cudaGraphMemAllocNodeGetParams, cudaGraphNode_t, node, struct cudaMemAllocNodeParams *,
       params_out)
{
    return rt_error_from(D->cuGraphMemAllocNodeGetParams(node, (CUDA_MEM_ALLOC_NODE_PARAMS *)params_out));
}

RT_API(RT_CONTEXT, 421, cudaGraphAddMemFreeNode, cudaGraphNode_t *, pGraphNode, cudaGraph_t, graph,
       const cudaGraphNode_t *, pDependencies, size_t, numDependencies, void *, dptr)
{
    return rt_error_from(
        D->cuGraphAddMemFreeNode(pGraphNode, graph, pDependencies, numDependencies, rt_device_pointer(dptr)));
}

RT_API(RT_CONTEXT, 422, cudaGraphMemFreeNodeGetParams, cudaGraphNode_t, node, void *, dptr_out)
{
    return rt_error_from(D->cuGraphMemFreeNodeGetParams(node, (CUdeviceptr *)dptr_out));
}

/* The node kinds whose parameters differ between the APIs; all others are copied as they are, since
 * the driver's structs begin with the runtime's fields and go on with a context, where 0 means the
 * current one. */
static cudaError_t rt_node_from(const struct cudaGraphNodeParams *from, CUgraphNodeParams *to)
{
    CUfunction function;
    cudaError_t status = cudaSuccess;

    *to = (CUgraphNodeParams){.type = (CUgraphNodeType)from->type};
    switch (from->type) {
    case cudaGraphNodeTypeKernel:
        status = rt_kernel_function(from->kernel.func, &function);
        memcpy(&to->kernel, &from->kernel, sizeof from->kernel);
        to->kernel.func = status == cudaSuccess ? function : NULL;
        break;
    case cudaGraphNodeTypeMemcpy:
        to->memcpy.flags = from->memcpy.flags;
        status = rt_copy3d(&from->memcpy.copyParams, &to->memcpy.copyParams);
        break;
    default:
        memcpy(to->reserved1, from->reserved1, sizeof to->reserved1);
    }
    return status;
}

RT_API(RT_CONTEXT, 460, cudaGraphAddNode, cudaGraphNode_t *, pGraphNode, cudaGraph_t, graph, const cudaGraphNode_t *,
       pDependencies, const cudaGraphEdgeData *, dependencyData, size_t, numDependencies, struct cudaGraphNodeParams *,
       nodeParams)
{
    CUgraphNodeParams node;
    CUresult result;
    cudaError_t status = nodeParams ? rt_node_from(nodeParams, &node) : cudaErrorInvalidValue;

    if (status != cudaSuccess)
        return status;
    result = D->cuGraphAddNode(pGraphNode, graph, pDependencies, (const CUgraphEdgeData *)dependencyData,
                               numDependencies, &node);
    /* The one output that lies in the parameters. */
    if (!result && nodeParams->type == cudaGraphNodeTypeMemAlloc)
        nodeParams->alloc.dptr = rt_pointer(node.alloc.dptr);
    return rt_error_from(result);
}

RT_API(RT_CONTEXT, 443, cudaGraphInstantiate, cudaGraphExec_t *, pGraphExec, cudaGraph_t, graph, unsigned long long,
       flags)
{
    return rt_error_from(D->cuGraphInstantiateWithFlags(pGraphExec, graph, flags));
}

RT_API(RT_CONTEXT, 418, cudaGraphInstantiateWithFlags, cudaGraphExec_t *, pGraphExec, cudaGraph_t, graph,
       unsigned long long, flags)
{
    return rt_error_from(D->cuGraphInstantiateWithFlags(pGraphExec, graph, flags));
}

RT_TWINS(RT_CONTEXT, 436, 437, _ptsz, cudaGraphInstantiateWithParams, cudaGraphExec_t *, pGraphExec, cudaGraph_t, graph,
         cudaGraphInstantiateParams *, instantiateParams)
{
    return rt_error_from(
        D->cuGraphInstantiateWithParams(pGraphExec, graph, (CUDA_GRAPH_INSTANTIATE_PARAMS *)instantiateParams));
}

RT_API(RT_CONTEXT, 438, cudaGraphExecGetFlags, cudaGraphExec_t, graphExec, unsigned long long *, flags)
{
    cuuint64_t value = 0;
    CUresult result = D->cuGraphExecGetFlags(graphExec, &value);

    if (!flags)
        return cudaErrorInvalidValue;
    *flags = value;
    return rt_error_from(result);
}

RT_API(RT_CONTEXT, 335, cudaGraphExecUpdate, cudaGraphExec_t, hGraphExec, cudaGraph_t, hGraph,
       cudaGraphExecUpdateResultInfo *, resultInfo)
{
    return rt_error_from(D->cuGraphExecUpdate(hGraphExec, hGraph, (CUgraphExecUpdateResultInfo *)resultInfo));
}

RT_API(RT_CONTEXT, 313, cudaGraphExecDestroy, cudaGraphExec_t, graphExec)
{
    return rt_error_from(D->cuGraphExecDestroy(graphExec));
}

RT_TWINS(RT_CONTEXT, 348, 349, _ptsz, cudaGraphUpload, cudaGraphExec_t, graphExec, cudaStream_t, stream)
{
    return rt_error_from(D->cuGraphUpload(graphExec, stream));
}

RT_TWINS(RT_CONTEXT, 311, 312, _ptsz, cudaGraphLaunch, cudaGraphExec_t, graphExec, cudaStream_t, stream)
{
    return rt_error_from(D->cuGraphLaunch(graphExec, stream));
}

RT_API(RT_INIT, 423, cudaDeviceGraphMemTrim, int, device)
{
    return rt_error_from(D->cuDeviceGraphMemTrim(device));
}

RT_API(RT_INIT, 424, cudaDeviceGetGraphMemAttribute, int, device, enum cudaGraphMemAttributeType, attr, void *, value)
{
    return rt_error_from(D->cuDeviceGetGraphMemAttribute(device, (CUgraphMem_attribute)attr, value));
}

RT_API(RT_INIT, 425, cudaDeviceSetGraphMemAttribute, int, device, enum cudaGraphMemAttributeType, attr, void *, value)
{
    return rt_error_from(D->cuDeviceSetGraphMemAttribute(device, (CUgraphMem_attribute)attr, value));
}

/* The simulated driver does not draw graphs. */
RT_API(RT_CONTEXT, 408, cudaGraphDebugDotPrint, cudaGraph_t, graph, const char *, path, unsigned int, flags)
{
    (void)graph, (void)path, (void)flags;
    return cudaErrorNotSupported;
}
