/* SPDX-License-Identifier: MIT
 *
 * findings.h: questions about a program's memory and their answers: whether it grew, and whether it
 * is within its budgets.  Each question that was asked is a finding, whose place is the line of code
 * that explains it.  `diff`, `check`, `run` and `dryrun` print them as text, JSON, JUnit's XML, and
 * as annotations of GitHub.  docs/gate.md defines the numbers.
 */
#ifndef GP_SHOW_GATE_FINDINGS_H
#define GP_SHOW_GATE_FINDINGS_H

#include <analyze/report.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct gp_gate_place { /* copies; NULL unknown */
    char *function, *file, *label;
    uint32_t line;
    int64_t bytes; /* that it held, or by which it grew */
    /* Of a line of several operations: the one that held the most of it.  NULL: the label has the operation,
     * or there is none. */
    char *operation;
    int64_t operation_bytes;
};

struct gp_gate_finding {
    char *what;          /* "peak of device 0", "line train.py:32": the subject of a sentence */
    char *name;          /* the same for a machine: "peak", "line", .. */
    char *source;        /* the recording */
    int32_t rank;        /* -1 none */
    int32_t device;      /* -1: not of one device; GP_WIRE_HOST */
    bool ok, unknown;    /* unknown: bytes is not known, or nothing of that name is in any recording */
    bool growth;         /* limit and bytes are of the growth since before_bytes */
    int64_t limit_bytes; /* -1: a percentage of a GPU whose memory is not known */
    int64_t bytes, before_bytes;
    int64_t at_ns;                /* since the start; -1 no moment */
    struct gp_gate_place culprit; /* what held, or grew, the most */
    struct gp_gate_place crossed; /* the first that went over the budget */
};

struct gp_findings {
    struct gp_gate_finding *findings;
    uint32_t count, room;
    bool failed; /* out of memory: the findings are not all */
};

/* Adds a finding and returns it, to be filled in; NULL out of memory.  Valid until the next one. */
struct gp_gate_finding *gp_finding_add(struct gp_findings *gate, const char *name, const char *source)
    __attribute__((warn_unused_result));
char *gp_gate_text(struct gp_findings *gate, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gp_gate_free(struct gp_findings *gate);
bool gp_gate_ok(const struct gp_findings *gate);
/* The broken finding that matters most, else the first; NULL: nothing was asked. */
const struct gp_gate_finding *gp_gate_worst(const struct gp_findings *gate);
/* Fills a place from the frame that names the site, and the site's line as texts show it. */
void gp_gate_place(struct gp_findings *gate, struct gp_gate_place *place, const struct gp_report *report, uint32_t site,
                   int64_t bytes);

/* ---- forms of output ---------------------------------------------------------------------------------------------- */

/* One sentence without a period; free() it.  NULL: out of memory. */
char *gp_gate_sentence(const struct gp_gate_finding *finding);
/* The broken ones, or that all is within its limits. */
void gp_gate_print(FILE *out, const struct gp_findings *gate);
/* The whole verdict, schema gpuprof.check/1. */
json_t *gp_gate_json(const struct gp_findings *gate, const char *schema);
/* JUnit's XML: a test case for each finding. */
void gp_gate_junit(FILE *out, const struct gp_findings *gate);
/* Annotations of GitHub's workflows for the broken ones.  folder: of the source tree, taken off the paths;
 * NULL unknown. */
void gp_gate_annotate(FILE *out, const struct gp_findings *gate, const char *folder);

/* Sizes of a damaged file may wrap. */
static inline int64_t gp_gate_minus(int64_t from, int64_t bytes)
{
    return (int64_t)((uint64_t)from - (uint64_t)bytes);
}

#endif
