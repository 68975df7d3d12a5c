/* SPDX-License-Identifier: MIT
 * forecast.c: see forecast.h.
 */
#include <analyze/forecast.h>

#include <read/common/hash.h>
#include <stdlib.h>
#include <string.h>

/* ---- a forecast -------------------------------------------------------------------------------------------------- */

/* Moments do not know where steps begin.  A forward pass of a large model takes seconds and looks
 * like growth, so it takes ten seconds and sixteen points before moments say that something
 * grows. */
#define GP_FORECAST_LEAST_NS     10000000000ull
#define GP_FORECAST_LEAST_POINTS 16u
/* Points of moments are grouped into about as many for the trend: the lowest of several moments is
 * nearer to what stays than each of them. */
#define GP_FORECAST_GROUPS 10u
/* Steps do the same work if what they allocate differs by at most this part. */
#define GP_FORECAST_SAME 0.02
/* As `leaks`: less confidence is no finding.  Moments are judged each second, which gives chance many
 * chances. */
#define GP_FORECAST_SURE         0.4
#define GP_FORECAST_SURE_MOMENTS 0.9
/* Newest points that must be alike, and that tell the memory of a step. */
#define GP_FORECAST_RECENT 16u
/* No device has more. */
#define GP_FORECAST_MOST (1ll << 60)

void gp_forecast_begin(struct gp_forecast *forecast, enum gp_forecast_kind kind)
{
    memset(forecast, 0, sizeof(*forecast));
    forecast->kind = kind;
    forecast->samples = 1;
}

static void point_merge(struct gp_forecast_point *into, const struct gp_forecast_point *more)
{
    into->time_ns = more->time_ns;
    GP_LOWER(into->low, more->low);
    GP_RAISE(into->high, more->high);
    into->last = more->last;
    into->allocs += more->allocs;
    into->frees += more->frees;
    into->taken_bytes += more->taken_bytes;
}

static void forecast_halve(struct gp_forecast *forecast)
{
    for (uint32_t i = 0; i < GP_FORECAST_POINTS / 2; i++) {
        point_merge(&forecast->points[2 * i], &forecast->points[2 * i + 1]);
        forecast->points[i] = forecast->points[2 * i];
    }
    forecast->count = GP_FORECAST_POINTS / 2;
    forecast->samples *= 2;
}

/* Counters are claims of another process, so differences must not overflow. */
static int64_t forecast_since(int64_t before, int64_t now)
{
    return before >= 0 && now > before ? now - before : 0;
}

static bool forecast_restarts(const struct gp_forecast *forecast, const struct gp_forecast_sample *sample)
{
    const struct gp_forecast_sample *before = &forecast->before;
    return sample->allocs < before->allocs || sample->frees < before->frees ||
           sample->taken_bytes < before->taken_bytes;
}

/* Bytes are claims too: no sum of two of them may overflow. */
static int64_t forecast_bytes(int64_t bytes)
{
    return bytes < 0 ? 0 : bytes < GP_FORECAST_MOST ? bytes : GP_FORECAST_MOST;
}

void gp_forecast_feed(struct gp_forecast *forecast, const struct gp_forecast_sample *fed)
{
    struct gp_forecast_sample clean = *fed, *sample = &clean;
    clean.low = forecast_bytes(fed->low);
    clean.high = forecast_bytes(fed->high);
    clean.last = forecast_bytes(fed->last);
    if (forecast->begun && sample->time_ns <= forecast->before.time_ns)
        return;
    if (forecast->begun && forecast_restarts(forecast, sample))
        gp_forecast_begin(forecast, forecast->kind);
    if (!forecast->begun) {
        forecast->begun = true;
        forecast->before = *sample;
        forecast->begin_ns = sample->time_ns;
        forecast->begin = sample->last;
        forecast->high = sample->high;
        return;
    }
    struct gp_forecast_point point = {
        .time_ns = sample->time_ns,
        .low = sample->low,
        .high = sample->high,
        .last = sample->last,
        .allocs = forecast_since(forecast->before.allocs, sample->allocs),
        .frees = forecast_since(forecast->before.frees, sample->frees),
        .taken_bytes = forecast_since(forecast->before.taken_bytes, sample->taken_bytes),
        .fresh_bytes = forecast_since(forecast->before.fresh_bytes, sample->fresh_bytes),
    };
    GP_RAISE(forecast->high, sample->high);
    forecast->before = *sample;
    if (forecast->open == 0)
        forecast->points[forecast->count] = point;
    else
        point_merge(&forecast->points[forecast->count], &point);
    if (++forecast->open < forecast->samples)
        return;
    forecast->open = 0;
    if (++forecast->count == GP_FORECAST_POINTS)
        forecast_halve(forecast);
}

/* ---- is it periodic? ------------------------------------------------------------------------------------------ */

/* Of a step what it allocates and frees: what it keeps may differ, and is no work of the next one.
 * There is a point before it. */
static double point_work(const struct gp_forecast *forecast, const struct gp_forecast_point *point)
{
    if (forecast->kind == GP_FORECAST_MOMENTS)
        return (double)point->allocs;
    return (double)point->taken_bytes - ((double)point->last - (double)point[-1].last);
}

static bool work_alike(const struct gp_forecast *forecast, double work, double other)
{
    if (forecast->kind == GP_FORECAST_STEPS)
        return work >= other * (1 - GP_FORECAST_SAME) && work <= other * (1 + GP_FORECAST_SAME);
    return work >= other / 2 && work <= other * 2; /* a moment cuts steps anywhere */
}

static int work_compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return GP_ORDER(a, b);
}

static double work_median(const struct gp_forecast *forecast, uint32_t first)
{
    double works[GP_FORECAST_POINTS];
    uint32_t count = forecast->count - first;
    for (uint32_t i = 0; i < count; i++)
        works[i] = point_work(forecast, &forecast->points[first + i]);
    qsort(works, count, sizeof(*works), work_compare);
    return works[count / 2];
}

/* After two steps: the first one also allocates what stays (the state of an optimizer) and what it
 * needs once (a search for the fastest convolution), so the second one may do less, and nothing that
 * the first has not done.  Steps of other lengths have blocks of other sizes. */
static bool pair_alike(const struct gp_forecast *forecast)
{
    const struct gp_forecast_point *one = &forecast->points[0], *two = &forecast->points[1];
    return two->taken_bytes > 0 && (double)two->taken_bytes <= (double)one->taken_bytes * (1 + GP_FORECAST_SAME) &&
           (double)two->fresh_bytes <= (double)two->taken_bytes * GP_FORECAST_SAME;
}

static uint32_t forecast_recent(const struct gp_forecast *forecast)
{
    uint32_t first = 1; /* the warm-up */
    return forecast->count > first + GP_FORECAST_RECENT ? forecast->count - GP_FORECAST_RECENT : first;
}

/* Three of four of the newest points do the work of the median.  Moments must also free three of
 * four blocks: a program that loads weights does not. */
static enum gp_forecast_verdict forecast_rhythm(const struct gp_forecast *forecast)
{
    uint32_t first = forecast_recent(forecast), alike = 0;
    int64_t allocs = 0, frees = 0;
    bool steps = forecast->kind == GP_FORECAST_STEPS;
    if (steps && forecast->count == 2)
        return pair_alike(forecast) ? GP_FORECAST_STEADY : GP_FORECAST_APERIODIC;
    double median = work_median(forecast, first);
    for (uint32_t i = first; i < forecast->count; i++) {
        alike += work_alike(forecast, point_work(forecast, &forecast->points[i]), median);
        allocs += forecast->points[i].allocs;
        frees += forecast->points[i].frees;
    }
    if (allocs == 0 && frees == 0)
        return GP_FORECAST_IDLE;
    if (median <= 0 || alike * 4 < (forecast->count - first) * 3)
        return GP_FORECAST_APERIODIC;
    return steps || (double)frees * 4 >= (double)allocs * 3 ? GP_FORECAST_STEADY : GP_FORECAST_APERIODIC;
}

/* ---- peak ------------------------------------------------------------------------------------------------------ */

/* The most that a step of the usual work held above what it began with. */
static int64_t forecast_step(const struct gp_forecast *forecast)
{
    /* Few of the highest moments fall into a sample, so all moments count. */
    uint32_t first = forecast->kind == GP_FORECAST_MOMENTS ? 1 : forecast_recent(forecast);
    double median = work_median(forecast, first);
    int64_t most = 0;
    for (uint32_t i = first; i < forecast->count; i++) {
        const struct gp_forecast_point *point = &forecast->points[i];
        /* Where several steps are one point, the lowest level of it is where they began. */
        int64_t from = forecast->kind == GP_FORECAST_STEPS && forecast->samples == 1 ? point[-1].last : point->low;
        if (work_alike(forecast, point_work(forecast, point), median) && point->high - from > most)
            most = point->high - from;
    }
    return most;
}

static void forecast_peak(const struct gp_forecast *forecast, struct gp_forecast_result *result)
{
    result->step_bytes = forecast_step(forecast);
    result->peak_bytes = forecast->high;
    if (forecast->kind == GP_FORECAST_STEPS && forecast->before.last + result->step_bytes > result->peak_bytes)
        result->peak_bytes = forecast->before.last + result->step_bytes;
}

/* The headroom is that of the newest sample, which may lie far below the peak: of a recording, between two steps. */
static void forecast_spare(const struct gp_forecast *forecast, struct gp_forecast_result *result)
{
    int64_t sum;
    if (result->headroom_bytes < 0)
        return;
    if (__builtin_add_overflow(result->headroom_bytes, forecast->before.last, &sum))
        sum = INT64_MAX;
    result->spare_bytes = sum > result->peak_bytes ? sum - result->peak_bytes : 0;
}

/* ---- growth ---------------------------------------------------------------------------------------------------- */

/* *more: by how much what a step holds above what stays grows, in bytes per second: a block that is replaced by a larger
 * one lives beside it for a moment. */
static bool forecast_growth(const struct gp_forecast *forecast, struct gp_forecast_result *result, double *more)
{
    int64_t lows[GP_FORECAST_POINTS + 1], above[GP_FORECAST_POINTS + 1], high = 0;
    uint32_t warm = forecast->count / 10 > 1 ? forecast->count / 10 : 1, count = 0;
    bool steps = forecast->kind == GP_FORECAST_STEPS;
    uint32_t group = steps ? 1 : (forecast->count - warm + GP_FORECAST_GROUPS - 1) / GP_FORECAST_GROUPS;
    uint32_t used = (forecast->count - warm) / group * group, from = forecast->count - used;
    for (uint32_t i = from; i < forecast->count; i++) {
        const struct gp_forecast_point *point = &forecast->points[i];
        if ((i - from) % group == 0) {
            lows[count++] = point->low;
            high = point->high;
        }
        GP_LOWER(lows[count - 1], point->low);
        GP_RAISE(high, point->high);
        above[count - 1] = high - lows[count - 1];
    }
    struct gp_trend trend, rising;
    double least = steps ? GP_FORECAST_SURE : GP_FORECAST_SURE_MOMENTS;
    if (!gp_trend_find(lows, count, &trend) || trend.confidence < least)
        return false;
    double span = (double)(forecast->points[forecast->count - 1].time_ns - forecast->points[from - 1].time_ns) / 1e9;
    result->confidence = trend.confidence;
    result->bytes_per_second = span > 0 ? trend.slope * count / span : 0;
    if (result->bytes_per_second > (double)GP_FORECAST_MOST) /* the times of a damaged file */
        result->bytes_per_second = (double)GP_FORECAST_MOST;
    bool rises = span > 0 && gp_trend_find(above, count, &rising) && rising.confidence >= least;
    *more = rises ? rising.slope * count / span : 0;
    return result->bytes_per_second > 0;
}

/* The memory runs out at the highest moment of a step: what stays, and above it what a step takes. */
static double forecast_seconds(const struct gp_forecast *forecast, const struct gp_forecast_result *result, double more)
{
    int64_t stays = forecast->before.low;
    for (uint32_t i = forecast->count - 4; i < forecast->count; i++) /* what grows has five points or more */
        GP_LOWER(stays, forecast->points[i].low);
    double left = (double)result->headroom_bytes + (double)forecast->before.last - (double)stays;
    left -= (double)result->step_bytes;
    double seconds = left > 0 ? left / (result->bytes_per_second + more) : 0;
    return result->headroom_bytes < 0 || seconds > GP_FORECAST_HORIZON ? -1 : seconds;
}

/* What can be allocated from now on: the least of the device and the limits, and idle memory. */
static int64_t forecast_headroom(const struct gp_forecast_room *room)
{
    int64_t left = room->device_free_bytes, sum;
    if (room->limit_left_bytes >= 0 && (left < 0 || room->limit_left_bytes < left))
        left = room->limit_left_bytes;
    if (left < 0)
        return -1;
    return __builtin_add_overflow(left, room->idle_bytes > 0 ? room->idle_bytes : 0, &sum) ? INT64_MAX : sum;
}

void gp_forecast_find(const struct gp_forecast *forecast, const struct gp_forecast_room *room,
                      struct gp_forecast_result *result)
{
    bool steps = forecast->kind == GP_FORECAST_STEPS;
    *result = (struct gp_forecast_result){
        .verdict = GP_FORECAST_SHORT,
        .points = forecast->count,
        .seen_ns = forecast->begun ? forecast->before.time_ns - forecast->begin_ns : 0,
        .peak_bytes = -1,
        .step_bytes = -1,
        .headroom_bytes = room ? forecast_headroom(room) : -1,
        .spare_bytes = -1,
        .seconds_to_oom = -1,
    };
    if (forecast->count < (steps ? 2 : GP_FORECAST_LEAST_POINTS) || (!steps && result->seen_ns < GP_FORECAST_LEAST_NS))
        return;
    result->verdict = forecast_rhythm(forecast);
    if (result->verdict != GP_FORECAST_STEADY)
        return;
    forecast_peak(forecast, result);
    forecast_spare(forecast, result);
    double more = 0;
    if (forecast->count < 5 || !forecast_growth(forecast, result, &more))
        return;
    result->verdict = GP_FORECAST_GROWS;
    result->seconds_to_oom = forecast_seconds(forecast, result, more);
}

const char *gp_forecast_word(enum gp_forecast_verdict verdict)
{
    static const char *const words[] = {[GP_FORECAST_SHORT] = "short",
                                        [GP_FORECAST_IDLE] = "idle",
                                        [GP_FORECAST_APERIODIC] = "not periodic",
                                        [GP_FORECAST_STEADY] = "steady",
                                        [GP_FORECAST_GROWS] = "grows"};
    return words[verdict];
}
