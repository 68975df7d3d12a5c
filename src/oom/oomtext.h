/* SPDX-License-Identifier: MIT
 *
 * oomtext.h: the out-of-memory report for people: facts in, text out.  Pure: it reads no clock, no process and no
 * environment, and allocates nothing.  Called by the library's log and by the commands, which pass what they know
 * beside the facts.
 */
#ifndef GP_OOM_OOMTEXT_H
#define GP_OOM_OOMTEXT_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_oom_facts {
    const struct gp_wire_oom *oom;  /* checked: indices in range, strings ended and printable, numbers >= -1 */
    uint32_t pid;                   /* 0 unknown */
    const char *comm, *device_name; /* NULL or "" unknown */
    uint64_t start_ns;              /* of the session; 0 unknown */
    int64_t total_bytes;            /* of the device, if the report has none; 0 or less: unknown */
    int64_t untracked_bytes;        /* this process's, beside what it allocated: context and code; -1 unknown */
    const char *const *where;       /* by holder: the place that asked for it; NULL: none is known, as in the library */
};

/* What the facts add up to.  -1 unknown. */
struct gp_oom_sums {
    int64_t total_bytes;
    int64_t room_bytes;    /* that the driver and the limit left: free, or less */
    int64_t missing_bytes; /* that the driver lacked, with everything given back that can be */
    int64_t other_bytes;   /* not this process's, or untracked */
    bool others_are_sure;  /* other_bytes contains nothing of this process */
    int64_t pool_idle_bytes, graph_idle_bytes;
};
void gp_oom_sum(struct gp_oom_sums *out, const struct gp_oom_facts *facts);

/* What would help, each given only if the numbers say so.  In the order of the page. */
enum gp_oom_advice {
    GP_ADVICE_TOO_LARGE,
    GP_ADVICE_LIMIT,
    GP_ADVICE_EXPANDABLE,
    GP_ADVICE_CACHING,
    GP_ADVICE_MAX_SPLIT,
    GP_ADVICE_POOL,
    GP_ADVICE_GRAPH,
    GP_ADVICE_OTHERS,
    GP_ADVICE_AGAIN,
    GP_ADVICE_LESS,
    GP_ADVICES
};
const char *gp_oom_advice_name(enum gp_oom_advice advice); /* "raise_limit" */
/* Bit per advice that applies: at least one. */
unsigned gp_oom_advise(const struct gp_oom_facts *facts);

/* A page is at most 40 lines of 100 columns, each ended by a newline. */
#define GP_OOM_PAGE_BYTES   4200
#define GP_OOM_PAGE_LINES   40
#define GP_OOM_PAGE_COLUMNS 100
#define GP_OOM_WHERE        38 /* bytes of a place: what the other columns leave */

/* Writes the page, NUL-terminated; returns its length.  What does not fit is left out by whole lines. */
size_t gp_oom_page(char *out, size_t out_bytes, const struct gp_oom_facts *facts);

#endif
