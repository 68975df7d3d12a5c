/* SPDX-License-Identifier: MIT
 * generate.c: the table of generators; see replay.h. */
#include "convert/replay/gen.h"
#include "convert/replay/replay.h"
#include <base/compiler.h>
#include <string.h>

extern const struct gp_generator gp_generator_zero3, gp_generator_lora, gp_generator_varlen, gp_generator_cnn,
    gp_generator_kv, gp_generator_diffusion, gp_generator_leak, gp_generator_article, gp_generator_gmlake;

static const struct gp_generator *const generators[] = {
    &gp_generator_zero3,     &gp_generator_lora, &gp_generator_varlen,  &gp_generator_cnn,    &gp_generator_kv,
    &gp_generator_diffusion, &gp_generator_leak, &gp_generator_article, &gp_generator_gmlake,
};

const struct gp_generator *gp_generate_at(unsigned index)
{
    return index < GP_COUNT(generators) ? generators[index] : NULL;
}

const struct gp_generator *gp_generate_find(const char *name)
{
    for (size_t i = 0; i < GP_COUNT(generators); i++) {
        if (strcmp(generators[i]->name, name) == 0)
            return generators[i];
    }
    return NULL;
}

int gp_generate(struct gp_replay_trace *trace, const struct gp_generator *generator, uint64_t seed,
                uint32_t scale_milli, struct gp_replay_problem *problem)
{
    struct gp_gen g = {.builder.trace = trace, .random = seed << 32, .scale_milli = scale_milli};
    memset(trace, 0, sizeof(*trace));
    memset(problem, 0, sizeof(*problem));
    trace->format = generator->name;
    generator->make(&g);
    gp_replay_builder_free(&g.builder);
    if (g.rc) {
        *problem = g.builder.problem;
        gp_replay_trace_free(trace);
    }
    return g.rc;
}
