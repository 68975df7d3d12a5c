/* SPDX-License-Identifier: MIT
 * sizes.c: the sizes of allocations by powers of two; see analyze.h. */
#include <analyze/flow.h>
#include <stdlib.h>

struct gp_sizes *gp_flow_sizes(const struct gp_flow *flow, uint32_t device)
{
    struct gp_sizes *sizes = calloc(1, sizeof(*sizes));
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    while (sizes && gp_flow_next(&walk, &change)) {
        if (change.item->device != device || !(change.what & GP_FLOW_KIND) || change.item->bytes == 0)
            continue;
        uint64_t bytes = change.item->bytes, sign = change.add ? 1 : UINT64_MAX;
        unsigned class = 63 - (unsigned)__builtin_clzll(bytes);
        sizes->count[class] += change.add;
        sizes->bytes[class] += change.add ? bytes : 0;
        sizes->live_count[class] += sign;
        sizes->live_bytes[class] += bytes * sign;
    }
    return sizes;
}
