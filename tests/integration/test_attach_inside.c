/* SPDX-License-Identifier: MIT
 *
 * The half of an attach that is inside the process: gpuprof_attach and GP_COMMAND_DETACH. The programs attach
 * gpuprof to themselves (tests/programs/late_attach.c) and compare its numbers with what they did.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "lib/build.h"
#include "lib/full.h"
#include "lib/ledger.h"
#include "lib/listen.h"
#include "lib/paths.h"
#include "lib/spawn.h"

#define MIB (1024ll * 1024)

TestSuite(attach_inside, .timeout = 900);

static void run(const char *library, const char *what, const char *more, const char *sim, const char *expected)
{
    const char *argv[] = {path_program("late_attach"), what, library, more, NULL};
    struct spawn_options options = {.argv = argv, .sim = sim};
    struct spawn_result result = {0};
    cr_assert_eq(spawn_run(&options, &result), 0);
    cr_expect(WIFEXITED(result.status) && WEXITSTATUS(result.status) == 0, "%s: %s\n%s%s", what,
              spawn_status_text(&result), result.out, result.err);
    cr_expect(strstr(result.out, expected) != NULL, "%s", result.out);
    spawn_result_free(&result);
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
    struct spawn_options options = {.argv = argv, .want_hold = true};
    struct spawn_result result = {0}, text = {0};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    json_t *process;
    char pid[16];
    snprintf(library, sizeof(library), "%s", path_library());
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    process = ledger_stat(&diff, spawn.held[0]);
    cr_expect_eq(json_at(process, "devices/0/before_attach_bytes", -1), 12 * MIB, "%s", diff.text);
    cr_expect_eq(json_at(process, "devices/0/before_attach_first_bytes", -1), 18 * MIB);
    cr_expect_eq(json_at(process, "devices/0/before_attach_freed", -1), 1);
    cr_expect_eq(json_at(process, "devices/0/stats/allocated_bytes.all.current", -1), 5 * MIB);
    cr_expect_eq(json_at(process, "devices/0/stats/reserved_bytes.all.current", -1), 5 * MIB);
    json_decref(process);
    snprintf(pid, sizeof(pid), "%d", (int)spawn.held[0]);
    cr_assert_eq(spawn_command(&text, "stat", "-p", pid, NULL), 0);
    cr_expect(strstr(text.out, "before attach    12.00 MiB of 18.00 MiB") != NULL, "%s", text.out);
    spawn_result_free(&text);
    spawn_finish(&spawn, &result);
    spawn_result_free(&result);
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
