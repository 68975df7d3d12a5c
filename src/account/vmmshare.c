/* SPDX-License-Identifier: MIT
 *
 * vmmshare.c: what the mappings of a handle share of its memory, as plain mappings and as segments. Called by vmm.c and
 * memory.c.
 */
#include "account/event.h"
#include "account/feed/feed.h"
#include "account/internal.h"
#include "account/move.h"
#include "account/segment.h"
#include "account/vmm.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/map.h"
#include <gpuprof/wire.h>

void gp_vmm_count_unmapped(int device, enum gp_counter_op op, int64_t bytes)
{
    struct gp_account *account = gp_account_of(device);
    if (account)
        __atomic_fetch_add(&account->x_unmapped, op == GP_SUB ? -bytes : bytes, __ATOMIC_RELAXED);
}

/* A framework's segment is allocated in blocks, however it is mapped. */
static bool share_counts(const struct gp_record *handle)
{
    return handle->kind != GP_KIND_VIRTUAL && !handle->segment && handle->device != GP_NO_DEVICE;
}

static struct gp_move share_move(const struct gp_vmm_change *change)
{
    const struct gp_record *handle = &change->after;
    bool imported = handle->kind == GP_KIND_IMPORTED;
    return (struct gp_move){
        .kind = handle->kind,
        .parts = imported ? GP_PART_KIND : GP_PART_ALLOCATED,
        .bytes = imported ? change->imported : change->share,
        .requested_bytes = change->share,
        .class_bytes = (int64_t)handle->bytes,
        .count = change->crossed,
        .owner = handle->owner,
    };
}

uint64_t gp_vmm_move_share(const struct gp_vmm_change *change, enum gp_counter_op op)
{
    const struct gp_record *handle = &change->after;
    struct gp_move move = share_move(change);
    if (!share_counts(handle))
        return 0;
    if (handle->kind != GP_KIND_IMPORTED)
        gp_vmm_count_unmapped(handle->device, op, -change->share);
    return gp_account_move(handle->device, op, &move);
}

GP_COLD void gp_vmm_putback_share(const struct gp_vmm_change *change, uint64_t since_ns)
{
    const struct gp_record *handle = &change->after;
    struct gp_move move = share_move(change);
    if (!share_counts(handle))
        return;
    if (handle->kind != GP_KIND_IMPORTED)
        gp_vmm_count_unmapped(handle->device, GP_ADD, -change->share);
    gp_account_putback(handle->device, since_ns, &move);
}

/* A walk must cost less than the driver's unmap. In a larger map the walk over the blocks lacks the
 * bytes that would be handed on; the totals have them. */
#define GP_VMM_WALK 4096u

struct gp_vmm_rest {
    uint64_t handle, bytes;
    bool one;                /* at a time */
    struct gp_record before; /* key 0: none took any */
};

static bool vmm_take_rest(struct gp_record *record, void *arg)
{
    struct gp_vmm_rest *rest = arg;
    if (record->space != GP_SPACE_MAPPING || record->mapping.handle != rest->handle ||
        record->requested_bytes >= record->bytes || (rest->one && rest->before.key))
        return false;
    uint64_t room = record->bytes - record->requested_bytes, part = room < rest->bytes ? room : rest->bytes;
    rest->before = *record;
    record->requested_bytes += part;
    rest->bytes -= part;
    return false;
}

void gp_vmm_hand_on(const struct gp_vmm_change *change, uint64_t added)
{
    const struct gp_record *handle = &change->after;
    struct gp_vmm_rest rest = {.handle = handle->key, .bytes = added - (uint64_t)change->share};
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
    gp_segment_framework(&change->after, GP_ADD);
    gp_event_record(GP_EVENT_SEGMENT_FREE, &before, 0);
    gp_segment_remade(&change->before, &change->after);
}

void gp_vmm_turned_back(const struct gp_record *handle)
{
    struct gp_vmm_change change = {
        .share = gp_vmm_share(handle), .crossed = handle->handle.mapped > 0, .after = *handle};
    gp_segment_framework(handle, GP_SUB);
    change.after.segment = GP_SEGMENT_NONE;
    gp_vmm_count_unmapped(handle->device, GP_ADD, (int64_t)handle->bytes);
    gp_event_record(GP_EVENT_SEGMENT_ALLOC, &change.after, 0);
    if (change.share)
        gp_vmm_move_share(&change, GP_ADD);
}

void gp_vmm_pass_on(const struct gp_record *handle)
{
    struct gp_vmm_rest rest = {.handle = handle->key, .bytes = (uint64_t)gp_vmm_share(handle), .one = true};
    gp_vmm_turned_back(handle);
    while (rest.bytes) {
        uint64_t bytes = rest.bytes;
        rest.before.key = 0;
        gp_map_each(gp_accounts.objects, vmm_take_rest, &rest);
        if (!rest.before.key)
            return;
        gp_event_record(GP_EVENT_SEGMENT_UNMAP, &rest.before, 0);
        rest.before.requested_bytes += bytes - rest.bytes;
        gp_event_record(GP_EVENT_SEGMENT_MAP, &rest.before, 0);
    }
}
