/* SPDX-License-Identifier: MIT
 *
 * block.c: idle memory: which block is allocated, how it is split, and how neighbours are joined
 * again. Everything here runs under the cache's lock and does not call the backend.
 *
 * Invariants: The blocks of a segment cover it from start to end without gaps or overlaps. Two
 * neighbours are never both idle, or both unmapped. A heap's index holds exactly its idle blocks,
 * and heap.idle_bytes is their sum.
 */
#include "cache/block.h"
#include "base/compiler.h"
#include "cache/arena.h"
#include "cache/cache.h"
#include "cache/gauges.h"
#include "cache/internal.h"
#include "cache/policy.h"

/* ==== positions of iterations ===================================================================================== */
/* The positions of running iterations (iterate.c). An iteration releases the lock now and then.
 * Functions that drop a record in that time (block.c, segment.c) call here, so that no cursor points
 * to it afterwards. Everything here runs under the cache's lock. */

void gp_block_cursor_enter(struct gp_cache *cache, struct gp_cursor *cursor)
{
    cursor->next = cache->cursors;
    cache->cursors = cursor;
}

void gp_block_cursor_leave(struct gp_cache *cache, struct gp_cursor *cursor)
{
    struct gp_cursor **place = &cache->cursors;
    while (*place != cursor)
        place = &(*place)->next;
    *place = cursor->next;
}

/* The record is about to be dropped. `into` is the block that now contains its addresses; NULL:
 * none. */
static void cursor_block_removed(struct gp_cache *cache, const struct gp_block *block, struct gp_block *into)
{
    for (struct gp_cursor *cursor = cache->cursors; cursor; cursor = cursor->next)
        if (cursor->block == block)
            cursor->block = into;
}

void gp_block_cursor_segment_removed(struct gp_cache *cache, const struct gp_segment *segment)
{
    for (struct gp_cursor *cursor = cache->cursors; cursor; cursor = cursor->next) {
        if (cursor->block && cursor->block->segment == segment)
            cursor->block = NULL;
        if (cursor->segment == segment)
            cursor->segment = segment->next;
    }
}

/* ==== the index =================================================================================================== */
/* Blocks by size and place. Each class of sizes has a treap (Seidel and Aragon, Algorithmica
 * 1996): a search tree shaped by random priorities, so that no order of sizes makes it deep. A walk
 * reads one cache line of each block that it passes. Runs under the cache's lock. */

#define INDEX_STEPS 16u /* classes to a power of two */

static void index_open(struct gp_index *index, struct gp_block **roots, const struct gp_policy *policy)
{
    *index = (struct gp_index){.roots = roots, .oldest_first = policy->oldest_first};
}

/* Grows with the size; the last class has all sizes from 2^39 on. */
unsigned gp_block_index_class(uint64_t bytes)
{
    uint64_t units = bytes >> 8; /* of the smallest granule */
    if (units < INDEX_STEPS)
        return (unsigned)units;
    unsigned power = 63 - (unsigned)__builtin_clzll(units) - 4;
    unsigned class = (power + 1) * INDEX_STEPS + (unsigned)(units >> power) % INDEX_STEPS;
    return class < GP_INDEX_CLASSES ? class : GP_INDEX_CLASSES - 1;
}

/* The order of blocks of one size. oldest_first: by the segment's number, and in a segment by the offset in units of the
 * smallest granule: 1 TiB of them has room. */
static uint64_t block_place(const struct gp_block *block, bool oldest_first)
{
    const struct gp_segment *segment = block->segment;
    return oldest_first ? segment->number << 32 | (gp_block_at(block) - segment->address) >> 8 : gp_block_at(block);
}

/* Of a block in an index.  One comparison of 128 bits, and the child's place by arithmetic: half of these branches would be
 * mispredicted. */
static bool block_less(const struct gp_block *block, uint64_t bytes, uint64_t place)
{
    return ((unsigned __int128)block->bytes << 64 | block->place) < ((unsigned __int128)bytes << 64 | place);
}

static struct gp_block **block_child(struct gp_block *block, uint64_t bytes, uint64_t place)
{
    _Static_assert(offsetof(struct gp_block, right) == offsetof(struct gp_block, left) + sizeof(void *),
                   "side by side");
    size_t offset = offsetof(struct gp_block, left) + sizeof(void *) * block_less(block, bytes, place);
    return (struct gp_block **)(void *)((char *)block + offset);
}

/* Splits the tree: everything below (bytes, place) goes to *low, the rest to *high. */
static void index_split(struct gp_block *tree, uint64_t bytes, uint64_t place, struct gp_block **low,
                        struct gp_block **high)
{
    while (tree) {
        if (block_less(tree, bytes, place)) {
            *low = tree;
            low = &tree->right;
            tree = tree->right;
        } else {
            *high = tree;
            high = &tree->left;
            tree = tree->left;
        }
    }
    *low = *high = NULL;
}

static uint32_t block_priority(const struct gp_block *block)
{
    /* Fibonacci hashing: addresses are not random, but these products are random enough. */
    return (uint32_t)((gp_block_at(block) >> 8) * 0x9e3779b97f4a7c15ull >> 32);
}

void gp_block_index_put(struct gp_index *index, struct gp_block *block)
{
    unsigned class = gp_block_index_class(block->bytes);
    struct gp_block **at = &index->roots[class];
    uint64_t place = block_place(block, index->oldest_first);
    uint32_t priority = block_priority(block);
    while (*at && block_priority(*at) >= priority)
        at = block_child(*at, block->bytes, place);
    index_split(*at, block->bytes, place, &block->left, &block->right);
    *at = block;
    block->place = place; /* it has no uses: they were dropped before it became idle */
    index->map[class / 64] |= 1ull << class % 64;
    index->count++;
}

static struct gp_block *index_join(struct gp_block *low, struct gp_block *high)
{
    struct gp_block *root = NULL, **place = &root;
    while (low && high) {
        if (block_priority(low) >= block_priority(high)) {
            *place = low;
            place = &low->right;
            low = low->right;
        } else {
            *place = high;
            place = &high->left;
            high = high->left;
        }
    }
    *place = low ? low : high;
    return root;
}

void gp_block_index_take(struct gp_index *index, struct gp_block *block)
{
    unsigned class = gp_block_index_class(block->bytes);
    struct gp_block **at = &index->roots[class];
    while (*at != block)
        at = block_child(*at, block->bytes, block->place);
    *at = index_join(block->left, block->right);
    block->left = block->right = NULL;
    block->uses = NULL; /* where its place was */
    if (!index->roots[class])
        index->map[class / 64] &= ~(1ull << class % 64);
    index->count--;
}

/* The smallest block of at least `bytes`; among equal ones the one with the lowest place, of those of exactly `bytes`
 * not below `place`. */
static struct gp_block *index_fit(const struct gp_index *index, uint64_t bytes, uint64_t place)
{
    struct gp_block *best = NULL;
    unsigned class = gp_index_next(index, gp_block_index_class(bytes));
    for (; !best && class < GP_INDEX_CLASSES; class = gp_index_next(index, class + 1))
        for (struct gp_block *at = index->roots[class]; at;)
            if (!block_less(at, bytes, place)) {
                best = at;
                at = at->left;
            } else {
                at = at->right;
            }
    return best;
}

struct gp_block *gp_block_index_largest(const struct gp_index *index)
{
    for (unsigned word = GP_INDEX_CLASSES / 64; word-- > 0;) {
        if (!index->map[word])
            continue;
        struct gp_block *at = index->roots[word * 64 + 63 - (unsigned)__builtin_clzll(index->map[word])];
        while (at->right)
            at = at->right;
        return at;
    }
    return NULL;
}

/* ==== blocks ====================================================================================================== */

/* The stream's heap of this kind, but not `other`; NULL: none. */
static struct gp_heap *heap_find(struct gp_cache *cache, const struct gp_heap_kind *kind, uint64_t stream,
                                 const struct gp_heap *other)
{
    struct gp_heap *heap = cache->heaps;
    while (heap && !(heap != other && heap->stream == stream && gp_heap_kind_same(&heap->kind, kind)))
        heap = heap->next;
    return heap;
}

struct gp_heap *gp_block_heap_of(struct gp_cache *cache, const struct gp_heap_kind *kind, uint64_t stream)
{
    struct gp_heap *heap = heap_find(cache, kind, stream, NULL);
    if (heap || !(heap = gp_arena_slab_take(&cache->heap_records)))
        return heap;
    index_open(&heap->idle, (struct gp_block **)(heap + 1), &cache->policy);
    index_open(&heap->unmapped, heap->idle.roots + GP_INDEX_CLASSES, &cache->policy);
    heap->stream = stream;
    heap->kind = *kind;
    for (const struct gp_pool *private = cache->pools; private; private = private->next)
        heap->pinned |= heap->kind.pool && private->id == heap->kind.pool;
    heap->next = cache->heaps;
    cache->heaps = heap;
    return heap;
}

bool gp_block_heap_retire(struct gp_cache *cache, struct gp_heap *heap, struct gp_heap **place)
{
    struct gp_heap *into = heap_find(cache, &heap->kind, GP_STREAM_DESTROYED, heap);
    cache->retired = true;
    if (!into) {
        heap->stream = GP_STREAM_DESTROYED;
        return false;
    }
    for (struct gp_segment *segment = cache->segments; segment; segment = segment->next) {
        if (segment->heap != heap)
            continue;
        segment->heap = into;
        for (struct gp_block *block = segment->first; block; block = block->after) {
            if (gp_block_state(block) == GP_BLOCK_IDLE)
                gp_block_index_take(&heap->idle, block), gp_block_index_put(&into->idle, block);
            if (gp_block_state(block) == GP_BLOCK_UNMAPPED)
                gp_block_index_take(&heap->unmapped, block), gp_block_index_put(&into->unmapped, block);
        }
    }
    into->idle_bytes += heap->idle_bytes;
    into->unordered_bytes += heap->unordered_bytes;
    *place = heap->next;
    gp_arena_slab_give(&cache->heap_records, heap); /* `grow` is held, so no other thread still uses this heap */
    return true;
}

static bool block_is_split(const struct gp_block *block)
{
    return !block->segment->growable && (block->before || block->after);
}

struct gp_block *gp_block_new(struct gp_cache *cache, struct gp_segment *segment, uint64_t address, uint64_t bytes)
{
    struct gp_block *block = gp_arena_table_ready(cache, address) ? gp_arena_slab_take(&cache->blocks) : NULL;
    if (!block)
        return NULL;
    block->address = address;
    block->bytes = bytes;
    block->segment = segment;
    gp_block_become(block, GP_BLOCK_TAKEN);
    gp_arena_table_set(cache, address, block);
    return block;
}

void gp_block_drop(struct gp_cache *cache, struct gp_block *block)
{
    gp_arena_table_set(cache, block->address, NULL);
    gp_block_become(block, GP_BLOCK_SPARE);
    block->address = 0;
    gp_arena_slab_give(&cache->blocks, block);
}

struct gp_block *gp_block_cut(struct gp_cache *cache, struct gp_block *block, uint64_t first_bytes)
{
    struct gp_block *rest =
        gp_block_new(cache, block->segment, block->address + first_bytes, block->bytes - first_bytes);
    if (!rest)
        return NULL;
    gp_block_become(rest, gp_block_state(block));
    __atomic_store_n(&rest->stream, block->stream, __ATOMIC_RELAXED); /* threadcache.c may read it without the lock */
    rest->before = block;
    rest->after = block->after;
    if (rest->after)
        rest->after->before = rest;
    block->after = rest;
    block->bytes = first_bytes;
    return rest;
}

/* Joins `block` with its right neighbour, which is in no index. */
static void block_swallow(struct gp_cache *cache, struct gp_block *block)
{
    struct gp_block *right = block->after;
    block->bytes += right->bytes;
    block->after = right->after;
    if (block->after)
        block->after->before = block;
    if (GP_UNLIKELY(cache->cursors))
        cursor_block_removed(cache, right, block);
    gp_block_drop(cache, right);
}

static void idle_count(struct gp_cache *cache, const struct gp_block *block, bool up)
{
    struct gp_heap *heap = block->segment->heap;
    uint64_t bytes = up ? block->bytes : -block->bytes;
    heap->idle_bytes += bytes;
    cache->idle_bytes += bytes;
    if (heap->kind.dedicated)
        cache->dedicated_idle_bytes += bytes;
    if (block_is_split(block))
        gp_cache_gauges_split(cache, block, up);
}

void gp_block_unidle(struct gp_cache *cache, struct gp_block *block)
{
    gp_block_index_take(&block->segment->heap->idle, block);
    idle_count(cache, block, false);
}

void gp_block_idle(struct gp_cache *cache, struct gp_block *block)
{
    block->requested_bytes = 0;
    block->oversize = false;
    __atomic_store_n(&block->stream, block->segment->heap->stream,
                     __ATOMIC_RELAXED); /* threadcache.c may read it without the lock */
    if (block->after && gp_block_state(block->after) == GP_BLOCK_IDLE) {
        gp_block_unidle(cache, block->after);
        block_swallow(cache, block);
    }
    if (block->before && gp_block_state(block->before) == GP_BLOCK_IDLE) {
        block = block->before;
        gp_block_unidle(cache, block);
        block_swallow(cache, block);
    }
    /* The joined block is as young as its youngest part, as in PyTorch. */
    block->born = cache->clock;
    block->epoch = cache->epoch;
    gp_block_become(block, GP_BLOCK_IDLE);
    gp_block_index_put(&block->segment->heap->idle, block);
    idle_count(cache, block, true);
}

void gp_block_unmapped(struct gp_cache *cache, struct gp_block *block)
{
    struct gp_index *index = &block->segment->heap->unmapped;
    block->requested_bytes = 0;
    if (block->after && gp_block_state(block->after) == GP_BLOCK_UNMAPPED) {
        gp_block_index_take(index, block->after);
        block_swallow(cache, block);
    }
    if (block->before && gp_block_state(block->before) == GP_BLOCK_UNMAPPED) {
        block = block->before;
        gp_block_index_take(index, block);
        block_swallow(cache, block);
    }
    gp_block_become(block, GP_BLOCK_UNMAPPED);
    gp_block_index_put(index, block);
}

/* An idle block for a dedicated request, which gets it as a whole. At most an eighth is wasted, as
 * in the driver's own rounding of 16 MiB to 2 MiB steps. */
static struct gp_block *heap_whole(struct gp_heap *heap, uint64_t bytes)
{
    struct gp_block *block = index_fit(&heap->idle, bytes, 0);
    return block && block->bytes - bytes <= bytes / 8 ? block : NULL;
}

/* As large as the block can become: PyTorch's best fit takes one that can grow for that large. */
static uint64_t block_reach(const struct gp_block *block)
{
    const struct gp_block *after = block->after;
    return block->bytes + (after && gp_block_state(after) == GP_BLOCK_UNMAPPED ? after->bytes : 0);
}

/* PyTorch's walk begins at the smallest block that is large enough, and ends where the next one has no smaller reach. */
static struct gp_block *heap_least_reach(const struct gp_heap *heap, struct gp_block *block)
{
    struct gp_block *next = block;
    while (next && block->segment->growable) {
        next = index_fit(&heap->idle, block->bytes, block->place + 1);
        if (!next || block_reach(next) >= block_reach(block))
            break;
        block = next;
    }
    return block;
}

struct gp_block *gp_block_heap_find(struct gp_cache *cache, struct gp_heap *heap, uint64_t bytes)
{
    if (heap->kind.dedicated)
        return heap_whole(heap, bytes);
    struct gp_block *block = index_fit(&heap->idle, bytes, 0);
    if (block && cache->policy.whole_pages)
        block = heap_least_reach(heap, block);
    /* A larger block would not help: the rules only refuse blocks that are too large. */
    return block && gp_policy_may_take(&cache->policy, block->bytes, bytes, block->segment->growable) ? block : NULL;
}

/* Takes `bytes` of an idle block and returns the rest to the index. Without memory for a record it
 * takes the whole block. */
static struct gp_block *heap_carve(struct gp_cache *cache, struct gp_block *block, uint64_t bytes)
{
    const struct gp_policy *policy = &cache->policy;
    const struct gp_segment *segment = block->segment;
    uint64_t epoch = block->epoch;
    gp_block_unidle(cache, block);
    if (block->bytes > bytes && !segment->heap->kind.dedicated &&
        gp_policy_splits(policy, block->bytes, bytes, segment->heap->kind.small, segment->growable)) {
        bool high = policy->takes_high_end;
        struct gp_block *rest = gp_block_cut(cache, block, high ? block->bytes - bytes : bytes);
        if (rest) {
            struct gp_block *idle = high ? block : rest;
            block = high ? rest : block;
            gp_block_become(block, GP_BLOCK_TAKEN); /* before the rest looks for idle neighbours to join */
            gp_block_idle(cache, idle);
            idle->epoch = epoch;
        }
    }
    return block;
}

/* True if a thread may keep the block in its cache when the block is freed. */
static bool block_suits_thread(const struct gp_cache *cache, const struct gp_block *block)
{
    const struct gp_heap *heap = block->segment->heap;
    return cache->threads && heap->kind.small && !heap->kind.linear && !heap->kind.pool &&
           block->stream == heap->stream && heap->stream < GP_STREAM_DESTROYED &&
           block->bytes <= cache->policy.thread_block_bytes && block->bytes <= (uint64_t)GP_BINS << GP_BIN_SHIFT;
}

struct gp_block *gp_block_give(struct gp_cache *cache, struct gp_block *block, const struct gp_request *request,
                               uint64_t bytes)
{
    block = heap_carve(cache, block, bytes);
    __atomic_store_n(&block->requested_bytes, request->bytes,
                     __ATOMIC_RELAXED); /* threadcache.c may read it without the lock */
    __atomic_store_n(&block->stream, request->stream, __ATOMIC_RELAXED);
    gp_block_tag(cache, block, request);
    block->oversize = gp_policy_is_oversize(&cache->policy, block->bytes);
    gp_block_become(block, block_suits_thread(cache, block) ? GP_BLOCK_LOCAL | GP_BLOCK_LIVE : GP_BLOCK_LIVE);
    uint64_t used = cache->reserved_bytes - cache->idle_bytes - cache->waiting_bytes;
    if (used > cache->peak_bytes)
        cache->peak_bytes = used;
    return block;
}

struct gp_block *gp_block_heap_give(struct gp_cache *cache, struct gp_heap *heap, const struct gp_request *request,
                                    uint64_t bytes)
{
    struct gp_block *block = gp_block_heap_find(cache, heap, bytes);
    return block ? gp_block_give(cache, block, request, bytes) : NULL;
}
