/* SPDX-License-Identifier: MIT
 *
 * cachecheck.c: adds up a cache's blocks, pages and indexes, and compares the sums with what the cache keeps.
 */
#include "lib/cachecheck.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/lock.h"
#include "cache/block.h"
#include "cache/internal.h"
#include "cache/threadcache.h"
#include <stdarg.h>
#include <stdio.h>

struct check {
    struct gp_cache *cache;
    char *why;
    size_t why_bytes;
    uint64_t reserved, idle, waiting, idle_blocks, unmapped_blocks;
    uint64_t allocated, active, requested, split; /* compared with the gauges if the cache owns them */
    bool broken;
};

static GP_PRINTF(2, 3) void check_say(struct check *check, const char *form, ...)
{
    va_list arguments;
    if (check->broken)
        return;
    check->broken = true;
    va_start(arguments, form);
    vsnprintf(check->why, check->why_bytes, form, arguments);
    va_end(arguments);
}

static void check_block(struct check *check, const struct gp_block *block, uint64_t expected)
{
    const struct gp_block *after = block->after;
    unsigned long long at = block->address;
    if (block->address != expected || !block->bytes)
        check_say(check, "block %#llx: a gap, an overlap or no size", at);
    if (gp_table_at(check->cache, block->address) != block)
        check_say(check, "block %#llx: the table points to another block", at);
    if (after && after->before != block)
        check_say(check, "block %#llx: its neighbour does not point back to it", at);
    if (after && gp_block_state(after) == gp_block_state(block) &&
        (gp_block_state(block) == GP_BLOCK_IDLE || gp_block_state(block) == GP_BLOCK_UNMAPPED))
        check_say(check, "block %#llx: not joined with its neighbour", at);
    check->idle += gp_block_state(block) == GP_BLOCK_IDLE ? block->bytes : 0;
    check->idle_blocks += gp_block_state(block) == GP_BLOCK_IDLE;
    check->unmapped_blocks += gp_block_state(block) == GP_BLOCK_UNMAPPED;
    check->waiting += gp_block_state(block) == GP_BLOCK_WAITING ? block->bytes : 0;
    check->allocated += gp_block_state(block) == GP_BLOCK_LIVE ? block->bytes : 0;
    check->active +=
        gp_block_state(block) == GP_BLOCK_LIVE || gp_block_state(block) == GP_BLOCK_WAITING ? block->bytes : 0;
    check->split +=
        gp_block_state(block) == GP_BLOCK_IDLE && !block->segment->growable && (block->before || block->after)
            ? block->bytes
            : 0;
}

static uint64_t check_pages(struct check *check, const struct gp_segment *segment)
{
    uint64_t bytes = 0, end = 0, unmapped = 0;
    for (const struct gp_page *page = segment->pages; page; page = page->next) {
        if (page->address < end || page->address < segment->address)
            check_say(check, "page %#llx: out of order", (unsigned long long)page->address);
        end = page->address + page->bytes;
        bytes += page->bytes;
    }
    for (const struct gp_block *block = segment->first; block; block = block->after)
        unmapped += gp_block_state(block) == GP_BLOCK_UNMAPPED ? block->bytes : 0;
    if (unmapped + bytes != segment->bytes)
        check_say(check, "segment %#llx: pages and holes do not add up to its size",
                  (unsigned long long)segment->address);
    return bytes;
}

static void check_index(struct check *check, const struct gp_block *tree, uint8_t state, const struct gp_heap *heap,
                        uint64_t *bytes, uint64_t *count)
{
    if (!tree || check->broken)
        return;
    if (gp_block_state(tree) != state || tree->segment->heap != heap)
        check_say(check, "block %#llx: in the wrong index", (unsigned long long)tree->address);
    check_index(check, tree->left, state, heap, bytes, count);
    check_index(check, tree->right, state, heap, bytes, count);
    *bytes += tree->bytes;
    (*count)++;
}

static void check_heaps(struct check *check)
{
    uint64_t idle_count = 0, unmapped_count = 0;
    for (const struct gp_heap *heap = check->cache->heaps; heap; heap = heap->next) {
        uint64_t bytes = 0, ignored = 0, count = 0;
        GP_INDEX_EACH(&heap->idle, class, 0)
        check_index(check, heap->idle.roots[class], GP_BLOCK_IDLE, heap, &bytes, &count);
        if (bytes != heap->idle_bytes || count != heap->idle.count)
            check_say(check, "a heap's idle bytes differ from the sum of its index");
        idle_count += count;
        GP_INDEX_EACH(&heap->unmapped, class, 0)
        check_index(check, heap->unmapped.roots[class], GP_BLOCK_UNMAPPED, heap, &ignored, &unmapped_count);
    }
    if (idle_count != check->idle_blocks || unmapped_count != check->unmapped_blocks)
        check_say(check, "the indexes hold %llu idle and %llu unmapped blocks, the segments %llu and %llu",
                  (unsigned long long)idle_count, (unsigned long long)unmapped_count,
                  (unsigned long long)check->idle_blocks, (unsigned long long)check->unmapped_blocks);
}

static void check_gauge(struct check *check, const struct gp_gauge_value *gauges, unsigned gauge, uint64_t bytes,
                        const char *name)
{
    if (gauges[gauge].current != (int64_t)bytes)
        check_say(check, "%s: the gauge says %lld, the blocks %llu", name, (long long)gauges[gauge].current,
                  (unsigned long long)bytes);
    if (gauges[gauge].peak < gauges[gauge].current)
        check_say(check, "%s: the peak is below the current value", name);
}

static void check_gauges(struct check *check)
{
    struct gp_gauge_value gauges[GP_GAUGES_MAX];
    if (!check->cache->owns_gauges)
        return;
    gp_counter_snapshot(check->cache->gauges, gauges);
    check_gauge(check, gauges, GP_GAUGE_ALLOCATED_BYTES, check->allocated, "allocated_bytes");
    check_gauge(check, gauges, GP_GAUGE_ACTIVE_BYTES, check->active, "active_bytes");
    check_gauge(check, gauges, GP_GAUGE_RESERVED_BYTES, check->reserved, "reserved_bytes");
    check_gauge(check, gauges, GP_GAUGE_INACTIVE_SPLIT_BYTES, check->split, "inactive_split_bytes");
}

int cache_check(struct gp_cache *cache, char *why, size_t why_bytes)
{
    struct check check = {.cache = cache, .why = why, .why_bytes = why_bytes};
    gp_lock_take(&cache->lock);
    gp_thread_flush(cache);
    for (const struct gp_segment *segment = cache->segments; segment; segment = segment->next) {
        uint64_t expected = segment->address;
        for (const struct gp_block *block = segment->first; block && !check.broken; block = block->after) {
            check_block(&check, block, expected);
            expected = block->address + block->bytes;
        }
        if (expected != segment->address + segment->bytes)
            check_say(&check, "segment %#llx: its blocks do not fill it", (unsigned long long)segment->address);
        check.reserved += segment->growable ? check_pages(&check, segment) : segment->bytes;
    }
    check_heaps(&check);
    if (check.reserved != cache->reserved_bytes || check.idle != cache->idle_bytes ||
        check.waiting != cache->waiting_bytes)
        check_say(&check, "reserved, idle or waiting bytes differ from the sum over the segments");
    check_gauges(&check);
    gp_lock_give(&cache->lock);
    return check.broken ? -1 : 0;
}

struct gp_counter *cache_check_gauges(struct gp_cache *cache)
{
    return cache->gauges;
}
