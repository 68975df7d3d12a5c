/* SPDX-License-Identifier: MIT
 * gen_cnn.c: training of convolutional networks: cnn, and leak, a training loop with one wrong
 * branch.
 *
 * cnn is ResNet-50 (He et al., 2015: four stages of 3, 4, 6, 3 bottlenecks) in 32 bits, as
 * torchvision writes it: convolution and normalisation keep their inputs for backward, ReLU works
 * in place.  Each convolution asks for a workspace whose size the library chose for this layer and
 * batch size; the first step of each shape tries several (cudnn.benchmark). An epoch ends with a
 * smaller batch and an evaluation in larger batches without gradients. */
#include "convert/replay/gen.h"

#include <stdlib.h>

struct gp_cnn {
    uint64_t batch;
    bool training, first; /* first: the first step of this shape */
    struct gp_gen_stack weights, saved, gradients, moments;
    uint64_t seed; /* of the workspace sizes, which are the same at every step */
};

/* The fast algorithms of a library need up to some dozen MiB; half of the layers need almost
 * nothing. */
static uint64_t cnn_workspace(const struct gp_cnn *n, uint64_t layer, unsigned pass)
{
    struct gp_gen chance = {.random = n->seed + layer * 31 + pass * 7 + n->batch * 1009};
    gp_gen_random(&chance);
    if (gp_gen_chance(&chance, 500))
        return gp_gen_between(&chance, 1, 64) * GP_KIB;
    return gp_gen_between(&chance, GP_MIB, 48 * GP_MIB);
}

static void cnn_try(struct gp_gen *g, const struct gp_cnn *n, uint64_t layer, unsigned pass)
{
    for (unsigned algorithm = 0; n->first && algorithm < 3; algorithm++)
        gp_gen_temporary(g, cnn_workspace(n, layer + 1000 * (algorithm + 1), pass) * 2);
}

/* A convolution, its normalisation, ReLU in place.  Returns the output. */
static uint64_t cnn_unit(struct gp_gen *g, struct gp_cnn *n, uint64_t layer, uint64_t channels, uint64_t side,
                         uint64_t input)
{
    uint64_t bytes = n->batch * channels * side * side * GP_SINGLE;
    cnn_try(g, n, layer, 0);
    uint64_t product = gp_gen_alloc(g, bytes);
    gp_gen_temporary(g, cnn_workspace(n, layer, 0));
    uint64_t output = gp_gen_alloc(g, bytes);
    if (!n->training) {
        gp_gen_free(g, input);
        gp_gen_free(g, product);
        return output;
    }
    gp_gen_push(g, &n->saved, channels * GP_SINGLE); /* mean, deviation */
    gp_gen_push(g, &n->saved, channels * GP_SINGLE);
    gp_gen_keep(g, &n->saved, product, bytes);
    gp_gen_keep(g, &n->saved, output, bytes);
    return 0;
}

static const struct {
    uint64_t blocks, middle, side;
} gp_cnn_stages[] = {{3, 64, 56}, {4, 128, 28}, {6, 256, 14}, {3, 512, 7}};

static void cnn_forward(struct gp_gen *g, struct gp_cnn *n)
{
    uint64_t layer = 1, last = gp_gen_alloc(g, n->batch * 3 * 224 * 224 * GP_SINGLE); /* the images */
    if (n->training)
        gp_gen_keep(g, &n->saved, last, n->batch * 3 * 224 * 224 * GP_SINGLE);
    last = cnn_unit(g, n, 0, 64, 112, n->training ? 0 : last);
    for (unsigned s = 0; s < 4; s++) {
        for (uint64_t b = 0; b < gp_cnn_stages[s].blocks; b++) {
            uint64_t middle = gp_cnn_stages[s].middle, side = gp_cnn_stages[s].side, shortcut = 0;
            if (b == 0)
                shortcut = cnn_unit(g, n, layer++, 4 * middle, side, 0);
            uint64_t skip = n->training ? 0 : last;
            last = cnn_unit(g, n, layer++, middle, side, 0);
            last = cnn_unit(g, n, layer++, middle, side, last);
            last = cnn_unit(g, n, layer++, 4 * middle, side, last);
            gp_gen_free(g, skip);
            gp_gen_free(g, shortcut);
        }
    }
    gp_gen_free(g, last);
}

static void cnn_backward(struct gp_gen *g, struct gp_cnn *n)
{
    uint64_t layer = 0;
    g->thread = 1; /* autograd's */
    uint64_t gradient = gp_gen_alloc(g, n->batch * 2048 * GP_SINGLE);
    while (n->saved.count) {
        struct gp_gen_tensor tensor = gp_gen_pop(&n->saved);
        uint64_t next = gp_gen_alloc(g, tensor.bytes);
        if (n->saved.count % 4 == 2) { /* the convolution of a unit: gradients of its input and of its weights */
            cnn_try(g, n, layer, 1);
            gp_gen_temporary(g, cnn_workspace(n, layer, 1));
            if (layer < n->weights.count)
                gp_gen_push(g, &n->gradients, n->weights.at[n->weights.count - 1 - layer].bytes);
            gp_gen_temporary(g, cnn_workspace(n, layer, 2));
            layer++;
        }
        gp_gen_free(g, tensor.name);
        gp_gen_free(g, gradient);
        gradient = next;
    }
    gp_gen_free(g, gradient);
    g->thread = 0;
}

static void cnn_step(struct gp_gen *g, struct gp_cnn *n)
{
    cnn_forward(g, n);
    if (!n->training)
        return;
    cnn_backward(g, n);
    /* SGD with momentum; the first step creates its buffers. */
    for (uint32_t i = 0; i < n->gradients.count; i++) {
        if (n->moments.count < n->gradients.count)
            gp_gen_push(g, &n->moments, n->gradients.at[i].bytes);
        gp_gen_temporary(g, n->gradients.at[i].bytes);
    }
    gp_gen_drop(g, &n->gradients);
}

static void cnn_load(struct gp_gen *g, struct gp_cnn *n)
{
    uint64_t before = 64;
    gp_gen_push(g, &n->weights, 64 * 3 * 49 * GP_SINGLE);
    for (unsigned s = 0; s < 4; s++) {
        for (uint64_t b = 0; b < gp_cnn_stages[s].blocks; b++) {
            uint64_t middle = gp_cnn_stages[s].middle;
            if (b == 0)
                gp_gen_push(g, &n->weights, before * 4 * middle * GP_SINGLE);
            gp_gen_push(g, &n->weights, before * middle * GP_SINGLE);
            gp_gen_push(g, &n->weights, middle * middle * 9 * GP_SINGLE);
            gp_gen_push(g, &n->weights, middle * 4 * middle * GP_SINGLE);
            before = 4 * middle;
        }
    }
    gp_gen_push(g, &n->weights, 2048 * 1000 * GP_SINGLE);
}

static void cnn_train(struct gp_gen *g)
{
    struct gp_cnn n = {.seed = gp_gen_random(g)};
    uint32_t epochs = gp_gen_scaled(g, 4, 2);
    uint64_t step = 0;
    cnn_load(g, &n);
    for (uint32_t epoch = 0; epoch < epochs && !g->rc; epoch++) {
        gp_gen_mark(g, "epoch");
        for (uint32_t i = 0; i < 13; i++) {
            /* twelve full batches and the rest of the data */
            n.batch = i < 12 ? 64 : 37;
            n.training = true;
            n.first = epoch == 0 && (i == 0 || i == 12);
            gp_gen_other(g, GP_REPLAY_STEP, step++);
            cnn_step(g, &n);
        }
        for (uint32_t i = 0; i < 4; i++) {
            n.batch = 192;
            n.training = false;
            n.first = epoch == 0 && i == 0;
            cnn_step(g, &n);
        }
    }
    gp_gen_drop(g, &n.moments);
    gp_gen_drop(g, &n.weights);
    free(n.saved.at);
}

/* From a report to Paddle: the forward pass has an if-branch that appends a tensor to a list of the
 * model, for inspection.  Nothing clears the list, so each visit of the branch keeps one activation
 * and its graph.  Here every seventh step takes the branch.  Memory grows without end under any
 * allocator. */
static void cnn_leak(struct gp_gen *g)
{
    struct gp_cnn n = {.seed = gp_gen_random(g), .batch = 16, .training = true};
    struct gp_gen_stack leaked = {0};
    uint32_t steps = gp_gen_scaled(g, 70, 14);
    cnn_load(g, &n);
    for (uint32_t step = 0; step < steps && !g->rc; step++) {
        gp_gen_other(g, GP_REPLAY_STEP, step);
        n.first = step == 0;
        cnn_forward(g, &n);
        if (step % 7 == 6) {
            gp_gen_mark(g, "branch");
            for (unsigned i = 0; i < 9; i++) /* the last block: three units of three tensors each */
                gp_gen_push(g, &leaked, n.batch * (i % 3 == 2 ? 2048 : 512) * 49 * GP_SINGLE);
        }
        cnn_backward(g, &n);
        for (uint32_t i = 0; i < n.gradients.count; i++) {
            if (n.moments.count < n.gradients.count)
                gp_gen_push(g, &n.moments, n.gradients.at[i].bytes);
            gp_gen_temporary(g, n.gradients.at[i].bytes);
        }
        gp_gen_drop(g, &n.gradients);
    }
    gp_gen_drop(g, &leaked);
    gp_gen_drop(g, &n.moments);
    gp_gen_drop(g, &n.weights);
    free(n.saved.at);
}

const struct gp_generator gp_generator_cnn = {"cnn", "ResNet-50, 32 bits, with evaluation after each epoch", cnn_train};
const struct gp_generator gp_generator_leak = {
    "leak", "a training loop with an if-branch that keeps tensors (after a report to Paddle)", cnn_leak};
