/* SPDX-License-Identifier: MIT
 *
 * forecast.h: how much memory a run will need, and when it runs out.  A caller feeds the memory of
 * one process (or of a sum of processes) on one device, step by step or at even moments, and asks
 * for the forecast as often as it likes.  Pure: no clock, no output, no memory of its own.
 * docs/forecast.md has the rules.  Callers: this file for recordings, the model of `top`, `stat
 * --watch` and the metrics of the agent.
 */
#ifndef GP_ANALYZE_FORECAST_H
#define GP_ANALYZE_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

/* ==== trends ====================================================================================================== */
/* Decides whether a curve grows and keeps growing.  leaks.c uses it; docs/analyses.md has the
 * reasons. */

enum gp_trend_verdict {
    GP_TREND_GROWS,
    GP_TREND_SHORT,   /* fewer than four points */
    GP_TREND_RARE,    /* too few rises, or too many falls: it may be chance */
    GP_TREND_FALLS,   /* it loses much of its gain */
    GP_TREND_STOPPED, /* it has not risen for longer than its earlier rises explain */
    GP_TREND_FLATTENS /* it grows more and more slowly */
};

struct gp_trend {
    enum gp_trend_verdict verdict;
    uint32_t rises, falls;
    double slope; /* per point: the median of the slopes between all pairs of points (Theil and Sen) */
    double confidence;
};

#define GP_TREND_MOST 200u /* points; the slope is a median over all pairs, which are then 20 000 */

/* Judges values[count]; count <= GP_TREND_MOST.  True: the curve grows. */
bool gp_trend_find(const int64_t *values, uint32_t count, struct gp_trend *trend);

/* ==== forecasts =================================================================================================== */

/* Points that are kept.  When they are full, each two become one: a day of seconds is 64 points. */
#define GP_FORECAST_POINTS 64u

enum gp_forecast_kind {
    GP_FORECAST_MOMENTS, /* a sample is a moment; equal times lie between two samples */
    GP_FORECAST_STEPS    /* a sample is a whole step of the program */
};

struct gp_forecast_sample {
    uint64_t time_ns;        /* rises from sample to sample; any clock */
    int64_t low, high, last; /* allocated bytes since the sample before; equal if only one value is known */
    int64_t allocs, frees;   /* calls since the start of the process; -1 unknown */
    int64_t taken_bytes;     /* allocated since the start of the process, freed or not; -1 unknown */
    int64_t fresh_bytes;     /* of these, blocks of a size that no earlier sample allocated; -1 unknown */
};

struct gp_forecast_point {
    uint64_t time_ns; /* its end */
    int64_t low, high, last;
    int64_t allocs, frees, taken_bytes, fresh_bytes; /* in it */
};

struct gp_forecast {
    enum gp_forecast_kind kind;
    uint32_t count;   /* full points */
    uint32_t samples; /* in a full point: a power of two */
    uint32_t open;    /* samples in points[count], which is not full */
    bool begun;
    struct gp_forecast_sample before; /* the newest sample */
    uint64_t begin_ns;
    int64_t begin, high;
    struct gp_forecast_point points[GP_FORECAST_POINTS + 1];
};

/* -1: unknown, or no such limit. */
struct gp_forecast_room {
    int64_t device_free_bytes; /* of the device, for all */
    int64_t limit_left_bytes;  /* until the least of the limits of the process and its container */
    int64_t idle_bytes;        /* reserved and not allocated: what the caches of the process can reuse or give back */
};

enum gp_forecast_verdict {
    GP_FORECAST_SHORT,     /* too little was seen */
    GP_FORECAST_IDLE,      /* nothing is allocated or freed */
    GP_FORECAST_APERIODIC, /* the steps differ, or what is allocated is not freed */
    GP_FORECAST_STEADY,
    GP_FORECAST_GROWS
};

struct gp_forecast_result {
    enum gp_forecast_verdict verdict;
    uint32_t points;
    uint64_t seen_ns;        /* time that the forecast is made from */
    int64_t peak_bytes;      /* of the run, without what it will still leak; -1: not periodic */
    int64_t step_bytes;      /* of it: what a step allocates and frees again; -1 likewise */
    int64_t headroom_bytes;  /* that can be allocated from now on; -1 unknown */
    int64_t spare_bytes;     /* that stays free at the peak; -1: unknown, or not periodic */
    double bytes_per_second; /* of growth; 0 unless it grows */
    double confidence;       /* 0..1; 0 unless it grows */
    double seconds_to_oom;   /* < 0: not within GP_FORECAST_HORIZON, or unknown */
};

/* A forecast of more than thirty days is no warning. */
#define GP_FORECAST_HORIZON (30 * 86400.0)

void gp_forecast_begin(struct gp_forecast *forecast, enum gp_forecast_kind kind);
/* A sample that is not later than the one before is ignored; one whose counters are lower begins the
 * forecast again: they were reset, or belong to other processes. */
void gp_forecast_feed(struct gp_forecast *forecast, const struct gp_forecast_sample *sample);
/* room: as of the newest sample; NULL: unknown. */
void gp_forecast_find(const struct gp_forecast *forecast, const struct gp_forecast_room *room,
                      struct gp_forecast_result *result);
/* "short", "idle", "not periodic", "steady", "grows": as JSON and documents have it. */
const char *gp_forecast_word(enum gp_forecast_verdict verdict);

#endif
