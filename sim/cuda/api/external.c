/* SPDX-License-Identifier: MIT
 * External memory: a file descriptor of another API's memory, and the buffers and arrays mapped
 * from it. The bytes are those of the descriptor's file; the memory counts as imported while it is
 * mapped. Graphics interop and decompression have no counterpart here: those calls answer
 * NOT_SUPPORTED. */
#include "cuda/external.h"
#include "cuda/array.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

static struct sim_external *sim_external_find(CUexternalMemory handle)
{
    for (struct sim_external *at = sim_externals; at; at = at->next)
        if ((CUexternalMemory)at == handle && !at->destroyed)
            return at;
    return NULL;
}

SIM_API2(485, 10000, cuImportExternalMemory, CUexternalMemory *, extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *,
         memHandleDesc)
{
    struct sim_context *context;
    struct stat status;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!extMem_out || !memHandleDesc || memHandleDesc->size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (memHandleDesc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    int fd = memHandleDesc->handle.fd;
    if (fstat(fd, &status) != 0 || (uint64_t)status.st_size < memHandleDesc->size)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_external *external = calloc(1, sizeof *external);
    if (!external)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* A successful import owns the descriptor. */
    *external = (struct sim_external){
        .next = sim_externals, .fd = fd, .size = memHandleDesc->size, .context_uid = context->uid, .users = 1};
    sim_externals = external;
    *extMem_out = (CUexternalMemory)external;
    return CUDA_SUCCESS;
}

SIM_API1(488, 10000, cuDestroyExternalMemory, CUexternalMemory, extMem)
{
    struct sim_external *external = sim_external_find(extMem);
    if (!external)
        return CUDA_ERROR_INVALID_HANDLE;
    external->destroyed = true; /* mappings stay valid until they are freed */
    sim_external_put(external);
    return CUDA_SUCCESS;
}

static CUresult sim_mapping_new(struct sim_external *external, uint64_t offset, uint64_t size, int device,
                                struct sim_external_mapping **out)
{
    const uint64_t page = 4096;
    if (size == 0 || offset > external->size || size > external->size - offset)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_external_mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t start = offset / page * page;
    *mapping = (struct sim_external_mapping){external, 0, sim_round_up(offset + size, page) - start, size, device};
    mapping->base = sim_space_reserve(mapping->mapped, SIM_PAGE, 0);
    if (!mapping->base ||
        sim_space_map(mapping->base, mapping->mapped, external->fd, start, PROT_READ | PROT_WRITE) != 0) {
        if (mapping->base)
            sim_space_release(mapping->base, mapping->mapped);
        free(mapping);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    external->users++;
    sim_ledger_kind(device, SIM_IMPORTED, (int64_t)size);
    *out = mapping;
    return CUDA_SUCCESS;
}

SIM_API3(486, 10000, cuExternalMemoryGetMappedBuffer, CUdeviceptr *, devPtr, CUexternalMemory, extMem,
         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *, bufferDesc)
{
    struct sim_context *context;
    struct sim_external_mapping *mapping;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_external *external = sim_external_find(extMem);
    if (!external)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!devPtr || !bufferDesc || bufferDesc->flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_memory *memory = calloc(1, sizeof *memory);
    result = memory ? sim_mapping_new(external, bufferDesc->offset, bufferDesc->size, context->device, &mapping)
                    : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(memory);
        return result;
    }
    *memory = (struct sim_memory){.base = mapping->base + bufferDesc->offset % 4096,
                                  .size = bufferDesc->size,
                                  .type = SIM_MEMORY_EXTERNAL,
                                  .kind = SIM_IMPORTED,
                                  .device = context->device,
                                  .owner = mapping};
    sim_memory_insert(memory, context);
    *devPtr = memory->base;
    return CUDA_SUCCESS;
}

SIM_API3(487, 10000, cuExternalMemoryGetMappedMipmappedArray, CUmipmappedArray *, mipmap, CUexternalMemory, extMem,
         const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *, mipmapDesc)
{
    struct sim_context *context;
    struct sim_external_mapping *mapping;
    struct sim_array *array;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_external *external = sim_external_find(extMem);
    if (!external)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!mipmap || !mipmapDesc || mipmapDesc->numLevels == 0 || mipmapDesc->offset > external->size)
        return CUDA_ERROR_INVALID_VALUE;
    result =
        sim_mapping_new(external, mipmapDesc->offset, external->size - mipmapDesc->offset, context->device, &mapping);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_array_new(&mipmapDesc->arrayDesc, mipmapDesc->numLevels, context,
                           mapping->base + mipmapDesc->offset % 4096, &array);
    if (result != CUDA_SUCCESS) {
        sim_mapping_end(mapping);
        return result;
    }
    array->external = mapping;
    *mipmap = (CUmipmappedArray)array;
    return CUDA_SUCCESS;
}

/* ---- graphics interop -------------------------------------------------------------------------------------------- */

static CUresult sim_unsupported(void)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : result;
}

SIM_API3_PTSZ(133, 443, 3000, cuGraphicsMapResources, unsigned int, count, CUgraphicsResource *, resources, CUstream,
              hStream)
{
    (void)count, (void)resources, (void)hStream;
    return sim_unsupported();
}

SIM_API3_PTSZ(134, 444, 3000, cuGraphicsUnmapResources, unsigned int, count, CUgraphicsResource *, resources, CUstream,
              hStream)
{
    (void)count, (void)resources, (void)hStream;
    return sim_unsupported();
}

SIM_API3(258, 3020, cuGraphicsResourceGetMappedPointer_v2, CUdeviceptr *, pDevPtr, size_t *, pSize, CUgraphicsResource,
         resource)
{
    (void)pDevPtr, (void)pSize, (void)resource;
    return sim_unsupported();
}
