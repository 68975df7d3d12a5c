/* SPDX-License-Identifier: MIT
 * write.h: formats collected values as the text and the JSON that the commands print.  No function
 * here reads a process.  JSON functions return new references, and NULL when memory is out.
 */
#ifndef GP_WRITE_WRITE_H
#define GP_WRITE_WRITE_H

#include <common/values.h>
#include <read/collect/collect.h>
#include <stdio.h>

/* What XLA said of its pool; null: nothing. */
json_t *gp_polled_json(const struct gp_wire_polled *said);
/* The kernel's limits of GPU memory for the process's cgroup: docs/interface.md, cgroup_memory. */
json_t *gp_cgroup_json(const struct gp_process *process);
/* Adds before_attach_bytes (-1: unknown) and the other numbers of memory from before an attach; before:
 * NULL if there was none. */
void gp_before_json(json_t *object, int64_t bytes, const struct gp_wire_before_device *before);
/* gpuprof.stat/1.  device: only the device of this number; -1: all. */
json_t *gp_stat_json(const struct gp_system *system, int device);
/* A scope's peaks on one device; "device" is a number, or "host". */
json_t *gp_scope_json(const char *name, const struct gp_device_view *device, const struct gp_wire_scope_value *peaks);
void gp_stat_table(FILE *out, const struct gp_system *system, int device);
/* What is known of the pools of libraries on a device: says each line, and whether something in it is wrong. */
struct gp_pool_lines {
    void (*line)(void *arg, const char *text, bool is_wrong);
    void *arg;
};
void gp_pool_lines(const struct gp_process *process, const struct gp_device_view *device,
                   const struct gp_pool_lines *lines);
/* torch.cuda.memory_summary of one device; 47 lines. */
void gp_summary_print(FILE *out, const struct gp_device_view *device);
/* The report of the last request that failed for lack of memory; prints nothing if no request
 * failed. */
void gp_oom_print(FILE *out, const struct gp_process *process);
/* The same as JSON; null if no request failed. */
json_t *gp_oom_json(const struct gp_process *process);
/* What each owner holds on a device, and the rest of what NVML reports for the process: the object
 * `now` of gpuprof.reconcile/1, null if the owners are not known. */
json_t *gp_owner_bill_json(const struct gp_process *process, const struct gp_device_view *device);
/* The same as a table; prints nothing if the owners are not known. */
void gp_owner_bill_print(FILE *out, const struct gp_process *process, const struct gp_device_view *device);
/* What libraries do with memory that they hold, the one that holds most first: rows of gpuprof.report/1's `libraries`.
 * bytes: GP_LIBRARIES numbers (analyze/libraries.h). */
json_t *gp_libraries_json(const int64_t *bytes);
#define GP_LIBRARY_TEXT 768u
/* Such a row as a sentence.  Returns text. */
const char *gp_library_line(char text[GP_LIBRARY_TEXT], const json_t *row);
/* The notes about a process besides its numbers (state, losses, problems), one per line. */
void gp_notes_print(FILE *out, const struct gp_process *process);

/* gpuprof.trace/1: one event. */
struct gp_trace_place {
    pid_t pid;
    uint64_t start_ns; /* of the session */
    bool simulated;
};
json_t *gp_event_json(const struct gp_trace_place *place, const struct gp_wire_event *event);
void gp_event_line(FILE *out, const struct gp_trace_place *place, const struct gp_wire_event *event);

#endif
