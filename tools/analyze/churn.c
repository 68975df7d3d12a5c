/* SPDX-License-Identifier: MIT
 * churn.c: finds blocks that are allocated and freed within one step; see analyze.h. */
#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <analyze/tally.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>

#include <stdlib.h>

/* The step that a moment is in; GP_REC_NONE before the first and after the last. */
static uint32_t churn_step(const struct gp_steps *steps, uint64_t time_ns)
{
    uint32_t low = 0, high = steps->count + 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (steps->bounds_ns[middle] <= time_ns)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == steps->count + 1 && time_ns == steps->bounds_ns[steps->count] && steps->count)
        return steps->count - 1; /* the last moment belongs to the last step */
    return low == 0 || low > steps->count ? GP_REC_NONE : low - 1;
}

static int churn_compare(const void *one, const void *other)
{
    const struct gp_churn_site *a = one, *b = other;
    if (a->pairs != b->pairs)
        return GP_ORDER(b->pairs, a->pairs);
    if (a->bytes != b->bytes)
        return GP_ORDER(b->bytes, a->bytes);
    return GP_ORDER(a->site, b->site);
}

/* Duration of an event's driver call, ns; 0 unknown. */
static uint64_t churn_cost(const struct gp_recording *recording, uint32_t event)
{
    return event < recording->event_count ? gp_wire_cost_ns((uint8_t)recording->events[event].cost) : 0;
}

static struct gp_churn *churn_make(const struct gp_churn *totals, const struct gp_tally *tally)
{
    struct gp_churn *churn = calloc(1, sizeof(*churn) + (tally->count + 1) * sizeof(struct gp_churn_site));
    if (!churn)
        return NULL;
    *churn = *totals;
    double steps = churn->steps ? churn->steps : 1;
    churn->pairs_per_step = (double)churn->pairs / steps;
    for (size_t i = 0; i < tally->count; i++) {
        const struct gp_tally_row *row = &tally->rows[i];
        churn->sites[churn->count++] = (struct gp_churn_site){
            .site = (uint32_t)row->key,
            .pairs = (uint64_t)row->count,
            .pairs_per_step = (double)row->count / steps,
            .bytes = (uint64_t)row->bytes,
            .mean_life_ns = row->extra / (uint64_t)row->count,
            .driver_ns = row->more,
        };
    }
    qsort(churn->sites, churn->count, sizeof(churn->sites[0]), churn_compare);
    return churn;
}

struct gp_churn *gp_flow_churn(const struct gp_flow *flow, const struct gp_steps *steps)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    struct gp_tally tally = {0};
    struct gp_churn totals = {.steps = steps->count}, *churn = NULL;
    bool ok = true;
    while (ok && gp_flow_next(&walk, &change)) {
        uint32_t step = change.event == GP_REC_NONE || !(change.what & GP_FLOW_KIND)
                            ? GP_REC_NONE
                            : churn_step(steps, change.time_ns);
        if (step == GP_REC_NONE)
            continue;
        totals.allocations += change.add;
        totals.frees += !change.add;
        /* The start of a baseline block, or of a block known only from its free, is in no step. */
        bool seen = !change.add && change.id < flow->recording->event_count &&
                    flow->recording->events[change.id].type != GP_EVENT_FREE;
        if (!seen || churn_step(steps, flow->recording->events[change.id].time_ns) != step)
            continue;
        totals.pairs++;
        struct gp_tally_row *row = gp_tally_at(&tally, change.item->site);
        ok = row;
        if (!ok)
            break;
        uint64_t life = change.time_ns - flow->recording->events[change.id].time_ns;
        row->count++;
        row->bytes = (int64_t)((uint64_t)row->bytes + change.item->bytes);
        row->extra += life;
        uint64_t cost = churn_cost(flow->recording, change.id) + churn_cost(flow->recording, change.event);
        row->more += cost;
        totals.driver_ns += cost;
    }
    if (ok)
        churn = churn_make(&totals, &tally);
    gp_tally_fini(&tally);
    return churn;
}
