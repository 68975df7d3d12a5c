/* SPDX-License-Identifier: MIT
 * Shared by array.c, external.c and legacy.c.  Call everything with the lock held. */
#ifndef SIM_ARRAY_H
#define SIM_ARRAY_H

#include "sim.h"

/* levels 0: a plain array; external: the address of imported bytes, which are not counted. */
CUresult sim_array_new(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels, struct sim_context *context,
                       CUdeviceptr external, struct sim_array **out);
void sim_array_end(struct sim_context *context, struct sim_array *array);
void sim_array_external_gone(void *external); /* external.c: one user of the imported memory less */

#endif
