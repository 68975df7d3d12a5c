/* SPDX-License-Identifier: MIT
 *
 * test_cache_check.c: the cache's check of itself finds each kind of damage and names it; and the bytes that a query
 * returns at every border of a block.
 */
#include "allocator/cache/internal.h"
#include "lib/fakedev.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define MIB (1ull << 20)

static struct fakedev dev;

static struct gp_cache *made(const char *name, const char *conf)
{
    struct gp_policy policy = *gp_policy_find(name);
    struct gp_cache *cache = NULL;
    char why[192];
    if (conf)
        cr_assert_eq(gp_policy_configure(&policy, conf, why, sizeof why), 0, "%s", why);
    cr_assert_eq(fakedev_init(&dev, 1024 * MIB, 2 * MIB), 0);
    fakedev_stream_open(&dev, 2);
    struct gp_cache_setup setup = {.policy = &policy, .backend = fakedev_backend(&dev)};
    cr_assert_eq(gp_cache_new(&cache, &setup), 0);
    return cache;
}

static struct gp_block *taken(struct gp_cache *cache, uint64_t bytes)
{
    struct gp_request request = {.bytes = bytes, .stream = 2, .shard = 1};
    struct gp_grant grant = {0};
    cr_assert_eq(gp_cache_alloc(cache, &request, &grant), 0);
    return gp_table_at(cache, grant.address);
}

static void expect_why(struct gp_cache *cache, const char *expected)
{
    char why[256] = "", few[12];
    int result = gp_cache_check(cache, why, sizeof why);
    cr_expect_eq(result, *expected ? -1 : 0, "%s: %s", expected, why);
    cr_expect_str_eq(why, expected);
    if (*expected) {
        gp_cache_check(cache, few, sizeof few);
        cr_expect(strncmp(few, expected, sizeof few - 1) == 0 && strlen(few) == sizeof few - 1);
    }
}

/* Changes a field, looks, and changes it back. */
#define EXPECT_FOUND(_field, _value, ...)                                                                              \
    do {                                                                                                               \
        __typeof__(_field) _kept = (_field);                                                                           \
        char _text[256];                                                                                               \
        (_field) = (_value);                                                                                           \
        snprintf(_text, sizeof _text, __VA_ARGS__);                                                                    \
        expect_why(cache, _text);                                                                                      \
        (_field) = _kept;                                                                                              \
        expect_why(cache, "");                                                                                         \
    } while (0)

#define AT(_record) ((unsigned long long)(_record)->address)

/* A segment with a live, an idle, a live and an idle block, and one that waits in a second segment. */
Test(cache_check, damage_of_blocks_is_found)
{
    struct gp_cache *cache = made("pytorch", NULL);
    struct gp_block *one = taken(cache, 3 * MIB), *two = taken(cache, 3 * MIB), *three = taken(cache, 3 * MIB);
    cr_assert(gp_cache_record_stream(cache, one->address, 7));
    struct gp_block *four = taken(cache, 30 * MIB);
    cr_assert(gp_cache_release(cache, two->address, GP_FREE_ORDERED, 1, NULL));
    cr_assert(gp_cache_release(cache, four->address, GP_FREE_UNORDERED, 1, NULL));
    struct gp_segment *segment = one->segment;
    struct gp_block *rest = three->after;
    cr_assert(one->after == two && two->after == three && rest && !rest->after);
    expect_why(cache, "");

    EXPECT_FOUND(two->address, two->address + 512, "block %#llx: a gap, an overlap or no size", AT(two));
    EXPECT_FOUND(two->bytes, two->bytes + 512, "block %#llx: a gap, an overlap or no size", AT(three));
    EXPECT_FOUND(one->bytes, 0, "block %#llx: a gap, an overlap or no size", AT(one));
    EXPECT_FOUND(rest->bytes, rest->bytes - 512, "segment %#llx: its blocks do not fill it", AT(segment));
    EXPECT_FOUND(three->before, one, "block %#llx: its neighbour does not point back to it", AT(two));
    EXPECT_FOUND(three->word, AT(three) | GP_BLOCK_IDLE, "block %#llx: not joined with its neighbour", AT(two));
    EXPECT_FOUND(one->word, AT(one) | GP_BLOCK_UNMAPPED,
                 "the indexes hold 2 idle and 0 unmapped blocks, the segments 2 and 1");
    EXPECT_FOUND(two->word, AT(two) | GP_BLOCK_LIVE, "block %#llx: in the wrong index", AT(two));
    struct gp_block copy = *three;
    gp_arena_table_set(cache, three->address, &copy);
    char text[128];
    snprintf(text, sizeof text, "block %#llx: the table points to another block", AT(three));
    expect_why(cache, text);
    gp_arena_table_set(cache, three->address, three);
    expect_why(cache, "");
    EXPECT_FOUND(two->segment->heap->idle_bytes, 512, "a heap's idle bytes differ from the sum of its index");
    EXPECT_FOUND(two->segment->heap->idle.count, 3, "a heap's idle bytes differ from the sum of its index");
    EXPECT_FOUND(cache->reserved_bytes, 51 * MIB,
                 "reserved, idle or waiting bytes differ from the sum over the segments");
    EXPECT_FOUND(cache->idle_bytes, 15 * MIB, "reserved, idle or waiting bytes differ from the sum over the segments");
    EXPECT_FOUND(cache->waiting_bytes, 31 * MIB,
                 "reserved, idle or waiting bytes differ from the sum over the segments");
    cr_expect(cache->reserved_bytes == 50 * MIB && cache->idle_bytes == 14 * MIB && cache->waiting_bytes == 30 * MIB);

    /* The first damage alone is told. */
    one->bytes += 512;
    cache->idle_bytes++;
    snprintf(text, sizeof text, "block %#llx: a gap, an overlap or no size", AT(two));
    expect_why(cache, text);
    one->bytes -= 512;
    cache->idle_bytes--;
    expect_why(cache, "");
    cr_assert(gp_cache_release(cache, one->address, GP_FREE_ORDERED, 1, NULL));
    gp_cache_free(cache);
    fakedev_fini(&dev);
}

/* The gauges that the cache has itself are compared with its blocks. */
Test(cache_check, damage_of_gauges_is_found)
{
    static const struct {
        unsigned gauge;
        const char *why;
    } rows[] = {
        {GP_GAUGE_ALLOCATED_BYTES, "allocated_bytes: the gauge says 3145729, the blocks 3145728"},
        {GP_GAUGE_ACTIVE_BYTES, "active_bytes: the gauge says 34603009, the blocks 34603008"},
        {GP_GAUGE_RESERVED_BYTES, "reserved_bytes: the gauge says 52428801, the blocks 52428800"},
        {GP_GAUGE_INACTIVE_SPLIT_BYTES, "inactive_split_bytes: the gauge says 17825793, the blocks 17825792"},
    };
    struct gp_cache *cache = made("pytorch", NULL);
    taken(cache, 3 * MIB);
    struct gp_block *waits = taken(cache, 30 * MIB);
    cr_assert(gp_cache_release(cache, waits->address, GP_FREE_UNORDERED, 1, NULL));
    expect_why(cache, "");
    for (unsigned i = 0; i < GP_COUNT(rows); i++) {
        const struct gp_delta delta = {.gauge = rows[i].gauge, .amount = 1};
        gp_counter_apply(cache->gauges, 0, GP_ADD, &delta, 1);
        expect_why(cache, rows[i].why);
        gp_counter_apply(cache->gauges, 0, GP_SUB, &delta, 1);
        expect_why(cache, "");
    }
    gp_cache_free(cache);
    fakedev_fini(&dev);
}

Test(cache_check, damage_of_pages_is_found)
{
    struct gp_cache *cache = made("pytorch", "expandable_segments:True");
    struct gp_block *one = taken(cache, 30 * MIB), *two = taken(cache, 30 * MIB);
    struct gp_segment *segment = one->segment;
    struct gp_page *page = segment->pages, *next = page->next;
    cr_assert(segment->growable && next && two->segment == segment);
    expect_why(cache, "");
    EXPECT_FOUND(page->address, AT(segment) - 512, "page %#llx: out of order", AT(segment) - 512);
    EXPECT_FOUND(next->address, AT(page), "page %#llx: out of order", AT(page));
    EXPECT_FOUND(next->address, AT(page) + page->bytes - 1, "page %#llx: out of order", AT(page) + page->bytes - 1);
    EXPECT_FOUND(page->bytes, page->bytes - 512, "segment %#llx: pages and holes do not add up to its size",
                 AT(segment));
    struct gp_block *hole = two;
    while (hole->after)
        hole = hole->after;
    cr_assert_eq(gp_block_state(hole), GP_BLOCK_UNMAPPED);
    EXPECT_FOUND(segment->heap->unmapped.roots[gp_block_index_class(hole->bytes)], NULL,
                 "the indexes hold 0 idle and 0 unmapped blocks, the segments 0 and 1");
    EXPECT_FOUND(cache->idle_bytes, 1, "reserved, idle or waiting bytes differ from the sum over the segments");
    gp_cache_free(cache);
    fakedev_fini(&dev);
}

/* ---- queries ------------------------------------------------------------------------------------------------------------ */

Test(cache_check, an_address_belongs_to_the_block_around_it)
{
    struct gp_cache *cache = made("pytorch", NULL);
    struct gp_grant grant;
    uint64_t base = 0, bytes = 0;
    bool dedicated = true;
    cr_expect_not(gp_cache_owns(cache, 0) || gp_cache_find(cache, 0, &grant));
    struct gp_block *one = taken(cache, 3 * MIB - 100), *two = taken(cache, 3 * MIB), *three = taken(cache, 30 * MIB);
    uint64_t first = one->address, end = first + 20 * MIB;
    cr_assert(gp_cache_release(cache, two->address, GP_FREE_ORDERED, 1, NULL));
    for (unsigned i = 0; i < 2; i++) {
        uint64_t at = first + (i ? one->bytes - 1 : 0);
        cr_assert(gp_cache_find(cache, at, &grant));
        cr_expect(grant.address == first && grant.bytes == one->bytes && grant.requested_bytes == 3 * MIB - 100 &&
                  grant.stream == 2 && grant.tag == 0 && grant.time_ns == 0);
        cr_assert(gp_cache_segment_of(cache, at, &base, &bytes, &dedicated));
        cr_expect(base == first && bytes == 20 * MIB && !dedicated);
        cr_expect_eq(gp_cache_begins(cache, at), i == 0);
        cr_expect(gp_cache_owns(cache, at));
    }
    const uint64_t idle[] = {first + one->bytes, end - 1};
    for (unsigned i = 0; i < 2; i++) {
        cr_expect_not(gp_cache_find(cache, idle[i], &grant));
        cr_expect_not(gp_cache_segment_of(cache, idle[i], &base, &bytes, &dedicated));
        cr_expect(gp_cache_owns(cache, idle[i]));
        cr_expect_eq(gp_cache_begins(cache, idle[i]), i == 0);
    }
    const uint64_t outside[] = {first - 1, cache->highest, 1ull << 49, UINT64_MAX};
    for (unsigned i = 0; i < 4; i++)
        cr_expect_not(gp_cache_owns(cache, outside[i]) || gp_cache_find(cache, outside[i], NULL) ||
                      gp_cache_begins(cache, outside[i]));
    cr_expect(gp_cache_owns(cache, three->address + 30 * MIB - 1));
    cr_expect_eq(cache->lowest, first);
    cr_expect_eq(cache->highest, three->address + 30 * MIB);
    gp_cache_free(cache);
    fakedev_fini(&dev);
}

/* Of two segments, one with idle memory beside live blocks, the other one idle as a whole. */
Test(cache_check, numbers_are_sums_over_the_blocks)
{
    struct gp_cache *cache = made("pytorch", NULL);
    struct gp_cache_numbers n;
    struct gp_block *one = taken(cache, 3 * MIB), *two = taken(cache, 3 * MIB), *large = taken(cache, 40 * MIB),
                    *waits = taken(cache, 50 * MIB);
    taken(cache, 60 * MIB);
    fakedev_submit(&dev, 0);
    cr_assert(gp_cache_release(cache, one->address, GP_FREE_ORDERED, 1, NULL));
    cr_assert(gp_cache_release(cache, large->address, GP_FREE_ORDERED, 1, NULL));
    cr_assert(gp_cache_release(cache, waits->address, GP_FREE_UNORDERED, 1, NULL));
    gp_cache_numbers(cache, &n);
    cr_expect_eq(n.reserved_bytes, 170 * MIB);
    cr_expect_eq(n.waiting_bytes, 50 * MIB);
    cr_expect_eq(n.allocated_bytes, 63 * MIB);
    cr_expect_eq(n.idle_bytes, 57 * MIB);
    cr_expect_eq(n.releasable_bytes, 40 * MIB);
    cr_expect_eq(n.largest_idle_bytes, 40 * MIB);
    cr_expect_eq(n.idle_pieces, 3);
    cr_expect_eq(n.pinning_blocks, 1);
    cr_expect(n.retries == 0 && n.syncs == 0 && n.device_allocs == 4 && n.device_frees == 0);
    cr_expect_eq(n.backend_calls, dev.call_count);
    taken(cache, 4 * MIB);
    gp_cache_numbers(cache, &n);
    cr_expect_eq(n.pinning_blocks, 2);
    cr_expect_eq(n.idle_pieces, 3);
    cr_assert(gp_cache_release(cache, two->address, GP_FREE_ORDERED, 1, NULL));
    gp_cache_trim(cache, 0);
    gp_cache_numbers(cache, &n);
    cr_expect_eq(n.device_frees, 2);
    cr_expect_eq(n.syncs, 1);
    cr_expect_eq(n.backend_calls, dev.call_count);
    cr_expect_eq(n.reserved_bytes, 80 * MIB);
    gp_cache_free(cache);
    fakedev_fini(&dev);
}

/* Blocks in a thread's cache die with the context like all others. */
Test(cache_check, a_threads_blocks_are_forgotten_too)
{
    struct gp_cache *cache = made("caching", NULL);
    static uint64_t addresses[4000];
    struct gp_grant grant;
    unsigned kept = 0;
    for (unsigned i = 0; i < GP_COUNT(addresses); i++)
        addresses[i] = taken(cache, 512)->address;
    for (unsigned i = 0; i < GP_COUNT(addresses); i++) {
        bool is_short = gp_cache_take(cache, addresses[i], GP_FREE_ORDERED, 1, &grant);
        cr_assert(is_short || gp_cache_release(cache, addresses[i], GP_FREE_ORDERED, 1, NULL));
        kept += is_short;
    }
    cr_assert_gt(kept, 0, "no free went into the thread's cache");
    gp_cache_forget(cache);
    fakedev_die(&dev);
    expect_why(cache, "");
    for (unsigned i = 0; i < 50; i++) {
        struct gp_block *block = taken(cache, 512);
        cr_assert(block && fakedev_holds(&dev, block->address, block->bytes));
    }
    expect_why(cache, "");
    gp_cache_free(cache);
    cr_expect_eq(dev.faults, 0, "%s", dev.fault);
    fakedev_fini(&dev);
}
