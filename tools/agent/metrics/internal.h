/* SPDX-License-Identifier: MIT
 *
 * internal.h: declarations that the files of metrics/ share. No other folder includes it.
 */
#ifndef GP_AGENT_METRICS_INTERNAL_H
#define GP_AGENT_METRICS_INTERNAL_H

#include <agent/maps/maps.h>
#include <agent/metrics/metrics.h>
#include <analyze/forecast.h>

/* ==== names of cgroups ============================================================================================ */
/* The names of cgroups, looked up once and kept while the cgroup is in the tables. Only samples.c
 * calls it. */

struct gp_name {
    uint64_t cgroup_id;
    struct gp_container_name found;
    char id[300]; /* the label `id`: the path or a replacement; unique among the names */
    uint32_t tries;
    bool whole; /* no further lookup */
};

struct gp_names {
    const char *root;
    bool off;
    uint32_t count;
    struct gp_name **sorted; /* ordered by cgroup */
};

void gp_names_fini(struct gp_names *names);
/* Keeps the names of these cgroups and of no others. cgroups: sorted, without duplicates; hints: a
 * process in each, 0: none. Pointers to kept names stay valid. 0 or -ENOMEM. */
int gp_names_update(struct gp_names *names, const uint64_t *cgroups, const pid_t *hints, uint32_t count);
/* NULL: not among the cgroups of the last update. */
const struct gp_name *gp_names_find(const struct gp_names *names, uint64_t cgroup_id);

/* ==== rows ======================================================================================================== */
/* The rows that the metrics show, before they are text: the machine's tables with names, without
 * duplicates and within a number of series. Rows that do not fit are summed into rows named "other",
 * so sums over rows stay exact. Only metrics.c calls it; not thread-safe. */

/* In every number -1 means unknown; an unknown number has no series. */
struct gp_row_device {
    char uuid[48], gpu[16], model[64];
    int64_t total_bytes, used_bytes, free_bytes;
    int64_t allocated_bytes, allocated_peak_bytes, reserved_bytes, reserved_peak_bytes, asleep_bytes;
    int64_t processes, calls, frees, failures;
    uint8_t key[16];
};

struct gp_row_container {
    const struct gp_row_device *device;
    const char *namespace_, *pod, *container, *id;
    uint64_t cgroup_id; /* no label */
    int64_t allocated_bytes, allocated_peak_bytes, reserved_bytes, reserved_peak_bytes, asleep_bytes;
    int64_t processes, calls, frees, failures;
    int64_t headroom_bytes, seconds_to_oom;
};

/* A process, in the labels of a row: "" where one is not given. */
struct gp_row_who {
    char pid[12], comm[64], ray_job[12];
};
struct gp_row_who gp_row_who(enum gp_metrics_processes how, const struct gp_system_process *process);
int gp_row_who_order(const struct gp_row_who *a, const struct gp_row_who *b);

struct gp_row_process {
    const struct gp_row_device *device;
    const char *namespace_, *pod, *container;
    struct gp_row_who who;
    int64_t allocated_bytes, allocated_peak_bytes, reserved_bytes, reserved_peak_bytes, asleep_bytes;
};

/* The memory of one owner (pytorch, nccl ...) in a container, or in a process with pid or comm. */
struct gp_row_owner {
    const struct gp_row_device *device;
    const char *namespace_, *pod, *container;
    struct gp_row_who who;
    char owner[40];
    int64_t allocated_bytes, reserved_bytes, asleep_bytes;
};

/* The call site that grows most, of a process (or of all processes with the same labels). */
struct gp_row_site {
    const struct gp_row_device *device;
    const char *namespace_, *pod, *container;
    struct gp_row_who who;
    char site[128];
    int64_t growth_bytes;
};

/* Series of one row, as metrics.c writes them; tests check the numbers. */
#define GP_ROW_DEVICE_SERIES    13u
#define GP_ROW_CONTAINER_SERIES 11u
#define GP_ROW_PROCESS_SERIES   5u
#define GP_ROW_OWNER_SERIES     3u

struct gp_rows {
    uint32_t device_count, container_count, process_count, owner_count, site_count;
    struct gp_row_device *devices;
    struct gp_row_container *containers;
    struct gp_row_process *processes;
    struct gp_row_owner *owners;
    struct gp_row_site *sites;
    uint32_t folded_devices, folded_containers, folded_processes, folded_owners; /* rows summed into "other" */
};

struct gp_row_memory; /* state kept from one page to the next */
/* NULL: out of memory. */
struct gp_row_memory *gp_samples_memory_new(const struct gp_metrics_options *options, uint32_t series);
void gp_samples_memory_free(struct gp_row_memory *memory);

/* Makes the rows of this view. They point into the memory and are valid until the next call or the
 * memory's end. NULL: out of memory. gpus may be NULL; so may sessions, and then no owner is known. */
const struct gp_rows *gp_samples_make(struct gp_row_memory *memory, const struct gp_system_view *view,
                                      const struct gp_nvml_gpu *gpus, int gpu_count, const struct gp_system *sessions);

/* ==== rows of owners ============================================================================================== */
/* Rows of owners of memory, from the sessions of the processes in the tables. Called by samples.c. */

/* Fills rows->owners, at most `most` of them besides an "other" row for each device. Rows with the
 * same labels are one row. A process that is not in the view is left out. False: out of memory. */
bool gp_owners_make(struct gp_rows *rows, const struct gp_names *names, enum gp_metrics_processes how,
                    const struct gp_system_view *view, const struct gp_system *sessions, uint32_t most);

/* ==== sites that grow ============================================================================================= */
/* The call site that grows most, of each process in a container whose memory runs out. Only these
 * processes' call sites are read, and no symbols: a native frame is named by its object and offset.
 * Called by samples.c. */

struct gp_sites;

/* Processes that are followed at once. */
#define GP_GROWING_MOST 16u

struct gp_growing_watch {
    uint32_t pid, device;
    uint64_t start_ns;
    struct gp_sites *sites; /* NULL: it takes no stacks, or cannot be read */
    int64_t *before;        /* live bytes of each site when the watch began */
    uint32_t before_count;
    uint32_t idle; /* pages since its container ran out of memory */
};

struct gp_growing {
    uint32_t count;
    struct gp_growing_watch watches[GP_GROWING_MOST];
};

/* Fills rows->sites, at most `most` and GP_GROWING_MOST.  The containers have their rows.  A call site
 * needs two pages.  False: out of memory. */
bool gp_growing_make(struct gp_growing *growing, struct gp_rows *rows, enum gp_metrics_processes how,
                     const struct gp_system_view *view, uint32_t most);
void gp_growing_fini(struct gp_growing *growing);
/* The innermost frame of the program's own code: "function (file:line)" of Python, "object+0x12". */
void gp_growing_label(const struct gp_sites *sites, uint32_t site, char *label, size_t bytes);

/* ==== forecasts =================================================================================================== */
/* The forecast of each container on each device, fed once per page. Only samples.c calls it. */

struct gp_ahead {
    struct gp_forecast forecast;
    int64_t peak; /* of allocated, at the page before: it tells the peak between two pages */
};

/* NULL: out of memory. Freed with free(). */
struct gp_ahead *gp_metrics_ahead_new(void);
/* Takes the container's sum as of now and makes the numbers of its row; -1: unknown, no series.
 * free_bytes: of the device; limit_left: until the container's limit. */
void gp_metrics_ahead_look(struct gp_ahead *ahead, const struct gp_map_sum *sum, uint64_t now_ns, int64_t free_bytes,
                           int64_t limit_left, int64_t *headroom_bytes, int64_t *seconds_to_oom);

#endif
