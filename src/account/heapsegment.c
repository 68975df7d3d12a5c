/* SPDX-License-Identifier: MIT
 *
 * heapsegment.c: driver allocations of linear memory that have heaps: segments. Under the lock of heap.c.
 */
#include "account/heaps.h"

static void segment_plain(struct gp_record *record)
{
    record->segment = GP_SEGMENT_NONE;
    record->site = record->memory.own_site;
    record->memory = (struct gp_record_memory){.raises = gp_account_raises(record->device)};
}

static bool heap_leave(struct gp_record *record, void *arg)
{
    struct gp_heap_change *change = arg;
    if (record->segment != GP_SEGMENT_HEAP || record->memory.heaps != 0)
        return false;
    change->before = *record;
    segment_plain(record);
    change->after = *record;
    change->done = true;
    return false;
}

/* What the driver allocation has as allocated bytes when it is no segment. */
static void segment_allocated(const struct gp_record *plain, enum gp_counter_op op)
{
    struct gp_move move = gp_account_block_move(plain);
    move.parts = GP_PART_ALLOCATED;
    gp_account_move(plain->device, op, &move);
}

/* In a recording an allocation ends and a segment of the same memory begins, or the reverse. */
static void segment_events(const struct gp_record *before, const struct gp_record *after)
{
    struct gp_record begins = *after;
    begins.time_ns = 0; /* now: the record has the time of the driver's call */
    begins.site = after->segment ? after->memory.own_site : after->site;
    gp_event_record(GP_EVENT_FREE, before, 0);
    gp_event_record(GP_EVENT_ALLOC, &begins, 0);
}

/* What lies around the first heap of a segment. */
static void segment_rest(const struct gp_heap_change *change, uint32_t site)
{
    const struct gp_record *segment = &change->after;
    const struct gp_span like = {.device = segment->device, .owner = segment->owner};
    uint64_t end = change->address + change->bytes, last = segment->key + segment->bytes;
    if (change->address > segment->key)
        gp_heaps_block_put(segment->key, change->address - segment->key, &like, true, site);
    if (end < last)
        gp_heaps_block_put(end, last - end, &like, true, site);
}

/* If the heap is all of the memory, the peaks forget it; else a part of it was allocated indeed. */
void gp_heaps_segment_begin(const struct gp_heap_change *change)
{
    const struct gp_record *plain = &change->before;
    if (change->bytes == plain->bytes) {
        struct gp_move move = gp_account_block_move(plain);
        move.parts = GP_PART_ALLOCATED;
        gp_account_retract(plain->device, plain->memory.raises, &move);
    } else {
        segment_allocated(plain, GP_SUB);
    }
    gp_framework_segment(&change->after, GP_ADD);
    segment_events(&change->before, &change->after);
    segment_rest(change, change->before.site);
}

static void segment_end(const struct gp_heap_change *change)
{
    gp_heaps_blocks_end(change->after.key, change->after.bytes); /* rest */
    gp_framework_segment(&change->before, GP_SUB);
    segment_events(&change->before, &change->after);
    segment_allocated(&change->after, GP_ADD);
}

void gp_heaps_segment_settle(uint64_t key)
{
    struct gp_heap_change change = {0};
    __atomic_store_n(&gp_heaps.x_settling, 1, __ATOMIC_RELAXED);
    if (gp_map_update(gp_accounts.blocks, GP_SPACE_DEVICE, key, heap_leave, &change) == 0 && change.done)
        segment_end(&change);
    __atomic_store_n(&gp_heaps.x_settling, 0, __ATOMIC_RELEASE); /* [settle.R] pairs with [settle.A] */
}

void gp_heaps_left_drop(struct gp_span *segment)
{
    gp_span_drop(&gp_heaps.left, segment);
    __atomic_store_n(&gp_heaps.x_left, (uint32_t)gp_heaps.left.count, __ATOMIC_RELAXED);
}

void gp_heaps_left_put(const struct gp_record *segment)
{
    struct gp_span *left = gp_span_put(&gp_heaps.left, segment->key, segment->bytes);
    if (!left) {
        gp_heaps_segment_settle(segment->key);
        return;
    }
    left->link = segment->key;
    left->size = segment->bytes;
    __atomic_store_n(&gp_heaps.x_left, (uint32_t)gp_heaps.left.count, __ATOMIC_RELAXED);
}

void gp_heaps_segment_again(const struct gp_heap_change *change)
{
    struct gp_span *segment = gp_span_at(&gp_heaps.left, change->after.key);
    if (segment)
        gp_heaps_left_drop(segment);
    gp_heaps_blocks_end(change->after.key, change->after.bytes);
    segment_rest(change, change->after.memory.own_site);
}

void gp_heaps_segment_carve(uint64_t address, uint64_t bytes)
{
    struct gp_span *found;
    while ((found = gp_span_in(&gp_heaps.blocks, address, bytes))) {
        struct gp_span rest = *found;
        uint64_t end = address + bytes, rest_end = rest.address + rest.bytes;
        uint32_t site = gp_heaps_block_leave(found);
        gp_span_drop(&gp_heaps.blocks, found);
        if (rest.address < address)
            gp_heaps_block_put(rest.address, address - rest.address, &rest, true, site);
        if (rest_end > end)
            gp_heaps_block_put(end, rest_end - end, &rest, true, site);
    }
}

void gp_heap_plain(struct gp_record *segment)
{
    struct gp_record before = *segment;
    segment_plain(segment);
    struct gp_record begins = *segment;
    begins.time_ns = 0;
    gp_framework_segment(&before, GP_SUB);
    gp_event_record(GP_EVENT_ALLOC, &begins, 0); /* that the segment ends was recorded before the call */
    segment_allocated(segment, GP_ADD);
}
