/* SPDX-License-Identifier: MIT
 * trend.h: decides whether a curve grows and keeps growing.  leaks.c uses it; docs/analyses.md has
 * the reasons. */
#ifndef GP_ANALYZE_TREND_H
#define GP_ANALYZE_TREND_H

#include <stdbool.h>
#include <stdint.h>

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

/* Judges values[count]; count <= 4096.  True: the curve grows. */
bool gp_trend_find(const int64_t *values, uint32_t count, struct gp_trend *trend);

#endif
