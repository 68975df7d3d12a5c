/* SPDX-License-Identifier: MIT
 *
 * stream.c: the program's streams, the captures that are under way, and the fences that must not
 * disturb them; see stream.h.
 */
#include "allocator/stream.h"
#include "allocator/driver.h"
#include "allocator/served.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "base/thread.h"
#include "cache/cache.h"

/* ==== streams and captures ======================================================================================== */

/* Programs have tens of streams, a server with a pool per model some hundreds.  If there are more, fences wait for the
 * whole context. */
#define GP_STREAMS  2048
#define GP_CAPTURES 64
/* 20 ms (pause.h): the time in which a thread that was preempted before a call surely runs again. */
#define GP_SYNC_ROUNDS 1000

struct gp_stream {
    void *x_handle; /* NULL: a free row */
    uint8_t served;
    bool non_blocking;
};

struct gp_capture {
    void *stream;
    const struct gp_thread *thread; /* for handles that mean each thread's own stream */
    uint8_t served;
    bool used;
};

static struct gp_stream stream_table[GP_STREAMS];
static uint32_t x_stream_high;
static struct gp_capture captures[GP_CAPTURES];
static uint32_t x_captures; /* under way */
static uint32_t x_blocked;  /* captures and stream destructions that block fences */
static uint32_t x_fencing;  /* fences that are being recorded */
static uint32_t x_syncing;  /* threads that are about to synchronise contexts, or do */
static uint32_t x_watched;

void gp_stream_watch(void)
{
    __atomic_store_n(&x_watched, 1, __ATOMIC_RELEASE);
}

static bool stream_watched(void)
{
    return __atomic_load_n(&x_watched, __ATOMIC_ACQUIRE);
}

/* ---- fences against captures ------------------------------------------------------------------------------------- */

bool gp_stream_fencing_begin(void)
{
    /* [fencing.B] adds to x_fencing, then loads x_blocked; fencing_block does it the other way round. */
    __atomic_fetch_add(&x_fencing, 1, __ATOMIC_SEQ_CST);
    if (GP_LIKELY(__atomic_load_n(&x_blocked, __ATOMIC_SEQ_CST) == 0))
        return true;
    gp_stream_fencing_end();
    return false;
}

void gp_stream_fencing_end(void)
{
    /* [fencing.R] release: the stream handles are not used any more; pairs with [fencing.A]. */
    __atomic_fetch_sub(&x_fencing, 1, __ATOMIC_RELEASE);
}

/* Around synchronising whole contexts, begun before gp_stream_fencing_end.  It may take as long as
 * the device works: streams are destroyed meanwhile, and a capture waits only until the driver must
 * have begun to wait. */
static void stream_syncing_begin(void)
{
    __atomic_fetch_add(&x_syncing, 1, __ATOMIC_SEQ_CST);
}

static void stream_syncing_end(void)
{
    __atomic_fetch_sub(&x_syncing, 1, __ATOMIC_RELEASE);
}

/* Recording a fence takes some microseconds and never waits for a stream's work. */
static void fencing_block(void)
{
    __atomic_fetch_add(&x_blocked, 1, __ATOMIC_SEQ_CST); /* pairs with [fencing.B] */
    /* [fencing.A] acquire: pairs with [fencing.R].  Sequentially consistent for [fencing.B]. */
    for (unsigned spins = 0; __atomic_load_n(&x_fencing, __ATOMIC_SEQ_CST) != 0; spins++)
        gp_pause(spins);
}

static void fencing_unblock(void)
{
    __atomic_fetch_sub(&x_blocked, 1, __ATOMIC_RELEASE);
}

static void capture_count_down(void)
{
    __atomic_fetch_sub(&x_captures, 1, __ATOMIC_RELAXED);
    fencing_unblock();
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

void gp_stream_add(struct gp_served_context *served, void *stream, unsigned flags)
{
    gp_lock_take(&gp_served_lock);
    unsigned at = 0;
    while (at < GP_STREAMS && stream_table[at].x_handle)
        at++;
    if (at < GP_STREAMS) {
        stream_table[at].served = (uint8_t)gp_served_index(served);
        stream_table[at].non_blocking = flags & GP_CU_STREAM_NONBLOCK;
        /* [stream.R] release: the fields above; pairs with [stream.A]. */
        __atomic_store_n(&stream_table[at].x_handle, stream, __ATOMIC_RELEASE);
        if (at >= x_stream_high)
            __atomic_store_n(&x_stream_high, at + 1, __ATOMIC_RELEASE);
    }
    gp_lock_give(&gp_served_lock);
    if (at == GP_STREAMS)
        __atomic_fetch_add(&served->x_untracked, 1, __ATOMIC_RELAXED); /* relaxed: it only rises */
}

void gp_stream_untracked(int device)
{
    for (unsigned i = 0; i < gp_served_count(); i++)
        if (device < 0 || gp_served_contexts[i].device == device)
            __atomic_fetch_add(&gp_served_contexts[i].x_untracked, 1, __ATOMIC_RELAXED);
}

static struct gp_stream *stream_find(void *handle)
{
    uint32_t high = __atomic_load_n(&x_stream_high, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; handle && i < high; i++)
        /* [stream.A] acquire: served and kind; pairs with [stream.R]. */
        if (__atomic_load_n(&stream_table[i].x_handle, __ATOMIC_ACQUIRE) == handle)
            return &stream_table[i];
    return NULL;
}

bool gp_stream_next(const struct gp_served_context *served, unsigned *at, void **stream)
{
    uint32_t high = __atomic_load_n(&x_stream_high, __ATOMIC_ACQUIRE);
    for (; *at < high; (*at)++) {
        const struct gp_stream *s = &stream_table[*at];
        *stream = __atomic_load_n(&s->x_handle, __ATOMIC_ACQUIRE); /* pairs with [stream.R] */
        if (*stream && s->non_blocking && s->served == gp_served_index(served)) {
            (*at)++;
            return true;
        }
    }
    return false;
}

bool gp_stream_nameable(const struct gp_served_context *served, uint64_t stream)
{
    if (stream <= GP_CU_STREAM_LEGACY)
        return true;
    if (stream == GP_CU_STREAM_PER_THREAD || stream == GP_STREAM_ANY)
        return false;
    if (!stream_watched())
        return true;
    const struct gp_stream *known = stream_find((void *)(uintptr_t)stream);
    return known && known->served == gp_served_index(served);
}

static uint32_t gather_keep(struct gp_served_context *served, void *stream);

/* The legacy stream waits for blocking streams.  CUDA does not say whether it waits for destroyed ones too, so their
 * work goes into the gather stream. */
static void stream_keep_work(struct gp_served_context *served, void *stream)
{
    struct gp_driver_guard guard;
    int status;
    if (!gp_served_is_live(served) || !gp_served_cache(served) || !gp_driver_enter(&guard, served->x_ctx))
        return; /* no cached memory, so no fence will wait for this work */
    if (gp_driver_capturing(stream, &status) == 0 && status == 0 &&
        gp_driver_real.cuStreamQuery(stream) == GP_BACKEND_BUSY && gather_keep(served, stream) != 0)
        __atomic_fetch_add(&served->x_untracked, 1, __ATOMIC_RELAXED);
    gp_driver_leave(&guard);
}

void gp_stream_remove(void *stream)
{
    struct gp_stream *known = stream_find(stream);
    gp_stream_capture_ended(stream);
    if (!known)
        return;
    stream_keep_work(&gp_served_contexts[known->served], stream);
    __atomic_store_n(&known->x_handle, NULL, __ATOMIC_RELEASE);
    fencing_block(); /* waits for fences that have read the handle already */
    fencing_unblock();
}

/* The captures of a context end with it. */
static void captures_forget(const struct gp_served_context *served)
{
    unsigned ended = 0;
    gp_lock_take(&gp_served_lock);
    for (unsigned i = 0; i < GP_CAPTURES; i++)
        if (captures[i].used && captures[i].served == gp_served_index(served)) {
            captures[i].used = false;
            ended++;
        }
    gp_lock_give(&gp_served_lock);
    while (ended--)
        capture_count_down();
}

/* The context is gone, and its streams and captures with it. */
static void stream_forget(struct gp_served_context *served)
{
    uint32_t high = __atomic_load_n(&x_stream_high, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < high; i++)
        if (stream_table[i].served == gp_served_index(served))
            __atomic_store_n(&stream_table[i].x_handle, NULL, __ATOMIC_RELEASE);
    captures_forget(served);
}

/* ---- captures ---------------------------------------------------------------------------------------------------- */

bool gp_stream_capture_under_way(void)
{
    return __atomic_load_n(&x_captures, __ATOMIC_RELAXED) != 0;
}

void gp_stream_capture_begin(void)
{
    __atomic_fetch_add(&x_captures, 1, __ATOMIC_RELAXED); /* relaxed: fencing_block orders it */
    fencing_block();
    /* The driver refuses to synchronise during a capture, and breaks the capture, but it looks only at the beginning of
     * the call.  Waiting for the end could take for ever: the device may wait for this very thread. */
    for (unsigned round = 0; round < GP_SYNC_ROUNDS && __atomic_load_n(&x_syncing, __ATOMIC_SEQ_CST); round++)
        gp_pause(round);
}

void gp_stream_capture_began(void *stream, bool ok)
{
    const struct gp_stream *known = stream_find(stream);
    struct gp_served_context *served = known ? NULL : gp_served_of(gp_driver_current());
    unsigned at = 0;
    if (!ok) {
        capture_count_down();
        return;
    }
    gp_lock_take(&gp_served_lock);
    while (at < GP_CAPTURES && captures[at].used)
        at++;
    if (at < GP_CAPTURES)
        captures[at] = (struct gp_capture){stream, &gp_thread,
                                           known    ? known->served
                                           : served ? (uint8_t)gp_served_index(served)
                                                    : GP_SERVED_LIMIT,
                                           true};
    gp_lock_give(&gp_served_lock);
    if (at == GP_CAPTURES) /* the table is full: its end would go unnoticed, and fences would stay blocked for ever */
        capture_count_down();
}

void gp_stream_capture_ended(void *stream)
{
    bool found = false;
    uintptr_t own = (uintptr_t)stream;
    gp_lock_take(&gp_served_lock);
    for (unsigned i = 0; i < GP_CAPTURES && !found; i++) {
        struct gp_capture *c = &captures[i];
        found = c->used && c->stream == stream && (own > GP_CU_STREAM_PER_THREAD || c->thread == &gp_thread);
        if (found)
            c->used = false;
    }
    gp_lock_give(&gp_served_lock);
    if (found)
        capture_count_down();
}

void gp_stream_capture_announce(int delta)
{
    if (stream_watched())
        return; /* the hooks see captures themselves */
    if (delta > 0)
        fencing_block();
    else
        fencing_unblock();
}

/* ==== events ====================================================================================================== */

static uint32_t gather_event(struct gp_served_context *served, void **event)
{
    gp_lock_take(&gp_served_lock);
    *event = served->event_count ? served->events[--served->event_count] : NULL;
    gp_lock_give(&gp_served_lock);
    return *event ? 0 : gp_driver_real.cuEventCreate(event, GP_CU_EVENT_NO_TIMING);
}

/* The event is not needed any more. */
static void gather_recycle(struct gp_served_context *served, void *event)
{
    gp_lock_take(&gp_served_lock);
    bool kept = served->event_count < GP_COUNT(served->events);
    if (kept)
        served->events[served->event_count++] = event;
    gp_lock_give(&gp_served_lock);
    if (!kept)
        gp_driver_real.cuEventDestroy_v2(event);
}

/* Records an event in `stream`. */
static uint32_t gather_record(struct gp_served_context *served, void *stream, void **event)
{
    uint32_t result = gather_event(served, event);
    if (result)
        return result;
    result = gp_driver_real.cuEventRecord(*event, stream);
    if (result)
        gather_recycle(served, *event);
    return result;
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

/* The context's gather stream, created at the first call. */
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

/* Makes `into` wait for the work that is in `stream` now.  Makes the stream's context, `served`, current itself. */
static uint32_t gather_add(struct gp_served_context *served, void *stream, void *into)
{
    struct gp_driver_guard guard;
    void *event;
    if (!gp_driver_enter(&guard, served->x_ctx))
        return GP_BACKEND_FORBIDDEN;
    uint32_t result = gather_record(served, stream, &event);
    if (!result) {
        /* The wait keeps the event's present record (cuda.h: cuStreamWaitEvent), so the event can be used again. */
        result = gp_driver_real.cuStreamWaitEvent(into, event, 0);
        gather_recycle(served, event);
    }
    gp_driver_leave(&guard);
    return result;
}

/* Adds the work of `stream`, which is about to be destroyed, to the context's own gather stream. */
static uint32_t gather_keep(struct gp_served_context *served, void *stream)
{
    void *into;
    uint32_t result = gather_stream(served, &into);
    return result ? result : gather_add(served, stream, into);
}

/* ==== fences ====================================================================================================== */

/* A fence is the handle of its event.  This value stands for a fence that was reached before it was made. */
#define GP_FENCE_REACHED 1u

/* All streams of one context. */
static uint32_t fence_gather(struct gp_served_context *served, void *into)
{
    uint32_t result = gather_add(served, NULL, into);
    void *gather = __atomic_load_n(&served->gather, __ATOMIC_ACQUIRE), *stream;
    if (!result && gather && gather != into)
        result = gather_add(served, gather, into);
    for (unsigned i = 0; !result && gp_stream_next(served, &i, &stream);)
        result = gather_add(served, stream, into);
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
                     (!stream_watched() || __atomic_load_n(&gp_served_contexts[i].x_untracked, __ATOMIC_RELAXED));
    return untracked;
}

/* Between stream_syncing_begin and stream_syncing_end. */
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

/* A fence behind the work of a stream. */
static uint32_t fence_record(struct gp_served_context *served, void *stream, uint64_t *fence)
{
    void *event;
    uint32_t result = gather_record(served, stream, &event);
    if (!result)
        *fence = (uint64_t)(uintptr_t)event;
    return result;
}

static uint32_t fence_everything(struct gp_served_context *served, uint64_t *fence)
{
    uint64_t reach = fence_reach(served);
    bool alone = reach == 1ull << gp_served_index(served);
    unsigned first = 0;
    uint32_t result = 0;
    void *into = NULL, *stream;
    if (fence_untracked(reach))
        return GP_FENCE_UNTRACKED;
    if (!alone || __atomic_load_n(&served->gather, __ATOMIC_ACQUIRE) || gp_stream_next(served, &first, &stream)) {
        result = gather_stream(served, &into);
        for (unsigned i = 0; !result && i < GP_SERVED_LIMIT; i++)
            if (reach >> i & 1)
                result = fence_gather(&gp_served_contexts[i], into);
    }
    return result ? result : fence_record(served, into, fence);
}

/* For streams that are known to live, or that the caller is trusted to keep alive. */
static uint32_t fence_streams(struct gp_served_context *served, const uint64_t *streams, unsigned count,
                              uint64_t *fence)
{
    void *into = NULL;
    uint32_t result = 0;
    int status;
    for (unsigned i = 0; !result && !stream_watched() && i < count; i++) {
        result = gp_driver_capturing((void *)(uintptr_t)streams[i], &status);
        if (!result && status)
            result = GP_BACKEND_FORBIDDEN;
    }
    if (!result && count == 1)
        into = (void *)(uintptr_t)streams[0];
    else if (!result)
        result = gather_stream(served, &into);
    for (unsigned i = 0; !result && count > 1 && i < count; i++)
        result = gather_add(served, (void *)(uintptr_t)streams[i], into);
    return result ? result : fence_record(served, into, fence);
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
uint32_t gp_stream_fence_record(struct gp_served_context *served, const uint64_t *streams, unsigned count,
                                uint64_t *fence)
{
    if (!gp_stream_fencing_begin())
        return GP_BACKEND_FORBIDDEN;
    uint32_t result = fence_recorded(served, streams, count, fence);
    bool waits = result == GP_FENCE_UNTRACKED && !gp_thread.prompt;
    if (waits)
        stream_syncing_begin();
    gp_stream_fencing_end();
    if (waits) {
        result = fence_by_waiting(served, fence);
        stream_syncing_end();
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
        gather_recycle(served, event);
    gp_driver_leave(&guard);
    return result;
}

/* An error proves nothing about the work, so the fence stays; a caller that needs the memory waits. */
uint32_t gp_stream_fence_query(struct gp_served_context *served, uint64_t fence)
{
    uint32_t result = fence_ask(served, fence, gp_driver_real.cuEventQuery, GP_BACKEND_BUSY);
    return result ? GP_BACKEND_BUSY : 0;
}

uint32_t gp_stream_fence_wait(struct gp_served_context *served, uint64_t fence)
{
    return fence_ask(served, fence, gp_driver_real.cuEventSynchronize, GP_BACKEND_INVALID);
}

void gp_stream_fence_forget(struct gp_served_context *served)
{
    stream_forget(served);
    gp_lock_take(&gp_served_lock);
    served->event_count = 0;
    gp_lock_give(&gp_served_lock);
    __atomic_store_n(&served->gather, NULL, __ATOMIC_RELEASE);
}
