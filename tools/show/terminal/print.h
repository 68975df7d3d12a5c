/* SPDX-License-Identifier: MIT
 *
 * print.h: `gpuprof top` for pipes and scripts: a plain table, or one JSON object of schema
 * gpuprof.top/1.
 */
#ifndef GP_VIEW_PRINT_H
#define GP_VIEW_PRINT_H

#include <jansson.h>
#include <show/terminal/rows.h>
#include <stdio.h>

struct gp_print_form {
    bool utf8; /* else ASCII */
    int width; /* of the terminal; 0: a pipe, which gets every column and whole lines */
};

void gp_print_table(FILE *out, const struct gp_model *model, const struct gp_row_list *list,
                    const struct gp_print_form *form);
/* time_ns: since 1970.  NULL: out of memory. */
json_t *gp_print_json(const struct gp_model *model, const struct gp_row_list *list, uint64_t time_ns);

#endif
