/* SPDX-License-Identifier: MIT
 * Entry points of the parameters of graph nodes (graphparams.c). */
#include "cuda/graph.h"

#include <string.h>

#define SIM_ATTRIBUTES (CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING + 1)

/* ---- get and set ------------------------------------------------------------------------------------------------- */

static CUresult sim_params_of(CUgraphNode h, CUgraphNodeType type, const void *place, struct sim_node **out)
{
    *out = sim_node_of(h);
    return *out && (*out)->params.type == type && place ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The node of a call: that of the graph, or the exec's copy of it. */
static CUresult sim_params_place(CUgraphExec exec, bool in_exec, CUgraphNode h, struct sim_node **out)
{
    const struct sim_exec *e = in_exec ? sim_exec_of(exec) : NULL;

    *out = sim_node_of(h);
    if (!*out || (in_exec && !e))
        return CUDA_ERROR_INVALID_VALUE;
    if (in_exec)
        *out = sim_node_alike(e->graph, (*out)->id);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Memory nodes never change; a child graph changes through its own calls. */
static CUresult sim_params_set(CUgraphExec exec, bool in_exec, CUgraphNode h, const CUgraphNodeParams *params)
{
    struct sim_node *n;
    CUresult r = sim_params_place(exec, in_exec, h, &n);

    if (r)
        return r;
    if (n->params.type != params->type || n->allocation || n->child)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_params_take(n, params);
}

/* The older struct is the newer one without its last two members. */
static CUgraphNodeParams sim_kernel_params(const CUDA_KERNEL_NODE_PARAMS_v1 *from)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

    memcpy(&params.kernel, from, sizeof *from);
    return params;
}

static CUgraphNodeParams sim_kernel_params_v2(const CUDA_KERNEL_NODE_PARAMS *from)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

    memcpy(&params.kernel, from, sizeof *from);
    return params;
}

static CUgraphNodeParams sim_set_params(const CUDA_MEMSET_NODE_PARAMS *from, CUcontext context)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};

    memcpy(&params.memset, from, sizeof *from);
    params.memset.ctx = context;
    return params;
}

SIM_API2(503, 10000, cuGraphKernelNodeGetParams, CUgraphNode, hNode, CUDA_KERNEL_NODE_PARAMS_v1 *, nodeParams)
{
    struct sim_node *n;
    CUresult r = sim_params_of(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, &n);

    if (!r)
        memcpy(nodeParams, &n->params.kernel, sizeof *nodeParams);
    return r;
}

SIM_API2(690, 12000, cuGraphKernelNodeGetParams_v2, CUgraphNode, hNode, CUDA_KERNEL_NODE_PARAMS *, nodeParams)
{
    struct sim_node *n;
    CUresult r = sim_params_of(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, &n);

    if (!r)
        memcpy(nodeParams, &n->params.kernel, sizeof *nodeParams);
    return r;
}

SIM_API2(521, 10000, cuGraphKernelNodeSetParams, CUgraphNode, hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *, nodeParams)
{
    CUgraphNodeParams params;

    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    params = sim_kernel_params(nodeParams);
    return sim_params_set(NULL, false, hNode, &params);
}

SIM_API2(691, 12000, cuGraphKernelNodeSetParams_v2, CUgraphNode, hNode, const CUDA_KERNEL_NODE_PARAMS *, nodeParams)
{
    CUgraphNodeParams params;

    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    params = sim_kernel_params_v2(nodeParams);
    return sim_params_set(NULL, false, hNode, &params);
}

SIM_API3(538, 10010, cuGraphExecKernelNodeSetParams, CUgraphExec, hGraphExec, CUgraphNode, hNode,
         const CUDA_KERNEL_NODE_PARAMS_v1 *, nodeParams)
{
    CUgraphNodeParams params;

    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    params = sim_kernel_params(nodeParams);
    return sim_params_set(hGraphExec, true, hNode, &params);
}

SIM_API3(692, 12000, cuGraphExecKernelNodeSetParams_v2, CUgraphExec, hGraphExec, CUgraphNode, hNode,
         const CUDA_KERNEL_NODE_PARAMS *, nodeParams)
{
    CUgraphNodeParams params;

    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    params = sim_kernel_params_v2(nodeParams);
    return sim_params_set(hGraphExec, true, hNode, &params);
}

SIM_API2(505, 10000, cuGraphMemcpyNodeGetParams, CUgraphNode, hNode, CUDA_MEMCPY3D *, nodeParams)
{
    struct sim_node *n;
    CUresult r = sim_params_of(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams, &n);

    if (!r)
        *nodeParams = n->params.memcpy.copyParams;
    return r;
}

/* context NULL: the node keeps its own. */
static CUresult sim_copy_set(CUgraphExec exec, bool in_exec, CUgraphNode h, const CUDA_MEMCPY3D *copy, CUcontext ctx)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    const struct sim_node *n = sim_node_of(h);

    if (!copy || !n || (ctx && !sim_context_find(ctx)))
        return CUDA_ERROR_INVALID_VALUE;
    params.memcpy.copyCtx = ctx ? ctx : n->params.memcpy.copyCtx;
    params.memcpy.copyParams = *copy;
    return sim_params_set(exec, in_exec, h, &params);
}

SIM_API2(520, 10000, cuGraphMemcpyNodeSetParams, CUgraphNode, hNode, const CUDA_MEMCPY3D *, nodeParams)
{
    return sim_copy_set(NULL, false, hNode, nodeParams, NULL);
}

SIM_API4(562, 10020, cuGraphExecMemcpyNodeSetParams, CUgraphExec, hGraphExec, CUgraphNode, hNode, const CUDA_MEMCPY3D *,
         copyParams, CUcontext, ctx)
{
    return sim_copy_set(hGraphExec, true, hNode, copyParams, ctx);
}

SIM_API2(507, 10000, cuGraphMemsetNodeGetParams, CUgraphNode, hNode, CUDA_MEMSET_NODE_PARAMS *, nodeParams)
{
    struct sim_node *n;
    CUresult r = sim_params_of(hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams, &n);

    if (!r)
        memcpy(nodeParams, &n->params.memset, sizeof *nodeParams);
    return r;
}

static CUresult sim_set_set(CUgraphExec exec, bool in_exec, CUgraphNode h, const CUDA_MEMSET_NODE_PARAMS *set,
                            CUcontext ctx)
{
    const struct sim_node *n = sim_node_of(h);
    CUgraphNodeParams params;

    if (!set || !n || (ctx && !sim_context_find(ctx)))
        return CUDA_ERROR_INVALID_VALUE;
    params = sim_set_params(set, ctx ? ctx : n->params.memset.ctx);
    return sim_params_set(exec, in_exec, h, &params);
}

SIM_API2(508, 10000, cuGraphMemsetNodeSetParams, CUgraphNode, hNode, const CUDA_MEMSET_NODE_PARAMS *, nodeParams)
{
    return sim_set_set(NULL, false, hNode, nodeParams, NULL);
}

SIM_API4(563, 10020, cuGraphExecMemsetNodeSetParams, CUgraphExec, hGraphExec, CUgraphNode, hNode,
         const CUDA_MEMSET_NODE_PARAMS *, memsetParams, CUcontext, ctx)
{
    return sim_set_set(hGraphExec, true, hNode, memsetParams, ctx);
}

SIM_API2(531, 10000, cuGraphHostNodeGetParams, CUgraphNode, hNode, CUDA_HOST_NODE_PARAMS *, nodeParams)
{
    struct sim_node *n;
    CUresult r = sim_params_of(hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams, &n);

    if (!r)
        *nodeParams = (CUDA_HOST_NODE_PARAMS){n->params.host.fn, n->params.host.userData};
    return r;
}

static CUresult sim_host_set(CUgraphExec exec, bool in_exec, CUgraphNode h, const CUDA_HOST_NODE_PARAMS *host)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};

    if (!host)
        return CUDA_ERROR_INVALID_VALUE;
    params.host.fn = host->fn;
    params.host.userData = host->userData;
    return sim_params_set(exec, in_exec, h, &params);
}

SIM_API2(533, 10000, cuGraphHostNodeSetParams, CUgraphNode, hNode, const CUDA_HOST_NODE_PARAMS *, nodeParams)
{
    return sim_host_set(NULL, false, hNode, nodeParams);
}

SIM_API3(564, 10020, cuGraphExecHostNodeSetParams, CUgraphExec, hGraphExec, CUgraphNode, hNode,
         const CUDA_HOST_NODE_PARAMS *, nodeParams)
{
    return sim_host_set(hGraphExec, true, hNode, nodeParams);
}

static CUresult sim_event_get(CUgraphNode h, CUgraphNodeType type, CUevent *out)
{
    struct sim_node *n;
    CUresult r = sim_params_of(h, type, out, &n);

    if (!r)
        *out = n->params.eventWait.event;
    return r;
}

static CUresult sim_event_set(CUgraphExec exec, bool in_exec, CUgraphNode h, CUgraphNodeType type, CUevent event)
{
    CUgraphNodeParams params = {.type = type};

    params.eventWait.event = event;
    return sim_params_set(exec, in_exec, h, &params);
}

SIM_API2(591, 11010, cuGraphEventRecordNodeGetEvent, CUgraphNode, hNode, CUevent *, event_out)
{
    return sim_event_get(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}

SIM_API2(592, 11010, cuGraphEventWaitNodeGetEvent, CUgraphNode, hNode, CUevent *, event_out)
{
    return sim_event_get(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}

SIM_API2(593, 11010, cuGraphEventRecordNodeSetEvent, CUgraphNode, hNode, CUevent, event)
{
    return sim_event_set(NULL, false, hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

SIM_API2(594, 11010, cuGraphEventWaitNodeSetEvent, CUgraphNode, hNode, CUevent, event)
{
    return sim_event_set(NULL, false, hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

SIM_API3(595, 11010, cuGraphExecEventRecordNodeSetEvent, CUgraphExec, hGraphExec, CUgraphNode, hNode, CUevent, event)
{
    return sim_event_set(hGraphExec, true, hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

SIM_API3(596, 11010, cuGraphExecEventWaitNodeSetEvent, CUgraphExec, hGraphExec, CUgraphNode, hNode, CUevent, event)
{
    return sim_event_set(hGraphExec, true, hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

SIM_API2(648, 11040, cuGraphMemAllocNodeGetParams, CUgraphNode, hNode, CUDA_MEM_ALLOC_NODE_PARAMS *, params_out)
{
    struct sim_node *n;
    CUresult r = sim_params_of(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params_out, &n);

    if (!r)
        memcpy(params_out, &n->params.alloc, sizeof *params_out);
    return r;
}

SIM_API2(649, 11040, cuGraphMemFreeNodeGetParams, CUgraphNode, hNode, CUdeviceptr *, dptr_out)
{
    struct sim_node *n;
    CUresult r = sim_params_of(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, dptr_out, &n);

    if (!r)
        *dptr_out = n->params.free.dptr;
    return r;
}

SIM_API2(713, 12020, cuGraphNodeSetParams, CUgraphNode, hNode, CUgraphNodeParams *, nodeParams)
{
    return nodeParams ? sim_params_set(NULL, false, hNode, nodeParams) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API2(825, 13040, cuGraphNodeSetParams_v2, CUgraphNode, hNode, CUgraphNodeParams *, nodeParams)
{
    return nodeParams ? sim_params_set(NULL, false, hNode, nodeParams) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API3(714, 12020, cuGraphExecNodeSetParams, CUgraphExec, hGraphExec, CUgraphNode, hNode, CUgraphNodeParams *,
         nodeParams)
{
    return nodeParams ? sim_params_set(hGraphExec, true, hNode, nodeParams) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- kernel attributes: kept, of no effect ----------------------------------------------------------------------- */

static CUresult sim_attributes_of(CUgraphNode h, CUkernelNodeAttrID attr, struct sim_node **out)
{
    CUresult r = sim_params_of(h, CU_GRAPH_NODE_TYPE_KERNEL, h, out);

    if (r || (unsigned)attr >= SIM_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    if (!(*out)->attributes) {
        (*out)->attributes = sim_grow(NULL, SIM_ATTRIBUTES * sizeof(CUlaunchAttributeValue));
        memset((*out)->attributes, 0, SIM_ATTRIBUTES * sizeof(CUlaunchAttributeValue));
    }
    return CUDA_SUCCESS;
}

SIM_API2(569, 11000, cuGraphKernelNodeCopyAttributes, CUgraphNode, dst, CUgraphNode, src)
{
    struct sim_node *to, *from;
    CUresult r = sim_attributes_of(dst, CU_LAUNCH_ATTRIBUTE_IGNORE, &to);

    if (!r)
        r = sim_attributes_of(src, CU_LAUNCH_ATTRIBUTE_IGNORE, &from);
    if (!r)
        memmove(to->attributes, from->attributes, SIM_ATTRIBUTES * sizeof(CUlaunchAttributeValue));
    return r;
}

SIM_API3(570, 11000, cuGraphKernelNodeGetAttribute, CUgraphNode, hNode, CUkernelNodeAttrID, attr,
         CUkernelNodeAttrValue *, value_out)
{
    struct sim_node *n;
    CUresult r = sim_attributes_of(hNode, attr, &n);

    if (r || !value_out)
        return CUDA_ERROR_INVALID_VALUE;
    *value_out = n->attributes[attr];
    return CUDA_SUCCESS;
}

SIM_API3(571, 11000, cuGraphKernelNodeSetAttribute, CUgraphNode, hNode, CUkernelNodeAttrID, attr,
         const CUkernelNodeAttrValue *, value)
{
    struct sim_node *n;
    CUresult r = sim_attributes_of(hNode, attr, &n);

    if (r || !value)
        return CUDA_ERROR_INVALID_VALUE;
    n->attributes[attr] = *value;
    return CUDA_SUCCESS;
}
