/* SPDX-License-Identifier: MIT
 * order.h: events into the order of their times; called by ringread.c.  Never calls malloc, which qsort does. */
#ifndef GP_RECORD_ORDER_H
#define GP_RECORD_ORDER_H

#include <gpuprof/wire.h>
#include <stddef.h>
#include <stdint.h>

struct gp_order_key { /* a quarter of an event: merging moves these, and every event once at the end */
    uint64_t time_ns;
    uint32_t index, pad_;
};

/* By (time, seq), in place.  keys: room for twice `count`, which is below 2^32. */
void gp_order_events(struct gp_wire_event *events, size_t count, struct gp_order_key *keys);

#endif
