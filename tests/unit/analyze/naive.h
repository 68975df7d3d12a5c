/* SPDX-License-Identifier: MIT
 * naive.h: what lives in a small recording, taken from its events and their pairs without a walk. */
#ifndef GP_TEST_UNIT_NAIVE_H
#define GP_TEST_UNIT_NAIVE_H

#include "tiny_fixture.h"

#define RECORDINGS 200u
#define NEVER      INT64_MAX

static inline bool summed(uint8_t kind)
{
    return kind == GP_KIND_LINEAR || kind == GP_KIND_PITCHED || kind == GP_KIND_ARRAY || kind == GP_KIND_POOL ||
           kind == GP_KIND_PINNED || kind == GP_KIND_REGISTERED;
}

/* Some memory from one moment until another.  Both are times of events; UINT64_MAX: to the end. */
struct span {
    uint64_t from, to, bytes, off; /* off: what its end takes off */
    int64_t first, last;           /* these events; -1: it was there, NEVER: to the end */
    const struct gp_rec_event *item;
    uint32_t id;
};

static inline uint64_t end_of(const struct gp_recording *recording, uint32_t id, uint32_t *end)
{
    *end = GP_REC_NONE;
    for (uint32_t i = 0; i < recording->event_count && id >= recording->event_count; i++)
        if (recording->peer[i] == id)
            *end = i;
    if (id < recording->event_count)
        *end = recording->peer[id];
    return *end == GP_REC_NONE ? UINT64_MAX : recording->events[*end].time_ns;
}

/* All that counts as allocated on the device, in the order of its starts. */
static inline unsigned spans_of(const struct gp_recording *recording, uint32_t device, struct span *spans)
{
    unsigned count = 0;
    bool was_there = !recording->from_start && recording->attached != GP_REC_ATTACHED_YES;
    size_t all = recording->baseline_count + recording->event_count;
    for (unsigned pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < all; i++) {
            bool early = i < recording->baseline_count;
            uint32_t at = (uint32_t)(i - recording->baseline_count), end,
                     id = early ? (uint32_t)(recording->event_count + i) : at;
            const struct gp_rec_event *event = early ? &recording->baseline[i] : &recording->events[at];
            bool map = event->type == GP_EVENT_SEGMENT_MAP && event->kind == GP_KIND_VMM;
            bool start = (event->type == GP_EVENT_ALLOC && summed(event->kind)) || map;
            bool unmap = event->type == GP_EVENT_SEGMENT_UNMAP && event->kind == GP_KIND_VMM;
            bool only_end = !early && ((event->type == GP_EVENT_FREE && summed(event->kind)) || unmap) &&
                            recording->peer[at] == GP_REC_NONE && was_there;
            if (event->device != device || (pass ? early || !start : !(early && start) && !only_end))
                continue;
            struct span *span = &spans[count++];
            *span = (struct span){.from = start && !early ? event->time_ns : 0, .item = event, .id = id};
            span->bytes = map || unmap ? event->bytes - event->unused : event->bytes;
            end = GP_REC_NONE;
            span->to = only_end ? event->time_ns : end_of(recording, id, &end);
            span->off = span->bytes;
            span->first = start && !early ? (int64_t)at : -1;
            span->last = only_end ? at : end == GP_REC_NONE ? NEVER : end;
            if (!only_end && map && end != GP_REC_NONE && recording->events[end].type == GP_EVENT_SEGMENT_UNMAP)
                span->off = recording->events[end].bytes - recording->events[end].unused;
        }
    return count;
}

/* Memory of a kind, which is not that of a cache's segments or of mappings: on any device, from the event `first` (-1: it
 * was there) until `last`. */
struct item {
    const struct gp_rec_event *event;
    int64_t first, last;
    uint64_t from, to; /* times of these events; 0: it was there, UINT64_MAX: NEVER */
    bool early;        /* in the baseline */
};

static inline unsigned items_of(const struct gp_recording *recording, struct item *items)
{
    unsigned count = 0;
    bool was_there = !recording->from_start && recording->attached != GP_REC_ATTACHED_YES;
    for (size_t i = 0; i < recording->baseline_count + recording->event_count; i++) {
        bool early = i < recording->baseline_count;
        int64_t at = (int64_t)(i - recording->baseline_count);
        const struct gp_rec_event *event = early ? &recording->baseline[i] : &recording->events[at];
        bool segment = event->type == GP_EVENT_SEGMENT_ALLOC || event->type == GP_EVENT_SEGMENT_FREE;
        bool start = event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_SEGMENT_ALLOC;
        bool only_end = !early && was_there && recording->peer[at] == GP_REC_NONE &&
                        (event->type == GP_EVENT_FREE || event->type == GP_EVENT_SEGMENT_FREE);
        if ((segment && event->kind == GP_KIND_LINEAR) || (!start && !only_end))
            continue;
        struct item *item = &items[count++];
        uint32_t end = GP_REC_NONE;
        *item = (struct item){.event = event, .early = early, .first = early || only_end ? -1 : at, .last = at};
        item->from = item->first < 0 ? 0 : event->time_ns;
        item->to = only_end ? event->time_ns
                            : end_of(recording, (uint32_t)(early ? recording->event_count + i : (size_t)at), &end);
        item->last = only_end ? at : end == GP_REC_NONE ? NEVER : end;
    }
    return count;
}

#endif
