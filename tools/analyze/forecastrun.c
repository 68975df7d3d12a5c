/* SPDX-License-Identifier: MIT
 *
 * forecastrun.c: the forecast of a recording; see analyze.h. One walk feeds forecast.c with a
 * sample per step.
 */
#include <analyze/forecast.h>

#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <read/common/hash.h>
#include <read/recording/recording.h>
#include <stdlib.h>

struct forecast_walk {
    const struct gp_steps *steps;
    struct gp_forecast forecast;
    struct gp_forecast_sample sample; /* of the present step */
    int64_t begin;                    /* what it began with */
    struct gp_forecast_run *run;
    const struct gp_flow *flow;
    struct gp_flow_polled polled;
    struct gp_level level;
    struct gp_forecast_room room; /* at the end of the last step: programs clean up after it */
    uint32_t device;
    struct gp_hash sizes; /* of blocks -> the bound after which the first was allocated */
    uint32_t bound;       /* the next one */
    bool failed;          /* out of memory */
};

static void walk_level(struct forecast_walk *walk, int64_t level)
{
    struct gp_forecast_sample *sample = &walk->sample;
    sample->last = level;
    GP_LOWER(sample->low, level);
    GP_RAISE(sample->high, level);
}

/* The last step was interrupted, by a failed request or a signal: it still holds most of what it held
 * above its beginning.  Its end is then no level from which another step could start. */
static bool walk_is_cut(const struct forecast_walk *walk)
{
    const struct gp_steps *steps = walk->steps;
    const struct gp_forecast_sample *sample = &walk->sample;
    return steps->source == GP_STEPS_STACKS && walk->bound == steps->count && steps->ended < steps->count &&
           sample->last - walk->begin > (sample->high - walk->begin) / 2;
}

static void walk_room(struct forecast_walk *walk, uint64_t time_ns)
{
    gp_flow_polled_advance(&walk->polled, time_ns, &walk->level);
    int64_t reserved = gp_flow_polled_reserved(&walk->polled, &walk->level);
    walk->room.device_free_bytes = gp_flow_left(walk->flow, walk->device, time_ns, reserved);
    walk->room.idle_bytes = reserved > walk->level.allocated ? reserved - walk->level.allocated : 0;
}

/* Ends the steps that end before time_ns. */
static void walk_bounds(struct forecast_walk *walk, uint64_t time_ns)
{
    while (walk->bound <= walk->steps->count && walk->steps->bounds_ns[walk->bound] <= time_ns) {
        const uint64_t bound_ns = walk->steps->bounds_ns[walk->bound];
        walk->sample.time_ns = bound_ns + 1; /* 0 is a time too */
        if (!walk_is_cut(walk)) {
            gp_forecast_feed(&walk->forecast, &walk->sample);
            if (walk->bound + 1 >= walk->steps->count)
                walk_room(walk, bound_ns);
        }
        if (walk->bound == 2)
            gp_forecast_find(&walk->forecast, NULL, &walk->run->early);
        walk->sample.low = walk->sample.high = walk->begin = walk->sample.last;
        walk->bound++;
    }
}

static void walk_take(struct forecast_walk *walk, uint64_t bytes)
{
    struct gp_forecast_sample *sample = &walk->sample;
    bool added;
    const uint32_t *first = gp_hash_add(&walk->sizes, gp_hash_of_number(bytes), NULL, NULL, walk->bound, &added);
    walk->failed |= !first;
    sample->allocs++;
    /* Sizes of a damaged file may wrap. */
    sample->taken_bytes = (int64_t)(((uint64_t)sample->taken_bytes + bytes) & INT64_MAX);
    if (first && *first == walk->bound)
        sample->fresh_bytes = (int64_t)(((uint64_t)sample->fresh_bytes + bytes) & INT64_MAX);
}

struct gp_forecast_run *gp_flow_forecast(const struct gp_flow *flow, const struct gp_steps *steps, uint32_t device)
{
    struct gp_forecast_run *run = calloc(1, sizeof(*run));
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    struct forecast_walk to = {.steps = steps,
                               .run = run,
                               .flow = flow,
                               .polled = gp_flow_polled_begin(flow, device),
                               .room = {-1, -1, -1},
                               .device = device};
    if (!run)
        return NULL;
    gp_forecast_begin(&to.forecast, steps->source == GP_STEPS_GIVEN ? GP_FORECAST_MOMENTS : GP_FORECAST_STEPS);
    gp_forecast_find(&to.forecast, NULL, &run->early);
    while (gp_flow_next(&walk, &change)) {
        if (change.event != GP_REC_NONE)
            walk_bounds(&to, change.time_ns);
        if (change.item->device != device)
            continue;
        gp_flow_polled_advance(&to.polled, change.time_ns, &to.level);
        gp_level_apply(&to.level, &change);
        if (!(change.what & GP_FLOW_SUMMED))
            continue;
        if (change.event != GP_REC_NONE && change.add)
            walk_take(&to, gp_flow_bytes(&change));
        to.sample.frees += change.event != GP_REC_NONE && !change.add;
        walk_level(&to, to.level.allocated);
        GP_RAISE(run->peak_bytes, to.level.allocated);
    }
    gp_hash_free(&to.sizes);
    if (to.failed) {
        free(run);
        return NULL;
    }
    walk_bounds(&to, UINT64_MAX);
    gp_forecast_find(&to.forecast, &to.room, &run->now);
    /* What came after the last step, such as a server's sleep, belongs to the run. */
    int64_t later = run->now.peak_bytes >= 0 ? run->peak_bytes - run->now.peak_bytes : 0;
    if (later > 0) {
        run->now.peak_bytes += later;
        if (run->now.spare_bytes >= 0)
            run->now.spare_bytes = run->now.spare_bytes > later ? run->now.spare_bytes - later : 0;
    }
    /* No rhythm was found, or one that memory does not follow. */
    if (steps->source == GP_STEPS_TIME || !gp_flow_repeats(flow, steps, 1).are_steps) {
        run->early =
            (struct gp_forecast_result){.peak_bytes = -1, .step_bytes = -1, .spare_bytes = -1, .seconds_to_oom = -1};
        int64_t headroom = run->now.headroom_bytes;
        run->now = run->early;
        run->now.headroom_bytes = headroom;
        run->early.headroom_bytes = -1;
        run->now.verdict = run->early.verdict = GP_FORECAST_APERIODIC;
    }
    return run;
}
