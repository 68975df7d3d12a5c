/* SPDX-License-Identifier: MIT
 *
 * ledger.c: see ledger.h.  Called by the accounting, fault and session tests; it shares no code with the product.
 */
#include "lib/ledger.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The profiler measures or estimates these kinds, so the ledger does not have them. */
static const char *const ledger_unknown_kinds[] = {"context", "module", "untracked"};

void ledger_diff_add(struct ledger_diff *diff, const char *form, ...)
{
    size_t len = strlen(diff->text);
    va_list args;
    diff->count++;
    va_start(args, form);
    vsnprintf(diff->text + len, sizeof(diff->text) - len, form, args);
    va_end(args);
    len = strlen(diff->text);
    if (len + 2 < sizeof(diff->text))
        memcpy(diff->text + len, "\n", 2);
}

long long json_at(const json_t *root, const char *path, long long fallback)
{
    char copy[256];
    char *rest = copy, *key;
    snprintf(copy, sizeof(copy), "%s", path);
    while (root != NULL && (key = strsep(&rest, "/")) != NULL)
        root = json_is_array(root) ? json_array_get(root, (size_t)atoi(key)) : json_object_get(root, key);
    return json_is_integer(root) ? json_integer_value(root) : fallback;
}

/* ---- comparing ----------------------------------------------------------------------------------------------- */

static void ledger_equal(struct ledger_diff *diff, const char *where, const char *what, long long profiler,
                         long long truth)
{
    if (profiler != truth) {
        ledger_diff_add(diff, "  %s: %s: gpuprof %lld, ledger %lld (%+lld)", where, what, profiler, truth,
                        profiler - truth);
    }
}

static void ledger_between(struct ledger_diff *diff, const char *where, const char *what, long long profiler,
                           long long low, long long high)
{
    if (profiler < low || profiler > high)
        ledger_diff_add(diff, "  %s: %s: gpuprof %lld, ledger allows %lld to %lld", where, what, profiler, low, high);
}

static bool ledger_is_measured(const char *kind)
{
    size_t i;
    for (i = 0; i < sizeof(ledger_unknown_kinds) / sizeof(ledger_unknown_kinds[0]); i++)
        if (strcmp(kind, ledger_unknown_kinds[i]) == 0)
            return true;
    return false;
}

static void ledger_compare_kind(struct ledger_diff *diff, const char *where, const char *kind, const json_t *profiler,
                                const json_t *truth, long long slack)
{
    char name[128];
    long long bytes = json_at(truth, "current_bytes", 0), bytes_peak = json_at(truth, "peak_bytes", 0);
    long long live = json_at(truth, "live", 0), live_peak = json_at(truth, "live_peak", 0);
    bool late = strcmp(kind, "imported") == 0;
    long long low = late || bytes_peak - slack < bytes ? bytes : bytes_peak - slack;
    snprintf(name, sizeof(name), "%s %s", where, kind);
    ledger_equal(diff, name, "current_bytes", json_at(profiler, "current_bytes", 0), bytes);
    ledger_between(diff, name, "peak_bytes", json_at(profiler, "peak_bytes", 0), low, bytes_peak);
    ledger_equal(diff, name, "calls", json_at(profiler, "calls", 0), json_at(truth, "calls", 0));
    ledger_equal(diff, name, "live", json_at(profiler, "live", 0), live);
    ledger_between(diff, name, "live_peak", json_at(profiler, "live_peak", 0), late || slack ? live : live_peak,
                   live_peak);
    if (profiler != NULL) {
        ledger_equal(diff, name, "allocated_bytes - freed_bytes",
                     json_at(profiler, "allocated_bytes", -1) - json_at(profiler, "freed_bytes", -1), bytes);
    }
}

/* Compares the kinds of both sides: a kind that one side lacks counts as zero there. */
static void ledger_compare_kinds(struct ledger_diff *diff, const char *where, const json_t *profiler,
                                 const json_t *truth, long long slack)
{
    const char *kind;
    json_t *value;
    json_object_foreach((json_t *)truth, kind, value)
    {
        ledger_compare_kind(diff, where, kind, json_object_get(profiler, kind), value, slack);
    }
    json_object_foreach((json_t *)profiler, kind, value)
    {
        if (json_object_get(truth, kind) == NULL && !ledger_is_measured(kind))
            ledger_compare_kind(diff, where, kind, value, NULL, slack);
    }
}

static const json_t *ledger_device(const json_t *root, long long ordinal)
{
    json_t *devices = json_object_get(root, "devices"), *device;
    size_t i;
    json_array_foreach(devices, i, device)
    {
        if (json_at(device, "device", -1) == ordinal)
            return device;
    }
    return NULL;
}

static void ledger_compare_device(struct ledger_diff *diff, const json_t *profiler, const json_t *truth,
                                  long long ordinal, const struct ledger_rules *rules)
{
    const json_t *stats = json_object_get(profiler, "stats");
    long long allocated = json_at(truth, "allocated_bytes/current", 0), reserved;
    long long allocated_peak = json_at(truth, "allocated_bytes/peak", 0), reserved_peak, reserved_low, low;
    char where[32];
    snprintf(where, sizeof(where), "device %lld", ordinal);
    reserved = reserved_low = json_at(truth, "reserved_bytes/current", 0);
    reserved_peak = json_at(truth, "reserved_bytes/peak", 0);
    ledger_equal(diff, where, "allocated_bytes.all.current", json_at(stats, "allocated_bytes.all.current", 0),
                 allocated);
    low = rules->is_allocated_polled ? allocated : allocated_peak - rules->peak_slack_bytes;
    ledger_between(diff, where, "allocated_bytes.all.peak", json_at(stats, "allocated_bytes.all.peak", 0),
                   low > allocated ? low : allocated, allocated_peak);
    if (rules->is_pool_left)
        reserved_low = json_at(stats, "allocated_bytes.all.current", 0);
    ledger_between(diff, where, "reserved_bytes.all.current", json_at(stats, "reserved_bytes.all.current", 0),
                   reserved_low, reserved);
    low = rules->is_pool_left         ? reserved_low
          : rules->is_reserved_polled ? reserved
                                      : reserved_peak - rules->peak_slack_bytes;
    ledger_between(diff, where, "reserved_bytes.all.peak", json_at(stats, "reserved_bytes.all.peak", 0),
                   low > reserved_low ? low : reserved_low, reserved_peak);
    ledger_compare_kinds(diff, where, json_object_get(profiler, "kinds"), json_object_get(truth, "kinds"),
                         rules->peak_slack_bytes);
    ledger_equal(diff, where, "contexts", json_at(profiler, "kinds/context/live", 0), json_at(truth, "contexts", 0));
}

/* Losses after which totals are wrong.  (A full ring loses events, never totals.) */
static void ledger_compare_lost(struct ledger_diff *diff, const json_t *process)
{
    static const char *const causes[] = {"map_full", "nested", "frames_full", "device_unknown", "missed_free"};
    size_t i;
    for (i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
        ledger_equal(diff, "lost", causes[i], json_at(json_object_get(process, "lost"), causes[i], 0), 0);
}

void ledger_compare(struct ledger_diff *diff, const json_t *process, const json_t *ledger,
                    const struct ledger_rules *rules)
{
    json_t *devices = json_object_get(ledger, "devices"), *device;
    long long ordinal;
    size_t i;
    if (!json_is_array(devices) || !json_is_array(json_object_get(process, "devices"))) {
        ledger_diff_add(diff, "  no \"devices\" in one of the two");
        return;
    }
    ledger_compare_lost(diff, process);
    json_array_foreach(devices, i, device)
    {
        ordinal = json_at(device, "device", -1);
        ledger_compare_device(diff, ledger_device(process, ordinal), device, ordinal, rules);
    }
    json_array_foreach(json_object_get(process, "devices"), i, device)
    {
        ordinal = json_at(device, "device", -1);
        if (ledger_device(ledger, ordinal) == NULL)
            ledger_diff_add(diff, "  device %lld: not in the ledger", ordinal);
    }
    ledger_compare_kinds(diff, "host", json_object_get(json_object_get(process, "host"), "kinds"),
                         json_object_get(json_object_get(ledger, "host"), "kinds"), rules->peak_slack_bytes);
}

/* ---- reading the two ----------------------------------------------------------------------------------------- */

/* Numbers of a session that did not answer are unknown, not zero: reports that instead of comparing them. */
static void ledger_state(struct ledger_diff *diff, const json_t *process)
{
    const char *state = json_string_value(json_object_get(process, "state"));
    const char *problem = json_string_value(json_object_get(process, "problem"));
    if (state == NULL || strcmp(state, "live") != 0) {
        ledger_diff_add(diff, "  stat: the session is %s: %s", state != NULL ? state : "in no state",
                        problem != NULL ? problem : "no reason given");
    }
}

/* The library asks the driver for a device's name in a thread of its own, for which an answer waits 50 ms at most: on a
 * loaded machine the first answer may come without the name, and without what else is polled. */
static bool ledger_is_polled(const json_t *process)
{
    json_t *device;
    size_t i;
    json_array_foreach(json_object_get(process, "devices"), i, device)
    {
        if (json_is_null(json_object_get(device, "name")))
            return false;
    }
    return true;
}

static json_t *ledger_stat_once(struct ledger_diff *diff, pid_t pid)
{
    struct spawn_result result = {0};
    char number[16];
    json_t *root, *process = NULL;
    json_error_t error;

    snprintf(number, sizeof(number), "%d", (int)pid);
    if (spawn_command(&result, "stat", "--json", "-p", number, NULL) != 0) {
        ledger_diff_add(diff, "  the command did not start");
        return NULL;
    }
    root = json_loads(result.out, 0, &error);
    if (root == NULL || !WIFEXITED(result.status) || WEXITSTATUS(result.status) != 0) {
        ledger_diff_add(diff, "  stat: %s: %s%.300s", spawn_status_text(&result), root == NULL ? error.text : "",
                        result.err);
    } else {
        process = json_incref(json_array_get(json_object_get(root, "processes"), 0));
        if (json_at(process, "pid", -1) != pid)
            ledger_diff_add(diff, "  stat: answered for pid %lld", json_at(process, "pid", -1));
        ledger_state(diff, process);
    }
    json_decref(root);
    spawn_result_free(&result);
    return process;
}

json_t *ledger_stat(struct ledger_diff *diff, pid_t pid)
{
    json_t *process = ledger_stat_once(diff, pid);
    int tries;
    for (tries = 0; tries < 10 && diff->count == 0 && !ledger_is_polled(process); tries++) {
        json_decref(process);
        usleep(100000);
        process = ledger_stat_once(diff, pid);
    }
    return process;
}

json_t *ledger_load(struct ledger_diff *diff, const char *form, pid_t pid)
{
    const char *mark = strstr(form, "%p");
    char path[512];
    json_error_t error;
    json_t *ledger;

    snprintf(path, sizeof(path), "%.*s%d%s", (int)(mark - form), form, (int)pid, mark + 2);
    ledger = json_load_file(path, 0, &error);
    unlink(path);
    if (ledger == NULL)
        ledger_diff_add(diff, "  ledger %s: %s", path, error.text);
    return ledger;
}

/* What is polled may be from a poll before the last call: an answer waits 50 ms at most for the next one, which takes longer
 * on a loaded machine.  The program is held, so a later answer must be right. */
static void ledger_check_one(struct ledger_diff *diff, const char *form, pid_t pid, const struct ledger_rules *rules)
{
    bool is_polled = rules->is_reserved_polled || rules->is_allocated_polled;
    struct ledger_diff before = *diff;
    json_t *ledger = ledger_load(diff, form, pid), *process;
    int tries;
    for (tries = 0; ledger != NULL && tries < 10; tries++) {
        *diff = before;
        process = ledger_stat(diff, pid);
        if (process != NULL)
            ledger_compare(diff, process, ledger, rules);
        json_decref(process);
        if (diff->count == before.count || !is_polled)
            break;
        usleep(100000);
    }
    json_decref(ledger);
}

void check_against_ledger(struct ledger_diff *diff, const struct spawn_options *options, int processes,
                          const struct ledger_rules *rules, struct spawn_result *result)
{
    struct spawn_options held = *options;
    const char *env[32];
    char form[128], setting[160];
    struct spawn spawn;
    int count = 0, status, i;
    snprintf(form, sizeof(form), "/tmp/gpuprof-test-ledger-%d-%%p.json", (int)getpid());
    snprintf(setting, sizeof(setting), "GPUPROF_TEST_LEDGER=%s", form);
    env[count++] = setting;
    for (i = 0; options->env != NULL && options->env[i] != NULL && count < 31; i++)
        env[count++] = options->env[i];
    env[count] = NULL;
    held.env = env;
    held.want_hold = true;
    held.want_library = true;
    status = spawn_start(&spawn, &held);
    if (status != 0) {
        ledger_diff_add(diff, "  %s: not started: %s", options->argv[0], strerror(-status));
        return;
    }
    status = spawn_wait_held(&spawn, processes);
    for (i = 0; i < spawn.held_count; i++)
        ledger_check_one(diff, form, spawn.held[i], rules);
    spawn_finish(&spawn, result);
    if (status != 0) {
        ledger_diff_add(diff, "  only %d of %d processes came to their end: %s, then %s\n%.500s%.500s",
                        spawn.held_count, processes, strerror(-status), spawn_status_text(result), result->out,
                        result->err);
    }
}
