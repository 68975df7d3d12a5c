/* SPDX-License-Identifier: MIT
 * intern.c: see intern.h.  Open addressing, never more than half full; keys lie one behind the other. */
#include <export/intern.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t gp_intern_hash(const unsigned char *key, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a: keys are names and short records */
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ key[i]) * 0x100000001b3ull;
    return hash ^ hash >> 32;
}

static struct gp_intern_slot *gp_intern_slot(const struct gp_intern *intern, uint64_t hash, const void *key,
                                             size_t bytes)
{
    uint32_t mask = intern->room - 1;
    for (uint32_t at = (uint32_t)hash & mask;; at = (at + 1) & mask) {
        struct gp_intern_slot *slot = &intern->slots[at];
        if (!slot->number ||
            (slot->hash == hash && slot->bytes == bytes && memcmp(intern->keys + slot->at, key, bytes) == 0))
            return slot;
    }
}

static int gp_intern_grow(struct gp_intern *intern)
{
    uint32_t room = intern->room ? intern->room * 2 : 256;
    struct gp_intern_slot *slots = calloc(room, sizeof(slots[0]));
    if (!slots || !room) {
        free(slots);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < intern->room; i++) {
        uint32_t at = (uint32_t)intern->slots[i].hash & (room - 1);
        while (intern->slots[i].number && slots[at].number)
            at = (at + 1) & (room - 1);
        if (intern->slots[i].number)
            slots[at] = intern->slots[i];
    }
    free(intern->slots);
    intern->slots = slots;
    intern->room = room;
    return 0;
}

static int gp_intern_keep(struct gp_intern *intern, const void *key, size_t bytes)
{
    if (intern->key_bytes + bytes > UINT32_MAX)
        return -ENOMEM;
    if (intern->key_bytes + bytes > intern->key_room) {
        size_t room = (intern->key_bytes + bytes) * 2 + 4096;
        char *keys = realloc(intern->keys, room);
        if (!keys)
            return -ENOMEM;
        intern->keys = keys;
        intern->key_room = room;
    }
    memcpy(intern->keys + intern->key_bytes, key, bytes);
    intern->key_bytes += bytes;
    return 0;
}

int gp_intern(struct gp_intern *intern, const void *key, size_t bytes, uint32_t *number, bool *is_new)
{
    uint64_t hash = gp_intern_hash(key, bytes);
    if (2 * (intern->count + 1) > intern->room && gp_intern_grow(intern) != 0)
        return -ENOMEM;
    struct gp_intern_slot *slot = gp_intern_slot(intern, hash, key, bytes);
    *is_new = !slot->number;
    if (*is_new) {
        uint32_t at = (uint32_t)intern->key_bytes;
        if (gp_intern_keep(intern, key, bytes) != 0)
            return -ENOMEM;
        *slot = (struct gp_intern_slot){hash, at, (uint32_t)bytes, ++intern->count};
    }
    *number = slot->number - 1;
    return 0;
}

void gp_intern_free(struct gp_intern *intern)
{
    free(intern->slots);
    free(intern->keys);
    memset(intern, 0, sizeof(*intern));
}
