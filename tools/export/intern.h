/* SPDX-License-Identifier: MIT
 *
 * intern.h: numbers for byte strings, in order of their first appearance: 0, 1, 2, ...
 */
#ifndef GP_EXPORT_INTERN_H
#define GP_EXPORT_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_intern {
    struct gp_intern_slot {
        uint64_t hash;
        uint32_t at, bytes; /* of its copy in `keys` */
        uint32_t number;    /* + 1; 0: empty */
    } * slots;
    uint32_t count, room;
    char *keys;
    size_t key_bytes, key_room;
};

/* is_new: it was not there before.  0 or -ENOMEM. */
int gp_intern(struct gp_intern *intern, const void *key, size_t bytes, uint32_t *number, bool *is_new);
void gp_intern_free(struct gp_intern *intern);

#endif
