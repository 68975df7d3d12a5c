/* SPDX-License-Identifier: MIT
 *
 * loader.h: calls into the loader, and walks over its list of objects, never while the process forks.
 *
 * The loader's locks are the outermost ones. The program calls CUDA while it holds them: in a
 * constructor, and in its own callback of dl_iterate_phdr. If another thread of it waited for the
 * loader with a lock of ours, both would hang. So every call into the loader is written as
 * GP_LOADER(call) or made by a function here (tests/lint/check-loader), and debug builds check that no
 * lock of ours is held then. A lock that has to cover a walk is taken inside gp_loader_with.
 *
 * dl_iterate_phdr holds a lock that fork does not reinitialise in the child (glibc;
 * tests/programs/site_fork.c shows it). If another thread of ours holds it during a fork, the
 * child waits for ever in its next dlopen or C++ exception. So a fork waits for walks under way,
 * and a new walk waits for the fork; both waits are short.
 */
#ifndef GP_BASE_LOADER_H
#define GP_BASE_LOADER_H

#include "base/compiler.h"
#include "base/lock.h"
#include <link.h>
#include <stdbool.h>

/* A call of dlopen, dlsym, dlclose, dladdr, dlinfo or dlerror, which wait for the loader's locks. */
#ifdef GP_DEBUG
#define GP_LOADER(_call) (gp_loader_check(), (_call))
void gp_loader_check(void);
#else
#define GP_LOADER(_call) (_call)
#endif

/* Like dl_iterate_phdr. False: the process is forking, and visit was not called. */
GP_COLD bool gp_loader_look(int (*visit)(struct dl_phdr_info *info, size_t size, void *arg), void *arg);

/* Calls `work` with the loader's list locked: it may take locks of ours, and gp_loader_look inside it
 * does not wait. False: the process is forking, and work was not called. */
GP_COLD bool gp_loader_with(void (*work)(void *arg), void *arg);

/* Call them around a fork, in the program's thread. */
void gp_loader_fork_begin(void);
void gp_loader_fork_end(void);

#endif
