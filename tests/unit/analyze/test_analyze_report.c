/* SPDX-License-Identifier: MIT
 * test_analyze_report.c: the document of a recording, its text, and the commands that print
 * them. */
#include <analyze/report.h>
#include <base/compiler.h>
#include <gpuprof/wire.h>
#include <jansson.h>
#include <lib/recsave.h>
#include <read/recording/recording.h>
#include <show/text/text.h>
#include <show/text/textpage.h>
#include <stdio.h>
#include <symbol/symbol.h>

#include "train_fixture.h"
#include <unit/cmd/cli.h>

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
    struct gp_symbol_source source = gp_symbol_source_of(r, "");
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

/* A program that called cuInit and used no device, or a recording that was cut before its first device. */
Test(report, document_without_a_device)
{
    struct recmake *make = recmake_new(GIB);
    struct gp_recording *r = recmake_done(make);
    r->device_count = 0;
    json_t *document = document_of(r);
    cr_assert_eq(json_array_size(at(document, "devices")), 0);
    cr_assert(json_is_null(at(document, "sites/0/device")));
    json_decref(document);
    gp_recording_free(r);
}

/* Without allocations there is no stack that the recording lacks. */
Test(report, notes_missing_stacks_only_of_allocations)
{
    for (int allocates = 0; allocates < 2; allocates++) {
        struct recmake *make = recmake_new(GIB);
        char *text = NULL;
        size_t size = 0;
        recmake_at(make, 1000 * MS);
        recmake_mark(make, "start");
        recmake_alloc(make, 0, GP_KIND_IMPORTED, 2 * GIB, MIB, 0); /* another process's */
        if (allocates)
            recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, MIB, 0);
        struct gp_recording *r = recmake_done(make);
        struct gp_report report = {.recording = r};
        struct gp_text_page page = {.out = open_memstream(&text, &size)};
        gp_text_warnings(&page, &report);
        fclose(page.out);
        cr_expect_eq(strstr(text, "without stacks") != NULL, allocates, "%s", text);
        free(text);
        gp_recording_free(r);
    }
}

/* What `report` says of the recording, with the bill of `reconcile` behind it if that is wanted. Free it. */
static char *summary_of(struct gp_recording *r, bool bill)
{
    char *text = NULL;
    size_t size = 0;
    struct gp_symbols *symbols = NULL;
    const struct gp_symbol_source source = {.strings = r->strings, .root = ""};
    struct gp_report report;
    struct gp_text_page page = {.out = open_memstream(&text, &size), .width = 100};
    cr_assert_eq(gp_symbols_new(&symbols, &source), 0);
    cr_assert_eq(gp_report_init(&report, r, symbols, ""), 0);
    cr_assert_eq(gp_report_run(&report, GP_REPORT_SUMMARY | (bill ? GP_REPORT_BILL : 0), GP_DETAIL_SUMMARY), 0);
    gp_text_summary(&page, &report);
    if (bill)
        gp_text_reconcile(&page, &report);
    fclose(page.out);
    gp_report_fini(&report);
    gp_symbols_free(symbols);
    gp_recording_free(r);
    return text;
}

/* A consumer of CUDA IPC has nothing of its own. */
Test(report, shows_imported_memory_outside_of_the_sums)
{
    struct recmake *make = recmake_new(GIB);
    recmake_at(make, 1000 * MS);
    recmake_alloc(make, 0, GP_KIND_IMPORTED, 2 * GIB, 512 * MIB, 0);
    recmake_at(make, 1001 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, MIB, 0);
    char *text = summary_of(recmake_done(make), true);
    cr_expect(strstr(text, "  imported   peak 512.0 MiB; 512.0 MiB at the end"), "%s", text);
    cr_expect(strstr(text, "  allocated  peak 1.000 MiB"), "%s", text);
    cr_expect(strstr(text, "512.0 MiB  imported: memory of other processes"), "%s", text);
    free(text);
}

/* A GPU of 1 GiB holds 1.5 GiB of managed memory, of which a part was freed before the end. */
Test(report, shows_managed_memory_outside_of_the_sums)
{
    struct recmake *make = recmake_new(GIB);
    recmake_at(make, 1000 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, MIB, 0);
    for (uint64_t i = 0; i < 3; i++) {
        recmake_at(make, (1001 + i) * MS);
        recmake_alloc(make, 0, GP_KIND_MANAGED, (2 + i) * GIB, 512 * MIB, 0);
    }
    recmake_at(make, 1005 * MS);
    recmake_free(make, 0, GP_KIND_MANAGED, 3 * GIB);
    char *text = summary_of(recmake_done(make), false);
    cr_expect(strstr(text, "  managed    peak 1.500 GiB; 1.000 GiB at the end: virtual size"), "%s", text);
    cr_expect(strstr(text, "  allocated  peak 1.000 MiB") && !strstr(text, "imported"), "%s", text);
    free(text);
}

/* The engine of a server is a process of its own: who opens the server's recording is told of the others. */
Test(report, without_memory_tells_of_other_processes)
{
    struct recmake *make = recmake_new(GIB);
    recmake_at(make, 1000 * MS);
    recmake_mark(make, "start");
    char *text = summary_of(recmake_done(make), false);
    cr_expect(strstr(text, "no memory was held or allocated") && strstr(text, "NAME.PID.gpuprof"), "%s", text);
    free(text);
}

/* A snapshot of PyTorch has no more of a failed request than an entry in its trace. */
Test(report, says_of_the_last_failed_request)
{
    for (unsigned failures = 0; failures < 3; failures++) {
        struct recmake *make = recmake_new(GIB);
        recmake_at(make, 1000 * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, MIB, 0);
        for (unsigned i = 0; i < failures; i++)
            recmake_event(
                make, &(struct gp_rec_event){
                          .time_ns = (1010 + i) * MS, .bytes = (i + 1) * 7 * MIB, .type = GP_EVENT_OOM, .device = 0});
        struct gp_recording *r = recmake_done(make);
        r->from_torch = true;
        char *text = summary_of(r, false);
        cr_expect_eq(strstr(text, "out of memory on device 0 at ") != NULL, failures > 0, "%s", text);
        cr_expect_eq(strstr(text, ": 7.000 MiB asked for\n") != NULL, failures == 1, "%s", text);
        cr_expect_eq(strstr(text, ": 14.00 MiB asked for, the last of 2 times\n") != NULL, failures == 2, "%s", text);
        free(text);
    }
}

/* `diff` names the file of each note. */
Test(report, cleans_the_names_of_files_in_its_notes)
{
    struct recmake *make = recmake_new(GIB);
    char *text = NULL;
    size_t size = 0;
    recmake_at(make, 1000 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, MIB, 0);
    struct gp_recording *r = recmake_done(make);
    struct gp_report report = {.recording = r, .file = "a\033[31mb.gpuprof"};
    struct gp_text_page page = {.out = open_memstream(&text, &size), .named = true};
    gp_text_warnings(&page, &report);
    fclose(page.out);
    cr_expect(strstr(text, "b.gpuprof: recorded without stacks"), "%s", text);
    cr_expect_not(strchr(text, '\033'), "%s", text);
    free(text);
    gp_recording_free(r);
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
    cr_assert_eq(recsave(one, leaky), 0);
    cr_assert_eq(recsave(other, sound), 0);
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

/* The phrases about a suspect begin a new line where they would not fit; a pipe has the same phrases. */
Test(commands, leaks_fits_into_a_terminal)
{
    static const int widths[] = {60, 80, 100, 120, 150, 200};
    char line[4200];
    snprintf(line, sizeof(line), "leaks %s", leaky);
    for (size_t i = 0; i < GP_COUNT(widths); i++) {
        char *out = run_terminal(widths[i], line);
        cr_expect(strstr(out, "; grows for ") || strstr(out, "\n     grows for "), "%s", out);
        cr_expect(strstr(out, "; nothing of it was freed") || strstr(out, "\n     nothing of it was freed"), "%s", out);
        free(out);
    }
    expect(run("%s", line), 0, " old\n     confidence ", NULL);
}

Test(commands, leaks_names_the_rhythm_and_takes_another)
{
    json_t *top = expect_json(run("leaks %s --json", leaky), "gpuprof.leaks/1");
    cr_assert_str_eq(json_string_value(at(top, "step_rhythm")), "marks \"step\"");
    cr_assert_gt(json_real_value(at(top, "step_seconds")), 0);
    cr_assert(strstr(json_string_value(at(top, "suspects/0/evidence")), "nothing of it was freed"));
    cr_assert(json_is_null(at(top, "suspects/0/missing")));
    json_decref(top);
    expect(run("leaks %s", leaky), 0, ": marks \"step\"", NULL);
    expect(run("leaks %s --step=step", leaky), 0, ": marks \"step\"", NULL);
    expect(run("leaks %s --step=100ms", leaky), 0, "stretches of 100 ms, as you chose", NULL);
    expect(run("report %s --step=100ms", leaky), 0, "stretches of 100 ms, as you chose", NULL);
    expect(run("churn %s --step=100ms", leaky), 0, "stretches of 100 ms, as you chose", NULL);
    struct result r = run("leaks %s --step=foo", leaky);
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "mark 'step' (21 times)"), "%s", r.err);
    free(r.out);
    free(r.err);
}

/* The callers of a site have a long path, and two lines of one function allocate. */
Test(commands, diff_has_a_row_for_each_line_and_whole_names)
{
    char paths[2][64], deep[200];
    snprintf(deep, sizeof(deep), "caller_%0150d", 7);
    for (unsigned file = 0; file < 2; file++) {
        struct recmake *make = recmake_new(GIB);
        for (unsigned line = 0; line < 2; line++) {
            for (unsigned from = 0; from < 2; from++) {
                struct recmake_frame frames[] = {
                    {"make", "model.py", 10 + line + file * 3}, {deep, "/srv/caller.py", 40 + from}, {NULL, NULL, 0}};
                uint32_t where = recmake_site(make, GP_KIND_LINEAR, frames);
                recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10000 * (1 + line * 2 + from),
                              (1 + file) * (100 + line * 10 + from), where);
            }
        }
        struct gp_recording *recording = recmake_done(make);
        snprintf(paths[file], sizeof(paths[file]), "/tmp/test_analyze_%d_diff%u", (int)getpid(), file);
        cr_assert_eq(recsave(recording, paths[file]), 0);
        gp_recording_free(recording);
    }
    struct result r = run("diff %s %s", paths[0], paths[1]);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "4 of 4 sites differ"), "%s", r.out);
    for (unsigned from = 0; from < 2; from++) {
        char name[300];
        snprintf(name, sizeof(name), "make (model.py:13) < %s (caller.py:%u)", deep, 40 + from);
        cr_assert(strstr(r.out, name), "no '%s' in %s", name, r.out);
    }
    free(r.out);
    free(r.err);
    r = run("diff --callers %s %s", paths[0], paths[1]);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "\n       make (model.py:14)\n"), "%s", r.out);
    free(r.out);
    free(r.err);
    json_t *top = expect_json(run("diff %s %s --json", paths[0], paths[1]), "gpuprof.diff/1");
    cr_assert_eq(json_array_size(at(top, "sites")), 4);
    cr_assert_eq(number(top, "sites/0/line"), 14);
    cr_assert_eq(number(top, "sites/0/caller/line"), 41);
    cr_assert_eq(number(top, "sites/0/at_peak_bytes/0"), 111);
    cr_assert_eq(number(top, "sites/0/at_peak_bytes/1"), 222);
    cr_assert_eq(json_array_size(at(top, "sites/0/frames")), 2);
    json_decref(top);
    unlink(paths[0]);
    unlink(paths[1]);
}

Test(commands, take_a_part_of_the_time)
{
    json_t *whole = expect_json(run("report %s --json", sound), "gpuprof.report/1");
    json_t *part = expect_json(run("report %s --json --from=2s --to=2500ms", sound), "gpuprof.report/1");
    cr_assert_float_eq(json_real_value(at(part, "recording/seconds")), 0.5, 1e-6);
    cr_assert_gt(number(part, "devices/0/series/allocated/0/3"), 0); /* parameters, from before */
    cr_assert_leq(number(part, "devices/0/allocated_peak_bytes"), number(whole, "devices/0/allocated_peak_bytes"));
    cr_assert_lt(number(part, "recording/events"), number(whole, "recording/events"));
    json_decref(whole);
    json_decref(part);
    expect(run("peak %s --from=step --to=3s", sound), 0, "held by", NULL);
    expect(run("export %s --format=csv --from=1s --to=1010ms", sound), 0, "\n", NULL);
    expect(run("export %s --format=csv --from=2s --to=1s", sound), 2, NULL, "is not before");
    expect(run("peak %s --to=99h", sound), 2, NULL, "the recording is");
    expect(run("peak %s --from=nothing", sound), 2, NULL, "nor the name of a mark");
}

Test(commands, the_others_print_and_write_json)
{
    json_decref(expect_json(run("peak %s --json", leaky), "gpuprof.peak/1"));
    json_decref(expect_json(run("churn %s --json", leaky), "gpuprof.churn/1"));
    json_t *fragments = expect_json(run("fragmentation %s --json", leaky), "gpuprof.fragmentation/1");
    int64_t most[] = {0, 0}; /* of allocated: in the points, which have its peak, and in the series */
    for (size_t i = 0; i < json_array_size(at(fragments, "devices/0/points")); i++) {
        int64_t value = number(json_array_get(at(fragments, "devices/0/points"), i), "2");
        most[0] = value > most[0] ? value : most[0];
    }
    for (size_t i = 0; i < json_array_size(at(fragments, "devices/0/series/allocated")); i++) {
        int64_t value = number(json_array_get(at(fragments, "devices/0/series/allocated"), i), "2");
        most[1] = value > most[1] ? value : most[1];
    }
    cr_assert(most[0] > 0 && most[0] == most[1], "%lld, %lld", (long long)most[0], (long long)most[1]);
    at(fragments, "devices/0/series/reserved/0/3");
    at(fragments, "devices/0/series/requested/0/3");
    cr_assert_eq(json_array_size(at(fragments, "devices/0/sites")), 0); /* no segments */
    json_decref(fragments);
    json_t *bill = expect_json(run("reconcile %s --json", leaky), "gpuprof.reconcile/1");
    cr_assert(json_is_string(at(bill, "devices/0/sites/0/name")) &&
              json_is_array(at(bill, "devices/0/sites/0/frames")));
    int64_t bytes = 0;
    for (size_t i = 0; i < json_array_size(at(bill, "devices/0/sites")); i++)
        bytes += number(json_array_get(at(bill, "devices/0/sites"), i), "bytes");
    cr_assert_eq(bytes, number(bill, "devices/0/rows/0/bytes"), "%lld", (long long)bytes); /* linear memory alone */
    json_decref(bill);
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

Test(report_text, bars_have_eighths_or_are_of_ascii)
{
    static const struct {
        unsigned eighths;
        const char *utf8, *ascii;
    } rows[] = {{0, "            ", "            "},  {1, "▏           ", "            "},
                {3, "▍           ", "            "},  {4, "▌           ", "#           "},
                {8, "█           ", "#           "},  {13, "█▋          ", "##          "},
                {95, "███████████▉", "############"}, {96, "████████████", "############"}};
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        for (int utf8 = 0; utf8 < 2; utf8++) {
            char *text = NULL;
            size_t bytes = 0;
            struct gp_text_page page = {.out = open_memstream(&text, &bytes), .utf8 = utf8};
            gp_text_bar(&page, rows[i].eighths / 8.0 / GP_PAGE_BAR);
            fclose(page.out);
            cr_expect_str_eq(text, utf8 ? rows[i].utf8 : rows[i].ascii, "%u: '%s'", rows[i].eighths, text);
            free(text);
        }
    }
}

/* A recording does not tell what PyTorch's allocator held, so that none of its settings is judged. */
Test(report, failed_request_of_a_framework_denies_no_setting)
{
    static const char *const torch[] = {"libc10_cuda.so", "libtorch_cpu.so", NULL};
    static const struct recmake_frame frames[] = {{"main", "main.c", 7}, {NULL, NULL, 0}};
    for (unsigned i = 0; i < 4; i++) {
        struct recmake *make = recmake_new(4 * GIB);
        uint32_t site =
            i & 1 ? recmake_native_site(make, GP_KIND_LINEAR, torch) : recmake_site(make, GP_KIND_LINEAR, frames);
        recmake_at(make, 1000 * MS);
        if (i & 2)
            recmake_event(make, &(struct gp_rec_event){.time_ns = 1000 * MS,
                                                       .type = GP_EVENT_SEGMENT_ALLOC,
                                                       .kind = GP_KIND_LINEAR,
                                                       .address = GIB,
                                                       .bytes = 20 * MIB});
        recmake_alloc(make, 0, GP_KIND_LINEAR, GIB, 20 * MIB, site);
        struct gp_recording *r = recmake_done(make);
        r->has_oom = true;
        r->oom = (struct gp_wire_oom){
            .count = 1,
            .device = 0,
            .asked_bytes = 2 * GIB,
            .flags = GP_OOM_DRIVER,
            .free_bytes = 900 * MIB,
            .reserved_bytes = 3196 * MIB,
            .allocated_bytes = 3196 * MIB,
            .holder_count = 1,
            .holders = {{.kind = GP_KIND_LINEAR, .count = 1, .block_bytes = 20 * MIB, .site = site}}};
        json_t *document = document_of(r);
        const char *page = json_string_value(at(document, "oom"));
        cr_assert(page);
        cr_expect_eq(strstr(page, "whether a setting of PyTorch's would") != NULL, i == 3, "%u: %s", i, page);
        cr_expect_eq(strstr(page, "no setting would") != NULL, i != 3, "%u: %s", i, page);
        json_decref(document);
        gp_recording_free(r);
    }
}
