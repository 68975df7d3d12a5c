/* SPDX-License-Identifier: MIT
 *
 * counter.c: runs ds/counter under many threads. Arguments: seconds (default 15), seed. It has
 * two parts.
 *
 * Replay: threads run freely, and every operation takes a ticket inside its critical section.
 * The batch is then replayed in ticket order, and every returned value is compared
 * (counter_oracle.h).
 *
 * Duel: short rounds that end at rest are judged by facts that hold in any order. The wrong
 * schemes (per-thread peaks; reset by storing current) run the same rounds and must be caught
 * there.
 */
#include "base/compiler.h"
#include "torture/counter_oracle.h"

static unsigned passed, failed;

static void verdict(bool good, const char *what)
{
    printf("  %s: %s\n", good ? "ok  " : "FAIL", what);
    *(good ? &passed : &failed) += 1;
}

/* ---- schemes: one gauge, behind one shape ------------------------------------------------------------------------ */

struct scheme {
    const char *name;
    void (*begin)(void);
    void (*change)(unsigned thread, int64_t amount);
    void (*reset)(void);
    void (*read)(int64_t *current, int64_t *peak);
    bool exact;
};

static struct gp_counter *ours;

static void ours_begin(void)
{
    gp_counter_free(ours);
    if (gp_counter_new(&ours, 1, 4))
        abort();
}

static void ours_change(unsigned thread, int64_t amount)
{
    struct gp_delta delta = {0, 0, amount < 0 ? -amount : amount};
    gp_counter_apply(ours, thread, amount < 0 ? GP_SUB : GP_ADD, &delta, 1);
}

static void ours_reset(void)
{
    gp_counter_reset_peaks(ours, 1, NULL, NULL);
}

static void ours_read(int64_t *current, int64_t *peak)
{
    struct gp_gauge_value value;
    gp_counter_snapshot(ours, &value);
    *current = value.current;
    *peak = value.peak;
}

/* The wrong schemes use atomics throughout: their fault here is the idea, not a torn integer. */
static int64_t naive_current, naive_peak;

/* A reset and two updaters must meet in a few instructions. Test points alone, open in one of 32 visits, let a whole run
 * pass without that in one of ten. */
static void naive_window(unsigned one_in)
{
    if (oracle_random && oracle_next(&oracle_random) % one_in == 0)
        torture_yield();
}

static void atomic_max(int64_t *at, int64_t value)
{
    int64_t seen = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    while (seen < value && !__atomic_compare_exchange_n(at, &seen, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        ;
}

static void naive_begin(void)
{
    naive_current = naive_peak = 0;
}

static void naive_change(unsigned thread, int64_t amount)
{
    (void)thread;
    int64_t now = __atomic_add_fetch(&naive_current, amount, __ATOMIC_ACQ_REL);
    naive_window(4);
    atomic_max(&naive_peak, now);
}

static void naive_reset(void)
{
    int64_t now = __atomic_load_n(&naive_current, __ATOMIC_ACQUIRE);
    naive_window(1);
    __atomic_store_n(&naive_peak, now, __ATOMIC_RELEASE);
}

static void naive_read(int64_t *current, int64_t *peak)
{
    *current = __atomic_load_n(&naive_current, __ATOMIC_ACQUIRE);
    *peak = __atomic_load_n(&naive_peak, __ATOMIC_ACQUIRE);
}

/* Per-thread current and peak; the total is summed only when a thread exceeds its own peak (as Paddle does). */
static int64_t local_current[4], local_peak[4], local_global;

static void local_begin(void)
{
    memset(local_current, 0, sizeof local_current);
    memset(local_peak, 0, sizeof local_peak);
    local_global = 0;
}

static int64_t local_sum(void)
{
    int64_t sum = 0;
    for (unsigned i = 0; i < GP_COUNT(local_current); i++) {
        sum += __atomic_load_n(&local_current[i], __ATOMIC_ACQUIRE);
        gp_testpoint("local.summing");
    }
    return sum;
}

static void local_change(unsigned thread, int64_t amount)
{
    int64_t now = __atomic_add_fetch(&local_current[thread], amount, __ATOMIC_ACQ_REL);
    if (now <= __atomic_load_n(&local_peak[thread], __ATOMIC_ACQUIRE))
        return;
    __atomic_store_n(&local_peak[thread], now, __ATOMIC_RELEASE);
    atomic_max(&local_global, local_sum());
}

static void local_reset(void)
{
    __atomic_store_n(&local_global, local_sum(), __ATOMIC_RELEASE);
    for (unsigned i = 0; i < GP_COUNT(local_current); i++)
        __atomic_store_n(&local_peak[i], __atomic_load_n(&local_current[i], __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

static void local_read(int64_t *current, int64_t *peak)
{
    *current = local_sum();
    *peak = __atomic_load_n(&local_global, __ATOMIC_ACQUIRE);
}

static const struct scheme schemes[] = {
    {"escrow (ds/counter)", ours_begin, ours_change, ours_reset, ours_read, true},
    {"store-current reset", naive_begin, naive_change, naive_reset, naive_read, false},
    {"per-thread peaks", local_begin, local_change, local_reset, local_read, false},
};

/* ---- serialised: one operation after the other, by changing threads ---------------------------------------------- */

/* Nothing races here, so the right answer is certain. Returns the number of wrong answers. */
static uint64_t serial_rounds(const struct scheme *scheme, uint64_t rounds, uint64_t seed)
{
    int64_t current = 0, peak = 0, seen_current, seen_peak, own[4] = {0};
    uint64_t wrong = 0, state = seed | 1;
    scheme->begin();
    for (uint64_t i = 0; i < rounds; i++) {
        unsigned thread = oracle_next(&state) % 4;
        int64_t amount = (int64_t)(oracle_next(&state) % 64) + 1;
        if (oracle_next(&state) % 64 == 0) {
            scheme->reset();
            peak = current;
        }
        if (own[thread] >= amount && oracle_next(&state) % 32 < 17)
            amount = -amount;
        scheme->change(thread, amount);
        own[thread] += amount;
        current += amount;
        peak = current > peak ? current : peak;
        /* Reading takes the slow path, so most rounds skip it to keep the set open for long. */
        if (oracle_next(&state) % 16)
            continue;
        scheme->read(&seen_current, &seen_peak);
        wrong += seen_current != current || seen_peak != peak;
    }
    return wrong;
}

/* The shortest known failures: two threads that hold memory in turn, and a reset while one
 * thread has much credit. */
static bool script_right(const struct scheme *scheme)
{
    static const struct {
        unsigned thread;
        int64_t amount;
    } steps[] = {{0, 100}, {0, -100}, {1, 60}, {0, 80}};
    int64_t current, peak;
    scheme->begin();
    for (unsigned i = 0; i < GP_COUNT(steps); i++)
        scheme->change(steps[i].thread, steps[i].amount);
    scheme->read(&current, &peak);
    return current == 140 && peak == 140;
}

/* ---- duel: two updaters and a resetter per round, judged at rest ------------------------------------------------- */

enum { DUEL_THREADS = 3, DUEL_STEPS = 6 };

struct duel {
    const struct scheme *scheme;
    uint32_t round, done; /* round: odd threads start on its change; done: threads that finished it */
    bool stop;
    uint64_t seed, rounds;
    int64_t sum, up; /* of the round: the sum of all changes, the sum of all increases */
    uint64_t below, above, drift;
};

struct duelist {
    struct duel *duel;
    unsigned index;
    int64_t holds;
};

static void duel_round(struct duelist *self)
{
    struct duel *duel = self->duel;
    if (self->index == 0) {
        duel->scheme->reset();
        return;
    }
    for (unsigned i = 0; i < DUEL_STEPS; i++) {
        int64_t amount = (int64_t)(oracle_next(&oracle_random) % 50) + 1;
        if (self->holds >= amount && oracle_next(&oracle_random) % 16 < 9)
            amount = -amount;
        duel->scheme->change(self->index, amount);
        self->holds += amount;
        __atomic_add_fetch(&duel->sum, amount, __ATOMIC_RELAXED);
        if (amount > 0)
            __atomic_add_fetch(&duel->up, amount, __ATOMIC_RELAXED);
    }
}

static void *duel_main(void *argument)
{
    struct duelist *self = argument;
    struct duel *duel = self->duel;
    oracle_random = (duel->seed ^ (self->index + 1) * 0x9e3779b97f4a7c15ull) | 1;
    for (uint32_t seen = 0;; seen++) {
        while (__atomic_load_n(&duel->round, __ATOMIC_ACQUIRE) == seen)
            torture_yield();
        if (__atomic_load_n(&duel->stop, __ATOMIC_ACQUIRE))
            return NULL;
        duel_round(self);
        __atomic_add_fetch(&duel->done, 1, __ATOMIC_ACQ_REL);
    }
}

/* At rest, whatever the order of the round's operations: peak >= current; peak <= start + all
 * increases; the sum agrees. */
static void duel_judge(struct duel *duel, int64_t *before)
{
    int64_t current, peak, expected = *before + duel->sum;
    duel->scheme->read(&current, &peak);
    duel->below += peak < current;
    duel->above += peak > *before + duel->up;
    duel->drift += current != expected;
    *before = expected;
    duel->sum = duel->up = 0;
}

/* A wrong scheme need not be caught twice. */
static bool duel_goes_on(const struct duel *duel, uint64_t rounds, uint64_t end)
{
    bool caught = !duel->scheme->exact && (duel->below || duel->above || duel->drift);
    return duel->rounds < rounds && !caught && gp_clock_ns() < end;
}

/* 20000 rounds take some 3 s on a quiet machine. Beside other programs it ends after 10 s with fewer. */
static void duel_run(struct duel *duel, uint64_t rounds)
{
    pthread_t threads[DUEL_THREADS];
    struct duelist duelists[DUEL_THREADS];
    int64_t before = 0;
    uint64_t end = gp_clock_ns() + 10000000000;
    duel->scheme->begin();
    for (unsigned t = 0; t < DUEL_THREADS; t++) {
        duelists[t] = (struct duelist){duel, t, 0};
        if (pthread_create(&threads[t], NULL, duel_main, &duelists[t]))
            abort();
    }
    for (; duel_goes_on(duel, rounds, end); duel->rounds++) {
        __atomic_store_n(&duel->done, 0, __ATOMIC_RELAXED);
        __atomic_add_fetch(&duel->round, 1, __ATOMIC_ACQ_REL);
        while (__atomic_load_n(&duel->done, __ATOMIC_ACQUIRE) < DUEL_THREADS)
            torture_yield();
        duel_judge(duel, &before);
    }
    __atomic_store_n(&duel->stop, true, __ATOMIC_RELEASE);
    __atomic_add_fetch(&duel->round, 1, __ATOMIC_ACQ_REL);
    for (unsigned t = 0; t < DUEL_THREADS; t++)
        pthread_join(threads[t], NULL);
}

static void part_duel(uint64_t rounds, uint64_t seed)
{
    char what[200];
    for (unsigned s = 0; s < GP_COUNT(schemes); s++) {
        const struct scheme *scheme = &schemes[s];
        struct duel duel = {.scheme = scheme, .seed = seed};
        uint64_t serial = serial_rounds(scheme, rounds * 10, seed);
        bool script = script_right(scheme);
        duel_run(&duel, rounds);
        bool right = !serial && script && !duel.below && !duel.above && !duel.drift;
        snprintf(what, sizeof what,
                 "%-20s serial %llu wrong, script %s, %llu rounds: %llu below current, %llu too high, %llu drift%s",
                 scheme->name, (unsigned long long)serial, script ? "right" : "wrong", (unsigned long long)duel.rounds,
                 (unsigned long long)duel.below, (unsigned long long)duel.above, (unsigned long long)duel.drift,
                 scheme->exact ? "" : " (must be caught)");
        verdict(right == scheme->exact, what);
    }
    gp_counter_free(ours);
    ours = NULL;
}

/* ---- replay ------------------------------------------------------------------------------------------------------ */

static void part_replay(double seconds, uint64_t seed)
{
    struct tally all = {0};
    char what[200];
    unsigned count = GP_COUNT(oracle_profiles);
    for (unsigned p = 0; p < count; p++) {
        struct tally tally = {0};
        uint64_t end = gp_clock_ns() + (uint64_t)(seconds * 1e9 / count);
        for (uint64_t batch = 0; gp_clock_ns() < end; batch++)
            oracle_batch_run(&oracle_profiles[p], batch % 4 ? 1000 : OPS_MAX, seed + batch * 7919 + p, &tally);
        snprintf(what, sizeof what, "%-26s %9llu rounds, %llu wrong; %llu operations, %llu %% on shards", //
                 oracle_profiles[p].name, (unsigned long long)tally.rounds, (unsigned long long)tally.wrong,
                 (unsigned long long)tally.ops, (unsigned long long)(tally.fast * 100 / (tally.ops + 1)));
        /* A replay that never left the slow path would prove nothing. */
        verdict(tally.rounds && !tally.wrong && !tally.incomplete && tally.fast, what);
        all.rounds += tally.rounds;
        all.ops += tally.ops;
        all.wrong += tally.wrong;
    }
    printf("replay: %llu rounds, %llu operations, %llu wrong\n", (unsigned long long)all.rounds,
           (unsigned long long)all.ops, (unsigned long long)all.wrong);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 15;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : gp_clock_ns();
    printf("counter: seed %llu\n", (unsigned long long)seed);
    setvbuf(stdout, NULL, _IOLBF, 0);
    part_duel(20000, seed);
    part_replay(seconds, seed);
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
