/* SPDX-License-Identifier: MIT
 *
 * track.c: what the model keeps of a row from one sample to the next; see track.h.
 */
#include <show/terminal/track.h>

#include <errno.h>
#include <math.h>
#include <read/common/hash.h>
#include <show/terminal/model.h>
#include <stdlib.h>
#include <string.h>

bool gp_model_same_gpu(const struct gp_row_id *a, const struct gp_row_id *b)
{
    return a->gpu == b->gpu && (a->gpu || a->device == b->device);
}

bool gp_model_id_equal(const struct gp_row_id *a, const struct gp_row_id *b)
{
    return a->kind == b->kind && a->pid == b->pid && a->start_time == b->start_time && gp_model_same_gpu(a, b) &&
           a->cgroup_id == b->cgroup_id && (a->cgroup_id || strcmp(a->container, b->container) == 0) &&
           a->site == b->site && strcmp(a->owner, b->owner) == 0;
}

uint64_t gp_model_id_hash(const struct gp_row_id *id)
{
    const uint64_t parts[] = {(uint64_t)id->kind,
                              (uint64_t)id->pid,
                              id->start_time,
                              id->gpu ? id->gpu : (uint64_t)id->device,
                              id->cgroup_id,
                              id->cgroup_id ? 0 : gp_hash_of_text(id->container),
                              gp_hash_of_text(id->owner),
                              id->site};
    return gp_hash_of_bytes(parts, sizeof(parts));
}

static struct gp_track **track_bucket(struct gp_model *model, const struct gp_row_id *id)
{
    return &model->tracks[gp_model_id_hash(id) % GP_TRACK_BUCKETS];
}

struct gp_track *gp_track_get(struct gp_model *model, const struct gp_row_id *id)
{
    struct gp_track **bucket = track_bucket(model, id);
    for (struct gp_track *track = *bucket; track; track = track->next) {
        if (gp_model_id_equal(&track->id, id)) {
            track->generation = model->generation;
            return track;
        }
    }
    struct gp_track *track = calloc(1, sizeof(*track));
    if (!track)
        return NULL;
    track->id = *id;
    track->generation = model->generation;
    track->allocs_per_s = track->frees_per_s = NAN;
    track->allocated_seen = track->reserved_seen = -1;
    track->next = *bucket;
    *bucket = track;
    return track;
}

static void track_free(struct gp_track *track)
{
    free(track->plot);
    free(track->outlook);
    free(track);
}

void gp_track_sweep(struct gp_model *model)
{
    for (int i = 0; i < GP_TRACK_BUCKETS; i++) {
        for (struct gp_track **link = &model->tracks[i]; *link;) {
            struct gp_track *track = *link;
            unsigned kept = track->id.kind == GP_ROW_DEVICE ? GP_PLOT_SAMPLES : 0;
            if (model->generation - track->generation <= kept) {
                link = &track->next;
                continue;
            }
            *link = track->next;
            track_free(track);
        }
    }
}

void gp_track_free_all(struct gp_model *model)
{
    for (int i = 0; i < GP_TRACK_BUCKETS; i++) {
        while (model->tracks[i]) {
            struct gp_track *track = model->tracks[i];
            model->tracks[i] = track->next;
            track_free(track);
        }
    }
}

void gp_track_push(struct gp_track *track, int64_t allocated)
{
    struct gp_history *history = &track->history;
    history->samples[history->next] = allocated;
    history->next = (history->next + 1) % GP_HISTORY;
    if (history->count < GP_HISTORY)
        history->count++;
}

int64_t gp_model_history(const struct gp_history *history, int back)
{
    if (!history || back < 0 || back >= history->count)
        return -1;
    return history->samples[(history->next - 1 - back + 2 * GP_HISTORY) % GP_HISTORY];
}

int gp_track_plot(struct gp_track *track, const struct gp_plot_sample *sample)
{
    if (!track->plot && !(track->plot = calloc(1, sizeof(*track->plot))))
        return -ENOMEM;
    struct gp_plot_history *plot = track->plot;
    plot->samples[plot->next] = *sample;
    plot->next = (plot->next + 1) % GP_PLOT_SAMPLES;
    if (plot->count < GP_PLOT_SAMPLES)
        plot->count++;
    return 0;
}

const struct gp_plot_sample *gp_model_plot(const struct gp_plot_history *plot, int back)
{
    if (!plot || back < 0 || back >= plot->count)
        return NULL;
    return &plot->samples[(plot->next - 1 - back + 2 * GP_PLOT_SAMPLES) % GP_PLOT_SAMPLES];
}

void gp_track_rate(struct gp_track *track, struct gp_row *row, uint64_t time_ns)
{
    const struct gp_process *process = row->process;
    row->allocs_per_s = row->frees_per_s = NAN;
    if (!row->device || !gp_model_process_readable(process)) {
        track->counted = false;
        return;
    }
    const struct gp_wire_value *counts = &row->device->wire.stats[GP_STAT_ALLOCATION][GP_POOL_ALL];
    /* Use the process's clock if it has published again, else the viewer's: it had nothing new to
     * publish. */
    bool published = process->publish_ns > track->publish_ns;
    uint64_t elapsed = published ? process->publish_ns - track->publish_ns : time_ns - track->time_ns;
    bool answered = published || process->state == GP_PROCESS_LIVE;
    /* A counter that went down was reset: the rate of this interval is unknown. */
    if (track->counted && answered && elapsed > 0 && time_ns > track->time_ns && counts->allocated >= track->allocs &&
        counts->freed >= track->frees) {
        row->allocs_per_s = (double)(counts->allocated - track->allocs) * 1e9 / (double)elapsed;
        row->frees_per_s = (double)(counts->freed - track->frees) * 1e9 / (double)elapsed;
    }
    track->counted = true;
    track->publish_ns = process->publish_ns;
    track->time_ns = time_ns;
    track->allocs = counts->allocated;
    track->frees = counts->freed;
}

void gp_track_rate_of(struct gp_track *track, struct gp_row *row, uint64_t time_ns, int64_t allocs, int64_t frees)
{
    row->allocs_per_s = row->frees_per_s = NAN;
    if (track->counted && time_ns > track->time_ns && allocs >= track->allocs && frees >= track->frees) {
        row->allocs_per_s = (double)(allocs - track->allocs) * 1e9 / (double)(time_ns - track->time_ns);
        row->frees_per_s = (double)(frees - track->frees) * 1e9 / (double)(time_ns - track->time_ns);
    }
    track->counted = allocs >= 0 && frees >= 0;
    track->time_ns = time_ns;
    track->allocs = allocs;
    track->frees = frees;
}

static void track_raise(int64_t *seen, int64_t now, int64_t *peak)
{
    int64_t most = now > *peak ? now : *peak;
    if (most > *seen)
        *seen = most;
    *peak = *seen;
}

void gp_track_peak(struct gp_track *track, struct gp_row *row)
{
    /* The peaks of a single member are exact, but members that have ended may have had higher
     * ones. */
    int64_t exact_allocated = row->allocated_peak, exact_reserved = row->reserved_peak;
    track_raise(&track->allocated_seen, row->allocated, &row->allocated_peak);
    track_raise(&track->reserved_seen, row->reserved, &row->reserved_peak);
    row->seen_peak = row->members > 1 || row->allocated_peak != exact_allocated || row->reserved_peak != exact_reserved;
}

void gp_model_forget_peaks(struct gp_model *model, uint32_t what)
{
    for (int i = 0; i < GP_TRACK_BUCKETS; i++) {
        for (struct gp_track *track = model->tracks[i]; track; track = track->next) {
            if (what & GP_RESET_ALLOCATED)
                track->allocated_seen = -1;
            if (what & GP_RESET_RESERVED)
                track->reserved_seen = -1;
        }
    }
}
