/* SPDX-License-Identifier: MIT
 *
 * ring.h: the event ring's writing side. The session provides the memory (wire.h: struct
 * gp_wire_chunk); readers are other processes that only read it. A thread owns one chunk at a time
 * through its cursor. When the ring is full the oldest chunk is overwritten, so writers never wait
 * for readers, and every reader can count the events that it missed (sum over chunks of
 * written_before + count). The reader is core/record/ringread.c.
 */
#ifndef GP_BASE_RING_H
#define GP_BASE_RING_H

#include <gpuprof/wire.h>
#include <stdint.h>

struct gp_ring {
    struct gp_wire_chunk *chunks;                  /* const after init */
    uint32_t chunk_count;                          /* a power of two */
    uint64_t *x_lost;                              /* counts events that found every tried chunk busy */
    uint64_t x_next __attribute__((aligned(128))); /* next chunk sequence */
};

struct gp_ring_cursor { /* per thread, zeroed at first; 16 bytes of thread-local storage */
    uint64_t turn;      /* sequence number + 1 of the chunk that the thread owns; 0: none */
    uint32_t used;
    uint32_t pad_;
};

/* chunks: zeroed shared memory, chunk_count a power of two.  0, -EINVAL. */
int gp_ring_init(struct gp_ring *ring, struct gp_wire_chunk *chunks, uint32_t chunk_count, uint64_t *lost);

/* Copies *event into the ring and fills its seq. 0; -EAGAIN: dropped and counted in *lost. No
 * system call, no lock. Threads: any, each with its own cursor. A signal handler that interrupted a
 * write must not write (the caller checks this). */
int gp_ring_write(struct gp_ring *ring, struct gp_ring_cursor *cursor, const struct gp_wire_event *event, uint32_t tid);

/* No chunk from there on was ever taken; may be more than there are. To look at such a chunk would
 * give it memory. Relaxed: a thread takes a chunk's number before it writes there, so a reader that
 * knows of an event sees its chunk's number. */
static inline uint64_t gp_ring_used(const struct gp_ring *ring)
{
    return __atomic_load_n(&ring->x_next, __ATOMIC_RELAXED);
}

/* Events committed since the start, over all chunks; keeps changing while writers run. */
uint64_t gp_ring_written(const struct gp_ring *ring);

#endif
