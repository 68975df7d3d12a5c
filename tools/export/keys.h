/* SPDX-License-Identifier: MIT
 *
 * keys.h: numbers byte strings in order of their first appearance: 0, 1, 2, ...
 */
#ifndef GP_EXPORT_KEYS_H
#define GP_EXPORT_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_keys {
    struct gp_keys_slot {
        uint64_t hash;
        uint32_t at, bytes; /* of its copy in `text` */
        uint32_t number;    /* + 1; 0: empty */
    } * slots;
    uint32_t count, room;
    char *text;
    size_t key_bytes, key_room;
};

/* is_new: the key was not in the table before.  0 or -ENOMEM. */
int gp_keys_number(struct gp_keys *keys, const void *key, size_t bytes, uint32_t *number, bool *is_new);
void gp_keys_free(struct gp_keys *keys);

#endif
