/* SPDX-License-Identifier: MIT
 *
 * Green contexts: what is allocated in one belongs to the primary context, and outlives it. The last one
 * holds the only reference to the primary context, which ends with it. Leaves 7 MiB linear and managed from
 * a destroyed green context, and 1 MiB linear.
 */
#include <cuda.h>

#include "finish.h"

static CUgreenCtx green_make(CUdevice device)
{
    CUdevResourceDesc desc;
    CUdevResource resource;
    CUgreenCtx green = NULL;
    CUcontext context = NULL;
    CHECK(cuDeviceGetDevResource(device, &resource, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevResourceGenerateDesc(&desc, &resource, 1));
    CHECK(cuGreenCtxCreate(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK(cuCtxFromGreenCtx(&context, green));
    CHECK(cuCtxSetCurrent(context));
    return green;
}

static void green_use(CUdevice device, CUcontext primary)
{
    CUgreenCtx green = green_make(device);
    CUdeviceptr managed = 0;
    program_alloc(5 * MIB);
    CHECK(cuMemAllocManaged(&managed, 2 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuGreenCtxDestroy(green));
}

int main(void)
{
    CUdevice device = 0;
    CUcontext primary = NULL;
    CUgreenCtx green;
    CUdeviceptr pointer;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&primary, device));
    CHECK(cuCtxSetCurrent(primary));
    green = green_make(device);
    pointer = program_alloc(3 * MIB);
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuGreenCtxDestroy(green));
    CHECK(cuMemFree(pointer));
    green_use(device, primary);
    CHECK(cuDevicePrimaryCtxRelease(device)); /* all of it ends */

    CHECK(cuDevicePrimaryCtxRetain(&primary, device));
    CHECK(cuCtxSetCurrent(primary));
    program_alloc(4 * MIB);
    green = green_make(device);
    program_alloc(4 * MIB);
    CHECK(cuDevicePrimaryCtxRelease(device));
    CHECK(cuGreenCtxDestroy(green)); /* the last reference */

    CHECK(cuDevicePrimaryCtxRetain(&primary, device));
    CHECK(cuCtxSetCurrent(primary));
    green_use(device, primary);
    program_alloc(MIB);
    return finish();
}
