/* SPDX-License-Identifier: MIT
 *
 * leakprograms.h: the programs of leakcorpus.h, each of which writes what it allocates and frees into a recording.
 */
#ifndef GP_TEST_LIB_LEAKPROGRAMS_H
#define GP_TEST_LIB_LEAKPROGRAMS_H

#include <lib/leakcorpus.h>
#include <stddef.h>
#include <stdint.h>

#define US  1000ull
#define MS  1000000ull
#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)

enum shows {            /* how its steps show in the recording */
             FLAT,      /* only in what it allocates, at call sites in C */
             MARKED,    /* marks "step N" */
             RANGED,    /* NVTX ranges "iteration" */
             WORDLESS,  /* NVTX ranges whose name tells nothing of steps */
             OPTIMIZED, /* calls of an optimizer's step on stacks of Python */
             CALLED,    /* calls of a net on stacks of Python */
             SHOWS
};

enum keeps { /* what it keeps */
             NOTHING,
             BLOCK,    /* a block in each step */
             BRANCH,   /* a block in two of three steps */
             LATE,     /* from the middle on */
             NTH,      /* in each fourth step */
             SMALL,    /* a few KiB beside everything else */
             TWO,      /* at two call sites */
             REPLACED, /* one block, replaced by a larger one */
             FOUNDING, /* 96 to 124 MiB beside 300 call sites that free all */
             ALMOST,   /* more than everything else takes */
             EPOCHLY,  /* after each fifth of its steps */
             HOOKED,   /* inside the net */
             MANY,     /* an entry of a list for each of several rows of a batch */
             KEEPS
};

enum ends { STAYS, FREES, KILLED, FAILED, ENDS }; /* with its memory; frees it; within a step; out of memory */

enum {                   /* what it does besides */
       LOADS = 1,        /* weights at the start */
       TUNES = 2,        /* tries workspaces in the first step */
       STATES = 4,       /* keeps the state of an optimizer in the first step */
       CACHES = 8,       /* fills a cache in the first third of the steps */
       EVALUATES = 16,   /* after every fifth step */
       ACCUMULATES = 32, /* gradients over four steps */
       VARIES = 64,      /* sizes of blocks change from step to step */
       SLEEPS = 128,     /* between its steps, sometimes for long */
       RINGS = 256,      /* keeps what the last few steps made */
       EPOCHS = 512,     /* keeps what its steps make until an epoch ends */
       COLLECTS = 1024,  /* frees what it dropped only when garbage is collected */
       FETCHES = 2048,   /* a thread that prepares the next batches */
       DOUBLES = 4096    /* two buffers that take turns */
};

struct corpus {
    struct recmake *make;
    struct leak_truth *truth;
    uint64_t seed, now_ns, address, held, total;
    uint32_t thread; /* that works now */
    enum shows shows;
    enum keeps keeps;
    enum ends ends;
    unsigned does;
    unsigned sites, steps, repeats; /* repeats: how often a call site allocates in a step */
    uint64_t unit, pace_ns;         /* size of a usual block; time of a usual call */
    uint32_t ops[512], leaky[2], loads, caches, kept_by_epoch, garbage, batch, optimizer, gradients, tunes, ring,
        doubles;
    struct {
        uint64_t address, bytes;
    } * live; /* of the whole program */
    size_t live_count, live_room;
    uint64_t replaced, replaced_bytes, queue[8], double_buffer;
    uint64_t pending[4096]; /* what the epoch or the collector frees */
    unsigned pending_count;
};

/* What a pass of a net is like. */
enum { PLAIN = 1, CHECKPOINTED = 2, BACK = 4, LAYER_RANGES = 8, EXPERTS = 16, PYTHON = 32, REPEATED = 64 };

/* How weights are loaded. */
enum { STAGED = 1, THEN_WORKS = 2, SHARDS = 4 };

/* From `from` to `to`, both included. */
uint64_t leak_draw_from(struct corpus *p, uint64_t from, uint64_t to);
/* First of all. */
void leak_make_sites(struct corpus *p);

void leak_run_steps(struct corpus *p, bool trains);
void leak_run_requests(struct corpus *p);
void leak_run_pass(struct corpus *p, unsigned how);
void leak_run_loading(struct corpus *p, unsigned how);
void leak_run_generate(struct corpus *p, unsigned times);
void leak_run_growing(struct corpus *p);
void leak_run_mixed(struct corpus *p);

#endif
