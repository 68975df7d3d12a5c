/* SPDX-License-Identifier: MIT
 * test_uses_stacks.c: what memory is used for, and where steps start, in a training program whose stacks
 * say so. No size and no count of events is the same in two steps, so nothing else could tell. */
#include <analyze/flow.h>
#include <analyze/report.h>

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"

#define WEIGHTS    6u
#define CUT_LAYERS 9u /* of the pass that is cut, which holds more than the others */
#define CUT_BYTES  (96 * MIB)

enum place { LOAD, INPUT, LAYER, SCRATCH, ROOT, NODE, STATE, UPDATE, PLACES };

struct net {
    struct recmake *make;
    uint32_t site[PLACES];
    uint64_t address, at;
    unsigned steps;
    bool engine; /* the backward pass has a thread of its own */
    bool accumulates;
    bool plain; /* an optimizer without memory of its own */
    bool late;  /* the input goes after the optimizer's step */
    uint64_t input;
    unsigned kept;     /* so many passes without a backward one, whose outputs are kept until the last */
    const char *range; /* an NVTX range around each step's forward pass */
    unsigned cut;      /* a last pass ends after so many blocks of its backward pass + 1, and the program with it */
};

static const uint8_t place_hints[PLACES] = {
    [LOAD] = GP_HINT_WEIGHTS,  [INPUT] = GP_HINT_NONE,    [LAYER] = GP_HINT_FORWARD,   [SCRATCH] = GP_HINT_FORWARD,
    [ROOT] = GP_HINT_BACKWARD, [NODE] = GP_HINT_BACKWARD, [STATE] = GP_HINT_OPTIMIZER, [UPDATE] = GP_HINT_OPTIMIZER};

#define TORCH "/usr/lib/python3/dist-packages/torch/"
#define MAIN(_line)                                                                                                    \
    {                                                                                                                  \
        "main", "/home/u/train.py", _line                                                                              \
    }

static void net_places(struct net *net)
{
    static const struct recmake_frame stacks[PLACES][4] = {
        [LOAD] = {{"Module.cuda", TORCH "nn/modules/module.py", 1053}, MAIN(5)},
        [INPUT] = {MAIN(11)},
        [LAYER] = {{"Net.forward", "/home/u/model.py", 3},
                   {"Module._call_impl", TORCH "nn/modules/module.py", 1750},
                   MAIN(12)},
        [SCRATCH] = {{"Net.forward", "/home/u/model.py", 4},
                     {"Module._call_impl", TORCH "nn/modules/module.py", 1750},
                     MAIN(12)},
        [ROOT] = {{"Tensor.backward", TORCH "_tensor.py", 626}, MAIN(13)},
        [STATE] = {{"AdamW._init_group", TORCH "optim/adamw.py", 171},
                   {"AdamW.step", TORCH "optim/adamw.py", 232},
                   MAIN(14)},
        [UPDATE] = {{"AdamW.step", TORCH "optim/adamw.py", 243}, MAIN(14)},
    };
    static const char *const node[] = {"libtorch_cpu.so", NULL};
    for (unsigned i = 0; i < PLACES; i++)
        net->site[i] = i == NODE ? recmake_native_site(net->make, GP_KIND_LINEAR, node)
                                 : recmake_site(net->make, GP_KIND_LINEAR, stacks[i]);
}

static void event(struct net *net, uint8_t type, uint64_t address, uint64_t bytes, enum place place, unsigned thread)
{
    const struct gp_rec_event one = {.time_ns = net->at += MS,
                                     .address = address,
                                     .bytes = bytes,
                                     .type = type,
                                     .kind = GP_KIND_LINEAR,
                                     .site = type == GP_EVENT_ALLOC ? net->site[place] : 0,
                                     .thread = thread};
    recmake_event(net->make, &one);
}

static uint64_t take(struct net *net, uint64_t bytes, enum place place, unsigned thread)
{
    event(net, GP_EVENT_ALLOC, net->address += GIB, bytes, place, thread);
    return net->address;
}

static void drop(struct net *net, uint64_t address, uint64_t bytes, unsigned thread)
{
    event(net, GP_EVENT_FREE, address, bytes, LOAD, thread);
}

static uint64_t weight_of(unsigned i)
{
    return (i + 1) * MIB;
}

/* One forward and backward pass; an odd step has more layers, and all have other sizes. */
static void pass(struct net *net, unsigned step, uint64_t gradients[WEIGHTS])
{
    unsigned layers = 4 + step % 3 * 2, other = net->engine;
    uint64_t size = (8 + step * 5 % 7) * MIB + step * 512, outputs[10];
    if (net->range) {
        recmake_at(net->make, net->at);
        recmake_mark(net->make, net->range);
    }
    net->input = take(net, size / 2, INPUT, 0);
    for (unsigned i = 0; i < layers; i++) {
        uint64_t scratch = take(net, 2 * size, SCRATCH, 0);
        outputs[i] = take(net, size, LAYER, 0);
        drop(net, scratch, 2 * size, 0);
    }
    uint64_t root = take(net, 512, ROOT, 0);
    for (unsigned i = layers; i-- > 0;) {
        uint64_t passing = take(net, size, NODE, other);
        if (i < WEIGHTS) {
            uint64_t made = take(net, weight_of(i), NODE, other);
            if (gradients[i])
                drop(net, made, weight_of(i), other); /* added to the one that is there */
            else
                gradients[i] = made;
        }
        drop(net, passing, size, other);
        drop(net, outputs[i], size, other);
    }
    drop(net, root, 512, 0);
    if (!net->late)
        drop(net, net->input, size / 2, 0);
}

static struct gp_recording *net_train(struct net *net)
{
    uint64_t weights[WEIGHTS], gradients[WEIGHTS] = {0}, states[WEIGHTS] = {0};
    net->make = recmake_new(64 * GIB);
    net->at = 1000 * MS;
    net_places(net);
    for (unsigned i = 0; i < WEIGHTS; i++) {
        uint64_t copy = take(net, 3 * MIB, LOAD, 0);
        weights[i] = take(net, weight_of(i), LOAD, 0);
        drop(net, copy, 3 * MIB, 0);
    }
    for (unsigned step = 0; step < net->steps; step++) {
        for (unsigned again = 0; again < (net->accumulates ? 3 : 1); again++)
            pass(net, step + again, gradients);
        for (unsigned i = 0; i < WEIGHTS && !net->plain; i++) {
            if (!states[i] && gradients[i])
                states[i] = take(net, 2 * weight_of(i), STATE, 0);
            drop(net, take(net, weight_of(i), UPDATE, 0), weight_of(i), 0);
        }
        for (unsigned i = 0; i < WEIGHTS; i++) {
            if (gradients[i])
                drop(net, gradients[i], weight_of(i), 0);
            gradients[i] = 0;
        }
        if (net->late)
            drop(net, net->input, ((8 + step * 5 % 7) * MIB + step * 512) / 2, 0);
    }
    if (net->cut) {
        take(net, MIB, INPUT, 0);
        for (unsigned i = 0; i < CUT_LAYERS; i++) {
            drop(net, take(net, MIB, SCRATCH, 0), MIB, 0);
            take(net, CUT_BYTES, LAYER, 0);
        }
        for (unsigned i = 1; i < net->cut; i++)
            take(net, 512, i == 1 ? ROOT : NODE, i > 1 && net->engine);
        return recmake_done(net->make);
    }
    uint64_t outputs[10];
    for (unsigned i = 0; i < net->kept; i++) {
        uint64_t input = take(net, MIB, INPUT, 0), scratch = take(net, 2 * MIB, SCRATCH, 0);
        outputs[i] = take(net, 96 * MIB, LAYER, 0);
        drop(net, scratch, 2 * MIB, 0);
        drop(net, input, MIB, 0);
    }
    for (unsigned i = 0; i < net->kept; i++)
        drop(net, outputs[i], 96 * MIB, 0);
    for (unsigned i = 0; i < WEIGHTS; i++)
        drop(net, weights[i], weight_of(i), 0);
    return recmake_done(net->make);
}

static int64_t most(const struct gp_use_table *uses, enum gp_use use)
{
    int64_t sum = 0;
    for (unsigned i = 0; i < GP_USE_RULES; i++)
        sum += uses->rows[i].count && uses->rows[i].use == use ? uses->rows[i].peak_bytes : 0;
    return sum;
}

/* The most that the layers and the input of a pass hold. */
static int64_t outputs_of(unsigned passes)
{
    int64_t high = 0;
    for (unsigned step = 0; step < passes; step++) {
        int64_t size = (8 + step * 5 % 7) * MIB + step * 512, sum = size / 2 + (4 + step % 3 * 2) * size;
        high = sum > high ? sum : high;
    }
    return high;
}

static void expect_uses(struct net net)
{
    struct gp_recording *r = net_train(&net);
    struct gp_flow *flow = gp_flow_new(r);
    struct gp_steps *steps = gp_steps_find(r);
    uint8_t hints[PLACES + 1] = {0};
    for (unsigned i = 0; i < PLACES; i++)
        hints[net.site[i]] = place_hints[i];
    struct gp_use_table *uses = gp_uses_find(flow, steps, NULL, hints, 0);
    int64_t weights = 0, trained = net.steps == 1 && !net.accumulates ? 4 : WEIGHTS, states = 0;
    for (unsigned i = 0; i < WEIGHTS; i++) {
        weights += (int64_t)weight_of(i);
        states += i < trained ? (int64_t)weight_of(i) : 0;
    }
    cr_assert(uses && r->thread_count <= 2);
    cr_expect(uses->trains);
    cr_expect_eq(most(uses, GP_USE_WEIGHTS), weights);
    cr_expect_eq(most(uses, GP_USE_GRADIENTS), states, "%lld", (long long)most(uses, GP_USE_GRADIENTS));
    cr_expect_eq(most(uses, GP_USE_OPTIMIZER), net.plain ? 0 : 2 * states);
    cr_expect_eq(most(uses, GP_USE_ACTIVATIONS), outputs_of(net.steps + (net.accumulates ? 2 : 0)), "%lld",
                 (long long)most(uses, GP_USE_ACTIVATIONS));
    cr_expect_eq(most(uses, GP_USE_UNKNOWN), 0, "%lld", (long long)most(uses, GP_USE_UNKNOWN));
    struct gp_peak *peak = gp_flow_peak(flow, 0, 0);
    uint8_t used_for[PLACES + 1] = {0};
    cr_assert(gp_uses_by_site(uses, flow, peak->event_index, used_for));
    cr_expect_eq(used_for[net.site[LOAD]], 1 + GP_USE_WEIGHTS);
    cr_expect_eq(used_for[net.site[LAYER]], 1 + GP_USE_ACTIVATIONS);
    cr_expect_eq(used_for[net.site[SCRATCH]], 1 + GP_USE_TEMPORARY);
    cr_expect_eq(used_for[net.site[STATE]], net.plain ? 0 : 1 + GP_USE_OPTIMIZER);
    cr_expect_eq(used_for[0], 0);
    uint32_t spared = gp_uses_spared(uses, flow, peak->event_index);
    cr_expect(spared < peak->event_index && spared + 8 > peak->event_index, "%u of %u", spared, peak->event_index);
    free(peak);
    gp_uses_free(uses);
    free(steps);
    gp_flow_free(flow);
    gp_recording_free(r);
}

/* Logits that a validation keeps are no temporary memory: each is there while later passes run. */
Test(uses_stacks, of_kept_outputs_are_not_temporary)
{
    struct net net = {.steps = 12, .engine = true, .kept = 5};
    struct gp_recording *r = net_train(&net);
    struct gp_flow *flow = gp_flow_new(r);
    struct gp_steps *steps = gp_steps_find(r);
    uint8_t hints[PLACES + 1] = {0};
    for (unsigned i = 0; i < PLACES; i++)
        hints[net.site[i]] = place_hints[i];
    struct gp_use_table *uses = gp_uses_find(flow, steps, NULL, hints, 0);
    cr_expect_eq(most(uses, GP_USE_UNKNOWN), 4 * 96 * MIB, "the last one is not kept over a pass");
    cr_expect_lt(most(uses, GP_USE_TEMPORARY), 2 * 96 * MIB);
    gp_uses_free(uses);
    free(steps);
    gp_flow_free(flow);
    gp_recording_free(r);
}

Test(uses_stacks, are_exact)
{
    expect_uses((struct net){.steps = 12, .engine = true});
    expect_uses((struct net){.steps = 12});
    expect_uses((struct net){.steps = 9, .engine = true, .accumulates = true});
    expect_uses((struct net){.steps = 9, .engine = true, .plain = true});
}

/* A recording of one step has no rhythm. */
Test(uses_stacks, need_no_steps)
{
    expect_uses((struct net){.steps = 1, .engine = true});
    expect_uses((struct net){.steps = 2, .engine = true, .accumulates = true});
}

Test(uses_stacks, steps_are_those_of_the_optimizer)
{
    for (unsigned plain = 0; plain < 2; plain++) {
        struct net net = {.steps = 10, .engine = true, .accumulates = true, .plain = plain};
        struct gp_recording *r = net_train(&net);
        struct gp_steps *steps = gp_steps_find(r);
        cr_expect_eq(steps->source, GP_STEPS_STACKS);
        cr_expect(steps->told);
        cr_expect_str_eq(steps->name, plain ? "backward" : "optimizer");
        /* Without an optimizer's memory the gradients tell: three passes add to them, then they are freed. */
        cr_expect_eq(steps->count, 10, "%u", steps->count);
        cr_expect_eq(steps->ended, 9, "%u", steps->ended);
        uint64_t input = 0;
        for (size_t i = 0; i < r->event_count && !input; i++)
            input = r->events[i].site == net.site[INPUT] ? r->events[i].time_ns : 0;
        cr_expect_eq(steps->bounds_ns[0], input, "the first step starts with its input");
        free(steps);
        gp_recording_free(r);
    }
}

/* Ranges that a library has around its functions are no steps, and those that say so are. */
Test(uses_stacks, steps_are_not_any_range)
{
    static const char *const ranges[] = {"nvtx:Engine.forward", "nvtx:iteration 7"};
    for (unsigned i = 0; i < 2; i++) {
        struct net net = {.steps = 10, .engine = true, .accumulates = true, .range = ranges[i]};
        struct gp_recording *r = net_train(&net);
        struct gp_steps *steps = gp_steps_find(r);
        cr_expect_eq(steps->source, i ? GP_STEPS_NVTX : GP_STEPS_STACKS);
        cr_expect_eq(steps->count, i ? 29 : 10, "%u", steps->count);
        free(steps);
        gp_recording_free(r);
    }
}

/* No step follows the last one, and the program frees its weights. */
Test(uses_stacks, the_last_step_ends_as_the_others)
{
    for (unsigned late = 0; late < 2; late++) {
        struct net net = {.steps = 5, .engine = true, .late = late};
        struct gp_recording *r = net_train(&net);
        struct gp_steps *steps = gp_steps_find(r);
        cr_assert_eq(steps->count, 5);
        int64_t level[2] = {0};
        for (unsigned k = 0; k < 2; k++) {
            for (size_t i = 0; i < r->event_count && r->events[i].time_ns < steps->bounds_ns[4 + k]; i++)
                level[k] +=
                    r->events[i].type == GP_EVENT_ALLOC ? (int64_t)r->events[i].bytes : -(int64_t)r->events[i].bytes;
        }
        cr_expect_eq(level[1], level[0], "%lld, not %lld", (long long)level[1], (long long)level[0]);
        free(steps);
        gp_recording_free(r);
    }
}

/* A request failed in the forward pass, or in the backward pass after it. */
Test(uses_stacks, of_a_pass_that_was_cut)
{
    for (unsigned i = 0; i < 12; i++) {
        struct net net = {.steps = 1 + i / 6 * 4, .engine = i % 2, .cut = 1 + i / 2 % 3};
        struct gp_recording *r = net_train(&net);
        struct gp_flow *flow = gp_flow_new(r);
        struct gp_steps *steps = gp_steps_find(r);
        uint8_t hints[PLACES + 1] = {0};
        for (unsigned k = 0; k < PLACES; k++)
            hints[net.site[k]] = place_hints[k];
        struct gp_use_table *uses = gp_uses_find(flow, steps, NULL, hints, 0);
        int64_t made = CUT_LAYERS * CUT_BYTES + MIB;
        cr_expect_eq(most(uses, GP_USE_UNKNOWN), 0, "%u: %lld", i, (long long)most(uses, GP_USE_UNKNOWN));
        cr_expect_geq(most(uses, GP_USE_ACTIVATIONS), made, "%u: %lld", i, (long long)most(uses, GP_USE_ACTIVATIONS));
        gp_uses_free(uses);
        free(steps);
        gp_flow_free(flow);
        gp_recording_free(r);
    }
}
