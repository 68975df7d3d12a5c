/* SPDX-License-Identifier: MIT
 * served_lifetime.c: the start and the end of a served context, and its cache; see served.h. */
#include "account/feed/cache.h"
#include "account/feed/feed.h"
#include "allocator/backend.h"
#include "allocator/mapping.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "base/compiler.h"
#include "base/log.h"
#include "cache/cache.h"
#include "cache/policy.h"
#include <gpuprof/wire.h>

static struct gp_policy served_policy;
static uint64_t served_limit_bytes;

void gp_served_setup(const struct gp_policy *policy, uint64_t limit_bytes)
{
    served_policy = *policy;
    served_limit_bytes = limit_bytes;
}

uint64_t gp_served_limit(void)
{
    return served_limit_bytes;
}

struct gp_served_context *gp_served_add(void *ctx, int device, bool primary)
{
    struct gp_served_context *served = gp_served_of(ctx);
    if (served && served->device == device && served->primary && primary)
        return served; /* retained once more */
    if (served)        /* we missed its end: the driver gives a handle again only after that */
        gp_served_remove(served);
    served = gp_served_take(ctx, device, primary);
    if (!served)
        gp_log(GP_LOG_WARN, "more than %d contexts exist: memory of the newest one is not cached", GP_SERVED_LIMIT);
    return served;
}

void gp_served_remove(struct gp_served_context *served)
{
    struct gp_cache *cache = gp_served_cache(served);
    __atomic_store_n(&served->x_state, GP_SERVED_DYING, __ATOMIC_RELEASE);
    gp_stream_fence_forget(served);
    if (cache)
        gp_cache_forget(cache);
    gp_mapping_mark_forget(served);
    gp_backend_clear(served);
    gp_served_release(served);
}

/* ---- the cache of a context -------------------------------------------------------------------------------------- */

/* May run under the cache's lock, which the ring and the sites never wait for. */
static void served_listen(void *listener, const struct gp_cache_event *event)
{
    static const uint8_t types[] = {
        [GP_CACHE_SEGMENT_ALLOC] = GP_EVENT_SEGMENT_ALLOC,
        [GP_CACHE_SEGMENT_FREE] = GP_EVENT_SEGMENT_FREE,
        [GP_CACHE_SEGMENT_MAP] = GP_EVENT_SEGMENT_MAP,
        [GP_CACHE_SEGMENT_UNMAP] = GP_EVENT_SEGMENT_UNMAP,
        [GP_CACHE_OOM] = GP_EVENT_OOM,
        [GP_CACHE_LOST] = GP_EVENT_FREE, /* a live block dies with its context */
    };
    const struct gp_served_context *served = listener;
    if (event->type == GP_CACHE_RETRY)
        gp_feed_cache_count(served->device, GP_FEED_RETRIES, 1);
    else if (event->type == GP_CACHE_SYNC_ALL)
        gp_feed_cache_count(served->device, GP_FEED_SYNCS, 1);
    else if (event->type == GP_CACHE_SEGMENT_MAP)
        gp_feed_cache_count(served->device, GP_FEED_DEVICE_ALLOCS, 1);
    else if (event->type == GP_CACHE_SEGMENT_UNMAP)
        gp_feed_cache_count(served->device, GP_FEED_DEVICE_FREES, 1);
    /* An OOM is reported by the function that answers the program, with that function's name (gp_failed_report). */
    if (event->type < GP_COUNT(types) && types[event->type] && event->type != GP_CACHE_OOM)
        gp_feed_cache_event(&(struct gp_feed_event){.type = types[event->type],
                                                    .device = served->device,
                                                    .site = (uint32_t)event->tag,
                                                    .address = event->address,
                                                    .bytes = event->bytes,
                                                    .requested_bytes = event->requested_bytes,
                                                    .stream = event->type == GP_CACHE_LOST ? 0 : event->stream,
                                                    .time_ns = event->time_ns});
}

static GP_COLD struct gp_cache *served_make(struct gp_served_context *served)
{
    struct gp_cache_setup setup = {
        .policy = &served_policy,
        .gauges = gp_feed_cache_gauges(served->device),
        .limit_bytes = served_limit_bytes,
        .times = true,
        .wants_time = gp_feed_cache_wants_time,
        .listener = served,
        .listen = served_listen,
    };
    struct gp_cache *made, *none = NULL;
    gp_backend_fill(served, &setup.backend);
    if (gp_cache_new(&made, &setup) != 0)
        return NULL;
    gp_feed_cache_split_limit(served->device,
                              served_policy.max_split_bytes > INT64_MAX ? -1 : (int64_t)served_policy.max_split_bytes);
    /* [served.R] release: the cache is complete; pairs with [served.A]. */
    if (__atomic_compare_exchange_n(&served->x_cache, &none, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return made;
    gp_cache_free(made); /* another thread was first; this one is empty */
    return none;
}

struct gp_cache *gp_served_make_cache(struct gp_served_context *served)
{
    struct gp_cache *cache = gp_served_cache(served);
    return GP_LIKELY(cache) ? cache : served_make(served);
}
