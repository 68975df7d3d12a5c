/* SPDX-License-Identifier: MIT
 *
 * gauge.c: maps an event to the gauges that it moves.
 */
#include "base/gauge.h"

struct gp_deltas {
    struct gp_delta *out;
    unsigned count;
};

static void deltas_put(struct gp_deltas *deltas, unsigned gauge, int64_t amount)
{
    if (amount <= 0)
        return;
    deltas->out[deltas->count++] = (struct gp_delta){.gauge = gauge, .amount = amount};
}

static void deltas_put_pools(struct gp_deltas *deltas, unsigned gauge, enum gp_wire_pool pool, int64_t amount)
{
    deltas_put(deltas, gauge + GP_POOL_ALL, amount);
    deltas_put(deltas, gauge + pool, amount);
}

static void deltas_put_owner(struct gp_deltas *deltas, const struct gp_move *move)
{
    unsigned first = GP_GAUGE_OWNERS + move->owner * GP_OWNER_GAUGES;
    if (move->parts & GP_PART_RESERVED)
        deltas_put(deltas, first + GP_OWNER_RESERVED, move->bytes);
    if (move->parts & GP_PART_ALLOCATED) {
        deltas_put(deltas, first + GP_OWNER_ALLOCATED, move->bytes);
        deltas_put(deltas, first + GP_OWNER_LIVE, move->count);
    }
}

/* An estimate of the driver's footprint of a linear allocation. */
static int64_t gauge_rounded(int64_t bytes)
{
    int64_t more;
    gp_gauge_owned_pair(bytes, &more);
    return bytes + more;
}

static enum gp_wire_pool move_pool(const struct gp_move *move)
{
    return move->class_bytes <= GP_SMALL_BYTES ? GP_POOL_SMALL : GP_POOL_LARGE;
}

unsigned gp_gauge_deltas(const struct gp_move *move, struct gp_delta out[GP_DELTAS])
{
    struct gp_deltas deltas = {out, 0};
    enum gp_wire_pool pool = move_pool(move);
    if (move->parts & GP_PART_ALLOCATED) {
        deltas_put_pools(&deltas, GP_GAUGE_ALLOCATION, pool, move->count);
        deltas_put_pools(&deltas, GP_GAUGE_ALLOCATED_BYTES, pool, move->bytes);
        deltas_put_pools(&deltas, GP_GAUGE_ACTIVE, pool, move->count);
        deltas_put_pools(&deltas, GP_GAUGE_ACTIVE_BYTES, pool, move->bytes);
        deltas_put_pools(&deltas, GP_GAUGE_REQUESTED_BYTES, pool, move->requested_bytes);
    }
    if (move->parts & GP_PART_RESERVED) {
        deltas_put_pools(&deltas, GP_GAUGE_SEGMENT, pool, move->count);
        deltas_put_pools(&deltas, GP_GAUGE_RESERVED_BYTES, pool, move->bytes);
    }
    if (move->parts & GP_PART_KIND && move->kind) {
        deltas_put(&deltas, GP_GAUGE_KIND_BYTES + move->kind, move->bytes);
        deltas_put(&deltas, GP_GAUGE_KIND_LIVE + move->kind, move->count);
        if (move->kind == GP_KIND_LINEAR)
            deltas_put(&deltas, GP_GAUGE_LINEAR_ROUNDED, gauge_rounded(move->bytes));
    }
    deltas_put_owner(&deltas, move);
    return deltas.count;
}

/* What the pairs have, and what gp_gauge_deltas does for such a move, must be the same. */
static unsigned linear_rest(const struct gp_move *move, int64_t more, bool owned, struct gp_delta deltas[GP_DELTAS])
{
    unsigned first = GP_GAUGE_OWNERS + move->owner * GP_OWNER_GAUGES;
    struct gp_deltas rest = {deltas, 0};
    deltas_put(&rest, GP_GAUGE_LINEAR_ROUNDED, more);
    if (owned)
        return rest.count;
    deltas_put(&rest, first + GP_OWNER_RESERVED, move->bytes);
    deltas_put(&rest, first + GP_OWNER_ALLOCATED, move->bytes);
    deltas_put(&rest, first + GP_OWNER_LIVE, 1);
    return rest.count;
}

void gp_gauge_event(const struct gp_move *move, unsigned owner, struct gp_counter_event *event,
                    struct gp_delta deltas[GP_DELTAS])
{
    const unsigned allocated = GP_PART_ALLOCATED | GP_PART_KIND, all = allocated | GP_PART_RESERVED;
    bool plain =
        move->count == 1 && move->bytes > 0 && move->requested_bytes == move->bytes && move->class_bytes == move->bytes;
    event->deltas = deltas;
    if (GP_LIKELY(plain && move->kind == GP_KIND_LINEAR && move->parts == all)) {
        int64_t more;
        bool owned = move->owner == owner;
        event->pair = gp_gauge_owned_pair(move->bytes, &more);
        event->pair -= owned ? 0 : GP_PAIR_OWNED_SMALL - GP_PAIR_LINEAR_SMALL;
        event->amounts[0] = 1;
        event->amounts[1] = move->bytes;
        event->n = linear_rest(move, more, owned, deltas);
    } else if (plain && move->kind == GP_KIND_POOL && move->parts == allocated && move->owner == owner) {
        event->pair = gp_gauge_pool_pair(move->bytes);
        event->amounts[0] = 1;
        event->amounts[1] = move->bytes;
        event->n = 0;
    } else {
        event->pair = GP_PAIRS;
        event->n = gp_gauge_deltas(move, deltas);
    }
}

static void pair_set(struct gp_counter *set, unsigned pair, gp_gauge_set counts, gp_gauge_set bytes)
{
    gp_counter_bundle(set, GP_PAIR_BUNDLE(pair), counts);
    gp_counter_bundle(set, GP_PAIR_BUNDLE(pair) + 1, bytes);
}

static gp_gauge_set pools_of(bool large)
{
    return GP_GAUGE_BIT(GP_POOL_ALL) | GP_GAUGE_BIT(large ? GP_POOL_LARGE : GP_POOL_SMALL);
}

/* With more gauges of a count and of bytes. */
static void linear_set(struct gp_counter *set, unsigned pair, gp_gauge_set counts, gp_gauge_set bytes)
{
    for (unsigned large = 0; large < 2; large++) {
        gp_gauge_set pools = pools_of(large);
        pair_set(set, pair + large,
                 pools << GP_GAUGE_ALLOCATION | pools << GP_GAUGE_ACTIVE | pools << GP_GAUGE_SEGMENT |
                     GP_GAUGE_BIT(GP_GAUGE_KIND_LIVE + GP_KIND_LINEAR) | counts,
                 pools << GP_GAUGE_ALLOCATED_BYTES | pools << GP_GAUGE_ACTIVE_BYTES |
                     pools << GP_GAUGE_REQUESTED_BYTES | pools << GP_GAUGE_RESERVED_BYTES |
                     GP_GAUGE_BIT(GP_GAUGE_KIND_BYTES + GP_KIND_LINEAR) | GP_GAUGE_BIT(GP_GAUGE_LINEAR_ROUNDED) |
                     bytes);
    }
}

void gp_gauge_linear_pairs(struct gp_counter *set)
{
    linear_set(set, GP_PAIR_LINEAR_SMALL, 0, 0);
}

void gp_gauge_owned_pairs(struct gp_counter *set, unsigned owner)
{
    unsigned first = GP_GAUGE_OWNERS + owner * GP_OWNER_GAUGES;
    linear_set(set, GP_PAIR_OWNED_SMALL, GP_GAUGE_BIT(first + GP_OWNER_LIVE),
               GP_GAUGE_BIT(first + GP_OWNER_RESERVED) | GP_GAUGE_BIT(first + GP_OWNER_ALLOCATED));
}

void gp_gauge_pool_pairs(struct gp_counter *set, unsigned owner)
{
    unsigned first = GP_GAUGE_OWNERS + owner * GP_OWNER_GAUGES;
    for (unsigned large = 0; large < 2; large++) {
        gp_gauge_set pools = pools_of(large);
        pair_set(set, GP_PAIR_POOL_SMALL + large,
                 pools << GP_GAUGE_ALLOCATION | pools << GP_GAUGE_ACTIVE |
                     GP_GAUGE_BIT(GP_GAUGE_KIND_LIVE + GP_KIND_POOL) | GP_GAUGE_BIT(first + GP_OWNER_LIVE),
                 pools << GP_GAUGE_ALLOCATED_BYTES | pools << GP_GAUGE_ACTIVE_BYTES |
                     pools << GP_GAUGE_REQUESTED_BYTES | GP_GAUGE_BIT(GP_GAUGE_KIND_BYTES + GP_KIND_POOL) |
                     GP_GAUGE_BIT(first + GP_OWNER_ALLOCATED));
    }
}

void gp_gauge_block_pairs(struct gp_counter *set, unsigned owner)
{
    unsigned first = GP_GAUGE_OWNERS + owner * GP_OWNER_GAUGES;
    for (unsigned large = 0; large < 2; large++) {
        gp_gauge_set pools = pools_of(large);
        pair_set(set, GP_PAIR_BLOCK_SMALL + large,
                 pools << GP_GAUGE_ALLOCATION | pools << GP_GAUGE_ACTIVE | GP_GAUGE_BIT(first + GP_OWNER_LIVE),
                 pools << GP_GAUGE_ALLOCATED_BYTES | pools << GP_GAUGE_ACTIVE_BYTES |
                     GP_GAUGE_BIT(first + GP_OWNER_ALLOCATED));
    }
}

unsigned gp_gauge_parts(enum gp_wire_kind kind)
{
    return GP_PART_KIND | gp_kind_sums(kind);
}

static gp_gauge_set gauge_bits(unsigned first, unsigned count)
{
    return (GP_GAUGE_BIT(count) - 1) << first;
}

gp_gauge_set gp_gauge_mask(unsigned what)
{
    gp_gauge_set mask = 0;
    if (what == GP_RESET_ACCUMULATED)
        return gauge_bits(0, GP_GAUGES);
#define GP_STAT(_id, _gauge, _tag, _name, _reset, _told)                                                               \
    mask |= what & GP_RESET_##_reset ? gauge_bits(GP_GAUGE_##_tag, GP_POOLS) : 0;
#include <gpuprof/numbers.def>
    mask |= what & GP_RESET_ALLOCATED ? gauge_bits(GP_GAUGE_ASLEEP, 1) : 0;
    for (unsigned owner = 0; owner < GP_WIRE_OWNERS; owner++) {
        gp_gauge_set first = GP_GAUGE_BIT(GP_GAUGE_OWNERS + owner * GP_OWNER_GAUGES);
        mask |= what & GP_RESET_RESERVED ? first << GP_OWNER_RESERVED : 0;
        mask |= what & GP_RESET_ALLOCATED ? first << GP_OWNER_ALLOCATED | first << GP_OWNER_LIVE : 0;
    }
    /* When both are reset, the gauges that belong to neither alone restart too: oversize ones
     * and kinds. */
    if ((what & GP_RESET_PEAKS) == GP_RESET_PEAKS)
        mask |= gauge_bits(GP_GAUGE_OVERSIZE_ALLOCATIONS, GP_GAUGES - GP_GAUGE_OVERSIZE_ALLOCATIONS);
    return mask;
}
