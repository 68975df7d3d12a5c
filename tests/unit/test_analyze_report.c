/* SPDX-License-Identifier: MIT
 * test_analyze_report.c: the document of a recording, its text, and the commands that print
 * them. */
#include <sys/resource.h>
#include <write/reportformat.h>

#include "cli.h"
#include "train_fixture.h"

static struct gp_recording *recording_of(unsigned steps, bool leak)
{
    uint32_t leaker;
    return train(
        &(struct training){.steps = steps, .marks = true, .leak = leak, .noise = true, .stacks = true, .seed = 3},
        &leaker);
}

static json_t *document_of(const struct gp_recording *r)
{
    struct gp_symbols *symbols;
    struct gp_symbol_source source = {.sites = r->sites,
                                      .frames = r->frames,
                                      .modules = r->modules,
                                      .strings = r->strings,
                                      .site_count = r->site_count,
                                      .frame_count = r->frame_count,
                                      .module_count = r->module_count,
                                      .root = ""};
    cr_assert_eq(gp_symbols_new(&symbols, &source), 0);
    struct gp_report report;
    cr_assert_eq(gp_report_init(&report, r, symbols, "x\xff.gpuprof"), 0);
    cr_assert_eq(gp_report_run(&report, GP_REPORT_DOCUMENT, GP_DETAIL_PLOT), 0);
    json_t *document = gp_report_document(&report);
    cr_assert(document);
    gp_report_fini(&report);
    gp_symbols_free(symbols);
    return document;
}

static const json_t *at(const json_t *object, const char *path)
{
    char copy[128], *state = copy, *word;
    snprintf(copy, sizeof(copy), "%s", path);
    while ((word = strsep(&state, "/")))
        object = json_is_array(object) ? json_array_get(object, (size_t)atoi(word)) : json_object_get(object, word);
    cr_assert(object, "no %s", path);
    return object;
}

static int64_t number(const json_t *object, const char *path)
{
    cr_assert(json_is_integer(at(object, path)), "%s", path);
    return json_integer_value(at(object, path));
}

Test(report, document_has_every_field_and_adds_up)
{
    static const char *const fields[] = {"schema",
                                         "recording/file",
                                         "recording/pid",
                                         "recording/comm",
                                         "recording/command_line",
                                         "recording/host",
                                         "recording/source",
                                         "recording/allocator",
                                         "recording/driver",
                                         "recording/begin_unix_ns",
                                         "recording/seconds",
                                         "recording/complete",
                                         "recording/from_start",
                                         "recording/tried",
                                         "recording/delivered",
                                         "recording/dropped",
                                         "recording/lost/ring_full",
                                         "recording/stacks",
                                         "devices/0/uuid",
                                         "devices/0/name",
                                         "devices/0/total_bytes",
                                         "devices/0/allocated_peak_ns",
                                         "devices/0/allocated_end_bytes",
                                         "devices/0/reserved_peak_bytes",
                                         "devices/0/reserved_end_bytes",
                                         "devices/0/series/allocated/0/3",
                                         "devices/0/series/reserved/0/3",
                                         "devices/0/series/kinds/linear/0/3",
                                         "devices/0/peak/time_ns",
                                         "devices/0/peak/parts/0/site",
                                         "devices/0/peak/parts/0/kind",
                                         "devices/0/peak/parts/0/count",
                                         "devices/0/fragmentation/utilisation",
                                         "devices/0/fragmentation/external",
                                         "devices/0/fragmentation/internal",
                                         "devices/0/fragmentation/has_segments",
                                         "devices/0/fragmentation/points/0/4",
                                         "devices/0/segments/0/address",
                                         "devices/0/segments/0/blocks/0/3",
                                         "devices/0/lifetimes/complete",
                                         "devices/0/lifetimes/blocks",
                                         "devices/0/lifetimes/rows/0/4",
                                         "devices/0/moments",
                                         "devices/0/sizes/0/from_bytes",
                                         "devices/0/bill/process_bytes",
                                         "devices/0/bill/rows/0/what",
                                         "sites/1/name",
                                         "sites/1/frames/0/function",
                                         "sites/1/frames/0/inlined",
                                         "sites/1/device",
                                         "sites/1/kind",
                                         "sites/1/calls",
                                         "steps/source",
                                         "steps/name",
                                         "steps/count",
                                         "steps/bounds_ns/0",
                                         "leaks/why",
                                         "leaks/suspects/0/rank",
                                         "leaks/suspects/0/function",
                                         "leaks/suspects/0/live_bytes_at_bounds/0",
                                         "leaks/suspects/0/oldest_seconds",
                                         "churn/pairs",
                                         "churn/sites/0/mean_life_ns",
                                         "marks/0/name",
                                         "ooms",
                                         "oom"};
    struct gp_recording *recording = recording_of(20, true);
    json_t *document = document_of(recording);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        at(document, fields[i]);
    int64_t sum = 0, by_site = 0, live = 0, high = 0;
    size_t i;
    const json_t *row;
    json_array_foreach(at(document, "devices/0/peak/parts"), i, row) sum += number(row, "bytes");
    json_array_foreach(at(document, "sites"), i, row)
    {
        by_site += number(row, "at_peak_bytes");
        live += number(row, "live_bytes");
    }
    json_array_foreach(at(document, "devices/0/series/allocated"), i, row)
    {
        int64_t value = number(row, "2");
        high = value > high ? value : high;
    }
    cr_assert_leq(i, 2000);
    cr_assert_eq(sum, number(document, "devices/0/allocated_peak_bytes"));
    cr_assert_eq(sum, by_site);
    cr_assert_eq(sum, high);
    cr_assert_eq(live, number(document, "devices/0/allocated_end_bytes"));
    cr_assert_eq(number(document, "leaks/suspects/0/line"), 77);
    cr_assert_eq(json_array_size(at(document, "leaks/suspects/0/live_bytes_at_bounds")), 21);
    cr_assert_eq(json_array_size(at(document, "steps/bounds_ns")), 21);
    json_decref(document);
    gp_recording_free(recording);
}

Test(report, of_an_empty_recording_is_a_document_too)
{
    struct gp_recording *recording = recmake_done(recmake_new(GIB));
    json_t *document = document_of(recording);
    cr_assert_eq(number(document, "devices/0/allocated_peak_bytes"), 0);
    cr_assert_eq(json_array_size(at(document, "leaks/suspects")), 0);
    json_decref(document);
    gp_recording_free(recording);
}

/* A recording with more segments, marks and blocks than the limits: the document counts those that
 * it leaves out. */
Test(report, leaves_out_and_says_how_much)
{
    struct recmake *make = recmake_new(GIB);
    for (unsigned i = 0; i < 30000; i++) {
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000000ull * (i + 1), 1 + i, 0);
        recmake_mark(make, "m");
    }
    struct gp_recording *recording = recmake_done(make);
    json_t *document = document_of(recording);
    cr_assert_eq(json_array_size(at(document, "devices/0/segments")), 2000);
    cr_assert_eq(number(document, "devices/0/segments_left_out"), 28000);
    cr_assert_eq(number(document, "devices/0/segments/0/bytes"), 28001); /* the largest ones */
    cr_assert_eq(number(document, "devices/0/blocks_left_out"), 28000);
    cr_assert_eq(json_array_size(at(document, "marks")), 10000);
    json_decref(document);
    gp_recording_free(recording);
}

/* ---- commands --------------------------------------------------------------------------------------------------- */

static char leaky[64], sound[64];

static void files(void)
{
    struct gp_recording *one = recording_of(20, true), *other = recording_of(20, false);
    snprintf(leaky, sizeof(leaky), "/tmp/test_analyze_%d_leaky", (int)getpid());
    snprintf(sound, sizeof(sound), "/tmp/test_analyze_%d_sound", (int)getpid());
    cr_assert_eq(gp_recording_write(one, leaky), 0);
    cr_assert_eq(gp_recording_write(other, sound), 0);
    gp_recording_free(one);
    gp_recording_free(other);
}

static void files_gone(void)
{
    unlink(leaky);
    unlink(sound);
}

TestSuite(commands, .init = files, .fini = files_gone);

Test(commands, leaks_names_the_branch)
{
    expect(run("leaks %s", leaky), 0, "  1  ", NULL);
    expect(run("leaks %s", leaky), 0, "inner_branch (model.py:77)", NULL);
    expect(run("leaks %s --error-exitcode 9", leaky), 9, NULL, NULL);
    expect(run("leaks %s --error-exitcode 9", sound), 0, "no suspects", NULL);
    json_t *top = expect_json(run("leaks %s --json", leaky), "gpuprof.leaks/1");
    cr_assert_eq(number(top, "steps"), 20);
    cr_assert_str_eq(json_string_value(at(top, "suspects/0/function")), "inner_branch");
    cr_assert_str_eq(json_string_value(at(top, "suspects/0/file")), "model.py");
    cr_assert_eq(number(top, "suspects/0/rank"), 1);
    cr_assert_gt(number(top, "suspects/0/live_bytes"), GIB);
    cr_assert(json_is_real(at(top, "suspects/0/bytes_per_step")) && json_is_real(at(top, "suspects/0/confidence")) &&
              json_is_real(at(top, "suspects/0/seconds_to_oom")));
    json_decref(top);
    top = expect_json(run("leaks %s --json --older 100000", leaky), "gpuprof.leaks/1");
    cr_assert_eq(json_array_size(at(top, "suspects")), 0);
    json_decref(top);
}

Test(commands, report_prints_a_summary)
{
    struct result r = run("report %s", leaky);
    cr_assert_eq(r.status, 0, "%s", r.err);
    static const char *const texts[] = {"allocated  peak ", "reserved   peak ", "held at the peak by", "inner_branch",
                                        "per step",         "20 steps",         "device full in"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        cr_assert(strstr(r.out, texts[i]), "no '%s' in %s", texts[i], r.out);
    cr_assert(!strchr(r.out, '\033')); /* output to a pipe has no colours */
    free(r.out);
    free(r.err);
    json_decref(expect_json(run("report %s --json", sound), "gpuprof.report/1"));
}

Test(commands, the_others_print_and_write_json)
{
    json_decref(expect_json(run("peak %s --json", leaky), "gpuprof.peak/1"));
    json_decref(expect_json(run("churn %s --json", leaky), "gpuprof.churn/1"));
    json_decref(expect_json(run("fragmentation %s --json", leaky), "gpuprof.fragmentation/1"));
    json_decref(expect_json(run("reconcile %s --json", leaky), "gpuprof.reconcile/1"));
    expect(run("peak %s", leaky), 0, "held by", NULL);
    expect(run("churn %s", leaky), 0, "per step", NULL);
    expect(run("fragmentation %s", leaky), 0, "in use", NULL);
    expect(run("reconcile %s", leaky), 0, "linear", NULL);
    expect(run("diff %s %s", sound, leaky), 0, "inner_branch", NULL);
    json_t *top = expect_json(run("diff %s %s --json", sound, leaky), "gpuprof.diff/1");
    cr_assert_str_eq(json_string_value(at(top, "sites/0/name")), "inner_branch (model.py:77)");
    cr_assert(json_is_null(at(top, "sites/0/site/0")));
    json_decref(top);
}
