/* SPDX-License-Identifier: MIT
 * The library's log in a program that closes its descriptors, and whose pipes lose their readers. */
#include "base/log.h"
#include "lib/sanitized.h"
#include "lib/standin.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool fstat_fails;

/* The library asks the kernel itself (base/glibc.h). */
STANDIN(long, syscall, long number, ...)
{
    long a[6];
    va_list args;
    va_start(args, number);
    for (unsigned i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (fstat_fails && number == SYS_fstat) {
        errno = EIO;
        return -1;
    }
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static char log_folder[64];

static void log_enter(void)
{
    snprintf(log_folder, sizeof(log_folder), "/tmp/gpuprof-test-log-XXXXXX");
    cr_assert_not_null(mkdtemp(log_folder));
}

static const char *log_path(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", log_folder, name);
    return path;
}

static void log_leave(void)
{
    static const char *const names[] = {"first", "second", "fifo"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unlink(log_path(names[i]));
    rmdir(log_folder);
}

TestSuite(log, .init = log_enter, .fini = log_leave, .timeout = 20);

/* Makes `fd` descriptor 2. */
static void log_put(int fd)
{
    cr_assert_geq(fd, 0);
    cr_assert_eq(dup2(fd, 2), 2);
    if (fd != 2)
        close(fd);
}

static off_t log_bytes(const char *name)
{
    struct stat status;
    return stat(log_path(name), &status) == 0 ? status.st_size : -1;
}

Test(log, follows_no_other_file_into_descriptor_2)
{
    log_put(open(log_path("first"), O_WRONLY | O_CREAT, 0600));
    cr_assert_eq(gp_log_open(GP_LOG_INFO, NULL), 0);
    gp_log(GP_LOG_INFO, "one");
    off_t first = log_bytes("first");
    cr_expect_gt(first, 0);
    log_put(open(log_path("second"), O_WRONLY | O_CREAT, 0600));
    errno = 1234;
    gp_log(GP_LOG_INFO, "two");
    cr_expect_eq(errno, 1234);
    cr_expect_eq(log_bytes("second"), 0);
    close(2);
    gp_log(GP_LOG_INFO, "three");
    log_put(open(log_path("first"), O_WRONLY | O_APPEND)); /* the program restores it */
    gp_log(GP_LOG_INFO, "four");
    cr_expect_gt(log_bytes("first"), first);
}

/* The program closes every descriptor, as a daemon does, and a file of its own gets the number. */
Test(log, follows_no_other_file_into_its_own_descriptor)
{
    char path[128];
    snprintf(path, sizeof(path), "%s", log_path("first"));
    cr_assert_eq(gp_log_open(GP_LOG_INFO, path), 0);
    gp_log(GP_LOG_INFO, "one");
    off_t first = log_bytes("first");
    cr_expect_gt(first, 0);
    int other = open(log_path("second"), O_WRONLY | O_CREAT, 0600);
    for (int fd = 3; fd < 1000; fd++)
        if (fd != other && fcntl(fd, F_GETFD) >= 0 && fd >= 200)
            cr_assert_eq(dup2(other, fd), fd);
    gp_log(GP_LOG_INFO, "two");
    cr_expect_eq(log_bytes("second"), 0);
    cr_expect_eq(log_bytes("first"), first);
}

static void log_expect_quiet(int fd, const char *what)
{
    sigset_t before, after, pending;
    log_put(fd);
    cr_assert_eq(gp_log_open(GP_LOG_INFO, NULL), 0);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_BLOCK, NULL, &before);
    gp_log(GP_LOG_INFO, "a line");
    sigprocmask(SIG_BLOCK, NULL, &after);
    sigpending(&pending);
    cr_expect(!sigismember(&pending, SIGPIPE), "%s", what);
    cr_expect_eq(sigismember(&before, SIGPIPE), sigismember(&after, SIGPIPE), "%s", what);
}

Test(log, no_sigpipe_from_a_pipe_without_a_reader)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    close(ends[0]);
    log_expect_quiet(ends[1], "a pipe");
}

Test(log, no_sigpipe_from_a_socket_without_a_peer)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    close(ends[0]);
    log_expect_quiet(ends[1], "a socket");
}

/* poll() finds nothing wrong with a socket that was shut down for writing, and the write fails. */
Test(log, no_sigpipe_from_a_socket_that_was_shut)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    shutdown(ends[1], SHUT_WR);
    log_expect_quiet(ends[1], "a socket");
}

Test(log, a_pending_sigpipe_of_the_program_stays)
{
    sigset_t pipes, pending;
    int ends[2];
    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    sigprocmask(SIG_BLOCK, &pipes, NULL);
    raise(SIGPIPE);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    shutdown(ends[1], SHUT_WR);
    log_put(ends[1]);
    cr_assert_eq(gp_log_open(GP_LOG_INFO, NULL), 0);
    gp_log(GP_LOG_INFO, "a line");
    sigpending(&pending);
    cr_expect(sigismember(&pending, SIGPIPE));
}

Test(log, a_full_pipe_does_not_block)
{
    char page[4096] = "";
    int ends[2];
    cr_assert_eq(pipe2(ends, O_NONBLOCK), 0);
    while (write(ends[1], page, sizeof(page)) > 0)
        ;
    cr_assert_eq(fcntl(ends[1], F_SETFL, 0), 0);
    log_put(ends[1]);
    cr_assert_eq(gp_log_open(GP_LOG_INFO, NULL), 0);
    gp_log(GP_LOG_INFO, "a line");
}

Test(log, a_pipe_file_without_a_reader_does_not_block)
{
    char path[128];
    snprintf(path, sizeof(path), "%s", log_path("fifo"));
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_eq(gp_log_open(GP_LOG_INFO, path), -ENXIO);
}

Test(log, is_silent_without_stderr)
{
    close(2);
    cr_expect_eq(gp_log_open(GP_LOG_INFO, NULL), -EBADF);
    gp_log(GP_LOG_INFO, "a line");
    cr_assert_eq(open(log_path("first"), O_WRONLY | O_CREAT, 0600), 2);
    gp_log(GP_LOG_INFO, "a line");
    cr_expect_eq(log_bytes("first"), 0);
}

/* Few descriptors allowed: no copy can be made, and the log still works. */
Test(log, works_with_few_descriptors)
{
    log_put(open(log_path("first"), O_WRONLY | O_CREAT, 0600));
    cr_assert_eq(gp_log_open(GP_LOG_INFO, NULL), 0);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){100, 100}), 0);
    gp_log(GP_LOG_INFO, "one");
    cr_expect_gt(log_bytes("first"), 0);
}

/* ---- what a line has --------------------------------------------------------------------------------------------- */

static char logged[2048];

static const char *log_read(const char *name)
{
    int fd = open(log_path(name), O_RDONLY);
    ssize_t got = read(fd, logged, sizeof(logged) - 1);
    close(fd);
    logged[got > 0 ? got : 0] = '\0';
    return logged;
}

/* Each level lets through itself and what is more important. */
Test(log, levels)
{
    char path[128], want[2048] = "";
    static const char *const words[] = {"", "error", "warning", "info", "debug"};
    snprintf(path, sizeof(path), "%s", log_path("first"));
    for (int limit = GP_LOG_OFF; limit <= GP_LOG_DEBUG; limit++) {
        cr_assert_eq(gp_log_open((enum gp_log_level)limit, path), 0);
        for (int level = GP_LOG_ERROR; level <= GP_LOG_DEBUG; level++) {
            gp_log((enum gp_log_level)level, "limit %d of %s", limit, "this");
            if (level <= limit)
                snprintf(want + strlen(want), sizeof(want) - strlen(want), "gpuprof[%d]: %s: limit %d of this\n",
                         (int)getpid(), words[level], limit);
        }
        gp_log_close();
        gp_log(GP_LOG_ERROR, "closed");
    }
    cr_expect_str_eq(log_read("first"), want);
}

/* A line is cut at 511 bytes, and its end is a newline. */
Test(log, long_lines)
{
    char text[700], path[128], want[64];
    snprintf(path, sizeof(path), "%s", log_path("first"));
    size_t prefix = (size_t)snprintf(want, sizeof(want), "gpuprof[%d]: error: ", (int)getpid());
    for (size_t length = 480; length < 600; length++) {
        unlink(path);
        cr_assert_eq(gp_log_open(GP_LOG_INFO, path), 0);
        memset(text, 'a', length);
        text[length] = '\0';
        gp_log(GP_LOG_ERROR, "%s", text);
        gp_log_close();
        size_t used = prefix + length + 1, bytes = strlen(log_read("first"));
        cr_expect_eq(bytes, used < 511 ? used : 511, "%zu: %zu", length, bytes);
        cr_expect_eq(logged[bytes - 1], '\n');
        cr_expect_eq(strspn(logged + prefix, "a"), bytes - prefix - 1);
    }
}

static unsigned log_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 1000; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* No descriptor is left behind, and a file of the program's in the place of ours stays open. */
Test(log, descriptors)
{
    char path[128];
    struct rlimit limit;
    snprintf(path, sizeof(path), "%s", log_path("first"));
    unsigned before = log_descriptors();
    cr_assert_eq(gp_log_open(GP_LOG_INFO, path), 0);
    cr_expect_eq(log_descriptors(), before + 1);
    cr_expect_eq(fcntl(200, F_GETFD), FD_CLOEXEC);
    gp_log(GP_LOG_INFO, "a line");
    cr_expect_eq(log_descriptors(), before + 1);
    gp_log_close();
    cr_expect_eq(log_descriptors(), before);
    gp_log_close();
    for (unsigned beside = 0; beside < 2; beside++) { /* of another device, and of ours */
        int other = beside ? open(log_path("second"), O_WRONLY | O_CREAT, 0600) : dup(0);
        cr_assert_eq(gp_log_open(GP_LOG_INFO, path), 0);
        cr_assert_eq(dup2(other, 200), 200);
        gp_log_close();
        cr_expect_eq(fcntl(200, F_GETFD), 0);
        close(200);
        close(other);
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 200;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_expect_lt(gp_log_open(GP_LOG_INFO, path), 0);
    cr_expect_eq(log_descriptors(), before);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){limit.rlim_max, limit.rlim_max});
    if (!GP_TEST_SANITIZED) { /* with sanitizers the library calls the C library */
        fstat_fails = true;
        cr_expect_eq(gp_log_open(GP_LOG_INFO, path), -EIO);
        cr_expect_eq(gp_log_open(GP_LOG_INFO, NULL), -EIO);
        fstat_fails = false;
    }
    cr_expect_eq(log_descriptors(), before);
    cr_expect_eq(gp_log_open(GP_LOG_INFO, "/nonexistent/file"), -ENOENT);
    cr_expect_eq(gp_log_open(GP_LOG_INFO, NULL), 0);
    gp_log_close();
    cr_expect_geq(fcntl(2, F_GETFD), 0, "standard error is the program's");
}

/* The log is a new file that others cannot read, and not what a link leads to. */
Test(log, files)
{
    struct stat status;
    char path[128], link[128];
    snprintf(path, sizeof(path), "%s", log_path("first"));
    umask(0);
    cr_assert_eq(gp_log_open(GP_LOG_INFO, path), 0);
    cr_assert_eq(stat(path, &status), 0);
    cr_expect_eq(status.st_mode & 07777, 0600);
    gp_log_close();
    snprintf(link, sizeof(link), "%s", log_path("second"));
    cr_assert_eq(symlink(path, link), 0);
    cr_expect_eq(gp_log_open(GP_LOG_INFO, link), -ELOOP);
}
