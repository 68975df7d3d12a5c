/* SPDX-License-Identifier: MIT
 * Entry points of arrays and mipmapped arrays (array.c). */
#include "cuda/array.h"
#include "cuda/memory.h"

#include <stdlib.h>

static CUresult sim_array_create(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    struct sim_context *context;
    struct sim_array *array;
    CUresult result = sim_allocation_check(&context);
    if (result == CUDA_SUCCESS && (!handle || !d))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_array_new(d, 0, context, 0, &array);
    if (result == CUDA_SUCCESS)
        *handle = (CUarray)array;
    return result;
}

SIM_API2(272, 3020, cuArrayCreate_v2, CUarray *, pHandle, const CUDA_ARRAY_DESCRIPTOR *, pAllocateArray)
{
    if (!pAllocateArray)
        return sim_array_create(pHandle, NULL);
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = pAllocateArray->Width,
                                          .Height = pAllocateArray->Height,
                                          .Format = pAllocateArray->Format,
                                          .NumChannels = pAllocateArray->NumChannels};
    return sim_array_create(pHandle, &descriptor);
}

SIM_API2(274, 3020, cuArray3DCreate_v2, CUarray *, pHandle, const CUDA_ARRAY3D_DESCRIPTOR *, pAllocateArray)
{
    return sim_array_create(pHandle, pAllocateArray);
}

static CUresult sim_array_destroy(struct sim_array *array)
{
    struct sim_context *context = array && !array->parent ? sim_context_by_uid(array->context_uid) : NULL;
    if (!context)
        return CUDA_ERROR_INVALID_HANDLE;
    /* Waits for the device's work, like every free; the wait drops the lock. */
    CUresult result = sim_stream_synchronize(context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_array_any(array))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_array_end(context, array);
    return CUDA_SUCCESS;
}

SIM_API1(89, 2000, cuArrayDestroy, CUarray, hArray)
{
    struct sim_context *context;
    CUresult result = sim_allocation_check(&context);
    return result == CUDA_SUCCESS ? sim_array_destroy(sim_array_find(hArray)) : result;
}

SIM_API2(275, 3020, cuArray3DGetDescriptor_v2, CUDA_ARRAY3D_DESCRIPTOR *, pArrayDescriptor, CUarray, hArray)
{
    const struct sim_array *array = sim_array_find(hArray);
    if (!array || !pArrayDescriptor)
        return array ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *pArrayDescriptor = array->descriptor;
    return CUDA_SUCCESS;
}

SIM_API2(273, 3020, cuArrayGetDescriptor_v2, CUDA_ARRAY_DESCRIPTOR *, pArrayDescriptor, CUarray, hArray)
{
    const struct sim_array *array = sim_array_find(hArray);
    if (!array || !pArrayDescriptor)
        return array ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    const CUDA_ARRAY3D_DESCRIPTOR *d = &array->descriptor;
    *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){d->Width, d->Height, d->Format, d->NumChannels};
    return CUDA_SUCCESS;
}

SIM_API3(347, 5000, cuMipmappedArrayCreate, CUmipmappedArray *, pHandle, const CUDA_ARRAY3D_DESCRIPTOR *,
         pMipmappedArrayDesc, unsigned int, numMipmapLevels)
{
    struct sim_context *context;
    struct sim_array *array;
    CUresult result = sim_allocation_check(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!pHandle || !pMipmappedArrayDesc || numMipmapLevels == 0)
        return CUDA_ERROR_INVALID_VALUE;
    /* More levels than halvings of the largest extent are cut to that many. */
    size_t largest = pMipmappedArrayDesc->Width | pMipmappedArrayDesc->Height | pMipmappedArrayDesc->Depth;
    unsigned most = largest ? 64 - (unsigned)__builtin_clzll(largest) : 1;
    result = sim_array_new(pMipmappedArrayDesc, numMipmapLevels < most ? numMipmapLevels : most, context, 0, &array);
    if (result == CUDA_SUCCESS)
        *pHandle = (CUmipmappedArray)array;
    return result;
}

SIM_API3(348, 5000, cuMipmappedArrayGetLevel, CUarray *, pLevelArray, CUmipmappedArray, hMipmappedArray, unsigned int,
         level)
{
    const struct sim_array *array = sim_mipmap_find(hMipmappedArray);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pLevelArray || level >= array->levels)
        return CUDA_ERROR_INVALID_VALUE;
    *pLevelArray = (CUarray)array->children[level];
    return CUDA_SUCCESS;
}

SIM_API1(349, 5000, cuMipmappedArrayDestroy, CUmipmappedArray, hMipmappedArray)
{
    struct sim_context *context;
    CUresult result = sim_allocation_check(&context);
    return result == CUDA_SUCCESS ? sim_array_destroy(sim_mipmap_find(hMipmappedArray)) : result;
}

/* Only multi-planar formats have planes: two of NV12, luma and chroma at half size. */
SIM_API3(597, 11020, cuArrayGetPlane, CUarray *, pPlaneArray, CUarray, hArray, unsigned int, planeIdx)
{
    struct sim_array *array = sim_array_find(hArray);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pPlaneArray || planeIdx > 1 || array->descriptor.Format != CU_AD_FORMAT_NV12)
        return CUDA_ERROR_INVALID_VALUE;
    if (!array->children) {
        array->children = calloc(2, sizeof *array->children);
        for (unsigned i = 0; array->children && i < 2; i++) {
            struct sim_array *plane = array->children[i] = calloc(1, sizeof *plane);
            if (!plane)
                return CUDA_ERROR_OUT_OF_MEMORY;
            sim_array_layout(plane, array, i, array->base);
            plane->parent = array;
            plane->descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT8;
            plane->descriptor.NumChannels = i + 1;
            plane->pitch = plane->descriptor.Width * (i + 1);
            plane->base = array->base ? array->base + i * array->descriptor.Width * array->descriptor.Height : 0;
            array->child_count = i + 1;
        }
    }
    *pPlaneArray = array->children ? (CUarray)array->children[planeIdx] : NULL;
    return array->children ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Answered only for deferred-mapping arrays. */
static CUresult sim_requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, const struct sim_array *array, CUdevice device)
{
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out || !sim_device_get(device) || !(array->descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t bytes = 0;
    bool overflow = false;
    for (unsigned level = 0; level < sim_at_least_one(array->levels); level++)
        bytes += sim_level_bytes(&array->descriptor, level, &overflow);
    *out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = sim_round_up(bytes, SIM_ARRAY_STEP), .alignment = SIM_ARRAY_STEP};
    return CUDA_SUCCESS;
}

SIM_API3(654, 11060, cuArrayGetMemoryRequirements, CUDA_ARRAY_MEMORY_REQUIREMENTS *, memoryRequirements, CUarray, array,
         CUdevice, device)
{
    return sim_requirements(memoryRequirements, sim_array_find(array), device);
}

SIM_API3(655, 11060, cuMipmappedArrayGetMemoryRequirements, CUDA_ARRAY_MEMORY_REQUIREMENTS *, memoryRequirements,
         CUmipmappedArray, mipmap, CUdevice, device)
{
    return sim_requirements(memoryRequirements, sim_mipmap_find(mipmap), device);
}
