/* SPDX-License-Identifier: MIT
 *
 * cache.c: requests and frees (cache.h has the contract).  An allocation climbs this ladder until a step serves it:
 *
 *      idle memory of its heap
 *      what waits, if its fence is reached; an unordered request waits for it rather than grow, as cuMemFree would have
 *      garbage collection (pytorch)
 *      new memory, or idle pages from elsewhere (caching: whichever keeps reserved near the peak of what is used)
 *      oversize segments given back, new memory (pytorch with max_split_size)
 *      idle memory of other streams, after a fence
 *      everything idle given back, new memory: a retry
 *
 * Every step but the first runs under `grow`.
 */
#include "cache/internal.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define GP_REQUEST_MOST (1ull << 60) /* PyTorch refuses an EB and more before it asks anybody */

uint64_t gp_cache_idle(struct gp_cache *cache)
{
    gp_lock_take(&cache->lock);
    uint64_t bytes = cache->idle_bytes;
    gp_lock_give(&cache->lock);
    return bytes;
}

void gp_cache_tell(struct gp_cache *cache, enum gp_cache_event_type type, uint64_t address, uint64_t bytes,
                   uint64_t stream)
{
    const struct gp_cache_event event = {type, address, bytes, stream};
    if (cache->listen)
        cache->listen(cache->listener, &event);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static bool cache_open(struct gp_cache *cache)
{
    cache->blocks.item_bytes = sizeof(struct gp_block);
    cache->segment_records.item_bytes = sizeof(struct gp_segment);
    cache->heap_records.item_bytes = sizeof(struct gp_heap);
    cache->page_records.item_bytes = sizeof(struct gp_page);
    cache->use_records.item_bytes = sizeof(struct gp_uses);
    cache->pool_records.item_bytes = sizeof(struct gp_pool);
    cache->batch_records.item_bytes = sizeof(struct gp_fenced_blocks);
    if (!gp_table_open(cache))
        return false;
    cache->owns_gauges = cache->gauges == NULL;
    if (cache->owns_gauges && gp_counter_new(&cache->gauges, GP_GAUGES, 64) != 0)
        return false;
    return gp_thread_open(cache);
}

static void cache_close(struct gp_cache *cache)
{
    struct gp_slab *slabs[] = {
        &cache->blocks,       &cache->segment_records, &cache->heap_records, &cache->page_records, &cache->use_records,
        &cache->pool_records, &cache->batch_records,   &cache->mids,         &cache->leaves};
    for (unsigned i = 0; i < GP_COUNT(slabs); i++)
        gp_slab_end(slabs[i]);
    gp_table_close(cache);
    gp_thread_close(cache);
    if (cache->owns_gauges && cache->gauges)
        gp_counter_free(cache->gauges);
    munmap(cache, sizeof(*cache));
}

int gp_cache_new(struct gp_cache **out, const struct gp_cache_setup *setup)
{
    struct gp_cache *cache = mmap(NULL, sizeof(*cache), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (cache == MAP_FAILED)
        return -ENOMEM;
    cache->policy = *setup->policy;
    cache->backend = setup->backend;
    cache->gauges = setup->gauges;
    cache->limit_bytes = setup->limit_bytes;
    cache->listener = setup->listener;
    cache->listen = setup->listen;
    cache->tags = setup->tags;
    cache->grow = (struct gp_lock)GP_LOCK_INIT(GP_RANK_GROW);
    cache->lock = (struct gp_lock)GP_LOCK_INIT(GP_RANK_CACHE);
    if (!cache->backend.page_bytes)
        cache->policy.growable = false;
    if (!cache_open(cache)) {
        cache_close(cache);
        return -ENOMEM;
    }
    *out = cache;
    return 0;
}

/* A block that goes without a free of its own. */
static void cache_end_block(struct gp_cache *cache, struct gp_block *block)
{
    if (gp_block_state(block) == GP_BLOCK_TAKEN) {
        gp_gauges_end(cache, 0, block);
    }
    if (gp_block_state(block) == GP_BLOCK_IDLE)
        gp_block_unidle(cache, block);
    if (gp_block_state(block) == GP_BLOCK_UNMAPPED)
        gp_index_take(&block->segment->heap->unmapped, block);
    gp_uses_drop(cache, block);
}

/* Under grow.  Takes the records of one segment away. */
static bool cache_end_segment(struct gp_cache *cache, bool call_backend)
{
    gp_lock_take(&cache->lock);
    gp_wait_forget(cache);
    struct gp_segment *segment = cache->segments;
    if (!segment) {
        gp_lock_give(&cache->lock);
        return false;
    }
    uint64_t held = segment->growable ? 0 : segment->bytes;
    for (struct gp_page *page = segment->pages; page; page = page->next)
        held += page->bytes;
    /* First no block may be freed any longer, then those that were are taken out of the threads' caches. */
    for (struct gp_block *block = segment->first; block; block = block->after)
        gp_block_claim(block);
    gp_thread_flush(cache);
    for (struct gp_block *block = segment->first; block; block = block->after)
        cache_end_block(cache, block);
    cache->reserved_bytes -= held;
    gp_gauges_reserve(cache, segment->heap, held, !segment->growable, segment->oversize, false);
    struct gp_segment gone = *segment;
    gp_segment_drop(cache, segment);
    while (!call_backend && gone.pages) {
        struct gp_page *page = gone.pages;
        gone.pages = page->next;
        gp_slab_give(&cache->page_records, page);
    }
    gp_lock_give(&cache->lock);
    if (call_backend && gone.growable)
        gp_page_end(cache, &gone);
    if (call_backend && !gone.growable) {
        gp_cache_called(cache);
        cache->backend.free(cache->backend.self, gone.address);
    }
    return true;
}

void gp_cache_forget(struct gp_cache *cache)
{
    gp_lock_take(&cache->grow);
    while (cache_end_segment(cache, false))
        ;
    cache->first_made = false;
    gp_lock_give(&cache->grow);
}

void gp_cache_free(struct gp_cache *cache)
{
    gp_lock_take(&cache->grow);
    gp_wait_settle(cache, true, true);
    gp_wait_all(cache);
    while (cache_end_segment(cache, true))
        ;
    gp_lock_give(&cache->grow);
    cache_close(cache);
}

struct gp_counter *gp_cache_gauges(struct gp_cache *cache)
{
    return cache->gauges;
}

const struct gp_policy *gp_cache_policy(const struct gp_cache *cache)
{
    return &cache->policy;
}

/* ---- allocation -------------------------------------------------------------------------------------------------- */

struct gp_want { /* a request on its way up the ladder */
    struct gp_cache *cache;
    struct gp_heap *heap;
    const struct gp_request *request;
    uint64_t bytes;
    struct gp_block *block;
    uint32_t error;
};

static void cache_flush(struct gp_cache *cache)
{
    gp_lock_take(&cache->lock);
    gp_thread_flush(cache);
    gp_lock_give(&cache->lock);
}

static bool want_idle(struct gp_want *want)
{
    gp_lock_take(&want->cache->lock);
    want->block = gp_heap_give(want->cache, want->heap, want->request, want->bytes);
    gp_lock_give(&want->cache->lock);
    return want->block != NULL;
}

static bool want_waiting(struct gp_want *want)
{
    struct gp_cache *cache = want->cache;
    gp_lock_take(&cache->lock);
    bool waits = cache->waiting_bytes > 0;
    bool any = want->heap->unordered_bytes >= want->bytes;
    gp_lock_give(&cache->lock);
    if (!waits)
        return false;
    gp_wait_settle(cache, any, false);
    if (want_idle(want))
        return true;
    if (!any)
        return false;
    gp_wait_settle(cache, true, true);
    return want_idle(want);
}

static bool want_growable(const struct gp_want *want)
{
    return want->cache->policy.growable && !want->heap->linear;
}

static uint32_t want_map(struct gp_want *want, bool make)
{
    enum gp_growth how = make ? GP_GROW_AHEAD : GP_GROW_MOVE;
    for (;;) {
        uint32_t error = gp_page_grow(want->cache, want->heap, want->request, want->bytes, how, &want->block);
        if (error == GP_BACKEND_BUSY) /* another thread was quicker; pages are moved once, then made */
            how = how == GP_GROW_MOVE ? GP_GROW_AHEAD : how;
        else if (error == GP_BACKEND_OOM && how == GP_GROW_AHEAD)
            how = GP_GROW_EXACT;
        else
            return error;
    }
}

static bool want_grow(struct gp_want *want, bool make)
{
    struct gp_cache *cache = want->cache;
    if (!want_growable(want))
        want->error = gp_segment_grow(cache, want->heap, want->request, want->bytes, &want->block);
    else
        want->error = want_map(want, make);
    return want->error == 0;
}

/* What moving earns: pages moved 32 times cost about as much as so much memory kept for good.  It ends a workload's
 * moving back and forth, whose demand does not fit its peak by a little. */
#define GP_MOVES_EARN 32

/* Is it better to map idle pages here than to make new ones?  Only while there are enough of them, and while new ones
 * would make the reserve larger than the peak of use allows. */
static bool want_moves(const struct gp_want *want)
{
    struct gp_cache *cache = want->cache;
    if (!cache->policy.moves_pages || !want_growable(want))
        return false;
    gp_lock_take(&cache->lock);
    uint64_t used = cache->reserved_bytes - cache->idle_bytes - cache->waiting_bytes + want->bytes;
    uint64_t peak = used > cache->peak_bytes ? used : cache->peak_bytes;
    uint64_t allowed =
        (uint64_t)((1 + cache->policy.slack_fraction) * (double)peak) + cache->moved_bytes / GP_MOVES_EARN;
    bool moves = cache->reserved_bytes + want->bytes > allowed && gp_page_idle(cache) >= want->bytes;
    gp_lock_give(&cache->lock);
    return moves;
}

/* Under lock: idle memory of another stream that would do.  gone: of destroyed streams alone.  quiet: that no work
 * uses. */
static struct gp_block *want_foreign(struct gp_want *want, bool gone, bool quiet)
{
    struct gp_cache *cache = want->cache;
    for (struct gp_heap *heap = cache->heaps; heap; heap = heap->next) {
        if (heap == want->heap || !gp_heap_alike(heap, want->heap) || (gone && heap->stream != GP_STREAM_GONE))
            continue;
        struct gp_block *fit = gp_heap_find(cache, heap, want->bytes);
        if (fit && (!quiet || fit->epoch <= cache->settled))
            return fit;
    }
    return NULL;
}

/* Takes it after a fence.  The block stays where it belongs, and waits for this stream when it is freed. */
static bool want_share(struct gp_want *want, bool gone)
{
    struct gp_cache *cache = want->cache;
    gp_lock_take(&cache->lock);
    bool there = want_foreign(want, gone, false) != NULL;
    gp_lock_give(&cache->lock);
    if (!there || !gp_wait_all(cache))
        return false;
    gp_lock_take(&cache->lock);
    struct gp_block *fit = want_foreign(want, gone, true);
    if (fit)
        want->block = gp_block_give(cache, fit, want->request, want->bytes);
    gp_lock_give(&cache->lock);
    return fit != NULL;
}

/* What threads may keep while the reserve grows: 2 % of the smallest training run (1.7 GiB) among the traces, and
 * enough that a loop over mixed sizes finds a block that fits. */
#define GP_THREADS_KEEP (32u << 20)

/* Where moving is due, memory of another stream that fits as it is comes first: it costs a fence and no mapping. */
static bool want_memory(struct gp_want *want)
{
    /* What threads keep is idle memory that want_moves takes for used: the reserve does not grow because of it. */
    if (gp_thread_held(want->cache) > GP_THREADS_KEEP) {
        cache_flush(want->cache);
        if (want_idle(want))
            return true;
    }
    bool move = want_moves(want);
    if (move && want->cache->policy.streams_share && want_share(want, false))
        return true;
    return want_grow(want, !(move && gp_wait_all(want->cache)));
}

static bool want_pages(struct gp_want *want)
{
    struct gp_cache *cache = want->cache;
    if (!want_growable(want) || !cache->policy.moves_pages)
        return false;
    gp_lock_take(&cache->lock);
    bool there = gp_page_idle(cache) > 0;
    gp_lock_give(&cache->lock);
    return there && want_grow(want, false);
}

static bool want_retry(struct gp_want *want)
{
    struct gp_cache *cache = want->cache;
    if (want->error != GP_BACKEND_OOM)
        return false;
    if (cache->policy.max_split_bytes != UINT64_MAX && gp_segment_release_oversize(cache, want->bytes) &&
        want_grow(want, true))
        return true;
    if (want_share(want, !cache->policy.streams_share))
        return true;
    cache_flush(cache);
    gp_wait_settle(cache, true, true);
    if (want_idle(want))
        return true;
    if (!gp_wait_all(cache))
        return false;
    if (want_pages(want))
        return true;
    __atomic_fetch_add(&cache->x_retries, 1, __ATOMIC_RELAXED); /* a count */
    gp_cache_tell(cache, GP_CACHE_RETRY, 0, want->bytes, want->request->stream);
    gp_segment_release(cache, 0, UINT64_MAX);
    gp_page_drop_ranges(cache);
    return want_grow(want, true);
}

/* Under grow. */
static bool want_climb(struct gp_want *want)
{
    struct gp_cache *cache = want->cache;
    if (want_idle(want) || want_waiting(want) || want_share(want, !cache->policy.only_first))
        return true;
    gp_page_drop_ranges(cache);
    if (want->heap->dedicated)
        gp_segment_trim_dedicated(cache);
    gp_segment_collect(cache);
    return want_memory(want) || want_retry(want);
}

/* Under lock. */
static bool want_heap(struct gp_want *want)
{
    const struct gp_policy *policy = &want->cache->policy;
    const struct gp_request *request = want->request;
    bool dedicated = request->flags & GP_REQUEST_DEDICATED;
    struct gp_heap like = {
        .pool = request->pool,
        .small = gp_policy_is_small(policy, want->bytes),
        .linear = dedicated || request->flags & GP_REQUEST_LINEAR || !policy->growable,
        .dedicated = dedicated,
    };
    want->heap = gp_heap_of(want->cache, &like, request->stream);
    return want->heap != NULL;
}

static uint32_t cache_alloc_slow(struct gp_want *want)
{
    struct gp_cache *cache = want->cache;
    gp_lock_take(&cache->grow);
    gp_lock_take(&cache->lock);
    bool served = want_heap(want); /* again: the stream may have been destroyed since */
    gp_lock_give(&cache->lock);
    served = served && want_climb(want);
    gp_lock_give(&cache->grow);
    if (served)
        return 0;
    if (want->error == GP_BACKEND_OOM)
        gp_cache_tell(cache, GP_CACHE_OOM, 0, want->request->bytes, want->request->stream);
    return want->error ? want->error : GP_BACKEND_OOM;
}

uint32_t gp_cache_alloc(struct gp_cache *cache, const struct gp_request *request, struct gp_grant *out)
{
    struct gp_want want = {.cache = cache, .request = request};
    if (request->bytes > GP_REQUEST_MOST) {
        gp_cache_tell(cache, GP_CACHE_OOM, 0, request->bytes, request->stream);
        return GP_BACKEND_OOM;
    }
    want.bytes = gp_policy_round(&cache->policy, request->bytes);
    if (cache->threads && gp_thread_give(cache, request, want.bytes, out))
        return 0;
    gp_lock_take(&cache->lock);
    cache->clock++;
    if (want_heap(&want))
        want.block = gp_heap_give(cache, want.heap, request, want.bytes);
    gp_lock_give(&cache->lock);
    if (!want.block) {
        uint32_t error = cache_alloc_slow(&want);
        if (error)
            return error;
    }
    const struct gp_block *block = want.block;
    gp_gauges_alloc(cache, request->shard, block);
    *out = (struct gp_grant){block->address, block->bytes, block->requested_bytes, request->stream, request->tag};
    return 0;
}

/* ---- free -------------------------------------------------------------------------------------------------------- */

/* Under lock.  The work of the block's own stream is in order only if the heap is that stream's: borrowed memory
 * waits. */
static bool block_must_wait(struct gp_cache *cache, struct gp_block *block, bool unordered)
{
    if (unordered || block->stream == GP_STREAM_GONE)
        return true;
    if (block->stream == block->segment->heap->stream)
        return block->uses != NULL;
    struct gp_uses *own = gp_slab_take(&cache->use_records);
    if (!own) { /* no record: a fence over everything */
        gp_uses_drop(cache, block);
        return true;
    }
    own->stream = block->stream;
    own->next = block->uses;
    block->uses = own;
    return true;
}

/* Does its segment leave with this block?  Then the driver's own free does the waiting. */
static bool segment_goes_at_once(const struct gp_cache *cache, const struct gp_block *block)
{
    const struct gp_segment *segment = block->segment;
    return !segment->growable && !segment->heap->pinned && !block->before && !block->after &&
           (cache->policy.frees_at_once || (cache->policy.only_first && !segment->first_chunk && !segment->dedicated));
}

static __attribute__((noinline)) bool cache_release_slow(struct gp_cache *cache, uint64_t address,
                                                         enum gp_free_order order, unsigned shard, struct gp_grant *out)
{
    gp_lock_take(&cache->lock);
    struct gp_block *block = gp_table_at(cache, address);
    if (!block || !gp_block_claim(block)) {
        gp_lock_give(&cache->lock);
        return false;
    }
    struct gp_segment *segment = block->segment;
    struct gp_gone gone;
    *out = (struct gp_grant){block->address, block->bytes, block->requested_bytes, block->stream,
                             gp_block_tag_of(cache, block)};
    bool at_once = segment_goes_at_once(cache, block);
    if (!at_once && block_must_wait(cache, block, order == GP_FREE_UNORDERED)) {
        gp_gauges_free(cache, shard, block);
        gp_wait_for(cache, block, order == GP_FREE_UNORDERED || block->stream == GP_STREAM_GONE);
    } else {
        gp_uses_drop(cache, block);
        gp_gauges_end(cache, shard, block);
        gp_block_idle(cache, block);
        if (at_once)
            gp_segment_unlink_idle(cache, segment, &gone);
    }
    bool record = gp_wait_wants_record(cache);
    gp_lock_give(&cache->lock);
    if (at_once)
        gp_segment_free_gone(cache, &gone);
    if (record) {
        gp_lock_take(&cache->grow);
        gp_wait_record(cache);
        gp_lock_give(&cache->grow);
    }
    return true;
}

bool gp_cache_release(struct gp_cache *cache, uint64_t address, enum gp_free_order order, unsigned shard,
                      struct gp_grant *out)
{
    struct gp_grant unused;
    struct gp_block *block = gp_table_at(cache, address);
    out = out ? out : &unused;
    if (!block)
        return false;
    if (cache->threads && order == GP_FREE_ORDERED && gp_thread_take(cache, block, address, shard, out))
        return true;
    return cache_release_slow(cache, address, order, shard, out);
}

bool gp_cache_record_stream(struct gp_cache *cache, uint64_t address, uint64_t stream)
{
    gp_lock_take(&cache->lock);
    struct gp_block *block = gp_table_at(cache, address);
    bool live = block && gp_block_state(block) == GP_BLOCK_LIVE;
    struct gp_uses *use = live ? block->uses : NULL;
    while (use && use->stream != stream)
        use = use->next;
    if (live && !use && stream != block->stream) {
        use = gp_slab_take(&cache->use_records);
        if (use) {
            use->stream = stream;
            use->next = block->uses;
            block->uses = use;
            gp_block_bar(block);
        }
    }
    gp_lock_give(&cache->lock);
    return live;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

/* Its number may come again for another stream: nothing may carry it any longer. */
void gp_cache_stream_gone(struct gp_cache *cache, uint64_t stream)
{
    gp_lock_take(&cache->grow); /* who grows a heap counts on it */
    gp_lock_take(&cache->lock);
    for (struct gp_segment *segment = cache->segments; segment; segment = segment->next)
        for (struct gp_block *block = segment->first; block; block = block->after)
            if (block->stream == stream)
                gp_block_bar(block);
    gp_thread_flush(cache);
    struct gp_heap **place = &cache->heaps, *heap;
    while ((heap = *place))
        if (heap->stream != stream || !gp_heap_retire(cache, heap, place))
            place = &heap->next;
    for (struct gp_segment *segment = cache->segments; segment; segment = segment->next)
        for (struct gp_block *block = segment->first; block; block = block->after) {
            if (block->stream == stream)
                __atomic_store_n(&block->stream, GP_STREAM_GONE, __ATOMIC_RELAXED); /* threadcache.c looks at it */
            for (struct gp_uses *use = block->uses; use; use = use->next)
                if (use->stream == stream)
                    use->stream = GP_STREAM_GONE;
        }
    gp_lock_give(&cache->lock);
    gp_lock_give(&cache->grow);
}

uint64_t gp_cache_trim(struct gp_cache *cache, uint64_t keep_bytes)
{
    uint64_t given = 0;
    gp_lock_take(&cache->grow);
    cache_flush(cache);
    gp_wait_settle(cache, true, true);
    if (gp_cache_idle(cache) > keep_bytes && gp_wait_all(cache))
        given = gp_segment_release(cache, keep_bytes, UINT64_MAX);
    gp_lock_give(&cache->grow);
    return given;
}

void gp_cache_set_limit(struct gp_cache *cache, uint64_t limit_bytes)
{
    __atomic_store_n(&cache->limit_bytes, limit_bytes, __ATOMIC_RELAXED);
}

uint64_t gp_cache_limit(const struct gp_cache *cache)
{
    return __atomic_load_n(&cache->limit_bytes, __ATOMIC_RELAXED);
}
