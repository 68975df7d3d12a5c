/* SPDX-License-Identifier: MIT
 * The GPU that is simulated: one row of gpus.def, or the default of no name.  Used by spec.c,
 * device.c, api/green.c and module.c; constant once cuInit has read the specification. */
#ifndef SIM_GPU_H
#define SIM_GPU_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

enum sim_gpu_known { SIM_EXACT, SIM_MIB_KNOWN, SIM_ESTIMATE };
struct sim_gpu {
    const char *key, *name; /* name NULL: the default, whose devices have numbers in their names */
    int capability;         /* 10 x major + minor */
    int multiprocessors;
    uint64_t memory;
    enum sim_gpu_known known;
    int l2, clock, memory_clock, bus, ecc; /* bytes, kHz, kHz, bits */
};
/* Either name, or one that people write for it; NULL: no such GPU, or several. */
const struct sim_gpu *sim_gpu_find(const char *name);
const struct sim_gpu *sim_gpu_default(void);
/* False: the attribute is the same for all. */
bool sim_gpu_attribute(const struct sim_gpu *gpu, CUdevice_attribute attribute, int *value);
/* NVLinks of a GPU whose board has NVSwitch, and NVML's number of their version; 0 and 0 for others. */
void sim_gpu_links(const struct sim_gpu *gpu, int *links, int *version);
/* Bytes of the board, as NVML has them: at least its memory. */
uint64_t sim_gpu_board(const struct sim_gpu *gpu);
/* Groups of multiprocessors of a green context. */
void sim_gpu_groups(const struct sim_gpu *gpu, unsigned *smallest, unsigned *step);

#endif
