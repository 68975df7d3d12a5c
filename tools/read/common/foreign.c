/* SPDX-License-Identifier: MIT
 *
 * foreign.c: see foreign.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH, statx */
#endif
#include <base/clock.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <poll.h>
#include <read/common/foreign.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* ==== a descriptor in a message =================================================================================== */

union passfd_control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

int gp_foreign_fd_send(int socket, void *body, size_t bytes, int file)
{
    struct iovec part = {body, bytes};
    union passfd_control control = {{0}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (file >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(head), &file, sizeof(file));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)bytes ? 0 : errno ? -errno : -EIO;
}

int gp_foreign_fd_receive(int socket, void *body, size_t bytes, int *file)
{
    struct iovec part = {body, bytes};
    union passfd_control control = {{0}};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    *file = -1;
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)bytes)
        return -EIO;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(file, CMSG_DATA(head), sizeof(*file));
    return 0;
}

void gp_foreign_fd_keep(int socket, int other)
{
    int high = fcntl(socket, F_DUPFD, 3), high_other = other < 0 ? -1 : fcntl(other, F_DUPFD, 3);
    if (dup2(high, STDIN_FILENO) < 0 || (other >= 0 && dup2(high_other, STDOUT_FILENO) < 0))
        _exit(1);
    int first = other < 0 ? 1 : 2;
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) != 0)
        for (int i = first, most = (int)sysconf(_SC_OPEN_MAX); i < most; i++)
            close(i);
}

/* ==== names that others chose ===================================================================================== */

#define MOUNTS_MOST         262144u /* bytes of mountinfo: about 1000 mounts; a container has about 30 */
#define FOREIGN_STUCK       8u      /* children that do not answer; then there are no more */
#define FOREIGN_PATIENCE_NS 1000000000ull
#define FOREIGN_LEAST       64u /* bytes; files of procfs have none, and no ELF file is shorter */

struct gp_foreign_mount {
    uint64_t number, device;
};

/* ---- served file systems ----------------------------------------------------------------------------------------- */

/* One line: "ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS..] - TYPE SOURCE OPTIONS". Compares the
 * mount's number, then the device: a process that changed its mount namespace after it mapped the
 * file has other numbers for the same file system. */
static bool line_matches(const char *line, const struct gp_foreign_mount *file, bool *is_exact)
{
    unsigned long long mount;
    unsigned major, minor;
    if (sscanf(line, "%llu %*u %u:%u", &mount, &major, &minor) != 3)
        return false;
    *is_exact = mount == file->number;
    return *is_exact || makedev(major, minor) == file->device;
}

static int mounts_search(char *text, const struct gp_foreign_mount *file)
{
    int found = -ENOENT;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        bool is_exact;
        const char *type = strstr(line, " - ");
        if (!type || !line_matches(line, file, &is_exact))
            continue;
        type += 3;
        found = !strncmp(type, "fuse ", 5) || !strncmp(type, "fuse.", 5) || !strncmp(type, "fuseblk ", 8);
        if (is_exact)
            break;
    }
    return found;
}

static int mounts_read(int proc, const char *name, const struct gp_foreign_mount *file)
{
    int fd = openat(proc, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    char *text = malloc(MOUNTS_MOST + 1);
    size_t have = 0;
    ssize_t got = text ? 1 : 0;
    while (got > 0 && have < MOUNTS_MOST && (got = read(fd, text + have, MOUNTS_MOST - have)) > 0)
        have += (size_t)got;
    close(fd);
    if (text)
        text[have] = '\0';
    int found = !text ? -ENOMEM : have == 0 ? -ESRCH : mounts_search(text, file);
    free(text);
    return found;
}

/* A process in a chroot sees only the mounts below its root, so our own mounts are searched too. A
 * file system on a block device was mounted by this machine's root: a user namespace may mount
 * FUSE, but no block device. */
int gp_foreign_is_served(uint64_t mount, uint64_t device, int proc)
{
    const struct gp_foreign_mount file = {mount, device};
    int found = proc == AT_FDCWD ? -ENOENT : mounts_read(proc, "mountinfo", &file);
    if (found == -ENOENT)
        found = mounts_read(AT_FDCWD, "/proc/self/mountinfo", &file);
    return found == -ENOENT && major(device) ? 0 : found;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

int gp_foreign_hold(int root, const char *path, bool cached)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | (cached ? RESOLVE_CACHED : 0)};
    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
    if (fd < 0 && errno == ENOSYS && geteuid() != 0)
        fd = openat(root, path + strspn(path, "/"), O_PATH | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int gp_foreign_reopen(int held)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", held);
    /* The file is known to be regular, so NONBLOCK matters only if another process holds a lease on
     * it. */
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    return file < 0 ? -errno : file;
}

/* ---- a server that does not answer ------------------------------------------------------------------------------- */

/* In the child: as gp_foreign_hold; root: -1: none. */
static int foreign_look_up(int root, const char *path)
{
    int fd = root < 0 ? open(path, O_PATH | O_CLOEXEC) : gp_foreign_hold(root, path, false);
    return fd < 0 && root < 0 ? -errno : fd;
}

static int foreign_child(int root, const char *path, int *socket, pid_t *pid)
{
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
        return -errno;
    /* It sends no signal at its end, and only a wait for such children sees it. */
    *pid = (pid_t)syscall(SYS_clone, 0ul, NULL, NULL, NULL, NULL);
    if (*pid == 0) { /* system calls only, since the command may have threads */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        gp_foreign_fd_keep(sockets[1], root); /* while it is stuck, nobody waits for the end of the command's output */
        int fd = foreign_look_up(root < 0 ? -1 : STDOUT_FILENO, path);
        int answer = fd < 0 ? fd : 0;
        gp_foreign_fd_send(STDIN_FILENO, &answer, sizeof(answer), fd);
        _exit(0);
    }
    int error = *pid < 0 ? -errno : 0;
    close(sockets[1]);
    if (error)
        close(sockets[0]);
    *socket = sockets[0];
    return error;
}

/* Holds the file with that path; root: -1: the path is ours. Where the kernel has to ask a file system's
 * server it may wait for ever, and not even a kill ends that. So what it does not remember is looked up by
 * a child, with the rights of this thread. -ETIMEDOUT: no answer. */
static int foreign_find(int root, const char *path)
{
    static unsigned x_stuck; /* children that do not answer */
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_CACHED};
    int fd = root >= 0 ? gp_foreign_hold(root, path, true) : (int)syscall(SYS_openat2, -1, path, &how, sizeof(how));
    if (fd < 0 && root < 0)
        fd = -errno;
    if (fd >= 0 || (fd != -EAGAIN && fd != -EINVAL && fd != -ENOSYS))
        return fd;
    if (__atomic_load_n(&x_stuck, __ATOMIC_RELAXED) >= FOREIGN_STUCK)
        return -ETIMEDOUT;
    int socket = -1, answer = 0, error;
    pid_t pid = -1;
    if ((error = foreign_child(root, path, &socket, &pid)))
        return error;
    struct pollfd at = {.fd = socket, .events = POLLIN};
    uint64_t until = gp_clock_ns() + FOREIGN_PATIENCE_NS;
    while (poll(&at, 1, FOREIGN_PATIENCE_NS / 1000000) < 0 && errno == EINTR && gp_clock_ns() < until)
        ;
    bool is_there = at.revents & POLLIN;
    error = is_there ? gp_foreign_fd_receive(socket, &answer, sizeof(answer), &fd) : -ETIMEDOUT;
    if (!is_there) {
        kill(pid, SIGKILL);
        __atomic_fetch_add(&x_stuck, 1, __ATOMIC_RELAXED);
    }
    close(socket);
    while (waitpid(pid, NULL, __WCLONE | (is_there ? 0 : WNOHANG)) < 0 && errno == EINTR)
        ;
    if (error || answer)
        return error ? error : answer;
    return fd < 0 ? -EMFILE : fd;
}

/* 0: it may be used; -EACCES: root must not; -errno. */
static int foreign_look(int held, int proc, struct statx *about)
{
    /* DONT_SYNC: the kernel does not ask a FUSE server, so the server cannot block this call. */
    if (statx(held, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS | STATX_MNT_ID, about) != 0)
        return -errno;
    uint64_t mount = about->stx_mask & STATX_MNT_ID ? about->stx_mnt_id : 0;
    uint64_t device = makedev(about->stx_dev_major, about->stx_dev_minor);
    return geteuid() == 0 && gp_foreign_is_served(mount, device, proc) == 1 ? -EACCES : 0;
}

/* Files of procfs and sysfs are regular too, but reading them may have effects. */
static bool foreign_is_plain(int held, int proc)
{
    struct statx about;
    struct statfs fs;
    return foreign_look(held, proc, &about) == 0 && S_ISREG(about.stx_mode) && about.stx_size >= FOREIGN_LEAST &&
           fstatfs(held, &fs) == 0 && fs.f_type != SYSFS_MAGIC;
}

int gp_foreign_folder(int at, const char *name, int proc)
{
    struct statx about;
    int held = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc = held < 0 ? -errno : foreign_look(held, proc, &about);
    if (held >= 0 && rc)
        close(held);
    return rc ? rc : held;
}

/* Closes the held descriptor. */
static int foreign_read(int held, int proc)
{
    int fd = foreign_is_plain(held, proc) ? gp_foreign_reopen(held) : -ENOEXEC;
    close(held);
    return fd;
}

/* Finds the file and opens it with the rights of the process `proc`. In between it is looked at with
 * ours: the process may not be allowed to read its own mounts. */
static int foreign_open_as(int proc, int top, const char *path)
{
    struct gp_asuser as;
    int held = gp_asuser_begin(&as, proc);
    if (held)
        return held;
    held = foreign_find(top, path);
    gp_asuser_end(&as);
    if (held < 0)
        return held;
    int fd = foreign_is_plain(held, proc) ? gp_asuser_begin(&as, proc) : -ENOEXEC;
    if (!fd) {
        fd = gp_foreign_reopen(held);
        gp_asuser_end(&as);
    }
    close(held);
    return fd;
}

int gp_foreign_open(const char *root, const char *path)
{
    if (path[0] != '/')
        return -ENOENT;
    if (!root[0]) {
        int held = foreign_find(-1, path);
        return held < 0 ? held : foreign_read(held, AT_FDCWD);
    }
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", root);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    int proc = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int top = proc < 0 ? -errno : openat(proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = proc < 0 ? top : top < 0 ? -errno : foreign_open_as(proc, top, path);
    if (top >= 0)
        close(top);
    if (proc >= 0)
        close(proc);
    return fd;
}

int gp_foreign_below(const char *folder, const char *path)
{
    int top = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int held = top < 0 ? -errno : foreign_find(top, path);
    if (top >= 0)
        close(top);
    return held < 0 ? held : foreign_read(held, AT_FDCWD);
}

/* The kernel appends " (deleted)" to the path of a deleted file. */
static bool foreign_named(int dir, const char *name, const char *path)
{
    static const char deleted[] = " (deleted)";
    char link[4096 + 16];
    size_t bytes = strlen(path);
    ssize_t n = readlinkat(dir, name, link, sizeof(link) - 1);
    if (n < 0 || n == (ssize_t)sizeof(link) - 1)
        return false;
    link[n] = '\0';
    return strncmp(link, path, bytes) == 0 && (!link[bytes] || strcmp(link + bytes, deleted) == 0);
}

int gp_foreign_mapped(const char *proc, uint64_t start, uint64_t end, const char *path)
{
    char name[64];
    int dir = open(proc, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    snprintf(name, sizeof(name), "map_files/%" PRIx64 "-%" PRIx64, start, end);
    int held = openat(dir, name, O_PATH | O_CLOEXEC), fd = held < 0 ? -errno : -ENOENT;
    if (held >= 0 && foreign_named(dir, name, path))
        fd = foreign_read(held, dir);
    else if (held >= 0)
        close(held);
    close(dir);
    return fd;
}
