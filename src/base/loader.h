/* SPDX-License-Identifier: MIT
 *
 * loader.h: walks the loader's list of objects, never while the process forks.
 *
 * dl_iterate_phdr holds a lock that fork does not reinitialise in the child (glibc;
 * tests/programs/site_fork.c shows it). If another thread of ours holds it during a fork, the
 * child waits for ever in its next dlopen or C++ exception. So a fork waits for walks under way,
 * and a new walk waits for the fork; both waits are short.
 */
#ifndef GP_BASE_LOADER_H
#define GP_BASE_LOADER_H

#include "base/compiler.h"
#include <link.h>
#include <stdbool.h>

/* Like dl_iterate_phdr. False: the process is forking, and visit was not called. */
GP_COLD bool gp_loader_look(int (*visit)(struct dl_phdr_info *info, size_t size, void *arg), void *arg);

/* Call them around a fork, in the program's thread. */
void gp_loader_fork_begin(void);
void gp_loader_fork_end(void);

#endif
