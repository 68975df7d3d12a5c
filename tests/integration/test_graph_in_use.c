/* SPDX-License-Identifier: MIT
 *
 * test_graph_in_use.c: memory that CUDA graphs have in use is in every number that is computed from a recording, as in
 * the statistics: budgets, peaks, the report's bill, a dry run.
 */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/ledger.h"
#include "lib/paths.h"
#include "lib/spawn.h"

#define MIB (1ll << 20)

static char folder[64], file[96];

static void work_begin(void)
{
    snprintf(folder, sizeof(folder), "/tmp/gpuprof-test-graph-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/r.gpuprof", folder);
}

static void work_end(void)
{
    unlink(file);
    rmdir(folder);
}

TestSuite(graph_in_use, .init = work_begin, .fini = work_end, .timeout = 120);

static int status_of(const char *source, const char *option, const char *how, struct spawn_result *result)
{
    char record[128], setting[32];
    const char *argv[] = {
        path_command(), "run", "--sim", record, option, "--", path_program("graph_in_use"), how, NULL};
    const char *env[] = {setting, NULL};
    snprintf(record, sizeof(record), "--record=%s", file);
    snprintf(setting, sizeof(setting), "GPUPROF_SOURCE=%s", source);
    cr_assert_eq(spawn_run(&(struct spawn_options){.argv = argv, .env = env}, result), 0);
    return WIFEXITED(result->status) ? WEXITSTATUS(result->status) : -1;
}

static json_t *json_of(const char *command, const char *more)
{
    struct spawn_result result = {0};
    cr_assert_eq(spawn_command(&result, command, "--json", file, more, NULL), 0);
    json_t *root = json_loads(result.out, 0, NULL);
    cr_assert_not_null(root, "%s: %s%s", command, result.out, result.err);
    spawn_result_free(&result);
    return root;
}

Test(graph_in_use, is_in_budgets_and_peaks)
{
    static const char *const sources[] = {"cupti", "hooks"};
    for (int i = 0; i < 2; i++) {
        struct spawn_result result = {0};
        int status = status_of(sources[i], "--budget=70MiB", NULL, &result);
        cr_expect_eq(status, 3, "%s: %d: %s%s", sources[i], status, result.out, result.err);
        cr_expect(strstr(result.out, "74 "), "the statistics: %s", result.out);
        spawn_result_free(&result);
        json_t *peak = json_of("peak", NULL);
        cr_expect_eq(json_at(peak, "devices/0/bytes", -1), 74 * MIB);
        cr_expect_eq(json_at(peak, "devices/0/parts/0/bytes", -1), 64 * MIB);
        json_decref(peak);
        unlink(file);
        status = status_of(sources[i], "--budget=74MiB", NULL, &result);
        cr_expect_eq(status, 0, "%s: %d: %s%s", sources[i], status, result.out, result.err);
        spawn_result_free(&result);
        unlink(file);
    }
}

/* The events of the recording do not have it, but the statistics at its end do: a gate passes on no less. */
Test(graph_in_use, is_in_budgets_where_no_poll_saw_it)
{
    struct spawn_result result = {0};
    int status = status_of("cupti", "--budget=50MiB", "freed", &result);
    cr_expect_eq(status, 3, "%d: %s%s", status, result.out, result.err);
    spawn_result_free(&result);
    unlink(file);
    status = status_of("cupti", "--budget=74MiB", "freed", &result);
    cr_expect_eq(status, 0, "%d: %s%s", status, result.out, result.err);
    spawn_result_free(&result);
}

Test(graph_in_use, is_no_cache_in_a_dry_run)
{
    struct spawn_result result = {0};
    cr_assert_eq(spawn_command(&result, "dryrun", "--json", "--gpu=t4", "--", path_program("graph_in_use"), NULL), 0);
    json_error_t error;
    const char *begin = strchr(result.out, '{');
    json_t *root = begin ? json_loads(begin, JSON_DISABLE_EOF_CHECK, &error) : NULL;
    cr_assert_not_null(root, "%s%s", result.out, result.err);
    char *text = json_dumps(root, 0);
    cr_expect(strstr(text, "77594624") || strstr(result.out, "77594624"), "74 MiB: %s", text);
    free(text);
    json_decref(root);
    spawn_result_free(&result);
}
