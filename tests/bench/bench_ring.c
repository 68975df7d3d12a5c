/* SPDX-License-Identifier: MIT
 *
 * bench_ring.c: the cost of one event for its thread.  TSV: name, threads, ns per event and thread
 * (median of the repetitions). `ring.write` is only the ring, `ring.event` takes the event's time
 * stamp too, as every caller must and as LTTng does: compare that one with
 * tests/bench/bench_ring_lttng.sh, which runs both. */
#include "base/clock.h"
#include "base/ring.h"
#include "bench/count.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define BENCH_CHUNKS      256u /* 1 MiB: about what a session has */
#define BENCH_EVENTS      BENCH_COUNT(3000000u, 3000u)
#define BENCH_REPETITIONS BENCH_COUNT(7, 1)
#define BENCH_THREADS_MAX 64u

struct bench {
    struct gp_ring ring;
    pthread_barrier_t start;
    bool stamp;
};

struct bench_thread {
    struct bench *bench;
    uint32_t id;
    double ns;
};

static void *bench_writer(void *arg)
{
    struct bench_thread *thread = arg;
    struct bench *bench = thread->bench;
    struct gp_ring_cursor cursor = {0};
    struct gp_wire_event event = {.type = GP_EVENT_ALLOC, .kind = GP_KIND_LINEAR, .stream = 7, .site = 3};
    pthread_barrier_wait(&bench->start);
    uint64_t begin = gp_clock_ns();
    for (uint64_t i = 0; i < BENCH_EVENTS; i++) {
        event.time_ns = bench->stamp ? gp_clock_ns() : i;
        event.address = 0x7f0000000000ull + i * 512;
        event.bytes = event.requested_bytes = i;
        gp_ring_write(&bench->ring, &cursor, &event, thread->id);
    }
    thread->ns = (double)(gp_clock_ns() - begin) / BENCH_EVENTS;
    return NULL;
}

static int bench_less(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void bench_run(struct bench *bench, const char *name, unsigned threads, bool stamp)
{
    double ns[BENCH_REPETITIONS];
    bench->stamp = stamp;
    for (int r = 0; r < BENCH_REPETITIONS; r++) {
        struct bench_thread each[BENCH_THREADS_MAX];
        pthread_t ids[BENCH_THREADS_MAX];
        pthread_barrier_init(&bench->start, NULL, threads);
        ns[r] = 0;
        for (unsigned i = 0; i < threads; i++) {
            each[i] = (struct bench_thread){.bench = bench, .id = i + 1};
            pthread_create(&ids[i], NULL, bench_writer, &each[i]);
        }
        for (unsigned i = 0; i < threads; i++) {
            pthread_join(ids[i], NULL);
            ns[r] += each[i].ns / threads;
        }
        pthread_barrier_destroy(&bench->start);
    }
    qsort(ns, BENCH_REPETITIONS, sizeof ns[0], bench_less);
    printf("%s\t%u\t%.1f\n", name, threads, ns[BENCH_REPETITIONS / 2]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    static uint64_t lost;
    unsigned most = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    void *chunks = mmap(NULL, BENCH_CHUNKS * sizeof(struct gp_wire_chunk), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (chunks == MAP_FAILED || gp_ring_init(&bench.ring, chunks, BENCH_CHUNKS, &lost) < 0)
        return 1;
    for (unsigned threads = 1; threads <= most && threads <= BENCH_THREADS_MAX; threads *= 2) {
        bench_run(&bench, "ring.write", threads, false);
        bench_run(&bench, "ring.event", threads, true);
    }
    return 0;
}
