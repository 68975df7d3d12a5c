/* SPDX-License-Identifier: MIT
 *
 * Every device of the machine, with different amounts, by linear memory (the context's device) and
 * by cuMemCreate (the device that the call names, whatever is current). Leaves (i + 1) MiB linear
 * and 2 MiB physical on device i; the physical memory is made while device 0 is current.
 */
#include <cuda.h>

#include "finish.h"
#include "vmm.h"

int main(void)
{
    CUcontext context = NULL;
    CUdeviceptr gone;
    int count = 0, i;
    program_start();
    CHECK(cuDeviceGetCount(&count));
    for (i = 0; i < count; i++) {
        CHECK(cuDevicePrimaryCtxRetain(&context, i));
        CHECK(cuCtxSetCurrent(context));
        program_alloc((size_t)(i + 1) * MIB);
        gone = program_alloc((size_t)(count - i) * MIB);
        CHECK(cuMemFree(gone));
    }
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    for (i = 0; i < count; i++)
        vmm_create(i, STEP);
    return finish();
}
