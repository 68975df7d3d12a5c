/* SPDX-License-Identifier: MIT
 *
 * arrow.c: see arrow.h.  Called through the table in formats.c, for one table, and by the command for all of them.
 *
 * A column has one type in every file.  Names are not repeated with each event: it has the numbers of its site and its
 * thread, which are those of the same job, rank and pid in other tables.
 */
#include <analyze/flow.h>
#include <analyze/report.h>
#include <convert/export/arrow.h>
#include <convert/export/arrowfile.h>
#include <convert/export/out.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <show/text/stats.h>
#include <symbol/symbol.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct gp_arrow {
    struct gp_export *export;
    const struct gp_arrow_job *job;
    struct gp_report report; /* its flow and its leaks */
    uint8_t *hints;
    struct gp_use_table **uses; /* once it is needed; by device; NULL: the host, or nothing happens there */
    struct gp_arrow_file *file; /* of the table that is being written */
    int rc;
};

#define ARROW_KEYS                                                                                                     \
    {"job", GP_ARROW_TEXT}, {"rank", GP_ARROW_INT32},                                                                  \
    {                                                                                                                  \
        "pid", GP_ARROW_INT64                                                                                          \
    }
#define ARROW_DEVICE                                                                                                   \
    {"device", GP_ARROW_INT32},                                                                                        \
    {                                                                                                                  \
        "on_host", GP_ARROW_FLAG                                                                                       \
    }

/* ---- what several tables have ------------------------------------------------------------------------------------ */

static void arrow_keys(struct gp_arrow *a)
{
    gp_arrow_text(a->file, a->job->name);
    gp_arrow_number(a->file, a->job->has_rank, a->job->rank);
    gp_arrow_number(a->file, true, a->export->recording->pid);
}

/* device: index in devices; GP_REC_NO_DEVICE. */
static void arrow_device(struct gp_arrow *a, uint32_t device)
{
    const struct gp_recording *r = a->export->recording;
    bool host = device < r->device_count && r->devices[device].index == GP_WIRE_HOST;
    gp_arrow_number(a->file, device < r->device_count && !host,
                    device < r->device_count ? r->devices[device].ordinal : 0);
    gp_arrow_number(a->file, true, host);
}

static void arrow_time(struct gp_arrow *a, bool known, uint64_t time_ns)
{
    gp_arrow_number(a->file, known, gp_export_unix_ns(a->export->recording, time_ns));
}

static const char *arrow_kind(uint8_t kind)
{
    return kind != GP_KIND_NONE ? gp_kind_name(kind) : NULL;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static const struct gp_arrow_column event_columns[] = {ARROW_KEYS,
                                                       {"event", GP_ARROW_INT64},
                                                       {"time", GP_ARROW_TIME},
                                                       {"type", GP_ARROW_TEXT},
                                                       {"kind", GP_ARROW_TEXT},
                                                       ARROW_DEVICE,
                                                       {"address", GP_ARROW_INT64},
                                                       {"bytes", GP_ARROW_INT64},
                                                       {"requested_bytes", GP_ARROW_INT64},
                                                       {"stream", GP_ARROW_INT64},
                                                       {"thread", GP_ARROW_INT32},
                                                       {"site", GP_ARROW_INT32},
                                                       {"peer", GP_ARROW_INT64},
                                                       {"allocated_change", GP_ARROW_INT64}};

/* What an event adds to the allocated bytes of its device: the sum of these is at each event what the report has. */
struct arrow_changes {
    struct gp_flow_walk walk;
    struct gp_flow_change next;
    bool more;
};

static int64_t changes_bytes(const struct gp_flow_change *change)
{
    uint64_t bytes = change->what & GP_FLOW_SUMMED ? gp_flow_bytes(change) : 0;
    return (int64_t)(change->add ? bytes : -bytes);
}

static bool changes_known(const struct gp_flow *flow, const struct gp_flow_change *change)
{
    return change->event != GP_REC_NONE || change->id >= flow->recording->event_count;
}

/* The number of the row that has a change. */
static int64_t changes_row(const struct gp_recording *r, const struct gp_flow_change *change)
{
    return change->event != GP_REC_NONE ? (int64_t)change->event
                                        : (int64_t)(change->id - r->event_count) - (int64_t)r->baseline_count;
}

static int64_t changes_until(struct arrow_changes *changes, const struct gp_recording *r, int64_t row)
{
    uint64_t sum = 0;
    while (changes->more && changes_row(r, &changes->next) <= row) {
        sum += (uint64_t)changes_bytes(&changes->next);
        do
            changes->more = gp_flow_next(&changes->walk, &changes->next);
        while (changes->more && !changes_known(changes->walk.flow, &changes->next));
    }
    return (int64_t)sum;
}

static void events_row(struct gp_arrow *a, const struct gp_export_row *row, int64_t change)
{
    const struct gp_recording *r = a->export->recording;
    const struct gp_rec_event *event = row->event;
    struct gp_arrow_file *file = a->file;
    bool stream = event->stream < r->stream_count && !row->name;
    arrow_keys(a);
    gp_arrow_number(file, true, row->number);
    arrow_time(a, true, event->time_ns);
    gp_arrow_word(file, row->type);
    gp_arrow_word(file, row->kind);
    arrow_device(a, event->device);
    gp_arrow_number(file, row->has_address, (int64_t)event->address);
    gp_arrow_number(file, row->has_bytes, (int64_t)event->bytes);
    gp_arrow_number(file, row->has_bytes, (int64_t)gp_rec_requested(event));
    gp_arrow_number(file, stream, stream ? (int64_t)r->streams[event->stream] : 0);
    gp_arrow_number(file, true, event->thread);
    gp_arrow_number(file, true, event->site);
    gp_arrow_number(file, row->has_peer, row->peer);
    gp_arrow_number(file, true, change);
    gp_arrow_row(file);
}

/* Memory from before the recording, of which only the ends were recorded: a row for each device, before all others. */
static void events_before(struct gp_arrow *a, struct arrow_changes *changes)
{
    const struct gp_recording *r = a->export->recording;
    uint64_t *sums = calloc(r->device_count + 1ul, sizeof(*sums));
    struct gp_flow_walk walk = gp_flow_begin(a->report.flow);
    struct gp_flow_change change;
    int64_t number = -(int64_t)r->baseline_count;
    while (sums && gp_flow_next(&walk, &change) && change.event == GP_REC_NONE)
        if (!changes_known(a->report.flow, &change))
            sums[change.item->device] += (uint64_t)changes_bytes(&change);
    for (uint32_t d = r->device_count; sums && d-- > 0;) {
        const struct gp_rec_event event = {
            .time_ns = r->begin_ns, .bytes = sums[d], .stream = UINT16_MAX, .device = (uint8_t)d};
        const struct gp_export_row row = {.number = --number, .event = &event, .type = "before", .has_bytes = true};
        if (sums[d])
            events_row(a, &row, (int64_t)sums[d]);
    }
    if (!sums)
        a->rc = -ENOMEM;
    free(sums);
    changes->walk = gp_flow_begin(a->report.flow);
    do
        changes->more = gp_flow_next(&changes->walk, &changes->next);
    while (changes->more && !changes_known(changes->walk.flow, &changes->next));
}

static void events_write(struct gp_arrow *a)
{
    struct gp_export_rows rows;
    struct gp_export_row row;
    struct arrow_changes changes;
    a->rc = gp_export_rows_begin_flow(&rows, a->export, a->report.flow);
    if (a->rc)
        return;
    events_before(a, &changes);
    while (!gp_arrow_error(a->file) && gp_export_rows_next(&rows, &row))
        events_row(a, &row, changes_until(&changes, a->export->recording, row.number));
    gp_export_rows_end(&rows);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static const struct gp_arrow_column block_columns[] = {ARROW_KEYS,
                                                       {"from_event", GP_ARROW_INT64},
                                                       {"to_event", GP_ARROW_INT64},
                                                       {"from_time", GP_ARROW_TIME},
                                                       {"to_time", GP_ARROW_TIME},
                                                       {"kind", GP_ARROW_TEXT},
                                                       ARROW_DEVICE,
                                                       {"bytes", GP_ARROW_INT64},
                                                       {"requested_bytes", GP_ARROW_INT64},
                                                       {"thread", GP_ARROW_INT32},
                                                       {"site", GP_ARROW_INT32},
                                                       {"use", GP_ARROW_TEXT},
                                                       {"counted", GP_ARROW_FLAG},
                                                       {"reserved", GP_ARROW_FLAG}};

/* What the blocks are for: the leaks, and four walks for each device, for this table alone. */
static bool blocks_uses(struct gp_arrow *a)
{
    const struct gp_recording *r = a->export->recording;
    a->uses = calloc(r->device_count + 1ul, sizeof(*a->uses));
    bool ok = a->uses && gp_report_steps(&a->report) == 0 &&
              gp_report_run(&a->report, GP_REPORT_LEAKS, GP_DETAIL_SUMMARY) == 0;
    a->hints = ok ? gp_report_hints(&a->report) : NULL;
    ok = a->hints != NULL;
    for (uint32_t d = 0; ok && d < r->device_count; d++)
        if (a->report.devices[d].used && r->devices[d].index != GP_WIRE_HOST)
            ok = (a->uses[d] = gp_uses_find(a->report.flow, a->report.steps, a->report.leaks, a->hints, d)) != NULL;
    return ok;
}

static const char *blocks_use(const struct gp_arrow *a, const struct gp_flow_change *change)
{
    const struct gp_use_table *uses = a->uses[change->item->device];
    return uses ? gp_use_name(uses->rows[uses->rule[change->id]].use) : NULL;
}

static void blocks_row(struct gp_arrow *a, const struct gp_flow_change *change)
{
    const struct gp_recording *r = a->export->recording;
    const struct gp_rec_event *item = change->item;
    bool before = !changes_known(a->report.flow, change);
    uint32_t end = gp_flow_end(a->report.flow, change->id);
    bool ends = end < r->event_count;
    struct gp_arrow_file *file = a->file;
    arrow_keys(a);
    gp_arrow_number(file, !before, before ? 0 : changes_row(r, change));
    gp_arrow_number(file, ends, end);
    arrow_time(a, !before && item->time_ns, item->time_ns);
    arrow_time(a, ends, ends ? r->events[end].time_ns : 0);
    gp_arrow_word(file, arrow_kind(item->kind));
    arrow_device(a, item->device);
    gp_arrow_number(file, true, (int64_t)gp_flow_bytes(change));
    gp_arrow_number(file, true, (int64_t)gp_rec_requested(item));
    gp_arrow_number(file, true, item->thread);
    gp_arrow_number(file, true, item->site);
    gp_arrow_word(file, blocks_use(a, change));
    gp_arrow_number(file, true, (change->what & GP_FLOW_SUMMED) != 0);
    gp_arrow_number(file, true, (change->what & GP_FLOW_RESERVED) != 0);
    gp_arrow_row(file);
}

static void blocks_write(struct gp_arrow *a)
{
    if (!a->uses && !blocks_uses(a)) {
        a->rc = -ENOMEM;
        return;
    }
    struct gp_flow_walk walk = gp_flow_begin(a->report.flow);
    struct gp_flow_change change;
    while (!gp_arrow_error(a->file) && gp_flow_next(&walk, &change))
        if (change.add && change.what)
            blocks_row(a, &change);
}

/* ---- call sites -------------------------------------------------------------------------------------------------- */

static const struct gp_arrow_column site_columns[] = {ARROW_KEYS,
                                                      {"site", GP_ARROW_INT32},
                                                      {"label", GP_ARROW_TEXT},
                                                      {"operation", GP_ARROW_TEXT},
                                                      {"owner", GP_ARROW_TEXT},
                                                      {"kind", GP_ARROW_TEXT},
                                                      ARROW_DEVICE,
                                                      {"truncated", GP_ARROW_FLAG},
                                                      {"live_bytes", GP_ARROW_INT64},
                                                      {"live_count", GP_ARROW_INT64},
                                                      {"peak_bytes", GP_ARROW_INT64},
                                                      {"at_peak_bytes", GP_ARROW_INT64},
                                                      {"allocated_bytes", GP_ARROW_INT64},
                                                      {"calls", GP_ARROW_INT64}};

static uint32_t sites_device(const struct gp_recording *r, uint8_t device)
{
    uint32_t at = 0;
    while (at < r->device_count && r->devices[at].index != device)
        at++;
    return at;
}

static void sites_row(struct gp_arrow *a, uint32_t index)
{
    const struct gp_recording *r = a->export->recording;
    const struct gp_rec_site *site = &r->sites[index];
    char label[160] = "[unknown]", owner[GP_SITE_OWNER];
    if (index)
        gp_frame_label(gp_symbols_name(a->export->symbols, index), label, sizeof(label));
    gp_bill_site_owner(r, index, owner);
    arrow_keys(a);
    gp_arrow_number(a->file, true, index);
    gp_arrow_text(a->file, label);
    gp_arrow_text(a->file, index ? gp_symbols_operation(a->export->symbols, index)->text : NULL);
    gp_arrow_text(a->file, owner);
    gp_arrow_word(a->file, index ? arrow_kind(site->kind) : NULL);
    arrow_device(a, index ? sites_device(r, site->device) : GP_REC_NO_DEVICE);
    gp_arrow_number(a->file, true, site->truncated);
    const int64_t numbers[] = {site->live_bytes,    site->live_count,      site->peak_bytes,
                               site->at_peak_bytes, site->allocated_bytes, site->calls};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        gp_arrow_number(a->file, index, numbers[i]);
    gp_arrow_row(a->file);
}

static void sites_write(struct gp_arrow *a)
{
    for (uint32_t i = 0; i < a->export->recording->site_count && !gp_arrow_error(a->file); i++)
        sites_row(a, i);
}

static const struct gp_arrow_column frame_columns[] = {ARROW_KEYS,
                                                       {"site", GP_ARROW_INT32},
                                                       {"depth", GP_ARROW_INT32},
                                                       {"function", GP_ARROW_TEXT},
                                                       {"file", GP_ARROW_TEXT},
                                                       {"line", GP_ARROW_INT32},
                                                       {"module", GP_ARROW_TEXT},
                                                       {"python", GP_ARROW_FLAG},
                                                       {"inlined", GP_ARROW_FLAG}};

static void frames_write(struct gp_arrow *a)
{
    for (uint32_t site = 1; site < a->export->recording->site_count && !gp_arrow_error(a->file); site++) {
        const struct gp_frame_text *frames;
        uint32_t count = gp_symbols_site(a->export->symbols, site, &frames);
        for (uint32_t i = 0; i < count; i++) {
            arrow_keys(a);
            gp_arrow_number(a->file, true, site);
            gp_arrow_number(a->file, true, i);
            gp_arrow_text(a->file, frames[i].function);
            gp_arrow_text(a->file, frames[i].file);
            gp_arrow_number(a->file, frames[i].line, frames[i].line);
            gp_arrow_text(a->file, frames[i].module);
            gp_arrow_number(a->file, true, frames[i].python);
            gp_arrow_number(a->file, true, frames[i].inlined);
            gp_arrow_row(a->file);
        }
    }
}

/* ---- the smaller tables ------------------------------------------------------------------------------------------ */

static const struct gp_arrow_column mark_columns[] = {ARROW_KEYS,
                                                      {"event", GP_ARROW_INT64},
                                                      {"time", GP_ARROW_TIME},
                                                      {"thread", GP_ARROW_INT32},
                                                      {"name", GP_ARROW_TEXT}};

static void marks_write(struct gp_arrow *a)
{
    const struct gp_recording *r = a->export->recording;
    for (size_t i = 0; i < r->event_count && !gp_arrow_error(a->file); i++) {
        if (r->events[i].type != GP_EVENT_MARK)
            continue;
        arrow_keys(a);
        gp_arrow_number(a->file, true, (int64_t)i);
        arrow_time(a, true, r->events[i].time_ns);
        gp_arrow_number(a->file, true, r->events[i].thread);
        gp_arrow_text(a->file, r->strings + r->events[i].bytes);
        gp_arrow_row(a->file);
    }
}

static const struct gp_arrow_column sample_columns[] = {ARROW_KEYS,
                                                        {"time", GP_ARROW_TIME},
                                                        ARROW_DEVICE,
                                                        {"allocated_bytes", GP_ARROW_INT64},
                                                        {"reserved_bytes", GP_ARROW_INT64},
                                                        {"active_bytes", GP_ARROW_INT64},
                                                        {"inactive_split_bytes", GP_ARROW_INT64},
                                                        {"used_bytes", GP_ARROW_INT64},
                                                        {"process_bytes", GP_ARROW_INT64}};

static void samples_write(struct gp_arrow *a)
{
    const struct gp_recording *r = a->export->recording;
    for (size_t i = 0; i < r->sample_count && !gp_arrow_error(a->file); i++) {
        const struct gp_rec_sample *sample = &r->samples[i];
        const int64_t numbers[] = {sample->allocated_bytes,      sample->reserved_bytes, sample->active_bytes,
                                   sample->inactive_split_bytes, sample->used_bytes,     sample->process_bytes};
        arrow_keys(a);
        arrow_time(a, true, sample->time_ns);
        arrow_device(a, sample->device);
        for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++)
            gp_arrow_number(a->file, numbers[n] >= 0, numbers[n]);
        gp_arrow_row(a->file);
    }
}

static const struct gp_arrow_column sleep_columns[] = {ARROW_KEYS,
                                                       {"time", GP_ARROW_TIME},
                                                       ARROW_DEVICE,
                                                       {"site", GP_ARROW_INT32},
                                                       {"what", GP_ARROW_TEXT},
                                                       {"bytes", GP_ARROW_INT64}};

static void sleeps_write(struct gp_arrow *a)
{
    static const char *const what[] = {
        [GP_SLEEP_FALLS] = "falls", [GP_SLEEP_WAKES] = "wakes", [GP_SLEEP_ENDS] = "ends"};
    const struct gp_recording *r = a->export->recording;
    for (size_t i = 0; i < r->sleep_count && !gp_arrow_error(a->file); i++) {
        const struct gp_rec_sleep *sleep = &r->sleeps[i];
        arrow_keys(a);
        arrow_time(a, true, sleep->time_ns);
        arrow_device(a, sleep->device);
        gp_arrow_number(a->file, true, sleep->site);
        gp_arrow_word(a->file, sleep->what < sizeof(what) / sizeof(what[0]) ? what[sleep->what] : NULL);
        gp_arrow_number(a->file, true, (int64_t)sleep->bytes);
        gp_arrow_row(a->file);
    }
}

static const struct gp_arrow_column device_columns[] = {ARROW_KEYS,
                                                        ARROW_DEVICE,
                                                        {"uuid", GP_ARROW_TEXT},
                                                        {"name", GP_ARROW_TEXT},
                                                        {"total_bytes", GP_ARROW_INT64},
                                                        {"peak_event", GP_ARROW_INT64},
                                                        {"peak_time", GP_ARROW_TIME},
                                                        {"peak_bytes", GP_ARROW_INT64}};

static void devices_write(struct gp_arrow *a)
{
    const struct gp_recording *r = a->export->recording;
    struct gp_export_peak *peaks = calloc(r->device_count + 1ul, sizeof(*peaks));
    a->rc = peaks ? gp_export_peaks(a->report.flow, peaks) : -ENOMEM;
    for (uint32_t i = 0; i < r->device_count && !a->rc && !gp_arrow_error(a->file); i++) {
        const struct gp_rec_device *device = &r->devices[i];
        bool host = device->index == GP_WIRE_HOST;
        arrow_keys(a);
        arrow_device(a, i);
        gp_arrow_text(a->file, device->uuid[0] && !host ? device->uuid : NULL);
        gp_arrow_text(a->file, host ? "host" : device->name);
        gp_arrow_number(a->file, device->total_bytes >= 0, device->total_bytes);
        gp_arrow_number(a->file, peaks[i].change, peaks[i].event);
        arrow_time(a, peaks[i].change, peaks[i].time_ns);
        gp_arrow_number(a->file, true, peaks[i].bytes);
        gp_arrow_row(a->file);
    }
    free(peaks);
}

static const struct gp_arrow_column thread_columns[] = {
    ARROW_KEYS, {"thread", GP_ARROW_INT32}, {"tid", GP_ARROW_INT64}, {"name", GP_ARROW_TEXT}};

static void threads_write(struct gp_arrow *a)
{
    const struct gp_recording *r = a->export->recording;
    for (uint32_t i = 0; i < r->thread_count && !gp_arrow_error(a->file); i++) {
        arrow_keys(a);
        gp_arrow_number(a->file, true, i);
        gp_arrow_number(a->file, r->threads[i].tid, r->threads[i].tid);
        gp_arrow_text(a->file, r->strings + r->threads[i].name);
        gp_arrow_row(a->file);
    }
}

static const struct gp_arrow_column job_columns[] = {ARROW_KEYS,
                                                     {"world_size", GP_ARROW_INT32},
                                                     {"local_rank", GP_ARROW_INT32},
                                                     {"host", GP_ARROW_TEXT},
                                                     {"comm", GP_ARROW_TEXT},
                                                     {"command", GP_ARROW_TEXT},
                                                     {"source", GP_ARROW_TEXT},
                                                     {"allocator", GP_ARROW_TEXT},
                                                     {"driver_version", GP_ARROW_INT32},
                                                     {"gpuprof_version", GP_ARROW_TEXT},
                                                     {"file", GP_ARROW_TEXT},
                                                     {"format", GP_ARROW_TEXT},
                                                     {"begin_time", GP_ARROW_TIME},
                                                     {"end_time", GP_ARROW_TIME},
                                                     {"complete", GP_ARROW_FLAG},
                                                     {"from_start", GP_ARROW_FLAG},
                                                     {"events", GP_ARROW_INT64},
                                                     {"baseline", GP_ARROW_INT64},
                                                     {"tried", GP_ARROW_INT64},
                                                     {"delivered", GP_ARROW_INT64},
                                                     {"dropped", GP_ARROW_INT64},
                                                     {"damaged_blocks", GP_ARROW_INT64}};

static void job_write(struct gp_arrow *a)
{
    const struct gp_recording *r = a->export->recording;
    struct gp_arrow_file *file = a->file;
    arrow_keys(a);
    gp_arrow_number(file, r->has_rank && r->world_size >= 0, r->world_size);
    gp_arrow_number(file, r->has_rank && r->local_rank >= 0, r->local_rank);
    gp_arrow_text(file, r->host);
    gp_arrow_text(file, r->comm);
    gp_arrow_text(file, r->command_line);
    gp_arrow_word(file, gp_source_name(r->source));
    gp_arrow_text(file, r->allocator);
    gp_arrow_number(file, r->driver_version, r->driver_version);
    gp_arrow_word(file, GPUPROF_VERSION);
    gp_arrow_text(file, a->job->file);
    gp_arrow_word(file, gp_rec_format(r->from_torch, r->from_rmm, r->from_pprof));
    arrow_time(a, true, r->begin_ns);
    arrow_time(a, true, r->end_ns);
    gp_arrow_number(file, true, r->complete);
    gp_arrow_number(file, true, r->from_start);
    gp_arrow_number(file, true, (int64_t)r->event_count);
    gp_arrow_number(file, true, (int64_t)r->baseline_count);
    gp_arrow_number(file, true, (int64_t)r->tried);
    gp_arrow_number(file, true, (int64_t)r->delivered);
    gp_arrow_number(file, true, (int64_t)r->dropped);
    gp_arrow_number(file, true, (int64_t)r->damaged_blocks);
    gp_arrow_row(file);
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *schema;
    const struct gp_arrow_column *columns;
    unsigned count;
    void (*write)(struct gp_arrow *arrow);
} arrow_tables[] = {
#define ARROW_TABLE(_name, _columns, _write)                                                                           \
    {                                                                                                                  \
        _name, "gpuprof." _name "/1", _columns, sizeof(_columns) / sizeof((_columns)[0]), _write                       \
    }
    ARROW_TABLE("events", event_columns, events_write),    ARROW_TABLE("blocks", block_columns, blocks_write),
    ARROW_TABLE("sites", site_columns, sites_write),       ARROW_TABLE("frames", frame_columns, frames_write),
    ARROW_TABLE("marks", mark_columns, marks_write),       ARROW_TABLE("samples", sample_columns, samples_write),
    ARROW_TABLE("sleeps", sleep_columns, sleeps_write),    ARROW_TABLE("devices", device_columns, devices_write),
    ARROW_TABLE("threads", thread_columns, threads_write), ARROW_TABLE("job", job_columns, job_write),
};

const char *gp_arrow_table_name(unsigned table)
{
    return table < sizeof(arrow_tables) / sizeof(arrow_tables[0]) ? arrow_tables[table].name : NULL;
}

int gp_arrow_new(struct gp_arrow **out, struct gp_export *export, const struct gp_arrow_job *job)
{
    struct gp_arrow *a = *out = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    a->export = export;
    a->job = job;
    if (gp_report_init_plain(&a->report, export->recording, export->symbols, job->file) == 0)
        return 0;
    gp_arrow_free(a);
    *out = NULL;
    return -ENOMEM;
}

int gp_arrow_write(struct gp_arrow *a, unsigned table, struct gp_out *out)
{
    a->rc = 0;
    a->file = gp_arrow_begin(arrow_tables[table].columns, arrow_tables[table].count, arrow_tables[table].schema, out);
    if (!a->file)
        return -ENOMEM;
    arrow_tables[table].write(a);
    int rc = gp_arrow_end(a->file);
    a->file = NULL;
    return a->rc ? a->rc : rc;
}

void gp_arrow_free(struct gp_arrow *a)
{
    for (uint32_t d = 0; a && a->uses && d < a->export->recording->device_count; d++)
        gp_uses_free(a->uses[d]);
    if (a) {
        gp_report_fini(&a->report);
        free(a->uses);
        free(a->hints);
    }
    free(a);
}

int gp_export_arrow(struct gp_export *export, struct gp_out *out)
{
    struct gp_arrow *arrow;
    int rc = gp_arrow_new(&arrow, export, export->job);
    if (!rc)
        rc = gp_arrow_write(arrow, export->table, out);
    gp_arrow_free(arrow);
    return rc;
}
