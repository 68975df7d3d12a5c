/* SPDX-License-Identifier: MIT
 *
 * test_analyze_same.c: every number that the analyses find in made-up programs is the one that they
 * found before.  Other tests say which numbers are right; this one notices that any of them moved.
 * tests/golden/analyze.txt has a checksum for each analysis of each program.  GP_GOLDEN_UPDATE=1
 * writes it; GP_GOLDEN_SHOW=folder leaves the documents there, to compare them with those of the
 * commit before.
 */
#include <analyze/fit.h>
#include <analyze/phases.h>
#include <analyze/ranks.h>
#include <analyze/report.h>
#include <analyze/trend.h>
#include <analyze/uses.h>
#include <criterion/criterion.h>
#include <lib/build.h>
#include <lib/paths.h>
#include <lib/recsave.h>
#include <read/recording/recording.h>
#include <show/text/fitformat.h>
#include <show/text/phasesformat.h>
#include <show/text/ranks.h>
#include <show/text/reportformat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>
#include <unistd.h>

#include "checked_memory.h"
#include "train_fixture.h"

/* ---- programs ---------------------------------------------------------------------------------------------------- */

#define SLOTS    96u
#define PER_PART 4u          /* slots that share a segment of a cache */
#define CACHED   (SLOTS / 2) /* the slots below are inside segments */
#define ROOM     (8 * MIB)   /* of a slot */

struct program {
    const char *name;
    uint64_t seed;
    unsigned steps, events; /* of each step */
    bool marks, ranges, segments, pages, samples, late, losses, leak, growth, even;
};

static const struct program programs[] = {
    {.name = "plain", .seed = 1, .steps = 1, .events = 120},
    {.name = "marks", .seed = 2, .steps = 24, .events = 40, .marks = true, .leak = true, .samples = true},
    {.name = "ranges", .seed = 3, .steps = 18, .events = 50, .ranges = true, .segments = true, .samples = true},
    {.name = "both",
     .seed = 4,
     .steps = 12,
     .events = 60,
     .marks = true,
     .ranges = true,
     .segments = true,
     .leak = true},
    {.name = "period", .seed = 5, .steps = 40, .events = 30, .even = true, .leak = true},
    {.name = "pages", .seed = 6, .steps = 15, .events = 60, .marks = true, .pages = true, .segments = true},
    {.name = "late",
     .seed = 7,
     .steps = 14,
     .events = 60,
     .marks = true,
     .late = true,
     .segments = true,
     .samples = true},
    {.name = "losses", .seed = 8, .steps = 14, .events = 60, .marks = true, .losses = true, .leak = true},
    {.name = "growth", .seed = 9, .steps = 30, .events = 24, .marks = true, .growth = true, .samples = true},
    {.name = "all",
     .seed = 10,
     .steps = 220,
     .events = 16,
     .marks = true,
     .ranges = true,
     .segments = true,
     .pages = true,
     .samples = true,
     .losses = true,
     .leak = true,
     .growth = true},
};
#define PROGRAMS (sizeof(programs) / sizeof(programs[0]))

struct state {
    const struct program *program;
    struct recmake *make;
    uint64_t seed, now;
    struct gp_rec_event live[SLOTS]; /* type 0: free */
    bool segment[SLOTS];             /* by first slot */
    uint32_t sites[24], gpu, host;
    int64_t held[3];
};

static uint64_t draw(struct state *state, uint64_t below)
{
    return random_next(&state->seed) % below;
}

static void put(struct state *state, struct gp_rec_event event)
{
    event.time_ns = state->now;
    recmake_event(state->make, &event);
}

static uint64_t address_of(unsigned slot)
{
    return 0x7f0000000000ull + (uint64_t)slot * ROOM;
}

/* The segment, or the pages, that hold a slot. */
static void segment_ready(struct state *state, unsigned slot)
{
    const struct program *program = state->program;
    unsigned first = slot / PER_PART * PER_PART;
    bool pages = program->pages && first >= CACHED / 2;
    if (slot >= CACHED || (!program->segments && !pages) || state->segment[first])
        return;
    state->segment[first] = true;
    put(state, (struct gp_rec_event){.type = pages ? GP_EVENT_SEGMENT_MAP : GP_EVENT_SEGMENT_ALLOC,
                                     .kind = GP_KIND_LINEAR,
                                     .address = address_of(first),
                                     .bytes = PER_PART * ROOM});
}

static void segment_gone(struct state *state, unsigned slot)
{
    unsigned first = slot / PER_PART * PER_PART;
    bool pages = state->program->pages && first >= CACHED / 2;
    for (unsigned i = first; i < first + PER_PART; i++)
        if (state->live[i].type)
            return;
    if (!state->segment[first] || draw(state, 3))
        return;
    state->segment[first] = false;
    put(state, (struct gp_rec_event){.type = pages ? GP_EVENT_SEGMENT_UNMAP : GP_EVENT_SEGMENT_FREE,
                                     .kind = GP_KIND_LINEAR,
                                     .address = address_of(first),
                                     .bytes = PER_PART * ROOM});
}

static void slot_alloc(struct state *state, unsigned slot, uint64_t bytes, uint32_t site)
{
    static const uint8_t kinds[] = {GP_KIND_LINEAR, GP_KIND_POOL,    GP_KIND_PITCHED, GP_KIND_ARRAY,
                                    GP_KIND_LINEAR, GP_KIND_MANAGED, GP_KIND_VMM,     GP_KIND_PINNED};
    uint8_t kind = slot < CACHED ? GP_KIND_LINEAR : kinds[slot % 8];
    uint64_t unused = slot % 3 ? 0 : bytes / 5;
    segment_ready(state, slot);
    struct gp_rec_event event = {.type = kind == GP_KIND_VMM ? GP_EVENT_SEGMENT_ALLOC : GP_EVENT_ALLOC,
                                 .kind = kind & 15,
                                 .address = address_of(slot),
                                 .bytes = bytes,
                                 .unused = (uint32_t)unused,
                                 .site = site,
                                 .cost = slot % 5,
                                 .device = (uint8_t)(kind == GP_KIND_PINNED ? state->host
                                                     : slot >= CACHED       ? slot % 2 * state->gpu
                                                                            : 0)};
    state->live[slot] = event;
    state->held[event.device] += (int64_t)bytes;
    put(state, event);
}

static void slot_free(struct state *state, unsigned slot)
{
    struct gp_rec_event event = state->live[slot];
    state->live[slot].type = 0;
    state->held[event.device] -= (int64_t)event.bytes;
    event.type = event.type == GP_EVENT_ALLOC ? GP_EVENT_FREE : GP_EVENT_SEGMENT_FREE;
    if (!state->program->losses || draw(state, 12))
        put(state, event);
    segment_gone(state, slot);
}

static void name_mark(struct state *state, const char *format, unsigned number)
{
    char name[48];
    snprintf(name, sizeof(name), format, number);
    recmake_at(state->make, state->now);
    recmake_mark(state->make, name);
}

static void sample(struct state *state)
{
    for (uint32_t device = 0; device < 2; device++) {
        int64_t held = state->held[device], more = (int64_t)draw(state, 64 * MIB);
        bool nvml = draw(state, 3);
        recmake_sample(state->make, &(struct gp_rec_sample){.time_ns = state->now,
                                                            .device = device,
                                                            .allocated_bytes = held,
                                                            .reserved_bytes = held + more,
                                                            .active_bytes = draw(state, 2) ? held : -1,
                                                            .inactive_split_bytes = draw(state, 2) ? more / 2 : -1,
                                                            .used_bytes = nvml ? held + more + 300 * MIB : -1,
                                                            .process_bytes = nvml ? held + more + 200 * MIB : -1});
    }
}

static void one_event(struct state *state, unsigned step, unsigned i)
{
    const struct program *program = state->program;
    static const uint64_t sizes[] = {1, 511, 512, 513, MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB + 7, ROOM};
    unsigned slot = program->even ? i % SLOTS : (unsigned)draw(state, SLOTS);
    uint32_t site = state->sites[program->even ? i % 24 : draw(state, 24)];
    state->now += program->even ? MS / 10 : draw(state, 4) * MS / 7; /* some are at the same time */
    if (state->live[slot].type && (!program->losses || draw(state, 9)))
        slot_free(state, slot);
    else
        slot_alloc(state, slot, sizes[program->even ? (step + i) % 10 : draw(state, 10)], site);
    if (draw(state, 400) == 0)
        put(state, (struct gp_rec_event){.type = GP_EVENT_OOM, .bytes = GIB, .site = site});
}

static void one_step(struct state *state, unsigned step)
{
    const struct program *program = state->program;
    static const char *const phases[] = {"nvtx:forward", "nvtx:layer %u", "nvtx:backward"};
    if (program->marks)
        name_mark(state, "step %u", step);
    for (unsigned part = 0; part < 3; part++) {
        if (program->ranges)
            name_mark(state, phases[part], step % 4);
        for (unsigned i = part; i < program->events; i += 3)
            one_event(state, step, i);
        if (program->ranges && step % 5 == 4)
            name_mark(state, "nvtx.checkpoint", 0);
        if (program->ranges)
            name_mark(state, part == 0 ? "/nvtx:forward" : part == 1 ? "/nvtx:layer %u" : "/nvtx:backward", step % 4);
    }
    uint64_t kept = 0x600000000000ull + (uint64_t)step * 64 * MIB;
    if (program->leak && step % 4 != 3)
        put(state, (struct gp_rec_event){.type = GP_EVENT_ALLOC,
                                         .kind = GP_KIND_LINEAR,
                                         .address = kept,
                                         .bytes = (uint64_t)(MIB + (int64_t)draw(state, 4096)),
                                         .site = state->sites[3],
                                         .device = (uint8_t)(step % 4 == 2 ? state->gpu : 0)});
    if (program->growth) { /* one block is replaced by a larger one */
        struct gp_rec_event event = {.type = GP_EVENT_FREE,
                                     .kind = GP_KIND_LINEAR,
                                     .address = kept + 32 * MIB - 64 * MIB,
                                     .bytes = (uint64_t)step * 256 * 1024,
                                     .site = state->sites[5]};
        if (step > 0)
            put(state, event);
        event.type = GP_EVENT_ALLOC, event.address += 64 * MIB, event.bytes += 256 * 1024;
        put(state, event);
    }
    if (program->samples)
        sample(state);
}

/* What came first is lost, except blocks that were live: they become the baseline. */
static void forget(struct gp_recording *recording, size_t count)
{
    recording->baseline = calloc(count, sizeof(*recording->baseline));
    cr_assert(recording->baseline);
    for (size_t i = 0; i < count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        bool live = recording->peer[i] == GP_REC_NONE || recording->peer[i] >= count;
        if (event->type == GP_EVENT_ALLOC && live && i % 7)
            recording->baseline[recording->baseline_count++] = *event;
    }
    memmove(recording->events, recording->events + count,
            (recording->event_count - count) * sizeof(recording->events[0]));
    recording->event_count -= count;
    recording->begin_ns = recording->events[0].time_ns;
    recording->from_start = false;
    free(recording->peer);
    recording->peer = calloc(recording->event_count + recording->baseline_count + 1, sizeof(uint32_t));
    cr_assert_eq(gp_recording_match(recording), 0);
}

static struct gp_recording *made(const struct program *program)
{
    struct state state = {.program = program, .seed = program->seed * 2654435761u, .now = 1000 * MS};
    state.make = recmake_new(4 * GIB);
    state.gpu = recmake_device(state.make, 1, 2 * GIB);
    state.host = recmake_device(state.make, GP_WIRE_HOST, -1);
    for (unsigned i = 0; i < 24; i++)
        state.sites[i] = i % 6 == 5 ? recmake_native_site(state.make, GP_KIND_LINEAR,
                                                          (const char *const[]){"/nowhere/libnccl.so.2", "", NULL})
                                    : site(state.make, i % 2 ? "forward" : "backward", i);
    state.sites[23] = 0;
    for (unsigned step = 0; step < program->steps; step++)
        one_step(&state, step);
    state.now += MS;
    recmake_at(state.make, state.now);
    if (program->marks)
        recmake_mark(state.make, "step 9999");
    struct gp_recording *recording = recmake_done(state.make);
    recording->dropped = program->losses ? 17 : 0;
    recording->tried += recording->dropped;
    if (program->late)
        forget(recording, recording->event_count / 5);
    return recording;
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

struct golden {
    char *text, *old; /* lines of checksums: now, and of the file */
    size_t used;
};

static uint32_t checksum(const char *text)
{
    uint32_t sum = 2166136261u; /* FNV-1a */
    for (; *text; text++)
        sum = (sum ^ (unsigned char)*text) * 16777619u;
    return sum;
}

/* Six digits, because another compiler may round the last one of a sum in another way. */
static void document(struct golden *golden, const char *program, const char *name, json_t *object)
{
    char line[128];
    cr_assert(object, "%s of %s", name, program);
    json_object_del(object, "version");
    char *text = json_dumps(object, JSON_INDENT(1) | JSON_SORT_KEYS | JSON_REAL_PRECISION(6));
    json_decref(object);
    cr_assert(text);
    snprintf(line, sizeof(line), "%s %s %zu %08x\n", program, name, strlen(text), checksum(text));
    strcpy(golden->text + golden->used, line);
    golden->used += strlen(line);
    if (getenv("GP_GOLDEN_SHOW")) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s-%s.json", getenv("GP_GOLDEN_SHOW"), program, name);
        FILE *file = fopen(path, "w");
        cr_assert(file, "%s", path);
        fputs(text, file);
        fclose(file);
    }
    if (golden->old)
        cr_expect(strstr(golden->old, line), "%s of %s differ: GP_GOLDEN_SHOW shows how", name, program);
    free(text);
}

/* The hints are made up: half of the sites have names that tell nothing. */
static bool use_tables(const struct gp_report *report, uint32_t device, struct gp_use_table **uses,
                       struct gp_phases **phases)
{
    uint8_t hints[64];
    for (uint32_t i = 0; i < 64; i++)
        hints[i] = i % 2 ? (uint8_t)gp_use_hint_of_owner(i % 6 == 5 ? "nccl" : "pytorch") : 0;
    bool host = report->recording->devices[device].index == GP_WIRE_HOST;
    *uses = host ? NULL : gp_uses_find(report->flow, report->steps, report->leaks, hints, device);
    *phases = gp_phases_find(report->flow, report->steps, *uses, device);
    return *phases && (host || *uses);
}

static void fits(struct golden *golden, const char *program, const struct gp_report *report)
{
    static const struct gp_fit_question questions[] = {
        {.gpu_bytes = (uint64_t)GIB, .tenants = 1, .context_bytes = -1},
        {.gpu_bytes = 100ull << 20, .tenants = 1, .context_bytes = 0, .allocator = "off"},
        {.gpu_bytes = 600ull << 20, .tenants = 3, .context_bytes = 40 << 20, .allocator = "pytorch"},
    };
    for (unsigned i = 0; i < 3; i++) {
        struct gp_fit_result results[2] = {{0}};
        struct gp_fit_answer answer = {report, &questions[i], results, 0};
        char name[16];
        int rc = 0;
        for (uint32_t device = 0; rc == 0 && device < 2; device++) {
            struct gp_fit_result *result = &results[answer.count++];
            rc = gp_fit_judge(report->flow, device, &questions[i], result);
            rc = rc ? rc : gp_fit_judge_held(report->flow, result);
        }
        snprintf(name, sizeof(name), "fit-%u", i);
        document(golden, program, name, rc ? json_pack("{si}", "error", rc) : gp_fit_json(&answer));
        for (uint32_t k = 0; k < answer.count; k++)
            gp_fit_result_fini(&results[k]);
    }
}

static void documents(struct golden *golden, const char *program, const struct gp_recording *recording)
{
    const struct gp_symbol_source source = gp_symbol_source_of(recording, "");
    struct gp_symbols *symbols;
    struct gp_report report;
    struct gp_phases *phases[3];
    struct gp_use_table *uses[3];
    cr_assert_eq(gp_symbols_new(&symbols, &source), 0);
    cr_assert_eq(gp_report_init(&report, recording, symbols, "x.gpuprof"), 0);
    cr_assert_eq(gp_report_run(&report, GP_REPORT_DOCUMENT | GP_REPORT_HOLDERS | GP_REPORT_HELD, GP_DETAIL_PLOT), 0);
    document(golden, program, "report", gp_report_document(&report));
    document(golden, program, "leaks", gp_report_leaks_json(&report));
    document(golden, program, "peak", gp_report_peak_json(&report));
    document(golden, program, "churn", gp_report_churn_json(&report));
    document(golden, program, "fragmentation", gp_report_fragmentation_json(&report));
    document(golden, program, "reconcile", gp_report_reconcile_json(&report));
    for (uint32_t i = 0; i < recording->device_count; i++)
        cr_assert(use_tables(&report, i, &uses[i], &phases[i]));
    document(golden, program, "phases", gp_phases_json(&report, phases, uses));
    for (uint32_t i = 0; i < recording->device_count; i++) {
        gp_phases_free(phases[i]);
        gp_uses_free(uses[i]);
    }

    fits(golden, program, &report);
    gp_report_fini(&report);
    gp_symbols_free(symbols);
}

/* What is written to a file and read again is what is analysed. */
static struct gp_recording *reread(struct gp_recording *recording, const char *folder)
{
    struct gp_recording *again;
    char path[300], why[200] = "";
    snprintf(path, sizeof(path), "%s/x.gpuprof", folder);
    cr_assert_eq(recsave(recording, path), 0);
    cr_assert_eq(gp_recording_open(&again, path, why, sizeof(why), NULL, NULL), 0, "%s", why);
    cr_assert_eq(again->event_count, recording->event_count);
    cr_assert_eq(again->baseline_count, recording->baseline_count);
    gp_recording_free(recording);
    return again;
}

static void differences(struct golden *golden, const char *name, const struct gp_recording *one,
                        const struct gp_recording *other)
{
    const struct gp_recording *const recordings[2] = {one, other};
    uint32_t rows[64];
    const uint32_t *const both[2] = {rows, rows};
    uint32_t most = one->site_count > other->site_count ? one->site_count : other->site_count;
    for (uint32_t i = 0; i < 64; i++)
        rows[i] = i;
    struct gp_diff *diff = gp_diff_find(recordings, both, most);
    json_t *lines = json_array();
    for (uint32_t i = 0; i < diff->count; i++) {
        const struct gp_diff_row *row = &diff->rows[i];
        json_t *line = json_array();
        for (int side = 0; side < 2; side++) {
            json_array_append_new(line, json_integer(row->site[side]));
            json_array_append_new(line, json_integer(row->live_bytes[side]));
            json_array_append_new(line, json_integer(row->peak_bytes[side]));
            json_array_append_new(line, json_integer(row->calls[side]));
        }
        json_array_append_new(lines, line);
    }
    free(diff);
    document(golden, name, "diff", json_pack("{so}", "rows", lines));
}

/* What the command for ranks takes from a recording. */
static struct gp_job_rank rank_of(const struct gp_recording *recording, int number)
{
    struct gp_job_rank rank = {.file = "x",
                               .number = number,
                               .local_number = number % 4,
                               .world_size = 11,
                               .host = "box",
                               .comm = "train",
                               .complete = true,
                               .missing = gp_rec_missing(recording),
                               .events = recording->event_count,
                               .ooms = number == 4,
                               .begin_ns = recording->begin_ns + (uint64_t)number % 3 * MS,
                               .end_ns = recording->end_ns,
                               .begin_unix_ns = recording->begin_unix_ns,
                               .device_count = 2,
                               .device_name = "Test GPU",
                               .total_bytes = number == 6 ? -1 : 4 * GIB,
                               .headroom_bytes = number == 6 ? -1 : GIB - number % 5 * MIB,
                               .seconds_to_oom = -1,
                               .allocated = gp_series_allocated(recording, 0, GP_KIND_NONE, 400)};
    struct gp_peak *peak = gp_peak_find(recording, 0, 0);
    rank.sites = calloc(peak->count + 1, sizeof(*rank.sites));
    rank.peak_bytes = rank.reserved_peak_bytes = peak->bytes;
    rank.peak_ns = peak->time_ns;
    for (uint32_t i = 0; i < peak->count; i++) {
        struct gp_rank_site *site = &rank.sites[rank.site_count++];
        snprintf(site->name, sizeof(site->name), "line %u", peak->parts[i].site / 2);
        snprintf(site->owner, sizeof(site->owner), peak->parts[i].site % 5 ? "torch" : "nccl");
        site->kind = peak->parts[i].kind;
        site->peak_bytes = peak->parts[i].bytes;
    }
    free(peak);
    return rank;
}

static void compare_ranks(struct golden *golden, const char *name, struct gp_job_rank *ranks, uint32_t count)
{
    struct gp_ranks *all = gp_ranks_find(ranks, count);
    cr_assert(all);
    document(golden, "ranks", name, gp_ranks_json(all));
    gp_ranks_free(all);
}

static void ranks(struct golden *golden, struct gp_job_rank *ranks, uint32_t count)
{
    compare_ranks(golden, "failed", ranks, count);
    for (uint32_t i = 0; i < count; i++)
        ranks[i].ooms = 0;
    compare_ranks(golden, "peak", ranks, count);
    for (uint32_t i = 0; i < count; i++) {
        ranks[i].headroom_bytes = GIB - ranks[i].number % 5 * MIB;
        snprintf(ranks[i].host, sizeof(ranks[i].host), "box%d", ranks[i].number % 2);
    }
    compare_ranks(golden, "headroom", ranks, count);
    compare_ranks(golden, "two", ranks, 2);
    for (uint32_t i = 0; i < count; i++) {
        free(ranks[i].allocated);
        free(ranks[i].sites);
    }
}

/* ---- curves, forecasts and matches of random numbers --------------------------------------------------------------- */

static void add_numbers(json_t *list, unsigned count, const double *numbers)
{
    json_t *line = json_array();
    for (unsigned i = 0; i < count; i++)
        json_array_append_new(line, json_real(numbers[i]));
    json_array_append_new(list, line);
}

/* Of every shape: rising, falling back, rare, growing more slowly, still at the end. */
static int64_t curve_next(uint64_t *seed, unsigned shape, unsigned i, int64_t last)
{
    int64_t step = (int64_t)(random_next(seed) % 100);
    switch (shape % 6) {
    case 0:
        return last + step;
    case 1:
        return last + (step < 30 ? 50 : 0);
    case 2:
        return step < 15 ? last / 2 : last + step;
    case 3:
        return last + 4096 / (i + 1);
    case 4:
        return i < 9 ? last + step : last;
    default:
        return last + step - 45;
    }
}

static void trends(struct golden *golden)
{
    json_t *list = json_array();
    uint64_t seed = 4711;
    for (unsigned round = 0; round < 600; round++) {
        int64_t values[40], at = 1000;
        struct gp_trend trend = {0};
        uint32_t count = (uint32_t)(random_next(&seed) % 38) + 2;
        for (unsigned i = 0; i < count; i++)
            values[i] = at = curve_next(&seed, round, i, at);
        bool grows = gp_trend_find(values, count, &trend);
        add_numbers(list, 6,
                    (const double[]){grows, trend.verdict, trend.rises, trend.falls, trend.slope, trend.confidence});
    }
    document(golden, "random", "trends", json_pack("{so}", "rows", list));
}

static struct gp_forecast_sample sample_next(uint64_t *seed, unsigned shape, unsigned i, int64_t base)
{
    int64_t swing = 1000 + (int64_t)(random_next(seed) % (shape % 3 ? 10 : 900));
    bool counts = shape % 5;
    return (struct gp_forecast_sample){.time_ns = 1000000000ull * (i + 1) + random_next(seed) % 1000,
                                       .low = base,
                                       .high = base + (i % 2 || shape % 4 ? swing : 0),
                                       .last = base + (i % 2 ? swing : 0),
                                       .allocs = counts ? (int64_t)(i + 1) * 10 + (shape % 7 == 1) * i : -1,
                                       .frees = counts ? (int64_t)i * 10 : -1,
                                       .taken_bytes = counts ? (int64_t)(i + 1) * 9000 : -1,
                                       .fresh_bytes = counts ? (i < 3 ? 500 : (int64_t)(random_next(seed) % 3)) : -1};
}

static void forecasts(struct golden *golden)
{
    json_t *list = json_array();
    uint64_t seed = 815;
    for (unsigned round = 0; round < 120; round++) {
        struct gp_forecast *forecast = calloc(1, sizeof(*forecast));
        int64_t base = 5000;
        gp_forecast_begin(forecast, round % 2 ? GP_FORECAST_STEPS : GP_FORECAST_MOMENTS);
        for (unsigned i = 0; i < 20 + round * 3; i++) {
            base = round % 3 ? curve_next(&seed, round, i, base) : base;
            struct gp_forecast_sample next = sample_next(&seed, round, i, base);
            gp_forecast_feed(forecast, &next);
            if (i % 17 != 3 && i % 64 != 63)
                continue;
            struct gp_forecast_result is;
            struct gp_forecast_room room = {round % 4 ? 100000 : -1, round % 5 ? 90000 : -1, round % 6 ? 77 : -1};
            gp_forecast_find(forecast, &room, &is);
            add_numbers(list, 9,
                        (const double[]){is.verdict, is.points, (double)is.seen_ns, (double)is.peak_bytes,
                                         (double)is.step_bytes, (double)is.headroom_bytes, is.bytes_per_second,
                                         is.confidence, is.seconds_to_oom});
        }
        free(forecast);
    }
    document(golden, "random", "forecasts", json_pack("{so}", "rows", list));
}

/* Sites of few stacks, whose lines have moved, come and gone between the two sides. */
static void matches(struct golden *golden)
{
    static const char *const stacks[] = {"a", "b", "c"};
    json_t *list = json_array();
    uint64_t seed = 99;
    for (unsigned round = 0; round < 150; round++) {
        static uint32_t lines[2][24][2], rows[2][24];
        struct gp_diff_site sites[2][24];
        uint32_t counts[2], row_count = 0;
        for (int side = 0; side < 2; side++) {
            counts[side] = (uint32_t)(random_next(&seed) % 24);
            for (uint32_t i = 0; i < counts[side]; i++) {
                lines[side][i][0] = (uint32_t)(random_next(&seed) % 12) + (side ? round % 5 : 0);
                lines[side][i][1] = (uint32_t)(random_next(&seed) % 3);
                sites[side][i] = (struct gp_diff_site){
                    .stack = stacks[random_next(&seed) % 3], .lines = lines[side][i], .line_count = 1 + i % 2};
            }
        }
        const struct gp_diff_site *const both[2] = {sites[0], sites[1]};
        uint32_t *out[2] = {rows[0], rows[1]};
        cr_assert(gp_diff_match(both, counts, out, &row_count));
        json_t *line = json_array();
        json_array_append_new(line, json_integer(row_count));
        for (int side = 0; side < 2; side++)
            for (uint32_t i = 0; i < counts[side]; i++)
                json_array_append_new(line, json_integer(rows[side][i]));
        json_array_append_new(list, line);
    }
    document(golden, "random", "matches", json_pack("{so}", "rows", list));
}

/* Stretches of a series, with limits at points and between them. */
static void stretches(struct golden *golden, const struct gp_recording *recording)
{
    struct gp_series *series = gp_series_allocated(recording, 0, GP_KIND_NONE, 60);
    json_t *list = json_array();
    for (uint32_t from = 0; from < series->count; from += 7)
        for (uint32_t to = from; to < series->count; to += 5)
            for (int by = -1; by <= 1; by++) {
                struct gp_series_point is = gp_series_range(series, series->points[from].time_ns + (uint64_t)by,
                                                            series->points[to].time_ns + (uint64_t)by);
                add_numbers(list, 4,
                            (const double[]){(double)is.time_ns, (double)is.low, (double)is.high, (double)is.last});
            }
    free(series);
    for (uint32_t site = 0; site <= recording->site_count; site++) {
        char owner[GP_SITE_OWNER];
        gp_site_owner(recording, site, owner);
        json_array_append_new(list, json_string(owner));
    }
    document(golden, "random", "stretches", json_pack("{so}", "rows", list));
}

static char *file_text(const char *path)
{
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s is missing: GP_GOLDEN_UPDATE=1 writes it", path);
    char *text = calloc(1, 1 << 16);
    cr_assert_gt(fread(text, 1, (1 << 16) - 1, file), 0);
    fclose(file);
    return text;
}

Test(golden, analyses_of_made_up_programs, .timeout = 120)
{
    const char *path = path_source("tests/golden/analyze.txt");
    bool update = getenv("GP_GOLDEN_UPDATE");
    struct golden golden = {.text = calloc(1, 1 << 16), .old = update ? NULL : file_text(path)};
    struct gp_recording *last = NULL;
    struct gp_job_rank job[PROGRAMS];
    char *folder = build_folder();
    cr_assert(folder);
    for (unsigned i = 0; i < PROGRAMS; i++) {
        struct gp_recording *recording = reread(made(&programs[i]), folder);
        documents(&golden, programs[i].name, recording);
        if (last)
            differences(&golden, programs[i].name, last, recording);
        gp_recording_free(last);
        last = recording;
        job[i] = rank_of(recording, (int)i);
    }
    ranks(&golden, job, PROGRAMS);
    trends(&golden);
    forecasts(&golden);
    matches(&golden);
    stretches(&golden, last);
    uint64_t quarter = (last->end_ns - last->begin_ns) / 4;
    cr_assert_eq(gp_recording_cut(last, last->begin_ns + quarter, last->begin_ns + 3 * quarter), 0);
    documents(&golden, "cut", last);
    gp_recording_free(last);
    if (update) {
        FILE *file = fopen(path, "w");
        cr_assert(file, "%s", path);
        fputs(golden.text, file);
        fclose(file);
    } else {
        cr_expect_str_eq(golden.text, golden.old);
    }
    free(golden.text);
    free(golden.old);
    build_remove(folder);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Whatever the analyses take they give back: the same twice holds no block more. */
Test(golden, analyses_give_their_memory_back, .timeout = 120)
{
    static const unsigned some[] = {3, 6, 9};
    char *folder = build_folder();
    long before[3];
    cr_assert(folder);
    for (unsigned round = 0; round < 3; round++) {
        struct golden golden = {.text = calloc(1, 1 << 16)};
        struct gp_job_rank job[3];
        struct gp_recording *last = NULL;
        for (unsigned i = 0; i < 3; i++) {
            struct gp_recording *recording = reread(made(&programs[some[i]]), folder);
            documents(&golden, programs[some[i]].name, recording);
            if (last)
                differences(&golden, programs[some[i]].name, last, recording);
            gp_recording_free(last);
            last = recording;
            job[i] = rank_of(recording, (int)i);
        }
        ranks(&golden, job, 3);
        matches(&golden);
        stretches(&golden, last);
        gp_recording_free(last);
        free(golden.text);
        before[round] = memory_held;
    }
    cr_expect_eq(before[2], before[1], "%ld blocks more", before[2] - before[1]);
    build_remove(folder);
}
