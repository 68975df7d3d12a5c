/* SPDX-License-Identifier: MIT
 *
 * The device's default pool: used bytes follow the calls, reserved bytes the pool's own rules.  A
 * pool's pointer may be freed by cuMemFreeAsync, on another stream, and by cuMemFree; linear memory
 * by cuMemFreeAsync too. No bytes succeed, and are nothing. Leaves 1 MiB + 7 B used.
 */
#include <cuda.h>

#include "finish.h"

int main(void)
{
    CUdeviceptr pointers[5] = {0}, linear = 0;
    CUstream one = NULL, other = NULL;
    CUmemoryPool pool = NULL;
    unsigned i;
    CUdevice device = program_start();
    CHECK(cuStreamCreate(&one, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (i = 0; i < 5; i++)
        CHECK(cuMemAllocAsync(&pointers[i], (i + 1) * MIB + 7, i % 2 ? one : NULL));
    CHECK(cuStreamSynchronize(one));
    CHECK(cuMemFreeAsync(pointers[1], one));
    CHECK(cuMemFreeAsync(pointers[2], other));
    CHECK(cuMemFree(pointers[3]));
    CHECK(cuMemFreeAsync(pointers[4], NULL));
    CHECK(cuStreamSynchronize(other));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemAlloc(&linear, 9 * MIB));
    CHECK(cuMemFreeAsync(linear, one));
    CHECK(cuDeviceGetDefaultMemPool(&pool, device));
    CHECK(cuMemPoolTrimTo(pool, 0));
    REPORT("size 0", cuMemAllocAsync(&pointers[1], 0, one));
    printf("no memory: %d\n", pointers[1] == 0);
    CHECK(cuStreamDestroy(one));
    CHECK(cuStreamDestroy(other));
    return finish();
}
