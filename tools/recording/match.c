/* SPDX-License-Identifier: MIT
 *
 * match.c: finds the free that ends each allocation; see recording.h.
 */
#include <errno.h>
#include <recording/recording.h>
#include <stdlib.h>
#include <string.h>

struct gp_match {
    uint32_t *slots; /* index of a live allocation + 1; open addressing, linear probing */
    uint64_t mask, live;
    const struct gp_recording *recording;
};

/* Whether another event can end this one. Segments of a growable cache are mapped in runs and
 * unmapped page by page, so they have no pairs. */
static bool match_opens(const struct gp_rec_event *event)
{
    return event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_SEGMENT_ALLOC ||
           (event->type == GP_EVENT_SEGMENT_MAP && event->kind != GP_KIND_LINEAR);
}

static bool match_closes(const struct gp_rec_event *event)
{
    return event->type == GP_EVENT_FREE || event->type == GP_EVENT_SEGMENT_FREE ||
           (event->type == GP_EVENT_SEGMENT_UNMAP && event->kind != GP_KIND_LINEAR);
}

/* The address space of an event: handles of physical memory and arrays are not addresses, and a
 * segment has the address of its first block. */
static unsigned match_space(const struct gp_rec_event *event)
{
    if (event->type == GP_EVENT_SEGMENT_ALLOC || event->type == GP_EVENT_SEGMENT_FREE)
        return event->kind == GP_KIND_LINEAR ? GP_KINDS : GP_KINDS + 1;
    if (event->type == GP_EVENT_SEGMENT_MAP || event->type == GP_EVENT_SEGMENT_UNMAP)
        return GP_KINDS + 2;
    switch (event->kind) {
    case GP_KIND_ARRAY:
    case GP_KIND_VMM:
    case GP_KIND_VIRTUAL:
    case GP_KIND_MODULE:
    case GP_KIND_CONTEXT:
    case GP_KIND_REGISTERED:
    case GP_KIND_GRAPH:
        return event->kind;
    default:
        return GP_KIND_LINEAR;
    }
}

static const struct gp_rec_event *match_event(const struct gp_recording *recording, uint32_t index)
{
    return index < recording->event_count ? &recording->events[index]
                                          : &recording->baseline[index - recording->event_count];
}

static uint64_t match_hash(const struct gp_rec_event *event)
{
    uint64_t key = event->address ^ (uint64_t)event->device << 56 ^ (uint64_t)match_space(event) << 48;
    key = (key ^ key >> 32) * 0x9e3779b97f4a7c15ull; /* Fibonacci hashing, as ds/map.c */
    return key ^ key >> 29;
}

static bool match_same(const struct gp_rec_event *one, const struct gp_rec_event *other)
{
    return one->address == other->address && one->device == other->device && match_space(one) == match_space(other);
}

/* The slot of the event's key, or the empty one where it would be. */
static uint32_t *match_slot(const struct gp_match *match, const struct gp_rec_event *event)
{
    uint64_t at = match_hash(event) & match->mask;
    while (match->slots[at] && !match_same(match_event(match->recording, match->slots[at] - 1), event))
        at = (at + 1) & match->mask;
    return &match->slots[at];
}

/* Linear probing without tombstones: each following entry of the run moves into the gap if its own
 * place is at or before the gap. */
static void match_remove(const struct gp_match *match, uint32_t *slot)
{
    uint64_t gap = (uint64_t)(slot - match->slots), at = gap;
    for (;;) {
        at = (at + 1) & match->mask;
        if (!match->slots[at])
            break;
        uint64_t ideal = match_hash(match_event(match->recording, match->slots[at] - 1)) & match->mask;
        if (((at - ideal) & match->mask) < ((at - gap) & match->mask))
            continue;
        match->slots[gap] = match->slots[at];
        gap = at;
    }
    match->slots[gap] = 0;
}

/* A free is recorded after the driver has freed, so another thread may have got the address, and
 * recorded that, before. Such a late free ends the earlier allocation at the address: the one that
 * was live until the address was allocated again. If events were lost, it may also be the free of
 * the newer allocation, the older one's free being lost; then a free counts as late only within
 * this time. A thread is rarely stopped for longer between two instructions. */
#define GP_MATCH_LATE_NS 1000000ull

/* While an allocation is live, its peer is the older one (with a smaller index) whose address it
 * got, if any. */
static bool match_late(const struct gp_recording *recording, uint32_t alloc, size_t close)
{
    if (alloc >= recording->event_count || recording->peer[alloc] == GP_REC_NONE)
        return false;
    return recording->dropped == 0 ||
           recording->events[close].time_ns - recording->events[alloc].time_ns < GP_MATCH_LATE_NS;
}

static void match_open(struct gp_match *match, struct gp_recording *recording, uint32_t *slot, uint32_t i)
{
    uint32_t old = *slot - 1;
    match->live += !*slot;
    if (*slot && old < recording->event_count) {
        recording->peer[old] = i;
        recording->peer[i] = old;
    }
    *slot = i + 1;
}

static void match_close(struct gp_match *match, struct gp_recording *recording, uint32_t *slot, uint32_t i)
{
    uint32_t alloc = *slot - 1;
    if (match_late(recording, alloc, i)) {
        recording->peer[i] = recording->peer[alloc];
        recording->peer[alloc] = GP_REC_NONE;
        return;
    }
    recording->peer[i] = alloc;
    if (alloc < recording->event_count)
        recording->peer[alloc] = i;
    match_remove(match, slot);
    match->live--;
}

/* Makes room for one more; half of the table stays empty. The table grows with the number of live
 * allocations, not of all: that number fits into a processor's caches. */
static bool match_room(struct gp_match *match)
{
    if (match->slots && (match->live + 1) * 2 <= match->mask + 1)
        return true;
    struct gp_match old = *match;
    match->mask = old.slots ? old.mask * 2 + 1 : 1023;
    match->slots = calloc(match->mask + 1, sizeof(uint32_t));
    if (!match->slots) {
        *match = old;
        return false;
    }
    for (uint64_t i = 0; old.slots && i <= old.mask; i++) {
        if (old.slots[i])
            *match_slot(match, match_event(match->recording, old.slots[i] - 1)) = old.slots[i];
    }
    free(old.slots);
    return true;
}

static bool match_baseline(struct gp_match *match)
{
    const struct gp_recording *recording = match->recording;
    for (size_t i = 0; i < recording->baseline_count; i++) {
        if (!match_room(match))
            return false;
        uint32_t *slot = match_slot(match, &recording->baseline[i]);
        match->live += !*slot;
        *slot = (uint32_t)(recording->event_count + i + 1);
    }
    return true;
}

int gp_recording_match(struct gp_recording *recording)
{
    struct gp_match match = {.recording = recording};
    bool ok = match_room(&match) && match_baseline(&match);
    for (size_t i = 0; ok && i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        bool opens = match_opens(event);
        recording->peer[i] = GP_REC_NONE;
        if (!opens && !match_closes(event))
            continue;
        ok = match_room(&match);
        if (!ok)
            break;
        uint32_t *slot = match_slot(&match, event);
        if (opens)
            match_open(&match, recording, slot, (uint32_t)i);
        else if (*slot)
            match_close(&match, recording, slot, (uint32_t)i);
    }
    for (uint64_t i = 0; ok && i <= match.mask; i++) {
        uint32_t live = match.slots[i] - 1;
        if (match.slots[i] && live < recording->event_count)
            recording->peer[live] = GP_REC_NONE;
    }
    free(match.slots);
    return ok ? 0 : -ENOMEM;
}
