/* SPDX-License-Identifier: MIT
 *
 * torch.c: the functions that PyTorch's CUDAPluggableAllocator calls; see torch.def.  From Python:
 *
 *      a = torch.cuda.memory.CUDAPluggableAllocator("libgpuprof.so", "gpuprof_torch_alloc", "gpuprof_torch_free")
 *
 * PyTorch does not check for NULL, so a failed allocation raises torch.OutOfMemoryError (torchhost.c); our report is in
 * the session.  Below PyTorch's own allocator (a torch.cuda.MemPool) it returns NULL, which that allocator does check: it
 * empties its cache, tries again and raises the error itself.
 */
#include "allocator/torch.h"
#include "allocator/async.h"
#include "allocator/driver.h"
#include "allocator/route.h"
#include "allocator/stream.h"
#include "allocator/torchhost.h"
#include "base/log.h"

void *gpuprof_torch_alloc(size_t bytes, int device, void *stream)
{
    struct gp_async async;
    uint64_t address = 0;
    if (!bytes)
        return NULL;
    /* A MemPool's segments are cached by PyTorch, so each is a driver allocation that goes back when PyTorch frees it. */
    unsigned flags = gp_torch_role() == GP_TORCH_POOL ? GP_REQUEST_DEDICATED : 0;
    if (!flags && GP_LIKELY(gp_async_give(bytes, device, (uint64_t)(uintptr_t)stream, &address)))
        return (void *)(uintptr_t)address;
    uint32_t error = gp_async_enter(&async, device);
    if (!error) {
        error = gp_async_alloc(&async, "gpuprof_torch_alloc", bytes, (uint64_t)(uintptr_t)stream, flags, &address);
        gp_async_leave(&async);
    }
    if (GP_UNLIKELY(error))
        gp_torch_raise(error, bytes, device, __builtin_return_address(0));
    return (void *)(uintptr_t)address;
}

void gpuprof_torch_free(void *pointer, size_t bytes, int device, void *stream)
{
    struct gp_async async;
    (void)bytes, (void)device, (void)stream; /* the block knows them, and PyTorch passes 0 for bytes at times */
    bool at_once = gp_torch_role() == GP_TORCH_POOL;
    if (!pointer || (!at_once && GP_LIKELY(gp_async_take((uint64_t)(uintptr_t)pointer))))
        return;
    if (gp_async_enter_any(&async) != 0)
        return;
    if (!gp_async_free((uint64_t)(uintptr_t)pointer, at_once))
        gp_log(GP_LOG_WARN, "PyTorch freed %p, which gpuprof did not allocate: ignored", pointer);
    gp_async_leave(&async);
}

/* Nothing to prepare: a device's context is retained at its first allocation. */
void gpuprof_torch_init(int devices)
{
    struct gp_async async;
    (void)devices;
    if (gp_async_enter_any(&async) == 0)
        gp_async_leave(&async);
}

/* torch.cuda.empty_cache(): empties the caches of all devices. */
void gpuprof_torch_reset(void)
{
    struct gp_async async;
    if (gp_async_enter_any(&async) != 0)
        return;
    for (unsigned i = 0; i < gp_served_count(); i++)
        if (gp_served_cache(&gp_served_contexts[i]))
            gp_cache_trim(gp_served_cache(&gp_served_contexts[i]), 0);
    gp_async_leave(&async);
}

void gpuprof_torch_set_memory_fraction(double fraction, int device)
{
    struct gp_async async;
    if (gp_async_enter(&async, device) != 0)
        return;
    if (gp_async_set_fraction(&async, fraction) != 0)
        gp_log(GP_LOG_WARN, "memory fraction %g is not between 0 and 1: ignored", fraction);
    gp_async_leave(&async);
}

void *gpuprof_torch_base_alloc(void *pointer, size_t *bytes)
{
    struct gp_async async;
    uint64_t base = 0, size = 0;
    if (gp_async_enter_any(&async) != 0)
        return NULL;
    bool found = gp_async_base((uint64_t)(uintptr_t)pointer, &base, &size);
    gp_async_leave(&async);
    if (bytes)
        *bytes = size;
    return found ? (void *)(uintptr_t)base : NULL;
}

void gpuprof_torch_record_stream(void *pointer, void *stream)
{
    struct gp_async async;
    if (!pointer || gp_async_enter_any(&async) != 0)
        return;
    gp_async_record_stream((uint64_t)(uintptr_t)pointer, (uint64_t)(uintptr_t)stream);
    gp_async_leave(&async);
}

/* ---- private pools ----------------------------------------------------------------------------------------------- */

/* PyTorch counts its pools from 1 in one of the two words.  The top bit keeps them apart from the pools of
 * gpuprof_begin_pool. */
static uint64_t torch_pool_id(struct gpuprof_torch_pool id)
{
    return 1ull << 63 | ((uint64_t)id.first << 32 ^ id.second);
}

/* The filter is called while the pool is open.  An unreadable filter is taken for "this thread": PyTorch captures and
 * fills a pool on the thread that began it. */
void gpuprof_torch_begin_allocate_to_pool(int device, struct gpuprof_torch_pool id, void *filter)
{
    struct gp_async async;
    bool readable = gp_route_filter_is_usable(filter);
    struct gp_route route = {torch_pool_id(id), device, readable ? GP_ROUTE_FILTER : GP_ROUTE_THREAD, 0, filter};
    if (gp_async_enter(&async, device) != 0)
        return;
    int error = gp_cache_pool_begin(async.cache, route.pool);
    if (!error)
        error = gp_route_begin(&route);
    if (error)
        gp_log(GP_LOG_ERROR,
               "cannot open a private pool for a CUDA graph: the graph's memory may be reused while the graph exists");
    else
        gp_stream_capture_announce(1);
    gp_async_leave(&async);
}

void gpuprof_torch_end_allocate_to_pool(int device, struct gpuprof_torch_pool id)
{
    struct gp_async async;
    if (gp_async_enter_any(&async) != 0)
        return;
    if (gp_route_end(torch_pool_id(id), device))
        gp_stream_capture_announce(-1);
    gp_async_leave(&async);
}

void gpuprof_torch_release_pool(int device, struct gpuprof_torch_pool id)
{
    struct gp_async async;
    if (gp_async_enter(&async, device) != 0)
        return;
    gp_cache_pool_release(async.cache, torch_pool_id(id));
    gp_async_leave(&async);
}
