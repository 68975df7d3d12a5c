/* SPDX-License-Identifier: MIT
 *
 * counterset.h: what a set of counters consists of, for counter.c.
 */
#ifndef GP_BASE_COUNTERSET_H
#define GP_BASE_COUNTERSET_H

#include "base/compiler.h"
#include "base/counter.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define GP_SHARDS_MAX 1024

struct gp_counter_bundle {
    unsigned count;
    uint8_t gauges[GP_GAUGES_MAX];
};

struct gp_shard {
    struct gp_gate gate;
    struct gp_gate_cell cells[];
};

struct gp_counter {
    struct gp_counter_shape shape;

    GP_ALIGNED_LINE pthread_mutex_t mutex; /* guards all fields below */
    bool open;
    uint32_t watching;       /* bit w: watch w is active */
    uint32_t patience, stay; /* central updates per closing; the number left */
    uint64_t bought;         /* shard updates since the last opening that an update caused */
    uint64_t slow;           /* updates that took the slow path, and slow operations */
    uint64_t used[GP_SHARDS_MAX / 64];
    struct gp_counter_bundle bundle[GP_BUNDLES_ALL];
    struct gp_delta event[GP_GAUGES_MAX]; /* of set_spread: the stack is the program's */
    bool frozen_open;                     /* between freeze and thaw: the set was open before */

    GP_ALIGNED_LINE struct gp_gate_cell pool[GP_GAUGES_MAX];
    int64_t share[GP_GAUGES_MAX]; /* of set_open_for, likewise */
    int64_t limit[GP_GAUGES_MAX];
    int64_t peak[GP_GAUGES_MAX];
    /* current = base + allocated - freed: an independent sum for gp_counter_check */
    int64_t base[GP_GAUGES_MAX];
    uint64_t reset_ns[GP_GAUGES_MAX]; /* when the totals were reset; 0: never */
    int64_t watch[GP_WATCHES_MAX][GP_GAUGES_MAX];
    /* Of the last raise of each gauge: its number, the amount that was added, and the peaks before
     * it. */
    uint32_t raise[GP_GAUGES_MAX];
    int64_t raise_amount[GP_GAUGES_MAX];
    int64_t raise_peak[GP_GAUGES_MAX];
    int64_t raise_watch[GP_WATCHES_MAX][GP_GAUGES_MAX];
};

static inline unsigned gauge_lowest(gp_gauge_set gauges)
{
    uint64_t low = (uint64_t)gauges;
    return (unsigned)(low ? __builtin_ctzll(low) : 64 + __builtin_ctzll((uint64_t)(gauges >> 64)));
}

#define GP_EACH_GAUGE(_gauges, _g)                                                                                     \
    for (gp_gauge_set gauges_ = (_gauges); gauges_; gauges_ &= gauges_ - 1)                                            \
        for (unsigned _g = gauge_lowest(gauges_), once_ = 1; once_; once_ = 0)

/* The gauges that were ever moved, or that a bundle has: all others are 0 everywhere, and no shard has credit for them.
 * A gauge enters before it moves for the first time, under the mutex. */
static inline gp_gauge_set set_moved(const struct gp_counter *set)
{
    return (gp_gauge_set)set->shape.x_moved[1] << 64 | set->shape.x_moved[0];
}

static inline void set_moves(struct gp_counter *set, gp_gauge_set gauges)
{
    gauges |= set_moved(set);
    for (unsigned word = 0; word < GP_COUNT(set->shape.x_moved); word++)
        if (set->shape.x_moved[word] != (uint64_t)(gauges >> 64 * word))
            __atomic_store_n(&set->shape.x_moved[word], (uint64_t)(gauges >> 64 * word), __ATOMIC_RELAXED);
}

static inline void set_moves_all(struct gp_counter *set, const struct gp_delta *deltas, unsigned n)
{
    gp_gauge_set gauges = 0;
    for (unsigned i = 0; i < n; i++)
        gauges |= GP_GAUGE_BIT(deltas[i].gauge);
    set_moves(set, gauges);
}

static inline struct gp_shard *shard_at(const struct gp_counter *set, unsigned index)
{
    return (struct gp_shard *)(set->shape.first + index * set->shape.stride);
}

/* Have all these gauges moved before? An old answer is no, which is safe. */
static inline bool set_knows(const struct gp_counter *set, const struct gp_delta *deltas, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        uint64_t word = __atomic_load_n(&set->shape.x_moved[deltas[i].gauge / 64], __ATOMIC_RELAXED);
        if (GP_UNLIKELY(!(word >> deltas[i].gauge % 64 & 1)))
            return false;
    }
    return true;
}

/* Is there enough credit for every delta? GP_SUB fits, unless a gauge is new. */
static inline bool cells_cover(const struct gp_counter *set, const struct gp_gate_cell *cells, enum gp_counter_op op,
                               const struct gp_delta *deltas, unsigned n)
{
    if (op == GP_SUB)
        return set_knows(set, deltas, n);
    for (unsigned i = 0; i < n; i++)
        if (GP_UNLIKELY(cells[deltas[i].gauge].credit < deltas[i].amount))
            return false;
    return true;
}

/* Defines the effect of each operation; cells are a shard's or the pool's. One loop for each
 * operation keeps the test of `op` out of the loop. */
static inline void cells_apply(struct gp_gate_cell *cells, enum gp_counter_op op, const struct gp_delta *deltas,
                               unsigned n)
{
    for (unsigned i = 0; op == GP_ADD && i < n; i++) {
        struct gp_gate_cell *cell = &cells[deltas[i].gauge];
        int64_t amount = deltas[i].amount;
        cell->credit -= amount;
        __asm__(""
                : "+m"(cell->credit)); /* two neighbours become one vector otherwise, which takes more instructions */
        cell->allocated += amount;
    }
    for (unsigned i = 0; op == GP_SUB && i < n; i++) {
        struct gp_gate_cell *cell = &cells[deltas[i].gauge];
        cell->credit += deltas[i].amount;
        cell->freed += deltas[i].amount;
    }
}

#endif
