/* SPDX-License-Identifier: MIT
 *
 * internal.h: declarations that the files of analyze/ share. No other folder includes it.
 */
#ifndef GP_ANALYZE_INTERNAL_H
#define GP_ANALYZE_INTERNAL_H

#include <analyze/analyze.h>
#include <analyze/report.h>
#include <read/common/hash.h>

/* ==== sums by key ================================================================================================= */
/* Sums by key, in a growing hash table whose rows keep the order in which their keys were first
 * used. */

struct gp_tally_row {
    uint64_t key;
    int64_t bytes, count;
    uint64_t extra, more; /* for the caller */
};

struct gp_tally {
    struct gp_tally_row *rows;
    struct gp_hash map; /* key -> index of its row */
    size_t count, room;
};

/* Finds or adds the row of a key; NULL: out of memory.  The row is valid until the next call.  An
 * empty table is all zeros. */
struct gp_tally_row *gp_tally_at(struct gp_tally *tally, uint64_t key);
void gp_tally_fini(struct gp_tally *tally);

/* Adds bytes and one to the row of a key, or subtracts them.  False: out of memory. */
static inline bool gp_tally_move(struct gp_tally *tally, uint64_t key, uint64_t bytes, bool add)
{
    struct gp_tally_row *row = gp_tally_at(tally, key);
    if (!row)
        return false;
    row->bytes = (int64_t)((uint64_t)row->bytes + (add ? bytes : -bytes));
    row->count += add ? 1 : -1;
    return true;
}

/* ==== rhythms ===================================================================================================== */
/* Rhythms in a recording: finds the one that is the program's step among everything that repeats.  A
 * beat is a name or a call site (or a pair of them in a row) with the events at which it occurs.
 * docs/analyses.md has the rule and its reasons.  steps.c calls this. */

/* Occurrences of a beat: four steps have five bounds; leaks.c says why four. */
#define GP_BEAT_MIN 5u

struct gp_beats {              /* occurrences of all beats */
    struct gp_tally kinds;     /* a row per beat; bytes: occurrences whose block is freed */
    uint32_t *kind, *position; /* of each occurrence, in the order of time; position: index of the event */
    uint32_t *grouped;         /* the positions, grouped by kind */
    size_t count, room;
};

bool gp_beats_init(struct gp_beats *beats, size_t room);
void gp_beats_fini(struct gp_beats *beats);
/* Adds an occurrence.  freed: its block is freed within the recording.  False: no room or memory. */
bool gp_beats_put(struct gp_beats *beats, uint64_t key, uint32_t position, bool freed);
/* Call once, after the last occurrence: fills grouped[].  The positions of a row are
 * grouped[extra .. extra + count). */
void gp_beats_group(struct gp_beats *beats);

/* The part of the distance from the first to the last occurrence, 0..1, that consists of intervals
 * within a factor of two of the median.  < 0: out of memory. */
double gp_beats_even(const uint32_t *positions, size_t count);

/* The memory of temporary blocks and the call sites, event by event, from event `begin` on. */
struct gp_beat_curve {
    const struct gp_recording *recording;
    size_t begin;
    int64_t *level;   /* before each event: bytes of blocks that are allocated and freed in the curve */
    uint32_t *symbol; /* of each event that allocates, from 1: its call site, or without stacks its size; else 0 */
    uint32_t *stamp;  /* of each symbol */
    uint32_t symbols, stamps;
};

bool gp_beat_curve_init(struct gp_beat_curve *curve, const struct gp_recording *recording, size_t begin);
void gp_beat_curve_fini(struct gp_beat_curve *curve);

/* The row of the beat that is the step, of those that are marked in `even` (an evenness of each row,
 * 0: it is no candidate).  NULL: none of them follows the memory.  *ok false: out of memory. */
const struct gp_tally_row *gp_beats_step(const struct gp_beats *beats, const double *even, struct gp_beat_curve *curve,
                                         bool *ok);

/* The Python frames of a call site that are outside of every net (torch.nn.Module). */
struct gp_net_call {
    uint64_t key; /* identifies them with their lines; 0: there are none */
    bool net;     /* the site is inside a net, which the innermost of them calls */
};
/* stepstack.c. One for each site; freed with free(). NULL: out of memory. */
struct gp_net_call *gp_steps_calls(const struct gp_recording *recording);

/* Identifies the code that allocates: its call site; without stacks, the kind of the block and the
 * power of two of its size. */
uint64_t gp_beat_symbol(const struct gp_rec_event *event);

/* stepstack.c: the steps that calls of an optimizer, of a backward pass or of a net make, by the place
 * of the user's from which they come. *out stays NULL if the stacks do not tell. False: out of memory. */
bool gp_steps_of_stacks(const struct gp_recording *recording, struct gp_steps **out);

/* ==== calls on the stacks ========================================================================================= */
/* steptree.c: the Python stacks as a tree.  A path from the root is a chain of callers, each with the line
 * at which it is. */

enum gp_call_what { GP_CALL_LINE, GP_CALL_NET, GP_CALL_BACKWARD, GP_CALL_OPTIMIZER };

struct gp_call_node {
    uint64_t code;          /* identifies the function and its file */
    uint32_t parent, depth; /* [0] is the root */
    uint32_t line;          /* 0: a call of a net, a backward pass or an optimizer, whose lines are one node */
    uint32_t frame;         /* one of its frames: index in frames */
    uint32_t visits, first; /* how often a thread came into it, and the first event there */
    uint8_t what;           /* enum gp_call_what */
    bool own, package;      /* the user's own code; an installed program's */
};

struct gp_call_tree {
    const struct gp_recording *recording;
    struct gp_call_node *nodes; /* a child comes after its parent */
    uint32_t count;
    uint32_t *leaf; /* by site: the node of its innermost frame; 0: its stack does not begin where Python does */
    uint8_t *what;  /* by site: the innermost call that is no line, enum gp_call_what */
};

bool gp_call_tree_init(struct gp_call_tree *tree, const struct gp_recording *recording); /* false: out of memory */
void gp_call_tree_fini(struct gp_call_tree *tree);
/* Fills in visits and first.  False: out of memory. */
bool gp_call_tree_visit(struct gp_call_tree *tree);
/* The node on the path to `node` that has this depth, or `node` if that is not as deep. */
uint32_t gp_call_at_depth(const struct gp_call_tree *tree, uint32_t node, uint32_t depth);
/* A thread that was in `from` and is in `to` has gone back to an earlier line of a function, or its
 * lines do not tell. */
bool gp_call_starts_again(const struct gp_call_tree *tree, uint32_t from, uint32_t to);

struct gp_call_run {     /* one stay in a node */
    uint32_t begin, end; /* events: its first, and the next one of the thread elsewhere; GP_REC_NONE: there is none */
    uint32_t last;       /* of its own */
};
struct gp_call_runs {
    struct gp_call_run *list;
    uint32_t count, room, node;
};
bool gp_call_runs_find(const struct gp_call_tree *tree, uint32_t node, struct gp_call_runs *runs);
void gp_call_runs_fini(struct gp_call_runs *runs);

bool gp_calls_python(const struct gp_recording *recording, const struct gp_rec_frame *frame);
bool gp_calls_net(const struct gp_recording *recording, const struct gp_rec_frame *frame);

/* ==== the walks over uses ========================================================================================= */
/* What the walks of uses.c and userules.c share. */

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
    RULE_KV_GROWS,
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
    RULE_STACK_TEMPORARY,
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
    bool grows;                  /* a suspect of `leaks` */
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
    struct use_runs backward_runs, optimizer_runs, weight_runs;
};

/* userules.c: the passes that stacks tell. False: out of memory. */
bool gp_use_find_runs(struct uses_work *w);

/* userules.c: the third walk. */
void gp_use_decide(struct uses_work *w);
/* Fills in what the rows of all rules say. */
void gp_use_name_rows(struct gp_use_table *uses);

/* userules.c: the second walk. */
void gp_use_find_gradients(struct uses_work *w);

/* userules.c.  The bounds at this event or before: 0 is before the first step. */
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
