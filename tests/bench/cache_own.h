/* SPDX-License-Identifier: MIT
 * cache_own.h: our cache as a contender, over a driver that costs nothing.  Used by bench_cache.c,
 * and by peer/cache_bare.c, which is the same cache without its statistics. */
#ifndef GP_TEST_BENCH_CACHE_OWN_H
#define GP_TEST_BENCH_CACHE_OWN_H

#include "bench/cache_bump.h"
#include "bench/cache_load.h"
#include "cache/cache.h"
#include "cache/policy.h"

/* ---- contenders ------------------------------------------------------------------------------------------------- */

static void *cache_create(const char *policy)
{
    struct gp_cache *cache;
    struct gp_cache_setup setup = {
        .policy = gp_policy_find(policy),
        .backend = BUMP_BACKEND,
    };
    if (!setup.policy || gp_cache_new(&cache, &setup) != 0)
        abort();
    return cache;
}

static void *caching_create(void)
{
    return cache_create("caching");
}

static inline void *pytorch_create(void)
{
    return cache_create("pytorch");
}

static void cache_destroy(void *cache)
{
    gp_cache_free((struct gp_cache *)cache);
}

static uint64_t cache_alloc(void *cache, uint64_t bytes, uint64_t stream, unsigned thread)
{
    struct gp_request request = {.bytes = bytes, .stream = stream, .shard = thread + 1};
    struct gp_grant grant;
    if (gp_cache_alloc((struct gp_cache *)cache, &request, &grant) != 0)
        abort();
    return grant.address;
}

static void cache_free(void *cache, uint64_t address, uint64_t stream, unsigned thread)
{
    (void)stream;
    if (!gp_cache_release((struct gp_cache *)cache, address, GP_FREE_ORDERED, thread + 1, NULL))
        abort();
}

static uint64_t cache_calls(void *cache)
{
    (void)cache;
    return __atomic_load_n(&bump_calls, __ATOMIC_RELAXED);
}

#endif
