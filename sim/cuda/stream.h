/* SPDX-License-Identifier: MIT
 * Streams and order: shared by stream.c, order.c, event.c, launch.c, capture.c, graph.c, pool.c, vmm.c,
 * multicast.c and hazard.c, with the functions that the core (copies, contexts, frees) calls.
 *
 * All functions here are called with the simulator's one lock held unless their line says
 * otherwise.
 *
 * Work is done at once, in the order of the API calls, which is one of the orders that the streams
 * permit; only host functions run later, on a worker.  "Finished" therefore depends on two values
 * in struct sim_point: the virtual time at which the device would be done, and the vector clock of
 * the order that the program guarantees, which says too which host functions must have run. */
#ifndef SIM_STREAM_H
#define SIM_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/sim.h"

/* realloc that never returns NULL: a simulator without memory for its own books has nothing to say. */
void *sim_grow(void *old, size_t bytes);

/* ---- order (hazard.c) -------------------------------------------------------------------------------------------- */
/* at[slot] = how far that slot's work is known to precede; missing slots count as 0. */
struct sim_vector {
    uint32_t count;
    uint64_t *at;
};
uint64_t sim_vector_get(const struct sim_vector *v, uint32_t slot);
void sim_vector_set(struct sim_vector *v, uint32_t slot, uint64_t epoch);
void sim_vector_join(struct sim_vector *into, const struct sim_vector *from);
bool sim_vector_covers(const struct sim_vector *v, const struct sim_vector *past);
void sim_vector_drop(struct sim_vector *v);
/* The host's clock: the work that it has waited for. */
struct sim_vector *sim_host(void);
uint32_t sim_slot_take(void);
void sim_slot_retire(uint32_t slot);
uint64_t sim_slot_tick(uint32_t slot);

/* api must be a literal: it is kept.  device: whose ledger counts the hazard. */
void sim_shadow_access(int device, uint32_t slot, uint64_t epoch, const struct sim_vector *clock, CUdeviceptr p,
                       size_t bytes, bool write, const char *api);
void sim_shadow_host(int device, CUdeviceptr p, size_t bytes, const char *api);
void sim_hazard_report(int device, CUdeviceptr at, size_t bytes, const char *api, const char *why);
/* The range's history ends: its address means something else from now on. */
void sim_shadow_forget(CUdeviceptr p, size_t bytes);

/* A position in the device's work. */
struct sim_point {
    struct sim_vector clock;
    uint64_t finish_ns; /* virtual time */
    bool host;          /* host functions may go before it: those that the clock covers */
};
void sim_point_join(struct sim_point *into, const struct sim_point *from);
void sim_point_copy(struct sim_point *into, const struct sim_point *from);
void sim_point_drop(struct sim_point *p);
bool sim_point_finished(const struct sim_point *p);
/* Blocks until p is finished (the lock is dropped while a host function runs); then the host knows
 * of it. */
void sim_point_wait(const struct sim_point *p);
/* Waits only for the host functions before p: copies run on the calling thread and must not
 * overtake them. */
void sim_point_wait_host(const struct sim_point *p);
/* Queues fn for the worker, as the operation that has begun in s; NULL: after everything queued so far. */
struct sim_stream;
void sim_host_enqueue(void (*fn)(void *), void *data, struct sim_stream *s);
/* The host has observed that p is finished. */
void sim_point_observe(const struct sim_point *p);

/* ---- streams (stream.c) ------------------------------------------------------------------------------------------ */
/* BRANCH: a chain of a running graph.  REST: what destroyed streams left unfinished. */
enum sim_stream_kind {
    SIM_STREAM_CREATED,
    SIM_STREAM_LEGACY,
    SIM_STREAM_PER_THREAD,
    SIM_STREAM_BRANCH,
    SIM_STREAM_REST
};

struct sim_capture;
struct sim_node;
struct sim_nodes { /* a set of nodes in order of joining */
    struct sim_node **at;
    size_t count;
};

struct sim_stream {
    uint64_t magic;
    struct sim_stream *next;
    struct sim_context *context;
    int device;
    enum sim_stream_kind kind;
    bool non_blocking;
    int priority;
    unsigned int flags;
    unsigned long long id;
    int thread; /* owner of a per-thread default stream */
    CUgreenCtx green;
    uint32_t slot;
    struct sim_point point;
    struct sim_capture *capture;
    struct sim_nodes frontier; /* while capturing: the nodes that the next node depends on */
    CUstreamAttrValue attribute[CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING + 1];
};

/* h as the program gave it: the running call says which default stream NULL means. */
CUresult sim_stream_resolve(CUstream h, struct sim_stream **out);
bool sim_stream_valid(CUstream h);
struct sim_stream *sim_stream_first(void);
struct sim_stream *sim_stream_branch(struct sim_context *c, int device); /* graph launches: an actor off the list */
void sim_stream_drop(struct sim_stream *s);
CUresult sim_stream_new(CUstream *out, struct sim_context *c, unsigned int flags, int priority, CUgreenCtx green);
/* Orders s after the host and the default-stream rules, without work of its own (event record,
 * wait). */
void sim_stream_order(struct sim_stream *s);
/* An operation with work starts in s: order, capture rules, wait for earlier host functions, a new
 * epoch. */
CUresult sim_op_begin(struct sim_stream *s);
/* Checked work runs in s: hazards, bytes, virtual time.  After sim_op_begin. */
void sim_work_do(struct sim_stream *s, const struct sim_work *work);
void sim_stream_charge(struct sim_stream *s, uint64_t device_ns);
/* The running operation of s touches a range: hazards.  Ranges outside device memory are ignored. */
void sim_access(struct sim_stream *s, CUdeviceptr p, size_t bytes, bool write, const char *api);
void sim_host_sync_stream(struct sim_stream *s);
/* Everything on the device has finished and the host knows it; SIM_ALL_DEVICES for all. */
#define SIM_ALL_DEVICES (-1)
void sim_host_sync_device(int device);

/* ---- capture (capture.c) ----------------------------------------------------------------------------------------- */
struct sim_event;
bool sim_stream_capturing(const struct sim_stream *s);
/* Rule for calls that can never be made on a capturing stream (query, synchronize). */
CUresult sim_capture_refuse(struct sim_stream *s);
CUresult sim_capture_implicit(const struct sim_stream *s);
CUresult sim_capture_work(struct sim_stream *s, const struct sim_work *work);
CUresult sim_capture_node(struct sim_stream *s, CUgraphNodeParams *params, struct sim_node **out);
CUresult sim_capture_event_record(struct sim_stream *s, struct sim_event *e, bool external);
CUresult sim_capture_event_wait(struct sim_stream *s, struct sim_event *e, bool external);
void sim_capture_stream_gone(struct sim_stream *s);
void sim_capture_event_clear(struct sim_event *e);
/* Rule for the host's questions to an event that was recorded in a capture. */
CUresult sim_capture_event_refuse(struct sim_event *e);
void sim_nodes_add(struct sim_nodes *n, struct sim_node *node);
void sim_nodes_drop(struct sim_nodes *n);

/* ---- events (event.c) -------------------------------------------------------------------------------------------- */
struct sim_event {
    uint64_t magic;
    struct sim_event *next;
    struct sim_context *context;
    unsigned int flags;
    bool recorded;
    struct sim_point point;
    struct sim_capture *capture; /* last recorded inside a capture */
    struct sim_nodes frontier;
};
CUresult sim_event_find(CUevent h, struct sim_event **out);
CUresult sim_event_record(struct sim_event *e, struct sim_stream *s);
void sim_event_wait(struct sim_event *e, struct sim_stream *s);
void sim_context_events_end(struct sim_context *c);
struct sim_event *sim_event_first(void);

/* ---- kernels (launch.c) ------------------------------------------------------------------------------------------ */
/* The device pointers among a kernel's parameters, copied out at launch or node creation. */
struct sim_kernel_pointers {
    uint32_t count;
    CUdeviceptr at[64];
};
CUresult sim_kernel_pointers(CUfunction f, void **params, void **extra, struct sim_kernel_pointers *out);
CUresult sim_launch(const CUlaunchConfig *c, CUfunction h, void **params, void **extra);
void sim_kernel_run(struct sim_stream *s, const struct sim_kernel_pointers *p, uint64_t threads);
/* kernels.c: counts a kernel that starts, for the runs that compare. From any thread. */
void sim_kernels_add(void);
void sim_kernels_stack(uint32_t bytes); /* the same for what each thread of a context has */

/* ---- pools (pool.c, poolorder.c) --------------------------------------------------------------------------------- */
/* cuMemFree of pool memory; in stream order. */
CUresult sim_pool_free(struct sim_memory *m);
CUresult sim_pool_free_async(struct sim_memory *m, struct sim_stream *s);
/* The host has waited for work: frees memory above the thresholds. */
void sim_pools_observe(void);
/* The address lies in a pool's backing memory, allocated or not. */
bool sim_pool_covers(CUdeviceptr address);
CUresult sim_pool_find(CUmemoryPool h, struct sim_pool **out);

/* Granularity of virtual memory: what drivers of the last generations answer for device memory. */
#define SIM_VMM_GRANULARITY ((size_t)SIM_PAGE)

/* ---- graphs (graph*.c) ------------------------------------------------------------------------------------------- */
CUresult sim_graph_capture_alloc(struct sim_stream *s, const CUmemPoolProps *props, size_t bytes, CUdeviceptr *out);
CUresult sim_graph_capture_free(struct sim_stream *s, struct sim_memory *m);
CUresult sim_graph_free(struct sim_memory *m);
CUresult sim_graph_free_async(struct sim_memory *m, struct sim_stream *s);
uint64_t sim_graph_reclaim(int device);

/* event.c */
extern struct sim_event *sim_events;
void sim_event_drop(struct sim_event *e);

/* stream.c */
struct sim_stream *sim_stream_special(struct sim_context *c, enum sim_stream_kind kind, int thread, bool make);

#endif
