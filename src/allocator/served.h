/* SPDX-License-Identifier: MIT
 *
 * served.h: the contexts that we serve, each with the cache of the memory that lives in it.  A context is known from the
 * call that made it (serve_context.c) or because we retained it (async.c); memory of one that nobody announced is never
 * cached.
 *
 * A served is a slot of a fixed table.  Its cache is made at the first allocation and never freed: when the context dies
 * the cache is emptied (gp_cache_forget), and the slot waits for the next context of the same device, because a cache
 * counts in its device's gauges.  So a thread that looks an address up never meets a cache that is being torn down.
 *
 * Locks: gp_served_lock is a leaf: nothing is called under it.
 */
#ifndef GP_ALLOCATOR_SERVED_H
#define GP_ALLOCATOR_SERVED_H

#include "base/lock.h"
#include "cache/cache.h"
#include <stdbool.h>
#include <stdint.h>

/* One bit each in gp_home.x_access.  Programs have a context a GPU, tests a dozen. */
#define GP_SERVED_LIMIT 64

/* Beyond every rank of base/lock.h: taken inside any other, for a few instructions. */
#define GP_RANK_ALLOCATOR ((enum gp_lock_rank)30)

enum gp_served_state {
    GP_SERVED_EMPTY,
    GP_SERVED_LIVE,
    GP_SERVED_DYING, /* no allocation and no driver call for it any more; blocks are still found until it is empty */
};

struct gp_served_context {
    void *x_ctx;
    struct gp_cache *x_cache; /* NULL until the first allocation */
    uint32_t x_state;
    int device;        /* of the slot: set before the context, stays */
    bool primary;      /* the device's primary context */
    bool rdma;         /* growable memory can be registered with other devices */
    uint32_t x_doubts; /* streams that no event of ours can stand for: fences wait for the whole context instead */
    uint64_t x_access; /* contexts whose contexts may use this one's memory (cuCtxEnablePeerAccess) */
    /* fence.c */
    void *gather;      /* a stream of ours in which streams are brought together; NULL: not needed yet */
    void *events[256]; /* idle events: more than fences are out at once; beyond, they are destroyed */
    uint32_t event_count;
};

extern struct gp_served_context gp_served_contexts[GP_SERVED_LIMIT];
extern struct gp_lock gp_served_lock;

/* A context was made or is ours from now on.  NULL: no slot is left, it is not served. */
struct gp_served_context *gp_served_add(void *ctx, int device, bool primary);
/* The live served of a context, NULL unknown. */
struct gp_served_context *gp_served_of(void *ctx);
/* Of a device's primary context. */
struct gp_served_context *gp_served_primary(int device);
/* The slot's end: the context is gone, with everything linear in it. */
void gp_served_die(struct gp_served_context *served);

/* With call sites on, the request's tag is its site.  Then what was given, and given back, is told as events. */
void gp_served_tag(const struct gp_served_context *served, struct gp_request *request);
void gp_served_given(const struct gp_served_context *served, const struct gp_grant *grant, uint64_t stream,
                     uint64_t time_ns);
void gp_served_freed(const struct gp_served_context *served, const struct gp_grant *grant, uint64_t stream);

/* Its cache, made if need be; NULL: no memory. */
struct gp_cache *gp_served_cache(struct gp_served_context *served);
/* Its cache if it has one. */
static inline struct gp_cache *gp_served_has(const struct gp_served_context *served)
{
    /* [served.A] acquire: the cache behind the pointer; pairs with [served.R]. */
    return __atomic_load_n(&served->x_cache, __ATOMIC_ACQUIRE);
}
unsigned gp_served_count(void); /* slots ever used */

static inline unsigned gp_served_index(const struct gp_served_context *served)
{
    return (unsigned)(served - gp_served_contexts);
}
static inline bool gp_served_lives(const struct gp_served_context *served)
{
    /* [state.A] acquire: device and kind; pairs with [state.R]. */
    return __atomic_load_n(&served->x_state, __ATOMIC_ACQUIRE) == GP_SERVED_LIVE;
}
/* The served whose cache has a live block around the address; NULL none. */
struct gp_served_context *gp_served_find(uint64_t address, struct gp_grant *out);
/* The served whose memory the address lies in, whether or not a block lives there. */
struct gp_served_context *gp_served_owning(uint64_t address);

/* The policy that caches are made with; once, before the first cache. */
struct gp_policy;
void gp_served_setup(const struct gp_policy *policy, uint64_t limit_bytes);
uint64_t gp_served_limit(void);

/* backend.c: the driver as the cache of this served sees it. */
void gp_backend_fill(struct gp_served_context *served, struct gp_backend *out);
/* Growable memory does not die with its context: gives it back.  After the context's end. */
void gp_backend_clear(struct gp_served_context *served);
/* `served`'s growable memory becomes usable by `device`. */
void gp_backend_share(struct gp_served_context *served, int device);

#endif
