/* SPDX-License-Identifier: MIT
 *
 * feed.h: the only door into the accounts.  Sources (CUPTI callbacks, driver hooks) say here, in plain numbers, what
 * the driver did; nothing in account/ knows CUDA types.  Every function runs inside a gp_thread_enter/leave pair on the
 * application's thread (the gp_feed_poll_* ones on the poller's), takes no lock longer than a map shard's or the
 * counters' slow path, makes no system call in the common case, never allocates from malloc and never fails: what it
 * cannot do is counted in the session's `lost`.
 *
 * Begin/end pairs bracket a driver call that gives something up: begin takes it out of the map before the driver can
 * hand the address to another thread, end settles it (ok) or puts everything back as it was.  The token between them is
 * never 0 for a call that was begun; 0 means that we knew nothing of the address.
 */
#ifndef GP_ACCOUNT_FEED_H
#define GP_ACCOUNT_FEED_H

#include "base/compiler.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_ring;

/* What an address or handle is: keys of one space never meet those of another. */
enum gp_space {
    GP_SPACE_NONE,
    GP_SPACE_DEVICE, /* device addresses: linear, pitched, managed, pool, mapped external buffers */
    GP_SPACE_HOST,   /* pinned host memory */
    GP_SPACE_REGISTERED,
    GP_SPACE_ARRAY,
    GP_SPACE_VMM,     /* allocation handles */
    GP_SPACE_MAPPING, /* mapped addresses, and bindings to multicast objects */
    GP_SPACE_RANGE,   /* address reservations */
    GP_SPACE_POOL,
    GP_SPACE_GRAPH, /* addresses of graph allocation nodes */
    GP_SPACE_IPC,
    GP_SPACE_STREAM,
    GP_SPACE_MODULE,
    GP_SPACE_PENDING,        /* mappings being unmapped */
    GP_SPACE_PENDING_HANDLE, /* handles that the unmap under way would free */
};

#define GP_DEVICE_UNKNOWN (-1)

/* ---- blocks: one address, one owner --------------------------------------------------------------------------- */

struct gp_allocation {
    enum gp_space space;
    enum gp_wire_kind kind;
    int device;   /* index in the session (GP_WIRE_HOST for host memory) or GP_DEVICE_UNKNOWN */
    uint32_t ctx; /* context that owns it; 0: none, survives contexts */
    uint64_t address;
    uint64_t bytes;           /* granted */
    uint64_t requested_bytes; /* asked for */
    uint64_t stream;
    uint64_t pool;  /* created pool that it came from; 0 none or the default one */
    bool estimated; /* bytes are a guess (arrays) */
};

void gp_feed_alloc(const struct gp_allocation *block);
uint32_t gp_feed_free_begin(enum gp_space space, uint64_t address);
void gp_feed_free_end(uint32_t token, bool ok, uint64_t stream);
/* The driver freed something that we never saw. */
void gp_feed_unknown_free(enum gp_space space, uint64_t address);

/* A call failed with the driver's error; requested bytes for OOM, device as above. */
void gp_feed_failed(const char *api, uint32_t error, uint64_t requested_bytes, int device);
#define GP_ERROR_OUT_OF_MEMORY 2u /* CUDA_ERROR_OUT_OF_MEMORY */
/* Right after gp_feed_failed with GP_ERROR_OUT_OF_MEMORY, on the same thread, outside our cache: the current context,
 * in which the driver can be asked for its free bytes.  Waits for the poller's answer, at most 5 ms. */
void gp_feed_oom_context(uint32_t ctx, uint64_t context);
/* Occurrences that are counted and not decoded. */
void gp_feed_lost(enum gp_wire_lost cause);

/* ---- virtual memory management -------------------------------------------------------------------------------- */

/* Rules (cuda.h: cuMemRelease, cuMemMap, cuMemUnmap): physical memory lives while references or mappings do; a handle
 * mapped twice hands out its memory once: allocated = min(size, sum of its mappings). */
void gp_feed_vmm_create(uint64_t handle, uint64_t bytes, int device);
void gp_feed_vmm_import(uint64_t handle, int device);
/* A multicast object: released like a handle, mapped like one, no bytes of its own. */
void gp_feed_vmm_object(uint64_t handle, int device);
void gp_feed_vmm_retain(uint64_t handle);
uint32_t gp_feed_vmm_release_begin(uint64_t handle);
void gp_feed_vmm_release_end(uint32_t token, bool ok);
void gp_feed_vmm_map(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle);
/* Handle behind a mapped address, for calls that name memory by address; 0 unknown. */
uint64_t gp_feed_vmm_handle_at(uint64_t address);
uint32_t gp_feed_vmm_unmap_begin(uint64_t address, uint64_t bytes);
void gp_feed_vmm_unmap_end(uint32_t token, bool ok);
/* A multicast object keeps bound memory alive as a mapping does, but hands out nothing. */
void gp_feed_vmm_bind(uint64_t object, uint64_t offset, uint64_t handle);
void gp_feed_vmm_unbind(uint64_t object, uint64_t offset, int device);

/* ---- pools, graphs, imports ----------------------------------------------------------------------------------- */

#define GP_POOL_IMPORTED 1u /* nothing can be allocated from it, nothing is polled */
#define GP_POOL_MANAGED  2u /* hands out managed memory, which is never summed */
void gp_feed_pool_create(uint64_t pool, int device, unsigned flags);
/* Returns a token.  The driver may not be asked about a destroyed pool: this waits, at most a second, for a question
 * about this very pool to end; and before that, at most 10 ms, for a last poll if blocks of it are out, which keep it
 * alive. */
uint32_t gp_feed_pool_destroy_begin(uint64_t pool);
void gp_feed_pool_destroy_end(uint32_t token, bool ok);
void gp_feed_pool_use(int device, uint64_t pool); /* the device's current pool changed; 0: the default one */
uint64_t gp_feed_pool_of(int device);
/* Device of a pool that we know, else GP_DEVICE_UNKNOWN. */
int gp_feed_pool_device(uint64_t pool);
bool gp_feed_pool_is_managed(uint64_t pool);

void gp_feed_graph_node(uint64_t address, uint64_t bytes, int device, uint64_t node, uint64_t graph);
void gp_feed_graph_node_destroyed(uint64_t node);
uint32_t gp_feed_graph_destroy_begin(uint64_t graph);
void gp_feed_graph_destroy_end(uint32_t token, bool ok);
/* A graph vanished without a call that names it. */
void gp_feed_graph_gone(uint64_t graph);
bool gp_feed_graph_knows(uint64_t address);

void gp_feed_ipc_open(uint64_t address, int device, uint32_t ctx);
uint32_t gp_feed_ipc_close_begin(uint64_t address);
void gp_feed_ipc_close_end(uint32_t token, bool ok);

/* A pointer out of another process's pool: 0 owned bytes; freed like any device address. */
void gp_feed_pool_import_pointer(uint64_t address, int device);

/* ---- contexts, streams, modules ------------------------------------------------------------------------------- */

void gp_feed_context_created(uint32_t ctx, int device);
/* Frees, in the accounts, everything that the driver frees with a context: all blocks that carry its number.  VMM and
 * pool memory survive (cuda.h: cuCtxDestroy). */
/* device: the context's, or GP_DEVICE_UNKNOWN.  announced: the driver said so itself; else it is inferred and may be
 * old news. */
void gp_feed_context_destroyed(uint32_t ctx, int device, bool announced);
/* The device of a context that was made before we looked, or fell out of the table: not counted as created. */
void gp_feed_context_learned(uint32_t ctx, int device);
int gp_feed_context_device(uint32_t ctx);
void gp_feed_primary_context(int device, uint32_t ctx);
uint32_t gp_feed_primary_of(int device);

void gp_feed_stream_created(uint64_t stream, uint32_t ctx);
void gp_feed_stream_destroyed(uint64_t stream);
/* A capture began in the stream; an allocation in it showed its graph; it ended, and the graph was handed out or
 * discarded. */
void gp_feed_capture_begin(uint64_t stream, bool own_graph); /* false: into a graph that the program made and keeps */
void gp_feed_capture_graph(uint64_t stream, uint64_t graph);
void gp_feed_capture_end(uint64_t stream, bool discarded);
bool gp_feed_stream_is_capturing(uint64_t stream);
int gp_feed_stream_device(uint64_t stream); /* GP_DEVICE_UNKNOWN: not a stream that we saw */

void gp_feed_module_loaded(uint32_t module, uint64_t bytes, uint32_t ctx);
void gp_feed_module_unloaded(uint32_t module);

/* ---- our own cache ---------------------------------------------------------------------------------------------- */

/* Memory that src/cache holds and hands out never comes through the functions above: the cache moves the device's
 * gauges by itself, together with its blocks, so that peaks over both are exact. */
struct gp_counter;
/* The device's gauges; NULL: out of range or no memory. */
struct gp_counter *gp_feed_cache_gauges(int device);
/* What the cache counts beside its gauges. */
enum gp_feed_count { GP_FEED_RETRIES, GP_FEED_SYNCS, GP_FEED_DEVICE_ALLOCS, GP_FEED_DEVICE_FREES, GP_FEED_COUNTS };
/* DEVICE_*: driver calls that got or gave back memory without a segment of their own (pages of a growable one). */
void gp_feed_cache_count(int device, enum gp_feed_count what, uint64_t n);
/* PyTorch's max_split_size; -1 no limit. */
void gp_feed_cache_split_limit(int device, int64_t bytes);
/* An event of the cache into the ring; site: that of the block, for ALLOC and FREE. */
struct gp_feed_event {
    enum gp_wire_event_type type;
    int device;
    uint32_t site;
    uint64_t address, bytes, requested_bytes, stream;
    uint64_t time_ns; /* 0: now */
};
void gp_feed_cache_event(const struct gp_feed_event *event);

/* What the cache knows when a request failed for good (struct gp_cache_numbers, and what was asked of the driver). */
struct gp_feed_oom {
    uint64_t stream;
    uint64_t limit_bytes;            /* in force; 0 none */
    int64_t free_bytes, total_bytes; /* the driver's, just now; -1 unknown */
    uint64_t idle_bytes, idle_pieces, largest_idle_bytes, releasable_bytes, waiting_bytes, pinning_blocks;
    const char *policy;
    const char *conf; /* GPUPROF_ALLOC_CONF; may be NULL */
};
/* Right after gp_feed_failed with GP_ERROR_OUT_OF_MEMORY, on the same thread: adds to the report of that failure,
 * unless another one has replaced it meanwhile. */
void gp_feed_oom_cache(int device, const struct gp_feed_oom *facts);
/* Calls visit once for every live block of our cache on the device, with its call site and size.  Set once by the shim;
 * runs inside gp_feed_failed, on the failing thread, with no lock of the accounts held: the caller of gp_feed_failed
 * may hold none of the cache's.  visit takes no lock. */
typedef void gp_feed_block_fn(void *arg, uint32_t site, uint64_t bytes);
typedef void gp_feed_cache_walk_fn(int device, void *arg, gp_feed_block_fn *visit);
void gp_feed_oom_walker(gp_feed_cache_walk_fn *walk);

/* ---- what the poller learned ---------------------------------------------------------------------------------- */

struct gp_poll_pool {
    uint64_t pool;
    int device;
};

/* Copies out up to max pools that should be polled.  Between gp_feed_poll_enter(pool) == true and gp_feed_poll_leave()
 * a pool cannot be destroyed unnoticed. */
unsigned gp_feed_poll_pools(struct gp_poll_pool *out, unsigned max);
bool gp_feed_poll_enter(uint64_t pool);
void gp_feed_poll_leave(void);
/* Around all polls of one device: what else it held meanwhile bounds the peaks (polled.h). */
void gp_feed_poll_begin(int device);
void gp_feed_poll_end(int device);
void gp_feed_poll_pool(uint64_t pool, int64_t reserved, int64_t reserved_high);
void gp_feed_poll_pool_found(uint64_t pool, int device);
void gp_feed_poll_graph(int device, int64_t used, int64_t used_high, int64_t reserved, int64_t reserved_high);
void gp_feed_poll_device(int device, const uint8_t uuid[16], const char *name, int64_t total_bytes);

/* Imports whose size the API does not tell: the next address to ask about (false: none), and the answer. */
struct gp_poll_import {
    uint8_t space;
    uint64_t address;
};
bool gp_feed_poll_import_next(struct gp_poll_import *out);
void gp_feed_poll_import(const struct gp_poll_import *import, uint64_t bytes);

/* A report of out of memory that wants the driver's numbers: true gives its context, which cannot be destroyed
 * unnoticed until gp_feed_poll_oom_leave brings the answer (-1 unknown). */
bool gp_feed_poll_oom_enter(uint64_t *context);
void gp_feed_poll_oom_leave(int64_t free_bytes, int64_t total_bytes);
/* The newest report, once: for the log. */
bool gp_feed_poll_oom_report(struct gp_wire_oom *out);

/* What there is to poll, as bits; cleared by reading.  A callback that makes the word non-zero calls the waker. */
#define GP_POLL_DEVICES 1u
#define GP_POLL_POOLS   2u
#define GP_POLL_GRAPHS  4u
#define GP_POLL_IMPORTS 8u
#define GP_POLL_OOM     16u /* a report of out of memory to complete or to log */
void gp_feed_poll_want(unsigned bits);
unsigned gp_feed_poll_wanted(void);

/* Devices in use by index; bit set of the first 64. */
uint64_t gp_feed_devices(void);

/* ---- start ---------------------------------------------------------------------------------------------------- */

struct gp_feed_setup {
    struct gp_ring *ring;
    uint64_t *lost;                   /* GP_LOSTS words in the session */
    struct gp_wire_failure *failures; /* GP_WIRE_FAILURES rows in the session */
    struct gp_wire_oom *oom;          /* in the session; NULL: reports are not kept */
    void (*wake_poller)(void);
    bool (*poll_now)(uint64_t timeout_ns); /* polls everything; false: not in time */
    uint64_t map_limit;                    /* most live blocks that the pointer map may hold */
    /* While *armed is not 0, coming is told of every event before it goes into the ring, with its time, and heard
     * afterwards.  NULL: nobody asks. */
    const uint16_t *armed;
    void (*coming)(uint64_t time_ns);
    void (*heard)(void);
};

/* Once, before the first event.  0 or -errno: then nothing else here may be called. */
int gp_feed_start(const struct gp_feed_setup *setup);

/* A mark or process event from our own side. */
void gp_feed_event(enum gp_wire_event_type type, const char *name);

#endif
