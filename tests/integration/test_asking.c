/* SPDX-License-Identifier: MIT
 *
 * What the poll thread asks the driver must not harm the program: pools that died with their context are not asked, a
 * capture survives the questions, and if one does not, there are no more.
 */
#include "integration/command.h"
#include "lib/full.h"
#include "lib/ledger.h"
#include <limits.h>
#include <stdlib.h>

#define MIB (1024ll * 1024)

TestSuite(asking, .timeout = 90);

/* The program's numbers at its end, which is a good one. source NULL: CUPTI. */
static json_t *asking_run(const char *program, const char *source, const char *sim)
{
    const char *argv[] = {path_program(program), NULL};
    struct spawn_options options = {.argv = argv, .sim = sim, .source = source, .want_library = true};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    program_hold(&spawn, &options);
    json_t *process = ledger_stat(&diff, spawn.held[0]);
    cr_expect_not_null(process, "%s", diff.text);
    program_end(&spawn);
    return process;
}

static void asking_reset(const char *source, const char *sim)
{
    json_t *process = asking_run("poll_reset", source, sim);
    cr_expect_geq(json_at(process, "devices/0/stats/reserved_bytes.all.current", -1), 64 * MIB);
    json_decref(process);
}

Test(asking, a_pool_that_died_with_its_context_is_not_asked)
{
    asking_reset(NULL, "reset=pools");
    asking_reset("hooks", "reset=pools");
    asking_reset(NULL, "reset=keep");
}

static void asking_captures(const char *source, const char *sim, const char *out, const char *trouble)
{
    json_t *process = asking_run("poll_capture", source, sim);
    const char *says = json_string_value(json_object_get(process, "trouble"));
    cr_expect_str_eq(said.out, out, "%s", sim);
    says = says != NULL ? says : "";
    cr_expect(strncmp(says, trouble, strlen(trouble)) == 0 && (*trouble || !*says), "%s", says);
    json_decref(process);
}

Test(asking, a_capture_survives_the_questions)
{
    static const char good[] = "capture: 0\ncapture: 0\ncapture: 0\ncapture: 0\n";
    asking_captures(NULL, "capture=real", good, "");
    asking_captures("hooks", "capture=real", good, "");
}

Test(asking, nothing_is_asked_after_a_capture_failed)
{
    static const char harmed[] = "capture: 901\ncapture: 0\ncapture: 0\ncapture: 0\n";
    static const char says[] = "a stream capture failed while gpuprof asked";
    asking_captures(NULL, "capture=strict", harmed, says);
    asking_captures("hooks", "capture=strict", harmed, says);
}

/* Each of these calls is delayed by a second, also for the poll thread. The program makes none of them. What its threads wait
 * is measured in front of libc, so that the load of the machine does not count. GPUPROF_TEST_WAITS=RUNS[,FIRST]: how many runs,
 * from which seed on. */
Test(asking, no_thread_of_the_program_waits_for_a_slow_driver, .timeout = 3600)
{
    const char *slow = "GPUPROF_SIM_FAULTS=cuMemPoolGetAttribute 1+ delay 1s;cuDeviceGetDefaultMemPool 1+ delay 1s;"
                       "cuCtxPopCurrent_v2 1+ delay 1s;cuMemGetInfo_v2 1+ delay 1s;cuDeviceTotalMem_v2 1+ delay 1s";
    const char *wanted = getenv("GPUPROF_TEST_WAITS"), *library = path_library();
    unsigned runs = test_is_full() ? 1000 : 12, first = 0, bad = 0;
    long long calls = 0, asleep = 0, locked = 0;
    char seed[16], preload[2][PATH_MAX * 2];
    int folder = (int)(strrchr(library, '/') - library);
    snprintf(preload[0], sizeof(preload[0]), "LD_PRELOAD=%s", path_program("../preload/waits.so"));
    snprintf(preload[1], sizeof(preload[1]), "LD_PRELOAD=%.*s/libgpuprof-shim.so:%s", folder, library,
             path_program("../preload/waits.so"));
    if (wanted != NULL)
        sscanf(wanted, "%u,%u", &runs, &first);
    for (unsigned i = first; i < first + runs; i++) {
        const char *env[] = {preload[i % 3 == 2], i % 5 == 1 ? "GPUPROF_SIM_FAULTS" : slow, NULL};
        const char *argv[] = {path_program("poll_waits"), seed, NULL};
        struct spawn_options options = {
            .argv = argv, .env = env, .want_library = true, .source = i % 3 == 2 ? "hooks" : NULL};
        struct spawn_result result = {0};
        snprintf(seed, sizeof(seed), "%u", i);
        cr_assert_eq(spawn_run(&options, &result), 0);
        bool is_good = WIFEXITED(result.status) && WEXITSTATUS(result.status) == 0;
        const char *figures = strstr(result.out, "calls ");
        long long now[3] = {0};
        cr_expect(is_good, "seed %u: %s\n%s%s", i, spawn_status_text(&result), result.out, result.err);
        cr_assert(figures != NULL &&
                      sscanf(figures, "calls %lld, asleep %lld us, locked %lld us", &now[0], &now[1], &now[2]) == 3,
                  "%s%s", result.out, result.err);
        calls += now[0];
        asleep = now[1] > asleep ? now[1] : asleep;
        locked = now[2] > locked ? now[2] : locked;
        bad += !is_good;
        spawn_result_free(&result);
    }
    printf("waits: %u runs, %lld calls, %u bad; the longest sleep %lld us, the longest wait for a lock %lld us\n", runs,
           calls, bad, asleep, locked);
}
