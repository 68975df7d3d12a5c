/* SPDX-License-Identifier: MIT
 *
 * kept.h: the library's memory from one attach to the next. A life of the library (thread.h) begins
 * with its variables as they were when it was loaded, and without what the life before had mapped,
 * so no part needs an end of its own. Variables that the program's threads use without
 * gp_thread_enter, or of which the program holds the address, keep their values.
 */
#ifndef GP_BASE_KEPT_H
#define GP_BASE_KEPT_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>

struct gp_kept {
    void *at;
    size_t bytes;
};

/* The variable keeps its value. In the file that defines it. */
#define GP_KEEP(_variable)                                                                                             \
    static const struct gp_kept gp_kept_##_variable                                                                    \
        __attribute__((section("gp_kept"), used)) = {(void *)&_variable, sizeof(_variable)}

/* Anonymous memory that ends with the life: mmap and munmap, or NULL with errno. flags: more of MAP_*.
 * Any thread. */
void *gp_kept_map(size_t bytes, int flags);
void gp_kept_unmap(void *at, size_t bytes);

/* Unmaps all that gp_kept_map gave; nothing may use it any more. gp_kept_restore does this too. */
void gp_kept_unmap_all(void);

/* Before the first start: notes how the variables are. False: there is no memory. */
bool gp_kept_save(void);
bool gp_kept_saved(void);
/* Between two lives, on the one thread of ours that there is, while no thread of the program is
 * inside: puts the variables back and unmaps the memory. False: not saved, nothing is changed. */
bool gp_kept_restore(void);

#endif
