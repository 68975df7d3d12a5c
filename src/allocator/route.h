/* SPDX-License-Identifier: MIT
 *
 * route.h: which requests go to a private pool now: those between begin and end of the pool that come from its thread,
 * or for its stream, or that its filter accepts.  The first pool that was begun and matches takes the request, as in
 * PyTorch.  Called by async.c, torch.c and capi.c.
 */
#ifndef GP_ALLOCATOR_ROUTE_H
#define GP_ALLOCATOR_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

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
    const struct gp_filter *filter; /* copied; the caller's may go */
};

/* 0, -ENOSPC (64 at once). */
int gp_route_begin(const struct gp_route *route);
/* False: no such pool is begun on that device. */
bool gp_route_end(uint64_t pool, int device);
/* The pool for a request of this thread; 0 none. */
uint64_t gp_route_pool(int device, uint64_t stream);

/* Can it be called?  Both functions must be code: a std::function of another library (libc++) has something else
 * there. */
bool gp_filter_is_usable(const struct gp_filter *filter);

#endif
