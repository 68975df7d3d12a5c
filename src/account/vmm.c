/* SPDX-License-Identifier: MIT
 *
 * vmm.c: physical allocations by handle, and their mappings.
 *
 * The memory lives while a handle has references or uses.  Its allocated bytes are the smaller one
 * of its size and the sum of its mappings, so that two mappings of one handle count once.  An
 * imported handle owns nothing here: its kind is `imported`, and its size is what its mappings show
 * of it.
 *
 * A mapping with heaps of sub-allocators or blocks of a framework in it is a segment, and so is its
 * handle, which has no other mapping when that begins. The bytes that the handle's mappings share
 * are then not allocated.
 *
 * An unmap may cover many mappings and may fail.  Between begin and end they are kept in
 * GP_SPACE_PENDING; the token in the top 12 bits makes their keys unique (addresses end at bit 52
 * on every system with CUDA).
 */
#include "account/vmm.h"
#include "account/event.h"
#include "account/feed/feed.h"
#include "account/feed/vmm.h"
#include "account/frame.h"
#include "account/ground.h"
#include "account/heap.h"
#include "account/internal.h"
#include "account/move.h"
#include "account/segment.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/map.h"
#include <errno.h>
#include <gpuprof/wire.h>

#define GP_TOKEN_SHIFT    52
#define GP_VMM_STEP       (2ull << 20) /* on which every mapping starts */
#define GP_VMM_HOLE_STEPS 512u

static uint64_t pending_key(uint64_t key, uint32_t token)
{
    return key ^ ((uint64_t)token << GP_TOKEN_SHIFT);
}

static uint64_t vmm_move_physical(const struct gp_record *handle, enum gp_counter_op op)
{
    if (handle->kind != GP_KIND_VMM || handle->device == GP_NO_DEVICE)
        return 0; /* imported or multicast: owns nothing here */
    struct gp_move move = gp_account_block_move(handle);
    uint64_t time_ns = gp_account_move(handle->device, op, &move);
    if (!handle->segment)
        gp_vmm_count_unmapped(handle->device, op, move.bytes);
    if (handle->segment)
        gp_segment_framework(handle, op);
    return time_ns;
}

static GP_COLD void vmm_putback_physical(const struct gp_record *handle, uint64_t since_ns)
{
    if (handle->kind != GP_KIND_VMM || handle->device == GP_NO_DEVICE)
        return;
    struct gp_move move = gp_account_block_move(handle);
    gp_account_putback(handle->device, since_ns, &move);
    if (handle->segment)
        gp_segment_framework(handle, GP_ADD);
    else
        gp_vmm_count_unmapped(handle->device, GP_ADD, move.bytes);
}

static void vmm_place(const struct gp_record *mapping);

/* ---- handles -------------------------------------------------------------------------------------------------- */

static void vmm_insert(uint64_t handle, enum gp_wire_kind kind, uint64_t bytes, int device)
{
    struct gp_record old, record = {
                              .key = handle,
                              .space = GP_SPACE_VMM,
                              .kind = (uint8_t)kind,
                              .device = device < 0 ? GP_NO_DEVICE : (uint8_t)device,
                              .bytes = bytes,
                              .requested_bytes = bytes,
                              .time_ns = gp_clock_ns(),
                              .handle.references = 1,
                          };
    if (device < 0)
        gp_feed_lost(GP_LOST_DEVICE); /* followed, so that its release is known, but in no total */
    else if (!gp_account_of(device))
        return;
    if (kind == GP_KIND_VMM)
        gp_account_own(&record);
    record.site = gp_event_site_of(&record);
    int status = gp_map_insert(gp_accounts.objects, &record, &old);
    if (status < 0) {
        gp_feed_lost(GP_LOST_MAP);
        return;
    }
    if (status == 1) {
        struct gp_vmm_change share = {.share = gp_vmm_share(&old),
                                      .imported = (int64_t)old.bytes,
                                      .crossed = old.handle.mapped > 0,
                                      .after = old};
        gp_feed_lost(GP_LOST_MISSED_FREE);
        gp_vmm_move_share(&share, GP_SUB);
        uint64_t time_ns = vmm_move_physical(&old, GP_SUB);
        gp_event_record_at(GP_EVENT_SEGMENT_FREE, &old, 0, time_ns);
    }
    uint64_t time_ns = vmm_move_physical(&record, GP_ADD);
    gp_event_record_at(GP_EVENT_SEGMENT_ALLOC, &record, 0, time_ns);
}

void gp_feed_vmm_create(uint64_t handle, uint64_t bytes, int device)
{
    vmm_insert(handle, GP_KIND_VMM, bytes, device);
}

static bool vmm_reference(struct gp_record *handle, void *arg)
{
    (void)arg;
    handle->handle.references++;
    return false;
}

void gp_feed_vmm_object(uint64_t handle, int device)
{
    vmm_insert(handle, GP_KIND_VIRTUAL, 0, device);
}

void gp_feed_vmm_import(uint64_t handle, int device)
{
    /* An import of what this process exported gives the same memory: one more reference. */
    if (gp_map_update(gp_accounts.objects, GP_SPACE_VMM, handle, vmm_reference, NULL) != 0)
        vmm_insert(handle, GP_KIND_IMPORTED, 0, device);
}

static bool vmm_imported_object(struct gp_record *handle, void *arg)
{
    (void)arg;
    if (handle->kind == GP_KIND_IMPORTED && handle->handle.uses == 0)
        handle->kind = GP_KIND_VIRTUAL;
    return false;
}

void gp_feed_vmm_join(uint64_t handle)
{
    gp_map_update(gp_accounts.objects, GP_SPACE_VMM, handle, vmm_imported_object, NULL);
}

void gp_feed_vmm_retain(uint64_t handle)
{
    if (gp_map_update(gp_accounts.objects, GP_SPACE_VMM, handle, vmm_reference, NULL) != 0)
        gp_feed_lost(GP_LOST_MISSED_FREE);
}

static bool vmm_unreference(struct gp_record *handle, void *arg)
{
    struct gp_frame *frame = arg;
    frame->referenced = handle->handle.references > 0; /* else the call fails: nothing is to be put back */
    if (handle->handle.references > 0)
        handle->handle.references--;
    frame->record = *handle;
    frame->died = handle->handle.references == 0 && handle->handle.uses == 0;
    return frame->died;
}

uint32_t gp_feed_vmm_release_begin(uint64_t handle)
{
    struct gp_frame *frame;
    uint32_t token = gp_account_frame_get(&frame);
    if (!token)
        return 0;
    frame->what = GP_SPACE_VMM;
    if (gp_map_update(gp_accounts.objects, GP_SPACE_VMM, handle, vmm_unreference, frame) != 0) {
        gp_account_frame_put(token);
        return 0;
    }
    gp_ground_pass();
    if (frame->died)
        frame->time_ns = vmm_move_physical(&frame->record, GP_SUB);
    return token;
}

void gp_feed_vmm_release_end(uint32_t token, bool ok)
{
    struct gp_frame *frame = gp_account_frame_of(token, GP_SPACE_VMM);
    if (!frame)
        return;
    struct gp_record *record = &frame->record;
    if (ok && frame->died) {
        gp_event_record_at(GP_EVENT_SEGMENT_FREE, record, 0, frame->time_ns);
        if (record->kind == GP_KIND_VIRTUAL)
            gp_feed_vmm_unbind_all(record->key);
    } else if (!ok && frame->died) {
        record->handle.references = 1;
        if (gp_map_insert(gp_accounts.objects, record, NULL) < 0)
            gp_feed_lost(GP_LOST_MAP);
        vmm_putback_physical(record, frame->time_ns);
    } else if (!ok && frame->referenced) {
        gp_map_update(gp_accounts.objects, GP_SPACE_VMM, record->key, vmm_reference, NULL);
    }
    gp_account_frame_put(token);
}

/* ---- mappings ------------------------------------------------------------------------------------------------- */

static bool vmm_use(struct gp_record *handle, void *arg)
{
    struct gp_vmm_change *change = arg;
    if (handle->kind == GP_KIND_IMPORTED && change->extent > handle->bytes) {
        change->imported = (int64_t)(change->extent - handle->bytes);
        handle->bytes = change->extent;
    }
    int64_t before = gp_vmm_share(handle);
    change->crossed = change->bytes && handle->handle.mapped == 0;
    handle->handle.uses++;
    handle->handle.mapped += change->bytes;
    change->share = gp_vmm_share(handle) - before;
    if (change->want == GP_SEGMENT_FRAMEWORK && handle->device != change->device)
        change->want = GP_SEGMENT_NONE;
    gp_vmm_turn(handle, change);
    return false;
}

static bool vmm_unuse(struct gp_record *handle, void *arg)
{
    struct gp_vmm_change *change = arg;
    int64_t before = gp_vmm_share(handle);
    uint64_t mapped = handle->handle.mapped;
    if (handle->handle.uses > 0)
        handle->handle.uses--;
    handle->handle.mapped -= change->bytes < mapped ? change->bytes : mapped;
    change->share = before - gp_vmm_share(handle);
    change->crossed = change->bytes && handle->handle.mapped == 0;
    if (handle->kind == GP_KIND_IMPORTED && change->crossed) {
        change->imported = (int64_t)handle->bytes;
        handle->bytes = 0;
    }
    change->after = *handle; /* still a segment: its share was not allocated */
    if (change->heap && handle->segment == GP_SEGMENT_HEAP)
        handle->segment = GP_SEGMENT_NONE;
    change->died = handle->handle.references == 0 && handle->handle.uses == 0;
    return change->died;
}

void gp_feed_vmm_map(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle)
{
    struct gp_vmm_change change = {.bytes = bytes, .extent = offset + bytes};
    change.want = gp_ground_wants(address, bytes, &change.owner, &change.device);
    gp_heap_settle();
    if (gp_map_update(gp_accounts.objects, GP_SPACE_VMM, handle, vmm_use, &change) != 0) {
        gp_feed_lost(GP_LOST_MISSED_FREE);
        return;
    }
    struct gp_record mapping = {
        .key = address,
        .space = GP_SPACE_MAPPING,
        .kind = change.after.kind,
        .device = change.after.device,
        .bytes = bytes,
        /* 0: an alias of memory that is mapped elsewhere. */
        .requested_bytes = (uint64_t)(change.after.kind == GP_KIND_VMM ? change.share : (int64_t)bytes),
        .time_ns = gp_clock_ns(),
        .mapping.handle = handle,
        .site = change.after.site,
        .owner = change.after.owner,
        /* Another mapping of a heap's memory is no segment. */
        .segment = change.after.segment == GP_SEGMENT_HEAP && !change.turned ? GP_SEGMENT_NONE : change.after.segment,
        .flags = change.after.flags,
    };
    gp_vmm_raises(&mapping);
    vmm_place(&mapping);
    if (change.turned) {
        gp_vmm_count_unmapped(change.after.device, GP_SUB, (int64_t)change.after.bytes);
        gp_vmm_turned(&change);
    }
    uint64_t time_ns = gp_vmm_move_share(&change, GP_ADD);
    gp_event_record_at(GP_EVENT_SEGMENT_MAP, &mapping, 0, time_ns);
    gp_ground_add(&mapping);
}

uint64_t gp_feed_vmm_handle_at(uint64_t address)
{
    struct gp_record mapping;
    /* The program may pass an address inside a mapping, but only the start is a key. Walk down for
     * at most 64 GiB: the largest single mapping for which a linear search pays. */
    for (uint64_t start = address & ~(GP_VMM_STEP - 1), i = 0; i < 32768 && start; i++, start -= GP_VMM_STEP)
        if (gp_map_find(gp_accounts.objects, GP_SPACE_MAPPING, start, &mapping) == 0)
            return address - start < mapping.bytes ? mapping.mapping.handle : 0;
    return 0;
}

/* The event comes before the driver's call, as for linear memory (gp_feed_free_begin). */
static void vmm_unmap_segment(struct gp_record *mapping, const struct gp_vmm_change *change)
{
    bool heap = change->heap && change->after.segment == GP_SEGMENT_HEAP;
    if (mapping->segment != GP_SEGMENT_FRAMEWORK)
        mapping->segment = heap ? GP_SEGMENT_HEAP : GP_SEGMENT_NONE;
    if (GP_LIKELY(!heap))
        return;
    gp_event_record(GP_EVENT_SEGMENT_UNMAP, mapping, 0);
    if (!change->died)
        gp_vmm_pass_on(&change->after);
}

/* Moves one mapping into GP_SPACE_PENDING and subtracts its part from the totals. While it is there,
 * its time is that of the subtraction; so is that of a handle that would be freed. */
static void vmm_unmap_one(struct gp_record *mapping, uint64_t next, uint32_t token)
{
    /* Another mapping of a segment's memory added nothing. */
    struct gp_vmm_change change = {.bytes = mapping->bytes, .heap = mapping->requested_bytes != 0};
    gp_ground_gone(mapping);
    uint64_t added = mapping->requested_bytes, handle = mapping->mapping.handle;
    mapping->pending = (struct gp_record_pending){.handle = handle, .next = next};
    mapping->requested_bytes = 0;
    if (gp_map_update(gp_accounts.objects, GP_SPACE_VMM, handle, vmm_unuse, &change) == 0) {
        mapping->time_ns = gp_vmm_move_share(&change, GP_SUB);
        mapping->requested_bytes = (uint64_t)(change.after.kind == GP_KIND_IMPORTED ? change.imported : change.share);
        mapping->pending.was_last = change.crossed;
        mapping->pending.died = change.died;
        mapping->pending.large = change.after.bytes > (1u << 20);
        vmm_unmap_segment(mapping, &change);
        gp_vmm_hand_on(&change, added);
    }
    if (change.died) {
        struct gp_record dead = change.after;
        dead.time_ns = vmm_move_physical(&dead, GP_SUB);
        dead.space = GP_SPACE_PENDING_HANDLE;
        dead.key = pending_key(dead.key, token);
        gp_map_insert(gp_accounts.objects, &dead, NULL);
    }
    mapping->space = GP_SPACE_PENDING;
    mapping->key = pending_key(mapping->key, token);
    if (gp_map_insert(gp_accounts.objects, mapping, NULL) < 0)
        gp_feed_lost(GP_LOST_MAP);
}

struct gp_vmm_search {
    uint64_t from, end, found;
};

static bool vmm_nearer(struct gp_record *record, void *arg)
{
    struct gp_vmm_search *search = arg;
    if (record->space == GP_SPACE_MAPPING && record->key >= search->from && record->key < search->end)
        search->end = search->found = record->key;
    return false;
}

/* Takes the first mapping that begins at or after an address, and before end: the driver passes over holes. Returns its
 * address, or 0. Behind a hole it begins on a step; where many are empty, a walk over all mappings costs less. */
static uint64_t vmm_take_from(uint64_t from, uint64_t end, struct gp_record *mapping)
{
    struct gp_vmm_search search = {.end = end};
    uint64_t at = from;
    for (unsigned i = 0; i < GP_VMM_HOLE_STEPS && at >= from && at < end; i++) {
        if (gp_map_take(gp_accounts.objects, GP_SPACE_MAPPING, at, mapping) == 0)
            return at;
        at = (at & ~(GP_VMM_STEP - 1)) + GP_VMM_STEP;
    }
    if (at < from || at >= end)
        return 0;
    search.from = at;
    gp_map_each(gp_accounts.objects, vmm_nearer, &search);
    return search.found && gp_map_take(gp_accounts.objects, GP_SPACE_MAPPING, search.found, mapping) == 0 ? search.found
                                                                                                          : 0;
}

uint32_t gp_feed_vmm_unmap_begin(uint64_t address, uint64_t bytes)
{
    const uint64_t end = address + bytes < address ? UINT64_MAX : address + bytes;
    struct gp_frame *frame;
    struct gp_record mapping;
    uint32_t token = gp_account_frame_get(&frame);
    if (!token)
        return 0;
    frame->what = GP_SPACE_MAPPING;
    frame->address = vmm_take_from(address, end, &mapping);
    for (uint64_t next, at = frame->address; at; at = next) {
        struct gp_record one = mapping;
        next = vmm_take_from(at + (one.bytes ? one.bytes : 1), end, &mapping);
        vmm_unmap_one(&one, next, token);
    }
    return token;
}

/* The share that a pending mapping took, as a change that can be settled. */
static struct gp_vmm_change vmm_pending_change(const struct gp_record *mapping)
{
    return (struct gp_vmm_change){
        .share = (int64_t)mapping->requested_bytes,
        .imported = (int64_t)mapping->requested_bytes,
        .crossed = mapping->pending.was_last,
        .after = {.kind = mapping->kind,
                  .device = mapping->device,
                  .bytes = mapping->pending.large ? 2u << 20 : 1,
                  .owner = mapping->owner,
                  .segment = mapping->segment},
    };
}

static void vmm_unmapped(const struct gp_record *mapping, uint64_t address, uint32_t token)
{
    struct gp_record dead, event = *mapping;
    event.key = address;
    if (GP_LIKELY(mapping->segment != GP_SEGMENT_HEAP)) /* else it was recorded before */
        gp_event_record_at(GP_EVENT_SEGMENT_UNMAP, &event, 0, mapping->time_ns);
    uint64_t handle = mapping->pending.handle;
    if (!mapping->pending.died ||
        gp_map_take(gp_accounts.objects, GP_SPACE_PENDING_HANDLE, pending_key(handle, token), &dead) != 0)
        return;
    dead.key = handle;
    gp_event_record_at(GP_EVENT_SEGMENT_FREE, &dead, 0, dead.time_ns);
    if (dead.kind == GP_KIND_VIRTUAL)
        gp_feed_vmm_unbind_all(dead.key);
}

static bool vmm_restore_use(struct gp_record *handle, void *arg)
{
    const struct gp_record *mapping = arg;
    handle->handle.uses++;
    handle->handle.mapped += mapping->bytes;
    if (handle->kind == GP_KIND_IMPORTED && handle->bytes == 0)
        handle->bytes = mapping->requested_bytes;
    return false;
}

static void vmm_restore(struct gp_record *mapping, uint64_t address, uint32_t token)
{
    struct gp_vmm_change change = vmm_pending_change(mapping);
    struct gp_record dead;
    uint64_t handle = mapping->pending.handle;
    /* The handle may have died at a later mapping of the same range: restore it at the first
     * mapping that misses it. */
    if (gp_map_take(gp_accounts.objects, GP_SPACE_PENDING_HANDLE, pending_key(handle, token), &dead) == 0) {
        dead.space = GP_SPACE_VMM;
        dead.key = handle;
        vmm_putback_physical(&dead, dead.time_ns);
        if (GP_UNLIKELY(dead.segment == GP_SEGMENT_HEAP))
            gp_vmm_turned_back(&dead);
        dead.segment = dead.segment == GP_SEGMENT_HEAP ? GP_SEGMENT_NONE : dead.segment;
        gp_map_insert(gp_accounts.objects, &dead, NULL);
    }
    gp_map_update(gp_accounts.objects, GP_SPACE_VMM, handle, vmm_restore_use, mapping);
    bool heap = mapping->segment == GP_SEGMENT_HEAP; /* its heaps are gone: now a plain mapping */
    change.after.segment = mapping->segment = heap ? GP_SEGMENT_NONE : mapping->segment;
    mapping->mapping = (struct gp_record_mapping){.handle = handle};
    gp_vmm_raises(mapping);
    if (heap)
        gp_vmm_move_share(&change, GP_ADD);
    else
        gp_vmm_putback_share(&change, mapping->time_ns);
    mapping->space = GP_SPACE_MAPPING;
    mapping->key = address;
    gp_map_insert(gp_accounts.objects, mapping, NULL);
    if (GP_UNLIKELY(heap))
        gp_event_record(GP_EVENT_SEGMENT_MAP, mapping, 0);
    gp_ground_add(mapping);
}

void gp_feed_vmm_unmap_end(uint32_t token, bool ok)
{
    struct gp_frame *frame = gp_account_frame_of(token, GP_SPACE_MAPPING);
    if (!frame)
        return;
    struct gp_record mapping;
    uint64_t at = frame->address;
    while (at && gp_map_take(gp_accounts.objects, GP_SPACE_PENDING, pending_key(at, token), &mapping) == 0) {
        uint64_t next = mapping.pending.next;
        if (ok)
            vmm_unmapped(&mapping, at, token);
        else
            vmm_restore(&mapping, at, token);
        at = next;
    }
    gp_account_frame_put(token);
}

/* ---- multicast ------------------------------------------------------------------------------------------------ */

/* A binding keeps memory alive and adds no allocated bytes. There is one per device of the team: the
 * device is part of its key. */
static uint64_t binding_key(uint64_t object, uint64_t offset, int device)
{
    /* Objects may have numbers that follow each other, so all their bits must reach the upper ones. */
    uint64_t key = (object + 1) * 0xbf58476d1ce4e5b9ull ^ (offset + (uint64_t)(unsigned)device + 1);
    key = (key ^ key >> 29) * 0x9e3779b97f4a7c15ull;
    return key ^ key >> 32;
}

/* Takes one use off a handle for good; if it was the last, the memory is free. added: what a mapping
 * added to allocated. */
static void vmm_use_gone(uint64_t handle, uint64_t bytes, uint64_t added)
{
    struct gp_vmm_change change = {.bytes = bytes, .heap = added != 0};
    if (gp_map_update(gp_accounts.objects, GP_SPACE_VMM, handle, vmm_unuse, &change) != 0)
        return;
    gp_vmm_move_share(&change, GP_SUB);
    gp_vmm_hand_on(&change, added);
    if (change.heap && !change.died && change.after.segment == GP_SEGMENT_HEAP)
        gp_vmm_pass_on(&change.after);
    if (change.died) {
        uint64_t time_ns = vmm_move_physical(&change.after, GP_SUB);
        gp_event_record_at(GP_EVENT_SEGMENT_FREE, &change.after, 0, time_ns);
        if (change.after.kind == GP_KIND_VIRTUAL)
            gp_feed_vmm_unbind_all(handle);
    }
}

/* Enters a mapping or binding; an older one at this address was undone without being seen. */
static void vmm_place(const struct gp_record *mapping)
{
    struct gp_record old;
    int status = gp_map_insert(gp_accounts.objects, mapping, &old);
    if (status < 0)
        gp_feed_lost(GP_LOST_MAP);
    if (status == 1) {
        gp_feed_lost(GP_LOST_MISSED_FREE);
        if (old.segment == GP_SEGMENT_HEAP)
            gp_ground_gone(&old);
        bool binding = old.space == GP_SPACE_BINDING;
        vmm_use_gone(binding ? old.binding.handle : old.mapping.handle, binding ? 0 : old.bytes, old.requested_bytes);
    }
}

static uint64_t x_bindings;

void gp_feed_vmm_bind(uint64_t object, int device, uint64_t offset, uint64_t bytes, uint64_t handle)
{
    struct gp_vmm_change change = {0};
    if (gp_map_update(gp_accounts.objects, GP_SPACE_VMM, handle, vmm_use, &change) != 0) {
        gp_feed_lost(GP_LOST_MISSED_FREE);
        return;
    }
    __atomic_fetch_add(&x_bindings, 1, __ATOMIC_RELAXED);
    vmm_place(&(struct gp_record){
        .key = binding_key(object, offset, device < 0 ? change.after.device : device),
        .space = GP_SPACE_BINDING,
        .device = change.after.device,
        .bytes = bytes,
        .binding = {.handle = handle, .object = object},
    });
}

void gp_feed_vmm_unbind(uint64_t object, int device, uint64_t offset, uint64_t bytes)
{
    struct gp_record binding;
    uint64_t end = offset + bytes;
    do {
        if (gp_map_take(gp_accounts.objects, GP_SPACE_BINDING, binding_key(object, offset, device), &binding) != 0)
            return;
        vmm_use_gone(binding.binding.handle, 0, 0);
        offset += binding.bytes;
    } while (binding.bytes && offset < end);
}

#define GP_BINDINGS_AT_ONCE 64u
struct gp_vmm_bound {
    uint64_t object;
    unsigned count;
    uint64_t handles[GP_BINDINGS_AT_ONCE];
};

static bool vmm_take_binding(struct gp_record *record, void *arg)
{
    struct gp_vmm_bound *bound = arg;
    if (record->space != GP_SPACE_BINDING || record->binding.object != bound->object ||
        bound->count == GP_BINDINGS_AT_ONCE)
        return false;
    bound->handles[bound->count++] = record->binding.handle;
    return true;
}

void gp_feed_vmm_unbind_all(uint64_t object)
{
    struct gp_vmm_bound bound = {.object = object};
    if (__atomic_load_n(&x_bindings, __ATOMIC_RELAXED) == 0)
        return; /* this process never bound anything: no walk */
    do {
        bound.count = 0;
        gp_map_each(gp_accounts.objects, vmm_take_binding, &bound);
        for (unsigned i = 0; i < bound.count; i++)
            vmm_use_gone(bound.handles[i], 0, 0);
    } while (bound.count == GP_BINDINGS_AT_ONCE);
}
