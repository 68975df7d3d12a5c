/* SPDX-License-Identifier: MIT
 * test_metrics.c: tests pages of metrics from simulated machines, and the server under normal and hostile clients. */
#include "metrics_fixture.h"
#include <agent/metrics/internal.h>
#include <agent/metrics/metrics.h>
#include <read/collect/sites.h>

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

Test(metrics, sums_are_those_of_the_machine)
{
    struct gp_fake_machine machine = {
        .meta = {.batches = 5, .events = 60, .ring_dropped = 7, .refused_batches = 2, .lost = 8}};
    gp_fake_add(&machine, 10, 100, 0, 3 * GIB, 4 * GIB, "train");
    gp_fake_add(&machine, 11, 100, 0, 1 * GIB, 1 * GIB, "train");
    gp_fake_add(&machine, 12, 101, 1, 2 * GIB, 2 * GIB, "serve");
    struct gp_metrics *metrics = open_metrics(&machine, (struct gp_metrics_options){0});
    char *text = render(metrics, GP_METRICS_TEXT);
    cr_assert_eq(
        sum(text, "gpuprof_device_memory_allocated_bytes", "UUID=\"GPU-00111111-1111-1111-1111-111111111100\""),
        4 * GIB);
    cr_assert_eq(sum(text, "gpuprof_device_memory_reserved_bytes", ""), 7 * GIB);
    cr_assert_eq(sum(text, "gpuprof_device_memory_allocated_peak_bytes", "11101\""), 4 * GIB);
    cr_assert_eq(sum(text, "gpuprof_device_memory_total_bytes", ""), 160 * GIB);
    cr_assert_eq(sum(text, "gpuprof_device_processes", ""), 3);
    cr_assert_eq(sum(text, "gpuprof_allocations_total", ""), 30);
    cr_assert_eq(sum(text, "gpuprof_frees_total", ""), 12);
    cr_assert_eq(sum(text, "gpuprof_alloc_failures_total", ""), 3);
    cr_assert_eq(sum(text, "gpuprof_container_memory_allocated_bytes", "id=\"cgroup-100\""), 4 * GIB);
    cr_assert_eq(sum(text, "gpuprof_container_memory_reserved_bytes", "id=\"cgroup-101\""), 2 * GIB);
    cr_assert_eq(sum(text, "gpuprof_events_dropped_total", "reason=\"ring_full\""), 7);
    cr_assert_eq(sum(text, "gpuprof_events_dropped_total", "reason=\"unsent\""), 8);
    cr_assert_eq(sum(text, "gpuprof_batches_refused_total", ""), 2);
    cr_assert_eq(sum(text, "gpuprof_build_info", "version=\"9.8.7\""), 1);
    cr_assert_eq(sum(text, "gpuprof_agent_up", ""), 1);
    cr_assert_geq(sum(text, "process_resident_memory_bytes", ""), 1 << 20);
    cr_assert_geq(sum(text, "process_open_fds", ""), 3);
    cr_assert_leq(sum(text, "process_start_time_seconds", ""), (int64_t)time(NULL));
    cr_assert_geq(sum(text, "process_start_time_seconds", ""), (int64_t)time(NULL) - 600);
    cr_assert_eq(sum(text, "gpuprof_process_memory_allocated_bytes", ""), -1, "processes are off by default");
    cr_assert_eq(sum(text, "gpuprof_device_memory_used_bytes", ""), -1, "unknown without NVML, not 0");
    samples(text);
    free(text);
    gp_metrics_close(metrics);
}

static int two_gpus(struct gp_nvml_gpu **gpus, int *count, char problem[GP_NVML_PROBLEM_BYTES])
{
    (void)problem;
    struct gp_nvml_gpu *all = calloc(2, sizeof(*all));
    snprintf(all[0].uuid, sizeof(all[0].uuid), "MIG-00111111-1111-1111-1111-111111111101");
    snprintf(all[0].name, sizeof(all[0].name), "NVIDIA \"H\\200\"");
    all[0].total_bytes = 140 * GIB;
    all[0].used_bytes = 5 * GIB;
    snprintf(all[1].uuid, sizeof(all[1].uuid), "GPU-00111111-1111-1111-1111-111111111100");
    all[1].total_bytes = all[1].used_bytes = -1;
    *gpus = all;
    *count = 2;
    return 0;
}

Test(metrics, gpus_have_the_names_of_nvml)
{
    struct gp_fake_machine machine = {.count = 0};
    gp_fake_add(&machine, 10, 100, 0, GIB, GIB, "a");
    gp_fake_add(&machine, 12, 101, 1, GIB, GIB, "b");
    struct gp_metrics_source source = {.read = gp_fake_read, .free = gp_fake_free, .gpus = two_gpus, .arg = &machine};
    struct gp_metrics_options options = {.root = "/nonexistent"};
    struct gp_metrics *metrics;
    cr_assert_eq(gp_metrics_open(&metrics, &options, &source), 0);
    char *text = render(metrics, GP_METRICS_TEXT);
    cr_assert_not_null(strstr(text, "\ngpuprof_device_info{gpu=\"0\",UUID=\"MIG-00111111-1111-1111-1111-111111111101\","
                                    "model=\"NVIDIA \\\"H\\\\200\\\"\"} 1\n"));
    cr_assert_eq(sum(text, "gpuprof_device_memory_used_bytes", "gpu=\"0\""), 5 * GIB);
    cr_assert_eq(sum(text, "gpuprof_device_memory_free_bytes", ""), 135 * GIB);
    cr_assert_eq(sum(text, "gpuprof_device_memory_total_bytes", "gpu=\"0\""), 140 * GIB);
    cr_assert_eq(sum(text, "gpuprof_device_memory_total_bytes", "gpu=\"1\""), 80 * GIB,
                 "the size that processes report");
    cr_assert_eq(sum(text, "gpuprof_container_memory_reserved_bytes", "gpu=\"1\""), GIB);
    free(text);
    gp_metrics_close(metrics);
}

Test(metrics, processes_by_name_or_by_pid_and_gone_with_them)
{
    struct gp_fake_machine machine = {.count = 0};
    gp_fake_add(&machine, 10, 100, 0, 3 * GIB, 4 * GIB, "train");
    gp_fake_add(&machine, 11, 100, 0, 1 * GIB, 1 * GIB, "train")->asleep = 7 * GIB;
    gp_fake_add(&machine, 12, 100, 0, 2 * GIB, 2 * GIB, "a\"b\\c\nd\033[1m\xff");
    /* One GPU under two numbers of one process is one series. */
    gp_fake_add(&machine, 13, 101, 0, GIB, GIB, "x")->index = 0;
    gp_fake_add(&machine, 13, 101, 0, GIB, GIB, "x")->index = 1;
    struct gp_metrics_options by_comm = {.processes = GP_METRICS_PROCESSES_COMM};
    struct gp_metrics_options by_pid = {.processes = GP_METRICS_PROCESSES_PID};
    struct gp_metrics *comm = open_metrics(&machine, by_comm), *pid = open_metrics(&machine, by_pid);
    char *text = render(comm, GP_METRICS_TEXT);
    cr_assert_eq(sum(text, "gpuprof_process_memory_allocated_bytes", "comm=\"train\""), 4 * GIB);
    cr_assert_eq(sum(text, "gpuprof_process_memory_allocated_bytes", ""), 8 * GIB);
    cr_assert_eq(sum(text, "gpuprof_process_memory_allocated_peak_bytes", ""), -1);
    cr_assert_eq(sum(text, "gpuprof_process_memory_asleep_bytes", "comm=\"train\""), 7 * GIB);
    cr_assert_eq(sum(text, "gpuprof_container_memory_asleep_bytes", ""), 7 * GIB);
    cr_assert_eq(sum(text, "gpuprof_device_memory_asleep_bytes", ""), 7 * GIB);
    cr_assert_null(strstr(text, "pid=\""));
    cr_assert_not_null(strstr(text, "comm=\"a\\\"b\\\\c?d?[1m?\""), "escaped, and no control characters");
    samples(text);
    free(text);
    text = render(pid, GP_METRICS_TEXT);
    cr_assert_eq(sum(text, "gpuprof_process_memory_allocated_bytes", "pid=\"11\""), GIB);
    cr_assert_eq(sum(text, "gpuprof_process_memory_reserved_peak_bytes", "pid=\"10\""), 8 * GIB);
    cr_assert_eq(sum(text, "gpuprof_process_memory_asleep_bytes", "pid=\"11\""), 7 * GIB);
    cr_assert_eq(sum(text, "gpuprof_process_memory_allocated_bytes", "pid=\"13\""), 2 * GIB);
    samples(text);
    free(text);
    machine.past[machine.past_count++] = machine.processes[0];
    machine.processes[0] = machine.processes[--machine.count];
    text = render(pid, GP_METRICS_TEXT);
    cr_assert_eq(sum(text, "gpuprof_process_memory_allocated_bytes", "pid=\"10\""), -1, "its series outlive it");
    cr_assert_eq(sum(text, "gpuprof_allocations_total", ""), 50, "its calls are no longer counted");
    free(text);
    gp_metrics_close(comm);
    gp_metrics_close(pid);
}

static void within(enum gp_metrics_processes how, uint32_t cap, uint32_t containers, uint32_t devices)
{
    struct gp_fake_machine machine = {.count = 0};
    crowd(&machine, containers, devices);
    struct gp_metrics_options options = {.processes = how, .series = cap};
    struct gp_metrics *metrics = open_metrics(&machine, options);
    int64_t allocated = 0, reserved = 0, processes = machine.count;
    for (uint32_t i = 0; i < machine.count; i++) {
        allocated += machine.processes[i].allocated;
        reserved += machine.processes[i].reserved;
    }
    char *text = render(metrics, GP_METRICS_TEXT);
    unsigned count = samples(text);
    cr_assert_leq(count, cap ? cap : 2000, "mode %d cap %u: %u containers %u devices: %u", how, cap, containers,
                  devices, count);
    cr_assert_eq(sum(text, "gpuprof_container_memory_allocated_bytes", ""), allocated);
    cr_assert_eq(sum(text, "gpuprof_container_memory_reserved_bytes", ""), reserved);
    cr_assert_eq(sum(text, "gpuprof_device_memory_allocated_bytes", ""), allocated);
    cr_assert_eq(sum(text, "gpuprof_container_processes", ""), processes);
    cr_assert_eq(sum(text, "gpuprof_container_allocations_total", ""), 10 * processes);
    cr_assert_eq(sum(text, "gpuprof_allocations_total", ""), 10 * processes);
    if (how != GP_METRICS_PROCESSES_OFF)
        cr_assert_eq(sum(text, "gpuprof_process_memory_reserved_bytes", ""), reserved);
    cr_assert_gt(sum(text, "gpuprof_exporter_folded_rows", ""), 0, "the test must exceed the cap");
    cr_assert_eq(sum(text, "gpuprof_exporter_series_limit", ""), cap ? cap : 2000);
    free(text);
    gp_metrics_close(metrics);
    free(machine.processes);
}

Test(metrics, never_more_series_than_the_cap_and_sums_stay_exact)
{
    for (int how = GP_METRICS_PROCESSES_OFF; how <= GP_METRICS_PROCESSES_PID; how++) {
        within(how, 0, 1500, 1);
        within(how, 0, 200, 8);
        within(how, 0, 12, 120);
        within(how, 200, 100, 2);
        within(how, 200, 10, 200);
        within(how, 777, 40, 33);
    }
}

Test(metrics, a_small_cap_is_refused)
{
    struct gp_metrics_options options = {.series = GP_METRICS_SERIES_MIN - 1};
    struct gp_metrics_source source = {.read = gp_fake_read, .free = gp_fake_free};
    struct gp_metrics *metrics;
    cr_assert_eq(gp_metrics_open(&metrics, &options, &source), -EINVAL);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The largest containers have rows; a row stays when a larger container starts; counters of "other"
 * never fall. */
Test(metrics, other_counts_up_while_containers_come_and_go)
{
    struct gp_fake_machine machine = {.count = 0};
    crowd(&machine, 60, 1);
    struct gp_metrics_options options = {.series = 200};
    struct gp_metrics *metrics = open_metrics(&machine, options);
    char *text = render(metrics, GP_METRICS_TEXT);
    static const char name[] = "gpuprof_container_allocations_total";
    static const char other[] = "container=\"other\",id=\"other\"";
    cr_assert_gt(sum(text, name, "id=\"cgroup-5059\""), 0, "the largest");
    cr_assert_eq(sum(text, name, "id=\"cgroup-5000\""), -1, "the smallest");
    int64_t before = sum(text, name, other);
    unsigned folded = (unsigned)sum(text, "gpuprof_exporter_folded_rows", "kind=\"container\"");
    cr_assert_eq(before, 10 * folded);
    free(text);
    /* A shown and a folded container end: no counter changes, and another folded one gets the free
     * row. */
    machine.processes[59].cgroup_id = 5058;
    machine.processes[0].cgroup_id = 5058;
    text = render(metrics, GP_METRICS_TEXT);
    cr_assert_eq(sum(text, name, "id=\"cgroup-5059\""), -1);
    cr_assert_eq(sum(text, "gpuprof_exporter_folded_rows", "kind=\"container\""), folded - 2);
    cr_assert_eq(sum(text, name, other), before, "%lld", (long long)sum(text, name, other));
    free(text);
    /* Only the calls of a folded container since then. */
    machine.processes[1].calls += 7;
    text = render(metrics, GP_METRICS_TEXT);
    cr_assert_eq(sum(text, name, other), before + 7);
    free(text);
    /* A very large container starts: containers with a row keep it. */
    gp_fake_add(&machine, 9999, 9999, 0, 100 * GIB, 100 * GIB, "giant")->asleep = 3 * GIB;
    text = render(metrics, GP_METRICS_TEXT);
    cr_assert_eq(sum(text, name, "id=\"cgroup-9999\""), -1);
    cr_assert_eq(sum(text, name, other), before + 17);
    cr_assert_geq(sum(text, "gpuprof_container_memory_allocated_bytes", other), 100 * GIB);
    cr_assert_eq(sum(text, "gpuprof_container_memory_asleep_bytes", other), 3 * GIB);
    free(text);
    gp_metrics_close(metrics);
}

static void parts(void *arg, struct gp_metrics_agent *out)
{
    out->armed = 3;
    out->unarmed = 1;
    out->refused = 4;
    out->postponed = 5;
    if (*(bool *)arg) { /* otherwise discovery is off */
        out->records_lost = 6;
        out->searching = 0;
    }
}

Test(metrics, losses_of_discovery_are_on_the_page)
{
    struct gp_fake_machine machine = {.count = 0};
    bool is_searching = true;
    struct gp_metrics_source source = {
        .read = gp_fake_read, .free = gp_fake_free, .arg = &machine, .agent = parts, .agent_arg = &is_searching};
    struct gp_metrics_options options = {.series = 200};
    struct gp_metrics *metrics;
    cr_assert_eq(gp_metrics_open(&metrics, &options, &source), 0);
    char *text = render(metrics, GP_METRICS_TEXT);
    cr_assert_not_null(strstr(text, "\ngpuprof_agent_libraries 3\n"));
    cr_assert_not_null(strstr(text, "\ngpuprof_agent_libraries_unarmed 1\n"));
    cr_assert_not_null(strstr(text, "\ngpuprof_agent_libraries_refused_total 4\n"));
    cr_assert_not_null(strstr(text, "\ngpuprof_agent_libraries_postponed_total 5\n"));
    cr_assert_not_null(strstr(text, "\ngpuprof_agent_mapping_records_lost_total 6\n"));
    cr_assert_not_null(strstr(text, "\ngpuprof_agent_search_up 0\n"));
    free(text);
    is_searching = false;
    text = render(metrics, GP_METRICS_TEXT);
    cr_assert_null(strstr(text, "\ngpuprof_agent_mapping_records_lost_total "), "unknown is not 0");
    cr_assert_null(strstr(text, "\ngpuprof_agent_search_up "));
    free(text);
    gp_metrics_close(metrics);
}

/* Invented devices appear without end, so the state of a device ends with its row. */
Test(metrics, a_device_that_returns_restarts_at_zero)
{
    struct gp_fake_machine machine = {.count = 0};
    crowd(&machine, 60, 1);
    struct gp_metrics *metrics = open_metrics(&machine, (struct gp_metrics_options){.series = 200});
    static const char name[] = "gpuprof_container_allocations_total";
    static const char other[] = "container=\"other\",id=\"other\"";
    char *text = render(metrics, GP_METRICS_TEXT);
    int64_t before = sum(text, name, other);
    cr_assert_gt(before, 0);
    free(text);
    uint32_t count = machine.count;
    machine.count = 0;
    text = render(metrics, GP_METRICS_TEXT);
    cr_assert_eq(sum(text, name, other), -1);
    free(text);
    machine.count = count;
    text = render(metrics, GP_METRICS_TEXT);
    cr_assert_eq(sum(text, name, other), before, "%lld", (long long)sum(text, name, other));
    free(text);
    gp_metrics_close(metrics);
}

/* "#" and a number separate two cgroups of one path; a cgroup whose name looks like that is a third
 * one. */
Test(metrics, a_cgroup_with_our_mark_in_its_name_has_its_own_label)
{
    char root[] = "/tmp/gpuprof-test-names-XXXXXX", command[1024];
    cr_assert_not_null(mkdtemp(root));
    snprintf(command, sizeof(command),
             "cd %s && mkdir -p sys/fs/cgroup/a proc/10 proc/11 proc/12 && touch sys/fs/cgroup/cgroup.controllers && "
             "stat -c %%i sys/fs/cgroup/a",
             root);
    FILE *from = popen(command, "r");
    unsigned long long first;
    cr_assert(from && fscanf(from, "%llu", &first) == 1);
    pclose(from);
    struct gp_names names = {.root = root};
    uint64_t one[] = {first};
    cr_assert_eq(gp_names_update(&names, one, (pid_t[]){0}, 1), 0);
    cr_assert_str_eq(gp_names_find(&names, first)->id, "/a");
    /* A cgroup that was removed and created again has another number; a third one looks like both
     * together. */
    snprintf(command, sizeof(command), "cd %s/sys/fs/cgroup && mv a ../old && mkdir a && stat -c %%i a", root);
    from = popen(command, "r");
    unsigned long long second;
    cr_assert(from && fscanf(from, "%llu", &second) == 1);
    pclose(from);
    snprintf(command, sizeof(command),
             "cd %s/sys/fs/cgroup && mkdir 'a#%llu' 'a#%llu' && stat -c %%i 'a#%llu' 'a#%llu'", root, first, second,
             first, second);
    from = popen(command, "r");
    unsigned long long third, fourth;
    cr_assert(from && fscanf(from, "%llu %llu", &third, &fourth) == 2);
    pclose(from);
    uint64_t ids[] = {first, second, third, fourth};
    qsort(ids, 4, sizeof(*ids), by_number);
    cr_assert_eq(gp_names_update(&names, ids, (pid_t[]){0, 0, 0, 0}, 4), 0);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            cr_assert_str_neq(gp_names_find(&names, ids[i])->id, gp_names_find(&names, ids[k])->id);
    gp_names_fini(&names);
    snprintf(command, sizeof(command), "rm -r %s", root);
    cr_assert_eq(system(command), 0);
}

Test(metrics, claims_cannot_overflow_a_sum)
{
    struct gp_fake_machine machine = {.count = 0};
    for (uint32_t i = 0; i < 100; i++)
        gp_fake_add(&machine, 10 + i, 100 + i, 0, i == 5 ? -5 : INT64_MAX / 4, INT64_MIN, "liar");
    struct gp_metrics_options options = {.processes = GP_METRICS_PROCESSES_COMM, .series = 200};
    struct gp_metrics *metrics = open_metrics(&machine, options);
    char *text = render(metrics, GP_METRICS_TEXT);
    cr_assert_null(strstr(text, "} -"), "no negative byte");
    cr_assert_eq(sum(text, "gpuprof_process_memory_allocated_bytes", "liar"), INT64_MAX);
    free(text);
    gp_metrics_close(metrics);
}

Test(metrics, without_an_agent_the_page_reports_it)
{
    struct gp_fake_machine machine = {.error = -ENOENT};
    struct gp_metrics *metrics = open_metrics(&machine, (struct gp_metrics_options){0});
    char why[128];
    cr_assert_not(gp_metrics_healthy(metrics, why, sizeof(why)));
    cr_assert_str_eq(why, "no agent has run here");
    for (int i = 1; i <= 2; i++) {
        char *text = render(metrics, GP_METRICS_TEXT);
        cr_assert_eq(sum(text, "gpuprof_exporter_read_success", ""), 0);
        cr_assert_eq(sum(text, "gpuprof_exporter_read_errors_total", ""), i);
        cr_assert_eq(sum(text, "gpuprof_agent_up", ""), 0);
        cr_assert_eq(sum(text, "gpuprof_agent_events_total", ""), -1, "unknown, not 0");
        free(text);
    }
    machine.error = 0;
    cr_assert(gp_metrics_healthy(metrics, why, sizeof(why)));
    machine.dead = true;
    cr_assert_not(gp_metrics_healthy(metrics, why, sizeof(why)));
    gp_metrics_close(metrics);
}

Test(metrics, openmetrics_has_its_own_grammar)
{
    struct gp_fake_machine machine = {.count = 0};
    gp_fake_add(&machine, 10, 100, 0, GIB, GIB, "a");
    struct gp_metrics *metrics = open_metrics(&machine, (struct gp_metrics_options){0});
    char *text = render(metrics, GP_METRICS_OPENMETRICS);
    cr_assert_not_null(strstr(text, "\n# TYPE gpuprof_allocations counter\n"));
    cr_assert_not_null(strstr(text, "\ngpuprof_allocations_total{"));
    cr_assert_not_null(strstr(text, "# TYPE gpuprof_build info\n"));
    cr_assert_not_null(strstr(text, "# UNIT gpuprof_device_memory_total_bytes bytes\n"));
    cr_assert_not_null(strstr(text, "# UNIT process_cpu_seconds seconds\n"));
    cr_assert_str_eq(text + strlen(text) - 6, "# EOF\n");
    free(text);
    text = render(metrics, GP_METRICS_TEXT);
    cr_assert_null(strstr(text, "# EOF"));
    cr_assert_null(strstr(text, "# UNIT"));
    cr_assert_not_null(strstr(text, "# TYPE gpuprof_allocations_total counter\n"));
    free(text);
    gp_metrics_close(metrics);
}

Test(metrics, accept_decides_the_format)
{
    static const struct {
        const char *accept;
        enum gp_metrics_format want;
    } cases[] = {
        {NULL, GP_METRICS_TEXT},
        {"", GP_METRICS_TEXT},
        {"*/*", GP_METRICS_TEXT},
        {"text/html,application/xhtml+xml,*/*;q=0.8", GP_METRICS_TEXT},
        {"application/openmetrics-text; version=1.0.0; charset=utf-8", GP_METRICS_OPENMETRICS},
        {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
         GP_METRICS_OPENMETRICS},
        {"application/openmetrics-text;version=0.0.1", GP_METRICS_TEXT},
        {"application/openmetrics-text;version=1.0.0;q=0.2,text/plain;q=0.9", GP_METRICS_TEXT},
        {"application/openmetrics-text;q=0,text/plain;q=0", GP_METRICS_TEXT},
        {"application/openmetrics-text;q=0.001", GP_METRICS_OPENMETRICS},
        {";;;,,,q=;=", GP_METRICS_TEXT},
        {"application/openmetrics-text;q=", GP_METRICS_TEXT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        cr_assert_eq(gp_metrics_negotiate(cases[i].accept), cases[i].want, "%s", cases[i].accept);
}

Test(metrics, values_of_the_flag)
{
    enum gp_metrics_processes how;
    cr_assert(gp_metrics_processes_parse("off", &how) == 0 && how == GP_METRICS_PROCESSES_OFF);
    cr_assert(gp_metrics_processes_parse("comm", &how) == 0 && how == GP_METRICS_PROCESSES_COMM);
    cr_assert(gp_metrics_processes_parse("pid", &how) == 0 && how == GP_METRICS_PROCESSES_PID);
    cr_assert_eq(gp_metrics_processes_parse("", &how), -EINVAL);
    cr_assert_eq(gp_metrics_processes_parse("pids", &how), -EINVAL);
}

/* ---- the server ---- */

static struct gp_fake_machine served;

static struct gp_http *serve(struct gp_metrics **metrics)
{
    struct gp_http_address address;
    struct gp_http *http = NULL;
    char why[256] = "";
    gp_fake_add(&served, 10, 100, 0, GIB, GIB, "a");
    *metrics = open_metrics(&served, (struct gp_metrics_options){0});
    cr_assert_eq(gp_http_parse("127.0.0.1:0", &address, why, sizeof(why)), 0, "%s", why);
    cr_assert_eq(gp_http_start(&http, &address, *metrics, why, sizeof(why)), 0, "%s", why);
    cr_assert_gt(gp_http_port(http), 0);
    return http;
}

static int dial(const struct gp_http *http)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)gp_http_port(http))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0, "%s", strerror(errno));
    return fd;
}

static double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Reads until the other side closes, for at most `limit` seconds: bytes, or -1 if it did not close. */
static long drain(int fd, char *text, size_t text_bytes, double limit)
{
    size_t n = 0;
    double end = seconds() + limit;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        double left = end - seconds();
        if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) == 0)
            return -1;
        char waste[4096];
        ssize_t got =
            n + 1 < text_bytes ? recv(fd, text + n, text_bytes - 1 - n, 0) : recv(fd, waste, sizeof(waste), 0);
        if (got <= 0)
            break;
        if (n + 1 < text_bytes)
            n += (size_t)got;
        text[n] = '\0';
    }
    text[n] = '\0';
    return (long)n;
}

/* The status of the answer (0: none); text gets the whole answer. */
static int ask(const struct gp_http *http, const char *request, char *text, size_t text_bytes)
{
    int fd = dial(http), status = 0;
    cr_assert_eq(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    cr_assert_geq(drain(fd, text, text_bytes, 8), 0, "the answer does not end: %s", request);
    close(fd);
    sscanf(text, "HTTP/1.1 %d", &status);
    return status;
}

Test(http, pages, .timeout = 60)
{
    struct gp_metrics *metrics;
    struct gp_http *http = serve(&metrics);
    static char text[65536];
    cr_assert_eq(ask(http, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", text, sizeof(text)), 200);
    cr_assert_not_null(strstr(text, "text/plain; version=0.0.4; charset=utf-8\r\n"));
    cr_assert_not_null(strcasestr(text, "connection: close\r\n"));
    cr_assert_not_null(strstr(text, "\ngpuprof_device_processes{"));
    cr_assert_eq(ask(http, "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n", text,
                     sizeof(text)),
                 200);
    cr_assert_not_null(strstr(text, "application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"));
    cr_assert_not_null(strstr(text, "# EOF\n"));
    cr_assert_eq(ask(http, "GET /metrics?x=1 HTTP/1.0\r\n\r\n", text, sizeof(text)), 200);
    cr_assert_eq(ask(http, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", text, sizeof(text)), 200);
    cr_assert_null(strstr(text, "gpuprof_"), "HEAD has no body");
    cr_assert_eq(ask(http, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", text, sizeof(text)), 200);
    cr_assert_not_null(strstr(text, "href=\"/metrics\""));
    cr_assert_eq(ask(http, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", text, sizeof(text)), 200);
    cr_assert_eq(ask(http, "GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", text, sizeof(text)), 404);
    cr_assert_eq(ask(http, "GET /metrics/ HTTP/1.1\r\nHost: x\r\n\r\n", text, sizeof(text)), 404);
    cr_assert_eq(ask(http, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", text, sizeof(text)),
                 405);
    cr_assert_eq(ask(http, "DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", text, sizeof(text)), 405);
    served.dead = true;
    cr_assert_eq(ask(http, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", text, sizeof(text)), 503);
    served.dead = false;
    gp_http_stop(http);
    gp_metrics_close(metrics);
}

Test(http, malformed_and_huge_headers_are_refused, .timeout = 60)
{
    struct gp_metrics *metrics;
    struct gp_http *http = serve(&metrics);
    static char request[100000], text[65536];
    cr_assert_geq(ask(http, "\r\n\r\n\001\002 rubbish\r\n\r\n", text, sizeof(text)), 0);
    int n = snprintf(request, sizeof(request), "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: ");
    memset(request + n, 'a', 60000);
    strcpy(request + n + 60000, "\r\n\r\n");
    int fd = dial(http);
    /* The server may close before the whole request was sent. */
    if (send(fd, request, strlen(request), MSG_NOSIGNAL) > 0)
        cr_assert_geq(drain(fd, text, sizeof(text), 5), 0, "the server kept reading");
    close(fd);
    cr_assert_null(strstr(text, "gpuprof_device"), "60 kB of headers were accepted");
    n = snprintf(request, sizeof(request), "GET /metrics HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 4000; i++)
        n += snprintf(request + n, sizeof(request) - (size_t)n, "A%d: b\r\n", i);
    strcpy(request + n, "\r\n");
    text[0] = '\0';
    fd = dial(http);
    if (send(fd, request, strlen(request), MSG_NOSIGNAL) > 0)
        cr_assert_geq(drain(fd, text, sizeof(text), 5), 0);
    close(fd);
    cr_assert_null(strstr(text, "gpuprof_device"), "4000 headers were accepted");
    cr_assert_eq(ask(http, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", text, sizeof(text)), 200,
                 "the server does not answer any more");
    gp_http_stop(http);
    gp_metrics_close(metrics);
}

/* A byte now and then keeps the library's own timeout from expiring, but not the deadline of the
 * whole request. */
Test(http, a_request_in_drops_ends_at_the_deadline, .timeout = 60)
{
    struct gp_metrics *metrics;
    struct gp_http *http = serve(&metrics);
    int fd = dial(http);
    char byte;
    double begin = seconds();
    static const char head[] = "GET /metrics HTTP/1.1\r\nX: ";
    send(fd, head, strlen(head), MSG_NOSIGNAL);
    bool open = true;
    while (open && seconds() - begin < 30) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (send(fd, "a", 1, MSG_NOSIGNAL) < 0 || (poll(&p, 1, 200) == 1 && recv(fd, &byte, 1, 0) <= 0))
            open = false;
    }
    double took = seconds() - begin;
    cr_assert_not(open, "still open after %.1f s", took);
    cr_assert(took > 9 && took < 13, "%.1f s", took);
    close(fd);
    gp_http_stop(http);
    gp_metrics_close(metrics);
}

/* With all connections taken by idle clients, and as many in the queue, a scrape is answered within
 * its timeout and the server keeps to its connection limit. */
Test(http, many_idle_clients_do_not_block_a_scrape, .timeout = 120)
{
    struct gp_metrics *metrics;
    struct gp_http *http = serve(&metrics);
    static char text[65536];
    int crowd_fds[GP_HTTP_CONNECTIONS + 30];
    size_t count = sizeof(crowd_fds) / sizeof(crowd_fds[0]);
    for (size_t i = 0; i < count; i++)
        crowd_fds[i] = dial(http);
    double begin = seconds();
    cr_assert_eq(ask(http, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", text, sizeof(text)), 200);
    double took = seconds() - begin;
    cr_assert_lt(took, 5, "%.1f s", took);
    cr_assert_not_null(strstr(text, "\ngpuprof_device_processes{"));
    const char *fds = strstr(text, "\nprocess_open_fds ");
    cr_assert_not_null(fds);
    cr_assert_leq(atol(fds + 18), (long)(count + GP_HTTP_CONNECTIONS + 30), "both ends are this process's: %s", fds);
    for (size_t i = 0; i < count; i++)
        close(crowd_fds[i]);
    gp_http_stop(http);
    gp_metrics_close(metrics);
}

/* A client with a hundred requests at once gets answers, but the tables are read only a few times. */
Test(http, a_flood_of_scrapes_reads_the_tables_seldom, .timeout = 60)
{
    struct gp_metrics *metrics;
    struct gp_http *http = serve(&metrics);
    static char text[65536];
    double begin = seconds();
    for (int i = 0; i < 300; i++)
        cr_assert_eq(ask(http, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", text, sizeof(text)), 200);
    double took = seconds() - begin;
    cr_assert_leq(served.reads, 2 + took / 0.25, "%u reads in %.1f s", served.reads, took);
    cr_assert_geq(served.reads, 1);
    gp_http_stop(http);
    gp_metrics_close(metrics);
}

Test(http, addresses)
{
    struct gp_http_address a;
    char why[256], shown[64];
    struct sockaddr_in *v4 = (struct sockaddr_in *)&a.address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a.address;
    cr_assert_eq(gp_http_parse("9949", &a, why, sizeof(why)), 0);
    cr_assert_eq(v4->sin_addr.s_addr, htonl(INADDR_LOOPBACK), "a bare port is not bound to loopback");
    cr_assert_eq(gp_http_parse(":9949", &a, why, sizeof(why)), 0);
    cr_assert(v6->sin6_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) && v6->sin6_port == htons(9949));
    cr_assert_eq(gp_http_parse("10.1.2.3:80", &a, why, sizeof(why)), 0);
    cr_assert_str_eq(inet_ntop(AF_INET, &v4->sin_addr, shown, sizeof(shown)), "10.1.2.3");
    cr_assert_eq(gp_http_parse("[::1]:80", &a, why, sizeof(why)), 0);
    cr_assert(IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr));
    static const char *const bad[] = {"",
                                      ":",
                                      "x",
                                      "1.2.3.4",
                                      "1.2.3.4:",
                                      "1.2.3.4:65536",
                                      "1.2.3.4:-1",
                                      "localhost:80",
                                      "::1:80",
                                      "[::1]",
                                      "[]:80",
                                      "[::1:80",
                                      "1.2.3.4:80x",
                                      "11111111111111111111111111111111111111111111111111111111111111111:80"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        why[0] = '\0';
        cr_assert_eq(gp_http_parse(bad[i], &a, why, sizeof(why)), -EINVAL, "%s", bad[i]);
        cr_assert_neq(why[0], '\0');
    }
}

Test(http, a_port_in_use_is_an_error_with_a_sentence, .timeout = 60)
{
    struct gp_metrics *metrics, *second = open_metrics(&served, (struct gp_metrics_options){0});
    struct gp_http *http = serve(&metrics), *other = NULL;
    struct gp_http_address address;
    char text[64], why[256];
    snprintf(text, sizeof(text), "127.0.0.1:%u", gp_http_port(http));
    cr_assert_eq(gp_http_parse(text, &address, why, sizeof(why)), 0);
    cr_assert_eq(gp_http_start(&other, &address, second, why, sizeof(why)), -EADDRINUSE);
    cr_assert_not_null(strstr(why, "in use"), "%s", why);
    gp_http_stop(http);
    cr_assert_eq(gp_http_start(&other, &address, second, why, sizeof(why)), 0, "the port is still in use: %s", why);
    gp_http_stop(other);
    gp_metrics_close(metrics);
    gp_metrics_close(second);
}

/* ---- forecast ---------------------------------------------------------------------------------------------------- */

/* Every page is one moment of the container. */
Test(metrics, headroom_and_time_to_out_of_memory)
{
    struct gp_ahead *ahead = gp_metrics_ahead_new();
    int64_t headroom = 0, seconds = 0;
    cr_assert_not_null(ahead);
    for (int64_t page = 1; page <= 40; page++) { /* every 15 s 150 MiB more; 20 GiB are free at first */
        struct gp_map_sum sum = {.allocated_bytes = 5 * GIB + page * 150 * (GIB >> 10) + (page % 3) * (GIB >> 10),
                                 .reserved_bytes = 6 * GIB + page * 150 * (GIB >> 10),
                                 .calls = 1000 * page,
                                 .frees = 990 * page};
        sum.allocated_peak_bytes = sum.allocated_bytes;
        gp_metrics_ahead_look(ahead, &sum, (uint64_t)page * 15000000000ull, 20 * GIB - page * 150 * (GIB >> 10), -1,
                              &headroom, &seconds);
        cr_assert_gt(headroom, 0);
        cr_assert(page > 10 || seconds == -1, "page %d: %d", (int)page, (int)seconds);
    }
    cr_assert(headroom > 15 * GIB && headroom < 16 * GIB, "%ld", (long)headroom);
    /* 15 GiB at 10 MiB/s */
    cr_assert(seconds > 1400 && seconds < 1700, "%ld", (long)seconds);
    struct gp_map_sum sum = {.allocated_bytes = 5 * GIB, .reserved_bytes = 5 * GIB, .calls = 10, .frees = 10};
    gp_metrics_ahead_look(ahead, &sum, 10000000000000ull, 20 * GIB, 2 * GIB, &headroom, &seconds);
    cr_assert_eq(headroom, 2 * GIB);
    cr_assert_eq(seconds, -1, "new counters begin again");
    free(ahead);
}

/* ---- call sites that grow ---------------------------------------------------------------------------------------- */

/* The innermost frame of the program's own code, without a symbol; what a process writes is made printable. */
Test(metrics, names_of_growing_sites)
{
    char strings[] = "\0cat\0/usr/lib/python3/dist-packages/torch/functional.py\0keep\n\0/home/me/train.py\0"
                     "/lib/libc10_cuda.so\0/opt/app/engine.so";
    struct gp_rec_module modules[] = {{.start = 0x1000, .end = 0x2000, .path = 80},
                                      {.start = 0x5000, .end = 0x6000, .offset = 0x100, .path = 100}};
    struct gp_rec_frame frames[] = {{.pc = 0x1010, .module = 0},
                                    {.function = 1, .file = 5, .line = 1, .module = GP_REC_NONE},
                                    {.function = 56, .file = 62, .line = 42, .module = GP_REC_NONE},
                                    {.pc = 0x5023, .module = 1}};
    struct gp_rec_site rows[] = {{0},
                                 {.first_frame = 0, .frame_count = 3},
                                 {.first_frame = 0, .frame_count = 1},
                                 {.first_frame = 3, .frame_count = 1}};
    struct gp_sites sites = {.sites = rows,
                             .site_count = 4,
                             .frames = frames,
                             .frame_count = 4,
                             .modules = modules,
                             .module_count = 2,
                             .strings = strings,
                             .string_bytes = sizeof(strings)};
    static const char *const labels[] = {"unknown", "keep? (train.py:42)", "libc10_cuda.so+0x10", "engine.so+0x123"};
    for (uint32_t i = 0; i < 4; i++) {
        char label[128];
        gp_growing_label(&sites, i, label, sizeof(label));
        cr_expect_str_eq(label, labels[i], "site %u: %s", i, label);
    }
}
