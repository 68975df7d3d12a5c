/* SPDX-License-Identifier: MIT
 * bench_lttng.c: the events of bench_ring.c through an LTTng-UST tracepoint.  Built and run by
 * bench_ring_lttng.sh, which has a session record it; the same TSV. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "gpuprof_bench_tp.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BENCH_EVENTS      3000000u
#define BENCH_REPETITIONS 7
#define BENCH_THREADS_MAX 64u

static pthread_barrier_t bench_start;
static double bench_ns[BENCH_THREADS_MAX];

static uint64_t bench_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void *bench_writer(void *arg)
{
    uint32_t id = (uint32_t)(uintptr_t)arg;
    pthread_barrier_wait(&bench_start);
    uint64_t begin = bench_clock();
    for (uint64_t i = 0; i < BENCH_EVENTS; i++)
        lttng_ust_tracepoint(gpuprof_bench, event, 0x7f0000000000ull + i * 512, i, i, 7, id, 3, 1, 1, 0, 0);
    bench_ns[id] = (double)(bench_clock() - begin) / BENCH_EVENTS;
    return NULL;
}

static int bench_less(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    unsigned most = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    if (!lttng_ust_tracepoint_enabled(gpuprof_bench, event)) {
        fprintf(stderr, "the tracepoint is not enabled: this would measure nothing\n");
        return 1;
    }
    for (unsigned threads = 1; threads <= most && threads < BENCH_THREADS_MAX; threads *= 2) {
        double ns[BENCH_REPETITIONS] = {0};
        for (int r = 0; r < BENCH_REPETITIONS; r++) {
            pthread_t ids[BENCH_THREADS_MAX];
            pthread_barrier_init(&bench_start, NULL, threads);
            for (unsigned i = 0; i < threads; i++)
                pthread_create(&ids[i], NULL, bench_writer, (void *)(uintptr_t)i);
            for (unsigned i = 0; i < threads; i++) {
                pthread_join(ids[i], NULL);
                ns[r] += bench_ns[i] / threads;
            }
            pthread_barrier_destroy(&bench_start);
        }
        qsort(ns, BENCH_REPETITIONS, sizeof ns[0], bench_less);
        printf("lttng.event\t%u\t%.1f\n", threads, ns[BENCH_REPETITIONS / 2]);
        fflush(stdout);
    }
    return 0;
}
