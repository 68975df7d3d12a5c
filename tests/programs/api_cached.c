/* SPDX-License-Identifier: MIT
 *
 * Where memory is sub-allocated, allocated and reserved part: a freed block stays reserved until
 * the cache is emptied, and each has its own peak.  Leaves nothing.
 */
#include <cuda.h>

#include "api.h"

int main(void)
{
    long long reserved;
    int64_t free_bytes = 0, total_bytes = 0;
    size_t free_now = 0, total_now = 0;
    void *block = NULL;
    program_start();
    if (!api_load())
        return 3;
    CHECK(api_gpuprof_alloc(&block, 6 * MIB, 0, NULL));
    reserved = api_gpuprof_memory_reserved(0);
    printf("allocated %lld MiB, reserved at least as much: %d\n", (long long)api_gpuprof_memory_allocated(0) >> 20,
           reserved >= (long long)(6 * MIB));
    CHECK(api_gpuprof_free(block));
    printf("freed: allocated %lld, reserved stays: %d\n", (long long)api_gpuprof_memory_allocated(0),
           (long long)api_gpuprof_memory_reserved(0) == reserved);
    CHECK(api_gpuprof_reset_max_memory_allocated(0));
    printf("reset allocated: peak %lld, reserved peak stays: %d\n", (long long)api_gpuprof_max_memory_allocated(0),
           (long long)api_gpuprof_max_memory_reserved(0) == reserved);
    CHECK(api_gpuprof_empty_cache(0));
    printf("emptied: reserved %lld, peak stays: %d\n", (long long)api_gpuprof_memory_reserved(0),
           (long long)api_gpuprof_max_memory_reserved(0) == reserved);
    CHECK(api_gpuprof_reset_max_memory_reserved(0));
    printf("reset reserved: peak %lld\n", (long long)api_gpuprof_max_memory_reserved(0));
    CHECK(api_gpuprof_mem_get_info(0, &free_bytes, &total_bytes));
    CHECK(cuMemGetInfo(&free_now, &total_now));
    printf("the driver's numbers: %d %d\n", free_bytes == (int64_t)free_now, total_bytes == (int64_t)total_now);
    CHECK(cuCtxSetCurrent(NULL));
    free_bytes = 0;
    CHECK(api_gpuprof_mem_get_info(0, &free_bytes, NULL));
    printf("without a current context: %d\n", free_bytes == (int64_t)free_now);
    REPORT("no such device", api_gpuprof_mem_get_info(63, &free_bytes, &total_bytes));
    return finish();
}
