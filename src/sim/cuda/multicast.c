/* SPDX-License-Identifier: MIT
 * Multicast objects: a team of devices, and memory of each bound at offsets.  An object is a handle
 * like those of memory but owns no device memory; bound memory stays alive until it is unbound or
 * the object is destroyed. */
#include <stdlib.h>

#include "cuda/vmm.h"

struct sim_bind {
    struct sim_bind *next;
    struct sim_physical *memory;
    size_t offset, size;
};
struct sim_multicast {
    CUmulticastObjectProp prop;
    uint64_t devices; /* bit per device that joined */
    unsigned int joined;
    struct sim_bind *binds;
};
_Static_assert(SIM_MAX_DEVICES <= 64, "a bit per device");

bool sim_multicast_complete(const struct sim_physical *p)
{
    return p->multicast->joined == p->multicast->prop.numDevices;
}

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
    p->fd = sim_space_fd();
    if (sim_space_back(p->size, &p->offset)) {
        p->references = 0;
        p->multicast = NULL;
        p->imported = true; /* nothing was counted */
        sim_physical_settle(p);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    p->multicast = sim_grow(NULL, sizeof *p->multicast);
    *p->multicast = (struct sim_multicast){.prop = *prop};
    *mcHandle = p->handle;
    return CUDA_SUCCESS;
}

SIM_API2(707, 12010, cuMulticastAddDevice, CUmemGenericAllocationHandle, mcHandle, CUdevice, dev)
{
    struct sim_physical *p = sim_multicast_find(mcHandle);

    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!p || sim_multicast_complete(p) || p->multicast->devices >> dev & 1)
        return CUDA_ERROR_INVALID_VALUE;
    p->multicast->devices |= UINT64_C(1) << dev;
    p->multicast->joined++;
    return CUDA_SUCCESS;
}

static void sim_bind_end(struct sim_bind **at)
{
    struct sim_bind *b = *at;

    *at = b->next;
    b->memory->binds--;
    sim_physical_settle(b->memory);
    free(b);
}

static CUresult sim_bind_add(struct sim_physical *p, size_t offset, struct sim_physical *memory, size_t at, size_t size)
{
    struct sim_bind *b;

    if (!p || !memory || memory->multicast || !size || (offset | at | size) % SIM_VMM_GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > p->size || offset > p->size - size || size > memory->size || at > memory->size - size)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_multicast_complete(p) || memory->device == SIM_HOST || !(p->multicast->devices >> memory->device & 1))
        return CUDA_ERROR_INVALID_VALUE;
    for (b = p->multicast->binds; b; b = b->next) /* one device's binds do not overlap */
        if (b->memory->device == memory->device && offset < b->offset + b->size && b->offset < offset + size)
            return CUDA_ERROR_INVALID_VALUE;
    b = sim_grow(NULL, sizeof *b);
    *b = (struct sim_bind){p->multicast->binds, memory, offset, size};
    p->multicast->binds = b;
    memory->binds++;
    return CUDA_SUCCESS;
}

SIM_API6(708, 12010, cuMulticastBindMem, CUmemGenericAllocationHandle, mcHandle, size_t, mcOffset,
         CUmemGenericAllocationHandle, memHandle, size_t, memOffset, size_t, size, unsigned long long, flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE
                 : sim_bind_add(sim_multicast_find(mcHandle), mcOffset, sim_physical_find(memHandle), memOffset, size);
}

/* Pool memory can be bound on a real driver; here only mapped memory can. */
SIM_API5(709, 12010, cuMulticastBindAddr, CUmemGenericAllocationHandle, mcHandle, size_t, mcOffset, CUdeviceptr, memptr,
         size_t, size, unsigned long long, flags)
{
    size_t offset = 0;
    struct sim_physical *memory = sim_physical_at(memptr, &offset);

    return flags ? CUDA_ERROR_INVALID_VALUE
                 : sim_bind_add(sim_multicast_find(mcHandle), mcOffset, memory, offset, size);
}

SIM_API4(710, 12010, cuMulticastUnbind, CUmemGenericAllocationHandle, mcHandle, CUdevice, dev, size_t, mcOffset, size_t,
         size)
{
    struct sim_physical *p = sim_multicast_find(mcHandle);

    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    for (struct sim_bind **at = &p->multicast->binds; *at; at = &(*at)->next)
        if ((*at)->memory->device == dev && (*at)->offset == mcOffset && (*at)->size == size) {
            sim_bind_end(at);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
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

void sim_multicast_end(struct sim_physical *p)
{
    while (p->multicast->binds)
        sim_bind_end(&p->multicast->binds);
    sim_space_unback(p->offset, p->size);
    free(p->multicast);
}
