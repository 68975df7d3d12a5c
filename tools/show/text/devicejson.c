/* SPDX-License-Identifier: MIT
 *
 * devicejson.c: a device in the document of schema gpuprof.report/1; see reportjson.h and
 * docs/analyses.md.
 */
#include <analyze/analyze.h>
#include <analyze/libraries.h>
#include <analyze/report.h>
#include <base/numbers.h>
#include <gpuprof/wire.h>
#include <jansson.h>
#include <read/recording/recording.h>
#include <show/text/forecast.h>
#include <show/text/helps.h>
#include <show/text/reportjson.h>
#include <show/text/reportparts.h>
#include <show/text/write.h>
#include <stdlib.h>

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

/* What libraries that hold some of the peak do with memory. */
static json_t *report_libraries(const struct gp_report *report, uint32_t device)
{
    int64_t bytes[GP_LIBRARIES];
    gp_library_bytes(report->recording, report->devices[device].peak, bytes);
    return gp_libraries_json(bytes);
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

/* Null without any.  False: out of memory. */
static bool report_managed(const struct gp_report *report, uint32_t d, json_t *object)
{
    struct gp_kind_peak peak = {0};
    if (report->devices[d].kinds_seen & 1u << GP_KIND_MANAGED &&
        !gp_flow_kind_peak(report->flow, d, GP_KIND_MANAGED, &peak))
        return false;
    json_t *managed =
        peak.bytes ? json_pack("{s:I,s:I,s:o,s:I}", "peak_bytes", (json_int_t)peak.bytes, "end_bytes",
                               (json_int_t)peak.end_bytes, "site", gp_json_known(peak.site ? (int64_t)peak.site : -1),
                               "site_bytes", (json_int_t)peak.site_bytes)
                   : json_null();
    return json_object_set_new(object, "managed", managed) == 0;
}

json_t *gp_report_device_json(const struct gp_report *report, uint32_t d)
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
    if (object && !(gp_forecast_report_add(report, d, object) && report_managed(report, d, object))) {
        json_decref(object);
        return NULL;
    }
    if (object)
        json_object_set_new(object, "sleeps", report_sleeps(report, d));
    if (object)
        json_object_set_new(object, "libraries", report_libraries(report, d));
    if (object)
        json_object_set_new(object, "helps", gp_report_helps(report, d, report->devices[d].uses));
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
    if (object && !(report_segments(report, object, d) && gp_report_add_history(report, d, object))) {
        json_decref(object);
        return NULL;
    }
    return object;
}
