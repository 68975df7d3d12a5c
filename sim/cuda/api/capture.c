/* SPDX-License-Identifier: MIT
 * Entry points of stream capture: begin, end, ask, redirect, and the calling thread's mode. */
#include <stdlib.h>
#include <unistd.h>

#include "cuda/graph.h"

/* ---- begin ------------------------------------------------------------------------------------------------------- */
static CUresult sim_capture_begin(CUstream h, CUstreamCaptureMode mode, struct sim_graph *given,
                                  const CUgraphNode *dependencies, size_t count)
{
    static uint64_t ids;
    struct sim_capture *c;
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(h, &s);

    if (r)
        return r;
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (s->kind == SIM_STREAM_LEGACY)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    c = sim_grow(NULL, sizeof *c);
    *c = (struct sim_capture){.next = sim_captures,
                              .id = ++ids,
                              .mode = mode,
                              .thread = gettid(),
                              .origin = s,
                              .graph = given ? given : sim_graph_make(true),
                              .given = given != NULL};
    c->graph->capture = c;
    sim_captures = c;
    s->capture = c;
    for (size_t i = 0; i < count; i++)
        sim_nodes_add(&s->frontier, (struct sim_node *)dependencies[i]);
    if (!given)
        sim_graph_event(SIM_TOOL_GRAPH_CREATED, (struct sim_tool_graph){.graph = (CUgraph)c->graph});
    return CUDA_SUCCESS;
}

SIM_API1_PTSZ(495, 496, 10000, cuStreamBeginCapture, CUstream, hStream)
{
    return sim_capture_begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0);
}

SIM_API2_PTSZ(539, 540, 10010, cuStreamBeginCapture_v2, CUstream, hStream, CUstreamCaptureMode, mode)
{
    return sim_capture_begin(hStream, mode, NULL, NULL, 0);
}

/* NULL data means plain edges, the only ones there are here. */
static CUresult sim_dependencies_valid(const struct sim_graph *g, const CUgraphNode *nodes, const CUgraphEdgeData *data,
                                       size_t count)
{
    if (count && !nodes)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const struct sim_node *n = sim_node_of(nodes[i]);

        if (!n || n->graph != g)
            return CUDA_ERROR_INVALID_VALUE;
        if (data && (data[i].from_port || data[i].to_port || data[i].type))
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

SIM_API6_PTSZ(720, 721, 12030, cuStreamBeginCaptureToGraph, CUstream, hStream, CUgraph, hGraph, const CUgraphNode *,
              dependencies, const CUgraphEdgeData *, dependencyData, size_t, numDependencies, CUstreamCaptureMode, mode)
{
    struct sim_graph *g = sim_graph_of(hGraph);
    CUresult r = g && !g->capture ? sim_dependencies_valid(g, dependencies, dependencyData, numDependencies)
                                  : CUDA_ERROR_INVALID_VALUE;

    return r ? r : sim_capture_begin(hStream, mode, g, dependencies, numDependencies);
}

/* The stream's capture gives the nodes of a graph once more, in the order in which they were made. */
SIM_API5(811, 13030, cuStreamBeginRecaptureToGraph, CUstream, hStream, CUstreamCaptureMode, mode, CUgraph, hGraph,
         sim_recapture_fn *, callbackFunc, void *, userData)
{
    struct sim_graph *g = sim_graph_of(hGraph);
    CUresult r =
        g && !g->capture && !g->parent ? sim_capture_begin(hStream, mode, g, NULL, 0) : CUDA_ERROR_INVALID_VALUE;

    if (r)
        return r;
    g->capture->again = true;
    g->capture->next_node = g->first;
    g->capture->callback = callbackFunc;
    g->capture->user = userData;
    return CUDA_SUCCESS;
}

/* Captures into a command list of a graphics API need one, and this machine has none. */
SIM_API2(809, 13020, cuStreamBeginCaptureToCig, CUstream, hStream, void *, streamCigCaptureParams)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !streamCigCaptureParams)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    return CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API1(810, 13020, cuStreamEndCaptureToCig, CUstream, hStream)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    return r ? r : CUDA_ERROR_INVALID_VALUE;
}

/* ---- end --------------------------------------------------------------------------------------------------------- */
/* Marks n and all it depends on; each node is put on the stack once. */
static void sim_mark_past(struct sim_node *n, struct sim_node **stack)
{
    size_t height = 0;

    if (!n->marked)
        stack[height++] = n;
    n->marked = true;
    while (height) {
        n = stack[--height];
        for (size_t i = 0; i < n->from.count; i++)
            if (!n->from.at[i]->marked) {
                n->from.at[i]->marked = true;
                stack[height++] = n->from.at[i];
            }
    }
}

/* Every stream that joined must have been waited for: its last nodes precede those of the stream
 * that began. */
static bool sim_capture_joined(const struct sim_capture *c)
{
    struct sim_node **stack = sim_grow(NULL, (c->graph->count + 1) * sizeof *stack);

    for (struct sim_node *n = c->graph->first; n; n = n->next)
        n->marked = false;
    for (size_t i = 0; i < c->origin->frontier.count; i++)
        sim_mark_past(c->origin->frontier.at[i], stack);
    free(stack);
    for (const struct sim_stream *s = sim_stream_first(); s; s = s->next)
        for (size_t i = 0; s->capture == c && i < s->frontier.count; i++)
            if (!s->frontier.at[i]->marked)
                return false;
    return true;
}

SIM_API2_PTSZ(497, 498, 10000, cuStreamEndCapture, CUstream, hStream, CUgraph *, phGraph)
{
    struct sim_capture *c;
    struct sim_graph *g;
    struct sim_stream *s;
    bool given;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !phGraph)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    c = s->capture;
    if (!c)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (c->origin != s) {
        sim_capture_invalidate(c);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != gettid())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (c->again && (c->invalid || c->next_node))
        r = SIM_RECAPTURE_FAILURE;
    else if (c->invalid)
        r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!sim_capture_joined(c))
        r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    g = c->graph;
    given = c->given;
    sim_capture_end(c);
    *phGraph = r ? NULL : (CUgraph)g;
    if (r && !given)
        sim_graph_end(g);
    return r;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */
/* Asking about the legacy stream while a blocking stream captures is an error, but harms no
 * capture. */
static CUresult sim_capture_ask(CUstream h, struct sim_stream **out)
{
    CUresult r = sim_stream_resolve(h, out);

    if (r || (*out)->kind != SIM_STREAM_LEGACY)
        return r;
    for (const struct sim_stream *s = sim_stream_first(); s; s = s->next)
        if (s->capture && s->context == (*out)->context && !s->non_blocking)
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return CUDA_SUCCESS;
}

static CUstreamCaptureStatus sim_capture_status(const struct sim_stream *s)
{
    if (!s->capture)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

SIM_API2_PTSZ(499, 500, 10000, cuStreamIsCapturing, CUstream, hStream, CUstreamCaptureStatus *, captureStatus)
{
    struct sim_stream *s;
    CUresult r = sim_capture_ask(hStream, &s);

    if (r || !captureStatus)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *captureStatus = sim_capture_status(s);
    return CUDA_SUCCESS;
}

/* Only active captures have more than a status; the list of nodes is valid until the next call. */
static CUresult sim_capture_info(CUstream h, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                 const CUgraphNode **dependencies, size_t *count, struct sim_stream **out)
{
    CUresult r = sim_capture_ask(h, out);

    if (r || !status)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *status = sim_capture_status(*out);
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (id)
        *id = (*out)->capture->id;
    if (graph)
        *graph = (CUgraph)(*out)->capture->graph;
    if (dependencies)
        *dependencies = (const CUgraphNode *)(*out)->frontier.at;
    if (count)
        *count = (*out)->frontier.count;
    return CUDA_SUCCESS;
}

SIM_API3_PTSZ(536, 537, 10010, cuStreamGetCaptureInfo, CUstream, hStream, CUstreamCaptureStatus *, captureStatus_out,
              cuuint64_t *, id_out)
{
    struct sim_stream *s;

    return sim_capture_info(hStream, captureStatus_out, id_out, NULL, NULL, NULL, &s);
}

SIM_API6_PTSZ(629, 630, 11030, cuStreamGetCaptureInfo_v2, CUstream, hStream, CUstreamCaptureStatus *, captureStatus_out,
              cuuint64_t *, id_out, CUgraph *, graph_out, const CUgraphNode **, dependencies_out, size_t *,
              numDependencies_out)
{
    struct sim_stream *s;

    return sim_capture_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out, &s);
}

SIM_API7_PTSZ(729, 730, 12030, cuStreamGetCaptureInfo_v3, CUstream, hStream, CUstreamCaptureStatus *, captureStatus_out,
              cuuint64_t *, id_out, CUgraph *, graph_out, const CUgraphNode **, dependencies_out,
              const CUgraphEdgeData **, edgeData_out, size_t *, numDependencies_out)
{
    struct sim_stream *s;

    if (edgeData_out)
        *edgeData_out = NULL; /* all edges are plain */
    return sim_capture_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out, &s);
}

/* ---- redirect ---------------------------------------------------------------------------------------------------- */
static CUresult sim_capture_update(CUstream h, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
                                   unsigned int flags)
{
    struct sim_stream *s;
    CUresult r = sim_capture_ask(h, &s);

    if (r)
        return r;
    if (!s->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (s->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    r = sim_dependencies_valid(s->capture->graph, nodes, data, count);
    if (r)
        return r;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        s->frontier.count = 0;
    for (size_t i = 0; i < count; i++)
        sim_nodes_add(&s->frontier, sim_node_of(nodes[i]));
    return CUDA_SUCCESS;
}

SIM_API4_PTSZ(631, 632, 11030, cuStreamUpdateCaptureDependencies, CUstream, hStream, CUgraphNode *, dependencies,
              size_t, numDependencies, unsigned int, flags)
{
    return sim_capture_update(hStream, dependencies, NULL, numDependencies, flags);
}

SIM_API5_PTSZ(731, 732, 12030, cuStreamUpdateCaptureDependencies_v2, CUstream, hStream, CUgraphNode *, dependencies,
              const CUgraphEdgeData *, dependencyData, size_t, numDependencies, unsigned int, flags)
{
    return sim_capture_update(hStream, dependencies, dependencyData, numDependencies, flags);
}

SIM_API1(541, 10010, cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode *, mode)
{
    CUstreamCaptureMode old = sim_self.capture_mode;

    if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    sim_self.capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
