/* SPDX-License-Identifier: MIT
 *
 * For every program and every driver function that it calls: the Nth call fails, for every N.  The
 * profiler must still equal the ledger, and the program must print and return the same as without
 * the profiler under the same fault.
 *
 * Bounded: each program gets FAULT_SECONDS, spent on N = 1 of every function first, then N = 2,
 * ...; the points left out are logged.  Deterministic programs of up to some hundred calls are
 * covered whole.  A short run has N = 1 of every sixth function of a program, each program
 * beginning with another one.
 * Run: first
 */
#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "lib/catalog.h"
#include "lib/full.h"

/* 50 programs on two processors within about three minutes. */
#define FAULT_SECONDS 7
#define FAULT_APIS    128

struct fault_api {
    char name[64];
    long calls;
    bool is_shared; /* the profiler calls it too, so the Nth call may be the profiler's */
};

struct fault_plan {
    const struct catalog_entry *entry;
    struct fault_api apis[FAULT_APIS];
    int api_count;
    long runs, left_out;
    int broken; /* faults that showed a difference: the first few are printed */
};

TestSuite(faults, .timeout = 120);

/* ---- which functions does the program call, and how often ---------------------------------------------------- */

/* The ledger's driver_calls, over all devices, of one undisturbed run.  NULL on failure. */
static json_t *fault_count(const struct catalog_entry *entry, bool want_library)
{
    const char *argv[CATALOG_ARGS + 2];
    char form[128], setting[160];
    const char *env[] = {setting, NULL};
    struct spawn_options options;
    struct spawn_result result = {0};
    struct spawn spawn;
    json_t *ledger = NULL, *devices, *device, *count, *sum = json_object();
    struct ledger_diff diff = {0};
    const char *name;
    size_t i;
    snprintf(form, sizeof(form), "/tmp/gpuprof-test-count-%d-%%p.json", (int)getpid());
    snprintf(setting, sizeof(setting), "GPUPROF_TEST_LEDGER=%s", form);
    catalog_options(entry, argv, &options);
    options.env = env;
    options.want_hold = true;
    options.want_library = want_library;
    if (spawn_start(&spawn, &options) == 0) {
        spawn_wait_held(&spawn, entry->processes == 0 ? 1 : entry->processes);
        for (i = 0; i < (size_t)spawn.held_count; i++) {
            json_decref(ledger);
            ledger = ledger_load(&diff, form, spawn.held[i]); /* of two processes, the parent's comes last */
        }
        spawn_finish(&spawn, &result);
        spawn_result_free(&result);
    }
    devices = json_object_get(ledger, "devices");
    json_array_foreach(devices, i, device)
    {
        json_object_foreach(json_object_get(device, "driver_calls"), name, count)
        {
            json_object_set_new(sum, name, json_integer(json_at(sum, name, 0) + json_integer_value(count)));
        }
    }
    json_decref(ledger);
    return sum;
}

/* The library's poller (src/source/poll.c) calls the driver at its own times, so its calls depend
 * on the duration of the program.  These are the functions that it may call. */
static bool fault_is_polled(const char *name)
{
    static const char *const names[] = {
        "cuDriverGetVersion",
        "cuDeviceGet",
        "cuDeviceGetCount",
        "cuDeviceGetUuid",
        "cuDeviceGetName",
        "cuDeviceTotalMem",
        "cuDeviceGetDefaultMemPool",
        "cuMemPoolGetAttribute",
        "cuMemGetInfo",
        "cuDeviceGetGraphMemAttribute",
        "cuPointerGetAttribute",
        "cuCtxPushCurrent",
        "cuCtxPopCurrent",
        "cuThreadExchangeStreamCaptureMode",
    };
    size_t i, bytes;
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bytes = strlen(names[i]);
        if (strncmp(name, names[i], bytes) == 0 && (name[bytes] == '\0' || name[bytes] == '_'))
            return true;
    }
    return false;
}

static void fault_plan_make(struct fault_plan *plan)
{
    json_t *alone = fault_count(plan->entry, false), *profiled = fault_count(plan->entry, true), *count;
    const char *name;
    json_object_foreach(alone, name, count)
    {
        struct fault_api *api = &plan->apis[plan->api_count];
        if (json_integer_value(count) == 0 || plan->api_count == FAULT_APIS)
            continue;
        snprintf(api->name, sizeof(api->name), "%s", name);
        api->calls = (long)json_integer_value(count);
        api->is_shared = fault_is_polled(name) || json_at(profiled, name, 0) != api->calls;
        plan->api_count++;
    }
    json_decref(alone);
    json_decref(profiled);
}

static void fault_plan_thin(struct fault_plan *plan, int begin)
{
    int i, count = 0;
    for (i = begin % 6 < plan->api_count ? begin % 6 : 0; i < plan->api_count; i += 6)
        plan->apis[count++] = plan->apis[i];
    plan->api_count = count;
}

/* ---- one fault ----------------------------------------------------------------------------------------------- */

static void fault_same(struct ledger_diff *diff, const struct spawn_result *with, const struct spawn_result *without)
{
    if (with->status != without->status) {
        ledger_diff_add(diff, "  with the library: %s", spawn_status_text(with));
        ledger_diff_add(diff, "  without:          %s", spawn_status_text(without));
    }
    if (strcmp(with->out, without->out) != 0)
        ledger_diff_add(diff, "  stdout with:\n%.1000s  stdout without:\n%.1000s", with->out, without->out);
    if (strcmp(with->err, without->err) != 0)
        ledger_diff_add(diff, "  stderr with:\n%.500s  stderr without:\n%.500s", with->err, without->err);
}

static void fault_run(struct fault_plan *plan, const struct fault_api *api, long number, bool onwards)
{
    const struct catalog_entry *entry = plan->entry;
    const char *argv[CATALOG_ARGS + 2];
    char setting[128];
    const char *env[] = {setting, NULL};
    struct spawn_options options;
    struct spawn_result with = {0}, without = {0};
    struct ledger_diff diff = {0};
    struct ledger_rules rules = entry->rules;
    int processes = entry->processes == 0 ? 1 : entry->processes;
    rules.is_pool_left |= onwards && strcmp(api->name, "cuMemFreeAsync") == 0; /* a pool is destroyed with its blocks */
    snprintf(setting, sizeof(setting), "GPUPROF_SIM_FAULTS=%s %ld%s fail 2", api->name, number, onwards ? "+" : "");
    catalog_options(entry, argv, &options);
    options.env = env;
    cr_assert_eq(spawn_run(&options, &without), 0);
    cr_assert(!WIFEXITED(without.status) || WEXITSTATUS(without.status) < 125, "%s does not run at all: %s",
              catalog_title(entry), without.err);
    if (strcmp(api->name, "cuInit") == 0) { /* the library is loaded by a cuInit that succeeds: nothing to compare */
        options.want_library = true;
        cr_assert_eq(spawn_run(&options, &with), 0);
    } else {
        /* A program that dies of the fault by itself never holds; then only its death is compared. */
        bool dies = WIFSIGNALED(without.status);
        check_against_ledger(&diff, &options, dies ? 0 : processes, &rules, &with);
    }
    if (!entry->has_threads && !api->is_shared)
        fault_same(&diff, &with, &without);
    plan->runs++;
    if (diff.count > 0 && plan->broken++ < 3)
        cr_expect(false, "%s under \"%s\":\n%s", catalog_title(entry), setting, diff.text);
    spawn_result_free(&with);
    spawn_result_free(&without);
}

ParameterizedTestParameters(faults, every_call_may_fail)
{
    return catalog_each(catalog_is_light);
}

ParameterizedTest(int *index, faults, every_call_may_fail)
{
    struct fault_plan plan = {.entry = &catalog[*index]};
    uint64_t end = gp_clock_ns() + FAULT_SECONDS * 1000000000ull;
    long number, most = 1;
    int i;
    fault_plan_make(&plan);
    if (!test_is_full())
        fault_plan_thin(&plan, *index);
    cr_assert_gt(plan.api_count, 0, "%s: no driver call in its ledger", catalog_title(plan.entry));
    for (number = 1; number <= (test_is_full() ? most : 1); number++) {
        for (i = 0; i < plan.api_count; i++) {
            most = plan.apis[i].calls > most ? plan.apis[i].calls : most;
            if (number > plan.apis[i].calls)
                continue;
            if (gp_clock_ns() > end) {
                plan.left_out++;
                continue;
            }
            fault_run(&plan, &plan.apis[i], number, false);
            if (number == 1 && plan.apis[i].calls > 1)
                fault_run(&plan, &plan.apis[i], 1, true);
        }
    }
    cr_log_info("%s: %ld faults, %ld left out\n", catalog_title(plan.entry), plan.runs, plan.left_out);
    cr_expect_eq(plan.broken, 0, "%s: %d of %ld faults show a difference", catalog_title(plan.entry), plan.broken,
                 plan.runs);
}
