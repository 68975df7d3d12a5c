/* SPDX-License-Identifier: MIT
 *
 * sleep.c: the times in which blocks of a framework had no memory under them: what was released, what
 * stayed, what came back late, and the wake. See analyze.h.
 */
#include <analyze/analyze.h>
#include <analyze/beats.h>
#include <analyze/flow.h>
#include <analyze/tally.h>
#include <gpuprof/wire.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>

#include <stdlib.h>

/* Blocks that fall asleep within this time of the one before belong to one call. */
#define SLEEP_ONE_NS 500000000ull
/* A driver call that belongs to the last block ends within this time. */
#define SLEEP_LATE_NS 10000000ull
#define SLEEP_MOST    16u /* each costs two passes over the recording; further ones are only counted */

static int sleep_compare(const void *one, const void *other)
{
    const struct gp_peak_part *a = one, *b = other;
    return a->bytes != b->bytes ? GP_ORDER(b->bytes, a->bytes) : GP_ORDER(a->site, b->site);
}

static struct gp_peak *sleep_parts(const struct gp_recording *r, uint32_t device, const struct gp_sleep *sleep)
{
    struct gp_tally tally = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < r->sleep_count; i++) {
        const struct gp_rec_sleep *row = &r->sleeps[i];
        if (row->device == device && row->what == GP_SLEEP_FALLS && row->time_ns >= sleep->begin_ns &&
            row->time_ns <= sleep->end_ns)
            ok = gp_tally_move(&tally, row->site, row->bytes, true);
    }
    struct gp_peak *parts = ok ? calloc(1, sizeof(*parts) + (tally.count + 1) * sizeof(struct gp_peak_part)) : NULL;
    for (size_t i = 0; parts && i < tally.count; i++) {
        parts->parts[parts->count++] = (struct gp_peak_part){.site = (uint32_t)tally.rows[i].key,
                                                             .kind = GP_KIND_LINEAR,
                                                             .bytes = tally.rows[i].bytes,
                                                             .count = tally.rows[i].count};
        parts->bytes = (int64_t)((uint64_t)parts->bytes + (uint64_t)tally.rows[i].bytes);
    }
    if (parts) {
        parts->device = device;
        parts->time_ns = sleep->end_ns;
        qsort(parts->parts, parts->count, sizeof(parts->parts[0]), sleep_compare);
    }
    gp_tally_fini(&tally);
    return parts;
}

/* The reserved memory after the last block had fallen asleep, and by how much it fell before the first one woke. */
static void sleep_late(const struct gp_flow *flow, uint32_t device, struct gp_sleep *sleep)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    struct gp_level level = {0};
    uint64_t until = sleep->wake_ns ? sleep->wake_ns : UINT64_MAX, from = sleep->end_ns + SLEEP_LATE_NS;
    int64_t lowest = 0, before = 0;
    while (gp_flow_next(&walk, &change)) {
        if (change.item->device != device)
            continue;
        if (change.event != GP_REC_NONE && change.time_ns >= until)
            break;
        gp_level_apply(&level, &change);
        if (change.event == GP_REC_NONE || change.time_ns <= from)
            before = lowest = level.reserved;
        else if (level.reserved < lowest) {
            lowest = level.reserved;
            sleep->late_ns = change.time_ns;
        }
    }
    sleep->reserved_bytes = before;
    sleep->late_bytes = before - lowest;
}

/* One row after the other. A block that falls asleep after one has woken begins another time. */
static void sleep_row(struct gp_sleeps *sleeps, const struct gp_rec_sleep *row)
{
    struct gp_sleep *sleep = sleeps->count ? &sleeps->rows[sleeps->count - 1] : NULL;
    int64_t bytes = (int64_t)(row->bytes & INT64_MAX);
    if (row->what != GP_SLEEP_FALLS) {
        if (!sleep || sleeps->more) /* of a time that is not kept */
            return;
        sleep->wake_ns = row->what == GP_SLEEP_WAKES && !sleep->wake_ns ? row->time_ns : sleep->wake_ns;
        sleep->woken_ns = row->what == GP_SLEEP_WAKES ? row->time_ns : sleep->woken_ns;
        sleep->woke_bytes += row->what == GP_SLEEP_WAKES ? bytes : 0;
        sleep->ended_bytes += row->what == GP_SLEEP_ENDS ? bytes : 0;
        return;
    }
    if (!sleep || sleep->wake_ns || row->time_ns - sleep->end_ns > SLEEP_ONE_NS) {
        if (sleeps->count == SLEEP_MOST) {
            sleeps->more++;
            return;
        }
        sleep = &sleeps->rows[sleeps->count++];
        sleep->begin_ns = row->time_ns;
    }
    sleep->end_ns = row->time_ns;
    sleep->fell_bytes += bytes;
}

struct gp_sleeps *gp_flow_sleeps(const struct gp_flow *flow, uint32_t device)
{
    const struct gp_recording *r = flow->recording;
    struct gp_sleeps *sleeps = calloc(1, sizeof(*sleeps) + SLEEP_MOST * sizeof(struct gp_sleep));
    for (size_t i = 0; sleeps && i < r->sleep_count; i++)
        if (r->sleeps[i].device == device)
            sleep_row(sleeps, &r->sleeps[i]);
    for (uint32_t i = 0; sleeps && i < sleeps->count; i++) {
        struct gp_sleep *sleep = &sleeps->rows[i];
        sleep_late(flow, device, sleep);
        sleep->released = sleep_parts(r, device, sleep);
        sleep->stayed = gp_flow_peak(flow, device, sleep->end_ns);
        if (!sleep->released || !sleep->stayed) {
            gp_sleeps_free(sleeps);
            return NULL;
        }
    }
    return sleeps;
}

void gp_sleeps_free(struct gp_sleeps *sleeps)
{
    for (uint32_t i = 0; sleeps && i < sleeps->count; i++) {
        free(sleeps->rows[i].released);
        free(sleeps->rows[i].stayed);
    }
    free(sleeps);
}
