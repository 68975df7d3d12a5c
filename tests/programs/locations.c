/* SPDX-License-Identifier: MIT
 *
 * Memory is counted where it lies, however the location is named: a locality domain of device 1
 * (CUDA 13.4), a NUMA node, and the default pool of the host.  Older drivers refuse the domain.
 * Needs two devices; with one it only says so. Leaves 8 MiB mapped on device 1, 5 MiB used
 * from a pool on device 1, 4 MiB on a node, and 3 MiB used from the host's pool.
 */
#include <cuda.h>

#include "finish.h"
#include "vmm.h"

#define LOCALITY_DOMAIN ((CUmemLocationType)6) /* CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN */

static CUmemLocation locality(int device, int domain)
{
    CUmemLocation location;
    unsigned char bytes[4] = {(unsigned char)device, (unsigned char)domain, 0, 0};
    location.type = LOCALITY_DOMAIN;
    memcpy(&location.id, bytes, sizeof(bytes));
    return location;
}

static CUmemGenericAllocationHandle create_at(CUmemLocation location, size_t bytes)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp shape;
    memset(&shape, 0, sizeof(shape));
    shape.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.location = location;
    CHECK(cuMemCreate(&handle, bytes, &shape, 0));
    return handle;
}

static void pools(CUstream stream)
{
    CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST}, domain = locality(1, 0);
    CUdeviceptr near = 0, gone = 0, on_host = 0;
    CUmemoryPool pool = NULL, host_pool = NULL, same = NULL;
    CUmemPoolProps shape;
    memset(&shape, 0, sizeof(shape));
    shape.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.location = domain;
    CHECK(cuMemPoolCreate(&pool, &shape));
    CHECK(cuMemAllocFromPoolAsync(&near, 5 * MIB, pool, stream));
    CHECK(cuMemAllocFromPoolAsync(&gone, 7 * MIB, pool, stream));
    CHECK(cuMemFreeAsync(gone, stream));
    CHECK(cuMemGetDefaultMemPool(&host_pool, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    CHECK(cuMemAllocFromPoolAsync(&on_host, 3 * MIB, host_pool, stream));
    CHECK(cuMemSetMemPool(&domain, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
    CHECK(cuMemGetMemPool(&same, &domain, CU_MEM_ALLOCATION_TYPE_PINNED));
    printf("the pool that was set: %d\n", same == pool);
    CHECK(cuStreamSynchronize(stream));
}

int main(void)
{
    CUmemLocation node = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
    CUmemGenericAllocationHandle near, gone;
    CUstream stream = NULL;
    CUdeviceptr range;
    int count = 0;
    program_start();
    CHECK(cuDeviceGetCount(&count));
    if (count < 2) {
        printf("one device\n");
        return finish();
    }
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    near = create_at(locality(1, 0), 4 * STEP);
    gone = create_at(locality(1, 0), 9 * STEP);
    create_at(node, 2 * STEP);
    range = vmm_reserve(8 * STEP);
    CHECK(cuMemMap(range, 4 * STEP, 0, near, 0));
    CHECK(cuMemRelease(gone));
    pools(stream);
    return finish();
}
