/* SPDX-License-Identifier: MIT
 *
 * Runtime API compiled for per-thread default streams.
 * Leaves 2 MiB used from the default pool and 1 MiB linear.
 */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#include <cuda_runtime_api.h>

#include "finish.h"

int main(void)
{
    void *kept = NULL, *gone = NULL, *linear = NULL;
    CHECK(cudaMalloc(&linear, MIB));
    CHECK(cudaMallocAsync(&kept, 2 * MIB, 0));
    CHECK(cudaMallocAsync(&gone, 4 * MIB, cudaStreamPerThread));
    CHECK(cudaFreeAsync(gone, 0));
    CHECK(cudaStreamSynchronize(0));
    return finish();
}
