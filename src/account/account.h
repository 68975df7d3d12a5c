/* SPDX-License-Identifier: MIT
 *
 * account.h: declarations that the files of account/ share. No other folder includes it.
 */
#ifndef GP_ACCOUNT_ACCOUNT_H
#define GP_ACCOUNT_ACCOUNT_H

#include "account/feed.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/ring.h"
#include "base/span.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

static inline int64_t gp_larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ==== polled quantities =========================================================================================== */
/* Quantities that no call reports: what pools and graphs hold. They have gauges of their own, which
 * are folded into the reserved and allocated statistics when those are read:
 *
 * reserved = own + pools' reserve + graphs' reserve; allocated = own + graphs' memory in use.
 *
 * A poll's answer holds at one instant of the poll, and nothing says when it ceases to hold: a pool
 * gives memory back when the program waits for a stream. So it must not be added to own bytes of
 * another time, or a sum would have bytes that never existed at once. Invariant:
 *
 *      each folded peak is a sum that the device held at one instant:
 *      (a) own bytes alone, and own bytes with what pools handed out: one snapshot of exact gauges;
 *      (b) what the poll read, and the least own bytes from its begin to its end;
 *      (c) a watermark of the driver that rose since the poll before, and the least own bytes since that began;
 *      (d) the peak of what is allocated, which lay in reserved memory;
 *      and no current value is above its peak.
 *
 * The least own bytes are those at the begin less what was freed since. Several readings (of pools,
 * of graphs) are of several instants; where their sum would raise a peak, all are made again, and of
 * each the smaller one counts: what one pool lost between the passes to another counts once.
 *
 * A poll is late, and a short program may see none. So what pools hold is never less than the blocks
 * that were handed out of them: the difference (`lifted`) is in their gauge until a poll shows it. */

struct gp_account;

#define GP_FOLDED 8 /* reserved, allocated, active, requested bytes: all and large */

struct gp_polled_own { /* own bytes of a folded gauge */
    int64_t current, freed;
};

/* What the poll under way has read. */
struct gp_polled_sum {
    int64_t bytes, least; /* least: with the smaller one of two readings of each part */
    unsigned parts;       /* that are not 0 */
};

struct gp_polled {                                /* under gp_accounts.lock */
    int64_t peaks[1 + GP_WATCHES_MAX][GP_FOLDED]; /* since the last reset; of each scope; of the batches' watch */
    struct gp_polled_own begun[GP_FOLDED], last[GP_FOLDED]; /* when the poll under way began, and the one before it */
    struct gp_polled_sum reserved, used;                    /* of pools and graphs; of graphs */
    int64_t reserved_rose, used_rose;                       /* the highest watermark that rose since the last poll */
    bool again;                                             /* every part is read for a second time */
    int64_t graph_used_high, graph_reserved_high;
    int64_t pool_bytes, lifted; /* the pools' gauge: as polled, and more */
    int64_t allocated_before;   /* the peak of allocated_bytes when only reserved_bytes was reset last */
};

/* Folds the polled parts into the gauges of a snapshot; their peaks too. */
void gp_polled_fold(struct gp_account *account, struct gp_gauge_value *gauges);
/* The same for a scope's peaks; gauges: an unfolded snapshot. */
void gp_polled_fold_scope(struct gp_account *account, unsigned slot, int64_t *peaks);
/* Restarts the folded peaks that the mask's gauges cover at the folded current values, or where the last poll is late,
 * at what is held for certain. gauges: not folded. */
void gp_polled_reset(struct gp_account *account, gp_gauge_set mask, const struct gp_gauge_value *folded,
                     const struct gp_gauge_value *gauges);
/* Memory of a pool was handed out: reserved bytes have a polled part from now on. */
void gp_polled_expect(int device);
/* What the device's pools handed out, and what they hold, by a snapshot that is not folded. */
static inline int64_t gp_polled_handed_out(const struct gp_gauge_value *gauges)
{
    return gauges[GP_GAUGE_KIND_BYTES + GP_KIND_POOL].current;
}
static inline int64_t gp_polled_pools(const struct gp_gauge_value *gauges)
{
    return gp_larger(gauges[GP_GAUGE_POOL_RESERVED].current, gp_polled_handed_out(gauges));
}
void gp_polled_scope_begin(struct gp_account *account, unsigned slot);
/* For a watch that turned (base/counter.h): folds both, and restarts the slot's folded peaks at
 * the current values. */
void gp_polled_turn(struct gp_account *account, unsigned slot, struct gp_gauge_value *gauges, int64_t *peaks);
/* Moves a polled gauge to `now`; `high` (the driver's watermark) may raise the folded peak. */
void gp_polled_set(struct gp_account *account, unsigned gauge, int64_t last, int64_t now, int64_t *last_high,
                   int64_t high);

/* ==== the accounts ================================================================================================ */

/* Threads share shards beyond this many; 64 is four times the largest machine that the counters were measured on, and
 * a shard's lines are touched only when used. */
#define GP_SHARDS 64

/* The device of a record that is in no device's totals. */
#define GP_NO_DEVICE 255

/* gp_record.segment */
enum { GP_SEGMENT_NONE, GP_SEGMENT_FRAMEWORK, GP_SEGMENT_HEAP };

/* The history of a framework on a device: 8 bytes an event, 2 MiB of addresses. Programs that run out of memory while
 * they load a model, or in their first steps, have fewer events. With more, nothing is replayed. */
#define GP_HISTORY_MOST (1u << 18)

/* gp_record.flags of a segment: it is known to be of a private pool (frameworkoom.c). */
#define GP_FLAG_PRIVATE 1u
/* Of a block: a framework reports it. */
#define GP_FLAG_REPORTED 2u

struct gp_forgotten { /* what resets of the totals subtracted */
    int64_t calls, frees, failures;
};

/* One device's blocks of the framework that reports them (framework.c). The framework reports them
 * under its lock of the device, so there is one writer at a time. */
struct gp_framework {
    int64_t x_allocated_bytes; /* the sum of the blocks, and what was allocated before the first report */
    int64_t x_blocks;
    uint64_t x_events;
    uint64_t x_allocated_differs, x_reserved_differs; /* events in which the framework's totals were not ours */
    int64_t x_their_allocated_bytes, x_their_reserved_bytes;
    int64_t x_before_allocated_bytes, x_before_reserved_bytes; /* attached late: the part that is not ours */
    /* Written by any thread, in driver calls that the framework makes. */
    int64_t x_segments, x_segment_bytes, x_segment_peak, x_private_bytes;
    uint64_t x_retries, x_ooms;
    uint8_t owner;      /* of its blocks; from the first event on, under the framework's lock */
    uint64_t x_context; /* a context of the device, and its number (frameworkretry.c) */
    uint32_t x_ctx;
    uint32_t x_failing;   /* driver allocations of a segment that failed since the last block */
    uint32_t x_gave_back; /* it freed a segment since the last block */
    /* Of x_allocated_bytes (ground.c): what has no memory, and what is not allocated for that or another reason. */
    int64_t x_asleep_bytes, x_lacking_bytes;
    uint32_t x_unseen;  /* it had blocks before the first report: it may have memory that is not known */
    uint32_t x_strange; /* others made its segments or took them away: their sum need not be its total */
    /* Of its requests, in order (feed.h). Under the framework's lock. */
    uint64_t *history;
    uint32_t x_history_count, history_allocs;
    bool history_broken; /* it lacks some */
};

struct gp_account {             /* one device, or the host */
    struct gp_counter *counter; /* const after creation */
    struct gp_framework framework;
    struct gp_framework heaps[GP_DOORS]; /* of sub-allocators (heap.c) */
    int64_t x_unmapped; /* bytes of handles of cuMemCreate beyond their mappings: in sites, not in allocated_bytes */
    uint64_t x_ooms;
    uint64_t x_counts[GP_FEED_COUNTS];
    int64_t x_split_limit; /* max_split_size; -1: no limit */
    uint32_t x_flags;      /* GP_DEVICE_* */
    uint32_t x_context_count;
    uint64_t x_pool;       /* the device's current pool if the program has set one, else 0 */
    uint32_t x_primary;    /* primary context's number */
    uint64_t default_pool; /* as the driver named it last; the poller's */
    /* Under gp_accounts.lock: identity, polled peaks, and resets of the totals. */
    uint8_t uuid[16];
    char name[64];
    int64_t total_bytes;
    uint32_t threads; /* that it can hold, in GP_DEVICE_THREADS_UNIT; 0: unknown */
    struct gp_polled polled;
    struct gp_forgotten forgotten;
};

struct gp_accounts {
    struct gp_account *x_devices[GP_WIRE_DEVICES]; /* created on first use */
    struct gp_map *blocks;                         /* spaces up to BLOCK: many */
    struct gp_map *objects;                        /* the rest: few */
    struct gp_feed_setup setup;
    struct gp_lock lock;
    uint32_t x_captures;  /* streams that are being captured (context.c) */
    uint32_t x_poll_late; /* the last poll that was asked for has not ended in time */
    uint32_t x_scopes;    /* a bit per watch under way: scopes, GP_BATCH_WATCH */
};

extern struct gp_accounts gp_accounts;

/* What of a record in the map of blocks is in the totals. */
static inline uint64_t gp_account_counted(const struct gp_record *record)
{
    return record->space == GP_SPACE_BLOCK ? record->bytes - record->block.lacks : record->bytes;
}

/* The counters' watch for the high-water mark between two batches. The scopes use the others. */
#define GP_BATCH_WATCH GP_WIRE_SCOPES
_Static_assert(GP_BATCH_WATCH < GP_WATCHES_MAX, "base/counter.h");

/* The account of a device index; creates it. Returns NULL, and counts it, if the index is
 * unknown or out of range. */
struct gp_account *gp_account_of(int device);

/* Returns the time of the change, for its event: sorted by time, events add up to the numbers and
 * their peaks. 0: no gauge changed. */
uint64_t gp_account_move(int device, enum gp_counter_op op, const struct gp_move *move);
/* The driver refused a free that was counted before the call, at that time. */
void gp_account_putback(int device, uint64_t since_ns, const struct gp_move *move);
/* GP_SUB of an allocation that turns out to be a segment: its bytes leave the peaks too. raises:
 * from gp_account_raises, before it was added. False: a peak still has them. */
bool gp_account_retract(int device, uint64_t raises, const struct gp_move *move);
uint64_t gp_account_raises(int device);
/* Sets the record's owner, and whether it is a segment, from the stack of the driver call under way. */
void gp_account_own(struct gp_record *record);
/* An out-of-memory error: counted, among the events, and reported. failures: as for gp_framework_oom_facts. */
void gp_event_oom(const char *api, uint64_t requested_bytes, int device, int failures);
/* frameworkretry.c: of the framework that reports its blocks; NULL: none does. */
const char *gp_framework_name(void);
/* A driver allocation of that device failed. True: a framework made it for a segment. */
bool gp_framework_failed(int device, enum gp_wire_kind kind);
/* Memory of this kind can be a segment of a framework. */
bool gp_account_is_divisible(enum gp_wire_kind kind);
/* True: the failure was such a one; its context may be asked, for the report if the framework gives up. */
bool gp_framework_failed_in(int device, uint32_t ctx, uint64_t context);
/* A context of the device, and its number; 0: none is known. */
uint32_t gp_framework_context(const struct gp_framework *framework, uint64_t *context);
/* That context is about to be destroyed, and the framework's memory with it. */
void gp_framework_context_gone(uint32_t ctx, int device);
/* frameworkoom.c. Under the framework's lock of the device: */
void gp_framework_history_begin(struct gp_framework *framework);
uint32_t gp_framework_history_alloc(struct gp_framework *framework, uint64_t bytes); /* returns its number; 0: none */
void gp_framework_history_free(struct gp_framework *framework, uint32_t number);
/* It frees a segment. */
void gp_framework_gave_back(struct gp_framework *framework);
/* After that, with the blocks as they were then. */
void gp_framework_look_at_survivors(struct gp_framework *framework, int device);
/* Any thread. failures: the driver allocations for this request that failed; -1: it is not the framework's. */
void gp_framework_oom_facts(struct gp_wire_oom *report, struct gp_wire_oom_framework *out, int failures);
/* False: nothing can be replayed. On the thread whose request failed. */
bool gp_framework_replay_begin(const struct gp_wire_oom *report, const struct gp_wire_oom_framework *part,
                               struct gp_feed_replay *out);
/* segment.c: the gauges of a segment moved. */
void gp_segment_framework(const struct gp_record *segment, enum gp_counter_op op);
/* The segment was none. */
void gp_segment_not(const struct gp_record *segment);
/* A record became a segment, or was one, and changed its owner: moves what depends on that of its reserved bytes. */
void gp_segment_remade(const struct gp_record *before, const struct gp_record *after);
/* The framework's total of reserved bytes is not the sum of its segments. */
static inline bool gp_framework_strange(const struct gp_framework *framework, int64_t reserved_bytes)
{
    return reserved_bytes >= 0 && reserved_bytes != __atomic_load_n(&framework->x_segment_bytes, __ATOMIC_RELAXED) &&
           !gp_accounts.setup.late;
}
/* ground.c. 0: the blocks of frameworks lie in their own segments, as far as is known. */
extern uint32_t gp_ground_x_odd;
/* A framework hands a block out. True: it is counted, as far as there is memory under it, and in the map of blocks;
 * status: of gp_map_insert. reserved_bytes: the framework's total; -1: unknown. */
bool gp_ground_block(struct gp_record *block, int64_t reserved_bytes, int *status);
/* It takes a block back whose link is not 0, and which has left its map. False: count it as any other. */
bool gp_ground_unblock(const struct gp_record *block);
/* The driver's memory is there, in its map and in the totals; or it has left its map, and is about to leave them. */
void gp_ground_add(const struct gp_record *memory);
void gp_ground_gone(const struct gp_record *memory);
void gp_ground_context_gone(uint32_t ctx);
/* A segment that a framework has just taken as linear memory, whose block must be the next that its thread reports. */
void gp_ground_provisional(const struct gp_record *segment);
/* Segments that wait for a heap, or for the block that must be the next: they may become ordinary (memory.c). */
extern uint32_t gp_memory_x_waits;
/* This thread adds memory (0), or frees that at the address. */
void gp_ground_decide(uint64_t address);
static inline void gp_ground_next(uint64_t address)
{
    if (GP_UNLIKELY(__atomic_load_n(&gp_memory_x_waits, __ATOMIC_RELAXED)))
        gp_ground_decide(address);
}
/* The numbers are about to be read. */
void gp_ground_look(void);
/* Returns GP_SEGMENT_*: what memory there is to be. owner: whose, for a framework's; device: only
 * memory of that one is. */
uint8_t gp_ground_wants(uint64_t address, uint64_t bytes, uint8_t *owner, uint8_t *device);
/* A driver call has taken a record out of its map that is in no set. If it became ordinary a moment
 * ago, this waits until that is recorded: the call's own events come after it. */
void gp_ground_pass(void);
/* A reservation of addresses is no more. */
void gp_ground_range_gone(uint64_t address, uint64_t bytes);
/* before.c. True: the address was from before the attach. After the driver has freed it. */
bool gp_before_free(enum gp_space space, uint64_t address);
/* A block has entered its map. */
void gp_before_alloc(uint64_t address);
void gp_before_context(uint32_t ctx);
void gp_before_renumber(uint32_t from, uint32_t to);
/* The memory, by address; NULL: gpuprof was not attached late. */
struct gp_map *gp_before_map(void);
/* before.c. Before a block that a framework takes back leaves the map of blocks; and when one has been
 * handed out. Under the framework's lock of the device. */
void gp_before_block_freed(uint64_t address);
void gp_before_block_made(uint64_t address);
/* Whether the blocks are what the framework's totals say. */
void gp_before_block_compare(int device, int64_t before_bytes);
/* The blocks; NULL: not known. */
struct gp_map *gp_before_blocks(void);
/* heap.c. Memory is about to be added: segments without a heap become ordinary. */
void gp_heap_settle(void);
/* door.c. Whose the heaps of an owner are. */
enum gp_door gp_door_of(uint8_t owner);
/* What a library that is asked has said of the device. Under gp_accounts.lock. */
struct gp_wire_polled gp_door_polled(unsigned device);
void gp_door_own(enum gp_door door, uint8_t owner);
/* memory.c. The driver did not free a segment with heaps after all, and its bytes are back: it is
 * an ordinary allocation. */
void gp_memory_refused(struct gp_record *segment);
/* The move of a plain block that a record describes. */
struct gp_move gp_account_block_move(const struct gp_record *record);

/* contexttable.c: removes the context from the table. False: it was not in the table, or
 * belonged to another device. */
bool gp_context_forget(uint32_t ctx, int device);
/* False: this context is counted already. */
bool gp_context_count(uint32_t ctx, int device);

/* Blocks of a created pool were allocated (+) or freed (-). */
void gp_pool_count(uint64_t pool, int blocks);

/* An allocation has the record's time, everything else the current one. _at: with the time at which
 * the gauges changed; 0: now. */
void gp_event_record(enum gp_wire_event_type type, const struct gp_record *record, uint64_t stream);
void gp_event_record_at(enum gp_wire_event_type type, const struct gp_record *record, uint64_t stream,
                        uint64_t time_ns);
void gp_event_write(struct gp_wire_event *event);
/* For a block of a cache: the call site sums in any case, the ring only while it has a reader. Without
 * a time it had none when the block changed, so a walk has the change; and as the event would be late,
 * another thread's event of the same address could have an earlier time. */
void gp_event_write_if_heard(struct gp_wire_event *event);
/* Whether a reader listens to events.  [listen.A] of a block that has just entered the map or left it, it
 * is called after that: it runs after the [map.A1] of its shard, so if a walk has not seen the change,
 * the walk's [map.R1] was before, and with it the [listen.R] that was before the walk.  So each change
 * is in the walk, or among the events, for every reader that announces itself and then asks for a
 * walk. The same holds for a block of a cache, with the cache's lock, or the gate of its thread's
 * cache, through which every walk goes first (gp_thread_pass), in the place of the shard. */
static inline bool gp_event_heard(void)
{
    return __atomic_load_n(gp_accounts.setup.listened, __ATOMIC_RELAXED) |
           __atomic_load_n(gp_accounts.setup.armed, __ATOMIC_RELAXED);
}
/* gp_event_record_at for a framework's block: the ring only while it has a reader. */
void gp_event_block(enum gp_wire_event_type type, const struct gp_record *record, uint64_t time_ns);
/* The same, with a mark: GP_SLEEP_*; GP_FREE_SEGMENT, which is always written. */
void gp_event_marked(uint32_t mark, const struct gp_record *record, uint64_t time_ns);
/* The site of the call under way; 0 when stacks are off. */
uint32_t gp_event_here(int device, enum gp_wire_kind kind);
/* The same for a record whose owner is known: 0 for a segment, whose blocks have sites. */
uint32_t gp_event_site_of(const struct gp_record *record);

/* oomfacts.c: keeps the facts of a failed request; tells it that a context is about to be
 * destroyed. */
void gp_oom_capture(const char *api, uint64_t asked_bytes, int device, uint32_t site, int failures);
void gp_oom_context_gone(uint32_t ctx);

/* A frame keeps the record that begin removed from the map, until the matching end. Its
 * number + 1 is the token. */
struct gp_frame {
    uint32_t x_busy;
    uint32_t what;    /* enum gp_space: the kind of begin */
    uint64_t address; /* an unmap: its first mapping. A pool's end: the pool */
    uint64_t time_ns; /* when the record's bytes left the totals */
    struct gp_record record;
    bool died;                /* a handle, an import: the record has left the map */
    bool referenced;          /* a handle: it had references before the release */
    struct gp_ending *ending; /* a context, a graph: what ends with it */
};

/* Takes a free frame and returns its token, or 0 if all are in use (counted). */
uint32_t gp_account_frame_get(struct gp_frame **out);
/* The frame of a token that a begin returned. NULL if the token is not valid, as at the end of a
 * call whose begin was not seen. */
struct gp_frame *gp_account_frame_of(uint32_t token, uint32_t what);
void gp_account_frame_put(uint32_t token);
/* The token of the thread's own frame, if a call of the thread holds it, and what it is about; else 0. */
uint32_t gp_account_frame_own(enum gp_space *what);

/* ending.c: memory that one driver call ends together. */
struct gp_ending;
/* NULL: no memory, or no room is wanted; the others but _add take it too. */
struct gp_ending *gp_ending_new(uint64_t room);
/* A record that is about to leave its map. False: no room. Takes no lock. */
bool gp_ending_add(struct gp_ending *ending, const struct gp_record *record);
uint64_t gp_ending_count(const struct gp_ending *ending);
/* Before the call: the bytes of all of them leave the totals. */
void gp_ending_begin(struct gp_ending *ending);
/* After it, and the last use: it ended them; or it failed, and put brings each record back into its map. */
void gp_ending_done(struct gp_ending *ending);
void gp_ending_refused(struct gp_ending *ending, void (*put)(struct gp_record *record, void *arg), void *arg);
/* block.c: into the map of blocks, after the driver refused to end it. Its bytes are in the totals. */
void gp_block_put(struct gp_record *record);

/* ==== memory in the order of its addresses ======================================================================== */
/* The driver's memory in the order of its addresses, and how it becomes a segment. Of memory.c,
 * heap.c and ground.c, which share one lock.
 *
 * A driver call changes the map of records first and then looks whether the table is kept. So a
 * holder of the lock that finds no record leaves the rest to that call, which comes for the lock. */

extern struct gp_memory {
    struct gp_lock lock;
    struct gp_span_set set;
    uint32_t x_on; /* the set is kept from the first heap, or the first odd block of a framework, on */
    bool lacks;    /* some memory found no room in it */
} gp_memory;

static inline bool gp_memory_on(void)
{
    return GP_UNLIKELY(__atomic_load_n(&gp_memory.x_on, __ATOMIC_RELAXED));
}

/* All that follows is under the lock. */
void gp_memory_start(void);
bool gp_memory_is(const struct gp_record *record);
/* No other memory of the set may overlap it. NULL: no room, which is counted as lost. */
struct gp_span *gp_memory_put(const struct gp_record *record);
/* want: GP_SEGMENT_*. owner: of a framework's. whole: it was never allocated, so that the peaks
 * forget it. False: it cannot become one. */
bool gp_memory_make(struct gp_span *memory, uint8_t want, uint8_t owner, bool whole);
/* It is an ordinary allocation or mapping again, if it still is such a segment. */
void gp_memory_unmake(enum gp_space space, uint64_t address, uint8_t segment);

/* heap.c. A mapping that was made as a segment of heaps is in the set. */
void gp_heap_memory_new(struct gp_span *memory);
/* Memory is about to leave the set: its heaps end, and their blocks. */
void gp_heap_memory_gone(struct gp_span *memory);
/* Whether a heap reaches into the range. */
bool gp_heap_over(uint64_t address, uint64_t bytes);
/* Segments without a heap become ordinary. */
void gp_heap_left_settle(void);

/* ==== virtual memory ============================================================================================== */
/* What vmm.c, vmmshare.c and memory.c share. */

static inline int64_t gp_vmm_share(const struct gp_record *handle)
{
    return (int64_t)(handle->handle.mapped < handle->bytes ? handle->handle.mapped : handle->bytes);
}

/* The effect on the totals of a change of a handle's mappings. */
struct gp_vmm_change {
    /* in */
    uint64_t bytes;  /* of the mapping; 0: a multicast binding, which adds no allocated bytes */
    uint64_t extent; /* offset + bytes: a lower bound of an imported handle's size */
    bool heap;       /* the mapping was a heap's segment */
    uint8_t want;    /* GP_SEGMENT_*: what the mapping is to be */
    uint8_t owner;   /* of a framework's segment */
    uint8_t device;  /* on which it is one */
    /* out */
    struct gp_record before;
    struct gp_record after;
    bool turned;      /* the handle became a segment */
    int64_t share;    /* allocated bytes that are added or removed, >= 0 */
    bool crossed;     /* the first mapping was added, or the last one removed */
    bool died;        /* the record left the map: memory is free */
    int64_t imported; /* bytes by which an imported handle grew or shrank */
};

void gp_vmm_count_unmapped(int device, enum gp_counter_op op, int64_t bytes);
/* Returns the time of the change, as gp_account_move. */
uint64_t gp_vmm_move_share(const struct gp_vmm_change *change, enum gp_counter_op op);
/* The driver refused the unmap that moved it then. */
void gp_vmm_putback_share(const struct gp_vmm_change *change, uint64_t since_ns);

/* A mapping that added `added` bytes is gone. What the handle's other mappings still show of them is
 * theirs from now on, so that the parts of all mappings add up to the handle's share. */
void gp_vmm_hand_on(const struct gp_vmm_change *change, uint64_t added);

/* Makes the handle the segment that is wanted, if it can be one: as a whole, in its only mapping. */
void gp_vmm_turn(struct gp_record *handle, struct gp_vmm_change *change);
/* Notes where the peaks are before the mapping (gp_account_retract). */
void gp_vmm_raises(struct gp_record *mapping);
/* The handle became a segment: in recordings, its mapping stands for it from now on. */
void gp_vmm_turned(const struct gp_vmm_change *change);
/* The handle is a segment no more: what its mappings share is allocated. */
void gp_vmm_turned_back(const struct gp_record *handle);
/* The same if the mapping that was the segment is gone. Another one has the memory from now on,
 * which asked for nothing when it was made. */
void gp_vmm_pass_on(const struct gp_record *handle);

#endif
