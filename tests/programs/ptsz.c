/* SPDX-License-Identifier: MIT
 *
 * Compiled for per-thread default streams: the _ptsz entry points are other functions with other
 * callback ids. Leaves 2 MiB used from the pool and a captured graph with 1 MiB.
 */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#include <cuda.h>

#include "finish.h"

int main(void)
{
    CUdeviceptr kept = 0, gone = 0, pooled = 0, captured = 0;
    CUgraph graph = NULL;
    CUmemoryPool pool = NULL;
    CUdevice device = program_start();
    CUstream stream = NULL;
    CHECK(cuMemAllocAsync(&kept, 2 * MIB, NULL));
    CHECK(cuMemAllocAsync(&gone, 3 * MIB, CU_STREAM_PER_THREAD));
    CHECK(cuDeviceGetDefaultMemPool(&pool, device));
    CHECK(cuMemAllocFromPoolAsync(&pooled, 5 * MIB, pool, NULL));
    CHECK(cuMemFreeAsync(gone, NULL));
    CHECK(cuMemFreeAsync(pooled, NULL));
    CHECK(cuStreamSynchronize(NULL));

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemAllocAsync(&captured, MIB, stream));
    CHECK(cuMemFreeAsync(captured, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuStreamDestroy(stream));
    return finish();
}
