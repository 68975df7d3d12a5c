/* SPDX-License-Identifier: MIT
 *
 * fakedev.h: a backend for the caching allocator that trusts nobody.  Memory is numbers: driver allocations, address
 * ranges, physical handles and mappings are records, streams are pairs of counters, a fence is what was submitted when
 * it was made.  Whatever the cache does that a driver would refuse, or that would let the device write into somebody
 * else's memory, is a fault; the first one is kept as text.
 *
 * Small driver allocations are packed closely and addresses are used again at once (as the driver does): two segments
 * can share a 2 MiB page, and a stale record meets new memory.
 *
 * Threads: all functions lock; the hooks run unlocked.
 */
#ifndef GP_TEST_LIB_FAKEDEV_H
#define GP_TEST_LIB_FAKEDEV_H

#include "cache/cache.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKEDEV_STREAMS 64 /* incarnations: a stream that was destroyed and made again is another one */
#define FAKEDEV_BASE    (1ull << 40)
#define FAKEDEV_ARENA   (1ull << 44) /* all addresses lie in [BASE, BASE + ARENA) */
#define FAKEDEV_FAILED  999u         /* what a scripted failure returns when nothing else is said */

enum fakedev_call {
    FAKEDEV_ALLOCATE,
    FAKEDEV_FREE,
    FAKEDEV_RESERVE,
    FAKEDEV_UNRESERVE,
    FAKEDEV_CREATE,
    FAKEDEV_DESTROY,
    FAKEDEV_MAP,
    FAKEDEV_UNMAP,
    FAKEDEV_RECORD,
    FAKEDEV_QUERY,
    FAKEDEV_WAIT,
    FAKEDEV_MEMORY,
    FAKEDEV_CALLS
};

struct fakedev_range {
    uint64_t address, bytes;
    uint64_t handle; /* mapping: its handle; range: 0 */
    uint32_t group;  /* mapping: one number for each call of map, for "undone as a whole" */
};

struct fakedev_list {
    struct fakedev_range *at; /* by address */
    size_t count, room;
};

struct fakedev_handle {
    uint64_t id, bytes;
    bool mapped;
};

struct fakedev_fence {
    uint64_t id;
    bool excused; /* a call about it was refused, so nobody can say whose it is now */
    uint64_t submitted[FAKEDEV_STREAMS];
};

struct fakedev_stream {
    uint64_t id;
    bool gone;
    uint64_t submitted, completed; /* atomic */
};

struct fakedev {
    pthread_mutex_t mutex;
    uint64_t page_bytes, capacity;
    struct fakedev_list linear, ranges, mappings;
    struct fakedev_handle *handles;
    size_t handle_count, handle_room;
    struct fakedev_fence *fences;
    size_t fence_count, fence_room;
    struct fakedev_stream streams[FAKEDEV_STREAMS];
    unsigned stream_count;
    uint64_t next_id;
    uint32_t next_group;
    uint64_t held, held_peak;
    uint64_t calls[FAKEDEV_CALLS], call_count;
    bool capturing; /* atomic: every call answers GP_BACKEND_FORBIDDEN */
    bool lies;      /* every fence is called reached at once: the negative control of tests that look for early reuse */

    /* Script: the call with this number (1 is the first, of all kinds, or of one kind) fails with code. */
    uint64_t fail_at, fail_kind_at[FAKEDEV_CALLS];
    uint32_t fail_code;
    uint64_t failed;

    /* Hooks; arg is handed through.  enter: at the start of every call.  leave: device memory is about to leave; it
     * must not be in use.  Returns NULL or what is wrong. */
    void *arg;
    void (*enter)(void *arg, enum fakedev_call call);
    const char *(*leave)(void *arg, uint64_t address, uint64_t bytes);

    uint64_t faults; /* atomic */
    char fault[256]; /* the first */
};

int fakedev_init(struct fakedev *dev, uint64_t capacity, uint64_t page_bytes);
void fakedev_fini(struct fakedev *dev);
struct gp_backend fakedev_backend(struct fakedev *dev);
void fakedev_fault(struct fakedev *dev, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Streams.  index is what the counters go by; a number that nobody opened is a fault. */
unsigned fakedev_stream_open(struct fakedev *dev, uint64_t id);
void fakedev_stream_close(struct fakedev *dev, uint64_t id);
unsigned fakedev_stream_index(struct fakedev *dev, uint64_t id);
uint64_t fakedev_submit(struct fakedev *dev, unsigned index); /* one piece of work; its number */
void fakedev_complete(struct fakedev *dev, unsigned index, uint64_t upto);
void fakedev_complete_all(struct fakedev *dev);
bool fakedev_done(struct fakedev *dev, unsigned index, uint64_t number);

/* Is every byte there?  linear: inside one driver allocation. */
bool fakedev_holds(struct fakedev *dev, uint64_t address, uint64_t bytes);
bool fakedev_linear(struct fakedev *dev, uint64_t address, uint64_t bytes, struct fakedev_range *out);
bool fakedev_holds_any(struct fakedev *dev, uint64_t address, uint64_t bytes);
/* The context died: everything is gone. */
void fakedev_die(struct fakedev *dev);
/* Says what is still held (ranges: also address ranges); 0 when nothing. */
size_t fakedev_left(struct fakedev *dev, bool ranges, char *what, size_t what_bytes);

#endif
