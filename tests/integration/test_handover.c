/* SPDX-License-Identifier: MIT
 *
 * The program's own profiler has priority: when it subscribes to CUPTI, gpuprof gives the subscriber up and counts with
 * driver hooks, and when it leaves, with CUPTI again. In both directions each total equals the simulated GPU's ledger.
 */
#include "integration/command.h"
#include "lib/full.h"
#include "lib/ledger.h"
#include <stdlib.h>

#define MIB (1024ll * 1024)

TestSuite(handover, .timeout = 3600);

/* Calls that a change finds in the driver: slow ones, each a little longer or shorter than the change itself takes. */
static void slow_calls(char *rules, size_t bytes, unsigned seed)
{
    static const char *const names[] = {"cuCtxCreate_v4", "cuCtxDestroy_v2", "cuMemAllocHost_v2", "cuMemFreeHost"};
    size_t length = (size_t)snprintf(rules, bytes, "GPUPROF_SIM_FAULTS=");
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]) && seed % 2; i++, seed = seed * 1103515245 + 12345)
        length +=
            (size_t)snprintf(rules + length, bytes - length, "%s 1+ delay %ums;", names[i], 1 + (seed >> 16) % 14);
}

/* GPUPROF_TEST_HANDOVERS=RUNS[,FIRST]: how many runs, from which seed on. */
Test(handover, totals_stay_exact_when_the_source_changes)
{
    const struct ledger_rules rules = {.is_reserved_polled = true, .peak_slack_bytes = 3 * 8 * MIB};
    unsigned runs = test_is_full() ? 1000 : 12, first = 0, bad = 0;
    char seed[16], slow[256], *wanted = getenv("GPUPROF_TEST_HANDOVERS");
    if (wanted != NULL)
        sscanf(wanted, "%u,%u", &runs, &first);
    for (unsigned i = first; i < first + runs; i++) {
        const char *argv[] = {path_program("handover"), seed, i % 4 ? "8" : "20", NULL}, *env[] = {slow, NULL};
        struct spawn_options options = {.argv = argv, .env = env, .source = "auto", .want_library = true};
        struct spawn_result result = {0};
        struct ledger_diff diff = {0};
        snprintf(seed, sizeof(seed), "%u", i);
        slow_calls(slow, sizeof(slow), i);
        check_against_ledger(&diff, &options, 1, &rules, &result);
        bool is_good = diff.count == 0 && WIFEXITED(result.status) && WEXITSTATUS(result.status) == 0;
        cr_expect(is_good, "seed %u: %s\n%s\n%s%s", i, spawn_status_text(&result), diff.text, result.out, result.err);
        spawn_result_free(&result);
        bad += !is_good;
    }
    printf("handover: %u runs, %u bad\n", runs, bad);
}

/* `gpuprof yield`: with the shim the hooks go on, without it events end; a second time there is nothing to give up. */
static void yields(const char *source, const char *counts, int64_t more)
{
    const char *argv[] = {path_program("steps"), NULL};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    program_hold(&spawn, &(struct spawn_options){.argv = argv, .source = source, .want_library = true});
    json_t *before = ledger_stat(&diff, spawn.held[0]);
    command(0, "yield", "-p", pid_text(spawn.held[0]), NULL);
    command(1, "yield", "-p", pid_text(spawn.held[0]), NULL);
    WARNS("nothing to give up");
    cr_assert_eq(spawn_step(&spawn), 0);
    json_t *after = ledger_stat(&diff, spawn.held[0]);
    const char *is = json_string_value(json_object_get(after, "source"));
    cr_expect(is && strcmp(is, counts) == 0, "%s", is);
    int64_t calls = json_at(after, "devices/0/stats/allocated_bytes.all.allocated", 0) -
                    json_at(before, "devices/0/stats/allocated_bytes.all.allocated", 0);
    cr_expect((calls > 0) == (more > 0), "%lld", (long long)calls);
    json_decref(before);
    json_decref(after);
    program_end(&spawn);
}

Test(handover, an_operator_asks)
{
    yields("auto", "hooks", 1);
    yields(NULL, "cupti", 0);
}
