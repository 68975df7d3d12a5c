/* SPDX-License-Identifier: MIT
 *
 * block.c: allocations with one address and one owner. The bytes leave the totals when the free
 * begins, not when it ends: before it ends, the driver may hand the same memory to another thread.
 * Both allocations would then count, and the peak would show bytes that never existed at once.
 */
#include "account/block.h"
#include "account/before.h"
#include "account/event.h"
#include "account/feed/block.h"
#include "account/feed/feed.h"
#include "account/feed/want.h"
#include "account/frame.h"
#include "account/ground.h"
#include "account/internal.h"
#include "account/memory.h"
#include "account/move.h"
#include "account/polled.h"
#include "account/pool.h"
#include "account/segment.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/map.h"
#include "stack/stack.h"
#include <gpuprof/wire.h>

static struct gp_map *block_map(enum gp_space space)
{
    return space <= GP_SPACE_BLOCK ? gp_accounts.blocks : gp_accounts.objects;
}

/* Returns the time of the change, as gp_account_move. */
static __attribute__((noinline)) uint64_t block_move_any(const struct gp_record *record, enum gp_counter_op op)
{
    if (record->device == GP_NO_DEVICE)
        return 0;
    struct gp_move move = gp_account_block_move(record);
    uint64_t time_ns = gp_account_move(record->device, op, &move);
    if (GP_UNLIKELY(record->segment))
        gp_segment_framework(record, op);
    return time_ns;
}

static inline uint64_t block_move(const struct gp_record *record, enum gp_counter_op op)
{
    uint64_t time_ns = gp_account_try(record, op);
    return GP_LIKELY(time_ns) ? time_ns : block_move_any(record, op);
}

static GP_COLD void block_putback(const struct gp_record *record, uint64_t since_ns)
{
    struct gp_move move = gp_account_block_move(record);
    if (record->device == GP_NO_DEVICE)
        return;
    gp_account_putback(record->device, since_ns, &move);
    if (record->segment)
        gp_segment_framework(record, GP_ADD);
}

/* A created pool must know how many of its blocks are live, because it lives until the last one
 * is freed. */
static inline void block_pool(const struct gp_record *record, int change)
{
    if (record->kind == GP_KIND_POOL) {
        if (change > 0 && record->device != GP_NO_DEVICE)
            gp_polled_expect(record->device);
        if (record->memory.pool)
            gp_pool_count(record->memory.pool, change);
        gp_feed_poll_want(GP_POLL_POOLS);
    }
}

/* The driver returned an address that is live in the map: its free was not seen (a private entry
 * point, or a context that was destroyed unseen). */
static GP_COLD void block_missed(const struct gp_record *old)
{
    gp_feed_lost(GP_LOST_MISSED_FREE);
    gp_ground_gone(old);
    uint64_t time_ns = block_move(old, GP_SUB);
    block_pool(old, -1);
    gp_event_record_at(GP_EVENT_FREE, old, 0, time_ns);
}

static GP_COLD void block_estimated(int device)
{
    struct gp_account *account = gp_account_of(device);
    if (account)
        __atomic_fetch_or(&account->x_flags, GP_DEVICE_ESTIMATED, __ATOMIC_RELAXED);
}

/* A record whose bytes could not enter the totals while it entered the map has no time until they do, and walks leave it
 * out (tapwalk.c). A recording that starts now tells by the time whether a block is among its events, so this is the
 * event's. */
static bool block_begun(struct gp_record *record, void *arg)
{
    record->time_ns = ((const struct gp_record *)arg)->time_ns;
    return false;
}

/* The bytes of a record that is in the map enter the totals, and then it gets its time. old: what it replaced there. */
static __attribute__((noinline)) void block_enter(struct gp_map *map, struct gp_record *record,
                                                  const struct gp_record *old)
{
    if (GP_UNLIKELY(old))
        block_missed(old);
    gp_before_alloc(record->key);
    record->time_ns = block_move_any(record, GP_ADD);
    if (GP_UNLIKELY(!record->time_ns))
        record->time_ns = gp_clock_ns();
    gp_map_update(map, record->space, record->key, block_begun, record);
}

/* The record enters the map and its bytes the totals, at once if that needs no waiting; then it has its time. False: the
 * map is full. */
static inline __attribute__((always_inline)) bool block_insert(struct gp_map *map, uint64_t hash,
                                                               struct gp_record *record)
{
    struct gp_map_hold hold;
    struct gp_record old;
    int status = gp_map_insert_hold(map, hash, record, &old, &hold);
    if (GP_UNLIKELY(status < 0)) {
        gp_feed_lost(GP_LOST_MAP);
        return false;
    }
    if (GP_LIKELY(status == 0 && !gp_before_map()))
        hold.record->time_ns = record->time_ns = gp_account_try(record, GP_ADD);
    gp_map_release(&hold);
    if (GP_UNLIKELY(!record->time_ns))
        block_enter(map, record, status ? &old : NULL);
    return true;
}

static __attribute__((noinline)) void block_alloc(const struct gp_allocation *block)
{
    if (GP_UNLIKELY(!block->address))
        return; /* 0 bytes, for which some calls succeed and hand out nothing */
    struct gp_record record = {
        .key = block->address,
        .space = (uint8_t)block->space,
        .kind = (uint8_t)block->kind,
        .device = block->device < 0 ? GP_NO_DEVICE : (uint8_t)block->device,
        .ctx = block->ctx,
        .bytes = block->bytes,
        .requested_bytes = block->requested_bytes,
        .memory.pool = block->pool,
    };
    struct gp_map *map = block_map(block->space);
    uint64_t hash = gp_map_prefetch(map, record.space, record.key); /* it arrives while the owner is found */
    gp_ground_next(0);
    if (record.kind == GP_KIND_LINEAR && block->device >= 0)
        record.memory.raises = gp_account_raises(block->device);
    if (gp_gauge_parts(record.kind) & (GP_PART_ALLOCATED | GP_PART_RESERVED))
        gp_account_own(&record);
    bool provisional = record.segment;
    uint8_t owner, device;
    if (!provisional && gp_account_is_divisible(record.kind) &&
        gp_ground_wants(record.key, record.bytes, &owner, &device) == GP_SEGMENT_FRAMEWORK && device == record.device) {
        record.segment = GP_SEGMENT_FRAMEWORK;
        record.owner = owner;
    }
    if (block->space == GP_SPACE_DEVICE && block->bytes == block->requested_bytes)
        record.pair = gp_account_pair(block->kind, block->bytes);
    record.site = gp_event_site_of(&record);
    if (GP_UNLIKELY(provisional)) /* if it turns out to be none (ground.c) */
        record.memory.own_site = gp_event_here(block->device, record.kind);
    if (GP_UNLIKELY(block->device < 0))
        gp_feed_lost(GP_LOST_DEVICE);
    if (GP_UNLIKELY(!block_insert(map, hash, &record)))
        return;
    if (GP_UNLIKELY(block->estimated && block->device >= 0))
        block_estimated(block->device);
    block_pool(&record, 1);
    gp_event_record(GP_EVENT_ALLOC, &record, block->stream);
    gp_ground_add(&record);
    if (GP_UNLIKELY(provisional))
        gp_ground_provisional(&record);
}

static GP_COLD void block_any(enum gp_wire_kind kind, uint64_t address, uint64_t bytes, int device, uint32_t ctx,
                              uint64_t stream)
{
    block_alloc(&(struct gp_allocation){.space = GP_SPACE_DEVICE,
                                        .kind = kind,
                                        .device = device,
                                        .ctx = ctx,
                                        .address = address,
                                        .bytes = bytes,
                                        .requested_bytes = bytes,
                                        .stream = stream});
}

/* Linear memory, and that of a device's own pool, come and go more often than any other kind. Nothing waits for it, no
 * block lies on it, and no stack is recorded: then an allocation is a record, a move and an event. */
static inline __attribute__((always_inline)) void block_often(enum gp_wire_kind kind, uint64_t address, uint64_t bytes,
                                                              int device, uint32_t ctx, uint64_t stream)
{
    struct gp_account *account =
        (unsigned)device < GP_WIRE_DEVICES
            ? __atomic_load_n(&gp_accounts.x_devices[device], __ATOMIC_ACQUIRE) /* [account.A] */
            : NULL;
    struct gp_map *map = gp_accounts.blocks;
    if (GP_UNLIKELY(!address || !account || gp_before_map() || gp_memory_on() || gp_site_on() ||
                    __atomic_load_n(&gp_accounts.x_memory_waits, __ATOMIC_RELAXED))) {
        block_any(kind, address, bytes, device, ctx, stream);
        return;
    }
    uint64_t hash = gp_map_prefetch(map, GP_SPACE_DEVICE, address); /* it arrives while the owner is found */
    uint32_t raises = kind == GP_KIND_LINEAR ? gp_counter_raises(account->counter) : 0;
    struct gp_owner owner = gp_owner_here();
    if (GP_UNLIKELY(owner.segment && kind == GP_KIND_LINEAR)) {
        block_any(kind, address, bytes, device, ctx, stream);
        return;
    }
    struct gp_record record = {
        .key = address,
        .space = GP_SPACE_DEVICE,
        .kind = (uint8_t)kind,
        .device = (uint8_t)device,
        .ctx = ctx,
        .bytes = bytes,
        .requested_bytes = bytes,
        .owner = owner.row,
        .pair = gp_account_pair(kind, bytes),
        .memory.raises = raises,
    };
    if (GP_UNLIKELY(!block_insert(map, hash, &record)))
        return;
    if (kind == GP_KIND_POOL) {
        gp_polled_expect_of(account);
        gp_feed_poll_want(GP_POLL_POOLS);
    }
    gp_event_record_at(GP_EVENT_ALLOC, &record, stream, record.time_ns);
    gp_ground_add(&record);
}

void gp_feed_linear(uint64_t address, uint64_t bytes, int device, uint32_t ctx)
{
    block_often(GP_KIND_LINEAR, address, bytes, device, ctx, 0);
}

void gp_feed_pooled(uint64_t address, uint64_t bytes, int device, uint64_t stream)
{
    block_often(GP_KIND_POOL, address, bytes, device, 0, stream);
}

void gp_feed_alloc(const struct gp_allocation *block)
{
    if (block->space == GP_SPACE_DEVICE && block->kind == GP_KIND_LINEAR && block->requested_bytes == block->bytes &&
        !block->stream && !block->estimated)
        gp_feed_linear(block->address, block->bytes, block->device, block->ctx);
    else
        block_alloc(block);
}

uint32_t gp_feed_free_begin(enum gp_space space, uint64_t address)
{
    struct gp_frame *frame;
    struct gp_map *map = block_map(space);
    uint64_t hash = gp_map_prefetch(map, (uint8_t)space, address);
    gp_ground_next(address);
    uint32_t token = gp_account_frame_get(&frame);
    if (!token)
        return 0;
    if (gp_map_take_hashed(map, hash, (uint8_t)space, address, &frame->record) != 0) {
        gp_account_frame_put(token);
        return 0;
    }
    gp_ground_gone(&frame->record);
    frame->what = GP_SPACE_DEVICE; /* any block space: the record says which */
    frame->time_ns = block_move(&frame->record, GP_SUB);
    /* The event comes before the driver's call, unlike others: another thread may get the address in
     * that call and begin a segment there, and in a recording segments are told apart by their
     * places alone. */
    if (GP_UNLIKELY(frame->record.segment == GP_SEGMENT_HEAP))
        gp_event_record_at(GP_EVENT_FREE, &frame->record, 0, frame->time_ns);
    return token;
}

GP_COLD void gp_block_put(struct gp_record *record)
{
    struct gp_record old;
    if (GP_UNLIKELY(record->segment == GP_SEGMENT_HEAP))
        gp_memory_refused(record);
    int status = gp_map_insert(block_map(record->space), record, &old);
    if (status < 0) {
        gp_feed_lost(GP_LOST_MAP);
        block_move(record, GP_SUB);
    } else if (status == 1) {
        block_missed(&old);
    }
    gp_ground_add(record);
}

void gp_feed_free_end(uint32_t token, bool ok, uint64_t stream)
{
    struct gp_frame *frame = gp_account_frame_of(token, GP_SPACE_DEVICE);
    if (!frame)
        return;
    const struct gp_record *record = &frame->record;
    if (GP_LIKELY(ok)) {
        block_pool(record, -1);
        if (GP_UNLIKELY(record->space == GP_SPACE_RANGE))
            gp_ground_range_gone(record->key, record->bytes);
        if (GP_LIKELY(record->segment != GP_SEGMENT_HEAP)) /* else it was recorded before */
            gp_event_record_at(GP_EVENT_FREE, record, stream, frame->time_ns);
    } else {
        block_putback(record, frame->time_ns);
        gp_block_put(&frame->record);
    }
    gp_account_frame_put(token);
}

void gp_feed_unknown_free(enum gp_space space, uint64_t address)
{
    struct gp_record record = {.key = address, .space = (uint8_t)space, .device = GP_NO_DEVICE};
    if (!gp_before_free(space, address))
        gp_feed_lost(GP_LOST_UNKNOWN_FREE);
    gp_event_record(GP_EVENT_FREE, &record, 0);
}
