/* SPDX-License-Identifier: MIT
 *
 * steptree.h: the calls of a program as a tree, and the steps that its stacks show.
 */
#ifndef GP_ANALYZE_STEPTREE_H
#define GP_ANALYZE_STEPTREE_H

#include <analyze/analyze.h>
#include <read/recording/recording.h>
#include <stdbool.h>
#include <stdint.h>

/* The Python frames of a call site that are outside of every net (torch.nn.Module). */
struct gp_net_call {
    uint64_t key; /* identifies them with their lines; 0: there are none */
    bool net;     /* the site is inside a net, which the innermost of them calls */
};
/* stepstack.c. One for each site; freed with free(). NULL: out of memory. */
struct gp_net_call *gp_steps_calls(const struct gp_recording *recording);

/* stepstack.c: the steps that calls of an optimizer, of a backward pass or of a net make, by the place
 * of the user's from which they come. *out stays NULL if the stacks do not tell. False: out of memory. */
bool gp_steps_of_stacks(const struct gp_recording *recording, struct gp_steps **out);

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
    bool command;           /* of the text of `python -c` */
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
/* The same, of the node and of those like it: what one line calls, whoever has called its function. */
bool gp_call_runs_of_line(const struct gp_call_tree *tree, uint32_t node, struct gp_call_runs *runs);
void gp_call_runs_fini(struct gp_call_runs *runs);

bool gp_calls_python(const struct gp_recording *recording, const struct gp_rec_frame *frame);
bool gp_calls_net(const struct gp_recording *recording, const struct gp_rec_frame *frame);

#endif
