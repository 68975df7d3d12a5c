/* SPDX-License-Identifier: MIT
 *
 * extents.c: writes every extent into a memfd for a viewer (extents.h).  Under the locks extents
 * are only copied into a buffer; system calls happen between them, so no thread waits for the
 * kernel.  It uses write() instead of a mapping: that costs half as much as page faults, and
 * without memory it fails instead of raising SIGBUS.
 *
 * There is one memfd at a time: a million extents are 64 MiB of the program's memory until the
 * viewer has opened it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* seals */
#endif
#include "session/extents.h"
#include "base/clock.h"
#include "base/kept.h"
#include "base/lock.h"
#include "session/memfd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux 5.1; the C library's headers may be older. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Extents per write: 256 KiB, for which the cost of a system call is negligible. */
#define GP_EXTENTS_FULL 4096u

/* The descriptor of the memfd that a viewer has; the program may have closed it and reused its
 * number. */
static struct {
    int x_fd; /* -1 none; read by a forked child, whose memory is that of the moment of the fork */
    uint64_t inode, device;
} gp_extents_lent = {.x_fd = -1};
GP_KEEP(gp_extents_lent);

/* Taken while a descriptor exists that gp_extents_lent does not have yet, and while the program
 * forks, since the child would keep the descriptor.  Holds the id of the thread that took it. */
static uint32_t extents_door;
GP_KEEP(extents_door);

/* A fork waits here for about 50 us at most, or 40 ms if our thread was preempted between two
 * system calls.  After that a descriptor too many in the child is better than a program that
 * hangs.  A raw clone does not wait. */
#define GP_DOOR_ROUNDS 2000

static bool door_close(void)
{
    uint32_t open = 0, tid = (uint32_t)syscall(SYS_gettid);
    for (unsigned round = 0; round < GP_DOOR_ROUNDS; round++, open = 0) {
        /* [door.A] acquire: what the last holder did with the descriptor; pairs with [door.R]. */
        if (__atomic_compare_exchange_n(&extents_door, &open, tid, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return true;
        gp_pause(round);
    }
    return false;
}

static void door_open(void)
{
    if (__atomic_load_n(&extents_door, __ATOMIC_RELAXED) == (uint32_t)syscall(SYS_gettid))
        __atomic_store_n(&extents_door, 0, __ATOMIC_RELEASE); /* [door.R] release: pairs with [door.A] */
}

void gp_extents_fork_begin(void)
{
    door_close();
}

void gp_extents_fork_end(void)
{
    door_open();
}

static struct gp_extents_laying { /* only the drain thread uses it */
    struct gp_wire_extent pieces[GP_EXTENTS_FULL + GP_EXTENTS_REST];
    uint32_t held;
    int fd, error;
    uint64_t count, missed; /* extents written, and extents left out */
} gp_extents_laying;

static void extents_visit(void *arg, const struct gp_wire_extent *piece)
{
    struct gp_extents_laying *laying = arg;
    if (laying->held < GP_EXTENTS_FULL + GP_EXTENTS_REST && laying->count + laying->held < GP_WIRE_EXTENTS_MOST)
        laying->pieces[laying->held++] = *piece;
    else
        laying->missed++;
}

static void extents_put(struct gp_extents_laying *laying, const void *from, uint64_t bytes, uint64_t offset)
{
    for (uint64_t done = 0; done < bytes && !laying->error;) {
        ssize_t n = pwrite(laying->fd, (const char *)from + done, bytes - done, (off_t)(offset + done));
        if (n > 0)
            done += (uint64_t)n;
        else
            laying->error = n == 0 ? EIO : errno;
    }
}

static void extents_flush(struct gp_extents_laying *laying)
{
    extents_put(laying, laying->pieces, laying->held * sizeof(laying->pieces[0]),
                sizeof(struct gp_wire_extents) + laying->count * sizeof(laying->pieces[0]));
    laying->count += laying->held;
    laying->held = 0;
}

static void extents_rest(void *arg)
{
    struct gp_extents_laying *laying = arg;
    if (laying->held >= GP_EXTENTS_FULL)
        extents_flush(laying);
}

static void extents_fill(struct gp_extents_laying *laying)
{
    uint64_t begin_ns = gp_clock_ns();
    gp_extents_walk(GP_EXTENTS_EVERY, laying, extents_visit, extents_rest);
    const struct gp_wire_extents head = {
        .magic = GP_WIRE_MAGIC,
        .count = laying->count + laying->held,
        .begin_ns = begin_ns,
        .end_ns = gp_clock_ns(),
        .piece_bytes = sizeof(struct gp_wire_extent),
        .missed = laying->missed,
    };
    extents_flush(laying);
    extents_put(laying, &head, sizeof(head), 0);
}

/* ---- the descriptor ---------------------------------------------------------------------------------------------- */

static void extents_lend(int fd)
{
    struct stat status = {0};
    fstat(fd, &status);
    gp_extents_lent.inode = (uint64_t)status.st_ino;
    gp_extents_lent.device = (uint64_t)status.st_dev;
    __atomic_store_n(&gp_extents_lent.x_fd, fd,
                     __ATOMIC_RELAXED); /* this thread's value, also in a child, which has one thread */
}

static bool extents_ours(int fd)
{
    struct stat status;
    return fd >= 0 && fstat(fd, &status) == 0 && (uint64_t)status.st_ino == gp_extents_lent.inode &&
           (uint64_t)status.st_dev == gp_extents_lent.device;
}

static void extents_close(void)
{
    int fd = __atomic_exchange_n(&gp_extents_lent.x_fd, -1, __ATOMIC_RELAXED);
    if (extents_ours(fd))
        close(fd);
}

void gp_extents_drop(void)
{
    door_close();
    extents_close();
    door_open();
}

void gp_extents_forget(void)
{
    extents_close();
    __atomic_store_n(&extents_door, 0, __ATOMIC_RELAXED); /* the child has one thread, of another id */
}

/* F_SEAL_FUTURE_WRITE needs Linux 5.1; F_SEAL_WRITE may wait a tenth of a second for pages that are
 * not yet on the kernel's lists. */
static bool extents_seal(int fd)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    return fcntl(fd, F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE) == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0;
}

int gp_extents_lay(void)
{
    struct gp_extents_laying *laying = &gp_extents_laying;
    if (__atomic_load_n(&gp_extents_lent.x_fd, __ATOMIC_RELAXED) >= 0)
        return -EBUSY;
    door_close();
    int fd = gp_session_memfd(GP_WIRE_EXTENTS_NAME);
    if (fd >= 0)
        extents_lend(fd); /* set at once: a child that is forked now has the descriptor too */
    door_open();
    if (fd < 0)
        return fd;
    laying->held = 0;
    laying->count = laying->missed = 0;
    laying->fd = fd;
    laying->error = 0;
    extents_fill(laying);
    if (!laying->error && !extents_seal(fd))
        laying->error = errno;
    if (!laying->error)
        return fd;
    gp_extents_drop();
    return -laying->error;
}
