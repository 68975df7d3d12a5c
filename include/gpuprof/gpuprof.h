/* SPDX-License-Identifier: MIT
 *
 * gpuprof.h: the public C interface of libgpuprof.so.
 *
 * A program needs none of it to be profiled: CUDA_INJECTION64_PATH (`gpuprof run`) is enough.  It
 * is for programs that want to read their own numbers, to name parts of their work, or to allocate
 * from gpuprof's cache.  Link with -lgpuprof (pkg-config gpuprof), or open libgpuprof.so at run
 * time and look the functions up, as examples/stats_c.c does: then the program also starts where
 * gpuprof is not installed.
 *
 * In a process that is not profiled every function is harmless and its result says so.  Statistics
 * never start the library and never call CUDA; gpuprof_mem_get_info and the allocator do.  All
 * functions keep errno.  Any thread may call any function at any time, except a signal handler that
 * interrupted one of them (it gets the answer of an unprofiled process).  A forked child is an
 * unprofiled process: CUDA itself is unusable there.
 *
 * Beside each function: its counterpart in PyTorch (torch.cuda), Paddle (paddle.device.cuda),
 * TensorFlow (tf.config.experimental) and RMM, where there is one.  docs/statistics.md compares
 * what they mean.
 */
#ifndef GPUPROF_H
#define GPUPROF_H

#include <stddef.h>
#include <stdint.h>

#define GPUPROF_VERSION_MAJOR 0
#define GPUPROF_VERSION_MINOR 1
#define GPUPROF_VERSION_PATCH 0

#define GPUPROF_DOTTED_(_major, _minor, _patch) #_major "." #_minor "." #_patch
#define GPUPROF_DOTTED(...)                     GPUPROF_DOTTED_(__VA_ARGS__)

/* The version of this header as text, such as "0.1.0". */
#define GPUPROF_VERSION GPUPROF_DOTTED(GPUPROF_VERSION_MAJOR, GPUPROF_VERSION_MINOR, GPUPROF_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the loaded library, in the form of GPUPROF_VERSION. */
const char *gpuprof_version(void);

/* The CUDA driver calls it in a library that CUDA_INJECTION64_PATH names, inside the first cuInit.
 * Always returns 1: an error switches gpuprof off and does not affect the program.  Further calls
 * do nothing. */
int InitializeInjection(void);

/* NVTX (version 3) calls it in a library that NVTX_INJECTION64_PATH names, at a program's first
 * NVTX call: ranges and marks become marks among the events.  1; 0: the caller is an unknown
 * version of NVTX. */
int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t number));

/* The same for NVTX's extensions, at a program's first call of one: with the memory extension,
 * sub-allocators describe their heaps.  1; 0: another extension, or an unknown version. */
int InitializeInjectionNvtxExtension(void *module);

/* 1: memory is being counted in this process.  0: it is not: never injected, switched off, no
 * source of events (another profiler holds CUPTI), a forked child, or before the program's first
 * cuInit is through. */
int gpuprof_active(void);

/* Devices seen so far: the highest device number in use, plus 1; 0 none yet.  A device comes into
 * use with its first context or allocation. */
int gpuprof_device_count(void);

/* ---- memory statistics ------------------------------------------------------------------------------------------
 *
 * Numbers of this process, exact to the byte and to the call, whichever threads allocated and freed.  `device` is the
 * driver's ordinal in this process.  `allocated` is what the program holds, `reserved` what is held from the driver for
 * it; they differ where memory is sub-allocated (gpuprof's cache, stream-ordered pools, VMM reservations).  Bytes are
 * those asked for (of our cache: those granted).  Failure is -1 throughout: this process is not profiled, or nothing
 * has happened on that device, or it is none (below 0, above 63).
 *
 * A read takes about a microsecond (it stops the counters for an instant); where pools or CUDA graphs allocate it also
 * waits for the poller's question to the driver, at most 50 ms.  Their reserve is polled: its peak is a lower bound. */

/* Bytes allocated now, and the most at once since the start or the last reset. torch:
 * memory_allocated, max_memory_allocated.  Paddle: the same names.  TensorFlow:
 * get_memory_info()["current"], ["peak"].  RMM:
 * statistics_resource_adaptor::get_bytes_counter().value, .peak. */
int64_t gpuprof_memory_allocated(int device);
int64_t gpuprof_max_memory_allocated(int device);

/* The same for reserved bytes.  torch: memory_reserved, max_memory_reserved.  Paddle: the same
 * names. */
int64_t gpuprof_memory_reserved(int device);
int64_t gpuprof_max_memory_reserved(int device);

/* Peak := current, at one instant, with no update lost between them; 0, or -1 as above. Only
 * allocated, active and requested bytes and their counts.  Paddle: the same name.  TensorFlow:
 * reset_memory_stats, which keeps the peak of its pool's reserved bytes.  (PyTorch's deprecated
 * alias of this name resets every peak.) */
int gpuprof_reset_max_memory_allocated(int device);
/* The same, only for reserved and inactive bytes and their counts.  Paddle: the same name. */
int gpuprof_reset_max_memory_reserved(int device);
/* Every statistic of the device.  torch: reset_peak_memory_stats. */
int gpuprof_reset_peak_memory_stats(int device);

/* The totals (.allocated, .freed) and the counts of events (num_*) := 0; current values and peaks
 * stay. torch: reset_accumulated_memory_stats. */
int gpuprof_reset_accumulated_memory_stats(int device);

/* All statistics of torch.cuda.memory_stats, under its flattened names, sorted:
 * "active.all.allocated" is number 0. The order never changes: later versions add names at the
 * end.  NULL after the last; the texts are constant. */
#define GPUPROF_STATS 122u
const char *gpuprof_stat_name(unsigned index);

/* Reads all values of one instant: values[i] belongs to gpuprof_stat_name(i).  Fills as many of
 * `count` as exist and does not change the rest of the array.  Bytes and counts; max_split_size is
 * -1 without a limit.  0, or -1 as above. torch: memory_stats. */
int gpuprof_memory_stats(int device, int64_t *values, unsigned count);

/* Reads the value of that name.  0; -1 as above, also for an unknown name: *value then does not
 * change. */
int gpuprof_memory_stat(int device, const char *name, int64_t *value);

/* Free and total bytes of the device as the driver gives them, for all processes together; either
 * pointer may be NULL. The query runs in the current context if that belongs to the device, else in
 * its primary context, which is retained for the query.  Works without injection, once the driver
 * is loaded.  0; -1: no driver, no such device, or the driver's error.  torch: mem_get_info. */
int gpuprof_mem_get_info(int device, int64_t *free_bytes, int64_t *total_bytes);

/* Page-locked host memory (cuMemHostAlloc, cuMemAllocHost, cuMemHostRegister), as
 * torch.cuda.host_memory_stats: active_* is the memory in use, allocated_bytes and allocations the
 * pinned memory; without a cache of pinned memory the two are equal.  Peaks are exact (PyTorch's
 * are approximations).  PyTorch's host_alloc_time and host_free_time are left out, since they are
 * not measured here.  Order and results as above. */
#define GPUPROF_HOST_STATS 18u
const char *gpuprof_host_stat_name(unsigned index);
int gpuprof_host_memory_stats(int64_t *values, unsigned count);

/* what: GPUPROF_RESET_PEAKS (torch: reset_peak_host_memory_stats) or GPUPROF_RESET_ACCUMULATED
 * (reset_accumulated_host_memory_stats).  0, or -1 as above. */
#define GPUPROF_RESET_PEAKS       0
#define GPUPROF_RESET_ACCUMULATED 1
int gpuprof_reset_host_memory_stats(int what);

/* ---- scopes and marks -------------------------------------------------------------------------------------------
 *
 * A scope is a peak of its own: from its begin to its end, on every device, disturbed by nobody's reset and by no other
 * scope.  Scopes nest and overlap as they like, across threads too.  They are those that `gpuprof scope` lists, begins
 * and ends: 16 at most are open in a process at a time.  RMM: push_counters and pop_counters, which nest only.
 *
 * Results below 0 are errno numbers: -ENODEV not profiled (as gpuprof_active() == 0, or a device that was never used),
 * -EINVAL no name, -EBUSY all 16 in use, -ENOENT no such scope (any more: anybody may end it with `gpuprof scope
 * end`). */

/* Starts a scope and returns its number >= 0 for the functions below.  Several scopes may have one
 * name, of which 39 bytes are kept. */
int gpuprof_scope_begin(const char *name);

/* The peaks so far on a device (or GPUPROF_HOST), in bytes; either pointer may be NULL.  0,
 * -ENODEV, -ENOENT: then nothing is written. */
#define GPUPROF_HOST (-1)
int gpuprof_scope_read(int scope, int device, int64_t *allocated_peak, int64_t *reserved_peak);

/* 0, -ENODEV, -ENOENT.  Read it first: its peaks go with it. */
int gpuprof_scope_end(int scope);

/* A named point among the events of the process (`gpuprof mark`, `gpuprof trace`); 31 bytes of the
 * name are kept. 0, -ENODEV, -EINVAL. */
int gpuprof_mark(const char *name);

/* ---- memory piece by piece --------------------------------------------------------------------------------------
 *
 * What torch.cuda.memory_snapshot lists, for all memory of the device.  Of gpuprof's cache: each segment in address
 * order, followed by its blocks, which cover it without gap; a growable one is a range of addresses, of which the
 * unmapped blocks hold no memory.  Of the program's own calls, in no order: each as a segment of its own with one live
 * block.  Memory of cuMemCreate is listed where it is mapped, as growable segments, each byte once; what is not mapped
 * has an idle block, with the handle for an address.  A reservation of addresses is a growable segment with one unmapped
 * block, of kind `virtual`. */

/* gpuprof_piece.what */
#define GPUPROF_SEGMENT 0u
#define GPUPROF_BLOCK   1u
/* .state of a block */
#define GPUPROF_LIVE     0u
#define GPUPROF_WAITING  1u /* freed, and work that uses it is not through */
#define GPUPROF_IDLE     2u
#define GPUPROF_UNMAPPED 3u /* addresses without memory */
/* .flags of a segment */
#define GPUPROF_GROWABLE 1u /* PyTorch: expandable */
#define GPUPROF_SMALL    2u /* of the small pool */
#define GPUPROF_OURS     4u /* of gpuprof's cache; else an allocation of the program */

struct gpuprof_piece { /* no padding */
    uint64_t address, bytes;
    uint64_t requested_bytes; /* of live blocks; else 0 */
    uint64_t stream;          /* that it is ordered by; 0 the default one, or not known */
    uint64_t pool;            /* private pool; 0 none */
    uint32_t what, state;
    uint32_t kind; /* enum gp_wire_kind of gpuprof/wire.h */
    uint32_t flags;
};

/* Writes at most `count` pieces (pieces may be NULL: none) and returns how many there are: if more,
 * call again with more room, since others may allocate meanwhile.  device: also GPUPROF_HOST.  Each
 * of the two parts is walked under locks that allocations wait for: for snapshots, not for a loop.
 * -1 as for statistics. */
int64_t gpuprof_walk(int device, struct gpuprof_piece *pieces, uint64_t count);

/* ---- caching allocator ------------------------------------------------------------------------------------------
 *
 * Memory of the device's primary context, cached by the policy that GPUPROF_ALLOCATOR names (default: caching).  Works
 * with and without injection, once the driver is loaded.  Results are CUresult numbers: 0 success, 2 out of memory (an
 * OOM report is then in the session), 3 no driver in this process or gpuprof is switched off, 1 invalid value.  Any
 * thread; a forked child may not call them (as it may not use CUDA). */

/* A block of at least `bytes` for work on `stream` (a CUstream or cudaStream_t; NULL is the legacy
 * default stream), aligned to 512 bytes.  bytes 0: *pointer is NULL, success. */
int gpuprof_alloc(void **pointer, size_t bytes, int device, void *stream);
/* The block may be given again at once to the stream that it was allocated for.  If work on other
 * streams uses it, say so before with gpuprof_record_stream.  NULL: nothing.  1: not a block of
 * ours. */
int gpuprof_free(void *pointer);
/* As torch.Tensor.record_stream: when freed, the block waits for the work that is then in `stream`. */
int gpuprof_record_stream(void *pointer, void *stream);
/* Gives idle memory back to the driver (torch.cuda.empty_cache). */
int gpuprof_empty_cache(int device);
/* Most bytes that may be reserved, as a fraction of the device's total
 * (torch.cuda.set_per_process_memory_fraction) or in bytes; 0: no limit. */
int gpuprof_set_memory_fraction(double fraction, int device);
int gpuprof_set_memory_limit(size_t bytes, int device);
/* Private pools for graph capture: between begin and end, requests of the calling thread
 * (any_stream not 0) or those for one stream come from pool `id` (any number but 0); release drops
 * the reference that begin took. */
int gpuprof_begin_pool(uint64_t id, int device, void *stream, int any_stream);
int gpuprof_end_pool(uint64_t id, int device);
int gpuprof_release_pool(uint64_t id, int device);
/* Calls that the cache made to the driver for this device since the start: steady state means that
 * it stands still; -1 as for statistics. */
int64_t gpuprof_driver_calls(int device);

/* ---- PyTorch's pluggable allocator ------------------------------------------------------------------------------
 *
 * The functions that torch.cuda.memory.CUDAPluggableAllocator takes, by the setter that takes each: alloc and free are
 * the constructor's; set_init_fn, set_reset_fn (empty_cache), set_memory_fraction_fn, set_base_alloc_fn,
 * set_record_stream_fn, set_begin_allocate_to_pool, set_end_allocate_to_pool_fn, set_release_pool.  PyTorch calls them;
 * libgpuprof-shim.so exports them too.  A failed allocation raises torch.OutOfMemoryError where PyTorch would not notice
 * it, and is NULL for other callers. */

struct gpuprof_torch_pool { /* c10::MempoolId_t, by value */
    unsigned long long first, second;
};
void *gpuprof_torch_alloc(size_t bytes, int device, void *stream);
void gpuprof_torch_free(void *pointer, size_t bytes, int device, void *stream);
void gpuprof_torch_init(int devices);
void gpuprof_torch_reset(void);
void gpuprof_torch_set_memory_fraction(double fraction, int device);
void *gpuprof_torch_base_alloc(void *pointer, size_t *bytes);
void gpuprof_torch_record_stream(void *pointer, void *stream);
/* filter: a std::function<bool(cudaStream_t)>, which C++ passes by value as a pointer to it. */
void gpuprof_torch_begin_allocate_to_pool(int device, struct gpuprof_torch_pool id, void *filter);
void gpuprof_torch_end_allocate_to_pool(int device, struct gpuprof_torch_pool id);
void gpuprof_torch_release_pool(int device, struct gpuprof_torch_pool id);

#ifdef __cplusplus
}
#endif

#endif
