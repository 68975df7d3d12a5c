/* SPDX-License-Identifier: MIT
 *
 * fork: the child has no session and does no harm to the parent's; the parent's numbers go on exactly.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "lib/ledger.h"
#include "lib/paths.h"
#include "lib/spawn.h"

#define MIB (1024ll * 1024)

TestSuite(fork, .timeout = 120);

static int fork_stat_status(pid_t pid)
{
    struct spawn_result result = {0};
    char number[16];
    int status;
    snprintf(number, sizeof(number), "%d", (int)pid);
    cr_assert_eq(spawn_command(&result, "stat", "--json", "-p", number, NULL), 0);
    status = WIFEXITED(result.status) ? WEXITSTATUS(result.status) : -1;
    spawn_result_free(&result);
    return status;
}

Test(fork, the_child_has_no_session_and_the_parent_keeps_its_own)
{
    const char *argv[] = {path_program("fork_child"), NULL};
    struct spawn_options options = {.argv = argv, .want_library = true, .want_hold = true};
    struct spawn_result result = {0};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    json_t *process;
    int i;
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    cr_assert_eq(spawn_wait_held(&spawn, 2), 0, "parent and child did not both hold");
    for (i = 0; i < 2; i++)
        if (spawn.held[i] != spawn.pid)
            cr_expect_eq(fork_stat_status(spawn.held[i]), 3, "the child of fork is shown as profiled");
    process = ledger_stat(&diff, spawn.pid);
    cr_expect_eq(json_at(process, "devices/0/stats/allocated_bytes.all.current", -1), 3 * MIB, "%s", diff.text);
    json_decref(process);
    spawn_finish(&spawn, &result);
    cr_expect(WIFEXITED(result.status) && WEXITSTATUS(result.status) == 0, "%s", spawn_status_text(&result));
    cr_expect_not_null(strstr(result.out, "child: 9"), "%s", result.out);
    spawn_result_free(&result);
}

/* A deadlock in fork shows once in many times: a lock that another thread holds at that moment. */
Test(fork, beside_an_allocating_thread_never_hangs)
{
    const char *argv[] = {path_program("fork"), NULL};
    struct spawn_options options = {.argv = argv, .want_library = true};
    int round;
    for (round = 0; round < 50; round++) {
        struct spawn_result result = {0};
        cr_assert_eq(spawn_run(&options, &result), 0);
        cr_assert(WIFEXITED(result.status) && WEXITSTATUS(result.status) == 0, "round %d: %s\n%s", round,
                  spawn_status_text(&result), result.out);
        cr_expect_str_eq(result.out, "child: 3\nchild: 4\nchild: 3\nchild: 4\nchild: 3\nchild: 4\n");
        spawn_result_free(&result);
    }
}

Test(fork, an_image_made_by_exec_is_profiled_anew)
{
    const char *argv[] = {path_program("exec"), NULL};
    struct spawn_options options = {.argv = argv, .want_library = true, .want_hold = true};
    struct spawn_result result = {0};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    json_t *process;
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    cr_expect_eq(spawn.held[0], spawn.pid);
    process = ledger_stat(&diff, spawn.pid);
    cr_expect_eq(json_at(process, "devices/0/stats/allocated_bytes.all.peak", -1), 2 * MIB, "%s", diff.text);
    json_decref(process);
    spawn_finish(&spawn, &result);
    cr_expect_str_eq(result.out, "first\nsecond\n");
    spawn_result_free(&result);
}
