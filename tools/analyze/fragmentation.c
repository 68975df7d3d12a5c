/* SPDX-License-Identifier: MIT
 * fragmentation.c: how much of the reserved memory is in use; see analyze.h.  The largest free
 * block depends on the free memory of every segment.  Addresses are sorted once, and each search
 * then runs over the live blocks in their order.
 */
#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <analyze/ranges.h>
#include <analyze/tally.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>

#include <stdlib.h>

/* Moments at which the largest free block is searched; each search runs over all live blocks. */
#define GP_FRAGMENT_SEARCHES 200u

struct gp_fragment_blocks { /* of caches, on one device */
    struct gp_tally ranks;  /* key: address; extra: its index in starts[] */
    uint64_t *starts, *ends;
    struct gp_bits live;
    struct gp_ranges ranges;
    uint32_t device;
};

struct gp_fragment_free {
    uint64_t bytes, largest;
};

static bool fragment_wants(const struct gp_flow_change *change, uint32_t device)
{
    return change->item->device == device && change->what & GP_FLOW_CACHED;
}

static bool fragment_init(struct gp_fragment_blocks *blocks, const struct gp_flow *flow, uint32_t device)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    *blocks = (struct gp_fragment_blocks){.device = device};
    if (gp_ranges_init(&blocks->ranges, flow->recording) != 0)
        return false;
    while (gp_flow_next(&walk, &change)) {
        if (change.add && fragment_wants(&change, device) && !gp_tally_at(&blocks->ranks, change.item->address))
            return false;
    }
    size_t count = blocks->ranks.count;
    blocks->starts = calloc(count + 1, sizeof(*blocks->starts));
    blocks->ends = calloc(count + 1, sizeof(*blocks->ends));
    if (!blocks->starts || !blocks->ends || gp_ranges_bits_init(&blocks->live, (uint32_t)count) != 0)
        return false;
    for (size_t i = 0; i < count; i++)
        blocks->starts[i] = blocks->ranks.rows[i].key;
    qsort(blocks->starts, count, sizeof(*blocks->starts), gp_order_u64);
    for (size_t i = 0; i < count; i++)
        gp_tally_at(&blocks->ranks, blocks->starts[i])->extra = i;
    return true;
}

static void fragment_fini(struct gp_fragment_blocks *blocks)
{
    gp_tally_fini(&blocks->ranks);
    free(blocks->starts);
    free(blocks->ends);
    gp_ranges_bits_fini(&blocks->live);
    gp_ranges_fini(&blocks->ranges);
}

static void fragment_apply(struct gp_fragment_blocks *blocks, const struct gp_flow *flow,
                           const struct gp_flow_change *change)
{
    if (gp_ranges_takes(change->item)) {
        if (change->event != GP_REC_NONE || change->id >= flow->recording->event_count)
            gp_ranges_apply(&blocks->ranges, change->item);
        return;
    }
    if (!fragment_wants(change, blocks->device))
        return;
    uint32_t rank = (uint32_t)gp_tally_at(&blocks->ranks, change->item->address)->extra;
    uint64_t end;
    if (__builtin_add_overflow(change->item->address, change->item->bytes, &end))
        end = UINT64_MAX;
    if (!change->add) {
        gp_ranges_bits_remove(&blocks->live, rank);
        return;
    }
    blocks->ends[rank] = end;
    gp_ranges_bits_add(&blocks->live, rank);
}

static void fragment_hole(struct gp_fragment_free *free_bytes, uint64_t from, uint64_t to)
{
    if (to <= from)
        return;
    free_bytes->bytes += to - from;
    GP_RAISE(free_bytes->largest, to - from);
}

/* Adds the free memory in [start, end).  *next: the first live block that may be there. */
static void fragment_scan(const struct gp_fragment_blocks *blocks, uint64_t start, uint64_t end, uint32_t *next,
                          struct gp_fragment_free *out)
{
    uint64_t at = start;
    while (*next != GP_BITS_NONE && blocks->starts[*next] < end) {
        if (blocks->starts[*next] >= start) {
            fragment_hole(out, at, blocks->starts[*next]);
            GP_RAISE(at, blocks->ends[*next]);
        }
        *next = gp_ranges_bits_next(&blocks->live, *next + 1);
    }
    fragment_hole(out, at, end);
}

static struct gp_fragment_free fragment_search(const struct gp_fragment_blocks *blocks)
{
    struct gp_fragment_free out = {0};
    const struct gp_ranges *ranges = &blocks->ranges;
    uint32_t next = blocks->live.count ? gp_ranges_bits_next(&blocks->live, 0) : GP_BITS_NONE;
    uint32_t i = ranges->count ? gp_ranges_bits_next(&ranges->live, 0) : GP_BITS_NONE;
    while (i != GP_BITS_NONE) {
        const struct gp_range *range = &ranges->ranges[i];
        uint64_t start = range->start, end = range->end;
        i = gp_ranges_bits_next(&ranges->live, i + 1);
        if (range->device != blocks->device)
            continue;
        /* Adjacent runs of pages are one piece of memory. */
        while (range->growable && i != GP_BITS_NONE && ranges->ranges[i].growable &&
               ranges->ranges[i].device == blocks->device && ranges->ranges[i].start == end) {
            end = ranges->ranges[i].end;
            i = gp_ranges_bits_next(&ranges->live, i + 1);
        }
        fragment_scan(blocks, start, end, &next, &out);
    }
    return out;
}

struct gp_fragment_peak {
    uint64_t change; /* its number in the walk, from 1; 0: none */
    int64_t bytes, part;
};

struct gp_fragment_peaks {
    struct gp_fragment_peak reserved;  /* part: allocated */
    struct gp_fragment_peak allocated; /* part: requested */
};

/* Finds the peaks.  Only changes that are events make one, and the state at the end. */
static struct gp_fragment_peaks fragment_peaks(const struct gp_flow *flow, uint32_t device)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    struct gp_level level = {0};
    struct gp_flow_polled polled = gp_flow_polled_begin(flow, device);
    struct gp_fragment_peaks peaks = {0};
    bool more = true;
    for (uint64_t n = 1; more; n++) {
        more = gp_flow_next(&walk, &change);
        if (more && change.item->device != device)
            continue;
        if (more) {
            gp_flow_polled_advance(&polled, change.time_ns, &level);
            gp_level_apply(&level, &change);
        }
        if (more && change.event == GP_REC_NONE)
            continue;
        int64_t reserved = gp_flow_polled_reserved(&polled, &level);
        /* Of moments with the same reserve choose the fullest: a cache that is still empty says
         * nothing about use. */
        if (reserved > peaks.reserved.bytes ||
            (reserved == peaks.reserved.bytes && level.allocated > peaks.reserved.part))
            peaks.reserved = (struct gp_fragment_peak){n, reserved, level.allocated};
        if (level.allocated > peaks.allocated.bytes)
            peaks.allocated = (struct gp_fragment_peak){n, level.allocated, level.requested};
    }
    return peaks;
}

struct gp_fragment_state {
    struct gp_fragmentation *result;
    struct gp_fragment_blocks *blocks;
    struct gp_level level;
    struct gp_flow_polled polled;
};

static void fragment_point(struct gp_fragment_state *state, uint64_t time_ns, bool search)
{
    struct gp_fragmentation *result = state->result;
    result->points[result->count++] = (struct gp_fragment_point){
        .time_ns = time_ns,
        .reserved_bytes = gp_flow_polled_reserved(&state->polled, &state->level),
        .allocated_bytes = state->level.allocated,
        .requested_bytes = state->level.requested,
        .largest_free_bytes = result->has_segments && search ? (int64_t)fragment_search(state->blocks).largest : -1,
    };
}

static void fragment_walk(struct gp_fragmentation *result, struct gp_fragment_blocks *blocks,
                          const struct gp_flow *flow, uint32_t points, const struct gp_fragment_peaks *peaks)
{
    const struct gp_recording *recording = flow->recording;
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    struct gp_fragment_state state = {result, blocks, {0}, gp_flow_polled_begin(flow, result->device)};
    uint64_t span = recording->end_ns > recording->begin_ns ? recording->end_ns - recording->begin_ns : 1;
    uint32_t every = (points + GP_FRAGMENT_SEARCHES - 1) / GP_FRAGMENT_SEARCHES;
    bool more = true;
    uint32_t even = 0; /* moments so far */
    for (uint64_t n = 1; more; n++) {
        more = gp_flow_next(&walk, &change);
        for (; even < points; even++) {
            uint64_t moment = recording->begin_ns + (uint64_t)((__uint128_t)span * even / (points - 1));
            if (more && (change.event == GP_REC_NONE || change.time_ns <= moment))
                break;
            gp_flow_polled_advance(&state.polled, moment, &state.level);
            /* A peak at this very moment is its point already. */
            if (!result->count || result->points[result->count - 1].time_ns < moment || even == points - 1)
                fragment_point(&state, moment, even % every == 0 || !more);
        }
        if (!more)
            break;
        if (result->has_segments)
            fragment_apply(blocks, flow, &change);
        if (change.item->device != result->device)
            continue;
        gp_flow_polled_advance(&state.polled, change.time_ns, &state.level);
        gp_level_apply(&state.level, &change);
        if ((n == peaks->reserved.change || n == peaks->allocated.change) && change.time_ns <= recording->end_ns)
            fragment_point(&state, change.time_ns, true);
    }
}

struct gp_fragmentation *gp_flow_fragmentation(const struct gp_flow *flow, uint32_t device, uint32_t points)
{
    struct gp_fragment_blocks blocks;
    struct gp_fragment_peaks peaks = fragment_peaks(flow, device);
    points = points < 2 ? 2 : points;
    struct gp_fragmentation *result = calloc(1, sizeof(*result) + (points + 2) * sizeof(struct gp_fragment_point));
    if (!result || !fragment_init(&blocks, flow, device)) {
        if (result)
            fragment_fini(&blocks);
        free(result);
        return NULL;
    }
    result->device = device;
    result->has_segments = flow->has_segments[device];
    fragment_walk(result, &blocks, flow, points, &peaks);
    const struct gp_fragment_peak *reserved = &peaks.reserved, *allocated = &peaks.allocated;
    result->utilisation = reserved->bytes > 0 ? (double)reserved->part / (double)reserved->bytes : 1;
    result->internal = allocated->bytes > 0 ? 1 - (double)allocated->part / (double)allocated->bytes : 0;
    struct gp_fragment_free left = fragment_search(&blocks);
    result->external = left.bytes ? 1 - (double)left.largest / (double)left.bytes : 0;
    fragment_fini(&blocks);
    return result;
}
