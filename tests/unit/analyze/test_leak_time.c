/* SPDX-License-Identifier: MIT
 *
 * test_leak_time.c: when a program that leaks runs out of memory, said at half of the way, and where its steps end.
 */
#include <analyze/analyze.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "train_fixture.h"

#define FULL (16 * GIB)

enum growth { KEPT, KEPT_TWICE, REPLACED, CONCATENATED };

struct program {
    enum growth growth;
    bool is_marked;
    int64_t by, temporary; /* bytes of a step: that stay; that it needs and frees */
    unsigned noise;        /* percent of `temporary` */
    unsigned late;         /* steps before it grows */
};

struct run {
    struct recmake *make;
    uint64_t seed, now_ns, address, block[2], bytes[2];
    int64_t held;
    bool is_full;
};

static uint64_t grow(struct run *run, uint64_t bytes, uint32_t where)
{
    run->held += (int64_t)bytes;
    run->is_full |= run->held > FULL;
    recmake_at(run->make, run->now_ns += MS);
    recmake_alloc(run->make, 0, GP_KIND_LINEAR, run->address += 64 * GIB, bytes, where);
    return run->address;
}

static void shrink(struct run *run, uint64_t address, uint64_t bytes)
{
    if (!address)
        return;
    run->held -= (int64_t)bytes;
    recmake_at(run->make, run->now_ns += MS / 10);
    recmake_free(run->make, 0, GP_KIND_LINEAR, address);
}

/* A new block, the old one's bytes into it, the old one freed: of two tensors in turn where they are concatenated. */
static void replace(struct run *run, unsigned i, uint64_t by, uint32_t where)
{
    uint64_t bytes = run->bytes[i] + by, next = grow(run, bytes, where);
    shrink(run, run->block[i], run->bytes[i]);
    run->block[i] = next;
    run->bytes[i] = bytes;
}

static void step(struct run *run, const struct program *program, const uint32_t sites[8], unsigned number)
{
    char name[32];
    uint64_t temporary = (uint64_t)program->temporary, blocks[4];
    if (program->noise)
        temporary += temporary * (random_next(&run->seed) % program->noise) / 100;
    snprintf(name, sizeof(name), "step %u", number);
    recmake_at(run->make, run->now_ns);
    if (program->is_marked)
        recmake_mark(run->make, name);
    for (unsigned i = 0; i < 4; i++)
        blocks[i] = grow(run, temporary / 4, sites[i]);
    if (number >= program->late && program->growth <= KEPT_TWICE)
        grow(run, (uint64_t)program->by, sites[4]);
    if (number >= program->late && program->growth == KEPT_TWICE)
        grow(run, (uint64_t)program->by, sites[5]);
    for (unsigned i = 0; i < 4; i++)
        shrink(run, blocks[i], temporary / 4);
    for (unsigned i = 0; number >= program->late && program->growth >= REPLACED && i <= program->growth - REPLACED; i++)
        replace(run, i, (uint64_t)program->by, sites[4 + i]);
    run->now_ns += 10 * MS + random_next(&run->seed) % (4 * MS);
}

/* Until it is full, or for so many steps; *steps: how many, *ended_ns: when. */
static struct gp_recording *run_of(const struct program *program, uint64_t seed, unsigned most, unsigned *steps,
                                   uint64_t *ended_ns)
{
    struct run run = {.make = recmake_new(FULL), .seed = seed * 77 + 1, .now_ns = 1000 * MS, .address = GIB};
    uint32_t sites[8];
    for (unsigned i = 0; i < 8; i++)
        sites[i] = site(run.make, i < 4 ? "work" : "grows", i);
    grow(&run, GIB, sites[6]); /* weights */
    for (*steps = 0; *steps < most && !run.is_full; ++*steps)
        step(&run, program, sites, *steps);
    recmake_at(run.make, *ended_ns = run.now_ns);
    if (program->is_marked)
        recmake_mark(run.make, "step");
    return recmake_done(run.make);
}

static void expect_time(const struct program *program, uint64_t seed)
{
    unsigned all, half;
    uint64_t fails_ns, now_ns;
    gp_recording_free(run_of(program, seed, UINT32_MAX, &all, &fails_ns));
    struct gp_recording *recording = run_of(program, seed, program->late + (all - program->late) / 2, &half, &now_ns);
    struct gp_steps *steps = gp_steps_find(recording);
    struct gp_leaks *leaks = gp_leaks_find(recording, steps, 0);
    double left = (double)(fails_ns - now_ns) / 1e9;
    cr_assert(leaks->count > 0, "growth %d, seed %u: %s", (int)program->growth, (unsigned)seed, leaks->why);
    cr_expect_float_eq(leaks->suspects[0].seconds_to_oom, left, 0.25 * left,
                       "growth %d, seed %u, %u of %u: %f s for %f", (int)program->growth, (unsigned)seed, half, all,
                       leaks->suspects[0].seconds_to_oom, left);
    free(leaks);
    free(steps);
    gp_recording_free(recording);
}

Test(leak_time, is_right_to_a_quarter_at_half_of_the_way)
{
    for (uint64_t seed = 1; seed <= 5; seed++)
        for (int growth = KEPT; growth <= CONCATENATED; growth++)
            for (int marked = 0; marked < 2; marked++) {
                struct program program = {.growth = (enum growth)growth,
                                          .is_marked = marked,
                                          .by = (int64_t)(10 + seed * 7) * MIB,
                                          .temporary = (int64_t)(100 + seed * 300) * MIB};
                expect_time(&program, seed);
                program.noise = 40;
                expect_time(&program, seed);
                program.temporary = 6 * GIB; /* more than what stays at half of the way */
                program.noise = 10;
                expect_time(&program, seed);
                program.late = 60;
                expect_time(&program, seed);
            }
}

/* Requests of 20 ms that keep a block each, and a clean-up of everything; then the program waits. */
static struct gp_recording *service(unsigned requests, uint64_t waits_ns, bool keeps, bool backwards)
{
    struct recmake *make = recmake_new(FULL);
    uint32_t output = site(make, "output", 1), temporary = site(make, "temporary", 2);
    uint64_t now = 1000 * MS, address = GIB;
    for (unsigned i = 0; i < requests; i++) {
        recmake_at(make, now += 2 * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, 16 * MIB, temporary);
        recmake_alloc(make, 0, GP_KIND_LINEAR, GIB * 1000 + i * GIB, 4 * MIB, output);
        recmake_at(make, now += 13 * MS);
        recmake_free(make, 0, GP_KIND_LINEAR, address);
        if (!keeps)
            recmake_free(make, 0, GP_KIND_LINEAR, GIB * 1000 + i * GIB);
        now += 5 * MS;
    }
    for (unsigned i = 0; keeps && i < requests; i++) {
        recmake_at(make, now += MS / 50);
        recmake_free(make, 0, GP_KIND_LINEAR, GIB * 1000 + (backwards ? requests - 1 - i : i) * GIB);
    }
    struct gp_recording *recording = recmake_done(make);
    recording->end_ns += waits_ns;
    return recording;
}

Test(leak_time, steps_of_time_end_where_the_clean_up_begins)
{
    static const char *const lengths[] = {"20ms", "50ms", "7ms", "100ms"};
    static const uint64_t waits_ns[] = {0, 10 * MS, 100 * MS, 5000 * MS};
    for (unsigned i = 0; i < 4 * 4 * 2 * 2; i++) {
        bool keeps = i / 16 % 2;
        struct gp_recording *recording = service(150, waits_ns[i / 4 % 4], keeps, i / 32 % 2);
        struct gp_steps *steps = NULL;
        cr_assert_eq(gp_steps_choose(recording, lengths[i % 4], &steps), 0);
        struct gp_leaks *leaks = gp_leaks_find(recording, steps, 0);
        cr_expect_eq(leaks->count, keeps, "--step=%s, %u ms later: %s", lengths[i % 4],
                     (unsigned)(waits_ns[i / 4 % 4] / MS), leaks->why);
        double each = (double)steps->length_ns / (20.0 * MS) * 4 * MIB;
        cr_expect(!leaks->count || (leaks->suspects[0].site == 1 && leaks->suspects[0].bytes_per_step > 0.9 * each &&
                                    leaks->suspects[0].bytes_per_step < 1.1 * each),
                  "--step=%s: %f bytes per step", lengths[i % 4], leaks->suspects[0].bytes_per_step);
        free(leaks);
        free(steps);
        gp_recording_free(recording);
    }
}
