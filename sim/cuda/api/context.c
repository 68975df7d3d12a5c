/* SPDX-License-Identifier: MIT
 * Entry points of contexts and primary contexts (life.c). */
#include "cuda/context.h"

#include <sched.h>
#include <stdlib.h>

/* ---- the thread's stack ------------------------------------------------------------------------------------------ */

static CUresult sim_context_create(CUcontext *pctx, unsigned flags, CUdevice dev)
{
    if (!pctx || !sim_context_takes(flags))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (sim_self.depth == SIM_CONTEXT_STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_context *context = calloc(1, sizeof *context);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_context_start(context, dev, flags);
    if (result != CUDA_SUCCESS) {
        free(context);
        return result;
    }
    *pctx = sim_context_handle(context);
    return sim_context_push(context);
}

static CUresult sim_context_destroy(CUcontext ctx)
{
    struct sim_context *context = sim_context_usable(ctx);
    if (!context || context->primary || context->parent)
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_context_end(context);
    if (sim_self.depth && sim_self.stack[sim_self.depth - 1].context == context)
        sim_self.depth--;
    free(context);
    return CUDA_SUCCESS;
}

SIM_API3(10, 2000, cuCtxCreate, CUcontext *, pctx, unsigned int, flags, CUdevice, dev)
{
    return sim_context_create(pctx, flags, dev);
}

SIM_API3(235, 3020, cuCtxCreate_v2, CUcontext *, pctx, unsigned int, flags, CUdevice, dev)
{
    return sim_context_create(pctx, flags, dev);
}

SIM_API5(645, 11040, cuCtxCreate_v3, CUcontext *, pctx, CUexecAffinityParam *, paramsArray, int, numParams,
         unsigned int, flags, CUdevice, dev)
{
    /* Affinity needs MPS, which the simulator does not have. */
    if (numParams < 0 || (numParams && !paramsArray))
        return CUDA_ERROR_INVALID_VALUE;
    return numParams ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : sim_context_create(pctx, flags, dev);
}

SIM_API4(757, 12050, cuCtxCreate_v4, CUcontext *, pctx, CUctxCreateParams *, ctxCreateParams, unsigned int, flags,
         CUdevice, dev)
{
    if (ctxCreateParams && ctxCreateParams->numExecAffinityParams)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (ctxCreateParams && ctxCreateParams->cigParams)
        return CUDA_ERROR_NOT_SUPPORTED;
    return sim_context_create(pctx, flags, dev);
}

SIM_API1(11, 2000, cuCtxDestroy, CUcontext, ctx)
{
    return sim_context_destroy(ctx);
}

SIM_API1(322, 4000, cuCtxDestroy_v2, CUcontext, ctx)
{
    return sim_context_destroy(ctx);
}

/* Usage counts of the first API: a created context has one use, which detaching takes. */
SIM_API1(13, 2000, cuCtxDetach, CUcontext, ctx)
{
    return sim_context_destroy(ctx);
}

/* ---- primary contexts -------------------------------------------------------------------------------------------- */

SIM_API2(386, 7000, cuDevicePrimaryCtxRetain, CUcontext *, pctx, CUdevice, dev)
{
    struct sim_device *device = sim_device_get(dev);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_context *context = device->primary;
    if (!context && !(context = device->primary = calloc(1, sizeof *context)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* One that another thread is just destroying: its end needs the lock now and then, so look
     * again after it. */
    while (context->dying) {
        sim_unlock();
        sched_yield();
        sim_lock();
    }
    if (device->primary_refs++ == 0) {
        *context = (struct sim_context){.primary = true};
        CUresult result = sim_context_start(context, dev, device->primary_flags);
        if (result != CUDA_SUCCESS) {
            device->primary_refs--;
            return result;
        }
    }
    *pctx = sim_context_handle(context);
    return CUDA_SUCCESS;
}

/* A reset takes effect even if others hold the context; an inactive one does not change. */
static CUresult sim_primary_reset(CUdevice dev)
{
    struct sim_device *device = sim_device_get(dev);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (device->primary_refs)
        sim_primary_end(device);
    return CUDA_SUCCESS;
}

static CUresult sim_primary_flags(CUdevice dev, unsigned flags)
{
    struct sim_device *device = sim_device_get(dev);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!sim_context_takes(flags))
        return CUDA_ERROR_INVALID_VALUE;
    device->primary_flags = flags;
    if (device->primary_refs)
        device->primary->flags = flags;
    return CUDA_SUCCESS;
}

SIM_API1(387, 7000, cuDevicePrimaryCtxRelease, CUdevice, dev)
{
    return sim_primary_release(dev);
}

SIM_API1(544, 11000, cuDevicePrimaryCtxRelease_v2, CUdevice, dev)
{
    return sim_primary_release(dev);
}

SIM_API1(389, 7000, cuDevicePrimaryCtxReset, CUdevice, dev)
{
    return sim_primary_reset(dev);
}

SIM_API1(545, 11000, cuDevicePrimaryCtxReset_v2, CUdevice, dev)
{
    return sim_primary_reset(dev);
}

SIM_API2(388, 7000, cuDevicePrimaryCtxSetFlags, CUdevice, dev, unsigned int, flags)
{
    /* Before 11.0 an active context refused it. */
    if (sim_device_get(dev) && sim_devices[dev].primary_refs)
        return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
    return sim_primary_flags(dev, flags);
}

SIM_API2(546, 11000, cuDevicePrimaryCtxSetFlags_v2, CUdevice, dev, unsigned int, flags)
{
    return sim_primary_flags(dev, flags);
}

SIM_API3(392, 7000, cuDevicePrimaryCtxGetState, CUdevice, dev, unsigned int *, flags, int *, active)
{
    const struct sim_device *device = sim_device_get(dev);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = device->primary_flags;
    *active = device->primary_refs != 0;
    return CUDA_SUCCESS;
}
