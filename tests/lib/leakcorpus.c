/* SPDX-License-Identifier: MIT
 * leakcorpus.c: the table of leakcorpus.h.  A row has what a program is like; leakprograms.c has how it works. */
#include <lib/leakprograms.h>
#include <lib/random.h>

#include <stdio.h>
#include <stdlib.h>

static const char *const shows_names[SHOWS] = {"flat", "marked", "ranged", "wordless", "optimizer", "net"};
static const char *const keeps_names[KEEPS] = {"nothing",  "block",    "branch", "late",    "nth",    "small", "two",
                                               "replaced", "founding", "almost", "epochly", "hooked", "many"};
static const char *const ends_names[ENDS] = {"exits", "frees", "killed", "fails"};

/* ---- the table --------------------------------------------------------------------------------------------------- */

enum family { STEPS, INFERS, REQUESTS, PASS, LOADING, GENERATE, GROWING, MIXED };

struct row {
    enum family family;
    enum shows shows;
    enum keeps keeps;
    enum ends ends;
    unsigned does; /* of a pass, a loading, generations: how, or how often */
};

static const struct row table[] = {
    {STEPS, FLAT, FOUNDING, STAYS, VARIES},
    {STEPS, FLAT, BLOCK, FREES, LOADS | STATES | TUNES},
    {STEPS, MARKED, FOUNDING, STAYS, VARIES},
    {STEPS, MARKED, BLOCK, FREES, LOADS | STATES | TUNES},
    {STEPS, RANGED, FOUNDING, STAYS, VARIES},
    {STEPS, RANGED, BLOCK, FREES, LOADS | STATES | TUNES},
    {STEPS, WORDLESS, FOUNDING, STAYS, VARIES},
    {STEPS, WORDLESS, BLOCK, FREES, LOADS | STATES | TUNES},
    {STEPS, OPTIMIZED, FOUNDING, STAYS, VARIES},
    {STEPS, OPTIMIZED, BLOCK, FREES, LOADS | STATES | TUNES},
    {STEPS, CALLED, FOUNDING, STAYS, VARIES},
    {STEPS, CALLED, BLOCK, FREES, LOADS | STATES | TUNES},
    {STEPS, FLAT, BRANCH, STAYS, LOADS | VARIES | DOUBLES},
    {STEPS, FLAT, SMALL, STAYS, LOADS | STATES | RINGS},
    {STEPS, FLAT, LATE, STAYS, LOADS | CACHES},
    {STEPS, MARKED, BRANCH, STAYS, LOADS | VARIES | DOUBLES},
    {STEPS, MARKED, SMALL, STAYS, LOADS | STATES | RINGS},
    {STEPS, MARKED, LATE, STAYS, LOADS | CACHES},
    {STEPS, OPTIMIZED, BRANCH, STAYS, LOADS | VARIES | DOUBLES},
    {STEPS, OPTIMIZED, SMALL, STAYS, LOADS | STATES | RINGS},
    {STEPS, OPTIMIZED, LATE, STAYS, LOADS | CACHES},
    {STEPS, CALLED, BRANCH, STAYS, LOADS | VARIES | DOUBLES},
    {STEPS, CALLED, SMALL, STAYS, LOADS | STATES | RINGS},
    {STEPS, CALLED, LATE, STAYS, LOADS | CACHES},
    {STEPS, FLAT, FOUNDING, FREES, VARIES | LOADS},
    {STEPS, FLAT, FOUNDING, FAILED, VARIES | LOADS},
    {STEPS, FLAT, FOUNDING, KILLED, VARIES | STATES},
    {STEPS, FLAT, BLOCK, KILLED, LOADS | EVALUATES},
    {STEPS, OPTIMIZED, BLOCK, FAILED, LOADS | STATES | ACCUMULATES},
    {STEPS, MARKED, NTH, STAYS, LOADS | STATES},
    {STEPS, FLAT, NTH, FREES, LOADS | STATES},
    {STEPS, OPTIMIZED, TWO, FREES, LOADS | STATES | VARIES},
    {STEPS, FLAT, TWO, STAYS, LOADS | FETCHES},
    {STEPS, FLAT, REPLACED, STAYS, LOADS},
    {STEPS, MARKED, REPLACED, FREES, LOADS | VARIES},
    {STEPS, FLAT, MANY, STAYS, LOADS | COLLECTS},
    {STEPS, RANGED, BLOCK, STAYS, LOADS | EPOCHS},
    {STEPS, FLAT, BLOCK, STAYS, LOADS | SLEEPS | VARIES},
    {INFERS, FLAT, BLOCK, STAYS, LOADS},
    {INFERS, FLAT, ALMOST, STAYS, 0},
    {REQUESTS, FLAT, BLOCK, STAYS, SLEEPS},
    {REQUESTS, FLAT, REPLACED, FREES, 0},
    {INFERS, MARKED, BLOCK, STAYS, LOADS},
    {INFERS, MARKED, ALMOST, STAYS, 0},
    {REQUESTS, MARKED, BLOCK, STAYS, SLEEPS},
    {REQUESTS, MARKED, REPLACED, FREES, 0},
    {INFERS, CALLED, BLOCK, STAYS, LOADS},
    {INFERS, CALLED, ALMOST, STAYS, 0},
    {REQUESTS, CALLED, BLOCK, STAYS, SLEEPS},
    {REQUESTS, CALLED, REPLACED, FREES, 0},
    {INFERS, FLAT, ALMOST, FREES, LOADS},
    {INFERS, FLAT, BRANCH, KILLED, LOADS | SLEEPS},
    {INFERS, FLAT, REPLACED, FAILED, 0},
    {REQUESTS, FLAT, SMALL, STAYS, SLEEPS | RINGS},
    {REQUESTS, FLAT, MANY, KILLED, CACHES},
    {REQUESTS, FLAT, BRANCH, FREES, SLEEPS},
    {REQUESTS, RANGED, BLOCK, FREES, CACHES | SLEEPS},
    {STEPS, MARKED, EPOCHLY, STAYS, LOADS | STATES | EVALUATES},
    {STEPS, FLAT, EPOCHLY, FREES, LOADS | VARIES},
    {STEPS, OPTIMIZED, HOOKED, STAYS, LOADS | STATES},
    {INFERS, CALLED, HOOKED, FREES, LOADS},
    {MIXED, FLAT, BLOCK, STAYS, SLEEPS},
    {MIXED, FLAT, BRANCH, FREES, SLEEPS | CACHES},
    {MIXED, MARKED, BLOCK, KILLED, RINGS},
    {MIXED, FLAT, REPLACED, STAYS, 0},
    {MIXED, FLAT, MANY, FAILED, 0},
    {GENERATE, CALLED, BLOCK, STAYS, 12},
    {GENERATE, CALLED, BLOCK, FREES, 30},
    {STEPS, FLAT, NOTHING, STAYS, LOADS},
    {STEPS, FLAT, NOTHING, FREES, LOADS | TUNES | STATES},
    {STEPS, FLAT, NOTHING, KILLED, LOADS | CACHES | VARIES},
    {STEPS, FLAT, NOTHING, FAILED, LOADS | EVALUATES},
    {STEPS, FLAT, NOTHING, STAYS, LOADS | ACCUMULATES | STATES},
    {STEPS, FLAT, NOTHING, FREES, LOADS | RINGS | DOUBLES | VARIES},
    {STEPS, FLAT, NOTHING, KILLED, LOADS | EPOCHS},
    {STEPS, FLAT, NOTHING, FAILED, LOADS | COLLECTS | VARIES},
    {STEPS, MARKED, NOTHING, FREES, LOADS},
    {STEPS, MARKED, NOTHING, KILLED, LOADS | TUNES | STATES},
    {STEPS, MARKED, NOTHING, FAILED, LOADS | CACHES | VARIES},
    {STEPS, MARKED, NOTHING, STAYS, LOADS | EVALUATES},
    {STEPS, MARKED, NOTHING, FREES, LOADS | ACCUMULATES | STATES},
    {STEPS, MARKED, NOTHING, KILLED, LOADS | RINGS | DOUBLES | VARIES},
    {STEPS, MARKED, NOTHING, FAILED, LOADS | EPOCHS},
    {STEPS, MARKED, NOTHING, STAYS, LOADS | COLLECTS | VARIES},
    {STEPS, RANGED, NOTHING, KILLED, LOADS},
    {STEPS, RANGED, NOTHING, FAILED, LOADS | TUNES | STATES},
    {STEPS, RANGED, NOTHING, STAYS, LOADS | CACHES | VARIES},
    {STEPS, RANGED, NOTHING, FREES, LOADS | EVALUATES},
    {STEPS, RANGED, NOTHING, KILLED, LOADS | ACCUMULATES | STATES},
    {STEPS, RANGED, NOTHING, FAILED, LOADS | RINGS | DOUBLES | VARIES},
    {STEPS, RANGED, NOTHING, STAYS, LOADS | EPOCHS},
    {STEPS, RANGED, NOTHING, FREES, LOADS | COLLECTS | VARIES},
    {STEPS, WORDLESS, NOTHING, FAILED, LOADS},
    {STEPS, WORDLESS, NOTHING, FREES, LOADS | CACHES | VARIES},
    {STEPS, WORDLESS, NOTHING, FAILED, LOADS | ACCUMULATES | STATES},
    {STEPS, WORDLESS, NOTHING, FREES, LOADS | EPOCHS},
    {STEPS, OPTIMIZED, NOTHING, STAYS, LOADS},
    {STEPS, OPTIMIZED, NOTHING, FREES, LOADS | TUNES | STATES},
    {STEPS, OPTIMIZED, NOTHING, KILLED, LOADS | CACHES | VARIES},
    {STEPS, OPTIMIZED, NOTHING, FAILED, LOADS | EVALUATES},
    {STEPS, OPTIMIZED, NOTHING, STAYS, LOADS | ACCUMULATES | STATES},
    {STEPS, OPTIMIZED, NOTHING, FREES, LOADS | RINGS | DOUBLES | VARIES},
    {STEPS, OPTIMIZED, NOTHING, KILLED, LOADS | EPOCHS},
    {STEPS, OPTIMIZED, NOTHING, FAILED, LOADS | COLLECTS | VARIES},
    {STEPS, CALLED, NOTHING, FREES, LOADS},
    {STEPS, CALLED, NOTHING, KILLED, LOADS | TUNES | STATES},
    {STEPS, CALLED, NOTHING, FAILED, LOADS | CACHES | VARIES},
    {STEPS, CALLED, NOTHING, STAYS, LOADS | EVALUATES},
    {STEPS, CALLED, NOTHING, FREES, LOADS | ACCUMULATES | STATES},
    {STEPS, CALLED, NOTHING, KILLED, LOADS | RINGS | DOUBLES | VARIES},
    {STEPS, CALLED, NOTHING, FAILED, LOADS | EPOCHS},
    {STEPS, CALLED, NOTHING, STAYS, LOADS | COLLECTS | VARIES},
    {INFERS, FLAT, NOTHING, STAYS, LOADS},
    {INFERS, FLAT, NOTHING, FREES, LOADS | SLEEPS | VARIES},
    {INFERS, FLAT, NOTHING, KILLED, LOADS | CACHES | FETCHES},
    {INFERS, FLAT, NOTHING, FAILED, RINGS | COLLECTS},
    {REQUESTS, FLAT, NOTHING, STAYS, SLEEPS},
    {REQUESTS, FLAT, NOTHING, FREES, CACHES},
    {REQUESTS, FLAT, NOTHING, KILLED, RINGS | VARIES},
    {INFERS, MARKED, NOTHING, FREES, LOADS},
    {INFERS, MARKED, NOTHING, KILLED, LOADS | SLEEPS | VARIES},
    {INFERS, MARKED, NOTHING, FAILED, LOADS | CACHES | FETCHES},
    {INFERS, MARKED, NOTHING, STAYS, RINGS | COLLECTS},
    {REQUESTS, MARKED, NOTHING, FREES, SLEEPS},
    {REQUESTS, MARKED, NOTHING, KILLED, CACHES},
    {REQUESTS, MARKED, NOTHING, STAYS, RINGS | VARIES},
    {INFERS, CALLED, NOTHING, KILLED, LOADS},
    {INFERS, CALLED, NOTHING, FAILED, LOADS | SLEEPS | VARIES},
    {INFERS, CALLED, NOTHING, STAYS, LOADS | CACHES | FETCHES},
    {INFERS, CALLED, NOTHING, FREES, RINGS | COLLECTS},
    {REQUESTS, CALLED, NOTHING, KILLED, SLEEPS},
    {REQUESTS, CALLED, NOTHING, STAYS, CACHES},
    {REQUESTS, CALLED, NOTHING, FREES, RINGS | VARIES},
    {PASS, FLAT, NOTHING, FREES, PLAIN},
    {PASS, CALLED, NOTHING, STAYS, PLAIN},
    {PASS, FLAT, NOTHING, KILLED, PLAIN | BACK},
    {PASS, CALLED, NOTHING, FREES, PLAIN | BACK},
    {PASS, FLAT, NOTHING, FAILED, CHECKPOINTED},
    {PASS, CALLED, NOTHING, KILLED, CHECKPOINTED},
    {PASS, FLAT, NOTHING, STAYS, CHECKPOINTED | BACK},
    {PASS, CALLED, NOTHING, FAILED, CHECKPOINTED | BACK},
    {PASS, FLAT, NOTHING, FREES, PLAIN | LAYER_RANGES},
    {PASS, CALLED, NOTHING, STAYS, PLAIN | LAYER_RANGES},
    {PASS, FLAT, NOTHING, KILLED, CHECKPOINTED | LAYER_RANGES},
    {PASS, CALLED, NOTHING, FREES, CHECKPOINTED | LAYER_RANGES},
    {PASS, FLAT, NOTHING, FAILED, CHECKPOINTED | EXPERTS},
    {PASS, CALLED, NOTHING, KILLED, CHECKPOINTED | EXPERTS},
    {LOADING, FLAT, NOTHING, STAYS, 0},
    {LOADING, CALLED, NOTHING, STAYS, 0},
    {LOADING, FLAT, NOTHING, FREES, STAGED},
    {LOADING, CALLED, NOTHING, FREES, STAGED},
    {LOADING, FLAT, NOTHING, KILLED, STAGED | THEN_WORKS},
    {LOADING, CALLED, NOTHING, KILLED, STAGED | THEN_WORKS},
    {LOADING, FLAT, NOTHING, STAYS, THEN_WORKS},
    {LOADING, CALLED, NOTHING, STAYS, THEN_WORKS},
    {LOADING, FLAT, NOTHING, FREES, SHARDS | STAGED | VARIES},
    {LOADING, CALLED, NOTHING, FREES, SHARDS | STAGED | VARIES},
    {GENERATE, CALLED, NOTHING, FREES, 1},
    {GENERATE, CALLED, NOTHING, KILLED, 2},
    {GENERATE, CALLED, NOTHING, KILLED, 5},
    {GROWING, FLAT, NOTHING, STAYS, LOADS},
    {GROWING, OPTIMIZED, NOTHING, STAYS, LOADS},
    {GROWING, MARKED, NOTHING, STAYS, LOADS},
    {MIXED, FLAT, NOTHING, STAYS, SLEEPS},
    {MIXED, FLAT, NOTHING, FREES, CACHES},
    {MIXED, FLAT, NOTHING, KILLED, RINGS},
    {MIXED, MARKED, NOTHING, FAILED, DOUBLES},
    {MIXED, CALLED, NOTHING, STAYS, COLLECTS},
    {MIXED, FLAT, NOTHING, FREES, EPOCHS},
    {GENERATE, CALLED, NOTHING, STAYS, 30},
    {STEPS, FLAT, NOTHING, STAYS, LOADS | FETCHES | SLEEPS | VARIES},
};

uint32_t leak_corpus_count(void)
{
    return sizeof(table) / sizeof(table[0]);
}

struct leak_program leak_corpus_program(uint32_t i)
{
    static const char *const families[] = {"steps",   "infers",   "requests", "pass",
                                           "loading", "generate", "growing",  "mixed"};
    const struct row *row = &table[i];
    struct leak_program program = {.is_leaking = row->keeps != NOTHING};
    snprintf(program.name, sizeof(program.name), "%u %s/%s/%s/%s/%u", i, families[row->family], shows_names[row->shows],
             keeps_names[row->keeps], ends_names[row->ends], row->does);
    return program;
}

static void corpus_draw(struct corpus *p)
{
    static const uint64_t units[] = {4 * KIB, 64 * KIB, MIB, 4 * MIB}, paces[] = {20 * US, 300 * US, 2 * MS};
    p->sites = p->keeps == FOUNDING ? 300
               : p->keeps == ALMOST ? (unsigned)leak_draw_from(p, 1, 6)
                                    : (unsigned)leak_draw_from(p, 4, 90);
    p->steps = p->keeps == FOUNDING && leak_draw_from(p, 0, 1) ? 100 : (unsigned)leak_draw_from(p, 20, 60);
    p->repeats = p->keeps == FOUNDING ? 1 : (unsigned)leak_draw_from(p, 1, 3);
    p->unit = p->keeps == FOUNDING ? leak_draw_from(p, 50, 600) * KIB : units[leak_draw_from(p, 0, 3)];
    p->pace_ns = paces[leak_draw_from(p, 0, 2)];
}

struct gp_recording *leak_corpus_make(uint32_t i, uint64_t seed, struct leak_truth *truth)
{
    const struct row *row = &table[i];
    struct corpus p = {.truth = truth,
                       .seed = (seed + 1) * 0x9e3779b97f4a7c15ull ^ (i + 1ull) * 0xbf58476d1ce4e5b9ull,
                       .shows = row->shows,
                       .keeps = row->keeps,
                       .ends = row->ends,
                       .does = row->does,
                       .now_ns = 1000 * MS,
                       .address = 0x7f0000000000ull,
                       .total = 80 * GIB};
    p.seed = p.seed ? random_mix(&p.seed) | 1 : 1;
    *truth = (struct leak_truth){0};
    p.make = recmake_new((int64_t)p.total);
    corpus_draw(&p);
    leak_make_sites(&p);
    switch (row->family) {
    case STEPS:
        leak_run_steps(&p, true);
        break;
    case INFERS:
        leak_run_steps(&p, false);
        break;
    case REQUESTS:
        leak_run_requests(&p);
        break;
    case PASS:
        leak_run_pass(&p, row->does);
        break;
    case LOADING:
        leak_run_loading(&p, row->does);
        break;
    case GENERATE:
        leak_run_generate(&p, row->does);
        break;
    case GROWING:
        leak_run_growing(&p);
        break;
    case MIXED:
        leak_run_mixed(&p);
        break;
    }
    free(p.live);
    struct gp_recording *recording = recmake_done(p.make);
    recording->complete = row->ends != KILLED;
    return recording;
}
