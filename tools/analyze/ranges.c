/* SPDX-License-Identifier: MIT
 * ranges.c: the ranges of addresses that caches hold; see flow.h. */
#include <analyze/flow.h>
#include <analyze/ranges.h>

#include <errno.h>
#include <read/common/hash.h>
#include <stddef.h>
#include <stdlib.h>

static uint64_t ranges_end(const struct gp_rec_event *event)
{
    uint64_t end;
    return __builtin_add_overflow(event->address, event->bytes, &end) ? UINT64_MAX : end;
}

static bool ranges_adds(const struct gp_rec_event *event)
{
    return event->type == GP_EVENT_SEGMENT_ALLOC || event->type == GP_EVENT_SEGMENT_MAP;
}

/* Adds the start of a range that an event can make: its own address, or the address after the hole
 * that it cuts. */
static void ranges_collect(struct gp_ranges *ranges, const struct gp_rec_event *event)
{
    if (!gp_ranges_takes(event))
        return;
    ranges->ranges[ranges->count++] =
        (struct gp_range){.start = ranges_adds(event) ? event->address : ranges_end(event), .device = event->device};
}

static int ranges_compare(const void *one, const void *other)
{
    const struct gp_range *a = one, *b = other;
    if (a->device != b->device)
        return GP_ORDER(a->device, b->device);
    return GP_ORDER(a->start, b->start);
}

int gp_ranges_init(struct gp_ranges *ranges, const struct gp_recording *recording)
{
    size_t events = 0;
    *ranges = (struct gp_ranges){0};
    for (size_t i = 0; i < recording->event_count; i++)
        events += gp_ranges_takes(&recording->events[i]);
    for (size_t i = 0; i < recording->baseline_count; i++)
        events += gp_ranges_takes(&recording->baseline[i]);
    if (events == 0)
        return 0;
    ranges->ranges = calloc(events, sizeof(*ranges->ranges));
    if (!ranges->ranges)
        return -ENOMEM;
    for (size_t i = 0; i < recording->baseline_count; i++)
        ranges_collect(ranges, &recording->baseline[i]);
    for (size_t i = 0; i < recording->event_count; i++)
        ranges_collect(ranges, &recording->events[i]);
    qsort(ranges->ranges, ranges->count, sizeof(*ranges->ranges), ranges_compare);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ranges->count; i++) {
        if (kept == 0 || ranges_compare(&ranges->ranges[kept - 1], &ranges->ranges[i]) != 0)
            ranges->ranges[kept++] = ranges->ranges[i];
    }
    ranges->count = kept;
    int rc = gp_ranges_bits_init(&ranges->live, kept);
    if (rc)
        gp_ranges_fini(ranges);
    return rc;
}

void gp_ranges_fini(struct gp_ranges *ranges)
{
    if (ranges->ranges)
        gp_ranges_bits_fini(&ranges->live);
    free(ranges->ranges);
    ranges->ranges = NULL;
}

/* Index of the last start at or before the address on the device; GP_BITS_NONE. */
static uint32_t ranges_at(const struct gp_ranges *ranges, uint8_t device, uint64_t address)
{
    struct gp_range key = {.start = address, .device = device};
    uint32_t low = 0, high = ranges->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ranges_compare(&ranges->ranges[middle], &key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low && ranges->ranges[low - 1].device == device ? low - 1 : GP_BITS_NONE;
}

const struct gp_range *gp_ranges_find(const struct gp_ranges *ranges, uint8_t device, uint64_t address)
{
    uint32_t at = ranges->count ? ranges_at(ranges, device, address) : GP_BITS_NONE;
    if (at != GP_BITS_NONE)
        at = gp_ranges_bits_before(&ranges->live, at);
    if (at == GP_BITS_NONE)
        return NULL;
    const struct gp_range *range = &ranges->ranges[at];
    return range->device == device && address < range->end ? range : NULL;
}

/* Removes [start, end) from the live ranges and returns the bytes removed.  A range may lose any
 * part: one run may be unmapped in pieces. */
static uint64_t ranges_cut(struct gp_ranges *ranges, uint8_t device, uint64_t start, uint64_t end)
{
    uint64_t gone = 0;
    const struct gp_range *first = gp_ranges_find(ranges, device, start);
    uint32_t at = first ? (uint32_t)(first - ranges->ranges) : ranges_at(ranges, device, start);
    at = gp_ranges_bits_next(&ranges->live, at == GP_BITS_NONE ? 0 : at);
    for (; at != GP_BITS_NONE; at = gp_ranges_bits_next(&ranges->live, at + 1)) {
        struct gp_range *range = &ranges->ranges[at];
        if (range->device > device || (range->device == device && range->start >= end))
            break;
        if (range->device < device || range->end <= start)
            continue;
        uint64_t from = range->start > start ? range->start : start, to = range->end < end ? range->end : end;
        uint64_t tail = range->end;
        gone += to - from;
        range->end = from;
        if (range->start >= start)
            gp_ranges_bits_remove(&ranges->live, at);
        if (tail > end) {
            uint32_t rest = ranges_at(ranges, device, end);
            if (rest != GP_BITS_NONE && ranges->ranges[rest].start == end) {
                ranges->ranges[rest].end = tail;
                ranges->ranges[rest].growable = range->growable;
                gp_ranges_bits_add(&ranges->live, rest);
            }
        }
    }
    return gone;
}

uint64_t gp_ranges_apply(struct gp_ranges *ranges, const struct gp_rec_event *event)
{
    uint64_t end = ranges_end(event), gone = ranges_cut(ranges, event->device, event->address, end);
    if (!ranges_adds(event))
        return gone;
    uint32_t at = ranges_at(ranges, event->device, event->address);
    ranges->ranges[at].end = end;
    ranges->ranges[at].growable = event->type == GP_EVENT_SEGMENT_MAP;
    gp_ranges_bits_add(&ranges->live, at);
    return end - event->address;
}
