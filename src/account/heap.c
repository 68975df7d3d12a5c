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
 * for whatever lists blocks. A segment's record counts its heaps, and keeps the call site of the
 * allocation apart, since a segment has none. The record of an allocation of linear memory says where
 * the peaks were before it, so that a heap takes it out of them again.
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
 * heapblock.c has the blocks, heapsegment.c the segments, heappiece.c the pieces. All of them are called
 * under the lock of this file.
 *
 * A driver call takes its record out of the map first, and asks for the lock only then, if the
 * record is a segment's. So a holder of the lock that finds no record must leave the rest to that
 * call, and a heap that is begun meanwhile finds no memory.
 */
#include "account/heaps.h"
#include "owner/owner.h"

static struct gp_lock lock = GP_LOCK_INIT(GP_RANK_HEAP);
static struct gp_span_set below = {.limit = 1u << 16}; /* mappings below a new heap; otherwise empty */
static uint32_t x_any;                                 /* a heap was ever registered */

/* ---- heaps; under the lock --------------------------------------------------------------------------------------- */

static bool heap_join(struct gp_record *record, void *arg)
{
    struct gp_heap_change *change = arg;
    change->before = *record;
    if (record->kind != GP_KIND_LINEAR || record->segment == GP_SEGMENT_FRAMEWORK || record->device == GP_NO_DEVICE ||
        change->address < record->key || change->address + change->bytes > record->key + record->bytes)
        return false;
    record->memory.heaps++;
    if (record->segment == GP_SEGMENT_NONE) {
        record->segment = GP_SEGMENT_HEAP;
        record->memory.own_site = record->site;
        record->site = 0;
    }
    change->after = *record;
    change->done = true;
    return false;
}

static bool heap_part(struct gp_record *record, void *arg)
{
    struct gp_heap_change *change = arg;
    if (record->segment != GP_SEGMENT_HEAP)
        return false; /* the memory was freed, and is another allocation's now */
    record->memory.heaps--;
    change->after = *record;
    change->done = true;
    return false;
}

static void left_settle(void)
{
    struct gp_span *segment;
    while ((segment = gp_span_in(&gp_heaps.left, 0, UINT64_MAX))) {
        uint64_t key = segment->address;
        struct gp_span *piece = segment->flag ? gp_span_at(&gp_heaps.pieces, key) : NULL;
        gp_heaps_left_drop(segment);
        if (piece)
            gp_heaps_piece_settle(piece);
        else
            gp_heaps_segment_settle(key);
    }
}

/* The driver allocation below a heap that is not over mappings. */
static bool heap_segment(const struct gp_span *heap, struct gp_record *out)
{
    return gp_map_find(gp_accounts.blocks, GP_SPACE_DEVICE, heap->link, out) == 0 && out->segment == GP_SEGMENT_HEAP;
}

static bool heap_lives(const struct gp_span *heap)
{
    struct gp_record segment;
    return heap->flag || heap_segment(heap, &segment); /* one over mappings ends with its last piece */
}

static void memory_gone(uint64_t address, uint64_t bytes)
{
    struct gp_span *heap;
    gp_heaps_blocks_end(address, bytes);
    while ((heap = gp_span_in(&gp_heaps.heaps, address, bytes)))
        gp_span_drop(&gp_heaps.heaps, heap);
    while ((heap = gp_span_in(&gp_heaps.left, address, bytes)))
        gp_heaps_left_drop(heap);
}

/* Ends heaps whose memory was freed without a call to gp_heap_gone. */
static void heaps_sweep(uint64_t address, uint64_t bytes)
{
    const struct gp_span *heap;
    uint64_t end = address + bytes;
    while (address < end && (heap = gp_span_in(&gp_heaps.heaps, address, end - address))) {
        address = heap->address + heap->bytes;
        if (!heap_lives(heap))
            memory_gone(heap->link, heap->size);
    }
}

static void heap_end(struct gp_span *heap)
{
    if (heap->flag) {
        gp_heaps_mapped_end(heap);
        return;
    }
    const struct gp_span old = *heap;
    struct gp_heap_change change = {.address = old.address, .bytes = old.bytes};
    gp_heaps_blocks_end(old.address, old.bytes);
    gp_span_drop(&gp_heaps.heaps, heap);
    if (gp_map_update(gp_accounts.blocks, GP_SPACE_DEVICE, old.link, heap_part, &change) != 0 || !change.done)
        return;
    const struct gp_span like = {.device = change.after.device, .owner = change.after.owner};
    if (change.after.memory.heaps)
        gp_heaps_block_put(old.address, old.bytes, &like, true, change.after.memory.own_site);
    else
        gp_heaps_left_put(&change.after);
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
    if (gp_span_in(&gp_heaps.heaps, address, bytes)) {
        gp_feed_lost(GP_LOST_ANNOTATION);
        return NULL;
    }
    struct gp_span *heap = gp_span_put(&gp_heaps.heaps, address, bytes);
    if (heap)
        heap->owner = owner;
    else
        gp_feed_lost(GP_LOST_MAP);
    return heap;
}

static bool heap_begin(uint64_t address, uint64_t bytes, uint64_t key, uint8_t owner)
{
    struct gp_heap_change change = {.address = address, .bytes = bytes};
    struct gp_span *heap = heap_put(address, bytes, owner);
    if (!heap)
        return false;
    if (gp_map_update(gp_accounts.blocks, GP_SPACE_DEVICE, key, heap_join, &change) != 0 || !change.done) {
        gp_span_drop(&gp_heaps.heaps, heap);
        return false;
    }
    heap->link = key;
    heap->size = change.after.bytes;
    heap->device = change.after.device;
    if (!change.before.segment)
        gp_heaps_segment_begin(&change);
    else if (!change.before.memory.heaps)
        gp_heaps_segment_again(&change);
    else
        gp_heaps_segment_carve(address, bytes);
    return true;
}

static bool mapping_find_in(struct gp_record *record, void *arg)
{
    struct heap_search *search = arg;
    if (record->space != GP_SPACE_MAPPING || record->kind != GP_KIND_VMM ||
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
        gp_heaps_piece_join(newest->key, newest->bytes, heap);
    while ((mapping = gp_span_in(&below, 0, UINT64_MAX))) {
        const struct gp_span one = *mapping;
        gp_span_drop(&below, mapping);
        if (one.device == heap->device && one.address != newest->key)
            gp_heaps_piece_join(one.address, one.bytes, heap);
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
        __atomic_fetch_add(&gp_heaps.x_mapped, 1, __ATOMIC_RELAXED);
        mapped_join(heap, &search);
        if (heap->size)
            return true;
        gp_heaps_mapped_drop(heap);
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
    struct gp_span *heap = gp_span_at(&gp_heaps.heaps, address);
    if (heap)
        heap_end(heap);
    gp_lock_give(&lock);
    /* Without a heap: the driver has freed the memory before. */
}

void gp_feed_heap_reset(uint64_t address)
{
    gp_lock_take(&lock);
    struct gp_span *heap = gp_span_at(&gp_heaps.heaps, address);
    if (heap)
        gp_heaps_blocks_end(heap->address, heap->bytes);
    gp_lock_give(&lock);
}

/* The device of the heap; GP_DEVICE_UNKNOWN: there is no such heap. */
static int heap_device(uint64_t heap)
{
    gp_lock_take(&lock);
    const struct gp_span *span = gp_span_at(&gp_heaps.heaps, heap);
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
    const struct gp_span *span = gp_span_at(&gp_heaps.heaps, heap);
    if (span && address >= span->address && address + bytes <= span->address + span->bytes &&
        !gp_span_in(&gp_heaps.blocks, address, bytes) && (!span->flag || gp_heaps_hold(address, bytes)))
        gp_heaps_block_put(address, bytes, span, false, site);
    else if (span)
        gp_feed_lost(GP_LOST_ANNOTATION);
    gp_lock_give(&lock);
}

static struct gp_span *block_at(uint64_t address)
{
    struct gp_span *block = gp_span_at(&gp_heaps.blocks, address);
    return block && !block->flag ? block : NULL;
}

/* The block may grow into what no block of the heap has. */
static bool block_fits(const struct gp_span *block, uint64_t bytes)
{
    const struct gp_span *heap = gp_span_in(&gp_heaps.heaps, block->address, block->bytes);
    uint64_t end = block->address + block->bytes;
    return block->address + bytes > block->address && heap && block->address + bytes <= heap->address + heap->bytes &&
           (bytes <= block->bytes || !gp_span_in(&gp_heaps.blocks, end, bytes - block->bytes)) &&
           (!heap->flag || gp_heaps_hold(block->address, bytes));
}

void gp_feed_heap_resize(uint64_t address, uint64_t bytes)
{
    gp_lock_take(&lock);
    struct gp_span *block = block_at(address);
    if (block && block_fits(block, bytes)) {
        uint32_t site = gp_heaps_block_leave(block);
        gp_span_resize(block, bytes);
        gp_heaps_block_enter(block, site);
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
        gp_heaps_block_leave(block);
        gp_span_drop(&gp_heaps.blocks, block);
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
    if (GP_LIKELY(!__atomic_load_n(&gp_heaps.x_mapped, __ATOMIC_RELAXED)))
        return false;
    gp_lock_take(&lock);
    bool over = gp_span_in(&gp_heaps.heaps, address, bytes);
    gp_lock_give(&lock);
    return over;
}

void gp_heap_mapped(const struct gp_record *mapping)
{
    gp_lock_take(&lock);
    const struct gp_span *heap = gp_span_in(&gp_heaps.heaps, mapping->key, mapping->bytes);
    if (heap && heap->flag && heap->device == mapping->device)
        gp_heaps_piece_put(mapping);
    else
        gp_vmm_segment_end(mapping->key, mapping->mapping.handle, mapping->device);
    gp_lock_give(&lock);
}

void gp_heap_unmapped(uint64_t address, uint64_t bytes)
{
    gp_lock_take(&lock);
    struct gp_span *piece = gp_span_at(&gp_heaps.pieces, address);
    gp_heaps_blocks_end(address, bytes);
    if (piece)
        gp_heaps_piece_gone(piece);
    gp_lock_give(&lock);
}

void gp_heap_settle(void)
{
    if (GP_LIKELY(!__atomic_load_n(&gp_heaps.x_left, __ATOMIC_RELAXED)))
        return;
    gp_lock_take(&lock);
    left_settle();
    gp_lock_give(&lock);
}

void gp_heap_pass(void)
{
    /* [settle.A] acquire: the events; pairs with [settle.R]. A record that became plain is seen under the lock
     * of its map's shard, and so is the 1 that was stored before. */
    if (GP_LIKELY(!__atomic_load_n(&gp_heaps.x_settling, __ATOMIC_ACQUIRE)))
        return;
    gp_lock_take(&lock);
    gp_lock_give(&lock);
}

/* Ends the segments of a set that the context owns. */
static void set_gone(const struct gp_span_set *set, uint32_t ctx)
{
    const struct gp_span *span;
    struct gp_record segment;
    uint64_t address = 0;
    while ((span = gp_span_in(set, address, UINT64_MAX - address))) {
        address = span->address + span->bytes;
        if (!span->flag && heap_segment(span, &segment) && segment.ctx == ctx)
            memory_gone(span->link, span->size);
    }
}

void gp_heap_context_gone(uint32_t ctx)
{
    if (!__atomic_load_n(&x_any, __ATOMIC_RELAXED))
        return;
    gp_lock_take(&lock);
    set_gone(&gp_heaps.heaps, ctx);
    set_gone(&gp_heaps.left, ctx);
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
