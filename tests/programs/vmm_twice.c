/* SPDX-License-Identifier: MIT
 *
 * One physical handle mapped at two addresses: its bytes are reserved once and allocated once.
 * Leaves 4 MiB physical mapped twice, 2 MiB physical never mapped, 16 MiB of addresses.
 */
#include <cuda.h>

#include "finish.h"
#include "vmm.h"

int main(void)
{
    CUdevice device = program_start();
    CUmemGenericAllocationHandle handle = vmm_create(device, 2 * STEP);
    CUdeviceptr range = vmm_reserve(8 * STEP);
    unsigned value = 0;
    vmm_create(device, STEP);
    CHECK(cuMemMap(range, 2 * STEP, 0, handle, 0));
    CHECK(cuMemMap(range + 4 * STEP, 2 * STEP, 0, handle, 0));
    vmm_allow(device, range, 2 * STEP);
    vmm_allow(device, range + 4 * STEP, 2 * STEP);
    CHECK(cuMemsetD32(range, 0x1234, 16));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(&value, range + 4 * STEP, sizeof(value)));
    printf("alias: %x\n", value);

    CHECK(cuMemUnmap(range, 2 * STEP));
    CHECK(cuMemMap(range + 2 * STEP, 2 * STEP, 0, handle, 0));
    REPORT("mapped there already", cuMemMap(range + 2 * STEP, 2 * STEP, 0, handle, 0));
    REPORT("odd size", cuMemMap(range, STEP + 4096, 0, handle, 0));
    return finish();
}
