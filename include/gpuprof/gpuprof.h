/* SPDX-License-Identifier: MIT
 *
 * gpuprof.h: the public C interface of libgpuprof.so.
 *
 * A program need not call this interface to be profiled: CUDA_INJECTION64_PATH (`gpuprof run`) is
 * enough.  A program that reads its own numbers, names parts of its work or allocates from
 * gpuprof's cache calls these functions.  Link with -lgpuprof (pkg-config gpuprof), or open
 * libgpuprof.so at run time and look the functions up, as examples/stats_c.c does: then the program
 * also starts on machines without gpuprof.
 *
 * In a process that is not profiled, every function is harmless and returns an error.  Statistics
 * never start the library and never call CUDA; gpuprof_mem_get_info and the allocator do.  All
 * functions keep errno.  Any thread may call any function at any time.  A signal handler that
 * interrupted one of these functions gets the answer of an unprofiled process.  A forked child is
 * an unprofiled process, because CUDA itself cannot be used there.
 *
 * The comments name each function's counterpart in PyTorch (torch.cuda), Paddle
 * (paddle.device.cuda), TensorFlow (tf.config.experimental) and RMM, if there is one.
 * docs/statistics.md compares their meanings.
 */
#ifndef GPUPROF_H
#define GPUPROF_H

#include <stddef.h>
#include <stdint.h>

#define GPUPROF_VERSION_MAJOR 0
#define GPUPROF_VERSION_MINOR 2
#define GPUPROF_VERSION_PATCH 0

#define GPUPROF_DOTTED_(_major, _minor, _patch) #_major "." #_minor "." #_patch
#define GPUPROF_DOTTED(...)                     GPUPROF_DOTTED_(__VA_ARGS__)

/* The version of this header as text, such as "1.2.3". */
#define GPUPROF_VERSION GPUPROF_DOTTED(GPUPROF_VERSION_MAJOR, GPUPROF_VERSION_MINOR, GPUPROF_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the loaded library, in the form of GPUPROF_VERSION. */
const char *gpuprof_version(void);

/* Entry point for the CUDA driver, which loads the library that CUDA_INJECTION64_PATH names and
 * calls this function inside the first cuInit.  Always returns 1: an error switches gpuprof off and
 * does not affect the program.  Further calls do nothing. */
int InitializeInjection(void);

/* Entry point for NVTX (version 3), which loads the library that NVTX_INJECTION64_PATH names and
 * calls this function at the program's first NVTX call.  NVTX ranges and marks then become marks
 * among the events.  Returns 1, or 0 if the caller is an unknown version of NVTX. */
int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t number));

/* The same for NVTX's extensions, at the program's first call of one.  With the memory extension,
 * sub-allocators describe their heaps.  Returns 1, or 0 for another extension or an unknown
 * version. */
int InitializeInjectionNvtxExtension(void *module);

/* Returns 1 if memory is being counted in this process, otherwise 0: the library was never injected,
 * is switched off or has no source of events (another profiler holds CUPTI), the process is a
 * forked child, or the program's first cuInit has not returned yet. */
int gpuprof_active(void);

/* Returns the highest device number in use plus 1, or 0 if no device is in use.  A device comes into
 * use with its first context or allocation. */
int gpuprof_device_count(void);

/* ---- memory statistics ------------------------------------------------------------------------------------------
 *
 * These are the numbers of this process over all its threads, exact to the byte and to the call.
 * `device` is the driver's ordinal in this process.  `allocated` is the memory that the program holds,
 * `reserved` the memory that the process holds from the driver.  They differ if memory is
 * sub-allocated (gpuprof's cache, stream-ordered pools, VMM reservations).  Sizes are the requested
 * bytes; for gpuprof's cache they are the granted bytes.
 *
 * All functions return -1 on failure: the process is not profiled, the device has not been used, or
 * the number of the device is out of range (0 to 63).
 *
 * A read stops the counters for an instant and takes about a microsecond.  If pools or CUDA graphs
 * allocate memory, it also waits for the poller's query to the driver, at most 50 ms.  The reserve
 * of pools and graphs is polled, so its peak is a lower bound. */

/* Bytes that are allocated now, and their peak since the start or the last reset.
 * torch: memory_allocated, max_memory_allocated.  Paddle: the same names.
 * TensorFlow: get_memory_info()["current"], ["peak"].
 * RMM: statistics_resource_adaptor::get_bytes_counter().value, .peak. */
int64_t gpuprof_memory_allocated(int device);
int64_t gpuprof_max_memory_allocated(int device);

/* The same for reserved bytes.  torch: memory_reserved, max_memory_reserved.  Paddle: the same
 * names. */
int64_t gpuprof_memory_reserved(int device);
int64_t gpuprof_max_memory_reserved(int device);

/* Sets the peaks of allocated, active and requested bytes and of their counts to the current values,
 * at one instant; no update is lost.  Returns 0, or -1 as above.  Paddle: the same name.
 * TensorFlow: reset_memory_stats, which keeps the peak of its pool's reserved bytes.  (PyTorch's
 * deprecated alias of this name resets every peak.) */
int gpuprof_reset_max_memory_allocated(int device);
/* The same for the peaks of reserved and inactive bytes and of their counts.  Paddle: the same
 * name. */
int gpuprof_reset_max_memory_reserved(int device);
/* The same for every peak of the device.  torch: reset_peak_memory_stats. */
int gpuprof_reset_peak_memory_stats(int device);

/* Sets the totals (.allocated, .freed) and the counts of events (num_*) to 0.  Current values and
 * peaks do not change.  torch: reset_accumulated_memory_stats. */
int gpuprof_reset_accumulated_memory_stats(int device);

/* Returns the name of a statistic.  These are all statistics of torch.cuda.memory_stats under its
 * flattened names, in sorted order: "active.all.allocated" is number 0.  The order never changes;
 * later versions add names at the end.  Returns NULL after the last name.  The strings are
 * constant. */
#define GPUPROF_STATS 126u
const char *gpuprof_stat_name(unsigned index);

/* Reads all values at one instant: values[i] belongs to gpuprof_stat_name(i).  Fills at most `count`
 * values and does not change the rest of the array.  Values are bytes or counts; max_split_size is
 * -1 without a limit.  If a framework reports its blocks (PyTorch's own allocator), requested_bytes
 * and inactive_split* are -1, unknown.  Returns 0, or -1 as above.  torch: memory_stats. */
int gpuprof_memory_stats(int device, int64_t *values, unsigned count);

/* Reads the value of one name.  Returns 0, or -1 as above and for an unknown name; *value then does
 * not change. */
int gpuprof_memory_stat(int device, const char *name, int64_t *value);

/* What this process owns of a device, by whose it is: nothing that another process does changes it.
 * The rows are the libraries that asked the driver ("pytorch", "nccl", "program" for the program
 * itself); for one whose own pool is seen into, allocated is what that handed out.  The last row may be
 * "shared": memory of no single library, such as the idle part of gpuprof's cache, and what pools and
 * graphs hold.  The rows add up to allocated and reserved, unless other threads allocate meanwhile.
 * -1: unknown. */
#define GPUPROF_OWNERS 21u

struct gpuprof_owner { /* no padding */
    char name[24];
    int64_t allocated, allocated_peak, reserved, reserved_peak;
    int64_t asleep; /* blocks without memory, in neither of these */
};

struct gpuprof_owned { /* no padding */
    int64_t allocated, allocated_peak, reserved, reserved_peak;
    int64_t asleep, asleep_peak;
    int64_t pools, graphs; /* of reserved: what the driver's pools and CUDA graphs hold */
    int64_t context;       /* contexts, code, what the driver keeps: -1, as only NVML knows */
    uint64_t count;        /* rows in use */
    struct gpuprof_owner owners[GPUPROF_OWNERS];
};

/* Fills the first `bytes` bytes of *out: sizeof(*out).  Returns 0, or -1 as above. */
int gpuprof_owned(int device, struct gpuprof_owned *out, size_t bytes);

/* Reads the free and total bytes of the device that the driver reports, over all processes.  Either
 * pointer may be NULL.  The query runs in the current context if that belongs to the device,
 * otherwise in the device's primary context, which is retained for the query.  Works without
 * injection, once the driver is loaded.  Returns 0, or -1: no driver, no such device, or an error of
 * the driver.  torch: mem_get_info. */
int gpuprof_mem_get_info(int device, int64_t *free_bytes, int64_t *total_bytes);

/* Statistics of page-locked host memory (cuMemHostAlloc, cuMemAllocHost, cuMemHostRegister), as in
 * torch.cuda.host_memory_stats.  active_* is the memory in use; allocated_bytes and allocations are
 * the pinned memory.  Without a cache of pinned memory the two are equal.  Peaks are exact
 * (PyTorch's are approximations).  PyTorch's host_alloc_time and host_free_time are not measured
 * and have no name here.  Order and results are as above. */
#define GPUPROF_HOST_STATS 18u
const char *gpuprof_host_stat_name(unsigned index);
int gpuprof_host_memory_stats(int64_t *values, unsigned count);

/* `what` is GPUPROF_RESET_PEAKS (torch: reset_peak_host_memory_stats) or GPUPROF_RESET_ACCUMULATED
 * (torch: reset_accumulated_host_memory_stats).  Returns 0, or -1 as above. */
#define GPUPROF_RESET_PEAKS       0
#define GPUPROF_RESET_ACCUMULATED 1
int gpuprof_reset_host_memory_stats(int what);

/* ---- scopes and marks -------------------------------------------------------------------------------------------
 *
 * A scope tracks the peaks of every device from its begin to its end, independently of resets and of
 * other scopes.  Scopes may nest and overlap, also across threads.  `gpuprof scope` lists, begins and
 * ends the same scopes.  At most 16 are open in a process at a time.  RMM: push_counters and
 * pop_counters, which can only nest.
 *
 * Results below 0 are negative errno numbers: -ENODEV if the process is not profiled
 * (gpuprof_active() returns 0) or the device was never used, -EINVAL if the name is missing, -EBUSY if
 * all 16 scopes are in use, -ENOENT if there is no such scope.  `gpuprof scope end` may have ended
 * it. */

/* Begins a scope.  Returns its number (0 or more) for the functions below.  Several scopes may have
 * the same name.  The first 39 bytes of a name are kept. */
int gpuprof_scope_begin(const char *name);

/* Reads the scope's peaks so far on a device (or GPUPROF_HOST), in bytes.  Either pointer may be
 * NULL.  Returns 0, or -ENODEV or -ENOENT and writes nothing. */
#define GPUPROF_HOST (-1)
int gpuprof_scope_read(int scope, int device, int64_t *allocated_peak, int64_t *reserved_peak);

/* Ends a scope.  Its peaks cannot be read afterwards.  Returns 0, -ENODEV or -ENOENT. */
int gpuprof_scope_end(int scope);

/* Adds a named event to the events of the process (`gpuprof mark`, `gpuprof trace`).  The first 31
 * bytes of the name are kept.  Returns 0, -ENODEV or -EINVAL. */
int gpuprof_mark(const char *name);

/* ---- segments and blocks ----------------------------------------------------------------------------------------
 *
 * The segments and blocks that torch.cuda.memory_snapshot lists, here for all memory of the device.
 *
 * gpuprof's cache: each segment in address order, followed by its blocks, which cover it without a
 * gap.  A growable segment is a range of addresses; its unmapped blocks hold no memory.
 * The program's own allocations, in no order: each is a segment with one live block.
 * Memory of cuMemCreate: growable segments at the addresses where it is mapped, each byte once.
 * Memory that is not mapped has an idle block, whose address is the handle.
 * A reservation of addresses: a growable segment of kind `virtual` with one unmapped block. */

/* gpuprof_piece.what */
#define GPUPROF_SEGMENT 0u
#define GPUPROF_BLOCK   1u
/* .state of a block */
#define GPUPROF_LIVE     0u
#define GPUPROF_WAITING  1u /* freed, but work that uses it is still running */
#define GPUPROF_IDLE     2u
#define GPUPROF_UNMAPPED 3u /* addresses without memory */
/* .flags of a segment */
#define GPUPROF_GROWABLE 1u /* PyTorch: expandable */
#define GPUPROF_SMALL    2u /* in the small pool */
#define GPUPROF_OURS     4u /* in gpuprof's cache; otherwise an allocation of the program */

struct gpuprof_piece { /* no padding */
    uint64_t address, bytes;
    uint64_t requested_bytes; /* live blocks; otherwise 0 */
    uint64_t stream;          /* the stream that orders its reuse; 0: the default stream, or unknown */
    uint64_t pool;            /* private pool; 0: none */
    uint32_t what, state;
    uint32_t kind; /* enum gp_wire_kind of gpuprof/wire.h */
    uint32_t flags;
};

/* Writes at most `count` pieces and returns how many there are; with pieces NULL it only counts
 * them.  If there are more than `count`, call again with a larger array; other threads may allocate
 * in between.  `device` may be GPUPROF_HOST.  Allocations wait for the locks that the walk takes, so
 * do not call this in a loop.  Returns -1 as for statistics. */
int64_t gpuprof_walk(int device, struct gpuprof_piece *pieces, uint64_t count);

/* ---- caching allocator ------------------------------------------------------------------------------------------
 *
 * These functions allocate memory in the device's primary context and cache it by the policy that
 * GPUPROF_ALLOCATOR names (default: caching).  They work with and without injection, once the driver
 * is loaded.  Results are CUresult numbers: 0 success, 1 invalid value, 2 out of memory (the session
 * then has an OOM report), 3 no driver in this process or gpuprof is switched off.  Any thread may
 * call them; a forked child may not, as it may not use CUDA. */

/* Allocates a block of at least `bytes` for work on `stream` (a CUstream or cudaStream_t; NULL is
 * the legacy default stream), aligned to 512 bytes.  With 0 bytes it succeeds and sets *pointer to
 * NULL. */
int gpuprof_alloc(void **pointer, size_t bytes, int device, void *stream);
/* Frees a block.  Its stream can get the block again at once.  If work on other streams uses the
 * block, call gpuprof_record_stream before the free.  With NULL it does nothing and succeeds.
 * Returns 1 for a pointer that is not a block of gpuprof's cache. */
int gpuprof_free(void *pointer);
/* Makes a later free of the block wait for the work that is in `stream` at the free.
 * torch: Tensor.record_stream. */
int gpuprof_record_stream(void *pointer, void *stream);
/* Returns idle memory to the driver.  torch: empty_cache. */
int gpuprof_empty_cache(int device);
/* Limits the reserved bytes, to a fraction of the device's memory (torch:
 * set_per_process_memory_fraction) or to a number of bytes.  0 means no limit. */
int gpuprof_set_memory_fraction(double fraction, int device);
int gpuprof_set_memory_limit(size_t bytes, int device);
/* Private pools for graph capture.  Between begin and end, pool `id` (any number but 0) serves the
 * requests of the calling thread (any_stream not 0) or of one stream (any_stream 0).
 * gpuprof_release_pool drops the reference that gpuprof_begin_pool took. */
int gpuprof_begin_pool(uint64_t id, int device, void *stream, int any_stream);
int gpuprof_end_pool(uint64_t id, int device);
int gpuprof_release_pool(uint64_t id, int device);
/* Returns how many calls the cache made to the driver for this device since the start, or -1 as for
 * statistics.  In steady state the number stays the same. */
int64_t gpuprof_driver_calls(int device);

/* ---- PyTorch's pluggable allocator ------------------------------------------------------------------------------
 *
 * Functions for torch.cuda.memory.CUDAPluggableAllocator, which PyTorch calls.  The constructor takes
 * alloc and free; the setters set_init_fn, set_reset_fn (empty_cache), set_memory_fraction_fn,
 * set_base_alloc_fn, set_record_stream_fn, set_begin_allocate_to_pool, set_end_allocate_to_pool_fn
 * and set_release_pool take the others.  libgpuprof-shim.so exports these functions too.
 *
 * PyTorch does not check the result of gpuprof_torch_alloc.  A failed allocation therefore raises
 * torch.OutOfMemoryError if PyTorch is the caller, and returns NULL to other callers. */

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
