/* SPDX-License-Identifier: MIT
 * Entry points of multicast objects (multicast.c). */
#include "cuda/vmm.h"

static struct sim_physical *sim_multicast_find(CUmemGenericAllocationHandle h)
{
    struct sim_physical *p = sim_physical_find(h);

    return p && p->multicast ? p : NULL;
}

static CUresult sim_multicast_prop_check(const CUmulticastObjectProp *prop)
{
    if (!prop || !prop->numDevices || prop->numDevices > (unsigned int)sim_device_count || prop->flags)
        return CUDA_ERROR_INVALID_VALUE;
    return prop->handleTypes & ~(unsigned long long)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_ERROR_NOT_SUPPORTED
                                                                                             : CUDA_SUCCESS;
}

SIM_API2(706, 12010, cuMulticastCreate, CUmemGenericAllocationHandle *, mcHandle, const CUmulticastObjectProp *, prop)
{
    struct sim_physical *p;
    CUresult r = sim_multicast_prop_check(prop);

    if (r)
        return r;
    if (!mcHandle || !prop->size || prop->size % SIM_VMM_GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    p = sim_physical_new(prop->size);
    if (!sim_multicast_start(p, prop)) {
        sim_physical_drop(p);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *mcHandle = p->handle;
    return CUDA_SUCCESS;
}

SIM_API2(707, 12010, cuMulticastAddDevice, CUmemGenericAllocationHandle, mcHandle, CUdevice, dev)
{
    struct sim_physical *p = sim_multicast_find(mcHandle);

    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    return p ? sim_multicast_join(p, dev) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- binds ------------------------------------------------------------------------------------------------------- */

/* device SIM_HOST: the first version of the call names none, so it is the memory's. */
static CUresult sim_multicast_bind(CUmemGenericAllocationHandle object, int device, size_t offset,
                                   struct sim_physical *memory, size_t at, size_t size, unsigned long long flags)
{
    struct sim_physical *p = sim_multicast_find(object);
    CUresult r = CUDA_ERROR_INVALID_VALUE;

    if (device == SIM_HOST && memory)
        device = memory->device;
    if (!p || !memory || flags || device < 0 || !(p->multicast->devices >> device & 1) || size > p->size ||
        offset > p->size - size)
        return r;
    memory->binds++; /* another thread may release it while this one waits */
    if (sim_multicast_complete(p))
        r = sim_bind_add(&p->multicast->binds, device, offset, memory, at, size);
    memory->binds--;
    sim_physical_settle(memory);
    return r;
}

SIM_API6(708, 12010, cuMulticastBindMem, CUmemGenericAllocationHandle, mcHandle, size_t, mcOffset,
         CUmemGenericAllocationHandle, memHandle, size_t, memOffset, size_t, size, unsigned long long, flags)
{
    return sim_multicast_bind(mcHandle, SIM_HOST, mcOffset, sim_physical_find(memHandle), memOffset, size, flags);
}

SIM_API7(807, 13010, cuMulticastBindMem_v2, CUmemGenericAllocationHandle, mcHandle, CUdevice, dev, size_t, mcOffset,
         CUmemGenericAllocationHandle, memHandle, size_t, memOffset, size_t, size, unsigned long long, flags)
{
    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    return sim_multicast_bind(mcHandle, dev, mcOffset, sim_physical_find(memHandle), memOffset, size, flags);
}

/* Pool memory can be bound on a real driver; here only mapped memory can. */
SIM_API5(709, 12010, cuMulticastBindAddr, CUmemGenericAllocationHandle, mcHandle, size_t, mcOffset, CUdeviceptr, memptr,
         size_t, size, unsigned long long, flags)
{
    size_t offset = 0;
    struct sim_physical *memory = sim_physical_at(memptr, &offset);

    return sim_multicast_bind(mcHandle, SIM_HOST, mcOffset, memory, offset, size, flags);
}

SIM_API6(808, 13010, cuMulticastBindAddr_v2, CUmemGenericAllocationHandle, mcHandle, CUdevice, dev, size_t, mcOffset,
         CUdeviceptr, memptr, size_t, size, unsigned long long, flags)
{
    size_t offset = 0;
    struct sim_physical *memory = sim_physical_at(memptr, &offset);

    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    return sim_multicast_bind(mcHandle, dev, mcOffset, memory, offset, size, flags);
}

SIM_API4(710, 12010, cuMulticastUnbind, CUmemGenericAllocationHandle, mcHandle, CUdevice, dev, size_t, mcOffset, size_t,
         size)
{
    struct sim_physical *p = sim_multicast_find(mcHandle);

    return p ? sim_bind_remove(&p->multicast->binds, dev, mcOffset, size) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API3(711, 12010, cuMulticastGetGranularity, size_t *, granularity, const CUmulticastObjectProp *, prop,
         CUmulticastGranularity_flags, option)
{
    CUresult r = sim_multicast_prop_check(prop);

    if (r)
        return r;
    if (!granularity || (option != CU_MULTICAST_GRANULARITY_MINIMUM && option != CU_MULTICAST_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = SIM_VMM_GRANULARITY;
    return CUDA_SUCCESS;
}
