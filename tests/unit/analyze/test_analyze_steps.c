/* SPDX-License-Identifier: MIT
 * test_analyze_steps.c: the rhythm that is the step does not depend on how long a program was
 * recorded, and is neither a layer nor an epoch. */
#include <analyze/analyze.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"

#define US 1000ull

/* A program that is recorded for some seconds. */
struct rhythm {
    const char *name;
    unsigned step_us, jitter; /* percent */
    unsigned layers;
    unsigned checkpoint, epoch; /* in steps; 0: none */
    bool backward;              /* activations are freed in a backward pass, else within the layer */
    bool vary;                  /* sizes differ from step to step, by a factor of two */
    bool stacks, marks, nvtx;
    bool noise; /* another thread allocates at its own times */
    bool leak;
};

struct playing {
    struct recmake *make;
    uint64_t seed, at_ns, address;
    const struct rhythm *rhythm;
    uint64_t slice_ns; /* between two allocations */
    double scale;      /* of sizes in this step */
    uint32_t sites[100];
};

/* line: another one for each call of take. */
static uint32_t place(struct playing *play, const char *function, unsigned line)
{
    if (play->rhythm->stacks && !play->sites[line])
        play->sites[line] = site(play->make, function, line);
    return play->sites[line];
}

static uint64_t take(struct playing *play, uint64_t bytes, const char *function, unsigned line)
{
    recmake_at(play->make, play->at_ns += play->slice_ns);
    recmake_alloc(play->make, 0, GP_KIND_LINEAR, play->address += MIB,
                  (uint64_t)((double)bytes * play->scale) / 512 * 512, place(play, function, line));
    return play->address;
}

static void drop(struct playing *play, uint64_t address)
{
    recmake_at(play->make, play->at_ns += play->slice_ns / 4);
    recmake_free(play->make, 0, GP_KIND_LINEAR, address);
}

static void mark(struct playing *play, const char *name, unsigned number)
{
    char text[64];
    if (!play->rhythm->marks && !play->rhythm->nvtx)
        return;
    snprintf(text, sizeof(text), "%s%s %u", play->rhythm->nvtx ? "nvtx:" : "", name, number);
    recmake_at(play->make, play->at_ns);
    recmake_mark(play->make, text);
}

static void pass(struct playing *play, uint64_t *kept, const char *function)
{
    for (unsigned i = 0; i < play->rhythm->layers; i++) {
        mark(play, "layer", i);
        kept[i] = take(play, 400 * 1024, function, 10);
        drop(play, take(play, 90 * 1024, function, 11));
        if (!play->rhythm->backward)
            drop(play, kept[i]);
    }
}

static void step_of(struct playing *play, unsigned number)
{
    uint64_t kept[64], batch, loss;
    play->scale = play->rhythm->vary ? 1 + (double)(random_next(&play->seed) % 100) / 100 : 1;
    mark(play, "turn", number);
    batch = take(play, 64 * 1024, "load_batch", 1);
    mark(play, "forward", number);
    pass(play, kept, "layer");
    loss = take(play, 700, "loss", 30);
    if (play->rhythm->backward) {
        mark(play, "backward", number);
        for (unsigned i = play->rhythm->layers; i-- > 0;) {
            drop(play, take(play, 180 * 1024, "backward", 20));
            drop(play, kept[i]);
        }
        drop(play, take(play, 33 * 1024, "optimizer", 40));
    }
    drop(play, loss);
    drop(play, batch);
    if (play->rhythm->leak)
        take(play, 512 * 1024, "keep", 50);
    if (play->rhythm->noise && random_next(&play->seed) % 3 == 0)
        drop(play, take(play, 5000 + random_next(&play->seed) % 90000, "logger", 60));
    if (play->rhythm->checkpoint && number % play->rhythm->checkpoint == play->rhythm->checkpoint - 1)
        drop(play, take(play, 2000 * 1024, "checkpoint", 70));
}

static void validate(struct playing *play)
{
    for (unsigned batch = 0; batch < 4; batch++) {
        for (unsigned i = 0; i < play->rhythm->layers; i++)
            drop(play, take(play, 400 * 1024, "evaluate", 80));
    }
}

/* The number of steps in *steps. */
static struct gp_recording *record(const struct rhythm *rhythm, unsigned seconds, uint64_t seed, unsigned *steps)
{
    struct playing play = {.make = recmake_new(GIB), .seed = seed, .at_ns = 1000 * MS, .rhythm = rhythm, .scale = 1};
    uint64_t end = play.at_ns + seconds * 1000 * MS;
    uint64_t parameters = 0;
    for (unsigned i = 0; i < 40; i++)
        parameters = take(&play, MIB, "parameter", 99);
    for (*steps = 0; play.at_ns < end; ++*steps) {
        uint64_t start = play.at_ns, length = rhythm->step_us * US;
        if (rhythm->jitter)
            length = length * (100 - rhythm->jitter + random_next(&play.seed) % (2 * rhythm->jitter)) / 100;
        if (*steps == 0 && rhythm->step_us < 50000)
            length *= 20; /* the first step compiles */
        play.slice_ns = length / (rhythm->layers * 8 + 40);
        if (rhythm->epoch && *steps % rhythm->epoch == 0)
            mark(&play, "era", *steps / rhythm->epoch);
        step_of(&play, *steps);
        play.at_ns = start + length > play.at_ns ? start + length : play.at_ns;
        if (rhythm->epoch && *steps % rhythm->epoch == rhythm->epoch - 1)
            validate(&play);
    }
    drop(&play, parameters);
    return recmake_done(play.make);
}

static const struct rhythm rhythms[] = {
    {"plain", 12000, 10, 12, 0, 0, true, true, true, false, false, false, false},
    {"checkpoints", 12000, 10, 12, 32, 0, true, true, true, false, false, false, false},
    {"epochs", 12000, 20, 12, 0, 40, true, true, true, false, false, false, false},
    {"both", 9000, 10, 24, 16, 50, true, false, true, false, false, true, false},
    {"one layer", 4000, 10, 1, 32, 0, true, true, true, false, false, false, false},
    {"many layers", 60000, 5, 60, 8, 0, true, true, true, false, false, false, false},
    {"slow", 300000, 5, 12, 0, 0, true, true, true, false, false, false, false},
    {"inference", 8000, 20, 24, 0, 0, false, false, true, false, false, false, false},
    {"inference, sizes vary", 8000, 20, 24, 100, 0, false, true, true, false, false, true, false},
    {"no stacks", 12000, 10, 12, 32, 0, true, false, false, false, false, false, false},
    {"no stacks, sizes vary", 12000, 10, 12, 32, 0, true, true, false, false, false, false, false},
    {"leaks", 12000, 10, 12, 32, 0, true, true, true, false, false, false, true},
    {"marks", 12000, 10, 12, 32, 40, true, true, true, true, false, false, false},
    {"ranges", 12000, 10, 12, 32, 40, true, true, true, false, true, true, false},
};

Test(steps, do_not_depend_on_how_long_one_looks, .timeout = 60)
{
    static const unsigned seconds[] = {2, 5, 10, 30};
    unsigned wrong = 0;
    for (size_t r = 0; r < sizeof(rhythms) / sizeof(rhythms[0]); r++) {
        for (size_t s = 0; s < sizeof(seconds) / sizeof(seconds[0]); s++) {
            unsigned count;
            struct gp_recording *recording = record(&rhythms[r], seconds[s], r * 4 + s + 1, &count);
            struct gp_steps *steps = gp_steps_find(recording);
            enum gp_step_source source = rhythms[r].nvtx    ? GP_STEPS_NVTX
                                         : rhythms[r].marks ? GP_STEPS_MARKS
                                                            : GP_STEPS_PERIOD;
            double length = (double)steps->length_ns / 1e3, off = length / rhythms[r].step_us;
            /* Sizes that vary can hide a step if sizes are all that is known. */
            unsigned hidden = rhythms[r].vary && !rhythms[r].stacks ? count / 10 : 0;
            bool right = steps->source == source && off > 0.9 && off < 1.1 && steps->count + 2 + hidden >= count &&
                         steps->count <= count;
            if (!right)
                fprintf(stderr, "%s, %u s: %u steps of %.0f us, not %u of %u us, source %d \"%s\"\n", rhythms[r].name,
                        seconds[s], steps->count, length, count - 1, rhythms[r].step_us, (int)steps->source,
                        steps->name);
            wrong += !right;
            free(steps);
            gp_recording_free(recording);
        }
    }
    cr_assert_eq(wrong, 0);
}

/* A profiler that attaches in the middle of a step finds the same ones: they start where the program holds the least, whatever
 * comes first in the recording. */
Test(steps, do_not_depend_on_where_a_recording_begins, .timeout = 60)
{
    for (size_t r = 0; r < sizeof(rhythms) / sizeof(rhythms[0]); r++) {
        if (rhythms[r].vary && !rhythms[r].stacks)
            continue;
        unsigned count;
        struct gp_recording *whole = record(&rhythms[r], 6, r + 1, &count);
        struct gp_steps *right = gp_steps_find(whole);
        for (unsigned part = 1; part < 8; part++) {
            struct gp_recording *recording = record(&rhythms[r], 6, r + 1, &count);
            uint64_t from = right->bounds_ns[4] + right->length_ns * part / 8;
            cr_assert_eq(gp_recording_cut(recording, from, recording->end_ns), 0);
            struct gp_steps *steps = gp_steps_find(recording);
            uint32_t first = right->count - steps->count;
            cr_expect(first >= 4 && first <= 7 && strcmp(steps->name, right->name) == 0,
                      "%s, %u: %u steps of %s, not %u of %s", rhythms[r].name, part, steps->count, steps->name,
                      right->count, right->name);
            for (uint32_t i = 0; first <= 7 && i <= steps->count; i++)
                cr_assert_eq(steps->bounds_ns[i], right->bounds_ns[first + i]);
            free(steps);
            gp_recording_free(recording);
        }
        free(right);
        gp_recording_free(whole);
    }
}

/* `steps` times: a batch, and within it `inner` times the same four lines, which keep a block until the step ends or only work
 * with it.  Then `once` lines that run once. */
static struct gp_recording *loop_in_loop(unsigned steps, unsigned inner, bool keeps, unsigned once)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t batch = site(make, "batch", 1), lines[4];
    uint64_t now = 1000 * MS, address = GIB, kept[16];
    for (unsigned k = 0; k < 4; k++)
        lines[k] = site(make, "line", k + 2);
    for (unsigned step = 0; step < steps; step++) {
        recmake_at(make, now += MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, MIB, keeps ? MIB : 100 * MIB, batch);
        for (unsigned i = 0; i < inner; i++) {
            kept[i] = address += GIB;
            for (unsigned k = 0; k < 4; k++) {
                recmake_at(make, now += MS);
                recmake_alloc(make, 0, GP_KIND_LINEAR, kept[i] + k * 16 * MIB, 10 * MIB, lines[k]);
                if (k || !keeps)
                    recmake_free(make, 0, GP_KIND_LINEAR, kept[i] + k * 16 * MIB);
            }
        }
        for (unsigned i = inner; keeps && i-- > 0;)
            recmake_free(make, 0, GP_KIND_LINEAR, kept[i]);
        recmake_free(make, 0, GP_KIND_LINEAR, MIB);
    }
    for (unsigned i = 0; i < once; i++) {
        recmake_at(make, now += MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, MIB, site(make, "once", i));
        recmake_free(make, 0, GP_KIND_LINEAR, address);
    }
    return recmake_done(make);
}

/* An inner loop has nearly all lines of the step, but only its own workspaces; or it leaves a block, so that the memory does
 * not return.  What fills less than half of a recording is no step of it. */
Test(steps, are_those_of_the_outer_loop)
{
    static const struct {
        unsigned inner, once;
        bool keeps, found;
    } cases[] = {{10, 0, false, true},  {4, 0, false, true},    {2, 0, true, true},
                 {3, 0, true, true},    {10, 0, true, true},    {4, 500, false, true},
                 {4, 646, false, true}, {4, 700, false, false}, {4, 900, false, false}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct gp_recording *recording = loop_in_loop(40, cases[c].inner, cases[c].keeps, cases[c].once);
        struct gp_steps *steps = gp_steps_find(recording);
        cr_expect_eq(steps->source, cases[c].found ? GP_STEPS_PERIOD : GP_STEPS_TIME, "case %zu", c);
        cr_expect(!cases[c].found || (steps->count == 39 && strcmp(steps->name, "batch") == 0),
                  "case %zu: %u steps of %s", c, steps->count, steps->name);
        free(steps);
        gp_recording_free(recording);
    }
}

/* ---- steps that a user names ------------------------------------------------------------------------------------- */

Test(steps, are_the_ones_that_a_user_names)
{
    static const struct rhythm marked = {"marks", 20000, 0, 4, 0, 10, true, false, true, true, false, false, false};
    static const struct {
        const char *text;
        enum gp_step_source source;
        unsigned count; /* of steps */
        uint64_t length_ns;
    } cases[] = {{"turn", GP_STEPS_MARKS, 0, 20 * MS},   {"era", GP_STEPS_MARKS, 0, 200 * MS},
                 {"turn 3", GP_STEPS_MARKS, 0, 20 * MS}, {"50ms", GP_STEPS_GIVEN, 40, 50 * MS},
                 {"1.5s", GP_STEPS_GIVEN, 1, 1500 * MS}, {"1min", GP_STEPS_GIVEN, 0, 0}};
    unsigned count;
    struct gp_recording *recording = record(&marked, 2, 1, &count);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gp_steps *steps;
        cr_assert_eq(gp_steps_choose(recording, cases[i].text, &steps), 0, "%s", cases[i].text);
        cr_assert_eq(steps->source, cases[i].source, "%s", cases[i].text);
        double off = (double)steps->length_ns / (cases[i].length_ns ? (double)cases[i].length_ns : 1);
        cr_assert(cases[i].length_ns ? off > 0.9 && off < 1.2 : steps->count == 0, "%s: %u of %f", cases[i].text,
                  steps->count, off);
        cr_assert(!cases[i].count || steps->count == cases[i].count, "%s: %u", cases[i].text, steps->count);
        free(steps);
    }
    struct gp_steps *steps;
    cr_assert_eq(gp_steps_choose(recording, "nothing", &steps), -ENOENT);
    cr_assert_eq(gp_steps_choose(recording, "", &steps), -ENOENT);
    cr_assert_eq(gp_steps_choose(recording, "0ms", &steps), -ERANGE);
    cr_assert_eq(gp_steps_choose(recording, "1ns", &steps), -ERANGE);
    struct gp_step_name name;
    bool seen = false;
    for (uint32_t i = 0; gp_steps_name(recording, i, &name); i++)
        seen |= strcmp(name.name, "turn") == 0 && name.count == count && !name.nvtx;
    cr_assert(seen);
    gp_recording_free(recording);
}

/* A mark at the time of the one before begins no step: a clock may stand still between two of them. */
Test(steps, have_bounds_that_only_rise)
{
    static const unsigned at[] = {10, 10, 20, 30, 30, 30, 31, 50};
    static const uint64_t bounds[] = {10 * MS, 20 * MS, 30 * MS, 31 * MS, 50 * MS};
    for (unsigned marks = 2; marks <= sizeof(at) / sizeof(at[0]); marks++) {
        struct recmake *make = recmake_new(GIB);
        struct gp_steps *steps = NULL;
        unsigned different = 0;
        for (unsigned i = 0; i < marks; i++) {
            recmake_at(make, at[i] * MS);
            recmake_mark(make, "turn");
            different += i == 0 || at[i] != at[i - 1];
        }
        recmake_at(make, 60 * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, MIB, 0);
        struct gp_recording *recording = recmake_done(make);
        int rc = gp_steps_choose(recording, "turn", &steps);
        cr_assert_eq(rc, 0, "%u marks: %d", marks, rc);
        cr_expect_eq(steps->count, different - 1, "%u marks: %u steps", marks, steps->count);
        for (unsigned i = 0; i < different; i++)
            cr_expect_eq(steps->bounds_ns[i], bounds[i], "%u marks: bound %u is %llu", marks, i,
                         (unsigned long long)steps->bounds_ns[i]);
        free(steps);
        gp_recording_free(recording);
    }
}

/* One line makes several blocks at once in each of twelve steps, with a pause in between, and keeps them or not. In a
 * loop without pauses the line itself is all that is known to repeat. */
Test(steps, are_the_bursts_between_pauses)
{
    for (unsigned way = 0; way < 4; way++) {
        bool pauses = way & 1, keeps = way & 2;
        struct recmake *make = recmake_new(16 * GIB);
        uint32_t line = site(make, "hidden", 1);
        uint64_t now = 1000 * MS;
        for (unsigned step = 0; step < 12; step++) {
            for (unsigned i = 0; i < 6; i++) {
                recmake_at(make, now += 40 * US);
                recmake_alloc(make, 0, GP_KIND_LINEAR, (step * 6 + i + 1) * GIB, 40 * MIB, line);
                if (!keeps)
                    recmake_free(make, 0, GP_KIND_LINEAR, (step * 6 + i + 1) * GIB);
            }
            now += pauses ? 50 * MS : 0;
        }
        recmake_at(make, now);
        for (unsigned i = 0; keeps && i < 60; i++) /* the others at the end of the program */
            recmake_free(make, 0, GP_KIND_LINEAR, (i + 1) * GIB);
        struct gp_recording *recording = recmake_done(make);
        struct gp_steps *steps = gp_steps_find(recording);
        cr_expect_eq(steps->source, GP_STEPS_PERIOD, "way %u", way);
        cr_expect_eq(steps->count, pauses ? 11 : 71, "way %u: %u steps", way, steps->count);
        cr_expect(steps->length_ns / US > (pauses ? 50000 : 39) && steps->length_ns / US < (pauses ? 51000 : 41),
                  "way %u: %llu ns", way, (unsigned long long)steps->length_ns);
        free(steps);
        gp_recording_free(recording);
    }
}

/* ---- leaks without steps ----------------------------------------------------------------------------------------- */

/* Nothing repeats: what speaks for a leak is how long it grows, how fast, and that nothing is freed.
 * Other memory that comes and goes shows that the program is not loading. */
Test(leaks, without_steps_have_evidence)
{
    for (unsigned every = 0; every <= 4; every += 4) { /* one of so many blocks is freed; 0: none */
        struct recmake *make = recmake_new(16 * GIB);
        uint32_t keeps = site(make, "keeps", 1);
        for (unsigned i = 0; i < 1000; i++) {
            recmake_at(make, (1000 + i * 10) * MS);
            recmake_alloc(make, 0, GP_KIND_LINEAR, (i + 1ull) * 0x1000000, MIB, keeps);
            if (every && i % every == 0)
                recmake_free(make, 0, GP_KIND_LINEAR, (i + 1ull) * 0x1000000);
            recmake_alloc(make, 0, GP_KIND_LINEAR, i + 1, 300 * MIB, site(make, "uses", i));
            recmake_free(make, 0, GP_KIND_LINEAR, i + 1);
        }
        struct gp_recording *recording = recmake_done(make);
        struct gp_steps *steps = gp_steps_find(recording);
        struct gp_leaks *leaks = gp_leaks_find(recording, steps, 0);
        cr_assert_eq(steps->source, GP_STEPS_TIME);
        cr_assert_eq(leaks->count, 1);
        const struct gp_leak *leak = &leaks->suspects[0];
        double rate = (every ? 75.0 : 100.0) * MIB; /* per second */
        cr_assert_float_eq(leak->bytes_per_second, rate, rate * 0.1, "%f", leak->bytes_per_second);
        cr_assert(leak->grows_ns > 8000 * MS && leak->grows_ns < 10000 * MS);
        cr_assert_eq(leak->taken_bytes, 1000 * MIB);
        cr_assert_eq(leak->freed_bytes, every ? 250 * MIB : 0);
        free(leaks);
        free(steps);
        gp_recording_free(recording);
    }
}
