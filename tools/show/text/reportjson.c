/* SPDX-License-Identifier: MIT
 * reportjson.c: all results of a recording as one document of schema gpuprof.report/1, which the
 * HTML page and `gpuprof report --json` show; see text.h and docs/analyses.md.  Its parts:
 * the history, the report. */
#include <analyze/analyze.h>
#include <analyze/report.h>
#include <base/numbers.h>
#include <gpuprof/wire.h>
#include <jansson.h>
#include <oom/oom.h>
#include <read/recording/recording.h>
#include <show/text/forecast.h>
#include <show/text/reportparts.h>
#include <show/text/stats.h>
#include <show/text/text.h>
#include <show/text/write.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>

/* ---- the history ------------------------------------------------------------------------------------------------- */
/* What was live when, in the document of schema gpuprof.report/1; see analyze/report.h and
 * docs/analyses.md. */

static json_t *history_lives(const struct gp_report *report, const struct gp_past *history)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < history->life_count; i++) {
        const struct gp_life *life = &history->lives[i];
        json_array_append_new(rows,
                              json_pack("[I,o,I,I,s]", gp_report_since(report, life->from_ns),
                                        life->live ? json_null() : json_integer(gp_report_since(report, life->to_ns)),
                                        (json_int_t)life->bytes, (json_int_t)life->site, gp_kind_name(life->kind)));
    }
    return json_pack("{s:b,s:I,s:o}", "complete", history->complete, "blocks", (json_int_t)history->blocks, "rows",
                     rows);
}

/* [t, bytes, other bytes, other blocks, and for each part that changed its number, bytes and
 * blocks] */
static json_t *history_moment(const struct gp_report *report, const struct gp_past *history, uint32_t i)
{
    const struct gp_moment *moment = &history->moments[i];
    size_t end = i + 1 < history->moment_count ? moment[1].first_cell : history->cell_count;
    json_t *row = json_pack("[I,I,I,I]", gp_report_since(report, moment->time_ns), (json_int_t)moment->bytes,
                            (json_int_t)moment->other_bytes, (json_int_t)moment->other_count);
    for (size_t k = moment->first_cell; row && k < end; k++) {
        json_array_append_new(row, json_integer(history->cells[k].part));
        json_array_append_new(row, json_integer(history->cells[k].bytes));
        json_array_append_new(row, json_integer(history->cells[k].count));
    }
    return row;
}

static json_t *history_moments(const struct gp_report *report, const struct gp_past *history)
{
    if (history->complete)
        return json_null();
    json_t *parts = json_array(), *rows = json_array();
    for (uint32_t i = 0; i < history->part_count; i++)
        json_array_append_new(
            parts, json_pack("[I,s]", (json_int_t)history->parts[i].site, gp_kind_name(history->parts[i].kind)));
    for (uint32_t i = 0; i < history->moment_count; i++)
        json_array_append_new(rows, history_moment(report, history, i));
    return json_pack("{s:I,s:o,s:o}", "stretch_ns", (json_int_t)history->stretch_ns, "parts", parts, "rows", rows);
}

/* Adds "lifetimes" and "moments" to a device's object.  False: out of memory. */
static bool report_add_history(const struct gp_report *report, uint32_t device, json_t *object)
{
    const struct gp_past *history = report->devices[device].history;
    return json_object_set_new(object, "lifetimes", history_lives(report, history)) == 0 &&
           json_object_set_new(object, "moments", history_moments(report, history)) == 0;
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

/* Limits of the document, so that a browser can load it.  The document counts the rows that they
 * leave out. */
#define GP_MOST_SEGMENTS 2000u
#define GP_MOST_BLOCKS   20000u
#define GP_MOST_MARKS    10000u
#define GP_MOST_SITES    20000u

static json_t *report_lost(const struct gp_recording *recording)
{
    json_t *lost = json_object();
    for (unsigned i = 0; i < GP_LOSTS; i++) {
        if (gp_lost_name(i))
            json_object_set_new(lost, gp_lost_name(i), json_integer((json_int_t)recording->lost[i]));
    }
    return lost;
}

/* A file name is any bytes, a JSON string is UTF-8: a name that is not UTF-8 gets '?' for its other
 * bytes. */
static json_t *report_path(const char *path)
{
    json_t *text = json_string(path);
    char *plain = text ? NULL : strdup(path);
    for (char *at = plain; at && *at; at++)
        *at = *at & 0x80 ? '?' : *at;
    text = plain ? json_string(plain) : text;
    free(plain);
    return text;
}

static json_t *report_driver(uint32_t version)
{
    return version ? json_sprintf("%u.%u", version / 1000, version % 1000 / 10) : json_null();
}

/* Null, or why events could not be written.  Times are since the start. */
static json_t *report_write_error(const struct gp_report *report)
{
    const struct gp_recording *r = report->recording;
    if (!r->write_error || !r->unwritten)
        return json_null();
    return json_pack("{s:i,s:s,s:I,s:I,s:I,s:b}", "errno", r->write_error, "reason", strerror(r->write_error),
                     "time_ns", gp_report_since(report, r->ended_early ? r->end_ns : r->write_error_ns), "stopped_ns",
                     gp_report_since(report, r->stopped_ns), "events", (json_int_t)r->unwritten, "ends_recording",
                     r->ended_early);
}

static json_t *report_rank(const struct gp_recording *r, int32_t number)
{
    return r->has_rank && number >= 0 ? json_integer(number) : json_null();
}

/* Null, or where this part of a recording lies in the whole. */
static json_t *report_part(const struct gp_recording *r)
{
    return r->part_of_ns ? json_pack("{s:f,s:f}", "from_seconds", (double)r->part_from_ns / 1e9, "of_seconds",
                                     (double)r->part_of_ns / 1e9)
                         : json_null();
}

static json_t *report_recording(const struct gp_report *report)
{
    static const char *const sources[] = {"none", "cupti", "hooks"};
    const struct gp_recording *r = report->recording;
    uint64_t span = r->end_ns > r->begin_ns ? r->end_ns - r->begin_ns : 0;
    return json_pack("{s:o,s:I,s:s,s:s,s:s,s:s,s:s,s:o,s:I,s:f,s:b,s:b,s:I,s:I,s:I,s:I,s:I,s:o,s:b,s:o,s:o,s:o,s:o,s:s,"
                     "s:I,s:I,s:I,s:I,s:o,s:o}",
                     "file", report_path(report->file), "pid", (json_int_t)r->pid, "comm", r->comm, "command_line",
                     r->command_line, "host", r->host, "source", sources[r->source <= GP_SOURCE_HOOKS ? r->source : 0],
                     "allocator", r->allocator, "driver", report_driver(r->driver_version), "begin_unix_ns",
                     (json_int_t)r->begin_unix_ns, "seconds", (double)span / 1e9, "complete", r->complete, "from_start",
                     r->from_start, "tried", (json_int_t)r->tried, "delivered", (json_int_t)r->delivered, "dropped",
                     (json_int_t)r->dropped, "events", (json_int_t)r->event_count, "damaged_blocks",
                     (json_int_t)r->damaged_blocks, "lost", report_lost(r), "stacks", r->site_count > 1, "write_error",
                     report_write_error(report), "rank", report_rank(r, r->rank), "local_rank",
                     report_rank(r, r->local_rank), "world_size", report_rank(r, r->world_size), "format",
                     gp_rec_format(r->from_torch, r->from_rmm), "before_blocks", (json_int_t)r->before_blocks,
                     "before_bytes", (json_int_t)r->before_bytes, "unseen_blocks", (json_int_t)r->unseen_blocks,
                     "unfreed_blocks", (json_int_t)r->unfreed_blocks, "part", report_part(r), "attached",
                     r->attached ? json_boolean(r->attached == GP_REC_ATTACHED_YES) : json_null());
}

/* ---- devices ---------------------------------------------------------------------------------------------------- */

struct gp_report_high {
    int64_t bytes, end;
    uint64_t time_ns;
};

static json_t *report_series(const struct gp_report *report, const struct gp_series *series,
                             struct gp_report_high *high)
{
    *high = (struct gp_report_high){0};
    for (uint32_t i = 0; i < series->count; i++) {
        const struct gp_series_point *point = &series->points[i];
        if (point->high > high->bytes) {
            high->bytes = point->high;
            high->time_ns = point->time_ns;
        }
        high->end = point->last;
    }
    return gp_report_series(report, series);
}

static json_t *report_kind_series(const struct gp_report *report, uint32_t device)
{
    json_t *kinds = json_object();
    struct gp_report_high high;
    for (unsigned kind = GP_KIND_LINEAR; kind < GP_KINDS; kind++) {
        const struct gp_series *series = report->devices[device].kinds[kind];
        if (series)
            json_object_set_new(kinds, gp_kind_name(kind), report_series(report, series, &high));
    }
    return kinds;
}

static json_t *report_parts(const struct gp_peak *peak)
{
    json_t *parts = json_array();
    for (uint32_t i = 0; i < peak->count; i++)
        json_array_append_new(parts,
                              json_pack("{s:I,s:s,s:I,s:I}", "site", (json_int_t)peak->parts[i].site, "kind",
                                        gp_kind_name(peak->parts[i].kind), "bytes", (json_int_t)peak->parts[i].bytes,
                                        "count", (json_int_t)peak->parts[i].count));
    return parts;
}

static json_t *report_blocks(const struct gp_segments *map, const struct gp_map_segment *segment, uint32_t *room)
{
    static const char *const states[] = {"live", "waiting", "idle", "unmapped"};
    json_t *blocks = json_array();
    for (uint32_t i = 0; i<segment->block_count && * room> 0; i++, (*room)--) {
        const struct gp_map_block *block = &map->blocks[segment->first_block + i];
        json_array_append_new(blocks,
                              json_pack("[I,I,s,I]", (json_int_t)(block->address - segment->address),
                                        (json_int_t)block->bytes, states[block->state & 3], (json_int_t)block->site));
    }
    return blocks;
}

static int report_larger(const void *one, const void *other)
{
    const struct gp_map_segment *a = *(const struct gp_map_segment *const *)one;
    const struct gp_map_segment *b = *(const struct gp_map_segment *const *)other;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a < b ? -1 : a > b;
}

static int report_earlier(const void *one, const void *other)
{
    const struct gp_map_segment *a = *(const struct gp_map_segment *const *)one;
    const struct gp_map_segment *b = *(const struct gp_map_segment *const *)other;
    return a < b ? -1 : a > b;
}

/* The largest segments, in the order of their addresses.  False: out of memory. */
static bool report_segments(const struct gp_report *report, json_t *object, uint32_t device)
{
    const struct gp_segments *map = report->devices[device].segments;
    const struct gp_map_segment **chosen = calloc(map->segment_count + 1u, sizeof(*chosen));
    json_t *list = json_array();
    uint32_t room = GP_MOST_BLOCKS, count = chosen ? map->segment_count : 0;
    for (uint32_t i = 0; i < count; i++)
        chosen[i] = &map->segments[i];
    if (count > GP_MOST_SEGMENTS) {
        qsort(chosen, count, sizeof(*chosen), report_larger);
        count = GP_MOST_SEGMENTS;
        qsort(chosen, count, sizeof(*chosen), report_earlier);
    }
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list,
                              json_pack("{s:o,s:I,s:s,s:b,s:o}", "address", gp_json_address(chosen[i]->address),
                                        "bytes", (json_int_t)chosen[i]->bytes, "kind", gp_kind_name(chosen[i]->kind),
                                        "cached", chosen[i]->cached, "blocks", report_blocks(map, chosen[i], &room)));
    json_object_set_new(object, "segments", list);
    if (chosen) {
        json_object_set_new(object, "segments_left_out", json_integer(map->segment_count - count));
        json_object_set_new(object, "blocks_left_out", json_integer(map->block_count - (GP_MOST_BLOCKS - room)));
    }
    free(chosen);
    return chosen;
}

static json_t *report_sizes(const struct gp_report *report, uint32_t device)
{
    const struct gp_sizes *sizes = report->devices[device].sizes;
    json_t *list = json_array();
    for (unsigned i = 0; i < 63; i++) { /* 2^63 does not fit a json_int_t */
        if (sizes->count[i])
            json_array_append_new(list, json_pack("{s:I,s:I,s:I,s:I,s:I}", "from_bytes", (json_int_t)1 << i, "count",
                                                  (json_int_t)sizes->count[i], "bytes", (json_int_t)sizes->bytes[i],
                                                  "live_count", (json_int_t)sizes->live_count[i], "live_bytes",
                                                  (json_int_t)sizes->live_bytes[i]));
    }
    return list;
}

/* The exact peak, from the process's own counters; null if the recording lacks their last
 * values. */
static json_t *report_counted(const struct gp_rec_device *device)
{
    return device->has_last ? gp_json_known(device->last.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].peak)
                            : json_null();
}

static json_t *report_when(const struct gp_report *report, uint64_t time_ns)
{
    return time_ns ? json_integer(gp_report_since(report, time_ns)) : json_null();
}

static json_t *report_sleeps(const struct gp_report *report, uint32_t d)
{
    const struct gp_sleeps *sleeps = report->devices[d].sleeps;
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < sleeps->count; i++) {
        const struct gp_sleep *sleep = &sleeps->rows[i];
        json_array_append_new(
            list,
            json_pack("{s:o,s:o,s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o}", "begin_ns",
                      report_when(report, sleep->begin_ns), "end_ns", report_when(report, sleep->end_ns),
                      "wake_begin_ns", report_when(report, sleep->wake_ns), "wake_end_ns",
                      report_when(report, sleep->woken_ns), "asleep_bytes", (json_int_t)sleep->fell_bytes,
                      "woken_bytes", (json_int_t)sleep->woke_bytes, "freed_asleep_bytes",
                      (json_int_t)sleep->ended_bytes, "reserved_bytes", (json_int_t)sleep->reserved_bytes, "late_bytes",
                      (json_int_t)sleep->late_bytes, "late_end_ns", report_when(report, sleep->late_ns), "released",
                      report_parts(sleep->released), "stayed", report_parts(sleep->stayed)));
    }
    return list;
}

static json_t *report_device(const struct gp_report *report, uint32_t d)
{
    const struct gp_rec_device *device = &report->recording->devices[d];
    const struct gp_peak *peak = report->devices[d].peak;
    json_int_t peak_ns = gp_report_since(report, peak->time_ns);
    struct gp_report_high allocated, reserved;
    json_t *allocated_series = report_series(report, report->devices[d].allocated, &allocated);
    json_t *reserved_series = report_series(report, report->devices[d].reserved, &reserved);
    json_t *object =
        json_pack("{s:o,s:o,s:o,s:o,s:I,s:I,s:s,s:o,s:I,s:I,s:I,s:{s:o,s:o,s:o,s:o},s:{s:I,s:I,s:o,s:o},s:o,s:o,s:o}",
                  "device", gp_report_device_name(report, d), "uuid", gp_json_text(device->uuid), "name",
                  gp_json_text(device->name), "total_bytes", gp_json_known(device->total_bytes), "allocated_peak_bytes",
                  (json_int_t)peak->bytes, "allocated_peak_ns", peak_ns, "bound", gp_rec_bound_name(device->bound),
                  "counted_peak_bytes", report_counted(device), "allocated_end_bytes", (json_int_t)allocated.end,
                  "reserved_peak_bytes", (json_int_t)reserved.bytes, "reserved_end_bytes", (json_int_t)reserved.end,
                  "series", "allocated", allocated_series, "reserved", reserved_series, "requested",
                  gp_report_series(report, report->devices[d].requested), "kinds", report_kind_series(report, d),
                  "peak", "time_ns", peak_ns, "bytes", (json_int_t)peak->bytes, "parts", report_parts(peak), "owners",
                  gp_report_owners(report, d), "fragmentation", gp_report_fragmentation_part(report, d), "sizes",
                  report_sizes(report, d), "bill", gp_report_bill_part(report, d));
    if (object && !gp_forecast_report_add(report, d, object)) {
        json_decref(object);
        return NULL;
    }
    if (object)
        json_object_set_new(object, "sleeps", report_sleeps(report, d));
    struct gp_wire_polled said = gp_rec_polled(device);
    if (object)
        json_object_set_new(object, "polled_pool", gp_polled_json(&said));
    if (object)
        gp_report_add_before(report, d, object);
    if (object && report->devices[d].fine)
        json_object_set_new(json_object_get(object, "series"), "fine",
                            report_series(report, report->devices[d].fine, &allocated));
    if (object)
        json_object_set_new(json_object_get(object, "series"), "fine_reserved",
                            report->devices[d].fine_reserved
                                ? report_series(report, report->devices[d].fine_reserved, &reserved)
                                : json_null());
    if (object && !(report_segments(report, object, d) && report_add_history(report, d, object))) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* ---- sites ------------------------------------------------------------------------------------------------------ */

static int site_by_peak(const void *one, const void *other)
{
    const struct gp_report_site *a = *(const struct gp_report_site *const *)one;
    const struct gp_report_site *b = *(const struct gp_report_site *const *)other;
    if (a->peak_bytes != b->peak_bytes)
        return a->peak_bytes < b->peak_bytes ? 1 : -1;
    return a->site < b->site ? -1 : a->site > b->site;
}

static int site_by_number(const void *one, const void *other)
{
    const struct gp_report_site *a = *(const struct gp_report_site *const *)one;
    const struct gp_report_site *b = *(const struct gp_report_site *const *)other;
    return a->site < b->site ? -1 : a->site > b->site;
}

static json_t *report_site(const struct gp_report *report, const struct gp_report_site *site,
                           const struct gp_frame_text *caller, const struct gp_frame_text *callee)
{
    char label[192];
    gp_symbols_line(report->symbols, site->site, caller, callee, label, sizeof(label));
    json_t *object =
        json_pack("{s:I,s:I,s:s,s:o,s:o,s:o,s:s,s:I,s:I,s:I,s:I,s:I,s:I}", "site", (json_int_t)site->site, "row",
                  (json_int_t)gp_symbols_row(report->symbols, site->site), "name", label, "owner",
                  gp_report_owner(report->recording, site->site), "frames", gp_report_frames(report, site->site),
                  "device", gp_report_device_name(report, site->device), "kind", gp_kind_name(site->kind), "live_bytes",
                  (json_int_t)site->live_bytes, "live_count", (json_int_t)site->live_count, "peak_bytes",
                  (json_int_t)site->peak_bytes, "at_peak_bytes", (json_int_t)site->at_peak_bytes, "allocated_bytes",
                  (json_int_t)site->allocated_bytes, "calls", (json_int_t)site->calls);
    if (object) {
        json_object_set_new(object, "use", gp_report_use(report, site->site));
        json_object_set_new(object, "use_text", gp_report_use_text(report, site->site));
        gp_report_add_place(report, object, site->site);
    }
    return object;
}

/* Adds every site that allocated; of very many those with the highest peaks.  Site 0 (blocks
 * without a stack) is always there.  False: out of memory. */
static bool report_sites(const struct gp_report *report, json_t *object)
{
    const struct gp_report_site **sites = calloc(report->recording->site_count + 1ul, sizeof(*sites));
    uint32_t count = 0;
    json_t *list = json_array();
    for (uint32_t i = 0; sites && i < report->recording->site_count; i++) {
        if (report->sites[i].calls || i == 0)
            sites[count++] = &report->sites[i];
    }
    uint32_t shown = count < GP_MOST_SITES ? count : GP_MOST_SITES;
    if (shown < count) {
        qsort(sites + 1, count - 1, sizeof(*sites), site_by_peak);
        qsort(sites, shown, sizeof(*sites), site_by_number);
    }
    uint32_t *numbers = calloc(shown + 1ul, sizeof(*numbers));
    const struct gp_frame_text **callers = calloc(2 * (shown + 1ul), sizeof(*callers)), **callees = callers + shown;
    bool ok = sites && numbers && callers;
    for (uint32_t i = 0; ok && i < shown; i++)
        numbers[i] = sites[i]->site;
    if (ok) {
        gp_symbols_callers(report->symbols, numbers, shown, callers);
        gp_symbols_callees(report->symbols, numbers, shown, callees);
    }
    for (uint32_t i = 0; ok && i < shown; i++)
        json_array_append_new(list, report_site(report, sites[i], callers[i], callees[i]));
    free(sites);
    free(numbers);
    free(callers);
    json_object_set_new(object, "sites_left_out", json_integer(count - shown));
    return json_object_set_new(object, "sites", list) == 0 && ok;
}

/* ---- the rest --------------------------------------------------------------------------------------------------- */

static json_t *report_steps(const struct gp_report *report)
{
    const struct gp_steps *steps = report->steps;
    char rhythm[GP_RHYTHM_TEXT];
    json_t *bounds = json_array();
    for (uint32_t i = 0; i <= steps->count && i < GP_MOST_MARKS; i++)
        json_array_append_new(bounds, json_integer(gp_report_since(report, steps->bounds_ns[i])));
    return json_pack("{s:s,s:s,s:s,s:f,s:s,s:I,s:f,s:s,s:o}", "source", gp_report_step_source(report), "found",
                     gp_steps_found(steps), "word", gp_steps_word(steps), "sure", steps->sure, "name", steps->name,
                     "count", (json_int_t)steps->count, "seconds", (double)steps->length_ns / 1e9, "rhythm",
                     gp_report_rhythm(report, rhythm), "bounds_ns", bounds);
}

static json_t *report_marks(const struct gp_report *report)
{
    const struct gp_recording *r = report->recording;
    json_t *list = json_array();
    for (size_t i = 0; i < r->event_count && json_array_size(list) < GP_MOST_MARKS; i++) {
        if (r->events[i].type == GP_EVENT_MARK && r->events[i].bytes < r->string_bytes)
            json_array_append_new(list, json_pack("{s:I,s:s}", "time_ns", gp_report_since(report, r->events[i].time_ns),
                                                  "name", r->strings + r->events[i].bytes));
    }
    return list;
}

/* The place that matters, and its label. */
static void report_place(const struct gp_report *report, json_t *row, uint32_t site)
{
    char label[192];
    gp_symbols_line(report->symbols, site, NULL, NULL, label, sizeof(label));
    json_object_set_new(row, "name", json_string(label));
    gp_report_add_place(report, row, site);
}

static json_t *report_ooms(const struct gp_report *report)
{
    const struct gp_recording *r = report->recording;
    json_t *list = json_array();
    for (size_t i = 0; i < r->event_count && json_array_size(list) < GP_MOST_MARKS; i++) {
        if (r->events[i].type != GP_EVENT_OOM)
            continue;
        json_t *row = json_pack("{s:I,s:o,s:I,s:I}", "time_ns", gp_report_since(report, r->events[i].time_ns), "device",
                                gp_report_device_name(report, r->events[i].device), "requested_bytes",
                                (json_int_t)r->events[i].bytes, "site", (json_int_t)r->events[i].site);
        if (row)
            report_place(report, row, r->events[i].site);
        json_array_append_new(list, row);
    }
    return list;
}

/* Who held the memory when the last request failed. */
static json_t *report_oom_holders(const struct gp_report *report)
{
    const struct gp_wire_oom *oom = &report->recording->oom;
    json_t *list = json_array();
    for (uint32_t i = 0; report->recording->has_oom && i < oom->holder_count; i++) {
        const struct gp_wire_oom_holder *holder = &oom->holders[i];
        json_t *row = json_pack(
            "{s:s,s:I,s:I,s:I}", "kind", gp_kind_name(holder->kind) ? gp_kind_name(holder->kind) : "", "block_bytes",
            (json_int_t)holder->block_bytes, "blocks", (json_int_t)holder->count, "site", (json_int_t)holder->site);
        if (row)
            report_place(report, row, holder->site);
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *report_oom_text(const struct gp_report *report)
{
    const struct gp_recording *recording = report->recording;
    const struct gp_wire_oom *oom = &recording->oom;
    char text[GP_OOM_PAGE_BYTES], place[88] = "", labels[GP_OOM_HOLDERS][40] = {""};
    const char *where[GP_OOM_HOLDERS];
    struct gp_oom_facts facts = {.oom = oom,
                                 .pid = recording->pid,
                                 .comm = recording->comm,
                                 .start_ns = recording->begin_ns,
                                 .total_bytes = -1,
                                 .untracked_bytes = -1,
                                 .place = place,
                                 .where = where};
    if (!recording->has_oom)
        return json_null();
    for (uint32_t i = 0; i < recording->device_count; i++) {
        if (recording->devices[i].index != oom->device)
            continue;
        facts.device_name = recording->devices[i].name;
        facts.total_bytes = recording->devices[i].total_bytes;
    }
    if (oom->site)
        gp_symbols_line(report->symbols, oom->site, NULL, NULL, place, sizeof(place));
    for (uint32_t i = 0; i < GP_OOM_HOLDERS; i++) {
        where[i] = labels[i];
        if (i < oom->holder_count && oom->holders[i].site)
            gp_symbols_line(report->symbols, oom->holders[i].site, NULL, NULL, labels[i], GP_OOM_WHERE + 1);
    }
    gp_oom_page(text, sizeof(text), &facts);
    return json_string(text);
}

/* The kinds whose bytes are in no total. */
static json_t *report_unsummed(void)
{
    json_t *list = json_array();
    for (unsigned kind = GP_KIND_LINEAR; kind < GP_KINDS; kind++)
        if (!gp_kind_sums(kind))
            json_array_append_new(list, json_string(gp_kind_name(kind)));
    return list;
}

json_t *gp_report_document(const struct gp_report *report)
{
    json_t *devices = json_array(), *object = NULL;
    bool ok = devices;
    for (uint32_t d = 0; ok && d < report->recording->device_count; d++)
        ok = json_array_append_new(devices, report_device(report, d)) == 0;
    if (ok)
        object =
            json_pack("{s:s,s:o,s:o,s:O,s:o,s:{s:s,s:o,s:o},s:o,s:o,s:o,s:o,s:o}", "schema", "gpuprof.report/1",
                      "recording", report_recording(report), "unsummed_kinds", report_unsummed(), "devices", devices,
                      "steps", report_steps(report), "leaks", "why", report->leaks->why, "suspects",
                      gp_report_suspects(report), "candidates", gp_report_candidates(report), "churn",
                      gp_report_churn_part(report, false), "marks", report_marks(report), "ooms", report_ooms(report),
                      "oom", report_oom_text(report), "oom_holders", report_oom_holders(report));
    json_decref(devices);
    if (object && report_sites(report, object))
        return object;
    json_decref(object);
    return NULL;
}
