/* SPDX-License-Identifier: MIT
 * cut.c: reduces a recording to a part of its time; see analyze.h.  What was live at the start of
 * the part becomes the baseline, as if recording had started there. */
#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <analyze/ranges.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/common/parse.h>
#include <read/recording/recording.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct gp_cut {
    struct gp_recording *recording;
    uint64_t from_ns, to_ns;
    struct gp_bits live; /* items by id */
    struct gp_ranges ranges;
    struct gp_rec_event *baseline;
    size_t count;
};

static int cut_compare(const void *one, const void *other)
{
    const struct gp_rec_event *a = one, *b = other;
    return GP_ORDER(a->time_ns, b->time_ns);
}

/* Replays the changes before from_ns. */
static void cut_replay(struct gp_cut *cut, const struct gp_flow *flow)
{
    const struct gp_recording *recording = cut->recording;
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    while (gp_flow_next(&walk, &change) && (change.event == GP_REC_NONE || change.time_ns < cut->from_ns)) {
        /* An item that is known only from its end stays so if that event is still there. Of a range it
         * is left out in each case: its place among the others is unknown. */
        bool known = change.event != GP_REC_NONE || change.id >= recording->event_count;
        bool range = gp_ranges_takes(change.item);
        if (!known && (range || change.item->time_ns <= cut->to_ns))
            continue;
        if (range)
            gp_ranges_apply(&cut->ranges, change.item);
        else if (change.add)
            gp_ranges_bits_add(&cut->live, change.id);
        else
            gp_ranges_bits_remove(&cut->live, change.id);
    }
}

/* The item as the event that started it. */
static struct gp_rec_event cut_start(const struct gp_recording *recording, uint32_t id)
{
    struct gp_rec_event event =
        id < recording->event_count ? recording->events[id] : recording->baseline[id - recording->event_count];
    if (event.type != GP_EVENT_FREE && event.type != GP_EVENT_SEGMENT_FREE && event.type != GP_EVENT_SEGMENT_UNMAP)
        return event;
    event.type = event.type == GP_EVENT_FREE           ? GP_EVENT_ALLOC
                 : event.type == GP_EVENT_SEGMENT_FREE ? GP_EVENT_SEGMENT_ALLOC
                                                       : GP_EVENT_SEGMENT_MAP;
    event.time_ns = recording->begin_ns;
    return event;
}

static bool cut_baseline(struct gp_cut *cut)
{
    const struct gp_recording *recording = cut->recording;
    size_t room = cut->ranges.count;
    for (uint32_t id = gp_ranges_bits_next(&cut->live, 0); id != GP_BITS_NONE;
         id = gp_ranges_bits_next(&cut->live, id + 1))
        room++;
    cut->baseline = calloc(room + 1, sizeof(*cut->baseline));
    if (!cut->baseline)
        return false;
    for (uint32_t i = cut->ranges.count ? gp_ranges_bits_next(&cut->ranges.live, 0) : GP_BITS_NONE; i != GP_BITS_NONE;
         i = gp_ranges_bits_next(&cut->ranges.live, i + 1)) {
        const struct gp_range *range = &cut->ranges.ranges[i];
        cut->baseline[cut->count++] =
            (struct gp_rec_event){.time_ns = recording->begin_ns,
                                  .address = range->start,
                                  .bytes = range->end - range->start,
                                  .type = range->growable ? GP_EVENT_SEGMENT_MAP : GP_EVENT_SEGMENT_ALLOC,
                                  .kind = GP_KIND_LINEAR,
                                  .device = range->device};
    }
    for (uint32_t id = gp_ranges_bits_next(&cut->live, 0); id != GP_BITS_NONE;
         id = gp_ranges_bits_next(&cut->live, id + 1))
        cut->baseline[cut->count++] = cut_start(recording, id);
    qsort(cut->baseline, cut->count, sizeof(*cut->baseline), cut_compare);
    return true;
}

/* Keeps what lies in [from, to], and of each device the last sample before. */
static void cut_samples(struct gp_recording *recording, uint64_t from_ns, uint64_t to_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < recording->sample_count; i++) {
        struct gp_rec_sample sample = recording->samples[i];
        bool last = true;
        for (size_t k = i + 1; k < recording->sample_count && recording->samples[k].time_ns < from_ns && last; k++)
            last = recording->samples[k].device != sample.device;
        if (sample.time_ns > to_ns || (sample.time_ns < from_ns && !last))
            continue;
        sample.time_ns = sample.time_ns < from_ns ? from_ns : sample.time_ns;
        recording->samples[kept++] = sample;
    }
    recording->sample_count = kept;
}

static void cut_sleeps(struct gp_recording *recording, uint64_t from_ns, uint64_t to_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < recording->sleep_count; i++)
        if (recording->sleeps[i].time_ns >= from_ns && recording->sleeps[i].time_ns <= to_ns)
            recording->sleeps[kept++] = recording->sleeps[i];
    recording->sleep_count = kept;
}

static void cut_events(struct gp_recording *recording, uint64_t from_ns, uint64_t to_ns)
{
    size_t first = 0, end = 0;
    for (; end < recording->event_count && recording->events[end].time_ns <= to_ns; end++)
        first += recording->events[end].time_ns < from_ns;
    memmove(recording->events, recording->events + first, (end - first) * sizeof(*recording->events));
    recording->event_count = end - first;
}

int gp_recording_moment(const struct gp_recording *recording, const char *text, uint64_t *time_ns)
{
    uint64_t after_ns;
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (event->type != GP_EVENT_MARK || event->bytes >= recording->string_bytes)
            continue;
        const char *name = recording->strings + event->bytes;
        if (strcmp(name, text) != 0 && (strncmp(name, "nvtx:", 5) != 0 || strcmp(name + 5, text) != 0))
            continue;
        *time_ns = event->time_ns;
        return 0;
    }
    int rc = gp_parse_duration(text, &after_ns);
    if (rc)
        return rc == -ERANGE ? rc : -ENOENT;
    if (after_ns > recording->end_ns - recording->begin_ns)
        return -ERANGE;
    *time_ns = recording->begin_ns + after_ns;
    return 0;
}

int gp_recording_cut(struct gp_recording *recording, uint64_t from_ns, uint64_t to_ns)
{
    struct gp_cut cut = {.recording = recording, .from_ns = from_ns, .to_ns = to_ns};
    struct gp_flow *flow = gp_flow_new(recording);
    bool ok = flow && gp_ranges_init(&cut.ranges, recording) == 0;
    if (ok && gp_ranges_bits_init(&cut.live, (uint32_t)(recording->event_count + recording->baseline_count + 1)) == 0) {
        cut_replay(&cut, flow);
        ok = cut_baseline(&cut);
        gp_ranges_bits_fini(&cut.live);
    } else {
        ok = false;
    }
    if (flow)
        gp_ranges_fini(&cut.ranges);
    gp_flow_free(flow);
    if (!ok)
        return -ENOMEM;
    free(recording->baseline);
    recording->baseline = cut.baseline;
    recording->baseline_count = cut.count;
    cut_events(recording, from_ns, to_ns);
    cut_samples(recording, from_ns, to_ns);
    cut_sleeps(recording, from_ns, to_ns);
    recording->part_of_ns = recording->part_of_ns ? recording->part_of_ns : recording->end_ns - recording->begin_ns;
    recording->part_from_ns += from_ns - recording->begin_ns;
    recording->begin_unix_ns += from_ns - recording->begin_ns;
    recording->begin_ns = from_ns;
    recording->end_ns = to_ns;
    for (uint32_t i = 0; i < recording->device_count; i++)
        recording->devices[i].has_last = false; /* of the whole time */
    return gp_recording_match(recording);
}
