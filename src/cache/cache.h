/* SPDX-License-Identifier: MIT
 *
 * cache.h: the caching allocator of one device.  One mechanism; what distinguishes PyTorch's allocator from Paddle's or
 * from ours is a policy (policy.h).  It knows no CUDA: memory comes from a backend table, streams and fences are
 * numbers.
 *
 * Order.  A block is given for use on one stream: work that a caller submits to that stream from now on may use it.
 * Freed with GP_FREE_ORDERED it may be given again at once to the same stream, because the stream keeps its work in
 * order (PyTorch's rule, CUDACachingAllocator).  Every other reuse needs a proof that earlier work is done: a fence of
 * the backend that was recorded after the free and has been reached.  So: another stream; a block that other streams
 * used (gp_cache_record_stream); pages that are unmapped; and every block freed with GP_FREE_UNORDERED, as cuMemFree's
 * promise is about all streams.  backend.free waits for the memory's work by itself, as cuMemFree does.
 *
 * Locks.  The backend is called with no lock held that alloc or free take on their fast path; a backend may be slow,
 * and may be re-entered by its own callbacks as long as these do not call the cache on the same thread.
 *
 * Threads: every function may be called from any thread, unless it says otherwise.  Memory for the cache's own records
 * comes from mmap; nothing here calls malloc.
 *
 * Errors: 0, or what the backend returned (a CUresult in the product), unchanged.
 */
#ifndef GP_CACHE_CACHE_H
#define GP_CACHE_CACHE_H

#include "account/gauge.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_cache;
struct gp_policy;
struct gp_counter;

/* ---- backend: who gives memory and time ------------------------------------------------------------------------ */

/* Numbers are CUDA's, since they are handed through to a program that expects them. */
#define GP_BACKEND_INVALID   1u
#define GP_BACKEND_OOM       2u
#define GP_BACKEND_BUSY      600u /* query: not reached yet (CUDA_ERROR_NOT_READY) */
#define GP_BACKEND_FORBIDDEN 900u /* not now: a capture is under way (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) */

struct gp_backend {
    void *self;
    uint64_t
        page_bytes; /* granularity of create and map (2 MiB); 0: no virtual memory management, the calls may be NULL */

    /* One driver allocation.  free waits until no work uses it. */
    uint32_t (*allocate)(void *self, uint64_t bytes, uint64_t *address);
    uint32_t (*free)(void *self, uint64_t address);

    /* An address range without memory; physical memory by handle; a handle seen at an address, readable and writable by
     * the device (and its peers, which is the backend's affair).  bytes and addresses are multiples of page_bytes; a
     * mapping is undone as a whole. */
    uint32_t (*reserve)(void *self, uint64_t bytes, uint64_t *address);
    uint32_t (*unreserve)(void *self, uint64_t address, uint64_t bytes);
    uint32_t (*create)(void *self, uint64_t bytes, uint64_t *handle);
    uint32_t (*destroy)(void *self, uint64_t handle);
    uint32_t (*map)(void *self, uint64_t address, uint64_t bytes, const uint64_t *handles, const uint64_t *handle_bytes,
                    unsigned count); /* all or nothing; one access call for the whole range */
    uint32_t (*unmap)(void *self, uint64_t address, uint64_t bytes);

    /* A fence: reached when all work is done that was submitted to these streams before.  count 0: to any stream of the
     * device. query: 0 reached, GP_BACKEND_BUSY, or an error; wait blocks.  Reached or failed, the fence is gone. */
    uint32_t (*record)(void *self, const uint64_t *streams, unsigned count, uint64_t *fence);
    uint32_t (*query)(void *self, uint64_t fence);
    uint32_t (*wait)(void *self, uint64_t fence);

    /* What the driver has: free and total bytes of the device. */
    uint32_t (*memory)(void *self, uint64_t *free_bytes, uint64_t *total_bytes);
};

/* ---- what is told to the outside -------------------------------------------------------------------------------- */

/* Called without any lock of the cache, on the thread whose call caused it; not for alloc and free of blocks, which the
 * caller sees by itself. */
enum gp_cache_event_type {
    GP_CACHE_SEGMENT_ALLOC, /* backend.allocate succeeded */
    GP_CACHE_SEGMENT_FREE,
    GP_CACHE_SEGMENT_MAP, /* physical pages appeared in a growable segment */
    GP_CACHE_SEGMENT_UNMAP,
    GP_CACHE_RETRY,    /* everything idle was given back and the request tried again (num_alloc_retries) */
    GP_CACHE_SYNC_ALL, /* waited for all streams (num_sync_all_streams) */
    GP_CACHE_OOM,      /* the request failed for good */
};
struct gp_cache_event {
    enum gp_cache_event_type type;
    uint64_t address, bytes, stream;
};

struct gp_cache_setup {
    const struct gp_policy *policy; /* copied */
    struct gp_backend backend;      /* copied */
    /* The device's gauges (account/gauge.h): every statistic of torch.cuda.memory_stats, moved together with the block.
     * NULL: the cache makes its own, see gp_cache_gauges. */
    struct gp_counter *gauges;
    uint64_t limit_bytes; /* most bytes that may be reserved; 0: no limit */
    bool tags;            /* blocks keep the tag and time of their request: one more cache line each way */
    void *listener;
    void (*listen)(void *listener, const struct gp_cache_event *event); /* may be NULL */
};

/* 0 or -errno (-ENOMEM). */
int gp_cache_new(struct gp_cache **out, const struct gp_cache_setup *setup);
/* Gives everything to the backend, waiting for its work, and forgets.  No other call may be under way. */
void gp_cache_free(struct gp_cache *cache);
/* The memory is gone already (its context died): the records go, the gauges are corrected, the backend is not called.
 * The cache is empty and usable afterwards. */
void gp_cache_forget(struct gp_cache *cache);
struct gp_counter *gp_cache_gauges(struct gp_cache *cache);
const struct gp_policy *gp_cache_policy(const struct gp_cache *cache);

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

#define GP_STREAM_ANY UINT64_MAX /* request: the caller names no stream, work of any may use the block (cuMemAlloc) */

/* The block is a backend.allocate of its own, not split and not joined (for memory that may be exported: an IPC handle
 * covers a whole driver allocation).  It is cached whole. */
#define GP_REQUEST_DEDICATED 1u
/* Growable segments may not be used: every segment comes from backend.allocate. */
#define GP_REQUEST_LINEAR 2u

struct gp_request {
    uint64_t bytes; /* > 0 */
    uint64_t stream;
    uint64_t pool;  /* 0, or a private pool (below) */
    unsigned shard; /* the caller's counter shard: gp_thread.number */
    unsigned flags;
    uint64_t tag, time_ns; /* the caller's own; kept if the cache has tags */
};

struct gp_grant {
    uint64_t address;
    uint64_t bytes; /* of the block: >= the request, rounded by the policy */
    uint64_t requested_bytes;
    uint64_t stream;
    uint64_t tag; /* the request's; 0 without tags */
};

/* 0 and *out; GP_BACKEND_OOM after every idle byte was given back and the request tried once more; GP_BACKEND_FORBIDDEN
 * if it would have needed the backend and that refused.  Sizes beyond 2^60 fail with GP_BACKEND_OOM and no call
 * (PyTorch's rule). */
uint32_t gp_cache_alloc(struct gp_cache *cache, const struct gp_request *request, struct gp_grant *out);

enum gp_free_order { GP_FREE_ORDERED, GP_FREE_UNORDERED };

/* What the free of a block gave up is written to *out (may be NULL).  false: no block begins there (it is not ours, or
 * was freed before): nothing happened. */
bool gp_cache_release(struct gp_cache *cache, uint64_t address, enum gp_free_order order, unsigned shard,
                      struct gp_grant *out);

/* Work on `stream` uses the block too: when it is freed, it waits for that stream.  The block's own stream is ignored.
 * false: no such block. */
bool gp_cache_record_stream(struct gp_cache *cache, uint64_t address, uint64_t stream);

/* The live block that contains the address. */
bool gp_cache_find(struct gp_cache *cache, uint64_t address, struct gp_grant *out);
/* Is the address inside memory of this cache, live or idle? */
bool gp_cache_owns(struct gp_cache *cache, uint64_t address);
/* The driver allocation that a live block lies in; dedicated: it is the block itself. */
bool gp_cache_segment_of(struct gp_cache *cache, uint64_t address, uint64_t *base, uint64_t *bytes, bool *dedicated);

/* The stream is being destroyed: its idle memory may serve others after the next fence. */
void gp_cache_stream_gone(struct gp_cache *cache, uint64_t stream);

/* ---- private pools: graph capture (PyTorch's beginAllocateToPool .. releasePool) ------------------------------- */

/* Memory of a pool serves requests that name the pool alone; it counts in the same gauges.  begin makes the pool or
 * takes another reference; release drops one; without references and live blocks its memory can be given back. 0,
 * -ENOMEM, -ENOENT. */
int gp_cache_pool_begin(struct gp_cache *cache, uint64_t pool);
int gp_cache_pool_release(struct gp_cache *cache, uint64_t pool);

/* ---- size ------------------------------------------------------------------------------------------------------- */

/* Gives idle memory back to the backend, waiting for work, until at most keep_bytes are idle.  Returns the bytes given
 * back. */
uint64_t gp_cache_trim(struct gp_cache *cache, uint64_t keep_bytes);
void gp_cache_set_limit(struct gp_cache *cache, uint64_t limit_bytes);
uint64_t gp_cache_limit(const struct gp_cache *cache);

struct gp_cache_numbers {
    uint64_t reserved_bytes;   /* held from the backend */
    uint64_t allocated_bytes;  /* live blocks */
    uint64_t waiting_bytes;    /* freed, waiting for a fence */
    uint64_t idle_bytes;       /* reserved - allocated - waiting */
    uint64_t releasable_bytes; /* of the idle: could go back to the backend now */
    uint64_t largest_idle_bytes;
    uint64_t idle_pieces;
    uint64_t pinning_blocks; /* live blocks in segments (pages, where growable) that also hold idle bytes */
    uint64_t retries, syncs, device_allocs, device_frees; /* since start or the last gp_cache_reset_counts */
    uint64_t backend_calls;                               /* of all kinds */
};
void gp_cache_numbers(struct gp_cache *cache, struct gp_cache_numbers *out);
void gp_cache_reset_counts(struct gp_cache *cache);

/* ---- looking inside: snapshots, the OOM report, tests ----------------------------------------------------------- */

enum gp_cache_state { GP_CACHE_LIVE, GP_CACHE_WAITING, GP_CACHE_IDLE, GP_CACHE_UNMAPPED };

struct gp_cache_block {
    uint64_t address, bytes, requested_bytes, stream;
    enum gp_cache_state state;
    uint64_t tag, time_ns; /* live ones */
};
struct gp_cache_segment {
    uint64_t address, bytes, stream, pool;
    bool growable, dedicated, small;
};
/* Every segment in address order, each followed by its blocks in address order, which cover it without gap.  Stops when
 * a visitor returns false.  The visitors run under the cache's locks and may not call it. */
void gp_cache_walk(struct gp_cache *cache, void *arg,
                   bool (*segment)(void *arg, const struct gp_cache_segment *segment),
                   bool (*block)(void *arg, const struct gp_cache_block *block));

/* The same while others go on: the lock is given back every GP_CACHE_REST visits or fewer, and rest (may be NULL) runs
 * without it.  The visitors see each segment filled without gap; of what came or went meanwhile they may see the one or
 * the other, what came where a freed block was as idle, and the rest of a segment that went as idle.  What a thread has
 * cached counts as idle, block by block. */
#define GP_CACHE_REST                                                                                                  \
    1024u /* some 20 us of the lock; with 64 a busy thread, who goes first each time, makes a million blocks take a    \
             second */
void gp_cache_iterate(struct gp_cache *cache, void *arg,
                      bool (*segment)(void *arg, const struct gp_cache_segment *segment),
                      bool (*block)(void *arg, const struct gp_cache_block *block), void (*rest)(void *arg));

/* Checks every invariant while nothing else runs: 0, or -1 with the first broken one in why. */
int gp_cache_check(struct gp_cache *cache, char *why, size_t why_bytes);

#endif
