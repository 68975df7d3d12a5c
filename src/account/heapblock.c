/* SPDX-License-Identifier: MIT
 *
 * heapblock.c: the blocks of heaps, and the two sets that count them; under the lock of heap.c.
 */
#include "account/heaps.h"

/* A block of 512 B in each of them would be 2 GiB. */
#define HEAP_BLOCKS (1u << 22)
#define HEAPS       (1u << 16)

struct gp_heaps gp_heaps = {
    .heaps = {.limit = HEAPS},
    .blocks = {.limit = HEAP_BLOCKS},
    .left = {.limit = HEAPS},
    .pieces = {.limit = HEAPS},
};

static void heap_count(const struct gp_span *block, int sign, int64_t bytes)
{
    struct gp_account *account = gp_account_of(block->device);
    if (!account || block->flag)
        return;
    struct gp_framework *of = &account->heaps;
    __atomic_fetch_add(&of->x_events, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&of->x_blocks, sign, __ATOMIC_RELAXED);
    __atomic_fetch_add(&of->x_allocated_bytes, sign * bytes, __ATOMIC_RELAXED);
}

void gp_heaps_block_enter(const struct gp_span *block, uint32_t site)
{
    struct gp_record record = {
        .key = block->address,
        .space = GP_SPACE_BLOCK,
        .kind = GP_KIND_LINEAR,
        .device = block->device,
        .owner = block->owner,
        .bytes = block->bytes,
        .requested_bytes = block->bytes,
        .site = site,
    };
    struct gp_move move = gp_account_block_move(&record);
    record.time_ns = gp_account_move(record.device, GP_ADD, &move);
    heap_count(block, 1, (int64_t)block->bytes);
    if (gp_map_insert(gp_accounts.blocks, &record, NULL) < 0)
        gp_feed_lost(GP_LOST_MAP); /* the sums are right all the same: the range has the size */
    gp_event_record(GP_EVENT_ALLOC, &record, 0);
}

uint32_t gp_heaps_block_leave(const struct gp_span *block)
{
    struct gp_record record;
    if (gp_map_take(gp_accounts.blocks, GP_SPACE_BLOCK, block->address, &record) != 0)
        record = (struct gp_record){
            .key = block->address, .space = GP_SPACE_BLOCK, .kind = GP_KIND_LINEAR, .device = block->device};
    record.owner = block->owner;
    record.bytes = record.requested_bytes = block->bytes;
    struct gp_move move = gp_account_block_move(&record);
    uint64_t time_ns = gp_account_move(record.device, GP_SUB, &move);
    heap_count(block, -1, (int64_t)block->bytes);
    gp_event_record_at(GP_EVENT_FREE, &record, 0, time_ns);
    return record.site;
}

void gp_heaps_block_put(uint64_t address, uint64_t bytes, const struct gp_span *like, bool rest, uint32_t site)
{
    struct gp_span *block = gp_span_put(&gp_heaps.blocks, address, bytes);
    if (!block) {
        gp_feed_lost(GP_LOST_MAP);
        return;
    }
    block->device = like->device;
    block->owner = like->owner;
    block->flag = rest;
    gp_heaps_block_enter(block, site);
}

void gp_heaps_blocks_end(uint64_t address, uint64_t bytes)
{
    struct gp_span *block;
    while ((block = gp_span_in(&gp_heaps.blocks, address, bytes))) {
        gp_heaps_block_leave(block);
        gp_span_drop(&gp_heaps.blocks, block);
    }
}
