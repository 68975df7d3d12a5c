/* SPDX-License-Identifier: MIT
 * Kernels and graphs in motion: parameters as accesses, host functions in order, branches of a graph, child graphs,
 * clones, update, enabling, cycles. */
#include <stdbool.h>

#include "core_check.h"

static const char image[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry touch(.param .u32 n, .param .u64 .ptr .global a, .param .u64 b)\n{ ret; }\n"
    ".visible .entry nothing()\n{ ret; }\n";
static CUstream stream, other;
static CUfunction touch, nothing;
static CUcontext context;
static CUdeviceptr memory;

static long long hazards(void)
{
    return check_number(0, "\"driver_calls\"", "\"hazards\":");
}

static void launches(void)
{
    unsigned int n = 1;
    CUdeviceptr none = 0;
    void *params[] = {&n, &memory, &none};
    struct {
        unsigned int n, pad;
        CUdeviceptr a, b;
    } packed = {1, 0, memory, 0};
    size_t size = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = {
        .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1, .hStream = other};

    CHECK_OK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    CHECK_EQ(cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, stream, params, extra), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchKernel(nothing, 0, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchKernel(nothing, 1, 1, 1, 1025, 1, 1, 0, stream, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_OK(cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_EQ(hazards(), 0);
    CHECK_OK(cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    CHECK_OK(cuLaunchKernelEx(&config, touch, NULL, extra)); /* the same memory, unordered */
    CHECK_EQ(hazards(), 1);
    CHECK_OK(cuCtxSynchronize());
    CHECK_OK(cuCtxSynchronize_v2(context));
}

static int order[8], ordered;

static void note(void *which)
{
    order[ordered++] = (int)(intptr_t)which;
}

static void callback(CUstream s, CUresult status, void *which)
{
    CHECK(s == stream && status == CUDA_SUCCESS);
    note(which);
}

/* Two branches between a root and an end, a host function on each. */
static void branches(bool touching)
{
    CUDA_KERNEL_NODE_PARAMS kernel = {
        .func = touch, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
    CUDA_HOST_NODE_PARAMS host = {note, (void *)1};
    CUDA_KERNEL_NODE_PARAMS seen;
    unsigned int n = 3;
    CUdeviceptr none = 0;
    void *params[] = {&n, touching ? &memory : &none, &none};
    long long before = hazards();
    CUgraphNode root, left, right, end[2];
    CUgraphExec exec;
    CUgraph graph;

    kernel.kernelParams = params;
    CHECK_OK(cuGraphCreate(&graph, 0));
    CHECK_OK(cuGraphAddEmptyNode(&root, graph, NULL, 0));
    CHECK_OK(cuGraphAddKernelNode(&left, graph, &root, 1, &kernel));
    CHECK_OK(cuGraphAddKernelNode(&right, graph, &root, 1, &kernel));
    n = 4; /* the node has its own copy */
    CHECK_OK(cuGraphKernelNodeGetParams(left, &seen));
    CHECK_EQ(*(unsigned int *)seen.kernelParams[0], 3);
    end[0] = left;
    end[1] = right;
    CHECK_OK(cuGraphAddHostNode(&end[0], graph, end, 2, &host));
    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    ordered = 0;
    CHECK_OK(cuLaunchHostFunc(stream, note, (void *)0));
    CHECK_OK(cuGraphLaunch(exec, stream));
    CHECK_OK(cuStreamAddCallback(stream, callback, (void *)2, 0));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK(ordered == 3 && order[0] == 0 && order[1] == 1 && order[2] == 2);
    CHECK_EQ(hazards() - before, touching);
    CHECK_OK(cuGraphNodeSetEnabled(exec, right, 0));
    CHECK_OK(cuGraphLaunch(exec, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_EQ(hazards() - before, touching);
    CHECK_OK(cuGraphExecDestroy(exec));
    CHECK_OK(cuGraphDestroy(graph));
}

static CUgraph fill_graph(unsigned int value, CUgraphNode *node)
{
    CUDA_MEMSET_NODE_PARAMS set = {.dst = memory, .value = value, .elementSize = 1, .width = 64, .height = 1};
    CUgraph graph;

    CHECK_OK(cuGraphCreate(&graph, 0));
    CHECK_OK(cuGraphAddMemsetNode(node, graph, NULL, 0, &set, context));
    return graph;
}

static int byte_after(CUgraphExec exec)
{
    unsigned char byte = 0;

    CHECK_OK(cuMemsetD8(memory, 0, 64));
    CHECK_OK(cuGraphLaunch(exec, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuMemcpyDtoH(&byte, memory + 63, 1));
    return byte;
}

static void changes(void)
{
    CUgraphExecUpdateResultInfo info;
    CUgraphNode node, new_node, found, child, pair[2];
    CUDA_MEMSET_NODE_PARAMS set;
    CUgraph graph = fill_graph(5, &node), update = fill_graph(6, &new_node), clone, parent;
    CUgraphExec exec, parent_exec;

    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    CHECK_EQ(byte_after(exec), 5);
    CHECK_OK(cuGraphMemsetNodeGetParams(node, &set));
    set.value = 8;
    CHECK_OK(cuGraphExecMemsetNodeSetParams(exec, node, &set, context));
    CHECK_EQ(byte_after(exec), 8);
    CHECK_OK(cuGraphExecUpdate(exec, update, &info));
    CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    CHECK_EQ(byte_after(exec), 6);
    CHECK_OK(cuGraphExecMemsetNodeSetParams(exec, node, &set, context));
    CHECK_EQ(byte_after(exec), 8);
    CHECK_OK(cuGraphAddEmptyNode(&pair[0], update, NULL, 0));
    CHECK_EQ(cuGraphExecUpdate(exec, update, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    CHECK_OK(cuGraphClone(&clone, graph));
    CHECK_OK(cuGraphNodeFindInClone(&found, node, clone));
    CHECK(found && found != node);
    CHECK_OK(cuGraphDestroy(graph)); /* the exec goes on */
    CHECK_EQ(byte_after(exec), 8);
    CHECK_OK(cuGraphCreate(&parent, 0));
    CHECK_OK(cuGraphAddChildGraphNode(&child, parent, NULL, 0, clone));
    CHECK_OK(cuGraphInstantiate(&parent_exec, parent, 0));
    CHECK_EQ(byte_after(parent_exec), 5);
    CHECK_OK(cuGraphExecDestroy(parent_exec));
    CHECK_EQ(cuGraphLaunch(parent_exec, stream), CUDA_ERROR_INVALID_VALUE);
    /* A cycle cannot run. */
    CHECK_OK(cuGraphAddEmptyNode(&pair[1], update, &pair[0], 1));
    CHECK_OK(cuGraphAddDependencies(update, &pair[1], &pair[0], NULL, 1));
    CHECK_EQ(cuGraphInstantiate(&parent_exec, update, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuGraphRemoveDependencies(update, &pair[1], &pair[0], NULL, 1));
    CHECK_OK(cuGraphDestroyNode(pair[0]));
    CHECK_OK(cuGraphInstantiate(&parent_exec, update, 0));
    CHECK_EQ(byte_after(parent_exec), 6);
    CHECK_OK(cuGraphExecDestroy(parent_exec));
    CHECK_OK(cuGraphExecDestroy(exec));
    CHECK_OK(cuGraphDestroy(parent));
    CHECK_OK(cuGraphDestroy(update));
    CHECK_OK(cuGraphDestroy(clone));
}

int main(void)
{
    CUmodule module;

    context = check_begin(0);
    CHECK_OK(cuModuleLoadData(&module, image));
    CHECK_OK(cuModuleGetFunction(&touch, module, "touch"));
    CHECK_OK(cuModuleGetFunction(&nothing, module, "nothing"));
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuMemAlloc(&memory, 4096));
    launches();
    branches(false);
    branches(true);
    changes();
    CHECK_OK(cuMemFree(memory));
    return check_done();
}
