/* SPDX-License-Identifier: MIT
 *
 * nvtx.h: NVTX ranges and marks as marks among the events: "nvtx:NAME" where a range begins,
 * "/nvtx:NAME" where it ends, "nvtx.NAME" for an instant.  A program with NVTX version 3 in it
 * loads us for that, if NVTX_INJECTION64_PATH says so (InitializeInjectionNvtx2, gpuprof.h),
 * whether or not it ever calls CUDA; docs/nvtx.md.
 */
#ifndef GP_SOURCE_NVTX_H
#define GP_SOURCE_NVTX_H

#include <stdbool.h>

/* Events can be written from here on; what NVTX says before is not kept.  Called by inject/, once. */
void gp_nvtx_start(void);

/* gp_thread_enter, after gp_nvtx_start. */
bool gp_nvtx_enter(void);

#endif
