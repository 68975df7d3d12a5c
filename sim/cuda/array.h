/* SPDX-License-Identifier: MIT
 * Shared by array.c, api/array.c, api/external.c and api/legacy.c.  Call everything with the lock held. */
#ifndef SIM_ARRAY_H
#define SIM_ARRAY_H

#include "sim.h"

/* levels 0: a plain array; external: the address of imported bytes, which are not counted. */
CUresult sim_array_new(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels, struct sim_context *context,
                       CUdeviceptr external, struct sim_array **out);
void sim_array_end(struct sim_context *context, struct sim_array *array);
void sim_array_external_gone(void *external); /* external.c: one user of the imported memory less */

/* Physical cost is rounded to 64 KiB: tiling takes more than the texels, how much is not
 * documented. */
#define SIM_ARRAY_STEP (64 * SIM_KIB)

/* array.c */
struct sim_array *sim_array_any(const void *handle);
size_t sim_at_least_one(size_t value);
uint64_t sim_level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level, bool *overflow);
void sim_array_layout(struct sim_array *array, const struct sim_array *whole, unsigned level, CUdeviceptr base);

#endif
