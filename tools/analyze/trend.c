/* SPDX-License-Identifier: MIT
 * trend.c: the line behind a series of numbers, if there is one (forecast.h). */
#include <analyze/forecast.h>
#include <read/common/hash.h>

#include <stddef.h>
#include <stdlib.h>

/* Most chance that equally likely rises and falls would look as clear: three rises and no fall
 * pass. */
#define GP_TREND_CHANCE 0.125
/* Most loss, as a part of the gain.  A queue or a pool of changing sizes loses nearly all that it
 * gains. */
#define GP_TREND_BACK 0.25
/* The curve has stopped if a pause as long as the last one had less than this chance. */
#define GP_TREND_STILL 0.01
/* Least growth of the second half, as a part of the first.  Fewer rises in the second half may be
 * chance; the sign test of trend_flattens decides. */
#define GP_TREND_FLAT 0.25

struct gp_trend_steps {
    uint32_t rises, falls, still; /* still: changes since the last rise */
    double gained, lost;
};

static struct gp_trend_steps trend_count(const int64_t *values, uint32_t count)
{
    struct gp_trend_steps steps = {0};
    for (uint32_t i = 1; i < count; i++) {
        double by = (double)values[i] - (double)values[i - 1];
        steps.still = by > 0 ? 0 : steps.still + 1;
        steps.rises += by > 0;
        steps.falls += by < 0;
        steps.gained += by > 0 ? by : 0;
        steps.lost -= by < 0 ? by : 0;
    }
    return steps;
}

/* Sign test: the chance of at least so many rises if each change is a rise or a fall with equal
 * chance. */
static double trend_chance(uint32_t rises, uint32_t falls)
{
    uint32_t n = rises + falls;
    double term = 1, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        term /= 2;
    /* term = C(n, k) / 2^n, from k = n down to rises. */
    for (uint32_t k = n; k >= rises && k > 0; k--) {
        sum += term;
        term = term * k / (n - k + 1);
    }
    return n == 0 || rises == 0 ? 1 : sum;
}

/* The chance of a pause as long as the last one, if the curve still rose at the rate that it had
 * until its last rise (Laplace's rule: r rises in n changes give the rate (r + 1) / (n + 2)). */
static double trend_stillness(const struct gp_trend_steps *steps, uint32_t count)
{
    double n = count - 1 - steps->still, rate = (steps->rises + 1) / (n + 2), chance = 1;
    for (uint32_t i = 0; i < steps->still; i++)
        chance *= 1 - rate;
    return chance;
}

static int trend_compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return GP_ORDER(a, b);
}

static double trend_median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), trend_compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* The part of the curve's variation that a line through it explains, 0..1. */
static double trend_line(const int64_t *values, uint32_t count, double *slope)
{
    double slopes[GP_TREND_MOST * (GP_TREND_MOST - 1) / 2]; /* at least as many as values: count is 4 or more */
    double mean = 0, total = 0, off = 0;
    size_t pairs = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = i + 1; k < count; k++)
            slopes[pairs++] = ((double)values[k] - (double)values[i]) / (k - i);
        mean += (double)values[i] / count;
    }
    *slope = trend_median(slopes, pairs);
    for (uint32_t i = 0; i < count; i++)
        slopes[i] = (double)values[i] - *slope * i;
    double base = trend_median(slopes, count);
    for (uint32_t i = 0; i < count; i++) {
        double by = (double)values[i] - mean, miss = (double)values[i] - base - *slope * i;
        total += by * by;
        off += miss * miss;
    }
    return total > 0 && off < total ? 1 - off / total : 0;
}

/* Growth per step in the second half over that in the first; at most 1. */
static double trend_halves(const int64_t *values, uint32_t count)
{
    uint32_t middle = count / 2;
    double first = ((double)values[middle] - (double)values[0]) / middle;
    double second = ((double)values[count - 1] - (double)values[middle]) / (count - 1 - middle);
    return second >= first ? 1 : second <= 0 ? 0 : second / first;
}

static bool trend_flattens(const int64_t *values, uint32_t count)
{
    uint32_t middle = count / 2, first = trend_count(values, middle + 1).rises;
    uint32_t second = trend_count(values + middle, count - middle).rises;
    if (trend_halves(values, count) >= GP_TREND_FLAT)
        return false;
    return second * 2 >= first || trend_chance(first, second) <= GP_TREND_CHANCE;
}

static enum gp_trend_verdict trend_judge(const int64_t *values, uint32_t count, const struct gp_trend_steps *steps)
{
    if (count < 4)
        return GP_TREND_SHORT;
    if (trend_chance(steps->rises, steps->falls) > GP_TREND_CHANCE)
        return GP_TREND_RARE;
    if (steps->lost > steps->gained * GP_TREND_BACK)
        return GP_TREND_FALLS;
    if (trend_stillness(steps, count) < GP_TREND_STILL)
        return GP_TREND_STOPPED;
    return trend_flattens(values, count) ? GP_TREND_FLATTENS : GP_TREND_GROWS;
}

bool gp_trend_find(const int64_t *values, uint32_t count, struct gp_trend *trend)
{
    struct gp_trend_steps steps = trend_count(values, count);
    *trend =
        (struct gp_trend){.verdict = trend_judge(values, count, &steps), .rises = steps.rises, .falls = steps.falls};
    if (trend->verdict != GP_TREND_GROWS)
        return false;
    double line = trend_line(values, count, &trend->slope), halves = trend_halves(values, count);
    if (trend->slope <= 0) {
        trend->verdict = GP_TREND_RARE;
        return false;
    }
    trend->confidence = (1 - trend_chance(steps.rises, steps.falls)) * line * (halves < 0.5 ? halves * 2 : 1);
    return true;
}
