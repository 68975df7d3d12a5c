/* SPDX-License-Identifier: MIT
 * test_analyze.c: compares the analyses with results worked out by hand, and on random recordings
 * with a slow computation of the same numbers. */
#include <analyze/flow.h>
#include <analyze/forecast.h>
#include <analyze/report.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"

/* ---- the set of numbers ------------------------------------------------------------------------------------------ */

Test(bits, agree_with_an_array_of_flags)
{
    uint64_t seed = 7;
    static const uint32_t sizes[] = {1, 63, 64, 65, 4096, 4097, 300000};
    for (unsigned s = 0; s < 7; s++) {
        uint32_t n = sizes[s];
        struct gp_bits bits;
        char *flags = calloc(n, 1);
        cr_assert_eq(gp_ranges_bits_init(&bits, n), 0);
        for (int round = 0; round < 3000; round++) {
            uint32_t at = (uint32_t)(random_next(&seed) % n), up = at, down = at;
            if (random_next(&seed) % 2) {
                gp_ranges_bits_add(&bits, at);
                flags[at] = 1;
            } else {
                gp_ranges_bits_remove(&bits, at);
                flags[at] = 0;
            }
            at = up = down = (uint32_t)(random_next(&seed) % n);
            cr_assert_eq(gp_bits_has(&bits, at), flags[at]);
            while (up < n && !flags[up])
                up++;
            while (down != UINT32_MAX && !flags[down])
                down--;
            cr_assert_eq(gp_ranges_bits_next(&bits, at), up < n ? up : GP_BITS_NONE);
            cr_assert_eq(gp_ranges_bits_before(&bits, at), down);
        }
        cr_assert_eq(gp_ranges_bits_next(&bits, n), GP_BITS_NONE);
        gp_ranges_bits_fini(&bits);
        free(flags);
    }
}

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
    struct gp_peak *peak = gp_peak_find(recording, 0, 0);
    cr_assert_eq(peak->bytes, 180);
    cr_assert_eq(peak->time_ns, 1020 * MS);
    cr_assert_eq(peak->event_index, 2);
    cr_assert_eq(peak->count, 3);
    cr_assert_eq(peak->parts[0].site, 1);
    cr_assert_eq(peak->parts[0].bytes, 100);
    cr_assert_eq(peak->parts[1].bytes, 50);
    cr_assert_eq(peak->parts[2].kind, GP_KIND_POOL);
    free(peak);
    peak = gp_peak_find(recording, 0, 1035 * MS);
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
    struct gp_sizes *sizes = gp_sizes_find(recording, 0);
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

/* Random programs: blocks on two devices, lost frees, a recording that started late. */
static struct gp_recording *random_recording(uint64_t seed, bool from_start)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t sites[8], second = recmake_device(make, 1, GIB);
    uint8_t live[2][64] = {{0}};
    for (unsigned i = 0; i < 8; i++)
        sites[i] = site(make, "f", i);
    for (unsigned i = 0; i < 600; i++) {
        uint32_t device = random_next(&seed) % 2 ? second : 0, slot = (uint32_t)(random_next(&seed) % 64);
        uint64_t address = 0x100000 + slot * 0x10000ull + device * 0x1000000ull;
        static const uint8_t kinds[] = {GP_KIND_LINEAR, GP_KIND_POOL, GP_KIND_MANAGED};
        uint8_t kind = kinds[slot % 3];
        recmake_at(make, (1001 + i) * MS);
        if (live[device][slot])
            recmake_free(make, device, kind, address);
        else
            recmake_alloc(make, device, kind, address, random_next(&seed) % 4096 + 1, sites[random_next(&seed) % 8]);
        live[device][slot] ^= 1;
    }
    struct gp_recording *recording = recmake_done(make);
    if (!from_start) { /* the recording lacks the first hundred */
        memmove(recording->events, recording->events + 100,
                (recording->event_count - 100) * sizeof(recording->events[0]));
        recording->event_count -= 100;
        recording->begin_ns = recording->events[0].time_ns;
        recording->from_start = false;
        cr_assert_eq(gp_recording_match(recording), 0);
    }
    return recording;
}

/* The bytes of a device after event `last`, block by block.  A block that has only a free was there
 * from the start. */
static int64_t slow_level(const struct gp_recording *recording, uint32_t device, uint32_t last, int64_t *by_site)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < recording->event_count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        bool summed = event->device == device && event->kind != GP_KIND_MANAGED;
        uint32_t begin = i, end = UINT32_MAX;
        if (!summed || (event->type == GP_EVENT_FREE && recording->peer[i] != GP_REC_NONE))
            continue;
        if (event->type == GP_EVENT_FREE) {
            begin = 0;
            end = i;
        }
        for (uint32_t k = i + 1; end == UINT32_MAX && k < recording->event_count; k++) {
            if (recording->events[k].address == event->address && recording->events[k].device == device)
                end = k;
        }
        bool live = (event->type == GP_EVENT_FREE || begin <= last) && (end == UINT32_MAX || end > last);
        bytes += live ? (int64_t)event->bytes : 0;
        if (live && by_site)
            by_site[event->site] += (int64_t)event->bytes;
    }
    return bytes;
}

Test(peak, agrees_with_a_slow_search_on_random_recordings)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct gp_recording *recording = random_recording(seed * 7919, seed % 2);
        for (uint32_t device = 0; device < 2; device++) {
            int64_t high = 0, by_site[16] = {0};
            uint32_t at = GP_REC_NONE;
            for (uint32_t i = 0; i < recording->event_count; i++) {
                int64_t level = slow_level(recording, device, i, NULL);
                if (level > high) {
                    high = level;
                    at = i;
                }
            }
            struct gp_peak *peak = gp_peak_find(recording, device, 0);
            cr_assert_eq(peak->bytes, high, "seed %d device %u: %ld, not %ld", (int)seed, device, (long)peak->bytes,
                         (long)high);
            if (peak->event_index != GP_REC_NONE) {
                cr_assert_eq(peak->event_index, at);
                slow_level(recording, device, at, by_site);
                for (uint32_t i = 0; i < peak->count; i++)
                    by_site[peak->parts[i].site] -= peak->parts[i].bytes;
                for (unsigned i = 0; i < 16; i++)
                    cr_assert_eq(by_site[i], 0);
            }
            free(peak);
        }
        gp_recording_free(recording);
    }
}

Test(series, of_few_points_lose_no_peak)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct gp_recording *recording = random_recording(seed * 104729, seed % 2);
        struct gp_peak *peak = gp_peak_find(recording, 0, 0);
        static const uint32_t points[] = {4, 5, 17, 100, 2000};
        for (unsigned p = 0; p < 5; p++) {
            struct gp_series *series = gp_series_allocated(recording, 0, GP_KIND_NONE, points[p]);
            int64_t high = 0;
            cr_assert_leq(series->count, points[p]);
            cr_assert_eq(series->points[0].time_ns, recording->begin_ns);
            cr_assert_eq(series->points[series->count - 1].time_ns, recording->end_ns);
            for (uint32_t i = 0; i < series->count; i++) {
                const struct gp_series_point *point = &series->points[i];
                cr_assert(i == 0 || point->time_ns > point[-1].time_ns);
                cr_assert(point->low <= point->last && point->last <= point->high);
                high = point->high > high ? point->high : high;
            }
            cr_assert_eq(high, peak->bytes);
            cr_assert_eq(series->points[series->count - 1].last,
                         slow_level(recording, 0, (uint32_t)recording->event_count - 1, NULL));
            free(series);
        }
        free(peak);
        gp_recording_free(recording);
    }
}

/* ---- history ---------------------------------------------------------------------------------------------------- */

/* The part with this site and kind; the values are those at the moment to which cells were applied. */
static void expect_parts(const struct gp_past *history, const struct gp_history_cell *values,
                         const struct gp_peak *peak)
{
    for (uint32_t i = 0; i < peak->count; i++) {
        uint32_t part = 0;
        while (part < history->part_count &&
               (history->parts[part].site != peak->parts[i].site || history->parts[part].kind != peak->parts[i].kind))
            part++;
        cr_assert_lt(part, history->part_count);
        cr_assert_eq(values[part].bytes, peak->parts[i].bytes);
        cr_assert_eq(values[part].count, peak->parts[i].count);
    }
}

static void check_moments(const struct gp_recording *recording, const struct gp_past *history)
{
    struct gp_peak *peak = gp_peak_find(recording, history->device, 0);
    struct gp_history_cell *values = calloc(history->part_count + 1, sizeof(*values));
    bool found = peak->bytes == 0;
    for (uint32_t i = 0; i < history->moment_count; i++) {
        const struct gp_moment *moment = &history->moments[i];
        size_t end = i + 1 < history->moment_count ? moment[1].first_cell : history->cell_count;
        for (size_t k = moment->first_cell; k < end; k++)
            values[history->cells[k].part] = history->cells[k];
        int64_t bytes = moment->other_bytes, count = moment->other_count;
        for (uint32_t part = 0; part < history->part_count; part++) {
            bytes += values[part].bytes;
            count += values[part].count;
        }
        cr_assert_eq(bytes, moment->bytes);
        cr_assert_eq(count, moment->count);
        cr_assert(i == 0 || moment->time_ns >= moment[-1].time_ns);
        cr_assert_leq(moment->bytes, peak->bytes);
        if (!found && moment->bytes == peak->bytes) {
            found = true;
            cr_assert_eq(moment->time_ns, peak->time_ns);
            if (history->part_count >= 16)
                expect_parts(history, values, peak);
        }
        if (i + 1 == history->moment_count)
            cr_assert_eq(bytes, slow_level(recording, history->device, (uint32_t)recording->event_count - 1, NULL));
    }
    cr_assert(found, "the peak is at none of the moments");
    free(values);
    free(peak);
}

Test(history, of_few_moments_has_the_peak_and_adds_up)
{
    static const struct gp_history_limits limits[] = {
        {.lives = 7, .stretches = 1, .parts = 2}, {.lives = 50, .stretches = 9, .parts = 64}, {.stretches = 400}};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct gp_recording *recording = random_recording(seed * 7919, seed % 2);
        struct gp_flow *flow = gp_flow_new(recording);
        for (unsigned k = 0; k < 3; k++) {
            struct gp_past *history = gp_flow_history(flow, 0, &limits[k]), *all;
            cr_assert(!history->complete && history->life_count == limits[k].lives);
            cr_assert_leq(history->moment_count, 2 * limits[k].stretches);
            check_moments(recording, history);
            /* The blocks that it leaves out all held less. */
            all = gp_flow_history(flow, 0, &(struct gp_history_limits){.all = 1u << 20});
            uint32_t heavier = 0;
            double least = 1e300;
            for (uint32_t i = 0; i < history->life_count; i++) {
                const struct gp_life *life = &history->lives[i];
                double held = (double)life->bytes * ((double)(life->to_ns - life->from_ns) + 1);
                least = held < least ? held : least;
            }
            for (uint32_t i = 0; i < all->life_count; i++) {
                const struct gp_life *life = &all->lives[i];
                heavier += (double)life->bytes * ((double)(life->to_ns - life->from_ns) + 1) > least;
            }
            cr_assert(!history->life_count || heavier < history->life_count);
            gp_history_free(all);
            gp_history_free(history);
        }
        gp_flow_free(flow);
        gp_recording_free(recording);
    }
}

Test(history, of_all_blocks_gives_the_level_at_every_event)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct gp_recording *recording = random_recording(seed * 104729, seed % 2);
        struct gp_flow *flow = gp_flow_new(recording);
        struct gp_past *history = gp_flow_history(flow, 1, &(struct gp_history_limits){.all = 1u << 20});
        cr_assert(history->complete && history->moment_count == 0 && history->blocks == history->life_count);
        for (uint32_t i = 0; i < recording->event_count; i += 7) {
            int64_t bytes = 0;
            uint64_t now = recording->events[i].time_ns;
            if (i + 1 < recording->event_count && recording->events[i + 1].time_ns == now)
                continue;
            for (uint32_t k = 0; k < history->life_count; k++) {
                const struct gp_life *life = &history->lives[k];
                if (life->from_ns <= now && (life->live || life->to_ns > now))
                    bytes += (int64_t)life->bytes;
            }
            cr_assert_eq(bytes, slow_level(recording, 1, i, NULL), "seed %d, event %u", (int)seed, i);
        }
        gp_history_free(history);
        gp_flow_free(flow);
        gp_recording_free(recording);
    }
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
    struct gp_peak *end = gp_peak_find(recording, 0, recording->end_ns);
    cr_assert_eq(end->bytes, 70);
    cr_assert_eq(end->parts[0].site, b);
    free(end);
    struct gp_peak *peak = gp_peak_find(recording, 0, 0);
    cr_assert_eq(peak->bytes, 100);
    free(peak);
    gp_recording_free(recording);
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
    struct gp_peak *peak = gp_peak_find(recording, 0, 0);
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
    struct gp_fragmentation *fragmentation = gp_fragmentation_find(recording, 0, 11);
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
    struct gp_fragmentation *fragmentation = gp_fragmentation_find(recording, 0, 5);
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
    struct gp_fragmentation *fragmentation = gp_fragmentation_find(recording, 0, 21);
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
        struct gp_fragmentation *fragmentation = gp_fragmentation_find(recording, 0, points);
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
    struct gp_bill *bill = gp_bill_find(recording, 0);
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
    bill = gp_bill_find(recording, 0);
    cr_assert_eq(bill->process_bytes, -1);
    cr_assert_eq(bill->time_ns, 1001 * MS);
    cr_assert_eq(bill_row(bill, "untracked"), INT64_MIN);
    free(bill);
    gp_recording_free(recording);
}

/* ---- a part of the time ------------------------------------------------------------------------------------------ */

static struct gp_series_point held_at(const struct gp_series *series, uint64_t time_ns)
{
    return gp_series_range(series, time_ns, time_ns + 1);
}

/* At every moment of a part the sums are those of the whole recording. */
Test(cut, has_the_sums_of_the_whole)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t random = seed * 77;
        struct gp_recording *whole = seed % 4 ? random_recording(seed, true) : cached();
        struct gp_recording *part = seed % 4 ? random_recording(seed, true) : cached();
        uint64_t span = whole->end_ns - whole->begin_ns;
        uint64_t from = whole->begin_ns + random_next(&random) % span;
        uint64_t to = from + 1 + random_next(&random) % (whole->end_ns - from);
        cr_assert_eq(gp_recording_cut(part, from, to), 0);
        cr_assert(part->begin_ns == from && part->end_ns == to);
        cr_assert(part->part_from_ns == from - whole->begin_ns && part->part_of_ns == span);
        for (uint32_t device = 0; device < whole->device_count; device++) {
            struct gp_series *all[] = {gp_series_allocated(whole, device, GP_KIND_NONE, 100000),
                                       gp_series_reserved(whole, device, 100000)};
            struct gp_series *cut[] = {gp_series_allocated(part, device, GP_KIND_NONE, 100000),
                                       gp_series_reserved(part, device, 100000)};
            for (unsigned k = 0; k < 2; k++) {
                for (unsigned i = 0; i < 50; i++) {
                    uint64_t at = from + random_next(&random) % (to - from + 1);
                    int64_t expected = held_at(all[k], at).last, found = held_at(cut[k], at).last;
                    cr_assert_eq(found, expected, "seed %d, device %u, %s at %lld of %lld: %lld, not %lld", (int)seed,
                                 device, k ? "reserved" : "allocated", (long long)(at - from), (long long)(to - from),
                                 (long long)found, (long long)expected);
                }
                free(all[k]);
                free(cut[k]);
            }
            struct gp_segments *maps[] = {gp_segments_at(whole, device, to), gp_segments_at(part, device, to)};
            cr_assert_eq(maps[0]->segment_count, maps[1]->segment_count);
            cr_assert_eq(maps[0]->block_count, maps[1]->block_count);
            free(maps[0]);
            free(maps[1]);
        }
        gp_recording_free(whole);
        gp_recording_free(part);
    }
}

/* ---- damaged recordings ----------------------------------------------------------------------------------------- */

/* Random events of any size that the reader accepts (a petabyte).  The numbers are meaningless, but
 * every analysis must end. */
Test(flow, accepts_events_that_no_program_makes, .timeout = 120)
{
    uint64_t seed = 4711;
    for (unsigned round = 0; round < 60; round++) {
        struct recmake *make = recmake_new(GIB);
        uint32_t sites[4], second = recmake_device(make, 3, -1);
        for (unsigned i = 0; i < 4; i++)
            sites[i] = site(make, "f", i);
        for (unsigned i = 0; i < 400; i++) {
            uint64_t bits = random_next(&seed), shift = random_next(&seed) % 64;
            struct gp_rec_event event = {
                .time_ns = (1000 + i / 2) * MS,
                .address = round % 2 ? bits % 64 * 0x1000 : random_next(&seed),
                .bytes = (round % 3 ? random_next(&seed) >> (shift < 14 ? 14 : shift) : bits % 0x8000),
                .site = sites[bits % 4],
                .type = bits >> 8 & 7,
                .kind = bits >> 16 & 15,
                .device = (uint8_t)(bits >> 24 & 1 ? second : 0)};
            event.type = event.type == GP_EVENT_NONE ? GP_EVENT_ALLOC : event.type;
            recmake_event(make, &event);
            recmake_at(make, event.time_ns);
            if (i % 20 == 0)
                recmake_mark(make, "step");
        }
        struct gp_recording *recording = recmake_done(make);
        recording->from_start = round % 4 > 1;
        recording->dropped = round % 5;
        cr_assert_eq(gp_recording_match(recording), 0);
        struct gp_flow *flow = gp_flow_new(recording);
        struct gp_steps *steps = gp_steps_find(recording);
        cr_assert(flow && steps);
        free(gp_flow_leaks(flow, steps, 0));
        free(gp_flow_leaks(flow, steps, 50 * MS));
        free(gp_flow_churn(flow, steps));
        for (uint32_t device = 0; device < 2; device++) {
            free(gp_flow_allocated(flow, device, GP_KIND_NONE, 50));
            free(gp_flow_reserved(flow, device, 50));
            free(gp_flow_peak(flow, device, 0));
            free(gp_flow_fragmentation(flow, device, 20));
            free(gp_flow_segments(flow, device, 0));
            free(gp_flow_sizes(flow, device));
            free(gp_flow_bill(flow, device));
        }
        free(steps);
        gp_flow_free(flow);
        uint64_t middle = recording->begin_ns + (recording->end_ns - recording->begin_ns) / 2;
        cr_assert_eq(gp_recording_cut(recording, middle, recording->end_ns), 0);
        flow = gp_flow_new(recording);
        free(gp_flow_reserved(flow, 0, 50));
        gp_flow_free(flow);
        gp_recording_free(recording);
    }
}
