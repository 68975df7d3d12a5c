/* SPDX-License-Identifier: MIT
 *
 * ringread.h: reads an event ring, another process's or our own.  Called by whoever shows or stores events; must never
 * write into the ring, trust a word of it, or read events from memory that its owner can still change: everything is
 * copied first.  Never calls malloc: the recorder runs inside somebody's program.
 *
 * Any number of readers may follow one ring; each has its own account of what it was given, and at rest, exactly,
 *
 *      before + delivered + held + overwritten + damaged + left = events ever written
 *
 * as long as no chunk is marked damaged.  Threads: one at a time per reader.
 */
#ifndef GP_RECORD_RINGREAD_H
#define GP_RECORD_RINGREAD_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_ringread;

/* Copies bytes [offset, offset + bytes) of the ring into `into`; 0 or -errno.  Calls take effect in the order in which
 * they are made; within a call 8-byte words may be copied in any order, each in one piece.  offset and bytes are
 * multiples of 8. */
typedef int (*gp_ringread_fn)(void *arg, void *into, size_t bytes, uint64_t offset);

enum gp_ringread_start {
    GP_RINGREAD_OLDEST, /* begin with what the ring still holds */
    GP_RINGREAD_NOW,    /* begin with the next event */
};

struct gp_ringread_stats {
    uint64_t before;         /* written before this reader began, and not for it */
    uint64_t delivered;      /* handed out by gp_ringread_poll */
    uint64_t held;           /* copied, but later than the last poll's horizon: the next poll has them */
    uint64_t overwritten;    /* missed: the circle came round before the reader did */
    uint64_t damaged;        /* missed: events that failed the check */
    uint64_t left;           /* missed: there was no time to copy them */
    uint32_t damaged_chunks; /* chunks whose state made no sense; never read again */
    uint32_t unsettled;      /* chunks that moved under every attempt of the last poll: the next poll has them */
};

/* chunk_count: a power of two, at most GP_RINGREAD_CHUNKS.  0, -EINVAL, -ENOMEM, or the copier's error
 * (GP_RINGREAD_NOW). */
#define GP_RINGREAD_CHUNKS (1u << 18) /* 1 GiB of events: a hostile count must not cost the viewer more than 8 MiB */
int gp_ringread_new(struct gp_ringread **out, gp_ringread_fn copy, void *arg, uint32_t chunk_count,
                    enum gp_ringread_start start);
/* The same over a descriptor, which stays the caller's and must stay open: pread at ring_offset. */
int gp_ringread_new_fd(struct gp_ringread **out, int fd, uint64_t ring_offset, uint32_t chunk_count,
                       enum gp_ringread_start start);
void gp_ringread_free(struct gp_ringread *reader);

/* Looks at every chunk once and gives the new events, ordered by (time, seq): *events is the reader's and valid until
 * its next call.  Events later than horizon_ns stay for the next poll, which makes the order hold across polls too:
 * pass the process's CLOCK_MONOTONIC as it was before the call, and UINT64_MAX in the last poll or to get everything at
 * once.  What no horizon can order is an event whose thread was stopped between its time stamp and its commit. Number
 * of events, or -errno: -ENOMEM, or the copier's error (-EPROTO: the descriptor is too short); nothing that was copied
 * before the error is lost. */
ssize_t gp_ringread_poll(struct gp_ringread *reader, uint64_t horizon_ns, const struct gp_wire_event **events);

/* Polls copy nothing any more from here on: they count what the ring holds as `left`, which takes a millisecond or
 * two. */
void gp_ringread_leave(struct gp_ringread *reader);
/* late is asked in between; when it says yes, that is gp_ringread_leave. */
void gp_ringread_hurry(struct gp_ringread *reader, bool (*late)(void *arg), void *arg);

void gp_ringread_stats(const struct gp_ringread *reader, struct gp_ringread_stats *out);

#endif
