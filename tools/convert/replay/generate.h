/* SPDX-License-Identifier: MIT
 *
 * generate.h: makes traces that resemble known kinds of programs.  A seed decides everything, so
 * the same seed gives the same trace on every machine: the generators use integers only, no libm.
 * Called by `gpuprof generate` and by tests.
 *
 * A generator follows published facts (model sizes, the tensors that a framework keeps for the
 * backward pass, the allocations of its optimizer and its communication).  Where facts are missing
 * it draws from a range, and a comment argues for the range.
 */
#ifndef GP_REPLAY_GENERATE_H
#define GP_REPLAY_GENERATE_H

#include "trace.h"

struct gp_gen;

struct gp_generator {
    const char *name;
    const char *summary;
    void (*make)(struct gp_gen *g);
};

/* The generator of this name or at this index.  NULL: no such name, or an index past the last. */
const struct gp_generator *gp_generate_find(const char *name);
const struct gp_generator *gp_generate_at(unsigned index);

/* Fills *trace, which the caller frees.  scale_milli: length, 1000 is the generator's own.  0, or
 * -errno with a sentence in *problem and an empty *trace. */
int gp_generate(struct gp_replay_trace *trace, const struct gp_generator *generator, uint64_t seed,
                uint32_t scale_milli, struct gp_replay_problem *problem);

#endif
