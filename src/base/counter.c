/* SPDX-License-Identifier: MIT
 *
 * counter.c: escrow counters (base/counter.h has the contract, docs/understand/counters.md the
 * argument). The feed calls it for every allocation and free, the drain thread for snapshots. It
 * must never allocate, never fail an update, and never let a shard change while a peak is decided.
 *
 * Invariant, for every gauge, whenever the mutex is free:
 *
 *      limit = min(peak, active watches' peaks)
 *      limit = current + pool.credit + sum over shards(credit),  pool.credit >= 0, every credit >= 0
 *
 * A shard's credit for a gauge is the sum of the credit in its cell and in the bundles that the
 * gauge belongs to.
 *
 * The pool is the slow path's cell, guarded by the mutex. The thread that changed a shard's state
 * from OPEN owns the shard's fields: the thread that made it BUSY, or, while it is CLOSED, the
 * holder of the mutex. Zero means CLOSED: a shard in untouched memory has to register itself first.
 */
#define _GNU_SOURCE /* PTHREAD_MUTEX_ADAPTIVE_NP */
#include "base/counter.h"
#include "base/kept.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/pause.h"
#include "base/testpoint.h"

#define GP_SHARDS_MAX 1024

/* Central updates after a closing before the set considers opening again. Closing and opening cost
 * about as much as 16 central updates for a few shards. Above 1024 the set is practically always
 * central. */
#define GP_PATIENCE_MIN 16
#define GP_PATIENCE_MAX 1024

/* A shard without an update in this many consecutive openings gets no credit (it stays open, for
 * frees). */
#define GP_IDLE_MAX 8

/* Room is shared if each shard could pay for this many events like the last one. */
#define GP_DEAL_EVENTS 4

struct gp_counter_cell {
    int64_t credit;
    int64_t allocated, freed;
    /* sum of TAKEs without their TAKEN or PUTBACK yet; negative in a shard that only finishes those
     * of others */
    int64_t taken;
};

struct gp_shard {
    struct gp_gate gate;
    struct gp_counter_cell cells[];
};

struct gp_counter {
    struct gp_counter_shape shape; /* this line is written when a gauge moves for the first time */

    GP_ALIGNED_LINE pthread_mutex_t mutex; /* guards all fields below */
    bool open;
    uint32_t watching;       /* bit w: watch w is active */
    uint32_t patience, stay; /* central updates per closing; the number left */
    uint64_t bought;         /* shard updates since the last opening that an update caused */
    uint64_t slow;           /* updates that took the slow path, and slow operations */
    uint64_t used[GP_SHARDS_MAX / 64];
    gp_gauge_set bundle[GP_BUNDLES_ALL];
    bool frozen_open; /* between freeze and thaw: the set was open before */

    GP_ALIGNED_LINE struct gp_counter_cell pool[GP_GAUGES_MAX];
    int64_t share[GP_GAUGES_MAX]; /* of set_open_for: the stack is the program's */
    int64_t limit[GP_GAUGES_MAX];
    int64_t peak[GP_GAUGES_MAX];
    /* current = base + allocated - freed - taken: an independent sum for gp_counter_check */
    int64_t base[GP_GAUGES_MAX];
    int64_t watch[GP_WATCHES_MAX][GP_GAUGES_MAX];
    /* Of the last raise of each gauge: its number, the amount that was added, and the peaks before
     * it. */
    uint32_t x_raises; /* written under the mutex, read without */
    uint32_t raise[GP_GAUGES_MAX];
    int64_t raise_amount[GP_GAUGES_MAX];
    int64_t raise_peak[GP_GAUGES_MAX];
    int64_t raise_watch[GP_WATCHES_MAX][GP_GAUGES_MAX];
};

static inline unsigned gauge_lowest(gp_gauge_set gauges)
{
    uint64_t low = (uint64_t)gauges;
    return (unsigned)(low ? __builtin_ctzll(low) : 64 + __builtin_ctzll((uint64_t)(gauges >> 64)));
}

#define GP_EACH_GAUGE(_gauges, _g)                                                                                     \
    for (gp_gauge_set gauges_ = (_gauges); gauges_; gauges_ &= gauges_ - 1)                                            \
        for (unsigned _g = gauge_lowest(gauges_), once_ = 1; once_; once_ = 0)

/* The gauges that were ever moved, or that a bundle has: all others are 0 everywhere, and no shard has credit for them.
 * A gauge enters before it moves for the first time, under the mutex. */
static inline gp_gauge_set set_moved(const struct gp_counter *set)
{
    return (gp_gauge_set)set->shape.x_moved[1] << 64 | set->shape.x_moved[0];
}

static void set_moves(struct gp_counter *set, gp_gauge_set gauges)
{
    gauges |= set_moved(set);
    for (unsigned word = 0; word < GP_COUNT(set->shape.x_moved); word++)
        if (set->shape.x_moved[word] != (uint64_t)(gauges >> 64 * word))
            __atomic_store_n(&set->shape.x_moved[word], (uint64_t)(gauges >> 64 * word), __ATOMIC_RELAXED);
}

static void set_moves_all(struct gp_counter *set, const struct gp_delta *deltas, unsigned n)
{
    gp_gauge_set gauges = 0;
    for (unsigned i = 0; i < n; i++)
        gauges |= GP_GAUGE_BIT(deltas[i].gauge);
    set_moves(set, gauges);
}

static inline struct gp_shard *shard_at(const struct gp_counter *set, unsigned index)
{
    return (struct gp_shard *)(set->shape.first + index * set->shape.stride);
}

/* Changes the state from OPEN to next (BUSY: the caller owns the shard for one update; CLOSED: the
 * slow path owns it). False: the shard is closed. [counter.A1] acquire pairs with [counter.R1] and
 * [counter.R2]: the new owner sees the cells that the last owner wrote. */
static inline bool shard_own(struct gp_shard *shard, uint32_t next)
{
    /* Check first: the compare-and-swap costs some 5 ns even when it fails, and in central mode it
     * always would. */
    if (__atomic_load_n(&shard->gate.state, __ATOMIC_RELAXED) == GP_GATE_CLOSED)
        return false;
    for (unsigned spins = 0;;) {
        uint32_t seen = GP_GATE_OPEN;
        if (GP_LIKELY(__atomic_compare_exchange_n(&shard->gate.state, &seen, next, false, __ATOMIC_ACQUIRE,
                                                  __ATOMIC_RELAXED)))
            return true;
        if (seen == GP_GATE_CLOSED)
            return false;
        gp_pause(spins++);
    }
}

/* Have all these gauges moved before? An old answer is no, which is safe. */
static inline bool set_knows(const struct gp_counter *set, const struct gp_delta *deltas, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        uint64_t word = __atomic_load_n(&set->shape.x_moved[deltas[i].gauge / 64], __ATOMIC_RELAXED);
        if (GP_UNLIKELY(!(word >> deltas[i].gauge % 64 & 1)))
            return false;
    }
    return true;
}

/* Is there enough credit for every delta? Operations that do not raise `current` fit, unless a gauge is new. */
static inline bool cells_cover(const struct gp_counter *set, const struct gp_counter_cell *cells, enum gp_counter_op op,
                               const struct gp_delta *deltas, unsigned n)
{
    if (op != GP_ADD && op != GP_PUTBACK)
        return set_knows(set, deltas, n);
    for (unsigned i = 0; i < n; i++)
        if (GP_UNLIKELY(cells[deltas[i].gauge].credit < deltas[i].amount))
            return false;
    return true;
}

/* Defines the effect of each operation; cells are a shard's or the pool's. One loop for each
 * operation keeps the test of `op` out of the loop. */
static inline void cells_apply(struct gp_counter_cell *cells, enum gp_counter_op op, const struct gp_delta *deltas,
                               unsigned n)
{
#define GP_COUNTER_EACH(_credit, _total, _sign)                                                                        \
    for (unsigned i = 0; i < n; i++) {                                                                                 \
        struct gp_counter_cell *cell = &cells[deltas[i].gauge];                                                        \
        cell->credit += (_credit)*deltas[i].amount;                                                                    \
        cell->_total += (_sign)*deltas[i].amount;                                                                      \
    }
    switch (op) {
    case GP_ADD:
        GP_COUNTER_EACH(-1, allocated, 1);
        break;
    case GP_SUB:
        GP_COUNTER_EACH(1, freed, 1);
        break;
    case GP_TAKE:
        GP_COUNTER_EACH(1, taken, 1);
        break;
    case GP_TAKEN:
        GP_COUNTER_EACH(0, freed, 1);
        GP_COUNTER_EACH(0, taken, -1);
        break;
    case GP_PUTBACK:
        GP_COUNTER_EACH(-1, taken, -1);
        break;
    }
#undef GP_COUNTER_EACH
}

/* Moves `amount` of credit from each of the gauges' cells to bundle b, or back if it is
 * negative. */
static void gate_shift(const struct gp_counter *set, struct gp_shard *shard, unsigned b, int64_t amount)
{
    GP_EACH_GAUGE(set->bundle[b], g) shard->cells[g].credit -= amount;
    shard->gate.bundle[b].credit += amount;
}

static int64_t gate_least(const struct gp_counter *set, const struct gp_shard *shard, unsigned b)
{
    int64_t least = INT64_MAX;
    GP_EACH_GAUGE(set->bundle[b], g)
    {
        int64_t credit = shard->cells[g].credit;
        least = credit < least ? credit : least;
    }
    return least == INT64_MAX ? 0 : least;
}

GP_COLD bool gp_gate_recharge(struct gp_counter *set, struct gp_gate *gate, unsigned first, unsigned n,
                              const int64_t *amounts)
{
    struct gp_shard *shard = (struct gp_shard *)gate;
    bool enough = true;
    for (unsigned b = first; b < first + n; b++) {
        int64_t have = gate->bundle[b].credit, need = amounts[b - first];
        if (have >= need)
            continue;
        /* Take half of the available credit, or the needed amount if that is more: ordinary updates
         * need credit too. */
        int64_t least = gate_least(set, shard, b), want = need - have;
        gate_shift(set, shard, b, least / 2 > want ? least / 2 : least < want ? least : want);
        enough &= gate->bundle[b].credit >= need;
    }
    return enough;
}

/* Moves all credit of the bundles back to the gauges' cells. False: there was none. */
static GP_COLD bool gate_return(const struct gp_counter *set, struct gp_shard *shard)
{
    bool any = false;
    for (unsigned b = 0; b < GP_BUNDLES_ALL; b++) {
        int64_t have = shard->gate.bundle[b].credit;
        if (have)
            gate_shift(set, shard, b, -have);
        any |= have > 0;
    }
    return any;
}

/* Applies one update to an open shard. False: closed, or not enough credit; nothing changed.
 * time_ns: NULL, or gets the time. It is read while the shard is owned: a slow path that waits for
 * the shard has a later time, one that this waited for an earlier one. */
static inline bool shard_apply(struct gp_counter *set, struct gp_shard *shard, enum gp_counter_op op,
                               const struct gp_delta *deltas, unsigned n, uint64_t *time_ns)
{
    if (GP_UNLIKELY(!shard_own(shard, GP_GATE_BUSY)))
        return false;
    GP_TESTPOINT("counter.busy");
    bool covered = cells_cover(set, shard->cells, op, deltas, n);
    if (GP_UNLIKELY(!covered))
        covered = gate_return(set, shard) && cells_cover(set, shard->cells, op, deltas, n);
    if (GP_LIKELY(covered)) {
        cells_apply(shard->cells, op, deltas, n);
        shard->gate.ops++;
        if (time_ns)
            *time_ns = gp_clock_ns();
        GP_TESTPOINT("counter.applied");
    }
    /* [counter.R1] release pairs with [counter.A1]. */
    __atomic_store_n(&shard->gate.state, GP_GATE_OPEN, __ATOMIC_RELEASE);
    GP_TESTPOINT("counter.released");
    return covered;
}

/* ---- slow path: everything below runs under the mutex ------------------------------------------------------------ */

#define GP_EACH_USED(_set, _index)                                                                                     \
    for (unsigned word_ = 0; word_ < GP_SHARDS_MAX / 64; word_++)                                                      \
        for (uint64_t bits_ = (_set)->used[word_], _index;                                                             \
             bits_ && ((_index = word_ * 64 + (unsigned)__builtin_ctzll(bits_)), 1); bits_ &= bits_ - 1)

/* Moves everything from a shard that has just been closed to the pool. */
static void shard_drain(struct gp_counter *set, struct gp_shard *shard)
{
    shard->gate.idle = shard->gate.ops ? 0 : shard->gate.idle + (shard->gate.idle < GP_IDLE_MAX);
    set->bought += shard->gate.ops;
    shard->gate.ops = 0;
    for (unsigned b = 0; b < GP_BUNDLES_ALL; b++) {
        GP_EACH_GAUGE(set->bundle[b], g)
        {
            struct gp_counter_cell *cell = &shard->cells[g];
            cell->credit += shard->gate.bundle[b].credit;
            cell->allocated += shard->gate.bundle[b].allocated;
            cell->freed += shard->gate.bundle[b].freed;
        }
        memset(&shard->gate.bundle[b], 0, sizeof shard->gate.bundle[b]);
    }
    GP_EACH_GAUGE(set_moved(set), g)
    {
        struct gp_counter_cell *from = &shard->cells[g], *to = &set->pool[g];
        to->credit += from->credit;
        to->allocated += from->allocated;
        to->freed += from->freed;
        to->taken += from->taken;
        *from = (struct gp_counter_cell){0};
    }
}

/* Closes the set. Afterwards no update happens outside the mutex, and current = limit -
 * pool.credit. True: the set was open. */
static bool set_close(struct gp_counter *set)
{
    if (!set->open)
        return false;
    GP_EACH_USED(set, index)
    {
        struct gp_shard *shard = shard_at(set, (unsigned)index);
        if (shard_own(shard, GP_GATE_CLOSED)) {
            GP_TESTPOINT("counter.closing");
            shard_drain(set, shard);
        }
    }
    set->open = false;
    GP_TESTPOINT("counter.closed");
    return true;
}

static unsigned set_active(const struct gp_counter *set)
{
    unsigned active = 0;
    GP_EACH_USED(set, index) active += shard_at(set, (unsigned)index)->gate.idle < GP_IDLE_MAX;
    return active;
}

/* Distributes the pool's credit and opens every used shard. Shares are equal, and the remainder
 * stays in the pool. For the gauges in scarce, `favourite` gets all the credit, because it is
 * enough for one shard only. */
static void set_open_for(struct gp_counter *set, gp_gauge_set scarce, struct gp_shard *favourite)
{
    unsigned active = set_active(set);
    gp_gauge_set dealt = 0;
    GP_EACH_GAUGE(active ? set_moved(set) & ~scarce : 0, g)
    {
        set->share[g] = active == 1 ? set->pool[g].credit : set->pool[g].credit / active;
        set->pool[g].credit -= set->share[g] * active;
        dealt |= set->share[g] ? GP_GAUGE_BIT(g) : 0;
    }
    GP_EACH_GAUGE(scarce, g)
    {
        favourite->cells[g].credit += set->pool[g].credit;
        set->pool[g].credit = 0;
    }
    set->open = true;
    GP_EACH_USED(set, index)
    {
        struct gp_shard *shard = shard_at(set, (unsigned)index);
        GP_EACH_GAUGE(shard->gate.idle < GP_IDLE_MAX ? dealt : 0, g) shard->cells[g].credit += set->share[g];
        /* [counter.R2] release pairs with [counter.A1]. */
        __atomic_store_n(&shard->gate.state, GP_GATE_OPEN, __ATOMIC_RELEASE);
        GP_TESTPOINT("counter.opened");
    }
}

static void set_open(struct gp_counter *set)
{
    set_open_for(set, 0, NULL);
}

static inline int64_t gauge_current(const struct gp_counter *set, unsigned g)
{
    return set->limit[g] - set->pool[g].credit;
}

/* Computes the limit after a peak or a watch has changed; the difference goes to the pool, so that
 * `current` does not change. In an open set the limit may only rise. */
static void gauge_limit(struct gp_counter *set, unsigned g)
{
    int64_t limit = set->peak[g];
    for (uint32_t bits = set->watching; bits; bits &= bits - 1) {
        int64_t mark = set->watch[__builtin_ctz(bits)][g];
        limit = mark < limit ? mark : limit;
    }
    set->pool[g].credit += limit - set->limit[g];
    set->limit[g] = limit;
}

/* pool.credit < 0 means that current is above the limit: the peak or a watch's peak rises. */
static inline void gauge_raise(struct gp_counter *set, unsigned g, int64_t amount)
{
    int64_t current = gauge_current(set, g);
    uint32_t number = set->x_raises + 1;
    __atomic_store_n(&set->x_raises, number, __ATOMIC_RELAXED); /* a number, publishes nothing */
    set->raise[g] = number;
    set->raise_amount[g] = amount;
    set->raise_peak[g] = set->peak[g];
    if (current > set->peak[g])
        set->peak[g] = current;
    if (!set->watching) { /* then limit = peak; this is the most frequent case */
        set->limit[g] = current;
        set->pool[g].credit = 0;
        return;
    }
    for (uint32_t bits = set->watching; bits; bits &= bits - 1) {
        int64_t *mark = &set->watch[__builtin_ctz(bits)][g];
        set->raise_watch[__builtin_ctz(bits)][g] = *mark;
        *mark = current > *mark ? current : *mark;
    }
    gauge_limit(set, g);
}

/* Adjusts `patience` by whether the last opening was worth its price. The price grows with the
 * number of shards that are visited. */
static void set_learn(struct gp_counter *set)
{
    uint64_t price = GP_PATIENCE_MIN;
    for (unsigned word = 0; word < GP_COUNT(set->used); word++)
        price += (uint64_t)__builtin_popcountll(set->used[word]) * GP_DEAL_EVENTS;
    if (set->bought < price)
        set->patience = set->patience < GP_PATIENCE_MAX ? set->patience * 2 : GP_PATIENCE_MAX;
    else
        set->patience = set->patience > GP_PATIENCE_MIN ? set->patience / 2 : GP_PATIENCE_MIN;
    set->bought = 0;
    set->stay = set->patience;
}

/* Opens the set if there is room for another event like this one; otherwise it checks again after
 * the next. If there is too little room to share (a thread that frees one block and allocates
 * another keeps the number of blocks at its peak), the shard of this event gets all of it; the
 * other shards gain credit when they free. set_learn measures whether this pays. */
static void set_consider(struct gp_counter *set, struct gp_shard *shard, const struct gp_delta *deltas, unsigned n)
{
    gp_gauge_set scarce = 0;
    set->stay = 1;
    for (unsigned i = 0; i < n; i++)
        if (set->pool[deltas[i].gauge].credit < deltas[i].amount)
            return;
    int64_t events = (int64_t)set_active(set) * GP_DEAL_EVENTS;
    for (unsigned i = 0; i < n; i++)
        if (set->pool[deltas[i].gauge].credit / events < deltas[i].amount)
            scarce |= GP_GAUGE_BIT(deltas[i].gauge);
    set_open_for(set, scarce, shard);
}

/* Registers a shard at its first use. In an open set it starts open and without credit, like one
 * that was idle. */
static void set_register(struct gp_counter *set, unsigned index)
{
    uint64_t bit = 1ull << (index % 64);
    if (set->used[index / 64] & bit)
        return;
    set->used[index / 64] |= bit;
    if (set->open) /* [counter.R2] as in set_open */
        __atomic_store_n(&shard_at(set, index)->gate.state, GP_GATE_OPEN, __ATOMIC_RELEASE);
}

static __attribute__((noinline)) void counter_apply_slow(struct gp_counter *set, unsigned index, enum gp_counter_op op,
                                                         const struct gp_delta *deltas, unsigned n, uint64_t *time_ns)
{
    struct gp_shard *shard = shard_at(set, index);
    pthread_mutex_lock(&set->mutex);
    set->slow++;
    set_register(set, index);
    /* A thread that waited for the mutex while its holder opened the set must not close the set
     * again needlessly. */
    if (set->open && shard_apply(set, shard, op, deltas, n, time_ns)) {
        pthread_mutex_unlock(&set->mutex);
        return;
    }
    if (set_close(set))
        set_learn(set);
    shard->gate.idle = 0;
    set_moves_all(set, deltas, n);
    cells_apply(set->pool, op, deltas, n);
    for (unsigned i = 0; i < n; i++)
        if (set->pool[deltas[i].gauge].credit < 0)
            gauge_raise(set, deltas[i].gauge, deltas[i].amount);
    if (time_ns)
        *time_ns = gp_clock_ns();
    GP_TESTPOINT("counter.central");
    if (--set->stay == 0)
        set_consider(set, shard, deltas, n);
    pthread_mutex_unlock(&set->mutex);
    GP_TESTPOINT("counter.unlocked");
}

static inline void counter_apply(struct gp_counter *set, unsigned shard, enum gp_counter_op op,
                                 const struct gp_delta *deltas, unsigned n, uint64_t *time_ns)
{
    if (GP_UNLIKELY(shard >= set->shape.shards))
        shard %= set->shape.shards; /* a division costs more than the rest of the check */
#ifdef GP_COUNTER_MUTANT_OPEN_FREE  /* negative control: frees that ignore the state */
    if (op == GP_SUB) {
        cells_apply(shard_at(set, shard)->cells, op, deltas, n);
        GP_TESTPOINT("counter.applied");
        return;
    }
#endif
    if (GP_UNLIKELY(!shard_apply(set, shard_at(set, shard), op, deltas, n, time_ns)))
        counter_apply_slow(set, shard, op, deltas, n, time_ns);
}

void gp_counter_apply(struct gp_counter *set, unsigned shard, enum gp_counter_op op, const struct gp_delta *deltas,
                      unsigned n)
{
    counter_apply(set, shard, op, deltas, n, NULL);
}

uint64_t gp_counter_apply_timed(struct gp_counter *set, unsigned shard, enum gp_counter_op op,
                                const struct gp_delta *deltas, unsigned n)
{
    uint64_t time_ns = 0;
    counter_apply(set, shard, op, deltas, n, &time_ns);
    return time_ns;
}

/* ---- gates ------------------------------------------------------------------------------------------------------- */

bool gp_counter_used(const struct gp_counter *set, unsigned shard)
{
    return set->used[shard / 64] >> shard % 64 & 1;
}

static bool set_enter(struct gp_counter *set);
static void set_leave(struct gp_counter *set, bool reopen);

void gp_counter_bundle(struct gp_counter *set, unsigned bundle, gp_gauge_set gauges)
{
    bool was_open = set_enter(set);
    set->bundle[bundle] = gauges;
    set_moves(set, gauges);
    set_leave(set, was_open);
}

void gp_counter_freeze(struct gp_counter *set)
{
    bool was_open = set_enter(set);
    set->frozen_open = was_open;
}

void gp_counter_thaw(struct gp_counter *set)
{
    set_leave(set, set->frozen_open);
}

/* ---- the other operations ---------------------------------------------------------------------------------------- */

static bool set_enter(struct gp_counter *set)
{
    pthread_mutex_lock(&set->mutex);
    set->slow++;
    return set_close(set);
}

/* reopen: the operation lowered no limit, so the credit from before can be distributed again. */
static void set_leave(struct gp_counter *set, bool reopen)
{
    GP_TESTPOINT("counter.instant");
    if (reopen)
        set_open(set);
    pthread_mutex_unlock(&set->mutex);
    GP_TESTPOINT("counter.unlocked");
}

static void set_values(const struct gp_counter *set, struct gp_gauge_value *out)
{
    for (unsigned g = 0; out && g < set->shape.gauges; g++)
        out[g] =
            (struct gp_gauge_value){gauge_current(set, g), set->peak[g], set->pool[g].allocated, set->pool[g].freed};
}

void gp_counter_snapshot(struct gp_counter *set, struct gp_gauge_value *out)
{
    bool was_open = set_enter(set);
    set_values(set, out);
    set_leave(set, was_open);
}

void gp_counter_reset_peaks(struct gp_counter *set, gp_gauge_set mask, struct gp_gauge_value *before,
                            struct gp_gauge_value *after)
{
    set_enter(set);
    set_values(set, before);
    for (unsigned g = 0; g < set->shape.gauges; g++)
        if (mask >> g & 1) {
            set->peak[g] = gauge_current(set, g);
            gauge_limit(set, g);
        }
    set_values(set, after);
    set_leave(set, false);
}

uint32_t gp_counter_raises(const struct gp_counter *set)
{
    return __atomic_load_n(&set->x_raises, __ATOMIC_RELAXED);
}

/* Before the addition the peak was `before`. All levels since were at most `peak` and included the
 * amount; and the level just before it was at most `before`. */
static int64_t gauge_without(int64_t peak, int64_t before, int64_t amount)
{
    int64_t without = before > peak - amount ? before : peak - amount;
    return without < peak ? without : peak;
}

void gp_counter_retract(struct gp_counter *set, unsigned shard, uint32_t since, const struct gp_delta *deltas,
                        unsigned n)
{
    set_enter(set);
    set_register(set, shard % set->shape.shards);
    set_moves_all(set, deltas, n);
    cells_apply(set->pool, GP_SUB, deltas, n);
    for (unsigned i = 0; i < n; i++) {
        unsigned g = deltas[i].gauge;
        int64_t amount = deltas[i].amount;
        if ((int32_t)(set->raise[g] - since) <= 0 || set->raise_amount[g] != amount)
            continue;
        set->peak[g] = gauge_without(set->peak[g], set->raise_peak[g], amount);
        for (uint32_t bits = set->watching; bits; bits &= bits - 1) {
            unsigned w = (unsigned)__builtin_ctz(bits);
            set->watch[w][g] = gauge_without(set->watch[w][g], set->raise_watch[w][g], amount);
        }
        gauge_limit(set, g);
    }
    set_leave(set, false); /* limits may be lower */
}

void gp_counter_reset_totals(struct gp_counter *set, gp_gauge_set mask, struct gp_gauge_value *before,
                             struct gp_gauge_value *after)
{
    bool was_open = set_enter(set);
    set_values(set, before);
    for (unsigned g = 0; g < set->shape.gauges; g++)
        if (mask >> g & 1) {
            set->base[g] += set->pool[g].allocated - set->pool[g].freed;
            set->pool[g].allocated = set->pool[g].freed = 0;
        }
    set_values(set, after);
    set_leave(set, was_open);
}

int gp_counter_watch_begin(struct gp_counter *set, unsigned watch)
{
    if (watch >= GP_WATCHES_MAX)
        return -EINVAL;
    bool was_open = set_enter(set);
    bool busy = set->watching >> watch & 1;
    if (!busy) {
        set->watching |= 1u << watch;
        for (unsigned g = 0; g < set->shape.gauges; g++) {
            set->watch[watch][g] = gauge_current(set, g);
            gauge_limit(set, g);
        }
    }
    set_leave(set, was_open && busy);
    return busy ? -EBUSY : 0;
}

/* No peak changes outside the mutex, so reading and ending a watch need no closing. */
static int watch_finish(struct gp_counter *set, unsigned watch, int64_t *peaks, bool end)
{
    if (watch >= GP_WATCHES_MAX)
        return -EINVAL;
    pthread_mutex_lock(&set->mutex);
    set->slow++;
    bool active = set->watching >> watch & 1;
    if (active && peaks)
        memcpy(peaks, set->watch[watch], set->shape.gauges * sizeof peaks[0]);
    if (active && end) {
        set->watching &= ~(1u << watch);
        for (unsigned g = 0; g < set->shape.gauges; g++)
            gauge_limit(set, g);
    }
    set_leave(set, false);
    return active ? 0 : -ENOENT;
}

int gp_counter_watch_read(struct gp_counter *set, unsigned watch, int64_t *peaks)
{
    return watch_finish(set, watch, peaks, false);
}

int gp_counter_watch_end(struct gp_counter *set, unsigned watch, int64_t *peaks)
{
    return watch_finish(set, watch, peaks, true);
}

/* A gauge that is not watched has a watch value that no gauge reaches, so it does not affect its
 * limit. */
int gp_counter_watch_turn(struct gp_counter *set, unsigned watch, gp_gauge_set mask, struct gp_gauge_value *out,
                          int64_t *peaks)
{
    if (watch >= GP_WATCHES_MAX)
        return -EINVAL;
    set_enter(set);
    bool active = set->watching >> watch & 1;
    set_values(set, out);
    set->watching |= 1u << watch;
    for (unsigned g = 0; g < set->shape.gauges; g++) {
        int64_t current = gauge_current(set, g), mark = set->watch[watch][g];
        peaks[g] = active && mark != INT64_MAX ? mark : current;
        set->watch[watch][g] = mask >> g & 1 ? current : INT64_MAX;
        gauge_limit(set, g);
    }
    set_leave(set, false);
    return 0;
}

void gp_counter_set(struct gp_counter *set, unsigned gauge, int64_t value)
{
    bool was_open = set_enter(set);
    int64_t change = value - gauge_current(set, gauge);
    struct gp_delta delta = {gauge, 0, change < 0 ? -change : change};
    set_moves_all(set, &delta, 1);
    cells_apply(set->pool, change < 0 ? GP_SUB : GP_ADD, &delta, 1);
    if (set->pool[gauge].credit < 0)
        gauge_raise(set, gauge, 0);
    set_leave(set, was_open);
}

uint64_t gp_counter_slow_count(struct gp_counter *set)
{
    pthread_mutex_lock(&set->mutex);
    uint64_t slow = set->slow;
    pthread_mutex_unlock(&set->mutex);
    return slow;
}

/* The two sums must agree, and no credit may be negative. Each credit is checked before it is
 * drained; therefore each shard is locked here before set_close drains it. */
int gp_counter_check(struct gp_counter *set)
{
    int wrong = 0;
    pthread_mutex_lock(&set->mutex);
    GP_EACH_USED(set, index)
    {
        struct gp_shard *shard = shard_at(set, (unsigned)index);
        bool owned = set->open && shard_own(shard, GP_GATE_BUSY);
        for (unsigned g = 0; g < set->shape.gauges; g++)
            if (shard->cells[g].credit < 0 || (!owned && shard->cells[g].credit))
                wrong = -(int)g - 1;
        for (unsigned b = 0; b < GP_BUNDLES_ALL; b++)
            if (shard->gate.bundle[b].credit < 0 || (!owned && shard->gate.bundle[b].credit))
                wrong = -(int)gauge_lowest(set->bundle[b] | GP_GAUGE_BIT(GP_GAUGES_MAX - 1)) - 1;
        if (owned) /* [counter.R1] */
            __atomic_store_n(&shard->gate.state, GP_GATE_OPEN, __ATOMIC_RELEASE);
    }
    bool was_open = set_close(set);
    for (unsigned g = 0; g < set->shape.gauges; g++) {
        const struct gp_counter_cell *pool = &set->pool[g];
        int64_t limit = set->limit[g];
        gauge_limit(set, g);
        if (pool->credit < 0 || limit != set->limit[g] ||
            gauge_current(set, g) != set->base[g] + pool->allocated - pool->freed - pool->taken)
            wrong = -(int)g - 1;
    }
    set_leave(set, was_open);
    return wrong;
}

int gp_counter_new(struct gp_counter **out, unsigned gauges, unsigned shards)
{
    if (gauges < 1 || gauges > GP_GAUGES_MAX || shards < 1 || shards > GP_SHARDS_MAX)
        return -EINVAL;
    size_t stride = sizeof(struct gp_shard) + gauges * sizeof(struct gp_counter_cell);
    stride = (stride + GP_LINE - 1) / GP_LINE * GP_LINE;
    size_t head = (sizeof(struct gp_counter) + GP_LINE - 1) / GP_LINE * GP_LINE;
    size_t bytes = head + stride * shards;
    struct gp_counter *set = gp_kept_map(bytes, 0);
    if (!set)
        return -ENOMEM;
    set->shape.gauges = gauges;
    set->shape.shards = shards;
    set->shape.stride = stride;
    set->shape.bytes = bytes;
    set->shape.first = (char *)set + head;
    set->patience = set->stay = GP_PATIENCE_MIN;
    /* Adaptive: the mutex is held for less time than a sleep and a wake-up cost. */
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&set->mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    *out = set;
    return 0;
}

void gp_counter_free(struct gp_counter *set)
{
    if (!set)
        return;
    pthread_mutex_destroy(&set->mutex);
    gp_kept_unmap(set, set->shape.bytes);
}
