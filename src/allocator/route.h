/* SPDX-License-Identifier: MIT
 *
 * route.h: which requests go to a private pool.
 */
#ifndef GP_ALLOCATOR_ROUTE_H
#define GP_ALLOCATOR_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

/* Which requests go to a private pool.  Between a pool's begin and end these are the requests of one
 * thread, those for one stream, or those that a filter accepts.  If several pools match, the one
 * that was begun first takes the request, as in PyTorch.  Called by async.c, torch.c and capi.c on
 * any thread. */

/* A std::function<bool(cudaStream_t)> of libstdc++, whose layout is part of its stable interface: two words of target,
 * then the manager, which copies and destroys targets, and the invoker. */
struct gp_filter {
    uint64_t target[2];
    bool (*manager)(void *to, const void *from, int operation);
    bool (*invoker)(const void *target, void **stream);
};

enum gp_route_kind { GP_ROUTE_THREAD, GP_ROUTE_STREAM, GP_ROUTE_FILTER };

struct gp_route {
    uint64_t pool;
    int device;
    enum gp_route_kind kind;
    uint64_t stream;
    const struct gp_filter *filter; /* copied by gp_route_begin */
};

/* 0, or -ENOSPC: 64 routes are open. */
int gp_route_begin(const struct gp_route *route);
/* False: no such pool is open on that device. */
bool gp_route_end(uint64_t pool, int device);
extern uint32_t gp_route_open; /* open routes */
static inline bool gp_route_any(void)
{
    return __atomic_load_n(&gp_route_open, __ATOMIC_RELAXED) != 0;
}
/* The pool for a request of this thread; 0: none. */
uint64_t gp_route_pool(int device, uint64_t stream);

/* Can the filter be called?  Both of its functions must be code: a std::function of another C++ library (libc++) has
 * other words in these places. */
bool gp_route_filter_is_usable(const struct gp_filter *filter);

#endif
