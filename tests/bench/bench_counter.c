/* SPDX-License-Identifier: MIT
 *
 * bench_counter.c: ns of one counter update, beside schemes that give up a property.  All schemes
 * run in one process, interleaved by repetition.  stdout: TSV `name<TAB>threads<TAB>ns_per_update`,
 * the median over repetitions; ns are wall time per update of one thread (with more threads than
 * processors they include waiting).  Arguments: updates per thread, repetitions.
 *
 * Names end in the number of gauges that one update moves.
 *   below    the total stays below its peak: allocate one, free one
 *   wave     every thread allocates 64 and frees 64, from zero: the top of a wave is at the peak, or is a
 *            new one when threads rise together
 *   grow     the total only rises: every update is a new peak, so exactness requires a total order
 */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/counter.h"

enum { GAUGES = 12, THREADS_MAX = 64, REPS_MAX = 99, AMOUNT = 512 };

enum load { BELOW, WAVE, GROW };
static const char *const load_names[] = {"below", "wave", "grow"};

/* ---- schemes ----------------------------------------------------------------------------------------------------- */

static struct gp_counter *ours;
static int64_t shared_current GP_ALIGNED_LINE, shared_peak GP_ALIGNED_LINE;
static struct {
    pthread_mutex_t mutex;
    struct gp_gauge_value gauge[GAUGES];
} locked GP_ALIGNED_LINE = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Paddle's scheme, with atomics where it has plain integers: sums all threads when a thread exceeds
 * its own peak. */
static struct {
    int64_t current, peak;
} GP_ALIGNED_LINE local[THREADS_MAX];
static int64_t local_global GP_ALIGNED_LINE;
static unsigned local_threads;

static void atomic_max(int64_t *at, int64_t value)
{
    int64_t seen = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (seen < value && !__atomic_compare_exchange_n(at, &seen, value, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        ;
}

static void empty_change(unsigned thread, int64_t amount, unsigned gauges)
{
    __asm__ volatile("" ::"r"(thread), "r"(amount), "r"(gauges) : "memory");
}

static void ours_change(unsigned thread, int64_t amount, unsigned gauges)
{
    struct gp_delta deltas[GAUGES];
    for (unsigned g = 0; g < gauges; g++)
        deltas[g] = (struct gp_delta){g, 0, amount < 0 ? -amount : amount};
    gp_counter_apply(ours, thread, amount < 0 ? GP_SUB : GP_ADD, deltas, gauges);
}

/* As the product moves what happens most: its gauges in bundles, behind the gate. */
static void bundled_change(unsigned thread, int64_t amount, unsigned gauges)
{
    struct gp_gate *gate = gp_counter_gate(ours, thread);
    const int64_t size = amount < 0 ? -amount : amount, amounts[GP_BUNDLES] = {size, size, size};
    if (gp_gate_hold(gate)) {
        bool done = amount < 0 || gp_gate_add(ours, gate, amounts);
        if (amount < 0)
            gp_gate_sub(gate, amounts);
        gp_gate_release(gate);
        if (done)
            return;
    }
    ours_change(thread, amount, gauges);
}

static void atomic_change(unsigned thread, int64_t amount, unsigned gauges)
{
    (void)thread;
    (void)gauges;
    __atomic_add_fetch(&shared_current, amount, __ATOMIC_ACQ_REL);
}

static void atomic_peak_change(unsigned thread, int64_t amount, unsigned gauges)
{
    (void)thread;
    (void)gauges;
    atomic_max(&shared_peak, __atomic_add_fetch(&shared_current, amount, __ATOMIC_ACQ_REL));
}

static void mutex_change(unsigned thread, int64_t amount, unsigned gauges)
{
    (void)thread;
    pthread_mutex_lock(&locked.mutex);
    for (unsigned g = 0; g < gauges; g++) {
        struct gp_gauge_value *gauge = &locked.gauge[g];
        gauge->current += amount;
        *(amount < 0 ? &gauge->freed : &gauge->allocated) += amount < 0 ? -amount : amount;
        gauge->peak = gauge->current > gauge->peak ? gauge->current : gauge->peak;
    }
    pthread_mutex_unlock(&locked.mutex);
}

static void local_change(unsigned thread, int64_t amount, unsigned gauges)
{
    (void)gauges;
    int64_t now = __atomic_load_n(&local[thread].current, __ATOMIC_RELAXED) + amount, sum = 0;
    __atomic_store_n(&local[thread].current, now, __ATOMIC_RELAXED);
    if (now <= local[thread].peak)
        return;
    local[thread].peak = now;
    for (unsigned i = 0; i < local_threads; i++)
        sum += __atomic_load_n(&local[i].current, __ATOMIC_RELAXED);
    atomic_max(&local_global, sum);
}

static const struct scheme {
    const char *name;
    void (*change)(unsigned thread, int64_t amount, unsigned gauges);
    unsigned gauges;
} schemes[] = {
    {"empty", empty_change, 1},           {"ours", ours_change, 1},     {"ours", ours_change, 12},
    {"ours_bundled", bundled_change, 12}, {"atomic", atomic_change, 1}, {"atomic_peak", atomic_peak_change, 1},
    {"mutex", mutex_change, 1},           {"mutex", mutex_change, 12},  {"per_thread_peaks", local_change, 1},
};

/* ---- one measurement --------------------------------------------------------------------------------------------- */

struct measure {
    const struct scheme *scheme;
    enum load load;
    unsigned updates;
    pthread_barrier_t gate;
};

struct hand {
    struct measure *measure;
    unsigned index;
    double ns;
};

static void hand_prepare(struct measure *measure, unsigned index)
{
    if (measure->load != BELOW)
        return;
    /* 256 up and 192 down: room below the peak, and so that each thread has been seen. */
    for (unsigned i = 0; i < 256; i++)
        measure->scheme->change(index, AMOUNT, measure->scheme->gauges);
    for (unsigned i = 0; i < 192; i++)
        measure->scheme->change(index, -AMOUNT, measure->scheme->gauges);
}

static void *hand_main(void *argument)
{
    struct hand *hand = argument;
    struct measure *measure = hand->measure;
    void (*change)(unsigned, int64_t, unsigned) = measure->scheme->change;
    unsigned gauges = measure->scheme->gauges;
    unsigned turn = measure->load == BELOW ? 1 : measure->load == WAVE ? 64 : 0;
    hand_prepare(measure, hand->index);
    pthread_barrier_wait(&measure->gate);
    uint64_t start = gp_clock_ns();
    for (unsigned i = 0; i < measure->updates; i++)
        change(hand->index, i & turn ? -AMOUNT : AMOUNT, gauges);
    hand->ns = (double)(gp_clock_ns() - start) / measure->updates;
    return NULL;
}

static double measure_once(const struct scheme *scheme, enum load load, unsigned threads, unsigned updates)
{
    struct measure measure = {.scheme = scheme, .load = load, .updates = updates};
    struct hand hands[THREADS_MAX];
    pthread_t ids[THREADS_MAX];
    double sum = 0;
    shared_current = shared_peak = local_global = 0;
    memset(local, 0, sizeof local);
    memset(locked.gauge, 0, sizeof locked.gauge);
    local_threads = threads;
    if (gp_counter_new(&ours, GAUGES, 64))
        abort();
    for (unsigned b = 0; b < GP_BUNDLES && scheme->change == bundled_change; b++)
        gp_counter_bundle(ours, b, (gp_gauge_set)0xf << 4 * b);
    pthread_barrier_init(&measure.gate, NULL, threads);
    for (unsigned t = 0; t < threads; t++) {
        hands[t] = (struct hand){&measure, t, 0};
        if (pthread_create(&ids[t], NULL, hand_main, &hands[t]))
            abort();
    }
    for (unsigned t = 0; t < threads; t++) {
        pthread_join(ids[t], NULL);
        sum += hands[t].ns;
    }
    pthread_barrier_destroy(&measure.gate);
    if (scheme->change == ours_change || scheme->change == bundled_change)
        fprintf(
            stderr, "# ours %u gauges, %s, %u threads: slow path %.3f %%\n", scheme->gauges, load_names[load], threads,
            100.0 * (double)gp_counter_slow_count(ours) / ((double)threads * (updates + (load == BELOW ? 448 : 0))));
    gp_counter_free(ours);
    return sum / threads;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void bench(enum load load, unsigned threads, unsigned updates, unsigned reps)
{
    static double figure[GP_COUNT(schemes)][REPS_MAX];
    for (unsigned r = 0; r < reps; r++)
        for (unsigned s = 0; s < GP_COUNT(schemes); s++)
            figure[s][r] = measure_once(&schemes[s], load, threads, updates);
    for (unsigned s = 0; s < GP_COUNT(schemes); s++) {
        qsort(figure[s], reps, sizeof figure[s][0], compare);
        printf("%s_%s_%u\t%u\t%.2f\n", schemes[s].name, load_names[load], schemes[s].gauges, threads,
               figure[s][reps / 2]);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    unsigned updates = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 1000000;
    unsigned reps = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 9;
    cpu_set_t cpus;
    unsigned most = sched_getaffinity(0, sizeof cpus, &cpus) ? 1 : (unsigned)CPU_COUNT(&cpus);
    most = most < 4 ? 4 : most > THREADS_MAX ? THREADS_MAX : most;
    reps = reps < 1 ? 1 : reps > REPS_MAX ? REPS_MAX : reps;
    for (unsigned load = BELOW; load <= GROW; load++)
        for (unsigned threads = 1; threads <= most; threads *= 2)
            bench((enum load)load, threads, updates, reps);
    return 0;
}
