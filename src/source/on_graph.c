/* SPDX-License-Identifier: MIT
 * on_graph.c: graphs with memory nodes, and stream capture (table F).  Launches are not looked at:
 * the physical side is polled. */
#include "account/feed/graph.h"
#include "account/feed/want.h"
#include "base/thread.h"
#include "source/internal.h"

static void on_alloc_node(struct gp_call *call, void *const *node, void *graph, const struct gp_cu_alloc_node *params)
{
    int device = gp_place_device(&params->pool.location);
    call->asked_bytes = params->bytes;
    call->asked_kind = GP_KIND_GRAPH;
    call->device = device;
    if (gp_call_ok(call))
        gp_feed_graph_node(params->address, params->bytes, device, (uint64_t)(uintptr_t)*node,
                           (uint64_t)(uintptr_t)graph);
}

static void on_graph_alloc_node_exit(struct gp_call *call)
{
    const struct gp_params_cuGraphAddMemAllocNode *params = GP_PARAMS(call, cuGraphAddMemAllocNode);
    if (params->nodeParams)
        on_alloc_node(call, params->phGraphNode, params->hGraph, params->nodeParams);
}
const struct gp_handler gp_on_graph_alloc_node = {NULL, on_graph_alloc_node_exit};

static void on_node(struct gp_call *call, void *const *node, void *graph, const struct gp_cu_node_params *params)
{
    if (!params)
        return;
    if (params->type == GP_CU_NODE_ALLOC)
        on_alloc_node(call, node, graph, &params->alloc);
    else if (params->type == GP_CU_NODE_CHILD && params->child.ownership == GP_CU_CHILD_MOVED && gp_call_ok(call))
        gp_feed_graph_moved((uint64_t)(uintptr_t)params->child.graph, (uint64_t)(uintptr_t)graph);
}

static void on_graph_node_exit(struct gp_call *call)
{
    const struct gp_params_cuGraphAddNode *params = GP_PARAMS(call, cuGraphAddNode);
    on_node(call, params->phGraphNode, params->hGraph, params->nodeParams);
}
const struct gp_handler gp_on_graph_node = {NULL, on_graph_node_exit};

static void on_graph_node_v2_exit(struct gp_call *call)
{
    const struct gp_params_cuGraphAddNode_v2 *params = GP_PARAMS(call, cuGraphAddNode_v2);
    on_node(call, params->phGraphNode, params->hGraph, params->nodeParams);
}
const struct gp_handler gp_on_graph_node_v2 = {NULL, on_graph_node_v2_exit};

static void on_graph_change_exit(struct gp_call *call)
{
    (void)call;
    gp_feed_poll_want(GP_POLL_GRAPHS);
}
const struct gp_handler gp_on_graph_change = {NULL, on_graph_change_exit};

static void on_graph_destroy_enter(struct gp_call *call)
{
    *call->slot = gp_feed_graph_destroy_begin((uint64_t)(uintptr_t)GP_PARAMS(call, cuGraphDestroy)->hGraph);
}

static void on_graph_destroy_exit(struct gp_call *call)
{
    gp_feed_graph_destroy_end((uint32_t)*call->slot, gp_call_ok(call));
}
const struct gp_handler gp_on_graph_destroy = {on_graph_destroy_enter, on_graph_destroy_exit};

/* A question of the poller from here on may be one during the capture. */
static void on_capture_begin_enter(struct gp_call *call)
{
    *call->slot = gp_feed_poll_asks();
}

static void on_capture_begun(const struct gp_call *call, const void *stream, enum gp_capture how)
{
    if (!gp_call_ok(call))
        return;
    __atomic_store_n(&gp_call_x_captures, 1, __ATOMIC_RELAXED); /* the program orders it relative to its other calls */
    gp_feed_capture_begin((uint64_t)(uintptr_t)stream, how);
    gp_feed_capture_asks((uint64_t)(uintptr_t)stream, (uint32_t)*call->slot);
}

static void on_capture_begin_exit(struct gp_call *call)
{
    on_capture_begun(call, GP_PARAMS(call, cuStreamBeginCapture_v2)->hStream, GP_CAPTURE_NEW);
}
const struct gp_handler gp_on_capture_begin = {on_capture_begin_enter, on_capture_begin_exit};

static void on_capture_to_graph_exit(struct gp_call *call)
{
    on_capture_begun(call, GP_PARAMS(call, cuStreamBeginCaptureToGraph)->hStream, GP_CAPTURE_INTO);
}
const struct gp_handler gp_on_capture_to_graph = {on_capture_begin_enter, on_capture_to_graph_exit};

static void on_recapture_exit(struct gp_call *call)
{
    on_capture_begun(call, GP_PARAMS(call, cuStreamBeginRecaptureToGraph)->hStream, GP_CAPTURE_AGAIN);
}
const struct gp_handler gp_on_recapture = {on_capture_begin_enter, on_recapture_exit};

static void on_capture_end_exit(struct gp_call *call)
{
    /* The first two errors end the capture and discard its graph, the third one ends it; after any
     * other the capture goes on. */
    bool discarded = call->result == GP_CU_CAPTURE_INVALIDATED || call->result == GP_CU_CAPTURE_UNJOINED;
    uint64_t stream = (uint64_t)(uintptr_t)GP_PARAMS(call, cuStreamEndCapture)->hStream;
    if (call->result == GP_CU_CAPTURE_INVALIDATED)
        gp_feed_capture_broke(stream);
    if (gp_call_ok(call) || discarded || call->result == GP_CU_RECAPTURE_FAILED)
        gp_feed_capture_end(stream, discarded);
}
const struct gp_handler gp_on_capture_end = {NULL, on_capture_end_exit};
