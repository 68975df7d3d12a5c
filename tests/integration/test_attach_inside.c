/* SPDX-License-Identifier: MIT
 *
 * The half of an attach that is inside the process: gpuprof_attach and GP_COMMAND_DETACH. The programs attach
 * gpuprof to themselves (tests/programs/late_attach.c) and compare its numbers with what they did.
 */
#include <errno.h>

#include "integration/command.h"
#include "lib/build.h"
#include "lib/full.h"
#include "lib/ledger.h"
#include "lib/listen.h"

#define MIB (1024ll * 1024)

TestSuite(attach_inside, .timeout = 900);

static void run(const char *library, const char *what, const char *more, const char *sim, const char *expected)
{
    const char *argv[] = {path_program("late_attach"), what, library, more, NULL};
    run_program(0, &(struct spawn_options){.argv = argv, .sim = sim});
    SAYS(expected);
}

/* Linear, pooled, mapped and managed memory, three contexts, two devices: exact since the attach, and the rest is
 * what was there before. */
Test(attach_inside, numbers_since_the_attach_and_what_was_there_before_are_exact)
{
    run(path_library(), "mixed", NULL, "devices=2", "mixed done");
}

Test(attach_inside, stat_shows_what_was_there_before_as_a_row_of_its_own)
{
    char library[4096];
    const char *argv[] = {path_program("late_attach"), "hold", library, NULL};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    json_t *process;
    snprintf(library, sizeof(library), "%s", path_library());
    program_hold(&spawn, &(struct spawn_options){.argv = argv});
    process = ledger_stat(&diff, spawn.held[0]);
    cr_expect_eq(json_at(process, "devices/0/before_attach_bytes", -1), 12 * MIB, "%s", diff.text);
    cr_expect_eq(json_at(process, "devices/0/before_attach_first_bytes", -1), 18 * MIB);
    cr_expect_eq(json_at(process, "devices/0/before_attach_freed", -1), 1);
    cr_expect_eq(json_at(process, "devices/0/stats/allocated_bytes.all.current", -1), 5 * MIB);
    cr_expect_eq(json_at(process, "devices/0/stats/reserved_bytes.all.current", -1), 5 * MIB);
    json_decref(process);
    command(0, "stat", "-p", pid_text(spawn.held[0]), NULL);
    SAYS("before attach    12.00 MiB of 18.00 MiB");
    program_end(&spawn);
}

static const char nothing_stays[] = "threads of gpuprof: 0\ndescriptors: 0 more\nmemory: not grown\n";

/* Eight threads allocate while gpuprof comes and goes: no descriptor, no thread and no memory stays. */
Test(attach_inside, attach_and_detach_many_times_under_load)
{
    /* A program may take a minute, so a thousand times are many programs. */
    for (int i = 0; i < (test_is_full() ? 20 : 1); i++)
        run(path_library(), "cycles", test_is_full() ? "50" : "20", NULL, nothing_stays);
}

/* The same while an agent listens to the batches: what sends them goes too. The listener is at a copy of the library, which
 * no other test loads. */
Test(attach_inside, attach_and_detach_many_times_with_a_listener)
{
    char library[4096];
    char *folder = build_folder();
    struct listen listen;
    cr_assert(folder != NULL);
    snprintf(library, sizeof(library), "%s/libgpuprof.so", folder);
    cr_assert_eq(build_copy(path_library(), library), 0);
    int error = listen_open(&listen, NULL, NULL);
    if (error == 0)
        error = listen_arm(&listen, library);
    if (error == 0)
        run(library, "cycles", "30", NULL, nothing_stays);
    listen_close(&listen);
    build_remove(folder);
    if (error == -EPERM)
        cr_skip_test("BPF is not available");
    cr_assert_eq(error, 0, "%s", strerror(-error));
}

/* The drain thread unmaps the session, and then its addresses are anybody's. */
Test(attach_inside, memory_where_the_last_session_was_is_left_alone)
{
    run(path_library(), "again", NULL, NULL, "pages changed: 0\n");
}

/* Slots in read-only memory, and in writable memory that is bound late. */
Test(attach_inside, the_slots_of_a_framework_are_put_back)
{
    static const char *const builds[] = {"unsigned-now", "unsigned-lazy-norelro", "unsigned-now-noplt", "old-now"};
    for (size_t i = 0; i < sizeof(builds) / sizeof(builds[0]); i++) {
        char folder[4096];
        snprintf(folder, sizeof(folder), "%s", path_program("../framework/"));
        strncat(folder, builds[i], sizeof(folder) - strlen(folder) - 1);
        run(path_library(), "slots", folder, NULL,
            "attach: 0\nslots: changed\ndetach: 0\nslots: as before\nattach: 0\nslots: changed\ndetach: 0\nslots: as "
            "before\n");
    }
}
