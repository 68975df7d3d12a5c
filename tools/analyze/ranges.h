/* SPDX-License-Identifier: MIT
 *
 * ranges.h: sets of numbers, and ranges of addresses in their order.
 */
#ifndef GP_ANALYZE_RANGES_H
#define GP_ANALYZE_RANGES_H

#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <stdbool.h>
#include <stdint.h>

/* The address ranges that caches hold, updated event by event.  A range is a segment, or a run of
 * mapped pages of a growable segment; pages may be unmapped in other pieces than they were mapped. */

/* An ordered set of small numbers, with add, remove, next and before in at most GP_BITS_LEVELS
 * steps.  The analyses sort the addresses of a recording once and use such a set to find the live
 * block at an address. */

#define GP_BITS_LEVELS 6 /* 64^6 > 2^32 */
#define GP_BITS_NONE   UINT32_MAX

struct gp_bits {
    uint64_t *words;                 /* of all levels */
    uint64_t *level[GP_BITS_LEVELS]; /* [0]: a bit per number; [n]: a bit per word of [n - 1], set if it is not 0 */
    uint32_t count;
    unsigned levels;
};

/* Makes an empty set of numbers below count.  0 or -ENOMEM. */
int gp_ranges_bits_init(struct gp_bits *bits, uint32_t count);
void gp_ranges_bits_fini(struct gp_bits *bits);

static inline bool gp_bits_has(const struct gp_bits *bits, uint32_t number)
{
    return bits->level[0][number / 64] >> (number % 64) & 1;
}

void gp_ranges_bits_add(struct gp_bits *bits, uint32_t number);
void gp_ranges_bits_remove(struct gp_bits *bits, uint32_t number);
/* The smallest member >= from; GP_BITS_NONE if there is none. */
uint32_t gp_ranges_bits_next(const struct gp_bits *bits, uint32_t from);
/* The largest member <= from; GP_BITS_NONE if there is none. */
uint32_t gp_ranges_bits_before(const struct gp_bits *bits, uint32_t from);

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
