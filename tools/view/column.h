/* SPDX-License-Identifier: MIT
 *
 * column.h: one table of columns; the screen, the printed table, --sort and the sort menu are its mouths.
 */
#ifndef GP_VIEW_COLUMN_H
#define GP_VIEW_COLUMN_H

#include <base/compiler.h>
#include <view/model.h>
#include <view/utf8.h>

enum gp_column_id {
    GP_COLUMN_PID,
    GP_COLUMN_USER,
    GP_COLUMN_DEV,
    GP_COLUMN_ALLOC,
    GP_COLUMN_PEAK,
    GP_COLUMN_RESERVED,
    GP_COLUMN_RPEAK,
    GP_COLUMN_BAR, /* drawn, not written: no text, no order */
    GP_COLUMN_ALLOCS,
    GP_COLUMN_FREES,
    GP_COLUMN_LOST,
    GP_COLUMN_UNTRACKED,
    GP_COLUMN_CONTAINER,
    GP_COLUMN_STATE,
    GP_COLUMN_COMMAND,
    GP_COLUMNS
};

struct gp_column {
    const char *name;
    int width;       /* on the screen, without the gap */
    int print_width; /* in the printed table; 0: the rest of the line */
    bool right;      /* aligned */
    bool numeric;    /* largest first is the natural order */
    int keep;        /* the lower, the earlier it goes when the screen is narrow */
    const char *what;
};

extern const struct gp_column gp_columns[GP_COLUMNS];

/* Any case; GP_COLUMNS when there is none of this name or it has no order. */
enum gp_column_id gp_column_find(const char *name);
const char *gp_column_text(enum gp_column_id id, const struct gp_row *row, const struct gp_model *model,
                           enum gp_text_form form, bool ascii, char *out, size_t out_bytes);
/* <0, 0, >0 in ascending order; unknown values are equal to one another, and *unknown says where they are (bit 0: a,
 * bit 1: b), so that they come last in either direction. */
int gp_column_compare(enum gp_column_id id, const struct gp_row *a, const struct gp_row *b,
                      const struct gp_model *model, int *unknown);
/* Columns that fit into `width`, in the table's order; the last, COMMAND, takes what is left.  groups: every row is a
 * sum, which has no pid, user or state.  Returns the count; *rest is the width of the last one. */
int gp_columns_fit(int width, bool groups, enum gp_column_id ids[GP_COLUMNS], int *rest);

#endif
