/* SPDX-License-Identifier: MIT
 * chrome.c: a trace in Chrome's JSON object format, for Perfetto and chrome://tracing: counters of
 * each device, the lifetimes of the largest blocks, marks.  Called through the table in formats.c.
 *
 * Both viewers hold the whole trace in the memory of the browser, so its size is bounded for any
 * recording: a device has at most GP_CHROME_STRETCHES intervals, each with its highest moments and
 * its end, and only the largest blocks are drawn.  otherData at the end lists what is left out. */
#include <analyze/flow.h>
#include <convert/export/formats.h>
#include <convert/export/out.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <show/text/stats.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GP_CHROME_STRETCHES 20000u /* ten times the width of a screen; about 10 MB per device */
#define GP_CHROME_RANGES    1024u  /* NVTX ranges open at once; further ones are points */
#define GP_CHROME_MARKS     100000u

struct gp_chrome_state { /* of one device at one moment */
    uint64_t time_ns;
    int64_t reserved, kinds[GP_KINDS];
    struct gp_level level;
};
struct gp_chrome_device {
    /* top: the highest moments of allocated and of reserved bytes in this interval */
    struct gp_chrome_state now, top[2];
    struct gp_flow_polled polled;
    uint64_t stretch;
    bool is_open; /* a value changed in this interval */
    bool kinds[GP_KINDS], reserved;
};
struct gp_chrome_range {
    uint64_t id;
    const char *name;
    uint32_t thread;
};

struct gp_chrome {
    struct gp_export *export;
    struct gp_out *out;
    struct gp_export_rows rows; /* for labels */
    struct gp_chrome_device *devices;
    uint64_t stretch_ns;
    uint64_t *drawn; /* one bit per item: it is drawn and live */
    struct gp_chrome_size {
        uint64_t bytes;
        uint32_t id;
    } * largest; /* a heap, the smallest on top */
    uint32_t largest_count;
    uint64_t block_count, points, marks, marks_left_out, range_id, ranges_unmatched;
    struct gp_chrome_range *ranges;
    uint32_t range_count;
    bool any;
};

/* ---- one event of the format ------------------------------------------------------------------------------------- */

static void chrome_begin(struct gp_chrome *c, const char *phase, uint64_t time_ns)
{
    const struct gp_recording *recording = c->export->recording;
    gp_out_text(c->out, c->any ? ",\n{\"ph\":\"" : "\n{\"ph\":\"");
    c->any = true;
    gp_out_text(c->out, phase);
    gp_out_text(c->out, "\",\"pid\":");
    gp_out_u64(c->out, recording->pid);
    gp_out_text(c->out, ",\"ts\":");
    /* A block that was live before the recording starts at its start: viewers reject negative
     * times. */
    gp_out_micros(c->out, time_ns > recording->begin_ns ? (int64_t)(time_ns - recording->begin_ns) : 0);
}

static void chrome_key(struct gp_chrome *c, const char *key)
{
    gp_out_text(c->out, ",\"");
    gp_out_text(c->out, key);
    gp_out_text(c->out, "\":");
}

static void chrome_id(struct gp_chrome *c, const char *category, uint64_t id)
{
    gp_out_text(c->out, ",\"cat\":\"");
    gp_out_text(c->out, category);
    gp_out_text(c->out, "\",\"id2\":{\"local\":\"");
    gp_out_hex(c->out, id);
    gp_out_text(c->out, "\"}");
}

static void chrome_tid(struct gp_chrome *c, uint32_t thread)
{
    const struct gp_recording *recording = c->export->recording;
    chrome_key(c, "tid");
    gp_out_u64(c->out, thread < recording->thread_count ? recording->threads[thread].tid : recording->pid);
}

/* "device 0" or "host": the start of a counter's name. */
static void chrome_device_name(struct gp_chrome *c, uint32_t device, const char *what)
{
    const struct gp_recording *recording = c->export->recording;
    char text[16];
    gp_out_text(c->out, ",\"name\":\"");
    gp_out_text(c->out, recording->devices[device].index == GP_WIRE_HOST ? "" : "device ");
    gp_out_text(c->out, gp_export_device(recording, device, text));
    gp_out_char(c->out, ' ');
    gp_out_text(c->out, what);
    gp_out_char(c->out, '"');
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */

static void chrome_counter(struct gp_chrome *c, uint32_t device, uint64_t time_ns, const char *what, int64_t bytes)
{
    chrome_begin(c, "C", time_ns);
    chrome_device_name(c, device, what);
    gp_out_text(c->out, ",\"args\":{\"bytes\":");
    gp_out_i64(c->out, bytes);
    gp_out_text(c->out, "}}");
}

static void chrome_point(struct gp_chrome *c, uint32_t index, const struct gp_chrome_state *state)
{
    const struct gp_chrome_device *device = &c->devices[index];
    const char *comma = "";
    c->points++;
    chrome_counter(c, index, state->time_ns, "allocated", state->level.allocated);
    if (device->reserved)
        chrome_counter(c, index, state->time_ns, "reserved", state->reserved);
    chrome_begin(c, "C", state->time_ns);
    chrome_device_name(c, index, "kinds");
    gp_out_text(c->out, ",\"args\":{");
    for (unsigned kind = 0; kind < GP_KINDS; kind++) {
        if (!device->kinds[kind])
            continue;
        gp_out_text(c->out, comma);
        comma = ",";
        gp_out_json(c->out, gp_kind_name(kind) ? gp_kind_name(kind) : "unknown");
        gp_out_char(c->out, ':');
        gp_out_i64(c->out, state->kinds[kind]);
    }
    gp_out_text(c->out, "}}");
}

static bool chrome_same(const struct gp_chrome_state *one, const struct gp_chrome_state *other)
{
    return one->time_ns == other->time_ns && one->level.allocated == other->level.allocated &&
           one->reserved == other->reserved;
}

static void chrome_stretch_end(struct gp_chrome *c, uint32_t index)
{
    struct gp_chrome_device *device = &c->devices[index];
    if (!device->is_open)
        return;
    device->is_open = false;
    unsigned first = device->top[1].time_ns < device->top[0].time_ns;
    const struct gp_chrome_state *order[] = {&device->top[first], &device->top[!first], &device->now};
    for (unsigned i = 0; i < 3; i++)
        if (i == 2 || !chrome_same(order[i], order[i + 1]))
            chrome_point(c, index, order[i]);
}

static void chrome_change(struct gp_chrome *c, const struct gp_flow_change *change)
{
    uint32_t index = change->item->device;
    struct gp_chrome_device *device = &c->devices[index];
    uint64_t since =
        change->time_ns > c->export->recording->begin_ns ? change->time_ns - c->export->recording->begin_ns : 0;
    if (since / c->stretch_ns != device->stretch) {
        chrome_stretch_end(c, index);
        device->stretch = since / c->stretch_ns;
    }
    gp_flow_polled_advance(&device->polled, change->time_ns, &device->now.level);
    gp_level_apply(&device->now.level, change);
    device->now.time_ns = change->time_ns;
    device->now.reserved = gp_flow_polled_reserved(&device->polled, &device->now.level);
    if (change->what & GP_FLOW_KIND) {
        uint64_t bytes = change->add ? change->item->bytes : -change->item->bytes;
        int64_t *sum = &device->now.kinds[change->item->kind];
        *sum = (int64_t)((uint64_t)*sum + bytes);
    }
    if (!device->is_open || device->now.level.allocated > device->top[0].level.allocated)
        device->top[0] = device->now;
    if (!device->is_open || device->now.reserved > device->top[1].reserved)
        device->top[1] = device->now;
    device->is_open = true;
}

static void chrome_samples(struct gp_chrome *c)
{
    const struct gp_recording *recording = c->export->recording;
    for (size_t i = 0; i < recording->sample_count && !c->out->error; i++) {
        const struct gp_rec_sample *sample = &recording->samples[i];
        if (sample->device >= recording->device_count)
            continue;
        if (sample->process_bytes >= 0)
            chrome_counter(c, sample->device, sample->time_ns, "NVML: process", sample->process_bytes);
        if (sample->used_bytes >= 0)
            chrome_counter(c, sample->device, sample->time_ns, "NVML: used", sample->used_bytes);
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static bool chrome_smaller(const struct gp_chrome_size *one, const struct gp_chrome_size *other)
{
    return one->bytes != other->bytes ? one->bytes < other->bytes : one->id > other->id;
}

static void chrome_sink(struct gp_chrome *c, uint32_t at)
{
    for (;;) {
        uint32_t least = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < c->largest_count; child++) {
            if (chrome_smaller(&c->largest[child], &c->largest[least]))
                least = child;
        }
        if (least == at)
            return;
        struct gp_chrome_size moved = c->largest[at];
        c->largest[at] = c->largest[least];
        c->largest[least] = moved;
        at = least;
    }
}

static void chrome_offer(struct gp_chrome *c, struct gp_chrome_size size)
{
    c->block_count++;
    if (c->largest_count < c->export->block_limit) {
        uint32_t at = c->largest_count++;
        for (; at && chrome_smaller(&size, &c->largest[(at - 1) / 2]); at = (at - 1) / 2)
            c->largest[at] = c->largest[(at - 1) / 2];
        c->largest[at] = size;
    } else if (c->largest_count && chrome_smaller(&c->largest[0], &size)) {
        c->largest[0] = size;
        chrome_sink(c, 0);
    }
}

static bool chrome_is_drawn(const struct gp_chrome *c, uint32_t id)
{
    return c->drawn[id / 64] >> id % 64 & 1;
}

static const char *chrome_block_name(struct gp_chrome *c, const struct gp_rec_event *item)
{
    const char *kind = gp_kind_name(item->kind);
    return item->site ? gp_export_rows_label(&c->rows, item->site) : kind ? kind : "unknown";
}

static void chrome_block(struct gp_chrome *c, const struct gp_flow_change *change)
{
    const struct gp_rec_event *item = change->item;
    char device[16];
    chrome_begin(c, change->add ? "b" : "e", change->time_ns);
    chrome_tid(c, item->thread);
    chrome_id(c, "memory", change->id);
    chrome_key(c, "name");
    gp_out_json(c->out, chrome_block_name(c, item));
    gp_out_text(c->out, ",\"args\":{");
    if (change->add) {
        gp_out_text(c->out, "\"bytes\":");
        gp_out_u64(c->out, item->bytes);
        gp_out_text(c->out, ",\"address\":\"");
        gp_out_hex(c->out, item->address);
        gp_out_text(c->out, "\",\"device\":");
        gp_out_json(c->out, gp_export_device(c->export->recording, item->device, device));
        gp_out_text(c->out, ",\"kind\":");
        gp_out_json(c->out, gp_kind_name(item->kind) ? gp_kind_name(item->kind) : "unknown");
        gp_out_text(c->out, ",\"site\":");
        gp_out_u64(c->out, item->site);
    }
    gp_out_text(c->out, "}}");
}

/* Blocks that were never freed end with the recording and are marked as live. */
static void chrome_survivor(struct gp_chrome *c, uint32_t id)
{
    const struct gp_recording *recording = c->export->recording;
    const struct gp_rec_event *item =
        id < recording->event_count ? &recording->events[id] : &recording->baseline[id - recording->event_count];
    chrome_begin(c, "e", recording->end_ns);
    chrome_tid(c, item->thread);
    chrome_id(c, "memory", id);
    chrome_key(c, "name");
    gp_out_json(c->out, chrome_block_name(c, item));
    gp_out_text(c->out, ",\"args\":{\"freed\":false}}");
}

/* ---- marks ------------------------------------------------------------------------------------------------------- */

static void chrome_instant(struct gp_chrome *c, const struct gp_rec_event *event, const char *name)
{
    chrome_begin(c, "i", event->time_ns);
    chrome_tid(c, event->thread);
    gp_out_text(c->out, ",\"s\":\"p\"");
    chrome_key(c, "name");
    gp_out_json(c->out, name);
    if (event->type == GP_EVENT_OOM) {
        gp_out_text(c->out, ",\"args\":{\"asked_bytes\":");
        gp_out_u64(c->out, event->bytes);
        gp_out_char(c->out, '}');
    }
    gp_out_char(c->out, '}');
}

static void chrome_range(struct gp_chrome *c, const struct gp_chrome_range *range, const char *phase, uint64_t time_ns)
{
    chrome_begin(c, phase, time_ns);
    chrome_tid(c, range->thread);
    chrome_id(c, "nvtx", range->id);
    chrome_key(c, "name");
    gp_out_json(c->out, range->name);
    gp_out_char(c->out, '}');
}

/* The innermost open range of the name: of the thread if it has one (push and pop), else of another
 * (start and end). */
static struct gp_chrome_range *chrome_open_range(struct gp_chrome *c, const char *name, uint32_t thread)
{
    struct gp_chrome_range *found = NULL;
    for (uint32_t i = 0; i < c->range_count; i++) {
        if (strcmp(c->ranges[i].name, name) == 0 &&
            (!found || found->thread != thread || c->ranges[i].thread == thread))
            found = &c->ranges[i];
    }
    return found;
}

static void chrome_range_end(struct gp_chrome *c, const struct gp_rec_event *event, const char *name)
{
    struct gp_chrome_range *range = chrome_open_range(c, name, event->thread);
    if (!range) {
        c->ranges_unmatched++;
        return;
    }
    chrome_range(c, range, "e", event->time_ns);
    c->range_count--;
    memmove(range, range + 1, (size_t)(c->ranges + c->range_count - range) * sizeof(*range));
}

/* "nvtx:NAME" starts a range, "/nvtx:NAME" ends it; see docs/nvtx.md. */
static void chrome_mark(struct gp_chrome *c, const struct gp_rec_event *event)
{
    const char *name = c->export->recording->strings + event->bytes;
    if (c->marks == GP_CHROME_MARKS && strncmp(name, "/nvtx:", 6) != 0) {
        c->marks_left_out++;
        return;
    }
    c->marks += strncmp(name, "/nvtx:", 6) != 0;
    if (strncmp(name, "nvtx:", 5) == 0 && c->range_count < GP_CHROME_RANGES) {
        c->ranges[c->range_count] = (struct gp_chrome_range){c->range_id++, name + 5, event->thread};
        chrome_range(c, &c->ranges[c->range_count++], "b", event->time_ns);
    } else if (strncmp(name, "/nvtx:", 6) == 0) {
        chrome_range_end(c, event, name + 6);
    } else {
        chrome_instant(c, event, name);
    }
}

static void chrome_marks(struct gp_chrome *c)
{
    const struct gp_recording *recording = c->export->recording;
    for (size_t i = 0; i < recording->event_count && !c->out->error; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (event->type == GP_EVENT_MARK)
            chrome_mark(c, event);
        else if (event->type == GP_EVENT_OOM)
            chrome_instant(c, event, "out of memory");
        else if (event->type == GP_EVENT_RESET)
            chrome_instant(c, event, "peaks reset");
    }
    while (c->range_count)
        chrome_range(c, &c->ranges[--c->range_count], "e", recording->end_ns);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static void chrome_meta(struct gp_chrome *c, const char *what, uint32_t tid, const char *name)
{
    gp_out_text(c->out, c->any ? ",\n{\"ph\":\"M\",\"pid\":" : "\n{\"ph\":\"M\",\"pid\":");
    c->any = true;
    gp_out_u64(c->out, c->export->recording->pid);
    chrome_key(c, "tid");
    gp_out_u64(c->out, tid);
    gp_out_text(c->out, ",\"name\":\"");
    gp_out_text(c->out, what);
    gp_out_text(c->out, "\",\"args\":{\"name\":");
    gp_out_json(c->out, name);
    gp_out_text(c->out, "}}");
}

static void chrome_head(struct gp_chrome *c)
{
    const struct gp_recording *recording = c->export->recording;
    gp_out_text(c->out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    chrome_meta(c, "process_name", recording->pid, recording->comm);
    for (uint32_t i = 0; i < recording->thread_count; i++) {
        const struct gp_rec_thread *thread = &recording->threads[i];
        if (recording->strings[thread->name])
            chrome_meta(c, "thread_name", thread->tid, recording->strings + thread->name);
    }
}

static void chrome_count(struct gp_chrome *c, const char *key, uint64_t number)
{
    gp_out_text(c->out, ",\"");
    gp_out_text(c->out, key);
    gp_out_text(c->out, "\":");
    gp_out_u64(c->out, number);
}

static void chrome_tail(struct gp_chrome *c)
{
    const struct gp_recording *recording = c->export->recording;
    gp_out_text(c->out, "\n],\"otherData\":{\"producer\":\"gpuprof\",\"command_line\":");
    gp_out_json(c->out, recording->command_line);
    chrome_count(c, "begin_unix_ns", recording->begin_unix_ns);
    chrome_count(c, "events", recording->event_count);
    chrome_count(c, "events_dropped", recording->dropped);
    chrome_count(c, "damaged_blocks", recording->damaged_blocks);
    chrome_count(c, "counter_points", c->points);
    chrome_count(c, "blocks_drawn", c->largest_count);
    chrome_count(c, "blocks_left_out", c->block_count - c->largest_count);
    chrome_count(c, "smallest_block_drawn_bytes", c->largest_count ? c->largest[0].bytes : 0);
    chrome_count(c, "marks_left_out", c->marks_left_out);
    chrome_count(c, "range_ends_without_begin", c->ranges_unmatched);
    gp_out_text(c->out, "}}\n");
}

/* The first walk finds the kinds, the sums and the largest blocks. */
static void chrome_survey(struct gp_chrome *c)
{
    struct gp_flow_walk walk = gp_flow_begin(c->rows.flow);
    struct gp_flow_change change;
    while (gp_flow_next(&walk, &change)) {
        if (!change.add || change.item->device >= c->export->recording->device_count)
            continue;
        struct gp_chrome_device *device = &c->devices[change.item->device];
        device->kinds[change.item->kind] |= (change.what & GP_FLOW_KIND) != 0;
        device->reserved |= (change.what & GP_FLOW_RESERVED) != 0 || device->polled.use;
        if (change.item->type == GP_EVENT_ALLOC)
            chrome_offer(c, (struct gp_chrome_size){change.item->bytes, change.id});
    }
    for (uint32_t i = 0; i < c->largest_count; i++)
        c->drawn[c->largest[i].id / 64] |= 1ull << c->largest[i].id % 64;
}

static void chrome_progress(const struct gp_chrome *c, uint64_t changes)
{
    const struct gp_export *export = c->export;
    uint64_t all = export->recording->event_count + 1;
    if (export->progress && (changes & 65535) == 0)
        export->progress(export->progress_arg, (unsigned)(changes * 1000 / (changes > all ? changes : all)));
}

static void chrome_flow(struct gp_chrome *c)
{
    struct gp_flow_walk walk = gp_flow_begin(c->rows.flow);
    struct gp_flow_change change;
    for (uint64_t n = 1; !c->out->error && gp_flow_next(&walk, &change); n++) {
        chrome_progress(c, n);
        if (change.item->device < c->export->recording->device_count)
            chrome_change(c, &change);
        if (chrome_is_drawn(c, change.id)) {
            chrome_block(c, &change);
            if (!change.add)
                c->drawn[change.id / 64] &= ~(1ull << change.id % 64);
        }
    }
    for (uint32_t i = 0; i < c->export->recording->device_count; i++)
        chrome_stretch_end(c, i);
    for (uint32_t i = 0; i < c->largest_count; i++) {
        if (chrome_is_drawn(c, c->largest[i].id))
            chrome_survivor(c, c->largest[i].id);
    }
}

static int chrome_room(struct gp_chrome *c)
{
    const struct gp_recording *recording = c->export->recording;
    size_t items = recording->event_count + recording->baseline_count;
    uint64_t span = recording->end_ns > recording->begin_ns ? recording->end_ns - recording->begin_ns : 0;
    if (c->export->block_limit > items)
        c->export->block_limit = (uint32_t)items;
    c->stretch_ns = span / GP_CHROME_STRETCHES + 1;
    c->devices = calloc(recording->device_count + 1, sizeof(c->devices[0]));
    c->drawn = calloc(items / 64 + 1, sizeof(c->drawn[0]));
    c->largest = calloc(c->export->block_limit + 1, sizeof(c->largest[0]));
    c->ranges = calloc(GP_CHROME_RANGES, sizeof(c->ranges[0]));
    if (!c->devices || !c->drawn || !c->largest || !c->ranges)
        return -ENOMEM;
    for (uint32_t i = 0; i < recording->device_count; i++)
        c->devices[i].polled = gp_flow_polled_begin(c->rows.flow, i);
    return 0;
}

int gp_export_chrome(struct gp_export *export, struct gp_out *out)
{
    struct gp_chrome c = {.export = export, .out = out};
    int rc = gp_export_rows_begin(&c.rows, export);
    if (!rc)
        rc = chrome_room(&c);
    if (!rc) {
        chrome_survey(&c);
        chrome_head(&c);
        chrome_flow(&c);
        chrome_samples(&c);
        chrome_marks(&c);
        chrome_tail(&c);
    }
    gp_export_rows_end(&c.rows);
    free(c.devices);
    free(c.drawn);
    free(c.largest);
    free(c.ranges);
    return rc ? rc : out->error;
}
