/* SPDX-License-Identifier: MIT
 *
 * test_cache_same.c: the caching allocator does on random programs what it did before: which addresses it gives, which
 * calls it makes, which events and statistics it has.  test_cache_model.c says which answers are right; here a change of
 * the order of choices, of a threshold or of a count shows.  tests/golden/cache.txt has for each policy and kind of
 * program some totals and a checksum; GP_GOLDEN_UPDATE=1 writes it.
 */
#include "allocator/cache/internal.h"
#include "lib/cachemodel.h"
#include "lib/lockfree.h"
#include "lib/paths.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB   (1ull << 20)
#define STEPS 2000

static const struct cachemodel_setup ways[] = {
    {.full = true, .check_every = 7},
    {.failures = true, .captures = true, .check_every = 11},
    {.full = true, .failures = true, .gone_live = true, .check_every = 97},
    {.full = true, .below_peak = true, .check_every = 997},
};

static uint64_t same_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static void mix(uint64_t *sum, uint64_t word)
{
    *sum = (*sum ^ word) * 0x100000001b3ull;
    *sum ^= *sum >> 29;
}

static bool mix_segment(void *sum, const struct gp_cache_segment *segment)
{
    mix(sum, segment->address);
    mix(sum, segment->bytes);
    mix(sum, segment->stream);
    mix(sum,
        segment->pool << 3 | (unsigned)segment->growable << 2 | (unsigned)segment->dedicated << 1 | segment->small);
    return true;
}

static bool mix_block(void *sum, const struct gp_cache_block *block)
{
    mix(sum, block->address);
    mix(sum, block->bytes);
    mix(sum, block->requested_bytes);
    mix(sum, block->stream);
    mix(sum, block->tag << 3 | (unsigned)block->state << 1 | (block->time_ns != 0));
    return true;
}

/* Cheap: after each step. */
static void mix_step(uint64_t *sum, const struct cachemodel *model)
{
    const struct gp_cache *cache = model->cache;
    const uint64_t words[] = {model->count,           model->live_bytes,     model->dev.held,
                              model->dev.next_id,     model->dev.call_count, model->listened_hash,
                              cache->reserved_bytes,  cache->idle_bytes,     cache->waiting_bytes,
                              cache->peak_bytes,      cache->clock,          cache->epoch,
                              cache->settled,         cache->fences,         cache->asked_count,
                              cache->refused_count,   cache->moved_bytes,    cache->dedicated_idle_bytes,
                              cache->x_calls,         cache->x_retries,      cache->x_syncs,
                              cache->x_device_allocs, cache->x_device_frees};
    for (unsigned i = 0; i < GP_COUNT(words); i++)
        mix(sum, words[i]);
    for (unsigned i = 0; i < FAKEDEV_CALLS; i++)
        mix(sum, model->dev.calls[i]);
}

/* Which records there are, and in which heaps. */
static void mix_all(uint64_t *sum, struct cachemodel *model)
{
    struct gp_gauge_value values[GP_GAUGES];
    struct gp_cache_numbers numbers;
    gp_cache_walk(model->cache, sum, mix_segment, mix_block);
    gp_cache_numbers(model->cache, &numbers);
    mix(sum, numbers.releasable_bytes);
    mix(sum, numbers.pinning_blocks);
    mix(sum, numbers.idle_pieces);
    for (const struct gp_heap *heap = model->cache->heaps; heap; heap = heap->next) {
        mix(sum, heap->stream);
        mix(sum, heap->pool << 4 | (unsigned)heap->pinned << 3 | (unsigned)heap->small << 2 |
                     (unsigned)heap->linear << 1 | heap->dedicated);
        mix(sum, heap->idle.count);
        mix(sum, heap->unmapped.count);
        mix(sum, heap->unordered_bytes);
    }
    if (!model->setup.below_peak) { /* reading them closes the counters for a while */
        gp_counter_snapshot(model->gauges, values);
        for (unsigned g = 0; g < GP_GAUGES; g++) {
            if (!values[g].allocated && !values[g].current) /* a gauge more is no change */
                continue;
            mix(sum, (uint64_t)values[g].current);
            mix(sum, (uint64_t)values[g].peak);
            mix(sum, (uint64_t)values[g].allocated);
        }
    }
}

static void found(FILE *out, unsigned place, unsigned way)
{
    static struct cachemodel model;
    struct cachemodel_setup setup = cachemodel_places[place];
    uint64_t state = place * 16 + way + 1, sum = 0xcbf29ce484222325ull;
    bool right = true;
    setup.capacity = (way == 1 ? 128 : 512) * MIB;
    setup.full = ways[way].full;
    setup.failures = ways[way].failures;
    setup.captures = ways[way].captures;
    setup.gone_live = ways[way].gone_live;
    setup.below_peak = ways[way].below_peak;
    setup.check_every = ways[way].check_every;
    cr_assert_eq(cachemodel_init(&model, &setup), 0);
    for (unsigned i = 0; i < STEPS * (way < 3 ? 1 : place == 12 ? 10 : 2) && right; i++) {
        uint64_t bytes = same_random(&state);
        right = cachemodel_step(&model, (const uint8_t *)&bytes);
        cr_assert(lock_is_as_new(&model.cache->lock) && lock_is_as_new(&model.cache->grow),
                  "place %u, way %u: a lock is taken once more or less than given: %s", place, way, model.last);
        mix_step(&sum, &model);
        if (i % (setup.below_peak ? 512 : 16) == 15)
            mix_all(&sum, &model);
    }
    fprintf(out, "%u.%u: %llu given, %llu short, %llu freed, %llu without memory, %llu MiB at most, calls", place, way,
            (unsigned long long)model.allocs, (unsigned long long)model.short_allocs, (unsigned long long)model.frees,
            (unsigned long long)model.ooms, (unsigned long long)(model.dev.held_peak / MIB));
    for (unsigned i = 0; i < FAKEDEV_CALLS; i++)
        fprintf(out, " %llu", (unsigned long long)model.dev.calls[i]);
    right = cachemodel_fini(&model, way % 2 == 0) && right;
    cr_assert(right, "place %u, way %u: %s", place, way, model.why);
    mix(&sum, model.listened_hash);
    fprintf(out, ", %016llx\n", (unsigned long long)sum);
}

Test(cache_same, of_random_programs, .timeout = 120)
{
    const char *path = path_source("tests/golden/cache.txt");
    char *now = NULL, *line, before[1024];
    size_t bytes = 0;
    FILE *out = open_memstream(&now, &bytes), *file;
    for (unsigned place = 0; place < CACHEMODEL_PLACES; place++)
        for (unsigned way = 0; way < GP_COUNT(ways); way++)
            found(out, place, way);
    fclose(out);
    if (getenv("GP_GOLDEN_UPDATE")) {
        cr_assert((file = fopen(path, "w")));
        fwrite(now, 1, bytes, file);
        fclose(file);
    }
    cr_assert((file = fopen(path, "r")), "%s is missing: GP_GOLDEN_UPDATE=1 writes it", path);
    line = now;
    while (fgets(before, sizeof(before), file)) {
        size_t length = strcspn(line, "\n") + 1;
        cr_expect(strncmp(line, before, length) == 0 && before[length] == '\0', "now %.*sbefore %s", (int)length, line,
                  before);
        line += length;
    }
    cr_expect_eq(*line, '\0');
    fclose(file);
    free(now);
}
