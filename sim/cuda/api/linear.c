/* SPDX-License-Identifier: MIT
 * Entry points of linear and pitched device memory, of cuMemFree for every kind, of cuMemGetInfo and of address ranges
 * (linear.c). */
#include "cuda/contents.h"
#include "cuda/memory.h"

#include <stdlib.h>

/* Largest request that shares a block: larger cuMemAlloc requests get pages of their own. */
#define SIM_SMALL SIM_MIB
/* Pitch is a multiple of the texture alignment (512 bytes, as cuDeviceGetAttribute answers). */
#define SIM_PITCH 512

/* ---- making ------------------------------------------------------------------------------------------------------ */

static CUresult sim_linear_new(enum sim_kind kind, size_t size, CUdeviceptr *address)
{
    struct sim_context *context;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    *address = 0; /* an H200 with driver 580.159 writes there though it fails */
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > sim_devices[context->device].total) /* before rounding, which could wrap */
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->size = size;
    memory->type = SIM_MEMORY_LINEAR;
    memory->kind = kind;
    memory->device = context->device;
    size_t pages = sim_round_up(size, SIM_PAGE);
    result = size <= SIM_SMALL ? sim_block_take(context, memory) : sim_bytes_take(memory, pages, SIM_PAGE, pages);
    if (result != CUDA_SUCCESS) {
        free(memory);
        return result;
    }
    sim_clock_pages(SIM_PAGES_ALLOC, memory->footprint); /* a piece of a block has none */
    sim_memory_insert(memory, context);
    sim_contents_forget(memory->base, memory->size);
    sim_ledger_owned(memory->device, kind, (int64_t)size);
    *address = memory->base;
    return CUDA_SUCCESS;
}

SIM_API2(243, 3020, cuMemAlloc_v2, CUdeviceptr *, dptr, size_t, bytesize)
{
    return sim_linear_new(SIM_LINEAR, bytesize, dptr);
}

SIM_API5(244, 3020, cuMemAllocPitch_v2, CUdeviceptr *, dptr, size_t *, pPitch, size_t, WidthInBytes, size_t, Height,
         unsigned int, ElementSizeBytes)
{
    if (!pPitch || WidthInBytes == 0 || Height == 0 ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    size_t pitch, size;
    if (__builtin_add_overflow(WidthInBytes, SIM_PITCH - 1, &pitch))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pitch = pitch / SIM_PITCH * SIM_PITCH;
    if (__builtin_mul_overflow(pitch, Height, &size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_linear_new(SIM_PITCHED, size, dptr);
    if (result == CUDA_SUCCESS)
        *pPitch = pitch;
    return result;
}

/* Managed memory: addresses that host and device share; its pages move, so no device's physical
 * bytes are taken. */
SIM_API3(371, 6000, cuMemAllocManaged, CUdeviceptr *, dptr, size_t, bytesize, unsigned int, flags)
{
    struct sim_context *context;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!dptr || bytesize == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    /* Oversubscription is allowed; 1 TiB is beyond any machine's host memory that this runs on. */
    if (bytesize > 1024 * SIM_GIB)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = (struct sim_memory){
        .size = bytesize, .type = SIM_MEMORY_MANAGED, .kind = SIM_MANAGED, .device = context->device, .flags = flags};
    result = sim_bytes_take(memory, bytesize, SIM_PAGE, 0);
    if (result != CUDA_SUCCESS) {
        free(memory);
        return result;
    }
    sim_memory_insert(memory, context);
    sim_ledger_kind(memory->device, SIM_MANAGED, (int64_t)bytesize);
    *dptr = memory->base;
    return CUDA_SUCCESS;
}

/* ---- freeing ----------------------------------------------------------------------------------------------------- */

static bool sim_memory_freeable(const struct sim_memory *memory)
{
    return memory->free || memory->type == SIM_MEMORY_LINEAR || memory->type == SIM_MEMORY_MANAGED ||
           memory->type == SIM_MEMORY_EXTERNAL;
}

static CUresult sim_memory_freed(CUdeviceptr address)
{
    struct sim_memory *memory = sim_memory_find(address);
    if (!memory || memory->base != address || !sim_memory_freeable(memory))
        return CUDA_ERROR_INVALID_VALUE;
    if (memory->free)
        return memory->free(memory);
    /* Frees wait for the device's work ("may perform implicit synchronization").  The wait drops
     * the lock: look again. */
    struct sim_context *owner = sim_context_by_uid(memory->context_uid);
    uint64_t id = memory->id;
    CUresult result = owner ? sim_stream_synchronize(owner) : CUDA_SUCCESS;
    memory = sim_memory_find(address);
    if (result != CUDA_SUCCESS || !memory || memory->id != id)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    sim_memory_dispose(memory);
    return CUDA_SUCCESS;
}

SIM_API1(245, 3020, cuMemFree_v2, CUdeviceptr, dptr)
{
    struct sim_context *context;
    CUresult result = sim_allocation_check(&context);
    if (result == CUDA_ERROR_INVALID_CONTEXT && dptr && !sim_memory_find(dptr))
        return CUDA_ERROR_INVALID_VALUE; /* the address is looked up first */
    if (result != CUDA_SUCCESS || dptr == 0)
        return result;
    return sim_memory_freed(dptr);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

SIM_API2(242, 3020, cuMemGetInfo_v2, size_t *, free, size_t *, total)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!free || !total)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_device *device = &sim_devices[context->device];
    *total = sim_device_most(device);
    *free = sim_device_left(device);
    return CUDA_SUCCESS;
}

SIM_API3(246, 3020, cuMemGetAddressRange_v2, CUdeviceptr *, pbase, size_t *, psize, CUdeviceptr, dptr)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const struct sim_memory *memory = sim_memory_find(dptr);
    if (!memory || memory->type == SIM_MEMORY_REGISTERED)
        return CUDA_ERROR_NOT_FOUND;
    if (pbase)
        *pbase = memory->base;
    if (psize)
        *psize = memory->size;
    return CUDA_SUCCESS;
}
