/* SPDX-License-Identifier: MIT
 * test_analyze.c: compares the analyses with results worked out by hand; test_analyze_naive.c has random recordings. */
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <lib/analyses.h>
#include <read/common/hash.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"

/* ---- peak, series, sizes ---------------------------------------------------------------------------------------- */

static struct gp_recording *small(void)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t a = site(make, "a", 1), b = site(make, "b", 2);
    recmake_at(make, 1010 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 100, a);
    recmake_at(make, 1020 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x2000, 50, b);
    recmake_alloc(make, 0, GP_KIND_POOL, 0x3000, 30, b);
    recmake_alloc(make, 0, GP_KIND_MANAGED, 0x9000, 1000, b); /* never summed */
    recmake_at(make, 1030 * MS);
    recmake_free(make, 0, GP_KIND_LINEAR, 0x1000);
    recmake_at(make, 1040 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 90, a);
    recmake_at(make, 1050 * MS);
    recmake_free(make, 0, GP_KIND_POOL, 0x3000);
    return recmake_done(make);
}

Test(peak, is_the_highest_moment_and_its_parts_add_up)
{
    struct gp_recording *recording = small();
    struct gp_peak *peak = analysis_peak(recording, 0, 0);
    cr_assert_eq(peak->bytes, 180);
    cr_assert_eq(peak->time_ns, 1020 * MS);
    cr_assert_eq(peak->event_index, 2);
    cr_assert_eq(peak->count, 3);
    cr_assert_eq(peak->parts[0].site, 1);
    cr_assert_eq(peak->parts[0].bytes, 100);
    cr_assert_eq(peak->parts[1].bytes, 50);
    cr_assert_eq(peak->parts[2].kind, GP_KIND_POOL);
    free(peak);
    peak = analysis_peak(recording, 0, 1035 * MS);
    cr_assert_eq(peak->bytes, 80);
    cr_assert_eq(peak->count, 2);
    free(peak);
    gp_recording_free(recording);
}

Test(series, has_a_point_for_each_change)
{
    struct gp_recording *recording = small();
    struct gp_series *series = gp_series_allocated(recording, 0, GP_KIND_NONE, 100);
    static const int64_t times[] = {1000, 1010, 1020, 1030, 1040, 1050, 1051},
                         values[] = {0, 100, 180, 80, 170, 140, 140};
    cr_assert_eq(series->count, 7);
    for (int i = 0; i < 7; i++) {
        cr_assert_eq(series->points[i].time_ns, (uint64_t)times[i] * MS);
        cr_assert_eq(series->points[i].last, values[i], "%d", i);
    }
    free(series);
    series = gp_series_allocated(recording, 0, GP_KIND_MANAGED, 100);
    cr_assert_eq(series->points[series->count - 1].last, 1000);
    free(series);
    /* The pool's reserve is unknown: it holds at least its live blocks. */
    series = gp_series_reserved(recording, 0, 100);
    cr_assert_eq(series->points[2].last, 180);
    free(series);
    gp_recording_free(recording);
}

Test(sizes, count_by_powers_of_two)
{
    struct gp_recording *recording = small();
    struct gp_sizes *sizes = analysis_sizes(recording, 0);
    cr_assert_eq(sizes->count[6], 2); /* 64..127: 100 and 90 */
    cr_assert_eq(sizes->bytes[6], 190);
    cr_assert_eq(sizes->live_count[6], 1);
    cr_assert_eq(sizes->live_bytes[6], 90);
    cr_assert_eq(sizes->count[5], 1);
    cr_assert_eq(sizes->count[4], 1);
    cr_assert_eq(sizes->live_count[4], 0);
    cr_assert_eq(sizes->count[9], 1);
    free(sizes);
    gp_recording_free(recording);
}

/* ---- matching --------------------------------------------------------------------------------------------------- */

Test(match, an_address_that_is_reused_before_its_free_is_recorded_leaves_no_bytes)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t a = site(make, "a", 1), b = site(make, "b", 1);
    recmake_at(make, 1001 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 100, a);
    recmake_at(make, 1002 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 70, b); /* by another thread, whose event came first */
    recmake_free(make, 0, GP_KIND_LINEAR, 0x1000);         /* of the first block */
    struct gp_recording *recording = recmake_done(make);
    struct gp_peak *end = analysis_peak(recording, 0, recording->end_ns);
    cr_assert_eq(end->bytes, 70);
    cr_assert_eq(end->parts[0].site, b);
    free(end);
    struct gp_peak *peak = analysis_peak(recording, 0, 0);
    cr_assert_eq(peak->bytes, 100);
    free(peak);
    gp_recording_free(recording);
}

/* Changes within one of many stretches: the value after it is a point, since a point is valid until the next one. */
Test(series, a_burst_is_followed_by_its_end)
{
    for (unsigned where = 0; where < 3; where++) {
        const uint64_t start = (const uint64_t[]){1001, 5000, 10900}[where] * MS;
        struct recmake *make = recmake_new(GIB);
        uint32_t a = site(make, "a", 1);
        recmake_at(make, 1000 * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x100000, 1, a);
        for (unsigned i = 0; i < 300; i++) {
            recmake_at(make, start + i);
            recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 100, a);
            recmake_free(make, 0, GP_KIND_LINEAR, 0x1000);
        }
        recmake_at(make, 11000 * MS);
        recmake_free(make, 0, GP_KIND_LINEAR, 0x200000); /* of nothing: the recording goes on until now */
        struct gp_recording *recording = recmake_done(make);
        struct gp_series *series = gp_series_allocated(recording, 0, GP_KIND_NONE, 100);
        uint64_t width = (recording->end_ns - recording->begin_ns) / 97 + 1;
        cr_assert_leq(series->count, 100);
        for (uint32_t i = 0; i < series->count; i++) {
            const struct gp_series_point *point = &series->points[i];
            cr_expect(point->high == 1 || point->time_ns <= start, "%u: %lld", where, (long long)point->high);
            cr_expect(point->high == 1 || series->points[i + 1].time_ns <= point->time_ns + width, "%u", where);
        }
        cr_expect_eq(series->points[series->count - 1].last, 1);
        free(series);
        gp_recording_free(recording);
    }
}

Test(match, a_block_without_a_free_ends_when_its_address_is_reused)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t a = site(make, "a", 1);
    for (unsigned i = 0; i < 10; i++) {
        recmake_at(make, (1001 + i * 10) * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 100, a);
    }
    recmake_at(make, 1200 * MS);
    recmake_free(make, 0, GP_KIND_LINEAR, 0x1000);
    struct gp_recording *recording = recmake_done(make);
    recording->dropped = 9;
    cr_assert_eq(gp_recording_match(recording), 0);
    struct gp_series *series = gp_series_allocated(recording, 0, GP_KIND_NONE, 100);
    cr_assert_eq(series->points[series->count - 1].last, 0);
    for (uint32_t i = 0; i < series->count; i++)
        cr_assert_leq(series->points[i].high, 100);
    free(series);
    gp_recording_free(recording);
}

/* Physical memory that is mapped at two addresses is allocated once; the recorder says what each
 * mapping added and took off. */
Test(series, memory_that_is_mapped_twice_counts_once)
{
    struct recmake *make = recmake_new(GIB);
    static const struct mapping {
        uint8_t type;
        uint64_t address;
        uint32_t unused;
    } events[] = {{GP_EVENT_SEGMENT_ALLOC, 7, 0},
                  {GP_EVENT_SEGMENT_MAP, 0x10000, 0},
                  {GP_EVENT_SEGMENT_MAP, 0x20000, 400},
                  {GP_EVENT_SEGMENT_UNMAP, 0x10000, 400},
                  {GP_EVENT_SEGMENT_UNMAP, 0x20000, 0}};
    static const int64_t wanted[] = {0, 0, 400, 400, 400, 0};
    for (unsigned i = 0; i < 5; i++)
        recmake_event(make, &(struct gp_rec_event){.time_ns = (1001 + i) * MS,
                                                   .address = events[i].address,
                                                   .bytes = 400,
                                                   .unused = events[i].unused,
                                                   .type = events[i].type & 15,
                                                   .kind = GP_KIND_VMM});
    struct gp_recording *recording = recmake_done(make);
    struct gp_series *series = gp_series_allocated(recording, 0, GP_KIND_NONE, 100);
    struct gp_peak *peak = analysis_peak(recording, 0, 0);
    cr_assert_eq(peak->bytes, 400);
    for (uint32_t i = 0; i < series->count; i++) {
        uint64_t after = (series->points[i].time_ns - 1000 * MS) / MS;
        cr_assert_eq(series->points[i].last, wanted[after < 5 ? after : 5], "after %lu ms", after);
    }
    free(peak);
    free(series);
    gp_recording_free(recording);
}

/* ---- cached memory ---------------------------------------------------------------------------------------------- */

static void segment(struct recmake *make, uint8_t type, uint64_t at_ms, uint64_t address, uint64_t bytes)
{
    recmake_at(make, at_ms * MS);
    recmake_event(
        make,
        &(struct gp_rec_event){
            .time_ns = at_ms * MS, .address = address, .bytes = bytes, .type = type & 15, .kind = GP_KIND_LINEAR});
}

static struct gp_recording *cached(void)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t a = site(make, "a", 1), b = site(make, "b", 2);
    segment(make, GP_EVENT_SEGMENT_ALLOC, 1001, 0x10000, 1000);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10000, 300, a);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10000 + 500, 100, b);
    recmake_at(make, 1002 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x90000, 64, b); /* not in a segment */
    segment(make, GP_EVENT_SEGMENT_MAP, 1003, 0x20000, 400);
    segment(make, GP_EVENT_SEGMENT_MAP, 1004, 0x20000 + 400, 400);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x20000 + 300, 200, a); /* spans the two runs of pages */
    segment(make, GP_EVENT_SEGMENT_UNMAP, 1010, 0x20000 + 600, 200);
    return recmake_done(make);
}

Test(segments, hold_blocks_and_holes)
{
    struct gp_recording *recording = cached();
    struct gp_segments *map = gp_segments_at(recording, 0, 0);
    cr_assert_eq(map->segment_count, 3);
    const struct gp_map_segment *segment = map->segments;
    cr_assert(segment[0].cached && segment[0].bytes == 1000 && segment[0].block_count == 4);
    static const uint64_t sizes[] = {300, 200, 100, 400};
    static const uint8_t states[] = {GP_BLOCK_LIVE, GP_BLOCK_IDLE, GP_BLOCK_LIVE, GP_BLOCK_IDLE};
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(map->blocks[i].bytes, sizes[i]);
        cr_assert_eq(map->blocks[i].state, states[i]);
    }
    cr_assert(segment[1].cached && segment[1].address == 0x20000 && segment[1].bytes == 600 &&
              segment[1].block_count == 3);
    cr_assert_eq(map->blocks[segment[1].first_block + 1].bytes, 200);
    cr_assert(!segment[2].cached && segment[2].bytes == 64 && segment[2].block_count == 1);
    free(map);
    gp_recording_free(recording);
}

Test(fragmentation, agrees_with_the_segments)
{
    struct gp_recording *recording = cached();
    struct gp_series *reserved = gp_series_reserved(recording, 0, 100);
    int64_t high = 0;
    for (uint32_t i = 0; i < reserved->count; i++)
        high = reserved->points[i].high > high ? reserved->points[i].high : high;
    cr_assert_eq(high, 1000 + 64 + 800); /* blocks of a cache count once */
    cr_assert_eq(reserved->points[reserved->count - 1].last, 1000 + 64 + 600);
    free(reserved);
    struct gp_fragmentation *fragmentation = analysis_fragmentation(recording, 0, 11);
    cr_assert(fragmentation->has_segments);
    cr_assert_float_eq(fragmentation->utilisation, 664.0 / 1864, 1e-9);
    cr_assert_float_eq(fragmentation->external, 1 - 400.0 / (200 + 400 + 300 + 100), 1e-9);
    cr_assert_eq(fragmentation->points[fragmentation->count - 1].largest_free_bytes, 400);
    cr_assert_eq(fragmentation->points[fragmentation->count - 1].allocated_bytes, 664);
    cr_assert_eq(fragmentation->points[0].reserved_bytes, 0);
    free(fragmentation);
    gp_recording_free(recording);
}

Test(fragmentation, names_who_keeps_free_memory)
{
    struct gp_recording *recording = cached();
    struct gp_segments *map = gp_segments_at(recording, 0, 0);
    struct gp_holders *holders = gp_holders_find(map);
    int64_t live = 0, free_bytes = 0;
    for (uint32_t i = 0; i < holders->count; i++) {
        live += holders->rows[i].live_bytes;
        free_bytes = holders->rows[i].free_bytes > free_bytes ? holders->rows[i].free_bytes : free_bytes;
        cr_assert(i == 0 || holders->rows[i].free_bytes <= holders->rows[i - 1].free_bytes);
    }
    cr_assert_eq(live, 600); /* 300 and 100, and 200 in the growable segment */
    cr_assert_eq(free_bytes, 600 + 400);
    free(holders);
    free(map);
    gp_recording_free(recording);
}

Test(fragmentation, of_memory_straight_from_the_driver_has_no_holes)
{
    struct gp_recording *recording = small();
    recording->events[0].unused = 10;
    cr_assert_eq(gp_recording_match(recording), 0);
    struct gp_fragmentation *fragmentation = analysis_fragmentation(recording, 0, 5);
    cr_assert(!fragmentation->has_segments);
    cr_assert_float_eq(fragmentation->utilisation, 1, 1e-9);
    cr_assert_float_eq(fragmentation->external, 0, 1e-9);
    cr_assert_float_eq(fragmentation->internal, 10.0 / 180, 1e-9);
    cr_assert_eq(fragmentation->points[fragmentation->count - 1].largest_free_bytes, -1);
    free(fragmentation);
    gp_recording_free(recording);
}

/* 10 000 swings between 50 and 80 in ten seconds, and one moment of 500 bytes. */
static struct gp_recording *swinging(bool peak)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t keeps = site(make, "keeps", 1), swings = site(make, "swings", 2);
    recmake_at(make, 1000 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 50, keeps);
    for (unsigned i = 0; i < 10000; i++) {
        recmake_at(make, (1001 + i) * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x2000, 30, swings);
        if (peak && i == 3333) {
            recmake_at(make, (1001 + i) * MS + MS / 2);
            recmake_alloc(make, 0, GP_KIND_LINEAR, 0x3000, 420, keeps);
            recmake_free(make, 0, GP_KIND_LINEAR, 0x3000);
        }
        recmake_at(make, (1001 + i) * MS + 900000);
        recmake_free(make, 0, GP_KIND_LINEAR, 0x2000);
    }
    return recmake_done(make);
}

/* The sum of the items at every moment in [from, until), one by one. */
static void extremes(const struct gp_recording *recording, uint64_t from, uint64_t until, int64_t *low, int64_t *high)
{
    int64_t sum = 0, least = INT64_MAX, most = INT64_MIN;
    for (size_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        if (event->time_ns >= until)
            break;
        sum += event->type == GP_EVENT_ALLOC ? (int64_t)event->bytes : -(int64_t)event->bytes;
        if (event->time_ns < from)
            least = most = sum;
        least = sum < least ? sum : least;
        most = sum > most ? sum : most;
    }
    *low = least;
    *high = most;
}

Test(fragmentation, shows_swings_that_are_faster_than_its_points)
{
    struct gp_recording *recording = swinging(false);
    struct gp_fragmentation *fragmentation = analysis_fragmentation(recording, 0, 21);
    struct gp_series *series[] = {gp_series_allocated(recording, 0, GP_KIND_NONE, 2000),
                                  gp_series_reserved(recording, 0, 2000)};
    for (uint32_t i = 1; i < fragmentation->count; i++) {
        uint64_t from = fragmentation->points[i - 1].time_ns, until = fragmentation->points[i].time_ns;
        if (until - from < 100 * MS)
            continue; /* next to the peak */
        for (int k = 0; k < 2; k++) {
            struct gp_series_point range = gp_series_range(series[k], from, until);
            cr_assert_eq(range.low, 50, "%u: %d", i, (int)range.low);
            cr_assert_eq(range.high, 80, "%u: %d", i, (int)range.high);
        }
    }
    free(series[0]);
    free(series[1]);
    free(fragmentation);
    gp_recording_free(recording);
}

Test(fragmentation, has_a_point_at_a_peak_that_lasts_no_time)
{
    struct gp_recording *recording = swinging(true);
    for (uint32_t points = 2; points <= 201; points += 199) {
        struct gp_fragmentation *fragmentation = analysis_fragmentation(recording, 0, points);
        uint32_t found = 0;
        for (uint32_t i = 0; i < fragmentation->count; i++) {
            const struct gp_fragment_point *point = &fragmentation->points[i];
            found += point->allocated_bytes == 500 && point->reserved_bytes == 500 && point->requested_bytes == 500 &&
                     point->time_ns == (1001 + 3333) * MS + MS / 2;
            cr_assert(i == 0 || point->time_ns > fragmentation->points[i - 1].time_ns);
        }
        cr_assert_eq(found, 1);
        free(fragmentation);
    }
    gp_recording_free(recording);
}

Test(series, a_range_has_the_extremes_and_the_last_value)
{
    struct gp_recording *recording = swinging(true);
    struct gp_series *series = gp_series_allocated(recording, 0, GP_KIND_NONE, 100000);
    uint64_t seed = 3, span = recording->end_ns - recording->begin_ns;
    for (unsigned round = 0; round < 100; round++) {
        uint64_t from = recording->begin_ns + random_next(&seed) % span;
        uint64_t until = from + 1 + random_next(&seed) % (recording->end_ns - from);
        int64_t low, high;
        extremes(recording, from, until, &low, &high);
        struct gp_series_point range = gp_series_range(series, from, until);
        cr_assert(range.low == low && range.high == high, "%d..%d, not %d..%d", (int)range.low, (int)range.high,
                  (int)low, (int)high);
    }
    struct gp_series_point all = gp_series_range(series, 0, UINT64_MAX);
    cr_assert(all.low == 0 && all.high == 500 && all.last == 50, "%d", (int)all.low);
    free(series);
    gp_recording_free(recording);
}

/* ---- bill ------------------------------------------------------------------------------------------------------- */

static int64_t bill_row(const struct gp_bill *bill, const char *what)
{
    for (uint32_t i = 0; i < bill->count; i++) {
        if (strcmp(bill->rows[i].what, what) == 0)
            return bill->rows[i].bytes;
    }
    return INT64_MIN;
}

Test(bill, adds_up_to_the_total_of_nvml)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t a = site(make, "a", 1);
    recmake_at(make, 1001 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000000, 3 * MIB, a); /* 4 MiB of pages */
    recmake_alloc(make, 0, GP_KIND_POOL, 0x2000000, 5 * MIB, a);
    recmake_sample(make, &(struct gp_rec_sample){.time_ns = 1005 * MS,
                                                 .allocated_bytes = 8 * MIB,
                                                 .reserved_bytes = 35 * MIB,
                                                 .used_bytes = 200 * MIB,
                                                 .process_bytes = 150 * MIB});
    recmake_at(make, 1010 * MS);
    recmake_free(make, 0, GP_KIND_LINEAR, 0x1000000);
    struct gp_recording *recording = recmake_done(make);
    struct gp_bill *bill = analysis_bill(recording, 0);
    cr_assert_eq(bill->time_ns, 1005 * MS);
    cr_assert_eq(bill->process_bytes, 150 * MIB);
    cr_assert_eq(bill_row(bill, "linear"), 3 * MIB);
    cr_assert_eq(bill_row(bill, "pool: in use"), 5 * MIB);
    cr_assert_eq(bill_row(bill, "pools and graphs: reserved, not in use"), 27 * MIB);
    cr_assert_eq(bill_row(bill, "rounding by the driver"), MIB);
    cr_assert_eq(bill_row(bill, "context"), -1);
    cr_assert_eq(bill_row(bill, "untracked"), (150 - 3 - 5 - 27 - 1) * MIB);
    free(bill);
    recording->sample_count = 0;
    bill = analysis_bill(recording, 0);
    cr_assert_eq(bill->process_bytes, -1);
    cr_assert_eq(bill->time_ns, 1001 * MS);
    cr_assert_eq(bill_row(bill, "untracked"), INT64_MIN);
    free(bill);
    gp_recording_free(recording);
}

/* Between two events a pool may grow and shrink: each sample counts. */
Test(series, has_the_peak_of_samples_between_two_events)
{
    static const int64_t reserved[] = {35, 99, -1, 40};
    for (size_t points = 1; points < 20; points++) {
        struct recmake *make = recmake_new(GIB);
        uint32_t a = site(make, "a", 1);
        recmake_at(make, 1001 * MS);
        recmake_alloc(make, 0, GP_KIND_POOL, 0x2000000, 5 * MIB, a);
        for (size_t i = 0; i < GP_COUNT(reserved); i++)
            recmake_sample(make,
                           &(struct gp_rec_sample){.time_ns = (1002 + i) * MS, .reserved_bytes = reserved[i] * MIB});
        recmake_at(make, 1010 * MS);
        recmake_free(make, 0, GP_KIND_POOL, 0x2000000);
        struct gp_recording *recording = recmake_done(make);
        struct gp_series *series = gp_series_reserved(recording, 0, (uint32_t)points);
        int64_t most = 0;
        for (uint32_t i = 0; i < series->count; i++)
            GP_RAISE(most, series->points[i].high);
        cr_expect_eq(most, 99 * MIB, "%zu points: %lld", points, (long long)most);
        free(series);
        gp_recording_free(recording);
    }
}

/* ---- a part of the time ------------------------------------------------------------------------------------------ */

Test(cut, has_the_reserved_bytes_and_the_segments_of_the_whole)
{
    for (unsigned i = 0; i < 20; i++) {
        struct gp_recording *whole = cached(), *part = cached();
        uint64_t from = whole->begin_ns + (whole->end_ns - whole->begin_ns) * i / 20, end = whole->end_ns;
        cr_assert_eq(gp_recording_cut(part, from, end), 0);
        struct gp_series *series[] = {gp_series_reserved(whole, 0, 1000), gp_series_reserved(part, 0, 1000)};
        struct gp_segments *maps[] = {gp_segments_at(whole, 0, end), gp_segments_at(part, 0, end)};
        cr_assert_eq(maps[0]->segment_count, maps[1]->segment_count, "from %u of 20", i);
        cr_assert_eq(maps[0]->block_count, maps[1]->block_count, "from %u of 20", i);
        for (uint64_t at = from; at < end; at += MS / 2)
            cr_assert_eq(gp_series_range(series[1], at, at + 1).last, gp_series_range(series[0], at, at + 1).last,
                         "from %u of 20, %llu ns later", i, (unsigned long long)(at - from));
        for (int k = 0; k < 2; k++) {
            free(series[k]);
            free(maps[k]);
        }
        gp_recording_free(whole);
        gp_recording_free(part);
    }
}
