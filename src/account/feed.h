/* SPDX-License-Identifier: MIT
 *
 * feed.h: the only way into the accounts. Sources (CUPTI callbacks, driver hooks) report here,
 * each operation of the driver in plain numbers; account/ knows no CUDA types. Every function runs
 * between gp_thread_enter and gp_thread_leave on the application's thread (gp_feed_poll_* on the
 * poller's). None takes a lock for longer than a map shard or the counters' slow path needs,
 * makes a system call in the common case, calls malloc, or fails: what cannot be recorded is
 * counted in the session's `lost`.
 *
 * Begin/end pairs bracket a driver call that frees something. Begin takes it out of the map
 * before the driver can hand the address to another thread; end settles it (ok) or restores
 * everything. The token is never 0 for a call that was begun; 0 means that the address was
 * unknown.
 */
#ifndef GP_ACCOUNT_FEED_H
#define GP_ACCOUNT_FEED_H

#include "base/compiler.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_ring;

/* What kind of address or handle a key is: keys of different spaces never collide. */
enum gp_space {
    GP_SPACE_NONE,
    GP_SPACE_DEVICE, /* device addresses: linear, pitched, managed, pool, mapped external buffers */
    GP_SPACE_HOST,   /* pinned host memory */
    GP_SPACE_REGISTERED,
    GP_SPACE_ARRAY,
    GP_SPACE_BLOCK,   /* blocks of a framework, inside its segments */
    GP_SPACE_VMM,     /* allocation handles */
    GP_SPACE_MAPPING, /* mapped addresses */
    GP_SPACE_RANGE,   /* address reservations */
    GP_SPACE_POOL,
    GP_SPACE_GRAPH, /* addresses of graph allocation nodes */
    GP_SPACE_IPC,
    GP_SPACE_STREAM,
    GP_SPACE_MODULE,         /* the last one that a context can own */
    GP_SPACE_BINDING,        /* of handles to multicast objects */
    GP_SPACE_PENDING,        /* mappings being unmapped */
    GP_SPACE_PENDING_HANDLE, /* handles that the unmap under way would free */
    GP_SPACE_GRAPH_NODE,     /* handles of graph allocation nodes */
    GP_SPACE_GRAPH_OWNER,    /* of their graphs */
    GP_SPACE_CONTEXT,        /* of no record: a frame (frame.h) is about one */
};

#define GP_DEVICE_UNKNOWN (-1)

/* ---- blocks: one address, one owner --------------------------------------------------------------------------- */

struct gp_allocation {
    enum gp_space space;
    enum gp_wire_kind kind;
    int device;   /* index in the session (GP_WIRE_HOST for host memory) or GP_DEVICE_UNKNOWN */
    uint32_t ctx; /* the context that owns it; 0: none, so it survives contexts */
    uint64_t address;
    uint64_t bytes;           /* granted */
    uint64_t requested_bytes; /* requested */
    uint64_t stream;
    uint64_t pool;  /* the created pool that it came from; 0: none, or the default pool */
    bool estimated; /* bytes are an estimate (arrays) */
};

void gp_feed_alloc(const struct gp_allocation *block);
uint32_t gp_feed_free_begin(enum gp_space space, uint64_t address);
void gp_feed_free_end(uint32_t token, bool ok, uint64_t stream);
/* The driver freed something whose allocation was not seen. */
void gp_feed_unknown_free(enum gp_space space, uint64_t address);

/* Memory from before the attach (before.c). Only our own thread, which asks the driver. */
void gp_feed_before_start(void);     /* before the source */
void gp_feed_before_stop(void);      /* with gp_feed_end */
uint64_t gp_feed_before_begin(void); /* before the driver is asked for an address */
/* The answer. False: the memory may have been freed since: ask again. */
bool gp_feed_before(uint64_t begun, uint64_t address, uint64_t bytes, int device, uint32_t ctx);
/* The driver has unmapped addresses, where such memory may have been. Any thread. */
void gp_feed_before_unmapped(uint64_t address, uint64_t bytes);
/* Whether the driver's memory at this address, where it begins, is in the accounts. */
bool gp_feed_is_known(uint64_t address);
/* complete: every address was asked for. */
void gp_feed_before_end(bool complete);

/* The blocks of a framework from before the attach (before.c), out of a snapshot that the framework
 * makes under its locks of the devices. One thread at a time: begin, then the snapshot, then all of it,
 * then end, each between gp_thread_enter and gp_thread_leave, but not the snapshot itself. */
struct gp_survey_piece {
    int device;
    uint64_t address, bytes, requested_bytes, stream;
    bool growable; /* a segment of single mappings */
};
bool gp_feed_survey_late(void);     /* attached late, so there may be such blocks */
bool gp_feed_survey_reported(void); /* a framework reports its blocks */
/* enum gp_wire_blocks_state. Changes it, unless it is not `from`: false. text stays valid for ever; NULL: none. */
uint32_t gp_feed_survey_state(void);
bool gp_feed_survey_say(uint32_t from, uint32_t state, const char *text);
bool gp_feed_survey_begin(void);                                    /* false: no memory */
void gp_feed_survey_segment(const struct gp_survey_piece *segment); /* memory that it took from the driver */
void gp_feed_survey_block(const struct gp_survey_piece *block);     /* handed out, not taken back */
/* False: not complete, or not all could be noted, so nothing is listed. */
bool gp_feed_survey_end(bool complete, uint64_t took_ns);
void gp_feed_survey_stop(void); /* with gp_feed_end */

/* A call failed with the driver's error; requested bytes for an out-of-memory error; device as
 * above. */
/* No report is made for a framework's segment: the framework will ask again, or report that it gives
 * up. kind: of the memory that was asked for; GP_KIND_NONE: unknown, or none was. */
void gp_feed_failed(const char *api, uint32_t error, uint64_t requested_bytes, int device, enum gp_wire_kind kind);
#define GP_ERROR_OUT_OF_MEMORY 2u /* CUDA_ERROR_OUT_OF_MEMORY */
/* Call it right after gp_feed_failed with GP_ERROR_OUT_OF_MEMORY, on the same thread, outside our
 * cache, whether or not a report was made. It passes on the current context, in which the driver can
 * be asked for its free bytes, and waits at most 5 ms for the poller's answer. */
void gp_feed_oom_context(uint32_t ctx, uint64_t context);
/* A call asked for memory of this device in this context, and got it. */
void gp_feed_context_used(int device, uint32_t ctx, uint64_t context);
/* Occurrences that are counted but not decoded. */
void gp_feed_lost(enum gp_wire_lost cause);

/* ---- blocks of a framework -------------------------------------------------------------------------------------- */

/* A framework's allocator reports each block that it hands out of its segments and takes back. The
 * reports of one device must be ordered: the framework holds its lock of the device. Unknown totals
 * are -1. */
struct gp_framework_event {
    int device;
    uint64_t address;
    int64_t bytes;                           /* > 0 handed out, < 0 taken back */
    int64_t allocated_bytes, reserved_bytes; /* the framework's totals, this block included */
};
/* owner: its row in the table of owners. */
void gp_feed_framework_block(const struct gp_framework_event *event, uint8_t owner);
/* The framework gave up on a request, after it freed what it had cached. api: constant text. */
void gp_feed_framework_oom(const char *api, int device, uint64_t requested_bytes);
/* From now on blocks are reported, and a failed driver allocation of a segment is not the end. */
void gp_feed_framework_start(const char *name);
/* How its allocator is set up. */
struct gp_framework_conf {
    char text[128];          /* PYTORCH_CUDA_ALLOC_CONF; "": not set */
    uint64_t (*pools)(void); /* private pools that it has made; NULL: not known */
};
/* Before its first block. */
void gp_feed_framework_conf(const struct gp_framework_conf *conf);

/* From now on the framework tells which threads use a private pool, of which none does now; or it does not. */
void gp_feed_framework_tells_pools(bool tells);
/* From now on a pool is used: for what this thread asks, or for what is captured. Until any thread says that it is not. */
enum gp_pool_use { GP_POOL_UNUSED, GP_POOL_OF_THREAD, GP_POOL_OF_CAPTURE };
void gp_feed_framework_pool(int device, uint64_t first, uint64_t second, enum gp_pool_use use);

/* What a framework's allocator was asked for on one device, from its first block on, and the state that this led to.
 * Each word is one event: its kind in the low 2 bits. */
enum gp_history_kind {
    GP_HISTORY_ALLOC, /* bytes of the block */
    GP_HISTORY_FREE,  /* number of the alloc, from 0 */
    GP_HISTORY_TRIM,  /* it emptied its cache */
};
struct gp_feed_replay {
    const uint64_t *history;
    uint32_t count, allocs;
    uint32_t flags;          /* GP_OOM_* of the report */
    uint64_t asked_bytes;    /* by the request that failed, which is not in the history */
    uint64_t reserved_bytes; /* in its segments after that */
    uint64_t peak_bytes;     /* the most that was in them */
    uint64_t free_bytes;     /* of the device then */
    uint64_t others_bytes;   /* of the process on the device, beside its segments */
    const char *conf;        /* as in gp_framework_conf */
    bool agrees;             /* out: the replay led to the same state; the next three hold */
    uint32_t helps, fails;   /* as in gp_wire_oom */
    uint64_t split_bytes;
};
/* Replays a report's history with other settings. The poller calls it, once a report. */
typedef void gp_feed_replay_fn(struct gp_feed_replay *replay);
void gp_feed_oom_replayer(gp_feed_replay_fn *replay);

/* ---- heaps of sub-allocators ------------------------------------------------------------------------------------ */

/* A sub-allocator cuts blocks out of its heap, which lies in one driver allocation. While the heap
 * is there, its memory is reserved, and its blocks are allocated. What of the driver allocation lies
 * outside of its heaps stays allocated. A heap or block that contradicts what is known is counted in
 * the session's `lost` and otherwise ignored. Any thread. */

/* False: ignored. Memory that is not the device's is not counted as lost. */
bool gp_feed_heap_begin(uint64_t address, uint64_t bytes);
/* Its blocks end with it, and the driver allocation, if it is still there, is allocated again. */
void gp_feed_heap_end(uint64_t address);
/* All of its blocks end. */
void gp_feed_heap_reset(uint64_t address);
void gp_feed_heap_block(uint64_t heap, uint64_t address, uint64_t bytes);
void gp_feed_heap_resize(uint64_t address, uint64_t bytes);
void gp_feed_heap_unblock(uint64_t address);

/* Libraries whose own pools are watched (framework/): the pool's memory is a heap, what it hands out are blocks. Their
 * rules are those of heaps, except that a pool tells nothing: what it took from the driver becomes a heap when it is
 * first heard of, and a piece inside another pool's piece is part of that one and not counted again. */
enum gp_door {
    GP_DOOR_NVTX, /* not a library: heaps that the program describes */
    GP_DOOR_RMM,
    GP_DOOR_TENSORFLOW,
    GP_DOOR_PADDLE,
    GP_DOOR_XLA,
    GP_DOORS
};
/* Blocks and memory of its pools have this owner, which is not 0. Before the others. */
void gp_feed_door_open(enum gp_door door, uint8_t owner);
/* A pool took the range from where it takes memory. Any thread, as the next three. */
void gp_feed_pool_grew(enum gp_door door, uint64_t address, uint64_t bytes);
/* pool: any number but 0 that tells pools apart. False: it contradicts what is known of that pool. Pieces in memory
 * that is not known to be the driver's are ignored. */
bool gp_feed_piece(enum gp_door door, uint64_t pool, uint64_t address, uint64_t bytes);
bool gp_feed_piece_back(enum gp_door door, uint64_t pool, uint64_t address);
/* What is known of it, for viewers. text: constant. */
void gp_feed_door_say(enum gp_door door, enum gp_wire_door_state state, const char *text);
/* What a library says of its own pools when it is asked, in no total of ours; -1: unknown. */
struct gp_door_numbers {
    int64_t allocated_bytes, allocated_peak_bytes, reserved_bytes, reserved_peak_bytes, limit_bytes;
    uint64_t time_ns;
};
/* NULL: no longer known. device: GP_DEVICE_UNKNOWN with NULL: all; others that there cannot be are ignored. */
void gp_feed_door_polled(enum gp_door door, int device, const struct gp_door_numbers *numbers);
/* The poller calls `ask` whenever a viewer asks, once a second while a reader follows the events, and at the end, as long
 * as the library is on. */
void gp_feed_door_ask(void (*ask)(void));
/* Whether there is a library to ask; now: asks it. */
bool gp_feed_poll_doors(bool now);
/* Nothing more is heard of its pools: their memory is allocated as a whole again. */
void gp_feed_door_end(enum gp_door door);

/* ---- virtual memory management -------------------------------------------------------------------------------- */

/* Rules (cuda.h: cuMemRelease, cuMemMap, cuMemUnmap): physical memory lives while references or
 * mappings exist. A handle that is mapped twice counts once: allocated = min(size, sum of its
 * mappings). */
void gp_feed_vmm_create(uint64_t handle, uint64_t bytes, int device);
void gp_feed_vmm_import(uint64_t handle, int device);
/* A multicast object: released and mapped like a handle, but without bytes of its own. */
void gp_feed_vmm_object(uint64_t handle, int device);
void gp_feed_vmm_retain(uint64_t handle);
uint32_t gp_feed_vmm_release_begin(uint64_t handle);
void gp_feed_vmm_release_end(uint32_t token, bool ok);
void gp_feed_vmm_map(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle);
/* The handle behind a mapped address, for calls that name memory by address; 0: unknown. */
uint64_t gp_feed_vmm_handle_at(uint64_t address);
uint32_t gp_feed_vmm_unmap_begin(uint64_t address, uint64_t bytes);
void gp_feed_vmm_unmap_end(uint32_t token, bool ok);
/* A multicast object or a logical endpoint keeps bound memory alive as a mapping does, but adds no
 * allocated bytes. device: for which device of the team; GP_DEVICE_UNKNOWN: the memory's own. */
void gp_feed_vmm_bind(uint64_t object, int device, uint64_t offset, uint64_t bytes, uint64_t handle);
/* Ends the bindings of one device from offset on that `bytes` cover. */
void gp_feed_vmm_unbind(uint64_t object, int device, uint64_t offset, uint64_t bytes);
/* The object is gone, and its bindings with it. gp_feed_vmm_object's objects do this by themselves. */
void gp_feed_vmm_unbind_all(uint64_t object);

/* ---- pools, graphs, imports ----------------------------------------------------------------------------------- */

#define GP_POOL_IMPORTED 1u /* nothing can be allocated from it, nothing is polled */
#define GP_POOL_MANAGED  2u /* hands out managed memory, which is never added to the totals */
#define GP_POOL_NOWHERE  4u /* set by gp_feed_pool_create if the device is unknown: nothing is polled */
#define GP_POOL_UNSURE   8u /* set by gp_feed_pools_unsure: perhaps the handle is dead, so nothing is polled */
void gp_feed_pool_create(uint64_t pool, int device, unsigned flags);
/* The same, if the pool is not known yet: a pool that no call created. */
void gp_feed_pool_found(uint64_t pool, int device, unsigned flags);
/* The device's primary context ends, and it is not known whether the pools' handles outlive that: none is
 * polled until the program has used it again, or the driver has named it. Waits as gp_feed_pool_destroy_begin. */
void gp_feed_pools_unsure(int device);
/* The program has set the pool's release threshold above 0.  device: of the call, if the pool's is not known. */
void gp_feed_pool_keeps(uint64_t pool, int device);
/* The program has used the pool, and the driver knew it. */
void gp_feed_pool_sure(uint64_t pool);
/* The driver names a device's default pool: another than before has replaced that. */
void gp_feed_pool_default(uint64_t pool, int device);
/* Returns a token. The driver must not be asked about a destroyed pool, so this waits, at most 10 ms,
 * until a query of this pool has ended. Before that, if blocks of the pool are live and so keep it
 * alive, it waits at most 10 ms for a last poll. After a wait in vain each is 1 ms. */
uint32_t gp_feed_pool_destroy_begin(uint64_t pool);
void gp_feed_pool_destroy_end(uint32_t token, bool ok);
void gp_feed_pool_use(int device, uint64_t pool); /* the device's current pool changed; 0: it is the default pool */
uint64_t gp_feed_pool_of(int device);
/* The device of a known pool, else GP_DEVICE_UNKNOWN. */
int gp_feed_pool_device(uint64_t pool);
bool gp_feed_pool_is_managed(uint64_t pool);
/* The pool's memory is not managed, and lies at a place that this build does not know. */
bool gp_feed_pool_is_nowhere(uint64_t pool);

void gp_feed_graph_node(uint64_t address, uint64_t bytes, int device, uint64_t node, uint64_t graph);
void gp_feed_graph_node_destroyed(uint64_t node);
uint32_t gp_feed_graph_node_destroy_begin(uint64_t node);
void gp_feed_graph_node_destroy_end(uint32_t token, bool ok);
uint32_t gp_feed_graph_destroy_begin(uint64_t graph);
void gp_feed_graph_destroy_end(uint32_t token, bool ok);
/* A graph was destroyed without a call that names it. */
void gp_feed_graph_gone(uint64_t graph);
/* A graph became a part of another one, and is destroyed with that. */
void gp_feed_graph_moved(uint64_t graph, uint64_t into);
bool gp_feed_graph_knows(uint64_t address);

void gp_feed_ipc_open(uint64_t address, int device, uint32_t ctx);
uint32_t gp_feed_ipc_close_begin(uint64_t address);
void gp_feed_ipc_close_end(uint32_t token, bool ok);

/* A pointer from another process's pool: it owns 0 bytes here and is freed like any device
 * address. */
void gp_feed_pool_import_pointer(uint64_t address, int device);

/* The thread has left a call between its begin and its end, and comes back neither. Whether the driver did what was
 * asked for is not known: what was to be freed counts as freed. */
void gp_feed_call_left(void);

/* ---- contexts, streams, modules ------------------------------------------------------------------------------- */

/* One that is counted already is not counted again: two sources may tell of it. */
void gp_feed_context_created(uint32_t ctx, int device);
/* Frees, in the accounts, everything that the driver frees with a context: all blocks that carry
 * its number. VMM and pool memory survives (cuda.h: cuCtxDestroy). */
/* device: the context's, or GP_DEVICE_UNKNOWN. announced: true if the driver reported it; false
 * if it is inferred, and so may already be known. */
void gp_feed_context_destroyed(uint32_t ctx, int device, bool announced);
/* The same around a call that may fail: its memory leaves the totals before the call. 0: call the above after it. */
uint32_t gp_feed_context_destroy_begin(uint32_t ctx, int device);
void gp_feed_context_destroy_end(uint32_t token, bool ok, bool announced);
/* A green context has no memory of its own: what carries its number is the primary context's, and stays. */
void gp_feed_green_destroyed(uint32_t ctx, int device);
/* The device of a context that was created before we were loaded, or that was replaced in the
 * table: not counted as created. */
void gp_feed_context_learned(uint32_t ctx, int device);
int gp_feed_context_device(uint32_t ctx);
void gp_feed_primary_context(int device, uint32_t ctx);
uint32_t gp_feed_primary_of(int device);

void gp_feed_stream_created(uint64_t stream, uint32_t ctx);
void gp_feed_stream_destroyed(uint64_t stream);
/* A capture began in the stream; an allocation in it showed its graph; the capture ended, and
 * its graph was handed out or discarded. */
enum gp_capture {
    GP_CAPTURE_NEW = 1,
    GP_CAPTURE_INTO,  /* into a graph that the program made and keeps */
    GP_CAPTURE_AGAIN, /* the nodes of such a graph are captured again, with the memory that they have */
};
void gp_feed_capture_begin(uint64_t stream, enum gp_capture how);
/* Before that, and before the driver's call: what the capture's gp_feed_capture_asked gets. */
uint32_t gp_feed_poll_asks(void);
void gp_feed_capture_asks(uint64_t stream, uint32_t asks);
/* A call of the program failed because of a capture, and has invalidated that. */
void gp_feed_capture_forbidden(void);
/* The capture was invalidated (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED). Call it before gp_feed_capture_end. */
void gp_feed_capture_broke(uint64_t stream);
/* Whether an allocation at this address, just made by the program, is one of a graph that is being
 * captured again. */
bool gp_feed_recaptured(uint64_t address);
void gp_feed_capture_graph(uint64_t stream, uint64_t graph);
void gp_feed_capture_end(uint64_t stream, bool discarded);
bool gp_feed_stream_is_capturing(uint64_t stream);
int gp_feed_stream_device(uint64_t stream); /* GP_DEVICE_UNKNOWN: not a known stream */

void gp_feed_module_loaded(uint32_t module, uint64_t bytes, uint32_t ctx);
void gp_feed_module_unloaded(uint32_t module);

/* ---- our own cache ---------------------------------------------------------------------------------------------- */

/* Memory that core/cache holds and hands out does not pass through the functions above. The cache
 * moves the device's gauges itself, in the same step as its blocks, so that peaks over both are
 * exact. */
struct gp_counter;
/* The device's gauges. NULL: the index is out of range, or there is no memory. */
struct gp_counter *gp_feed_cache_gauges(int device);
/* The cache's counts beside its gauges. */
enum gp_feed_count { GP_FEED_RETRIES, GP_FEED_SYNCS, GP_FEED_DEVICE_ALLOCS, GP_FEED_DEVICE_FREES, GP_FEED_COUNTS };
/* DEVICE_*: driver calls that allocated or released memory without a segment of their own (pages
 * of a growable one). */
void gp_feed_cache_count(int device, enum gp_feed_count what, uint64_t n);
/* PyTorch's max_split_size; -1 no limit. */
void gp_feed_cache_split_limit(int device, int64_t bytes);
/* Whether the time of a block's allocation or free is of use: events are read, or call sites are taken. */
bool gp_feed_cache_wants_time(void);
/* Whether anything is to be done for an ALLOC or FREE with this site; [listen.A] if called after
 * the block has changed. */
bool gp_feed_cache_wants_block(uint32_t site);
/* Writes an event of the cache into the ring; ALLOC and FREE only while the ring has a reader, as for the blocks of
 * frameworks (docs/understand/ring.md). site: that of the block, for ALLOC and FREE. */
struct gp_feed_event {
    enum gp_wire_event_type type;
    int device;
    uint32_t site;
    uint64_t address, bytes, requested_bytes, stream;
    uint64_t time_ns; /* 0: now */
};
void gp_feed_cache_event(const struct gp_feed_event *event);

/* The cache's facts when a request finally failed (struct gp_cache_numbers, and the bytes
 * requested from the driver). */
struct gp_feed_oom {
    uint64_t stream;
    uint64_t limit_bytes;            /* in force; 0: none */
    int64_t free_bytes, total_bytes; /* the driver's, just read; -1: unknown */
    uint64_t idle_bytes, idle_pieces, largest_idle_bytes, releasable_bytes, waiting_bytes, pinning_blocks;
    const char *policy;
    const char *conf; /* GPUPROF_ALLOC_CONF; may be NULL */
};
/* Call it right after gp_feed_failed with GP_ERROR_OUT_OF_MEMORY, on the same thread. It adds to
 * the report of that failure, unless another failure has replaced the report. */
void gp_feed_oom_cache(int device, const struct gp_feed_oom *facts);
/* Calls visit once for every live block of our cache on the device, with its call site and size.
 * The shim sets it once. It runs inside gp_feed_failed, on the failing thread, with no lock of
 * the accounts held, and the caller of gp_feed_failed must hold no lock of the cache. visit
 * takes no lock. */
typedef void gp_feed_block_fn(void *arg, uint32_t site, uint64_t bytes);
typedef void gp_feed_cache_walk_fn(int device, void *arg, gp_feed_block_fn *visit);
void gp_feed_oom_walker(gp_feed_cache_walk_fn *walk);

/* ---- results of the poller ---------------------------------------------------------------------------------- */

struct gp_poll_pool {
    uint64_t pool;
    int device;
};

/* Copies up to max pools that should be polled. After gp_feed_poll_enter(pool) has returned
 * true, the pool is not destroyed unnoticed until gp_feed_poll_leave(). */
unsigned gp_feed_poll_pools(struct gp_poll_pool *out, unsigned max);
bool gp_feed_poll_enter(uint64_t pool);
void gp_feed_poll_leave(void);
/* Call them around all polls of one device: the own bytes held in between bound the peaks
 * (account/polled.h). */
void gp_feed_poll_begin(int device);
/* Between the two, after all polls: true asks for all of them once more. */
bool gp_feed_poll_again(int device);
void gp_feed_poll_end(int device);
/* The poll that somebody waits for has ended in time, or not. */
void gp_feed_poll_late(bool late);
void gp_feed_poll_pool(uint64_t pool, int64_t reserved, int64_t reserved_high);
void gp_feed_poll_graph(int device, int64_t used, int64_t used_high, int64_t reserved, int64_t reserved_high);
/* threads: that the device can hold at once; 0: unknown. */
void gp_feed_poll_device(int device, const uint8_t uuid[16], const char *name, int64_t total_bytes, int64_t threads);

/* Imports whose size the API does not report: whether one waits to be asked for, the next address to
 * query (false: none), and the answer. */
struct gp_poll_import {
    uint8_t space;
    uint64_t address;
};
bool gp_feed_poll_import_waits(void);
bool gp_feed_poll_import_next(struct gp_poll_import *out);
void gp_feed_poll_import(const struct gp_poll_import *import, uint64_t bytes);

/* A report of an out-of-memory failure that needs the driver's numbers. True: returns its
 * context, which is not destroyed unnoticed until gp_feed_poll_oom_leave brings the answer (-1:
 * unknown). */
bool gp_feed_poll_oom_enter(uint64_t *context);
void gp_feed_poll_oom_leave(int64_t free_bytes, int64_t total_bytes);
/* Replays the history of the newest report, once, if it has no more events than this. */
void gp_feed_poll_oom_replay(uint32_t most);
/* The newest report, returned once, for the log. */
bool gp_feed_poll_oom_report(struct gp_wire_oom *out, struct gp_wire_oom_framework *framework);

/* The poller is about to ask the driver. False: it must not: a question has harmed a capture, or may have. */
bool gp_feed_poll_ask(void);
/* The driver refused a question because of a capture, and has invalidated that. */
void gp_feed_poll_refused(void);
/* Whether nothing is asked any more. */
bool gp_feed_poll_silent(void);

/* What must be polled, as bits; cleared by reading. A callback that makes the word non-zero
 * calls the waker. */
#define GP_POLL_DEVICES 1u
#define GP_POLL_POOLS   2u
#define GP_POLL_GRAPHS  4u
#define GP_POLL_IMPORTS 8u
#define GP_POLL_OOM     16u /* a report of an out-of-memory failure to complete or to log */
void gp_feed_poll_want(unsigned bits);
unsigned gp_feed_poll_wanted(void);

/* Devices in use by index: a bit set of the first 64. */
uint64_t gp_feed_devices(void);

/* ---- start ---------------------------------------------------------------------------------------------------- */

struct gp_feed_setup {
    struct gp_ring *ring;
    uint64_t *lost;                              /* GP_LOSTS words in the session */
    struct gp_wire_failure *failures;            /* GP_WIRE_FAILURES rows in the session */
    struct gp_wire_oom *oom;                     /* in the session; NULL: reports are not kept */
    struct gp_wire_oom_framework *oom_framework; /* in the session; NULL: not there */
    void (*wake_poller)(void);
    bool (*poll_now)(uint64_t timeout_ns); /* polls everything; false: it did not finish in time */
    uint64_t map_limit;                    /* most live blocks that the pointer map may hold */
    /* While *armed is not 0, `coming` is called with the time of every event before the event
     * goes into the ring, and `heard` afterwards. NULL: no batches. */
    const uint16_t *armed;
    void (*coming)(uint64_t time_ns);
    void (*heard)(void);
    /* While it is not 0 the ring has a reader.  NULL: always. */
    const uint32_t *listened;
    bool late; /* the program has used CUDA before */
};

/* Call it once, before the first event. 0 or -errno; after an error nothing else here may be
 * called. */
int gp_feed_start(const struct gp_feed_setup *setup);
/* Gives the maps back, which gp_kept_restore does not. Between two lives of the library. */
void gp_feed_end(void);

/* Whether a reader follows the ring. */
bool gp_feed_followed(void);

/* Writes a mark or process event that the library itself makes. */
void gp_feed_event(enum gp_wire_event_type type, const char *name);

#endif
