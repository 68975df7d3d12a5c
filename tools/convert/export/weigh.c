/* SPDX-License-Identifier: MIT
 * weigh.c: computes the weight of each call site, for the formats that show stacks; see formats.h.
 *
 * Without losses the weights are sums of the events of the recorded time, the baseline included.
 * Where events were lost, the sums are too small, so the process's own numbers of each site are
 * used (exact, since the start of the process); allocations without a site keep the sums. */
#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <base/numbers.h>
#include <convert/export/formats.h>
#include <read/recording/recording.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct gp_weigh {
    const struct gp_recording *recording;
    struct gp_export_sums *sums;
    uint32_t *first; /* by site: index in rows + 1 */
    int rc;
};

static struct gp_export_sum *weigh_add(struct gp_weigh *weigh, uint32_t site, uint32_t device, uint8_t kind)
{
    struct gp_export_sums *sums = weigh->sums;
    if (sums->count == sums->room) {
        uint32_t room = sums->room ? sums->room * 2 : 256;
        struct gp_export_sum *rows = realloc(sums->rows, room * sizeof(rows[0]));
        if (!rows) {
            weigh->rc = -ENOMEM;
            return NULL;
        }
        sums->rows = rows;
        sums->room = room;
    }
    sums->rows[sums->count] =
        (struct gp_export_sum){.site = site, .device = device, .kind = kind, .next = weigh->first[site]};
    weigh->first[site] = sums->count + 1;
    return &sums->rows[sums->count++];
}

/* A site except site 0 has one device and kind, so the chains are short.  NULL: out of memory. */
static struct gp_export_sum *weigh_row(struct gp_weigh *weigh, uint32_t site, uint32_t device, uint8_t kind)
{
    for (uint32_t at = weigh->first[site]; at; at = weigh->sums->rows[at - 1].next) {
        struct gp_export_sum *row = &weigh->sums->rows[at - 1];
        if (row->device == device && row->kind == kind)
            return row;
    }
    return weigh_add(weigh, site, device, kind);
}

/* Fills everything but the peak, at the end of the walk. */
static void weigh_walk(struct gp_weigh *weigh, const struct gp_flow *flow)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    while (!weigh->rc && gp_flow_next(&walk, &change)) {
        if (!(change.what & GP_FLOW_SUMMED) || change.item->device >= weigh->recording->device_count)
            continue;
        struct gp_export_sum *row = weigh_row(weigh, change.item->site, change.item->device, change.item->kind);
        if (row && change.add) {
            row->allocated_count++;
            row->allocated_bytes += (int64_t)gp_flow_bytes(&change);
        }
        if (row) {
            row->live_count += change.add ? 1 : -1;
            row->live_bytes += change.add ? (int64_t)gp_flow_bytes(&change) : -(int64_t)gp_flow_bytes(&change);
        }
    }
}

static void weigh_peaks(struct gp_weigh *weigh, const struct gp_flow *flow, const struct gp_export_peak *peaks)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    for (uint64_t n = 1; !weigh->rc && gp_flow_next(&walk, &change); n++) {
        if (!(change.what & GP_FLOW_SUMMED) || change.item->device >= weigh->recording->device_count ||
            n > peaks[change.item->device].change)
            continue;
        struct gp_export_sum *row = weigh_row(weigh, change.item->site, change.item->device, change.item->kind);
        if (row)
            row->peak_bytes += change.add ? (int64_t)gp_flow_bytes(&change) : -(int64_t)gp_flow_bytes(&change);
    }
}

int gp_export_peaks(const struct gp_flow *flow, struct gp_export_peak *peaks)
{
    uint32_t count = flow->recording->device_count;
    struct gp_level *levels = calloc(count + 1, sizeof(levels[0]));
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    if (!levels)
        return -ENOMEM;
    memset(peaks, 0, count * sizeof(peaks[0]));
    for (uint64_t n = 1; gp_flow_next(&walk, &change); n++) {
        if (!(change.what & GP_FLOW_SUMMED) || change.item->device >= count)
            continue;
        struct gp_level *level = &levels[change.item->device];
        struct gp_export_peak *peak = &peaks[change.item->device];
        gp_level_apply(level, &change);
        if (level->allocated > peak->bytes)
            *peak = (struct gp_export_peak){n, change.event == GP_REC_NONE ? -1 : (int64_t)change.event, change.time_ns,
                                            level->allocated};
    }
    free(levels);
    return 0;
}

static int weigh_events(struct gp_weigh *weigh)
{
    struct gp_flow *flow = gp_flow_new(weigh->recording);
    struct gp_export_peak *peaks = calloc(weigh->recording->device_count + 1, sizeof(peaks[0]));
    int rc = flow && peaks ? gp_export_peaks(flow, peaks) : -ENOMEM;
    if (!rc) {
        weigh_walk(weigh, flow);
        weigh_peaks(weigh, flow, peaks);
    }
    gp_flow_free(flow);
    free(peaks);
    return rc ? rc : weigh->rc;
}

static void weigh_leaks(struct gp_weigh *weigh, const struct gp_steps *given)
{
    struct gp_steps *found = given ? NULL : gp_steps_find(weigh->recording);
    const struct gp_steps *steps = given ? given : found;
    struct gp_leaks *leaks = steps ? gp_leaks_find(weigh->recording, steps, 0) : NULL;
    if (!leaks)
        weigh->rc = -ENOMEM;
    for (uint32_t i = 0; leaks && i < leaks->count; i++) {
        for (uint32_t at = weigh->first[leaks->suspects[i].site]; at; at = weigh->sums->rows[at - 1].next) {
            struct gp_export_sum *row = &weigh->sums->rows[at - 1];
            if (row->device == leaks->suspects[i].device)
                row->leaked_bytes = row->live_bytes;
        }
    }
    free(leaks);
    free(found);
}

static uint32_t weigh_device(const struct gp_recording *recording, uint8_t index)
{
    uint32_t at = 0;
    while (at < recording->device_count && recording->devices[at].index != index)
        at++;
    return at;
}

/* Takes the process's own numbers where events were lost. */
static void weigh_own(struct gp_weigh *weigh)
{
    const struct gp_recording *recording = weigh->recording;
    for (uint32_t i = 1; i < recording->site_count && !weigh->rc; i++) {
        const struct gp_rec_site *site = &recording->sites[i];
        uint32_t device = weigh_device(recording, site->device);
        /* Not virtual, imported or unknown memory, which the process does not hold. */
        if (site->calls <= 0 || !gp_kind_sums(site->kind) || device == recording->device_count)
            continue;
        struct gp_export_sum *row = weigh_row(weigh, i, device, site->kind);
        if (!row)
            return;
        row->allocated_count = site->calls;
        row->allocated_bytes = site->allocated_bytes;
        row->live_count = site->live_count;
        row->live_bytes = site->live_bytes;
        row->peak_bytes = site->at_peak_bytes;
        row->leaked_bytes = row->leaked_bytes ? site->live_bytes : 0;
    }
}

int gp_export_weigh(const struct gp_export *export, struct gp_export_sums *sums)
{
    const struct gp_recording *recording = export->recording;
    struct gp_weigh weigh = {recording, sums, calloc(recording->site_count + 1, sizeof(uint32_t)), 0};
    memset(sums, 0, sizeof(*sums));
    if (!weigh.first)
        return -ENOMEM;
    weigh.rc = weigh_events(&weigh);
    if (!weigh.rc && export->weight == GP_EXPORT_LEAKED)
        weigh_leaks(&weigh, export->steps);
    if (!weigh.rc && (gp_rec_missing(recording) || recording->damaged_blocks))
        weigh_own(&weigh);
    free(weigh.first);
    if (weigh.rc) {
        free(sums->rows);
        memset(sums, 0, sizeof(*sums));
    }
    return weigh.rc;
}

int64_t gp_export_weight_of(const struct gp_export_sum *sum, enum gp_export_weight weight)
{
    switch (weight) {
    case GP_EXPORT_PEAK:
        return sum->peak_bytes;
    case GP_EXPORT_ALLOCATED:
        return sum->allocated_bytes;
    case GP_EXPORT_LEAKED:
        return sum->leaked_bytes;
    default:
        return sum->live_bytes;
    }
}
