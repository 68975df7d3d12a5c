/* SPDX-License-Identifier: MIT
 * test_steps_stacks.c: the steps of programs with a known number of them, by what their stacks show: made
 * as PyTorch's stacks look, with the recomputation and the hooks that autograd calls on a thread of its
 * own. */
#include <analyze/report.h>

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"

#define TORCH "/usr/lib/python3/dist-packages/torch/"
#define MODEL "/usr/lib/python3/dist-packages/transformers/generation/utils.py"
#define SCRIPT                                                                                                         \
    {                                                                                                                  \
        "<module>", "/home/u/train.py", 60                                                                             \
    }
#define AT(line) {"main", "/home/u/train.py", line}, SCRIPT
#define CALL                                                                                                           \
    {                                                                                                                  \
        "Module._call_impl", TORCH "nn/modules/module.py", 1750                                                        \
    }

enum place {
    LOAD,
    INPUT,
    LAYER,
    BLOCK, /* one of the net's, called by itself */
    FILL,  /* of a pipeline: before its first backward pass */
    ON,    /* ... and between them, by the same function */
    AGAIN, /* computed again in the backward pass */
    ROOT,
    NODE,
    STATE,
    HOOK, /* an optimizer that the backward pass calls */
    VALID,
    ASK,
    FIRST,
    TOKEN,
    PICK,
    PLACES
};

struct program {
    struct recmake *make;
    uint32_t site[PLACES];
    uint64_t at, address;
    unsigned engine; /* the thread of the backward pass */
};

static void program_begin(struct program *p)
{
    static const struct recmake_frame stacks[PLACES][8] = {
        [LOAD] = {{"Module.cuda", TORCH "nn/modules/module.py", 1053}, AT(5)},
        [INPUT] = {AT(11)},
        [LAYER] = {{"Net.forward", "/home/u/model.py", 3}, CALL, AT(12)},
        [BLOCK] = {{"Net.forward", "/home/u/model.py", 3},
                   CALL,
                   {"checkpoint", TORCH "utils/checkpoint.py", 496},
                   AT(12)},
        [FILL] = {{"Net.forward", "/home/u/model.py", 3},
                  CALL,
                  {"forward_one_chunk", TORCH "distributed/pipelining/stage.py", 700},
                  {"Schedule1F1B._step_microbatches", TORCH "distributed/pipelining/schedules.py", 600},
                  AT(12)},
        [ON] = {{"Net.forward", "/home/u/model.py", 3},
                CALL,
                {"forward_one_chunk", TORCH "distributed/pipelining/stage.py", 700},
                {"Schedule1F1B._step_microbatches", TORCH "distributed/pipelining/schedules.py", 630},
                AT(12)},
        [AGAIN] = {{"Net.forward", "/home/u/model.py", 3}, CALL, {"unpack_hook", TORCH "utils/checkpoint.py", 1116}},
        [ROOT] = {{"_make_grads", TORCH "autograd/__init__.py", 200},
                  {"backward", TORCH "autograd/__init__.py", 340},
                  {"Tensor.backward", TORCH "_tensor.py", 626},
                  AT(13)},
        [STATE] = {{"AdamW._init_group", TORCH "optim/adamw.py", 171},
                   {"AdamW.step", TORCH "optim/adamw.py", 232},
                   {"Optimizer.profile_hook_step.<locals>.wrapper", TORCH "optim/optimizer.py", 493},
                   AT(15)},
        [HOOK] = {{"Adam.step", TORCH "optim/adam.py", 232}, {"main.<locals>.hook", "/home/u/train.py", 30}},
        [VALID] = {{"Net.forward", "/home/u/model.py", 3}, CALL, {"validate", "/home/u/train.py", 40}, AT(20)},
        [ASK] = {{"randn_tensor", "/usr/lib/python3/dist-packages/transformers/utils.py", 9}, AT(11)},
        [FIRST] = {{"GenerationMixin.prepare", MODEL, 100}, {"GenerationMixin.generate", MODEL, 200}, AT(12)},
        [TOKEN] = {{"GPT.forward", "/usr/lib/python3/dist-packages/transformers/gpt.py", 3},
                   CALL,
                   {"GenerationMixin._sample", MODEL, 300},
                   {"GenerationMixin.generate", MODEL, 210},
                   AT(12)},
        [PICK] = {{"GenerationMixin._sample", MODEL, 310}, {"GenerationMixin.generate", MODEL, 210}, AT(12)},
    };
    static const char *const node[] = {"libtorch_cpu.so", NULL};
    *p = (struct program){.make = recmake_new(64 * GIB), .at = 1000 * MS, .engine = 1};
    for (unsigned i = 0; i < PLACES; i++)
        p->site[i] = i == NODE ? recmake_native_site(p->make, GP_KIND_LINEAR, node)
                               : recmake_site(p->make, GP_KIND_LINEAR, stacks[i]);
}

static void event(struct program *p, uint8_t type, uint64_t address, uint64_t bytes, enum place place, unsigned thread)
{
    const struct gp_rec_event one = {.time_ns = p->at += MS,
                                     .address = address,
                                     .bytes = bytes,
                                     .type = type,
                                     .kind = GP_KIND_LINEAR,
                                     .site = type == GP_EVENT_ALLOC ? p->site[place] : 0,
                                     .thread = thread};
    recmake_event(p->make, &one);
}

static uint64_t take(struct program *p, enum place place, unsigned thread)
{
    event(p, GP_EVENT_ALLOC, p->address += GIB, MIB, place, thread);
    return p->address;
}

static void drop(struct program *p, uint64_t address)
{
    event(p, GP_EVENT_FREE, address, MIB, LOAD, 0);
}

static void passing(struct program *p, enum place place, unsigned thread)
{
    drop(p, take(p, place, thread));
}

#define WEIGHTS 6u

struct passes {
    unsigned passes, each; /* passes of a step */
    bool checkpoint;       /* each block is called, and computed again, by itself */
    bool keeps;            /* gradients stay and are zeroed */
    enum { SILENT, ONCE, ALWAYS, IN_BACKWARD, TWICE } optimizer; /* when it asks for memory */
    unsigned validates;                                          /* calls of the net after the training */
    bool cut;                                                    /* within the backward pass of the last step */
};

static struct gp_recording *trained(const struct passes *is)
{
    struct program p;
    uint64_t gradients[WEIGHTS] = {0}, outputs[WEIGHTS];
    program_begin(&p);
    for (unsigned i = 0; i < WEIGHTS; i++)
        take(&p, LOAD, 0);
    for (unsigned pass = 0; pass < is->passes; pass++) {
        uint64_t input = take(&p, INPUT, 0), root;
        for (unsigned i = 0; i < WEIGHTS; i++)
            outputs[i] = take(&p, is->checkpoint ? BLOCK : LAYER, 0);
        root = take(&p, ROOT, 0);
        for (unsigned i = WEIGHTS; i-- > 0;) {
            for (unsigned k = 0; is->checkpoint && k < 3; k++)
                passing(&p, AGAIN, p.engine);
            passing(&p, NODE, p.engine);
            if (is->cut && pass + 1 == is->passes && i == 1)
                return recmake_done(p.make);
            uint64_t made = take(&p, NODE, p.engine);
            if (gradients[i])
                drop(&p, made);
            else
                gradients[i] = made;
            if (is->optimizer == IN_BACKWARD)
                passing(&p, HOOK, p.engine);
            drop(&p, outputs[i]);
        }
        drop(&p, root);
        drop(&p, input);
        if ((pass + 1) % is->each)
            continue;
        for (unsigned i = 0; i < WEIGHTS; i++) {
            if (is->optimizer == ALWAYS)
                passing(&p, STATE, 0);
            else if ((is->optimizer == ONCE && pass < is->each) || (is->optimizer == TWICE && pass < 2 * is->each))
                take(&p, STATE, 0);
            if (!is->keeps)
                drop(&p, gradients[i]), gradients[i] = 0;
        }
    }
    for (unsigned i = 0; i < is->validates; i++)
        passing(&p, VALID, 0), passing(&p, INPUT, 0);
    return recmake_done(p.make);
}

#define MICRO 4u

/* The first stage of a pipeline: its gradients are given, so a backward pass asks for nothing on the thread of the program. */
static struct gp_recording *piped(unsigned steps, unsigned ahead, bool keeps)
{
    struct program p;
    uint64_t gradients[WEIGHTS] = {0}, outputs[MICRO][WEIGHTS];
    program_begin(&p);
    for (unsigned i = 0; i < WEIGHTS; i++)
        take(&p, LOAD, 0);
    for (unsigned step = 0; step < steps; step++) {
        for (unsigned forward = 0, back = 0; back < MICRO;) {
            if (forward < MICRO && forward < back + ahead) {
                passing(&p, INPUT, 0);
                for (unsigned i = 0; i < WEIGHTS; i++)
                    outputs[forward][i] = take(&p, forward < ahead ? FILL : ON, 0);
                forward++;
                continue;
            }
            for (unsigned i = WEIGHTS; i-- > 0;) {
                uint64_t made = take(&p, NODE, p.engine);
                if (gradients[i])
                    drop(&p, made);
                else
                    gradients[i] = made;
                drop(&p, outputs[back][i]);
            }
            back++;
        }
        for (unsigned i = 0; i < WEIGHTS; i++) {
            if (step == 0)
                take(&p, STATE, 0);
            if (!keeps)
                drop(&p, gradients[i]), gradients[i] = 0;
        }
    }
    return recmake_done(p.make);
}

static void expect_steps(struct gp_recording *r, enum gp_step_call call, uint32_t count, uint32_t ended)
{
    struct gp_steps *steps = gp_steps_find(r);
    cr_expect(gp_steps_are_steps(steps) && steps->source == GP_STEPS_STACKS && steps->call == call,
              "source %d, call %d, %u of \"%s\"", (int)steps->source, (int)steps->call, steps->count, steps->name);
    cr_expect_eq(steps->count, count, "%u steps for %u, by %d", steps->count, count, (int)steps->call);
    cr_expect_eq(steps->ended, ended, "%u ended for %u", steps->ended, ended);
    cr_expect_str_eq(gp_steps_word(steps), "step");
    free(steps);
    gp_recording_free(r);
}

/* An optimizer that asks for memory in its first call alone, or in none; layers that are computed again in each backward
 * pass, which looks like 8 calls of a net. */
Test(steps_stacks, of_one_and_of_two_are_found)
{
    for (unsigned steps = 1; steps <= 5; steps++)
        for (unsigned optimizer = SILENT; optimizer <= IN_BACKWARD; optimizer++)
            for (unsigned checkpoint = 0; checkpoint < 2; checkpoint++) {
                bool told = optimizer == ONCE || (steps > 1 && optimizer != ALWAYS);
                expect_steps(trained(&(struct passes){
                                 .passes = steps, .each = 1, .optimizer = optimizer, .checkpoint = checkpoint}),
                             optimizer == ALWAYS && steps > 1 ? GP_STEP_OPTIMIZER : GP_STEP_BACKWARD, steps,
                             told || optimizer == ALWAYS ? steps - 1 : 0);
            }
}

/* Weights that have a gradient in the second step only get their state then. */
Test(steps_stacks, go_on_after_the_optimizer_has_all_that_it_needs)
{
    expect_steps(trained(&(struct passes){.passes = 10, .each = 1, .optimizer = TWICE}), GP_STEP_BACKWARD, 10, 9);
    expect_steps(trained(&(struct passes){.passes = 2, .each = 1, .optimizer = TWICE}), GP_STEP_OPTIMIZER, 2, 1);
}

/* Gradients add up over four passes; where they stay, the first call of the optimizer tells. */
Test(steps_stacks, add_up_passes)
{
    static const struct passes cases[] = {
        {.passes = 12, .each = 4, .optimizer = SILENT}, {.passes = 12, .each = 4, .optimizer = ONCE},
        {.passes = 12, .each = 4, .optimizer = ALWAYS}, {.passes = 12, .each = 4, .optimizer = ONCE, .keeps = true},
        {.passes = 4, .each = 4, .optimizer = ONCE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_steps(trained(&cases[i]), cases[i].optimizer == ALWAYS ? GP_STEP_OPTIMIZER : GP_STEP_BACKWARD,
                     cases[i].passes / 4, cases[i].passes / 4 - 1);
}

/* The calls of a net that fill a pipeline end no step, and are as much calls of it as those that follow. */
Test(steps_stacks, of_a_pipeline_are_no_micro_batches)
{
    for (unsigned ahead = 1; ahead <= MICRO; ahead++)
        for (unsigned keeps = 0; keeps < 2; keeps++)
            expect_steps(piped(5, ahead, keeps), GP_STEP_NET, 5, 4);
}

/* A dry run is ended by steps that have ended, so none may be where the first step is not over, or where what has ended may
 * be a part of one. */
Test(steps_stacks, that_go_on_have_not_ended)
{
    expect_steps(trained(&(struct passes){.passes = 1, .each = 1, .checkpoint = true, .cut = true}), GP_STEP_BACKWARD,
                 1, 0);
    expect_steps(trained(&(struct passes){.passes = 2, .each = 1, .optimizer = ONCE, .checkpoint = true, .cut = true}),
                 GP_STEP_BACKWARD, 2, 1);
    /* Three passes of a step of four. */
    expect_steps(trained(&(struct passes){.passes = 4, .each = 8, .optimizer = ONCE, .cut = true}), GP_STEP_BACKWARD, 4,
                 0);
}

/* The program trains, and what it calls later is no step. */
Test(steps_stacks, are_no_calls_after_the_training)
{
    expect_steps(trained(&(struct passes){.passes = 3, .each = 1, .optimizer = ONCE, .validates = 3}), GP_STEP_BACKWARD,
                 3, 3);
}

/* A request makes words in a loop of the library; another thread may serve too.  before: PLACES is nothing. */
static struct gp_recording *served(unsigned requests, unsigned words, enum place before, unsigned threads)
{
    struct program p;
    program_begin(&p);
    for (unsigned i = 0; i < WEIGHTS; i++)
        take(&p, LOAD, 0);
    for (unsigned i = 0; i < requests; i++) {
        unsigned thread = i % threads;
        if (before != PLACES)
            passing(&p, before, thread);
        passing(&p, FIRST, thread);
        for (unsigned k = 0; k < words + i % 3; k++) {
            passing(&p, TOKEN, thread);
            passing(&p, PICK, thread);
        }
    }
    return recmake_done(p.make);
}

Test(steps_stacks, of_a_service_are_its_requests)
{
    expect_steps(served(40, 16, ASK, 1), GP_STEP_NET, 40, 39);
    expect_steps(served(40, 16, ASK, 2), GP_STEP_NET, 40, 39);
    expect_steps(served(3, 16, ASK, 1), GP_STEP_NET, 3, 2);
    expect_steps(served(20, 16, PLACES, 1), GP_STEP_NET, 20, 19); /* one line, again and again */
}

/* The words of one text come from a library's loop: they repeat. */
Test(steps_stacks, are_not_the_words_of_one_text)
{
    struct gp_recording *r = served(1, 60, PLACES, 1);
    struct gp_steps *steps = gp_steps_find(r);
    cr_expect(!gp_steps_are_steps(steps), "%u steps of \"%s\", source %d", steps->count, steps->name,
              (int)steps->source);
    cr_expect_eq(steps->ended, 0);
    cr_expect(strcmp(gp_steps_word(steps), "repeat") == 0 || steps->source == GP_STEPS_TIME);
    free(steps);
    gp_recording_free(r);
}
