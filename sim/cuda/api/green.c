/* SPDX-License-Identifier: MIT
 * Green contexts: a share of a device's multiprocessors, on top of the primary context. A green
 * context has its own handle and no memory of its own: sim_context_owner is the primary one. */
#include "cuda/context.h"

#include <stdlib.h>
#include <string.h>

struct CUdevResourceDesc_st {
    struct CUdevResourceDesc_st *next;
    unsigned sm_count;
};
static CUdevResourceDesc sim_descriptions; /* the API has no call that ends one: they live as long as the process */

static void sim_sm_resource(CUdevResource *resource, unsigned count)
{
    memset(resource, 0, sizeof *resource);
    resource->type = CU_DEV_RESOURCE_TYPE_SM;
    resource->sm.smCount = count;
    sim_gpu_groups(sim_spec.gpu, &resource->sm.minSmPartitionSize, &resource->sm.smCoscheduledAlignment);
}

SIM_API3(745, 12040, cuDeviceGetDevResource, CUdevice, device, CUdevResource *, resource, CUdevResourceType, type)
{
    if (!sim_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!resource)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    sim_sm_resource(resource, (unsigned)sim_spec.gpu->multiprocessors);
    return CUDA_SUCCESS;
}

/* Groups of at least minCount, rounded up to the step; the rest that does not fill a group remains. */
SIM_API6(751, 12040, cuDevSmResourceSplitByCount, CUdevResource *, result, unsigned int *, nbGroups,
         const CUdevResource *, input, CUdevResource *, remaining, unsigned int, useFlags, unsigned int, minCount)
{
    if (!nbGroups || !input || input->type != CU_DEV_RESOURCE_TYPE_SM || minCount > input->sm.smCount)
        return CUDA_ERROR_INVALID_VALUE;
    (void)useFlags;
    unsigned size, step;
    sim_gpu_groups(sim_spec.gpu, &size, &step);
    if (minCount > size)
        size = (unsigned)sim_round_up(minCount, step);
    unsigned possible = input->sm.smCount / size;
    if (!result) { /* asks how many there could be */
        *nbGroups = possible;
        return CUDA_SUCCESS;
    }
    unsigned count = *nbGroups < possible ? *nbGroups : possible;
    for (unsigned i = 0; i < count; i++)
        sim_sm_resource(&result[i], size);
    if (remaining)
        sim_sm_resource(remaining, input->sm.smCount - count * size);
    *nbGroups = count;
    return CUDA_SUCCESS;
}

SIM_API3(748, 12040, cuDevResourceGenerateDesc, CUdevResourceDesc *, phDesc, CUdevResource *, resources, unsigned int,
         nbResources)
{
    if (!phDesc || !resources || nbResources == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUdevResourceDesc_st *desc = calloc(1, sizeof *desc);
    if (!desc)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < nbResources; i++)
        desc->sm_count += resources[i].sm.smCount;
    desc->next = sim_descriptions;
    *phDesc = sim_descriptions = desc;
    return CUDA_SUCCESS;
}

static CUresult sim_green_find(CUgreenCtx handle, struct sim_context **context)
{
    *context = sim_context_usable((CUcontext)handle);
    return *context && (*context)->parent ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult sim_green_start(int device, struct sim_context **out)
{
    struct sim_context *primary, *context = calloc(1, sizeof *context);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_context_primary(device, &primary);
    if (result == CUDA_SUCCESS) {
        context->parent = primary;
        /* Whether a real driver reports CONTEXT_CREATED for it is not documented; tools need it to
         * learn the device. */
        result = sim_context_start(context, device, primary->flags);
    }
    if (result != CUDA_SUCCESS)
        free(context);
    else
        *out = context;
    return result;
}

/* Retains the primary context, which must be active. */
SIM_API4(743, 12040, cuGreenCtxCreate, CUgreenCtx *, phCtx, CUdevResourceDesc, desc, CUdevice, dev, unsigned int, flags)
{
    struct sim_context *context;
    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!phCtx || !desc || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_green_start(dev, &context);
    if (result != CUDA_SUCCESS)
        return result;
    sim_devices[dev].primary_refs++;
    context->sm_count = desc->sm_count;
    *phCtx = (CUgreenCtx)context;
    return CUDA_SUCCESS;
}

SIM_API1(744, 12040, cuGreenCtxDestroy, CUgreenCtx, hCtx)
{
    struct sim_context *context;
    CUresult result = sim_green_find(hCtx, &context);
    if (result != CUDA_SUCCESS)
        return result;
    int device = context->device;
    sim_context_end(context);
    free(context);
    return sim_primary_release(device);
}

SIM_API2(753, 12040, cuCtxFromGreenCtx, CUcontext *, pContext, CUgreenCtx, hCtx)
{
    struct sim_context *context;
    CUresult result = sim_green_find(hCtx, &context);
    if (result == CUDA_SUCCESS && !pContext)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *pContext = sim_context_handle(context);
    return result;
}

static CUresult sim_context_resource(const struct sim_context *context, CUdevResource *resource, CUdevResourceType type)
{
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!resource)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    sim_sm_resource(resource, context->sm_count ? context->sm_count : (unsigned)sim_spec.gpu->multiprocessors);
    return CUDA_SUCCESS;
}

SIM_API3(746, 12040, cuCtxGetDevResource, CUcontext, hCtx, CUdevResource *, resource, CUdevResourceType, type)
{
    return sim_context_resource(sim_context_usable(hCtx), resource, type);
}

SIM_API3(747, 12040, cuGreenCtxGetDevResource, CUgreenCtx, hCtx, CUdevResource *, resource, CUdevResourceType, type)
{
    struct sim_context *context;
    CUresult result = sim_green_find(hCtx, &context);
    return result == CUDA_SUCCESS ? sim_context_resource(context, resource, type) : result;
}
