/* SPDX-License-Identifier: MIT
 *
 * The program's own cuMemAlloc and cuMemFree behind the cache, on the simulated GPU: every program
 * of the catalog prints and returns the same under each allocator as without one; the simulator,
 * which knows the order of all work, sees no use of memory that the program's order does not
 * protect; and the profiler's reserved bytes are the bytes that the driver has given out.
 * Run: first
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/catalog.h"
#include "lib/full.h"
#include "lib/paths.h"

TestSuite(shim, .timeout = 600); /* for a loaded machine: on a quiet one no test takes a minute */

static const char *const shim_policies[] = {"caching", "pytorch", "auto_growth", "prealloc", "passthrough"};
#define SHIM_POLICIES (sizeof(shim_policies) / sizeof(shim_policies[0]))

/* Programs whose own order is not enough: they free pool memory with cuMemFree, which waits for
 * nothing, and are saved, if at all, by another cuMemFree that happens to wait for the whole
 * device.  A cached free does not. */
static const char *const shim_borrowers[] = {"mixed", "pools_rt"};
/* prealloc takes most of the device in one piece for the first context, as its user wants.  These
 * need the rest, or export a part of it. */
static const char *const shim_crowded[] = {"contexts", "shim_context", "shim_ipc", "shim_range"};

struct shim_env {
    char preload[512], allocator[64], ledger[96], conf[128];
    const char *env[8];
};

static void shim_env(struct shim_env *env, const char *policy, const char *conf)
{
    const char *library = path_library();
    snprintf(env->preload, sizeof(env->preload), "LD_PRELOAD=%.*s/libgpuprof-shim.so",
             (int)(strrchr(library, '/') - library), library);
    snprintf(env->allocator, sizeof(env->allocator), "GPUPROF_ALLOCATOR=%s", policy);
    snprintf(env->conf, sizeof(env->conf), "GPUPROF_ALLOC_CONF=%s", conf != NULL ? conf : "");
    snprintf(env->ledger, sizeof(env->ledger), "GPUPROF_TEST_LEDGER=/tmp/gpuprof-test-shim-%d-%%p.json", (int)getpid());
    env->env[0] = env->preload;
    env->env[1] = env->allocator;
    env->env[2] = env->conf;
    env->env[3] = env->ledger;
    env->env[4] = NULL;
}

static bool shim_is_one_of(const char *name, const char *const *list, size_t count)
{
    size_t i;
    for (i = 0; i < count && strcmp(name, list[i]) != 0; i++) {
    }
    return i < count;
}
#define SHIM_IS_ONE_OF(_name, _list) shim_is_one_of(_name, _list, sizeof(_list) / sizeof((_list)[0]))

static void shim_same(const char *title, const char *policy, const struct spawn_result *with,
                      const struct spawn_result *without)
{
    cr_expect_eq(with->status, without->status, "%s under %s: %s (%d); without: %d\n%s", title, policy,
                 spawn_status_text(with), with->status, without->status, with->err);
    cr_expect_str_eq(with->out, without->out, "%s under %s: stdout with:\n%s\nwithout:\n%s", title, policy, with->out,
                     without->out);
    cr_expect_str_eq(with->err, without->err, "%s under %s: stderr with:\n%s\nwithout:\n%s", title, policy, with->err,
                     without->err);
}

static long long shim_hazards(const json_t *ledger)
{
    long long hazards = 0;
    json_t *device;
    size_t i;
    json_array_foreach(json_object_get(ledger, "devices"), i, device) hazards += json_at(device, "hazards", 0);
    return hazards;
}

/* Held at its end: the simulator's hazards, and the profiler's reserved bytes against the driver's. */
/* loose: after a free that the driver refused, memory remains without an owner. */
static void shim_look(const struct catalog_entry *entry, const char *policy, pid_t pid, bool loose)
{
    const char *title = catalog_title(entry);
    struct ledger_diff diff = {0};
    char form[96];
    json_t *ledger, *process, *device;
    size_t i;
    snprintf(form, sizeof(form), "/tmp/gpuprof-test-shim-%d-%%p.json", (int)getpid());
    ledger = ledger_load(&diff, form, pid);
    process = ledger_stat(&diff, pid);
    cr_expect(ledger != NULL && process != NULL, "%s under %s: %s", title, policy, diff.text);
    cr_expect(shim_hazards(ledger) == 0 || SHIM_IS_ONE_OF(entry->name, shim_borrowers), "%s under %s: %lld hazards",
              title, policy, shim_hazards(ledger));
    json_array_foreach(json_object_get(process, "devices"), i, device)
    {
        const json_t *truth = json_array_get(json_object_get(ledger, "devices"), i);
        long long has = json_at(json_object_get(device, "stats"), "reserved_bytes.all.current", -1);
        long long gave = json_at(truth, "reserved_bytes/current", -2);
        cr_expect(has == gave || (loose && has < gave), "%s under %s: device %zu: reserved %lld, the driver gave %lld",
                  title, policy, i, has, gave);
    }
    json_decref(ledger);
    json_decref(process);
}

/* Entries of programs that were written for this. */
static bool shim_is_ours(const struct catalog_entry *entry)
{
    return strncmp(entry->name, "shim_", 5) == 0;
}

static void shim_options(const struct catalog_entry *entry, const char *sim, const char **argv,
                         struct spawn_options *options)
{
    catalog_options(entry, argv, options);
    if (sim != NULL)
        options->sim = sim;
}

static void shim_run(const struct catalog_entry *entry, const char *policy, const char *conf, const char *sim,
                     const struct spawn_result *without)
{
    const char *argv[CATALOG_ARGS + 2];
    struct spawn_options options;
    struct spawn_result with = {0};
    struct shim_env env;
    struct spawn spawn;
    int i;
    shim_options(entry, sim, argv, &options);
    shim_env(&env, policy, conf);
    options.env = env.env;
    options.want_library = true;
    options.want_hold = true;
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    spawn_wait_held(&spawn, entry->processes == 0 ? 1 : entry->processes);
    for (i = 0; i < spawn.held_count; i++)
        shim_look(entry, policy, spawn.held[i], false);
    spawn_finish(&spawn, &with);
    shim_same(catalog_title(entry), policy, &with, without);
    spawn_result_free(&with);
}

static void shim_plain(const struct catalog_entry *entry, const char *sim, struct spawn_result *without)
{
    const char *argv[CATALOG_ARGS + 2];
    struct spawn_options options;
    shim_options(entry, sim, argv, &options);
    cr_assert_eq(spawn_run(&options, without), 0);
}

/* Under each policy; in a short run under the first, and under one other where that is quick. */
static void shim_policies_run(int index, const char *sim)
{
    const struct catalog_entry *entry = &catalog[index];
    struct spawn_result without = {0};
    size_t i;
    shim_plain(entry, sim, &without);
    for (i = 0; i < SHIM_POLICIES; i++) {
        bool is_other = catalog_is_light(entry) && i == 1 + (size_t)index % (SHIM_POLICIES - 1);
        bool is_wanted = test_is_full() || i == 0 || is_other;
        bool is_crowded = strcmp(shim_policies[i], "prealloc") == 0 && SHIM_IS_ONE_OF(entry->name, shim_crowded);
        if (is_wanted && !is_crowded)
            shim_run(entry, shim_policies[i], NULL, sim, &without);
    }
    spawn_result_free(&without);
}

ParameterizedTestParameters(shim, every_program_is_the_same)
{
    return catalog_each(NULL);
}

ParameterizedTest(int *index, shim, every_program_is_the_same)
{
    shim_policies_run(*index, NULL);
}

ParameterizedTestParameters(shim, with_unfinished_work)
{
    return catalog_each(shim_is_ours);
}

/* Work takes time: it still runs when its memory is freed and reused. */
ParameterizedTest(int *index, shim, with_unfinished_work)
{
    const char *own = catalog[*index].sim;
    char sim[128];
    snprintf(sim, sizeof(sim), "%s%slatency=typical", own != NULL ? own : "", own != NULL ? "," : "");
    shim_policies_run(*index, sim);
}

/* Programs that see what growable segments are: such memory has no legacy IPC, and is copied
 * between devices only where they are peers.  Of a context that ends while another thread makes a segment grow, pages
 * remain with the driver (docs/allocator.md).  A short run has the programs that were written for
 * the cache, and every fourth of the others. */
static bool shim_may_grow(const struct catalog_entry *entry)
{
    static const char *const apart[] = {"shim_ipc", "shim_range", "ipc", "shim_peer", "ends_race"};
    bool is_wanted = shim_is_ours(entry) ? catalog_is_light(entry) : test_is_full() || (entry - catalog) % 4 == 0;
    return is_wanted && !SHIM_IS_ONE_OF(entry->name, apart);
}

ParameterizedTestParameters(shim, with_growable_segments)
{
    return catalog_each(shim_may_grow);
}

ParameterizedTest(int *index, shim, with_growable_segments)
{
    struct spawn_result without = {0};
    shim_plain(&catalog[*index], NULL, &without);
    shim_run(&catalog[*index], "caching", "expandable_segments:True", NULL, &without);
    spawn_result_free(&without);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

/* The driver refuses calls of the cache, once or from then on.  These are not the program's calls,
 * so the program may see an error that it would not have seen, or none where it would have; but it
 * ends by itself and uses only its own memory. */
static void shim_fault(const struct catalog_entry *entry, const char *api, int number, const char *onwards, int error)
{
    const char *argv[CATALOG_ARGS + 2];
    struct spawn_options options;
    struct spawn_result result = {0};
    struct shim_env env;
    struct spawn spawn;
    char faults[96];
    int i;
    catalog_options(entry, argv, &options);
    shim_env(&env, "caching", NULL);
    snprintf(faults, sizeof(faults), "GPUPROF_SIM_FAULTS=%s %d%s fail %d", api, number, onwards, error);
    env.env[4] = faults;
    env.env[5] = NULL;
    options.env = env.env;
    options.want_library = true;
    options.want_hold = true;
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    spawn_wait_held(&spawn, 1);
    for (i = 0; i < spawn.held_count; i++)
        shim_look(entry, faults, spawn.held[i], strcmp(api, "cuMemFree_v2") == 0);
    spawn_finish(&spawn, &result);
    cr_expect(WIFEXITED(result.status), "%s under \"%s\": %s\n%s", entry->name, faults, spawn_status_text(&result),
              result.err);
    spawn_result_free(&result);
}

static const char *const shim_calls[] = {
    "cuMemAlloc_v2",     "cuMemFree_v2",        "cuEventCreate",
    "cuEventRecord",     "cuEventQuery",        "cuEventSynchronize",
    "cuStreamWaitEvent", "cuStreamIsCapturing", "cuStreamQuery",
    "cuCtxGetCurrent",   "cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode",
    "cuStreamCreate",    "cuMemGetInfo_v2",     "cuDevicePrimaryCtxGetState"};
#define SHIM_CALLS (sizeof(shim_calls) / sizeof(shim_calls[0]))

static const struct catalog_entry *shim_entry(const char *name)
{
    size_t i;
    for (i = 0; i < catalog_count && strcmp(catalog[i].name, name) != 0; i++) {
    }
    cr_assert(i < catalog_count);
    return &catalog[i];
}

ParameterizedTestParameters(shim, any_driver_call_may_fail)
{
    int *index = cr_malloc(sizeof(*index) * SHIM_CALLS);
    size_t i;
    for (i = 0; i < SHIM_CALLS; i++)
        index[i] = (int)i;
    return cr_make_param_array(int, index, SHIM_CALLS, (void (*)(struct criterion_test_params *))NULL);
}

/* Each program and each number; in a short run each call fails once in one program, and every third
 * call for good in another. */
ParameterizedTest(int *index, shim, any_driver_call_may_fail)
{
    static const char *const programs[] = {"shim_streams", "shim_capture", "shim_context", "shim_oom_retry"};
    static const int numbers[] = {1, 3, 20};
    size_t count = sizeof(programs) / sizeof(programs[0]), i, k, call = (size_t)*index;
    for (i = 0; i < count; i++) {
        const struct catalog_entry *entry = shim_entry(programs[i]);
        for (k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++)
            if (test_is_full() || (i == call % count && k == call % 3))
                shim_fault(entry, shim_calls[call], numbers[k], "", k % 2 == 0 ? 2 : 999);
        if (test_is_full() || (call % 3 == 0 && i == (call + 1) % count))
            shim_fault(entry, shim_calls[call], 4, "+", 2);
    }
}

/* ---- the explicit interfaces ------------------------------------------------------------------------------------- */

static void shim_lend(const char *what, bool preload, const char *policy, const char *sim, char **reference)
{
    const struct catalog_entry entry = {.name = "lend"};
    const char *argv[] = {path_program("lend"), NULL};
    struct spawn_options options = {.argv = argv, .sim = sim, .want_library = true, .want_hold = true};
    struct spawn_result result = {0};
    struct shim_env env;
    struct spawn spawn;
    shim_env(&env, policy, NULL);
    if (!preload) {
        env.env[0] = "LD_PRELOAD";
        env.env[1] = "GPUPROF_ALLOCATOR";
    }
    options.env = env.env;
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    cr_expect_eq(spawn_wait_held(&spawn, 1), 0, "%s: it never came to its end", what);
    if (spawn.held_count == 1)
        shim_look(&entry, what, spawn.held[0], false);
    spawn_finish(&spawn, &result);
    cr_expect_eq(result.status, 0, "%s: %s\n%s%s", what, spawn_status_text(&result), result.out, result.err);
    if (*reference == NULL)
        *reference = strdup(result.out);
    cr_expect_str_eq(result.out, *reference, "%s:\n%s\nfirst:\n%s", what, result.out, *reference);
    spawn_result_free(&result);
}

Test(shim, explicit_interfaces)
{
    char *reference = NULL;
    shim_lend("injected alone", false, "", NULL, &reference);
    cr_expect(strstr(reference, "the same stream gets it again: 0") == NULL &&
                  strstr(reference, "driver calls of 1000 pairs: 0") != NULL &&
                  strstr(reference, "given to no other: 0") == NULL && strstr(reference, " 1 wrong") == NULL,
              "%s", reference);
    shim_lend("injected alone, slow", false, "", "latency=typical", &reference);
    shim_lend("preloaded", true, "", NULL, &reference);
    shim_lend("preloaded and serving", true, "caching", NULL, &reference);
    shim_lend("preloaded and serving, slow", true, "caching", "latency=typical", &reference);
    free(reference);
}
