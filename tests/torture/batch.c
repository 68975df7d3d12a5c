/* SPDX-License-Identifier: MIT
 *
 * batch.c: threads make events while listeners start and stop. Run by hand and by `make check`;
 * usage: batch [seconds] [seed].
 *
 * The code under test is compiled in here with its probe replaced by a function, so no kernel is
 * needed and every batch is seen. The oracle: no event arrives twice; the numbers of batches
 * have no gap; `lost` never falls; while a listener is present all the time, carried + lost =
 * made up to the last event; after the last listener stops, the watch and the reader's memory
 * are released; and after all of it a single event is still reported at once, so no wake-up was
 * missed.
 */
#define _SDT_HAS_SEMAPHORES 1
#include "session/batch.h"
#include <sys/sdt.h>
#undef STAP_PROBE2
#define STAP_PROBE2(_provider, _name, _batch, _bytes) torture_heard((_batch), (_bytes))
#include <gpuprof/batch.h>
static void torture_heard(const struct gp_batch *batch, uint64_t bytes);
#include "../../src/session/batch.c"

#include "base/compiler.h"
#include "base/ring.h"
#include "torture/yield.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4u
#define CHUNKS  64u /* small: it wraps around while the reader sleeps */
#define MOST    (1u << 20)

static struct gp_session session;
static struct gp_wire_header header;
static GP_ALIGNED_LINE struct gp_wire_mailbox mailbox;
static struct gp_wire_chunk chunks[CHUNKS] __attribute__((aligned(4096)));
static struct gp_ring ring;

static bool is_watched; /* under the lock of batch.c, as all words of the oracle that do not say otherwise */
static uint8_t *seen[THREADS + 1];
static uint64_t carried, lost, seq, wrong;
static const char *why = "";
static uint32_t x_stop, x_drain_stop;

/* ---- what batch.c stands on -------------------------------------------------------------------------------------- */

uint64_t gp_tap_events(void)
{
    return gp_ring_written(&ring) + __atomic_load_n(&header.lost[GP_LOST_RING], __ATOMIC_RELAXED);
}

void gp_tap_batch_begin(void)
{
    is_watched = true;
}

void gp_tap_batch_end(void)
{
    is_watched = false;
}

bool gp_tap_batch(unsigned index, struct gp_batch_device *out)
{
    memset(out, 0, sizeof(*out));
    out->device = (int32_t)index;
    out->flags = GP_DEVICE_IDENTIFIED;
    return index < 3;
}

/* Delays in the windows: those of batch.c are a sleep, every second time where they are rare;
 * those of the ring, which every event passes, are an occasional yield. */
void gp_testpoint(const char *name)
{
    static __thread unsigned random;
    if (!random)
        random = (unsigned)(uintptr_t)&random | 1;
    random = random * 1664525u + 1013904223u;
    bool is_rare = strcmp(name, "batch.coming") != 0;
    if (name[0] == 'b' && random >> (is_rare ? 31 : 28) == 0)
        usleep(random >> 12 & (is_rare ? 0xfff : 0x1fff));
    else if (random >> 22 == 0)
        torture_yield();
}

/* ---- the listener ------------------------------------------------------------------------------------------------ */

static void blame(const char *text)
{
    wrong++;
    why = text;
}

static void torture_heard(const struct gp_batch *batch, uint64_t bytes)
{
    if (bytes != offsetof(struct gp_batch, events) + batch->event_count * sizeof(batch->events[0]))
        blame("size");
    if (batch->seq != ++seq)
        blame("a gap in the numbers of batches");
    if (batch->lost < lost)
        blame("lost fell");
    lost = batch->lost;
    for (unsigned i = 0; i < batch->event_count; i++) {
        const struct gp_wire_event *event = &batch->events[i];
        uint64_t thread = event->stream, number = event->address;
        if (thread > THREADS || number >= MOST) {
            blame("an event that was never made");
            continue;
        }
        if (seen[thread][number]++)
            blame("an event that arrived twice");
        carried++;
    }
}

/* ---- the program's threads --------------------------------------------------------------------------------------- */

/* Like gp_event_write (account/event.c). */
static void event_make(struct gp_ring_cursor *cursor, uint32_t thread, uint64_t number)
{
    struct gp_wire_event event = {.time_ns = gp_clock_ns(), .type = GP_EVENT_ALLOC, .kind = GP_KIND_LINEAR};
    event.stream = thread;
    event.address = number;
    bool armed = __atomic_load_n(&gpuprof_batch_semaphore, __ATOMIC_RELAXED);
    if (armed)
        gp_batch_coming(event.time_ns);
    gp_ring_write(&ring, cursor, &event, thread + 1);
    if (armed)
        gp_batch_heard();
}

static void *program_main(void *arg)
{
    uint32_t thread = (uint32_t)(size_t)arg;
    struct gp_ring_cursor cursor = {0};
    unsigned random = thread * 2654435761u + 1;
    for (uint64_t i = 0; i < MOST && !__atomic_load_n(&x_stop, __ATOMIC_RELAXED); i++) {
        event_make(&cursor, thread, i);
        random = random * 1664525u + 1013904223u;
        if (random >> 22 == 0)
            usleep(random >> 6 & 0x3fff); /* up to 16 ms */
    }
    return NULL;
}

/* Like drain_main, which also answers the mailbox. */
static void *drain_main(void *arg)
{
    uint64_t turn = 0;
    (void)arg;
    while (!__atomic_load_n(&x_drain_stop, __ATOMIC_ACQUIRE)) {
        uint32_t was = __atomic_load_n(&mailbox.doorbell, __ATOMIC_ACQUIRE);
        if (turn++ % 16 == 0)
            gp_batch_tell();
        gp_futex_wait(&mailbox.doorbell, was, gp_batch_work());
    }
    return NULL;
}

static void drain_ring(void)
{
    __atomic_fetch_add(&mailbox.doorbell, 1, __ATOMIC_RELEASE);
    gp_futex_wake(&mailbox.doorbell);
}

static void listen(bool is_on)
{
    __atomic_store_n(&gpuprof_batch_semaphore, is_on, __ATOMIC_RELAXED);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* A thread's first event may count as lost if the listener started between its time and its
 * write. */
static uint64_t heard_now(void)
{
    gp_lock_take(&batch_lock);
    uint64_t now = carried + lost;
    gp_lock_give(&batch_lock);
    return now;
}

static void one_more(struct gp_ring_cursor *cursor)
{
    uint64_t before = heard_now(), until = gp_clock_ns() + 5000000000ull;
    static uint64_t number;
    event_make(cursor, THREADS, number++);
    while (heard_now() == before && gp_clock_ns() < until)
        usleep(200);
    gp_lock_take(&batch_lock);
    if (carried + lost == before)
        blame("a missed wake-up");
    gp_lock_give(&batch_lock);
}

static void check_released(void)
{
    listen(false);
    drain_ring();
    for (int i = 0; i < 5000; i++, usleep(1000)) {
        gp_lock_take(&batch_lock);
        bool is_gone = !is_watched && !gp_batching.reader && !gp_batching.listening;
        gp_lock_give(&batch_lock);
        if (is_gone)
            return;
    }
    gp_lock_take(&batch_lock);
    blame("the watch or the reader's memory was not released");
    gp_lock_give(&batch_lock);
}

/* always: one listener is present from before the start to the end. Runs in a process of its
 * own, because batch.c keeps process-wide state. */
static int round_run(bool always, unsigned seed)
{
    pthread_t threads[THREADS], drain;
    struct gp_ring_cursor cursor = {0};
    uint64_t until = gp_clock_ns() + 150000000ull;
    session.header = &header;
    session.mailbox = &mailbox;
    session.chunks = chunks;
    session.chunk_count = CHUNKS;
    for (unsigned i = 0; i <= THREADS; i++)
        seen[i] = calloc(MOST, 1);
    if (gp_ring_init(&ring, chunks, CHUNKS, &header.lost[GP_LOST_RING]) != 0)
        return 2;
    listen(always);
    unsigned early = seed / 2 % 2 ? THREADS / 2 : 0; /* there may be events before there is a session */
    for (size_t i = 0; i < early; i++)
        pthread_create(&threads[i], NULL, program_main, (void *)i);
    if (early)
        usleep(seed / 4 % 1024);
    gp_batch_start(&session);
    pthread_create(&drain, NULL, drain_main, NULL);
    for (size_t i = early; i < THREADS; i++)
        pthread_create(&threads[i], NULL, program_main, (void *)i);
    for (unsigned random = seed; gp_clock_ns() < until; random = random * 1664525u + 1013904223u) {
        usleep(random >> 16 & 0x1fff);
        if (always)
            continue;
        /* Stops listening for a moment, often just long enough for the thread to notice. */
        listen(false);
        if (random >> 30)
            drain_ring();
        usleep(random >> 20 & 0x3ff);
        listen(random >> 29 != 0);
    }
    __atomic_store_n(&x_stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    if (!always) {
        check_released();
        listen(true);
    }
    one_more(&cursor);
    usleep(110000); /* the thread goes to sleep */
    one_more(&cursor);
    gp_batch_last();
    uint64_t made = gp_tap_events();
    if (always && carried + lost != made)
        blame("carried + lost differs from the events made");
    if (carried + lost > made)
        blame("more events than were made");
    __atomic_store_n(&x_drain_stop, 1, __ATOMIC_RELEASE);
    drain_ring();
    pthread_join(drain, NULL);
    if (wrong)
        printf("  %s: %llu errors, the last: %s; %llu made, %llu carried, %llu lost\n",
               always ? "always" : "now and then", (unsigned long long)wrong, why, (unsigned long long)made,
               (unsigned long long)carried, (unsigned long long)lost);
    fflush(stdout);
    return wrong || carried == 0;
}

int main(int argc, char **argv)
{
    uint64_t limit_ns = (argc > 1 ? strtoull(argv[1], NULL, 0) : 8) * 1000000000ull;
    unsigned seed = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : (unsigned)gp_clock_ns();
    uint64_t until = gp_clock_ns() + limit_ns;
    unsigned passed[2] = {0}, failed[2] = {0}, round = 0;
    printf("batch: seed %u\n", seed);
    do {
        int status;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            exit(round_run(round % 2 == 0, seed + round));
        bool is_good =
            child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        *(is_good ? &passed[round % 2] : &failed[round % 2]) += 1;
        round++;
    } while (gp_clock_ns() < until || round < 4);
    printf("  %u rounds with a listener all the time, %u with one now and then\n", passed[0], passed[1]);
    printf("%u passed, %u failed\n", (failed[0] == 0) + (failed[1] == 0), (failed[0] != 0) + (failed[1] != 0));
    return failed[0] || failed[1];
}
