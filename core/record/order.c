/* SPDX-License-Identifier: MIT
 *
 * order.c: sorts events by time; see ringread.h. It merges existing runs: each chunk of the ring is one
 * run, and all chunks of a single thread together are one.
 */
#include "record/ringread.h"
#include <stdbool.h>

static bool order_later(const struct gp_wire_event *events, const struct gp_order_key *a, const struct gp_order_key *b)
{
    return a->time_ns != b->time_ns ? a->time_ns > b->time_ns : events[a->index].seq > events[b->index].seq;
}

/* Fills in the keys. True: the events are in order already. */
static bool order_keys(const struct gp_wire_event *events, size_t count, struct gp_order_key *keys)
{
    bool ordered = true;
    for (size_t i = 0; i < count; i++) {
        keys[i] = (struct gp_order_key){events[i].time_ns, (uint32_t)i, 0};
        ordered &= i == 0 || !order_later(events, &keys[i - 1], &keys[i]);
    }
    return ordered;
}

/* The end of the ordered run that starts at `at`. */
static size_t order_run(const struct gp_wire_event *events, const struct gp_order_key *keys, size_t at, size_t count)
{
    for (at++; at < count && !order_later(events, &keys[at - 1], &keys[at]); at++)
        ;
    return at < count ? at : count;
}

/* Merges pairs of runs; returns how many runs remain. */
static size_t order_pass(const struct gp_wire_event *events, struct gp_order_key *to, const struct gp_order_key *from,
                         size_t count)
{
    size_t runs = 0;
    for (size_t at = 0, middle, end; at < count; at = end, runs++) {
        middle = order_run(events, from, at, count);
        end = middle < count ? order_run(events, from, middle, count) : count;
        for (size_t left = at, right = middle, put = at; put < end; put++) {
            bool second = right < end && (left == middle || order_later(events, &from[left], &from[right]));
            to[put] = from[second ? right++ : left++];
        }
    }
    return runs;
}

/* Moves every event to its place, along the cycles of the permutation. */
static void order_move(struct gp_wire_event *events, size_t count, struct gp_order_key *keys)
{
    for (size_t i = 0; i < count; i++) {
        if (keys[i].index == i)
            continue;
        struct gp_wire_event first = events[i];
        size_t to = i;
        for (size_t from; (from = keys[to].index) != i; to = from) {
            events[to] = events[from];
            keys[to].index = (uint32_t)to;
        }
        events[to] = first;
        keys[to].index = (uint32_t)to;
    }
}

void gp_ring_order_events(struct gp_wire_event *events, size_t count, struct gp_order_key *keys)
{
    struct gp_order_key *from = keys, *to = keys + count;
    if (order_keys(events, count, keys))
        return;
    for (size_t runs = 2; runs > 1;) {
        runs = order_pass(events, to, from, count);
        struct gp_order_key *swap = from;
        from = to;
        to = swap;
    }
    order_move(events, count, from);
}
