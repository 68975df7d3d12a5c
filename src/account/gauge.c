/* SPDX-License-Identifier: MIT
 *
 * gauge.c: maps an event to the gauges that it moves.
 */
#include "account/gauge.h"

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

unsigned gp_gauge_deltas(const struct gp_move *move, struct gp_delta out[GP_DELTAS])
{
    struct gp_deltas deltas = {out, 0};
    enum gp_wire_pool pool = move->class_bytes <= GP_SMALL_BYTES ? GP_POOL_SMALL : GP_POOL_LARGE;
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
            deltas_put(&deltas, GP_GAUGE_LINEAR_ROUNDED, gp_gauge_rounded(move->bytes));
    }
    return deltas.count;
}

unsigned gp_gauge_block_deltas(int64_t bytes, struct gp_delta out[GP_DELTAS])
{
    const struct gp_move move = {.parts = GP_PART_ALLOCATED, .bytes = bytes, .class_bytes = bytes, .count = 1};
    return gp_gauge_deltas(&move, out);
}

void gp_gauge_block_bundles(struct gp_counter *set)
{
    for (unsigned pair = 0; pair < GP_PAIRS; pair++) {
        uint64_t pools = 1ull << GP_POOL_ALL | 1ull << (pair ? GP_POOL_LARGE : GP_POOL_SMALL);
        gp_counter_bundle(set, GP_BUNDLES + 2 * pair, pools << GP_GAUGE_ALLOCATION | pools << GP_GAUGE_ACTIVE);
        gp_counter_bundle(set, GP_BUNDLES + 2 * pair + 1,
                          pools << GP_GAUGE_ALLOCATED_BYTES | pools << GP_GAUGE_ACTIVE_BYTES);
    }
}

void gp_gauge_block_owner(struct gp_counter *owners, unsigned owner)
{
    unsigned first = owner * GP_OWNER_GAUGES;
    gp_counter_bundle(owners, GP_BUNDLES, GP_GAUGE_BIT(first + GP_OWNER_LIVE));
    gp_counter_bundle(owners, GP_BUNDLES + 1, GP_GAUGE_BIT(first + GP_OWNER_ALLOCATED));
}

unsigned gp_gauge_owner_deltas(const struct gp_move *move, struct gp_delta out[GP_OWNER_GAUGES])
{
    struct gp_deltas deltas = {out, 0};
    unsigned first = move->owner * GP_OWNER_GAUGES;
    if (move->parts & GP_PART_RESERVED)
        deltas_put(&deltas, first + GP_OWNER_RESERVED, move->bytes);
    if (move->parts & GP_PART_ALLOCATED) {
        deltas_put(&deltas, first + GP_OWNER_ALLOCATED, move->bytes);
        deltas_put(&deltas, first + GP_OWNER_LIVE, move->count);
    }
    return deltas.count;
}

unsigned gp_gauge_parts(enum gp_wire_kind kind)
{
    return GP_PART_KIND | gp_kind_sums(kind);
}

int64_t gp_gauge_rounded(int64_t bytes)
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
    /* When both are reset, the gauges that belong to neither alone restart too: oversize ones
     * and kinds. */
    if ((what & GP_RESET_PEAKS) == GP_RESET_PEAKS)
        mask |= gauge_bits(GP_GAUGE_OVERSIZE_ALLOCATIONS, GP_GAUGES - GP_GAUGE_OVERSIZE_ALLOCATIONS);
    return mask;
}

gp_gauge_set gp_gauge_owner_mask(unsigned what)
{
    gp_gauge_set mask = 0;
    for (unsigned owner = 0; owner < GP_WIRE_OWNERS && what != GP_RESET_ACCUMULATED; owner++) {
        gp_gauge_set first = GP_GAUGE_BIT(owner * GP_OWNER_GAUGES);
        mask |= what & GP_RESET_RESERVED ? first << GP_OWNER_RESERVED : 0;
        mask |= what & GP_RESET_ALLOCATED ? first << GP_OWNER_ALLOCATED | first << GP_OWNER_LIVE : 0;
    }
    return mask;
}
