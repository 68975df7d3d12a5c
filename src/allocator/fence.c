/* SPDX-License-Identifier: MIT
 * fence.c: the events behind the backend's fences; see fence.h.  Streams and captures are in stream.c. */
#include "allocator/fence.h"
#include "base/compiler.h"
#include "allocator/driver.h"
#include "allocator/home.h"
#include "allocator/stream.h"

/* A fence is the event's handle; this one was reached before it was made. */
#define GP_FENCE_REACHED 1u

/* ---- events: called with the home's context current -------------------------------------------------------------- */

static uint32_t gp_event_get(struct gp_home *home, void **event)
{
    gp_lock_take(&gp_home_lock);
    *event = home->event_count ? home->events[--home->event_count] : NULL;
    gp_lock_give(&gp_home_lock);
    return *event ? 0 : gp_driver_real.cuEventCreate(event, GP_CU_EVENT_NO_TIMING);
}

static void gp_event_put(struct gp_home *home, void *event)
{
    gp_lock_take(&gp_home_lock);
    bool kept = home->event_count < GP_COUNT(home->events);
    if (kept)
        home->events[home->event_count++] = event;
    gp_lock_give(&gp_home_lock);
    if (!kept)
        gp_driver_real.cuEventDestroy_v2(event);
}

static uint32_t gp_event_mark(struct gp_home *home, void *stream, void **event)
{
    uint32_t result = gp_event_get(home, event);
    if (result)
        return result;
    result = gp_driver_real.cuEventRecord(*event, stream);
    if (result)
        gp_event_put(home, *event);
    return result;
}

/* ---- gathering ----------------------------------------------------------------------------------------------------
 */

static uint32_t gp_gather_stream(struct gp_home *home, void **out)
{
    void *made, *none = NULL;
    /* [gather.A] acquire: the stream is made; pairs with [gather.R]. */
    *out = __atomic_load_n(&home->gather, __ATOMIC_ACQUIRE);
    if (GP_LIKELY(*out))
        return 0;
    uint32_t result = gp_driver_real.cuStreamCreate(&made, GP_CU_STREAM_NONBLOCK);
    if (result)
        return result;
    *out = made;
    /* [gather.R] release: pairs with [gather.A], on another thread. */
    if (!__atomic_compare_exchange_n(&home->gather, &none, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        gp_driver_real.cuStreamDestroy_v2(made);
        *out = none;
    }
    return 0;
}

/* `into` waits for what is in `stream` now.  The stream's context is made current here. */
static uint32_t gp_gather_one(struct gp_home *home, void *stream, void *into)
{
    struct gp_driver_guard guard;
    void *event;
    if (!gp_driver_enter(&guard, home->x_ctx))
        return GP_BACKEND_FORBIDDEN;
    uint32_t result = gp_event_mark(home, stream, &event);
    if (!result) {
        /* The wait stands for the event as it is now (cuda.h: cuStreamWaitEvent), so that it can be used again. */
        result = gp_driver_real.cuStreamWaitEvent(into, event, 0);
        gp_event_put(home, event);
    }
    gp_driver_leave(&guard);
    return result;
}

uint32_t gp_gather_leave(struct gp_home *home, void *stream)
{
    void *into;
    uint32_t result = gp_gather_stream(home, &into);
    return result ? result : gp_gather_one(home, stream, into);
}

/* All streams of one context. */
static uint32_t gp_gather_home(struct gp_home *home, void *into)
{
    uint32_t result = gp_gather_one(home, NULL, into);
    void *gather = __atomic_load_n(&home->gather, __ATOMIC_ACQUIRE), *stream;
    if (!result && gather && gather != into)
        result = gp_gather_one(home, gather, into);
    for (unsigned i = 0; !result && gp_stream_next(home, &i, &stream);)
        result = gp_gather_one(home, stream, into);
    return result;
}

/* ---- fences -------------------------------------------------------------------------------------------------------
 */

/* Whose work can touch this home's memory: its own context's, that of others on the device, that of peers. */
static uint64_t gp_fence_reach(const struct gp_home *home)
{
    uint64_t reach = __atomic_load_n(&home->x_access, __ATOMIC_RELAXED) | 1ull << gp_home_index(home);
    unsigned count = gp_home_count();
    for (unsigned i = 0; i < count; i++) {
        if (!gp_home_lives(&gp_homes[i]))
            reach &= ~(1ull << i);
        else if (gp_homes[i].device == home->device)
            reach |= 1ull << i;
    }
    return reach;
}

static uint32_t gp_fence_synchronize(struct gp_home *home)
{
    struct gp_driver_guard guard;
    int status = 0;
    if (!gp_driver_enter(&guard, home->x_ctx))
        return GP_BACKEND_FORBIDDEN;
    /* Asking harms no capture (cuda.h: cuStreamIsCapturing), waiting would. */
    uint32_t result = gp_driver_real.cuStreamIsCapturing ? gp_driver_real.cuStreamIsCapturing(NULL, &status) : 0;
    if (!result)
        result = status ? GP_BACKEND_FORBIDDEN : gp_driver_real.cuCtxSynchronize();
    gp_driver_leave(&guard);
    return result;
}

static uint32_t gp_fence_everything(struct gp_home *home, uint64_t *fence)
{
    uint64_t reach = gp_fence_reach(home);
    bool doubt = false, alone = reach == 1ull << gp_home_index(home);
    unsigned first = 0;
    uint32_t result = 0;
    void *into = NULL, *event, *stream;
    for (unsigned i = 0; i < GP_HOMES; i++)
        doubt |= reach >> i & 1 && (!gp_stream_watched() || __atomic_load_n(&gp_homes[i].x_doubts, __ATOMIC_RELAXED));
    if (doubt) {
        *fence = GP_FENCE_REACHED;
        for (unsigned i = 0; !result && i < GP_HOMES; i++)
            if (reach >> i & 1)
                result = gp_fence_synchronize(&gp_homes[i]);
        return result;
    }
    if (!alone || __atomic_load_n(&home->gather, __ATOMIC_ACQUIRE) || gp_stream_next(home, &first, &stream)) {
        result = gp_gather_stream(home, &into);
        for (unsigned i = 0; !result && i < GP_HOMES; i++)
            if (reach >> i & 1)
                result = gp_gather_home(&gp_homes[i], into);
    }
    if (!result)
        result = gp_event_mark(home, into, &event);
    if (!result)
        *fence = (uint64_t)(uintptr_t)event;
    return result;
}

/* Streams by name, all of them known to live, or trusted. */
static uint32_t gp_fence_streams(struct gp_home *home, const uint64_t *streams, unsigned count, uint64_t *fence)
{
    void *into = NULL, *event;
    uint32_t result = 0;
    int status = 0;
    for (unsigned i = 0; !result && !gp_stream_watched() && gp_driver_real.cuStreamIsCapturing && i < count; i++) {
        result = gp_driver_real.cuStreamIsCapturing((void *)(uintptr_t)streams[i], &status);
        if (!result && status)
            result = GP_BACKEND_FORBIDDEN;
    }
    if (!result && count == 1) {
        result = gp_event_mark(home, (void *)(uintptr_t)streams[0], &event);
    } else if (!result) {
        result = gp_gather_stream(home, &into);
        for (unsigned i = 0; !result && i < count; i++)
            result = gp_gather_one(home, (void *)(uintptr_t)streams[i], into);
        if (!result)
            result = gp_event_mark(home, into, &event);
    }
    if (!result)
        *fence = (uint64_t)(uintptr_t)event;
    return result;
}

static uint32_t gp_fence_recorded(struct gp_home *home, const uint64_t *streams, unsigned count, uint64_t *fence)
{
    struct gp_driver_guard guard;
    bool named = count > 0;
    if (!gp_home_lives(home) || !gp_driver_enter(&guard, home->x_ctx))
        return GP_BACKEND_FORBIDDEN;
    for (unsigned i = 0; i < count; i++)
        named &= gp_stream_nameable(home, streams[i]);
    uint32_t result = named ? gp_fence_streams(home, streams, count, fence) : gp_fence_everything(home, fence);
    gp_driver_leave(&guard);
    return result >= GP_CU_CAPTURE_FIRST && result <= GP_CU_CAPTURE_LAST ? GP_BACKEND_FORBIDDEN : result;
}

uint32_t gp_fence_record(struct gp_home *home, const uint64_t *streams, unsigned count, uint64_t *fence)
{
    if (!gp_door_enter())
        return GP_BACKEND_FORBIDDEN;
    uint32_t result = gp_fence_recorded(home, streams, count, fence);
    gp_door_leave();
    return result;
}

/* Query and wait name an event of a context that lives: what a dead one left behind is forgotten, not asked. */
static uint32_t gp_fence_ask(struct gp_home *home, uint64_t fence, uint32_t (*ask)(void *event), uint32_t never)
{
    struct gp_driver_guard guard;
    void *event = (void *)(uintptr_t)fence;
    if (fence == GP_FENCE_REACHED)
        return 0;
    if (!gp_home_lives(home) || !gp_driver_enter(&guard, NULL))
        return never;
    uint32_t result = ask(event);
    if (result == 0)
        gp_event_put(home, event);
    gp_driver_leave(&guard);
    return result;
}

/* An error proves nothing about the work: the fence stays, and who cannot do without waits. */
uint32_t gp_fence_query(struct gp_home *home, uint64_t fence)
{
    uint32_t result = gp_fence_ask(home, fence, gp_driver_real.cuEventQuery, GP_BACKEND_BUSY);
    return result ? GP_BACKEND_BUSY : 0;
}

uint32_t gp_fence_wait(struct gp_home *home, uint64_t fence)
{
    return gp_fence_ask(home, fence, gp_driver_real.cuEventSynchronize, GP_BACKEND_INVALID);
}

void gp_fence_forget(struct gp_home *home)
{
    gp_stream_forget(home);
    gp_lock_take(&gp_home_lock);
    home->event_count = 0;
    gp_lock_give(&gp_home_lock);
    __atomic_store_n(&home->gather, NULL, __ATOMIC_RELEASE);
}
