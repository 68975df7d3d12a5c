/* SPDX-License-Identifier: MIT
 *
 * same.c: see same.h.
 */
#include "lib/same.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/build.h"
#include "lib/full.h"
#include "lib/paths.h"

#define SAME_ENV   12
#define SAME_ROWS  64
#define SAME_SHORT 2 /* calls of one function that a short run tries one by one */

struct same_program {
    const char *name;
    struct spawn_result without; /* fail.c fails functions in the library alone: the same whatever the row */
};

static void same_text(struct ledger_diff *diff, const char *title, const char *what, const char *with,
                      const char *without)
{
    if (strcmp(with, without) != 0)
        ledger_diff_add(diff, "%s: %s with:\n%.1000s\nwithout:\n%.1000s", title, what, with, without);
}

/* The plain program; false when it cannot be compared with anything. */
static bool same_plain(struct ledger_diff *diff, const char *title, const struct spawn_options *plain,
                       struct spawn_result *without)
{
    int error = spawn_run(plain, without);
    if (error != 0) {
        ledger_diff_add(diff, "%s: cannot be started: %s", title, strerror(-error));
        return false;
    }
    if (without->is_timed_out || (WIFEXITED(without->status) && WEXITSTATUS(without->status) >= 125)) {
        ledger_diff_add(diff, "%s does not run at all: %s: %.1000s", title, spawn_status_text(without), without->err);
        return false;
    }
    return true;
}

static void same_with(struct ledger_diff *diff, const char *title, const struct spawn_options *plain,
                      const struct same_way *way, const struct spawn_result *without)
{
    struct spawn_options options = *plain;
    struct spawn_result with = {0};
    char end[32];
    int error;
    options.want_library = true;
    options.source = way->source;
    options.env = way->env != NULL ? way->env : plain->env;
    error = spawn_run(&options, &with);
    if (error != 0) {
        ledger_diff_add(diff, "%s: cannot be started: %s", title, strerror(-error));
    } else {
        if (with.status != without->status || with.is_timed_out) {
            snprintf(end, sizeof(end), "%s", spawn_status_text(without));
            ledger_diff_add(diff, "%s: ends with: %s (%d); without: %s (%d)", title, spawn_status_text(&with),
                            with.status, end, without->status);
        }
        same_text(diff, title, "stdout", with.out, without->out);
        same_text(diff, title, "stderr", with.err, without->err);
    }
    spawn_result_free(&with);
}

void same_run(struct ledger_diff *diff, const char *title, const struct spawn_options *plain,
              const struct same_way *ways, size_t way_count)
{
    struct spawn_result without = {0};
    size_t i;
    if (same_plain(diff, title, plain, &without))
        for (i = 0; i < way_count; i++)
            same_with(diff, title, plain, &ways[i], &without);
    spawn_result_free(&without);
}

/* ---- functions that fail in the library -------------------------------------------------------------------------- */

/* fail.c's counter, or -1 if fail.c was not loaded. */
static long same_count(const char *path)
{
    FILE *file = fopen(path, "r");
    long calls = -1;
    if (file != NULL) {
        calls = fread(&calls, sizeof(calls), 1, file) == 1 ? calls : -1;
        fclose(file);
    }
    return calls;
}

/* Number of the library's calls of the function. */
static long same_fail_once(struct ledger_diff *diff, const struct same_failures *failures, const struct same_row *row,
                           const struct same_program *program, const char *folder, long number, const char *more)
{
    char alone[300], preload[600], rule[160], second[80] = "", count[300], title[160];
    const char *argv[] = {path_program(program->name), NULL}, *library = path_library();
    const char *with[SAME_ENV] = {alone, rule, count};
    long calls;
    int i;
    snprintf(alone, sizeof(alone), "LD_PRELOAD=%s/fail.so", folder);
    if (failures->source != NULL) {
        snprintf(preload, sizeof(preload), "%s:%.*s/libgpuprof-shim.so", alone, (int)(strrchr(library, '/') - library),
                 library);
        with[0] = preload;
    }
    if (row->after != NULL)
        snprintf(second, sizeof(second), ",%s:1+:libgpuprof", row->after);
    snprintf(rule, sizeof(rule), "GPUPROF_TEST_FAIL=%s:%ld%s:libgpuprof%s", row->function, number, more, second);
    snprintf(count, sizeof(count), "GPUPROF_TEST_FAIL_COUNT=%s/count", folder);
    snprintf(title, sizeof(title), "%s, %s call %ld%s fails in the library", program->name, row->function, number,
             more);
    for (i = 3; failures->env != NULL && failures->env[i - 3] != NULL; i++) {
        assert(i < SAME_ENV - 1);
        with[i] = failures->env[i - 3];
    }
    same_with(diff, title, &(struct spawn_options){.argv = argv}, &(struct same_way){failures->source, with},
              &program->without);
    calls = same_count(strchr(count, '=') + 1);
    if (calls < 0)
        ledger_diff_add(diff, "%s: fail.c was not there to count", title);
    unlink(strchr(count, '=') + 1);
    return calls;
}

static long same_fail_row(struct ledger_diff *diff, const struct same_failures *failures, const struct same_row *row,
                          const struct same_program *program, const char *folder)
{
    long calls, number = 0, fired = 0;
    long most = test_is_full() || failures->most < SAME_SHORT ? failures->most : SAME_SHORT;
    do {
        number++;
        calls = same_fail_once(diff, failures, row, program, folder, number, "");
        fired += calls >= number;
    } while (calls >= number && number < most);
    if (calls >= failures->all_from)
        same_fail_once(diff, failures, row, program, folder, failures->all_from, "+");
    return fired;
}

/* What one program does with each row; *fired has a count for each row. */
static void same_fail_program(struct ledger_diff *diff, const struct same_failures *failures, const char *name,
                              const char *folder, long *fired)
{
    char alone[300], title[160];
    const char *argv[] = {path_program(name), NULL}, *env[] = {alone, NULL};
    struct same_program program = {.name = name};
    size_t i;
    snprintf(alone, sizeof(alone), "LD_PRELOAD=%s/fail.so", folder);
    snprintf(title, sizeof(title), "%s with fail.c", name);
    if (same_plain(diff, title, &(struct spawn_options){.argv = argv, .env = env}, &program.without))
        for (i = 0; i < failures->row_count; i++)
            fired[i] += same_fail_row(diff, failures, &failures->rows[i], &program, folder);
    spawn_result_free(&program.without);
}

long same_failures(struct ledger_diff *diff, const struct same_failures *failures)
{
    char *folder = build_folder();
    long fired[SAME_ROWS] = {0}, sum = 0;
    const char *const *program;
    size_t i;
    assert(failures->row_count <= SAME_ROWS);
    if (folder == NULL || build_shared(folder, "fail.c", "fail.so", NULL) != 0) {
        ledger_diff_add(diff, "fail.c cannot be built");
    } else {
        for (program = failures->programs; *program != NULL; program++)
            same_fail_program(diff, failures, *program, folder, fired);
        for (i = 0; i < failures->row_count; sum += fired[i++]) {
            if (fired[i] == 0) {
                ledger_diff_add(
                    diff, "%s: the library never calls it here, or fail.c has no wrapper for it: nothing is tested",
                    failures->rows[i].function);
            }
        }
    }
    if (folder != NULL)
        build_remove(folder);
    return sum;
}
