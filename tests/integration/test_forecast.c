/* SPDX-License-Identifier: MIT
 *
 * test_forecast.c: the forecast of running and of recorded programs: no alarm for those that do not
 * leak, and the call site of one that does.
 * Run: first
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <unistd.h>

#include "integration/command.h"
#include "lib/build.h"
#include "lib/catalog.h"
#include "lib/full.h"
#include <agent/metrics/internal.h>

TestSuite(forecast, .timeout = 120);

static bool is_quiet(const struct catalog_entry *entry)
{
    return strcmp(entry->name, "leak_branch") != 0 && (test_is_full() || (entry - catalog) % 8 == 0) &&
           !entry->is_heavy;
}

ParameterizedTestParameters(forecast, no_false_alarm)
{
    return catalog_each(is_quiet);
}

/* Each program is recorded; in a forked child's file, too, nothing grows. */
ParameterizedTest(int *index, forecast, no_false_alarm)
{
    const struct catalog_entry *entry = &catalog[*index];
    const char *argv[CATALOG_ARGS + 2], *env[2] = {0};
    struct spawn_options options;
    char *folder = build_folder(), record[128], file[160];
    cr_assert_not_null(folder);
    catalog_options(entry, argv, &options);
    snprintf(record, sizeof(record), "GPUPROF_RECORD=%s/a.gpuprof", folder);
    env[0] = record;
    options.env = env;
    options.want_library = true;
    spawn_result_free(&said);
    cr_assert_eq(spawn_run(&options, &said), 0); /* however it ends */
    snprintf(file, sizeof(file), "%s/a.gpuprof", folder);
    if (access(file, R_OK) == 0) { /* some programs never initialise CUDA */
        spawn_result_free(&said);
        spawn_command(&said, "report", "--json", file, NULL);
        if (said.status == 0 && said.out_len) {
            json_t *top = said_json(), *device;
            size_t i;
            json_array_foreach(json_object_get(top, "devices"), i, device)
            {
                const json_t *forecast = json_object_get(device, "forecast");
                cr_expect_str_neq(json_string_value(json_object_get(forecast, "verdict")), "grows", "%s",
                                  catalog_title(entry));
                cr_expect(json_is_null(json_object_get(forecast, "seconds_to_oom")));
            }
            json_decref(top);
        }
    }
    build_remove(folder);
}

Test(forecast, a_recorded_leak_grows)
{
    char *folder = build_folder(), record[192], file[160];
    cr_assert_not_null(folder);
    snprintf(file, sizeof(file), "%s/a.gpuprof", folder);
    snprintf(record, sizeof(record), "--record=%s", file);
    command(0, "run", "--sim", "--stacks=native", record, "--", path_program("leak_branch"), "leaking", "slow", NULL);
    command(0, "report", "--json", file, NULL);
    json_t *top = said_json();
    const json_t *forecast = json_object_get(json_array_get(json_object_get(top, "devices"), 0), "forecast");
    cr_expect_str_eq(json_string_value(json_object_get(forecast, "verdict")), "grows");
    cr_expect(json_is_real(json_object_get(forecast, "seconds_to_oom")));
    json_decref(top);
    build_remove(folder);
}

/* A running program: one look knows the headroom, and twelve seconds the end and the line; on a loaded machine, in which
 * the command gets little time, twice as long. */
Test(forecast, a_running_leak_has_an_end)
{
    char program[300];
    const char *bin = strstr(path_command(), "/bin/");
    const char *argv[] = {program, "--seconds", "60", "--pace", "10", NULL}, *env[] = {"GPUPROF_STACKS=native", NULL};
    struct spawn_options options = {.argv = argv, .env = env, .want_library = true, .sim = "devices=1,memory=2GiB"};
    struct spawn spawn;
    snprintf(program, sizeof(program), "%.*s/examples/leak_rt", (int)(bin - path_command()), path_command());
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    const char *number = pid_text(spawn.pid);
    json_t *top = NULL;
    const json_t *forecast = NULL;
    for (int i = 0; i < 100 && !json_is_integer(json_object_get(forecast, "headroom_bytes")); i++) {
        usleep(100000);
        json_decref(top);
        spawn_result_free(&said);
        spawn_command(&said, "stat", "--json", "-p", number, NULL);
        top = said.status == 0 ? said_json() : NULL;
        const json_t *process = json_array_get(json_object_get(top, "processes"), 0);
        forecast = json_object_get(json_array_get(json_object_get(process, "devices"), 0), "forecast");
    }
    cr_assert(json_is_integer(json_object_get(forecast, "headroom_bytes")));
    cr_expect_str_eq(json_string_value(json_object_get(forecast, "verdict")), "short");
    cr_expect(json_is_null(json_object_get(forecast, "seconds_to_oom")));
    const char *site = NULL;
    for (int tries = 0; tries < 2 && !site; tries++) {
        json_decref(top);
        command(0, "stat", "--json", "--watch=14", "-p", number, NULL);
        top = said_json();
        const json_t *process = json_array_get(json_object_get(top, "processes"), 0);
        forecast = json_object_get(json_array_get(json_object_get(process, "devices"), 0), "forecast");
        site = json_string_value(json_object_get(forecast, "site"));
    }
    cr_expect_str_eq(json_string_value(json_object_get(forecast, "verdict")), "grows");
    cr_expect_gt(json_real_value(json_object_get(forecast, "seconds_to_oom")), 1);
    cr_expect_str_eq(json_string_value(json_object_get(forecast, "owner")), "program");
    cr_expect(site && strncmp(site, "remember_metrics", 16) == 0, "%s", site ? site : "(none)");
    json_decref(top);
    program_kill(&spawn);
}

/* A page of metrics without and one with a container whose memory runs out: the second and later ones have its
 * call site, without symbols. */
Test(forecast, metrics_name_the_site_that_grows)
{
    char program[300];
    const char *bin = strstr(path_command(), "/bin/");
    const char *argv[] = {program, "--seconds", "40", "--pace", "10", NULL}, *env[] = {"GPUPROF_STACKS=native", NULL};
    struct spawn_options options = {.argv = argv, .env = env, .want_library = true, .sim = "devices=1,memory=2GiB"};
    struct spawn spawn;
    snprintf(program, sizeof(program), "%.*s/examples/leak_rt", (int)(bin - path_command()), path_command());
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    struct gp_row_device device = {.uuid = "GPU-x"};
    struct gp_row_container container = {
        .device = &device, .namespace_ = "ml", .pod = "p", .container = "c", .cgroup_id = 7, .seconds_to_oom = -1};
    struct gp_system_process process = {
        .key = {.tgid = (uint32_t)spawn.pid}, .value = {.cgroup_id = 7}, .comm = "leak"};
    struct gp_system_view view = {.process_count = 1, .processes = &process};
    struct gp_growing growing = {0};
    struct gp_rows rows = {.container_count = 1, .containers = &container};
    sleep(2);
    cr_assert(gp_growing_make(&growing, &rows, GP_METRICS_PROCESSES_COMM, &view, 9));
    cr_expect_eq(growing.count, 0, "no call site is read before memory runs out");
    container.seconds_to_oom = 60;
    for (unsigned page = 0; page < 50 && !rows.site_count; page++) {
        free(rows.sites);
        cr_assert(gp_growing_make(&growing, &rows, GP_METRICS_PROCESSES_COMM, &view, 9));
        cr_expect(page || !rows.site_count, "one page knows no growth");
        usleep(200000);
    }
    cr_assert_eq(rows.site_count, 1);
    cr_expect_eq(growing.count, 1);
    cr_expect_gt(rows.sites[0].growth_bytes, 0);
    cr_expect_str_eq(rows.sites[0].who.comm, "leak");
    cr_expect_str_empty(rows.sites[0].who.pid);
    cr_expect_eq(strncmp(rows.sites[0].site, "leak_rt+0x", 10), 0, "%s", rows.sites[0].site);
    container.seconds_to_oom = -1;
    for (unsigned page = 0; page < 30; page++) {
        free(rows.sites);
        rows.site_count = 0;
        cr_assert(gp_growing_make(&growing, &rows, GP_METRICS_PROCESSES_COMM, &view, 9));
        cr_expect_eq(rows.site_count, 0);
    }
    cr_expect_eq(growing.count, 0, "the watch ends");
    free(rows.sites);
    gp_growing_fini(&growing);
    program_kill(&spawn);
}
