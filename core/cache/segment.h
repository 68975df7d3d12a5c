/* SPDX-License-Identifier: MIT
 *
 * segment.h: segments. Under grow, not lock.
 */
#ifndef GP_CACHE_SEGMENT_H
#define GP_CACHE_SEGMENT_H

#include "cache/cache.h"
#include "cache/internal.h"
#include <stdbool.h>
#include <stdint.h>

/* Allocates a new segment and the block from it. GP_BACKEND_OOM also if the limit forbids it. */
uint32_t gp_segment_grow(struct gp_cache *cache, struct gp_heap *heap, const struct gp_request *request, uint64_t bytes,
                         struct gp_block **out);
/* Does the limit allow `bytes` more to be reserved? */
bool gp_segment_allowed(struct gp_cache *cache, uint64_t bytes);
/* Releases idle segments, the largest first, until at most keep_bytes are idle. Returns the bytes
 * released. The caller has waited for the device's work. */
uint64_t gp_segment_release(struct gp_cache *cache, uint64_t keep_bytes);
/* PyTorch's release_available_cached_blocks: releases oversize segments of the heap only, until they are as large as the
 * request, and as max_split_bytes. False: they do not suffice; those that there were are gone all the same. */
bool gp_segment_release_oversize(struct gp_cache *cache, const struct gp_heap *heap, uint64_t bytes);
/* PyTorch's garbage_collect_cached_blocks, before `bytes` more are reserved. */
void gp_segment_collect(struct gp_cache *cache);
/* Releases the oldest idle dedicated segments until they are within their share of reserved
 * memory. */
void gp_segment_trim_dedicated(struct gp_cache *cache);
/* One segment that is idle as a whole, released in two steps: its records are dropped under `lock`,
 * then its memory is freed without it. */
struct gp_unlinked_segment {
    struct gp_heap_kind kind; /* of its heap, which may be dropped meanwhile */
    uint64_t stream, address, bytes;
    uint64_t time_ns; /* when it left the gauges */
    bool first_chunk;
};
void gp_segment_unlink_idle(struct gp_cache *cache, struct gp_segment *segment, struct gp_unlinked_segment *out);
/* False: the backend refused, and the segment is in the cache again. */
bool gp_segment_free_unlinked(struct gp_cache *cache, const struct gp_unlinked_segment *unlinked);
/* The segment is one idle block and may be released. */
bool gp_segment_is_idle(const struct gp_segment *segment);
struct gp_segment *gp_segment_new(struct gp_cache *cache, struct gp_heap *heap, uint64_t address, uint64_t bytes);
void gp_segment_drop(struct gp_cache *cache, struct gp_segment *segment); /* under lock; drops only the records */

#endif
