/* SPDX-License-Identifier: MIT
 * flow.c: see flow.h. */
#include <analyze/fit.h>
#include <analyze/flow.h>
#include <analyze/ranges.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>

#include <base/numbers.h>
#include <read/common/hash.h>
#include <stdlib.h>

/* ---- the flow ---------------------------------------------------------------------------------------------------- */

/* What an item of this kind counts as. */
static uint8_t flow_parts(const struct gp_rec_event *event)
{
    /* Memory of cuMemCreate has events of segments, so one of a block is not that memory. */
    unsigned sums = event->kind == GP_KIND_VMM ? 0 : gp_kind_sums(event->kind);
    switch (event->type) {
    case GP_EVENT_ALLOC:
    case GP_EVENT_FREE:
        return GP_FLOW_KIND | (sums & GP_SUM_ALLOCATED ? GP_FLOW_SUMMED : 0) |
               (sums & GP_SUM_RESERVED ? GP_FLOW_RESERVED : 0);
    case GP_EVENT_SEGMENT_ALLOC:
    case GP_EVENT_SEGMENT_FREE:
        if (event->kind == GP_KIND_LINEAR)
            return GP_FLOW_RESERVED;
        return event->kind == GP_KIND_VMM ? GP_FLOW_RESERVED | GP_FLOW_KIND : GP_FLOW_KIND;
    case GP_EVENT_SEGMENT_MAP:
    case GP_EVENT_SEGMENT_UNMAP:
        if (event->kind == GP_KIND_LINEAR || event->kind == GP_KIND_POOL)
            return GP_FLOW_RESERVED;
        return event->kind == GP_KIND_VMM || event->kind == GP_KIND_GRAPH ? GP_FLOW_SUMMED : 0;
    default:
        return 0;
    }
}

static bool flow_opens(const struct gp_rec_event *event)
{
    return event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_SEGMENT_ALLOC ||
           event->type == GP_EVENT_SEGMENT_MAP;
}

static const struct gp_rec_event *flow_item(const struct gp_recording *recording, uint32_t id)
{
    return id < recording->event_count ? &recording->events[id] : &recording->baseline[id - recording->event_count];
}

static bool flow_sane(const struct gp_recording *recording, const struct gp_rec_event *event)
{
    return event->device < recording->device_count && event->site < recording->site_count && event->kind < GP_KINDS;
}

/* A block inside a segment of a cache does not count as reserved: the segment does. */
static uint8_t flow_open(const struct gp_flow *flow, const struct gp_ranges *ranges, const struct gp_rec_event *event)
{
    uint8_t what = GP_FLOW_OPEN | flow_parts(event);
    if (event->type == GP_EVENT_ALLOC && event->kind == GP_KIND_LINEAR && flow->has_segments[event->device] &&
        gp_ranges_find(ranges, event->device, event->address))
        what = (what & ~GP_FLOW_RESERVED) | GP_FLOW_CACHED;
    return what;
}

/* An end without a start: false if its item is no part of the numbers. Recorded from the first event, its
 * start was lost. After an attach the baseline has what was allocated since, so it is memory from before,
 * which gp_rec_before_at counts. */
static bool flow_was_there(const struct gp_recording *recording)
{
    return !recording->from_start && recording->attached != GP_REC_ATTACHED_YES;
}

static uint8_t flow_close(struct gp_flow *flow, size_t index)
{
    const struct gp_recording *recording = flow->recording;
    const struct gp_rec_event *event = &recording->events[index];
    uint32_t id = recording->peer[index];
    if (id == GP_REC_NONE || id >= recording->event_count + recording->baseline_count) {
        if (!flow_was_there(recording))
            return 0;
        flow->before_count++;
        return GP_FLOW_CLOSE | GP_FLOW_BEFORE | flow_parts(event);
    }
    if (id < recording->event_count && recording->peer[id] != index)
        return 0; /* the item ended when its address was allocated again */
    const struct gp_rec_event *item = flow_item(recording, id);
    uint8_t what = id < recording->event_count ? flow->what[id] : flow->baseline_what[id - recording->event_count];
    if (id >= recording->event_count)
        flow->baseline_end[id - recording->event_count] = (uint32_t)index;
    if (!(what & GP_FLOW_OPEN))
        return 0;
    bool own = item->bytes == event->bytes && item->unused == event->unused && item->site == event->site &&
               item->kind == event->kind && item->device == event->device && item->thread == event->thread;
    own |= event->type == GP_EVENT_SEGMENT_UNMAP; /* its bytes: gp_flow_bytes */
    return (what & ~GP_FLOW_OPEN) | GP_FLOW_CLOSE | (own ? GP_FLOW_OWN : 0);
}

/* Segments of caches have no pairs of start and end: see flow.h. */
static uint8_t flow_segment(struct gp_flow *flow, struct gp_ranges *ranges, const struct gp_rec_event *event)
{
    uint64_t moved = gp_ranges_apply(ranges, event);
    flow->has_segments[event->device] = true;
    if (flow_opens(event))
        return GP_FLOW_OPEN | GP_FLOW_RESERVED;
    if (moved)
        return GP_FLOW_CLOSE | GP_FLOW_OWN | GP_FLOW_RESERVED;
    if (!flow_was_there(flow->recording))
        return 0;
    flow->before_count++;
    return GP_FLOW_CLOSE | GP_FLOW_BEFORE | GP_FLOW_RESERVED;
}

static int flow_compare_ghosts(const void *one, const void *other)
{
    const struct gp_flow_ghost *a = one, *b = other;
    return GP_ORDER(a->at, b->at);
}

static bool flow_is_ghost(const struct gp_flow *flow, size_t i)
{
    uint32_t peer = flow->recording->peer[i];
    return (flow->what[i] & GP_FLOW_OPEN) && peer < flow->recording->event_count && peer > i &&
           flow->what[peer] & GP_FLOW_OPEN;
}

static bool flow_find_ghosts(struct gp_flow *flow)
{
    size_t count = 0;
    for (size_t i = 0; i < flow->recording->event_count; i++)
        count += flow_is_ghost(flow, i);
    if (count == 0)
        return true;
    flow->ghosts = calloc(count, sizeof(*flow->ghosts));
    if (!flow->ghosts)
        return false;
    for (size_t i = 0; i < flow->recording->event_count; i++) {
        if (flow_is_ghost(flow, i))
            flow->ghosts[flow->ghost_count++] =
                (struct gp_flow_ghost){.at = flow->recording->peer[i], .item = (uint32_t)i};
    }
    qsort(flow->ghosts, flow->ghost_count, sizeof(*flow->ghosts), flow_compare_ghosts);
    return true;
}

static void flow_fill(struct gp_flow *flow, struct gp_ranges *ranges)
{
    const struct gp_recording *recording = flow->recording;
    for (size_t i = 0; i < recording->baseline_count; i++) { /* segments before the blocks inside them */
        const struct gp_rec_event *event = &recording->baseline[i];
        flow->baseline_end[i] = GP_REC_NONE;
        if (flow_sane(recording, event) && gp_ranges_takes(event) && flow_opens(event))
            flow->baseline_what[i] = flow_segment(flow, ranges, event);
    }
    for (size_t i = 0; i < recording->baseline_count; i++) {
        const struct gp_rec_event *event = &recording->baseline[i];
        if (flow_sane(recording, event) && !gp_ranges_takes(event) && flow_opens(event))
            flow->baseline_what[i] = flow_open(flow, ranges, event);
    }
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (!flow_parts(event) || !flow_sane(recording, event))
            continue;
        if (gp_ranges_takes(event))
            flow->what[i] = flow_segment(flow, ranges, event);
        else
            flow->what[i] = flow_opens(event) ? flow_open(flow, ranges, event) : flow_close(flow, i);
    }
}

struct gp_flow *gp_flow_new(const struct gp_recording *recording)
{
    struct gp_flow *flow = calloc(1, sizeof(*flow));
    struct gp_ranges ranges;
    if (!flow || gp_ranges_init(&ranges, recording) != 0) {
        free(flow);
        return NULL;
    }
    flow->recording = recording;
    flow->what = calloc(recording->event_count + 1, 1);
    flow->baseline_what = calloc(recording->baseline_count + 1, 1);
    flow->baseline_end = calloc(recording->baseline_count + 1, sizeof(*flow->baseline_end));
    flow->has_segments = calloc(recording->device_count + 1u, 1);
    bool ok = flow->what && flow->baseline_what && flow->baseline_end && flow->has_segments;
    if (ok)
        flow_fill(flow, &ranges);
    gp_ranges_fini(&ranges);
    if (ok && flow_find_ghosts(flow))
        return flow;
    gp_flow_free(flow);
    return NULL;
}

void gp_flow_free(struct gp_flow *flow)
{
    if (!flow)
        return;
    free(flow->what);
    free(flow->baseline_what);
    free(flow->baseline_end);
    free(flow->ghosts);
    free(flow->has_segments);
    free(flow);
}

/* ---- the walk --------------------------------------------------------------------------------------------------- */

enum { GP_WALK_BASELINE, GP_WALK_BEFORE, GP_WALK_EVENTS };

#define GP_FLOW_PARTS (GP_FLOW_SUMMED | GP_FLOW_RESERVED | GP_FLOW_KIND | GP_FLOW_CACHED)

/* The items that were there when the recording started: its baseline, then those of which it has
 * only the end. */
static bool flow_next_before(struct gp_flow_walk *walk, struct gp_flow_change *change)
{
    const struct gp_flow *flow = walk->flow;
    const struct gp_recording *recording = flow->recording;
    bool baseline = walk->stage == GP_WALK_BASELINE;
    size_t end = baseline ? recording->baseline_count : flow->before_count ? recording->event_count : 0;
    const uint8_t *whats = baseline ? flow->baseline_what : flow->what;
    uint8_t wanted = baseline ? GP_FLOW_OPEN : GP_FLOW_BEFORE;
    while (walk->at < end && !(whats[walk->at] & wanted))
        walk->at++;
    if (walk->at == end)
        return false;
    *change = (struct gp_flow_change){
        .item = baseline ? &recording->baseline[walk->at] : &recording->events[walk->at],
        .time_ns = recording->begin_ns,
        .id = (uint32_t)(walk->at + (baseline ? recording->event_count : 0)),
        .event = GP_REC_NONE,
        .what = whats[walk->at] & GP_FLOW_PARTS,
        .add = true,
    };
    walk->at++;
    return true;
}

static void flow_ghost_change(struct gp_flow_walk *walk, struct gp_flow_change *change)
{
    const struct gp_flow *flow = walk->flow;
    uint32_t id = flow->ghosts[walk->ghost++].item;
    *change = (struct gp_flow_change){
        .item = &flow->recording->events[id],
        .time_ns = flow->recording->events[walk->at].time_ns,
        .id = id,
        .event = (uint32_t)walk->at,
        .what = flow->what[id] & GP_FLOW_PARTS,
        .add = false,
    };
}

bool gp_flow_next(struct gp_flow_walk *walk, struct gp_flow_change *change)
{
    const struct gp_flow *flow = walk->flow;
    const struct gp_recording *recording = flow->recording;
    while (walk->stage != GP_WALK_EVENTS) {
        if (flow_next_before(walk, change))
            return true;
        walk->stage++;
        walk->at = 0;
    }
    size_t at = walk->at;
    while (at < recording->event_count && !flow->what[at])
        at++;
    walk->at = at;
    if (at == recording->event_count)
        return false;
    if (walk->ghost < flow->ghost_count && flow->ghosts[walk->ghost].at == at) {
        flow_ghost_change(walk, change);
        return true;
    }
    const struct gp_rec_event *event = &recording->events[at];
    uint8_t what = flow->what[at];
    bool paired = (what & GP_FLOW_CLOSE) && !(what & GP_FLOW_BEFORE) && !gp_ranges_takes(event);
    uint32_t id = paired ? recording->peer[at] : (uint32_t)at;
    *change = (struct gp_flow_change){
        .item = paired && !(what & GP_FLOW_OWN) ? flow_item(recording, id) : event,
        .time_ns = event->time_ns,
        .id = id,
        .event = (uint32_t)at,
        .what = what & GP_FLOW_PARTS,
        .add = what & GP_FLOW_OPEN,
    };
    walk->at++;
    return true;
}

uint32_t gp_flow_end(const struct gp_flow *flow, uint32_t id)
{
    const struct gp_recording *recording = flow->recording;
    if (id >= recording->event_count)
        return flow->baseline_end[id - recording->event_count];
    return flow->what[id] & GP_FLOW_BEFORE ? id : recording->peer[id];
}

/* ---- polled reserves -------------------------------------------------------------------------------------------- */

static bool polled_kind(const struct gp_rec_event *event, uint32_t device)
{
    return event->device == device && (event->kind == GP_KIND_POOL || event->kind == GP_KIND_GRAPH) &&
           event->type == GP_EVENT_ALLOC;
}

struct gp_flow_polled gp_flow_polled_begin(const struct gp_flow *flow, uint32_t device)
{
    const struct gp_recording *recording = flow->recording;
    struct gp_flow_polled polled = {.recording = recording, .device = device};
    if (recording->polled) /* the flow has it */
        return polled;
    for (size_t i = 0; i < recording->event_count && !polled.use; i++)
        polled.use = polled_kind(&recording->events[i], device);
    for (size_t i = 0; i < recording->baseline_count && !polled.use; i++)
        polled.use = polled_kind(&recording->baseline[i], device);
    return polled;
}

void gp_flow_polled_advance(struct gp_flow_polled *polled, uint64_t time_ns, const struct gp_level *level)
{
    const struct gp_recording *recording = polled->recording;
    while (polled->use && polled->at < recording->sample_count && recording->samples[polled->at].time_ns <= time_ns) {
        const struct gp_rec_sample *sample = &recording->samples[polled->at++];
        if (sample->device != polled->device || sample->reserved_bytes < 0)
            continue;
        polled->extra = sample->reserved_bytes > level->reserved ? sample->reserved_bytes - level->reserved : 0;
    }
}

/* Pools hold at least their live blocks, even if the last poll is older than some of them. */
static int64_t polled_extra(const struct gp_flow_polled *polled, const struct gp_level *level)
{
    int64_t extra = polled->use && polled->extra > level->held ? polled->extra : level->held;
    return extra > level->pool ? extra : level->pool > 0 ? level->pool : 0;
}

int64_t gp_flow_polled_reserved(const struct gp_flow_polled *polled, const struct gp_level *level)
{
    int64_t reserved = (int64_t)((uint64_t)level->reserved + (uint64_t)polled_extra(polled, level));
    /* What is allocated lies in reserved memory; both polled parts are bounds. */
    return level->graph > 0 && level->allocated > reserved ? level->allocated : reserved;
}

int64_t gp_flow_polled_idle(const struct gp_flow_polled *polled, const struct gp_level *level)
{
    int64_t idle = (int64_t)((uint64_t)polled_extra(polled, level) - (uint64_t)level->pool - (uint64_t)level->graph);
    return idle > 0 ? idle : 0;
}

int64_t gp_flow_left(const struct gp_flow *flow, uint32_t device, uint64_t time_ns, int64_t reserved)
{
    const struct gp_recording *recording = flow->recording;
    int64_t total = recording->devices[device].total_bytes, held = reserved, used = -1, beside = 0;
    uint64_t context;
    int64_t before = gp_rec_before_at(recording, device, time_ns).bytes;
    for (size_t i = 0; i < recording->sample_count && recording->samples[i].time_ns <= time_ns; i++) {
        const struct gp_rec_sample *sample = &recording->samples[i];
        if (sample->device != device || sample->used_bytes < 0)
            continue;
        used = sample->used_bytes;
        /* Contexts and other programs: the process has allocated more since. */
        beside = sample->reserved_bytes >= 0 && used > sample->reserved_bytes ? used - sample->reserved_bytes : 0;
    }
    if (used < 0 && gp_fit_context_find(recording, device, 0, 0, &context) == GP_FIT_ESTIMATED)
        beside = (int64_t)context;
    GP_RAISE(beside, before);
    if (__builtin_add_overflow(reserved, beside, &held))
        held = INT64_MAX;
    GP_RAISE(used, held);
    return total <= 0 ? -1 : total > used ? total - used : 0;
}
