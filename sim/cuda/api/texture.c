/* SPDX-License-Identifier: MIT
 * Texture and surface objects: a handle for memory that is there already, and the descriptions that
 * it was made with.  They own nothing.  Kernels compute nothing here, so no texel is ever read. */
#include "cuda/texture.h"
#include "cuda/stream.h"

#include <stdlib.h>

static struct sim_texture *sim_texture_find(unsigned long long handle, bool surface)
{
    for (struct sim_texture *at = sim_textures; at; at = at->next)
        if (at->handle == handle && at->surface == surface)
            return at;
    return NULL;
}

static CUresult sim_linear_check(CUdeviceptr address, CUarray_format format, unsigned channels, size_t bytes,
                                 int device)
{
    if (!address || !bytes || !sim_array_element(format) || (channels != 1 && channels != 2 && channels != 4))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_pool_covers(address))
        return CUDA_SUCCESS;
    return sim_memory_check(address, bytes, device, false, NULL);
}

static CUresult sim_resource_check(const CUDA_RESOURCE_DESC *r, bool surface, int device)
{
    const size_t height = r->resType == CU_RESOURCE_TYPE_PITCH2D ? r->res.pitch2D.height : 0;

    if (r->flags || (surface && r->resType != CU_RESOURCE_TYPE_ARRAY))
        return CUDA_ERROR_INVALID_VALUE;
    switch (r->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        return sim_array_find(r->res.array.hArray) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return sim_mipmap_find(r->res.mipmap.hMipmappedArray) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_RESOURCE_TYPE_LINEAR:
        return sim_linear_check(r->res.linear.devPtr, r->res.linear.format, r->res.linear.numChannels,
                                r->res.linear.sizeInBytes, device);
    case CU_RESOURCE_TYPE_PITCH2D:
        if (!height || !r->res.pitch2D.pitchInBytes || r->res.pitch2D.pitchInBytes > SIZE_MAX / height)
            return CUDA_ERROR_INVALID_VALUE;
        return sim_linear_check(r->res.pitch2D.devPtr, r->res.pitch2D.format, r->res.pitch2D.numChannels,
                                r->res.pitch2D.pitchInBytes * (height - 1) + 1, device);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult sim_texture_new(unsigned long long *out, const CUDA_RESOURCE_DESC *resource,
                                const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view, bool surface)
{
    static unsigned long long last;
    struct sim_context *context;
    CUresult result = sim_context_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!out || !resource || (!surface && !texture))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_resource_check(resource, surface, context->device);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_texture *made = sim_grow(NULL, sizeof *made);
    *made = (struct sim_texture){.next = sim_textures,
                                 .handle = ++last,
                                 .surface = surface,
                                 .viewed = view != NULL,
                                 .context_uid = context->uid,
                                 .resource = *resource};
    if (texture)
        made->texture = *texture;
    if (view)
        made->view = *view;
    sim_textures = made;
    *out = made->handle;
    return CUDA_SUCCESS;
}

static CUresult sim_texture_end(unsigned long long handle, bool surface)
{
    struct sim_texture *found = sim_texture_find(handle, surface), **at = &sim_textures;

    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    while (*at != found)
        at = &(*at)->next;
    *at = found->next;
    free(found);
    return CUDA_SUCCESS;
}

SIM_API4(339, 5000, cuTexObjectCreate, CUtexObject *, pTexObject, const CUDA_RESOURCE_DESC *, pResDesc,
         const CUDA_TEXTURE_DESC *, pTexDesc, const CUDA_RESOURCE_VIEW_DESC *, pResViewDesc)
{
    return sim_texture_new(pTexObject, pResDesc, pTexDesc, pResViewDesc, false);
}

SIM_API1(340, 5000, cuTexObjectDestroy, CUtexObject, texObject)
{
    return sim_texture_end(texObject, false);
}

SIM_API2(343, 5000, cuSurfObjectCreate, CUsurfObject *, pSurfObject, const CUDA_RESOURCE_DESC *, pResDesc)
{
    return sim_texture_new(pSurfObject, pResDesc, NULL, NULL, true);
}

SIM_API1(344, 5000, cuSurfObjectDestroy, CUsurfObject, surfObject)
{
    return sim_texture_end(surfObject, true);
}

#define SIM_TEXTURE_TELL(out, handle, surface, field)                                                                  \
    const struct sim_texture *found = sim_texture_find(handle, surface);                                               \
    if (!found || !(out))                                                                                              \
        return CUDA_ERROR_INVALID_VALUE;                                                                               \
    *(out) = found->field;                                                                                             \
    return CUDA_SUCCESS

SIM_API2(341, 5000, cuTexObjectGetResourceDesc, CUDA_RESOURCE_DESC *, pResDesc, CUtexObject, texObject)
{
    SIM_TEXTURE_TELL(pResDesc, texObject, false, resource);
}

SIM_API2(342, 5000, cuTexObjectGetTextureDesc, CUDA_TEXTURE_DESC *, pTexDesc, CUtexObject, texObject)
{
    SIM_TEXTURE_TELL(pTexDesc, texObject, false, texture);
}

/* An object that was made without a view has none to tell. */
SIM_API2(361, 5000, cuTexObjectGetResourceViewDesc, CUDA_RESOURCE_VIEW_DESC *, pResViewDesc, CUtexObject, texObject)
{
    const struct sim_texture *made = sim_texture_find(texObject, false);

    if (made && !made->viewed)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TEXTURE_TELL(pResViewDesc, texObject, false, view);
}

SIM_API2(345, 5000, cuSurfObjectGetResourceDesc, CUDA_RESOURCE_DESC *, pResDesc, CUsurfObject, surfObject)
{
    SIM_TEXTURE_TELL(pResDesc, surfObject, true, resource);
}
