/* SPDX-License-Identifier: MIT
 *
 * internal.h: the state that the files of account/ share. What they call of each other is declared
 * by topic, in the header that has the name of the file which defines it. No other folder includes
 * them.
 */
#ifndef GP_ACCOUNT_INTERNAL_H
#define GP_ACCOUNT_INTERNAL_H

#include "account/feed/cache.h"
#include "account/feed/door.h"
#include "account/feed/feed.h"
#include "account/feed/start.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/lock.h"
#include "base/map.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

static inline int64_t gp_larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* polled.h: */
#define GP_FOLDED 8 /* reserved, allocated, active, requested bytes: all and large */

struct gp_polled_own { /* own bytes of a folded gauge */
    int64_t current, freed;
};

/* The sums that the poll under way has read. */
struct gp_polled_sum {
    int64_t bytes, least; /* least: with the smaller one of two readings of each part */
    unsigned parts;       /* that are not 0 */
};

struct gp_polled {                                /* under gp_accounts.lock */
    int64_t peaks[1 + GP_WATCHES_MAX][GP_FOLDED]; /* since the last reset; of each scope; of the batches' watch */
    struct gp_polled_own begun[GP_FOLDED], last[GP_FOLDED]; /* when the poll under way began, and the one before it */
    struct gp_polled_sum reserved, used;                    /* of pools and graphs; of graphs */
    int64_t reserved_rose, used_rose;                       /* the highest watermark that rose since the last poll */
    bool again;                                             /* every part is read for a second time */
    int64_t graph_used_high, graph_reserved_high;
    int64_t pool_bytes, lifted; /* the pools' gauge: as polled, and more */
    int64_t allocated_before;   /* the peak of allocated_bytes when only reserved_bytes was reset last */
};

/* Threads share shards beyond this many; 64 is four times the largest machine that the counters were measured on, and
 * a shard's lines are touched only when used. */
#define GP_SHARDS 64

/* The device of a record that is in no device's totals. */
#define GP_NO_DEVICE 255

struct gp_forgotten { /* what resets of the totals subtracted */
    int64_t calls, frees, failures;
};

/* One device's blocks of the framework that reports them (framework.c). The framework reports them
 * under its lock of the device, so there is one writer at a time. */
struct gp_framework {
    int64_t x_allocated_bytes; /* the sum of the blocks, and what was allocated before the first report */
    int64_t x_blocks;
    uint64_t x_events;
    uint64_t x_allocated_differs, x_reserved_differs; /* events in which the framework's totals were not ours */
    int64_t x_their_allocated_bytes, x_their_reserved_bytes;
    int64_t x_before_allocated_bytes, x_before_reserved_bytes; /* attached late: the part that is not ours */
    /* Written by any thread, in driver calls that the framework makes. */
    int64_t x_segments, x_segment_bytes, x_segment_peak, x_private_bytes;
    uint64_t x_retries, x_ooms;
    uint8_t owner;      /* of its blocks; from the first event on, under the framework's lock */
    uint64_t x_context; /* a context of the device, and its number (frameworkretry.c) */
    uint32_t x_ctx;
    uint32_t x_failing;   /* driver allocations of a segment that failed since the last block */
    uint32_t x_gave_back; /* it freed a segment since the last block */
    /* Parts of x_allocated_bytes (ground.c): without memory; not allocated for that or another
     * reason. */
    int64_t x_asleep_bytes, x_lacking_bytes;
    uint32_t x_unseen;  /* it had blocks before the first report: it may have memory that is not known */
    uint32_t x_strange; /* others made its segments or took them away: their sum need not be its total */
    /* The history of its requests, in order (feed/failed.h). Under the framework's lock. */
    uint64_t *history;
    uint32_t x_history_count, history_allocs;
    bool history_broken; /* it lacks some */
};

struct gp_account {             /* one device, or the host */
    struct gp_counter *counter; /* const after creation */
    /* Whose linear memory, and whose memory of pools, has the pairs 2 i and 2 i + 1 (base/gauge.h). */
    struct gp_pair_owner {
        uint32_t x_claimed; /* a thread sets the pairs, or has set them */
        uint8_t x_owner;    /* + 1; 0: nobody's yet. The first owner that takes any. */
    } pairs[GP_PAIRS / 2];
    struct gp_framework framework;
    struct gp_framework heaps[GP_DOORS]; /* of sub-allocators (heap.c) */
    int64_t x_unmapped; /* bytes of handles of cuMemCreate beyond their mappings: in sites, not in allocated_bytes */
    uint64_t x_ooms;
    uint64_t x_counts[GP_FEED_COUNTS];
    int64_t x_split_limit; /* max_split_size; -1: no limit */
    uint32_t x_flags;      /* GP_DEVICE_* */
    uint32_t x_context_count;
    uint64_t x_pool;       /* the device's current pool if the program has set one, else 0 */
    uint32_t x_primary;    /* primary context's number */
    uint64_t default_pool; /* as the driver named it last; the poller's */
    /* Under gp_accounts.lock: identity, polled peaks, and resets of the totals. */
    uint8_t uuid[16];
    char name[64];
    int64_t total_bytes;
    uint32_t threads; /* that it can hold, in GP_DEVICE_THREADS_UNIT; 0: unknown */
    struct gp_polled polled;
    struct gp_forgotten forgotten;
};

struct gp_accounts {
    /* The first line is what each event reads. It is written seldom. */
    struct gp_map *blocks;   /* spaces up to BLOCK: many */
    uint32_t x_memory_waits; /* segments that wait for a heap, or for the block that must be the next: they may become
                                 ordinary (memory.c) */
    uint32_t x_memory_on;    /* the set of memory.h is kept from the first heap, or the first claim (ground.c), on */
    struct gp_map *x_before; /* memory from before the attach (before.c); NULL: not attached late, or no memory */
    struct gp_feed_setup setup;
    struct gp_account *x_devices[GP_WIRE_DEVICES]; /* created on first use */
    struct gp_map *objects;                        /* the rest of the spaces: few */
    struct gp_lock lock;
    uint32_t x_captures;  /* streams that are being captured (context.c) */
    uint32_t x_poll_late; /* the last poll that was asked for has not ended in time */
    uint32_t x_scopes;    /* a bit per watch under way: scopes, GP_BATCH_WATCH */
} __attribute__((aligned(64)));

extern struct gp_accounts gp_accounts GP_HIDDEN;

/* The bytes of a record in the map of blocks that the totals include. */
static inline uint64_t gp_account_counted(const struct gp_record *record)
{
    return record->space == GP_SPACE_BLOCK ? record->bytes - record->block.lacks : record->bytes;
}

/* The counters' watch for the high-water mark between two batches. The scopes use the others. */
#define GP_BATCH_WATCH GP_WIRE_SCOPES
_Static_assert(GP_BATCH_WATCH < GP_WATCHES_MAX, "base/counter.h");

/* The account of a device index; creates it. Returns NULL, and counts it, if the index is
 * unknown or out of range. */
struct gp_account *gp_account_of(int device);
/* The same without a call where it is there already, which is nearly always. */
static inline struct gp_account *gp_account_at(int device)
{
    struct gp_account *account =
        (unsigned)device < GP_WIRE_DEVICES
            ? __atomic_load_n(&gp_accounts.x_devices[device], __ATOMIC_ACQUIRE) /* [account.A] */
            : NULL;
    return GP_LIKELY(account) ? account : gp_account_of(device);
}

#endif
