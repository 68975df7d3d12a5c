/* SPDX-License-Identifier: MIT
 *
 * hash.h: the hash map of the tools: from a key to a 32-bit number, usually an index into an array
 * of the caller, which owns the keys.  Open addressing, at most half full.
 *
 * A key is known by its 64-bit hash.  Where different keys can have one hash (strings, records), the
 * caller passes a function that compares the key that it looks for with that of a number.  A hostile
 * input can make many equal hashes; that costs time, not correctness.
 *
 * Not uthash: it needs 56 bytes and a malloc per entry, and opening a recording of 10^7 events does
 * two operations per event (docs/understand/architecture.md).  Threads: one caller at a time per
 * map.
 */
#ifndef GP_READ_COMMON_HASH_H
#define GP_READ_COMMON_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ==== the map ===================================================================================================== */

struct gp_hash {
    struct gp_hash_slot {
        uint64_t hash;
        uint32_t number, used;
    } * slots;
    uint32_t count, room; /* room: a power of two, or 0 */
};

/* Whether the key of this number equals the key that is looked for.  NULL instead of a function:
 * equal hashes are equal keys. */
typedef bool gp_hash_same_fn(const void *key, uint32_t number);

/* The number of a key; NULL if it is not in the map.  The pointer is valid until the next change. */
uint32_t *gp_hash_find(const struct gp_hash *map, uint64_t hash, gp_hash_same_fn *same, const void *key);
/* Finds the key or adds it with this number.  Returns where its number is; NULL out of memory. */
uint32_t *gp_hash_add(struct gp_hash *map, uint64_t hash, gp_hash_same_fn *same, const void *key, uint32_t number,
                      bool *added);
/* Removes a key.  False if it was not in the map. */
bool gp_hash_remove(struct gp_hash *map, uint64_t hash, gp_hash_same_fn *same, const void *key);
/* Removes the entry whose number is there, as find and add return it. */
void gp_hash_remove_at(struct gp_hash *map, uint32_t *number);
void gp_hash_free(struct gp_hash *map);

uint64_t gp_hash_of_bytes(const void *bytes, size_t count);
uint64_t gp_hash_of_text(const char *text);
/* Different numbers have different hashes, so maps of numbers need no comparison. */
uint64_t gp_hash_of_number(uint64_t number);

/* The slot of this hash will be needed soon. */
static inline void gp_hash_fetch(const struct gp_hash *map, uint64_t hash)
{
    if (map->room)
        __builtin_prefetch(&map->slots[(uint32_t)hash & (map->room - 1)]);
}

/* ---- maps whose keys are numbers --------------------------------------------------------------------------------- */

static inline bool gp_hash_get(const struct gp_hash *map, uint64_t key, uint32_t *number)
{
    const uint32_t *found = gp_hash_find(map, gp_hash_of_number(key), NULL, NULL);
    if (found)
        *number = *found;
    return found != NULL;
}

/* Adds the key or replaces its number.  0 or -ENOMEM. */
int gp_hash_set(struct gp_hash *map, uint64_t key, uint32_t number);

/* ==== numbers for strings ========================================================================================= */
/* Numbers byte strings in order of their first appearance: 0, 1, 2, ...  It keeps a copy of each.
 * Threads: one caller at a time. */

struct gp_keys {
    struct gp_hash map;
    struct gp_key {
        size_t at, bytes; /* of the copy in `text` */
    } * rows;
    uint32_t room; /* of rows; their count is that of the map */
    char *text;
    size_t text_bytes, text_room;
};

/* is_new: the key was not in the table before.  0 or -ENOMEM. */
int gp_hash_keys_number(struct gp_keys *keys, const void *key, size_t bytes, uint32_t *number, bool *is_new);
/* The number of a key that is in the table already; false otherwise. */
bool gp_hash_keys_find(const struct gp_keys *keys, const void *key, size_t bytes, uint32_t *number);
void gp_hash_keys_free(struct gp_keys *keys);

/* ==== the order of numbers ======================================================================================== */
/* The order of two numbers, as qsort wants it, and the higher or lower one of two.  The analyses use
 * it; an operand is evaluated twice. */

#define GP_ORDER(one, other) (((one) > (other)) - ((one) < (other)))

/* For qsort and bsearch of uint64_t. */
static inline int gp_order_u64(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return GP_ORDER(a, b);
}

/* Sets a place to the value if that is higher, or lower. */
#define GP_RAISE(place, value) ((place) = (value) > (place) ? (value) : (place))
#define GP_LOWER(place, value) ((place) = (value) < (place) ? (value) : (place))

#endif
