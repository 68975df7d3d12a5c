/* SPDX-License-Identifier: MIT
 *
 * test_uses_same.c: what the memory of random programs is used for: programs with steps whose weights, gradients,
 * states, caches and buffers live and grow in every way that the rules tell apart.  tests/golden/uses.txt has what was
 * found before; GP_GOLDEN_UPDATE=1 writes it.  test_uses.c says which answers are right.
 */
#include <analyze/report.h>
#include <criterion/criterion.h>
#include <lib/golden.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"

#define PROGRAMS 240u
#define KEPT     16u

struct story {
    struct recmake *make;
    uint64_t seed, at, address;
    uint32_t places[8], threads;
    unsigned place_count;
};

static uint64_t draw(struct story *s, uint64_t below)
{
    return random_next(&s->seed) % below;
}

/* Few sizes, so that blocks of different uses have the same; some are off by what an allocator grants in excess. */
static uint64_t size_of(unsigned i, uint64_t off)
{
    static const uint64_t excess[] = {0, 0, 0, 512, MIB, MIB + 1};
    return (2 + i % 5) * MIB + i / 5 * 65536 + excess[off];
}

static uint64_t put(struct story *s, uint64_t bytes, unsigned thread, unsigned use)
{
    struct gp_rec_event event = {.time_ns = s->at++ * MS,
                                 .type = GP_EVENT_ALLOC,
                                 .kind = GP_KIND_LINEAR,
                                 .thread = thread % s->threads,
                                 .address = s->address += GIB,
                                 .bytes = bytes,
                                 .site = s->places[use % s->place_count]};
    recmake_at(s->make, event.time_ns);
    recmake_event(s->make, &event);
    return event.address;
}

static void drop(struct story *s, uint64_t *address, unsigned thread)
{
    struct gp_rec_event event = {.time_ns = s->at++ * MS,
                                 .type = GP_EVENT_FREE,
                                 .kind = GP_KIND_LINEAR,
                                 .thread = thread % s->threads,
                                 .address = *address};
    if (!*address)
        return;
    recmake_at(s->make, event.time_ns);
    recmake_event(s->make, &event);
    *address = 0;
}

static struct gp_recording *program(struct story *s)
{
    uint64_t gradients[KEPT] = {0}, outputs[KEPT], cache[4] = {0}, several[64] = {0}, start = 0;
    unsigned weights = 1 + (unsigned)draw(s, KEPT), steps = 3 + (unsigned)draw(s, 30), states = (unsigned)draw(s, 5);
    unsigned gradient = (unsigned)draw(s, 4), grown = (unsigned)draw(s, 4), long_life = (unsigned)draw(s, 4);
    unsigned together = 1 + (unsigned)draw(s, 12), trained = draw(s, 3) ? weights : weights / 2;
    s->make = recmake_new(64 * GIB);
    s->threads = 1 + (uint32_t)draw(s, 3);
    s->place_count = draw(s, 4) ? 8 : 2;
    for (unsigned i = 0; i < s->place_count; i++)
        s->places[i] = site(s->make, "work", i);
    for (unsigned i = 0; i < weights; i++)
        put(s, size_of(i, 0), 0, 0);
    start = put(s, 3 * MIB, 0, 1);
    drop(s, &start, 0);
    for (unsigned step = 0; step < steps; step++) {
        recmake_at(s->make, s->at++ * MS);
        recmake_mark(s->make, "step");
        for (unsigned i = 0; i < trained && gradient == 1; i++)
            drop(s, &gradients[i], 0);
        for (unsigned i = 0; i < weights; i++)
            outputs[i] = put(s, draw(s, 9) ? 7ull * MIB + i : size_of(i, 0), 0, 1);
        for (unsigned i = weights; i-- > 0;) {
            if (i < trained && gradient && (gradient < 3 || !step))
                gradients[i] = put(s, size_of(i, draw(s, 6)), 1, 2);
            drop(s, &outputs[i], 1);
        }
        for (unsigned i = 0; i < trained && gradient == 2; i++)
            drop(s, &gradients[i], 0);
        for (unsigned i = 0; i < trained * states && step < 1 + draw(s, 2); i++)
            put(s, size_of(i / states, 0), 0, 3);
        for (unsigned i = 0; i < 4 && grown == 1; i++) { /* a cache that is replaced by a larger one */
            uint64_t larger = put(s, (step + 9) * 4096 + 8 * MIB - (draw(s, 8) ? 0ull : 8192ull), 0, 4);
            drop(s, &cache[i], 0);
            cache[i] = larger;
        }
        for (unsigned i = 0; i < together && grown == 2; i++)
            put(s, 8192, 2, 5);
        for (unsigned i = 0; i < together && long_life && step % long_life == 0; i++)
            several[step * together % 48 + i] = put(s, 20000 + i * 512, 2, 6);
        for (unsigned i = 0; i < 64 && step % 6 == 5; i++)
            drop(s, &several[i], draw(s, 2) ? 2 : 0);
        if (draw(s, 5) == 0)
            put(s, size_of((unsigned)draw(s, 20), 0), 0, 7);
    }
    recmake_at(s->make, s->at++ * MS);
    recmake_mark(s->make, "step");
    for (unsigned i = 0; i < 3; i++)
        put(s, size_of(i, 0), (unsigned)draw(s, 3), i * 3);
    return recmake_done(s->make);
}

static void found(FILE *out, unsigned number)
{
    struct story s = {.seed = number + 1, .at = 1001, .address = 0x7f0000000000ull};
    struct gp_recording *r = program(&s);
    uint8_t *hints = calloc(r->site_count + 1, 1);
    for (uint32_t i = 0; hints && number % 3 == 0 && i < r->site_count; i++)
        hints[i] = draw(&s, 3) ? 0 : (uint8_t)draw(&s, GP_HINT_BACKWARD + 1);
    struct gp_flow *flow = gp_flow_new(r);
    struct gp_steps *steps = gp_steps_find(r);
    struct gp_leaks *leaks = gp_flow_leaks(flow, steps, 0);
    struct gp_use_table *uses = gp_uses_find(flow, steps, leaks, hints, 0);
    cr_assert(uses);
    fprintf(out, "%u:%s", number, uses->trains ? " trains" : "");
    for (unsigned i = 0; i < GP_USE_RULES; i++)
        if (uses->rows[i].count)
            fprintf(out, " %u x%llu %llx %llx %llx", i, (unsigned long long)uses->rows[i].count,
                    (unsigned long long)uses->rows[i].peak_bytes, (unsigned long long)uses->rows[i].at_peak_bytes,
                    (unsigned long long)uses->rows[i].end_bytes);
    fprintf(out, "\n");
    gp_uses_free(uses);
    free(leaks);
    free(steps);
    gp_flow_free(flow);
    free(hints);
    gp_recording_free(r);
}

Test(uses_same, of_random_programs, .timeout = 120)
{
    char *now = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&now, &bytes);
    for (unsigned i = 0; i < PROGRAMS; i++)
        found(out, i);
    fclose(out);
    golden_expect("tests/golden/uses.txt", now, false);
    free(now);
}
