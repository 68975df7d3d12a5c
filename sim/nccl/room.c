/* SPDX-License-Identifier: MIT
 * A room: a file in /dev/shm, named after what the ranks of a communicator have in common, which loses its name as soon
 * as all of them are there.  Its beginning, which is mapped, says who is there and how far each channel is; behind it
 * each channel has a range of the file, written by one rank and read by one, whose bytes the reader gives back.
 * Messages are written and read with system calls, so that a full /dev/shm is an error and not a signal.  The same
 * holds for what is mapped: the room's first rank takes the space for who is there, each rank that of the channels by
 * which it sends, before anyone looks at them.  So a room of many ranks costs what those need that come.
 *
 * A rank holds a record lock on its byte of the file: the kernel drops it when the process ends, however that happens.
 * A process that has several ranks has the file open once, since closing any descriptor of it would drop the
 * locks. */
#define _GNU_SOURCE
#include "nccl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROOM_MAGIC   UINT64_C(0x316d6f6f726c636e) /* "nclroom1" */
#define ROOM_CHANNEL (UINT64_C(1) << 32)          /* bytes of the file per channel; more are never on the way */
#define ROOM_GIVE    65536u                       /* read bytes that are given back at once */
#define ROOM_OLD     60                           /* seconds */
#define ROOM_PIECE   0x65636970u

enum { ROOM_NEVER, ROOM_THERE, ROOM_LEFT };

struct room_rank {
    int32_t state, pid;
    uint32_t bell; /* rung by whoever sends to the rank */
    uint32_t node;
};
/* Written: by the sender, release pairs with the receiver's acquire.  Read: by the receiver, likewise. */
struct room_channel {
    uint64_t written, read;
};
struct room_head {
    uint64_t magic;
    int32_t ranks;
    int32_t joined;
    struct room_rank rank[]; /* then the channels by which each sends */
};

struct nccl_room {
    struct nccl_room *next;
    int references;
    char path[160];
    int fd, ranks;
    size_t first, row, size; /* bytes: before the channels, of a rank's channels, of the mapped part */
    struct room_head *head;
    pthread_mutex_t sending;
    pid_t owner;
};

static struct nccl_room *nccl_rooms;
static pthread_mutex_t nccl_rooms_lock = PTHREAD_MUTEX_INITIALIZER;

static int room_lock(int fd, off_t byte, short type, int command)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int error;
    do
        error = fcntl(fd, command, &lock);
    while (error && errno == EINTR);
    if (error)
        return -errno;
    return command == F_GETLK && lock.l_type != F_UNLCK;
}

static struct room_channel *room_channel(struct nccl_room *room, enum nccl_line line, int from, int to)
{
    char *row = (char *)room->head + room->first + (size_t)from * room->row;
    return (struct room_channel *)row + 2 * (size_t)to + (size_t)line;
}

static off_t room_place(const struct nccl_room *room, const struct room_channel *channel, uint64_t at)
{
    const char *channels = (const char *)room->head + room->first;
    uint64_t number = (uint64_t)(channel - (const struct room_channel *)channels);
    uint64_t mapped = (room->size + ROOM_CHANNEL - 1) / ROOM_CHANNEL;
    return (off_t)((mapped + number) * ROOM_CHANNEL + at % ROOM_CHANNEL);
}

static void room_wake(struct nccl_room *room, int rank)
{
    __atomic_add_fetch(&room->head->rank[rank].bell, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &room->head->rank[rank].bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* One that is not there yet looks at the others' states after it has set its own, as the caller has. */
static void room_wake_all(struct nccl_room *room)
{
    for (int i = 0; i < room->ranks; i++)
        if (__atomic_load_n(&room->head->rank[i].state, __ATOMIC_SEQ_CST) == ROOM_THERE)
            room_wake(room, i);
}

/* ---- coming and going -------------------------------------------------------------------------------------------- */

static void room_free(struct nccl_room *room)
{
    if (room->head)
        munmap(room->head, room->size);
    if (room->fd >= 0)
        close(room->fd);
    free(room);
}

/* With the file's last byte locked, so that one process fills the beginning. */
static int room_begin(struct nccl_room *room)
{
    struct stat status;
    if (fstat(room->fd, &status) != 0)
        return -errno;
    if (!S_ISREG(status.st_mode) || status.st_uid != geteuid())
        return -EPERM;
    if (status.st_nlink == 0)
        return -EAGAIN; /* the room that was here is full, and this one is another's */
    if (status.st_size < (off_t)room->size && ftruncate(room->fd, (off_t)room->size) != 0)
        return -errno;
    int error = posix_fallocate(room->fd, 0, (off_t)room->first);
    if (error)
        return -error;
    void *map = mmap(NULL, room->size, PROT_READ | PROT_WRITE, MAP_SHARED, room->fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    room->head = map;
    if (!room->head->magic) {
        room->head->magic = ROOM_MAGIC;
        room->head->ranks = room->ranks;
    }
    return room->head->magic == ROOM_MAGIC && room->head->ranks == room->ranks ? 0 : -EINVAL;
}

static int room_open(const char *path, int ranks, struct nccl_room **opened)
{
    struct nccl_room *room = calloc(1, sizeof *room);
    if (!room)
        return -ENOMEM;
    *room = (struct nccl_room){.references = 0, .ranks = ranks, .owner = getpid()};
    room->first = sizeof *room->head + (size_t)ranks * sizeof(struct room_rank);
    room->row = 2 * (size_t)ranks * sizeof(struct room_channel);
    room->size = room->first + (size_t)ranks * room->row;
    pthread_mutex_init(&room->sending, NULL);
    snprintf(room->path, sizeof room->path, "%s", path);
    room->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int error = room->fd < 0 ? -errno : room_lock(room->fd, NCCL_MOST, F_WRLCK, F_SETLKW);
    if (!error) {
        error = room_begin(room);
        room_lock(room->fd, NCCL_MOST, F_UNLCK, F_SETLK);
    }
    if (error) {
        room_free(room);
        return error;
    }
    *opened = room;
    return 0;
}

static int room_enter(struct nccl_room *room, int rank, uint32_t node)
{
    struct room_rank *own = &room->head->rank[rank];
    int32_t never = ROOM_NEVER;
    int error = room_lock(room->fd, rank, F_WRLCK, F_SETLK);
    if (error)
        return -EEXIST;
    error = posix_fallocate(room->fd, (off_t)(room->first + (size_t)rank * room->row), (off_t)room->row);
    if (error) {
        room_lock(room->fd, rank, F_UNLCK, F_SETLK);
        return -error;
    }
    own->pid = getpid();
    own->node = node;
    if (!__atomic_compare_exchange_n(&own->state, &never, ROOM_THERE, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return -EEXIST;
    if (__atomic_add_fetch(&room->head->joined, 1, __ATOMIC_SEQ_CST) == room->ranks)
        unlink(room->path);
    room_wake_all(room);
    return 0;
}

int nccl_room_join(const char *key, int ranks, int rank, uint32_t node, struct nccl_room **joined)
{
    char path[160];
    struct nccl_room *room;
    int error = 0;
    snprintf(path, sizeof path, "/dev/shm/gpuprof-nccl-%u-%s", (unsigned)geteuid(), key);
    pthread_mutex_lock(&nccl_rooms_lock);
    for (room = nccl_rooms; room && (strcmp(room->path, path) != 0 || room->owner != getpid()); room = room->next)
        ;
    if (!room) {
        error = room_open(path, ranks, &room);
        for (int i = 0; i < 100 && error == -EAGAIN; i++)
            error = room_open(path, ranks, &room);
        if (!error) {
            room->next = nccl_rooms;
            nccl_rooms = room;
        }
    } else if (room->ranks != ranks) {
        error = -EINVAL;
    }
    if (!error)
        error = room_enter(room, rank, node);
    if (!error)
        room->references++;
    pthread_mutex_unlock(&nccl_rooms_lock);
    if (!error)
        *joined = room;
    return error;
}

static void room_say_left(struct nccl_room *room, int rank)
{
    __atomic_store_n(&room->head->rank[rank].state, ROOM_LEFT, __ATOMIC_SEQ_CST);
    room_wake_all(room);
}

void nccl_room_leave(struct nccl_room *room, int rank)
{
    if (room->owner != getpid()) /* a fork of a rank is none */
        return;
    pthread_mutex_lock(&nccl_rooms_lock);
    room_say_left(room, rank);
    if (--room->references == 0) {
        struct nccl_room **at = &nccl_rooms;
        while (*at != room)
            at = &(*at)->next;
        *at = room->next;
        if (room->head->joined < room->ranks) /* nobody can come to it any more */
            unlink(room->path);
        room_free(room);
    }
    pthread_mutex_unlock(&nccl_rooms_lock);
}

/* Programs end without destroying their communicators: that is leaving too. */
__attribute__((destructor)) static void room_exit(void)
{
    for (struct nccl_room *room = nccl_rooms; room; room = room->next) {
        if (room->owner != getpid())
            continue;
        for (int i = 0; i < room->ranks; i++)
            if (room->head->rank[i].pid == getpid() && room->head->rank[i].state == ROOM_THERE)
                room_say_left(room, i);
        if (room->head->joined < room->ranks)
            unlink(room->path);
    }
}

/* Nobody holds a lock in it, and it is older than a rank needs from making it to locking it. */
static bool room_dead(int folder, const char *name)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat status;
    int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool dead = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
                time(NULL) - status.st_mtime > ROOM_OLD && fcntl(fd, F_GETLK, &all) == 0 && all.l_type == F_UNLCK;
    close(fd);
    return dead;
}

void nccl_room_sweep(void)
{
    char own[64];
    DIR *folder = opendir("/dev/shm");
    snprintf(own, sizeof own, "gpuprof-nccl-%u-", (unsigned)geteuid());
    pthread_mutex_lock(&nccl_rooms_lock);
    /* A process with rooms would not see its own locks, and lose them. */
    for (struct dirent *entry; folder && !nccl_rooms && (entry = readdir(folder));)
        if (!strncmp(entry->d_name, own, strlen(own)) && room_dead(dirfd(folder), entry->d_name))
            unlinkat(dirfd(folder), entry->d_name, 0);
    pthread_mutex_unlock(&nccl_rooms_lock);
    if (folder)
        closedir(folder);
}

bool nccl_room_full(struct nccl_room *room, int *missing)
{
    for (int i = 0; i < room->ranks; i++)
        if (__atomic_load_n(&room->head->rank[i].state, __ATOMIC_SEQ_CST) == ROOM_NEVER) {
            *missing = i;
            return false;
        }
    return true;
}

int nccl_room_pid(struct nccl_room *room, int rank)
{
    return __atomic_load_n(&room->head->rank[rank].state, __ATOMIC_SEQ_CST) == ROOM_NEVER ? 0
                                                                                          : room->head->rank[rank].pid;
}

uint32_t nccl_room_node(struct nccl_room *room, int rank)
{
    return room->head->rank[rank].node;
}

bool nccl_room_gone(struct nccl_room *room, int rank, bool *left)
{
    const struct room_rank *other = &room->head->rank[rank];
    int state = __atomic_load_n(&other->state, __ATOMIC_SEQ_CST);
    *left = state == ROOM_LEFT;
    if (state == ROOM_NEVER)
        return false;
    return *left || (other->pid != getpid() && room_lock(room->fd, rank, F_WRLCK, F_GETLK) == 0);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The range of a channel is used again from its beginning when it is full. */
static int room_move(struct nccl_room *room, const struct room_channel *channel, uint64_t at, void *bytes, size_t size,
                     bool write)
{
    char *next = bytes;
    while (size) {
        uint64_t rest = ROOM_CHANNEL - at % ROOM_CHANNEL;
        size_t part = size < rest ? size : (size_t)rest;
        off_t place = room_place(room, channel, at);
        ssize_t moved = write ? pwrite(room->fd, next, part, place) : pread(room->fd, next, part, place);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return moved < 0 ? -errno : -EIO;
        next += moved;
        at += (uint64_t)moved;
        size -= (size_t)moved;
    }
    return 0;
}

int nccl_room_send(struct nccl_room *room, enum nccl_line line, int from, int to, const struct nccl_message *message,
                   const void *bytes)
{
    struct room_channel *channel = room_channel(room, line, from, to);
    struct nccl_message head = *message;
    head.magic = ROOM_PIECE;
    pthread_mutex_lock(&room->sending);
    uint64_t at = channel->written;
    int error = 0;
    if (at + sizeof head + head.bytes - __atomic_load_n(&channel->read, __ATOMIC_ACQUIRE) > ROOM_CHANNEL)
        error = -ENOBUFS;
    if (!error)
        error = room_move(room, channel, at, &head, sizeof head, true);
    if (!error)
        error = room_move(room, channel, at + sizeof head, (void *)bytes, head.bytes, true);
    if (!error)
        __atomic_store_n(&channel->written, at + sizeof head + head.bytes, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&room->sending);
    if (!error)
        room_wake(room, to);
    return error;
}

bool nccl_room_peek(struct nccl_room *room, enum nccl_line line, int from, int to, struct nccl_message *message)
{
    struct room_channel *channel = room_channel(room, line, from, to);
    uint64_t there = __atomic_load_n(&channel->written, __ATOMIC_ACQUIRE) - channel->read;
    return there >= sizeof *message && room_move(room, channel, channel->read, message, sizeof *message, false) == 0 &&
           message->magic == ROOM_PIECE && message->bytes <= there - sizeof *message;
}

int nccl_room_take(struct nccl_room *room, enum nccl_line line, int from, int to, const struct nccl_message *message,
                   void *bytes)
{
    struct room_channel *channel = room_channel(room, line, from, to);
    uint64_t at = channel->read, next = at + sizeof *message + message->bytes;
    int error = bytes ? room_move(room, channel, at + sizeof *message, bytes, message->bytes, false) : 0;
    uint64_t first = at - at % ROOM_GIVE, last = next - next % ROOM_GIVE;
    while (first < last) { /* whole steps that are read now */
        uint64_t end = first - first % ROOM_CHANNEL + ROOM_CHANNEL;
        end = end < last ? end : last;
        fallocate(room->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, room_place(room, channel, first),
                  (off_t)(end - first));
        first = end;
    }
    __atomic_store_n(&channel->read, next, __ATOMIC_RELEASE);
    return error;
}

uint32_t nccl_room_bell(struct nccl_room *room, int rank)
{
    return __atomic_load_n(&room->head->rank[rank].bell, __ATOMIC_SEQ_CST);
}

void nccl_room_sleep(struct nccl_room *room, int rank, uint32_t bell)
{
    struct timespec most = {.tv_nsec = 100000000};
    syscall(SYS_futex, &room->head->rank[rank].bell, FUTEX_WAIT, bell, &most, NULL, 0);
}
