/* SPDX-License-Identifier: MIT
 *
 * test_counter_same.c: random programs on a set of counters, against a model that adds up.
 */
#include "base/compiler.h"
#include "base/counter.h"
#include "lib/random.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

#define GAUGES 8
#define SHARDS 5
#define STEPS  6000
#define CALM   5000 /* values stay about as high, far below the peaks that a flood leaves */

struct model {
    struct gp_counter *set;
    struct gp_gauge_value values[GAUGES];
    int64_t watch[2][GAUGES];
    bool watching[2];
    struct { /* a GP_SUB that may be put back, and the gauges whose totals were reset since */
        struct gp_delta deltas[3];
        unsigned n;
        uint64_t since, reset;
    } sub;
    unsigned gates, events; /* updates that went through one; of these, through gp_gate_event */
    unsigned spread;        /* shards that are used now: all, by more numbers than there are, or one */
    unsigned char mutex[sizeof(pthread_mutex_t)];
};

static void moved(struct model *m, unsigned g, int64_t by)
{
    m->values[g].current += by;
    if (m->values[g].current > m->values[g].peak)
        m->values[g].peak = m->values[g].current;
    for (unsigned w = 0; w < 2; w++)
        if (m->watching[w] && m->values[g].current > m->watch[w][g])
            m->watch[w][g] = m->values[g].current;
}

static void expect_values(const struct model *m, const struct gp_gauge_value *now, const char *what)
{
    for (unsigned g = 0; g < GAUGES; g++)
        cr_assert(now[g].current == m->values[g].current && now[g].peak == m->values[g].peak &&
                      now[g].allocated == m->values[g].allocated && now[g].freed == m->values[g].freed,
                  "%s: gauge %u is %lld (peak %lld, +%lld -%lld), not %lld (peak %lld, +%lld -%lld)", what, g,
                  (long long)now[g].current, (long long)now[g].peak, (long long)now[g].allocated,
                  (long long)now[g].freed, (long long)m->values[g].current, (long long)m->values[g].peak,
                  (long long)m->values[g].allocated, (long long)m->values[g].freed);
}

/* ---- operations --------------------------------------------------------------------------------------------------- */

static void putback(struct model *m, unsigned shard)
{
    gp_counter_putback(m->set, shard, m->sub.since, m->sub.deltas, m->sub.n);
    for (unsigned i = 0; i < m->sub.n; i++) {
        unsigned g = m->sub.deltas[i].gauge;
        m->values[g].freed -= m->sub.reset >> g & 1 ? 0 : m->sub.deltas[i].amount;
        moved(m, g, m->sub.deltas[i].amount);
    }
    m->sub.n = 0;
}

static void update(struct model *m, uint64_t r)
{
    unsigned n = 1 + (unsigned)(r >> 8) % 3, from = (unsigned)(r >> 12) % (GAUGES - 3),
             shard = (unsigned)(r >> 16) % m->spread;
    enum gp_counter_op op = (r >> 20) % 8 < 4 ? GP_ADD : GP_SUB;
    struct gp_delta deltas[3];
    if (m->sub.n && r >> 58 == 9) {
        putback(m, shard);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        unsigned g = from + i;
        int64_t amount = 1 + (int64_t)((r >> 24) % 40), have = m->values[g].current;
        if (op == GP_SUB && have < amount)
            op = GP_ADD;
        if (op == GP_ADD && have > CALM)
            op = GP_SUB;
        deltas[i] = (struct gp_delta){.gauge = g, .amount = amount};
    }
    for (unsigned i = 0; i < n && op == GP_SUB; i++)
        if (m->values[deltas[i].gauge].current < deltas[i].amount)
            return;
    if (r >> 60 == 3) {
        uint64_t time_ns = gp_counter_apply_timed(m->set, shard, op, deltas, n);
        cr_assert_gt(time_ns, 0);
        if (op == GP_SUB) {
            memcpy(m->sub.deltas, deltas, sizeof(deltas));
            m->sub.n = n, m->sub.since = time_ns, m->sub.reset = 0;
        }
    } else {
        gp_counter_apply(m->set, shard, op, deltas, n);
    }
    for (unsigned i = 0; i < n; i++) {
        unsigned g = deltas[i].gauge;
        int64_t amount = deltas[i].amount;
        m->values[g].allocated += op == GP_ADD ? amount : 0;
        m->values[g].freed += op == GP_SUB ? amount : 0;
        moved(m, g, op == GP_ADD ? amount : -amount);
    }
}

/* The bundles: 0 has gauges 0 and 1, 1 has 2, 2 has 3; the pairs 4 with 5, 6 with 7, both of these across, and more. */
static const uint64_t bundles[GP_BUNDLES_ALL] = {3,  4,   8,  0,  16,  32, 64, 128, 80, 160,
                                                 48, 192, 17, 34, 208, 32, 68, 136, 18, 33};

static void bundled(struct model *m, unsigned bundle, enum gp_counter_op op, int64_t amount)
{
    for (unsigned g = 0; g < GAUGES; g++)
        if (bundles[bundle] >> g & 1) {
            m->values[g].allocated += op == GP_ADD ? amount : 0;
            m->values[g].freed += op == GP_SUB ? amount : 0;
            moved(m, g, op == GP_ADD ? amount : -amount);
        }
}

static void gated(struct model *m, uint64_t r)
{
    struct gp_gate *gate = gp_counter_gate(m->set, (unsigned)(r >> 16) % m->spread);
    int64_t amounts[3] = {1 + (int64_t)(r >> 24) % 9, 1, 1 + (int64_t)(r >> 28) % 5};
    enum gp_counter_op op = (r >> 20) % 2 ? GP_ADD : GP_SUB;
    unsigned pair = (unsigned)(r >> 21) % (GP_PAIRS + 1), n = pair < GP_PAIRS ? 2 : 3,
             first = pair < GP_PAIRS ? GP_PAIR_BUNDLE(pair) : 0;
    /* Of a gauge beside the pair, or of one of its own. */
    const struct gp_delta more = {
        .gauge = pair < GP_PAIRS && r >> 40 & 1 ? (unsigned)__builtin_ctzll(bundles[first]) : 0, .amount = 2};
    bool event = pair < GP_PAIRS && r >> 61 == 5, mored = event && (r >> 41) % 4;
    for (unsigned b = first; b < first + n && op == GP_SUB; b++)
        for (unsigned g = 0; g < GAUGES; g++)
            if (bundles[b] >> g & 1 && m->values[g].current < amounts[b - first])
                return;
    bool done = false;
    if (event && op == GP_SUB && m->values[more.gauge].current < amounts[0] + more.amount)
        return;
    if (event) {
        struct gp_counter_event whole = {pair, {amounts[0], amounts[1]}, mored, &more};
        bool through = r >> 42 & 1 && gp_gate_event(m->set, gate, op, pair, amounts, more.gauge, mored * more.amount);
        if (!through)
            gp_counter_move(m->set, (unsigned)(r >> 16) % m->spread, op, &whole, NULL);
        m->values[more.gauge].allocated += mored && op == GP_ADD ? more.amount : 0;
        m->values[more.gauge].freed += mored && op == GP_SUB ? more.amount : 0;
        m->events += through;
        done = true;
    } else if (pair < GP_PAIRS) {
        done = gp_gate_pair(m->set, gate, op, pair, amounts);
    } else if (gp_gate_hold(gate)) {
        done = op == GP_SUB || gp_gate_add(m->set, gate, amounts);
        if (op == GP_SUB)
            gp_gate_sub(gate, amounts);
        gp_gate_release(gate);
    }
    m->gates += done;
    if (mored && op == GP_SUB) /* at the same instant as the rest: a peak has both */
        moved(m, more.gauge, -more.amount);
    for (unsigned b = first; b < first + n && done; b++)
        bundled(m, b, op, amounts[b - first]);
    if (mored && op == GP_ADD)
        moved(m, more.gauge, more.amount);
}

/* Every gauge rises above where it was and falls again: then there is room below the peaks. */
static void flood(struct model *m, int64_t by)
{
    for (unsigned g = 0; g < GAUGES; g++) {
        const struct gp_delta delta = {.gauge = g, .amount = by};
        gp_counter_apply(m->set, g % SHARDS, GP_ADD, &delta, 1);
        m->values[g].allocated += by;
        moved(m, g, by);
        gp_counter_apply(m->set, (g + 1) % SHARDS, GP_SUB, &delta, 1);
        m->values[g].freed += by;
        moved(m, g, -by);
    }
}

static void look(struct model *m, uint64_t r)
{
    struct gp_gauge_value before[GAUGES], after[GAUGES];
    uint64_t mask = (r >> 8) % 256;
    switch ((r >> 16) % 5) {
    case 0:
        gp_counter_snapshot(m->set, after);
        break;
    case 1:
        gp_counter_reset_peaks(m->set, mask, before, after);
        expect_values(m, before, "before new peaks");
        for (unsigned g = 0; g < GAUGES; g++)
            m->values[g].peak = mask >> g & 1 ? m->values[g].current : m->values[g].peak;
        break;
    case 2:
        gp_counter_reset_totals(m->set, mask, before, after);
        expect_values(m, before, "before new totals");
        for (unsigned g = 0; g < GAUGES; g++)
            if (mask >> g & 1)
                m->values[g].allocated = m->values[g].freed = 0;
        m->sub.reset |= mask;
        break;
    case 3:
        cr_assert_eq(gp_counter_check(m->set), 0);
        gp_counter_snapshot(m->set, after);
        break;
    default:
        gp_counter_freeze(m->set);
        gp_counter_thaw(m->set);
        gp_counter_snapshot(m->set, after);
        break;
    }
    expect_values(m, after, "after");
}

static void watch(struct model *m, uint64_t r)
{
    unsigned w = (unsigned)(r >> 8) % 2;
    int64_t peaks[GAUGES];
    if (!m->watching[w]) {
        cr_assert_eq(gp_counter_watch_read(m->set, w, peaks), -ENOENT);
        cr_assert_eq(gp_counter_watch_begin(m->set, w), 0);
        cr_assert_eq(gp_counter_watch_begin(m->set, w), -EBUSY);
        m->watching[w] = true;
        for (unsigned g = 0; g < GAUGES; g++)
            m->watch[w][g] = m->values[g].current;
        return;
    }
    bool ends = (r >> 16) % 2;
    cr_assert_eq(ends ? gp_counter_watch_end(m->set, w, peaks) : gp_counter_watch_read(m->set, w, peaks), 0);
    for (unsigned g = 0; g < GAUGES; g++)
        cr_assert_eq(peaks[g], m->watch[w][g], "watch %u: gauge %u", w, g);
    m->watching[w] = !ends;
}

/* ---- programs ------------------------------------------------------------------------------------------------------ */

/* way 0: mostly updates; 1: mostly gates; 2: many looks and watches; 3: little room below the peaks. */
static void found(unsigned way, unsigned seed)
{
    struct model m = {0};
    struct gp_gauge_value values[GAUGES];
    uint64_t state = RANDOM_SEED + seed * 8 + way;
    cr_assert_eq(gp_counter_new(&m.set, GAUGES, SHARDS), 0);
    for (unsigned b = 0; b < GP_BUNDLES_ALL; b++)
        gp_counter_bundle(m.set, b, bundles[b]);
    memcpy(m.mutex, (const char *)m.set + GP_LINE, sizeof(m.mutex)); /* the first line is the shape */
    for (unsigned i = 0; i < STEPS; i++) {
        uint64_t r = random_next(&state), what = r % 256;
        m.spread = (way == 3 || way == 0) && i % 2000 > 500 + i / 5 ? 1 : SHARDS + 2;
        if (way == 0 && i % 50 == 0) /* each closes and opens the set: shards that are not used count these */
            gp_counter_snapshot(m.set, values);
        if (i % (way == 3 ? 60 : 1000) == 50)
            flood(&m, way == 3 ? 400 : 2 * CALM);
        if (what < (way == 2 ? 12 : 1) && (way == 2 || (r >> 16) % 5 != 1)) /* new peaks leave no room */
            look(&m, r);
        else if (way == 2 && what < 18)
            watch(&m, r);
        else if (what % 8 < (way == 1 ? 6 : 2))
            gated(&m, r);
        else
            update(&m, r);
        cr_assert_eq(memcmp(m.mutex, (const char *)m.set + GP_LINE, sizeof(m.mutex)), 0,
                     "the lock is taken once more or less than given");
    }
    cr_assert_eq(gp_counter_check(m.set), 0);
    gp_counter_free(m.set);
    cr_expect_gt(m.gates, 0, "way %u never left the slow path", way);
    cr_expect(m.events || way == 2, "way %u had no event through a gate", way);
}

Test(counter_same, of_random_programs)
{
    for (unsigned way = 0; way < 4; way++)
        for (unsigned seed = 1; seed < 5; seed++)
            found(way, seed);
}

/* Not in sanitizer builds: the sanitizers have mappings of their own. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
Test(counter_same, without_memory_there_is_no_set)
{
    struct gp_counter *set = NULL;
    struct rlimit none = {1 << 20, 1 << 20};
    cr_assert_eq(setrlimit(RLIMIT_AS, &none), 0);
    cr_expect_eq(gp_counter_new(&set, GP_GAUGES_MAX, 1024), -ENOMEM);
    cr_expect_null(set);
}
#endif
