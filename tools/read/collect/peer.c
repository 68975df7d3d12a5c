/* SPDX-License-Identifier: MIT
 *
 * peer.c: opens a session and checks its layout; see peer.h. peerfind.c finds it among the
 * descriptors of a process, and peerread.c copies the numbers.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_GET_SEALS */
#endif
#include <base/compiler.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <linux/magic.h>
#include <read/collect/peer.h>
#include <read/collect/procfs.h>
#include <read/common/foreign.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define GP_SEALS_NEEDED (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* A session has about 2.6 MiB by default; the size of a hostile one is bounded by this. */
#define GP_PEER_MOST_BYTES (1ull << 30)

struct gp_peer_part {
    const char *name;
    uint64_t offset, item_bytes, items, align;
};

static int peer_problem(char problem[GP_PROBLEM_BYTES], const char *text)
{
    snprintf(problem, GP_PROBLEM_BYTES, "%s", text);
    return -EPROTO;
}

static bool part_inside(const struct gp_peer_part *part, uint64_t total, uint64_t *end)
{
    uint64_t bytes;
    return part->offset >= sizeof(struct gp_wire_header) && part->offset % part->align == 0 &&
           !__builtin_mul_overflow(part->item_bytes, part->items, &bytes) &&
           !__builtin_add_overflow(part->offset, bytes, end) && *end <= total;
}

/* Of the parts below, in this order, these may not be missing. */
#define GP_PEER_NEEDED 5u

/* The sizes of items must be those of this build: another layout under the same ABI number is
 * damage. */
static int peer_check_parts(const struct gp_wire_header *h, char problem[GP_PROBLEM_BYTES])
{
    const struct gp_peer_part parts[] = {
        {"devices", h->devices_offset, h->device_bytes, h->device_count, 8},
        {"scopes", h->scopes_offset, h->scope_bytes, h->scope_count, 8},
        {"failures", h->failures_offset, h->failure_bytes, h->failure_count, 8},
        {"mailbox", h->mailbox_offset, h->mailbox_bytes, 1, 8},
        {"ring", h->ring_offset, h->chunk_bytes, h->chunk_count, 64},
        {"out-of-memory report", h->oom_offset, h->oom_bytes, 1, 8},
        {"out-of-memory report's framework", h->oom_framework_offset, h->oom_framework_bytes, 1, 8},
        {"owners", h->owners_offset, h->owners_bytes, 1, 8},
        {"table of CUPTI's copies", h->cupti_offset, h->cupti_bytes, 1, 8},
        {"memory from before", h->before_offset, h->before_bytes, 1, 8},
        {"blocks from before", h->blocks_offset, h->blocks_bytes, 1, 8},
        {"pools of libraries", h->doors_offset, h->doors_bytes, 1, 8},
    };
    uint64_t ends[GP_COUNT(parts)];
    for (size_t i = 0; i < GP_COUNT(parts); i++) {
        ends[i] = 0; /* a part that a library leaves out overlaps nothing */
        if (i >= GP_PEER_NEEDED && parts[i].offset == 0 && parts[i].item_bytes == 0)
            continue;
        if (!part_inside(&parts[i], h->total_bytes, &ends[i])) {
            snprintf(problem, GP_PROBLEM_BYTES, "header: %s: not inside the session", parts[i].name);
            return -EPROTO;
        }
        for (size_t j = 0; j < i; j++) {
            if (parts[i].offset < ends[j] && parts[j].offset < ends[i]) {
                snprintf(problem, GP_PROBLEM_BYTES, "header: %s and %s overlap", parts[j].name, parts[i].name);
                return -EPROTO;
            }
        }
    }
    return 0;
}

int gp_peer_check(struct gp_peer *session, const struct gp_wire_header *h, uint64_t file_bytes,
                  char problem[GP_PROBLEM_BYTES])
{
    if (h->magic == 0)
        return -ENOENT;
    if (h->magic != GP_WIRE_MAGIC)
        return peer_problem(problem, "header: wrong magic number");
    if (h->abi != GP_WIRE_ABI) {
        snprintf(problem, GP_PROBLEM_BYTES, "written by another version of gpuprof (ABI %u, this command reads %u)",
                 h->abi, GP_WIRE_ABI);
        return -EPROTO;
    }
    if (h->header_bytes != sizeof(*h) || h->device_bytes != sizeof(struct gp_wire_device) ||
        h->scope_bytes != sizeof(struct gp_wire_scope) || h->failure_bytes != sizeof(struct gp_wire_failure) ||
        h->mailbox_bytes != sizeof(struct gp_wire_mailbox) || h->chunk_bytes != sizeof(struct gp_wire_chunk) ||
        (h->oom_bytes != 0 && h->oom_bytes != sizeof(struct gp_wire_oom)) ||
        (h->oom_framework_bytes != 0 && h->oom_framework_bytes != sizeof(struct gp_wire_oom_framework)) ||
        (h->owners_bytes != 0 && h->owners_bytes != sizeof(struct gp_wire_owners)) ||
        (h->cupti_bytes != 0 && h->cupti_bytes != sizeof(struct gp_wire_cupti)) ||
        (h->before_bytes != 0 && h->before_bytes != sizeof(struct gp_wire_before)) ||
        (h->blocks_bytes != 0 && h->blocks_bytes != sizeof(struct gp_wire_blocks)) ||
        (h->doors_bytes != 0 && h->doors_bytes != sizeof(struct gp_wire_doors)))
        return peer_problem(problem, "header: sizes of parts are not those of this ABI");
    if (h->device_count != GP_WIRE_DEVICES || h->scope_count != GP_WIRE_SCOPES ||
        h->failure_count != GP_WIRE_FAILURES || h->slot_count != GP_WIRE_SLOTS)
        return peer_problem(problem, "header: counts of parts are not those of this ABI");
    if (h->chunk_count == 0 || (h->chunk_count & (h->chunk_count - 1)) != 0)
        return peer_problem(problem, "header: the number of ring chunks is not a power of two");
    if (h->total_bytes != file_bytes || file_bytes > GP_PEER_MOST_BYTES)
        return peer_problem(problem, "header: total size is not the size of the file");
    int rc = peer_check_parts(h, problem);
    if (rc)
        return rc;
    memcpy(session->id, h->session_id, sizeof(session->id));
    session->pid = h->pid;
    session->start_ns = h->start_ns;
    session->total_bytes = h->total_bytes;
    session->devices_offset = h->devices_offset;
    session->scopes_offset = h->scopes_offset;
    session->failures_offset = h->failures_offset;
    session->mailbox_offset = h->mailbox_offset;
    session->ring_offset = h->ring_offset;
    session->oom_offset = h->oom_bytes ? h->oom_offset : 0;
    session->oom_framework_offset = h->oom_framework_bytes ? h->oom_framework_offset : 0;
    session->owners_offset = h->owners_bytes ? h->owners_offset : 0;
    session->before_offset = h->before_bytes ? h->before_offset : 0;
    session->blocks_offset = h->blocks_bytes ? h->blocks_offset : 0;
    session->doors_offset = h->doors_bytes ? h->doors_offset : 0;
    session->cupti_offset = h->cupti_bytes ? h->cupti_offset : 0;
    session->device_count = h->device_count;
    session->scope_count = h->scope_count;
    session->failure_count = h->failure_count;
    session->slot_count = h->slot_count;
    session->chunk_count = h->chunk_count;
    return 0;
}

int gp_peer_fetch(const struct gp_peer *session, void *to, size_t bytes, uint64_t offset)
{
    for (size_t have = 0; have < bytes;) {
        ssize_t n = pread(session->fd, (char *)to + have, bytes - have, (off_t)(offset + have));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -EPROTO; /* shorter than its header says: not sealed, or another file than the checked one */
        have += (size_t)n;
    }
    return 0;
}

int gp_peer_load(struct gp_peer *session, int fd, char problem[GP_PROBLEM_BYTES])
{
    struct gp_wire_header header;
    struct stat st;
    memset(session, 0, sizeof(*session));
    session->fd = fd;
    int rc;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof(header))
        rc = peer_problem(problem, "the file is shorter than a header");
    else if (gp_peer_fetch(session, &header, sizeof(header), 0) != 0)
        rc = peer_problem(problem, "the header could not be read");
    else
        rc = gp_peer_check(session, &header, (uint64_t)st.st_size, problem);
    if (rc)
        gp_peer_close(session);
    return rc;
}

int gp_peer_adopt(struct gp_peer *session, int fd, char problem[GP_PROBLEM_BYTES])
{
    struct statfs fs;
    struct gp_wire_header header;
    int seals = fcntl(fd, F_GET_SEALS);
    const char *wrong = NULL;
    if (seals < 0)
        wrong = "not a memfd";
    else if (fstatfs(fd, &fs) != 0 || fs.f_type != TMPFS_MAGIC)
        wrong = "not ordinary memory"; /* with huge pages, an access to a hole may raise SIGBUS */
    else if ((seals & GP_SEALS_NEEDED) != GP_SEALS_NEEDED)
        wrong = "not sealed against shrinking and growing";
    if (!wrong)
        return gp_peer_load(session, fd, problem);
    /* An unsealed file without a header is a session that is being created, not a damaged one. */
    bool young = seals >= 0 && (pread(fd, &header.magic, sizeof(header.magic), 0) < (ssize_t)sizeof(header.magic) ||
                                header.magic == 0);
    session->fd = fd;
    gp_peer_close(session);
    return young ? -ENOENT : peer_problem(problem, wrong);
}

/* The device of the file system that a file is on; 0 unknown. DONT_SYNC: the server of a FUSE file
 * system is not asked. */
static uint64_t peer_device(int fd)
{
    struct statx about;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &about) != 0)
        return 0;
    return (uint64_t)about.stx_dev_major << 32 | about.stx_dev_minor;
}

/* The device of every memfd: the kernel's internal mount, the same in all namespaces.  0 or -errno: a
 * lack of descriptors must not look like a file of another kind. */
static int peer_memory(uint64_t *device)
{
    int fd = memfd_create("gpuprof-compare", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    *device = peer_device(fd);
    close(fd);
    return 0;
}

/* What /proc/PID/fdinfo/NUMBER says of a descriptor, all of one file. */
struct peer_info {
    unsigned flags;
    int mount;
    uint64_t inode; /* 0: a kernel before 5.14 does not say */
};

static int peer_info(int proc, const char *number, struct peer_info *info)
{
    char name[32], text[1024];
    unsigned long long inode;
    *info = (struct peer_info){.mount = -1};
    snprintf(name, sizeof(name), "fdinfo/%s", number);
    ssize_t n = gp_proc_read(proc, name, text, sizeof(text));
    const char *flags = n > 0 ? strstr(text, "flags:") : NULL, *mount = n > 0 ? strstr(text, "mnt_id:") : NULL;
    if (n < 0 || !flags || sscanf(flags, "flags: %o", &info->flags) != 1)
        return n < 0 ? (int)n : -EIO;
    if (mount)
        sscanf(mount, "mnt_id: %d", &info->mount);
    const char *ino = strstr(text, "ino:");
    if (ino && sscanf(ino, "ino: %llu", &inode) == 1)
        info->inode = inode;
    return 0;
}

/* Opens the held memfd for reading and writing. Whoever has it read-only must not write to it through us, so
 * the process must have this very file open for both. Kernels before 5.14 do not say which file the
 * flags are of; then it is opened with the rights of the process. */
static int peer_reopen(int held, int proc, const char *number)
{
    struct statx about;
    struct peer_info info;
    struct gp_asuser as;
    char self[32];
    int rc = peer_info(proc, number, &info);
    if (rc)
        return rc;
    if ((info.flags & O_ACCMODE) != O_RDWR || info.flags & O_PATH)
        return -ENOENT;
    if (statx(held, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS | STATX_MNT_ID, &about) != 0)
        return -errno;
    bool known = info.inode && about.stx_mask & STATX_MNT_ID;
    if (known && (info.inode != about.stx_ino || (uint64_t)info.mount != about.stx_mnt_id))
        return -ENOENT;
    if (!known && (rc = gp_asuser_begin(&as, proc)) != 0)
        return rc;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", held);
    int fd = open(self, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    rc = fd < 0 ? -errno : fd;
    if (!known)
        gp_asuser_end(&as);
    return rc;
}

/* A process may give any name to a file that it serves itself (FUSE), and opening such a file would
 * wait for the process's answer indefinitely. So the file is held without opening it (O_PATH) until
 * it is known to be a memfd. pidfd_getfd is not used: to close what it returns may wait too. */
int gp_peer_memory(int proc, const char *number)
{
    char name[32];
    snprintf(name, sizeof(name), "fd/%s", number);
    int held = openat(proc, name, O_PATH | O_CLOEXEC);
    if (held < 0)
        return -errno;
    uint64_t device = peer_device(held), memory = 0;
    int fd = device ? peer_memory(&memory) : -ENOENT;
    if (fd == 0 && device != memory)
        fd = -ENOENT;
    if (fd == 0)
        fd = peer_reopen(held, proc, number);
    close(held);
    return fd;
}

void gp_peer_close(struct gp_peer *session)
{
    if (session->fd >= 0)
        close(session->fd);
    session->fd = -1;
}
