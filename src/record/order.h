/* SPDX-License-Identifier: MIT
 * order.h: sorts events by time. Called by ringread.c. Unlike qsort, it never calls malloc. */
#ifndef GP_RECORD_ORDER_H
#define GP_RECORD_ORDER_H

#include <gpuprof/wire.h>
#include <stddef.h>
#include <stdint.h>

struct gp_order_key { /* a quarter of an event's size: merging moves keys, and each event only once at the end */
    uint64_t time_ns;
    uint32_t index, pad_;
};

/* Sorts by (time, seq), in place. keys: room for twice `count`, which is below 2^32. */
void gp_order_events(struct gp_wire_event *events, size_t count, struct gp_order_key *keys);

#endif
