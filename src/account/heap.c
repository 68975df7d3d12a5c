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
 * for whatever lists blocks. A segment's record counts its heaps in refs, and keeps the call site of
 * the allocation in uses, since a segment has none. The record of an allocation of linear memory
 * says in link where the peaks were before it, so that a heap takes it out of them again.
 *
 * A pool that ends unregisters its heaps and then frees their memory. In between the memory would
 * count as allocated as a whole, and raise the peak to what the pool never used. So a segment that has
 * lost its last heap is only noted, and becomes a plain allocation at the next event that adds
 * memory, or when the numbers are read.
 *
 * A heap may also lie over mappings of cuMemMap. Each of them that it reaches is a segment, a "piece", if
 * it is the only mapping of all of its handle. A piece counts its heaps in size. The heap ends with its
 * last piece. What is mapped below a heap later is a piece too. vmm.c has the records.
 *
 * A driver call takes its record out of the map first, and asks for the lock only then, if the
 * record is a segment's. So a holder of the lock that finds no record must leave the rest to that
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
static struct gp_span_set heaps = {.limit = HEAPS}; /* link, size: of the driver allocation; flag: over mappings */
static struct gp_span_set blocks = {.limit = HEAP_BLOCKS}; /* flag: rest */
static struct gp_span_set left = {.limit = HEAPS};         /* segments that have lost their last heap */
static struct gp_span_set pieces = {.limit = HEAPS};       /* link: handle; size: heaps; flag: has lost its last one */
static struct gp_span_set below = {.limit = HEAPS};        /* mappings below a new heap; otherwise empty */
static uint32_t x_left;
static uint32_t x_mapped; /* heaps over mappings */
static uint32_t x_any;    /* a heap was ever registered */

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
        return false; /* the memory was freed, and is another allocation's now */
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

/* It has no heap: a plain mapping. */
static void piece_settle(struct gp_span *piece)
{
    const struct gp_span old = *piece;
    gp_span_drop(&pieces, piece);
    blocks_end(old.address, old.bytes); /* rest */
    gp_vmm_segment_end(old.address, old.link, old.device);
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
        struct gp_span *piece = segment->flag ? gp_span_at(&pieces, key) : NULL;
        left_drop(segment);
        if (piece)
            piece_settle(piece);
        else
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

/* ---- pieces; under the lock ------------------------------------------------------------------------------------- */

/* The parts of a new piece that no heap has. */
static void piece_rest(const struct gp_span *piece, uint32_t site)
{
    const struct gp_span like = {.device = piece->device, .owner = piece->owner};
    uint64_t at = piece->address, end = at + piece->bytes;
    const struct gp_span *heap;
    while (at < end && (heap = gp_span_in(&heaps, at, end - at))) {
        if (heap->address > at)
            block_put(at, heap->address - at, &like, true, site);
        at = heap->address + heap->bytes;
    }
    if (at < end)
        block_put(at, end - at, &like, true, site);
}

/* Counts the heaps of a new piece, and it for each of them. */
static void piece_count(struct gp_span *piece)
{
    uint64_t at = piece->address, end = at + piece->bytes;
    struct gp_span *heap;
    while (at < end && (heap = gp_span_in(&heaps, at, end - at))) {
        at = heap->address + heap->bytes;
        piece->size++;
        heap->size++;
    }
}

static void piece_put(const struct gp_record *mapping)
{
    struct gp_span *piece = gp_span_put(&pieces, mapping->key, mapping->bytes);
    if (!piece) {
        gp_feed_lost(GP_LOST_MAP);
        gp_vmm_segment_end(mapping->key, mapping->link, mapping->device);
        return;
    }
    piece->link = mapping->link;
    piece->device = mapping->device;
    piece->owner = mapping->owner;
    piece_count(piece);
    piece_rest(piece, mapping->site);
}

/* A piece that had lost its last heap has one again. */
static void piece_again(struct gp_span *piece)
{
    struct gp_record mapping = {0};
    gp_map_find(gp_accounts.objects, GP_SPACE_MAPPING, piece->address, &mapping);
    left_drop(gp_span_at(&left, piece->address));
    piece->flag = false;
    blocks_end(piece->address, piece->bytes);
    piece_count(piece);
    piece_rest(piece, mapping.site);
}

/* A mapping below a heap that begins. */
static void piece_join(uint64_t address, uint64_t bytes, struct gp_span *heap)
{
    struct gp_record mapping;
    struct gp_span *piece = gp_span_at(&pieces, address);
    uint64_t end = address + bytes, heap_end = heap->address + heap->bytes;
    uint64_t from = heap->address > address ? heap->address : address, to = heap_end < end ? heap_end : end;
    if (!piece) {
        if (gp_vmm_segment_begin(address, to - from == bytes, &mapping))
            piece_put(&mapping);
    } else if (piece->flag) {
        piece_again(piece);
    } else {
        piece->size++;
        heap->size++;
        segment_carve(from, to - from);
    }
}

/* A heap of the piece has ended. */
static void piece_part(struct gp_span *piece, const struct gp_span *heap)
{
    const struct gp_span like = {.device = piece->device, .owner = piece->owner};
    uint64_t end = piece->address + piece->bytes, heap_end = heap->address + heap->bytes;
    uint64_t from = heap->address > piece->address ? heap->address : piece->address,
             to = heap_end < end ? heap_end : end;
    struct gp_record mapping = {0};
    if (--piece->size > 0) {
        gp_map_find(gp_accounts.objects, GP_SPACE_MAPPING, piece->address, &mapping);
        block_put(from, to - from, &like, true, mapping.site);
        return;
    }
    struct gp_span *segment = gp_span_put(&left, piece->address, piece->bytes);
    piece->flag = true;
    if (!segment) {
        piece_settle(piece);
        return;
    }
    segment->flag = true;
    __atomic_store_n(&x_left, (uint32_t)left.count, __ATOMIC_RELAXED);
}

/* Whether all of the range is memory. */
static bool pieces_hold(uint64_t address, uint64_t bytes)
{
    uint64_t at = address, end = address + bytes;
    const struct gp_span *piece;
    while (at < end && (piece = gp_span_in(&pieces, at, 1)))
        at = piece->address + piece->bytes;
    return at >= end;
}

static void mapped_drop(struct gp_span *heap)
{
    gp_span_drop(&heaps, heap);
    __atomic_fetch_sub(&x_mapped, 1, __ATOMIC_RELAXED);
}

static void mapped_end(struct gp_span *heap)
{
    const struct gp_span old = *heap;
    uint64_t at = old.address, end = at + old.bytes;
    struct gp_span *piece;
    blocks_end(old.address, old.bytes);
    mapped_drop(heap);
    while (at < end && (piece = gp_span_in(&pieces, at, end - at))) {
        at = piece->address + piece->bytes;
        piece_part(piece, &old);
    }
}

static void piece_gone(struct gp_span *piece)
{
    const struct gp_span old = *piece;
    uint64_t at = old.address, end = at + old.bytes;
    struct gp_span *heap;
    gp_span_drop(&pieces, piece);
    if (old.flag) {
        left_drop(gp_span_at(&left, old.address));
        return;
    }
    while (at < end && (heap = gp_span_in(&heaps, at, end - at))) {
        at = heap->address + heap->bytes;
        if (--heap->size == 0) {
            blocks_end(heap->address, heap->bytes);
            mapped_drop(heap);
        }
    }
}

/* ---- heaps; under the lock --------------------------------------------------------------------------------------- */

static bool heap_lives(const struct gp_span *heap)
{
    struct gp_record segment;
    return heap->flag || /* that one ends with its last piece */
           (gp_map_find(gp_accounts.blocks, GP_SPACE_DEVICE, heap->link, &segment) == 0 &&
            segment.segment == GP_SEGMENT_HEAP);
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
    if (heap->flag) {
        mapped_end(heap);
        return;
    }
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
    struct gp_record newest; /* of the mappings */
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

static struct gp_span *heap_put(uint64_t address, uint64_t bytes, uint8_t owner)
{
    heaps_sweep(address, bytes);
    if (gp_span_in(&heaps, address, bytes)) {
        gp_feed_lost(GP_LOST_ANNOTATION);
        return NULL;
    }
    struct gp_span *heap = gp_span_put(&heaps, address, bytes);
    if (heap)
        heap->owner = owner;
    else
        gp_feed_lost(GP_LOST_MAP);
    return heap;
}

static bool heap_begin(uint64_t address, uint64_t bytes, uint64_t key, uint8_t owner)
{
    struct heap_change change = {.address = address, .bytes = bytes};
    struct gp_span *heap = heap_put(address, bytes, owner);
    if (!heap)
        return false;
    if (gp_map_update(gp_accounts.blocks, GP_SPACE_DEVICE, key, heap_join, &change) != 0 || !change.done) {
        gp_span_drop(&heaps, heap);
        return false;
    }
    heap->link = key;
    heap->size = change.after.bytes;
    heap->device = change.after.device;
    if (!change.before.segment)
        segment_begin(&change);
    else if (!change.before.refs)
        segment_again(&change);
    else
        segment_carve(address, bytes);
    return true;
}

/* Bindings of multicast objects have odd keys. */
static bool mapping_find_in(struct gp_record *record, void *arg)
{
    struct heap_search *search = arg;
    if (record->space != GP_SPACE_MAPPING || record->kind != GP_KIND_VMM || record->key & 1 ||
        record->key >= search->address + search->bytes || record->key + record->bytes <= search->address)
        return false;
    struct gp_span *mapping = gp_span_put(&below, record->key, record->bytes);
    if (mapping)
        mapping->device = record->device;
    if (record->time_ns >= search->newest.time_ns)
        search->newest = *record;
    return false;
}

static void mapped_join(struct gp_span *heap, const struct heap_search *search)
{
    struct gp_span *mapping;
    const struct gp_record *newest = &search->newest;
    /* The peaks know only the last addition, and forget it. */
    if (newest->device == heap->device)
        piece_join(newest->key, newest->bytes, heap);
    while ((mapping = gp_span_in(&below, 0, UINT64_MAX))) {
        const struct gp_span one = *mapping;
        gp_span_drop(&below, mapping);
        if (one.device == heap->device && one.address != newest->key)
            piece_join(one.address, one.bytes, heap);
    }
}

/* A heap over mappings. Their device is that of the lowest one; others are no pieces. */
static bool mapped_begin(uint64_t address, uint64_t bytes, uint8_t owner)
{
    struct heap_search search = {.address = address, .bytes = bytes};
    gp_map_each_rest(gp_accounts.objects, mapping_find_in, heap_rest, &search);
    struct gp_span *mapping = gp_span_in(&below, 0, UINT64_MAX), *heap = NULL;
    if (mapping && (heap = heap_put(address, bytes, owner))) {
        heap->flag = true;
        heap->device = mapping->device;
        __atomic_fetch_add(&x_mapped, 1, __ATOMIC_RELAXED);
        mapped_join(heap, &search);
        if (heap->size)
            return true;
        mapped_drop(heap);
    }
    while ((mapping = gp_span_in(&below, 0, UINT64_MAX)))
        gp_span_drop(&below, mapping);
    return false;
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
    __atomic_store_n(&x_any, 1, __ATOMIC_RELAXED);
    gp_lock_take(&lock);
    bool begun = key ? heap_begin(address, bytes, key, owner) : mapped_begin(address, bytes, owner);
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
        !gp_span_in(&blocks, address, bytes) && (!span->flag || pieces_hold(address, bytes)))
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
           (bytes <= block->bytes || !gp_span_in(&blocks, end, bytes - block->bytes)) &&
           (!heap->flag || pieces_hold(block->address, bytes));
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

bool gp_heap_over(uint64_t address, uint64_t bytes)
{
    if (GP_LIKELY(!__atomic_load_n(&x_mapped, __ATOMIC_RELAXED)))
        return false;
    gp_lock_take(&lock);
    bool over = gp_span_in(&heaps, address, bytes);
    gp_lock_give(&lock);
    return over;
}

void gp_heap_mapped(const struct gp_record *mapping)
{
    gp_lock_take(&lock);
    const struct gp_span *heap = gp_span_in(&heaps, mapping->key, mapping->bytes);
    if (heap && heap->flag && heap->device == mapping->device)
        piece_put(mapping);
    else
        gp_vmm_segment_end(mapping->key, mapping->link, mapping->device);
    gp_lock_give(&lock);
}

void gp_heap_unmapped(uint64_t address, uint64_t bytes)
{
    gp_lock_take(&lock);
    struct gp_span *piece = gp_span_at(&pieces, address);
    blocks_end(address, bytes);
    if (piece)
        piece_gone(piece);
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
