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

#include "base/compiler.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
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

#define GP_RING_WORDS (sizeof(struct gp_wire_event) / sizeof(uint64_t))
#define GP_RING_TID   (offsetof(struct gp_wire_event, tid) / sizeof(uint64_t))

/* gp_ring_write for a caller that has the event's words in registers, the first of which is not read: into the middle of
 * the chunk that the thread owns; turn and used: of its cursor. True: written, and the cursor's `used` is one more.
 * False: nothing was done; use gp_ring_write. */
static inline __attribute__((always_inline)) bool gp_ring_put(struct gp_ring *ring, uint64_t turn, uint32_t used,
                                                              const uint64_t words[GP_RING_WORDS])
{
    struct gp_wire_chunk *chunk = &ring->chunks[(turn - 1) & (ring->chunk_count - 1)];
    uint64_t idle = GP_CHUNK_STATE(turn, 0, used);
    /* [ring.A1] The last event of a chunk, which has a barrier of its own, is left to gp_ring_write. */
    if (GP_UNLIKELY(!turn || used + 1 >= GP_RING_EVENTS ||
                    !__atomic_compare_exchange_n(&chunk->state, &idle, GP_CHUNK_STATE(turn, 1, used), false,
                                                 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)))
        return false;
    GP_TESTPOINT("ring.busy");
    uint64_t *into = (uint64_t *)(void *)&chunk->events[used];
    __atomic_store_n(&into[0], (turn - 1) * GP_RING_EVENTS + used, __ATOMIC_RELEASE); /* [ring.R2] */
    GP_TESTPOINT("ring.word");
#pragma GCC unroll 8
    for (size_t i = 1; i < GP_RING_WORDS; i++) {
        __atomic_store_n(&into[i], words[i], __ATOMIC_RELEASE); /* [ring.R2] */
        GP_TESTPOINT("ring.word");
    }
    __atomic_store_n(&chunk->state, GP_CHUNK_STATE(turn, 0, used + 1), __ATOMIC_RELEASE); /* [ring.R1] */
    GP_TESTPOINT("ring.committed");
    return true;
}

/* Events committed since the start, over all chunks; keeps changing while writers run. */
uint64_t gp_ring_written(const struct gp_ring *ring);

#endif
