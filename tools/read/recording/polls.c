/* SPDX-License-Identifier: MIT
 *
 * polls.c: what pools and graphs held. A file has the readings of polls (docs/format.md), each with the time from
 * before it to after it. They become memory with a start and an end, so that every walk over the events counts it.
 *
 * A reading holds at one instant of its poll, so it can be added to the least other bytes of the poll (account/polled.h
 * has the argument): such a sum is proved. From there to the next reading it counts on, until the sum would be above the
 * highest one that is proved up to then; from there on it counts as far as it is not.
 *
 * See internal.h. Takes three passes over the events.
 */
#include <gpuprof/wire.h>
#include <read/recording/internal.h>
#include <read/recording/recording.h>

#include <base/numbers.h>
#include <errno.h>
#include <stdlib.h>

enum { POLL_USED, POLL_RESERVED, POLL_SUMS }; /* graphs, in allocated bytes; pools and graphs, in reserved ones */

struct poll_reading {
    uint8_t device;
    uint32_t thread, next;                     /* next: of the device, + 1; 0: none */
    int64_t value[POLL_SUMS], rose[POLL_SUMS]; /* rose: a watermark that rose since the reading before; 0: none */
    int64_t low[POLL_SUMS], since[POLL_SUMS];  /* the least other bytes during the poll; since the one before began */
    uint32_t low_at[POLL_SUMS], since_at[POLL_SUMS]; /* before this event they were so low */
    int64_t high[POLL_SUMS], limit[POLL_SUMS]; /* the most other bytes from there to the next reading's place, and the
                                                  highest sum that is proved there */
};

struct poll_device {
    int64_t own[POLL_SUMS], most[POLL_SUMS]; /* other bytes, at least and at most: where a cache has segments it is
                                                not known which blocks are inside */
    int64_t low[POLL_SUMS], since[POLL_SUMS], high[POLL_SUMS], proved[POLL_SUMS];
    uint32_t low_at[POLL_SUMS], since_at[POLL_SUMS];
    bool open, segments, again;
    uint32_t site, nodes; /* of all nodes of graphs, if they have one site; else 0 */
    struct poll_reading now;
    uint32_t first, newest;                      /* readings, + 1 */
    uint32_t last[POLL_SUMS], coming[POLL_SUMS]; /* whose place came last, and comes next */
    bool limited[POLL_SUMS];
    int64_t told[POLL_SUMS]; /* what the events say now */
};

struct poll_change { /* before event `at` the value is this; for no time, if it is a spike */
    uint32_t at, order, reading;
    int64_t value;
    uint8_t sum;
    bool spike;
};

struct poll_work {
    struct gp_recording *recording;
    struct poll_device *devices;
    struct poll_reading *readings;
    size_t count, room;
    struct poll_change *changes;
    size_t change_count;
};

static bool poll_is_reading(const struct gp_rec_event *event)
{
    return gp_wire_is_poll(event->type, event->kind);
}

static int64_t poll_sum(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b); /* sizes of a damaged file may wrap */
}

/* The totals that have the event's bytes, as flow.c counts them. */
static unsigned poll_sums(const struct gp_rec_event *event)
{
    bool block = event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_FREE;
    bool handle = event->type == GP_EVENT_SEGMENT_ALLOC || event->type == GP_EVENT_SEGMENT_FREE;
    bool mapping = event->type == GP_EVENT_SEGMENT_MAP || event->type == GP_EVENT_SEGMENT_UNMAP;
    if (block)
        return event->kind == GP_KIND_VMM ? 0 : gp_kind_sums(event->kind);
    if (event->kind == GP_KIND_LINEAR && (handle || mapping))
        return GP_SUM_RESERVED;
    if (event->kind != GP_KIND_VMM)
        return 0;
    return handle ? GP_SUM_RESERVED : mapping ? GP_SUM_ALLOCATED : 0;
}

/* What the event adds to the device's other bytes. */
static void poll_move(struct poll_device *device, const struct gp_rec_event *event)
{
    bool starts =
        event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_SEGMENT_ALLOC || event->type == GP_EVENT_SEGMENT_MAP;
    unsigned sums = poll_sums(event);
    uint64_t bytes = event->bytes;
    if (sums == GP_SUM_ALLOCATED && event->kind == GP_KIND_VMM)
        bytes = event->unused == UINT32_MAX ? 0 : gp_rec_requested(event);
    int64_t move = (int64_t)(starts ? bytes : -bytes);
    if (sums & GP_SUM_ALLOCATED) {
        device->own[POLL_USED] = poll_sum(device->own[POLL_USED], move);
        device->most[POLL_USED] = device->own[POLL_USED];
    }
    if (sums & GP_SUM_RESERVED) {
        bool block = event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_FREE;
        bool inside = block && event->kind == GP_KIND_LINEAR && device->segments;
        device->own[POLL_RESERVED] = poll_sum(device->own[POLL_RESERVED], inside ? 0 : move);
        device->most[POLL_RESERVED] = poll_sum(device->most[POLL_RESERVED], move);
    }
}

static void poll_node(struct poll_device *device, uint32_t site)
{
    device->site = !device->nodes || device->site == site ? site : 0;
    device->nodes = 1;
}

static void poll_baseline(struct poll_work *work)
{
    const struct gp_recording *r = work->recording;
    for (size_t i = 0; i < r->event_count + r->baseline_count; i++) {
        const struct gp_rec_event *event = i < r->event_count ? &r->events[i] : &r->baseline[i - r->event_count];
        if (event->device < r->device_count && event->kind == GP_KIND_LINEAR && event->type >= GP_EVENT_SEGMENT_ALLOC &&
            event->type <= GP_EVENT_SEGMENT_UNMAP)
            work->devices[event->device].segments = true;
        if (event->device < r->device_count && event->kind == GP_KIND_GRAPH && event->type == GP_EVENT_ALLOC)
            poll_node(&work->devices[event->device], event->site);
    }
    for (size_t i = 0; i < r->baseline_count; i++)
        if (r->baseline[i].device < r->device_count && !poll_is_reading(&r->baseline[i]))
            poll_move(&work->devices[r->baseline[i].device], &r->baseline[i]);
}

/* Before event `at`. Of several such moments the last one counts, which is not before a mark that came between. */
static void poll_lower(struct poll_device *device, uint32_t at)
{
    for (unsigned sum = 0; sum < POLL_SUMS; sum++)
        if (device->own[sum] <= device->low[sum]) {
            device->low[sum] = device->own[sum];
            device->low_at[sum] = at;
        }
}

static void poll_begins(struct poll_device *device, const struct gp_rec_event *event, uint32_t at)
{
    device->open = true;
    device->now = (struct poll_reading){.device = event->device, .thread = event->thread};
    for (unsigned sum = 0; sum < POLL_SUMS; sum++) {
        device->since[sum] = device->low[sum];
        device->since_at[sum] = device->low_at[sum];
        device->low[sum] = device->own[sum];
        device->low_at[sum] = at;
    }
}

static bool poll_ends(struct poll_work *work, struct poll_device *device)
{
    struct poll_reading *now = &device->now;
    if (work->count == work->room) {
        size_t room = work->room ? work->room * 2 : 256;
        struct poll_reading *more = realloc(work->readings, room * sizeof(*more));
        if (!more)
            return false;
        work->readings = more;
        work->room = room;
    }
    for (unsigned sum = 0; sum < POLL_SUMS; sum++) {
        bool now_lower = device->low[sum] <= device->since[sum];
        now->low[sum] = device->low[sum];
        now->low_at[sum] = device->low_at[sum];
        now->since[sum] = now_lower ? device->low[sum] : device->since[sum];
        now->since_at[sum] = now_lower ? device->low_at[sum] : device->since_at[sum];
    }
    work->readings[work->count++] = *now;
    if (device->newest)
        work->readings[device->newest - 1].next = (uint32_t)work->count;
    else
        device->first = (uint32_t)work->count;
    device->newest = (uint32_t)work->count;
    device->open = false;
    return true;
}

/* The first pass. */
static bool poll_collect(struct poll_work *work)
{
    const struct gp_recording *r = work->recording;
    for (uint32_t i = 0; i < r->event_count; i++) {
        const struct gp_rec_event *event = &r->events[i];
        struct poll_device *device = event->device < r->device_count ? &work->devices[event->device] : NULL;
        if (!device)
            continue;
        poll_lower(device, i);
        if (!poll_is_reading(event)) {
            poll_move(device, event);
            continue;
        }
        unsigned sum = event->kind == GP_KIND_GRAPH ? POLL_USED : POLL_RESERVED;
        if (event->type == GP_EVENT_SEGMENT_UNMAP)
            poll_begins(device, event, i);
        else if (device->open && event->address == GP_POLL_ROSE)
            device->now.rose[sum] = (int64_t)event->bytes;
        else if (device->open)
            device->now.value[sum] = (int64_t)event->bytes;
        if (device->open && event->type == GP_EVENT_SEGMENT_MAP && sum == POLL_RESERVED &&
            event->address != GP_POLL_ROSE && !poll_ends(work, device))
            return false;
    }
    return true;
}

static void poll_start(struct poll_work *work, bool again)
{
    for (uint32_t d = 0; d < work->recording->device_count; d++) {
        uint32_t first = work->devices[d].first;
        work->devices[d] = (struct poll_device){.first = first, .coming = {first, first}, .again = again};
    }
    poll_baseline(work);
    for (uint32_t d = 0; d < work->recording->device_count; d++)
        for (unsigned sum = 0; sum < POLL_SUMS; sum++) {
            struct poll_device *device = &work->devices[d];
            device->low[sum] = device->own[sum];
            device->high[sum] = device->proved[sum] = device->most[sum];
        }
}

static int64_t poll_higher(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The readings whose place is before event `at` or earlier. again: in the last pass. */
static void poll_arrive(struct poll_work *work, struct poll_device *device, unsigned sum, uint32_t at)
{
    for (uint32_t coming; (coming = device->coming[sum]) && work->readings[coming - 1].low_at[sum] <= at;) {
        device->last[sum] = coming;
        device->coming[sum] = work->readings[coming - 1].next;
        device->limited[sum] = false;
        device->high[sum] = device->most[sum];
        if (!device->again)
            work->readings[coming - 1].high[sum] = device->most[sum];
    }
}

static void poll_high(struct poll_work *work, struct poll_device *device, unsigned sum)
{
    device->high[sum] = poll_higher(device->high[sum], device->most[sum]);
    if (device->last[sum])
        work->readings[device->last[sum] - 1].high[sum] = device->high[sum];
    else
        device->proved[sum] = device->high[sum];
}

/* The second pass: the most other bytes between the places of two readings. */
static void poll_highs(struct poll_work *work)
{
    const struct gp_recording *r = work->recording;
    for (uint32_t i = 0; i < r->event_count; i++) {
        const struct gp_rec_event *event = &r->events[i];
        struct poll_device *device = event->device < r->device_count ? &work->devices[event->device] : NULL;
        for (unsigned sum = 0; device && sum < POLL_SUMS; sum++)
            poll_arrive(work, device, sum, i);
        if (device && !poll_is_reading(event))
            poll_move(device, event);
        for (unsigned sum = 0; device && sum < POLL_SUMS; sum++)
            poll_high(work, device, sum);
    }
}

static void poll_change(struct poll_work *work, uint32_t reading, unsigned sum, uint32_t at, int64_t value, bool spike)
{
    work->changes[work->change_count] = (struct poll_change){.at = at,
                                                             .order = (uint32_t)work->change_count,
                                                             .reading = reading,
                                                             .value = value,
                                                             .sum = (uint8_t)sum,
                                                             .spike = spike};
    work->change_count++;
}

/* How a reading changes what the events say. */
static void poll_reading(struct poll_work *work, uint32_t at, unsigned sum)
{
    struct poll_reading *reading = &work->readings[at];
    const struct poll_reading *next = reading->next ? &work->readings[reading->next - 1] : NULL;
    struct poll_device *device = &work->devices[reading->device];
    int64_t *proved = &device->proved[sum];
    int64_t rose = reading->rose[sum] ? poll_sum(reading->since[sum], reading->rose[sum]) : 0;
    int64_t here = poll_sum(reading->low[sum], reading->value[sum]), high = reading->high[sum];
    if (rose > here)
        poll_change(work, at, sum, reading->since_at[sum], reading->rose[sum], true);
    *proved = poll_higher(*proved, poll_higher(rose, here));
    poll_change(work, at, sum, reading->low_at[sum], reading->value[sum], false);
    *proved = device->segments ? *proved : poll_higher(*proved, high); /* else high is more than there was */
    reading->limit[sum] = next ? poll_higher(*proved, poll_sum(next->low[sum], next->value[sum])) : *proved;
}

static int poll_order(const void *one, const void *other)
{
    const struct poll_change *a = one, *b = other;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* Before event `at`, with which the sum would be higher than any that is proved. */
static void poll_limit(struct poll_work *work, struct poll_device *device, unsigned sum, uint32_t at)
{
    const struct poll_reading *reading = device->last[sum] ? &work->readings[device->last[sum] - 1] : NULL;
    if (!reading || device->limited[sum] || poll_sum(device->most[sum], reading->value[sum]) <= reading->limit[sum])
        return;
    int64_t value = (int64_t)((uint64_t)reading->limit[sum] - (uint64_t)reading->high[sum]);
    value = value < reading->value[sum] ? value : reading->value[sum];
    poll_change(work, device->last[sum] - 1, sum, at, poll_higher(value, 0), false);
    device->limited[sum] = true;
}

/* The last pass. */
static void poll_limits(struct poll_work *work)
{
    const struct gp_recording *r = work->recording;
    for (uint32_t i = 0; i < r->event_count; i++) {
        const struct gp_rec_event *event = &r->events[i];
        struct poll_device *device = event->device < r->device_count ? &work->devices[event->device] : NULL;
        for (unsigned sum = 0; device && sum < POLL_SUMS; sum++)
            poll_arrive(work, device, sum, i);
        if (device && !poll_is_reading(event))
            poll_move(device, event);
        for (unsigned sum = 0; device && sum < POLL_SUMS; sum++)
            poll_limit(work, device, sum, i);
    }
}

static bool poll_decide(struct poll_work *work)
{
    work->changes = calloc(work->count * POLL_SUMS * 3 + 1, sizeof(*work->changes));
    if (!work->changes)
        return false;
    for (uint32_t i = 0; i < work->count; i++)
        for (unsigned sum = 0; sum < POLL_SUMS; sum++)
            poll_reading(work, i, sum);
    poll_start(work, true);
    poll_limits(work);
    qsort(work->changes, work->change_count, sizeof(*work->changes), poll_order);
    return true;
}

/* ---- the events ------------------------------------------------------------------------------------------------- */

static void poll_tell(struct poll_work *work, const struct poll_change *change, int64_t value, struct gp_rec_event *to,
                      size_t *count)
{
    const struct poll_reading *reading = &work->readings[change->reading];
    int64_t *told = &work->devices[reading->device].told[change->sum];
    const struct gp_recording *r = work->recording;
    struct gp_rec_event event = {.time_ns = change->at ? r->events[change->at - 1].time_ns : r->begin_ns,
                                 .address = change->sum + 1,
                                 .thread = reading->thread & 0xffffff,
                                 .site = change->sum == POLL_USED ? work->devices[reading->device].site : 0,
                                 .kind = change->sum == POLL_USED ? GP_KIND_GRAPH : GP_KIND_POOL,
                                 .device = reading->device};
    if (value == *told)
        return;
    if (*told > 0) {
        event.type = GP_EVENT_SEGMENT_UNMAP;
        event.bytes = (uint64_t)*told;
        to[(*count)++] = event;
    }
    if (value > 0) {
        event.type = GP_EVENT_SEGMENT_MAP;
        event.bytes = (uint64_t)value;
        to[(*count)++] = event;
    }
    *told = value;
}

static void poll_place(struct poll_work *work, const struct poll_change *now, struct gp_rec_event *to, size_t *count)
{
    int64_t told = work->devices[work->readings[now->reading].device].told[now->sum];
    if (now->spike && now->value <= told)
        return;
    poll_tell(work, now, now->value, to, count);
    if (now->spike)
        poll_tell(work, now, told, to, count);
}

static bool poll_write(struct poll_work *work)
{
    struct gp_recording *r = work->recording;
    struct gp_rec_event *events = malloc((r->event_count + work->change_count * 4 + 1) * sizeof(*events));
    size_t count = 0, change = 0, before = r->event_count;
    if (!events)
        return false;
    for (uint32_t i = 0; i <= before; i++) {
        for (; change < work->change_count && work->changes[change].at == i; change++)
            poll_place(work, &work->changes[change], events, &count);
        if (i < before && !poll_is_reading(&r->events[i]))
            events[count++] = r->events[i];
    }
    free(r->events);
    r->events = events;
    r->event_count = count;
    r->delivered += count - before; /* wraps, to the difference */
    r->tried += count - before;
    return true;
}

int gp_read_polls(struct gp_recording *recording)
{
    struct poll_work work = {.recording = recording};
    bool ok = true;
    if (recording->polled) /* a reader of another format knew every change itself */
        return 0;
    for (size_t i = 0; i < recording->event_count && !recording->polled; i++)
        recording->polled = poll_is_reading(&recording->events[i]);
    if (!recording->polled)
        return 0;
    work.devices = calloc(recording->device_count + 1u, sizeof(*work.devices));
    ok = work.devices;
    if (ok) {
        poll_start(&work, false);
        ok = poll_collect(&work);
    }
    if (ok) {
        poll_start(&work, false);
        poll_highs(&work);
        ok = poll_decide(&work) && poll_write(&work);
    }
    free(work.devices);
    free(work.readings);
    free(work.changes);
    return ok ? 0 : -ENOMEM;
}
