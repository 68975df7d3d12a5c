/* SPDX-License-Identifier: MIT
 *
 * ranges.h: the address ranges that caches hold, updated event by event.  A range is a segment, or
 * a run of mapped pages of a growable segment; pages may be unmapped in other pieces than they were
 * mapped.
 */
#ifndef GP_ANALYZE_RANGES_H
#define GP_ANALYZE_RANGES_H

#include <analyze/bits.h>
#include <read/recording/recording.h>

struct gp_range {
    uint64_t start, end; /* end is valid only while the range is in `live` */
    uint8_t device;
    bool growable; /* adjacent growable ranges are one piece */
};

struct gp_ranges {
    struct gp_range *ranges; /* every start that the recording has, by device and address */
    uint32_t count;
    struct gp_bits live;
};

/* The event is about a segment of a cache. */
static inline bool gp_ranges_takes(const struct gp_rec_event *event)
{
    return event->kind == GP_KIND_LINEAR && event->type >= GP_EVENT_SEGMENT_ALLOC &&
           event->type <= GP_EVENT_SEGMENT_UNMAP;
}

/* Prepares for the events of a recording; no range is live yet.  count is 0 if no event is about a
 * segment.  0 or -ENOMEM. */
int gp_ranges_init(struct gp_ranges *ranges, const struct gp_recording *recording);
void gp_ranges_fini(struct gp_ranges *ranges);
/* Applies an event; returns how many bytes it added or removed. */
uint64_t gp_ranges_apply(struct gp_ranges *ranges, const struct gp_rec_event *event);
/* The live range that contains the address, or NULL. */
const struct gp_range *gp_ranges_find(const struct gp_ranges *ranges, uint8_t device, uint64_t address);

#endif
