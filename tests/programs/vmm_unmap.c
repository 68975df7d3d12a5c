/* SPDX-License-Identifier: MIT
 *
 * Expandable-segment style: many handles side by side, one unmap over several, none cut in two;
 * part of a handle mapped; addresses freed. Leaves 3 mapped steps of 8, and a handle of which one
 * half is mapped.
 */
#include <cuda.h>

#include "finish.h"
#include "vmm.h"

int main(void)
{
    CUdevice device = program_start();
    CUdeviceptr range = vmm_reserve(32 * STEP), spare = vmm_reserve(4 * STEP);
    CUmemGenericAllocationHandle handles[8], half;
    unsigned i;
    for (i = 0; i < 8; i++) {
        handles[i] = vmm_create(device, STEP);
        CHECK(cuMemMap(range + i * STEP, STEP, 0, handles[i], 0));
        CHECK(cuMemRelease(handles[i]));
    }
    vmm_allow(device, range, 8 * STEP);
    CHECK(cuMemUnmap(range + 2 * STEP, 5 * STEP));

    half = vmm_create(device, 4 * STEP);
    CHECK(cuMemMap(range + 16 * STEP, 2 * STEP, 0, half, 0));
    REPORT("cuts a mapping", cuMemUnmap(range + 16 * STEP, STEP));
    REPORT("odd address", cuMemMap(range + 20 * STEP + 4096, STEP, 0, half, 0));
    CHECK(cuMemAddressFree(spare, 4 * STEP));
    return finish();
}
