/* SPDX-License-Identifier: MIT
 *
 * Every program of the catalog: what gpuprof says equals the simulated GPU's ledger, the program ends as documented,
 * and the ledger itself is not empty (else zero would equal zero).
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "lib/catalog.h"
#include "lib/full.h"
#include "lib/paths.h"

TestSuite(accounting, .timeout = 60);

ParameterizedTestParameters(accounting, each_program_equals_the_ledger)
{
    return catalog_each(NULL);
}

ParameterizedTest(int *index, accounting, each_program_equals_the_ledger)
{
    const struct catalog_entry *entry = &catalog[*index];
    const char *argv[CATALOG_ARGS + 2];
    struct spawn_options options;
    struct spawn_result result = {0};
    struct ledger_diff diff = {0};
    catalog_options(entry, argv, &options);
    check_against_ledger(&diff, &options, entry->processes == 0 ? 1 : entry->processes, &entry->rules, &result);
    cr_expect(diff.count == 0, "%s: gpuprof differs from the ledger:\n%s", catalog_title(entry), diff.text);
    cr_expect(WIFEXITED(result.status) && WEXITSTATUS(result.status) == entry->exit_code, "%s: %s\n%s%s",
              catalog_title(entry), spawn_status_text(&result), result.out, result.err);
    spawn_result_free(&result);
}

/* The comparison must be able to fail: one byte, one call, one kind more on either side is a difference. */
Test(accounting, the_comparison_sees_a_difference_of_one)
{
    static const char truth_form[] =
        "{\"devices\":[{\"device\":0,\"reserved_bytes\":{\"current\":%d,\"peak\":12},\"allocated_bytes\":{\"current\":"
        "10,"
        "\"peak\":%d},\"kinds\":{\"linear\":{\"current_bytes\":10,\"peak_bytes\":12,\"calls\":%d}}}],"
        "\"host\":{\"kinds\":{\"%s\":{\"current_bytes\":5,\"peak_bytes\":5,\"calls\":1}}}}";
    static const char process_text[] =
        "{\"devices\":[{\"device\":0,\"stats\":{\"allocated_bytes.all.current\":10,\"allocated_bytes.all.peak\":12,"
        "\"reserved_bytes.all.current\":10,\"reserved_bytes.all.peak\":12},\"kinds\":{\"linear\":{\"current_bytes\":10,"
        "\"peak_bytes\":12,\"allocated_bytes\":12,\"freed_bytes\":2,\"calls\":2}}}],\"host\":{\"kinds\":{\"pinned\":{"
        "\"current_bytes\":5,\"peak_bytes\":5,\"allocated_bytes\":5,\"freed_bytes\":0,\"calls\":1}}}}";
    static const struct {
        int reserved, peak, calls;
        const char *host_kind;
        int is_equal;
    } cases[] = {{10, 12, 2, "pinned", 1},
                 {11, 12, 2, "pinned", 0},
                 {10, 13, 2, "pinned", 0},
                 {10, 12, 3, "pinned", 0},
                 {10, 12, 2, "registered", 0}};
    struct ledger_rules rules = {0};
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ledger_diff diff = {0};
        char text[1024];
        json_t *truth, *process = json_loads(process_text, 0, NULL);
        snprintf(text, sizeof(text), truth_form, cases[i].reserved, cases[i].peak, cases[i].calls, cases[i].host_kind);
        truth = json_loads(text, 0, NULL);
        cr_assert(truth != NULL && process != NULL);
        ledger_compare(&diff, process, truth, &rules);
        cr_expect((diff.count == 0) == cases[i].is_equal, "case %zu: %d differences\n%s", i, diff.count, diff.text);
        json_decref(truth);
        json_decref(process);
    }
}

/* 100 live, 60 freed on another thread, 80 more: the scheme that adds up per-thread peaks says something else. */
Test(accounting, a_peak_made_by_three_threads_is_exact)
{
    struct ledger_diff diff = {0};
    struct spawn_result result = {0};
    const char *argv[] = {path_program("cross_thread"), NULL};
    struct spawn_options options = {.argv = argv, .want_library = true, .want_hold = true};
    struct spawn spawn;
    json_t *process;
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    process = ledger_stat(&diff, spawn.held[0]);
    cr_expect_eq(json_at(process, "devices/0/stats/allocated_bytes.all.peak", -1), 120 * 65536, "%s", diff.text);
    cr_expect_eq(json_at(process, "devices/0/stats/allocated_bytes.all.current", -1), 60 * 65536);
    json_decref(process);
    spawn_finish(&spawn, &result);
    spawn_result_free(&result);
}

/* Twenty (in a short run five) more walks than the catalog has, each another seed: what breaks one is printed with its seed. */
Test(accounting, random_walks_equal_the_ledger, .timeout = 120)
{
    int seed;
    for (seed = 100; seed < (test_is_full() ? 120 : 105); seed++) {
        struct ledger_diff diff = {0};
        struct spawn_result result = {0};
        char number[16];
        const char *argv[] = {path_program("mixed"), "--seed", number, "--steps", "600", NULL};
        struct spawn_options options = {.argv = argv};
        snprintf(number, sizeof(number), "%d", seed);
        check_against_ledger(&diff, &options, 1, &(struct ledger_rules){.is_reserved_polled = true}, &result);
        cr_expect(diff.count == 0, "mixed --seed %d --steps 600:\n%s", seed, diff.text);
        cr_expect(WIFEXITED(result.status) && WEXITSTATUS(result.status) == 0, "seed %d: %s\n%.300s", seed,
                  spawn_status_text(&result), result.out);
        spawn_result_free(&result);
    }
}
