/* SPDX-License-Identifier: MIT
 *
 * log.c: writes each log line with one system call.
 */
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static enum gp_log_level log_level;
static int log_fd = STDERR_FILENO;

int gp_log_open(enum gp_log_level level, const char *file)
{
    if (file) {
        /* In a folder that others can write, a planted link must not redirect the file. */
        int low = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (low < 0)
            return -errno;
        int high = fcntl(low, F_DUPFD_CLOEXEC, 200), error = errno; /* low descriptor numbers belong to the program */
        close(low);
        if (high < 0)
            return -error;
        log_fd = high;
    }
    log_level = level;
    return 0;
}

void gp_log(enum gp_log_level level, const char *format, ...)
{
    static const char *const words[] = {"", "error", "warning", "info", "debug"};
    char line[512];
    va_list args;
    if (level > log_level)
        return;
    int saved_errno = errno;
    int used = snprintf(line, sizeof(line), "gpuprof[%d]: %s: ", (int)getpid(), words[level]);
    va_start(args, format);
    used += vsnprintf(line + used, sizeof(line) - (size_t)used, format, args);
    va_end(args);
    if (used > (int)sizeof(line) - 2)
        used = (int)sizeof(line) - 2;
    line[used++] = '\n';
    ssize_t written = write(log_fd, line, (size_t)used);
    (void)written; /* a failure to write the log must not affect the program */
    errno = saved_errno;
}
