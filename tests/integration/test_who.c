/* SPDX-License-Identifier: MIT
 *
 * test_who.c: who holds the memory, in a recorded program: the first row of the report is the
 * function that a reader looks for, no two rows have one label, and a failed request has a place.
 */
#include "integration/command.h"
#include <unistd.h>

TestSuite(who, .timeout = 120);

static void record(char file[96], const char *stacks, const char *const *program, int status)
{
    static int count;
    char option[128];
    const char *argv[12] = {path_command(), "run", "--sim=memory=4GiB", stacks, option, "--"};
    snprintf(file, 96, "/tmp/test_who_%d_%d.gpuprof", (int)getpid(), count++);
    snprintf(option, sizeof(option), "--record=%s", file);
    for (int i = 0; program[i]; i++)
        argv[6 + i] = program[i];
    run_program(status, &(struct spawn_options){.argv = argv});
}

static json_t *analyse(const char *how, const char *file)
{
    command(0, how, file, "--json", NULL);
    return said_json();
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

/* The first row, whose `frame` is the index of the frame that it is named after; and the labels. */
static void expect_rows(const json_t *rows, const char *function, const char *what)
{
    const json_t *first = json_array_get(rows, 0), *frames = json_object_get(first, "frames");
    cr_expect_str_eq(text(first, "function"), function, "%s: %s", what, text(first, "name"));
    cr_expect_eq(strncmp(text(first, "name"), function, strlen(function)), 0, "%s: %s", what, text(first, "name"));
    size_t named = (size_t)json_integer_value(json_object_get(first, "frame"));
    cr_expect_str_eq(text(json_array_get(frames, named), "function"), function);
    cr_expect_str_eq(text(json_array_get(frames, named), "role"), "user");
    for (size_t i = 0; i < json_array_size(rows); i++)
        for (size_t k = 0; k < i; k++) {
            const json_t *one = json_array_get(rows, i), *other = json_array_get(rows, k);
            cr_expect(strcmp(text(one, "name"), text(other, "name")) != 0 ||
                          strcmp(text(one, "kind"), text(other, "kind")) != 0,
                      "%s: two rows are called %s", what, text(one, "name"));
        }
}

static void expect_holder(const char *stacks, const char *const *program, const char *function, const char *leaks)
{
    char file[96];
    record(file, stacks, program, 0);
    json_t *top = analyse("peak", file);
    expect_rows(json_object_get(json_array_get(json_object_get(top, "devices"), 0), "parts"), function, program[0]);
    json_decref(top);
    if (leaks) {
        top = analyse("leaks", file);
        expect_rows(json_object_get(top, "suspects"), leaks, program[0]);
        json_decref(top);
    }
    unlink(file);
}

static void expect_program(const char *mode, const char *function, const char *leaks)
{
    const char *program[] = {path_program("who"), mode, NULL};
    expect_holder("--stacks=native", program, function, leaks);
}

Test(who, wrappers)
{
    expect_program("wrapper", "holder", NULL);
    expect_program("chain", "holder", NULL);
    expect_program("kinds", "holder", NULL);
    expect_program("threads", "holder", NULL);
}

Test(who, steps)
{
    expect_program("leak", "keep", "keep");
}

/* Nothing says when a step begins, and all memory is kept: that may be loading as well as a leak. */
Test(who, a_leak_without_steps)
{
    char file[96];
    record(file, "--stacks=native", (const char *[]){path_program("who"), "drip", NULL}, 0);
    json_t *top = analyse("leaks", file);
    cr_assert_str_eq(text(top, "step_source"), "time");
    cr_expect_eq(json_array_size(json_object_get(top, "suspects")), 0);
    json_decref(top);
    command(0, "leaks", file, NULL);
    SAYS("it cannot be known");
    SAYS("no steps are known");
    SAYS("get (who.c:36)");
    SAYS("Mark each step");
    unlink(file);
}

/* Three calls on one line are one row. */
Test(who, one_line_compiled_three_times)
{
    char file[96];
    record(file, "--stacks=native", (const char *[]){path_program("who"), "unrolled", NULL}, 0);
    json_t *top = analyse("peak", file);
    const json_t *parts = json_object_get(json_array_get(json_object_get(top, "devices"), 0), "parts");
    cr_expect_eq(json_array_size(parts), 1);
    cr_expect_eq(json_integer_value(json_object_get(json_array_get(parts, 0), "count")), 3);
    json_decref(top);
    unlink(file);
}

/* The same in a live view. */
Test(who, one_row_while_the_program_runs)
{
    const char *argv[] = {path_program("who"), "unrolled", NULL}, *env[] = {"GPUPROF_STACKS=native", NULL};
    struct spawn spawn;
    program_hold(&spawn, &(struct spawn_options){.argv = argv, .env = env, .want_library = true});
    command(0, "top", "--by", "site", "--json", "-p", pid_text(spawn.held[0]), NULL);
    json_t *top = said_json(), *rows = json_object_get(top, "sites");
    cr_assert_eq(json_array_size(rows), 1, "%s", said.out);
    const json_t *row = json_array_get(rows, 0);
    cr_expect_eq(json_integer_value(json_object_get(row, "sites")), 3);
    cr_expect_eq(json_integer_value(json_object_get(row, "live_bytes")), 96ll << 20);
    cr_expect_eq(json_integer_value(json_object_get(row, "calls")), 3);
    cr_expect_eq(json_real_value(json_object_get(row, "share_of_peak")), 1);
    json_decref(top);
    program_end(&spawn);
}

Test(who, examples)
{
    char path[3][512];
    const char *bin = strstr(path_command(), "/bin/gpuprof");
    cr_assert(bin);
    snprintf(path[0], sizeof(path[0]), "%.*s/examples/train_rt", (int)(bin - path_command()), path_command());
    snprintf(path[1], sizeof(path[1]), "%.*s/examples/leak_rt", (int)(bin - path_command()), path_command());
    snprintf(path[2], sizeof(path[2]), "%s", path_source("examples/leak.py"));
    expect_holder("--stacks=native", (const char *[]){path[0], "--seconds", "1", NULL}, "forward", NULL);
    expect_holder("--stacks=native", (const char *[]){path[1], "--seconds", "1", NULL}, "process_batches",
                  "remember_metrics");
    expect_holder("--stacks=all", (const char *[]){"/usr/bin/env", "python3", path[2], NULL}, "Metrics.log",
                  "Metrics.log");
}

/* The failed request has a place in the report of the recording, and in the page on stderr. */
Test(who, failed_request)
{
    char file[96];
    const char *program[] = {path_program("who"), "oom", NULL};
    record(file, "--stacks=native", program, 1);
    json_t *top = analyse("report", file);
    const json_t *oom = json_array_get(json_object_get(top, "ooms"), 0);
    cr_expect_str_eq(text(oom, "function"), "greedy");
    cr_expect_eq(json_integer_value(json_object_get(oom, "requested_bytes")), 1ll << 40);
    cr_expect_str_eq(text(json_array_get(json_object_get(top, "oom_holders"), 0), "function"), "holder");
    cr_expect(strstr(text(top, "oom"), "asked by    greedy (who.c:"), "%s", text(top, "oom"));
    cr_expect(strstr(text(top, "oom"), "  holder (who.c:"), "%s", text(top, "oom"));
    json_decref(top);
    command(0, "report", file, NULL);
    SAYS("1.000 TiB asked for by greedy (who.c:");
    unlink(file);
    command(1, "run", "--sim=memory=4GiB", "--stacks=native", "--", program[0], "oom", NULL);
    WARNS("asked by    greedy (who.c:");
    WARNS("  holder (who.c:");
}

/* A program that fails some milliseconds after its start: `run` may look for its call sites before
 * there are any, and again when it has ended. Python's frames are read at the end too. Each of twenty
 * programs that had a page must have them in it; a program that was not seen at all has no page. */
Test(who, failed_request_soon_after_the_start, .timeout = 120)
{
    struct spawn_result result;
    int pages = 0;
    for (int i = 0; i < 20; i++) {
        spawn_command(&result, "run", "--sim=memory=2GiB", "--stacks=python", "--", "python3",
                      path_source("examples/train.py"), "--batch", "40", NULL);
        int status = WIFEXITED(result.status) ? WEXITSTATUS(result.status) : -1;
        cr_assert(status == 1 || status == 127, "%s\n%s", spawn_status_text(&result), result.err);
        const char *page = strstr(result.err, "gpuprof: Out of memory on device 0");
        pages += page != NULL || status == 127; /* no Python here */
        cr_expect(!page || strstr(page, "Adam.__init__ (train.py:"), "program %d: %s", i, page);
        spawn_result_free(&result);
    }
    cr_expect_gt(pages, 0);
}
