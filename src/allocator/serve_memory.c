/* SPDX-License-Identifier: MIT
 * serve_memory.c: allocations that the cache does not serve, but that may fail because of its idle memory.  When the
 * driver is out of memory, idle memory is given back and the call is made a second time; see serve.h. */
#include "allocator/driver.h"
#include "allocator/serve.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "source/hooks.h"
#include <errno.h>

uint64_t gp_serve_yield(int device, const struct gp_served_context *except)
{
    uint64_t given = 0;
    for (unsigned i = 0; i < gp_served_count(); i++) {
        struct gp_cache *cache = gp_served_cache(&gp_served_contexts[i]);
        if (cache && &gp_served_contexts[i] != except && gp_served_contexts[i].device == device)
            given += gp_cache_trim(cache, 0);
    }
    return given;
}

GP_COLD bool gp_serve_retry(void)
{
    int saved_errno = errno, device = -1;
    bool given = false;
    if (gp_driver_stopped() || !gp_thread_enter())
        return false;
    if (gp_driver_real.cuCtxGetDevice && gp_driver_real.cuCtxGetDevice(&device) == 0)
        given = gp_serve_yield(device, NULL) > 0;
    gp_thread_leave();
    errno = saved_errno;
    return given;
}

#define GP_SERVE_TWICE(_name, _params, _args)                                                                          \
    static uint32_t gp_serve_##_name _params                                                                           \
    {                                                                                                                  \
        uint32_t result = gp_pass_##_name _args;                                                                       \
        return GP_UNLIKELY(result == GP_CU_OUT_OF_MEMORY) && gp_serve_retry() ? gp_pass_##_name _args : result;        \
    }
GP_SERVE_TWICE(cuMemAllocAsync, (uint64_t * address, size_t bytes, void *stream), (address, bytes, stream))
GP_SERVE_TWICE(cuMemAllocAsync_ptsz, (uint64_t * address, size_t bytes, void *stream), (address, bytes, stream))
GP_SERVE_TWICE(cuMemAllocFromPoolAsync, (uint64_t * address, size_t bytes, void *pool, void *stream),
               (address, bytes, pool, stream))
GP_SERVE_TWICE(cuMemAllocFromPoolAsync_ptsz, (uint64_t * address, size_t bytes, void *pool, void *stream),
               (address, bytes, pool, stream))
GP_SERVE_TWICE(cuMemCreate,
               (uint64_t * handle, size_t bytes, const struct gp_cu_mem_prop *prop, unsigned long long flags),
               (handle, bytes, prop, flags))
GP_SERVE_TWICE(cuArrayCreate_v2, (void **array, const struct gp_cu_array_desc *desc), (array, desc))
GP_SERVE_TWICE(cuArray3DCreate_v2, (void **array, const struct gp_cu_array3d_desc *desc), (array, desc))
GP_SERVE_TWICE(cuMipmappedArrayCreate, (void **array, const struct gp_cu_array3d_desc *desc, unsigned int levels),
               (array, desc, levels))

const struct gp_serve_row gp_serve_memory_rows[] = {
    GP_SERVE_ROW(cuMemAllocAsync),
    GP_SERVE_ROW(cuMemAllocAsync_ptsz),
    GP_SERVE_ROW(cuMemAllocFromPoolAsync),
    GP_SERVE_ROW(cuMemAllocFromPoolAsync_ptsz),
    GP_SERVE_ROW(cuMemCreate),
    GP_SERVE_ROW(cuArrayCreate_v2),
    GP_SERVE_ROW(cuArray3DCreate_v2),
    GP_SERVE_ROW(cuMipmappedArrayCreate),
    {NULL, NULL},
};
