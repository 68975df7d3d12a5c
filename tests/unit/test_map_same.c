/* SPDX-License-Identifier: MIT
 *
 * test_map_same.c: when the pointer map maps and unmaps memory, in which order walks visit it, and how often a walk
 * rests: random programs do it as before (tests/golden/map.txt; GP_GOLDEN_UPDATE=1 writes it).  With each mapping failing
 * in turn, records are refused or found, never lost; and at the end nothing stays mapped.
 */
#include "base/compiler.h"
#include "base/map.h"
#include "lib/paths.h"

#include "lib/sanitized.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if GP_TEST_SANITIZED /* they have mappings of their own */
GP_TEST_UNSANITIZED_ONLY(map_same)
#else

static bool counts;
static unsigned mappings, unmappings, failing; /* the mapping with this number fails; 0: none */
static size_t failing_bytes;                   /* so do all of this size; 0: none */
static int64_t mapped, mapped_most;
static uint64_t trace; /* of all calls: when, which, how many bytes */
static uint64_t now;

static void mix(uint64_t *sum, uint64_t word)
{
    *sum = (*sum ^ word) * 0x100000001b3ull;
    *sum ^= *sum >> 29;
}

/* In the place of libc's. */
void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (counts && (++mappings == failing || bytes == failing_bytes)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (counts) {
        mapped += (int64_t)bytes;
        mapped_most = mapped > mapped_most ? mapped : mapped_most;
        mix(&trace, now << 32 | bytes);
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}

int munmap(void *address, size_t bytes)
{
    if (counts) {
        unmappings++;
        mapped -= (int64_t)bytes;
        mix(&trace, now << 32 | bytes | 1);
    }
    return (int)syscall(SYS_munmap, address, bytes);
}

static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

#define KEYS 40000u

static uint32_t values[KEYS]; /* 0: absent */
static uint64_t live;

struct walk {
    uint64_t order, visits, rests;
    unsigned since_rest, most_between, removes;
};

static bool walk_one(struct gp_record *record, void *arg)
{
    struct walk *walk = arg;
    uint32_t index = (uint32_t)(record->key >> 9);
    cr_assert(index < KEYS && values[index] == record->bytes);
    mix(&walk->order, record->key);
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

static void walked(struct gp_map *map, uint64_t *sum, unsigned removes)
{
    struct walk walk = {.removes = removes};
    uint64_t before = live, looked = gp_map_walked(map);
    uint64_t removed = gp_map_each_rest(map, walk_one, walk_rest, &walk);
    cr_assert_eq(walk.visits, before);
    cr_assert_eq(removed, before - live);
    cr_assert_leq(walk.most_between, GP_MAP_WALK);
    cr_assert_geq(gp_map_walked(map) - looked, before);
    cr_assert_geq(walk.rests, 64u, "once for each shard at least");
    mix(sum, walk.order);
    mix(sum, walk.rests);
    mix(sum, gp_map_walked(map));
}

/* Returns how many inserts were refused. */
static uint64_t program(struct gp_map *map, uint64_t seed, unsigned steps, unsigned keys, uint64_t *sum)
{
    /* In each phase so many of 100 steps insert. */
    static const unsigned percents[] = {95, 60, 5, 50, 90, 20};
    uint64_t refused = 0;
    memset(values, 0, sizeof(values));
    live = 0;
    for (unsigned i = 0; i < 2 * keys; i++) { /* the last in is the first out: the highest memory empties first */
        struct gp_record record = {.key = (uint64_t)(i < keys ? i : 2 * keys - 1 - i) << 9, .space = 1};
        now = 1u << 31 | i;
        if (i < keys)
            gp_map_insert(map, &record, NULL);
        else
            gp_map_take(map, 1, record.key, NULL);
    }
    cr_assert_eq(gp_map_count(map), 0);
    for (unsigned i = 0; i < steps; i++) {
        uint64_t r = draw(&seed);
        uint32_t index = (uint32_t)(r % keys), value = 1 + (uint32_t)(r >> 40);
        struct gp_record record = {.key = (uint64_t)index << 9, .space = 1, .bytes = value}, out = {.bytes = 7};
        now = i;
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
            walked(map, sum, i % 3 ? 0 : 5);
    }
    now = steps;
    cr_assert_eq(gp_map_count(map), live);
    for (uint32_t index = 0; index < keys; index++) {
        struct gp_record out;
        cr_assert_eq(gp_map_find(map, 1, (uint64_t)index << 9, &out), values[index] ? 0 : -ENOENT);
        cr_assert(!values[index] || out.bytes == values[index]);
    }
    return refused;
}

static uint64_t run(FILE *out, uint64_t limit, unsigned steps, unsigned keys)
{
    struct gp_map *map = NULL;
    uint64_t sum = 0xcbf29ce484222325ull, refused = 0;
    mapped = mapped_most = 0, mappings = unmappings = 0, trace = sum, now = 0;
    counts = true;
    errno = 4711;
    int error = gp_map_new(&map, limit);
    cr_assert_eq(errno, 4711);
    if (error) {
        cr_assert_eq(error, -ENOMEM);
    } else {
        refused = program(map, limit, steps, keys, &sum);
        cr_assert_eq(errno, 4711);
        gp_map_free(map);
    }
    counts = false;
    cr_assert_eq(mapped, 0, "mapping %u fails: %lld bytes stay mapped", failing, (long long)mapped);
    if (out)
        fprintf(out, "%llu: %u mappings, %u undone, %lld bytes at most, %llu refused, %016llx, walks %016llx\n",
                (unsigned long long)limit, mappings, unmappings, (long long)mapped_most, (unsigned long long)refused,
                (unsigned long long)trace, (unsigned long long)sum);
    return error ? 1 : refused;
}

Test(map_same, of_random_programs, .timeout = 60)
{
    static const uint64_t limits[] = {1, 100, 1023, 1024, 1025, 2048, 3000, 20000, 300000, 1000000};
    const char *path = path_source("tests/golden/map.txt");
    char *text = NULL, *line, before[1024];
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes), *file;
    for (unsigned i = 0; i < GP_COUNT(limits); i++)
        run(out, limits[i], limits[i] < 5000 ? 20000 : 120000, limits[i] < 5000 ? 4000 : KEYS);
    fclose(out);
    if (getenv("GP_GOLDEN_UPDATE")) {
        cr_assert((file = fopen(path, "w")));
        fwrite(text, 1, bytes, file);
        fclose(file);
    }
    cr_assert((file = fopen(path, "r")), "%s is missing: GP_GOLDEN_UPDATE=1 writes it", path);
    line = text;
    while (fgets(before, sizeof(before), file)) {
        size_t length = strcspn(line, "\n") + 1;
        cr_expect(strncmp(line, before, length) == 0 && before[length] == '\0', "now %.*sbefore %s", (int)length, line,
                  before);
        line += length;
    }
    cr_expect_eq(*line, '\0');
    fclose(file);
    free(text);
}

/* Of the first mappings each one, later ones now and then. */
Test(map_same, each_mapping_fails_once, .timeout = 60)
{
    unsigned all, refusing = 0;
    failing = 0;
    run(NULL, 1000000, 16000, 9000);
    all = mappings;
    cr_assert_gt(all, 120);
    for (failing = 1; failing <= all; failing += failing < 8 ? 1 : 1 + failing / 3)
        refusing += run(NULL, 1000000, 16000, 9000) > 0;
    cr_expect_geq(refusing, 1);
}

/* An index of 512 entries that finds no memory for a larger one is filled up to 7/8. */
Test(map_same, an_index_that_cannot_grow_is_filled_further, .timeout = 60)
{
    struct gp_map *map = NULL;
    uint64_t key = 0, refused = 0;
    counts = true;
    cr_assert_eq(gp_map_new(&map, 1000000), 0);
    for (; key < 15000; key++) /* each shard has its first two blocks of records, and none of 320 */
        cr_assert_eq(gp_map_insert(map, &(struct gp_record){.key = key << 9, .space = 1, .bytes = key}, NULL), 0);
    failing_bytes = 1024 * sizeof(uint64_t);
    for (; key < 60000; key++)
        refused += gp_map_insert(map, &(struct gp_record){.key = key << 9, .space = 1, .bytes = key}, NULL) == -ENOSPC;
    cr_expect_eq(gp_map_count(map), 64 * 512 / 8 * 7);
    cr_expect_eq(refused, 60000 - gp_map_count(map));
    for (key = 0; key < 60000; key++) {
        struct gp_record out;
        if (gp_map_find(map, 1, key << 9, &out) == 0)
            cr_assert_eq(out.bytes, key);
        else
            refused--;
    }
    cr_expect_eq(refused, 0);
    failing_bytes = 0;
    cr_expect_eq(gp_map_insert(map, &(struct gp_record){.key = key << 9, .space = 1}, NULL), 0);
    gp_map_free(map);
    counts = false;
}

#endif
