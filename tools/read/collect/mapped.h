/* SPDX-License-Identifier: MIT
 *
 * mapped.h: what another process maps, and the files of it.
 */
#ifndef GP_COLLECT_MAPPED_H
#define GP_COLLECT_MAPPED_H

#include <base/vma.h>

/* A gp_modules_open: the file itself; without the right to that the file with its path in the
 * process's root or in ours, if it is the same one. A descriptor or -errno. */
int gp_mapped_open(const char *proc, const struct gp_vma *file);

/* Calls `each` for every mapping of the process; -errno when its maps do not open, else as
 * gp_vma_walk. */
int gp_mapped_each(pid_t pid, gp_vma_each *each, void *context);

#endif
