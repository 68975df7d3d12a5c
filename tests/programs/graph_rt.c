/* SPDX-License-Identifier: MIT
 *
 * Runtime API: a captured allocation is a graph node; launching maps memory that the device keeps
 * until trimmed. Leaves the captured graph with its 4 MiB node.
 */
#include <cuda_runtime_api.h>

#include "finish.h"

int main(void)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t run = NULL;
    cudaStream_t stream = NULL;
    void *captured = NULL;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMallocAsync(&captured, 4 * MIB, stream));
    CHECK(cudaFreeAsync(captured, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&run, graph, 0));
    CHECK(cudaGraphLaunch(run, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(run));
    CHECK(cudaDeviceGraphMemTrim(0));
    return finish();
}
