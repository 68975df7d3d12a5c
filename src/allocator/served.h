/* SPDX-License-Identifier: MIT
 *
 * served.h: the served contexts: the table (served.c), and the start and end of a row
 * (served_lifetime.c).
 */
#ifndef GP_ALLOCATOR_SERVED_H
#define GP_ALLOCATOR_SERVED_H

#include "base/lock.h"
#include "cache/cache.h"
#include <stdbool.h>
#include <stdint.h>

struct gp_policy;

/* The served contexts: those whose memory the cache serves, each with its cache.  A context is
 * served if the library saw the call that made it (serve_context.c) or retained it itself
 * (async.c).  Memory of any other context is never cached.
 *
 * A served context is a row of a fixed table.  Its cache is made at the first allocation and never
 * freed: when the context dies the cache is emptied (gp_cache_forget), and the row waits for the
 * next context of the same device, because a cache counts in its device's gauges.  So a thread that
 * looks up an address never finds a cache that is being torn down.
 *
 * gp_served_lock is a leaf: no function that takes a lock is called under it. */

/* One bit each in x_access.  Programs have one context per GPU, tests a dozen. */
#define GP_SERVED_LIMIT 64

/* After every rank of base/lock.h: taken under any other lock, for a few instructions. */
#define GP_RANK_ALLOCATOR ((enum gp_lock_rank)30)

enum gp_served_state {
    GP_SERVED_EMPTY,
    GP_SERVED_LIVE,
    GP_SERVED_DYING, /* no allocation and no driver call any more; its blocks are found until the cache is empty */
};

struct gp_served_context {
    void *x_ctx;
    struct gp_cache *x_cache; /* NULL until the first allocation */
    uint32_t x_state;
    int device;           /* of the row: set before the context, and kept */
    bool primary;         /* the device's primary context */
    bool rdma;            /* growable memory can be registered with other devices */
    uint32_t x_untracked; /* > 0: work may run without an event of ours; fences wait for the whole context instead */
    uint64_t x_access;    /* by index: contexts that may use this one's memory (cuCtxEnablePeerAccess) */
    /* stream.c */
    void *gather;      /* gather stream; NULL: not needed yet */
    void *events[256]; /* idle events: more than fences are open at once; an event beyond that is destroyed */
    uint32_t event_count;
} __attribute__((aligned(64))); /* what every call reads is in the first line */

extern struct gp_served_context gp_served_contexts[GP_SERVED_LIMIT];
extern struct gp_lock gp_served_lock;

/* Takes a row for the context; NULL: all rows are taken. */
struct gp_served_context *gp_served_take(void *ctx, int device, bool primary);
/* Gives the row back. */
void gp_served_release(struct gp_served_context *served);

extern uint32_t gp_served_used;
static inline unsigned gp_served_count(void) /* rows ever used */
{
    return __atomic_load_n(&gp_served_used, __ATOMIC_ACQUIRE);
}
/* The live row of a context; NULL: the context is not served. */
struct gp_served_context *gp_served_of(void *ctx);
/* The live row of a device's primary context, or NULL. */
struct gp_served_context *gp_served_primary(int device);
/* The context whose cache has a live block around the address, or NULL. */
struct gp_served_context *gp_served_find(uint64_t address, struct gp_grant *out);
/* Whether a block of any cache begins at the address, live or idle.  Takes no lock. */
bool gp_served_begins(uint64_t address);
/* The context in whose cache the address lies, whether or not a block lives there. */
struct gp_served_context *gp_served_owning(uint64_t address);

/* Its cache, or NULL if it has none yet. */
static inline struct gp_cache *gp_served_cache(const struct gp_served_context *served)
{
    /* [served.A] acquire: the cache behind the pointer; pairs with [served.R]. */
    return __atomic_load_n(&served->x_cache, __ATOMIC_ACQUIRE);
}
static inline unsigned gp_served_index(const struct gp_served_context *served)
{
    return (unsigned)(served - gp_served_contexts);
}
static inline bool gp_served_is_live(const struct gp_served_context *served)
{
    /* [state.A] acquire: device and kind; pairs with [state.R]. */
    return __atomic_load_n(&served->x_state, __ATOMIC_ACQUIRE) == GP_SERVED_LIVE;
}

/* Fills the request's tag with its call site if call sites are on. */
void gp_served_tag(const struct gp_served_context *served, struct gp_request *request);
/* Write the events of an allocation and of a free, if they are wanted. */
void gp_served_event_alloc(const struct gp_served_context *served, const struct gp_grant *grant, uint64_t stream);
void gp_served_event_free(const struct gp_served_context *served, const struct gp_grant *grant, uint64_t stream);
void gp_served_setup(const struct gp_policy *policy, uint64_t limit_bytes);
uint64_t gp_served_limit(void); /* bytes; 0: no limit */

/* A context was made, or the library has retained it.  NULL: no row is left, and the context is not served. */
struct gp_served_context *gp_served_add(void *ctx, int device, bool primary);
/* The context is gone, and all linear memory in it. */
void gp_served_remove(struct gp_served_context *served);
/* Its cache, made if need be; NULL: no memory. */
struct gp_cache *gp_served_make_cache(struct gp_served_context *served);

#endif
