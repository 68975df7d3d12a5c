/* SPDX-License-Identifier: MIT
 *
 * Allocation nodes of a CUDA graph: addresses are given when the node is added, memory when the
 * graph runs, and the device keeps it until trimmed. Leaves one graph with 8 MiB of nodes,
 * launched; the other graph is gone.
 */
#include <cuda.h>

#include "finish.h"

static CUdeviceptr node_add(CUgraph graph, CUgraphNode *node, CUgraphNode *after, CUdevice device, size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS shape;
    memset(&shape, 0, sizeof(shape));
    shape.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    shape.poolProps.location.id = device;
    shape.bytesize = bytes;
    CHECK(cuGraphAddMemAllocNode(node, graph, after, after != NULL, &shape));
    return shape.dptr;
}

int main(void)
{
    CUdevice device = program_start();
    CUgraph kept = NULL, gone = NULL;
    CUgraphExec run = NULL;
    CUgraphNode first = NULL, second = NULL, end = NULL;
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuGraphCreate(&kept, 0));
    CHECK(cuGraphCreate(&gone, 0));
    CUdeviceptr one = node_add(kept, &first, NULL, device, 6 * MIB);
    CUdeviceptr two = node_add(kept, &second, &first, device, 2 * MIB);
    CHECK(cuGraphAddMemFreeNode(&end, kept, &second, 1, one));
    CHECK(cuGraphAddMemFreeNode(&end, kept, &end, 1, two));
    node_add(gone, &first, NULL, device, 32 * MIB);

    CHECK(cuGraphInstantiate(&run, kept, 0));
    CHECK(cuGraphLaunch(run, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphLaunch(run, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphDestroy(gone));
    CHECK(cuGraphExecDestroy(run));
    CHECK(cuStreamDestroy(stream));
    printf("addresses: %d %d\n", one != 0, two != 0);
    return finish();
}
