/* SPDX-License-Identifier: MIT
 *
 * analyze.h: what a recording says.  Pure functions: a recording in, a result out, no output, no clock.  Results are
 * one allocation each and freed by their own function; every number's meaning is in docs/recording.md.
 */
#ifndef GP_ANALYZE_ANALYZE_H
#define GP_ANALYZE_ANALYZE_H

#include <recording/recording.h>

/* ---- time ------------------------------------------------------------------------------------------------------- */

/* Bytes over time of one device, as steps between which it is constant; ends with the recording.  Never more than
 * `points`: then each point stands for a stretch of time, with its lowest and highest value. */
struct gp_series_point {
    uint64_t time_ns;
    int64_t low, high, last;
};
struct gp_series {
    uint32_t count;
    struct gp_series_point points[];
};
/* kind: GP_KIND_NONE: all that counts as allocated (kinds that PyTorch's numbers sum, see src/account/gauge.c). */
struct gp_series *gp_series_allocated(const struct gp_recording *recording, uint32_t device, enum gp_wire_kind kind,
                                      uint32_t points);
struct gp_series *gp_series_reserved(const struct gp_recording *recording, uint32_t device, uint32_t points);

/* Steps of the program: marks of one name that come again and again, else NVTX ranges (marks whose name begins with
 * "nvtx:"), else the period that the allocations themselves have; none: equal stretches of time. */
enum gp_step_source { GP_STEPS_MARKS, GP_STEPS_NVTX, GP_STEPS_PERIOD, GP_STEPS_TIME };
struct gp_steps {
    enum gp_step_source source;
    char name[40];
    uint32_t count; /* bounds: count + 1 */
    uint64_t bounds_ns[];
};
struct gp_steps *gp_steps_find(const struct gp_recording *recording);

/* ---- leaks ------------------------------------------------------------------------------------------------------ */

struct gp_leak {
    uint32_t site;
    uint32_t device; /* index in devices */
    uint8_t kind;
    int64_t live_bytes, live_count; /* at the last step's end: programs tidy up after it */
    double bytes_per_step;
    double confidence;     /* 0..1: how much of its growth a straight line tells, and for how many steps it grew */
    double seconds_to_oom; /* at this slope until the device is full; < 0: unknown, or never */
    uint64_t oldest_ns;    /* age of its oldest live block then */
};
struct gp_leaks {
    uint32_t steps, count;
    enum gp_step_source source;
    const char *why;           /* why there is no suspect; "" */
    uint32_t points;           /* of each suspect's curve: the steps, or groups of them if they are many */
    int64_t *kept;             /* [count][points]: bytes that a suspect never went below during each */
    struct gp_leak suspects[]; /* by bytes_per_step, the largest first */
};
/* older_ns: blocks younger than this at the end do not count as kept (0: each is judged by growth alone).  The rule and
 * its thresholds: docs/analyses.md. */
struct gp_leaks *gp_leaks_find(const struct gp_recording *recording, const struct gp_steps *steps, uint64_t older_ns);

/* ---- peak ------------------------------------------------------------------------------------------------------- */

struct gp_peak_part {
    uint32_t site;
    uint8_t kind;
    int64_t bytes, count;
};
struct gp_peak {
    uint32_t device;
    uint64_t time_ns;
    uint32_t event_index; /* of the last event that is in it; GP_REC_NONE: none, it is what there was before */
    int64_t bytes;        /* = sum of the parts */
    uint32_t count;
    struct gp_peak_part parts[]; /* the largest first */
};
/* Composition at the highest moment of the device's allocated bytes; at_ns not 0: at that moment. */
struct gp_peak *gp_peak_find(const struct gp_recording *recording, uint32_t device, uint64_t at_ns);

/* ---- churn ------------------------------------------------------------------------------------------------------ */

struct gp_churn_site {
    uint32_t site;
    uint64_t pairs; /* allocated and freed within one step */
    double pairs_per_step;
    uint64_t bytes; /* of these allocations */
    uint64_t mean_life_ns;
    uint64_t driver_ns; /* that the calls of these pairs took, where the recording knows it */
};
struct gp_churn {
    uint64_t pairs, allocations, frees;
    uint64_t driver_ns; /* of the pairs; 0: calls were not timed, or a cache served them */
    double pairs_per_step;
    uint32_t steps, count;
    struct gp_churn_site sites[]; /* by pairs, the most first */
};
struct gp_churn *gp_churn_find(const struct gp_recording *recording, const struct gp_steps *steps);

/* ---- fragmentation ---------------------------------------------------------------------------------------------- */

struct gp_fragment_point {
    uint64_t time_ns;
    int64_t reserved_bytes, allocated_bytes, requested_bytes,
        largest_free_bytes; /* largest: in our segments; -1 none */
};
struct gp_fragmentation {
    uint32_t device;
    double utilisation; /* allocated / reserved, at the peak of reserved */
    double external;    /* 1 - largest free / free, at the end; 0: nothing is free */
    double internal;    /* 1 - requested / allocated, at the peak */
    bool has_segments;  /* a cache of ours, or of PyTorch's through our hooks, showed its segments */
    uint32_t count;
    struct gp_fragment_point points[];
};
struct gp_fragmentation *gp_fragmentation_find(const struct gp_recording *recording, uint32_t device, uint32_t points);

/* The segment map at the end (or at at_ns): segments by address, each with its blocks. */
enum gp_map_block_state { GP_BLOCK_LIVE = 0, GP_BLOCK_IDLE = 2, GP_BLOCK_UNMAPPED = 3 }; /* as GPUPROF_LIVE .. */
struct gp_map_block {
    uint64_t address, bytes;
    uint32_t site;
    uint8_t state; /* enum gp_map_block_state */
    uint8_t kind;
};
struct gp_map_segment {
    uint64_t address, bytes;
    uint32_t first_block, block_count;
    uint8_t kind;
    bool cached; /* a segment of a cache; else a driver allocation of its own */
};
struct gp_segments {
    uint32_t device, segment_count, block_count;
    struct gp_map_segment *segments;
    struct gp_map_block *blocks;
};
struct gp_segments *gp_segments_at(const struct gp_recording *recording, uint32_t device, uint64_t at_ns);

/* ---- sizes, bill, diff ------------------------------------------------------------------------------------------- */

struct gp_sizes { /* power-of-two classes: [i] counts 2^i <= bytes < 2^(i+1) */
    uint64_t count[64], bytes[64], live_count[64], live_bytes[64];
};
struct gp_sizes *gp_sizes_find(const struct gp_recording *recording, uint32_t device);

struct gp_bill_row {
    char what[64]; /* "linear", "context", "pool: reserved, not in use", "untracked" ... */
    int64_t bytes; /* -1 unknown */
    bool estimated;
};
struct gp_bill { /* the itemised bill against what NVML says of the process */
    uint32_t device;
    uint64_t time_ns;
    int64_t process_bytes; /* -1 unknown: then there is no "untracked" row */
    uint32_t count;
    struct gp_bill_row rows[];
};
struct gp_bill *gp_bill_find(const struct gp_recording *recording, uint32_t device);

/* Two recordings of one program: sites are the same if their stacks' names are (a key that the caller makes of the
 * symbols, one per site of each recording). */
struct gp_diff_row {
    uint32_t site[2]; /* GP_REC_NONE: only in the other */
    int64_t live_bytes[2], peak_bytes[2], calls[2];
};
struct gp_diff {
    uint32_t count;
    struct gp_diff_row rows[]; /* by the change of bytes at the peak, the largest growth first */
};
struct gp_diff *gp_diff_find(const struct gp_recording *recordings[2], const char *const *keys[2]);

#endif
