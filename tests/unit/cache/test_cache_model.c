/* SPDX-License-Identifier: MIT
 *
 * test_cache_model.c: the caching allocator against a model that shares no code with it
 * (lib/cachemodel.h): random operations on every policy, failures of every backend call in turn,
 * and a second thread that must make progress while a backend call takes its time.
 * Run: first
 */
#include "lib/cachemodel.h"
#include "lib/full.h"
#include "lib/random.h"
#include "lib/testcache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Runs one seed; the tallies show that the run reached its purpose. */
static void run(const struct cachemodel_setup *setup, uint64_t seed, unsigned steps, struct cachemodel *model)
{
    uint64_t state = seed;
    bool right = true;
    cr_assert_eq(cachemodel_init(model, setup), 0, "%s %s: no such policy", setup->policy, setup->conf);
    for (unsigned i = 0; i < steps && right; i++) {
        uint64_t bytes = random_mix(&state);
        right = cachemodel_step(model, (const uint8_t *)&bytes);
    }
    right = cachemodel_fini(model, seed % 4 != 3) && right;
    cr_assert(right, "%s %s, %llu MiB, seed %llu: %s", setup->policy, setup->conf ? setup->conf : "",
              (unsigned long long)(setup->capacity / MIB), (unsigned long long)seed, model->why);
}

static void run_places(unsigned steps, unsigned seeds, const struct cachemodel_setup *how)
{
    static const uint64_t capacities[] = {128 * MIB, 512 * MIB, 4096 * MIB};
    static struct cachemodel model;
    for (unsigned p = 0; p < CACHEMODEL_PLACES; p++) {
        uint64_t allocs = 0, frees = 0, judged = 0;
        for (unsigned seed = 1; seed <= seeds; seed++) {
            struct cachemodel_setup setup = cachemodel_places[p];
            setup.capacity = capacities[seed % 3];
            setup.failures = how->failures;
            setup.captures = how->captures;
            setup.gone_live = how->gone_live;
            setup.check_every = how->check_every;
            setup.below_peak = how->below_peak;
            setup.full = how->full;
            setup.alone = how->alone;
            run(&setup, seed, steps, &model);
            allocs += model.allocs;
            frees += model.frees;
            judged += model.use.judged;
        }
        cr_assert(allocs > seeds * steps / 16 && frees > seeds * steps / 32, "place %u: %llu allocations, %llu frees",
                  p, (unsigned long long)allocs, (unsigned long long)frees);
        /* Reuse in stream order while work is pending is the purpose of a caching allocator.
         * passthrough has no reuse, and prealloc's one chunk goes from stream to stream after a
         * fence. */
        bool reuses =
            strcmp(cachemodel_places[p].policy, "passthrough") && strcmp(cachemodel_places[p].policy, "prealloc");
        cr_assert(judged || !reuses, "place %u: no use was ever judged", p);
    }
}

Test(cache_model, random, .timeout = 300)
{
    run_places(1500, 6, &(struct cachemodel_setup){0});
}

Test(cache_model, captures, .timeout = 300)
{
    run_places(1000, 4, &(struct cachemodel_setup){.captures = true});
}

Test(cache_model, failures, .timeout = 300)
{
    run_places(1000, 4, &(struct cachemodel_setup){.failures = true});
}

Test(cache_model, streams_end_before_their_blocks, .timeout = 300)
{
    run_places(1000, 4, &(struct cachemodel_setup){.gone_live = true});
}

Test(cache_model, with_times_tags_and_short_calls, .timeout = 300)
{
    run_places(1000, 3, &(struct cachemodel_setup){.full = true});
    run_places(1000, 3,
               &(struct cachemodel_setup){.full = true, .check_every = 61, .captures = true, .failures = true});
    run_places(3000, 3, &(struct cachemodel_setup){.full = true, .below_peak = true, .check_every = 499});
}

Test(cache_model, alone, .timeout = 300)
{
    run_places(1500, 4, &(struct cachemodel_setup){.alone = true, .check_every = 7});
    run_places(1000, 2, &(struct cachemodel_setup){.alone = true, .captures = true, .failures = true});
}

/* Few checks, so that the counters stay open and blocks go from one thread's cache to another's
 * without a lock. */
Test(cache_model, unwatched, .timeout = 300)
{
    run_places(6000, 6, &(struct cachemodel_setup){.check_every = 211});
    run_places(3000, 3, &(struct cachemodel_setup){.check_every = 61, .captures = true, .failures = true});
    run_places(3000, 3, &(struct cachemodel_setup){.check_every = 61, .gone_live = true});
}

Test(cache_model, below_peak, .timeout = 300)
{
    run_places(10000, 3, &(struct cachemodel_setup){.below_peak = true, .check_every = 997});
    run_places(5000, 3, &(struct cachemodel_setup){.below_peak = true, .check_every = 499, .gone_live = true});
}

/* ---- every call fails once -------------------------------------------------------------------------------------- */

/* Repeats the same short run; each time one more call succeeds before a call of this kind fails.
 * Returns the number of runs. */
static unsigned fail_each(const struct cachemodel_setup *setup, enum fakedev_call kind, uint32_t code, uint64_t seed)
{
    static struct cachemodel model;
    for (unsigned nth = 1;; nth++) {
        uint64_t state = seed;
        bool right = true;
        cr_assert_eq(cachemodel_init(&model, setup), 0);
        model.dev.fail_kind_at[kind] = nth;
        model.dev.fail_code = code;
        model.troubled = true;
        for (unsigned i = 0; i < 150 && right; i++) {
            uint64_t bytes = random_mix(&state);
            right = cachemodel_step(&model, (const uint8_t *)&bytes);
        }
        bool failed = model.dev.failed;
        right = cachemodel_fini(&model, true) && right;
        cr_assert(right, "%s %s, call %u of kind %d fails with %u, seed %llu: %s", setup->policy,
                  setup->conf ? setup->conf : "", nth, kind, code, (unsigned long long)seed, model.why);
        if (!failed || nth == 60)
            return nth - 1;
    }
}

/* Runs with each error code; in a short run with one of them for each place and kind of call. */
Test(cache_model, each_call_fails, .timeout = 300)
{
    static const enum fakedev_call kinds[] = {FAKEDEV_ALLOCATE, FAKEDEV_RESERVE, FAKEDEV_CREATE, FAKEDEV_MAP,
                                              FAKEDEV_RECORD,   FAKEDEV_QUERY,   FAKEDEV_WAIT,   FAKEDEV_MEMORY};
    static const uint32_t codes[] = {GP_BACKEND_OOM, FAKEDEV_FAILED, GP_BACKEND_FORBIDDEN};
    unsigned runs[FAKEDEV_CALLS] = {0};
    for (unsigned p = 0; p < CACHEMODEL_PLACES; p++) {
        struct cachemodel_setup setup = cachemodel_places[p];
        setup.capacity = 256 * MIB;
        for (unsigned k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            for (unsigned c = test_is_full() ? 0 : (p + k) % 3; c < 3; c += test_is_full() ? 1 : 3)
                runs[kinds[k]] += fail_each(&setup, kinds[k], codes[c], 11 + p);
    }
    cr_assert(runs[FAKEDEV_ALLOCATE] && runs[FAKEDEV_CREATE] && runs[FAKEDEV_MAP] && runs[FAKEDEV_RECORD]);
}

/* A call that releases memory fails. The test cannot know who owns that memory now, but other
 * blocks must not be affected. */
Test(cache_model, giving_back_fails, .timeout = 300)
{
    static const enum fakedev_call kinds[] = {FAKEDEV_FREE, FAKEDEV_UNMAP, FAKEDEV_DESTROY};
    static struct cachemodel model;
    unsigned failed = 0;
    for (unsigned p = 0; p < CACHEMODEL_PLACES; p++)
        for (unsigned run_number = 0; run_number < 30; run_number++) {
            struct cachemodel_setup setup = cachemodel_places[p];
            char why[192] = "";
            setup.capacity = 256 * MIB;
            uint64_t state = run_number + 1;
            cr_assert_eq(cachemodel_init(&model, &setup), 0);
            model.dev.fail_kind_at[kinds[run_number % 3]] = 1 + run_number / 3;
            for (unsigned i = 0; i < 150 && !model.dev.failed; i++) {
                uint64_t bytes = random_mix(&state);
                if (!cachemodel_step(&model, (const uint8_t *)&bytes) && !model.dev.failed)
                    cr_assert_fail("%s %s: %s", setup.policy, setup.conf ? setup.conf : "", model.why);
            }
            failed += model.dev.failed != 0;
            cr_assert_eq(model.dev.faults, 0, "%s: %s", setup.policy, model.dev.fault);
            cr_assert_eq(cache_check(model.cache, why, sizeof why), 0, "%s %s: %s", setup.policy,
                         setup.conf ? setup.conf : "", why);
            model.why[0] = 'x'; /* the remaining memory is not judged */
            cachemodel_fini(&model, false);
        }
    cr_assert(failed > 20, "%u runs failed", failed);
}

/* ---- a slow backend --------------------------------------------------------------------------------------------- */

struct slow {
    struct fakedev dev;
    struct gp_cache *cache;
    pthread_t helper, owner;
    pthread_mutex_t mutex;
    pthread_cond_t turn;
    int want, done, stop; /* rounds requested and served */
    bool armed;
    unsigned rounds, late, missed, called;
    unsigned shard;
};

static void slow_helper_round(struct slow *slow)
{
    struct gp_request request = {.bytes = 512, .stream = 7, .shard = slow->shard};
    struct gp_grant grant;
    if (gp_cache_alloc(slow->cache, &request, &grant) != 0 ||
        !gp_cache_release(slow->cache, grant.address, GP_FREE_ORDERED, slow->shard, NULL))
        __atomic_fetch_add(&slow->missed, 1, __ATOMIC_ACQ_REL);
}

static void *slow_helper(void *arg)
{
    struct slow *slow = arg;
    pthread_mutex_lock(&slow->mutex);
    while (!slow->stop) {
        if (slow->done == slow->want) {
            pthread_cond_wait(&slow->turn, &slow->mutex);
            continue;
        }
        pthread_mutex_unlock(&slow->mutex);
        slow_helper_round(slow);
        pthread_mutex_lock(&slow->mutex);
        slow->done++;
        pthread_cond_broadcast(&slow->turn);
    }
    pthread_mutex_unlock(&slow->mutex);
    return NULL;
}

/* The owner is inside the backend; meanwhile the helper needs a block that is idle. */
static void slow_enter(void *arg, enum fakedev_call call)
{
    struct slow *slow = arg;
    struct timespec end;
    (void)call;
    if (!slow->armed)
        return;
    if (!pthread_equal(pthread_self(), slow->owner)) {
        __atomic_fetch_add(&slow->called, 1, __ATOMIC_ACQ_REL);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 5;
    pthread_mutex_lock(&slow->mutex);
    int want = ++slow->want;
    slow->rounds++;
    pthread_cond_broadcast(&slow->turn);
    while (slow->done < want)
        if (pthread_cond_timedwait(&slow->turn, &slow->mutex, &end) == ETIMEDOUT) {
            slow->late++;
            break;
        }
    pthread_mutex_unlock(&slow->mutex);
}

static uint64_t slow_alloc(struct slow *slow, uint64_t bytes, uint64_t stream, unsigned flags)
{
    struct gp_request request = {.bytes = bytes, .stream = stream, .shard = 1, .flags = flags};
    struct gp_grant grant;
    cr_assert_eq(gp_cache_alloc(slow->cache, &request, &grant), 0);
    return grant.address;
}

static void slow_free(struct slow *slow, uint64_t address, enum gp_free_order order)
{
    cr_assert(gp_cache_release(slow->cache, address, order, 1, NULL));
}

/* ---- memory that is freed while the cache makes room for another request ----------------------------------------- */

static struct { /* the block that the next call of that kind frees, from inside the backend */
    struct gp_cache *cache;
    enum fakedev_call call;
    uint64_t address;
} freed;

static void freed_enter(void *arg, enum fakedev_call call)
{
    uint64_t address = call == freed.call ? freed.address : 0;
    (void)arg;
    if (!address)
        return;
    freed.address = 0;
    cache_give(freed.cache, address);
}

static void freed_open(enum fakedev_call call)
{
    freed.call = call;
    freed.cache = cache_open(gp_policy_find("caching"), 256 * MIB);
    dev.enter = freed_enter;
}

/* Takes all memory that was mapped ahead, so that the next request has to grow; 0: there was none. */
static uint64_t freed_fill(void)
{
    struct gp_cache_numbers numbers;
    gp_cache_numbers(freed.cache, &numbers);
    return numbers.idle_bytes ? cache_take(freed.cache, numbers.idle_bytes) : 0;
}

static void freed_close(void)
{
    cr_assert_eq(freed.address, 0, "the window was never reached");
    cache_close(freed.cache);
}

/* Creating a page fails once, and the memory that another thread freed meanwhile is enough: by less
 * than a page, or by more. */
Test(cache_model, freed_memory_is_enough_after_all)
{
    static const uint64_t wants[] = {9 * MIB, 10 * MIB - 512, 10 * MIB, 5 * MIB};
    for (unsigned i = 0; i < sizeof wants / sizeof wants[0]; i++) {
        freed_open(FAKEDEV_CREATE);
        uint64_t address = cache_take(freed.cache, 10 * MIB);
        freed_fill();
        uint64_t reserved = dev.held;
        freed.address = address;
        dev.fail_kind_at[FAKEDEV_CREATE] = dev.calls[FAKEDEV_CREATE] + 1;
        dev.fail_code = GP_BACKEND_OOM;
        cr_assert_eq(cache_take(freed.cache, wants[i]), address);
        cr_expect_eq(dev.held, reserved);
        freed_close();
    }
}

/* A growth counts on the idle block before its place; the block before that one is freed while
 * pages are mapped, and the mapping fails. */
Test(cache_model, freed_beside_the_place_of_growth)
{
    freed_open(FAKEDEV_MAP);
    uint64_t beside = cache_take(freed.cache, 4 * MIB), last = cache_take(freed.cache, 4 * MIB), ahead = freed_fill();
    if (ahead) {
        beside = last;
        last = ahead;
    }
    cache_give(freed.cache, last);
    freed.address = beside;
    dev.fail_kind_at[FAKEDEV_MAP] = dev.calls[FAKEDEV_MAP] + 1;
    struct gp_request request = {.bytes = 40 * MIB, .stream = STREAM, .shard = 1};
    struct gp_grant grant;
    cr_assert_eq(gp_cache_alloc(freed.cache, &request, &grant), FAKEDEV_FAILED);
    freed_close();
}

/* Growth, a driver allocation, fences, and releases: each calls the backend. */
static void slow_owner(struct slow *slow)
{
    /* One segment that cannot be released, because a block in it is live. */
    slow_free(slow, slow_alloc(slow, 64 * 1024, 7, 0), GP_FREE_ORDERED);
    uint64_t pin = slow_alloc(slow, 512, 7, 0);
    /* Run once without a watch, so that the idle blocks are in this helper's thread cache. */
    slow_helper_round(slow);
    slow->armed = true;
    uint64_t big = slow_alloc(slow, 64 * MIB, 2, 0);
    uint64_t alone = slow_alloc(slow, 24 * MIB, 2, GP_REQUEST_DEDICATED);
    slow_free(slow, big, GP_FREE_UNORDERED);
    slow_free(slow, alone, GP_FREE_ORDERED);
    slow_free(slow, slow_alloc(slow, 100 * MIB, 2, 0), GP_FREE_ORDERED);
    gp_cache_trim(slow->cache, 0);
    slow->armed = false;
    slow_free(slow, pin, GP_FREE_ORDERED);
}

Test(cache_model, others_get_on_while_the_backend_is_slow, .timeout = 120)
{
    static const unsigned which[] = {0, 6, 7, 10, 12, 13};
    for (unsigned i = 0; i < 2 * sizeof which / sizeof which[0]; i++) {
        const struct cachemodel_setup *place = &cachemodel_places[which[i / 2]];
        struct slow slow = {.mutex = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER, .shard = 1 + i % 2};
        struct gp_policy policy = cache_policy(place->policy, place->conf);
        cr_assert_eq(fakedev_init(&slow.dev, 4096 * MIB, place->page_bytes), 0);
        fakedev_stream_open(&slow.dev, 2);
        fakedev_stream_open(&slow.dev, 7);
        slow.dev.arg = &slow;
        slow.dev.enter = slow_enter;
        slow.owner = pthread_self();
        struct gp_cache_setup setup = {.policy = &policy, .backend = fakedev_backend(&slow.dev)};
        cr_assert_eq(gp_cache_new(&slow.cache, &setup), 0);
        cr_assert_eq(pthread_create(&slow.helper, NULL, slow_helper, &slow), 0);
        slow_owner(&slow);
        pthread_mutex_lock(&slow.mutex);
        slow.stop = 1;
        pthread_cond_broadcast(&slow.turn);
        pthread_mutex_unlock(&slow.mutex);
        if (slow.late == 0)
            pthread_join(slow.helper, NULL);
        cr_assert(slow.rounds > 0 && slow.late == 0, "%s %s: in %u of %u backend calls another thread had to wait",
                  place->policy, place->conf ? place->conf : "", slow.late, slow.rounds);
        cr_assert(slow.missed == 0 && slow.called == 0, "%s %s: %u misses, %u calls of the backend for idle memory",
                  place->policy, place->conf ? place->conf : "", slow.missed, slow.called);
        gp_cache_free(slow.cache);
        cr_assert_eq(slow.dev.faults, 0, "%s", slow.dev.fault);
        fakedev_fini(&slow.dev);
    }
}
