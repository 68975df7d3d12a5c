/* SPDX-License-Identifier: MIT
 *
 * A stream-ordered allocation belongs to the device of its stream, and one from a named pool to the
 * pool's device, whatever context is current.  Needs two devices; with one it only says so. Leaves
 * 3 MiB used on device 1 by its stream, 5 MiB used on device 1 from its pool, 1 MiB used on device
 * 0.
 */
#include <cuda.h>

#include "make.h"

int main(void)
{
    CUcontext other = NULL, first = NULL;
    CUdeviceptr by_stream = 0, by_pool = 0, own = 0;
    CUmemoryPool pool = NULL;
    CUstream there = NULL, here = NULL;
    int count = 0;
    program_start();
    CHECK(cuCtxGetCurrent(&first));
    CHECK(cuDeviceGetCount(&count));
    if (count < 2) {
        printf("one device\n");
        return finish();
    }
    CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cuCtxSetCurrent(other));
    CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    CHECK(cuCtxSetCurrent(first));
    CHECK(cuStreamCreate(&here, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocAsync(&by_stream, 3 * MIB, there));

    pool = pool_make(1);
    CHECK(cuMemAllocFromPoolAsync(&by_pool, 5 * MIB, pool, here));
    CHECK(cuMemAllocAsync(&own, MIB, here));
    CHECK(cuStreamSynchronize(here));
    CHECK(cuStreamSynchronize(there));
    return finish();
}
