/* SPDX-License-Identifier: MIT
 * test_need.c: what a recording of a dry run needs of a device.
 */
#include <dryrun/dryrun.h>
#include <lib/recmake.h>

#include <criterion/criterion.h>
#include <string.h>

#define MS  1000000ull
#define MIB (1ll << 20)

static void segment(struct recmake *make, uint64_t address, int64_t bytes)
{
    recmake_event(make, &(struct gp_rec_event){.time_ns = 1500 * MS,
                                               .address = address,
                                               .bytes = (uint64_t)bytes,
                                               .type = GP_EVENT_SEGMENT_ALLOC,
                                               .kind = GP_KIND_LINEAR,
                                               .device = 0});
}

/* Half of a segment of PyTorch's is free and too small for the next request: only with pages that move is it of use. */
Test(need, at_least_is_no_more_than_with_expandable_segments)
{
    const struct recmake_frame frames[] = {{"step", "/job/train.py", 1}, {0}};
    struct recmake *make = recmake_new(1 << 30);
    uint32_t site = recmake_site(make, GP_KIND_LINEAR, frames);
    struct gp_dryrun_run run = {.threads = 40 * 1024};
    recmake_at(make, 1500 * MS);
    for (uint64_t i = 0; i < 8; i++) {
        segment(make, 0x10000000 + i * 0x10000000, 20 * MIB);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10000000 + i * 0x10000000, 8 * MIB, site);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10000000 + i * 0x10000000 + 8 * MIB, 8 * MIB, site);
    }
    recmake_at(make, 1600 * MS);
    for (uint64_t i = 0; i < 8; i++)
        recmake_free(make, 0, GP_KIND_LINEAR, 0x10000000 + i * 0x10000000);
    segment(make, 0xa0000000, 60 * MIB);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0xa0000000, 60 * MIB, site);
    cr_assert_eq(gp_dryrun_read_opened(&run, recmake_done(make), "made", 0, false), 0);
    cr_assert_eq(run.need_count, 1);
    const struct gp_need *need = &run.needs[0];
    cr_assert_geq(need->growable_bytes, 0);
    cr_assert_lt(need->growable_bytes, need->needed_bytes);
    cr_expect_leq(need->least_bytes, need->growable_bytes - need->context_bytes);
    cr_expect_leq(need->smallest_bytes, need->growable_bytes);
    cr_expect_geq(need->least_bytes, 124 * MIB, "what is live at the peak");
    gp_dryrun_run_free(&run);
}
