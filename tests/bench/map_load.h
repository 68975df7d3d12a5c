/* SPDX-License-Identifier: MIT
 *
 * map_load.h: the load that every compared pointer map runs, in C and C++.  Used by bench_map.c and
 * cxx/bench_map_std.cc.
 *
 * TSV: name, threads, ns.  For each number of live records:
 *      NAME.LIVE.same.p50    an allocation that is freed at once: insert a new key, remove it
 *      NAME.LIVE.random.p50  insert a new key, remove a random live one, which is in no CPU cache
 *      ... .p99              of single pairs, minus the two clock readings around a pair
 *      ... .mean             of a loop without clock readings in it
 *      NAME.LIVE.grow.max    longest single insert while growing from empty.  Every repetition inserts
 *                            the same keys, and each insert counts with its least CPU time, so the
 *                            figure shows the map and not the machine.
 */
#ifndef GP_TEST_BENCH_MAP_LOAD_H
#define GP_TEST_BENCH_MAP_LOAD_H

#include "bench/count.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BENCH_PAIRS        BENCH_COUNT(400000u, 1000u)
#define BENCH_GROWTHS      BENCH_COUNT(5, 1)
#define BENCH_THREADS_MAX  64u
#define BENCH_KEY(_number) (0x7f0000000000ull + (uint64_t)(_number)*512)

struct bench_map_api {
    const char *name;
    void *(*create)(uint64_t limit);
    void (*destroy)(void *map);
    void (*insert)(void *map, uint64_t key);
    void (*take)(void *map, uint64_t key);
};

struct bench_map_thread {
    const struct bench_map_api *api;
    void *map;
    pthread_barrier_t *start;
    uint64_t live, next, random, id;
    uint64_t *keys;
    uint32_t *ns; /* BENCH_PAIRS */
    double mean_ns;
    int same;
};

static inline uint64_t bench_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static inline uint64_t bench_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static int bench_less_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static inline void bench_map_pair(struct bench_map_thread *t, uint64_t key, uint64_t *victim)
{
    t->api->insert(t->map, key);
    t->api->take(t->map, t->same ? key : *victim);
    if (!t->same)
        *victim = key;
}

static void *bench_map_worker(void *arg)
{
    struct bench_map_thread *t = (struct bench_map_thread *)arg;
    pthread_barrier_wait(t->start);
    for (uint32_t i = 0; i < BENCH_PAIRS; i++) {
        uint64_t *victim = &t->keys[bench_random(&t->random) % t->live];
        uint64_t key = BENCH_KEY(t->id << 28 | t->next++);
        __atomic_load_n(victim, __ATOMIC_RELAXED); /* the list of victims is the load's, not the map's */
        uint64_t begin = bench_clock(CLOCK_MONOTONIC);
        bench_map_pair(t, key, victim);
        t->ns[i] = (uint32_t)(bench_clock(CLOCK_MONOTONIC) - begin);
    }
    pthread_barrier_wait(t->start);
    uint64_t begin = bench_clock(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < BENCH_PAIRS; i++)
        bench_map_pair(t, BENCH_KEY(t->id << 28 | t->next++), &t->keys[bench_random(&t->random) % t->live]);
    t->mean_ns = (double)(bench_clock(CLOCK_MONOTONIC) - begin) / BENCH_PAIRS;
    return NULL;
}

static inline uint32_t bench_clock_cost(void)
{
    static uint32_t ns[10001];
    for (int i = 0; i < 10001; i++) {
        uint64_t begin = bench_clock(CLOCK_MONOTONIC);
        ns[i] = (uint32_t)(bench_clock(CLOCK_MONOTONIC) - begin);
    }
    qsort(ns, 10001, sizeof ns[0], bench_less_u32);
    return ns[5000];
}

static inline void bench_map_pairs(const struct bench_map_api *api, uint64_t live, unsigned threads, int same)
{
    struct bench_map_thread each[BENCH_THREADS_MAX];
    pthread_t ids[BENCH_THREADS_MAX];
    pthread_barrier_t start;
    uint32_t *ns = (uint32_t *)malloc(sizeof *ns * BENCH_PAIRS * threads);
    uint32_t clock_ns = bench_clock_cost();
    void *map = api->create(live * 2 + 1000);
    double mean = 0;
    pthread_barrier_init(&start, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        struct bench_map_thread *t = &each[i];
        t->api = api;
        t->map = map;
        t->start = &start;
        t->live = live / threads;
        t->next = 0;
        t->id = t->random = i + 1;
        t->same = same;
        t->ns = ns + (size_t)i * BENCH_PAIRS;
        t->keys = (uint64_t *)malloc(t->live * sizeof *t->keys);
        for (uint64_t k = 0; k < t->live; k++)
            api->insert(map, t->keys[k] = BENCH_KEY(t->id << 28 | t->next++));
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, bench_map_worker, &each[i]);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        mean += each[i].mean_ns / threads;
        free(each[i].keys);
    }
    qsort(ns, (size_t)BENCH_PAIRS * threads, sizeof ns[0], bench_less_u32);
    const char *how = same ? "same" : "random";
    uint32_t p50 = ns[(size_t)BENCH_PAIRS * threads / 2], p99 = ns[(size_t)BENCH_PAIRS * threads / 100 * 99];
    printf("%s.%lu.%s.p50\t%u\t%d\n", api->name, (unsigned long)live, how, threads, (int)p50 - (int)clock_ns);
    printf("%s.%lu.%s.p99\t%u\t%d\n", api->name, (unsigned long)live, how, threads, (int)p99 - (int)clock_ns);
    printf("%s.%lu.%s.mean\t%u\t%.1f\n", api->name, (unsigned long)live, how, threads, mean);
    fflush(stdout);
    free(ns);
    api->destroy(map);
}

static inline void bench_map_growth(const struct bench_map_api *api, uint64_t live)
{
    uint32_t *least = (uint32_t *)malloc(live * sizeof *least), longest = 0;
    for (int r = 0; r < BENCH_GROWTHS; r++) {
        void *map = api->create(live);
        for (uint64_t i = 0; i < live; i++) {
            uint64_t begin = bench_clock(CLOCK_THREAD_CPUTIME_ID);
            api->insert(map, BENCH_KEY(i));
            uint32_t ns = (uint32_t)(bench_clock(CLOCK_THREAD_CPUTIME_ID) - begin);
            least[i] = r == 0 || ns < least[i] ? ns : least[i];
        }
        api->destroy(map);
    }
    for (uint64_t i = 0; i < live; i++)
        longest = least[i] > longest ? least[i] : longest;
    printf("%s.%lu.grow.max\t1\t%u\n", api->name, (unsigned long)live, longest);
    fflush(stdout);
    free(least);
}

static inline void bench_map_all(const struct bench_map_api *api, unsigned most_threads)
{
    static const uint64_t lives[] = {1000, BENCH_COUNT(100000, 2000), BENCH_COUNT(1000000, 3000)};
    for (unsigned i = 0; i < sizeof lives / sizeof lives[0]; i++) {
        for (unsigned threads = 1; threads <= most_threads && threads <= BENCH_THREADS_MAX; threads *= 2) {
            bench_map_pairs(api, lives[i], threads, 1);
            bench_map_pairs(api, lives[i], threads, 0);
        }
        bench_map_growth(api, lives[i]);
    }
}

#endif
