/* SPDX-License-Identifier: MIT
 *
 * column.h: the table of columns, which the screen, the printed tables, --sort and the sort menus
 * share.  A view shows either the columns of processes and their sums, or those of call sites.
 */
#ifndef GP_SHOW_TERMINAL_COLUMN_H
#define GP_SHOW_TERMINAL_COLUMN_H

#include <show/terminal/grid.h>
#include <show/terminal/model.h>
#include <stdbool.h>
#include <stddef.h>

enum gp_column_id {
#define GP_COLUMN(_id, ...) GP_COLUMN_##_id,
#include <show/terminal/column.def>
    GP_COLUMNS
};

enum gp_column_in { GP_IN_PROCESSES = 1, GP_IN_SITES = 2, GP_IN_BOTH = 3, GP_IN_ROWS = 4 };
enum gp_column_form { GP_FORM_TEXT, GP_FORM_WORD, GP_FORM_NUMBER, GP_FORM_DRAWN };
enum gp_column_shown { GP_SHOWN_USED, GP_SHOWN_ALWAYS, GP_SHOWN_RATE, GP_SHOWN_COUNT, GP_SHOWN_ROWS };

struct gp_column_say { /* how a text is wanted */
    const struct gp_model *model;
    enum gp_text_form form;
    bool ascii;
};

struct gp_column { /* column.def explains the fields */
    const char *name;
    int width, print_width;
    unsigned in;
    enum gp_column_form form;
    int keep;
    double (*value)(const struct gp_row *row);
    void (*text)(double value, const struct gp_row *row, const struct gp_column_say *say, char *out, size_t out_bytes);
    enum gp_style style;
    enum gp_column_shown shown;
    const char *what;
};

extern const struct gp_column gp_columns[GP_COLUMNS];

/* Aligned to the right. */
static inline bool gp_column_right(const struct gp_column *column)
{
    return column->form == GP_FORM_WORD || column->form == GP_FORM_NUMBER;
}

/* The column belongs to the table of call sites (sites), or to that of processes. */
bool gp_column_in(enum gp_column_id id, bool sites);
/* The rows of the table can be sorted by it. */
bool gp_column_sorts(enum gp_column_id id, bool sites);
/* Finds a column of a table by its name, in any case.  GP_COLUMNS: no column of that name can be
 * sorted by. */
enum gp_column_id gp_column_find(const char *name, bool sites);
/* The first order of a column when it is chosen: the largest number or the first text on top. */
bool gp_column_ascends(enum gp_column_id id);
/* The number of the row; NAN: unknown, or the column has texts alone. */
double gp_column_value(enum gp_column_id id, const struct gp_row *row);
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
