/* SPDX-License-Identifier: MIT
 *
 * reserve.c: see collect.h. A file: byte 0 is the lock of decisions, record i is at
 * (i + 1) * GP_RESERVE_BYTES, and its first byte is locked while its waiting command lives. The
 * locks belong to the open file, not to the process, and end with it. In a folder of several users
 * `wait` has only the lock, and `wait-UID` the records of one user.
 */
#define _GNU_SOURCE /* F_OFD_SETLK */
#include <read/collect/collect.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <read/collect/procfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define GP_RESERVE_MAGIC 0x3174696177706721ull /* changes with the layout of a record */
#define GP_RESERVE_SLOTS 1024
#define GP_RESERVE_BYTES 256
#define GP_RESERVE_MOST  (1ll << 60)
#define GP_RESERVE_NEW   1000000000ull           /* commands look at their files every 250 ms */
#define GP_RESERVE_DAY   (86400 * 1000000000ull) /* the longest that a record of another user counts */
#define GP_RESERVE_NAMES 65536u                  /* of a shared folder, that are looked at */
#define GP_RESERVE_FILES 1024u                   /* of other users */

struct gp_reserve_record {
    uint64_t magic;
    int64_t need, had;   /* reserved, and the most that the program has had of it */
    uint64_t until_ns;   /* CLOCK_BOOTTIME */
    uint64_t start_time; /* of the program, with its pid; a pid alone may be used again */
    uint64_t begun_ns;   /* a record from before a restart of the machine has a later time than now */
    int32_t pid;         /* 0: the program has not started */
    char uuid[48];
    char rest_[GP_RESERVE_BYTES - 6 * 8 - 4 - 48];
};
_Static_assert(sizeof(struct gp_reserve_record) == GP_RESERVE_BYTES, "one record");

struct gp_reserve_head {
    uint64_t magic, created_ns; /* CLOCK_BOOTTIME */
};

static uint64_t reserve_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static off_t reserve_at(int slot)
{
    return (off_t)(slot + 1) * GP_RESERVE_BYTES;
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

/* Whether the folder is the caller's, and no other user may write it; makes it. 0 or -errno. */
static int reserve_folder_try(const char *path)
{
    struct stat status;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return -errno;
    if (lstat(path, &status) != 0)
        return -errno;
    return S_ISDIR(status.st_mode) && status.st_uid == geteuid() && !(status.st_mode & 022) ? 0 : -EPERM;
}

/* /run/lock is the same for every session of a user, unlike /run/user: a job of cron must see the
 * reservations of a shell. But another user may make the folder there first. */
static int reserve_folder(char *path, size_t bytes)
{
    unsigned user = geteuid();
    snprintf(path, bytes, "/run/lock/gpuprof-%u", user);
    if (access("/run/lock", W_OK | X_OK) == 0 && reserve_folder_try(path) == 0)
        return 0;
    snprintf(path, bytes, "/run/user/%u/gpuprof", user);
    if (reserve_folder_try(path) == 0)
        return 0;
    snprintf(path, bytes, "/tmp/gpuprof-%u", user);
    return reserve_folder_try(path);
}

static int reserve_paths(struct gp_reserve *reserve)
{
    int rc = reserve->is_shared ? 0 : reserve_folder(reserve->folder, sizeof(reserve->folder));
    snprintf(reserve->path, sizeof(reserve->path), rc ? "%s" : "%s/wait", reserve->folder);
    return rc;
}

/* mode: 0666 in a folder that several users share, where each of them may lock the file. */
static int reserve_file(const char *path, mode_t mode)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    struct stat status;
    mode_t mask = umask(0);
    int fd = open(path, flags | O_CREAT, mode), rc = fd < 0 ? -errno : 0;
    umask(mask);
    /* With fs.protected_regular the kernel refuses O_CREAT on a file of another user. */
    if (rc == -EACCES && mode == 0666 && (fd = open(path, flags)) >= 0)
        rc = 0;
    if (!rc && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)))
        rc = -EPERM;
    if (!rc && mode == 0644 && (status.st_uid != geteuid() || (status.st_mode & 022)))
        rc = -EPERM;
    if (!rc && status.st_size == 0) {
        const struct gp_reserve_head head = {GP_RESERVE_MAGIC, reserve_now()};
        if (pwrite(fd, &head, sizeof(head), 0) < 0)
            rc = -errno;
    }
    if (rc && fd >= 0)
        close(fd);
    return rc ? rc : fd;
}

/* The file of a user's records in a shared folder. */
static void reserve_user_path(const struct gp_reserve *reserve, char path[GP_RESERVE_FILE])
{
    snprintf(path, GP_RESERVE_FILE, "%s/wait-%u", reserve->folder, (unsigned)geteuid());
}

int gp_reserve_open(struct gp_reserve *reserve, const char *folder)
{
    char path[GP_RESERVE_FILE];
    *reserve = (struct gp_reserve){.fd = -1, .lock = -1, .slot = -1, .is_shared = folder != NULL};
    if (folder && snprintf(reserve->folder, sizeof(reserve->folder), "%s", folder) >= (int)sizeof(reserve->folder))
        return -ENAMETOOLONG;
    int rc = reserve_paths(reserve);
    if (rc)
        return rc;
    reserve->opened_ns = reserve_now();
    rc = reserve->lock = reserve_file(reserve->path, folder ? 0666 : 0600);
    if (rc < 0)
        return rc;
    reserve->fd = reserve->lock;
    if (folder) {
        reserve_user_path(reserve, path);
        reserve->fd = reserve_file(path, 0644);
    }
    if (reserve->fd >= 0)
        return 0;
    rc = reserve->fd;
    snprintf(reserve->path, sizeof(reserve->path), "%s", path);
    gp_reserve_close(reserve);
    return rc;
}

static void reserve_close_files(struct gp_reserve *reserve)
{
    if (reserve->lock >= 0)
        close(reserve->lock); /* ends all locks */
    if (reserve->fd >= 0 && reserve->fd != reserve->lock)
        close(reserve->fd);
    reserve->lock = reserve->fd = -1;
}

void gp_reserve_close(struct gp_reserve *reserve)
{
    reserve_close_files(reserve);
    if (reserve->held)
        sigprocmask(SIG_SETMASK, &reserve->before, NULL);
    reserve->slot = -1;
    reserve->held = false;
}

static bool reserve_flock(int fd, off_t at, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool gp_reserve_is_new(const struct gp_reserve *reserve)
{
    struct gp_reserve_head head;
    uint64_t now = reserve_now();
    if (now - reserve->opened_ns >= GP_RESERVE_NEW)
        return false;
    return pread(reserve->lock, &head, sizeof(head), 0) != (ssize_t)sizeof(head) || head.magic != GP_RESERVE_MAGIC ||
           now - head.created_ns < GP_RESERVE_NEW;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

/* A file of records: one's own, or that of another user. */
struct reserve_list {
    int fd, own; /* own: the slot that is left out; -1 none */
    bool is_foreign;
    uid_t user;
};

/* False: no record is there. */
static bool reserve_read(int fd, int slot, struct gp_reserve_record *record)
{
    if (pread(fd, record, sizeof(*record), reserve_at(slot)) != (ssize_t)sizeof(*record) ||
        record->magic != GP_RESERVE_MAGIC)
        return false;
    record->uuid[sizeof(record->uuid) - 1] = '\0';
    record->need = record->need < 0 ? 0 : record->need > GP_RESERVE_MOST ? GP_RESERVE_MOST : record->need;
    record->had = record->had < 0 ? 0 : record->had;
    return true;
}

static int reserve_write(int fd, int slot, const struct gp_reserve_record *record)
{
    ssize_t n = pwrite(fd, record, sizeof(*record), reserve_at(slot));
    return n == (ssize_t)sizeof(*record) ? 0 : n < 0 ? -errno : -EIO;
}

/* Only who may write the file can lock it for writing. */
static bool reserve_locked(int fd, int slot, bool is_foreign)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = reserve_at(slot), .l_len = 1};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && (is_foreign ? lock.l_type == F_WRLCK : lock.l_type != F_UNLCK);
}

static bool reserve_runs(const struct reserve_list *list, const struct gp_reserve_record *record)
{
    struct gp_proc proc;
    if (record->pid <= 0 || gp_proc_open(&proc, record->pid) != 0)
        return false;
    bool same = proc.start_time == record->start_time && !proc.zombie && (!list->is_foreign || proc.uid == list->user);
    gp_proc_close(&proc);
    return same;
}

static bool reserve_counts(const struct reserve_list *list, int slot, const struct gp_reserve_record *record)
{
    uint64_t now = reserve_now();
    if (record->had >= record->need || now >= record->until_ns || now < record->begun_ns ||
        (list->is_foreign && now - record->begun_ns >= GP_RESERVE_DAY))
        return false;
    return reserve_locked(list->fd, slot, list->is_foreign) || reserve_runs(list, record);
}

static int reserve_slots(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || status.st_size <= GP_RESERVE_BYTES)
        return 0;
    off_t slots = status.st_size / GP_RESERVE_BYTES - 1;
    return slots > GP_RESERVE_SLOTS ? GP_RESERVE_SLOTS : (int)slots;
}

static void reserve_sum(const struct reserve_list *list, const char *uuid, int64_t *sum)
{
    struct gp_reserve_record record;
    for (int i = 0, slots = reserve_slots(list->fd); i < slots; i++) {
        if (i == list->own || !reserve_read(list->fd, i, &record) || strcmp(record.uuid, uuid) != 0 ||
            !reserve_counts(list, i, &record))
            continue;
        if (__builtin_add_overflow(*sum, record.need - record.had, sum))
            *sum = INT64_MAX;
    }
}

/* The file that a name in the folder promises: another user's records, which belong to that user. */
static int reserve_foreign(int folder, const char *name, uid_t *user)
{
    struct stat status;
    char *end;
    if (strncmp(name, "wait-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -ENOENT;
    unsigned long number = strtoul(name + 5, &end, 10);
    *user = (uid_t)number;
    if (*end || number != *user || *user == geteuid())
        return -ENOENT;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == *user)
        return fd;
    if (fd >= 0)
        close(fd);
    return -ENOENT;
}

int64_t gp_reserve_outstanding(struct gp_reserve *reserve, const char *uuid)
{
    int64_t sum = 0;
    const struct reserve_list own = {.fd = reserve->fd, .own = reserve->slot};
    reserve_sum(&own, uuid, &sum);
    DIR *folder = reserve->is_shared ? opendir(reserve->folder) : NULL;
    unsigned names = 0, files = 0;
    for (struct dirent *entry;
         folder && names < GP_RESERVE_NAMES && files < GP_RESERVE_FILES && (entry = readdir(folder)); names++) {
        struct reserve_list list = {.own = -1, .is_foreign = true};
        list.fd = reserve_foreign(dirfd(folder), entry->d_name, &list.user);
        if (list.fd < 0)
            continue;
        reserve_sum(&list, uuid, &sum);
        close(list.fd);
        files++;
    }
    if (folder)
        closedir(folder);
    return sum;
}

/* Puts a record of one's own into a free place. The place or -errno. */
static int reserve_put(int fd, const struct gp_reserve_record *record)
{
    const struct reserve_list list = {.fd = fd, .own = -1};
    struct gp_reserve_record there;
    int slot = 0, slots = reserve_slots(fd);
    /* A record whose time has passed stays locked until its command notices. */
    while (slot < slots &&
           (reserve_locked(fd, slot, false) || (reserve_read(fd, slot, &there) && reserve_counts(&list, slot, &there))))
        slot++;
    if (slot == GP_RESERVE_SLOTS)
        return -ENOSPC;
    /* The lock first: a record without one ends at once. */
    if (!reserve_flock(fd, reserve_at(slot), F_WRLCK))
        return -errno;
    int rc = reserve_write(fd, slot, record);
    if (rc)
        reserve_flock(fd, reserve_at(slot), F_UNLCK);
    return rc ? rc : slot;
}

int gp_reserve_take(struct gp_reserve *reserve, const char *uuid, int64_t bytes, uint64_t hold_ns)
{
    uint64_t now = reserve_now();
    struct gp_reserve_record record = {.magic = GP_RESERVE_MAGIC, .need = bytes, .begun_ns = now};
    record.until_ns = hold_ns < UINT64_MAX - now ? now + hold_ns : UINT64_MAX;
    snprintf(record.uuid, sizeof(record.uuid), "%s", uuid);
    int slot = reserve_put(reserve->fd, &record);
    if (slot < 0)
        return slot;
    reserve->slot = slot;
    return 0;
}

/* ---- the lock ---------------------------------------------------------------------------------------------------- */

static bool reserve_is_file(int fd, const char *path)
{
    struct stat held, named;
    return fstat(fd, &held) == 0 && lstat(path, &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

/* Whether other commands would open the same files now. */
static bool reserve_is_current(const struct gp_reserve *reserve)
{
    struct gp_reserve now = *reserve;
    char path[GP_RESERVE_FILE];
    if (reserve_paths(&now) != 0)
        return true; /* they could not open any */
    reserve_user_path(&now, path);
    return reserve_is_file(reserve->lock, now.path) && (!reserve->is_shared || reserve_is_file(reserve->fd, path));
}

/* Goes on with the files that others would open, with their lock. 0; -EAGAIN: it is not free; another -errno:
 * nothing has changed. */
static int reserve_move(struct gp_reserve *reserve)
{
    struct gp_reserve next;
    struct gp_reserve_record record;
    int rc = gp_reserve_open(&next, reserve->is_shared ? reserve->folder : NULL);
    if (rc)
        return rc;
    if (!reserve_flock(next.lock, 0, F_WRLCK))
        rc = -EAGAIN;
    else if (reserve->slot >= 0 && reserve_read(reserve->fd, reserve->slot, &record))
        rc = next.slot = reserve_put(next.fd, &record);
    if (rc < 0) {
        reserve_close_files(&next);
        return rc;
    }
    reserve_close_files(reserve);
    next.before = reserve->before;
    *reserve = next;
    return 0;
}

/* A command that ^Z stops with the lock would stop all others. */
static void reserve_hold_stops(struct gp_reserve *reserve)
{
    sigset_t stops;
    sigemptyset(&stops);
    sigaddset(&stops, SIGTSTP);
    sigaddset(&stops, SIGTTIN);
    sigaddset(&stops, SIGTTOU);
    sigprocmask(SIG_BLOCK, &stops, &reserve->before);
}

bool gp_reserve_lock(struct gp_reserve *reserve)
{
    int rc = -EAGAIN;
    reserve_hold_stops(reserve);
    for (int tries = 0; tries < 3 && reserve_flock(reserve->lock, 0, F_WRLCK); tries++) {
        rc = reserve_is_current(reserve) ? 1 : reserve_move(reserve);
        if (rc)
            break;
    }
    /* With an error the files that are open are as good as any. */
    reserve->held = rc != -EAGAIN;
    if (!reserve->held) {
        reserve_flock(reserve->lock, 0, F_UNLCK);
        sigprocmask(SIG_SETMASK, &reserve->before, NULL);
    }
    return reserve->held;
}

void gp_reserve_unlock(struct gp_reserve *reserve)
{
    reserve_flock(reserve->lock, 0, F_UNLCK);
    reserve->held = false;
    sigprocmask(SIG_SETMASK, &reserve->before, NULL);
}

/* ---- a reservation ----------------------------------------------------------------------------------------------- */

bool gp_reserve_update(struct gp_reserve *reserve, pid_t pid, int64_t bytes)
{
    struct gp_reserve_record record;
    struct gp_proc proc;
    if (reserve->slot < 0 || !reserve_read(reserve->fd, reserve->slot, &record))
        return false;
    if (record.pid == 0 && gp_proc_open(&proc, pid) == 0) {
        record.pid = (int32_t)pid;
        record.start_time = proc.start_time;
        gp_proc_close(&proc);
    }
    record.had = bytes > record.had ? bytes : record.had;
    reserve_write(reserve->fd, reserve->slot, &record);
    if (record.had < record.need && reserve_now() < record.until_ns)
        return true;
    gp_reserve_end(reserve);
    return false;
}

void gp_reserve_end(struct gp_reserve *reserve)
{
    const struct gp_reserve_record none = {0};
    if (reserve->slot < 0)
        return;
    reserve_write(reserve->fd, reserve->slot, &none);
    reserve_flock(reserve->fd, reserve_at(reserve->slot), F_UNLCK);
    reserve->slot = -1;
}

bool gp_reserve_descends(pid_t pid, pid_t ancestor)
{
    struct gp_proc proc;
    for (int i = 0; i < 64 && pid > 1; i++) { /* deeper trees are not counted */
        if (pid == ancestor)
            return true;
        if (gp_proc_open(&proc, pid) != 0)
            return false;
        pid = proc.ppid;
        gp_proc_close(&proc);
    }
    return false;
}
