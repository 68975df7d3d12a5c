/* SPDX-License-Identifier: MIT
 *
 * vmm.h: the shape of a cuMemCreate on one device, shared by the vmm_*.c programs.
 */
#ifndef GP_TEST_PROGRAMS_VMM_H
#define GP_TEST_PROGRAMS_VMM_H

#define STEP (2 * MIB) /* the granularity of every GPU so far; the programs use only multiples of it */

static PROGRAM_UNUSED CUmemGenericAllocationHandle vmm_create(CUdevice device, size_t bytes)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp shape;
    memset(&shape, 0, sizeof(shape));
    shape.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    shape.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    shape.location.id = device;
    CHECK(cuMemCreate(&handle, bytes, &shape, 0));
    return handle;
}

static PROGRAM_UNUSED CUdeviceptr vmm_reserve(size_t bytes)
{
    CUdeviceptr range = 0;
    CHECK(cuMemAddressReserve(&range, bytes, 0, 0, 0));
    return range;
}

static PROGRAM_UNUSED void vmm_allow(CUdevice device, CUdeviceptr range, size_t bytes)
{
    CUmemAccessDesc access;
    memset(&access, 0, sizeof(access));
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemSetAccess(range, bytes, &access, 1));
}

#endif
