/* SPDX-License-Identifier: MIT
 *
 * fakedev.h: a backend for the caching allocator that checks every call. It has no memory, only records:
 * of driver allocations, address ranges, physical handles and mappings. A stream is a pair of counters; a fence
 * has the counters' values at the time when it was made. A call that a driver would refuse, or that would let
 * the device write into memory of another owner, is a fault. The text of the first fault is kept.
 *
 * As the driver does, it packs small allocations closely and reuses addresses at once. So two segments can
 * share a 2 MiB page, and a stale record can match new memory.
 *
 * Threads: all functions lock; the hooks run without the lock.
 */
#ifndef GP_TEST_LIB_FAKEDEV_H
#define GP_TEST_LIB_FAKEDEV_H

#include "cache/cache.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKEDEV_STREAMS 64 /* counts incarnations: a stream that is destroyed and made again is another stream */
#define FAKEDEV_BASE    (1ull << 40)
#define FAKEDEV_ARENA   (1ull << 44) /* all addresses lie in [BASE, BASE + ARENA) */
#define FAKEDEV_FAILED  999u         /* the error of a scripted failure, by default */

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
    bool excused; /* a call about it was refused, so its owner is unknown */
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
    unsigned recorded_streams; /* in the last fence; 0: all */
    bool capturing;            /* atomic: every call answers GP_BACKEND_FORBIDDEN */
    bool lies; /* every fence counts as reached at once: the negative control of tests for early reuse */

    /* Script: the call with this number (1: the first) fails with code. Counts calls of all kinds, or of one. */
    uint64_t fail_at, fail_kind_at[FAKEDEV_CALLS];
    uint32_t fail_code;
    uint64_t failed;

    /* Hooks, which get arg. enter: called at the start of every call. leave: called before device memory is
     * released, which must not be in use; returns NULL or the text of an error. */
    void *arg;
    void (*enter)(void *arg, enum fakedev_call call);
    const char *(*leave)(void *arg, uint64_t address, uint64_t bytes);

    uint64_t faults; /* atomic */
    char fault[256]; /* of the first fault */
};

int fakedev_init(struct fakedev *dev, uint64_t capacity, uint64_t page_bytes);
void fakedev_fini(struct fakedev *dev);
struct gp_backend fakedev_backend(struct fakedev *dev);
void fakedev_fault(struct fakedev *dev, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Streams. The counters are per index. A number that was not opened is a fault. */
unsigned fakedev_stream_open(struct fakedev *dev, uint64_t id);
void fakedev_stream_close(struct fakedev *dev, uint64_t id);
unsigned fakedev_stream_index(struct fakedev *dev, uint64_t id);
uint64_t fakedev_submit(struct fakedev *dev, unsigned index); /* submits one piece of work; returns its number */
void fakedev_complete(struct fakedev *dev, unsigned index, uint64_t upto);
void fakedev_complete_all(struct fakedev *dev);
bool fakedev_done(struct fakedev *dev, unsigned index, uint64_t number);

/* Whether all bytes are mapped. linear: inside one driver allocation. */
bool fakedev_holds(struct fakedev *dev, uint64_t address, uint64_t bytes);
bool fakedev_linear(struct fakedev *dev, uint64_t address, uint64_t bytes, struct fakedev_range *out);
bool fakedev_holds_any(struct fakedev *dev, uint64_t address, uint64_t bytes);
/* The context is destroyed, and everything in it. */
void fakedev_die(struct fakedev *dev);
/* Counts the objects that are still held (ranges: address ranges too) and describes them. */
size_t fakedev_left(struct fakedev *dev, bool ranges, char *what, size_t what_bytes);

#endif
