/* SPDX-License-Identifier: MIT
 *
 * messages.h: the exit statuses of all commands, and their messages on stderr.
 */
#ifndef GP_COMMON_MESSAGES_H
#define GP_COMMON_MESSAGES_H

#include <base/compiler.h>
#include <stddef.h>

enum gp_exit {
    GP_EXIT_OK = 0,
    GP_EXIT_FAILED = 1,       /* failed while running */
    GP_EXIT_USAGE = 2,        /* wrong usage */
    GP_EXIT_NO_PROCESS = 3,   /* no such profiled process */
    GP_EXIT_OVER = 3,         /* more memory than there is, or than a budget allows */
    GP_EXIT_TIMEOUT = 75,     /* as EX_TEMPFAIL: try again later */
    GP_EXIT_IMPOSSIBLE = 77,  /* not possible on this machine */
    GP_EXIT_CANNOT_RUN = 126, /* as env(1): found, but it cannot be run */
    GP_EXIT_NOT_FOUND = 127,  /* as env(1) */
};

/* "gpuprof: COMMAND: ..." and a newline on stderr. */
void gp_error(const char *command, const char *format, ...) GP_PRINTF(2, 3);
/* The same, then a line that names the help.  Returns GP_EXIT_USAGE, so that callers can return
 * it. */
int gp_usage_error(const char *command, const char *format, ...) GP_PRINTF(2, 3);
/* Says that an output cannot be written; path: NULL or "-" for standard output, whose reader may
 * have enough, as head has: that is no news.  error: an errno.  Returns GP_EXIT_FAILED. */
int gp_write_error(const char *command, const char *path, int error);
/* Says that memory ran out.  Returns GP_EXIT_FAILED. */
int gp_memory_error(const char *command);
/* The nearest of names[count] to `word` (edit distance <= 2), or NULL. */
const char *gp_nearest(const char *word, const char *const *names, size_t count);

#endif
