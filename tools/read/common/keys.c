/* SPDX-License-Identifier: MIT
 * keys.c: see keys.h. */
#include <read/common/keys.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

int gp_keys_number(struct gp_keys *keys, const void *key, size_t bytes, uint32_t *number, bool *is_new)
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

bool gp_keys_find(const struct gp_keys *keys, const void *key, size_t bytes, uint32_t *number)
{
    struct gp_key_search search = {keys, key, bytes};
    const uint32_t *place = gp_hash_find(&keys->map, gp_hash_of_bytes(key, bytes), key_same, &search);
    if (place)
        *number = *place;
    return place != NULL;
}

void gp_keys_free(struct gp_keys *keys)
{
    gp_hash_free(&keys->map);
    free(keys->rows);
    free(keys->text);
    memset(keys, 0, sizeof(*keys));
}
