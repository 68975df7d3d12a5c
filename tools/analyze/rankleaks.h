/* SPDX-License-Identifier: MIT
 *
 * rankleaks.h: what grows in each of the recordings of a job, and which ranks are alike in that.  A recording is
 * reduced to a struct gp_rank_growth of a fixed size when it is read.
 */
#ifndef GP_ANALYZE_RANKLEAKS_H
#define GP_ANALYZE_RANKLEAKS_H

#include <analyze/analyze.h>
#include <analyze/ranks.h>
#include <stdbool.h>
#include <stdint.h>

#define GP_RANK_GROWN   16u /* names that are kept of a rank; it counts the others */
#define GP_RANK_RHYTHM  160
#define GP_RANK_UNKNOWN 160

/* A rank has the first of these answers that holds. */
enum gp_rank_answer {
    GP_RANK_SUSPECTS,    /* it leaks */
    GP_RANK_CANDIDATES,  /* something grows, and it is not known whether it leaks */
    GP_RANK_CANNOT_KNOW, /* nothing was found, and the recording is not enough to deny a leak */
    GP_RANK_NOTHING_GROWS,
    GP_RANK_ANSWERS
};

/* Call sites of one name, owner, kind and place that hold more with every step. */
struct gp_rank_grown {
    char name[GP_RANK_NAME];
    char owner[GP_SITE_OWNER];
    int32_t device;      /* the process's ordinal; -1: the host */
    bool own;            /* on the GPU that is the rank's fullest one: another rank's may have another ordinal */
    uint32_t sites;      /* so many have the name */
    struct gp_leak leak; /* of all of them; the lowest of their confidences; without site, device and curve */
};

struct gp_rank_growth {
    enum gp_rank_answer answer;
    bool no_step;              /* the recording has no step of the name that the user gave */
    char why[GP_RANK_UNKNOWN]; /* there are no suspects */
    uint32_t steps;
    uint64_t step_ns;
    bool timed; /* the steps are stretches of time: bytes per second mean more */
    char step_word[16], step_source[16], step_found[16], step_name[40], rhythm[GP_RANK_RHYTHM];
    uint64_t damaged_blocks;
    bool early, lossy; /* the recording ends before its program; it lacks events, so blocks may be missing or too old */
    uint32_t suspects, candidates; /* names */
    uint32_t count;
    struct gp_rank_grown rows[GP_RANK_GROWN]; /* suspects first, each in the order of gp_leaks */
};

struct gp_rank_range {
    double low, high;
};
/* A row of a group: what all of its ranks have. */
struct gp_rank_leak_row {
    const struct gp_rank_grown *first;   /* of the rank that grows fastest */
    struct gp_rank_range rate;           /* bytes per step; per second if the steps are stretches of time */
    struct gp_rank_range bytes, blocks;  /* live */
    struct gp_rank_range sure;           /* confidence */
    struct gp_rank_range seconds_to_oom; /* low < 0: unknown of one of them, or never */
};
struct gp_rank_leak_group {
    const struct gp_job_rank *first;    /* the one with the lowest number */
    uint32_t count;                     /* ranks */
    struct gp_rank_range steps, others; /* others: candidates beside suspects */
    uint32_t row_count;
    struct gp_rank_leak_row rows[GP_RANK_GROWN];
};

struct gp_rank_leaks {
    struct gp_ranks all; /* ranks, count, groups, files left out and missing ranks alone; sorted by group */
    struct gp_rank_leak_group *groups; /* all.group_count of them */
    uint32_t usual;                    /* the group with most ranks */
    uint32_t answers[GP_RANK_ANSWERS]; /* recordings */
    uint32_t numbers;                  /* different ranks: a rank may have several recordings */
    uint32_t early, lossy;             /* recordings, as in struct gp_rank_growth */
    const struct gp_job_rank *full;    /* the rank whose GPU is full first; NULL: of no suspect is that known */
    double full_seconds;
};

/* Adds a site to the growth of a rank, by its name; suspects must come first. */
void gp_rank_growth_add(struct gp_rank_growth *growth, const struct gp_rank_grown *row);

/* Sorts the ranks, each of which has its growth, and groups those that are alike.  NULL: out of memory. */
struct gp_rank_leaks *gp_rank_leaks_find(struct gp_job_rank *ranks, uint32_t count);
void gp_rank_leaks_free(struct gp_rank_leaks *leaks);

#endif
