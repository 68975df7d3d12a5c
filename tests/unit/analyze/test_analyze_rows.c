/* SPDX-License-Identifier: MIT
 *
 * test_analyze_rows.c: what call sites held, grew by and added in phases, of hundreds of small recordings, against sums over
 * all blocks of a site.
 */
#include <analyze/flow.h>
#include <analyze/forecast.h>
#include <analyze/report.h>
#include <lib/analyses.h>

#include "checked_memory.h"
#include "naive.h"

TestSuite(rows, .timeout = 120);

/* ---- sites ----------------------------------------------------------------------------------------------------------- */

static void sites_compared(const struct gp_report *report, const struct item *items, unsigned count)
{
    for (uint32_t site = 0; site < report->recording->site_count; site++) {
        const struct gp_report_site *row = &report->sites[site];
        int64_t peak = 0, live = 0, calls = 0, allocated = 0, at_peak = 0;
        for (int64_t at = -1; at < (int64_t)report->recording->event_count; at++) {
            int64_t held = 0;
            for (unsigned i = 0; i < count; i++)
                if (items[i].event->site == site && items[i].first <= at && items[i].last > at)
                    held += (int64_t)items[i].event->bytes;
            peak = held > peak ? held : peak;
        }
        for (unsigned i = 0; i < count; i++) {
            bool here = items[i].event->site == site, stays = here && items[i].last == NEVER;
            calls += here;
            live += stays;
            allocated += here ? (int64_t)items[i].event->bytes : 0;
            at_peak += stays ? (int64_t)items[i].event->bytes : 0;
        }
        cr_assert(row->peak_bytes == peak && row->calls == calls && row->allocated_bytes == allocated &&
                      row->live_count == live && row->live_bytes == at_peak,
                  "site %u: %lld, not %lld", site, (long long)row->peak_bytes, (long long)peak);
        at_peak = 0;
        for (uint32_t d = 0; d < report->recording->device_count; d++)
            for (uint32_t i = 0; report->devices[d].peak && i < report->devices[d].peak->count; i++)
                at_peak += report->devices[d].peak->parts[i].site == site ? report->devices[d].peak->parts[i].bytes : 0;
        cr_assert_eq(row->at_peak_bytes, at_peak);
    }
}

/* What the sites of each row held, and called, in one of two recordings. */
static void side_compared(const struct gp_diff *diff, const struct gp_recording *recording, int side,
                          const uint32_t *rows, uint32_t row_count)
{
    static struct span spans[1200];
    static struct item items[1200];
    unsigned span_count = 0, item_count = items_of(recording, items);
    uint32_t seen = 0;
    for (uint32_t device = 0; device < 3; device++)
        span_count += spans_of(recording, device, spans + span_count);
    for (uint32_t r = 0; r < row_count; r++) {
        int64_t own = 0, calls = 0, live = 0, at_peak = 0;
        uint32_t first = GP_REC_NONE;
        for (int64_t at = -1; at < (int64_t)recording->event_count; at++) {
            int64_t held = 0;
            for (unsigned i = 0; i < span_count; i++)
                if (rows[spans[i].item->site] == r)
                    held += (spans[i].first <= at ? (int64_t)spans[i].bytes : 0) -
                            (spans[i].last <= at ? (int64_t)spans[i].off : 0);
            own = held > own ? held : own;
        }
        for (unsigned i = 0; i < item_count; i++) {
            if (rows[items[i].event->site] != r)
                continue;
            calls++;
            live += items[i].last == NEVER ? (int64_t)items[i].event->bytes : 0;
            first = items[i].event->site < first ? items[i].event->site : first;
        }
        for (uint32_t device = 0; device < 3; device++) {
            struct gp_peak *peak = analysis_peak(recording, device, 0);
            for (uint32_t i = 0; i < peak->count; i++)
                at_peak += rows[peak->parts[i].site] == r ? peak->parts[i].bytes : 0;
            free(peak);
        }
        for (uint32_t i = 0; i < diff->count && first != GP_REC_NONE; i++) {
            const struct gp_diff_row *row = &diff->rows[i];
            if (row->site[side] != first)
                continue;
            seen++;
            cr_assert(row->peak_bytes[side] == at_peak && row->own_bytes[side] == own && row->calls[side] == calls &&
                          row->live_bytes[side] == live,
                      "row %u side %d: %lld at most, not %lld", r, side, (long long)row->own_bytes[side],
                      (long long)own);
            first = GP_REC_NONE;
        }
        cr_assert_eq(first, GP_REC_NONE, "no row of site %u", first);
    }
    for (uint32_t i = 0; i < diff->count; i++)
        seen -= diff->rows[i].site[side] != GP_REC_NONE;
    cr_assert_eq(seen, 0);
}

/* Less than 0: one comes first, by what grew at the peak, then by what stays. */
static int64_t row_order(const struct gp_diff_row *one, const struct gp_diff_row *other)
{
    int64_t peak = other->peak_bytes[1] - other->peak_bytes[0] - (one->peak_bytes[1] - one->peak_bytes[0]),
            live = other->live_bytes[1] - other->live_bytes[0] - (one->live_bytes[1] - one->live_bytes[0]);
    return peak ? peak : live ? live : (int64_t)one->site[0] - other->site[0] ?: (int64_t)one->site[1] - other->site[1];
}

Test(rows, sites_and_rows_of_two_recordings)
{
    static struct item items[1200];
    for (unsigned number = 0; number < RECORDINGS; number++) {
        struct gp_recording *both[2] = {tiny_make(number), tiny_make(number + 2)};
        uint32_t rows[2][16], row_count = 2 + number % 6;
        struct gp_report report;
        for (uint32_t i = 0; i < 32; i++)
            rows[i / 16][i % 16] = (i * 7 + number) % row_count;
        struct gp_diff *diff = gp_diff_find((const struct gp_recording *const *)both,
                                            (const uint32_t *const[2]){rows[0], rows[1]}, row_count);
        for (int side = 0; side < 2; side++)
            side_compared(diff, both[side], side, rows[side], row_count);
        for (uint32_t i = 1; i < diff->count; i++)
            cr_assert_lt(row_order(&diff->rows[i - 1], &diff->rows[i]), 0);
        free(diff);
        cr_assert_eq(gp_report_init(&report, both[0], NULL, "x"), 0);
        cr_assert_eq(gp_report_run(&report, GP_REPORT_SITES | GP_REPORT_PEAK, GP_DETAIL_PLOT), 0);
        sites_compared(&report, items, items_of(both[0], items));
        gp_report_fini(&report);
        gp_recording_free(both[0]);
        gp_recording_free(both[1]);
    }
}

/* ---- leaks: the curves of all sites ---------------------------------------------------------------------------------- */

/* What a site held of a kind on a device before the changes of a moment, as `items` has it. */
struct curve {
    uint32_t site, device;
    uint8_t kind;
    uint32_t points, warm;
    uint64_t older_ns;
    const struct gp_recording *recording;
    const struct gp_steps *steps;
    const struct item *items;
    unsigned count;
};

static uint64_t point_time(const struct curve *curve, uint32_t point)
{
    return curve->steps->bounds_ns[(size_t)point * curve->steps->count / curve->points];
}

/* Items that are too young to count, if they stay, are left out. */
static bool of_curve(const struct curve *curve, const struct item *item)
{
    const struct gp_rec_event *event = item->event;
    bool young = curve->older_ns && item->last == NEVER && event->time_ns + curve->older_ns > curve->recording->end_ns;
    return event->site == curve->site && event->device == curve->device && event->kind == curve->kind && !young;
}

static int64_t curve_before(const struct curve *curve, uint64_t time_ns, int64_t *blocks)
{
    int64_t held = 0;
    *blocks = 0;
    for (unsigned i = 0; i < curve->count; i++)
        if (of_curve(curve, &curve->items[i]) && curve->items[i].from < time_ns && curve->items[i].to >= time_ns) {
            held += (int64_t)curve->items[i].event->bytes;
            ++*blocks;
        }
    return held;
}

/* The least that was held during each point, from what there was before its first change.  A block whose address is
 * allocated again goes before the new one comes. */
static void curve_kept(const struct curve *curve, int64_t *kept)
{
    int64_t blocks;
    for (uint32_t p = 0; p <= curve->points; p++)
        kept[p] = curve_before(curve, point_time(curve, p), &blocks);
    for (int64_t at = 0; at < (int64_t)curve->recording->event_count; at++) {
        uint64_t now = curve->recording->events[at].time_ns;
        int64_t held = 0;
        for (unsigned i = 0; i < curve->count; i++)
            if (of_curve(curve, &curve->items[i]) && curve->items[i].first < at && curve->items[i].last > at)
                held += (int64_t)curve->items[i].event->bytes;
        for (uint32_t p = 0; p < curve->points; p++)
            if (now >= point_time(curve, p) && now < point_time(curve, p + 1) && held < kept[p])
                kept[p] = held;
    }
}

static void leak_compared(const struct curve *curve, const int64_t *kept, const struct gp_trend *trend,
                          const struct gp_leak *leak, const int64_t *leak_kept)
{
    uint64_t last_ns = point_time(curve, curve->points), oldest = last_ns;
    int64_t taken = 0, freed = 0, blocks, low = -1, high = -1;
    cr_assert_eq(memcmp(kept, leak_kept, (curve->points + 1) * sizeof(*kept)), 0);
    cr_assert_eq(leak->live_bytes, curve_before(curve, last_ns, &blocks));
    cr_assert_eq(leak->live_count, blocks);
    for (unsigned i = 0; i < curve->count; i++) {
        const struct item *item = &curve->items[i];
        uint64_t began = item->first < 0 && !item->early ? curve->recording->begin_ns : item->event->time_ns;
        if (!of_curve(curve, item) || item->from >= last_ns)
            continue;
        taken += item->early ? 0 : (int64_t)item->event->bytes;
        freed += item->early || item->to >= last_ns ? 0 : (int64_t)item->event->bytes;
        oldest = item->to >= last_ns && began < oldest ? began : oldest;
    }
    cr_assert(leak->taken_bytes == taken && leak->freed_bytes == freed);
    cr_assert_eq(leak->oldest_ns, last_ns - oldest);
    for (uint32_t p = curve->warm; p < curve->points; p++)
        if (kept[p + 1] > kept[p]) {
            low = low < 0 ? p : low;
            high = p + 1;
        }
    cr_assert_eq(leak->grows_ns, point_time(curve, (uint32_t)high) - point_time(curve, (uint32_t)low));
    cr_assert_float_eq(leak->bytes_per_second * (double)leak->grows_ns / 1e9, (double)(kept[high] - kept[low]), 1e-3);
    cr_assert_float_eq(leak->bytes_per_step * curve->steps->count, trend->slope * curve->points, 1e-6);
    bool guess = curve->steps->source == GP_STEPS_TIME;
    cr_assert_float_eq(leak->confidence, trend->confidence * (guess ? 0.5 : 1), 1e-9);
}

/* Each site, device and kind whose curve says so is a suspect, with these numbers, and nothing else is. */
static unsigned leaks_compared(const struct gp_recording *recording, const struct gp_steps *steps, uint64_t older_ns)
{
    static struct item items[1200];
    struct gp_leaks *leaks = gp_leaks_find(recording, steps, older_ns);
    struct curve curve = {.points = steps->count < 200 ? steps->count : 200,
                          .recording = recording,
                          .steps = steps,
                          .items = items,
                          .count = items_of(recording, items),
                          .older_ns = older_ns};
    uint32_t found = 0;
    curve.warm = curve.points >= 10 ? curve.points / 10 : 1;
    for (unsigned key = 0;
         key < recording->site_count * 3 * GP_KINDS && !strstr(leaks->why, "cannot be known") && steps->count >= 4;
         key++) {
        int64_t kept[201], blocks, warm_blocks;
        struct gp_trend trend;
        curve.site = key / 3 / GP_KINDS, curve.device = key / GP_KINDS % 3, curve.kind = key % GP_KINDS;
        curve_kept(&curve, kept);
        curve_before(&curve, point_time(&curve, curve.points), &blocks);
        int64_t warm = curve_before(&curve, point_time(&curve, curve.warm), &warm_blocks);
        struct gp_trend later;
        uint32_t count = curve.points + 1 - curve.warm, flat = 0;
        while (flat + 1 < count && kept[curve.warm + flat + 1] <= kept[curve.warm + flat])
            flat++;
        bool grows = gp_trend_find(kept + curve.warm, count, &trend) &&
                     trend.confidence * (steps->source == GP_STEPS_TIME ? 0.5 : 1) >= 0.4 &&
                     (blocks > warm_blocks || !trend.falls) && kept[curve.points] > warm &&
                     curve.kind != GP_KIND_VIRTUAL && curve.kind != GP_KIND_GRAPH;
        /* A flat beginning is no part of the line. */
        if (flat >= count / 8 && gp_trend_find(kept + curve.warm + flat, count - flat, &later))
            trend.slope = later.slope;
        for (uint32_t i = 0; i < leaks->count; i++) {
            const struct gp_leak *leak = &leaks->suspects[i];
            if (leak->site != curve.site || leak->device != curve.device || leak->kind != curve.kind)
                continue;
            leak_compared(&curve, kept, &trend, leak, leak->kept);
            cr_assert(grows && (!i || leak[-1].bytes_per_step > leak->bytes_per_step ||
                                (!(leak[-1].bytes_per_step < leak->bytes_per_step) && leak[-1].site <= leak->site)));
            grows = false;
            found++;
        }
        cr_assert(!grows, "site %u", curve.site);
    }
    cr_assert_eq(found, leaks->count);
    free(leaks);
    return found;
}

Test(rows, leaks_are_the_curves_that_grow)
{
    unsigned found = 0;
    for (unsigned number = 0; number < RECORDINGS; number++) {
        struct gp_recording *recording = tiny_make(number);
        struct gp_steps *steps = gp_steps_find(recording);
        uint64_t span = recording->end_ns - recording->begin_ns;
        for (unsigned i = 0; i < 3; i++) /* all, and the older ones */
            found += leaks_compared(recording, steps, i * span / 8);
        free(steps);
        gp_recording_free(recording);
    }
    cr_assert_gt(found, RECORDINGS / 8, "%u suspects", found);
}

/* ---- phases between marks and steps ---------------------------------------------------------------------------------- */

struct phase { /* before the event `begin` until before the event `end` */
    char name[40];
    uint32_t begin, end;
};

/* The occurrences of phases; 0: there are ranges, whose nesting test_phases_limits.c judges. */
static unsigned phases_of(const struct gp_recording *recording, const struct gp_steps *steps, struct phase *phases)
{
    unsigned count = 0, events = (unsigned)recording->event_count, bound = 0;
    for (uint32_t i = 0; i < events; i++) {
        const char *mark = recording->strings + recording->events[i].bytes;
        if (recording->events[i].type != GP_EVENT_MARK)
            continue;
        if (strstr(mark, "nvtx:"))
            return 0;
        strcpy(phases[count].name, strncmp(mark, "nvtx.", 5) ? mark : mark + 5);
        phases[count].name[strcspn(phases[count].name, " 0123456789")] = '\0';
        if (!phases[count].name[0])
            strcpy(phases[count].name, "?");
        phases[count++].begin = i;
    }
    if (!count && (!steps->count || steps->source == GP_STEPS_TIME)) {
        phases[count++] = (struct phase){"whole recording", 0, 0};
    } else if (!count) {
        bool are = steps->source != GP_STEPS_PERIOD && (steps->source != GP_STEPS_NVTX || steps->told);
        phases[count++] = (struct phase){"", 0, 0};
        strcpy(phases[0].name, are ? "before the steps" : "before the repeats");
        for (uint32_t i = 0; bound <= steps->count; i++)
            while (bound <= steps->count && (i == events || recording->events[i].time_ns >= steps->bounds_ns[bound])) {
                bool last = bound++ == steps->count;
                phases[count] = (struct phase){"", i, 0};
                strcpy(phases[count++].name, last && are ? "after the steps"
                                             : last      ? "after the repeats"
                                             : are       ? "step"
                                                         : "repeat");
            }
    }
    for (unsigned i = 0; i < count; i++)
        phases[i].end = i + 1 < count ? phases[i + 1].begin : events;
    return count;
}

/* What the spans of a site hold before an event; of site 0, those of one kind.  use: -1 of any use. */
static int64_t held_before(const struct span *spans, unsigned count, int64_t site, unsigned kind,
                           const struct gp_use_table *uses, int use, int64_t event)
{
    int64_t held = 0;
    for (unsigned i = 0; i < count; i++) {
        if ((site >= 0 && (spans[i].item->site != site || (!site && spans[i].item->kind != kind))) ||
            (use >= 0 && uses->rows[uses->rule[spans[i].id]].use != (unsigned)use))
            continue;
        held += spans[i].first < event ? (int64_t)spans[i].bytes : 0;
        held -= spans[i].last < event ? (int64_t)spans[i].off : 0;
    }
    return held;
}

/* The changes of each site and use in the occurrence of a phase that is shown. */
static void parts_compared(const struct gp_phase *row, const struct gp_recording *recording, const struct span *spans,
                           unsigned count, const struct gp_use_table *uses, const int64_t at[3])
{
    unsigned parts = 0;
    for (uint32_t column = 0; column < recording->site_count - 1 + GP_KINDS; column++) {
        uint32_t site = column < GP_KINDS ? 0 : column - GP_KINDS + 1, kind = site ? 0 : column;
        int64_t held[3];
        for (unsigned i = 0; i < 3; i++)
            held[i] = held_before(spans, count, site, kind, uses, -1, at[i]);
        if (held[1] == held[0] && held[2] == held[0])
            continue;
        parts++;
        bool found = false;
        for (uint32_t i = 0; i < row->part_count; i++) {
            const struct gp_phase_part *part = &row->parts[i];
            if (part->site == site && (site || part->kind == kind))
                found = part->added_bytes == held[1] - held[0] && part->left_bytes == held[2] - held[0];
        }
        cr_assert(found, "%s: site %u kind %u", row->name, site, kind);
    }
    cr_assert_eq(row->part_count, parts);
    for (uint32_t i = 1; i < row->part_count; i++) {
        const struct gp_phase_part *a = &row->parts[i - 1], *b = &row->parts[i];
        cr_assert(a->added_bytes > b->added_bytes ||
                  (a->added_bytes == b->added_bytes &&
                   (a->left_bytes > b->left_bytes || (a->left_bytes == b->left_bytes && a->site <= b->site))));
    }
    for (int use = 0; use < GP_USES; use++) {
        int64_t held[3];
        for (unsigned i = 0; i < 3; i++)
            held[i] = held_before(spans, count, -1, 0, uses, use, at[i]);
        cr_assert(row->uses[use].at_peak_bytes == held[1] && row->uses[use].added_bytes == held[1] - held[0] &&
                  row->uses[use].left_bytes == held[2] - held[0]);
    }
}

static uint64_t time_of(const struct gp_recording *recording, uint32_t event)
{
    return event < recording->event_count ? recording->events[event].time_ns : recording->end_ns;
}

static void phase_compared(const struct gp_phases *phases, uint32_t number, const struct gp_recording *recording,
                           const struct phase *runs, unsigned run_count, const struct gp_use_table *uses)
{
    static struct span spans[400];
    const struct gp_phase *row = &phases->phases[number];
    unsigned count = spans_of(recording, phases->device, spans), occurrences = 0;
    uint64_t lasted = 0, began = 0, peak_ns = 0;
    int64_t left = 0, most = INT64_MIN, at[3] = {0};
    for (unsigned i = 0; i < run_count; i++) {
        if (strcmp(runs[i].name, row->name) != 0)
            continue;
        bool first = runs[i].begin == 0 && phases->source != GP_PHASES_MARKS;
        uint64_t begin = first ? recording->begin_ns : time_of(recording, runs[i].begin);
        int64_t high = held_before(spans, count, -1, 0, uses, -1, runs[i].begin), peak = runs[i].begin;
        left += held_before(spans, count, -1, 0, uses, -1, runs[i].end) - high;
        lasted += time_of(recording, runs[i].end) - begin;
        began = occurrences++ ? began : begin;
        for (int64_t event = peak + 1; event <= runs[i].end; event++) {
            int64_t held = held_before(spans, count, -1, 0, uses, -1, event);
            peak = held > high ? event : peak;
            high = held > high ? held : high;
        }
        if (high <= most)
            continue;
        most = high;
        at[0] = runs[i].begin, at[1] = peak, at[2] = runs[i].end;
        peak_ns = peak == runs[i].begin ? begin : recording->events[peak - 1].time_ns;
    }
    cr_assert(row->count == occurrences && row->begin_ns == began && row->duration_ns == lasted && row->depth == 0);
    cr_assert(row->left_bytes == left && row->peak_bytes == most && row->peak_ns == peak_ns, "%s", row->name);
    cr_assert_eq(row->begin_bytes, held_before(spans, count, -1, 0, uses, -1, at[0]));
    cr_assert_eq(row->end_bytes, held_before(spans, count, -1, 0, uses, -1, at[2]));
    parts_compared(row, recording, spans, count, uses, at);
}

Test(rows, phases_are_sums_between_two_events)
{
    static struct phase runs[400];
    unsigned seen[4] = {0};
    for (unsigned number = 0; number < RECORDINGS; number++) {
        struct gp_recording *recording = tiny_make(number);
        struct gp_steps *steps = gp_steps_find(recording);
        struct gp_flow *flow = gp_flow_new(recording);
        for (uint32_t device = 0; device < 3; device++) {
            struct gp_use_table *uses = gp_uses_find(flow, steps, NULL, NULL, device);
            struct gp_phases *phases = gp_phases_find(flow, steps, uses, device);
            unsigned run_count = phases_of(recording, steps, runs);
            seen[phases->source]++;
            for (uint32_t i = 0; run_count && i < phases->count; i++)
                phase_compared(phases, i, recording, runs, run_count, uses);
            gp_phases_free(phases);
            gp_uses_free(uses);
        }
        gp_flow_free(flow);
        free(steps);
        gp_recording_free(recording);
    }
    for (unsigned i = 0; i < 4; i++)
        cr_assert_gt(seen[i], 9, "%u recordings of source %u", seen[i], i);
}

/* ---- times asleep ---------------------------------------------------------------------------------------------------- */

/* At times of events and shortly after them, on two devices. */
static void sleeps_make(struct gp_recording *recording, uint64_t *seed)
{
    static const uint64_t later[] = {0, 0, 1, 9999999, 10000000, 10000001, 499999999, 500000000, 500000001};
    static const uint8_t whats[] = {GP_SLEEP_FALLS, GP_SLEEP_FALLS, GP_SLEEP_FALLS,
                                    GP_SLEEP_WAKES, GP_SLEEP_WAKES, GP_SLEEP_ENDS};
    uint64_t now = recording->begin_ns;
    recording->sleep_count = random_next(seed) % 120;
    recording->sleeps = calloc(recording->sleep_count + 1, sizeof(*recording->sleeps));
    for (size_t i = 0; i < recording->sleep_count; i++) {
        size_t at = i * recording->event_count / recording->sleep_count;
        uint64_t event = recording->event_count ? recording->events[at].time_ns : 0,
                 moved = now + later[random_next(seed) % 9];
        now = event > moved && random_next(seed) % 2 ? event : moved;
        recording->sleeps[i] = (struct gp_rec_sleep){.time_ns = now,
                                                     .bytes = random_next(seed) % 4 * MIB,
                                                     .site = (uint32_t)(random_next(seed) % recording->site_count),
                                                     .device = random_next(seed) % 2,
                                                     .what = whats[random_next(seed) % 6]};
    }
}

/* What was reserved after all that happens at a time, and before the first of what happens at `until` or later. */
static int64_t reserved_at(const struct gp_flow *flow, uint32_t device, uint64_t time_ns, uint64_t until,
                           int64_t *lowest, uint64_t *lowest_ns)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    struct gp_level level = {0};
    int64_t before = 0;
    *lowest = *lowest_ns = 0;
    while (gp_flow_next(&walk, &change)) {
        if (change.event != GP_REC_NONE && change.time_ns >= until)
            break;
        if (change.item->device == device)
            gp_level_apply(&level, &change);
        bool early = change.event == GP_REC_NONE || change.time_ns <= time_ns;
        before = early ? level.reserved : before;
        if (early || level.reserved < *lowest) {
            *lowest = level.reserved;
            *lowest_ns = early ? 0 : change.time_ns;
        }
    }
    return before;
}

/* rows[count]: those of the time from its first one, which falls asleep, until before the next time begins. */
static void sleep_compared(const struct gp_flow *flow, const struct gp_sleep *sleep, uint32_t device,
                           const struct gp_rec_sleep *const *rows, unsigned count)
{
    struct gp_sleep right = {.begin_ns = rows[0]->time_ns};
    int64_t lowest, held = 0, blocks = 0;
    for (unsigned i = 0; i < count; i++) {
        int64_t bytes = (int64_t)rows[i]->bytes;
        right.end_ns = rows[i]->what == GP_SLEEP_FALLS ? rows[i]->time_ns : right.end_ns;
        right.wake_ns = rows[i]->what == GP_SLEEP_WAKES && !right.wake_ns ? rows[i]->time_ns : right.wake_ns;
        right.woken_ns = rows[i]->what == GP_SLEEP_WAKES ? rows[i]->time_ns : right.woken_ns;
        *(rows[i]->what == GP_SLEEP_FALLS   ? &right.fell_bytes
          : rows[i]->what == GP_SLEEP_WAKES ? &right.woke_bytes
                                            : &right.ended_bytes) += bytes;
    }
    right.reserved_bytes = reserved_at(flow, device, right.end_ns + 10000000,
                                       right.wake_ns ? right.wake_ns : UINT64_MAX, &lowest, &right.late_ns);
    right.late_bytes = right.reserved_bytes - lowest;
    right.released = sleep->released;
    right.stayed = sleep->stayed;
    cr_assert_eq(memcmp(sleep, &right, sizeof(right)), 0, "%lld late, not %lld", (long long)sleep->late_bytes,
                 (long long)right.late_bytes);
    struct gp_peak *stayed = gp_flow_peak(flow, device, sleep->end_ns);
    cr_assert_eq(sleep->stayed->bytes, stayed->bytes);
    free(stayed);
    for (uint32_t i = 0; i < sleep->released->count; i++) {
        const struct gp_peak_part *part = &sleep->released->parts[i];
        held = blocks = 0;
        for (size_t k = 0; k < flow->recording->sleep_count;
             k++) { /* at the same moment may be some of the next time */
            const struct gp_rec_sleep *row = &flow->recording->sleeps[k];
            bool here = row->device == device && row->what == GP_SLEEP_FALLS && row->site == part->site &&
                        row->time_ns >= right.begin_ns && row->time_ns <= right.end_ns;
            held += here ? (int64_t)row->bytes : 0;
            blocks += here;
        }
        cr_assert(part->bytes == held && part->count == blocks && part->kind == GP_KIND_LINEAR);
        cr_assert(!i || part[-1].bytes > part->bytes || (part[-1].bytes == part->bytes && part[-1].site < part->site));
    }
    cr_assert(sleep->released->bytes >= right.fell_bytes && sleep->released->time_ns == right.end_ns &&
              sleep->released->device == device);
}

Test(rows, times_asleep)
{
    unsigned many = 0;
    for (unsigned number = 0; number < RECORDINGS; number++) {
        struct gp_recording *recording = tiny_make(number);
        uint64_t seed = number + 1;
        free(recording->sleeps);
        sleeps_make(recording, &seed);
        struct gp_flow *flow = gp_flow_new(recording);
        for (uint32_t device = 0; device < 2; device++) {
            const struct gp_rec_sleep *rows[120];
            unsigned count = 0, first = 0, times = 0, more = 0;
            uint64_t fell = 0;
            bool woke = true; /* the next one that falls asleep begins a time */
            struct gp_sleeps *sleeps = gp_flow_sleeps(flow, device);
            for (size_t i = 0; i <= recording->sleep_count; i++) {
                const struct gp_rec_sleep *row = i < recording->sleep_count ? &recording->sleeps[i] : NULL;
                if (row && row->device != device)
                    continue;
                bool falls = row && row->what == GP_SLEEP_FALLS;
                bool begins = !row || (falls && (woke || row->time_ns > fell + 500000000));
                if (begins && count > first && times <= 16)
                    sleep_compared(flow, &sleeps->rows[times - 1], device, rows + first, count - first);
                if (begins && row) {
                    first = count;
                    times += times <= 16;
                }
                more += falls && times > 16;
                fell = falls && times <= 16 ? row->time_ns : fell;
                woke = falls ? times > 16 : woke || (row && row->what == GP_SLEEP_WAKES);
                if (row && times)
                    rows[count++] = row;
            }
            cr_assert(sleeps->count == (times < 16 ? times : 16) && sleeps->more == more, "%u more, not %u",
                      sleeps->more, more);
            many += more > 0;
            gp_sleeps_free(sleeps);
        }
        gp_flow_free(flow);
        gp_recording_free(recording);
    }
    cr_assert_gt(many, 5);
}
