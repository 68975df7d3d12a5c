/* SPDX-License-Identifier: MIT
 * cuPointerGetAttribute and its relatives, answered from the record of an address.
 * Never dereferences the address. */
#include "cuda/pool.h"
#include "cuda/sim.h"
#include "cuda/stream.h"
#include "cuda/vmm.h"

#include <string.h>

/* The part of the record that an attribute concerns, computed once per call. */
struct sim_pointer {
    CUdeviceptr address;
    const struct sim_memory *memory;
    const struct sim_physical *physical; /* of a VMM mapping */
    size_t offset;                       /* in it */
    CUdeviceptr range; /* that a program has reserved, whether something is mapped at the address or not */
    size_t range_size; /* 0: none */
};

static struct sim_pointer sim_pointer_find(CUdeviceptr address)
{
    struct sim_pointer pointer = {.address = address, .memory = sim_memory_find(address)};
    if (pointer.memory && pointer.memory->type == SIM_MEMORY_VMM)
        pointer.physical = sim_physical_at(address, &pointer.offset);
    if (!pointer.memory || pointer.physical)
        sim_reservation_at(address, &pointer.range, &pointer.range_size);
    return pointer;
}

/* Which pool a pointer came from; NULL when from none, as for imported pointers, whose pool is
 * elsewhere. */
static CUmemoryPool sim_pool_of(const struct sim_memory *memory)
{
    return memory->type == SIM_MEMORY_POOL ? (CUmemoryPool)((struct sim_piece *)memory->owner)->chunk->pool : NULL;
}

static bool sim_pointer_host(const struct sim_memory *memory)
{
    return memory->device == SIM_HOST;
}

/* Attributes that are answers about any address, known or not (cuPointerGetAttributes gives
 * defaults for those). */
static CUresult sim_pointer_place(void *data, CUpointer_attribute attribute, const struct sim_pointer *pointer)
{
    const struct sim_memory *memory = pointer->memory;
    struct sim_context *context;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        context = memory->context_uid ? sim_context_by_uid(memory->context_uid) : NULL;
        *(CUcontext *)data = sim_context_handle(context);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = sim_pointer_host(memory) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = pointer->address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!sim_pointer_host(memory) && memory->type != SIM_MEMORY_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)pointer->address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        /* Of host memory: the device of the context that made it. */
        context = sim_context_by_uid(memory->context_uid);
        *(int *)data = sim_pointer_host(memory) ? (context ? context->device : 0) : memory->device;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult sim_pointer_range(void *data, CUpointer_attribute attribute, const struct sim_pointer *pointer)
{
    const struct sim_memory *memory = pointer->memory;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = memory->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data = pointer->physical ? pointer->physical->handle : memory->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = memory->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = memory->size;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned long long *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = pointer->physical ? pointer->physical->prop.requestedHandleTypes : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = sim_pool_of(memory);
        return CUDA_SUCCESS;
    default:
        return sim_pointer_place(data, attribute, pointer);
    }
}

/* In a reserved range the "range" attributes are about all of it, and the "mapping" ones about what lies at the address
 * (NVIDIA's DALI tests the former on GPUs: dali/core/mm/cu_vm_test.cc). */
static CUresult sim_pointer_reserved(void *data, CUpointer_attribute attribute, const struct sim_pointer *pointer)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = pointer->range;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = pointer->range_size;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult sim_pointer_attribute(void *data, CUpointer_attribute attribute, const struct sim_pointer *pointer)
{
    const struct sim_memory *memory = pointer->memory;
    if (pointer->range_size && sim_pointer_reserved(data, attribute, pointer) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_NOT_SUPPORTED;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)data = memory->sync_memops;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = memory->type == SIM_MEMORY_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)data = memory->type == SIM_MEMORY_LINEAR;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(unsigned *)data = 0;
        return CUDA_SUCCESS;
    default:
        return sim_pointer_range(data, attribute, pointer);
    }
}

SIM_API3(310, 4000, cuPointerGetAttribute, void *, data, CUpointer_attribute, attribute, CUdeviceptr, ptr)
{
    struct sim_pointer pointer = sim_pointer_find(ptr);
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_pointer_attribute(data, attribute, &pointer);
}

/* Bytes of an attribute's value: to write "nothing" for addresses that the driver does not know. */
static size_t sim_attribute_size(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return 4;
    default:
        return 8;
    }
}

/* Unlike the single form it succeeds for unknown addresses: zeros, and device -2. */
SIM_API4(450, 7000, cuPointerGetAttributes, unsigned int, numAttributes, CUpointer_attribute *, attributes, void **,
         data, CUdeviceptr, ptr)
{
    struct sim_pointer pointer = sim_pointer_find(ptr);
    if (numAttributes == 0 || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < numAttributes; i++) {
        if (!data[i] || attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
            attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE ||
            attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
            return CUDA_ERROR_INVALID_VALUE;
        if (sim_pointer_attribute(data[i], attributes[i], &pointer) == CUDA_SUCCESS)
            continue;
        memset(data[i], 0, sim_attribute_size(attributes[i]));
        if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)data[i] = CU_DEVICE_INVALID;
    }
    return CUDA_SUCCESS;
}

SIM_API3(378, 6000, cuPointerSetAttribute, const void *, value, CUpointer_attribute, attribute, CUdeviceptr, ptr)
{
    struct sim_memory *memory = sim_memory_find(ptr);
    if (!value || !memory || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || sim_pointer_host(memory))
        return CUDA_ERROR_INVALID_VALUE;
    memory->sync_memops = *(const unsigned *)value != 0;
    return CUDA_SUCCESS;
}
