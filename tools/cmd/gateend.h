/* SPDX-License-Identifier: MIT
 *
 * gateend.h: what commands that hold a program's memory do with their findings.
 */
#ifndef GP_CMD_GATEEND_H
#define GP_CMD_GATEEND_H

#include <cmd/cmd.h>
#include <show/gate/gate.h>
#include <stdio.h>

/* The exit status of a broken budget, unless --error-exitcode names another one. */
#define GP_GATE_BROKEN 3

struct gp_budget_options {
    int64_t bytes;    /* --budget; -1 not given */
    const char *file; /* --budgets; NULL */
    const char *junit;
};
#define GP_OPTION_BUDGET(_type, _member)                                                                               \
    GP_OPTION(_type, _member.bytes, 0, "budget", "SIZE", GP_ARG_SIZE,                                                  \
              "the most memory that may be allocated on each GPU at once")
#define GP_OPTION_BUDGETS(_type, _member)                                                                              \
    GP_OPTION(_type, _member.file, 0, "budgets", "FILE", GP_ARG_FILE,                                                  \
              "a file of budgets: of lines, phases, ranks, uses and more")
#define GP_OPTION_JUNIT(_type, _member)                                                                                \
    GP_OPTION(_type, _member.junit, 0, "junit", "FILE", GP_ARG_FILE, "write the verdict to FILE as JUnit XML")

/* Reads them.  GP_EXIT_OK, or an exit status after a message; gp_budgets_free in any case. */
int gp_budget_options_read(const char *command, const struct gp_budget_options *o, struct gp_budgets *budgets);
/* Adds the findings of a recording.  GP_EXIT_OK, or an exit status after a message. */
int gp_check_file(const char *command, const char *path, const struct gp_budgets *budgets, struct gp_findings *gate);

/* Prints the findings (out NULL: not), annotations where GitHub runs this, and JUnit's file (NULL: none).
 * Returns GP_EXIT_OK if all is within its limits, else the status for broken ones (exitcode < 0: 3), or
 * GP_EXIT_FAILED after a message. */
int gp_gate_end(const char *command, const struct gp_findings *gate, FILE *out, const char *junit, int exitcode);

#endif
