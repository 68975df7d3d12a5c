/* SPDX-License-Identifier: MIT
 * home.c: see home.h. */
#include "allocator/home.h"
#include "account/feed.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/policy.h"
#include "allocator/driver.h"
#include "allocator/fence.h"
#include "allocator/mark.h"
#include "site/site.h"
#include <string.h>

struct gp_home gp_homes[GP_HOMES];
struct gp_lock gp_home_lock = GP_LOCK_INIT(GP_RANK_SHIM);
static uint32_t x_count;
static struct gp_policy gp_home_policy;
static uint64_t gp_home_limit_bytes;

void gp_home_setup(const struct gp_policy *policy, uint64_t limit_bytes)
{
    gp_home_policy = *policy;
    gp_home_limit_bytes = limit_bytes;
}

uint64_t gp_home_limit(void)
{
    return gp_home_limit_bytes;
}

unsigned gp_home_count(void)
{
    return __atomic_load_n(&x_count, __ATOMIC_ACQUIRE);
}

struct gp_home *gp_home_of(void *ctx)
{
    unsigned count = gp_home_count();
    for (unsigned i = 0; i < count; i++)
        if (__atomic_load_n(&gp_homes[i].x_ctx, __ATOMIC_RELAXED) == ctx && gp_home_lives(&gp_homes[i]))
            return &gp_homes[i];
    return NULL;
}

struct gp_home *gp_home_primary(int device)
{
    unsigned count = gp_home_count();
    for (unsigned i = 0; i < count; i++)
        if (gp_home_lives(&gp_homes[i]) && gp_homes[i].primary && gp_homes[i].device == device)
            return &gp_homes[i];
    return NULL;
}

/* A slot without a context; its cache, if it has one, counts for one device for good. */
static struct gp_home *gp_home_slot(int device)
{
    for (unsigned i = 0; i < GP_HOMES; i++) {
        struct gp_home *home = &gp_homes[i];
        if (home->x_state == GP_HOME_EMPTY && (!home->x_cache || home->device == device))
            return home;
    }
    return NULL;
}

static struct gp_home *gp_home_take(void *ctx, int device, bool primary)
{
    struct gp_home *home = gp_home_slot(device);
    if (!home)
        return NULL;
    home->device = device;
    home->primary = primary;
    home->x_access = 0;
    home->x_doubts = 0;
    home->gather = NULL;
    home->event_count = 0;
    __atomic_store_n(&home->x_ctx, ctx, __ATOMIC_RELAXED);
    /* [state.R] release: the fields above; pairs with [state.A]. */
    __atomic_store_n(&home->x_state, GP_HOME_LIVE, __ATOMIC_RELEASE);
    if (gp_home_index(home) >= x_count)
        __atomic_store_n(&x_count, gp_home_index(home) + 1, __ATOMIC_RELEASE);
    return home;
}

struct gp_home *gp_home_add(void *ctx, int device, bool primary)
{
    struct gp_home *home = gp_home_of(ctx);
    if (home && home->device == device && home->primary && primary)
        return home; /* retained once more */
    if (home)        /* its end escaped us, or the driver would not give the handle again */
        gp_home_die(home);
    gp_lock_take(&gp_home_lock);
    home = gp_home_take(ctx, device, primary);
    gp_lock_give(&gp_home_lock);
    if (!home)
        gp_log(GP_LOG_WARN, "more than %d contexts at once: memory of the newest is not cached", GP_HOMES);
    return home;
}

void gp_home_tag(const struct gp_home *home, struct gp_request *request)
{
    if (!gp_site_on())
        return;
    request->tag = gp_site_here(home->device, GP_KIND_LINEAR, true);
    request->time_ns = gp_clock_ns();
}

void gp_home_given(const struct gp_home *home, const struct gp_grant *grant, uint64_t stream, uint64_t time_ns)
{
    gp_feed_cache_event(&(struct gp_feed_event){GP_EVENT_ALLOC, home->device, (uint32_t)grant->tag, grant->address,
                                                grant->bytes, grant->requested_bytes, stream, time_ns});
}

void gp_home_freed(const struct gp_home *home, const struct gp_grant *grant, uint64_t stream)
{
    gp_feed_cache_event(&(struct gp_feed_event){GP_EVENT_FREE, home->device, (uint32_t)grant->tag, grant->address,
                                                grant->bytes, grant->requested_bytes, stream, 0});
}

/* A live block goes with its context.  Under the cache's lock, which neither the ring nor the sites ever wait for. */
static bool gp_home_lost(void *arg, const struct gp_cache_block *block)
{
    const struct gp_grant grant = {block->address, block->bytes, block->requested_bytes, block->stream, block->tag};
    if (block->state == GP_CACHE_LIVE)
        gp_home_freed(arg, &grant, 0);
    return true;
}

void gp_home_die(struct gp_home *home)
{
    struct gp_cache *cache = gp_home_has(home);
    __atomic_store_n(&home->x_state, GP_HOME_DYING, __ATOMIC_RELEASE);
    gp_fence_forget(home);
    if (cache) {
        gp_cache_walk(cache, home, NULL, gp_home_lost);
        gp_cache_forget(cache);
    }
    gp_mark_forget(home);
    gp_backend_clear(home);
    gp_lock_take(&gp_home_lock);
    for (unsigned i = 0; i < GP_HOMES; i++)
        gp_homes[i].x_access &= ~(1ull << gp_home_index(home));
    __atomic_store_n(&home->x_ctx, NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&home->x_state, GP_HOME_EMPTY, __ATOMIC_RELEASE);
    gp_lock_give(&gp_home_lock);
}

/* ---- the cache of a home ---------------------------------------------------------------------------------------- */

static void gp_home_listen(void *listener, const struct gp_cache_event *event)
{
    static const uint8_t types[] = {
        [GP_CACHE_SEGMENT_ALLOC] = GP_EVENT_SEGMENT_ALLOC,
        [GP_CACHE_SEGMENT_FREE] = GP_EVENT_SEGMENT_FREE,
        [GP_CACHE_SEGMENT_MAP] = GP_EVENT_SEGMENT_MAP,
        [GP_CACHE_SEGMENT_UNMAP] = GP_EVENT_SEGMENT_UNMAP,
        [GP_CACHE_OOM] = GP_EVENT_OOM,
    };
    const struct gp_home *home = listener;
    if (event->type == GP_CACHE_RETRY)
        gp_feed_cache_count(home->device, GP_FEED_RETRIES, 1);
    else if (event->type == GP_CACHE_SYNC_ALL)
        gp_feed_cache_count(home->device, GP_FEED_SYNCS, 1);
    else if (event->type == GP_CACHE_SEGMENT_MAP)
        gp_feed_cache_count(home->device, GP_FEED_DEVICE_ALLOCS, 1);
    else if (event->type == GP_CACHE_SEGMENT_UNMAP)
        gp_feed_cache_count(home->device, GP_FEED_DEVICE_FREES, 1);
    /* The failed call itself is told by whoever answers the program (gp_feed_failed), with the function's name. */
    if (event->type < GP_COUNT(types) && types[event->type] && event->type != GP_CACHE_OOM)
        gp_feed_cache_event(&(struct gp_feed_event){.type = types[event->type],
                                                    .device = home->device,
                                                    .address = event->address,
                                                    .bytes = event->bytes,
                                                    .stream = event->stream});
}

static GP_COLD struct gp_cache *gp_home_make(struct gp_home *home)
{
    struct gp_cache_setup setup = {
        .policy = &gp_home_policy,
        .gauges = gp_feed_cache_gauges(home->device),
        .limit_bytes = gp_home_limit_bytes,
        .tags = gp_site_on(),
        .listener = home,
        .listen = gp_home_listen,
    };
    struct gp_cache *made, *none = NULL;
    gp_backend_fill(home, &setup.backend);
    if (gp_cache_new(&made, &setup) != 0)
        return NULL;
    gp_feed_cache_split_limit(
        home->device, gp_home_policy.max_split_bytes > INT64_MAX ? -1 : (int64_t)gp_home_policy.max_split_bytes);
    /* [home.R] release: the cache is complete; pairs with [home.A]. */
    if (__atomic_compare_exchange_n(&home->x_cache, &none, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return made;
    gp_cache_free(made); /* another thread was first; this one is empty */
    return none;
}

struct gp_cache *gp_home_cache(struct gp_home *home)
{
    struct gp_cache *cache = gp_home_has(home);
    return GP_LIKELY(cache) ? cache : gp_home_make(home);
}

struct gp_home *gp_home_find(uint64_t address, struct gp_grant *out)
{
    unsigned count = gp_home_count();
    for (unsigned i = 0; i < count; i++) {
        struct gp_cache *cache = gp_home_has(&gp_homes[i]);
        if (cache && gp_cache_find(cache, address, out))
            return &gp_homes[i];
    }
    return NULL;
}

struct gp_home *gp_home_owning(uint64_t address)
{
    unsigned count = gp_home_count();
    for (unsigned i = 0; i < count; i++) {
        struct gp_cache *cache = gp_home_has(&gp_homes[i]);
        if (cache && gp_cache_owns(cache, address))
            return &gp_homes[i];
    }
    return NULL;
}
