/* SPDX-License-Identifier: MIT
 *
 * test_ringread_faults.c: the reader of the event ring (core/record/ringread.c) when any copy or mapping fails, when a chunk
 * changes between two looks, and with numbers at the limits of what can be.
 */
#include "lib/mappings.h"
#include "record/ringread.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

TestSuite(ringread_faults, .timeout = 60);

#define CHUNKS 8u

static struct gp_wire_chunk ring[1024];
static unsigned copies, fail_copy;
static void (*copied)(size_t bytes, uint64_t offset); /* after each copy */

static int copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    cr_assert(arg == ring && bytes % 8 == 0 && offset % 8 == 0 && offset + bytes <= sizeof(ring));
    copies++;
    if (fail_copy && --fail_copy == 0)
        return -EIO;
    memcpy(into, (char *)ring + offset, bytes);
    if (copied)
        copied(bytes, offset);
    return 0;
}

/* ---- the writer -------------------------------------------------------------------------------------------------- */

static uint64_t turn, made;
static uint32_t used;

static void ring_new(void)
{
    memset(ring, 0, sizeof(ring));
    turn = made = used = copies = fail_copy = mappings.fail = 0;
    copied = NULL;
}

static void write_events(uint32_t chunks, unsigned count)
{
    for (; count; count--) {
        if (!turn || used == GP_RING_EVENTS) {
            struct gp_wire_chunk *taken = &ring[turn++ % chunks];
            taken->written_before += GP_CHUNK_COUNT(taken->state);
            taken->state = GP_CHUNK_STATE(turn, 0, used = 0);
        }
        struct gp_wire_chunk *chunk = &ring[(turn - 1) % chunks];
        chunk->events[used] = (struct gp_wire_event){.seq = (turn - 1) * GP_RING_EVENTS + used,
                                                     .time_ns = 1000 + made++,
                                                     .type = GP_EVENT_ALLOC,
                                                     .kind = GP_KIND_LINEAR};
        chunk->state = GP_CHUNK_STATE(turn, 0, ++used);
    }
}

static uint64_t all_of(const struct gp_ringread *reader)
{
    struct gp_ringread_stats s;
    gp_ringread_stats(reader, &s);
    return s.before + s.delivered + s.held + s.overwritten + s.damaged + s.left;
}

/* ---- calls that fail --------------------------------------------------------------------------------------------- */

/* Polls four times while events come; returns how many were delivered, or the error of the start. */
static ssize_t follow(uint32_t chunks, enum gp_ringread_start from, unsigned *errors)
{
    struct gp_ringread *reader = NULL;
    const struct gp_wire_event *events;
    uint64_t next = 0;
    ssize_t all = 0;
    write_events(chunks, 200);
    int rc = gp_ringread_new(&reader, copy, ring, chunks, from);
    cr_expect_eq(reader == NULL, rc != 0);
    for (unsigned i = 0; rc == 0 && i < 6; i++) {
        if (i < 4)
            write_events(chunks, 90);
        ssize_t got = gp_ringread_poll(reader, UINT64_MAX, &events);
        *errors += got < 0;
        cr_expect(got >= 0 || got == -EIO || got == -ENOMEM);
        for (ssize_t k = 0; k < got; k++) {
            cr_expect_gt(events[k].time_ns, next, "each one once, in order");
            next = events[k].time_ns;
        }
        all += got > 0 ? got : 0;
    }
    if (rc == 0) {
        cr_expect_eq(all_of(reader), made);
        gp_ringread_free(reader);
    }
    return rc ? rc : all;
}

/* Any copy or mapping fails once: the poll says so, and the next one has what it lacked. */
Test(ringread_faults, any_call_fails_once)
{
    static const uint32_t sizes[] = {16, 1024};
    for (unsigned s = 0; s < 2; s++)
        for (unsigned from = 0; from < 2; from++) {
            unsigned errors = 0, total;
            ring_new();
            mappings.bytes = 0;
            ssize_t want = follow(sizes[s], from ? GP_RINGREAD_NOW : GP_RINGREAD_OLDEST, &errors);
            cr_expect_eq(want, from ? 360 : 560);
            cr_expect_eq(errors, 0);
            total = copies;
            for (unsigned n = 1; n <= total + 3; n += total > 300 && n > 40 && n + 40 < total ? 7 : 1) {
                errors = 0;
                ring_new();
                mappings.bytes = 0;
                fail_copy = n;
                ssize_t got = follow(sizes[s], from ? GP_RINGREAD_NOW : GP_RINGREAD_OLDEST, &errors);
                cr_expect(got == -EIO || (got == want && errors == (n <= total)), "copy %u of %u: %zd", n, total, got);
                cr_expect_eq(mappings.bytes, 0, "copy %u", n);
            }
            for (unsigned n = 1; n <= 4; n++) {
                errors = 0;
                ring_new();
                mappings.bytes = 0;
                mappings.fail = n;
                ssize_t got = follow(sizes[s], from ? GP_RINGREAD_NOW : GP_RINGREAD_OLDEST, &errors);
                cr_expect_eq(got, n == 1 ? -ENOMEM : want, "mapping %u: %zd", n, got);
                cr_expect_eq(mappings.bytes, 0, "mapping %u", n);
            }
        }
}

/* ---- chunks that change ------------------------------------------------------------------------------------------ */

static uint64_t changed_state;

/* When chunk 0 has been looked at once. */
static void change(size_t bytes, uint64_t offset)
{
    if (bytes == 8 && offset == 0 && changed_state) {
        ring[0].state = changed_state;
        changed_state = 0;
    }
}

static void poll_once(struct gp_ringread *reader, ssize_t want, uint32_t damaged)
{
    const struct gp_wire_event *events;
    struct gp_ringread_stats s;
    cr_expect_eq(gp_ringread_poll(reader, UINT64_MAX, &events), want);
    gp_ringread_stats(reader, &s);
    cr_expect_eq(s.damaged_chunks, damaged);
}

/* The second look shows a word that cannot be: the chunk is damaged, and its events are not given. */
Test(ringread_faults, a_chunk_that_breaks_between_two_looks)
{
    static const uint64_t states[] = {5, GP_CHUNK_STATE(1, 0, 64), GP_CHUNK_STATE(2, 0, 3)};
    for (unsigned i = 0; i < 3; i++) {
        struct gp_ringread *reader;
        ring_new();
        write_events(CHUNKS, 10);
        cr_assert_eq(gp_ringread_new(&reader, copy, ring, CHUNKS, GP_RINGREAD_OLDEST), 0);
        copied = change;
        changed_state = states[i];
        poll_once(reader, 0, 1);
        ring[0].state = GP_CHUNK_STATE(1, 0, 20);
        poll_once(reader, 0, 1); /* it is never read again */
        gp_ringread_free(reader);
    }
}

/* A chunk with events behind those of the first look, and one with another turn, are read as they are then. */
Test(ringread_faults, a_chunk_that_goes_on_between_two_looks)
{
    struct gp_ringread *reader;
    ring_new();
    write_events(CHUNKS, 10);
    cr_assert_eq(gp_ringread_new(&reader, copy, ring, CHUNKS, GP_RINGREAD_OLDEST), 0);
    copied = change;
    changed_state = GP_CHUNK_STATE(1, 0, 63);
    poll_once(reader, 10, 0);
    for (unsigned i = 10; i < 63; i++)
        ring[0].events[i] = (struct gp_wire_event){.seq = i, .type = GP_EVENT_FREE, .kind = GP_KIND_LINEAR};
    poll_once(reader, 53, 0);
    gp_ringread_free(reader);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void first_word(uint64_t state, uint64_t before, ssize_t given, uint32_t damaged)
{
    struct gp_ringread *reader;
    ring_new();
    ring[3].state = state;
    ring[3].written_before = before;
    for (unsigned i = 0; i < GP_RING_EVENTS; i++)
        ring[3].events[i] = (struct gp_wire_event){
            .seq = (GP_CHUNK_TURN(state) - 1) * GP_RING_EVENTS + i, .type = GP_EVENT_ALLOC, .kind = GP_KIND_LINEAR};
    cr_assert_eq(gp_ringread_new(&reader, copy, ring, CHUNKS, GP_RINGREAD_OLDEST), 0);
    poll_once(reader, given, damaged);
    gp_ringread_free(reader);
}

/* The counts that a chunk can have in its second turn. */
Test(ringread_faults, words_at_their_limits)
{
    first_word(GP_CHUNK_STATE(4, 0, 63), 0, 63, 0);
    first_word(GP_CHUNK_STATE(4, 0, 64), 0, 0, 1);
    first_word(GP_CHUNK_STATE(4, 1, 5), 0, 5, 0); /* another event is being written */
    first_word(GP_CHUNK_STATE(5, 0, 5), 0, 0, 1); /* a turn of another chunk */
    first_word(GP_CHUNK_STATE(4, 0, 5), 1, 0, 1); /* it had no turn before */
    first_word(GP_CHUNK_STATE(12, 0, 5), 63, 5, 0);
    first_word(GP_CHUNK_STATE(12, 0, 5), 64, 0, 1);
    first_word(GP_CHUNK_STATE(20, 0, 5), 126, 5, 0);
    first_word(GP_CHUNK_STATE(20, 0, 5), 127, 0, 1);
    first_word(0, 0, 0, 0);
    first_word(1, 0, 0, 1); /* an event without a turn */
    first_word(GP_CHUNK_STATE(0, 1, 0), 0, 0, 1);
    first_word(GP_CHUNK_STATE((1ull << 55) - 4, 0, 1), 1ull << 62, 0, 1);
    first_word(UINT64_MAX, UINT64_MAX, 0, 1);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static int pread_error;
static size_t pread_most;

ssize_t pread(int fd, void *into, size_t bytes, off_t at)
{
    if (pread_error) {
        errno = pread_error;
        pread_error = 0;
        return -1;
    }
    return syscall(SYS_pread64, fd, into, pread_most && bytes > pread_most ? pread_most : bytes, at);
}

/* Reads that are interrupted or short go on; others end the poll, and the next one goes on. */
Test(ringread_faults, reads_of_a_descriptor)
{
    struct gp_ringread *reader;
    const struct gp_wire_event *events;
    ring_new();
    write_events(CHUNKS, 100);
    int fd = memfd_create("ring", 0);
    cr_assert_eq(pwrite(fd, ring, CHUNKS * sizeof(ring[0]), 4096), (ssize_t)(CHUNKS * sizeof(ring[0])));
    cr_assert_eq(gp_ringread_new_fd(&reader, fd, 4096, CHUNKS, GP_RINGREAD_OLDEST), 0);
    pread_error = EIO;
    cr_expect_eq(gp_ringread_poll(reader, UINT64_MAX, &events), -EIO);
    pread_error = EINTR;
    pread_most = 24;
    cr_expect_eq(gp_ringread_poll(reader, UINT64_MAX, &events), 100);
    for (unsigned i = 0; i < 100; i++)
        cr_expect_eq(events[i].time_ns, 1000 + i);
    gp_ringread_free(reader);
    pread_error = EIO;
    cr_expect_eq(gp_ringread_new_fd(&reader, fd, 4096, CHUNKS, GP_RINGREAD_NOW), -EIO);
    cr_expect_null(reader);
    cr_expect_eq(gp_ringread_new_fd(&reader, fd, 4096, 3, GP_RINGREAD_NOW), -EINVAL);
    cr_expect_eq(gp_ringread_new_fd(&reader, fd, 4096 + CHUNKS * sizeof(ring[0]), CHUNKS, GP_RINGREAD_NOW), -EPROTO);
    close(fd);
}
