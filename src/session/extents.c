/* SPDX-License-Identifier: MIT
 *
 * extents.c: the memory of the process as extents, segment by segment and block by block; see
 * extents.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mremap, seals */
#endif
#include "session/extents.h"
#include "account/tap.h"
#include "allocator/allocator.h"
#include "base/clock.h"
#include "base/highfd.h"
#include "base/kept.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "session/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ==== memory files ================================================================================================ */

int gp_session_memfd(const char *name)
{
    int fd = gp_high_fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    return fd < 0 ? -errno : fd;
}

/* ==== the walk ==================================================================================================== */
/* Walks every segment and block of one device or of all: first those of our caches, then the
 * program's own allocations, then those of frameworks (extents.h). */

_Static_assert(GP_CACHE_LIVE == GPUPROF_LIVE && GP_CACHE_WAITING == GPUPROF_WAITING && GP_CACHE_IDLE == GPUPROF_IDLE &&
                   GP_CACHE_UNMAPPED == GPUPROF_UNMAPPED,
               "gpuprof.h");
_Static_assert(GP_EXTENT_SEGMENT == GPUPROF_SEGMENT && GP_EXTENT_BLOCK == GPUPROF_BLOCK, "gpuprof.h");

/* Each block of the tap may become two extents. */
_Static_assert(GP_EXTENTS_REST >= 2 * GP_TAP_REST && GP_EXTENTS_REST >= 2 * GP_CACHE_REST, "extents.h");

struct gp_extents_walking {
    void *arg;
    gp_extent_fn *visit;
    void (*rest)(void *arg);
    unsigned index;
    uint64_t pool; /* of the segment whose blocks follow */
    struct gp_nest nest;
};

/* The cache's marks for "any" and "gone" lie at the end of the range, where no stream of a driver
 * lies. */
static uint64_t extent_stream(uint64_t stream)
{
    return stream > INT64_MAX ? 0 : stream;
}

static bool extents_segment(void *arg, const struct gp_cache_segment *segment)
{
    struct gp_extents_walking *walk = arg;
    walk->pool = segment->pool;
    walk->visit(walk->arg, &(struct gp_wire_extent){
                               .address = segment->address,
                               .bytes = segment->bytes,
                               .stream = extent_stream(segment->stream),
                               .pool = segment->pool,
                               .what = GP_EXTENT_SEGMENT,
                               .kind = GP_KIND_LINEAR,
                               .flags = (uint8_t)(GPUPROF_OURS | (segment->growable ? GPUPROF_GROWABLE : 0u) |
                                                  (segment->small ? GPUPROF_SMALL : 0u)),
                               .device = walk->index,
                           });
    return true;
}

static bool extents_block(void *arg, const struct gp_cache_block *block)
{
    const struct gp_extents_walking *walk = arg;
    walk->visit(walk->arg, &(struct gp_wire_extent){
                               .address = block->address,
                               .bytes = block->bytes,
                               .requested_bytes = block->state == GP_CACHE_LIVE ? block->requested_bytes : 0,
                               .stream = extent_stream(block->stream),
                               .pool = walk->pool,
                               .time_ns = block->time_ns,
                               .site = (uint32_t)block->tag, /* allocator/served.c */
                               .what = GP_EXTENT_BLOCK,
                               .state = (uint8_t)block->state,
                               .kind = GP_KIND_LINEAR,
                               .device = walk->index,
                           });
    return true;
}

/* A segment with one block that is not live. */
static void extents_without(const struct gp_extents_walking *walk, struct gp_wire_extent piece, uint8_t state)
{
    piece.what = GP_EXTENT_SEGMENT;
    piece.requested_bytes = 0;
    walk->visit(walk->arg, &piece);
    piece.what = GP_EXTENT_BLOCK;
    piece.state = state;
    piece.flags = 0;
    walk->visit(walk->arg, &piece);
}

/* Segments of up to 2 MiB are of PyTorch's small pool (account.c). */
static void extents_nested(struct gp_nest *nest, const struct gp_tap_block *block)
{
    const uint64_t small_segment = 2u << 20;
    unsigned flags = (block->mapped ? GPUPROF_GROWABLE : 0u) | (block->bytes <= small_segment ? GPUPROF_SMALL : 0u);
    unsigned before = block->before ? GP_EXTENT_BEFORE : 0u;
    gp_extent_nest_add(nest, &(struct gp_wire_extent){
                                 .address = block->address,
                                 .bytes = block->bytes,
                                 .requested_bytes = block->inside ? block->requested_bytes : 0,
                                 .time_ns = block->time_ns,
                                 .site = block->site,
                                 .what = block->inside ? GP_EXTENT_BLOCK : GP_EXTENT_SEGMENT,
                                 .state = GPUPROF_LIVE,
                                 .kind = GP_KIND_LINEAR,
                                 .flags = (uint8_t)(before | (block->inside ? 0 : flags)),
                                 .device = block->device,
                             });
}

static void extents_own(void *arg, const struct gp_tap_block *block)
{
    struct gp_extents_walking *walk = arg;
    if (block->inside || (block->segment && (block->kind == GP_KIND_LINEAR || block->mapped))) {
        extents_nested(&walk->nest, block);
        return;
    }
    bool range = block->kind == GP_KIND_VIRTUAL;
    const struct gp_wire_extent piece = {
        .address = block->address,
        .bytes = block->bytes,
        .requested_bytes = block->requested_bytes < block->bytes ? block->requested_bytes : block->bytes,
        .time_ns = block->time_ns,
        .site = block->site,
        .what = GP_EXTENT_WHOLE,
        .state = GPUPROF_LIVE,
        .kind = block->kind,
        .flags = range || block->mapped ? GPUPROF_GROWABLE : 0,
        .device = block->device,
    };
    if (piece.bytes && (range || (block->kind == GP_KIND_VMM && !block->mapped)))
        extents_without(walk, piece, range ? GPUPROF_UNMAPPED : GPUPROF_IDLE);
    else if (piece.bytes) /* sparse arrays own no memory */
        walk->visit(walk->arg, &piece);
}

static void extents_rest(void *arg)
{
    struct gp_extents_walking *walk = arg;
    gp_extent_nest_rest(&walk->nest);
    if (walk->rest)
        walk->rest(walk->arg);
}

void gp_extents_walk(unsigned index, void *arg, gp_extent_fn *visit, void (*rest)(void *arg))
{
    struct gp_extents_walking walk = {.arg = arg, .visit = visit, .rest = rest};
    for (walk.index = 0; walk.index < GP_WIRE_GPUS; walk.index++)
        if (index == GP_EXTENTS_EVERY || index == walk.index)
            gp_allocator_iterate((int)walk.index, &walk, extents_segment, extents_block, extents_rest);
    gp_extent_nest_rest(&walk.nest);
    gp_tap_blocks(index == GP_EXTENTS_EVERY ? GP_TAP_EVERY : index, &walk, extents_own, extents_rest);
    gp_extent_nest_end(&walk.nest, arg, visit, rest);
}

/* ==== the memory file ============================================================================================= */
/* Writes every extent into a memfd for a viewer (extents.h).  Under the locks extents are only
 * copied into a buffer; system calls happen between them, so no thread waits for the kernel.  It
 * uses write() instead of a mapping: that costs half as much as page faults, and without memory it
 * fails instead of raising SIGBUS.
 *
 * There is one memfd at a time: a million extents are 64 MiB of the program's memory until the
 * viewer has opened it. */

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

static void extents_pause(void *arg)
{
    struct gp_extents_laying *laying = arg;
    if (laying->held >= GP_EXTENTS_FULL)
        extents_flush(laying);
}

static void extents_fill(struct gp_extents_laying *laying)
{
    uint64_t begin_ns = gp_clock_ns();
    gp_extents_walk(GP_EXTENTS_EVERY, laying, extents_visit, extents_pause);
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
