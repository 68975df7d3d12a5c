/* SPDX-License-Identifier: MIT
 * test_phases.c: the phases of recordings, and the command. */
#include <analyze/flow.h>
#include <analyze/report.h>
#include <lib/recsave.h>

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"
#include <unit/cmd/cli.h>

static void say(struct recmake *make, uint64_t ms, const char *name)
{
    recmake_at(make, ms * MS);
    recmake_mark(make, name);
}

static struct gp_phases *find(const struct gp_recording *r, uint32_t device)
{
    struct gp_flow *flow = gp_flow_new(r);
    struct gp_steps *steps = gp_steps_find(r);
    struct gp_phases *phases = gp_phases_find(flow, steps, NULL, device);
    cr_assert(phases);
    free(steps);
    gp_flow_free(flow);
    return phases;
}

static const struct gp_phase *named(const struct gp_phases *phases, const char *name)
{
    for (uint32_t i = 0; i < phases->count; i++) {
        if (strcmp(phases->phases[i].name, name) == 0)
            return &phases->phases[i];
    }
    cr_assert_fail("no phase %s", name);
    return NULL;
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

Test(phases, ranges_nest_and_repeat)
{
    struct recmake *make = recmake_new(GIB);
    say(make, 1001, "nvtx:load 1");
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 100, 0);
    say(make, 1002, "nvtx:convert");
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x2000, 50, 0);
    recmake_free(make, 0, GP_KIND_LINEAR, 0x2000);
    say(make, 1003, "/nvtx:convert");
    say(make, 1004, "/nvtx:load 1");
    say(make, 1005, "nvtx:load 2");
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x3000, 7, 0);
    say(make, 1006, "/nvtx:"); /* an end without a name ends the innermost range */
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x4000, 1000, 0);
    say(make, 1007, "nvtx:never ended");
    struct gp_recording *r = recmake_done(make);
    struct gp_phases *phases = find(r, 0);
    cr_assert_eq(phases->source, GP_PHASES_NVTX);
    cr_assert_eq(phases->count, 3);
    const struct gp_phase *load = named(phases, "load"), *convert = named(phases, "convert");
    cr_expect_eq(load->count, 2);
    cr_expect_eq(load->peak_bytes, 150);
    cr_expect_eq(load->left_bytes, 107);
    cr_expect_eq(load->duration_ns, 4 * MS);
    cr_expect_eq(convert->depth, 1);
    cr_expect_eq(convert->begin_bytes, 100);
    cr_expect_eq(convert->left_bytes, 0);
    cr_expect_eq(named(phases, "never ended")->begin_bytes, 1107);
    gp_phases_free(phases);
    gp_recording_free(r);
}

/* What the phase's parts of a site add up to: until its highest peak, and until the end of that occurrence. */
static void expect_parts(const struct gp_phase *phase, uint32_t site, int64_t added, int64_t left)
{
    int64_t is_added = 0, is_left = 0;
    for (uint32_t i = 0; i < phase->part_count; i++) {
        is_added += phase->parts[i].site == site ? phase->parts[i].added_bytes : 0;
        is_left += phase->parts[i].site == site ? phase->parts[i].left_bytes : 0;
    }
    cr_expect(is_added == added && is_left == left, "%s, site %u: %lld and %lld", phase->name, site,
              (long long)is_added, (long long)is_left);
}

Test(phases, marks_end_each_other_and_the_highest_occurrence_has_the_parts)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t x = site(make, "x", 1), y = site(make, "y", 2);
    say(make, 1001, "a 1");
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 100, x);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x2000, 50, y);
    recmake_free(make, 0, GP_KIND_LINEAR, 0x2000);
    say(make, 1002, "b");
    recmake_free(make, 0, GP_KIND_LINEAR, 0x1000);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x3000, 30, y);
    say(make, 1003, "a 2");
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x4000, 200, x);
    struct gp_recording *r = recmake_done(make);
    struct gp_phases *phases = find(r, 0);
    cr_assert(phases->source == GP_PHASES_MARKS && phases->count == 2);
    const struct gp_phase *a = named(phases, "a"), *b = named(phases, "b");
    cr_expect(a->count == 2 && a->peak_bytes == 230 && a->begin_bytes == 30 && a->end_bytes == 230);
    cr_expect_eq(a->left_bytes, 100 + 200);
    expect_parts(a, x, 200, 200);
    expect_parts(a, y, 0, 0);
    cr_expect(b->count == 1 && b->peak_bytes == 100 && b->begin_bytes == 100 && b->end_bytes == 30);
    cr_expect_eq(b->left_bytes, -70);
    expect_parts(b, x, 0, -100);
    expect_parts(b, y, 0, 30);
    gp_phases_free(phases);
    gp_recording_free(r);
}

Test(phases, many_names_are_counted)
{
    struct recmake *make = recmake_new(GIB);
    for (unsigned i = 0; i < GP_PHASES_MOST + 9; i++) {
        char name[16] = {(char)('a' + i % 26), (char)('a' + i / 26), '\0'};
        say(make, 1000 + i, name);
    }
    struct gp_recording *r = recmake_done(make);
    struct gp_phases *phases = find(r, 0);
    cr_expect_eq(phases->count, GP_PHASES_MOST);
    cr_expect_eq(phases->left_out, 9);
    gp_phases_free(phases);
    gp_recording_free(r);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static char *saved(const struct gp_recording *r)
{
    static char path[128];
    snprintf(path, sizeof(path), "/tmp/gpuprof-test-phases-%d", (int)getpid());
    cr_assert_eq(recsave(r, path), 0);
    return path;
}

Test(phases_command, says_how_to_add_marks, .init = find_binary)
{
    uint32_t leaker;
    struct gp_recording *r = train(&(struct training){.steps = 12, .stacks = true, .seed = 3}, &leaker);
    char *path = saved(r);
    expect(run("phases %s", path), 0, "gpuprof_mark()", NULL);
    expect(run("phases %s", path), 0, "before the repeats", NULL);
    expect(run("phases %s", path), 0, "used for                 at the peak     at most  sure  reason", NULL);
    char *text = run("phases %s", path).out;
    struct result result = run("phases %s --json", path);
    json_t *top = json_loads(result.out, 0, NULL), *row;
    const json_t *one = json_array_get(json_object_get(top, "devices"), 0);
    json_int_t sum = 0, peak = 0;
    size_t i;
    json_array_foreach(json_object_get(one, "uses"), i, row)
    {
        const char *use = json_string_value(json_object_get(row, "use"));
        sum += json_integer_value(json_object_get(row, "at_peak_bytes"));
        cr_expect_eq(json_real_value(json_object_get(row, "confidence")) == 0, strcmp(use, "unknown") == 0, "%s", use);
        cr_expect(json_string_length(json_object_get(row, "reason")) > 0);
        cr_expect(strstr(text, json_string_value(json_object_get(row, "reason"))), "no row of %s in:\n%s", use, text);
    }
    json_array_foreach(json_object_get(one, "phases"), i, row)
    {
        json_int_t bytes = json_integer_value(json_object_get(row, "peak_bytes")), held = 0;
        const char *name;
        json_t *use;
        json_object_foreach(json_object_get(row, "uses"), name, use) held +=
            json_integer_value(json_object_get(use, "at_peak_bytes"));
        cr_expect_eq(held, bytes, "the uses of a phase add up to its peak");
        peak = bytes > peak ? bytes : peak;
    }
    cr_expect_eq(sum, peak);
    json_decref(top);
    expect(run("phases"), 2, NULL, "no recording given");
    unlink(path);
    gp_recording_free(r);
}

Test(phases_command, reports_nothing_of_a_program_without_memory, .init = find_binary)
{
    struct recmake *make = recmake_new(GIB);
    say(make, 1001, "alone");
    struct gp_recording *r = recmake_done(make);
    char *path = saved(r);
    expect(run("phases %s", path), 0, "no memory was held", NULL);
    struct result result = run("phases %s --json", path);
    json_t *top = json_loads(result.out, 0, NULL);
    cr_assert(top);
    cr_expect(json_is_null(json_object_get(top, "source")));
    cr_expect_eq(json_array_size(json_object_get(top, "devices")), 0);
    json_decref(top);
    unlink(path);
    gp_recording_free(r);
}

Test(phases_command, has_each_device_in_json, .init = find_binary)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t second = recmake_device(make, 1, GIB), place = site(make, "load_weights", 3);
    say(make, 1100, "start");
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10000, 4096, place);
    say(make, 1200, "run");
    recmake_alloc(make, second, GP_KIND_LINEAR, 0x20000, 8192, place);
    struct gp_recording *r = recmake_done(make);
    char *path = saved(r);
    struct result result = run("phases %s --json", path);
    json_t *top = json_loads(result.out, 0, NULL), *devices = json_object_get(top, "devices");
    cr_assert(top, "%s", result.out);
    cr_expect_str_eq(json_string_value(json_object_get(top, "schema")), "gpuprof.phases/1");
    cr_expect_str_eq(json_string_value(json_object_get(top, "source")), "marks");
    cr_assert_eq(json_array_size(devices), 2);
    for (size_t d = 0; d < 2; d++) {
        json_t *phase = json_array_get(json_object_get(json_array_get(devices, d), "phases"), d);
        json_t *part = json_array_get(json_object_get(phase, "parts"), 0);
        cr_expect_str_eq(json_string_value(json_object_get(phase, "name")), d ? "run" : "start");
        cr_expect_eq(json_integer_value(json_object_get(phase, "added_bytes")), d ? 8192 : 4096);
        cr_expect_eq(json_integer_value(json_object_get(phase, "left_bytes")), d ? 8192 : 4096);
        cr_expect_eq(json_integer_value(json_object_get(phase, "begin_ns")),
                     d ? 200 * (json_int_t)MS : 100 * (json_int_t)MS);
        cr_expect_str_eq(json_string_value(json_object_get(part, "function")), "load_weights");
        cr_expect_eq(json_integer_value(json_object_get(part, "added_bytes")), d ? 8192 : 4096);
    }
    json_decref(top);
    unlink(path);
    gp_recording_free(r);
}
