/* SPDX-License-Identifier: MIT
 *
 * Recordings of a process that gpuprof was attached to: memory from before is a number of its own and
 * in no other.
 */
#include <analyze/analyze.h>
#include <criterion/criterion.h>
#include <lib/analyses.h>
#include <lib/recmake.h>
#include <read/recording/recording.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ll << 20)
#define GIB (1ll << 30)
#define MS  1000000ull

/* 100 MiB from before, of which a segment of 20 MiB and a block of 5 MiB in another one are freed; a
 * block of 3 MiB is new. */
static struct gp_recording *attached(void)
{
    const struct recmake_frame stack[] = {{"a", "a.py", 1}, {NULL, NULL, 0}};
    struct recmake *make = recmake_new(GIB);
    uint32_t a = recmake_site(make, GP_KIND_LINEAR, stack);
    recmake_at(make, 1001 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000000, 3 * MIB, a);
    recmake_sample(make, &(struct gp_rec_sample){.time_ns = 1002 * MS, .used_bytes = -1, .process_bytes = 150 * MIB});
    recmake_event(make, &(struct gp_rec_event){.time_ns = 1003 * MS,
                                               .address = 0x9000000,
                                               .bytes = 5 * MIB,
                                               .type = GP_EVENT_FREE,
                                               .kind = GP_KIND_LINEAR});
    recmake_event(make, &(struct gp_rec_event){.time_ns = 1004 * MS,
                                               .address = 0x20000000,
                                               .bytes = 20 * MIB,
                                               .type = GP_EVENT_SEGMENT_FREE,
                                               .kind = GP_KIND_LINEAR});
    recmake_at(make, 1005 * MS);
    recmake_mark(make, "end");
    struct gp_recording *r = recmake_done(make);
    r->from_start = false;
    r->attached = GP_REC_ATTACHED_YES;
    r->befores = calloc(2, sizeof(*r->befores));
    r->before_count = 2;
    r->befores[0] = (struct gp_rec_before){1000 * MS, 0, {100 * MIB, 100 * MIB, 5, 0, -1, -1, GP_BEFORE_DRIVER, 0}};
    r->befores[1] = (struct gp_rec_before){1004 * MS, 0, {80 * MIB, 100 * MIB, 4, 1, -1, -1, GP_BEFORE_DRIVER, 0}};
    return r;
}

static int64_t peak_of(const struct gp_recording *recording)
{
    struct gp_peak *peak = analysis_peak(recording, 0, 0);
    int64_t bytes = peak->bytes;
    free(peak);
    return bytes;
}

Test(attached, what_was_there_before_is_in_no_peak)
{
    struct gp_recording *recording = attached();
    cr_expect_eq(peak_of(recording), 3 * MIB);
    recording->attached = GP_REC_ATTACHED_NO; /* recording started late, and all memory is gpuprof's */
    cr_expect_eq(peak_of(recording), 8 * MIB);
    gp_recording_free(recording);
}

static int64_t row_of(const struct gp_bill *bill, const char *what)
{
    for (uint32_t i = 0; i < bill->count; i++) {
        if (strcmp(bill->rows[i].what, what) == 0)
            return bill->rows[i].bytes;
    }
    return INT64_MIN;
}

static int64_t untracked(const struct gp_recording *recording, int64_t before)
{
    struct gp_bill *bill = analysis_bill(recording, 0);
    int64_t bytes = row_of(bill, "untracked") + row_of(bill, "rounding by the driver");
    cr_expect_eq(bill->time_ns, 1002 * MS);
    cr_expect_eq(row_of(bill, "before attach"), before, "%lld", (long long)row_of(bill, "before attach"));
    free(bill);
    return bytes;
}

Test(attached, the_bill_has_it_as_a_row_as_of_its_moment)
{
    struct gp_recording *recording = attached();
    cr_expect_eq(untracked(recording, 100 * MIB), (150 - 3 - 100) * MIB);
    recording->before_count = 0;
    cr_expect_eq(untracked(recording, -1), (150 - 3) * MIB);
    recording->attached = GP_REC_ATTACHED_UNKNOWN;
    untracked(recording, INT64_MIN);
    gp_recording_free(recording);
}

/* The device has 1 GiB, the recording no number of NVML for it. */
Test(attached, what_was_there_before_is_no_room)
{
    struct gp_recording *recording = attached();
    for (int round = 0; round < 2; round++) {
        struct gp_steps *steps = gp_steps_find(recording);
        struct gp_forecast_run *run = analysis_forecast(recording, steps, 0);
        cr_assert(run);
        cr_expect_eq(run->now.headroom_bytes, round ? GIB - 3 * MIB : GIB - 83 * MIB, "%lld",
                     (long long)run->now.headroom_bytes);
        free(run);
        free(steps);
        recording->before_count = 0; /* then it is unknown */
    }
    gp_recording_free(recording);
}
