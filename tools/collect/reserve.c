/* SPDX-License-Identifier: MIT
 *
 * reserve.c: see reserve.h.  The file: byte 0 is the lock of decisions, record i is at
 * (i + 1) * GP_RESERVE_BYTES, and its first byte is locked while its waiting command lives.  The
 * locks belong to the open file, not to the process, and end with it.
 */
#define _GNU_SOURCE /* F_OFD_SETLK */
#include <collect/reserve.h>

#include <collect/procfs.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define GP_RESERVE_MAGIC 0x3174696177706721ull /* changes with the layout of a record */
#define GP_RESERVE_SLOTS 1024
#define GP_RESERVE_BYTES 256
#define GP_RESERVE_MOST  (1ll << 60)

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

/* /run/lock is the same for every session of a user, unlike $XDG_RUNTIME_DIR: a job of cron must see
 * the reservations of a shell. */
static int reserve_folder(struct gp_reserve *reserve)
{
    struct stat status;
    const char *base = access("/run/lock", W_OK | X_OK) == 0 ? "/run/lock" : "/tmp";
    snprintf(reserve->path, sizeof(reserve->path), "%s/gpuprof-%u", base, (unsigned)geteuid());
    if (mkdir(reserve->path, 0700) != 0 && errno != EEXIST)
        return -errno;
    if (lstat(reserve->path, &status) != 0)
        return -errno;
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 022))
        return -EPERM;
    return 0;
}

int gp_reserve_open(struct gp_reserve *reserve, const char *folder)
{
    int rc = 0;
    *reserve = (struct gp_reserve){.fd = -1, .slot = -1};
    if (folder)
        snprintf(reserve->path, sizeof(reserve->path) - 8, "%s", folder);
    else
        rc = reserve_folder(reserve);
    if (rc)
        return rc;
    strncat(reserve->path, "/wait", sizeof(reserve->path) - strlen(reserve->path) - 1);
    /* In a folder that several users share, each of them may write the file. */
    mode_t mask = folder ? umask(0) : 0;
    reserve->fd = open(reserve->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, folder ? 0666 : 0600);
    rc = reserve->fd < 0 ? -errno : 0;
    /* With fs.protected_regular the kernel refuses O_CREAT on a file of another user. */
    if (rc == -EACCES && (reserve->fd = open(reserve->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) >= 0)
        rc = 0;
    if (folder)
        umask(mask);
    struct stat status;
    if (!rc && (fstat(reserve->fd, &status) != 0 || !S_ISREG(status.st_mode)))
        rc = -EPERM;
    if (rc)
        gp_reserve_close(reserve);
    return rc;
}

void gp_reserve_close(struct gp_reserve *reserve)
{
    if (reserve->fd >= 0)
        close(reserve->fd); /* ends all locks */
    reserve->fd = -1;
    reserve->slot = -1;
    reserve->held = false;
}

static bool reserve_flock(struct gp_reserve *reserve, off_t at, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    return fcntl(reserve->fd, F_OFD_SETLK, &lock) == 0;
}

bool gp_reserve_lock(struct gp_reserve *reserve)
{
    return reserve->held = reserve_flock(reserve, 0, F_WRLCK);
}

void gp_reserve_unlock(struct gp_reserve *reserve)
{
    reserve_flock(reserve, 0, F_UNLCK);
    reserve->held = false;
}

/* ---- records ---------------------------------------------------------------------------------------------------- */

/* False: no record is there. */
static bool reserve_read(const struct gp_reserve *reserve, int slot, struct gp_reserve_record *record)
{
    if (pread(reserve->fd, record, sizeof(*record), reserve_at(slot)) != (ssize_t)sizeof(*record) ||
        record->magic != GP_RESERVE_MAGIC)
        return false;
    record->uuid[sizeof(record->uuid) - 1] = '\0';
    record->need = record->need < 0 ? 0 : record->need > GP_RESERVE_MOST ? GP_RESERVE_MOST : record->need;
    record->had = record->had < 0 ? 0 : record->had;
    return true;
}

static int reserve_write(const struct gp_reserve *reserve, int slot, const struct gp_reserve_record *record)
{
    ssize_t n = pwrite(reserve->fd, record, sizeof(*record), reserve_at(slot));
    return n == (ssize_t)sizeof(*record) ? 0 : n < 0 ? -errno : -EIO;
}

static bool reserve_locked(const struct gp_reserve *reserve, int slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = reserve_at(slot), .l_len = 1};
    return fcntl(reserve->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static bool reserve_runs(const struct gp_reserve_record *record)
{
    struct gp_proc proc;
    if (record->pid <= 0 || gp_proc_open(&proc, record->pid) != 0)
        return false;
    bool same = proc.start_time == record->start_time && !proc.zombie;
    gp_proc_close(&proc);
    return same;
}

static bool reserve_counts(const struct gp_reserve *reserve, int slot, const struct gp_reserve_record *record)
{
    uint64_t now = reserve_now();
    if (record->had >= record->need || now >= record->until_ns || now < record->begun_ns)
        return false;
    return reserve_locked(reserve, slot) || reserve_runs(record);
}

static int reserve_slots(const struct gp_reserve *reserve)
{
    struct stat status;
    if (fstat(reserve->fd, &status) != 0 || status.st_size <= GP_RESERVE_BYTES)
        return 0;
    off_t slots = status.st_size / GP_RESERVE_BYTES - 1;
    return slots > GP_RESERVE_SLOTS ? GP_RESERVE_SLOTS : (int)slots;
}

int64_t gp_reserve_outstanding(struct gp_reserve *reserve, const char *uuid)
{
    struct gp_reserve_record record;
    int64_t sum = 0;
    for (int i = 0, slots = reserve_slots(reserve); i < slots; i++) {
        if (i == reserve->slot || !reserve_read(reserve, i, &record) || strcmp(record.uuid, uuid) != 0 ||
            !reserve_counts(reserve, i, &record))
            continue;
        if (__builtin_add_overflow(sum, record.need - record.had, &sum))
            sum = INT64_MAX;
    }
    return sum;
}

int gp_reserve_take(struct gp_reserve *reserve, const char *uuid, int64_t bytes, uint64_t hold_ns)
{
    struct gp_reserve_record record;
    int slot = 0, slots = reserve_slots(reserve);
    /* A record whose time has passed stays locked until its command notices. */
    while (slot < slots && (reserve_locked(reserve, slot) ||
                            (reserve_read(reserve, slot, &record) && reserve_counts(reserve, slot, &record))))
        slot++;
    if (slot == GP_RESERVE_SLOTS)
        return -ENOSPC;
    uint64_t now = reserve_now();
    record = (struct gp_reserve_record){.magic = GP_RESERVE_MAGIC, .need = bytes, .begun_ns = now};
    record.until_ns = hold_ns < UINT64_MAX - now ? now + hold_ns : UINT64_MAX;
    snprintf(record.uuid, sizeof(record.uuid), "%s", uuid);
    /* The lock first: a record without one ends at once. */
    if (!reserve_flock(reserve, reserve_at(slot), F_WRLCK))
        return -errno;
    int rc = reserve_write(reserve, slot, &record);
    if (rc)
        reserve_flock(reserve, reserve_at(slot), F_UNLCK);
    else
        reserve->slot = slot;
    return rc;
}

bool gp_reserve_update(struct gp_reserve *reserve, pid_t pid, int64_t bytes)
{
    struct gp_reserve_record record;
    struct gp_proc proc;
    if (reserve->slot < 0 || !reserve_read(reserve, reserve->slot, &record))
        return false;
    if (record.pid == 0 && gp_proc_open(&proc, pid) == 0) {
        record.pid = (int32_t)pid;
        record.start_time = proc.start_time;
        gp_proc_close(&proc);
    }
    record.had = bytes > record.had ? bytes : record.had;
    reserve_write(reserve, reserve->slot, &record);
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
    reserve_write(reserve, reserve->slot, &none);
    reserve_flock(reserve, reserve_at(reserve->slot), F_UNLCK);
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
