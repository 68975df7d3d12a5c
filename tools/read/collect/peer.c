/* SPDX-License-Identifier: MIT
 *
 * peer.c: finds the session of a process, opens it and checks its layout; see peer.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_GET_SEALS */
#endif
#include <base/compiler.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <read/collect/peer.h>
#include <read/common/foreign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* ==== the search ================================================================================================== */
/* Finds a session among the descriptors of a process.
 *
 * A table may have a million descriptors, and many processes can share one that costs its owner
 * once. So a look at the whole machine spends a bounded time on the tables of each user, and of all.
 * What it always looks at are the numbers that the library takes (src/session/extents.c), so a
 * session that was made as usual is found whatever others do. Where a search ended is remembered,
 * and the next look goes on there. */

/* A search of one process may look at this many; it takes a tenth of a second. */
#define FIND_MOST 65536u
/* Descriptors of the right name that are not the process's own session: viewers and forked children
 * hold those of other processes. */
#define FIND_CANDIDATES 64u
/* The library's descriptor is the first free one from here on. */
#define FIND_NEAR  800u
#define FIND_NEARS 16u
#define FIND_CLOCK 64u /* descriptors between two looks at the clock */

#define FIND_USER_NS   250000000ull   /* of processor time, for the tables of one user in one look */
#define FIND_ALL_NS    1000000000ull  /* for all of them */
#define FIND_AGAIN_NS  60000000000ull /* how long "no session" is believed of far descriptors */
#define FIND_REMEMBERS 4096u
#define FIND_WAYS      8u /* entries that a process may have */

/* ---- what was found before --------------------------------------------------------------------------------------- */

struct find_known {
    pid_t pid;
    uint64_t start_time, at_ns;
    uint32_t next; /* where the search goes on: it was interrupted, or found the session there; 0: complete */
};

static struct find_known find_table[FIND_REMEMBERS];
static pthread_mutex_t find_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t find_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* Its entry, or the one to replace: the oldest of some, because two processes that take each other's entry at every look
 * are searched from the beginning each time, and perhaps never to the end. */
static struct find_known *find_slot(const struct gp_proc *proc)
{
    uint32_t first = ((uint32_t)proc->pid * 2654435769u) >> 20;
    struct find_known *oldest = &find_table[first];
    for (uint32_t i = 0; i < FIND_WAYS; i++) {
        struct find_known *slot = &find_table[(first + i) % FIND_REMEMBERS];
        if (slot->pid == proc->pid && slot->start_time == proc->start_time)
            return slot;
        if (slot->at_ns < oldest->at_ns)
            oldest = slot;
    }
    return oldest;
}
_Static_assert(FIND_REMEMBERS == 1u << 12, "the hash has 12 bits");

static struct find_known find_recall(const struct gp_proc *proc)
{
    pthread_mutex_lock(&find_lock);
    struct find_known known = *find_slot(proc);
    pthread_mutex_unlock(&find_lock);
    bool same = known.pid == proc->pid && known.start_time == proc->start_time;
    return same ? known : (struct find_known){0};
}

static void find_remember(const struct gp_proc *proc, uint32_t next)
{
    pthread_mutex_lock(&find_lock);
    *find_slot(proc) = (struct find_known){proc->pid, proc->start_time, find_clock(CLOCK_MONOTONIC), next};
    pthread_mutex_unlock(&find_lock);
}

/* ---- the time that is left ---------------------------------------------------------------------------------------- */

static uint64_t *find_spent(struct gp_peer_look *look, uid_t uid)
{
    unsigned at = 0;
    while (at < look->user_count && look->users[at].uid != uid)
        at++;
    if (at == GP_PEER_LOOK_USERS)
        return &look->users[uid % GP_PEER_LOOK_USERS].spent_ns;
    if (at == look->user_count)
        look->users[look->user_count++].uid = uid;
    return &look->users[at].spent_ns;
}

/* ---- one process -------------------------------------------------------------------------------------------------- */

struct find {
    const struct gp_proc *proc;
    struct gp_peer *session;
    char *problem;
    DIR *dir;
    unsigned candidates;
    int found;   /* 0: the session is open */
    uint32_t at; /* its number */
};

static bool find_named(int fds, const char *name)
{
    static const char want[] = "/memfd:" GP_WIRE_SESSION_NAME " (deleted)";
    char link[sizeof(want) + 1];
    ssize_t n = readlinkat(fds, name, link, sizeof(link));
    return n == (ssize_t)sizeof(want) - 1 && memcmp(link, want, sizeof(want) - 1) == 0;
}

/* Tries one descriptor. 0: it is the process's own session; otherwise as gp_peer_open. */
static int find_try(struct find *find, const char *name)
{
    int fd = gp_peer_memory(find->proc->dir, name);
    if (fd < 0)
        return fd;
    int rc = gp_peer_adopt(find->session, fd, find->problem);
    if (rc)
        return rc;
    if (find->session->pid == (uint32_t)find->proc->ns_pid)
        return 0;
    /* The session of another process, held by a viewer or a forked child. */
    gp_peer_close(find->session);
    return -ENOENT;
}

/* Looks at one descriptor. True: the search has ended. */
static bool find_look(struct find *find, uint32_t number)
{
    char name[16];
    snprintf(name, sizeof(name), "%u", number);
    if (!find_named(dirfd(find->dir), name))
        return false;
    int rc = find_try(find, name);
    if (rc == 0 || (rc != -ENOENT && find->found != -EPROTO))
        find->found = rc;
    find->at = number;
    return rc == 0 || ++find->candidates == FIND_CANDIDATES;
}

/* Without a list of the directory, for which the kernel makes an entry of each descriptor. */
static bool find_near(struct find *find)
{
    for (uint32_t number = FIND_NEAR; number < FIND_NEAR + FIND_NEARS; number++)
        if (find_look(find, number))
            return true;
    return false;
}

/* Looks at the descriptors from the number `from` on, for at most left_ns. Returns the number at which to go
 * on; 0: there are no more, or the search has ended. */
static uint32_t find_range(struct find *find, uint32_t from, uint64_t left_ns)
{
    uint64_t began = find_clock(CLOCK_THREAD_CPUTIME_ID);
    struct dirent *entry;
    uint32_t number = from;
    seekdir(find->dir, from ? (long)from + 2 : 0); /* the kernel counts "." and ".." */
    for (uint32_t n = 0; n < FIND_MOST; n++) {
        if (n % FIND_CLOCK == 0 && find_clock(CLOCK_THREAD_CPUTIME_ID) - began >= left_ns)
            break;
        if (!(entry = readdir(find->dir)))
            return 0;
        if (entry->d_name[0] == '.')
            continue;
        number = (uint32_t)strtoul(entry->d_name, NULL, 10);
        if (find_look(find, number++))
            return 0;
    }
    return number + !number;
}

static void find_all(struct find *find, struct gp_peer_look *look)
{
    uint64_t *spent = look ? find_spent(look, find->proc->uid) : NULL, began = find_clock(CLOCK_THREAD_CPUTIME_ID);
    struct find_known known = look ? find_recall(find->proc) : (struct find_known){0};
    if (find_near(find))
        return;
    if (!look) {
        find_range(find, 0, UINT64_MAX);
        return;
    }
    if (known.pid && !known.next && find_clock(CLOCK_MONOTONIC) - known.at_ns < FIND_AGAIN_NS)
        return;
    uint64_t user = *spent < FIND_USER_NS ? FIND_USER_NS - *spent : 0;
    uint64_t all = look->spent_ns < FIND_ALL_NS ? FIND_ALL_NS - look->spent_ns : 0;
    uint32_t next = find_range(find, known.next, user < all ? user : all);
    uint64_t took = find_clock(CLOCK_THREAD_CPUTIME_ID) - began;
    *spent += took;
    look->spent_ns += took;
    look->unsearched += next != 0;
    find_remember(find->proc, find->found ? next : find->at);
}

int gp_peer_find(struct gp_peer *session, const struct gp_proc *proc, struct gp_peer_look *look,
                 char problem[GP_PROBLEM_BYTES])
{
    struct find find = {.proc = proc, .session = session, .problem = problem, .found = -ENOENT};
    session->fd = -1;
    problem[0] = '\0';
    int fds = openat(proc->dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fds < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    find.dir = fdopendir(fds);
    if (!find.dir) {
        close(fds);
        return -ENOMEM;
    }
    find_all(&find, look);
    closedir(find.dir);
    if (find.found == 0 && !gp_proc_alive(proc)) {
        gp_peer_close(session);
        return -ESRCH;
    }
    return find.found;
}

int gp_peer_open(struct gp_peer *session, const struct gp_proc *proc, char problem[GP_PROBLEM_BYTES])
{
    return gp_peer_find(session, proc, NULL, problem);
}

int gp_peer_open_pid(struct gp_peer *session, pid_t pid, char problem[GP_PROBLEM_BYTES])
{
    struct gp_proc proc;
    session->fd = -1;
    problem[0] = '\0';
    int rc = gp_proc_open(&proc, pid);
    if (rc)
        return rc;
    rc = gp_peer_open(session, &proc, problem);
    gp_proc_close(&proc);
    return rc == -ENOENT ? -ESRCH : rc == -EPERM ? -EACCES : rc;
}

/* ==== the session ================================================================================================= */
/* Opens a session and checks its layout. peer.c finds it among the descriptors of a process, and
 * peerread.c copies the numbers. */

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
