/* SPDX-License-Identifier: MIT
 *
 * fork: the child has no session and does no harm to the parent's; the parent's numbers go on exactly.
 */
#include "integration/command.h"
#include "lib/ledger.h"

#define MIB (1024ll * 1024)

TestSuite(fork, .timeout = 120);

Test(fork, the_child_has_no_session_and_the_parent_keeps_its_own)
{
    const char *argv[] = {path_program("fork_child"), NULL};
    struct spawn_options options = {.argv = argv, .want_library = true, .want_hold = true};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    json_t *process;
    int i;
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    cr_assert_eq(spawn_wait_held(&spawn, 2), 0, "parent and child did not both hold");
    for (i = 0; i < 2; i++)
        if (spawn.held[i] != spawn.pid)
            command(3, "stat", "--json", "-p", pid_text(spawn.held[i]), NULL); /* it is not profiled */
    process = ledger_stat(&diff, spawn.pid);
    cr_expect_eq(json_at(process, "devices/0/stats/allocated_bytes.all.current", -1), 3 * MIB, "%s", diff.text);
    json_decref(process);
    program_end(&spawn);
    SAYS("child: 9");
}

/* A deadlock in fork shows once in many times: a lock that another thread holds at that moment. */
Test(fork, beside_an_allocating_thread_never_hangs)
{
    const char *argv[] = {path_program("fork"), NULL};
    struct spawn_options options = {.argv = argv, .want_library = true};
    int round;
    for (round = 0; round < 50; round++) {
        run_program(0, &options);
        cr_expect_str_eq(said.out, "child: 3\nchild: 4\nchild: 3\nchild: 4\nchild: 3\nchild: 4\n");
    }
}

Test(fork, an_image_made_by_exec_is_profiled_anew)
{
    const char *argv[] = {path_program("exec"), NULL};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    json_t *process;
    program_hold(&spawn, &(struct spawn_options){.argv = argv, .want_library = true});
    cr_expect_eq(spawn.held[0], spawn.pid);
    process = ledger_stat(&diff, spawn.pid);
    cr_expect_eq(json_at(process, "devices/0/stats/allocated_bytes.all.peak", -1), 2 * MIB, "%s", diff.text);
    json_decref(process);
    program_end(&spawn);
    cr_expect_str_eq(said.out, "first\nsecond\n");
}
