/* SPDX-License-Identifier: MIT
 * Graph memory: address at the node, pages at the launch, kept until trimmed; frees inside, outside and on relaunch. */
#include "core_check.h"

static CUstream stream;

static uint64_t attribute(CUgraphMem_attribute which)
{
    cuuint64_t value = UINT64_MAX;

    CHECK_OK(cuDeviceGetGraphMemAttribute(0, which, &value));
    return value;
}

static CUdeviceptr node_alloc(CUgraph graph, CUgraphNode *node, size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS shape = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = bytes};

    CHECK_OK(cuGraphAddMemAllocNode(node, graph, NULL, 0, &shape));
    CHECK(shape.dptr);
    return shape.dptr;
}

/* The set on the memory runs between allocation and free. */
static void inside(void)
{
    CUDA_MEMSET_NODE_PARAMS set = {.value = 7, .elementSize = 1, .width = CHECK_MIB, .height = 1};
    CUgraphNode alloc, fill, end, again;
    CUdeviceptr memory;
    CUcontext context;
    CUgraph graph, clone;
    CUgraphExec exec, second;

    CHECK_OK(cuCtxGetCurrent(&context));
    CHECK_OK(cuGraphCreate(&graph, 0));
    memory = node_alloc(graph, &alloc, 3 * CHECK_MIB);
    set.dst = memory;
    CHECK_OK(cuGraphAddMemsetNode(&fill, graph, &alloc, 1, &set, context));
    CHECK_OK(cuGraphAddMemFreeNode(&end, graph, &fill, 1, memory));
    CHECK_EQ(cuGraphAddMemFreeNode(&again, graph, &end, 1, memory), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphAddMemFreeNode(&again, graph, &end, 1, memory + 512), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(check_kind(0, "graph", "current_bytes"), 3 * CHECK_MIB);
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0);
    CHECK_EQ(cuMemsetD8(memory, 0, 16), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphClone(&clone, graph), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphDestroyNode(fill), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphRemoveDependencies(graph, &alloc, &fill, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    CHECK_EQ(cuGraphInstantiate(&second, graph, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(check_reserved(0, "\"current\":"), 0);
    for (int i = 0; i < 3; i++)
        CHECK_OK(cuGraphLaunch(exec, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 3 * CHECK_MIB);
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 4 * CHECK_MIB);
    CHECK_EQ(check_reserved(0, "\"current\":"), 4 * CHECK_MIB);
    CHECK_EQ(check_allocated(0, "\"peak\":"), 3 * CHECK_MIB);
    CHECK_EQ(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuGraphExecDestroy(exec));
    CHECK_OK(cuGraphDestroy(graph));
    CHECK_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(check_kind(0, "graph", "current_bytes"), 0);
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 4 * CHECK_MIB);
    CHECK_OK(cuDeviceGraphMemTrim(0));
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0);
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 4 * CHECK_MIB);
    CHECK_EQ(check_reserved(0, "\"current\":"), 0);
}

/* Memory that outlives the launch: used until freed, in whatever way. */
static void outside(void)
{
    CUgraph graph, other;
    CUgraphExec exec, ender;
    CUgraphNode node;
    CUdeviceptr memory;
    unsigned char byte = 0;

    CHECK_OK(cuGraphCreate(&graph, 0));
    memory = node_alloc(graph, &node, 2 * CHECK_MIB);
    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    CHECK_OK(cuGraphUpload(exec, stream));
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 2 * CHECK_MIB);
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    CHECK_EQ(cuMemFreeAsync(memory, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuGraphLaunch(exec, stream));
    CHECK_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 2 * CHECK_MIB);
    CHECK_OK(cuMemsetD8Async(memory, 9, 4096, stream));
    CHECK_OK(cuDeviceGraphMemTrim(0)); /* live: stays */
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 2 * CHECK_MIB);
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuMemcpyDtoH(&byte, memory + 4095, 1));
    CHECK_EQ(byte, 9);
    CHECK_OK(cuMemFreeAsync(memory, stream));
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    CHECK_OK(cuGraphLaunch(exec, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuMemFree(memory));
    /* Freed by another graph. */
    CHECK_OK(cuGraphCreate(&other, 0));
    CHECK_OK(cuGraphAddMemFreeNode(&node, other, NULL, 0, memory));
    CHECK_OK(cuGraphInstantiate(&ender, other, 0));
    CHECK_EQ(cuGraphLaunch(ender, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuGraphLaunch(exec, stream));
    CHECK_OK(cuGraphLaunch(ender, stream));
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    /* A live allocation survives its graph and its exec. */
    CHECK_OK(cuGraphLaunch(exec, stream));
    CHECK_OK(cuGraphExecDestroy(ender));
    CHECK_OK(cuGraphDestroy(other));
    CHECK_OK(cuGraphExecDestroy(exec));
    CHECK_OK(cuGraphDestroy(graph));
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 2 * CHECK_MIB);
    CHECK_OK(cuMemFreeAsync(memory, stream));
    CHECK_EQ(cuMemFreeAsync(memory, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuDeviceGraphMemTrim(0));
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0);
}

static void relaunch(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUdeviceptr memory;
    cuuint64_t zero = 0, one = 1;

    CHECK_OK(cuGraphCreate(&graph, 0));
    memory = node_alloc(graph, &node, 2 * CHECK_MIB);
    CHECK_EQ(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    CHECK_OK(cuGraphLaunch(exec, stream));
    CHECK_OK(cuGraphLaunch(exec, stream));
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 2 * CHECK_MIB);
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuMemFree(memory));
    CHECK_EQ(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 0);
    CHECK_EQ(cuDeviceGraphMemTrim(77), CUDA_ERROR_INVALID_DEVICE);
    CHECK_OK(cuGraphExecDestroy(exec));
    CHECK_OK(cuGraphDestroy(graph));
    CHECK_OK(cuDeviceGraphMemTrim(0));
}

/* A launch that does not fit takes nothing; what other graphs cache is given up for it. */
static void short_of_memory(void)
{
    size_t before, after, total;
    CUgraph graph, big;
    CUgraphExec exec, big_exec;
    CUgraphNode node;
    CUdeviceptr memory;

    CHECK_OK(cuMemGetInfo(&before, &total));
    CHECK_OK(cuGraphCreate(&graph, 0));
    memory = node_alloc(graph, &node, before / 2);
    CHECK_OK(cuGraphAddMemFreeNode(&node, graph, &node, 1, memory));
    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    CHECK_OK(cuGraphLaunch(exec, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuGraphCreate(&big, 0));
    node_alloc(big, &node, before / 2 + 64 * CHECK_MIB);
    node_alloc(big, &node, before / 2);
    CHECK_OK(cuGraphInstantiate(&big_exec, big, 0));
    CHECK_EQ(cuGraphLaunch(big_exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    CHECK_OK(cuDeviceGraphMemTrim(0));
    CHECK_OK(cuMemGetInfo(&after, &total));
    CHECK_EQ(after, before);
    CHECK_OK(cuGraphExecDestroy(big_exec));
    CHECK_OK(cuGraphExecDestroy(exec));
    CHECK_OK(cuGraphDestroy(big));
    CHECK_OK(cuGraphDestroy(graph));
}

int main(void)
{
    check_begin(0);
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    inside();
    outside();
    relaunch();
    short_of_memory();
    CHECK_EQ(check_number(0, "\"driver_calls\"", "\"hazards\":"), 0);
    return check_done();
}
