/* SPDX-License-Identifier: MIT
 * Executable graphs as objects: made from a graph, updated from another, asked.  graphrun.c
 * launches them. */
#include "cuda/graph.h"

/* ---- making ------------------------------------------------------------------------------------------------------ */

#define SIM_EXEC_FLAGS                                                                                                 \
    (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |                            \
     CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

/* The node of the graph that its copy in an exec stands for. */
static CUgraphNode sim_node_source(const struct sim_graph *g, const struct sim_node *copy)
{
    for (struct sim_node *n = g->first; copy && n; n = n->next)
        if (n->id == copy->original)
            return (CUgraphNode)n;
    return NULL;
}

static bool sim_graph_sort_all(struct sim_graph *g, struct sim_node **cycle)
{
    for (struct sim_node *n = g->first; n; n = n->next) {
        struct sim_node *inner;

        if (n->child && !sim_graph_sort_all(n->child, &inner)) {
            *cycle = n;
            return false;
        }
    }
    return sim_graph_sort(g, cycle);
}

/* Checks the flags against the graph's memory. */
static CUresult sim_exec_allowed(const struct sim_graph *g, cuuint64_t flags)
{
    const cuuint64_t device = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    const bool memory = sim_graph_has_memory(g);

    if (flags & ~(cuuint64_t)SIM_EXEC_FLAGS || g->capture || (memory && g->execs))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & device && (memory || flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* *failed: the node that closes a cycle, or NULL. */
static CUresult sim_exec_new(CUgraphExec *out, CUgraph h, cuuint64_t flags, CUgraphNode *failed)
{
    struct sim_graph *g = sim_graph_of(h), *copy;
    struct sim_node *cycle;
    struct sim_exec *e;
    CUresult r;

    *failed = NULL;
    if (!out || !g)
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_event(SIM_TOOL_GRAPHEXEC_CREATE_STARTING, (struct sim_tool_graph){.graph = h});
    g = sim_graph_of(h);
    r = g ? sim_exec_allowed(g, flags) : CUDA_ERROR_INVALID_VALUE;
    if (r)
        return r;
    copy = sim_graph_copy(g, false);
    if (!sim_graph_sort_all(copy, &cycle)) {
        *failed = sim_node_source(g, cycle);
        sim_graph_drop(copy);
        return CUDA_ERROR_INVALID_VALUE;
    }
    e = sim_grow(NULL, sizeof *e);
    *e = (struct sim_exec){.tag = SIM_TAG_EXEC, .next = sim_execs, .graph = copy, .source = g, .flags = flags};
    sim_execs = e;
    g->execs++;
    sim_handle_add(e);
    *out = (CUgraphExec)e;
    sim_graph_event(SIM_TOOL_GRAPHEXEC_CREATED, (struct sim_tool_graph){.graph = h, .graph_exec = *out});
    return CUDA_SUCCESS;
}

/* Oldest forms: errors also as text. */
static CUresult sim_exec_logged(CUgraphExec *out, CUgraph h, CUgraphNode *error, char *log, size_t size)
{
    CUgraphNode failed;
    CUresult r = sim_exec_new(out, h, 0, &failed);

    if (error)
        *error = failed;
    if (log && size)
        *log = 0;
    return r;
}

SIM_API5(513, 10000, cuGraphInstantiate, CUgraphExec *, phGraphExec, CUgraph, hGraph, CUgraphNode *, phErrorNode,
         char *, logBuffer, size_t, bufferSize)
{
    return sim_exec_logged(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

SIM_API5(578, 11000, cuGraphInstantiate_v2, CUgraphExec *, phGraphExec, CUgraph, hGraph, CUgraphNode *, phErrorNode,
         char *, logBuffer, size_t, bufferSize)
{
    return sim_exec_logged(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

/* UPLOAD needs a stream, which only the form with parameters has. */
SIM_API3(643, 11040, cuGraphInstantiateWithFlags, CUgraphExec *, phGraphExec, CUgraph, hGraph, unsigned long long,
         flags)
{
    CUgraphNode failed;

    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_exec_new(phGraphExec, hGraph, flags, &failed);
}
/* From 12.0 on the name without a suffix means this form. */
SIM_ALIAS(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags);

SIM_API3_PTSZ(656, 657, 12000, cuGraphInstantiateWithParams, CUgraphExec *, phGraphExec, CUgraph, hGraph,
              CUDA_GRAPH_INSTANTIATE_PARAMS *, instantiateParams)
{
    struct sim_stream *s;
    CUresult r;

    if (!instantiateParams)
        return CUDA_ERROR_INVALID_VALUE;
    instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    if (instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
        r = sim_stream_resolve(instantiateParams->hUploadStream, &s);
        if (!r)
            r = sim_capture_refuse(s);
        if (r)
            return r;
    }
    r = sim_exec_new(phGraphExec, hGraph, instantiateParams->flags, &instantiateParams->hErrNode_out);
    if (instantiateParams->hErrNode_out)
        instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    if (r)
        return r;
    instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    if (instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        r = sim_exec_upload(sim_exec_of(*phGraphExec));
    return r;
}

SIM_API2(658, 12000, cuGraphExecGetFlags, CUgraphExec, hGraphExec, cuuint64_t *, flags)
{
    const struct sim_exec *e = sim_exec_of(hGraphExec);

    if (!e || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = e->flags;
    return CUDA_SUCCESS;
}

/* ---- nodes in an exec -------------------------------------------------------------------------------------------- */

static CUresult sim_exec_switch(CUgraphExec exec, CUgraphNode h, struct sim_node **out)
{
    const struct sim_exec *e = sim_exec_of(exec);
    const struct sim_node *n = sim_node_of(h);

    *out = e && n ? sim_node_alike(e->graph, n->id) : NULL;
    if (!*out)
        return CUDA_ERROR_INVALID_VALUE;
    /* Only these three can be switched off. */
    return (*out)->params.type <= CU_GRAPH_NODE_TYPE_MEMSET ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API3(650, 11060, cuGraphNodeSetEnabled, CUgraphExec, hGraphExec, CUgraphNode, hNode, unsigned int, isEnabled)
{
    struct sim_node *n;
    CUresult r = sim_exec_switch(hGraphExec, hNode, &n);

    if (!r)
        n->disabled = !isEnabled;
    return r;
}

SIM_API3(651, 11060, cuGraphNodeGetEnabled, CUgraphExec, hGraphExec, CUgraphNode, hNode, unsigned int *, isEnabled)
{
    struct sim_node *n;
    CUresult r = sim_exec_switch(hGraphExec, hNode, &n);

    if (r || !isEnabled)
        return CUDA_ERROR_INVALID_VALUE;
    *isEnabled = !n->disabled;
    return CUDA_SUCCESS;
}

/* ---- update ------------------------------------------------------------------------------------------------------ */

static CUgraphExecUpdateResult sim_node_differs(const struct sim_node *old, const struct sim_node *new);

/* Both sorted the same way: node by node. */
static CUgraphExecUpdateResult sim_graph_differs(const struct sim_graph *old, const struct sim_graph *new,
                                                 const struct sim_node **at)
{
    const struct sim_node *n = new->first;

    *at = NULL;
    if (old->count != new->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (const struct sim_node *o = old->first; o; o = o->next, n = n->next) {
        CUgraphExecUpdateResult d = sim_node_differs(o, n);

        *at = n;
        if (d)
            return d;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUgraphExecUpdateResult sim_node_differs(const struct sim_node *old, const struct sim_node *new)
{
    const struct sim_node *inner;

    if (old->params.type != new->params.type)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (old->from.count != new->from.count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < old->from.count; i++)
        if (old->from.at[i]->waits != new->from.at[i]->waits)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (old->allocation != new->allocation) /* another graph's memory is other memory */
        return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    return old->child ? sim_graph_differs(old->child, new->child, &inner) : CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static void sim_graph_number(struct sim_graph *g)
{
    size_t i = 0;

    for (struct sim_node *n = g->first; n; n = n->next) {
        n->waits = i++;
        if (n->child)
            sim_graph_number(n->child);
    }
}

/* The new parameters under the old names: programs go on naming the nodes of the graph the exec was
 * made from. */
static void sim_graph_rename(struct sim_graph *new, const struct sim_graph *old)
{
    const struct sim_node *o = old->first;

    for (struct sim_node *n = new->first; n; n = n->next, o = o->next) {
        n->original = o->original;
        n->disabled = o->disabled;
        if (n->child)
            sim_graph_rename(n->child, o->child);
    }
}

static CUresult sim_exec_update(CUgraphExec exec, CUgraph h, CUgraphExecUpdateResultInfo *info)
{
    struct sim_exec *e = sim_exec_of(exec);
    const struct sim_graph *g = sim_graph_of(h);
    const struct sim_node *at;
    struct sim_node *cycle;
    struct sim_graph *new;

    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    if (!e || !g || g->capture || e->busy)
        return CUDA_ERROR_INVALID_VALUE;
    new = sim_graph_copy(g, false);
    if (sim_graph_sort_all(new, &cycle)) {
        sim_graph_number(new);
        sim_graph_number(e->graph);
        info->result = sim_graph_differs(e->graph, new, &at);
        if (info->result)
            info->errorNode = sim_node_source(g, at);
    }
    if (info->result) {
        sim_graph_drop(new);
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    sim_graph_rename(new, e->graph);
    sim_graph_drop(e->graph);
    e->graph = new;
    return CUDA_SUCCESS;
}

SIM_API4(561, 10020, cuGraphExecUpdate, CUgraphExec, hGraphExec, CUgraph, hGraph, CUgraphNode *, hErrorNode_out,
         CUgraphExecUpdateResult *, updateResult_out)
{
    CUgraphExecUpdateResultInfo info;
    CUresult r = sim_exec_update(hGraphExec, hGraph, &info);

    if (hErrorNode_out)
        *hErrorNode_out = info.errorNode;
    if (updateResult_out)
        *updateResult_out = info.result;
    return r;
}

SIM_API3(696, 12000, cuGraphExecUpdate_v2, CUgraphExec, hGraphExec, CUgraph, hGraph, CUgraphExecUpdateResultInfo *,
         resultInfo)
{
    return resultInfo ? sim_exec_update(hGraphExec, hGraph, resultInfo) : CUDA_ERROR_INVALID_VALUE;
}

/* A child graph of an exec is replaced by one of the same shape. */
SIM_API3(586, 11010, cuGraphExecChildGraphNodeSetParams, CUgraphExec, hGraphExec, CUgraphNode, hNode, CUgraph,
         childGraph)
{
    struct sim_exec *e = sim_exec_of(hGraphExec);
    const struct sim_node *n = sim_node_of(hNode), *at;
    struct sim_node *place = e && n ? sim_node_alike(e->graph, n->id) : NULL, *cycle;
    const struct sim_graph *g = sim_graph_of(childGraph);
    struct sim_graph *new;
    CUresult r = CUDA_ERROR_INVALID_VALUE;

    if (!place || !place->child || !g || e->busy)
        return r;
    new = sim_graph_copy(g, false);
    if (sim_graph_sort_all(new, &cycle)) {
        sim_graph_number(new);
        sim_graph_number(place->child);
        if (!sim_graph_differs(place->child, new, &at))
            r = CUDA_SUCCESS;
    }
    if (r) {
        sim_graph_drop(new);
        return r;
    }
    sim_graph_rename(new, place->child);
    sim_graph_drop(place->child);
    new->parent = place;
    place->child = new;
    return CUDA_SUCCESS;
}
