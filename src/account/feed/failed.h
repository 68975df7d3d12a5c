/* SPDX-License-Identifier: MIT
 *
 * failed.h: calls that failed, and what the report of an out-of-memory error needs.
 */
#ifndef GP_ACCOUNT_FEED_FAILED_H
#define GP_ACCOUNT_FEED_FAILED_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* A call failed with the driver's error; requested bytes for an out-of-memory error; device:
 * GP_DEVICE_UNKNOWN too. No report is made for a framework's segment: the framework will ask again, or report that it gives
 * up. kind: of the memory that was asked for; GP_KIND_NONE: unknown, or no memory was asked for. */
void gp_feed_failed(const char *api, uint32_t error, uint64_t requested_bytes, int device, enum gp_wire_kind kind);
#define GP_ERROR_OUT_OF_MEMORY 2u /* CUDA_ERROR_OUT_OF_MEMORY */
/* Call it right after gp_feed_failed with GP_ERROR_OUT_OF_MEMORY, on the same thread, outside our
 * cache, whether or not a report was made. It passes on the current context, in which the driver can
 * be asked for its free bytes, and waits at most 5 ms for the poller's answer. */
void gp_feed_oom_context(uint32_t ctx, uint64_t context);
/* A call asked for memory of this device in this context, and got it. */
void gp_feed_context_used(int device, uint32_t ctx, uint64_t context);

/* The requests to a framework's allocator on one device, from its first block on, and the state
 * that they led to. Each word is one event: its kind in the low 2 bits. */
enum gp_history_kind {
    GP_HISTORY_ALLOC, /* bytes of the block */
    GP_HISTORY_FREE,  /* number of the alloc, from 0 */
    GP_HISTORY_TRIM,  /* it emptied its cache */
};
struct gp_feed_replay {
    const uint64_t *history;
    uint32_t count, allocs;
    uint32_t flags;          /* GP_OOM_* of the report */
    uint64_t asked_bytes;    /* by the request that failed, which is not in the history */
    uint64_t reserved_bytes; /* in its segments after that */
    uint64_t peak_bytes;     /* the most that was in them */
    uint64_t free_bytes;     /* of the device then */
    uint64_t others_bytes;   /* of the process on the device, beside its segments */
    const char *conf;        /* as in gp_framework_conf */
    bool agrees;             /* out: the replay led to the same state; the next three hold */
    uint32_t helps, fails;   /* as in gp_wire_oom */
    uint64_t split_bytes;
};
/* Replays a report's history with other settings. The poller calls it, once a report. */
typedef void gp_feed_replay_fn(struct gp_feed_replay *replay);
void gp_feed_oom_replayer(gp_feed_replay_fn *replay);

/* The cache's facts when a request finally failed (struct gp_cache_numbers, and the bytes
 * requested from the driver). */
struct gp_feed_oom {
    uint64_t stream;
    uint64_t limit_bytes;            /* in force; 0: none */
    int64_t free_bytes, total_bytes; /* the driver's, just read; -1: unknown */
    uint64_t idle_bytes, idle_pieces, largest_idle_bytes, releasable_bytes, waiting_bytes, pinning_blocks;
    const char *policy;
    const char *conf; /* GPUPROF_ALLOC_CONF; may be NULL */
};
/* Call it right after gp_feed_failed with GP_ERROR_OUT_OF_MEMORY, on the same thread. It adds to
 * the report of that failure, unless another failure has replaced the report. */
void gp_feed_oom_cache(int device, const struct gp_feed_oom *facts);
/* Calls visit once for every live block of our cache on the device, with its call site and size.
 * The shim sets it once. It runs inside gp_feed_failed, on the failing thread, with no lock of
 * the accounts held, and the caller of gp_feed_failed must hold no lock of the cache. visit
 * takes no lock. */
typedef void gp_feed_block_fn(void *arg, uint32_t site, uint64_t bytes);
typedef void gp_feed_cache_walk_fn(int device, void *arg, gp_feed_block_fn *visit);
void gp_feed_oom_walker(gp_feed_cache_walk_fn *walk);

#endif
