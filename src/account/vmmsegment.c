/* SPDX-License-Identifier: MIT
 *
 * vmmsegment.c: memory of cuMemCreate that becomes a segment, and is none again. A handle and its only mapping
 * are one as long as memory.c says so. Called by vmm.c and memory.c.
 */
#include "account/vmm.h"

void gp_vmm_count_unmapped(int device, enum gp_counter_op op, int64_t bytes)
{
    struct gp_account *account = gp_account_of(device);
    if (account && op != GP_TAKEN)
        __atomic_fetch_add(&account->x_unmapped, op == GP_SUB || op == GP_TAKE ? -bytes : bytes, __ATOMIC_RELAXED);
}

uint64_t gp_vmm_move_share(const struct gp_vmm_change *change, enum gp_counter_op op)
{
    const struct gp_record *handle = &change->after;
    /* A framework's segment is allocated in blocks, however it is mapped. */
    if (handle->kind == GP_KIND_VIRTUAL || handle->segment || handle->device == GP_NO_DEVICE)
        return 0;
    struct gp_move move = {
        .kind = handle->kind,
        .parts = GP_PART_ALLOCATED,
        .bytes = change->share,
        .requested_bytes = change->share,
        .class_bytes = (int64_t)handle->bytes,
        .count = change->crossed,
        .owner = handle->owner,
    };
    if (handle->kind == GP_KIND_IMPORTED) {
        move.parts = GP_PART_KIND;
        move.bytes = change->imported;
    } else
        gp_vmm_count_unmapped(handle->device, op, -change->share);
    return gp_account_move(handle->device, op, &move);
}

/* A walk must cost less than the driver's unmap. In a larger map the walk over the blocks lacks the
 * bytes that would be handed on; the totals have them. */
#define GP_VMM_WALK 4096u

struct gp_vmm_rest {
    uint64_t handle, bytes;
};

static bool vmm_take_rest(struct gp_record *record, void *arg)
{
    struct gp_vmm_rest *rest = arg;
    if (record->space != GP_SPACE_MAPPING || record->mapping.handle != rest->handle ||
        record->requested_bytes >= record->bytes)
        return false;
    uint64_t room = record->bytes - record->requested_bytes, part = room < rest->bytes ? room : rest->bytes;
    record->requested_bytes += part;
    rest->bytes -= part;
    return false;
}

void gp_vmm_hand_on(const struct gp_vmm_change *change, uint64_t added)
{
    const struct gp_record *handle = &change->after;
    struct gp_vmm_rest rest = {.handle = handle->key, .bytes = added - (uint64_t)change->share};
    /* The whole share of a heap's memory goes to one mapping (gp_vmm_pass_on). */
    if (handle->kind != GP_KIND_VMM || handle->segment == GP_SEGMENT_HEAP || added <= (uint64_t)change->share ||
        gp_map_count(gp_accounts.objects) > GP_VMM_WALK)
        return;
    gp_map_each(gp_accounts.objects, vmm_take_rest, &rest);
}

void gp_vmm_turn(struct gp_record *handle, struct gp_vmm_change *change)
{
    change->turned = change->want && handle->kind == GP_KIND_VMM && handle->segment == GP_SEGMENT_NONE &&
                     handle->device != GP_NO_DEVICE && handle->handle.uses == 1 &&
                     handle->handle.mapped == handle->bytes && handle->bytes == change->bytes;
    change->before = *handle;
    if (change->turned)
        handle->segment = change->want;
    if (change->turned && change->want == GP_SEGMENT_FRAMEWORK)
        handle->owner = change->owner;
    change->after = *handle;
}

void gp_vmm_raises(struct gp_record *mapping)
{
    mapping->mapping.raises = mapping->device == GP_NO_DEVICE ? 0 : gp_account_raises(mapping->device);
}

void gp_vmm_turned(const struct gp_vmm_change *change)
{
    struct gp_record before = change->after;
    before.segment = GP_SEGMENT_NONE;
    gp_framework_segment(&change->after, GP_ADD);
    gp_event_record(GP_EVENT_SEGMENT_FREE, &before, 0);
    gp_framework_segment_remade(&change->before, &change->after);
}

void gp_vmm_turned_back(const struct gp_record *handle)
{
    struct gp_vmm_change change = {
        .share = gp_vmm_share(handle), .crossed = handle->handle.mapped > 0, .after = *handle};
    gp_framework_segment(handle, GP_SUB);
    change.after.segment = GP_SEGMENT_NONE;
    gp_vmm_count_unmapped(handle->device, GP_ADD, (int64_t)handle->bytes);
    gp_event_record(GP_EVENT_SEGMENT_ALLOC, &change.after, 0);
    if (change.share)
        gp_vmm_move_share(&change, GP_ADD);
}

struct gp_vmm_other {
    uint64_t handle, bytes;
    struct gp_record mapping;
};

static bool vmm_find_other(struct gp_record *record, void *arg)
{
    struct gp_vmm_other *other = arg;
    if (record->space != GP_SPACE_MAPPING || record->mapping.handle != other->handle || other->mapping.key)
        return false;
    other->mapping = *record;
    record->requested_bytes = other->bytes;
    return false;
}

void gp_vmm_pass_on(const struct gp_record *handle)
{
    struct gp_vmm_other other = {.handle = handle->key, .bytes = (uint64_t)gp_vmm_share(handle)};
    gp_vmm_turned_back(handle);
    if (!other.bytes)
        return;
    gp_map_each(gp_accounts.objects, vmm_find_other, &other);
    if (!other.mapping.key)
        return;
    gp_event_record(GP_EVENT_SEGMENT_UNMAP, &other.mapping, 0);
    other.mapping.requested_bytes = other.bytes;
    gp_event_record(GP_EVENT_SEGMENT_MAP, &other.mapping, 0);
}

static bool vmm_turn(struct gp_record *handle, void *arg)
{
    gp_vmm_turn(handle, arg);
    return false;
}

static bool vmm_turn_back(struct gp_record *handle, void *arg)
{
    struct gp_vmm_change *change = arg;
    change->turned = handle->segment == GP_SEGMENT_HEAP;
    change->after = *handle; /* as it was */
    handle->segment = GP_SEGMENT_NONE;
    return false;
}

struct gp_vmm_mark {
    uint64_t handle, raises;
    uint8_t segment, owner;
    bool done;
};

static bool vmm_mark(struct gp_record *mapping, void *arg)
{
    struct gp_vmm_mark *mark = arg;
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
bool gp_vmm_segment_make(uint64_t address, uint8_t want, uint8_t owner, bool whole)
{
    struct gp_record mapping;
    struct gp_vmm_change change = {.want = want, .owner = owner};
    if (gp_map_find(gp_accounts.objects, GP_SPACE_MAPPING, address, &mapping) != 0 || mapping.segment ||
        mapping.requested_bytes != mapping.bytes)
        return false;
    change.bytes = mapping.bytes;
    if (gp_map_update(gp_accounts.objects, GP_SPACE_VMM, mapping.mapping.handle, vmm_turn, &change) != 0 ||
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
    struct gp_vmm_mark mark = {.handle = mapping.mapping.handle, .segment = want, .owner = owner};
    if (gp_map_update(gp_accounts.objects, GP_SPACE_MAPPING, address, vmm_mark, &mark) != 0 || !mark.done)
        return false;
    mapping.segment = want;
    gp_event_record(GP_EVENT_SEGMENT_MAP, &mapping, 0);
    return true;
}

void gp_vmm_segment_end(uint64_t address)
{
    struct gp_record mapping;
    struct gp_vmm_change change = {0};
    if (gp_map_find(gp_accounts.objects, GP_SPACE_MAPPING, address, &mapping) != 0 ||
        mapping.segment != GP_SEGMENT_HEAP)
        return;
    struct gp_vmm_mark mark = {.handle = mapping.mapping.handle, .raises = gp_account_raises(mapping.device)};
    if (gp_map_update(gp_accounts.objects, GP_SPACE_MAPPING, address, vmm_mark, &mark) != 0 || !mark.done ||
        gp_map_update(gp_accounts.objects, GP_SPACE_VMM, mapping.mapping.handle, vmm_turn_back, &change) != 0 ||
        !change.turned)
        return;
    gp_event_record(GP_EVENT_SEGMENT_UNMAP, &mapping, 0);
    gp_vmm_turned_back(&change.after);
    mapping.segment = GP_SEGMENT_NONE;
    gp_event_record(GP_EVENT_SEGMENT_MAP, &mapping, 0);
}
