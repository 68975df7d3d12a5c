/* SPDX-License-Identifier: MIT
 *
 * rows.h: makes the lines of the table: the rows of the model, filtered, sorted and put into a tree
 * as the user chose. Pure.
 */
#ifndef GP_VIEW_ROWS_H
#define GP_VIEW_ROWS_H

#include <show/terminal/ui.h>

/* Replaces the list's contents; the rows point into the model.  0 or -ENOMEM (the list is then
 * empty). */
int gp_rows_build(const struct gp_model *model, const struct gp_ui *ui, struct gp_row_list *list);
void gp_rows_fini(struct gp_row_list *list);

#endif
