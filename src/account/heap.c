/* SPDX-License-Identifier: MIT
 *
 * heap.c: heaps of sub-allocators that describe themselves, and the blocks that they cut out of
 * them. Called by source/, and by block.c and context.c when the driver frees memory under a heap.
 *
 *      driver allocation with heaps = a segment: reserved, and not allocated
 *      allocated in it              = the blocks of its heaps + what lies outside of all of them
 *
 * What lies outside is kept as blocks too, with the call site of the driver allocation ("rest").
 *
 * Two sets of ranges say what is where; both are under the lock. The map has a record of each block
 * for those who list blocks. A segment's record counts its heaps in refs, and keeps the call site of
 * the allocation in uses, since a segment has none. The record of an allocation of linear memory
 * says in link where the peaks were before it, so that a heap takes it out of them again.
 *
 * A pool that ends unregisters its heaps and then frees their memory. In between the memory would
 * count as allocated as a whole, and raise the peak to what the pool never used. So a segment that has
 * lost its last heap is only noted, and becomes a plain allocation at the next event that adds
 * memory, or when the numbers are read.
 *
 * A driver call takes its record out of the map first, and asks for the lock only then, if the
 * record is a segment's. So whoever holds the lock and finds no record must leave the rest to that
 * call, and a heap that is begun meanwhile finds no memory.
 */
#include "account/account.h"
#include "base/clock.h"
#include "ds/span.h"
#include "owner/owner.h"

/* A block of 512 B in each of them would be 2 GiB. */
#define HEAP_BLOCKS (1u << 22)
#define HEAPS       (1u << 16)

static struct gp_lock lock = GP_LOCK_INIT(GP_RANK_HEAP);
static struct gp_span_set heaps = {.limit = HEAPS};        /* link, size: of the driver allocation */
static struct gp_span_set blocks = {.limit = HEAP_BLOCKS}; /* flag: rest */
static struct gp_span_set left = {.limit = HEAPS};         /* segments that have lost their last heap */
static uint32_t x_left;
static uint32_t x_any; /* a heap was ever registered */

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

/* ---- blocks; under the lock ------------------------------------------------------------------------------------- */

static void block_enter(const struct gp_span *block, uint32_t site)
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

/* Returns the call site of the block. */
static uint32_t block_leave(const struct gp_span *block)
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

static void block_put(uint64_t address, uint64_t bytes, const struct gp_span *like, bool rest, uint32_t site)
{
    struct gp_span *block = gp_span_put(&blocks, address, bytes);
    if (!block) {
        gp_feed_lost(GP_LOST_MAP);
        return;
    }
    block->device = like->device;
    block->owner = like->owner;
    block->flag = rest;
    block_enter(block, site);
}

static void blocks_end(uint64_t address, uint64_t bytes)
{
    struct gp_span *block;
    while ((block = gp_span_in(&blocks, address, bytes))) {
        block_leave(block);
        gp_span_drop(&blocks, block);
    }
}

/* ---- segments; under the lock ----------------------------------------------------------------------------------- */

struct heap_change {
    uint64_t address, bytes; /* the heap's */
    struct gp_record before, after;
    bool done;
};

static bool heap_join(struct gp_record *record, void *arg)
{
    struct heap_change *change = arg;
    change->before = *record;
    if (record->kind != GP_KIND_LINEAR || record->segment == GP_SEGMENT_FRAMEWORK || record->device == GP_NO_DEVICE ||
        change->address < record->key || change->address + change->bytes > record->key + record->bytes)
        return false;
    record->refs++;
    if (record->segment == GP_SEGMENT_NONE) {
        record->segment = GP_SEGMENT_HEAP;
        record->uses = record->site;
        record->site = 0;
    }
    change->after = *record;
    change->done = true;
    return false;
}

static void segment_plain(struct gp_record *record)
{
    record->segment = GP_SEGMENT_NONE;
    record->refs = 0;
    record->site = record->uses;
    record->uses = 0;
    record->link = gp_account_raises(record->device);
}

static bool heap_part(struct gp_record *record, void *arg)
{
    struct heap_change *change = arg;
    if (record->segment != GP_SEGMENT_HEAP)
        return false; /* the memory was freed, and is somebody else's now */
    record->refs--;
    change->after = *record;
    change->done = true;
    return false;
}

static bool heap_leave(struct gp_record *record, void *arg)
{
    struct heap_change *change = arg;
    if (record->segment != GP_SEGMENT_HEAP || record->refs != 0)
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
    gp_event_record(GP_EVENT_FREE, before, 0);
    gp_event_record(GP_EVENT_ALLOC, &begins, 0);
}

/* What lies around the first heap of a segment. */
static void segment_rest(const struct heap_change *change, uint32_t site)
{
    const struct gp_record *segment = &change->after;
    const struct gp_span like = {.device = segment->device, .owner = segment->owner};
    uint64_t end = change->address + change->bytes, last = segment->key + segment->bytes;
    if (change->address > segment->key)
        block_put(segment->key, change->address - segment->key, &like, true, site);
    if (end < last)
        block_put(end, last - end, &like, true, site);
}

/* If the heap is all of the memory, the peaks forget it; else a part of it was allocated indeed. */
static void segment_begin(const struct heap_change *change)
{
    const struct gp_record *plain = &change->before;
    if (change->bytes == plain->bytes) {
        struct gp_move move = gp_account_block_move(plain);
        move.parts = GP_PART_ALLOCATED;
        gp_account_retract(plain->device, plain->link, &move);
    } else {
        segment_allocated(plain, GP_SUB);
    }
    gp_framework_segment(&change->after, GP_ADD);
    segment_events(&change->before, &change->after);
    segment_rest(change, change->before.site);
}

static void segment_end(const struct heap_change *change)
{
    blocks_end(change->after.key, change->after.bytes); /* rest */
    gp_framework_segment(&change->before, GP_SUB);
    segment_events(&change->before, &change->after);
    segment_allocated(&change->after, GP_ADD);
}

static void segment_settle(uint64_t key)
{
    struct heap_change change = {0};
    if (gp_map_update(gp_accounts.blocks, GP_SPACE_DEVICE, key, heap_leave, &change) == 0 && change.done)
        segment_end(&change);
}

static void left_drop(struct gp_span *segment)
{
    gp_span_drop(&left, segment);
    __atomic_store_n(&x_left, (uint32_t)left.count, __ATOMIC_RELAXED);
}

static void left_put(const struct gp_record *segment)
{
    if (gp_span_put(&left, segment->key, segment->bytes))
        __atomic_store_n(&x_left, (uint32_t)left.count, __ATOMIC_RELAXED);
    else
        segment_settle(segment->key);
}

static void left_settle(void)
{
    struct gp_span *segment;
    while ((segment = gp_span_in(&left, 0, UINT64_MAX))) {
        uint64_t key = segment->address;
        left_drop(segment);
        segment_settle(key);
    }
}

/* A heap in a segment that had lost its last one. */
static void segment_again(const struct heap_change *change)
{
    struct gp_span *segment = gp_span_at(&left, change->after.key);
    if (segment)
        left_drop(segment);
    blocks_end(change->after.key, change->after.bytes);
    segment_rest(change, change->after.uses);
}

/* Another heap in the segment: its memory is no rest any more. */
static void segment_carve(uint64_t address, uint64_t bytes)
{
    struct gp_span *found;
    while ((found = gp_span_in(&blocks, address, bytes))) {
        struct gp_span rest = *found;
        uint64_t end = address + bytes, rest_end = rest.address + rest.bytes;
        uint32_t site = block_leave(found);
        gp_span_drop(&blocks, found);
        if (rest.address < address)
            block_put(rest.address, address - rest.address, &rest, true, site);
        if (rest_end > end)
            block_put(end, rest_end - end, &rest, true, site);
    }
}

/* ---- heaps; under the lock --------------------------------------------------------------------------------------- */

static bool heap_lives(const struct gp_span *heap)
{
    struct gp_record segment;
    return gp_map_find(gp_accounts.blocks, GP_SPACE_DEVICE, heap->link, &segment) == 0 &&
           segment.segment == GP_SEGMENT_HEAP;
}

static void memory_gone(uint64_t address, uint64_t bytes)
{
    struct gp_span *heap;
    blocks_end(address, bytes);
    while ((heap = gp_span_in(&heaps, address, bytes)))
        gp_span_drop(&heaps, heap);
    while ((heap = gp_span_in(&left, address, bytes)))
        left_drop(heap);
}

/* Ends heaps whose memory was freed without a call to gp_heap_gone. */
static void heaps_sweep(uint64_t address, uint64_t bytes)
{
    const struct gp_span *heap;
    uint64_t end = address + bytes;
    while (address < end && (heap = gp_span_in(&heaps, address, end - address))) {
        address = heap->address + heap->bytes;
        if (!heap_lives(heap))
            memory_gone(heap->link, heap->size);
    }
}

static void heap_end(struct gp_span *heap)
{
    const struct gp_span old = *heap;
    struct heap_change change = {.address = old.address, .bytes = old.bytes};
    blocks_end(old.address, old.bytes);
    gp_span_drop(&heaps, heap);
    if (gp_map_update(gp_accounts.blocks, GP_SPACE_DEVICE, old.link, heap_part, &change) != 0 || !change.done)
        return;
    const struct gp_span like = {.device = change.after.device, .owner = change.after.owner};
    if (change.after.refs)
        block_put(old.address, old.bytes, &like, true, change.after.uses);
    else
        left_put(&change.after);
}

struct heap_search {
    uint64_t address, bytes, key;
};

static bool heap_find_in(struct gp_record *record, void *arg)
{
    struct heap_search *search = arg;
    if (record->space == GP_SPACE_DEVICE && record->kind == GP_KIND_LINEAR && search->address >= record->key &&
        search->address + search->bytes <= record->key + record->bytes)
        search->key = record->key;
    return false;
}

static void heap_rest(void *arg)
{
    (void)arg;
}

/* The driver allocation that contains the range; 0: none. Most heaps start where their allocation
 * does; for others all of them are looked at. */
static uint64_t heap_memory(uint64_t address, uint64_t bytes)
{
    struct gp_record record;
    struct heap_search search = {.address = address, .bytes = bytes};
    if (gp_map_find(gp_accounts.blocks, GP_SPACE_DEVICE, address, &record) == 0)
        heap_find_in(&record, &search);
    else
        gp_map_each_rest(gp_accounts.blocks, heap_find_in, heap_rest, &search);
    return search.key;
}

static bool heap_begin(uint64_t address, uint64_t bytes, uint64_t key, uint8_t owner)
{
    struct heap_change change = {.address = address, .bytes = bytes};
    heaps_sweep(address, bytes);
    if (gp_span_in(&heaps, address, bytes)) {
        gp_feed_lost(GP_LOST_ANNOTATION);
        return false;
    }
    struct gp_span *heap = gp_span_put(&heaps, address, bytes);
    if (!heap) {
        gp_feed_lost(GP_LOST_MAP);
        return false;
    }
    if (gp_map_update(gp_accounts.blocks, GP_SPACE_DEVICE, key, heap_join, &change) != 0 || !change.done) {
        gp_span_drop(&heaps, heap);
        return false;
    }
    heap->link = key;
    heap->size = change.after.bytes;
    heap->device = change.after.device;
    heap->owner = owner;
    if (!change.before.segment)
        segment_begin(&change);
    else if (!change.before.refs)
        segment_again(&change);
    else
        segment_carve(address, bytes);
    return true;
}

/* ---- the feed ---------------------------------------------------------------------------------------------------- */

static bool range_good(uint64_t address, uint64_t bytes)
{
    bool good = address && bytes && address + bytes > address;
    if (!good)
        gp_feed_lost(GP_LOST_ANNOTATION);
    return good;
}

bool gp_feed_heap_begin(uint64_t address, uint64_t bytes)
{
    if (!range_good(address, bytes))
        return false;
    uint8_t owner = gp_owner_here().row;
    uint64_t key = heap_memory(address, bytes);
    if (!key)
        return false;
    __atomic_store_n(&x_any, 1, __ATOMIC_RELAXED);
    gp_lock_take(&lock);
    bool begun = heap_begin(address, bytes, key, owner);
    gp_lock_give(&lock);
    return begun;
}

void gp_feed_heap_end(uint64_t address)
{
    gp_lock_take(&lock);
    struct gp_span *heap = gp_span_at(&heaps, address);
    if (heap)
        heap_end(heap);
    gp_lock_give(&lock);
    /* Without a heap: the driver has freed the memory before. */
}

void gp_feed_heap_reset(uint64_t address)
{
    gp_lock_take(&lock);
    struct gp_span *heap = gp_span_at(&heaps, address);
    if (heap)
        blocks_end(heap->address, heap->bytes);
    gp_lock_give(&lock);
}

/* The device of the heap; GP_DEVICE_UNKNOWN: there is no such heap. */
static int heap_device(uint64_t heap)
{
    gp_lock_take(&lock);
    const struct gp_span *span = gp_span_at(&heaps, heap);
    int device = span ? span->device : GP_DEVICE_UNKNOWN;
    gp_lock_give(&lock);
    return device;
}

void gp_feed_heap_block(uint64_t heap, uint64_t address, uint64_t bytes)
{
    int device = heap_device(heap);
    gp_heap_settle();
    if (device < 0 || !range_good(address, bytes))
        return;
    uint32_t site = gp_event_here(device, GP_KIND_LINEAR); /* not under the lock: it reads the stack */
    gp_lock_take(&lock);
    const struct gp_span *span = gp_span_at(&heaps, heap);
    if (span && address >= span->address && address + bytes <= span->address + span->bytes &&
        !gp_span_in(&blocks, address, bytes))
        block_put(address, bytes, span, false, site);
    else if (span)
        gp_feed_lost(GP_LOST_ANNOTATION);
    gp_lock_give(&lock);
}

static struct gp_span *block_at(uint64_t address)
{
    struct gp_span *block = gp_span_at(&blocks, address);
    return block && !block->flag ? block : NULL;
}

/* The block may grow into what no block of the heap has. */
static bool block_fits(const struct gp_span *block, uint64_t bytes)
{
    const struct gp_span *heap = gp_span_in(&heaps, block->address, block->bytes);
    uint64_t end = block->address + block->bytes;
    return block->address + bytes > block->address && heap && block->address + bytes <= heap->address + heap->bytes &&
           (bytes <= block->bytes || !gp_span_in(&blocks, end, bytes - block->bytes));
}

void gp_feed_heap_resize(uint64_t address, uint64_t bytes)
{
    gp_lock_take(&lock);
    struct gp_span *block = block_at(address);
    if (block && block_fits(block, bytes)) {
        uint32_t site = block_leave(block);
        gp_span_resize(block, bytes);
        block_enter(block, site);
    } else if (__atomic_load_n(&x_any, __ATOMIC_RELAXED)) {
        gp_feed_lost(GP_LOST_ANNOTATION);
    }
    gp_lock_give(&lock);
}

void gp_feed_heap_unblock(uint64_t address)
{
    gp_lock_take(&lock);
    struct gp_span *block = block_at(address);
    if (block) {
        block_leave(block);
        gp_span_drop(&blocks, block);
    }
    gp_lock_give(&lock);
}

/* ---- the driver frees memory ------------------------------------------------------------------------------------- */

void gp_heap_gone(const struct gp_record *segment)
{
    gp_lock_take(&lock);
    memory_gone(segment->key, segment->bytes);
    gp_lock_give(&lock);
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

void gp_heap_settle(void)
{
    if (GP_LIKELY(!__atomic_load_n(&x_left, __ATOMIC_RELAXED)))
        return;
    gp_lock_take(&lock);
    left_settle();
    gp_lock_give(&lock);
}

void gp_heap_sweep(void)
{
    if (!__atomic_load_n(&x_any, __ATOMIC_RELAXED))
        return;
    gp_lock_take(&lock);
    heaps_sweep(0, UINT64_MAX);
    gp_lock_give(&lock);
}
