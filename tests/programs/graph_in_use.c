/* SPDX-License-Identifier: MIT
 *
 * graph_in_use [freed]: 10 MiB, and a graph that allocates 64 MiB when it runs and frees them in no node: they stay in
 * use. freed: a node frees them, so no poll sees them in use. Prints what the statistics say, in MiB.
 */
#include <cuda.h>

#include "api.h"

int main(int argc, char **argv)
{
    CUDA_MEM_ALLOC_NODE_PARAMS shape;
    CUdevice device = program_start();
    CUgraph graph = NULL;
    CUgraphExec run = NULL;
    CUgraphNode node = NULL, end = NULL;
    CUstream stream = NULL;
    memset(&shape, 0, sizeof(shape));
    shape.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    shape.poolProps.location.id = device;
    shape.bytesize = 64 * MIB;
    program_alloc(10 * MIB);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &shape));
    if (argc > 1 && strcmp(argv[1], "freed") == 0)
        CHECK(cuGraphAddMemFreeNode(&end, graph, &node, 1, shape.dptr));
    CHECK(cuGraphInstantiate(&run, graph, 0));
    CHECK(cuGraphLaunch(run, stream));
    CHECK(cuStreamSynchronize(stream));
    if (api_load())
        printf("%lld %lld\n", (long long)(api_gpuprof_max_memory_allocated(device) / (int64_t)MIB),
               (long long)(api_gpuprof_max_memory_reserved(device) / (int64_t)MIB));
    return finish();
}
