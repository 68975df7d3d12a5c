/* SPDX-License-Identifier: MIT
 *
 * cuMemAllocAsync on a capturing stream is a graph node, not an allocation from a pool.
 * Leaves a captured graph with 5 MiB of nodes and 1 MiB from the pool.
 */
#include <cuda.h>

#include "finish.h"

int main(void)
{
    CUgraph graph = NULL;
    CUgraphExec run = NULL;
    CUstream stream = NULL;
    CUdeviceptr captured = 0, inner = 0, plain = 0;
    program_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemAllocAsync(&captured, 3 * MIB, stream));
    CHECK(cuMemAllocAsync(&inner, 2 * MIB, stream));
    CHECK(cuMemFreeAsync(inner, stream));
    CHECK(cuMemFreeAsync(captured, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuMemAllocAsync(&plain, MIB, stream));
    CHECK(cuGraphInstantiate(&run, graph, 0));
    CHECK(cuGraphLaunch(run, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(run));
    printf("captured: %d\n", captured != 0 && inner != 0);
    return finish();
}
