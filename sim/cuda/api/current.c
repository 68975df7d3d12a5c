/* SPDX-License-Identifier: MIT
 * The current context: stack, queries, limits and peers.
 * Only entry points; contexts themselves are in context.c. */
#include "cuda/context.h"

static CUresult sim_push(CUcontext ctx)
{
    struct sim_context *context = sim_context_usable(ctx);
    return context ? sim_context_push(context) : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult sim_pop(CUcontext *pctx)
{
    if (sim_self.depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (pctx)
        *pctx = sim_context_handle(sim_self.stack[sim_self.depth - 1].context);
    sim_self.depth--;
    return CUDA_SUCCESS;
}

SIM_API1(14, 2000, cuCtxPushCurrent, CUcontext, ctx)
{
    return sim_push(ctx);
}

SIM_API1(323, 4000, cuCtxPushCurrent_v2, CUcontext, ctx)
{
    return sim_push(ctx);
}

SIM_API1(15, 2000, cuCtxPopCurrent, CUcontext *, pctx)
{
    return sim_pop(pctx);
}

SIM_API1(324, 4000, cuCtxPopCurrent_v2, CUcontext *, pctx)
{
    return sim_pop(pctx);
}

/* NULL takes the top away; an empty stack gets one. */
SIM_API1(303, 4000, cuCtxSetCurrent, CUcontext, ctx)
{
    struct sim_context *context = sim_context_usable(ctx);
    if (ctx && !context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctx) {
        sim_self.depth -= sim_self.depth > 0;
        return CUDA_SUCCESS;
    }
    if (sim_self.depth == 0)
        return sim_context_push(context);
    sim_context_set(context);
    return CUDA_SUCCESS;
}

SIM_API1(304, 4000, cuCtxGetCurrent, CUcontext *, pctx)
{
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = sim_self.depth ? sim_context_handle(sim_self.stack[sim_self.depth - 1].context) : NULL;
    return CUDA_SUCCESS;
}

/* NULL: the current one. */
static CUresult sim_context_named(CUcontext ctx, struct sim_context **context)
{
    if (!ctx)
        return sim_context_current(context);
    *context = sim_context_usable(ctx);
    return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult sim_context_device(CUdevice *device, CUcontext ctx)
{
    struct sim_context *context;
    CUresult result = sim_context_named(ctx, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->device;
    return CUDA_SUCCESS;
}

SIM_API1(16, 2000, cuCtxGetDevice, CUdevice *, device)
{
    return sim_context_device(device, NULL);
}

SIM_API2(795, 13000, cuCtxGetDevice_v2, CUdevice *, device, CUcontext, ctx)
{
    return sim_context_device(device, ctx);
}

SIM_API1(391, 7000, cuCtxGetFlags, unsigned int *, flags)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

SIM_API1(705, 12010, cuCtxSetFlags, unsigned int, flags)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS && !sim_context_takes(flags))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        context->flags = flags;
    return result;
}

SIM_API2(296, 3020, cuCtxGetApiVersion, CUcontext, ctx, unsigned int *, version)
{
    struct sim_context *context;
    CUresult result = sim_context_named(ctx, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 3020; /* of every context made through the API of CUDA 3.2 or later */
    return CUDA_SUCCESS;
}

SIM_API1(299, 3020, cuCtxGetCacheConfig, CUfunc_cache *, pconfig)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS && !pconfig)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *pconfig = (CUfunc_cache)context->cache_config;
    return result;
}

SIM_API1(300, 3020, cuCtxSetCacheConfig, CUfunc_cache, config)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS && config > CU_FUNC_CACHE_PREFER_EQUAL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        context->cache_config = (int)config;
    return result;
}

SIM_API0(568, 11000, cuCtxResetPersistingL2Cache)
{
    struct sim_context *context;
    return sim_context_current(&context);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* The depth of synchronising kernels ended with capability 9.0. */
static bool sim_limit_is_known(CUlimit limit)
{
    return limit <= CU_LIMIT_CIG_ENABLED && (limit != CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || sim_spec.gpu->capability < 90);
}

SIM_API2(136, 3010, cuCtxSetLimit, CUlimit, limit, size_t, value)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_limit_is_known(limit) || limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) /* the later ones are only read */
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > 128)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_STACK_SIZE)
        result = sim_context_stack(sim_context_owner(context), value);
    if (result == CUDA_SUCCESS)
        context->limits[limit] = value;
    return result;
}

SIM_API2(137, 3010, cuCtxGetLimit, size_t *, pvalue, CUlimit, limit)
{
    struct sim_context *context;
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!pvalue || limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_limit_is_known(limit))
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *pvalue = context->limits[limit];
    return CUDA_SUCCESS;
}

/* ---- peers ------------------------------------------------------------------------------------------------------- */

SIM_API2(313, 4000, cuCtxEnablePeerAccess, CUcontext, peerContext, unsigned int, Flags)
{
    struct sim_context *context, *peer = sim_context_usable(peerContext);
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (Flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!peer || peer == context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->device == context->device)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (context->peers & UINT64_C(1) << peer->device)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    context->peers |= UINT64_C(1) << peer->device;
    return CUDA_SUCCESS;
}

SIM_API1(314, 4000, cuCtxDisablePeerAccess, CUcontext, peerContext)
{
    struct sim_context *context, *peer = sim_context_usable(peerContext);
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!peer)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!(context->peers & UINT64_C(1) << peer->device))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    context->peers &= ~(UINT64_C(1) << peer->device);
    return CUDA_SUCCESS;
}

SIM_API2(695, 12000, cuCtxGetId, CUcontext, ctx, unsigned long long *, ctxId)
{
    const struct sim_context *context = ctx ? sim_context_usable(ctx) : sim_context_peek();
    if (!context)
        return ctx ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
    if (!ctxId)
        return CUDA_ERROR_INVALID_VALUE;
    *ctxId = context->uid;
    return CUDA_SUCCESS;
}

/* Writes of other devices into the device's memory: there is nothing that they could pass. */
SIM_API2(627, 11030, cuFlushGPUDirectRDMAWrites, CUflushGPUDirectRDMAWritesTarget, target,
         CUflushGPUDirectRDMAWritesScope, scope)
{
    struct sim_context *context;
    (void)scope;
    if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_context_current(&context);
}
