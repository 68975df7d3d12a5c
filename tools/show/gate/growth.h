/* SPDX-License-Identifier: MIT
 *
 * growth.h: whether a program's memory grew from one recording to another, by call site, line,
 * operation or use.  `diff` prints it.  docs/gate.md defines the numbers.
 */
#ifndef GP_SHOW_GATE_GROWTH_H
#define GP_SHOW_GATE_GROWTH_H

#include <show/gate/findings.h>

/* ---- rows.c: the parts of a program in two recordings ------------------------------------------------------------- */

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

/* ---- growth.c, changes.c: from one recording to another ------------------------------------------------------------ */

struct gp_gate_growth { /* --max-growth */
    bool given;
    int64_t bytes;  /* -1: percent is given */
    double percent; /* of the peak of the device */
};
/* "10MiB" or "5%".  0, -EINVAL, -ERANGE. */
int gp_gate_growth_parse(const char *text, struct gp_gate_growth *growth);

struct gp_gate_change {      /* a row of `diff` */
    char *label, *operation; /* operation: NULL none */
    char *words;             /* of a use, as texts have it; NULL: the label */
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
