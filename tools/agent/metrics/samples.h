/* SPDX-License-Identifier: MIT
 *
 * samples.h: the rows that the metrics show, before they are text: the machine's tables with names,
 * without duplicates and within a number of series. Rows that do not fit are summed into rows named
 * "other", so sums over rows stay exact. Only metrics.c calls it; not thread-safe.
 */
#ifndef GP_METRICS_SAMPLES_H
#define GP_METRICS_SAMPLES_H

#include <agent/metrics/metrics.h>

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

struct gp_row_process {
    const struct gp_row_device *device;
    const char *namespace_, *pod, *container;
    char pid[12], comm[64];
    int64_t allocated_bytes, allocated_peak_bytes, reserved_bytes, reserved_peak_bytes, asleep_bytes;
};

/* The memory of one owner (pytorch, nccl ...) in a container, or in a process with pid or comm. */
struct gp_row_owner {
    const struct gp_row_device *device;
    const char *namespace_, *pod, *container;
    char pid[12], comm[64], owner[24];
    int64_t allocated_bytes, reserved_bytes, asleep_bytes;
};

/* The call site that grows most, of a process (or of all processes with the same labels). */
struct gp_row_site {
    const struct gp_row_device *device;
    const char *namespace_, *pod, *container;
    char pid[12], comm[64], site[128];
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

#endif
