/* SPDX-License-Identifier: MIT
 * test_cli.c: exit codes, messages and output of the commands that read processes, and wrong
 * usage of all commands.  Run by the unit tests. */
#include "cli.h"
#include <gpuprof/gpuprof.h>

/* ---- wrong usage ----------------------------------------------------------------------------------------------- */

static const struct {
    const char *line;
    int status;
    const char *err;
} wrong[] = {
    {"", 2, NULL},
    {"statt", 2, "did you mean 'stat'"},
    {"frobnicate", 2, "no such command"},
    {"ps", 2, "did you mean 'gpuprof top --once'?"},
    {"version", 2, "did you mean 'gpuprof --version'?"},
    {"/bin/sh x.sh", 2, "gpuprof run -- /bin/sh .."},
    {"--frobnicate", 2, "unknown option"},
    {"help frobnicate", 2, "no such command"},
    {"report", 2, "no recording given"},
    {"report x", 1, "x: No such file"},
    {"report x y", 1, "x: No such file"},
    {"peak x y", 2, "unexpected argument"},
    {"report x -o - --json", 1, "x: No such file"},
    {"leaks", 2, "no recording given"},
    {"leaks x -p 1", 2, "not both"},
    {"leaks x --duration 3", 2, "only a running process"},
    {"leaks -p 1,2", 2, "one process"},
    {"leaks -p 999999999", 3, "no such process"},
    {"leaks x --error-exitcode 256", 2, "from 0 to 255"},
    {"leaks x --older -1", 2, "not a whole number"},
    {"peak x --older 1", 2, "--older"},
    {"peak", 2, "no recording given"},
    {"fit x", 2, "--gpu is needed"},
    {"fit x --gpu 80GB00", 2, "neither a size"},
    {"fit x --gpu nix", 2, "'gpuprof dryrun --list' shows the names"},
    {"fit x --gpu l4", 1, "x: No such file"},
    {"fit x --gpu 0", 2, "neither a size"},
    {"fit x --gpu 4090", 1, "x: No such file"},
    {"fit x --gpu a100", 2, "which one: a100-40g, a100-40g-pcie, a100-80g or a100-80g-pcie?"},
    {"fit x --gpu 3080ti", 2, "neither a size"},
    {"dryrun --gpu=v100 true", 2, "--gpu=v100: which one: v100-16g or v100-32g?"},
    {"run --library=@ --sim=gpu=v100 true", 2, "--sim: gpu=v100: which one: v100-16g or v100-32g?"},
    {"fit x --gpu 24", 2, "did you mean 24GiB?"},
    {"fit x --gpu 24 --context 1", 2, "--context=1: a number without a unit"},
    {"fit x --gup=24GiB", 2, "unknown or ambiguous option: did you mean --gpu?"},
    {"export x --format=flamegraph", 1, "x: No such file"},
    {"export x --format=Speedscope --weight=live", 1, "x: No such file"},
    {"export x --format=perfetto --blocks=3", 1, "x: No such file"},
    {"export x --format=perfect", 2, "must be pprof, chrome, collapsed"},
    {"run --recrod=x true", 2, "did you mean --record?"},
    {"run --record none-such true", 2, "--record=none-such, or -o none-such"},
    {"run -o none-such.gpuprof", 2, "no program given"},
    {"none-such.py", 2, "none-such.py: no such command"},
    {"check x --budget 20", 2, "did you mean 20GiB? 20B is bytes"},
    {"check x --budget 101%", 2, "not a percentage from above 0 to 100"},
    {"check x --budget 7.5GiB", 1, "x: No such file"},
    {"dryrun --budget=0 true", 2, "give a size above 0"},
    {"diff x y --max-growth=5", 2, "did you mean 5GiB?"},
    {"wait --need=20 -- true", 2, "did you mean 20GiB?"},
    {"churn /dev/null", 1, "/dev/null: the file is empty"},
    {"fragmentation --garbage", 2, "--garbage"},
    {"reconcile x --json=1", 2, "takes no value"},
    {"diff x", 2, "two recordings"},
    {"diff x y -p 1", 2, "-p"},
    {"snapshot", 2, "missing output file"},
    {"export", 2, "no recording given"},
    {"agent extra", 2, "unexpected"},
    {"agent --frob", 2, "--frob"},
    {"agent --listen", 2, "needs a value"},
    {"agent --listen localhost:1", 2, "not a numeric address"},
    {"agent --listen 99999", 2, "is not ADDR:PORT"},
    {"agent --max-processes 0", 2, "not a whole number from 1"},
    {"agent --max-containers 99999999", 2, "not a whole number from 1"},
    {"agent --ring 1", 2, "not a size from 4KiB"},
    {"agent --ring x", 2, "not a size"},
    {"agent --metrics-per-process=all", 2, "must be off, comm or pid"},
    {"agent --metrics-series 1", 2, "not a whole number from 200"},
    {"agent --group no-such-group-here --pins /nonexistent/pins", 2, "no such group"},
    {"stat --system --pins /nonexistent", 77, "no agent has pinned"},
    {"top --system --pins /nonexistent", 77, "start one as root"},
    {"top --pins /nonexistent", 2, "goes with --system"},
    {"top --system --by site", 2, "one process alone"},
    {"stat --pins /nonexistent -p 1", 2, "goes with --all"},
    {"stat --garbage", 2, "--garbage"},
    {"stat -z", 2, "-z"},
    {"stat 123", 2, "-p"},
    {"stat -p", 2, "needs a value"},
    {"stat -p x", 2, "not a list of pids"},
    {"stat -p 1,,2", 2, "not a list of pids"},
    {"stat -p -1", 2, "not a list of pids"},
    {"stat -p 0", 2, "not a list of pids"},
    {"stat -p 1 --all", 2, "exclude"},
    {"stat --json --summary --all", 2, "exclude"},
    {"stat --json=yes", 2, "takes no value"},
    {"stat --all --device 99", 2, "out of range"},
    {"stat --all --device 99999999999999999999", 2, "out of range"},
    {"stat --all --device x", 2, "not a device"},
    {"stat -p 999999999", 3, "no such process"},
    {"stat -p 1", 3, "pid 1"},
    {"reset -p 1", 2, "--allocated"},
    {"reset --allocated --reserved -p 1", 2, "one at a time"},
    {"reset --peaks -p 999999999", 3, "no such process"},
    {"reset --peaks --device 99 -p 1", 2, "out of range"},
    {"scope", 2, "begin"},
    {"scope frob x -p 1", 2, "must be begin, end or list"},
    {"scope begin -p 1", 2, "one name"},
    {"scope begin a b -p 1", 2, "one name"},
    {"scope list x -p 1", 2, "no name"},
    {"scope begin 0123456789012345678901234567890123456789 -p 1", 2, "bytes"},
    {"scope begin x -p 999999999", 3, "no such process"},
    {"scope list -p 1,2", 2, "one process"},
    {"mark -p 1", 2, "no name given"},
    {"mark 01234567890123456789012345678901 -p 1", 2, "bytes"},
    {"mark x -p 999999999", 3, "no such process"},
    {"trace -p 1 -- true", 2, "exclude"},
    {"trace -p 1 --kind nonsense", 2, "must be linear, pitched"},
    {"trace -p 1 --min 1Q", 2, "not a size"},
    {"trace -p 1 --min 99999999999999T", 2, "out of range"},
    {"trace -p 999999999", 3, "no such process"},
    {"trace --sim -p 1", 2, "need a program"},
    {"doctor extra", 2, "unexpected"},
    {"doctor --frob", 2, "--frob"},
    {"run", 2, "no program"},
    {"run --library=@", 2, "no program"},
    {"run --frob true", 2, "--frob"},
    {"run --library=/nonexistent/libgpuprof.so true", 2, "No such file"},
    {"run --library=/tmp true", 2, "not a file"},
    {"report /nonexistent/\033[31mred", 1, "report: /nonexistent/?[31mred: No such file"},
    {"run --stacks=some true", 2, "must be off, native, python or all"},
    {"run --allocator=cachign true", 2, "did you mean 'caching'"},
    {"run --allocator=best true", 2, "must be caching, pytorch, auto_growth, prealloc, passthrough or off"},
    {"run --alloc-conf=expandable_segments:True true", 2, "needs an allocator"},
    {"run --allocator=pytorch --alloc-conf=max_split_sz_mb:64 true", 2, "did you mean 'max_split_size_mb'"},
    {"run --allocator=pytorch --alloc-conf=foo:1 true", 2, "known are max_split_size_mb, "},
    {"run --allocator=pytorch --alloc-conf=expandable_segments:yes true", 2, "must be exactly True or False"},
    {"run --allocator=caching --alloc-conf=max_split_size_mb=64 true", 2, "separated by ':'"},
    {"replay x --allocator=all --conf=foo:1", 2, "unknown key 'foo'"},
    {"run --allocator=passthrough --alloc-conf=garbage_collection_threshold:2 true", 2, "between 0 and 1"},
    {"run --record=/nonexistent/x true", 1, "cannot begin a recording there"},
    {"run --limit=1GiB true", 2, "needs an allocator"},
    {"run --limit=99999999999999999999 true", 2, "out of range"},
    {"run --limit=-1 true", 2, "not a size"},
    {"run --limit=12 true", 2, "did you mean 12GiB?"},
    {"run --budget=12 true", 2, "did you mean 12GiB?"},
    {"run --library=@ --sim=memory=24 true", 2, "did you mean 24GiB?"},
    {"dryrun --memory=24 true", 2, "did you mean 24GiB?"},
    {"dryrun --budget=24 true", 2, "did you mean 24GiB?"},
    {"run --library=@ --sim=devices=0 true", 2, "devices=0"},
    {"run --library=@ --sim=devices=65 true", 2, "devices=65"},
    {"run --library=@ --sim=memory=99999999999T true", 2, "memory="},
    {"run --library=@ --sim=latency=slow true", 2, "latency="},
    {"run --library=@ --sim=gpu=h300 true", 2, "gpu=h300: no GPU of that name; --sim=gpu=list shows the names"},
    {"run --library=@ --sim=shared=a/b true", 2, "shared=a/b: not a name"},
    {"run --library=@ --sim=node=0 true", 2, "node=0: from 1 to 65536 ranks"},
    {"run --library=@ --sim=contents=some true", 2, "contents=some: keep or none"},
    {"run --library=@ --sim=faults=/nonexistent true", 2, "faults="},
    {"run --library=@ --sim=nonsense true", 2, "nonsense"},
    {"run --library=@ /nonexistent/program", 127, "No such file"},
    {"run --library=@ no-such-program-anywhere", 127, "No such file"},
    {"run --library=@ /etc/passwd", 126, "denied"},
    {"run --library=@ --summary no-such-program-anywhere", 127, "No such file"},
    {"run --library=@ --summary /etc/passwd", 126, "denied"},
};

Test(cli, wrong_usage, .timeout = 60)
{
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct result r = run("%s", wrong[i].line);
        cr_assert_eq(r.status, wrong[i].status, "'%s': status %d\n%s%s", wrong[i].line, r.status, r.out, r.err);
        if (wrong[i].err) {
            cr_assert(strstr(r.err, wrong[i].err), "'%s': no '%s' in: %s", wrong[i].line, wrong[i].err, r.err);
            cr_assert_eq(strncmp(r.err, "gpuprof: ", 9), 0, "'%s': %s", wrong[i].line, r.err);
            cr_assert_str_empty(r.out, "'%s': data on stdout: %s", wrong[i].line, r.out);
        }
        free(r.out);
        free(r.err);
    }
}

Test(cli, help)
{
    static const char *const commands[] = {"run", "stat", "reset", "scope", "trace", "mark", "doctor"};
    expect(run("--version"), 0, "gpuprof ", NULL);
    expect(run("--help"), 0, "doctor", NULL);
    expect(run("help"), 0, "usage: gpuprof COMMAND", NULL);
    expect(run("run --sim=gpu=list"), 0, "h100-80g        NVIDIA H100 80GB HBM3", NULL);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        char usage[64];
        snprintf(usage, sizeof(usage), "usage: gpuprof %s", commands[i]);
        expect(run("help %s", commands[i]), 0, usage, NULL);
        expect(run("%s --help", commands[i]), 0, usage, NULL);
        expect(run("%s -h", commands[i]), 0, usage, NULL);
    }
}

Test(cli, full_disk_is_a_failure)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full < 0)
        cr_skip("no /dev/full");
    if (!binary[0])
        find_binary();
    pid_t pid = fork();
    if (pid == 0) {
        dup2(full, 1);
        dup2(open("/dev/null", O_WRONLY), 2);
        execl(binary, binary, "--help", NULL);
        _exit(98);
    }
    int status;
    waitpid(pid, &status, 0);
    cr_assert_eq(WEXITSTATUS(status), 1);
}

Test(cli, a_reader_that_has_enough_is_no_news)
{
    static const char *const live[] = {"top --once --json", "stat", "stat --json"};
    char line[64];
    pid_t pid = start((struct gp_test_process_options){.devices = 1});
    expect_quiet("help --man");
    expect_quiet("generate llm-lora");
    for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i++) {
        snprintf(line, sizeof(line), "%s -p %d", live[i], pid);
        expect_quiet(line);
    }
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

Test(cli, stat_of_a_process)
{
    pid_t pid = start((struct gp_test_process_options){.devices = 2});
    expect(run("stat -p %d", pid), 0, "device 1", NULL);
    json_t *top = expect_json(run("stat --json -p %d", pid), "gpuprof.stat/1");
    json_t *process = json_array_get(json_object_get(top, "processes"), 0);
    cr_assert_eq(json_integer_value(json_object_get(process, "pid")), pid);
    cr_assert_eq(json_array_size(json_object_get(process, "devices")), 2);
    cr_assert_str_eq(json_string_value(json_object_get(process, "driver")), "sim");
    cr_assert_str_eq(json_string_value(json_object_get(process, "state")), "live");
    json_t *stats = json_object_get(json_array_get(json_object_get(process, "devices"), 1), "stats");
    cr_assert_eq(json_object_size(stats), GPUPROF_STATS);
    cr_assert_eq(json_integer_value(json_object_get(stats, "allocated_bytes.all.peak")), 4 << 20);
    cr_assert_eq(json_integer_value(json_object_get(stats, "max_split_size")), -1);
    cr_assert(json_is_object(json_object_get(json_object_get(process, "host"), "stats")));
    json_decref(top);
    struct result r = run("stat --summary --device 1 -p %d", pid);
    int lines = 0;
    for (char *at = r.out; (at = strchr(at, '\n')); at++)
        lines++;
    cr_assert_eq(lines, 47, "%s", r.out);
    expect(r, 0, "device ID 1", NULL);
    expect(run("stat --device 7 -p %d", pid), 2, NULL, "it has: 0, 1, host");
    expect(run("stat --device host -p %d", pid), 0, "host", NULL);
    gp_test_process_stop(pid);
    expect(run("stat -p %d", pid), 3, NULL, "no such process");
}

Test(cli, reset_says_before_and_after)
{
    pid_t pid = start((struct gp_test_process_options){.devices = 2});
    json_t *top = expect_json(run("reset --allocated --json --device 1 -p %d", pid), "gpuprof.reset/1");
    json_t *process = json_array_get(json_object_get(top, "processes"), 0);
    cr_assert_eq(json_array_size(json_object_get(process, "devices")), 1);
    json_t *device = json_array_get(json_object_get(process, "devices"), 0);
    cr_assert_eq(json_integer_value(json_object_get(device, "device")), 1);
    cr_assert_str_eq(json_string_value(json_object_get(device, "reset")), "allocated");
    json_t *before = json_object_get(device, "before"), *after = json_object_get(device, "after");
    cr_assert_eq(json_integer_value(json_object_get(before, "allocated_bytes.all.peak")), 4 << 20);
    cr_assert_eq(json_integer_value(json_object_get(after, "allocated_bytes.all.peak")), 2 << 20);
    cr_assert_null(json_object_get(before, "reserved_bytes.all.peak"), "--allocated does not touch it");
    json_decref(top);
    top = expect_json(run("reset --accumulated --json -p %d", pid), "gpuprof.reset/1");
    process = json_array_get(json_object_get(top, "processes"), 0);
    cr_assert_eq(json_array_size(json_object_get(process, "devices")), 2);
    device = json_array_get(json_object_get(process, "devices"), 0);
    cr_assert_eq(json_integer_value(json_object_get(json_object_get(device, "after"), "allocated_bytes.all.freed")), 0);
    cr_assert(json_is_object(json_object_get(process, "host")));
    json_decref(top);
    expect(run("reset --peaks -p %d", pid), 0, "reserved_bytes.all.peak", NULL);
    expect(run("reset --peaks --device 5 -p %d", pid), 2, NULL, "no such device");
    gp_test_process_stop(pid);
}

Test(cli, scopes_and_marks)
{
    pid_t pid = start((struct gp_test_process_options){0});
    expect(run("scope begin step -p %d", pid), 0, NULL, NULL);
    expect(run("scope begin step -p %d", pid), 1, NULL, "already");
    expect(run("scope list -p %d", pid), 0, "step", NULL);
    json_t *top = expect_json(run("scope end step --json -p %d", pid), "gpuprof.scope/1");
    json_t *scope = json_array_get(json_object_get(top, "scopes"), 0);
    cr_assert_eq(json_integer_value(json_object_get(scope, "allocated_peak_bytes")), 123456);
    json_decref(top);
    expect(run("scope end step -p %d", pid), 1, NULL, "no scope of this name");
    expect(run("mark here -p %d", pid), 0, NULL, NULL);
    gp_test_process_stop(pid);
}

Test(cli, silent_and_damaged_processes)
{
    pid_t pid = start((struct gp_test_process_options){.no_drain = true});
    expect(run("stat -p %d", pid), 0, "did not answer", NULL);
    expect(run("reset --peaks -p %d", pid), 1, NULL, "no answer");
    gp_test_process_stop(pid);
    pid = start((struct gp_test_process_options){.no_seal = true});
    expect(run("stat -p %d", pid), 0, "damaged", NULL);
    json_t *top = expect_json(run("stat --json -p %d", pid), "gpuprof.stat/1");
    json_t *process = json_array_get(json_object_get(top, "processes"), 0);
    cr_assert(json_is_null(json_object_get(process, "source")), "unknown is null");
    cr_assert(json_is_null(json_object_get(process, "lost")));
    json_decref(top);
    expect(run("trace -p %d", pid), 3, NULL, "damaged");
    gp_test_process_stop(pid);
}

/* No other test uses these users, so their only processes are those of this test. */
#define USER_A 54321
#define USER_B 54322

Test(cli, choice_without_pids)
{
    if (geteuid() != 0 || access("/proc/1/fd", R_OK) != 0)
        cr_skip("needs root to become another user");
    if (!binary[0])
        find_binary();
    struct result probe = run_as(USER_A, "--version");
    free(probe.out);
    free(probe.err);
    if (probe.status != 0)
        cr_skip("other users cannot reach the build tree");
    expect(run_as(USER_A, "stat"), 3, NULL, "gpuprof run");
    expect(run_as(USER_A, "reset --peaks"), 3, NULL, "gpuprof run");
    pid_t one = start((struct gp_test_process_options){.uid = USER_A});
    expect(run_as(USER_A, "stat"), 0, "device 0", NULL);
    pid_t two = start((struct gp_test_process_options){.uid = USER_A, .comm = "second"});
    struct result r = run_as(USER_A, "stat");
    char number[16];
    snprintf(number, sizeof(number), "%d", (int)two);
    cr_assert(strstr(r.err, number), "%s", r.err);
    expect(r, 2, NULL, "choose with -p PID, or all with --all:");
    json_t *top = expect_json(run_as(USER_A, "stat --all --json"), "gpuprof.stat/1");
    cr_assert_eq(json_array_size(json_object_get(top, "processes")), 2);
    json_decref(top);
    char line[64];
    snprintf(line, sizeof(line), "stat -p %d", (int)one);
    expect(run_as(USER_B, line), 3, NULL, "another user");
    snprintf(line, sizeof(line), "reset --peaks -p %d", (int)one);
    expect(run_as(USER_B, line), 3, NULL, "another user");
    snprintf(line, sizeof(line), "trace -p %d", (int)one);
    expect(run_as(USER_B, line), 3, NULL, "another user");
    gp_test_process_stop(one);
    gp_test_process_stop(two);
}

/* The pid of a shell or of 'gpuprof run' is easily taken for that of the program that it started. */
Test(cli, the_parent_of_a_profiled_process_names_it, .timeout = 60)
{
    char wanted[64];
    pid_t pid = start((struct gp_test_process_options){.devices = 1});
    snprintf(wanted, sizeof(wanted), "use -p %d", (int)pid);
    expect(run("stat -p %d", (int)getpid()), 3, NULL, wanted);
    expect(run("top --once -p %d", (int)getpid()), 3, NULL, wanted);
    pid_t second = start((struct gp_test_process_options){.devices = 1});
    expect(run("stat -p %d", (int)getpid()), 3, NULL, "2 processes that it started are");
    gp_test_process_stop(second);
    gp_test_process_stop(pid);
    expect(run("stat -p %d", (int)getpid()), 3, NULL, "not profiled: 'gpuprof attach");
}
