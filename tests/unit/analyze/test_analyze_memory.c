/* SPDX-License-Identifier: MIT
 *
 * test_analyze_memory.c: what is one piece of memory, for the map of segments and for the largest free block, and what the
 * driver rounds up, at every boundary.
 */
#include <criterion/criterion.h>
#include <lib/analyses.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"

static void piece(struct recmake *make, uint8_t type, uint32_t device, uint64_t address, uint64_t bytes)
{
    recmake_event(make, &(struct gp_rec_event){.time_ns = 1001 * MS,
                                               .device = device,
                                               .address = address,
                                               .bytes = bytes,
                                               .type = type,
                                               .kind = GP_KIND_LINEAR});
}

/* Two pieces, the second one at a distance of `gap` bytes from the end of the first. */
static struct gp_recording *two_pieces(uint8_t one, uint8_t other, uint64_t gap, bool apart)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t a = site(make, "a", 1), second = recmake_device(make, 1, GIB);
    recmake_at(make, 1001 * MS);
    piece(make, one, 0, 0x10000, 1000);
    piece(make, other, apart ? second : 0, 0x10000 + 1000 + gap, 500);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10000, 100, a); /* at the start: 900 and 500 are free */
    return recmake_done(make);
}

Test(pieces, only_pages_that_touch_on_one_device_are_one_piece)
{
    static const uint8_t types[] = {GP_EVENT_SEGMENT_ALLOC, GP_EVENT_SEGMENT_MAP};
    for (unsigned which = 0; which < 16; which++) {
        uint8_t one = types[which & 1], other = types[which >> 1 & 1];
        uint64_t gap = which & 4 ? 1 : 0;
        bool apart = which & 8, joined = one == GP_EVENT_SEGMENT_MAP && other == one && !gap && !apart;
        struct gp_recording *recording = two_pieces(one, other, gap, apart);
        struct gp_segments *map = gp_segments_at(recording, 0, 0);
        cr_expect_eq(map->segment_count, joined || apart ? 1 : 2, "%u: %u segments", which, map->segment_count);
        cr_expect_eq(map->segments[0].bytes, joined ? 1500 : 1000, "%u", which);
        struct gp_fragmentation *found = analysis_fragmentation(recording, 0, 10);
        cr_expect_eq(found->points[found->count - 1].largest_free_bytes, joined ? 1400 : 900, "%u: %lld", which,
                     (long long)found->points[found->count - 1].largest_free_bytes);
        cr_expect_eq(found->points[found->count - 1].reserved_bytes, apart ? 1000 : 1500, "%u", which);
        free(found);
        free(map);
        gp_recording_free(recording);
    }
}

static int64_t row_of(const struct gp_bill *bill, const char *what)
{
    for (uint32_t i = 0; i < bill->count; i++)
        if (strcmp(bill->rows[i].what, what) == 0)
            return bill->rows[i].bytes;
    return 0;
}

/* Up to 1 MiB the driver rounds up to 512 bytes, above to 2 MiB. */
Test(rounding, is_that_of_each_live_block)
{
    static const struct {
        uint64_t bytes;
        int64_t over;
    } sizes[] = {{1, 511},      {511, 1},           {512, 0},         {513, 511},   {MIB - 1, 1},
                 {MIB, 0},      {MIB + 1, MIB - 1}, {2 * MIB - 1, 1}, {2 * MIB, 0}, {2 * MIB + 1, 2 * MIB - 1},
                 {3 * MIB, MIB}};
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct recmake *make = recmake_new(GIB);
        uint32_t a = site(make, "a", 1);
        recmake_device(make, 1, GIB);
        recmake_at(make, 1001 * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10000000, sizes[i].bytes, a);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x20000000, 100, a); /* freed before the moment */
        recmake_alloc(make, 1, GP_KIND_LINEAR, 0x30000000, 100, a);
        recmake_alloc(make, 0, GP_KIND_PITCHED, 0x40000000, 100, a);
        recmake_at(make, 1002 * MS);
        recmake_free(make, 0, GP_KIND_LINEAR, 0x20000000);
        recmake_sample(make, &(struct gp_rec_sample){.time_ns = 1003 * MS, .process_bytes = 100 * MIB});
        recmake_at(make, 1004 * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x50000000, 100, a); /* after it */
        struct gp_recording *recording = recmake_done(make);
        struct gp_bill *bill = analysis_bill(recording, 0);
        cr_expect_eq(row_of(bill, "rounding by the driver"), sizes[i].over, "%llu bytes: %lld",
                     (unsigned long long)sizes[i].bytes, (long long)row_of(bill, "rounding by the driver"));
        cr_expect_eq(row_of(bill, "linear"), (int64_t)sizes[i].bytes);
        cr_expect_eq(row_of(bill, "untracked"), 100 * (int64_t)MIB - (int64_t)sizes[i].bytes - 100 - sizes[i].over);
        free(bill);
        gp_recording_free(recording);
    }
}
