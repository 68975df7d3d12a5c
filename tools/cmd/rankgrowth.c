/* SPDX-License-Identifier: MIT
 *
 * rankgrowth.c: what grows in the recording of one rank, as `gpuprof leaks` of a job keeps it (rankread.h).  The answer
 * is that of `leaks` for this file alone, but that a rank of which nothing can be known is told from one where nothing
 * grows.  Called by rankread.c.
 */
#include <analyze/rankleaks.h>
#include <cmd/rankread.h>
#include <show/text/reportparts.h>
#include <symbol/symbol.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Points of the curve from which the peak of reserved is taken. */
#define GP_RANK_GROWTH_POINTS 100u

/* The GPU that was fullest at its peak, by its index in devices.  GP_REC_NONE: none was used.  False: out of memory. */
static bool growth_fullest(struct gp_job_rank *rank, const struct gp_loaded *loaded, uint32_t *fullest)
{
    double most = 0;
    *fullest = GP_REC_NONE;
    rank->total_bytes = -1;
    for (uint32_t d = 0; d < loaded->recording->device_count; d++) {
        const struct gp_rec_device *device = &loaded->recording->devices[d];
        int64_t bytes = 0;
        if (device->ordinal < 0)
            continue;
        struct gp_series *reserved = gp_flow_reserved(loaded->report.flow, d, GP_RANK_GROWTH_POINTS);
        if (!reserved)
            return false;
        for (uint32_t i = 0; i < reserved->count; i++)
            bytes = reserved->points[i].high > bytes ? reserved->points[i].high : bytes;
        free(reserved);
        double full = (double)bytes / (device->total_bytes > 0 ? (double)device->total_bytes : 1);
        rank->device_count += bytes > 0;
        if (full <= most)
            continue;
        most = full;
        *fullest = d;
        rank->device = device->ordinal;
        rank->reserved_peak_bytes = bytes;
        rank->total_bytes = device->total_bytes > 0 ? device->total_bytes : -1;
        snprintf(rank->device_name, sizeof(rank->device_name), "%s", device->name);
    }
    return true;
}

/* Takes the steps that the user asked for.  A rank that lacks them says so, and the others are read on.  False: out of
 * memory. */
static bool growth_steps(struct gp_rank_growth *growth, struct gp_loaded *loaded, const char *step)
{
    struct gp_steps *steps = NULL;
    int rc = step ? gp_steps_choose(loaded->recording, step, &steps) : 0;
    if (rc == -ENOMEM)
        return false;
    growth->no_step = rc != 0;
    if (rc)
        snprintf(growth->why, sizeof(growth->why),
                 rc == -ERANGE ? "--step would be more than a million steps of it"
                               : "it has no mark and no NVTX range of the name of --step that occurs twice");
    if (steps) {
        free(loaded->report.steps);
        loaded->report.steps = steps;
    }
    return true;
}

static void growth_step_words(struct gp_rank_growth *growth, const struct gp_report *report)
{
    const struct gp_steps *steps = report->steps;
    growth->step_ns = steps->length_ns;
    growth->timed = steps->source == GP_STEPS_TIME;
    snprintf(growth->step_word, sizeof(growth->step_word), "%s", gp_steps_word(steps));
    snprintf(growth->step_source, sizeof(growth->step_source), "%s", gp_report_step_source(report));
    snprintf(growth->step_found, sizeof(growth->step_found), "%s", gp_steps_found(steps));
    snprintf(growth->step_name, sizeof(growth->step_name), "%s", steps->name);
    gp_report_rhythm(report, growth->rhythm);
}

static void growth_rows(struct gp_rank_growth *growth, const struct gp_loaded *loaded, const struct gp_leaks *leaks,
                        uint32_t fullest)
{
    const struct gp_recording *r = loaded->recording;
    for (uint32_t i = 0; i < leaks->count + leaks->candidates; i++) {
        struct gp_rank_grown row = {.sites = 1, .leak = leaks->suspects[i]};
        row.own = row.leak.device == fullest;
        row.device = row.leak.device < r->device_count ? r->devices[row.leak.device].ordinal : -1;
        gp_symbols_line(loaded->symbols, row.leak.site, NULL, NULL, row.name, sizeof(row.name));
        gp_bill_site_owner(r, row.leak.site, row.owner);
        row.leak.site = row.leak.device = row.leak.points = 0;
        row.leak.kept = NULL;
        gp_rank_growth_add(growth, &row);
    }
}

/* Why nothing can be known of a recording in which nothing was found that grows; NULL: it can. */
static const char *growth_doubt(const struct gp_rank_growth *growth, const struct gp_recording *r,
                                const struct gp_leaks *leaks, uint64_t older_ns)
{
    if (r->from_pprof)
        return "a heap profile is one moment";
    if (!leaks->enough)
        return leaks->why;
    if (older_ns > r->end_ns - r->begin_ns)
        return "it is shorter than --older, so no block is as old";
    return growth->lossy ? "events are missing in it, and in what is left nothing grows" : NULL;
}

bool gp_rank_growth_fill(struct gp_job_rank *rank, struct gp_loaded *loaded, const struct gp_load_options *options)
{
    const struct gp_recording *r = loaded->recording;
    struct gp_rank_growth *growth = rank->growth = calloc(1, sizeof(*growth));
    uint64_t older_ns = options->older_seconds > 0 ? (uint64_t)options->older_seconds * 1000000000ull : 0;
    uint32_t fullest;
    if (!growth || !growth_fullest(rank, loaded, &fullest) || !growth_steps(growth, loaded, options->step))
        return false;
    growth->damaged_blocks = r->damaged_blocks;
    growth->early = !r->complete || r->ended_early;
    growth->lossy = gp_rec_missing(r) || r->damaged_blocks || r->unseen_blocks || r->unfreed_blocks;
    growth->answer = GP_RANK_CANNOT_KNOW;
    if (growth->no_step)
        return true;
    growth_step_words(growth, &loaded->report);
    struct gp_leaks *leaks = gp_flow_leaks(loaded->report.flow, loaded->report.steps, older_ns);
    if (!leaks)
        return false;
    growth->steps = leaks->steps;
    growth_rows(growth, loaded, leaks, fullest);
    const char *doubt = leaks->count || leaks->candidates ? NULL : growth_doubt(growth, r, leaks, older_ns);
    if (!doubt)
        growth->answer = leaks->count        ? GP_RANK_SUSPECTS
                         : leaks->candidates ? GP_RANK_CANDIDATES
                                             : GP_RANK_NOTHING_GROWS;
    snprintf(growth->why, sizeof(growth->why), "%s", doubt ? doubt : leaks->why);
    free(leaks);
    return true;
}
