/* SPDX-License-Identifier: MIT
 * Stream capture: modes and the calls that they forbid, events that carry a capture to other streams, allocation nodes with
 * their callbacks, and how a capture goes wrong. */
#include <pthread.h>
#include <tool.h>

#include "core_check.h"

static CUstream stream, other;
static const struct sim_tool_table *table;
static int created, destroyed, last_type, inside_call;

static void event_seen(void *user, const struct sim_tool_event *event)
{
    const struct sim_tool_graph *about = event->descriptor;

    (void)user;
    if (event->cbid == SIM_TOOL_GRAPHNODE_CREATED) {
        created++;
        last_type = about->node_type;
        CHECK(inside_call);
    } else if (event->cbid == SIM_TOOL_GRAPHNODE_DESTROY_STARTING) {
        destroyed++;
    }
}

static void call_seen(void *user, const struct sim_tool_call *call)
{
    (void)user;
    inside_call += call->site == SIM_TOOL_ENTER ? 1 : -1;
}

static void watch(void)
{
    CUuuid id = SIM_TOOL_UUID;

    CHECK_OK(cuGetExportTable((const void **)&table, &id));
    table->attach(call_seen, event_seen, NULL);
    table->enable_domain(SIM_TOOL_RESOURCE, 1);
    table->enable_domain(SIM_TOOL_DRIVER, 1);
}

static void memory_nodes(void)
{
    CUstreamCaptureStatus status;
    CUdeviceptr memory = 0, plain;
    CUgraph graph;
    CUgraphNode nodes[4];
    size_t count = 4;
    CUgraphNodeType type;

    CHECK_OK(cuMemAllocAsync(&plain, 4096, other));
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    created = 0;
    CHECK_OK(cuMemAllocAsync(&memory, CHECK_MIB, stream));
    CHECK_EQ(created, 1);
    CHECK_EQ(last_type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    CHECK_OK(cuMemsetD8Async(memory, 1, 100, stream));
    CHECK_EQ(cuMemFreeAsync(plain, stream), CUDA_ERROR_INVALID_VALUE); /* no graph's memory */
    CHECK_OK(cuMemFreeAsync(memory, stream));
    CHECK_EQ(last_type, CU_GRAPH_NODE_TYPE_MEM_FREE);
    CHECK_EQ(created, 3);
    CHECK_OK(cuStreamIsCapturing(stream, &status));
    CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK_OK(cuStreamEndCapture(stream, &graph));
    CHECK_OK(cuStreamIsCapturing(stream, &status));
    CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK_OK(cuGraphGetNodes(graph, nodes, &count));
    CHECK_EQ(count, 3);
    CHECK(!nodes[3]);
    CHECK_OK(cuGraphNodeGetType(nodes[1], &type));
    CHECK_EQ(type, CU_GRAPH_NODE_TYPE_MEMSET);
    CHECK_EQ(check_kind(0, "pool", "current_bytes"), 4096);
    CHECK_EQ(check_kind(0, "graph", "current_bytes"), CHECK_MIB);
    destroyed = 0;
    CHECK_OK(cuGraphDestroy(graph));
    CHECK_EQ(destroyed, 3);
    CHECK_OK(cuStreamSynchronize(other));
    CHECK_OK(cuMemFree(plain));
}

static CUresult thread_result;
static CUstreamCaptureMode thread_mode;

static void *thread_alloc(void *context)
{
    CUstreamCaptureMode mode = thread_mode;
    CUdeviceptr memory;

    CHECK_OK(cuCtxSetCurrent(context));
    CHECK_OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    thread_result = cuMemAlloc(&memory, 4096);
    if (!thread_result)
        CHECK_OK(cuMemFree(memory));
    return NULL;
}

/* What cuMemAlloc says here and in another thread of the given mode; whether the capture survives both. */
static void mode_case(CUstreamCaptureMode capture, CUstreamCaptureMode thread, CUresult here, CUresult there)
{
    CUcontext context;
    CUdeviceptr memory = 4096; /* never written where cuMemAlloc is refused, and captured sets check no address */
    pthread_t id;
    CUgraph graph = NULL;

    CHECK_OK(cuCtxGetCurrent(&context));
    thread_mode = thread;
    CHECK_OK(cuStreamBeginCapture(stream, capture));
    CHECK_EQ(pthread_create(&id, NULL, thread_alloc, context), 0);
    pthread_join(id, NULL);
    CHECK_EQ(thread_result, there);
    CHECK_EQ(cuStreamEndCapture(stream, &graph), there ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
    if (graph)
        CHECK_OK(cuGraphDestroy(graph));
    CHECK_OK(cuStreamBeginCapture(stream, capture));
    CHECK_EQ(cuMemAlloc(&memory, 4096), here);
    if (!here)
        CHECK_OK(cuMemFree(memory));
    else
        CHECK_EQ(cuMemsetD8Async(memory, 0, 1, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_EQ(cuStreamEndCapture(stream, &graph), here ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
    CHECK_EQ(!graph, here != 0);
    if (graph)
        CHECK_OK(cuGraphDestroy(graph));
    CHECK_OK(cuStreamBeginCapture(stream, capture));
    CHECK_EQ(cuMemAllocAsync(&memory, 4096, other), here); /* a stream that does not capture */
    CHECK_EQ(cuStreamEndCapture(stream, &graph), here ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
    if (graph)
        CHECK_OK(cuGraphDestroy(graph));
    if (!here)
        CHECK_OK(cuMemFreeAsync(memory, other));
}

/* How much memory is free may be asked: PyTorch does when a request in a capture fails. */
static void questions(void)
{
    size_t left = 0, total = 0;
    CUgraph graph = NULL;

    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_OK(cuMemGetInfo(&left, &total));
    CHECK_OK(cuStreamEndCapture(stream, &graph));
    CHECK_OK(cuGraphDestroy(graph));
}

static void modes(void)
{
    const CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL, local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                              relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    const CUresult no = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, yes = CUDA_SUCCESS;

    mode_case(global, global, no, no);
    mode_case(global, local, no, yes);
    mode_case(global, relaxed, no, yes);
    mode_case(local, global, no, yes);
    mode_case(relaxed, global, yes, yes);
}

struct asked {
    CUcontext context;
    CUevent event;
    CUstreamCaptureMode mode;
    CUresult query, wait;
};

static void *thread_ask(void *data)
{
    struct asked *asked = data;
    CUstreamCaptureMode mode = asked->mode;

    CHECK_OK(cuCtxSetCurrent(asked->context));
    CHECK_OK(cuThreadExchangeStreamCaptureMode(&mode));
    asked->query = cuEventQuery(asked->event);
    asked->wait = cuEventSynchronize(asked->event);
    return NULL;
}

/* An event that has nothing to do with the capture, asked by another thread: refused as an allocation would be. */
static void ask_case(CUevent event, CUstreamCaptureMode capture, CUstreamCaptureMode thread, CUresult expected)
{
    struct asked asked = {.event = event, .mode = thread};
    CUgraph graph = NULL;
    pthread_t id;

    CHECK_OK(cuCtxGetCurrent(&asked.context));
    CHECK_OK(cuStreamBeginCapture(stream, capture));
    CHECK_EQ(pthread_create(&id, NULL, thread_ask, &asked), 0);
    pthread_join(id, NULL);
    CHECK_EQ(asked.query, expected);
    CHECK_EQ(asked.wait, expected);
    CHECK_EQ(cuStreamEndCapture(stream, &graph), expected ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
    if (graph)
        CHECK_OK(cuGraphDestroy(graph));
}

static void asking(void)
{
    const CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL, local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                              relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUevent event;

    CHECK_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK_OK(cuEventRecord(event, other));
    ask_case(event, global, global, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ask_case(event, global, local, CUDA_SUCCESS);
    ask_case(event, global, relaxed, CUDA_SUCCESS);
    ask_case(event, local, global, CUDA_SUCCESS);
    CHECK_OK(cuEventDestroy(event));
}

static void streams(void)
{
    CUevent fork, join, outer;
    CUgraph graph = NULL;
    CUdeviceptr memory;
    size_t edges = 0;

    CHECK_OK(cuMemAlloc(&memory, 4096));
    CHECK_OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CHECK_OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    CHECK_OK(cuEventCreate(&outer, CU_EVENT_DISABLE_TIMING));
    for (int joined = 1; joined >= 0; joined--) {
        CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CHECK_OK(cuMemsetD8Async(memory, 0, 16, stream));
        CHECK_OK(cuEventRecord(fork, stream));
        CHECK_OK(cuStreamWaitEvent(other, fork, 0));
        CHECK_OK(cuMemsetD8Async(memory, 0, 16, other));
        CHECK_OK(cuMemsetD8Async(memory + 16, 0, 16, stream));
        CHECK_OK(cuEventRecord(join, other));
        if (joined)
            CHECK_OK(cuStreamWaitEvent(stream, join, 0));
        CHECK_OK(cuMemsetD8Async(memory, 1, 32, stream));
        CHECK_EQ(cuStreamEndCapture(stream, &graph), joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        if (graph) {
            CHECK_OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
            CHECK_EQ(edges, 4);
            CHECK_OK(cuGraphDestroy(graph));
        }
        CHECK_EQ(cuEventQuery(fork), CUDA_ERROR_CAPTURED_EVENT);
    }
    /* Questions to a capturing stream, foreign events and the legacy stream break the capture. */
    CHECK_OK(cuEventRecord(outer, other));
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_EQ(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_EQ(cuStreamWaitEvent(stream, outer, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQ(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_OK(cuMemFree(memory));
}

static void blocking(void)
{
    CUstream plain;
    CUevent event;
    CUgraph graph;
    CUdeviceptr memory;

    CHECK_OK(cuMemAlloc(&memory, 4096));
    CHECK_OK(cuStreamCreate(&plain, CU_STREAM_DEFAULT));
    CHECK_OK(cuStreamBeginCapture(plain, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_OK(cuMemsetD8Async(memory, 0, 16, other));
    CHECK_EQ(cuMemsetD8Async(memory, 0, 16, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK_EQ(cuStreamEndCapture(plain, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK_OK(cuStreamBeginCapture(plain, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_EQ(cuEventRecord(event, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK_EQ(cuStreamEndCapture(plain, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_OK(cuEventDestroy(event));
    /* A stream that dies takes its capture with it. */
    CHECK_OK(cuStreamBeginCapture(plain, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_OK(cuStreamDestroy(plain));
    CHECK_OK(cuMemFree(memory));
}

static void given_graph(void)
{
    const CUgraphNode *after;
    CUstreamCaptureStatus status;
    CUgraph graph, same;
    CUgraphNode root, nodes[3];
    CUdeviceptr memory;
    size_t count;
    cuuint64_t id;

    CHECK_OK(cuMemAlloc(&memory, 4096));
    CHECK_OK(cuGraphCreate(&graph, 0));
    CHECK_OK(cuGraphAddEmptyNode(&root, graph, NULL, 0));
    CHECK_OK(cuStreamBeginCaptureToGraph(stream, graph, &root, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_OK(cuMemsetD8Async(memory, 0, 16, stream));
    CHECK_OK(cuStreamGetCaptureInfo(stream, &status, &id, &same, &after, NULL, &count));
    CHECK(same == graph && count == 1 && *after != root);
    CHECK_OK(cuStreamUpdateCaptureDependencies(stream, &root, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    CHECK_OK(cuMemsetD8Async(memory + 16, 0, 16, stream));
    CHECK_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuStreamEndCapture(stream, &same));
    CHECK(same == graph);
    count = 3;
    CHECK_OK(cuGraphNodeGetDependentNodes(root, nodes, NULL, &count));
    CHECK_EQ(count, 2);
    CHECK_OK(cuGraphDestroy(graph));
    CHECK_OK(cuMemFree(memory));
}

int main(void)
{
    check_begin(0);
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    watch();
    memory_nodes();
    table->attach(NULL, NULL, NULL);
    modes();
    questions();
    asking();
    streams();
    blocking();
    given_graph();
    return check_done();
}
