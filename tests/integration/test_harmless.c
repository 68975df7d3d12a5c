/* SPDX-License-Identifier: MIT
 *
 * The library does not affect the program: both outputs and the exit status are the same with and
 * without it, when everything works, when CUPTI is missing, taken, old or wrong, with invalid
 * settings, and when any libc function fails inside the library.
 * Run: first
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/build.h"
#include "lib/catalog.h"
#include "lib/paths.h"
#include "lib/same.h"

TestSuite(harmless, .timeout = 90);

ParameterizedTestParameters(harmless, every_program_is_the_same)
{
    return catalog_each(catalog_is_light);
}

ParameterizedTest(int *index, harmless, every_program_is_the_same)
{
    const struct catalog_entry *entry = &catalog[*index];
    const char *argv[CATALOG_ARGS + 2];
    struct spawn_options options;
    catalog_options(entry, argv, &options);
    same_expect(catalog_title(entry), &options, NULL, NULL);
}

/* ---- surroundings -------------------------------------------------------------------------------------------- */

static const char *const harmless_programs[] = {"harmless", "linear", "pool_default", "contexts", "fork", "linear_rt"};

static void harmless_everywhere(const char *what, const char *const *env, const char *const *with_env)
{
    char title[128];
    size_t i;
    for (i = 0; i < sizeof(harmless_programs) / sizeof(harmless_programs[0]); i++) {
        const char *argv[] = {path_program(harmless_programs[i]), NULL};
        snprintf(title, sizeof(title), "%s, %s", what, harmless_programs[i]);
        same_expect(title, &(struct spawn_options){.argv = argv, .env = env}, NULL, with_env);
    }
}

Test(harmless, settings_that_make_no_sense)
{
    static const char *const settings[] = {"GPUPROF_SOURCE=elsewhere",
                                           "GPUPROF_ALLOCATOR=nothing",
                                           "GPUPROF_MEMORY_LIMIT=-3 apples",
                                           "GPUPROF_STACKS=tall",
                                           "GPUPROF_RECORD=/nowhere/%p/%p/%s%n",
                                           "GPUPROF_LOG=loud:/nowhere/at/all",
                                           "GPUPROF_NO_SUCH_THING=1",
                                           "GPUPROF_ALLOC_CONF=a:b,c",
                                           "GPUPROF_SOURCE=",
                                           "GPUPROF_LOG=",
                                           "GPUPROF_SOURCE=hooks"};
    size_t i;
    for (i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        const char *env[] = {settings[i], NULL};
        harmless_everywhere(settings[i], NULL, env);
    }
}

Test(harmless, the_library_is_missing_or_not_one)
{
    const char *const nowhere[] = {"CUDA_INJECTION64_PATH=/nowhere/libgpuprof.so", NULL};
    const char *const text[] = {"CUDA_INJECTION64_PATH=/etc/passwd", NULL};
    harmless_everywhere("missing library", NULL, nowhere);
    harmless_everywhere("a text file", NULL, text);
}

Test(harmless, the_library_is_preloaded)
{
    char setting[512];
    const char *both[] = {setting, NULL};
    const char *alone[] = {setting, "CUDA_INJECTION64_PATH", NULL};
    snprintf(setting, sizeof(setting), "LD_PRELOAD=%s", path_library());
    harmless_everywhere("preloaded and injected", NULL, both);
    harmless_everywhere("preloaded alone", NULL, alone);
}

/* A program that never touches CUDA, with the library preloaded. */
Test(harmless, a_program_without_cuda)
{
    char setting[512];
    const char *env[] = {setting, NULL};
    const char *argv[] = {"/bin/sh", "-c", "echo out; echo err >&2; exit 4", NULL};
    snprintf(setting, sizeof(setting), "LD_PRELOAD=%s", path_library());
    same_expect("sh", &(struct spawn_options){.argv = argv}, NULL, env);
}

/* ---- CUPTI --------------------------------------------------------------------------------------------------- */

/* What stat says while the subscriber cannot be had: never "cupti", and no process may be hidden. */
static void harmless_source(const char *env_setting)
{
    const char *env[] = {env_setting, NULL};
    const char *argv[] = {path_program("linear"), NULL};
    struct spawn_options options = {.argv = argv, .env = env, .want_library = true, .want_hold = true};
    struct spawn_result result = {0};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    const char *source;
    json_t *process;
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    process = ledger_stat(&diff, spawn.held[0]);
    source = json_string_value(json_object_get(process, "source"));
    cr_expect(source != NULL && strcmp(source, "cupti") != 0, "%s: source %s\n%s", env_setting,
              source != NULL ? source : "missing", diff.text);
    json_decref(process);
    spawn_finish(&spawn, &result);
    spawn_result_free(&result);
}

Test(harmless, cupti_answers_otherwise)
{
    static const char *const settings[] = {"GPUPROF_SIM_CUPTI=taken:Nsight", "GPUPROF_SIM_CUPTI=none",
                                           "GPUPROF_SIM_CUPTI=old",          "GPUPROF_SIM_CUPTI=deaf",
                                           "GPUPROF_SIM_CUPTI=13.3",         "GPUPROF_SIM_CUPTI=shifted"};
    size_t i;
    for (i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        const char *env[] = {settings[i], NULL};
        harmless_everywhere(settings[i], env, env);
    }
    harmless_source(settings[0]);
    harmless_source(settings[1]);
}

Test(harmless, cupti_is_missing_or_wrong)
{
    char *folder = build_folder();
    char setting[600], link[512], target[512];
    const char *env[] = {setting, NULL};
    cr_assert_not_null(folder);
    snprintf(target, sizeof(target), "%s/libcuda.so.1", path_sim());
    snprintf(link, sizeof(link), "%s/libcuda.so.1", folder);
    cr_assert_eq(symlink(target, link), 0);
    snprintf(target, sizeof(target), "%s/libcudart.so.13", path_sim());
    snprintf(link, sizeof(link), "%s/libcudart.so.13", folder);
    cr_assert_eq(symlink(target, link), 0);
    snprintf(setting, sizeof(setting), "LD_LIBRARY_PATH=%s", folder);
    harmless_everywhere("no CUPTI", env, env);

    cr_assert_eq(build_shared(folder, "tls.c", "libcupti.so.13", NULL), 0);
    harmless_everywhere("a CUPTI without symbols", env, env);
    build_remove(folder);
}

/* ---- what the machine refuses -------------------------------------------------------------------------------- */

Test(harmless, no_memory_file_and_no_thread)
{
    const char *argv[] = {path_program("harmless"), NULL};
    int which;
    for (which = 1; which < 4; which++) {
        struct spawn_options options = {
            .argv = argv, .want_seccomp_memfd = which & 1, .want_seccomp_thread = (which & 2) != 0};
        same_expect("seccomp", &options, NULL, NULL);
    }
}

#define HARMLESS_TLS 120 /* 16 bytes each: glibc 2.35's whole room for late libraries is 1664 bytes */

/* With no room at all the loader may refuse the library, which must not show; with 128 bytes left
 * it must work. */
Test(harmless, static_tls_is_used_up)
{
    char *folder = build_folder(), paths[HARMLESS_TLS][64], *first;
    const char *argv[HARMLESS_TLS + 2] = {path_program("static_tls")};
    struct spawn_options options = {.argv = argv};
    struct spawn_result result = {0};
    struct ledger_diff diff = {0};
    int i, opened = 0;
    cr_assert_not_null(folder);
    cr_assert_eq(build_shared(folder, "tls.c", "tls0.so", "-DTLS_BYTES=16"), 0);
    for (i = 0; i < HARMLESS_TLS; i++) {
        snprintf(paths[i], sizeof(paths[i]), "%s/tls%d.so", folder, i);
        cr_assert(i == 0 || build_copy(paths[0], paths[i]) == 0);
        argv[i + 1] = paths[i];
    }
    same_expect("static TLS used up", &options, NULL, NULL);
    cr_assert_eq(spawn_run(&options, &result), 0);
    first = strstr(result.out, "opened ");
    opened = first != NULL ? atoi(first + 7) : 0;
    cr_assert(opened > 8 && opened < HARMLESS_TLS, "the room was not used up, so nothing was tested:\n%s", result.out);
    spawn_result_free(&result);
    argv[opened - 8 + 1] = NULL;
    check_against_ledger(&diff, &options, 1, &(struct ledger_rules){0}, &result);
    cr_expect_eq(diff.count, 0, "with 128 bytes of static TLS left:\n%s", diff.text);
    spawn_result_free(&result);
    build_remove(folder);
}

/* ---- no GPU -------------------------------------------------------------------------------------------------- */

/* Runs `linear` under a driver library whose file has the name of NVIDIA's, and expects the text in
 * the library's log. */
static void harmless_named(const char *folder, const char *source, const char *text, bool is_there)
{
    char path[600], log[600], word[700], content[8192] = "";
    const char *argv[] = {path_program("linear"), NULL};
    const char *env[] = {path, log, NULL};
    struct spawn_options options = {.argv = argv, .env = env, .want_library = true, .source = source};
    struct spawn_result result = {0};
    FILE *file;
    snprintf(path, sizeof(path), "LD_LIBRARY_PATH=%s:%s", folder, path_sim());
    snprintf(log, sizeof(log), "GPUPROF_LOG=info:%s/log", folder);
    cr_assert_eq(spawn_run(&options, &result), 0);
    cr_expect_eq(result.status, 0, "status %#x", result.status);
    spawn_result_free(&result);
    snprintf(word, sizeof(word), "%s/log", folder);
    file = fopen(word, "r");
    cr_assert_not_null(file);
    content[fread(content, 1, sizeof(content) - 1, file)] = '\0';
    fclose(file);
    unlink(word);
    cr_expect_eq(strstr(content, text) != NULL, is_there, "%s: %s", text, content);
}

/* NVIDIA's driver and no sign of a GPU: nothing is started, unless the preload saw that cuInit
 * succeeded.  The same library under another name starts as ever. */
Test(harmless, nothing_starts_without_a_gpu)
{
    char *folder = build_folder(), from[600], to[600], link[600];
    cr_assert_not_null(folder);
    if (access("/proc/driver/nvidia", F_OK) == 0 || access("/dev/dxg", F_OK) == 0 ||
        access("/usr/bin/nvidia-modprobe", F_OK) == 0) {
        build_remove(folder);
        cr_skip_test("this machine shows signs of a GPU");
    }
    snprintf(from, sizeof(from), "%s/libcuda.so.1", path_sim());
    snprintf(to, sizeof(to), "%s/libcuda.so.999.10.02", folder);
    snprintf(link, sizeof(link), "%s/libcuda.so.1", folder);
    cr_assert_eq(build_copy(from, to), 0);
    cr_assert_eq(symlink("libcuda.so.999.10.02", link), 0);
    harmless_named(folder, NULL, "no GPU here: switched off", true);
    harmless_named(folder, "hooks", "source: libgpuprof-shim.so", true);
    cr_assert_eq(unlink(link), 0);
    cr_assert_eq(rename(to, link), 0);
    harmless_named(folder, NULL, "no GPU here", false);
    build_remove(folder);
}

/* ---- exit ---------------------------------------------------------------------------------------------------- */

/* The poller is in a round of slow questions when the program exits. */
/* The line of the memory is cut off the output. */
static long harmless_locked(struct spawn_options *options, struct spawn_result *result)
{
    char *kib;
    cr_assert_eq(spawn_run(options, result), 0);
    kib = strstr(result->out, "in KiB: ");
    cr_assert_not_null(kib, "%s: %s%s", spawn_status_text(result), result->out, result->err);
    *kib = '\0';
    return strtol(kib + strlen("in KiB: "), NULL, 10);
}

/* docs/limits.md has the numbers. */
Test(harmless, locked_memory_is_bounded)
{
    static const char *const ways[][2] = {
        {"before", "all"}, {"after", "all"}, {"before", "limited"}, {"after", "limited"}};
    static const char *const settings[] = {"GPUPROF_STACKS=off", "GPUPROF_STACKS=all", "GPUPROF_RECORD=/dev/null"};
    static const long most[] = {30 * 1024, 70 * 1024, 120 * 1024};
    size_t i, j;
    for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        const char *argv[] = {path_program("locked"), ways[i][0], ways[i][1], NULL};
        struct spawn_result plain = {0};
        struct spawn_options options = {.argv = argv};
        long kib = harmless_locked(&options, &plain);
        for (j = 0; j < sizeof(settings) / sizeof(settings[0]); j++) {
            const char *env[] = {settings[j], NULL};
            struct spawn_result with = {0};
            options = (struct spawn_options){.argv = argv, .env = env, .want_library = true};
            cr_expect_leq(harmless_locked(&options, &with) - kib, most[j], "%s %s, %s: %ld KiB plain", ways[i][0],
                          ways[i][1], settings[j], kib);
            cr_expect_str_eq(with.out, plain.out);
            cr_expect_eq(with.status, plain.status);
            spawn_result_free(&with);
        }
        spawn_result_free(&plain);
    }
}

Test(harmless, no_question_to_the_driver_begins_after_the_exit)
{
    const char *argv[] = {path_program("exit_poll"), NULL};
    const char *env[] = {"GPUPROF_SIM_FAULTS=cuMemPoolGetAttribute 1+ delay 10ms", NULL};
    struct spawn_options options = {.argv = argv, .env = env, .want_library = true};
    struct spawn_result result = {0};
    cr_assert_eq(spawn_run(&options, &result), 0);
    cr_expect_eq(result.status, 0, "status %#x: %s", result.status, result.out);
    spawn_result_free(&result);
}

/* ---- any libc function fails inside the library -------------------------------------------------------------- */

Test(harmless, any_libc_function_may_fail, .timeout = 180)
{
    static const char *const programs[] = {"harmless", NULL};
    static const struct same_row rows[] = {
        {"memfd_create", NULL}, {"ftruncate", NULL},      {"mmap", NULL},
        {"madvise", NULL},      {"fcntl", NULL},          {"fstat", NULL},
        {"close", NULL},        {"open", NULL},           {"write", NULL},
        {"dlopen", NULL},       {"dlsym", NULL},          {"getrandom", NULL},
        {"getrlimit", NULL},    {"pthread_create", NULL}, {"__register_atfork", NULL},
    };
    char *folder = build_folder(), log[300];
    const char *env[] = {log, NULL};
    cr_assert_not_null(folder);
    snprintf(log, sizeof(log), "GPUPROF_LOG=debug:%s/log", folder);
    same_expect_failures(&(struct same_failures){.rows = rows,
                                                 .row_count = sizeof(rows) / sizeof(rows[0]),
                                                 .programs = programs,
                                                 .env = env,
                                                 .most = 64,
                                                 .all_from = 1});
    build_remove(folder);
}
