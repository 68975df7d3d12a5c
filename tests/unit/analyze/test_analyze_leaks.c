/* SPDX-License-Identifier: MIT
 * test_analyze_leaks.c: what is a leak, what only looks like one, and where the steps of a program
 * start. */
#include <analyze/analyze.h>
#include <analyze/forecast.h>
#include <criterion/criterion.h>
#include <lib/analyses.h>
#include <lib/recmake.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"

static struct gp_leaks *leaks_of(struct gp_recording *recording, struct gp_steps **steps)
{
    *steps = gp_steps_find(recording);
    cr_assert(*steps);
    struct gp_leaks *leaks = gp_leaks_find(recording, *steps, 0);
    cr_assert(leaks);
    return leaks;
}

/* Over twenty seeds: the branch is the first suspect, and no other site is named.  misses: the
 * seeds in which the branch happens not to run at the end for so long that it may have stopped. */
static void expect_branch(struct training setup, enum gp_step_source source, unsigned misses)
{
    for (setup.seed = 1; setup.seed <= 20; setup.seed++) {
        uint32_t leaker;
        struct gp_steps *steps;
        struct gp_recording *recording = train(&setup, &leaker);
        struct gp_leaks *leaks = leaks_of(recording, &steps);
        cr_assert_eq(steps->source, source, "seed %d: source %d", (int)setup.seed, (int)steps->source);
        if (leaks->count == 0 && misses > 0) {
            misses--;
            free(leaks);
            free(steps);
            gp_recording_free(recording);
            continue;
        }
        cr_assert_geq(leaks->count, 1, "seed %d", (int)setup.seed);
        for (uint32_t i = 0; i < leaks->count; i++)
            cr_assert(leaks->suspects[i].site >= leaker, "seed %d: site %u (role %u) of %u, %f %f", (int)setup.seed,
                      leaks->suspects[i].site, (leaks->suspects[i].site - 1) % 8, leaks->count,
                      leaks->suspects[i].bytes_per_step, leaks->suspects[i].confidence);
        cr_assert_eq(leaks->suspects[0].site, leaker, "seed %d: site %u", (int)setup.seed, leaks->suspects[0].site);
        cr_assert(leaks->count < 2 || leaks->suspects[1].site == leaker + 1);
        cr_assert_gt(leaks->suspects[0].bytes_per_step, 20.0 * MIB);
        cr_assert_lt(leaks->suspects[0].bytes_per_step, 115.0 * MIB);
        cr_assert_gt(leaks->suspects[0].confidence, 0.5);
        cr_assert_gt(leaks->suspects[0].seconds_to_oom, 0);
        free(leaks);
        free(steps);
        gp_recording_free(recording);
    }
}

Test(leaks, names_the_branch_that_keeps_its_outputs_first)
{
    expect_branch((struct training){.steps = 20, .marks = true, .leak = true, .noise = true, .stacks = true},
                  GP_STEPS_MARKS, 0);
    expect_branch((struct training){.steps = 12, .marks = true, .leak = true, .noise = false, .stacks = true},
                  GP_STEPS_MARKS, 2);
}

Test(leaks, names_it_without_marks_too)
{
    expect_branch((struct training){.steps = 20, .leak = true, .noise = true, .stacks = true}, GP_STEPS_PERIOD, 0);
}

/* A case reported to Paddle: MB at the end of each step of a program that should have stayed at
 * 825. */
Test(leaks, finds_the_reported_case)
{
    static const int64_t held[] = {825, 1021, 1125, 1229, 1698, 1920, 2059, 2492};
    struct recmake *make = recmake_new(16 * GIB);
    uint32_t sites[300], keeps = site(make, "inner_branch", 77);
    uint64_t address = 0x7f0000000000ull, at = 1000;
    for (unsigned i = 0; i < 300; i++)
        sites[i] = site(make, "op", i);
    recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, 825 * 1000000, sites[0]);
    for (unsigned step = 0; step < 8; step++) {
        recmake_at(make, at * MS);
        char name[32];
        snprintf(name, sizeof(name), "step %u", step);
        recmake_mark(make, name);
        for (unsigned i = 0; i < 300; i++) {
            recmake_at(make, at++ * MS);
            recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, 1000000 + i * 7000, sites[i]);
            recmake_free(make, 0, GP_KIND_LINEAR, address);
        }
        if (step > 0)
            recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, (uint64_t)(held[step] - held[step - 1]) * 1000000,
                          keeps);
    }
    recmake_at(make, at * MS);
    recmake_mark(make, "step 8");
    struct gp_recording *recording = recmake_done(make);
    struct gp_steps *steps;
    struct gp_leaks *leaks = leaks_of(recording, &steps);
    cr_assert_eq(steps->count, 8);
    cr_assert_eq(leaks->count, 1);
    cr_assert_eq(leaks->suspects[0].site, keeps);
    cr_assert_eq(leaks->suspects[0].live_bytes, 1667 * 1000000ll);
    cr_assert_eq(leaks->suspects[0].live_count, 7);
    /* Kept after the warm-up step: 0 196 300 404 873 1095 1234 1667.  The 28 slopes of its pairs,
     * sorted: the middle two are 224.75 and 225.67. */
    cr_assert_float_eq(leaks->suspects[0].bytes_per_step, 225.208333e6, 1);
    /* 8 steps of 300 ms; 16 GiB less 825 + 1667 MB are left. */
    double left = 16.0 * GIB - 2492e6, per_second = leaks->suspects[0].bytes_per_step / 0.3;
    cr_assert_float_eq(leaks->suspects[0].seconds_to_oom, left / per_second, 0.01 * left / per_second);
    free(leaks);
    free(steps);
    gp_recording_free(recording);
}

static void expect_none(struct training setup, unsigned seeds)
{
    for (setup.seed = 1; setup.seed <= seeds; setup.seed++) {
        uint32_t leaker;
        struct gp_steps *steps;
        struct gp_recording *recording = train(&setup, &leaker);
        struct gp_leaks *leaks = leaks_of(recording, &steps);
        cr_assert_eq(leaks->count, 0, "seed %d: site %u, confidence %f", (int)setup.seed, leaks->suspects[0].site,
                     leaks->suspects[0].confidence);
        cr_assert_str_not_empty(leaks->why);
        free(leaks);
        free(steps);
        gp_recording_free(recording);
    }
}

Test(leaks, suspects_no_site_in_a_program_that_keeps_nothing)
{
    expect_none((struct training){.steps = 20, .marks = true, .noise = true, .stacks = true}, 30);
    expect_none((struct training){.steps = 20, .marks = true, .noise = false, .stacks = true}, 5);
    expect_none((struct training){.steps = 50, .marks = true, .noise = true, .stacks = true}, 10);
    expect_none((struct training){.steps = 20, .noise = true, .stacks = true}, 10);
    expect_none((struct training){.steps = 20, .marks = true, .noise = true}, 10);
}

Test(leaks, needs_four_steps_and_says_so)
{
    for (unsigned n = 2; n <= 5; n++) {
        uint32_t leaker;
        struct gp_recording *recording =
            train(&(struct training){.steps = n, .marks = true, .leak = true, .stacks = true, .seed = 3}, &leaker);
        uint64_t bounds[8] = {0};
        struct gp_steps *steps = calloc(1, sizeof(*steps) + sizeof(bounds));
        for (size_t i = 0; i < recording->event_count; i++) {
            if (recording->events[i].type == GP_EVENT_MARK)
                steps->bounds_ns[steps->count++] = recording->events[i].time_ns;
        }
        steps->count--;
        struct gp_leaks *leaks = gp_leaks_find(recording, steps, 0);
        cr_assert_eq(steps->count, n);
        cr_assert(n >= 4 || (leaks->count == 0 && strstr(leaks->why, "4 steps")), "%u: %s", n, leaks->why);
        free(leaks);
        free(steps);
        gp_recording_free(recording);
    }
}

Test(leaks, young_blocks_do_not_count_if_only_old_ones_are_wanted)
{
    struct recmake *make = recmake_new(16 * GIB);
    uint32_t keeps = site(make, "keeps", 1), works = site(make, "works", 2);
    for (unsigned step = 0; step <= 10; step++) {
        recmake_at(make, (1000 + step * 1000) * MS);
        recmake_mark(make, "step");
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x100000 + step * 0x1000, 512, works);
        recmake_free(make, 0, GP_KIND_LINEAR, 0x100000 + step * 0x1000);
        if (step < 10)
            recmake_alloc(make, 0, GP_KIND_LINEAR, 0x900000 + step * 0x1000, 4096, keeps);
    }
    struct gp_recording *recording = recmake_done(make);
    struct gp_steps *steps = gp_steps_find(recording);
    struct gp_leaks *leaks = gp_leaks_find(recording, steps, 0);
    cr_assert_eq(leaks->count, 1);
    cr_assert_eq(leaks->suspects[0].live_bytes, 40960);
    cr_assert_float_eq(leaks->suspects[0].bytes_per_step, 4096, 1);
    cr_assert_eq(leaks->suspects[0].oldest_ns, 10000 * MS);
    free(leaks);
    leaks = gp_leaks_find(recording, steps, 20000 * MS); /* no block is that old */
    cr_assert_eq(leaks->count, 0);
    free(leaks);
    free(steps);
    gp_recording_free(recording);
}

/* A loader only allocates.  Its loop is not a step, and its growth is not known to be a leak. */
Test(leaks, a_program_that_loads_is_not_suspected)
{
    struct recmake *make = recmake_new(16 * GIB);
    uint32_t loads = site(make, "load", 1);
    for (unsigned i = 0; i < 300; i++) {
        recmake_at(make, (1000 + i) * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, (i + 1) * 0x1000000ull, MIB, loads);
    }
    struct gp_recording *recording = recmake_done(make);
    struct gp_steps *steps;
    struct gp_leaks *leaks = leaks_of(recording, &steps);
    cr_assert_eq(steps->source, GP_STEPS_TIME);
    cr_assert_eq(leaks->count, 0);
    cr_assert(strstr(leaks->why, "cannot be known"));
    free(leaks);
    free(steps);
    gp_recording_free(recording);
}

/* ---- layers and steps -------------------------------------------------------------------------------------------- */

/* net: the function by which main calls the net; NULL: there is none. */
static uint32_t net_site(struct recmake *make, const char *net, unsigned layer)
{
    struct recmake_frame inside[] = {{"Layer.run", "net.py", 10 + layer},
                                     {net, "/usr/lib/torch/nn/modules/module.py", 1750},
                                     {"Net.run", "net.py", 40},
                                     {net, "/usr/lib/torch/nn/modules/module.py", 1750},
                                     {"main", "train.py", 7},
                                     {NULL, NULL, 0}};
    struct recmake_frame outside[] = {
        {"layer", "net.py", 10 + layer}, {"run_net", "net.py", 40}, {"main", "train.py", 7}, {NULL, NULL, 0}};
    return recmake_site(make, GP_KIND_LINEAR, net ? inside : outside);
}

/* `calls` times: with `batch` a block in main(), then 24 layers, each of which keeps two blocks of three, the third of `used`.
 * beside: another thread allocates as main() does, between any two layers. */
static struct gp_recording *passes_by(unsigned calls, const char *net, bool batch, const char *mark, uint64_t used,
                                      bool beside)
{
    struct recmake *make = recmake_new(16 * GIB);
    uint32_t loads = site(make, "batch", 6), sites[3];
    uint64_t at = 1000, address = 0x7f0000000000ull;
    for (unsigned i = 0; i < 3; i++)
        sites[i] = net_site(make, net, i);
    for (unsigned call = 0; call < calls; call++) {
        recmake_at(make, at++ * MS);
        if (batch)
            recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, MIB, loads);
        if (batch)
            recmake_free(make, 0, GP_KIND_LINEAR, address);
        for (unsigned layer = 0; layer < 24; layer++) {
            recmake_at(make, at++ * MS);
            if (mark)
                recmake_mark(make, mark);
            for (unsigned i = 0; i < 3; i++)
                recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, i < 2 ? MIB : used, sites[i]);
            recmake_free(make, 0, GP_KIND_LINEAR, address);
            struct gp_rec_event loader = {.time_ns = at * MS,
                                          .type = GP_EVENT_ALLOC,
                                          .kind = GP_KIND_LINEAR,
                                          .thread = 1,
                                          .address = GIB / 2,
                                          .bytes = MIB,
                                          .site = loads};
            if (beside)
                recmake_event(make, &loader);
            if (beside)
                recmake_free(make, 0, GP_KIND_LINEAR, GIB / 2);
        }
    }
    recmake_at(make, at * MS);
    return recmake_done(make);
}

static struct gp_recording *passes_of(unsigned calls, bool net, bool batch, const char *mark, uint64_t used)
{
    return passes_by(calls, net ? "Module._call_impl" : NULL, batch, mark, used, false);
}

static struct gp_recording *passes(unsigned calls, bool net, bool batch, const char *mark)
{
    return passes_of(calls, net, batch, mark, MIB);
}

static void expect_passes(struct gp_recording *recording, uint32_t steps_least, uint32_t steps_most, bool suspects)
{
    struct gp_steps *steps;
    struct gp_leaks *leaks = leaks_of(recording, &steps);
    cr_expect(steps->count >= steps_least && steps->count <= steps_most, "%u steps of \"%s\"", steps->count,
              steps->name);
    cr_expect_eq(leaks->count > 0, suspects, "%u suspects in %u steps: %s", leaks->count, steps->count, leaks->why);
    cr_expect(suspects || strstr(leaks->why, "cannot be known"), "%s", leaks->why);
    struct gp_forecast_run *run = analysis_forecast(recording, steps, 0);
    cr_expect(suspects || run->now.verdict == GP_FORECAST_APERIODIC, "verdict %d", (int)run->now.verdict);
    free(run);
    free(leaks);
    free(steps);
    gp_recording_free(recording);
}

Test(leaks, the_layers_of_one_forward_pass_are_no_steps)
{
    expect_passes(passes(1, true, true, NULL), 22, 24, false);
    expect_passes(passes(1, false, true, NULL), 22, 24, false);
    expect_passes(passes(1, false, true, "nvtx:layer"), 23, 23, false);
    expect_passes(passes(1, false, true, "layer"), 23, 23, false);
    expect_passes(passes_of(1, true, true, NULL, 30 * MIB), 22, 24,
                  false); /* each computes its activations again later */
    expect_passes(passes_by(1, "Module._call_impl", true, NULL, MIB, true), 20, 72, false);
}

/* The program allocates outside the net before each call: it is in a loop around the net. */
Test(leaks, calls_of_a_net_that_keep_all_are_steps)
{
    expect_passes(passes(12, true, true, NULL), 12, 12, true);
    expect_passes(passes(5, true, true, NULL), 5, 5, true);
    expect_passes(passes_by(5, "Net.forward", true, NULL, MIB, false), 5, 5, true);
    expect_passes(passes_by(5, "_wrapped_call_impl", true, NULL, MIB, false), 5, 5, true);
    expect_passes(passes_by(5, "Module._call_impl", true, NULL, MIB, true), 5, 5, true);
    /* Without a net, or without anything between its calls, it may be one long forward pass. */
    expect_passes(passes(12, false, true, NULL), 20, 300, false);
    expect_passes(passes(12, true, false, NULL), 20, 300, false);
    expect_passes(passes_of(12, false, true, NULL, 30 * MIB), 20, 300, true); /* a step that returns */
}

Test(leaks, a_name_that_tells_of_steps_is_enough)
{
    expect_passes(passes(1, false, true, "step"), 23, 23, true);
}

/* ---- curves ----------------------------------------------------------------------------------------------------- */

#define VERDICT(_verdict, ...)                                                                                         \
    do {                                                                                                               \
        const int64_t values[] = {__VA_ARGS__};                                                                        \
        struct gp_trend trend;                                                                                         \
        bool grows = gp_trend_find(values, sizeof(values) / sizeof(values[0]), &trend);                                \
        cr_assert_eq(trend.verdict, (_verdict), "%d", (int)trend.verdict);                                             \
        cr_assert_eq(grows, (_verdict) == GP_TREND_GROWS);                                                             \
    } while (0)

Test(trend, distinguishes_growth_from_curves_that_look_like_it)
{
    VERDICT(GP_TREND_SHORT, 1, 2, 3);
    VERDICT(GP_TREND_GROWS, 1, 2, 3, 4);
    VERDICT(GP_TREND_RARE, 1, 1, 2, 3);
    VERDICT(GP_TREND_RARE, 5, 5, 5, 5, 5, 5);
    VERDICT(GP_TREND_RARE, 1, 2, 1, 2, 1, 2, 1, 2, 3);
    VERDICT(GP_TREND_FALLS, 0, 10, 20, 30, 40, 10, 20, 30);
    VERDICT(GP_TREND_STOPPED, 0, 10, 20, 30, 40, 50, 50, 50, 50, 50, 50, 50);
    VERDICT(GP_TREND_FLATTENS, 0, 512, 768, 896, 960, 992, 1008, 1016, 1020, 1022);
    VERDICT(GP_TREND_GROWS, 0, 0, 10, 10, 10, 20, 20, 30, 30, 30, 40, 40); /* a branch that runs in some steps */
    VERDICT(GP_TREND_GROWS, 0, 10, 20, 18, 30, 40, 50, 60);
}

Test(trend, slope_is_the_median_of_all_pairs)
{
    const int64_t values[] = {0, 10, 20, 30, 40, 1000};
    struct gp_trend trend;
    cr_assert(gp_trend_find(values, 6, &trend));
    cr_assert_float_eq(trend.slope, 10, 1e-9); /* one outlier, in five slopes, does not move the median */
    const int64_t line[] = {5, 12, 19, 26, 33, 40, 47};
    cr_assert(gp_trend_find(line, 7, &trend));
    cr_assert_float_eq(trend.slope, 7, 1e-9);
    cr_assert_float_eq(trend.confidence, 1 - 1.0 / 64, 1e-9); /* six rises of six */
}

/* Growth with a chance of one half per step: nine of ten are found in twenty steps.  The others
 * happen not to grow at the end, and look like a cache that is full. */
Test(trend, finds_occasional_growth)
{
    uint64_t seed = 5;
    unsigned found = 0;
    for (unsigned round = 0; round < 2000; round++) {
        int64_t values[19], at = 0;
        struct gp_trend trend;
        for (unsigned i = 0; i < 19; i++)
            values[i] = at += random_next(&seed) % 2 ? 90 + (int64_t)(random_next(&seed) % 20) : 0;
        found += gp_trend_find(values, 19, &trend);
    }
    cr_assert_gt(found, 1800, "%u of 2000", found);
}

/* Half of all random walks end higher than they start. */
Test(trend, rarely_takes_chance_for_growth)
{
    uint64_t seed = 99;
    unsigned wrong = 0;
    for (unsigned round = 0; round < 2000; round++) {
        int64_t values[20], at = 1000;
        struct gp_trend trend;
        for (unsigned i = 0; i < 20; i++)
            values[i] = at += (int64_t)(random_next(&seed) % 201) - 100;
        wrong += gp_trend_find(values, 20, &trend);
    }
    cr_assert_lt(wrong, 40, "%u of 2000", wrong); /* 2 % */
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

static void work(struct recmake *make, uint64_t *at, uint32_t where, unsigned blocks)
{
    for (unsigned i = 0; i < blocks; i++) {
        recmake_at(make, (*at)++ * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000 * (i + 1), 4096, where);
        recmake_free(make, 0, GP_KIND_LINEAR, 0x1000 * (i + 1));
    }
}

Test(steps, are_the_marks_that_repeat_evenly)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t where = site(make, "f", 1);
    uint64_t at = 1000;
    for (unsigned step = 0; step < 30; step++) {
        char name[32];
        recmake_at(make, at * MS);
        snprintf(name, sizeof(name), "step %u", step);
        recmake_mark(make, name);
        recmake_mark(make, "/nvtx:something");
        for (unsigned layer = 0; layer < 12; layer++) {
            recmake_at(make, at * MS);
            recmake_mark(make, "layer");
            work(make, &at, where, 5);
        }
        work(make, &at, where, step == 0 ? 900 : 70); /* the first compiles */
        if (step % 10 == 9) {
            recmake_at(make, at * MS);
            recmake_mark(make, "epoch");
        }
    }
    struct gp_recording *recording = recmake_done(make);
    struct gp_steps *steps = gp_steps_find(recording);
    cr_assert_eq(steps->source, GP_STEPS_MARKS);
    cr_assert_str_eq(steps->name, "step");
    cr_assert_eq(steps->count, 29);
    cr_assert_eq(steps->bounds_ns[0], 1000 * MS);
    free(steps);
    gp_recording_free(recording);
}

Test(steps, are_nvtx_ranges_if_there_are_no_marks)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t where = site(make, "f", 1);
    uint64_t at = 1000;
    for (unsigned step = 0; step < 10; step++) {
        recmake_at(make, at * MS);
        recmake_mark(make, "nvtx:iteration");
        recmake_mark(make, "nvtx.point");
        work(make, &at, where, 5);
        recmake_mark(make, "/nvtx:iteration");
    }
    struct gp_recording *recording = recmake_done(make);
    struct gp_steps *steps = gp_steps_find(recording);
    cr_assert_eq(steps->source, GP_STEPS_NVTX);
    cr_assert_str_eq(steps->name, "iteration");
    cr_assert_eq(steps->count, 9);
    free(steps);
    gp_recording_free(recording);
}

Test(steps, are_stretches_of_time_if_nothing_repeats)
{
    struct recmake *make = recmake_new(GIB);
    struct gp_recording *recording;
    for (unsigned i = 0; i < 40; i++) {
        uint32_t where = site(make, "once", i);
        recmake_at(make, (1000 + i) * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000 * (i + 1), 64, where);
    }
    recording = recmake_done(make);
    struct gp_steps *steps = gp_steps_find(recording);
    cr_assert_eq(steps->source, GP_STEPS_TIME);
    cr_assert_eq(steps->count, 20);
    cr_assert_eq(steps->bounds_ns[0], recording->begin_ns);
    cr_assert_eq(steps->bounds_ns[20], recording->end_ns);
    free(steps);
    gp_recording_free(recording);
    recording = recmake_done(recmake_new(GIB)); /* no event at all */
    steps = gp_steps_find(recording);
    cr_assert_eq(steps->source, GP_STEPS_TIME);
    struct gp_leaks *leaks = gp_leaks_find(recording, steps, 0);
    cr_assert_eq(leaks->count, 0);
    free(leaks);
    free(steps);
    gp_recording_free(recording);
}

Test(steps, follow_the_program_s_own_period)
{
    for (unsigned layers = 1; layers <= 24; layers += 23) {
        struct recmake *make = recmake_new(GIB);
        uint32_t embed = site(make, "embed", 1), layer = site(make, "layer", 2), back = site(make, "backward", 3);
        uint64_t at = 1000;
        for (unsigned step = 0; step < 40; step++) {
            work(make, &at, embed, 1);
            for (unsigned i = 0; i < layers; i++)
                work(make, &at, layer, 1);
            work(make, &at, back, layers * 2);
        }
        struct gp_recording *recording = recmake_done(make);
        struct gp_steps *steps = gp_steps_find(recording);
        cr_assert_eq(steps->source, GP_STEPS_PERIOD);
        cr_assert_eq(steps->count, 39, "%u", steps->count);
        cr_assert_str_eq(steps->name, "embed");
        free(steps);
        gp_recording_free(recording);
    }
}

/* What a poll found of pools counts for the device that it is of: each of two devices has 16 GiB, of which pools hold 8
 * in the first and 4 in the second.  If NVML says that more is used, by others too, that counts: 11 and 9 GiB; if its
 * last number is 0, the older ones do not. */
Test(leaks, polled_memory_shortens_the_time_of_its_device)
{
    for (uint32_t turn = 0; turn < 6; turn++) {
        uint32_t device = turn % 2;
        bool nvml = turn == 2 || turn == 3, none = turn >= 4;
        struct recmake *make = recmake_new(16 * GIB);
        uint32_t second = recmake_device(make, 1, 16 * GIB), keeps = site(make, "keeps", 1);
        uint64_t address = GIB;
        cr_assert_eq(second, 1);
        for (uint32_t i = 0; i < 2; i++)
            recmake_alloc(make, i, GP_KIND_POOL, address += GIB, MIB, 0);
        for (unsigned step = 0; step < 20; step++) {
            recmake_at(make, (1000 + step * 100) * MS);
            recmake_mark(make, "step");
            for (uint32_t i = 0; i < 2; i++) {
                int64_t held = i == device ? 8ll * MIB * step : 0;
                struct gp_rec_sample sample = {.time_ns = (1000 + step * 100) * MS,
                                               .device = i,
                                               .allocated_bytes = held + MIB,
                                               .reserved_bytes = held + (i ? 4 : 8) * GIB,
                                               .active_bytes = -1,
                                               .inactive_split_bytes = -1,
                                               .used_bytes = none && step >= 10 ? 0
                                                             : !nvml && !none   ? -1
                                                                                : (i ? 9 : 11) * GIB,
                                               .process_bytes = -1};
                recmake_sample(make, &sample);
            }
            recmake_alloc(make, device, GP_KIND_LINEAR, address += GIB, 8 * MIB, keeps);
        }
        struct gp_recording *recording = recmake_done(make);
        struct gp_steps *steps;
        struct gp_leaks *leaks = leaks_of(recording, &steps);
        cr_assert_eq(leaks->count, 1);
        cr_assert_eq(leaks->suspects[0].device, device);
        double left = nvml ? (device ? 7.0 : 5.0) * GIB : (device ? 12.0 : 8.0) * GIB - 160.0 * MIB;
        double per_second = 80.0 * MIB;
        cr_expect_float_eq(leaks->suspects[0].seconds_to_oom, left / per_second, 0.02 * left / per_second,
                           "device %u: %f, not %f", device, leaks->suspects[0].seconds_to_oom, left / per_second);
        free(leaks);
        free(steps);
        gp_recording_free(recording);
    }
}

/* Four steps are enough to look for leaks, three are not. */
Test(leaks, need_four_steps)
{
    for (unsigned marks = 3; marks <= 6; marks++) {
        struct recmake *make = recmake_new(16 * GIB);
        for (unsigned i = 0; i < marks; i++) {
            recmake_at(make, (1000 + i * 100) * MS);
            recmake_mark(make, "turn");
        }
        struct gp_recording *recording = recmake_done(make);
        struct gp_steps *steps;
        cr_assert_eq(gp_steps_choose(recording, "turn", &steps), 0);
        struct gp_leaks *leaks = gp_leaks_find(recording, steps, 0);
        cr_expect_eq(strstr(leaks->why, "fewer than 4 steps") != NULL, marks < 5, "%u marks: %s", marks, leaks->why);
        free(leaks);
        free(steps);
        gp_recording_free(recording);
    }
}
