/* SPDX-License-Identifier: MIT
 * Contexts: creation, reset and destruction, together with the objects that end with a context.
 * Called by its entry points and by every file that asks which context is current.  Its memory goes
 * through memory.c.
 */
#include "context.h"
#include "pool.h"

#include <sched.h>
#include <stdlib.h>

static struct sim_context *sim_contexts; /* live ones, dying ones included until they are gone */
static uint32_t sim_context_uid;

/* What was seen of bare contexts, from 107 MiB on an RTX 4060 Ti to 555 MiB on an RTX PRO 6000 Blackwell, is within 6 %
 * of 2 KiB for each thread that can be resident: the driver keeps local memory for all of them. Small devices, which
 * tests use to run out of memory, lose an eighth to it. */
static uint64_t sim_overhead(int device)
{
    uint64_t eighth = sim_devices[device].total / 8 / SIM_PAGE * SIM_PAGE;
    uint64_t threads = (uint64_t)sim_device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                       (uint64_t)sim_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    uint64_t bytes = sim_round_up(threads * 2048, SIM_PAGE);
    return eighth < bytes ? eighth : bytes;
}

/* ---- lookup ------------------------------------------------------------------------------------------------------ */

struct sim_context *sim_context_find(CUcontext handle)
{
    for (struct sim_context *at = sim_contexts; at; at = at->next)
        if (sim_context_handle(at) == handle)
            return at;
    return NULL;
}

struct sim_context *sim_context_by_uid(uint32_t uid)
{
    for (struct sim_context *at = sim_contexts; at; at = at->next)
        if (at->uid == uid)
            return at;
    return NULL;
}

uint32_t sim_context_newest(void)
{
    return sim_context_uid;
}

/* A handle that a program may use: lives and is not being destroyed. */
struct sim_context *sim_context_usable(CUcontext handle)
{
    struct sim_context *context = handle ? sim_context_find(handle) : NULL;
    return context && !context->dying ? context : NULL;
}

CUresult sim_context_current(struct sim_context **context)
{
    *context = NULL;
    if (sim_self.depth == 0 || !sim_self.stack[sim_self.depth - 1].context)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_context *top = sim_context_usable(sim_context_handle(sim_self.stack[sim_self.depth - 1].context));
    /* Another context may live at the same address by now; a primary one keeps its handle through
     * every reset. */
    if (!top || (top->uid != sim_self.stack[sim_self.depth - 1].uid && !top->primary))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    sim_self.stack[sim_self.depth - 1].uid = top->uid;
    *context = top;
    return CUDA_SUCCESS;
}

struct sim_context *sim_context_peek(void)
{
    struct sim_context *context;
    return sim_context_current(&context) == CUDA_SUCCESS ? context : NULL;
}

CUresult sim_context_primary(int device, struct sim_context **context)
{
    *context = sim_devices[device].primary_refs ? sim_devices[device].primary : NULL;
    return *context ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static CUresult sim_overhead_grow(int device, uint64_t bytes)
{
    struct sim_device *d = &sim_devices[device];
    if (d->overhead >= bytes)
        return CUDA_SUCCESS;
    CUresult result = sim_device_take(device, bytes - d->overhead);
    if (result == CUDA_SUCCESS)
        d->overhead = bytes;
    return result;
}

/* On an H200 the first kernel of most programs made the context larger, by a sixth, for its local memory as it seems. */
CUresult sim_context_launches(const struct sim_context *context)
{
    uint64_t bare = sim_overhead(context->device);
    return sim_overhead_grow(context->device, bare + bare / 6 / SIM_PAGE * SIM_PAGE);
}

/* The last context of a device gives the overhead back. */
static void sim_overhead_give(int device)
{
    for (struct sim_context *at = sim_contexts; at; at = at->next)
        if (at->device == device)
            return;
    sim_device_give(device, sim_devices[device].overhead);
    sim_devices[device].overhead = 0;
}

static void sim_limits_default(struct sim_context *context)
{
    const int device = context->device;
    const size_t l2 = (size_t)sim_device_attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
                 printf_bytes = (size_t)sim_device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) * 65536;
    const bool hopper = sim_spec.gpu->capability == 90;
    /* The driver's defaults for a new context on a current device; those that depend on the GPU as an H200's. */
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = hopper ? printf_bytes : SIM_MIB;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 * SIM_MIB;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    context->limits[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = hopper ? l2 / 16 * 3 : 0;
    context->limits[CU_LIMIT_SHMEM_SIZE] =
        (size_t)sim_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
}

/* `context` is zeroed memory.  Drops the lock for the CONTEXT_CREATED event. */
CUresult sim_context_start(struct sim_context *context, int device, unsigned flags)
{
    CUresult result = sim_overhead_grow(device, sim_overhead(device));
    if (result != CUDA_SUCCESS)
        return result;
    context->uid = ++sim_context_uid;
    context->device = device;
    context->flags = flags;
    sim_limits_default(context);
    context->next = sim_contexts;
    sim_contexts = context;
    sim_ledger_contexts(device, 1);
    sim_stream_context_created(context);
    sim_tool_event(SIM_TOOL_RESOURCE, SIM_TOOL_CONTEXT_CREATED, context, NULL, NULL);
    return CUDA_SUCCESS;
}

/* Everything that dies with it goes; the struct stays with the caller.  Drops the lock for events
 * and waits. */
void sim_context_end(struct sim_context *context)
{
    context->dying = true;
    sim_tool_event(SIM_TOOL_RESOURCE, SIM_TOOL_CONTEXT_DESTROY_STARTING, context, NULL, NULL);
    sim_stream_context_destroyed(context);
    sim_modules_end(context);
    sim_textures_end(context);
    sim_arrays_end(context);
    sim_memory_end(context);
    struct sim_context **at = &sim_contexts;
    while (*at != context)
        at = &(*at)->next;
    *at = context->next;
    sim_ledger_contexts(context->device, -1);
    sim_overhead_give(context->device);
}

/* ---- the thread's stack ------------------------------------------------------------------------------------------ */

CUresult sim_context_push(struct sim_context *context)
{
    if (sim_self.depth == SIM_CONTEXT_STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_self.depth++;
    sim_context_set(context);
    return CUDA_SUCCESS;
}

void sim_context_set(struct sim_context *context)
{
    int top = sim_self.depth - 1;
    sim_self.stack[top].context = context;
    sim_self.stack[top].uid = context ? context->uid : 0;
    sim_self.stack[top].device = context ? context->device : 0;
}

static CUresult sim_context_create(CUcontext *pctx, unsigned flags, CUdevice dev)
{
    if (!pctx || flags & ~(unsigned)CU_CTX_FLAGS_MASK)
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

static void sim_primary_end(struct sim_device *device)
{
    device->primary_refs = 0;
    sim_green_end(device->primary);
    sim_context_end(device->primary);
    sim_pools_reset((int)(device - sim_devices));
    device->primary->dying = false;
}

CUresult sim_primary_release(CUdevice dev)
{
    struct sim_device *device = sim_device_get(dev);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (device->primary_refs == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (device->primary_refs == 1)
        sim_primary_end(device);
    else
        device->primary_refs--;
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
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
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
