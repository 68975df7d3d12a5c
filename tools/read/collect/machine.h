/* SPDX-License-Identifier: MIT
 * machine.h: adds the GPUs of the machine and the processes that only NVML knows. Called by
 * collect.c and agent/maps/sample.c, after the profiled processes are read. */
#ifndef GP_COLLECT_MACHINE_H
#define GP_COLLECT_MACHINE_H

#include <read/collect/collect.h>

/* Adds a zeroed process to the system. NULL: out of memory. */
struct gp_process *gp_system_add(struct gp_system *system);

/* Fills in gpus, nvml, nvml_problem and untracked_bytes; adds processes that are not profiled
 * unless only_profiled. 0 or -ENOMEM. */
int gp_machine_add_nvml(struct gp_system *system, bool only_profiled);

/* Adds the GPUs that the processes identified and that are not in gpus yet. 0 or -ENOMEM. */
int gp_machine_add_gpus(struct gp_system *system);

#endif
