/* SPDX-License-Identifier: MIT
 * trend.h: does a curve grow, and keep growing?  The rule of leaks.c; docs/analyses.md argues it. */
#ifndef GP_ANALYZE_TREND_H
#define GP_ANALYZE_TREND_H

#include <stdbool.h>
#include <stdint.h>

enum gp_trend_verdict {
    GP_TREND_GROWS,
    GP_TREND_SHORT,   /* fewer than four points */
    GP_TREND_RARE,    /* too few rises, or as many falls: chance */
    GP_TREND_FALLS,   /* much of what it gains it gives back */
    GP_TREND_STOPPED, /* it has been still for longer than its habit */
    GP_TREND_FLATTENS /* it grows more and more slowly */
};

struct gp_trend {
    enum gp_trend_verdict verdict;
    uint32_t rises, falls;
    double slope; /* per point: the median of the slopes between all pairs of points (Theil and Sen) */
    double confidence;
};

/* True: it grows.  values[count], count <= 4096. */
bool gp_trend_find(const int64_t *values, uint32_t count, struct gp_trend *trend);

#endif
