/* SPDX-License-Identifier: MIT
 *
 * test_loader.c: a thread loads a library whose constructor calls cuInit, while another thread is in
 * cuInit and starts gpuprof (base/opener.h). Both must go on, and the log says why nothing is
 * counted.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <time.h>

#include "integration/command.h"
#include "lib/ledger.h"

#define MIB (1024ll * 1024)

TestSuite(loader, .timeout = 120);

static const struct loader_case {
    char pause[32]; /* where the start stops (tests/lib/preload/pause.c) */
    char source[16];
    char said[48];
} loader_cases[] = {
    {"memfd_create", "", "a thread that loads a library"},
    {"pthread_sigmask", "", "a thread that loads a library"},
    {"pthread_sigmask", "hooks", ""}, /* all was looked up before the driver was called */
    {"", "", ""},
};

ParameterizedTestParameters(loader, a_constructor_may_call_cuinit_while_gpuprof_starts)
{
    return cr_make_param_array(struct loader_case, (void *)loader_cases,
                               sizeof(loader_cases) / sizeof(loader_cases[0]));
}

static double loader_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

ParameterizedTest(struct loader_case *one, loader, a_constructor_may_call_cuinit_while_gpuprof_starts)
{
    const char *program = path_program("loader_cross"), *library = path_library();
    const char *argv[] = {program, NULL}, *env[5] = {"GPUPROF_LOG=warning"};
    bool has_hooks = one->source[0] != '\0';
    struct spawn_options options = {.argv = argv, .env = env, .want_library = !has_hooks};
    char preload[1024], pause[64];
    double begin = loader_seconds();
    snprintf(pause, sizeof(pause), "GPUPROF_TEST_PAUSE=%s", one->pause);
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%.*s/../preload/pause.so%s%.*s%s",
             (int)(strrchr(program, '/') - program), program, has_hooks ? ":" : "",
             has_hooks ? (int)(strrchr(library, '/') - library) : 0, library, has_hooks ? "/libgpuprof-shim.so" : "");
    env[1] = pause;
    env[2] = one->pause[0] != '\0' ? preload : "GPUPROF_TEST_NONE=";
    env[3] = has_hooks ? "GPUPROF_SOURCE=hooks" : NULL;
    run_program(0, &options);
    SAYS("constructor: cuInit: 0");
    SAYS("thread: cuInit: 0");
    cr_expect(one->said[0] ? strstr(said.err, one->said) != NULL : !said.err[0], "%s: %s", one->pause, said.err);
    /* It gives up after 0.2 s in which the process does nothing. */
    cr_expect_lt(loader_seconds() - begin, 1.5, "%s", one->pause);
}

/* A start that gave up whenever the machine is slow would leave programs without numbers. */
Test(loader, a_thread_that_waits_its_turn_is_waited_for)
{
    const char *argv[] = {path_program("linear"), NULL},
               *env[4] = {"GPUPROF_LOG=warning", "GPUPROF_TEST_PAUSE=gpuprof-load"};
    struct ledger_diff diff = {0};
    struct spawn spawn;
    char preload[1024];
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%.*s/../preload/pause.so", (int)(strrchr(argv[0], '/') - argv[0]),
             argv[0]);
    env[2] = preload;
    program_hold(&spawn, &(struct spawn_options){.argv = argv, .env = env, .want_library = true});
    json_t *process = ledger_stat(&diff, spawn.held[0]);
    cr_expect_gt(json_at(process, "devices/0/stats/allocated_bytes.all.current", -1), 0, "%s", diff.text);
    json_decref(process);
    program_end(&spawn);
    cr_expect_str_empty(said.err);
}

/* The constructor's own thread holds the loader's lock, which is recursive: it starts gpuprof itself, at once. */
Test(loader, a_constructor_may_make_the_first_cuinit)
{
    const char *argv[] = {path_program("loader_first"), NULL};
    int round;
    for (round = 0; round < 2; round++) {
        struct ledger_diff diff = {0};
        struct spawn spawn;
        double begin = loader_seconds();
        json_t *process;
        program_hold(&spawn,
                     &(struct spawn_options){.argv = argv, .want_library = true, .source = round ? "hooks" : NULL});
        cr_expect_lt(loader_seconds() - begin, 1.0);
        process = ledger_stat(&diff, spawn.held[0]);
        cr_expect_eq(json_at(process, "devices/0/stats/allocated_bytes.all.current", -1), MIB, "%s", diff.text);
        json_decref(process);
        program_end(&spawn);
    }
}

/* A thread that waits for the loader with a lock of ours held hangs the program in every second run on average. */
Test(loader, threads_may_allocate_with_the_loaders_locks_held)
{
    const char *argv[] = {path_program("loader_busy"), NULL};
    int round;
    for (round = 0; round < 12; round++) {
        const char *env[] = {"GPUPROF_STACKS=all", NULL};
        struct spawn_options options = {.argv = argv, .want_library = true, .seconds = 15};
        options.env = round % 4 == 1 ? env : NULL;
        options.source = round % 4 == 2 ? "hooks" : NULL;
        run_program(0, &options);
    }
}
