/* SPDX-License-Identifier: MIT
 * Runtime calls that look into graphs and change nodes and instantiations.  Called by programs. */
#include "cudart/runtime.h"

RT_API(RT_CONTEXT, 304, cudaGraphGetRootNodes, cudaGraph_t, graph, cudaGraphNode_t *, pRootNodes, size_t *,
       pNumRootNodes)
{
    return rt_error_from(D->cuGraphGetRootNodes(graph, pRootNodes, pNumRootNodes));
}

RT_API(RT_CONTEXT, 455, cudaGraphGetEdges, cudaGraph_t, graph, cudaGraphNode_t *, from, cudaGraphNode_t *, to,
       cudaGraphEdgeData *, edgeData, size_t *, numEdges)
{
    return rt_error_from(D->cuGraphGetEdges(graph, from, to, (CUgraphEdgeData *)edgeData, numEdges));
}

RT_API(RT_CONTEXT, 456, cudaGraphNodeGetDependencies, cudaGraphNode_t, node, cudaGraphNode_t *, pDependencies,
       cudaGraphEdgeData *, edgeData, size_t *, pNumDependencies)
{
    return rt_error_from(
        D->cuGraphNodeGetDependencies(node, pDependencies, (CUgraphEdgeData *)edgeData, pNumDependencies));
}

RT_API(RT_CONTEXT, 457, cudaGraphNodeGetDependentNodes, cudaGraphNode_t, node, cudaGraphNode_t *, pDependentNodes,
       cudaGraphEdgeData *, edgeData, size_t *, pNumDependentNodes)
{
    return rt_error_from(
        D->cuGraphNodeGetDependentNodes(node, pDependentNodes, (CUgraphEdgeData *)edgeData, pNumDependentNodes));
}

RT_API(RT_CONTEXT, 459, cudaGraphRemoveDependencies, cudaGraph_t, graph, const cudaGraphNode_t *, from,
       const cudaGraphNode_t *, to, const cudaGraphEdgeData *, edgeData, size_t, numDependencies)
{
    return rt_error_from(
        D->cuGraphRemoveDependencies(graph, from, to, (const CUgraphEdgeData *)edgeData, numDependencies));
}

RT_API(RT_CONTEXT, 302, cudaGraphNodeFindInClone, cudaGraphNode_t *, pNode, cudaGraphNode_t, originalNode, cudaGraph_t,
       clonedGraph)
{
    return rt_error_from(D->cuGraphNodeFindInClone(pNode, originalNode, clonedGraph));
}

RT_API(RT_CONTEXT, 299, cudaGraphChildGraphNodeGetGraph, cudaGraphNode_t, node, cudaGraph_t *, pGraph)
{
    return rt_error_from(D->cuGraphChildGraphNodeGetGraph(node, pGraph));
}

RT_API(RT_CONTEXT, 426, cudaGraphNodeSetEnabled, cudaGraphExec_t, hGraphExec, cudaGraphNode_t, hNode, unsigned int,
       isEnabled)
{
    return rt_error_from(D->cuGraphNodeSetEnabled(hGraphExec, hNode, isEnabled));
}

RT_API(RT_CONTEXT, 427, cudaGraphNodeGetEnabled, cudaGraphExec_t, hGraphExec, cudaGraphNode_t, hNode, unsigned int *,
       isEnabled)
{
    return rt_error_from(D->cuGraphNodeGetEnabled(hGraphExec, hNode, isEnabled));
}

/* ---- nodes of graphs --------------------------------------------------------------------------------------------- */

RT_API(RT_CONTEXT, 288, cudaGraphKernelNodeSetParams, cudaGraphNode_t, node, const struct cudaKernelNodeParams *,
       pNodeParams)
{
    CUDA_KERNEL_NODE_PARAMS params;
    cudaError_t status = rt_kernel_node(pNodeParams, &params);

    return status == cudaSuccess ? rt_error_from(D->cuGraphKernelNodeSetParams(node, &params)) : status;
}

RT_API(RT_CONTEXT, 338, cudaGraphKernelNodeCopyAttributes, cudaGraphNode_t, hDst, cudaGraphNode_t, hSrc)
{
    return rt_error_from(D->cuGraphKernelNodeCopyAttributes(hDst, hSrc));
}

RT_API(RT_CONTEXT, 297, cudaGraphHostNodeGetParams, cudaGraphNode_t, node, struct cudaHostNodeParams *, pNodeParams)
{
    return rt_error_from(D->cuGraphHostNodeGetParams(node, (CUDA_HOST_NODE_PARAMS *)pNodeParams));
}

RT_API(RT_CONTEXT, 321, cudaGraphHostNodeSetParams, cudaGraphNode_t, node, const struct cudaHostNodeParams *,
       pNodeParams)
{
    return rt_error_from(D->cuGraphHostNodeSetParams(node, (const CUDA_HOST_NODE_PARAMS *)pNodeParams));
}

RT_API(RT_CONTEXT, 363, cudaGraphEventRecordNodeGetEvent, cudaGraphNode_t, node, cudaEvent_t *, event_out)
{
    return rt_error_from(D->cuGraphEventRecordNodeGetEvent(node, event_out));
}

RT_API(RT_CONTEXT, 364, cudaGraphEventRecordNodeSetEvent, cudaGraphNode_t, node, cudaEvent_t, event)
{
    return rt_error_from(D->cuGraphEventRecordNodeSetEvent(node, event));
}

RT_API(RT_CONTEXT, 366, cudaGraphEventWaitNodeGetEvent, cudaGraphNode_t, node, cudaEvent_t *, event_out)
{
    return rt_error_from(D->cuGraphEventWaitNodeGetEvent(node, event_out));
}

RT_API(RT_CONTEXT, 367, cudaGraphEventWaitNodeSetEvent, cudaGraphNode_t, node, cudaEvent_t, event)
{
    return rt_error_from(D->cuGraphEventWaitNodeSetEvent(node, event));
}

/* ---- nodes of instantiations ------------------------------------------------------------------------------------- */

RT_API(RT_CONTEXT, 326, cudaGraphExecKernelNodeSetParams, cudaGraphExec_t, hGraphExec, cudaGraphNode_t, node,
       const struct cudaKernelNodeParams *, pNodeParams)
{
    CUDA_KERNEL_NODE_PARAMS params;
    cudaError_t status = rt_kernel_node(pNodeParams, &params);

    return status == cudaSuccess ? rt_error_from(D->cuGraphExecKernelNodeSetParams(hGraphExec, node, &params)) : status;
}

RT_API(RT_CONTEXT, 332, cudaGraphExecMemcpyNodeSetParams, cudaGraphExec_t, hGraphExec, cudaGraphNode_t, node,
       const struct cudaMemcpy3DParms *, pNodeParams)
{
    CUDA_MEMCPY3D copy;
    cudaError_t status = rt_copy3d(pNodeParams, &copy);

    return status == cudaSuccess
               ? rt_error_from(D->cuGraphExecMemcpyNodeSetParams(hGraphExec, node, &copy, rt_context_current()))
               : status;
}

RT_API(RT_CONTEXT, 333, cudaGraphExecMemsetNodeSetParams, cudaGraphExec_t, hGraphExec, cudaGraphNode_t, node,
       const struct cudaMemsetParams *, pNodeParams)
{
    CUDA_MEMSET_NODE_PARAMS params;
    cudaError_t status = rt_set_node(pNodeParams, &params);

    return status == cudaSuccess
               ? rt_error_from(D->cuGraphExecMemsetNodeSetParams(hGraphExec, node, &params, rt_context_current()))
               : status;
}

RT_API(RT_CONTEXT, 334, cudaGraphExecHostNodeSetParams, cudaGraphExec_t, hGraphExec, cudaGraphNode_t, node,
       const struct cudaHostNodeParams *, pNodeParams)
{
    return rt_error_from(D->cuGraphExecHostNodeSetParams(hGraphExec, node, (const CUDA_HOST_NODE_PARAMS *)pNodeParams));
}

RT_API(RT_CONTEXT, 361, cudaGraphExecChildGraphNodeSetParams, cudaGraphExec_t, hGraphExec, cudaGraphNode_t, node,
       cudaGraph_t, childGraph)
{
    return rt_error_from(D->cuGraphExecChildGraphNodeSetParams(hGraphExec, node, childGraph));
}

RT_API(RT_CONTEXT, 368, cudaGraphExecEventRecordNodeSetEvent, cudaGraphExec_t, hGraphExec, cudaGraphNode_t, hNode,
       cudaEvent_t, event)
{
    return rt_error_from(D->cuGraphExecEventRecordNodeSetEvent(hGraphExec, hNode, event));
}

RT_API(RT_CONTEXT, 369, cudaGraphExecEventWaitNodeSetEvent, cudaGraphExec_t, hGraphExec, cudaGraphNode_t, hNode,
       cudaEvent_t, event)
{
    return rt_error_from(D->cuGraphExecEventWaitNodeSetEvent(hGraphExec, hNode, event));
}
