/* SPDX-License-Identifier: MIT
 *
 * uses.h: what the memory of one device is used for: weights, gradients, activations and so on.
 * The evidence is when a block comes and goes, measured in steps, its size, and where it was asked
 * for.  Each answer has a reason and a confidence; where the evidence is weak, the use is unknown.
 * docs/phases.md has the rules.
 */
#ifndef GP_ANALYZE_USES_H
#define GP_ANALYZE_USES_H

#include <analyze/flow.h>

enum gp_use {
    GP_USE_WEIGHTS,
    GP_USE_GRADIENTS,
    GP_USE_OPTIMIZER,
    GP_USE_ACTIVATIONS,
    GP_USE_KV_CACHE,
    GP_USE_GRAPHS,
    GP_USE_WORKSPACE,
    GP_USE_COMMUNICATION,
    GP_USE_TEMPORARY,
    GP_USE_UNKNOWN,
    GP_USES
};

/* What the names on a stack tell of a call site. */
enum gp_use_hint {
    GP_HINT_NONE,
    GP_HINT_WEIGHTS,
    GP_HINT_OPTIMIZER,
    GP_HINT_KV_CACHE,
    GP_HINT_GRAPHS,
    GP_HINT_WORKSPACE,
    GP_HINT_LIBRARY, /* a library of functions asked for it: its workspace */
    GP_HINT_COMMUNICATION,
    GP_HINT_FORWARD, /* in the call of a layer */
    GP_HINT_BACKWARD /* in a backward pass */
};

#define GP_USE_RULES 32u /* rows; usework.h names them */

struct gp_use_row { /* all blocks that one rule decided */
    enum gp_use use;
    double confidence; /* 0..1; 0: unknown */
    const char *reason;
    uint64_t count;
    int64_t peak_bytes;    /* the highest sum of these blocks */
    int64_t at_peak_bytes; /* at the peak of the device; 0 for graphs: their memory is not allocated bytes */
    int64_t end_bytes;     /* at the end of the recording */
};

struct gp_use_table {
    uint32_t device;
    bool trains;                          /* a backward pass was seen */
    uint8_t *rule;                        /* by the id of a change: the row of its block */
    struct gp_use_row rows[GP_USE_RULES]; /* those with count 0 decided nothing */
};

/* hints: by call site; NULL: no names are known.  leaks: of the same steps, or NULL.  NULL: out of
 * memory.  Free with gp_uses_free. */
struct gp_use_table *gp_uses_find(const struct gp_flow *flow, const struct gp_steps *steps,
                                  const struct gp_leaks *leaks, const uint8_t *hints, uint32_t device);
/* What most of the memory of each call site is for, at the peak of the device that ended with `event` (gp_peak),
 * or, where it held none then, of all that it allocated: 1 + enum gp_use in sites[], where the rules are sure
 * and most of it is for one use. Other entries stay. False: out of memory. */
bool gp_uses_by_site(const struct gp_use_table *uses, const struct gp_flow *flow, uint32_t event, uint8_t *sites);
void gp_uses_free(struct gp_use_table *uses);
/* "weights", "kv_cache", "unknown" ..: as JSON has it. */
const char *gp_use_name(enum gp_use use);
/* The hint of a function or file name of a stack, and of the owner of its memory. */
enum gp_use_hint gp_use_hint_of_name(const char *function, const char *file);
enum gp_use_hint gp_use_hint_of_owner(const char *owner);

#endif
