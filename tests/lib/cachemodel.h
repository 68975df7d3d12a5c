/* SPDX-License-Identifier: MIT
 *
 * cachemodel.h: a model that checks a caching allocator. It turns bytes into operations. After each
 * operation the model's own list of live blocks, the fake device and the cache's own answers (walk, gauges,
 * numbers, its self-check) must agree, and the fake device must have seen no fault. Random tests and the
 * fuzzer use it.
 *
 * It knows cache.h and the rules of policy.h, but not how the cache works. Threads: one.
 */
#ifndef GP_TEST_LIB_CACHEMODEL_H
#define GP_TEST_LIB_CACHEMODEL_H

#include "cache/cache.h"
#include "cache/policy.h"
#include "lib/fakeuse.h"

#define CACHEMODEL_STREAMS 4
#define CACHEMODEL_POOLS   3   /* number 0: no pool */
#define CACHEMODEL_BLOCKS  400 /* most live blocks */
#define CACHEMODEL_STEP    8   /* bytes of one operation */

struct cachemodel_setup {
    const char *policy;
    const char *conf; /* NULL: none */
    uint64_t capacity, limit_bytes, page_bytes;
    /* Everything is checked after every so many operations; 0: after each. Reading the statistics closes the
     * counters for a while, and with them the cache's fast path. Tests need both states. */
    unsigned check_every;
    bool below_peak; /* after a rise, small blocks far below the peak and little else: mostly the cache's fast path */
    bool linear;     /* every request says GP_REQUEST_LINEAR */
    bool failures;   /* operations may script failures of calls that take memory or concern fences */
    bool captures;   /* ... or start a capture */
    bool gone_live;  /* streams are destroyed while blocks of theirs are live */
    bool alone;      /* the cache takes no lock, and a free names its block's record */
    bool full;       /* grants have times and tags, and the short calls and all orders of frees are used too */
};

struct cachemodel_block {
    struct gp_grant grant;
    uint64_t pool;
    unsigned flags;
    bool orphan;       /* its stream is gone; the cache may report any stream for it */
    bool unordered;    /* will be freed with this flag: any stream may use it without recording the use */
    unsigned recorded; /* bit per stream */
    unsigned home;     /* FAKEDEV index of its stream when it was given */
};

/* Every policy, with the options that change its behaviour. */
#define CACHEMODEL_PLACES 16
extern const struct cachemodel_setup cachemodel_places[CACHEMODEL_PLACES];

/* Sums over the walk. */
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
    bool is_ending; /* in gp_cache_forget, whose events come under the cache's locks */
    struct gp_counter *gauges;
    struct cachemodel_block blocks[CACHEMODEL_BLOCKS]; /* by address */
    unsigned count;
    uint64_t stream_ids[CACHEMODEL_STREAMS];
    unsigned pool_refs[CACHEMODEL_POOLS];
    int64_t live_bytes, live_requested;          /* of blocks[] */
    int64_t peaks[GP_GAUGES], totals[GP_GAUGES]; /* over steps; totals: allocated */
    struct cachemodel_sums sums;
    int64_t listened_bytes;
    uint64_t listened_hash; /* of all events, without their times */
    uint64_t last_ns;       /* full: the latest time of a grant, a free or an event */
    uint64_t short_allocs, short_frees;
    uint64_t listened_oom, listened_retry, listened_sync, limit;
    bool troubled; /* a call failed by script or capture: exact peaks of the reserve are unknown from then on */
    uint64_t steps, allocs, ooms, frees, refused;
    char why[384]; /* text of the first error; "": no error so far */
    char last[96]; /* number of the operation */
};

/* 0, or -1 for a policy or configuration that does not exist. */
int cachemodel_init(struct cachemodel *model, const struct cachemodel_setup *setup);
/* Runs one operation and all checks. False: model->why has the reason. */
bool cachemodel_step(struct cachemodel *model, const uint8_t bytes[CACHEMODEL_STEP]);
/* Frees all blocks (or leaves them to the cache), ends the cache, and checks for leaks. Always call it. */
bool cachemodel_fini(struct cachemodel *model, bool free_blocks);
bool cachemodel_check(struct cachemodel *model);

#endif
