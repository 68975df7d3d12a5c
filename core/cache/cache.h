/* SPDX-License-Identifier: MIT
 *
 * cache.h: the caching allocator of one device. There is one mechanism; a policy (policy.h) makes
 * it behave like PyTorch's allocator, Paddle's or gpuprof's own. It does not know CUDA: memory
 * comes from a table of backend functions, and streams and fences are numbers.
 *
 * Order. A block is allocated for one stream: work that the caller submits to that stream
 * afterwards may use it. A block freed with GP_FREE_ORDERED may be reused at once on the same
 * stream, because a stream runs its work in order (PyTorch's rule, CUDACachingAllocator). Every
 * other reuse needs a proof that earlier work is done: a fence of the backend that was recorded
 * after the free and has been reached. This applies to reuse on another stream, to a block that
 * other streams used (gp_cache_record_stream), to pages before they are unmapped, and to every
 * block freed with GP_FREE_UNORDERED, because cuMemFree's promise covers all streams. backend.free
 * waits for the memory's work itself, as cuMemFree does.
 *
 * Locks. The cache calls the backend without any lock that the fast path of alloc or free takes. A
 * backend may be slow. Its own callbacks may run inside a call as long as they do not call the
 * cache on the same thread.
 *
 * Threads: every function may be called from any thread, unless its comment says otherwise. Memory
 * for the cache's own records comes from mmap; nothing here calls malloc.
 *
 * Errors: 0, or the backend's error code (a CUresult in the product), unchanged.
 */
#ifndef GP_CACHE_CACHE_H
#define GP_CACHE_CACHE_H

#include "base/gauge.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_block;
struct gp_cache;
struct gp_policy;
struct gp_counter;

/* ---- the backend: the source of memory and fences
 * --------------------------------------------------------------- */

/* The numbers are CUDA's, because they are passed on to a program that expects them. */
#define GP_BACKEND_INVALID   1u
#define GP_BACKEND_OOM       2u
#define GP_BACKEND_BUSY      600u /* query: not reached yet (CUDA_ERROR_NOT_READY) */
#define GP_BACKEND_FORBIDDEN 900u /* not now: a stream capture is active (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) */

struct gp_backend {
    void *self;
    /* granularity of create and map (2 MiB); 0: no virtual memory management, the functions may be
     * NULL */
    uint64_t page_bytes;

    /* One driver allocation. free waits until no work uses it. */
    uint32_t (*allocate)(void *self, uint64_t bytes, uint64_t *address);
    uint32_t (*free)(void *self, uint64_t address);

    /* reserve: an address range without memory. create: physical memory, named by a handle. map
     * makes handles visible at an address, readable and writable by the device (and by its peers,
     * if the backend chooses so). bytes and addresses are multiples of page_bytes. A mapping is
     * unmapped as a whole. */
    uint32_t (*reserve)(void *self, uint64_t bytes, uint64_t *address);
    uint32_t (*unreserve)(void *self, uint64_t address, uint64_t bytes);
    uint32_t (*create)(void *self, uint64_t bytes, uint64_t *handle);
    uint32_t (*destroy)(void *self, uint64_t handle);
    uint32_t (*map)(void *self, uint64_t address, uint64_t bytes, const uint64_t *handles, const uint64_t *handle_bytes,
                    unsigned count); /* all or nothing; one access call for the whole range */
    uint32_t (*unmap)(void *self, uint64_t address, uint64_t bytes);

    /* A fence is reached when all work is done that was submitted to these streams before it was
     * recorded; count 0: to any stream of the device. query returns 0 (reached), GP_BACKEND_BUSY or
     * an error; wait blocks. The fence no longer exists once it is reached or has failed. */
    uint32_t (*record)(void *self, const uint64_t *streams, unsigned count, uint64_t *fence);
    uint32_t (*query)(void *self, uint64_t fence);
    uint32_t (*wait)(void *self, uint64_t fence);

    /* Free and total bytes of the device, as the driver reports them. */
    uint32_t (*memory)(void *self, uint64_t *free_bytes, uint64_t *total_bytes);
};

/* ---- events
 * ----------------------------------------------------------------------------------------------
 * --------- */

/* The listener is called on the thread whose call caused the event, without any lock of the cache
 * except in gp_cache_forget and gp_cache_free: it must not call the cache. Allocations and frees of
 * blocks are not reported: the caller knows them already. */
enum gp_cache_event_type {
    GP_CACHE_SEGMENT_ALLOC, /* backend.allocate succeeded */
    GP_CACHE_SEGMENT_FREE,
    GP_CACHE_SEGMENT_MAP, /* physical pages were mapped into a growable segment */
    GP_CACHE_SEGMENT_UNMAP,
    GP_CACHE_RETRY,    /* all idle memory was released and the request was tried again (num_alloc_retries) */
    GP_CACHE_SYNC_ALL, /* waited for all streams (num_sync_all_streams) */
    GP_CACHE_OOM,      /* the request failed finally */
    GP_CACHE_LOST,     /* a block that was live in gp_cache_forget or gp_cache_free */
};
struct gp_cache_event {
    enum gp_cache_event_type type;
    uint64_t address, bytes, stream;
    uint64_t time_ns;         /* of the change of the gauges; 0: no gauge changed, or the setup wants no times */
    uint64_t requested_bytes; /* of a lost block */
    uint64_t tag;             /* of a lost block, and of the request for which memory was allocated or mapped */
};

struct gp_cache_setup {
    const struct gp_policy *policy; /* copied */
    struct gp_backend backend;      /* copied */
    /* The device's gauges (core/base/gauge.h): every statistic of torch.cuda.memory_stats, updated
     * together with the block. NULL: the cache makes its own. */
    struct gp_counter *gauges;
    /* Nobody asks for the statistics: the gauges stay at 0, unless the policy has thread caches. */
    bool uncounted;
    /* One thread makes all calls, so no lock is taken. */
    bool alone;
    uint64_t limit_bytes; /* most bytes that may be reserved; 0: no limit */
    /* grants and events have the time at which the gauges changed (base/clock.h): sorted by it, they
     * add up to the statistics and their peaks */
    bool times;
    /* Whether the caller wants the time of a grant now; NULL: always. A grant that it does not want may
     * have time 0. Called inside a gate: it only looks. */
    bool (*wants_time)(void);
    void *listener;
    void (*listen)(void *listener, const struct gp_cache_event *event); /* may be NULL */
};

/* 0 or -errno (-ENOMEM). */
int gp_cache_new(struct gp_cache **out, const struct gp_cache_setup *setup);
/* Waits for outstanding work, returns all memory to the backend and frees the cache. No other call
 * may be running. */
void gp_cache_free(struct gp_cache *cache);
/* The memory no longer exists (its context was destroyed): drops the records and corrects the
 * gauges without calling the backend. The cache is empty and usable afterwards. */
void gp_cache_forget(struct gp_cache *cache);
const struct gp_policy *gp_cache_policy(const struct gp_cache *cache);

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

#define GP_STREAM_ANY UINT64_MAX /* request: no particular stream; work of any stream may use the block (cuMemAlloc) */

/* The block is a backend.allocate of its own, neither split nor joined (for memory that may be
 * exported: an IPC handle covers a whole driver allocation). It is cached as a whole. */
#define GP_REQUEST_DEDICATED 1u
/* Do not use growable segments: every segment comes from backend.allocate. */
#define GP_REQUEST_LINEAR 2u

struct gp_request {
    uint64_t bytes; /* > 0 */
    uint64_t stream;
    uint64_t pool;  /* 0, or a private pool (below) */
    unsigned shard; /* the caller's counter shard: gp_thread.number */
    unsigned flags;
    uint64_t tag; /* the caller's data; kept from the first request on that has a tag */
};

struct gp_grant {
    uint64_t address;
    uint64_t bytes; /* of the block: >= the request, rounded by the policy */
    uint64_t requested_bytes;
    uint64_t stream;
    uint64_t tag;           /* the request's */
    uint64_t time_ns;       /* when the gauges changed, so between the events of its segment; 0: no times */
    struct gp_block *block; /* for gp_cache_release_block */
};

/* Returns 0 and fills *out. GP_BACKEND_OOM: the request failed again after all idle memory was
 * released. GP_BACKEND_FORBIDDEN: the request needed a backend call that the backend refused. Sizes
 * beyond 2^60 fail with GP_BACKEND_OOM and no backend call (PyTorch's rule). */
uint32_t gp_cache_alloc(struct gp_cache *cache, const struct gp_request *request, struct gp_grant *out);
/* The same, from the thread's own cache alone: no lock is taken, the backend is not called, and errno
 * stays. false: nothing changed; gp_cache_alloc may serve the request. */
bool gp_cache_give(struct gp_cache *cache, const struct gp_request *request, struct gp_grant *out);

/* GP_FREE_BY_STREAM: unordered if the block was allocated for any stream, else ordered.
 * GP_FREE_RETURN: as unordered; a block that is a backend.allocate of its own also goes back to the
 * backend at once, for callers that cache memory themselves. */
enum gp_free_order { GP_FREE_ORDERED, GP_FREE_UNORDERED, GP_FREE_BY_STREAM, GP_FREE_RETURN };

/* Frees the block that starts at the address and describes it in *out (may be NULL). false: no
 * block of this cache starts there, or it was freed before; nothing changed. */
bool gp_cache_release(struct gp_cache *cache, uint64_t address, enum gp_free_order order, unsigned shard,
                      struct gp_grant *out);
/* The same for a block that was granted, is live, and is named by its grant: nothing is looked up.  Of a cache whose setup
 * says `alone`. */
void gp_cache_release_block(struct gp_cache *cache, struct gp_block *block, enum gp_free_order order, unsigned shard);
/* As gp_cache_release, into the thread's own cache alone; a lock is taken only if that is full, and errno stays.
 * out: not NULL. false: nothing changed; gp_cache_release may know the block. */
bool gp_cache_take(struct gp_cache *cache, uint64_t address, enum gp_free_order order, unsigned shard,
                   struct gp_grant *out);

/* Work on `stream` uses the block too, so the block waits for that stream when it is freed. Does
 * nothing for the block's own stream. false: no live block starts there. */
bool gp_cache_record_stream(struct gp_cache *cache, uint64_t address, uint64_t stream);

/* The live block that contains the address. */
bool gp_cache_find(struct gp_cache *cache, uint64_t address, struct gp_grant *out);
/* Does a block, live or idle, begin at the address?  Takes no lock, for a thread that may hold one. */
bool gp_cache_begins(const struct gp_cache *cache, uint64_t address);
/* Is the address inside memory of this cache, live or idle? */
bool gp_cache_owns(struct gp_cache *cache, uint64_t address);
/* The driver allocation that a live block lies in; dedicated: it is the block itself. */
bool gp_cache_segment_of(struct gp_cache *cache, uint64_t address, uint64_t *base, uint64_t *bytes, bool *dedicated);

/* The stream is being destroyed: other streams may reuse its idle memory after the next fence. */
void gp_cache_stream_gone(struct gp_cache *cache, uint64_t stream);

/* ---- private pools: graph capture (PyTorch's beginAllocateToPool .. releasePool) ------------------------------- */

/* Memory of a pool serves only requests that name the pool; it counts in the same gauges. begin
 * creates the pool or takes another reference; release drops one. A pool's memory can be released
 * when the pool has no references and no live blocks. 0, -ENOMEM, -ENOENT. */
int gp_cache_pool_begin(struct gp_cache *cache, uint64_t pool);
int gp_cache_pool_release(struct gp_cache *cache, uint64_t pool);

/* ---- size ------------------------------------------------------------------------------------------------------- */

/* Waits for outstanding work and returns idle memory to the backend until at most keep_bytes are
 * idle. Returns the bytes released. */
uint64_t gp_cache_trim(struct gp_cache *cache, uint64_t keep_bytes);
void gp_cache_set_limit(struct gp_cache *cache, uint64_t limit_bytes);
uint64_t gp_cache_limit(const struct gp_cache *cache);

struct gp_cache_numbers {
    uint64_t reserved_bytes;   /* held from the backend */
    uint64_t allocated_bytes;  /* live blocks */
    uint64_t waiting_bytes;    /* freed, waiting for a fence */
    uint64_t idle_bytes;       /* reserved - allocated - waiting */
    uint64_t releasable_bytes; /* the part of idle_bytes that could go back to the backend now */
    uint64_t largest_idle_bytes;
    uint64_t idle_pieces;
    uint64_t pinning_blocks; /* live blocks in segments (pages, where growable) that also hold idle bytes */
    uint64_t retries, syncs, device_allocs, device_frees; /* since the start */
    uint64_t backend_calls;                               /* of all kinds */
};
void gp_cache_numbers(struct gp_cache *cache, struct gp_cache_numbers *out);

/* ---- inspection: snapshots, the OOM report, tests
 * ------------------------------------------------------------------ */

enum gp_cache_state { GP_CACHE_LIVE, GP_CACHE_WAITING, GP_CACHE_IDLE, GP_CACHE_UNMAPPED };

struct gp_cache_block {
    uint64_t address, bytes, requested_bytes, stream;
    enum gp_cache_state state;
    uint64_t tag, time_ns; /* of live blocks */
};
struct gp_cache_segment {
    uint64_t address, bytes, stream, pool;
    bool growable, dedicated, small;
};
/* Visits every segment in address order, each followed by its blocks in address order, which cover
 * it without gaps. Stops when a visitor returns false. The visitors run under the cache's locks and
 * must not call the cache. */
void gp_cache_walk(struct gp_cache *cache, void *arg,
                   bool (*segment)(void *arg, const struct gp_cache_segment *segment),
                   bool (*block)(void *arg, const struct gp_cache_block *block));

/* Visits per hold of the lock: about 20 us. With 64 visits, a busy thread that gets the lock first each
 * time makes a walk over a million blocks take a second. */
#define GP_CACHE_REST 1024u
/* Does the same while other threads use the cache: releases the lock after at most GP_CACHE_REST
 * visits and runs rest (may be NULL) without it. The visitors see each segment covered without
 * gaps. A block or segment that is allocated or freed meanwhile may be shown in its old or its new
 * state; a new block in the place of a freed one may be shown as idle, and so may the remainder of
 * a segment that was released. Blocks in a thread's cache count as idle, one by one. */
void gp_cache_iterate(struct gp_cache *cache, void *arg,
                      bool (*segment)(void *arg, const struct gp_cache_segment *segment),
                      bool (*block)(void *arg, const struct gp_cache_block *block), void (*rest)(void *arg));

#endif
