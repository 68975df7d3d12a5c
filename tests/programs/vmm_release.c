/* SPDX-License-Identifier: MIT
 *
 * A handle released while mapped lives until its last mapping goes; retain counts references.
 * Leaves 2 MiB alive only through a mapping and 6 MiB only through a retained reference.
 */
#include <cuda.h>

#include "finish.h"
#include "vmm.h"

int main(void)
{
    CUdevice device = program_start();
    CUdeviceptr range = vmm_reserve(16 * STEP);
    CUmemGenericAllocationHandle mapped = vmm_create(device, STEP);
    CUmemGenericAllocationHandle gone = vmm_create(device, 2 * STEP);
    CUmemGenericAllocationHandle kept = vmm_create(device, 3 * STEP);
    CUmemGenericAllocationHandle again = 0;
    CHECK(cuMemMap(range, STEP, 0, mapped, 0));
    CHECK(cuMemRelease(mapped));

    CHECK(cuMemMap(range + 2 * STEP, 2 * STEP, 0, gone, 0));
    CHECK(cuMemRelease(gone));
    CHECK(cuMemUnmap(range + 2 * STEP, 2 * STEP)); /* this is what frees it */

    CHECK(cuMemMap(range + 8 * STEP, 3 * STEP, 0, kept, 0));
    vmm_allow(device, range + 8 * STEP, 3 * STEP);
    CHECK(cuMemRetainAllocationHandle(&again, (void *)(range + 9 * STEP)));
    printf("same handle: %d\n", again == kept);
    CHECK(cuMemRelease(kept));
    CHECK(cuMemUnmap(range + 8 * STEP, 3 * STEP));
    REPORT("address range in use", cuMemAddressFree(range, 16 * STEP));
    return finish();
}
