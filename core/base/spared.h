/* SPDX-License-Identifier: MIT
 *
 * spared.h: programs in which gpuprof does not start, by the name of their file. The library is
 * loaded into each program that inherits CUDA_INJECTION64_PATH. In these, CUPTI could touch every
 * program of the machine, or take the tool's own place. Read by inject/, by `gpuprof attach` and by
 * `gpuprof doctor`. Needs only libc.
 */
#ifndef GP_BASE_SPARED_H
#define GP_BASE_SPARED_H

#include <stddef.h>
#include <string.h>

/* What the program is, if gpuprof spares it, else NULL. path: of its file, as in /proc/PID/exe. */
static inline const char *gp_spared(const char *path)
{
    static const struct {
        const char *prefix, *what;
    } spared[] = {
        {"nvidia-cuda-mps-", "the MPS service, which runs other programs' work"},
        {"nvidia-persistenced", "NVIDIA's persistence daemon"},
        {"nvidia-smi", "NVIDIA's management tool"},
        {"nv-hostengine", "NVIDIA's monitoring daemon (DCGM)"},
        {"cuda-gdb", "a debugger, which CUPTI excludes"},
        {"cuda-checkpoint", "NVIDIA's checkpoint tool, which CUPTI excludes"},
        {"compute-sanitizer", "a checker of NVIDIA's, which needs CUPTI's place itself"},
        {"ncu", "Nsight Compute, which needs CUPTI's place itself"},
        {"nsys", "Nsight Systems, which needs CUPTI's place itself"},
    };
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof(spared) / sizeof(spared[0]); i++) {
        size_t length = strlen(spared[i].prefix);
        if (strncmp(name, spared[i].prefix, length) != 0)
            continue;
        /* ncu and nsys are short: only that name, or one such as nsys-launcher. */
        if (length > 4 || !name[length] || name[length] == '-' || name[length] == ' ')
            return spared[i].what;
    }
    return NULL;
}

#endif
