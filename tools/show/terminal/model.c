/* SPDX-License-Identifier: MIT
 * model.c: see model.h.  One sample becomes pairs (process, device).  Pairs are summed into
 * processes, GPUs and containers.  Peaks are never summed, because processes peak at different
 * times.
 */
#include <show/terminal/model.h>

#include <errno.h>
#include <math.h>
#include <read/common/hash.h>
#include <show/terminal/outlook.h>
#include <show/terminal/track.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    free(model->numbers);
    gp_track_free_all(model);
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

/* The same in every sample: of its UUID, else of its index, which is NVML's then. */
static uint64_t model_gpu_key(const struct gp_model *model, int device)
{
    if (device < 0)
        return 0;
    return model->gpus[device].uuid[0] ? gp_hash_of_text(model->gpus[device].uuid) | 1 : 2ull * (uint64_t)(device + 1);
}

static int model_add_gpu(struct gp_model *model, const struct gp_device_view *device, int index)
{
    struct gp_gpu *gpus = realloc(model->gpus, (size_t)(model->gpu_count + 1) * sizeof(*gpus));
    if (!gpus)
        return GP_MODEL_NO_DEVICE;
    model->gpus = gpus;
    struct gp_gpu *gpu = &gpus[model->gpu_count];
    *gpu = (struct gp_gpu){.total_bytes = device->total_bytes, .used_bytes = -1, .index = index};
    memcpy(gpu->uuid, device->uuid, sizeof(gpu->uuid));
    memcpy(gpu->name, device->name, sizeof(gpu->name));
    return model->gpu_count++;
}

/* Index in gpus[]; adds the device if it is not there yet. */
static int model_gpu(struct gp_model *model, const struct gp_device_view *device)
{
    if (device->index == (int)GP_WIRE_HOST)
        return GP_MODEL_HOST;
    int found = model_find_gpu(model, device);
    if (found >= 0)
        return found;
    return model_add_gpu(model, device, model_free_index(model, device->ordinal < 0 ? 0 : device->ordinal));
}

/* The device that the number is of, if a process of this sample reports it. */
static const struct gp_device_view *model_numbered(const struct gp_system *system, uint64_t gpu)
{
    for (int p = 0; p < system->process_count; p++) {
        const struct gp_process *process = &system->processes[p];
        for (int d = 0; d < process->device_count; d++) {
            const struct gp_device_view *view = &process->devices[d];
            if (view->index != (int)GP_WIRE_HOST && view->uuid[0] && (gp_hash_of_text(view->uuid) | 1) == gpu)
                return view;
        }
    }
    return NULL;
}

/* First the GPUs of the system, then, in the order of their numbers, those that were there in the last sample:
 * a process that ends must not move the GPUs of the others. */
static int model_take_gpus(struct gp_model *model)
{
    const struct gp_system *system = model->system;
    model->gpus = calloc((size_t)system->gpu_count + 1, sizeof(*model->gpus));
    if (!model->gpus)
        return -ENOMEM;
    if (system->gpu_count)
        memcpy(model->gpus, system->gpus, (size_t)system->gpu_count * sizeof(*model->gpus));
    model->gpu_count = system->gpu_count;
    for (int i = 0; i < model->number_count; i++) {
        const struct gp_device_view *view = model_numbered(system, model->numbers[i].gpu);
        if (view && model_find_gpu(model, view) < 0 && model_add_gpu(model, view, model->numbers[i].index) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int model_number_order(const void *one, const void *other)
{
    const struct gp_gpu_number *a = one, *b = other;
    return (a->index > b->index) - (a->index < b->index);
}

static int model_keep_numbers(struct gp_model *model)
{
    struct gp_gpu_number *numbers = realloc(model->numbers, ((size_t)model->gpu_count + 1) * sizeof(*numbers));
    if (!numbers)
        return -ENOMEM;
    model->numbers = numbers;
    model->number_count = 0;
    for (int i = model->system->gpu_count; i < model->gpu_count; i++)
        if (model->gpus[i].uuid[0])
            numbers[model->number_count++] = (struct gp_gpu_number){model_gpu_key(model, i), model->gpus[i].index};
    if (model->number_count)
        qsort(numbers, (size_t)model->number_count, sizeof(*numbers), model_number_order);
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

static struct gp_row model_row(const struct gp_model *model, enum gp_row_kind kind, int device)
{
    struct gp_row row = gp_model_row_empty(kind, device);
    row.id.gpu = model_gpu_key(model, device);
    return row;
}

static struct gp_row row_of(const struct gp_model *model, const struct gp_process *process,
                            const struct gp_device_view *view, int device)
{
    struct gp_row row = model_row(model, GP_ROW_PAIR, device);
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
    struct gp_track *track = gp_track_get(model, &row->id);
    if (!track)
        return -ENOMEM;
    gp_track_rate(track, row, model->system->time_ns);
    gp_track_push(track, row->allocated);
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
        struct gp_row row = row_of(model, process, view, device);
        devices += device != GP_MODEL_HOST;
        err = model_add_pair(model, &row);
        if (!err)
            err = model_add_shares(model, &row);
    }
    if (!devices && !err) { /* a profiled process gets a row even if it has used no device */
        struct gp_row row = row_of(model, process, NULL, GP_MODEL_NO_DEVICE);
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
    struct gp_row row = model_row(model, sum->cgroup_id ? GP_ROW_CONTAINER : GP_ROW_DEVICE, device);
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
    struct gp_track *track = gp_track_get(model, &row.id);
    if (!track)
        return -ENOMEM;
    gp_track_rate_of(track, &row, model->system->time_ns, sum->calls, sum->frees);
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
        struct gp_row device = model_row(model, GP_ROW_DEVICE, pair->id.device);
        err = model_sum(model, GP_LIST_DEVICES, &device, pair);
    }
    if (!err) {
        struct gp_row container = model_row(model, GP_ROW_CONTAINER, pair->id.device);
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
    struct gp_row owner = model_row(model, GP_ROW_OWNER, share->id.device);
    memcpy(owner.id.owner, share->id.owner, sizeof(owner.id.owner));
    if (share->id.device >= 0)
        owner.total = model->gpus[share->id.device].total_bytes;
    return model_sum(model, GP_LIST_OWNERS, &owner, share);
}

static int model_finish(struct gp_model *model, struct gp_row *group)
{
    struct gp_track *track = gp_track_get(model, &group->id);
    if (!track)
        return -ENOMEM;
    if (!group->exact)
        gp_track_peak(track, group);
    gp_track_push(track, group->allocated);
    group->history = &track->history;
    if (group->id.kind != GP_ROW_DEVICE || group->id.device < 0)
        return 0;
    struct gp_plot_sample sample = {model->system->time_ns, group->allocated, gp_row_held(group),
                                    model->gpus[group->id.device].used_bytes};
    int err = gp_track_plot(track, &sample);
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
        struct gp_row device = model_row(model, GP_ROW_DEVICE, i);
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
        err = model_keep_numbers(model);
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
        gp_track_sweep(model);
    return err;
}

bool gp_model_row_contains(const struct gp_row *group, const struct gp_row *pair)
{
    bool device = gp_model_same_gpu(&group->id, &pair->id);
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
