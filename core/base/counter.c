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
#include "base/counterset.h"
#include "base/kept.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/lock.h"

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

/* Moves `amount` of credit from each of the gauges' cells to bundle b, or back if it is
 * negative. */
static void gate_shift(const struct gp_counter *set, struct gp_shard *shard, unsigned b, int64_t amount)
{
    const struct gp_counter_bundle *bundle = &set->bundle[b];
    for (unsigned i = 0; i < bundle->count; i++)
        shard->cells[bundle->gauges[i]].credit -= amount;
    gp_gate_cell(&shard->gate, b)->credit += amount;
}

static int64_t gate_least(const struct gp_counter *set, const struct gp_shard *shard, unsigned b)
{
    const struct gp_counter_bundle *bundle = &set->bundle[b];
    int64_t least = bundle->count ? INT64_MAX : 0;
    for (unsigned i = 0; i < bundle->count; i++) {
        int64_t credit = shard->cells[bundle->gauges[i]].credit;
        least = credit < least ? credit : least;
    }
    return least;
}

GP_COLD bool gp_gate_recharge(struct gp_counter *set, struct gp_gate *gate, unsigned first, unsigned n,
                              const int64_t *amounts)
{
    struct gp_shard *shard = (struct gp_shard *)gate;
    bool enough = true;
    for (unsigned b = first; b < first + n; b++) {
        int64_t have = gp_gate_cell(gate, b)->credit, need = amounts[b - first];
        if (have >= need)
            continue;
        /* Take half of the available credit, or the needed amount if that is more: ordinary updates
         * need credit too. */
        int64_t least = gate_least(set, shard, b), want = need - have;
        gate_shift(set, shard, b, least / 2 > want ? least / 2 : least < want ? least : want);
        enough &= gp_gate_cell(gate, b)->credit >= need;
    }
    return enough;
}

/* Moves all credit of the bundles back to the gauges' cells. False: there was none. */
static GP_COLD bool gate_return(const struct gp_counter *set, struct gp_shard *shard)
{
    bool any = false;
    for (unsigned b = 0; b < GP_BUNDLES_ALL; b++) {
        int64_t have = gp_gate_cell(&shard->gate, b)->credit;
        if (have)
            gate_shift(set, shard, b, -have);
        any |= have > 0;
    }
    return any;
}

static inline void pair_apply(struct gp_gate *gate, enum gp_counter_op op, const struct gp_counter_event *event)
{
    for (unsigned side = 0; event->pair < GP_PAIRS && side < 2; side++) {
        struct gp_gate_cell *cell = gp_gate_cell(gate, GP_PAIR_BUNDLE(event->pair) + side);
        int64_t amount = event->amounts[side];
        cell->credit += op == GP_ADD ? -amount : amount;
        *(op == GP_ADD ? &cell->allocated : &cell->freed) += amount;
    }
}

static inline bool pair_covers(struct gp_gate *gate, enum gp_counter_op op, const struct gp_counter_event *event)
{
    unsigned b = GP_PAIR_BUNDLE(event->pair);
    return event->pair == GP_PAIRS || op == GP_SUB ||
           (gp_gate_cell(gate, b)->credit >= event->amounts[0] &&
            gp_gate_cell(gate, b + 1)->credit >= event->amounts[1]);
}

/* The shard has enough credit, but not where the event needs it. */
static GP_COLD bool shard_gather(struct gp_counter *set, struct gp_shard *shard, enum gp_counter_op op,
                                 const struct gp_counter_event *event)
{
    bool pair = event->pair < GP_PAIRS && op == GP_ADD;
    unsigned first = GP_PAIR_BUNDLE(event->pair);
    if (pair && gp_gate_recharge(set, &shard->gate, first, 2, event->amounts) &&
        cells_cover(set, shard->cells, op, event->deltas, event->n))
        return true;
    /* The recharge may take what a delta of one of the pair's gauges needs. */
    return gate_return(set, shard) && (!pair || gp_gate_recharge(set, &shard->gate, first, 2, event->amounts)) &&
           cells_cover(set, shard->cells, op, event->deltas, event->n);
}

/* Applies one update to an open shard. False: closed, or not enough credit; nothing changed.
 * time_ns: NULL, or gets the time. It is read while the shard is owned: a slow path that waits for
 * the shard has a later time, one that this waited for an earlier one. */
static inline __attribute__((always_inline)) bool shard_apply(struct gp_counter *set, struct gp_shard *shard,
                                                              enum gp_counter_op op,
                                                              const struct gp_counter_event *event, uint64_t *time_ns)
{
    if (GP_UNLIKELY(!shard_own(shard, GP_GATE_BUSY)))
        return false;
    GP_TESTPOINT("counter.busy");
    bool covered = pair_covers(&shard->gate, op, event) && cells_cover(set, shard->cells, op, event->deltas, event->n);
    if (GP_UNLIKELY(!covered)) {
        const struct gp_counter_event lacking = *event; /* as in counter_move */
        covered = shard_gather(set, shard, op, &lacking);
    }
    if (GP_LIKELY(covered)) {
        pair_apply(&shard->gate, op, event);
        cells_apply(shard->cells, op, event->deltas, event->n);
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
        struct gp_gate_cell *from = gp_gate_cell(&shard->gate, b);
        if (!(from->credit | from->allocated | from->freed))
            continue;
        for (unsigned i = 0; i < set->bundle[b].count; i++) {
            struct gp_gate_cell *to = &set->pool[set->bundle[b].gauges[i]];
            to->credit += from->credit;
            to->allocated += from->allocated;
            to->freed += from->freed;
        }
        *from = (struct gp_gate_cell){0};
    }
    GP_EACH_GAUGE(set_moved(set), g)
    {
        struct gp_gate_cell *from = &shard->cells[g], *to = &set->pool[g];
        to->credit += from->credit;
        to->allocated += from->allocated;
        to->freed += from->freed;
        *from = (struct gp_gate_cell){0};
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
    uint32_t number = set->shape.x_raises + 1;
    __atomic_store_n(&set->shape.x_raises, number, __ATOMIC_RELAXED); /* a number, publishes nothing */
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

/* The gauges of an event one by one; returns how many. */
static unsigned set_spread(struct gp_counter *set, const struct gp_counter_event *event)
{
    unsigned n = 0;
    for (unsigned side = 0; side < 2 && event->pair < GP_PAIRS; side++) {
        const struct gp_counter_bundle *bundle = &set->bundle[GP_PAIR_BUNDLE(event->pair) + side];
        for (unsigned i = 0; i < bundle->count; i++)
            set->event[n++] = (struct gp_delta){.gauge = bundle->gauges[i], .amount = event->amounts[side]};
    }
    for (unsigned i = 0; i < event->n; i++)
        set->event[n++] = event->deltas[i];
    return n;
}

/* Whether the pool has room for another event like this one. */
static bool set_has_room(const struct gp_counter *set, const struct gp_counter_event *event)
{
    for (unsigned side = 0; side < 2 && event->pair < GP_PAIRS; side++) {
        const struct gp_counter_bundle *bundle = &set->bundle[GP_PAIR_BUNDLE(event->pair) + side];
        for (unsigned i = 0; i < bundle->count; i++)
            if (set->pool[bundle->gauges[i]].credit < event->amounts[side])
                return false;
    }
    for (unsigned i = 0; i < event->n; i++)
        if (set->pool[event->deltas[i].gauge].credit < event->deltas[i].amount)
            return false;
    return true;
}

/* Opens the set if there is room for another event like this one; otherwise it checks again after
 * the next. If there is too little room to share (a thread that frees one block and allocates
 * another keeps the number of blocks at its peak), the shard of this event gets all of it; the
 * other shards gain credit when they free. set_learn measures whether this pays. */
static void set_consider(struct gp_counter *set, struct gp_shard *shard, const struct gp_counter_event *event)
{
    gp_gauge_set scarce = 0;
    set->stay = 1;
    if (!set_has_room(set, event))
        return;
    int64_t events = (int64_t)set_active(set) * GP_DEAL_EVENTS;
    unsigned n = set_spread(set, event);
    for (unsigned i = 0; i < n; i++)
        if (set->pool[set->event[i].gauge].credit / events < set->event[i].amount)
            scarce |= GP_GAUGE_BIT(set->event[i].gauge);
    set_open_for(set, scarce, shard);
}

/* An event while the set is closed. */
static inline void set_change(struct gp_counter *set, enum gp_counter_op op, unsigned g, int64_t amount)
{
    struct gp_gate_cell *cell = &set->pool[g];
    cell->credit += op == GP_ADD ? -amount : amount;
    *(op == GP_ADD ? &cell->allocated : &cell->freed) += amount;
    if (op == GP_ADD && cell->credit < 0)
        gauge_raise(set, g, amount);
}

static inline void set_apply(struct gp_counter *set, enum gp_counter_op op, const struct gp_counter_event *event)
{
    for (unsigned side = 0; side < 2 && event->pair < GP_PAIRS; side++) {
        const struct gp_counter_bundle *bundle = &set->bundle[GP_PAIR_BUNDLE(event->pair) + side];
        for (unsigned i = 0; i < bundle->count; i++)
            set_change(set, op, bundle->gauges[i], event->amounts[side]);
    }
    if (GP_UNLIKELY(!set_knows(set, event->deltas, event->n))) /* the gauges of bundles are known */
        set_moves_all(set, event->deltas, event->n);
    for (unsigned i = 0; i < event->n; i++)
        set_change(set, op, event->deltas[i].gauge, event->deltas[i].amount);
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

static __attribute__((noinline)) void counter_move_slow(struct gp_counter *set, unsigned index, enum gp_counter_op op,
                                                        const struct gp_counter_event *event, uint64_t *time_ns)
{
    struct gp_shard *shard = shard_at(set, index);
    pthread_mutex_lock(&set->mutex);
    set->slow++;
    set_register(set, index);
    /* A thread that waited for the mutex while its holder opened the set must not close the set
     * again needlessly. */
    if (set->open && shard_apply(set, shard, op, event, time_ns)) {
        pthread_mutex_unlock(&set->mutex);
        return;
    }
    if (set_close(set))
        set_learn(set);
    shard->gate.idle = 0;
    if (op == GP_ADD) /* twice, so that each is a loop without the question */
        set_apply(set, GP_ADD, event);
    else
        set_apply(set, GP_SUB, event);
    if (time_ns)
        *time_ns = gp_clock_ns();
    GP_TESTPOINT("counter.central");
    if (--set->stay == 0)
        set_consider(set, shard, event);
    pthread_mutex_unlock(&set->mutex);
    GP_TESTPOINT("counter.unlocked");
}

/* Inlined, so that events without a pair are spared the questions about it. */
static inline __attribute__((always_inline)) void counter_move(struct gp_counter *set, unsigned shard,
                                                               enum gp_counter_op op,
                                                               const struct gp_counter_event *event, uint64_t *time_ns)
{
    if (GP_UNLIKELY(shard >= set->shape.shards))
        shard %= set->shape.shards; /* a division costs more than the rest of the check */
#ifdef GP_COUNTER_MUTANT_OPEN_FREE  /* negative control: frees that ignore the state */
    if (op == GP_SUB && event->pair == GP_PAIRS) {
        cells_apply(shard_at(set, shard)->cells, op, event->deltas, event->n);
        GP_TESTPOINT("counter.applied");
        return;
    }
#endif
    if (GP_UNLIKELY(!shard_apply(set, shard_at(set, shard), op, event, time_ns))) {
        const struct gp_counter_event slow = *event; /* so that the other one can stay in registers */
        counter_move_slow(set, shard, op, &slow, time_ns);
    }
}

void gp_counter_move(struct gp_counter *set, unsigned shard, enum gp_counter_op op,
                     const struct gp_counter_event *event, uint64_t *time_ns)
{
    counter_move(set, shard, op, event, time_ns);
}

void gp_counter_apply(struct gp_counter *set, unsigned shard, enum gp_counter_op op, const struct gp_delta *deltas,
                      unsigned n)
{
    counter_move(set, shard, op, &(struct gp_counter_event){.pair = GP_PAIRS, .n = n, .deltas = deltas}, NULL);
}

uint64_t gp_counter_apply_timed(struct gp_counter *set, unsigned shard, enum gp_counter_op op,
                                const struct gp_delta *deltas, unsigned n)
{
    uint64_t time_ns = 0;
    counter_move(set, shard, op, &(struct gp_counter_event){.pair = GP_PAIRS, .n = n, .deltas = deltas}, &time_ns);
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
    set->bundle[bundle].count = 0;
    GP_EACH_GAUGE(gauges, g) set->bundle[bundle].gauges[set->bundle[bundle].count++] = (uint8_t)g;
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

static void set_values(const struct gp_counter *set, unsigned gauges, struct gp_gauge_value *out)
{
    for (unsigned g = 0; out && g < gauges; g++)
        out[g] =
            (struct gp_gauge_value){gauge_current(set, g), set->peak[g], set->pool[g].allocated, set->pool[g].freed};
}

void gp_counter_first(struct gp_counter *set, unsigned gauges, struct gp_gauge_value *out)
{
    bool was_open = set_enter(set);
    set_values(set, gauges, out);
    set_leave(set, was_open);
}

void gp_counter_snapshot(struct gp_counter *set, struct gp_gauge_value *out)
{
    gp_counter_first(set, set->shape.gauges, out);
}

void gp_counter_reset_peaks(struct gp_counter *set, gp_gauge_set mask, struct gp_gauge_value *before,
                            struct gp_gauge_value *after)
{
    set_enter(set);
    set_values(set, set->shape.gauges, before);
    for (unsigned g = 0; g < set->shape.gauges; g++)
        if (mask >> g & 1) {
            set->peak[g] = gauge_current(set, g);
            gauge_limit(set, g);
        }
    set_values(set, set->shape.gauges, after);
    set_leave(set, false);
}

/* Before the addition the peak was `before`. All levels since were at most `peak` and included the
 * amount; and the level just before it was at most `before`. */
static int64_t gauge_without(int64_t peak, int64_t before, int64_t amount)
{
    int64_t without = before > peak - amount ? before : peak - amount;
    return without < peak ? without : peak;
}

bool gp_counter_retract(struct gp_counter *set, unsigned shard, uint32_t since, const struct gp_delta *deltas,
                        unsigned n)
{
    bool forgotten = true;
    set_enter(set);
    set_register(set, shard % set->shape.shards);
    set_moves_all(set, deltas, n);
    cells_apply(set->pool, GP_SUB, deltas, n);
    for (unsigned i = 0; i < n; i++) {
        unsigned g = deltas[i].gauge;
        int64_t amount = deltas[i].amount;
        if ((int32_t)(set->raise[g] - since) <= 0)
            continue;
        if (set->raise_amount[g] != amount) {
            forgotten = false;
            continue;
        }
        set->peak[g] = gauge_without(set->peak[g], set->raise_peak[g], amount);
        for (uint32_t bits = set->watching; bits; bits &= bits - 1) {
            unsigned w = (unsigned)__builtin_ctz(bits);
            set->watch[w][g] = gauge_without(set->watch[w][g], set->raise_watch[w][g], amount);
        }
        gauge_limit(set, g);
    }
    set_leave(set, false); /* limits may be lower */
    return forgotten;
}

void gp_counter_putback(struct gp_counter *set, unsigned shard, uint64_t since_ns, const struct gp_delta *deltas,
                        unsigned n)
{
    bool was_open = set_enter(set);
    set_register(set, shard % set->shape.shards);
    set_moves_all(set, deltas, n);
    for (unsigned i = 0; i < n; i++) {
        unsigned g = deltas[i].gauge;
        set->pool[g].credit -= deltas[i].amount;
        *(set->reset_ns[g] > since_ns ? &set->base[g] : &set->pool[g].freed) +=
            set->reset_ns[g] > since_ns ? deltas[i].amount : -deltas[i].amount;
        if (set->pool[g].credit < 0)
            gauge_raise(set, g, deltas[i].amount);
    }
    set_leave(set, was_open);
}

void gp_counter_reset_totals(struct gp_counter *set, gp_gauge_set mask, struct gp_gauge_value *before,
                             struct gp_gauge_value *after)
{
    bool was_open = set_enter(set);
    uint64_t now_ns = gp_clock_ns(); /* no update is under way: later than those before, as their times are */
    set_values(set, set->shape.gauges, before);
    for (unsigned g = 0; g < set->shape.gauges; g++)
        if (mask >> g & 1) {
            set->base[g] += set->pool[g].allocated - set->pool[g].freed;
            set->pool[g].allocated = set->pool[g].freed = 0;
            set->reset_ns[g] = now_ns;
        }
    set_values(set, set->shape.gauges, after);
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
    set_leave(set, false); /* it may be open all the time */
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
    set_values(set, set->shape.gauges, out);
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
            if (gp_gate_cell(&shard->gate, b)->credit < 0 || (!owned && gp_gate_cell(&shard->gate, b)->credit))
                wrong = -(int)set->bundle[b].gauges[0] - 1;
        if (owned) /* [counter.R1] */
            __atomic_store_n(&shard->gate.state, GP_GATE_OPEN, __ATOMIC_RELEASE);
    }
    bool was_open = set_close(set);
    for (unsigned g = 0; g < set->shape.gauges; g++) {
        const struct gp_gate_cell *pool = &set->pool[g];
        int64_t limit = set->limit[g];
        gauge_limit(set, g);
        if (pool->credit < 0 || limit != set->limit[g] ||
            gauge_current(set, g) != set->base[g] + pool->allocated - pool->freed)
            wrong = -(int)g - 1;
    }
    set_leave(set, was_open);
    return wrong;
}

int gp_counter_new(struct gp_counter **out, unsigned gauges, unsigned shards)
{
    if (gauges < 1 || gauges > GP_GAUGES_MAX || shards < 1 || shards > GP_SHARDS_MAX)
        return -EINVAL;
    size_t stride = sizeof(struct gp_shard) + gauges * sizeof(struct gp_gate_cell);
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
