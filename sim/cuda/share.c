/* SPDX-License-Identifier: MIT
 * Devices that several processes share (shared in GPUPROF_SIM): how much each process has of each
 * device stands in a file in /dev/shm, by the devices' physical numbers.  Called by device.c.
 *
 * A process owns a slot of the file as long as it holds the record lock on the slot's byte.  The
 * kernel drops that lock when the process ends, however it ends, and a forked child does not inherit it:
 * a slot whose byte is not locked is free, whatever stands in it.  Byte 0 is the lock under which slots are
 * claimed and memory is taken, so that two processes do not both take the last bytes. */
#define _GNU_SOURCE
#include "machine.h"
#include "sim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIM_SHARE_MAGIC     UINT64_C(0x316572616873) /* "share1" */
#define SIM_SHARE_PROCESSES 512

/* `used` is written by the slot's owner and read by all. */
struct sim_share_slot {
    int64_t pid; /* 0: never used */
    uint64_t used[SIM_MAX_DEVICES];
};
struct sim_share {
    uint64_t magic;
    struct sim_share_slot slots[SIM_SHARE_PROCESSES];
};

SIM_EXPORT void sim_share_sweep(void);

static struct sim_share *sim_shared; /* NULL: private devices */
static struct sim_share_slot *sim_share_own;
static int sim_share_fd = -1;
static char sim_share_path[128];
static pid_t sim_share_pid; /* whose slot it is: not a forked child's */

static int sim_share_lock(off_t byte, short type, int command)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int error;

    do
        error = fcntl(sim_share_fd, command, &lock);
    while (error && errno == EINTR);
    if (error)
        return -errno;
    return command == F_GETLK && lock.l_type != F_UNLCK;
}

static void sim_share_begin(void)
{
    sim_share_lock(0, F_WRLCK, F_SETLKW);
}

static void sim_share_end(void)
{
    sim_share_lock(0, F_UNLCK, F_SETLK);
}

static bool sim_share_alive(size_t slot)
{
    return (&sim_shared->slots[slot] == sim_share_own && sim_share_pid == getpid()) ||
           sim_share_lock(1 + (off_t)slot, F_WRLCK, F_GETLK) == 1;
}

/* Slots of processes that have ended are emptied on the way.  Between begin and end. */
static uint64_t sim_share_others(int physical)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < SIM_SHARE_PROCESSES; i++) {
        struct sim_share_slot *slot = &sim_shared->slots[i];
        if (slot == sim_share_own || !slot->pid)
            continue;
        if (sim_share_alive(i))
            sum += __atomic_load_n(&slot->used[physical], __ATOMIC_RELAXED);
        else
            memset(slot, 0, sizeof *slot);
    }
    return sum;
}

static int sim_share_claim(void)
{
    for (size_t i = 0; i < SIM_SHARE_PROCESSES; i++) {
        if (sim_share_alive(i) || sim_share_lock(1 + (off_t)i, F_WRLCK, F_SETLK) != 0)
            continue;
        sim_share_own = &sim_shared->slots[i];
        memset(sim_share_own, 0, sizeof *sim_share_own);
        sim_share_own->pid = sim_share_pid = getpid();
        return 0;
    }
    return -EUSERS;
}

static void sim_share_close(void)
{
    if (sim_shared)
        munmap(sim_shared, sizeof *sim_shared);
    if (sim_share_fd >= 0)
        close(sim_share_fd);
    sim_shared = NULL;
    sim_share_own = NULL;
    sim_share_fd = -1;
}

/* 0; -EAGAIN: the last of the other processes has removed the file meanwhile; another -errno. */
static int sim_share_try(void)
{
    struct stat status;
    sim_share_fd = open(sim_share_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (sim_share_fd < 0)
        return -errno;
    if (fstat(sim_share_fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid())
        return -EPERM;
    if (status.st_size < (off_t)sizeof *sim_shared && !sim_space_allows(sizeof *sim_shared))
        return -EFBIG;
    if (status.st_size < (off_t)sizeof *sim_shared && ftruncate(sim_share_fd, sizeof *sim_shared) != 0)
        return -errno;
    void *map = mmap(NULL, sizeof *sim_shared, PROT_READ | PROT_WRITE, MAP_SHARED, sim_share_fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    sim_shared = map;
    int error = sim_share_lock(0, F_WRLCK, F_SETLKW);
    if (error)
        return error;
    if (!sim_shared->magic)
        sim_shared->magic = SIM_SHARE_MAGIC;
    if (fstat(sim_share_fd, &status) != 0 || status.st_nlink == 0)
        error = -EAGAIN;
    else
        error = sim_shared->magic == SIM_SHARE_MAGIC ? sim_share_claim() : -EPROTO;
    sim_share_end();
    return error;
}

/* The file of a group whose processes have all ended without removing it.  A process that has opened it and owns no slot
 * yet waits for byte 0, or sees then that the file has lost its name. */
static void sim_share_remove_dead(int folder, const char *name)
{
    struct flock begin = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    struct flock slots = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1};
    struct stat status;
    int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
        fcntl(fd, F_SETLK, &begin) == 0 && fcntl(fd, F_GETLK, &slots) == 0 && slots.l_type == F_UNLCK)
        unlinkat(folder, name, 0);
    close(fd);
}

/* Processes that are killed, or end by _exit, leave the file of their group, if they were its last.  The
 * next process that shares devices removes it, and so does the command that started them.  A process that
 * owns a slot would not see its own locks, and lose them. */
void sim_share_sweep(void)
{
    char own[64];
    int length = snprintf(own, sizeof own, "gpuprof-sim-%u-", (unsigned)geteuid());
    DIR *folder = sim_shared ? NULL : opendir("/dev/shm");
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (!strncmp(entry->d_name, own, (size_t)length))
            sim_share_remove_dead(dirfd(folder), entry->d_name);
    if (folder)
        closedir(folder);
}

static void sim_share_name(const char *name)
{
    snprintf(sim_share_path, sizeof sim_share_path, "/dev/shm/gpuprof-sim-%u-%s", (unsigned)geteuid(), name);
}

int sim_share_setup(const char *name)
{
    int error = -EAGAIN;
    sim_share_sweep();
    sim_share_name(name);
    for (int i = 0; i < 100 && error == -EAGAIN; i++) {
        error = sim_share_try();
        if (error)
            sim_share_close();
    }
    if (error)
        fprintf(stderr, "gpuprof: sim: %s: %s; devices cannot be shared through it: remove it, or use shared=NAME\n",
                sim_share_path, strerror(-error));
    return error;
}

bool sim_share_take(int physical, uint64_t own, uint64_t bytes, uint64_t total)
{
    if (!sim_shared)
        return true;
    sim_share_begin();
    uint64_t others = sim_share_others(physical);
    bool fits = others <= total && own <= total - others && bytes <= total - others - own;
    if (fits)
        sim_share_used(physical, own + bytes);
    sim_share_end();
    return fits;
}

void sim_share_used(int physical, uint64_t own)
{
    if (sim_shared)
        __atomic_store_n(&sim_share_own->used[physical], own, __ATOMIC_RELAXED);
}

uint64_t sim_share_elsewhere(int physical)
{
    if (!sim_shared)
        return 0;
    sim_share_begin();
    uint64_t others = sim_share_others(physical);
    sim_share_end();
    return others;
}

static int sim_share_list(const struct sim_share *share, int physical, int *pids, unsigned long long *bytes, int most)
{
    int count = 0;
    for (size_t i = 0; i < SIM_SHARE_PROCESSES; i++) {
        const struct sim_share_slot *slot = &share->slots[i];
        uint64_t used = __atomic_load_n(&slot->used[physical], __ATOMIC_RELAXED);
        if (!used || !sim_share_alive(i))
            continue;
        if (count < most) {
            pids[count] = (int)slot->pid;
            bytes[count] = used;
        }
        count++;
    }
    return count;
}

/* A process without devices looks into the file of the others.  It opens it each time: closing it here would drop
 * the locks of a process that owns a slot. */
static int sim_share_watch(int physical, int *pids, unsigned long long *bytes, int most)
{
    struct stat status;
    int count = 0;
    sim_share_name(sim_spec.shared);
    sim_share_fd = open(sim_share_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (sim_share_fd >= 0 && fstat(sim_share_fd, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_uid == geteuid() && status.st_size >= (off_t)sizeof *sim_shared) {
        void *map = mmap(NULL, sizeof *sim_shared, PROT_READ, MAP_SHARED, sim_share_fd, 0);
        if (map != MAP_FAILED) {
            sim_shared = map;
            if (sim_shared->magic == SIM_SHARE_MAGIC)
                count = sim_share_list(sim_shared, physical, pids, bytes, most);
        }
    }
    sim_share_close();
    return count;
}

int sim_share_shown(int physical, int *pids, unsigned long long *bytes, int most)
{
    if (sim_shared)
        return sim_share_list(sim_shared, physical, pids, bytes, most);
    if (sim_initialized)
        return -1;
    return sim_spec_read() == 0 && *sim_spec.shared ? sim_share_watch(physical, pids, bytes, most) : 0;
}

/* The last process removes the file.  One that is killed leaves it to sim_share_sweep: its slots are free. */
__attribute__((destructor)) static void sim_share_exit(void)
{
    bool alone = true;
    if (!sim_shared || sim_share_pid != getpid())
        return;
    sim_share_begin();
    for (size_t i = 0; i < SIM_SHARE_PROCESSES && alone; i++)
        alone = &sim_shared->slots[i] == sim_share_own || !sim_shared->slots[i].pid || !sim_share_alive(i);
    memset(sim_share_own, 0, sizeof *sim_share_own);
    if (alone)
        unlink(sim_share_path);
    sim_share_end();
    sim_share_close();
}
