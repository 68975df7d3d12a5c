/* SPDX-License-Identifier: MIT
 *
 * budget.h: budgets of a program's memory, and whether a recording is within them.  `check`, `run`
 * and `dryrun` take them from --budget and --budgets.  docs/gate.md has the grammar of a file of
 * them.
 */
#ifndef GP_SHOW_GATE_BUDGET_H
#define GP_SHOW_GATE_BUDGET_H

#include <show/gate/findings.h>
#include <stddef.h>

enum gp_budget_kind {
    GP_BUDGET_PEAK,     /* of allocated memory, of each GPU */
    GP_BUDGET_RESERVED, /* the same of reserved memory */
    GP_BUDGET_END,      /* allocated at the end */
    GP_BUDGET_HOST,     /* peak of pinned host memory */
    GP_BUDGET_ASLEEP,   /* reserved while blocks of a framework have no memory */
    GP_BUDGET_LEAK,     /* growth per step */
    GP_BUDGET_RANK,     /* peak of one rank; the rest is named */
    GP_BUDGET_USE,
    GP_BUDGET_LINE,
    GP_BUDGET_OPERATION,
    GP_BUDGET_PHASE,
    GP_BUDGET_KINDS
};

struct gp_budget {
    enum gp_budget_kind kind;
    bool matched;   /* a recording that was judged has something of its name */
    char *name;     /* of a use, line, operation or phase; "" */
    int64_t number; /* of a rank */
    int64_t bytes;
    double percent; /* of each GPU's memory; 0: bytes */
};
struct gp_budgets {
    struct gp_budget *rows;
    uint32_t count;
    bool judged; /* a recording was */
};

/* "peak", "line" .., as a file of budgets has it. */
const char *gp_budget_kind_name(enum gp_budget_kind kind);
/* budget: of which the name is copied.  False: out of memory. */
bool gp_budgets_add(struct gp_budgets *budgets, const struct gp_budget *budget);
/* Adds the budgets of a file.  0; -errno of the file; -EPROTO with the line and the problem in why. */
int gp_budgets_read(struct gp_budgets *budgets, const char *path, char *why, size_t why_bytes);
void gp_budgets_free(struct gp_budgets *budgets);

/* Adds a finding for each budget and each device that it concerns.  The sites of the report are joined.
 * False: out of memory. */
bool gp_budgets_judge(struct gp_findings *out, struct gp_report *report, struct gp_budgets *budgets);
/* When all recordings have been judged: adds a broken finding for each budget whose name is in none of them,
 * as a mistyped one is. */
void gp_budgets_unmatched(struct gp_findings *out, const struct gp_budgets *budgets);

#endif
