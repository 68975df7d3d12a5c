/* SPDX-License-Identifier: MIT
 *
 * batch.c: see batch.h and docs/batches.md.  Called by the drain thread, at exit by the thread that ends the program,
 * and, for the one word that says whether there is work, by every thread that has an event.  Nothing here waits for
 * who listens: a probe is a trap that returns, whatever its program does.
 *
 * Compiled without a red zone (Makefile): Linux 6.18 calls its trampoline through the program's stack where a probe's
 * instruction allows it, and what a leaf function keeps below the stack pointer would be overwritten.
 */
#include "session/batch.h"
#include "account/tap.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/lock.h"
#include "base/testpoint.h"
#include "base/thread.h"
#include "record/ringread.h"
#include <gpuprof/batch.h>
#include <stddef.h>
#include <string.h>

#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

uint16_t gpuprof_batch_semaphore __attribute__((section(".probes"), used, visibility("hidden")));

/* Between two rounds while events come.  The session's ring holds 32 256 of them, 16 ms at two million a second: a
 * round that finds an eighth of it comes back sooner, a full one at once. */
#define GP_BATCH_PAUSE_NS 4000000ull
#define GP_BATCH_BUSY_NS  1000000ull
/* No event for so long: the thread goes to sleep.  Waking it is a system call of the program's thread, so it should be
 * rare in a program that allocates in every step. */
#define GP_BATCH_SILENCE_NS 100000000ull
/* A thread of the program that looks at x_state just before it says ASLEEP has its event in the ring long before this
 * is over: a store becomes visible within microseconds.  The alternatives are a full barrier in every event or a
 * membarrier, which a program's seccomp filter may forbid at the price of its life. */
#define GP_BATCH_SETTLE_NS 2000000ull
/* A device of which the driver has not said yet who it is (its poll may take a while behind a long call) is asked
 * about again before the thread sleeps for ever. */
#define GP_BATCH_ASKS 50
/* The kernel wakes nobody when the last listener goes.  While somebody listened the sleeping thread looks this often:
 * rare enough for an idle machine, and what a listener leaves behind (the watch, the reader's memory, events that are
 * nobody's but would count as lost) is gone before the next one is likely to come. */
#define GP_BATCH_LOOK_NS 10000000000ull
/* Rings up to the ordinary one's size are read from their oldest event. */
#define GP_BATCH_CHUNKS 512u

enum gp_batch_state {
    GP_BATCH_ASLEEP, /* the thread sleeps: who has an event rings the bell */
    GP_BATCH_QUIET,  /* it will look by itself; nothing has come since the last round */
    GP_BATCH_HEARD,  /* something has */
};

static struct gp_session *x_batch_session; /* set once */
static struct gp_lock batch_lock = GP_LOCK_INIT(GP_RANK_BATCH);

static GP_ALIGNED_LINE uint32_t x_state; /* enum gp_batch_state */
static GP_ALIGNED_LINE uint64_t x_since_ns =
    UINT64_MAX;                            /* the first event that somebody listens to; 0: he is being told ... */
static uint64_t x_since_made = UINT64_MAX; /* ... and how many were made before it */

static struct { /* under the lock: the highest that was said of a device without a uuid */
    int64_t allocated, reserved;
} gp_batch_said[GP_WIRE_GPUS];

static struct {                 /* under the lock */
    struct gp_ringread *reader; /* NULL: nobody listened, or no memory for it */
    bool ended, listening;
    bool unknown;      /* a device that was told of had no uuid */
    uint64_t since_ns; /* earlier events are not for this reader */
    uint64_t told_ns;  /* up to here earlier readers were given what there was */
    uint64_t skipped;  /* that it had */
    uint64_t base;     /* events that were made before somebody listened, those included that the ring dropped */
    uint64_t lost;     /* with earlier readers */
    bool fresh;
    uint64_t last_ns;  /* of the last round that found something */
    uint32_t settling; /* rounds of saying good night */
} gp_batching;

/* The probe's argument: in one place, which is never anything else.  The program at the probe cannot fault a page in:
 * the part that is read whole (header and rows) lies in the page of the header, and events only where some were
 * written. */
#define GP_BATCH_PAGE 4096
_Static_assert(offsetof(struct gp_batch, events) <= GP_BATCH_PAGE, "rows that were never written are read too");
static _Alignas(GP_BATCH_PAGE) struct gp_batch batch_out;

static bool batch_armed(void)
{
    return __atomic_load_n(&gpuprof_batch_semaphore, __ATOMIC_RELAXED);
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

/* Since when somebody listens, in case he is new.  Before the event is written: of the threads that come at once the
 * first to write has counted none of theirs, and the least of all counts is taken. */
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
    /* [batch.R] release: since when; pairs with [batch.A].  Whoever finds ASLEEP, alone, rings.  The session after it:
     * if there is none yet, the thread that it is made for finds HEARD when it first looks. */
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
    /* The event before the look: the compiler may not turn them round.  For the processor see GP_BATCH_SETTLE_NS. */
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

/* The ring is ours; words of it change while we look. */
static int batch_copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    const uint64_t *from = (const uint64_t *)(const void *)((const char *)arg + offset);
    uint64_t *to = into;
    /* [ring.A1] [ring.A2] [ring.A3] acquire; pairs with the releases of who wrote the words. */
    for (size_t i = 0; i < bytes / sizeof(*to); i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
    return 0;
}

static uint64_t batch_ring_full(void)
{
    return __atomic_load_n(&batch_session()->header->lost[GP_LOST_RING], __ATOMIC_RELAXED);
}

/* Somebody listens who did not before. */
static void batch_open(void)
{
    const struct gp_session *session = batch_session();
    /* Before the exchanges: an event that comes after them says nothing of itself any more, and belongs to this
     * reader. */
    uint64_t made_now = gp_tap_events(), now = gp_clock_ns();
    GP_TESTPOINT("batch.open");
    /* [batch.A] of the caller: since when. */
    uint64_t since = __atomic_exchange_n(&x_since_ns, 0, __ATOMIC_ACQ_REL);
    GP_TESTPOINT("batch.since");
    uint64_t made = __atomic_exchange_n(&x_since_made, UINT64_MAX, __ATOMIC_ACQUIRE);
    GP_TESTPOINT("batch.opened");
    gp_tap_batch_begin();
    gp_batching.listening = gp_batching.fresh = true;
    gp_batching.since_ns = since == UINT64_MAX ? now : since;
    /* Whoever said since when may have taken the time of his event while the last listener was still there. */
    if (gp_batching.since_ns <= gp_batching.told_ns)
        gp_batching.since_ns = gp_batching.told_ns + 1;
    gp_batching.base = made < made_now ? made : made_now;
    gp_batching.skipped = 0;
    /* The event that woke us is in the ring already.  In a recorder's ring of 32 MiB what came before it would be
     * copied for nothing: there the reader begins with what comes next, and the few events in between count as lost. */
    bool oldest = since != UINT64_MAX && session->chunk_count <= GP_BATCH_CHUNKS;
    /* Without a reader the numbers go out all the same, and every event counts as lost. */
    if (gp_ringread_new(&gp_batching.reader, batch_copy, session->chunks, session->chunk_count,
                        oldest ? GP_RINGREAD_OLDEST : GP_RINGREAD_NOW) != 0)
        gp_batching.reader = NULL;
}

/* Events that were made since somebody listened and that no batch carried, not counting those that the reader holds. */
static uint64_t batch_lost(void)
{
    struct gp_ringread_stats stats = {0};
    uint64_t missed;
    if (gp_batching.reader) {
        gp_ringread_stats(gp_batching.reader, &stats);
        missed = stats.before + gp_batching.skipped + stats.overwritten + stats.damaged + batch_ring_full();
        /* Events of threads that had not seen the listener yet when the first that had took its count. */
        if (gp_batching.fresh && missed < gp_batching.base)
            gp_batching.base = missed;
    } else {
        missed = gp_tap_events();
    }
    return gp_batching.lost + (missed > gp_batching.base ? missed - gp_batching.base : 0);
}

/* Nobody listens any more: what comes until somebody does again is not lost, but nobody's. */
static uint64_t batch_close(void)
{
    if (gp_batching.listening)
        gp_batching.lost = batch_lost();
    gp_ringread_free(gp_batching.reader);
    gp_batching.reader = NULL;
    gp_batching.listening = gp_batching.unknown = false;
    gp_batching.settling = 0;
    memset(gp_batch_said, 0, sizeof(gp_batch_said)); /* a peak of then is not the next listener's */
    gp_tap_batch_end();
    /* A thread that still saw HEARD does not ring for its event; the next one does, or the listener, who asks every
     * process when it comes.  ASLEEP first: a thread that took the old listener for a new one says since when after the
     * stores below, so it finds ASLEEP, and this runs again.  Else its time would be taken for the next one's. */
    GP_TESTPOINT("batch.close");
    __atomic_store_n(&x_state, GP_BATCH_ASLEEP, __ATOMIC_SEQ_CST);
    GP_TESTPOINT("batch.asleep");
    __atomic_store_n(&x_since_ns, UINT64_MAX, __ATOMIC_SEQ_CST);
    __atomic_store_n(&x_since_made, UINT64_MAX, __ATOMIC_SEQ_CST);
    if (!batch_armed() || gp_batching.ended)
        return UINT64_MAX;
    /* Somebody came meanwhile, and an event may have said so in the word that was just overwritten. */
    __atomic_store_n(&x_state, GP_BATCH_HEARD, __ATOMIC_RELEASE);
    return 0;
}

/* ---- a round: where every device stands, and what happened ------------------------------------------------------ */

/* Who listens may have nowhere to book the high-water of a device that has no name yet: it is said again until the
 * device has one. */
static void batch_unnamed(unsigned index, struct gp_batch_device *row)
{
    int64_t *allocated = &gp_batch_said[index].allocated, *reserved = &gp_batch_said[index].reserved;
    if (row->allocated_high_bytes < *allocated)
        row->allocated_high_bytes = *allocated;
    if (row->reserved_high_bytes < *reserved)
        row->reserved_high_bytes = *reserved;
    bool named = row->flags & GP_DEVICE_IDENTIFIED;
    *allocated = named ? 0 : row->allocated_high_bytes;
    *reserved = named ? 0 : row->reserved_high_bytes;
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

/* Events of before somebody listened, which a reader that began with the oldest has too; later, those that were
 * stamped before and written after.  They are ordered by time. */
static ssize_t batch_skip(const struct gp_wire_event *events, ssize_t count)
{
    ssize_t skip = 0;
    while (skip < count && events[skip].time_ns < gp_batching.since_ns)
        skip++;
    gp_batching.skipped += (uint64_t)skip;
    return skip;
}

/* Number of new events.  The numbers are taken after the events, so they are never older than the events beside
 * them. */
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
    /* QUIET before the round: what comes from here on is said again. */
    __atomic_exchange_n(&x_state, GP_BATCH_QUIET, __ATOMIC_ACQ_REL); /* [batch.A] pairs with [batch.R] */
    GP_TESTPOINT("batch.quiet");
    size_t count = batch_round(0);
    gp_batching.settling = 0;
    gp_batching.last_ns = now;
    if (batch_held())
        __atomic_store_n(&x_state, GP_BATCH_HEARD, __ATOMIC_RELAXED);
    return count > room / 4 ? 0 : count > room / 8 ? GP_BATCH_BUSY_NS : GP_BATCH_PAUSE_NS;
}

/* Nothing has come since the last round. */
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

/* From here on who has an event rings.  One more round: for an event that was on its way (GP_BATCH_SETTLE_NS), and for
 * what the poller has learned since the last one. */
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
        else if (new) /* else the thread may be in the middle of it */
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
    /* The thread looks at once: whoever listens may be gone by then, and the watch would stay. */
    gp_batch_coming(gp_clock_ns());
    __atomic_store_n(&x_state, GP_BATCH_HEARD, __ATOMIC_RELAXED);
}
