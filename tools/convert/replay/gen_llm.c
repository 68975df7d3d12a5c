/* SPDX-License-Identifier: MIT
 * gen_llm.c: training of transformers as PyTorch does it in eager mode: llm-zero3, llm-lora,
 * llm-varlen.
 *
 * Autograd saves the tensors of a GPT or OPT layer with dropout and unfused attention for the
 * backward pass; sizes are those of Korthikanti et al. (Reducing Activation Recomputation in Large
 * Transformer Models, MLSys 2023): per token and layer 34 h bytes, plus 5 bytes for each score.
 * Optimizer states appear at the first step, after the first backward pass, in the holes of its
 * activations, as torch.optim creates them; gradients come and go with every step (set_to_none).
 * Batches are padded to their longest sequence, and each epoch has the same batches in the same
 * order, so no size is new after the first epoch. */
#include "convert/replay/gen.h"

#include <stdlib.h>

struct gp_llm {
    uint64_t hidden, layers, heads, ffn, vocab;
    uint64_t batch, sequence; /* of the step */
    uint64_t world;           /* GPUs that ZeRO-3 shards over; 1 none */
    uint64_t rank;            /* LoRA's; 0: all weights are trained */
    bool recompute;           /* a layer keeps only its input and runs again in the backward pass */
    bool flash;               /* attention without scores in memory */
    struct gp_gen_stack weights, adapters, gradients, moments, saved;
    uint64_t bucket, head; /* reduce bucket of ZeRO-3; shared embedding */
    uint64_t gathered[2];  /* weights of the layer at work: attention, MLP */
    uint64_t prefetched[2];
};

enum { GP_COMPUTE, GP_GATHER, GP_REDUCE }; /* streams */
enum { GP_MAIN, GP_AUTOGRAD };             /* threads: backward passes run on one of their own */

static uint64_t llm_tokens(const struct gp_llm *m)
{
    return m->batch * m->sequence;
}

/* Elements of a layer's weights: attention (query, key, value, output) and MLP (two matrices). */
static uint64_t llm_part(const struct gp_llm *m, unsigned part)
{
    return part == 0 ? 4 * m->hidden * m->hidden : 2 * m->hidden * m->ffn;
}

/* ---- ZeRO-3: weights of a layer exist while it works ------------------------------------------------------------- */

/* The next layer's weights are gathered on a stream of their own while this layer computes; every
 * buffer is recorded for the compute stream, as DeepSpeed does with record_stream. */
static void llm_prefetch(struct gp_gen *g, struct gp_llm *m)
{
    if (m->world == 1)
        return;
    g->stream = GP_GATHER;
    for (unsigned part = 0; part < 2; part++) {
        m->prefetched[part] = gp_gen_alloc(g, llm_part(m, part) * GP_HALF);
        gp_gen_record(g, m->prefetched[part], GP_COMPUTE);
        gp_gen_temporary(g, llm_part(m, part) * GP_HALF / m->world); /* the contiguous shard that is sent */
    }
    g->stream = GP_COMPUTE;
}

static void llm_arrive(struct gp_llm *m)
{
    for (unsigned part = 0; part < 2; part++) {
        m->gathered[part] = m->prefetched[part];
        m->prefetched[part] = 0;
    }
}

static void llm_release(struct gp_gen *g, struct gp_llm *m, unsigned part)
{
    gp_gen_free(g, m->gathered[part]);
    m->gathered[part] = 0;
}

/* Gradients of one part of a layer: a full one for each matrix, copied into the bucket.  The bucket
 * is reduced and scattered on a third stream when the layer is done. */
static void llm_reduce(struct gp_gen *g, struct gp_llm *m, unsigned part)
{
    unsigned matrices = part == 0 ? 4 : 2;
    for (unsigned i = 0; i < matrices; i++) {
        uint64_t gradient = gp_gen_alloc(g, llm_part(m, part) / matrices * GP_HALF);
        gp_gen_record(g, gradient, GP_REDUCE);
        gp_gen_free(g, gradient);
    }
    if (part == 0) {
        g->stream = GP_REDUCE;
        uint64_t shard = gp_gen_alloc(g, (llm_part(m, 0) + llm_part(m, 1)) * GP_HALF / m->world);
        gp_gen_temporary(g, (llm_part(m, 0) + llm_part(m, 1)) * GP_SINGLE / m->world);
        gp_gen_free(g, shard);
        g->stream = GP_COMPUTE;
    }
}

/* ---- one layer --------------------------------------------------------------------------------------------------- */

/* A matrix product with a low-rank branch beside it: its small activation is kept, its large result
 * is added. */
static void llm_adapter(struct gp_gen *g, struct gp_llm *m, struct gp_gen_stack *saved)
{
    if (!m->rank)
        return;
    uint64_t tokens = llm_tokens(m);
    gp_gen_push(g, saved, tokens * m->hidden * GP_HALF); /* its input behind dropout */
    gp_gen_push(g, saved, tokens * m->rank * GP_HALF);
    gp_gen_temporary(g, tokens * m->hidden * GP_HALF);
}

static void llm_scores(struct gp_gen *g, struct gp_llm *m, struct gp_gen_stack *saved)
{
    uint64_t scores = m->batch * m->heads * m->sequence * m->sequence;
    if (m->flash) {
        gp_gen_push(g, saved, m->batch * m->heads * m->sequence * GP_SINGLE); /* log-sum-exp of each row */
        return;
    }
    uint64_t product = gp_gen_alloc(g, scores * GP_HALF);
    uint64_t masked = gp_gen_alloc(g, scores * GP_HALF);
    gp_gen_free(g, product);
    gp_gen_push(g, saved, scores * GP_HALF); /* softmax */
    gp_gen_free(g, masked);
    gp_gen_push(g, saved, scores); /* dropout's mask and its output */
    gp_gen_push(g, saved, scores * GP_HALF);
}

static void llm_attention(struct gp_gen *g, struct gp_llm *m, struct gp_gen_stack *saved)
{
    uint64_t wide = llm_tokens(m) * m->hidden * GP_HALF, row = llm_tokens(m) * GP_SINGLE;
    gp_gen_push(g, saved, wide); /* layer norm */
    gp_gen_push(g, saved, row);
    gp_gen_push(g, saved, row);
    for (unsigned i = 0; i < 3; i++) { /* query, key, value: a product, its bias, its transpose */
        uint64_t product = gp_gen_alloc(g, wide);
        if (i != 1)
            llm_adapter(g, m, saved);
        gp_gen_push(g, saved, wide);
        gp_gen_free(g, product);
    }
    llm_scores(g, m, saved);
    uint64_t context = gp_gen_alloc(g, wide);
    gp_gen_push(g, saved, wide);
    gp_gen_free(g, context);
    uint64_t output = gp_gen_alloc(g, wide);
    gp_gen_push(g, saved, wide / 2); /* dropout's mask: one byte per element */
    gp_gen_temporary(g, wide);
    gp_gen_free(g, output);
}

static void llm_mlp(struct gp_gen *g, struct gp_llm *m, struct gp_gen_stack *saved)
{
    uint64_t wide = llm_tokens(m) * m->hidden * GP_HALF, row = llm_tokens(m) * GP_SINGLE;
    uint64_t inner = llm_tokens(m) * m->ffn * GP_HALF;
    gp_gen_push(g, saved, wide);
    gp_gen_push(g, saved, row);
    gp_gen_push(g, saved, row);
    gp_gen_push(g, saved, inner); /* before and behind the activation function */
    gp_gen_push(g, saved, inner);
    uint64_t output = gp_gen_alloc(g, wide);
    gp_gen_push(g, saved, wide / 2);
    gp_gen_temporary(g, wide);
    gp_gen_free(g, output);
}

/* Pops the tensors that one layer saved: each gradient is computed from the following one and a
 * saved tensor. */
static uint64_t llm_backward(struct gp_gen *g, struct gp_llm *m, struct gp_gen_stack *saved, uint32_t down_to,
                             uint64_t gradient)
{
    uint32_t middle = down_to + (saved->count - down_to) * 2 / 3; /* the MLP's part lies on top */
    while (saved->count > down_to) {
        struct gp_gen_tensor tensor = gp_gen_pop(saved);
        uint64_t next = gp_gen_alloc(g, tensor.bytes);
        gp_gen_free(g, tensor.name);
        gp_gen_free(g, gradient);
        gradient = next;
        if (m->world > 1 && saved->count == middle) {
            llm_reduce(g, m, 1);
            llm_release(g, m, 1);
        }
    }
    if (m->world > 1) {
        llm_reduce(g, m, 0);
        llm_release(g, m, 0);
    } else if (!m->rank) {
        for (unsigned i = 0; i < 4; i++)
            gp_gen_push(g, &m->gradients, m->hidden * m->hidden * GP_HALF);
        gp_gen_push(g, &m->gradients, m->hidden * m->ffn * GP_HALF);
        gp_gen_push(g, &m->gradients, m->hidden * m->ffn * GP_HALF);
        for (unsigned i = 0; i < 10; i++) /* biases and norms */
            gp_gen_push(g, &m->gradients, (i == 0 ? m->ffn : m->hidden) * GP_HALF);
    } else {
        for (unsigned i = 0; i < 4; i++)
            gp_gen_push(g, &m->gradients, m->hidden * m->rank * GP_SINGLE);
    }
    return gradient;
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static void llm_forward(struct gp_gen *g, struct gp_llm *m, struct gp_gen_stack *inputs)
{
    uint64_t wide = llm_tokens(m) * m->hidden * GP_HALF;
    llm_prefetch(g, m);
    for (uint64_t layer = 0; layer < m->layers; layer++) {
        struct gp_gen_stack local = {0};
        struct gp_gen_stack *saved = m->recompute ? &local : &m->saved;
        llm_arrive(m);
        if (layer + 1 < m->layers)
            llm_prefetch(g, m);
        gp_gen_push(g, inputs, wide); /* the residual stream */
        llm_attention(g, m, saved);
        llm_release(g, m, 0);
        llm_mlp(g, m, saved);
        llm_release(g, m, 1);
        gp_gen_drop(g, &local);
    }
}

static void llm_all_backward(struct gp_gen *g, struct gp_llm *m, struct gp_gen_stack *inputs, uint64_t gradient)
{
    uint32_t per_layer = m->layers ? m->saved.count / (uint32_t)m->layers : 0;
    g->thread = GP_AUTOGRAD;
    llm_prefetch(g, m);
    for (uint64_t layer = m->layers; layer-- > 0;) {
        llm_arrive(m);
        if (layer > 0)
            llm_prefetch(g, m);
        if (m->recompute) {
            struct gp_gen_stack again = {0};
            llm_attention(g, m, &again);
            llm_mlp(g, m, &again);
            gradient = llm_backward(g, m, &again, 0, gradient);
            gp_gen_drop(g, &again);
        } else {
            gradient = llm_backward(g, m, &m->saved, (uint32_t)layer * per_layer, gradient);
        }
        gp_gen_free(g, gp_gen_pop(inputs).name);
    }
    gp_gen_free(g, gradient);
    g->thread = GP_MAIN;
}

/* Scores over the vocabulary, in 16 and in 32 bits, their loss and its gradient: the largest
 * tensors of a step. */
static uint64_t llm_loss(struct gp_gen *g, struct gp_llm *m)
{
    uint64_t words = llm_tokens(m) * m->vocab;
    uint64_t logits = gp_gen_alloc(g, words * GP_HALF), upcast = gp_gen_alloc(g, words * GP_SINGLE);
    uint64_t soft = gp_gen_alloc(g, words * GP_SINGLE), loss = gp_gen_alloc(g, GP_SINGLE);
    gp_gen_free(g, upcast);
    uint64_t gradient = gp_gen_alloc(g, words * GP_SINGLE);
    gp_gen_free(g, soft);
    uint64_t half = gp_gen_alloc(g, words * GP_HALF);
    gp_gen_free(g, gradient);
    gp_gen_free(g, logits);
    uint64_t hidden = gp_gen_alloc(g, llm_tokens(m) * m->hidden * GP_HALF);
    if (!m->rank && m->world == 1)
        gp_gen_push(g, &m->gradients, m->vocab * m->hidden * GP_HALF);
    gp_gen_free(g, half);
    gp_gen_free(g, loss);
    return hidden;
}

/* Adam.  When all weights are trained, the first step creates two moments and a 32-bit copy for
 * each gradient. */
static void llm_optimize(struct gp_gen *g, struct gp_llm *m)
{
    bool first = m->moments.count == 0;
    for (uint32_t i = 0; i < m->gradients.count; i++) {
        uint64_t wide = m->gradients.at[i].bytes * (m->rank ? 1 : 2);
        for (unsigned copy = 0; first && copy < (m->rank ? 2u : 3u); copy++)
            gp_gen_push(g, &m->moments, wide);
        uint64_t upcast = gp_gen_alloc(g, wide), root = gp_gen_alloc(g, wide);
        gp_gen_free(g, upcast);
        gp_gen_temporary(g, wide);
        gp_gen_free(g, root);
    }
    if (m->world > 1) { /* the shard, in groups of layers */
        uint64_t shard = (llm_part(m, 0) + llm_part(m, 1)) / m->world * GP_SINGLE;
        for (uint64_t layer = 0; layer < m->layers; layer++) {
            for (unsigned copy = 0; first && copy < 3; copy++)
                gp_gen_push(g, &m->moments, shard);
            uint64_t upcast = gp_gen_alloc(g, shard), root = gp_gen_alloc(g, shard);
            gp_gen_free(g, root);
            gp_gen_free(g, upcast);
        }
    }
}

static void llm_step(struct gp_gen *g, struct gp_llm *m)
{
    struct gp_gen_stack inputs = {0};
    uint64_t ids = gp_gen_alloc(g, llm_tokens(m) * 8), mask = gp_gen_alloc(g, llm_tokens(m) * 8);
    uint64_t causal = gp_gen_alloc(g, m->flash ? 0 : m->batch * m->sequence * m->sequence * GP_HALF);
    llm_forward(g, m, &inputs);
    uint64_t gradient = llm_loss(g, m);
    llm_all_backward(g, m, &inputs, gradient);
    gp_gen_free(g, causal);
    gp_gen_free(g, mask);
    gp_gen_free(g, ids);
    gp_gen_temporary(g, 4); /* the norm of all gradients, for clipping */
    llm_optimize(g, m);
    gp_gen_drop(g, &m->gradients);
    gp_gen_drop(g, &inputs);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

/* Weights are loaded one matrix after the other; with ZeRO-3 each is complete for a moment and then
 * split (zero.Init). */
static void llm_load(struct gp_gen *g, struct gp_llm *m)
{
    m->head = gp_gen_alloc(g, m->vocab * m->hidden * GP_HALF / m->world);
    for (uint64_t layer = 0; layer < m->layers; layer++) {
        for (unsigned part = 0; part < 6; part++) {
            uint64_t bytes = (part < 4 ? m->hidden * m->hidden : m->hidden * m->ffn) * GP_HALF;
            if (m->world == 1) {
                gp_gen_push(g, &m->weights, bytes);
                continue;
            }
            uint64_t whole = gp_gen_alloc(g, bytes);
            gp_gen_push(g, &m->weights, bytes / m->world);
            gp_gen_free(g, whole);
        }
        for (unsigned i = 0; i < 10; i++)
            gp_gen_push(g, &m->weights, (i == 0 ? m->ffn : m->hidden) * GP_HALF);
    }
    for (uint64_t i = 0; m->rank && i < 4 * m->layers; i++)
        gp_gen_push(g, &m->adapters, m->hidden * m->rank * GP_SINGLE);
    if (m->world >
        1) /* a bucket of 5e7 numbers, a tenth of DeepSpeed's default, as its guides for small models recommend */
        m->bucket = gp_gen_alloc(g, 50000000 * GP_HALF);
}

/* Lengths of an epoch's batches: the longest sequence of each, rounded up to 8 for tensor cores. */
static void llm_train(struct gp_gen *g, struct gp_llm *m, uint32_t batches, uint32_t epochs, uint64_t median,
                      uint32_t sigma_milli, uint64_t longest)
{
    uint64_t lengths[64];
    llm_load(g, m);
    for (uint32_t b = 0; b < batches; b++) {
        lengths[b] = 0;
        for (uint64_t i = 0; i < m->batch; i++) {
            uint64_t length = gp_gen_lognormal(g, median, sigma_milli);
            if (length > lengths[b])
                lengths[b] = length;
        }
        lengths[b] = lengths[b] > longest ? longest : (lengths[b] + 7) & ~7ull;
    }
    for (uint32_t epoch = 0; epoch < epochs; epoch++) {
        for (uint32_t b = 0; b < batches && !g->rc; b++) {
            gp_gen_other(g, GP_REPLAY_STEP, (uint64_t)epoch * batches + b);
            m->sequence = lengths[b];
            llm_step(g, m);
        }
    }
    gp_gen_free(g, m->bucket);
    gp_gen_drop(g, &m->moments);
    gp_gen_drop(g, &m->adapters);
    gp_gen_drop(g, &m->weights);
    gp_gen_free(g, m->head);
    free(m->saved.at);
}

/* OPT-1.3B over four GPUs with recomputation: GMLake's headline experiment (DeepSpeed ZeRO-3,
 * utilisation 64 %). */
static void llm_zero3(struct gp_gen *g)
{
    struct gp_llm m = {.hidden = 2048, .layers = 24, .heads = 32, .ffn = 8192, .vocab = 50272};
    m.batch = 16;
    m.world = 4;
    m.recompute = true;
    llm_train(g, &m, 6, gp_gen_scaled(g, 4, 2), 180, 400, 512);
}

/* OPT-6.7B frozen, adapters of rank 16 on query and value, recomputation. */
static void llm_lora(struct gp_gen *g)
{
    struct gp_llm m = {.hidden = 4096, .layers = 32, .heads = 32, .ffn = 16384, .vocab = 50272};
    m.batch = 8;
    m.world = 1;
    m.rank = 16;
    m.recompute = true;
    llm_train(g, &m, 6, gp_gen_scaled(g, 4, 2), 160, 500, 640);
}

/* A model of the size of GPT-2 medium that keeps everything, with lengths as in chat data: few
 * long, many short. */
static void llm_varlen(struct gp_gen *g)
{
    struct gp_llm m = {.hidden = 1024, .layers = 24, .heads = 16, .ffn = 4096, .vocab = 50257};
    m.batch = 8;
    m.world = 1;
    llm_train(g, &m, 8, gp_gen_scaled(g, 4, 2), 120, 700, 768);
}

const struct gp_generator gp_generator_zero3 = {
    "llm-zero3", "OPT-1.3B, ZeRO-3 over 4 GPUs, recomputation: gathers on a side stream", llm_zero3};
const struct gp_generator gp_generator_lora = {
    "llm-lora", "OPT-6.7B frozen, LoRA adapters, recomputation, padded batches", llm_lora};
const struct gp_generator gp_generator_varlen = {
    "llm-varlen", "a model like GPT-2 medium, lengths as in chat data (log-normal)", llm_varlen};
