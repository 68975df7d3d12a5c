/* SPDX-License-Identifier: MIT
 *
 * testcache.h: one caching allocator on the device that checks every call (fakedev.h), and one line for each thing that
 * tests do with it.
 */
#ifndef GP_TEST_LIB_TESTCACHE_H
#define GP_TEST_LIB_TESTCACHE_H

#include "cache/policy.h"
#include "lib/cachecheck.h"
#include "lib/fakedev.h"
#include <criterion/criterion.h>

#define MIB    (1ull << 20)
#define STREAM 2 /* of those who need only one */

static struct fakedev dev;

/* conf: NULL, or the policy's options. */
static inline struct gp_policy cache_policy(const char *name, const char *conf)
{
    struct gp_policy policy = *gp_policy_find(name);
    char why[192];
    if (conf)
        cr_assert_eq(gp_policy_configure(&policy, conf, why, sizeof why), 0, "%s", why);
    return policy;
}

static inline void cache_device(uint64_t capacity)
{
    cr_assert_eq(fakedev_init(&dev, capacity, 2 * MIB), 0);
    for (unsigned stream = STREAM; stream <= 10; stream++)
        fakedev_stream_open(&dev, stream);
}

static inline struct gp_cache *cache_open(const struct gp_policy *policy, uint64_t capacity)
{
    struct gp_cache *cache = NULL;
    cache_device(capacity);
    struct gp_cache_setup setup = {.policy = policy, .backend = fakedev_backend(&dev)};
    cr_assert_eq(gp_cache_new(&cache, &setup), 0);
    return cache;
}

static inline struct gp_grant cache_grant(struct gp_cache *cache, uint64_t bytes, uint64_t stream, unsigned shard)
{
    struct gp_request request = {.bytes = bytes, .stream = stream, .shard = shard};
    struct gp_grant grant = {0};
    cr_assert_eq(gp_cache_alloc(cache, &request, &grant), 0);
    cr_assert(grant.requested_bytes == bytes && grant.bytes >= bytes && grant.stream == stream);
    return grant;
}

static inline uint64_t cache_take(struct gp_cache *cache, uint64_t bytes)
{
    return cache_grant(cache, bytes, STREAM, 1).address;
}

static inline void cache_give(struct gp_cache *cache, uint64_t address)
{
    cr_assert(gp_cache_release(cache, address, GP_FREE_ORDERED, 1, NULL));
}

static inline void cache_sound(struct gp_cache *cache)
{
    char why[192];
    cr_assert_eq(cache_check(cache, why, sizeof why), 0, "%s", why);
    cr_assert_eq(dev.faults, 0, "%s", dev.fault);
}

static inline void cache_close(struct gp_cache *cache)
{
    cache_sound(cache);
    gp_cache_free(cache);
    cr_expect_eq(dev.faults, 0, "%s", dev.fault);
    fakedev_fini(&dev);
}

#endif
