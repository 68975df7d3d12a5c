/* SPDX-License-Identifier: MIT
 * train_fixture.h: helpers for recordings made by hand, and recordings of a training program with
 * and without a leak. */
#ifndef GP_TEST_UNIT_TRAIN_FIXTURE_H
#define GP_TEST_UNIT_TRAIN_FIXTURE_H

#include <lib/random.h>
#include <lib/recmake.h>

#define MS  1000000ull
#define MIB (1ll << 20)
#define GIB (1ll << 30)

static inline uint32_t site(struct recmake *make, const char *function, uint32_t line)
{
    struct recmake_frame frames[] = {{function, "model.py", line}, {"main", "train.py", 7}, {NULL, NULL, 0}};
    return recmake_site(make, GP_KIND_LINEAR, frames);
}

/* ---- a training program ------------------------------------------------------------------------------------------ */

#define SITES 400u

struct training {
    unsigned steps;
    bool marks, leak, noise, stacks;
    uint64_t seed;
};

/* Several hundred sites that allocate as a training program does: parameters that stay, activations
 * of changing sizes, double buffers, caches that fill in the first steps, temporary workspaces.
 * With `leak` there is also a branch that keeps its blocks, about 100 MB in two of three steps;
 * *leaker is its site. */
static inline struct gp_recording *train(const struct training *setup, uint32_t *leaker)
{
    struct recmake *make = recmake_new(16 * GIB);
    uint32_t sites[SITES], keeps[2];
    uint64_t seed = setup->seed * 2654435761u + 1, address = 0x7f0000000000ull, at = 1000, buffer[SITES] = {0};
    for (unsigned i = 0; i < SITES; i++)
        sites[i] = setup->stacks ? site(make, "layer", i) : 0;
    keeps[0] = setup->stacks ? site(make, "inner_branch", 77) : 0;
    keeps[1] = setup->stacks ? site(make, "outputs", 78) : 0;
    *leaker = keeps[0];
    for (unsigned i = 0; i < SITES; i += 2) { /* parameters */
        recmake_at(make, at++ * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, 4 * MIB, sites[i]);
    }
    for (unsigned step = 0; step < setup->steps; step++) {
        uint64_t out[SITES] = {0};
        recmake_at(make, at * MS);
        if (setup->marks)
            recmake_mark(make, "step");
        for (unsigned i = 0; i < SITES; i++) {
            recmake_at(make, at++ * MS);
            uint64_t bytes = (uint64_t)MIB + (setup->noise ? random_next(&seed) % (4 * MIB) : i * 4096);
            unsigned role = i % 8;
            if (role == 7 && step > (i / 8) % 7) /* a cache: one entry per step until it is full */
                continue;
            if (role == 6 && random_next(&seed) % 4) /* a workspace: in one of four steps */
                continue;
            recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB, bytes, sites[i]);
            if (role == 5 && buffer[i]) /* a double buffer: the new one is allocated before the old one is freed */
                recmake_free(make, 0, GP_KIND_LINEAR, buffer[i]);
            buffer[i] = address;
            out[i] = role == 5 || role == 7 ? 0 : address;
        }
        if (setup->leak && step > 0 && (step == 1 || random_next(&seed) % 3)) {
            for (unsigned k = 0; k < 2; k++) {
                recmake_at(make, at++ * MS);
                recmake_alloc(make, 0, GP_KIND_LINEAR, address += GIB,
                              (uint64_t)((k ? 4 : 90) * MIB) + random_next(&seed) % (20 * MIB) / (k ? 9 : 1), keeps[k]);
            }
        }
        for (unsigned i = SITES; i-- > 0;) {
            recmake_at(make, at++ * MS);
            if (out[i])
                recmake_free(make, 0, GP_KIND_LINEAR, out[i]);
        }
    }
    recmake_at(make, at * MS);
    if (setup->marks)
        recmake_mark(make, "step");
    return recmake_done(make);
}

#endif
