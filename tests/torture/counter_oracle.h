/* SPDX-License-Identifier: MIT
 *
 * counter_oracle.h: the replay oracle for counters. Each torture program of counters includes it
 * once and may rename the gp_counter_* functions first.
 *
 * Every operation takes a ticket at its test point, while it holds its shard or the mutex.
 * Tickets are therefore a linearisation order that respects the start and end of each operation.
 * When the threads of a batch are done, the batch is replayed in ticket order on plain integers,
 * and every value that any snapshot, reset or watch returned is compared. The replay knows
 * nothing of shards, credit or limits.
 */
#ifndef GP_TEST_TORTURE_COUNTER_ORACLE_H
#define GP_TEST_TORTURE_COUNTER_ORACLE_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/counter.h"
#include "lib/random.h"
#include "torture/yield.h"

/* Gauge 0 counts 7 per unit, gauge 1 one per unit: no snapshot may ever show another ratio.  Gauges 2 and 3 take one of
 * two kinds each. */
enum { GAUGES = 4, BYTES_PER_UNIT = 7, UNITS_MAX = 8, KINDS = 2, WATCHES = 3 };
enum { OPS_MAX = 4096, THREADS_MAX = 8, LIVES_MAX = 10 };

enum kind { APPLY, PUTBACK, SNAPSHOT, RESET_PEAKS, RESET_TOTALS, WATCH_BEGIN, WATCH_READ, WATCH_END, WATCH_TURN };

struct entry {
    uint32_t ticket; /* 0: none taken */
    uint8_t kind, op, units, which, watch, mask;
    int16_t result;
    uint32_t sub_ticket; /* PUTBACK: of the free */
    bool fast;
    struct gp_gauge_value before[GAUGES], after[GAUGES]; /* watches: before[g].peak, a turn: after[g].peak */
};

struct profile {
    const char *name;
    unsigned threads, shards;
    unsigned observe; /* one operation in so many observes or resets */
    unsigned reset;   /* one observation in so many resets or watches */
    bool split;       /* even threads only allocate, odd ones only free */
    unsigned lives;   /* threads that share one log: each ends and starts the next, on another shard */
};

struct batch {
    struct gp_counter *set;
    const struct profile *profile;
    unsigned ops;
    uint64_t seed;
    uint32_t tickets;
    int32_t held[KINDS][UNITS_MAX + 1]; /* the number of live allocations of that shape: any thread frees any of them */
    struct entry *entries[THREADS_MAX];
};

struct worker {
    struct batch *batch;
    unsigned index, life, made;
    pthread_t threads[LIVES_MAX]; /* one per thread of the log, written by the thread before it */
};

struct tally {
    uint64_t batches, ops, fast, rounds, wrong, incomplete;
};

static __thread struct entry *oracle_entry;
static __thread struct batch *oracle_batch;
static __thread uint64_t oracle_random;

void gp_testpoint(const char *name);
/* Takes the ticket where the operation's effect becomes final, and yields the processor in one
 * window of 32. */
void gp_testpoint(const char *name)
{
    bool fast = !strcmp(name, "counter.applied");
    if (oracle_entry && (fast || !strcmp(name, "counter.central") || !strcmp(name, "counter.instant"))) {
        oracle_entry->ticket = __atomic_add_fetch(&oracle_batch->tickets, 1, __ATOMIC_RELAXED);
        oracle_entry->fast = fast;
        oracle_entry = NULL;
    }
    if (oracle_random && random_next(&oracle_random) % 32 == 0)
        torture_yield();
}

static unsigned oracle_deltas(struct gp_delta out[3], unsigned units, unsigned which)
{
    out[0] = (struct gp_delta){0, 0, (int64_t)units * BYTES_PER_UNIT};
    out[1] = (struct gp_delta){1, 0, units};
    out[2] = (struct gp_delta){2 + which, 0, units};
    return 3;
}

/* ---- the threads ------------------------------------------------------------------------------------------------- */

static struct entry *worker_entry(struct worker *self, unsigned *made, enum kind kind)
{
    struct entry *entry = &self->batch->entries[self->index][(*made)++];
    memset(entry, 0, sizeof *entry);
    entry->kind = (uint8_t)kind;
    return entry;
}

/* Through the gate, as core/cache does: gauges 1 and 2 are one bundle.  Or through one of the pairs, which have the same
 * gauges, as a framework's blocks do.  false: closed, or out of credit. */
static bool worker_gate(struct worker *self, enum gp_counter_op op, unsigned units)
{
    struct gp_counter *set = self->batch->set;
    struct gp_gate *gate = gp_counter_gate(set, self->index + self->life);
    const int64_t amounts[GP_BUNDLES] = {(int64_t)units * BYTES_PER_UNIT, units, 0};
    unsigned way = (unsigned)(random_next(&oracle_random) % 3);
    if (way < 2)
        return gp_gate_pair(set, gate, op, way, amounts);
    bool done = gp_gate_hold(gate);
    if (!done)
        return false;
    gp_testpoint("counter.held");
    if (op == GP_ADD)
        done = gp_gate_add(set, gate, amounts);
    else
        gp_gate_sub(gate, amounts);
    gp_gate_release(gate);
    return done;
}

/* As a driver's event: a pair, and what it leaves; or the pair and more of one gauge, through the gate. */
static uint64_t worker_event(struct worker *self, enum gp_counter_op op, unsigned units, unsigned which)
{
    struct gp_delta rest = {2 + which, 0, units};
    bool whole = which == 0 && random_next(&oracle_random) % 2; /* pair 3 has gauge 2 too */
    struct gp_counter_event event = {whole ? 3 : 2, {(int64_t)units * BYTES_PER_UNIT, units}, !whole, &rest};
    uint64_t time_ns;
    if (random_next(&oracle_random) % 2) {
        struct gp_gate *gate = gp_counter_gate(self->batch->set, self->index + self->life);
        if (whole) { /* of gauge 0, which the pair has too */
            rest.gauge = 0;
            rest.amount = 1 + (int64_t)(random_next(&oracle_random) % 6);
            event.amounts[0] -= rest.amount;
            event.n = 1;
        }
        time_ns = gp_gate_event(self->batch->set, gate, op, event.pair, event.amounts, rest.gauge, rest.amount);
        if (time_ns)
            return time_ns;
    }
    gp_counter_move(self->batch->set, self->index + self->life, op, &event, &time_ns);
    return time_ns;
}

/* timed: the time is wanted. */
static uint64_t worker_apply(struct worker *self, unsigned *made, enum gp_counter_op op, unsigned units, unsigned which,
                             bool timed)
{
    struct gp_delta deltas[3];
    unsigned n = oracle_deltas(deltas, units, which);
    struct entry *entry = worker_entry(self, made, APPLY);
    entry->op = (uint8_t)op;
    entry->units = (uint8_t)units;
    entry->which = (uint8_t)which;
    oracle_entry = entry;
    if (random_next(&oracle_random) % 3 == 0)
        return worker_event(self, op, units, which);
    if (timed)
        return gp_counter_apply_timed(self->batch->set, self->index + self->life, op, deltas, n);
    bool gate = which == 0 && random_next(&oracle_random) % 2;
    if (!gate || !worker_gate(self, op, units))
        gp_counter_apply(self->batch->set, self->index + self->life, op, deltas, n);
    return 0;
}

static void worker_putback(struct worker *self, unsigned *made, unsigned units, unsigned which, uint64_t since)
{
    struct gp_delta deltas[3];
    unsigned n = oracle_deltas(deltas, units, which);
    uint32_t sub = self->batch->entries[self->index][*made - 1].ticket;
    struct entry *entry = worker_entry(self, made, PUTBACK);
    entry->units = (uint8_t)units;
    entry->which = (uint8_t)which;
    entry->sub_ticket = sub;
    oracle_entry = entry;
    gp_counter_putback(self->batch->set, self->index + self->life, since, deltas, n);
}

static void worker_allocate(struct worker *self, unsigned *made)
{
    unsigned units = 1 + random_next(&oracle_random) % UNITS_MAX, which = random_next(&oracle_random) % KINDS;
    worker_apply(self, made, GP_ADD, units, which, false);
    __atomic_add_fetch(&self->batch->held[which][units], 1, __ATOMIC_ACQ_REL);
}

/* Frees one live allocation of some shape; one free in sixteen is refused. */
static void worker_release(struct worker *self, unsigned *made)
{
    unsigned units = 1 + random_next(&oracle_random) % UNITS_MAX, which = random_next(&oracle_random) % KINDS;
    int32_t *held = &self->batch->held[which][units];
    int32_t live = __atomic_load_n(held, __ATOMIC_ACQUIRE);
    do
        if (live <= 0)
            return;
    while (!__atomic_compare_exchange_n(held, &live, live - 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    bool refused = random_next(&oracle_random) % 16 == 0;
    uint64_t since = worker_apply(self, made, GP_SUB, units, which, refused);
    if (!refused)
        return;
    worker_putback(self, made, units, which, since);
    __atomic_add_fetch(held, 1, __ATOMIC_ACQ_REL);
}

static void worker_observe(struct worker *self, unsigned *made)
{
    struct gp_counter *set = self->batch->set;
    bool change = random_next(&oracle_random) % self->batch->profile->reset == 0;
    enum kind kind = !change ? (random_next(&oracle_random) % 2 ? SNAPSHOT : WATCH_READ)
                             : (enum kind)(RESET_PEAKS + random_next(&oracle_random) % 6);
    struct entry *entry = worker_entry(self, made, kind);
    int64_t peaks[GAUGES] = {0};
    entry->watch = random_next(&oracle_random) % WATCHES;
    entry->mask = random_next(&oracle_random) % (1u << GAUGES);
    oracle_entry = entry;
    switch (kind) {
    case SNAPSHOT:
        gp_counter_snapshot(set, entry->before);
        break;
    case RESET_PEAKS:
        gp_counter_reset_peaks(set, entry->mask, entry->before, entry->after);
        break;
    case RESET_TOTALS:
        gp_counter_reset_totals(set, entry->mask, entry->before, entry->after);
        break;
    case WATCH_BEGIN:
        entry->result = (int16_t)gp_counter_watch_begin(set, entry->watch);
        break;
    case WATCH_READ:
        entry->result = (int16_t)gp_counter_watch_read(set, entry->watch, peaks);
        break;
    case WATCH_END:
        entry->result = (int16_t)gp_counter_watch_end(set, entry->watch, peaks);
        break;
    default:
        entry->result = (int16_t)gp_counter_watch_turn(set, entry->watch, entry->mask, entry->before, peaks);
    }
    for (unsigned g = 0; (kind == WATCH_READ || kind == WATCH_END) && g < GAUGES; g++)
        entry->before[g].peak = peaks[g];
    for (unsigned g = 0; kind == WATCH_TURN && g < GAUGES; g++)
        entry->after[g].peak = peaks[g];
}

/* Allocations and frees come in runs, so that the total moves away from its peak and the shards
 * get credit. */
static void worker_live(struct worker *self, unsigned until)
{
    const struct profile *profile = self->batch->profile;
    unsigned idle = 0;
    bool grow = true;
    while (self->made + 2 <= until && idle < until * 4) {
        unsigned before = self->made;
        if (random_next(&oracle_random) % 48 == 0)
            grow = !grow;
        if (profile->split)
            grow = self->index % 2 == 0;
        if (random_next(&oracle_random) % profile->observe == 0)
            worker_observe(self, &self->made);
        else if (grow)
            worker_allocate(self, &self->made);
        else
            worker_release(self, &self->made);
        if (self->made == before) {
            idle++;
            torture_yield();
        }
    }
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    struct batch *batch = self->batch;
    oracle_batch = batch;
    oracle_random =
        (batch->seed * 0x9e3779b97f4a7c15ull ^ (self->index * 64 + self->life + 1) * 0xbf58476d1ce4e5b9ull) | 1;
    worker_live(self, batch->ops / batch->profile->lives * (self->life + 1));
    oracle_random = 0;
    if (self->life + 1 < batch->profile->lives) {
        pthread_t *next = &self->threads[++self->life];
        if (pthread_create(next, NULL, worker_main, self))
            abort();
    }
    return NULL;
}

/* ---- the replay -------------------------------------------------------------------------------------------------- */

struct replay {
    struct gp_gauge_value gauge[GAUGES];
    int64_t watch[WATCHES][GAUGES];
    bool active[WATCHES];
    uint32_t now, reset_at[GAUGES]; /* tickets */
};

static void replay_raise(struct replay *replay, unsigned g)
{
    struct gp_gauge_value *gauge = &replay->gauge[g];
    gauge->peak = gauge->current > gauge->peak ? gauge->current : gauge->peak;
    for (unsigned w = 0; w < WATCHES; w++)
        if (replay->active[w] && gauge->current > replay->watch[w][g])
            replay->watch[w][g] = gauge->current;
}

static void replay_apply(struct replay *replay, const struct entry *entry)
{
    struct gp_delta deltas[3];
    unsigned n = oracle_deltas(deltas, entry->units, entry->which);
    for (unsigned i = 0; i < n; i++) {
        struct gp_gauge_value *gauge = &replay->gauge[deltas[i].gauge];
        int64_t amount = deltas[i].amount;
        gauge->current += entry->op == GP_ADD ? amount : -amount;
        gauge->allocated += entry->op == GP_ADD ? amount : 0;
        gauge->freed += entry->op == GP_SUB ? amount : 0;
        replay_raise(replay, deltas[i].gauge);
    }
}

static void replay_putback(struct replay *replay, const struct entry *entry)
{
    struct gp_delta deltas[3];
    unsigned n = oracle_deltas(deltas, entry->units, entry->which);
    for (unsigned i = 0; i < n; i++) {
        struct gp_gauge_value *gauge = &replay->gauge[deltas[i].gauge];
        gauge->current += deltas[i].amount;
        gauge->freed -= replay->reset_at[deltas[i].gauge] > entry->sub_ticket ? 0 : deltas[i].amount;
        replay_raise(replay, deltas[i].gauge);
    }
}

static bool replay_values(const struct replay *replay, const struct gp_gauge_value *seen)
{
    return !memcmp(replay->gauge, seen, sizeof replay->gauge) && seen[0].current == BYTES_PER_UNIT * seen[1].current &&
           seen[1].current == seen[2].current + seen[3].current && seen[1].current >= 0;
}

static bool replay_reset(struct replay *replay, const struct entry *entry)
{
    bool right = replay_values(replay, entry->before);
    for (unsigned g = 0; g < GAUGES; g++) {
        if (!(entry->mask >> g & 1))
            continue;
        if (entry->kind == RESET_PEAKS)
            replay->gauge[g].peak = replay->gauge[g].current;
        else
            replay->gauge[g].allocated = replay->gauge[g].freed = 0, replay->reset_at[g] = replay->now;
    }
    return right && replay_values(replay, entry->after);
}

static bool replay_watch(struct replay *replay, const struct entry *entry)
{
    unsigned w = entry->watch;
    bool begin = entry->kind == WATCH_BEGIN, was = replay->active[w], right = true;
    if (entry->result != (begin ? (was ? -EBUSY : 0) : (was ? 0 : -ENOENT)))
        return false;
    for (unsigned g = 0; g < GAUGES; g++) {
        if (begin && !was)
            replay->watch[w][g] = replay->gauge[g].current;
        else if (!begin && was)
            right &= entry->before[g].peak == replay->watch[w][g];
    }
    replay->active[w] = entry->kind == WATCH_END ? false : entry->kind == WATCH_BEGIN ? true : was;
    return right;
}

/* A set without a watch has a mark that no value reaches. */
static bool replay_turn(struct replay *replay, const struct entry *entry)
{
    bool right = entry->result == 0 && replay_values(replay, entry->before);
    for (unsigned g = 0; g < GAUGES; g++) {
        int64_t *mark = &replay->watch[entry->watch][g], current = replay->gauge[g].current;
        right &= entry->after[g].peak == (replay->active[entry->watch] && *mark != INT64_MAX ? *mark : current);
        *mark = entry->mask >> g & 1 ? current : INT64_MAX;
    }
    replay->active[entry->watch] = true;
    return right;
}

static bool replay_step(struct replay *replay, const struct entry *entry)
{
    switch (entry->kind) {
    case APPLY:
        replay_apply(replay, entry);
        return true;
    case PUTBACK:
        replay_putback(replay, entry);
        return true;
    case SNAPSHOT:
        return replay_values(replay, entry->before);
    case RESET_PEAKS:
    case RESET_TOTALS:
        return replay_reset(replay, entry);
    case WATCH_TURN:
        return replay_turn(replay, entry);
    default:
        return replay_watch(replay, entry);
    }
}

/* Orders the entries by ticket and replays them; then the set at rest must equal the replay. */
static void batch_replay(struct batch *batch, const struct entry **order, struct tally *tally)
{
    struct replay replay = {0};
    struct gp_gauge_value rest[GAUGES];
    memset(order, 0, (batch->tickets + 1) * sizeof order[0]);
    for (unsigned t = 0; t < batch->profile->threads; t++)
        for (unsigned i = 0; i < batch->ops && batch->entries[t][i].ticket; i++)
            order[batch->entries[t][i].ticket] = &batch->entries[t][i];
    for (uint32_t i = 1; i <= batch->tickets; i++) {
        if (!order[i]) {
            tally->incomplete++;
            continue;
        }
        replay.now = i;
        tally->ops++;
        tally->fast += order[i]->fast;
        tally->rounds += order[i]->kind >= SNAPSHOT;
        tally->wrong += !replay_step(&replay, order[i]);
    }
    gp_counter_snapshot(batch->set, rest);
    tally->rounds++;
    tally->wrong += !replay_values(&replay, rest) || gp_counter_check(batch->set) != 0;
    tally->batches++;
}

static void worker_join(struct worker *worker)
{
    for (unsigned life = 0; life < worker->batch->profile->lives; life++)
        pthread_join(worker->threads[life], NULL);
    memset(&worker->batch->entries[worker->index][worker->made], 0, sizeof(struct entry));
}

/* One batch: a fresh set and fresh threads, which run freely; then the replay. */
static void oracle_batch_run(const struct profile *profile, unsigned ops, uint64_t seed, struct tally *tally)
{
    static struct entry *entries[THREADS_MAX];
    static const struct entry **order;
    struct batch batch = {.profile = profile, .ops = ops, .seed = seed};
    struct worker workers[THREADS_MAX];
    if (!order)
        order = malloc((THREADS_MAX * OPS_MAX + 2) * sizeof order[0]);
    if (!order || ops > OPS_MAX || gp_counter_new(&batch.set, GAUGES, profile->shards))
        abort();
    for (unsigned first = 0; first < GP_BUNDLES_ALL; first += first ? 2 : GP_PAIR_BUNDLE(0)) {
        gp_counter_bundle(batch.set, first, 1u << 0);
        gp_counter_bundle(batch.set, first + 1, first == GP_PAIR_BUNDLE(2) ? 1u << 1 : 1u << 1 | 1u << 2);
    }
    for (unsigned t = 0; t < profile->threads; t++) {
        if (!entries[t] && !(entries[t] = malloc((OPS_MAX + 1) * sizeof(struct entry))))
            abort();
        batch.entries[t] = entries[t];
        workers[t] = (struct worker){.batch = &batch, .index = t};
    }
    for (unsigned t = 0; t < profile->threads; t++)
        if (pthread_create(&workers[t].threads[0], NULL, worker_main, &workers[t]))
            abort();
    for (unsigned t = 0; t < profile->threads; t++)
        worker_join(&workers[t]);
    batch_replay(&batch, order, tally);
    gp_counter_free(batch.set);
}

static const struct profile oracle_profiles[] = {
    {"mixed, 3 threads", 3, 4, 16, 4, false, 1},
    {"resets everywhere", 3, 3, 4, 2, false, 1},
    {"long openings", 2, 2, 64, 16, false, 1},
    {"producer and consumer", 2, 2, 32, 8, true, 1},
    {"producers and consumers", 4, 4, 32, 8, true, 1},
    {"more threads than shards", 8, 3, 24, 6, false, 1},
    {"one shard", 3, 1, 24, 6, false, 1},
    {"threads come and go", 4, 16, 24, 6, false, 10},
};

#endif
