/* SPDX-License-Identifier: MIT
 *
 * cachemodel.h: a caching allocator and somebody who does not believe it. Bytes
 * become operations; after each one the model's own list of live blocks, the
 * fake device and what the cache says of itself (walk, gauges, numbers, its own
 * check) must agree, and the fake device must have seen no fault.  Used by
 * random tests and by the fuzzer.
 *
 * It knows cache.h and the rules of policy.h, nothing of how the cache works.
 * Threads: none.
 */
#ifndef GP_TEST_LIB_CACHEMODEL_H
#define GP_TEST_LIB_CACHEMODEL_H

#include "cache/cache.h"
#include "cache/policy.h"
#include "lib/fakeuse.h"

#define CACHEMODEL_STREAMS 4
#define CACHEMODEL_POOLS   3   /* 0 is none */
#define CACHEMODEL_BLOCKS  400 /* most live ones */
#define CACHEMODEL_STEP    8   /* bytes of one operation */

struct cachemodel_setup {
    const char *policy;
    const char *conf; /* NULL: none */
    uint64_t capacity, limit_bytes, page_bytes;
    /* All is checked after every so many operations; 0: each.  A look at the statistics closes the counters for a
     * while, and with them a cache's shortest way: both are to be tested. */
    unsigned check_every;
    bool calm; /* small blocks, after a rise always far below the peak, and little else: the shortest way's own country
                */
    bool linear;    /* every request says GP_REQUEST_LINEAR */
    bool failures;  /* operations may script failures of calls that take memory or concern fences */
    bool captures;  /* ... or let a capture begin */
    bool gone_live; /* streams are destroyed while blocks of theirs are live */
};

struct cachemodel_block {
    struct gp_grant grant;
    uint64_t pool;
    unsigned flags;
    bool orphan;       /* its stream is gone: what the cache calls it now is its own affair */
    bool unordered;    /* will be freed so: any stream may use it without a word */
    unsigned recorded; /* bit per stream */
    unsigned home;     /* FAKEDEV index of its stream when it was given */
};

/* Every policy, with the options that change what it does. */
#define CACHEMODEL_PLACES 16
extern const struct cachemodel_setup cachemodel_places[CACHEMODEL_PLACES];

/* What the walk adds up to. */
struct cachemodel_sums {
    int64_t gauges[GP_GAUGES];
    uint64_t reserved, live, waiting, idle, largest_idle, idle_pieces, waiting_pieces;
    uint64_t pinning; /* of driver allocations alone */
    bool growable;
};

struct cachemodel {
    struct cachemodel_setup setup;
    struct gp_policy policy;
    struct fakedev dev;
    struct fakeuse use;
    struct gp_cache *cache;
    struct gp_counter *gauges;
    struct cachemodel_block blocks[CACHEMODEL_BLOCKS]; /* by address */
    unsigned count;
    uint64_t stream_ids[CACHEMODEL_STREAMS];
    unsigned pool_refs[CACHEMODEL_POOLS];
    int64_t live_bytes, live_requested;          /* of blocks[] */
    int64_t peaks[GP_GAUGES], totals[GP_GAUGES]; /* over steps; totals: allocated */
    struct cachemodel_sums sums;
    int64_t listened_bytes;
    uint64_t listened_oom, listened_retry, listened_sync, limit;
    bool troubled; /* a call failed by script or capture: exact peaks of reserve cannot be told any more */
    uint64_t steps, allocs, ooms, frees, refused;
    char why[384]; /* first thing that was wrong; "" so far */
    char last[96]; /* the operation */
};

/* 0; or a policy or configuration that does not exist: -1. */
int cachemodel_init(struct cachemodel *model, const struct cachemodel_setup *setup);
/* One operation, and all checks.  false: model->why tells. */
bool cachemodel_step(struct cachemodel *model, const uint8_t bytes[CACHEMODEL_STEP]);
/* Frees everything (or leaves it to the cache), ends, and looks for what is left.  Always call it. */
bool cachemodel_fini(struct cachemodel *model, bool free_blocks);
bool cachemodel_check(struct cachemodel *model);

#endif
