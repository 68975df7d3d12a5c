/* SPDX-License-Identifier: MIT
 *
 * ground.c: the memory that lies under the blocks of a framework, by address. Called by framework.c
 * for blocks, and by block.c, vmm.c and context.c when the driver's memory comes and goes.
 *
 *      allocated = driver allocations that are no segment + the bytes of blocks that lie in segments
 *      asleep    = the bytes of blocks that have no memory under them
 *
 * Memory is in `reserved` before it counts as allocated, a segment counts through its blocks alone,
 * and a block in memory that counts by itself (managed, imported, another device's, a handle with two
 * mappings, a heap's) does not count. So no byte counts twice, and allocated <= reserved.
 *
 * Most blocks lie in segments that the framework itself took from the driver. This file does not
 * follow them: the framework's total of reserved bytes, which comes with each block, shows that the
 * framework has no other memory. From the first difference on, or when other code takes a segment
 * from under its blocks, the driver's memory is kept in the order of its addresses too (memory.h),
 * and each block that does not lie wholly in segments is a claim (`claims`). The record of a claim
 * has the bytes that do not count. A claim is a plain block again as soon as all of it lies in
 * segments. docs/understand/glossary.md has the words.
 */
#include "account/ground.h"
#include "account/event.h"
#include "account/feed/feed.h"
#include "account/framework.h"
#include "account/heap.h"
#include "account/internal.h"
#include "account/memory.h"
#include "account/move.h"
#include "account/segment.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/span.h"
#include "base/thread.h"
#include "stack/stack.h"
#include <gpuprof/wire.h>

#define GROUND_SPANS (1u << 22)

static struct {
    struct gp_span_set claims;
    struct gp_span_set emptied; /* reservations of addresses in which others took segments away */
    struct gp_span_set inside;  /* the blocks that lie wholly in segments, as of the events that inside_stamp sums */
    uint64_t inside_stamp;
} grounds = {.claims = {.limit = GROUND_SPANS}, .emptied = {.limit = 1u << 16}, .inside = {.limit = GROUND_SPANS}};

uint32_t gp_ground_x_odd; /* claims, and segments that are provisional: blocks must be looked at */

static void odd_add(int change)
{
    __atomic_fetch_add(&gp_ground_x_odd, (uint32_t)change, __ATOMIC_RELAXED);
}

/* The framework's total of reserved bytes is no longer the sum of its segments. */
static void ground_strange(int device)
{
    struct gp_account *account = gp_account_of(device);
    if (account)
        __atomic_store_n(&account->framework.x_strange, 1, __ATOMIC_RELAXED);
}

/* ---- the driver's memory; under the lock ------------------------------------------------------------------------- */

/* How many bytes of a range lie in segments of the device, and how many in other memory. */
static void memory_under(uint64_t address, uint64_t bytes, int device, uint64_t *counted, uint64_t *elsewhere)
{
    const struct gp_span *span;
    uint64_t at = address, end = address + bytes;
    *counted = *elsewhere = 0;
    while (at < end && (span = gp_span_in(&gp_memory.set, at, end - at))) {
        uint64_t from = span->address > at ? span->address : at, to = span->address + span->bytes;
        to = to < end ? to : end;
        bool segment = span->memory.segment == GP_SEGMENT_FRAMEWORK;
        *(segment && span->device == device ? counted : elsewhere) += to - from;
        at = to;
    }
}

/* Memory that others took from the driver becomes a segment if a block lies in it. */
static void memory_adopt(uint64_t address, uint64_t bytes, int device, uint8_t owner)
{
    struct gp_span *span;
    uint64_t at = address, end = address + bytes;
    while (at < end && (span = gp_span_in(&gp_memory.set, at, end - at))) {
        at = span->address + span->bytes;
        if (!span->memory.segment && span->device == device && gp_memory_make(span, GP_SEGMENT_FRAMEWORK, owner, false))
            ground_strange(device);
    }
}

/* ---- claims; under the lock -------------------------------------------------------------------------------------- */

struct claim_note {
    uint64_t lacks;
    bool only_inside, done;
    struct gp_record record;
};

static bool claim_mark(struct gp_record *record, void *arg)
{
    struct claim_note *note = arg;
    note->done = !note->only_inside || (!record->block.lacks && record->flags & GP_FLAG_REPORTED);
    if (note->done)
        record->block.lacks = note->lacks;
    note->record = *record;
    return false;
}

/* A part of the block counts from now on, or no longer. mark: GP_SLEEP_*; 0: it is handed out or taken back. */
static void claim_move(const struct gp_span *claim, struct gp_record block, enum gp_counter_op op, uint32_t mark)
{
    const struct gp_move move = {
        .parts = GP_PART_ALLOCATED,
        .bytes = (int64_t)claim->claim.counted,
        .class_bytes = (int64_t)claim->bytes,
        .count = 1,
        .owner = claim->owner,
    };
    if (!claim->claim.counted)
        return;
    block.key = claim->address;
    block.bytes = block.requested_bytes = claim->claim.counted;
    block.time_ns = gp_account_move(claim->device, op, &move);
    if (mark)
        gp_event_marked(mark, &block, block.time_ns);
    else
        gp_event_block(op == GP_ADD ? GP_EVENT_ALLOC : GP_EVENT_FREE, &block, block.time_ns);
}

static void claim_sleep(struct gp_span *claim, uint64_t asleep, uint64_t lacked, uint64_t lacks)
{
    struct gp_account *account = gp_account_of(claim->device);
    int64_t change = (int64_t)asleep - (int64_t)claim->claim.asleep;
    claim->claim.asleep = asleep;
    if (!account)
        return;
    __atomic_fetch_add(&account->framework.x_lacking_bytes, (int64_t)lacks - (int64_t)lacked, __ATOMIC_RELAXED);
    __atomic_fetch_add(&account->framework.x_asleep_bytes, change, __ATOMIC_RELAXED);
    const struct gp_delta delta = {.gauge = GP_GAUGE_ASLEEP, .amount = change > 0 ? change : -change};
    if (change)
        gp_counter_apply(account->counter, gp_thread.number, change > 0 ? GP_ADD : GP_SUB, &delta, 1);
}

static void claim_drop(struct gp_span *claim)
{
    gp_span_drop(&grounds.claims, claim);
    odd_add(-1);
}

/* Counts what has memory under it. lacked: of the bytes, what did not count in any way before. */
static void claim_settle(struct gp_span *claim, uint64_t lacked)
{
    uint64_t counted, elsewhere;
    memory_adopt(claim->address, claim->bytes, claim->device, claim->owner);
    memory_under(claim->address, claim->bytes, claim->device, &counted, &elsewhere);
    struct claim_note note = {.lacks = claim->bytes - counted};
    note.record = (struct gp_record){
        .key = claim->address, .space = GP_SPACE_BLOCK, .kind = GP_KIND_LINEAR, .device = claim->device};
    gp_map_update(gp_accounts.blocks, GP_SPACE_BLOCK, claim->address, claim_mark, &note);
    bool changes = counted != claim->claim.counted, fresh = !claim->claim.counted && !lacked;
    if (changes)
        claim_move(claim, note.record, GP_SUB, GP_SLEEP_FALLS);
    claim_sleep(claim, claim->bytes - counted - elsewhere, lacked, note.lacks);
    claim->claim.counted = counted;
    if (changes)
        claim_move(claim, note.record, GP_ADD, fresh ? 0 : GP_SLEEP_WAKES);
    if (!note.lacks) {
        claim_drop(claim);
        grounds.inside_stamp = 0; /* it is one of these again */
    }
}

/* The framework takes the block back. */
static void claim_end(struct gp_span *claim, struct gp_record block)
{
    uint64_t asleep = claim->claim.asleep;
    claim_move(claim, block, GP_SUB, 0);
    claim_sleep(claim, 0, claim->bytes - claim->claim.counted, 0);
    block.key = claim->address;
    block.bytes = asleep;
    claim_drop(claim);
    if (asleep)
        gp_event_marked(GP_SLEEP_ENDS, &block, gp_clock_ns());
}

static struct gp_span *claim_put(const struct gp_record *block)
{
    struct gp_span *claim;
    while ((claim = gp_span_in(&grounds.claims, block->key, block->bytes))) /* its free was not seen */
        claim_end(claim, *block);
    claim = gp_span_put(&grounds.claims, block->key, block->bytes);
    if (!claim) {
        gp_feed_lost(GP_LOST_MAP);
        return NULL;
    }
    claim->device = block->device;
    claim->owner = block->owner;
    odd_add(1);
    return claim;
}

static void claims_settle(uint64_t address, uint64_t bytes)
{
    struct gp_span *claim;
    uint64_t at = address, end = address + bytes;
    while (at < end && (claim = gp_span_in(&grounds.claims, at, end - at))) {
        at = claim->address + claim->bytes;
        claim_settle(claim, claim->bytes - claim->claim.counted);
    }
}

/* ---- blocks wholly in segments; under the lock ------------------------------------------------------------------- */

static uint64_t inside_events(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < GP_WIRE_GPUS; i++) {
        struct gp_account *account = __atomic_load_n(&gp_accounts.x_devices[i], __ATOMIC_ACQUIRE);
        sum += account ? __atomic_load_n(&account->framework.x_events, __ATOMIC_RELAXED) : 0;
    }
    return sum;
}

static bool inside_visit(struct gp_record *record, void *arg)
{
    (void)arg;
    struct gp_span *span;
    if (record->space != GP_SPACE_BLOCK || record->block.lacks || !(record->flags & GP_FLAG_REPORTED) ||
        gp_span_in(&grounds.inside, record->key, record->bytes))
        return false;
    span = gp_span_put(&grounds.inside, record->key, record->bytes);
    if (span)
        span->device = record->device, span->owner = record->owner;
    return false;
}

/* A pool that goes to sleep takes hundreds of segments away while its framework makes no block: one walk
 * serves them all. */
static void inside_list(void)
{
    struct gp_span *span;
    uint64_t stamp = inside_events();
    if (grounds.inside_stamp == stamp + 1)
        return;
    while ((span = gp_span_in(&grounds.inside, 0, UINT64_MAX)))
        gp_span_drop(&grounds.inside, span);
    gp_map_each(gp_accounts.blocks, inside_visit, NULL);
    grounds.inside_stamp = stamp + 1;
}

/* The blocks in the range become claims. */
static void inside_claim(uint64_t address, uint64_t bytes)
{
    struct gp_span *found;
    inside_list();
    while ((found = gp_span_in(&grounds.inside, address, bytes))) {
        struct gp_record block = {
            .key = found->address, .bytes = found->bytes, .device = found->device, .owner = found->owner};
        struct claim_note note = {.lacks = found->bytes, .only_inside = true};
        gp_span_drop(&grounds.inside, found);
        if (gp_map_update(gp_accounts.blocks, GP_SPACE_BLOCK, block.key, claim_mark, &note) != 0 || !note.done)
            continue; /* freed meanwhile */
        struct gp_span *claim = claim_put(&block);
        if (!claim)
            continue;
        claim->claim.counted = claim->bytes;
        claim_settle(claim, 0);
    }
}

/* ---- provisional segments; under the lock ------------------------------------------------------------------------ */

/* What a framework takes from the driver is a segment provisionally, so that the peaks of allocated
 * hold between that call and the report of the block. If the thread goes on to something else, then
 * it was no segment: the framework's cache is off. A viewer waits for this long: longer where the
 * framework has reported blocks, because a thread on a busy machine may have to wait between the
 * call and the report. */
#define GROUND_SOON_NS       1000000u
#define GROUND_SOON_KNOWN_NS 1000000000u

static struct provisional {
    uint64_t address, bytes, time_ns;
    uint32_t thread; /* 0: none */
} provisional[GP_WIRE_GPUS];

static void provisional_end(struct provisional *one)
{
    one->thread = 0;
    odd_add(-1);
    __atomic_fetch_sub(&gp_accounts.x_memory_waits, 1, __ATOMIC_RELAXED);
}

static void provisional_ordinary(struct provisional *one)
{
    provisional_end(one);
    gp_memory_unmake(GP_SPACE_DEVICE, one->address, GP_SEGMENT_FRAMEWORK);
}

void gp_ground_provisional(const struct gp_record *segment)
{
    struct provisional *one = &provisional[segment->device];
    gp_lock_take(&gp_memory.lock);
    if (one->thread)
        provisional_ordinary(one);
    *one = (struct provisional){segment->key, segment->bytes, segment->time_ns, gp_thread.number};
    odd_add(1);
    __atomic_fetch_add(&gp_accounts.x_memory_waits, 1, __ATOMIC_RELAXED);
    gp_lock_give(&gp_memory.lock);
}

static bool provisional_is_old(unsigned device, uint64_t now_ns)
{
    struct gp_account *account = gp_account_of((int)device);
    bool known = account && __atomic_load_n(&account->framework.x_events, __ATOMIC_RELAXED);
    return now_ns > provisional[device].time_ns + (known ? GROUND_SOON_KNOWN_NS : GROUND_SOON_NS);
}

/* Those of this thread, that at the address, and those that are old at that time. */
static void provisional_over(uint32_t thread, uint64_t address, uint64_t now_ns)
{
    for (unsigned i = 0; i < GP_WIRE_GPUS; i++) {
        struct provisional *one = &provisional[i];
        if (one->thread && (one->thread == thread || one->address == address || provisional_is_old(i, now_ns)))
            provisional_ordinary(one);
    }
}

GP_COLD void gp_ground_decide(uint64_t address)
{
    gp_lock_take(&gp_memory.lock);
    if (!address)
        gp_heap_unheld_settle();
    provisional_over(gp_thread.number, address, 0);
    gp_lock_give(&gp_memory.lock);
}

void gp_ground_look(void)
{
    if (!__atomic_load_n(&gp_accounts.x_memory_waits, __ATOMIC_RELAXED))
        return;
    gp_lock_take(&gp_memory.lock);
    gp_heap_unheld_settle();
    provisional_over(gp_thread.number, 0, gp_clock_ns());
    gp_lock_give(&gp_memory.lock);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void block_provisional(const struct gp_record *block)
{
    struct provisional *one = block->device < GP_WIRE_GPUS ? &provisional[block->device] : NULL;
    if (!one || !one->thread)
        return;
    if (block->key >= one->address && block->key - one->address < one->bytes)
        provisional_end(one);
    else
        provisional_ordinary(one);
}

/* Not all of the block lies in segments. */
static bool block_claim(struct gp_record *block, int *status)
{
    uint64_t counted, elsewhere;
    gp_memory_start();
    memory_adopt(block->key, block->bytes, block->device, block->owner);
    memory_under(block->key, block->bytes, block->device, &counted, &elsewhere);
    struct gp_account *account = gp_account_of(block->device);
    bool unseen =
        gp_accounts.setup.late || (account && __atomic_load_n(&account->framework.x_unseen, __ATOMIC_RELAXED));
    /* It may lie in memory that was there before, and is in no total. */
    bool before = unseen && !counted && !elsewhere && !gp_span_in(&grounds.emptied, block->key, block->bytes);
    struct gp_span *claim = counted == block->bytes || before ? NULL : claim_put(block);
    if (!claim)
        return false;
    struct gp_record old;
    block->block.lacks = block->bytes;
    block->time_ns = 0;
    *status = gp_map_insert(gp_accounts.blocks, block, &old);
    claim_settle(claim, 0);
    return true;
}

bool gp_ground_block(struct gp_record *block, int64_t reserved_bytes, int *status)
{
    struct gp_account *account = gp_account_of(block->device);
    bool claimed = false;
    if (!account)
        return false;
    gp_lock_take(&gp_memory.lock);
    block_provisional(block);
    if (__atomic_load_n(&gp_ground_x_odd, __ATOMIC_RELAXED) ||
        gp_framework_strange(&account->framework, reserved_bytes))
        claimed = block_claim(block, status);
    gp_lock_give(&gp_memory.lock);
    return claimed;
}

bool gp_ground_unblock(const struct gp_record *block)
{
    gp_lock_take(&gp_memory.lock);
    struct gp_span *claim = gp_span_at(&grounds.claims, block->key);
    if (claim)
        claim_end(claim, *block);
    gp_lock_give(&gp_memory.lock);
    return claim != NULL;
}

/* ---- the driver's memory comes and goes -------------------------------------------------------------------------- */

static void memory_lost(struct gp_span *memory)
{
    gp_heap_memory_gone(memory);
    gp_span_drop(&gp_memory.set, memory);
}

/* The walk that began the set may have found the memory first, and more may have happened to it
 * since; or it is gone already. Other memory in the set at this place was freed unseen. */
static void memory_enter(const struct gp_record *record)
{
    struct gp_map *map = record->space == GP_SPACE_MAPPING ? gp_accounts.objects : gp_accounts.blocks;
    struct gp_span *span = gp_span_at(&gp_memory.set, record->key);
    struct gp_record now;
    if (gp_map_find(map, record->space, record->key, &now) != 0 ||
        (span && span->bytes == now.bytes && span->device == now.device && span->owner == now.owner &&
         span->memory.space == now.space && span->memory.kind == now.kind && span->memory.segment == now.segment))
        return;
    while ((span = gp_span_in(&gp_memory.set, now.key, now.bytes)))
        memory_lost(span);
    span = gp_memory_put(&now);
    if (span && now.segment == GP_SEGMENT_HEAP)
        gp_heap_memory_new(span);
    else if (now.segment == GP_SEGMENT_HEAP)
        gp_memory_unmake(now.space, now.key, GP_SEGMENT_HEAP);
}

void gp_ground_enter(const struct gp_record *record)
{
    if (!gp_memory_is(record))
        return;
    gp_lock_take(&gp_memory.lock);
    memory_enter(record);
    claims_settle(record->key, record->bytes);
    gp_lock_give(&gp_memory.lock);
}

struct emptied_search {
    uint64_t address, from, bytes;
};

static bool emptied_visit(struct gp_record *record, void *arg)
{
    struct emptied_search *search = arg;
    if (record->space == GP_SPACE_RANGE && search->address >= record->key &&
        search->address - record->key < record->bytes) {
        search->from = record->key;
        search->bytes = record->bytes;
    }
    return false;
}

/* The whole reservation: what is mapped there again, or further on, is a segment too. */
static void emptied_put(const struct gp_record *mapping)
{
    struct emptied_search search = {mapping->key, mapping->key, mapping->bytes};
    if (gp_span_in(&grounds.emptied, mapping->key, mapping->bytes))
        return;
    gp_map_each(gp_accounts.objects, emptied_visit, &search);
    if (gp_span_in(&grounds.emptied, search.from, search.bytes))
        search.from = mapping->key, search.bytes = mapping->bytes;
    struct gp_span *emptied = gp_span_put(&grounds.emptied, search.from, search.bytes);
    if (emptied)
        emptied->device = mapping->device, emptied->owner = mapping->owner;
}

/* Memory that leaves; foreign: a segment, and it was not the framework that took it away. */
static void memory_gone(const struct gp_record *record, bool foreign)
{
    struct gp_span *span = gp_span_at(&gp_memory.set, record->key);
    if (span)
        memory_lost(span);
    if (foreign) {
        ground_strange(record->device);
        if (record->space == GP_SPACE_MAPPING)
            emptied_put(record);
        inside_claim(record->key, record->bytes);
    }
    claims_settle(record->key, record->bytes);
}

void gp_ground_leave(const struct gp_record *record)
{
    bool segment = record->segment == GP_SEGMENT_FRAMEWORK && gp_memory_is(record);
    if ((!gp_memory_on() && !segment) || !gp_memory_is(record))
        return;
    bool foreign = segment && !gp_owner_here().segment;
    if (!gp_memory_on() && !foreign)
        return;
    gp_lock_take(&gp_memory.lock);
    gp_memory_start();
    memory_gone(record, foreign);
    gp_lock_give(&gp_memory.lock);
}

uint8_t gp_ground_wants(uint64_t address, uint64_t bytes, uint8_t *owner, uint8_t *device)
{
    const struct gp_span *over = NULL;
    if (GP_LIKELY(!gp_memory_on()))
        return GP_SEGMENT_NONE;
    gp_lock_take(&gp_memory.lock);
    bool heap = gp_heap_over(address, bytes);
    over = heap ? NULL : gp_span_in(&grounds.claims, address, bytes);
    over = heap || over ? over : gp_span_in(&grounds.emptied, address, bytes);
    if (over)
        *owner = over->owner, *device = (uint8_t)over->device;
    gp_lock_give(&gp_memory.lock);
    return heap ? GP_SEGMENT_HEAP : over ? GP_SEGMENT_FRAMEWORK : GP_SEGMENT_NONE;
}

void gp_ground_pass(void)
{
    if (GP_LIKELY(!gp_memory_on()))
        return;
    gp_lock_take(&gp_memory.lock);
    gp_lock_give(&gp_memory.lock);
}

void gp_ground_range_gone(uint64_t address, uint64_t bytes)
{
    struct gp_span *emptied;
    if (GP_LIKELY(!gp_memory_on()))
        return;
    gp_lock_take(&gp_memory.lock);
    while ((emptied = gp_span_in(&grounds.emptied, address, bytes)))
        gp_span_drop(&grounds.emptied, emptied);
    gp_lock_give(&gp_memory.lock);
}

static bool segment_of_context(struct gp_record *record, void *ctx)
{
    uint32_t *number = ctx; /* 0: it was found */
    if (record->segment == GP_SEGMENT_FRAMEWORK && record->space == GP_SPACE_DEVICE && record->ctx == *number)
        *number = 0;
    return false;
}

void gp_ground_context_gone(uint32_t ctx)
{
    uint32_t search = ctx;
    struct gp_span *span;
    struct gp_record record;
    uint64_t at = 0;
    gp_ground_next(0);
    if (!gp_memory_on())
        gp_map_each(gp_accounts.blocks, segment_of_context, &search);
    if (search && !gp_memory_on())
        return;
    gp_lock_take(&gp_memory.lock);
    gp_memory_start();
    while ((span = gp_span_in(&gp_memory.set, at, UINT64_MAX - at))) {
        at = span->address + span->bytes;
        if (span->memory.space == GP_SPACE_DEVICE &&
            gp_map_find(gp_accounts.blocks, GP_SPACE_DEVICE, span->address, &record) == 0 && record.ctx == ctx)
            memory_gone(&record, record.segment == GP_SEGMENT_FRAMEWORK);
    }
    gp_lock_give(&gp_memory.lock);
}
