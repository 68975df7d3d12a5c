/* SPDX-License-Identifier: MIT
 *
 * mapped.h: opens the files that another process maps, to read their build IDs. The recorder of
 * another process and live views of sites call it.
 */
#ifndef GP_COLLECT_MAPPED_H
#define GP_COLLECT_MAPPED_H

#include <record/modules.h>

/* A gp_modules_open: the file itself; without the right to that the file with its path in the
 * process's root or in ours, if it is the same one. A descriptor or -errno. */
int gp_mapped_open(const char *proc, const struct gp_module_file *file);

#endif
