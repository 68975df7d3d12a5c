/* SPDX-License-Identifier: MIT
 * bill.c: Lists all known memory of a process on a device, and compares the sum with what NVML
 * reports; see analyze.h. */
#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <analyze/ranges.h>
#include <base/numbers.h>
#include <stdio.h>
#include <stdlib.h>

#define GP_BILL_ROWS (GP_KINDS + 8)

struct gp_bill_state {
    int64_t kinds[GP_KINDS];
    int64_t cached;   /* blocks inside segments of caches */
    int64_t segments; /* of caches */
    struct gp_level level;
    struct gp_flow_polled polled;
};

/* The last moment for which NVML reported the process's bytes.  Without one, the peak of reserved,
 * since programs clean up before they end. changes: how many of the walk lead to it. */
static uint64_t bill_moment(const struct gp_flow *flow, uint32_t device, int64_t *process_bytes, size_t *changes)
{
    const struct gp_recording *recording = flow->recording;
    uint64_t moment = 0;
    *process_bytes = -1;
    for (size_t i = 0; i < recording->sample_count; i++) {
        const struct gp_rec_sample *sample = &recording->samples[i];
        if (sample->device != device || sample->process_bytes < 0 || sample->time_ns < moment)
            continue;
        moment = sample->time_ns;
        *process_bytes = sample->process_bytes;
    }
    *changes = SIZE_MAX;
    if (*process_bytes >= 0)
        return moment;
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    struct gp_level level = {0};
    const struct gp_flow_polled none = {0};
    int64_t high = -1;
    moment = recording->begin_ns;
    for (size_t i = 1; gp_flow_next(&walk, &change); i++) {
        if (change.item->device != device)
            continue;
        gp_level_apply(&level, &change);
        int64_t reserved = gp_flow_polled_reserved(&none, &level);
        if (reserved > high) {
            high = reserved;
            moment = change.time_ns;
            *changes = recording->polled ? i : SIZE_MAX;
        }
    }
    return moment;
}

static bool bill_next(struct gp_flow_walk *walk, struct gp_flow_change *change, uint64_t moment, size_t *changes)
{
    return (*changes)-- > 0 && gp_flow_next(walk, change) &&
           (change->event == GP_REC_NONE || change->time_ns <= moment);
}

static void bill_walk(const struct gp_flow *flow, uint32_t device, uint64_t moment, size_t changes,
                      struct gp_bill_state *state)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    state->polled = gp_flow_polled_begin(flow, device);
    while (bill_next(&walk, &change, moment, &changes)) {
        if (change.item->device != device)
            continue;
        uint64_t bytes = change.add ? change.item->bytes : -change.item->bytes;
        gp_flow_polled_advance(&state->polled, change.time_ns, &state->level);
        gp_level_apply(&state->level, &change);
        if (change.what & GP_FLOW_KIND)
            state->kinds[change.item->kind % GP_KINDS] =
                (int64_t)((uint64_t)state->kinds[change.item->kind % GP_KINDS] + bytes);
        if (change.what & GP_FLOW_CACHED)
            state->cached = (int64_t)((uint64_t)state->cached + bytes);
        if (gp_ranges_takes(change.item))
            state->segments = (int64_t)((uint64_t)state->segments + bytes);
    }
    gp_flow_polled_advance(&state->polled, moment, &state->level);
}

static void bill_put(struct gp_bill *bill, const char *what, int64_t bytes, bool estimated)
{
    struct gp_bill_row *row = &bill->rows[bill->count++];
    snprintf(row->what, sizeof(row->what), "%s", what);
    row->bytes = bytes;
    row->estimated = estimated;
}

/* The driver rounds up to 512 bytes for blocks up to 1 MiB, and to 2 MiB pages above
 * (core/base/gauge.h).  Only blocks outside of caches are rounded. */
static int64_t bill_rounding(const struct gp_flow *flow, uint32_t device, uint64_t moment, size_t changes)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    uint64_t rounding = 0;
    while (bill_next(&walk, &change, moment, &changes)) {
        if (change.item->device != device || change.item->kind != GP_KIND_LINEAR || !(change.what & GP_FLOW_RESERVED) ||
            !(change.what & GP_FLOW_KIND))
            continue;
        uint64_t step = change.item->bytes <= 1u << 20 ? 512 : 2u << 20, over = change.item->bytes % step;
        over = over ? step - over : 0;
        rounding += change.add ? over : -over;
    }
    return (int64_t)rounding;
}

static void bill_rows(struct gp_bill *bill, const struct gp_bill_state *state, int64_t rounding,
                      const struct gp_wire_before_device *before, bool host)
{
    int64_t known = before && before->bytes > 0 ? before->bytes : 0;
    for (unsigned kind = GP_KIND_LINEAR; kind < GP_KINDS; kind++) {
        int64_t bytes = state->kinds[kind];
        /* Code of kernels is on the device too, although it is in no total. */
        if (bytes <= 0 || (!gp_kind_sums(kind) && !gp_kind_is(kind, GP_TRAIT_CODE)))
            continue;
        bill_put(bill, kind == GP_KIND_POOL ? "pool: in use" : gp_kind_name(kind), bytes,
                 gp_kind_is(kind, GP_TRAIT_ESTIMATE));
        known += bytes;
    }
    int64_t idle = state->segments - state->cached, pool = gp_flow_polled_idle(&state->polled, &state->level);
    if (state->level.graph > 0) {
        bill_put(bill, "graphs: in use", state->level.graph, true);
        known += state->level.graph;
    }
    if (idle > 0)
        bill_put(bill, "cache: reserved, not in use", idle, false);
    if (pool > 0)
        bill_put(bill, "pools and graphs: reserved, not in use", pool, true);
    if (rounding > 0)
        bill_put(bill, "rounding by the driver", rounding, true);
    known += (idle > 0 ? idle : 0) + pool + (rounding > 0 ? rounding : 0);
    if (before)
        bill_put(bill, "before attach", before->bytes, before->source != GP_BEFORE_DRIVER);
    if (state->kinds[GP_KIND_MANAGED] > 0)
        bill_put(bill, "managed: the part on the device", -1, false);
    if (state->kinds[GP_KIND_IMPORTED] > 0)
        bill_put(bill, "imported: memory of other processes, in no sum", state->kinds[GP_KIND_IMPORTED], false);
    if (!host)
        bill_put(bill, "context", -1, false);
    if (bill->process_bytes >= 0)
        bill_put(bill, "untracked", bill->process_bytes - known, true);
}

struct gp_bill *gp_flow_bill(const struct gp_flow *flow, uint32_t device)
{
    struct gp_bill *bill = calloc(1, sizeof(*bill) + GP_BILL_ROWS * sizeof(struct gp_bill_row));
    struct gp_bill_state state = {0};
    if (!bill)
        return NULL;
    bill->device = device;
    size_t changes;
    bill->time_ns = bill_moment(flow, device, &bill->process_bytes, &changes);
    bill_walk(flow, device, bill->time_ns, changes, &state);
    const struct gp_wire_before_device before = gp_rec_before_at(flow->recording, device, bill->time_ns);
    bool host = flow->recording->devices[device].index == GP_WIRE_HOST;
    bill_rows(bill, &state, bill_rounding(flow, device, bill->time_ns, changes),
              flow->recording->attached == GP_REC_ATTACHED_YES && !host ? &before : NULL, host);
    return bill;
}
