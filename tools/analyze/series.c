/* SPDX-License-Identifier: MIT
 * series.c: bytes over time; see analyze.h.  Every change is a point if there is room.  Otherwise
 * time is divided into equal stretches, each with its lowest and its highest value, so that a plot
 * shows every peak. */
#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>

#include <stdlib.h>

struct gp_series_maker {
    const struct gp_recording *recording;
    struct gp_series *series;
    uint32_t points; /* room */
    bool coarse;
    uint64_t width; /* of a stretch, ns */
};

static uint64_t series_span(const struct gp_recording *recording)
{
    return recording->end_ns > recording->begin_ns ? recording->end_ns - recording->begin_ns : 1;
}

static uint64_t series_clamp(const struct gp_recording *recording, uint64_t time_ns)
{
    if (time_ns < recording->begin_ns)
        return recording->begin_ns;
    return time_ns > recording->end_ns && recording->end_ns >= recording->begin_ns ? recording->end_ns : time_ns;
}

/* A point is valid until the next one, so a stretch with changes ends with a point where none follows at once. */
static void series_settle(struct gp_series_maker *maker, uint64_t until_ns)
{
    struct gp_series *series = maker->series;
    const struct gp_series_point *last = series->count ? &series->points[series->count - 1] : NULL;
    if (!maker->coarse || !last || last->low == last->high || until_ns - last->time_ns <= maker->width ||
        series->count == maker->points)
        return;
    series->points[series->count++] = (struct gp_series_point){
        .time_ns = last->time_ns + maker->width, .low = last->last, .high = last->last, .last = last->last};
}

/* The value is `value` from time_ns on. */
static void series_put(struct gp_series_maker *maker, uint64_t time_ns, int64_t value)
{
    struct gp_series *series = maker->series;
    struct gp_series_point *last = series->count ? &series->points[series->count - 1] : NULL;
    uint64_t begin = maker->recording->begin_ns, at = series_clamp(maker->recording, time_ns);
    if (maker->coarse)
        at = begin + (at - begin) / maker->width * maker->width;
    if (last && last->time_ns == at) {
        /* The value at the start of a stretch counts, except one that lasted no time. */
        GP_LOWER(last->low, value);
        GP_RAISE(last->high, value);
        last->last = value;
        return;
    }
    if (last && last->last == value && last->low == last->high && !maker->coarse)
        return;
    series_settle(maker, at);
    int64_t from = last && maker->coarse ? last->last : value;
    if (series->count == maker->points)
        return;
    series->points[series->count++] = (struct gp_series_point){
        .time_ns = at, .low = from < value ? from : value, .high = from > value ? from : value, .last = value};
}

static bool series_new(struct gp_series_maker *maker, const struct gp_flow *flow, size_t changes, uint32_t points)
{
    points = points < 4 ? 4 : points;
    *maker = (struct gp_series_maker){.recording = flow->recording, .points = points};
    maker->coarse = changes + 2 > points;
    /* Three points of reserve: the start, the end, and a last stretch that is shorter. */
    maker->width = series_span(flow->recording) / (points - 3) + 1;
    uint32_t room = maker->coarse ? points : (uint32_t)changes + 2;
    maker->points = room;
    maker->series = calloc(1, sizeof(*maker->series) + (room + 1) * sizeof(struct gp_series_point));
    return maker->series;
}

static struct gp_series *series_end(struct gp_series_maker *maker)
{
    struct gp_series *series = maker->series;
    int64_t value = series->count ? series->points[series->count - 1].last : 0;
    uint64_t end = series_clamp(maker->recording, maker->recording->end_ns);
    series_settle(maker, end);
    if (series->count == 0 || series->points[series->count - 1].time_ns < end)
        series->points[series->count++] =
            (struct gp_series_point){.time_ns = end, .low = value, .high = value, .last = value};
    return series;
}

struct gp_series_point gp_series_range(const struct gp_series *series, uint64_t from_ns, uint64_t until_ns)
{
    uint32_t low = 0, high = series->count;
    struct gp_series_point range = {.time_ns = from_ns};
    while (low < high) { /* the first point at or after from_ns */
        uint32_t middle = low + (high - low) / 2;
        if (series->points[middle].time_ns < from_ns)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0)
        range.low = range.high = range.last = series->points[low - 1].last;
    else if (low < series->count)
        range = series->points[low++];
    for (uint32_t i = low; i < series->count && series->points[i].time_ns < until_ns; i++) {
        const struct gp_series_point *point = &series->points[i];
        GP_LOWER(range.low, point->low);
        GP_RAISE(range.high, point->high);
        range.last = point->last;
    }
    range.time_ns = from_ns;
    return range;
}

static bool series_wants(const struct gp_flow_change *change, uint32_t device, enum gp_wire_kind kind)
{
    if (change->item->device != device)
        return false;
    if (kind == GP_KIND_NONE)
        return change->what & GP_FLOW_SUMMED;
    return (change->what & GP_FLOW_KIND) && change->item->kind == kind;
}

static size_t series_changes(const struct gp_flow *flow, uint32_t device, enum gp_wire_kind kind)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    size_t count = 0;
    while (gp_flow_next(&walk, &change))
        count += change.event != GP_REC_NONE && series_wants(&change, device, kind);
    return count;
}

/* requested: without what was rounded up. */
static struct gp_series *series_sum(const struct gp_flow *flow, uint32_t device, enum gp_wire_kind kind, bool requested,
                                    uint32_t points)
{
    struct gp_series_maker maker;
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    uint64_t value = 0;
    bool begun = false;
    if (!series_new(&maker, flow, series_changes(flow, device, kind), points))
        return NULL;
    while (gp_flow_next(&walk, &change)) {
        if (!begun && change.event != GP_REC_NONE) {
            series_put(&maker, flow->recording->begin_ns, (int64_t)value);
            begun = true;
        }
        if (!series_wants(&change, device, kind))
            continue;
        uint64_t bytes = requested ? gp_rec_requested(change.item) : gp_flow_bytes(&change);
        value += change.add ? bytes : -bytes;
        if (begun)
            series_put(&maker, change.time_ns, (int64_t)value);
    }
    if (!begun)
        series_put(&maker, flow->recording->begin_ns, (int64_t)value);
    return series_end(&maker);
}

struct gp_series *gp_flow_allocated(const struct gp_flow *flow, uint32_t device, enum gp_wire_kind kind,
                                    uint32_t points)
{
    return series_sum(flow, device, kind, false, points);
}

struct gp_series *gp_flow_requested(const struct gp_flow *flow, uint32_t device, uint32_t points)
{
    return series_sum(flow, device, GP_KIND_NONE, true, points);
}

/* The reserved bytes of a device along a walk: put into a series, or only counted. */
struct gp_reserved {
    struct gp_series_maker *maker; /* NULL: none yet */
    struct gp_flow_polled polled;
    struct gp_level level;
    int64_t value;
    uint64_t time_ns; /* of the value */
    size_t changes;
    bool swung;        /* it changed twice at that time, so that a point ends the swing */
    bool begun, apart; /* apart: it was not what was allocated, at one moment */
};

static void reserved_see(struct gp_reserved *reserved, uint64_t time_ns)
{
    int64_t value = gp_flow_polled_reserved(&reserved->polled, &reserved->level);
    bool later = time_ns > reserved->time_ns, moved = value != reserved->value;
    reserved->changes += moved || (later && reserved->swung);
    reserved->swung = !later && (moved || reserved->swung);
    reserved->time_ns = time_ns;
    reserved->value = value;
    reserved->apart |= value != reserved->level.allocated;
    if (reserved->maker)
        series_put(reserved->maker, time_ns, value);
}

static void reserved_begin(struct gp_reserved *reserved, const struct gp_recording *recording)
{
    if (!reserved->begun)
        reserved_see(reserved, recording->begin_ns);
    reserved->begun = true;
}

/* Sees each sample until then: of several between two events any may be the highest. */
static void reserved_advance(struct gp_reserved *reserved, const struct gp_recording *recording, uint64_t time_ns)
{
    while (reserved->polled.at < recording->sample_count) {
        size_t sampled = reserved->polled.at;
        uint64_t at_ns = recording->samples[sampled].time_ns;
        if (at_ns > time_ns)
            return;
        gp_flow_polled_advance(&reserved->polled, at_ns, &reserved->level);
        if (sampled == reserved->polled.at) /* nothing is polled */
            return;
        if (reserved->begun)
            reserved_see(reserved, at_ns);
    }
}

static struct gp_reserved reserved_walk(const struct gp_flow *flow, uint32_t device, struct gp_series_maker *maker)
{
    struct gp_reserved reserved = {.maker = maker, .polled = gp_flow_polled_begin(flow, device)};
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    while (gp_flow_next(&walk, &change)) {
        if (change.event != GP_REC_NONE)
            reserved_begin(&reserved, flow->recording);
        if (change.item->device != device || !(change.what & (GP_FLOW_RESERVED | GP_FLOW_SUMMED)))
            continue;
        reserved_advance(&reserved, flow->recording, change.time_ns);
        gp_level_apply(&reserved.level, &change);
        if (reserved.begun)
            reserved_see(&reserved, change.time_ns);
    }
    reserved_begin(&reserved, flow->recording);
    reserved_advance(&reserved, flow->recording, flow->recording->end_ns);
    return reserved;
}

struct gp_series *gp_flow_reserved(const struct gp_flow *flow, uint32_t device, uint32_t points)
{
    struct gp_series_maker maker;
    if (!series_new(&maker, flow, reserved_walk(flow, device, NULL).changes, points))
        return NULL;
    reserved_walk(flow, device, &maker);
    return series_end(&maker);
}

bool gp_flow_reserved_apart(const struct gp_flow *flow, uint32_t device)
{
    return reserved_walk(flow, device, NULL).apart;
}

struct gp_series *gp_series_allocated(const struct gp_recording *recording, uint32_t device, enum gp_wire_kind kind,
                                      uint32_t points)
{
    struct gp_flow *flow = gp_flow_new(recording);
    struct gp_series *series = flow ? gp_flow_allocated(flow, device, kind, points) : NULL;
    gp_flow_free(flow);
    return series;
}

struct gp_series *gp_series_reserved(const struct gp_recording *recording, uint32_t device, uint32_t points)
{
    struct gp_flow *flow = gp_flow_new(recording);
    struct gp_series *series = flow ? gp_flow_reserved(flow, device, points) : NULL;
    gp_flow_free(flow);
    return series;
}
