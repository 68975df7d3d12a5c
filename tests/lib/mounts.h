/* SPDX-License-Identifier: MIT
 *
 * mounts.h: where the test's process sees a file system of a kind.
 */
#ifndef GP_TEST_LIB_MOUNTS_H
#define GP_TEST_LIB_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>

/* The first mount of this type; with option, that has it among its options.  False: none, or its path does not fit. */
bool mounts_find(const char *type, const char *option, char *path, size_t bytes);

#endif
