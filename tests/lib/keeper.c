/* SPDX-License-Identifier: MIT
 *
 * keeper.c: see keeper.h.
 */
#include "lib/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const keeper_forms[] = {
    "/tmp/gpuprof-test-*-%d",
    "/tmp/gpuprof-test-*-%d.so",
    "/sys/fs/cgroup/gpuprof-test-%d-*",
    "/sys/fs/cgroup/*/gpuprof-test-%d-*",
    "/sys/fs/cgroup/gpuprof-test-*-%d",
    "/sys/fs/cgroup/*/gpuprof-test-*-%d",
    "/sys/fs/cgroup/gpuprof-test-*-%d-*",
    "/sys/fs/cgroup/*/gpuprof-test-*-%d-*",
};

static void keeper_remove(const char *path)
{
    /* A killed process stays in its cgroup for a moment. */
    for (int tries = 0; tries < 500 && unlink(path) != 0 && rmdir(path) != 0 && errno == EBUSY; tries++)
        usleep(10000);
}

static void keeper_clear(pid_t pid)
{
    for (size_t form = 0; form < sizeof(keeper_forms) / sizeof(keeper_forms[0]); form++) {
        char pattern[128];
        glob_t found;
        snprintf(pattern, sizeof(pattern), keeper_forms[form], (int)pid);
        if (glob(pattern, 0, NULL, &found) != 0)
            continue;
        for (size_t i = 0; i < found.gl_pathc; i++)
            keeper_remove(found.gl_pathv[i]);
        globfree(&found);
    }
}

void keeper_outlive(int fd)
{
    char byte;
    setsid();
    /* The test runner waits until its pipes are closed, so this process must not hold them open. */
    dup2(fd, 3);
    syscall(SYS_close_range, 4u, ~0u, 0);
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    close(null);
    while (read(3, &byte, 1) < 0 && errno == EINTR) {
    }
}

static void keeper_wait(int fd, pid_t pid, const char *file)
{
    keeper_outlive(fd);
    keeper_clear(pid);
    if (file)
        unlink(file);
    _exit(0);
}

void keeper_start(const char *file)
{
    int ends[2], shared[2];
    char byte;
    pid_t pid = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return;
    if (pipe2(shared, O_CLOEXEC) != 0) {
        close(ends[0]);
        close(ends[1]);
        return;
    }
    /* Not a child of the test, which may wait for any child. */
    pid_t between = fork();
    if (between == 0) {
        if (fork() == 0)
            keeper_wait(ends[0], pid, file);
        _exit(0);
    }
    while (between > 0 && waitpid(between, NULL, 0) < 0 && errno == EINTR) {
    }
    close(ends[0]); /* the other end is closed when the test ends */
    /* Until the keeper has closed its copies, no descriptor that the test closes is really closed: a
     * BPF link stays attached. */
    close(shared[1]);
    while (read(shared[0], &byte, 1) < 0 && errno == EINTR) {
    }
    close(shared[0]);
}
