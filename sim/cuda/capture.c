/* SPDX-License-Identifier: MIT
 * Stream capture: how work and events become nodes, and how a capture ends.  capturing.c has the rules, api/capture.c the
 * entry points. */
#include "cuda/graph.h"

#include <stdlib.h>
#include <string.h>

static void sim_capture_leave(struct sim_stream *s)
{
    s->capture = NULL;
    sim_nodes_drop(&s->frontier);
}

void sim_capture_end(struct sim_capture *c)
{
    for (struct sim_stream *s = sim_stream_first(); s; s = s->next)
        if (s->capture == c)
            sim_capture_leave(s);
    for (struct sim_event *e = sim_event_first(); e; e = e->next)
        if (e->capture == c) {
            e->capture = &sim_capture_over;
            sim_nodes_drop(&e->frontier);
        }
    for (struct sim_capture **at = &sim_captures; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    c->graph->capture = NULL;
    free(c);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static bool sim_recapture_same(const struct sim_stream *s, const struct sim_node *n, const CUgraphNodeParams *params)
{
    if (!n || n->params.type != params->type || n->from.count != s->frontier.count)
        return false;
    for (size_t i = 0; i < n->from.count; i++)
        if (n->from.at[i] != s->frontier.at[i])
            return false;
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return n->params.free.dptr == params->free.dptr;
    return params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
           (n->params.alloc.bytesize == params->alloc.bytesize &&
            n->params.alloc.poolProps.location.id == params->alloc.poolProps.location.id);
}

/* A node comes once more: topology and memory must be as they were; the other parameters may change
 * if the program's callback agrees.  The real driver's statuses for it are not public: it gets 0. */
static CUresult sim_recapture_node(struct sim_stream *s, CUgraphNodeParams *params, struct sim_node **out)
{
    struct sim_capture *c = s->capture;
    struct sim_node *n = c->next_node;
    CUresult r = CUDA_SUCCESS;

    if (!sim_recapture_same(s, n, params)) {
        sim_capture_invalidate(c);
        return SIM_RECAPTURE_FAILURE;
    }
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        params->alloc.dptr = n->params.alloc.dptr;
    } else if (params->type != CU_GRAPH_NODE_TYPE_MEM_FREE && memcmp(&n->params, params, sizeof *params)) {
        CUgraphNodeParams before = n->params;

        if (c->callback) {
            sim_unlock();
            r = c->callback(c->user, (CUgraphNode)n, &before, params, 0);
            sim_lock();
        }
        sim_params_drop(n);
        if (r || sim_params_take(n, params)) {
            sim_capture_invalidate(c);
            return SIM_RECAPTURE_FAILURE;
        }
    }
    c->next_node = n->next;
    s->frontier.count = 0;
    sim_nodes_add(&s->frontier, n);
    *out = n;
    return CUDA_SUCCESS;
}

CUresult sim_capture_node(struct sim_stream *s, CUgraphNodeParams *params, struct sim_node **out)
{
    struct sim_capture *c = s->capture;
    CUresult r;

    if (c->invalid)
        return c->again ? SIM_RECAPTURE_FAILURE : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (c->again)
        return sim_recapture_node(s, params, out);
    r = sim_node_add(c->graph, (const CUgraphNode *)s->frontier.at, s->frontier.count, params, out);
    if (r)
        return r;
    s->frontier.count = 0;
    sim_nodes_add(&s->frontier, *out);
    sim_node_created(*out);
    return CUDA_SUCCESS;
}

CUresult sim_capture_work(struct sim_stream *s, const struct sim_work *work)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    struct sim_node *made;

    if (s->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (work->type == SIM_WORK_NOTHING)
        return CUDA_SUCCESS;
    if (work->type == SIM_WORK_COPY) {
        params.memcpy.copyCtx = sim_context_handle(s->context);
        params.memcpy.copyParams = work->copy;
    } else {
        const CUDA_MEMSET_NODE_PARAMS *set = &work->set;

        params.type = CU_GRAPH_NODE_TYPE_MEMSET;
        params.memset = (CUDA_MEMSET_NODE_PARAMS_v2){.dst = set->dst,
                                                     .pitch = set->pitch,
                                                     .value = set->value,
                                                     .elementSize = set->elementSize,
                                                     .width = set->width,
                                                     .height = set->height,
                                                     .ctx = sim_context_handle(s->context)};
    }
    return sim_capture_node(s, &params, &made);
}

/* Of the pool only the place matters: graph memory never comes from a pool. */
CUresult sim_graph_capture_alloc(struct sim_stream *s, const CUmemPoolProps *props, size_t bytes, CUdeviceptr *out)
{
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        .alloc = {.poolProps = {.allocType = props->allocType, .location = props->location}, .bytesize = bytes}};
    struct sim_node *made;
    CUresult r = sim_capture_node(s, &params, &made);

    if (!r)
        *out = params.alloc.dptr;
    return r;
}

CUresult sim_graph_capture_free(struct sim_stream *s, struct sim_memory *m)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {m->base}};
    struct sim_node *made;

    return sim_capture_node(s, &params, &made);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

CUresult sim_capture_event_refuse(struct sim_event *e)
{
    if (!e->capture)
        return CUDA_SUCCESS;
    if (e->capture != &sim_capture_over)
        sim_capture_invalidate(e->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

static CUresult sim_capture_event_node(struct sim_stream *s, CUgraphNodeType type, struct sim_event *e)
{
    CUgraphNodeParams params = {.type = type, .eventRecord = {(CUevent)e}};
    struct sim_node *made;

    return sim_capture_node(s, &params, &made);
}

/* external: the node records the event when the graph runs; else the event stands for the nodes so
 * far. */
CUresult sim_capture_event_record(struct sim_stream *s, struct sim_event *e, bool external)
{
    if (s->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (external)
        return sim_capture_event_node(s, CU_GRAPH_NODE_TYPE_EVENT_RECORD, e);
    sim_capture_event_clear(e);
    e->recorded = false;
    e->capture = s->capture;
    for (size_t i = 0; i < s->frontier.count; i++)
        sim_nodes_add(&e->frontier, s->frontier.at[i]);
    return CUDA_SUCCESS;
}

/* The stream goes on after the nodes that the event stands for, and joins the capture if it is not
 * in it. */
static CUresult sim_capture_join(struct sim_stream *s, const struct sim_event *e)
{
    if (e->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (s->kind == SIM_STREAM_LEGACY)
        return sim_capture_broken(e->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    s->capture = e->capture;
    for (size_t i = 0; i < e->frontier.count; i++)
        sim_nodes_add(&s->frontier, e->frontier.at[i]);
    return CUDA_SUCCESS;
}

CUresult sim_capture_event_wait(struct sim_stream *s, struct sim_event *e, bool external)
{
    if (s->capture && s->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (s->capture && external)
        return sim_capture_event_node(s, CU_GRAPH_NODE_TYPE_WAIT_EVENT, e);
    if (e->capture == &sim_capture_over)
        return s->capture ? sim_capture_broken(s->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
                          : CUDA_ERROR_CAPTURED_EVENT;
    if (s->capture && !e->capture) /* work outside the capture; an event without work blocks nothing */
        return e->recorded ? sim_capture_broken(s->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION) : CUDA_SUCCESS;
    if (s->capture && s->capture != e->capture) {
        sim_capture_invalidate(e->capture);
        return sim_capture_broken(s->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    return sim_capture_join(s, e);
}

/* A capture cannot end without the stream that it began in, nor be whole without one that joined
 * it. */
void sim_capture_stream_gone(struct sim_stream *s)
{
    struct sim_capture *c = s->capture;

    if (!c)
        return;
    sim_capture_invalidate(c);
    if (c->origin == s) {
        struct sim_graph *g = c->given ? NULL : c->graph;

        sim_capture_end(c);
        if (g)
            sim_graph_drop(g);
        return;
    }
    sim_capture_leave(s);
}
