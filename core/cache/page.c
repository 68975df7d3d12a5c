/* SPDX-License-Identifier: MIT
 *
 * page.c: growable segments: an address range as large as the device, with physical pages mapped
 * where they are needed (PyTorch's ExpandableSegment; moving idle pages instead of making new ones
 * follows GMLake, ASPLOS 2024). Called under `grow`, which guards the mappings. Takes `lock` for
 * the records, and never holds it while the backend runs.
 *
 * A block that is being mapped or unmapped is TAKEN for that time, so no other thread finds it.
 */
#include "cache/page.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "cache/arena.h"
#include "cache/block.h"
#include "cache/cache.h"
#include "cache/gauges.h"
#include "cache/internal.h"
#include "cache/segment.h"
#include <string.h>

/* Handles per map call; larger growths take several calls. */
#define GP_MAP_HANDLES 64

struct gp_taken { /* physical memory while it moves from one place to another */
    struct gp_page *pages;
    uint64_t bytes;
};

static uint64_t page_round(const struct gp_cache *cache, uint64_t bytes)
{
    uint64_t page = cache->backend.page_bytes;
    return (bytes + page - 1) / page * page;
}

/* The smallest growth step: 12 MiB beyond the need are 4.5 % of 256 MiB, the smallest program that is
 * worth profiling for its use of memory. */
#define GP_PAGE_LEAST (12u << 20)

/* The smallest limit of a new handle's size. */
#define GP_HANDLE_LEAST (16u << 20)

/* So much is moved at once to a heap of small blocks: a call costs the same for one page. */
#define GP_MOVE_SMALL (8u << 20)

/* The size of a new handle: a 16th of the reserve. A handle moves only as a whole, so reserved can
 * follow the need only so closely. Smaller handles would cost more, because a call's cost grows with
 * the number of handles: with a 24th, and 8 MiB at least, the driver's time of a ResNet-50 was 1.3 x
 * of that with `pytorch`. Policies that do not move pages have one size. */
static uint64_t page_unit(const struct gp_cache *cache, bool small)
{
    uint64_t most = small ? cache->policy.small_page_bytes : cache->policy.large_page_bytes;
    if (!small && cache->policy.moves_pages && cache->reserved_bytes / 16 < most)
        most = cache->reserved_bytes / 16 > GP_HANDLE_LEAST ? cache->reserved_bytes / 16 : GP_HANDLE_LEAST;
    return page_round(cache, most ? most : 1);
}

static uint64_t page_step(const struct gp_cache *cache, bool small, uint64_t bytes)
{
    uint64_t unit = page_unit(cache, small);
    return cache->policy.whole_pages ? (bytes + unit - 1) / unit * unit : page_round(cache, bytes);
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

/* The range is 9/8 of the device's memory, as in PyTorch, so that fragmentation of the addresses is
 * never the limit. */
static struct gp_segment *page_range(struct gp_cache *cache, struct gp_heap *heap, uint64_t bytes)
{
    uint64_t free_bytes, address;
    if (!cache->total_bytes) {
        gp_cache_called(cache);
        if (cache->backend.memory(cache->backend.self, &free_bytes, &cache->total_bytes) != 0)
            return NULL;
    }
    uint64_t size = page_round(cache, cache->total_bytes + cache->total_bytes / 8);
    size = size < bytes ? page_round(cache, bytes) : size;
    gp_cache_called(cache);
    if (cache->backend.reserve(cache->backend.self, size, &address) != 0)
        return NULL;
    gp_lock_take(&cache->lock);
    struct gp_segment *segment = gp_segment_new(cache, heap, address, size);
    if (segment) {
        segment->growable = true;
        gp_block_unmapped(cache, segment->first);
    }
    gp_lock_give(&cache->lock);
    if (!segment) {
        gp_cache_called(cache);
        cache->backend.unreserve(cache->backend.self, address, size);
    }
    return segment;
}

/* Under lock. */
static struct gp_segment *page_empty_range(struct gp_cache *cache)
{
    struct gp_segment *segment = cache->retired ? cache->segments : NULL;
    while (segment && !(segment->growable && segment->heap->stream == GP_STREAM_DESTROYED && !segment->pages &&
                        gp_block_state(segment->first) == GP_BLOCK_UNMAPPED && !segment->first->after))
        segment = segment->next;
    return segment;
}

void gp_page_drop_ranges(struct gp_cache *cache)
{
    for (;;) {
        gp_lock_take(&cache->lock);
        struct gp_segment *segment = page_empty_range(cache);
        gp_lock_give(&cache->lock);
        if (!segment)
            return;
        gp_cache_called(cache);
        /* It has no pages, and only a thread that holds `grow` maps some: no other thread uses it
         * meanwhile. */
        if (cache->backend.unreserve(cache->backend.self, segment->address, segment->bytes) != 0)
            return;
        gp_lock_take(&cache->lock);
        gp_block_index_take(&segment->heap->unmapped, segment->first);
        gp_segment_drop(cache, segment);
        gp_lock_give(&cache->lock);
    }
}

/* The place of the first page at that address or above it.  A segment may have thousands, and one search ends near the one
 * before. */
static struct gp_page **page_from(struct gp_segment *segment, uint64_t address)
{
    struct gp_page **place = &segment->pages;
    if (segment->near && segment->near->address < address)
        place = &segment->near->next;
    while (*place && (*place)->address < address) {
        segment->near = *place;
        place = &(*place)->next;
    }
    return place;
}

static void page_insert(struct gp_segment *segment, struct gp_page *page)
{
    struct gp_page **place = page_from(segment, page->address);
    page->next = *place;
    *place = page;
    if (!segment->least_page || page->bytes < segment->least_page)
        segment->least_page = page->bytes;
}

/* How much to map beyond the need, because every call has a cost: a 16th of the reserve (small
 * blocks: a 128th), within three quarters of what the slack leaves. */
static uint64_t page_ahead(const struct gp_cache *cache, const struct gp_heap *heap, uint64_t need)
{
    if (!cache->policy.moves_pages)
        return 0;
    uint64_t used = cache->reserved_bytes - cache->idle_bytes - cache->waiting_bytes + need;
    uint64_t peak = used > cache->peak_bytes ? used : cache->peak_bytes;
    uint64_t slack = (uint64_t)(cache->policy.slack_fraction * 0.75 * (double)peak);
    uint64_t allowed = peak + (slack > GP_PAGE_LEAST ? slack : GP_PAGE_LEAST);
    uint64_t step = cache->reserved_bytes / (heap->kind.small ? 128 : 16);
    step = step > GP_PAGE_LEAST ? step : GP_PAGE_LEAST;
    if (cache->reserved_bytes + need >= allowed)
        return 0;
    uint64_t room = allowed - cache->reserved_bytes - need, page = cache->backend.page_bytes;
    return (step < room ? step : room) / page * page;
}

/* ---- where to grow ----------------------------------------------------------------------------------------------- */

static bool page_is_idle(const struct gp_block *block)
{
    return block && gp_block_state(block) == GP_BLOCK_IDLE;
}

/* Bytes that mapping all of `block` would make contiguous with the idle memory before it (and after it). */
static uint64_t page_reach(const struct gp_block *block)
{
    uint64_t bytes = block->bytes;
    if (page_is_idle(block->before))
        bytes += block->before->bytes;
    if (page_is_idle(block->after))
        bytes += block->after->bytes;
    return bytes;
}

/* Chooses the smallest hole that is large enough: larger ones stay for larger requests, and the end
 * of the range is used last. */
static void page_choose(struct gp_block *tree, uint64_t bytes, struct gp_block **best)
{
    if (!tree)
        return;
    page_choose(tree->left, bytes, best);
    if (!*best && page_reach(tree) >= bytes)
        *best = tree;
    if (!*best)
        page_choose(tree->right, bytes, best);
}

/* True if idle memory and holes that follow each other have room, from the hole or from the idle memory before it on. */
static bool page_has_room(const struct gp_block *hole, uint64_t bytes)
{
    uint64_t have = 0;
    const struct gp_block *at = page_is_idle(hole->before) ? hole->before : hole;
    for (; at && have < bytes && (page_is_idle(at) || gp_block_state(at) == GP_BLOCK_UNMAPPED); at = at->after)
        have += at->bytes;
    return have >= bytes;
}

/* As PyTorch: the lowest hole that has room.  If it takes several holes, each is filled in a turn of its own. */
static void page_choose_lowest(struct gp_block *tree, uint64_t bytes, struct gp_block **best)
{
    if (!tree)
        return;
    page_choose_lowest(tree->left, bytes, best);
    page_choose_lowest(tree->right, bytes, best);
    if ((!*best || tree->address < (*best)->address) && page_has_room(tree, bytes))
        *best = tree;
}

/* Under lock. */
static struct gp_block *page_hole(const struct gp_cache *cache, const struct gp_heap *heap, uint64_t bytes)
{
    struct gp_block *hole = NULL;
    if (cache->policy.whole_pages) {
        GP_INDEX_EACH(&heap->unmapped, class, 0) page_choose_lowest(heap->unmapped.roots[class], bytes, &hole);
    } else {
        GP_INDEX_EACH(&heap->unmapped, class, 0) page_choose(heap->unmapped.roots[class], bytes, &hole);
    }
    return hole;
}

struct gp_place { /* the place that is being mapped: [hole->address, + bytes) */
    struct gp_segment *segment;
    struct gp_block *hole;
    struct gp_block *before, *after; /* adjacent idle memory that the request counts on, or NULL */
    uint64_t bytes;
    uint64_t least; /* must be mapped; the rest of `bytes` is mapped only if idle pages fill it */
};

/* Under lock: reserves an idle block, so that no other thread allocates it or takes pages out of
 * it. */
static void page_hold(struct gp_block *block)
{
    if (!block)
        return;
    gp_block_index_take(&block->segment->heap->idle, block);
    gp_block_become(block, GP_BLOCK_TAKEN);
}

/* Makes a held block idle again, with its age, and joins it with neighbours that became idle
 * meanwhile. */
static void page_unhold(struct gp_cache *cache, struct gp_block *block)
{
    if (!block)
        return;
    gp_block_become(block, GP_BLOCK_IDLE);
    gp_block_index_put(&block->segment->heap->idle, block);
    if (page_is_idle(block->before) || page_is_idle(block->after)) {
        gp_block_unidle(cache, block);
        gp_block_idle(cache, block);
    }
}

/* Under lock: claims the hole, cut to the needed size, and holds the idle blocks beside it. No idle
 * block of the heap is as large as the request. */
static bool page_claim(struct gp_cache *cache, struct gp_block *hole, uint64_t bytes, enum gp_growth how,
                       struct gp_place *place)
{
    struct gp_heap *heap = hole->segment->heap;
    struct gp_block *before = page_is_idle(hole->before) ? hole->before : NULL;
    struct gp_block *after = NULL;
    uint64_t have = before ? before->bytes : 0;
    uint64_t need = page_step(cache, heap->kind.small, bytes - have);
    if (need > hole->bytes) {
        need = hole->bytes; /* the idle memory after the hole supplies the rest, or it is smaller than a page */
        after = page_is_idle(hole->after) ? hole->after : NULL;
    }
    uint64_t least = need, ahead = 0;
    if (how == GP_GROW_AHEAD)
        ahead = page_ahead(cache, heap, need);
    else if (how == GP_GROW_MOVE && heap->kind.small && need < GP_MOVE_SMALL)
        ahead = GP_MOVE_SMALL - need;
    if (need + ahead <= hole->bytes)
        need += ahead;
    if (how != GP_GROW_MOVE)
        least = need;
    gp_block_index_take(&heap->unmapped, hole);
    if (need < hole->bytes) {
        struct gp_block *rest = gp_block_cut(cache, hole, need);
        if (!rest) {
            gp_block_unmapped(cache, hole);
            return false;
        }
        gp_block_become(hole, GP_BLOCK_TAKEN);
        gp_block_unmapped(cache, rest);
    }
    gp_block_become(hole, GP_BLOCK_TAKEN);
    hole->stream = heap->stream;
    page_hold(before);
    page_hold(after);
    *place = (struct gp_place){hole->segment, hole, before, after, need, least};
    return true;
}

/* Finds or makes a place for `bytes`. GP_BACKEND_BUSY: nothing to map, because enough memory was
 * freed meanwhile. */
static uint32_t page_place(struct gp_cache *cache, struct gp_heap *heap, uint64_t bytes, enum gp_growth how,
                           struct gp_place *place)
{
    for (int round = 0; round < 2; round++) {
        struct gp_block *hole = NULL;
        bool claimed = false;
        gp_lock_take(&cache->lock);
        bool freed = gp_block_heap_find(cache, heap, bytes) != NULL;
        if (!freed)
            hole = page_hole(cache, heap, bytes);
        if (hole)
            claimed = page_claim(cache, hole, bytes, how, place);
        gp_lock_give(&cache->lock);
        if (freed)
            return GP_BACKEND_BUSY;
        if (hole)
            return claimed ? 0 : GP_BACKEND_OOM;
        if (!page_range(cache, heap, bytes))
            return GP_BACKEND_OOM;
    }
    return GP_BACKEND_OOM;
}

static void page_unclaim(struct gp_cache *cache, const struct gp_place *place)
{
    gp_lock_take(&cache->lock);
    page_unhold(cache, place->before);
    page_unhold(cache, place->after);
    gp_block_unmapped(cache, place->hole);
    gp_lock_give(&cache->lock);
}

/* Makes all but the first `bytes` of the place a hole again. */
static bool page_shrink(struct gp_cache *cache, struct gp_place *place, uint64_t bytes)
{
    gp_lock_take(&cache->lock);
    struct gp_block *rest = gp_block_cut(cache, place->hole, bytes);
    if (rest) {
        gp_block_unmapped(cache, rest);
        place->bytes = bytes;
    }
    gp_lock_give(&cache->lock);
    return rest != NULL;
}

/* ---- physical memory --------------------------------------------------------------------------------------------- */

static void taken_put(struct gp_taken *taken, struct gp_page *page)
{
    page->next = taken->pages;
    taken->pages = page;
    taken->bytes += page->bytes;
}

static struct gp_page *page_record(struct gp_cache *cache)
{
    gp_lock_take(&cache->lock);
    struct gp_page *page = gp_arena_slab_take(&cache->page_records);
    gp_lock_give(&cache->lock);
    return page;
}

static void page_destroy(struct gp_cache *cache, struct gp_page *page)
{
    gp_cache_called(cache);
    cache->backend.destroy(cache->backend.self, page->handle);
    __atomic_fetch_add(&cache->x_device_frees, 1, __ATOMIC_RELAXED); /* a count */
    gp_lock_take(&cache->lock);
    gp_arena_slab_give(&cache->page_records, page);
    gp_lock_give(&cache->lock);
}

static void taken_destroy(struct gp_cache *cache, struct gp_taken *taken)
{
    struct gp_page *next;
    for (struct gp_page *page = taken->pages; page; page = next) {
        next = page->next;
        page_destroy(cache, page);
    }
    *taken = (struct gp_taken){0};
}

/* Makes handles until `taken` holds `need` bytes. */
static uint32_t page_make(struct gp_cache *cache, bool small, uint64_t need, struct gp_taken *taken)
{
    gp_lock_take(&cache->lock);
    uint64_t most = page_unit(cache, small);
    gp_lock_give(&cache->lock);
    if (cache->policy.moves_pages && small && need < cache->policy.large_page_bytes)
        most = page_round(cache, need);
    while (taken->bytes < need) {
        uint64_t bytes = need - taken->bytes < most ? need - taken->bytes : most;
        struct gp_page *page = page_record(cache);
        if (!page)
            return GP_BACKEND_OOM;
        page->bytes = bytes;
        gp_cache_called(cache);
        uint32_t error = cache->backend.create(cache->backend.self, bytes, &page->handle);
        if (error) {
            gp_lock_take(&cache->lock);
            gp_arena_slab_give(&cache->page_records, page);
            gp_lock_give(&cache->lock);
            return error;
        }
        __atomic_fetch_add(&cache->x_device_allocs, 1, __ATOMIC_RELAXED); /* a count */
        taken_put(taken, page);
    }
    return 0;
}

/* ---- taking idle pages out --------------------------------------------------------------------------------------- */

/* The first page of the segment that lies inside [from, end); NULL: none. */
static struct gp_page **page_inside(struct gp_segment *segment, uint64_t from, uint64_t end)
{
    struct gp_page **place = page_from(segment, from);
    return *place && (*place)->address + (*place)->bytes <= end ? place : NULL;
}

/* Under lock: takes one page that lies completely in the idle block. Its addresses become a TAKEN
 * block, *hole. */
static struct gp_page *page_pull(struct gp_cache *cache, struct gp_block *block, uint64_t most, struct gp_block **hole)
{
    struct gp_segment *segment = block->segment;
    if (block->epoch > cache->settled || block->bytes < segment->least_page)
        return NULL;
    struct gp_page **place = page_inside(segment, block->address, block->address + block->bytes);
    while (place && *place && (*place)->bytes > most)
        place = (*place)->next && (*place)->next->address + (*place)->next->bytes <= block->address + block->bytes
                    ? &(*place)->next
                    : NULL;
    if (!place || !*place)
        return NULL;
    struct gp_page *page = *place;
    uint64_t low = page->address - block->address, high = block->bytes - low - page->bytes, epoch = block->epoch;
    struct gp_block *middle = block, *rest = NULL;
    gp_block_unidle(cache, block);
    if (low) {
        middle = gp_block_cut(cache, block, low);
        if (!middle) {
            gp_block_idle(cache, block);
            return NULL;
        }
    }
    if (high) {
        rest = gp_block_cut(cache, middle, page->bytes);
        if (!rest) { /* give up and make everything idle again */
            gp_block_become(middle, GP_BLOCK_TAKEN);
            if (low)
                gp_block_idle(cache, block);
            gp_block_idle(cache, middle);
            return NULL;
        }
    }
    gp_block_become(middle, GP_BLOCK_TAKEN);
    if (low)
        gp_block_idle(cache, block);
    if (high)
        gp_block_idle(cache, rest);
    if (low)
        block->epoch = epoch;
    if (high)
        rest->epoch = epoch; /* still quiet: more pages may be pulled */
    *place = page->next;
    if (segment->near == page)
        segment->near = NULL;
    *hole = middle;
    return page;
}

/* Small idle blocks first, because a large one may serve the next request as it is. */
static struct gp_page *page_pull_tree(struct gp_cache *cache, struct gp_block *tree, uint64_t most,
                                      struct gp_block **hole)
{
    if (!tree)
        return NULL;
    struct gp_block *right = tree->right; /* a pull changes the tree, so it ends the walk */
    struct gp_page *page = page_pull_tree(cache, tree->left, most, hole);
    if (!page && tree->segment->growable && tree->bytes >= cache->backend.page_bytes)
        page = page_pull(cache, tree, most, hole);
    return page ? page : page_pull_tree(cache, right, most, hole);
}

static struct gp_page *page_pull_heap(struct gp_cache *cache, const struct gp_heap *heap, uint64_t most,
                                      struct gp_block **hole)
{
    struct gp_page *page = NULL;
    unsigned class = gp_index_next(&heap->idle, gp_block_index_class(cache->backend.page_bytes));
    for (; !page && class < GP_INDEX_CLASSES; class = gp_index_next(&heap->idle, class + 1))
        page = page_pull_tree(cache, heap->idle.roots[class], most, hole);
    return page;
}

static struct gp_page *page_pull_any(struct gp_cache *cache, const struct gp_heap *last, uint64_t most,
                                     struct gp_block **hole)
{
    struct gp_page *page = NULL;
    for (struct gp_heap *heap = cache->heaps; heap && !page; heap = heap->next)
        if (heap != last && !heap->pinned)
            page = page_pull_heap(cache, heap, most, hole);
    if (!page && last && !last->pinned)
        page = page_pull_heap(cache, last, most, hole);
    return page;
}

/* Unmaps one idle page and makes its place a hole. The caller has made sure that the device's work
 * on it is done. */
static struct gp_page *page_take_out(struct gp_cache *cache, const struct gp_heap *last, uint64_t most)
{
    struct gp_block *hole;
    gp_lock_take(&cache->lock);
    struct gp_page *page = page_pull_any(cache, last, most, &hole);
    gp_lock_give(&cache->lock);
    if (!page)
        return NULL;
    gp_cache_called(cache);
    uint32_t error = cache->backend.unmap(cache->backend.self, page->address, page->bytes);
    uint64_t address = page->address, stream = hole->segment->heap->stream;
    gp_lock_take(&cache->lock);
    if (error) { /* the page stays where it is */
        page_insert(hole->segment, page);
        gp_block_idle(cache, hole);
        gp_lock_give(&cache->lock);
        return NULL;
    }
    cache->reserved_bytes -= page->bytes;
    uint64_t time_ns = gp_cache_gauges_reserve(cache, hole->segment->heap, page->bytes, false, false, false);
    gp_block_unmapped(cache, hole);
    gp_lock_give(&cache->lock);
    gp_cache_tell(cache, GP_CACHE_SEGMENT_UNMAP, address, page->bytes, stream, time_ns);
    return page;
}

static void idle_pages(const struct gp_block *tree, uint64_t *bytes)
{
    if (!tree)
        return;
    idle_pages(tree->left, bytes);
    idle_pages(tree->right, bytes);
    uint64_t end = tree->address + tree->bytes;
    for (const struct gp_page *page = tree->segment->growable ? tree->segment->pages : NULL; page; page = page->next)
        if (page->address >= tree->address && page->address + page->bytes <= end)
            *bytes += page->bytes;
}

uint64_t gp_page_idle(struct gp_cache *cache)
{
    uint64_t bytes = 0;
    unsigned least = gp_block_index_class(cache->backend.page_bytes);
    for (struct gp_heap *heap = cache->heaps; heap; heap = heap->next)
        if (!heap->pinned) {
            GP_INDEX_EACH(&heap->idle, class, least) idle_pages(heap->idle.roots[class], &bytes);
        }
    return bytes;
}

uint64_t gp_page_release(struct gp_cache *cache, uint64_t keep_bytes)
{
    uint64_t given = 0;
    while (gp_cache_idle(cache) > keep_bytes) {
        struct gp_page *page = page_take_out(cache, NULL, UINT64_MAX);
        if (!page)
            break;
        given += page->bytes;
        page_destroy(cache, page);
    }
    return given;
}

void gp_page_end(struct gp_cache *cache, struct gp_segment *segment)
{
    struct gp_page *next;
    for (struct gp_page *page = segment->pages; page; page = next) {
        next = page->next;
        gp_cache_called(cache);
        cache->backend.unmap(cache->backend.self, page->address, page->bytes);
        page_destroy(cache, page);
    }
    segment->pages = NULL;
    gp_cache_called(cache);
    cache->backend.unreserve(cache->backend.self, segment->address, segment->bytes);
}

/* ---- mapping ----------------------------------------------------------------------------------------------------- */

/* Maps the taken pages from the start of the place on, and accounts pages as they are mapped. On an
 * error the other pages stay in `taken`. */
static uint32_t page_map(struct gp_cache *cache, const struct gp_place *place, struct gp_taken *taken, uint64_t *mapped)
{
    while (taken->pages && *mapped < place->bytes) {
        uint64_t handles[GP_MAP_HANDLES], sizes[GP_MAP_HANDLES], bytes = 0;
        unsigned count = 0;
        struct gp_page *end = taken->pages;
        for (; end && count < GP_MAP_HANDLES && *mapped + bytes + end->bytes <= place->bytes; end = end->next) {
            handles[count] = end->handle;
            sizes[count++] = end->bytes;
            bytes += end->bytes;
        }
        if (!count)
            return 0;
        uint64_t at = place->hole->address + *mapped;
        gp_cache_called(cache);
        uint32_t error = cache->backend.map(cache->backend.self, at, bytes, handles, sizes, count);
        if (error)
            return error;
        gp_lock_take(&cache->lock);
        for (unsigned i = 0; i < count; i++) {
            struct gp_page *page = taken->pages;
            taken->pages = page->next;
            taken->bytes -= page->bytes;
            page->address = at;
            at += page->bytes;
            page_insert(place->segment, page);
        }
        gp_lock_give(&cache->lock);
        *mapped += bytes;
    }
    return 0;
}

/* Makes the mapped part idle, and the part that could not be mapped a hole again. Returns the time
 * of the change. */
static uint64_t page_settle(struct gp_cache *cache, const struct gp_place *place, uint64_t mapped)
{
    struct gp_heap *heap = place->segment->heap;
    gp_lock_take(&cache->lock);
    struct gp_block *hole = place->hole, *rest = NULL;
    uint64_t time_ns = 0;
    page_unhold(cache, place->before);
    page_unhold(cache, place->after);
    if (mapped && mapped < place->bytes) {
        rest = gp_block_cut(cache, hole, mapped);
        GP_ASSERT(rest);
    }
    if (mapped) {
        cache->reserved_bytes += mapped;
        time_ns = gp_cache_gauges_reserve(cache, heap, mapped, false, false, true);
        if (rest)
            gp_block_unmapped(cache, rest);
        gp_block_idle(cache, hole);
    } else {
        gp_block_unmapped(cache, hole);
    }
    gp_lock_give(&cache->lock);
    return time_ns;
}

/* Collects idle pages of other places until `need` bytes are taken. Takes only pages that fit
 * completely, so that each can be mapped. */
static void page_gather(struct gp_cache *cache, const struct gp_heap *heap, uint64_t need, struct gp_taken *taken)
{
    while (taken->bytes < need) {
        struct gp_page *page = page_take_out(cache, heap, need - taken->bytes);
        if (!page)
            return;
        taken_put(taken, page);
        cache->moved_bytes += page->bytes;
    }
}

/* Maps as much as the request lacks for one contiguous piece of idle memory. */
static uint32_t page_fill(struct gp_cache *cache, struct gp_heap *heap, uint64_t tag, uint64_t bytes,
                          enum gp_growth how)
{
    struct gp_place place = {0};
    struct gp_taken taken = {0};
    uint64_t mapped = 0;
    uint32_t error = page_place(cache, heap, bytes, how, &place);
    if (error)
        return error;
    if (how != GP_GROW_MOVE && !gp_segment_allowed(cache, place.bytes)) {
        page_unclaim(cache, &place);
        return GP_BACKEND_OOM;
    }
    if (how == GP_GROW_MOVE)
        page_gather(cache, heap, place.bytes, &taken);
    if (taken.bytes < place.least) {
        error = gp_segment_allowed(cache, place.least) ? page_make(cache, heap->kind.small, place.least, &taken)
                                                       : GP_BACKEND_OOM;
    }
    if (!error && taken.bytes < place.bytes && !page_shrink(cache, &place, taken.bytes))
        error = GP_BACKEND_OOM;
    if (!error)
        error = page_map(cache, &place, &taken, &mapped);
    uint64_t at = place.hole->address;
    uint64_t time_ns = page_settle(cache, &place, mapped);
    taken_destroy(cache, &taken);
    if (mapped)
        gp_cache_tell_for(cache, GP_CACHE_SEGMENT_MAP, at, mapped, heap->stream, time_ns, tag);
    return error;
}

uint32_t gp_page_grow(struct gp_cache *cache, struct gp_heap *heap, const struct gp_request *request, uint64_t bytes,
                      enum gp_growth how, struct gp_block **out)
{
    uint32_t error = page_fill(cache, heap, request->tag, bytes, how);
    if (error && error != GP_BACKEND_BUSY)
        return error;
    gp_lock_take(&cache->lock);
    *out = gp_block_heap_give(cache, heap, request, bytes);
    gp_lock_give(&cache->lock);
    /* Another thread took it, or the request needs another hole: the caller tries again. */
    return *out ? 0 : GP_BACKEND_BUSY;
}
