/* SPDX-License-Identifier: MIT
 * fence.c: the events behind the backend's fences; see fence.h.  Streams and captures are in stream.c. */
#include "allocator/fence.h"
#include "allocator/driver.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "base/compiler.h"

/* A fence is the event's handle; this one was reached before it was made. */
#define GP_FENCE_REACHED 1u

/* ---- events: called with the served's context current -------------------------------------------------------------- */

static uint32_t event_get(struct gp_served_context *served, void **event)
{
    gp_lock_take(&gp_served_lock);
    *event = served->event_count ? served->events[--served->event_count] : NULL;
    gp_lock_give(&gp_served_lock);
    return *event ? 0 : gp_driver_real.cuEventCreate(event, GP_CU_EVENT_NO_TIMING);
}

static void event_put(struct gp_served_context *served, void *event)
{
    gp_lock_take(&gp_served_lock);
    bool kept = served->event_count < GP_COUNT(served->events);
    if (kept)
        served->events[served->event_count++] = event;
    gp_lock_give(&gp_served_lock);
    if (!kept)
        gp_driver_real.cuEventDestroy_v2(event);
}

static uint32_t event_mark(struct gp_served_context *served, void *stream, void **event)
{
    uint32_t result = event_get(served, event);
    if (result)
        return result;
    result = gp_driver_real.cuEventRecord(*event, stream);
    if (result)
        event_put(served, *event);
    return result;
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

static uint32_t gather_stream(struct gp_served_context *served, void **out)
{
    void *made, *none = NULL;
    /* [gather.A] acquire: the stream is made; pairs with [gather.R]. */
    *out = __atomic_load_n(&served->gather, __ATOMIC_ACQUIRE);
    if (GP_LIKELY(*out))
        return 0;
    uint32_t result = gp_driver_real.cuStreamCreate(&made, GP_CU_STREAM_NONBLOCK);
    if (result)
        return result;
    *out = made;
    /* [gather.R] release: pairs with [gather.A], on another thread. */
    if (!__atomic_compare_exchange_n(&served->gather, &none, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        gp_driver_real.cuStreamDestroy_v2(made);
        *out = none;
    }
    return 0;
}

/* `into` waits for what is in `stream` now.  The stream's context is made current here. */
static uint32_t gather_one(struct gp_served_context *served, void *stream, void *into)
{
    struct gp_driver_guard guard;
    void *event;
    if (!gp_driver_enter(&guard, served->x_ctx))
        return GP_BACKEND_FORBIDDEN;
    uint32_t result = event_mark(served, stream, &event);
    if (!result) {
        /* The wait stands for the event as it is now (cuda.h: cuStreamWaitEvent), so that it can be used again. */
        result = gp_driver_real.cuStreamWaitEvent(into, event, 0);
        event_put(served, event);
    }
    gp_driver_leave(&guard);
    return result;
}

uint32_t gp_gather_leave(struct gp_served_context *served, void *stream)
{
    void *into;
    uint32_t result = gather_stream(served, &into);
    return result ? result : gather_one(served, stream, into);
}

/* All streams of one context. */
static uint32_t gather_home(struct gp_served_context *served, void *into)
{
    uint32_t result = gather_one(served, NULL, into);
    void *gather = __atomic_load_n(&served->gather, __ATOMIC_ACQUIRE), *stream;
    if (!result && gather && gather != into)
        result = gather_one(served, gather, into);
    for (unsigned i = 0; !result && gp_stream_next(served, &i, &stream);)
        result = gather_one(served, stream, into);
    return result;
}

/* ---- fences ------------------------------------------------------------------------------------------------------ */

/* Whose work can touch this served's memory: its own context's, that of others on the device, that of peers. */
static uint64_t fence_reach(const struct gp_served_context *served)
{
    uint64_t reach = __atomic_load_n(&served->x_access, __ATOMIC_RELAXED) | 1ull << gp_served_index(served);
    unsigned count = gp_served_count();
    for (unsigned i = 0; i < count; i++) {
        if (!gp_served_lives(&gp_served_contexts[i]))
            reach &= ~(1ull << i);
        else if (gp_served_contexts[i].device == served->device)
            reach |= 1ull << i;
    }
    return reach;
}

static uint32_t fence_synchronize(struct gp_served_context *served)
{
    struct gp_driver_guard guard;
    int status = 0;
    if (!gp_driver_enter(&guard, served->x_ctx))
        return GP_BACKEND_FORBIDDEN;
    /* Asking harms no capture (cuda.h: cuStreamIsCapturing), waiting would. */
    uint32_t result = gp_driver_real.cuStreamIsCapturing ? gp_driver_real.cuStreamIsCapturing(NULL, &status) : 0;
    if (!result)
        result = status ? GP_BACKEND_FORBIDDEN : gp_driver_real.cuCtxSynchronize();
    gp_driver_leave(&guard);
    return result;
}

static uint32_t fence_everything(struct gp_served_context *served, uint64_t *fence)
{
    uint64_t reach = fence_reach(served);
    bool doubt = false, alone = reach == 1ull << gp_served_index(served);
    unsigned first = 0;
    uint32_t result = 0;
    void *into = NULL, *event, *stream;
    for (unsigned i = 0; i < GP_SERVED_LIMIT; i++)
        doubt |= reach >> i & 1 &&
                 (!gp_stream_watched() || __atomic_load_n(&gp_served_contexts[i].x_doubts, __ATOMIC_RELAXED));
    if (doubt) {
        *fence = GP_FENCE_REACHED;
        for (unsigned i = 0; !result && i < GP_SERVED_LIMIT; i++)
            if (reach >> i & 1)
                result = fence_synchronize(&gp_served_contexts[i]);
        return result;
    }
    if (!alone || __atomic_load_n(&served->gather, __ATOMIC_ACQUIRE) || gp_stream_next(served, &first, &stream)) {
        result = gather_stream(served, &into);
        for (unsigned i = 0; !result && i < GP_SERVED_LIMIT; i++)
            if (reach >> i & 1)
                result = gather_home(&gp_served_contexts[i], into);
    }
    if (!result)
        result = event_mark(served, into, &event);
    if (!result)
        *fence = (uint64_t)(uintptr_t)event;
    return result;
}

/* Streams by name, all of them known to live, or trusted. */
static uint32_t fence_streams(struct gp_served_context *served, const uint64_t *streams, unsigned count,
                              uint64_t *fence)
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
        result = event_mark(served, (void *)(uintptr_t)streams[0], &event);
    } else if (!result) {
        result = gather_stream(served, &into);
        for (unsigned i = 0; !result && i < count; i++)
            result = gather_one(served, (void *)(uintptr_t)streams[i], into);
        if (!result)
            result = event_mark(served, into, &event);
    }
    if (!result)
        *fence = (uint64_t)(uintptr_t)event;
    return result;
}

static uint32_t fence_recorded(struct gp_served_context *served, const uint64_t *streams, unsigned count,
                               uint64_t *fence)
{
    struct gp_driver_guard guard;
    bool named = count > 0;
    if (!gp_served_lives(served) || !gp_driver_enter(&guard, served->x_ctx))
        return GP_BACKEND_FORBIDDEN;
    for (unsigned i = 0; i < count; i++)
        named &= gp_stream_nameable(served, streams[i]);
    uint32_t result = named ? fence_streams(served, streams, count, fence) : fence_everything(served, fence);
    gp_driver_leave(&guard);
    return result >= GP_CU_CAPTURE_FIRST && result <= GP_CU_CAPTURE_LAST ? GP_BACKEND_FORBIDDEN : result;
}

uint32_t gp_fence_record(struct gp_served_context *served, const uint64_t *streams, unsigned count, uint64_t *fence)
{
    if (!gp_door_enter())
        return GP_BACKEND_FORBIDDEN;
    uint32_t result = fence_recorded(served, streams, count, fence);
    gp_door_leave();
    return result;
}

/* Query and wait name an event of a context that lives: what a dead one left behind is forgotten, not asked. */
static uint32_t fence_ask(struct gp_served_context *served, uint64_t fence, uint32_t (*ask)(void *event),
                          uint32_t never)
{
    struct gp_driver_guard guard;
    void *event = (void *)(uintptr_t)fence;
    if (fence == GP_FENCE_REACHED)
        return 0;
    if (!gp_served_lives(served) || !gp_driver_enter(&guard, NULL))
        return never;
    uint32_t result = ask(event);
    if (result == 0)
        event_put(served, event);
    gp_driver_leave(&guard);
    return result;
}

/* An error proves nothing about the work: the fence stays, and who cannot do without waits. */
uint32_t gp_fence_query(struct gp_served_context *served, uint64_t fence)
{
    uint32_t result = fence_ask(served, fence, gp_driver_real.cuEventQuery, GP_BACKEND_BUSY);
    return result ? GP_BACKEND_BUSY : 0;
}

uint32_t gp_fence_wait(struct gp_served_context *served, uint64_t fence)
{
    return fence_ask(served, fence, gp_driver_real.cuEventSynchronize, GP_BACKEND_INVALID);
}

void gp_fence_forget(struct gp_served_context *served)
{
    gp_stream_forget(served);
    gp_lock_take(&gp_served_lock);
    served->event_count = 0;
    gp_lock_give(&gp_served_lock);
    __atomic_store_n(&served->gather, NULL, __ATOMIC_RELEASE);
}
