/* SPDX-License-Identifier: MIT
 *
 * test_bpf.c: the BPF program in the running kernel, fed by tests/programs/probe_fire.c: its sums against an oracle
 * that adds up what was said, deaths of all kinds, full tables, forgers, floods.  Each test has its own maps and arms
 * its own copy of the program, so tests that run beside each other, and a live agent, do not meet.  Skips where BPF
 * cannot be had.
 */
#include "bpf/loader.h"
#include "bpf/probe.h"
#include "lib/paths.h"
#include "lib/spawn.h"
#include "system/system.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIDS 8
#define MIB  (1ll << 20)
#define GIB  (1ll << 30)

struct kid {
    pid_t pid;
    FILE *to, *from;
    int cgroup;
};

static struct gp_bpf *bpf;
static char why[512], copy[PATH_MAX], groups[3][PATH_MAX], more[4][PATH_MAX];
static uint64_t group_id[3];
static struct kid kids[KIDS];
static int kid_count, more_count, link_fd = -1, copy_fd = -1;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static bool cgroup_mount(char *path, size_t bytes)
{
    FILE *mounts = fopen("/proc/self/mounts", "r");
    char line[1024], at[512], type[64];
    bool is_found = false;
    while (mounts && !is_found && fgets(line, sizeof line, mounts))
        is_found = sscanf(line, "%*s %511s %63s", at, type) == 2 && !strcmp(type, "cgroup2");
    if (mounts)
        fclose(mounts);
    if (is_found)
        snprintf(path, bytes, "%s", at);
    return is_found;
}

static void groups_make(void)
{
    char at[512];
    if (!cgroup_mount(at, sizeof at))
        cr_skip_test("no cgroup v2 hierarchy is mounted");
    for (int i = 0; i < 3; i++) {
        snprintf(groups[i], sizeof groups[i], "%s/gpuprof-test-%d-%d", at, getpid(), i);
        struct stat about;
        if (mkdir(groups[i], 0755) || stat(groups[i], &about))
            cr_skip_test("cannot make a cgroup: %s", strerror(errno));
        group_id[i] = about.st_ino;
    }
}

/* A copy of a file: another inode, so nobody else's probes. */
static void copy_of(const char *from)
{
    char command[3 * PATH_MAX];
    snprintf(copy, sizeof copy, "/tmp/gpuprof-test-fire-%d", getpid());
    snprintf(command, sizeof command, "rm -f '%s'; cp '%s' '%s'", copy, from, copy);
    cr_assert(system(command) == 0);
    copy_fd = open(copy, O_RDONLY | O_CLOEXEC);
    cr_assert(copy_fd >= 0);
}

static void link_copy(void)
{
    struct gp_bpf_probe probe;
    cr_assert(gp_bpf_probe_find(copy_fd, &probe) == 0);
    cr_assert(probe.semaphore_offset != 0);
    link_fd = gp_bpf_attach(bpf, copy_fd, &probe, why, sizeof why);
    cr_assert(link_fd >= 0, "%s", why);
}

static void begin_with(const struct gp_bpf_options *options)
{
    if (geteuid() != 0)
        cr_skip_test("not root");
    struct gp_bpf_options asked = options ? *options : (struct gp_bpf_options){0};
    asked.verbose = getenv("GPUPROF_TEST_VERBOSE") != NULL;
    int error = gp_bpf_open(&bpf, &asked, why, sizeof why);
    if (error == -EPERM || error == -ENOTSUP)
        cr_skip_test("%s", why);
    cr_assert(error == 0, "%s", why);
    groups_make();
    copy_of(path_program("probe_fire"));
    link_copy();
}

static void begin(void)
{
    begin_with(NULL);
}

static long long answer(struct kid *kid)
{
    char line[64];
    return fgets(line, sizeof line, kid->from) ? atoll(line) : -1;
}

static long long tell(struct kid *kid, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vfprintf(kid->to, format, list);
    va_end(list);
    fputc('\n', kid->to);
    fflush(kid->to);
    return answer(kid);
}

static bool enter(const char *group, pid_t pid)
{
    char procs[PATH_MAX + 16], text[16];
    snprintf(procs, sizeof procs, "%s/cgroup.procs", group);
    int fd = open(procs, O_WRONLY | O_CLOEXEC), bytes = snprintf(text, sizeof text, "%d", pid);
    bool is_done = fd >= 0 && write(fd, text, (size_t)bytes) == bytes;
    if (fd >= 0)
        close(fd);
    return is_done;
}

static struct kid *kid_start(int cgroup)
{
    struct kid *kid = &kids[kid_count++];
    int to[2], from[2];
    cr_assert(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    kid->cgroup = cgroup;
    kid->pid = fork();
    if (kid->pid == 0) {
        if (!enter(groups[cgroup], 0))
            _exit(99);
        dup2(to[0], 0);
        dup2(from[1], 1);
        execl(copy, "probe_fire", (char *)NULL);
        _exit(99);
    }
    close(to[0]);
    close(from[1]);
    kid->to = fdopen(to[1], "w");
    kid->from = fdopen(from[0], "r");
    cr_assert(answer(kid) == 0, "the program did not start");
    return kid;
}

static void kid_end(struct kid *kid, int with)
{
    if (!kid->pid)
        return;
    if (with)
        kill(kid->pid, with);
    fclose(kid->to);
    waitpid(kid->pid, NULL, 0);
    fclose(kid->from);
    kid->pid = 0;
}

/* The kernel lets a process that was waited for leave its cgroup a little later. */
static void group_remove(const char *group)
{
    for (int times = 0; *group && times < 500 && rmdir(group) && errno == EBUSY; times++)
        usleep(10000);
}

static void end(void)
{
    for (int i = 0; i < kid_count; i++)
        kid_end(&kids[i], SIGKILL);
    if (link_fd >= 0)
        close(link_fd);
    gp_bpf_close(bpf);
    if (*copy)
        unlink(copy);
    for (int i = 0; i < 3; i++)
        group_remove(groups[i]);
    for (int i = 0; i < more_count; i++)
        group_remove(more[i]);
}

/* ---- what the maps say ----------------------------------------------------------------------------------------- */

static struct gp_map_sum device_sum(int uuid)
{
    struct gp_map_device_key key;
    struct gp_map_sum sum = {.total_bytes = -99};
    memset(key.uuid, uuid, 16);
    bpf_map_lookup_elem(gp_bpf_map(bpf, "device"), &key, &sum);
    return sum;
}

static struct gp_map_sum sum_of_cgroup(uint64_t id, int uuid)
{
    struct gp_map_container_key key = {.cgroup_id = id};
    struct gp_map_sum sum = {.total_bytes = -99};
    memset(key.uuid, uuid, 16);
    bpf_map_lookup_elem(gp_bpf_map(bpf, "container_device"), &key, &sum);
    return sum;
}

static struct gp_map_sum container_sum(int group, int uuid)
{
    return sum_of_cgroup(group_id[group], uuid);
}

static struct gp_map_container row_of_cgroup(uint64_t id)
{
    struct gp_map_container row = {0};
    bpf_map_lookup_elem(gp_bpf_map(bpf, "container"), &id, &row);
    return row;
}

static struct gp_map_container container(int group)
{
    return row_of_cgroup(group_id[group]);
}

static int process_row(pid_t pid, uint32_t device, struct gp_map_process *row)
{
    struct gp_map_process_key key = {.tgid = (uint32_t)pid, .device = device};
    return bpf_map_lookup_elem(gp_bpf_map(bpf, "process_device"), &key, row);
}

/* ---- sums ------------------------------------------------------------------------------------------------------ */

static void oracle_run(void)
{
    enum { STEPS = 600, PROCESSES = 6, DEVICES = 2 };
    long long has[PROCESSES][DEVICES] = {{0}}, high_of[DEVICES] = {0}, group_high[3][DEVICES] = {{0}};
    long long calls[PROCESSES][DEVICES] = {{0}};
    unsigned seed = 42;
    for (int i = 0; i < PROCESSES; i++)
        kid_start(i % 3);
    for (int step = 0; step < STEPS; step++) {
        int i = rand_r(&seed) % PROCESSES, d = rand_r(&seed) % DEVICES;
        long long to = (rand_r(&seed) % 4096) * MIB,
                  high = (to > has[i][d] ? to : has[i][d]) + (rand_r(&seed) % 64) * MIB;
        long long sum = 0, group_sum = 0;
        for (int j = 0; j < PROCESSES; j++) {
            sum += j == i ? high : has[j][d];
            group_sum += j % 3 == i % 3 ? (j == i ? high : has[j][d]) : 0;
        }
        if (sum > high_of[d])
            high_of[d] = sum;
        if (group_sum > group_high[i % 3][d])
            group_high[i % 3][d] = group_sum;
        has[i][d] = to;
        calls[i][d] += 3;
        tell(&kids[i], "m %d %d %lld %lld %lld %lld %lld %lld", d, d + 1, to, high, to * 2, high * 2, calls[i][d],
             64 * GIB);
    }
    for (int d = 0; d < DEVICES; d++) {
        long long sum = 0, group[3] = {0}, all_calls = 0;
        for (int i = 0; i < PROCESSES; i++)
            sum += has[i][d], group[i % 3] += has[i][d], all_calls += calls[i][d];
        struct gp_map_sum got = device_sum(d + 1);
        cr_assert(eq(i64, got.allocated_bytes, sum));
        cr_assert(eq(i64, got.reserved_bytes, 2 * sum));
        cr_assert(eq(i64, got.allocated_peak_bytes, high_of[d]), "exact machine-wide peak");
        cr_assert(eq(i64, got.reserved_peak_bytes, 2 * high_of[d]));
        cr_assert(eq(i64, got.calls, all_calls));
        cr_assert(eq(i64, got.total_bytes, 64 * GIB));
        cr_assert(eq(u32, got.processes, PROCESSES));
        for (int g = 0; g < 3; g++) {
            got = container_sum(g, d + 1);
            cr_assert(eq(i64, got.allocated_bytes, group[g]));
            cr_assert(eq(i64, got.allocated_peak_bytes, group_high[g][d]));
            cr_assert(eq(u32, got.processes, 2));
        }
    }
    cr_assert(eq(u64, gp_bpf_meta(bpf)->batches, STEPS));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->clamped, 0));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->refused_batches, 0));
}

Test(bpf, sums_and_peaks_are_the_oracles, .init = begin, .fini = end, .timeout = 120)
{
    oracle_run();
}

static void begin_by_perf(void)
{
    begin_with(&(struct gp_bpf_options){.by_perf = true});
}

Test(bpf, sums_are_the_same_through_perf, .init = begin_by_perf, .fini = end, .timeout = 120)
{
    cr_assert(not(gp_bpf_is_multi(bpf)));
    oracle_run();
}

Test(bpf, identity_is_the_kernels, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(1);
    tell(kid, "m 3 1 %lld %lld 0 0 1 %lld", MIB, 2 * MIB, GIB);
    struct gp_map_process row;
    cr_assert(process_row(kid->pid, 3, &row) == 0);
    cr_assert(eq(u64, row.cgroup_id, group_id[1]));
    cr_assert(eq(u32, row.uid, 0));
    cr_assert(strncmp(row.comm, "gpuprof-test-fire", 15) == 0, "%.16s", row.comm);
    cr_assert(eq(i64, row.allocated_bytes, MIB));
    cr_assert(eq(i64, row.allocated_peak_bytes, 2 * MIB));
    cr_assert(row.start_ns != 0);
    cr_assert(eq(i64, tell(kid, "u 65534"), 0));
    tell(kid, "m 3 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(process_row(kid->pid, 3, &row) == 0);
    cr_assert(eq(u32, row.uid, 65534));
}

Test(bpf, a_device_that_becomes_known_and_a_move_between_cgroups, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    tell(kid, "m 0 0 %lld %lld 0 0 5 -1", MIB, MIB);
    cr_assert(eq(u32, device_sum(0).processes, 0), "unknown devices are in no sum");
    tell(kid, "m 0 1 %lld %lld 0 0 6 %lld", 2 * MIB, 2 * MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 2 * MIB));
    cr_assert(eq(i64, device_sum(1).calls, 6));
    cr_assert(enter(groups[2], kid->pid));
    tell(kid, "m 0 1 %lld %lld 0 0 7 %lld", 3 * MIB, 3 * MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 3 * MIB));
    cr_assert(eq(i64, device_sum(1).calls, 7), "calls are not counted twice");
    cr_assert(eq(u32, device_sum(1).processes, 1));
    cr_assert(eq(i64, container_sum(0, 1).allocated_bytes, 0));
    cr_assert(eq(u32, container_sum(0, 1).processes, 0));
    cr_assert(eq(i64, container_sum(2, 1).allocated_bytes, 3 * MIB));
    cr_assert(eq(u64, container(0).entries, 0));
    cr_assert(eq(u64, container(2).entries, 1));
    tell(kid, "m 0 2 %lld %lld 0 0 7 %lld", 4 * MIB, 4 * MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 0), "another device under the same index");
    cr_assert(eq(i64, device_sum(2).allocated_bytes, 4 * MIB));
    kid_end(kid, SIGKILL);
    cr_assert(eq(u64, container(2).entries, 0));
    cr_assert(gp_bpf_forget_container(bpf, group_id[2]) >= 2);
    cr_assert(eq(i64, container_sum(2, 2).total_bytes, -99), "its rows are gone");
}

/* ---- hosts of version 1 ---------------------------------------------------------------------------------------- */

/* One more cgroup, below this folder; its number. */
static uint64_t more_group(const char *below, const char *suffix)
{
    char *path = more[more_count];
    struct stat about;
    snprintf(path, sizeof more[0], "%s/gpuprof-test-%d%s", below, getpid(), suffix);
    if (mkdir(path, 0755))
        cr_skip_test("cannot make %s: %s", path, strerror(errno));
    more_count++;
    cr_assert(stat(path, &about) == 0);
    return about.st_ino;
}

#define MEMORY "/sys/fs/cgroup/memory"
#define PIDS   "/sys/fs/cgroup/pids"

/* Where the process's next batch is counted. */
static uint64_t counted_in(struct kid *kid, long long bytes)
{
    struct gp_map_process row;
    tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", bytes, bytes, GIB);
    cr_assert(process_row(kid->pid, 0, &row) == 0);
    cr_assert(eq(i64, sum_of_cgroup(row.cgroup_id, 1).allocated_bytes, bytes));
    cr_assert(eq(u32, sum_of_cgroup(row.cgroup_id, 1).processes, 1));
    cr_assert(eq(u64, row_of_cgroup(row.cgroup_id).entries, 1));
    return row.cgroup_id;
}

static void path_is(uint64_t id, pid_t hint, const char *group, const char *mount)
{
    struct gp_container_name name;
    cr_assert(eq(int, gp_container_lookup("", id, hint, &name), 0));
    cr_assert(eq(str, name.path, (char *)group + strlen(mount)));
}

static void root_of_version_2(char *path, size_t bytes)
{
    if (access(MEMORY "/cgroup.procs", W_OK))
        cr_skip_test("memory is not under version 1 at " MEMORY);
    cr_assert(cgroup_mount(path, bytes));
}

Test(bpf, containers_of_version_1, .init = begin, .fini = end, .timeout = 60)
{
    char root[512];
    root_of_version_2(root, sizeof root);
    uint64_t a_id = more_group(MEMORY, "-a") | GP_MAP_CGROUP_V1, b_id = more_group(MEMORY, "-b") | GP_MAP_CGROUP_V1;
    struct kid *a = kid_start(0), *b = kid_start(0);
    cr_assert(enter(root, a->pid) && enter(root, b->pid) && enter(more[0], a->pid) && enter(more[1], b->pid));
    tell(b, "m 0 1 %lld %lld 0 0 1 %lld", 2 * MIB, 2 * MIB, GIB);
    cr_assert(eq(u64, counted_in(a, MIB), a_id));
    cr_assert(eq(i64, sum_of_cgroup(b_id, 1).allocated_bytes, 2 * MIB));
    for (int i = 0; i < 2; i++) { /* by a process in it, and by the hierarchy alone */
        path_is(a_id, i ? a->pid : 0, more[0], MEMORY);
        path_is(b_id, i ? a->pid : 0, more[1], MEMORY);
    }
    cr_assert(enter(more[1], a->pid));
    tell(a, "m 0 1 %lld %lld 0 0 1 %lld", 3 * MIB, 3 * MIB, GIB);
    cr_assert(eq(u32, sum_of_cgroup(a_id, 1).processes, 0));
    cr_assert(eq(i64, sum_of_cgroup(a_id, 1).allocated_bytes, 0));
    cr_assert(eq(u64, row_of_cgroup(a_id).entries, 0));
    cr_assert(eq(u32, sum_of_cgroup(b_id, 1).processes, 2));
    cr_assert(eq(i64, sum_of_cgroup(b_id, 1).allocated_bytes, 5 * MIB));
    kid_end(b, SIGKILL);
    cr_assert(eq(i64, sum_of_cgroup(b_id, 1).allocated_bytes, 3 * MIB));
    kid_end(a, SIGKILL);
    cr_assert(eq(u32, sum_of_cgroup(b_id, 1).processes, 0));
    cr_assert(eq(u64, row_of_cgroup(b_id).entries, 0));
    cr_assert(gp_bpf_forget_container(bpf, b_id) == 2);
}

Test(bpf, which_of_two_hierarchies_counts, .init = begin, .fini = end, .timeout = 60)
{
    char root[512];
    root_of_version_2(root, sizeof root);
    uint64_t old = more_group(MEMORY, "-a") | GP_MAP_CGROUP_V1, service = more_group(root, ".service");
    struct kid *kid = kid_start(0);
    cr_assert(enter(more[0], kid->pid));
    cr_assert(eq(u64, counted_in(kid, MIB), group_id[0]), "version 2 tells it apart");
    cr_assert(enter(more[1], kid->pid));
    cr_assert(eq(u64, counted_in(kid, 2 * MIB), old), "in version 2 it is where its runtime was started");
    cr_assert(enter(MEMORY, kid->pid));
    cr_assert(eq(u64, counted_in(kid, 3 * MIB), service), "a service");
    cr_assert(enter(root, kid->pid));
    if (access(PIDS "/cgroup.procs", W_OK))
        return;
    cr_assert(enter(PIDS, kid->pid));
    cr_assert(eq(u64, counted_in(kid, 4 * MIB), 1), "in the root of all");
    uint64_t pids = more_group(PIDS, "-p") | GP_MAP_CGROUP_V1_PIDS;
    cr_assert(enter(more[2], kid->pid));
    cr_assert(eq(u64, counted_in(kid, 5 * MIB), pids));
    for (int i = 0; i < 2; i++)
        path_is(pids, i ? kid->pid : 0, more[2], PIDS);
}

Test(bpf, batches_that_come_twice_or_never, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    tell(kid, "o");
    cr_assert(eq(u64, gp_bpf_meta(bpf)->old_batches, 1));
    tell(kid, "g 5");
    tell(kid, "l 17");
    tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(u64, gp_bpf_meta(bpf)->gap_batches, 5));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->lost, 17));
    cr_assert(eq(i64, device_sum(1).allocated_bytes, MIB));
    cr_assert(eq(int, gp_bpf_gone(bpf, (uint32_t)kid->pid, 0), 0));
    tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(u64, gp_bpf_meta(bpf)->lost, 17), "what it lost before we knew it is not ours");
    tell(kid, "l 20");
    tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(u64, gp_bpf_meta(bpf)->lost, 20));
}

Test(bpf, peaks_begin_anew, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *a = kid_start(0), *b = kid_start(1);
    tell(a, "m 0 1 %lld %lld %lld %lld 1 %lld", MIB, 9 * MIB, MIB, 9 * MIB, GIB);
    tell(b, "m 0 1 %lld %lld %lld %lld 1 %lld", MIB, MIB, MIB, MIB, GIB);
    struct gp_map_device_key every = {{0}};
    struct gp_map_reset reset = {.allocated_ns = (uint64_t)now_ns()};
    cr_assert(bpf_map_update_elem(gp_bpf_map(bpf, "reset"), &every, &reset, BPF_ANY) == 0);
    tell(b, "m 0 1 %lld %lld %lld %lld 1 %lld", 0ll, MIB, MIB, MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_peak_bytes, 2 * MIB), "what it stood at when it began anew");
    cr_assert(eq(i64, device_sum(1).reserved_peak_bytes, 9 * MIB), "the other peak is left alone");
    cr_assert(eq(i64, container_sum(1, 1).allocated_peak_bytes, MIB));
    cr_assert(eq(i64, container_sum(0, 1).allocated_peak_bytes, 9 * MIB), "nothing moved it: readers apply the rule");
    tell(a, "m 0 1 %lld %lld %lld %lld 1 %lld", MIB, 4 * MIB, MIB, MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_peak_bytes, 4 * MIB));
}

/* All at once, half of them killed on the way: what is left is what the living say, to the byte. */
Test(bpf, many_at_once_and_a_storm_of_kills, .init = begin, .fini = end, .timeout = 120)
{
    enum { ALL = 6, KILLED = 3 };
    bool is_slow = getenv("GPUPROF_TEST_SLOW");
    for (int i = 0; i < ALL; i++)
        kid_start(i % 3);
    for (int i = 0; i < ALL; i++) {
        fprintf(kids[i].to, "c %d\n", is_slow ? 1000 : 100000);
        fflush(kids[i].to);
    }
    for (int i = 0; i < KILLED; i++) {
        usleep(30000);
        kid_end(&kids[i], SIGKILL);
    }
    for (int i = KILLED; i < ALL; i++)
        cr_assert(eq(i64, answer(&kids[i]), 0));
    struct gp_map_sum sum = device_sum(1);
    cr_assert(eq(i64, sum.allocated_bytes, (ALL - KILLED) * 5 * MIB));
    cr_assert(eq(i64, sum.reserved_bytes, (ALL - KILLED) * 5 * MIB));
    cr_assert(eq(u32, sum.processes, ALL - KILLED));
    /* Each had 1000 MiB at every batch, so one with the others at what they last said is the least peak there can be.
     */
    cr_assert(ge(i64, sum.allocated_peak_bytes, 1000 * MIB));
    cr_assert(le(i64, sum.allocated_peak_bytes, ALL * 1000 * MIB));
    for (int g = 0; g < 3; g++) {
        cr_assert(eq(i64, container_sum(g, 1).allocated_bytes, 5 * MIB));
        cr_assert(eq(u64, container(g).entries, 1));
    }
    cr_assert(eq(u64, gp_bpf_meta(bpf)->raced_batches, 0));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->old_batches, 0));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->gap_batches, 0), "the kernel lost a batch");
}

/* ---- ends ------------------------------------------------------------------------------------------------------ */

Test(bpf, every_end_takes_the_bytes_out, .init = begin, .fini = end, .timeout = 60)
{
    for (int how = 0; how < 3; how++) {
        struct kid *kid = kid_start(0);
        tell(kid, "m 0 1 %lld %lld 0 0 2 %lld", MIB, MIB, GIB);
        tell(kid, "m 63 1 %lld %lld 0 0 2 %lld", MIB, MIB, GIB);
        cr_assert(eq(i64, device_sum(1).allocated_bytes, 2 * MIB));
        pid_t pid = kid->pid;
        siginfo_t info;
        if (how == 0)
            kill(pid, SIGKILL);
        else if (how == 1) {
            fputs("q\n", kid->to);
            fflush(kid->to);
        } else
            cr_assert(eq(i64, tell(kid, "x"), 0));
        if (how != 2)
            cr_assert(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
        /* Not within some time, but before anybody else can know of the end. */
        cr_assert(eq(u32, device_sum(1).processes, 0), "%d", how);
        kid_end(kid, SIGKILL);
        cr_assert(eq(i64, device_sum(1).allocated_bytes, 0));
        cr_assert(eq(i64, container_sum(0, 1).allocated_bytes, 0));
        cr_assert(eq(i64, device_sum(1).calls, 4 * (how + 1)), "calls of the dead stay");
        struct gp_map_process row;
        cr_assert(process_row(pid, 0, &row) != 0);
        cr_assert(eq(u64, container(0).entries, 0));
    }
}

/* A memory cgroup of either version, with 32 MiB; false: none can be had. */
static bool memory_group(char *group, size_t bytes, const char **limit)
{
    static const char *const at[][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                        {"/sys/fs/cgroup", "memory.max"}};
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX + 64];
        snprintf(group, bytes, "%s/gpuprof-test-oom-%d", at[i][0], getpid());
        if (mkdir(group, 0755))
            continue;
        snprintf(path, sizeof path, "%s/%s", group, at[i][1]);
        FILE *file = fopen(path, "w");
        bool is_set = file && fputs("33554432", file) >= 0;
        if (file && fclose(file) == 0 && is_set) {
            *limit = at[i][1];
            return true;
        }
        rmdir(group);
    }
    return false;
}

Test(bpf, killed_for_want_of_memory, .init = begin, .fini = end, .timeout = 60)
{
    char group[256], path[300];
    const char *limit;
    if (!memory_group(group, sizeof group, &limit))
        cr_skip_test("no memory cgroup");
    struct kid *kid = kid_start(0);
    tell(kid, "m 0 1 %lld %lld 0 0 2 %lld", MIB, MIB, GIB);
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    FILE *file = fopen(path, "w");
    fprintf(file, "%d", kid->pid);
    int moved = fclose(file);
    fputs("w\n", kid->to);
    fflush(kid->to);
    siginfo_t info = {0};
    waitid(P_PID, (id_t)kid->pid, &info, WEXITED | WNOWAIT);
    int64_t left = device_sum(1).allocated_bytes;
    kid_end(kid, SIGKILL);
    group_remove(group);
    cr_assert(eq(int, moved, 0));
    cr_assert(eq(int, info.si_code, CLD_KILLED));
    cr_assert(eq(int, info.si_status, SIGKILL));
    cr_assert(eq(i64, left, 0));
}

/* The next process gets the number that the dead one had: a new row, and nothing of the old one in the sums. */
Test(bpf, a_pid_that_is_used_again, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    pid_t pid = kid->pid;
    tell(kid, "m 0 1 %lld %lld 0 0 2 %lld", 5 * MIB, 5 * MIB, GIB);
    tell(kid, "m 1 1 %lld %lld 0 0 2 %lld", 5 * MIB, 5 * MIB, GIB);
    struct gp_map_process before, after;
    cr_assert(process_row(pid, 0, &before) == 0);
    kid_end(kid, SIGKILL);
    for (int i = 0; i < 50; i++) { /* somebody else may be quicker */
        FILE *file = fopen("/proc/sys/kernel/ns_last_pid", "w");
        if (!file)
            cr_skip_test("no ns_last_pid");
        fprintf(file, "%d", pid - 1);
        fclose(file);
        kid_count = 0;
        kid = kid_start(1);
        if (kid->pid == pid)
            break;
        kid_end(kid, SIGKILL);
    }
    if (kid->pid != pid)
        cr_skip_test("the number could not be had again");
    tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(process_row(pid, 0, &after) == 0);
    cr_assert(ne(u64, before.start_ns, after.start_ns));
    cr_assert(eq(u64, after.cgroup_id, group_id[1]));
    cr_assert(process_row(pid, 1, &before) != 0);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, MIB));
    cr_assert(eq(i64, container_sum(0, 1).allocated_bytes, 0));
}

/* Should an end be missed and the number be used again, the next batch takes out what the dead one left. */
Test(bpf, an_end_that_was_missed, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    for (int i = 0; i < 2; i++)
        tell(kid, "m %d 1 %lld %lld 0 0 2 %lld", i, 5 * MIB, 5 * MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 10 * MIB));
    uint64_t state[32]; /* its first word is the start time */
    uint32_t tgid = (uint32_t)kid->pid;
    int process = gp_bpf_map(bpf, "process");
    cr_assert(bpf_map_lookup_elem(process, &tgid, state) == 0);
    state[0] -= 1000;
    cr_assert(bpf_map_update_elem(process, &tgid, state, BPF_EXIST) == 0);
    tell(kid, "m 0 1 %lld %lld 0 0 3 %lld", MIB, MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, MIB));
    cr_assert(eq(u32, device_sum(1).processes, 1));
    cr_assert(eq(i64, device_sum(1).calls, 7));
    cr_assert(eq(u64, container(0).entries, 1));
}

Test(bpf, a_storm_of_execs, .init = begin, .fini = end, .timeout = 120)
{
    int times = getenv("GPUPROF_TEST_SLOW") ? 20 : 300;
    for (int i = 0; i < 2; i++)
        kid_start(i);
    for (int i = 0; i < times; i++)
        for (int j = 0; j < 2; j++) {
            tell(&kids[j], "m 0 1 %lld %lld 0 0 2 %lld", MIB, 9 * MIB, GIB);
            tell(&kids[j], "m 63 2 %lld %lld 0 0 2 %lld", MIB, MIB, GIB);
            cr_assert(eq(i64, tell(&kids[j], "x"), 0));
        }
    for (int uuid = 1; uuid <= 2; uuid++) {
        cr_assert(eq(i64, device_sum(uuid).allocated_bytes, 0));
        cr_assert(eq(u32, device_sum(uuid).processes, 0));
        cr_assert(eq(i64, device_sum(uuid).calls, 4 * times));
    }
    cr_assert(eq(i64, device_sum(1).allocated_peak_bytes, 9 * MIB));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->gone, 2 * (uint64_t)times));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->gap_batches, 0));
    cr_assert(eq(u64, container(0).entries, 0));
    cr_assert(eq(u64, container(0).devices, 2));
}

Test(bpf, a_process_lives_until_its_last_thread_ends, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    tell(kid, "m 0 1 %lld %lld 0 0 2 %lld", MIB, MIB, GIB);
    tell(kid, "t");
    usleep(50000);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, MIB), "its leader is gone, it is not");
    tell(kid, "m 0 1 %lld %lld 0 0 2 %lld", 2 * MIB, 2 * MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 2 * MIB));
    kid_end(kid, SIGKILL);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 0));
}

Test(bpf, the_sweepers_line, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    tell(kid, "m 0 1 %lld %lld 0 0 2 %lld", MIB, MIB, GIB);
    struct gp_map_process row;
    cr_assert(process_row(kid->pid, 0, &row) == 0);
    cr_assert(eq(int, gp_bpf_gone(bpf, (uint32_t)kid->pid, row.start_ns + 1), -ENOENT), "another of that number");
    cr_assert(eq(i64, device_sum(1).allocated_bytes, MIB));
    cr_assert(eq(int, gp_bpf_gone(bpf, (uint32_t)kid->pid, row.start_ns), 0));
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 0));
    cr_assert(eq(int, gp_bpf_gone(bpf, (uint32_t)kid->pid, row.start_ns), -ENOENT));
}

Test(bpf, disarmed_when_closed, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *kid = kid_start(0);
    cr_assert(eq(i64, tell(kid, "s"), 1));
    close(link_fd);
    link_fd = -1;
    for (int i = 0; i < 200 && tell(kid, "s") != 0; i++)
        usleep(5000);
    cr_assert(eq(i64, tell(kid, "s"), 0));
}

Test(bpf, many_short_processes, .init = begin, .fini = end, .timeout = 300)
{
    /* 100 000 take minutes under a simulator's load; GPUPROF_TEST_MANY asks for them. */
    const char *many = getenv("GPUPROF_TEST_MANY");
    long times = many ? atol(many) : 5000;
    struct kid *kid = kid_start(0);
    cr_assert(eq(i64, tell(kid, "f %ld", times), 0));
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 0));
    cr_assert(eq(u32, device_sum(1).processes, 0));
    cr_assert(eq(i64, device_sum(1).calls, times));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->gone, (uint64_t)times));
    cr_assert(eq(u64, container(0).entries, 0));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->map_full, 0));
}

/* ---- the library ----------------------------------------------------------------------------------------------- */

/* The machine's only device, as the sums have it by now: calls and bytes come with the next batch. */
static struct gp_map_sum only_device(long long calls, long long bytes)
{
    struct gp_map_device_key key;
    struct gp_map_sum sum = {0};
    for (int i = 0; i < 2000 && (sum.calls != calls || sum.allocated_bytes != bytes); i++) {
        usleep(5000);
        if (bpf_map_get_next_key(gp_bpf_map(bpf, "device"), NULL, &key) == 0)
            bpf_map_lookup_elem(gp_bpf_map(bpf, "device"), &key, &sum);
    }
    return sum;
}

/* What a program under the real library and the simulated GPU has is what the sums have, up to its kill -9. */
Test(bpf, a_program_under_the_library, .init = begin, .fini = end, .timeout = 120)
{
    static const long long peaks[] = {1, 5, 5, 9};
    close(link_fd);
    close(copy_fd);
    copy_of(path_library());
    link_copy();
    char inject[PATH_MAX + 32];
    snprintf(inject, sizeof inject, "CUDA_INJECTION64_PATH=%s", copy);
    const char *argv[] = {path_program("steps"), NULL}, *env[] = {inject, NULL};
    struct spawn_options options = {.argv = argv, .env = env, .want_library = true, .want_hold = true};
    struct spawn spawn;
    cr_assert(spawn_start(&spawn, &options) == 0);
    for (int step = 0; step < 4; step++) {
        cr_assert(eq(int, step ? spawn_step(&spawn) : spawn_wait_held(&spawn, 1), 0));
        struct gp_map_sum sum = only_device(step + 1, MIB);
        cr_assert(eq(i64, sum.calls, step + 1));
        cr_assert(eq(i64, sum.allocated_bytes, MIB));
        cr_assert(eq(i64, sum.allocated_peak_bytes, peaks[step] * MIB), "step %d", step);
        cr_assert(eq(u32, sum.processes, 1));
    }
    spawn_kill(&spawn, SIGKILL);
    struct spawn_result result = {0};
    spawn_finish(&spawn, &result);
    spawn_result_free(&result);
    struct gp_map_sum left = only_device(4, 0);
    cr_assert(eq(i64, left.allocated_bytes, 0));
    cr_assert(eq(i64, left.allocated_peak_bytes, 9 * MIB));
    cr_assert(eq(u32, left.processes, 0));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->refused_batches, 0));
}

/* ---- tables ---------------------------------------------------------------------------------------------------- */

static void begin_tiny(void)
{
    begin_with(&(struct gp_bpf_options){.processes = 4, .containers = 1, .devices = 1});
}

Test(bpf, full_tables_are_counted_and_what_is_in_stays_exact, .init = begin_tiny, .fini = end, .timeout = 60)
{
    for (int i = 0; i < 6; i++)
        tell(kid_start(i % 2), "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 4 * MIB), "4 have room");
    cr_assert(eq(u32, device_sum(1).processes, 4));
    cr_assert(eq(i64, container_sum(0, 1).allocated_bytes, 2 * MIB));
    cr_assert(eq(i64, container_sum(1, 1).total_bytes, -99), "no room for the other container");
    cr_assert(gt(u64, gp_bpf_meta(bpf)->map_full, 0));
    uint64_t full = gp_bpf_meta(bpf)->map_full;
    tell(&kids[0], "m 1 2 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(gt(u64, gp_bpf_meta(bpf)->map_full, full));
    for (int i = 0; i < 4; i++)
        kid_end(&kids[i], SIGKILL);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 0));
    tell(&kids[5], "m 0 1 %lld %lld 0 0 1 %lld", 7 * MIB, 7 * MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 7 * MIB), "who waited has room now");
    cr_assert(gp_bpf_forget_container(bpf, group_id[0]) == 2);
    tell(&kids[5], "m 0 1 %lld %lld 0 0 1 %lld", 8 * MIB, 8 * MIB, GIB);
    cr_assert(eq(i64, container_sum(1, 1).allocated_bytes, 8 * MIB), "and its container");
    tell(&kids[5], "m 1 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(u64, container(1).entries, 1), "one row is older than its container's entry");
    kid_end(&kids[5], SIGKILL);
    cr_assert(eq(u64, container(1).entries, 0));
    cr_assert(eq(i64, container_sum(1, 1).allocated_bytes, 0));
}

/* ---- forgers --------------------------------------------------------------------------------------------------- */

Test(bpf, forged_batches_move_nothing, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *honest = kid_start(0), *forger = kid_start(1);
    tell(honest, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    tell(forger, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    for (int how = 0; how <= 11; how++) {
        uint64_t refused = gp_bpf_meta(bpf)->refused_batches;
        tell(forger, "h %d", how);
        cr_assert(eq(u64, gp_bpf_meta(bpf)->refused_batches, refused + 1), "%d was not refused", how);
        cr_assert(eq(i64, device_sum(1).allocated_bytes, 2 * MIB), "%d", how);
    }
    cr_assert(eq(u64, container(1).refused, 12));
    cr_assert(eq(u64, container(0).refused, 0));
}

Test(bpf, numbers_are_put_into_bounds, .init = begin, .fini = end, .timeout = 60)
{
    struct kid *forger = kid_start(1);
    tell(forger, "m 0 1 %lld %lld %lld %lld 5 %lld", LLONG_MAX, LLONG_MAX, LLONG_MIN, LLONG_MIN, 2 * GIB);
    struct gp_map_sum sum = device_sum(1);
    cr_assert(eq(i64, sum.allocated_bytes, 2 * GIB));
    cr_assert(eq(i64, sum.allocated_peak_bytes, 2 * GIB));
    cr_assert(eq(i64, sum.reserved_bytes, 0));
    tell(forger, "m 0 1 0 0 0 0 %lld %lld", LLONG_MIN, LLONG_MAX);
    cr_assert(eq(i64, device_sum(1).calls, 5), "counters never fall");
    tell(forger, "m 0 1 %lld 0 0 0 5 -7", LLONG_MAX);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, GP_MAPS_BYTES_LIMIT));
    cr_assert(gt(u64, gp_bpf_meta(bpf)->clamped, 5));
    kid_end(forger, SIGKILL);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 0));
    cr_assert(eq(i64, container_sum(1, 1).allocated_bytes, 0));
}

Test(bpf, a_container_cannot_fill_the_tables, .init = begin, .fini = end, .timeout = 120)
{
    struct kid *forger = kid_start(1), *honest = kid_start(0);
    for (int i = 0; i < 64; i++)
        for (int uuid = 100; uuid < 102; uuid++)
            tell(forger, "m %d %d 1 1 1 1 1 %lld", i, uuid + 2 * i > 255 ? uuid + 2 * i - 200 : uuid + 2 * i, GIB);
    cr_assert(eq(u64, container(1).devices, GP_MAPS_DEVICES_OF_CONTAINER));
    cr_assert(gt(u64, container(1).map_full, 0));
    tell(honest, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    cr_assert(eq(i64, container_sum(0, 1).allocated_bytes, MIB));
    cr_assert(eq(u64, container(0).map_full, 0));
}

Test(bpf, two_threads_that_fire_at_once_make_no_drift, .init = begin, .fini = end, .timeout = 120)
{
    struct kid *forger = kid_start(1), *honest = kid_start(0);
    tell(honest, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    tell(forger, "m 0 1 %lld %lld 0 0 1 %lld", MIB, MIB, GIB);
    tell(forger, "r %d", getenv("GPUPROF_TEST_SLOW") ? 2000 : 100000); /* an emulated machine */
    tell(forger, "m 0 1 %lld %lld %lld %lld 1 %lld", 3 * MIB, 3 * MIB, MIB, MIB, GIB);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, 4 * MIB));
    cr_assert(eq(i64, device_sum(1).reserved_bytes, MIB));
    cr_log_info("raced %llu, came late %llu", (unsigned long long)gp_bpf_meta(bpf)->raced_batches,
                (unsigned long long)gp_bpf_meta(bpf)->old_batches);
    kid_end(forger, SIGKILL);
    cr_assert(eq(i64, device_sum(1).allocated_bytes, MIB));
    cr_assert(eq(i64, container_sum(1, 1).allocated_bytes, 0));
}

static uint64_t came[3];

static int record_take(void *unused, void *data, size_t bytes)
{
    (void)unused;
    const struct gp_map_record *record = data;
    cr_assert(bytes >= sizeof *record + record->count * sizeof record->events[0]);
    for (int i = 0; i < 3; i++)
        if (record->cgroup_id == group_id[i])
            came[i] += record->count;
    return 0;
}

Test(bpf, a_flood_costs_only_itself, .init = begin, .fini = end, .timeout = 120)
{
    struct kid *flood = kid_start(0), *quiet = kid_start(1);
    struct ring_buffer *ring = ring_buffer__new(gp_bpf_map(bpf, "events"), record_take, NULL, NULL);
    cr_assert(ring != NULL);
    for (int i = 0; i < 10; i++) { /* nobody reads: the ring is as full as the flood can make it */
        tell(flood, "e 256 200");
        tell(quiet, "e 20 3");
    }
    while (ring_buffer__consume(ring) > 0) {
    }
    ring_buffer__free(ring);
    cr_assert(eq(u64, came[1], 600), "the quiet one lost nothing");
    cr_assert(eq(u64, container(1).ring_dropped, 0));
    cr_assert(gt(u64, container(0).ring_dropped, 0), "the flood did not flood");
    cr_assert(eq(u64, came[0] + container(0).ring_dropped, 256 * 200 * 10), "each event came or is counted");
    cr_assert(eq(u64, gp_bpf_meta(bpf)->events, 256 * 200 * 10 + 600));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->ring_dropped, container(0).ring_dropped));
}

/* ---- loading --------------------------------------------------------------------------------------------------- */

Test(bpf, the_verifier_is_at_ease, .init = begin, .fini = end, .timeout = 60)
{
    struct gp_bpf_costs costs;
    cr_assert(gp_bpf_costs(bpf, &costs) == 0);
    cr_log_info("the verifier looked at %u of %u instructions; %s", costs.verified, costs.verified_limit,
                gp_bpf_is_multi(bpf) ? "uprobe_multi" : "perf");
    cr_assert(costs.verified > 0 && costs.verified <= costs.verified_limit / 2);
}

Test(bpf, arguments_of_notes)
{
    uint64_t cookie;
    cr_assert(gp_bpf_arguments("8@%rdi 8@%rsi", &cookie) == 0);
    cr_assert(gp_bpf_arguments("-8@-16(%rbp) 4@$768", &cookie) == 0);
    cr_assert(gp_bpf_arguments("8@(%r12) -4@%r9d", &cookie) == 0);
    static const char *const bad[] = {"",
                                      "8@",
                                      "8@%rdi",
                                      "8@%xmm0 8@%rsi",
                                      "2@%rdi 8@%rsi",
                                      "8@%rdi 8@8(%rax,%rbx,8)",
                                      "8@gpuprof(%rip) 8@%rsi",
                                      "8@%rdi 8@$99999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert(gp_bpf_arguments(bad[i], &cookie) == -EINVAL, "%s", bad[i]);
}

/* Each byte of the parts of the file that say where things are, broken: an answer, and no crash. */
Test(bpf, broken_files, .timeout = 120)
{
    if (geteuid() != 0)
        cr_skip_test("not root");
    copy_of(path_program("probe_fire"));
    int fd = open(copy, O_RDWR);
    struct stat about;
    cr_assert(fd >= 0 && fstat(fd, &about) == 0);
    struct gp_bpf_probe probe;
    for (off_t at = 0; at < about.st_size; at += at < 1024 || at > about.st_size - 4096 ? 1 : 97) {
        uint8_t was, broken;
        cr_assert(pread(fd, &was, 1, at) == 1);
        for (int bit = 0; bit < 8; bit += 3) {
            broken = was ^ (uint8_t)(0x81 << bit);
            pwrite(fd, &broken, 1, at);
            gp_bpf_probe_find(fd, &probe);
        }
        pwrite(fd, &was, 1, at);
    }
    cr_assert(gp_bpf_probe_find(fd, &probe) == 0);
    for (off_t size = about.st_size - 1; size > 0; size = size * 9 / 10) {
        cr_assert(ftruncate(fd, size) == 0);
        cr_assert(gp_bpf_probe_find(fd, &probe) != 0);
    }
    close(fd);
    unlink(copy);
}
