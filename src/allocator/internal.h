/* SPDX-License-Identifier: MIT
 *
 * internal.h: declarations that the files of allocator/ share; driver.h has the driver's functions.
 * No other folder includes it.
 */
#ifndef GP_ALLOCATOR_INTERNAL_H
#define GP_ALLOCATOR_INTERNAL_H

#include "account/feed/failed.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "cache/cache.h"
#include <stdbool.h>
#include <stdint.h>

/* ==== served contexts ============================================================================================= */
/* The served contexts: those whose memory the cache serves, each with its cache.  A context is
 * served if the library saw the call that made it (serve_context.c) or retained it itself
 * (async.c).  Memory of any other context is never cached.
 *
 * A served context is a row of a fixed table.  Its cache is made at the first allocation and never
 * freed: when the context dies the cache is emptied (gp_cache_forget), and the row waits for the
 * next context of the same device, because a cache counts in its device's gauges.  So a thread that
 * looks up an address never finds a cache that is being torn down.
 *
 * gp_served_lock is a leaf: no function that takes a lock is called under it. */

/* One bit each in x_access.  Programs have one context per GPU, tests a dozen. */
#define GP_SERVED_LIMIT 64

/* After every rank of base/lock.h: taken under any other lock, for a few instructions. */
#define GP_RANK_ALLOCATOR ((enum gp_lock_rank)30)

enum gp_served_state {
    GP_SERVED_EMPTY,
    GP_SERVED_LIVE,
    GP_SERVED_DYING, /* no allocation and no driver call any more; its blocks are found until the cache is empty */
};

struct gp_served_context {
    void *x_ctx;
    struct gp_cache *x_cache; /* NULL until the first allocation */
    uint32_t x_state;
    int device;           /* of the row: set before the context, and kept */
    bool primary;         /* the device's primary context */
    bool rdma;            /* growable memory can be registered with other devices */
    uint32_t x_untracked; /* > 0: work may run without an event of ours; fences wait for the whole context instead */
    uint64_t x_access;    /* by index: contexts that may use this one's memory (cuCtxEnablePeerAccess) */
    /* stream.c */
    void *gather;      /* gather stream; NULL: not needed yet */
    void *events[256]; /* idle events: more than fences are open at once; an event beyond that is destroyed */
    uint32_t event_count;
} __attribute__((aligned(64))); /* what every call reads is in the first line */

extern struct gp_served_context gp_served_contexts[GP_SERVED_LIMIT];
extern struct gp_lock gp_served_lock;

/* ---- served.c: the table.  Any thread. --------------------------------------------------------------------------- */

/* Takes a row for the context; NULL: all rows are taken. */
struct gp_served_context *gp_served_take(void *ctx, int device, bool primary);
/* Gives the row back. */
void gp_served_release(struct gp_served_context *served);

extern uint32_t gp_served_used;
static inline unsigned gp_served_count(void) /* rows ever used */
{
    return __atomic_load_n(&gp_served_used, __ATOMIC_ACQUIRE);
}
/* The live row of a context; NULL: the context is not served. */
struct gp_served_context *gp_served_of(void *ctx);
/* The live row of a device's primary context, or NULL. */
struct gp_served_context *gp_served_primary(int device);
/* The context whose cache has a live block around the address, or NULL. */
struct gp_served_context *gp_served_find(uint64_t address, struct gp_grant *out);
/* Whether a block of any cache begins at the address, live or idle.  Takes no lock. */
bool gp_served_begins(uint64_t address);
/* The context in whose cache the address lies, whether or not a block lives there. */
struct gp_served_context *gp_served_owning(uint64_t address);

/* Its cache, or NULL if it has none yet. */
static inline struct gp_cache *gp_served_cache(const struct gp_served_context *served)
{
    /* [served.A] acquire: the cache behind the pointer; pairs with [served.R]. */
    return __atomic_load_n(&served->x_cache, __ATOMIC_ACQUIRE);
}
static inline unsigned gp_served_index(const struct gp_served_context *served)
{
    return (unsigned)(served - gp_served_contexts);
}
static inline bool gp_served_is_live(const struct gp_served_context *served)
{
    /* [state.A] acquire: device and kind; pairs with [state.R]. */
    return __atomic_load_n(&served->x_state, __ATOMIC_ACQUIRE) == GP_SERVED_LIVE;
}

/* Fills the request's tag with its call site if call sites are on. */
void gp_served_tag(const struct gp_served_context *served, struct gp_request *request);
/* Write the events of an allocation and of a free, if they are wanted. */
void gp_served_event_alloc(const struct gp_served_context *served, const struct gp_grant *grant, uint64_t stream);
void gp_served_event_free(const struct gp_served_context *served, const struct gp_grant *grant, uint64_t stream);

/* ---- served_lifetime.c: a context's start and end, and its cache -------------------------------------------------- */

/* The policy that caches are made with.  Once, before the first cache. */
struct gp_policy;
void gp_served_setup(const struct gp_policy *policy, uint64_t limit_bytes);
uint64_t gp_served_limit(void); /* bytes; 0: no limit */

/* A context was made, or the library has retained it.  NULL: no row is left, and the context is not served. */
struct gp_served_context *gp_served_add(void *ctx, int device, bool primary);
/* The context is gone, and all linear memory in it. */
void gp_served_remove(struct gp_served_context *served);
/* Its cache, made if need be; NULL: no memory. */
struct gp_cache *gp_served_make_cache(struct gp_served_context *served);

/* ---- backend.c: the driver as the cache of this context sees it -------------------------------------------------- */

void gp_backend_fill(struct gp_served_context *served, struct gp_backend *out);
/* Gives growable memory back, which does not die with its context.  Called after the context's end. */
void gp_backend_clear(struct gp_served_context *served);
/* Makes the context's growable memory accessible to `device`. */
void gp_backend_share(struct gp_served_context *served, int device);

/* ==== the program's calls ========================================================================================= */
/* Answers the program's own driver calls from the cache.  Each gp_serve_<name> has the type of the
 * entry point <name>, and gp_serve_install puts it in front of it.  A call that does not concern the
 * cache goes on to gp_pass_<name>.  src/source/hooks.c calls these functions on the program's
 * thread, outside the library's code.
 *
 * The program sees its memory as the driver would show it: by block, never by segment. */

/* The kind of memory that programs get. */
enum gp_serve_kind {
    GP_SERVE_DEDICATED, /* cuMemAlloc's; large blocks are whole driver allocations, so that they can be exported */
    GP_SERVE_LINEAR,    /* cuMemAlloc's; the user wants everything in one chunk */
    GP_SERVE_GROWABLE,  /* from growable segments: no legacy IPC, no copies between devices that are not peers */
};

/* install.c: installs all servers.  Once.  False: the hooks lack an entry point. */
bool gp_serve_install(enum gp_serve_kind kind);
/* Set by gp_serve_install. */
extern enum gp_serve_kind gp_serve_memory_kind;

/* ---- around a served call ---------------------------------------------------------------------------------------- */

struct gp_serve {
    int saved_errno;
};

/* An address in no allocation.  The driver gives the same answer for it as for memory that was freed. */
#define GP_NOWHERE 16u

/* The entry points that a file serves; each table ends with a NULL name. */
struct gp_serve_row {
    const char *name;
    void *server;
};
#define GP_SERVE_ROW(_name)                                                                                            \
    {                                                                                                                  \
#_name, (void *)gp_serve_##_name                                                                               \
    }
extern const struct gp_serve_row gp_serve_block_rows[], gp_serve_pointer_rows[], gp_serve_context_rows[];
extern const struct gp_serve_row gp_serve_memory_rows[];

/* ==== streams and captures ======================================================================================== */
/* The program's streams and the captures that are under way.  serve_context.c reports them, torch.c
 * and capi.c announce captures, fences ask.
 *
 * While a capture is under way no fence is recorded, because an event on the legacy stream would
 * break the capture. The two sides exclude each other as in Dekker's algorithm:
 *
 *      fence: fencing += 1, then load blocked        capture: blocked += 1, then wait for fencing == 0
 *
 * Both are sequentially consistent, so at least one side sees the other.  Destroying a stream blocks
 * fences in the same way. */

/* The hooks are in place: streams and captures are seen from now on.  Before and without that, a fence for any stream
 * synchronises the context. */
void gp_stream_watch(void);

/* ---- streams: any thread ---------------------------------------------------------------------------------------- */

void gp_stream_add(struct gp_served_context *served, void *stream, unsigned flags);
/* From now on work may run on this device (-1: any) for which we cannot record an event: in green contexts, or in
 * contexts that we do not know. */
void gp_stream_untracked(int device);
/* Called before the driver destroys the stream.  Keeps its work in mind; on return nothing here uses the handle. */
void gp_stream_remove(void *stream);
/* The next live non-blocking stream of the context from index *at on.  It stays alive between
 * gp_stream_fencing_begin and gp_stream_fencing_end. */
bool gp_stream_next(const struct gp_served_context *served, unsigned *at, void **stream);
/* Can an event be recorded in exactly this stream?  Not if it is gone, "any", or each thread's own. */
bool gp_stream_nameable(const struct gp_served_context *served, uint64_t stream);

/* ---- captures: any thread --------------------------------------------------------------------------------------- */

/* Around the driver's begin.  gp_stream_capture_begin blocks fences; gp_stream_capture_began with
 * ok false unblocks them again. */
void gp_stream_capture_begin(void);
void gp_stream_capture_began(void *stream, bool ok);
void gp_stream_capture_ended(void *stream);
/* +1, -1: the caller knows that a capture may begin and has ended, without a stream (PyTorch's private pools). */
void gp_stream_capture_announce(int delta);
bool gp_stream_capture_under_way(void);

/* ---- fences ----------------------------------------------------------------------------------------------------- */

/* Around recording a fence.  False: a capture is under way or a stream is being destroyed, so record nothing. */
bool gp_stream_fencing_begin(void);
void gp_stream_fencing_end(void);

/* ==== fences ====================================================================================================== */
/* A fence tells when earlier work is done.  Called by backend.c for the cache, and at a context's
 * end.
 *
 * A fence for "any stream" must cover every stream that can touch the memory.  One event on the
 * legacy stream waits for all blocking and all per-thread streams of its context (cuda.h:
 * CU_STREAM_LEGACY); every non-blocking stream needs an event of its own.  If there are several
 * events, a stream of ours waits for each of them, and the fence is one event at that
 * stream's end. */

/* The backend's fence functions (cache.h).  Any thread, inside the library's code. */
uint32_t gp_stream_fence_record(struct gp_served_context *served, const uint64_t *streams, unsigned count,
                                uint64_t *fence);
uint32_t gp_stream_fence_query(struct gp_served_context *served, uint64_t fence);
uint32_t gp_stream_fence_wait(struct gp_served_context *served, uint64_t fence);

/* The context is gone, and its streams, events and captures with it. */
void gp_stream_fence_forget(struct gp_served_context *served);

/* ==== growable memory ============================================================================================= */
/* What growable memory consists of, per served context: address ranges, physical handles and
 * mappings.  The driver keeps all of them when the context dies, and a mapping must be made
 * accessible to peers that are enabled later, so this table remembers them.  Called by backend.c;
 * mapping.c keeps its marks in the same table. */

enum gp_mapping_kind {
    GP_MAPPING_NONE,
    GP_MAPPING_RANGE,
    GP_MAPPING_HANDLE,
    GP_MAPPING_MAPPED,
    GP_MAPPING_BUFFER, /* the id of a block */
    GP_MAPPING_SYNCED, /* SYNC_MEMOPS is on for a block */
};

struct gp_mapping {
    uint64_t key;   /* address or handle */
    uint64_t bytes; /* > 0 */
    uint32_t next;  /* in its bucket or the free list; index + 1 */
    uint8_t kind, served;
};

/* `served` is the index of the served context.  All functions: any thread.  False: the table is full (2^20 rows). */
bool gp_mapping_add(enum gp_mapping_kind kind, unsigned served, uint64_t key, uint64_t bytes);
/* Removes the row and returns its bytes; 0: unknown. */
uint64_t gp_mapping_take(enum gp_mapping_kind kind, uint64_t key);
/* Returns the bytes and keeps the row; 0: unknown. */
uint64_t gp_mapping_find(enum gp_mapping_kind kind, uint64_t key);
/* Copies the next row of that kind and context from index *at on.  Other threads may add and remove rows meanwhile. */
bool gp_mapping_next(enum gp_mapping_kind kind, unsigned served, unsigned *at, struct gp_mapping *out);

/* ==== properties of blocks ======================================================================================== */
/* Properties that belong to a block and not to its segment: SYNC_MEMOPS, which the program may set,
 * and the buffer id, which it may read.  Most programs use neither, and then the free path reads one
 * word. Called by serve.c on any thread. */

/* The block's buffer id: unique in the process, also compared with earlier blocks at the same address (cuda.h:
 * CU_POINTER_ATTRIBUTE_BUFFER_ID; registration caches rely on it).  0: no room, use the driver's answer. */
uint64_t gp_mapping_mark_buffer(const struct gp_served_context *served, uint64_t block);

/* The driver has SYNC_MEMOPS only for a whole driver allocation; this remembers whether it is on for this block. */
void gp_mapping_mark_synced(const struct gp_served_context *served, uint64_t block, bool on);
bool gp_mapping_mark_is_synced(uint64_t block);

/* Removes the marks of the block that starts at `address`, if one does.  Called before the block is free.  In a segment
 * of its own, SYNC_MEMOPS is switched off for the next owner; in a shared segment it stays on, which makes the other
 * blocks slower but is correct. */
void gp_mapping_mark_drop(struct gp_served_context *served, uint64_t address);
void gp_mapping_mark_forget(const struct gp_served_context *served); /* the context is gone */

/* ==== private pools =============================================================================================== */
/* Which requests go to a private pool.  Between a pool's begin and end these are the requests of one
 * thread, those for one stream, or those that a filter accepts.  If several pools match, the one
 * that was begun first takes the request, as in PyTorch.  Called by async.c, torch.c and capi.c on
 * any thread. */

/* A std::function<bool(cudaStream_t)> of libstdc++, whose layout is part of its stable interface: two words of target,
 * then the manager, which copies and destroys targets, and the invoker. */
struct gp_filter {
    uint64_t target[2];
    bool (*manager)(void *to, const void *from, int operation);
    bool (*invoker)(const void *target, void **stream);
};

enum gp_route_kind { GP_ROUTE_THREAD, GP_ROUTE_STREAM, GP_ROUTE_FILTER };

struct gp_route {
    uint64_t pool;
    int device;
    enum gp_route_kind kind;
    uint64_t stream;
    const struct gp_filter *filter; /* copied by gp_route_begin */
};

/* 0, or -ENOSPC: 64 routes are open. */
int gp_route_begin(const struct gp_route *route);
/* False: no such pool is open on that device. */
bool gp_route_end(uint64_t pool, int device);
extern uint32_t gp_route_open; /* open routes */
static inline bool gp_route_any(void)
{
    return __atomic_load_n(&gp_route_open, __ATOMIC_RELAXED) != 0;
}
/* The pool for a request of this thread; 0: none. */
uint64_t gp_route_pool(int device, uint64_t stream);

/* Can the filter be called?  Both of its functions must be code: a std::function of another C++ library (libc++) has
 * other words in these places. */
bool gp_route_filter_is_usable(const struct gp_filter *filter);

/* ==== stream-ordered allocation =================================================================================== */
/* Stream-ordered allocation for callers that name device and stream themselves: PyTorch's pluggable
 * allocator (torch.c) and the C interface (capi.c).  The memory lives in the device's primary
 * context, which is retained once and never released.
 *
 * Without the hooks the library does not see streams, captures and peers.  A fence for "any stream"
 * then synchronises the whole context, memory is not made accessible to peers, and only the private
 * pools that a caller begins before a capture keep the cache from disturbing it. */

struct gp_async {
    struct gp_served_context *served;
    struct gp_cache *cache;
    int saved_errno;
};

/* Starts the library if it is not started, enters the library's code and finds the device's cache.  0: call
 * gp_async_leave afterwards.  Otherwise a GP_CU_* number: 3 no driver, or switched off, or a forked child; 1 no such
 * device; or the driver's error. */
uint32_t gp_async_enter(struct gp_async *async, int device);
void gp_async_leave(const struct gp_async *async);
/* The same for calls that name no device: served and cache are NULL. */
uint32_t gp_async_enter_any(struct gp_async *async);

/* What most calls need, outside gp_async_enter: an allocation from the thread's own cache, and a free into it.  False:
 * nothing happened, and the call has to go the long way, through gp_async_enter.  errno stays. */
bool gp_async_give(uint64_t bytes, int device, uint64_t stream, uint64_t *address);
bool gp_async_take(uint64_t address);

/* Inside gp_async_enter.  api: the function's name for the failure report.  flags: GP_REQUEST_*.  Returns a GP_CU_*
 * number. */
uint32_t gp_async_alloc(struct gp_async *async, const char *api, uint64_t bytes, uint64_t stream, unsigned flags,
                        uint64_t *address);
/* at_once: the caller caches memory itself, so a driver allocation of its own goes back to the driver.  This and the
 * next two return false if the address is not in memory of the cache.  Inside gp_async_enter_any. */
bool gp_async_free(uint64_t address, bool at_once);
bool gp_async_record_stream(uint64_t address, uint64_t stream);
/* The driver allocation or address range that contains an address. */
bool gp_async_base(uint64_t address, uint64_t *base, uint64_t *bytes);
/* Inside gp_async_enter.  fraction: 0 (no limit) to 1 of the device's total bytes.  Returns a GP_CU_* number. */
uint32_t gp_async_set_fraction(struct gp_async *async, double fraction);

/* ==== failed requests ============================================================================================= */
/* Reports a failed request to the accounts, with what the cache knows about it.  serve.c and async.c
 * call it inside the library's code and with no lock held. */

/* Once, before the first request.  conf: GPUPROF_ALLOC_CONF or NULL; the string must stay valid. */
void gp_failed_setup(const char *conf);
/* api: the name of the function that the program called.  error: CUresult.  bytes: as the program asked. */
void gp_failed_report(struct gp_served_context *served, const char *api, uint32_t error, uint64_t bytes,
                      uint64_t stream);

/* ==== the history of a framework ================================================================================== */
/* Replays the history of a framework's allocator through our cache (gp_feed_replay_fn). */

struct gp_feed_replay;

/* Our own threads; takes no lock of the accounts, and memory from mmap. */
void gp_replay(struct gp_feed_replay *replay);

/* ==== PyTorch ===================================================================================================== */
/* What torch.c needs to know of the PyTorch that called it, and PyTorch's error. */

enum gp_torch_role {
    GP_TORCH_ALONE,   /* no PyTorch was found: a test, or a program of its own */
    GP_TORCH_CURRENT, /* PyTorch's allocator is a pluggable one, so every tensor's memory is asked for here */
    GP_TORCH_POOL,    /* PyTorch caches memory itself, and asks here only for the segments of a torch.cuda.MemPool */
};

/* Any thread, without a lock of ours: the first calls ask the dynamic loader. */
enum gp_torch_role gp_torch_role(void);

/* Raises torch.OutOfMemoryError (error 2) or RuntimeError in PyTorch, which does not check for
 * NULL.  Returns if PyTorch would check (GP_TORCH_POOL), or if the caller is not PyTorch.  caller:
 * the return address of the exported function.  Call it last, outside the library's code and
 * without a lock: it does not come back. */
GP_COLD void gp_torch_raise(uint32_t error, uint64_t bytes, int device, const void *caller);

#endif
