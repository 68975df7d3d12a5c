/* SPDX-License-Identifier: MIT
 * stream.c: see stream.h. */
#include "allocator/stream.h"
#include "allocator/cache/cache.h"
#include "allocator/driver.h"
#include "allocator/gather.h"
#include "allocator/served.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "base/thread.h"

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

static struct gp_stream streams[GP_STREAMS];
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

bool gp_stream_watched(void)
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

void gp_stream_syncing_begin(void)
{
    __atomic_fetch_add(&x_syncing, 1, __ATOMIC_SEQ_CST);
}

void gp_stream_syncing_end(void)
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
    while (at < GP_STREAMS && streams[at].x_handle)
        at++;
    if (at < GP_STREAMS) {
        streams[at].served = (uint8_t)gp_served_index(served);
        streams[at].non_blocking = flags & GP_CU_STREAM_NONBLOCK;
        /* [stream.R] release: the fields above; pairs with [stream.A]. */
        __atomic_store_n(&streams[at].x_handle, stream, __ATOMIC_RELEASE);
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
        if (__atomic_load_n(&streams[i].x_handle, __ATOMIC_ACQUIRE) == handle)
            return &streams[i];
    return NULL;
}

bool gp_stream_next(const struct gp_served_context *served, unsigned *at, void **stream)
{
    uint32_t high = __atomic_load_n(&x_stream_high, __ATOMIC_ACQUIRE);
    for (; *at < high; (*at)++) {
        const struct gp_stream *s = &streams[*at];
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
    if (!gp_stream_watched())
        return true;
    const struct gp_stream *known = stream_find((void *)(uintptr_t)stream);
    return known && known->served == gp_served_index(served);
}

/* The legacy stream waits for blocking streams.  CUDA does not say whether it waits for destroyed ones too, so their
 * work goes into the gather stream. */
static void stream_keep_work(struct gp_served_context *served, void *stream)
{
    struct gp_driver_guard guard;
    int status;
    if (!gp_served_is_live(served) || !gp_served_cache(served) || !gp_driver_enter(&guard, served->x_ctx))
        return; /* no cached memory, so no fence will wait for this work */
    if (gp_driver_capturing(stream, &status) == 0 && status == 0 &&
        gp_driver_real.cuStreamQuery(stream) == GP_BACKEND_BUSY && gp_gather_keep(served, stream) != 0)
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

void gp_stream_forget(struct gp_served_context *served)
{
    uint32_t high = __atomic_load_n(&x_stream_high, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < high; i++)
        if (streams[i].served == gp_served_index(served))
            __atomic_store_n(&streams[i].x_handle, NULL, __ATOMIC_RELEASE);
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
    if (gp_stream_watched())
        return; /* the hooks see captures themselves */
    if (delta > 0)
        fencing_block();
    else
        fencing_unblock();
}
