/* SPDX-License-Identifier: MIT
 *
 * log.c: writes each log line with one system call.  The program may close any descriptor and reuse
 * its number, and a pipe may lose its reader; the log must not disturb the program in either case.
 */
#include "base/log.h"
#include "base/sandbox.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Low descriptor numbers belong to the program. */
#define GP_LOG_FD 200

static enum gp_log_level log_level;
static struct gp_log_target {
    int fd;
    dev_t device;
    ino_t inode;
} log_target = {.fd = STDERR_FILENO};

static int log_aim(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return -errno;
    log_target = (struct gp_log_target){fd, status.st_dev, status.st_ino};
    return 0;
}

int gp_log_open(enum gp_log_level level, const char *file)
{
    int high = STDERR_FILENO;
    if (file) {
        /* In a folder that others can write, a planted link must not redirect the file.  A pipe
         * without a reader must not block the program. */
        int low = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (low < 0)
            return -errno;
        int error = 0;
        high = fcntl(low, F_DUPFD_CLOEXEC, GP_LOG_FD);
        if (high < 0)
            error = -errno;
        close(low);
        if (error)
            return error;
    }
    int error = log_aim(high);
    if (error) {
        if (file)
            close(high);
        return error;
    }
    log_level = level;
    return 0;
}

void gp_log_close(void)
{
    struct stat status;
    log_level = GP_LOG_OFF;
    if (log_target.fd >= GP_LOG_FD && fstat(log_target.fd, &status) == 0 && status.st_dev == log_target.device &&
        status.st_ino == log_target.inode)
        close(log_target.fd);
}

/* A pipe without a reader sends SIGPIPE to the thread that writes: this thread takes it back before
 * the program can get it.  While one that came earlier is pending, the two cannot be told apart. */
static void log_write(int fd, const char *line, size_t bytes)
{
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    struct timespec now = {0};
    sigset_t pipes, pending, old;
    if (poll(&ready, 1, 0) != 1 || ready.revents != POLLOUT)
        return; /* it would block, or has no reader */
    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    if (pthread_sigmask(SIG_BLOCK, &pipes, &old) != 0)
        return;
    if (sigpending(&pending) == 0 && !sigismember(&pending, SIGPIPE) && write(fd, line, bytes) < 0 && errno == EPIPE)
        while (sigtimedwait(&pipes, NULL, &now) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* The copy keeps the checked file open even if the program reuses the number meanwhile.  If the
 * limit of descriptors is too low for a copy, the number itself is used. */
static void log_line(const char *line, size_t bytes)
{
    struct stat status;
    int copy = fcntl(log_target.fd, F_DUPFD_CLOEXEC, GP_LOG_FD), fd = copy < 0 ? log_target.fd : copy;
    if (fstat(fd, &status) == 0 && status.st_dev == log_target.device && status.st_ino == log_target.inode)
        log_write(fd, line, bytes);
    if (copy >= 0)
        close(copy);
}

void gp_log(enum gp_log_level level, const char *format, ...)
{
    static const char *const words[] = {"", "error", "warning", "info", "debug"};
    char line[512];
    va_list args;
    if (level > log_level || gp_sandboxed_now())
        return;
    int saved_errno = errno;
    int used = snprintf(line, sizeof(line), "gpuprof[%d]: %s: ", (int)getpid(), words[level]);
    va_start(args, format);
    used += vsnprintf(line + used, sizeof(line) - (size_t)used, format, args);
    va_end(args);
    if (used > (int)sizeof(line) - 2)
        used = (int)sizeof(line) - 2;
    line[used++] = '\n';
    log_line(line, (size_t)used); /* a failure to write the log must not affect the program */
    errno = saved_errno;
}
