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
#include "lib/paths.h"

#define SAME_ENV 12

static void same_text(struct ledger_diff *diff, const char *title, const char *what, const char *with,
                      const char *without)
{
    if (strcmp(with, without) != 0) {
        ledger_diff_add(diff, "%s: %s with:\n%.1000s\nwithout:\n%.1000s", title, what, with, without);
    }
}

void same_run(struct ledger_diff *diff, const char *title, const struct spawn_options *plain, const char *source,
              const char *const *env)
{
    struct spawn_options options = *plain;
    struct spawn_result with = {0}, without = {0};
    char end[32];
    int error = spawn_run(&options, &without);

    options.want_library = true;
    options.source = source;
    options.env = env != NULL ? env : plain->env;
    if (error == 0) {
        error = spawn_run(&options, &with);
    }
    if (error != 0) {
        ledger_diff_add(diff, "%s: cannot be started: %s", title, strerror(-error));
    } else if (without.is_timed_out || (WIFEXITED(without.status) && WEXITSTATUS(without.status) >= 125)) {
        ledger_diff_add(diff, "%s does not run at all: %s: %.1000s", title, spawn_status_text(&without), without.err);
    } else {
        if (with.status != without.status || with.is_timed_out) {
            snprintf(end, sizeof(end), "%s", spawn_status_text(&without));
            ledger_diff_add(diff, "%s: ends with: %s (%d); without: %s (%d)", title, spawn_status_text(&with),
                            with.status, end, without.status);
        }
        same_text(diff, title, "stdout", with.out, without.out);
        same_text(diff, title, "stderr", with.err, without.err);
    }
    spawn_result_free(&with);
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
                           const char *program, const char *folder, long number, const char *more)
{
    char alone[300], preload[600], rule[160], second[80] = "", count[300], title[160];
    const char *argv[] = {path_program(program), NULL}, *library = path_library();
    const char *plain[] = {alone, rule, NULL}, *with[SAME_ENV] = {alone, rule, count};
    long calls;
    int i;

    snprintf(alone, sizeof(alone), "LD_PRELOAD=%s/fail.so", folder);
    if (failures->source != NULL) {
        snprintf(preload, sizeof(preload), "%s:%.*s/libgpuprof-shim.so", alone, (int)(strrchr(library, '/') - library),
                 library);
        with[0] = preload;
    }
    if (row->after != NULL) {
        snprintf(second, sizeof(second), ",%s:1+:libgpuprof", row->after);
    }
    snprintf(rule, sizeof(rule), "GPUPROF_TEST_FAIL=%s:%ld%s:libgpuprof%s", row->function, number, more, second);
    snprintf(count, sizeof(count), "GPUPROF_TEST_FAIL_COUNT=%s/count", folder);
    snprintf(title, sizeof(title), "%s, %s call %ld%s fails in the library", program, row->function, number, more);
    for (i = 3; failures->env != NULL && failures->env[i - 3] != NULL; i++) {
        assert(i < SAME_ENV - 1);
        with[i] = failures->env[i - 3];
    }
    same_run(diff, title, &(struct spawn_options){.argv = argv, .env = plain}, failures->source, with);
    calls = same_count(strchr(count, '=') + 1);
    if (calls < 0) {
        ledger_diff_add(diff, "%s: fail.c was not there to count", title);
    }
    unlink(strchr(count, '=') + 1);
    return calls;
}

static long same_fail_row(struct ledger_diff *diff, const struct same_failures *failures, const struct same_row *row,
                          const char *folder)
{
    const char *const *program;
    long calls, number, fired = 0;

    for (program = failures->programs; *program != NULL; program++) {
        number = 0;
        do {
            number++;
            calls = same_fail_once(diff, failures, row, *program, folder, number, "");
            fired += calls >= number;
        } while (calls >= number && number < failures->most);
        if (calls >= failures->all_from) {
            same_fail_once(diff, failures, row, *program, folder, failures->all_from, "+");
        }
    }
    if (fired == 0) {
        ledger_diff_add(diff, "%s: the library never calls it here, or fail.c has no wrapper for it: nothing is tested",
                        row->function);
    }
    return fired;
}

long same_failures(struct ledger_diff *diff, const struct same_failures *failures)
{
    char *folder = build_folder();
    long fired = 0;
    size_t i;

    if (folder == NULL || build_shared(folder, "fail.c", "fail.so", NULL) != 0) {
        ledger_diff_add(diff, "fail.c cannot be built");
    } else {
        for (i = 0; i < failures->row_count; i++) {
            fired += same_fail_row(diff, failures, &failures->rows[i], folder);
        }
    }
    if (folder != NULL) {
        build_remove(folder);
    }
    return fired;
}
