/* SPDX-License-Identifier: MIT
 *
 * test_by_site.c: the call sites of a real program under the library, from its stacks to the text
 * that users read.
 */
#include "integration/command.h"

TestSuite(by_site, .timeout = 120);

Test(by_site, a_live_program)
{
    const char *argv[] = {path_program("steps"), NULL};
    const char *env[] = {"GPUPROF_STACKS=native", NULL};
    struct spawn spawn;
    program_hold(&spawn, &(struct spawn_options){.argv = argv, .env = env, .want_library = true});
    command(0, "top", "--by", "site", "--json", "-p", pid_text(spawn.held[0]), NULL);
    json_t *top = said_json(), *row, *frame, *found = NULL;
    size_t i, k;
    json_array_foreach(json_object_get(top, "sites"), i, row)
    {
        if (json_integer_value(json_object_get(row, "live_bytes")) == 1 << 20)
            found = row;
    }
    cr_assert(found, "%s", said.out);
    cr_assert_str_eq(json_string_value(json_object_get(found, "kind")), "linear");
    cr_assert_eq(json_integer_value(json_object_get(found, "device")), 0);
    cr_assert(json_is_integer(json_object_get(found, "device")), "the driver's number");
    cr_assert_eq(json_integer_value(json_object_get(found, "calls")), 1);
    /* The compiler may inline program_alloc: main is the frame above it. */
    bool alloc = false, in_main = false;
    json_array_foreach(json_object_get(found, "frames"), k, frame)
    {
        const char *function = json_string_value(json_object_get(frame, "function"));
        const char *file = json_string_value(json_object_get(frame, "file"));
        const char *module = json_string_value(json_object_get(frame, "module"));
        alloc |= strcmp(function, "program_alloc") == 0;
        in_main |= strcmp(function, "main") == 0 && file && strstr(file, "steps.c");
        cr_assert_null(strstr(module ? module : "", "libgpuprof"), "the library's frames are left out");
    }
    cr_assert(alloc && in_main, "%s", said.out);
    json_decref(top);
    program_end(&spawn);
}

/* `gpuprof run` finds the session while the library starts. The pause is long enough to make this
 * certain. */
Test(by_site, a_report_names_places_after_a_slow_start)
{
    const char *program = path_program("oom_fail");
    char preload[1024];
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%.*s/../preload/pause.so", (int)(strrchr(program, '/') - program),
             program);
    command(2, "run", "--sim", "--stacks=native", "--", "env", "GPUPROF_TEST_PAUSE=worker", preload, program, NULL);
    WARNS("WHERE");
    WARNS("program_alloc (");
}
