/* SPDX-License-Identifier: MIT
 * test_uses.c: what memory is used for, in programs whose uses are known to the byte. */
#include <analyze/flow.h>
#include <analyze/report.h>

#include <criterion/criterion.h>
#include <lib/analyses.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"

#define WEIGHTS 12u
#define STEPS   20u

static struct gp_use_table *find_of(const struct gp_recording *r, const uint8_t *hints, bool suspects)
{
    struct gp_flow *flow = gp_flow_new(r);
    struct gp_steps *steps = gp_steps_find(r);
    struct gp_leaks *leaks = gp_flow_leaks(flow, steps, 0);
    struct gp_use_table *uses = gp_uses_find(flow, steps, suspects ? leaks : NULL, hints, 0);
    cr_assert(uses);
    free(leaks);
    free(steps);
    gp_flow_free(flow);
    for (unsigned i = 0; i < GP_USE_RULES; i++) {
        if (uses->rows[i].count)
            cr_log_info("%s %lld %s", gp_use_name(uses->rows[i].use), (long long)uses->rows[i].peak_bytes,
                        uses->rows[i].reason);
    }
    return uses;
}

static struct gp_use_table *find(const struct gp_recording *r, const uint8_t *hints)
{
    return find_of(r, hints, true);
}

/* The most bytes of a use, over all rules. */
static int64_t most(const struct gp_use_table *uses, enum gp_use use)
{
    int64_t sum = 0;
    for (unsigned i = 0; i < GP_USE_RULES; i++)
        sum += uses->rows[i].count && uses->rows[i].use == use ? uses->rows[i].peak_bytes : 0;
    return sum;
}

static uint64_t weight_bytes(unsigned i)
{
    return (uint64_t)(2 + i % 5) * MIB + i / 5 * 65536;
}

/* A training program on one thread. kept: gradients stay; else each step frees them at its start.  The first weights are
 * frozen: they have no gradients and no states, and outputs of their size. */
static struct gp_recording *adam(bool kept, uint32_t optimizer, unsigned frozen)
{
    struct recmake *make = recmake_new(16 * GIB);
    uint64_t address = 0x7f0000000000ull, gradients[WEIGHTS] = {0}, at = 1001;
    uint32_t places[4];
    for (unsigned i = 0; i < 4; i++)
        places[i] = site(make, "work", i);
    cr_assert_lt(optimizer, 4);
    for (unsigned i = 0; i < WEIGHTS; i++)
        recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, weight_bytes(i), places[0]);
    for (unsigned step = 0; step < STEPS; step++) {
        uint64_t outputs[WEIGHTS];
        recmake_at(make, at++ * MS);
        recmake_mark(make, "step");
        for (unsigned i = frozen; i < WEIGHTS && step && !kept; i++)
            recmake_free(make, 0, GP_KIND_LINEAR, gradients[i]);
        for (unsigned i = 0; i < WEIGHTS; i++) {
            recmake_at(make, at++ * MS);
            uint64_t bytes = i < frozen ? weight_bytes(i) : 7ull * MIB + i;
            recmake_alloc(make, 0, GP_KIND_LINEAR, outputs[i] = address += GIB, bytes, places[1]);
        }
        for (unsigned i = WEIGHTS; i-- > 0;) {
            recmake_at(make, at++ * MS);
            if (i >= frozen && (!kept || !step))
                recmake_alloc(make, 0, GP_KIND_LINEAR, gradients[i] = address += GIB, weight_bytes(i), places[2]);
            recmake_free(make, 0, GP_KIND_LINEAR, outputs[i]);
        }
        for (unsigned i = 2 * frozen; i < 2 * WEIGHTS && !step; i++)
            recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, weight_bytes(i / 2), places[optimizer]);
    }
    recmake_at(make, at * MS);
    recmake_mark(make, "step");
    return recmake_done(make);
}

static int64_t weights(void)
{
    int64_t sum = 0;
    for (unsigned i = 0; i < WEIGHTS; i++)
        sum += (int64_t)weight_bytes(i);
    return sum;
}

Test(uses, of_a_training_are_exact)
{
    struct gp_recording *r = adam(false, 3, 0);
    struct gp_use_table *uses = find(r, NULL);
    cr_expect(uses->trains);
    cr_expect_eq(most(uses, GP_USE_WEIGHTS), weights());
    cr_expect_eq(most(uses, GP_USE_GRADIENTS), weights());
    cr_expect_eq(most(uses, GP_USE_OPTIMIZER), 2 * weights());
    cr_expect_eq(most(uses, GP_USE_ACTIVATIONS), (int64_t)(WEIGHTS * 7 * MIB + WEIGHTS * (WEIGHTS - 1) / 2));
    cr_expect_eq(most(uses, GP_USE_UNKNOWN), 0);
    gp_uses_free(uses);
    gp_recording_free(r);
}

/* Of weights that are not trained there are as many as without a training. */
Test(uses, of_frozen_weights_are_weights)
{
    struct gp_recording *r = adam(false, 3, 2);
    struct gp_use_table *uses = find(r, NULL);
    int64_t trained = weights() - (int64_t)(weight_bytes(0) + weight_bytes(1));
    cr_expect(uses->trains);
    cr_expect_eq(most(uses, GP_USE_WEIGHTS), weights());
    cr_expect_eq(most(uses, GP_USE_GRADIENTS), trained);
    cr_expect_eq(most(uses, GP_USE_OPTIMIZER), 2 * trained);
    gp_uses_free(uses);
    gp_recording_free(r);
}

/* Kept gradients and states have the same life and the same sizes: names alone tell them apart. */
Test(uses, that_look_alike_are_unknown_without_a_name)
{
    struct gp_recording *r = adam(true, 3, 0);
    struct gp_use_table *uses = find(r, NULL);
    cr_expect_not(uses->trains);
    cr_expect_eq(most(uses, GP_USE_GRADIENTS), 0);
    cr_expect_eq(most(uses, GP_USE_OPTIMIZER), 0);
    cr_expect_eq(most(uses, GP_USE_UNKNOWN), 3 * weights());
    gp_uses_free(uses);
    uint8_t hints[8] = {0};
    cr_assert_leq(r->site_count, 8);
    hints[4] = GP_HINT_OPTIMIZER;
    uses = find(r, hints);
    cr_expect_eq(most(uses, GP_USE_OPTIMIZER), 2 * weights());
    cr_expect_eq(most(uses, GP_USE_UNKNOWN), weights());
    gp_uses_free(uses);
    gp_recording_free(r);
}

/* What a library or another use asked for at the start is no weight that gradients could match. */
Test(uses, of_weights_have_no_other_name)
{
    struct gp_recording *r = adam(false, 3, 0);
    cr_assert_leq(r->site_count, 8);
    for (uint8_t hint = GP_HINT_NONE; hint < GP_HINT_BACKWARD; hint++) {
        uint8_t hints[8] = {0, hint};
        struct gp_use_table *uses = find(r, hints);
        bool weight = hint == GP_HINT_NONE || hint == GP_HINT_WEIGHTS || hint == GP_HINT_FORWARD;
        cr_expect_eq(uses->trains, weight, "hint %u", hint);
        cr_expect_eq(most(uses, GP_USE_WEIGHTS), weight ? weights() : 0, "hint %u", hint);
        gp_uses_free(uses);
    }
    gp_recording_free(r);
}

/* Each step another thread makes blocks of the sizes of the first weights, and one of another size, while the first
 * thread waits. */
static struct gp_recording *worker(unsigned count, int64_t scratch)
{
    struct recmake *make = recmake_new(16 * GIB);
    uint64_t address = 0x7f0000000000ull, at = 1001;
    for (unsigned i = 0; i < WEIGHTS; i++)
        recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, weight_bytes(i), 0);
    for (unsigned step = 0; step < STEPS; step++) {
        recmake_at(make, at++ * MS);
        recmake_mark(make, "step");
        recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, 64 * MIB, 0);
        for (unsigned i = 0; i <= count; i++)
            recmake_event(make, &(struct gp_rec_event){.time_ns = at * MS,
                                                       .address = (2 + i) * GIB,
                                                       .bytes = i < count ? weight_bytes(i) : (uint64_t)scratch,
                                                       .type = GP_EVENT_ALLOC,
                                                       .kind = GP_KIND_LINEAR,
                                                       .thread = 1});
        recmake_at(make, at++ * MS);
        for (unsigned i = 0; i <= count + 1; i++)
            recmake_free(make, 0, GP_KIND_LINEAR, (1 + i) * GIB);
    }
    recmake_at(make, at * MS);
    recmake_mark(make, "step");
    return recmake_done(make);
}

/* After a backward pass its thread holds little else than gradients, and the main thread frees them.  Any thread has blocks
 * of a weight's size by chance. */
Test(uses, of_gradients_are_most_of_what_their_thread_holds)
{
    const struct {
        const char *what;
        unsigned count;
        int64_t scratch;
        bool trains;
    } rows[] = {{"all, and a fifth beside", WEIGHTS, weights() / 5, true},
                {"all, and more than a quarter", WEIGHTS, weights() / 3, false},
                {"some, and less of others", 3, 8 * MIB, true},
                {"some, and more of others", 3, 10 * MIB, false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gp_recording *r = worker(rows[i].count, rows[i].scratch);
        struct gp_use_table *uses = find(r, NULL);
        cr_expect_eq(uses->trains, rows[i].trains, "%s", rows[i].what);
        cr_expect_eq(most(uses, GP_USE_GRADIENTS) != 0, rows[i].trains, "%s", rows[i].what);
        gp_uses_free(uses);
        gp_recording_free(r);
    }
}

/* concat: a cache is one block, replaced by a larger one; else each step adds a block. */
static struct gp_recording *serve(bool concat, unsigned end)
{
    struct recmake *make = recmake_new(16 * GIB);
    uint64_t address = 0x7f0000000000ull, at = 1001, caches[400] = {0};
    uint32_t places[4];
    for (unsigned i = 0; i < 4; i++)
        places[i] = site(make, "work", i);
    for (unsigned i = 0; i < WEIGHTS; i++)
        recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, weight_bytes(i), places[0]);
    for (unsigned step = 0; step < 40; step++) {
        recmake_at(make, at++ * MS);
        recmake_mark(make, "step");
        for (unsigned i = 0; i < 8; i++) {
            uint64_t output = address += GIB, *cache = &caches[concat ? i : step * 8 + i];
            recmake_at(make, at++ * MS);
            recmake_alloc(make, 0, GP_KIND_LINEAR, output, 3 * MIB + i, places[1]);
            recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, concat ? (step + 9) * 4096 : 8192, places[2]);
            if (concat && step)
                recmake_free(make, 0, GP_KIND_LINEAR, *cache);
            *cache = address;
            recmake_free(make, 0, GP_KIND_LINEAR, output);
        }
        for (unsigned i = 0; !concat && i < 80 && step % 10 == 9 && step < end; i++)
            recmake_free(make, 0, GP_KIND_LINEAR, caches[(step - 9) * 8 + i]);
    }
    recmake_at(make, at * MS);
    recmake_mark(make, "step");
    return recmake_done(make);
}

Test(uses, of_growing_caches)
{
    static const struct {
        bool concat, suspects;
        unsigned end;
        enum gp_use use;
        int64_t least;
        double sure;
    } cases[] = {{true, false, 0, GP_USE_KV_CACHE, 8 * 48 * 4096, 0.7},
                 {false, true, 30, GP_USE_KV_CACHE, 80 * 8192, 0.6},
                 /* Without an end a leak looks the same. */
                 {true, true, 0, GP_USE_GROWS, 8 * 48 * 4096, 0},
                 {false, true, 0, GP_USE_GROWS, 320 * 8192, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gp_recording *r = serve(cases[i].concat, cases[i].end);
        struct gp_use_table *uses = find_of(r, NULL, cases[i].suspects);
        cr_expect_eq(most(uses, GP_USE_WEIGHTS), weights(), "case %zu", i);
        cr_expect_geq(most(uses, cases[i].use), cases[i].least, "case %zu: %lld", i,
                      (long long)most(uses, cases[i].use));
        cr_expect(cases[i].use == GP_USE_KV_CACHE || most(uses, GP_USE_KV_CACHE) == 0, "case %zu", i);
        cr_expect_float_eq(gp_use_sure(uses, cases[i].use), cases[i].sure, 1e-9, "case %zu", i);
        gp_uses_free(uses);
        gp_recording_free(r);
    }
}

/* In `takes` of its steps a program takes blocks, which go together. */
static struct gp_recording *request(unsigned steps, unsigned takes, unsigned each)
{
    struct recmake *make = recmake_new(16 * GIB);
    uint32_t places[4];
    for (unsigned i = 0; i < 4; i++)
        places[i] = site(make, "work", i);
    recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, 4 * MIB, places[0]);
    for (unsigned step = 0; step <= steps; step++) {
        recmake_at(make, (1001 + 2 * step) * MS);
        recmake_mark(make, "step");
        recmake_at(make, (1002 + 2 * step) * MS);
        for (unsigned i = 0; step && step <= takes && i < each; i++)
            recmake_alloc(make, 0, GP_KIND_LINEAR, (step * each + i) * (uint64_t)MIB + 2 * GIB, 8192, places[2]);
        for (unsigned i = 0; step == takes + 3 && i < takes * each; i++)
            recmake_free(make, 0, GP_KIND_LINEAR, (each + i) * (uint64_t)MIB + 2 * GIB);
    }
    return recmake_done(make);
}

/* A cache comes in an eighth of the steps and in four at least, and goes together; more blocks of a step are copies. */
Test(uses, of_a_request_come_often_and_go_together)
{
    static const struct {
        unsigned steps, takes, each;
        bool cache;
    } rows[] = {{38, 4, 1, false}, {38, 5, 1, true},    {71, 8, 1, false},
                {71, 9, 1, true},  {38, 10, 16, false}, {38, 10, 15, true}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gp_recording *r = request(rows[i].steps, rows[i].takes, rows[i].each);
        struct gp_use_table *uses = find(r, NULL);
        int64_t bytes = (int64_t)rows[i].takes * rows[i].each * 8192;
        cr_expect_eq(most(uses, GP_USE_KV_CACHE), rows[i].cache ? bytes : 0, "row %zu", i);
        cr_expect_eq(most(uses, GP_USE_UNKNOWN), rows[i].cache ? 0 : bytes, "row %zu", i);
        gp_uses_free(uses);
        gp_recording_free(r);
    }
}

/* Of every so many blocks of a place one is still there in the next step: more than a fifth are kept until the next one is
 * there, fewer are no more than late. */
Test(uses, that_often_cross_a_step_are_kept_for_the_next)
{
    for (unsigned every = 2; every < 12; every++) {
        struct recmake *make = recmake_new(16 * GIB);
        uint32_t weights = site(make, "load", 1), place = site(make, "work", 2);
        recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, 4 * MIB, weights);
        for (unsigned step = 0; step < 60; step++) {
            recmake_at(make, (1001 + 4 * step) * MS);
            recmake_mark(make, "step");
            recmake_at(make, (1002 + 4 * step) * MS);
            if (step && step % every == 0)
                recmake_free(make, 0, GP_KIND_LINEAR, (step + 1) * GIB);
            recmake_alloc(make, 0, GP_KIND_LINEAR, (step + 2) * GIB, 3 * MIB, place);
            recmake_at(make, (1003 + 4 * step) * MS);
            if (step == 59 || (step + 1) % every)
                recmake_free(make, 0, GP_KIND_LINEAR, (step + 2) * GIB);
        }
        struct gp_recording *r = recmake_done(make);
        struct gp_use_table *uses = find(r, NULL);
        cr_expect_eq(most(uses, GP_USE_UNKNOWN), every < 5 ? 3 * MIB : 0, "one of %u", every);
        cr_expect_eq(most(uses, GP_USE_ACTIVATIONS), 3 * MIB, "one of %u", every);
        gp_uses_free(uses);
        gp_recording_free(r);
    }
}

/* The buffers of an image program live as weights, gradients and activations do. */
Test(uses, need_a_framework_on_a_stack)
{
    struct gp_recording *r = adam(false, 3, 0);
    cr_assert_leq(r->site_count, 8);
    uint8_t hints[8] = {GP_HINT_NO_FRAMEWORK, GP_HINT_NONE, GP_HINT_NONE, GP_HINT_LIBRARY};
    for (unsigned named = 0; named < 2; named++) {
        struct gp_use_table *uses = find(r, hints);
        for (enum gp_use use = 0; use < GP_USES; use++)
            cr_expect(!most(uses, use) || use == GP_USE_UNKNOWN || use == GP_USE_WORKSPACE, "%s", gp_use_name(use));
        cr_expect_gt(most(uses, GP_USE_UNKNOWN), 2 * weights());
        cr_expect_gt(most(uses, GP_USE_WORKSPACE), 0);
        gp_uses_free(uses);
        hints[1] = GP_HINT_WEIGHTS; /* a function of any program may be named load_weights */
    }
    gp_recording_free(r);
}

/* A row of a call site says what all of it is for, and how sure that is. */
Test(uses, of_a_site_are_of_all_of_it)
{
    struct gp_recording *r = adam(false, 3, 0);
    struct gp_use_table *uses = find(r, NULL);
    struct gp_flow *flow = gp_flow_new(r);
    struct gp_peak *peak = gp_flow_peak(flow, 0, 0);
    uint8_t used_for[8] = {0};
    cr_assert(gp_uses_by_site(uses, flow, peak->event_index, used_for));
    cr_expect_eq(used_for[1], 1 + GP_USE_WEIGHTS);
    cr_expect_eq(used_for[2], 1 + GP_USE_ACTIVATIONS);
    cr_expect_eq(used_for[3], (1 + GP_USE_GRADIENTS) | GP_USE_PROBABLY, "0.7 is less than plain");
    gp_uses_free(uses);
    free(peak);
    gp_flow_free(flow);
    gp_recording_free(r);
    r = adam(false, 1, 0); /* one line makes activations and the optimizer's states */
    flow = gp_flow_new(r);
    peak = gp_flow_peak(flow, 0, 0);
    uses = find(r, NULL);
    memset(used_for, 0, sizeof(used_for));
    cr_assert(gp_uses_by_site(uses, flow, peak->event_index, used_for));
    cr_expect_eq(used_for[1], 1 + GP_USE_WEIGHTS);
    cr_expect_eq(used_for[2], 0, "%u", used_for[2]);
    gp_uses_free(uses);
    free(peak);
    gp_flow_free(flow);
    gp_recording_free(r);
}

Test(uses, have_words)
{
    char words[GP_USE_WORDS];
    cr_expect_str_eq(gp_use_words(words, GP_USE_KV_CACHE, 0.7), "probably KV cache");
    cr_expect_str_eq(gp_use_words(words, GP_USE_OPTIMIZER, 0.75), "optimizer state");
    cr_expect_str_eq(gp_use_words(words, GP_USE_COMMUNICATION, 0.1), "probably communication");
    cr_expect_str_eq(gp_use_words(words, GP_USE_UNKNOWN, 0), "unknown");
    cr_expect_str_eq(gp_use_words(words, GP_USE_GROWS, 0), "grows");
}

Test(uses, are_unknown_without_steps)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t place = site(make, "work", 1);
    for (unsigned i = 0; i < 3; i++) {
        recmake_at(make, (1000 + i * i * 100) * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, (i + 1) << 20, 4096 << i, place);
    }
    struct gp_recording *r = recmake_done(make);
    struct gp_use_table *uses = find(r, NULL);
    cr_expect_eq(most(uses, GP_USE_UNKNOWN), 7 * 4096);
    gp_uses_free(uses);
    gp_recording_free(r);
}

Test(uses, add_up_to_the_peak)
{
    for (uint64_t seed = 1; seed <= 30; seed++) {
        uint32_t leaker;
        struct gp_recording *r = train(&(struct training){.steps = 6 + (unsigned)seed % 20,
                                                          .marks = seed % 2,
                                                          .leak = seed % 3 == 0,
                                                          .noise = seed % 5 == 0,
                                                          .stacks = seed % 7 != 0,
                                                          .seed = seed},
                                       &leaker);
        struct gp_use_table *uses = find(r, NULL);
        struct gp_peak *peak = analysis_peak(r, 0, 0);
        int64_t sum = 0;
        for (unsigned i = 0; i < GP_USE_RULES; i++)
            sum += uses->rows[i].at_peak_bytes;
        cr_expect_eq(sum, peak->bytes, "seed %llu", (unsigned long long)seed);
        free(peak);
        gp_uses_free(uses);
        gp_recording_free(r);
    }
}

/* Random events of several threads, addresses that are used again, frees of nothing: sums stay exact. */
static struct gp_recording *chance(uint64_t seed)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t places[5];
    for (unsigned i = 0; i < 5; i++)
        places[i] = site(make, "f", i);
    for (unsigned i = 0; i < 2000; i++) {
        uint64_t any = random_next(&seed);
        recmake_at(make, (1000 + i / 3) * MS);
        if (any % 23 == 0) {
            recmake_mark(make, any % 2 ? "step" : "other");
            continue;
        }
        struct gp_rec_event event = {.time_ns = (1000 + i / 3) * MS,
                                     .type = any % 2 ? GP_EVENT_ALLOC : GP_EVENT_FREE,
                                     .kind = any % 31 == 0 ? GP_KIND_GRAPH : GP_KIND_LINEAR,
                                     .address = (1 + any / 7 % 60) << 20,
                                     .bytes = 512 + any / 11 % 6 * 4096 + any / 13 % 3 * (1 << 20),
                                     .site = places[any / 17 % 5]};
        recmake_event(make, &event);
    }
    return recmake_done(make);
}

Test(uses, add_up_for_any_events)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct gp_recording *r = chance(seed * 7919);
        uint8_t *hints = calloc(r->site_count, 1);
        for (uint32_t i = 0; hints && seed % 2 && i < r->site_count; i++)
            hints[i] = (uint8_t)((i + seed) % (GP_HINT_BACKWARD + 1));
        struct gp_use_table *uses = find(r, hints);
        struct gp_peak *peak = analysis_peak(r, 0, 0);
        int64_t sum = 0;
        for (unsigned i = 0; i < GP_USE_RULES; i++)
            sum += uses->rows[i].at_peak_bytes;
        cr_expect_eq(sum, peak ? peak->bytes : 0, "seed %llu", (unsigned long long)seed);
        free(peak);
        free(hints);
        gp_uses_free(uses);
        gp_recording_free(r);
    }
}

Test(uses, have_names_of_call_sites)
{
    static const struct {
        const char *function, *file;
        enum gp_use_hint hint;
    } names[] = {{"_init_group", "/usr/lib/python3/dist-packages/torch/optim/adam.py", GP_HINT_OPTIMIZER},
                 {"at::cuda::getNewWorkspace()", "", GP_HINT_WORKSPACE},
                 {"step", "/x/torch/optim/adam.py", GP_HINT_OPTIMIZER},
                 {"torch/optim/", "a.py", GP_HINT_NONE},
                 {"update", "/keras/optimizers/adam.py", GP_HINT_OPTIMIZER},
                 {"/optimizers/", "a.py", GP_HINT_NONE},
                 {"__enter__", "/x/torch/cuda/graphs.py", GP_HINT_GRAPHS},
                 {"my_capture_graph_2", "a.py", GP_HINT_GRAPHS},
                 {"f", "capture_graph.py", GP_HINT_NONE},
                 {"capture_model", "", GP_HINT_GRAPHS},
                 {"f", "capture_model", GP_HINT_NONE},
                 {"init_KV_cache", "", GP_HINT_KV_CACHE},
                 {"KVCache.grow", "", GP_HINT_KV_CACHE},
                 {"f", "kvcache.py", GP_HINT_NONE},
                 {"f", "/m/kv_cache.py", GP_HINT_KV_CACHE},
                 {"f", "/transformers/cache_utils.py", GP_HINT_KV_CACHE},
                 {"cache_utils.py", "", GP_HINT_NONE},
                 {"get_workspace", "", GP_HINT_WORKSPACE},
                 {"f", "workspace.py", GP_HINT_NONE},
                 {"load_weights", "", GP_HINT_WEIGHTS},
                 {"f", "load_weights", GP_HINT_NONE},
                 {"load_state_dict", "", GP_HINT_WEIGHTS},
                 {"from_pretrained", "", GP_HINT_WEIGHTS},
                 {"f", "from_pretrained load_state_dict", GP_HINT_NONE},
                 {"from_pretraine", "", GP_HINT_NONE},
                 {"_initialize_model", "/sglang/srt/model_loader/loader.py", GP_HINT_WEIGHTS},
                 {"f", "/m/model_loader.py", GP_HINT_NONE},
                 {"register_slot", "/sglang/srt/model_executor/cuda_graph_buffer_registry.py", GP_HINT_GRAPHS},
                 {"", "", GP_HINT_NONE},
                 {"forward", "model.py", GP_HINT_NONE}};
    static const struct {
        const char *owner;
        enum gp_use_hint hint;
    } owners[] = {{"nccl", GP_HINT_COMMUNICATION}, {"nvshmem", GP_HINT_COMMUNICATION},
                  {"cublas", GP_HINT_LIBRARY},     {"cudnn", GP_HINT_LIBRARY},
                  {"cufft", GP_HINT_LIBRARY},      {"cusparse", GP_HINT_LIBRARY},
                  {"cusolver", GP_HINT_LIBRARY},   {"cutensor", GP_HINT_LIBRARY},
                  {"curand", GP_HINT_LIBRARY},     {"npp", GP_HINT_LIBRARY},
                  {"pytorch", GP_HINT_NONE},       {"", GP_HINT_NONE},
                  {"cublasx", GP_HINT_NONE},       {"nccl2", GP_HINT_NONE}};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        cr_expect_eq(gp_use_hint_of_name(names[i].function, names[i].file), names[i].hint, "%s in %s",
                     names[i].function, names[i].file);
    for (unsigned i = 0; i < sizeof(owners) / sizeof(owners[0]); i++)
        cr_expect_eq(gp_use_hint_of_owner(owners[i].owner), owners[i].hint, "%s", owners[i].owner);
    static const char *const uses[] = {"weights",   "gradients",     "optimizer", "activations", "kv_cache", "graphs",
                                       "workspace", "communication", "temporary", "grows",       "unknown"};
    for (unsigned use = 0; use < GP_USES; use++)
        cr_expect_str_eq(gp_use_name(use), uses[use]);
}
