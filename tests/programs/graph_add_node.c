/* SPDX-License-Identifier: MIT
 *
 * The generic cuGraphAddNode makes an allocation node too; memory that outlives its launch is freed
 * outside the graph, and trimming gives cached graph memory back. Leaves the graph with its 4 MiB
 * node, memory freed and trimmed.
 */
#include <cuda.h>

#include "finish.h"

int main(void)
{
    CUdevice device = program_start();
    CUgraph graph = NULL;
    CUgraphExec run = NULL;
    CUgraphNode node = NULL;
    CUgraphNodeParams shape;
    CUstream stream = NULL;
    memset(&shape, 0, sizeof(shape));
    shape.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    shape.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    shape.alloc.poolProps.location.id = device;
    shape.alloc.bytesize = 4 * MIB;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuGraphCreate(&graph, 0));
#if CUDA_VERSION >= 13000
    CHECK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &shape));
#else
    CHECK(cuGraphAddNode(&node, graph, NULL, 0, &shape));
#endif
    CHECK(cuGraphInstantiate(&run, graph, 0));
    CHECK(cuGraphLaunch(run, stream));
    CHECK(cuMemFreeAsync(shape.alloc.dptr, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphLaunch(run, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(shape.alloc.dptr));
    CHECK(cuCtxSynchronize());
    CHECK(cuGraphExecDestroy(run));
    CHECK(cuDeviceGraphMemTrim(device));
    CHECK(cuStreamDestroy(stream));
    return finish();
}
