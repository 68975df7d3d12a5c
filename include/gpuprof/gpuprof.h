/* SPDX-License-Identifier: MIT
 *
 * gpuprof.h: the public C interface of libgpuprof.so.  The library works without it: CUDA_INJECTION64_PATH is enough.
 */
#ifndef GPUPROF_H
#define GPUPROF_H

#include <stddef.h>
#include <stdint.h>

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

/* ---- memory statistics ------------------------------------------------------------------------------------------
 *
 * Numbers of this process on one device (the driver's ordinal), exact, as PyTorch's torch.cuda.* of the same names.  -1: this
 * process is not profiled, or nothing happened on that device.  Any thread. */
int64_t gpuprof_memory_allocated(int device);
int64_t gpuprof_max_memory_allocated(int device);
int64_t gpuprof_memory_reserved(int device);
int64_t gpuprof_max_memory_reserved(int device);
/* Peak := current for allocated (reserved) alone, as Paddle's functions of these names; for all statistics.  0, or -1 as
 * above. */
int gpuprof_reset_max_memory_allocated(int device);
int gpuprof_reset_max_memory_reserved(int device);
int gpuprof_reset_peak_memory_stats(int device);

/* ---- caching allocator ------------------------------------------------------------------------------------------
 *
 * Memory of the device's primary context, cached by the policy that GPUPROF_ALLOCATOR names (default: caching).  Works
 * with and without injection, once the driver is loaded.  Results are CUresult numbers: 0 success, 2 out of memory (an OOM
 * report is then in the session), 3 no driver in this process or gpuprof is switched off, 1 invalid value.  Any thread;
 * a forked child may not call them (as it may not use CUDA). */

/* A block of at least `bytes` for work on `stream` (a CUstream or cudaStream_t; NULL is the legacy default stream),
 * aligned to 512 bytes.  bytes 0: *pointer is NULL, success. */
int gpuprof_alloc(void **pointer, size_t bytes, int device, void *stream);
/* The block may be given again at once to the stream that it was allocated for.  If work on other streams uses it, say so before
 * with gpuprof_record_stream.  NULL: nothing.  1: not a block of ours. */
int gpuprof_free(void *pointer);
/* As torch.Tensor.record_stream: when freed, the block waits for the work that is then in `stream`. */
int gpuprof_record_stream(void *pointer, void *stream);
/* Gives idle memory back to the driver (torch.cuda.empty_cache). */
int gpuprof_empty_cache(int device);
/* Most bytes that may be reserved, as a fraction of the device's total (torch.cuda.set_per_process_memory_fraction) or in
 * bytes; 0: no limit. */
int gpuprof_set_memory_fraction(double fraction, int device);
int gpuprof_set_memory_limit(size_t bytes, int device);
/* Private pools for graph capture: between begin and end, requests of the calling thread (any_stream not 0) or those
 * for one stream come from pool `id` (any number but 0); release drops the reference that begin took. */
int gpuprof_begin_pool(uint64_t id, int device, void *stream, int any_stream);
int gpuprof_end_pool(uint64_t id, int device);
int gpuprof_release_pool(uint64_t id, int device);
/* Calls that the cache made to the driver for this device since the start: steady state means that it stands still. */
int64_t gpuprof_driver_calls(int device);

#ifdef __cplusplus
}
#endif

#endif
