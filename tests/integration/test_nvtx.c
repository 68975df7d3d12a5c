/* SPDX-License-Identifier: MIT
 *
 * test_nvtx.c: NVTX ranges of a program become marks, as `gpuprof trace` shows them, and the program is none the wiser.
 */
#include "integration/command.h"
#include <stdlib.h>

TestSuite(nvtx, .timeout = 120);

#define MARKS 2000
static char marks[MARKS][40];
static unsigned mark_count;

/* Runs the program under `gpuprof trace`, collects the names of its marks. */
static void trace_program(void)
{
    command(0, "trace", "--sim", "--json", "-o", "/dev/stderr", "--", path_program("nvtx"), NULL);
    SAYS("one handle for one string: 1\n");
    SAYS("domains differ: 1\n");
    SAYS("push answers: -2\n");
    mark_count = 0;
    for (char *line = strtok(said.err, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *event = line[0] == '{' ? json_loads(line, 0, NULL) : NULL;
        const char *type = json_string_value(json_object_get(event, "event"));
        const char *name = json_string_value(json_object_get(event, "name"));
        if (type && strcmp(type, "mark") == 0 && mark_count < MARKS)
            snprintf(marks[mark_count++], sizeof(marks[0]), "%s", name ? name : "(null)");
        json_decref(event);
    }
}

static unsigned count_of(const char *name)
{
    unsigned count = 0;
    for (unsigned i = 0; i < mark_count; i++)
        count += strcmp(marks[i], name) == 0;
    return count;
}

Test(nvtx, ranges_and_marks_are_events)
{
    static const char *const want[] = {
        "nvtx.ex", "nvtx.mark", "nvtx.w\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80?",
        "nvtx:w\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80?", "nvtx:registered", "nvtx:?", "/nvtx:registered",
        "/nvtx:w\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80?", "/nvtx:?", "nvtx.?", "nvtx:wide", "/nvtx:wide",
        /* 25 bytes at most, whole characters */
        "nvtx:a name of 32 bytes is cut", "/nvtx:a name of 32 bytes is cut", "nvtx:24 bytes and an accent:*",
        "/nvtx:24 bytes and an accent:*", "nvtx:?", "/nvtx:?", "nvtx:one", "nvtx:in a domain", "nvtx:left open",
        "/nvtx:in a domain", "/nvtx:one", "nvtx:left open"};
    const unsigned count = sizeof(want) / sizeof(want[0]);
    trace_program();
    cr_assert_gt(mark_count, count);
    for (unsigned i = 0; i < count; i++)
        cr_assert_str_eq(marks[i], want[i], "mark %u is %s instead of %s", i, marks[i], want[i]);
    cr_assert_eq(count_of("nvtx:before the start"), 0);
    cr_assert_eq(count_of("/nvtx:before the start"), 0);
    cr_assert_eq(count_of("nvtx:left open"), 201);
    cr_assert_eq(count_of("/nvtx:left open"), 0);
    /* Each of them begins and ends, named or not. */
    cr_assert_eq(count_of("nvtx:deep"), 300);
    cr_assert_eq(count_of("/nvtx:deep") + count_of("/nvtx:"), 300);
    cr_assert_gt(count_of("/nvtx:deep"), 50, "the outer ones were kept");
    cr_assert_gt(count_of("/nvtx:"), 50, "there was no room for all: what that does is tested here");
    cr_assert_eq(count_of("/nvtx:after"), 1);
    cr_assert_str_eq(marks[mark_count - 1], "/nvtx:last");
}

static void run_nvtx(const char *const *env, const char *argument)
{
    const char *argv[] = {path_program("nvtx"), argument, NULL};
    run_program(0, &(struct spawn_options){.argv = argv, .env = env, .want_library = true});
    cr_assert_str_eq(said.err, "");
}

Test(nvtx, another_tool_keeps_its_place)
{
    const char *env[] = {"NVTX_INJECTION64_PATH=/nowhere/other-tool.so", NULL};
    run_nvtx(env, NULL);
    SAYS("push answers: 0\n");
    const char *argv[] = {path_command(), "run", "--sim", "--", path_program("nvtx"), NULL};
    run_program(0, &(struct spawn_options){.argv = argv, .env = env});
    SAYS("push answers: 0\n"); /* gpuprof run leaves it alone */
}

Test(nvtx, without_cuda_it_is_harmless)
{
    char path[4200];
    snprintf(path, sizeof(path), "NVTX_INJECTION64_PATH=%s", path_library());
    /* Not injected into CUDA: nothing is ever started. */
    const char *env[] = {path, "CUDA_INJECTION64_PATH", NULL};
    run_nvtx(env, NULL);
    SAYS("push answers: -2\n");
}

Test(nvtx, a_pair_costs_little)
{
    char path[4200];
    snprintf(path, sizeof(path), "NVTX_INJECTION64_PATH=%s", path_library());
    const char *env[] = {path, NULL};
    run_nvtx(env, "1000000");
    double ns = strtod(said.out, NULL);
    cr_log_info("a push and its pop: %.1f ns", ns);
    cr_assert(ns > 1 && ns < 5000, "%.1f ns: two events; a loaded machine multiplies that", ns);
}
