/* SPDX-License-Identifier: MIT
 * owners.c: rows of owners of memory, from the sessions of processes (internal.h). */
#include <agent/metrics/internal.h>

#include <base/text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWNERS_OTHER "other"

struct gp_row_who gp_row_who(enum gp_metrics_processes how, const struct gp_system_process *process)
{
    struct gp_row_who who = {.pid = ""};
    if (how == GP_METRICS_PROCESSES_PID)
        snprintf(who.pid, sizeof(who.pid), "%u", process->key.tgid);
    if (how == GP_METRICS_PROCESSES_OFF)
        return who;
    gp_text_clean(who.comm, sizeof(who.comm), process->comm, sizeof(process->comm));
    memcpy(who.ray_job, process->ray_job, sizeof(who.ray_job));
    return who;
}

int gp_row_who_order(const struct gp_row_who *a, const struct gp_row_who *b)
{
    int order = strcmp(a->pid, b->pid);
    order = order ? order : strcmp(a->comm, b->comm);
    return order ? order : strcmp(a->ray_job, b->ray_job);
}

static int owners_by_labels(const void *a, const void *b)
{
    const struct gp_row_owner *x = a, *y = b;
    int order = strcmp(x->device->uuid, y->device->uuid);
    order = order ? order : strcmp(x->namespace_, y->namespace_);
    order = order ? order : strcmp(x->pod, y->pod);
    order = order ? order : strcmp(x->container, y->container);
    order = order ? order : gp_row_who_order(&x->who, &y->who);
    return order ? order : strcmp(x->owner, y->owner);
}

static int owners_by_bytes(const void *a, const void *b)
{
    const struct gp_row_owner *x = a, *y = b;
    if (x->reserved_bytes != y->reserved_bytes)
        return x->reserved_bytes > y->reserved_bytes ? -1 : 1;
    return owners_by_labels(a, b);
}

/* The numbers are claims of processes, so sums must not overflow. */
static void owners_add(int64_t *sum, int64_t value)
{
    if (value > 0 && __builtin_add_overflow(*sum, value, sum))
        *sum = INT64_MAX;
}

static uint32_t owners_merge(struct gp_row_owner *rows, uint32_t count)
{
    uint32_t kept = 0;
    qsort(rows, count, sizeof(*rows), owners_by_labels);
    for (uint32_t i = 0; i < count; i++) {
        if (kept > 0 && owners_by_labels(&rows[kept - 1], &rows[i]) == 0) {
            owners_add(&rows[kept - 1].allocated_bytes, rows[i].allocated_bytes);
            owners_add(&rows[kept - 1].reserved_bytes, rows[i].reserved_bytes);
            owners_add(&rows[kept - 1].asleep_bytes, rows[i].asleep_bytes);
        } else {
            rows[kept++] = rows[i];
        }
    }
    return kept;
}

/* The device's row, or the last one, which stands for all devices without a row. */
static const struct gp_row_device *owners_device(const struct gp_rows *rows, const uint8_t uuid[16])
{
    for (uint32_t i = 0; i + 1 < rows->device_count; i++) {
        if (memcmp(rows->devices[i].key, uuid, 16) == 0)
            return &rows->devices[i];
    }
    return &rows->devices[rows->device_count - 1];
}

static const struct gp_device_view *owners_session(const struct gp_system *sessions,
                                                   const struct gp_map_process_key *key,
                                                   const struct gp_process **process)
{
    for (int i = 0; i < sessions->process_count; i++) {
        *process = &sessions->processes[i];
        if ((uint32_t)(*process)->pid != key->tgid ||
            ((*process)->state != GP_PROCESS_LIVE && (*process)->state != GP_PROCESS_STALE))
            continue;
        for (int d = 0; d < (*process)->device_count; d++) {
            if ((*process)->devices[d].index == (int)key->device)
                return &(*process)->devices[d];
        }
    }
    return NULL;
}

/* Adds the owners of one process on one device to `all`; returns the new count. */
static uint32_t owners_take(struct gp_row_owner *all, uint32_t count, const struct gp_row_owner *labels,
                            const struct gp_process *process, const struct gp_device_view *device)
{
    struct gp_owner_view views[GP_OWNER_VIEWS];
    int owners = gp_peer_owners_of(process, device, views);
    for (int i = 0; i < owners; i++) {
        struct gp_row_owner *row = &all[count++];
        *row = *labels;
        memcpy(row->owner, views[i].owner, sizeof(row->owner));
        owners_add(&row->allocated_bytes, views[i].value.allocated_bytes);
        owners_add(&row->reserved_bytes, views[i].value.reserved_bytes);
        owners_add(&row->asleep_bytes, gp_owner_asleep(device, row->owner));
    }
    return count;
}

static uint32_t owners_gather(const struct gp_rows *rows, struct gp_row_owner *all, const struct gp_names *names,
                              enum gp_metrics_processes how, const struct gp_system_view *view,
                              const struct gp_system *sessions)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct gp_system_process *one = &view->processes[i];
        const struct gp_process *process = NULL;
        const struct gp_device_view *device = owners_session(sessions, &one->key, &process);
        const struct gp_name *name = gp_names_find(names, one->value.cgroup_id);
        if (!device)
            continue;
        struct gp_row_owner labels = {
            .device = owners_device(rows, one->value.uuid),
            .namespace_ = name ? name->found.namespace_ : "",
            .pod = name ? name->found.pod : "",
            .container = name ? name->found.container : "",
            .who = gp_row_who(how, one),
        };
        count = owners_take(all, count, &labels, process, device);
    }
    return count;
}

bool gp_owners_make(struct gp_rows *rows, const struct gp_names *names, enum gp_metrics_processes how,
                    const struct gp_system_view *view, const struct gp_system *sessions, uint32_t most)
{
    struct gp_row_owner *all = calloc((size_t)view->process_count * GP_OWNER_VIEWS + 1, sizeof(*all));
    if (!all)
        return false;
    uint32_t count = rows->device_count ? owners_gather(rows, all, names, how, view, sessions) : 0;
    count = owners_merge(all, count);
    if (count > most) {
        qsort(all, count, sizeof(*all), owners_by_bytes);
        rows->folded_owners = count - most;
        for (uint32_t i = most; i < count; i++) {
            all[i].namespace_ = all[i].pod = "";
            all[i].container = OWNERS_OTHER;
            all[i].who = (struct gp_row_who){.comm = OWNERS_OTHER};
            if (how == GP_METRICS_PROCESSES_OFF)
                all[i].who.comm[0] = '\0';
            strcpy(all[i].owner, OWNERS_OTHER);
        }
        count = owners_merge(all, count);
    }
    rows->owners = all;
    rows->owner_count = count;
    return true;
}
