/* SPDX-License-Identifier: MIT
 * async.c: stream-ordered allocation for callers that name device and stream (async.h). */
#include "allocator/async.h"
#include "allocator/driver.h"
#include "allocator/internal.h"
#include "allocator/route.h"
#include "allocator/served.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "stack/stack.h"
#include <errno.h>
#include <gpuprof/gpuprof.h>

#define GP_ASYNC_DEVICES 64

static uint64_t x_retained; /* bit per device */
/* The row in which the device's primary context was found last, with a cache; NULL: none yet. */
static struct gp_served_context *x_rows[GP_ASYNC_DEVICES];

/* Retains the primary context, which would otherwise die with our memory in it. */
static GP_COLD uint32_t async_retain(int device, struct gp_served_context **out)
{
    const struct gp_allocator_driver *d = &gp_driver_real;
    uint8_t heed = gp_thread_ignore();
    void *ctx = NULL;
    int handle = 0;
    uint32_t result = d->cuInit && d->cuDeviceGet && d->cuDevicePrimaryCtxRetain ? d->cuInit(0) : GP_CU_NOT_INITIALIZED;
    if (!result)
        result = d->cuDeviceGet(&handle, device);
    if (!result)
        result = d->cuDevicePrimaryCtxRetain(&ctx, handle);
    gp_thread_heed(heed);
    if (result)
        return result;
    *out = gp_served_add(ctx, device, true);
    __atomic_fetch_or(&x_retained, 1ull << device,
                      __ATOMIC_RELAXED); /* two threads may both retain it, which does no harm */
    return *out ? 0 : GP_CU_OUT_OF_MEMORY;
}

static uint32_t async_find(struct gp_async *async, int device)
{
    uint32_t result = 0;
    if (device < 0 || device >= GP_ASYNC_DEVICES)
        return GP_CU_INVALID_VALUE;
    async->served = __atomic_load_n(&x_retained, __ATOMIC_RELAXED) >> device & 1 ? gp_served_primary(device) : NULL;
    if (GP_UNLIKELY(!async->served))
        result = async_retain(device, &async->served);
    if (result)
        return result;
    async->cache = gp_served_make_cache(async->served);
    if (!async->cache)
        return GP_CU_OUT_OF_MEMORY;
    /* relaxed: a row of the table, whose state says whether it can be used */
    if (__atomic_load_n(&x_rows[device], __ATOMIC_RELAXED) != async->served)
        __atomic_store_n(&x_rows[device], async->served, __ATOMIC_RELAXED);
    return 0;
}

static GP_COLD uint32_t async_start(const struct gp_async *async)
{
    if (!gp_thread_life_ours())
        InitializeInjection();
    if (gp_driver_bind() && gp_thread_enter_late())
        return 0;
    errno = async->saved_errno;
    return GP_CU_NOT_INITIALIZED;
}

uint32_t gp_async_enter_any(struct gp_async *async)
{
    *async = (struct gp_async){.saved_errno = errno};
    return GP_LIKELY(gp_thread_life_ours() && gp_driver_bind() && gp_thread_enter_late()) ? 0 : async_start(async);
}

uint32_t gp_async_enter(struct gp_async *async, int device)
{
    uint32_t result = gp_async_enter_any(async);
    if (result)
        return result;
    result = gp_driver_stopped() ? GP_CU_NOT_INITIALIZED : async_find(async, device);
    if (result)
        gp_async_leave(async);
    return result;
}

void gp_async_leave(const struct gp_async *async)
{
    gp_thread_leave();
    errno = async->saved_errno;
}

/* The per-thread handle stands for many streams, so it orders nothing. */
static uint64_t async_stream(uint64_t stream)
{
    if (stream == GP_CU_STREAM_PER_THREAD)
        return GP_STREAM_ANY;
    return stream == GP_CU_STREAM_LEGACY ? 0 : stream;
}

uint32_t gp_async_alloc(struct gp_async *async, const char *api, uint64_t bytes, uint64_t stream, unsigned flags,
                        uint64_t *address)
{
    struct gp_request request = {
        .bytes = bytes, .stream = async_stream(stream), .shard = gp_thread.number, .flags = flags};
    struct gp_grant grant;
    gp_served_tag(async->served, &request);
    request.pool = gp_route_pool(async->served->device, stream);
    uint32_t result = gp_cache_alloc(async->cache, &request, &grant);
    if (GP_UNLIKELY(result)) {
        gp_failed_report(async->served, api, result, bytes, request.stream);
        return result;
    }
    *address = grant.address;
    gp_served_event_alloc(async->served, &grant, stream);
    return 0;
}

/* ---- the short way ----------------------------------------------------------------------------------------------- */

/* An event of the block is wanted if it has a time or a site, or if sites are partial: it has a time
 * if the ring had a reader when the block changed (gp_feed_cache_wants_time). */
static inline bool async_tells(const struct gp_grant *grant)
{
    return GP_UNLIKELY((grant->time_ns | grant->tag) != 0 || gp_site_is_partial());
}

static GP_COLD void async_tell(bool alloc, const struct gp_served_context *served, const struct gp_grant *grant,
                               uint64_t stream)
{
    int saved_errno = errno;
    if (alloc)
        gp_served_event_alloc(served, grant, stream);
    else
        gp_served_event_free(served, grant, stream);
    errno = saved_errno;
}

/* The row of the device if its context lives, as gp_served_primary finds it. */
static inline struct gp_served_context *async_row(int device)
{
    struct gp_served_context *served =
        (unsigned)device < GP_ASYNC_DEVICES ? __atomic_load_n(&x_rows[device], __ATOMIC_RELAXED) : NULL;
    return served && gp_served_is_live(served) && served->primary && served->device == device ? served : NULL;
}

bool gp_async_give(uint64_t bytes, int device, uint64_t stream, uint64_t *address)
{
    if (gp_site_on() || GP_UNLIKELY(gp_route_any()) || !gp_thread_enter_late())
        return false;
    struct gp_served_context *served = async_row(device);
    struct gp_request request = {.bytes = bytes, .stream = async_stream(stream), .shard = gp_thread.number};
    struct gp_grant grant;
    bool given = GP_LIKELY(served && !gp_driver_stopped()) && gp_cache_give(gp_served_cache(served), &request, &grant);
    if (GP_LIKELY(given)) {
        *address = grant.address;
        if (async_tells(&grant))
            async_tell(true, served, &grant, stream);
    }
    gp_thread_leave();
    return given;
}

bool gp_async_take(uint64_t address)
{
    if (!gp_thread_enter_late())
        return false;
    unsigned count = gp_served_count();
    bool taken = false;
    for (unsigned i = 0; i < count && !taken; i++) {
        struct gp_served_context *served = &gp_served_contexts[i];
        struct gp_cache *cache = gp_served_cache(served);
        struct gp_grant grant;
        taken = cache && gp_cache_take(cache, address, GP_FREE_BY_STREAM, gp_thread.number, &grant);
        if (taken && async_tells(&grant))
            async_tell(false, served, &grant, grant.stream);
    }
    gp_thread_leave();
    return taken;
}

/* ---- free -------------------------------------------------------------------------------------------------------- */

bool gp_async_free(uint64_t address, bool at_once)
{
    unsigned count = gp_served_count();
    struct gp_grant grant;
    for (unsigned i = 0; i < count; i++) {
        struct gp_served_context *served = &gp_served_contexts[i];
        struct gp_cache *cache = gp_served_cache(served);
        if (!cache)
            continue;
        /* A block for any stream (of the program's own cuMemAlloc, or for the per-thread stream) waits for a fence. */
        enum gp_free_order order = at_once ? GP_FREE_RETURN : GP_FREE_BY_STREAM;
        gp_thread.prompt = 1;
        bool released = gp_cache_release(cache, address, order, gp_thread.number, &grant);
        gp_thread.prompt = 0;
        if (!released)
            continue;
        gp_served_event_free(served, &grant, grant.stream);
        return true;
    }
    return false;
}

bool gp_async_record_stream(uint64_t address, uint64_t stream)
{
    unsigned count = gp_served_count();
    for (unsigned i = 0; i < count; i++) {
        struct gp_cache *cache = gp_served_cache(&gp_served_contexts[i]);
        if (cache && gp_cache_record_stream(cache, address, async_stream(stream)))
            return true;
    }
    return false;
}

bool gp_async_base(uint64_t address, uint64_t *base, uint64_t *bytes)
{
    struct gp_grant grant;
    bool dedicated;
    struct gp_served_context *served = gp_served_find(address, &grant);
    return served && gp_cache_segment_of(gp_served_cache(served), grant.address, base, bytes, &dedicated);
}

uint32_t gp_async_set_fraction(struct gp_async *async, double fraction)
{
    size_t total = 0;
    if (!(fraction >= 0 && fraction <= 1)) /* false for NaN too */
        return GP_CU_INVALID_VALUE;
    uint8_t heed = gp_thread_ignore();
    uint32_t result = gp_driver_real.cuDeviceTotalMem_v2
                          ? gp_driver_real.cuDeviceTotalMem_v2(&total, async->served->device)
                          : GP_CU_NOT_SUPPORTED;
    gp_thread_heed(heed);
    if (!result)
        gp_cache_set_limit(async->cache, (uint64_t)(fraction * (double)total));
    return result;
}
