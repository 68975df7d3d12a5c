/* SPDX-License-Identifier: MIT
 *
 * follow.c: how far a program is that runs dry: its steps so far, from the recordings that are
 * being written; see job.h. A look reads all of a recording, so the looks keep to a part of the
 * time.
 */
#include <base/clock.h>
#include <common/values.h>
#include <dryrun/dryrun.h>
#include <dryrun/job.h>
#include <gpuprof/wire.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define GP_FOLLOW_NS     500000000ull
#define GP_FOLLOW_SAY_NS 10000000000ull
#define GP_FOLLOW_PART   10u /* the looks take that part of the time at most */
#define GP_FOLLOW_POINTS 4000u
#define GP_FOLLOW_ABOUT  256 /* peaks that differ by that part are equal */

/* The peaks of the later half of the steps are no higher than those of the first.  Calls of a net must also leave no
 * more behind: those of a first forward pass do, because its backward pass is to come. */
static bool follow_repeats(const struct gp_recording *r, const struct gp_steps *steps, uint32_t d)
{
    struct gp_series *series = gp_series_allocated(r, d, GP_KIND_NONE, GP_FOLLOW_POINTS);
    const uint32_t half = steps->ended - steps->ended / 2;
    if (!series)
        return false;
    int64_t first = gp_series_range(series, steps->bounds_ns[0], steps->bounds_ns[half]).high;
    struct gp_series_point later = gp_series_range(series, steps->bounds_ns[half], steps->bounds_ns[steps->ended]);
    bool repeats = later.high - first <= first / GP_FOLLOW_ABOUT;
    if (steps->call == GP_STEP_NET) /* the first call may leave what stays */
        repeats &= half > 1 && later.low <= gp_series_range(series, steps->bounds_ns[1], steps->bounds_ns[half]).low;
    free(series);
    return repeats;
}

/* Of a job of ranks all of them must have come so far: they need not go in step. */
struct follow_ranks {
    struct {
        uint32_t steps;
        bool repeats;
    } * each; /* as world->ranks has them; NULL: no --world */
};

static void follow_found(struct gp_dryrun_follow *follow, struct follow_ranks *ranks, const struct gp_recording *r,
                         uint32_t steps, bool repeats)
{
    const struct gp_world *world = follow->job->world;
    uint32_t i = 0;
    while (ranks->each && i < world->count && !(r->has_rank && world->ranks[i] == r->rank))
        i++;
    if (ranks->each && i == world->count)
        return;
    uint32_t *most = ranks->each ? &ranks->each[i].steps : &follow->steps;
    if (steps <= *most)
        return;
    *most = steps;
    *(ranks->each ? &ranks->each[i].repeats : &follow->repeats) = repeats;
}

/* The rank that has come least far. */
static void follow_least(struct gp_dryrun_follow *follow, const struct follow_ranks *ranks)
{
    for (uint32_t i = 0; ranks->each && i < follow->job->world->count; i++) {
        if (i == 0 || ranks->each[i].steps < follow->steps)
            follow->steps = ranks->each[i].steps;
        follow->repeats = (i == 0 || follow->repeats) && ranks->each[i].repeats;
    }
}

static void follow_file(struct gp_dryrun_follow *follow, const char *file, struct follow_ranks *ranks, int64_t *peak)
{
    struct gp_recording *r = NULL;
    char why[256];
    if (gp_recording_open(&r, file, why, sizeof(why), NULL, NULL) != 0)
        return; /* it has just begun */
    struct gp_steps *steps = gp_steps_find(r);
    /* What only repeats may be a part of the first step: the layers of a pass, or what is computed again in it. */
    bool found = steps && gp_steps_are_steps(steps) && steps->ended >= 2, repeats = found;
    for (uint32_t d = 0; d < r->device_count; d++) {
        struct gp_series *series = gp_series_reserved(r, d, 1);
        if (r->devices[d].index != GP_WIRE_HOST && series && series->count && series->points[0].high > *peak)
            *peak = series->points[0].high;
        free(series);
        repeats = repeats && follow_repeats(r, steps, d);
    }
    if (found)
        follow_found(follow, ranks, r, steps->ended, repeats);
    free(steps);
    gp_recording_free(r);
}

static void follow_say(struct gp_dryrun_follow *follow, uint64_t now, int64_t peak)
{
    char size[GP_SIZE_TEXT], time[GP_SIZE_TEXT];
    follow->say_ns = now + GP_FOLLOW_SAY_NS;
    fprintf(stderr, "gpuprof: dryrun: %s on %s: ", gp_seconds_text(time, (double)(now - follow->begin_ns) / 1e9),
            follow->gpu);
    if (follow->steps)
        fprintf(stderr, "%u steps, ", follow->steps);
    fprintf(stderr, "at most %s until now\n", gp_size_text(size, peak));
}

bool gp_dryrun_look(struct gp_dryrun_follow *follow)
{
    uint64_t now = gp_clock_ns();
    int64_t peak = 0;
    if (!follow->begin_ns) {
        follow->begin_ns = now;
        follow->next_ns = now + GP_FOLLOW_NS;
        follow->say_ns = now + GP_FOLLOW_SAY_NS;
    }
    bool say = now >= follow->say_ns && isatty(STDERR_FILENO);
    if (now < follow->next_ns || (!follow->job->steps && !say))
        return false;
    const struct gp_world *world = follow->job->world;
    struct follow_ranks ranks = {.each = world ? calloc(world->count + 1ul, sizeof(*ranks.each)) : NULL};
    char **files = !world || ranks.each ? gp_dryrun_files(follow->job, follow->number) : NULL;
    follow->steps = 0;
    follow->repeats = false;
    for (size_t i = 0; files && files[i]; i++) {
        follow_file(follow, files[i], &ranks, &peak);
        free(files[i]);
    }
    free(files);
    follow_least(follow, &ranks);
    free(ranks.each);
    uint64_t cost_ns = gp_clock_ns() - now;
    follow->next_ns = now + cost_ns + GP_FOLLOW_NS + cost_ns * GP_FOLLOW_PART;
    if (say)
        follow_say(follow, now, peak);
    return follow->job->steps && follow->steps >= follow->job->steps && follow->repeats;
}
