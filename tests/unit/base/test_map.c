/* SPDX-License-Identifier: MIT
 * test_map.c: the pointer map against a plain array, its limit, its walks and its memory. */
#include "base/compiler.h"
#include "base/map.h"
#include "lib/full.h"
#include "lib/random.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEST_SEEDS 4

static struct gp_record gp_test_record(uint8_t space, uint64_t key, uint64_t bytes)
{
    return (struct gp_record){.key = key,
                              .space = space,
                              .kind = (uint8_t)bytes,
                              .device = 3,
                              .flags = 5,
                              .ctx = 7,
                              .bytes = bytes,
                              .requested_bytes = bytes + 1,
                              .time_ns = ~bytes,
                              .site = 11,
                              .handle = {.mapped = key ^ bytes, .references = 13}};
}

static bool gp_test_same(const struct gp_record *a, const struct gp_record *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* ---- against a model --------------------------------------------------------------------------------------------- */

#define MODEL_KEYS   60000u
#define MODEL_SPACES 2u

struct test_model {
    struct gp_record records[MODEL_SPACES][MODEL_KEYS]; /* space 0: absent */
    uint8_t seen[MODEL_SPACES][MODEL_KEYS];
    uint64_t live;
};

static uint64_t gp_test_key(uint32_t index)
{
    return index % 3 ? 0x7f0000000000ull + index * 512ull : (uint64_t)index << 21;
}

static uint32_t gp_test_index(uint64_t key)
{
    return key >= 0x7f0000000000ull ? (uint32_t)((key - 0x7f0000000000ull) / 512) : (uint32_t)(key >> 21);
}

struct test_walk {
    struct test_model *model;
    uint64_t seen, wrong;
    uint32_t remove_modulo; /* 0: none */
};

static bool gp_test_walk_one(struct gp_record *record, void *arg)
{
    struct test_walk *walk = arg;
    uint32_t index = gp_test_index(record->key);
    uint32_t s = record->space - 1u;
    walk->seen++;
    if (s >= MODEL_SPACES || index >= MODEL_KEYS || !gp_test_same(record, &walk->model->records[s][index]) ||
        walk->model->seen[s][index]++) {
        walk->wrong++;
        return false;
    }
    if (!walk->remove_modulo || index % walk->remove_modulo)
        return false;
    walk->model->records[s][index].space = 0;
    walk->model->live--;
    return true;
}

static void gp_test_walk(struct gp_map *map, struct test_model *model, uint32_t remove_modulo)
{
    struct test_walk walk = {.model = model, .remove_modulo = remove_modulo};
    memset(model->seen, 0, sizeof model->seen);
    uint64_t live = model->live;
    uint64_t removed = gp_map_each(map, gp_test_walk_one, &walk);
    cr_assert_eq(walk.wrong, 0);
    cr_assert_eq(walk.seen, live, "each: saw %lu of %lu", (unsigned long)walk.seen, (unsigned long)live);
    cr_assert_eq(removed, live - model->live);
    cr_assert_eq(gp_map_count(map), model->live);
}

static bool gp_test_touch(struct gp_record *record, void *arg)
{
    record->handle.uses++;
    return *(bool *)arg;
}

static void gp_test_step(struct gp_map *map, struct test_model *model, uint64_t *random, unsigned insert_percent)
{
    uint64_t r = random_mix(random);
    uint32_t index = (uint32_t)(r % MODEL_KEYS);
    uint8_t space = (uint8_t)(1 + (r >> 20) % MODEL_SPACES);
    struct gp_record *have = &model->records[space - 1][index];
    uint64_t key = gp_test_key(index);
    struct gp_record out;
    memset(&out, 0xee, sizeof out);
    unsigned what = (unsigned)((r >> 32) % 100);
    if (what < insert_percent) {
        struct gp_record record = gp_test_record(space, key, r >> 40);
        cr_assert_eq(gp_map_insert(map, &record, &out), have->space ? 1 : 0);
        cr_assert(!have->space || gp_test_same(&out, have));
        model->live += !have->space;
        *have = record;
    } else if (what < 90) {
        cr_assert_eq(gp_map_take(map, space, key, &out), have->space ? 0 : -ENOENT);
        cr_assert(!have->space || gp_test_same(&out, have));
        model->live -= have->space != 0;
        have->space = 0;
    } else if (what < 95) {
        bool remove = r >> 63;
        cr_assert_eq(gp_map_update(map, space, key, gp_test_touch, &remove), have->space ? 0 : -ENOENT);
        have->handle.uses++;
        if (have->space && remove) {
            have->space = 0;
            model->live--;
        }
    } else {
        gp_map_prefetch(map, space, key);
        cr_assert_eq(gp_map_find(map, space, key, &out), have->space ? 0 : -ENOENT);
        cr_assert(!have->space || gp_test_same(&out, have));
    }
    cr_assert_eq(gp_map_count(map), model->live);
}

/* Alternates between empty and 100 000 live records, so that every shard grows and shrinks, with
 * walks in between. */
Test(map, random_against_model, .timeout = 120)
{
    struct test_model *model = malloc(sizeof *model);
    for (uint64_t seed = 1; seed <= (test_is_full() ? TEST_SEEDS : 1); seed++) {
        uint64_t random = seed;
        struct gp_map *map;
        memset(model, 0, sizeof *model);
        cr_assert_eq(gp_map_new(&map, 1000000), 0);
        static const unsigned percents[] = {88, 60, 10, 45, 85, 2, 30};
        for (unsigned phase = 0; phase < GP_COUNT(percents); phase++) {
            for (unsigned i = 0; i < 120000; i++) {
                gp_test_step(map, model, &random, percents[phase]);
                if (i % 8191 == 0)
                    gp_test_walk(map, model, random_mix(&random) % 4 ? 0 : 7);
            }
        }
        gp_test_walk(map, model, 1);
        cr_assert_eq(gp_map_count(map), 0);
        gp_map_free(map);
    }
    free(model);
}

/* A walk after each single insert while entries move to a new table: no record is seen twice or
 * missed. */
Test(map, each_during_every_step_of_a_migration, .timeout = 60)
{
    struct test_model *model = calloc(1, sizeof *model);
    struct gp_map *map;
    cr_assert_eq(gp_map_new(&map, 1000000), 0);
    for (uint32_t i = 0; i < 25000; i++) { /* 64 shards grow near 64 x 512 x 5/8 = 20480 */
        struct gp_record record = gp_test_record(1, gp_test_key(i), i);
        model->records[0][i] = record;
        model->live++;
        cr_assert_eq(gp_map_insert(map, &record, NULL), 0);
        if (i > 19000 && i % 16 == 0)
            gp_test_walk(map, model, 0);
    }
    for (uint32_t i = 0; i < 25000; i++)
        cr_assert_eq(gp_map_find(map, 1, gp_test_key(i), NULL), 0);
    gp_map_free(map);
    free(model);
}

/* ---- edges ------------------------------------------------------------------------------------------------------- */

Test(map, arguments)
{
    struct gp_map *map;
    cr_assert_eq(gp_map_new(NULL, 1), -EINVAL);
    cr_assert_eq(gp_map_new(&map, 0), -EINVAL);
    cr_assert_eq(gp_map_new(&map, 10), 0);
    struct gp_record record = gp_test_record(0, 1, 1);
    cr_assert_eq(gp_map_insert(map, &record, NULL), -EINVAL);
    cr_assert_eq(gp_map_take(map, 0, 0, NULL), -ENOENT);
    cr_assert_eq(gp_map_take(map, 1, 0, NULL), -ENOENT);
    cr_assert_eq(gp_map_each(map, gp_test_touch, &(bool){true}), 0);
    gp_map_free(map);
    gp_map_free(NULL);
}

Test(map, spaces_are_apart_and_extreme_keys_are_keys)
{
    static const uint64_t keys[] = {0, 1, UINT64_MAX, 1ull << 63, 0xd6e8feb86659fd93ull, 0 - 0xd6e8feb86659fd93ull};
    struct gp_map *map;
    struct gp_record out;
    cr_assert_eq(gp_map_new(&map, 10000), 0);
    for (unsigned space = 1; space < 256; space++)
        for (unsigned i = 0; i < GP_COUNT(keys); i++) {
            struct gp_record record = gp_test_record((uint8_t)space, keys[i], space * 100 + i);
            cr_assert_eq(gp_map_insert(map, &record, NULL), 0);
        }
    for (unsigned space = 1; space < 256; space++)
        for (unsigned i = 0; i < GP_COUNT(keys); i++) {
            cr_assert_eq(gp_map_take(map, (uint8_t)space, keys[i], &out), 0);
            cr_assert_eq(out.bytes, space * 100 + i);
            cr_assert_eq(gp_map_take(map, (uint8_t)space, keys[i], &out), -ENOENT);
        }
    cr_assert_eq(gp_map_count(map), 0);
    gp_map_free(map);
}

Test(map, limit_is_exact_and_freed_room_is_found_again)
{
    static const uint64_t limits[] = {1, 2, 63, 64, 1000, 30000, 262144};
    for (unsigned l = 0; l < GP_COUNT(limits); l++) {
        struct gp_map *map;
        uint64_t limit = limits[l], key = 0;
        cr_assert_eq(gp_map_new(&map, limit), 0);
        struct gp_record record = gp_test_record(1, 0, 0);
        for (; key < limit; key++) {
            record.key = key * 256;
            cr_assert_eq(gp_map_insert(map, &record, NULL), 0, "limit %lu: at %lu", (unsigned long)limit,
                         (unsigned long)key);
        }
        record.key = key * 256;
        cr_assert_eq(gp_map_insert(map, &record, NULL), -ENOSPC);
        cr_assert_eq(gp_map_count(map), limit);
        record.key = 0;
        cr_assert_eq(gp_map_insert(map, &record, NULL), 1, "a full map still replaces");
        for (uint64_t i = 0; i < 300 && i < limit; i++) {
            cr_assert_eq(gp_map_take(map, 1, i * 256, NULL), 0);
            record.key = (limit + i) * 256;
            cr_assert_eq(gp_map_insert(map, &record, NULL), 0);
            record.key = (limit + i + 1) * 256;
            cr_assert_eq(gp_map_insert(map, &record, NULL), -ENOSPC);
        }
        cr_assert_eq(gp_map_count(map), limit);
        gp_map_free(map);
    }
}

/* Shards give room back in batches. */
Test(map, a_map_that_was_emptied_has_its_limit_once)
{
    static const uint64_t limits[] = {1000, 30000, 262144};
    for (unsigned l = 0; l < GP_COUNT(limits); l++) {
        struct gp_map *map;
        cr_assert_eq(gp_map_new(&map, limits[l]), 0);
        struct gp_record record = gp_test_record(1, 0, 0);
        for (unsigned round = 0; round < 2; round++) {
            for (uint64_t key = 0; key < limits[l]; key++) {
                record.key = key * 256;
                cr_assert_eq(gp_map_insert(map, &record, NULL), 0);
            }
            record.key = limits[l] * 256;
            cr_assert_eq(gp_map_insert(map, &record, NULL), -ENOSPC, "round %u of limit %lu", round,
                         (unsigned long)limits[l]);
            for (uint64_t key = 0; key < limits[l]; key++)
                cr_assert_eq(gp_map_take(map, 1, key * 256, NULL), 0);
            cr_assert_eq(gp_map_count(map), 0);
        }
        gp_map_free(map);
    }
}

/* Among 1.5 million keys some have the same shard and the same 32 bits of hash: the comparison of
 * the key decides. */
Test(map, equal_hashes_are_not_equal_keys, .timeout = 60)
{
    struct gp_map *map;
    const uint64_t n = 1500000;
    cr_assert_eq(gp_map_new(&map, n), 0);
    for (uint64_t i = 0; i < n; i++) {
        struct gp_record record = {.space = 1, .key = i * 512, .bytes = i};
        cr_assert_eq(gp_map_insert(map, &record, NULL), 0, "key %lu replaced another", (unsigned long)i);
    }
    for (uint64_t i = 0; i < n; i++) {
        struct gp_record out;
        cr_assert(gp_map_take(map, 1, i * 512, &out) == 0 && out.bytes == i);
    }
    gp_map_free(map);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Not in sanitizer builds: the sanitizers' own memory and system calls would be counted. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

static long gp_test_resident(void)
{
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert_eq(fscanf(file, "%ld %ld", &size, &resident), 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

Test(map, memory_is_bounded_and_given_back, .timeout = 60)
{
    struct gp_map *map;
    const uint64_t live = 400000;
    cr_assert_eq(gp_map_new(&map, live), 0);
    long before = gp_test_resident();
    for (uint64_t i = 0; i < live; i++) {
        struct gp_record record = gp_test_record(1, i * 512, i);
        cr_assert_eq(gp_map_insert(map, &record, NULL), 0);
    }
    long full = gp_test_resident() - before;
    cr_assert_leq(full, (long)(live * 64 * 10 / 4), "%ld bytes", full);
    for (uint64_t i = 0; i < live; i++)
        cr_assert_eq(gp_map_take(map, 1, i * 512, NULL), 0);
    /* A few more changes let the last migrations finish. */
    for (uint64_t i = 0; i < 64 * 2000; i++) {
        struct gp_record record = gp_test_record(1, i * 512, i);
        cr_assert_eq(gp_map_insert(map, &record, NULL), 0);
        cr_assert_eq(gp_map_take(map, 1, i * 512, NULL), 0);
    }
    long empty = gp_test_resident() - before;
    cr_assert_leq(empty, full / 10, "%ld of %ld bytes stay", empty, full);
    gp_map_free(map);
}

/* Of a huge page all is resident after its first use. What is not used stays within two of them. */
Test(map, huge_pages_hold_little_that_is_unused, .timeout = 60)
{
    static const uint64_t counts[] = {1000, 60000, 126000, 130000, 160000, 250000, 270000, 400000, 600000};
    struct gp_map *map;
    uint64_t key = 0;
    cr_assert_eq(gp_map_new(&map, 1000000), 0);
    long before = gp_test_resident();
    for (unsigned i = 0; i < GP_COUNT(counts); i++) {
        for (; key < counts[i]; key++) {
            struct gp_record record = gp_test_record(1, key * 512, key);
            cr_assert_eq(gp_map_insert(map, &record, NULL), 0);
        }
        long now = gp_test_resident() - before, least = (long)(key * 64), index = (long)(key * 22);
        long small = 1 << 20; /* pages that have begun, of each shard, and the map itself */
        cr_expect_leq(now, least + index + small + (now > 8 << 20 ? 4 << 20 : 0), "%lu records: %ld KiB",
                      (unsigned long)key, now / 1024);
    }
    gp_map_free(map);
}

/* Strict seccomp kills the process at its first system call other than exit. A population that
 * varies by a twentieth, across the border of a block, makes none. */
Test(map, steady_state_makes_no_system_call, .timeout = 60)
{
    struct gp_map *map;
    const uint64_t live = 64 * 850; /* blocks 0 to 3 hold 960 records per shard, and some have more */
    cr_assert_eq(gp_map_new(&map, 1000000), 0);
    pid_t child = fork();
    if (child == 0) {
        uint64_t head = 0, tail = 0, bad = 0;
        for (unsigned swing = 0; swing < 40; swing++) {
            if (swing == 10)
                prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
            while (head - tail < live + live / 20)
                bad += gp_map_insert(map, &(struct gp_record){.space = 1, .key = head++ * 256}, NULL) != 0;
            while (head - tail > live - live / 20)
                bad += gp_map_take(map, 1, tail++ * 256, NULL) != 0;
        }
        syscall(SYS_exit, bad != 0);
    }
    int status;
    waitpid(child, &status, 0);
    cr_assert_eq(status, 0, "status %#x", status);
    gp_map_free(map);
}

#endif
