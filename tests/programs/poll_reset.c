/* SPDX-License-Identifier: MIT
 *
 * Resets the device while gpuprof polls pools, made with each context anew: on the simulated GPU with reset=pools a
 * question about a pool from before a reset aborts. The last pool is used, and its 64 MiB are held, at the end.
 */
#include <cuda.h>
#include <time.h>

#include "make.h"

static void reset_wait(void)
{
    struct timespec time = {0, 350000000}; /* three polls follow the last event of a pool */

    nanosleep(&time, NULL);
}

int main(void)
{
    CUdeviceptr pointer = 0;
    CUcontext context;
    CUdevice device;
    int i;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    for (i = 0; i < 4; i++) {
        CHECK(cuDevicePrimaryCtxRetain(&context, device));
        CHECK(cuCtxSetCurrent(context));
        CHECK(cuMemAllocFromPoolAsync(&pointer, 64 * MIB, pool_make(device), NULL));
        CHECK(cuMemAllocAsync(&pointer, MIB, NULL));
        if (i == 3)
            break;
        CHECK(cuMemFreeAsync(pointer, NULL));
        CHECK(i % 2 ? cuDevicePrimaryCtxRelease(device) : cuDevicePrimaryCtxReset(device));
        reset_wait();
    }
    reset_wait();
    return finish();
}
