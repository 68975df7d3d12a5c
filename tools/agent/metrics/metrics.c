/* SPDX-License-Identifier: MIT
 *
 * metrics.c: see metrics.h. Writes rows as text in the two formats that Prometheus reads: 0.0.4,
 * and OpenMetrics 1.0 on request. Every family is a row of a table here, so a page always names all
 * of them.
 */
#include <agent/metrics/internal.h>
#include <agent/metrics/metrics.h>

#include <base/clock.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

enum gp_family_type { GP_GAUGE, GP_COUNTER, GP_INFO };
static const char *const type_text[] = {"gauge", "counter", "gauge"}; /* 0.0.4 has no info type */
static const char *const type_open[] = {"gauge", "counter", "info"};

struct gp_family {
    const char *name; /* counters end in _total, infos in _info */
    enum gp_family_type type;
    const char *help;
    size_t offset; /* of the int64_t in the row; -1 in the row means no sample */
};

/* ---- the agent's own --------------------------------------------------------------------------------------------- */

struct gp_row_agent {
    int64_t readable, alive, heartbeat_ns;
    int64_t batches, events, ring_full, unsent, refused, missing, clamped, map_full;
    int64_t read_errors, series, series_limit, folded_devices, folded_containers, folded_processes, folded_owners;
    int64_t cpu_ns, start_ns, resident, virtual_, virtual_limit, descriptors, descriptor_limit, threads;
    int64_t duration_ns;
    struct gp_metrics_agent parts;
};
#define GP_AT(_field) offsetof(struct gp_row_agent, _field)

static const struct gp_family agent_families[] = {
    {"gpuprof_agent_up", GP_GAUGE, "1 while an agent's heartbeat is younger than 5 s.", GP_AT(alive)},
    {"gpuprof_agent_batches_total", GP_COUNTER, "Batches received by the kernel side.", GP_AT(batches)},
    {"gpuprof_agent_events_total", GP_COUNTER, "Allocation events in these batches.", GP_AT(events)},
    {"gpuprof_batches_refused_total", GP_COUNTER, "Batches refused because they were malformed.", GP_AT(refused)},
    {"gpuprof_batches_missing_total", GP_COUNTER, "Batches whose sequence number was never received.", GP_AT(missing)},
    {"gpuprof_values_clamped_total", GP_COUNTER, "Numbers of processes that were out of range.", GP_AT(clamped)},
    {"gpuprof_map_updates_refused_total", GP_COUNTER, "Updates that found no room in a table.", GP_AT(map_full)},
    {"gpuprof_agent_libraries", GP_GAUGE, "Armed copies of the library.", GP_AT(parts.armed)},
    {"gpuprof_agent_libraries_unarmed", GP_GAUGE,
     "Named and installed libraries that could not be armed: their programs are not counted.", GP_AT(parts.unarmed)},
    {"gpuprof_agent_libraries_refused_total", GP_COUNTER, "Copies that were refused.", GP_AT(parts.refused)},
    {"gpuprof_agent_libraries_postponed_total", GP_COUNTER, "Files postponed because too many were new at once.",
     GP_AT(parts.postponed)},
    {"gpuprof_agent_mapping_records_lost_total", GP_COUNTER,
     "Lost mapping records; a sweep of all processes makes up for them.", GP_AT(parts.records_lost)},
    {"gpuprof_agent_search_up", GP_GAUGE,
     "1 while new copies of the library are found, 0 while a process stalls discovery.", GP_AT(parts.searching)},
    {"gpuprof_agent_attached_total", GP_COUNTER, "Programs that the agent attached to.", GP_AT(parts.attached)},
    {"gpuprof_agent_attach_refused_total", GP_COUNTER, "Programs that the agent could not attach to.",
     GP_AT(parts.attach_refused)},
    {"gpuprof_exporter_read_success", GP_GAUGE, "1 if the tables could be read for this page.", GP_AT(readable)},
    {"gpuprof_exporter_read_errors_total", GP_COUNTER, "Pages for which the tables could not be read.",
     GP_AT(read_errors)},
    {"gpuprof_exporter_series", GP_GAUGE, "Series of devices, containers and processes on this page.", GP_AT(series)},
    {"gpuprof_exporter_series_limit", GP_GAUGE, "The most series that a page may have.", GP_AT(series_limit)},
    {"process_resident_memory_bytes", GP_GAUGE, "Resident memory of the agent.", GP_AT(resident)},
    {"process_virtual_memory_bytes", GP_GAUGE, "Virtual memory of the agent.", GP_AT(virtual_)},
    {"process_virtual_memory_max_bytes", GP_GAUGE, "Limit of the agent's virtual memory.", GP_AT(virtual_limit)},
    {"process_open_fds", GP_GAUGE, "Open file descriptors of the agent.", GP_AT(descriptors)},
    {"process_max_fds", GP_GAUGE, "Limit of the agent's open file descriptors.", GP_AT(descriptor_limit)},
    {"process_threads", GP_GAUGE, "Threads of the agent.", GP_AT(threads)},
};
/* Stored in nanoseconds, shown in seconds. */
static const struct gp_family agent_times[] = {
    {"gpuprof_agent_heartbeat_age_seconds", GP_GAUGE, "Age of the agent's last heartbeat.", GP_AT(heartbeat_ns)},
    {"process_cpu_seconds_total", GP_COUNTER, "User and system CPU time of the agent.", GP_AT(cpu_ns)},
    {"process_start_time_seconds", GP_GAUGE, "Start of the agent since the epoch.", GP_AT(start_ns)},
    {"gpuprof_exporter_scrape_duration_seconds", GP_GAUGE, "Time that this page took.", GP_AT(duration_ns)},
};
#undef GP_AT

#define GP_AT(_field) offsetof(struct gp_row_device, _field)
static const struct gp_family device_families[] = {
    {"gpuprof_device_memory_total_bytes", GP_GAUGE, "Memory of the GPU.", GP_AT(total_bytes)},
    {"gpuprof_device_memory_used_bytes", GP_GAUGE, "Used memory of the GPU according to NVML, contexts included.",
     GP_AT(used_bytes)},
    {"gpuprof_device_memory_free_bytes", GP_GAUGE, "Free memory of the GPU according to NVML.", GP_AT(free_bytes)},
    {"gpuprof_device_memory_allocated_bytes", GP_GAUGE, "Memory that profiled programs use on the GPU now.",
     GP_AT(allocated_bytes)},
    {"gpuprof_device_memory_allocated_peak_bytes", GP_GAUGE, "The most that they used at one time.",
     GP_AT(allocated_peak_bytes)},
    {"gpuprof_device_memory_reserved_bytes", GP_GAUGE,
     "Memory that profiled programs hold from the driver, caches included.", GP_AT(reserved_bytes)},
    {"gpuprof_device_memory_reserved_peak_bytes", GP_GAUGE, "The most that they held at one time.",
     GP_AT(reserved_peak_bytes)},
    {"gpuprof_device_memory_asleep_bytes", GP_GAUGE, "Blocks of their frameworks without memory under them.",
     GP_AT(asleep_bytes)},
    {"gpuprof_device_processes", GP_GAUGE, "Profiled processes on the GPU.", GP_AT(processes)},
    {"gpuprof_allocations_total", GP_COUNTER, "Allocations on the GPU.", GP_AT(calls)},
    {"gpuprof_frees_total", GP_COUNTER, "Frees on the GPU.", GP_AT(frees)},
    {"gpuprof_alloc_failures_total", GP_COUNTER, "Allocations that failed: out of memory.", GP_AT(failures)},
};
_Static_assert(sizeof(device_families) / sizeof(struct gp_family) + 1 == GP_ROW_DEVICE_SERIES,
               "a new family raises GP_ROW_DEVICE_SERIES (internal.h), which counts the info family too");
#undef GP_AT

#define GP_AT(_field) offsetof(struct gp_row_container, _field)
static const struct gp_family container_families[] = {
    {"gpuprof_container_memory_allocated_bytes", GP_GAUGE, "GPU memory that programs in the container use now.",
     GP_AT(allocated_bytes)},
    {"gpuprof_container_memory_allocated_peak_bytes", GP_GAUGE, "The most that they used at one time.",
     GP_AT(allocated_peak_bytes)},
    {"gpuprof_container_memory_reserved_bytes", GP_GAUGE, "GPU memory that they hold from the driver, caches included.",
     GP_AT(reserved_bytes)},
    {"gpuprof_container_memory_reserved_peak_bytes", GP_GAUGE, "The most that they held at one time.",
     GP_AT(reserved_peak_bytes)},
    {"gpuprof_container_memory_asleep_bytes", GP_GAUGE, "Blocks of their frameworks without memory under them.",
     GP_AT(asleep_bytes)},
    {"gpuprof_container_processes", GP_GAUGE, "Profiled processes in the container.", GP_AT(processes)},
    {"gpuprof_container_allocations_total", GP_COUNTER, "Allocations in the container.", GP_AT(calls)},
    {"gpuprof_container_frees_total", GP_COUNTER, "Frees in the container.", GP_AT(frees)},
    {"gpuprof_container_alloc_failures_total", GP_COUNTER, "Allocations in the container that failed.",
     GP_AT(failures)},
    {"gpuprof_headroom_bytes", GP_GAUGE, "What the container can still allocate, idle memory of its caches included.",
     GP_AT(headroom_bytes)},
    {"gpuprof_seconds_to_oom", GP_GAUGE, "Time until the container's memory runs out; absent where none is certain.",
     GP_AT(seconds_to_oom)},
};
_Static_assert(sizeof(container_families) / sizeof(struct gp_family) == GP_ROW_CONTAINER_SERIES,
               "a new family raises GP_ROW_CONTAINER_SERIES (internal.h)");
#undef GP_AT

#define GP_AT(_field) offsetof(struct gp_row_process, _field)
static const struct gp_family process_families[] = {
    {"gpuprof_process_memory_allocated_bytes", GP_GAUGE, "GPU memory that the process uses now.",
     GP_AT(allocated_bytes)},
    {"gpuprof_process_memory_allocated_peak_bytes", GP_GAUGE, "The most that it used at one time.",
     GP_AT(allocated_peak_bytes)},
    {"gpuprof_process_memory_reserved_bytes", GP_GAUGE, "GPU memory that it holds from the driver, caches included.",
     GP_AT(reserved_bytes)},
    {"gpuprof_process_memory_reserved_peak_bytes", GP_GAUGE, "The most that it held at one time.",
     GP_AT(reserved_peak_bytes)},
    {"gpuprof_process_memory_asleep_bytes", GP_GAUGE, "Blocks of its framework without memory under them.",
     GP_AT(asleep_bytes)},
};
_Static_assert(sizeof(process_families) / sizeof(struct gp_family) == GP_ROW_PROCESS_SERIES,
               "a new family raises GP_ROW_PROCESS_SERIES (internal.h)");
#undef GP_AT

#define GP_AT(_field) offsetof(struct gp_row_owner, _field)
static const struct gp_family owner_families[] = {
    {"gpuprof_owner_allocated_bytes", GP_GAUGE, "GPU memory in use by what this library allocated.",
     GP_AT(allocated_bytes)},
    {"gpuprof_owner_reserved_bytes", GP_GAUGE, "GPU memory that this library asked the driver for and holds.",
     GP_AT(reserved_bytes)},
    {"gpuprof_owner_asleep_bytes", GP_GAUGE, "Blocks of this framework without memory under them.",
     GP_AT(asleep_bytes)},
};
_Static_assert(sizeof(owner_families) / sizeof(struct gp_family) == GP_ROW_OWNER_SERIES,
               "a new family raises GP_ROW_OWNER_SERIES (internal.h)");
#undef GP_AT

static const struct gp_family family_site = {
    "gpuprof_growing_site_bytes", GP_GAUGE,
    "What the call site that grows most has grown by, of each process in a container whose memory runs out.",
    offsetof(struct gp_row_site, growth_bytes)};

/* Families with their own labels, written by functions below. */
static const struct gp_family family_build = {"gpuprof_build_info", GP_INFO, "Version of gpuprof.", 0};
static const struct gp_family family_device = {"gpuprof_device_info", GP_INFO, "The GPU and its model.", 0};
static const struct gp_family family_dropped = {
    "gpuprof_events_dropped_total", GP_COUNTER,
    "Events that no viewer received: ring_full: no room in the kernel's ring; unsent: lost in the process.", 0};
static const struct gp_family family_folded = {"gpuprof_exporter_folded_rows", GP_GAUGE,
                                               "Rows summed into a row named other because of the series limit.", 0};

/* Samples of the agent's own families; the limit leaves the rest to the machine. */
#define GP_AGENT_SERIES                                                                                                \
    (sizeof(agent_families) / sizeof(struct gp_family) + sizeof(agent_times) / sizeof(struct gp_family) + 1 + 2 + 4)

#define GP_METRICS_EACH(_i, _table)                                                                                    \
    size_t _i = 0;                                                                                                     \
    _i < sizeof(_table) / sizeof((_table)[0]);                                                                         \
    _i++

struct gp_metrics {
    struct gp_metrics_source source;
    const char *version;
    uint32_t series;
    uint64_t read_errors;
    int64_t start_ns; /* of this process since the epoch; 0: not read yet. Read once, as its two clocks drift */
    struct gp_row_memory *memory;
};

int gp_metrics_processes_parse(const char *text, enum gp_metrics_processes *out)
{
    static const char *const words[] = {"off", "comm", "pid"};
    for (GP_METRICS_EACH(i, words)) {
        if (strcmp(text, words[i]) == 0) {
            *out = (enum gp_metrics_processes)i;
            return 0;
        }
    }
    return -EINVAL;
}

int gp_metrics_open(struct gp_metrics **out, const struct gp_metrics_options *options,
                    const struct gp_metrics_source *source)
{
    uint32_t series = options->series ? options->series : GP_METRICS_SERIES;
    if (series < GP_METRICS_SERIES_MIN)
        return -EINVAL;
    struct gp_metrics *metrics = calloc(1, sizeof(*metrics));
    if (!metrics)
        return -ENOMEM;
    metrics->source = *source;
    metrics->series = series;
    metrics->version = options->version ? options->version : "";
    metrics->memory = gp_samples_memory_new(options, series - GP_AGENT_SERIES);
    if (!metrics->memory) {
        free(metrics);
        return -ENOMEM;
    }
    *out = metrics;
    return 0;
}

void gp_metrics_close(struct gp_metrics *metrics)
{
    if (!metrics)
        return;
    gp_samples_memory_free(metrics->memory);
    free(metrics);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

struct gp_page_out {
    FILE *out;
    enum gp_metrics_format format;
    int64_t series; /* samples of GPUs, containers and processes */
};

static size_t family_stem(const struct gp_family *family)
{
    static const char *const ends[] = {"", "_total", "_info"};
    return strlen(family->name) - strlen(ends[family->type]);
}

/* OpenMetrics names a family without its samples' suffix, and requires units to be declared. */
static void page_head(const struct gp_page_out *page, const struct gp_family *family)
{
    static const char *const units[] = {"bytes", "seconds"};
    bool open = page->format == GP_METRICS_OPENMETRICS;
    int stem = (int)(open ? family_stem(family) : strlen(family->name));
    fprintf(page->out, "# HELP %.*s %s\n", stem, family->name, family->help);
    fprintf(page->out, "# TYPE %.*s %s\n", stem, family->name, (open ? type_open : type_text)[family->type]);
    for (GP_METRICS_EACH(i, units)) {
        int n = (int)strlen(units[i]);
        if (open && stem > n && strncmp(family->name + stem - n, units[i], (size_t)n) == 0)
            fprintf(page->out, "# UNIT %.*s %s\n", stem, family->name, units[i]);
    }
}

static void page_label(const struct gp_page_out *page, char before, const char *name, const char *value)
{
    fprintf(page->out, "%c%s=\"", before, name);
    for (; *value; value++) {
        if (*value == '\n')
            fputs("\\n", page->out);
        else if (*value == '"' || *value == '\\')
            fprintf(page->out, "\\%c", *value);
        else
            putc(*value, page->out);
    }
    putc('"', page->out);
}

static void page_device(const struct gp_page_out *page, const struct gp_row_device *device)
{
    page_label(page, '{', "gpu", device->gpu);
    page_label(page, ',', "UUID", device->uuid);
}

/* Empty outside a pod, as in other exporters: a join on these labels then finds no match instead of
 * a wrong one. */
static void page_pod(const struct gp_page_out *page, const char *namespace_, const char *pod, const char *container)
{
    page_label(page, ',', "namespace", namespace_);
    page_label(page, ',', "pod", pod);
    page_label(page, ',', "container", container);
}

static void page_seconds(const struct gp_page_out *page, const struct gp_family *family, int64_t ns)
{
    fprintf(page->out, "%s %" PRId64 ".%09" PRId64 "\n", family->name, ns / 1000000000, ns % 1000000000);
}

static int64_t value_of(const void *row, const struct gp_family *family)
{
    int64_t value;
    memcpy(&value, (const char *)row + family->offset, sizeof(value));
    return value;
}

static void page_devices(struct gp_page_out *page, const struct gp_rows *rows)
{
    page_head(page, &family_device);
    for (uint32_t i = 0; i < rows->device_count; i++) {
        fputs(family_device.name, page->out);
        page_device(page, &rows->devices[i]);
        page_label(page, ',', "model", rows->devices[i].model);
        fputs("} 1\n", page->out);
        page->series++;
    }
    for (GP_METRICS_EACH(f, device_families)) {
        page_head(page, &device_families[f]);
        for (uint32_t i = 0; i < rows->device_count; i++) {
            int64_t value = value_of(&rows->devices[i], &device_families[f]);
            if (value < 0)
                continue;
            fputs(device_families[f].name, page->out);
            page_device(page, &rows->devices[i]);
            fprintf(page->out, "} %" PRId64 "\n", value);
            page->series++;
        }
    }
}

static void page_containers(struct gp_page_out *page, const struct gp_rows *rows)
{
    for (GP_METRICS_EACH(f, container_families)) {
        page_head(page, &container_families[f]);
        for (uint32_t i = 0; i < rows->container_count; i++) {
            const struct gp_row_container *row = &rows->containers[i];
            int64_t value = value_of(row, &container_families[f]);
            if (value < 0)
                continue;
            fputs(container_families[f].name, page->out);
            page_device(page, row->device);
            page_pod(page, row->namespace_, row->pod, row->container);
            page_label(page, ',', "id", row->id);
            fprintf(page->out, "} %" PRId64 "\n", value);
            page->series++;
        }
    }
}

static void page_process(const struct gp_page_out *page, const struct gp_row_who *who)
{
    if (who->pid[0])
        page_label(page, ',', "pid", who->pid);
    if (who->comm[0])
        page_label(page, ',', "comm", who->comm);
    if (who->ray_job[0])
        page_label(page, ',', "ray_job", who->ray_job);
}

static void page_processes(struct gp_page_out *page, const struct gp_rows *rows)
{
    for (GP_METRICS_EACH(f, process_families)) {
        page_head(page, &process_families[f]);
        for (uint32_t i = 0; i < rows->process_count; i++) {
            const struct gp_row_process *row = &rows->processes[i];
            int64_t value = value_of(row, &process_families[f]);
            if (value < 0)
                continue;
            fputs(process_families[f].name, page->out);
            page_device(page, row->device);
            page_pod(page, row->namespace_, row->pod, row->container);
            page_process(page, &row->who);
            fprintf(page->out, "} %" PRId64 "\n", value);
            page->series++;
        }
    }
}

static void page_owners(struct gp_page_out *page, const struct gp_rows *rows)
{
    for (GP_METRICS_EACH(f, owner_families)) {
        page_head(page, &owner_families[f]);
        for (uint32_t i = 0; i < rows->owner_count; i++) {
            const struct gp_row_owner *row = &rows->owners[i];
            fputs(owner_families[f].name, page->out);
            page_device(page, row->device);
            page_pod(page, row->namespace_, row->pod, row->container);
            page_process(page, &row->who);
            page_label(page, ',', "owner", row->owner);
            fprintf(page->out, "} %" PRId64 "\n", value_of(row, &owner_families[f]));
            page->series++;
        }
    }
}

static void page_sites(struct gp_page_out *page, const struct gp_rows *rows)
{
    page_head(page, &family_site);
    for (uint32_t i = 0; i < rows->site_count; i++) {
        const struct gp_row_site *row = &rows->sites[i];
        fputs(family_site.name, page->out);
        page_device(page, row->device);
        page_pod(page, row->namespace_, row->pod, row->container);
        page_process(page, &row->who);
        page_label(page, ',', "site", row->site);
        fprintf(page->out, "} %" PRId64 "\n", row->growth_bytes);
        page->series++;
    }
}

/* One sample per value of a label. */
static void page_parts(const struct gp_page_out *page, const struct gp_family *family, const char *label,
                       const char *const *names, const int64_t *values, size_t count)
{
    page_head(page, family);
    for (size_t i = 0; i < count; i++) {
        if (values[i] < 0)
            continue;
        fputs(family->name, page->out);
        page_label(page, '{', label, names[i]);
        fprintf(page->out, "} %" PRId64 "\n", values[i]);
    }
}

static void page_agent(const struct gp_page_out *page, const struct gp_row_agent *agent, const char *version)
{
    static const char *const reasons[] = {"ring_full", "unsent"};
    static const char *const kinds[] = {"device", "container", "process", "owner"};
    page_head(page, &family_build);
    fputs(family_build.name, page->out);
    page_label(page, '{', "version", version);
    fputs("} 1\n", page->out);
    for (GP_METRICS_EACH(f, agent_families)) {
        int64_t value = value_of(agent, &agent_families[f]);
        page_head(page, &agent_families[f]);
        if (value >= 0)
            fprintf(page->out, "%s %" PRId64 "\n", agent_families[f].name, value);
    }
    page_parts(page, &family_dropped, "reason", reasons, (const int64_t[]){agent->ring_full, agent->unsent}, 2);
    page_parts(page, &family_folded, "kind", kinds,
               (const int64_t[]){agent->folded_devices, agent->folded_containers, agent->folded_processes,
                                 agent->folded_owners},
               4);
    for (GP_METRICS_EACH(f, agent_times)) {
        int64_t value = value_of(agent, &agent_times[f]);
        page_head(page, &agent_times[f]);
        if (value >= 0)
            page_seconds(page, &agent_times[f], value);
    }
}

/* ---- the agent's own numbers ------------------------------------------------------------------------------------- */

static bool agent_file(const char *path, char *text, size_t text_bytes)
{
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, text_bytes - 1, file) : 0;
    text[n] = '\0';
    if (file)
        fclose(file);
    return n > 0;
}

static int64_t agent_limit(int which)
{
    struct rlimit limit;
    return getrlimit(which, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? (int64_t)limit.rlim_cur : -1;
}

static int64_t agent_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int64_t count = -3; /* ".", "..", and this one */
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return dir ? count : -1;
}

/* The start of this process in nanoseconds since the epoch, from its ticks since boot. */
static int64_t agent_start(long long ticks)
{
    struct timespec now, boot;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    int64_t booted = (now.tv_sec - boot.tv_sec) * 1000000000ll + now.tv_nsec - boot.tv_nsec;
    return booted + ticks * (1000000000ll / sysconf(_SC_CLK_TCK));
}

static void agent_self(struct gp_metrics *metrics, struct gp_row_agent *agent)
{
    char text[1024];
    long threads = 0, pages = 0;
    unsigned long long size = 0;
    long long ticks = 0;
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    agent->cpu_ns = cpu.tv_sec * 1000000000ll + cpu.tv_nsec;
    agent->descriptors = agent_descriptors();
    agent->descriptor_limit = agent_limit(RLIMIT_NOFILE);
    agent->virtual_limit = agent_limit(RLIMIT_AS);
    agent->start_ns = agent->resident = agent->virtual_ = agent->threads = -1;
    /* The process's name may contain any bytes, so fields are counted from its closing bracket. */
    const char *after = agent_file("/proc/self/stat", text, sizeof(text)) ? strrchr(text, ')') : NULL;
    if (!after ||
        sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %lld %llu %ld",
               &threads, &ticks, &size, &pages) != 4)
        return;
    agent->threads = threads;
    if (!metrics->start_ns)
        metrics->start_ns = agent_start(ticks);
    agent->start_ns = metrics->start_ns;
    agent->virtual_ = (int64_t)size;
    agent->resident = pages * sysconf(_SC_PAGESIZE);
}

static void agent_meta(struct gp_row_agent *agent, const struct gp_system_view *view)
{
    uint64_t now = gp_clock_ns();
    const struct gp_map_meta *meta = &view->meta;
    agent->alive = view->alive;
    agent->heartbeat_ns = meta->heartbeat_ns && now >= meta->heartbeat_ns ? (int64_t)(now - meta->heartbeat_ns) : -1;
    agent->batches = (int64_t)meta->batches;
    agent->events = (int64_t)meta->events;
    agent->ring_full = (int64_t)meta->ring_dropped;
    agent->unsent = (int64_t)meta->lost;
    agent->refused = (int64_t)meta->refused_batches;
    agent->missing = (int64_t)meta->gap_batches;
    agent->clamped = (int64_t)meta->clamped;
    agent->map_full = (int64_t)meta->map_full;
}

static void agent_rows(struct gp_row_agent *agent, const struct gp_rows *rows)
{
    agent->folded_devices = rows->folded_devices;
    agent->folded_containers = rows->folded_containers;
    agent->folded_processes = rows->folded_processes;
    agent->folded_owners = rows->folded_owners;
}

/* ---- one page ---------------------------------------------------------------------------------------------------- */

/* The sessions of the processes in the view. NULL: none can be read, or out of memory, and the page
 * lacks the owners. */
static struct gp_system *metrics_sessions(const struct gp_metrics *metrics, const struct gp_system_view *view)
{
    struct gp_system *sessions = NULL;
    pid_t pids[GP_METRICS_SESSIONS];
    int count = 0;
    for (uint32_t i = 0; i < view->process_count && count < (int)GP_METRICS_SESSIONS; i++) {
        pid_t pid = (pid_t)view->processes[i].key.tgid;
        int known = 0;
        while (known < count && pids[known] != pid)
            known++;
        if (known == count)
            pids[count++] = pid;
    }
    if (!metrics->source.sessions || !count || metrics->source.sessions(pids, count, &sessions) != 0)
        return NULL;
    return sessions;
}

/* A worker of Ray is named by the class of its actor, as its title has another method each time. */
static void metrics_ray(struct gp_system_view *view, const struct gp_system *sessions)
{
    for (int s = 0; sessions && s < sessions->process_count; s++) {
        const struct gp_process *session = &sessions->processes[s];
        for (uint32_t i = 0; strncmp(session->comm, "ray::", 5) == 0 && i < view->process_count; i++) {
            if (view->processes[i].key.tgid != (uint32_t)session->pid)
                continue;
            memcpy(view->processes[i].comm, session->comm, sizeof(session->comm));
            memcpy(view->processes[i].ray_job, session->ray_job, sizeof(session->ray_job));
        }
    }
    for (uint32_t i = 0; i < view->process_count; i++) {
        char *comm = view->processes[i].comm;
        if (strncmp(comm, "ray::", 5) == 0)
            comm[strcspn(comm, ".(")] = '\0';
    }
}

static const struct gp_rows *metrics_rows(struct gp_metrics *metrics, struct gp_system_view *view)
{
    struct gp_nvml_gpu *gpus = NULL;
    char problem[GP_NVML_PROBLEM_BYTES];
    int count = 0;
    if (metrics->source.gpus && metrics->source.gpus(&gpus, &count, problem) != 0) {
        gpus = NULL;
        count = 0;
    }
    struct gp_system *sessions = metrics_sessions(metrics, view);
    metrics_ray(view, sessions);
    const struct gp_rows *rows = gp_samples_make(metrics->memory, view, gpus, count, sessions);
    gp_system_free(sessions);
    if (gpus)
        gp_nvml_free(gpus, count);
    return rows;
}

int gp_metrics_render(struct gp_metrics *metrics, enum gp_metrics_format format, char **text, size_t *bytes)
{
    static const struct gp_rows nothing;
    uint64_t begin = gp_clock_ns();
    struct gp_page_out page = {.format = format};
    struct gp_system_view *view = NULL;
    struct gp_row_agent agent;
    char why[256];
    *text = NULL;
    memset(&agent, 0xff, sizeof(agent)); /* all unknown */
    agent.alive = 0;
    agent.readable = metrics->source.read(metrics->source.arg, &view, why, sizeof(why)) == 0;
    const struct gp_rows *rows = agent.readable ? metrics_rows(metrics, view) : &nothing;
    page.out = rows ? open_memstream(text, bytes) : NULL;
    if (page.out) {
        page_devices(&page, rows);
        page_containers(&page, rows);
        page_processes(&page, rows);
        page_owners(&page, rows);
        page_sites(&page, rows);
        if (agent.readable) {
            agent_meta(&agent, view);
            agent_rows(&agent, rows);
        }
        metrics->read_errors += !agent.readable;
        agent.read_errors = (int64_t)metrics->read_errors;
        agent.series = page.series;
        agent.series_limit = metrics->series;
        agent_self(metrics, &agent);
        if (metrics->source.agent)
            metrics->source.agent(metrics->source.agent_arg, &agent.parts);
        agent.duration_ns = (int64_t)(gp_clock_ns() - begin);
        page_agent(&page, &agent, metrics->version);
        if (format == GP_METRICS_OPENMETRICS)
            fputs("# EOF\n", page.out);
    }
    if (agent.readable)
        metrics->source.free(view);
    bool whole = page.out && !ferror(page.out);
    if (page.out && (fclose(page.out) != 0 || !whole)) {
        free(*text);
        *text = NULL;
        return -ENOMEM;
    }
    return page.out ? 0 : -ENOMEM;
}

bool gp_metrics_healthy(struct gp_metrics *metrics, char *why, size_t why_bytes)
{
    struct gp_system_view *view;
    why[0] = '\0';
    if (metrics->source.read(metrics->source.arg, &view, why, why_bytes) != 0) {
        if (!why[0])
            snprintf(why, why_bytes, "the tables cannot be read");
        return false;
    }
    bool alive = view->alive;
    metrics->source.free(view);
    if (!alive)
        snprintf(why, why_bytes, "no heartbeat for 5 s");
    return alive;
}

/* ---- formats ----------------------------------------------------------------------------------------------------- */

const char *gp_metrics_content_type(enum gp_metrics_format format)
{
    return format == GP_METRICS_OPENMETRICS ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                            : "text/plain; version=0.0.4; charset=utf-8";
}

/* Parses one range of an Accept header in place. Returns its quality in thousandths; *version is
 * its version parameter or "". */
static int accept_range(char *range, char **type, char **version)
{
    static char none[] = "";
    int quality = 1000;
    char *save = NULL, *part = strtok_r(range, ";", &save);
    *type = part ? part + strspn(part, " \t") : none;
    (*type)[strcspn(*type, " \t")] = '\0';
    *version = none;
    while ((part = strtok_r(NULL, ";", &save))) {
        part += strspn(part, " \t");
        if (strncasecmp(part, "q=", 2) == 0) {
            const char *digit = part + 2;
            quality = *digit == '1' ? 1000 : 0;
            if (*digit == '0' && digit[1] == '.') {
                digit += 2;
                for (int unit = 100; unit && isdigit((unsigned char)*digit); digit++, unit /= 10)
                    quality += (*digit - '0') * unit;
            }
        } else if (strncasecmp(part, "version=", 8) == 0) {
            *version = part + 8;
            (*version)[strcspn(*version, " \t")] = '\0';
        }
    }
    return quality;
}

enum gp_metrics_format gp_metrics_negotiate(const char *accept)
{
    char copy[1024], *save = NULL, *type, *version;
    int open = 0, text = 0;
    if (!accept || strlen(accept) >= sizeof(copy))
        return GP_METRICS_TEXT;
    strcpy(copy, accept);
    for (char *range = strtok_r(copy, ",", &save); range; range = strtok_r(NULL, ",", &save)) {
        int quality = accept_range(range, &type, &version);
        bool ours = !version[0] || strcmp(version, "1.0.0") == 0;
        if (strcasecmp(type, "application/openmetrics-text") == 0 && ours && quality > open)
            open = quality;
        if (strcasecmp(type, "text/plain") == 0 && quality > text)
            text = quality;
    }
    return open > text ? GP_METRICS_OPENMETRICS : GP_METRICS_TEXT;
}
