/* SPDX-License-Identifier: MIT
 *
 * test_agent.c: tests `gpuprof agent` end to end. Profiled programs run on the simulated GPU in
 * private cgroups, and the agent is a process with private pins. The commands and metrics are
 * compared with the simulator's ledgers and an oracle, across all kinds of deaths and across
 * resets. Skips without BPF.
 */
#include "integration/agentcase.h"

TestSuite(agent, .fini = end, .timeout = 180);

/* ---- sums and peaks ---------------------------------------------------------------------------------------------- */

enum { WALKERS = 6, STEPS = 300, BLOCKS = 64 };

struct oracle {
    struct {
        int64_t has, calls, frees;
        int64_t block[BLOCKS], slot[BLOCKS];
        int blocks;
    } of[WALKERS][2];
    int64_t sum[2], peak[2], group_sum[3][2], group_peak[3][2];
};

static void peak_raise(int64_t *peak, int64_t value)
{
    if (value > *peak)
        *peak = value;
}

/* One process changes at a time, and the next one only after the kernel has counted it, so there is
 * one true peak. */
static void oracle_step(struct oracle *oracle, unsigned *seed)
{
    int i = rand_r(seed) % WALKERS, d = rand_r(seed) % 2;
    typeof(oracle->of[0][0]) *of = &oracle->of[i][d];
    int64_t moved;
    if (of->blocks == BLOCKS || (of->blocks && rand_r(seed) % 5 < 2)) {
        int which = rand_r(seed) % of->blocks;
        moved = -of->block[which];
        cr_assert(eq(i64, kid_tell(&kids[i], "f %lld", (long long)of->slot[which]), 0));
        of->block[which] = of->block[--of->blocks];
        of->slot[which] = of->slot[of->blocks];
        of->frees++;
    } else {
        moved = (1 + rand_r(seed) % 64) * 2 * MIB;
        of->slot[of->blocks] = kid_tell(&kids[i], "a %d %lld", d, (long long)moved);
        cr_assert(ge(i64, of->slot[of->blocks], 0));
        of->block[of->blocks++] = moved;
        of->calls++;
    }
    of->has += moved;
    oracle->sum[d] += moved;
    oracle->group_sum[i % 3][d] += moved;
    peak_raise(&oracle->peak[d], oracle->sum[d]);
    peak_raise(&oracle->group_peak[i % 3][d], oracle->group_sum[i % 3][d]);
    settle(&kids[i], d, of->calls, of->frees);
}

static void compare_maps(const struct oracle *oracle, const int64_t allocated[2], const int64_t reserved[2])
{
    for (int d = 0; d < 2; d++) {
        struct gp_map_sum sum = device_sum(d);
        cr_assert(eq(i64, allocated[d], oracle->sum[d]), "the oracle and the simulator disagree");
        cr_assert(eq(i64, sum.allocated_bytes, allocated[d]));
        cr_assert(eq(i64, sum.reserved_bytes, reserved[d]));
        cr_assert(eq(i64, sum.allocated_peak_bytes, oracle->peak[d]), "the machine's peak is not exact");
        for (int g = 0; g < 3; g++) {
            sum = container_sum(groups[g], d);
            cr_assert(eq(i64, sum.allocated_bytes, oracle->group_sum[g][d]));
            cr_assert(eq(i64, sum.allocated_peak_bytes, oracle->group_peak[g][d]));
        }
    }
}

static void compare_commands(const struct oracle *oracle)
{
    json_t *top = top_json(), *stat = stat_json();
    cr_assert(eq(int, json_is_true(json_object_get(json_object_get(top, "agent"), "alive")), 1));
    cr_assert(eq(i64, number(json_object_get(top, "agent"), "pid"), agent.pid));
    for (int d = 0; d < 2; d++) {
        int64_t in_stat = 0;
        const json_t *one = top_device(top, d);
        cr_assert(eq(i64, number(one, "allocated_bytes"), oracle->sum[d]));
        cr_assert(eq(i64, number(one, "allocated_peak_bytes"), oracle->peak[d]));
        for (int g = 0; g < 3; g++) {
            one = top_container(top, groups[g], d);
            cr_assert(one != NULL);
            cr_assert(eq(i64, number(one, "allocated_bytes"), oracle->group_sum[g][d]));
            cr_assert(eq(i64, number(one, "allocated_peak_bytes"), oracle->group_peak[g][d]));
        }
        for (int i = 0; i < WALKERS; i++) {
            int64_t has = stat_number(stat, kids[i].pid, d, "allocated_bytes.all.current");
            cr_assert(eq(i64, has, oracle->of[i][d].has));
            in_stat += has;
        }
        cr_assert(eq(i64, in_stat, oracle->sum[d]));
    }
    json_decref(top);
    json_decref(stat);
}

static void compare_metrics(const struct oracle *oracle)
{
    char uuid[64], *page = agent_get(agent.port, "/metrics");
    cr_assert(page != NULL, "no answer from port %u", agent.port);
    for (int d = 0; d < 2; d++) {
        snprintf(uuid, sizeof uuid, "UUID=\"");
        uuid_text(uuid + 6, d);
        cr_assert(eq(dbl, page_sum(page, "gpuprof_device_memory_allocated_bytes", uuid), (double)oracle->sum[d]));
        cr_assert(eq(dbl, page_sum(page, "gpuprof_device_memory_allocated_peak_bytes", uuid), (double)oracle->peak[d]));
        cr_assert(eq(dbl, page_sum(page, "gpuprof_container_memory_allocated_bytes", uuid), (double)oracle->sum[d]));
    }
    for (int g = 0; g < 3; g++) {
        const char *name = strrchr(place.groups[groups[g]].path, '/');
        char id[200];
        snprintf(id, sizeof id, "%s\"", name);
        cr_assert(eq(dbl, page_sum(page, "gpuprof_container_memory_allocated_bytes", id),
                     (double)(oracle->group_sum[g][0] + oracle->group_sum[g][1])),
                  "%s: %s", id, page);
    }
    free(page);
}

/* A process in the root of the version 2 hierarchy is identified by its memory cgroup of version 1. */
static bool use_v1(void)
{
#ifdef GP_MAP_CGROUP_V1
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[512];
    bool is_root = false;
    while (file && fgets(line, sizeof line, file))
        is_root |= !strcmp(line, "0::/\n");
    if (file)
        fclose(file);
    int group = is_root ? place_group(&place, true) : -1;
    if (group >= 0)
        groups[2] = group;
    return group >= 0;
#else
    return false;
#endif
}

Test(agent, sums_and_exact_peaks_are_those_of_the_ledgers, .init = begin_listening)
{
    static struct oracle oracle;
    int64_t allocated[2] = {0}, reserved[2] = {0};
    unsigned seed = 20260721;
    cr_log_info("the third container is %s", use_v1() ? "a memory cgroup of version 1" : "of version 2");
    for (int i = 0; i < WALKERS; i++)
        walk(groups[i % 3]);
    for (int step = 0; step < STEPS; step++)
        oracle_step(&oracle, &seed);
    for (int i = 0; i < WALKERS; i++)
        ledger_add(&kids[i], allocated, reserved);
    compare_maps(&oracle, allocated, reserved);
    compare_commands(&oracle);
    compare_metrics(&oracle);
    struct gp_map_meta meta;
    cr_assert(agent_meta(&place, &meta) == 0);
    cr_assert(eq(u64, meta.clamped, 0));
    cr_assert(eq(u64, meta.refused_batches, 0));
    cr_assert(eq(u64, meta.map_full, 0));
    cr_assert(eq(u64, meta.old_batches, 0), "a batch was counted twice");
    cr_assert(eq(u64, meta.gap_batches, 0));
}

Test(agent, all_at_once_and_half_of_them_killed, .init = begin)
{
    int64_t allocated[2] = {0}, reserved[2] = {0}, calls = 0;
    for (int i = 0; i < 6; i++)
        walk_with(groups[i % 3], 8 * MIB);
    for (int i = 0; i < 6; i++)
        kid_send(&kids[i], "c %d %lld", i < 3 ? 1000000000 : 20000, (i + 1) * 2 * MIB);
    for (int i = 0; i < 3; i++) {
        usleep(50000);
        kid_end(&kids[i], SIGKILL);
    }
    for (int i = 3; i < 6; i++) {
        cr_assert(eq(i64, kid_answer(&kids[i]), 0));
        settle(&kids[i], 0, 20001, 20000);
        ledger_add(&kids[i], allocated, reserved);
        calls += 20001;
    }
    struct gp_map_sum sum = device_sum(0);
    cr_assert(eq(i64, sum.allocated_bytes, allocated[0]));
    cr_assert(eq(i64, sum.reserved_bytes, reserved[0]));
    cr_assert(eq(u32, sum.processes, 3));
    cr_assert(gt(i64, sum.calls, calls), "calls of ended processes were removed");
    /* Each living process had its block at some time, and no peak can exceed all blocks at once. */
    cr_assert(ge(i64, sum.allocated_peak_bytes, (8 + 12) * MIB));
    cr_assert(le(i64, sum.allocated_peak_bytes, (6 * 8 + 2 + 4 + 6 + 8 + 10 + 12) * MIB));
    for (int g = 0; g < 3; g++) {
        sum = container_sum(groups[g], 0);
        cr_assert(eq(i64, sum.allocated_bytes, 8 * MIB));
        cr_assert(eq(u32, sum.processes, 1));
        cr_assert(eq(u64, share(groups[g]).entries, 1));
    }
}

/* ---- deaths ------------------------------------------------------------------------------------------------------ */

/* How long after its parent knew the dead process's bytes were last visible: 0 if the first read
 * did not see them. */
static double lateness_ms(uint64_t known_ns, int64_t right)
{
    uint64_t wrong_ns = known_ns;
    for (uint64_t at = now_ns(); at < known_ns + 5000000000ull; at = now_ns()) {
        if (device_sum(0).allocated_bytes == right)
            return (double)(wrong_ns - known_ns) / 1e6;
        wrong_ns = at;
        usleep(50);
    }
    return 5000;
}

static uint64_t await_death(struct kid *kid)
{
    siginfo_t info = {0};
    cr_assert(waitid(P_PID, (id_t)kid->pid, &info, WEXITED | WNOWAIT) == 0);
    return now_ns();
}

static uint64_t die_by_signal(struct kid *kid)
{
    kill(kid->pid, SIGKILL);
    return await_death(kid);
}

static uint64_t die_by_exit(struct kid *kid)
{
    kid_send(kid, "e");
    return await_death(kid);
}

static uint64_t die_by_quick_exit(struct kid *kid)
{
    kid_send(kid, "_");
    return await_death(kid);
}

static uint64_t die_by_exec(struct kid *kid)
{
    struct pollfd gone = {.fd = kid->exec_fd, .events = POLLIN};
    kid_send(kid, "x");
    cr_assert(eq(int, poll(&gone, 1, 20000), 1));
    return now_ns();
}

static uint64_t die_by_cgroup(struct kid *kid)
{
    char path[200];
    snprintf(path, sizeof path, "%s/cgroup.kill", place.groups[kid->group].path);
    FILE *file = fopen(path, "w");
    bool is_written = file && fputs("1", file) >= 0;
    if (!file || fclose(file) != 0 || !is_written)
        return 0;
    return await_death(kid);
}

static uint64_t die_by_memory(struct kid *kid)
{
    char path[200];
    int group = place_group(&place, true);
    if (group < 0)
        return 0;
    snprintf(path, sizeof path, "%s/memory.limit_in_bytes", place.groups[group].path);
    FILE *file = fopen(path, "w");
    bool is_set = file && fputs("33554432", file) >= 0;
    if (!file || fclose(file) != 0 || !is_set)
        return 0;
    snprintf(path, sizeof path, "%s/cgroup.procs", place.groups[group].path);
    file = fopen(path, "w");
    bool is_moved = file && fprintf(file, "%d", (int)kid->pid) > 0;
    if (!file || fclose(file) != 0 || !is_moved)
        return 0;
    kid_send(kid, "w");
    uint64_t at = await_death(kid);
    siginfo_t info = {0};
    waitid(P_PID, (id_t)kid->pid, &info, WEXITED | WNOWAIT);
    cr_assert(eq(int, info.si_code, CLD_KILLED));
    cr_assert(eq(int, info.si_status, SIGKILL));
    return at;
}

/* Five deaths of one kind. Bytes visible 10 ms after the parent knew are an error. With exec the
 * end of the pipe comes before the kernel's own mark, and a busy machine may stop the process
 * between the two, so the best of five counts. */
static bool deaths(const char *what, uint64_t (*die)(struct kid *kid), bool is_exec)
{
    double worst = 0, best = 1e9;
    for (int i = 0; i < 5; i++) {
        kid_count = 1;
        struct kid *kid = walk_with(groups[1], 64 * MIB);
        pid_t pid = kid->pid;
        struct gp_map_process row;
        uint64_t known = die(kid);
        if (known == 0)
            return false;
        double late = lateness_ms(known, 2 * MIB);
        worst = late > worst ? late : worst;
        best = late < best ? late : best;
        cr_assert(not(row_of(pid, 0, &row)), "%s: its row is there", what);
        cr_assert(eq(u32, device_sum(0).processes, 1));
        cr_assert(eq(i64, container_sum(groups[1], 0).allocated_bytes, 0));
        cr_assert(eq(u32, container_sum(groups[1], 0).processes, 0));
        cr_assert(eq(u64, share(groups[1]).entries, 0));
        if (is_exec) { /* the new program is counted from its start */
            cr_assert(eq(i64, kid_answer(kid), 0));
            cr_assert(ge(i64, kid_tell(kid, "a 0 %lld", 4 * MIB), 0));
            settle(kid, 0, 1, 0);
            cr_assert(eq(i64, device_sum(0).allocated_bytes, 6 * MIB));
        }
        kid_end(kid, SIGKILL);
        cr_assert(eq(i64, device_sum(0).allocated_bytes, 2 * MIB));
    }
    cr_log_info("%s: seen after its parent knew for %.3f ms at worst, %.3f at best", what, worst, best);
    cr_assert(le(dbl, is_exec ? best : worst, 10.0), "%s: in the sums %.1f ms after its parent knew", what, worst);
    return true;
}

static void begin_deaths(void)
{
    begin();
    walk_with(groups[0], 2 * MIB);
}

Test(agent, a_killed_process_is_removed_within_10_ms, .init = begin_deaths)
{
    deaths("kill -9", die_by_signal, false);
}

Test(agent, one_that_exits_is_removed_within_10_ms, .init = begin_deaths)
{
    deaths("exit", die_by_exit, false);
    deaths("_exit", die_by_quick_exit, false);
}

Test(agent, one_that_executes_is_removed_within_10_ms, .init = begin_deaths)
{
    deaths("exec", die_by_exec, true);
}

Test(agent, one_killed_with_its_cgroup_is_removed_within_10_ms, .init = begin_deaths)
{
    if (!deaths("cgroup.kill", die_by_cgroup, false))
        cr_skip_test("no cgroup.kill");
}

Test(agent, one_killed_out_of_memory_is_removed_within_10_ms, .init = begin_deaths)
{
    if (!deaths("OOM kill", die_by_memory, false))
        cr_skip_test("no memory cgroup whose limit can be set");
}

/* ---- resets ------------------------------------------------------------------------------------------------------ */

/* Runs as a user that may use BPF but read no session, so other programs of this machine keep their
 * peaks. */
static void reset_apart(const char *const *words)
{
    char path[128];
    snprintf(path, sizeof path, "%s/reset", place.pins);
    cr_assert(eq(int, chmod(path, 0666), 0));
    /* dac_read_search: the path to the pins may be closed to users; sessions stay closed without
     * sys_ptrace. */
    const char *argv[24] = {"/usr/bin/env",
                            "setpriv",
                            "--reuid=65534",
                            "--regid=65534",
                            "--clear-groups",
                            "--inh-caps=-all,+bpf,+dac_read_search",
                            "--ambient-caps=-all,+bpf,+dac_read_search",
                            path_command(),
                            "reset",
                            "--pins",
                            place.pins};
    for (int count = 11; *words && count < 23; words++)
        argv[count++] = *words;
    struct spawn_result result;
    cr_assert(spawn_run(&(struct spawn_options){.argv = argv}, &result) == 0);
    cr_assert(result.status == 0, "%s: %s%s", spawn_status_text(&result), result.out, result.err);
    spawn_result_free(&result);
}

static void expect_peaks(int64_t device0, int64_t device1, int64_t container0)
{
    json_t *top = top_json();
    cr_assert(eq(i64, number(top_device(top, 0), "allocated_peak_bytes"), device0));
    cr_assert(eq(i64, number(top_device(top, 1), "allocated_peak_bytes"), device1));
    cr_assert(eq(i64, number(top_container(top, groups[0], 0), "allocated_peak_bytes"), container0));
    json_decref(top);
}

/* GPU 0 had 40 MiB at its peak and has 20; GPU 1 had 12 and has 4. */
static void begin_reset(void)
{
    begin();
    if (!has_setpriv())
        cr_skip_test("no setpriv");
    struct kid *a = walk(groups[0]), *b = walk(groups[1]);
    long long big = kid_tell(a, "a 0 %lld", 20 * MIB);
    settle(a, 0, 1, 0);
    kid_tell(b, "a 0 %lld", 20 * MIB);
    settle(b, 0, 1, 0);
    kid_tell(a, "f %lld", big);
    settle(a, 0, 1, 1);
    big = kid_tell(b, "a 1 %lld", 12 * MIB);
    settle(b, 1, 1, 0);
    kid_tell(b, "f %lld", big);
    settle(b, 1, 1, 1);
    kid_tell(b, "a 1 %lld", 4 * MIB);
    settle(b, 1, 2, 1);
    expect_peaks(40 * MIB, 12 * MIB, 20 * MIB);
}

/* Peaks are exact again from the first change after the reset. */
static void move_after_reset(int64_t device1)
{
    struct kid *a = &kids[0], *b = &kids[1];
    long long block = kid_tell(a, "a 0 %lld", 6 * MIB);
    settle(a, 0, 2, 1);
    expect_peaks(26 * MIB, device1, 6 * MIB);
    kid_tell(a, "f %lld", block);
    settle(a, 0, 2, 2);
    kid_tell(b, "a 0 %lld", 2 * MIB);
    settle(b, 0, 2, 0);
    expect_peaks(26 * MIB, device1, 6 * MIB);
    kid_tell(b, "a 0 %lld", 16 * MIB);
    settle(b, 0, 3, 0);
    expect_peaks(38 * MIB, device1, 6 * MIB);
}

Test(agent, a_reset_of_all_restarts_every_peak_exactly, .init = begin_reset)
{
    reset_apart((const char *[]){"--peaks", "--all", NULL});
    expect_peaks(20 * MIB, 4 * MIB, 0);
    move_after_reset(4 * MIB);
}

Test(agent, a_reset_of_one_device_restarts_its_peak_exactly, .init = begin_reset)
{
    reset_apart((const char *[]){"--peaks", "--all", "--device", "0", NULL});
    expect_peaks(20 * MIB, 12 * MIB, 0);
    move_after_reset(12 * MIB);
}
