/* SPDX-License-Identifier: MIT
 *
 * Physical memory that cuMemCreate places on a host NUMA node is the host's, not a device's, though
 * a device maps it. Leaves 4 MiB on the host, mapped, and 2 MiB on the device.
 */
#include <cuda.h>

#include "finish.h"
#include "vmm.h"

int main(void)
{
    CUdevice device = program_start();
    CUmemGenericAllocationHandle handle = 0, gone = 0;
    CUdeviceptr range = vmm_reserve(4 * STEP);
    CUmemAllocationProp shape;
    memset(&shape, 0, sizeof(shape));
    shape.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    shape.location.id = 0;
    CHECK(cuMemCreate(&handle, 2 * STEP, &shape, 0));
    CHECK(cuMemCreate(&gone, STEP, &shape, 0));
    CHECK(cuMemMap(range, 2 * STEP, 0, handle, 0));
    vmm_allow(device, range, 2 * STEP);
    CHECK(cuMemRelease(gone));
    vmm_create(device, STEP);
    return finish();
}
