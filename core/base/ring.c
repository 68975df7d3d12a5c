/* SPDX-License-Identifier: MIT
 *
 * ring.c: the event ring's writing side. account/'s feed calls it for every event; it must never
 * wait, allocate or enter the kernel. Argument, picture and figures: docs/understand/ring.md.
 *
 * Every chunk keeps this invariant at every instant, even if its process is killed:
 *
 *      events ever committed in it = written_before + COUNT(state)
 *
 * Both words change in one 16-byte compare-and-swap when the chunk gets a new owner, and only COUNT
 * changes when an event is committed. The turn in `state` only rises, so no value of `state` occurs
 * twice.
 *
 * Partners (the reader's are in core/record/ringread.c):
 *
 *      [ring.R1] commit, release       pairs with [ring.A1] the next owner's swap and the reader's
 *                                      first load, acquire: a thread that sees n events committed
 *                                      sees their words.
 *      [ring.R2] event words, release  pairs with [ring.A2] the reader's copy, acquire: a reader
 *                                      that copies a word of a later turn sees that turn (or a
 *                                      later one) when it loads `state` again.
 *      [ring.R3] the swap, release     pairs with [ring.A3] a load of `state`, acquire: a thread
 *                                      that sees the new turn sees its written_before.
 *      [ring.F]  a chunk's last        pairs with [ring.H] the reader's loads after the clock: a
 *                commit, full barrier  reader that sees the thread's next event, which is in another
 *                                      chunk, with a time before its horizon, has seen this one.
 *                                      Otherwise the commit may still wait in the processor when the
 *                                      thread reads the clock for the next event.
 */
#include "base/ring.h"
#include "base/compiler.h"
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* A chunk is busy for some 10 ns of a running thread, or for as long as its owner is preempted
 * within these 10 ns. Sixteen busy chunks in a row would need sixteen threads preempted there. */
#define GP_RING_TRIES 16u

_Static_assert(GP_RING_TID * sizeof(uint64_t) == offsetof(struct gp_wire_event, tid),
               "tid is the low half of its word");
_Static_assert(offsetof(struct gp_wire_chunk, state) == 0, "state and written_before are swapped together");
_Static_assert(offsetof(struct gp_wire_chunk, written_before) == 8, "state and written_before are swapped together");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "state is the low half of the pair");

struct gp_ring_pair {
    uint64_t state;
    uint64_t before;
};

/* [ring.R3] [ring.A1] Replaces both words if both still equal `seen`. Written by hand on x86-64,
 * because the builtin needs -mcx16 and because the thread sanitizer's runtime emulates it under a
 * lock that the 8-byte accesses do not take. Every x86-64 processor since 2006 has the
 * instruction. */
static bool ring_swap(struct gp_wire_chunk *chunk, struct gp_ring_pair seen, struct gp_ring_pair want)
{
#ifdef __x86_64__
    bool done;
    __asm__ volatile("lock cmpxchg16b %[pair]"
                     : "=@ccz"(done), [pair] "+m"(*(struct gp_ring_pair *)(void *)chunk), "+a"(seen.state),
                       "+d"(seen.before)
                     : "b"(want.state), "c"(want.before)
                     : "memory");
    return done;
#else
    unsigned __int128 old = (unsigned __int128)seen.before << 64 | seen.state;
    unsigned __int128 new = (unsigned __int128)want.before << 64 | want.state;
    return __sync_bool_compare_and_swap((unsigned __int128 __attribute__((may_alias)) *)(void *)chunk, old, new);
#endif
}

int gp_ring_init(struct gp_ring *ring, struct gp_wire_chunk *chunks, uint32_t chunk_count, uint64_t *lost)
{
    if (!ring || !chunks || !lost || chunk_count == 0 || (chunk_count & (chunk_count - 1)) || (uintptr_t)chunks % 16)
        return -EINVAL;
    ring->chunks = chunks;
    ring->chunk_count = chunk_count;
    ring->x_lost = lost;
    __atomic_store_n(&ring->x_next, 0, __ATOMIC_RELAXED);
    return 0;
}

/* Takes the next chunk in order and marks it busy for its first event. It skips a chunk that is
 * busy, that a later turn has overtaken, or that changes at this moment; the sequence number of a
 * skipped chunk is never used. */
static GP_COLD struct gp_wire_chunk *ring_take(struct gp_ring *ring, struct gp_ring_cursor *cursor, uint32_t tid)
{
    for (uint32_t i = 0; i < GP_RING_TRIES; i++) {
        uint64_t sequence = __atomic_fetch_add(&ring->x_next, 1, __ATOMIC_RELAXED);
        uint64_t turn = sequence + 1;
        struct gp_wire_chunk *chunk = &ring->chunks[sequence & (ring->chunk_count - 1)];
        GP_TESTPOINT("ring.sequence");
        struct gp_ring_pair seen;
        seen.state = __atomic_load_n(&chunk->state, __ATOMIC_ACQUIRE); /* [ring.A3] */
        seen.before = __atomic_load_n(&chunk->written_before, __ATOMIC_RELAXED);
        GP_TESTPOINT("ring.seen");
        if (GP_CHUNK_BUSY(seen.state) || GP_CHUNK_TURN(seen.state) >= turn)
            continue;
        struct gp_ring_pair want = {GP_CHUNK_STATE(turn, 1, 0), seen.before + GP_CHUNK_COUNT(seen.state)};
        if (!ring_swap(chunk, seen, want))
            continue;
        GP_TESTPOINT("ring.taken");
        __atomic_store_n(&chunk->tid, tid, __ATOMIC_RELAXED);
        cursor->turn = turn;
        cursor->used = 0;
        return chunk;
    }
    cursor->turn = 0;
    return NULL;
}

/* The thread's chunk, marked busy; NULL: no chunk is available. */
static inline struct gp_wire_chunk *ring_enter(struct gp_ring *ring, struct gp_ring_cursor *cursor, uint32_t tid)
{
    if (GP_LIKELY(cursor->turn && cursor->used < GP_RING_EVENTS)) {
        struct gp_wire_chunk *chunk = &ring->chunks[(cursor->turn - 1) & (ring->chunk_count - 1)];
        uint64_t idle = GP_CHUNK_STATE(cursor->turn, 0, cursor->used);
        if (GP_LIKELY(__atomic_compare_exchange_n(&chunk->state, &idle, GP_CHUNK_STATE(cursor->turn, 1, cursor->used),
                                                  false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)))
            return chunk;
    }
    return ring_take(ring, cursor, tid);
}

int gp_ring_write(struct gp_ring *ring, struct gp_ring_cursor *cursor, const struct gp_wire_event *event, uint32_t tid)
{
    struct gp_wire_chunk *chunk = ring_enter(ring, cursor, tid);
    if (GP_UNLIKELY(!chunk)) {
        __atomic_fetch_add(ring->x_lost, 1, __ATOMIC_RELAXED);
        return -EAGAIN;
    }
    GP_TESTPOINT("ring.busy");
    uint64_t words[GP_RING_WORDS];
    memcpy(words, event, sizeof words);
    words[0] = (cursor->turn - 1) * GP_RING_EVENTS + cursor->used;
    words[GP_RING_TID] = (words[GP_RING_TID] & ~(uint64_t)UINT32_MAX) | tid;
    uint64_t *into = (uint64_t *)(void *)&chunk->events[cursor->used];
#pragma GCC unroll 8
    for (size_t i = 0; i < GP_RING_WORDS; i++) {
        __atomic_store_n(&into[i], words[i], __ATOMIC_RELEASE); /* [ring.R2] */
        GP_TESTPOINT("ring.word");
    }
    cursor->used++;
    uint64_t idle = GP_CHUNK_STATE(cursor->turn, 0, cursor->used);
#ifndef GP_RING_MUTANT_LATE /* tests/torture/inorder_mutant.c */
    if (GP_UNLIKELY(cursor->used == GP_RING_EVENTS))
        __atomic_exchange_n(&chunk->state, idle, __ATOMIC_SEQ_CST); /* [ring.F] [ring.R1] */
    else
#endif
        __atomic_store_n(&chunk->state, idle, __ATOMIC_RELEASE); /* [ring.R1] */
    GP_TESTPOINT("ring.committed");
    return 0;
}

uint64_t gp_ring_written(const struct gp_ring *ring)
{
    uint64_t written = 0, used = gp_ring_used(ring);
    for (uint32_t i = 0; i < ring->chunk_count && i < used; i++) {
        const struct gp_wire_chunk *chunk = &ring->chunks[i];
        uint64_t state = __atomic_load_n(&chunk->state, __ATOMIC_ACQUIRE); /* [ring.A3] */
        for (;;) {
            /* Acquire, so that the second load of `state` comes after this one. Within a turn the
             * word is constant. */
            uint64_t before = __atomic_load_n(&chunk->written_before, __ATOMIC_ACQUIRE);
            uint64_t again = __atomic_load_n(&chunk->state, __ATOMIC_ACQUIRE);
            if (GP_CHUNK_TURN(again) == GP_CHUNK_TURN(state)) {
                written += before + GP_CHUNK_COUNT(state);
                break;
            }
            state = again;
        }
    }
    return written;
}
