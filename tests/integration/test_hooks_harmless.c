/* SPDX-License-Identifier: MIT
 *
 * libgpuprof-shim.so in front of a program changes nothing of it: with every source, in processes
 * that never see a GPU, and for lookups that a library in front could answer wrongly.
 * Run: first
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "lib/build.h"
#include "lib/catalog.h"
#include "lib/paths.h"
#include "lib/same.h"

TestSuite(hooks_harmless, .timeout = 120);

ParameterizedTestParameters(hooks_harmless, every_program_is_the_same)
{
    return catalog_each(catalog_is_light);
}

ParameterizedTest(int *index, hooks_harmless, every_program_is_the_same)
{
    const struct catalog_entry *entry = &catalog[*index];
    const char *argv[CATALOG_ARGS + 2];
    const char *const none[] = {"GPUPROF_SIM_CUPTI=taken:Nsight", NULL};
    struct spawn_options options;
    catalog_options(entry, argv, &options);
    same_expect_ways(catalog_title(entry), &options, (struct same_way[]){{"hooks", NULL}, {"cupti", NULL}}, 2);
    options.env = none; /* wrappers without a source */
    same_expect(catalog_title(entry), &options, "cupti", none);
}

/* Nothing below a preload may notice it that has no GPU: interpreters, pipes, children,
 * environment. */
Test(hooks_harmless, processes_without_cuda)
{
    static const char *const scripts[] = {
        "echo out; echo err >&2; exit 4",
        "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo $i | cat; done | sort -n | tail -n 3",
        "trap 'echo caught' TERM; kill -TERM $$; (exit 3); echo $?; ulimit -c; umask",
        "ls /proc/self/fd | wc -l; cat /proc/self/comm; awk '/Threads/ {print $2}' /proc/self/status",
        "cat /proc/self/maps | grep -c libcuda",
    };
    size_t i;
    for (i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        const char *argv[] = {"/bin/sh", "-c", scripts[i], NULL};
        same_expect(scripts[i], &(struct spawn_options){.argv = argv}, "auto", NULL);
    }
}

/* The answers of dlsym(RTLD_NEXT) and dlsym(RTLD_DEFAULT) depend on the caller: a hook that calls
 * instead of jumping would be the caller.  And without a driver its names are unknown. */
Test(hooks_harmless, lookups_that_depend_on_their_caller)
{
    char *folder = build_folder(), first[256], needed[300];
    const char *argv[] = {path_program("hook_caller_srt"), first, NULL};
    struct spawn_options options = {.argv = argv};
    struct spawn_result result = {0};
    cr_assert_not_null(folder);
    snprintf(first, sizeof(first), "%s/first.so", folder);
    snprintf(needed, sizeof(needed), "-Wl,--no-as-needed,%s/second.so", folder);
    cr_assert_eq(build_shared(folder, "caller.c", "second.so", "-DCALLER_SECOND"), 0);
    cr_assert_eq(build_shared(folder, "caller.c", "first.so", needed), 0);
    same_expect("lookups", &options, "hooks", NULL);
    cr_assert_eq(spawn_run(&options, &result), 0);
    cr_expect_not_null(strstr(result.out, "plug-in: by default 7, next 8\n"), "the plug-in tests nothing:\n%s",
                       result.out);
    spawn_result_free(&result);
    build_remove(folder);
}

static const char *const hooks_programs[] = {"harmless",  "linear", "pool_default", "contexts", "fork",
                                             "linear_rt", NULL};

Test(hooks_harmless, settings_that_make_no_sense)
{
    static const char *const settings[] = {"GPUPROF_SOURCE=elsewhere", "GPUPROF_MEMORY_LIMIT=-3 apples",
                                           "GPUPROF_MEMORY_LIMIT=99999999999999999999T",
                                           "GPUPROF_LOG=loud:/nowhere/at/all", "GPUPROF_ALLOC_CONF=a:b,c"};
    size_t i, j;
    for (i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        for (j = 0; hooks_programs[j] != NULL; j++) {
            const char *env[] = {settings[i], NULL};
            const char *argv[] = {path_program(hooks_programs[j]), NULL};
            same_expect(settings[i], &(struct spawn_options){.argv = argv}, "hooks", env);
        }
    }
}

/* libc fails inside our libraries: calls that can no more be accounted for still reach the driver.
 * Not dlopen from the first call on: a runtime's driver is found by nothing else. */
Test(hooks_harmless, libc_fails_in_the_library)
{
    static const struct same_row rows[] = {
        {"dlopen", NULL}, {"mmap", NULL}, {"memfd_create", NULL}, {"pthread_create", NULL}, {"madvise", NULL}};
    same_expect_failures(&(struct same_failures){.rows = rows,
                                                 .row_count = sizeof(rows) / sizeof(rows[0]),
                                                 .programs = hooks_programs,
                                                 .source = "hooks",
                                                 .most = 2,
                                                 .all_from = 3});
}
