/* SPDX-License-Identifier: MIT
 *
 * test_cache_poor.c: the caching allocator when the system has no memory for its records.  Each call of mmap fails once
 * in turn; a request fails or is served, what lives stays as it is, the cache is sound, and at its end no byte is mapped
 * that was not mapped before.
 */
#include "base/compiler.h"
#include "cache/cache.h"
#include "cache/internal.h"
#include "cache/policy.h"
#include "lib/lockfree.h"
#include "lib/mappings.h"
#include "lib/testcache.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static unsigned failing; /* the mapping with this number fails; 0: none */

static struct gp_grant live[20000];
static unsigned live_count;

static void sound(struct gp_cache *cache, const char *what)
{
    const typeof(mappings) counted = mappings;
    mappings.fail = 0;
    cache_sound(cache);
    cr_assert(lock_is_as_new(&cache->lock) && lock_is_as_new(&cache->grow), "%s: a lock is held", what);
    for (unsigned i = 0; i < live_count; i += 397) {
        struct gp_grant now;
        cr_assert(gp_cache_find(cache, live[i].address, &now) && now.address == live[i].address);
        cr_assert(fakedev_holds(&dev, now.address, now.bytes));
    }
    mappings = counted;
}

/* Returns whether it was served. */
static bool taken(struct gp_cache *cache, uint64_t bytes, uint64_t stream, uint64_t pool)
{
    struct gp_request request = {.bytes = bytes, .stream = stream, .shard = 1, .pool = pool};
    uint32_t result = gp_cache_alloc(cache, &request, &live[live_count]);
    cr_assert(result == 0 || result == GP_BACKEND_OOM, "error %u", result);
    live_count += result == 0;
    return result == 0;
}

static void given(struct gp_cache *cache, unsigned i, enum gp_free_order order)
{
    cr_assert(gp_cache_release(cache, live[i].address, order, 1, NULL));
    live[i] = live[--live_count];
}

/* Returns how often a request was refused. */
static unsigned program(struct gp_cache *cache, const struct gp_policy *policy)
{
    unsigned refused = 0;
    bool pool = gp_cache_pool_begin(cache, 9) == 0;
    for (unsigned i = 0; i < 30; i++)
        refused += !taken(cache, 512 + i * MIB / 3, i % 2 ? 2 : 7, pool && i % 5 == 0 ? 9 : 0);
    sound(cache, "some");
    for (unsigned i = 0; i < 20 && live_count; i++) {
        gp_cache_record_stream(cache, live[i % live_count].address, 2 + i % 2 * 5);
        given(cache, i % live_count, i % 3 ? GP_FREE_ORDERED : GP_FREE_UNORDERED);
    }
    sound(cache, "frees");
    for (unsigned i = 0; i < (policy->own_segment_bytes ? 4500 : 300); i++)
        refused += !taken(cache, 512, 2, 0);
    sound(cache, "many");
    refused += !taken(cache, 3 * MIB, 9, 0);
    for (unsigned i = 0; i < 40; i++) {
        if (live_count)
            given(cache, i * 7 % live_count, GP_FREE_ORDERED);
        refused += !taken(cache, (i + 1) * MIB / 2, 2, 0);
    }
    gp_cache_trim(cache, 0);
    sound(cache, "trim");
    gp_cache_stream_gone(cache, 7);
    while (live_count > 20)
        given(cache, live_count - 1, live_count % 2 ? GP_FREE_ORDERED : GP_FREE_BY_STREAM);
    sound(cache, "the end");
    if (pool)
        cr_assert_eq(gp_cache_pool_release(cache, 9), 0);
    return refused;
}

static unsigned run(const char *name, const char *conf)
{
    struct gp_policy policy = cache_policy(name, conf);
    struct gp_cache *cache = NULL;
    unsigned refused = 0;
    cache_device(4096 * MIB);
    struct gp_cache_setup setup = {.policy = &policy, .backend = fakedev_backend(&dev)};
    memset(&mappings, 0, sizeof(mappings));
    mappings.fail = failing;
    live_count = 0;
    int error = gp_cache_new(&cache, &setup);
    if (error) {
        cr_assert_eq(error, -ENOMEM);
    } else {
        refused = program(cache, &policy);
        gp_cache_free(cache);
    }
    char left[160];
    cr_assert_eq(fakedev_left(&dev, true, left, sizeof left), 0, "mapping %u fails: %s", failing, left);
    cr_assert_eq(dev.faults, 0, "mapping %u fails: %s", failing, dev.fault);
    cr_assert_eq(mappings.bytes, 0, "mapping %u fails: %lld bytes stay mapped", failing, mappings.bytes);
    fakedev_fini(&dev);
    return error ? 1 : refused;
}

static const struct {
    const char *policy, *conf;
} ways[] = {{"caching", NULL},     {"pytorch", NULL},  {"pytorch", "expandable_segments:True"},
            {"auto_growth", NULL}, {"prealloc", NULL}, {"passthrough", NULL}};

Test(cache_poor, each_mapping_fails_once, .timeout = 120)
{
    for (unsigned way = 0; way < GP_COUNT(ways); way++) {
        unsigned refusing = 0, all;
        failing = 0;
        cr_expect(run(ways[way].policy, ways[way].conf) == 0 || way == 4, "%s refuses with memory", ways[way].policy);
        all = mappings.made;
        for (failing = 1; failing <= all; failing++)
            refusing += run(ways[way].policy, ways[way].conf) > 0;
        cr_expect(all > 8 && refusing >= 2, "%s: %u of %u", ways[way].policy, refusing, all);
    }
}
