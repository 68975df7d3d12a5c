/* SPDX-License-Identifier: MIT
 *
 * arrowfile.h: writes a table in Apache Arrow's format, row by row.  One thread.
 */
#ifndef GP_CONVERT_EXPORT_ARROWFILE_H
#define GP_CONVERT_EXPORT_ARROWFILE_H

#include <convert/export/out.h>
#include <stdbool.h>
#include <stdint.h>

enum gp_arrow_type { GP_ARROW_INT32, GP_ARROW_INT64, GP_ARROW_FLAG, GP_ARROW_TEXT, GP_ARROW_TIME };

struct gp_arrow_column {
    const char *name;
    enum gp_arrow_type type; /* time: nanoseconds since 1970, UTC */
};

struct gp_arrow_file;

/* Begins a table, in Arrow's stream format.  schema: its name in the metadata.  The columns and `out` must outlive it.
 * NULL: out of memory. */
struct gp_arrow_file *gp_arrow_begin(const struct gp_arrow_column *columns, unsigned count, const char *schema,
                                     struct gp_out *out);
/* The next value of the row, in the order of the columns; known false: null.  A number is of any type but text;
 * one that its column cannot have is null too. */
void gp_arrow_number(struct gp_arrow_file *file, bool known, int64_t number);
/* NULL: null.  The text must be valid UTF-8 for _word; _text makes it so. */
void gp_arrow_word(struct gp_arrow_file *file, const char *word);
void gp_arrow_text(struct gp_arrow_file *file, const char *text);
/* Ends the row, of which each column has a value. */
void gp_arrow_row(struct gp_arrow_file *file);
/* 0; -errno before the end: of the first error, after which nothing is written. */
int gp_arrow_error(const struct gp_arrow_file *file);
/* Writes what is left, and frees the table.  0 or -errno of the first error. */
int gp_arrow_end(struct gp_arrow_file *file);

#endif
