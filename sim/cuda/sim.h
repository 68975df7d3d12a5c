/* SPDX-License-Identifier: MIT
 * The simulated driver from inside: devices, contexts, memory records, the ledger, and the
 * functions that its files share.  Every function here is called with the global lock held unless it says
 * otherwise.  Included by every file of sim/cuda and by nothing else; it knows nothing of the
 * profiler.
 *
 * Invariants (checked by sim/tests/core_ledger.c):
 *   device.used = context overhead + sum of `footprint` over the device's live memory, arrays,
 *                 modules, VMM, pools, graphs
 *   ledger.reserved(device) = linear + pitched + array + VMM physical + pools' reserved
 *                 + graphs' reserved [requested bytes] */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api.h"
#include "gpu.h"
#include "tool.h"

#define SIM_VERSION 13040
#define SIM_KIB     (UINT64_C(1) << 10)
#define SIM_MIB     (UINT64_C(1) << 20)
#define SIM_GIB     (UINT64_C(1) << 30)
/* The driver hands out device memory in 2 MiB pages: granularity of VMM, of large linear memory and
 * of OOM. */
#define SIM_PAGE (2 * SIM_MIB)

static inline size_t sim_round_up(size_t value, size_t step)
{
    return (value + step - 1) / step * step;
}

/* ---- the lock ---------------------------------------------------------------------------------------------------- */
/* One lock for all state.  A body holds it; it may drop it around callbacks into other people's
 * code and around waits, and must then look up again whatever it knew. */
extern pthread_mutex_t sim_mutex;
void sim_lock(void);
void sim_unlock(void);

/* ---- what the environment asks for (spec.c), read once in cuInit ------------------------------------------------- */
struct sim_spec {
    int devices; /* 1 .. SIM_MAX_DEVICES, before CUDA_VISIBLE_DEVICES */
    const struct sim_gpu *gpu;
    uint64_t memory;     /* bytes of each device */
    int node;            /* ranks that share a node; 0: all */
    uint64_t limit;      /* bytes that this process may take of each device; 0: all */
    bool latency;        /* false: every call costs 0 virtual ns */
    bool dropped;        /* contents=none: see contents.c */
    bool filled;         /* fill=random: see fill.c */
    bool reset_pools;    /* reset=pools: see pool.c */
    bool capture_strict; /* capture=strict: see capture.c */
    uint64_t machine;    /* which machine the devices belong to, for their UUIDs; 0: the one that all have */
    char shared[33];     /* name of the group of processes that share devices; "": none */
    char faults[4096];   /* path of the fault script, or "" */
};
extern struct sim_spec sim_spec;
int sim_spec_read(void); /* 0, or -EINVAL after one message on stderr */

/* ---- fault script (fault.c) -------------------------------------------------------------------------------------- */
/* Any thread, no lock.  Sleeps for `delay` lines; CUDA_SUCCESS or the scripted failure. */
CUresult sim_fault_check(const struct sim_entry *entry);
int sim_fault_load(void);
extern int sim_fault_active; /* relaxed loads; set before cuInit returns */

/* ---- virtual clock (clock.c), ns; any thread, no lock ------------------------------------------------------------ */
uint64_t sim_clock_now(void);
void sim_clock_add(uint64_t ns); /* nothing with latency=zero */
void sim_clock_setup(struct sim_entry *entry);
/* The part of a call's cost that depends on the pages it takes or gives: charged by linear.c,
 * block.c and physical.c. */
enum sim_pages { SIM_PAGES_CREATE, SIM_PAGES_ALLOC, SIM_PAGES_FREE };
void sim_clock_pages(enum sim_pages what, uint64_t bytes);
/* Virtual ns to move bytes: over PCIe (host <-> device) or inside device memory; 0 with
 * latency=zero. */
uint64_t sim_clock_copy_ns(size_t bytes, bool host);

/* ---- ledger (ledger.c) ------------------------------------------------------------------------------------------- */
/* X(kind, its name in the ledger).  vmm: physical bytes of cuMemCreate; pool: used bytes; graph: virtual
 * bytes of allocation nodes while their graph lives; virtual: address reservations. */
#define SIM_KIND_ROWS(X)                                                                                               \
    X(SIM_LINEAR, "linear")                                                                                            \
    X(SIM_PITCHED, "pitched")                                                                                          \
    X(SIM_ARRAY, "array")                                                                                              \
    X(SIM_VMM, "vmm")                                                                                                  \
    X(SIM_POOL, "pool")                                                                                                \
    X(SIM_GRAPH, "graph")                                                                                              \
    X(SIM_MANAGED, "managed")                                                                                          \
    X(SIM_PINNED, "pinned")                                                                                            \
    X(SIM_REGISTERED, "registered")                                                                                    \
    X(SIM_IMPORTED, "imported")                                                                                        \
    X(SIM_VIRTUAL, "virtual")
enum sim_kind {
#define SIM_KIND_TAG(_kind, _name) _kind,
    SIM_KIND_ROWS(SIM_KIND_TAG) SIM_KINDS
#undef SIM_KIND_TAG
};
/* CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN of CUDA 13.4, which the headers here lack.  The first
 * byte of the location's id is the device, the second one the domain.  Every simulated device is one
 * domain. */
#define SIM_LOCATION_LOCALITY_DOMAIN 6
#define SIM_RECAPTURE_FAILURE        ((CUresult)918) /* CUDA_ERROR_GRAPH_RECAPTURE_FAILURE of 13.3 */

#define SIM_HOST (-1) /* device number of host memory in the ledger */

/* bytes may be negative; a positive change counts one call of the kind (see sim_ledger_adjust for
 * one that must not). */
void sim_ledger_kind(int device, enum sim_kind kind, int64_t bytes);
void sim_ledger_adjust(int device, enum sim_kind kind, int64_t bytes);
void sim_ledger_reserved(int device, int64_t bytes);
void sim_ledger_allocated(int device, int64_t bytes);
/* Kind, reserved and allocated in one: linear, pitched and array memory. */
void sim_ledger_owned(int device, enum sim_kind kind, int64_t bytes);
void sim_ledger_contexts(int device, int change);
void sim_ledger_hazard(int device);
void sim_ledger_forget(void); /* a forked child: it owns nothing and writes nothing */

/* ---- devices (device.c) ------------------------------------------------------------------------------------------ */
struct sim_context;
struct sim_pool;
struct sim_device {
    int ordinal;  /* the ordinal that programs use */
    int physical; /* number before CUDA_VISIBLE_DEVICES; UUID and bus id derive from it */
    uint64_t total, used;
    uint64_t overhead; /* of its contexts; part of `used` */
    struct sim_context *primary;
    int primary_refs;
    unsigned primary_flags;
    void *pools, *graphs; /* pool.c's and graph.c's state of this device, NULL until they are first asked */
};
extern struct sim_device sim_devices[SIM_MAX_DEVICES];
extern int sim_device_count;
extern bool sim_initialized;   /* written under the lock in cuInit; read by the wrapper with acquire */
extern bool sim_deinitialized; /* exit() has come to the driver: it serves no call any more */
int sim_device_setup(void);
struct sim_device *sim_device_get(CUdevice ordinal); /* NULL: no such device */
/* Physical bytes: CUDA_ERROR_OUT_OF_MEMORY when they are not there.  Bytes are multiples of the
 * caller's real granularity. */
CUresult sim_device_take(int device, uint64_t bytes);
void sim_device_give(int device, uint64_t bytes);
/* What cuMemGetInfo says: inside a limit, total and free bytes are the limit's. */
uint64_t sim_device_most(const struct sim_device *device);
uint64_t sim_device_left(const struct sim_device *device);
/* Called by sim_device_take before it gives up: mechanisms with device memory that no work needs give it
 * back.  Set by cuInit. */
extern void (*sim_device_reclaim)(int device);
void sim_device_uuid(int device, CUuuid *uuid);
void sim_uuid_of(int physical, unsigned char uuid[16]);
void sim_device_name(int physical, char *name, size_t size);
/* share.c, by physical number; of private devices nothing is elsewhere and everything fits. */
int sim_share_setup(const char *name); /* 0, or -errno after a message */
/* `bytes` more than the `own` ones, if all processes together do not have more than `total` then. */
bool sim_share_take(int physical, uint64_t own, uint64_t bytes, uint64_t total);
void sim_share_used(int physical, uint64_t own);
uint64_t sim_share_elsewhere(int physical);
/* The processes on it (machine.h); -1: the devices are private, and this process alone is on them. */
int sim_share_shown(int physical, int *pids, unsigned long long *bytes, int most);
int sim_device_attribute(int device, CUdevice_attribute attribute);

/* ---- contexts (context.c) ---------------------------------------------------------------------------------------- */
struct sim_memory;
struct sim_array;
struct sim_module;
#define SIM_LIMITS 16
struct sim_context {
    struct sim_context *next; /* all live contexts */
    uint32_t uid;             /* sequential from 1, never reused */
    int device;
    unsigned flags;
    bool primary, dying;
    struct sim_context *parent; /* the primary context of a green one, else NULL */
    unsigned sm_count;          /* multiprocessors of a green one; 0: all */
    uint64_t peers;             /* bit per device whose memory this context may reach */
    size_t limits[SIM_LIMITS];
    uint32_t stack; /* that each thread has; life.c's */
    bool launched;  /* a kernel, since the stack's limit was set */
    int cache_config;
    struct sim_memory *memory; /* objects that end with the context */
    struct sim_array *arrays;
    struct sim_module *modules;
    struct sim_block *blocks; /* 2 MiB blocks of small linear allocations */
    void *streams;            /* stream.c's state, made in sim_stream_context_created */
};
struct sim_context *sim_context_find(CUcontext handle); /* NULL: does not live */
/* The caller's current context: CUDA_SUCCESS, INVALID_CONTEXT (none) or CONTEXT_IS_DESTROYED. */
CUresult sim_context_current(struct sim_context **context);
struct sim_context *sim_context_peek(void); /* the same or NULL; no lock needed for the pointer, do not look inside */
struct sim_context *sim_context_by_uid(uint32_t uid);
static inline CUcontext sim_context_handle(struct sim_context *context)
{
    return (CUcontext)context;
}
/* The context that owns memory and streams: of a green context its parent. */
static inline struct sim_context *sim_context_owner(struct sim_context *context)
{
    return context->parent ? context->parent : context;
}
CUresult sim_context_primary(int device, struct sim_context **context); /* the active one, or CONTEXT_IS_DESTROYED */

/* ---- address space and its backing (space.c) --------------------------------------------------------------------- */
/* One sparse memfd backs all simulated device, managed and pinned memory: offset = a physical
 * address.  Pages appear when touched and are zero at first. */
int sim_space_fd(void);
bool sim_space_allows(uint64_t size); /* a file of this size, by the limit of the process */
bool sim_space_is_shared(void);       /* whether another process can map the memfd: not under such a limit */
/* Virtual ranges: PROT_NONE until mapped.  `align` is a power of two >= 4096; hint 0 = anywhere.  0
 * = none left, or the hint is taken.  The range freed last is reused first when the size is the
 * same, else the lowest hole. */
CUdeviceptr sim_space_reserve(size_t size, size_t align, CUdeviceptr hint);
void sim_space_release(CUdeviceptr base, size_t size); /* makes it PROT_NONE again and drops its pages' mappings */
/* Physical ranges of the memfd, in multiples of 4096. */
int sim_space_back(size_t size, uint64_t *offset);
void sim_space_unback(uint64_t offset, size_t size); /* punches the hole: the pages are gone */
/* Makes [base, base + size) show the file's bytes from offset on; prot 0 hides them again
 * (PROT_NONE). */
int sim_space_map(CUdeviceptr base, size_t size, int fd, uint64_t offset, int prot);
void sim_space_unmap(CUdeviceptr base, size_t size);

/* ---- memory records (record.c): every range that the driver knows ---------------------------------------------- */
enum sim_memory_type {
    SIM_MEMORY_LINEAR, /* and pitched: see kind */
    SIM_MEMORY_LOW,    /* linear, of the 32-bit ABI */
    SIM_MEMORY_MANAGED,
    SIM_MEMORY_PINNED,
    SIM_MEMORY_REGISTERED,
    SIM_MEMORY_IPC,
    SIM_MEMORY_EXTERNAL,
    SIM_MEMORY_MODULE,
    SIM_MEMORY_POOL,
    SIM_MEMORY_POOL_IMPORTED,
    SIM_MEMORY_GRAPH,
    SIM_MEMORY_VMM,     /* a mapping */
    SIM_MEMORY_RESERVED /* an address reservation without a mapping is not a record: this one is never copied from */
};
/* Zero-initialise, fill, sim_memory_insert.  Ranges of live records never overlap. */
struct sim_memory {
    struct sim_memory *left, *right; /* the tree by base; priority from the id */
    struct sim_memory *next, **link; /* the context's list, when it is owned by one */
    CUdeviceptr base;
    size_t size; /* bytes asked for */
    uint64_t id; /* BUFFER_ID: unique for the life of the process; set by sim_memory_insert */
    enum sim_memory_type type;
    enum sim_kind kind;
    int device;           /* ordinal; SIM_HOST for host memory */
    uint32_t context_uid; /* 0: survives every context */
    unsigned flags;       /* of the creating call */
    bool sync_memops;
    uint64_t offset;         /* place in the memfd (types that have one) */
    size_t footprint;        /* physical bytes taken from the device */
    struct sim_block *block; /* small linear memory: the 2 MiB block it lives in */
    /* cuMemFree of a record that linear.c does not own (pool, graph, ...); NULL: linear.c frees it. */
    CUresult (*free)(struct sim_memory *memory);
    /* May the device touch [offset, offset + size)?  NULL: yes (copies stage what peers may not
     * reach). */
    CUresult (*access)(struct sim_memory *memory, size_t offset, size_t size, int device, bool write);
    void *owner; /* whatever the owning file needs */
};
static inline bool sim_memory_on_device(const struct sim_memory *m)
{
    return m->type != SIM_MEMORY_PINNED && m->type != SIM_MEMORY_REGISTERED && m->device != SIM_HOST;
}
void sim_memory_insert(struct sim_memory *memory, struct sim_context *context); /* context may be NULL */
void sim_memory_remove(struct sim_memory *memory);       /* from tree and list; the caller frees the struct */
struct sim_memory *sim_memory_find(CUdeviceptr address); /* the record that contains it, or NULL */
struct sim_memory *sim_memory_next(CUdeviceptr address); /* the first record with base >= address, or NULL */
/* Whole range known and reachable from the device?  A range may span adjacent VMM mappings.  *first
 * may be NULL. */
CUresult sim_memory_check(CUdeviceptr address, size_t size, int device, bool write, struct sim_memory **first);

/* ---- work: what copies, sets and launches hand to stream.c ------------------------------------------------------- */
enum sim_work_type { SIM_WORK_COPY, SIM_WORK_SET, SIM_WORK_NOTHING };
/* One side of a copy: bytes at base + (z * height + y) * pitch + x.  base 0 = not a range (an
 * array: its storage). */
struct sim_side {
    CUdeviceptr base;    /* address of the first byte that is touched */
    size_t pitch, slice; /* bytes from row to row, from slice to slice */
    bool host;           /* pageable host memory or an array's storage: not a record, never checked */
    bool array;          /* an array's storage */
    int device;          /* which device must be able to reach it */
};
struct sim_work {
    enum sim_work_type type;
    struct sim_side destination, source; /* source: only copies */
    size_t width, height, depth;         /* bytes, rows, slices; all >= 1 */
    unsigned value, element;             /* sets: value and its size 1, 2 or 4 */
    int device;                          /* which device does it */
    int fill;                            /* what a copy of results to the host gets: machine.h's enum sim_fill */
    bool told;                           /* and one of a single number: this one */
    uint64_t number;
    CUDA_MEMCPY3D copy;          /* as asked, for graph nodes (type COPY) */
    CUDA_MEMSET_NODE_PARAMS set; /* as asked, for graph nodes (type SET) */
};
/* work.c: moves the bytes; pages may fault.  sim_work_check: every side known and reachable. */
void sim_work_run(const struct sim_work *work);
CUresult sim_work_check(const struct sim_work *work);
/* From descriptor to work; used for the nodes of graphs too.  Checks arguments, not
 * reachability. */
CUresult sim_work_copy(const CUDA_MEMCPY3D *copy, struct sim_context *context, struct sim_work *work);
CUresult sim_work_set(const CUDA_MEMSET_NODE_PARAMS *set, struct sim_context *context, struct sim_work *work);

/* ---- arrays (array.c), modules (module.c) ------------------------------------------------------------------------ */
struct sim_array {
    struct sim_array *next;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    unsigned levels;             /* 0: a plain array; else a mipmapped array */
    struct sim_array **children; /* levels of a mipmapped array, planes of an array: never counted */
    unsigned child_count;
    struct sim_array *parent;
    int device;
    uint32_t context_uid;
    uint64_t bytes, footprint; /* estimate as the ledger counts it; physical */
    CUdeviceptr base;          /* storage: row after row without padding */
    size_t pitch, slice;
    uint64_t offset;
    void *external; /* mapped from external memory: not counted as array */
};
struct sim_array *sim_array_find(CUarray handle); /* plain arrays, levels and planes; NULL: not live */
struct sim_array *sim_mipmap_find(CUmipmappedArray handle);
size_t sim_array_element(CUarray_format format); /* bytes of one channel; 0: unknown format */

struct sim_function {
    struct sim_function *next;
    struct sim_module *module;
    char *name;
    int attributes[24];
    int param_count; /* -2: not yet determined by launch.c; -1: not known */
    uint16_t param_size[64];
    int given_count; /* contents.c's: parameters by the kernel's own tables; -2 and -1 as above */
    uint16_t given_size[64];
    int stack; /* module.c's: bytes that each thread needs; -1: not yet determined */
    enum sim_verdict {
        SIM_VERDICT_UNKNOWN,
        SIM_VERDICT_OPEN,
        SIM_VERDICT_FALSE,
        SIM_VERDICT_TRUE
    } verdict;                  /* fill.c's */
    struct sim_old_launch *old; /* api/launchold.c's; NULL until the program sets a shape or a parameter */
};
struct sim_module {
    struct sim_module *next;
    uint32_t id;
    uint32_t context_uid;
    int device;
    const char *image;
    char *copy;  /* the image, unless it is the library's */
    size_t size; /* bytes of the image: cubinSize */
    uint64_t footprint;
    struct sim_layout *layout; /* layout.c's; NULL until it is first asked for */
    struct sim_function *functions;
    struct sim_symbol *symbols;  /* its variables */
    struct sim_library *library; /* which library loaded it, or NULL */
};
struct sim_function *
sim_function_find(CUfunction handle); /* also for a CUkernel: its function in the current context */
/* The same, with the reason: CUDA_ERROR_INVALID_HANDLE, or what loading its code answered. */
CUresult sim_function_get(CUfunction handle, struct sim_function **out);

int sim_library_declare(CUlibrary library, const char *name, size_t size, int managed); /* no lock */

/* ---- tool callbacks (tool.c) ------------------------------------------------------------------------------------- */
extern uint8_t sim_tool_enabled[SIM_TOOL_DOMAINS][SIM_TOOL_DRIVER_IDS];
/* RESOURCE, SYNCHRONIZE and STATE events.  Called with the lock held; drops it during the callback
 * and takes it again: before calling it, leave all structures whole. */
void sim_tool_event(uint32_t domain, uint32_t cbid, struct sim_context *context, void *handle, void *descriptor);
static inline bool sim_tool_wants(uint32_t domain, uint32_t cbid)
{
    return __atomic_load_n(&sim_tool_enabled[domain][cbid], __ATOMIC_RELAXED);
}
void sim_tool_call(const struct sim_call *call, uint32_t site, const CUresult *result); /* no lock held */
const void *sim_tool_table(const CUuuid *uuid);                                         /* NULL: no such table */

/* ---- the running call, per thread (thread.c) --------------------------------------------------------------------- */
#define SIM_CONTEXT_STACK 128 /* contexts pushed by one thread; programs push one or two */
struct sim_thread {
    struct sim_call *call; /* innermost, NULL outside of the driver */
    int depth;             /* current = stack[depth - 1] */
    struct {
        struct sim_context *context;
        uint32_t uid;
        int device;
    } stack[SIM_CONTEXT_STACK];
    uint64_t read_bytes; /* of results that the running call copied to the host, with contents=none */
    int fill;            /* sim_fill_as */
    bool told;           /* sim_read_as, and its number */
    uint64_t number;
    CUstreamCaptureMode capture_mode; /* cuThreadExchangeStreamCaptureMode; GLOBAL at first */
};
extern __thread struct sim_thread sim_self;
/* NULL means CU_STREAM_LEGACY or, in a _ptsz/_ptds call, CU_STREAM_PER_THREAD. */
CUstream sim_stream_default(CUstream stream);

/* ---- what streams, captures and the hazard detector give to the files above -------------------------------------- */
#define SIM_SUBMIT_SYNC 1u /* the caller waits until it is done: synchronous copies and sets */
/* Checks the stream and capture rules; captures the work as a graph node, or checks it
 * (sim_work_check), tells the hazard detector, and runs it in stream order.  stream as given by the
 * program after sim_stream_default. */
CUresult sim_stream_submit(CUstream stream, const struct sim_work *work, unsigned flags);
/* Is this stream usable now?  For calls that only name one (prefetch, attach): INVALID_HANDLE or
 * another error. */
CUresult sim_stream_check(CUstream stream);
void sim_stream_context_created(struct sim_context *context);
void sim_stream_context_destroyed(struct sim_context *context); /* before its memory goes */
/* All work of the context's device streams has finished (cuCtxSynchronize, the implicit one of
 * cuMemFree). */
CUresult sim_stream_synchronize(struct sim_context *context);
int sim_stream_id(struct sim_context *context, CUstream stream, int per_thread, uint64_t *id); /* 0 or -EINVAL */
/* A call that is illegal while a stream captures in a mode that forbids it:
 * STREAM_CAPTURE_UNSUPPORTED (and the capture is invalidated), else CUDA_SUCCESS.  cuMemAlloc and
 * similar calls check it first. */
CUresult sim_capture_check(void);
/* A record was made / is about to go: the hazard detector looks for unfinished work that still uses
 * it. */
void sim_hazard_born(struct sim_memory *memory);
void sim_hazard_dying(struct sim_memory *memory);

struct sim_listener {
    sim_tool_call_fn call;
    sim_tool_event_fn event;
    void *user;
};

/* tool.c */
extern struct sim_listener *sim_listener;
struct sim_listener *sim_listener_get(void);
int sim_tool_attach(sim_tool_call_fn call, sim_tool_event_fn event, void *user);
CUcontext sim_tool_current(uint32_t *uid);

#endif
