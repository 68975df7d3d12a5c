/* SPDX-License-Identifier: MIT
 *
 * random.h: the one source of random numbers of the tests (Marsaglia's xorshift64, and splitmix64).  The same numbers in every
 * run.
 */
#ifndef GP_TEST_LIB_RANDOM_H
#define GP_TEST_LIB_RANDOM_H

#include <stdint.h>

#define RANDOM_SEED 88172645463325252ull

/* Splitmix64: of any state, 0 too. */
static inline uint64_t random_mix(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* A state must not be 0. */
static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline unsigned random_below(uint64_t *state, unsigned below)
{
    return (unsigned)(random_next(state) >> 33) % below;
}

/* A sequence of the test's own for each of its threads, in the order in which they begin to draw. */
static inline unsigned draw_below(unsigned below)
{
    static uint64_t threads;
    static __thread uint64_t state;
    if (!state)
        state = RANDOM_SEED ^ __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) << 32;
    return random_below(&state, below);
}

#endif
