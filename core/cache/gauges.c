/* SPDX-License-Identifier: MIT
 *
 * gauges.c: which statistics an event of the cache changes (PyTorch's rules, CUDACachingAllocator:
 * increase and decrease in alloc_found_block, free and free_block). A free updates them before the
 * memory can be allocated again, and an allocation before it returns, so that no peak counts memory
 * that was never in use at the same time.
 */
#include "cache/gauges.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "cache/internal.h"
#include <gpuprof/wire.h>

static bool block_is_small(const struct gp_cache *cache, const struct gp_block *block)
{
    return cache->policy.small_bytes ? block->segment->heap->kind.small : block->bytes <= 1u << 20;
}

struct gp_moves {
    struct gp_delta deltas[GP_DELTAS];
    unsigned count;
};

static void moves_put(struct gp_moves *moves, unsigned gauge, uint64_t amount)
{
    if (amount)
        moves->deltas[moves->count++] = (struct gp_delta){.gauge = gauge, .amount = (int64_t)amount};
}

static void moves_pools(struct gp_moves *moves, unsigned gauge, bool small, uint64_t amount)
{
    moves_put(moves, gauge + GP_POOL_ALL, amount);
    moves_put(moves, gauge + (small ? GP_POOL_SMALL : GP_POOL_LARGE), amount);
}

static uint64_t moves_apply(struct gp_cache *cache, unsigned shard, enum gp_counter_op op, const struct gp_moves *moves)
{
    if (cache->times && moves->count)
        return gp_counter_apply_timed(cache->gauges, shard, op, moves->deltas, moves->count);
    gp_counter_apply(cache->gauges, shard, op, moves->deltas, moves->count);
    return 0;
}

static void moves_allocated(struct gp_cache *cache, struct gp_moves *moves, const struct gp_block *block)
{
    bool small = block_is_small(cache, block);
    moves_pools(moves, GP_GAUGE_ALLOCATION, small, 1);
    moves_pools(moves, GP_GAUGE_ALLOCATED_BYTES, small, block->bytes);
    moves_put(moves, GP_GAUGE_KIND_BYTES + GP_KIND_LINEAR, block->requested_bytes);
    moves_put(moves, GP_GAUGE_KIND_LIVE + GP_KIND_LINEAR, 1);
    if (block->oversize)
        moves_put(moves, GP_GAUGE_OVERSIZE_ALLOCATIONS, 1);
}

static void moves_active(struct gp_cache *cache, struct gp_moves *moves, const struct gp_block *block)
{
    bool small = block_is_small(cache, block);
    moves_pools(moves, GP_GAUGE_ACTIVE, small, 1);
    moves_pools(moves, GP_GAUGE_ACTIVE_BYTES, small, block->bytes);
    moves_pools(moves, GP_GAUGE_REQUESTED_BYTES, small, block->requested_bytes);
}

uint64_t gp_cache_gauges_alloc(struct gp_cache *cache, unsigned shard, const struct gp_block *block)
{
    if (cache->uncounted)
        return 0;
    struct gp_moves moves = {.count = 0};
    moves_allocated(cache, &moves, block);
    moves_active(cache, &moves, block);
    return moves_apply(cache, shard, GP_ADD, &moves);
}

uint64_t gp_cache_gauges_free(struct gp_cache *cache, unsigned shard, const struct gp_block *block)
{
    if (cache->uncounted)
        return 0;
    struct gp_moves moves = {.count = 0};
    moves_allocated(cache, &moves, block);
    return moves_apply(cache, shard, GP_SUB, &moves);
}

uint64_t gp_cache_gauges_end(struct gp_cache *cache, unsigned shard, const struct gp_block *block)
{
    if (cache->uncounted)
        return 0;
    struct gp_moves moves = {.count = 0};
    moves_allocated(cache, &moves, block);
    moves_active(cache, &moves, block);
    return moves_apply(cache, shard, GP_SUB, &moves);
}

void gp_cache_gauges_done(struct gp_cache *cache, const struct gp_block *block)
{
    if (cache->uncounted)
        return;
    struct gp_moves moves = {.count = 0};
    moves_active(cache, &moves, block);
    moves_apply(cache, 0, GP_SUB, &moves);
}

void gp_cache_gauges_split(struct gp_cache *cache, const struct gp_block *block, bool up)
{
    if (cache->uncounted)
        return;
    struct gp_moves moves = {.count = 0};
    bool small = block_is_small(cache, block);
    moves_pools(&moves, GP_GAUGE_INACTIVE_SPLIT, small, 1);
    moves_pools(&moves, GP_GAUGE_INACTIVE_SPLIT_BYTES, small, block->bytes);
    moves_apply(cache, 0, up ? GP_ADD : GP_SUB, &moves);
}

uint64_t gp_cache_gauges_reserve(struct gp_cache *cache, const struct gp_heap *heap, uint64_t bytes, bool segment,
                                 bool oversize, bool up)
{
    if (cache->uncounted)
        return 0;
    struct gp_moves moves = {.count = 0};
    moves_pools(&moves, GP_GAUGE_RESERVED_BYTES, heap->kind.small, bytes);
    if (segment)
        moves_pools(&moves, GP_GAUGE_SEGMENT, heap->kind.small, 1);
    if (segment && oversize)
        moves_put(&moves, GP_GAUGE_OVERSIZE_SEGMENTS, 1);
    return moves_apply(cache, 0, up ? GP_ADD : GP_SUB, &moves);
}
