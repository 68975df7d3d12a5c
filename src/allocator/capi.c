/* SPDX-License-Identifier: MIT
 * capi.c: the allocator and gpuprof_mem_get_info of include/gpuprof/gpuprof.h; statistics are in api/. */
#include "allocator/async.h"
#include "allocator/driver.h"
#include "allocator/route.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "cache/cache.h"
#include <errno.h>
#include <gpuprof/gpuprof.h>

/* ---- allocator --------------------------------------------------------------------------------------------------- */

static __attribute__((noinline)) int capi_alloc(void **pointer, size_t bytes, int device, void *stream)
{
    struct gp_async async;
    uint64_t address = 0;
    if (!pointer)
        return GP_CU_INVALID_VALUE;
    *pointer = NULL;
    if (!bytes)
        return 0;
    uint32_t result = gp_async_enter(&async, device);
    if (result)
        return (int)result;
    result = gp_async_alloc(&async, "gpuprof_alloc", bytes, (uint64_t)(uintptr_t)stream, 0, &address);
    gp_async_leave(&async);
    *pointer = (void *)(uintptr_t)address;
    return (int)result;
}

GP_EXPORT int gpuprof_alloc(void **pointer, size_t bytes, int device, void *stream)
{
    uint64_t address;
    if (GP_UNLIKELY(!pointer || !bytes || !gp_async_give(bytes, device, (uint64_t)(uintptr_t)stream, &address)))
        return capi_alloc(pointer, bytes, device, stream);
    *pointer = (void *)(uintptr_t)address;
    return 0;
}

static __attribute__((noinline)) int capi_free(void *pointer)
{
    struct gp_async async;
    if (!pointer)
        return 0;
    uint32_t result = gp_async_enter_any(&async);
    if (result)
        return (int)result;
    bool ours = gp_async_free((uint64_t)(uintptr_t)pointer, false);
    gp_async_leave(&async);
    return ours ? 0 : (int)GP_CU_INVALID_VALUE;
}

GP_EXPORT int gpuprof_free(void *pointer)
{
    return GP_LIKELY(pointer && gp_async_take((uint64_t)(uintptr_t)pointer)) ? 0 : capi_free(pointer);
}

GP_EXPORT int gpuprof_record_stream(void *pointer, void *stream)
{
    struct gp_async async;
    uint32_t result = gp_async_enter_any(&async);
    if (result)
        return (int)result;
    bool ours = gp_async_record_stream((uint64_t)(uintptr_t)pointer, (uint64_t)(uintptr_t)stream);
    gp_async_leave(&async);
    return ours ? 0 : (int)GP_CU_INVALID_VALUE;
}

/* A device that has no cache gets none, and no context. */
GP_EXPORT int gpuprof_empty_cache(int device)
{
    struct gp_async async;
    int handle = 0;
    uint32_t result = gp_async_enter_any(&async);
    if (result)
        return (int)result;
    uint8_t heed = gp_thread_ignore();
    bool can = device >= 0 && gp_driver_real.cuInit && gp_driver_real.cuDeviceGet;
    result = can ? gp_driver_real.cuInit(0) : GP_CU_INVALID_VALUE;
    if (!result)
        result = gp_driver_real.cuDeviceGet(&handle, device);
    gp_thread_heed(heed);
    for (unsigned i = 0; !result && i < gp_served_count(); i++) {
        struct gp_cache *cache = gp_served_cache(&gp_served_contexts[i]);
        if (cache && gp_served_contexts[i].device == device)
            gp_cache_trim(cache, 0);
    }
    gp_async_leave(&async);
    return (int)result;
}

GP_EXPORT int gpuprof_set_memory_fraction(double fraction, int device)
{
    struct gp_async async;
    uint32_t result = gp_async_enter(&async, device);
    if (result)
        return (int)result;
    result = gp_async_set_fraction(&async, fraction);
    gp_async_leave(&async);
    return (int)result;
}

GP_EXPORT int gpuprof_set_memory_limit(size_t bytes, int device)
{
    struct gp_async async;
    uint32_t result = gp_async_enter(&async, device);
    if (result)
        return (int)result;
    gp_cache_set_limit(async.cache, bytes);
    gp_async_leave(&async);
    return 0;
}

GP_EXPORT int64_t gpuprof_driver_calls(int device)
{
    struct gp_async async;
    struct gp_cache_numbers numbers;
    if (gp_async_enter(&async, device) != 0)
        return -1;
    gp_cache_numbers(async.cache, &numbers);
    gp_async_leave(&async);
    return (int64_t)numbers.backend_calls;
}

/* ---- private pools ----------------------------------------------------------------------------------------------- */

GP_EXPORT int gpuprof_begin_pool(uint64_t id, int device, void *stream, int any_stream)
{
    struct gp_route route = {id, device, any_stream ? GP_ROUTE_THREAD : GP_ROUTE_STREAM, (uint64_t)(uintptr_t)stream,
                             NULL};
    struct gp_async async;
    if (id == 0)
        return GP_CU_INVALID_VALUE;
    uint32_t result = gp_async_enter(&async, device);
    if (result)
        return (int)result;
    int error = gp_cache_pool_begin(async.cache, id);
    if (!error) {
        error = gp_route_begin(&route);
        if (error)
            gp_cache_pool_release(async.cache, id);
        else
            gp_stream_capture_announce(1);
    }
    gp_async_leave(&async);
    return error ? (int)GP_CU_OUT_OF_MEMORY : 0;
}

GP_EXPORT int gpuprof_end_pool(uint64_t id, int device)
{
    struct gp_async async;
    uint32_t result = gp_async_enter_any(&async);
    if (result)
        return (int)result;
    bool open = gp_route_end(id, device);
    if (open)
        gp_stream_capture_announce(-1);
    gp_async_leave(&async);
    return open ? 0 : (int)GP_CU_INVALID_VALUE;
}

GP_EXPORT int gpuprof_release_pool(uint64_t id, int device)
{
    struct gp_async async;
    uint32_t result = gp_async_enter(&async, device);
    if (result)
        return (int)result;
    int error = gp_cache_pool_release(async.cache, id);
    gp_async_leave(&async);
    return error ? (int)GP_CU_INVALID_VALUE : 0;
}

/* ---- the driver's own numbers ------------------------------------------------------------------------------------ */

static uint32_t capi_info_current(size_t *free_bytes, size_t *total_bytes)
{
    return gp_driver_real.cuMemGetInfo_v2(free_bytes, total_bytes);
}

static uint32_t capi_info_primary(int device, size_t *free_bytes, size_t *total_bytes)
{
    const struct gp_allocator_driver *d = &gp_driver_real;
    void *ctx = NULL, *popped;
    if (!d->cuDevicePrimaryCtxRetain || !d->cuDevicePrimaryCtxRelease_v2)
        return GP_CU_NOT_SUPPORTED;
    uint32_t result = d->cuDevicePrimaryCtxRetain(&ctx, device);
    if (result)
        return result;
    result = d->cuCtxPushCurrent_v2(ctx);
    if (!result) {
        result = capi_info_current(free_bytes, total_bytes);
        d->cuCtxPopCurrent_v2(&popped);
    }
    d->cuDevicePrimaryCtxRelease_v2(device);
    return result;
}

static uint32_t capi_info(int ordinal, size_t *free_bytes, size_t *total_bytes)
{
    const struct gp_allocator_driver *d = &gp_driver_real;
    int device = 0, current = 0;
    uint32_t result = d->cuInit && d->cuDeviceGet && d->cuCtxGetDevice ? d->cuInit(0) : GP_CU_NOT_SUPPORTED;
    if (!result)
        result = d->cuDeviceGet(&device, ordinal);
    if (result)
        return result;
    return d->cuCtxGetDevice(&current) == 0 && current == device ? capi_info_current(free_bytes, total_bytes)
                                                                 : capi_info_primary(device, free_bytes, total_bytes);
}

GP_EXPORT int gpuprof_mem_get_info(int device, int64_t *free_bytes, int64_t *total_bytes)
{
    struct gp_driver_guard guard;
    size_t free_now = 0, total_now = 0;
    int saved_errno = errno;
    if (!gp_driver_bind() || !gp_driver_enter(&guard, NULL))
        return -1;
    uint32_t result = capi_info(device, &free_now, &total_now);
    gp_driver_leave(&guard);
    errno = saved_errno;
    if (!result && free_bytes)
        *free_bytes = (int64_t)free_now;
    if (!result && total_bytes)
        *total_bytes = (int64_t)total_now;
    return result ? -1 : 0;
}
