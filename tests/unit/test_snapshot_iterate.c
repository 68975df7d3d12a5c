/* SPDX-License-Identifier: MIT
 *
 * test_snapshot_iterate.c: the iteration over a cache that other threads keep using
 * (src/allocator/cache/iterate.c). Over an unused cache it shows the same as gp_cache_walk. If the cache changes
 * while the iteration holds no lock, each segment that it shows is still filled without a gap, and each
 * block that was live all the time is shown once, as live.
 */
#include "allocator/cache/cache.h"
#include "allocator/cache/policy.h"
#include "lib/fakedev.h"
#include "lib/random.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MIB   (1ull << 20)
#define KEPT  700
#define LOOSE 700
#define SEEN  200000

TestSuite(tour, .timeout = 120);

static uint64_t random_state;
static uint64_t next_random(void)
{
    return random_next(&random_state);
}

struct shown {
    bool segment;
    uint64_t address, bytes, requested_bytes;
    enum gp_cache_state state;
};

struct view {
    struct gp_cache *cache;
    struct shown *seen;
    uint64_t count, at, end, since_rest;
    uint64_t rests, most;
    const char *wrong;
    /* The events while the iteration holds no lock. */
    uint64_t loose[LOOSE];
    bool churns, trims;
};

static struct fakedev dev;

static struct gp_cache *cache_new(const char *policy)
{
    struct gp_cache *cache;
    cr_assert_eq(fakedev_init(&dev, 4096 * MIB, 2 * MIB), 0);
    fakedev_stream_open(&dev, 1);
    struct gp_cache_setup setup = {.policy = gp_policy_find(policy), .backend = fakedev_backend(&dev)};
    cr_assert_eq(gp_cache_new(&cache, &setup), 0);
    return cache;
}

static uint64_t get(struct gp_cache *cache, uint64_t bytes, uint64_t *granted)
{
    struct gp_grant grant;
    cr_assert_eq(gp_cache_alloc(cache, &(struct gp_request){.bytes = bytes, .stream = 1, .shard = 1}, &grant), 0);
    if (granted)
        *granted = grant.bytes;
    return grant.address;
}

static uint64_t any_size(void)
{
    uint64_t kind = next_random() % 16;
    return 1 + next_random() % (kind < 10 ? 4096 : kind < 15 ? 300000 : 6 * MIB);
}

static bool see_segment(void *arg, const struct gp_cache_segment *segment)
{
    struct view *view = arg;
    if (view->at != view->end)
        view->wrong = "a segment that its blocks do not fill";
    view->at = segment->address;
    view->end = segment->address + segment->bytes;
    view->since_rest++;
    if (view->count < SEEN)
        view->seen[view->count++] = (struct shown){true, segment->address, segment->bytes, 0, GP_CACHE_LIVE};
    return true;
}

static bool see_block(void *arg, const struct gp_cache_block *block)
{
    struct view *view = arg;
    if (block->address != view->at || block->bytes == 0 || block->bytes > view->end - view->at)
        view->wrong = "a gap, an overlap, or a block beyond its segment";
    view->at = block->address + block->bytes;
    view->since_rest++;
    if (view->count < SEEN)
        view->seen[view->count++] =
            (struct shown){false, block->address, block->bytes, block->requested_bytes, block->state};
    return true;
}

static void churn(struct view *view)
{
    for (unsigned i = next_random() % 40; i > 0; i--) {
        uint64_t *one = &view->loose[next_random() % LOOSE];
        if (*one)
            gp_cache_release(view->cache, *one, GP_FREE_ORDERED, 1, NULL);
        *one = *one ? 0 : get(view->cache, any_size(), NULL);
    }
    for (unsigned i = 0; view->trims && i < LOOSE; i++) {
        if (view->loose[i])
            gp_cache_release(view->cache, view->loose[i], GP_FREE_ORDERED, 1, NULL);
        view->loose[i] = 0;
    }
    if (view->trims)
        gp_cache_trim(view->cache, 0);
}

static void rest(void *arg)
{
    struct view *view = arg;
    view->rests++;
    view->most = view->since_rest > view->most ? view->since_rest : view->most;
    view->since_rest = 0;
    if (view->churns)
        churn(view);
}

static struct view view_of(struct gp_cache *cache)
{
    return (struct view){.cache = cache, .seen = calloc(SEEN, sizeof(struct shown))};
}

/* Frees half of them, so that idle blocks lie between the live ones. */
static void fill(struct gp_cache *cache, uint64_t *kept, uint64_t *sizes, struct view *view)
{
    for (unsigned i = 0; i < KEPT; i++) {
        kept[i] = get(cache, any_size(), &sizes[i]);
        view->loose[i % LOOSE] = get(cache, any_size(), NULL);
    }
    for (unsigned i = 0; i < LOOSE; i += 3) {
        gp_cache_release(cache, view->loose[i], GP_FREE_ORDERED, 1, NULL);
        view->loose[i] = 0;
    }
}

static const char *const policies[] = {"caching", "pytorch"};

Test(tour, at_rest_it_shows_what_the_walk_shows)
{
    for (unsigned p = 0; p < 2; p++) {
        static uint64_t kept[KEPT], sizes[KEPT];
        random_state = RANDOM_SEED + p;
        if (!gp_policy_find(policies[p]))
            continue;
        struct gp_cache *cache = cache_new(policies[p]);
        struct view tour = view_of(cache), walk = view_of(cache);
        fill(cache, kept, sizes, &tour);
        gp_cache_walk(cache, &walk, see_segment, see_block);
        gp_cache_iterate(cache, &tour, see_segment, see_block, rest);
        cr_expect_null(tour.wrong, "%s", tour.wrong);
        cr_assert_eq(tour.count, walk.count);
        cr_expect_gt(walk.count, KEPT);
        cr_expect_gt(tour.rests + 2, walk.count / GP_CACHE_REST);
        cr_expect_leq(tour.most, 2 * GP_CACHE_REST);
        for (uint64_t i = 0; i < walk.count; i++)
            cr_assert_eq(memcmp(&tour.seen[i], &walk.seen[i], sizeof(struct shown)), 0, "piece %lu", (unsigned long)i);
        free(tour.seen);
        free(walk.seen);
        gp_cache_free(cache);
        fakedev_fini(&dev);
    }
}

static unsigned seen_live(const struct view *view, uint64_t address, uint64_t bytes)
{
    unsigned times = 0;
    for (uint64_t i = 0; i < view->count; i++)
        times += !view->seen[i].segment && view->seen[i].address == address && view->seen[i].bytes == bytes &&
                 view->seen[i].state == GP_CACHE_LIVE;
    return times;
}

Test(tour, what_stays_is_seen_whatever_else_comes_and_goes)
{
    for (unsigned round = 0; round < 40; round++) {
        static uint64_t kept[KEPT], sizes[KEPT];
        char why[256];
        random_state = 362436069 + round * 7919;
        struct gp_cache *cache = cache_new(policies[round % 2]);
        struct view view = view_of(cache);
        fill(cache, kept, sizes, &view);
        view.churns = true;
        view.trims = round % 4 > 1;
        gp_cache_iterate(cache, &view, see_segment, see_block, rest);
        cr_expect_null(view.wrong, "round %u: %s", round, view.wrong);
        cr_expect_eq(view.at, view.end, "round %u: the last segment is not filled", round);
        for (unsigned i = 0; i < KEPT; i++)
            cr_assert_eq(seen_live(&view, kept[i], sizes[i]), 1, "round %u: block %u", round, i);
        cr_expect_eq(gp_cache_check(cache, why, sizeof(why)), 0, "round %u: %s", round, why);
        free(view.seen);
        gp_cache_free(cache);
        cr_expect_eq(dev.faults, 0, "%s", dev.fault);
        fakedev_fini(&dev);
    }
}

/* The segments vanish during the iteration: all blocks are idle, and the trim releases all segments. */
Test(tour, segments_that_go_are_filled_with_idle_memory)
{
    random_state = 521288629;
    struct gp_cache *cache = cache_new("pytorch");
    struct view view = view_of(cache);
    for (unsigned i = 0; i < LOOSE; i++)
        view.loose[i] = get(cache, 512, NULL);
    view.churns = view.trims = true;
    gp_cache_iterate(cache, &view, see_segment, see_block, rest);
    cr_expect_null(view.wrong, "%s", view.wrong);
    cr_expect_eq(view.at, view.end);
    cr_expect_gt(view.rests, 0);
    free(view.seen);
    gp_cache_free(cache);
    fakedev_fini(&dev);
}

static bool stop;

static void *busy(void *arg)
{
    struct gp_cache *cache = arg;
    uint64_t mine[64] = {0}, state = (uint64_t)(uintptr_t)&mine | 1;
    for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
        struct gp_grant grant;
        uint64_t *one = &mine[i % 64];
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        if (*one)
            gp_cache_release(cache, *one, GP_FREE_ORDERED, 2, NULL);
        *one = 0;
        struct gp_request request = {.bytes = 1 + (state >> 40) % 200000, .stream = 1, .shard = 2};
        if (gp_cache_alloc(cache, &request, &grant) == 0)
            *one = grant.address;
    }
    for (unsigned i = 0; i < 64; i++)
        if (mine[i])
            gp_cache_release(cache, mine[i], GP_FREE_ORDERED, 2, NULL);
    return NULL;
}

Test(tour, beside_threads_that_use_the_cache)
{
    random_state = 2463534242;
    static uint64_t kept[KEPT], sizes[KEPT];
    char why[256];
    pthread_t threads[2];
    struct gp_cache *cache = cache_new("caching");
    struct view view = view_of(cache);
    fill(cache, kept, sizes, &view);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, busy, cache), 0);
    for (unsigned round = 0; round < 30 && !view.wrong; round++) {
        view.count = view.at = view.end = 0;
        gp_cache_iterate(cache, &view, see_segment, see_block, rest);
        for (unsigned i = 0; i < KEPT; i++)
            cr_assert_eq(seen_live(&view, kept[i], sizes[i]), 1, "round %u: block %u", round, i);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    cr_expect_null(view.wrong, "%s", view.wrong);
    cr_expect_eq(gp_cache_check(cache, why, sizeof(why)), 0, "%s", why);
    free(view.seen);
    gp_cache_free(cache);
    cr_expect_eq(dev.faults, 0, "%s", dev.fault);
    fakedev_fini(&dev);
}
