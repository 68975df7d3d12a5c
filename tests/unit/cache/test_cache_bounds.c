/* SPDX-License-Identifier: MIT
 *
 * test_cache_bounds.c: bounds of the caching allocator that random operations reach too seldom: how much a garbage
 * collection gives back, and in which order, what a device reset leaves behind, and queries at every border of a block.
 */
#include "base/compiler.h"
#include "lib/testcache.h"

#include <string.h>
#include <sys/resource.h>

static struct gp_cache *bounds_open(const char *name, const char *conf, uint64_t limit)
{
    const struct gp_policy policy = cache_policy(name, conf);
    struct gp_cache *cache = cache_open(&policy, 1024 * MIB);
    gp_cache_set_limit(cache, limit);
    return cache;
}

/* Idle segments of 20, 40 and 30 MiB, the oldest first, a live one of 200 MiB, and two for small blocks, one of them
 * idle and much older: it is neither given back nor counts for the age that is old.  A collection that lacks EXCESS
 * bytes to its threshold gives back all that are as old as the average, the first two, and the third if that is not enough. */
Test(cache_bounds, a_collection_gives_back_what_is_older_than_the_average)
{
    static const struct {
        int64_t excess;
        uint64_t freed;
    } cases[] = {
        {-1, 0}, {0, 0}, {1, 60 * MIB}, {60 * MIB, 60 * MIB}, {60 * MIB + 1, 90 * MIB}, {90 * MIB, 90 * MIB},
    };
    static const uint64_t sizes[] = {20 * MIB, 40 * MIB, 30 * MIB, 200 * MIB};
    const uint64_t reserved = 314 * MIB;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t limit = 2 * (uint64_t)((int64_t)reserved - cases[i].excess), blocks[4];
        struct gp_cache *cache = bounds_open("pytorch", "garbage_collection_threshold:0.5", limit);
        cache_give(cache, cache_grant(cache, 512, 7, 1).address);
        cache_take(cache, 512);
        cache_take(cache, 2 * MIB);
        for (unsigned b = 0; b < 4; b++)
            blocks[b] = cache_take(cache, sizes[b]);
        for (unsigned b = 0; b < 3; b++) {
            cache_give(cache, blocks[b]);
            cache_take(cache, 2 * MIB); /* a block's age is the number of large requests since it was freed ... */
            for (unsigned small = 0; small < 10u * b; small++)
                cache_take(cache, 512); /* ... and not of small ones */
        }
        cr_assert_eq(dev.held, reserved);
        cache_take(cache, 100 * MIB);
        cr_expect_eq(dev.held, reserved - cases[i].freed + 100 * MIB, "excess %lld: %lld MiB were given back",
                     (long long)cases[i].excess, (long long)((reserved + 100 * MIB - dev.held) / MIB));
        cache_close(cache);
    }
}

/* A segment is as old as the last free of any of its blocks, in whichever order its blocks were freed: here one is freed
 * in part, then another as a whole, then the rest of the first. A collection takes the second one alone. */
Test(cache_bounds, a_segment_is_as_old_as_its_last_free)
{
    static const unsigned orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (unsigned order = 0; order < 6; order++) {
        uint64_t blocks[6];
        struct gp_cache *cache = bounds_open("pytorch", "garbage_collection_threshold:0.5", 124 * MIB - 2);
        cache_take(cache, 512);
        uint64_t taken =
            cache_take(cache, 7 * MIB); /* beside a second one, so that it fits 7 MiB alone when it is free */
        cache_take(cache, 7 * MIB);
        for (unsigned b = 0; b < 6; b++) /* two segments of 20 MiB, each with three blocks and a rest */
            blocks[b] = cache_take(cache, 6 * MIB);
        cr_assert_eq(dev.held, 62 * MIB);
        for (unsigned b = 0; b < 6; b++) {
            const unsigned turn[6] = {orders[order][0], orders[order][1], 3, 5, 4, orders[order][2]};
            cache_give(cache, blocks[turn[b]]);
            for (unsigned i = 0; i < 10; i++) {
                cache_give(cache, taken);
                cr_assert_eq(cache_take(cache, 7 * MIB), taken);
            }
        }
        cache_take(cache, 30 * MIB);
        cr_expect_eq(dev.held, 72 * MIB, "order %u: %llu MiB are held", order, dev.held / MIB);
        cr_expect(fakedev_holds(&dev, blocks[0], 6 * MIB), "order %u: the younger segment is gone", order);
        cache_close(cache);
    }
}

/* As PyTorch does it: whole pages of 20 MiB, and the end of a segment, which can grow, is taken last although it is smaller
 * than a hole.  Otherwise the smallest block is taken, and a part of a page is mapped. */
Test(cache_bounds, with_whole_pages_a_hole_is_taken_before_the_end)
{
    for (unsigned whole = 0; whole < 2; whole++) {
        struct gp_policy policy = cache_policy("pytorch", "expandable_segments:True");
        policy.whole_pages = whole;
        struct gp_cache *cache = cache_open(&policy, 1024 * MIB);
        uint64_t first = cache_take(cache, 8 * MIB);
        cr_expect_eq(dev.held, whole ? 20 * MIB : 8 * MIB);
        cache_take(cache, 6 * MIB);
        uint64_t last = cache_take(cache, 6 * MIB);
        cr_assert_eq(dev.held, 20 * MIB);
        cache_give(cache, first);
        cache_give(cache, last);
        cr_expect_eq(cache_take(cache, 5 * MIB), whole ? first : last, "whole pages: %u", whole);
        cr_expect_eq(dev.held, 20 * MIB);
        cache_close(cache);
    }
}

/* As PyTorch 2.13 and newer do it: of idle blocks of one size, one of the oldest segment, wherever it lies. */
Test(cache_bounds, of_one_size_the_oldest_segment_is_taken)
{
    for (unsigned oldest = 0; oldest < 2; oldest++) {
        struct gp_policy policy = cache_policy("pytorch", NULL);
        cr_assert(policy.oldest_first);
        policy.oldest_first = oldest;
        struct gp_cache *cache = cache_open(&policy, 1024 * MIB);
        uint64_t gone = cache_take(cache, 50 * MIB), older = cache_take(cache, 40 * MIB);
        cache_give(cache, gone);
        gp_cache_trim(cache, 0);
        uint64_t younger = cache_take(cache, 40 * MIB);
        cr_assert_lt(younger, older, "it lies where the first one was");
        cache_give(cache, younger);
        cache_give(cache, older);
        cr_expect_eq(cache_take(cache, 40 * MIB), oldest ? older : younger, "oldest_first: %u", oldest);
        cache_close(cache);
    }
}

/* As PyTorch does it: a request fills two holes with the idle memory between them, before the end of the range. */
Test(cache_bounds, with_whole_pages_a_request_fills_several_holes)
{
    struct gp_policy policy = cache_policy("pytorch", "expandable_segments:True");
    policy.whole_pages = true;
    struct gp_cache *cache = cache_open(&policy, 1024 * MIB);
    uint64_t pages[4];
    for (unsigned i = 0; i < 4; i++)
        pages[i] = cache_take(cache, 20 * MIB);
    cache_give(cache, pages[0]);
    cache_give(cache, pages[2]);
    gp_cache_trim(cache, 0);
    cache_give(cache, pages[1]);
    cr_assert_eq(dev.held, 40 * MIB);
    cr_expect_eq(cache_take(cache, 50 * MIB), pages[0]);
    cr_expect_eq(dev.held, 80 * MIB, "%llu MiB are held", dev.held / MIB);
    cache_close(cache);
}

/* The size of a page follows what is reserved: a hole of a time of small ones, with a live block behind it, is filled alone. */
Test(cache_bounds, with_whole_pages_a_hole_may_be_smaller_than_a_page)
{
    struct gp_policy policy = cache_policy("caching", NULL);
    policy.whole_pages = true;
    struct gp_cache *cache = cache_open(&policy, 2048 * MIB);
    uint64_t first = cache_take(cache, 12 * MIB);
    cache_take(cache, 16 * MIB);
    cache_take(cache, 1000 * MIB);
    cache_give(cache, first);
    gp_cache_trim(cache, 0);
    cr_assert_eq(dev.held, 1020 * MIB); /* of 1032: the first page had 12 */
    cr_expect_eq(cache_take(cache, 8 * MIB), first);
    cr_expect_eq(dev.held, 1032 * MIB);
    cache_close(cache);
}

/* max_split_size: an oversize segment of the stream that is large enough goes back alone.  Where the stream's own are too small,
 * those of others do not stand in for them, and everything goes back, as in PyTorch. */
Test(cache_bounds, only_oversize_segments_of_the_stream_go_back_alone)
{
    static const struct {
        uint64_t own, other,
            held; /* MiB: idle ones before 60 are asked for beside 30 that are live, and all of it then */
    } cases[] = {{90, 22, 30 + 22 + 60}, {22, 90, 30 + 60}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gp_cache *cache = bounds_open("pytorch", "max_split_size_mb:20", 150 * MIB);
        cache_grant(cache, 30 * MIB, 9, 1);
        uint64_t own = cache_take(cache, cases[i].own * MIB);
        uint64_t other = cache_grant(cache, cases[i].other * MIB, 7, 1).address;
        cache_give(cache, own);
        cache_give(cache, other);
        cache_take(cache, 60 * MIB);
        cr_expect_eq(dev.held, cases[i].held * MIB, "case %u: %llu MiB are held", i, dev.held / MIB);
        cache_close(cache);
    }
}

/* The first chunk is a share of the device's free memory, again after a reset of the device. */
Test(cache_bounds, the_first_chunk_after_a_reset_is_the_first_again)
{
    struct gp_cache *cache = bounds_open("prealloc", NULL, 0);
    cache_take(cache, MIB);
    uint64_t first = dev.held;
    cr_assert_gt(first, 900 * MIB);
    gp_cache_forget(cache);
    fakedev_fini(&dev); /* the reset */
    cache_device(1024 * MIB);
    cache_take(cache, MIB);
    cr_expect_eq(dev.held, first);
    cache_close(cache);
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
    struct bounds_seen walked = {{0}, 0, 0, 0}, seen = walked, poor = walked;
    struct rlimit before, none;
    struct gp_cache *cache = bounds_open("pytorch", NULL, 0);
    for (unsigned i = 0; i < 60; i++) {
        uint64_t block = cache_take(cache, 512 + i * MIB / 3);
        if (i % 3 == 0)
            cache_give(cache, block);
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
    cache_close(cache);
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
        struct gp_cache *cache = bounds_open(cases[c].policy, NULL, 0);
        unsigned count = (unsigned)(4 * MIB / cases[c].granule);
        for (unsigned round = 1; round < 4; round++) {
            for (unsigned i = 0; i < count / round; i++) {
                addresses[i] = cache_take(cache, cases[c].granule * round);
                cr_assert(gp_cache_begins(cache, addresses[i]));
                cr_assert(!gp_cache_begins(cache, addresses[i] + cases[c].granule / 2));
            }
            cache_sound(cache);
            for (unsigned i = 0; i < count / round; i++) /* 11 and the counts have no common factor */
                cache_give(cache, addresses[i * 11ull % (count / round)]);
            for (unsigned i = 0; i < count / round; i++)
                cr_assert(!gp_cache_find(cache, addresses[i], NULL));
        }
        cache_close(cache);
    }
}

/* ---- queries ------------------------------------------------------------------------------------------------------ */

Test(cache_bounds, an_address_belongs_to_the_block_around_it)
{
    struct gp_cache *cache = bounds_open("pytorch", NULL, 0);
    struct gp_grant grant;
    uint64_t base = 0, bytes = 0;
    bool dedicated = true;
    cr_expect_not(gp_cache_owns(cache, 0) || gp_cache_find(cache, 0, &grant));
    struct gp_grant one = cache_grant(cache, 3 * MIB - 100, STREAM, 1);
    uint64_t first = one.address, end = first + 20 * MIB, two = cache_take(cache, 3 * MIB),
             three = cache_take(cache, 30 * MIB);
    cache_give(cache, two);
    const struct {
        uint64_t address;
        bool owns, finds, begins;
    } rows[] = {
        {first, true, true, true},
        {first + one.bytes - 1, true, true, false},
        {first + one.bytes, true, false, true}, /* the idle block */
        {end - 1, true, false, false},
        {three + 30 * MIB - 1, true, true, false},
        {first - 1, false, false, false},
        {three + 30 * MIB, false, false, false},
        {1ull << 49, false, false, false},
        {UINT64_MAX, false, false, false},
    };
    for (unsigned i = 0; i < GP_COUNT(rows); i++) {
        cr_expect_eq(gp_cache_owns(cache, rows[i].address), rows[i].owns, "row %u", i);
        cr_expect_eq(gp_cache_find(cache, rows[i].address, &grant), rows[i].finds, "row %u", i);
        cr_expect_eq(gp_cache_begins(cache, rows[i].address), rows[i].begins, "row %u", i);
        cr_expect_eq(gp_cache_segment_of(cache, rows[i].address, &base, &bytes, &dedicated), rows[i].finds);
        if (i < 2) {
            cr_expect(grant.address == first && grant.bytes == one.bytes && grant.requested_bytes == 3 * MIB - 100 &&
                      grant.stream == STREAM && grant.tag == 0 && grant.time_ns == 0);
            cr_expect(base == first && bytes == 20 * MIB && !dedicated);
        }
    }
    cache_close(cache);
}

/* Of two segments, one with idle memory beside live blocks, the other one idle as a whole. */
Test(cache_bounds, numbers_are_sums_over_the_blocks)
{
    struct gp_cache *cache = bounds_open("pytorch", NULL, 0);
    struct gp_cache_numbers n;
    uint64_t one = cache_take(cache, 3 * MIB), two = cache_take(cache, 3 * MIB), large = cache_take(cache, 40 * MIB),
             waits = cache_take(cache, 50 * MIB);
    cache_take(cache, 60 * MIB);
    fakedev_submit(&dev, 0);
    cache_give(cache, one);
    cache_give(cache, large);
    cr_assert(gp_cache_release(cache, waits, GP_FREE_UNORDERED, 1, NULL));
    gp_cache_numbers(cache, &n);
    cr_expect(n.reserved_bytes == 170 * MIB && n.waiting_bytes == 50 * MIB && n.allocated_bytes == 63 * MIB);
    cr_expect(n.idle_bytes == 57 * MIB && n.releasable_bytes == 40 * MIB && n.largest_idle_bytes == 40 * MIB);
    cr_expect(n.idle_pieces == 3 && n.pinning_blocks == 1);
    cr_expect(n.retries == 0 && n.syncs == 0 && n.device_allocs == 4 && n.device_frees == 0);
    cr_expect_eq(n.backend_calls, dev.call_count);
    cache_take(cache, 4 * MIB);
    gp_cache_numbers(cache, &n);
    cr_expect(n.pinning_blocks == 2 && n.idle_pieces == 3);
    cache_give(cache, two);
    gp_cache_trim(cache, 0);
    gp_cache_numbers(cache, &n);
    cr_expect(n.device_frees == 2 && n.syncs == 1 && n.reserved_bytes == 80 * MIB);
    cr_expect_eq(n.backend_calls, dev.call_count);
    cache_close(cache);
}

/* Blocks in a thread's cache die with the context like all others. */
Test(cache_bounds, a_threads_blocks_are_forgotten_too)
{
    struct gp_cache *cache = bounds_open("caching", NULL, 0);
    static uint64_t addresses[4000];
    struct gp_grant grant;
    unsigned kept = 0;
    for (unsigned i = 0; i < GP_COUNT(addresses); i++)
        addresses[i] = cache_take(cache, 512);
    for (unsigned i = 0; i < GP_COUNT(addresses); i++) {
        bool is_short = gp_cache_take(cache, addresses[i], GP_FREE_ORDERED, 1, &grant);
        if (!is_short)
            cache_give(cache, addresses[i]);
        kept += is_short;
    }
    cr_assert_gt(kept, 0, "no free went into the thread's cache");
    gp_cache_forget(cache);
    fakedev_die(&dev);
    cache_sound(cache);
    for (unsigned i = 0; i < 50; i++) {
        grant = cache_grant(cache, 512, STREAM, 1);
        cr_assert(fakedev_holds(&dev, grant.address, grant.bytes));
    }
    cache_close(cache);
}

/* 300 of 600 MiB are idle when 400 are requested: the 300 move, and 100 are new. */
Test(cache_bounds, idle_pages_serve_a_part_of_a_request)
{
    struct gp_cache *cache = bounds_open("caching", "", 0);
    uint64_t first = cache_take(cache, 300 * MIB);
    cache_take(cache, 300 * MIB);
    cache_give(cache, first);
    cache_take(cache, 400 * MIB);
    cr_expect_leq(dev.held, 735 * MIB, "%llu MiB are held", dev.held / MIB);
    cache_close(cache);
}

/* Small blocks get idle pages of 4 MiB where 2 would do, and two of them by one call. */
Test(cache_bounds, pages_for_small_blocks_move_together)
{
    enum { LARGE = 64, SMALL = 64 };
    uint64_t blocks[LARGE];
    struct gp_policy policy = cache_policy("caching", "");
    policy.large_page_bytes = 4 * MIB;
    struct gp_cache *cache = cache_open(&policy, 1024 * MIB);
    for (unsigned i = 0; i < LARGE; i++)
        blocks[i] = cache_take(cache, 4 * MIB);
    for (unsigned i = 0; i < LARGE; i++)
        cache_give(cache, blocks[i]);
    uint64_t held = dev.held, maps = dev.calls[FAKEDEV_MAP];
    for (unsigned i = 0; i < SMALL; i++)
        cache_take(cache, MIB);
    cr_expect_leq(dev.held, held + 12 * MIB, "%llu MiB are held, %llu before", dev.held / MIB, held / MIB);
    cr_expect_leq(dev.calls[FAKEDEV_MAP] - maps, SMALL / 8, "%llu calls",
                  (unsigned long long)(dev.calls[FAKEDEV_MAP] - maps));
    cache_close(cache);
}
