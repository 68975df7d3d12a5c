/* SPDX-License-Identifier: MIT
 *
 * output.h: the files that commands write with -o.  A mistyped name must not destroy other data, and an
 * incomplete file must not look like a complete one.
 */
#ifndef GP_COMMON_OUTPUT_H
#define GP_COMMON_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

/* Whether an option ("-o ", "--junit=") may name this file: NULL, "-", a new name, an empty file, a pipe
 * or a device, or what one of these commands wrote earlier; with `force` any file but a recording.
 * GP_EXIT_OK, or GP_EXIT_FAILED after a message.  Call it before the work. */
int gp_output_check(const char *command, const char *option, const char *path, bool force);

struct gp_output {
    const char *path;
    char part[4096]; /* written here and renamed when complete; "": written directly */
    int fd;
};

/* Opens the file that a complete one will replace.  NULL or "-" is standard output; pipes and
 * devices are written directly.  0 or -errno. */
int gp_output_open(struct gp_output *out, const char *path);
/* error: result of the writing, 0 or -errno.  Renames the file, or removes it after an error.  0
 * or -errno. */
int gp_output_close(struct gp_output *out, int error);

/* Opens, writes with write(), which answers 0 or -errno, and closes.  0 or -errno. */
int gp_output_write(const char *path, int write(FILE *out, const void *what), const void *what);

#endif
