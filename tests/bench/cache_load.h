/* SPDX-License-Identifier: MIT
 * cache_load.h: the one load for every caching allocator that is compared, in C and C++.  Used by
 * bench_cache.c, which measures, and by cxx/bench_cub.cc, a peer that it loads.
 *
 * The load: `live` blocks are held per thread; one pair frees a random one and allocates another in
 * its place.  Sizes are powers of two from 512 B to 512 KiB, or uniform from 1 B to 1 MiB. */
#ifndef GP_TEST_BENCH_CACHE_LOAD_H
#define GP_TEST_BENCH_CACHE_LOAD_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct bench_cache_api {
    const char *name;
    void *(*create)(void);
    void (*destroy)(void *cache);
    /* thread: 0, 1 ... of the caller; stream: which of its streams.  Aborts rather than fail. */
    uint64_t (*alloc)(void *cache, uint64_t bytes, uint64_t stream, unsigned thread);
    void (*free)(void *cache, uint64_t address, uint64_t stream, unsigned thread);
    uint64_t (*driver_calls)(void *cache); /* so far, those that take or give memory */
};

/* The exports of a peer's library. */
#define BENCH_CACHE_PEER "bench_cache_peer"

struct bench_cache_hand {
    const struct bench_cache_api *api;
    void *cache;
    pthread_barrier_t *gate;
    uint64_t *slots;
    uint64_t live, stream, random;
    uint32_t pairs;
    unsigned thread;
    int uniform;
    double ns;
};

/* splitmix64: about a nanosecond, which the contender "empty" shows. */
static inline uint64_t bench_cache_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static inline uint64_t bench_cache_size(uint64_t random, int uniform)
{
    return uniform ? 1 + (random & 0xfffff) : 512ull << (random & 0xffff) * 11 / 0x10000;
}

static inline void bench_cache_fill(struct bench_cache_hand *hand)
{
    for (uint64_t i = 0; i < hand->live; i++) {
        uint64_t size = bench_cache_size(bench_cache_random(&hand->random), hand->uniform);
        hand->slots[i] = hand->api->alloc(hand->cache, size, hand->stream, hand->thread);
    }
}

static inline void bench_cache_pairs(struct bench_cache_hand *hand, uint32_t pairs)
{
    const struct bench_cache_api *api = hand->api;
    for (uint32_t i = 0; i < pairs; i++) {
        uint64_t random = bench_cache_random(&hand->random);
        uint64_t *slot = &hand->slots[(random >> 32) * hand->live >> 32];
        api->free(hand->cache, *slot, hand->stream, hand->thread);
        *slot = api->alloc(hand->cache, bench_cache_size(random, hand->uniform), hand->stream, hand->thread);
    }
}

static inline void *bench_cache_hand_main(void *arg)
{
    struct bench_cache_hand *hand = (struct bench_cache_hand *)arg;
    struct timespec from, to;
    pthread_barrier_wait(hand->gate);
    clock_gettime(CLOCK_MONOTONIC, &from);
    bench_cache_pairs(hand, hand->pairs);
    clock_gettime(CLOCK_MONOTONIC, &to);
    hand->ns = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / hand->pairs;
    return NULL;
}

#endif
