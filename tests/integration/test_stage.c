/* SPDX-License-Identifier: MIT
 *
 * The programs that judge the caching allocator, judged themselves: on the bare driver they print the same with and
 * without virtual latencies and use no memory out of order, and each notices an allocator that breaks the rule that it
 * is about (lib/preload/careless.c).
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/build.h"
#include "lib/catalog.h"
#include "lib/ledger.h"
#include "lib/paths.h"

TestSuite(stage, .timeout = 90);

struct stage_run {
    struct spawn_result result;
    long long hazards; /* over all devices; -1: no ledger, as the process died of a signal */
};

static long long stage_hazards(const char *form, pid_t pid)
{
    struct ledger_diff diff = {0};
    json_t *ledger = ledger_load(&diff, form, pid), *device;
    long long hazards = ledger == NULL ? -1 : 0;
    size_t i;
    json_array_foreach(json_object_get(ledger, "devices"), i, device)
    {
        hazards += json_at(device, "hazards", 0);
    }
    json_decref(ledger);
    return hazards;
}

static void stage_start(const struct catalog_entry *entry, const char *latency, const char *const *more,
                        struct stage_run *run)
{
    const char *argv[CATALOG_ARGS + 2], *env[8];
    char *folder = build_folder(); /* some programs have children, which write ledgers of their own */
    char form[96], setting[128], sim[128];
    struct spawn_options options;
    struct spawn spawn;
    pid_t pid;
    int count = 0;
    cr_assert_not_null(folder);
    snprintf(form, sizeof(form), "%s/%%p.json", folder);
    snprintf(setting, sizeof(setting), "GPUPROF_SIM_LEDGER=%s", form);
    snprintf(sim, sizeof(sim), "latency=%s%s%s", latency, entry->sim != NULL ? "," : "",
             entry->sim != NULL ? entry->sim : "");
    catalog_options(entry, argv, &options);
    options.sim = sim;
    env[count++] = setting;
    while (more != NULL && *more != NULL && count < 7)
        env[count++] = *more++;
    env[count] = NULL;
    options.env = env;
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    pid = spawn.pid;
    spawn_finish(&spawn, &run->result);
    run->hazards = stage_hazards(form, pid);
    build_remove(folder);
}

/* Not those that end without the simulator's destructor, which writes the ledger. */
static bool stage_is_ours(const struct catalog_entry *entry)
{
    bool has_ledger = entry->note == NULL || strstr(entry->note, "_exit") == NULL;
    return has_ledger && strncmp(entry->name, "shim_", 5) == 0 && catalog_is_light(entry);
}

ParameterizedTestParameters(stage, the_bare_driver_is_the_reference)
{
    return catalog_each(stage_is_ours);
}

ParameterizedTest(int *index, stage, the_bare_driver_is_the_reference)
{
    const struct catalog_entry *entry = &catalog[*index];
    const char *title = catalog_title(entry);
    struct stage_run zero = {.hazards = -1}, typical = {.hazards = -1};
    stage_start(entry, "zero", NULL, &zero);
    stage_start(entry, "typical", NULL, &typical);
    cr_expect_eq(zero.result.status, entry->exit_code << 8, "%s: %s", title, spawn_status_text(&zero.result));
    cr_expect_null(strstr(zero.result.out, "failed: "), "%s: a call failed:\n%s", title, zero.result.out);
    cr_expect_eq(zero.hazards, 0, "%s: %lld hazards", title, zero.hazards);
    cr_expect_eq(typical.hazards, 0, "%s: %lld hazards with latencies", title, typical.hazards);
    cr_expect_eq(typical.result.status, zero.result.status, "%s: with latencies: %s", title,
                 spawn_status_text(&typical.result));
    cr_expect_str_eq(typical.result.out, zero.result.out, "%s: with latencies:\n%s\nwithout:\n%s", title,
                     typical.result.out, zero.result.out);
    spawn_result_free(&zero.result);
    spawn_result_free(&typical.result);
}

/* ---- who notices what ---------------------------------------------------------------------------------------- */

enum stage_sign { HAZARDS, OUTPUT };

static const struct stage_case {
    const char *program, *mode;
    enum stage_sign sign;
} stage_cases[] = {
    {"shim_streams", "cache", HAZARDS},  {"shim_async_free_use", "cache", HAZARDS},
    {"shim_pattern", "cache", HAZARDS},  {"shim_threads", "cache", HAZARDS},
    {"shim_capture", "cache", OUTPUT},   {"shim_meminfo", "cache", OUTPUT},
    {"shim_oom_retry", "cache", OUTPUT}, {"shim_range", "cache", OUTPUT},
    {"shim_context", "cache", OUTPUT},   {"shim_pass", "cache", OUTPUT},
    {"shim_zero", "cache", OUTPUT},      {"shim_fork", "cache", OUTPUT},
    {"shim_pattern", "short", OUTPUT},   {"shim_align", "slab", OUTPUT},
    {"shim_ipc", "slab", OUTPUT},        {"shim_peer", "slab", OUTPUT},
    {"shim_peer", "slab", HAZARDS},
};

static const struct catalog_entry *stage_find(const char *program)
{
    size_t i;
    for (i = 0; i < catalog_count && strcmp(catalog[i].name, program) != 0; i++) {
    }
    return i < catalog_count ? &catalog[i] : NULL;
}

static void stage_notices(const struct stage_case *c, const char *preload)
{
    const struct catalog_entry *entry = stage_find(c->program);
    struct stage_run right = {.hazards = -1}, wrong = {.hazards = -1};
    char mode[64];
    const char *env[] = {preload, mode, NULL};
    cr_assert_not_null(entry, "%s is not in the catalog", c->program);
    snprintf(mode, sizeof(mode), "GPUPROF_TEST_CARELESS=%s", c->mode);
    stage_start(entry, "zero", NULL, &right);
    stage_start(entry, "zero", env, &wrong);
    if (c->sign == HAZARDS) {
        cr_expect_gt(wrong.hazards, 0, "%s: %s: %lld hazards", c->program, c->mode, wrong.hazards);
    } else {
        cr_expect_gt(wrong.result.out_len, 0, "%s: %s: says nothing: %s", c->program, c->mode, wrong.result.err);
        cr_expect_str_neq(wrong.result.out, right.result.out, "%s: %s: prints the same", c->program, c->mode);
    }
    spawn_result_free(&right.result);
    spawn_result_free(&wrong.result);
}

Test(stage, a_careless_allocator_is_noticed)
{
    char *folder = build_folder(), preload[256], include[512];
    size_t i;
    cr_assert_not_null(folder);
    snprintf(include, sizeof(include), "-I%s", path_source("sim/include"));
    cr_assert_eq(build_shared(folder, "careless.c", "careless.so", include), 0);
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/careless.so", folder);
    for (i = 0; i < sizeof(stage_cases) / sizeof(stage_cases[0]); i++)
        if (catalog_is_light(stage_find(stage_cases[i].program)))
            stage_notices(&stage_cases[i], preload);
    build_remove(folder);
}
