/* SPDX-License-Identifier: MIT
 *
 * textpage.h: how a page of text is laid out: sites, columns, headings and bars; and its parts about
 * growth (leakstext.c).
 */
#ifndef GP_SHOW_TEXT_TEXTPAGE_H
#define GP_SHOW_TEXT_TEXTPAGE_H

#include <analyze/report.h>
#include <show/text/text.h>
#include <stdbool.h>
#include <stdint.h>
#include <symbol/symbol.h>

/* The line about the steps, then the first suspects (at most `most`) and candidates, each with `frames`
 * frames of its stack. */
void gp_text_growth(const struct gp_text_page *page, const struct gp_report *report, uint32_t most, uint32_t frames);
/* "99 steps of 20 ms: calls of an optimizer's step on the stacks" */
void gp_text_step_line(const struct gp_text_page *page, const struct gp_report *report);

/* "s" for more than one. */
const char *gp_text_plural(uint64_t count);
/* The name of a site, after `used` columns of the line.  The function stands out; the file and the caller
 * and callee that distinguish it from other sites are dim. */
void gp_text_site(const struct gp_text_page *page, const struct gp_report *report, uint32_t site,
                  const struct gp_frame_text *caller, const struct gp_frame_text *callee, int used);
/* Prints a stack, innermost frame first: in bold the one that names the site, the user's own as
 * they are, others dim.  Several of a kind in a row are one line.  At most `rows` lines follow the
 * name. */
void gp_text_stack(const struct gp_text_page *page, const struct gp_report *report, uint32_t site, uint32_t rows);

/* What the pages of reporttext.c are made of: cut names, folded lines, bars. */

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
/* Prints phrases, which commas or semicolons end, after `used` columns of a line.  On a terminal, a
 * phrase that does not fit begins a line of its own. */
void gp_text_phrases(const struct gp_text_page *page, const char *text, int used);
/* share: 0..1.  The bar is padded to GP_PAGE_BAR columns. */
void gp_text_bar(const struct gp_text_page *page, double share);
/* A curve as one line of bars, in at most `columns` columns. */
void gp_text_spark(const struct gp_text_page *page, const int64_t *values, uint32_t count, unsigned columns);

#endif
