/* SPDX-License-Identifier: MIT
 *
 * oom.h: the out-of-memory report: facts in, text out.
 */
#ifndef GP_OOM_OOM_H
#define GP_OOM_OOM_H

#include "base/compiler.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ==== for readers ================================================================================================= */
/* The out-of-memory report for readers: facts in, text out. It reads no clock, process or
 * environment, and allocates nothing. Called by the library's log and by the commands, which pass
 * what they know beside the facts. */

struct gp_oom_facts {
    const struct gp_wire_oom *oom; /* checked: indices in range, strings terminated and printable, numbers >= -1 */
    const struct gp_wire_oom_framework *framework; /* likewise; NULL: no framework is known there */
    uint32_t pid;                                  /* 0: unknown */
    const char *comm, *device_name;                /* NULL or "": unknown */
    uint64_t start_ns;                             /* of the session; 0: unknown */
    int64_t total_bytes;                           /* of the device, as cuDeviceTotalMem has it; 0 or less: unknown */
    int64_t untracked_bytes;  /* this process's, beside its allocations: context and code; -1: unknown */
    const char *place;        /* the call site of the failed request; NULL or "": not known */
    const char *const *where; /* by holder: the call site that requested it; NULL: not known, as in the library */
};

/* The sums over the facts. -1: unknown. */
struct gp_oom_sums {
    int64_t total_bytes;   /* of the device */
    int64_t capped_bytes;  /* what the driver lets this process's cgroup use of it, if that is less; 0: all */
    int64_t room_bytes;    /* left by the driver and the limit: the free bytes, or less */
    int64_t missing_bytes; /* missing in the driver even with all releasable memory given back */
    int64_t other_bytes;   /* not of this process, or untracked; inside a cap: of the processes under it */
    bool others_are_sure;  /* other_bytes contains no memory of this process */
    int64_t pool_idle_bytes, graph_idle_bytes;
};
void gp_oom_sum(struct gp_oom_sums *out, const struct gp_oom_facts *facts);

/* The advice, in the order of the page. Each piece is given only if the numbers support it. */
enum gp_oom_advice {
    GP_ADVICE_TOO_LARGE,
    GP_ADVICE_LIMIT,
    GP_ADVICE_CAP,
    GP_ADVICE_EXPANDABLE,
    GP_ADVICE_CACHING,
    GP_ADVICE_MAX_SPLIT,
    GP_ADVICE_FRACTION, /* this and the next four: of a framework's own allocator */
    GP_ADVICE_EMPTY,
    GP_ADVICE_LESS_CACHE,
    GP_ADVICE_TORCH_EXPANDABLE,
    GP_ADVICE_TORCH_SPLIT,
    GP_ADVICE_POOL,
    GP_ADVICE_GRAPH,
    GP_ADVICE_OTHERS,
    GP_ADVICE_AGAIN,
    GP_ADVICE_LESS,
    GP_ADVICES
};
const char *gp_oom_advice_name(enum gp_oom_advice advice); /* "raise_limit" */
/* A bit per piece of advice: it would have helped (at least one), it is not known to help and not known not to, and
 * for advice about a framework's allocator: it would not have helped. */
struct gp_oom_advised {
    unsigned helps, unknown, fails;
};
struct gp_oom_advised gp_oom_advise(const struct gp_oom_facts *facts);

/* A page has at most 40 lines of 100 columns, each ended by a newline. */
#define GP_OOM_PAGE_BYTES   4200
#define GP_OOM_PAGE_LINES   40
#define GP_OOM_PAGE_COLUMNS 100
#define GP_OOM_WHERE        38 /* bytes of a call site: left by the other columns */

/* Writes the page, NUL-terminated, and returns its length. If it does not fit, whole lines are
 * left out. */
size_t gp_oom_page(char *out, size_t out_bytes, const struct gp_oom_facts *facts);

/* ==== between the page and its advice ============================================================================= */
/* Joins the two parts of the out-of-memory report: the page (oomtext.c) and the advice
 * (oomadvice.c). */

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

/* The paragraphs of the page: its limit, and its idle memory. */
void gp_oom_framework_limit(struct gp_oom_page *page, const struct gp_wire_oom *oom,
                            const struct gp_wire_oom_framework *of);
void gp_oom_framework_idle(struct gp_oom_page *page, const struct gp_wire_oom *oom,
                           const struct gp_wire_oom_framework *of);

void gp_oom_advice_say(struct gp_oom_page *page, const struct gp_oom_facts *facts, const struct gp_oom_sums *sums);

#endif
