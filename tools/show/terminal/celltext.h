/* SPDX-License-Identifier: MIT
 *
 * celltext.h: text in the cells of a table: UTF-8 decoding, widths in columns, and the format of
 * sizes, rates, counts and durations.  All of tools/show/terminal uses it.  Pure, except that widths depend
 * on the locale (wcwidth).  An unknown value is "-", never 0.
 */
#ifndef GP_VIEW_CELLTEXT_H
#define GP_VIEW_CELLTEXT_H

#include <stddef.h>
#include <stdint.h>

/* Decodes the first character and returns its length in bytes; 0 at the end of the text.  Each
 * malformed byte is decoded as U+FFFD. */
int gp_cell_decode(const char *text, uint32_t *code);
/* The columns of a character: 0 if it combines, 1 or 2.  A control character is shown as '?' and
 * takes 1. */
int gp_cell_code_width(uint32_t code);
int gp_cell_width(const char *text);

enum gp_text_form {
    GP_TEXT_SHORT, /* 12.3G: tables */
    GP_TEXT_WHOLE, /* the same, with the whole path of a program: tables that need not fit a screen */
    GP_TEXT_LONG,  /* 12.30 GiB: sentences and details, as gp_size_text has it */
};

/* All of these return `out`.  Units of bytes are powers of two; a negative size is unknown. */
const char *gp_cell_bytes(int64_t bytes, enum gp_text_form form, char *out, size_t out_bytes);
/* Three digits and K, M, G (powers of ten); NaN or a negative value is unknown. */
const char *gp_cell_rate(double rate, char *out, size_t out_bytes);
const char *gp_cell_count(int64_t count, char *out, size_t out_bytes);
/* 90 s -> "1m30s". */
const char *gp_cell_duration(double seconds, char *out, size_t out_bytes);

#endif
