/* SPDX-License-Identifier: MIT
 *
 * test_system.c: tests the commands that read the whole machine, against maps that the test creates
 * and pins: as root, as a user who may not read the process table, without an agent, and after a
 * reset.
 */
#include <unit/cmd/cli.h>

#include <agent/maps/maps.h>
#include <bpf/bpf.h>
#include <lib/paths.h>
#include <lib/pins.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define MIB         (1ll << 20)
#define OTHERS      65534 /* an ordinary user */
#define UNUSED_USER 61237 /* a user without processes in any test */

static struct gp_test_pins pins;

/* Two GPUs, two containers: A has 300 MiB on GPU 0 in two processes, B 50 MiB on GPU 1 in one. The
 * peaks of the sums include ended processes. */
static void machine(void)
{
    char why[128];
    if (gp_test_pins_make(&pins, why, sizeof(why)) != 0)
        cr_skip_test("%s", why);
    cr_assert_eq(gp_test_pins_process(&pins, 900001, 5000000000, 0, 1001, 11, "train", 100 * MIB), 0);
    cr_assert_eq(gp_test_pins_process(&pins, 900002, 6000000000, 0, 1001, 11, "train\033[2J", 200 * MIB), 0);
    cr_assert_eq(gp_test_pins_process(&pins, 900003, 7000000000, 1, OTHERS, 22, "serve", 50 * MIB), 0);
    cr_assert_eq(gp_test_pins_sum(&pins, 11, 0, 2, 300 * MIB, 700 * MIB), 0);
    cr_assert_eq(gp_test_pins_sum(&pins, 22, 1, 1, 50 * MIB, 60 * MIB), 0);
    cr_assert_eq(gp_test_pins_sum(&pins, 0, 0, 2, 300 * MIB, 900 * MIB), 0);
    cr_assert_eq(gp_test_pins_sum(&pins, 0, 1, 1, 50 * MIB, 60 * MIB), 0);
}

static void end(void)
{
    gp_test_pins_free(&pins);
}

TestSuite(system, .init = machine, .fini = end, .timeout = 60);

/* Runs a command as a user other than root, with our pins. */
static struct result run_by(uid_t user, const char *command)
{
    char line[512];
    snprintf(line, sizeof(line), "%s --pins %s", command, pins.dir);
    struct result r = run_as(user, line);
    if (strstr(r.err, "CAP_BPF"))
        cr_skip_test("this kernel lets only root read maps");
    return r;
}

static struct result run_user(const char *command)
{
    return run_by(OTHERS, command);
}

static void open_to_all(void)
{
    static const char *const names[] = {"process_device", "reset"};
    char path[160];
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", pins.dir, names[i]);
        cr_assert_eq(chmod(path, 0666), 0);
    }
}

/* Runs a command as a user without processes that a reset could affect. */
static struct result run_without_processes(const char *command)
{
    return run_by(UNUSED_USER, command);
}

/* As run_without_processes, with permission to read and write the maps but no other user's session,
 * so other programs of this machine are not affected. */
static struct result run_apart(const char *command)
{
    open_to_all();
    return run_without_processes(command);
}

static int64_t number(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    cr_assert(json_is_integer(value), "%s is not a number", key);
    return json_integer_value(value);
}

static json_t *of(json_t *top, const char *list, const char *key, int64_t wanted)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(top, list), i, one)
    {
        if (json_integer_value(json_object_get(one, key)) == wanted)
            return one;
    }
    return NULL;
}

Test(system, the_table_the_sums_and_their_peaks_are_those_of_the_maps)
{
    json_t *top = expect_json(run("top --system --json --pins %s", pins.dir), "gpuprof.top/1");
    cr_assert(json_is_true(json_object_get(top, "system")));
    cr_assert(json_is_true(json_object_get(json_object_get(top, "agent"), "alive")));
    cr_assert_eq(json_array_size(json_object_get(top, "processes")), 3);
    json_t *one = of(top, "processes", "pid", 900001);
    cr_assert_eq(number(one, "allocated_bytes"), 100 * MIB);
    cr_assert_eq(number(one, "allocated_peak_bytes"), 200 * MIB);
    cr_assert_eq(number(one, "reserved_bytes"), 101 * MIB);
    cr_assert_eq(number(one, "lost_events"), 3);
    cr_assert_eq(number(one, "cgroup_id"), 11);
    cr_assert_str_eq(json_string_value(json_object_get(one, "state")), "live");
    one = of(top, "processes", "pid", 900002);
    cr_assert_str_eq(json_string_value(json_object_get(one, "comm")), "train?[2J",
                     "escape sequences of a process were printed");
    cr_assert_eq(json_array_size(json_object_get(top, "containers")), 2);
    one = of(top, "containers", "cgroup_id", 11);
    cr_assert_eq(number(one, "allocated_bytes"), 300 * MIB);
    cr_assert_eq(number(one, "allocated_peak_bytes"), 700 * MIB, "the peak does not include ended processes");
    cr_assert_eq(number(one, "processes"), 2);
    cr_assert_eq(json_array_size(json_object_get(top, "devices")), 2);
    one = of(top, "devices", "device", 0);
    cr_assert_str_eq(json_string_value(json_object_get(one, "uuid")), "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a000");
    cr_assert_eq(number(one, "allocated_peak_bytes"), 900 * MIB);
    cr_assert_eq(number(one, "total_bytes"), 80ll << 30);
    json_decref(top);
}

Test(system, a_user_sees_sums_and_a_note_that_others_are_hidden)
{
    struct result r = run_without_processes("top --system --json");
    cr_assert(strstr(r.err, "only root may see them one by one"), "%s", r.err);
    json_t *top = expect_json(r, "gpuprof.top/1");
    cr_assert_eq(json_array_size(json_object_get(top, "processes")), 0);
    cr_assert(json_is_true(json_object_get(json_object_get(top, "agent"), "processes_hidden")));
    cr_assert_eq(number(of(top, "containers", "cgroup_id", 11), "allocated_peak_bytes"), 700 * MIB);
    cr_assert_eq(number(of(top, "devices", "device", 0), "allocated_bytes"), 300 * MIB);
    json_decref(top);
    expect(run_user("top --system --by container"), 0, "cgroup 22: 1 process", "only root");
}

/* 40 MiB of the process and of every sum that has it sleep. */
static void fall_asleep(void)
{
    struct gp_map_process_key process = {.tgid = 900001, .device = 0};
    struct gp_map_process row;
    struct gp_map_container_key container = {.cgroup_id = 11};
    struct gp_map_sum sum;
    gp_test_pins_uuid(container.uuid, 0);
    cr_assert_eq(bpf_map_lookup_elem(pins.process, &process, &row), 0);
    row.asleep_bytes = 40 * MIB;
    row.asleep_peak_bytes = 60 * MIB;
    row.asleep_peak_ns = row.allocated_peak_ns;
    cr_assert_eq(bpf_map_update_elem(pins.process, &process, &row, BPF_ANY), 0);
    cr_assert_eq(bpf_map_lookup_elem(pins.container_device, &container, &sum), 0);
    sum.asleep_bytes = 40 * MIB;
    cr_assert_eq(bpf_map_update_elem(pins.container_device, &container, &sum, BPF_ANY), 0);
    cr_assert_eq(bpf_map_lookup_elem(pins.device, container.uuid, &sum), 0);
    sum.asleep_bytes = 40 * MIB;
    cr_assert_eq(bpf_map_update_elem(pins.device, container.uuid, &sum, BPF_ANY), 0);
}

static void stats_asleep(int64_t current, int64_t peak)
{
    json_t *stat = expect_json(run("stat --all --json --pins %s", pins.dir), "gpuprof.stat/1");
    json_t *stats =
        json_object_get(json_array_get(json_object_get(of(stat, "processes", "pid", 900001), "devices"), 0), "stats");
    cr_expect_eq(number(stats, "asleep_bytes.current"), current);
    cr_expect_eq(number(stats, "asleep_bytes.peak"), peak);
    json_decref(stat);
}

/* A column of its own, where there is something to show. */
Test(system, what_sleeps_is_shown_by_process_container_and_device)
{
    static const char *const by[] = {"process", "container", "device"};
    for (int asleep = 0; asleep < 2; asleep++) {
        for (size_t i = 0; i < 3; i++) {
            struct result r = run("top --system --by %s --pins %s", by[i], pins.dir);
            cr_assert_eq(strstr(r.out, "ASLEEP") != NULL, asleep, "by %s: %s", by[i], r.out);
            cr_assert_eq(strstr(r.out, "40.0M") != NULL, asleep, "by %s: %s", by[i], r.out);
            expect(r, 0, NULL, NULL);
        }
        struct result r = run("stat --all --pins %s", pins.dir);
        cr_expect_eq(strstr(r.out, "asleep") != NULL, asleep, "%s", r.out);
        expect(r, 0, NULL, NULL);
        json_t *top = expect_json(run("top --system --json --pins %s", pins.dir), "gpuprof.top/1");
        cr_expect_eq(number(of(top, "processes", "pid", 900001), "asleep_bytes"), asleep * 40 * MIB);
        cr_expect_eq(number(of(top, "processes", "pid", 900003), "asleep_bytes"), 0);
        cr_expect_eq(number(of(top, "containers", "cgroup_id", 11), "asleep_bytes"), asleep * 40 * MIB);
        cr_expect_eq(number(of(top, "devices", "device", 0), "asleep_bytes"), asleep * 40 * MIB);
        cr_expect_eq(number(of(top, "devices", "device", 0), "allocated_bytes"), 300 * MIB);
        json_decref(top);
        fall_asleep();
    }
    stats_asleep(40 * MIB, 60 * MIB);
    expect(run_apart("reset --all --allocated"), 0, "asleep_bytes.peak                       40.00 MiB -> 40.00 MiB",
           NULL);
    stats_asleep(40 * MIB, 40 * MIB);
}

Test(system, tables_by_process_container_and_device)
{
    expect(run("top --system --pins %s", pins.dir), 0, "900003", NULL);
    expect(run("top --system --by container --pins %s", pins.dir), 0, "cgroup 11: 2 processes", NULL);
    struct result r = run("top --system --by device --pins %s", pins.dir);
    cr_assert_null(strstr(r.out, ">="), "peaks of sums are shown as bounds: %s", r.out);
    cr_assert(strstr(r.out, "900M"), "%s", r.out);
    expect(r, 0, "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a001: 1 process", NULL);
    r = run("top --system -p 900003 --pins %s", pins.dir);
    cr_assert_null(strstr(r.out, "900001"), "%s", r.out);
    expect(r, 0, "900003", NULL);
}

Test(system, no_agent_and_another_version_are_reported)
{
    expect(run("top --system --pins %s/none", pins.dir), 77, NULL, "start one as root with 'gpuprof agent'");
    expect(run("top --system --json --pins %s/none", pins.dir), 77, NULL, "no agent has pinned");
    struct gp_map_meta meta = {.abi = GP_MAPS_ABI + 1};
    cr_assert_eq(gp_test_pins_meta(&pins, &meta, 0), 0);
    expect(run("top --system --pins %s", pins.dir), 77, NULL, "restart the agent with this version");
    expect(run("top --pins /x"), 2, NULL, "goes with --system");
}

Test(system, an_agent_without_a_heartbeat_is_reported)
{
    struct gp_map_meta meta = {0};
    cr_assert_eq(gp_test_pins_meta(&pins, &meta, 90), 0);
    expect(run("top --system --pins %s", pins.dir), 0, "exited", "the agent has not reported for 1m30s");
    struct result r = run("top --system --json --pins %s", pins.dir);
    cr_assert(strstr(r.err, "these numbers are not updated"), "%s", r.err);
    json_t *top = expect_json(r, "gpuprof.top/1");
    cr_assert(json_is_false(json_object_get(json_object_get(top, "agent"), "alive")));
    json_decref(top);
}

Test(system, losses_of_the_agent_are_reported)
{
    struct gp_map_meta meta = {.map_full = 5, .refused_batches = 2};
    cr_assert_eq(gp_test_pins_meta(&pins, &meta, 0), 0);
    expect(run("top --system --pins %s", pins.dir), 0, NULL,
           "not counted: 5 updates, because the agent's tables were full, and 2 refused batches");
}

/* ---- resets ------------------------------------------------------------------------------------------------------ */

static void peaks(int64_t device0, int64_t device0_reserved, int64_t container, int64_t device1)
{
    json_t *top = expect_json(run("top --system --json --pins %s", pins.dir), "gpuprof.top/1");
    cr_assert_eq(number(of(top, "devices", "device", 0), "allocated_peak_bytes"), device0);
    cr_assert_eq(number(of(top, "devices", "device", 0), "reserved_peak_bytes"), device0_reserved);
    cr_assert_eq(number(of(top, "containers", "cgroup_id", 11), "allocated_peak_bytes"), container);
    cr_assert_eq(number(of(top, "devices", "device", 1), "allocated_peak_bytes"), device1);
    json_decref(top);
}

Test(system, a_reset_of_all_restarts_every_peak)
{
    expect(run_apart("reset --allocated --all"), 0, "whole machine: reset allocated", NULL);
    peaks(300 * MIB, 901 * MIB, 300 * MIB, 50 * MIB);
    expect(run_apart("reset --reserved --all"), 0, "reserved_bytes.all.peak", NULL);
    peaks(300 * MIB, 301 * MIB, 300 * MIB, 50 * MIB);
    /* A value that the BPF program raises after that is a peak again. */
    cr_assert_eq(gp_test_pins_sum(&pins, 0, 0, 2, 310 * MIB, 800 * MIB), 0);
    peaks(800 * MIB, 801 * MIB, 300 * MIB, 50 * MIB);
}

Test(system, a_reset_of_one_device_leaves_the_others)
{
    json_t *top = expect_json(run_apart("reset --peaks --all --device 0 --json"), "gpuprof.reset/1");
    json_t *machine_list = json_object_get(top, "machine");
    cr_assert_eq(json_array_size(machine_list), 1);
    json_t *one = json_array_get(machine_list, 0);
    cr_assert_eq(number(json_object_get(one, "before"), "allocated_bytes.all.peak"), 900 * MIB);
    cr_assert_eq(number(json_object_get(one, "after"), "allocated_bytes.all.peak"), 300 * MIB);
    json_decref(top);
    peaks(300 * MIB, 301 * MIB, 300 * MIB, 60 * MIB);
}

Test(system, without_a_process_a_device_is_the_machines)
{
    /* The modes of the maps decide which user may reset. */
    struct result r = run_without_processes("reset --peaks --device 0");
    expect(r, 1, NULL, "the machine-wide peaks were not reset");
    peaks(900 * MIB, 901 * MIB, 700 * MIB, 60 * MIB);
    open_to_all();
    json_t *top = expect_json(run_without_processes("reset --allocated --device 0 --json"), "gpuprof.reset/1");
    cr_assert_eq(json_array_size(json_object_get(top, "processes")), 0);
    json_t *list = json_object_get(top, "machine");
    cr_assert_eq(json_array_size(list), 1);
    cr_assert_eq(number(json_object_get(json_array_get(list, 0), "before"), "allocated_bytes.all.peak"), 900 * MIB);
    json_decref(top);
    peaks(300 * MIB, 901 * MIB, 300 * MIB, 60 * MIB);
    expect(run_without_processes("reset --peaks --device 1"), 0, "60.00 MiB -> 50.00 MiB", NULL);
    expect(run_without_processes("reset --peaks --device 7"), 2, NULL, "no such GPU (it knows: 0, 1)");
    /* Without a process of the user, only machine-wide peaks can be reset. */
    expect(run_without_processes("reset --peaks"), 3, NULL, "no process of yours");
    expect(run_without_processes("reset --peaks --device host"), 3, NULL, "no process of yours");
    expect(run_without_processes("reset --accumulated --device 0"), 3, NULL, "no process of yours");
    char line[256];
    snprintf(line, sizeof(line), "reset --peaks --device 0 --pins %s/none", pins.dir);
    expect(run_as(UNUSED_USER, line), 3, NULL, "no process of yours");
    peaks(300 * MIB, 901 * MIB, 300 * MIB, 50 * MIB);
}

Test(system, a_user_without_permission_to_reset_gets_an_error)
{
    char line[256];
    snprintf(line, sizeof(line), "reset --peaks --all --pins %s", pins.dir);
    struct result r = run_as(UNUSED_USER, line);
    cr_assert(strstr(r.err, "the machine-wide peaks were not reset"), "%s", r.err);
    /* If a user may read maps at all, the kernel is not the reason. */
    struct result seen = run_user("top --system");
    cr_assert(strstr(r.err, "/reset: permission denied"), "%s", r.err);
    free(seen.out);
    free(seen.err);
    expect(r, 1, NULL, "run as root");
    peaks(900 * MIB, 901 * MIB, 700 * MIB, 60 * MIB);
    expect(run_apart("reset --accumulated --all"), 0, NULL, NULL);
    peaks(900 * MIB, 901 * MIB, 700 * MIB, 60 * MIB);
}

/* ---- stat -------------------------------------------------------------------------------------------------------- */

Test(system, stat_adds_processes_without_a_readable_session)
{
    pid_t pid = start((struct gp_test_process_options){.devices = 1, .uid = OTHERS});
    open_to_all();
    json_t *top = expect_json(run_user("stat --all --json"), "gpuprof.stat/1");
    json_t *one = of(top, "processes", "pid", 900002);
    cr_assert_str_eq(json_string_value(json_object_get(one, "known_from")), "agent");
    json_t *stats = json_object_get(json_array_get(json_object_get(one, "devices"), 0), "stats");
    cr_assert_eq(number(stats, "allocated_bytes.all.peak"), 400 * MIB);
    cr_assert(json_is_null(json_object_get(stats, "active_bytes.all.peak")), "an unknown value is not null");
    cr_assert_eq(json_object_size(stats), 126);
    one = of(top, "processes", "pid", pid);
    cr_assert_str_eq(json_string_value(json_object_get(one, "known_from")), "session");
    json_decref(top);
    open_to_all();
    expect(run_user("stat --all"), 0, "from the agent's maps: only totals and peaks", NULL);
    gp_test_process_stop(pid);
}

static unsigned long long start_ns(pid_t pid)
{
    char text[1024];
    unsigned long long ticks = 0;
    snprintf(text, sizeof(text), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(text, "re");
    cr_assert_not_null(file);
    cr_assert_not_null(fgets(text, sizeof(text), file));
    fclose(file);
    cr_assert_eq(sscanf(strrchr(text, ')') + 1,
                        " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                        "%*d %*d %llu",
                        &ticks),
                 1);
    return ticks * 10000000ull + 1234567;
}

Test(system, stat_does_not_show_a_process_twice)
{
    pid_t pid = start((struct gp_test_process_options){.devices = 1, .uid = OTHERS});
    cr_assert_eq(gp_test_pins_process(&pins, (unsigned)pid, start_ns(pid), 0, 0, 11, "x", MIB), 0);
    open_to_all();
    json_t *top = expect_json(run_user("stat --all --json"), "gpuprof.stat/1"), *one;
    size_t i, found = 0;
    json_array_foreach(json_object_get(top, "processes"), i, one) found += number(one, "pid") == pid;
    cr_assert_eq(found, 1);
    json_decref(top);
    /* top shows the command line of exactly this process. */
    expect(run("top --system -p %d --pins %s", (int)pid, pins.dir), 0, "boxfort-worker", NULL);
    gp_test_process_stop(pid);
}

/* The maps have no names of GPUs: a process that uses one has. */
Test(system, gpus_have_names)
{
    pid_t pid = start((struct gp_test_process_options){.devices = 2});
    pins.session_uuids = true;
    for (unsigned gpu = 0; gpu < 2; gpu++) {
        cr_assert_eq(gp_test_pins_process(&pins, (unsigned)pid, start_ns(pid), gpu, 0, 11, "x", MIB), 0);
        cr_assert_eq(gp_test_pins_sum(&pins, 0, gpu, 1, MIB, 2 * MIB), 0);
    }
    json_t *top = expect_json(run("top --system --json --pins %s", pins.dir), "gpuprof.top/1"), *one;
    size_t i, named = 0;
    json_array_foreach(json_object_get(top, "devices"), i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        named += name && strncmp(name, "Simulated GPU ", 14) == 0;
    }
    cr_assert_eq(named, 2);
    json_decref(top);
    expect(run("top --system --by device --pins %s", pins.dir), 0, "Simulated GPU 0: 1 process", NULL);
    gp_test_process_stop(pid);
}

Test(system, stat_of_a_user_sums_hidden_processes)
{
    expect(run_user("stat --all"), 0, NULL, "300.0 MiB allocated, peak 900.0 MiB, in 2 processes: only root");
}

/* ---- size -------------------------------------------------------------------------------------------------------- */

/* Processor time, since the clock also counts what else this machine does. */
static double commands_seconds(void)
{
    struct rusage use;
    cr_assert_eq(getrusage(RUSAGE_CHILDREN, &use), 0);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

Test(system, a_full_table_is_read_whole_and_fast)
{
    for (unsigned i = 0; i < GP_MAPS_PROCESSES - 3; i++)
        cr_assert_eq(gp_test_pins_process(&pins, 2000000 + i, 1000000000ull * i, i % 8, i, 11, "many", MIB), 0, "%u",
                     i);
    double before = commands_seconds();
    struct result r = run("top --system --by device --pins %s", pins.dir);
    double took = commands_seconds() - before;
    expect(r, 0, "a001: 1 process", NULL);
    r = run("top --system -p 2016380 --pins %s", pins.dir);
    expect(r, 0, "2016380", NULL);
    cr_log_info("16384 rows in %.0f ms", took * 1e3);
    cr_assert_lt(took, 20, "%.1f s", took);
}

/* Rows are removed and added while the table is copied, and one may be read both at its old and its
 * new place. */
Test(system, a_full_table_is_read_while_it_changes)
{
    char why[GP_SYSTEM_WHY];
    for (unsigned i = 0; i < GP_MAPS_PROCESSES - 3; i++)
        cr_assert_eq(gp_test_pins_process(&pins, 2000000 + i, 1000000000ull * i, i % 8, i, 11, "many", MIB), 0);
    pid_t churn = fork();
    if (churn == 0) { /* a row is removed and another added, so the table is full except for one moment each */
        static unsigned tgids[GP_MAPS_PROCESSES - 3];
        for (unsigned n = 0;; n++) {
            unsigned i = n * 7919 % (GP_MAPS_PROCESSES - 3), was = tgids[i] ? tgids[i] : 2000000 + i;
            struct gp_map_process_key key = {.tgid = was, .device = i % 8};
            struct gp_map_process row;
            if (bpf_map_lookup_elem(pins.process, &key, &row) != 0 || bpf_map_delete_elem(pins.process, &key) != 0)
                _exit(1);
            tgids[i] = key.tgid = 3000000 + n;
            if (bpf_map_update_elem(pins.process, &key, &row, BPF_ANY) != 0)
                _exit(1);
        }
    }
    int failed = 0;
    for (int i = 0; i < 200 && !failed; i++) {
        struct gp_system_view *view;
        failed = gp_system_view_read(&view, pins.dir, why, sizeof(why));
        if (!failed)
            gp_system_view_free(view);
    }
    int status;
    kill(churn, SIGKILL);
    cr_assert_eq(waitpid(churn, &status, 0), churn);
    cr_assert(WIFSIGNALED(status), "nothing moved");
    cr_assert_eq(failed, 0, "%s", why);
}

/* ---- rights ------------------------------------------------------------------------------------------------------ */

static bool doctor_says(const char *before, const char *words)
{
    char line[512], text[256];
    bool found = false;
    snprintf(line, sizeof(line), "%s %s doctor --pins %s 2>&1", before, path_command(), pins.dir);
    FILE *from = popen(line, "r");
    cr_assert_not_null(from);
    while (fgets(text, sizeof(text), from))
        found |= !strncmp(text, "rights", 6) && strstr(text, words);
    pclose(from);
    return found;
}

Test(system, doctor_advises_the_right_to_open_what_is_mapped)
{
    static const char advice[] = "without CAP_CHECKPOINT_RESTORE";
    if (!doctor_says("", "this user may run the agent") || doctor_says("", advice))
        cr_skip_test("this user lacks other rights");
    cr_assert(doctor_says("setpriv --bounding-set -sys_admin,-checkpoint_restore --", advice));
}
