/* SPDX-License-Identifier: MIT
 *
 * gpuprof.h: the public C interface of libgpuprof.so.  The library works without it: CUDA_INJECTION64_PATH is enough.
 */
#ifndef GPUPROF_H
#define GPUPROF_H

#define GPUPROF_VERSION_MAJOR 0
#define GPUPROF_VERSION_MINOR 1
#define GPUPROF_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version, "0.1.0".  Any thread. */
const char *gpuprof_version(void);

/* What the CUDA driver calls in a library that CUDA_INJECTION64_PATH names, inside the first cuInit.  Always returns 1:
 * whatever goes wrong switches gpuprof off and leaves the program alone.  Further calls do nothing. */
int InitializeInjection(void);

#ifdef __cplusplus
}
#endif

#endif
