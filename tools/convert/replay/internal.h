/* SPDX-License-Identifier: MIT
 *
 * internal.h: declarations that the files of replay/ share. No other folder includes it.
 */
#ifndef GP_CONVERT_REPLAY_INTERNAL_H
#define GP_CONVERT_REPLAY_INTERNAL_H

#include "convert/replay/replay.h"

/* ==== what a replay calls ========================================================================================= */
/* The functions that a replay calls: the simulated driver, the product's C interface and the
 * ledger.  Only the replay's child opens them; the command links none of them. */

/* Name, result type, parameters: each becomes a pointer of that name.  The types of cuda.h are
 * spelled out. */
#define GP_REPLAY_DRIVER_CALLS(X)                                                                                      \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuDeviceGet, (int *device, int ordinal))                                                                         \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                                          \
    X(cuCtxSetCurrent, (void *context))                                                                                \
    X(cuCtxSynchronize, (void))                                                                                        \
    X(cuStreamCreate, (void **stream, unsigned flags))                                                                 \
    X(cuStreamSynchronize, (void *stream))                                                                             \
    X(cuStreamWaitEvent, (void *stream, void *event, unsigned flags))                                                  \
    X(cuEventCreate, (void **event, unsigned flags))                                                                   \
    X(cuEventRecord, (void *event, void *stream))                                                                      \
    X(cuMemsetD32Async, (uint64_t pointer, unsigned value, size_t count, void *stream))                                \
    X(cuMemcpyDtoHAsync_v2, (void *host, uint64_t pointer, size_t bytes, void *stream))                                \
    X(sim_ledger_write, (const char *path))
#define GP_REPLAY_PRODUCT_CALLS(X)                                                                                     \
    X(gpuprof_alloc, (void **pointer, size_t bytes, int device, void *stream))                                         \
    X(gpuprof_free, (void *pointer))                                                                                   \
    X(gpuprof_record_stream, (void *pointer, void *stream))                                                            \
    X(gpuprof_empty_cache, (int device))                                                                               \
    X(gpuprof_set_memory_limit, (size_t bytes, int device))                                                            \
    X(gpuprof_begin_pool, (uint64_t id, int device, void *stream, int any_stream))                                     \
    X(gpuprof_end_pool, (uint64_t id, int device))                                                                     \
    X(gpuprof_release_pool, (uint64_t id, int device))

struct gp_replay_driver {
#define GP_REPLAY_POINTER(_name, _parameters) int(*_name) _parameters;
    GP_REPLAY_DRIVER_CALLS(GP_REPLAY_POINTER)
    GP_REPLAY_PRODUCT_CALLS(GP_REPLAY_POINTER)
#undef GP_REPLAY_POINTER
    int64_t (*gpuprof_max_memory_reserved)(int device);
};

/* Opens both libraries under an environment set for this run.  0, or -errno with a sentence. */
int gp_replay_driver_open(struct gp_replay_driver *driver, const struct gp_replay_settings *settings, char *why,
                          size_t why_bytes);

/* ---- ledger.c: the simulated GPU's truth ------------------------------------------------------------------------- */

struct gp_replay_ledger {
    uint64_t simulated_ns;
    uint32_t device_count, call_count;
    struct {
        uint64_t reserved, reserved_peak, hazards;
    } devices[GP_REPLAY_DEVICES];
    struct {
        char name[40];
        uint64_t calls;
    } calls[256];
};

/* Makes the simulator write its ledger to `path` and reads it.  0 or -errno. */
int gp_replay_ledger_take(struct gp_replay_ledger *ledger, const struct gp_replay_driver *driver, const char *path);
/* Computes the driver's figures of the result from the ledgers at the start, in the middle and at
 * the end. */
void gp_replay_ledger_count(struct gp_replay_result *result, const struct gp_replay_ledger *begin,
                            const struct gp_replay_ledger *half, const struct gp_replay_ledger *end);

/* ---- verify.c: patterns and overlaps ----------------------------------------------------------------------------- */

struct gp_replay_verify;
/* NULL: no memory, or no event.  contexts: one per device. */
struct gp_replay_verify *gp_replay_verify_new(const struct gp_replay_driver *driver, struct gp_replay_result *result,
                                              void *const *contexts, uint32_t devices);
/* Makes this device current for the next calls of the calling thread. */
void gp_replay_verify_on(struct gp_replay_verify *verify, uint32_t device);
void gp_replay_verify_free(struct gp_replay_verify *verify);
/* A new block: checks that it overlaps none, fills it with its own pattern on its stream. */
void gp_replay_verify_alloc(struct gp_replay_verify *verify, uint32_t block, uint64_t address, uint64_t bytes,
                            void *stream);
/* Reads the block on another stream, ordered behind the work of its own stream, as a program does. */
void gp_replay_verify_use(struct gp_replay_verify *verify, uint32_t block, uint64_t address, uint64_t bytes, void *own,
                          void *stream);
/* Reads the block for the last time, on its own stream, and forgets it. */
void gp_replay_verify_release(struct gp_replay_verify *verify, uint32_t block, uint64_t address, uint64_t bytes,
                              void *stream);
/* Waits for the reads of all devices and compares the bytes.  The reads themselves call it when the
 * ring is full. */
void gp_replay_verify_settle(struct gp_replay_verify *verify);

/* ==== the replay's child ========================================================================================== */
/* The replay's child, from its first line to its last; isolate.c forks and waits for it. */

/* Fills *result, which is shared with the parent; errors are in result->complete and result->why
 * only.  `folder` takes the ledgers. */
void gp_replay_play(const struct gp_replay_trace *trace, const struct gp_replay_settings *settings, const char *folder,
                    struct gp_replay_result *result);

#endif
