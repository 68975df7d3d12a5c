/* SPDX-License-Identifier: MIT
 *
 * test_analyze_naive.c: the analyses of hundreds of small recordings against sums over all blocks that are live at a moment,
 * taken from the events and their pairs without a walk, and against each other.
 */
#include <analyze/analyze.h>
#include <analyze/fit.h>
#include <analyze/flow.h>
#include <analyze/report.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <lib/analyses.h>
#include <math.h>
#include <read/recording/recording.h>

#include "checked_memory.h"
#include "naive.h"

TestSuite(naive, .timeout = 120);

static int64_t live_at(const struct span *spans, unsigned count, uint64_t time_ns, uint32_t site, int64_t *blocks)
{
    int64_t sum = 0;
    *blocks = 0;
    for (unsigned i = 0; i < count; i++) {
        if (site != GP_REC_NONE && spans[i].item->site != site)
            continue;
        sum += spans[i].from <= time_ns ? (int64_t)spans[i].bytes : 0;
        sum -= spans[i].to <= time_ns ? (int64_t)spans[i].off : 0;
        *blocks += (spans[i].from <= time_ns) - (spans[i].to <= time_ns);
    }
    return sum;
}

static void peak_compared(const struct gp_recording *recording, const struct span *spans, unsigned count,
                          uint32_t device, uint64_t time_ns)
{
    int64_t blocks, bytes = live_at(spans, count, time_ns, GP_REC_NONE, &blocks), sum = 0, parts = 0;
    struct gp_peak *peak = analysis_peak(recording, device, time_ns);
    cr_assert_eq(peak->bytes, bytes, "%lld, not %lld", (long long)peak->bytes, (long long)bytes);
    cr_assert_eq(peak->time_ns, time_ns);
    for (uint32_t i = 0; i < peak->count; i++) {
        sum += peak->parts[i].bytes;
        parts += peak->parts[i].count;
        cr_assert(!i || peak->parts[i - 1].bytes >= peak->parts[i].bytes);
    }
    cr_assert(sum == bytes && parts == blocks, "%lld blocks, not %lld", (long long)parts, (long long)blocks);
    for (uint32_t site = 0; site < recording->site_count; site++) {
        int64_t of_site = live_at(spans, count, time_ns, site, &blocks);
        for (uint32_t i = 0; i < peak->count; i++)
            of_site -= peak->parts[i].site == site ? peak->parts[i].bytes : 0;
        cr_assert_eq(of_site, 0, "site %u", site);
    }
    free(peak);
}

/* Of changes at one moment only the last sum is seen in between. */
static int64_t highest(const struct gp_recording *recording, const struct span *spans, unsigned count, int64_t *end)
{
    int64_t most = 0, blocks;
    *end = 0;
    for (size_t i = 0; i <= recording->event_count; i++) {
        uint64_t at = i ? recording->events[i - 1].time_ns : recording->begin_ns - 1;
        *end = live_at(spans, count, at, GP_REC_NONE, &blocks);
        most = *end > most ? *end : most;
    }
    return most;
}

static void series_compared(const struct gp_recording *recording, const struct span *spans, unsigned count,
                            uint32_t device, int64_t most)
{
    int64_t blocks, high = INT64_MIN, coarse = INT64_MIN;
    struct gp_series *series = gp_series_allocated(recording, device, GP_KIND_NONE, 1000);
    for (uint32_t i = 0; i < series->count; i++) {
        const struct gp_series_point *point = &series->points[i];
        int64_t right = live_at(spans, count, point->time_ns, GP_REC_NONE, &blocks);
        cr_assert_eq(point->last, right, "point %u: %lld, not %lld", i, (long long)point->last, (long long)right);
        cr_assert(point->low <= point->last && point->last <= point->high);
        cr_assert(!i || point->time_ns > series->points[i - 1].time_ns);
        high = point->high > high ? point->high : high;
    }
    cr_assert_geq(high, most);
    free(series);
    series = gp_series_allocated(recording, device, GP_KIND_NONE, 5);
    for (uint32_t i = 0; i < series->count; i++)
        coarse = series->points[i].high > coarse ? series->points[i].high : coarse;
    cr_assert_eq(coarse, high, "a coarse series hides the peak: %lld of %lld", (long long)coarse, (long long)high);
    free(series);
    struct gp_peak *peak = analysis_peak(recording, device, 0);
    cr_assert_geq(peak->bytes, most);
    cr_assert_leq(peak->bytes, high > 0 ? high : 0);
    free(peak);
}

static void sizes_compared(const struct gp_recording *recording, uint32_t device, const struct span *spans,
                           unsigned count)
{
    struct gp_sizes *sizes = analysis_sizes(recording, device);
    for (unsigned i = 0; i < count; i++) {
        const struct gp_rec_event *item = spans[i].item;
        if (!item->bytes || item->kind == GP_KIND_VMM)
            continue;
        unsigned class = 0;
        while (item->bytes >> (class + 1))
            class ++;
        sizes->count[class]--;
        sizes->bytes[class] -= item->bytes;
        sizes->live_count[class] -= spans[i].to == UINT64_MAX;
        sizes->live_bytes[class] -= spans[i].to == UINT64_MAX ? item->bytes : 0;
    }
    /* What is left is memory that counts as none. */
    size_t all = recording->event_count + recording->baseline_count;
    uint64_t other = 0, left = 0;
    for (size_t i = 0; i < all; i++) {
        const struct gp_rec_event *event =
            i < recording->event_count ? &recording->events[i] : &recording->baseline[i - recording->event_count];
        bool start = event->type == GP_EVENT_ALLOC
                         ? !summed(event->kind)
                         : event->type == GP_EVENT_SEGMENT_ALLOC && event->kind == GP_KIND_VMM;
        other += event->device == device && start ? event->bytes : 0;
    }
    for (unsigned i = 0; i < 64; i++)
        left += sizes->bytes[i];
    if (recording->from_start)
        cr_assert_eq(left, other, "%llu bytes of other kinds, not %llu", (unsigned long long)left,
                     (unsigned long long)other);
    free(sizes);
}

Test(naive, sums_of_every_moment)
{
    static struct span spans[400];
    for (unsigned number = 0; number < RECORDINGS; number++) {
        struct gp_recording *recording = tiny_make(number);
        for (uint32_t device = 0; device < 3; device++) {
            unsigned count = spans_of(recording, device, spans);
            for (size_t i = 0; i < recording->event_count; i++)
                for (unsigned by = 0; by < 2; by++)
                    peak_compared(recording, spans, count, device, recording->events[i].time_ns + by);
            int64_t end, most = highest(recording, spans, count, &end);
            series_compared(recording, spans, count, device, most);
            sizes_compared(recording, device, spans, count);
        }
        gp_recording_free(recording);
    }
}

/* ---- a part of a recording has what the whole one has then ----------------------------------------------------------- */

static void part_compared(const struct gp_recording *whole, unsigned number, uint64_t from, uint64_t to)
{
    struct gp_recording *part = tiny_make(number);
    cr_assert_eq(gp_recording_cut(part, from, to), 0);
    cr_assert(part->begin_ns == from && part->end_ns == to && part->part_of_ns == whole->end_ns - whole->begin_ns &&
              part->part_from_ns == from - whole->begin_ns);
    for (size_t i = 0; i < part->event_count; i++)
        cr_assert(part->events[i].time_ns >= from && part->events[i].time_ns <= to);
    for (uint32_t device = 0; device < 3; device++)
        for (size_t i = 0; i < part->event_count; i++) {
            struct gp_peak *one = analysis_peak(whole, device, part->events[i].time_ns),
                           *other = analysis_peak(part, device, part->events[i].time_ns);
            cr_assert(one->bytes == other->bytes && one->count == other->count,
                      "recording %u from %llu: %lld bytes, not %lld", number,
                      (unsigned long long)(from - whole->begin_ns), (long long)other->bytes, (long long)one->bytes);
            for (uint32_t k = 0; k < one->count; k++)
                cr_assert(one->parts[k].bytes == other->parts[k].bytes &&
                              one->parts[k].count == other->parts[k].count &&
                              one->parts[k].site == other->parts[k].site,
                          "recording %u from %llu device %u event %zu: site %u has %lld bytes in %lld blocks, not site "
                          "%u %lld in %lld",
                          number, (unsigned long long)(from - whole->begin_ns), device, i, other->parts[k].site,
                          (long long)other->parts[k].bytes, (long long)other->parts[k].count, one->parts[k].site,
                          (long long)one->parts[k].bytes, (long long)one->parts[k].count);
            free(one);
            free(other);
        }
    gp_recording_free(part);
}

/* Nothing is lost: what has started ends with an end of its own. */
static bool is_whole(const struct gp_recording *recording)
{
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        uint32_t peer = recording->peer[i];
        bool start = event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_SEGMENT_ALLOC ||
                     event->type == GP_EVENT_SEGMENT_MAP;
        /* Each type of an end follows that of its start. A part does not know which other mapping has the bytes that an
         * end leaves. */
        if (start && peer != GP_REC_NONE &&
            (recording->events[peer].type != event->type + 1 || recording->events[peer].bytes != event->bytes ||
             recording->events[peer].unused != event->unused))
            return false;
    }
    return true;
}

Test(naive, parts_are_parts)
{
    for (unsigned number = 0; number < RECORDINGS; number++) {
        struct gp_recording *whole = tiny_make(number);
        if (!is_whole(whole)) {
            gp_recording_free(whole);
            continue;
        }
        uint64_t span = whole->end_ns - whole->begin_ns;
        for (unsigned i = 0; i < 4; i++)
            part_compared(whole, number, whole->begin_ns + span * i / 4, whole->end_ns - span / 5 * (i % 2));
        gp_recording_free(whole);
    }
}

/* ---- blocks within a step ------------------------------------------------------------------------------------------- */

/* The step of a time; -1: none. */
static int step_of(const struct gp_steps *steps, uint64_t time_ns)
{
    for (uint32_t i = 0; i < steps->count; i++)
        if (time_ns >= steps->bounds_ns[i] &&
            (time_ns < steps->bounds_ns[i + 1] || (i + 1 == steps->count && time_ns == steps->bounds_ns[i + 1])))
            return (int)i;
    return -1;
}

Test(naive, churn_is_what_comes_and_goes_in_a_step)
{
    static struct span spans[400];
    for (unsigned number = 0; number < RECORDINGS; number++) {
        struct gp_recording *recording = tiny_make(number);
        struct gp_steps *steps = gp_steps_find(recording);
        struct gp_churn *churn = analysis_churn(recording, steps);
        uint64_t pairs[8] = {0}, bytes[8] = {0}, lives[8] = {0};
        for (uint32_t device = 0; device < 3; device++) {
            unsigned count = spans_of(recording, device, spans);
            for (unsigned i = 0; i < count; i++) {
                const struct gp_rec_event *item = spans[i].item;
                if (item->type != GP_EVENT_ALLOC || item->kind == GP_KIND_VMM ||
                    spans[i].id >= recording->event_count || spans[i].to == UINT64_MAX ||
                    step_of(steps, spans[i].from) < 0 || step_of(steps, spans[i].from) != step_of(steps, spans[i].to))
                    continue;
                pairs[item->site]++;
                bytes[item->site] += item->bytes;
                lives[item->site] += spans[i].to - spans[i].from;
            }
        }
        uint64_t all = 0, seen = 0;
        for (uint32_t i = 0; i < churn->count; i++) {
            const struct gp_churn_site *row = &churn->sites[i];
            cr_assert_geq(row->pairs, pairs[row->site], "recording %u, site %u", number, row->site);
            cr_assert(!i || row[-1].pairs > row->pairs ||
                      (row[-1].pairs == row->pairs &&
                       (row[-1].bytes > row->bytes || (row[-1].bytes == row->bytes && row[-1].site < row->site))));
            all += row->pairs;
            if (row->pairs != pairs[row->site]) /* also of memory that is not summed */
                continue;
            seen++;
            cr_assert(row->bytes == bytes[row->site] && row->mean_life_ns == lives[row->site] / row->pairs);
        }
        cr_assert_eq(all, churn->pairs);
        cr_assert(!churn->steps || fabs(churn->pairs_per_step - (double)all / churn->steps) < 1e-9);
        cr_assert_leq(2 * all, churn->allocations + churn->frees);
        (void)seen;
        free(churn);
        free(steps);
        gp_recording_free(recording);
    }
}

/* ---- blocks of a history, and a map ---------------------------------------------------------------------------------- */

Test(naive, histories_and_maps)
{
    static struct span spans[400];
    for (unsigned number = 0; number < RECORDINGS; number++) {
        struct gp_recording *recording = tiny_make(number);
        struct gp_flow *flow = gp_flow_new(recording);
        for (uint32_t device = 0; device < 3; device++) {
            const struct gp_history_limits all = {1000, 0, 0, 0}, none = {0, 3, 4, 2};
            unsigned count = spans_of(recording, device, spans);
            struct gp_past *past = gp_history_flow(flow, device, NULL, &all);
            struct gp_past *few = gp_history_flow(flow, device, NULL, &none);
            cr_assert(past->blocks == count && past->life_count == count && past->complete && !past->moment_count);
            uint64_t held = 0, blocks = 0;
            for (unsigned i = 0; i < count; i++)
                held += spans[i].bytes, blocks += past->lives[i].bytes;
            cr_assert_eq(held, blocks);
            cr_assert(few->life_count == (count < 3 ? count : 3) && few->complete == !count);
            int64_t live, end = live_at(spans, count, UINT64_MAX - 1, GP_REC_NONE, &live);
            if (few->moment_count)
                cr_assert(few->moments[few->moment_count - 1].bytes == end &&
                          few->moments[few->moment_count - 1].count == live);
            gp_history_free(past);
            gp_history_free(few);
            struct gp_segments *map = gp_flow_segments(flow, device, 0);
            for (uint32_t i = 0; i < map->segment_count; i++) { /* blocks fill a segment without a gap */
                const struct gp_map_segment *segment = &map->segments[i];
                uint64_t at = segment->address;
                for (uint32_t k = 0; k < segment->block_count; k++) {
                    const struct gp_map_block *block = &map->blocks[segment->first_block + k];
                    cr_assert_eq(block->address, at);
                    at += block->bytes;
                }
                cr_assert_eq(at, segment->address + segment->bytes);
            }
            struct gp_holders *holders = gp_holders_find(map);
            for (uint32_t i = 1; i < holders->count; i++)
                cr_assert_geq(holders->rows[i - 1].free_bytes, holders->rows[i].free_bytes);
            free(holders);
            free(map);
        }
        gp_flow_free(flow);
        gp_recording_free(recording);
    }
}

/* At the first peak the parts of each use add up to what the rules say of it. */
static void uses_compared(const struct gp_past *past, const struct gp_use_table *uses,
                          const struct gp_history_cell *values)
{
    int64_t bytes[GP_USES] = {0};
    for (uint32_t i = 0; i < GP_USE_RULES; i++)
        bytes[uses->rows[i].use] += uses->rows[i].at_peak_bytes;
    for (uint32_t part = 0; part < past->part_count; part++)
        bytes[past->parts[part].use] -= values[part].bytes;
    for (unsigned use = 0; use < GP_USES; use++)
        cr_assert_eq(bytes[use], 0, "%s: %lld", gp_use_name((enum gp_use)use), (long long)bytes[use]);
}

/* The cells of each moment add up to its bytes, of the peak too, and the last moment is the end. */
static void moments_compared(const struct gp_past *past, const struct gp_use_table *uses, const struct gp_peak *peak,
                             int64_t end)
{
    struct gp_history_cell *values = calloc(past->part_count + 1, sizeof(*values));
    bool found = peak->bytes == 0;
    int64_t bytes = end;
    for (uint32_t i = 0; i < past->moment_count; i++) {
        const struct gp_moment *moment = &past->moments[i];
        size_t cells = i + 1 < past->moment_count ? moment[1].first_cell : past->cell_count;
        for (size_t k = moment->first_cell; k < cells; k++)
            values[past->cells[k].part] = past->cells[k];
        int64_t count = moment->other_count;
        bytes = moment->other_bytes;
        for (uint32_t part = 0; part < past->part_count; part++) {
            bytes += values[part].bytes;
            count += values[part].count;
        }
        cr_assert(bytes == moment->bytes && count == moment->count && bytes <= peak->bytes);
        cr_assert(i == 0 || moment->time_ns >= moment[-1].time_ns);
        if (!found && bytes == peak->bytes && !moment->other_bytes)
            uses_compared(past, uses, values);
        found |= bytes == peak->bytes;
    }
    cr_assert(found, "the peak is at none of the moments");
    cr_assert_eq(bytes, end);
    free(values);
}

Test(naive, few_moments_have_the_peak)
{
    static const struct gp_history_limits limits[] = {{0, 7, 1, 2}, {0, 0, 9, 64}};
    static struct span spans[400];
    for (unsigned number = 0; number < RECORDINGS; number++) {
        struct gp_recording *recording = tiny_make(number);
        struct gp_flow *flow = gp_flow_new(recording);
        struct gp_steps *steps = gp_steps_find(recording);
        for (uint32_t device = 0; device < 3; device++) {
            unsigned count = spans_of(recording, device, spans);
            int64_t blocks, end = live_at(spans, count, UINT64_MAX - 1, GP_REC_NONE, &blocks);
            struct gp_peak *peak = gp_flow_peak(flow, device, 0);
            struct gp_use_table *uses = gp_uses_find(flow, steps, NULL, NULL, device);
            for (unsigned k = 0; k < 2; k++) {
                struct gp_past *past = gp_history_flow(flow, device, uses, &limits[k]);
                cr_assert_leq(past->moment_count, 2 * limits[k].stretches);
                if (!past->complete)
                    moments_compared(past, uses, peak, end);
                gp_history_free(past);
            }
            gp_uses_free(uses);
            free(peak);
        }
        free(steps);
        gp_flow_free(flow);
        gp_recording_free(recording);
    }
}

static struct gp_level level_before(const struct gp_flow *flow, uint32_t device, uint64_t time_ns)
{
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    struct gp_level level = {0};
    while (gp_flow_next(&walk, &change) && (change.event == GP_REC_NONE || change.time_ns < time_ns))
        if (change.item->device == device)
            gp_level_apply(&level, &change);
    return level;
}

/* At the end the last sample says what pools hold in reserve, beyond what the events say; they hold at least their blocks. */
Test(naive, samples_tell_what_pools_reserve)
{
    unsigned polled = 0;
    for (unsigned number = 0; number < RECORDINGS; number++) {
        struct gp_recording *recording = tiny_make(number);
        struct gp_flow *flow = gp_flow_new(recording);
        for (uint32_t device = 0; device < 2; device++) {
            struct gp_level level = level_before(flow, device, UINT64_MAX);
            struct gp_series *series = gp_series_reserved(recording, device, 1000);
            int64_t extra = 0;
            bool pools = false;
            for (size_t i = 0; i < recording->event_count + recording->baseline_count; i++) {
                const struct gp_rec_event *event = i < recording->event_count
                                                       ? &recording->events[i]
                                                       : &recording->baseline[i - recording->event_count];
                pools |= event->device == device && event->type == GP_EVENT_ALLOC &&
                         (event->kind == GP_KIND_POOL || event->kind == GP_KIND_GRAPH);
            }
            for (size_t i = 0; pools && i < recording->sample_count; i++) {
                const struct gp_rec_sample *sample = &recording->samples[i];
                if (sample->device == device && sample->reserved_bytes >= 0 && sample->time_ns <= recording->end_ns)
                    extra = sample->reserved_bytes - level_before(flow, device, sample->time_ns).reserved;
            }
            polled += extra > level.pool;
            cr_assert_eq(series->points[series->count - 1].last,
                         level.reserved + (extra > level.pool ? extra
                                           : level.pool > 0   ? level.pool
                                                              : 0),
                         "recording %u, device %u", number, device);
            free(series);
        }
        gp_flow_free(flow);
        gp_recording_free(recording);
    }
    cr_assert_gt(polled, 20);
}

/* Nothing happens in the recording: what was there is all that there is, from the first moment on. */
Test(naive, what_was_there_is_held_all_the_time)
{
    static struct span spans[400];
    for (unsigned number = 0; number < RECORDINGS; number++) {
        struct gp_recording *recording = tiny_make(number);
        cr_assert_eq(gp_recording_cut(recording, recording->end_ns, recording->end_ns + 2), 0);
        recording->event_count = 0;
        for (uint32_t device = 0; device < 3; device++) {
            int64_t blocks, held = live_at(spans, spans_of(recording, device, spans), 1, GP_REC_NONE, &blocks);
            struct gp_series *series = gp_series_allocated(recording, device, GP_KIND_NONE, 9);
            cr_assert_eq(series->points[0].time_ns, recording->begin_ns);
            for (uint32_t i = 0; i < series->count; i++)
                cr_assert(series->points[i].last == held && series->points[i].low == held &&
                          series->points[i].high == held);
            free(series);
        }
        gp_recording_free(recording);
    }
}

/* What no program makes: the numbers mean nothing, but every analysis ends, with a result or an error. */
Test(naive, analyses_of_damaged_recordings_end)
{
    static const struct gp_fit_question question = {
        .gpu_bytes = 30 * MIB, .tenants = 2, .context_bytes = 3 * MIB, .allocator = "off"};
    for (unsigned number = TINY_DAMAGED; number < TINY_DAMAGED + RECORDINGS; number++) {
        struct gp_recording *recording = tiny_make(number);
        struct gp_report report;
        struct gp_fit_result fit;
        cr_assert_eq(gp_report_init(&report, recording, NULL, "x"), 0);
        cr_assert_eq(gp_report_run(&report, GP_REPORT_DOCUMENT | GP_REPORT_HOLDERS | GP_REPORT_HELD, GP_DETAIL_PLOT),
                     0);
        gp_report_fini(&report);
        struct gp_flow *flow = gp_flow_new(recording);
        int rc = gp_fit_judge(flow, number % 2, &question, &fit);
        cr_assert(rc == 0 || rc == -ERANGE);
        gp_fit_result_fini(&fit);
        gp_flow_free(flow);
        cr_assert_eq(gp_recording_cut(recording, (recording->begin_ns + recording->end_ns) / 2, recording->end_ns), 0);
        gp_recording_free(recording);
    }
}
