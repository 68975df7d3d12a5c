/* SPDX-License-Identifier: MIT
 *
 * heappiece.c: mappings of cuMemMap below heaps: pieces. Under the lock of heap.c.
 */
#include "account/heaps.h"

/* The parts of a new piece that no heap has. */
static void piece_rest(const struct gp_span *piece, uint32_t site)
{
    const struct gp_span like = {.device = piece->device, .owner = piece->owner};
    uint64_t at = piece->address, end = at + piece->bytes;
    const struct gp_span *heap;
    while (at < end && (heap = gp_span_in(&gp_heaps.heaps, at, end - at))) {
        if (heap->address > at)
            gp_heaps_block_put(at, heap->address - at, &like, true, site);
        at = heap->address + heap->bytes;
    }
    if (at < end)
        gp_heaps_block_put(at, end - at, &like, true, site);
}

/* Counts the heaps of a new piece, and it for each of them. */
static void piece_count(struct gp_span *piece)
{
    uint64_t at = piece->address, end = at + piece->bytes;
    struct gp_span *heap;
    while (at < end && (heap = gp_span_in(&gp_heaps.heaps, at, end - at))) {
        at = heap->address + heap->bytes;
        piece->size++;
        heap->size++;
    }
}

void gp_heaps_piece_put(const struct gp_record *mapping)
{
    struct gp_span *piece = gp_span_put(&gp_heaps.pieces, mapping->key, mapping->bytes);
    if (!piece) {
        gp_feed_lost(GP_LOST_MAP);
        gp_vmm_segment_end(mapping->key, mapping->mapping.handle, mapping->device);
        return;
    }
    piece->link = mapping->mapping.handle;
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
    gp_heaps_left_drop(gp_span_at(&gp_heaps.left, piece->address));
    piece->flag = false;
    gp_heaps_blocks_end(piece->address, piece->bytes);
    piece_count(piece);
    piece_rest(piece, mapping.site);
}

void gp_heaps_piece_join(uint64_t address, uint64_t bytes, struct gp_span *heap)
{
    struct gp_record mapping;
    struct gp_span *piece = gp_span_at(&gp_heaps.pieces, address);
    uint64_t end = address + bytes, heap_end = heap->address + heap->bytes;
    uint64_t from = heap->address > address ? heap->address : address, to = heap_end < end ? heap_end : end;
    if (!piece) {
        if (gp_vmm_segment_begin(address, to - from == bytes, &mapping))
            gp_heaps_piece_put(&mapping);
    } else if (piece->flag) {
        piece_again(piece);
    } else {
        piece->size++;
        heap->size++;
        gp_heaps_segment_carve(from, to - from);
    }
}

void gp_heaps_piece_settle(struct gp_span *piece)
{
    const struct gp_span old = *piece;
    gp_span_drop(&gp_heaps.pieces, piece);
    gp_heaps_blocks_end(old.address, old.bytes); /* rest */
    gp_vmm_segment_end(old.address, old.link, old.device);
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
        gp_heaps_block_put(from, to - from, &like, true, mapping.site);
        return;
    }
    struct gp_span *segment = gp_span_put(&gp_heaps.left, piece->address, piece->bytes);
    piece->flag = true;
    if (!segment) {
        gp_heaps_piece_settle(piece);
        return;
    }
    segment->flag = true;
    __atomic_store_n(&gp_heaps.x_left, (uint32_t)gp_heaps.left.count, __ATOMIC_RELAXED);
}

bool gp_heaps_hold(uint64_t address, uint64_t bytes)
{
    uint64_t at = address, end = address + bytes;
    const struct gp_span *piece;
    while (at < end && (piece = gp_span_in(&gp_heaps.pieces, at, 1)))
        at = piece->address + piece->bytes;
    return at >= end;
}

void gp_heaps_mapped_drop(struct gp_span *heap)
{
    gp_span_drop(&gp_heaps.heaps, heap);
    __atomic_fetch_sub(&gp_heaps.x_mapped, 1, __ATOMIC_RELAXED);
}

void gp_heaps_mapped_end(struct gp_span *heap)
{
    const struct gp_span old = *heap;
    uint64_t at = old.address, end = at + old.bytes;
    struct gp_span *piece;
    gp_heaps_blocks_end(old.address, old.bytes);
    gp_heaps_mapped_drop(heap);
    while (at < end && (piece = gp_span_in(&gp_heaps.pieces, at, end - at))) {
        at = piece->address + piece->bytes;
        piece_part(piece, &old);
    }
}

void gp_heaps_piece_gone(struct gp_span *piece)
{
    const struct gp_span old = *piece;
    uint64_t at = old.address, end = at + old.bytes;
    struct gp_span *heap;
    gp_span_drop(&gp_heaps.pieces, piece);
    if (old.flag) {
        gp_heaps_left_drop(gp_span_at(&gp_heaps.left, old.address));
        return;
    }
    while (at < end && (heap = gp_span_in(&gp_heaps.heaps, at, end - at))) {
        at = heap->address + heap->bytes;
        if (--heap->size == 0) {
            gp_heaps_blocks_end(heap->address, heap->bytes);
            gp_heaps_mapped_drop(heap);
        }
    }
}
