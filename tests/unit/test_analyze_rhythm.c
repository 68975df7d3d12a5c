/* SPDX-License-Identifier: MIT
 *
 * test_analyze_rhythm.c: which steps are found in programs of nested loops, and what finds no memory on GPUs around the
 * size that is enough.  tests/golden/rhythm_*.txt have what was found before.  test_analyze_steps.c and test_fit.c say which answers are right.
 */
#include <analyze/analyze.h>
#include <analyze/fit.h>
#include <analyze/internal.h>
#include <criterion/criterion.h>
#include <lib/golden.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"

#define KIB     1024ull
#define LOOPS   72u
#define FITS    3u
#define LINES   (256 * 1024)
#define SLOTS   60u
#define REQUEST 120u

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static char now[LINES];
static size_t used;

static __attribute__((format(printf, 1, 2))) void line(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    used += (size_t)vsnprintf(now + used, sizeof(now) - used, format, args);
    va_end(args);
    cr_assert_lt(used, sizeof(now));
}

/* ---- nested loops ------------------------------------------------------------------------------------------------ */

struct loops {
    struct recmake *make;
    uint64_t seed, at_ns, address;
    unsigned layers, inner, steps, missing; /* missing: of how many steps one lacks its first block; 0: none */
    bool backward, sites, even, drifts, other, carries;
    uint64_t carried;
    uint32_t site_of[32];
};

static uint64_t draw(struct loops *loops, uint64_t below)
{
    return random_next(&loops->seed) % below;
}

static uint64_t take(struct loops *loops, uint64_t bytes, uint32_t line_number)
{
    if (loops->sites && !loops->site_of[line_number])
        loops->site_of[line_number] = site(loops->make, "f", line_number);
    loops->at_ns += loops->even ? MS / 20 : MS / 40 + draw(loops, MS / 20);
    recmake_at(loops->make, loops->at_ns);
    recmake_alloc(loops->make, 0, GP_KIND_LINEAR, loops->address += 64 * KIB, bytes, loops->site_of[line_number]);
    return loops->address;
}

static void give(struct loops *loops, uint64_t address)
{
    loops->at_ns += MS / 80;
    recmake_at(loops->make, loops->at_ns);
    recmake_free(loops->make, 0, GP_KIND_LINEAR, address);
}

static void one_step(struct loops *loops, unsigned step)
{
    uint64_t held[16], first = 0;
    bool lacks = loops->missing && step % loops->missing == loops->missing - 1;
    if (!lacks)
        first = take(loops, 40 * KIB, 1);
    for (unsigned layer = 0; layer < loops->layers; layer++) {
        held[layer] = take(loops, 16 * KIB + layer * 512, 2);
        for (unsigned i = 0; i < loops->inner; i++)
            give(loops, take(loops, 9 * KIB + i % 3 * 512, 3 + i % 2));
        if (!loops->backward)
            give(loops, held[layer]);
    }
    for (unsigned layer = loops->layers; loops->backward && layer-- > 0;) {
        uint64_t gradient = take(loops, 24 * KIB, 6);
        give(loops, held[layer]);
        give(loops, gradient);
    }
    if (loops->drifts && step % 3 == 0)
        take(loops, 4 * KIB, 7);
    if (loops->carries) { /* what one step makes and the next one takes */
        uint64_t next = take(loops, 30 * KIB, 10);
        if (loops->carried)
            give(loops, loops->carried);
        loops->carried = next;
    }
    if (loops->other && step % 5 == 2) /* an evaluation */
        for (unsigned i = 0; i < 4; i++)
            give(loops, take(loops, 80 * KIB, 8));
    give(loops, take(loops, 12 * KIB, 9));
    if (first)
        give(loops, first);
}

static void find_steps(unsigned round)
{
    struct loops loops = {.make = recmake_new(4 * GIB), .seed = round + 1, .at_ns = 1000 * MS};
    loops.layers = 1 + (unsigned)draw(&loops, 12);
    loops.inner = (unsigned)draw(&loops, 5);
    loops.steps = round % 8 == 7 ? 300 + round : 6 + (unsigned)draw(&loops, 60);
    loops.missing = round % 3 ? 0 : (const unsigned[]){2, 7, 15, 19, 20, 21, 40, 199, 200, 201}[draw(&loops, 10)];
    loops.backward = draw(&loops, 2);
    loops.sites = draw(&loops, 3);
    loops.even = draw(&loops, 2);
    loops.drifts = draw(&loops, 3) == 0;
    loops.other = draw(&loops, 2);
    loops.carries = round >= 48;
    loops.address = 0x7000000000;
    for (unsigned i = 0; i < round % 4 * 30; i++) /* parameters, and some that are freed */
        take(&loops, 50 * KIB + i * 512, 20 + i % 7);
    for (unsigned step = 0; step < loops.steps; step++)
        one_step(&loops, step);
    struct gp_recording *recording = recmake_done(loops.make);
    struct gp_steps *steps = gp_steps_find(recording);
    cr_assert(steps);
    line("%u: %u steps of %u x %u: %d '%s' %u, %.3f ms, from %.3f to %.3f\n", round, loops.steps, loops.layers,
         loops.inner, steps->source, steps->name, steps->count, (double)steps->length_ns / 1e6,
         (double)(steps->bounds_ns[0] - recording->begin_ns) / 1e6,
         (double)(steps->bounds_ns[steps->count] - recording->begin_ns) / 1e6);
    free(steps);
    gp_recording_free(recording);
}

Test(rhythm, steps_of_nested_loops, .timeout = 60)
{
    for (unsigned round = 0; round < LOOPS; round++)
        find_steps(round);
    golden_expect("tests/golden/rhythm_loops.txt", now, false);
}

/* ---- sizes around what is enough --------------------------------------------------------------------------------- */

static struct gp_recording *requests(uint64_t seed)
{
    static const uint64_t sizes[] = {
        511,        512,        4096,     100 * KIB, 1024 * KIB - 1,     1024 * KIB,      1025 * KIB,
        2048 * KIB, 3000 * KIB, 90 << 20, 10 << 20,  (130ull << 20) + 1, (200 << 20) - 1, (310 << 20) + 9};
    struct recmake *make = recmake_new(16 * GIB);
    uint64_t live[SLOTS] = {0}, address = 0x7000000000;
    for (unsigned i = 0; i < REQUEST; i++) {
        unsigned slot = (unsigned)(random_next(&seed) % SLOTS);
        recmake_at(make, (1000 + i) * MS);
        if (live[slot]) {
            recmake_free(make, 0, GP_KIND_LINEAR, live[slot]);
            live[slot] = 0;
            continue;
        }
        live[slot] = address += 512 << 20;
        recmake_alloc(make, 0, GP_KIND_LINEAR, address, sizes[random_next(&seed) % 14], site(make, "f", slot % 5));
    }
    return recmake_done(make);
}

/* Every whole step of 2 MiB below what is enough, and one byte around some.  A row that does not fit says what failed,
 * and a device that is enough fails nothing. */
static void around(const struct gp_flow *flow, unsigned round, const char *allocator)
{
    struct gp_fit_question question = {.gpu_bytes = 16 * GIB, .tenants = 1, .context_bytes = 0, .allocator = allocator};
    struct gp_fit_result plenty, result;
    int rc = gp_fit_judge(flow, 0, &question, &plenty);
    line("%u %s: %d, peak %llu, smallest %llu, spare %llu\n", round, allocator, rc,
         (unsigned long long)plenty.rows[0].peak_bytes, (unsigned long long)plenty.rows[0].smallest_bytes,
         (unsigned long long)plenty.spare_bytes);
    uint64_t enough = rc ? 0 : plenty.rows[0].smallest_bytes;
    gp_fit_result_fini(&plenty);
    for (int i = -9; i <= 4 && enough > 40ull << 20; i += i < -4 || i > 0 ? 4 : 1) {
        question.tenants = i == 3 ? 2 : 1;
        question.gpu_bytes = (enough + (uint64_t)((int64_t)(i / 3) * (2 << 20) + i % 3)) * question.tenants;
        cr_assert_eq(gp_fit_judge(flow, 0, &question, &result), 0);
        const struct gp_fit_row *row = &result.rows[0];
        if (row->fits)
            line("  %+d fits %llu %llu\n", i, (unsigned long long)row->smallest_bytes,
                 (unsigned long long)row->peak_bytes);
        else
            line("  %+d event %d asked %llu free %llu of %llu, %llu\n", i, (int)result.event,
                 (unsigned long long)result.asked_bytes, (unsigned long long)result.free_bytes,
                 (unsigned long long)question.gpu_bytes, (unsigned long long)row->smallest_bytes);
        if (i >= 0)
            cr_expect(row->fits || row->smallest_bytes > question.gpu_bytes, "%u %s %+d", round, allocator, i);
        gp_fit_result_fini(&result);
    }
}

Test(rhythm, gpus_around_the_smallest_that_is_enough, .timeout = 60)
{
    static const char *const allocators[] = {"off", "pytorch", "caching", "auto_growth"};
    for (unsigned round = 0; round < FITS; round++) {
        struct gp_recording *recording = requests(round + 1);
        struct gp_flow *flow = gp_flow_new(recording);
        cr_assert(flow);
        for (unsigned i = 0; i < 4; i++)
            around(flow, round, allocators[i]);
        gp_flow_free(flow);
        gp_recording_free(recording);
    }
    golden_expect("tests/golden/rhythm_gpus.txt", now, false);
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

#define CHOICES 3000u

/* The part of the way that lies in intervals near the median, counted here in another way. */
static double even_here(const uint32_t *positions, size_t count)
{
    uint64_t near = 0;
    uint32_t median = 0;
    for (size_t i = 0; i + 1 < count; i++) { /* the interval with (count - 1) / 2 others before it in order */
        uint32_t mine = positions[i + 1] - positions[i];
        size_t less = 0, same = 0;
        for (size_t j = 0; j + 1 < count; j++) {
            less += positions[j + 1] - positions[j] < mine;
            same += positions[j + 1] - positions[j] == mine;
        }
        if (less <= (count - 1) / 2 && (count - 1) / 2 < less + same)
            median = mine;
    }
    for (size_t i = 0; i + 1 < count; i++) {
        uint32_t mine = positions[i + 1] - positions[i];
        near += 2 * mine >= median && mine <= 2 * median ? mine : 0;
    }
    return positions[count - 1] == positions[0] ? 0 : (double)near / (double)(positions[count - 1] - positions[0]);
}

/* One random curve with small levels, in which many quotients are equal, and some rhythms in it.  Returns which of them
 * is the step. */
static char choice(struct loops *loops, unsigned length)
{
    static int64_t level[1 << 12];
    static uint32_t symbol[1 << 12], stamp[16];
    static struct gp_recording recording;
    struct gp_beat_curve curve = {&recording, draw(loops, 3), level, symbol, stamp, 16, 0};
    unsigned period = 4 + (unsigned)draw(loops, 9), span = 1 + (unsigned)draw(loops, 5);
    struct gp_beats beats;
    double evens[8];
    cr_assert(gp_beats_init(&beats, 8 * length));
    memset(stamp, 0, sizeof(stamp));
    int64_t drift = draw(loops, 3) ? 0 : 1;
    for (unsigned i = 0; i < length; i++) {
        level[i] = (int64_t)(i % period % span) + (int64_t)draw(loops, 2) + drift * (int64_t)(i / period) / 8;
        symbol[i] = draw(loops, 3) ? 1 + (uint32_t)(i % period % 15) : 0;
    }
    level[length] = 0;
    unsigned kinds = 1 + (unsigned)draw(loops, 4), every[8], offset[8];
    for (unsigned k = 0; k < kinds; k++) {
        every[k] = draw(loops, 3) ? period : 2 + (unsigned)draw(loops, 2 * period);
        offset[k] = (unsigned)draw(loops, every[k]);
    }
    for (unsigned i = 0; i < length; i++)
        for (unsigned k = 0; k < kinds; k++)
            if (i % every[k] == offset[k] && (k == 0 || draw(loops, 40))) {
                uint32_t back = i == 0 && curve.begin ? (uint32_t)draw(loops, 2) : 0; /* the curve does not reach it */
                cr_assert(gp_beats_put(&beats, k, i + (uint32_t)curve.begin - back, k == 1));
            }
    gp_beats_group(&beats);
    for (size_t k = 0; k < beats.kinds.count; k++) {
        const struct gp_tally_row *row = &beats.kinds.rows[k];
        evens[k] = row->count < 3 ? 0 : gp_beats_even(beats.grouped + row->extra, (size_t)row->count);
        if (row->count >= 3)
            cr_expect_float_eq(evens[k], even_here(beats.grouped + row->extra, (size_t)row->count), 1e-12);
        for (int64_t i = 1; i < row->count; i++)
            cr_assert_lt(beats.grouped[row->extra + (uint64_t)i - 1], beats.grouped[row->extra + (uint64_t)i]);
    }
    bool ok;
    const struct gp_tally_row *row = gp_beats_step(&beats, evens, &curve, &ok);
    cr_assert(ok);
    char made = row ? (char)('0' + row->key) : '-';
    gp_beats_fini(&beats);
    return made;
}

Test(rhythm, which_rhythm_is_the_step, .timeout = 60)
{
    struct loops loops = {.seed = 77};
    char row[61] = "";
    for (unsigned i = 0; i < CHOICES; i++) {
        row[i % 60] = choice(&loops, 40 + (unsigned)draw(&loops, i % 50 ? 200 : 3000));
        if (i % 60 == 59)
            line("%s\n", row);
    }
    golden_expect("tests/golden/rhythm_step.txt", now, false);
}
