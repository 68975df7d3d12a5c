/* SPDX-License-Identifier: MIT
 * The ABI before CUDA 3.2: device pointers and sizes of 32 bits.  Programs of today never call it,
 * but the symbols exist and tools must survive them.  Memory for it comes from the low 4 GiB of the
 * address space and has no place in the common file, so it cannot be exported.  Its records are
 * linear memory like any other. */
#include "cuda/array.h"
#include "cuda/memory.h"
#include "cuda/module.h"

#include <stdlib.h>
#include <sys/mman.h>

typedef unsigned int CUdeviceptr_v1;
struct sim_descriptor_v1 {
    unsigned int width, height;
    CUarray_format format;
    unsigned int channels;
};
struct sim_descriptor3_v1 {
    unsigned int width, height, depth;
    CUarray_format format;
    unsigned int channels, flags;
};

/* Below 4 GiB wherever the kernel leaves a hole; steps of 16 MiB keep the search short. */
static void *sim_low_map(size_t size)
{
    for (uintptr_t hint = UINT32_C(0x10000000); hint + size < UINT32_MAX; hint += 16 * SIM_MIB) {
        void *at = mmap((void *)hint, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (at == (void *)hint)
            return at;
        if (at != MAP_FAILED) /* a kernel that does not know the flag put it elsewhere */
            munmap(at, size);
    }
    return NULL;
}

static CUresult sim_low_free(struct sim_memory *memory)
{
    sim_low_dispose(memory);
    return CUDA_SUCCESS;
}

static CUresult sim_low_new(enum sim_kind kind, size_t size, CUdeviceptr_v1 *address)
{
    struct sim_context *context;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!address || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    size_t footprint = sim_round_up(size, SIM_PAGE);
    struct sim_memory *memory = calloc(1, sizeof *memory);
    if (!memory || sim_device_take(context->device, footprint) != CUDA_SUCCESS) {
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *memory = (struct sim_memory){.base = (CUdeviceptr)sim_low_map(footprint),
                                  .size = size,
                                  .type = SIM_MEMORY_LOW,
                                  .kind = kind,
                                  .device = context->device,
                                  .footprint = footprint,
                                  .free = sim_low_free};
    if (!memory->base) {
        sim_device_give(context->device, footprint);
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_memory_insert(memory, context);
    sim_ledger_owned(memory->device, kind, (int64_t)size);
    *address = (CUdeviceptr_v1)memory->base;
    return CUDA_SUCCESS;
}

SIM_API2(29, 2000, cuMemAlloc, CUdeviceptr_v1 *, dptr, unsigned int, bytesize)
{
    return sim_low_new(SIM_LINEAR, bytesize, dptr);
}

SIM_API5(31, 2000, cuMemAllocPitch, CUdeviceptr_v1 *, dptr, unsigned int *, pPitch, unsigned int, WidthInBytes,
         unsigned int, Height, unsigned int, ElementSizeBytes)
{
    if (!pPitch || WidthInBytes == 0 || Height == 0 ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    size_t pitch = sim_round_up(WidthInBytes, 512);
    if (pitch * Height > UINT32_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_low_new(SIM_PITCHED, pitch * Height, dptr);
    if (result == CUDA_SUCCESS)
        *pPitch = (unsigned)pitch;
    return result;
}

SIM_API1(33, 2000, cuMemFree, CUdeviceptr_v1, dptr)
{
    struct sim_context *context;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS || dptr == 0)
        return result;
    struct sim_memory *memory = sim_memory_find(dptr);
    if (!memory || memory->base != dptr || !memory->free)
        return CUDA_ERROR_INVALID_VALUE;
    return memory->free(memory);
}

SIM_API2(27, 2000, cuMemGetInfo, unsigned int *, free, unsigned int *, total)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!free || !total)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_device *device = &sim_devices[context->device];
    const uint64_t most = sim_device_most(device), left = sim_device_left(device);
    *free = left > UINT32_MAX ? UINT32_MAX : (unsigned)left; /* the old ABI can say no more */
    *total = most > UINT32_MAX ? UINT32_MAX : (unsigned)most;
    return CUDA_SUCCESS;
}

SIM_API3(35, 2000, cuMemGetAddressRange, CUdeviceptr_v1 *, pbase, unsigned int *, psize, CUdeviceptr_v1, dptr)
{
    const struct sim_memory *memory = sim_memory_find(dptr);
    if (!memory)
        return CUDA_ERROR_NOT_FOUND;
    if (pbase)
        *pbase = (CUdeviceptr_v1)memory->base;
    if (psize)
        *psize = (unsigned)memory->size;
    return CUDA_SUCCESS;
}

SIM_API4(24, 2000, cuModuleGetGlobal, CUdeviceptr_v1 *, dptr, unsigned int *, bytes, CUmodule, hmod, const char *, name)
{
    struct sim_module *module = sim_module_find(hmod);
    CUdeviceptr address = 0;
    size_t size = 0;
    if (!module || !name)
        return module ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_module_variable(module, name, false, &address, &size);
    if (result == CUDA_SUCCESS && dptr && address > UINT32_MAX)
        return CUDA_ERROR_NOT_SUPPORTED; /* an address that the type cannot hold */
    if (result == CUDA_SUCCESS && dptr)
        *dptr = (CUdeviceptr_v1)address;
    if (result == CUDA_SUCCESS && bytes)
        *bytes = (unsigned)size;
    return result;
}

static CUresult sim_array_old(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    struct sim_context *context;
    struct sim_array *array;
    CUresult result = sim_allocation_check(&context);
    if (result == CUDA_SUCCESS && !handle)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_array_new(descriptor, 0, context, 0, &array);
    if (result == CUDA_SUCCESS)
        *handle = (CUarray)array;
    return result;
}

SIM_API2(87, 2000, cuArrayCreate, CUarray *, pHandle, const struct sim_descriptor_v1 *, pAllocateArray)
{
    if (!pAllocateArray)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = pAllocateArray->width,
                                          .Height = pAllocateArray->height,
                                          .Format = pAllocateArray->format,
                                          .NumChannels = pAllocateArray->channels};
    return sim_array_old(pHandle, &descriptor);
}

SIM_API2(90, 2000, cuArray3DCreate, CUarray *, pHandle, const struct sim_descriptor3_v1 *, pAllocateArray)
{
    if (!pAllocateArray)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = pAllocateArray->width,
                                          .Height = pAllocateArray->height,
                                          .Depth = pAllocateArray->depth,
                                          .Format = pAllocateArray->format,
                                          .NumChannels = pAllocateArray->channels,
                                          .Flags = pAllocateArray->flags};
    return sim_array_old(pHandle, &descriptor);
}

SIM_API2(7, 2000, cuDeviceTotalMem, unsigned int *, bytes, CUdevice, dev)
{
    const struct sim_device *device = sim_device_get(dev);
    if (!device || !bytes)
        return device ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
    *bytes = device->total > UINT32_MAX ? UINT32_MAX : (unsigned)device->total;
    return CUDA_SUCCESS;
}

SIM_API3(40, 2020, cuMemHostGetDevicePointer, CUdeviceptr_v1 *, pdptr, void *, p, unsigned int, Flags)
{
    const struct sim_memory *memory = sim_memory_find((CUdeviceptr)p);
    if (!pdptr || Flags || !memory || memory->device != SIM_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    if ((CUdeviceptr)p > UINT32_MAX)
        return CUDA_ERROR_NOT_SUPPORTED; /* an address that the type cannot hold */
    *pdptr = (CUdeviceptr_v1)(CUdeviceptr)p;
    return CUDA_SUCCESS;
}
