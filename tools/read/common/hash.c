/* SPDX-License-Identifier: MIT
 *
 * hash.c: see hash.h.
 */
#include <errno.h>
#include <read/common/hash.h>
#include <stdlib.h>
#include <string.h>

/* ==== the map ===================================================================================================== */

#define GP_HASH_FIRST 64u /* slots of the first array: a kilobyte */

uint64_t gp_hash_of_number(uint64_t number)
{
    /* splitmix64's finaliser, a bijection: addresses differ in few bits. */
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9ull;
    number = (number ^ number >> 27) * 0x94d049bb133111ebull;
    return number ^ number >> 31;
}

uint64_t gp_hash_of_bytes(const void *bytes, size_t count)
{
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a: keys are names and short records */
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3ull;
    return hash ^ hash >> 32;
}

uint64_t gp_hash_of_text(const char *text)
{
    return gp_hash_of_bytes(text, strlen(text));
}

static struct gp_hash_slot *slot_of(const struct gp_hash *map, uint64_t hash, gp_hash_same_fn *same, const void *key)
{
    uint32_t at = (uint32_t)hash & (map->room - 1);
    for (;; at = (at + 1) & (map->room - 1)) {
        struct gp_hash_slot *slot = &map->slots[at];
        if (!slot->used || (slot->hash == hash && (!same || same(key, slot->number))))
            return slot;
    }
}

static bool hash_grow(struct gp_hash *map)
{
    struct gp_hash larger = {.room = map->room ? 2 * map->room : GP_HASH_FIRST, .count = map->count};
    larger.slots = larger.room ? calloc(larger.room, sizeof(larger.slots[0])) : NULL;
    if (!larger.slots)
        return false;
    for (uint32_t i = 0; i < map->room; i++) {
        uint32_t at = (uint32_t)map->slots[i].hash & (larger.room - 1);
        while (map->slots[i].used && larger.slots[at].used)
            at = (at + 1) & (larger.room - 1);
        if (map->slots[i].used)
            larger.slots[at] = map->slots[i];
    }
    free(map->slots);
    *map = larger;
    return true;
}

uint32_t *gp_hash_find(const struct gp_hash *map, uint64_t hash, gp_hash_same_fn *same, const void *key)
{
    struct gp_hash_slot *slot = map->room ? slot_of(map, hash, same, key) : NULL;
    return slot && slot->used ? &slot->number : NULL;
}

uint32_t *gp_hash_add(struct gp_hash *map, uint64_t hash, gp_hash_same_fn *same, const void *key, uint32_t number,
                      bool *added)
{
    *added = false;
    if (map->count >= map->room / 2 && !hash_grow(map))
        return NULL;
    struct gp_hash_slot *slot = slot_of(map, hash, same, key);
    if (!slot->used) {
        *slot = (struct gp_hash_slot){hash, number, 1};
        map->count++;
        *added = true;
    }
    return &slot->number;
}

void gp_hash_remove_at(struct gp_hash *map, uint32_t *number)
{
    const struct gp_hash_slot *slot = (void *)((char *)number - offsetof(struct gp_hash_slot, number));
    uint32_t mask = map->room - 1, hole = (uint32_t)(slot - map->slots);
    /* Entries that follow without a gap move back over the hole, unless that would pass their first
     * slot. */
    for (uint32_t at = (hole + 1) & mask; map->slots[at].used; at = (at + 1) & mask) {
        uint32_t first = (uint32_t)map->slots[at].hash & mask;
        if (((at - first) & mask) >= ((at - hole) & mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole].used = 0;
    map->count--;
}

bool gp_hash_remove(struct gp_hash *map, uint64_t hash, gp_hash_same_fn *same, const void *key)
{
    uint32_t *number = gp_hash_find(map, hash, same, key);
    if (number)
        gp_hash_remove_at(map, number);
    return number != NULL;
}

int gp_hash_set(struct gp_hash *map, uint64_t key, uint32_t number)
{
    bool added;
    uint32_t *place = gp_hash_add(map, gp_hash_of_number(key), NULL, NULL, number, &added);
    if (place)
        *place = number;
    return place ? 0 : -ENOMEM;
}

void gp_hash_free(struct gp_hash *map)
{
    free(map->slots);
    *map = (struct gp_hash){0};
}

/* ==== numbers for strings ========================================================================================= */

struct gp_key_search {
    const struct gp_keys *keys;
    const void *key;
    size_t bytes;
};

static bool key_same(const void *search, uint32_t number)
{
    const struct gp_key_search *s = search;
    const struct gp_key *row = &s->keys->rows[number];
    return row->bytes == s->bytes && memcmp(s->keys->text + row->at, s->key, s->bytes) == 0;
}

/* Room for one more row and its copy. */
static int keys_grow(struct gp_keys *keys, size_t bytes)
{
    if (keys->map.count == keys->room) {
        uint32_t room = keys->room ? 2 * keys->room : 128;
        struct gp_key *rows = realloc(keys->rows, room * sizeof(rows[0]));
        if (!rows)
            return -ENOMEM;
        keys->rows = rows;
        keys->room = room;
    }
    if (keys->text_bytes + bytes >= keys->text_room) { /* also for a first key of 0 bytes */
        size_t room = (keys->text_bytes + bytes) * 2 + 4096;
        char *text = realloc(keys->text, room);
        if (!text)
            return -ENOMEM;
        keys->text = text;
        keys->text_room = room;
    }
    return 0;
}

int gp_hash_keys_number(struct gp_keys *keys, const void *key, size_t bytes, uint32_t *number, bool *is_new)
{
    struct gp_key_search search = {keys, key, bytes};
    if (keys_grow(keys, bytes) != 0)
        return -ENOMEM;
    uint32_t *place = gp_hash_add(&keys->map, gp_hash_of_bytes(key, bytes), key_same, &search, keys->map.count, is_new);
    if (!place)
        return -ENOMEM;
    *number = *place;
    if (*is_new) {
        keys->rows[*number] = (struct gp_key){keys->text_bytes, bytes};
        memcpy(keys->text + keys->text_bytes, key, bytes);
        keys->text_bytes += bytes;
    }
    return 0;
}

bool gp_hash_keys_find(const struct gp_keys *keys, const void *key, size_t bytes, uint32_t *number)
{
    struct gp_key_search search = {keys, key, bytes};
    const uint32_t *place = gp_hash_find(&keys->map, gp_hash_of_bytes(key, bytes), key_same, &search);
    if (place)
        *number = *place;
    return place != NULL;
}

void gp_hash_keys_free(struct gp_keys *keys)
{
    gp_hash_free(&keys->map);
    free(keys->rows);
    free(keys->text);
    memset(keys, 0, sizeof(*keys));
}
