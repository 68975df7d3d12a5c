/* SPDX-License-Identifier: MIT
 *
 * test_map_memory.c: how much memory the pointer map takes for random programs at each of its limits, and how many records
 * it refuses.  With each mapping failing in turn, records are refused or found, never lost; and at the end nothing stays
 * mapped.
 */
#include "base/compiler.h"
#include "base/map.h"
#include "lib/mappings.h"
#include "lib/random.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEYS 40000u

static uint32_t values[KEYS]; /* 0: absent */
static uint64_t live;

struct walk {
    uint64_t visits, rests;
    unsigned since_rest, most_between, removes;
};

static bool walk_one(struct gp_record *record, void *arg)
{
    struct walk *walk = arg;
    uint32_t index = (uint32_t)(record->key >> 9);
    cr_assert(index < KEYS && values[index] == record->bytes);
    walk->visits++;
    walk->most_between = ++walk->since_rest > walk->most_between ? walk->since_rest : walk->most_between;
    if (!walk->removes || index % walk->removes)
        return false;
    values[index] = 0;
    live--;
    return true;
}

static void walk_rest(void *arg)
{
    struct walk *walk = arg;
    walk->rests++;
    walk->since_rest = 0;
}

static void walked(struct gp_map *map, unsigned removes)
{
    struct walk walk = {.removes = removes};
    uint64_t before = live, looked = gp_map_walked(map);
    uint64_t removed = gp_map_each_rest(map, walk_one, walk_rest, &walk);
    cr_assert_eq(walk.visits, before);
    cr_assert_eq(removed, before - live);
    cr_assert_leq(walk.most_between, GP_MAP_WALK);
    cr_assert_geq(gp_map_walked(map) - looked, before);
    cr_assert_geq(walk.rests, 64u, "once for each shard at least");
}

/* Returns how many inserts were refused. */
static uint64_t program(struct gp_map *map, uint64_t seed, unsigned steps, unsigned keys)
{
    /* In each phase so many of 100 steps insert. */
    static const unsigned percents[] = {95, 60, 5, 50, 90, 20};
    uint64_t refused = 0;
    memset(values, 0, sizeof(values));
    live = 0;
    for (unsigned i = 0; i < 2 * keys; i++) { /* the last in is the first out: the highest memory empties first */
        struct gp_record record = {.key = (uint64_t)(i < keys ? i : 2 * keys - 1 - i) << 9, .space = 1};
        if (i < keys)
            gp_map_insert(map, &record, NULL);
        else
            gp_map_take(map, 1, record.key, NULL);
    }
    cr_assert_eq(gp_map_count(map), 0);
    for (unsigned i = 0; i < steps; i++) {
        uint64_t r = random_next(&seed);
        uint32_t index = (uint32_t)(r % keys), value = 1 + (uint32_t)(r >> 40);
        struct gp_record record = {.key = (uint64_t)index << 9, .space = 1, .bytes = value}, out = {.bytes = 7};
        if ((r >> 32) % 100 < percents[i / (steps / GP_COUNT(percents) + 1)]) {
            int result = gp_map_insert(map, &record, &out);
            cr_assert(result == -ENOSPC ? !values[index] : result == (values[index] != 0));
            cr_assert(result != 1 || out.bytes == values[index]);
            refused += result == -ENOSPC;
            live += result == 0;
            values[index] = result >= 0 ? value : values[index];
        } else {
            cr_assert_eq(gp_map_take(map, 1, record.key, &out), values[index] ? 0 : -ENOENT);
            cr_assert(!values[index] || out.bytes == values[index]);
            live -= values[index] != 0;
            values[index] = 0;
        }
        if (i % 16384 == 9999)
            walked(map, i % 3 ? 0 : 5);
    }
    cr_assert_eq(gp_map_count(map), live);
    for (uint32_t index = 0; index < keys; index++) {
        struct gp_record out;
        cr_assert_eq(gp_map_find(map, 1, (uint64_t)index << 9, &out), values[index] ? 0 : -ENOENT);
        cr_assert(!values[index] || out.bytes == values[index]);
    }
    return refused;
}

/* The mapping with the number `failing` fails; 0: none. */
static uint64_t run(uint64_t limit, unsigned steps, unsigned keys, unsigned failing)
{
    struct gp_map *map = NULL;
    uint64_t refused = 0;
    memset(&mappings, 0, sizeof(mappings));
    mappings.fail = failing;
    errno = 4711;
    int error = gp_map_new(&map, limit);
    cr_assert_eq(errno, 4711);
    if (error) {
        cr_assert_eq(error, -ENOMEM);
    } else {
        refused = program(map, limit, steps, keys);
        cr_assert_eq(errno, 4711);
        gp_map_free(map);
    }
    cr_assert_eq(mappings.bytes, 0, "mapping %u fails: %lld bytes stay mapped", failing, mappings.bytes);
    return error ? 1 : refused;
}

Test(map_memory, of_random_programs, .timeout = 60)
{
    static const struct {
        uint64_t limit;
        unsigned count;
        long long most;
        uint64_t refused;
    } rows[] = {{1, 3, 566016, 10667},   {100, 3, 566016, 10095}, {1023, 3, 566016, 5091}, {1024, 3, 566016, 5018},
                {1025, 3, 566016, 5066}, {2048, 3, 566016, 1140}, {3000, 4, 1090304, 0},   {20000, 6, 2138880, 2692},
                {300000, 8, 4760320, 0}, {1000000, 8, 4760320, 0}};
    for (unsigned i = 0; i < GP_COUNT(rows); i++) {
        bool few = rows[i].limit < 5000;
        uint64_t refused = run(rows[i].limit, few ? 20000 : 120000, few ? 4000 : KEYS, 0);
        cr_expect(mappings.made == rows[i].count && mappings.undone == mappings.made &&
                      mappings.highest == rows[i].most && refused == rows[i].refused,
                  "limit %llu: %u mappings, %u undone, %lld bytes at most, %llu refused",
                  (unsigned long long)rows[i].limit, mappings.made, mappings.undone, mappings.highest,
                  (unsigned long long)refused);
    }
}

Test(map_memory, each_mapping_fails_once, .timeout = 60)
{
    unsigned refusing = 0;
    run(1000000, 16000, 9000, 0);
    const unsigned all = mappings.made;
    cr_assert_geq(all, 4);
    for (unsigned failing = 1; failing <= all; failing++)
        refusing += run(1000000, 16000, 9000, failing) > 0;
    cr_expect_geq(refusing, 1);
}

/* An index of 64 lines of 12 entries that finds no memory for a larger one is filled up to 7/8. */
Test(map_memory, an_index_that_cannot_grow_is_filled_further, .timeout = 60)
{
    struct gp_map *map = NULL;
    uint64_t key = 0, refused = 0;
    cr_assert_eq(gp_map_new(&map, 1000000), 0);
    for (; key < 15000; key++) /* there is memory for the second block of records, which has the same size */
        cr_assert_eq(gp_map_insert(map, &(struct gp_record){.key = key << 9, .space = 1, .bytes = key}, NULL), 0);
    mappings.fail_bytes = 64 * 128 * 64;
    for (; key < 60000; key++)
        refused += gp_map_insert(map, &(struct gp_record){.key = key << 9, .space = 1, .bytes = key}, NULL) == -ENOSPC;
    cr_expect_eq(gp_map_count(map), 64 * 64 * 12 / 8 * 7);
    cr_expect_eq(refused, 60000 - gp_map_count(map));
    for (key = 0; key < 60000; key++) {
        struct gp_record out;
        if (gp_map_find(map, 1, key << 9, &out) == 0)
            cr_assert_eq(out.bytes, key);
        else
            refused--;
    }
    cr_expect_eq(refused, 0);
    mappings.fail_bytes = 0;
    cr_expect_eq(gp_map_insert(map, &(struct gp_record){.key = key << 9, .space = 1}, NULL), 0);
    gp_map_free(map);
}

/* 8 MiB and more are aligned, of which no byte is forgotten, however the map ends. */
Test(map_memory, large_levels_are_unmapped_whole, .timeout = 60)
{
    for (unsigned failing = 0; failing < 20; failing++) {
        struct gp_map *map = NULL;
        uint64_t most = 0;
        memset(&mappings, 0, sizeof(mappings));
        cr_assert_eq(gp_map_new(&map, 1000000), 0);
        const long long empty = mappings.bytes;
        mappings.fail = failing;
        for (uint64_t key = 0; key < 300000; key++)
            most += gp_map_insert(map, &(struct gp_record){.key = key << 9, .space = 1, .bytes = key}, NULL) == 0;
        cr_assert(failing ? most > 290000 : most == 300000);
        cr_assert_geq(mappings.highest - empty, (long long)most * 64);
        for (uint64_t key = 0; key < 300000 && failing % 2; key++)
            most -= gp_map_take(map, 1, key << 9, NULL) == 0;
        for (uint64_t key = 0; key < 100000 && failing % 2; key++) { /* each change gives one block back at most */
            gp_map_insert(map, &(struct gp_record){.key = key << 9, .space = 1}, NULL);
            gp_map_take(map, 1, key << 9, NULL);
        }
        cr_assert(failing % 2 == 0 || most == 0);
        cr_assert(failing % 2 == 0 || mappings.bytes - empty < 4 << 20, "%lld bytes stay", mappings.bytes - empty);
        gp_map_free(map);
        cr_assert_eq(mappings.bytes, 0, "mapping %u fails: %lld bytes stay", failing, mappings.bytes);
    }
}
