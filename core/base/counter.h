/* SPDX-License-Identifier: MIT
 *
 * counter.h: sharded gauges with exact, resettable peaks ("escrow" counters).
 *
 * A counter set holds up to GP_GAUGES_MAX gauges that change together: one allocation changes a
 * dozen of them, and a snapshot shows all of them at one instant. For every gauge
 *
 *      limit = min(peak, peaks of active watches)          limit = current + pool + sum over shards(credit)
 *
 * While credit lasts, no watched peak can change, so no thread needs the total: a thread locks its
 * own shard (one compare-and-swap on a line that other threads touch only on the slow path), takes
 * from its credit or adds to it, and unlocks. If the credit is used up or the shard is closed, the
 * thread takes the slow path. Under one mutex, it closes every shard, which returns the shard's
 * credit to the pool; then current = limit - pool is exact. It applies the change, raises peaks,
 * and distributes credit again if there is enough room to share. At the peak the set stays closed
 * ("central"), because there every step may be a new maximum. Idea: escrow transactions (O'Neil,
 * TODS 1986) applied to a running maximum. Argument, model and figures:
 * docs/understand/counters.md.
 */
#ifndef GP_BASE_COUNTER_H
#define GP_BASE_COUNTER_H

#include "base/clock.h"
#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

#define GP_GAUGES_MAX  128
#define GP_WATCHES_MAX 17 /* a session's scopes, and the watch for peaks between two batches */

struct gp_counter;

typedef unsigned __int128 gp_gauge_set; /* bit g: gauge g */
#define GP_GAUGE_BIT(_gauge) ((gp_gauge_set)1 << (_gauge))
_Static_assert(sizeof(gp_gauge_set) * 8 >= GP_GAUGES_MAX, "one bit per gauge");

struct gp_delta {
    uint32_t gauge;
    uint32_t pad_;
    int64_t amount; /* always > 0; the operation gives the sign */
};

enum gp_counter_op {
    GP_ADD, /* current += n, allocated += n, peaks follow */
    GP_SUB, /* current -= n, freed += n */
};

struct gp_gauge_value {
    int64_t current, peak, allocated, freed;
};

/* Makes a set of `gauges` gauges over `shards` shards in anonymous zeroed memory (mmap; no malloc).
 * Any number of threads may use one shard; they contend for its lock. 0, -EINVAL (bounds:
 * 1..GP_GAUGES_MAX, 1..1024), -ENOMEM. */
int gp_counter_new(struct gp_counter **out, unsigned gauges, unsigned shards);
void gp_counter_free(struct gp_counter *set);

/* Applies the n changes of one event together. A gauge may appear once in `deltas`. A caller
 * chooses `shard` once per thread (taken modulo the number of shards). No allocation; no system
 * call, unless the slow path's mutex is contended or a shard's owner was descheduled during an
 * update (sched_yield). Threads: any, but not in a forked child, and not in a signal handler that
 * interrupted an update of this set (the caller checks both). Runs in callbacks; never fails. */
void gp_counter_apply(struct gp_counter *set, unsigned shard, enum gp_counter_op op, const struct gp_delta *deltas,
                      unsigned n);
/* The same, and returns the time at which the change was made (base/clock.h). Changes sorted by this
 * time are in an order in which they can have been made: added up in it, they have the same peaks. */
uint64_t gp_counter_apply_timed(struct gp_counter *set, unsigned shard, enum gp_counter_op op,
                                const struct gp_delta *deltas, unsigned n);

/* The changes of one event whose gauges are mostly those of a pair (below). */
struct gp_counter_event {
    unsigned pair;      /* GP_PAIRS: none */
    int64_t amounts[2]; /* of the pair's bundles */
    unsigned n;
    const struct gp_delta *deltas; /* of other gauges, or more of one that the pair has */
};
/* time_ns: NULL, or gets the time as above. */
void gp_counter_move(struct gp_counter *set, unsigned shard, enum gp_counter_op op,
                     const struct gp_counter_event *event, uint64_t *time_ns);

/* A GP_SUB that turns out not to have been one: current += n, freed -= n, and peaks follow, as the memory was in
 * use all the time. since_ns: the time of the GP_SUB; totals that were reset after it have forgotten it. Slow path. */
void gp_counter_putback(struct gp_counter *set, unsigned shard, uint64_t since_ns, const struct gp_delta *deltas,
                        unsigned n);

/* GP_SUB of an addition that turns out not to have been one: peaks become what they were before it,
 * and what they would have been without it since. since: the number read before the addition. A peak
 * that another addition has raised in between stays: it is then too high, by no more than the
 * amount, and the answer is false. Slow path. */
bool gp_counter_retract(struct gp_counter *set, unsigned shard, uint32_t since, const struct gp_delta *deltas,
                        unsigned n);

/* All gauges at one instant: out[0 .. gauges-1].  Slow path.  Threads: any. */
void gp_counter_snapshot(struct gp_counter *set, struct gp_gauge_value *out);
/* The first of them alone, for a caller with a small stack. */
void gp_counter_first(struct gp_counter *set, unsigned gauges, struct gp_gauge_value *out);

/* Sets peak := current for the gauges in mask. before and after may be NULL; they
 * receive all gauges at the same instant. */
void gp_counter_reset_peaks(struct gp_counter *set, gp_gauge_set mask, struct gp_gauge_value *before,
                            struct gp_gauge_value *after);
/* Sets allocated := freed := 0 for the gauges in mask. */
void gp_counter_reset_totals(struct gp_counter *set, gp_gauge_set mask, struct gp_gauge_value *before,
                             struct gp_gauge_value *after);

/* Watches: independent peaks. begin sets the watch's peak of every gauge to its current value; read
 * returns the peaks; end returns them and stops the watch. out: peaks[gauges]. 0, -EINVAL (slot out
 * of range), -EBUSY (begin: already active), -ENOENT (not active). */
int gp_counter_watch_begin(struct gp_counter *set, unsigned watch);
int gp_counter_watch_read(struct gp_counter *set, unsigned watch, int64_t *peaks);
int gp_counter_watch_end(struct gp_counter *set, unsigned watch, int64_t *peaks);
/* For a reader that collects the peaks since its last call: returns all gauges and the watch's
 * peaks since its last turn, and restarts the watch at the current values, all at one instant. It
 * starts a watch that was not active; its peaks are then the current values. From here on only
 * gauges in mask are watched; for the others, peaks holds their current value. 0, -EINVAL (slot out
 * of range). */
int gp_counter_watch_turn(struct gp_counter *set, unsigned watch, gp_gauge_set mask, struct gp_gauge_value *out,
                          int64_t *peaks);

/* ---- gates: one lock word for the counters and the caller's data
 * ----------------------------------------- */

/* A shard's lock may also guard data of the caller, so that one compare-and-swap serves both: call
 * gp_gate_hold, change the data, call gp_gate_add or gp_gate_sub, then gp_gate_release. While a
 * gate is held every slow path waits for it, so hold it for tens of nanoseconds, without system
 * calls or locks.
 *
 * Gauges are changed under a gate in bundles: gauges that always change by the same amount share
 * one cell in the shard. An allocation changes twelve gauges and three bundles. A shard has the first
 * GP_BUNDLES, for a caller's own data, and GP_PAIRS pairs (count and bytes of one kind of event), of which
 * an event changes one. Two cells fit a cache line; the first line has the lock word too. */
#define GP_BUNDLES 3
#define GP_PAIRS   8
/* The first bundle of a pair: pairs have lines of their own. */
#define GP_PAIR_BUNDLE(_pair) (4 + 2 * (_pair))
#define GP_BUNDLES_ALL        GP_PAIR_BUNDLE(GP_PAIRS)

struct gp_gate_cell {
    int64_t credit, allocated, freed; /* credit counts for every gauge of the bundle */
};

struct gp_gate { /* the start of a shard; private to the functions below */
    uint32_t state;
    uint32_t idle; /* consecutive openings without an update */
    uint64_t ops;  /* updates since this opening */
    struct gp_gate_cell first[2];
    struct {
        uint64_t pad_[2];
        struct gp_gate_cell cell[2];
    } rest[GP_BUNDLES_ALL / 2 - 1];
};
_Static_assert(sizeof(struct gp_gate) == GP_BUNDLES_ALL / 2 * 64, "cache lines");

static inline struct gp_gate_cell *gp_gate_cell(struct gp_gate *gate, unsigned bundle)
{
    return bundle < 2 ? &gate->first[bundle] : &gate->rest[bundle / 2 - 1].cell[bundle % 2];
}
enum { GP_GATE_CLOSED, GP_GATE_OPEN, GP_GATE_BUSY };

/* A gauge's own cell in the shard: the cells follow the gate. */
static inline struct gp_gate_cell *gp_gate_gauge(struct gp_gate *gate, unsigned gauge)
{
    return (struct gp_gate_cell *)(gate + 1) + gauge;
}

/* Sets the gauges of a bundle. A gauge may be in several: each has credit and totals
 * of its own. Call it before an event of that bundle. */
void gp_counter_bundle(struct gp_counter *set, unsigned bundle, gp_gauge_set gauges);
/* Has a thread used that shard? Call it between freeze and thaw. */
bool gp_counter_used(const struct gp_counter *set, unsigned shard);

/* The start of a set: one line, written where no shard is open; private to these functions. */
struct gp_counter_shape {
    uint32_t gauges, shards;
    size_t stride, bytes;                 /* from one shard to the next; of all */
    char *first;                          /* shard */
    uint64_t x_moved[GP_GAUGES_MAX / 64]; /* the gauges that may be other than 0; grows, under the mutex */
    uint32_t x_raises;                    /* grows with each raise of a peak, under the mutex */
};

/* A number that grows with each raise of a peak; read it before an addition that may be retracted. */
static inline uint32_t gp_counter_raises(const struct gp_counter *set)
{
    return __atomic_load_n(&((const struct gp_counter_shape *)set)->x_raises, __ATOMIC_RELAXED);
}

static inline unsigned gp_counter_shards(const struct gp_counter *set)
{
    return ((const struct gp_counter_shape *)set)->shards;
}

static inline struct gp_gate *gp_counter_gate(struct gp_counter *set, unsigned shard)
{
    const struct gp_counter_shape *shape = (const struct gp_counter_shape *)set;
    if (GP_UNLIKELY(shard >= shape->shards))
        shard %= shape->shards; /* a division costs more than the rest of the check */
    return (struct gp_gate *)(shape->first + shard * shape->stride);
}

/* Moves credit from the shard's gauges to the n bundles from `first` on, as much as amounts need. The
 * gate is held. false: there is not enough. */
bool gp_gate_recharge(struct gp_counter *set, struct gp_gate *gate, unsigned first, unsigned n, const int64_t *amounts);

/* false: the set is closed (at the peak, or while another thread reads it) or the shard is busy;
 * use gp_counter_apply instead. [counter.A1] acquire pairs with [counter.R1] and [counter.R2]. */
static inline bool gp_gate_hold(struct gp_gate *gate)
{
    uint32_t seen = GP_GATE_OPEN;
    /* Check first: the compare-and-swap costs some 5 ns even when it fails, and in central mode it
     * always would. Busy means another thread of this shard; gp_counter_apply is not slower than to
     * wait for it. */
    return __atomic_load_n(&gate->state, __ATOMIC_RELAXED) == GP_GATE_OPEN &&
           __atomic_compare_exchange_n(&gate->state, &seen, GP_GATE_BUSY, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* [counter.R1] release pairs with [counter.A1]. */
static inline void gp_gate_release(struct gp_gate *gate)
{
    GP_TESTPOINT("counter.gate");
    __atomic_store_n(&gate->state, GP_GATE_OPEN, __ATOMIC_RELEASE);
    GP_TESTPOINT("counter.released");
}

/* n is a constant of the caller, so the loops below become straight lines. */
#define GP_GATE_EACH _Pragma("GCC unroll 8")

/* GP_ADD of one event that changes n bundles from `first` on. false: not enough credit; nothing changed. */
static inline bool gp_gate_add_to(struct gp_counter *set, struct gp_gate *gate, unsigned first, unsigned n,
                                  const int64_t *amounts)
{
    bool enough = true;
    GP_GATE_EACH
    for (unsigned b = 0; b < n; b++)
        enough &= gp_gate_cell(gate, first + b)->credit >= amounts[b];
    if (__builtin_expect(!enough, 0) && !gp_gate_recharge(set, gate, first, n, amounts))
        return false;
    GP_GATE_EACH
    for (unsigned b = 0; b < n; b++) {
        gp_gate_cell(gate, first + b)->credit -= amounts[b];
        gp_gate_cell(gate, first + b)->allocated += amounts[b];
    }
    gate->ops++;
    GP_TESTPOINT("counter.applied");
    return true;
}

/* GP_SUB of one event. */
static inline void gp_gate_sub_from(struct gp_gate *gate, unsigned first, unsigned n, const int64_t *amounts)
{
    GP_GATE_EACH
    for (unsigned b = 0; b < n; b++) {
        gp_gate_cell(gate, first + b)->credit += amounts[b];
        gp_gate_cell(gate, first + b)->freed += amounts[b];
    }
    gate->ops++;
    GP_TESTPOINT("counter.applied");
}

static inline bool gp_gate_add(struct gp_counter *set, struct gp_gate *gate, const int64_t amounts[GP_BUNDLES])
{
    return gp_gate_add_to(set, gate, 0, GP_BUNDLES, amounts);
}

static inline void gp_gate_sub(struct gp_gate *gate, const int64_t amounts[GP_BUNDLES])
{
    gp_gate_sub_from(gate, 0, GP_BUNDLES, amounts);
}

/* One event that changes a pair: GP_ADD or GP_SUB. false: closed, or not enough credit; nothing
 * changed: use gp_counter_move. */
static inline bool gp_gate_pair(struct gp_counter *set, struct gp_gate *gate, enum gp_counter_op op, unsigned pair,
                                const int64_t amounts[2])
{
    if (!gp_gate_hold(gate))
        return false;
    bool done = true;
    if (op == GP_ADD)
        done = gp_gate_add_to(set, gate, GP_PAIR_BUNDLE(pair), 2, amounts);
    else
        gp_gate_sub_from(gate, GP_PAIR_BUNDLE(pair), 2, amounts);
    gp_gate_release(gate);
    return done;
}

/* The same for an event that has a time (gp_counter_apply_timed) and may move one gauge of the pair by more than the
 * pair's amount. more: at least 0. Returns the time; 0: closed, or not enough credit; nothing changed. */
static inline uint64_t gp_gate_event(struct gp_counter *set, struct gp_gate *gate, enum gp_counter_op op, unsigned pair,
                                     const int64_t amounts[2], unsigned gauge, int64_t more)
{
    struct gp_gate_cell *count = gp_gate_cell(gate, GP_PAIR_BUNDLE(pair)), *bytes = count + 1,
                        *own = gp_gate_gauge(gate, gauge);
    uint64_t time_ns = 0;
    if (!gp_gate_hold(gate))
        return 0;
    /* The recharge takes from the gauge's own cell, so that is looked at after it. */
    if (op == GP_ADD && ((GP_UNLIKELY(count->credit < amounts[0] || bytes->credit < amounts[1]) &&
                          !gp_gate_recharge(set, gate, GP_PAIR_BUNDLE(pair), 2, amounts)) ||
                         GP_UNLIKELY(more && own->credit < more))) {
        gp_gate_release(gate);
        return 0;
    }
    int64_t sign = op == GP_ADD ? -1 : 1;
    count->credit += sign * amounts[0];
    bytes->credit += sign * amounts[1];
    *(op == GP_ADD ? &count->allocated : &count->freed) += amounts[0];
    *(op == GP_ADD ? &bytes->allocated : &bytes->freed) += amounts[1];
    if (GP_UNLIKELY(more)) {
        own->credit += sign * more;
        *(op == GP_ADD ? &own->allocated : &own->freed) += more;
    }
    gate->ops++;
    time_ns = gp_clock_ns();
    GP_TESTPOINT("counter.applied");
    gp_gate_release(gate);
    return time_ns;
}

/* Between freeze and thaw no gate is held and no gauge changes. The thread must not call other
 * functions of this set in between: they would deadlock. For a caller that reads or changes the
 * data that the gates guard. */
void gp_counter_freeze(struct gp_counter *set);
void gp_counter_thaw(struct gp_counter *set);

/* For benchmarks and tests: how often the slow path ran, and the check of the invariant while no
 * update runs (0, or - 1 - the index of a gauge that breaks it). */
uint64_t gp_counter_slow_count(struct gp_counter *set);
int gp_counter_check(struct gp_counter *set);

#endif
