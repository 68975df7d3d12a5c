/* SPDX-License-Identifier: MIT
 *
 * test_cache_bounds.c: bounds of the caching allocator that random operations reach too seldom: how much a garbage
 * collection gives back, and in which order, and what a device reset leaves behind.
 */
#include "allocator/cache/policy.h"
#include "lib/fakedev.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#define MIB (1ull << 20)

static struct gp_cache *bounds_open(struct fakedev *dev, const char *name, const char *conf, uint64_t limit)
{
    struct gp_policy policy = *gp_policy_find(name);
    struct gp_cache *cache = NULL;
    char why[192];
    if (conf)
        cr_assert_eq(gp_policy_configure(&policy, conf, why, sizeof why), 0, "%s", why);
    cr_assert_eq(fakedev_init(dev, 1024 * MIB, 2 * MIB), 0);
    fakedev_stream_open(dev, 2);
    fakedev_stream_open(dev, 7);
    struct gp_cache_setup setup = {.policy = &policy, .backend = fakedev_backend(dev)};
    cr_assert_eq(gp_cache_new(&cache, &setup), 0);
    gp_cache_set_limit(cache, limit);
    return cache;
}

static uint64_t bounds_alloc_on(struct gp_cache *cache, uint64_t bytes, uint64_t stream)
{
    struct gp_request request = {.bytes = bytes, .stream = stream, .shard = 1};
    struct gp_grant grant = {0};
    cr_assert_eq(gp_cache_alloc(cache, &request, &grant), 0);
    return grant.address;
}

static uint64_t bounds_alloc(struct gp_cache *cache, uint64_t bytes)
{
    return bounds_alloc_on(cache, bytes, 2);
}

static void bounds_close(struct gp_cache *cache, struct fakedev *dev)
{
    char why[192];
    cr_expect_eq(gp_cache_check(cache, why, sizeof why), 0, "%s", why);
    gp_cache_free(cache);
    cr_expect_eq(dev->faults, 0, "%s", dev->fault);
    fakedev_fini(dev);
}

/* Idle segments of 20, 40 and 30 MiB, the oldest first, a live one of 200 MiB, and two for small blocks, one of them
 * idle and much older: it is neither given back nor counts for the age that is old. A collection that lacks EXCESS
 * bytes to its threshold gives back the oldest ones until it has as much, and not one more. */
Test(cache_bounds, a_collection_gives_back_the_oldest_until_it_is_enough)
{
    static const struct {
        int64_t excess;
        uint64_t freed;
    } cases[] = {
        {-1, 0},
        {0, 0},
        {1, 20 * MIB},
        {20 * MIB - 1, 20 * MIB},
        {20 * MIB, 20 * MIB},
        {20 * MIB + 1, 60 * MIB},
        {60 * MIB, 60 * MIB},
        {60 * MIB + 1, 90 * MIB},
        {90 * MIB, 90 * MIB},
    };
    static const uint64_t sizes[] = {20 * MIB, 40 * MIB, 30 * MIB, 200 * MIB};
    const uint64_t reserved = 294 * MIB;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fakedev dev = {0};
        uint64_t limit = 2 * (uint64_t)((int64_t)reserved - cases[i].excess), blocks[4];
        struct gp_cache *cache = bounds_open(&dev, "pytorch", "garbage_collection_threshold:0.5", limit);
        cr_assert(gp_cache_release(cache, bounds_alloc_on(cache, 512, 7), GP_FREE_ORDERED, 1, NULL));
        for (unsigned b = 0; b < 50; b++)
            bounds_alloc(cache, 512);
        for (unsigned b = 0; b < 4; b++)
            blocks[b] = bounds_alloc(cache, sizes[b]);
        for (unsigned b = 0; b < 3; b++) {
            cr_assert(gp_cache_release(cache, blocks[b], GP_FREE_ORDERED, 1, NULL));
            bounds_alloc(cache, 512); /* a block's age is the number of allocations since it was freed */
        }
        cr_assert_eq(dev.held, reserved);
        bounds_alloc(cache, 100 * MIB);
        cr_expect_eq(dev.held, reserved - cases[i].freed + 100 * MIB, "excess %lld: %lld MiB were given back",
                     (long long)cases[i].excess, (long long)((reserved + 100 * MIB - dev.held) / MIB));
        bounds_close(cache, &dev);
    }
}

/* A segment is as old as the last free of any of its blocks, in whichever order its blocks were freed: here one is freed
 * in part, then another as a whole, then the rest of the first. A collection takes the second one alone. */
Test(cache_bounds, a_segment_is_as_old_as_its_last_free)
{
    static const unsigned orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (unsigned order = 0; order < 6; order++) {
        struct fakedev dev = {0};
        uint64_t blocks[6];
        struct gp_cache *cache = bounds_open(&dev, "pytorch", "garbage_collection_threshold:0.5", 84 * MIB - 2);
        bounds_alloc(cache, 512);
        for (unsigned b = 0; b < 6; b++) /* two segments of 20 MiB, each with three blocks and a rest */
            blocks[b] = bounds_alloc(cache, 6 * MIB);
        cr_assert_eq(dev.held, 42 * MIB);
        for (unsigned b = 0; b < 6; b++) {
            const unsigned turn[6] = {orders[order][0], orders[order][1], 3, 5, 4, orders[order][2]};
            cr_assert(gp_cache_release(cache, blocks[turn[b]], GP_FREE_ORDERED, 1, NULL));
            for (unsigned i = 0; i < 10; i++)
                bounds_alloc(cache, 512);
        }
        bounds_alloc(cache, 30 * MIB);
        cr_expect_eq(dev.held, 52 * MIB, "order %u: %llu MiB are held", order, dev.held / MIB);
        cr_expect(fakedev_holds(&dev, blocks[0], 6 * MIB), "order %u: the younger segment is gone", order);
        bounds_close(cache, &dev);
    }
}

/* The first chunk is a share of the device's free memory, again after a reset of the device. */
Test(cache_bounds, the_first_chunk_after_a_reset_is_the_first_again)
{
    struct fakedev dev = {0};
    struct gp_cache *cache = bounds_open(&dev, "prealloc", NULL, 0);
    bounds_alloc(cache, MIB);
    uint64_t first = dev.held;
    cr_assert_gt(first, 900 * MIB);
    gp_cache_forget(cache);
    fakedev_fini(&dev); /* the reset */
    cr_assert_eq(fakedev_init(&dev, 1024 * MIB, 2 * MIB), 0);
    fakedev_stream_open(&dev, 2);
    fakedev_stream_open(&dev, 7);
    bounds_alloc(cache, MIB);
    cr_expect_eq(dev.held, first);
    bounds_close(cache, &dev);
}

/* ---- a visit without memory for the addresses -------------------------------------------------------------------- */

struct bounds_seen {
    uint64_t sums[3], segments, blocks, rests;
};

static bool bounds_segment(void *arg, const struct gp_cache_segment *segment)
{
    struct bounds_seen *seen = arg;
    seen->sums[0] += segment->address;
    seen->sums[1] += segment->bytes;
    seen->segments++;
    return true;
}

static bool bounds_block(void *arg, const struct gp_cache_block *block)
{
    struct bounds_seen *seen = arg;
    seen->sums[2] += block->address * ((unsigned)block->state + 1) + block->bytes;
    seen->blocks++;
    return true;
}

static void bounds_rest(void *arg)
{
    ((struct bounds_seen *)arg)->rests++;
}

Test(cache_bounds, without_memory_the_visit_is_the_same)
{
    struct fakedev dev = {0};
    struct bounds_seen walked = {{0}, 0, 0, 0}, seen = walked, poor = walked;
    struct rlimit before, none;
    struct gp_cache *cache = bounds_open(&dev, "pytorch", NULL, 0);
    for (unsigned i = 0; i < 60; i++) {
        uint64_t block = bounds_alloc(cache, 512 + i * MIB / 3);
        if (i % 3 == 0)
            cr_assert(gp_cache_release(cache, block, GP_FREE_ORDERED, 1, NULL));
    }
    gp_cache_walk(cache, &walked, bounds_segment, bounds_block);
    gp_cache_iterate(cache, &seen, bounds_segment, bounds_block, bounds_rest);
    cr_assert_eq(getrlimit(RLIMIT_AS, &before), 0);
    none = before;
    none.rlim_cur = 1 << 20;
    cr_assert_eq(setrlimit(RLIMIT_AS, &none), 0);
    gp_cache_iterate(cache, &poor, bounds_segment, bounds_block, bounds_rest);
    cr_assert_eq(setrlimit(RLIMIT_AS, &before), 0);
    cr_expect(walked.segments > 20 && walked.blocks > 40 && seen.rests == 1 && poor.rests == 1);
    seen.rests = poor.rests = 0;
    cr_expect_eq(memcmp(&seen, &walked, sizeof(seen)), 0);
    cr_expect_eq(memcmp(&poor, &walked, sizeof(poor)), 0);
    bounds_close(cache, &dev);
}

/* ---- the table of addresses ---------------------------------------------------------------------------------- */

/* A page full of the smallest blocks, then one of larger blocks at the same addresses: each address has its block, and
 * no other address has one. */
Test(cache_bounds, every_granule_of_a_page_can_begin_a_block)
{
    static const struct {
        const char *policy;
        uint64_t granule;
    } cases[] = {{"caching", 512}, {"pytorch", 512}, {"prealloc", 256}};
    static uint64_t addresses[16384];
    for (unsigned c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct fakedev dev;
        struct gp_cache *cache = bounds_open(&dev, cases[c].policy, NULL, 0);
        unsigned count = (unsigned)(4 * MIB / cases[c].granule);
        for (unsigned round = 1; round < 4; round++) {
            char why[192];
            for (unsigned i = 0; i < count / round; i++) {
                addresses[i] = bounds_alloc(cache, cases[c].granule * round);
                cr_assert(gp_cache_begins(cache, addresses[i]));
                cr_assert(!gp_cache_begins(cache, addresses[i] + cases[c].granule / 2));
            }
            cr_expect_eq(gp_cache_check(cache, why, sizeof why), 0, "%s", why);
            for (unsigned i = 0; i < count / round; i++) /* 11 and the counts have no common factor */
                cr_assert(gp_cache_release(cache, addresses[i * 11ull % (count / round)], GP_FREE_ORDERED, 1, NULL));
            for (unsigned i = 0; i < count / round; i++)
                cr_assert(!gp_cache_find(cache, addresses[i], NULL));
        }
        bounds_close(cache, &dev);
    }
}
