/* SPDX-License-Identifier: MIT
 * gen_story.c: two published cases, to the byte: oom-article and gmlake.  Short, and the same
 * for every seed.  See replay.h; generate.c has the table. */
#include "convert/replay/gen.h"
#include <base/compiler.h>

/* A page about an out-of-memory message on a shared GPU: 10.63 GiB reserved, 7.92 GiB allocated, and 1 GiB refused.
 * 27 segments of 202 MiB hold a live block of 102 MiB each, one of 178 MiB another; five of 1 GiB and one of 134 MiB
 * are full.  A live block is larger than every hole before it, so that best fit puts it into the newest segment:
 *      reserved   27 x 202 + 178 + 5 x 1024 + 134 = 10886 MiB = 10.63 GiB
 *      allocated  28 x 102       + 5 x 1024 + 134 =  8110 MiB =  7.92 GiB
 *      idle       27 x 100 + 76                   =  2776 MiB =  2.71 GiB, the largest piece 100 MiB
 * The limit of 11.25 GiB = 11520 MiB leaves 634 MiB: 1 GiB fits what is free, but no place. */
static void story_article(struct gp_gen *g)
{
    struct gp_gen_stack weights = {0}, live = {0};
    gp_gen_other(g, GP_REPLAY_LIMIT, 11520 * GP_MIB);
    for (unsigned i = 0; i < 5; i++)
        gp_gen_push(g, &weights, 1024 * GP_MIB);
    gp_gen_push(g, &weights, 134 * GP_MIB);
    for (unsigned i = 0; i < 28; i++) {
        /* A picture's large tensor; then, in its place, something smaller that stays. */
        gp_gen_temporary(g, (i < 27 ? 202 : 178) * GP_MIB);
        gp_gen_push(g, &live, 102 * GP_MIB);
    }
    gp_gen_mark(g, "10.63 GiB reserved, 7.92 GiB allocated: 1 GiB");
    gp_gen_temporary(g, GP_GIB);
    gp_gen_drop(g, &live);
    gp_gen_drop(g, &weights);
}

/* GMLake's figure: a segment of 256 MiB in pieces of 28, 100, 28 and 100 MiB; both of 100 MiB go,
 * 160 MiB are asked for. */
static void story_gmlake(struct gp_gen *g)
{
    uint64_t pieces[4];
    gp_gen_temporary(g, 256 * GP_MIB);
    for (unsigned i = 0; i < 4; i++)
        pieces[i] = gp_gen_alloc(g, (i % 2 ? 100 : 28) * GP_MIB);
    gp_gen_free(g, pieces[1]);
    gp_gen_free(g, pieces[3]);
    gp_gen_mark(g, "200 MiB idle in two pieces: 160 MiB");
    gp_gen_temporary(g, 160 * GP_MIB);
    gp_gen_free(g, pieces[0]);
    gp_gen_free(g, pieces[2]);
}

const struct gp_generator gp_generator_article = {
    "oom-article", "10.63 GiB reserved, 7.92 GiB allocated, 1 GiB refused: the case of an article", story_article};
const struct gp_generator gp_generator_gmlake = {
    "gmlake", "28/100/28/100 MiB of a 256 MiB segment, then 160 MiB: the figure of GMLake", story_gmlake};
