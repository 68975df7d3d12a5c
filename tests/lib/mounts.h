/* SPDX-License-Identifier: MIT
 *
 * mounts.h: finds a mount of a given file system type.
 */
#ifndef GP_TEST_LIB_MOUNTS_H
#define GP_TEST_LIB_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>

/* The first mount of this type that has the option (NULL: any). False: no such mount, or its path does not fit. */
bool mounts_find(const char *type, const char *option, char *path, size_t bytes);

#endif
