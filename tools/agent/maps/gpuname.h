/* SPDX-License-Identifier: MIT
 *
 * gpuname.h: names of GPUs, which the agent's maps do not have.  Called by sample.c, on one thread.
 */
#ifndef GP_MAPS_GPUNAME_H
#define GP_MAPS_GPUNAME_H

#include <read/collect/collect.h>

/* Fills in the names of the system's GPUs that have none, as far as they are known: from NVIDIA's
 * files in /proc, or from the session of a process that uses the GPU.  Reads at most one session for
 * each GPU whose name is not known. */
void gp_gpu_names(struct gp_system *system);

#endif
