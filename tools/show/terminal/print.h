/* SPDX-License-Identifier: MIT
 *
 * print.h: `gpuprof top` for pipes and scripts: a plain table, or one JSON object of schema
 * gpuprof.top/1.
 */
#ifndef GP_SHOW_TERMINAL_PRINT_H
#define GP_SHOW_TERMINAL_PRINT_H

#include <jansson.h>
#include <show/terminal/model.h>
#include <show/terminal/siteview.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct gp_print_form {
    bool utf8; /* else ASCII */
    int width; /* of the terminal; 0: a pipe, which gets every column and whole lines */
};

/* Prints rows of one table without escapes; row i is rows[i].  Columns are separated by blanks, and
 * the one without a width is last.  Lines are cut at the width of a terminal; a narrow one loses
 * columns without a value first, then those of the least use. */
void gp_print_rows(FILE *out, const struct gp_model *model, const struct gp_row *rows, int count, bool sites,
                   const struct gp_print_form *form);
void gp_print_table(FILE *out, const struct gp_model *model, const struct gp_row_list *list,
                    const struct gp_print_form *form);
/* time_ns: since 1970.  NULL: out of memory. */
json_t *gp_print_json(const struct gp_model *model, const struct gp_row_list *list, uint64_t time_ns);

/* ---- printsites.c ------------------------------------------------------------------------------------------------ */

/* Prints a table: one line per site, no escapes.  0 or -ENOMEM. */
int gp_site_print(FILE *out, const struct gp_site_model *model, const struct gp_print_form *form);
/* The array "sites" of gpuprof.top/1. */
json_t *gp_site_json(const struct gp_site_model *model);
/* Sentence i (from 0) about allocations that could not be counted or named; false after the last
 * one. */
bool gp_site_note(const struct gp_site_model *model, uint32_t i, char *out, size_t out_bytes);

#endif
