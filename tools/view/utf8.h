/* SPDX-License-Identifier: MIT
 *
 * utf8.h: UTF-8 walking, column widths and the way numbers are written for people.  Used by every stage of the view;
 * pure, but for the locale's wcwidth.  Unknown is written "-", never 0.
 */
#ifndef GP_VIEW_UTF8_H
#define GP_VIEW_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the first character (>= 1 unless *text is NUL, then 0).  Malformed bytes give U+FFFD, one byte each. */
int gp_text_decode(const char *text, uint32_t *code);
/* Columns that a character takes: 0 combining, 1, 2; control characters are shown as '?' and take 1. */
int gp_text_code_width(uint32_t code);
int gp_text_width(const char *text);

enum gp_text_form {
    GP_TEXT_SHORT, /* 12.3G: tables on the screen */
    GP_TEXT_GLUED, /* 12.3GiB: printed tables, one word for awk */
    GP_TEXT_LONG,  /* 12.3 GiB: sentences */
};

/* Bytes in powers of two; negative is unknown.  Returns `out`. */
const char *gp_text_bytes(int64_t bytes, enum gp_text_form form, char *out, size_t out_bytes);
/* A count or a rate with three digits and K, M, G (powers of ten); NaN or negative is unknown. */
const char *gp_text_rate(double rate, char *out, size_t out_bytes);
const char *gp_text_count(int64_t count, char *out, size_t out_bytes);
/* 90 s -> "1m30s". */
const char *gp_text_duration(double seconds, char *out, size_t out_bytes);

#endif
