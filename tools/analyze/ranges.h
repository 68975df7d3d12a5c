/* SPDX-License-Identifier: MIT
 *
 * ranges.h: the address ranges that caches hold, while events come and go: segments, and runs of mapped pages of
 * growable ones, which are unmapped in other pieces than they were mapped.
 */
#ifndef GP_ANALYZE_RANGES_H
#define GP_ANALYZE_RANGES_H

#include <analyze/bits.h>
#include <recording/recording.h>

struct gp_range {
    uint64_t start, end; /* end: of what lies here now; meaningless while it is not in `live` */
    uint8_t device;
    bool growable; /* joins with its neighbours */
};

struct gp_ranges {
    struct gp_range *ranges; /* by device and start: every start that the recording ever shows */
    uint32_t count;
    struct gp_bits live;
};

/* Is it an event about segments of a cache? */
static inline bool gp_ranges_takes(const struct gp_rec_event *event)
{
    return event->kind == GP_KIND_LINEAR && event->type >= GP_EVENT_SEGMENT_ALLOC &&
           event->type <= GP_EVENT_SEGMENT_UNMAP;
}

/* Nothing live yet.  0, -ENOMEM.  Without such events in the recording: count 0. */
int gp_ranges_init(struct gp_ranges *ranges, const struct gp_recording *recording);
void gp_ranges_fini(struct gp_ranges *ranges);
/* Returns how many bytes came or went. */
uint64_t gp_ranges_apply(struct gp_ranges *ranges, const struct gp_rec_event *event);
/* The live range that holds the address, or NULL. */
const struct gp_range *gp_ranges_find(const struct gp_ranges *ranges, uint8_t device, uint64_t address);

#endif
