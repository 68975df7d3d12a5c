/* SPDX-License-Identifier: MIT
 *
 * Pools of the program's own: release threshold, trim, a pool made current, and one destroyed while
 * an allocation lives (it goes when the last allocation does). Leaves 4 MiB used from the kept
 * pool; its threshold keeps more reserved.
 */
#include <cuda.h>

#include "make.h"

int main(void)
{
    CUdeviceptr kept = 0, gone = 0, orphan = 0, current = 0;
    CUstream stream = NULL;
    cuuint64_t threshold = 64 * MIB;

    CUdevice device = program_start();
    CUmemoryPool pool = pool_make(device), doomed = pool_make(device), before = NULL;

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CHECK(cuMemAllocFromPoolAsync(&kept, 4 * MIB, pool, stream));
    CHECK(cuMemAllocFromPoolAsync(&gone, 9 * MIB, pool, stream));
    CHECK(cuMemAllocFromPoolAsync(&orphan, 3 * MIB, doomed, stream));
    CHECK(cuMemFreeAsync(gone, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemPoolTrimTo(pool, 8 * MIB));

    CHECK(cuMemPoolDestroy(doomed));
    CHECK(cuMemFreeAsync(orphan, stream));
    CHECK(cuStreamSynchronize(stream));

    CHECK(cuDeviceGetMemPool(&before, device));
    CHECK(cuDeviceSetMemPool(device, pool));
    CHECK(cuMemAllocAsync(&current, 2 * MIB, stream));
    CHECK(cuMemFreeAsync(current, stream));
    CHECK(cuDeviceSetMemPool(device, before));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
    return finish();
}
