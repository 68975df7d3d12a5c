/* SPDX-License-Identifier: MIT
 * apart.c: the peak of one kind of memory, for those that are in no total; see report.h.  Called by
 * tools/show/text and tools/show/gate. */
#include <analyze/flow.h>
#include <analyze/report.h>
#include <stdlib.h>

static bool apart_is(const struct gp_flow_change *change, uint32_t device, unsigned kind)
{
    return change->item->device == device && change->item->kind == kind && change->what & GP_FLOW_KIND;
}

/* The site that holds most after so many changes of this kind. */
static bool apart_holder(const struct gp_flow *flow, uint32_t device, unsigned kind, uint64_t changes,
                         struct gp_kind_peak *peak)
{
    const uint32_t count = flow->recording->site_count;
    int64_t *held = calloc(count + 1ul, sizeof(*held));
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    while (held && changes && gp_flow_next(&walk, &change)) {
        if (!apart_is(&change, device, kind))
            continue;
        changes--;
        if (change.item->site < count)
            held[change.item->site] += change.add ? (int64_t)change.item->bytes : -(int64_t)change.item->bytes;
    }
    for (uint32_t i = 0; held && i < count; i++) {
        if (held[i] > peak->site_bytes) {
            peak->site = i;
            peak->site_bytes = held[i];
        }
    }
    free(held);
    return held;
}

bool gp_flow_kind_peak(const struct gp_flow *flow, uint32_t device, unsigned kind, struct gp_kind_peak *peak)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    uint64_t changes = 0, at = 0;
    *peak = (struct gp_kind_peak){0};
    while (gp_flow_next(&walk, &change)) {
        if (!apart_is(&change, device, kind))
            continue;
        changes++;
        peak->end_bytes += change.add ? (int64_t)change.item->bytes : -(int64_t)change.item->bytes;
        if (peak->end_bytes > peak->bytes) {
            peak->bytes = peak->end_bytes;
            at = changes;
        }
    }
    return at == 0 || apart_holder(flow, device, kind, at, peak);
}
