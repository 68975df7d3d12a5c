/* SPDX-License-Identifier: MIT
 * served.c: the table of served contexts; see served.h. */
#include "allocator/served.h"
#include "account/feed/cache.h"
#include "account/feed/feed.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "stack/stack.h"
#include <gpuprof/wire.h>

struct gp_served_context gp_served_contexts[GP_SERVED_LIMIT];
struct gp_lock gp_served_lock = GP_LOCK_INIT(GP_RANK_ALLOCATOR);
uint32_t gp_served_used;

struct gp_served_context *gp_served_of(void *ctx)
{
    unsigned count = gp_served_count();
    for (unsigned i = 0; i < count; i++)
        if (__atomic_load_n(&gp_served_contexts[i].x_ctx, __ATOMIC_RELAXED) == ctx &&
            gp_served_is_live(&gp_served_contexts[i]))
            return &gp_served_contexts[i];
    return NULL;
}

struct gp_served_context *gp_served_primary(int device)
{
    unsigned count = gp_served_count();
    for (unsigned i = 0; i < count; i++)
        if (gp_served_is_live(&gp_served_contexts[i]) && gp_served_contexts[i].primary &&
            gp_served_contexts[i].device == device)
            return &gp_served_contexts[i];
    return NULL;
}

/* An empty row.  If it has a cache, that cache counts for one device for good. */
static struct gp_served_context *served_row(int device)
{
    for (unsigned i = 0; i < GP_SERVED_LIMIT; i++) {
        struct gp_served_context *served = &gp_served_contexts[i];
        if (served->x_state == GP_SERVED_EMPTY && (!served->x_cache || served->device == device))
            return served;
    }
    return NULL;
}

static void served_fill(struct gp_served_context *served, void *ctx, int device, bool primary)
{
    served->device = device;
    served->primary = primary;
    served->x_access = 0;
    served->x_untracked = 0;
    served->gather = NULL;
    served->event_count = 0;
    __atomic_store_n(&served->x_ctx, ctx, __ATOMIC_RELAXED);
    /* [state.R] release: the fields above; pairs with [state.A]. */
    __atomic_store_n(&served->x_state, GP_SERVED_LIVE, __ATOMIC_RELEASE);
    if (gp_served_index(served) >= gp_served_used)
        __atomic_store_n(&gp_served_used, gp_served_index(served) + 1, __ATOMIC_RELEASE);
}

struct gp_served_context *gp_served_take(void *ctx, int device, bool primary)
{
    gp_lock_take(&gp_served_lock);
    struct gp_served_context *served = served_row(device);
    if (served)
        served_fill(served, ctx, device, primary);
    gp_lock_give(&gp_served_lock);
    return served;
}

void gp_served_release(struct gp_served_context *served)
{
    gp_lock_take(&gp_served_lock);
    for (unsigned i = 0; i < GP_SERVED_LIMIT; i++)
        gp_served_contexts[i].x_access &= ~(1ull << gp_served_index(served));
    __atomic_store_n(&served->x_ctx, NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&served->x_state, GP_SERVED_EMPTY, __ATOMIC_RELEASE);
    gp_lock_give(&gp_served_lock);
}

void gp_served_tag(const struct gp_served_context *served, struct gp_request *request)
{
    if (!gp_site_on())
        return;
    request->tag = gp_site_here(served->device, GP_KIND_LINEAR, true);
}

static GP_COLD void served_event(enum gp_wire_event_type type, const struct gp_served_context *served,
                                 const struct gp_grant *grant, uint64_t stream)
{
    gp_feed_cache_event(&(struct gp_feed_event){type, served->device, (uint32_t)grant->tag, grant->address,
                                                grant->bytes, grant->requested_bytes, stream, grant->time_ns});
}

void gp_served_event_alloc(const struct gp_served_context *served, const struct gp_grant *grant, uint64_t stream)
{
    if (GP_UNLIKELY(gp_feed_cache_wants_block((uint32_t)grant->tag)))
        served_event(GP_EVENT_ALLOC, served, grant, stream);
}

void gp_served_event_free(const struct gp_served_context *served, const struct gp_grant *grant, uint64_t stream)
{
    if (GP_UNLIKELY(gp_feed_cache_wants_block((uint32_t)grant->tag)))
        served_event(GP_EVENT_FREE, served, grant, stream);
}

struct gp_served_context *gp_served_find(uint64_t address, struct gp_grant *out)
{
    unsigned count = gp_served_count();
    for (unsigned i = 0; i < count; i++) {
        struct gp_cache *cache = gp_served_cache(&gp_served_contexts[i]);
        if (cache && gp_cache_find(cache, address, out))
            return &gp_served_contexts[i];
    }
    return NULL;
}

bool gp_served_begins(uint64_t address)
{
    unsigned count = gp_served_count();
    for (unsigned i = 0; i < count; i++) {
        struct gp_cache *cache = gp_served_cache(&gp_served_contexts[i]);
        if (cache && gp_cache_begins(cache, address))
            return true;
    }
    return false;
}

struct gp_served_context *gp_served_owning(uint64_t address)
{
    unsigned count = gp_served_count();
    for (unsigned i = 0; i < count; i++) {
        struct gp_cache *cache = gp_served_cache(&gp_served_contexts[i]);
        if (cache && gp_cache_owns(cache, address))
            return &gp_served_contexts[i];
    }
    return NULL;
}
