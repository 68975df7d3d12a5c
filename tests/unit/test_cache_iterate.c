/* SPDX-License-Identifier: MIT
 *
 * test_cache_iterate.c: a visit of all blocks while the cache changes.  The changes are made in the visit's rest, where
 * the lock is given: each segment that is shown is covered without a gap all the same.
 */
#include "allocator/cache/internal.h"
#include "lib/fakedev.h"
#include "lib/lockfree.h"

#include <criterion/criterion.h>
#include <string.h>

#define MIB    (1ull << 20)
#define BLOCKS 1400 /* a rest comes after GP_CACHE_REST visits */

static struct fakedev dev;
static struct gp_cache *cache;
static uint64_t blocks[BLOCKS], large[3];

static uint64_t taken(uint64_t bytes, uint64_t tag)
{
    struct gp_request request = {.bytes = bytes, .stream = 2, .shard = 1, .tag = tag};
    struct gp_grant grant = {0};
    cr_assert_eq(gp_cache_alloc(cache, &request, &grant), 0);
    return grant.address;
}

static void given(uint64_t address)
{
    cr_assert(gp_cache_release(cache, address, GP_FREE_ORDERED, 1, NULL));
}

static void made(void)
{
    struct gp_policy policy = *gp_policy_find("pytorch");
    cr_assert_eq(fakedev_init(&dev, 1024 * MIB, 2 * MIB), 0);
    fakedev_stream_open(&dev, 2);
    struct gp_cache_setup setup = {.policy = &policy, .backend = fakedev_backend(&dev)};
    cr_assert_eq(gp_cache_new(&cache, &setup), 0);
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = taken(512, i + 1);
    for (unsigned i = 0; i < 3; i++)
        large[i] = taken(30 * MIB, 10000 + i);
}

struct seen {
    int way;
    unsigned segments, visits, live, idle, rests, stop;
    uint64_t next, end, live_bytes, from; /* of the segment under way */
    bool gap;
};

static bool see_segment(void *arg, const struct gp_cache_segment *segment)
{
    struct seen *seen = arg;
    seen->gap |= seen->next != seen->end;
    seen->next = segment->address;
    seen->end = segment->address + segment->bytes;
    seen->segments++;
    return ++seen->visits != seen->stop;
}

static bool see_block(void *arg, const struct gp_cache_block *block)
{
    struct seen *seen = arg;
    seen->gap |= block->address != seen->next || !block->bytes;
    seen->next = block->address + block->bytes;
    seen->gap |= seen->next > seen->end;
    seen->live += block->state == GP_CACHE_LIVE;
    seen->idle += block->state == GP_CACHE_IDLE;
    seen->live_bytes += block->state == GP_CACHE_LIVE ? block->bytes : 0;
    /* Where a block is shown in part, nothing is said about its owner. */
    cr_expect(block->state == GP_CACHE_LIVE ? block->tag && block->requested_bytes
                                            : !block->tag && !block->requested_bytes && !block->time_ns);
    return ++seen->visits != seen->stop;
}

static void change(void *arg);

static struct seen iterated(int way, unsigned stop)
{
    struct seen seen = {.way = way, .stop = stop};
    gp_cache_iterate(cache, &seen, see_segment, see_block, change);
    cr_expect(lock_is_as_new(&cache->lock) && lock_is_as_new(&cache->grow));
    return seen;
}

static void change(void *arg)
{
    struct seen *seen = arg;
    unsigned at = GP_CACHE_REST; /* about here */
    seen->rests++;
    if (seen->rests > 1)
        return;
    switch (seen->way) {
    case 1: /* all memory goes, with the segment under way */
        for (unsigned i = 0; i < BLOCKS; i++)
            given(blocks[i]);
        for (unsigned i = 0; i < 3; i++)
            given(large[i]);
        cr_assert_gt(gp_cache_trim(cache, 0), 90 * MIB);
        break;
    case 2: /* the rest of the segment under way is one block */
        for (unsigned i = at - 3; i < BLOCKS; i++)
            given(blocks[i]);
        break;
    case 3: /* a larger block from before the visit's place to behind it */
        for (unsigned i = at - 30; i < at + 30; i++)
            given(blocks[i]);
        cr_assert_eq(taken(60 * 512, 77), blocks[at - 30]);
        break;
    case 4: /* two visits at a time; the inner one comes first to its end */
        cr_expect_eq(iterated(0, 0).live, BLOCKS + 3);
        given(large[1]);
        cr_assert_eq(gp_cache_trim(cache, 0), 30 * MIB);
        break;
    case 5: /* two, and the memory under both goes */
        cr_expect_eq(iterated(1, 0).segments, 1);
        break;
    case 6: /* a segment that is not visited yet goes, and another one comes */
        given(large[2]);
        cr_assert_eq(gp_cache_trim(cache, 0), 30 * MIB);
        taken(50 * MIB, 99);
        break;
    default:
        break;
    }
}

static void over(void)
{
    char why[192];
    cr_expect_null(cache->cursors);
    cr_expect_eq(gp_cache_check(cache, why, sizeof why), 0, "%s", why);
    gp_cache_free(cache);
    cr_expect_eq(dev.faults, 0, "%s", dev.fault);
    fakedev_fini(&dev);
}

Test(cache_iterate, segments_are_covered_while_they_change, .timeout = 60)
{
    static const struct {
        unsigned segments[2], live[2];
        uint64_t live_bytes;
    } rows[] = {
        {{4, 4}, {BLOCKS + 3, BLOCKS + 3}, BLOCKS * 512 + 90 * MIB}, /* nothing changes */
        {{1, 1}, {1000, 1024}, 0},
        {{4, 4}, {1000, 1030}, 0},
        {{4, 4}, {1300, BLOCKS + 3}, 0},
        {{3, 3}, {BLOCKS + 2, BLOCKS + 2}, BLOCKS * 512 + 60 * MIB},
        {{1, 1}, {1000, 1024}, 0},
        {{3, 4}, {BLOCKS + 2, BLOCKS + 3}, 0},
    };
    for (int way = 0; way < (int)GP_COUNT(rows); way++) {
        made();
        struct seen seen = iterated(way, 0);
        cr_expect(!seen.gap && seen.next == seen.end, "way %d: a gap or an overlap", way);
        cr_expect(seen.segments >= rows[way].segments[0] && seen.segments <= rows[way].segments[1],
                  "way %d: %u segments", way, seen.segments);
        cr_expect(seen.live >= rows[way].live[0] && seen.live <= rows[way].live[1], "way %d: %u blocks live", way,
                  seen.live);
        cr_expect(!rows[way].live_bytes || seen.live_bytes == rows[way].live_bytes, "way %d", way);
        cr_expect_geq(seen.rests, 1);
        over();
    }
}

/* A visitor that has seen enough ends the visit, whatever it saw last. */
Test(cache_iterate, a_visitor_can_stop_at_any_visit)
{
    made();
    unsigned all = iterated(0, 0).visits;
    cr_expect_eq(all, 4 + BLOCKS + 3 + 1, "segments, blocks and the small segment's rest");
    for (unsigned stop = 1; stop <= all; stop += stop < 20 || stop > all - 20 ? 1 : 97)
        cr_expect_eq(iterated(0, stop).visits, stop);
    struct seen seen = {.way = 0};
    gp_cache_iterate(cache, &seen, see_segment, see_block, NULL);
    cr_expect_eq(seen.visits, all);
    for (unsigned stop = 1; stop <= all; stop += stop < 20 || stop > all - 20 ? 1 : 97) {
        struct seen walked = {.stop = stop};
        gp_cache_walk(cache, &walked, see_segment, see_block);
        cr_expect_eq(walked.visits, stop);
    }
    over();
}

/* More segments than one batch of addresses. */
Test(cache_iterate, any_number_of_segments_is_visited, .timeout = 60)
{
    static const unsigned counts[] = {1, 511, 512, 513, 1023, 1024, 1025, 1600, 2500};
    for (unsigned i = 0; i < GP_COUNT(counts); i++) {
        struct gp_policy policy = *gp_policy_find("passthrough");
        cr_assert_eq(fakedev_init(&dev, 1ull << 40, 2 * MIB), 0);
        fakedev_stream_open(&dev, 2);
        struct gp_cache_setup setup = {.policy = &policy, .backend = fakedev_backend(&dev)};
        cr_assert_eq(gp_cache_new(&cache, &setup), 0);
        for (unsigned n = 0; n < counts[i]; n++)
            taken(4096, n + 1);
        struct seen seen = iterated(0, 0);
        cr_expect(!seen.gap && seen.next == seen.end);
        cr_expect_eq(seen.segments, counts[i]);
        cr_expect_eq(seen.live_bytes, counts[i] * 4096ull);
        over();
    }
}
