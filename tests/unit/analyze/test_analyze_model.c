/* SPDX-License-Identifier: MIT
 *
 * test_analyze_model.c: the ranges of caches against a model that is too simple to be wrong: one flag for each page.
 */
#include <analyze/analyze.h>
#include <analyze/ranges.h>
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <stdlib.h>
#include <string.h>

#include "lib/random.h"
#include "lib/recmake.h"

TestSuite(model, .timeout = 60);

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

#define PAGES  48u
#define PAGE   (2ull << 20)
#define GPUS   3u
#define EVENTS 120u

static uint8_t pages[GPUS][PAGES]; /* 0: nothing, 1: a segment, 2: growable */

/* Adds only where nothing is; takes any run, with holes or without. */
static bool event_drawn(struct gp_rec_event *event, unsigned number)
{
    unsigned device = draw_below(GPUS), from = draw_below(PAGES), count = 1 + draw_below(draw_below(4) ? 6 : PAGES);
    bool adds = draw_below(2), growable = draw_below(2);
    count = from + count > PAGES ? PAGES - from : count;
    for (unsigned i = from; i < from + count && adds; i++)
        if (pages[device][i])
            return false;
    memset(&pages[device][from], adds ? 1 + growable : 0, count);
    static const uint8_t types[2][2] = {{GP_EVENT_SEGMENT_FREE, GP_EVENT_SEGMENT_UNMAP},
                                        {GP_EVENT_SEGMENT_ALLOC, GP_EVENT_SEGMENT_MAP}};
    *event = (struct gp_rec_event){.time_ns = 1000000000ull + number,
                                   .type = types[adds][growable],
                                   .kind = GP_KIND_LINEAR,
                                   .device = (uint8_t)device,
                                   .address = (1 + from) * PAGE,
                                   .bytes = count * PAGE};
    return true;
}

static uint64_t live(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < GPUS * PAGES; i++)
        sum += pages[i / PAGES][i % PAGES] ? PAGE : 0;
    return sum;
}

static void ranges_compared(const struct gp_ranges *ranges)
{
    for (unsigned device = 0; device < GPUS; device++)
        for (unsigned i = 0; i <= PAGES; i++)
            for (unsigned part = 0; part < 3; part++) { /* the page's first byte, its second, its last */
                uint64_t address = (1 + i) * PAGE + (part == 2 ? PAGE - 1 : part);
                const struct gp_range *range = gp_ranges_find(ranges, (uint8_t)device, address);
                cr_assert_eq(range != NULL, i < PAGES && pages[device][i] != 0, "device %u, page %u", device, i);
                cr_assert(!range || (range->device == device && range->start <= address && address < range->end &&
                                     range->growable == (pages[device][i] == 2)));
            }
}

Test(model, ranges_are_the_pages)
{
    static struct gp_rec_event events[EVENTS];
    for (unsigned round = 0; round < 60; round++) {
        struct recmake *make = recmake_new(1ll << 40);
        struct gp_ranges ranges;
        uint64_t held = 0;
        unsigned count = 0;
        memset(pages, 0, sizeof(pages));
        while (count < EVENTS)
            count += event_drawn(&events[count], count);
        for (unsigned i = 0; i < EVENTS; i++)
            recmake_event(make, &events[i]);
        struct gp_recording *recording = recmake_done(make);
        cr_assert_eq(gp_ranges_init(&ranges, recording), 0);
        memset(pages, 0, sizeof(pages));
        for (unsigned i = 0; i < EVENTS; i++) {
            bool adds = events[i].type == GP_EVENT_SEGMENT_ALLOC || events[i].type == GP_EVENT_SEGMENT_MAP;
            uint64_t moved = gp_ranges_apply(&ranges, &events[i]);
            memset(&pages[events[i].device][events[i].address / PAGE - 1],
                   !adds                                    ? 0
                   : events[i].type == GP_EVENT_SEGMENT_MAP ? 2
                                                            : 1,
                   events[i].bytes / PAGE);
            held += adds ? moved : -moved;
            cr_assert_eq(held, live(), "event %u", i);
            ranges_compared(&ranges);
        }
        gp_ranges_fini(&ranges);
        gp_recording_free(recording);
    }
}

/* A recording that lasted no time has one point, and no other has two at one time. */
Test(model, points_of_a_series_rise)
{
    for (unsigned lasted = 0; lasted < 4; lasted++) {
        struct recmake *make = recmake_new(1 << 30);
        recmake_at(make, 2000000000ull);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 4096, 512, 0);
        struct gp_recording *recording = recmake_done(make);
        recording->begin_ns = 2000000000ull - lasted % 2;
        recording->end_ns = 2000000000ull + lasted / 2;
        struct gp_series *series = gp_series_allocated(recording, 0, GP_KIND_NONE, 100);
        cr_assert(series);
        cr_expect_eq(series->count, 1 + lasted % 2 + lasted / 2, "way %u: %u points", lasted, series->count);
        for (uint32_t i = 1; i < series->count; i++)
            cr_expect_lt(series->points[i - 1].time_ns, series->points[i].time_ns);
        cr_expect_eq(series->points[series->count - 1].last, 512);
        free(series);
        gp_recording_free(recording);
    }
}
