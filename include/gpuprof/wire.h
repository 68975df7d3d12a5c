/* SPDX-License-Identifier: MIT
 *
 * wire.h: layout of the session, the memory that a profiled process shares with viewers.
 *
 * A profiled process owns one session: a memfd named "gpuprof-session", sized at start and sealed
 * (shrink, grow, seal).  Viewers find it through /proc/PID/fd, copy parts of it with pread and check
 * the copy.  The mailbox is the only part that a viewer maps and writes.  Each part is at the offset
 * that the header gives:
 *
 *      header | devices[GP_WIRE_DEVICES] | scopes | failures | oom | its framework | owners | cupti | before | blocks | doors | mailbox | ring chunks | sites
 *
 * Only the profiled process writes the parts other than the mailbox.  A reader must not trust any
 * value: see tools/read/collect.  The file has fixed-width integers and no pointers, and includes nothing
 * else, so that BPF programs and other languages can use it.  An incompatible change raises
 * GP_WIRE_ABI.
 */
#ifndef GPUPROF_WIRE_H
#define GPUPROF_WIRE_H

#include <stdint.h>

#define GP_WIRE_MAGIC        0x31464f5250555047ull /* "GPUPROF1", read as bytes */
#define GP_WIRE_ABI          1u
#define GP_WIRE_SESSION_NAME "gpuprof-session"

/* The largest machines today have 56 devices that CUDA_VISIBLE_DEVICES can name: 8 GPUs with 7 MIG
 * slices each. */
#define GP_WIRE_GPUS     64u
#define GP_WIRE_HOST     64u /* index of the host "device": pinned and registered memory */
#define GP_WIRE_DEVICES  (GP_WIRE_GPUS + 1u)
#define GP_WIRE_SCOPES   16u
#define GP_WIRE_FAILURES 64u
#define GP_WIRE_SLOTS    8u /* requests in flight; usually one or two viewers are active */

/* ---- statistics ---------------------------------------------------------------------------------------------- */

/* numbers.def has the rows of the next three enums: an id is a place in the session. */
enum gp_wire_stat {
#define GP_STAT(_id, _gauge, _tag, _name, _reset, _told) GP_STAT_##_tag = _id,
#include <gpuprof/numbers.def>
    GP_STATS = 0
#define GP_STAT(...) +1
#include <gpuprof/numbers.def>
};

enum gp_wire_pool { GP_POOL_ALL, GP_POOL_SMALL, GP_POOL_LARGE, GP_POOLS };

enum gp_wire_kind {
#define GP_KIND(_id, _tag, ...) GP_KIND_##_tag = _id,
#include <gpuprof/numbers.def>
    GP_KINDS = 0
#define GP_KIND(...) +1
#include <gpuprof/numbers.def>
};

struct gp_wire_value { /* one PyTorch statistic */
    int64_t current;
    int64_t peak;
    int64_t allocated;
    int64_t freed;
};

struct gp_wire_kind_value { /* -1: unknown */
    int64_t current_bytes;
    int64_t peak_bytes;
    int64_t allocated_bytes;
    int64_t freed_bytes;
    int64_t live;
    int64_t live_peak;
    int64_t calls;          /* successful allocations */
    int64_t reserved_bytes; /* pool, graph: physical bytes at the last poll; -1 unknown */
};

struct gp_wire_scope_value {
    int64_t allocated_peak_bytes;
    int64_t reserved_peak_bytes;
};

#define GP_DEVICE_PRESENT    1u  /* the row is in use */
#define GP_DEVICE_IDENTIFIED 2u  /* uuid, name and total_bytes are the driver's */
#define GP_DEVICE_ESTIMATED  4u  /* some bytes are estimates (arrays) */
#define GP_DEVICE_POLLED     8u  /* reserved_bytes holds polled parts (pools, graphs) */
#define GP_DEVICE_FRAMEWORK  16u /* counts a framework's blocks: requested sizes and idle splits are unknown */
#define GP_DEVICE_LATE       64u /* the driver has not answered the last poll: what pools and graphs hold now is unknown */
#define GP_DEVICE_UNSOUND    32u /* allocated_bytes is more than reserved_bytes: memory was missed */
#define GP_DEVICE_KEEPS      64u /* a pool was told to keep idle memory (its release threshold) */
/* The upper half of the flags: how many threads the device can hold, in this unit, of which each multiprocessor has
 * two to four.  0: unknown, as from older libraries. */
#define GP_DEVICE_THREADS_SHIFT 16
#define GP_DEVICE_THREADS_UNIT  512u

struct gp_wire_device {
    uint32_t flags;  /* GP_DEVICE_ */
    int32_t ordinal; /* the driver's, in this process; -1 for the host */
    uint8_t uuid[16];
    char name[64];
    int64_t total_bytes; /* -1 unknown */
    struct gp_wire_value stats[GP_STATS][GP_POOLS];
    struct gp_wire_value oversize_allocations;
    struct gp_wire_value oversize_segments;
    int64_t num_alloc_retries;
    int64_t num_ooms;
    int64_t max_split_size; /* -1: no limit, as PyTorch prints it */
    int64_t num_sync_all_streams;
    int64_t num_device_alloc;
    int64_t num_device_free;
    struct gp_wire_kind_value kinds[GP_KINDS];
    struct gp_wire_scope_value scopes[GP_WIRE_SCOPES];
    int64_t linear_rounded_bytes; /* estimate: linear memory after the driver's 512 B / 2 MiB rounding */
    /* Of the blocks of a framework: those without memory under them, and those in memory that counts by itself or in
     * no total (managed, imported). Older libraries have 0. */
    struct gp_wire_value asleep_bytes;
    int64_t beside_bytes;
    /* What a library that is asked (XLA) says of pools that count as a whole: the most that it had in use, the largest
     * pool, and its limit, since its start.  In no total; 0: none says anything.  Older libraries have 0. */
    struct gp_wire_polled {
        int64_t peak_bytes, pool_bytes, limit_bytes;
    } polled;
};

struct gp_wire_scope {
    char name[40];
    uint32_t in_use; /* 1 begun, 0 free */
    uint32_t pad_;
    uint64_t begin_ns;
    uint64_t pad2_;
};

struct gp_wire_failure { /* failed calls by API and error */
    char api[48];
    uint32_t error; /* CUresult; 0: row unused */
    uint32_t pad_;
    uint64_t count;
};

/* ---- owners ---------------------------------------------------------------------------------------------------- */

/* An owner is the library that requested the memory from the driver, or the framework that a block
 * belongs to.  There is room for 18 names besides "unknown" and "other"; no examined process had as
 * many. */
#define GP_WIRE_OWNERS   20u
#define GP_OWNER_UNKNOWN 0u                    /* the stack could not be followed */
#define GP_OWNER_OTHER   (GP_WIRE_OWNERS - 1u) /* the owners for which there was no row */

struct gp_wire_owner {
    char owner[24];   /* pytorch, nccl, program ...; "": the row is not in use */
    char library[40]; /* file name of the first object that requested memory; "": none */
};

/* One owner's memory on one device. Bytes of the device that no row has, such as the idle memory of
 * pools, belong to several owners; viewers show them as "shared". */
struct gp_wire_owner_value {
    int64_t reserved_bytes, reserved_peak_bytes;
    int64_t allocated_bytes, allocated_peak_bytes;
    int64_t live; /* blocks, and driver allocations that are not segments */
};

/* A framework whose own allocator reports its blocks, on one device. */
struct gp_wire_framework {
    char name[16]; /* pytorch; "": none */
    /* Of its segments, what is known to be of private pools: idle there is idle for nobody else.
     * Older libraries have 0. */
    int64_t private_bytes;
    int64_t blocks, segments;
    int64_t allocated_bytes, reserved_bytes;             /* the sum of the blocks, and of the segments */
    int64_t their_allocated_bytes, their_reserved_bytes; /* the framework's own totals at the last event; -1 unknown */
    uint64_t events;
    uint64_t allocated_differs, reserved_differs; /* events in which the framework's totals differed from ours */
    uint64_t retries, ooms;
};

/* A separate part of the session, published with devices[]. */
struct gp_wire_owners {
    uint32_t count; /* rows in use */
    uint32_t pad_;
    struct gp_wire_owner rows[GP_WIRE_OWNERS];
    struct gp_wire_owner_value values[GP_WIRE_DEVICES][GP_WIRE_OWNERS];
    struct gp_wire_framework frameworks[GP_WIRE_GPUS];
    struct gp_wire_framework heaps[GP_WIRE_GPUS]; /* of sub-allocators that describe them through NVTX; name "nvtx" */
};

/* ---- libraries with pools of their own --------------------------------------------------------------------------- */

#define GP_WIRE_DOORS     8u
#define GP_WIRE_DOOR_ROWS 64u

enum gp_wire_door_state {
    GP_WIRE_DOOR_NONE,
    GP_WIRE_DOOR_EXACT,  /* each piece that its pools hand out is seen */
    GP_WIRE_DOOR_OFF,    /* its pools count as allocated as a whole; `text` says why */
    GP_WIRE_DOOR_POLLED, /* the same, but it says itself what it has in use: in no total */
    GP_WIRE_DOOR_STATES
};

struct gp_wire_door {
    char name[16];
    uint32_t state; /* enum gp_wire_door_state */
    uint32_t pad_;
    char text[104];
};

/* Its memory on one device: pools are pieces of the driver's memory that it cuts up. -1: unknown. */
struct gp_wire_door_row {
    uint32_t door; /* index in doors[] */
    int32_t device;
    int64_t pieces, pools;
    int64_t allocated_bytes, reserved_bytes; /* the sum of the pieces, and of the pools */
    uint64_t events;
    int64_t allocated_peak_bytes, reserved_peak_bytes, limit_bytes; /* polled */
    uint64_t time_ns;                                               /* of the poll; 0: it is not polled */
};

/* A separate part of the session, published with devices[]. */
struct gp_wire_doors {
    uint32_t door_count, row_count;
    struct gp_wire_door doors[GP_WIRE_DOORS];
    struct gp_wire_door_row rows[GP_WIRE_DOOR_ROWS];
};

/* ---- what was there before the attach ------------------------------------------------------------------------------ */

enum gp_wire_before_source {
    GP_BEFORE_NONE,      /* unknown */
    GP_BEFORE_DRIVER,    /* the driver was asked for every address at which it may have memory */
    GP_BEFORE_PART,      /* the same, but not for all of them: a lower bound */
    GP_BEFORE_FRAMEWORK, /* what the framework had reserved, from its own totals */
};

/* The memory of one device that the program had before gpuprof was attached to it, and has not freed since.
 * It is in none of the other numbers.  -1: unknown. */
struct gp_wire_before_device {
    int64_t bytes;
    int64_t at_attach_bytes;                                     /* the same at the attach */
    int64_t count;                                               /* driver allocations */
    uint64_t freed;                                              /* of these, since then */
    int64_t framework_allocated_bytes, framework_reserved_bytes; /* the part in the framework's own totals */
    uint32_t source;                                             /* enum gp_wire_before_source */
    uint32_t pad_;
};

/* A separate part of the session, published with devices[]. */
struct gp_wire_before {
    uint32_t attached; /* 1: gpuprof was attached to the running program; 0: it was there from the start */
    uint32_t pad_;
    struct gp_wire_before_device devices[GP_WIRE_GPUS];
};

enum gp_wire_blocks_state {
    GP_BLOCKS_NONE,    /* nothing was asked */
    GP_BLOCKS_ASKED,   /* Python's main thread has not come to it yet */
    GP_BLOCKS_RUNNING, /* it is at it */
    GP_BLOCKS_DONE,    /* every block is known */
    GP_BLOCKS_ABSENT,  /* there are no such blocks; `text` says why */
    GP_BLOCKS_FAILED,  /* `text` says why */
    GP_BLOCKS_STATES
};

/* The blocks of one device that a framework handed out before the attach and has not taken back. They are
 * part of framework_allocated_bytes above. */
struct gp_wire_blocks_device {
    int64_t count, bytes; /* -1: unknown */
    uint64_t differs;     /* reports of the framework after which `bytes` was not framework_allocated_bytes */
};

/* What GP_COMMAND_BLOCKS asked for. A separate part of the session, published with devices[]. */
struct gp_wire_blocks {
    uint32_t state; /* enum gp_wire_blocks_state */
    uint32_t pad_;
    uint64_t took_ns; /* for which Python's main thread was held */
    char text[160];
    struct gp_wire_blocks_device devices[GP_WIRE_GPUS];
};

/* ---- out of memory -------------------------------------------------------------------------------------------- */

/* Sizes repeat in real programs, so 12 groups hold nearly all bytes, and the report still fits on
 * one page. */
#define GP_OOM_HOLDERS 12u

#define GP_OOM_CACHE   1u /* our cache served the request: the idle numbers are known */
#define GP_OOM_DRIVER  2u /* free_bytes and total_bytes are the driver's, as of driver_ns */
#define GP_OOM_PENDING 4u /* the driver has not been queried yet */
#define GP_OOM_PARTIAL 8u /* too many sizes to keep apart: part of a group may be in the rest */

/* What is tried in replays of a framework's requests, as bits of `helps` and `fails`. */
enum gp_wire_oom_try {
    GP_OOM_TRY_EXPANDABLE, /* expandable_segments:True */
    GP_OOM_TRY_SPLIT,      /* max_split_size_mb, as in split_bytes */
    GP_OOM_TRY_FRACTION,   /* GP_OOM_REFUSED: no such limit; GP_OOM_BESIDE: a limit that leaves the request's bytes */
};

struct gp_wire_oom_holder { /* live blocks of one kind and size */
    uint64_t block_bytes;
    uint64_t count;
    uint32_t site; /* call-site id; 0 unknown */
    uint8_t kind;
    uint8_t pad_[3];
};

/* The state at the process's last failed request.  Unknown numbers are -1.  If two threads fail at
 * the same instant, either failure may be kept; `count` includes both. */
struct gp_wire_oom {
    /* Odd while the rest is being written ([oom.W]); read it in the same way as publish_seq ([oom.R]).
     * 0: no request has failed. */
    uint64_t seq;
    uint64_t count; /* out-of-memory errors of the process so far */
    uint64_t time_ns;
    uint64_t driver_ns;
    uint64_t holders_ns; /* when the holders were listed; 0 never */
    char api[48];
    uint32_t error;
    uint32_t flags; /* GP_OOM_* */
    int32_t device; /* index in devices[]; -1 unknown */
    uint32_t tid;
    uint64_t asked_bytes; /* 0: the call does not have a size */
    uint64_t stream;      /* 0: none, or unknown */
    int64_t free_bytes, total_bytes;
    int64_t reserved_bytes, allocated_bytes;
    int64_t pool_reserved_bytes, graph_reserved_bytes, graph_used_bytes; /* at the last poll */
    int64_t kinds[GP_KINDS];                                             /* current bytes */
    /* Valid with GP_OOM_CACHE. */
    int64_t limit_bytes; /* 0: none */
    int64_t idle_bytes, largest_idle_bytes, releasable_bytes, waiting_bytes, idle_pieces, pinning_blocks;
    char policy[16];
    char conf[128];
    /* The groups with the most bytes, the largest first; `rest_*` sums the others. */
    uint32_t holder_count;
    uint32_t site; /* call-site id of the failed request; 0 unknown */
    struct gp_wire_oom_holder holders[GP_OOM_HOLDERS];
    int64_t rest_bytes, rest_count;
};

#define GP_OOM_FRAMEWORK 1u  /* each of its blocks is known: all numbers here, and the idle numbers in gp_wire_oom */
#define GP_OOM_REFUSED   2u  /* the framework refused by a limit of its own, and did not ask the driver */
#define GP_OOM_KEPT      4u  /* it gave up without giving idle memory back, as for a request of a private pool */
#define GP_OOM_NO_POOLS  8u  /* it has made no private pools (CUDA graphs, MemPools); else this is not known */
#define GP_OOM_BESIDE    16u /* the request was not the framework's own */
#define GP_OOM_REPLAYED  32u /* a replay of its requests gave what it held: `helps` and `fails` hold */

/* The report's part about the allocator of a framework on the device; then `policy` and `conf` of gp_wire_oom are its
 * own, although GP_OOM_CACHE is not set. Written and read under the seq of gp_wire_oom, which it follows. */
struct gp_wire_oom_framework {
    uint32_t flags; /* GP_OOM_FRAMEWORK .. GP_OOM_REPLAYED; 0: no framework is known there */
    /* A bit per try with which the same requests would all have been served, and with which not; in neither: not
     * known. */
    uint32_t helps, fails;
    uint32_t pad_;
    int64_t segment_bytes, blocks; /* of its segments; its live blocks */
    int64_t private_bytes;         /* idle segments that are known to be of private pools */
    int64_t split_bytes;           /* of GP_OOM_TRY_SPLIT, if it helps */
};

/* ---- the source of events --------------------------------------------------------------------------------------- */

/* Limits of the tables below: copies of CUPTI that are tried, and entry points of the driver that
 * this build does not know.  Known machines and versions of CUDA stay below them. */
#define GP_WIRE_COPIES  16u
#define GP_WIRE_STRANGE 32u

#define GP_COPY_LOAD    -1 /* the loader refused it */
#define GP_COPY_FOREIGN -2 /* it lacks functions of CUPTI */
#define GP_COPY_DEAF    -3 /* it accepted the subscription, but enabled no callback */
#define GP_COPY_NAMED   -4 /* its soname could not be changed, so it was not used */

struct gp_wire_copy { /* a copy of CUPTI that was tried */
    char path[256];   /* a longer path is cut at its start */
    char answer[48];  /* CUPTI's name of the status; for GP_COPY_LOAD the loader's message */
    int32_t status;   /* CUptiResult of the subscription, or GP_COPY_* */
    uint32_t version; /* cuptiGetVersion; 0 unknown */
};

/* Written at the start; each count changes after the row that it covers. */
struct gp_wire_cupti {
    uint32_t copies;  /* number of copies tried; beyond GP_WIRE_COPIES a copy has no row */
    uint32_t strange; /* number of entry points, named as for memory, that hooks.def of this build lacks */
    uint32_t shared;  /* 1: other tools may subscribe beside gpuprof */
    uint32_t pad_;
    struct gp_wire_copy copy[GP_WIRE_COPIES];
    char strange_names[GP_WIRE_STRANGE][48];
};

/* ---- header -------------------------------------------------------------------------------------------------- */

enum gp_wire_source { GP_SOURCE_NONE, GP_SOURCE_CUPTI, GP_SOURCE_HOOKS };

enum gp_wire_lost {
#define GP_LOST(_id, _tag, _name) GP_LOST_##_tag = _id,
#include <gpuprof/numbers.def>
    GP_LOSTS = 16 /* with room for more causes */
};

#define GP_SESSION_CLOSED   1u /* the process ran its exit path: the numbers are final */
#define GP_SESSION_DISABLED 2u /* the library switched itself off: see `trouble` */
#define GP_SESSION_YIELDED  4u /* the subscriber was given up on request */
#define GP_SESSION_GONE     8u /* CUPTI no longer calls back: the program called cuptiFinalize */

struct gp_wire_header {
    uint64_t magic;
    uint32_t abi;
    uint32_t header_bytes;  /* sizeof this struct */
    uint64_t total_bytes;   /* of the memfd */
    uint8_t session_id[16]; /* random */
    uint32_t pid;           /* in the pid namespace of the process */
    uint32_t pad_;
    uint64_t start_ns; /* CLOCK_MONOTONIC at start, for event times */
    uint64_t devices_offset;
    uint32_t device_bytes, device_count;
    uint64_t scopes_offset;
    uint32_t scope_bytes, scope_count;
    uint64_t failures_offset;
    uint32_t failure_bytes, failure_count;
    uint64_t mailbox_offset;
    uint32_t mailbox_bytes, slot_count;
    uint64_t ring_offset;
    uint32_t chunk_bytes, chunk_count;

    /* Changes while the process lives. */
    uint32_t flags;
    uint32_t source;         /* enum gp_wire_source */
    uint32_t driver_version; /* cuDriverGetVersion; 0: unknown */
    uint32_t cupti_version;
    char source_detail[128]; /* which tool holds the subscriber, or why there is no source */
    char trouble[128];       /* last reason why a part switched itself off; "": none */
    char options[128];       /* unknown or malformed settings, once each; "": none */
    char allocator[32];      /* "off" or the policy's name */

    /* Odd while devices[] and scopes[] are being written ([publish.W] makes the odd value visible
     * before any word changes).  A reader loads it (acquire, pairs with [publish.R]), copies, loads
     * it again, and discards the copy unless both values are equal and even. */
    uint64_t publish_seq;
    uint64_t publish_ns; /* CLOCK_MONOTONIC of the last publication; 0: never */

    uint64_t lost[GP_LOSTS];
    uint64_t events; /* events tried (written + ring_full); published with devices[] */
    uint64_t enabled_callbacks;

    /* One struct gp_wire_oom.  Older libraries, which lack it, have 0 in both. */
    uint64_t oom_offset;
    uint32_t oom_bytes, pad2_;
    /* The call-site tables, which start with a struct gp_wire_sites.  0: stacks were never on.  They may
     * come while the process runs: the bytes first, then the offset. */
    uint64_t sites_offset, sites_bytes;
    /* The recording that the process itself writes (GPUPROF_RECORD). */
    uint64_t recorded, record_lost; /* events in the file so far, and events that came too fast for the recorder */
    uint32_t record_state;          /* enum gp_wire_record; changes last */
    int32_t record_errno;           /* why the recording ended early */
    char stacks_detail[112];        /* why Python frames are missing; "": no reason known */
    /* One struct gp_wire_owners.  Older libraries have 0 in both. */
    uint64_t owners_offset;
    uint32_t owners_bytes, pad3_;
    /* One struct gp_wire_cupti.  Older libraries have 0 in both. */
    uint64_t cupti_offset;
    uint32_t cupti_bytes, pad4_;
    /* One struct gp_wire_before.  Older libraries have 0 in both. */
    uint64_t before_offset;
    uint32_t before_bytes, pad5_;
    /* One struct gp_wire_blocks.  Older libraries have 0 in both. */
    uint64_t blocks_offset;
    uint32_t blocks_bytes, pad6_;
    /* One struct gp_wire_oom_framework.  Older libraries have 0 in both. */
    uint64_t oom_framework_offset;
    uint32_t oom_framework_bytes, pad7_;
    /* One struct gp_wire_doors.  Older libraries have 0 in both. */
    uint64_t doors_offset;
    uint32_t doors_bytes, pad8_;
};

enum gp_wire_record { GP_RECORD_OFF, GP_RECORD_ON, GP_RECORD_DONE, GP_RECORD_FAILED };

/* ---- attach ------------------------------------------------------------------------------------------------------ */

/* gpuprof_attach(settings) of libgpuprof.so starts a thread, which does everything else; the variable
 * gpuprof_attach_state of the library says how far it is.  The caller of the function reads it until
 * the state is no longer GP_ATTACH_STARTING: then either the session is complete, or the library has
 * left again, and `text` says why. */
enum gp_wire_attach {
    GP_ATTACH_OUT, /* never started, has left, or could not start (error, text) */
    GP_ATTACH_STARTING,
    GP_ATTACH_IN,      /* the session is there */
    GP_ATTACH_STRANDED /* has left, but a thread may still be inside: the next attach may be refused */
};

struct gp_wire_attach_state {
    uint32_t state; /* enum gp_wire_attach; changes last */
    int32_t error;  /* -errno of the last start */
    char text[248];
};

/* ---- call sites ------------------------------------------------------------------------------------------------ */

/* The name of memory that was allocated while no stacks were taken. */
#define GP_SITE_BEFORE "before stacks"

/* A site is one stack on one device with one kind of memory.  Its id is the index of its row; row 0
 * is "unknown".  Memory that is not part of the device's allocated bytes (managed, graph, imported,
 * virtual) has separate rows, which are not `summed`.
 *
 * Stacks can be switched while the process runs.  Blocks that were allocated without them have site 0.
 * Then row 0 has a frame, "before stacks", and each device has a row of kind none with this frame and
 * with what such blocks hold; each publication corrects it, so that the summed rows of a device hold
 * its allocated bytes, and the parts of cuMemCreate handles that are not mapped.
 *
 * Everything except the live numbers of a row is written once, before the count that covers it
 * (release, [site.R]).  A reader loads the count first (acquire, [site.A]).
 *
 * The bytes of a site at the last peak of the device's bytes:
 *
 *      row.peak_seq == devices[row.device].peak_seq ? row.at_peak_bytes : row.live_bytes
 *
 * The value is exact if no call was in flight at the peak.  With n threads inside a call, it can be
 * off by their n blocks. */

#define GP_SITE_FRAMES 128u /* deepest stack kept; PyTorch's stacks of Python and C++ frames have about 100 */

enum gp_wire_frame_type { GP_FRAME_NATIVE = 1, GP_FRAME_PYTHON };

struct gp_wire_frame {
    union {
        uint64_t pc; /* native: return address in the process, also for the innermost frame */
        struct {
            uint32_t function, file; /* Python: offsets into the strings */
        };
    };
    uint32_t line; /* Python */
    uint32_t type;
};

struct gp_wire_site {
    uint64_t first_frame;
    uint32_t frame_count; /* innermost first */
    uint8_t kind, device;
    uint8_t truncated; /* outer frames are missing */
    uint8_t summed;    /* part of devices[device] */
    uint64_t hash;
    /* Live numbers.  Each is consistent in itself, not with the others. */
    int64_t live_bytes, live_count;
    int64_t peak_bytes;             /* of live_bytes, since the start or the last reset of peaks */
    int64_t at_peak_bytes;          /* see above */
    uint64_t peak_seq;              /* the device's peak_seq when at_peak_bytes was stored */
    int64_t allocated_bytes, calls; /* since the start */
    uint64_t reserved_[6];
};

struct gp_wire_site_device {
    int64_t live_bytes, peak_bytes; /* over the device's summed sites */
    uint64_t peak_seq, peak_ns;
};

#define GP_SITES_NATIVE 1u /* modes */
#define GP_SITES_PYTHON 2u

struct gp_wire_sites {
    uint32_t row_bytes, frame_bytes;
    uint32_t row_limit, frame_limit, string_limit;
    uint32_t modes;                                      /* 0: off now */
    uint64_t rows_offset, frames_offset, strings_offset; /* from the start of this struct */
    uint32_t rows, frames, strings;                      /* in use; strings in bytes */
    uint32_t pad_;
    uint64_t lost_rows, lost_frames,
        lost_strings;  /* calls that got site 0 or a shorter stack because a table was full */
    uint64_t captures; /* stacks taken */
    uint8_t reserved_[32];
    struct gp_wire_site_device devices[GP_WIRE_DEVICES];
};

/* ---- events -------------------------------------------------------------------------------------------------- */

enum gp_wire_event_type {
    GP_EVENT_NONE,
    GP_EVENT_ALLOC,
    GP_EVENT_FREE,
    GP_EVENT_SEGMENT_ALLOC,
    GP_EVENT_SEGMENT_FREE,
    GP_EVENT_SEGMENT_MAP,
    GP_EVENT_SEGMENT_UNMAP,
    GP_EVENT_OOM,
    GP_EVENT_SNAPSHOT,
    GP_EVENT_MARK,
    GP_EVENT_RESET,
    GP_EVENT_CONTEXT_DESTROYED,
    GP_EVENT_PROCESS_START,
    GP_EVENT_PROCESS_EXIT,
    GP_EVENT_TYPES
};

struct gp_wire_event { /* one cache line */
    uint64_t seq;      /* chunk sequence x GP_RING_EVENTS + index: unique in the process, ordered within a thread */
    uint64_t time_ns;  /* CLOCK_MONOTONIC of the process */
    union {
        struct {
            uint64_t address; /* pointer or handle */
            uint64_t bytes;   /* granted */
            uint64_t requested_bytes;
            uint64_t stream;
        };
        char name[32]; /* mark: NUL-terminated */
    };
    uint32_t tid;
    uint32_t site; /* call-site id; 0: unknown */
    uint8_t type;
    uint8_t kind;
    uint8_t device; /* index in devices[]; 255: none */
    uint8_t cost;   /* duration of the driver call, encoded by gp_wire_cost; 0: unknown */
    uint32_t error; /* oom: CUresult; alloc, free, snapshot: GP_SLEEP_*, GP_FREE_SEGMENT or 0 */
};

/* Blocks of a framework without memory under them (docs/accounting.md) are in no total. A block that falls asleep is a
 * free of its bytes, and one that wakes an allocation, as readers that do not know these marks take them. */
#define GP_SLEEP_FALLS 1u /* free: the block stays, without memory */
#define GP_SLEEP_WAKES 2u /* alloc: it has memory again */
#define GP_SLEEP_ENDS  3u /* snapshot: the framework takes it back asleep; its bytes were freed before */

/* Of a free that a segment of the same memory follows: it was one from the start, and no peak has it
 * (docs/interface.md). */
#define GP_FREE_SEGMENT 4u

/* Encodes a duration in one byte, in steps of an eighth of a power of two, rounded down.  Decoding
 * returns the middle of the step, at most 6 % off. */
static inline uint8_t gp_wire_cost(uint64_t ns)
{
    ns = ns < 8 ? 8 : ns >> 32 ? UINT32_MAX : ns; /* all durations above four seconds have one value */
    unsigned power = 63u - (unsigned)__builtin_clzll(ns);
    return (uint8_t)(power * 8 + (ns >> (power - 3) & 7));
}

static inline uint64_t gp_wire_cost_ns(uint8_t cost)
{
    unsigned power = cost / 8;
    return power < 3 ? 0 : ((uint64_t)(8 + cost % 8) << (power - 3)) + ((1ull << (power - 3)) >> 1);
}

/* The ring is a circle of one-page chunks.  A thread takes the next chunk (overwriting the oldest),
 * fills it and takes another, so threads compete only once per GP_RING_EVENTS events.  `state` has
 * everything that a reader must see at one instant. */
#define GP_RING_EVENTS 63u

struct gp_wire_chunk {
    uint64_t state; /* bits 0-7 events committed, bit 8 busy (an event is being written), bits 9-63 chunk sequence + 1;
                       0 never used */
    uint64_t written_before; /* events committed in all earlier turns of this chunk */
    uint32_t tid;
    uint32_t pad_;
    uint8_t reserved_[40];
    struct gp_wire_event events[GP_RING_EVENTS];
};

#define GP_CHUNK_COUNT(_state)               ((uint32_t)((_state)&0xffu))
#define GP_CHUNK_BUSY(_state)                (((_state) >> 8) & 1u)
#define GP_CHUNK_TURN(_state)                ((_state) >> 9) /* chunk sequence + 1 */
#define GP_CHUNK_STATE(_turn, _busy, _count) (((uint64_t)(_turn) << 9) | ((uint64_t)(_busy) << 8) | (uint64_t)(_count))

/* ---- mailbox ------------------------------------------------------------------------------------------------- */

/* A viewer maps only this part.  It takes a slot (FREE -> CLAIMED by compare-and-swap), fills the
 * request, stores REQUESTED (release, pairs with [mail.A]), adds one to `doorbell`, wakes its waiters
 * (shared futex), and waits on `state` with a deadline.  The drain thread changes the state to
 * SERVING, answers in `reply` and stores DONE.  The viewer loads DONE (acquire, pairs with [mail.R]),
 * reads the answer and stores FREE.  A viewer that gives up changes REQUESTED back to FREE, and
 * leaves SERVING alone.  If a slot stays in one state for GP_SLOT_STALE_NS, its viewer has died, and
 * the drain thread frees the slot. */
#define GP_SLOT_STALE_NS 5000000000ull /* five times the viewers' deadline of one second */

enum gp_wire_slot_state { GP_SLOT_FREE, GP_SLOT_CLAIMED, GP_SLOT_REQUESTED, GP_SLOT_DONE, GP_SLOT_SERVING };

enum gp_wire_command {
    GP_COMMAND_NONE,
    GP_COMMAND_SNAPSHOT, /* publish exact numbers now */
    GP_COMMAND_RESET,    /* what: GP_RESET_* */
    GP_COMMAND_SCOPE_BEGIN,
    GP_COMMAND_SCOPE_END,
    GP_COMMAND_MARK,
    GP_COMMAND_YIELD,   /* give up the CUPTI subscriber */
    GP_COMMAND_EXTENTS, /* write every extent of memory for a viewer: see struct gp_wire_extents */
    GP_COMMAND_STACKS,  /* what: GP_SITES_* from now on, 0 off; the answer's `what`: before */
    GP_COMMAND_LISTEN,  /* the caller reads the ring, and holds GP_LISTEN_BYTE */
    GP_COMMAND_DETACH,  /* leave the process: see below */
    GP_COMMAND_BLOCKS,  /* ask PyTorch for its blocks from before the attach: see below */
    GP_COMMANDS
};

/* A reader of the ring holds a read lock (F_OFD_SETLK) on this byte of the session's memfd for as long
 * as it reads: the kernel drops the lock when the reader ends.  After GP_COMMAND_LISTEN the blocks of
 * frameworks are events too, until the drain thread, which looks once per GP_LISTEN_LOOK_NS, finds no
 * such lock.  A library that answers -EINVAL always writes them. */
#define GP_LISTEN_BYTE    0
#define GP_LISTEN_LOOK_NS 1000000000ull

/* GP_COMMAND_DETACH: callbacks and replaced functions end, then the recording, the threads and the
 * session; the library stays mapped, and gpuprof_attach starts it again.  The answer 0 comes when all of
 * this is done, after three seconds at the latest (a recording on a slow disk), so a caller waits for it
 * longer than for other answers; GP_SESSION_CLOSED is set before it.  Refused, with nothing changed:
 * -EBUSY: the library's own allocator serves the program.  -EINVAL: an older library. */

/* GP_COMMAND_BLOCKS: the answer 0 means that Python's main thread will be asked; struct gp_wire_blocks says
 * what came of it, perhaps much later. -ENODATA: gpuprof was not attached late, so there are no such
 * blocks. -EINVAL: an older library. */

#define GP_RESET_ALLOCATED   1u
#define GP_RESET_RESERVED    2u
#define GP_RESET_PEAKS       3u
#define GP_RESET_ACCUMULATED 4u

struct gp_wire_before_after { /* `all` pool of every statistic of one device */
    int32_t device;           /* index in devices[] */
    uint32_t pad_;
    struct gp_wire_value before[GP_STATS];
    struct gp_wire_value after[GP_STATS];
    struct gp_wire_value asleep_before, asleep_after;
};

struct gp_wire_slot {
    uint32_t state;
    uint32_t command;
    uint32_t what;  /* GP_RESET_*; scope slot */
    int32_t device; /* index in devices[]; -1: every device */
    uint32_t viewer_pid;
    int32_t result; /* 0 or -errno */
    uint64_t request_id;
    char name[40]; /* scope or mark */
    uint32_t reply_count;
    int32_t fd; /* extents: the process's descriptor of the memfd, valid until the slot is FREE */
    struct gp_wire_scope_value scope[GP_WIRE_DEVICES]; /* scope end: final peaks of each device */
    struct gp_wire_before_after reply[GP_WIRE_DEVICES];
};

/* The header of a memfd named GP_WIRE_EXTENTS_NAME.  `count` extents follow it: each segment is
 * followed by its blocks in address order, without a gap.  Memory outside our cache's segments is
 * one extent, both segment and live block; with GPUPROF_GROWABLE it is a mapping of cuMemMap.  A
 * reservation of addresses is a segment of kind virtual with an unmapped block.  Memory of
 * cuMemCreate that is not mapped is a segment with an idle block, whose address is the handle.
 * Other threads continue during the walk: memory that they allocate or free may be missing, and a
 * new block in the place of a freed one counts as idle. */
#define GP_WIRE_EXTENTS_NAME "gpuprof-pieces"
#define GP_WIRE_EXTENTS_MOST (1u << 26) /* 4 GiB; further extents are only counted */
/* .what; the first two are GPUPROF_SEGMENT and GPUPROF_BLOCK */
#define GP_EXTENT_SEGMENT 0u
#define GP_EXTENT_BLOCK   1u
#define GP_EXTENT_WHOLE   2u
/* .flags: from before the attach, and in no total.  Other blocks may lie in such a segment. */
#define GP_EXTENT_BEFORE 8u
struct gp_wire_extents {
    uint64_t magic; /* GP_WIRE_MAGIC */
    uint64_t count;
    uint64_t begin_ns, end_ns;
    uint32_t piece_bytes;
    uint32_t pad_;
    uint64_t missed; /* extents that did not fit: the program allocated faster than they were written */
    uint64_t reserved_[2];
};

/* what, state and flags have the values of struct gpuprof_piece (gpuprof.h). */
struct gp_wire_extent {
    uint64_t address, bytes;
    uint64_t requested_bytes; /* live blocks; otherwise 0 */
    uint64_t stream;
    uint64_t pool;    /* private pool; 0: none */
    uint64_t time_ns; /* when it was allocated; 0: unknown */
    uint32_t site;
    uint8_t what, state, kind, flags; /* flags of a segment or live block: also GP_EXTENT_BEFORE */
    uint32_t device;                  /* index in devices[] */
    uint32_t pad_;
};

struct gp_wire_mailbox {
    uint32_t doorbell;
    uint32_t drain_tid; /* 0: no thread answers, now or later */
    uint8_t reserved_[56];
    struct gp_wire_slot slots[GP_WIRE_SLOTS];
};

#define GP_STAT(_id, ...) _Static_assert(_id < GP_STATS, "ids of statistics have no gaps");
#define GP_KIND(_id, ...) _Static_assert(_id < GP_KINDS, "ids of kinds have no gaps");
#define GP_LOST(_id, ...) _Static_assert(_id < GP_LOSTS, "header.lost has a place for each cause");
#include <gpuprof/numbers.def>
_Static_assert(sizeof(struct gp_wire_device) == 2296 && sizeof(struct gp_wire_oom) == 800,
               "another size: raise GP_WIRE_ABI");
_Static_assert(sizeof(struct gp_wire_value) == 32, "wire");
_Static_assert(sizeof(struct gp_wire_kind_value) == 64, "wire");
_Static_assert(sizeof(struct gp_wire_scope) == 64, "wire");
_Static_assert(sizeof(struct gp_wire_failure) == 64, "wire");
_Static_assert(sizeof(struct gp_wire_event) == 64, "wire");
_Static_assert(sizeof(struct gp_wire_oom_holder) == 24, "wire");
_Static_assert(sizeof(struct gp_wire_oom_framework) == 48, "wire");
_Static_assert(sizeof(struct gp_wire_frame) == 16, "wire");
_Static_assert(sizeof(struct gp_wire_site) == 128, "wire");
_Static_assert(sizeof(struct gp_wire_extent) == 64, "wire");
_Static_assert(sizeof(struct gp_wire_extents) == 64, "wire");
_Static_assert(sizeof(struct gp_wire_chunk) == 4096, "wire");
_Static_assert(sizeof(struct gp_wire_header) % 8 == 0, "wire");
_Static_assert(sizeof(struct gp_wire_header) <= 4096, "wire");

#endif
