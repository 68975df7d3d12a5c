/* SPDX-License-Identifier: MIT
 * test_ring.c: the writing side of the event ring: turns, takeovers, losses, and its sums after a kill. */
#include "base/ring.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct test_ring {
    struct gp_ring ring;
    struct gp_wire_chunk *chunks;
    uint64_t lost;
};

static struct test_ring *gp_test_ring(uint32_t chunk_count)
{
    size_t bytes = chunk_count * sizeof(struct gp_wire_chunk);
    struct test_ring *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    t->chunks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_eq(gp_ring_init(&t->ring, t->chunks, chunk_count, &t->lost), 0);
    return t;
}

static int gp_test_write(struct test_ring *t, struct gp_ring_cursor *cursor, uint64_t bytes)
{
    struct gp_wire_event event = {.time_ns = bytes + 1, .address = ~bytes, .bytes = bytes, .type = GP_EVENT_ALLOC};
    event.site = 99;
    event.tid = 1; /* overwritten by the tid argument */
    return gp_ring_write(&t->ring, cursor, &event, 77);
}

Test(ring, arguments)
{
    struct test_ring *t = gp_test_ring(4);
    cr_assert_eq(gp_ring_init(NULL, t->chunks, 4, &t->lost), -EINVAL);
    cr_assert_eq(gp_ring_init(&t->ring, NULL, 4, &t->lost), -EINVAL);
    cr_assert_eq(gp_ring_init(&t->ring, t->chunks, 4, NULL), -EINVAL);
    cr_assert_eq(gp_ring_init(&t->ring, t->chunks, 0, &t->lost), -EINVAL);
    cr_assert_eq(gp_ring_init(&t->ring, t->chunks, 3, &t->lost), -EINVAL);
    cr_assert_eq(gp_ring_init(&t->ring, (void *)((char *)t->chunks + 8), 2, &t->lost), -EINVAL);
}

static unsigned resident(const struct test_ring *t, uint32_t chunk_count)
{
    unsigned char pages[4096];
    unsigned count = 0;
    cr_assert_eq(mincore(t->chunks, chunk_count * sizeof(struct gp_wire_chunk), pages), 0);
    for (uint32_t i = 0; i < chunk_count; i++)
        count += pages[i] & 1;
    return count;
}

Test(ring, a_chunk_without_events_takes_no_memory)
{
    struct test_ring *t = gp_test_ring(4096);
    struct gp_ring_cursor cursor = {0};
    for (uint64_t i = 0; i < GP_RING_EVENTS + 1; i++)
        cr_assert_eq(gp_test_write(t, &cursor, i), 0);
    cr_assert_eq(gp_ring_written(&t->ring), GP_RING_EVENTS + 1);
    cr_assert_eq(resident(t, 4096), 2);
}

Test(ring, a_thread_fills_chunk_after_chunk)
{
    struct test_ring *t = gp_test_ring(4);
    struct gp_ring_cursor cursor = {0};
    for (uint64_t i = 0; i < 4 * GP_RING_EVENTS; i++) {
        cr_assert_eq(gp_test_write(t, &cursor, i), 0);
        cr_assert_eq(gp_ring_written(&t->ring), i + 1);
        const struct gp_wire_chunk *chunk = &t->chunks[i / GP_RING_EVENTS];
        const struct gp_wire_event *event = &chunk->events[i % GP_RING_EVENTS];
        cr_assert_eq(chunk->state, GP_CHUNK_STATE(i / GP_RING_EVENTS + 1, 0, i % GP_RING_EVENTS + 1));
        cr_assert_eq(chunk->tid, 77);
        cr_assert_eq(event->seq, i);
        cr_assert_eq(event->time_ns, i + 1);
        cr_assert_eq(event->address, ~i);
        cr_assert_eq(event->bytes, i);
        cr_assert_eq(event->tid, 77);
        cr_assert_eq(event->site, 99);
        cr_assert_eq(event->type, GP_EVENT_ALLOC);
    }
}

Test(ring, the_circle_overwrites_the_oldest_and_keeps_the_sum)
{
    struct test_ring *t = gp_test_ring(2);
    struct gp_ring_cursor cursor = {0};
    const uint64_t n = 10 * GP_RING_EVENTS + 5;
    for (uint64_t i = 0; i < n; i++)
        gp_test_write(t, &cursor, i);
    cr_assert_eq(gp_ring_written(&t->ring), n);
    cr_assert_eq(t->chunks[0].state, GP_CHUNK_STATE(11, 0, 5));
    cr_assert_eq(t->chunks[0].written_before, 5 * GP_RING_EVENTS);
    cr_assert_eq(t->chunks[1].state, GP_CHUNK_STATE(10, 0, GP_RING_EVENTS));
    cr_assert_eq(t->chunks[1].written_before, 4 * GP_RING_EVENTS);
    cr_assert_eq(t->chunks[0].events[4].seq, n - 1);
}

/* Two threads take turns; the second one reaches the chunk of the first one again. */
Test(ring, an_idle_owner_notices_that_its_chunk_was_taken)
{
    struct test_ring *t = gp_test_ring(2);
    struct gp_ring_cursor idle = {0}, busy = {0};
    cr_assert_eq(gp_test_write(t, &idle, 0), 0);
    for (uint64_t i = 0; i < 2 * GP_RING_EVENTS; i++)
        cr_assert_eq(gp_test_write(t, &busy, i), 0);
    cr_assert_eq(t->chunks[0].written_before, 1);
    cr_assert_eq(gp_test_write(t, &idle, 0), 0);
    cr_assert_eq(idle.turn, 4);
    cr_assert_eq(idle.used, 1);
    cr_assert_eq(gp_ring_written(&t->ring), 2 * GP_RING_EVENTS + 2);
}

Test(ring, a_busy_chunk_is_skipped)
{
    struct test_ring *t = gp_test_ring(4);
    struct gp_ring_cursor cursor = {0};
    t->chunks[1].state = GP_CHUNK_STATE(2, 1, 3); /* its owner was stopped during its fourth event */
    t->ring.x_next = 2;
    for (uint64_t i = 0; i < 20 * GP_RING_EVENTS; i++)
        cr_assert_eq(gp_test_write(t, &cursor, i), 0);
    cr_assert_eq(t->chunks[1].state, GP_CHUNK_STATE(2, 1, 3));
    cr_assert_eq(t->chunks[1].written_before, 0);
    cr_assert_eq(gp_ring_written(&t->ring), 20 * GP_RING_EVENTS + 3);
    cr_assert_eq(t->lost, 0);
}

Test(ring, an_overtaken_sequence_takes_nothing)
{
    struct test_ring *t = gp_test_ring(2);
    struct gp_ring_cursor cursor = {0};
    t->chunks[0].state =
        GP_CHUNK_STATE(101, 0, 7); /* other threads went round fifty times since this thread's fetch_add */
    cr_assert_eq(gp_test_write(t, &cursor, 1), 0);
    cr_assert_eq(t->chunks[0].state, GP_CHUNK_STATE(101, 0, 7));
    cr_assert_eq(t->chunks[1].state, GP_CHUNK_STATE(2, 0, 1));
}

Test(ring, tried_is_written_plus_lost)
{
    struct test_ring *t = gp_test_ring(2);
    struct gp_ring_cursor cursor = {0};
    uint64_t written = 0, dropped = 0, tried = 0;
    for (unsigned round = 0; round < 50; round++) {
        uint64_t saved[2] = {t->chunks[0].state, t->chunks[1].state};
        for (unsigned i = 0; i < 2; i++)
            t->chunks[i].state |= GP_CHUNK_STATE(0, 1, 0);
        for (unsigned i = 0; i < 30; i++, tried++) {
            int rc = gp_test_write(t, &cursor, i);
            cr_assert_eq(rc, -EAGAIN);
            dropped++;
        }
        t->chunks[0].state = saved[0];
        t->chunks[1].state = saved[1];
        for (unsigned i = 0; i < 100; i++, tried++)
            written += gp_test_write(t, &cursor, i) == 0;
        cr_assert_eq(gp_ring_written(&t->ring), written);
        cr_assert_eq(t->lost, dropped);
        cr_assert_eq(tried, written + t->lost);
    }
}

/* Two writers in a child that is killed at any instruction: the ring's count of written events
 * equals the number of returned writes, or is higher by one for each writer that was killed before
 * its write returned. */
struct test_victim {
    struct test_ring *t;
    uint64_t *returned;
};

static void *gp_test_victim(void *arg)
{
    struct test_victim *victim = arg;
    struct gp_ring_cursor cursor = {0};
    for (;;)
        if (gp_test_write(victim->t, &cursor, 1) == 0)
            __atomic_fetch_add(victim->returned, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

Test(ring, the_sum_survives_a_kill, .timeout = 60)
{
    uint64_t *returned = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned seed = 1;
    for (unsigned round = 0; round < 150; round++) {
        struct test_ring *t = gp_test_ring(1u << round % 3);
        *returned = 0;
        pid_t child = fork();
        if (child == 0) {
            struct test_victim victim = {t, returned};
            pthread_t other;
            pthread_create(&other, NULL, gp_test_victim, &victim);
            gp_test_victim(&victim);
        }
        while (__atomic_load_n(returned, __ATOMIC_SEQ_CST) == 0)
            usleep(50);
        usleep((useconds_t)(rand_r(&seed) % 3000));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        uint64_t written = gp_ring_written(&t->ring);
        cr_assert(written >= *returned && written <= *returned + 2, "written %lu, returned %lu", (unsigned long)written,
                  (unsigned long)*returned);
        munmap(t->chunks, t->ring.chunk_count * sizeof *t->chunks);
        munmap(t, sizeof *t);
    }
}

/* Not in sanitizer builds: the sanitizers' own memory and system calls would be counted. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

/* Strict seccomp kills the process at its first system call other than exit. */
Test(ring, a_write_makes_no_system_call)
{
    struct test_ring *t = gp_test_ring(4);
    pid_t child = fork();
    if (child == 0) {
        struct gp_ring_cursor cursor = {0};
        int bad = 0;
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        for (unsigned i = 0; i < 100000; i++)
            bad |= gp_test_write(t, &cursor, i);
        syscall(SYS_exit, bad != 0);
    }
    int status;
    waitpid(child, &status, 0);
    cr_assert_eq(status, 0, "status %#x", status);
    cr_assert_eq(gp_ring_written(&t->ring), 100000);
}

#endif
