/* SPDX-License-Identifier: MIT
 *
 * test_analyze_trend.c: the judgement of a curve against the rules of docs/analyses.md, written down a second time in the
 * slowest way, for every short curve and for many longer ones; and the evenness of beats likewise.
 */
#include <analyze/forecast.h>
#include <analyze/internal.h>
#include <criterion/criterion.h>
#include <lib/random.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked_memory.h"

TestSuite(trend, .timeout = 60);

#define MOST 40u

static double choose(unsigned n, unsigned k)
{
    double ways = 1;
    for (unsigned i = 0; i < k; i++)
        ways = ways * (n - i) / (i + 1);
    return round(ways);
}

/* So many heads or more, of so many throws. */
static double heads(unsigned least, unsigned throws)
{
    double ways = 0;
    for (unsigned k = least; k <= throws; k++)
        ways += choose(throws, k);
    return ways / pow(2, throws);
}

struct judged {
    enum gp_trend_verdict verdict;
    unsigned rises, falls;
    double slope, confidence;
};

static unsigned rises_of(const int64_t *values, unsigned from, unsigned to)
{
    unsigned rises = 0;
    for (unsigned i = from + 1; i <= to; i++)
        rises += values[i] > values[i - 1];
    return rises;
}

/* Growth of the second half for each unit of growth of the first. */
static double second_half(const int64_t *values, unsigned count)
{
    unsigned middle = count / 2, last = count - 1;
    double first = (double)(values[middle] - values[0]) / middle;
    double second = (double)(values[last] - values[middle]) / (last - middle);
    if (second >= first)
        return 1;
    return second <= 0 ? 0 : second / first;
}

static int larger(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double middle_of(double *values, unsigned count)
{
    qsort(values, count, sizeof(*values), larger);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static double line_through(const int64_t *values, unsigned count, double *slope)
{
    static double list[MOST * MOST];
    unsigned n = 0;
    double mean = 0, all = 0, off = 0;
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < i; k++)
            list[n++] = (double)(values[i] - values[k]) / (i - k);
    *slope = middle_of(list, n);
    for (unsigned i = 0; i < count; i++)
        list[i] = (double)values[i] - *slope * i, mean += (double)values[i] / count;
    double base = middle_of(list, count);
    for (unsigned i = 0; i < count; i++) {
        all += pow((double)values[i] - mean, 2);
        off += pow((double)values[i] - base - *slope * i, 2);
    }
    return all > 0 && off < all ? 1 - off / all : 0;
}

static struct judged judge(const int64_t *values, unsigned count)
{
    struct judged is = {.verdict = GP_TREND_GROWS};
    double gained = 0, lost = 0;
    unsigned last = 0; /* the point of the last rise */
    for (unsigned i = 1; i < count; i++) {
        double by = (double)(values[i] - values[i - 1]);
        if (by > 0)
            is.rises++, gained += by, last = i;
        else if (by < 0)
            is.falls++, lost -= by;
    }
    double by_chance = is.rises ? heads(is.rises, is.rises + is.falls) : 1;
    double pause = pow(1 - (is.rises + 1.0) / (last + 2), count - 1 - last);
    if (count < 4)
        is.verdict = GP_TREND_SHORT;
    else if (by_chance > 0.125)
        is.verdict = GP_TREND_RARE;
    else if (lost > gained / 4)
        is.verdict = GP_TREND_FALLS;
    else if (pause < 0.01)
        is.verdict = GP_TREND_STOPPED;
    if (is.verdict != GP_TREND_GROWS)
        return is;
    unsigned first = rises_of(values, 0, count / 2), second = rises_of(values, count / 2, count - 1);
    double half = second_half(values, count);
    bool fewer = second * 2 >= first || (first && heads(first, first + second) <= 0.125);
    if (half < 0.25 && fewer) {
        is.verdict = GP_TREND_FLATTENS;
        return is;
    }
    double line = line_through(values, count, &is.slope);
    is.confidence = (1 - by_chance) * line * (half < 0.5 ? half * 2 : 1);
    if (is.slope <= 0)
        is.verdict = GP_TREND_RARE;
    return is;
}

static void compare(const int64_t *values, unsigned count)
{
    struct gp_trend trend;
    struct judged is = judge(values, count);
    bool grows = gp_trend_find(values, count, &trend);
    char curve[MOST * 8] = "";
    for (unsigned i = 0; i < count; i++)
        snprintf(curve + strlen(curve), sizeof(curve) - strlen(curve), " %lld", (long long)values[i]);
    cr_assert_eq(trend.verdict, is.verdict, "%d, not %d:%s", (int)trend.verdict, (int)is.verdict, curve);
    cr_assert(grows == (is.verdict == GP_TREND_GROWS) && trend.rises == is.rises && trend.falls == is.falls, "%s",
              curve);
    if (!grows)
        return;
    cr_assert(fabs(trend.slope - is.slope) < 1e-9, "slope %g, not %g:%s", trend.slope, is.slope, curve);
    cr_assert(fabs(trend.confidence - is.confidence) < 1e-9, "confidence %g, not %g:%s", trend.confidence,
              is.confidence, curve);
}

/* Every curve of up to seven points with these changes. */
Test(trend, of_every_short_curve)
{
    static const int64_t changes[] = {0, 1, -1, 4, -2};
    for (unsigned count = 1; count <= 7; count++) {
        unsigned ways = 1;
        for (unsigned i = 1; i < count; i++)
            ways *= 5;
        for (unsigned way = 0; way < ways; way++) {
            int64_t values[8] = {100};
            unsigned rest = way;
            for (unsigned i = 1; i < count; i++, rest /= 5)
                values[i] = values[i - 1] + changes[rest % 5];
            compare(values, count);
        }
    }
}

Test(trend, of_longer_curves)
{
    for (unsigned round = 0; round < 6000; round++) {
        int64_t values[MOST] = {1000};
        unsigned count = 4 + draw_below(MOST - 4), stops = draw_below(3) ? count : draw_below(count),
                 falls = draw_below(5), flat = draw_below(4);
        for (unsigned i = 1; i < count; i++) {
            int64_t by = i >= stops                   ? 0
                         : i > count / 2 && flat == 1 ? (int64_t)draw_below(2)
                                                      : 1 + (int64_t)draw_below(4);
            values[i] = values[i - 1] + (draw_below(9) < falls ? -(int64_t)draw_below(4) : draw_below(4) ? by : 0);
        }
        compare(values, count);
    }
}

/* Three rises are the fewest that are no chance. */
Test(trend, of_a_few_curves_that_one_can_see)
{
    struct gp_trend trend;
    cr_expect(gp_trend_find((const int64_t[]){1, 2, 3, 4}, 4, &trend));
    cr_expect(trend.slope == 1 && trend.confidence == 0.875);
    cr_expect(!gp_trend_find((const int64_t[]){1, 2, 3}, 3, &trend) && trend.verdict == GP_TREND_SHORT);
    cr_expect(!gp_trend_find((const int64_t[]){1, 2, 2, 3}, 4, &trend) && trend.verdict == GP_TREND_RARE);
    cr_expect(!gp_trend_find((const int64_t[]){1, 5, 9, 13, 9}, 5, &trend) && trend.verdict == GP_TREND_RARE);
    cr_expect(!gp_trend_find((const int64_t[]){1, 5, 9, 13, 17, 0}, 6, &trend));
}

/* ---- the evenness of beats ----------------------------------------------------------------------------------------- */

static int less(const void *one, const void *other)
{
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

static double even_of(const uint32_t *intervals, unsigned count)
{
    uint32_t sorted[8];
    double all = 0, even = 0;
    memcpy(sorted, intervals, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), less);
    double median = sorted[count / 2];
    for (unsigned i = 0; i < count; i++) {
        all += intervals[i];
        even += intervals[i] >= ceil(median / 2) && intervals[i] <= 2 * median ? intervals[i] : 0;
    }
    return all > 0 ? even / all : 0;
}

Test(trend, evenness_of_every_short_beat)
{
    for (unsigned count = 1; count <= 5; count++) {
        unsigned ways = 1;
        for (unsigned i = 0; i < count; i++)
            ways *= 7;
        for (unsigned way = 0; way < ways; way++) {
            uint32_t positions[8] = {11}, intervals[8];
            unsigned rest = way;
            for (unsigned i = 0; i < count; i++, rest /= 7) {
                intervals[i] = rest % 7;
                positions[i + 1] = positions[i] + intervals[i];
            }
            double even = gp_beats_even(positions, count + 1), right = even_of(intervals, count);
            cr_assert(fabs(even - right) < 1e-12, "%g, not %g: way %u of %u", even, right, way, count);
        }
    }
}

/* Occurrences of several beats, in turn, are grouped in their order; there is room for as many as were said. */
Test(trend, beats_are_grouped)
{
    for (size_t room = 0; room < 9; room++) {
        static const uint64_t keys[] = {7, 9, 7, 8, 9, 7, 7, 8};
        static const uint32_t grouped[] = {3, 9, 18, 21, 6, 15, 12, 24};
        static const unsigned counts[] = {4, 2, 2};
        struct gp_beats beats;
        cr_assert(gp_beats_init(&beats, room));
        for (uint32_t i = 0; i < 8; i++)
            cr_assert_eq(gp_beats_put(&beats, keys[i], 3 * (i + 1), i % 2), i < room, "room %zu, %u", room, i);
        cr_assert_eq(beats.count, room < 8 ? room : 8);
        gp_beats_group(&beats);
        for (size_t i = 0; room == 8 && i < 3; i++) {
            const struct gp_tally_row *row = &beats.kinds.rows[i];
            cr_assert_eq(row->count, counts[i]);
            cr_assert_eq(row->bytes, i == 0 ? 1 : i == 1 ? 1 : 2, "%zu: %lld", i, (long long)row->bytes);
            for (size_t k = 0; k < counts[i]; k++)
                cr_expect_eq(beats.grouped[row->extra + k], grouped[(i == 0 ? 0 : i == 1 ? 4 : 6) + k]);
        }
        gp_beats_fini(&beats);
    }
}
