/* SPDX-License-Identifier: MIT
 *
 * inorder_oracle.h: a thread fills a small ring, and a reader with a horizon polls it without a pause.
 *
 * In all that the reader returns, over all polls, the thread's events come in the order in which it wrote them. What is
 * tested is the moment in which the thread goes from one chunk to the next: how long its last commit stays invisible is up
 * to the processor, so there is no window to widen, but many moments.
 */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/ring.h"
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* The reader belongs to the recorder, which torture programs do not link. */
#include "base/text.c"
#include "record/ringread.c"

/* A visit of all chunks takes about as long as the writer takes for one. */
#define INORDER_CHUNKS 8u

struct inorder_tally {
    uint64_t polls, events, chunks, wrong;
};

static struct gp_wire_chunk inorder_chunks[INORDER_CHUNKS] __attribute__((aligned(4096)));
static uint32_t x_inorder_stop;

void gp_testpoint(const char *name)
{
    (void)name;
}

static int inorder_copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    const uint64_t *from = (const uint64_t *)(const void *)((const char *)inorder_chunks + offset);
    uint64_t *words = into;
    (void)arg;
    for (size_t i = 0; i < bytes / 8; i++)
        words[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
    return 0;
}

static cpu_set_t inorder_processors(void)
{
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        exit(2);
    return all;
}

/* Binds the calling thread to the last or the first of its processors: two threads on one processor
 * see each other's stores in order, and on a loaded machine they may stay there. */
static void inorder_bind(bool is_last)
{
    cpu_set_t all = inorder_processors(), one;
    int chosen = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE && (chosen < 0 || is_last); cpu++)
        if (CPU_ISSET(cpu, &all))
            chosen = cpu;
    CPU_ZERO(&one);
    CPU_SET(chosen, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0)
        exit(2);
}

static void *inorder_write(void *arg)
{
    inorder_bind(true);
    struct gp_ring *ring = arg;
    struct gp_ring_cursor cursor = {0};
    for (uint64_t number = 1; !__atomic_load_n(&x_inorder_stop, __ATOMIC_RELAXED); number++) {
        struct gp_wire_event event = {.type = GP_EVENT_ALLOC, .device = 255, .bytes = number, .time_ns = gp_clock_ns()};
        uint64_t words[GP_RING_WORDS];
        memcpy(words, &event, sizeof(words));
        if (gp_ring_put(ring, cursor.turn, cursor.used, words))
            cursor.used++;
        else
            gp_ring_write(ring, &cursor, &event, 1);
    }
    return NULL;
}

/* Until the end, or the first event that comes after a later one. */
static struct inorder_tally inorder_run(uint64_t end_ns)
{
    struct inorder_tally tally = {0};
    struct gp_ring ring;
    struct gp_ringread *reader;
    const struct gp_wire_event *events;
    pthread_t writer;
    uint64_t lost = 0, last = 0, now;
    if (gp_ring_init(&ring, inorder_chunks, INORDER_CHUNKS, &lost) != 0 ||
        gp_ringread_new(&reader, inorder_copy, NULL, INORDER_CHUNKS, GP_RINGREAD_OLDEST) != 0)
        exit(2);
    pthread_create(&writer, NULL, inorder_write, &ring);
    inorder_bind(false);
    while (!tally.wrong && (now = gp_clock_ns()) < end_ns) {
        ssize_t count = gp_ringread_poll(reader, now, &events);
        for (ssize_t i = 0; i < count; i++) {
            tally.wrong += events[i].bytes <= last;
            tally.chunks += events[i].seq % GP_RING_EVENTS == GP_RING_EVENTS - 1;
            last = events[i].bytes;
        }
        tally.events += (uint64_t)count;
        tally.polls++;
    }
    __atomic_store_n(&x_inorder_stop, 1, __ATOMIC_RELAXED);
    pthread_join(writer, NULL);
    gp_ringread_free(reader);
    return tally;
}
