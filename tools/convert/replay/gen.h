/* SPDX-License-Identifier: MIT
 *
 * gen.h: what a generator of traces (replay.h) works with.  Every function does nothing after the
 * first error, so a generator needs no error handling of its own.  One thread per gp_gen.
 */
#ifndef GP_CONVERT_REPLAY_GEN_H
#define GP_CONVERT_REPLAY_GEN_H

#include "convert/replay/replay.h"
#include <stdbool.h>
#include <stdint.h>

#define GP_KIB (1ull << 10)
#define GP_MIB (1ull << 20)
#define GP_GIB (1ull << 30)
/* Bytes of a 16-bit and of a 32-bit number. */
#define GP_HALF   2ull
#define GP_SINGLE 4ull

struct gp_gen {
    struct gp_replay_builder builder;
    uint64_t random;
    uint64_t names;       /* block names used so far; a name is never 0 */
    uint32_t scale_milli; /* length of the trace; 1000: as written */
    uint32_t thread, stream;
    int rc; /* the first error */
};

/* Allocates on g->stream and g->thread.  Returns the block's name; 0 for 0 bytes (no tensor). */
uint64_t gp_gen_alloc(struct gp_gen *g, uint64_t bytes);
void gp_gen_free(struct gp_gen *g, uint64_t name); /* name 0 does nothing */
void gp_gen_record(struct gp_gen *g, uint64_t name, uint32_t stream);
void gp_gen_other(struct gp_gen *g, enum gp_replay_kind kind, uint64_t number);
void gp_gen_mark(struct gp_gen *g, const char *name);
/* A tensor that lives for one operation. */
void gp_gen_temporary(struct gp_gen *g, uint64_t bytes);

/* `count` times the scale, at least `least`. */
uint32_t gp_gen_scaled(const struct gp_gen *g, uint32_t count, uint32_t least);
uint64_t gp_gen_random(struct gp_gen *g);
uint64_t gp_gen_below(struct gp_gen *g, uint64_t limit);                /* 0 .. limit - 1 */
uint64_t gp_gen_between(struct gp_gen *g, uint64_t low, uint64_t high); /* both included */
bool gp_gen_chance(struct gp_gen *g, uint32_t of_1000);
/* Log-normal: median, and sigma in thousandths. */
uint64_t gp_gen_lognormal(struct gp_gen *g, uint64_t median, uint32_t sigma_milli);

/* A stack of tensors, which a forward pass keeps for the backward pass. */
struct gp_gen_tensor {
    uint64_t name, bytes;
};
struct gp_gen_stack {
    struct gp_gen_tensor *at;
    uint32_t count, room;
};
void gp_gen_push(struct gp_gen *g, struct gp_gen_stack *stack, uint64_t bytes);                /* allocates */
void gp_gen_keep(struct gp_gen *g, struct gp_gen_stack *stack, uint64_t name, uint64_t bytes); /* an existing block */
/* Removes the topmost tensor; the caller frees it.  0 bytes when the stack is empty. */
struct gp_gen_tensor gp_gen_pop(struct gp_gen_stack *stack);
void gp_gen_drop(struct gp_gen *g, struct gp_gen_stack *stack); /* frees all tensors, oldest first, and the array */

#endif
