/* SPDX-License-Identifier: MIT
 *
 * batch.c: see batch.h and docs/understand/batches.md.  Called by the drain thread, by the thread
 * that ends the program, and by every thread with an event, which reads the one word that says
 * whether there is work.  It never waits for a listener: a probe is a trap that returns, whatever
 * its BPF program does.
 *
 * Compiled without a red zone (Makefile): where a probe's instruction allows it, Linux 6.18 calls
 * its trampoline through the program's stack, which would overwrite the data of a leaf function
 * below the stack pointer.
 */
#include "session/batch.h"
#include "account/tap.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/futex.h"
#include "base/kept.h"
#include "base/lock.h"
#include "base/thread.h"
#include "base/valgrind.h"
#include "record/ringread.h"
#include "session/session.h"
#include <gpuprof/batch.h>
#include <gpuprof/wire.h>
#include <stddef.h>
#include <string.h>

#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

uint16_t gpuprof_batch_semaphore __attribute__((section(".probes"), used, visibility("hidden")));
GP_KEEP(gpuprof_batch_semaphore); /* the kernel counts listeners in it */

/* Pause between two rounds while there are events.  The session's ring holds 32 256, which is 16 ms
 * at two million per second.  After a round that found an eighth of the ring the pause is shorter,
 * after a full one there is none. */
#define GP_BATCH_PAUSE_NS 4000000ull
#define GP_BATCH_BUSY_NS  1000000ull
/* After this time without an event the thread goes to sleep.  Waking it costs a thread of the
 * program a system call, so it should be rare in a program that allocates in every step. */
#define GP_BATCH_SILENCE_NS 100000000ull
/* A thread that reads x_state just before it becomes ASLEEP has its event in the ring long before
 * this time is over: a store becomes visible within microseconds.  The alternatives are a full
 * barrier in every event, or a membarrier, for which a seccomp filter may kill the program. */
#define GP_BATCH_SETTLE_NS 2000000ull
/* The driver may not have reported the identity of a device yet (the poll may wait behind a long
 * call).  It is asked again before the thread sleeps without a limit. */
#define GP_BATCH_ASKS 50
/* The kernel does not wake the thread when the last listener goes, so it checks this often while
 * there was one.  That is rare enough for an idle machine, and the state of a listener that went
 * (the watch, the reader's memory, events that would count as lost) is released before the next one
 * is likely to come. */
#define GP_BATCH_LOOK_NS 10000000000ull
/* Rings up to the ordinary one's size are read from their oldest event. */
#define GP_BATCH_CHUNKS 512u

enum gp_batch_state {
    GP_BATCH_ASLEEP, /* the thread sleeps: a thread with an event rings the bell */
    GP_BATCH_QUIET,  /* it will look by itself; no event since the last round */
    GP_BATCH_HEARD,  /* it will look by itself; there are events */
};

static struct gp_session *x_batch_session; /* set once */
static struct gp_lock batch_lock = GP_LOCK_INIT(GP_RANK_BATCH);

static GP_ALIGNED_LINE uint32_t x_state; /* enum gp_batch_state */
static GP_ALIGNED_LINE uint64_t x_since_ns =
    UINT64_MAX;                            /* time of the first event for a new listener; 0: none is new */
static uint64_t x_since_made = UINT64_MAX; /* the number of events before it */

static struct { /* under the lock: the highest peak sent for a device without a uuid */
    int64_t allocated, reserved, asleep;
} gp_batch_said[GP_WIRE_GPUS];

static struct {                 /* under the lock */
    struct gp_ringread *reader; /* NULL: no listener yet, or no memory for it */
    bool ended, listening;
    bool unknown;      /* a device in a batch had no uuid */
    uint64_t since_ns; /* earlier events are not for this reader */
    uint64_t told_ns;  /* earlier readers were given the events up to here */
    uint64_t skipped;  /* events that this reader had */
    uint64_t base;     /* events from before the first listener, including those that the ring dropped */
    uint64_t lost;     /* events lost with earlier readers */
    bool fresh;
    uint64_t last_ns;  /* of the last round that found an event */
    uint32_t settling; /* rounds of going to sleep */
} gp_batching;

/* The probe's argument, always at the same place.  The BPF program cannot fault a page in: the part
 * that it reads completely (header and rows) lies in the page of the header, and events only where
 * some were written. */
#define GP_BATCH_PAGE 4096
_Static_assert(offsetof(struct gp_batch, events) <= GP_BATCH_PAGE, "rows that were never written are read too");
static _Alignas(GP_BATCH_PAGE) struct gp_batch batch_out;

static bool batch_armed(void)
{
    return __atomic_load_n(&gpuprof_batch_semaphore, __ATOMIC_RELAXED) && !gp_on_valgrind();
}

const uint16_t *gp_batch_armed_word(void)
{
    static const uint16_t never;
    return gp_on_valgrind() ? &never : &gpuprof_batch_semaphore;
}

bool gp_batch_withheld(void)
{
    return __atomic_load_n(&gpuprof_batch_semaphore, __ATOMIC_RELAXED) && gp_on_valgrind();
}

/* ---- the program's threads ------------------------------------------------------------------------------------- */

static struct gp_session *batch_session(void)
{
    return __atomic_load_n(&x_batch_session, __ATOMIC_ACQUIRE); /* [batchsession.A] pairs with [batchsession.R] */
}

static void batch_least(uint64_t *word, uint64_t value)
{
    uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (value < seen && !__atomic_compare_exchange_n(word, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* Notes the time and the event count at which a new listener starts.  It runs before the event is
 * written: of several threads at once, the first to write has counted no event of the others, and
 * the smallest count is taken. */
static GP_COLD void batch_since(uint64_t time_ns)
{
    batch_least(&x_since_made, gp_tap_events());
    GP_TESTPOINT("batch.made");
    batch_least(&x_since_ns, time_ns);
}

void gp_batch_coming(uint64_t time_ns)
{
    GP_TESTPOINT("batch.coming");
    if (GP_UNLIKELY(time_ns < __atomic_load_n(&x_since_ns, __ATOMIC_RELAXED)))
        batch_since(time_ns);
}

static GP_COLD void batch_wake(void)
{
    /* [batch.R] release: the start of the listener; pairs with [batch.A].  Only the thread that
     * finds ASLEEP rings. The session is read after it: if there is none yet, its drain thread
     * finds HEARD when it first looks. */
    if (__atomic_exchange_n(&x_state, GP_BATCH_HEARD, __ATOMIC_ACQ_REL) != GP_BATCH_ASLEEP)
        return;
    GP_TESTPOINT("batch.wake");
    struct gp_session *session = batch_session();
    if (!session)
        return;
    __atomic_fetch_add(&session->mailbox->doorbell, 1, __ATOMIC_RELEASE);
    gp_futex_wake(&session->mailbox->doorbell);
}

void gp_batch_heard(void)
{
    /* The event before the look: the compiler must not reorder them.  For the processor see
     * GP_BATCH_SETTLE_NS. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (GP_UNLIKELY(__atomic_load_n(&x_state, __ATOMIC_RELAXED) != GP_BATCH_HEARD))
        batch_wake();
}

/* ---- firing ---------------------------------------------------------------------------------------------------- */

static __attribute__((noinline)) void batch_probe(const struct gp_batch *batch, uint64_t bytes)
{
    STAP_PROBE2(gpuprof, batch, batch, bytes);
}

static void batch_fire(uint32_t flags)
{
    struct gp_batch *out = &batch_out;
    out->seq++;
    out->flags = flags;
    out->time_ns = gp_clock_ns();
    out->bytes = (uint32_t)(offsetof(struct gp_batch, events) + out->event_count * sizeof(out->events[0]));
    batch_probe(out, out->bytes);
    out->device_count = out->event_count = 0;
}

/* ---- the events ------------------------------------------------------------------------------------------------ */

/* The ring is ours; its words change while it is read. */
static int batch_copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    const uint64_t *from = (const uint64_t *)(const void *)((const char *)arg + offset);
    uint64_t *to = into;
    /* [ring.A1] [ring.A2] [ring.A3] acquire; pairs with the releases of the threads that wrote the
     * words. */
    for (size_t i = 0; i < bytes / sizeof(*to); i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
    return 0;
}

static uint64_t batch_ring_full(void)
{
    return __atomic_load_n(&batch_session()->header->lost[GP_LOST_RING], __ATOMIC_RELAXED);
}

/* A new listener. */
static void batch_open(void)
{
    const struct gp_session *session = batch_session();
    /* Before the exchanges: an event after them does not note its time any more, and belongs to
     * this reader. */
    uint64_t made_now = gp_tap_events(), now = gp_clock_ns();
    GP_TESTPOINT("batch.open");
    /* [batch.A] of the caller: the start of the listener. */
    uint64_t since = __atomic_exchange_n(&x_since_ns, 0, __ATOMIC_ACQ_REL);
    GP_TESTPOINT("batch.since");
    uint64_t made = __atomic_exchange_n(&x_since_made, UINT64_MAX, __ATOMIC_ACQUIRE);
    GP_TESTPOINT("batch.opened");
    gp_tap_batch_begin();
    gp_batching.listening = gp_batching.fresh = true;
    gp_batching.since_ns = since == UINT64_MAX ? now : since;
    /* The thread that noted the start may have taken the time of its event while the last listener
     * was still there. */
    if (gp_batching.since_ns <= gp_batching.told_ns)
        gp_batching.since_ns = gp_batching.told_ns + 1;
    gp_batching.base = made < made_now ? made : made_now;
    gp_batching.skipped = 0;
    /* The event that woke this thread is in the ring already.  In a recorder's ring of 32 MiB the
     * events before it would be copied for nothing: there the reader starts with the next event,
     * and the few before it count as lost. */
    bool oldest = since != UINT64_MAX && session->chunk_count <= GP_BATCH_CHUNKS;
    /* Without a reader the numbers are still sent, and every event counts as lost. */
    if (gp_ringread_new(&gp_batching.reader, batch_copy, session->chunks, session->chunk_count,
                        oldest ? GP_RINGREAD_OLDEST : GP_RINGREAD_NOW) != 0)
        gp_batching.reader = NULL;
}

/* Events since the first listener that no batch carried, without those that the reader holds. */
static uint64_t batch_lost(void)
{
    struct gp_ringread_stats stats = {0};
    uint64_t missed;
    if (gp_batching.reader) {
        gp_ringread_stats(gp_batching.reader, &stats);
        missed = stats.before + gp_batching.skipped + stats.overwritten + stats.damaged + batch_ring_full();
        /* Events of threads that had not seen the listener when the first thread that had seen it
         * took its count. */
        if (gp_batching.fresh && missed < gp_batching.base)
            gp_batching.base = missed;
    } else {
        missed = gp_tap_events();
    }
    return gp_batching.lost + (missed > gp_batching.base ? missed - gp_batching.base : 0);
}

/* The last listener has gone: events until the next one belong to no listener and are not lost. */
static uint64_t batch_close(void)
{
    if (gp_batching.listening)
        gp_batching.lost = batch_lost();
    gp_ringread_free(gp_batching.reader);
    gp_batching.reader = NULL;
    gp_batching.listening = gp_batching.unknown = false;
    gp_batching.settling = 0;
    memset(gp_batch_said, 0, sizeof(gp_batch_said)); /* a peak from before is not for the next listener */
    gp_tap_batch_end();
    /* A thread that still saw HEARD does not ring for its event; the next event rings, or the
     * listener, which asks every process when it starts.  ASLEEP first: a thread that took the old
     * listener for a new one notes its time after the stores below, so it finds ASLEEP, and this
     * runs again.  Otherwise its time would be used for the next listener. */
    GP_TESTPOINT("batch.close");
    __atomic_store_n(&x_state, GP_BATCH_ASLEEP, __ATOMIC_SEQ_CST);
    GP_TESTPOINT("batch.asleep");
    __atomic_store_n(&x_since_ns, UINT64_MAX, __ATOMIC_SEQ_CST);
    __atomic_store_n(&x_since_made, UINT64_MAX, __ATOMIC_SEQ_CST);
    if (!batch_armed() || gp_batching.ended)
        return UINT64_MAX;
    /* A listener came meanwhile, and an event may have noted it in the word that was just
     * overwritten. */
    __atomic_store_n(&x_state, GP_BATCH_HEARD, __ATOMIC_RELEASE);
    return 0;
}

/* ---- a round: where every device stands, and what happened ------------------------------------------------------ */

/* A listener cannot store the peak of a device without a uuid, so it is sent again until the device
 * has one. */
static void batch_repeat(int64_t *high, int64_t *said, bool named)
{
    if (*high < *said)
        *high = *said;
    *said = named ? 0 : *high;
}

static void batch_unnamed(unsigned index, struct gp_batch_device *row)
{
    bool named = row->flags & GP_DEVICE_IDENTIFIED;
    batch_repeat(&row->allocated_high_bytes, &gp_batch_said[index].allocated, named);
    batch_repeat(&row->reserved_high_bytes, &gp_batch_said[index].reserved, named);
    batch_repeat(&row->asleep_high_bytes, &gp_batch_said[index].asleep, named);
    gp_batching.unknown |= !named;
}

static void batch_devices(void)
{
    struct gp_batch *out = &batch_out;
    gp_batching.unknown = false;
    for (unsigned i = 0; i < GP_WIRE_GPUS; i++) {
        if (!gp_tap_batch(i, &out->devices[out->device_count]))
            continue;
        batch_unnamed(i, &out->devices[out->device_count]);
        if (++out->device_count == GP_BATCH_DEVICES)
            batch_fire(0);
    }
}

static void batch_event(const struct gp_wire_event *event)
{
    struct gp_batch *out = &batch_out;
    if (out->event_count == GP_BATCH_EVENTS)
        batch_fire(0);
    out->events[out->event_count++] = *event;
}

/* Skips events from before the listener: a reader that started with the oldest event has them, and
 * later ones may have been stamped before and written after.  Events are ordered by time. */
static ssize_t batch_skip(const struct gp_wire_event *events, ssize_t count)
{
    ssize_t skip = 0;
    while (skip < count && events[skip].time_ns < gp_batching.since_ns)
        skip++;
    gp_batching.skipped += (uint64_t)skip;
    return skip;
}

/* Returns the number of new events.  The counters are read after the events, so they are never
 * older than the events of the same batch. */
static size_t batch_round(uint32_t flags)
{
    struct gp_batch *out = &batch_out;
    const struct gp_wire_event *events = NULL;
    ssize_t count = 0;
    if (!gp_batching.listening)
        batch_open();
    uint64_t now = gp_clock_ns(), horizon = flags & GP_BATCH_LAST ? UINT64_MAX : now;
    if (gp_batching.reader)
        count = gp_ringread_poll(gp_batching.reader, horizon, &events);
    batch_devices();
    ssize_t first = batch_skip(events, count);
    out->lost = batch_lost();
    gp_batching.fresh = false;
    gp_batching.told_ns = now;
    for (ssize_t i = first; i < count; i++)
        batch_event(&events[i]);
    batch_fire(flags);
    return count > 0 ? (size_t)count : 0;
}

static bool batch_held(void)
{
    struct gp_ringread_stats stats = {0};
    if (gp_batching.reader)
        gp_ringread_stats(gp_batching.reader, &stats);
    return stats.held || stats.unsettled;
}

/* ---- when ------------------------------------------------------------------------------------------------------- */

static uint64_t batch_awake(uint64_t now)
{
    size_t room = (size_t)batch_session()->chunk_count * GP_RING_EVENTS;
    /* QUIET before the round: events from here on set the state again. */
    __atomic_exchange_n(&x_state, GP_BATCH_QUIET, __ATOMIC_ACQ_REL); /* [batch.A] pairs with [batch.R] */
    GP_TESTPOINT("batch.quiet");
    size_t count = batch_round(0);
    gp_batching.settling = 0;
    gp_batching.last_ns = now;
    if (batch_held())
        __atomic_store_n(&x_state, GP_BATCH_HEARD, __ATOMIC_RELAXED);
    return count > room / 4 ? 0 : count > room / 8 ? GP_BATCH_BUSY_NS : GP_BATCH_PAUSE_NS;
}

/* No event since the last round. */
static uint64_t batch_silent(uint64_t now)
{
    uint32_t quiet = GP_BATCH_QUIET;
    if (now - gp_batching.last_ns < GP_BATCH_SILENCE_NS)
        return GP_BATCH_SILENCE_NS - (now - gp_batching.last_ns) < GP_BATCH_PAUSE_NS
                   ? GP_BATCH_SILENCE_NS - (now - gp_batching.last_ns)
                   : GP_BATCH_PAUSE_NS;
    return __atomic_compare_exchange_n(&x_state, &quiet, GP_BATCH_ASLEEP, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)
               ? GP_BATCH_SETTLE_NS
               : 0;
}

/* From here on, a thread that writes an event wakes this one.  One more round follows, for an event
 * that was being written (GP_BATCH_SETTLE_NS) and for news of the poller. */
static uint64_t batch_settle(void)
{
    batch_round(0);
    gp_batching.settling++;
    if (batch_held())
        return GP_BATCH_SETTLE_NS;
    if (gp_batching.unknown && gp_batching.settling < GP_BATCH_ASKS)
        return GP_BATCH_SILENCE_NS;
    gp_batching.settling = GP_BATCH_ASKS;
    return GP_BATCH_LOOK_NS;
}

static uint64_t batch_next(void)
{
    uint64_t now = gp_clock_ns();
    switch (__atomic_load_n(&x_state, __ATOMIC_ACQUIRE)) {
    case GP_BATCH_HEARD:
        return batch_awake(now);
    case GP_BATCH_QUIET:
        return batch_silent(now);
    default:
        if (!gp_batching.listening)
            return UINT64_MAX;
        return gp_batching.settling < GP_BATCH_ASKS ? batch_settle() : GP_BATCH_LOOK_NS;
    }
}

uint64_t gp_batch_work(void)
{
    uint64_t pause = UINT64_MAX;
    gp_lock_take(&batch_lock);
    if (!gp_batching.ended && batch_armed())
        pause = batch_next();
    else if (gp_batching.listening || __atomic_load_n(&x_state, __ATOMIC_RELAXED) != GP_BATCH_ASLEEP)
        pause = batch_close();
    gp_lock_give(&batch_lock);
    return pause;
}

void gp_batch_tell(void)
{
    gp_lock_take(&batch_lock);
    if (!gp_batching.ended && batch_armed()) {
        bool new = !gp_batching.listening;
        batch_round(0);
        if (batch_held() || gp_batching.unknown)
            gp_batching.settling = 0;
        else if (new) /* otherwise the thread may be in the middle of a round */
            gp_batching.settling = GP_BATCH_ASKS;
    }
    gp_lock_give(&batch_lock);
}

void gp_batch_last(void)
{
    gp_lock_take(&batch_lock);
    if (!gp_batching.ended && batch_armed())
        batch_round(GP_BATCH_LAST);
    gp_batching.ended = true;
    if (gp_batching.listening)
        batch_close(); /* the next life begins without the address of the reader */
    gp_lock_give(&batch_lock);
}

void gp_batch_start(struct gp_session *session)
{
    struct gp_batch *out = &batch_out;
    out->magic = GP_BATCH_MAGIC;
    out->abi = GP_BATCH_ABI;
    memcpy(out->session_id, session->header->session_id, sizeof(out->session_id));
    /* [batchsession.R] release: the session; pairs with [batchsession.A]. */
    __atomic_store_n(&x_batch_session, session, __ATOMIC_RELEASE);
    if (!batch_armed())
        return;
    gp_tap_batch_begin();
    /* The thread looks at once: otherwise the listener might go before, and the watch would stay. */
    gp_batch_coming(gp_clock_ns());
    __atomic_store_n(&x_state, GP_BATCH_HEARD, __ATOMIC_RELAXED);
}
