/* SPDX-License-Identifier: MIT
 *
 * torch.c: what PyTorch's CUDAPluggableAllocator calls; see torch.def.  From Python:
 *
 *      a = torch.cuda.memory.CUDAPluggableAllocator("libgpuprof.so", "gpuprof_torch_alloc", "gpuprof_torch_free")
 *
 * A failed allocation is NULL: PyTorch then raises its own out-of-memory error, and our report is in the session.
 */
#include "allocator/torch.h"
#include "allocator/async.h"
#include "allocator/driver.h"
#include "allocator/fence.h"
#include "allocator/route.h"
#include "base/log.h"

void *gpuprof_torch_alloc(size_t bytes, int device, void *stream)
{
    struct gp_async lend;
    uint64_t address = 0;
    if (!bytes || gp_async_enter(&lend, device) != 0)
        return NULL;
    gp_async_alloc(&lend, "gpuprof_torch_alloc", bytes, (uint64_t)(uintptr_t)stream, &address);
    gp_async_leave(&lend);
    return (void *)(uintptr_t)address;
}

void gpuprof_torch_free(void *pointer, size_t bytes, int device, void *stream)
{
    struct gp_async lend;
    (void)bytes, (void)device, (void)stream; /* the block knows them, and PyTorch passes 0 for bytes at times */
    if (!pointer || gp_async_enter_any(&lend) != 0)
        return;
    if (!gp_async_free((uint64_t)(uintptr_t)pointer))
        gp_log(GP_LOG_WARN, "PyTorch frees %p, which is not a block of ours: ignored", pointer);
    gp_async_leave(&lend);
}

/* Nothing is prepared ahead: a device's context is touched by its first allocation. */
void gpuprof_torch_init(int devices)
{
    struct gp_async lend;
    (void)devices;
    if (gp_async_enter_any(&lend) == 0)
        gp_async_leave(&lend);
}

/* torch.cuda.empty_cache(): every device. */
void gpuprof_torch_reset(void)
{
    struct gp_async lend;
    if (gp_async_enter_any(&lend) != 0)
        return;
    for (unsigned i = 0; i < gp_served_count(); i++)
        if (gp_served_has(&gp_served_contexts[i]))
            gp_cache_trim(gp_served_has(&gp_served_contexts[i]), 0);
    gp_async_leave(&lend);
}

void gpuprof_torch_set_memory_fraction(double fraction, int device)
{
    struct gp_async lend;
    if (gp_async_enter(&lend, device) != 0)
        return;
    if (gp_async_set_fraction(&lend, fraction) != 0)
        gp_log(GP_LOG_WARN, "memory fraction %g is not between 0 and 1: ignored", fraction);
    gp_async_leave(&lend);
}

void *gpuprof_torch_base_alloc(void *pointer, size_t *bytes)
{
    struct gp_async lend;
    uint64_t base = 0, size = 0;
    if (gp_async_enter_any(&lend) != 0)
        return NULL;
    bool found = gp_async_base((uint64_t)(uintptr_t)pointer, &base, &size);
    gp_async_leave(&lend);
    if (bytes)
        *bytes = size;
    return found ? (void *)(uintptr_t)base : NULL;
}

void gpuprof_torch_record_stream(void *pointer, void *stream)
{
    struct gp_async lend;
    if (!pointer || gp_async_enter_any(&lend) != 0)
        return;
    gp_async_record_stream((uint64_t)(uintptr_t)pointer, (uint64_t)(uintptr_t)stream);
    gp_async_leave(&lend);
}

/* ---- private pools ----------------------------------------------------------------------------------------------- */

/* PyTorch counts its pools from 1 in one of the two words; the top bit keeps them apart from gpuprof_begin_pool's. */
static uint64_t torch_pool_id(struct gpuprof_torch_pool id)
{
    return 1ull << 63 | ((uint64_t)id.first << 32 ^ id.second);
}

/* The filter is called as long as the pool is open.  One that we cannot read stands for "this thread": PyTorch captures
 * and fills a pool on the thread that began it. */
void gpuprof_torch_begin_allocate_to_pool(int device, struct gpuprof_torch_pool id, void *filter)
{
    struct gp_async lend;
    bool readable = gp_filter_is_usable(filter);
    struct gp_route route = {torch_pool_id(id), device, readable ? GP_ROUTE_FILTER : GP_ROUTE_THREAD, 0, filter};
    if (gp_async_enter(&lend, device) != 0)
        return;
    int error = gp_cache_pool_begin(lend.cache, route.pool);
    if (!error)
        error = gp_route_begin(&route);
    if (error)
        gp_log(GP_LOG_ERROR, "no private pool for a CUDA graph: its memory may be reused while the graph lives");
    else
        gp_capture_announce(1);
    gp_async_leave(&lend);
}

void gpuprof_torch_end_allocate_to_pool(int device, struct gpuprof_torch_pool id)
{
    struct gp_async lend;
    if (gp_async_enter_any(&lend) != 0)
        return;
    if (gp_route_end(torch_pool_id(id), device))
        gp_capture_announce(-1);
    gp_async_leave(&lend);
}

void gpuprof_torch_release_pool(int device, struct gpuprof_torch_pool id)
{
    struct gp_async lend;
    if (gp_async_enter(&lend, device) != 0)
        return;
    gp_cache_pool_release(lend.cache, torch_pool_id(id));
    gp_async_leave(&lend);
}
