/* SPDX-License-Identifier: MIT
 * reportparts.c: the analyses as JSON, each by itself; see report.h. */
#include <write/report.h>
#include <write/stats.h>
#include <write/write.h>

#include <errno.h>
#include <stdlib.h>

/* Moments of a fragmentation curve: what tools/analyze looks at, and as many as a plot is pixels wide. */
#define GP_REPORT_MOMENTS 200u
/* Sites of a table of churn. */
#define GP_REPORT_CHURN 1000u

int gp_report_init(struct gp_report *report, const struct gp_recording *recording, struct gp_symbols *symbols,
                   const char *file)
{
    *report = (struct gp_report){.recording = recording, .symbols = symbols, .file = file};
    report->flow = gp_flow_new(recording);
    report->steps = report->flow ? gp_steps_find(recording) : NULL;
    if (report->steps)
        return 0;
    gp_report_fini(report);
    return -ENOMEM;
}

void gp_report_fini(struct gp_report *report)
{
    gp_flow_free(report->flow);
    free(report->steps);
    report->flow = NULL;
    report->steps = NULL;
}

json_t *gp_report_device_name(const struct gp_report *report, uint32_t device)
{
    const struct gp_rec_device *row = &report->recording->devices[device];
    if (row->index == GP_WIRE_HOST)
        return json_string("host");
    return json_integer(row->ordinal >= 0 ? row->ordinal : row->index);
}

static json_t *report_since(const struct gp_report *report, uint64_t time_ns)
{
    uint64_t begin = report->recording->begin_ns;
    return json_integer(time_ns > begin ? (json_int_t)(time_ns - begin) : 0);
}

/* Adds the name of a site to an object: function, file and line by which it is called. */
static void report_name(const struct gp_report *report, json_t *object, uint32_t site)
{
    const struct gp_frame_text *name = gp_symbols_name(report->symbols, site);
    json_object_set_new(object, "function", json_string(name->function));
    json_object_set_new(object, "file", json_string(name->file));
    json_object_set_new(object, "line", json_integer(name->line));
}

json_t *gp_report_suspects(const struct gp_report *report, const struct gp_leaks *leaks)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < leaks->count; i++) {
        const struct gp_leak *leak = &leaks->suspects[i];
        json_t *curve = json_array(),
               *suspect = json_pack("{s:I,s:I}", "rank", (json_int_t)i + 1, "site", (json_int_t)leak->site);
        if (!suspect) {
            json_decref(list);
            json_decref(curve);
            return NULL;
        }
        report_name(report, suspect, leak->site);
        json_object_set_new(suspect, "device", gp_report_device_name(report, leak->device));
        json_object_set_new(suspect, "kind", json_string(gp_kind_name(leak->kind)));
        json_object_set_new(suspect, "live_bytes", json_integer(leak->live_bytes));
        json_object_set_new(suspect, "live_count", json_integer(leak->live_count));
        json_object_set_new(suspect, "bytes_per_step", json_real(leak->bytes_per_step));
        json_object_set_new(suspect, "confidence", json_real(leak->confidence));
        json_object_set_new(suspect, "seconds_to_oom",
                            leak->seconds_to_oom < 0 ? json_null() : json_real(leak->seconds_to_oom));
        json_object_set_new(suspect, "oldest_seconds", json_real((double)leak->oldest_ns / 1e9));
        for (uint32_t k = 0; k <= leaks->points; k++)
            json_array_append_new(curve, json_integer(leaks->kept[(size_t)i * (leaks->points + 1) + k]));
        json_object_set_new(suspect, "live_bytes_at_bounds", curve);
        json_array_append_new(list, suspect);
    }
    return list;
}

json_t *gp_report_leaks_json(const struct gp_report *report, const struct gp_leaks *leaks)
{
    static const char *const sources[] = {"marks", "nvtx", "period", "time"};
    return json_pack("{s:s,s:I,s:s,s:s,s:s,s:o}", "schema", "gpuprof.leaks/1", "steps", (json_int_t)leaks->steps,
                     "step_source", sources[leaks->source], "step_name", report->steps->name, "why", leaks->why,
                     "suspects", gp_report_suspects(report, leaks));
}

/* One object a device, in a list under `schema`. */
static json_t *report_devices(const struct gp_report *report, const char *schema,
                              json_t *part(const struct gp_report *report, uint32_t device))
{
    json_t *devices = json_array();
    for (uint32_t d = 0; d < report->recording->device_count; d++) {
        json_t *device = part(report, d);
        if (!device || json_object_set_new(device, "device", gp_report_device_name(report, d)) != 0 ||
            json_array_append_new(devices, device) != 0) {
            json_decref(devices);
            return NULL;
        }
    }
    return json_pack("{s:s,s:o}", "schema", schema, "devices", devices);
}

static json_t *report_peak_device(const struct gp_report *report, uint32_t device)
{
    struct gp_peak *peak = gp_flow_peak(report->flow, device, 0);
    json_t *parts = json_array(), *object = NULL;
    for (uint32_t i = 0; peak && i < peak->count; i++) {
        const struct gp_peak_part *part = &peak->parts[i];
        json_t *row = json_pack("{s:I,s:s,s:I,s:I}", "site", (json_int_t)part->site, "kind", gp_kind_name(part->kind),
                                "bytes", (json_int_t)part->bytes, "count", (json_int_t)part->count);
        if (row)
            report_name(report, row, part->site);
        json_array_append_new(parts, row);
    }
    if (peak)
        object = json_pack("{s:o,s:I,s:O}", "time_ns", report_since(report, peak->time_ns), "bytes",
                           (json_int_t)peak->bytes, "parts", parts);
    json_decref(parts);
    free(peak);
    return object;
}

json_t *gp_report_peak_json(const struct gp_report *report)
{
    return report_devices(report, "gpuprof.peak/1", report_peak_device);
}

json_t *gp_report_churn_part(const struct gp_report *report)
{
    struct gp_churn *churn = gp_flow_churn(report->flow, report->steps);
    json_t *sites = json_array(), *object = NULL;
    for (uint32_t i = 0; churn && i < churn->count && i < GP_REPORT_CHURN; i++) {
        const struct gp_churn_site *site = &churn->sites[i];
        json_t *row =
            json_pack("{s:I,s:I,s:f,s:I,s:I,s:I}", "site", (json_int_t)site->site, "pairs", (json_int_t)site->pairs,
                      "pairs_per_step", site->pairs_per_step, "bytes", (json_int_t)site->bytes, "mean_life_ns",
                      (json_int_t)site->mean_life_ns, "driver_ns", (json_int_t)site->driver_ns);
        if (row)
            report_name(report, row, site->site);
        json_array_append_new(sites, row);
    }
    if (churn)
        object = json_pack("{s:I,s:I,s:I,s:I,s:f,s:I,s:I,s:O}", "pairs", (json_int_t)churn->pairs, "driver_ns",
                           (json_int_t)churn->driver_ns, "allocations", (json_int_t)churn->allocations, "frees",
                           (json_int_t)churn->frees, "pairs_per_step", churn->pairs_per_step, "steps",
                           (json_int_t)churn->steps, "sites_left_out",
                           (json_int_t)(churn->count > GP_REPORT_CHURN ? churn->count - GP_REPORT_CHURN : 0), "sites",
                           sites);
    json_decref(sites);
    free(churn);
    return object;
}

json_t *gp_report_churn_json(const struct gp_report *report)
{
    json_t *object = gp_report_churn_part(report);
    if (object)
        json_object_set_new(object, "schema", json_string("gpuprof.churn/1"));
    return object;
}

json_t *gp_report_fragmentation_part(const struct gp_report *report, uint32_t device)
{
    struct gp_fragmentation *f = gp_flow_fragmentation(report->flow, device, GP_REPORT_MOMENTS + 1);
    json_t *points = json_array(), *object = NULL;
    for (uint32_t i = 0; f && i < f->count; i++) {
        const struct gp_fragment_point *point = &f->points[i];
        json_array_append_new(points,
                              json_pack("[o,I,I,I,o]", report_since(report, point->time_ns),
                                        (json_int_t)point->reserved_bytes, (json_int_t)point->allocated_bytes,
                                        (json_int_t)point->requested_bytes, gp_json_known(point->largest_free_bytes)));
    }
    if (f)
        object = json_pack("{s:f,s:f,s:f,s:b,s:O}", "utilisation", f->utilisation, "external", f->external, "internal",
                           f->internal, "has_segments", f->has_segments, "points", points);
    json_decref(points);
    free(f);
    return object;
}

json_t *gp_report_fragmentation_json(const struct gp_report *report)
{
    return report_devices(report, "gpuprof.fragmentation/1", gp_report_fragmentation_part);
}

json_t *gp_report_bill_part(const struct gp_report *report, uint32_t device)
{
    struct gp_bill *bill = gp_flow_bill(report->flow, device);
    json_t *rows = json_array(), *object = NULL;
    for (uint32_t i = 0; bill && i < bill->count; i++) {
        /* "untracked" may be below 0, where estimates were too high: that is known, and worth knowing. */
        bool unknown = bill->rows[i].bytes == -1;
        json_array_append_new(rows, json_pack("{s:s,s:o,s:b}", "what", bill->rows[i].what, "bytes",
                                              unknown ? json_null() : json_integer(bill->rows[i].bytes), "estimated",
                                              bill->rows[i].estimated));
    }
    if (bill)
        object = json_pack("{s:o,s:o,s:O}", "time_ns", report_since(report, bill->time_ns), "process_bytes",
                           gp_json_known(bill->process_bytes), "rows", rows);
    json_decref(rows);
    free(bill);
    return object;
}

json_t *gp_report_reconcile_json(const struct gp_report *report)
{
    return report_devices(report, "gpuprof.reconcile/1", gp_report_bill_part);
}

json_t *gp_diff_json(const struct gp_diff *diff, const char *const *names[2])
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < diff->count; i++) {
        const struct gp_diff_row *row = &diff->rows[i];
        int side = row->site[0] != GP_REC_NONE ? 0 : 1;
        json_t *sites = json_pack("[o,o]", row->site[0] == GP_REC_NONE ? json_null() : json_integer(row->site[0]),
                                  row->site[1] == GP_REC_NONE ? json_null() : json_integer(row->site[1]));
        json_array_append_new(rows, json_pack("{s:s,s:o,s:[I,I],s:[I,I],s:[I,I]}", "name", names[side][row->site[side]],
                                              "site", sites, "at_peak_bytes", (json_int_t)row->peak_bytes[0],
                                              (json_int_t)row->peak_bytes[1], "live_bytes",
                                              (json_int_t)row->live_bytes[0], (json_int_t)row->live_bytes[1], "calls",
                                              (json_int_t)row->calls[0], (json_int_t)row->calls[1]));
    }
    return json_pack("{s:s,s:o}", "schema", "gpuprof.diff/1", "sites", rows);
}
