/* SPDX-License-Identifier: MIT
 *
 * test_analyze_many.c: analyses of more than they keep: call sites that leak, steps, blocks and devices of a report, kinds of
 * cells of a history.
 */
#include <analyze/report.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked_memory.h"
#include "train_fixture.h"

/* ---- leaks --------------------------------------------------------------------------------------------------------- */

/* Each of `sites` sites keeps a block in each step; the first one the largest, or all have 512 bytes;
 * and one takes a large block in the middle, which is no leak. */
static struct gp_recording *many_leaks_of(unsigned sites, unsigned steps, int64_t total, bool alike)
{
    struct recmake *make = recmake_new(total);
    uint32_t *numbers = calloc(sites, sizeof(*numbers));
    uint64_t at = 1000 * MS, address = 0x7f0000000000ull;
    for (unsigned i = 0; i < sites; i++)
        numbers[i] = site(make, "keeps", i);
    uint32_t once = sites > 1 ? site(make, "once", 0) : 0;
    for (unsigned step = 0; step <= steps; step++) {
        recmake_at(make, at += 1000 * MS);
        recmake_mark(make, "step");
        if (once && step == steps / 2)
            recmake_alloc(make, 0, GP_KIND_LINEAR, MIB, GIB, once);
        for (unsigned i = 0; i < sites && step < steps; i++)
            recmake_alloc(make, 0, GP_KIND_LINEAR, address += MIB, (alike ? 1 : sites - i) * 512ull, numbers[i]);
    }
    free(numbers);
    return recmake_done(make);
}

static struct gp_recording *many_leaks(unsigned sites, unsigned steps, int64_t total)
{
    return many_leaks_of(sites, steps, total, false);
}

Test(many, sites_that_leak)
{
    static const unsigned counts[] = {1, 63, 64, 65, 510, 511, 512, 600};
    for (unsigned c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        struct gp_recording *recording = many_leaks(counts[c], 6, 16 * GIB);
        struct gp_steps *steps = gp_steps_find(recording);
        struct gp_leaks *leaks = gp_leaks_find(recording, steps, 0);
        /* Of 512 sites that hold more at the end the curves are looked at. */
        cr_assert_eq(leaks->count, counts[c] < 511 ? counts[c] : 511, "%u of %u", leaks->count, counts[c]);
        cr_assert(leaks->suspects[0].points == 6 && leaks->steps == 6 && !leaks->why[0]);
        for (uint32_t i = 0; i < leaks->count; i++) { /* the largest first */
            const struct gp_leak *leak = &leaks->suspects[i];
            int64_t bytes = (int64_t)(counts[c] - i) * 512;
            cr_assert_eq(leak->site, i + 1);
            cr_assert(leak->bytes_per_step == (double)bytes && leak->live_bytes == 6 * bytes && leak->live_count == 6);
            cr_assert(leak->taken_bytes == 6 * bytes && leak->freed_bytes == 0 && leak->grows_ns == 5000 * MS);
            for (unsigned k = 0; k <= 6; k++) /* the marks come before the blocks of their step */
                cr_assert_eq(leak->kept[k], (int64_t)k * bytes);
        }
        free(leaks);
        free(steps);
        gp_recording_free(recording);
    }
}

Test(many, sites_that_leak_alike_are_in_order)
{
    struct gp_recording *recording = many_leaks_of(20, 6, 16 * GIB, true);
    struct gp_steps *steps = gp_steps_find(recording);
    struct gp_leaks *leaks = gp_leaks_find(recording, steps, 0);
    cr_assert_eq(leaks->count, 20);
    for (uint32_t i = 0; i < 20; i++)
        cr_expect_eq(leaks->suspects[i].site, i + 1);
    free(leaks);
    free(steps);
    gp_recording_free(recording);
}

/* Up to 200 steps each has its point; of more, several share one. */
Test(many, steps_of_a_leak)
{
    static const unsigned counts[] = {4, 9, 10, 19, 20, 199, 200, 201, 400, 401};
    for (unsigned c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        struct gp_recording *recording = many_leaks(1, counts[c], 16 * GIB);
        struct gp_steps *steps = gp_steps_find(recording);
        struct gp_leaks *leaks = gp_leaks_find(recording, steps, 0);
        uint32_t points = counts[c] < 200 ? counts[c] : 200, warm = points / 10 ? points / 10 : 1;
        cr_assert(leaks->count == 1 && leaks->suspects[0].points == points && leaks->steps == counts[c], "%u steps",
                  counts[c]);
        for (uint32_t k = 0; k <= points; k++)
            cr_assert_eq(leaks->suspects[0].kept[k], (int64_t)((uint64_t)k * counts[c] / points) * 512,
                         "point %u of %u steps", k, counts[c]);
        /* It grows from the warm-up on. */
        uint64_t first = (uint64_t)warm * counts[c] / points;
        cr_assert_eq(leaks->suspects[0].grows_ns, (counts[c] - first) * 1000 * MS, "%u steps", counts[c]);
        cr_assert_float_eq(leaks->suspects[0].bytes_per_second, 512, 1e-6);
        free(leaks);
        free(steps);
        gp_recording_free(recording);
    }
}

/* The time until the device is full: what is free is what the events hold, or what NVML reports, if that is more. */
Test(many, seconds_until_a_device_is_full)
{
    static const struct {
        int64_t total, used, late_used, before;
        double seconds;
    } cases[] = {{6 * 512, -1, -1, -1, 0},
                 {6 * 512 + 512, -1, -1, -1, 1},
                 {6 * 512 - 512, -1, -1, -1, 0},
                 {6 * 512 + 1024, -1, -1, 512, 1},
                 {6 * 512 + 512, -1, -1, 512, 0},
                 {6 * 512 + 512, -1, -1, 0, 1},
                 {100 * 512, 99 * 512, -1, -1, 1},
                 {100 * 512, 100 * 512, -1, -1, 0},
                 {100 * 512, 0, -1, -1, 94},
                 {100 * 512, 99 * 512, 0, -1, 1},
                 {0, -1, -1, -1, -1},
                 {-1, -1, -1, -1, -1},
                 {1 * 512, -1, -1, -1, 0},
                 {100 * 512, 3 * 512, -1, 94 * 512, 0}};
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct gp_recording *recording = many_leaks(1, 6, cases[c].total);
        struct gp_rec_sample samples[3] = {
            {.time_ns = 8000 * MS, .device = 0, .used_bytes = cases[c].used, .reserved_bytes = -1, .process_bytes = -1},
            {.time_ns = 8000 * MS, .device = 1, .used_bytes = 99 * GIB, .reserved_bytes = -1, .process_bytes = -1},
            {.time_ns = 8000 * MS + 1, .used_bytes = cases[c].late_used, .reserved_bytes = -1, .process_bytes = -1}};
        struct gp_rec_before before = {.time_ns = 0, .is = {.bytes = cases[c].before, .source = GP_BEFORE_DRIVER}};
        recording->samples = malloc(sizeof(samples));
        memcpy(recording->samples, samples, sizeof(samples));
        recording->sample_count = 3;
        recording->befores = malloc(sizeof(before));
        memcpy(recording->befores, &before, sizeof(before));
        recording->before_count = 1;
        struct gp_steps *steps = gp_steps_find(recording);
        struct gp_leaks *leaks = gp_leaks_find(recording, steps, 0);
        cr_assert_eq(steps->bounds_ns[steps->count], 8000 * MS);
        cr_assert_eq(leaks->count, 1);
        cr_assert_float_eq(leaks->suspects[0].seconds_to_oom, cases[c].seconds, 1e-9, "case %u: %g s", c,
                           leaks->suspects[0].seconds_to_oom);
        free(leaks);
        free(steps);
        gp_recording_free(recording);
    }
}

/* ---- reports of many blocks ---------------------------------------------------------------------------------------- */

/* `blocks` on each of the devices, one after the other, all of which stay; the i-th has i + 1 bytes. */
static struct gp_recording *many_blocks(unsigned devices, unsigned blocks)
{
    struct recmake *make = recmake_new(16 * GIB);
    uint64_t at = 1000 * MS;
    uint32_t sites[200];
    for (unsigned i = 0; i < 200; i++)
        sites[i] = site(make, "many", i);
    for (unsigned i = 1; i < 9; i++)
        recmake_device(make, (uint8_t)i, 16 * GIB);
    for (unsigned i = 0; i < blocks; i++)
        for (unsigned d = 0; d < devices; d++) {
            recmake_at(make, at += MS);
            recmake_alloc(make, d, GP_KIND_LINEAR, 0x7f0000000000ull + i * 65536ull, i + 1, sites[i % 200]);
        }
    return recmake_done(make);
}

/* Up to 20 000 blocks of all devices are all kept; else each device has its share of what is. */
Test(many, blocks_of_a_report, .timeout = 60)
{
    static const struct {
        unsigned devices, blocks, lives, moments, parts, fine;
    } cases[] = {{1, 20000, 20000, 0, 0, 0},      {1, 20001, 4000, 500, 128, 10000}, {2, 10000, 10000, 0, 0, 0},
                 {2, 10001, 2000, 400, 96, 5000}, {3, 6667, 1333, 300, 80, 3333},    {4, 5001, 1000, 300, 80, 2500},
                 {5, 4001, 800, 60, 48, 2000},    {8, 2501, 500, 60, 48, 1250},      {9, 2223, 444, 30, 32, 1111}};
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct gp_recording *recording = many_blocks(cases[c].devices, cases[c].blocks);
        struct gp_report report;
        cr_assert_eq(gp_report_init_plain(&report, recording, NULL, "x"), 0);
        cr_assert_eq(gp_report_run(&report, GP_REPORT_HISTORY, GP_DETAIL_PLOT), 0);
        for (unsigned d = 0; d < 9; d++) {
            const struct gp_past *past = report.devices[d].history;
            unsigned all = d < cases[c].devices ? cases[c].blocks : 0;
            cr_assert(past && past->blocks == all && report.devices[d].blocks == all && past->device == d);
            if (!all)
                continue;
            cr_assert_eq(past->life_count, cases[c].lives, "case %u: %u blocks", c, past->life_count);
            cr_assert_eq(past->part_count, cases[c].parts, "case %u: %u parts", c, past->part_count);
            /* Each stretch ends at its highest moment. */
            cr_assert_eq(past->moment_count, cases[c].moments, "case %u: %u moments", c, past->moment_count);
            cr_assert_eq(!cases[c].fine, !report.devices[d].fine);
            cr_assert_null(report.devices[d].fine_reserved, "without a cache reserved is allocated");
            cr_assert(!cases[c].fine || (report.devices[d].fine->count > cases[c].fine / 3 &&
                                         report.devices[d].fine->count <= cases[c].fine));
            if (!past->moment_count)
                continue;
            const struct gp_moment *last = &past->moments[past->moment_count - 1];
            int64_t sum = (int64_t)all * (all + 1) / 2, of_parts = 0, count = 0;
            cr_assert(last->bytes == sum && last->count == (int64_t)all);
            int64_t bytes[128] = {0}, counts[128] = {0};
            for (size_t i = 0; i < past->cell_count; i++) {
                cr_assert_lt(past->cells[i].part, past->part_count);
                bytes[past->cells[i].part] = past->cells[i].bytes;
                counts[past->cells[i].part] = past->cells[i].count;
            }
            for (unsigned i = 0; i < past->part_count; i++)
                of_parts += bytes[i], count += counts[i];
            cr_assert(of_parts + last->other_bytes == sum && count + last->other_count == (int64_t)all);
            /* The blocks that were kept are those that held the most, bytes by time. */
            double least = 1e300;
            for (unsigned i = 0; i < past->life_count; i++) {
                const struct gp_life *life = &past->lives[i];
                double weight = (double)life->bytes * ((double)(life->to_ns - life->from_ns) + 1);
                least = weight < least ? weight : least;
                cr_assert(life->live && life->to_ns == recording->end_ns);
            }
            unsigned more = 0;
            for (size_t i = 0; i < recording->event_count; i++) {
                const struct gp_rec_event *event = &recording->events[i];
                more += event->device == d &&
                        (double)event->bytes * ((double)(recording->end_ns - event->time_ns) + 1) >= least;
            }
            cr_assert_eq(more, past->life_count, "case %u: %u blocks held as much", c, more);
        }
        gp_report_fini(&report);
        gp_recording_free(recording);
    }
}

/* ---- points of a report -------------------------------------------------------------------------------------------- */

Test(many, points_of_a_report)
{
    static const struct {
        enum gp_report_detail detail;
        unsigned moments, points;
        bool requested;
    } cases[] = {
        {GP_DETAIL_SUMMARY, 2, 64, false}, {GP_DETAIL_TABLE, 13, 2000, true}, {GP_DETAIL_PLOT, 201, 2000, true}};
    struct gp_recording *recording = many_blocks(1, 4000);
    for (unsigned c = 0; c < 3; c++) {
        struct gp_report report;
        cr_assert_eq(gp_report_init(&report, recording, NULL, "x"), 0);
        cr_assert_eq(gp_report_run(&report, GP_REPORT_DOCUMENT, cases[c].detail), 0);
        const struct gp_report_device *device = &report.devices[0];
        /* The peaks are at the last block, which is no even moment. */
        cr_expect_eq(device->fragmentation->count, cases[c].moments + 1, "%u moments", device->fragmentation->count);
        cr_expect(device->allocated->count <= cases[c].points && device->allocated->count > cases[c].points * 2 / 3,
                  "%u points", device->allocated->count);
        cr_expect_eq(device->reserved->count, device->allocated->count);
        cr_expect_eq(device->kinds[GP_KIND_LINEAR]->count, device->allocated->count);
        cr_expect_eq(device->requested != NULL, cases[c].requested);
        cr_expect_eq(report.devices[1].fragmentation != NULL, cases[c].detail == GP_DETAIL_PLOT, "an unused device");
        cr_expect(device->used && device->kinds_seen == 1u << GP_KIND_LINEAR && !report.devices[1].used);
        gp_report_fini(&report);
    }
    gp_recording_free(recording);
}
