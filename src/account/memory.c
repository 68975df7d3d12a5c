/* SPDX-License-Identifier: MIT
 *
 * memory.c: see memory.h. Called by ground.c and heap.c under their lock, and by block.c for a
 * segment that the driver did not free.
 */
#include "account/memory.h"
#include "account/event.h"
#include "account/feed/feed.h"
#include "account/ground.h"
#include "account/internal.h"
#include "account/move.h"
#include "account/segment.h"
#include "account/vmm.h"
#include "base/clock.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/span.h"
#include <gpuprof/wire.h>

struct gp_memory gp_memory = {.lock = GP_LOCK_INIT(GP_RANK_GROUND), .set = {.limit = 1u << 22}};

/* ---- the set ----------------------------------------------------------------------------------------------------- */

bool gp_memory_is(const struct gp_record *record)
{
    return (record->space == GP_SPACE_MAPPING || record->space == GP_SPACE_DEVICE || record->space == GP_SPACE_HOST ||
            record->space == GP_SPACE_REGISTERED) &&
           record->bytes && record->key + record->bytes > record->key;
}

struct gp_span *gp_memory_put(const struct gp_record *record)
{
    struct gp_span *span = gp_span_put(&gp_memory.set, record->key, record->bytes);
    if (!span) {
        gp_memory.lacks = true;
        gp_feed_lost(GP_LOST_MAP);
        return NULL;
    }
    span->device = record->device;
    span->owner = record->owner;
    span->memory = (struct gp_span_memory){.space = record->space, .kind = record->kind, .segment = record->segment};
    return span;
}

static bool memory_visit(struct gp_record *record, void *arg)
{
    (void)arg;
    if (gp_memory_is(record) && !gp_span_in(&gp_memory.set, record->key, record->bytes))
        gp_memory_put(record);
    return false;
}

/* It is switched on before the walk, which takes the lock of each shard, so a change is in the walk or its thread sees
 * the switch. */
void gp_memory_start(void)
{
    if (gp_accounts.x_memory_on && !gp_memory.lacks)
        return;
    gp_memory.lacks = false;
    __atomic_store_n(&gp_accounts.x_memory_on, 1, __ATOMIC_RELAXED);
    gp_map_each(gp_accounts.blocks, memory_visit, NULL);
    gp_map_each(gp_accounts.objects, memory_visit, NULL);
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

struct memory_change {
    uint8_t segment, owner;
    bool done;
    struct gp_record before, after;
};

/* Bytes of other kinds are in none of the totals, or are estimates. */
static bool linear_make(struct gp_record *record, void *arg)
{
    struct memory_change *change = arg;
    bool heap = change->segment == GP_SEGMENT_HEAP;
    change->before = *record;
    change->done = !record->segment && record->device != GP_NO_DEVICE &&
                   (record->kind == GP_KIND_LINEAR ||
                    (!heap && (record->kind == GP_KIND_PITCHED || record->kind == GP_KIND_POOL)));
    if (change->done) {
        record->segment = change->segment;
        record->owner = heap && !change->owner ? record->owner : change->owner;
        record->flags = 0;
        record->memory.own_site = record->site;
        record->site = heap ? 0 : record->site; /* what lies beside its heaps has it */
    }
    change->after = *record;
    return false;
}

/* The allocated part of the allocation's move when it is no segment. */
static struct gp_move linear_allocated(const struct gp_record *record)
{
    struct gp_move move = gp_account_block_move(record);
    move.parts = GP_PART_ALLOCATED;
    return move;
}

/* In a recording an allocation ends and a segment of the same memory begins; the mark of the first makes them one. */
static bool memory_make_linear(uint64_t address, struct memory_change *change, bool whole)
{
    const struct gp_record *before = &change->before;
    if (gp_map_update(gp_accounts.blocks, GP_SPACE_DEVICE, address, linear_make, change) != 0 || !change->done)
        return false;
    struct gp_move move = linear_allocated(before);
    if (!whole)
        gp_event_record_at(GP_EVENT_FREE, before, 0, gp_account_move(before->device, GP_SUB, &move));
    else if (gp_account_retract(before->device, before->memory.raises, &move))
        gp_event_marked(GP_FREE_SEGMENT, before, gp_clock_ns());
    else
        gp_event_record(GP_EVENT_FREE, before, 0);
    gp_segment_framework(&change->after, GP_ADD);
    gp_segment_remade(before, &change->after);
    change->after.time_ns = 0; /* now */
    change->after.site = change->after.memory.own_site;
    gp_event_record(GP_EVENT_ALLOC, &change->after, 0);
    return true;
}

static bool handle_turn(struct gp_record *handle, void *arg)
{
    gp_vmm_turn(handle, arg);
    return false;
}

static bool handle_turn_back(struct gp_record *handle, void *arg)
{
    struct gp_vmm_change *change = arg;
    change->turned = handle->segment == GP_SEGMENT_HEAP;
    change->after = *handle; /* as it was */
    handle->segment = GP_SEGMENT_NONE;
    return false;
}

struct mapping_mark_as {
    uint64_t handle, raises;
    uint8_t segment, owner;
    bool done;
};

static bool mapping_mark(struct gp_record *mapping, void *arg)
{
    struct mapping_mark_as *mark = arg;
    mark->done = mapping->mapping.handle == mark->handle && mapping->segment != mark->segment;
    if (!mark->done)
        return false;
    mapping->segment = mark->segment;
    mapping->owner = mark->owner ? mark->owner : mapping->owner;
    mapping->mapping.raises = mark->raises;
    return false;
}

/* An unmap takes the mapping out of the map first, and only then asks the handle. So the handle
 * alone decides whether its share is allocated: whatever changes its segment moves the totals. */
static bool memory_make_mapping(uint64_t address, uint8_t want, uint8_t owner, bool whole)
{
    struct gp_record mapping;
    struct gp_vmm_change change = {.want = want, .owner = owner};
    if (gp_map_find(gp_accounts.objects, GP_SPACE_MAPPING, address, &mapping) != 0 || mapping.segment ||
        mapping.requested_bytes != mapping.bytes)
        return false;
    change.bytes = mapping.bytes;
    if (gp_map_update(gp_accounts.objects, GP_SPACE_VMM, mapping.mapping.handle, handle_turn, &change) != 0 ||
        !change.turned)
        return false;
    struct gp_move move = gp_account_block_move(&change.before);
    move.parts = GP_PART_ALLOCATED;
    if (whole)
        gp_account_retract(mapping.device, mapping.mapping.raises, &move);
    else
        gp_account_move(mapping.device, GP_SUB, &move);
    gp_event_record(GP_EVENT_SEGMENT_UNMAP, &mapping, 0);
    gp_vmm_turned(&change);
    struct mapping_mark_as mark = {.handle = mapping.mapping.handle, .segment = want, .owner = owner};
    if (gp_map_update(gp_accounts.objects, GP_SPACE_MAPPING, address, mapping_mark, &mark) != 0 || !mark.done)
        return false;
    mapping.segment = want;
    gp_event_record(GP_EVENT_SEGMENT_MAP, &mapping, 0);
    return true;
}

bool gp_memory_make(struct gp_span *memory, uint8_t want, uint8_t owner, bool whole)
{
    struct memory_change change = {.segment = want, .owner = owner};
    bool made = false;
    if (memory->memory.space == GP_SPACE_MAPPING)
        made = memory_make_mapping(memory->address, want, owner, whole);
    else if (memory->memory.space == GP_SPACE_DEVICE)
        made = memory_make_linear(memory->address, &change, whole);
    if (!made)
        return false;
    memory->memory.segment = want;
    memory->owner = owner ? owner : memory->owner;
    return true;
}

static void linear_plain(struct gp_record *record)
{
    record->segment = GP_SEGMENT_NONE;
    record->flags = 0;
    record->site = record->memory.own_site;
    record->memory = (struct gp_record_memory){.raises = gp_account_raises(record->device)};
}

static bool linear_unmake(struct gp_record *record, void *arg)
{
    struct memory_change *change = arg;
    change->before = *record;
    change->done = record->segment == change->segment;
    if (change->done)
        linear_plain(record);
    change->after = *record;
    return false;
}

static void linear_unmade(const struct gp_record *before, struct gp_record after)
{
    struct gp_move move = linear_allocated(&after);
    gp_segment_not(before);
    gp_segment_remade(before, &after);
    after.time_ns = gp_account_move(after.device, GP_ADD, &move);
    gp_event_record(GP_EVENT_ALLOC, &after, 0);
}

static void memory_unmake_mapping(uint64_t address)
{
    struct gp_record mapping;
    struct gp_vmm_change change = {0};
    if (gp_map_find(gp_accounts.objects, GP_SPACE_MAPPING, address, &mapping) != 0 ||
        mapping.segment != GP_SEGMENT_HEAP)
        return;
    struct mapping_mark_as mark = {.handle = mapping.mapping.handle, .raises = gp_account_raises(mapping.device)};
    if (gp_map_update(gp_accounts.objects, GP_SPACE_MAPPING, address, mapping_mark, &mark) != 0 || !mark.done ||
        gp_map_update(gp_accounts.objects, GP_SPACE_VMM, mapping.mapping.handle, handle_turn_back, &change) != 0 ||
        !change.turned)
        return;
    gp_event_record(GP_EVENT_SEGMENT_UNMAP, &mapping, 0);
    gp_vmm_turned_back(&change.after);
    mapping.segment = GP_SEGMENT_NONE;
    gp_event_record(GP_EVENT_SEGMENT_MAP, &mapping, 0);
}

void gp_memory_unmake(enum gp_space space, uint64_t address, uint8_t segment)
{
    struct memory_change change = {.segment = segment};
    struct gp_span *span = gp_memory_on() ? gp_span_at(&gp_memory.set, address) : NULL;
    if (span)
        span->memory.segment = GP_SEGMENT_NONE;
    if (space == GP_SPACE_MAPPING) {
        memory_unmake_mapping(address);
    } else if (gp_map_update(gp_accounts.blocks, (uint8_t)space, address, linear_unmake, &change) == 0 && change.done) {
        gp_event_record(GP_EVENT_FREE, &change.before, 0);
        linear_unmade(&change.before, change.after);
    }
}

void gp_memory_refused(struct gp_record *segment)
{
    const struct gp_record before = *segment;
    linear_plain(segment);
    linear_unmade(&before, *segment); /* that the segment ends was recorded before the call */
}
