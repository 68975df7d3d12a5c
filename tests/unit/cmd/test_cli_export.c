/* SPDX-License-Identifier: MIT
 * test_cli_export.c: runs `gpuprof export` and checks its output, its refusals and its messages;
 * also runs `gpuprof replay` on a recording.  Run by the unit tests. */
#include "cli.h"

#include <lib/recmake.h>
#include <lib/recsave.h>
#include <pty.h>

static char folder[64], text[512];

static const char *in(const char *name)
{
    static char path[8][128];
    static unsigned next;
    char *at = path[next++ % 8];
    snprintf(at, 128, "%s/%s", folder, name);
    return at;
}

static const char *line(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return text;
}

/* error: why the dropped events could not be written, from the 1.5th millisecond on; 0: another reason. */
static void write_damaged(const char *name, uint64_t dropped, int error, bool ended)
{
    struct recmake *make = recmake_new(1 << 30);
    uint32_t site =
        recmake_site(make, GP_KIND_LINEAR, (struct recmake_frame[]){{"make", "a.py", 7}, {"main", "a.py", 1}, {0}});
    for (unsigned i = 0; i < 40; i++) {
        recmake_at(make, 1000000000ull + i * 1000);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x7000000 + i * 4096, 4096, site);
        if (i % 2)
            recmake_free(make, 0, GP_KIND_LINEAR, 0x7000000 + i * 4096);
    }
    struct gp_recording *recording = recmake_done(make);
    recording->tried += dropped;
    recording->dropped = dropped;
    recording->unwritten = error ? dropped : 0;
    recording->write_error = error;
    recording->ended_early = ended;
    recording->stopped_ns = recording->begin_ns + 5000000000;
    recording->write_error_ns = recording->end_ns + 1000;
    cr_assert_eq(recsave(recording, in(name)), 0);
    gp_recording_free(recording);
}

/* As "rec", of a program that has exited. */
static void write_ended(const char *name)
{
    char why[256];
    struct gp_recording *recording;
    cr_assert_eq(gp_recording_open(&recording, in("rec"), why, sizeof(why), NULL, NULL), 0);
    struct gp_rec_event *events = realloc(recording->events, (recording->event_count + 1) * sizeof(*events));
    cr_assert(events);
    events[recording->event_count] = (struct gp_rec_event){.time_ns = recording->end_ns, .type = GP_EVENT_PROCESS_EXIT};
    recording->events = events;
    recording->event_count++;
    cr_assert_eq(recsave(recording, in(name)), 0);
    gp_recording_free(recording);
}

static void write_recording(const char *name, uint64_t dropped)
{
    write_damaged(name, dropped, 0, false);
}

static void begin(void)
{
    find_binary();
    snprintf(folder, sizeof(folder), "/tmp/gp-cli-export.XXXXXX");
    cr_assert(mkdtemp(folder));
    write_recording("rec", 0);
}

static void end(void)
{
    cr_assert_eq(system(line("rm -rf %s", folder)), 0);
}

static char *contents(const char *path, size_t *bytes)
{
    char *data = calloc(1, OUTPUT_BYTES);
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s", path);
    *bytes = fread(data, 1, OUTPUT_BYTES - 1, file);
    fclose(file);
    return data;
}

TestSuite(export_command, .init = begin, .fini = end, .timeout = 60);

Test(export_command, says_what_is_wrong_with_its_options)
{
    expect(run("export"), 2, NULL, "no recording given");
    expect(run("export x"), 2, NULL, "--format is needed");
    expect(run("export x --format=sqlit"), 2, NULL, "did you mean 'sqlite'");
    expect(run("export x --format=zzzzzz"), 2, NULL, "must be pprof, chrome, collapsed");
    expect(run("export x --format=pprof --weight=heavy"), 2, NULL, "live, peak, allocated or leaked");
    expect(run("export x --format=csv --weight=peak"), 2, NULL, "no stacks to weigh");
    expect(run("export x --format=csv --blocks=3"), 2, NULL, "chrome alone");
    expect(run("export x --format=chrome --blocks=-3"), 2, NULL, "a whole number from 0");
    expect(run("export x --format=csv --full-stacks"), 2, NULL, "pprof alone");
    expect(run("export x --format=sqlite"), 2, NULL, "-o");
    expect(run("export x --format=pprof --step=9ms"), 2, NULL, "--weight=leaked alone");
    expect(run("export %s --format=collapsed --weight=leaked --step=no", in("rec")), 2, NULL, "no NVTX range");
    expect(run("export %s --format=collapsed --weight=leaked --step=1us", in("rec")), 0, NULL, NULL);
    expect(run("export x y --format=csv"), 2, NULL, "one recording at a time");
    expect(run("export --help"), 0, "usage: gpuprof export", NULL);
}

Test(export_command, says_what_is_wrong_with_the_file)
{
    expect(run("export %s --format=csv", in("none")), 1, NULL, "No such file");
    cr_assert_eq(system(line("echo hello > %s", in("text"))), 0);
    expect(run("export %s --format=csv -o %s", in("text"), in("out")), 1, NULL, "gpuprof: export: ");
    cr_expect_neq(access(in("out"), F_OK), 0, "nothing was written");
}

Test(export_command, a_file_is_what_the_stream_is)
{
    static const char *const formats[] = {"csv", "jsonl", "chrome", "collapsed"};
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        size_t bytes;
        expect(run("export %s --format=%s -o %s", in("rec"), formats[i], in("out")), 0, NULL, NULL);
        char *data = contents(in("out"), &bytes);
        cr_expect_gt(bytes, 10);
        expect(run("export %s --format=%s", in("rec"), formats[i]), 0, data, NULL);
        expect(run("export %s --format=%s -o -", in("rec"), formats[i]), 0, data, NULL);
        free(data);
    }
}

Test(export_command, stacks_are_weighed_as_asked)
{
    const char *stack = "device 0;main (a.py:1);make (a.py:7);[linear]";
    char want[128];
    static const struct {
        const char *weight;
        unsigned bytes;
    } weights[] = {{"live", 20 * 4096}, {"peak", 21 * 4096}, {"allocated", 40 * 4096}};
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
        snprintf(want, sizeof(want), "%s %u\n", stack, weights[i].bytes);
        expect(run("export %s --format=collapsed --weight=%s", in("rec"), weights[i].weight), 0, want, NULL);
    }
    /* Without a word: of a program that has ended at its peak, else now; and what opens it. */
    snprintf(want, sizeof(want), "%s %u\n", stack, weights[0].bytes);
    expect(run("export %s --format=collapsed", in("rec")), 0, want, NULL);
    write_ended("ended");
    snprintf(want, sizeof(want), "%s %u\n", stack, weights[1].bytes);
    expect(run("export %s --format=collapsed", in("ended")), 0, want, NULL);
    expect(run("export %s --format=collapsed -o %s", in("ended"), in("out")), 0, "",
           "written, weighed by peak; open it in speedscope.app");
}

Test(export_command, replaces_a_file_and_leaves_nothing_beside_it)
{
    expect(run("export %s --format=sqlite -o %s", in("rec"), in("out")), 0, NULL, NULL);
    expect(run("export %s --format=sqlite -o %s", in("rec"), in("out")), 0, NULL, NULL);
    size_t bytes;
    char *data = contents(in("out"), &bytes);
    cr_expect(memcmp(data, "SQLite format 3", 16) == 0);
    free(data);
    cr_expect_eq(system(line("test $(ls %s | wc -l) = 2", folder)), 0, "the recording and the database");
}

/* Every command that writes a file, and every format. */
static const char *const writers[] = {"report",
                                      "report --json",
                                      "snapshot",
                                      "export --format=pprof",
                                      "export --format=chrome",
                                      "export --format=collapsed",
                                      "export --format=csv",
                                      "export --format=jsonl",
                                      "export --format=sqlite"};

static struct result write_out(const char *writer, const char *more)
{
    return run("%s %s -o %s%s", writer, in("rec"), in("out"), more);
}

Test(export_command, what_gpuprof_wrote_is_replaced_and_nothing_else)
{
    for (size_t i = 0; i < sizeof(writers) / sizeof(writers[0]); i++) {
        size_t next = (i + 1) % (sizeof(writers) / sizeof(writers[0]));
        cr_assert_eq(system(line("echo old > %s", in("out"))), 0);
        expect(write_out(writers[i], ""), 1, NULL, "was not written by gpuprof");
        cr_expect_eq(system(line("echo old | cmp %s -", in("out"))), 0, "%s: touched", writers[i]);
        expect(write_out(writers[i], " --force"), 0, NULL, NULL);
        cr_expect_neq(system(line("echo old | cmp -s %s -", in("out"))), 0, "%s: not replaced", writers[i]);
        expect(write_out(writers[i], ""), 0, NULL, NULL);
        expect(write_out(writers[next], ""), 0, NULL, NULL);
        expect(run("%s %s -o %s --force", writers[i], in("rec"), in("rec")), 1, NULL, "this file is a recording");
    }
    expect(run("generate gmlake --scale=0.01 -o %s", in("rec")), 1, NULL, "this file is a recording");
    expect(run("trace -o %s -- true", in("rec")), 1, NULL, "this file is a recording");
    cr_assert_eq(system(line(": > %s", in("out"))), 0);
    expect(write_out(writers[0], ""), 0, NULL, NULL);
    cr_expect_eq(system(line("test $(ls %s | wc -l) = 2", folder)), 0, "nothing is left beside them");
}

Test(export_command, a_report_is_json_if_one_asks_for_it)
{
    json_error_t error;
    expect(write_out("report --json", ""), 0, "", NULL);
    json_t *top = json_load_file(in("out"), 0, &error);
    cr_assert(top, "line %d: %s", error.line, error.text);
    cr_expect_str_eq(json_string_value(json_object_get(top, "schema")), "gpuprof.report/1");
    json_t *shown = expect_json(run("report --json %s -o -", in("rec")), "gpuprof.report/1");
    cr_expect(json_equal(top, shown), "the file and standard output differ");
    json_decref(shown);
    json_decref(top);
    expect(write_out("report", ""), 0, NULL, "open it in a browser");
    expect(run("report --json %s -o /dev/full", in("rec")), 1, NULL, "No space left");
    expect(run("report --json %s -o %s/none/out", in("rec"), folder), 1, NULL, "No such file");
}

Test(export_command, what_cannot_be_written_is_an_error_and_no_half_file)
{
    expect(run("export %s --format=csv -o /dev/full", in("rec")), 1, NULL, "No space left");
    expect(run("export %s --format=csv -o %s/none/out", in("rec"), folder), 1, NULL, "No such file");
    expect(run("export %s --format=sqlite -o /dev/null", in("rec")), 1, NULL, "not a regular file");
    expect(run("export %s --format=csv -o /dev/null", in("rec")), 0, NULL, NULL);
    struct stat st;
    cr_expect(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
    cr_expect_eq(system(line("test $(ls %s | wc -l) = 1", folder)), 0);
}

Test(export_command, a_reader_that_has_enough_is_no_news)
{
    static const char *const commands[] = {"export --format csv", "report",        "report --json",
                                           "report -o -",         "leaks --json",  "peak",
                                           "peak --json",         "snapshot -o -", "phases"};
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        expect_quiet(line("%s %s", commands[i], in("rec")));
}

Test(export_command, losses_are_said)
{
    write_recording("lossy", 5);
    expect(run("export %s --format=csv -o %s", in("lossy"), in("out")), 0, NULL, "5 of 65 events were lost");
}

Test(export_command, a_terminal_gets_no_binary)
{
    int master, slave, status;
    cr_assert_eq(openpty(&master, &slave, NULL, NULL, NULL), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(slave, 1);
        execl(binary, binary, "export", in("rec"), "--format=pprof", NULL);
        _exit(98);
    }
    close(slave);
    waitpid(pid, &status, 0);
    char byte;
    cr_expect_eq(WEXITSTATUS(status), 2);
    cr_expect_leq(read(master, &byte, 1), 0, "the terminal got data");
    close(master);
}

Test(export_command, a_recording_is_a_trace_for_replay)
{
    struct result r = run("replay %s --allocator=caching --json", in("rec"));
    json_t *top = expect_json(r, "gpuprof.replay/1");
    cr_expect_eq(json_integer_value(json_object_get(top, "operations")), 60);
    cr_expect_eq(json_integer_value(json_object_get(top, "failed")), 0);
    cr_expect_eq(json_integer_value(json_object_get(top, "peak_allocated_bytes")), 21 * 4096);
    json_decref(top);
}

Test(export_command, a_full_disk_is_named_and_ends_the_recorded_time)
{
    write_damaged("full", 5, ENOSPC, true);
    expect(run("report %s", in("full")), 0,
           "s of 5.0 s: the file could not be written: No space left on device; the last 5 events", NULL);
    json_t *top = expect_json(run("report --json %s", in("full")), "gpuprof.report/1");
    json_t *recording = json_object_get(top, "recording"), *error = json_object_get(recording, "write_error");
    double seconds = json_real_value(json_object_get(recording, "seconds"));
    cr_expect_lt(seconds, 4);
    cr_expect_eq(json_integer_value(json_object_get(error, "errno")), ENOSPC);
    cr_expect_str_eq(json_string_value(json_object_get(error, "reason")), "No space left on device");
    cr_expect_eq(json_integer_value(json_object_get(error, "events")), 5);
    cr_expect_float_eq((double)json_integer_value(json_object_get(error, "time_ns")) / 1e9, seconds, 1e-9);
    cr_expect_eq(json_integer_value(json_object_get(error, "stopped_ns")), 5000000000);
    cr_expect(json_is_true(json_object_get(error, "ends_recording")));
    cr_expect_eq(json_integer_value(json_object_get(recording, "dropped")), 5);
    json_decref(top);
    struct result r = run("report %s", in("full"));
    cr_expect(!strstr(r.out, "were dropped"), "sums up to the end are exact: %s", r.out);
    expect(r, 0, NULL, NULL);
    expect(run("export %s --format=csv -o %s", in("full"), in("out")), 0, NULL, "No space left on device");
    expect(run("snapshot %s -o %s", in("full"), in("out")), 0, NULL, "No space left on device");

    struct gp_recording *killed = NULL;
    char why[256];
    cr_assert_eq(gp_recording_open(&killed, in("full"), why, sizeof(why), NULL, NULL), 0, "%s", why);
    killed->complete = false;
    cr_assert_eq(recsave(killed, in("killed")), 0);
    gp_recording_free(killed);
    expect(run("report %s", in("killed")), 0, "No space left on device; all later events are missing", NULL);

    write_damaged("gap", 5, ENOSPC, false);
    expect(run("report %s", in("gap")), 0, "5 events could not be written: No space left on device", NULL);
    expect(run("report %s", in("gap")), 0, "5 of 65 events were dropped", NULL);
    top = expect_json(run("report --json %s", in("rec")), "gpuprof.report/1");
    cr_expect(json_is_null(json_object_get(json_object_get(top, "recording"), "write_error")));
    json_decref(top);
}

/* Every command takes a log of RMM, also from standard input and compressed; it says what it is. */
Test(export_command, a_log_of_rmm_is_a_recording)
{
    FILE *log = fopen(in("log"), "w");
    fputs("Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.1,allocate,0x10,512,0\n1,10:00:00.2,free,0x10,512,0\n",
          log);
    fclose(log);
    json_t *top = expect_json(run("report --json %s", in("log")), "gpuprof.report/1");
    cr_expect_str_eq(json_string_value(json_object_get(json_object_get(top, "recording"), "format")), "rmm");
    json_decref(top);
    expect(run("report %s", in("log")), 0, "a log of RMM has no stacks", NULL);
    expect(run("report %s", in("log")), 0, "RMM log\n100 ms, 2 events", NULL);
    expect(run("peak %s", in("log")), 0, "512 B", NULL);
    expect(run("leaks %s", in("log")), 0, NULL, NULL);
    expect(run("diff %s %s", in("log"), in("log")), 0, NULL, NULL);
    expect(run("export --format=csv %s", in("log")), 0, "512", NULL);
    expect(run("snapshot %s -o %s", in("log"), in("out")), 0, NULL, NULL);
    expect(run("report %s", in("out")), 0, "PyTorch snapshot", NULL);
}

/* Pairs of an allocation and a free have five entries in a trace. */
Test(export_command, a_large_snapshot_is_announced_and_can_be_limited)
{
    struct recmake *make = recmake_new(1 << 30);
    uint32_t site = recmake_site(make, GP_KIND_LINEAR, (struct recmake_frame[]){{"make", "a.py", 7}, {0}});
    for (unsigned i = 0; i < 180000; i++) {
        recmake_at(make, 1000000000ull + i * 1000);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x7000000, 4096, site);
        recmake_free(make, 0, GP_KIND_LINEAR, 0x7000000);
    }
    struct gp_recording *recording = recmake_done(make);
    cr_assert_eq(recsave(recording, in("many")), 0);
    gp_recording_free(recording);
    expect(run("snapshot %s -o %s", in("many"), in("out")), 0, NULL,
           " MiB: 900000 trace entries; --max-entries=N writes");
    struct stat whole, part;
    cr_assert_eq(stat(in("out"), &whole), 0);
    cr_expect(whole.st_size > 0.9 * 900000 * 40 && whole.st_size < 1.1 * 900000 * 40, "%lld", (long long)whole.st_size);
    for (unsigned limit = 0; limit < 7; limit++) {
        struct result r = run("snapshot %s -o %s --max-entries=%u", in("many"), in("out"), limit);
        unsigned entries = 0;
        cr_expect(!strstr(r.err, "--max-entries"), "%s", r.err);
        const char *at = strstr(r.err, " blocks, ");
        cr_assert(at && sscanf(at, " blocks, %u trace entries", &entries) == 1, "%s", r.err);
        cr_expect(entries <= limit && entries + 1 >= limit, "%u for %u", entries, limit);
        cr_expect(strstr(r.err, "older trace entries were left out"), "%s", r.err);
        expect(r, 0, NULL, NULL);
    }
    cr_expect(stat(in("out"), &part) == 0 && part.st_size < 3000);
}

/* A page is HTML, whatever its name says, and only a page can be shown. */
Test(export_command, a_page_has_a_name_of_its_kind)
{
    char fake[600];
    expect(run("report %s -o x.pdf", in("rec")), 2, NULL, "the page is HTML: name it x.html");
    expect(run("report %s -o x.json", in("rec")), 2, NULL, "or add --json");
    expect(run("report %s --open", in("rec")), 2, NULL, "name it with -o");
    snprintf(fake, sizeof(fake), "%s/bin", folder);
    cr_assert_eq(mkdir(fake, 0755), 0);
    char *path = strdup(getenv("PATH"));
    setenv("PATH", fake, 1);
    expect(run("report %s -o %s/p.html --open", in("rec"), folder), 1, NULL, "xdg-open is not installed");
    snprintf(fake, sizeof(fake),
             "printf '#!/bin/sh\\necho opened $1\\n' >%s/bin/xdg-open; /bin/chmod +x %s/bin/xdg-open", folder, folder);
    cr_assert_eq(system(fake), 0);
    expect(run("report %s -o %s/p.html --open", in("rec"), folder), 0, "opened ", NULL);
    /* Without a browser xdg-open names a dozen that it does not find; one sentence is enough. */
    snprintf(fake, sizeof(fake), "printf '#!/bin/sh\necho lynx: not found >&2\nexit 3\n' >%s/bin/xdg-open", folder);
    cr_assert_eq(system(fake), 0);
    struct result quiet = run("report %s -o %s/p.html --open", in("rec"), folder);
    cr_expect_null(strstr(quiet.err, "lynx"), "%s", quiet.err);
    expect(quiet, 1, NULL, "is written, and nothing opened it: xdg-open found no browser: open it in one");
    setenv("PATH", path, 1); /* for what removes the folder */
    free(path);
}

/* Of a terminal only: verdicts have colours, and lines end between words. */
Test(export_command, doctor_has_colours_on_a_terminal)
{
    setenv("TERM", "xterm", 1);
    for (int way = 0; way < 3; way++) {
        terminal = way == 0 ? 0 : 70;
        setenv("NO_COLOR", way == 2 ? "1" : "", 1);
        struct result r = run("doctor");
        cr_expect_eq(strstr(r.out, "kernel     \033[32mok      \033[0m Linux") != NULL, way == 1, "%s", r.out);
        cr_expect_eq(strstr(r.out, "kernel     ok       Linux") != NULL, way != 1, "%s", r.out);
        for (const char *at = r.out; way == 2 && *at; at += strcspn(at, "\n") + 1)
            cr_expect_leq(strcspn(at, "\n"), 70, "%.90s", at);
        expect(r, 0, NULL, NULL);
    }
    terminal = 0;
}
