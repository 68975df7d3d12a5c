/* SPDX-License-Identifier: MIT
 *
 * print.h: `gpuprof top` for pipes and scripts: a plain table, or one JSON object of schema
 * gpuprof.top/1.
 */
#ifndef GP_VIEW_PRINT_H
#define GP_VIEW_PRINT_H

#include <jansson.h>
#include <stdio.h>
#include <view/rows.h>

/* Prints all columns, separated by blanks, with the command last and without escapes.  ASCII unless
 * `utf8`. */
void gp_print_table(FILE *out, const struct gp_model *model, const struct gp_row_list *list, bool utf8);
/* time_ns: since 1970.  NULL: out of memory. */
json_t *gp_print_json(const struct gp_model *model, const struct gp_row_list *list, uint64_t time_ns);

#endif
