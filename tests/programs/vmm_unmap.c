/* SPDX-License-Identifier: MIT
 *
 * Expandable-segment style: many handles side by side, one unmap over several, one over a hole and
 * a mapping, none cut in two; part of a handle, which cannot be mapped; addresses freed. Leaves 2
 * mapped steps of 8, and a handle of 4.
 */
#include <cuda.h>

#include "finish.h"
#include "vmm.h"

int main(void)
{
    CUdevice device = program_start();
    CUdeviceptr range = vmm_reserve(32 * STEP), spare = vmm_reserve(4 * STEP);
    CUmemGenericAllocationHandle handles[8], whole;
    unsigned i;
    for (i = 0; i < 8; i++) {
        handles[i] = vmm_create(device, STEP);
        CHECK(cuMemMap(range + i * STEP, STEP, 0, handles[i], 0));
        CHECK(cuMemRelease(handles[i]));
    }
    vmm_allow(device, range, 8 * STEP);
    CHECK(cuMemUnmap(range + 2 * STEP, 5 * STEP));
    REPORT("nothing is mapped", cuMemUnmap(range + 8 * STEP, STEP));
    REPORT("from a hole on", cuMemUnmap(range + 4 * STEP, 4 * STEP));

    whole = vmm_create(device, 4 * STEP);
    REPORT("half of a handle", cuMemMap(range + 16 * STEP, 2 * STEP, 0, whole, 0));
    CHECK(cuMemMap(range + 16 * STEP, 4 * STEP, 0, whole, 0));
    REPORT("cuts a mapping", cuMemUnmap(range + 16 * STEP, STEP));
    REPORT("odd address", cuMemMap(range + 20 * STEP + 4096, STEP, 0, whole, 0));
    CHECK(cuMemAddressFree(spare, 4 * STEP));
    return finish();
}
