/* SPDX-License-Identifier: MIT
 *
 * cgrouplimit.h: the limits of device memory that the kernel keeps for the cgroup of a process: the
 * dmem controller (Linux 6.14), or the misc controller where a driver of CUDA 13.4 counts in it.
 */
#ifndef GP_COLLECT_CGROUPLIMIT_H
#define GP_COLLECT_CGROUPLIMIT_H

#include <read/collect/collect.h>

/* Reads the files below root ("" in production) and returns how many limits it wrote; 0 too if there
 * is no such controller.  All text comes from the kernel, bounded and cleaned nevertheless. */
int gp_cgroup_limits(const char *root, pid_t pid, struct gp_cgroup_limit out[GP_CGROUP_LIMITS]);

#endif
