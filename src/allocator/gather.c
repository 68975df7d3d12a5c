/* SPDX-License-Identifier: MIT
 * gather.c: see gather.h. */
#include "allocator/gather.h"
#include "allocator/driver.h"
#include "allocator/served.h"
#include "base/compiler.h"

/* ---- events ------------------------------------------------------------------------------------------------------- */

static uint32_t gather_event(struct gp_served_context *served, void **event)
{
    gp_lock_take(&gp_served_lock);
    *event = served->event_count ? served->events[--served->event_count] : NULL;
    gp_lock_give(&gp_served_lock);
    return *event ? 0 : gp_driver_real.cuEventCreate(event, GP_CU_EVENT_NO_TIMING);
}

void gp_gather_recycle(struct gp_served_context *served, void *event)
{
    gp_lock_take(&gp_served_lock);
    bool kept = served->event_count < GP_COUNT(served->events);
    if (kept)
        served->events[served->event_count++] = event;
    gp_lock_give(&gp_served_lock);
    if (!kept)
        gp_driver_real.cuEventDestroy_v2(event);
}

uint32_t gp_gather_record(struct gp_served_context *served, void *stream, void **event)
{
    uint32_t result = gather_event(served, event);
    if (result)
        return result;
    result = gp_driver_real.cuEventRecord(*event, stream);
    if (result)
        gp_gather_recycle(served, *event);
    return result;
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

uint32_t gp_gather_stream(struct gp_served_context *served, void **out)
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

uint32_t gp_gather_add(struct gp_served_context *served, void *stream, void *into)
{
    struct gp_driver_guard guard;
    void *event;
    if (!gp_driver_enter(&guard, served->x_ctx))
        return GP_BACKEND_FORBIDDEN;
    uint32_t result = gp_gather_record(served, stream, &event);
    if (!result) {
        /* The wait keeps the event's present record (cuda.h: cuStreamWaitEvent), so the event can be used again. */
        result = gp_driver_real.cuStreamWaitEvent(into, event, 0);
        gp_gather_recycle(served, event);
    }
    gp_driver_leave(&guard);
    return result;
}

uint32_t gp_gather_keep(struct gp_served_context *served, void *stream)
{
    void *into;
    uint32_t result = gp_gather_stream(served, &into);
    return result ? result : gp_gather_add(served, stream, into);
}
