/* SPDX-License-Identifier: MIT
 *
 * peerfind.c: finds a session among the descriptors of a process; see peer.h.
 *
 * A table may have a million descriptors, and many processes can share one that costs its owner
 * once. So a look at the whole machine spends a bounded time on the tables of each user, and of all.
 * What it always looks at are the numbers that the library takes (src/session/extents.c), so a
 * session that was made as usual is found whatever others do. Where a search ended is remembered,
 * and the next look goes on there.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* statx */
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <read/collect/peer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

bool gp_peer_stays(const struct gp_peer *session, const struct gp_proc *proc)
{
    struct statx own, there;
    char path[16];
    snprintf(path, sizeof(path), "fd/%u", FIND_NEAR);
    /* DONT_SYNC: a FUSE server is not asked.  An exec closes the library's descriptor, and while a memfd is held no other has
     * the number of its inode. */
    return statx(session->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &own) == 0 &&
           statx(proc->dir, path, AT_STATX_DONT_SYNC, STATX_INO, &there) == 0 && own.stx_ino == there.stx_ino &&
           own.stx_dev_major == there.stx_dev_major && own.stx_dev_minor == there.stx_dev_minor;
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
