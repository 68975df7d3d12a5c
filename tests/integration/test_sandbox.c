/* SPDX-License-Identifier: MIT
 *
 * test_sandbox.c: a program that enters a seccomp sandbox after its start survives its recording
 * and every request of a viewer, and its numbers go on.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/ledger.h"
#include "lib/paths.h"
#include "lib/spawn.h"

TestSuite(sandbox, .timeout = 120);

#define MIB (1024ll * 1024)

static void request(pid_t pid, const char *command, const char *option, const char *other)
{
    struct spawn_result result = {0};
    char number[16];
    snprintf(number, sizeof(number), "%d", (int)pid);
    cr_assert_eq(spawn_command(&result, command, "-p", number, option, other, NULL), 0);
    cr_expect(WIFEXITED(result.status), "%s: %s", command, spawn_status_text(&result));
    spawn_result_free(&result);
}

static const char *const settings[] = {"GPUPROF_STACKS=off", "GPUPROF_STACKS=all", "GPUPROF_RECORD="};

ParameterizedTestParameters(sandbox, a_program_in_a_sandbox_lives)
{
    static unsigned ways[] = {0, 1, 2, 3, 4, 5, 10, 11}; /* of these settings, with both sources; from 6 on: trapped */
    return cr_make_param_array(unsigned, ways, sizeof(ways) / sizeof(ways[0]));
}

ParameterizedTest(unsigned *way, sandbox, a_program_in_a_sandbox_lives)
{
    char folder[] = "/tmp/gpuprof-sandbox-XXXXXX", setting[96], file[64], snapshot[64], record[64];
    const char *argv[] = {path_program("sandbox"), *way >= 6 ? "trap" : NULL, NULL}, *env[] = {setting, NULL};
    struct spawn_options options = {.argv = argv, .env = env, .want_library = true, .want_hold = true};
    struct spawn_result result = {0};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    bool records = *way % 6 / 2 == 2;
    json_t *process;
    cr_assert_not_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/x.gpuprof", folder);
    snprintf(snapshot, sizeof(snapshot), "-o%s/x.pickle", folder);
    snprintf(record, sizeof(record), "-o%s/y.gpuprof", folder);
    snprintf(setting, sizeof(setting), "%s%s", settings[*way % 6 / 2], records ? file : "");
    options.source = *way % 2 ? "hooks" : NULL;
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0, "%s: it has ended", setting);
    process = ledger_stat(&diff, spawn.held[0]);
    cr_expect_eq(json_at(process, "devices/0/stats/allocated_bytes.all.current", -1), 100 * MIB, "%s", diff.text);
    json_decref(process);
    request(spawn.held[0], "snapshot", snapshot, NULL);
    request(spawn.held[0], "stacks", "off", NULL);
    request(spawn.held[0], "reset", "--peaks", NULL);
    request(spawn.held[0], "record", record, "--duration=0.3");
    spawn_finish(&spawn, &result);
    cr_expect_eq(result.status, 0, "%s: %s\n%s%s", setting, spawn_status_text(&result), result.out, result.err);
    cr_expect_str_eq(result.out, "", "%s", result.out);
    spawn_result_free(&result);
    if (records) {
        cr_assert_eq(spawn_command(&result, "report", file, NULL), 0);
        cr_expect_not_null(strstr(result.out, "sandbox_fill"), "%s%s", result.out, result.err);
        spawn_result_free(&result);
    }
    snprintf(setting, sizeof(setting), "rm -rf %s", folder);
    cr_expect_eq(system(setting), 0);
}
