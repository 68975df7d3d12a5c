/* SPDX-License-Identifier: MIT
 * test_hash.c: the hash map of the tools and the table of numbered byte strings against plain
 * arrays. */
#include <read/common/hash.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define KEYS   600u
#define ROUNDS 200000u

static uint64_t test_random(uint64_t *state)
{
    return gp_hash_of_number(*state += 0x9e3779b97f4a7c15ull);
}

/* ---- a map of hashes against an array ---------------------------------------------------------------------------- */

/* Hashes of the keys. Some of these make the map slow; none may make it wrong. */
static uint64_t hash_spread(uint32_t key)
{
    return gp_hash_of_number(key * 512ull);
}

static uint64_t hash_one_slot(uint32_t key)
{
    return (uint64_t)key << 32 | 7;
}

/* Runs of occupied slots pass the end of the array. */
static uint64_t hash_near_the_end(uint32_t key)
{
    return (uint64_t)key << 32 | (UINT32_MAX - key % 5);
}

static uint64_t hash_neighbours(uint32_t key)
{
    return key;
}

static void check_all(const struct gp_hash *map, const uint32_t *numbers, uint64_t (*hash)(uint32_t))
{
    uint32_t count = 0, used = 0;
    for (uint32_t key = 0; key < KEYS; key++) {
        const uint32_t *found = gp_hash_find(map, hash(key), NULL, NULL);
        cr_assert_eq(found != NULL, numbers[key] != UINT32_MAX, "key %u", key);
        cr_assert(!found || *found == numbers[key], "key %u", key);
        count += found != NULL;
    }
    for (uint32_t i = 0; i < map->room; i++)
        used += map->slots[i].used != 0;
    cr_assert_eq(map->count, count);
    cr_assert_eq(used, count);
    cr_assert(2 * map->count <= map->room && (map->room & (map->room - 1)) == 0, "%u of %u", map->count, map->room);
}

static void check_against_an_array(uint64_t (*hash)(uint32_t))
{
    struct gp_hash map = {0};
    uint32_t numbers[KEYS];
    uint64_t random = 1;
    memset(numbers, 0xff, sizeof(numbers));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t dice = test_random(&random);
        uint32_t key = (uint32_t)(dice >> 32) % KEYS;
        /* Phases in which the map grows alternate with phases in which it shrinks. */
        bool added, there = numbers[key] != UINT32_MAX, grows = dice % 8 < (i / 10000 % 2 ? 3 : 5);
        if (grows) {
            const uint32_t *place = gp_hash_add(&map, hash(key), NULL, NULL, i, &added);
            cr_assert(place && added == !there && *place == (there ? numbers[key] : i));
            numbers[key] = *place;
        } else if (dice & 8) {
            cr_assert_eq(gp_hash_remove(&map, hash(key), NULL, NULL), there);
            numbers[key] = UINT32_MAX;
        } else {
            uint32_t *place = gp_hash_find(&map, hash(key), NULL, NULL);
            cr_assert_eq(place != NULL, there);
            if (place)
                gp_hash_remove_at(&map, place);
            numbers[key] = UINT32_MAX;
        }
        if (i % 499 == 0)
            check_all(&map, numbers, hash);
    }
    check_all(&map, numbers, hash);
    gp_hash_free(&map);
    cr_assert(!map.slots && map.count == 0 && map.room == 0);
}

Test(hash, spread_hashes)
{
    check_against_an_array(hash_spread);
}

Test(hash, hashes_of_one_slot)
{
    check_against_an_array(hash_one_slot);
}

Test(hash, hashes_near_the_end_of_the_array)
{
    check_against_an_array(hash_near_the_end);
}

Test(hash, hashes_of_neighbours)
{
    check_against_an_array(hash_neighbours);
}

Test(hash, an_empty_map)
{
    struct gp_hash map = {0};
    uint32_t number = 5;
    cr_assert_null(gp_hash_find(&map, 0, NULL, NULL));
    cr_assert(!gp_hash_remove(&map, 0, NULL, NULL));
    cr_assert(!gp_hash_get(&map, 0, &number) && number == 5);
    gp_hash_free(&map);
}

Test(hash, numbers_are_replaced)
{
    struct gp_hash map = {0};
    uint32_t number = 0;
    cr_assert(gp_hash_set(&map, 0, 1) == 0 && gp_hash_set(&map, UINT64_MAX, 2) == 0 && gp_hash_set(&map, 0, 3) == 0);
    cr_assert(gp_hash_get(&map, 0, &number) && number == 3);
    cr_assert(gp_hash_get(&map, UINT64_MAX, &number) && number == 2);
    cr_assert_eq(map.count, 2);
    gp_hash_free(&map);
}

Test(hash, numbers_against_an_array)
{
    struct gp_hash map = {0};
    uint32_t table[KEYS], value;
    uint64_t random = 1;
    memset(table, 0xff, sizeof(table));
    for (unsigned i = 0; i < 200000; i++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        uint32_t key = (uint32_t)(random >> 40) % KEYS;
        bool there = table[key] != UINT32_MAX;
        if (random >> 63) {
            cr_assert_eq(gp_hash_set(&map, key * 512ull, i), 0);
            table[key] = i;
        } else {
            cr_assert_eq(gp_hash_remove(&map, gp_hash_of_number(key * 512ull), NULL, NULL), there);
            table[key] = UINT32_MAX;
        }
        uint32_t look = (uint32_t)(random >> 20) % KEYS;
        bool found = gp_hash_get(&map, look * 512ull, &value);
        cr_assert(found == (table[look] != UINT32_MAX) && (!found || value == table[look]));
    }
    gp_hash_free(&map);
}

/* ---- strings with equal hashes ----------------------------------------------------------------------------------- */

struct test_search {
    char (*texts)[16];
    const char *text;
};

static bool test_same(const void *key, uint32_t number)
{
    const struct test_search *search = key;
    return strcmp(search->texts[number], search->text) == 0;
}

Test(hash, strings_with_equal_hashes)
{
    static char texts[KEYS][16];
    bool there[KEYS] = {false}, added;
    struct gp_hash map = {0};
    uint64_t random = 2;
    for (uint32_t i = 0; i < KEYS; i++)
        snprintf(texts[i], sizeof(texts[i]), "text %u", i);
    for (uint32_t i = 0; i < 20000; i++) {
        uint64_t dice = test_random(&random);
        uint32_t key = (uint32_t)(dice >> 32) % KEYS;
        struct test_search search = {texts, texts[key]};
        uint64_t hash = key % 3; /* 200 strings have each hash */
        const uint32_t *found = gp_hash_find(&map, hash, test_same, &search);
        cr_assert_eq(found != NULL, there[key]);
        cr_assert(!found || *found == key);
        if (dice & 1) {
            found = gp_hash_add(&map, hash, test_same, &search, key, &added);
            cr_assert(found && *found == key && added == !there[key]);
        } else {
            cr_assert_eq(gp_hash_remove(&map, hash, test_same, &search), there[key]);
        }
        there[key] = dice & 1;
    }
    gp_hash_free(&map);
}

Test(hash, text_and_bytes_agree)
{
    cr_assert_eq(gp_hash_of_text("a name"), gp_hash_of_bytes("a name", 6));
    cr_assert_neq(gp_hash_of_bytes("a\0b", 3), gp_hash_of_bytes("a\0c", 3));
    cr_assert_eq(gp_hash_of_text(""), gp_hash_of_bytes(NULL, 0));
}

/* ---- numbered byte strings --------------------------------------------------------------------------------------- */

Test(keys, numbers_in_order_of_appearance)
{
    struct gp_keys keys = {0};
    uint32_t number, count = 0, numbers[5000];
    uint64_t random = 3;
    bool is_new;
    memset(numbers, 0xff, sizeof(numbers));
    for (uint32_t i = 0; i < 20000; i++) {
        unsigned char key[4] = {0};
        uint32_t name = (uint32_t)(test_random(&random) >> 32) % 5000;
        memcpy(key, &(uint16_t){(uint16_t)name}, 2);
        size_t bytes = 2 + name % 3; /* the same bytes in another length are another key */
        cr_assert_eq(gp_hash_keys_find(&keys, key, bytes, &number), numbers[name] != UINT32_MAX);
        cr_assert(numbers[name] == UINT32_MAX || number == numbers[name]);
        cr_assert_eq(gp_hash_keys_number(&keys, key, bytes, &number, &is_new), 0);
        cr_assert_eq(is_new, numbers[name] == UINT32_MAX);
        cr_assert_eq(number, is_new ? count : numbers[name]);
        numbers[name] = number;
        count += is_new;
    }
    gp_hash_keys_free(&keys);
}

Test(keys, lengths_and_the_empty_key)
{
    struct gp_keys keys = {0};
    uint32_t number;
    bool is_new;
    cr_assert(!gp_hash_keys_find(&keys, "", 0, &number));
    cr_assert(gp_hash_keys_number(&keys, "", 0, &number, &is_new) == 0 && is_new && number == 0);
    cr_assert(gp_hash_keys_number(&keys, "\0", 1, &number, &is_new) == 0 && is_new && number == 1);
    cr_assert(gp_hash_keys_number(&keys, "\0\0", 2, &number, &is_new) == 0 && is_new && number == 2);
    cr_assert(gp_hash_keys_find(&keys, "", 0, &number) && number == 0);
    cr_assert(gp_hash_keys_find(&keys, "\0", 1, &number) && number == 1);
    cr_assert(!gp_hash_keys_find(&keys, "\0\0\0", 3, &number));
    gp_hash_keys_free(&keys);
}
