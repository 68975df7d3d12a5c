/* SPDX-License-Identifier: MIT
 *
 * rows.h: makes the lines of the table: the rows of the model, filtered, sorted and put into a tree
 * as the user chose. Pure.
 */
#ifndef GP_VIEW_ROWS_H
#define GP_VIEW_ROWS_H

#include <show/terminal/model.h>
#include <show/terminal/ui.h>

/* Replaces the list's contents; the rows point into the model.  0 or -ENOMEM (the list is then
 * empty). */
int gp_rows_build(const struct gp_model *model, const struct gp_ui *ui, struct gp_row_list *list);
void gp_rows_fini(struct gp_row_list *list);

/* ---- the text that finds a row ----------------------------------------------------------------------------------- */
/* The text by which a user finds a row: of the filter, and of the search.  Pure. */

/* The row's pid, command, user, container or owner contains the text, in any case; of a call site,
 * its function, file, caller, kind of memory or pid. */
bool gp_match_row(const struct gp_row *row, const char *text);

#endif
