/* SPDX-License-Identifier: MIT
 *
 * heap.c: heaps of sub-allocators that describe themselves, and the blocks that they cut out of them. Called by source/,
 * and by ground.c as the driver's memory comes and goes.
 *
 *      driver memory with heaps = a segment: reserved, and not allocated
 *      allocated in it          = the blocks of its heaps + what lies outside of all of them
 *
 * The parts outside of all heaps are kept as blocks too, with the call site of the driver's memory
 * ("rest").
 *
 * A heap lies in one allocation of linear memory, or over mappings of cuMemMap: each that it reaches is a segment, if it is
 * the only mapping of all of its handle. Segments count their heaps and heaps their segments; a heap ends with its last
 * one. Memory that is mapped below a heap later is a segment too.
 *
 * A pool that ends unregisters its heaps and then frees their memory. Between the two the memory
 * would count as allocated as a whole, and raise the peak to more than the pool ever used. So a
 * segment that has lost its last heap is only noted (`unheld`), and becomes ordinary at the next
 * event that adds memory, or when the numbers are read.
 */
#include "account/heap.h"
#include "account/door.h"
#include "account/event.h"
#include "account/feed/door.h"
#include "account/feed/feed.h"
#include "account/feed/heap.h"
#include "account/ground.h"
#include "account/internal.h"
#include "account/memory.h"
#include "account/move.h"
#include "account/segment.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/span.h"
#include "stack/stack.h"
#include <gpuprof/wire.h>

/* A block of 512 B in each of them would be 2 GiB. */
#define HEAP_BLOCKS (1u << 22)
#define HEAPS       (1u << 16)

static struct gp_span_set heaps = {.limit = HEAPS}, blocks = {.limit = HEAP_BLOCKS}, unheld = {.limit = HEAPS};
static bool any; /* a heap was ever registered */

/* ---- blocks; under the lock, as the next two ---------------------------------------------------------------------- */

static void heap_count(const struct gp_span *block, int sign, int64_t bytes)
{
    struct gp_account *account = gp_account_of(block->device);
    if (!account || block->block.rest)
        return;
    struct gp_framework *of = &account->heaps[gp_door_of(block->owner)];
    __atomic_fetch_add(&of->x_events, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&of->x_blocks, sign, __ATOMIC_RELAXED);
    __atomic_fetch_add(&of->x_allocated_bytes, sign * bytes, __ATOMIC_RELAXED);
}

static struct gp_record block_record(const struct gp_span *block, uint32_t site)
{
    return (struct gp_record){
        .key = block->address,
        .space = GP_SPACE_BLOCK,
        .kind = GP_KIND_LINEAR,
        .device = block->device,
        .owner = block->owner,
        .bytes = block->bytes,
        .requested_bytes = block->bytes,
        .site = site,
    };
}

static void block_enter(const struct gp_span *block, uint32_t site)
{
    struct gp_record record = block_record(block, site);
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
    struct gp_record old = {.site = 0};
    gp_map_take(gp_accounts.blocks, GP_SPACE_BLOCK, block->address, &old);
    struct gp_record record = block_record(block, old.site);
    struct gp_move move = gp_account_block_move(&record);
    uint64_t time_ns = gp_account_move(record.device, GP_SUB, &move);
    heap_count(block, -1, (int64_t)block->bytes);
    gp_event_record_at(GP_EVENT_FREE, &record, 0, time_ns);
    return record.site;
}

/* like: has the device and the owner. */
static void block_put(uint64_t address, uint64_t bytes, const struct gp_span *like, bool rest, uint32_t site)
{
    struct gp_span *block = gp_span_put(&blocks, address, bytes);
    if (!block) {
        gp_feed_lost(GP_LOST_MAP);
        return;
    }
    block->device = like->device;
    block->owner = like->owner;
    block->block.rest = rest;
    block_enter(block, site);
}

static void block_end(struct gp_span *block)
{
    block_leave(block);
    gp_span_drop(&blocks, block);
}

/* All that reaches into the range; or not the rest, which in a heap is that of another device's memory. */
static void blocks_end(uint64_t address, uint64_t bytes, bool rest)
{
    struct gp_span *block;
    uint64_t at = address, end = address + bytes;
    while (at < end && (block = gp_span_in(&blocks, at, end - at))) {
        at = block->address + block->bytes;
        if (rest || !block->block.rest)
            block_end(block);
    }
}

/* The range is a heap's from now on, and no rest. */
static void blocks_carve(uint64_t address, uint64_t bytes)
{
    struct gp_span *found;
    while ((found = gp_span_in(&blocks, address, bytes))) {
        const struct gp_span rest = *found;
        uint64_t end = address + bytes, rest_end = rest.address + rest.bytes;
        uint32_t site = block_leave(found);
        gp_span_drop(&blocks, found);
        if (rest.address < address)
            block_put(rest.address, address - rest.address, &rest, true, site);
        if (rest_end > end)
            block_put(end, rest_end - end, &rest, true, site);
    }
}

/* ---- memory with heaps: pieces ------------------------------------------------------------------------------------ */

static bool piece_record(const struct gp_span *piece, struct gp_record *out)
{
    bool mapped = piece->memory.space == GP_SPACE_MAPPING;
    return gp_map_find(mapped ? gp_accounts.objects : gp_accounts.blocks, piece->memory.space, piece->address, out) ==
           0;
}

static uint32_t piece_site(const struct gp_span *piece)
{
    struct gp_record record;
    if (!piece_record(piece, &record))
        return 0;
    return record.space == GP_SPACE_MAPPING ? record.site : record.memory.own_site;
}

/* Memory in which such a heap can be. */
static bool piece_suits(const struct gp_span *memory, const struct gp_span *heap)
{
    const struct gp_span_memory *is = &memory->memory;
    if (is->space == GP_SPACE_MAPPING)
        return is->kind == GP_KIND_VMM;
    return is->space == GP_SPACE_DEVICE && is->kind == GP_KIND_LINEAR && is->segment != GP_SEGMENT_FRAMEWORK &&
           memory->address <= heap->address && memory->address + memory->bytes >= heap->address + heap->bytes;
}

/* The next one, of the device. */
static struct gp_span *piece_next(const struct gp_span *heap, int device, uint64_t *at)
{
    struct gp_span *memory;
    uint64_t end = heap->address + heap->bytes;
    while (*at < end && (memory = gp_span_in(&gp_memory.set, *at, end - *at))) {
        *at = memory->address + memory->bytes;
        if (piece_suits(memory, heap) && (device == GP_DEVICE_UNKNOWN || device == memory->device))
            return memory;
    }
    return NULL;
}

/* The bytes of a piece that a heap covers; from: where they begin. */
static uint64_t piece_part(const struct gp_span *piece, const struct gp_span *heap, uint64_t *from)
{
    uint64_t end = piece->address + piece->bytes, heap_end = heap->address + heap->bytes;
    *from = heap->address > piece->address ? heap->address : piece->address;
    return (heap_end < end ? heap_end : end) - *from;
}

/* Counts the heaps of a piece, and counts the piece for each of them. The parts that no heap covers
 * are rest. */
static void piece_fill(struct gp_span *piece)
{
    uint32_t site = piece_site(piece);
    uint64_t at = piece->address, end = at + piece->bytes, rest = at;
    struct gp_span *heap;
    while (at < end && (heap = gp_span_in(&heaps, at, end - at))) {
        at = heap->address + heap->bytes;
        if (heap->device != piece->device)
            continue;
        if (heap->address > rest)
            block_put(rest, heap->address - rest, piece, true, site);
        rest = at;
        piece->memory.heaps++;
        heap->heap.pieces++;
    }
    if (rest < end)
        block_put(rest, end - rest, piece, true, site);
}

static void unheld_count(int change)
{
    __atomic_fetch_add(&gp_accounts.x_memory_waits, (uint32_t)change, __ATOMIC_RELAXED);
}

static void unheld_drop(uint64_t address)
{
    struct gp_span *span = gp_span_at(&unheld, address);
    if (span) {
        gp_span_drop(&unheld, span);
        unheld_count(-1);
    }
}

/* A new heap reaches into it. */
static void piece_join(struct gp_span *piece, struct gp_span *heap)
{
    uint64_t from, bytes = piece_part(piece, heap, &from);
    uint8_t owner = heap->heap.door == GP_DOOR_NVTX ? 0 : heap->owner;
    if (piece->memory.segment != GP_SEGMENT_HEAP) {
        if (gp_memory_make(piece, GP_SEGMENT_HEAP, owner, bytes == piece->bytes))
            piece_fill(piece);
    } else if (!piece->memory.heaps) { /* it had lost its last one */
        unheld_drop(piece->address);
        blocks_end(piece->address, piece->bytes, true);
        piece_fill(piece);
    } else {
        piece->memory.heaps++;
        heap->heap.pieces++;
        blocks_carve(from, bytes);
    }
}

static void piece_settle(struct gp_span *piece)
{
    blocks_end(piece->address, piece->bytes, true); /* rest */
    gp_memory_unmake(piece->memory.space, piece->address, GP_SEGMENT_HEAP);
}

/* A heap that it counts has ended. */
static void piece_leave(struct gp_span *piece, const struct gp_span *heap)
{
    uint64_t from, bytes = piece_part(piece, heap, &from);
    if (--piece->memory.heaps)
        block_put(from, bytes, piece, true, piece_site(piece));
    else if (gp_span_put(&unheld, piece->address, piece->bytes))
        unheld_count(1);
    else
        piece_settle(piece);
}

void gp_heap_memory_new(struct gp_span *memory)
{
    piece_fill(memory);
    if (!memory->memory.heaps) /* they have ended meanwhile, or are another device's */
        piece_settle(memory);
}

void gp_heap_memory_gone(struct gp_span *memory)
{
    uint64_t at = memory->address, end = at + memory->bytes;
    struct gp_span *heap;
    if (memory->memory.segment != GP_SEGMENT_HEAP)
        return;
    blocks_end(at, memory->bytes, true);
    unheld_drop(at);
    while (memory->memory.heaps && at < end && (heap = gp_span_in(&heaps, at, end - at))) {
        at = heap->address + heap->bytes;
        if (heap->device == memory->device && --heap->heap.pieces == 0) {
            blocks_end(heap->address, heap->bytes, false);
            gp_span_drop(&heaps, heap);
        }
    }
}

bool gp_heap_over(uint64_t address, uint64_t bytes)
{
    return gp_span_in(&heaps, address, bytes);
}

void gp_heap_unheld_settle(void)
{
    struct gp_span *span;
    while ((span = gp_span_in(&unheld, 0, UINT64_MAX))) {
        struct gp_span *piece = gp_span_at(&gp_memory.set, span->address);
        unheld_drop(span->address);
        if (piece)
            piece_settle(piece);
    }
}

/* ---- heaps -------------------------------------------------------------------------------------------------------- */

static void heap_end(struct gp_span *heap)
{
    const struct gp_span old = *heap;
    uint64_t at = old.address;
    struct gp_span *piece;
    blocks_end(old.address, old.bytes, false);
    gp_span_drop(&heaps, heap);
    while ((piece = piece_next(&old, old.device, &at)))
        if (piece->memory.segment == GP_SEGMENT_HEAP && piece->memory.heaps)
            piece_leave(piece, &old);
}

/* The peaks know only the last addition, and forget it. So the newest memory joins first. */
static struct gp_span *heap_newest(const struct gp_span *heap)
{
    struct gp_span *piece, *newest = NULL;
    struct gp_record record;
    uint64_t at = heap->address, time_ns = 0;
    while ((piece = piece_next(heap, heap->device, &at)))
        if (piece_record(piece, &record) && record.time_ns >= time_ns)
            newest = piece, time_ns = record.time_ns;
    return newest;
}

static bool heap_begin(uint64_t address, uint64_t bytes, uint8_t owner, enum gp_door door)
{
    const struct gp_span range = {.address = address, .bytes = bytes};
    struct gp_span *heap, *newest, *piece;
    uint64_t lowest = address, at = address;
    if (!(piece = piece_next(&range, GP_DEVICE_UNKNOWN, &lowest)))
        return false;
    if (gp_span_in(&heaps, address, bytes)) {
        gp_feed_lost(GP_LOST_ANNOTATION);
        return false;
    }
    if (!(heap = gp_span_put(&heaps, address, bytes))) {
        gp_feed_lost(GP_LOST_MAP);
        return false;
    }
    heap->device = piece->device;
    heap->owner = owner;
    heap->heap.door = (uint8_t)door;
    if ((newest = heap_newest(heap)))
        piece_join(newest, heap);
    while ((piece = piece_next(heap, heap->device, &at)))
        if (piece != newest)
            piece_join(piece, heap);
    if (!heap->heap.pieces) {
        gp_span_drop(&heaps, heap);
        return false;
    }
    return true;
}

/* ---- the feed ----------------------------------------------------------------------------------------------------- */

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
    gp_lock_take(&gp_memory.lock);
    any = true;
    gp_memory_start();
    bool begun = heap_begin(address, bytes, owner, GP_DOOR_NVTX);
    gp_lock_give(&gp_memory.lock);
    return begun;
}

void gp_feed_heap_end(uint64_t address)
{
    gp_lock_take(&gp_memory.lock);
    struct gp_span *heap = gp_span_at(&heaps, address);
    if (heap)
        heap_end(heap);
    gp_lock_give(&gp_memory.lock);
    /* Without a heap: the driver has freed the memory before. */
}

void gp_feed_heap_reset(uint64_t address)
{
    gp_lock_take(&gp_memory.lock);
    struct gp_span *heap = gp_span_at(&heaps, address);
    if (heap)
        blocks_end(heap->address, heap->bytes, false);
    gp_lock_give(&gp_memory.lock);
}

/* The device of the heap; GP_DEVICE_UNKNOWN: there is no such heap. */
static int heap_device(uint64_t heap)
{
    gp_lock_take(&gp_memory.lock);
    const struct gp_span *span = gp_span_at(&heaps, heap);
    int device = span ? span->device : GP_DEVICE_UNKNOWN;
    gp_lock_give(&gp_memory.lock);
    return device;
}

/* Whether all of the range is in the heap, and memory of pieces. */
static bool heap_holds(const struct gp_span *heap, uint64_t address, uint64_t bytes)
{
    uint64_t at = address, end = address + bytes;
    const struct gp_span *piece;
    if (!heap || address < heap->address || end > heap->address + heap->bytes)
        return false;
    while (at < end && (piece = gp_span_in(&gp_memory.set, at, 1)) && piece->memory.segment == GP_SEGMENT_HEAP)
        at = piece->address + piece->bytes;
    return at >= end;
}

void gp_feed_heap_block(uint64_t heap, uint64_t address, uint64_t bytes)
{
    int device = heap_device(heap);
    gp_heap_settle();
    if (device < 0 || !range_good(address, bytes))
        return;
    uint32_t site = gp_event_here(device, GP_KIND_LINEAR); /* not under the lock: it reads the stack */
    gp_lock_take(&gp_memory.lock);
    const struct gp_span *span = gp_span_at(&heaps, heap);
    if (heap_holds(span, address, bytes) && !gp_span_in(&blocks, address, bytes))
        block_put(address, bytes, span, false, site);
    else if (span)
        gp_feed_lost(GP_LOST_ANNOTATION);
    gp_lock_give(&gp_memory.lock);
}

static struct gp_span *block_at(uint64_t address)
{
    struct gp_span *block = gp_span_at(&blocks, address);
    return block && !block->block.rest ? block : NULL;
}

/* The block may grow into what no block of the heap has. */
static bool block_fits(const struct gp_span *block, uint64_t bytes)
{
    const struct gp_span *heap = gp_span_in(&heaps, block->address, block->bytes);
    uint64_t end = block->address + block->bytes;
    return block->address + bytes > block->address && heap_holds(heap, block->address, bytes) &&
           (bytes <= block->bytes || !gp_span_in(&blocks, end, bytes - block->bytes));
}

void gp_feed_heap_resize(uint64_t address, uint64_t bytes)
{
    gp_lock_take(&gp_memory.lock);
    struct gp_span *block = block_at(address);
    if (block && block_fits(block, bytes)) {
        uint32_t site = block_leave(block);
        gp_span_resize(block, bytes);
        block_enter(block, site);
    } else if (any) {
        gp_feed_lost(GP_LOST_ANNOTATION);
    }
    gp_lock_give(&gp_memory.lock);
}

void gp_feed_heap_unblock(uint64_t address)
{
    gp_lock_take(&gp_memory.lock);
    struct gp_span *block = block_at(address);
    if (block)
        block_end(block);
    gp_lock_give(&gp_memory.lock);
}

/* ---- pools of libraries ------------------------------------------------------------------------------------------- */

static uint8_t door_owners[GP_DOORS]; /* under the lock; 0: it is closed */

void gp_feed_door_open(enum gp_door door, uint8_t owner)
{
    gp_lock_take(&gp_memory.lock);
    door_owners[door] = owner;
    gp_door_own(door, owner);
    gp_lock_give(&gp_memory.lock);
}

/* Makes a heap of the driver's memory at the address, or of the range that the pool took, unless it
 * is part of one. */
static struct gp_span *pool_heap(enum gp_door door, uint64_t address, uint64_t bytes, bool whole)
{
    struct gp_span *heap = gp_span_in(&heaps, address, bytes);
    if (heap || !door_owners[door])
        return heap;
    any = true;
    gp_memory_start();
    const struct gp_span *memory = gp_span_in(&gp_memory.set, address, 1);
    if (!memory)
        return NULL;
    if (!whole)
        address = memory->address, bytes = memory->bytes;
    return heap_begin(address, bytes, door_owners[door], door) ? gp_span_at(&heaps, address) : NULL;
}

void gp_feed_pool_grew(enum gp_door door, uint64_t address, uint64_t bytes)
{
    if (!address || !bytes || address + bytes < address)
        return;
    gp_lock_take(&gp_memory.lock);
    pool_heap(door, address, bytes, true);
    gp_lock_give(&gp_memory.lock);
}

static int pool_device(enum gp_door door, uint64_t address, uint64_t bytes)
{
    gp_lock_take(&gp_memory.lock);
    const struct gp_span *heap = pool_heap(door, address, bytes, false);
    int device = heap && heap->heap.door == door ? heap->device : GP_DEVICE_UNKNOWN;
    gp_lock_give(&gp_memory.lock);
    return device;
}

/* Whether it lies in another pool's piece: a pool above that pool hands it out. */
static bool piece_nested(uint64_t pool, uint64_t address, uint64_t bytes)
{
    const struct gp_span *outer = gp_span_in(&blocks, address, bytes);
    return outer && !outer->block.rest && outer->block.pool != pool && outer->address <= address &&
           outer->address + outer->bytes >= address + bytes;
}

static bool piece_put(const struct gp_span *heap, uint64_t pool, uint64_t address, uint64_t bytes, uint32_t site)
{
    if (piece_nested(pool, address, bytes))
        return true;
    if (!heap_holds(heap, address, bytes) || gp_span_in(&blocks, address, bytes))
        return false;
    block_put(address, bytes, heap, false, site);
    struct gp_span *block = gp_span_at(&blocks, address);
    if (block)
        block->block.pool = pool;
    return true;
}

bool gp_feed_piece(enum gp_door door, uint64_t pool, uint64_t address, uint64_t bytes)
{
    if (!address || !bytes || address + bytes < address)
        return false;
    int device = pool_device(door, address, bytes);
    gp_heap_settle();
    if (device < 0)
        return true;                                       /* in no memory in which a heap can be */
    uint32_t site = gp_event_here(device, GP_KIND_LINEAR); /* not under the lock: it reads the stack */
    gp_lock_take(&gp_memory.lock);
    const struct gp_span *heap = gp_span_in(&heaps, address, bytes);
    bool good = !heap || heap->heap.door != door || piece_put(heap, pool, address, bytes, site);
    gp_lock_give(&gp_memory.lock);
    return good;
}

bool gp_feed_piece_back(enum gp_door door, uint64_t pool, uint64_t address)
{
    gp_lock_take(&gp_memory.lock);
    struct gp_span *heap = gp_span_in(&heaps, address, 1), *block = block_at(address);
    bool good = true;
    if (block && block->block.pool == pool)
        block_end(block);
    else
        good = !heap || heap->heap.door != door || piece_nested(pool, address, 1);
    gp_lock_give(&gp_memory.lock);
    return good;
}

void gp_feed_door_end(enum gp_door door)
{
    struct gp_span *heap;
    uint64_t at = 0;
    gp_lock_take(&gp_memory.lock);
    door_owners[door] = 0;
    while ((heap = gp_span_in(&heaps, at, UINT64_MAX - at))) {
        at = heap->address + heap->bytes;
        if (heap->heap.door == door)
            heap_end(heap);
    }
    gp_lock_give(&gp_memory.lock);
    gp_heap_settle();
}

void gp_heap_settle(void)
{
    if (GP_LIKELY(!__atomic_load_n(&gp_accounts.x_memory_waits, __ATOMIC_RELAXED)))
        return;
    gp_lock_take(&gp_memory.lock);
    gp_heap_unheld_settle();
    gp_lock_give(&gp_memory.lock);
}
