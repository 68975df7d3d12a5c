/* SPDX-License-Identifier: MIT
 * report.c: runs the analyses that a command needs; see report.h. */
#include <analyze/flow.h>
#include <analyze/report.h>
#include <read/common/hash.h>

#include <errno.h>
#include <stdlib.h>

/* Points of each curve.  A plot of 2000 points is as wide as a screen; fragmentation.c looks for
 * the largest free block at most 200 times, so more moments would repeat it. */
static const struct {
    uint32_t moments, points; /* of fragmentation; of a series */
} report_details[] = {
    [GP_DETAIL_SUMMARY] = {2, 64},
    [GP_DETAIL_TABLE] = {13, 2000}, /* its rows show the lowest and the highest value between two moments */
    [GP_DETAIL_PLOT] = {201, 2000},
};

/* The history of all devices together is kept to a few MB of JSON, so each of many devices gets less. */
#define GP_ALL_LIVES   20000u
#define GP_MOST_LIVES  4000u
#define GP_FINE_POINTS 10000u

static const struct {
    uint32_t devices, stretches, parts;
} report_histories[] = {{1, 500, 128}, {2, 400, 96}, {4, 300, 80}, {8, 60, 48}, {UINT32_MAX, 30, 32}};

static void report_see(struct gp_report *report, const struct gp_rec_event *event, uint8_t what)
{
    if (!what || event->device >= report->recording->device_count)
        return;
    report->devices[event->device].used = true;
    if (what & GP_FLOW_KIND && event->kind != GP_KIND_NONE)
        report->devices[event->device].kinds_seen |= 1u << event->kind;
    /* The end of a block from before the recording stands for its start too. */
    if (what & GP_FLOW_SUMMED && what & (GP_FLOW_OPEN | GP_FLOW_BEFORE))
        report->devices[event->device].blocks++;
}

int gp_report_init_plain(struct gp_report *report, const struct gp_recording *recording, struct gp_symbols *symbols,
                         const char *file)
{
    *report = (struct gp_report){.recording = recording, .symbols = symbols, .file = file};
    report->flow = gp_flow_new(recording);
    report->devices = calloc(recording->device_count + 1u, sizeof(*report->devices));
    if (!report->flow || !report->devices) {
        gp_report_fini(report);
        return -ENOMEM;
    }
    for (size_t i = 0; i < recording->event_count; i++)
        report_see(report, &recording->events[i], report->flow->what[i]);
    for (size_t i = 0; i < recording->baseline_count; i++)
        report_see(report, &recording->baseline[i], report->flow->baseline_what[i]);
    for (uint32_t d = 0; d < recording->device_count; d++) {
        report->devices[d].used |= gp_rec_before_at(recording, d, recording->end_ns).bytes > 0;
        report->devices[d].used |= recording->has_oom && recording->oom.device == recording->devices[d].index;
    }
    return 0;
}

struct gp_report_failure gp_report_failure(const struct gp_recording *r)
{
    struct gp_report_failure failure = {.device = GP_REC_NONE, .free_bytes = -1, .api = ""};
    if (r->has_oom) {
        failure.count = 1;
        failure.time_ns = r->oom.time_ns;
        failure.asked_bytes = r->oom.asked_bytes;
        failure.free_bytes = r->oom.free_bytes;
        failure.site = r->oom.site;
        failure.api = r->oom.api;
        for (uint32_t d = 0; d < r->device_count; d++)
            failure.device = r->oom.device >= 0 && r->devices[d].index == r->oom.device ? d : failure.device;
        return failure;
    }
    for (size_t i = 0; (r->from_torch || r->from_rmm) && i < r->event_count; i++) {
        const struct gp_rec_event *event = &r->events[i];
        if (event->type != GP_EVENT_OOM)
            continue;
        failure.count++;
        failure.device = event->device < r->device_count ? event->device : GP_REC_NONE;
        failure.time_ns = event->time_ns;
        failure.asked_bytes = event->bytes;
        failure.site = event->site;
    }
    return failure;
}

int gp_report_steps(struct gp_report *report)
{
    if (!report->steps)
        report->steps = gp_steps_find(report->recording);
    return report->steps ? 0 : -ENOMEM;
}

int gp_report_init(struct gp_report *report, const struct gp_recording *recording, struct gp_symbols *symbols,
                   const char *file)
{
    int rc = gp_report_init_plain(report, recording, symbols, file);
    if (!rc && (rc = gp_report_steps(report)) != 0)
        gp_report_fini(report);
    return rc;
}

void gp_report_fini(struct gp_report *report)
{
    for (uint32_t d = 0; report->devices && d < report->recording->device_count; d++) {
        struct gp_report_device *device = &report->devices[d];
        free(device->forecast);
        free(device->peak);
        free(device->owners);
        gp_sleeps_free(device->sleeps);
        free(device->fragmentation);
        free(device->bill);
        free(device->allocated);
        free(device->reserved);
        free(device->requested);
        for (unsigned kind = 0; kind < GP_KINDS; kind++)
            free(device->kinds[kind]);
        free(device->segments);
        free(device->sizes);
        free(device->holders);
        free(device->held);
        gp_history_free(device->history);
        gp_uses_free(device->uses);
        free(device->fine);
        free(device->fine_reserved);
    }
    free(report->devices);
    free(report->sites);
    free(report->used_for);
    free(report->leaks);
    free(report->churn);
    free(report->steps);
    gp_flow_free(report->flow);
    *report = (struct gp_report){0};
}

static bool report_history(struct gp_report *report)
{
    uint64_t blocks = 0;
    uint32_t used = 0, i = 0;
    bool ok = true;
    for (uint32_t d = 0; d < report->recording->device_count; d++) {
        blocks += report->devices[d].blocks;
        used += report->devices[d].blocks > 0;
    }
    while (report_histories[i].devices < used)
        i++;
    const struct gp_history_limits limits = {.all = blocks <= GP_ALL_LIVES ? GP_ALL_LIVES : 0,
                                             .lives = GP_MOST_LIVES / (used ? used : 1),
                                             .stretches = report_histories[i].stretches,
                                             .parts = report_histories[i].parts};
    for (uint32_t d = 0; ok && d < report->recording->device_count; d++) {
        struct gp_report_device *device = &report->devices[d];
        ok = (device->history = gp_history_flow(report->flow, d, device->uses, &limits)) != NULL;
        if (ok && !device->history->complete)
            ok = (device->fine = gp_flow_allocated(report->flow, d, GP_KIND_NONE, GP_FINE_POINTS / used)) != NULL;
        if (ok && gp_flow_reserved_apart(report->flow, d))
            ok =
                (device->fine_reserved = gp_flow_reserved(report->flow, d, GP_FINE_POINTS / (used ? used : 1))) != NULL;
    }
    return ok;
}

/* kinds: 1 << kind of those that are wanted. */
static bool report_kinds(const struct gp_report *report, uint32_t d, unsigned kinds, uint32_t points)
{
    struct gp_report_device *device = &report->devices[d];
    bool ok = true;
    for (unsigned kind = GP_KIND_LINEAR; ok && kind < GP_KINDS; kind++) {
        if (device->kinds_seen & kinds & 1u << kind)
            ok = (device->kinds[kind] = gp_flow_allocated(report->flow, d, kind, points)) != NULL;
    }
    return ok;
}

/* The holders at the moment with the highest reserve, of several the fullest one. */
static bool report_holders(const struct gp_flow *flow, uint32_t d, struct gp_report_device *device)
{
    const struct gp_fragmentation *f = device->fragmentation;
    const struct gp_fragment_point *most = &f->points[0];
    for (uint32_t i = 1; i < f->count; i++) {
        const struct gp_fragment_point *at = &f->points[i];
        if (at->reserved_bytes > most->reserved_bytes ||
            (at->reserved_bytes == most->reserved_bytes && at->allocated_bytes > most->allocated_bytes))
            most = at;
    }
    struct gp_segments *map = gp_flow_segments(flow, d, most->time_ns);
    device->holders = map ? gp_holders_find(map) : NULL;
    device->holders_ns = most->time_ns;
    free(map);
    return device->holders;
}

static bool report_device(const struct gp_report *report, uint32_t d, unsigned parts, enum gp_report_detail detail)
{
    struct gp_report_device *device = &report->devices[d];
    const struct gp_flow *flow = report->flow;
    uint32_t moments = report_details[detail].moments, points = report_details[detail].points;
    bool ok = true;
    if (parts & GP_REPORT_PEAK)
        ok = (device->peak = gp_flow_peak(flow, d, 0)) != NULL &&
             (device->owners = gp_bill_peak_owners(report->recording, device->peak)) != NULL &&
             (device->sleeps = gp_flow_sleeps(flow, d)) != NULL;
    if (ok && parts & GP_REPORT_FRAGMENTATION)
        ok = (device->fragmentation = gp_flow_fragmentation(flow, d, moments)) != NULL;
    if (ok && parts & GP_REPORT_BILL)
        ok = (device->bill = gp_flow_bill(flow, d)) != NULL;
    if (ok && parts & GP_REPORT_HOLDERS)
        ok = report_holders(flow, d, device);
    if (ok && parts & GP_REPORT_HELD)
        ok = (device->held = gp_flow_peak(flow, d, device->bill->time_ns)) != NULL;
    if (ok && parts & GP_REPORT_SERIES)
        ok = (device->allocated = gp_flow_allocated(flow, d, GP_KIND_NONE, points)) &&
             (device->reserved = gp_flow_reserved(flow, d, points)) &&
             (detail == GP_DETAIL_SUMMARY || (device->requested = gp_flow_requested(flow, d, points)));
    if (ok && parts & (GP_REPORT_KINDS | GP_REPORT_SERIES))
        ok = report_kinds(report, d, parts & GP_REPORT_KINDS ? ~0u : 1u << GP_KIND_IMPORTED, points);
    if (ok && parts & GP_REPORT_SEGMENTS)
        ok = (device->segments = gp_flow_segments(flow, d, 0)) != NULL;
    if (ok && parts & GP_REPORT_LEAKS)
        ok = (device->forecast = gp_flow_forecast(flow, report->steps, d)) != NULL;
    if (ok && parts & GP_REPORT_SIZES)
        ok = (device->sizes = gp_flow_sizes(flow, d)) != NULL;
    return ok;
}

static bool report_sites(struct gp_report *report)
{
    const struct gp_recording *recording = report->recording;
    struct gp_flow_walk walk = gp_flow_begin(report->flow);
    struct gp_flow_change change;
    struct gp_report_site *sites = calloc(recording->site_count + 1u, sizeof(*sites));
    report->sites = sites;
    if (!sites)
        return false;
    for (uint32_t i = 0; i < recording->site_count; i++)
        sites[i].site = i;
    while (gp_flow_next(&walk, &change)) {
        if (!(change.what & GP_FLOW_KIND))
            continue;
        struct gp_report_site *site = &sites[change.item->site];
        uint64_t bytes = change.item->bytes;
        site->device = change.item->device;
        site->kind = change.item->kind;
        site->live_bytes = (int64_t)((uint64_t)site->live_bytes + (change.add ? bytes : -bytes));
        site->live_count += change.add ? 1 : -1;
        GP_RAISE(site->peak_bytes, site->live_bytes);
        site->allocated_bytes = (int64_t)((uint64_t)site->allocated_bytes + (change.add ? bytes : 0));
        site->calls += change.add;
    }
    for (uint32_t d = 0; d < recording->device_count; d++) {
        const struct gp_peak *peak = report->devices[d].peak;
        for (uint32_t i = 0; peak && i < peak->count; i++)
            sites[peak->parts[i].site].at_peak_bytes += peak->parts[i].bytes;
    }
    return true;
}

/* keep: the tables stay, for the history. */
static bool report_uses(struct gp_report *report, bool keep)
{
    const struct gp_recording *recording = report->recording;
    report->used_for = calloc(recording->site_count + 1ul, 1);
    bool ok = report->used_for;
    for (uint32_t d = 0; ok && d < recording->device_count; d++) {
        const struct gp_peak *peak = report->devices[d].peak;
        if (!peak || !report->devices[d].used || recording->devices[d].index == GP_WIRE_HOST)
            continue;
        struct gp_use_table *uses = gp_uses_find(report->flow, report->steps, report->leaks, report->hints, d);
        ok = uses && gp_uses_by_site(uses, report->flow, peak->event_index, report->used_for);
        if (keep)
            report->devices[d].uses = uses;
        else
            gp_uses_free(uses);
    }
    return ok;
}

int gp_report_run(struct gp_report *report, unsigned parts, enum gp_report_detail detail)
{
    const struct gp_recording *recording = report->recording;
    const struct gp_flow *flow = report->flow;
    bool ok = true;
    for (uint32_t d = 0; ok && d < recording->device_count; d++) {
        if (report->devices[d].used || detail == GP_DETAIL_PLOT)
            ok = report_device(report, d, parts, detail);
    }
    if (ok && parts & GP_REPORT_LEAKS)
        ok = (report->leaks = gp_flow_leaks(flow, report->steps, report->older_ns)) != NULL;
    if (ok && parts & GP_REPORT_CHURN)
        ok = (report->churn = gp_flow_churn(flow, report->steps)) != NULL;
    if (ok && parts & GP_REPORT_SITES)
        ok = report_sites(report);
    if (ok && report->hints && parts & GP_REPORT_PEAK)
        ok = report_uses(report, parts & GP_REPORT_HISTORY);
    if (ok && parts & GP_REPORT_HISTORY)
        ok = report_history(report);
    return ok ? 0 : -ENOMEM;
}
