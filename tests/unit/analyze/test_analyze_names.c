/* SPDX-License-Identifier: MIT
 *
 * test_analyze_names.c: the steps that marks and ranges make: which name is the step, how it is written, and the limits of
 * steps that a user names.
 */
#include <analyze/analyze.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked_memory.h"
#include "train_fixture.h"

/* Six times: the mark `few`, then three times the mark `many`; every 10 ms. */
static struct gp_recording *marks_of(const char *few, const char *many)
{
    struct recmake *make = recmake_new(GIB);
    uint64_t at = 1000 * MS;
    for (unsigned i = 0; i < 24; i++) {
        char text[300];
        snprintf(text, sizeof(text), i % 4 ? many : few, i);
        recmake_at(make, at += 10 * MS);
        recmake_mark(make, text);
    }
    return recmake_done(make);
}

/* Of two names that repeat evenly the one that tells that it is a step; without one, the more frequent one. */
Test(names, that_tell_of_a_step)
{
    static const struct {
        const char *few, *many;
        bool few_is_it;
        const char *name;
    } cases[] = {{"epoch", "layer", false, "layer"},
                 {"step", "layer", true, "step"},
                 {"step %u", "layer %u", true, "step"},
                 {"my_Stepper", "layer", true, "my_Stepper"},
                 {"iteration #%u", "layer", true, "iteration"},
                 {"ITER_%u", "layer", true, "ITER"},
                 {"batch", "layer", true, "batch"},
                 {"batch %u", "layer", true, "batch"},
                 {"MicroBatch:%u", "layer", true, "MicroBatch"},
                 {"batch_norm", "layer", false, "layer"},
                 {"atch", "layer", false, "layer"},
                 {"xatch", "layer", false, "layer"},
                 {"ste", "layer", false, "layer"},
                 {"step", "step_inner", false, "step_inner"},
                 {"nvtx:step", "layer", false, "layer"}, /* marks come first */
                 {"nvtx:step %u", "nvtx:layer", true, "step"},
                 {"/step", "layer", false, "layer"},
                 {"", "layer", false, "layer"}};
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct gp_recording *recording = marks_of(cases[c].few, cases[c].many);
        struct gp_steps *steps = gp_steps_find(recording);
        cr_expect_str_eq(steps->name, cases[c].name, "%s and %s: %s", cases[c].few, cases[c].many, steps->name);
        cr_expect_eq(steps->count, cases[c].few_is_it ? 5 : 17, "%s: %u steps", cases[c].few, steps->count);
        cr_expect_eq(steps->source, strncmp(cases[c].many, "nvtx:", 5) == 0 ? GP_STEPS_NVTX : GP_STEPS_MARKS);
        cr_expect_eq(steps->bounds_ns[0], (cases[c].few_is_it ? 1010 : 1020) * MS);
        free(steps);
        gp_recording_free(recording);
    }
}

/* Marks `name` at these times, in ms; ends with 0. */
static struct gp_recording *marked(const char *name, const unsigned *times)
{
    struct recmake *make = recmake_new(GIB);
    recmake_at(make, 1000 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, MIB, 0);
    for (; *times; times++) {
        recmake_at(make, *times * MS);
        recmake_mark(make, name);
    }
    return recmake_done(make);
}

/* Five marks are the fewest of a beat; two are enough where nothing else repeats. */
Test(names, of_few_marks)
{
    static const struct {
        unsigned times[8], count;
        uint64_t length_ns;
        enum gp_step_source source;
    } cases[] = {{{1010, 1020, 1030, 1040, 1050, 0}, 4, 10 * MS, GP_STEPS_MARKS},
                 {{1010, 1020, 1030, 1050, 0}, 3, 10 * MS, GP_STEPS_MARKS},
                 {{1010, 1020, 1050, 0}, 2, 30 * MS, GP_STEPS_MARKS},
                 {{1010, 1020, 0}, 1, 10 * MS, GP_STEPS_MARKS},
                 {{1019, 0}, 20, MS, GP_STEPS_TIME}};
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct gp_recording *recording = marked("turn", cases[c].times);
        struct gp_steps *steps = gp_steps_find(recording);
        cr_expect(steps->count == cases[c].count && steps->source == cases[c].source &&
                      steps->length_ns == cases[c].length_ns,
                  "case %u: %u steps of %llu ns, source %d", c, steps->count, (unsigned long long)steps->length_ns,
                  (int)steps->source);
        free(steps);
        gp_recording_free(recording);
    }
}

/* A name has room for 39 bytes, and is cut between two characters. */
Test(names, are_cut)
{
    static const struct {
        const char *name, *cut;
    } cases[] = {
        {"abcdefghijklmnopqrstuvwxyzabcdefghijkl", "abcdefghijklmnopqrstuvwxyzabcdefghijkl"},
        {"abcdefghijklmnopqrstuvwxyzabcdefghijklm", "abcdefghijklmnopqrstuvwxyzabcdefghijklm"},
        {"abcdefghijklmnopqrstuvwxyzabcdefghijklmn", "abcdefghijklmnopqrstuvwxyzabcdefghijklm"},
        {"abcdefghijklmnopqrstuvwxyzabcdefghijklmn 12", "abcdefghijklmnopqrstuvwxyzabcdefghijklm"},
        {"abcdefghijklmnopqrstuvwxyzabcdefghijkl\xc3\xa4n", "abcdefghijklmnopqrstuvwxyzabcdefghijkl"},
        {"abcdefghijklmnopqrstuvwxyzabcdefghijk\xc3\xa4n", "abcdefghijklmnopqrstuvwxyzabcdefghijk\xc3\xa4"},
        {"abcdefghijklmnopqrstuvwxyzabcdefghij\xe2\x82\xacn", "abcdefghijklmnopqrstuvwxyzabcdefghij\xe2\x82\xac"},
        {"abcdefghijklmnopqrstuvwxyzabcdefghijk\xe2\x82\xacn", "abcdefghijklmnopqrstuvwxyzabcdefghijk"},
        {"turn 0123456789 #:_-", "turn"},
        {"1turn2", "1turn"}};
    static const unsigned times[] = {1010, 1020, 1030, 1040, 1050, 0};
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct gp_recording *recording = marked(cases[c].name, times);
        struct gp_steps *steps = gp_steps_find(recording), *chosen = NULL;
        struct gp_step_name name;
        cr_expect_str_eq(steps->name, cases[c].cut);
        cr_assert_eq(gp_steps_choose(recording, cases[c].name, &chosen), 0);
        cr_expect_str_eq(chosen->name, cases[c].cut);
        cr_expect(chosen->count == 4 && chosen->source == GP_STEPS_MARKS);
        cr_assert(gp_steps_name(recording, 0, &name) && !gp_steps_name(recording, 1, &name));
        cr_expect(name.count == 5 && !name.nvtx);
        cr_expect_eq(strncmp(name.name, cases[c].cut, strlen(cases[c].cut)), 0);
        free(steps);
        free(chosen);
        gp_recording_free(recording);
    }
}

/* Marks are preferred to ranges, and a name as it is written to one without its number. */
Test(names, that_a_user_gives)
{
    static const struct {
        const char *text;
        int rc;
        enum gp_step_source source;
        unsigned count;
        uint64_t first_ns;
    } cases[] = {{"a", 0, GP_STEPS_MARKS, 2, 1010 * MS},
                 {"a 1", 0, GP_STEPS_MARKS, 1, 1020 * MS},
                 {"a 2", 0, GP_STEPS_MARKS, 4, 1010 * MS},
                 {"b", 0, GP_STEPS_NVTX, 2, 1060 * MS},
                 {"b 7", 0, GP_STEPS_NVTX, 2, 1060 * MS},
                 {"c", -ENOENT, 0, 0, 0},
                 {"c 1", -ENOENT, 0, 0, 0},
                 {"nvtx:b", -ENOENT, 0, 0, 0},
                 {"/b", -ENOENT, 0, 0, 0},
                 {"ab", -ENOENT, 0, 0, 0},
                 {"d", 0, GP_STEPS_MARKS, 1, 1105 * MS}};
    static const struct {
        unsigned at;
        const char *name;
    } marks[] = {{1010, "a"},         {1020, "a 1"},      {1030, "a"},       {1040, "a 1"},
                 {1050, "a"},         {1060, "nvtx:b"},   {1070, "/nvtx:b"}, {1080, "nvtx:b 3"},
                 {1090, "/nvtx:b 3"}, {1100, "nvtx:b 3"}, {1101, "c 1"},     {1102, "nvtx:d"},
                 {1103, "nvtx:d"},    {1104, "nvtx:d"},   {1105, "d"},       {1106, "d"}};
    struct recmake *make = recmake_new(GIB);
    for (unsigned i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        recmake_at(make, marks[i].at * MS);
        recmake_mark(make, marks[i].name);
    }
    struct gp_recording *recording = recmake_done(make);
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct gp_steps *steps = NULL;
        cr_expect_eq(gp_steps_choose(recording, cases[c].text, &steps), cases[c].rc, "%s", cases[c].text);
        if (steps)
            cr_expect(steps->source == cases[c].source && steps->count == cases[c].count &&
                          steps->bounds_ns[0] == cases[c].first_ns,
                      "%s: %u steps, source %d", cases[c].text, steps->count, (int)steps->source);
        free(steps);
    }
    static const struct gp_step_name names[] = {
        {"a", false, 3}, {"a", false, 2}, {"d", false, 2}, {"b", true, 2}, {"d", true, 3}}; /* "a " is another one */
    struct gp_step_name name;
    for (unsigned i = 0; i < 6; i++) {
        cr_assert_eq(gp_steps_name(recording, i, &name), i < 5, "%u", i);
        cr_expect(i == 5 || (strcmp(name.name, names[i].name) == 0 && name.nvtx == names[i].nvtx &&
                             name.count == names[i].count),
                  "%u: %s %u", i, name.name, name.count);
    }
    gp_recording_free(recording);
}

/* Equal stretches, as many as fit, up to a million. */
Test(names, that_are_durations)
{
    static const unsigned times[] = {1010, 0};
    static const struct {
        const char *text;
        int rc;
        unsigned count;
    } cases[] = {{"11ms", 0, 1},      {"11000001ns", 0, 0}, {"5500us", 0, 2},
                 {"5501us", 0, 1},    {"11ns", 0, 1000000}, {"10ns", -ERANGE, 0},
                 {"0ns", -ERANGE, 0}, {"1ns", -ERANGE, 0},  {"no duration", -ENOENT, 0}};
    struct gp_recording *recording = marked("turn", times);
    cr_assert_eq(recording->end_ns - recording->begin_ns, 11 * MS);
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct gp_steps *steps = NULL;
        cr_expect_eq(gp_steps_choose(recording, cases[c].text, &steps), cases[c].rc, "%s", cases[c].text);
        cr_expect(!steps || steps->count == cases[c].count, "%s: %u steps", cases[c].text, steps->count);
        cr_expect(!steps || steps->count || !steps->length_ns, "no steps have no length");
        for (unsigned i = 0; steps && i <= steps->count; i++)
            cr_assert_eq(steps->bounds_ns[i],
                         recording->begin_ns + (cases[c].count == 1000000 ? 11 * i
                                                                          : strtoull(cases[c].text, NULL, 10) *
                                                                                (strstr(cases[c].text, "ms")   ? MS
                                                                                 : strstr(cases[c].text, "us") ? 1000
                                                                                                               : 1) *
                                                                                i));
        free(steps);
    }
    gp_recording_free(recording);
}

/* A recording that repeats nothing has 20 stretches, or one if it is too short for them. */
Test(names, of_none)
{
    for (unsigned span = 0; span < 50; span++) {
        struct recmake *make = recmake_new(GIB);
        recmake_at(make, 1000 * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, MIB, 0);
        struct gp_recording *recording = recmake_done(make);
        recording->end_ns = recording->begin_ns + span;
        struct gp_steps *steps = gp_steps_find(recording);
        uint64_t lasts = span ? span : 1;
        cr_assert_eq(steps->count, span < 20 ? 1 : 20, "%u ns: %u steps", span, steps->count);
        cr_assert(steps->source == GP_STEPS_TIME && !steps->name[0]);
        for (unsigned i = 0; i <= steps->count; i++)
            cr_assert_eq(steps->bounds_ns[i], recording->begin_ns + lasts * i / steps->count);
        free(steps);
        gp_recording_free(recording);
    }
}

/* The median of the lengths, of an even number the longer one of the two in the middle. */
Test(names, length_of_a_step)
{
    static const struct {
        unsigned times[8];
        uint64_t length_ns;
    } cases[] = {{{1010, 1020, 1050, 1060, 1100, 0}, 30 * MS},
                 {{1010, 1020, 1050, 1060, 1100, 1101, 0}, 10 * MS},
                 {{1010, 1012, 1013, 1019, 1024, 0}, 5 * MS}};
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct gp_recording *recording = marked("turn", cases[c].times);
        struct gp_steps *steps = NULL;
        cr_assert_eq(gp_steps_choose(recording, "turn", &steps), 0);
        cr_expect_eq(steps->length_ns, cases[c].length_ns, "case %u: %llu", c, (unsigned long long)steps->length_ns);
        free(steps);
        gp_recording_free(recording);
    }
}

/* ---- moments ------------------------------------------------------------------------------------------------------- */

Test(names, of_moments)
{
    static const unsigned times[] = {1010, 1020, 0};
    static const struct {
        const char *text;
        int rc;
        uint64_t after_ns;
    } cases[] = {{"turn", 0, 10 * MS},
                 {"0s", 0, 0},
                 {"21ms", 0, 21 * MS},
                 {"21000001ns", -ERANGE, 0},
                 {"1ns", 0, 1},
                 {"turn 1", -ENOENT, 0},
                 {"", -ENOENT, 0},
                 {"nvtx:turn", -ENOENT, 0},
                 {"tur", -ENOENT, 0},
                 {"1h", -ERANGE, 0},
                 {"99999999999h", -ERANGE, 0}};
    struct gp_recording *recording = marked("turn", times);
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        uint64_t moment = 7;
        int rc = gp_recording_moment(recording, cases[c].text, &moment);
        cr_expect_eq(rc, cases[c].rc, "%s: %d", cases[c].text, rc);
        cr_expect_eq(moment, rc ? 7 : recording->begin_ns + cases[c].after_ns, "%s", cases[c].text);
    }
    gp_recording_free(recording);
    recording = marked("nvtx:turn", times);
    uint64_t moment;
    cr_expect(gp_recording_moment(recording, "turn", &moment) == 0 && moment == 1010 * MS);
    cr_expect(gp_recording_moment(recording, "nvtx:turn", &moment) == 0 && moment == 1010 * MS);
    gp_recording_free(recording);
}
