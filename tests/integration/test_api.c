/* SPDX-License-Identifier: MIT
 *
 * gpuprof.h as programs use it, on the simulated GPU: the acceptance lists of peaks and resets, by the program itself
 * and by the command line with the same results; threads, devices, host memory, scopes that both sides share, and
 * processes that are not profiled.  docs/statistics.md names these tests row by row.
 */
#include "integration/command.h"
#include "lib/ledger.h"

TestSuite(api, .timeout = 90);

static void api_expect(const char *title, const char *wanted)
{
    cr_expect_str_eq(said.out, wanted, "%s printed:\n%s\nwanted:\n%s", title, said.out, wanted);
}

static void api_run(const char *program, const char *argument, struct spawn_options options, const char *wanted)
{
    const char *argv[] = {path_program(program), argument, NULL};
    options.argv = argv;
    run_program(0, &options);
    api_expect(program, wanted);
}

static void api_injected(const char *program, const char *argument, const char *wanted)
{
    api_run(program, argument, (struct spawn_options){.want_library = true}, wanted);
}

/* ---- peaks and resets ---------------------------------------------------------------------------------------- */

static const char api_peaks[] = "active 1, devices 1\n"
                                "3 MiB: allocated 3072 peak 3072, reserved 3072 peak 3072\n"
                                "freed: allocated 0 peak 3072, reserved 0 peak 3072\n"
                                "reset allocated: allocated 0 peak 0, reserved 0 peak 3072\n"
                                "1 MiB: allocated 1024 peak 1024, reserved 1024 peak 3072\n"
                                "reset reserved: allocated 1024 peak 1024, reserved 1024 peak 1024\n"
                                "2 MiB came and went: allocated 1024 peak 3072, reserved 1024 peak 3072\n"
                                "reset reserved again: allocated 1024 peak 3072, reserved 1024 peak 1024\n"
                                "reset peaks: allocated 1024 peak 1024, reserved 1024 peak 1024\n"
                                "totals: allocated 6144 KiB, freed 5120 KiB, 3 calls, device 3 and 2\n"
                                "reset accumulated: allocated 1024 peak 1024, reserved 1024 peak 1024\n"
                                "totals: allocated 0 KiB, freed 0 KiB, 0 calls, device 0 and 0\n"
                                "totals: allocated 512 KiB, freed 0 KiB, 1 calls, device 1 and 0\n"
                                "end: allocated 1536 peak 1536, reserved 1536 peak 1536\n";

Test(api, peaks_and_resets_by_the_program)
{
    api_injected("api_peaks", "inside", api_peaks);
}

Test(api, peaks_and_resets_by_the_program_behind_hooks)
{
    api_run("api_peaks", "inside", (struct spawn_options){.want_library = true, .source = "hooks"}, api_peaks);
}

/* The program is held at a reset: the command shows the old peaks, resets, and shows the new ones. */
struct api_reset {
    const char *flag;
    long long allocated_peak, reserved_peak; /* KiB, before */
    long long allocated_after, reserved_after;
};

static void api_stat(pid_t pid, const char *flag, long long allocated_peak, long long reserved_peak)
{
    struct ledger_diff diff = {0};
    json_t *process = ledger_stat(&diff, pid);
    cr_expect_not_null(process, "%s", diff.text);
    cr_expect_eq(json_at(process, "devices/0/stats/allocated_bytes.all.peak", -1), allocated_peak * 1024, "%s: %lld",
                 flag, json_at(process, "devices/0/stats/allocated_bytes.all.peak", -1));
    cr_expect_eq(json_at(process, "devices/0/stats/reserved_bytes.all.peak", -1), reserved_peak * 1024, "%s: %lld",
                 flag, json_at(process, "devices/0/stats/reserved_bytes.all.peak", -1));
    json_decref(process);
}

Test(api, peaks_and_resets_by_the_command_line)
{
    static const struct api_reset resets[] = {{"--allocated", 3072, 3072, 0, 3072},
                                              {"--reserved", 1024, 3072, 1024, 1024},
                                              {"--reserved", 3072, 3072, 3072, 1024},
                                              {"--peaks", 3072, 1024, 1024, 1024},
                                              {"--accumulated", 1024, 1024, 1024, 1024}};
    const char *argv[] = {path_program("api_peaks"), "outside", NULL};
    struct spawn spawn;
    program_hold(&spawn, &(struct spawn_options){.argv = argv, .want_library = true});
    for (size_t i = 0; i < sizeof(resets) / sizeof(resets[0]); i++) {
        api_stat(spawn.held[0], resets[i].flag, resets[i].allocated_peak, resets[i].reserved_peak);
        command(0, "reset", resets[i].flag, "-p", pid_text(spawn.held[0]), NULL);
        api_stat(spawn.held[0], resets[i].flag, resets[i].allocated_after, resets[i].reserved_after);
        cr_assert_eq(spawn_step(&spawn), 0);
    }
    program_end(&spawn);
    api_expect("api_peaks outside", api_peaks);
}

Test(api, allocated_and_reserved_part_in_a_cache)
{
    api_injected("api_cached", NULL,
                 "allocated 6 MiB, reserved at least as much: 1\n"
                 "freed: allocated 0, reserved stays: 1\n"
                 "reset allocated: peak 0, reserved peak stays: 1\n"
                 "emptied: reserved 0, peak stays: 1\n"
                 "reset reserved: peak 0\n"
                 "the driver's numbers: 1 1\n"
                 "without a current context: 1\n"
                 "no such device: -1\n");
}

Test(api, reads_of_pools_are_fresh)
{
    api_injected("api_pools", NULL,
                 "allocated 1 MiB, peak 41 MiB\n"
                 "reserved is the pool's: 1\n"
                 "reserved is the pool's: 1\n"
                 "the driver's own high mark stays: 1\n"
                 "reset: peaks are current: 1 1\n");
}

Test(api, pieces_add_up_to_the_statistics)
{
    api_injected("api_walk", NULL,
                 "linear: 0 holes, live 3072 KiB; as in the statistics: 1 1 1 1\n"
                 "physical: 0 holes, live 3072 KiB; as in the statistics: 1 1 1 1\n"
                 "mapped: 0 holes, live 5120 KiB; as in the statistics: 1 1 1 1\n"
                 "cached: 0 holes, live 11364 KiB; as in the statistics: 1 1 1 1\n"
                 "freed: 0 holes, live 11264 KiB; as in the statistics: 1 1 1 1\n"
                 "room for fewer: 1\n"
                 "only so many are written: 1\n"
                 "no such device: -1 -1\n"
                 "meanwhile: 0 wrong\n"
                 "then: 0 holes, live 11264 KiB; as in the statistics: 1 1 1 1\n");
}

/* ---- threads, devices, host ---------------------------------------------------------------------------------- */

Test(api, peaks_are_exact_over_threads_and_devices)
{
    struct spawn_options options = {.want_library = true, .sim = "devices=2"};
    api_run("api_threads", NULL, options,
            "1: peak 4 MiB\n2: peak 4 MiB\n3: peak 4 MiB\n4: peak 5 MiB\n"
            "5: peak 5 MiB\n6: peak 5 MiB\n7: peak 6 MiB\n8: peak 6 MiB\n"
            "warm: allocated 0 peak 8192, reserved 0 peak 8192\n"
            "resets meanwhile: 0 wrong, peaks within the scope's: 1\n"
            "then: allocated 0 peak 0, reserved 0 peak 0\n"
            "devices 2\n"
            "device 0: allocated 512 peak 2048, reserved 512 peak 2048\n"
            "device 1: allocated 1024 peak 1024, reserved 1024 peak 1024\n"
            "device 2: allocated -1 peak -1, reserved -1 peak -1\n");
}

Test(api, host_memory_under_the_names_of_host_memory_stats)
{
    api_injected("api_host", NULL,
                 "nothing pinned yet: -1\n"
                 "3 MiB: 0 3145728 3145728 3145728 0 3145728 2 2 2 0\n"
                 "freed: 0 1048576 3145728 3145728 2097152 3145728 1 2 2 1\n"
                 "reset peaks: 0 1048576 1048576 3145728 2097152 1048576 1 1 2 1\n"
                 "registered: 0 1114112 1114112 3211264 2097152 1114112 2 2 3 1\n"
                 "reset accumulated: 0 1114112 1114112 0 0 1114112 2 2 0 0\n"
                 "scope: 0\n"
                 "scope: 1114112\n"
                 "no such reset: -1\n");
}

/* ---- scopes -------------------------------------------------------------------------------------------------- */

static void api_scopes_from_outside(pid_t pid)
{
    static const char *const listed[] = {"outer", "overlapping", "inner", "a name that is longer than what is kept"};
    const char *of = pid_text(pid);
    json_t *root, *scope;
    unsigned found = 0;
    size_t i, n;
    command(0, "scope", "list", "-p", of, "--json", NULL);
    root = said_json();
    json_array_foreach(json_object_get(root, "scopes"), i, scope)
    {
        for (n = 0; n < sizeof(listed) / sizeof(listed[0]); n++)
            found += strcmp(json_string_value(json_object_get(scope, "name")), listed[n]) == 0;
        if (i == 0)
            cr_expect_eq(json_at(scope, "allocated_peak_bytes", -1), 9 << 20);
    }
    cr_expect_eq(found, 4, "%s", said.out);
    cr_expect_eq(json_array_size(json_object_get(root, "scopes")), 4, "%s", said.out);
    json_decref(root);
    command(1, "scope", "begin", "outer", "-p", of, NULL); /* ends go by name there: no second one */
    command(0, "scope", "begin", "from outside", "-p", of, NULL);
    command(0, "scope", "end", "outer", "-p", of, "--json", NULL);
    root = said_json();
    cr_expect_eq(json_at(root, "scopes/0/allocated_peak_bytes", -1), 9 << 20, "%s", said.out);
    json_decref(root);
}

Test(api, scopes_nest_and_are_shared_with_the_command_line)
{
    const char *argv[] = {path_program("api_scopes"), NULL};
    struct spawn spawn;
    program_hold(&spawn, &(struct spawn_options){.argv = argv, .want_library = true});
    api_scopes_from_outside(spawn.held[0]);
    program_end(&spawn);
    api_expect("api_scopes", "inner begins: 0, 1024 1024\n"
                             "twins: 1\n"
                             "inner: 0, 3072 3072\n"
                             "end: 0\n"
                             "inner, ended: -2, -77 -77\n"
                             "overlapping: 0, 5120 5120\n"
                             "outer: 0, 9216 9216\n"
                             "the peak was reset: allocated 1024 peak 5120, reserved 1024 peak 5120\n"
                             "no name: -22\n"
                             "nothing: -22\n"
                             "no such device: -19\n"
                             "no device: -19\n"
                             "no such scope: -2\n"
                             "mark: 0\n"
                             "no mark: -22\n"
                             "outer, ended from outside: -2, -77 -77\n"
                             "end: -2\n"
                             "15, then -16\n" /* the sixteenth is the one from outside */
                             "end: 0\n"
                             "its row was taken again: 1, by another number: 1\n"
                             "the old number: -2, -77 -77\n"
                             "end by the old number: -2\n"
                             "end: 0\n");
}

/* ---- without a profiler -------------------------------------------------------------------------------------- */

#define API_ALONE                                                                                                      \
    "active 0, devices 0\n"                                                                                            \
    "numbers: allocated -1 peak -1, reserved -1 peak -1\n"                                                             \
    "resets -1 -1 -1 -1 -1\n"                                                                                          \
    "stats -1 -1 -1\n"                                                                                                 \
    "written 0\n"                                                                                                      \
    "names active.all.allocated active_bytes.allocated\n"                                                              \
    "scope begin: -19\n"                                                                                               \
    "read: -19\n"                                                                                                      \
    "end: -19\n"                                                                                                       \
    "mark: -19\n"                                                                                                      \
    "errno 42\n"                                                                                                       \
    "mem_get_info: 0\n"                                                                                                \
    "free: 1\n"

Test(api, harmless_where_nothing_is_injected)
{
    static char library[512];
    const char *env[] = {library, NULL};
    snprintf(library, sizeof(library), "GPUPROF_TEST_LIBRARY=%s", path_library());
    api_run("api_harmless", NULL, (struct spawn_options){.env = env}, API_ALONE);
}

Test(api, harmless_where_the_library_switched_itself_off)
{
    struct spawn_options options = {.want_library = true, .want_seccomp_memfd = true};
    api_run("api_harmless", NULL, options, API_ALONE);
}

Test(api, harmless_in_a_forked_child)
{
    api_injected("api_harmless", "fork", API_ALONE);
}

/* Viewers are not answered there; the program still is. */
Test(api, works_without_threads_of_ours)
{
    struct spawn_options options = {.want_library = true, .want_seccomp_thread = true};
    api_run("api_peaks", "inside", options, api_peaks);
}
