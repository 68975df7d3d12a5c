/* SPDX-License-Identifier: MIT
 * served.c: see served.h. */
#include "allocator/served.h"
#include "account/feed.h"
#include "allocator/driver.h"
#include "allocator/fence.h"
#include "allocator/mark.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/policy.h"
#include "site/site.h"
#include <string.h>

struct gp_served_context gp_served_contexts[GP_SERVED_LIMIT];
struct gp_lock gp_served_lock = GP_LOCK_INIT(GP_RANK_ALLOCATOR);
static uint32_t x_count;
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

unsigned gp_served_count(void)
{
    return __atomic_load_n(&x_count, __ATOMIC_ACQUIRE);
}

struct gp_served_context *gp_served_of(void *ctx)
{
    unsigned count = gp_served_count();
    for (unsigned i = 0; i < count; i++)
        if (__atomic_load_n(&gp_served_contexts[i].x_ctx, __ATOMIC_RELAXED) == ctx &&
            gp_served_lives(&gp_served_contexts[i]))
            return &gp_served_contexts[i];
    return NULL;
}

struct gp_served_context *gp_served_primary(int device)
{
    unsigned count = gp_served_count();
    for (unsigned i = 0; i < count; i++)
        if (gp_served_lives(&gp_served_contexts[i]) && gp_served_contexts[i].primary &&
            gp_served_contexts[i].device == device)
            return &gp_served_contexts[i];
    return NULL;
}

/* A slot without a context; its cache, if it has one, counts for one device for good. */
static struct gp_served_context *served_slot(int device)
{
    for (unsigned i = 0; i < GP_SERVED_LIMIT; i++) {
        struct gp_served_context *served = &gp_served_contexts[i];
        if (served->x_state == GP_SERVED_EMPTY && (!served->x_cache || served->device == device))
            return served;
    }
    return NULL;
}

static struct gp_served_context *served_take(void *ctx, int device, bool primary)
{
    struct gp_served_context *served = served_slot(device);
    if (!served)
        return NULL;
    served->device = device;
    served->primary = primary;
    served->x_access = 0;
    served->x_doubts = 0;
    served->gather = NULL;
    served->event_count = 0;
    __atomic_store_n(&served->x_ctx, ctx, __ATOMIC_RELAXED);
    /* [state.R] release: the fields above; pairs with [state.A]. */
    __atomic_store_n(&served->x_state, GP_SERVED_LIVE, __ATOMIC_RELEASE);
    if (gp_served_index(served) >= x_count)
        __atomic_store_n(&x_count, gp_served_index(served) + 1, __ATOMIC_RELEASE);
    return served;
}

struct gp_served_context *gp_served_add(void *ctx, int device, bool primary)
{
    struct gp_served_context *served = gp_served_of(ctx);
    if (served && served->device == device && served->primary && primary)
        return served; /* retained once more */
    if (served)        /* its end escaped us, or the driver would not give the handle again */
        gp_served_die(served);
    gp_lock_take(&gp_served_lock);
    served = served_take(ctx, device, primary);
    gp_lock_give(&gp_served_lock);
    if (!served)
        gp_log(GP_LOG_WARN, "more than %d contexts at once: memory of the newest is not cached", GP_SERVED_LIMIT);
    return served;
}

void gp_served_tag(const struct gp_served_context *served, struct gp_request *request)
{
    if (!gp_site_on())
        return;
    request->tag = gp_site_here(served->device, GP_KIND_LINEAR, true);
    request->time_ns = gp_clock_ns();
}

void gp_served_given(const struct gp_served_context *served, const struct gp_grant *grant, uint64_t stream,
                     uint64_t time_ns)
{
    gp_feed_cache_event(&(struct gp_feed_event){GP_EVENT_ALLOC, served->device, (uint32_t)grant->tag, grant->address,
                                                grant->bytes, grant->requested_bytes, stream, time_ns});
}

void gp_served_freed(const struct gp_served_context *served, const struct gp_grant *grant, uint64_t stream)
{
    gp_feed_cache_event(&(struct gp_feed_event){GP_EVENT_FREE, served->device, (uint32_t)grant->tag, grant->address,
                                                grant->bytes, grant->requested_bytes, stream, 0});
}

/* A live block goes with its context.  Under the cache's lock, which neither the ring nor the sites ever wait for. */
static bool served_lost(void *arg, const struct gp_cache_block *block)
{
    const struct gp_grant grant = {block->address, block->bytes, block->requested_bytes, block->stream, block->tag};
    if (block->state == GP_CACHE_LIVE)
        gp_served_freed(arg, &grant, 0);
    return true;
}

void gp_served_die(struct gp_served_context *served)
{
    struct gp_cache *cache = gp_served_has(served);
    __atomic_store_n(&served->x_state, GP_SERVED_DYING, __ATOMIC_RELEASE);
    gp_fence_forget(served);
    if (cache) {
        gp_cache_walk(cache, served, NULL, served_lost);
        gp_cache_forget(cache);
    }
    gp_mark_forget(served);
    gp_backend_clear(served);
    gp_lock_take(&gp_served_lock);
    for (unsigned i = 0; i < GP_SERVED_LIMIT; i++)
        gp_served_contexts[i].x_access &= ~(1ull << gp_served_index(served));
    __atomic_store_n(&served->x_ctx, NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&served->x_state, GP_SERVED_EMPTY, __ATOMIC_RELEASE);
    gp_lock_give(&gp_served_lock);
}

/* ---- the cache of a served ---------------------------------------------------------------------------------------- */

static void served_listen(void *listener, const struct gp_cache_event *event)
{
    static const uint8_t types[] = {
        [GP_CACHE_SEGMENT_ALLOC] = GP_EVENT_SEGMENT_ALLOC,
        [GP_CACHE_SEGMENT_FREE] = GP_EVENT_SEGMENT_FREE,
        [GP_CACHE_SEGMENT_MAP] = GP_EVENT_SEGMENT_MAP,
        [GP_CACHE_SEGMENT_UNMAP] = GP_EVENT_SEGMENT_UNMAP,
        [GP_CACHE_OOM] = GP_EVENT_OOM,
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
    /* The failed call itself is told by whoever answers the program (gp_feed_failed), with the function's name. */
    if (event->type < GP_COUNT(types) && types[event->type] && event->type != GP_CACHE_OOM)
        gp_feed_cache_event(&(struct gp_feed_event){.type = types[event->type],
                                                    .device = served->device,
                                                    .address = event->address,
                                                    .bytes = event->bytes,
                                                    .stream = event->stream});
}

static GP_COLD struct gp_cache *served_make(struct gp_served_context *served)
{
    struct gp_cache_setup setup = {
        .policy = &served_policy,
        .gauges = gp_feed_cache_gauges(served->device),
        .limit_bytes = served_limit_bytes,
        .tags = gp_site_on(),
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

struct gp_cache *gp_served_cache(struct gp_served_context *served)
{
    struct gp_cache *cache = gp_served_has(served);
    return GP_LIKELY(cache) ? cache : served_make(served);
}

struct gp_served_context *gp_served_find(uint64_t address, struct gp_grant *out)
{
    unsigned count = gp_served_count();
    for (unsigned i = 0; i < count; i++) {
        struct gp_cache *cache = gp_served_has(&gp_served_contexts[i]);
        if (cache && gp_cache_find(cache, address, out))
            return &gp_served_contexts[i];
    }
    return NULL;
}

struct gp_served_context *gp_served_owning(uint64_t address)
{
    unsigned count = gp_served_count();
    for (unsigned i = 0; i < count; i++) {
        struct gp_cache *cache = gp_served_has(&gp_served_contexts[i]);
        if (cache && gp_cache_owns(cache, address))
            return &gp_served_contexts[i];
    }
    return NULL;
}
