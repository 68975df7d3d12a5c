/* SPDX-License-Identifier: MIT
 * keys.c: see keys.h.  Open addressing, never more than half full; keys lie one behind the other. */
#include <export/keys.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t keys_hash(const unsigned char *key, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a: keys are names and short records */
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ key[i]) * 0x100000001b3ull;
    return hash ^ hash >> 32;
}

static struct gp_keys_slot *keys_slot(const struct gp_keys *keys, uint64_t hash, const void *key, size_t bytes)
{
    uint32_t mask = keys->room - 1;
    for (uint32_t at = (uint32_t)hash & mask;; at = (at + 1) & mask) {
        struct gp_keys_slot *slot = &keys->slots[at];
        if (!slot->number ||
            (slot->hash == hash && slot->bytes == bytes && memcmp(keys->text + slot->at, key, bytes) == 0))
            return slot;
    }
}

static int keys_grow(struct gp_keys *keys)
{
    uint32_t room = keys->room ? keys->room * 2 : 256;
    struct gp_keys_slot *slots = calloc(room, sizeof(slots[0]));
    if (!slots || !room) {
        free(slots);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < keys->room; i++) {
        uint32_t at = (uint32_t)keys->slots[i].hash & (room - 1);
        while (keys->slots[i].number && slots[at].number)
            at = (at + 1) & (room - 1);
        if (keys->slots[i].number)
            slots[at] = keys->slots[i];
    }
    free(keys->slots);
    keys->slots = slots;
    keys->room = room;
    return 0;
}

static int keys_keep(struct gp_keys *keys, const void *key, size_t bytes)
{
    if (keys->key_bytes + bytes > UINT32_MAX)
        return -ENOMEM;
    if (keys->key_bytes + bytes >= keys->key_room) { /* also for the first, if it is empty */
        size_t room = (keys->key_bytes + bytes) * 2 + 4096;
        char *text = realloc(keys->text, room);
        if (!text)
            return -ENOMEM;
        keys->text = text;
        keys->key_room = room;
    }
    memcpy(keys->text + keys->key_bytes, key, bytes);
    keys->key_bytes += bytes;
    return 0;
}

int gp_keys_number(struct gp_keys *keys, const void *key, size_t bytes, uint32_t *number, bool *is_new)
{
    uint64_t hash = keys_hash(key, bytes);
    if (2 * (keys->count + 1) > keys->room && keys_grow(keys) != 0)
        return -ENOMEM;
    struct gp_keys_slot *slot = keys_slot(keys, hash, key, bytes);
    *is_new = !slot->number;
    if (*is_new) {
        uint32_t at = (uint32_t)keys->key_bytes;
        if (keys_keep(keys, key, bytes) != 0)
            return -ENOMEM;
        *slot = (struct gp_keys_slot){hash, at, (uint32_t)bytes, ++keys->count};
    }
    *number = slot->number - 1;
    return 0;
}

void gp_keys_free(struct gp_keys *keys)
{
    free(keys->slots);
    free(keys->text);
    memset(keys, 0, sizeof(*keys));
}
