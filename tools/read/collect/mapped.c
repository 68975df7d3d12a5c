/* SPDX-License-Identifier: MIT
 * mapped.c: see mapped.h. */
#include <read/collect/mapped.h>

#include <errno.h>
#include <fcntl.h>
#include <read/common/foreign.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Below the process's root only the inode is compared: on layered file systems (overlay, btrfs)
 * maps and stat disagree about the device. */
static int mapped_same(int fd, const struct gp_vma *file, bool is_device_sure)
{
    struct stat status;
    if (fd < 0)
        return fd;
    if (fstat(fd, &status) == 0 && (uint64_t)status.st_ino == file->inode &&
        (!is_device_sure || (uint64_t)status.st_dev == file->device))
        return fd;
    close(fd);
    return -ENOENT;
}

int gp_mapped_open(const char *proc, const struct gp_vma *file)
{
    char root[64];
    int fd = gp_foreign_mapped(proc, file->start, file->end, file->path);
    if (fd >= 0)
        return fd;
    snprintf(root, sizeof(root), "%.50s/root", proc);
    fd = mapped_same(gp_foreign_open(root, file->path), file, false);
    /* A process in a chroot of ours: maps shows paths as seen from our root. */
    return fd >= 0 ? fd : mapped_same(gp_foreign_open("", file->path), file, true);
}

int gp_mapped_each(pid_t pid, gp_vma_each *each, void *context)
{
    char path[64], lines[GP_VMA_LINE];
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = gp_vma_walk(fd, lines, sizeof(lines), SIZE_MAX, each, context);
    close(fd);
    return rc;
}
