/* SPDX-License-Identifier: MIT
 * peak.c: the parts of the allocated memory at one moment; see analyze.h. */
#include <analyze/analyze.h>
#include <analyze/beats.h>
#include <analyze/flow.h>
#include <analyze/tally.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <stdlib.h>
#include <string.h>

/* How many changes lead to the peak; of equal peaks the first. */
static size_t peak_moment(const struct gp_flow *flow, uint32_t device, uint64_t *time_ns)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    size_t changes = 0, moment = 0;
    int64_t high = 0;
    struct gp_level level = {0};
    *time_ns = flow->recording->begin_ns;
    while (gp_flow_next(&walk, &change)) {
        changes++;
        if (change.item->device != device)
            continue;
        gp_level_apply(&level, &change);
        /* All blocks that were there at the start are one moment. */
        if (level.allocated > high || (change.event == GP_REC_NONE && level.allocated == high)) {
            high = level.allocated;
            moment = changes;
            *time_ns = change.time_ns;
        }
    }
    return moment;
}

static int peak_compare(const void *one, const void *other)
{
    const struct gp_peak_part *a = one, *b = other;
    if (a->bytes != b->bytes)
        return GP_ORDER(b->bytes, a->bytes);
    if (a->site != b->site)
        return GP_ORDER(a->site, b->site);
    return GP_ORDER(a->kind, b->kind);
}

static struct gp_peak *peak_make(const struct gp_tally *tally, uint32_t device, uint64_t time_ns, uint32_t event)
{
    struct gp_peak *peak = calloc(1, sizeof(*peak) + (tally->count + 1) * sizeof(struct gp_peak_part));
    if (!peak)
        return NULL;
    peak->device = device;
    peak->time_ns = time_ns;
    peak->event_index = event;
    for (size_t i = 0; i < tally->count; i++) {
        const struct gp_tally_row *row = &tally->rows[i];
        if (row->bytes == 0 && row->count == 0)
            continue;
        peak->parts[peak->count++] = (struct gp_peak_part){
            .site = (uint32_t)(row->key >> 8), .kind = (uint8_t)row->key, .bytes = row->bytes, .count = row->count};
        peak->bytes = (int64_t)((uint64_t)peak->bytes + (uint64_t)row->bytes);
    }
    qsort(peak->parts, peak->count, sizeof(peak->parts[0]), peak_compare);
    return peak;
}

struct gp_peak *gp_flow_peak(const struct gp_flow *flow, uint32_t device, uint64_t at_ns)
{
    uint64_t time_ns = at_ns;
    size_t moment = at_ns ? SIZE_MAX : peak_moment(flow, device, &time_ns), changes = 0;
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    struct gp_tally tally = {0};
    struct gp_peak *peak = NULL;
    uint32_t event = GP_REC_NONE;
    bool ok = true;
    while (ok && changes++ < moment && gp_flow_next(&walk, &change)) {
        if (at_ns && change.event != GP_REC_NONE && change.time_ns > at_ns)
            break;
        event = change.event;
        if (change.item->device == device && change.what & GP_FLOW_SUMMED)
            ok = gp_tally_move(&tally, (uint64_t)change.item->site << 8 | change.item->kind, gp_flow_bytes(&change),
                               change.add);
    }
    if (ok)
        peak = peak_make(&tally, device, time_ns, event);
    gp_tally_fini(&tally);
    return peak;
}
