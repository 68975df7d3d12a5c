/* SPDX-License-Identifier: MIT
 *
 * test_record_open.c: which files gp_file_open (core/record/file.c) opens for a recording, and which it leaves as they are;
 * with other users' files and system calls that fail.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <record/file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static uid_t user = (uid_t)-1;
static const char *failing;
static int failing_error;

uid_t geteuid(void)
{
    return user == (uid_t)-1 ? (uid_t)syscall(SYS_geteuid) : user;
}

static bool fails(const char *call)
{
    bool now = failing && strcmp(failing, call) == 0;
    failing = now ? NULL : failing;
    errno = now ? failing_error : errno;
    return now;
}

int flock(int fd, int how)
{
    return fails("lock") ? -1 : (int)syscall(SYS_flock, fd, how);
}

int ftruncate(int fd, off_t bytes)
{
    return fails("truncate") ? -1 : (int)syscall(SYS_ftruncate, fd, bytes);
}

int fchmod(int fd, mode_t mode)
{
    return fails("chmod") ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

static char folder[64], path[96];

static void enter(void)
{
    strcpy(folder, "/tmp/gpuprof-test-open-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
    umask(0);
}

static void leave(void)
{
    unlink(path);
    rmdir(path);
    rmdir(folder);
}

TestSuite(record_open, .init = enter, .fini = leave, .timeout = 30);

static unsigned open_files(void)
{
    unsigned count = 0;
    DIR *list = opendir("/proc/self/fd");
    while (readdir(list))
        count++;
    closedir(list);
    return count;
}

static void make(const char *bytes, size_t count)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    cr_assert_eq(write(fd, bytes, count), (ssize_t)count);
    close(fd);
    chmod(path, 0644);
}

/* Opens the file; expects this answer, and afterwards the number of bytes and the mode. */
static void expect(bool empty, int error, off_t bytes, mode_t mode, const char *what)
{
    unsigned files = open_files();
    struct stat status;
    int fd = gp_file_open(path, empty);
    cr_expect_eq(fd < 0 ? fd : 0, error, "%s: %d", what, fd);
    cr_expect_eq(open_files(), files + (fd >= 0), "%s", what);
    if (fd >= 0) {
        cr_expect(fcntl(fd, F_GETFD) & FD_CLOEXEC, "%s", what);
        close(fd);
    }
    if (lstat(path, &status) != 0)
        status = (struct stat){.st_size = -1};
    cr_expect_eq(status.st_size, bytes, "%s: %ld bytes", what, (long)status.st_size);
    cr_expect_eq(status.st_mode & 07777, mode, "%s: mode %o", what, status.st_mode);
    failing = NULL;
    user = (uid_t)-1;
}

#define MAGIC GP_RECORD_MAGIC

Test(record_open, files)
{
    expect(false, 0, 0, 0600, "a new file");
    expect(false, -EEXIST, 0, 0600, "an empty one that is not to be taken");
    expect(true, 0, 0, 0600, "an empty one");
    chmod(path, 0640);
    expect(true, 0, 0, 0640, "an empty one keeps its mode");
    make(MAGIC "and more", 16);
    expect(false, -EEXIST, 16, 0644, "a recording");
    expect(true, -EEXIST, 16, 0644, "a recording");
    make("x", 1);
    expect(true, -EEXIST, 1, 0644, "the shortest file");
    make("", 0);
    user = 12345;
    expect(true, -EEXIST, 0, 0644, "the file of another user");
    unlink(path);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_expect_eq(gp_file_open(path, true), -EISDIR);
    rmdir(path);
    snprintf(path, sizeof(path), "%s/no/file", folder);
    cr_expect_eq(gp_file_open(path, true), -ENOENT);
    snprintf(path, sizeof(path), "%s/file", folder);
    cr_assert_eq(symlink("/tmp/nowhere-gpuprof", path), 0);
    cr_expect_eq(gp_file_open(path, true), -ELOOP);
    cr_expect_eq(gp_file_open(path, false), -EEXIST);
    unlink(path);
    strcpy(path, "/dev/zero");
    cr_expect_eq(gp_file_open(path, true), -EEXIST);
    snprintf(path, sizeof(path), "%s/file", folder);
}

Test(record_open, locks)
{
    static const int unlocked[] = {ENOLCK, EOPNOTSUPP, ENOSYS};
    make("", 0);
    int other = open(path, O_RDONLY);
    cr_assert_eq(flock(other, LOCK_EX), 0);
    expect(true, -EBUSY, 0, 0644, "another process writes it");
    close(other);
    for (unsigned i = 0; i < 3; i++) {
        make("", 0);
        failing = "lock";
        failing_error = unlocked[i];
        expect(true, 0, 0, 0644, "a file system without locks");
    }
    make("", 0);
    failing = "lock";
    failing_error = EIO;
    expect(true, -EIO, 0, 0644, "a lock that fails");
    unlink(path);
    failing = "lock";
    failing_error = EIO;
    expect(true, -EIO, 0, 0600, "a lock that fails on a new file");
    unlink(path);
    int fd = gp_file_open(path, false);
    expect(true, -EBUSY, 0, 0600, "a recording that is being written");
    close(fd);
}

/* A FIFO of this user that has a reader, which then blocks as usual. */
Test(record_open, fifos)
{
    cr_assert_eq(mkfifo(path, 0600), 0);
    expect(true, -ENXIO, 0, 0600, "without a reader");
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    for (int empty = 0; empty < 2; empty++) {
        int fd = gp_file_open(path, empty);
        cr_expect_geq(fd, 0);
        cr_expect_eq(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_WRONLY);
        close(fd);
    }
    user = 12345;
    expect(true, -EEXIST, 0, 0600, "of another user");
    close(reader);
}

Test(record_open, files_that_are_dropped)
{
    struct stat status;
    make("", 0);
    gp_file_drop(path);
    cr_expect_neq(lstat(path, &status), 0);
    make("x", 1);
    gp_file_drop(path);
    cr_expect_eq(lstat(path, &status), 0);
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    gp_file_drop(path);
    cr_expect_eq(lstat(path, &status), 0);
    unlink(path);
    gp_file_drop(path);
}
