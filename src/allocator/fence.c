/* SPDX-License-Identifier: MIT
 * fence.c: see fence.h. */
#include "allocator/fence.h"
#include "allocator/driver.h"
#include "allocator/gather.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "base/thread.h"

/* A fence is the handle of its event.  This value stands for a fence that was reached before it was made. */
#define GP_FENCE_REACHED 1u

/* All streams of one context. */
static uint32_t fence_gather(struct gp_served_context *served, void *into)
{
    uint32_t result = gp_gather_add(served, NULL, into);
    void *gather = __atomic_load_n(&served->gather, __ATOMIC_ACQUIRE), *stream;
    if (!result && gather && gather != into)
        result = gp_gather_add(served, gather, into);
    for (unsigned i = 0; !result && gp_stream_next(served, &i, &stream);)
        result = gp_gather_add(served, stream, into);
    return result;
}

/* The contexts whose work can touch this one's memory, by index: itself, others on the device, and peers. */
static uint64_t fence_reach(const struct gp_served_context *served)
{
    uint64_t reach = __atomic_load_n(&served->x_access, __ATOMIC_RELAXED) | 1ull << gp_served_index(served);
    unsigned count = gp_served_count();
    for (unsigned i = 0; i < count; i++) {
        if (!gp_served_is_live(&gp_served_contexts[i]))
            reach &= ~(1ull << i);
        else if (gp_served_contexts[i].device == served->device)
            reach |= 1ull << i;
    }
    return reach;
}

static uint32_t fence_synchronize(struct gp_served_context *served)
{
    struct gp_driver_guard guard;
    int status;
    if (!gp_driver_enter(&guard, served->x_ctx))
        return GP_BACKEND_FORBIDDEN;
    /* cuStreamIsCapturing does not disturb a capture (cuda.h); synchronising would. */
    uint32_t result = gp_driver_capturing(NULL, &status);
    if (!result)
        result = status ? GP_BACKEND_FORBIDDEN : gp_driver_real.cuCtxSynchronize();
    gp_driver_leave(&guard);
    return result;
}

/* Work may run that no event of ours covers: only synchronising the contexts shows its end.  The result of
 * fence_everything then. */
#define GP_FENCE_UNTRACKED UINT32_MAX

static bool fence_untracked(uint64_t reach)
{
    bool untracked = false;
    for (unsigned i = 0; i < GP_SERVED_LIMIT; i++)
        untracked |= reach >> i & 1 &&
                     (!gp_stream_watched() || __atomic_load_n(&gp_served_contexts[i].x_untracked, __ATOMIC_RELAXED));
    return untracked;
}

/* Between gp_stream_syncing_begin and gp_stream_syncing_end. */
static uint32_t fence_by_waiting(struct gp_served_context *served, uint64_t *fence)
{
    uint64_t reach = fence_reach(served);
    uint32_t result = 0;
    *fence = GP_FENCE_REACHED;
    for (unsigned i = 0; !result && i < GP_SERVED_LIMIT; i++)
        if (reach >> i & 1)
            result = fence_synchronize(&gp_served_contexts[i]);
    return result;
}

static uint32_t fence_everything(struct gp_served_context *served, uint64_t *fence)
{
    uint64_t reach = fence_reach(served);
    bool alone = reach == 1ull << gp_served_index(served);
    unsigned first = 0;
    uint32_t result = 0;
    void *into = NULL, *event, *stream;
    if (fence_untracked(reach))
        return GP_FENCE_UNTRACKED;
    if (!alone || __atomic_load_n(&served->gather, __ATOMIC_ACQUIRE) || gp_stream_next(served, &first, &stream)) {
        result = gp_gather_stream(served, &into);
        for (unsigned i = 0; !result && i < GP_SERVED_LIMIT; i++)
            if (reach >> i & 1)
                result = fence_gather(&gp_served_contexts[i], into);
    }
    if (!result)
        result = gp_gather_record(served, into, &event);
    if (!result)
        *fence = (uint64_t)(uintptr_t)event;
    return result;
}

/* For streams that are known to live, or that the caller is trusted to keep alive. */
static uint32_t fence_streams(struct gp_served_context *served, const uint64_t *streams, unsigned count,
                              uint64_t *fence)
{
    void *into = NULL, *event;
    uint32_t result = 0;
    int status;
    for (unsigned i = 0; !result && !gp_stream_watched() && i < count; i++) {
        result = gp_driver_capturing((void *)(uintptr_t)streams[i], &status);
        if (!result && status)
            result = GP_BACKEND_FORBIDDEN;
    }
    if (!result && count == 1) {
        result = gp_gather_record(served, (void *)(uintptr_t)streams[0], &event);
    } else if (!result) {
        result = gp_gather_stream(served, &into);
        for (unsigned i = 0; !result && i < count; i++)
            result = gp_gather_add(served, (void *)(uintptr_t)streams[i], into);
        if (!result)
            result = gp_gather_record(served, into, &event);
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
    if (!gp_served_is_live(served) || !gp_driver_enter(&guard, served->x_ctx))
        return GP_BACKEND_FORBIDDEN;
    for (unsigned i = 0; i < count; i++)
        named &= gp_stream_nameable(served, streams[i]);
    uint32_t result = named ? fence_streams(served, streams, count, fence) : fence_everything(served, fence);
    gp_driver_leave(&guard);
    return result;
}

/* A free that CUDA promises not to wait keeps its blocks waiting; an allocation that needs them comes here too, and
 * waits as cuMemFree would have.  The wait names no stream, so streams may be destroyed meanwhile. */
uint32_t gp_fence_record(struct gp_served_context *served, const uint64_t *streams, unsigned count, uint64_t *fence)
{
    if (!gp_stream_fencing_begin())
        return GP_BACKEND_FORBIDDEN;
    uint32_t result = fence_recorded(served, streams, count, fence);
    bool waits = result == GP_FENCE_UNTRACKED && !gp_thread.prompt;
    if (waits)
        gp_stream_syncing_begin();
    gp_stream_fencing_end();
    if (waits) {
        result = fence_by_waiting(served, fence);
        gp_stream_syncing_end();
    } else if (result == GP_FENCE_UNTRACKED) {
        result = GP_BACKEND_FORBIDDEN;
    }
    return result >= GP_CU_CAPTURE_FIRST && result <= GP_CU_CAPTURE_LAST ? GP_BACKEND_FORBIDDEN : result;
}

/* Calls `ask` for the fence's event.  The event of a dead context died with it: then the result is `never`. */
static uint32_t fence_ask(struct gp_served_context *served, uint64_t fence, uint32_t (*ask)(void *event),
                          uint32_t never)
{
    struct gp_driver_guard guard;
    void *event = (void *)(uintptr_t)fence;
    if (fence == GP_FENCE_REACHED)
        return 0;
    if (!gp_served_is_live(served) || !gp_driver_enter(&guard, NULL))
        return never;
    uint32_t result = ask(event);
    if (result == 0)
        gp_gather_recycle(served, event);
    gp_driver_leave(&guard);
    return result;
}

/* An error proves nothing about the work, so the fence stays; a caller that needs the memory waits. */
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
