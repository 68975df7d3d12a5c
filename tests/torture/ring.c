/* SPDX-License-Identifier: MIT
 *
 * ring.c: writers overwrite a tiny event ring while readers of several kinds follow it. Run by
 * hand and by `make check`; usage: ring [seconds] [seed].
 *
 * Every event carries words that follow from its writer and number, so a torn copy is detected.
 * At rest, for every reader, before + delivered + overwritten = written, and tried = written +
 * lost, exactly. The control is the same reader without its second check of a chunk's state: the
 * test is valid only if the control fails.
 */
#include "base/ring.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "lib/random.h"
#include "record/ringread.h"
#include "torture/yield.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The reader belongs to the recorder, which torture programs do not link. */
#include "base/text.c"
#include "record/ringread.c"

#define TORTURE_WRITERS 4u
#define TORTURE_EVENTS  (1u << 24) /* per writer and round; one bit each in every reader's record */

enum torture_kind {
    READER_PREAD,   /* reads like a viewer, with a horizon: order across polls is checked */
    READER_MEMORY,  /* through a callback, no horizon, slow */
    READER_NOW,     /* starts in the middle */
    READER_CONTROL, /* omits the second check */
    READER_KINDS
};
static const char *const torture_names[] = {"pread", "memory", "now", "control"};

struct torture {
    struct gp_ring ring;
    struct gp_wire_chunk *chunks;
    int fd;
    uint64_t seed, lost;
    int x_stop_writers, x_stop_readers;
    uint64_t x_tried, x_written, x_next_id;
};

struct torture_reader {
    struct torture *t;
    enum torture_kind kind;
    bool mute;
    struct gp_ringread *ring;
    uint64_t random, wrong, delivered;
    uint64_t last[TORTURE_WRITERS]; /* number + 1 */
    uint8_t *seen[TORTURE_WRITERS];
    uint64_t look, look_offset; /* control: returns the first check's state again */
    bool copied;
};

static uint64_t torture_seed;

static uint64_t torture_mix(uint64_t writer, uint64_t number, uint64_t salt)
{
    uint64_t state = writer << 56 ^ number ^ salt << 48;
    return random_mix(&state);
}

/* Yields the CPU in one window of many; an event has a dozen windows. */
void gp_testpoint(const char *name)
{
    static __thread uint64_t state;
    (void)name;
    if (!state)
        state = torture_seed ^ (uint64_t)(uintptr_t)&state;
    if (random_mix(&state) % 1024 == 0)
        torture_yield();
}

/* ---- writers ----------------------------------------------------------------------------------------------------- */

/* Half of the events go the short way first, as the account's do. */
static bool torture_write(struct gp_ring *ring, struct gp_ring_cursor *cursor, struct gp_wire_event *event,
                          uint32_t tid)
{
    uint64_t words[GP_RING_WORDS];
    event->tid = tid;
    memcpy(words, event, sizeof(words));
    if (event->error % 2 == 0 && gp_ring_put(ring, cursor->turn, cursor->used, words))
        return ++cursor->used;
    return gp_ring_write(ring, cursor, event, tid) == 0;
}

static void *torture_writer(void *arg)
{
    struct torture *t = arg;
    uint64_t id = __atomic_fetch_add(&t->x_next_id, 1, __ATOMIC_RELAXED), random = t->seed + id, tried = 0, written = 0;
    struct gp_ring_cursor cursor = {0};
    while (!__atomic_load_n(&t->x_stop_writers, __ATOMIC_RELAXED) && tried < TORTURE_EVENTS) {
        struct gp_wire_event event = {.type = GP_EVENT_ALLOC, .kind = (uint8_t)(tried % GP_KINDS), .device = 255};
        event.bytes = tried;
        event.address = torture_mix(id, tried, 1);
        event.requested_bytes = torture_mix(id, tried, 2);
        event.stream = torture_mix(id, tried, 3);
        event.site = (uint32_t)id;
        event.error = (uint32_t)tried;
        event.time_ns = gp_clock_ns();
        written += torture_write(&t->ring, &cursor, &event, (uint32_t)torture_mix(id, tried, 4));
        tried++;
        uint64_t r = random_mix(&random);
        if (r % 1000 == 0)
            cursor = (struct gp_ring_cursor){0}; /* the thread ends and another one continues */
        if (r % 3000 == 1)
            usleep((useconds_t)(r >> 32) % 200); /* idle: its chunk is taken over */
    }
    __atomic_fetch_add(&t->x_tried, tried, __ATOMIC_RELAXED);
    __atomic_fetch_add(&t->x_written, written, __ATOMIC_RELAXED);
    return NULL;
}

/* ---- readers ----------------------------------------------------------------------------------------------------- */

static int torture_copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    struct torture_reader *reader = arg;
    uint64_t *words = into;
    const uint64_t *from = (const uint64_t *)(const void *)((const char *)reader->t->chunks + offset);
    bool look = offset % sizeof(struct gp_wire_chunk) == 0;
    if (look && reader->kind == READER_CONTROL && reader->copied && offset == reader->look_offset) {
        words[0] = reader->look;
        reader->copied = false;
        return 0;
    }
    for (size_t i = 0; i < bytes / 8; i++)
        words[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
    reader->copied = !look;
    if (look) {
        reader->look = words[0];
        reader->look_offset = offset;
    }
    if (random_mix(&reader->random) % 4 == 0)
        torture_yield();
    return 0;
}

static void torture_wrong(struct torture_reader *reader, const char *what)
{
    if (reader->wrong++ < 3 && !reader->mute)
        fprintf(stderr, "wrong: %s reader: %s\n", torture_names[reader->kind], what);
}

static void torture_check(struct torture_reader *reader, const struct gp_wire_event *event)
{
    uint64_t id = event->site, number = event->bytes;
    reader->delivered++;
    if (id >= TORTURE_WRITERS || number >= TORTURE_EVENTS || event->address != torture_mix(id, number, 1) ||
        event->requested_bytes != torture_mix(id, number, 2) || event->stream != torture_mix(id, number, 3) ||
        event->tid != (uint32_t)torture_mix(id, number, 4) || event->error != (uint32_t)number ||
        event->kind != number % GP_KINDS || event->device != 255) {
        torture_wrong(reader, "torn event");
        return;
    }
    if (reader->seen[id][number / 8] & 1u << number % 8)
        torture_wrong(reader, "event delivered twice");
    reader->seen[id][number / 8] |= (uint8_t)(1u << number % 8);
    if (reader->kind == READER_PREAD && number < reader->last[id])
        torture_wrong(reader, "a thread's events out of order");
    reader->last[id] = number + 1;
}

static void torture_poll(struct torture_reader *reader, uint64_t horizon_ns)
{
    const struct gp_wire_event *events;
    ssize_t n = gp_ringread_poll(reader->ring, horizon_ns, &events);
    if (n < 0)
        torture_wrong(reader, "poll failed");
    for (ssize_t i = 0; i < n; i++) {
        if (i > 0 && events[i].time_ns < events[i - 1].time_ns)
            torture_wrong(reader, "poll not in time order");
        torture_check(reader, &events[i]);
    }
}

static void torture_balance(struct torture_reader *reader)
{
    struct gp_ringread_stats s;
    gp_ringread_stats(reader->ring, &s);
    uint64_t sum = s.before + s.delivered + s.held + s.overwritten;
    if (sum != reader->t->x_written)
        torture_wrong(reader, "before + delivered + overwritten differs from written");
    if (s.damaged || s.damaged_chunks)
        torture_wrong(reader, "found damage");
    if (s.held || s.unsettled || s.delivered != reader->delivered)
        torture_wrong(reader, "not at rest");
    if (!reader->mute)
        fprintf(stderr, "    %-7s before %9lu  delivered %9lu  overwritten %9lu  wrong %lu\n",
                torture_names[reader->kind], (unsigned long)s.before, (unsigned long)s.delivered,
                (unsigned long)s.overwritten, (unsigned long)reader->wrong);
}

static void *torture_reader(void *arg)
{
    struct torture_reader *reader = arg;
    struct torture *t = reader->t;
    int rc;
    if (reader->kind == READER_NOW)
        usleep(20000);
    if (reader->kind == READER_PREAD)
        rc = gp_ringread_new_fd(&reader->ring, t->fd, 0, t->ring.chunk_count, GP_RINGREAD_OLDEST);
    else
        rc = gp_ringread_new(&reader->ring, torture_copy, reader, t->ring.chunk_count,
                             reader->kind == READER_NOW ? GP_RINGREAD_NOW : GP_RINGREAD_OLDEST);
    if (rc < 0)
        exit(2);
    while (!__atomic_load_n(&t->x_stop_readers, __ATOMIC_ACQUIRE)) {
        torture_poll(reader, reader->kind == READER_PREAD ? gp_clock_ns() : UINT64_MAX);
        if (reader->kind != READER_CONTROL && random_mix(&reader->random) % 4 == 0)
            usleep((useconds_t)(random_mix(&reader->random) % 2000));
    }
    torture_poll(reader, UINT64_MAX);
    torture_balance(reader);
    return NULL;
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

static void torture_open(struct torture *t, uint32_t chunk_count)
{
    size_t bytes = chunk_count * sizeof(struct gp_wire_chunk);
    t->fd = memfd_create("torture", MFD_CLOEXEC);
    if (t->fd < 0 || ftruncate(t->fd, (off_t)bytes) < 0)
        exit(2);
    t->chunks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);
    if (gp_ring_init(&t->ring, t->chunks, chunk_count, &t->lost) < 0)
        exit(2);
}

static void torture_reader_init(struct torture_reader *reader, struct torture *t, enum torture_kind kind, bool mute)
{
    *reader = (struct torture_reader){.t = t, .kind = kind, .mute = mute, .random = t->seed + kind * 7919u};
    for (unsigned i = 0; i < TORTURE_WRITERS; i++)
        reader->seen[i] =
            mmap(NULL, TORTURE_EVENTS / 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static void torture_reader_end(struct torture_reader *reader)
{
    gp_ringread_free(reader->ring);
    for (unsigned i = 0; i < TORTURE_WRITERS; i++)
        munmap(reader->seen[i], TORTURE_EVENTS / 8);
}

/* Counts the errors; *lost and *overwritten report whether the round reached the cases that it
 * is for. */
static uint64_t torture_round(uint32_t chunk_count, unsigned writers, bool control, double seconds, uint64_t seed,
                              uint64_t *lost, uint64_t *overwritten)
{
    static struct torture torture;
    struct torture *t = &torture;
    pthread_t threads[TORTURE_WRITERS + READER_KINDS];
    struct torture_reader readers[READER_KINDS];
    unsigned first = control ? READER_CONTROL : READER_PREAD, end = control ? READER_KINDS : READER_CONTROL;
    uint64_t wrong = 0;
    *t = (struct torture){.seed = seed};
    torture_open(t, chunk_count);
    for (unsigned i = first; i < end; i++) {
        torture_reader_init(&readers[i], t, (enum torture_kind)i, control);
        pthread_create(&threads[TORTURE_WRITERS + i], NULL, torture_reader, &readers[i]);
    }
    for (unsigned i = 0; i < writers; i++)
        pthread_create(&threads[i], NULL, torture_writer, t);
    usleep((useconds_t)(seconds * 1e6));
    __atomic_store_n(&t->x_stop_writers, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < writers; i++)
        pthread_join(threads[i], NULL);
    if (gp_ring_written(&t->ring) != t->x_written || t->x_tried != t->x_written + t->lost) {
        fprintf(stderr, "wrong: tried %lu, written %lu, the ring counts %lu, lost %lu\n", (unsigned long)t->x_tried,
                (unsigned long)t->x_written, (unsigned long)gp_ring_written(&t->ring), (unsigned long)t->lost);
        wrong++;
    }
    __atomic_store_n(&t->x_stop_readers, 1, __ATOMIC_RELEASE);
    for (unsigned i = first; i < end; i++) {
        struct gp_ringread_stats stats;
        pthread_join(threads[TORTURE_WRITERS + i], NULL);
        gp_ringread_stats(readers[i].ring, &stats);
        *overwritten += stats.overwritten;
        wrong += readers[i].wrong;
        torture_reader_end(&readers[i]);
    }
    *lost += t->lost;
    if (!control)
        fprintf(stderr, "  %2u chunks, %u writers: tried %lu, lost %lu\n", chunk_count, writers,
                (unsigned long)t->x_tried, (unsigned long)t->lost);
    munmap(t->chunks, chunk_count * sizeof *t->chunks);
    close(t->fd);
    return wrong;
}

int main(int argc, char **argv)
{
    static const struct {
        uint32_t chunks;
        unsigned writers;
    } rounds[] = {{1, 3}, {2, 4}, {4, 2}, {8, 4}, {64, 1}, {64, 4}};
    double seconds = argc > 1 ? atof(argv[1]) : 9;
    torture_seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
    fprintf(stderr, "seed %lu\n", (unsigned long)torture_seed);
    unsigned failed = 0;
    uint64_t lost = 0, overwritten = 0, unused = 0;
    for (unsigned i = 0; i < GP_COUNT(rounds); i++)
        failed += torture_round(rounds[i].chunks, rounds[i].writers, false, seconds / GP_COUNT(rounds),
                                torture_seed + i, &lost, &overwritten) != 0;
    bool visited = lost && overwritten;
    if (!visited)
        fprintf(stderr, "wrong: nothing was lost or overwritten, so nothing was tested\n");
    uint64_t caught = torture_round(4, 3, true, 1.0, torture_seed, &unused, &unused);
    fprintf(stderr, "  control without the second check: %lu wrong\n", (unsigned long)caught);
    failed += !visited + (caught == 0);
    printf("%zu passed, %u failed\n", GP_COUNT(rounds) + 2 - failed, failed);
    return failed != 0;
}
