/* SPDX-License-Identifier: MIT
 * test_analyze_diff.c: what comes and goes within a step, and what differs between two recordings. */
#include <criterion/criterion.h>
#include <lib/analyses.h>
#include <lib/random.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"

/* ---- churn ------------------------------------------------------------------------------------------------------ */

Test(churn, durations_are_stored_in_a_byte)
{
    for (uint64_t ns = 8; ns < 1ull << 32; ns += 1 + ns / 7) {
        uint64_t back = gp_wire_cost_ns(gp_wire_cost(ns));
        cr_assert(back * 16 >= ns * 15 - 16 && back * 15 <= ns * 16 + 16, "%llu ns come back as %llu",
                  (unsigned long long)ns, (unsigned long long)back);
        cr_assert_geq(gp_wire_cost(ns + ns / 7 + 1), gp_wire_cost(ns));
    }
    cr_assert_eq(gp_wire_cost_ns(0), 0);
    cr_assert_neq(gp_wire_cost(0), 0);
    cr_assert_eq(gp_wire_cost(UINT64_MAX), gp_wire_cost(UINT32_MAX));
}

Test(churn, counts_pairs_within_a_step)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t a = site(make, "a", 1), b = site(make, "b", 1);
    for (unsigned i = 0; i < 6; i++) {
        recmake_at(make, (1000 + i * 100) * MS);
        recmake_mark(make, "step");
        if (i == 5)
            break;
        recmake_at(make, (1010 + i * 100) * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 10, a);
        if (i)
            recmake_free(make, 0, GP_KIND_LINEAR, 0x2000); /* allocated in the previous step */
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x2000, 20, b);
        recmake_at(make, (1030 + i * 100) * MS);
        recmake_free(make, 0, GP_KIND_LINEAR, 0x1000);
    }
    struct gp_recording *recording = recmake_done(make);
    for (size_t i = 0; i < recording->event_count; i++) /* 1 us per allocation of a, 8 us for any other call */
        recording->events[i].cost =
            gp_wire_cost(recording->events[i].type == GP_EVENT_ALLOC && recording->events[i].site == a ? 1024 : 8192);
    struct gp_steps *steps = gp_steps_find(recording);
    cr_assert_eq(steps->source, GP_STEPS_MARKS);
    cr_assert_eq(steps->count, 5);
    cr_assert_str_eq(steps->name, "step");
    struct gp_churn *churn = analysis_churn(recording, steps);
    cr_assert_eq(churn->pairs, 5);
    cr_assert_eq(churn->allocations, 10);
    cr_assert_eq(churn->frees, 9);
    cr_assert_eq(churn->count, 1);
    cr_assert_eq(churn->sites[0].site, a);
    cr_assert_eq(churn->sites[0].bytes, 50);
    cr_assert_eq(churn->sites[0].mean_life_ns, 20 * MS);
    cr_assert_eq(churn->sites[0].driver_ns,
                 5 * (gp_wire_cost_ns(gp_wire_cost(1024)) + gp_wire_cost_ns(gp_wire_cost(8192))));
    cr_assert_eq(churn->driver_ns, churn->sites[0].driver_ns);
    cr_assert_float_eq(churn->pairs_per_step, 1, 1e-9);
    free(churn);
    free(steps);
    gp_recording_free(recording);
}

/* ---- diff ------------------------------------------------------------------------------------------------------- */

Test(diff, joins_the_sites_of_a_row)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t one = site(make, "one", 1), two = site(make, "two", 2);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 100, one);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x2000, 40, two);
    struct gp_recording *before = recmake_done(make);
    make = recmake_new(GIB);
    two = site(make, "two", 2);
    uint32_t three = site(make, "three", 3);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 90, two);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x2000, 5, three);
    recmake_alloc(make, 0, GP_KIND_MODULE, 0x3000, 1000, two); /* code is in no peak, of the device or of a row */
    struct gp_recording *after = recmake_done(make);
    const struct gp_recording *const recordings[2] = {before, after};
    const uint32_t first[] = {0, 1, 2}, second[] = {0, 2, 3}, *const rows[2] = {first, second};
    struct gp_diff *diff = gp_diff_find(recordings, rows, 4);
    cr_assert_eq(diff->count, 3);
    cr_assert(diff->rows[0].site[0] == 2 && diff->rows[0].site[1] == 1);
    cr_assert(diff->rows[0].peak_bytes[0] == 40 && diff->rows[0].peak_bytes[1] == 90);
    cr_assert(diff->rows[0].own_bytes[0] == 40 && diff->rows[0].own_bytes[1] == 90);
    cr_assert(diff->rows[1].site[0] == GP_REC_NONE && diff->rows[1].peak_bytes[1] == 5);
    cr_assert(diff->rows[2].site[1] == GP_REC_NONE && diff->rows[2].peak_bytes[0] == 100);
    free(diff);
    gp_recording_free(before);
    gp_recording_free(after);
}

/* Lines of sites with one stack in two versions of a program; 0 ends.  expected: for each line of
 * the second version the index of the line in the first that it is, or -1. */
static void expect_match(const uint32_t *first, const uint32_t *second, const int *expected)
{
    struct gp_diff_site sites[2][16];
    uint32_t lines[2][16][2], rows[2][16], counts[2] = {0, 0}, row_count;
    for (int side = 0; side < 2; side++) {
        for (const uint32_t *line = side ? second : first; *line; line++) {
            uint32_t i = counts[side]++;
            lines[side][i][0] = *line;
            lines[side][i][1] = side ? 70 : 50; /* of main, which has moved too */
            sites[side][i] = (struct gp_diff_site){.stack = "f\tmain", .lines = lines[side][i], .line_count = 2};
        }
    }
    cr_assert(gp_diff_match((const struct gp_diff_site *const[2]){sites[0], sites[1]}, counts,
                            (uint32_t *[2]){rows[0], rows[1]}, &row_count));
    for (uint32_t i = 0; i < counts[1]; i++) {
        int found = -1;
        cr_assert_lt(rows[1][i], row_count);
        for (uint32_t k = 0; k < counts[0]; k++)
            found = rows[0][k] == rows[1][i] ? (int)k : found;
        cr_assert_eq(found, expected[i], "line %u: %d, not %d", second[i], found, expected[i]);
    }
}

#define LINES(...) ((const uint32_t[]){__VA_ARGS__, 0})
#define AS(...)    ((const int[]){__VA_ARGS__})

Test(diff, matches_lines_that_moved_and_keeps_them_apart)
{
    expect_match(LINES(10, 20, 30), LINES(10, 20, 30), AS(0, 1, 2));
    expect_match(LINES(10, 11), LINES(11, 12), AS(0, 1)); /* a line was inserted above */
    expect_match(LINES(10, 20, 30), LINES(13, 23, 28, 33), AS(0, 1, -1, 2));
    expect_match(LINES(10, 20, 30), LINES(10, 30), AS(0, 2));
    expect_match(LINES(10), LINES(5, 10), AS(-1, 0));
    expect_match(LINES(10, 10, 20), LINES(20, 10, 10), AS(2, 1, 1)); /* two addresses of one line */
    expect_match(LINES(40), LINES(47), AS(0));
    expect_match(LINES(10, 20, 30, 40, 50), LINES(12, 22, 42, 52), AS(0, 1, 3, 4));
}

/* One line was inserted above a line, or below it: both moved it by one, and the memory tells which. */
Test(diff, memory_tells_the_line_that_was_inserted)
{
    const uint32_t old[] = {10}, new[] = {9, 11};
    for (int same = 0; same < 2; same++) {
        uint32_t first[1], second[2], row_count;
        struct gp_diff_site before[] = {{.stack = "f", .lines = old, .line_count = 1, .bytes = 800, .calls = 4}};
        struct gp_diff_site after[] = {{.stack = "f", .lines = &new[0], .line_count = 1, .bytes = 10, .calls = 4},
                                       {.stack = "f", .lines = &new[1], .line_count = 1, .bytes = 10, .calls = 4}};
        after[same].bytes = 1600; /* twice as many steps */
        after[same].calls = 8;
        cr_assert(gp_diff_match((const struct gp_diff_site *const[2]){before, after}, (const uint32_t[2]){1, 2},
                                (uint32_t *[2]){first, second}, &row_count));
        cr_assert_eq(first[0], second[same]);
        cr_assert_neq(first[0], second[!same]);
    }
}

#define MARKS(...) ((struct gp_diff_mark[]){__VA_ARGS__})
#define MARKS_MAX  8u

/* Things 0, 1, .. of two groups, the even and the odd ones. */
static void expect_renamed(const struct gp_diff_mark *old, size_t old_count, const struct gp_diff_mark *new,
                           size_t new_count, const uint32_t *expected, uint32_t count)
{
    struct gp_diff_mark first[MARKS_MAX], second[MARKS_MAX];
    uint32_t same[MARKS_MAX], group[MARKS_MAX];
    memcpy(first, old, old_count * sizeof(*old));
    memcpy(second, new, new_count * sizeof(*new));
    for (uint32_t i = 0; i < count; i++)
        group[i] = i % 2;
    cr_assert(gp_diff_renamed((struct gp_diff_mark *const[2]){first, second}, (const size_t[2]){old_count, new_count},
                              group, count, same));
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(same[i], expected[i], "%u: %u, not %u", i, same[i], expected[i]);
}

Test(diff, knows_a_function_by_its_memory)
{
    static const struct gp_diff_mark old[] = {{0, 7}, {0, 9}, {0, 9}, {4, 9}};
    const uint32_t itself[] = {0, 1, 2, 3, 4}, renamed[] = {0, 1, 0, 3, 4};
    expect_renamed(old, 4, MARKS({2, 9}, {2, 7}, {4, 9}), 3, renamed, 5); /* two of three */
    expect_renamed(old, 4, MARKS({2, 9}, {2, 8}, {4, 9}), 3, itself, 5);
    expect_renamed(old, 4, MARKS({3, 7}, {3, 9}, {3, 9}, {4, 9}), 4, itself, 5); /* another group */
    expect_renamed(old, 4, MARKS({2, 7}, {2, 9}, {0, 1}, {4, 9}), 4, itself, 5); /* 0 has kept its name */
    expect_renamed(old, 3, MARKS({2, 7}, {2, 9}, {4, 7}, {4, 9}, {4, 9}), 5, (const uint32_t[]){0, 1, 2, 3, 0}, 5);
    expect_renamed(old, 0, MARKS({2, 7}), 1, itself, 5);
}

/* ---- random marks ------------------------------------------------------------------------------------------------- */

#define THINGS 6u

/* How many marks the things have in common, and how many the larger one has. */
static unsigned marks_common(const struct gp_diff_mark *const marks[2], const size_t counts[2],
                             const uint32_t things[2], unsigned *most)
{
    unsigned has[2][4] = {{0}}, all[2] = {0}, common = 0;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < counts[side]; i++)
            if (marks[side][i].thing == things[side]) {
                has[side][marks[side][i].mark]++;
                all[side]++;
            }
    for (unsigned mark = 0; mark < 4; mark++)
        common += has[0][mark] < has[1][mark] ? has[0][mark] : has[1][mark];
    *most = all[0] > all[1] ? all[0] : all[1];
    return common;
}

/* Takes the pair that is most alike, of two alike ones that of more marks, of the lower numbers; then the next one. */
static void renamed_slowly(const struct gp_diff_mark *const marks[2], const size_t counts[2], const uint32_t *group,
                           uint32_t *same)
{
    unsigned on[THINGS] = {0};
    for (uint32_t i = 0; i < THINGS; i++)
        same[i] = i;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < counts[side]; i++)
            on[marks[side][i].thing] |= 1u << side;
    for (;;) {
        uint32_t best[2] = {0, 0};
        unsigned best_common = 0, best_most = 1;
        for (uint32_t old = 0; old < THINGS; old++)
            for (uint32_t new = 0; new < THINGS; new ++) {
                const uint32_t pair[2] = {old, new};
                unsigned most, common = marks_common(marks, counts, pair, &most);
                if (on[old] != 1 || on[new] != 2 || group[old] != group[new] || common * 2 < most)
                    continue;
                unsigned more = common * best_most, less = best_common * most;
                if (more > less || (more == less && common > best_common)) {
                    memcpy(best, pair, sizeof(pair));
                    best_common = common, best_most = most;
                }
            }
        if (!best_common)
            return;
        on[best[0]] = on[best[1]] = 3;
        same[best[1]] = best[0];
    }
}

Test(diff, the_most_alike_are_renamed)
{
    uint64_t seed = 5;
    unsigned renamed = 0;
    for (unsigned round = 0; round < 3000; round++) {
        struct gp_diff_mark marks[2][16];
        size_t counts[2] = {random_below(&seed, 16), random_below(&seed, 16)};
        uint32_t group[THINGS], same[THINGS], right[THINGS];
        for (uint32_t i = 0; i < THINGS; i++)
            group[i] = random_below(&seed, 2);
        for (int side = 0; side < 2; side++)
            for (size_t i = 0; i < counts[side]; i++)
                marks[side][i] = (struct gp_diff_mark){
                    random_below(&seed, 8) ? random_below(&seed, 3) + 3 * (unsigned)side : random_below(&seed, THINGS),
                    random_below(&seed, 4)};
        renamed_slowly((const struct gp_diff_mark *const[2]){marks[0], marks[1]}, counts, group, right);
        cr_assert(gp_diff_renamed((struct gp_diff_mark *const[2]){marks[0], marks[1]}, counts, group, THINGS, same));
        for (uint32_t i = 0; i < THINGS; i++) {
            cr_assert_eq(same[i], right[i], "round %u: %u was %u, not %u", round, i, right[i], same[i]);
            renamed += same[i] != i;
        }
    }
    cr_assert_gt(renamed, 1000);
}

/* For each of `second` the index of the path in `first` that is the same file, or -1; NULL ends both. */
static void expect_files(const char *const *first, const char *const *second, const int *expected)
{
    uint32_t counts[2] = {0, 0}, one[16], other[16];
    while (first[counts[0]])
        counts[0]++;
    while (second[counts[1]])
        counts[1]++;
    cr_assert(gp_diff_files((const char *const *const[2]){first, second}, counts, (uint32_t *const[2]){one, other}));
    for (uint32_t i = 0; i < counts[1]; i++) {
        int found = -1;
        for (uint32_t k = 0; k < counts[0]; k++)
            found = one[k] == other[i] ? (int)k : found;
        cr_assert_eq(found, expected[i], "%s: %d, not %d", second[i], found, expected[i]);
        for (uint32_t k = 0; k < i; k++)
            cr_assert_neq(other[k], other[i]);
    }
}

#define PATHS(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(diff, finds_files_in_another_folder)
{
    expect_files(PATHS("/a/train.py"), PATHS("/a/train.py"), AS(0));
    expect_files(PATHS("/a/train.py", "/a/lib/gpu.py"), PATHS("/b/c/lib/gpu.py", "/b/c/train.py"), AS(1, 0));
    /* Files of one name go to those with the same folders; the same path goes first. */
    expect_files(PATHS("/p/one/__init__.py", "/p/two/__init__.py", "/p/__init__.py"),
                 PATHS("/q/two/__init__.py", "/q/one/__init__.py"), AS(1, 0));
    expect_files(PATHS("/p/x/u.py", "/q/x/u.py"), PATHS("/q/x/u.py", "/r/x/u.py"), AS(1, 0));
    expect_files(PATHS("/a/train.py"), PATHS("/a/retrain.py", "/a/rain.py", "/train.py/x"), AS(-1, -1, -1));
    expect_files(PATHS("train.py"), PATHS("/x/train.py", "/y/train.py"), AS(0, -1));
    expect_files(PATHS("", "/a"), PATHS("/a", ""), AS(1, 0));
    expect_files((const char *const[]){NULL}, PATHS("/a"), AS(-1));
}

Test(diff, does_not_match_other_stacks)
{
    uint32_t line[] = {7, 8}, first[2], second[1], row_count;
    struct gp_diff_site before[] = {{"f\tmain", line, 2, 0, 0}, {"g\tmain", line, 2, 0, 0}},
                        after[] = {{"f\tmain\tmain", line, 1, 0, 0}};
    cr_assert(gp_diff_match((const struct gp_diff_site *const[2]){before, after}, (const uint32_t[2]){2, 1},
                            (uint32_t *[2]){first, second}, &row_count));
    cr_assert(row_count == 3 && first[0] != first[1] && second[0] != first[0] && second[0] != first[1]);
    cr_assert(gp_diff_match((const struct gp_diff_site *const[2]){NULL, NULL}, (const uint32_t[2]){0, 0},
                            (uint32_t *[2]){NULL, NULL}, &row_count));
    cr_assert_eq(row_count, 0);
}
