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

static enum gp_wire_pool move_pool(const struct gp_move *move)
{
    return move->class_bytes <= GP_SMALL_BYTES ? GP_POOL_SMALL : GP_POOL_LARGE;
}

static int64_t gauge_rounded(int64_t bytes);

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

/* What gp_gauge_linear_pairs has, and what gp_gauge_deltas does for such a move, must be the same. */
static unsigned linear_rest(const struct gp_move *move, struct gp_delta deltas[GP_DELTAS])
{
    unsigned first = GP_GAUGE_OWNERS + move->owner * GP_OWNER_GAUGES;
    deltas[0] = (struct gp_delta){.gauge = GP_GAUGE_LINEAR_ROUNDED, .amount = gauge_rounded(move->bytes)};
    deltas[1] = (struct gp_delta){.gauge = first + GP_OWNER_RESERVED, .amount = move->bytes};
    deltas[2] = (struct gp_delta){.gauge = first + GP_OWNER_ALLOCATED, .amount = move->bytes};
    deltas[3] = (struct gp_delta){.gauge = first + GP_OWNER_LIVE, .amount = 1};
    return 4;
}

void gp_gauge_event(const struct gp_move *move, struct gp_counter_event *event, struct gp_delta deltas[GP_DELTAS])
{
    const unsigned all = GP_PART_ALLOCATED | GP_PART_RESERVED | GP_PART_KIND;
    event->deltas = deltas;
    if (GP_LIKELY(move->kind == GP_KIND_LINEAR && move->parts == all && move->count == 1 && move->bytes > 0 &&
                  move->requested_bytes == move->bytes)) {
        event->pair = move_pool(move) == GP_POOL_SMALL ? GP_PAIR_LINEAR_SMALL : GP_PAIR_LINEAR_LARGE;
        event->amounts[0] = 1;
        event->amounts[1] = move->bytes;
        event->n = linear_rest(move, deltas);
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

void gp_gauge_linear_pairs(struct gp_counter *set)
{
    for (unsigned large = 0; large < 2; large++) {
        gp_gauge_set pools = pools_of(large);
        pair_set(set, GP_PAIR_LINEAR_SMALL + large,
                 pools << GP_GAUGE_ALLOCATION | pools << GP_GAUGE_ACTIVE | pools << GP_GAUGE_SEGMENT |
                     GP_GAUGE_BIT(GP_GAUGE_KIND_LIVE + GP_KIND_LINEAR),
                 pools << GP_GAUGE_ALLOCATED_BYTES | pools << GP_GAUGE_ACTIVE_BYTES |
                     pools << GP_GAUGE_REQUESTED_BYTES | pools << GP_GAUGE_RESERVED_BYTES |
                     GP_GAUGE_BIT(GP_GAUGE_KIND_BYTES + GP_KIND_LINEAR));
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

/* An estimate of the driver's footprint of a linear allocation: up to 1 MiB in 512 B steps
 * inside shared 2 MiB blocks, larger ones in whole 2 MiB pages (addresses observed in ROCm/hip
 * issue 2257). */
static int64_t gauge_rounded(int64_t bytes)
{
    int64_t step = bytes <= GP_SMALL_BYTES ? 512 : 2 << 20;
    return (bytes + step - 1) / step * step;
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
