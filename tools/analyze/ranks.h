/* SPDX-License-Identifier: MIT
 *
 * ranks.h: the recordings of several processes of one job, side by side: which is the worst, how far
 * they lie apart over time, and what the worst holds that the median does not.  Each recording is
 * reduced to a struct gp_job_rank when it is read, so that hundreds of them need little memory.
 */
#ifndef GP_ANALYZE_RANKS_H
#define GP_ANALYZE_RANKS_H

#include <analyze/analyze.h>

#define GP_RANK_NAME  160
#define GP_RANK_POINT 400u /* moments over time */

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

struct gp_job_rank {
    const char *file;
    int32_t number, local_number, world_size; /* the last two may be -1, unknown */
    enum gp_rank_from from;
    char host[65], comm[65];
    uint32_t pid;
    bool from_torch, from_rmm, complete;
    uint64_t missing, events, ooms;
    uint64_t begin_ns, end_ns, begin_unix_ns; /* of the recording, as it has them */
    /* Of the device that was fullest at its peak; device_count: how many the process used. */
    int32_t device;
    uint32_t device_count;
    char device_name[64];
    int64_t total_bytes; /* -1 unknown */
    int64_t peak_bytes, end_bytes, reserved_peak_bytes;
    uint64_t peak_ns;
    int64_t headroom_bytes;      /* the device's size less the peak of reserved; -1 unknown */
    double growth_per_second;    /* bytes, of the suspects that are likely; 0: none */
    double seconds_to_oom;       /* < 0: unknown, or never */
    char grows[GP_RANK_NAME];    /* the fastest of them; "" */
    struct gp_series *allocated; /* the caller's */
    struct gp_rank_site *sites;  /* the caller's; sorted and joined by gp_ranks_find */
    uint32_t site_count;
    bool by_headroom;  /* set by gp_ranks_find: the headroom of every rank is known */
    uint64_t shift_ns; /* set by gp_ranks_find: what to add to its times for ns since the job's start */
};

struct gp_rank_row {          /* of a call site or of an owner */
    const char *name, *owner; /* of a site; of an owner both are its name */
    uint8_t kind;
    int64_t worst_bytes, median_bytes; /* excess: the difference */
    uint32_t holders;                  /* ranks that hold some of it at their peak */
};

struct gp_rank_moment {
    uint64_t time_ns; /* since the job's start */
    int64_t low, median, high;
    uint32_t ranks; /* that were recorded then; 0: nothing else is set */
};

struct gp_ranks {
    struct gp_job_rank *ranks; /* the caller's array, the worst first */
    uint32_t count;
    enum gp_rank_clock clock;
    uint64_t begin_unix_ns, length_ns;
    int64_t lowest_bytes, median_bytes, highest_bytes; /* of the peaks */
    struct gp_rank_moment moments[GP_RANK_POINT];
    struct gp_rank_row *sites, *owners; /* by excess, the largest first */
    uint32_t site_count, owner_count;
};

/* Sorts the ranks and compares them.  The worst is one that ran out of memory, else the one with the
 * least headroom if that is known of all, else, and of equal ones, the one with the highest peak.  NULL: out of memory. */
struct gp_ranks *gp_ranks_find(struct gp_job_rank *ranks, uint32_t count);
void gp_ranks_free(struct gp_ranks *ranks);
/* The highest bytes that the rank held in the i-th moment; -1: it was not recorded then. */
int64_t gp_ranks_at(const struct gp_ranks *ranks, const struct gp_job_rank *rank, uint32_t moment);

#endif
