/* SPDX-License-Identifier: MIT
 *
 * Destroying a context frees its linear, pitched, array, managed and host memory without a single
 * free call; VMM and pool memory survive. Leaves 1 MiB linear in the second context, 2 MiB physical
 * and 3 MiB of the pool from the destroyed one.
 */
#include <cuda.h>

#include "make.h"
#include "vmm.h"

static void context_fill(CUdevice device)
{
    CUDA_ARRAY_DESCRIPTOR shape;
    CUarray array = NULL;
    CUdeviceptr pointer = 0;
    size_t pitch = 0;
    void *host = NULL;
    program_alloc(5 * MIB);
    program_alloc(100);
    CHECK(cuMemAllocPitch(&pointer, &pitch, 1000, 100, 4));
    CHECK(cuMemAllocManaged(&pointer, 2 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemHostAlloc(&host, MIB, 0));
    memset(&shape, 0, sizeof(shape));
    shape.Width = 256;
    shape.Height = 256;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    CHECK(cuArrayCreate(&array, &shape));
    vmm_create(device, STEP);
    CHECK(cuMemAllocAsync(&pointer, 3 * MIB, NULL));
    CHECK(cuCtxSynchronize());
}

int main(void)
{
    CUdevice device = 0;
    CUcontext doomed, kept;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    kept = context_make(device);
    program_alloc(MIB);
    doomed = context_make(device);
    context_fill(device);
    CHECK(cuCtxDestroy(doomed));
    CHECK(cuCtxSetCurrent(kept));
    return finish();
}
