/* SPDX-License-Identifier: MIT
 * match.c: which free ends which allocation; see recording.h. */
#include <errno.h>
#include <recording/recording.h>
#include <stdlib.h>
#include <string.h>

struct gp_match {
    uint32_t *slots; /* index of a live allocation + 1; open addressing, linear probing */
    uint64_t mask;
    const struct gp_recording *recording;
};

/* What shares an address space: handles of physical memory and arrays are no addresses. */
static unsigned gp_match_space(unsigned kind)
{
    switch (kind) {
    case GP_KIND_ARRAY:
    case GP_KIND_VMM:
    case GP_KIND_VIRTUAL:
    case GP_KIND_MODULE:
    case GP_KIND_CONTEXT:
    case GP_KIND_REGISTERED:
    case GP_KIND_GRAPH:
        return kind;
    default:
        return GP_KIND_LINEAR;
    }
}

static const struct gp_rec_event *gp_match_event(const struct gp_recording *recording, uint32_t index)
{
    return index < recording->event_count ? &recording->events[index]
                                          : &recording->baseline[index - recording->event_count];
}

static uint64_t gp_match_hash(const struct gp_rec_event *event)
{
    uint64_t key = event->address ^ (uint64_t)event->device << 56 ^ (uint64_t)gp_match_space(event->kind) << 48;
    key = (key ^ key >> 32) * 0x9e3779b97f4a7c15ull; /* Fibonacci hashing, as ds/map.c */
    return key ^ key >> 29;
}

static bool gp_match_same(const struct gp_rec_event *one, const struct gp_rec_event *other)
{
    return one->address == other->address && one->device == other->device &&
           gp_match_space(one->kind) == gp_match_space(other->kind);
}

/* The slot of the event's key, or the empty one where it would be. */
static uint32_t *gp_match_slot(const struct gp_match *match, const struct gp_rec_event *event)
{
    uint64_t at = gp_match_hash(event) & match->mask;
    while (match->slots[at] && !gp_match_same(gp_match_event(match->recording, match->slots[at] - 1), event))
        at = (at + 1) & match->mask;
    return &match->slots[at];
}

/* Linear probing without tombstones: what follows in the run moves up if its own place is at or before the gap. */
static void gp_match_remove(const struct gp_match *match, uint32_t *slot)
{
    uint64_t gap = (uint64_t)(slot - match->slots), at = gap;
    for (;;) {
        at = (at + 1) & match->mask;
        if (!match->slots[at])
            break;
        uint64_t home = gp_match_hash(gp_match_event(match->recording, match->slots[at] - 1)) & match->mask;
        if (((at - home) & match->mask) < ((at - gap) & match->mask))
            continue;
        match->slots[gap] = match->slots[at];
        gap = at;
    }
    match->slots[gap] = 0;
}

int gp_recording_match(struct gp_recording *recording)
{
    uint64_t allocs = recording->baseline_count, size = 64;
    for (size_t i = 0; i < recording->event_count; i++) {
        recording->peer[i] = GP_REC_NONE;
        allocs += recording->events[i].type == GP_EVENT_ALLOC;
    }
    while (size < allocs * 2)
        size *= 2;
    struct gp_match match = {calloc(size, sizeof(uint32_t)), size - 1, recording};
    if (!match.slots)
        return -ENOMEM;
    for (size_t i = 0; i < recording->baseline_count; i++)
        *gp_match_slot(&match, &recording->baseline[i]) = (uint32_t)(recording->event_count + i + 1);
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (event->type != GP_EVENT_ALLOC && event->type != GP_EVENT_FREE)
            continue;
        uint32_t *slot = gp_match_slot(&match, event);
        if (event->type == GP_EVENT_ALLOC) {
            *slot = (uint32_t)i + 1; /* an address that comes again: its free was lost */
        } else if (*slot) {
            uint32_t alloc = *slot - 1;
            recording->peer[i] = alloc;
            if (alloc < recording->event_count)
                recording->peer[alloc] = (uint32_t)i;
            gp_match_remove(&match, slot);
        }
    }
    free(match.slots);
    return 0;
}
