/* SPDX-License-Identifier: MIT
 * Texture and surface objects, semaphores of other interfaces, user objects of graphs.  Called by
 * programs.  The driver's descriptors of resources and textures have other fields: converted here. */
#include "cudart/runtime.h"

/* CUDA 12's descriptor ends after the largest of its resources. */
#define RT_RESOURCE_BYTES (offsetof(struct cudaResourceDesc, res.pitch2D.pitchInBytes) + sizeof(size_t))

static cudaError_t rt_resource_from(const struct cudaResourceDesc *from, CUDA_RESOURCE_DESC *to)
{
    if (!from)
        return cudaErrorInvalidValue;
    *to = (CUDA_RESOURCE_DESC){.resType = (CUresourcetype)from->resType};
    switch (from->resType) {
    case cudaResourceTypeArray:
        to->res.array.hArray = rt_array(from->res.array.array);
        return cudaSuccess;
    case cudaResourceTypeMipmappedArray:
        to->res.mipmap.hMipmappedArray = (CUmipmappedArray)from->res.mipmap.mipmap;
        return cudaSuccess;
    case cudaResourceTypeLinear:
        to->res.linear.devPtr = rt_device_pointer(from->res.linear.devPtr);
        to->res.linear.sizeInBytes = from->res.linear.sizeInBytes;
        return rt_format(&from->res.linear.desc, &to->res.linear.format, &to->res.linear.numChannels);
    case cudaResourceTypePitch2D:
        to->res.pitch2D.devPtr = rt_device_pointer(from->res.pitch2D.devPtr);
        to->res.pitch2D.width = from->res.pitch2D.width;
        to->res.pitch2D.height = from->res.pitch2D.height;
        to->res.pitch2D.pitchInBytes = from->res.pitch2D.pitchInBytes;
        return rt_format(&from->res.pitch2D.desc, &to->res.pitch2D.format, &to->res.pitch2D.numChannels);
    }
    return cudaErrorInvalidValue;
}

static void rt_resource_to(const CUDA_RESOURCE_DESC *from, struct cudaResourceDesc *to)
{
    memset(to, 0, RT_RESOURCE_BYTES);
    to->resType = (enum cudaResourceType)from->resType;
    switch (from->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        to->res.array.array = (cudaArray_t)from->res.array.hArray;
        break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        to->res.mipmap.mipmap = (cudaMipmappedArray_t)from->res.mipmap.hMipmappedArray;
        break;
    case CU_RESOURCE_TYPE_LINEAR:
        to->res.linear.devPtr = rt_pointer(from->res.linear.devPtr);
        to->res.linear.sizeInBytes = from->res.linear.sizeInBytes;
        rt_channel_desc(from->res.linear.format, from->res.linear.numChannels, &to->res.linear.desc);
        break;
    case CU_RESOURCE_TYPE_PITCH2D:
        to->res.pitch2D.devPtr = rt_pointer(from->res.pitch2D.devPtr);
        to->res.pitch2D.width = from->res.pitch2D.width;
        to->res.pitch2D.height = from->res.pitch2D.height;
        to->res.pitch2D.pitchInBytes = from->res.pitch2D.pitchInBytes;
        rt_channel_desc(from->res.pitch2D.format, from->res.pitch2D.numChannels, &to->res.pitch2D.desc);
        break;
    }
}

/* Flags of the driver, which are fields of the runtime. */
enum { RT_AS_INTEGER = 1, RT_NORMALIZED = 2, RT_SRGB = 16, RT_NO_TRILINEAR = 32, RT_SEAMLESS = 64 };

static void rt_texture_from(const struct cudaTextureDesc *from, CUDA_TEXTURE_DESC *to)
{
    *to = (CUDA_TEXTURE_DESC){.filterMode = (CUfilter_mode)from->filterMode,
                              .flags = (from->readMode == cudaReadModeElementType ? RT_AS_INTEGER : 0) |
                                       (from->normalizedCoords ? RT_NORMALIZED : 0) | (from->sRGB ? RT_SRGB : 0) |
                                       (from->disableTrilinearOptimization ? RT_NO_TRILINEAR : 0) |
                                       (from->seamlessCubemap ? RT_SEAMLESS : 0),
                              .maxAnisotropy = from->maxAnisotropy,
                              .mipmapFilterMode = (CUfilter_mode)from->mipmapFilterMode,
                              .mipmapLevelBias = from->mipmapLevelBias,
                              .minMipmapLevelClamp = from->minMipmapLevelClamp,
                              .maxMipmapLevelClamp = from->maxMipmapLevelClamp};
    for (int i = 0; i < 3; i++)
        to->addressMode[i] = (CUaddress_mode)from->addressMode[i];
    memcpy(to->borderColor, from->borderColor, sizeof to->borderColor);
}

static void rt_texture_to(const CUDA_TEXTURE_DESC *from, struct cudaTextureDesc *to)
{
    *to = (struct cudaTextureDesc){.filterMode = (enum cudaTextureFilterMode)from->filterMode,
                                   .readMode = from->flags & RT_AS_INTEGER ? cudaReadModeElementType
                                                                           : cudaReadModeNormalizedFloat,
                                   .sRGB = !!(from->flags & RT_SRGB),
                                   .normalizedCoords = !!(from->flags & RT_NORMALIZED),
                                   .maxAnisotropy = from->maxAnisotropy,
                                   .mipmapFilterMode = (enum cudaTextureFilterMode)from->mipmapFilterMode,
                                   .mipmapLevelBias = from->mipmapLevelBias,
                                   .minMipmapLevelClamp = from->minMipmapLevelClamp,
                                   .maxMipmapLevelClamp = from->maxMipmapLevelClamp,
                                   .disableTrilinearOptimization = !!(from->flags & RT_NO_TRILINEAR),
                                   .seamlessCubemap = !!(from->flags & RT_SEAMLESS)};
    for (int i = 0; i < 3; i++)
        to->addressMode[i] = (enum cudaTextureAddressMode)from->addressMode[i];
    memcpy(to->borderColor, from->borderColor, sizeof to->borderColor);
}

RT_API(RT_CONTEXT, 185, cudaCreateTextureObject, cudaTextureObject_t *, pTexObject, const struct cudaResourceDesc *,
       pResDesc, const struct cudaTextureDesc *, pTexDesc, const struct cudaResourceViewDesc *, pResViewDesc)
{
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    cudaError_t status = pTexDesc ? rt_resource_from(pResDesc, &resource) : cudaErrorInvalidValue;

    if (status != cudaSuccess)
        return status;
    rt_texture_from(pTexDesc, &texture);
    /* The views have one layout. */
    return rt_error_from(
        D->cuTexObjectCreate(pTexObject, &resource, &texture, (const CUDA_RESOURCE_VIEW_DESC *)pResViewDesc));
}

RT_API(RT_CONTEXT, 186, cudaDestroyTextureObject, cudaTextureObject_t, texObject)
{
    return rt_error_from(D->cuTexObjectDestroy(texObject));
}

RT_API(RT_CONTEXT, 187, cudaGetTextureObjectResourceDesc, struct cudaResourceDesc *, pResDesc, cudaTextureObject_t,
       texObject)
{
    CUDA_RESOURCE_DESC resource;
    CUresult result = D->cuTexObjectGetResourceDesc(pResDesc ? &resource : NULL, texObject);

    if (!result)
        rt_resource_to(&resource, pResDesc);
    return rt_error_from(result);
}

RT_API(RT_CONTEXT, 188, cudaGetTextureObjectTextureDesc, struct cudaTextureDesc *, pTexDesc, cudaTextureObject_t,
       texObject)
{
    CUDA_TEXTURE_DESC texture;
    CUresult result = D->cuTexObjectGetTextureDesc(pTexDesc ? &texture : NULL, texObject);

    if (!result)
        rt_texture_to(&texture, pTexDesc);
    return rt_error_from(result);
}

RT_API(RT_CONTEXT, 199, cudaGetTextureObjectResourceViewDesc, struct cudaResourceViewDesc *, pResViewDesc,
       cudaTextureObject_t, texObject)
{
    return rt_error_from(D->cuTexObjectGetResourceViewDesc((CUDA_RESOURCE_VIEW_DESC *)pResViewDesc, texObject));
}

RT_API(RT_CONTEXT, 189, cudaCreateSurfaceObject, cudaSurfaceObject_t *, pSurfObject, const struct cudaResourceDesc *,
       pResDesc)
{
    CUDA_RESOURCE_DESC resource;
    cudaError_t status = rt_resource_from(pResDesc, &resource);

    return status == cudaSuccess ? rt_error_from(D->cuSurfObjectCreate(pSurfObject, &resource)) : status;
}

RT_API(RT_CONTEXT, 190, cudaDestroySurfaceObject, cudaSurfaceObject_t, surfObject)
{
    return rt_error_from(D->cuSurfObjectDestroy(surfObject));
}

RT_API(RT_CONTEXT, 191, cudaGetSurfaceObjectResourceDesc, struct cudaResourceDesc *, pResDesc, cudaSurfaceObject_t,
       surfObject)
{
    CUDA_RESOURCE_DESC resource;
    CUresult result = D->cuSurfObjectGetResourceDesc(pResDesc ? &resource : NULL, surfObject);

    if (!result)
        rt_resource_to(&resource, pResDesc);
    return rt_error_from(result);
}

/* ---- semaphores: the structs have the driver's layout ------------------------------------------------------------ */

RT_API(RT_CONTEXT, 278, cudaImportExternalSemaphore, cudaExternalSemaphore_t *, extSem_out,
       const struct cudaExternalSemaphoreHandleDesc *, semHandleDesc)
{
    return rt_error_from(
        D->cuImportExternalSemaphore(extSem_out, (const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *)semHandleDesc));
}

RT_API(RT_CONTEXT, 283, cudaDestroyExternalSemaphore, cudaExternalSemaphore_t, extSem)
{
    return rt_error_from(D->cuDestroyExternalSemaphore(extSem));
}

RT_TWINS(RT_CONTEXT, 393, 394, _ptsz, cudaSignalExternalSemaphoresAsync, const cudaExternalSemaphore_t *, extSemArray,
         const struct cudaExternalSemaphoreSignalParams *, paramsArray, unsigned int, numExtSems, cudaStream_t, stream)
{
    return rt_error_from(D->cuSignalExternalSemaphoresAsync(
        extSemArray, (const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *)paramsArray, numExtSems, stream));
}

RT_TWINS(RT_CONTEXT, 395, 396, _ptsz, cudaWaitExternalSemaphoresAsync, const cudaExternalSemaphore_t *, extSemArray,
         const struct cudaExternalSemaphoreWaitParams *, paramsArray, unsigned int, numExtSems, cudaStream_t, stream)
{
    return rt_error_from(D->cuWaitExternalSemaphoresAsync(
        extSemArray, (const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *)paramsArray, numExtSems, stream));
}

/* ---- user objects ------------------------------------------------------------------------------------------------ */

RT_API(RT_CONTEXT, 413, cudaUserObjectCreate, cudaUserObject_t *, object_out, void *, ptr, cudaHostFn_t, destroy,
       unsigned int, initialRefcount, unsigned int, flags)
{
    return rt_error_from(D->cuUserObjectCreate(object_out, ptr, (CUhostFn)destroy, initialRefcount, flags));
}

RT_API(RT_CONTEXT, 414, cudaUserObjectRetain, cudaUserObject_t, object, unsigned int, count)
{
    return rt_error_from(D->cuUserObjectRetain(object, count));
}

RT_API(RT_CONTEXT, 415, cudaUserObjectRelease, cudaUserObject_t, object, unsigned int, count)
{
    return rt_error_from(D->cuUserObjectRelease(object, count));
}

RT_API(RT_CONTEXT, 416, cudaGraphRetainUserObject, cudaGraph_t, graph, cudaUserObject_t, object, unsigned int, count,
       unsigned int, flags)
{
    return rt_error_from(D->cuGraphRetainUserObject(graph, object, count, flags));
}

RT_API(RT_CONTEXT, 417, cudaGraphReleaseUserObject, cudaGraph_t, graph, cudaUserObject_t, object, unsigned int, count)
{
    return rt_error_from(D->cuGraphReleaseUserObject(graph, object, count));
}
