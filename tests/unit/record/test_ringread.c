/* SPDX-License-Identifier: MIT
 *
 * test_ringread.c: the reader of the event ring: the events it returns, the counts of missed ones,
 * and its reaction to malformed data.
 */
#include "base/compiler.h"
#include "base/ring.h"
#include "record/ringread.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RING_OFFSET 8192u /* a session has other parts in front of the ring */

struct test_session {
    struct gp_ring ring;
    struct gp_ring_cursor cursor;
    struct gp_wire_chunk *chunks;
    uint64_t lost, time_ns;
    int fd;
};

static struct test_session *gp_test_session(uint32_t chunk_count)
{
    struct test_session *t = aligned_alloc(_Alignof(struct test_session), sizeof *t);
    memset(t, 0, sizeof *t);
    size_t bytes = chunk_count * sizeof(struct gp_wire_chunk);
    t->fd = memfd_create("test", MFD_CLOEXEC);
    cr_assert_eq(ftruncate(t->fd, (off_t)(RING_OFFSET + bytes)), 0);
    t->chunks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, RING_OFFSET);
    cr_assert_eq(gp_ring_init(&t->ring, t->chunks, chunk_count, &t->lost), 0);
    t->time_ns = 1000;
    return t;
}

static void gp_test_close(struct test_session *t)
{
    munmap(t->chunks, t->ring.chunk_count * sizeof(struct gp_wire_chunk));
    close(t->fd);
    free(t);
}

static void gp_test_write(struct test_session *t, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct gp_wire_event event = {.time_ns = t->time_ns++, .type = GP_EVENT_ALLOC, .kind = GP_KIND_LINEAR};
        event.bytes = event.time_ns * 3;
        cr_assert_eq(gp_ring_write(&t->ring, &t->cursor, &event, 5), 0);
    }
}

static struct gp_ringread *gp_test_reader(struct test_session *t, enum gp_ringread_start start)
{
    struct gp_ringread *reader = NULL;
    cr_assert_eq(gp_ringread_new_fd(&reader, t->fd, RING_OFFSET, t->ring.chunk_count, start), 0);
    return reader;
}

static struct gp_ringread_stats gp_test_stats(struct gp_ringread *reader)
{
    struct gp_ringread_stats stats;
    gp_ringread_stats(reader, &stats);
    return stats;
}

static void gp_test_balance(struct test_session *t, struct gp_ringread *reader)
{
    struct gp_ringread_stats s = gp_test_stats(reader);
    cr_assert_eq(s.before + s.delivered + s.held + s.overwritten + s.damaged + s.left, gp_ring_written(&t->ring));
    cr_assert_eq(s.damaged_chunks, 0);
    cr_assert_eq(s.unsettled, 0);
}

/* In a large ring a reader that starts "now" has not visited the chunks beyond the used ones;
 * events written into them later are still new. */
Test(ringread, a_wide_ring_from_now_on)
{
    struct test_session *t = gp_test_session(1024);
    const struct gp_wire_event *events;
    gp_test_write(t, 70);
    struct gp_ringread *reader = gp_test_reader(t, GP_RINGREAD_NOW);
    gp_test_write(t, 500 * GP_RING_EVENTS);
    cr_expect_eq(gp_ringread_poll(reader, UINT64_MAX, &events), 500 * GP_RING_EVENTS);
    cr_expect_eq(gp_test_stats(reader).before, 70);
    gp_test_balance(t, reader);
    gp_ringread_free(reader);
    gp_test_close(t);
}

/* The thread fills its chunk and goes to the next one after the reader has visited the first. */
static int fills_meanwhile(void *arg, void *into, size_t bytes, uint64_t offset)
{
    struct test_session *t = arg;
    static unsigned looks;
    if (offset == sizeof(struct gp_wire_chunk) && ++looks == 2) /* not when the newest chunk is searched */
        gp_test_write(t, GP_RING_EVENTS + 5);
    memcpy(into, (const char *)t->chunks + offset, bytes);
    return 0;
}

Test(ringread, from_now_on_has_no_gap_while_a_thread_changes_its_chunk)
{
    struct test_session *t = gp_test_session(8);
    const struct gp_wire_event *events;
    struct gp_ringread *reader;
    gp_test_write(t, 3);
    cr_assert_eq(gp_ringread_new(&reader, fills_meanwhile, t, 8, GP_RINGREAD_NOW), 0);
    gp_test_write(t, 7);
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &events), GP_RING_EVENTS + 12);
    for (unsigned i = 0; i < GP_RING_EVENTS + 12; i++)
        cr_expect_eq(events[i].time_ns, 1003 + i);
    gp_test_balance(t, reader);
    gp_ringread_free(reader);
    gp_test_close(t);
}

/* Once it is set, the thread overtakes the reader while that visits the third chunk. */
static bool is_overtaking;

static int overtakes(void *arg, void *into, size_t bytes, uint64_t offset)
{
    struct test_session *t = arg;
    if (offset == 2 * sizeof(struct gp_wire_chunk) && is_overtaking) {
        is_overtaking = false;
        gp_test_write(t, 5 * GP_RING_EVENTS);
    }
    memcpy(into, (const char *)t->chunks + offset, bytes);
    return 0;
}

/* Turns 10 to 17 are in the ring. The second chunk is read with turn 10; then 11 to 14 are
 * overwritten. */
Test(ringread, from_the_oldest_has_no_gap_where_a_thread_overtakes_the_reader)
{
    struct test_session *t = gp_test_session(8);
    const struct gp_wire_event *events;
    struct gp_ringread *reader;
    const ssize_t counts[] = {2 * GP_RING_EVENTS + 1, 5 * GP_RING_EVENTS + 1, 1};
    uint64_t next = 14 * GP_RING_EVENTS;
    gp_test_write(t, 16 * GP_RING_EVENTS + 1);
    cr_assert_eq(gp_ringread_new(&reader, overtakes, t, 8, GP_RINGREAD_OLDEST), 0);
    is_overtaking = true;
    for (int poll = 0; poll < 3; poll++) {
        ssize_t count = gp_ringread_poll(reader, t->time_ns - 1, &events);
        cr_assert_eq(count, counts[poll], "%zd", count);
        for (ssize_t i = 0; i < count; i++)
            cr_expect_eq(events[i].seq, next++);
        if (poll > 0)
            gp_test_balance(t, reader);
        gp_test_write(t, 1);
    }
    cr_expect_eq(gp_test_stats(reader).before, 14 * GP_RING_EVENTS);
    gp_ringread_free(reader);
    gp_test_close(t);
}

/* A reader that starts now counts what it missed, and keeps what it read before that. */
Test(ringread, from_now_on_what_a_thread_overtakes_is_missed_and_not_from_before)
{
    struct test_session *t = gp_test_session(8);
    const struct gp_wire_event *events;
    struct gp_ringread *reader;
    gp_test_write(t, 8 * GP_RING_EVENTS + 1);
    cr_assert_eq(gp_ringread_new(&reader, overtakes, t, 8, GP_RINGREAD_NOW), 0);
    gp_test_write(t, 8 * GP_RING_EVENTS);
    is_overtaking = true;
    for (int poll = 0; poll < 2; poll++)
        cr_assert_gt(gp_ringread_poll(reader, UINT64_MAX, &events), 0);
    cr_expect_eq(gp_test_stats(reader).before, 8 * GP_RING_EVENTS + 1);
    cr_expect_gt(gp_test_stats(reader).overwritten, 0);
    gp_test_balance(t, reader);
    gp_ringread_free(reader);
    gp_test_close(t);
}

Test(ringread, arguments)
{
    struct test_session *t = gp_test_session(4);
    struct gp_ringread *reader;
    cr_assert_eq(gp_ringread_new_fd(&reader, t->fd, 0, 0, GP_RINGREAD_OLDEST), -EINVAL);
    cr_assert_eq(gp_ringread_new_fd(&reader, t->fd, 0, 3, GP_RINGREAD_OLDEST), -EINVAL);
    cr_assert_eq(gp_ringread_new_fd(&reader, t->fd, 0, GP_RINGREAD_CHUNKS * 2, GP_RINGREAD_OLDEST), -EINVAL);
    cr_assert_eq(gp_ringread_new(&reader, NULL, NULL, 4, GP_RINGREAD_OLDEST), -EINVAL);
    gp_ringread_free(NULL);
    gp_test_close(t);
}

Test(ringread, gives_every_event_once_in_order)
{
    struct test_session *t = gp_test_session(8);
    struct gp_ringread *reader = gp_test_reader(t, GP_RINGREAD_OLDEST);
    const struct gp_wire_event *events;
    uint64_t next = t->time_ns;
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &events), 0);
    for (unsigned n = 0; n < 7 * GP_RING_EVENTS; n = n * 2 + 1) {
        gp_test_write(t, n);
        cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &events), n);
        for (unsigned i = 0; i < n; i++, next++) {
            cr_assert_eq(events[i].time_ns, next);
            cr_assert_eq(events[i].bytes, next * 3);
            cr_assert_eq(events[i].seq, next - 1000);
        }
        cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &events), 0);
        gp_test_balance(t, reader);
    }
    cr_assert_eq(gp_test_stats(reader).overwritten, 0);
    gp_ringread_free(reader);
    gp_test_close(t);
}

Test(ringread, counts_what_it_missed_exactly)
{
    struct test_session *t = gp_test_session(4);
    gp_test_write(t, 10 * GP_RING_EVENTS + 7);
    struct gp_ringread *oldest = gp_test_reader(t, GP_RINGREAD_OLDEST), *now = gp_test_reader(t, GP_RINGREAD_NOW);
    const struct gp_wire_event *events;
    cr_assert_eq(gp_ringread_poll(oldest, UINT64_MAX, &events), 3 * GP_RING_EVENTS + 7);
    cr_assert_eq(gp_test_stats(oldest).before, 7 * GP_RING_EVENTS);
    cr_assert_eq(gp_ringread_poll(now, UINT64_MAX, &events), 0);
    cr_assert_eq(gp_test_stats(now).before, 10 * GP_RING_EVENTS + 7);
    gp_test_write(t, 6 * GP_RING_EVENTS);
    for (unsigned i = 0; i < 2; i++) {
        struct gp_ringread *reader = i ? now : oldest;
        /* 56 of these went to the chunk in use, then five chunks and seven events: four chunks are
         * left to read. */
        cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &events), 3 * GP_RING_EVENTS + 7);
        cr_assert_eq(gp_test_stats(reader).overwritten, 3 * GP_RING_EVENTS - 7);
        gp_test_balance(t, reader);
        gp_ringread_free(reader);
    }
    gp_test_close(t);
}

Test(ringread, readers_are_independent_at_random_paces)
{
    struct test_session *t = gp_test_session(4);
    struct gp_ringread *readers[5];
    unsigned seed = 7;
    for (unsigned i = 0; i < GP_COUNT(readers); i++)
        readers[i] = gp_test_reader(t, i % 2 ? GP_RINGREAD_NOW : GP_RINGREAD_OLDEST);
    for (unsigned step = 0; step < 5000; step++) {
        gp_test_write(t, (unsigned)rand_r(&seed) % 150);
        if (rand_r(&seed) % 5 == 0)
            t->cursor = (struct gp_ring_cursor){0}; /* another thread goes on: a chunk stays partly filled */
        for (unsigned i = 0; i < GP_COUNT(readers); i++) {
            const struct gp_wire_event *events;
            if ((unsigned)rand_r(&seed) % (i + 1))
                continue;
            ssize_t n = gp_ringread_poll(readers[i], UINT64_MAX, &events);
            cr_assert_geq(n, 0);
            for (ssize_t j = 1; j < n; j++)
                cr_assert_eq(events[j].bytes, events[j].time_ns * 3);
            gp_test_balance(t, readers[i]);
        }
    }
    cr_assert_gt(gp_test_stats(readers[4]).overwritten, 0);
    for (unsigned i = 0; i < GP_COUNT(readers); i++)
        gp_ringread_free(readers[i]);
    gp_test_close(t);
}

Test(ringread, a_horizon_holds_back_and_orders_across_polls)
{
    struct test_session *t = gp_test_session(8);
    struct gp_ringread *reader = gp_test_reader(t, GP_RINGREAD_OLDEST);
    const struct gp_wire_event *events;
    gp_test_write(t, 100); /* 1000 .. 1099 */
    cr_assert_eq(gp_ringread_poll(reader, 1049, &events), 50);
    cr_assert_eq(gp_test_stats(reader).held, 50);
    gp_test_balance(t, reader);
    t->time_ns = 1040; /* a thread that commits late */
    gp_test_write(t, 20);
    cr_assert_eq(gp_ringread_poll(reader, 1070, &events), 41);
    for (unsigned i = 1; i < 41; i++)
        cr_assert_geq(events[i].time_ns, events[i - 1].time_ns);
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &events), 29);
    cr_assert_eq(gp_test_stats(reader).held, 0);
    gp_test_balance(t, reader);
    gp_ringread_free(reader);
    gp_test_close(t);
}

Test(ringread, a_horizon_of_lies_does_not_grow_memory)
{
    struct test_session *t = gp_test_session(2);
    struct gp_ringread *reader = gp_test_reader(t, GP_RINGREAD_OLDEST);
    const struct gp_wire_event *events;
    for (unsigned i = 0; i < 1000; i++) {
        gp_test_write(t, 2 * GP_RING_EVENTS);
        cr_assert_geq(gp_ringread_poll(reader, 0, &events), 0);
        cr_assert_leq(gp_test_stats(reader).held, 2 * GP_RING_EVENTS);
    }
    gp_test_balance(t, reader);
    gp_ringread_free(reader);
    gp_test_close(t);
}

Test(ringread, a_killed_writer_leaves_its_events)
{
    struct test_session *t = gp_test_session(4);
    struct gp_ringread *reader = gp_test_reader(t, GP_RINGREAD_OLDEST);
    const struct gp_wire_event *events;
    gp_test_write(t, GP_RING_EVENTS + 20);
    t->chunks[1].state |= GP_CHUNK_STATE(0, 1, 0);
    memset(&t->chunks[1].events[20], 0xff, 32);
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &events), GP_RING_EVENTS + 20);
    gp_test_balance(t, reader);
    gp_ringread_free(reader);
    gp_test_close(t);
}

/* A copy function during whose calls the writer wraps around the ring, `moves` times. */
struct test_race {
    struct test_session *t;
    unsigned moves;
};

static int gp_test_racing_copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    struct test_race *race = arg;
    memcpy(into, (const char *)race->t->chunks + offset, bytes);
    if (offset % sizeof(struct gp_wire_chunk) == 0 && race->moves) {
        race->moves--;
        gp_test_write(race->t, 2 * GP_RING_EVENTS);
    }
    return 0;
}

Test(ringread, a_chunk_that_moves_during_the_copy_is_copied_again_or_left)
{
    for (unsigned moves = 1; moves < 12; moves++) {
        struct test_session *t = gp_test_session(1);
        struct test_race race = {t, moves};
        struct gp_ringread *reader;
        const struct gp_wire_event *events;
        gp_test_write(t, 30);
        cr_assert_eq(gp_ringread_new(&reader, gp_test_racing_copy, &race, 1, GP_RINGREAD_OLDEST), 0);
        ssize_t n = gp_ringread_poll(reader, UINT64_MAX, &events);
        struct gp_ringread_stats s = gp_test_stats(reader);
        cr_assert_eq(s.damaged + s.damaged_chunks, 0);
        cr_assert_eq(n == 0, s.unsettled == 1);
        race.moves = 0;
        for (int poll = 0; poll < 2; poll++) {
            for (ssize_t i = 1; i < n; i++)
                cr_assert_eq(events[i].seq, events[i - 1].seq + 1);
            n = gp_ringread_poll(reader, UINT64_MAX, &events);
        }
        gp_test_balance(t, reader);
        gp_ringread_free(reader);
        gp_test_close(t);
    }
}

/* Sixty-four threads take turns, as on a loaded machine: the times in every chunk overlap with
 * those of other chunks. */
Test(ringread, chunks_of_many_threads_are_put_in_order)
{
    struct test_session *t = gp_test_session(256);
    struct gp_ringread *reader = gp_test_reader(t, GP_RINGREAD_OLDEST);
    struct gp_ring_cursor cursors[64] = {0};
    const struct gp_wire_event *events;
    uint64_t random = 7;
    for (int round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 8000; i++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            struct gp_wire_event event = {.type = GP_EVENT_ALLOC, .time_ns = t->time_ns + i / 3};
            event.address = i;
            event.bytes = ~(uint64_t)i;
            cr_assert_eq(gp_ring_write(&t->ring, &cursors[random >> 58], &event, (uint32_t)(random >> 58)), 0);
        }
        ssize_t n = gp_ringread_poll(reader, UINT64_MAX, &events);
        cr_assert_eq(n, 8000);
        bool seen[8000] = {false};
        for (ssize_t i = 0; i < n; i++) {
            cr_assert(i == 0 || events[i - 1].time_ns < events[i].time_ns ||
                      (events[i - 1].time_ns == events[i].time_ns && events[i - 1].seq < events[i].seq));
            cr_assert_eq(events[i].time_ns, t->time_ns + events[i].address / 3);
            cr_assert_eq(events[i].bytes, ~events[i].address);
            cr_assert(!seen[events[i].address]);
            seen[events[i].address] = true;
        }
        t->time_ns += 8000;
    }
    gp_test_balance(t, reader);
    gp_ringread_free(reader);
    gp_test_close(t);
}

/* Not all chunks of a ring of more than 512 chunks are visited: those beyond the frontier are not.
 * Threads that stop in the middle of a chunk, for a whole turn of the ring or forever, must be
 * found all the same. */
Test(ringread, a_large_ring_is_followed_by_its_frontier)
{
    enum { CHUNKS = 1024, THREADS = 48 };
    struct test_session *t = gp_test_session(CHUNKS);
    struct gp_ringread *reader = gp_test_reader(t, GP_RINGREAD_OLDEST), *now = NULL;
    struct gp_ring_cursor cursors[THREADS] = {0};
    const struct gp_wire_event *events;
    uint64_t random = 3, given = 0, written = 0;
    for (int round = 0; round < 200; round++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        /* Zero to two turns of the ring between two polls. */
        unsigned count = (unsigned)(random >> 40) % (round % 20 == 19 ? 2 * CHUNKS * GP_RING_EVENTS : 4000);
        unsigned active = 1 + (unsigned)(random >> 33) % THREADS;
        for (unsigned i = 0; i < count; i++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            struct gp_wire_event event = {.type = GP_EVENT_ALLOC, .time_ns = t->time_ns++};
            cr_assert_eq(gp_ring_write(&t->ring, &cursors[(random >> 40) % active], &event, 1), 0);
        }
        written += count;
        if (round == 50)
            cr_assert_eq(gp_ringread_new_fd(&now, t->fd, RING_OFFSET, CHUNKS, GP_RINGREAD_NOW), 0);
        ssize_t n = gp_ringread_poll(reader, UINT64_MAX, &events);
        cr_assert_geq(n, 0);
        given += (uint64_t)n;
        struct gp_ringread_stats s = gp_test_stats(reader);
        cr_assert_eq(s.delivered, given);
        cr_assert_eq(s.damaged + s.damaged_chunks + s.unsettled, 0);
        if (count < 4000 && round % 20 != 19)
            gp_test_balance(t, reader);
        if (now) {
            cr_assert_geq(gp_ringread_poll(now, UINT64_MAX, &events), 0);
            gp_test_balance(t, now);
        }
    }
    cr_assert_eq(gp_ring_written(&t->ring), written);
    cr_assert_gt(gp_test_stats(reader).overwritten, 0);
    gp_test_balance(t, reader);
    gp_ringread_free(reader);
    gp_ringread_free(now);
    gp_test_close(t);
}

static bool gp_test_late(void *arg)
{
    unsigned *calls = arg;
    return (*calls)-- == 0;
}

/* Whenever the deadline passes, every event is delivered or counted as left, and none twice. */
Test(ringread, what_there_is_no_time_for_is_counted)
{
    bool some = false;
    for (unsigned calls = 0; calls < 20; calls++) {
        struct test_session *t = gp_test_session(1024);
        struct gp_ringread *reader = gp_test_reader(t, GP_RINGREAD_OLDEST);
        const struct gp_wire_event *events;
        unsigned left = calls;
        gp_test_write(t, 100 * GP_RING_EVENTS);
        cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &events), 100 * GP_RING_EVENTS);
        gp_ringread_hurry(reader, gp_test_late, &left);
        gp_test_write(t, 1500 * GP_RING_EVENTS + 7); /* overwrites some events that were read and some that were not */
        ssize_t n = gp_ringread_poll(reader, UINT64_MAX, &events);
        struct gp_ringread_stats s = gp_test_stats(reader);
        cr_assert_eq(n == 0, s.left != 0, "%u", calls);
        gp_test_balance(t, reader);
        some |= n > 0;
        gp_ringread_leave(reader);
        gp_test_write(t, 70);
        cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &events), 0);
        cr_assert_eq(gp_test_stats(reader).left, s.left + 70);
        gp_test_balance(t, reader);
        gp_ringread_free(reader);
        gp_test_close(t);
    }
    cr_assert(some);
}

/* ---- hostile ----------------------------------------------------------------------------------------------------- */

Test(ringread, a_chunk_that_runs_backwards_is_left_alone)
{
    const struct {
        uint64_t state, written_before;
    } bad[] = {
        {GP_CHUNK_STATE(9, 0, 29), 60}, /* fewer events in the same turn */
        {GP_CHUNK_STATE(5, 0, 63), 60}, /* an earlier turn */
        {GP_CHUNK_STATE(13, 0, 1), 89}, /* a sum below the earlier one */
        {0, 0},
    };
    for (unsigned i = 0; i < GP_COUNT(bad); i++) {
        struct test_session *t = gp_test_session(4);
        struct gp_ringread *reader = gp_test_reader(t, GP_RINGREAD_NOW);
        const struct gp_wire_event *events;
        t->chunks[0].state = GP_CHUNK_STATE(9, 0, 30);
        t->chunks[0].written_before = 60;
        gp_ringread_poll(reader, UINT64_MAX, &events);
        cr_assert_eq(gp_test_stats(reader).damaged_chunks, 0);
        cr_assert_eq(gp_test_stats(reader).damaged, 30, "thirty events of zeros");
        t->chunks[0].state = bad[i].state;
        t->chunks[0].written_before = bad[i].written_before;
        cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &events), 0);
        cr_assert_eq(gp_test_stats(reader).damaged_chunks, 1, "case %u", i);
        gp_ringread_free(reader);
        gp_test_close(t);
    }
}

Test(ringread, events_that_make_no_sense_are_counted_and_kept_back)
{
    struct test_session *t = gp_test_session(4);
    struct gp_ringread *reader = gp_test_reader(t, GP_RINGREAD_OLDEST);
    const struct gp_wire_event *events;
    gp_test_write(t, 10);
    t->chunks[0].events[0].type = GP_EVENT_NONE;
    t->chunks[0].events[1].type = GP_EVENT_TYPES;
    t->chunks[0].events[2].kind = GP_KINDS;
    t->chunks[0].events[3].device = GP_WIRE_DEVICES;
    t->chunks[0].events[4].device = 254;
    t->chunks[0].events[5].seq ^= 1ull << 63;
    t->chunks[0].events[6].device = 255;
    t->chunks[0].events[7].device = GP_WIRE_HOST;
    t->chunks[0].events[9].type = GP_EVENT_MARK;
    memset(t->chunks[0].events[9].name, 0x1b, sizeof t->chunks[0].events[9].name);
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &events), 4);
    cr_assert_eq(gp_test_stats(reader).damaged, 6);
    cr_assert_eq(strlen(events[3].name), sizeof events[3].name - 1);
    cr_assert_eq(strspn(events[3].name, "?"), sizeof events[3].name - 1);
    gp_test_balance(t, reader);
    gp_ringread_free(reader);
    gp_test_close(t);
}

Test(ringread, a_descriptor_too_short_is_an_error_and_loses_nothing)
{
    struct test_session *t = gp_test_session(4);
    struct gp_ringread *reader = gp_test_reader(t, GP_RINGREAD_OLDEST), *now;
    const struct gp_wire_event *events;
    gp_test_write(t, 10);
    cr_assert_eq(ftruncate(t->fd, RING_OFFSET + 2 * sizeof(struct gp_wire_chunk)), 0);
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &events), -EPROTO);
    cr_assert_eq(gp_ringread_new_fd(&now, t->fd, RING_OFFSET, 4, GP_RINGREAD_NOW), -EPROTO);
    cr_assert_eq(ftruncate(t->fd, RING_OFFSET + 4 * sizeof(struct gp_wire_chunk)), 0);
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &events), 10);
    gp_ringread_free(reader);
    cr_assert_eq(gp_ringread_new_fd(&now, -1, RING_OFFSET, 4, GP_RINGREAD_NOW), -EBADF);
    gp_test_close(t);
}

/* Random damage between polls, from single bits to whole pages: no crash (run it under
 * AddressSanitizer), no event out of bounds, no more events than the ring holds. */
Test(ringread, garbage, .timeout = 60)
{
    unsigned seed = 3;
    for (unsigned round = 0; round < 300; round++) {
        struct test_session *t = gp_test_session(4);
        struct gp_ringread *reader = gp_test_reader(t, round % 2 ? GP_RINGREAD_NOW : GP_RINGREAD_OLDEST);
        for (unsigned step = 0; step < 40; step++) {
            const struct gp_wire_event *events;
            unsigned char *bytes = (unsigned char *)t->chunks;
            unsigned long at = (unsigned long)rand_r(&seed) % (4 * sizeof(struct gp_wire_chunk));
            if (rand_r(&seed) % 3 == 0)
                at = (at & ~4095ul) + at % 16;
            bytes[at] ^= (unsigned char)(1u << rand_r(&seed) % 8);
            if (rand_r(&seed) % 50 == 0)
                memset(&t->chunks[at / 4096].events[3], rand_r(&seed), 1000);
            t->chunks[rand_r(&seed) % 4].state += (uint64_t)rand_r(&seed) % 3 * 2048;
            ssize_t n = gp_ringread_poll(reader, (uint64_t)rand_r(&seed), &events);
            cr_assert(n >= 0 && n <= 8 * (ssize_t)GP_RING_EVENTS);
            for (ssize_t i = 0; i < n; i++)
                cr_assert(events[i].type < GP_EVENT_TYPES && events[i].kind < GP_KINDS);
        }
        gp_ringread_free(reader);
        gp_test_close(t);
    }
}
