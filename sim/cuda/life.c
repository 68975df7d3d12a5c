/* SPDX-License-Identifier: MIT
 * Contexts begin and end, together with the objects that end with them.  api/context.c and api/green.c have the entry
 * points, context.c finds contexts. */
#include "cuda/context.h"
#include "cuda/memory.h"
#include "cuda/module.h"
#include "cuda/pool.h"
#include "cuda/stream.h"
#include "report.h"

#include <stdlib.h>

/* What was seen of bare contexts, from 107 MiB on an RTX 4060 Ti to 555 MiB on an RTX PRO 6000 Blackwell, is within 6 %
 * of 2 KiB for each thread that can be resident: the driver keeps local memory for all of them. Small devices, which
 * tests use to run out of memory, lose an eighth to it. */
#define SIM_THREAD_BYTES 2048u
/* Of which this is the stack, by its default. */
#define SIM_THREAD_STACK 1024u

static uint64_t sim_overhead_bare(int device)
{
    uint64_t eighth = sim_devices[device].total / 8 / SIM_PAGE * SIM_PAGE;
    uint64_t threads = (uint64_t)sim_device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                       (uint64_t)sim_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    uint64_t bytes = sim_round_up(threads * SIM_THREAD_BYTES, SIM_PAGE);
    return eighth < bytes ? eighth : bytes;
}

/* With the stack of a thread that the context has now: the program's limit, or what its kernels need, which the driver
 * raises it to and keeps (cuCtxCreate, CU_CTX_LMEM_RESIZE_TO_MAX). There is one such memory for each context, of as many
 * bytes for each thread that can be resident. On an H200 the first kernel of most programs made the context larger, by a
 * sixth, for its local memory as it seems. */
static uint64_t sim_overhead(const struct sim_context *context, bool launches, uint32_t stack)
{
    const uint64_t bare = sim_overhead_bare(context->device), threads = bare / SIM_THREAD_BYTES;
    const uint64_t sixth = launches ? bare / 6 / SIM_PAGE * SIM_PAGE : 0;
    if (stack < SIM_THREAD_STACK)
        return bare - threads * (SIM_THREAD_STACK - stack) / SIM_PAGE * SIM_PAGE + sixth;
    const uint64_t more = sim_round_up(threads * (stack - SIM_THREAD_STACK), SIM_PAGE);
    return bare + (more > sixth ? more : sixth);
}

/* Contexts of one device share it: the largest counts. */
static CUresult sim_overhead_set(int device, uint64_t bytes)
{
    struct sim_device *d = &sim_devices[device];
    CUresult result = CUDA_SUCCESS;
    if (d->overhead < bytes)
        result = sim_device_take(device, bytes - d->overhead);
    else
        sim_device_give(device, d->overhead - bytes);
    if (result == CUDA_SUCCESS)
        d->overhead = bytes;
    return result;
}

CUresult sim_context_launches(struct sim_context *context, struct sim_function *function)
{
    const uint32_t needs = sim_function_stack(function), stack = needs > context->stack ? needs : context->stack;
    if (context->launched && stack == context->stack)
        return CUDA_SUCCESS;
    const uint64_t bytes = sim_overhead(context, true, stack);
    CUresult result = CUDA_SUCCESS;
    if (bytes > sim_devices[context->device].overhead)
        result = sim_overhead_set(context->device, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    if (needs > SIM_THREAD_STACK && needs > context->stack)
        sim_report(
            "libcuda.so.1", "assumed",
            "the context keeps a stack of %u bytes for each thread that the GPU can hold, since a kernel needs it: "
            "%.380s",
            needs, function->name);
    context->launched = true;
    context->stack = stack;
    sim_kernels_stack(stack);
    return CUDA_SUCCESS;
}

CUresult sim_context_stack(struct sim_context *context, size_t stack)
{
    if (stack > SIM_STACK_MOST)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t bytes = sim_overhead(context, false, (uint32_t)stack);
    for (const struct sim_context *at = sim_contexts; at; at = at->next) {
        const uint64_t its = sim_overhead(at, at->launched, at->stack);
        if (at != context && at->device == context->device && its > bytes)
            bytes = its;
    }
    CUresult result = sim_overhead_set(context->device, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    context->launched = false;
    context->stack = (uint32_t)stack;
    sim_kernels_stack(context->stack);
    return CUDA_SUCCESS;
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
    context->limits[CU_LIMIT_STACK_SIZE] = SIM_THREAD_STACK;
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
    const uint64_t bare = sim_overhead_bare(device);
    CUresult result = sim_devices[device].overhead < bare ? sim_overhead_set(device, bare) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    context->uid = ++sim_context_uid;
    context->device = device;
    context->stack = SIM_THREAD_STACK;
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

/* ---- primary contexts -------------------------------------------------------------------------------------------- */

void sim_primary_end(struct sim_device *device)
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

/* Their references to the primary context are void: it ends for all. */
void sim_green_end(struct sim_context *primary)
{
    for (uint32_t uid = primary->uid + 1; uid; uid++) {
        struct sim_context *context = sim_context_by_uid(uid);
        if (!context && uid > sim_context_newest())
            return;
        if (!context || context->parent != primary || context->dying)
            continue;
        sim_context_end(context);
        free(context);
    }
}

/* ---- what ends with a context ------------------------------------------------------------------------------------ */

void sim_memory_end(struct sim_context *context)
{
    while (context->memory)
        sim_memory_dispose(context->memory);
}

/* The context goes: its work finishes, its streams and events die with it. */
void sim_stream_context_destroyed(struct sim_context *c)
{
    struct sim_point all = {0};
    struct sim_stream *s, *next;

    for (s = sim_stream_first(); s; s = s->next)
        if (s->context == c)
            sim_point_join(&all, &s->point);
    sim_point_wait(&all);
    sim_point_drop(&all);
    for (s = sim_stream_first(); s; s = next) {
        next = s->next;
        if (s->context == c) {
            sim_capture_stream_gone(s);
            sim_stream_drop(s);
        }
    }
    sim_context_events_end(c);
}
