/* SPDX-License-Identifier: MIT
 *
 * lock.c: one attach to a process at a time, because two would load two copies of the library.
 * Called by cmd/attach.c.
 *
 * The lock (flock) is on the process's file "mem", which the kernel opens only for a process that
 * may trace it: no other user can hold it. Each mount of procfs has files of its own, so all
 * commands take the file in the mount that the process itself sees as /proc, wherever they run. A
 * process that sees no /proc cannot load a library either; then it is the file in the command's own
 * /proc.
 */
#include <attach/attach.h>
#include <read/collect/procfs.h>
#include <read/common/foreign.h>

#include <base/clock.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define GP_LOCK_NUMBERS 33 /* levels of pid namespaces, and the first */

/* The process's numbers in the pid namespaces that it is in, from ours to its own. */
static int lock_numbers(int proc, pid_t numbers[GP_LOCK_NUMBERS])
{
    char text[8192];
    const char *at = gp_proc_read(proc, "status", text, sizeof(text)) > 0 ? strstr(text, "\nNSpid:") : NULL;
    int count = 0;
    for (at = at ? at + strlen("\nNSpid:") : ""; *at == '\t' && count < GP_LOCK_NUMBERS;) {
        char *end;
        numbers[count++] = (pid_t)strtol(at, &end, 10);
        at = end;
    }
    return count;
}

/* Two directories of processes are the same process's if it has the same number in the same
 * namespace. */
static bool lock_is_same(int one, int other)
{
    pid_t here[GP_LOCK_NUMBERS], there[GP_LOCK_NUMBERS];
    char space[64], other_space[64];
    int count = lock_numbers(one, here), other_count = lock_numbers(other, there);
    ssize_t length = readlinkat(one, "ns/pid", space, sizeof(space));
    return count && other_count && here[count - 1] == there[other_count - 1] && length > 0 &&
           readlinkat(other, "ns/pid", other_space, sizeof(other_space)) == length &&
           memcmp(space, other_space, (size_t)length) == 0;
}

/* Below a directory of procfs: no other file system may be mounted in between. */
static int lock_below(int at, const char *path, int flags)
{
    const struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, at, path, &how, sizeof(how));
    return fd < 0 ? -errno : fd;
}

/* The process's directory in the mount of procfs that it sees itself. A descriptor or -errno. */
static int lock_folder(int proc)
{
    pid_t numbers[GP_LOCK_NUMBERS];
    struct statfs fs;
    char name[16];
    int found = -ENOENT, root = openat(proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int theirs = root < 0 ? -errno : gp_foreign_folder(root, "proc", proc);
    int count =
        theirs >= 0 && fstatfs(theirs, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC ? lock_numbers(proc, numbers) : 0;
    for (int i = count - 1; i >= 0 && found < 0; i--) {
        snprintf(name, sizeof(name), "%d", (int)numbers[i]);
        found = lock_below(theirs, name, O_PATH | O_DIRECTORY);
        if (found >= 0 && !lock_is_same(proc, found)) {
            close(found);
            found = -ENOENT;
        }
    }
    if (theirs >= 0)
        close(theirs);
    if (root >= 0)
        close(root);
    return found;
}

static int lock_open(pid_t pid)
{
    char folder_of[GP_PROC_FOLDER];
    int proc = open(gp_proc_folder(pid, folder_of), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return -errno;
    int folder = lock_folder(proc), fd = folder < 0 ? folder : lock_below(folder, "mem", O_RDONLY);
    if (fd < 0)
        fd = openat(proc, "mem", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fd = -errno;
    if (folder >= 0)
        close(folder);
    close(proc);
    return fd;
}

int gp_attach_lock(pid_t pid, uint64_t wait_ns)
{
    const struct timespec pause = {0, 20000000};
    uint64_t deadline = gp_clock_ns() + wait_ns;
    int fd = lock_open(pid);
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        if (error == EWOULDBLOCK && gp_clock_ns() < deadline) {
            nanosleep(&pause, NULL);
            continue;
        }
        close(fd);
        return error == EWOULDBLOCK ? -ETIMEDOUT : -error;
    }
    return fd;
}
