/* SPDX-License-Identifier: MIT
 * segments.c: makes the map of a device's memory at one moment; see analyze.h. */
#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <analyze/ranges.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>

#include <stdlib.h>
#include <string.h>

struct gp_map_maker {
    struct gp_map_block *live; /* blocks of caches, then the others, each of which is a segment of its own */
    size_t cached_count, own_count;
    struct gp_map_segment *segments;
    size_t segment_count;
};

static bool map_wants(const struct gp_flow_change *change, uint32_t device)
{
    return change->add && change->item->device == device && change->what & GP_FLOW_SUMMED;
}

static bool map_alive(const struct gp_flow *flow, const struct gp_flow_change *change, uint64_t at_ns)
{
    uint32_t end = gp_flow_end(flow, change->id);
    return change->time_ns <= at_ns && (end == GP_REC_NONE || flow->recording->events[end].time_ns > at_ns);
}

static int map_compare_blocks(const void *one, const void *other)
{
    const struct gp_map_block *a = one, *b = other;
    return GP_ORDER(a->address, b->address);
}

static int map_compare_segments(const void *one, const void *other)
{
    const struct gp_map_segment *a = one, *b = other;
    if (a->address != b->address)
        return GP_ORDER(a->address, b->address);
    return GP_ORDER(a->cached, b->cached);
}

/* Collects the blocks that are live at the moment: those of caches from the front, the others from
 * the back. */
static bool map_blocks(struct gp_map_maker *maker, const struct gp_flow *flow, uint32_t device, uint64_t at_ns)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    size_t count = 0;
    while (gp_flow_next(&walk, &change))
        count += map_wants(&change, device) && map_alive(flow, &change, at_ns);
    maker->live = calloc(count + 1, sizeof(*maker->live));
    if (!maker->live)
        return false;
    walk = gp_flow_begin(flow);
    while (gp_flow_next(&walk, &change)) {
        if (!map_wants(&change, device) || !map_alive(flow, &change, at_ns))
            continue;
        size_t to = change.what & GP_FLOW_CACHED ? maker->cached_count++ : count - ++maker->own_count;
        maker->live[to] = (struct gp_map_block){.address = change.item->address,
                                                .bytes = change.item->bytes,
                                                .requested_bytes = gp_rec_requested(change.item),
                                                .site = change.item->site,
                                                .state = GP_BLOCK_LIVE,
                                                .kind = change.item->kind};
    }
    qsort(maker->live, maker->cached_count, sizeof(*maker->live), map_compare_blocks);
    return true;
}

static bool map_segments(struct gp_map_maker *maker, const struct gp_flow *flow, uint32_t device, uint64_t at_ns)
{
    struct gp_ranges ranges;
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    if (gp_ranges_init(&ranges, flow->recording) != 0)
        return false;
    while (gp_flow_next(&walk, &change) && (change.event == GP_REC_NONE || change.time_ns <= at_ns)) {
        /* A range of which the recording has only the end is left out: its place among the others
         * is unknown. */
        if (gp_ranges_takes(change.item) && !(change.event == GP_REC_NONE && change.id < flow->recording->event_count))
            gp_ranges_apply(&ranges, change.item);
    }
    maker->segments = calloc(ranges.count + maker->own_count + 1, sizeof(*maker->segments));
    struct gp_map_segment *last = NULL;
    bool growable = false;
    uint32_t i = ranges.count && maker->segments ? gp_ranges_bits_next(&ranges.live, 0) : GP_BITS_NONE;
    for (; i != GP_BITS_NONE; i = gp_ranges_bits_next(&ranges.live, i + 1)) {
        const struct gp_range *range = &ranges.ranges[i];
        if (range->device != device || range->end <= range->start)
            continue;
        if (last && growable && range->growable && last->address + last->bytes == range->start) {
            last->bytes += range->end - range->start;
            continue;
        }
        last = &maker->segments[maker->segment_count++];
        *last = (struct gp_map_segment){
            .address = range->start, .bytes = range->end - range->start, .kind = GP_KIND_LINEAR, .cached = true};
        growable = range->growable;
    }
    for (size_t k = 0; maker->segments && k < maker->own_count; k++) {
        const struct gp_map_block *block = &maker->live[maker->cached_count + k];
        maker->segments[maker->segment_count++] = (struct gp_map_segment){
            .address = block->address, .bytes = block->bytes, .kind = block->kind, .block_count = (uint32_t)k};
    }
    gp_ranges_fini(&ranges);
    if (maker->segments)
        qsort(maker->segments, maker->segment_count, sizeof(*maker->segments), map_compare_segments);
    return maker->segments;
}

static void map_put(struct gp_segments *map, struct gp_map_segment *segment, const struct gp_map_block *block)
{
    if (block->bytes == 0 && block->state != GP_BLOCK_LIVE)
        return;
    map->blocks[map->block_count++] = *block;
    segment->block_count++;
}

/* Adds the blocks of one segment of a cache and the idle memory between them.  next: the first
 * block that may be in the segment; returns the first one after it. */
static size_t map_fill(const struct gp_map_maker *maker, struct gp_segments *map, struct gp_map_segment *segment,
                       size_t next)
{
    uint64_t at = segment->address, end = segment->address + segment->bytes;
    for (; next < maker->cached_count && maker->live[next].address < end; next++) {
        struct gp_map_block block = maker->live[next];
        if (block.address < at)
            continue; /* overlaps the block before it, whose free was lost */
        map_put(map, segment,
                &(struct gp_map_block){.address = at, .bytes = block.address - at, .state = GP_BLOCK_IDLE});
        block.bytes = block.bytes < end - block.address ? block.bytes : end - block.address;
        map_put(map, segment, &block);
        at = block.address + block.bytes;
    }
    map_put(map, segment, &(struct gp_map_block){.address = at, .bytes = end - at, .state = GP_BLOCK_IDLE});
    return next;
}

static struct gp_segments *map_make(const struct gp_map_maker *maker, uint32_t device)
{
    size_t blocks = maker->cached_count * 2 + maker->segment_count * 2, next = 0;
    struct gp_segments *map = calloc(1, sizeof(*map) + maker->segment_count * sizeof(struct gp_map_segment) +
                                            (blocks + 1) * sizeof(struct gp_map_block));
    if (!map)
        return NULL;
    map->device = device;
    map->segments = (struct gp_map_segment *)(map + 1);
    map->blocks = (struct gp_map_block *)(map->segments + maker->segment_count);
    map->segment_count = (uint32_t)maker->segment_count;
    for (size_t i = 0; i < maker->segment_count; i++) {
        struct gp_map_segment *segment = &map->segments[i];
        *segment = maker->segments[i];
        segment->first_block = map->block_count;
        if (segment->cached) {
            next = map_fill(maker, map, segment, next);
            continue;
        }
        size_t own = segment->block_count; /* map_segments stored the index of the block here */
        segment->block_count = 0;
        map_put(map, segment, &maker->live[maker->cached_count + own]);
    }
    return map;
}

struct gp_segments *gp_flow_segments(const struct gp_flow *flow, uint32_t device, uint64_t at_ns)
{
    struct gp_map_maker maker = {0};
    struct gp_segments *map = NULL;
    at_ns = at_ns ? at_ns : UINT64_MAX;
    if (map_blocks(&maker, flow, device, at_ns) && map_segments(&maker, flow, device, at_ns))
        map = map_make(&maker, device);
    free(maker.live);
    free(maker.segments);
    return map;
}

struct gp_segments *gp_segments_at(const struct gp_recording *recording, uint32_t device, uint64_t at_ns)
{
    struct gp_flow *flow = gp_flow_new(recording);
    struct gp_segments *map = flow ? gp_flow_segments(flow, device, at_ns) : NULL;
    gp_flow_free(flow);
    return map;
}
