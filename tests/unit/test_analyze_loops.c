/* SPDX-License-Identifier: MIT
 *
 * test_analyze_loops.c: the steps and the uses of memory of many small programs: loops in loops, and training and serving with
 * a few weights whose sizes and lives lie on the limits of the rules.  The results are those of
 * tests/golden/analyze_loops.txt; test_uses.c and test_analyze_steps.c say which ones are right.
 */
#include <analyze/phases.h>
#include <analyze/uses.h>

#include "checked_memory.h"
#include "sheet.h"
#include "strict_sort.h"
#include "train_fixture.h"

struct play {
    struct recmake *make;
    uint64_t seed, now, next;
    uint32_t sites[12], site_count, thread;
    size_t events;
};

static unsigned draw(struct play *play, unsigned below)
{
    return (unsigned)(random_next(&play->seed) >> 24) % below;
}

static struct play play_new(uint64_t number)
{
    struct play play = {.make = recmake_new(16 * GIB), .seed = number * 2654435761ull + 99, .now = 1000 * MS};
    play.next = 0x600000000000ull;
    for (unsigned i = 0; i < 4; i++)
        random_next(&play.seed);
    play.site_count = draw(&play, 6) ? 12 : 2;
    for (unsigned i = 0; i < play.site_count; i++)
        play.sites[i] = draw(&play, 12) ? site(play.make, "f", i) : 0;
    return play;
}

static struct gp_rec_event take(struct play *play, uint64_t bytes, unsigned at)
{
    struct gp_rec_event event = {.time_ns = play->now += MS,
                                 .address = play->next += 64 * MIB,
                                 .bytes = bytes,
                                 .site = play->sites[at % play->site_count],
                                 .thread = play->thread & 7,
                                 .type = GP_EVENT_ALLOC,
                                 .kind = GP_KIND_LINEAR};
    recmake_event(play->make, &event);
    return event;
}

static void give(struct play *play, struct gp_rec_event event)
{
    event.type = GP_EVENT_FREE;
    event.time_ns = play->now += MS;
    event.thread = play->thread & 7;
    recmake_event(play->make, &event);
}

static void mark(struct play *play, const char *format, unsigned number)
{
    char text[64];
    snprintf(text, sizeof(text), format, number);
    recmake_at(play->make, play->now += MS);
    recmake_mark(play->make, text);
}

/* ---- loops in loops ------------------------------------------------------------------------------------------------ */

#define DEPTH 3u
#define PARTS 5u

/* A loop: blocks that are freed at the end of a turn, at its own end or never, marks, and inner loops. */
struct loop {
    unsigned turns, parts, first, jitter;
    struct {
        unsigned
            what; /* 0, 1: a block until the end of the turn; 2: one at once; 3: one that stays; 4: a mark; 5: a loop */
        uint64_t bytes;
        unsigned site;
    } part[PARTS];
};

static void loop_make(struct play *play, struct loop loops[DEPTH])
{
    for (unsigned depth = 0; depth < DEPTH; depth++) {
        struct loop *loop = &loops[depth];
        loop->turns = depth ? 1 + draw(play, 6) : 4 + draw(play, 12);
        loop->parts = 2 + draw(play, PARTS - 1);
        loop->jitter = draw(play, 4);
        for (unsigned i = 0; i < loop->parts; i++) {
            unsigned what = draw(play, 11);
            loop->part[i].what = what < 4 ? what / 2 : what < 8 ? what - 3 : what == 8 ? 2 : 5;
            loop->part[i].bytes = (1ull << draw(play, 4)) * 65536 + draw(play, 2);
            loop->part[i].site = depth * PARTS + i;
        }
    }
}

static void loop_run(struct play *play, const struct loop *loops, unsigned depth)
{
    static const char *const names[] = {"outer %u", "middle", "nvtx:inner %u"};
    const struct loop *loop = &loops[depth];
    for (unsigned turn = 0; turn < loop->turns; turn++) {
        struct gp_rec_event held[PARTS];
        unsigned count = 0;
        for (unsigned i = 0; i < loop->parts; i++) {
            if (loop->jitter == 3 && draw(play, 8) == 0)
                continue;
            if (loop->part[i].what < 2)
                held[count++] = take(play, loop->part[i].bytes, loop->part[i].site);
            else if (loop->part[i].what == 2)
                give(play, take(play, loop->part[i].bytes, loop->part[i].site));
            else if (loop->part[i].what == 3)
                take(play, loop->part[i].bytes, loop->part[i].site);
            else if (loop->part[i].what == 4)
                mark(play, names[depth], turn);
            else if (depth + 1 < DEPTH)
                loop_run(play, loops, depth + 1);
        }
        while (count)
            give(play, held[--count]);
    }
}

static struct gp_recording *loops_of(unsigned number)
{
    struct play play = play_new(number);
    struct loop loops[DEPTH];
    loop_make(&play, loops);
    take(&play, 4 * MIB, 11);
    loop_run(&play, loops, 0);
    recmake_at(play.make, play.now);
    return recmake_done(play.make);
}

/* ---- training and serving ------------------------------------------------------------------------------------------ */

#define WEIGHTS 8u

struct model {
    unsigned weights, steps, trained;
    uint64_t bytes[WEIGHTS], of_gradient[WEIGHTS];
    unsigned states; /* of the optimizer, for each weight */
    unsigned freed;  /* gradients: 0: in the backward pass, 1: after it, 2: in the next step, 3: never */
    bool thread, chain, crosses, leaks, several;
    struct gp_rec_event gradients[WEIGHTS], grown, crossing, old[3];
    bool has_gradients;
};

static void model_make(struct play *play, struct model *model)
{
    static const uint64_t sizes[] = {2 * MIB, 3 * MIB, 3 * MIB + 65536, MIB, MIB + 1, 700000, 5 * MIB, 2 * MIB};
    static const int64_t apart[] = {0, 0, 0, 512, -512, MIB, -MIB, MIB + 512};
    memset(model, 0, sizeof(*model));
    model->weights = 1 + draw(play, WEIGHTS);
    model->trained = draw(play, 3) ? model->weights : 1 + draw(play, model->weights);
    model->steps = 3 + draw(play, 9);
    unsigned off = draw(play, 8), exact = draw(play, 2);
    for (unsigned i = 0; i < model->weights; i++) {
        model->bytes[i] = sizes[draw(play, 8)];
        model->of_gradient[i] = model->bytes[i] + (uint64_t)(exact || model->bytes[i] <= MIB ? 0 : apart[off]);
    }
    model->states = draw(play, 5);
    model->freed = draw(play, 4);
    model->thread = draw(play, 2);
    model->chain = !draw(play, 3);
    model->crosses = !draw(play, 3);
    model->leaks = !draw(play, 4);
    model->several = !draw(play, 3);
}

static void gradients_go(struct play *play, struct model *model)
{
    for (unsigned i = 0; i < model->trained && model->has_gradients; i++)
        give(play, model->gradients[i]);
    model->has_gradients = false;
}

static void backward(struct play *play, struct model *model, const struct gp_rec_event *outputs, unsigned step)
{
    play->thread = model->thread;
    for (unsigned i = model->weights; i-- > 0;) {
        if (i < model->trained && (model->freed != 3 || step == 0))
            model->gradients[i] = take(play, model->of_gradient[i], 3);
        if (i < model->trained && model->freed == 0)
            give(play, model->gradients[i]);
        give(play, outputs[i]);
        if (draw(play, 3) == 0)
            give(play, take(play, model->bytes[i], 4));
    }
    model->has_gradients = model->freed == 1 || model->freed == 2;
    play->thread = 0;
}

/* Blocks that outlive their step in one way or another. */
static void others(struct play *play, struct model *model, unsigned step)
{
    if (model->chain) {
        struct gp_rec_event before = model->grown;
        model->grown = take(play, MIB + step * (draw(play, 9) ? 65536ull : 0), 6);
        if (step)
            give(play, before);
    }
    if (model->crosses) {
        struct gp_rec_event before = model->crossing;
        model->crossing = take(play, 300000, 7);
        if (step)
            give(play, before);
    }
    if (model->leaks)
        take(play, 40000, 8);
    if (model->several) {
        if (step >= 3)
            give(play, model->old[step % 3]);
        model->old[step % 3] = take(play, 90000, 9);
    }
}

static struct gp_recording *model_of(unsigned number)
{
    struct play play = play_new(number + 100000);
    struct model model;
    unsigned marks = draw(&play, 3);
    model_make(&play, &model);
    give(&play, take(&play, 3 * MIB, 5));
    for (unsigned i = 0; i < model.weights; i++)
        take(&play, model.bytes[i], 0);
    for (unsigned step = 0; step < model.steps; step++) {
        struct gp_rec_event outputs[WEIGHTS];
        if (marks)
            mark(&play, "step %u", step);
        if (model.freed == 2)
            gradients_go(&play, &model);
        for (unsigned i = 0; i < model.weights; i++)
            outputs[i] = take(&play, draw(&play, 4) ? 80000 : model.bytes[i], 1);
        others(&play, &model, step);
        backward(&play, &model, outputs, step);
        for (unsigned i = 0; i < model.weights * model.states && step == 0; i++)
            take(&play, model.bytes[i % model.weights], 2);
        if (model.freed == 1)
            gradients_go(&play, &model);
    }
    if (marks == 1)
        mark(&play, "step %u", model.steps);
    take(&play, 80000, 1 + draw(&play, 10));
    recmake_at(play.make, play.now);
    return recmake_done(play.make);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------- */

static struct gp_steps *put_steps(struct sheet *sheet, const struct gp_recording *recording)
{
    struct gp_steps *steps = gp_steps_find(recording);
    SHEET_NUMBERS(sheet, steps->source, steps->length_ns, steps->count);
    sheet_word(sheet, steps->name);
    for (uint32_t i = 0; i <= steps->count; i++)
        sheet_number(sheet, (int64_t)(steps->bounds_ns[i] / 1000));
    sheet_line(sheet);
    return steps;
}

static void put_uses(struct sheet *sheet, const struct gp_recording *recording, const struct gp_steps *steps,
                     const uint8_t *hints)
{
    struct gp_flow *flow = gp_flow_new(recording);
    struct gp_leaks *leaks = gp_flow_leaks(flow, steps, 0);
    struct gp_use_table *uses = gp_uses_find(flow, steps, leaks, hints, 0);
    sheet_number(sheet, uses->trains);
    for (size_t i = 0; i < recording->event_count; i++)
        if (recording->events[i].type == GP_EVENT_ALLOC)
            sheet_number(sheet, uses->rule[i]);
    for (unsigned i = 0; i < GP_USE_RULES; i++)
        if (uses->rows[i].count)
            SHEET_NUMBERS(sheet, i, uses->rows[i].use, (int64_t)uses->rows[i].count, uses->rows[i].peak_bytes,
                          uses->rows[i].at_peak_bytes, uses->rows[i].end_bytes);
    sheet_line(sheet);
    gp_uses_free(uses);
    free(leaks);
    gp_flow_free(flow);
}

Test(loops, steps_and_uses, .timeout = 120)
{
    static struct golden_sheets golden;
    struct sheet steps = sheet_new("loops", "steps"), uses = sheet_new("loops", "uses");
    golden_begin(&golden, "tests/golden/analyze_loops.txt");
    for (unsigned number = 0; number < 2000; number++) {
        struct gp_recording *recording = number % 2 ? model_of(number) : loops_of(number);
        uint8_t hints[16];
        for (unsigned i = 0; i < 16; i++)
            hints[i] = (uint8_t)(number % 6 == 5 ? (number + i * 3) % (GP_HINT_BACKWARD + 1) : GP_HINT_NONE);
        strict_on = true;
        struct gp_steps *found = put_steps(&steps, recording);
        if (number % 2)
            put_uses(&uses, recording, found, number % 3 ? hints : NULL);
        strict_on = false;
        free(found);
        gp_recording_free(recording);
    }
    golden_add(&golden, &steps);
    golden_add(&golden, &uses);
    golden_end(&golden);
}
