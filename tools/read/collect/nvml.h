/* SPDX-License-Identifier: MIT
 *
 * nvml.h: reads the GPUs of this machine from NVIDIA's management library. The library is opened at
 * run time; without it everything here is unknown. Called by machine.c, the agent, doctor and
 * record. Not thread-safe: one caller at a time.
 */
#ifndef GP_COLLECT_NVML_H
#define GP_COLLECT_NVML_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GP_NVML_PROBLEM_BYTES 96

struct gp_nvml_process {
    uint32_t pid;  /* in the machine's own pid namespace */
    int64_t bytes; /* -1: unknown */
};

struct gp_nvml_gpu {
    char uuid[48];
    char name[64];
    int64_t total_bytes; /* -1 unknown */
    int64_t used_bytes;  /* -1 unknown */
    int process_count;   /* -1 unknown */
    struct gp_nvml_process *processes;
};

/* 0 with *gpus from malloc (free with gp_nvml_free), or -errno with the reason in `problem`. */
int gp_nvml_read(struct gp_nvml_gpu **gpus, int *count, char problem[GP_NVML_PROBLEM_BYTES]);
void gp_nvml_free(struct gp_nvml_gpu *gpus, int count);

#endif
