/* SPDX-License-Identifier: MIT
 *
 * Stream-ordered memory: the pool's memory is reserved, and a read queries the driver for it.
 * Leaves 1 MiB.
 */
#include <cuda.h>

#include "api.h"

int main(void)
{
    CUmemoryPool pool = NULL;
    CUdeviceptr block = 0, kept = 0;
    uint64_t keep = UINT64_MAX, reserved = 0;
    program_start();
    if (!api_load())
        return 3;
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    CHECK(cuMemAllocAsync(&kept, MIB, NULL));
    CHECK(cuMemAllocAsync(&block, 40 * MIB, NULL));
    CHECK(cuMemFreeAsync(block, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    printf("allocated %lld MiB, peak %lld MiB\n", (long long)api_gpuprof_memory_allocated(0) >> 20,
           (long long)api_gpuprof_max_memory_allocated(0) >> 20);
    printf("reserved is the pool's: %d\n", api_gpuprof_memory_reserved(0) == (int64_t)reserved);
    CHECK(cuMemPoolTrimTo(pool, 0));
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    printf("reserved is the pool's: %d\n", api_gpuprof_memory_reserved(0) == (int64_t)reserved);
    CHECK(api_gpuprof_reset_peak_memory_stats(0));
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &reserved));
    printf("the driver's own high mark stays: %d\n", reserved >= 41 * MIB);
    printf("reset: peaks are current: %d %d\n", api_gpuprof_max_memory_allocated(0) == api_gpuprof_memory_allocated(0),
           api_gpuprof_max_memory_reserved(0) == api_gpuprof_memory_reserved(0));
    return finish();
}
