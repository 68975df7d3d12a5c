/* SPDX-License-Identifier: MIT
 * test_forecast.c: the forecast of a run: what is periodic, its peak, its growth, and when it stays
 * silent. */
#include <analyze/analyze.h>
#include <analyze/forecast.h>
#include <convert/replay/replay.h>
#include <criterion/criterion.h>
#include <lib/analyses.h>
#include <lib/random.h>
#include <math.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <show/text/forecast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"

#define SECOND 1000000000ull

/* A program that is looked at once a second. */
struct moments {
    double step_s;             /* length of a step */
    int64_t base, swing;       /* bytes */
    double leak_per_s, stop_s; /* bytes per second, until this second (0: for ever) */
    double frees;              /* of this part of its allocations; 0: nearly all, negative: none */
    double rate;               /* allocations per second */
    unsigned noise;            /* percent of the swing */
};

static struct gp_forecast forecast_of(const struct moments *program, unsigned seconds)
{
    struct gp_forecast forecast;
    uint64_t seed = 77;
    gp_forecast_begin(&forecast, GP_FORECAST_MOMENTS);
    for (unsigned t = 0; t <= seconds; t++) {
        double phase = program->step_s > 0 ? fmod(t, program->step_s) / program->step_s : 0;
        double until = program->stop_s > 0 && t > program->stop_s ? program->stop_s : t;
        int64_t noise = program->noise
                            ? (int64_t)(random_next(&seed) % 1000) * program->swing / 100000 * (int64_t)program->noise
                            : 0;
        int64_t now = program->base + (int64_t)(program->leak_per_s * until) + noise +
                      (int64_t)((double)program->swing * (phase < 0.5 ? 2 * phase : 2 - 2 * phase));
        struct gp_forecast_sample sample = {
            .time_ns = (t + 1) * SECOND,
            .low = now,
            .high = now,
            .last = now,
            .allocs = (int64_t)(program->rate * t),
            .frees =
                program->frees < 0 ? 0 : (int64_t)(program->rate * t * (program->frees > 0 ? program->frees : 0.95)),
            .taken_bytes = t * MIB};
        gp_forecast_feed(&forecast, &sample);
    }
    return forecast;
}

static struct gp_forecast_result result_of(const struct moments *program, unsigned seconds)
{
    struct gp_forecast forecast = forecast_of(program, seconds);
    struct gp_forecast_room room = {.device_free_bytes = 10 * GIB, .limit_left_bytes = -1, .idle_bytes = 0};
    struct gp_forecast_result result;
    gp_forecast_find(&forecast, &room, &result);
    return result;
}

Test(forecast, a_steady_program_has_no_end)
{
    for (unsigned seconds = 20; seconds < 2000; seconds = seconds * 3 / 2) {
        for (double step = 0.37; step < 9; step *= 1.7) {
            struct moments program = {.step_s = step, .base = GIB, .swing = GIB, .rate = 1000, .noise = 10};
            struct gp_forecast_result result = result_of(&program, seconds);
            cr_assert_neq(result.verdict, GP_FORECAST_GROWS, "%u s, steps of %g s", seconds, step);
            cr_assert_lt(result.seconds_to_oom, 0);
        }
    }
}

/* Judged every second for hours, with other noise each time. */
Test(forecast, chance_is_no_leak)
{
    unsigned alarms = 0, judged = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        uint64_t state = seed * 2654435761u;
        struct gp_forecast forecast;
        gp_forecast_begin(&forecast, GP_FORECAST_MOMENTS);
        bool alarmed = false;
        for (uint64_t t = 1; t < 4000; t++) {
            int64_t now = GIB + (int64_t)(random_next(&state) % (uint64_t)GIB);
            struct gp_forecast_sample sample = {.time_ns = t * SECOND,
                                                .low = now,
                                                .high = now,
                                                .last = now,
                                                .allocs = (int64_t)(100 * t),
                                                .frees = (int64_t)(100 * t),
                                                .taken_bytes = 0};
            struct gp_forecast_result result;
            gp_forecast_feed(&forecast, &sample);
            gp_forecast_find(&forecast, NULL, &result);
            judged++;
            alarmed |= result.verdict == GP_FORECAST_GROWS;
        }
        alarms += alarmed;
    }
    cr_assert_eq(alarms, 0, "%u of 100 programs, %u judgements", alarms, judged);
}

Test(forecast, a_leak_has_an_end)
{
    for (unsigned seconds = 120; seconds < 4000; seconds *= 2) {
        struct moments program = {
            .step_s = 0.37, .base = GIB, .swing = 100 * MIB, .rate = 1000, .leak_per_s = 2.5 * MIB};
        struct gp_forecast_result result = result_of(&program, seconds);
        cr_assert_eq(result.verdict, GP_FORECAST_GROWS, "%u s: %s", seconds, gp_forecast_word(result.verdict));
        cr_assert_float_eq(result.bytes_per_second / MIB, 2.5, 0.15, "%u s: %f", seconds,
                           result.bytes_per_second / MIB);
        cr_assert_float_eq(result.seconds_to_oom, 10.0 * GIB / (2.5 * MIB), 400, "%f", result.seconds_to_oom);
        cr_assert_geq(result.confidence, 0.4);
        cr_assert_eq(result.headroom_bytes, 10 * GIB);
    }
}

/* A block that is replaced each second by one that is 10 MiB larger: for a moment there are both.  What is looked at is
 * what stays, and the peak since. */
Test(forecast, a_block_that_is_replaced_fails_earlier)
{
    const int64_t total = 20 * GIB, by = 10 * MIB;
    const double fails = (double)total / (2.0 * by); /* seconds */
    struct gp_forecast forecast;
    struct gp_forecast_result result;
    gp_forecast_begin(&forecast, GP_FORECAST_MOMENTS);
    for (unsigned t = 1; t < fails / 2; t++) {
        struct gp_forecast_sample sample = {.time_ns = t * SECOND,
                                            .low = by * t,
                                            .high = by * (2 * t - 1),
                                            .last = by * t,
                                            .allocs = 50 * t,
                                            .frees = 50 * t,
                                            .taken_bytes = -1};
        gp_forecast_feed(&forecast, &sample);
    }
    struct gp_forecast_room room = {.device_free_bytes = total - by * (int64_t)(fails / 2), .limit_left_bytes = -1};
    gp_forecast_find(&forecast, &room, &result);
    cr_assert_eq(result.verdict, GP_FORECAST_GROWS, "%s", gp_forecast_word(result.verdict));
    cr_expect_float_eq(result.seconds_to_oom, fails / 2, 0.25 * fails / 2, "%f s for %f", result.seconds_to_oom,
                       fails / 2);
}

Test(forecast, loading_and_stopping_and_idling_are_silent)
{
    struct moments loads = {.base = 0, .rate = 100, .leak_per_s = 100.0 * MIB, .frees = -1};
    cr_assert_eq(result_of(&loads, 60).verdict, GP_FORECAST_APERIODIC);
    /* What frees less than three of four blocks is still loading. */
    struct moments half = {.step_s = 0.37, .base = GIB, .swing = MIB, .rate = 100, .frees = 0.74};
    cr_assert_eq(result_of(&half, 60).verdict, GP_FORECAST_APERIODIC);
    half.frees = 0.76;
    cr_assert_eq(result_of(&half, 60).verdict, GP_FORECAST_STEADY);
    struct moments stops = {
        .step_s = 0.37, .base = GIB, .swing = MIB, .rate = 100, .leak_per_s = 20.0 * MIB, .stop_s = 30};
    cr_assert_eq(result_of(&stops, 200).verdict, GP_FORECAST_STEADY);
    struct moments idles = {.base = GIB};
    cr_assert_eq(result_of(&idles, 60).verdict, GP_FORECAST_IDLE);
    struct moments early = {.step_s = 0.37, .base = GIB, .swing = MIB, .rate = 100, .leak_per_s = 20.0 * MIB};
    cr_assert_eq(result_of(&early, 9).verdict, GP_FORECAST_SHORT);
    /* A leak of a few bytes ends in years: that is no warning. */
    struct moments tiny = {.step_s = 0.37, .base = GIB, .rate = 100, .leak_per_s = 100};
    cr_assert_lt(result_of(&tiny, 100).seconds_to_oom, 0);
}

Test(forecast, a_reset_begins_again)
{
    struct moments program = {.step_s = 0.37, .base = GIB, .swing = MIB, .rate = 100, .leak_per_s = 20.0 * MIB};
    struct gp_forecast forecast = forecast_of(&program, 100);
    struct gp_forecast_sample sample = {.time_ns = 200 * SECOND, .low = 5, .high = 5, .last = 5};
    gp_forecast_feed(&forecast, &sample);
    cr_assert_eq(forecast.count, 0);
    sample.time_ns = 100 * SECOND; /* and a time that goes back is nothing */
    sample.high = GIB;
    gp_forecast_feed(&forecast, &sample);
    cr_assert_eq(forecast.high, 5);
}

/* When the points are full, each two become one, which has the extremes, the end and the sums of both. */
Test(forecast, joined_points_tell_of_both)
{
    struct gp_forecast forecast;
    gp_forecast_begin(&forecast, GP_FORECAST_STEPS);
    for (int64_t i = 0; i <= GP_FORECAST_POINTS + 2; i++) {
        bool wide = i % 4 < 2; /* now the first of a point, now the second */
        struct gp_forecast_sample sample = {.time_ns = (uint64_t)i + 1,
                                            .low = wide ? 10 : 20,
                                            .high = wide ? 60 : 50,
                                            .last = i % 2 ? 30 : 40,
                                            .allocs = i,
                                            .frees = 2 * i,
                                            .taken_bytes = 3 * i};
        gp_forecast_feed(&forecast, &sample);
    }
    cr_expect(forecast.count == GP_FORECAST_POINTS / 2 + 1 && forecast.samples == 2 && forecast.open == 0);
    for (uint32_t i = 0; i < forecast.count; i++) {
        const struct gp_forecast_point *point = &forecast.points[i];
        cr_expect_eq(point->time_ns, 2 * i + 3, "point %u", i);
        cr_expect(point->low == 10 && point->high == 60 && point->last == 40, "point %u", i);
        cr_expect(point->allocs == 2 && point->frees == 4 && point->taken_bytes == 6, "point %u", i);
    }
}

Test(forecast, claims_of_a_process_do_no_harm)
{
    static const int64_t values[] = {-1, 0, 1, INT64_MAX, INT64_MIN, INT64_MAX / 2};
    uint64_t seed = 3;
    struct gp_forecast forecast;
    struct gp_forecast_result result;
    struct gp_forecast_room room = {INT64_MAX, INT64_MAX, INT64_MAX};
    for (int kind = 0; kind < 2; kind++) {
        gp_forecast_begin(&forecast, (enum gp_forecast_kind)kind);
        for (uint64_t t = 1; t < 3000; t++) {
            struct gp_forecast_sample sample = {.time_ns = t * SECOND};
            int64_t *members[] = {&sample.low,    &sample.high,  &sample.last,
                                  &sample.allocs, &sample.frees, &sample.taken_bytes};
            for (unsigned i = 0; i < 6; i++)
                *members[i] = values[random_next(&seed) % 6];
            if (t % 200 > 3)
                sample.allocs = sample.frees = sample.taken_bytes = (int64_t)(t << 40);
            gp_forecast_feed(&forecast, &sample);
            gp_forecast_find(&forecast, &room, &result);
            cr_assert(result.confidence >= 0 && result.confidence <= 1);
        }
    }
}

Test(forecast, headroom_is_the_least_limit_and_what_is_idle)
{
    static const struct {
        struct gp_forecast_room room;
        int64_t headroom;
    } rows[] = {{{.device_free_bytes = 100, .limit_left_bytes = -1, .idle_bytes = 7}, 107},
                {{.device_free_bytes = 100, .limit_left_bytes = 30, .idle_bytes = 7}, 37},
                {{.device_free_bytes = -1, .limit_left_bytes = 30, .idle_bytes = 7}, 37},
                {{.device_free_bytes = -1, .limit_left_bytes = -1, .idle_bytes = 7}, -1}};
    static const struct gp_forecast nothing;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gp_forecast_result result;
        gp_forecast_find(&nothing, &rows[i].room, &result);
        cr_expect_eq(result.headroom_bytes, rows[i].headroom, "%u", i);
    }
}

/* ---- a second model --------------------------------------------------------------------------------------------- */

#define SAMPLES 40u

static int double_order(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* The verdict, and the most that a step takes, of steps 1 .. count, each a sample after the one before. */
static enum gp_forecast_verdict steps_judged(const struct gp_forecast_sample *samples, unsigned count, int64_t *step)
{
    double works[SAMPLES], sorted[SAMPLES];
    unsigned first = count > 17 ? count - 15 : 2, alike = 0; /* the newest 16, but the first one never */
    int64_t calls = 0;
    *step = 0;
    if (count < 2)
        return GP_FORECAST_SHORT;
    for (unsigned i = first; i <= count; i++) {
        const struct gp_forecast_sample *now = &samples[i], *before = now - 1;
        calls += now->allocs - before->allocs + now->frees - before->frees;
        works[i] = sorted[i - first] = (double)(now->taken_bytes - before->taken_bytes - (now->last - before->last));
    }
    qsort(sorted, count + 1 - first, sizeof(*sorted), double_order);
    double median = sorted[(count + 1 - first) / 2];
    for (unsigned i = first; i <= count; i++) {
        bool same = works[i] >= 0.98 * median && works[i] <= 1.02 * median;
        alike += same;
        *step = same && samples[i].high - samples[i - 1].last > *step ? samples[i].high - samples[i - 1].last : *step;
    }
    if (count == 2) {
        int64_t one = samples[1].taken_bytes - samples[0].taken_bytes,
                two = samples[2].taken_bytes - samples[1].taken_bytes,
                fresh = samples[2].fresh_bytes - samples[1].fresh_bytes;
        return two > 0 && (double)two <= 1.02 * (double)one && (double)fresh <= 0.02 * (double)two
                   ? GP_FORECAST_STEADY
                   : GP_FORECAST_APERIODIC;
    }
    return !calls                                               ? GP_FORECAST_IDLE
           : median > 0 && alike * 4 >= (count + 1 - first) * 3 ? GP_FORECAST_STEADY
                                                                : GP_FORECAST_APERIODIC;
}

/* Of what a steady program holds at least in each step, how it grows. */
static bool steps_grow(const struct gp_forecast_sample *samples, unsigned count, struct gp_forecast_result *right)
{
    int64_t lows[SAMPLES], stays = samples[count].low;
    unsigned warm = count >= 20 ? count / 10 : 1, n = 0;
    struct gp_trend trend;
    for (unsigned i = warm + 1; i <= count; i++)
        lows[n++] = samples[i].low;
    if (count < 5 || !gp_trend_find(lows, n, &trend) || trend.confidence < 0.4)
        return false;
    for (unsigned i = count - 3; i <= count; i++)
        stays = samples[i].low < stays ? samples[i].low : stays;
    right->bytes_per_second = trend.slope * n / ((double)(samples[count].time_ns - samples[warm].time_ns) / 1e9);
    double left = (double)(right->headroom_bytes + samples[count].last - stays - right->step_bytes);
    right->seconds_to_oom = left > 0 ? left / right->bytes_per_second : 0;
    if (right->headroom_bytes < 0 || right->seconds_to_oom > GP_FORECAST_HORIZON)
        right->seconds_to_oom = -1;
    return true;
}

Test(forecast, of_random_steps)
{
    static const int64_t works[] = {100000, 100000, 100000, 100000, 100000, 102000, 98000, 102040, 97960, 50000, 0};
    uint64_t seed = 3;
    unsigned seen[5] = {0};
    for (unsigned round = 0; round < 4000; round++) {
        struct gp_forecast_sample samples[SAMPLES] = {{.time_ns = 1, .low = 50, .high = 5000, .last = 500}};
        struct gp_forecast forecast;
        unsigned count = random_below(&seed, SAMPLES - 1), odd = 3 + random_below(&seed, 9);
        bool keeps = random_below(&seed, 3), calls = random_below(&seed, 8), late = random_below(&seed, 4);
        struct gp_forecast_room room = {
            .device_free_bytes = round % 5 ? (int64_t)random_below(&seed, 400000) : -1, -1, -1};
        int64_t high = samples[0].high;
        gp_forecast_begin(&forecast, GP_FORECAST_STEPS);
        gp_forecast_feed(&forecast, &samples[0]);
        for (unsigned i = 1; i <= count; i++) {
            struct gp_forecast_sample *now = &samples[i], *before = now - 1;
            int64_t kept = keeps ? random_below(&seed, 4) * 1000 : 0, work = works[random_below(&seed, odd)];
            work = i == 1 && late ? 300000 : work;
            *now = (struct gp_forecast_sample){.time_ns = before->time_ns + SECOND * (1 + random_below(&seed, 2)),
                                               .low = before->last + random_below(&seed, 2) * 100,
                                               .high = before->last + work,
                                               .last = before->last + kept,
                                               .allocs = before->allocs + calls,
                                               .frees = before->frees + calls * random_below(&seed, 2),
                                               .taken_bytes = before->taken_bytes + work + kept,
                                               .fresh_bytes = before->fresh_bytes + random_below(&seed, 3) * 1000};
            high = now->high > high ? now->high : high;
            gp_forecast_feed(&forecast, now);
        }
        const struct gp_forecast_sample *last = &samples[count];
        struct gp_forecast_result is, right = {.peak_bytes = -1, .spare_bytes = -1, .seconds_to_oom = -1};
        int64_t step;
        gp_forecast_find(&forecast, &room, &is);
        right.verdict = steps_judged(samples, count, &step);
        right.headroom_bytes = room.device_free_bytes;
        right.step_bytes = right.verdict == GP_FORECAST_STEADY ? step : -1;
        if (right.verdict == GP_FORECAST_STEADY) {
            right.peak_bytes = last->last + step > high ? last->last + step : high;
            int64_t spare = right.headroom_bytes + last->last - right.peak_bytes;
            right.spare_bytes = right.headroom_bytes < 0 ? -1 : spare > 0 ? spare : 0;
            if (steps_grow(samples, count, &right))
                right.verdict = GP_FORECAST_GROWS;
        }
        seen[right.verdict]++;
        cr_assert_eq(is.verdict, right.verdict, "round %u, %u steps: %s, not %s", round, count,
                     gp_forecast_word(is.verdict), gp_forecast_word(right.verdict));
        cr_assert(is.points == count && is.seen_ns == last->time_ns - 1 && is.headroom_bytes == right.headroom_bytes);
        cr_assert(is.peak_bytes == right.peak_bytes && is.step_bytes == right.step_bytes &&
                      is.spare_bytes == right.spare_bytes,
                  "round %u: a peak of %lld, not %lld", round, (long long)is.peak_bytes, (long long)right.peak_bytes);
        cr_assert_float_eq(is.seconds_to_oom, right.seconds_to_oom, 1e-6);
        cr_assert_float_eq(is.bytes_per_second, right.bytes_per_second, 1e-6);
    }
    for (unsigned i = 0; i < 5; i++)
        cr_assert_gt(seen[i], 20, "%u of verdict %u", seen[i], i);
}

/* ---- recordings -------------------------------------------------------------------------------------------------- */

struct run {
    unsigned steps;
    int64_t weights, state, activations, keeps; /* state: from the end of the first step on; keeps: per step */
    int64_t after;                              /* allocated after the last step */
    unsigned jitter;                            /* percent: how much the activations differ */
};

static struct gp_recording *record(const struct run *run)
{
    struct recmake *make = recmake_new(16 * GIB);
    uint64_t address = 0x7f0000000000ull, at = 1000, seed = 5;
    recmake_at(make, at++ * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, (uint64_t)run->weights, 0);
    for (unsigned step = 0; step < run->steps; step++) {
        recmake_at(make, at++ * MS);
        recmake_mark(make, "step");
        int64_t bytes = run->activations;
        if (run->jitter)
            bytes += (int64_t)(random_next(&seed) % 1000) * bytes / 100000 * run->jitter;
        recmake_at(make, at++ * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, (uint64_t)bytes, 0);
        uint64_t activations = address;
        if (run->keeps) {
            recmake_at(make, at++ * MS);
            recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, (uint64_t)run->keeps, 0);
        }
        recmake_at(make, at++ * MS);
        recmake_free(make, 0, GP_KIND_LINEAR, activations);
        if (step == 0 && run->state) {
            recmake_at(make, at++ * MS);
            recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, (uint64_t)run->state, 0);
        }
    }
    recmake_at(make, at++ * MS);
    recmake_mark(make, "step");
    recmake_at(make, at++ * MS);
    if (run->after)
        recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, (uint64_t)run->after, 0);
    return recmake_done(make);
}

static struct gp_forecast_run run_of(const struct run *run)
{
    struct gp_recording *recording = record(run);
    struct gp_steps *steps = gp_steps_find(recording);
    struct gp_forecast_run *found = analysis_forecast(recording, steps, 0), copy = *found;
    cr_assert_eq(steps->source, GP_STEPS_MARKS);
    free(found);
    free(steps);
    gp_recording_free(recording);
    return copy;
}

Test(forecast_run, two_steps_tell_the_peak)
{
    struct run run = {.steps = 30, .weights = 1000 * MIB, .state = 2000 * MIB, .activations = 700 * MIB};
    struct gp_forecast_run found = run_of(&run);
    cr_assert_eq(found.peak_bytes, 3700 * MIB);
    cr_assert_eq(found.early.verdict, GP_FORECAST_STEADY, "%s", gp_forecast_word(found.early.verdict));
    cr_assert_eq(found.early.peak_bytes, 3700 * MIB);
    cr_assert_eq(found.now.verdict, GP_FORECAST_STEADY);
    cr_assert_eq(found.now.peak_bytes, 3700 * MIB);
    cr_assert_eq(found.now.step_bytes, 700 * MIB);
}

/* A server that sleeps after its requests copies its weights first. */
Test(forecast_run, what_follows_the_last_step_belongs_to_the_run)
{
    struct run run = {.steps = 30, .weights = 1000 * MIB, .activations = 700 * MIB};
    struct gp_forecast_run before = run_of(&run);
    run.after = 3000 * MIB;
    struct gp_forecast_run found = run_of(&run);
    cr_assert_eq(before.now.peak_bytes, 1700 * MIB);
    cr_assert_eq(found.now.peak_bytes, 4000 * MIB);
    cr_assert_eq(found.now.step_bytes, 700 * MIB);
    cr_assert_eq(found.now.spare_bytes, before.now.spare_bytes - 2300 * MIB);
}

Test(forecast_run, steps_that_differ_are_not_periodic)
{
    struct run run = {.steps = 30, .weights = 1000 * MIB, .activations = 700 * MIB, .jitter = 60};
    struct gp_forecast_run found = run_of(&run);
    cr_assert_eq(found.early.verdict, GP_FORECAST_APERIODIC);
    cr_assert_eq(found.early.peak_bytes, -1);
    cr_assert_eq(found.now.verdict, GP_FORECAST_APERIODIC);
}

Test(forecast_run, a_leak_grows)
{
    struct run run = {.steps = 30, .weights = 1000 * MIB, .activations = 700 * MIB, .keeps = 10 * MIB};
    struct gp_forecast_run found = run_of(&run);
    cr_assert_eq(found.now.verdict, GP_FORECAST_GROWS);
    cr_assert_float_eq(found.now.bytes_per_second, 10.0 * MIB / 0.004, 0.03 * MIB / 0.004);
    double left = 16.0 * GIB - 1300.0 * MIB;
    cr_assert_eq(found.now.headroom_bytes, 16 * GIB - 1300 * MIB);
    cr_assert_float_eq(found.now.seconds_to_oom, (left - 700.0 * MIB) / found.now.bytes_per_second, 0.1);
}

/* ---- traces of known programs ------------------------------------------------------------------------------------ */

struct truth {
    struct gp_forecast_result early, now;
    int64_t peak;
    unsigned steps;
};

/* Feeds a trace step by step, as its own marks divide it. */
static struct truth truth_of(const struct gp_replay_trace *trace)
{
    struct truth truth = {.early.peak_bytes = -1};
    struct gp_hash sizes = {0};
    struct gp_forecast forecast;
    struct gp_forecast_sample sample = {0};
    int64_t *bytes = calloc(trace->blocks + 1, sizeof(*bytes)), level = 0;
    cr_assert(bytes);
    gp_forecast_begin(&forecast, GP_FORECAST_STEPS);
    for (uint32_t i = 0; i <= trace->count; i++) {
        const struct gp_replay_op *op = &trace->ops[i];
        if (i == trace->count)
            break; /* at its end a program frees what a step does not */
        if (op->kind == GP_REPLAY_STEP) {
            sample.last = level;
            sample.time_ns = i + 1;
            gp_forecast_feed(&forecast, &sample);
            if (++truth.steps == 3)
                gp_forecast_find(&forecast, NULL, &truth.early);
            sample.low = sample.high = level;
        } else if (op->kind == GP_REPLAY_ALLOC && op->device == 0) {
            bytes[op->block] = (int64_t)((op->bytes + 511) / 512 * 512);
            level += bytes[op->block];
            sample.allocs++;
            sample.taken_bytes += bytes[op->block];
            bool added;
            uint32_t *first = gp_hash_add(&sizes, gp_hash_of_number(op->bytes), NULL, NULL, truth.steps, &added);
            sample.fresh_bytes += *first == truth.steps ? bytes[op->block] : 0;
        } else if (op->kind == GP_REPLAY_FREE && bytes[op->block]) {
            level -= bytes[op->block];
            sample.frees++;
        }
        sample.low = level < sample.low ? level : sample.low;
        sample.high = level > sample.high ? level : sample.high;
        truth.peak = level > truth.peak ? level : truth.peak;
    }
    gp_forecast_find(&forecast, NULL, &truth.now);
    free(bytes);
    gp_hash_free(&sizes);
    return truth;
}

/* After two steps: the peak of the whole run to 1 %, or "not periodic".  GPUPROF_TEST_TABLE prints
 * the rows of docs/benchmarks.md. */
Test(forecast_trace, two_steps_tell_the_peak_or_nothing)
{
    const struct gp_generator *generator;
    unsigned told = 0;
    for (unsigned g = 0; (generator = gp_generate_at(g)); g++) {
        for (uint64_t seed = 1; seed <= 5; seed++) {
            struct gp_replay_trace trace;
            struct gp_replay_problem problem;
            cr_assert_eq(gp_generate(&trace, generator, seed, 1000, &problem), 0, "%s", problem.text);
            struct truth truth = truth_of(&trace);
            bool leaks = strcmp(generator->name, "leak") == 0;
            double off = truth.early.peak_bytes < 0 ? 0 : (double)truth.early.peak_bytes / (double)truth.peak - 1;
            if (getenv("GPUPROF_TEST_TABLE"))
                fprintf(stderr, "| %s, seed %d | %s | %s | %.2f |\n", generator->name, (int)seed,
                        gp_forecast_word(truth.early.verdict), gp_forecast_word(truth.now.verdict), off * 100);
            told += truth.early.peak_bytes >= 0;
            if (leaks) /* two steps cannot tell a leak */
                cr_expect_eq(truth.now.verdict, GP_FORECAST_GROWS);
            else
                cr_expect(fabs(off) <= 0.01, "%s, seed %d: %f", generator->name, (int)seed, off);
            gp_replay_trace_free(&trace);
        }
    }
    cr_expect_geq(told, 5);
}

/* The line says what is missing, and is never cut. */
Test(forecast, lines_for_people)
{
    static const struct {
        enum gp_forecast_verdict verdict;
        const char *has;
    } cases[] = {{GP_FORECAST_SHORT, "ten seconds of a running process"},
                 {GP_FORECAST_IDLE, "nothing is allocated or freed"},
                 {GP_FORECAST_APERIODIC, "does not repeat"},
                 {GP_FORECAST_STEADY, "stay free at its peak"},
                 {GP_FORECAST_GROWS, "out of memory in about"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[GP_FORECAST_TEXT];
        struct gp_forecast_result result = {.verdict = cases[i].verdict,
                                            .peak_bytes = 1023ll << 40,
                                            .step_bytes = 1023ll << 40,
                                            .headroom_bytes = 1023ll << 40,
                                            .spare_bytes = 1023ll << 40,
                                            .bytes_per_second = 1e15,
                                            .confidence = 0.99,
                                            .seconds_to_oom = 29 * 86400.0};
        gp_forecast_line(&result, "step", line);
        cr_expect(strstr(line, cases[i].has), "%s", line);
        cr_expect_lt(strlen(line), GP_FORECAST_TEXT - 1, "%s", line);
    }
}

/* What the program frees when it ends is no room for it. */
Test(forecast_run, headroom_is_that_of_the_last_step)
{
    struct recmake *make = recmake_new(2 * GIB);
    uint64_t at = 1000;
    recmake_at(make, at * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, 500 * MIB, 0);
    for (unsigned i = 0; i <= 8; i++) {
        recmake_at(make, (at += 20) * MS);
        recmake_mark(make, "step");
        if (i == 8)
            break;
        recmake_alloc(make, 0, GP_KIND_LINEAR, 4 * GIB, 1000 * MIB, 0);
        recmake_at(make, (at += 20) * MS);
        recmake_free(make, 0, GP_KIND_LINEAR, 4 * GIB);
    }
    recmake_at(make, (at += 20) * MS);
    recmake_free(make, 0, GP_KIND_LINEAR, GIB);
    struct gp_recording *recording = recmake_done(make);
    struct gp_steps *steps = gp_steps_find(recording);
    struct gp_forecast_run *run = analysis_forecast(recording, steps, 0);
    cr_assert_eq(run->now.headroom_bytes, 2 * GIB - 500 * MIB, "%lld", (long long)run->now.headroom_bytes);
    cr_assert_eq(run->now.spare_bytes, 2 * GIB - 1500 * MIB, "%lld", (long long)run->now.spare_bytes);
    free(run);
    free(steps);
    gp_recording_free(recording);
}

/* A training that ends in the middle of its last step, by a failed request or a signal: the end of that step is no level
 * from which another one starts. */
static struct gp_forecast_run run_cut(unsigned whole, bool is_cut)
{
    struct recmake *make = recmake_new(16 * GIB);
    struct gp_steps *steps = calloc(1, sizeof(*steps) + (whole + 2) * sizeof(uint64_t));
    uint64_t at = 1000;
    cr_assert_not_null(steps);
    recmake_at(make, at * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, 1000 * MIB, 0);
    for (unsigned i = 0; i <= whole; i++) {
        steps->bounds_ns[i] = (at += 10) * MS;
        recmake_at(make, (at += 10) * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 8 * GIB, 700 * MIB, 0);
        if (i == 0) { /* the state of the optimizer */
            recmake_at(make, (at += 10) * MS);
            recmake_alloc(make, 0, GP_KIND_LINEAR, 4 * GIB, 2000 * MIB, 0);
        }
        recmake_at(make, (at += 10) * MS);
        if (i < whole || !is_cut)
            recmake_free(make, 0, GP_KIND_LINEAR, 8 * GIB);
    }
    steps->bounds_ns[whole + 1] = (at += 10) * MS;
    recmake_at(make, (at += 10) * MS);
    recmake_free(make, 0, GP_KIND_LINEAR, 4 * GIB); /* the program cleans up */
    steps->source = GP_STEPS_STACKS;
    steps->told = true;
    steps->count = whole + 1;
    steps->ended = whole;
    struct gp_recording *recording = recmake_done(make);
    struct gp_forecast_run *found = analysis_forecast(recording, steps, 0), copy = *found;
    free(found);
    free(steps);
    gp_recording_free(recording);
    return copy;
}

Test(forecast_run, a_step_that_was_cut_starts_no_other)
{
    for (unsigned whole = 1; whole < 8; whole++) {
        struct gp_forecast_run cut = run_cut(whole, true), full = run_cut(whole, false);
        cr_expect_eq(full.now.verdict, GP_FORECAST_STEADY);
        cr_expect_eq(full.now.peak_bytes, 3700 * MIB, "%u steps: %lld", whole + 1, (long long)full.now.peak_bytes);
        cr_expect_eq(full.now.spare_bytes, 16 * GIB - 3700 * MIB);
        cr_expect_eq(cut.now.points, whole);
        if (whole == 1) { /* what the first step needs once is not known */
            cr_expect_eq(cut.now.verdict, GP_FORECAST_SHORT, "%s", gp_forecast_word(cut.now.verdict));
            cr_expect_eq(cut.early.verdict, GP_FORECAST_SHORT);
            cr_expect_eq(cut.now.peak_bytes, -1);
            continue;
        }
        cr_expect_eq(cut.now.verdict, GP_FORECAST_STEADY, "%u steps: %s", whole, gp_forecast_word(cut.now.verdict));
        cr_expect_eq(cut.now.peak_bytes, 3700 * MIB, "%u steps: %lld", whole, (long long)cut.now.peak_bytes);
        cr_expect_eq(cut.now.headroom_bytes, 16 * GIB - 3000 * MIB, "%lld", (long long)cut.now.headroom_bytes);
        cr_expect_eq(cut.now.spare_bytes, 16 * GIB - 3700 * MIB);
    }
}
