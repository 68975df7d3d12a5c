/* SPDX-License-Identifier: MIT
 *
 * textpage.h: what the pages of reporttext.c are made of: cut names, folded lines, bars.
 */
#ifndef GP_WRITE_TEXTPAGE_H
#define GP_WRITE_TEXTPAGE_H

#include <show/text/reportformat.h>
#include <show/text/write.h>

#define GP_PAGE_BAR 12u /* columns */

/* At least 40 and at most 200 columns. */
int gp_text_width(const struct gp_text_page *page);
/* The escape sequence, or nothing where colours are off. */
const char *gp_text_on(const struct gp_text_page *page, const char *code);
/* blank: leave an empty line above the heading. */
void gp_text_heading(const struct gp_text_page *page, const char *text, bool blank);
/* Prints at most `columns` characters of text on a terminal; a text that is cut ends with "...". */
void gp_text_cut(const struct gp_text_page *page, const char *text, int columns);
/* Returns the columns that are left for a name after `used` others.  If they are too few, starts a new line. */
int gp_text_room(const struct gp_text_page *page, int used);
/* Prints phrases, which commas or semicolons end, after `used` columns of a line.  On a terminal, a phrase that does not
 * fit begins a line of its own. */
void gp_text_phrases(const struct gp_text_page *page, const char *text, int used);
/* share: 0..1.  The bar is padded to GP_PAGE_BAR columns. */
void gp_text_bar(const struct gp_text_page *page, double share);
/* A curve as one line of bars, in at most `columns` columns. */
void gp_text_spark(const struct gp_text_page *page, const int64_t *values, uint32_t count, unsigned columns);

#endif
