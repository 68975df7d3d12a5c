/* SPDX-License-Identifier: MIT
 *
 * gauge.h: which gauges one device has, and which of them an event moves.
 */
#ifndef GP_BASE_GAUGE_H
#define GP_BASE_GAUGE_H

#include "base/counter.h"
#include "base/numbers.h"
#include <gpuprof/wire.h>
#include <stdbool.h>

enum gp_owner_gauge { GP_OWNER_RESERVED, GP_OWNER_ALLOCATED, GP_OWNER_LIVE, GP_OWNER_GAUGES };

enum gp_gauge {
/* Each statistic of numbers.def has GP_POOLS gauges: all, small, large. */
#define GP_STAT(_id, _gauge, _tag, ...) GP_GAUGE_##_tag = (_gauge)*GP_POOLS,
#include <gpuprof/numbers.def>
    GP_GAUGE_OVERSIZE_ALLOCATIONS = GP_STATS * GP_POOLS,
    GP_GAUGE_OVERSIZE_SEGMENTS,
    /* + kind, from 1 on: none has no gauges. */
    GP_GAUGE_KIND_BYTES = GP_GAUGE_OVERSIZE_SEGMENTS,
    GP_GAUGE_KIND_LIVE = GP_GAUGE_KIND_BYTES + GP_KINDS - 1,
    GP_GAUGE_POOL_RESERVED = GP_GAUGE_KIND_LIVE + GP_KINDS,
    GP_GAUGE_GRAPH_RESERVED,
    GP_GAUGE_GRAPH_USED,
    GP_GAUGE_LINEAR_ROUNDED,
    GP_GAUGE_ASLEEP,
    GP_GAUGE_OWNERS, /* + owner * GP_OWNER_GAUGES + enum gp_owner_gauge */
    GP_GAUGES = GP_GAUGE_OWNERS + GP_WIRE_OWNERS * GP_OWNER_GAUGES
};
/* Statistics with pools take three, kinds two, values one. */
_Static_assert(GP_GAUGES <= GP_GAUGES_MAX, "one bit per gauge");
#define GP_STAT(_id, _gauge, ...) +(1u << (_gauge))
enum {
    GP_GAUGE_PLACES = 0
#include <gpuprof/numbers.def>
};
_Static_assert(GP_GAUGE_PLACES == (1u << GP_STATS) - 1, "numbers.def gives each place among the gauges once");

/* The most gauges that one event moves: each statistic in two pools, the kind's bytes and count, the
 * rounded estimate, the owner's. */
#define GP_DELTAS (2 * GP_STATS + 3 + GP_OWNER_GAUGES)

/* Parts of an event: which statistics it moves. */
#define GP_PART_ALLOCATED GP_SUM_ALLOCATED /* allocation, allocated_bytes, active, active_bytes, requested_bytes */
#define GP_PART_RESERVED  GP_SUM_RESERVED  /* segment, reserved_bytes */
#define GP_PART_KIND      4u               /* the kind's bytes and count */

struct gp_move {
    enum gp_wire_kind kind;
    unsigned parts;
    int64_t bytes;
    int64_t requested_bytes;
    int64_t class_bytes; /* the size that decides between small and large: that of the whole block */
    int64_t count;       /* 1, or 0 when only bytes move */
    uint8_t owner;       /* row in the table of owners */
};

#define GP_SMALL_BYTES (1 << 20) /* PyTorch's kSmallSize: blocks up to this size belong to the small pool */

/* The pairs of a device's counters (base/counter.h): blocks that the framework reports, whose requested bytes are not
 * known; linear memory that no framework divides, of the owner that takes most of it and of all others; and memory of
 * pools, of the owner that takes most of that. These come and go more often than anything else. */
enum gp_gauge_pair {
    GP_PAIR_BLOCK_SMALL,
    GP_PAIR_BLOCK_LARGE,
    GP_PAIR_LINEAR_SMALL,
    GP_PAIR_LINEAR_LARGE,
    GP_PAIR_OWNED_SMALL,
    GP_PAIR_OWNED_LARGE,
    GP_PAIR_POOL_SMALL,
    GP_PAIR_POOL_LARGE
};
_Static_assert(GP_PAIR_POOL_LARGE + 1 == GP_PAIRS && GP_PAIR_POOL_SMALL % 2 == 0, "small and large follow each other");
static inline unsigned gp_gauge_block_pair(int64_t bytes)
{
    return bytes > GP_SMALL_BYTES ? GP_PAIR_BLOCK_LARGE : GP_PAIR_BLOCK_SMALL;
}
/* Linear memory: the pairs without an owner; those of an owner, once. */
void gp_gauge_linear_pairs(struct gp_counter *set);
void gp_gauge_owned_pairs(struct gp_counter *set, unsigned owner);
/* Of pools' memory of that owner; and of blocks. */
void gp_gauge_pool_pairs(struct gp_counter *set, unsigned owner);
void gp_gauge_block_pairs(struct gp_counter *set, unsigned owner);

/* Fills out[] with the gauges that move, the owner's too, and returns how many. Amounts are positive. */
unsigned gp_gauge_deltas(const struct gp_move *move, struct gp_delta out[GP_DELTAS]);
static inline unsigned gp_gauge_pool_pair(int64_t bytes)
{
    return bytes > GP_SMALL_BYTES ? GP_PAIR_POOL_LARGE : GP_PAIR_POOL_SMALL;
}
/* The same as an event, with a pair if one fits. owner: of the kind's pairs; GP_WIRE_OWNERS: they are not set yet.
 * deltas: room for those that it leaves. */
void gp_gauge_event(const struct gp_move *move, unsigned owner, struct gp_counter_event *event,
                    struct gp_delta deltas[GP_DELTAS]);
/* The pair of linear memory of the owner of gp_gauge_owned_pairs, and by how much the estimate of the driver's
 * footprint, GP_GAUGE_LINEAR_ROUNDED, moves beyond the pair's bytes. */
static inline unsigned gp_gauge_owned_pair(int64_t bytes, int64_t *more)
{
    /* Up to 1 MiB in 512 B steps inside shared 2 MiB blocks, larger ones in whole 2 MiB pages (addresses observed in
     * ROCm/hip issue 2257). */
    bool large = bytes > GP_SMALL_BYTES;
    *more = -bytes & (large ? (2 << 20) - 1 : 511);
    return large ? GP_PAIR_OWNED_LARGE : GP_PAIR_OWNED_SMALL;
}

/* The parts that a plain block of this kind moves. Of memory that is allocated apart from its creation, such as
 * mappings of VMM memory, the callers move GP_PART_ALLOCATED themselves. */
unsigned gp_gauge_parts(enum gp_wire_kind kind);

/* Bits of the gauges whose peaks `--allocated` and `--reserved` reset; for totals, all of them. */
gp_gauge_set gp_gauge_mask(unsigned what);

#endif
