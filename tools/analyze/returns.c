/* SPDX-License-Identifier: MIT
 * returns.c: whether steps that were only found in the allocations can be steps; see flow.h. */
#include <analyze/flow.h>
#include <read/common/order.h>

/* Most drift with all memory, as a part of the range: a step gives back half of what it takes.  A
 * layer of a forward pass keeps two thirds and more. */
#define GP_RETURNS_DRIFT 0.5

struct returns_walk {
    int64_t level, begin, low, high;
    double moved, range;
    uint32_t bound;
};

/* Ends the stretches that end before time_ns. */
static void returns_bounds(struct returns_walk *walk, const struct gp_steps *steps, uint32_t warm, uint64_t time_ns)
{
    for (; walk->bound <= steps->count && steps->bounds_ns[walk->bound] <= time_ns; walk->bound++) {
        double by = (double)walk->level - (double)walk->begin;
        if (walk->bound > warm) {
            walk->moved += by < 0 ? -by : by;
            walk->range += (double)walk->high - (double)walk->low;
        }
        walk->begin = walk->low = walk->high = walk->level;
    }
}

bool gp_flow_returns(const struct gp_flow *flow, const struct gp_steps *steps, uint32_t warm)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    struct returns_walk to = {0};
    while (gp_flow_next(&walk, &change)) {
        if (change.event != GP_REC_NONE)
            returns_bounds(&to, steps, warm, change.time_ns);
        if (!(change.what & GP_FLOW_SUMMED))
            continue;
        uint64_t bytes = change.add ? gp_flow_bytes(&change) : -gp_flow_bytes(&change);
        to.level = (int64_t)((uint64_t)to.level + bytes); /* sizes of a damaged file may wrap */
        GP_LOWER(to.low, to.level);
        GP_RAISE(to.high, to.level);
    }
    returns_bounds(&to, steps, warm, UINT64_MAX);
    return !steps->inside && to.moved <= to.range * GP_RETURNS_DRIFT;
}
