/* SPDX-License-Identifier: MIT
 * model.c: see model.h.  One sample becomes pairs (process, device).  Pairs are summed into
 * processes, GPUs and containers.  Peaks are never summed, because processes peak at different
 * times.  Its parts: what is kept from sample to sample, the model. */
#include <show/terminal/model.h>

#include <errno.h>
#include <math.h>
#include <read/common/hash.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is kept from sample to sample -------------------------------------------------------------------------- */
/* The data that the model keeps about a row from one sample to the next.  Only model.c uses it. */

struct gp_track {
    struct gp_row_id id;
    struct gp_track *next;
    unsigned generation; /* of the model, when the row was last seen */
    bool counted;        /* the counters below hold a sample */
    uint64_t publish_ns, time_ns;
    int64_t allocs, frees;
    double allocs_per_s, frees_per_s;
    int64_t allocated_seen, reserved_seen; /* highest so far; -1 none */
    struct gp_history history;
    struct gp_plot_history *plot; /* of a GPU; else NULL */
    struct gp_outlook *outlook;   /* of a pair on a GPU; else NULL */
};

bool gp_model_id_equal(const struct gp_row_id *a, const struct gp_row_id *b)
{
    return a->kind == b->kind && a->pid == b->pid && a->start_time == b->start_time && a->device == b->device &&
           a->cgroup_id == b->cgroup_id && (a->cgroup_id || strcmp(a->container, b->container) == 0) &&
           a->site == b->site && strcmp(a->owner, b->owner) == 0;
}

static struct gp_track **track_bucket(struct gp_model *model, const struct gp_row_id *id)
{
    const uint64_t parts[] = {
        (uint64_t)id->kind,        (uint64_t)id->pid, id->start_time,
        (uint64_t)id->device,      id->cgroup_id,     id->cgroup_id ? 0 : gp_hash_of_text(id->container),
        gp_hash_of_text(id->owner)};
    return &model->tracks[gp_hash_of_bytes(parts, sizeof(parts)) % GP_TRACK_BUCKETS];
}

/* Finds the track of a row, or makes one; NULL: out of memory. */
static struct gp_track *track_get(struct gp_model *model, const struct gp_row_id *id)
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

/* Frees the tracks of rows that this generation has not seen.  Tracks of GPUs stay, because GPUs do
 * not go away. */
static void track_sweep(struct gp_model *model)
{
    for (int i = 0; i < GP_TRACK_BUCKETS; i++) {
        for (struct gp_track **link = &model->tracks[i]; *link;) {
            struct gp_track *track = *link;
            if (track->generation == model->generation || track->id.kind == GP_ROW_DEVICE) {
                link = &track->next;
                continue;
            }
            *link = track->next;
            track_free(track);
        }
    }
}

static void track_free_all(struct gp_model *model)
{
    for (int i = 0; i < GP_TRACK_BUCKETS; i++) {
        while (model->tracks[i]) {
            struct gp_track *track = model->tracks[i];
            model->tracks[i] = track->next;
            track_free(track);
        }
    }
}

static void track_push(struct gp_track *track, int64_t allocated)
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

/* Adds a sample of a GPU.  0 or -ENOMEM. */
static int track_plot(struct gp_track *track, const struct gp_plot_sample *sample)
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

/* Sets the row's rates since the last sample. */
static void track_rate(struct gp_track *track, struct gp_row *row, uint64_t time_ns)
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

/* The same, from counters that were read at time_ns; -1 unknown. */
static void track_rate_of(struct gp_track *track, struct gp_row *row, uint64_t time_ns, int64_t allocs, int64_t frees)
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

/* Sets the row's peaks to the highest sums seen so far.  The exact peak of a member is a lower
 * bound of that. */
static void track_peak(struct gp_track *track, struct gp_row *row)
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

/* ---- the model --------------------------------------------------------------------------------------------------- */

#define GP_MODEL_NO_UUID "not known yet" /* in the place of a UUID */

int gp_model_row_add(struct gp_row_list *list, const struct gp_row *row)
{
    if (list->count == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 64;
        struct gp_row *rows = realloc(list->rows, (size_t)capacity * sizeof(*rows));
        if (!rows)
            return -ENOMEM;
        list->rows = rows;
        list->capacity = capacity;
    }
    list->rows[list->count++] = *row;
    return 0;
}

void gp_model_init(struct gp_model *model)
{
    memset(model, 0, sizeof(*model));
}

static void model_clear(struct gp_model *model)
{
    for (int i = 0; i < GP_LISTS; i++)
        model->lists[i].count = 0;
    free(model->gpus);
    model->gpus = NULL;
    model->gpu_count = 0;
    gp_system_free(model->system);
    model->system = NULL;
    memset(model->lost, 0, sizeof(model->lost));
    memset(model->states, 0, sizeof(model->states));
    model->lost_total = 0;
}

void gp_model_fini(struct gp_model *model)
{
    model_clear(model);
    for (int i = 0; i < GP_LISTS; i++)
        free(model->lists[i].rows);
    track_free_all(model);
    gp_model_init(model);
}

/* ---- GPUs ---------------------------------------------------------------------------------------------------- */

static int model_find_gpu(const struct gp_model *model, const struct gp_device_view *device)
{
    for (int i = 0; device->uuid[0] && i < model->gpu_count; i++) {
        if (strcmp(model->gpus[i].uuid, device->uuid) == 0)
            return i;
    }
    /* Without a UUID the ordinal is the best guess.  It is wrong only with CUDA_VISIBLE_DEVICES,
     * before cuInit. */
    for (int i = 0; i < model->gpu_count; i++) {
        if (model->gpus[i].index == device->ordinal && (!device->uuid[0] || !model->gpus[i].uuid[0]))
            return i;
    }
    return -1;
}

static int model_free_index(const struct gp_model *model, int wanted)
{
    for (int i = 0; i < model->gpu_count; i++) {
        if (model->gpus[i].index == wanted)
            return model_free_index(model, wanted + 1);
    }
    return wanted;
}

/* Index in gpus[]; adds the device if it is not there yet. */
static int model_gpu(struct gp_model *model, const struct gp_device_view *device)
{
    if (device->index == (int)GP_WIRE_HOST)
        return GP_MODEL_HOST;
    int found = model_find_gpu(model, device);
    if (found >= 0)
        return found;
    struct gp_gpu *gpus = realloc(model->gpus, (size_t)(model->gpu_count + 1) * sizeof(*gpus));
    if (!gpus)
        return GP_MODEL_NO_DEVICE;
    model->gpus = gpus;
    struct gp_gpu *gpu = &gpus[model->gpu_count];
    *gpu = (struct gp_gpu){.total_bytes = device->total_bytes, .used_bytes = -1};
    gpu->index = model_free_index(model, device->ordinal < 0 ? 0 : device->ordinal);
    memcpy(gpu->uuid, device->uuid, sizeof(gpu->uuid));
    memcpy(gpu->name, device->name, sizeof(gpu->name));
    return model->gpu_count++;
}

static int model_take_gpus(struct gp_model *model)
{
    const struct gp_system *system = model->system;
    model->gpus = calloc((size_t)system->gpu_count + 1, sizeof(*model->gpus));
    if (!model->gpus)
        return -ENOMEM;
    if (system->gpu_count)
        memcpy(model->gpus, system->gpus, (size_t)system->gpu_count * sizeof(*model->gpus));
    model->gpu_count = system->gpu_count;
    return 0;
}

bool gp_model_gpu_known(const struct gp_gpu *gpu)
{
    return strcmp(gpu->uuid, GP_MODEL_NO_UUID) != 0;
}

const char *gp_model_gpu_label(const struct gp_gpu *gpu)
{
    return gpu->name[0] ? gpu->name : gpu->uuid[0] ? gpu->uuid : "name unknown";
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

struct gp_row gp_model_row_empty(enum gp_row_kind kind, int device)
{
    return (struct gp_row){.id = {.kind = kind, .device = device},
                           .allocated = -1,
                           .allocated_peak = -1,
                           .reserved = -1,
                           .reserved_peak = -1,
                           .asleep = -1,
                           .untracked = -1,
                           .before = -1,
                           .total = -1,
                           .lost = -1,
                           .allocs_per_s = NAN,
                           .frees_per_s = NAN};
}

static struct gp_row row_of(const struct gp_process *process, const struct gp_device_view *view, int device)
{
    struct gp_row row = gp_model_row_empty(GP_ROW_PAIR, device);
    row.id.pid = process->pid;
    row.id.start_time = process->start_time;
    row.process = process;
    row.device = view;
    row.members = 1;
    if (process->state != GP_PROCESS_FOREIGN && process->state != GP_PROCESS_DAMAGED) {
        row.lost = 0;
        for (int i = 0; i < (int)GP_LOSTS; i++)
            row.lost += (int64_t)process->lost[i];
    }
    if (!view)
        return row;
    row.untracked = view->untracked_bytes;
    row.before = view->before.bytes > 0 ? view->before.bytes : -1;
    row.late = view->before.bytes != 0;
    row.total = view->total_bytes;
    row.estimated = view->estimated;
    if (gp_model_process_readable(process)) {
        const struct gp_wire_value *allocated = &view->wire.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL];
        const struct gp_wire_value *reserved = &view->wire.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL];
        row.allocated = allocated->current;
        row.allocated_peak = allocated->peak;
        row.reserved = reserved->current;
        row.reserved_peak = reserved->peak;
        row.asleep = view->wire.asleep_bytes.current;
    }
    return row;
}

static int model_add_pair(struct gp_model *model, struct gp_row *row)
{
    struct gp_track *track = track_get(model, &row->id);
    if (!track)
        return -ENOMEM;
    track_rate(track, row, model->system->time_ns);
    track_push(track, row->allocated);
    row->history = &track->history;
    if (row->id.device >= 0 && !track->outlook && !(track->outlook = gp_outlook_new()))
        return -ENOMEM;
    row->outlook = track->outlook;
    if (row->outlook)
        gp_outlook_feed(row->outlook, row, model->system->time_ns);
    return gp_model_row_add(&model->lists[GP_LIST_PAIRS], row);
}

static int model_add_share(struct gp_model *model, const struct gp_row *pair, const char *owner,
                           const struct gp_wire_owner_value *value)
{
    struct gp_row row = *pair;
    row.id.kind = GP_ROW_SHARE;
    snprintf(row.id.owner, sizeof(row.id.owner), "%s", owner);
    row.history = NULL;
    row.outlook = NULL;
    row.untracked = row.lost = row.before = -1;
    row.allocs_per_s = row.frees_per_s = NAN;
    row.allocated = value->allocated_bytes > 0 ? value->allocated_bytes : 0;
    row.reserved = value->reserved_bytes > 0 ? value->reserved_bytes : 0;
    row.allocated_peak = value->allocated_peak_bytes;
    row.reserved_peak = value->reserved_peak_bytes;
    row.asleep = gp_owner_asleep(pair->device, owner);
    return gp_model_row_add(&model->lists[GP_LIST_SHARES], &row);
}

/* Memory whose owners are not known (the agent's maps have none) is one share, "unknown". */
static int model_add_shares(struct gp_model *model, const struct gp_row *pair)
{
    struct gp_owner_view views[GP_OWNER_VIEWS];
    int err = 0;
    if (!pair->device || pair->reserved < 0)
        return 0;
    int count = gp_peer_owners_of(pair->process, pair->device, views);
    for (int i = 0; i < count && !err; i++)
        err = model_add_share(model, pair, views[i].owner, &views[i].value);
    if (!count && (pair->reserved_peak > 0 || pair->allocated_peak > 0)) {
        struct gp_wire_owner_value all = {pair->reserved, pair->reserved_peak, pair->allocated, pair->allocated_peak,
                                          0};
        err = model_add_share(model, pair, "unknown", &all);
    }
    return err;
}

static int model_add_process(struct gp_model *model, const struct gp_process *process)
{
    int err = 0;
    model->states[process->state]++;
    for (int i = 0; i < (int)GP_LOSTS && process->state != GP_PROCESS_FOREIGN; i++) {
        model->lost[i] += process->lost[i];
        model->lost_total += process->lost[i];
    }
    int devices = 0;
    for (int i = 0; i < process->device_count && !err; i++) {
        const struct gp_device_view *view = &process->devices[i];
        int device = model_gpu(model, view);
        struct gp_row row = row_of(process, view, device);
        devices += device != GP_MODEL_HOST;
        err = model_add_pair(model, &row);
        if (!err)
            err = model_add_shares(model, &row);
    }
    if (!devices && !err) { /* a profiled process gets a row even if it has used no device */
        struct gp_row row = row_of(process, NULL, GP_MODEL_NO_DEVICE);
        err = model_add_pair(model, &row);
    }
    return err;
}

/* ---- sums ---------------------------------------------------------------------------------------------------- */

static void sum_bytes(int64_t *sum, int64_t part)
{
    if (part >= 0)
        *sum = *sum < 0 ? part : *sum + part;
}

static void sum_rate(double *sum, double part)
{
    if (!isnan(part))
        *sum = isnan(*sum) ? part : *sum + part;
}

static void sum_most(int64_t *most, int64_t part)
{
    if (part > *most)
        *most = part;
}

/* The agent's sum becomes a group.  Pairs add only the values that the agent does not count
 * (model_sum). */
static int model_add_sum(struct gp_model *model, const struct gp_sum *sum)
{
    struct gp_device_view view = {.ordinal = -1, .total_bytes = sum->total_bytes};
    /* All processes that have not learned their GPU's UUID from the driver yet share one row. */
    snprintf(view.uuid, sizeof(view.uuid), "%s", sum->uuid[0] ? sum->uuid : GP_MODEL_NO_UUID);
    int device = model_gpu(model, &view);
    if (device < 0)
        return -ENOMEM;
    struct gp_row row = gp_model_row_empty(sum->cgroup_id ? GP_ROW_CONTAINER : GP_ROW_DEVICE, device);
    row.id.cgroup_id = sum->cgroup_id;
    memcpy(row.id.container, sum->container, sizeof(row.id.container));
    row.exact = true;
    row.members = sum->processes;
    row.allocated = sum->allocated;
    row.allocated_peak = sum->allocated_peak;
    row.reserved = sum->reserved;
    row.reserved_peak = sum->reserved_peak;
    row.asleep = sum->asleep;
    row.total = model->gpus[device].total_bytes >= 0 ? model->gpus[device].total_bytes : sum->total_bytes;
    struct gp_track *track = track_get(model, &row.id);
    if (!track)
        return -ENOMEM;
    track_rate_of(track, &row, model->system->time_ns, sum->calls, sum->frees);
    return gp_model_row_add(&model->lists[sum->cgroup_id ? GP_LIST_CONTAINERS : GP_LIST_DEVICES], &row);
}

static struct gp_row *model_find_row(struct gp_row_list *list, const struct gp_row_id *id)
{
    for (int i = list->count - 1; i >= 0; i--) { /* most often it is the group of the previous pair: start there */
        if (gp_model_id_equal(&list->rows[i].id, id))
            return &list->rows[i];
    }
    return NULL;
}

static struct gp_row *model_group(struct gp_model *model, enum gp_member_list which, const struct gp_row *seed)
{
    struct gp_row_list *list = &model->lists[which];
    struct gp_row *found = NULL;
    if (which != GP_LIST_PROCESSES)
        found = model_find_row(list, &seed->id);
    else if (list->count && gp_model_id_equal(&list->rows[list->count - 1].id, &seed->id))
        found = &list->rows[list->count - 1]; /* the pairs of a process follow one another */
    if (found)
        return found;
    return gp_model_row_add(list, seed) ? NULL : &list->rows[list->count - 1];
}

static int model_sum(struct gp_model *model, enum gp_member_list which, const struct gp_row *seed,
                     const struct gp_row *pair)
{
    struct gp_row *group = model_group(model, which, seed);
    if (!group)
        return -ENOMEM;
    if (group->exact) {
        group->estimated |= pair->estimated;
        sum_bytes(&group->untracked, pair->untracked);
        sum_bytes(&group->before, pair->before);
        group->late |= pair->late;
        sum_bytes(&group->lost, pair->lost);
        return 0;
    }
    bool first_of_process = true;
    if (which == GP_LIST_PROCESSES)
        first_of_process = group->members == 0; /* losses are per process and repeated in each pair: count once */
    group->members++;
    group->estimated |= pair->estimated;
    sum_bytes(&group->allocated, pair->allocated);
    sum_bytes(&group->reserved, pair->reserved);
    sum_bytes(&group->asleep, pair->asleep);
    sum_bytes(&group->untracked, pair->untracked);
    sum_bytes(&group->before, pair->before);
    group->late |= pair->late;
    sum_most(&group->allocated_peak, pair->allocated_peak);
    sum_most(&group->reserved_peak, pair->reserved_peak);
    if (first_of_process)
        sum_bytes(&group->lost, pair->lost);
    sum_rate(&group->allocs_per_s, pair->allocs_per_s);
    sum_rate(&group->frees_per_s, pair->frees_per_s);
    return 0;
}

static int model_sum_pair(struct gp_model *model, const struct gp_row *pair)
{
    struct gp_row process = gp_model_row_empty(GP_ROW_PROCESS, GP_MODEL_NO_DEVICE);
    process.id.pid = pair->id.pid;
    process.id.start_time = pair->id.start_time;
    process.process = pair->process;
    if (pair->id.device == GP_MODEL_HOST)
        return 0; /* host memory is not part of a GPU's sum */
    int err = model_sum(model, GP_LIST_PROCESSES, &process, pair);
    if (!err && pair->id.device >= 0) {
        struct gp_row device = gp_model_row_empty(GP_ROW_DEVICE, pair->id.device);
        err = model_sum(model, GP_LIST_DEVICES, &device, pair);
    }
    if (!err) {
        struct gp_row container = gp_model_row_empty(GP_ROW_CONTAINER, pair->id.device);
        container.id.cgroup_id = pair->process->cgroup_id;
        memcpy(container.id.container, pair->process->container, sizeof(container.id.container));
        if (pair->id.device >= 0)
            container.total = model->gpus[pair->id.device].total_bytes;
        err = model_sum(model, GP_LIST_CONTAINERS, &container, pair);
    }
    return err;
}

static int model_sum_share(struct gp_model *model, const struct gp_row *share)
{
    struct gp_row owner = gp_model_row_empty(GP_ROW_OWNER, share->id.device);
    memcpy(owner.id.owner, share->id.owner, sizeof(owner.id.owner));
    if (share->id.device >= 0)
        owner.total = model->gpus[share->id.device].total_bytes;
    return model_sum(model, GP_LIST_OWNERS, &owner, share);
}

static int model_finish(struct gp_model *model, struct gp_row *group)
{
    struct gp_track *track = track_get(model, &group->id);
    if (!track)
        return -ENOMEM;
    if (!group->exact)
        track_peak(track, group);
    track_push(track, group->allocated);
    group->history = &track->history;
    if (group->id.kind != GP_ROW_DEVICE || group->id.device < 0)
        return 0;
    struct gp_plot_sample sample = {model->system->time_ns, group->allocated, gp_row_held(group),
                                    model->gpus[group->id.device].used_bytes};
    int err = track_plot(track, &sample);
    group->plot = track->plot;
    return err;
}

/* Memory that the driver takes for the rounding of the process's blocks: an estimate. */
static int64_t model_rounding(const struct gp_device_view *device)
{
    int64_t linear = device->totals_only ? -1 : device->wire.kinds[GP_KIND_LINEAR].current_bytes;
    return linear >= 0 && device->wire.linear_rounded_bytes > linear ? device->wire.linear_rounded_bytes - linear : 0;
}

/* Free memory of the pair's GPU: NVML's, or without it the size minus what all profiled processes hold,
 * with its rounding.  A simulated GPU belongs to its process alone.  -1: unknown. */
static int64_t model_free_bytes(const struct gp_model *model, const struct gp_row *pair)
{
    const struct gp_gpu *gpu = &model->gpus[pair->id.device];
    int64_t total = gpu->limit_bytes > 0 ? gpu->limit_bytes : gpu->total_bytes, used = gpu->used_bytes;
    bool alone = pair->process->simulated;
    if (alone)
        total = pair->total;
    for (int i = 0; i < model->lists[GP_LIST_PAIRS].count && gpu->used_bytes < 0; i++) {
        const struct gp_row *one = &model->lists[GP_LIST_PAIRS].rows[i];
        if (alone ? one != pair : one->id.device != pair->id.device || !one->device || gp_row_held(one) < 0)
            continue;
        used = used < 0 ? 0 : used;
        if (__builtin_add_overflow(used, gp_row_held(one), &used) ||
            __builtin_add_overflow(used, model_rounding(one->device), &used))
            return 0;
    }
    return total <= 0 || used < 0 ? -1 : total > used ? total - used : 0;
}

static void model_forecast(struct gp_model *model)
{
    for (int i = 0; i < model->lists[GP_LIST_PAIRS].count; i++) {
        struct gp_row *pair = &model->lists[GP_LIST_PAIRS].rows[i];
        if (!pair->outlook || !pair->device)
            continue;
        gp_outlook_find(pair->outlook, pair, model_free_bytes(model, pair));
        struct gp_process *process = &model->system->processes[pair->process - model->system->processes];
        process->devices[pair->device - process->devices].forecast = &pair->outlook->result;
    }
}

static int model_build(struct gp_model *model)
{
    const struct gp_agent *agent = &model->system->agent;
    int err = model_take_gpus(model);
    for (int i = 0; i < agent->sum_count && !err; i++)
        err = model_add_sum(model, &agent->sums[i]);
    for (int i = 0; i < model->system->process_count && !err; i++)
        err = model_add_process(model, &model->system->processes[i]);
    for (int i = 0; i < model->gpu_count && !err; i++) { /* every GPU gets a row, an idle one too, in order */
        struct gp_row device = gp_model_row_empty(GP_ROW_DEVICE, i);
        if (model_find_row(&model->lists[GP_LIST_DEVICES], &device.id))
            continue;
        device.total = model->gpus[i].total_bytes;
        if (model->states[GP_PROCESS_DAMAGED] + model->states[GP_PROCESS_UNKNOWN] == 0)
            device.allocated = device.reserved = device.allocated_peak = device.reserved_peak = 0;
        err = gp_model_row_add(&model->lists[GP_LIST_DEVICES], &device);
    }
    for (int i = 0; i < model->lists[GP_LIST_PAIRS].count && !err; i++)
        err = model_sum_pair(model, &model->lists[GP_LIST_PAIRS].rows[i]);
    for (int i = 0; i < model->lists[GP_LIST_SHARES].count && !err; i++)
        err = model_sum_share(model, &model->lists[GP_LIST_SHARES].rows[i]);
    for (int which = GP_LIST_PROCESSES; which < GP_LISTS && !err; which++) {
        for (int i = 0; i < model->lists[which].count && !err; i++)
            err = model_finish(model, &model->lists[which].rows[i]);
    }
    if (!err)
        model_forecast(model);
    return err;
}

int gp_model_update(struct gp_model *model, struct gp_system *system)
{
    model_clear(model);
    model->system = system;
    model->generation++;
    int err = model_build(model);
    if (err)
        model_clear(model);
    else
        track_sweep(model);
    return err;
}

bool gp_model_row_contains(const struct gp_row *group, const struct gp_row *pair)
{
    bool device = group->id.device == pair->id.device;
    bool process = group->id.pid == pair->id.pid && group->id.start_time == pair->id.start_time;
    switch (group->id.kind) {
    case GP_ROW_PAIR:
    case GP_ROW_SITE: /* a reset acts on its process and device */
        return device && process;
    case GP_ROW_SHARE:
        return gp_model_id_equal(&group->id, &pair->id);
    case GP_ROW_OWNER: /* a sum of shares: it contains no whole pair */
        return device && pair->id.kind == GP_ROW_SHARE && strcmp(group->id.owner, pair->id.owner) == 0;
    case GP_ROW_PROCESS:
        return process;
    case GP_ROW_DEVICE:
        return device;
    case GP_ROW_CONTAINER:
        return device && pair->process && pair->process->cgroup_id == group->id.cgroup_id &&
               (group->id.cgroup_id || strcmp(group->id.container, pair->process->container) == 0);
    }
    return false;
}

void gp_model_agent_lost(struct gp_model *model, uint64_t now_ns)
{
    struct gp_system *system = model->system;
    if (!system || !system->agent.present)
        return;
    system->agent.alive = false;
    system->agent.silent_ns = now_ns > system->time_ns ? now_ns - system->time_ns : 0;
    for (int i = 0; i < system->process_count; i++) {
        struct gp_process *process = &system->processes[i];
        if (!process->from_agent || process->state != GP_PROCESS_LIVE)
            continue;
        process->state = GP_PROCESS_STALE;
        model->states[GP_PROCESS_LIVE]--;
        model->states[GP_PROCESS_STALE]++;
    }
}
