/* SPDX-License-Identifier: MIT
 *
 * The primary context: the last release and a reset both free what the context owned; addresses
 * then come again. Leaves 7 MiB linear and 2 MiB physical.
 */
#include <cuda.h>

#include "finish.h"
#include "vmm.h"

int main(void)
{
    CUcontext context = NULL;
    CUdevice device = program_start();
    program_alloc(3 * MIB);
    vmm_create(device, STEP);
    CHECK(cuDevicePrimaryCtxRelease(device));

    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    program_alloc(5 * MIB);
    program_alloc(MIB);
    CHECK(cuDevicePrimaryCtxReset(device));

    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    program_alloc(7 * MIB);
    return finish();
}
