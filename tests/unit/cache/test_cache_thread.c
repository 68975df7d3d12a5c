/* SPDX-License-Identifier: MIT
 *
 * test_cache_thread.c: the thread caches (core/cache/threadcache.c): which requests get their
 * blocks, that every statistic is exact while they hold blocks, and that calls about the whole
 * cache include these blocks. Races: tests/torture/cache.c.
 */
#include "base/counter.h"
#include "cache/threadcache.h"
#include "lib/testcache.h"

#define KIB(_n) ((uint64_t)(_n) << 10)

static struct gp_cache *made(const struct gp_policy *policy)
{
    return cache_open(policy ? policy : gp_policy_find("caching"), 512 * MIB);
}

static uint64_t took(struct gp_cache *cache, uint64_t bytes, uint64_t stream, unsigned shard)
{
    return cache_grant(cache, bytes, stream, shard).address;
}

static void gave(struct gp_cache *cache, uint64_t address, unsigned shard)
{
    cr_assert(gp_cache_release(cache, address, GP_FREE_ORDERED, shard, NULL));
}

/* Leaves room below every peak: at a peak the gates are closed and blocks take the slow path. */
static void warm(struct gp_cache *cache, uint64_t stream, unsigned shard)
{
    uint64_t held[64];
    for (unsigned turn = 0; turn < 64; turn++) {
        for (unsigned i = 0; i < 64; i++)
            held[i] = took(cache, KIB(64), stream, shard);
        for (unsigned i = 0; i < 64; i++)
            gave(cache, held[i], shard);
    }
}

static struct gp_gauge_value gauge(struct gp_cache *cache, unsigned which)
{
    struct gp_gauge_value values[GP_GAUGES_MAX];
    gp_counter_snapshot(cache_check_gauges(cache), values);
    return values[which];
}

/* A block in a thread's cache is not joined with its neighbours: the next request of its size gets
 * the last one that was freed, although one at a lower address is idle. */
Test(cache_thread, last_freed_first)
{
    struct gp_cache *cache = made(NULL);
    warm(cache, 7, 1);
    uint64_t a = took(cache, KIB(64), 7, 1), b = took(cache, KIB(64), 7, 1), c = took(cache, KIB(64), 7, 1);
    gave(cache, a, 1);
    gave(cache, c, 1);
    gave(cache, b, 1);
    cr_expect_eq(took(cache, KIB(64), 7, 1), b);
    cr_expect_eq(took(cache, KIB(64), 7, 1), c);
    cr_expect_eq(took(cache, KIB(64), 7, 1), a);
    cache_close(cache);
}

/* The thread cache of another stream never serves a request, because nothing orders the two
 * streams. */
Test(cache_thread, streams_stay_apart)
{
    struct gp_cache *cache = made(NULL);
    warm(cache, 7, 1);
    warm(cache, 8, 1);
    uint64_t a = took(cache, KIB(64), 7, 1);
    gave(cache, a, 1);
    cr_expect_neq(took(cache, KIB(64), 8, 1), a);
    cr_expect_eq(took(cache, KIB(64), 7, 1), a);
    cache_close(cache);
}

/* Of three freed neighbours, the middle one last: true if the thread kept it, so that its next request gets it back.
 * Otherwise it has joined the others, and the request gets the lowest address. */
static bool thread_keeps(struct gp_cache *cache, uint64_t bytes)
{
    uint64_t a = took(cache, bytes, 7, 1), b = took(cache, bytes, 7, 1), c = took(cache, bytes, 7, 1);
    gave(cache, a, 1);
    gave(cache, c, 1);
    gave(cache, b, 1);
    uint64_t again = took(cache, bytes, 7, 1);
    gave(cache, again, 1);
    return again == b;
}

/* Every size around the policy's largest, around a change of the map's word, and the smallest. */
Test(cache_thread, largest_kept)
{
    static const uint64_t most[] = {512, 1024, 1536, KIB(32), KIB(32) + 512, KIB(256), MIB - 512, MIB};
    for (unsigned i = 0; i < sizeof most / sizeof most[0]; i++) {
        struct gp_policy policy = *gp_policy_find("caching");
        policy.thread_block_bytes = most[i];
        for (int64_t off = -512; off <= 512; off++) {
            uint64_t bytes = most[i] + (uint64_t)off;
            if (bytes == 0 || bytes > MIB || (off % 511 && off % 512 && off != 1))
                continue;
            struct gp_cache *cache = made(&policy);
            warm(cache, 7, 1);
            cr_expect_eq(thread_keeps(cache, bytes), bytes <= most[i], "%llu of at most %llu",
                         (unsigned long long)bytes, (unsigned long long)most[i]);
            cache_close(cache);
        }
    }
}

/* For every size that was freed and every one that is asked for: a block is at most an eighth too large, and the
 * smallest that fits is taken. */
Test(cache_thread, slack_of_every_size)
{
    for (uint64_t have = 1; have <= 160; have += have < 80 ? 1 : 5) {
        struct gp_cache *cache = made(NULL);
        warm(cache, 7, 1);
        gp_cache_trim(cache, 0);
        for (uint64_t want = have > 24 ? have - 24 : 1; want <= have; want++) {
            uint64_t a = took(cache, have * 512, 7, 1);
            gave(cache, a, 1);
            struct gp_request request = {.bytes = want * 512, .stream = 7, .shard = 1};
            struct gp_grant grant = {0};
            bool fits = (have - want) * 512 <= want * 512 / 8;
            cr_expect_eq(gp_cache_give(cache, &request, &grant), fits, "%llu of %llu", (unsigned long long)want,
                         (unsigned long long)have);
            cr_expect_eq(grant.address, fits ? a : 0);
            cr_expect_eq(grant.bytes, fits ? have * 512 : 0);
            if (grant.address)
                gave(cache, a, 1);
        }
        cache_close(cache);
    }
}

/* The totals are the same on the fast path and on the slow path. */
Test(cache_thread, statistics)
{
    struct gp_cache *cache = made(NULL);
    warm(cache, 7, 1);
    struct gp_gauge_value before = gauge(cache, GP_GAUGE_ALLOCATED_BYTES + GP_POOL_SMALL);
    cr_assert_eq(before.current, 0);
    cr_assert_eq(before.peak, (int64_t)(64 * KIB(64)));
    uint64_t a = took(cache, 1000, 7, 1), b = took(cache, KIB(64), 7, 1);
    cr_expect_eq(gauge(cache, GP_GAUGE_ALLOCATED_BYTES + GP_POOL_SMALL).current, 1024 + (int64_t)KIB(64));
    cr_expect_eq(gauge(cache, GP_GAUGE_REQUESTED_BYTES + GP_POOL_ALL).current, 1000 + (int64_t)KIB(64));
    cr_expect_eq(gauge(cache, GP_GAUGE_KIND_BYTES + GP_KIND_LINEAR).current, 1000 + (int64_t)KIB(64));
    cr_expect_eq(gauge(cache, GP_GAUGE_ALLOCATION + GP_POOL_LARGE).allocated, 0);
    gave(cache, a, 1);
    gave(cache, b, 1);
    struct gp_gauge_value after = gauge(cache, GP_GAUGE_ALLOCATED_BYTES + GP_POOL_SMALL);
    cr_expect_eq(after.allocated - before.allocated, 1024 + (int64_t)KIB(64));
    cr_expect_eq(after.freed - before.freed, after.allocated - before.allocated);
    cr_expect_eq(after.peak, before.peak);
    cr_expect_eq(gauge(cache, GP_GAUGE_ACTIVE + GP_POOL_ALL).current, 0);
    cache_close(cache);
}

Test(cache_thread, freed_twice)
{
    struct gp_cache *cache = made(NULL);
    warm(cache, 7, 1);
    uint64_t a = took(cache, KIB(64), 7, 1);
    gave(cache, a, 1);
    cr_expect_not(gp_cache_release(cache, a, GP_FREE_ORDERED, 1, NULL));
    cr_expect_not(gp_cache_release(cache, a, GP_FREE_ORDERED, 2, NULL));
    cr_expect_not(gp_cache_release(cache, a + 512, GP_FREE_ORDERED, 1, NULL));
    cr_expect_not(gp_cache_record_stream(cache, a, 9));
    cr_expect_not(gp_cache_find(cache, a, NULL));
    cr_expect(gp_cache_owns(cache, a));
    cache_close(cache);
}

/* A thread keeps the blocks that it frees, whichever thread allocated them. */
Test(cache_thread, freed_by_another)
{
    struct gp_cache *cache = made(NULL);
    warm(cache, 7, 1);
    warm(cache, 7, 2);
    uint64_t a = took(cache, KIB(64), 7, 1);
    gave(cache, a, 2);
    cr_expect_eq(took(cache, KIB(64), 7, 2), a);
    cache_close(cache);
}

/* Blocks that other streams used, and blocks freed without an order, need a fence: they take the
 * slow path. */
Test(cache_thread, used_elsewhere)
{
    struct gp_cache *cache = made(NULL);
    warm(cache, 7, 1);
    uint64_t used[4], records = dev.calls[FAKEDEV_RECORD];
    for (unsigned i = 0; i < 4; i++)
        cr_assert(gp_cache_record_stream(cache, used[i] = took(cache, KIB(64), 7, 1), 9));
    for (unsigned i = 0; i < 4; i++)
        gave(cache, used[i], 1);
    cr_expect_eq(dev.calls[FAKEDEV_RECORD], records + 1); /* four share a fence */
    uint64_t b = took(cache, KIB(64), 7, 1);
    cr_assert(gp_cache_release(cache, b, GP_FREE_UNORDERED, 1, NULL));
    struct gp_cache_numbers numbers;
    gp_cache_numbers(cache, &numbers);
    cr_expect_geq(numbers.waiting_bytes, KIB(64));
    cache_close(cache);
}

/* Before a request fails, it gets the idle memory of the whole cache; trimming to zero also
 * releases the thread caches. */
Test(cache_thread, nothing_is_hidden)
{
    struct gp_cache *cache = cache_open(gp_policy_find("caching"), 64 * MIB);
    struct gp_cache_numbers numbers;
    warm(cache, 7, 1);
    gp_cache_numbers(cache, &numbers);
    cr_expect_eq(numbers.allocated_bytes, 0);
    cr_expect_eq(numbers.idle_bytes, numbers.reserved_bytes);
    warm(cache, 7, 1);
    gave(cache, took(cache, 64 * MIB, 7, 1), 1);
    warm(cache, 7, 1);
    gave(cache, took(cache, 64 * MIB, 9, 2), 2);
    gp_cache_trim(cache, 0);
    cr_expect_eq(dev.held, 0);
    cache_close(cache);
}

/* The excess over the policy's limits goes to the heap, all sizes in turn. */
Test(cache_thread, bounded)
{
    struct gp_policy policy = *gp_policy_find("caching");
    policy.thread_blocks = 16;
    struct gp_cache *cache = made(&policy);
    warm(cache, 7, 1);
    uint64_t held[64];
    for (unsigned i = 0; i < 64; i++)
        held[i] = took(cache, KIB(64), 7, 1);
    for (unsigned i = 0; i < 64; i++)
        gave(cache, held[i], 1);
    /* At least 48 of 64 neighbours have joined: a block of 16 of them is available without new
     * memory. */
    uint64_t reserved = dev.held;
    took(cache, MIB, 7, 2);
    cr_expect_eq(dev.held, reserved);
    cache_close(cache);
}

/* Fills the thread's cache: `count` blocks of 512 KiB are freed into it. Returns the last of them. */
static uint64_t stocked(struct gp_cache *cache, unsigned count, unsigned shard)
{
    uint64_t held[256];
    for (unsigned i = 0; i < count; i++)
        held[i] = took(cache, KIB(512), 7, shard);
    for (unsigned i = 0; i < count; i++)
        gave(cache, held[i], shard);
    return held[count - 1];
}

/* New memory is asked for while each of two threads holds 24 MiB: both keep them. The limit is one
 * thread's, 32 MiB, and when one holds more, the blocks of all threads go back to the heap. */
Test(cache_thread, each_thread_keeps_some)
{
    struct gp_cache *cache = made(NULL);
    stocked(cache, 200, 1); /* the peaks are far above what follows */
    gp_cache_trim(cache, 0);
    warm(cache, 7, 1);
    warm(cache, 7, 2);
    uint64_t one = stocked(cache, 48, 1), two = stocked(cache, 48, 2);
    warm(cache, 9, 3); /* needs new memory, and opens the gates again */
    cr_expect_eq(took(cache, KIB(512), 7, 1), one);
    cr_expect_eq(took(cache, KIB(512), 7, 2), two);
    stocked(cache, 64, 1);
    two = stocked(cache, 1, 2);
    stocked(cache, 1, 1);
    gave(cache, took(cache, KIB(1000), 7, 1), 1); /* 33 MiB */
    warm(cache, 10, 3);
    cr_expect_neq(took(cache, KIB(512), 7, 2), two);
    cache_close(cache);
}

/* The stream's number is reused: memory of the old stream is not ordered with the new one. */
Test(cache_thread, stream_gone)
{
    struct gp_cache *cache = made(NULL);
    warm(cache, 7, 1);
    uint64_t a = took(cache, KIB(64), 7, 1), b = took(cache, KIB(64), 7, 1);
    gave(cache, a, 1);
    gp_cache_stream_gone(cache, 7);
    uint64_t records = dev.calls[FAKEDEV_RECORD];
    gave(cache, b, 1); /* slow path: after a fence */
    uint64_t c = took(cache, KIB(64), 7, 1);
    cr_expect(c != a || dev.calls[FAKEDEV_RECORD] > records);
    cache_close(cache);
}

/* The heap is used up, and the thread's blocks of 512 KiB are too large for requests of 300: each request gets a part of
 * one, and the thread keeps the others. */
Test(cache_thread, a_larger_block_is_split_before_all_leave)
{
    struct gp_cache *cache = made(NULL);
    uint64_t blocks[80];
    for (unsigned i = 0; i < 80; i++)
        blocks[i] = took(cache, KIB(512), 7, 1);
    for (unsigned i = 0; i < 80; i++)
        gave(cache, blocks[i], 1);
    cr_assert(gp_thread_holds_more(cache, 36 * MIB, UINT64_MAX));
    uint64_t held = dev.held;
    for (unsigned i = 0; i < 20; i++)
        took(cache, KIB(300), 7, 1);
    cr_expect_eq(dev.held, held, "%llu MiB", (unsigned long long)(dev.held - held) / MIB);
    cr_expect(gp_thread_holds_more(cache, 30 * MIB, UINT64_MAX));
    cache_close(cache);
}
