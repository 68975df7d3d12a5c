/* SPDX-License-Identifier: MIT
 *
 * sample.c: see maps.h. Identity comes from the kernel by way of the maps; /proc adds the command
 * line if the same process (pid and start time) still exists. Bytes below zero come from a damaged
 * map and count as unknown.
 */
#include <agent/maps/maps.h>
#include <base/clock.h>
#include <base/compiler.h>
#include <base/text.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <limits.h>
#include <read/collect/collect.h>
#include <read/collect/procfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ==== names of GPUs =============================================================================================== */

#define GP_GPU_FILES "/proc/driver/nvidia/gpus"

static struct gp_gpu_name {
    char uuid[sizeof(((struct gp_gpu *)0)->uuid)], name[sizeof(((struct gp_gpu *)0)->name)];
} names[GP_MAPS_DEVICES];
static int name_count;
static bool files_read;
static unsigned turn; /* which process is asked next: the first one may be unreadable */

static const char *name_find(const char *uuid)
{
    for (int i = 0; i < name_count; i++) {
        if (strcmp(names[i].uuid, uuid) == 0)
            return names[i].name;
    }
    return NULL;
}

static void name_add(const char *uuid, const char *name)
{
    if (!uuid[0] || !name[0] || name_find(uuid) || name_count == (int)GP_COUNT(names))
        return;
    struct gp_gpu_name *one = &names[name_count++];
    snprintf(one->uuid, sizeof(one->uuid), "%s", uuid);
    snprintf(one->name, sizeof(one->name), "%s", name);
}

/* The value of a line "Model: \t\t NVIDIA H200"; NULL: the line has another name. */
static const char *name_value(char *line, const char *label)
{
    size_t length = strlen(label);
    if (strncmp(line, label, length) != 0)
        return NULL;
    line[strcspn(line, "\r\n")] = '\0';
    return line + length + strspn(line + length, " \t");
}

static void name_read_file(const char *path)
{
    char line[256], uuid[sizeof(names[0].uuid)] = "", name[sizeof(names[0].name)] = "";
    const char *value;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        if ((value = name_value(line, "Model:")))
            snprintf(name, sizeof(name), "%.*s", (int)sizeof(name) - 1, value);
        else if ((value = name_value(line, "GPU UUID:")))
            snprintf(uuid, sizeof(uuid), "%.*s", (int)sizeof(uuid) - 1, value);
    }
    if (file)
        fclose(file);
    name_add(uuid, name);
}

static void name_read_files(void)
{
    char path[512];
    struct dirent *entry;
    DIR *folder = opendir(GP_GPU_FILES);
    while (folder && (entry = readdir(folder))) {
        snprintf(path, sizeof(path), GP_GPU_FILES "/%s/information", entry->d_name);
        if (entry->d_name[0] != '.')
            name_read_file(path);
    }
    if (folder)
        closedir(folder);
}

static void name_learn(const struct gp_system *system)
{
    for (int i = 0; i < system->process_count; i++) {
        for (int d = 0; d < system->processes[i].device_count; d++)
            name_add(system->processes[i].devices[d].uuid, system->processes[i].devices[d].name);
    }
}

/* Reads the session of one of the processes that use the GPU; another one with each call. */
static void name_ask(const struct gp_system *system, const char *uuid)
{
    pid_t users[64];
    unsigned count = 0;
    for (int i = 0; i < system->process_count && count < GP_COUNT(users); i++) {
        const struct gp_process *process = &system->processes[i];
        for (int d = 0; d < process->device_count && process->from_agent && !process->closed; d++) {
            if (strcmp(process->devices[d].uuid, uuid) == 0) {
                users[count++] = process->pid;
                break;
            }
        }
    }
    if (!count)
        return;
    struct gp_collect_options options = {.pids = &users[turn++ % count], .pid_count = 1};
    struct gp_system *asked;
    if (gp_collect(&options, &asked) != 0)
        return;
    name_learn(asked);
    gp_system_free(asked);
}

/* Fills in the names of the system's GPUs that have none, as far as they are known: from NVIDIA's
 * files in /proc, or from the session of a process that uses the GPU.  Reads at most one session for
 * each GPU whose name is not known. */
static void gpu_names(struct gp_system *system)
{
    if (!files_read)
        name_read_files();
    files_read = true;
    name_learn(system);
    for (int i = 0; i < system->gpu_count; i++) {
        struct gp_gpu *gpu = &system->gpus[i];
        if (gpu->name[0] || !gpu->uuid[0])
            continue;
        if (!name_find(gpu->uuid))
            name_ask(system, gpu->uuid);
        const char *name = name_find(gpu->uuid);
        if (name)
            snprintf(gpu->name, sizeof(gpu->name), "%s", name);
    }
}

/* ==== the machine ================================================================================================= */

static int64_t sample_bytes(int64_t bytes)
{
    return bytes < 0 ? -1 : bytes;
}

static int sample_count(uint64_t count)
{
    return count > INT_MAX ? INT_MAX : (int)count;
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static void sample_sum(struct gp_sum *sum, const struct gp_system_sum *from)
{
    const struct gp_map_sum *v = &from->value;
    *sum = (struct gp_sum){.cgroup_id = from->cgroup_id,
                           .total_bytes = v->total_bytes > 0 ? v->total_bytes : -1,
                           .allocated = sample_bytes(v->allocated_bytes),
                           .allocated_peak = sample_bytes(v->allocated_peak_bytes),
                           .reserved = sample_bytes(v->reserved_bytes),
                           .reserved_peak = sample_bytes(v->reserved_peak_bytes),
                           .asleep = sample_bytes(v->asleep_bytes),
                           .calls = sample_bytes(v->calls),
                           .frees = sample_bytes(v->frees),
                           .processes = sample_count(v->processes)};
    gp_text_uuid(sum->uuid, sizeof(sum->uuid), from->uuid);
    snprintf(sum->container, sizeof(sum->container), "%s", from->name);
}

static int sample_sums(struct gp_agent *agent, const struct gp_system_view *view)
{
    agent->sums = calloc((size_t)view->container_count + view->device_count + 1, sizeof(*agent->sums));
    if (!agent->sums)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->device_count; i++)
        sample_sum(&agent->sums[agent->sum_count++], &view->devices[i]);
    for (uint32_t i = 0; i < view->container_count; i++)
        sample_sum(&agent->sums[agent->sum_count++], &view->containers[i]);
    return 0;
}

static int sample_agent(struct gp_system *system, const struct gp_system_view *view)
{
    struct gp_agent *agent = &system->agent;
    const struct gp_map_meta *meta = &view->meta;
    agent->present = true;
    agent->alive = view->alive;
    agent->processes_hidden = !view->processes_seen;
    agent->pid = (int)(meta->agent_pid & INT_MAX);
    agent->silent_ns = system->time_ns > meta->heartbeat_ns ? system->time_ns - meta->heartbeat_ns : 0;
    agent->refused = meta->refused_batches;
    agent->map_full = meta->map_full;
    agent->dropped = meta->ring_dropped;
    agent->gaps = meta->gap_batches;
    return sample_sums(agent, view);
}

static const struct gp_sum *sample_container(const struct gp_agent *agent, uint64_t cgroup_id)
{
    for (int i = 0; cgroup_id && i < agent->sum_count; i++) {
        if (agent->sums[i].cgroup_id == cgroup_id)
            return &agent->sums[i];
    }
    return NULL;
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

static int sample_order(const void *left, const void *right)
{
    const struct gp_system_process *a = left, *b = right;
    if (a->key.tgid != b->key.tgid)
        return a->key.tgid < b->key.tgid ? -1 : 1;
    if (a->value.start_ns != b->value.start_ns)
        return a->value.start_ns < b->value.start_ns ? -1 : 1;
    return a->key.device < b->key.device ? -1 : a->key.device > b->key.device;
}

static bool sample_is_same_process(const struct gp_system_process *a, const struct gp_system_process *b)
{
    return a->key.tgid == b->key.tgid && a->value.start_ns == b->value.start_ns;
}

/* /proc counts in ticks of 10 ms on every architecture that NVIDIA's driver supports. */
static uint64_t sample_ticks(uint64_t start_ns)
{
    long hz = sysconf(_SC_CLK_TCK);
    return start_ns / (1000000000ull / (uint64_t)(hz > 0 ? hz : 100));
}

static void sample_device(struct gp_device_view *device, const struct gp_system_process *from)
{
    const struct gp_map_process *v = &from->value;
    struct gp_wire_value(*stats)[GP_POOLS] = device->wire.stats;
    device->index = device->ordinal = from->key.device < GP_WIRE_GPUS ? (int)from->key.device : 0;
    device->totals_only = true;
    gp_text_uuid(device->uuid, sizeof(device->uuid), v->uuid);
    device->identified = device->uuid[0] != '\0';
    device->total_bytes = v->total_bytes > 0 ? v->total_bytes : -1;
    device->untracked_bytes = -1;
    stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current = sample_bytes(v->allocated_bytes);
    stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].peak = sample_bytes(v->allocated_peak_bytes);
    stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current = sample_bytes(v->reserved_bytes);
    stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].peak = sample_bytes(v->reserved_peak_bytes);
    device->wire.asleep_bytes.current = sample_bytes(v->asleep_bytes);
    device->wire.asleep_bytes.peak = sample_bytes(v->asleep_peak_bytes);
    stats[GP_STAT_ALLOCATION][GP_POOL_ALL].allocated = sample_bytes(v->calls);
    stats[GP_STAT_ALLOCATION][GP_POOL_ALL].freed = sample_bytes(v->frees);
}

/* Adds what /proc knows of the same process. Without an agent, ended processes stay in the tables. */
static void sample_describe(const struct gp_system *system, struct gp_process *process, bool host_pids)
{
    uint64_t start = process->start_time;
    struct gp_proc proc;
    if (!host_pids)
        return;
    int err = gp_proc_open(&proc, process->pid);
    if (!err && proc.start_time == start)
        gp_proc_describe(&proc, process);
    else if (!system->agent.alive)
        process->closed = true;
    if (!err)
        gp_proc_close(&proc);
}

static int sample_process(struct gp_system *system, const struct gp_system_process *from, uint32_t count,
                          bool host_pids)
{
    const struct gp_map_process *v = &from->value;
    struct gp_process *process = gp_system_add(system);
    struct gp_device_view *devices = calloc(count, sizeof(*devices));
    if (!process || !devices) {
        free(devices);
        return -ENOMEM;
    }
    process->from_agent = true;
    process->pid = (pid_t)(from->key.tgid & INT_MAX);
    process->start_time = sample_ticks(v->start_ns);
    process->uid = v->uid;
    memcpy(process->comm, from->comm, sizeof(from->comm));
    gp_proc_user(v->uid, process->user, sizeof(process->user));
    process->state = system->agent.alive ? GP_PROCESS_LIVE : GP_PROCESS_STALE;
    process->devices = devices;
    process->device_count = (int)count;
    for (uint32_t i = 0; i < count; i++) {
        const struct gp_map_process *one = &from[i].value;
        sample_device(&devices[i], &from[i]);
        /* These values belong to the process and repeat in each entry. */
        if (one->lost > process->lost[GP_LOST_UNSENT])
            process->lost[GP_LOST_UNSENT] = one->lost;
        if (one->last_ns > process->publish_ns)
            process->publish_ns = one->last_ns;
    }
    process->age_ns = system->time_ns > process->publish_ns ? system->time_ns - process->publish_ns : 0;
    sample_describe(system, process, host_pids);
    process->cgroup_id = v->cgroup_id;
    const struct gp_sum *container = sample_container(&system->agent, v->cgroup_id);
    if (container)
        memcpy(process->container, container->container, sizeof(process->container));
    return 0;
}

static bool sample_is_known(const struct gp_system *system, int known, const struct gp_system_process *process)
{
    for (int i = 0; i < known; i++) {
        if (system->processes[i].pid == (pid_t)(process->key.tgid & INT_MAX) &&
            system->processes[i].start_time == sample_ticks(process->value.start_ns))
            return true;
    }
    return false;
}

static bool sample_is_requested(const struct gp_collect_options *options, uint32_t tgid)
{
    for (int i = 0; options && options->pids && i < options->pid_count; i++) {
        if (options->pids[i] == (pid_t)(tgid & INT_MAX))
            return true;
    }
    return !options || !options->pids;
}

/* Adds the table's processes except those that the system has already. */
static int sample_processes(struct gp_system *system, struct gp_system_view *view,
                            const struct gp_collect_options *options)
{
    bool host_pids = gp_proc_host_pids();
    int err = 0, known = system->process_count;
    if (!view->processes) /* qsort must not get a null pointer, even for 0 elements */
        return 0;
    qsort(view->processes, view->process_count, sizeof(*view->processes), sample_order);
    for (uint32_t i = 0, next; i < view->process_count && !err; i = next) {
        const struct gp_system_process *process = &view->processes[i];
        for (next = i + 1; next < view->process_count && sample_is_same_process(process, &view->processes[next]);)
            next++;
        if (sample_is_requested(options, process->key.tgid) && !sample_is_known(system, known, process))
            err = sample_process(system, process, next - i, host_pids);
    }
    return err;
}

/* The number under which the agent counts the process's container: from its table, or, if that
 * cannot be read, the first of the process's cgroups that has sums. 0: unknown. */
static uint64_t sample_container_of(const struct gp_system *system, const struct gp_system_view *view,
                                    const struct gp_process *process)
{
    uint64_t ids[GP_CONTAINER_HIERARCHIES];
    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct gp_system_process *row = &view->processes[i];
        if ((pid_t)(row->key.tgid & INT_MAX) == process->pid &&
            sample_ticks(row->value.start_ns) == process->start_time)
            return row->value.cgroup_id;
    }
    unsigned count = gp_container_numbers("", process->pid, ids);
    for (unsigned i = 0; i < count; i++) {
        if (sample_container(&system->agent, ids[i]))
            return ids[i];
    }
    return 0;
}

/* Assigns containers to the processes whose sessions were read. */
static void sample_assign_containers(struct gp_system *system, const struct gp_system_view *view)
{
    for (int i = 0; i < system->process_count; i++) {
        struct gp_process *process = &system->processes[i];
        if (process->from_agent || process->cgroup_id)
            continue;
        process->cgroup_id = sample_container_of(system, view, process);
        const struct gp_sum *container = sample_container(&system->agent, process->cgroup_id);
        if (container)
            memcpy(process->container, container->container, sizeof(process->container));
    }
}

/* ---- GPUs -------------------------------------------------------------------------------------------------------- */

/* GPUs unknown to NVML are numbered when first seen, in the order in which programs number them.
 * The numbers are kept, so a GPU keeps its number when a process ends. */
static char numbered[GP_MAPS_DEVICES][sizeof(((struct gp_gpu *)0)->uuid)];
static int numbered_count;

static int sample_ordinal(const struct gp_system *system, const char *uuid)
{
    int lowest = INT_MAX;
    for (int i = 0; i < system->process_count; i++) {
        for (int d = 0; d < system->processes[i].device_count; d++) {
            const struct gp_device_view *device = &system->processes[i].devices[d];
            if (device->ordinal >= 0 && device->ordinal < lowest && strcmp(device->uuid, uuid) == 0)
                lowest = device->ordinal;
        }
    }
    return lowest;
}

static int sample_number(const char *uuid)
{
    for (int i = 0; i < numbered_count; i++) {
        if (strcmp(numbered[i], uuid) == 0)
            return i;
    }
    return -1;
}

static void sample_number_new(const struct gp_system *system)
{
    while (numbered_count < (int)GP_MAPS_DEVICES) {
        const char *next = NULL;
        int lowest = 0;
        for (int i = 0; i < system->agent.sum_count; i++) {
            const char *uuid = system->agent.sums[i].uuid;
            if (!uuid[0] || sample_number(uuid) >= 0)
                continue;
            int ordinal = sample_ordinal(system, uuid);
            if (!next || ordinal < lowest || (ordinal == lowest && strcmp(uuid, next) < 0)) {
                next = uuid;
                lowest = ordinal;
            }
        }
        if (!next)
            return;
        memcpy(numbered[numbered_count++], next, sizeof(numbered[0]));
    }
}

static bool sample_has_gpu(const struct gp_system *system, const char *uuid)
{
    for (int i = 0; i < system->gpu_count; i++) {
        if (strcmp(system->gpus[i].uuid, uuid) == 0)
            return true;
    }
    return false;
}

static int sample_gpus(struct gp_system *system)
{
    sample_number_new(system);
    for (int n = 0; n < numbered_count; n++) {
        for (int i = 0; i < system->agent.sum_count; i++) {
            const struct gp_sum *sum = &system->agent.sums[i];
            if (strcmp(sum->uuid, numbered[n]) != 0 || sample_has_gpu(system, sum->uuid))
                continue;
            struct gp_gpu *gpus = realloc(system->gpus, (size_t)(system->gpu_count + 1) * sizeof(*gpus));
            if (!gpus)
                return -ENOMEM;
            system->gpus = gpus;
            gpus[system->gpu_count] =
                (struct gp_gpu){.index = system->gpu_count, .total_bytes = sum->total_bytes, .used_bytes = -1};
            memcpy(gpus[system->gpu_count++].uuid, sum->uuid, sizeof(sum->uuid));
        }
    }
    int err = gp_machine_add_gpus(system);
    if (!err)
        gpu_names(system);
    return err;
}

/* ---- the whole system -------------------------------------------------------------------------------------------- */

/* Builds the system from the view; if the process table is hidden, from the sessions that we may
 * read. */
static int sample_make(const struct gp_collect_options *options, struct gp_system_view *view, struct gp_system **out)
{
    struct gp_system *system = NULL;
    int err = 0;
    if (!view->processes_seen) {
        err = gp_collect(options, &system);
    } else {
        system = calloc(1, sizeof(*system));
        err = system ? 0 : -ENOMEM;
        if (system)
            system->time_ns = gp_clock_ns();
    }
    if (!err)
        err = sample_agent(system, view);
    if (!err)
        err = sample_processes(system, view, options);
    if (!err && view->processes_seen && options->with_nvml)
        err = gp_machine_add_nvml(system, options->pids != NULL);
    if (!err && !view->processes_seen)
        sample_assign_containers(system, view);
    if (!err)
        err = sample_gpus(system);
    if (err) {
        gp_system_free(system);
        system = NULL;
    }
    *out = system;
    return err;
}

int gp_system_sample(const struct gp_collect_options *options, struct gp_system **out, char *why, size_t why_bytes)
{
    struct gp_system_view *view;
    char sentence[GP_SYSTEM_WHY] = "";
    *out = NULL;
    int err = options->pins ? gp_system_view_read(&view, options->pins, sentence, sizeof(sentence)) : 0;
    if (!err && !options->pins) {
        err = gp_collect(options, out);
    } else if (!err) {
        err = sample_make(options, view, out);
        gp_system_view_free(view);
    }
    if (err && !sentence[0])
        snprintf(sentence, sizeof(sentence), "cannot read processes: %s", strerror(-err));
    if (why)
        snprintf(why, why_bytes, "%s", sentence);
    return err;
}

int gp_system_complete(struct gp_system *system, const char *pins)
{
    struct gp_system_view *view;
    char why[GP_SYSTEM_WHY];
    int err = gp_system_view_read(&view, pins, why, sizeof(why));
    if (err)
        return err == -ENOMEM ? err : 0;
    err = sample_agent(system, view);
    if (!err)
        err = sample_processes(system, view, NULL);
    if (!err)
        sample_assign_containers(system, view);
    gp_system_view_free(view);
    return err;
}
