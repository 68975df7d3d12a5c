/* SPDX-License-Identifier: MIT
 *
 * join.c: makes one site of several, for readers to whom they are the same place; see recording.h. */
#include <read/recording/recording.h>

#include <stdlib.h>

static void join_events(struct gp_rec_event *events, size_t count, const uint32_t *to)
{
    for (size_t i = 0; i < count; i++)
        events[i].site = to[events[i].site];
}

static int join_holder_order(const void *one, const void *other)
{
    const struct gp_wire_oom_holder *a = one, *b = other;
    double left = (double)a->block_bytes * (double)a->count, right = (double)b->block_bytes * (double)b->count;
    return left != right ? (left < right ? 1 : -1) : (a->site > b->site) - (a->site < b->site);
}

void gp_recording_join_oom(struct gp_wire_oom *oom, const uint32_t *to)
{
    uint32_t kept = 0;
    oom->site = to[oom->site];
    for (uint32_t i = 0; i < oom->holder_count; i++) {
        struct gp_wire_oom_holder holder = oom->holders[i];
        uint32_t k = 0;
        holder.site = to[holder.site];
        while (k < kept && (oom->holders[k].site != holder.site || oom->holders[k].kind != holder.kind ||
                            oom->holders[k].block_bytes != holder.block_bytes))
            k++;
        if (k == kept)
            oom->holders[kept++] = holder;
        else
            oom->holders[k].count += holder.count;
    }
    oom->holder_count = kept;
    qsort(oom->holders, kept, sizeof(oom->holders[0]), join_holder_order);
}

void gp_recording_join(struct gp_recording *recording, const uint32_t *to)
{
    for (uint32_t i = 1; i < recording->site_count; i++) {
        struct gp_rec_site *from = &recording->sites[i], *site = &recording->sites[to[i]];
        if (from == site)
            continue;
        int64_t *const sums[] = {&site->live_bytes,    &site->live_count,      &site->peak_bytes,
                                 &site->at_peak_bytes, &site->allocated_bytes, &site->calls};
        int64_t *const parts[] = {&from->live_bytes,    &from->live_count,      &from->peak_bytes,
                                  &from->at_peak_bytes, &from->allocated_bytes, &from->calls};
        for (size_t k = 0; k < sizeof(sums) / sizeof(sums[0]); k++) {
            *sums[k] = (int64_t)((uint64_t)*sums[k] + (uint64_t)*parts[k]);
            *parts[k] = 0;
        }
    }
    join_events(recording->events, recording->event_count, to);
    for (size_t i = 0; i < recording->sleep_count; i++)
        recording->sleeps[i].site = to[recording->sleeps[i].site];
    join_events(recording->baseline, recording->baseline_count, to);
    if (recording->has_oom)
        gp_recording_join_oom(&recording->oom, to);
}
