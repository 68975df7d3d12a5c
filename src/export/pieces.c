/* SPDX-License-Identifier: MIT
 *
 * pieces.c: lays every piece of memory out for a viewer (pieces.h).  Nobody waits for it: pages are had and mapped
 * before the walk begins, because a page fault under a map's lock would be the program's delay.  fallocate gets them:
 * where there is no memory it says so, and the first touch of a hole would be a SIGBUS.
 *
 * One at a time: a million pieces are 64 MiB of the program's memory, for as long as it takes the viewer to open the
 * file.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fallocate, seals */
#endif
#include "export/pieces.h"
#include "account/tap.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "export/session.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux 5.1; the C library's headers may be older. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Room beyond what is there when the walk begins: a few milliseconds of a program that allocates two million blocks a
 * second, and an eighth for what the estimate knows nothing of. */
#define GP_PIECES_SPARE 8192u
/* The cache's blocks are not known before they are walked: the first walk of a large cache counts them, the second has
 * room.  A third is for a program that doubles meanwhile; what is missing then is counted. */
#define GP_PIECES_TRIES 3
/* 4 GiB: beyond, what does not fit is counted. */
#define GP_PIECES_MOST (1u << 26)

/* The descriptor that is lent; the program may have closed it and got its number for something else. */
static struct {
    int x_fd; /* -1 none; read by a forked child, whose memory is that of the moment of the fork */
    uint64_t inode, device;
} gp_pieces_lent = {.x_fd = -1};

struct gp_pieces_file {
    int fd;
    struct gp_wire_pieces *head; /* mapped */
    struct gp_wire_piece *pieces;
    uint64_t room, bytes;
    uint64_t count; /* that came, whether or not there was room */
};

static void gp_pieces_keep(struct gp_pieces_file *file, const struct gp_wire_piece *piece)
{
    if (file->count < file->room)
        file->pieces[file->count] = *piece;
    file->count++;
}

static void gp_pieces_visit(void *arg, const struct gp_wire_piece *piece)
{
    gp_pieces_keep(arg, piece);
}

static void gp_pieces_lend(int fd)
{
    struct stat status = {0};
    fstat(fd, &status);
    gp_pieces_lent.inode = (uint64_t)status.st_ino;
    gp_pieces_lent.device = (uint64_t)status.st_dev;
    __atomic_store_n(&gp_pieces_lent.x_fd, fd, __ATOMIC_RELAXED); /* this thread alone, and a child of one thread */
}

static bool gp_pieces_ours(int fd)
{
    struct stat status;
    return fd >= 0 && fstat(fd, &status) == 0 && (uint64_t)status.st_ino == gp_pieces_lent.inode &&
           (uint64_t)status.st_dev == gp_pieces_lent.device;
}

void gp_pieces_drop(void)
{
    int fd = __atomic_exchange_n(&gp_pieces_lent.x_fd, -1, __ATOMIC_RELAXED);
    if (gp_pieces_ours(fd))
        close(fd);
}

void gp_pieces_forget(void)
{
    gp_pieces_drop();
}

static int gp_pieces_open(struct gp_pieces_file *file, uint64_t room)
{
    file->room = room < GP_PIECES_MOST ? room : GP_PIECES_MOST;
    file->bytes = sizeof(struct gp_wire_pieces) + file->room * sizeof(struct gp_wire_piece);
    file->count = 0;
    int fd = gp_session_memfd(GP_WIRE_PIECES_NAME);
    if (fd < 0)
        return fd;
    gp_pieces_lend(fd); /* at once: a child that is forked now has it too */
    void *map = MAP_FAILED;
    if (fallocate(fd, 0, 0, (off_t)file->bytes) == 0)
        map = mmap(NULL, file->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (map == MAP_FAILED) {
        int error = errno;
        gp_pieces_drop();
        return -error;
    }
    madvise(map, file->bytes, MADV_DONTFORK);
    file->fd = fd;
    file->head = map;
    file->pieces = (struct gp_wire_piece *)(file->head + 1);
    return 0;
}

static void gp_pieces_fill(struct gp_pieces_file *file)
{
    uint64_t begin_ns = gp_clock_ns();
    gp_pieces_walk(GP_PIECES_EVERY, file, gp_pieces_visit);
    uint64_t kept = file->count < file->room ? file->count : file->room;
    *file->head = (struct gp_wire_pieces){
        .magic = GP_WIRE_MAGIC,
        .count = kept,
        .begin_ns = begin_ns,
        .end_ns = gp_clock_ns(),
        .piece_bytes = sizeof(struct gp_wire_piece),
        .missed = file->count - kept,
    };
}

/* Ends writing: to its true size, then sealed. */
static int gp_pieces_seal(struct gp_pieces_file *file)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    uint64_t bytes = sizeof(struct gp_wire_pieces) + file->head->count * sizeof(struct gp_wire_piece);
    munmap(file->head, file->bytes);
    file->head = NULL;
    if (ftruncate(file->fd, (off_t)bytes) != 0)
        return -errno;
    /* Not F_SEAL_WRITE, which may wait a tenth of a second for pages that are still on their way into the kernel's
     * lists. */
    if (fcntl(file->fd, F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE) == 0 || fcntl(file->fd, F_ADD_SEALS, seals) == 0)
        return 0;
    return -errno;
}

int gp_pieces_lay(void)
{
    struct gp_pieces_file file;
    uint64_t known = gp_tap_block_count(), room = known + known / 8 + GP_PIECES_SPARE;
    if (__atomic_load_n(&gp_pieces_lent.x_fd, __ATOMIC_RELAXED) >= 0)
        return -EBUSY;
    for (unsigned tries = 1;; tries++) {
        int error = gp_pieces_open(&file, room);
        if (error)
            return error;
        gp_pieces_fill(&file);
        if (file.count <= file.room || tries == GP_PIECES_TRIES || file.room == GP_PIECES_MOST)
            break;
        room = file.count + file.count / 8 + GP_PIECES_SPARE;
        munmap(file.head, file.bytes);
        gp_pieces_drop();
    }
    int error = gp_pieces_seal(&file);
    if (error)
        gp_pieces_drop();
    return error ? error : file.fd;
}
