/* SPDX-License-Identifier: MIT
 *
 * oompage.h: joins the two parts of the out-of-memory report: the page (oomtext.c) and the
 * advice (oomadvice.c).
 */
#ifndef GP_OOM_OOMPAGE_H
#define GP_OOM_OOMPAGE_H

#include "base/compiler.h"
#include "session/oom/oomtext.h"

struct gp_oom_page {
    char *out;
    size_t bytes, used;
    unsigned lines;
    const char *label; /* of the next paragraph that has no label of its own */
};

#define GP_OOM_SIZE 24
/* "2.713 GiB", "100 MiB": the digits that other details have, without trailing zeros. */
const char *gp_oom_size(char text[GP_OOM_SIZE], int64_t bytes);

/* The first line: no label, cut at the page's width. */
void gp_oom_title(struct gp_oom_page *page, const char *text);

/* One labelled paragraph, wrapped at words. label NULL: uses page->label, once. */
void gp_oom_say(struct gp_oom_page *page, const char *label, const char *format, ...) GP_PRINTF(3, 4);

/* A failed request, as the conditions of the advice look at it. */
struct gp_oom_case {
    const struct gp_wire_oom *oom;
    const struct gp_wire_oom_framework *framework; /* flags 0: none */
    const struct gp_oom_sums *sums;
    int64_t asked;
};

int64_t gp_oom_asked(const struct gp_wire_oom *oom); /* at most a quarter of the largest number: sums stay in range */
/* Bytes that the driver has to have free for the request. */
int64_t gp_oom_needed(const struct gp_wire_oom *oom, const struct gp_wire_oom_framework *framework);
/* That of the facts, or one with flags 0. */
const struct gp_wire_oom_framework *gp_oom_framework_of(const struct gp_oom_facts *facts);

/* oomframework.c: advice about a framework's own allocator. Where it does not apply, GP_OOM_NOT. */
enum gp_oom_answer { GP_OOM_NOT, GP_OOM_HELPS, GP_OOM_FAILS, GP_OOM_UNKNOWN };
enum gp_oom_answer gp_oom_fraction(const struct gp_oom_case *c);
enum gp_oom_answer gp_oom_empty(const struct gp_oom_case *c);
enum gp_oom_answer gp_oom_less_cache(const struct gp_oom_case *c);
enum gp_oom_answer gp_oom_torch_expandable(const struct gp_oom_case *c);
enum gp_oom_answer gp_oom_torch_split(const struct gp_oom_case *c);
void gp_oom_say_fraction(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure);
void gp_oom_say_empty(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure);
void gp_oom_say_less_cache(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure);
void gp_oom_say_torch_expandable(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure);
void gp_oom_say_torch_split(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure);
/* Whether a setting would have helped: "" where advice above it says so. */
const char *gp_oom_framework_settings(const struct gp_oom_case *c);
/* The paragraphs of the page: its limit, and its idle memory. */
void gp_oom_framework_limit(struct gp_oom_page *page, const struct gp_wire_oom *oom,
                            const struct gp_wire_oom_framework *of);
void gp_oom_framework_idle(struct gp_oom_page *page, const struct gp_wire_oom *oom,
                           const struct gp_wire_oom_framework *of);

void gp_oom_advice_say(struct gp_oom_page *page, const struct gp_oom_facts *facts, const struct gp_oom_sums *sums);

#endif
