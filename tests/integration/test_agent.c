/* SPDX-License-Identifier: MIT
 *
 * test_agent.c: `gpuprof agent` from end to end: profiled programs on the simulated GPU in cgroups of the test's own,
 * the agent as a process with pins of its own, and what the commands and the metrics then say, against the simulator's
 * ledgers and an oracle.  Skips where BPF cannot be had.
 */
#define _GNU_SOURCE
#include "lib/agent.h"
#include "lib/ledger.h"
#include "lib/paths.h"
#include <bpf/bpf.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB    (1ll << 20)
#define GIB    (1ll << 30)
#define KIDS   8
#define OTHERS 65534
#define SIM    "devices=2,memory=64GiB"

static struct place place;
static struct agent agent;
static struct kid kids[KIDS];
static int kid_count, groups[4];
static int process_fd = -1, container_fd = -1, device_fd = -1, share_fd = -1;
static uint8_t uuids[2][16]; /* of the simulated GPUs, as the first process said */
static char why[1024];

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static bool ended_with(int status, int code)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

static void open_maps(void)
{
    process_fd = agent_map(&place, "process_device");
    container_fd = agent_map(&place, "container_device");
    device_fd = agent_map(&place, "device");
    share_fd = agent_map(&place, "container");
    cr_assert(process_fd >= 0 && container_fd >= 0 && device_fd >= 0 && share_fd >= 0, "the pins are not there");
}

static void close_maps(void)
{
    int fds[] = {process_fd, container_fd, device_fd, share_fd};
    for (int i = 0; i < 4; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    process_fd = container_fd = device_fd = share_fd = -1;
}

static void start_agent(const struct agent_options *options)
{
    int status;
    int error = agent_start(&agent, &place, options, &status, why, sizeof why);
    if (error == -ECHILD && ended_with(status, 77))
        cr_skip_test("%s", why);
    cr_assert(error == 0, "%s", why);
    open_maps();
}

static void make_place(void)
{
    int error = place_make(&place, why, sizeof why);
    if (error == -EPERM || error == -ENOTSUP)
        cr_skip_test("%s", why);
    cr_assert(error == 0, "%s", why);
    for (int i = 0; i < 3; i++)
        groups[i] = place_group(&place, false);
    cr_assert(groups[0] >= 0 && groups[1] >= 0 && groups[2] >= 0);
}

static void begin_with(const char *const *more)
{
    make_place();
    start_agent(&(struct agent_options){.more = more});
}

static void begin(void)
{
    begin_with(NULL);
}

static void end(void)
{
    for (int i = 0; i < kid_count; i++)
        kid_end(&kids[i], SIGKILL);
    close_maps();
    if (agent.pid > 0)
        agent_stop(&agent, SIGTERM);
    if (place_free(&place, why, sizeof why) != 0)
        cr_log_error("%s", why);
}

TestSuite(agent, .fini = end, .timeout = 180);

static struct kid *walk(int group)
{
    static char program[4096];
    if (!program[0])
        snprintf(program, sizeof program, "%s", path_program("agent_walk"));
    struct kid *kid = &kids[kid_count++];
    cr_assert(kid_start(kid, &place, &(struct kid_options){.file = program, .group = group, .sim = SIM}) == 0,
              "the program did not start");
    return kid;
}

/* ---- what the maps say ------------------------------------------------------------------------------------------- */

static bool row_of(pid_t pid, uint32_t device, struct gp_map_process *row)
{
    struct gp_map_process_key key = {.tgid = (uint32_t)pid, .device = device};
    return bpf_map_lookup_elem(process_fd, &key, row) == 0;
}

static struct gp_map_sum device_sum(int device)
{
    struct gp_map_device_key key;
    struct gp_map_sum sum = {0};
    memcpy(key.uuid, uuids[device], 16);
    bpf_map_lookup_elem(device_fd, &key, &sum);
    return sum;
}

static bool container_row(int group, int device, struct gp_map_sum *sum)
{
    struct gp_map_container_key key = {.cgroup_id = place.groups[group].id};
    memcpy(key.uuid, uuids[device], 16);
    *sum = (struct gp_map_sum){0};
    return bpf_map_lookup_elem(container_fd, &key, sum) == 0;
}

static struct gp_map_sum container_sum(int group, int device)
{
    struct gp_map_sum sum;
    container_row(group, device, &sum);
    return sum;
}

static struct gp_map_container share(int group)
{
    struct gp_map_container row = {0};
    bpf_map_lookup_elem(share_fd, &place.groups[group].id, &row);
    return row;
}

/* Until the kernel has heard of that many calls of the process, and of which GPU it is. */
static void settle(const struct kid *kid, int device, long long calls, long long frees)
{
    static const uint8_t unknown[16];
    struct gp_map_process row = {0};
    for (uint64_t until = now_ns() + 20000000000ull; now_ns() < until; usleep(200)) {
        if (row_of(kid->pid, (uint32_t)device, &row) && row.calls == calls && row.frees == frees &&
            memcmp(row.uuid, unknown, 16) != 0) {
            memcpy(uuids[device], row.uuid, 16);
            return;
        }
    }
    cr_assert(false, "pid %d, GPU %d: %lld calls and %lld frees were made, the kernel knows of %lld and %lld",
              (int)kid->pid, device, calls, frees, (long long)row.calls, (long long)row.frees);
}

/* One allocation of the first device's, known to the kernel. */
static struct kid *walk_with(int group, long long bytes)
{
    struct kid *kid = walk(group);
    cr_assert(ge(i64, kid_tell(kid, "a 0 %lld", bytes), 0));
    settle(kid, 0, 1, 0);
    return kid;
}

/* ---- what the commands say --------------------------------------------------------------------------------------- */

static json_t *command_json(struct spawn_result *result, const char *schema)
{
    json_error_t error;
    cr_assert(result->status == 0, "%s: %s", spawn_status_text(result), result->err);
    json_t *top = json_loads(result->out, JSON_REJECT_DUPLICATES, &error);
    cr_assert(top != NULL, "line %d: %s\n%s", error.line, error.text, result->out);
    cr_assert_str_eq(json_string_value(json_object_get(top, "schema")), schema);
    spawn_result_free(result);
    return top;
}

static json_t *top_json(void)
{
    struct spawn_result result;
    cr_assert(spawn_command(&result, "top", "--system", "--once", "--json", "--pins", place.pins, NULL) == 0);
    return command_json(&result, "gpuprof.top/1");
}

static json_t *stat_json(void)
{
    struct spawn_result result;
    cr_assert(spawn_command(&result, "stat", "--all", "--json", "--pins", place.pins, NULL) == 0);
    return command_json(&result, "gpuprof.stat/1");
}

static void uuid_text(char out[48], int device)
{
    const uint8_t *u = uuids[device];
    snprintf(out, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
             u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

static int64_t number(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    cr_assert(eq(int, json_is_integer(value), 1), "%s is no number", key);
    return json_integer_value(value);
}

static const json_t *top_device(const json_t *top, int device)
{
    char uuid[48];
    size_t i;
    json_t *one;
    uuid_text(uuid, device);
    json_array_foreach(json_object_get(top, "devices"), i, one)
    {
        const char *text = json_string_value(json_object_get(one, "uuid"));
        if (text && !strcmp(text, uuid))
            return one;
    }
    cr_assert(false, "top --system knows no %s", uuid);
    return NULL;
}

static const json_t *top_container(const json_t *top, int group, int device)
{
    int64_t index = number(top_device(top, device), "device");
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(top, "containers"), i, one)
    {
        if (json_integer_value(json_object_get(one, "cgroup_id")) == (json_int_t)place.groups[group].id &&
            json_integer_value(json_object_get(one, "device")) == index)
            return one;
    }
    return NULL;
}

static const json_t *stat_process(const json_t *stat, pid_t pid)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(stat, "processes"), i, one)
    {
        if (json_integer_value(json_object_get(one, "pid")) == pid)
            return one;
    }
    return NULL;
}

static int64_t stat_number(const json_t *stat, pid_t pid, int device, const char *key)
{
    const json_t *process = stat_process(stat, pid);
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(process, "devices"), i, one)
    {
        if (json_integer_value(json_object_get(one, "device")) == device)
            return number(json_object_get(one, "stats"), key);
    }
    return 0;
}

static void ledger_add(const struct kid *kid, int64_t allocated[2], int64_t reserved[2])
{
    char path[128];
    snprintf(path, sizeof path, "%s/ledger.%d", place.dir, (int)kid->pid);
    cr_assert(eq(i64, kid_tell((struct kid *)kid, "l %s", path), 0));
    json_t *ledger = json_load_file(path, 0, NULL);
    cr_assert(ledger != NULL);
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(ledger, "devices"), i, one)
    {
        allocated[i] += json_at(one, "allocated_bytes/current", 0);
        reserved[i] += json_at(one, "reserved_bytes/current", 0);
    }
    json_decref(ledger);
    unlink(path);
}

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

/* One process moves at a time, and the next one only when the kernel has heard of it: so there is one true peak. */
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
        cr_assert(eq(i64, sum.allocated_peak_bytes, oracle->peak[d]), "the exact peak of the machine");
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

/* Samples of one family whose labels hold the text: their sum. */
static double page_sum(const char *page, const char *family, const char *text)
{
    double sum = 0;
    size_t length = strlen(family);
    for (const char *line = page; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *end = strchr(line, '\n'), *space;
        size_t bytes = end ? (size_t)(end - line) : strlen(line);
        if (strncmp(line, family, length) != 0 || line[length] != '{' || !memmem(line, bytes, text, strlen(text)))
            continue;
        space = memrchr(line, ' ', bytes);
        sum += space ? atof(space) : 0;
    }
    return sum;
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
                     (double)(oracle->group_sum[g][0] + oracle->group_sum[g][1])));
    }
    free(page);
}

static void begin_listening(void)
{
    begin_with((const char *[]){"--listen", "127.0.0.1:0", NULL});
}

/* A process in the root of the version 2 hierarchy is told apart by its memory cgroup of version 1. */
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
    cr_assert(gt(i64, sum.calls, calls), "those of the dead stay in it");
    /* Each of the living had its churned block at some time; nobody can have had more than all at once. */
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

/* How late the last look was that still saw the dead one's bytes, after its parent knew: 0 if the first did not. */
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

/* Five deaths of a kind.  Any look that sees the dead 10 ms after its parent knew is an error, but for exec: there the
 * pipe's end is seen before the kernel's own mark, and a busy machine may stop the process between the two; so the best
 * of five counts. */
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
        if (is_exec) { /* the new image is counted anew */
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

Test(agent, a_killed_process_is_gone_within_10_ms, .init = begin_deaths)
{
    deaths("kill -9", die_by_signal, false);
}

Test(agent, one_that_exits_is_gone_within_10_ms, .init = begin_deaths)
{
    deaths("exit", die_by_exit, false);
    deaths("_exit", die_by_quick_exit, false);
}

Test(agent, one_that_executes_is_gone_within_10_ms, .init = begin_deaths)
{
    deaths("exec", die_by_exec, true);
}

Test(agent, one_killed_with_its_cgroup_is_gone_within_10_ms, .init = begin_deaths)
{
    if (!deaths("cgroup.kill", die_by_cgroup, false))
        cr_skip_test("no cgroup.kill");
}

Test(agent, one_killed_for_want_of_memory_is_gone_within_10_ms, .init = begin_deaths)
{
    if (!deaths("OOM kill", die_by_memory, false))
        cr_skip_test("no memory cgroup whose limit can be set");
}

/* ---- losses ------------------------------------------------------------------------------------------------------ */

static char *command_words(const char *first, ...)
{
    const char *argv[16] = {path_command(), first};
    int count = 2;
    va_list more;
    va_start(more, first);
    while (count < 15 && (argv[count] = va_arg(more, const char *)) != NULL)
        count++;
    va_end(more);
    argv[count] = NULL;
    struct spawn_result result;
    char *text = NULL;
    cr_assert(spawn_run(&(struct spawn_options){.argv = argv}, &result) == 0);
    cr_assert(asprintf(&text, "%s%s", result.out, result.err) >= 0);
    spawn_result_free(&result);
    return text;
}

static void begin_tiny(void)
{
    begin_with((const char *[]){"--listen", "127.0.0.1:0", "--max-processes", "4", "--max-containers", "2", NULL});
}

static void wait_full(uint64_t above, struct gp_map_meta *meta)
{
    for (int i = 0; i < 2000 && agent_meta(&place, meta) == 0 && meta->map_full <= above; i++)
        usleep(10000);
    cr_assert(gt(u64, meta->map_full, above));
}

Test(agent, full_tables_are_exact_where_there_is_room_and_say_what_is_not, .init = begin_tiny)
{
    struct gp_map_meta meta;
    char said[64];
    for (int i = 0; i < 4; i++)
        walk_with(groups[i % 2], (i + 1) * 2 * MIB);
    cr_assert(agent_meta(&place, &meta) == 0);
    cr_assert(eq(u64, meta.map_full, 0));
    struct kid *fifth = walk(groups[2]);
    cr_assert(ge(i64, kid_tell(fifth, "a 0 %lld", 32 * MIB), 0));
    wait_full(0, &meta);
    cr_assert(eq(i64, device_sum(0).allocated_bytes, 20 * MIB), "those who have a row");
    cr_assert(eq(i64, container_sum(groups[0], 0).allocated_bytes, 8 * MIB));
    cr_assert(eq(i64, container_sum(groups[1], 0).allocated_bytes, 12 * MIB));
    cr_assert(gt(u64, share(groups[2]).map_full + (share(groups[2]).batches == 0), 0),
              "its container knows, or has no row");
    /* It sleeps now, so nothing moves the number while it is printed. */
    usleep(300000);
    cr_assert(agent_meta(&place, &meta) == 0);
    json_t *top = top_json();
    cr_assert(eq(i64, number(json_object_get(top, "agent"), "map_full"), (int64_t)meta.map_full));
    cr_assert(eq(i64, number(top_device(top, 0), "allocated_bytes"), 20 * MIB));
    json_decref(top);
    snprintf(said, sizeof said, "%llu updates without room", (unsigned long long)meta.map_full);
    char *words = command_words("top", "--system", "--pins", place.pins, NULL);
    cr_assert(strstr(words, said) != NULL, "no '%s' in: %s", said, words);
    free(words);
    char *page = agent_get(agent.port, "/metrics");
    cr_assert(page != NULL);
    cr_assert(eq(dbl, agent_sample(page, "gpuprof_map_updates_refused_total"), (double)meta.map_full));
    free(page);
    /* Room comes free: who waited is in with its next batch. */
    kid_end(&kids[0], SIGKILL);
    kid_end(&kids[2], SIGKILL);
    cr_assert(ge(i64, kid_tell(fifth, "a 0 %lld", 2 * MIB), 0));
    settle(fifth, 0, 2, 0);
    cr_assert(eq(i64, device_sum(0).allocated_bytes, (12 + 34) * MIB));
}

Test(agent, stat_says_what_found_no_room, .init = begin_tiny)
{
    struct gp_map_meta meta;
    char said[64];
    for (int i = 0; i < 4; i++)
        walk_with(groups[0], 2 * MIB);
    kid_tell(walk(groups[1]), "a 0 %lld", 2 * MIB);
    wait_full(0, &meta);
    usleep(300000);
    cr_assert(agent_meta(&place, &meta) == 0);
    snprintf(said, sizeof said, "%llu updates without room", (unsigned long long)meta.map_full);
    char *words = command_words("stat", "--all", "--pins", place.pins, NULL);
    cr_assert(strstr(words, said) != NULL, "no '%s' in: %s", said, words);
    free(words);
}

static void begin_small_ring(void)
{
    begin_with((const char *[]){"--listen", "127.0.0.1:0", "--ring", "64KiB", NULL});
}

/* A ring of a thousand events that nobody reads: the agent is stopped for a moment. */
Test(agent, a_full_ring_loses_events_and_no_byte, .init = begin_small_ring)
{
    struct gp_map_meta meta;
    struct kid *kid = walk_with(groups[0], 4 * MIB);
    kill(agent.pid, SIGSTOP);
    long long answer = kid_tell(kid, "c 5000 %lld", 2 * MIB);
    kill(agent.pid, SIGCONT);
    cr_assert(eq(i64, answer, 0));
    settle(kid, 0, 5001, 5000);
    struct gp_map_sum sum = device_sum(0);
    cr_assert(eq(i64, sum.allocated_bytes, 4 * MIB));
    cr_assert(eq(i64, sum.allocated_peak_bytes, 6 * MIB), "the peak lost nothing either");
    cr_assert(eq(i64, sum.calls, 5001));
    usleep(300000);
    cr_assert(agent_meta(&place, &meta) == 0);
    cr_assert(gt(u64, meta.ring_dropped, 0));
    cr_assert(eq(u64, share(groups[0]).ring_dropped, meta.ring_dropped));
    cr_assert(eq(u64, meta.events + meta.lost, 10001), "each event came or is counted as lost before");
    json_t *top = top_json();
    cr_assert(eq(i64, number(json_object_get(top, "agent"), "ring_dropped"), (int64_t)meta.ring_dropped));
    json_decref(top);
    char *page = agent_get(agent.port, "/metrics");
    cr_assert(page != NULL);
    cr_assert(
        eq(dbl, agent_sample(page, "gpuprof_events_dropped_total{reason=\"ring_full\"}"), (double)meta.ring_dropped));
    free(page);
}

/* ---- hostile ----------------------------------------------------------------------------------------------------- */

static char fire_file[160];

/* The probe in another program, which is armed like a library. */
static void begin_firing(const char *const *more)
{
    const char *all[16] = {"--library", fire_file};
    make_place();
    const char *copy = place_copy(&place, path_program("probe_fire"), "probe_fire");
    cr_assert(copy != NULL);
    snprintf(fire_file, sizeof fire_file, "%s", copy);
    for (int i = 0; more && more[i]; i++)
        all[2 + i] = more[i];
    start_agent(&(struct agent_options){.more = all});
}

static void begin_hostile(void)
{
    begin_firing(NULL);
}

static struct kid *firer(int group, int uid)
{
    struct kid *kid = &kids[kid_count++];
    cr_assert(kid_start(kid, &place, &(struct kid_options){.file = fire_file, .group = group, .library = ""}) == 0);
    if (uid)
        cr_assert(eq(i64, kid_tell(kid, "u %d", uid), 0));
    return kid;
}

/* m takes one byte that is repeated as the UUID; no GPU of the simulator is called so. */
#define FORGED 0x77

static int64_t forged_bytes(void)
{
    struct gp_map_device_key key;
    struct gp_map_sum sum = {0};
    memset(key.uuid, FORGED, 16);
    bpf_map_lookup_elem(device_fd, &key, &sum);
    return sum.allocated_bytes;
}

Test(agent, a_liar_of_another_user_moves_its_own_containers_numbers_alone, .init = begin_hostile)
{
    struct kid *victim = walk_with(groups[0], 16 * MIB);
    struct gp_map_sum before = container_sum(groups[0], 0), device = device_sum(0), after;
    struct gp_map_process row, row_after;
    cr_assert(row_of(victim->pid, 0, &row));
    struct kid *liar = firer(groups[1], OTHERS);
    for (int how = 0; how <= 11; how++)
        kid_tell(liar, "h %d", how);
    kid_tell(liar, "m 0 %d %lld %lld %lld %lld 5 %lld", FORGED, 1ll << 62, 1ll << 62, 1ll << 62, 1ll << 62, 8 * GIB);
    cr_assert(eq(i64, forged_bytes(), 8 * GIB), "cut to what the device is said to have");
    kid_tell(liar, "m 0 %d %lld %lld %lld %lld 5 -7", FORGED, 1ll << 62, 1ll << 62, 1ll << 62, 1ll << 62);
    cr_assert(eq(i64, forged_bytes(), GP_MAPS_BYTES_LIMIT));
    kid_tell(liar, "m 0 %d %lld 0 %lld 0 -5 %lld", FORGED, -(1ll << 40), -(1ll << 62), 8 * GIB);
    cr_assert(eq(i64, forged_bytes(), 0));
    kid_tell(liar, "r 20000");
    kid_tell(liar, "o");
    after = container_sum(groups[0], 0);
    cr_assert(memcmp(&before, &after, sizeof before) == 0, "the victim's container moved");
    after = device_sum(0);
    cr_assert(memcmp(&device, &after, sizeof device) == 0, "a device moved that the liar did not name");
    cr_assert(row_of(victim->pid, 0, &row_after));
    cr_assert(memcmp(&row, &row_after, sizeof row) == 0, "the victim's row moved");
    struct gp_map_process_key key = {.tgid = (uint32_t)liar->pid};
    cr_assert(bpf_map_lookup_elem(process_fd, &key, &row) == 0);
    cr_assert(eq(u32, row.uid, OTHERS), "who it is, is the kernel's word");
    cr_assert(eq(u64, row.cgroup_id, place.groups[groups[1]].id));
    cr_assert(ge(u64, share(groups[1]).refused, 12));
    cr_assert(eq(u64, share(groups[0]).refused, 0));
    kid_end(liar, SIGKILL);
    cr_assert(eq(i64, forged_bytes(), 0));
    cr_assert(agent_heartbeat_age_ns(&place) < 5000000000ull);
}

/* One that claims the victims' very GPU: the device's sum holds the claim while it lives, and not a byte after. */
Test(agent, a_liar_about_a_real_gpu_leaves_no_trace_in_its_sum, .init = begin_hostile)
{
    walk_with(groups[0], 16 * MIB);
    struct gp_map_sum before = container_sum(groups[0], 0), after;
    struct kid *liar = firer(groups[1], OTHERS);
    for (int i = 0; i < 200; i++)
        kid_tell(liar, "m %d %d %lld %lld 1 1 1 %lld", i % 64, i % 255 + 1, i * MIB, i * MIB, GIB);
    kid_tell(liar, "r 5000");
    kid_tell(liar, "x");
    kid_end(liar, SIGKILL);
    after = container_sum(groups[0], 0);
    cr_assert(memcmp(&before, &after, sizeof before) == 0, "the victim's container moved");
    cr_assert(eq(i64, device_sum(0).allocated_bytes, 16 * MIB));
    cr_assert(eq(u64, share(groups[1]).entries, 0));
}

Test(agent, a_flood_costs_the_quiet_tenants_nothing, .init = begin_hostile)
{
    struct kid *quiet[2] = {walk_with(groups[0], 2 * MIB), walk_with(groups[2], 2 * MIB)};
    struct kid *flood = firer(groups[1], OTHERS);
    uint64_t before[2] = {share(groups[0]).events, share(groups[2]).events};
    kid_send(flood, "e 256 20000"); /* five million events as fast as they go */
    int rounds = 0;
    for (; rounds < 40; rounds++) {
        for (int i = 0; i < 2; i++)
            cr_assert(eq(i64, kid_tell(quiet[i], "c 10 %lld", 2 * MIB), 0));
        usleep(10000);
    }
    cr_assert(eq(i64, kid_answer(flood), 0));
    for (int i = 0; i < 2; i++) {
        settle(quiet[i], 0, 1 + rounds * 10, rounds * 10);
        int group = groups[2 * i];
        cr_assert(eq(i64, container_sum(group, 0).allocated_bytes, 2 * MIB));
        cr_assert(eq(u64, share(group).ring_dropped, 0), "a quiet tenant lost events");
        cr_assert(eq(u64, share(group).events - before[i], (uint64_t)rounds * 20));
    }
    cr_assert(gt(u64, share(groups[1]).ring_dropped, 0), "the flood did not flood");
    cr_assert(agent_heartbeat_age_ns(&place) < 5000000000ull, "the agent does not keep up with its heart");
}

static void begin_many(void)
{
    begin_firing((const char *[]){"--listen", "127.0.0.1:0", "--metrics-series", "200", "--metrics-per-process=pid",
                                  "--max-processes", "256", NULL});
}

static unsigned map_rows(int fd, size_t key_bytes)
{
    char key[64], next[64];
    unsigned rows = 0;
    for (void *from = NULL; rows < 1000000 && bpf_map_get_next_key(fd, from, next) == 0; rows++) {
        memcpy(key, next, key_bytes);
        from = key;
    }
    return rows;
}

static double page_number(const char *family)
{
    char *page = agent_get(agent.port, "/metrics");
    cr_assert(page != NULL);
    double value = agent_sample(page, family);
    free(page);
    return value;
}

Test(agent, many_short_processes_take_no_room, .init = begin_many, .timeout = 900)
{
    const char *many = getenv("GPUPROF_TEST_MANY");
    long times = many ? atol(many) : 2000;
    struct kid *kid = firer(groups[0], 0);
    double series = 0, memory = page_number("process_resident_memory_bytes"),
           descriptors = page_number("process_open_fds");
    kid_send(kid, "f %ld", times);
    struct pollfd answer = {.fd = fileno(kid->from), .events = POLLIN};
    while (poll(&answer, 1, 50) == 0) {
        double now = page_number("gpuprof_exporter_series");
        series = now > series ? now : series;
    }
    cr_assert(eq(i64, kid_answer(kid), 0));
    struct gp_map_meta meta;
    cr_assert(agent_meta(&place, &meta) == 0);
    cr_assert(eq(u64, meta.map_full, 0));
    cr_assert(ge(u64, meta.gone, (uint64_t)times));
    cr_assert(eq(u64, share(groups[0]).entries, 0));
    cr_assert(eq(uint, map_rows(process_fd, sizeof(struct gp_map_process_key)), 0));
    cr_assert(eq(uint, map_rows(container_fd, sizeof(struct gp_map_container_key)), 1));
    cr_assert(le(dbl, series, 200));
    double grown = page_number("process_resident_memory_bytes") - memory;
    double more = page_number("process_open_fds") - descriptors;
    cr_log_info("%ld processes: at most %.0f series, the agent grew by %.0f KiB and %.0f descriptors", times, series,
                grown / 1024, more);
    cr_assert(lt(dbl, grown, 16.0 * MIB));
    cr_assert(lt(dbl, more, 64));
}

/* ---- agents ------------------------------------------------------------------------------------------------------ */

Test(agent, a_second_one_names_the_first_and_changes_nothing, .init = begin)
{
    struct agent second;
    struct kid *kid = walk_with(groups[0], 2 * MIB);
    int status;
    int error = agent_start(&second, &place, &(struct agent_options){0}, &status, why, sizeof why);
    cr_assert(eq(int, error, -ECHILD));
    cr_assert(ended_with(status, 1), "%d: %s", status, why);
    char first[32];
    snprintf(first, sizeof first, "pid %d", (int)agent.pid);
    cr_assert(strstr(why, first) != NULL, "no '%s' in: %s", first, why);
    kid_tell(kid, "a 0 %lld", 2 * MIB);
    settle(kid, 0, 2, 0);
    cr_assert(eq(i64, device_sum(0).allocated_bytes, 4 * MIB), "counted once");
    cr_assert(eq(u64, share(groups[0]).entries, 1));
    cr_assert(eq(int, agent_semaphore(kid->pid, place.library), 1));
}

Test(agent, a_clean_end_leaves_nothing, .init = begin)
{
    struct agent_ids ids;
    struct kid *kid = walk_with(groups[0], 2 * MIB);
    agent_ids_read(&ids, agent.pid);
    cr_assert(gt(uint, ids.program_count, 1));
    cr_assert(gt(uint, ids.map_count, 5));
    cr_assert(eq(int, agent_semaphore(kid->pid, place.library), 1));
    close_maps();
    int status = agent_stop(&agent, SIGTERM);
    cr_assert(ended_with(status, 0), "%d", status);
    cr_assert(ne(int, access(place.pins, F_OK), 0), "the pins are there");
    cr_assert(eq(uint, agent_ids_left(&ids, false), 0), "programs, links or maps are there");
    cr_assert(eq(int, agent_semaphore(kid->pid, place.library), 0));
    cr_assert(ge(i64, kid_tell(kid, "a 0 %lld", 2 * MIB), 0), "the program goes on");
}

/* ---- rights ------------------------------------------------------------------------------------------------------ */

static void expect_impossible(const char *const *before)
{
    int status = -1;
    int error = agent_start(&agent, &place, &(struct agent_options){.before = before}, &status, why, sizeof why);
    cr_assert(eq(int, error, -ECHILD), "it runs");
    cr_assert(ended_with(status, 77), "%d: %s", status, why);
    cr_assert(strstr(why, "gpuprof: agent: ") != NULL && strstr(why, "gpuprof doctor") != NULL, "%s", why);
}

static bool has_setpriv(void)
{
    return system("setpriv --version >/dev/null 2>&1") == 0;
}

Test(agent, without_rights_it_says_so, .init = make_place)
{
    if (!has_setpriv())
        cr_skip_test("no setpriv");
    expect_impossible((const char *[]){"setpriv", "--bounding-set=-all", "--inh-caps=-all", NULL});
    cr_assert(ne(int, access(place.pins, F_OK), 0), "it left pins");
}

Test(agent, as_another_user_it_says_so, .init = make_place)
{
    char command[4200];
    if (!has_setpriv())
        cr_skip_test("no setpriv");
    snprintf(command, sizeof command, "setpriv --reuid=65534 --regid=65534 --clear-groups test -x '%s'",
             path_command());
    if (system(command) != 0)
        cr_skip_test("another user may not execute what was built here");
    expect_impossible((const char *[]){"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", NULL});
}

#define FOUR "-all,+bpf,+perfmon,+sys_ptrace,+dac_read_search"

static const char *const four[] = {"setpriv", "--bounding-set=" FOUR, "--inh-caps=" FOUR, NULL};

/* What uprobe_multi brought; before, placing a probe took CAP_SYS_ADMIN. */
static void begin_four(void)
{
    char release[64] = "";
    int major = 0, minor = 0;
    FILE *file = fopen("/proc/sys/kernel/osrelease", "re");
    if (file && fgets(release, sizeof release, file))
        sscanf(release, "%d.%d", &major, &minor);
    if (file)
        fclose(file);
    if (!has_setpriv())
        cr_skip_test("no setpriv");
    if (major < 6 || (major == 6 && minor < 6))
        cr_skip_test("Linux %d.%d: probes take CAP_SYS_ADMIN there", major, minor);
    make_place();
}

static void expect_four(void)
{
    char path[64], line[128];
    unsigned long long effective = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)agent.pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "CapEff: %llx", &effective);
    if (file)
        fclose(file);
    cr_assert(eq(u64, effective,
                 1ull << CAP_BPF | 1ull << CAP_PERFMON | 1ull << CAP_SYS_PTRACE | 1ull << CAP_DAC_READ_SEARCH));
}

Test(agent, four_capabilities_are_enough, .init = begin_four)
{
    start_agent(&(struct agent_options){.before = four, .more = (const char *[]){"--listen", "127.0.0.1:0", NULL}});
    expect_four();
    struct kid *kid = walk_with(groups[0], 2 * MIB);
    cr_assert(eq(i64, device_sum(0).allocated_bytes, 2 * MIB));
    char *page = agent_get(agent.port, "/metrics");
    cr_assert(page != NULL);
    cr_assert(eq(dbl, agent_sample(page, "gpuprof_exporter_read_success"), 1));
    cr_assert(eq(dbl, page_sum(page, "gpuprof_device_memory_allocated_bytes", ""), 2.0 * MIB));
    free(page);
    kid_end(kid, SIGKILL);
    cr_assert(eq(i64, device_sum(0).allocated_bytes, 0));
    close_maps();
    int status = agent_stop(&agent, SIGTERM);
    cr_assert(ended_with(status, 0));
    cr_assert(ne(int, access(place.pins, F_OK), 0), "it took its pins away");
}

/* ---- resets ------------------------------------------------------------------------------------------------------ */

/* By a user who may use BPF and see no session: other programs of this machine keep their peaks. */
static void reset_apart(const char *const *words)
{
    char path[128];
    snprintf(path, sizeof path, "%s/reset", place.pins);
    cr_assert(eq(int, chmod(path, 0666), 0));
    /* dac_read_search: the way to the pins may be closed to users; sessions stay closed without sys_ptrace. */
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

/* 40 MiB of GPU 0 were held at one time, 20 are; GPU 1 had 12 and has 4. */
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

/* Peaks after it are exact again, from the very next move on. */
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

Test(agent, a_reset_of_all_begins_every_peak_anew_exactly, .init = begin_reset)
{
    reset_apart((const char *[]){"--peaks", "--all", NULL});
    expect_peaks(20 * MIB, 4 * MIB, 0);
    move_after_reset(4 * MIB);
}

Test(agent, a_reset_of_one_device_begins_its_peak_anew_exactly, .init = begin_reset)
{
    reset_apart((const char *[]){"--peaks", "--all", "--device", "0", NULL});
    expect_peaks(20 * MIB, 12 * MIB, 0);
    move_after_reset(12 * MIB);
}
