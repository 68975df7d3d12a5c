/* SPDX-License-Identifier: MIT
 * Graphs as programs build them: create, add nodes and edges, query, clone, destroy.  Only entry
 * points. */
#include <string.h>

#include "cuda/graph.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */
SIM_API2(501, 10000, cuGraphCreate, CUgraph *, phGraph, unsigned int, flags)
{
    struct sim_graph *g;

    if (!phGraph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    g = sim_graph_make(true);
    *phGraph = (CUgraph)g;
    sim_graph_event(SIM_TOOL_GRAPH_CREATED, (struct sim_tool_graph){.graph = *phGraph});
    return CUDA_SUCCESS;
}

/* A child graph belongs to its node, a capture's to the capture until it ends. */
SIM_API1(517, 10000, cuGraphDestroy, CUgraph, hGraph)
{
    struct sim_graph *g = sim_graph_of(hGraph);

    if (!g || g->parent || g->capture)
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_end(g);
    return CUDA_SUCCESS;
}

static void sim_clone_events(struct sim_graph *clone, CUgraph original)
{
    sim_graph_event(SIM_TOOL_GRAPH_CLONED,
                    (struct sim_tool_graph){.graph = (CUgraph)clone, .original_graph = original});
    if (!sim_tool_wants(SIM_TOOL_RESOURCE, SIM_TOOL_GRAPHNODE_CLONED))
        return;
    for (struct sim_node *n = clone->first; n; n = n->next) {
        const struct sim_graph *g = sim_graph_of(original); /* the callback drops the lock */
        struct sim_node *from = g ? g->first : NULL;

        while (from && from->id != n->original)
            from = from->next;
        sim_graph_event(SIM_TOOL_GRAPHNODE_CLONED, (struct sim_tool_graph){.graph = (CUgraph)clone,
                                                                           .original_graph = original,
                                                                           .node = (CUgraphNode)n,
                                                                           .original_node = (CUgraphNode)from,
                                                                           .node_type = n->params.type});
    }
}

SIM_API2(523, 10000, cuGraphClone, CUgraph *, phGraphClone, CUgraph, originalGraph)
{
    struct sim_graph *g = sim_graph_of(originalGraph), *clone;

    if (!phGraphClone || !g || sim_graph_has_memory(g))
        return CUDA_ERROR_INVALID_VALUE;
    clone = sim_graph_copy(g, true);
    *phGraphClone = (CUgraph)clone;
    sim_clone_events(clone, originalGraph);
    return CUDA_SUCCESS;
}

SIM_API3(524, 10000, cuGraphNodeFindInClone, CUgraphNode *, phNode, CUgraphNode, hOriginalNode, CUgraph, hClonedGraph)
{
    const struct sim_node *n = sim_node_of(hOriginalNode);
    const struct sim_graph *g = sim_graph_of(hClonedGraph);

    if (!phNode || !n || !g)
        return CUDA_ERROR_INVALID_VALUE;
    *phNode = (CUgraphNode)sim_node_alike(g, n->id);
    return *phNode ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */
static CUresult sim_graph_add(CUgraphNode *out, CUgraph h, const CUgraphNode *dependencies, size_t count,
                              CUgraphNodeParams *params)
{
    struct sim_graph *g = sim_graph_of(h);
    struct sim_node *n;
    CUresult r;

    if (!out || !g || !params)
        return CUDA_ERROR_INVALID_VALUE;
    r = sim_node_add(g, dependencies, count, params, &n);
    if (r)
        return r;
    *out = (CUgraphNode)n;
    sim_node_created(n);
    return CUDA_SUCCESS;
}

/* Ports and programmatic edges order parts of kernels, which run no code here. */
static CUresult sim_edges_plain(const CUgraphEdgeData *data, size_t count)
{
    static const CUgraphEdgeData plain;

    for (size_t i = 0; data && i < count; i++)
        if (memcmp(&data[i], &plain, sizeof plain))
            return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

SIM_API5(712, 12020, cuGraphAddNode, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *, dependencies,
         size_t, numDependencies, CUgraphNodeParams *, nodeParams)
{
    return sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

SIM_API6(723, 12030, cuGraphAddNode_v2, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *, dependencies,
         const CUgraphEdgeData *, dependencyData, size_t, numDependencies, CUgraphNodeParams *, nodeParams)
{
    CUresult r = sim_edges_plain(dependencyData, numDependencies);

    return r ? r : sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

/* CUDA 13.4: other checks of a kernel node's context. */
SIM_API6(824, 13040, cuGraphAddNode_v3, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *, dependencies,
         const CUgraphEdgeData *, dependencyData, size_t, numDependencies, CUgraphNodeParams *, nodeParams)
{
    CUresult r = sim_edges_plain(dependencyData, numDependencies);

    return r ? r : sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

SIM_API5(502, 10000, cuGraphAddKernelNode, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *,
         dependencies, size_t, numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *, nodeParams)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.kernel, nodeParams, sizeof *nodeParams);
    return sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

SIM_API5(689, 12000, cuGraphAddKernelNode_v2, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *,
         dependencies, size_t, numDependencies, const CUDA_KERNEL_NODE_PARAMS *, nodeParams)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.kernel, nodeParams, sizeof *nodeParams);
    return sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

SIM_API6(504, 10000, cuGraphAddMemcpyNode, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *,
         dependencies, size_t, numDependencies, const CUDA_MEMCPY3D *, copyParams, CUcontext, ctx)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};

    if (!copyParams || !sim_context_find(ctx))
        return CUDA_ERROR_INVALID_VALUE;
    params.memcpy.copyCtx = ctx;
    params.memcpy.copyParams = *copyParams;
    return sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

SIM_API6(506, 10000, cuGraphAddMemsetNode, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *,
         dependencies, size_t, numDependencies, const CUDA_MEMSET_NODE_PARAMS *, memsetParams, CUcontext, ctx)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};

    if (!memsetParams || !sim_context_find(ctx))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.memset, memsetParams, sizeof *memsetParams);
    params.memset.ctx = ctx;
    return sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

SIM_API5(530, 10000, cuGraphAddHostNode, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *, dependencies,
         size_t, numDependencies, const CUDA_HOST_NODE_PARAMS *, nodeParams)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};

    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.host, nodeParams, sizeof *nodeParams);
    return sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

SIM_API5(525, 10000, cuGraphAddChildGraphNode, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *,
         dependencies, size_t, numDependencies, CUgraph, childGraph)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = childGraph}};

    return sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

SIM_API2(529, 10000, cuGraphChildGraphNodeGetGraph, CUgraphNode, hNode, CUgraph *, phGraph)
{
    const struct sim_node *n = sim_node_of(hNode);

    if (!n || !n->child || !phGraph)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = (CUgraph)n->child;
    return CUDA_SUCCESS;
}

SIM_API4(526, 10000, cuGraphAddEmptyNode, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *,
         dependencies, size_t, numDependencies)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};

    return sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

SIM_API5(589, 11010, cuGraphAddEventRecordNode, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *,
         dependencies, size_t, numDependencies, CUevent, event)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {event}};

    return sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

SIM_API5(590, 11010, cuGraphAddEventWaitNode, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *,
         dependencies, size_t, numDependencies, CUevent, event)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {event}};

    return sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

/* The address goes out before the event, as every result. */
SIM_API5(638, 11040, cuGraphAddMemAllocNode, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *,
         dependencies, size_t, numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *, nodeParams)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    CUresult r;

    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.alloc, nodeParams, sizeof *nodeParams);
    r = sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, &params);
    if (!r)
        nodeParams->dptr = params.alloc.dptr;
    return r;
}

SIM_API5(639, 11040, cuGraphAddMemFreeNode, CUgraphNode *, phGraphNode, CUgraph, hGraph, const CUgraphNode *,
         dependencies, size_t, numDependencies, CUdeviceptr, dptr)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {dptr}};

    return sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

/* Graphs with memory nodes keep their nodes and edges for life. */
SIM_API1(522, 10000, cuGraphDestroyNode, CUgraphNode, hNode)
{
    struct sim_node *n = sim_node_of(hNode);

    if (!n || n->graph->capture || sim_graph_has_memory(n->graph))
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_event(SIM_TOOL_GRAPHNODE_DESTROY_STARTING,
                    (struct sim_tool_graph){.graph = (CUgraph)n->graph, .node = hNode, .node_type = n->params.type});
    n = sim_node_of(hNode);
    if (!n)
        return CUDA_ERROR_INVALID_VALUE;
    sim_node_drop(n);
    return CUDA_SUCCESS;
}

SIM_API2(509, 10000, cuGraphNodeGetType, CUgraphNode, hNode, CUgraphNodeType *, type)
{
    const struct sim_node *n = sim_node_of(hNode);

    if (!n || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = n->params.type;
    return CUDA_SUCCESS;
}

/* ---- lists: a NULL array asks for the number alone; what is left of a longer one is filled with NULL ------------- */
struct sim_list {
    CUgraphNode *first, *second; /* second: the other end of edges, or NULL */
    CUgraphEdgeData *data;
    size_t room, count;
};

static void sim_list_put(struct sim_list *l, const struct sim_node *first, const struct sim_node *second)
{
    if (l->first && l->count < l->room) {
        l->first[l->count] = (CUgraphNode)first;
        if (l->second)
            l->second[l->count] = (CUgraphNode)second;
        if (l->data)
            l->data[l->count] = (CUgraphEdgeData){0};
    }
    l->count++;
}

static CUresult sim_list_end(struct sim_list *l, size_t *number)
{
    for (size_t i = l->count; l->first && i < l->room; i++) {
        l->first[i] = NULL;
        if (l->second)
            l->second[i] = NULL;
    }
    *number = l->first && l->count > l->room ? l->room : l->count;
    return CUDA_SUCCESS;
}

static CUresult sim_graph_nodes(CUgraph h, CUgraphNode *nodes, size_t *number, bool roots)
{
    const struct sim_graph *g = sim_graph_of(h);
    struct sim_list l = {.first = nodes, .room = number ? *number : 0};

    if (!g || !number)
        return CUDA_ERROR_INVALID_VALUE;
    for (const struct sim_node *n = g->first; n; n = n->next)
        if (!roots || !n->from.count)
            sim_list_put(&l, n, NULL);
    return sim_list_end(&l, number);
}

SIM_API3(534, 10000, cuGraphGetNodes, CUgraph, hGraph, CUgraphNode *, nodes, size_t *, numNodes)
{
    return sim_graph_nodes(hGraph, nodes, numNodes, false);
}

SIM_API3(510, 10000, cuGraphGetRootNodes, CUgraph, hGraph, CUgraphNode *, rootNodes, size_t *, numRootNodes)
{
    return sim_graph_nodes(hGraph, rootNodes, numRootNodes, true);
}

static CUresult sim_graph_edges(CUgraph h, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *number)
{
    const struct sim_graph *g = sim_graph_of(h);
    struct sim_list l = {.first = from, .second = to, .data = data, .room = number ? *number : 0};

    if (!g || !number || !from != !to || (data && !from))
        return CUDA_ERROR_INVALID_VALUE;
    for (const struct sim_node *n = g->first; n; n = n->next)
        for (size_t i = 0; i < n->from.count; i++)
            sim_list_put(&l, n->from.at[i], n);
    return sim_list_end(&l, number);
}

SIM_API4(535, 10000, cuGraphGetEdges, CUgraph, hGraph, CUgraphNode *, from, CUgraphNode *, to, size_t *, numEdges)
{
    return sim_graph_edges(hGraph, from, to, NULL, numEdges);
}

SIM_API5(724, 12030, cuGraphGetEdges_v2, CUgraph, hGraph, CUgraphNode *, from, CUgraphNode *, to, CUgraphEdgeData *,
         edgeData, size_t *, numEdges)
{
    return sim_graph_edges(hGraph, from, to, edgeData, numEdges);
}

static CUresult sim_node_edges(CUgraphNode h, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *number, bool onward)
{
    const struct sim_node *n = sim_node_of(h);
    struct sim_list l = {.first = nodes, .data = data, .room = number ? *number : 0};

    if (!n || !number || (data && !nodes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!onward)
        for (size_t i = 0; i < n->from.count; i++)
            sim_list_put(&l, n->from.at[i], NULL);
    for (const struct sim_node *o = onward ? n->graph->first : NULL; o; o = o->next)
        for (size_t i = 0; i < o->from.count; i++)
            if (o->from.at[i] == n)
                sim_list_put(&l, o, NULL);
    return sim_list_end(&l, number);
}

SIM_API3(511, 10000, cuGraphNodeGetDependencies, CUgraphNode, hNode, CUgraphNode *, dependencies, size_t *,
         numDependencies)
{
    return sim_node_edges(hNode, dependencies, NULL, numDependencies, false);
}

SIM_API4(725, 12030, cuGraphNodeGetDependencies_v2, CUgraphNode, hNode, CUgraphNode *, dependencies, CUgraphEdgeData *,
         edgeData, size_t *, numDependencies)
{
    return sim_node_edges(hNode, dependencies, edgeData, numDependencies, false);
}

SIM_API3(512, 10000, cuGraphNodeGetDependentNodes, CUgraphNode, hNode, CUgraphNode *, dependentNodes, size_t *,
         numDependentNodes)
{
    return sim_node_edges(hNode, dependentNodes, NULL, numDependentNodes, true);
}

SIM_API4(726, 12030, cuGraphNodeGetDependentNodes_v2, CUgraphNode, hNode, CUgraphNode *, dependentNodes,
         CUgraphEdgeData *, edgeData, size_t *, numDependentNodes)
{
    return sim_node_edges(hNode, dependentNodes, edgeData, numDependentNodes, true);
}

/* ---- edges ------------------------------------------------------------------------------------------------------- */
static bool sim_edge_there(const struct sim_node *from, const struct sim_node *to)
{
    for (size_t i = 0; i < to->from.count; i++)
        if (to->from.at[i] == from)
            return true;
    return false;
}

/* All or nothing: adding an existing edge and removing a missing one are errors. */
static CUresult sim_edges_change(CUgraph h, const CUgraphNode *from, const CUgraphNode *to, size_t count, bool add)
{
    struct sim_graph *g = sim_graph_of(h);

    if (!g || (count && (!from || !to)) || (!add && (g->capture || sim_graph_has_memory(g))))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const struct sim_node *a = sim_node_of(from[i]), *b = sim_node_of(to[i]);

        if (!a || !b || a == b || a->graph != g || b->graph != g || sim_edge_there(a, b) == add)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        struct sim_node *a = sim_node_of(from[i]), *b = sim_node_of(to[i]);

        if (add)
            sim_nodes_add(&b->from, a);
        else
            sim_nodes_remove(&b->from, a);
    }
    return CUDA_SUCCESS;
}

SIM_API4(518, 10000, cuGraphAddDependencies, CUgraph, hGraph, const CUgraphNode *, from, const CUgraphNode *, to,
         size_t, numDependencies)
{
    return sim_edges_change(hGraph, from, to, numDependencies, true);
}

SIM_API5(727, 12030, cuGraphAddDependencies_v2, CUgraph, hGraph, const CUgraphNode *, from, const CUgraphNode *, to,
         const CUgraphEdgeData *, edgeData, size_t, numDependencies)
{
    CUresult r = sim_edges_plain(edgeData, numDependencies);

    return r ? r : sim_edges_change(hGraph, from, to, numDependencies, true);
}

SIM_API4(519, 10000, cuGraphRemoveDependencies, CUgraph, hGraph, const CUgraphNode *, from, const CUgraphNode *, to,
         size_t, numDependencies)
{
    return sim_edges_change(hGraph, from, to, numDependencies, false);
}

SIM_API5(728, 12030, cuGraphRemoveDependencies_v2, CUgraph, hGraph, const CUgraphNode *, from, const CUgraphNode *, to,
         const CUgraphEdgeData *, edgeData, size_t, numDependencies)
{
    CUresult r = sim_edges_plain(edgeData, numDependencies);

    return r ? r : sim_edges_change(hGraph, from, to, numDependencies, false);
}
