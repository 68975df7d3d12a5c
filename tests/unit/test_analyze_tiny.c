/* SPDX-License-Identifier: MIT
 *
 * test_analyze_tiny.c: the numbers of every analysis of hundreds of small recordings (tiny_fixture.h) are those of
 * tests/golden/analyze_tiny.txt.  test_analyze_naive.c says which of them are right; this test notices each one that
 * moves, also those for which there is no simple model.  GP_GOLDEN_UPDATE=1 writes the file.
 */
#include <allocator/cache/policy.h>
#include <analyze/fit.h>
#include <analyze/flow.h>
#include <analyze/report.h>
#include <errno.h>

#include "checked_memory.h"
#include "sheet.h"
#include "strict_sort.h"
#include "tiny_fixture.h"

#define RECORDINGS 400u
#define DEVICES    3u

/* One recording, and what several analyses need. */
struct tiny_case {
    unsigned number;
    struct gp_recording *recording;
    struct gp_flow *flow;
    struct gp_steps *found, *given; /* given: NULL if the recording is too short */
};

/* A moment of the recording: the i-th of some at changes, just before and just after. */
static uint64_t moment_of(const struct tiny_case *tiny, unsigned i)
{
    const struct gp_recording *recording = tiny->recording;
    if (i == 0 || !recording->event_count)
        return recording->begin_ns;
    if (i == 1)
        return recording->end_ns;
    return recording->events[i * 7 % recording->event_count].time_ns + i % 3 - 1;
}

/* ---- steps, and what is made of them ------------------------------------------------------------------------------- */

static void put_steps(struct sheet *sheet, const struct gp_steps *steps)
{
    SHEET_NUMBERS(sheet, steps->source, steps->length_ns, steps->count);
    sheet_word(sheet, steps->name);
    for (uint32_t i = 0; i <= steps->count; i++)
        sheet_number(sheet, (int64_t)steps->bounds_ns[i]);
    sheet_line(sheet);
}

static void sheet_steps(struct sheet *sheet, const struct tiny_case *tiny)
{
    char third[32], whole[32], more[32];
    const unsigned long long span = tiny->recording->end_ns - tiny->recording->begin_ns;
    snprintf(third, sizeof(third), "%lluns", span / 3);
    snprintf(whole, sizeof(whole), "%lluns", span);
    snprintf(more, sizeof(more), "%lluns", span + 1);
    const char *const texts[] = {"a", "b",      "b 2", "step", "step 3", "iter", "iter 1", "12",
                                 "x", "nvtx:a", "/x",  "0s",   "",       third,  whole,    more};
    put_steps(sheet, tiny->found);
    for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct gp_steps *steps = NULL;
        sheet_number(sheet, gp_steps_choose(tiny->recording, texts[i], &steps));
        if (steps)
            put_steps(sheet, steps);
        free(steps);
        uint64_t moment = 0;
        SHEET_NUMBERS(sheet, gp_recording_moment(tiny->recording, texts[i], &moment), (int64_t)moment);
    }
    struct gp_step_name name;
    for (uint32_t i = 0; gp_steps_name(tiny->recording, i, &name); i++) {
        SHEET_NUMBERS(sheet, name.nvtx, name.count);
        sheet_word(sheet, name.name);
    }
    sheet_line(sheet);
}

static void put_leaks(struct sheet *sheet, const struct gp_leaks *leaks)
{
    SHEET_NUMBERS(sheet, leaks->steps, leaks->count, leaks->source, leaks->points);
    sheet_word(sheet, leaks->why);
    for (uint32_t i = 0; i < leaks->count; i++) {
        const struct gp_leak *leak = &leaks->suspects[i];
        SHEET_NUMBERS(sheet, leak->site, leak->device, leak->kind, leak->live_bytes, leak->live_count,
                      (int64_t)leak->oldest_ns, (int64_t)leak->grows_ns, leak->taken_bytes, leak->freed_bytes);
        sheet_real(sheet, leak->bytes_per_step);
        sheet_real(sheet, leak->confidence);
        sheet_real(sheet, leak->seconds_to_oom);
        sheet_real(sheet, leak->bytes_per_second);
        for (uint32_t k = 0; k <= leaks->points; k++)
            sheet_number(sheet, leaks->kept[i * (leaks->points + 1) + k]);
    }
    sheet_line(sheet);
}

static void sheet_leaks(struct sheet *sheet, const struct tiny_case *tiny)
{
    const struct gp_steps *const ways[] = {tiny->found, tiny->given};
    uint64_t span = tiny->recording->end_ns - tiny->recording->begin_ns;
    const uint64_t olds[] = {0, 1, span / 2, span, tiny->recording->end_ns, UINT64_MAX};
    for (unsigned way = 0; way < 2 && ways[way]; way++)
        for (unsigned old = 0; old < 6; old++) {
            struct gp_leaks *leaks = gp_flow_leaks(tiny->flow, ways[way], olds[old]);
            put_leaks(sheet, leaks);
            free(leaks);
        }
}

static void sheet_churn(struct sheet *sheet, const struct tiny_case *tiny)
{
    const struct gp_steps *const ways[] = {tiny->found, tiny->given};
    for (unsigned way = 0; way < 2 && ways[way]; way++) {
        struct gp_churn *churn = gp_flow_churn(tiny->flow, ways[way]);
        SHEET_NUMBERS(sheet, (int64_t)churn->pairs, (int64_t)churn->allocations, (int64_t)churn->frees,
                      (int64_t)churn->driver_ns, churn->steps, churn->count);
        sheet_real(sheet, churn->pairs_per_step);
        for (uint32_t i = 0; i < churn->count; i++) {
            const struct gp_churn_site *row = &churn->sites[i];
            SHEET_NUMBERS(sheet, row->site, (int64_t)row->pairs, (int64_t)row->bytes, (int64_t)row->mean_life_ns,
                          (int64_t)row->driver_ns);
            sheet_real(sheet, row->pairs_per_step);
        }
        sheet_line(sheet);
        free(churn);
    }
}

static void put_forecast(struct sheet *sheet, const struct gp_forecast_result *is)
{
    SHEET_NUMBERS(sheet, is->verdict, is->points, (int64_t)is->seen_ns, is->peak_bytes, is->step_bytes,
                  is->headroom_bytes);
    sheet_real(sheet, is->bytes_per_second);
    sheet_real(sheet, is->confidence);
    sheet_real(sheet, is->seconds_to_oom);
}

static void sheet_forecast(struct sheet *sheet, const struct tiny_case *tiny)
{
    const struct gp_steps *const ways[] = {tiny->found, tiny->given};
    for (unsigned way = 0; way < 2 && ways[way]; way++)
        for (uint32_t device = 0; device < DEVICES; device++) {
            struct gp_forecast_run *run = gp_flow_forecast(tiny->flow, ways[way], device);
            put_forecast(sheet, &run->early);
            put_forecast(sheet, &run->now);
            sheet_number(sheet, run->peak_bytes);
            sheet_line(sheet);
            free(run);
        }
}

/* ---- memory at moments --------------------------------------------------------------------------------------------- */

static void put_peak(struct sheet *sheet, const struct gp_peak *peak)
{
    SHEET_NUMBERS(sheet, peak->device, (int64_t)peak->time_ns, peak->event_index, peak->bytes, peak->count);
    for (uint32_t i = 0; i < peak->count; i++)
        SHEET_NUMBERS(sheet, peak->parts[i].site, peak->parts[i].kind, peak->parts[i].bytes, peak->parts[i].count);
    sheet_line(sheet);
}

static void sheet_peak(struct sheet *sheet, const struct tiny_case *tiny)
{
    for (uint32_t device = 0; device < DEVICES; device++)
        for (unsigned i = 0; i < 8; i++) {
            struct gp_peak *peak = gp_flow_peak(tiny->flow, device, i ? moment_of(tiny, i - 1) : 0);
            put_peak(sheet, peak);
            struct gp_bill_peak_owners *owners = gp_bill_peak_owners(tiny->recording, peak);
            for (uint32_t k = 0; k < owners->count; k++) {
                sheet_word(sheet, owners->rows[k].owner);
                SHEET_NUMBERS(sheet, owners->rows[k].bytes, owners->rows[k].count);
            }
            free(owners);
            free(peak);
        }
}

static void sheet_segments(struct sheet *sheet, const struct tiny_case *tiny)
{
    for (uint32_t device = 0; device < DEVICES; device++)
        for (unsigned i = 0; i < 8; i++) {
            struct gp_segments *map = gp_flow_segments(tiny->flow, device, i ? moment_of(tiny, i - 1) : 0);
            struct gp_holders *holders = gp_holders_find(map);
            SHEET_NUMBERS(sheet, map->device, map->segment_count, map->block_count, holders->count);
            for (uint32_t k = 0; k < map->segment_count; k++) {
                const struct gp_map_segment *segment = &map->segments[k];
                SHEET_NUMBERS(sheet, (int64_t)segment->address, (int64_t)segment->bytes, segment->first_block,
                              segment->block_count, segment->kind, segment->cached);
            }
            for (uint32_t k = 0; k < map->block_count; k++) {
                const struct gp_map_block *block = &map->blocks[k];
                SHEET_NUMBERS(sheet, (int64_t)block->address, (int64_t)block->bytes, (int64_t)block->requested_bytes,
                              block->site, block->state, block->kind);
            }
            for (uint32_t k = 0; k < holders->count; k++)
                SHEET_NUMBERS(sheet, holders->rows[k].site, holders->rows[k].live_bytes, holders->rows[k].live_count,
                              holders->rows[k].free_bytes);
            sheet_line(sheet);
            free(holders);
            free(map);
        }
}

static void sheet_sizes(struct sheet *sheet, const struct tiny_case *tiny)
{
    for (uint32_t device = 0; device < DEVICES; device++) {
        struct gp_sizes *sizes = gp_flow_sizes(tiny->flow, device);
        for (unsigned i = 0; i < 64; i++)
            SHEET_NUMBERS(sheet, (int64_t)sizes->count[i], (int64_t)sizes->bytes[i], (int64_t)sizes->live_count[i],
                          (int64_t)sizes->live_bytes[i]);
        sheet_line(sheet);
        free(sizes);
    }
}

static void sheet_bill(struct sheet *sheet, const struct tiny_case *tiny)
{
    for (uint32_t device = 0; device < DEVICES; device++) {
        struct gp_bill *bill = gp_flow_bill(tiny->flow, device);
        SHEET_NUMBERS(sheet, bill->device, (int64_t)bill->time_ns, bill->process_bytes);
        for (uint32_t i = 0; i < bill->count; i++) {
            sheet_word(sheet, bill->rows[i].what);
            SHEET_NUMBERS(sheet, bill->rows[i].bytes, bill->rows[i].estimated);
        }
        sheet_line(sheet);
        free(bill);
    }
}

/* ---- memory over time ---------------------------------------------------------------------------------------------- */

static void put_series(struct sheet *sheet, struct gp_series *series, const struct tiny_case *tiny)
{
    sheet_number(sheet, series->count);
    for (uint32_t i = 0; i < series->count; i++)
        SHEET_NUMBERS(sheet, (int64_t)series->points[i].time_ns, series->points[i].low, series->points[i].high,
                      series->points[i].last);
    for (unsigned i = 0; i < 12; i++) {
        struct gp_series_point is = gp_series_range(series, moment_of(tiny, i), moment_of(tiny, i * 5 % 12));
        SHEET_NUMBERS(sheet, (int64_t)is.time_ns, is.low, is.high, is.last);
    }
    sheet_line(sheet);
    free(series);
}

static void sheet_series(struct sheet *sheet, const struct tiny_case *tiny)
{
    static const uint32_t points[] = {0, 4, 5, 9, 1000};
    for (uint32_t device = 0; device < DEVICES; device++)
        for (unsigned i = 0; i < 5; i++) {
            for (unsigned kind = GP_KIND_NONE; kind <= GP_KIND_GRAPH; kind++)
                put_series(sheet, gp_flow_allocated(tiny->flow, device, kind, points[i]), tiny);
            put_series(sheet, gp_flow_requested(tiny->flow, device, points[i]), tiny);
            put_series(sheet, gp_flow_reserved(tiny->flow, device, points[i]), tiny);
        }
    /* Rooms of exactly as many points as there are changes, and one more and less. */
    struct gp_series *all = gp_flow_allocated(tiny->flow, 0, GP_KIND_NONE, 1000);
    uint32_t count = all->count;
    free(all);
    for (uint32_t room = count > 3 ? count - 3 : 0; room < count + 4; room++)
        put_series(sheet, gp_flow_allocated(tiny->flow, 0, GP_KIND_NONE, room), tiny);
}

static void sheet_fragmentation(struct sheet *sheet, const struct tiny_case *tiny)
{
    static const uint32_t points[] = {0, 2, 3, 8, 201};
    for (uint32_t device = 0; device < DEVICES; device++)
        for (unsigned i = 0; i < 4 + (tiny->number % 8 == 0); i++) {
            struct gp_fragmentation *f = gp_flow_fragmentation(tiny->flow, device, points[i]);
            SHEET_NUMBERS(sheet, f->device, f->has_segments, f->count);
            sheet_real(sheet, f->utilisation);
            sheet_real(sheet, f->external);
            sheet_real(sheet, f->internal);
            for (uint32_t k = 0; k < f->count; k++)
                SHEET_NUMBERS(sheet, (int64_t)f->points[k].time_ns, f->points[k].reserved_bytes,
                              f->points[k].allocated_bytes, f->points[k].requested_bytes,
                              f->points[k].largest_free_bytes);
            sheet_line(sheet);
            free(f);
        }
}

static void sheet_history(struct sheet *sheet, const struct tiny_case *tiny)
{
    for (uint32_t device = 0; device < DEVICES; device++)
        for (unsigned i = 0; i < 12; i++) {
            struct gp_history_limits limits = {i % 4 == 3 ? 5 : 0, i % 5, i % 3 * 3, i % 4};
            struct gp_past *past = gp_flow_history(tiny->flow, device, &limits);
            SHEET_NUMBERS(sheet, past->device, past->complete, (int64_t)past->blocks, (int64_t)past->stretch_ns,
                          past->life_count, past->moment_count, past->part_count, (int64_t)past->cell_count);
            for (uint32_t k = 0; k < past->life_count; k++)
                SHEET_NUMBERS(sheet, (int64_t)past->lives[k].from_ns, (int64_t)past->lives[k].to_ns,
                              (int64_t)past->lives[k].bytes, past->lives[k].site, past->lives[k].kind,
                              past->lives[k].live);
            for (uint32_t k = 0; k < past->moment_count; k++)
                SHEET_NUMBERS(sheet, (int64_t)past->moments[k].time_ns, past->moments[k].bytes, past->moments[k].count,
                              past->moments[k].other_bytes, past->moments[k].other_count,
                              (int64_t)past->moments[k].first_cell);
            for (uint32_t k = 0; k < past->part_count; k++)
                SHEET_NUMBERS(sheet, past->parts[k].site, past->parts[k].kind);
            for (size_t k = 0; k < past->cell_count; k++)
                SHEET_NUMBERS(sheet, past->cells[k].part, past->cells[k].bytes, past->cells[k].count);
            sheet_line(sheet);
            gp_history_free(past);
        }
}

/* ---- phases and uses ----------------------------------------------------------------------------------------------- */

static void put_phases(struct sheet *sheet, struct gp_phases *phases)
{
    SHEET_NUMBERS(sheet, phases->source, phases->device, phases->count, phases->left_out);
    for (uint32_t i = 0; i < phases->count; i++) {
        const struct gp_phase *phase = &phases->phases[i];
        sheet_word(sheet, phase->name);
        SHEET_NUMBERS(sheet, phase->depth, phase->count, (int64_t)phase->begin_ns, (int64_t)phase->duration_ns,
                      phase->left_bytes, (int64_t)phase->peak_ns, phase->begin_bytes, phase->peak_bytes,
                      phase->end_bytes, phase->part_count);
        for (uint32_t k = 0; k < phase->part_count; k++)
            SHEET_NUMBERS(sheet, phase->parts[k].site, phase->parts[k].kind, phase->parts[k].added_bytes,
                          phase->parts[k].left_bytes);
        for (unsigned use = 0; use < GP_USES; use++)
            SHEET_NUMBERS(sheet, phase->uses[use].at_peak_bytes, phase->uses[use].added_bytes,
                          phase->uses[use].left_bytes);
    }
    sheet_line(sheet);
    gp_phases_free(phases);
}

static void put_uses(struct sheet *sheet, const struct gp_use_table *uses, const struct gp_recording *recording)
{
    SHEET_NUMBERS(sheet, uses->device, uses->trains);
    for (size_t i = 0; i < recording->event_count + recording->baseline_count; i++)
        sheet_number(sheet, uses->rule[i]);
    for (unsigned i = 0; i < GP_USE_RULES; i++) {
        const struct gp_use_row *row = &uses->rows[i];
        sheet_real(sheet, row->confidence);
        SHEET_NUMBERS(sheet, row->use, (int64_t)row->count, row->peak_bytes, row->at_peak_bytes, row->end_bytes);
    }
    sheet_line(sheet);
}

static void sheet_uses(struct sheet *sheet, const struct tiny_case *tiny)
{
    uint8_t hints[16];
    for (unsigned i = 0; i < 16; i++)
        hints[i] = (uint8_t)((tiny->number + i * 3) % (GP_HINT_BACKWARD + 1));
    struct gp_leaks *leaks = gp_flow_leaks(tiny->flow, tiny->found, 0);
    for (uint32_t device = 0; device < DEVICES; device++)
        for (unsigned way = 0; way < 4; way++) {
            struct gp_use_table *uses = gp_uses_find(tiny->flow, way == 2 ? tiny->given : tiny->found,
                                                     way == 3 ? leaks : NULL, way == 1 ? hints : NULL, device);
            put_uses(sheet, uses, tiny->recording);
            put_phases(sheet, gp_phases_find(tiny->flow, tiny->found, uses, device));
            if (way == 2)
                put_phases(sheet, gp_phases_find(tiny->flow, tiny->given, NULL, device));
            gp_uses_free(uses);
        }
    free(leaks);
}

/* ---- parts of a recording, and two recordings ---------------------------------------------------------------------- */

static void put_event(struct sheet *sheet, const struct gp_rec_event *event)
{
    SHEET_NUMBERS(sheet, (int64_t)event->time_ns, (int64_t)event->address, (int64_t)event->bytes, event->unused,
                  event->site, event->type, event->kind, event->device);
}

static void sheet_cut(struct sheet *sheet, const struct tiny_case *tiny)
{
    for (unsigned i = 0; i < 4; i++) {
        struct gp_recording *part = tiny_make(tiny->number);
        uint64_t one = moment_of(tiny, i), other = moment_of(tiny, i + 3), from = one < other ? one : other,
                 to = one < other ? other : one;
        from = from < part->begin_ns ? part->begin_ns : from;
        to = to > part->end_ns ? part->end_ns : to;
        part->devices[1].has_last = true;
        cr_assert_eq(gp_recording_cut(part, from, to), 0);
        SHEET_NUMBERS(sheet, (int64_t)part->event_count, (int64_t)part->baseline_count, (int64_t)part->sample_count,
                      (int64_t)part->begin_ns, (int64_t)part->end_ns, (int64_t)part->begin_unix_ns,
                      (int64_t)part->part_from_ns, (int64_t)part->part_of_ns, part->devices[1].has_last);
        for (size_t k = 0; k < part->event_count; k++) {
            put_event(sheet, &part->events[k]);
            sheet_number(sheet, part->peer[k]);
        }
        for (size_t k = 0; k < part->baseline_count; k++)
            put_event(sheet, &part->baseline[k]);
        for (size_t k = 0; k < part->sample_count; k++)
            SHEET_NUMBERS(sheet, (int64_t)part->samples[k].time_ns, part->samples[k].device,
                          part->samples[k].reserved_bytes);
        for (uint32_t device = 0; device < DEVICES; device++) {
            struct gp_peak *peak = gp_peak_find(part, device, 0);
            put_peak(sheet, peak);
            free(peak);
        }
        gp_recording_free(part);
    }
}

static void sheet_diff(struct sheet *sheet, const struct tiny_case *tiny)
{
    struct gp_recording *other = tiny_make(tiny->number + 2);
    const struct gp_recording *const both[2] = {tiny->recording, other};
    uint32_t rows[2][16];
    const uint32_t *const lists[2] = {rows[0], rows[1]};
    for (uint32_t i = 0; i < 16; i++)
        rows[0][i] = i % 4, rows[1][i] = (i + tiny->number) % 5;
    struct gp_diff *diff = gp_diff_find(both, lists, 5);
    for (uint32_t i = 0; i < diff->count; i++)
        for (int side = 0; side < 2; side++)
            SHEET_NUMBERS(sheet, diff->rows[i].site[side], diff->rows[i].live_bytes[side],
                          diff->rows[i].peak_bytes[side], diff->rows[i].calls[side]);
    sheet_line(sheet);
    free(diff);
    gp_recording_free(other);
}

/* ---- requests of a device ------------------------------------------------------------------------------------------ */

/* caches: with them too, which take a while to make. */
static void put_replays(struct sheet *sheet, const struct gp_fit_trace *trace, bool caches)
{
    static const char *const policies[] = {"off", "caching", "pytorch", "auto_growth"};
    const uint64_t sizes[] = {0, trace->load_bytes, trace->load_bytes + GP_FIT_PAGE, (uint64_t)GIB};
    for (unsigned i = 0; i < (caches ? 16 : 4); i++) {
        const struct gp_fit_setup setup = {
            .policy = gp_policy_find(policies[i / 4]), .yields = i & 1, .downward = i >> 1 & 1};
        struct gp_fit_end end;
        cr_assert_eq(gp_fit_play(trace, &setup, sizes[i % 4], &end), 0);
        SHEET_NUMBERS(sheet, (int64_t)end.failed, (int64_t)end.peak, (int64_t)end.used);
    }
    struct gp_fit_sizes fit;
    const struct gp_fit_setup off = {0};
    SHEET_NUMBERS(sheet, gp_fit_find(trace, &off, &fit), (int64_t)fit.enough_bytes, (int64_t)fit.smallest_bytes,
                  (int64_t)fit.fails_bytes, (int64_t)fit.step_bytes, (int64_t)fit.spare_bytes, fit.replays);
}

static void sheet_fit(struct sheet *sheet, const struct tiny_case *tiny)
{
    for (unsigned i = 0; i < 2 * DEVICES; i++) {
        struct gp_fit_trace *trace = gp_fit_trace_new(tiny->flow, i / 2, i % 2);
        uint64_t context = 0;
        SHEET_NUMBERS(sheet, trace->device, trace->requests, trace->growable, trace->slots, (int64_t)trace->most_bytes,
                      (int64_t)trace->load_bytes, (int64_t)trace->reserved_bytes, (int64_t)trace->count,
                      gp_fit_context_find(tiny->recording, i / 2, &context), (int64_t)context);
        for (size_t k = 0; k < trace->count; k++) {
            const struct gp_fit_op *op = &trace->ops[k];
            SHEET_NUMBERS(sheet, op->bytes, op->stream, op->kind, op->pages, op->shard, op->slot, op->event);
        }
        if (i < 4)
            put_replays(sheet, trace, tiny->number % 40 < 3 && tiny->number < TINY_DAMAGED);
        sheet_line(sheet);
        gp_fit_trace_free(trace);
    }
}

static void sheet_judge(struct sheet *sheet, const struct tiny_case *tiny)
{
    static const struct gp_fit_question questions[] = {
        {.gpu_bytes = 8 * MIB, .tenants = 1, .context_bytes = 0, .allocator = "off"},
        {.gpu_bytes = 30 * MIB, .tenants = 2, .context_bytes = 3 * MIB, .allocator = "off"},
        {.gpu_bytes = GIB, .tenants = 1, .context_bytes = -1, .allocator = "off"},
        {.gpu_bytes = 40 * MIB, .tenants = 1, .context_bytes = 0},
        {.gpu_bytes = 600 * MIB, .tenants = 2, .context_bytes = -1, .all = true},
        {.gpu_bytes = 20 * MIB,
         .tenants = 1,
         .context_bytes = 0,
         .allocator = "pytorch",
         .conf = "max_split_size_mb:20"}};
    unsigned count = tiny->number >= TINY_DAMAGED ? 1 : tiny->number % 100 < 2 ? 6 : tiny->number % 40 < 3 ? 4 : 3;
    for (unsigned i = 0; i < count; i++) {
        struct gp_fit_result is;
        int rc = gp_fit_judge(tiny->flow, tiny->number % 2, &questions[i], &is);
        sheet_number(sheet, rc);
        if (rc) {
            cr_assert_eq(rc, -ERANGE); /* of a damaged file: no size is enough */
            gp_fit_result_fini(&is);
            continue;
        }
        cr_assert_eq(gp_fit_judge_held(tiny->flow, &is), 0);
        SHEET_NUMBERS(sheet, is.device, is.requests, is.context, (int64_t)is.context_bytes,
                      (int64_t)is.unexplained_bytes, (int64_t)is.spare_bytes, (int64_t)is.requested_bytes,
                      (int64_t)is.failed_requests, is.count, is.event, (int64_t)is.fails_ns, (int64_t)is.asked_bytes,
                      (int64_t)is.free_bytes, is.held->bytes);
        for (uint32_t k = 0; k < is.count; k++) {
            SHEET_NUMBERS(sheet, is.rows[k].fits, (int64_t)is.rows[k].peak_bytes, (int64_t)is.rows[k].smallest_bytes,
                          (int64_t)is.rows[k].step_bytes, is.rows[k].replays);
            sheet_word(sheet, is.rows[k].allocator);
            sheet_word(sheet, is.rows[k].conf);
        }
        sheet_line(sheet);
        gp_fit_result_fini(&is);
    }
}

/* ---- the report ---------------------------------------------------------------------------------------------------- */

static void put_report(struct sheet *sheet, const struct gp_report *report)
{
    SHEET_NUMBERS(sheet, report->leaks != NULL, report->churn != NULL, report->sites != NULL);
    for (uint32_t d = 0; d < DEVICES; d++) {
        const struct gp_report_device *device = &report->devices[d];
        SHEET_NUMBERS(sheet, device->kinds_seen, device->used, (int64_t)device->blocks, device->peak != NULL,
                      device->owners != NULL, device->fragmentation ? (int64_t)device->fragmentation->count : -1,
                      device->bill != NULL, device->allocated ? (int64_t)device->allocated->count : -1,
                      device->reserved ? (int64_t)device->reserved->count : -1,
                      device->requested ? (int64_t)device->requested->count : -1, device->segments != NULL,
                      device->sizes != NULL, device->holders ? (int64_t)device->holders->count : -1,
                      (int64_t)device->holders_ns, device->held ? (int64_t)device->held->bytes : -1,
                      device->history ? (int64_t)device->history->life_count : -1, device->forecast != NULL,
                      device->fine != NULL);
        for (unsigned kind = 0; kind < GP_KINDS; kind++)
            sheet_number(sheet, device->kinds[kind] ? (int64_t)device->kinds[kind]->count : -1);
    }
    for (uint32_t i = 0; report->sites && i < report->recording->site_count; i++) {
        const struct gp_report_site *row = &report->sites[i];
        SHEET_NUMBERS(sheet, row->site, row->device, row->kind, row->live_bytes, row->live_count, row->peak_bytes,
                      row->at_peak_bytes, row->allocated_bytes, row->calls);
    }
    sheet_line(sheet);
}

static void sheet_report(struct sheet *sheet, const struct tiny_case *tiny)
{
    static const unsigned parts[] = {GP_REPORT_DOCUMENT | GP_REPORT_HOLDERS | GP_REPORT_HELD,
                                     GP_REPORT_SUMMARY,
                                     GP_REPORT_SERIES,
                                     GP_REPORT_KINDS,
                                     GP_REPORT_PEAK | GP_REPORT_SITES,
                                     GP_REPORT_FRAGMENTATION | GP_REPORT_HOLDERS,
                                     GP_REPORT_BILL | GP_REPORT_HELD,
                                     GP_REPORT_SEGMENTS,
                                     GP_REPORT_SIZES,
                                     GP_REPORT_LEAKS,
                                     GP_REPORT_CHURN,
                                     GP_REPORT_SITES,
                                     GP_REPORT_HISTORY};
    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        struct gp_report report;
        cr_assert_eq(gp_report_init(&report, tiny->recording, NULL, "x"), 0);
        cr_assert_eq(gp_report_run(&report, parts[i], (enum gp_report_detail)((i + tiny->number) % 3)), 0);
        put_report(sheet, &report);
        gp_report_fini(&report);
    }
}

/* ---- all of it ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    void (*put)(struct sheet *sheet, const struct tiny_case *tiny);
} analyses[] = {{"steps", sheet_steps},     {"leaks", sheet_leaks},
                {"churn", sheet_churn},     {"forecast", sheet_forecast},
                {"peak", sheet_peak},       {"segments", sheet_segments},
                {"sizes", sheet_sizes},     {"bill", sheet_bill},
                {"series", sheet_series},   {"fragmentation", sheet_fragmentation},
                {"history", sheet_history}, {"uses", sheet_uses},
                {"cut", sheet_cut},         {"diff", sheet_diff},
                {"fit", sheet_fit},         {"judge", sheet_judge},
                {"report", sheet_report}};
#define ANALYSES (sizeof(analyses) / sizeof(analyses[0]))

static void case_put(struct sheet *sheets, unsigned number)
{
    struct tiny_case tiny = {.number = number, .recording = tiny_make(number)};
    char length[32];
    tiny.flow = gp_flow_new(tiny.recording);
    tiny.found = gp_steps_find(tiny.recording);
    snprintf(length, sizeof(length), "%lluns",
             (unsigned long long)((tiny.recording->end_ns - tiny.recording->begin_ns) / (4 + number % 9)));
    gp_steps_choose(tiny.recording, length, &tiny.given);
    strict_on = true;
    for (unsigned i = 0; i < ANALYSES; i++)
        analyses[i].put(&sheets[i], &tiny);
    strict_on = false;
    free(tiny.found);
    free(tiny.given);
    gp_flow_free(tiny.flow);
    gp_recording_free(tiny.recording);
}

static void recordings_compared(const char *file, const char *name, unsigned first, unsigned count)
{
    static struct golden_sheets golden;
    struct sheet sheets[ANALYSES];
    golden_begin(&golden, file);
    for (unsigned i = 0; i < ANALYSES; i++)
        sheets[i] = sheet_new(name, analyses[i].name);
    for (unsigned number = first; number < first + count; number++)
        case_put(sheets, number);
    for (unsigned i = 0; i < ANALYSES; i++)
        golden_add(&golden, &sheets[i]);
    golden_end(&golden);
}

Test(tiny, analyses, .timeout = 120)
{
    recordings_compared("tests/golden/analyze_tiny.txt", "tiny", 0, RECORDINGS);
}

Test(tiny, analyses_of_damaged_recordings, .timeout = 120)
{
    recordings_compared("tests/golden/analyze_damaged.txt", "damaged", TINY_DAMAGED, 150);
}
