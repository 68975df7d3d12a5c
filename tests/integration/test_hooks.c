/* SPDX-License-Identifier: MIT
 *
 * Driver hooks in the place of CUPTI: every program of the catalog with libgpuprof-shim.so
 * preloaded and nothing else. The numbers equal the simulated GPU's ledger, and the output of stat
 * equals that with CUPTI as the source. If CUPTI is taken, the hooks start by themselves.
 * Run: first
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "lib/catalog.h"
#include "lib/full.h"
#include "lib/paths.h"

TestSuite(hooks, .timeout = 90);

/* ---- the ledger ---------------------------------------------------------------------------------------------- */

static void hooks_check_ledger(const struct catalog_entry *entry, const char *source, const char *const *env)
{
    const char *argv[CATALOG_ARGS + 2];
    struct spawn_options options;
    struct spawn_result result = {0};
    struct ledger_diff diff = {0};
    catalog_options(entry, argv, &options);
    options.source = source;
    options.env = env;
    check_against_ledger(&diff, &options, entry->processes == 0 ? 1 : entry->processes, &entry->rules, &result);
    cr_expect(diff.count == 0, "%s: with hooks gpuprof differs from the ledger:\n%s", catalog_title(entry), diff.text);
    cr_expect(WIFEXITED(result.status) && WEXITSTATUS(result.status) == entry->exit_code, "%s: %s\n%s%s",
              catalog_title(entry), spawn_status_text(&result), result.out, result.err);
    spawn_result_free(&result);
}

ParameterizedTestParameters(hooks, each_program_equals_the_ledger)
{
    return catalog_each(catalog_is_light);
}

ParameterizedTest(int *index, hooks, each_program_equals_the_ledger)
{
    hooks_check_ledger(&catalog[*index], "hooks", NULL);
}

/* ---- CUPTI --------------------------------------------------------------------------------------------------- */

/* stat of the program at its documented end; "source" must be `expected`, and `detail` part of its
 * explanation. */
static json_t *hooks_stat(const struct catalog_entry *entry, const char *source, const char *const *env,
                          const char *expected, const char *detail)
{
    const char *argv[CATALOG_ARGS + 2];
    struct spawn_options options;
    struct spawn_result result = {0};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    json_t *process = NULL;
    catalog_options(entry, argv, &options);
    options.source = source;
    options.env = env;
    options.want_library = options.want_hold = true;
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    if (spawn_wait_held(&spawn, 1) == 0)
        process = ledger_stat(&diff, spawn.held[0]);
    spawn_finish(&spawn, &result);
    cr_assert_not_null(process, "%s: no stat: %s\n%s", catalog_title(entry), diff.text, result.err);
    spawn_result_free(&result);
    cr_expect_str_eq(json_string_value(json_object_get(process, "source")), expected, "%s: source",
                     catalog_title(entry));
    cr_expect_not_null(strstr(json_string_value(json_object_get(process, "source_detail")), detail),
                       "%s: source_detail \"%s\" does not say \"%s\"", catalog_title(entry),
                       json_string_value(json_object_get(process, "source_detail")), detail);
    return process;
}

/* Values that differ between two equal runs.  Only CUPTI sees modules that are not ELF images,
 * since it gets the result of the driver's PTX compiler; hook_contexts loads ELF images.  And only CUPTI
 * reports the end of a green context. */
static void hooks_strip(json_t *process, const struct catalog_entry *entry, bool has_module)
{
    static const char *const run[] = {"pid",           "ppid",  "source", "source_detail",
                                      "cupti_version", "cupti", "age_ns", "oom"};
    bool has_elf = strcmp(entry->name, "hook_contexts") == 0;
    size_t i;
    json_t *device, *value;
    const char *kind;
    for (i = 0; i < sizeof(run) / sizeof(run[0]); i++)
        json_object_del(process, run[i]);
    if ((has_module && !has_elf) || strcmp(entry->name, "green") == 0)
        json_object_del(process, "events");
    json_array_foreach(json_object_get(process, "devices"), i, device)
    {
        json_t *kinds = json_object_get(device, "kinds");
        json_object_del(device, "forecast"); /* what is left follows what is polled, and modules */
        if (!has_elf)
            json_object_del(kinds, "module");
        if (entry->rules.is_reserved_polled) { /* the polled part comes at another moment */
            json_object_del(device, "stats");
            json_object_foreach(kinds, kind, value) json_object_del(value, "reserved_bytes");
        }
    }
}

ParameterizedTestParameters(hooks, each_program_is_as_with_cupti)
{
    return catalog_each(catalog_is_light);
}

ParameterizedTest(int *index, hooks, each_program_is_as_with_cupti)
{
    const struct catalog_entry *entry = &catalog[*index];
    json_t *hooks, *cupti;
    bool has_module;
    if (entry->has_threads || entry->processes > 1)
        return; /* peaks differ from run to run */
    hooks = hooks_stat(entry, "hooks", NULL, "hooks", "libgpuprof-shim.so");
    cupti = hooks_stat(entry, "cupti", NULL, "cupti", "libcupti");
    has_module = json_at(cupti, "devices/0/kinds/module/calls", 0) != 0;
    hooks_strip(hooks, entry, has_module);
    hooks_strip(cupti, entry, has_module);
    if (!json_equal(hooks, cupti)) {
        char *one = json_dumps(hooks, JSON_INDENT(1) | JSON_SORT_KEYS),
             *two = json_dumps(cupti, JSON_INDENT(1) | JSON_SORT_KEYS);
        size_t at = 0;
        while (one[at] != '\0' && one[at] == two[at])
            at++;
        at = at > 200 ? at - 200 : 0;
        cr_expect(false, "%s: hooks:\n%.400s\n...\ncupti:\n%.400s", catalog_title(entry), one + at, two + at);
        free(one);
        free(two);
    }
    json_decref(hooks);
    json_decref(cupti);
}

static const struct catalog_entry *hooks_entry(const char *name)
{
    size_t i;
    for (i = 0; i < catalog_count && strcmp(catalog[i].name, name) != 0; i++) {
    }
    cr_assert(i < catalog_count);
    return &catalog[i];
}

/* Another tool has the subscriber, or CUPTI is missing: the hooks take over and report why, unless
 * the user chose CUPTI. */
Test(hooks, take_over_where_cupti_cannot_be_had)
{
    static const char *const settings[] = {"GPUPROF_SIM_CUPTI=taken:Nsight", "GPUPROF_SIM_CUPTI=none"};
    static const char *const names[] = {"linear", "graph_capture", "linear_rt", "contexts"};
    size_t i, j;
    for (i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        const char *env[] = {settings[i], NULL};
        for (j = 0; j < sizeof(names) / sizeof(names[0]); j++)
            hooks_check_ledger(hooks_entry(names[j]), "auto", env);
        json_decref(hooks_stat(hooks_entry("linear"), "auto", env, "hooks", i == 0 ? "Nsight" : "driver hooks"));
        json_decref(hooks_stat(hooks_entry("linear"), "cupti", env, "none", i == 0 ? "Nsight" : ""));
    }
    json_decref(hooks_stat(hooks_entry("linear"), "auto", NULL, "cupti", "libcupti"));
}

/* Both at once: the driver injects the library that the preload brought. */
Test(hooks, are_there_with_the_injection_too)
{
    char setting[512];
    const char *env[] = {setting, NULL};
    snprintf(setting, sizeof(setting), "CUDA_INJECTION64_PATH=%s", path_library());
    hooks_check_ledger(hooks_entry("linear"), "hooks", env);
    hooks_check_ledger(hooks_entry("proc_address"), "hooks", env);
    json_decref(hooks_stat(hooks_entry("linear"), "hooks", env, "hooks", ""));
}

/* Hooks requested without the shim in front: no source, and the reason. */
Test(hooks, say_so_when_the_shim_is_not_in_front)
{
    char setting[512];
    const char *env[] = {setting, "LD_PRELOAD", NULL};
    snprintf(setting, sizeof(setting), "CUDA_INJECTION64_PATH=%s", path_library());
    json_decref(hooks_stat(hooks_entry("linear"), "hooks", env, "none", "not preloaded"));
}

/* RTLD_DEEPBIND leads a plug-in past the hooks: a viewer and the summary at the end report that. */
Test(hooks, report_a_library_whose_calls_they_do_not_see)
{
    static const char *const ways[] = {"plain", "deep", "alone", "later"};
    static const char *const names[] = {"plugged.so", "plugged.so (opened", "plugged_alone.so",
                                        "calls of plugged.so: another"};
    static const long long seen[] = {24ll << 20, 0, 0, 24ll << 20}; /* of "later": through the variables */
    char setting[512];
    const char *env[] = {setting, NULL}, *source[] = {"GPUPROF_SOURCE=hooks", NULL};
    size_t i;
    int tries;
    snprintf(setting, sizeof(setting), "CUDA_INJECTION64_PATH=%s", path_library());
    for (i = 0; i < 4; i++) {
        const char *argv[] = {path_program(i < 3 ? "plugged" : "variables"), ways[i], NULL};
        const char *command[] = {path_command(), "run", "--sim", "--summary", "--", argv[0], ways[i], NULL};
        struct spawn_options options = {
            .argv = argv, .env = env, .want_library = true, .want_hold = true, .source = "hooks"};
        struct spawn_result result = {0};
        struct ledger_diff diff = {0};
        struct spawn spawn;
        const char *trouble;
        json_t *process;
        cr_assert_eq(spawn_start(&spawn, &options), 0);
        cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
        /* The thread that looks is waited for for some milliseconds only: beside busy neighbours it may be late. */
        for (tries = 0;; tries++) {
            process = ledger_stat(&diff, spawn.held[0]);
            cr_assert_not_null(process, "%s", diff.text);
            trouble = json_string_value(json_object_get(process, "trouble"));
            if (trouble || i == 0 || tries == 5)
                break;
            json_decref(process);
        }
        cr_expect_eq(json_at(process, "devices/0/stats/allocated_bytes.all.current", 0), seen[i]);
        cr_expect(i == 0 ? trouble == NULL : trouble != NULL && strstr(trouble, names[i]) != NULL, "%s: %s", ways[i],
                  trouble);
        json_decref(process);
        spawn_finish(&spawn, &result);
        cr_expect_eq(result.status, 0, "%s", spawn_status_text(&result));
        spawn_result_free(&result);
        options = (struct spawn_options){.argv = command, .env = source};
        for (tries = 0;; tries++) {
            cr_assert_eq(spawn_run(&options, &result), 0);
            if (i == 0 || tries == 5 || strstr(result.out, names[i]))
                break;
            spawn_result_free(&result);
        }
        cr_expect_eq(strstr(result.out, names[i]) != NULL, i > 0, "%s: %.300s", ways[i], result.out);
        spawn_result_free(&result);
    }
}

/* A thread that left a call by a jump counts again, as with CUPTI, and so does one that has the place of a thread which
 * ended inside. */
Test(hooks, count_a_thread_again_that_left_a_call)
{
    static const char *const sources[] = {"hooks", "cupti"};
    char path[] = "/tmp/gpuprof-test-left-XXXXXX", sim[64];
    int fd = mkstemp(path);
    FILE *script = fdopen(fd, "w");
    size_t i;
    cr_assert_not_null(script);
    fputs("cuMemAlloc_v2 2 delay 10s\ncuMemAllocManaged 1 delay 10s\ncuMemFree_v2 1 delay 10s\n", script);
    fclose(script);
    snprintf(sim, sizeof(sim), "faults=%s", path);
    for (i = 0; i < 2; i++) {
        const char *argv[] = {path_program("left_call"), NULL};
        struct spawn_options options = {.argv = argv, .want_library = true, .source = sources[i], .sim = sim};
        struct spawn_result result = {0};
        cr_assert_eq(spawn_run(&options, &result), 0);
        cr_expect(result.status == 0 && strcmp(result.out, "allocated 120 MiB\n") == 0, "%s: %s: %s%s", sources[i],
                  spawn_status_text(&result), result.out, result.err);
        spawn_result_free(&result);
    }
    unlink(path);
}

Test(hooks, random_walks_equal_the_ledger, .timeout = 180)
{
    int seed;
    for (seed = 200; seed < (test_is_full() ? 215 : 205); seed++) {
        char number[16];
        struct catalog_entry entry = {.name = "mixed",
                                      .args = {"--seed", number, "--steps", "600"},
                                      .note = number,
                                      .rules = {.is_reserved_polled = true}};
        snprintf(number, sizeof(number), "%d", seed);
        hooks_check_ledger(&entry, "hooks", NULL);
    }
}
