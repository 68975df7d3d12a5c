/* SPDX-License-Identifier: MIT
 *
 * column.h: the table of columns, which the screen, the printed tables, --sort and the sort menus
 * share.  A view shows either the columns of processes and their sums, or those of call sites.
 */
#ifndef GP_VIEW_COLUMN_H
#define GP_VIEW_COLUMN_H

#include <base/compiler.h>
#include <view/celltext.h>
#include <view/model.h>

enum gp_column_id {
    GP_COLUMN_PID,
    GP_COLUMN_USER,
    GP_COLUMN_DEV,
    GP_COLUMN_ALLOC,
    GP_COLUMN_PEAK,
    GP_COLUMN_RESERVED,
    GP_COLUMN_RPEAK,
    GP_COLUMN_BAR, /* drawn: it has no text, and rows cannot be sorted by it */
    GP_COLUMN_ALLOCS,
    GP_COLUMN_FREES,
    GP_COLUMN_LOST,
    GP_COLUMN_UNTRACKED,
    GP_COLUMN_HEADROOM, /* this and the next two on the screen only: printed tables keep their columns */
    GP_COLUMN_BEFORE,
    GP_COLUMN_OOM_IN,
    GP_COLUMN_CONTAINER,
    GP_COLUMN_STATE,
    GP_COLUMN_COMMAND, /* takes the rest of the line */
    GP_COLUMN_KIND,    /* from here on columns of call sites */
    GP_COLUMN_LIVE,
    GP_COLUMN_SITE_PEAK,
    GP_COLUMN_AT_PEAK,
    GP_COLUMN_SHARE,
    GP_COLUMN_CALLS,
    GP_COLUMN_DELTA,
    GP_COLUMN_SITE, /* takes the rest of the line */
    GP_COLUMNS
};

struct gp_column {
    const char *name;
    int width;       /* on the screen, without the gap */
    int print_width; /* in the printed table; 0: the rest of the line */
    bool right;      /* aligned to the right */
    bool numeric;    /* sorted with the largest first by default */
    int keep;        /* priority: on a narrow screen the columns with the lowest value go first */
    const char *what;
};

extern const struct gp_column gp_columns[GP_COLUMNS];

/* The column belongs to the table of call sites (sites), or to that of processes. */
bool gp_column_in(enum gp_column_id id, bool sites);
/* Finds a column of a table by its name, in any case.  GP_COLUMNS: no column of that name can be
 * sorted by. */
enum gp_column_id gp_column_find(const char *name, bool sites);
/* The first order of a column when it is chosen: the largest number or the first text on top. */
bool gp_column_ascends(enum gp_column_id id);
const char *gp_column_text(enum gp_column_id id, const struct gp_row *row, const struct gp_model *model,
                           enum gp_text_form form, bool ascii, char *out, size_t out_bytes);
/* <0, 0 or >0 in ascending order.  Bit 0 of *unknown is set if the value of a is unknown, bit 1 for
 * b; the caller sorts unknown values last in either direction. */
int gp_column_compare(enum gp_column_id id, const struct gp_row *a, const struct gp_row *b,
                      const struct gp_model *model, int *unknown);

struct gp_column_choice {   /* what is known about the columns before their width is */
    bool sites;             /* of which table */
    bool printed;           /* as a printed table, whose columns are wider; else on the screen */
    bool groups;            /* every row is a sum and has no pid, user or state */
    bool empty[GP_COLUMNS]; /* no row has a value: the column is not shown */
};
/* Chooses the columns that fit into `width`, in the table's order; the last one takes the rest.
 * Returns the count; *rest is the width of the last column. */
int gp_columns_fit(int width, const struct gp_column_choice *choice, enum gp_column_id ids[GP_COLUMNS], int *rest);

#endif
