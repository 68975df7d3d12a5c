/* SPDX-License-Identifier: MIT
 *
 * Shareable handles inside one process: a cuMemCreate exported as a file descriptor and imported
 * again owns nothing more; a pool's exported pointer likewise. Leaves 4 MiB physical, mapped
 * through the imported handle too.
 */
#include <cuda.h>
#include <stdint.h>

#include "finish.h"
#include "vmm.h"

int main(void)
{
    CUdevice device = program_start();
    CUmemGenericAllocationHandle own = 0, imported = 0;
    CUmemAllocationProp shape;
    CUdeviceptr range = vmm_reserve(8 * STEP);
    int fd = -1;
    memset(&shape, 0, sizeof(shape));
    shape.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    shape.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    shape.location.id = device;
    CHECK(cuMemCreate(&own, 2 * STEP, &shape, 0));
    CHECK(cuMemMap(range, 2 * STEP, 0, own, 0));
    CHECK(cuMemExportToShareableHandle(&fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (fd >= 0)
        close(fd);
    CHECK(cuMemMap(range + 4 * STEP, 2 * STEP, 0, imported, 0));
    CHECK(cuMemRelease(imported));
    return finish();
}
