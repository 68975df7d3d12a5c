/* SPDX-License-Identifier: MIT
 * Host memory that the driver knows: pinned allocations and registered ranges.
 * Entry points; the records end in linear.c's sim_memory_dispose. */
#include "cuda/memory.h"

#include <stdlib.h>

#define SIM_HOST_PAGE 4096
/* Beyond any machine that this runs on; before rounding, which could wrap. */
#define SIM_HOST_LARGEST (1024 * SIM_GIB)

static CUresult sim_pinned_new(void **pp, size_t size, unsigned flags)
{
    const unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    struct sim_context *context;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!pp || flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    *pp = NULL;
    /* An H200 with driver 580.159 succeeds, unlike in cuMemAlloc; that it hands out NULL is an assumption. */
    if (size == 0)
        return CUDA_SUCCESS;
    if (size > SIM_HOST_LARGEST)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = (struct sim_memory){
        .size = size, .type = SIM_MEMORY_PINNED, .kind = SIM_PINNED, .device = SIM_HOST, .flags = flags};
    result = sim_bytes_take(memory, size, SIM_HOST_PAGE, 0);
    if (result != CUDA_SUCCESS) {
        free(memory);
        return result;
    }
    sim_memory_insert(memory, context);
    sim_ledger_kind(SIM_HOST, SIM_PINNED, (int64_t)size);
    *pp = (void *)memory->base;
    return CUDA_SUCCESS;
}

SIM_API2(294, 3020, cuMemAllocHost_v2, void **, pp, size_t, bytesize)
{
    return sim_pinned_new(pp, bytesize, 0);
}

SIM_API2(37, 2000, cuMemAllocHost, void **, pp, unsigned int, bytesize)
{
    return sim_pinned_new(pp, bytesize, 0);
}

SIM_API3(39, 2020, cuMemHostAlloc, void **, pp, size_t, bytesize, unsigned int, Flags)
{
    return sim_pinned_new(pp, bytesize, Flags);
}

static struct sim_memory *sim_host_find(void *p, enum sim_memory_type type)
{
    struct sim_memory *memory = sim_memory_find((CUdeviceptr)p);
    return memory && memory->base == (CUdeviceptr)p && memory->type == type ? memory : NULL;
}

SIM_API1(38, 2000, cuMemFreeHost, void *, p)
{
    struct sim_context *context;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_memory *memory = sim_host_find(p, SIM_MEMORY_PINNED);
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_context *owner = sim_context_by_uid(memory->context_uid);
    uint64_t id = memory->id;
    result = owner ? sim_stream_synchronize(owner) : CUDA_SUCCESS; /* drops the lock: look again */
    memory = sim_host_find(p, SIM_MEMORY_PINNED);
    if (result != CUDA_SUCCESS || !memory || memory->id != id)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    sim_memory_dispose(memory);
    return CUDA_SUCCESS;
}

/* ---- registered -------------------------------------------------------------------------------------------------- */

static CUresult sim_register(void *p, size_t size, unsigned flags)
{
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                           CU_MEMHOSTREGISTER_READ_ONLY;
    struct sim_context *context;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS)
        return result;
    CUdeviceptr base = (CUdeviceptr)p;
    if (!p || size == 0 || flags & ~known || base + size < base)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_memory *next = sim_memory_next(base);
    if (sim_memory_find(base) || (next && next->base - base < size))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    struct sim_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = (struct sim_memory){.base = base,
                                  .size = size,
                                  .type = SIM_MEMORY_REGISTERED,
                                  .kind = SIM_REGISTERED,
                                  .device = SIM_HOST,
                                  .flags = flags};
    sim_memory_insert(memory, context);
    sim_ledger_kind(SIM_HOST, SIM_REGISTERED, (int64_t)size);
    return CUDA_SUCCESS;
}

SIM_API3(301, 4000, cuMemHostRegister, void *, p, size_t, bytesize, unsigned int, Flags)
{
    return sim_register(p, bytesize, Flags);
}

SIM_API3(379, 6050, cuMemHostRegister_v2, void *, p, size_t, bytesize, unsigned int, Flags)
{
    return sim_register(p, bytesize, Flags);
}

SIM_API1(302, 4000, cuMemHostUnregister, void *, p)
{
    struct sim_context *context;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_memory *memory = sim_host_find(p, SIM_MEMORY_REGISTERED);
    if (!memory)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    sim_memory_dispose(memory);
    return CUDA_SUCCESS;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

static struct sim_memory *sim_host_any(void *p)
{
    struct sim_memory *memory = sim_memory_find((CUdeviceptr)p);
    return memory && (memory->type == SIM_MEMORY_PINNED || memory->type == SIM_MEMORY_REGISTERED) ? memory : NULL;
}

SIM_API3(247, 3020, cuMemHostGetDevicePointer_v2, CUdeviceptr *, pdptr, void *, p, unsigned int, Flags)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS && (!pdptr || Flags || !sim_host_any(p)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *pdptr = (CUdeviceptr)p; /* unified addressing: the same for both */
    return result;
}

SIM_API2(42, 2030, cuMemHostGetFlags, unsigned int *, pFlags, void *, p)
{
    const struct sim_memory *memory = sim_host_any(p);
    if (!pFlags || !memory || memory->type != SIM_MEMORY_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    *pFlags = memory->flags | CU_MEMHOSTALLOC_DEVICEMAP; /* with unified addressing all of it is mapped */
    return CUDA_SUCCESS;
}
