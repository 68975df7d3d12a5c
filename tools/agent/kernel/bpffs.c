/* SPDX-License-Identifier: MIT
 *
 * bpffs.c: mounts the BPF file system that pins need, where the machine has none.  Called by the agent when it starts.
 */
#include "agent/kernel/bpf.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define BPFFS "/sys/fs/bpf"

static bool is_below(const char *pins)
{
    const size_t length = sizeof BPFFS - 1;
    return !strncmp(pins, BPFFS, length) && (pins[length] == '/' || pins[length] == '\0');
}

/* The type of the file system at BPFFS, 0 where there is no such directory. */
static unsigned long type_there(void)
{
    struct statfs about;
    return statfs(BPFFS, &about) ? 0 : (unsigned long)about.f_type;
}

/* Two agents that start together must not mount twice: the second mount would hide the pins of the first.  Any user can
 * hold this lock, so an agent waits one second at most.  A descriptor to close, or -1 without the lock. */
static int lock_mount_point(void)
{
    int fd = open(BPFFS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int tries = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && tries < 50; tries++)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return fd;
}

static int mount_error(int error, char *why, size_t why_bytes)
{
    if (error == EPERM || error == EACCES)
        snprintf(why, why_bytes,
                 "no BPF file system is mounted at " BPFFS ", and mounting one needs CAP_SYS_ADMIN: run 'mount -t bpf "
                 "bpf " BPFFS "' as root first");
    else
        snprintf(why, why_bytes, "no BPF file system is mounted at " BPFFS ", and mounting one failed: %s%s",
                 strerror(error),
                 error == ENODEV   ? " (the kernel has none)"
                 : error == ENOENT ? " (is sysfs mounted at /sys?)"
                                   : "");
    return -ENOENT;
}

int gp_bpf_mount(const char *pins, char *why, size_t why_bytes)
{
    if (!is_below(pins))
        return 0;
    /* Another file system there was mounted on purpose: it stays, and pinning reports that it is no bpffs. */
    unsigned long type = type_there();
    if (type != SYSFS_MAGIC)
        return type ? 0 : mount_error(ENOENT, why, why_bytes);
    int lock = lock_mount_point(), error = 0;
    bool is_missing = type_there() == SYSFS_MAGIC;
    if (is_missing && mount("bpf", BPFFS, "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=" GP_BPF_MOUNT_MODE))
        error = errno;
    if (lock >= 0)
        close(lock);
    return error ? mount_error(error, why, why_bytes) : is_missing;
}
