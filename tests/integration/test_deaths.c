/* SPDX-License-Identifier: MIT
 *
 * test_deaths.c: tests the fallback for missed exits (tools/agent/deaths.h), with the exit
 * tracepoint attached and detached, and the removal of cgroups. Processes are
 * tests/programs/probe_fire.c or, for thousands, sleepers whose rows the test writes itself. Skips
 * without BPF.
 * Run: alone
 */
#include "agent/deaths.h"
#include "base/clock.h"
#include "lib/elsewhere.h"
#include "lib/full.h"
#include "lib/keeper.h"
#include "lib/kid.h"
#include "lib/mounts.h"
#include "lib/paths.h"
#include "lib/reusepid.h"
#include "loaderabi.h"
#include <agent/kernel/bpf.h>
#include <bpf/bpf.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/maps.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ll << 20)
#define GIB (1ll << 30)
#define MS  1000000ull
/* A bound for what takes some ms on a quiet machine; beside 20 others on two processors it took
 * more than a second. A test continues as soon as its condition holds, so only a failure takes this
 * long. */
#define PATIENCE (20000 * MS)

static struct gp_bpf *bpf;
static struct gp_deaths *deaths;
static char why[512], copy[PATH_MAX], v2[512];
static int link_fd = -1;
static struct kid kids[64];
static int kid_count;
static pid_t sleepers[4096];
static int sleeper_count;
static int group_first, group_last; /* numbers of the existing ones */

/* ---- setup, teardown --------------------------------------------------------------------------------------------- */

static void group_path(char *path, size_t bytes, int number)
{
    snprintf(path, bytes, "%s/gpuprof-test-deaths-%d-%d", v2, getpid(), number);
}

/* Creates the cgroup; returns its id, or 0 if that failed. */
static uint64_t group_make(int number)
{
    char path[PATH_MAX];
    struct stat about;
    group_path(path, sizeof path, number);
    if (mkdir(path, 0755) || stat(path, &about))
        return 0;
    if (number >= group_last)
        group_last = number + 1;
    return about.st_ino;
}

/* A process leaves its cgroup a little after its parent has learned of its end. */
static bool group_remove(int number)
{
    char path[PATH_MAX];
    group_path(path, sizeof path, number);
    for (int i = 0; i < 500; i++, usleep(1000))
        if (rmdir(path) == 0 || errno == ENOENT)
            return true;
    return false;
}

static bool group_enter(int number, pid_t pid)
{
    char path[PATH_MAX + 32];
    group_path(path, PATH_MAX, number);
    strcat(path, "/cgroup.procs");
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fprintf(file, "%d", pid);
    return fclose(file) == 0;
}

static void begin_with(const struct gp_bpf_options *options)
{
    if (geteuid() != 0)
        cr_skip_test("not root");
    int error = gp_bpf_open(&bpf, options, why, sizeof why);
    if (error == -EPERM || error == -ENOTSUP)
        cr_skip_test("%s", why);
    cr_assert(error == 0, "%s", why);
    if (!mounts_find("cgroup2", NULL, v2, sizeof v2))
        cr_skip_test("no cgroup v2 hierarchy is mounted");
    char command[3 * PATH_MAX];
    keeper_start(NULL);
    snprintf(copy, sizeof copy, "/tmp/gpuprof-test-deaths-%d", getpid());
    snprintf(command, sizeof command, "cp '%s' '%s'", path_program("probe_fire"), copy);
    cr_assert(system(command) == 0);
    int fd = open(copy, O_RDONLY | O_CLOEXEC);
    struct gp_bpf_probe probe;
    cr_assert(fd >= 0 && gp_bpf_probe_find(fd, &probe) == 0);
    link_fd = gp_bpf_attach(bpf, fd, &probe, why, sizeof why);
    close(fd);
    cr_assert(link_fd >= 0, "%s", why);
    cr_assert(gp_deaths_open(&deaths, bpf) == 0);
}

static void begin(void)
{
    begin_with(&(struct gp_bpf_options){0});
}

static void begin_few_containers(void)
{
    begin_with(&(struct gp_bpf_options){.containers = 64});
}

static long long fire(struct kid *kid, long long bytes)
{
    return kid_tell(kid, "m 0 1 %lld %lld 0 0 1 %lld", bytes, bytes, GIB);
}

static struct kid *kid_start(void)
{
    struct kid *kid = NULL;
    for (int i = 0; i < kid_count && !kid; i++)
        kid = kids[i].pid ? NULL : &kids[i];
    if (!kid)
        kid = &kids[kid_count++];
    cr_assert(kid_begin(kid, kid_exec_file, copy) == 0, "the program did not start");
    return kid;
}

static void kid_kill(struct kid *kid)
{
    siginfo_t info;
    kill(kid->pid, SIGKILL);
    waitid(P_PID, (id_t)kid->pid, &info, WEXITED | WNOWAIT);
}

/* Children that do nothing; the test writes rows for them as the BPF program would. */
static void sleepers_start(int count)
{
    for (; sleeper_count < count; sleeper_count++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
        cr_assert(pid > 0, "%s", strerror(errno));
        sleepers[sleeper_count] = pid;
    }
}

static void sleepers_end(void)
{
    for (int i = 0; i < sleeper_count; i++)
        kill(sleepers[i], SIGKILL);
    for (int i = 0; i < sleeper_count; i++)
        waitpid(sleepers[i], NULL, 0);
    sleeper_count = 0;
}

static void end(void)
{
    sleepers_end();
    for (int i = 0; i < kid_count; i++)
        kid_end(&kids[i], SIGKILL);
    gp_deaths_close(deaths);
    if (link_fd >= 0)
        close(link_fd);
    gp_bpf_close(bpf);
    if (*copy)
        unlink(copy);
    for (int i = group_first; i < group_last; i++)
        group_remove(i);
}

/* Skips from within a test, where Criterion does not call `end`. */
#define skip(...)                                                                                                      \
    do {                                                                                                               \
        end();                                                                                                         \
        cr_skip_test(__VA_ARGS__);                                                                                     \
    } while (0)

TestSuite(deaths, .init = begin, .fini = end, .timeout = 300);
TestSuite(deaths_few_containers, .init = begin_few_containers, .fini = end, .timeout = 300);

/* ---- the agent's loop -------------------------------------------------------------------------------------------- */

/* Waits for the descriptor and calls turns, as the agent does; true as soon as `is` holds. */
static bool loop_until(bool (*is)(const void *), const void *arg, uint64_t ns)
{
    uint64_t until = gp_clock_ns() + ns;
    for (;;) {
        if (is && is(arg))
            return true;
        uint64_t now = gp_clock_ns();
        if (now >= until)
            return false;
        struct pollfd ready = {.fd = gp_deaths_fd(deaths), .events = POLLIN};
        if (poll(&ready, 1, (int)((until - now) / MS) + 1) > 0)
            gp_deaths_turn(deaths);
    }
}

static bool is_quiet(const void *unused)
{
    (void)unused;
    struct pollfd ready = {.fd = gp_deaths_fd(deaths), .events = POLLIN};
    return poll(&ready, 1, 0) == 0;
}

/* One complete scan. */
static void second(void)
{
    gp_deaths_second(deaths);
    gp_deaths_turn(deaths);
    cr_assert(loop_until(is_quiet, NULL, PATIENCE), "the scan does not end");
}

static struct gp_map_sum device_sum(void)
{
    struct gp_map_device_key key;
    struct gp_map_sum sum = {.total_bytes = -99};
    memset(key.uuid, 1, 16);
    bpf_map_lookup_elem(gp_bpf_map(bpf, "device"), &key, &sum);
    return sum;
}

static bool sums_are(const void *bytes)
{
    return device_sum().allocated_bytes == *(const long long *)bytes;
}

static const long long none = 0;

static uint64_t removed_late(void)
{
    return gp_deaths_count(deaths).removed_late;
}

static uint32_t rows(const char *map)
{
    uint8_t key[64], next[64];
    uint32_t count = 0;
    for (void *from = NULL; bpf_map_get_next_key(gp_bpf_map(bpf, map), from, next) == 0; from = key, count++)
        memcpy(key, next, sizeof key);
    return count;
}

/* Detaches the exit tracepoint: replaces the descriptor of this process's link on gpuprof_exit by
 * another file's, so that the loader still closes a valid descriptor. */
static void tracepoint_off(void)
{
    DIR *fds = opendir("/proc/self/fd");
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC), found = 0;
    for (struct dirent *entry; (entry = readdir(fds));) {
        int fd = atoi(entry->d_name);
        char path[300], target[64];
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strcmp(target, "anon_inode:bpf_link") != 0)
            continue;
        struct bpf_link_info info = {0};
        struct bpf_prog_info program = {0};
        uint32_t bytes = sizeof info, program_bytes = sizeof program;
        cr_assert(bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0);
        int program_fd = bpf_prog_get_fd_by_id(info.prog_id);
        cr_assert(program_fd >= 0 && bpf_obj_get_info_by_fd(program_fd, &program, &program_bytes) == 0);
        close(program_fd);
        if (strcmp(program.name, "gpuprof_exit") != 0)
            continue;
        cr_assert(dup2(null, fd) == fd);
        found++;
    }
    closedir(fds);
    close(null);
    cr_assert(eq(int, found, 1));
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

Test(deaths, with_the_tracepoint_the_fallback_removes_no_process)
{
    for (int i = 0; i < 20; i++)
        fire(kid_start(), MIB);
    second();
    cr_assert(eq(u64, gp_deaths_count(deaths).processes, 20));
    for (int i = 0; i < 20; i++)
        kid_end(&kids[i], SIGKILL);
    cr_assert(loop_until(is_quiet, NULL, PATIENCE));
    loop_until(NULL, NULL, 50 * MS);
    cr_assert(eq(u64, gp_deaths_count(deaths).processes, 0));
    cr_assert(eq(u64, removed_late(), 0));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->gone, 20));
}

Test(deaths, sums_are_corrected_without_the_tracepoint)
{
    long long left = 10 * MIB;
    for (int i = 0; i < 20; i++)
        fire(kid_start(), MIB);
    second();
    tracepoint_off();
    for (int i = 0; i < 10; i++)
        kid_kill(&kids[i]);
    cr_assert(eq(i64, device_sum().allocated_bytes, 20 * MIB),
              "the tracepoint is still attached, so the test proves nothing");
    uint64_t from = gp_clock_ns();
    cr_assert(loop_until(sums_are, &left, PATIENCE), "%lld", (long long)device_sum().allocated_bytes);
    cr_log_info("healed %.1f ms after the last kill", (double)(gp_clock_ns() - from) / 1e6);
    cr_assert(eq(u32, device_sum().processes, 10));
    cr_assert(eq(u64, removed_late(), 10), "ended processes that are not reaped stay");
    for (int i = 10; i < 20; i++)
        kid_end(&kids[i], SIGKILL);
    cr_assert(loop_until(sums_are, &none, PATIENCE));
    cr_assert(eq(u32, rows("process_device"), 0));
    cr_assert(eq(u32, rows("process"), 0));
}

/* The process ends before it is tracked: the next scan finds a pid without a process. */
Test(deaths, a_short_process_is_found_by_the_next_scan)
{
    tracepoint_off();
    struct kid *kid = kid_start();
    fire(kid, MIB);
    kid_end(kid, SIGKILL);
    fire(kid_start(), 2 * MIB);
    cr_assert(eq(i64, device_sum().allocated_bytes, 3 * MIB));
    long long left = 2 * MIB;
    gp_deaths_second(deaths);
    cr_assert(loop_until(sums_are, &left, PATIENCE));
    cr_assert(eq(u64, removed_late(), 1));
    cr_assert(eq(u64, gp_deaths_count(deaths).processes, 1));
}

Test(deaths, it_lives_until_its_last_thread_ends)
{
    tracepoint_off();
    struct kid *kid = kid_start();
    fire(kid, MIB);
    second();
    kid_tell(kid, "t"); /* the leader is a zombie now */
    loop_until(NULL, NULL, 100 * MS);
    second();
    cr_assert(eq(i64, device_sum().allocated_bytes, MIB));
    cr_assert(eq(u64, removed_late(), 0));
    kid_kill(kid);
    cr_assert(loop_until(sums_are, &none, PATIENCE));
    cr_assert(eq(u64, removed_late(), 1));
}

Test(deaths, a_chain_of_a_thousand_execs)
{
    struct kid *kid = kid_start();
    for (int i = 0; i < 1000; i++) {
        fire(kid, (i + 1) * MIB);
        if (i % 7 == 0)
            second();
        if (i % 100 == 0) {
            cr_assert(eq(i64, device_sum().allocated_bytes, (i + 1) * MIB));
            cr_assert(eq(u32, device_sum().processes, 1));
        }
        cr_assert(eq(i64, kid_tell(kid, "x"), 0));
        if (i % 100 == 0)
            cr_assert(eq(u32, device_sum().processes, 0));
    }
    second();
    cr_assert(eq(u64, gp_deaths_count(deaths).processes, 0), "a process removed by exec is still tracked");
    cr_assert(eq(u64, removed_late(), 0));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->gone, 1000));
}

/* ---- reused pids ------------------------------------------------------------------------------------------------- */

/* Starts a process with this pid; false: another process has the pid for good. */
static bool kid_again(pid_t pid, struct kid **kid)
{
    for (int i = 0; i < 30; i++) {
        if (!reusepid_next(pid))
            skip("a pid cannot be chosen");
        *kid = kid_start();
        if ((*kid)->pid == pid)
            return true;
        if (i < 29)
            kid_end(*kid, SIGKILL);
    }
    return false;
}

/* The tracepoint is detached. In each round the dead process may be tracked or not, its death
 * noticed before or after its pid is reused, and the other process may have fired or not. In every
 * order the sums end with exactly the living. */
static void reuse(bool has_tracepoint, int times)
{
    if (!has_tracepoint)
        tracepoint_off();
    struct kid *kid = kid_start();
    pid_t pid = kid->pid;
    long long bytes = MIB, expected;
    unsigned seed = 7;
    fire(kid, bytes);
    int i = 0, others = 0;
    for (uint64_t until = gp_clock_ns() + 100000 * MS; i < times && gp_clock_ns() < until; i++) {
        int how = rand_r(&seed);
        uint64_t born_ns = elsewhere_start_ns(pid);
        if (how & 1)
            second();
        kid_end(kid, SIGKILL);
        if (how & 2)
            loop_until(NULL, NULL, (how & 4 ? 1 : 14) * MS);
        if (!kid_again(pid, &kid)) {
            if (++others > 50)
                skip("other processes take the pids: %d reuses", i);
            pid_t theirs = pid;
            pid = kid->pid;
            i--;
            second(); /* the rows of the other pid do not matter here */
            if (!loop_until(sums_are, &none, 3000 * MS) && elsewhere_start_ns(theirs) == born_ns)
                skip("a foreign process %d started in the clock tick of ours: the two cannot be told apart",
                     (int)theirs);
            second(); /* it may have ended meanwhile */
            cr_assert(loop_until(sums_are, &none, PATIENCE));
        }
        expected = 0;
        if (how & 8) {
            bytes = expected = (1 + i % 1000) * MIB;
            fire(kid, bytes);
        }
        if (!(how & 1) || how & 16)
            gp_deaths_second(deaths);
        /* Not tracked when it died, and its pid reused within the same 10 ms: the ticks are equal,
         * so the rows stay until the other process fires or ends. */
        bool is_hidden = !(how & 8) && !loop_until(sums_are, &expected, how & 1 ? PATIENCE : 60 * MS);
        cr_assert(not(is_hidden && how & 1), "%d: %lld and not %lld", i, (long long)device_sum().allocated_bytes,
                  expected);
        if (how & 8 || is_hidden) { /* the rows stay */
            if (is_hidden)
                fire(kid, bytes = expected = 3 * MIB);
            loop_until(NULL, NULL, 12 * MS);
            cr_assert(eq(i64, device_sum().allocated_bytes, expected), "%d %x", i, how);
            cr_assert(eq(u32, device_sum().processes, 1));
        } else if (how & 32)
            fire(kid, bytes);
    }
    cr_log_info("%d reuses of %d, %llu taken", i, pid, (unsigned long long)removed_late());
}

Test(deaths, a_thousand_reuses_of_one_pid)
{
    reuse(false, test_is_full() ? 1000 : 200);
    cr_assert(gt(u64, removed_late(), 0));
}

Test(deaths, reuses_beside_the_tracepoint)
{
    reuse(true, test_is_full() ? 200 : 50);
    cr_assert(eq(u64, removed_late(), 0));
}

/* ---- many -------------------------------------------------------------------------------------------------------- */

static void row_write(uint32_t tgid, uint64_t start_ns)
{
    struct gp_bpf_process state = {.start_ns = start_ns};
    cr_assert(bpf_map_update_elem(gp_bpf_map(bpf, "process"), &tgid, &state, BPF_ANY) == 0);
}

static void rows_of_sleepers(int count)
{
    sleepers_start(count);
    for (int i = 0; i < count; i++)
        row_write((uint32_t)sleepers[i], elsewhere_start_ns(sleepers[i]));
}

static double cpu_ms(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e3 +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e3;
}

static long rss_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static bool is_table_empty(const void *unused)
{
    (void)unused;
    return rows("process") == 0;
}

Test(deaths, a_thousand_processes_cost_little)
{
    enum { ALL = 1000, LOOKS = 20 };
    tracepoint_off();
    rows_of_sleepers(ALL);
    long before = rss_kib();
    double from = cpu_ms();
    second();
    double first = cpu_ms() - from;
    cr_assert(eq(u64, gp_deaths_count(deaths).processes, ALL));
    long after = rss_kib();
    from = cpu_ms();
    for (int i = 0; i < LOOKS; i++)
        second();
    double look = (cpu_ms() - from) / LOOKS;
    cr_log_info("tracked in %.1f ms of CPU, then %.2f ms per second; %ld KiB", first, look, after - before);
    cr_assert(lt(dbl, look, 50.0), "%f ms of CPU for a look", look);
    cr_assert(lt(long, after - before, 8192l));
    from = cpu_ms();
    uint64_t start = gp_clock_ns();
    sleepers_end();
    double ending = cpu_ms() - from;
    cr_assert(loop_until(is_table_empty, NULL, PATIENCE), "%u left", rows("process"));
    cr_assert(eq(u64, removed_late(), ALL));
    cr_log_info("all killed and removed from the tables after %.0f ms, %.1f ms of CPU",
                (double)(gp_clock_ns() - start) / 1e6, cpu_ms() - from - ending);
}

/* The table is full of processes that no longer exist, twice over. */
Test(deaths, a_full_table_of_ended_processes)
{
    uint32_t no_process = 5000000; /* above the kernel's limit of 4 million numbers */
    for (int round = 1; round <= 2; round++) {
        for (uint32_t i = 0; i < GP_MAPS_PROCESSES; i++)
            row_write(no_process + i, 1 + i);
        double from = cpu_ms();
        uint64_t start = gp_clock_ns();
        gp_deaths_second(deaths);
        cr_assert(loop_until(is_table_empty, NULL, PATIENCE), "%u left", rows("process"));
        cr_log_info("%u dead out in %.0f ms, %.0f ms of CPU with the test's own counting", GP_MAPS_PROCESSES,
                    (double)(gp_clock_ns() - start) / 1e6, cpu_ms() - from);
        cr_assert(eq(u64, removed_late(), (uint64_t)round * GP_MAPS_PROCESSES));
    }
}

/* Descriptors for 60 processes: the others are checked in each scan, and their ends are noticed
 * too. */
Test(deaths, few_descriptors)
{
    tracepoint_off();
    rows_of_sleepers(200);
    struct rlimit few = {120, 4096};
    cr_assert(setrlimit(RLIMIT_NOFILE, &few) == 0);
    second();
    cr_assert(eq(u64, gp_deaths_count(deaths).processes, 60));
    cr_assert(eq(u64, gp_deaths_count(deaths).polled, 140));
    cr_assert(eq(u64, gp_deaths_count(deaths).unknown, 0));
    for (int i = 0; i < 100; i++) {
        kill(sleepers[i], SIGKILL);
        siginfo_t info; /* not reaped: the pid still exists */
        waitid(P_PID, (id_t)sleepers[i], &info, WEXITED | WNOWAIT);
    }
    second();
    loop_until(NULL, NULL, 30 * MS);
    cr_assert(eq(u64, removed_late(), 100));
    cr_assert(eq(u32, rows("process"), 100));
    second();
    cr_assert(eq(u64, gp_deaths_count(deaths).processes + gp_deaths_count(deaths).polled, 100));
    /* With no descriptor left, no process is taken for dead, a warning is logged, and later all is
     * well again. */
    int spent[4096], n = 0;
    while (n < 4096 && (spent[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    uint64_t held = gp_deaths_count(deaths).processes;
    second();
    uint64_t unknown = gp_deaths_count(deaths).unknown;
    while (n-- > 0)
        close(spent[n]);
    cr_assert(eq(u64, unknown, 100 - held));
    second();
    loop_until(NULL, NULL, 30 * MS);
    cr_assert(eq(u64, gp_deaths_count(deaths).unknown, 0));
    cr_assert(eq(u64, removed_late(), 100));
    cr_assert(eq(u32, rows("process"), 100));
}

/* ---- containers -------------------------------------------------------------------------------------------------- */

static bool has_container(uint64_t id)
{
    struct gp_map_container row;
    return bpf_map_lookup_elem(gp_bpf_map(bpf, "container"), &id, &row) == 0;
}

static bool has_sum(uint64_t id)
{
    struct gp_map_container_key key = {.cgroup_id = id};
    struct gp_map_sum sum;
    memset(key.uuid, 1, 16);
    return bpf_map_lookup_elem(gp_bpf_map(bpf, "container_device"), &key, &sum) == 0;
}

Test(deaths, only_a_removed_cgroup_loses_its_rows)
{
    uint64_t removed = group_make(0), idle = group_make(1), left = group_make(2);
    if (!removed || !idle || !left)
        skip("cannot make a cgroup: %s", strerror(errno));
    struct kid *kid = kid_start();
    cr_assert(group_enter(0, kid->pid));
    fire(kid, MIB);
    cr_assert(group_enter(1, kid->pid));
    fire(kid, MIB);
    cr_assert(group_enter(2, kid->pid));
    fire(kid, MIB);
    cr_assert(group_enter(1, kid->pid)); /* fires no batch there yet */
    cr_assert(group_remove(0) && group_remove(2));
    second();
    cr_assert(has_container(removed), "freed at the first scan");
    second();
    cr_assert(not(has_container(removed) || has_sum(removed)));
    cr_assert(has_container(idle) && has_sum(idle), "an existing cgroup without processes lost its rows");
    cr_assert(has_container(left) && has_sum(left), "a cgroup with a counted process lost its rows");
    cr_assert(eq(u64, gp_deaths_count(deaths).containers, 1));
    fire(kid, 2 * MIB);
    second();
    second();
    cr_assert(not(has_container(left) || has_sum(left)));
    cr_assert(eq(u64, gp_deaths_count(deaths).containers, 2));
    cr_assert(eq(i64, device_sum().allocated_bytes, 2 * MIB));
}

/* One process goes through ten thousand cgroups; the tables have room for 64. */
Test(deaths_few_containers, ten_thousand_cgroups_made_and_removed)
{
    enum { ALL = 10000, AT_ONCE = 20 };
    if (!group_make(0))
        skip("cannot make a cgroup: %s", strerror(errno));
    struct kid *kid = kid_start();
    uint32_t most = 0;
    for (int i = 0; i < ALL; i++) {
        cr_assert(group_enter(i, kid->pid), "%d: %s", i, strerror(errno));
        fire(kid, MIB);
        cr_assert(group_make(i + 1) != 0);
        if (i > 0)
            cr_assert(group_remove(i - 1));
        group_first = i > 0 ? i : 0;
        if (i % AT_ONCE == 0) {
            second();
            uint32_t now = rows("container");
            most = now > most ? now : most;
        }
    }
    cr_log_info("%u containers at most at once, %llu forgotten, %llu times no room", most,
                (unsigned long long)gp_deaths_count(deaths).containers, (unsigned long long)gp_bpf_meta(bpf)->map_full);
    cr_assert(eq(u64, gp_bpf_meta(bpf)->map_full, 0), "a later one found no room");
    cr_assert(le(u32, most, 3 * AT_ONCE));
    cr_assert(gt(u64, gp_deaths_count(deaths).containers, ALL - 3 * AT_ONCE));
    cr_assert(eq(u64, gp_bpf_meta(bpf)->clamped, 0));
    cr_assert(eq(i64, device_sum().allocated_bytes, MIB));
}

/* Full tables of both kinds, including sums without a container's row: all rows are freed, with one
 * walk for many. */
Test(deaths, full_tables_of_removed_cgroups)
{
    struct gp_map_container row = {.batches = 1};
    struct gp_map_sum sum = {.calls = 1};
    for (uint64_t i = 0; i < GP_MAPS_CONTAINERS; i++) {
        uint64_t id = (1ull << 40) + i;
        struct gp_map_container_key key = {.cgroup_id = id + GP_MAPS_CONTAINERS / 2};
        cr_assert(bpf_map_update_elem(gp_bpf_map(bpf, "container"), &id, &row, BPF_ANY) == 0);
        cr_assert(bpf_map_update_elem(gp_bpf_map(bpf, "container_device"), &key, &sum, BPF_ANY) == 0);
    }
    double from = cpu_ms(), most = 0;
    for (int i = 0; i < 9; i++) { /* sums without a container's row are scanned in two scans of eight */
        double before = cpu_ms();
        second();
        double took = cpu_ms() - before;
        most = took > most ? took : most;
    }
    cr_assert(eq(u32, rows("container"), 0));
    cr_assert(eq(u32, rows("container_device"), 0));
    cr_assert(eq(u64, gp_deaths_count(deaths).containers, GP_MAPS_CONTAINERS / 2 * 3));
    cr_log_info("two tables of %u: %.1f ms of CPU in all, %.1f ms in one scan", GP_MAPS_CONTAINERS, cpu_ms() - from,
                most);
}

/* Version 1: marked numbers of existing and of removed cgroups. */
Test(deaths, cgroups_of_version_1)
{
    static const struct {
        const char *option;
        uint64_t mark;
    } kinds[] = {{"memory", GP_MAP_CGROUP_V1}, {"pids", GP_MAP_CGROUP_V1_PIDS}};
    int seen = 0;
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_MAX];
        struct stat about;
        if (!mounts_find("cgroup", kinds[i].option, path, 512))
            continue;
        snprintf(path + strlen(path), 64, "/gpuprof-test-deaths-%d", getpid());
        if (mkdir(path, 0755))
            continue;
        int found = stat(path, &about);
        uint64_t id = about.st_ino | kinds[i].mark;
        struct gp_map_container row = {.batches = 1};
        int written = bpf_map_update_elem(gp_bpf_map(bpf, "container"), &id, &row, BPF_ANY);
        for (int look = 0; look < 3; look++)
            second();
        bool is_kept = has_container(id);
        int removed = rmdir(path);
        second();
        second();
        cr_assert(found == 0 && written == 0 && removed == 0);
        cr_assert(is_kept, "%s: it exists", kinds[i].option);
        cr_assert(not(has_container(id)), "%s", kinds[i].option);
        seen++;
    }
    if (!seen)
        skip("cannot make a cgroup of version 1");
}
