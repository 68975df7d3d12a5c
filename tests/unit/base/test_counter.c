/* SPDX-License-Identifier: MIT
 *
 * test_counter.c: the contract of ds/counter, single-threaded (races: tests/torture/counter.c).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "base/counter.h"

static struct gp_counter *made(unsigned gauges, unsigned shards)
{
    struct gp_counter *set = NULL;
    cr_assert_eq(gp_counter_new(&set, gauges, shards), 0);
    return set;
}

static void change(struct gp_counter *set, unsigned shard, enum gp_counter_op op, unsigned gauge, int64_t amount)
{
    struct gp_delta delta = {gauge, 0, amount};
    gp_counter_apply(set, shard, op, &delta, 1);
}

static void expect(struct gp_counter *set, unsigned gauge, int64_t current, int64_t peak, int64_t allocated,
                   int64_t freed)
{
    struct gp_gauge_value values[GP_GAUGES_MAX];
    gp_counter_snapshot(set, values);
    cr_expect_eq(values[gauge].current, current, "current %lld, not %lld", (long long)values[gauge].current,
                 (long long)current);
    cr_expect_eq(values[gauge].peak, peak, "peak %lld, not %lld", (long long)values[gauge].peak, (long long)peak);
    cr_expect_eq(values[gauge].allocated, allocated, "allocated %lld, not %lld", (long long)values[gauge].allocated,
                 (long long)allocated);
    cr_expect_eq(values[gauge].freed, freed, "freed %lld, not %lld", (long long)values[gauge].freed, (long long)freed);
    cr_expect_eq(gp_counter_check(set), 0);
}

Test(counter, bounds)
{
    struct gp_counter *set = NULL;
    cr_expect_eq(gp_counter_new(&set, 0, 1), -EINVAL);
    cr_expect_eq(gp_counter_new(&set, GP_GAUGES_MAX + 1, 1), -EINVAL);
    cr_expect_eq(gp_counter_new(&set, 1, 0), -EINVAL);
    cr_expect_eq(gp_counter_new(&set, 1, 1025), -EINVAL);
    set = made(GP_GAUGES_MAX, 1024);
    change(set, 1023, GP_ADD, GP_GAUGES_MAX - 1, 5);
    change(set, 5000000, GP_ADD, GP_GAUGES_MAX - 1, 5); /* the shard is taken modulo their number */
    expect(set, GP_GAUGES_MAX - 1, 10, 10, 10, 0);
    gp_counter_free(set);
    gp_counter_free(NULL);
}

/* The shortest sequence for which per-thread peaks would report 100. */
Test(counter, threads_in_turn)
{
    struct gp_counter *set = made(1, 4);
    change(set, 0, GP_ADD, 0, 100);
    change(set, 0, GP_SUB, 0, 100);
    change(set, 1, GP_ADD, 0, 60);
    change(set, 0, GP_ADD, 0, 80);
    expect(set, 0, 140, 140, 240, 100);
    gp_counter_free(set);
}

/* One shard allocates, another frees, a third sees neither: per-thread peaks would report 100
 * instead of 150. */
Test(counter, freed_elsewhere)
{
    struct gp_counter *set = made(1, 4);
    change(set, 0, GP_ADD, 0, 100);
    change(set, 1, GP_SUB, 0, 100);
    change(set, 2, GP_ADD, 0, 60);
    change(set, 1, GP_ADD, 0, 90);
    expect(set, 0, 150, 150, 250, 100);
    gp_counter_free(set);
}

static uint64_t timed(struct gp_counter *set, unsigned shard, enum gp_counter_op op, int64_t amount)
{
    const struct gp_delta delta = {.gauge = 0, .amount = amount};
    return gp_counter_apply_timed(set, shard, op, &delta, 1);
}

/* A free is counted before the driver is asked, and it may refuse. */
Test(counter, a_free_that_is_taken_back)
{
    struct gp_counter *set = made(1, 2);
    const struct gp_delta delta = {.gauge = 0, .amount = 70};
    change(set, 0, GP_ADD, 0, 70);
    uint64_t since = timed(set, 0, GP_SUB, 70);
    expect(set, 0, 0, 70, 70, 70);
    change(set, 1, GP_ADD, 0, 60);
    gp_counter_putback(set, 1, since, &delta, 1); /* the memory was in use all the time: peaks follow */
    expect(set, 0, 130, 130, 130, 0);
    since = timed(set, 0, GP_SUB, 70);
    gp_counter_reset_totals(set, 1, NULL, NULL); /* the free belongs to what is forgotten now */
    gp_counter_putback(set, 0, since, &delta, 1);
    expect(set, 0, 130, 130, 0, 0);
    since = timed(set, 0, GP_SUB, 70);
    gp_counter_putback(set, 0, since, &delta, 1);
    expect(set, 0, 130, 130, 0, 0);
    gp_counter_free(set);
}

/* A pair and single gauges move together, on a shard and on the slow path. */
Test(counter, events_of_a_pair)
{
    struct gp_counter *set = made(5, 2);
    const struct gp_delta rest[] = {{.gauge = 4, .amount = 3}};
    const struct gp_counter_event event = {.pair = 3, .amounts = {1, 50}, .n = 1, .deltas = rest};
    uint64_t time_ns = 0, slow;
    gp_counter_bundle(set, GP_PAIR_BUNDLE(3), GP_GAUGE_BIT(0) | GP_GAUGE_BIT(1));
    gp_counter_bundle(set, GP_PAIR_BUNDLE(3) + 1, GP_GAUGE_BIT(2) | GP_GAUGE_BIT(3));
    for (unsigned i = 0; i < 200; i++)
        gp_counter_move(set, 0, GP_ADD, &event, NULL);
    for (unsigned i = 0; i < 190; i++)
        gp_counter_move(set, 0, GP_SUB, &event, NULL);
    slow = gp_counter_slow_count(set);
    gp_counter_move(set, 0, GP_ADD, &event, &time_ns);
    cr_expect_gt(time_ns, 0);
    change(set, 0, GP_ADD, 3, 9000); /* its credit is in the pair now */
    gp_counter_move(set, 0, GP_ADD, &event, NULL);
    cr_expect_eq(gp_counter_slow_count(set), slow);
    for (unsigned g = 0; g < 2; g++)
        expect(set, g, 12, 200, 202, 190);
    expect(set, 2, 600, 10000, 10100, 9500);
    expect(set, 3, 9600, 10000, 19100, 9500);
    expect(set, 4, 36, 600, 606, 570);
    gp_counter_move(set, 1, GP_ADD, &(struct gp_counter_event){.pair = 3, .amounts = {1, 500}}, NULL);
    expect(set, 3, 10100, 10100, 19600, 9500);
    gp_counter_free(set);
}

/* What the pair takes for itself must leave the credit that the rest of the event needs. */
Test(counter, more_of_a_gauge_that_the_pair_has)
{
    struct gp_counter *set = made(2, 1);
    const struct gp_delta more = {.gauge = 0, .amount = 55};
    const struct gp_counter_event event = {.pair = 3, .amounts = {1, 45}, .n = 1, .deltas = &more};
    for (unsigned pair = 2; pair < 4; pair++) {
        gp_counter_bundle(set, GP_PAIR_BUNDLE(pair), GP_GAUGE_BIT(1));
        gp_counter_bundle(set, GP_PAIR_BUNDLE(pair) + 1, GP_GAUGE_BIT(0));
    }
    change(set, 0, GP_ADD, 0, 100);
    change(set, 0, GP_ADD, 1, 10);
    change(set, 0, GP_SUB, 0, 100);
    change(set, 0, GP_SUB, 1, 10);
    for (unsigned i = 0; i < 100; i++) /* the set opens */
        change(set, 0, i % 2 ? GP_SUB : GP_ADD, 0, 1);
    /* The other pair gets half of the credit. */
    cr_assert(gp_gate_pair(set, gp_counter_gate(set, 0), GP_ADD, 2, (const int64_t[]){1, 1}));
    cr_assert(gp_gate_pair(set, gp_counter_gate(set, 0), GP_SUB, 2, (const int64_t[]){1, 1}));
    gp_counter_move(set, 0, GP_ADD, &event, NULL);
    cr_expect_eq(gp_counter_check(set), 0);
    expect(set, 0, 100, 100, 251, 151);
    change(set, 0, GP_ADD, 0, 1);
    expect(set, 0, 101, 101, 252, 151);
    gp_counter_free(set);
}

Test(counter, below_zero_and_zero)
{
    struct gp_counter *set = made(1, 2);
    change(set, 0, GP_SUB, 0, 30); /* memory that was allocated before counting started */
    expect(set, 0, -30, 0, 0, 30);
    change(set, 0, GP_ADD, 0, 0);
    gp_counter_apply(set, 0, GP_ADD, NULL, 0);
    expect(set, 0, -30, 0, 0, 30);
    gp_counter_reset_peaks(set, 1, NULL, NULL);
    expect(set, 0, -30, -30, 0, 30);
    gp_counter_free(set);
}

Test(counter, reset_peaks_by_mask)
{
    struct gp_counter *set = made(2, 2);
    struct gp_gauge_value before[2], after[2];
    for (unsigned g = 0; g < 2; g++) {
        change(set, 0, GP_ADD, g, 100);
        change(set, 0, GP_SUB, g, 60);
    }
    gp_counter_reset_peaks(set, 1u << 1, before, after);
    cr_expect_eq(before[1].peak, 100);
    cr_expect_eq(after[1].peak, 40);
    cr_expect_eq(after[0].peak, 100);
    expect(set, 0, 40, 100, 100, 60);
    expect(set, 1, 40, 40, 100, 60);
    gp_counter_free(set);
}

/* An addition that is retracted leaves the peaks as if it had not been. */
Test(counter, retracted)
{
    struct gp_counter *set = made(1, 2);
    const struct gp_delta delta = {.gauge = 0, .amount = 100};
    int64_t peaks[1];
    change(set, 0, GP_ADD, 0, 70);
    change(set, 0, GP_SUB, 0, 50);
    cr_assert_eq(gp_counter_watch_begin(set, 2), 0);
    uint32_t since = gp_counter_raises(set);
    change(set, 1, GP_ADD, 0, 100);
    change(set, 0, GP_SUB, 0, 15);
    expect(set, 0, 105, 120, 170, 65);
    gp_counter_retract(set, 1, since, &delta, 1);
    expect(set, 0, 5, 70, 170, 165);
    cr_assert_eq(gp_counter_watch_read(set, 2, peaks), 0);
    cr_expect_eq(peaks[0], 20);
    cr_expect_eq(gp_counter_check(set), 0);
    change(set, 0, GP_ADD, 0, 60); /* the limit is that of the lower peaks */
    cr_assert_eq(gp_counter_watch_read(set, 2, peaks), 0);
    cr_expect_eq(peaks[0], 65);
    expect(set, 0, 65, 70, 230, 165);
    gp_counter_free(set);
}

Test(counter, retracted_after_others)
{
    struct gp_counter *set = made(1, 2);
    const struct gp_delta delta = {.gauge = 0, .amount = 100};
    change(set, 0, GP_ADD, 0, 300);
    change(set, 0, GP_SUB, 0, 300);
    uint32_t since = gp_counter_raises(set);
    change(set, 0, GP_ADD, 0, 100); /* raises nothing */
    gp_counter_retract(set, 0, since, &delta, 1);
    expect(set, 0, 0, 300, 400, 400);
    since = gp_counter_raises(set);
    change(set, 0, GP_ADD, 0, 100);
    change(set, 0, GP_ADD, 0, 250); /* raises by another amount: the peak stays too high */
    gp_counter_retract(set, 0, since, &delta, 1);
    expect(set, 0, 250, 350, 750, 500);
    since = gp_counter_raises(set);
    change(set, 0, GP_ADD, 0, 100);
    gp_counter_reset_peaks(set, 1, NULL, NULL);
    gp_counter_retract(set, 0, since, &delta, 1);
    cr_expect_eq(gp_counter_check(set), 0);
    gp_counter_free(set);
}

Test(counter, reset_totals_by_mask)
{
    struct gp_counter *set = made(2, 2);
    struct gp_gauge_value before[2], after[2];
    for (unsigned g = 0; g < 2; g++) {
        change(set, g, GP_ADD, g, 100);
        change(set, g, GP_SUB, g, 60);
    }
    gp_counter_reset_totals(set, 1, before, after);
    cr_expect_eq(before[0].allocated, 100);
    cr_expect_eq(after[0].allocated, 0);
    cr_expect_eq(after[1].allocated, 100);
    change(set, 1, GP_SUB, 0, 10);
    expect(set, 0, 30, 100, 0, 10);
    expect(set, 1, 40, 100, 100, 60);
    gp_counter_free(set);
}

Test(counter, watches)
{
    struct gp_counter *set = made(2, 2);
    int64_t peaks[2];
    cr_expect_eq(gp_counter_watch_begin(set, GP_WATCHES_MAX), -EINVAL);
    cr_expect_eq(gp_counter_watch_read(set, GP_WATCHES_MAX, peaks), -EINVAL);
    cr_expect_eq(gp_counter_watch_end(set, 3, peaks), -ENOENT);
    change(set, 0, GP_ADD, 0, 100);
    change(set, 0, GP_SUB, 0, 90);
    cr_expect_eq(gp_counter_watch_begin(set, 3), 0);
    cr_expect_eq(gp_counter_watch_begin(set, 3), -EBUSY);
    change(set, 1, GP_ADD, 0, 20);
    change(set, 0, GP_SUB, 0, 20);
    cr_expect_eq(gp_counter_watch_begin(set, 15), 0);
    change(set, 0, GP_ADD, 0, 5);
    gp_counter_reset_peaks(set, 3, NULL, NULL); /* does not change watches */
    cr_expect_eq(gp_counter_watch_read(set, 3, peaks), 0);
    cr_expect_eq(peaks[0], 30);
    cr_expect_eq(peaks[1], 0);
    cr_expect_eq(gp_counter_watch_end(set, 15, peaks), 0);
    cr_expect_eq(peaks[0], 15);
    cr_expect_eq(gp_counter_watch_end(set, 3, NULL), 0);
    cr_expect_eq(gp_counter_watch_read(set, 3, peaks), -ENOENT);
    expect(set, 0, 15, 15, 125, 110);
    gp_counter_free(set);
}

Test(counter, a_watch_that_turns_sees_every_peak_once)
{
    struct gp_counter *set = made(2, 2);
    struct gp_gauge_value values[2];
    int64_t peaks[2];
    cr_expect_eq(gp_counter_watch_turn(set, GP_WATCHES_MAX, 1, values, peaks), -EINVAL);
    change(set, 0, GP_ADD, 0, 100);
    change(set, 0, GP_SUB, 0, 90);
    cr_expect_eq(gp_counter_watch_turn(set, GP_WATCHES_MAX - 1, 1, values, peaks), 0);
    cr_expect_eq(peaks[0], 10, "the watch started with the turn");
    change(set, 1, GP_ADD, 0, 30);
    change(set, 0, GP_SUB, 0, 35);
    change(set, 0, GP_ADD, 1, 7);
    change(set, 0, GP_SUB, 1, 6);
    gp_counter_reset_peaks(set, 3, NULL, NULL);
    gp_counter_watch_turn(set, GP_WATCHES_MAX - 1, 1, values, peaks);
    cr_expect_eq(values[0].current, 5);
    cr_expect_eq(values[0].peak, 5);
    cr_expect_eq(peaks[0], 40);
    cr_expect_eq(peaks[1], 1, "a gauge that is not watched");
    gp_counter_watch_turn(set, GP_WATCHES_MAX - 1, 3, values, peaks);
    cr_expect_eq(peaks[0], 5);
    change(set, 1, GP_ADD, 1, 50);
    change(set, 1, GP_SUB, 1, 50);
    gp_counter_watch_turn(set, GP_WATCHES_MAX - 1, 3, values, peaks);
    cr_expect_eq(peaks[1], 51);
    cr_expect_eq(gp_counter_watch_end(set, GP_WATCHES_MAX - 1, NULL), 0);
    expect(set, 0, 5, 5, 130, 125);
    gp_counter_free(set);
}

/* Below its peak the set must leave the slow path, and lose nothing when it returns to it. */
Test(counter, updates_stay_on_shards_below_the_peak)
{
    struct gp_counter *set = made(2, 8);
    for (int i = 0; i < 64; i++)
        for (unsigned shard = 0; shard < 8; shard++)
            change(set, shard, GP_ADD, 0, 512);
    for (int i = 0; i < 60; i++)
        for (unsigned shard = 0; shard < 8; shard++)
            change(set, shard, GP_SUB, 0, 512);
    uint64_t slow = gp_counter_slow_count(set);
    for (int i = 0; i < 10000; i++) {
        change(set, i % 8, GP_ADD, 0, 512);
        change(set, (i + 3) % 8, GP_SUB, 0, 512);
    }
    cr_expect_lt(gp_counter_slow_count(set) - slow, 500, "slow path %llu times in 20000",
                 (unsigned long long)(gp_counter_slow_count(set) - slow));
    expect(set, 0, 4 * 8 * 512, 64 * 8 * 512, (64 * 8 + 10000) * 512, (60 * 8 + 10000) * 512);
    gp_counter_free(set);
}

/* How many of some updates far below the peak, on a shard of so many, take the slow path when a new peak
 * comes after each hundredth. */
static uint64_t slow_between_peaks(unsigned shards)
{
    struct gp_counter *set = made(1, 64);
    for (unsigned i = 0; i < 64; i++)
        change(set, i % shards, GP_ADD, 0, 1000);
    for (unsigned i = 0; i < 20000; i++) {
        if (i % 100 == 0) { /* a new peak closes the set */
            change(set, 0, GP_ADD, 0, 100000 + i);
            change(set, 0, GP_SUB, 0, 100000 + i);
        }
        change(set, i % shards, i % 2 ? GP_SUB : GP_ADD, 0, 1);
    }
    uint64_t slow = gp_counter_slow_count(set);
    gp_counter_free(set);
    return slow;
}

/* To open a set costs a visit of each shard in use: where it does not stay open, one with many is opened more rarely. */
Test(counter, many_shards_are_opened_more_rarely)
{
    uint64_t few = slow_between_peaks(1), many = slow_between_peaks(64);
    cr_expect_gt(many, 2 * few, "%llu with one shard, %llu with 64", (unsigned long long)few, (unsigned long long)many);
}

/* A shard's credit is part of the room: a shard that needs more than its share gets the credit of
 * the others. */
Test(counter, one_shard_takes_all_the_room)
{
    struct gp_counter *set = made(1, 4);
    change(set, 0, GP_ADD, 0, 100000);
    change(set, 1, GP_SUB, 0, 90000);
    for (int i = 0; i < 1000; i++) {
        change(set, i % 4, GP_ADD, 0, 1);
        change(set, i % 4, GP_SUB, 0, 1);
    }
    change(set, 2, GP_ADD, 0, 90000);
    expect(set, 0, 100000, 100000, 100000 + 1000 + 90000, 90000 + 1000);
    change(set, 3, GP_ADD, 0, 1);
    expect(set, 0, 100001, 100001, 191001, 91000);
    gp_counter_free(set);
}

/* Two gauges in one bundle change through one cell, and no reader can see a difference. */
Test(counter, gates)
{
    struct gp_counter *set = made(3, 4);
    struct gp_gate *gate = gp_counter_gate(set, 1);
    const int64_t one[GP_BUNDLES] = {100, 1, 0}, much[GP_BUNDLES] = {100, 1000, 0};
    gp_counter_bundle(set, 0, 1u << 0 | 1u << 1);
    gp_counter_bundle(set, 1, 1u << 2);
    cr_expect_not(gp_gate_hold(gate), "no thread has used the shard yet");
    for (unsigned i = 0; i < 64; i++)
        for (unsigned g = 0; g < 3; g++)
            change(set, 1, GP_ADD, g, g == 2 ? 1 : 100);
    for (unsigned i = 0; i < 64; i++)
        for (unsigned g = 0; g < 3; g++)
            change(set, 1, GP_SUB, g, g == 2 ? 1 : 100);
    cr_assert(gp_gate_hold(gate), "64 events below the peak the shard is open");
    cr_expect_not(gp_gate_hold(gate), "it is held");
    cr_expect(gp_gate_add(set, gate, one));
    cr_expect_not(gp_gate_add(set, gate, much), "beyond the peak");
    gp_gate_sub(gate, one);
    cr_expect(gp_gate_add(set, gate, one));
    gp_gate_release(gate);
    expect(set, 0, 100, 6400, 6600, 6500);
    expect(set, 1, 100, 6400, 6600, 6500);
    expect(set, 2, 1, 64, 66, 65);
    gp_counter_freeze(set);
    cr_expect_not(gp_gate_hold(gate));
    cr_expect(gp_counter_used(set, 1));
    cr_expect_not(gp_counter_used(set, 2));
    gp_counter_thaw(set);
    cr_assert(gp_gate_hold(gate));
    gp_gate_release(gate);
    /* An ordinary update can use the credit in the bundle. */
    change(set, 1, GP_ADD, 0, 6300);
    expect(set, 0, 6400, 6400, 12900, 6500);
    gp_counter_free(set);
}

/* A set of gauges takes two words: bundles, resets and watches find those of the second one. */
Test(counter, gauges_of_both_words)
{
    const unsigned low = 1, high = GP_GAUGES_MAX - 2;
    struct gp_counter *set = made(GP_GAUGES_MAX, 2);
    struct gp_gauge_value values[GP_GAUGES_MAX];
    int64_t peaks[GP_GAUGES_MAX];
    gp_counter_bundle(set, 0, GP_GAUGE_BIT(low) | GP_GAUGE_BIT(high));
    for (unsigned i = 0; i < 400; i++) {
        change(set, 0, i < 200 ? GP_ADD : GP_SUB, low, 100);
        change(set, 0, i < 200 ? GP_ADD : GP_SUB, high, 100);
    }
    struct gp_gate *gate = gp_counter_gate(set, 0);
    cr_assert(gp_gate_hold(gate));
    cr_expect(gp_gate_add(set, gate, (const int64_t[GP_BUNDLES]){70}));
    gp_gate_sub(gate, (const int64_t[GP_BUNDLES]){30});
    gp_gate_release(gate);
    expect(set, low, 40, 20000, 20070, 20030);
    expect(set, high, 40, 20000, 20070, 20030);
    gp_counter_reset_peaks(set, GP_GAUGE_BIT(high), NULL, NULL);
    expect(set, low, 40, 20000, 20070, 20030);
    expect(set, high, 40, 40, 20070, 20030);
    gp_counter_reset_totals(set, GP_GAUGE_BIT(high), NULL, NULL);
    gp_counter_watch_turn(set, 1, GP_GAUGE_BIT(high), values, peaks);
    change(set, 1, GP_ADD, high, 9);
    change(set, 1, GP_SUB, high, 9);
    change(set, 1, GP_SUB, high - 1, 5); /* its first change is a free */
    gp_counter_watch_turn(set, 1, GP_GAUGE_BIT(high), values, peaks);
    cr_expect(peaks[high] == 49 && peaks[low] == 40 && values[high - 1].current == -5);
    expect(set, high, 40, 49, 9, 9);
    cr_expect_eq(gp_counter_check(set), 0);
    gp_counter_free(set);
}
