/* SPDX-License-Identifier: MIT
 *
 * userules.h: what memory is used for, by rules.
 */
#ifndef GP_ANALYZE_USERULES_H
#define GP_ANALYZE_USERULES_H

#include <analyze/flow.h>
#include <analyze/report.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <stdbool.h>
#include <stdint.h>

/* What the walks of uses.c and the rules share. */

enum use_rule {
    RULE_NO_STEPS,
    RULE_BEFORE,
    RULE_FIRST,
    RULE_SIZE,
    RULE_GROWS,
    RULE_SEVERAL,
    RULE_CROSSES,
    RULE_ALONE,
    RULE_WEIGHTS_MATCHED,
    RULE_WEIGHTS_NAME,
    RULE_WEIGHTS_LIFE,
    RULE_GRADIENTS_THREAD,
    RULE_GRADIENTS_SIZE,
    RULE_GRADIENTS_KEPT,
    RULE_OPTIMIZER_NAME,
    RULE_OPTIMIZER_SIZE,
    RULE_ACTIVATIONS,
    RULE_IN_STEP,
    RULE_KV_NAME,
    RULE_KV_CHAIN,
    RULE_KV_LONG,
    RULE_SUSPECT,
    RULE_NO_FRAMEWORK,
    RULE_GRAPH_NODES,
    RULE_GRAPH_USED,
    RULE_GRAPHS_NAME,
    RULE_LIBRARY,
    RULE_WORKSPACE_NAME,
    RULE_COMMUNICATION,
    RULE_POOL,
    RULE_TEMPORARY,
    RULE_STACK_GRADIENTS,
    RULE_STACK_ACTIVATIONS,
    RULE_CUT_ACTIVATIONS,
    RULE_STACK_TEMPORARY,
    RULE_FORWARD_KEPT,
    RULE_WORKSPACE_SIZE,
    RULES
};
_Static_assert(RULES <= GP_USE_RULES, "the rows have room for all rules");

/* Blocks without a stack are told apart by their sizes. */
#define USE_SIZE_KEYS 4096u
/* A weight may have a few transient blocks of its size at once.  More are not followed. */
#define USE_FOLLOWED   64u
#define USE_ROUNDING   (1u << 20)
#define USE_CHAIN      8u          /* so often a block is replaced by a larger one before it is a cache */
#define USE_CHAIN_STEP (64u << 10) /* a small cache may double */
#define USE_ABOUT      1024u       /* sizes of weights among which a near one is looked for */
#define USE_COVERED    0.9         /* part of the weights that must have a gradient */

enum use_life {
    LIFE_NONE,    /* not allocated memory of this device */
    LIFE_BEFORE,  /* was there when the recording began */
    LIFE_START,   /* came and went before the first step */
    LIFE_EARLY,   /* from before the first step to the end */
    LIFE_FIRST,   /* from one of the first two steps to the end */
    LIFE_LATE,    /* from a later step to the end, two bounds of steps at least */
    LIFE_STEP,    /* at most one bound of steps in its life */
    LIFE_SEVERAL, /* several, but not to the end */
    LIFE_AFTER    /* after the last bound */
};

struct use_size { /* blocks of one size that a weight has */
    uint64_t bytes;
    uint32_t weights;            /* blocks that are weights by their lifetime */
    uint32_t gradients;          /* the most that were gradients at a moment */
    uint32_t states;             /* blocks that came in the first steps and stay */
    uint32_t first;              /* of blocks that came in the first steps: how many were seen */
    uint32_t count, room, *live; /* ids of transient blocks, oldest first */
};

struct use_key {               /* a call site, or a size without one */
    uint32_t last_step, steps; /* steps in which blocks that outlive their step came */
    uint32_t count;
    uint32_t last_end, together; /* blocks that came in another step than the one before, and go in the same */
    uint32_t within, crossing;   /* blocks that live for a step at most, without and with a bound in their life */
    uint64_t lived;              /* sum of their lives, in bounds of steps */
    uint8_t rule;                /* of its newest transient block */
    bool grows;                  /* a suspect of `leaks` (of call sites alone) */
    bool crossed;                /* a block of it was there when a backward pass started, and went before the next */
};

struct use_run { /* events between which one pass works: it begins with an allocation, and `end` is not part of it */
    uint32_t begin, end; /* GP_REC_NONE: to the end of the recording */
    bool away;           /* another thread than the main one works in it */
};
struct use_runs {
    struct use_run *list;
    uint32_t count, room;
};

struct uses_work {
    const struct gp_flow *flow;
    const struct gp_recording *recording;
    const uint8_t *hints;
    struct gp_use_table *uses;
    uint32_t *bounds; /* events; bound_count of them, 0 without a rhythm */
    uint32_t bound_count;
    struct gp_hash by_size;
    struct use_size *sizes;
    uint32_t size_count, size_room;
    struct use_key *keys;
    uint64_t *brief; /* by thread: blocks that live for a step */
    bool has_main;
    uint32_t main_thread;     /* asked for the first weight */
    bool few_sites;           /* hardly more than one, which tell nothing */
    bool backward;            /* other threads make part of the transient blocks */
    int64_t weights, covered; /* bytes of weights; of those that have a transient block of their size now */
    int64_t other;            /* bytes of transient blocks of other threads */
    bool burst;               /* the newest event was one of another thread */
    int64_t marked;           /* covered, when gradients were found last; 0 after the weights were hardly covered */
    uint32_t kept;            /* gradients that stay from step to step */
    uint32_t moments;         /* at which gradients were found */
    uint8_t *chain;           /* by id: how often it and its forerunners replaced a smaller block */
    uint32_t newest;          /* id of the newest block; GP_REC_NONE */
    bool failed;
    bool stacks;           /* a backward pass is on stacks */
    uint32_t stack_thread; /* the main thread, as the stacks tell */
    struct use_runs backward_runs, optimizer_runs, weight_runs, forward_runs;
};

/* usestacks.c: the passes that stacks tell. False: out of memory. */
bool gp_use_find_runs(struct uses_work *w);
/* What the stacks tell of a block; RULES: nothing. */
enum use_rule gp_use_rule_of_stack(const struct uses_work *w, const struct gp_flow_change *change);

/* userules.c: the third walk. */
void gp_use_decide(struct uses_work *w);
/* Fills in what the rows of all rules say. */
void gp_use_name_rows(struct gp_use_table *uses);

/* usegradients.c: the second walk. */
void gp_use_find_gradients(struct uses_work *w);
/* Made by a thread of the backward pass. */
bool gp_use_is_backward(const struct uses_work *w, const struct gp_rec_event *item);

/* usework.c.  The bounds at this event or before: 0 is before the first step. */
uint32_t gp_use_step(const struct uses_work *w, uint32_t event);
/* The same at the end of the block's life; all bounds if it stays. */
uint32_t gp_use_end(const struct uses_work *w, uint32_t id);
/* How long the block lives, measured in steps.  lived: bounds of steps in its life. */
enum use_life gp_use_life(const struct uses_work *w, const struct gp_flow_change *change, uint32_t *lived);
struct use_key *gp_use_key(const struct uses_work *w, const struct gp_rec_event *item);
enum gp_use_hint gp_use_hint_at(const struct uses_work *w, const struct gp_rec_event *item);
/* NULL: no weight has this size. */
struct use_size *gp_use_size(const struct uses_work *w, const struct gp_rec_event *item);

#endif
