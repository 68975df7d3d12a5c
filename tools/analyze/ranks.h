/* SPDX-License-Identifier: MIT
 *
 * ranks.h: the recordings of several processes of one job, side by side: which is the worst, how far they
 * lie apart over time, and what the worst holds that the median does not.  Each recording is reduced to
 * a struct gp_job_rank when it is read, so that hundreds of them need little memory.
 */
#ifndef GP_ANALYZE_RANKS_H
#define GP_ANALYZE_RANKS_H

#include <analyze/analyze.h>
#include <stdbool.h>
#include <stdint.h>

#define GP_RANK_NAME  160
#define GP_RANK_POINT 400u /* moments over time */
#define GP_RANK_WHY   256

enum gp_rank_from { GP_RANK_RECORDED, GP_RANK_FILE_NAME, GP_RANK_ORDER };
enum gp_rank_clock {
    GP_CLOCK_MONOTONIC, /* one machine: the recordings share its clock */
    GP_CLOCK_WALL       /* several machines, or snapshots of PyTorch: as exact as their wall clocks agree */
};

struct gp_rank_site { /* a line of code of the program; equal names are one row */
    char name[GP_RANK_NAME];
    char owner[GP_SITE_OWNER];
    uint8_t kind;
    int64_t peak_bytes; /* at the rank's peak */
};

struct gp_rank_gpu { /* a GPU on which the process held memory */
    char uuid[48];   /* "": unknown, so that no other rank's can be told to be the same */
    int32_t device;  /* the process's ordinal */
    int64_t peak_bytes, reserved_peak_bytes, total_bytes;
    char site[GP_RANK_NAME]; /* that held most at the peak; "" */
    int64_t site_bytes;
    bool own;        /* the fullest one, of which the rank's numbers are */
    uint32_t shared; /* set by gp_ranks_find: equal numbers are one GPU, from 1; 0: no other rank held memory there */
};

struct gp_rank_growth;

struct gp_job_rank {
    const char *file;
    int32_t number, local_number, world_size; /* the last two may be -1, unknown */
    enum gp_rank_from from;
    char host[65], comm[65];
    uint32_t pid;
    bool from_torch, from_rmm, from_pprof, complete;
    uint64_t missing, events, ooms;
    uint64_t begin_ns, end_ns, begin_unix_ns; /* of the recording, as it has them */
    /* Of the device that was fullest at its peak; device_count: how many the process used. */
    int32_t device;
    uint32_t device_count;
    char device_name[64];
    int64_t total_bytes; /* -1 unknown */
    int64_t peak_bytes, end_bytes, reserved_peak_bytes;
    uint64_t peak_ns;
    struct gp_rank_gpu *gpus;    /* the caller's; device_count of them */
    int64_t headroom_bytes;      /* the device's size less the peaks of reserved that ranks had there; -1 unknown */
    double growth_per_second;    /* bytes, of the suspects that are likely; 0: none */
    double growth_per_step;      /* the same; 0 also if steps are only stretches of time */
    double seconds_to_oom;       /* < 0: unknown, or never */
    char grows[GP_RANK_NAME];    /* the fastest of them; "" */
    char may_grow[GP_RANK_NAME]; /* without them, the likeliest candidate; "" */
    struct gp_series *allocated; /* the caller's */
    struct gp_rank_site *sites;  /* the caller's; sorted and joined by gp_ranks_find */
    uint32_t site_count;
    struct gp_rank_growth *growth; /* the caller's; NULL but for `gpuprof leaks` (rankleaks.h) */
    uint32_t group;                /* set by gp_ranks_find: equal numbers are ranks that are alike; 0 has the worst */
    bool by_headroom;              /* set by gp_ranks_find: the headroom of every rank is known */
    uint64_t shift_ns;             /* set by gp_ranks_find: what to add to its times for ns since the job's start */
};

struct gp_rank_row {          /* of a call site or of an owner */
    const char *name, *owner; /* of a site; of an owner both are its name */
    uint8_t kind;
    int64_t worst_bytes, median_bytes; /* excess: the difference */
    uint32_t holders;                  /* ranks that hold some of it at their peak */
    bool is_offset; /* the worst holds more here, and as much less at a site alike (gp_ranks_offset) */
};

struct gp_rank_moment {
    uint64_t time_ns; /* since the job's start */
    int64_t low, median, high;
    uint32_t ranks; /* that were recorded then; 0: nothing else is set */
};

struct gp_rank_left { /* a file that is not among the ranks */
    const char *file;
    char why[GP_RANK_WHY];
};

struct gp_rank_span { /* ranks of consecutive numbers */
    int32_t first, last;
};

struct gp_ranks {
    struct gp_job_rank *ranks; /* the caller's array, the worst first */
    uint32_t count;
    uint32_t group_count;
    const struct gp_rank_left *left; /* the caller's; NULL */
    uint32_t left_count;
    int32_t world_size; /* that all recordings with a rank name; 0: unknown, or they differ */
    /* The ranks of the world without a recording here, lowest first; not set if the world is unknown. */
    struct gp_rank_span *missing;
    uint32_t missing_spans, missing_count;
    enum gp_rank_clock clock;
    uint64_t begin_unix_ns, length_ns;
    int64_t lowest_bytes, median_bytes, highest_bytes; /* of the peaks */
    struct gp_rank_moment moments[GP_RANK_POINT];
    struct gp_rank_row *sites, *owners; /* by excess, the largest first; sites that are offset after the others */
    uint32_t site_count, owner_count;
    uint32_t shared_count; /* GPUs on which several ranks held memory, in times that overlap */
};

/* One GPU that several ranks held memory on. */
struct gp_rank_share {
    int64_t together_bytes;          /* the sum of the ranks' peaks: the most that they may have held at once */
    uint32_t ranks, strays;          /* strays: those that are also on a GPU of their own */
    const struct gp_job_rank *rank;  /* of a stray, or of any rank: the one that held most */
    const struct gp_rank_gpu *gpu;   /* its */
    const struct gp_job_rank *other; /* of the others the one that held most; NULL */
    const struct gp_rank_gpu *other_gpu;
};
/* rankgpus.c.  number: from 1 to shared_count. */
struct gp_rank_share gp_ranks_share(const struct gp_ranks *all, uint32_t number);

/* Sorts the ranks and compares them.  The worst is one that ran out of memory, else the one with
 * the least headroom if that is known of all, else, and of equal ones, the one with the highest
 * peak.  NULL: out of memory. */
struct gp_ranks *gp_ranks_find(struct gp_job_rank *ranks, uint32_t count);
void gp_ranks_free(struct gp_ranks *ranks);
/* Whether `less`, by which a rank holds less at a site than the median, offsets the `more` of another site. */
bool gp_ranks_offset(const struct gp_rank_row *site, int64_t more, const struct gp_rank_row *other, int64_t less);
/* rankgroups.c.  Sets the groups of ranks that are alike, and the missing ranks.  False: out of memory. */
bool gp_ranks_group(struct gp_ranks *ranks);
/* rankgroups.c.  Sets the missing ranks alone.  False: out of memory. */
bool gp_ranks_missing(struct gp_ranks *ranks);
/* The highest bytes that the rank held in the i-th moment; -1: it was not recorded then. */
int64_t gp_ranks_at(const struct gp_ranks *ranks, const struct gp_job_rank *rank, uint32_t moment);

/* Finds the GPUs that several of the ranks use, whose times have shift_ns, and lowers the headroom by
 * what the others had reserved there.  False: out of memory. */
bool gp_ranks_shared(struct gp_ranks *all);

#endif
