/* SPDX-License-Identifier: MIT
 *
 * test_asuser.c: files that root opens and makes with the rights of another process
 * (tools/read/common/asuser.c).
 */
#include <read/common/foreign.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { USER = 64001, GROUP = 64002, EXTRA = 64003 };

static char folder[] = "/tmp/gpuprof-asuser-XXXXXX";
static pid_t other;

/* A process with a user, a group and one more group of its own. Its directory in /proc. */
static int setup_other(void)
{
    const gid_t extra[] = {EXTRA};
    char path[32], byte;
    int ends[2];
    if (getuid() != 0)
        cr_skip("needs root");
    cr_assert(mkdtemp(folder));
    cr_assert_eq(chmod(folder, 0711), 0);
    cr_assert_eq(pipe(ends), 0);
    other = fork();
    if (other == 0) {
        bool done = setgroups(1, extra) == 0 && setgid(GROUP) == 0 && setuid(USER) == 0;
        if (write(ends[1], "x", 1) != 1 || !done)
            _exit(1);
        for (;;)
            pause();
    }
    cr_assert_eq(read(ends[0], &byte, 1), 1);
    snprintf(path, sizeof(path), "/proc/%d", (int)other);
    int proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    cr_assert_geq(proc, 0);
    return proc;
}

static void clean(void)
{
    char line[128];
    snprintf(line, sizeof(line), "rm -rf %s", folder);
    cr_expect_eq(system(line), 0);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
}

/* A file of root's with that group and mode: the error number of opening it. */
static int file_of(char *path, size_t bytes, const char *name, gid_t group, mode_t mode)
{
    snprintf(path, bytes, "%s/%s", folder, name);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    cr_assert(fd >= 0 && fchown(fd, 0, group) == 0 && fchmod(fd, mode) == 0);
    return close(fd);
}

static int open_error(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static void status_text(char *text, size_t bytes)
{
    int fd = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, text, bytes - 1);
    text[got > 0 ? got : 0] = '\0';
    close(fd);
    char *from = strstr(text, "Uid:"), *to = from ? strstr(from, "VmPeak") : NULL;
    cr_assert(from && to);
    char *caps = strstr(to, "CapInh"), *end = strstr(to, "Seccomp");
    memmove(text, from, (size_t)(to - from));
    memmove(text + (to - from), caps, (size_t)(end - caps));
    text[(to - from) + (end - caps)] = '\0';
}

Test(asuser, has_the_rights_of_the_process_and_no_others)
{
    static char before[4096], after[4096];
    char secret[96], shared[96], fresh[96], plain[96];
    struct gp_asuser as;
    struct stat status;
    int proc = setup_other();
    file_of(secret, sizeof(secret), "secret", 0, 0600);
    file_of(shared, sizeof(shared), "shared", EXTRA, 0640);
    file_of(plain, sizeof(plain), "plain", 0, 0644);
    status_text(before, sizeof(before));
    cr_assert_eq(gp_asuser_begin(&as, proc), 0);
    cr_expect_eq(as.uid, (uid_t)USER);
    cr_expect_eq(open_error(secret, O_RDONLY), EACCES);
    cr_expect_eq(open_error(plain, O_RDONLY), 0);
    cr_expect_eq(open_error(plain, O_RDWR), EACCES);
    cr_expect_eq(open_error(shared, O_RDONLY), 0, "its further group counts");
    snprintf(fresh, sizeof(fresh), "%s/fresh", folder);
    cr_expect_eq(open_error(fresh, O_RDWR | O_CREAT), EACCES, "the folder is root's");
    cr_expect_eq(unlink(plain) ? errno : 0, EACCES);
    gp_asuser_end(&as);
    status_text(after, sizeof(after));
    cr_expect_str_eq(before, after);
    cr_expect_eq(open_error(secret, O_RDWR), 0);

    cr_assert_eq(chmod(folder, 01777), 0);
    cr_assert_eq(gp_asuser_begin(&as, proc), 0);
    cr_expect_eq(open_error(fresh, O_RDWR | O_CREAT), 0);
    gp_asuser_end(&as);
    cr_expect(stat(fresh, &status) == 0 && status.st_uid == USER && status.st_gid == GROUP);
    close(proc);
    clean();
}

static int asked[2];

/* A thread starts with the rights of the one that makes it, so this one is made before, and
 * waits. */
static void *look(void *path)
{
    char byte;
    return (void *)(intptr_t)(read(asked[0], &byte, 1) == 1 ? open_error(path, O_RDONLY) : EIO);
}

Test(asuser, is_of_one_thread)
{
    char secret[96];
    struct gp_asuser as;
    pthread_t thread;
    void *error = NULL;
    int proc = setup_other();
    file_of(secret, sizeof(secret), "secret", 0, 0600);
    cr_assert_eq(pipe(asked), 0);
    cr_assert_eq(pthread_create(&thread, NULL, look, secret), 0);
    cr_assert_eq(gp_asuser_begin(&as, proc), 0);
    cr_expect_eq(open_error(secret, O_RDONLY), EACCES);
    cr_expect_eq(write(asked[1], "x", 1), 1);
    cr_expect_eq(pthread_join(thread, &error), 0);
    gp_asuser_end(&as);
    cr_expect_null(error, "another thread: %s", strerror((int)(intptr_t)error));
    close(proc);
    clean();
}

Test(asuser, tells_that_the_process_has_ended)
{
    struct gp_asuser as;
    int proc = setup_other();
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    cr_expect_eq(gp_asuser_begin(&as, proc), -ESRCH);
    cr_expect_eq(open_error("/root", O_RDONLY | O_DIRECTORY), 0);
    close(proc);
    other = fork();
    if (other == 0)
        _exit(0);
    clean();
}
