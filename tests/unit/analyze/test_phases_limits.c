/* SPDX-License-Identifier: MIT
 *
 * test_phases_limits.c: the names of phases, how many there are and how deep they may lie, and which range an end ends.
 */
#include <analyze/flow.h>
#include <analyze/report.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked_memory.h"
#include "train_fixture.h"

static struct gp_phases *phases_of(const struct gp_recording *recording)
{
    struct gp_flow *flow = gp_flow_new(recording);
    struct gp_phases *phases = gp_phases_find(flow, NULL, NULL, 0);
    gp_flow_free(flow);
    cr_assert(phases);
    return phases;
}

Test(phases_limits, names_have_no_numbers)
{
    static const struct {
        const char *mark, *name;
    } cases[] = {{"step 12", "step"},
                 {"12", "?"},
                 {"", "?"},
                 {"a1b2c3", "abc"},
                 {"09/:", "/"},
                 {"a _-:#", "a"},
                 {"- #", "?"},
                 {"a b", "a b"},
                 {"nvtx.point 3", "point"},
                 {"nvtx:range_7", "range"},
                 {"abcdefghijklmnopqrstuvwxyzabcdefghijkl", "abcdefghijklmnopqrstuvwxyzabcdefghijkl"},
                 {"abcdefghijklmnopqrstuvwxyzabcdefghijklm", "abcdefghijklmnopqrstuvwxyzabcdefghijklm"},
                 {"abcdefghijklmnopqrstuvwxyzabcdefghijklmn", "abcdefghijklmnopqrstuvwxyzabcdefghijklm"},
                 {"0123456789abcdefghijklmnopqrstuvwxyzabcdefghijklmn", "abcdefghijklmnopqrstuvwxyzabcdefghijklm"},
                 {"abcdefghijklmnopqrstuvwxyzabcdefghij___n", "abcdefghijklmnopqrstuvwxyzabcdefghij"}};
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct recmake *make = recmake_new(GIB);
        recmake_at(make, 1001 * MS);
        recmake_mark(make, cases[c].mark);
        struct gp_recording *recording = recmake_done(make);
        struct gp_phases *phases = phases_of(recording);
        cr_assert_eq(phases->count, 1);
        cr_expect_str_eq(phases->phases[0].name, cases[c].name, "%s: %s", cases[c].mark, phases->phases[0].name);
        cr_expect_eq(phases->source, strncmp(cases[c].mark, "nvtx:", 5) ? GP_PHASES_MARKS : GP_PHASES_NVTX);
        cr_expect(phases->phases[0].begin_ns == 1001 * MS && phases->phases[0].duration_ns == MS);
        gp_phases_free(phases);
        gp_recording_free(recording);
    }
}

/* Each range in the one before: 64 rows, and 4096 that are open at once. */
Test(phases_limits, ranges_in_ranges)
{
    static const unsigned counts[] = {1, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 4100};
    for (unsigned c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        struct recmake *make = recmake_new(GIB);
        unsigned open = counts[c] < 4096 ? counts[c] : 4096, rows = open < 64 ? open : 64;
        for (unsigned i = 0; i < counts[c]; i++) {
            recmake_at(make, 1000 * MS + i);
            recmake_mark(make, "nvtx:range");
            recmake_alloc(make, 0, GP_KIND_LINEAR, GIB + i * MIB, 512, 0);
        }
        for (unsigned i = 0; i < counts[c]; i++) {
            recmake_at(make, 1000 * MS + 10000 + i);
            recmake_mark(make, "/nvtx:range");
        }
        struct gp_recording *recording = recmake_done(make);
        struct gp_phases *phases = phases_of(recording);
        cr_expect_eq(phases->count, rows, "%u ranges: %u rows", counts[c], phases->count);
        cr_expect_eq(phases->left_out, open - rows, "%u ranges: %u left out", counts[c], phases->left_out);
        for (uint32_t i = 0; i < phases->count; i++) {
            const struct gp_phase *phase = &phases->phases[i];
            cr_expect(phase->depth == i && phase->count == 1 && phase->begin_ns == 1000 * MS + i, "row %u", i);
            cr_expect(phase->begin_bytes == i * 512 && phase->peak_bytes == counts[c] * 512 &&
                          phase->end_bytes == counts[c] * 512,
                      "row %u", i);
            /* The innermost one ends first; ends of ranges that were not seen end the others early. */
            cr_expect_eq(phase->duration_ns, 10000 + open - 1 - 2 * i, "row %u of %u: %llu", i, counts[c],
                         (unsigned long long)phase->duration_ns);
        }
        gp_phases_free(phases);
        gp_recording_free(recording);
    }
}

static void mark_on(struct recmake *make, uint64_t at_ns, uint32_t thread, const char *name)
{
    recmake_event(make, &(struct gp_rec_event){.time_ns = at_ns,
                                               .bytes = recmake_string(make, name),
                                               .thread = thread & 7,
                                               .type = GP_EVENT_MARK,
                                               .device = GP_REC_NO_DEVICE});
}

/* The innermost of the name, on the thread of the end if there is one; marks end no range and ranges no mark. */
Test(phases_limits, ends_of_ranges)
{
    static const struct {
        const char *begin[4]; /* NULL ends; the time of the i-th is i, a number in front is the thread */
        const char *end;
        unsigned ended; /* which of them; 4: none */
    } cases[] = {{{"0nvtx:a", "0nvtx:a"}, "0/nvtx:a", 1},
                 {{"0nvtx:a", "1nvtx:x", "1nvtx:a"}, "0/nvtx:a", 0},
                 {{"0nvtx:a", "1nvtx:x", "1nvtx:a"}, "2/nvtx:a", 2},
                 {{"0nvtx:a", "0nvtx:b"}, "0/nvtx:a", 0},
                 {{"0nvtx:a", "0nvtx:b"}, "0/nvtx:", 1},
                 {{"0nvtx:a", "1nvtx:b"}, "0/nvtx:", 0},
                 {{"0nvtx:a", "1nvtx:b"}, "2/nvtx:", 1},
                 {{"0nvtx:a", "1nvtx:b"}, "0/nvtx:b", 1},
                 {{"0nvtx:a", "0nvtx:b"}, "0/nvtx:c", 4},
                 {{"0nvtx:a 1", "0nvtx:a 2"}, "0/nvtx:a 1", 1},
                 {{"0a", "0nvtx:b"}, "0/nvtx:a", 4},
                 {{"0a", "0nvtx:b", "0nvtx:c"}, "0/nvtx:b", 1},
                 {{"0nvtx:a", "0m"}, "0/nvtx:a", 0}};
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct recmake *make = recmake_new(GIB);
        unsigned count = 0;
        for (; cases[c].begin[count]; count++)
            mark_on(make, 1000 * MS + count, (uint32_t)cases[c].begin[count][0] - '0', cases[c].begin[count] + 1);
        mark_on(make, 1000 * MS + 100, (uint32_t)cases[c].end[0] - '0', cases[c].end + 1);
        recmake_at(make, 1000 * MS);
        struct gp_recording *recording = recmake_done(make);
        struct gp_phases *phases = phases_of(recording);
        unsigned ended = 4;
        for (uint32_t i = 0; i < phases->count; i++) {
            uint64_t begin = phases->phases[i].begin_ns, end = begin + phases->phases[i].duration_ns;
            cr_assert_eq(phases->phases[i].count, 1);
            if (end == 1000 * MS + 100)
                ended = (unsigned)(begin - 1000 * MS);
        }
        cr_expect_eq(ended, cases[c].ended, "case %u: the one of %u has ended", c, ended);
        gp_phases_free(phases);
        gp_recording_free(recording);
    }
}
