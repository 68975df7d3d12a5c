/* SPDX-License-Identifier: MIT
 *
 * generate.h: makes traces like those of known kinds of programs, out of a seed, the same on every machine (integers
 * alone: no libm).  Called by `gpuprof generate` and by tests.
 *
 * Every generator tells a story of which published facts are known (model sizes, what a framework keeps for backward,
 * how its optimizer and its communication allocate) and leaves the rest to chance within a range that it argues for.
 */
#ifndef GP_REPLAY_GENERATE_H
#define GP_REPLAY_GENERATE_H

#include "trace.h"

#define GP_KIB (1ull << 10)
#define GP_MIB (1ull << 20)
#define GP_GIB (1ull << 30)

struct gp_gen { /* what a generator works with */
    struct gp_replay_builder builder;
    uint64_t random;
    uint64_t names;       /* given out so far; a name is never 0 */
    uint32_t scale_milli; /* length of the story, 1000 as written */
    uint32_t thread, stream;
    int rc; /* the first error; everything after it does nothing */
};

struct gp_generator {
    const char *name;
    const char *summary;
    void (*make)(struct gp_gen *g);
};

/* NULL: no such one; behind the last. */
const struct gp_generator *gp_generator_find(const char *name);
const struct gp_generator *gp_generator_at(unsigned index);

/* 0 with *trace to be freed, or -errno with a sentence and *trace empty. */
int gp_generate(struct gp_replay_trace *trace, const struct gp_generator *generator, uint64_t seed,
                uint32_t scale_milli, struct gp_replay_problem *problem);

/* ---- for the generators ------------------------------------------------------------------------------------------ */

extern const struct gp_generator gp_generator_zero3, gp_generator_lora, gp_generator_varlen, gp_generator_cnn,
    gp_generator_kv, gp_generator_diffusion, gp_generator_leak, gp_generator_article, gp_generator_gmlake;

/* On g->stream and g->thread.  The block's name; 0 for 0 bytes (no tensor). */
uint64_t gp_gen_alloc(struct gp_gen *g, uint64_t bytes);
void gp_gen_free(struct gp_gen *g, uint64_t name); /* 0: nothing */
void gp_gen_record(struct gp_gen *g, uint64_t name, uint32_t stream);
void gp_gen_other(struct gp_gen *g, enum gp_replay_kind kind, uint64_t number);
void gp_gen_mark(struct gp_gen *g, const char *name);
/* A tensor that lives for one operation. */
void gp_gen_temporary(struct gp_gen *g, uint64_t bytes);

/* `count` as written, scaled; at least `least`. */
uint32_t gp_gen_scaled(const struct gp_gen *g, uint32_t count, uint32_t least);
uint64_t gp_gen_random(struct gp_gen *g);
uint64_t gp_gen_below(struct gp_gen *g, uint64_t limit);                /* 0 .. limit - 1 */
uint64_t gp_gen_between(struct gp_gen *g, uint64_t low, uint64_t high); /* both included */
bool gp_gen_chance(struct gp_gen *g, uint32_t of_1000);
/* Log-normal: median, and sigma in thousandths. */
uint64_t gp_gen_lognormal(struct gp_gen *g, uint64_t median, uint32_t sigma_milli);

/* A stack of tensors: what a forward pass leaves for the backward pass. */
struct gp_gen_tensor {
    uint64_t name, bytes;
};
struct gp_gen_stack {
    struct gp_gen_tensor *at;
    uint32_t count, room;
};
void gp_gen_push(struct gp_gen *g, struct gp_gen_stack *stack, uint64_t bytes);                /* allocates */
void gp_gen_keep(struct gp_gen *g, struct gp_gen_stack *stack, uint64_t name, uint64_t bytes); /* a block there is */
/* Frees the topmost; 0 bytes when empty. */
struct gp_gen_tensor gp_gen_pop(struct gp_gen_stack *stack);
void gp_gen_drop(struct gp_gen *g, struct gp_gen_stack *stack); /* frees all, in the order they came, and the array */

#endif
