/* SPDX-License-Identifier: MIT
 *
 * Memory bound to a multicast object lives on after its release, until it is unbound or the object
 * goes: with the calls of CUDA 12.1 and with those of 13.1, which name the device. Leaves 4 MiB
 * bound by handle and 6 MiB bound by address, all of it released.
 */
#include <cuda.h>

#include "finish.h"
#include "later.h"
#include "vmm.h"

typedef CUresult (*bind_fn)(CUmemGenericAllocationHandle, CUdevice, size_t, CUmemGenericAllocationHandle, size_t,
                            size_t, unsigned long long);
typedef CUresult (*bind_addr_fn)(CUmemGenericAllocationHandle, CUdevice, size_t, CUdeviceptr, size_t,
                                 unsigned long long);

static CUmemGenericAllocationHandle team(CUdevice device)
{
    CUmulticastObjectProp shape;
    CUmemGenericAllocationHandle object = 0;
    memset(&shape, 0, sizeof(shape));
    shape.numDevices = 1;
    shape.size = 32 * STEP;
    if (CHECK(cuMulticastCreate(&object, &shape)) == CUDA_ERROR_NOT_SUPPORTED)
        exit(77); /* the GPU is in no NVLink fabric */
    CHECK(cuMulticastAddDevice(object, device));
    return object;
}

static void bind_released(bind_fn bind, CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                          size_t bytes)
{
    CUmemGenericAllocationHandle memory = vmm_create(device, bytes);
    if (bind != NULL)
        CHECK(bind(object, device, offset, memory, 0, bytes, 0));
    else
        CHECK(cuMulticastBindMem(object, offset, memory, 0, bytes, 0));
    CHECK(cuMemRelease(memory));
}

int main(void)
{
    CUdevice device = later_start(13010);
    bind_fn bind = (bind_fn)later("cuMulticastBindMem", 13010);
    bind_addr_fn bind_addr = (bind_addr_fn)later("cuMulticastBindAddr", 13010);
    CUmemGenericAllocationHandle kept = team(device), doomed = team(device), memory;
    CUdeviceptr range = vmm_reserve(8 * STEP);

    bind_released(bind, kept, device, 0, 2 * STEP);
    bind_released(bind, kept, device, 4 * STEP, 3 * STEP);
    bind_released(bind, kept, device, 7 * STEP, STEP);
    bind_released(NULL, kept, device, 10 * STEP, 2 * STEP);
    CHECK(cuMulticastUnbind(kept, device, 4 * STEP, 4 * STEP)); /* two binds at once */
    CHECK(cuMulticastUnbind(kept, device, 10 * STEP, 2 * STEP));
    REPORT("unbound twice", cuMulticastUnbind(kept, device, 10 * STEP, 2 * STEP));

    bind_released(bind, doomed, device, 0, 5 * STEP);
    bind_released(NULL, doomed, device, 8 * STEP, STEP);
    CHECK(cuMemRelease(doomed)); /* frees both */

    memory = vmm_create(device, 3 * STEP);
    CHECK(cuMemMap(range, 3 * STEP, 0, memory, 0));
    CHECK(cuMemRelease(memory));
    CHECK(LATER(bind_addr, kept, device, 20 * STEP, range, 3 * STEP, 0));
    CHECK(cuMemUnmap(range, 3 * STEP));
    return finish();
}
