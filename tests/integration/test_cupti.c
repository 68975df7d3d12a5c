/* SPDX-License-Identifier: MIT
 *
 * Which copy of CUPTI becomes the source: every copy is tried, in the right order, and the session, stat and doctor show
 * what each answered. A copy that gpuprof loads does not take the place of the program's own. CUPTI is shared where it can
 * be, and its end is noticed.
 */
#include <criterion/criterion.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/build.h"
#include "lib/catalog.h"
#include "lib/ledger.h"
#include "lib/paths.h"
#include "lib/spawn.h"

#define CUPTI_ARGS 8

/* A folder that is the only one in LD_LIBRARY_PATH: the simulated driver, and copies of CUPTI. */
struct place {
    char *folder;
    char path[PATH_MAX + 32];     /* LD_LIBRARY_PATH=... */
    char settings[PATH_MAX + 32]; /* GPUPROF_SIM_CUPTI=... */
    char form[32];                /* GPUPROF_CUPTI=... */
};

TestSuite(cupti, .timeout = 60);

static const char *place_file(const struct place *place, const char *name)
{
    static char files[4][PATH_MAX];
    static unsigned next;
    char *file = files[next++ % 4];
    snprintf(file, PATH_MAX, "%s/%s", place->folder, name);
    return file;
}

static void place_begin(struct place *place, const char *settings)
{
    char from[PATH_MAX];
    place->folder = build_folder();
    cr_assert_not_null(place->folder);
    snprintf(from, sizeof(from), "%s/libcuda.so.1", path_sim());
    cr_assert_eq(symlink(from, place_file(place, "libcuda.so.1")), 0);
    snprintf(place->path, sizeof(place->path), "LD_LIBRARY_PATH=%s", place->folder);
    snprintf(place->form, sizeof(place->form), "GPUPROF_CUPTI=");
    snprintf(place->settings, sizeof(place->settings), "GPUPROF_SIM_CUPTI=%s", settings);
}

static void place_copy(const struct place *place, const char *name)
{
    char from[PATH_MAX];
    snprintf(from, sizeof(from), "%s/libcupti.so.13", path_sim());
    cr_assert_eq(build_copy(from, place_file(place, name)), 0);
}

/* Gives the copy another soname, which no library of this machine has: libcupti.so.77. */
static void place_rename(const struct place *place, const char *name)
{
    static const char before[] = "libcupti.so.13", after[] = "libcupti.so.77";
    static char bytes[1 << 20];
    FILE *file = fopen(place_file(place, name), "r+");
    size_t count, i;
    cr_assert_not_null(file);
    count = fread(bytes, 1, sizeof(bytes), file);
    for (i = 0; i + sizeof(before) <= count; i++)
        if (memcmp(bytes + i, before, sizeof(before)) == 0)
            memcpy(bytes + i, after, sizeof(after));
    rewind(file);
    cr_assert_eq(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

/* Runs the program with these arguments, separated by blanks. Returns its stat at its end; the page of doctor is then in
 * result->err. */
static json_t *place_stat(const struct place *place, const char *arguments, struct spawn_result *result)
{
    const char *argv[CUPTI_ARGS + 2] = {path_program("cupti")},
                                  *env[] = {place->path, place->settings, place->form, NULL};
    struct spawn_options options = {.argv = argv, .env = env, .want_library = true, .want_hold = true};
    char *words = strdup(arguments), *state = NULL, *word;
    struct ledger_diff diff = {0};
    struct spawn spawn;
    json_t *process = NULL;
    int n = 1;
    for (word = strtok_r(words, " ", &state); word != NULL && n <= CUPTI_ARGS; word = strtok_r(NULL, " ", &state))
        argv[n++] = word;
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    if (spawn_wait_held(&spawn, 1) == 0) {
        /* First, once the poll thread has seen the first device. */
        for (const char *at = arguments; (at = strstr(at, "wait")) != NULL; at++) {
            json_decref(ledger_stat(&diff, spawn.held[0]));
            cr_assert_eq(spawn_step(&spawn), 0);
        }
        process = ledger_stat(&diff, spawn.held[0]);
        struct spawn_result doctor = {0};
        cr_assert_eq(spawn_command(&doctor, "doctor", NULL), 0);
        result->out = doctor.out;
        free(doctor.err);
    }
    char *report = result->out;
    spawn_finish(&spawn, result);
    free(words);
    cr_assert_not_null(process, "no stat: %s\n%s%s", diff.text, result->out, result->err);
    cr_expect(WIFEXITED(result->status) && WEXITSTATUS(result->status) == 0, "%s\n%s%s", spawn_status_text(result),
              result->out, result->err);
    free(result->err);
    result->err = report; /* the program prints nothing there; doctor's page instead */
    return process;
}

static const char *text_at(const json_t *process, const char *key)
{
    const char *text = json_string_value(json_object_get(process, key));
    return text != NULL ? text : "";
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* The copy that was tried as number `index` lies in the place. */
static void expect_copy(const struct place *place, const json_t *process, size_t index, const char *name, int status,
                        const char *answer)
{
    const json_t *copy = json_array_get(json_object_get(json_object_get(process, "cupti"), "copies"), index);
    cr_expect_str_eq(text_at(copy, "path"), place_file(place, name), "copy %zu", index);
    cr_expect_eq(json_at(copy, "status", 4711), status, "copy %zu: status", index);
    cr_expect_str_eq(text_at(copy, "answer"), answer, "copy %zu: answer", index);
}

static void place_end(struct place *place, json_t *process, struct spawn_result *result)
{
    json_decref(process);
    spawn_result_free(result);
    build_remove(place->folder);
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

static void search_goes_on(const char *settings, int status, const char *answer)
{
    struct place place;
    struct spawn_result result = {0};
    char line[PATH_MAX + 200];
    place_begin(&place, settings);
    place_copy(&place, "libcupti.so.13");
    place_copy(&place, "libcupti.so.12");
    json_t *process = place_stat(&place, "init", &result);
    cr_expect_str_eq(text_at(process, "source"), "cupti");
    cr_expect(ends_with(text_at(process, "source_detail"), "/libcupti.so.12"), "%s", text_at(process, "source_detail"));
    cr_expect_eq(json_at(process, "cupti/tried", 0), 2);
    expect_copy(&place, process, 0, "libcupti.so.13", status, answer);
    expect_copy(&place, process, 1, "libcupti.so.12", 0, "CUPTI_SUCCESS");
    cr_expect_eq(json_at(process, "devices/0/kinds/linear/current_bytes", 0), 1048576);
    snprintf(line, sizeof(line), "tried %s, version 130001: %s", place_file(&place, "libcupti.so.13"), answer);
    cr_expect_not_null(strstr(result.err, line), "doctor does not say \"%s\":\n%s", line, result.err);
    place_end(&place, process, &result);
}

Test(cupti, every_copy_is_tried)
{
    search_goes_on("none@libcupti.so.13", 999, "CUPTI_ERROR_UNKNOWN");
    search_goes_on("old@libcupti.so.13", 15, "CUPTI_ERROR_NOT_INITIALIZED");
}

Test(cupti, a_copy_that_enables_nothing_is_not_the_source)
{
    search_goes_on("deaf@libcupti.so.13", -3, "it enabled no callback");
}

Test(cupti, only_another_subscriber_ends_the_search)
{
    struct place place;
    struct spawn_result result = {0};
    place_begin(&place, "taken:Nsight@libcupti.so.13");
    place_copy(&place, "libcupti.so.13");
    place_copy(&place, "libcupti.so.12");
    json_t *process = place_stat(&place, "init", &result);
    cr_expect_str_eq(text_at(process, "source"), "none");
    cr_expect_not_null(strstr(text_at(process, "source_detail"), "Nsight"), "%s", text_at(process, "source_detail"));
    cr_expect_eq(json_at(process, "cupti/tried", 0), 1);
    expect_copy(&place, process, 0, "libcupti.so.13", 39, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED");
    cr_expect_not_null(strstr(result.err, "gpuprof run"), "doctor does not say what to do:\n%s", result.err);
    place_end(&place, process, &result);
}

/* The simulated driver is one of CUDA 13: version 14 comes last, a file that is no library is passed over. */
Test(cupti, the_version_that_fits_is_tried_first)
{
    struct place place;
    struct spawn_result result = {0};
    FILE *file;
    place_begin(&place, "none@libcupti.so.13");
    place_copy(&place, "libcupti.so.14");
    place_copy(&place, "libcupti.so.13");
    file = fopen(place_file(&place, "libcupti.so.12"), "w");
    cr_assert_not_null(file);
    fputs("not a library, and longer than its header would be, so that the loader reads it all", file);
    fclose(file);
    json_t *process = place_stat(&place, "init", &result);
    expect_copy(&place, process, 0, "libcupti.so.13", 999, "CUPTI_ERROR_UNKNOWN");
    expect_copy(&place, process, 1, "libcupti.so.12", -1, "invalid ELF header");
    cr_expect(ends_with(text_at(process, "source_detail"), "/libcupti.so.14"), "%s", text_at(process, "source_detail"));
    place_end(&place, process, &result);
}

Test(cupti, the_copy_of_the_program_comes_first)
{
    struct place place;
    struct spawn_result result = {0};
    char arguments[PATH_MAX];
    place_begin(&place, "");
    place_copy(&place, "libcupti.so.13");
    place_copy(&place, "libcupti.so.12");
    snprintf(arguments, sizeof(arguments), "open:%s init", place_file(&place, "libcupti.so.12"));
    json_t *process = place_stat(&place, arguments, &result);
    cr_expect(ends_with(text_at(process, "source_detail"), "/libcupti.so.12"), "%s", text_at(process, "source_detail"));
    place_end(&place, process, &result);
}

/* A machine without a profiled process: doctor tries the copies itself. */
Test(cupti, doctor_tries_the_copies)
{
    struct place place;
    struct spawn_result result = {0};
    char expected[2 * PATH_MAX];
    const char *argv[] = {path_command(), "doctor", NULL}, *env[] = {place.path, place.settings, NULL};
    struct spawn_options options = {.argv = argv, .env = env};
    place_begin(&place, "none@libcupti.so.13");
    place_copy(&place, "libcupti.so.13");
    place_copy(&place, "libcupti.so.12");
    cr_assert_eq(spawn_run(&options, &result), 0);
    snprintf(expected, sizeof(expected),
             "ok       %s, API version 130001; in vain: %s: cuptiSubscribe answers CUPTI_ERROR_UNKNOWN (999)",
             place_file(&place, "libcupti.so.12"), place_file(&place, "libcupti.so.13"));
    cr_expect_not_null(strstr(result.out, expected), "\"%s\" is not in\n%s", expected, result.out);
    cr_expect_not_null(strstr(result.out, "libcuda.so.1 for CUDA 13.4"), "%s", result.out);
    spawn_result_free(&result);
    build_remove(place.folder);
}

/* ---- the name ---------------------------------------------------------------------------------------------------- */

/* A library that comes after cuInit needs libcupti.so.13, and brings one that has more functions than the copy that gpuprof
 * has loaded. It gets its own, and a program that opens the same file gets the same copy. */
Test(cupti, a_library_that_comes_later_gets_its_own_copy)
{
    struct place place;
    struct spawn_result result = {0};
    char *other = build_folder();
    char extra[2 * PATH_MAX + 64], arguments[2 * PATH_MAX];
    place_begin(&place, "");
    place_copy(&place, "libcupti.so.12"); /* its soname is libcupti.so.13 */
    cr_assert_eq(build_shared(other, "cupti_other.c", "libcupti.so.13", "-Wl,-soname,libcupti.so.13"), 0);
    snprintf(extra, sizeof(extra), "-Wl,-z,now,-rpath,%s,--no-as-needed,%s/libcupti.so.13", other, other);
    cr_assert_eq(build_shared(other, "cupti_user.c", "libuser.so", extra), 0);
    snprintf(arguments, sizeof(arguments), "init user:%s/libuser.so subscribe:%s", other,
             place_file(&place, "libcupti.so.12"));
    json_t *process = place_stat(&place, arguments, &result);
    cr_expect(ends_with(text_at(process, "source_detail"), "/libcupti.so.12"), "%s", text_at(process, "source_detail"));
    cr_expect_not_null(strstr(result.out, "answer: 4711"), "%s", result.out);
    cr_expect_not_null(strstr(result.out, "cuptiSubscribe: 39"), "%s", result.out);
    build_remove(other);
    place_end(&place, process, &result);
}

/* A module of Python shows where its packages are.  PyTorch and JAX open the CUPTI there by path, and then libraries that need
 * its name and have no path to it. */
Test(cupti, a_wheel_keeps_its_name)
{
    struct place place;
    struct spawn_result result = {0};
    char folder[PATH_MAX], command[PATH_MAX + 32], extra[2 * PATH_MAX], arguments[4 * PATH_MAX];
    place_begin(&place, "");
    place_copy(&place, "libcupti.so.12");
    snprintf(folder, sizeof(folder), "%s", place_file(&place, "site-packages/nvidia/cuda_cupti/lib"));
    snprintf(command, sizeof(command), "mkdir -p %s", folder);
    cr_assert_eq(system(command), 0);
    place_copy(&place, "site-packages/nvidia/cuda_cupti/lib/libcupti.so.13");
    place_rename(&place, "site-packages/nvidia/cuda_cupti/lib/libcupti.so.13");
    cr_assert_eq(build_shared(place.folder, "cupti_other.c", "site-packages/module.so", NULL), 0);
    snprintf(extra, sizeof(extra), "-Wl,--no-as-needed,%s/libcupti.so.13", folder);
    cr_assert_eq(build_shared(place.folder, "cupti_other.c", "needs.so", extra), 0);
    snprintf(arguments, sizeof(arguments),
             "open:%s/site-packages/module.so init open:%s/libcupti.so.13 open:%s/needs.so", place.folder, folder,
             place.folder);
    json_t *process = place_stat(&place, arguments, &result);
    expect_copy(&place, process, 0, "site-packages/nvidia/cuda_cupti/lib/libcupti.so.13", 0, "CUPTI_SUCCESS");
    cr_expect_not_null(strstr(result.out, "needs.so: opened"), "%s", result.out);
    snprintf(command, sizeof(command), "rm -r %s", place_file(&place, "site-packages"));
    cr_expect_eq(system(command), 0);
    place_end(&place, process, &result);
}

/* ---- together with others ---------------------------------------------------------------------------------------- */

/* What the program's second form answers beside ours, and whether ours shares. linked: before cuInit, the program opens a
 * library that imports that form. */
static void expect_share(const char *form, bool is_linked, bool is_shared)
{
    struct place place;
    struct spawn_result result = {0};
    char arguments[3 * PATH_MAX], extra[PATH_MAX + 32];
    place_begin(&place, "13.3");
    snprintf(place.form, sizeof(place.form), "GPUPROF_CUPTI=%s", form);
    place_copy(&place, "libcupti.so.13");
    snprintf(extra, sizeof(extra), "-Wl,--no-as-needed,%s/libcupti.so.13", place.folder);
    cr_assert_eq(build_shared(place.folder, "cupti_linked.c", "linked.so", extra), 0);
    snprintf(arguments, sizeof(arguments), "%s%s%s init share:%s/libcupti.so.13 alloc", is_linked ? "open:" : "",
             is_linked ? place.folder : "", is_linked ? "/linked.so" : "", place.folder);
    json_t *process = place_stat(&place, arguments, &result);
    cr_expect_str_eq(text_at(process, "source"), "cupti");
    cr_expect_eq(json_is_true(json_object_get(json_object_get(process, "cupti"), "shared")), is_shared, "%s", form);
    cr_expect_eq(json_at(process, "devices/0/kinds/linear/current_bytes", 0), 2 * 1048576);
    cr_expect_not_null(strstr(result.out, is_shared ? "cuptiSubscribe_v2: 0" : "cuptiSubscribe_v2: 39"), "%s: %s", form,
                       result.out);
    cr_expect_eq(strstr(result.out, "callbacks: 2") != NULL, is_shared, "%s", result.out);
    place_end(&place, process, &result);
}

Test(cupti, the_subscriber_is_shared)
{
    expect_share("shared", false, true);
    expect_share("auto", true, true);
    expect_share("auto", false, false);
    expect_share("v1", true, false);
    expect_share("v2", true, false);
}

/* A tool that shares was there first: V1 is refused, and V2 succeeds. */
Test(cupti, the_subscriber_is_shared_with_an_earlier_tool)
{
    struct place place;
    struct spawn_result result = {0};
    char arguments[PATH_MAX];
    place_begin(&place, "13.3");
    place_copy(&place, "libcupti.so.13");
    snprintf(arguments, sizeof(arguments), "share:%s init alloc", place_file(&place, "libcupti.so.13"));
    json_t *process = place_stat(&place, arguments, &result);
    cr_expect_str_eq(text_at(process, "source"), "cupti");
    cr_expect(json_is_true(json_object_get(json_object_get(process, "cupti"), "shared")));
    cr_expect_eq(json_at(process, "devices/0/kinds/linear/current_bytes", 0), 2 * 1048576);
    place_end(&place, process, &result);
}

Test(cupti, its_end_is_noticed)
{
    struct place place;
    struct spawn_result result = {0};
    char arguments[PATH_MAX];
    place_begin(&place, "");
    place_copy(&place, "libcupti.so.13");
    json_t *process = place_stat(&place, "init wait alloc", &result);
    cr_expect(json_is_false(json_object_get(json_object_get(process, "cupti"), "gone")));
    cr_expect_null(strstr(result.err, "cuptiFinalize"), "%s", result.err);
    json_decref(process);
    spawn_result_free(&result);
    snprintf(arguments, sizeof(arguments), "init wait finalize:%s subscribe:%s alloc",
             place_file(&place, "libcupti.so.13"), place_file(&place, "libcupti.so.13"));
    process = place_stat(&place, arguments, &result);
    cr_expect(json_is_true(json_object_get(json_object_get(process, "cupti"), "gone")));
    cr_expect_not_null(strstr(result.err, "cuptiFinalize"), "doctor does not say so:\n%s", result.err);
    place_end(&place, process, &result);
}

/* The poll of a viewer notices it and subscribes again. What was allocated in between stays
 * unknown. */
Test(cupti, after_its_end_callbacks_come_again)
{
    struct place place;
    struct spawn_result result = {0};
    char arguments[PATH_MAX];
    json_t *process;
    place_begin(&place, "");
    place_copy(&place, "libcupti.so.13");
    snprintf(arguments, sizeof(arguments), "init wait finalize:%s alloc wait alloc alloc",
             place_file(&place, "libcupti.so.13"));
    process = place_stat(&place, arguments, &result);
    cr_expect(json_is_false(json_object_get(json_object_get(process, "cupti"), "gone")));
    cr_expect_eq(json_at(process, "devices/0/kinds/linear/current_bytes", 0), 3 * 1048576);
    cr_expect_not_null(strstr(text_at(process, "trouble"), "(cuptiFinalize) 1 times"), "%s",
                       text_at(process, "trouble"));
    cr_expect_not_null(strstr(text_at(process, "trouble"), "are missing, and 1.0 MiB of then"), "%s",
                       text_at(process, "trouble"));
    cr_expect_not_null(strstr(result.err, "cuptiFinalize"), "doctor does not say so:\n%s", result.err);
    place_end(&place, process, &result);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

Test(cupti, rows_are_found_by_name)
{
    struct place place;
    struct spawn_result result = {0};
    place_begin(&place, "shifted");
    place_copy(&place, "libcupti.so.13");
    json_t *process = place_stat(&place, "init alloc", &result);
    cr_expect_str_eq(text_at(process, "source"), "cupti");
    cr_expect_eq(json_at(process, "devices/0/kinds/linear/current_bytes", 0), 2 * 1048576);
    place_end(&place, process, &result);
}

Test(cupti, newer_entry_points_are_listed)
{
    struct place place;
    struct spawn_result result = {0};
    place_begin(&place, "newer");
    place_copy(&place, "libcupti.so.13");
    json_t *process = place_stat(&place, "init", &result);
    cr_expect_eq(json_at(process, "cupti/unknown_entry_points", -1), 2);
    cr_expect_not_null(strstr(result.err, "cuSimMemNewer, cuSimLogicalEndpointNewer"), "%s", result.err);
    place_end(&place, process, &result);
}

/* ---- run --------------------------------------------------------------------------------------------------------- */

/* `gpuprof run PROGRAM` counts what the ledger counts, and prints `message` once; nothing if it is NULL. */
static void run_is_exact(const char *setting, const char *program, const char *argument, const char *message)
{
    const char *argv[] = {
        path_command(), "run", path_program(program), argument, argument != NULL ? "init" : NULL, NULL};
    const char *env[] = {setting, NULL};
    struct spawn_options options = {.argv = argv, .env = env};
    struct spawn_result result = {0};
    struct ledger_diff diff = {0};
    struct ledger_rules rules = {0};
    for (size_t i = 0; i < catalog_count; i++) {
        if (strcmp(catalog[i].name, program) == 0) {
            rules = catalog[i].rules;
            options.sim = catalog[i].sim;
        }
    }
    check_against_ledger(&diff, &options, 1, &rules, &result);
    cr_expect_eq(diff.count, 0, "%s %s: differs from the ledger:\n%s", setting, program, diff.text);
    cr_expect(WIFEXITED(result.status) && WEXITSTATUS(result.status) == 0, "%s %s: %s\n%s%s", setting, program,
              spawn_status_text(&result), result.out, result.err);
    const char *first = message != NULL ? strstr(result.err, message) : NULL;
    cr_expect(message != NULL ? first != NULL && strstr(first + 1, message) == NULL : result.err_len == 0, "%s %s: %s",
              setting, program, result.err);
    spawn_result_free(&result);
}

Test(cupti, run_falls_back_to_hooks, .timeout = 120)
{
    static const char *const programs[] = {"linear", "graph_capture", "linear_rt", "contexts"};
    char own[PATH_MAX + 32];
    size_t i;
    for (i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        run_is_exact("GPUPROF_SIM_CUPTI=", programs[i], NULL, NULL);
        run_is_exact("GPUPROF_SIM_CUPTI=13.3", programs[i], NULL, NULL);
        run_is_exact("GPUPROF_SIM_CUPTI=shifted", programs[i], NULL, NULL);
        run_is_exact("GPUPROF_SIM_CUPTI=none", programs[i], NULL, "events come from driver hooks");
        run_is_exact("GPUPROF_SIM_CUPTI=taken:Nsight", programs[i], NULL, "subscriber is taken by Nsight");
    }
    snprintf(own, sizeof(own), "subscribe:%s/libcupti.so.13", path_sim()); /* before cuInit */
    run_is_exact("GPUPROF_SIM_CUPTI=", "cupti", own, "subscriber is taken by another tool");
}

/* With GPUPROF_SOURCE=cupti `gpuprof run` preloads no hooks, so starting the program with it is no advice. */
Test(cupti, the_log_names_the_setting_that_excludes_hooks)
{
    const char *argv[] = {path_command(), "run", "--sim", path_program("linear"), NULL};
    const char *env[] = {"GPUPROF_SIM_CUPTI=none", "GPUPROF_SOURCE=cupti", "GPUPROF_LOG=warning", NULL};
    struct spawn_options options = {.argv = argv, .env = env};
    struct spawn_result result = {0};
    cr_assert_eq(spawn_run(&options, &result), 0);
    cr_expect_not_null(strstr(result.err, "unset GPUPROF_SOURCE"), "%s", result.err);
    cr_expect_null(strstr(result.err, "start the program with"), "%s", result.err);
    spawn_result_free(&result);
}
