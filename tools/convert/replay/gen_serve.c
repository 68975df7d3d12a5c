/* SPDX-License-Identifier: MIT
 * gen_serve.c: programs that answer requests: kv-inference and diffusion.
 *
 * Requests are random, but one round of them is drawn and then repeated, so after the first round
 * an allocator meets no new sizes, as on the second day of a server. */
#include "convert/replay/gen.h"

#include <stdlib.h>

/* ---- kv-inference ------------------------------------------------------------------------------------------------
 *
 * Llama-2 7B in 16 bits: 32 layers of width 4096, so 8 KiB a token in each of 64 tensors.  The caches of keys and
 * values are contiguous and grow by concatenation, as in the frameworks' reference code: a larger tensor, a copy, the
 * old one freed.  Growth goes in steps of 64 tokens.  Lengths are log-normal with medians of 500 tokens asked and 120
 * answered (chat traces); at most 16 requests run together. */
enum { GP_KV_LAYERS = 32, GP_KV_WIDTH = 4096, GP_KV_TOGETHER = 16, GP_KV_BLOCK = 64, GP_KV_ROUND = 40 };

struct gp_request_plan {
    uint32_t arrival, prompt, answer; /* in steps of decoding; tokens */
};
struct gp_kv_request {
    uint64_t tensors[2 * GP_KV_LAYERS];
    uint32_t room, have, left;
    bool active;
};

static uint64_t kv_bytes(uint32_t tokens)
{
    return (uint64_t)tokens * GP_KV_WIDTH * GP_HALF;
}

static uint32_t kv_blocks(uint32_t tokens)
{
    return (tokens + GP_KV_BLOCK - 1) / GP_KV_BLOCK * GP_KV_BLOCK;
}

/* A prompt is processed at once: each layer has temporaries of its length, and its keys and values. */
static void kv_begin(struct gp_gen *g, struct gp_kv_request *r, const struct gp_request_plan *plan)
{
    uint64_t wide = kv_bytes(plan->prompt);
    *r = (struct gp_kv_request){
        .active = true, .have = plan->prompt, .left = plan->answer, .room = kv_blocks(plan->prompt + 1)};
    uint64_t hidden = gp_gen_alloc(g, wide);
    for (unsigned layer = 0; layer < GP_KV_LAYERS; layer++) {
        uint64_t norm = gp_gen_alloc(g, wide), query = gp_gen_alloc(g, wide);
        r->tensors[2 * layer] = gp_gen_alloc(g, kv_bytes(r->room));
        r->tensors[2 * layer + 1] = gp_gen_alloc(g, kv_bytes(r->room));
        gp_gen_free(g, norm);
        gp_gen_temporary(g, wide);
        gp_gen_free(g, query);
        uint64_t gate = gp_gen_alloc(g, wide * 11008 / 4096); /* the MLP's width */
        gp_gen_temporary(g, wide * 11008 / 4096);
        uint64_t next = gp_gen_alloc(g, wide);
        gp_gen_free(g, gate);
        gp_gen_free(g, hidden);
        hidden = next;
    }
    gp_gen_temporary(g, 32000 * 4);
    gp_gen_free(g, hidden);
}

static void kv_grow(struct gp_gen *g, struct gp_kv_request *r)
{
    r->room += GP_KV_BLOCK;
    for (unsigned i = 0; i < 2 * GP_KV_LAYERS; i++) {
        uint64_t larger = gp_gen_alloc(g, kv_bytes(r->room));
        gp_gen_free(g, r->tensors[i]);
        r->tensors[i] = larger;
    }
}

static void kv_decode(struct gp_gen *g, struct gp_kv_request *r)
{
    uint64_t hidden = gp_gen_alloc(g, GP_KV_WIDTH * GP_HALF);
    gp_gen_temporary(g, 11008 * GP_HALF);
    gp_gen_temporary(g, 32000 * 4);
    gp_gen_free(g, hidden);
    if (++r->have > r->room)
        kv_grow(g, r);
    if (--r->left > 0)
        return;
    for (unsigned i = 0; i < 2 * GP_KV_LAYERS; i++)
        gp_gen_free(g, r->tensors[i]);
    r->active = false;
}

static struct gp_kv_request *kv_place(struct gp_kv_request *requests)
{
    for (unsigned i = 0; i < GP_KV_TOGETHER; i++) {
        if (!requests[i].active)
            return &requests[i];
    }
    return NULL;
}

/* Runs until every request of the round is answered. */
static void kv_round(struct gp_gen *g, const struct gp_request_plan *plans)
{
    struct gp_kv_request requests[GP_KV_TOGETHER] = {0};
    unsigned next = 0, active = 1;
    for (uint32_t now = 0; (next < GP_KV_ROUND || active) && !g->rc; now++) {
        struct gp_kv_request *place = kv_place(requests);
        while (next < GP_KV_ROUND && place && plans[next].arrival <= now) {
            kv_begin(g, place, &plans[next++]);
            place = kv_place(requests);
        }
        active = 0;
        for (unsigned i = 0; i < GP_KV_TOGETHER; i++) {
            active += requests[i].active;
            if (requests[i].active)
                kv_decode(g, &requests[i]);
        }
    }
}

static uint32_t kv_tokens(struct gp_gen *g, uint64_t median, uint32_t most)
{
    uint64_t tokens = gp_gen_lognormal(g, median, 900);
    return tokens < 1 ? 1 : tokens > most ? most : (uint32_t)tokens;
}

static void kv_serve(struct gp_gen *g)
{
    struct gp_request_plan plans[GP_KV_ROUND];
    struct gp_gen_stack weights = {0};
    uint32_t rounds = gp_gen_scaled(g, 3, 2), now = 0;
    gp_gen_push(g, &weights, 32000ull * GP_KV_WIDTH * GP_HALF);
    for (unsigned i = 0; i < 7 * GP_KV_LAYERS; i++) /* per layer: four square matrices and three of the MLP */
        gp_gen_push(g, &weights, (i % 7 < 4 ? 4096ull : 11008ull) * GP_KV_WIDTH * GP_HALF);
    for (unsigned i = 0; i < GP_KV_ROUND; i++) {
        while (!gp_gen_chance(g, 80)) /* arrivals: Poisson, one in 12 steps */
            now++;
        plans[i] = (struct gp_request_plan){now, kv_tokens(g, 500, 3072), kv_tokens(g, 120, 768)};
    }
    for (uint32_t round = 0; round < rounds; round++) {
        gp_gen_other(g, GP_REPLAY_STEP, round);
        kv_round(g, plans);
    }
    gp_gen_drop(g, &weights);
}

/* ---- diffusion ---------------------------------------------------------------------------------------------------
 *
 * Stable Diffusion 1.5 behind a web page: pictures of mixed size and number.  A UNet of 12 blocks down, one in the
 * middle, 12 up, widths 320 to 1280, each half the side of the one before; outputs of the way down are kept for the way
 * up.  Attention works in slices that fit 1 GiB.  The decoder of the pictures works at full size and has the largest
 * tensors. */
struct gp_picture {
    uint64_t wide, high, count;
};

static void unet_block(struct gp_gen *g, uint64_t bytes, uint64_t positions, uint64_t batch, bool attends)
{
    uint64_t hidden = gp_gen_alloc(g, bytes), norm = gp_gen_alloc(g, bytes);
    gp_gen_temporary(g, batch * 1280 * GP_HALF); /* the step's embedding */
    uint64_t second = gp_gen_alloc(g, bytes);
    gp_gen_free(g, norm);
    gp_gen_temporary(g, bytes);
    gp_gen_free(g, hidden);
    if (attends) {
        uint64_t query = gp_gen_alloc(g, bytes), key = gp_gen_alloc(g, bytes), value = gp_gen_alloc(g, bytes);
        uint64_t scores = batch * 8 * positions * positions * GP_HALF, slices = 1;
        while (scores / slices > GP_GIB)
            slices *= 2;
        uint64_t output = gp_gen_alloc(g, bytes);
        for (uint64_t slice = 0; slice < slices; slice++) {
            uint64_t product = gp_gen_alloc(g, scores / slices);
            gp_gen_temporary(g, scores / slices);
            gp_gen_free(g, product);
        }
        gp_gen_free(g, query);
        gp_gen_free(g, key);
        gp_gen_free(g, value);
        uint64_t across = gp_gen_alloc(g, batch * 8 * positions * 77 * GP_HALF); /* attention to the text's 77 tokens */
        gp_gen_temporary(g, bytes);
        gp_gen_free(g, across);
        uint64_t gate = gp_gen_alloc(g, 8 * bytes); /* the MLP with its gate */
        gp_gen_temporary(g, 4 * bytes);
        gp_gen_free(g, gate);
        gp_gen_free(g, output);
    }
    gp_gen_free(g, second);
}

static void unet_step(struct gp_gen *g, const struct gp_picture *p)
{
    static const uint64_t channels[] = {320, 640, 1280, 1280};
    struct gp_gen_stack skips = {0};
    uint64_t batch = 2 * p->count; /* with and without the text: classifier-free guidance */
    uint64_t latent = gp_gen_alloc(g, batch * 4 * (p->wide / 8) * (p->high / 8) * GP_HALF);
    for (int block = 0; block < 12; block++) {
        unsigned level = (unsigned)block / 3;
        uint64_t positions = (p->wide / 8 >> level) * (p->high / 8 >> level);
        uint64_t bytes = batch * channels[level] * positions * GP_HALF;
        unet_block(g, bytes, positions, batch, level < 3 && block % 3 != 2);
        gp_gen_push(g, &skips, bytes);
    }
    for (int block = 11; block >= 0; block--) {
        unsigned level = (unsigned)block / 3;
        uint64_t positions = (p->wide / 8 >> level) * (p->high / 8 >> level);
        struct gp_gen_tensor skip = gp_gen_pop(&skips);
        uint64_t both = gp_gen_alloc(g, 2 * skip.bytes); /* the upsampled tensor and the kept one, concatenated */
        gp_gen_free(g, skip.name);
        unet_block(g, skip.bytes, positions, batch, level < 3);
        gp_gen_free(g, both);
    }
    gp_gen_free(g, latent);
    gp_gen_drop(g, &skips);
}

static void picture_decode(struct gp_gen *g, const struct gp_picture *p)
{
    static const uint64_t channels[] = {512, 512, 256, 128};
    uint64_t last = gp_gen_alloc(g, p->count * 4 * (p->wide / 8) * (p->high / 8) * GP_HALF);
    for (unsigned level = 0; level < 4; level++) {
        uint64_t pixels = (p->wide / 8 << level) * (p->high / 8 << level);
        uint64_t bytes = p->count * channels[level] * pixels * GP_HALF;
        for (unsigned unit = 0; unit < 3; unit++) {
            uint64_t norm = gp_gen_alloc(g, bytes), product = gp_gen_alloc(g, bytes);
            gp_gen_free(g, norm);
            gp_gen_free(g, last);
            last = product;
        }
    }
    gp_gen_temporary(g, p->count * 3 * p->wide * p->high * 4);
    gp_gen_free(g, last);
}

static void picture_serve(struct gp_gen *g)
{
    /* Requested sizes, mostly square; the last two are for wide screens. */
    static const struct gp_picture sizes[] = {{512, 512, 1}, {512, 512, 4}, {512, 768, 1}, {768, 512, 2}, {640, 640, 1},
                                              {768, 768, 1}, {512, 512, 2}, {896, 512, 1}, {960, 576, 1}};
    struct gp_gen_stack weights = {0};
    struct gp_picture round[10];
    uint32_t rounds = gp_gen_scaled(g, 4, 2);
    for (unsigned i = 0; i < 686; i++) /* the UNet's tensors: few large, most small; 860 M numbers */
        gp_gen_push(g, &weights, (i % 4 == 0 ? gp_gen_between(g, 2, 7) * GP_MIB : gp_gen_between(g, 1, 1600) * GP_KIB));
    for (unsigned i = 0; i < 10; i++)
        round[i] = sizes[gp_gen_chance(g, 300) ? 0 : gp_gen_below(g, 9)];
    for (uint32_t r = 0; r < rounds && !g->rc; r++) {
        for (unsigned i = 0; i < 10; i++) {
            gp_gen_other(g, GP_REPLAY_STEP, (uint64_t)r * 10 + i);
            uint64_t text = gp_gen_alloc(g, 2 * 77 * 768 * GP_HALF);
            for (unsigned step = 0; step < 8; step++)
                unet_step(g, &round[i]);
            picture_decode(g, &round[i]);
            gp_gen_free(g, text);
        }
    }
    gp_gen_drop(g, &weights);
}

const struct gp_generator gp_generator_kv = {
    "kv-inference", "Llama-2 7B, requests by chance, keys and values grown by concatenation", kv_serve};
const struct gp_generator gp_generator_diffusion = {"diffusion", "Stable Diffusion requests of mixed size and number",
                                                    picture_serve};
