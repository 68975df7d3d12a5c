/* SPDX-License-Identifier: MIT
 *
 * inside.c: see inside.h.
 */
#include "lib/inside.h"
#include "lib/keeper.h"
#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int report = -1; /* a memory file */
static char top[64];

const char *inside_top(void)
{
    return top;
}

void inside_say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vdprintf(report, format, list);
    va_end(list);
}

static void first_process(void (*body)(void), void (*finish)(void))
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 && errno == EINVAL) {
        inside_say("in a chroot, whose mounts cannot be made private");
        _exit(INSIDE_SKIP);
    }
    NEED(mount("proc", "/proc", "proc", 0, NULL) == 0);
    NEED(mount("tmpfs", top, "tmpfs", 0, NULL) == 0);
    body();
    if (finish)
        finish();
    _exit(0);
}

static void outer_process(void (*body)(void), void (*finish)(void))
{
    int status = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWPID | CLONE_NEWNS)) {
        inside_say("no namespaces: %s", strerror(errno));
        _exit(INSIDE_SKIP);
    }
    pid_t first = fork();
    if (first == 0)
        first_process(body, finish);
    waitpid(first, &status, 0);
    if (WIFSIGNALED(status))
        inside_say("signal %d", WTERMSIG(status));
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

int inside_run(void (*body)(void), void (*finish)(void), char *text, size_t bytes)
{
    int status = 0;
    snprintf(text, bytes, "not root");
    if (geteuid() != 0)
        return INSIDE_SKIP;
    snprintf(top, sizeof(top), "/tmp/gpuprof-test-inside-%d", (int)getpid());
    keeper_start(NULL);
    mkdir(top, 0755); /* the mount point, empty outside */
    report = memfd_create("report", MFD_CLOEXEC);
    pid_t outer = fork();
    if (outer == 0)
        outer_process(body, finish);
    waitpid(outer, &status, 0);
    ssize_t n = pread(report, text, bytes - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    close(report);
    rmdir(top);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

void inside_shell(const char *format, ...)
{
    char command[4 * PATH_MAX];
    va_list list;
    va_start(list, format);
    int n = snprintf(command, sizeof(command), "cd %s && set -e; ", top);
    vsnprintf(command + n, sizeof(command) - (size_t)n, format, list);
    va_end(list);
    NEED(system(command) == 0, "%s", command);
}

void inside_admin(bool has)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    NEED(syscall(SYS_capget, &header, data) == 0);
    data[0].effective = has ? data[0].permitted : data[0].effective & ~(1u << CAP_SYS_ADMIN);
    data[1].effective = has ? data[1].permitted : data[1].effective & ~(1u << (CAP_CHECKPOINT_RESTORE - 32));
    NEED(syscall(SYS_capset, &header, data) == 0);
}
