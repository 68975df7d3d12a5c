/* SPDX-License-Identifier: MIT
 *
 * oompage.h: joins the two parts of the out-of-memory report: the page (oomtext.c) and the
 * advice (oomadvice.c).
 */
#ifndef GP_OOM_OOMPAGE_H
#define GP_OOM_OOMPAGE_H

#include "base/compiler.h"
#include "oom/oomtext.h"

struct gp_oom_page {
    char *out;
    size_t bytes, used;
    unsigned lines;
    const char *label; /* of the next paragraph that has no label of its own */
};

#define GP_OOM_SIZE 24
/* "2.71 GiB", "100 MiB": at most two decimals, without trailing zeros. */
const char *gp_oom_size(char text[GP_OOM_SIZE], int64_t bytes);

/* The first line: no label, cut at the page's width. */
void gp_oom_title(struct gp_oom_page *page, const char *text);

/* One labelled paragraph, wrapped at words. label NULL: uses page->label, once. */
void gp_oom_say(struct gp_oom_page *page, const char *label, const char *format, ...) GP_PRINTF(3, 4);

void gp_oom_advice_say(struct gp_oom_page *page, const struct gp_oom_facts *facts, const struct gp_oom_sums *sums);

#endif
