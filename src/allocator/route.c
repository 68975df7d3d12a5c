/* SPDX-License-Identifier: MIT
 *
 * route.c: which requests go to a private pool (route.h).  A filter calls the driver, so it runs
 * with no lock held; a pin count keeps it alive.
 */
#include "allocator/route.h"
#include "allocator/served.h"
#include "base/compiler.h"
#include "base/loader.h"
#include "base/lock.h"
#include "base/thread.h"
#include <dlfcn.h>
#include <errno.h>

#define GP_ROUTES 64 /* captures and pools that are open at the same time */

/* std::_Manager_operation (libstdc++, bits/std_function.h). */
#define GP_FILTER_CLONE   2
#define GP_FILTER_DESTROY 3

struct gp_route_slot {
    struct gp_route route;
    struct gp_filter filter;
    const struct gp_thread *thread;
    uint64_t turn; /* in order of gp_route_begin; 0: free */
    uint32_t pins;
    bool ended;
};

static struct gp_route_slot routes[GP_ROUTES]; /* under gp_served_lock */
static uint64_t route_turn;
uint32_t gp_route_open; /* while it is 0, a request reads nothing else */

bool gp_route_filter_is_usable(const struct gp_filter *filter)
{
    Dl_info where;
    return filter && filter->manager && filter->invoker && GP_LOADER(dladdr((void *)filter->manager, &where)) != 0 &&
           GP_LOADER(dladdr((void *)filter->invoker, &where)) != 0;
}

int gp_route_begin(const struct gp_route *route)
{
    struct gp_filter copy = {0};
    struct gp_route_slot *slot = NULL;
    if (route->kind == GP_ROUTE_FILTER) {
        copy = *route->filter;
        copy.manager(&copy.target, &route->filter->target, GP_FILTER_CLONE);
    }
    gp_lock_take(&gp_served_lock);
    for (unsigned i = 0; i < GP_ROUTES && !slot; i++)
        slot = routes[i].turn ? NULL : &routes[i];
    if (slot) {
        *slot = (struct gp_route_slot){*route, copy, &gp_thread, ++route_turn, 0, false};
        slot->route.filter = &slot->filter;
        __atomic_fetch_add(&gp_route_open, 1, __ATOMIC_RELAXED); /* relaxed: the lock orders it */
    }
    gp_lock_give(&gp_served_lock);
    if (!slot && copy.manager)
        copy.manager(&copy.target, &copy.target, GP_FILTER_DESTROY);
    return slot ? 0 : -ENOSPC;
}

/* The last unpin of an ended route destroys its filter. */
static void route_unpin(struct gp_route_slot *slot)
{
    struct gp_filter gone = {0};
    gp_lock_take(&gp_served_lock);
    if (--slot->pins == 0 && slot->ended) {
        gone = slot->filter;
        slot->turn = 0;
    }
    gp_lock_give(&gp_served_lock);
    if (gone.manager)
        gone.manager(&gone.target, &gone.target, GP_FILTER_DESTROY);
}

bool gp_route_end(uint64_t pool, int device)
{
    struct gp_route_slot *slot = NULL;
    gp_lock_take(&gp_served_lock);
    for (unsigned i = 0; i < GP_ROUTES && !slot; i++) {
        struct gp_route_slot *at = &routes[i];
        if (at->turn && !at->ended && at->route.pool == pool && at->route.device == device)
            slot = at;
    }
    if (slot) {
        slot->ended = true;
        slot->pins++;
        __atomic_fetch_sub(&gp_route_open, 1, __ATOMIC_RELAXED);
    }
    gp_lock_give(&gp_served_lock);
    if (slot)
        route_unpin(slot);
    return slot != NULL;
}

/* The next open route of the device that began after `turn`, pinned. */
static struct gp_route_slot *route_next(int device, uint64_t turn)
{
    struct gp_route_slot *next = NULL;
    gp_lock_take(&gp_served_lock);
    for (unsigned i = 0; i < GP_ROUTES; i++) {
        struct gp_route_slot *at = &routes[i];
        if (at->turn > turn && !at->ended && at->route.device == device && (!next || at->turn < next->turn))
            next = at;
    }
    if (next)
        next->pins++;
    gp_lock_give(&gp_served_lock);
    return next;
}

static bool route_takes(const struct gp_route_slot *slot, uint64_t stream)
{
    void *handle = (void *)(uintptr_t)stream;
    switch (slot->route.kind) {
    case GP_ROUTE_THREAD:
        return slot->thread == &gp_thread;
    case GP_ROUTE_STREAM:
        return slot->route.stream == stream;
    default:
        return slot->filter.invoker(&slot->filter.target, &handle);
    }
}

uint64_t gp_route_pool(int device, uint64_t stream)
{
    struct gp_route_slot *slot;
    uint64_t pool = 0;
    if (GP_LIKELY(!gp_route_any()))
        return 0;
    for (uint64_t turn = 0; !pool && (slot = route_next(device, turn)) != NULL; route_unpin(slot)) {
        turn = slot->turn;
        if (route_takes(slot, stream))
            pool = slot->route.pool;
    }
    return pool;
}
