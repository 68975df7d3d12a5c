/* SPDX-License-Identifier: MIT
 *
 * internal.h: declarations that the files of replay/ share. No other folder includes it.
 */
#ifndef GP_CONVERT_REPLAY_INTERNAL_H
#define GP_CONVERT_REPLAY_INTERNAL_H

#include "convert/replay/replay.h"

/* ==== what a generator works with ================================================================================= */
/* What a generator of traces (replay.h) works with.  Every function does nothing after the first
 * error, so a generator needs no error handling of its own.  One thread per gp_gen. */

#define GP_KIB (1ull << 10)
#define GP_MIB (1ull << 20)
#define GP_GIB (1ull << 30)
/* Bytes of a 16-bit and of a 32-bit number. */
#define GP_HALF   2ull
#define GP_SINGLE 4ull

struct gp_gen {
    struct gp_replay_builder builder;
    uint64_t random;
    uint64_t names;       /* block names used so far; a name is never 0 */
    uint32_t scale_milli; /* length of the trace; 1000: as written */
    uint32_t thread, stream;
    int rc; /* the first error */
};

/* Allocates on g->stream and g->thread.  Returns the block's name; 0 for 0 bytes (no tensor). */
uint64_t gp_gen_alloc(struct gp_gen *g, uint64_t bytes);
void gp_gen_free(struct gp_gen *g, uint64_t name); /* name 0 does nothing */
void gp_gen_record(struct gp_gen *g, uint64_t name, uint32_t stream);
void gp_gen_other(struct gp_gen *g, enum gp_replay_kind kind, uint64_t number);
void gp_gen_mark(struct gp_gen *g, const char *name);
/* A tensor that lives for one operation. */
void gp_gen_temporary(struct gp_gen *g, uint64_t bytes);

/* `count` times the scale, at least `least`. */
uint32_t gp_gen_scaled(const struct gp_gen *g, uint32_t count, uint32_t least);
uint64_t gp_gen_random(struct gp_gen *g);
uint64_t gp_gen_below(struct gp_gen *g, uint64_t limit);                /* 0 .. limit - 1 */
uint64_t gp_gen_between(struct gp_gen *g, uint64_t low, uint64_t high); /* both included */
bool gp_gen_chance(struct gp_gen *g, uint32_t of_1000);
/* Log-normal: median, and sigma in thousandths. */
uint64_t gp_gen_lognormal(struct gp_gen *g, uint64_t median, uint32_t sigma_milli);

/* A stack of tensors, which a forward pass keeps for the backward pass. */
struct gp_gen_tensor {
    uint64_t name, bytes;
};
struct gp_gen_stack {
    struct gp_gen_tensor *at;
    uint32_t count, room;
};
void gp_gen_push(struct gp_gen *g, struct gp_gen_stack *stack, uint64_t bytes);                /* allocates */
void gp_gen_keep(struct gp_gen *g, struct gp_gen_stack *stack, uint64_t name, uint64_t bytes); /* an existing block */
/* Removes the topmost tensor; the caller frees it.  0 bytes when the stack is empty. */
struct gp_gen_tensor gp_gen_pop(struct gp_gen_stack *stack);
void gp_gen_drop(struct gp_gen *g, struct gp_gen_stack *stack); /* frees all tensors, oldest first, and the array */

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

/* ---- play.c: the simulated GPU's truth --------------------------------------------------------------------------- */

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
