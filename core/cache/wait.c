/* SPDX-License-Identifier: MIT
 *
 * wait.c: freed blocks that work may still use. A block takes one of two ways:
 *
 *      live -> open batch (unordered free: any stream may use it)  -> fence over all streams   -> idle
 *      live -> asked (other streams were recorded)                 -> fence over those streams -> idle
 *
 * Fences are recorded after the free, and queried only under `grow`. A waiting block is in exactly
 * one list.
 */
#include "cache/wait.h"
#include "base/lock.h"
#include "cache/arena.h"
#include "cache/block.h"
#include "cache/cache.h"
#include "cache/gauges.h"
#include "cache/internal.h"

/* An open batch is closed at 64 blocks or 32 MiB. A fence costs a few driver calls, which the
 * blocks share, and no more than a large page's worth of memory waits. */
#define GP_OPEN_BLOCKS 64
#define GP_OPEN_BYTES  (32u << 20)
/* Four blocks that other streams used share a fence. Each block saves a record and a query, and
 * waits for at most three more frees; an allocation that finds no idle memory records the fence at
 * once. A policy that reproduces PyTorch uses one fence per block. */
#define GP_ASKED_BLOCKS 4
/* A free queries fences only when this many are outstanding. Allocations query them before they
 * look elsewhere, so it is not urgent, and a query costs about as much as a fence. A policy that
 * reproduces PyTorch queries at every free. */
#define GP_FENCES_UNQUERIED 16
/* With more streams on one fence, it covers all streams. */
#define GP_FENCE_STREAMS 16

void gp_wait_for(struct gp_cache *cache, struct gp_block *block, bool unordered)
{
    gp_block_become(block, GP_BLOCK_WAITING);
    block->unordered = unordered;
    block->segment->heap->unordered_bytes += unordered ? block->bytes : 0;
    cache->waiting_bytes += block->bytes;
    if (unordered || !block->uses) {
        block->left = cache->open.blocks;
        cache->open.blocks = block;
        cache->open.bytes += block->bytes;
        cache->open.count++;
    } else {
        block->left = cache->asked;
        cache->asked = block;
        cache->asked_count++;
    }
}

/* After a refusal, as during a capture, the next attempt comes when twice as many blocks wait: each
 * one looks at all of them. A policy that reproduces PyTorch takes one block at a time. */
bool gp_wait_wants_record(const struct gp_cache *cache)
{
    if (cache->policy.moves_pages && cache->asked_count + cache->open.count < 2 * cache->refused_count)
        return false;
    return cache->asked_count >= (cache->policy.moves_pages ? GP_ASKED_BLOCKS : 1) ||
           cache->open.count >= GP_OPEN_BLOCKS || cache->open.bytes >= GP_OPEN_BYTES;
}

void gp_wait_uses_drop(struct gp_cache *cache, struct gp_block *block)
{
    struct gp_uses *next;
    for (struct gp_uses *use = block->uses; use; use = next) {
        next = use->next;
        gp_arena_slab_give(&cache->use_records, use);
    }
    block->uses = NULL;
}

/* Under lock: the work is done; makes the blocks idle. */
static void wait_over(struct gp_cache *cache, struct gp_block *blocks)
{
    struct gp_block *next;
    for (struct gp_block *block = blocks; block; block = next) {
        next = block->left;
        block->left = NULL;
        block->segment->heap->unordered_bytes -= block->unordered ? block->bytes : 0;
        cache->waiting_bytes -= block->bytes;
        gp_wait_uses_drop(cache, block);
        gp_cache_gauges_done(cache, block);
        gp_block_idle(cache, block);
    }
}

void gp_wait_forget(struct gp_cache *cache)
{
    struct gp_block *open = cache->open.blocks, *asked = cache->asked;
    struct gp_fenced_blocks *next;
    cache->open = (struct gp_fenced_blocks){0};
    cache->asked = NULL;
    cache->asked_count = 0;
    wait_over(cache, open);
    wait_over(cache, asked);
    for (struct gp_fenced_blocks *batch = cache->fenced; batch; batch = next) {
        next = batch->next;
        wait_over(cache, batch->blocks);
        gp_arena_slab_give(&cache->fenced_records, batch);
    }
    cache->fenced = cache->fenced_last = NULL;
    cache->fences = 0;
}

struct gp_streams { /* the streams of one fence */
    uint64_t at[GP_FENCE_STREAMS];
    unsigned count;
    bool all;
};

static void streams_add(struct gp_streams *streams, uint64_t stream)
{
    streams->all |= stream == GP_STREAM_DESTROYED || stream == GP_STREAM_ANY;
    for (unsigned i = 0; i < streams->count; i++)
        if (streams->at[i] == stream)
            return;
    if (streams->count == GP_FENCE_STREAMS)
        streams->all = true;
    else
        streams->at[streams->count++] = stream;
}

/* streams NULL: a fence over all streams. */
static uint32_t wait_call_record(struct gp_cache *cache, const struct gp_streams *streams, uint64_t *fence)
{
    if (streams && !streams->all) {
        gp_cache_called(cache);
        uint32_t error = cache->backend.record(cache->backend.self, streams->at, streams->count, fence);
        /* A stream may have been destroyed: use a fence over all streams. */
        if (error == 0 || error == GP_BACKEND_FORBIDDEN)
            return error;
    }
    gp_cache_called(cache);
    return cache->backend.record(cache->backend.self, NULL, 0, fence);
}

/* Under lock. */
static void wait_reopen(struct gp_cache *cache, struct gp_block *blocks)
{
    struct gp_block *next;
    for (struct gp_block *block = blocks; block; block = next) {
        next = block->left;
        block->left = cache->open.blocks;
        cache->open.blocks = block;
        cache->open.bytes += block->bytes;
        cache->open.count++;
    }
}

/* Queues the blocks behind the fence. */
static void wait_fence(struct gp_cache *cache, struct gp_block *blocks, uint64_t fence)
{
    gp_lock_take(&cache->lock);
    struct gp_fenced_blocks *batch = gp_arena_slab_take(&cache->fenced_records);
    if (batch) {
        batch->blocks = blocks;
        batch->fence = fence;
        if (cache->fenced_last)
            cache->fenced_last->next = batch;
        else
            cache->fenced = batch;
        cache->fenced_last = batch;
    }
    cache->fences += batch != NULL;
    gp_lock_give(&cache->lock);
    if (batch)
        return;
    gp_cache_called(cache);
    uint32_t error = cache->backend.wait(cache->backend.self, fence);
    gp_lock_take(&cache->lock);
    if (error) /* the fence failed and proved nothing */
        wait_reopen(cache, blocks);
    else
        wait_over(cache, blocks);
    gp_lock_give(&cache->lock);
}

/* Under lock: takes up to `most` blocks that wait for their fence to be recorded, and collects the
 * streams for it. */
static struct gp_block *wait_take_asked(struct gp_cache *cache, unsigned most, struct gp_streams *streams)
{
    struct gp_block *blocks = cache->asked, **end = &blocks;
    for (; *end && most; most--) {
        for (const struct gp_uses *use = (*end)->uses; use; use = use->next)
            streams_add(streams, use->stream);
        end = &(*end)->left;
        cache->asked_count--;
    }
    cache->asked = *end;
    *end = NULL;
    return blocks;
}

static void wait_record_asked(struct gp_cache *cache)
{
    for (;;) {
        uint64_t fence;
        struct gp_streams streams = {.count = 0};
        gp_lock_take(&cache->lock);
        struct gp_block *blocks = wait_take_asked(cache, cache->policy.moves_pages ? UINT32_MAX : 1, &streams), *next;
        gp_lock_give(&cache->lock);
        if (!blocks)
            return;
        if (wait_call_record(cache, &streams, &fence) == 0) {
            wait_fence(cache, blocks, fence);
            continue;
        }
        gp_lock_take(&cache->lock); /* not possible now: they keep waiting */
        cache->refused_count = cache->asked_count;
        for (; blocks; blocks = next) {
            next = blocks->left;
            blocks->left = cache->asked;
            cache->asked = blocks;
            cache->asked_count++;
            cache->refused_count++;
        }
        gp_lock_give(&cache->lock);
        return;
    }
}

static void wait_record_open(struct gp_cache *cache)
{
    uint64_t fence;
    gp_lock_take(&cache->lock);
    struct gp_fenced_blocks batch = cache->open;
    cache->open = (struct gp_fenced_blocks){0};
    gp_lock_give(&cache->lock);
    if (!batch.blocks)
        return;
    if (wait_call_record(cache, NULL, &fence) == 0) {
        wait_fence(cache, batch.blocks, fence);
        return;
    }
    gp_lock_take(&cache->lock);
    struct gp_block **end = &cache->open.blocks; /* of those that were freed meanwhile, which are few */
    while (*end)
        end = &(*end)->left;
    *end = batch.blocks;
    cache->open.bytes += batch.bytes;
    cache->open.count += batch.count;
    cache->refused_count = cache->asked_count + cache->open.count;
    gp_lock_give(&cache->lock);
}

/* `fenced` changes under both locks, so it may be walked under `grow` alone. */
static void wait_query(struct gp_cache *cache, bool wait)
{
    struct gp_fenced_blocks **place = &cache->fenced, *last = NULL;
    while (*place) {
        struct gp_fenced_blocks *batch = *place;
        gp_cache_called(cache);
        uint32_t error = wait ? cache->backend.wait(cache->backend.self, batch->fence)
                              : cache->backend.query(cache->backend.self, batch->fence);
        if (error == GP_BACKEND_BUSY || error == GP_BACKEND_FORBIDDEN) {
            last = batch;
            place = &batch->next;
            continue;
        }
        gp_lock_take(&cache->lock);
        *place = batch->next;
        if (cache->fenced_last == batch)
            cache->fenced_last = last;
        if (error) /* the fence failed and proved nothing: wait for another one */
            wait_reopen(cache, batch->blocks);
        else
            wait_over(cache, batch->blocks);
        gp_arena_slab_give(&cache->fenced_records, batch);
        cache->fences--;
        gp_lock_give(&cache->lock);
    }
}

void gp_wait_record(struct gp_cache *cache)
{
    gp_lock_take(&cache->lock);
    uint64_t before = cache->fences;
    cache->refused_count = 0;
    gp_lock_give(&cache->lock);
    wait_record_asked(cache);
    wait_record_open(cache);
    if (!cache->policy.moves_pages || before >= GP_FENCES_UNQUERIED)
        wait_query(cache, false);
}

void gp_wait_settle(struct gp_cache *cache, bool open_too, bool wait)
{
    gp_lock_take(&cache->lock);
    cache->refused_count = 0;
    gp_lock_give(&cache->lock);
    wait_record_asked(cache);
    if (open_too)
        wait_record_open(cache);
    wait_query(cache, wait);
}

bool gp_wait_all(struct gp_cache *cache)
{
    uint64_t fence;
    gp_lock_take(&cache->lock);
    uint64_t epoch = cache->epoch++; /* a block that becomes idle from here on may have work after the fence */
    gp_lock_give(&cache->lock);
    if (wait_call_record(cache, NULL, &fence) != 0)
        return false;
    gp_cache_called(cache);
    if (cache->backend.wait(cache->backend.self, fence) != 0)
        return false;
    gp_lock_take(&cache->lock);
    cache->settled = epoch;
    gp_lock_give(&cache->lock);
    __atomic_fetch_add(&cache->x_syncs, 1, __ATOMIC_RELAXED); /* a count */
    gp_cache_tell(cache, GP_CACHE_SYNC_ALL, 0, 0, 0, 0);
    return true;
}
