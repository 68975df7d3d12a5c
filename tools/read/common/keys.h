/* SPDX-License-Identifier: MIT
 *
 * keys.h: numbers byte strings in order of their first appearance: 0, 1, 2, ...  It keeps a copy of
 * each.  Threads: one caller at a time.
 */
#ifndef GP_COMMON_KEYS_H
#define GP_COMMON_KEYS_H

#include <read/common/hash.h>

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
int gp_keys_number(struct gp_keys *keys, const void *key, size_t bytes, uint32_t *number, bool *is_new);
/* The number of a key that is in the table already; false otherwise. */
bool gp_keys_find(const struct gp_keys *keys, const void *key, size_t bytes, uint32_t *number);
void gp_keys_free(struct gp_keys *keys);

#endif
