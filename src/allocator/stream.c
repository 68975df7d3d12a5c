/* SPDX-License-Identifier: MIT
 * stream.c: which streams there are and which captures are under way; see fence.h for the rules. */
#include "allocator/stream.h"
#include "allocator/driver.h"
#include "allocator/fence.h"
#include "allocator/served.h"
#include "base/compiler.h"
#include "base/pause.h"
#include "base/thread.h"
#include "cache/cache.h"

/* Programs have tens, a server with a pool for each model some hundreds; beyond, the context is waited for. */
#define GP_STREAMS  2048
#define GP_CAPTURES 64

struct gp_stream {
    void *x_handle; /* NULL: a hole */
    uint8_t served;
    bool non_blocking;
};

struct gp_capture {
    void *stream;
    const struct gp_thread *thread; /* handles may mean each thread's own stream */
    uint8_t served;
    bool used;
};

static struct gp_stream streams[GP_STREAMS];
static uint32_t x_stream_high;
static struct gp_capture captures[GP_CAPTURES];
static uint32_t x_captures;  /* under way */
static uint32_t x_closed;    /* who keeps the door closed */
static uint32_t x_recording; /* who is inside */
static uint32_t x_watched;

void gp_fence_watch(void)
{
    __atomic_store_n(&x_watched, 1, __ATOMIC_RELEASE);
}

bool gp_stream_watched(void)
{
    return __atomic_load_n(&x_watched, __ATOMIC_ACQUIRE);
}

/* ---- the door ---------------------------------------------------------------------------------------------------- */

bool gp_door_enter(void)
{
    /* [door.B] our count, then theirs; door_close the other way round. */
    __atomic_fetch_add(&x_recording, 1, __ATOMIC_SEQ_CST);
    if (GP_LIKELY(__atomic_load_n(&x_closed, __ATOMIC_SEQ_CST) == 0))
        return true;
    gp_door_leave();
    return false;
}

void gp_door_leave(void)
{
    /* [door.R] release: the handles are not used any more; pairs with [door.A]. */
    __atomic_fetch_sub(&x_recording, 1, __ATOMIC_RELEASE);
}

/* Recorders are inside for some microseconds and never wait for a stream's work while watched. */
static void door_close(void)
{
    __atomic_fetch_add(&x_closed, 1, __ATOMIC_SEQ_CST); /* pairs with [door.B] */
    /* [door.A] acquire and more, for [door.B]'s sake; pairs with [door.R]. */
    for (unsigned spins = 0; __atomic_load_n(&x_recording, __ATOMIC_SEQ_CST) != 0; spins++)
        gp_pause(spins);
}

static void door_open(void)
{
    __atomic_fetch_sub(&x_closed, 1, __ATOMIC_RELEASE);
}

static void capture_over(void)
{
    __atomic_fetch_sub(&x_captures, 1, __ATOMIC_RELAXED);
    door_open();
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

void gp_stream_born(struct gp_served_context *served, void *stream, unsigned flags)
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
        __atomic_fetch_add(&served->x_doubts, 1, __ATOMIC_RELAXED); /* a flag that only rises */
}

void gp_stream_doubt(int device)
{
    for (unsigned i = 0; i < gp_served_count(); i++)
        if (device < 0 || gp_served_contexts[i].device == device)
            __atomic_fetch_add(&gp_served_contexts[i].x_doubts, 1, __ATOMIC_RELAXED);
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

/* The legacy stream waits for blocking streams, but whether for those that are destroyed, nobody says. */
static void stream_bequeath(struct gp_served_context *served, void *stream)
{
    struct gp_driver_guard guard;
    int status = 0;
    if (!gp_served_lives(served) || !gp_served_has(served) || !gp_driver_enter(&guard, served->x_ctx))
        return; /* no cached memory, nobody to wait for it */
    if (gp_driver_real.cuStreamIsCapturing(stream, &status) == 0 && status == 0 &&
        gp_driver_real.cuStreamQuery(stream) == GP_BACKEND_BUSY && gp_gather_leave(served, stream) != 0)
        __atomic_fetch_add(&served->x_doubts, 1, __ATOMIC_RELAXED);
    gp_driver_leave(&guard);
}

void gp_stream_dying(void *stream)
{
    struct gp_stream *known = stream_find(stream);
    gp_capture_ended(stream);
    if (!known)
        return;
    stream_bequeath(&gp_served_contexts[known->served], stream);
    __atomic_store_n(&known->x_handle, NULL, __ATOMIC_RELEASE);
    door_close(); /* a recorder may have read the handle before */
    door_open();
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
        capture_over();
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

bool gp_capture_under_way(void)
{
    return __atomic_load_n(&x_captures, __ATOMIC_RELAXED) != 0;
}

void gp_capture_begin(void)
{
    __atomic_fetch_add(&x_captures, 1, __ATOMIC_RELAXED); /* the door has the order */
    door_close();
}

void gp_capture_began(void *stream, bool ok)
{
    const struct gp_stream *known = stream_find(stream);
    struct gp_served_context *served = known ? NULL : gp_served_of(gp_driver_current());
    unsigned at = 0;
    if (!ok) {
        capture_over();
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
    if (at == GP_CAPTURES) /* never seen: 64 at once.  Without its end we would believe in it for ever. */
        capture_over();
}

void gp_capture_ended(void *stream)
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
        capture_over();
}

void gp_capture_announce(int delta)
{
    if (gp_stream_watched())
        return; /* seen with our own eyes */
    if (delta > 0)
        door_close();
    else
        door_open();
}
