/* SPDX-License-Identifier: MIT
 *
 * cache.h: our own cache. Memory that core/cache holds and hands out does not pass through the
 * other headers. The cache moves the device's gauges itself, in the same step as its blocks, so
 * that peaks over both are exact. The allocator calls these (src/allocator).
 */
#ifndef GP_ACCOUNT_FEED_CACHE_H
#define GP_ACCOUNT_FEED_CACHE_H

#include "account/feed/feed.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_counter;

/* The device's gauges. NULL: the index is out of range, or there is no memory. */
struct gp_counter *gp_feed_cache_gauges(int device);
/* The cache's counts beside its gauges. */
enum gp_feed_count { GP_FEED_RETRIES, GP_FEED_SYNCS, GP_FEED_DEVICE_ALLOCS, GP_FEED_DEVICE_FREES, GP_FEED_COUNTS };
/* DEVICE_*: driver calls that allocated or released memory without a segment of their own (pages
 * of a growable one). */
void gp_feed_cache_count(int device, enum gp_feed_count what, uint64_t n);
/* PyTorch's max_split_size; -1 no limit. */
void gp_feed_cache_split_limit(int device, int64_t bytes);
/* Whether the time of a block's allocation or free is of use: events are read, or call sites are taken. */
bool gp_feed_cache_wants_time(void);
/* Whether anything is to be done for an ALLOC or FREE with this site; [listen.A] if called after
 * the block has changed. */
bool gp_feed_cache_wants_block(uint32_t site);
/* Writes an event of the cache into the ring; ALLOC and FREE only while the ring has a reader, as for the blocks of
 * frameworks (docs/understand/ring.md). site: that of the block, for ALLOC and FREE. */
struct gp_feed_event {
    enum gp_wire_event_type type;
    int device;
    uint32_t site;
    uint64_t address, bytes, requested_bytes, stream;
    uint64_t time_ns; /* 0: now */
};
void gp_feed_cache_event(const struct gp_feed_event *event);

#endif
