/* SPDX-License-Identifier: MIT
 *
 * sitesjson.c: the sites in the document of schema gpuprof.report/1; see reportjson.h and
 * docs/analyses.md.
 */
#include <analyze/report.h>
#include <base/numbers.h>
#include <jansson.h>
#include <show/text/reportjson.h>
#include <show/text/reportparts.h>
#include <stdlib.h>
#include <symbol/symbol.h>

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

bool gp_report_add_sites(const struct gp_report *report, json_t *object)
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
