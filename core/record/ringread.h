/* SPDX-License-Identifier: MIT
 *
 * ringread.h: reads an event ring, of another process or of this one. Called by every part that
 * shows or stores events. It never writes into the ring, trusts no word of it, and copies events
 * before it reads them, because the ring's owner can change them at any time. Never calls malloc:
 * the recorder runs inside the profiled program.
 *
 * Any number of readers may follow one ring. Each counts its own events, and at rest
 *
 *      before + delivered + held + overwritten + damaged + left = events ever written
 *
 * holds exactly, as long as no chunk is marked damaged. Threads: one at a time per reader.
 */
#ifndef GP_RECORD_RINGREAD_H
#define GP_RECORD_RINGREAD_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ==== the reader ================================================================================================== */

struct gp_ringread;

/* Copies bytes [offset, offset + bytes) of the ring into `into`; 0 or -errno. Calls take effect in
 * the order in which they are made. Within a call, 8-byte words may be copied in any order, each as
 * a whole. offset and bytes are multiples of 8. */
typedef int (*gp_ringread_fn)(void *arg, void *into, size_t bytes, uint64_t offset);

enum gp_ringread_start {
    GP_RINGREAD_OLDEST, /* start with the events that the ring still holds */
    GP_RINGREAD_NOW,    /* start with the next event */
};

struct gp_ringread_stats {
    uint64_t before;         /* written before this reader started, and skipped */
    uint64_t delivered;      /* handed out by gp_ringread_poll */
    uint64_t held;           /* copied, but later than the last poll's horizon: the next poll returns them */
    uint64_t overwritten;    /* missed: overwritten before they were read */
    uint64_t damaged;        /* missed: events that failed the check */
    uint64_t left;           /* missed: not copied before the deadline */
    uint32_t damaged_chunks; /* chunks with a malformed state; never read again */
    uint32_t unsettled;      /* chunks that changed during every attempt of the last poll: the next poll reads them */
};

/* Creates a reader. chunk_count: a power of two, at most GP_RINGREAD_CHUNKS. 0, -EINVAL, -ENOMEM,
 * or the copy function's error (GP_RINGREAD_NOW). */
#define GP_RINGREAD_CHUNKS (1u << 18) /* 1 GiB of events: a hostile count costs the reader at most 8 MiB */
int gp_ringread_new(struct gp_ringread **out, gp_ringread_fn copy, void *arg, uint32_t chunk_count,
                    enum gp_ringread_start start);
/* The same over a descriptor, which stays the caller's and must stay open: reads with pread at
 * ring_offset. */
int gp_ringread_new_fd(struct gp_ringread **out, int fd, uint64_t ring_offset, uint32_t chunk_count,
                       enum gp_ringread_start start);
void gp_ringread_free(struct gp_ringread *reader);

/* Visits every chunk once and returns the new events, ordered by (time, seq); *events is valid
 * until the reader's next call. Events later than horizon_ns stay for the next poll, which keeps
 * the order across polls: pass the process's CLOCK_MONOTONIC as it was before the call, and
 * UINT64_MAX in the last poll or to get all events at once. The order has one exception: an event
 * whose thread was stopped between its time stamp and its commit. Returns the number of events, or
 * -errno: -ENOMEM, or the copy function's error (-EPROTO: the descriptor is too short). Events that
 * were copied before the error are not lost. */
ssize_t gp_ringread_poll(struct gp_ringread *reader, uint64_t horizon_ns, const struct gp_wire_event **events);

/* From now on polls copy nothing: they count the events in the ring as `left`, which takes a
 * millisecond or two. */
void gp_ringread_leave(struct gp_ringread *reader);
/* `late` is called now and then during polls; when it returns true, the effect is that of
 * gp_ringread_leave. */
void gp_ringread_hurry(struct gp_ringread *reader, bool (*late)(void *arg), void *arg);

void gp_ringread_stats(const struct gp_ringread *reader, struct gp_ringread_stats *out);

/* ==== the order of time =========================================================================================== */
/* Sorts events by time. Called by ringread.c. Unlike qsort, it never calls malloc. */

struct gp_order_key { /* a quarter of an event's size: merging moves keys, and each event only once at the end */
    uint64_t time_ns;
    uint32_t index, pad_;
};

/* Sorts by (time, seq), in place. keys: room for twice `count`, which is below 2^32. */
void gp_ring_order_events(struct gp_wire_event *events, size_t count, struct gp_order_key *keys);

#endif
