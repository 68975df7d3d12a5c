/* SPDX-License-Identifier: MIT
 *
 * plugged.c: a plug-in that is linked to the driver (plugged.c of the programs).
 */
#include <cuda.h>

int plugged_take(size_t bytes);

int plugged_take(size_t bytes)
{
    CUdeviceptr pointer;
    CUcontext context;
    int failed = cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
    return failed || cuMemAlloc(&pointer, bytes);
}
