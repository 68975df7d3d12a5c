/* SPDX-License-Identifier: MIT
 *
 * maps.h: reads the whole machine from the pinned maps. Needs no root where the pins' modes allow
 * it; writes only to reset peaks. The maps are the kernel's and their values partly claims of
 * processes: names are made printable, numbers are returned unchanged.
 */
#ifndef GP_AGENT_MAPS_MAPS_H
#define GP_AGENT_MAPS_MAPS_H

#include <gpuprof/maps.h>
#include <read/collect/collect.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* ==== the maps ==================================================================================================== */

struct gp_system_process {
    struct gp_map_process_key key;
    struct gp_map_process value;
    char comm[GP_COMM_BYTES], ray_job[12]; /* as those of struct gp_process, where its session was read */
};
struct gp_system_sum {
    uint64_t cgroup_id; /* set for containers */
    uint8_t uuid[16];
    struct gp_map_sum value;
    char name[128]; /* container: its name, else its cgroup's path; device: its name if known */
};
struct gp_system_view {
    struct gp_map_meta meta;
    bool alive;          /* an agent's heartbeat is younger than 5 s */
    bool processes_seen; /* false: no permission to read the process table */
    uint32_t process_count, container_count, device_count;
    struct gp_system_process *processes;
    struct gp_system_sum *containers, *devices;
};

#define GP_SYSTEM_ALIVE_NS 5000000000ull /* the agent writes its heartbeat twice a second */
#define GP_SYSTEM_WHY      256

/* 0; -ENOENT: no agent has run here; -EACCES; -EPROTO: another version; another -errno. `why` gets
 * a sentence that says what to do. Peaks are those since the last reset (gp_map_peak_of). Any
 * thread. Free the view with the next function. */
int gp_system_view_read(struct gp_system_view **out, const char *pins, char *why, size_t why_bytes);
void gp_system_view_free(struct gp_system_view *view);

/* Resets machine-wide peaks (uuid NULL: of every device). 0; -ENOENT: no agent has run here;
 * -EACCES; -EPROTO: the pins are of a version without resets; another -errno. */
int gp_system_reset_peaks(const char *pins, const uint8_t *uuid, bool allocated, bool reserved);

/* copy.c; used by the functions above. */

/* Writes the sentence for an error of pins_open. */
void gp_maps_explain(int error, const char *pins, const char *name, char *why, size_t why_bytes);

/* container.c: names of a cgroup by its number, from files only (cgroup path, OCI config
 * annotations, /var/log/containers). root: "" or a prefix for tests. */
struct gp_container_name {
    char path[256];                                 /* of the cgroup, below its mount */
    char id[72];                                    /* 64 hex digits, or "" */
    char pod[128], namespace_[128], container[128]; /* "" unknown */
};
#define GP_CONTAINER_HIERARCHIES 3u
/* The numbers of the cgroups under which the BPF program may count the process: of version 2, then
 * the marked ones of memory and pids under version 1. Returns how many; 0: the process has ended or
 * cannot be examined. */
unsigned gp_container_numbers(const char *root, pid_t pid, uint64_t ids[GP_CONTAINER_HIERARCHIES]);
int gp_container_lookup(const char *root, uint64_t cgroup_id, pid_t hint, struct gp_container_name *out);

/* ==== as every view uses them ===================================================================================== */
/* Reads the whole machine from the agent's maps into the form that every view uses (collect.h). */

/* Without options->pins this is gp_collect. With it, reads the processes, containers and devices of
 * the agent's maps; if the process table cannot be read, the processes are those whose sessions
 * can. 0 or -errno as gp_collect and gp_system_view_read, with a sentence in why (which may be
 * NULL). Any thread, one at a time. */
int gp_system_sample(const struct gp_collect_options *options, struct gp_system **out, char *why, size_t why_bytes);

/* Adds from the maps to the result of gp_collect: processes whose sessions cannot be read, and the
 * sums. 0 also without an agent; -ENOMEM. */
int gp_system_complete(struct gp_system *system, const char *pins);

#endif
