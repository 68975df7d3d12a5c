/* SPDX-License-Identifier: MIT
 *
 * recdump.h: a recording's file as text, for tests of its writers: one line for each block in the order of the file, with
 * every number of its rows.
 */
#ifndef GP_TEST_LIB_RECDUMP_H
#define GP_TEST_LIB_RECDUMP_H

#include <stddef.h>

/* The text of the file; the caller frees it. It is checked on the way: marks, checksums, sequence, and the index. What
 * is wrong is a line that begins with "bad". Of events only the times and the number are told. */
char *recdump(const char *path);
/* The lines of recdump(path) that begin with this word; the caller frees them. */
char *recdump_of(const char *path, const char *word);

#endif
