/* SPDX-License-Identifier: MIT
 *
 * samples.c: the rows that the metrics show, before they are text (internal.h). Gauges are summed
 * again for every page, so their sums are those of the tables. Counters of "other" must not jump
 * when a container is folded or gets a row, so "other" sums up by how much each of its containers
 * increased since the page before.
 */
#include <agent/metrics/internal.h>
#include <base/clock.h>
#include <base/text.h>
#include <read/collect/collect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define GP_OTHER "other"

struct gp_counts {
    int64_t calls, frees, failures;
};

struct gp_seen_container { /* a container on a device, as of the last page */
    uint64_t cgroup_id;
    uint8_t uuid[16];
    bool shown;
    struct gp_counts last;
    struct gp_ahead *ahead; /* of a container with a row; else NULL */
};

struct gp_folded { /* counters of "other" on one device */
    uint8_t uuid[16];
    struct gp_counts sum;
};

struct gp_row_memory {
    enum gp_metrics_processes how;
    uint32_t series;
    struct gp_names names;
    uint32_t container_count, folded_count;
    struct gp_seen_container *containers; /* by cgroup and uuid */
    struct gp_folded *folded;
    struct gp_growing growing;
    struct gp_rows rows;
};

struct gp_row_memory *gp_samples_memory_new(const struct gp_metrics_options *options, uint32_t series)
{
    struct gp_row_memory *memory = calloc(1, sizeof(*memory));
    if (!memory)
        return NULL;
    memory->how = options->processes;
    memory->series = series;
    memory->names.root = options->root ? options->root : "";
    memory->names.off = options->no_names;
    return memory;
}

static void rows_clear(struct gp_rows *rows)
{
    free(rows->devices);
    free(rows->containers);
    free(rows->processes);
    free(rows->owners);
    free(rows->sites);
    rows->devices = NULL;
    rows->containers = NULL;
    rows->processes = NULL;
    rows->owners = NULL;
    rows->sites = NULL;
    rows->device_count = rows->container_count = rows->process_count = rows->owner_count = rows->site_count = 0;
    rows->folded_devices = rows->folded_containers = rows->folded_processes = rows->folded_owners = 0;
}

void gp_samples_memory_free(struct gp_row_memory *memory)
{
    if (!memory)
        return;
    rows_clear(&memory->rows);
    gp_names_fini(&memory->names);
    gp_growing_fini(&memory->growing);
    for (uint32_t i = 0; i < memory->container_count; i++)
        free(memory->containers[i].ahead);
    free(memory->containers);
    free(memory->folded);
    free(memory);
}

/* The numbers are claims of processes, so sums must not overflow. */
static void row_add(int64_t *sum, int64_t value)
{
    if (value > 0 && __builtin_add_overflow(*sum, value, sum))
        *sum = INT64_MAX;
}

static int64_t row_known(int64_t value)
{
    return value < 0 ? 0 : value;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

/* The map has the UUID's 16 bytes; NVML spells them "GPU-..." or "MIG-...", which is the spelling
 * other tools show. */
static void row_identify(struct gp_row_device *row, const struct gp_nvml_gpu *gpus, int gpu_count)
{
    char uuid[48];
    gp_text_uuid(row->uuid, sizeof(row->uuid), row->key);
    for (int i = 0; i < gpu_count && row->uuid[0]; i++) {
        gp_text_clean(uuid, sizeof(uuid), gpus[i].uuid, sizeof(gpus[i].uuid));
        if (strlen(uuid) < 4 || strcasecmp(uuid + 4, row->uuid + 4) != 0)
            continue;
        memcpy(row->uuid, uuid, sizeof(row->uuid));
        snprintf(row->gpu, sizeof(row->gpu), "%d", i);
        gp_text_clean(row->model, sizeof(row->model), gpus[i].name, sizeof(gpus[i].name));
        row->used_bytes = gpus[i].used_bytes;
        if (gpus[i].total_bytes > 0)
            row->total_bytes = gpus[i].total_bytes;
        if (gpus[i].used_bytes >= 0 && gpus[i].used_bytes <= row->total_bytes)
            row->free_bytes = row->total_bytes - gpus[i].used_bytes;
        return;
    }
}

static int row_device_order(const void *a, const void *b)
{
    const struct gp_row_device *x = a, *y = b;
    return memcmp(x->key, y->key, sizeof(x->key));
}

/* Order in which devices get rows: GPUs that NVML knows come before those that a process may have
 * invented. */
static int row_device_rank(const void *a, const void *b)
{
    const struct gp_row_device *x = a, *y = b;
    bool known_x = x->gpu[0] != '\0', known_y = y->gpu[0] != '\0';
    return known_x != known_y ? known_y - known_x : row_device_order(a, b);
}

static int row_key_order(const void *a, const void *b)
{
    return memcmp(a, b, 16);
}

/* value NULL: not in the device table, so all is unknown. */
static void row_device_fill(struct gp_row_device *row, const uint8_t key[16], const struct gp_map_sum *value)
{
    memcpy(row->key, key, sizeof(row->key));
    row->total_bytes = value && value->total_bytes > 0 ? value->total_bytes : -1;
    row->used_bytes = row->free_bytes = -1;
    row->allocated_bytes = value ? row_known(value->allocated_bytes) : -1;
    row->allocated_peak_bytes = value ? row_known(value->allocated_peak_bytes) : -1;
    row->reserved_bytes = value ? row_known(value->reserved_bytes) : -1;
    row->reserved_peak_bytes = value ? row_known(value->reserved_peak_bytes) : -1;
    row->asleep_bytes = value ? row_known(value->asleep_bytes) : -1;
    row->processes = value ? (int64_t)value->processes : -1;
    row->calls = value ? row_known(value->calls) : -1;
    row->frees = value ? row_known(value->frees) : -1;
    row->failures = value ? row_known(value->failures) : -1;
}

/* Adds row `more` to a row that stands for several; their common peak is unknown. */
static void row_device_fold(struct gp_row_device *into, const struct gp_row_device *more)
{
    row_add(&into->allocated_bytes, more->allocated_bytes);
    row_add(&into->reserved_bytes, more->reserved_bytes);
    row_add(&into->asleep_bytes, more->asleep_bytes);
    row_add(&into->processes, more->processes);
    row_add(&into->calls, more->calls);
    row_add(&into->frees, more->frees);
    row_add(&into->failures, more->failures);
    row_add(&into->total_bytes, more->total_bytes);
}

/* Collects the devices of all three tables without duplicates, ordered by key: a process's entry
 * may exist before its device's. NULL: out of memory. */
static struct gp_row_device *rows_gather(const struct gp_system_view *view, uint32_t *count)
{
    uint32_t all = view->device_count + view->container_count + view->process_count, kept = 0;
    uint8_t(*keys)[16] = calloc(all + 1u, sizeof(*keys));
    for (uint32_t i = 0; keys && i < all; i++) {
        uint32_t c = i - view->device_count;
        const uint8_t *from = i < view->device_count      ? view->devices[i].uuid
                              : c < view->container_count ? view->containers[c].uuid
                                                          : view->processes[c - view->container_count].value.uuid;
        memcpy(keys[i], from, 16);
    }
    if (keys)
        qsort(keys, all, sizeof(*keys), row_key_order);
    for (uint32_t i = 0; keys && i < all; i++) {
        if (kept == 0 || memcmp(keys[kept - 1], keys[i], 16) != 0)
            memmove(keys[kept++], keys[i], 16);
    }
    struct gp_row_device *rows = keys ? calloc(kept + 1u, sizeof(*rows)) : NULL;
    for (uint32_t i = 0; rows && i < kept; i++)
        row_device_fill(&rows[i], keys[i], NULL);
    for (uint32_t i = 0; rows && i < view->device_count; i++) {
        uint8_t(*key)[16] = bsearch(view->devices[i].uuid, keys, kept, sizeof(*keys), row_key_order);
        row_device_fill(&rows[key - keys], view->devices[i].uuid, &view->devices[i].value);
    }
    free(keys);
    *count = kept;
    return rows;
}

/* Devices take at most half of the room: 80 of them by default, more than any machine has. */
static bool rows_devices(struct gp_row_memory *memory, const struct gp_system_view *view,
                         const struct gp_nvml_gpu *gpus, int gpu_count, uint32_t room)
{
    struct gp_rows *rows = &memory->rows;
    uint32_t most = room / 2 / GP_ROW_DEVICE_SERIES, count = 0;
    struct gp_row_device *all = rows_gather(view, &count);
    if (!all)
        return false;
    for (uint32_t i = 0; i < count; i++)
        row_identify(&all[i], gpus, gpu_count);
    rows->devices = all;
    rows->device_count = count;
    if (count <= most)
        return true;
    struct gp_row_device other = {
        .uuid = GP_OTHER, .allocated_peak_bytes = -1, .reserved_peak_bytes = -1, .used_bytes = -1, .free_bytes = -1};
    memset(other.key, 0xff, sizeof(other.key));
    qsort(all, count, sizeof(*all), row_device_rank);
    for (uint32_t i = most - 1; i < count; i++)
        row_device_fold(&other, &all[i]);
    qsort(all, most - 1, sizeof(*all), row_device_order);
    all[most - 1] = other;
    rows->device_count = most;
    rows->folded_devices = count - (most - 1);
    return true;
}

/* The row of a device: its own, or the last one, which stands for all devices without a row. */
static const struct gp_row_device *rows_device(const struct gp_rows *rows, const uint8_t uuid[16])
{
    uint32_t low = 0, high = rows->device_count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (memcmp(rows->devices[middle].key, uuid, 16) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return memcmp(rows->devices[low].key, uuid, 16) == 0 ? &rows->devices[low] : &rows->devices[rows->device_count - 1];
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

struct gp_hint {
    uint64_t cgroup_id;
    pid_t pid;
};

static int hint_order(const void *a, const void *b)
{
    const struct gp_hint *x = a, *y = b;
    if (x->cgroup_id != y->cgroup_id)
        return x->cgroup_id < y->cgroup_id ? -1 : 1;
    return (x->pid < y->pid) - (x->pid > y->pid); /* a process sorts before the 0 of a container's own row */
}

static bool rows_names(struct gp_row_memory *memory, const struct gp_system_view *view)
{
    uint32_t all = view->process_count + view->container_count, count = 0;
    struct gp_hint *hints = calloc(all + 1u, sizeof(*hints));
    uint64_t *cgroups = calloc(all + 1u, sizeof(*cgroups));
    pid_t *pids = calloc(all + 1u, sizeof(*pids));
    bool done = hints && cgroups && pids;
    for (uint32_t i = 0; done && i < all; i++) {
        bool process = i < view->process_count;
        hints[i].cgroup_id =
            process ? view->processes[i].value.cgroup_id : view->containers[i - view->process_count].cgroup_id;
        hints[i].pid = process ? (pid_t)view->processes[i].key.tgid : 0;
    }
    if (done)
        qsort(hints, all, sizeof(*hints), hint_order);
    for (uint32_t i = 0; done && i < all; i++) {
        if (i > 0 && hints[i].cgroup_id == hints[i - 1].cgroup_id)
            continue;
        cgroups[count] = hints[i].cgroup_id;
        pids[count++] = hints[i].pid;
    }
    done = done && gp_names_update(&memory->names, cgroups, pids, count) == 0;
    free(hints);
    free(cgroups);
    free(pids);
    return done;
}

/* ---- containers -------------------------------------------------------------------------------------------------- */

static int seen_order(const void *a, const void *b)
{
    const struct gp_seen_container *x = a, *y = b;
    if (x->cgroup_id != y->cgroup_id)
        return x->cgroup_id < y->cgroup_id ? -1 : 1;
    return memcmp(x->uuid, y->uuid, sizeof(x->uuid));
}

struct gp_fold_candidate {
    const struct gp_system_sum *sum;
    struct gp_seen_container now;
    bool before; /* it had a row on the last page */
    int64_t bytes;
};

/* Order in which containers get rows: those that have one already, then the largest. */
static int candidate_order(const void *a, const void *b)
{
    const struct gp_fold_candidate *x = a, *y = b;
    if (x->before != y->before)
        return x->before ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return seen_order(&x->now, &y->now);
}

/* The increase of a counter; an entry that was created again restarts at 0. */
static int64_t row_step(int64_t now, int64_t last)
{
    return now >= last ? now - last : now;
}

static int folded_device(const void *key, const void *row)
{
    return memcmp(key, ((const struct gp_row_device *)row)->key, 16);
}

/* Drops counters of devices that have no row any more, since invented devices appear without end. A
 * device that returns restarts at 0 together with its containers. */
static void folded_tidy(struct gp_row_memory *memory)
{
    const struct gp_rows *rows = &memory->rows;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < memory->folded_count; i++) {
        if (rows->device_count &&
            bsearch(memory->folded[i].uuid, rows->devices, rows->device_count, sizeof(*rows->devices), folded_device))
            memory->folded[kept++] = memory->folded[i];
    }
    memory->folded_count = kept;
}

static struct gp_counts *folded_find(struct gp_row_memory *memory, const uint8_t uuid[16])
{
    for (uint32_t i = 0; i < memory->folded_count; i++) {
        if (memcmp(memory->folded[i].uuid, uuid, 16) == 0)
            return &memory->folded[i].sum;
    }
    struct gp_folded *more = realloc(memory->folded, (memory->folded_count + 1u) * sizeof(*more));
    if (!more)
        return NULL;
    memory->folded = more;
    memset(&more[memory->folded_count], 0, sizeof(*more));
    memcpy(more[memory->folded_count].uuid, uuid, 16);
    return &more[memory->folded_count++].sum;
}

static void row_container_show(struct gp_row_memory *memory, const struct gp_fold_candidate *one)
{
    struct gp_row_container *row = &memory->rows.containers[memory->rows.container_count++];
    const struct gp_name *name = gp_names_find(&memory->names, one->now.cgroup_id);
    const struct gp_map_sum *value = &one->sum->value;
    *row = (struct gp_row_container){
        .device = rows_device(&memory->rows, one->now.uuid),
        .namespace_ = name ? name->found.namespace_ : "",
        .pod = name ? name->found.pod : "",
        .container = name ? name->found.container : "",
        .id = name ? name->id : "",
        .cgroup_id = one->now.cgroup_id,
        .allocated_bytes = row_known(value->allocated_bytes),
        .allocated_peak_bytes = row_known(value->allocated_peak_bytes),
        .reserved_bytes = row_known(value->reserved_bytes),
        .reserved_peak_bytes = row_known(value->reserved_peak_bytes),
        .asleep_bytes = row_known(value->asleep_bytes),
        .processes = value->processes,
        .calls = one->now.last.calls,
        .frees = one->now.last.frees,
        .failures = one->now.last.failures,
        .headroom_bytes = -1,
        .seconds_to_oom = -1,
    };
}

/* What the kernel's limit of GPU memory leaves the container, if it has one limit; -1: none. The
 * kernel names a region as the driver does, so with limits for several GPUs it is not certain which
 * one is meant. */
static int64_t container_left(const char *root, const struct gp_system_view *view, uint64_t cgroup_id)
{
    struct gp_cgroup_limit limits[GP_CGROUP_LIMITS];
    for (uint32_t i = 0; i < view->process_count; i++) {
        if (view->processes[i].value.cgroup_id != cgroup_id)
            continue;
        if (gp_proc_cgroup_limits(root, (pid_t)view->processes[i].key.tgid, limits) != 1 || limits[0].limit_bytes < 0 ||
            limits[0].used_bytes < 0)
            return -1;
        int64_t left = limits[0].limit_bytes - limits[0].used_bytes;
        return left > 0 ? left : 0;
    }
    return -1;
}

/* Free memory of the device: NVML's, or without it what no profiled program has reserved. */
static void row_container_ahead(struct gp_row_memory *memory, const struct gp_system_view *view,
                                struct gp_fold_candidate *one)
{
    struct gp_row_container *row = &memory->rows.containers[memory->rows.container_count - 1];
    const struct gp_row_device *device = row->device;
    int64_t left = device->free_bytes;
    if (left < 0 && device->total_bytes > 0 && device->reserved_bytes >= 0)
        left = device->total_bytes > device->reserved_bytes ? device->total_bytes - device->reserved_bytes : 0;
    if (!one->now.ahead)
        one->now.ahead = gp_metrics_ahead_new();
    if (one->now.ahead)
        gp_metrics_ahead_look(one->now.ahead, &one->sum->value, gp_clock_ns(), left,
                              container_left(memory->names.root, view, one->now.cgroup_id), &row->headroom_bytes,
                              &row->seconds_to_oom);
}

/* The "other" row of a device, created when first needed. Rows of containers come before `first`. */
static struct gp_row_container *row_container_other(struct gp_row_memory *memory, const struct gp_row_device *device,
                                                    uint32_t first)
{
    struct gp_rows *rows = &memory->rows;
    for (uint32_t i = first; i < rows->container_count; i++) {
        if (rows->containers[i].device == device)
            return &rows->containers[i];
    }
    struct gp_row_container *row = &rows->containers[rows->container_count++];
    *row = (struct gp_row_container){.device = device,
                                     .namespace_ = "",
                                     .pod = "",
                                     .container = GP_OTHER,
                                     .id = GP_OTHER,
                                     .allocated_peak_bytes = -1,
                                     .reserved_peak_bytes = -1,
                                     .headroom_bytes = -1,
                                     .seconds_to_oom = -1};
    return row;
}

/* Adds this container's increase since the page before to the counters of "other". False: out of
 * memory. */
static bool row_container_fold(struct gp_row_memory *memory, const struct gp_fold_candidate *one,
                               const struct gp_counts *last, uint32_t first)
{
    const struct gp_row_device *device = rows_device(&memory->rows, one->now.uuid);
    struct gp_row_container *row = row_container_other(memory, device, first);
    struct gp_counts *sum = folded_find(memory, device->key);
    if (!sum)
        return false;
    row_add(&sum->calls, row_step(one->now.last.calls, last->calls));
    row_add(&sum->frees, row_step(one->now.last.frees, last->frees));
    row_add(&sum->failures, row_step(one->now.last.failures, last->failures));
    row_add(&row->allocated_bytes, one->sum->value.allocated_bytes);
    row_add(&row->reserved_bytes, one->sum->value.reserved_bytes);
    row_add(&row->asleep_bytes, one->sum->value.asleep_bytes);
    row_add(&row->processes, one->sum->value.processes);
    row->calls = sum->calls;
    row->frees = sum->frees;
    row->failures = sum->failures;
    memory->rows.folded_containers++;
    return true;
}

/* Fills candidates from the view, in the order in which they get rows. */
static struct gp_fold_candidate *rows_candidates(const struct gp_row_memory *memory, const struct gp_system_view *view)
{
    struct gp_fold_candidate *all = calloc(view->container_count + 1u, sizeof(*all));
    for (uint32_t i = 0; all && i < view->container_count; i++) {
        const struct gp_map_sum *value = &view->containers[i].value;
        all[i].sum = &view->containers[i];
        all[i].now.cgroup_id = view->containers[i].cgroup_id;
        memcpy(all[i].now.uuid, view->containers[i].uuid, 16);
        all[i].now.last =
            (struct gp_counts){row_known(value->calls), row_known(value->frees), row_known(value->failures)};
        all[i].bytes = value->reserved_bytes > value->allocated_bytes ? value->reserved_bytes : value->allocated_bytes;
        const struct gp_seen_container *seen = memory->container_count
                                                   ? bsearch(&all[i].now, memory->containers, memory->container_count,
                                                             sizeof(*memory->containers), seen_order)
                                                   : NULL;
        all[i].before = seen && seen->shown;
        all[i].now.ahead = seen ? seen->ahead : NULL;
    }
    if (all)
        qsort(all, view->container_count, sizeof(*all), candidate_order);
    return all;
}

/* Remembers which containers this page showed. */
static bool rows_remember(struct gp_row_memory *memory, const struct gp_fold_candidate *all, uint32_t count)
{
    struct gp_seen_container *seen = calloc(count + 1u, sizeof(*seen));
    if (!seen)
        return false;
    for (uint32_t i = 0; i < count; i++)
        seen[i] = all[i].now;
    qsort(seen, count, sizeof(*seen), seen_order);
    for (uint32_t i = 0; i < memory->container_count; i++) { /* of containers that are gone */
        if (!bsearch(&memory->containers[i], seen, count, sizeof(*seen), seen_order))
            free(memory->containers[i].ahead);
    }
    free(memory->containers);
    memory->containers = seen;
    memory->container_count = count;
    return true;
}

/* most: rows that may be shown, without "other" rows. */
static bool rows_containers(struct gp_row_memory *memory, const struct gp_system_view *view, uint32_t most)
{
    static const struct gp_counts nothing;
    struct gp_fold_candidate *all = rows_candidates(memory, view);
    uint32_t shown = view->container_count < most ? view->container_count : most;
    memory->rows.containers = calloc(shown + memory->rows.device_count + 2u, sizeof(*memory->rows.containers));
    bool done = all && memory->rows.containers;
    for (uint32_t i = 0; done && i < view->container_count; i++) {
        all[i].now.shown = i < shown;
        if (all[i].now.shown) {
            row_container_show(memory, &all[i]);
            row_container_ahead(memory, view, &all[i]);
            continue;
        }
        const struct gp_seen_container *seen = memory->container_count
                                                   ? bsearch(&all[i].now, memory->containers, memory->container_count,
                                                             sizeof(*memory->containers), seen_order)
                                                   : NULL;
        done = row_container_fold(memory, &all[i], seen ? &seen->last : &nothing, shown);
    }
    done = done && rows_remember(memory, all, view->container_count);
    free(all);
    return done;
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

static int row_process_labels(const struct gp_row_process *x, const struct gp_row_process *y)
{
    int order = strcmp(x->device->uuid, y->device->uuid);
    order = order ? order : strcmp(x->namespace_, y->namespace_);
    order = order ? order : strcmp(x->pod, y->pod);
    order = order ? order : strcmp(x->container, y->container);
    return order ? order : gp_row_who_order(&x->who, &y->who);
}

static int row_process_by_labels(const void *a, const void *b)
{
    return row_process_labels(a, b);
}

static int64_t row_process_bytes(const struct gp_row_process *row)
{
    return row->reserved_bytes > row->allocated_bytes ? row->reserved_bytes : row->allocated_bytes;
}

static int row_process_by_bytes(const void *a, const void *b)
{
    int64_t x = row_process_bytes(a), y = row_process_bytes(b);
    return x != y ? (x > y ? -1 : 1) : row_process_labels(a, b);
}

static void row_process_fill(const struct gp_row_memory *memory, struct gp_row_process *row,
                             const struct gp_system_process *process)
{
    const struct gp_name *name = gp_names_find(&memory->names, process->value.cgroup_id);
    bool one = memory->how == GP_METRICS_PROCESSES_PID;
    *row = (struct gp_row_process){
        .device = rows_device(&memory->rows, process->value.uuid),
        .namespace_ = name ? name->found.namespace_ : "",
        .pod = name ? name->found.pod : "",
        .container = name ? name->found.container : "",
        .allocated_bytes = row_known(process->value.allocated_bytes),
        .allocated_peak_bytes = one ? row_known(process->value.allocated_peak_bytes) : -1,
        .reserved_bytes = row_known(process->value.reserved_bytes),
        .reserved_peak_bytes = one ? row_known(process->value.reserved_peak_bytes) : -1,
        .asleep_bytes = row_known(process->value.asleep_bytes),
        .who = gp_row_who(memory->how, process),
    };
}

/* Adds `more` to `into`. Peaks become unknown, since a sum of two peaks is not a peak. */
static void row_process_add(struct gp_row_process *into, const struct gp_row_process *more)
{
    row_add(&into->allocated_bytes, more->allocated_bytes);
    row_add(&into->reserved_bytes, more->reserved_bytes);
    row_add(&into->asleep_bytes, more->asleep_bytes);
    into->allocated_peak_bytes = into->reserved_peak_bytes = -1;
}

/* Merges rows with the same labels (in mode comm; one GPU under two numbers of a process; a pod's
 * restarted container). Returns the rows left. */
static uint32_t row_process_merge(struct gp_row_process *rows, uint32_t count)
{
    uint32_t kept = 0;
    qsort(rows, count, sizeof(*rows), row_process_by_labels);
    for (uint32_t i = 0; i < count; i++) {
        if (kept > 0 && row_process_labels(&rows[kept - 1], &rows[i]) == 0)
            row_process_add(&rows[kept - 1], &rows[i]);
        else
            rows[kept++] = rows[i];
    }
    return kept;
}

/* The largest get rows, and the rest one row per device. A process named "other" without a
 * container has the labels of that row and is merged with it. */
static bool rows_processes(struct gp_row_memory *memory, const struct gp_system_view *view, uint32_t most)
{
    struct gp_rows *rows = &memory->rows;
    if (memory->how == GP_METRICS_PROCESSES_OFF)
        return true;
    struct gp_row_process *all = calloc(view->process_count + 1u, sizeof(*all));
    if (!all)
        return false;
    for (uint32_t i = 0; i < view->process_count; i++)
        row_process_fill(memory, &all[i], &view->processes[i]);
    uint32_t count = row_process_merge(all, view->process_count);
    if (count > most) {
        qsort(all, count, sizeof(*all), row_process_by_bytes);
        rows->folded_processes = count - most;
        for (uint32_t i = most; i < count; i++) {
            all[i].namespace_ = all[i].pod = "";
            all[i].container = GP_OTHER;
            all[i].who = (struct gp_row_who){.comm = GP_OTHER};
            all[i].allocated_peak_bytes = all[i].reserved_peak_bytes = -1;
        }
        count = row_process_merge(all, count);
    }
    rows->processes = all;
    rows->process_count = count;
    return true;
}

/* ---- all rows ---------------------------------------------------------------------------------------------------- */

const struct gp_rows *gp_samples_make(struct gp_row_memory *memory, const struct gp_system_view *view,
                                      const struct gp_nvml_gpu *gpus, int gpu_count, const struct gp_system *sessions)
{
    struct gp_rows *rows = &memory->rows;
    bool with_processes = memory->how != GP_METRICS_PROCESSES_OFF;
    uint32_t room = memory->series;
    rows_clear(rows);
    if (!rows_names(memory, view) || !rows_devices(memory, view, gpus, gpu_count, room))
        return NULL;
    folded_tidy(memory);
    room -= rows->device_count * GP_ROW_DEVICE_SERIES;
    /* Each device may need three "other" rows, and so may a device that is in no table. */
    uint32_t others = (rows->device_count + 1) * GP_ROW_OWNER_SERIES * (sessions != NULL);
    uint32_t reserve = others + (rows->device_count + 1) *
                                    ((GP_ROW_CONTAINER_SERIES - 2) + (with_processes ? GP_ROW_PROCESS_SERIES - 2 : 0));
    room = room > reserve ? room - reserve : 0;
    uint32_t containers = room / GP_ROW_CONTAINER_SERIES / (with_processes ? 2 : 1);
    if (!rows_containers(memory, view, containers))
        return NULL;
    uint32_t shown = view->container_count < containers ? view->container_count : containers;
    room -= shown * GP_ROW_CONTAINER_SERIES;
    uint32_t processes = room / GP_ROW_PROCESS_SERIES;
    if (!rows_processes(memory, view, processes))
        return NULL;
    room -= (rows->process_count < processes ? rows->process_count : processes) * GP_ROW_PROCESS_SERIES;
    if (sessions && !gp_growing_make(&memory->growing, rows, memory->how, view, room))
        return NULL;
    room -= rows->site_count;
    if (sessions && !gp_owners_make(rows, &memory->names, memory->how, view, sessions, room / GP_ROW_OWNER_SERIES))
        return NULL;
    return rows;
}
