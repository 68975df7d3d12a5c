/* SPDX-License-Identifier: MIT
 *
 * test_cache_iterate.c: a visit of all blocks while the cache changes.  The changes are made in the visit's rest, where
 * the lock is given, or by other threads: each segment that is shown is covered without a gap all the same, and each
 * block that lives all the time is shown once.
 */
#include "base/compiler.h"
#include "cache/cache.h"
#include "cache/internal.h"
#include "cache/policy.h"
#include "lib/lockfree.h"
#include "lib/random.h"
#include "lib/testcache.h"

#include <pthread.h>
#include <string.h>

#define BLOCKS 1400 /* a rest comes after GP_CACHE_REST visits */
#define KEPT   700  /* blocks that stay, with the tags from 1 on */
#define LOOSE  700  /* blocks that come and go */

TestSuite(cache_iterate, .timeout = 120);

static struct gp_cache *cache;
static uint64_t blocks[BLOCKS], large[3], loose[LOOSE], random_state = RANDOM_SEED;

static uint64_t taken(uint64_t bytes, uint64_t tag)
{
    struct gp_request request = {.bytes = bytes, .stream = STREAM, .shard = 1, .tag = tag};
    struct gp_grant grant = {0};
    cr_assert_eq(gp_cache_alloc(cache, &request, &grant), 0);
    return grant.address;
}

static void given(uint64_t address)
{
    cache_give(cache, address);
}

static void opened(const char *name, uint64_t capacity)
{
    const struct gp_policy policy = cache_policy(name, NULL);
    cache = cache_open(&policy, capacity);
}

static void made(void)
{
    opened("pytorch", 1024 * MIB);
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = taken(512, i + 1);
    for (unsigned i = 0; i < 3; i++)
        large[i] = taken(30 * MIB, 10000 + i);
}

struct seen {
    int way;
    unsigned segments, visits, live, rests, stop, since_rest, most;
    uint64_t next, end, live_bytes; /* of the segment under way */
    bool gap;
    unsigned kept[KEPT]; /* how often each was shown as live */
};

static bool seen_more(struct seen *seen)
{
    seen->since_rest++;
    return ++seen->visits != seen->stop;
}

static bool see_segment(void *arg, const struct gp_cache_segment *segment)
{
    struct seen *seen = arg;
    seen->gap |= seen->next != seen->end;
    seen->next = segment->address;
    seen->end = segment->address + segment->bytes;
    seen->segments++;
    return seen_more(seen);
}

static bool see_block(void *arg, const struct gp_cache_block *block)
{
    struct seen *seen = arg;
    bool live = block->state == GP_CACHE_LIVE;
    seen->gap |= block->address != seen->next || !block->bytes;
    seen->next = block->address + block->bytes;
    seen->gap |= seen->next > seen->end;
    seen->live += live;
    seen->live_bytes += live ? block->bytes : 0;
    if (live && block->tag <= KEPT)
        seen->kept[block->tag - 1]++;
    /* Where a block is shown in part, nothing is said about its owner. */
    cr_expect(live ? block->tag && block->requested_bytes : !block->tag && !block->time_ns);
    return seen_more(seen);
}

static void change(void *arg);

static struct seen iterated(int way, unsigned stop)
{
    struct seen seen = {.way = way, .stop = stop};
    gp_cache_iterate(cache, &seen, see_segment, see_block, change);
    cr_expect(stop || (!seen.gap && seen.next == seen.end), "way %d: a gap or an overlap", way);
    return seen;
}

static uint64_t any_size(void)
{
    unsigned kind = random_below(&random_state, 16);
    return 1 + random_below(&random_state, kind < 10 ? 4096 : kind < 15 ? 300000 : 6 << 20);
}

static void loose_change(unsigned i)
{
    if (loose[i])
        given(loose[i]);
    loose[i] = loose[i] ? 0 : taken(any_size(), KEPT + 1 + i);
}

static void change(void *arg)
{
    struct seen *seen = arg;
    unsigned at = GP_CACHE_REST; /* about here */
    seen->rests++;
    seen->most = seen->since_rest > seen->most ? seen->since_rest : seen->most;
    seen->since_rest = 0;
    if (seen->rests > 1 && seen->way < 7)
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
        taken(50 * MIB, 9999);
        break;
    case 7: /* some go and some come */
        for (unsigned i = random_below(&random_state, 40); i > 0; i--)
            loose_change(random_below(&random_state, LOOSE));
        break;
    case 8: /* all that may go go, with their segments */
        for (unsigned i = 0; i < LOOSE; i++)
            if (loose[i])
                loose_change(i);
        gp_cache_trim(cache, 0);
        break;
    default:
        break;
    }
}

static void over(void)
{
    cr_expect_null(cache->cursors);
    cr_expect(lock_is_as_new(&cache->lock) && lock_is_as_new(&cache->grow));
    cache_close(cache);
}

Test(cache_iterate, segments_are_covered_while_they_change)
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
        cr_expect(seen.segments >= rows[way].segments[0] && seen.segments <= rows[way].segments[1],
                  "way %d: %u segments", way, seen.segments);
        cr_expect(seen.live >= rows[way].live[0] && seen.live <= rows[way].live[1], "way %d: %u blocks live", way,
                  seen.live);
        cr_expect(!rows[way].live_bytes || seen.live_bytes == rows[way].live_bytes, "way %d", way);
        cr_expect(seen.rests >= 1 && seen.most <= 2 * GP_CACHE_REST);
        over();
    }
}

/* A visitor that has seen enough ends the visit, whatever it saw last. */
Test(cache_iterate, a_visitor_can_stop_at_any_visit)
{
    made();
    unsigned all = iterated(0, 0).visits;
    cr_expect_eq(all, 4 + BLOCKS + 3 + 1, "segments, blocks and the small segment's rest");
    for (unsigned stop = 1; stop <= all; stop += stop < 20 || stop > all - 20 ? 1 : 97) {
        struct seen walked = {.stop = stop};
        cr_expect_eq(iterated(0, stop).visits, stop);
        gp_cache_walk(cache, &walked, see_segment, see_block);
        cr_expect_eq(walked.visits, stop);
    }
    struct seen seen = {.way = 0};
    gp_cache_iterate(cache, &seen, see_segment, see_block, NULL);
    cr_expect_eq(seen.visits, all);
    over();
}

/* More segments than one batch of addresses. */
Test(cache_iterate, any_number_of_segments_is_visited)
{
    static const unsigned counts[] = {1, 511, 512, 513, 1023, 1024, 1025, 1600, 2500};
    for (unsigned i = 0; i < GP_COUNT(counts); i++) {
        opened("passthrough", 1ull << 40);
        for (unsigned n = 0; n < counts[i]; n++)
            taken(4096, n + 1);
        struct seen seen = iterated(0, 0);
        cr_expect_eq(seen.segments, counts[i]);
        cr_expect_eq(seen.live_bytes, counts[i] * 4096ull);
        over();
    }
}

/* Half of the loose blocks are idle memory between the kept ones. */
static void filled(const char *policy)
{
    opened(policy, 4096 * MIB);
    memset(loose, 0, sizeof loose);
    for (unsigned i = 0; i < KEPT; i++) {
        taken(any_size(), i + 1);
        loose_change(i);
    }
    for (unsigned i = 0; i < LOOSE; i += 2)
        loose_change(i);
}

static void expect_kept(const struct seen *seen, unsigned round)
{
    for (unsigned i = 0; i < KEPT; i++)
        cr_assert_eq(seen->kept[i], 1, "round %u: block %u is shown %u times", round, i, seen->kept[i]);
}

Test(cache_iterate, what_stays_is_seen_whatever_else_comes_and_goes)
{
    for (unsigned round = 0; round < 40; round++) {
        filled(round % 2 ? "pytorch" : "caching");
        struct seen seen = iterated(7 + round % 4 / 2, 0);
        expect_kept(&seen, round);
        over();
    }
}

static bool stop;

static void *busy(void *arg)
{
    uint64_t mine[64] = {0}, state = (uint64_t)(uintptr_t)&mine | 1;
    for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED) || i % 64; i++) {
        struct gp_grant grant = {0};
        struct gp_request request = {
            .bytes = 1 + random_below(&state, 200000), .stream = STREAM, .shard = 2, .tag = KEPT + 1};
        if (mine[i % 64])
            gp_cache_release(arg, mine[i % 64], GP_FREE_ORDERED, 2, NULL);
        gp_cache_alloc(arg, &request, &grant);
        mine[i % 64] = grant.address;
    }
    return NULL;
}

Test(cache_iterate, beside_threads_that_use_the_cache)
{
    pthread_t threads[2];
    filled("caching");
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, busy, cache), 0);
    for (unsigned round = 0; round < 30; round++) {
        struct seen seen = iterated(0, 0);
        expect_kept(&seen, round);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    over();
}
