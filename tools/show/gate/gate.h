/* SPDX-License-Identifier: MIT
 *
 * gate.h: holds a program's memory: whether it grew from one recording to another, and whether it is
 * within its budgets.  Each question that was asked is a finding, whose place is the line of code
 * that explains it.  `diff`, `check`, `run` and `dryrun` print them as text, JSON, JUnit's XML, and
 * as annotations of GitHub.  docs/gate.md defines the numbers.
 */
#ifndef GP_SHOW_GATE_GATE_H
#define GP_SHOW_GATE_GATE_H

#include <analyze/analyze.h>
#include <analyze/report.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct gp_report_uses;

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
    char *what;       /* "peak of device 0", "line train.py:32": the subject of a sentence */
    char *name;       /* the same for a machine: "peak", "line", .. */
    char *source;     /* the recording */
    int32_t rank;     /* -1 none */
    int32_t device;   /* -1: not of one device; GP_WIRE_HOST */
    bool ok, unknown; /* unknown: bytes is not known, or nothing of that name is in any recording */
    bool growth;      /* limit and bytes are of the growth since before_bytes */
    int64_t limit_bytes, bytes, before_bytes;
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
struct gp_gate_finding *gp_gate_add(struct gp_findings *gate, const char *name, const char *source)
    __attribute__((warn_unused_result));
char *gp_gate_text(struct gp_findings *gate, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gp_gate_free(struct gp_findings *gate);
bool gp_gate_ok(const struct gp_findings *gate);
/* Fills a place from the frame that names the site, and the site's line as texts show it. */
void gp_gate_place(struct gp_findings *gate, struct gp_gate_place *place, const struct gp_report *report, uint32_t site,
                   int64_t bytes);

/* The broken ones, or that all is within its limits. */
void gp_gate_print(FILE *out, const struct gp_findings *gate);
/* The whole verdict, schema gpuprof.check/1. */
json_t *gp_gate_json(const struct gp_findings *gate, const char *schema);
/* JUnit's XML: a test case for each finding. */
void gp_gate_junit(FILE *out, const struct gp_findings *gate);
/* Annotations of GitHub's workflows for the broken ones.  folder: of the source tree, taken off the paths;
 * NULL unknown. */
void gp_gate_annotate(FILE *out, const struct gp_findings *gate, const char *folder);

enum gp_gate_by { GP_GATE_SITE, GP_GATE_LINE, GP_GATE_OPERATION, GP_GATE_USE };
const char *gp_gate_by_name(unsigned by); /* "line"; NULL after the last */

struct gp_gate_rows {
    uint32_t *of[2];        /* the row of each site; free with gp_gate_rows_free */
    uint32_t count, paired; /* paired: rows that both recordings have */
    const char *why;        /* if none is paired: the reason, else "" */
};
/* by: not GP_GATE_USE.  False: out of memory. */
bool gp_gate_match(const struct gp_report *const reports[2], enum gp_gate_by by, struct gp_gate_rows *rows);
void gp_gate_rows_free(struct gp_gate_rows *rows);

/* Sizes of a damaged file may wrap. */
static inline int64_t gp_gate_minus(int64_t from, int64_t bytes)
{
    return (int64_t)((uint64_t)from - (uint64_t)bytes);
}

struct gp_gate_growth { /* --max-growth */
    bool given;
    int64_t bytes;  /* -1: percent is given */
    double percent; /* of the peak of the device */
};
/* "10MiB" or "5%".  0, -EINVAL, -ERANGE. */
int gp_gate_growth_parse(const char *text, struct gp_gate_growth *growth);

struct gp_gate_change {      /* a row of `diff` */
    char *label, *operation; /* operation: NULL none */
    struct gp_gate_place place;
    int64_t peak_bytes[2], live_bytes[2], own_bytes[2]; /* as of struct gp_diff_row */
};
struct gp_gate_changes {
    enum gp_gate_by by;
    struct gp_gate_change *rows; /* the largest growth first */
    uint32_t count;
    struct gp_diff *diff; /* by site only */
    const char *why;      /* of struct gp_gate_rows */
    int64_t peak_bytes[2];
};
/* uses: by side and device, of gp_report_uses_find; only by use, else NULL.  False: out of memory. */
struct gp_report_uses;
bool gp_gate_compare(const struct gp_report *const reports[2], enum gp_gate_by by,
                     const struct gp_report_uses *const uses[2], struct gp_gate_changes *changes);
void gp_gate_changes_free(struct gp_gate_changes *changes);
/* Rows that are not sites, as a table and as JSON. */
void gp_gate_changes_print(FILE *out, const struct gp_gate_changes *changes);
json_t *gp_gate_changes_json(const struct gp_gate_changes *changes);
/* Asks whether the peak of each device grew by more than allowed, and of rows that are not sites also
 * each of them. */
void gp_gate_judge_growth(struct gp_findings *gate, const struct gp_report *const reports[2],
                          const struct gp_gate_changes *changes, const struct gp_gate_growth *growth);


#endif
