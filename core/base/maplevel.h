/* SPDX-License-Identifier: MIT
 *
 * maplevel.h: memory that several users share as long as one of them needs it (map.c).
 */
#ifndef GP_BASE_MAPLEVEL_H
#define GP_BASE_MAPLEVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A level of so many bytes may be on huge pages: the kernel fills all 2 MiB of one at its first use. */
#define GP_MAPLEVEL_HUGE (8u << 20)

struct gp_maplevel { /* zeroed at first */
    void *memory;    /* NULL: not mapped. Only a user may read it */
    uint32_t x_lock, users;
};

/* Anonymous memory, or NULL. errno stays. Any thread. */
void *gp_maplevel_map(size_t bytes);
void gp_maplevel_unmap(void *memory, size_t bytes);

/* For one user more; the first one maps it. bytes: always the same. False: no memory. Any thread. */
bool gp_maplevel_take(struct gp_maplevel *level, size_t bytes);
/* For one user less; the last one unmaps it. part: what this user alone has used, which goes back to the kernel at once if
 * it is whole pages and they are not parts of huge ones; NULL: none. */
void gp_maplevel_give(struct gp_maplevel *level, size_t bytes, void *part, size_t part_bytes);

#endif
