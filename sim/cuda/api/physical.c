/* SPDX-License-Identifier: MIT
 * Entry points of physical memory behind handles (physical.c). */
#include "cuda/vmm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- creation ---------------------------------------------------------------------------------------------------- */

static CUresult sim_prop_check(const CUmemAllocationProp *prop, int *device)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
        prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    *device = SIM_HOST;
    switch ((int)prop->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *device = prop->location.id;
        return sim_device_get(prop->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case SIM_LOCATION_LOCALITY_DOMAIN:
        *device = prop->location.id & 0xff;
        return prop->location.id & 0xff00 || !sim_device_get(*device) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return prop->location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; /* one node */
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static bool sim_physical_back(struct sim_physical *p)
{
    struct sim_physical_header h = {.magic = SIM_PHYSICAL_MAGIC,
                                    .size = p->size,
                                    .physical = p->device < 0 ? SIM_HOST : sim_device_get(p->device)->physical,
                                    .prop = p->prop};

    if (!p->prop.requestedHandleTypes) {
        p->fd = sim_space_fd();
        return !sim_space_back(p->size, &p->offset);
    }
    p->fd = memfd_create("sim-vmm", MFD_CLOEXEC);
    p->own_fd = p->fd >= 0;
    return p->own_fd && sim_space_allows(p->size + sizeof h) &&
           pwrite(p->fd, &h, sizeof h, (off_t)p->size) == (ssize_t)sizeof h;
}

SIM_API4(549, 10020, cuMemCreate, CUmemGenericAllocationHandle *, handle, size_t, size, const CUmemAllocationProp *,
         prop, unsigned long long, flags)
{
    struct sim_physical *p;
    int device;
    CUresult r = sim_prop_check(prop, &device);

    if (r)
        return r;
    if (!handle || flags || !size || size % SIM_VMM_GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    if (device != SIM_HOST && sim_device_take(device, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_clock_pages(SIM_PAGES_CREATE, size);
    p = sim_physical_new(size);
    p->prop = *prop;
    p->device = device;
    if (!sim_physical_back(p)) {
        if (device != SIM_HOST)
            sim_device_give(device, size);
        sim_physical_drop(p);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_ledger_kind(device, SIM_VMM, (int64_t)size);
    sim_ledger_reserved(device, (int64_t)size);
    *handle = p->handle;
    return CUDA_SUCCESS;
}

SIM_API1(550, 10020, cuMemRelease, CUmemGenericAllocationHandle, handle)
{
    struct sim_physical *p = sim_physical_find(handle);

    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    p->references--;
    sim_physical_settle(p);
    return CUDA_SUCCESS;
}

/* Works on released handles too, as long as they are mapped: the same value comes to life again. */
SIM_API2(565, 11000, cuMemRetainAllocationHandle, CUmemGenericAllocationHandle *, handle, void *, addr)
{
    size_t offset;
    struct sim_physical *p = sim_physical_at((CUdeviceptr)(uintptr_t)addr, &offset);

    if (!p || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    p->references++;
    *handle = p->handle;
    return CUDA_SUCCESS;
}

SIM_API3(556, 10020, cuMemGetAllocationGranularity, size_t *, granularity, const CUmemAllocationProp *, prop,
         CUmemAllocationGranularity_flags, option)
{
    int device;
    CUresult r = sim_prop_check(prop, &device);

    if (r)
        return r;
    if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = SIM_VMM_GRANULARITY;
    return CUDA_SUCCESS;
}

SIM_API2(557, 10020, cuMemGetAllocationPropertiesFromHandle, CUmemAllocationProp *, prop, CUmemGenericAllocationHandle,
         handle)
{
    struct sim_physical *p = sim_physical_find(handle);

    if (!p || !prop || p->multicast)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = p->prop;
    return CUDA_SUCCESS;
}

/* ---- sharing ----------------------------------------------------------------------------------------------------- */

static CUresult sim_fd_out(int fd, void *out)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (copy < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)out = copy;
    return CUDA_SUCCESS;
}

SIM_API4(554, 10020, cuMemExportToShareableHandle, void *, shareableHandle, CUmemGenericAllocationHandle, handle,
         CUmemAllocationHandleType, handleType, unsigned long long, flags)
{
    struct sim_physical *p = sim_physical_find(handle);

    if (!p || !shareableHandle || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !p->own_fd)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_fd_out(p->fd, shareableHandle);
}

/* For POSIX handles, osHandle is the descriptor itself; it stays the caller's. */
SIM_API3(555, 10020, cuMemImportFromShareableHandle, CUmemGenericAllocationHandle *, handle, void *, osHandle,
         CUmemAllocationHandleType, shHandleType)
{
    struct sim_physical_header h;
    struct sim_physical *p;
    struct stat st;
    int device = SIM_HOST, fd = (int)(intptr_t)osHandle;

    if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    if (fstat(fd, &st) || st.st_size < (off_t)sizeof h ||
        pread(fd, &h, sizeof h, st.st_size - (off_t)sizeof h) != (ssize_t)sizeof h || h.magic != SIM_PHYSICAL_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < sim_device_count; i++)
        if (sim_devices[i].physical == h.physical)
            device = i;
    if (h.physical != SIM_HOST && device == SIM_HOST)
        return CUDA_ERROR_INVALID_DEVICE;
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    p = sim_physical_new(h.size);
    p->prop = h.prop;
    p->device = device;
    if (device != SIM_HOST)
        p->prop.location.id = device;
    p->fd = fd;
    p->own_fd = p->imported = true;
    if (h.team.numDevices && !sim_multicast_open(p)) {
        sim_physical_drop(p);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = p->handle;
    return CUDA_SUCCESS;
}

/* A dma-buf of a live range: here a descriptor of the file that backs it. */
SIM_API5(674, 11070, cuMemGetHandleForAddressRange, void *, handle, CUdeviceptr, dptr, size_t, size,
         CUmemRangeHandleType, handleType, unsigned long long, flags)
{
    struct sim_memory *m = sim_memory_find(dptr);
    size_t offset;
    struct sim_physical *p = sim_physical_at(dptr, &offset);

    if (!handle || !size || (dptr | size) % 4096 || handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!m || !sim_memory_on_device(m) || sim_memory_check(dptr, size, m->device, false, NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if ((!p || p->fd == sim_space_fd()) && !sim_space_is_shared())
        return CUDA_ERROR_NOT_SUPPORTED;
    return sim_fd_out(p ? p->fd : sim_space_fd(), handle);
}
