/* SPDX-License-Identifier: MIT
 * Entry points of launches and uploads of executable graphs (graphrun.c). */
#include "cuda/graph.h"

/* ---- launches ---------------------------------------------------------------------------------------------------- */

SIM_API1(516, 10000, cuGraphExecDestroy, CUgraphExec, hGraphExec)
{
    struct sim_exec *e = sim_exec_of(hGraphExec);

    if (!e)
        return CUDA_ERROR_INVALID_VALUE;
    sim_handle_remove(e);
    sim_graph_event(SIM_TOOL_GRAPHEXEC_DESTROY_STARTING, (struct sim_tool_graph){.graph_exec = hGraphExec});
    if (e->source)
        e->source->execs--;
    sim_exec_unlist(e);
    if (e->busy)
        e->dead = true;
    else
        sim_exec_free(e);
    return CUDA_SUCCESS;
}

/* A launch into a capture becomes a child graph; memory nodes may not be in one that is copied. */
static CUresult sim_exec_captured(struct sim_exec *e, struct sim_stream *s)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    struct sim_node *made;
    struct sim_graph *g;
    CUresult r;

    if (sim_graph_has_memory(e->graph))
        return sim_capture_refuse(s);
    g = sim_graph_copy(e->graph, true);
    params.graph.graph = (CUgraph)g;
    params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    r = sim_capture_node(s, &params, &made);
    if (r)
        sim_graph_drop(g);
    return r;
}

SIM_API2_PTSZ(514, 515, 10000, cuGraphLaunch, CUgraphExec, hGraphExec, CUstream, hStream)
{
    struct sim_exec *e = sim_exec_of(hGraphExec);
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !e)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    return sim_stream_capturing(s) ? sim_exec_captured(e, s) : sim_exec_launch(e, s);
}

SIM_API2_PTSZ(580, 581, 11010, cuGraphUpload, CUgraphExec, hGraphExec, CUstream, hStream)
{
    struct sim_exec *e = sim_exec_of(hGraphExec);
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !e)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    r = sim_capture_refuse(s);
    return r ? r : sim_exec_upload(e);
}
