/* SPDX-License-Identifier: MIT
 *
 * test_query.c: tests queries of processes that are idle when the agent starts
 * (tools/agent/query.h): programs under the real library and the simulated GPU, and hostile
 * sessions made by the test. Skips without BPF.
 * Run: alone
 */
#include "agent/deaths.h"
#include "agent/query.h"
#include "base/clock.h"
#include "lib/keeper.h"
#include "lib/paths.h"
#include "lib/spawn.h"
#include <agent/kernel/bpf.h>
#include <bpf/bpf.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/maps.h>
#include <gpuprof/wire.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB      (1ll << 20)
#define MS       1000000ull
#define PROGRAMS 20

static struct gp_bpf *bpf;
static struct gp_querier *querier;
static char library[64];
static struct gp_bpf_probe probe;
static int library_fd = -1, link_fd = -1;
static struct spawn spawned[PROGRAMS];
static int spawned_count;
static pid_t hostile[64];
static int hostile_count;

/* ---- setup, teardown --------------------------------------------------------------------------------------------- */

/* A copy of the library that only this test arms. */
static void begin(void)
{
    char why[512], command[4096 + 128];
    if (geteuid() != 0)
        cr_skip_test("not root");
    int error = gp_bpf_open(&bpf, NULL, why, sizeof why);
    if (error == -EPERM || error == -ENOTSUP)
        cr_skip_test("%s", why);
    cr_assert(error == 0, "%s", why);
    keeper_start(NULL);
    snprintf(library, sizeof library, "/tmp/gpuprof-test-query-%d.so", getpid());
    snprintf(command, sizeof command, "cp '%s' %s", path_library(), library);
    cr_assert(system(command) == 0);
    library_fd = open(library, O_RDONLY | O_CLOEXEC);
    cr_assert(library_fd >= 0 && gp_bpf_probe_find(library_fd, &probe) == 0);
}

static void programs_end(void)
{
    for (int i = 0; i < spawned_count; i++) {
        struct spawn_result result = {0};
        spawn_kill(&spawned[i], SIGCONT);
        spawn_kill(&spawned[i], SIGKILL);
        spawn_finish(&spawned[i], &result);
        spawn_result_free(&result);
    }
    spawned_count = 0;
}

static void end(void)
{
    programs_end();
    for (int i = 0; i < hostile_count; i++) {
        kill(hostile[i], SIGKILL);
        waitpid(hostile[i], NULL, 0);
    }
    gp_query_close(querier);
    if (link_fd >= 0)
        close(link_fd);
    gp_bpf_close(bpf);
    if (*library)
        unlink(library);
}

TestSuite(query, .init = begin, .fini = end, .timeout = 120);

/* Starts a program that stops after its first allocation of 1 MiB. */
static struct spawn *program_start(void)
{
    char inject[96];
    const char *argv[] = {path_program("steps"), NULL}, *env[] = {inject, NULL};
    struct spawn_options options = {.argv = argv, .env = env, .want_library = true, .want_hold = true};
    struct spawn *spawn = &spawned[spawned_count++];
    snprintf(inject, sizeof inject, "CUDA_INJECTION64_PATH=%s", library);
    cr_assert(spawn_start(spawn, &options) == 0);
    cr_assert(spawn_wait_held(spawn, 1) == 0);
    return spawn;
}

static void arm(void)
{
    char why[512];
    link_fd = gp_bpf_attach(bpf, library_fd, &probe, why, sizeof why);
    cr_assert(link_fd >= 0, "%s", why);
}

static bool is_counted(pid_t pid)
{
    struct gp_map_process_key key = {.tgid = (uint32_t)pid};
    struct gp_map_process row;
    return bpf_map_lookup_elem(gp_bpf_map(bpf, "process_device"), &key, &row) == 0 && row.allocated_bytes == MIB;
}

static int counted(void)
{
    int count = 0;
    for (int i = 0; i < spawned_count; i++)
        count += is_counted(spawned[i].pid);
    return count;
}

/* Milliseconds until this many are counted; -1: not in time. */
static double until_counted(int count, int ms)
{
    uint64_t from = gp_clock_ns();
    while (gp_clock_ns() - from < (uint64_t)ms * MS) {
        if (counted() >= count)
            return (double)(gp_clock_ns() - from) / 1e6;
        usleep(1000);
    }
    return -1;
}

static bool wait_for(bool (*is)(const struct gp_query_count *), int ms)
{
    for (uint64_t until = gp_clock_ns() + (uint64_t)ms * MS; gp_clock_ns() < until; usleep(2000)) {
        struct gp_query_count count = gp_query_count(querier);
        if (is(&count))
            return true;
    }
    return false;
}

static bool queue_is_empty(const struct gp_query_count *count)
{
    return count->waiting == 0;
}

static double cpu_ms(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e3 +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e3;
}

/* ---- idle processes ---------------------------------------------------------------------------------------------- */

Test(query, idle_processes_are_in_the_tables_within_a_second)
{
    for (int i = 0; i < PROGRAMS; i++)
        program_start();
    pid_t stopped = spawned[3].pid;
    sleep(2); /* their drain threads have been idle for long */
    arm();
    cr_assert(lt(dbl, until_counted(1, 1500), 0.0), "a program fired without a query, so the test proves nothing");
    cr_assert(spawn_stop(stopped) == 0);
    cr_assert(gp_query_open(&querier) == 0);
    uint64_t from = gp_clock_ns();
    for (int i = 0; i < PROGRAMS; i++)
        gp_query_add(querier, spawned[i].pid);
    double added = (double)(gp_clock_ns() - from) / 1e6, took = until_counted(PROGRAMS - 1, 1000);
    cr_log_info("%d asked: %.2f ms to hand over, all but the stopped one in after %.1f ms", PROGRAMS, added, took);
    cr_assert(ge(dbl, took, 0.0), "%d after a second", counted());
    cr_assert(not(is_counted(stopped)));
    /* The stopped process continues when the querier no longer waits: the last request is still in
     * its mailbox. */
    cr_assert(wait_for(queue_is_empty, 20000));
    struct gp_query_count count = gp_query_count(querier);
    cr_assert(eq(u64, count.answered, PROGRAMS - 1));
    cr_assert(eq(u64, count.silent, 1));
    cr_assert(not(is_counted(stopped)));
    kill(stopped, SIGCONT);
    cr_assert(ge(dbl, until_counted(PROGRAMS, 5000), 0.0), "it did not fire when it continued");
    struct gp_map_device_key key;
    struct gp_map_sum sum = {0};
    cr_assert(bpf_map_get_next_key(gp_bpf_map(bpf, "device"), NULL, &key) == 0);
    cr_assert(bpf_map_lookup_elem(gp_bpf_map(bpf, "device"), &key, &sum) == 0);
    cr_assert(eq(i64, sum.allocated_bytes, PROGRAMS * MIB));
    cr_assert(eq(u32, sum.processes, PROGRAMS));
}

Test(query, one_that_continues_after_a_while_is_asked_again)
{
    struct spawn *program = program_start();
    /* Stopped before the probe is there: its thread is still awake and would speak without being asked. */
    cr_assert(spawn_stop(program->pid) == 0);
    arm();
    cr_assert(gp_query_open(&querier) == 0);
    gp_query_add(querier, program->pid);
    usleep(1500000); /* the first try is over, the second has not started */
    cr_assert(eq(u32, gp_query_count(querier).waiting, 1));
    kill(program->pid, SIGCONT);
    cr_assert(ge(dbl, until_counted(1, 5000), 0.0));
    cr_assert(wait_for(queue_is_empty, 5000));
    cr_assert(eq(u64, gp_query_count(querier).answered, 1));
}

Test(query, no_process_is_asked_twice)
{
    struct spawn *program = program_start();
    arm();
    cr_assert(gp_query_open(&querier) == 0);
    for (int i = 0; i < 100; i++)
        gp_query_add(querier, program->pid);
    cr_assert(ge(dbl, until_counted(1, 3000), 0.0));
    cr_assert(wait_for(queue_is_empty, 3000));
    uint64_t batches = gp_bpf_meta(bpf)->batches;
    for (int i = 0; i < 100; i++, usleep(1000))
        gp_query_add(querier, program->pid);
    usleep(300000);
    /* Far fewer than one per call; viewers that run beside this test may ask, too. */
    cr_assert(lt(u64, gp_bpf_meta(bpf)->batches, batches + 50));
    cr_assert(eq(u64, gp_query_count(querier).answered, 1));
    cr_assert(eq(u32, gp_query_count(querier).waiting, 0));
}

static void turn_until(struct gp_deaths *deaths, uint64_t processes)
{
    for (uint64_t until = gp_clock_ns() + 5000 * MS; gp_clock_ns() < until; usleep(1000)) {
        gp_deaths_turn(deaths);
        if (gp_deaths_count(deaths).processes == processes)
            return;
    }
}

/* Tracepoint and fallback together with the real library; test_deaths.c detaches the tracepoint. */
Test(query, a_queried_and_killed_process_leaves_the_sums)
{
    struct gp_deaths *deaths;
    program_start();
    program_start();
    arm();
    cr_assert(gp_query_open(&querier) == 0);
    cr_assert(gp_deaths_open(&deaths, bpf) == 0);
    gp_query_add(querier, spawned[0].pid);
    gp_query_add(querier, spawned[1].pid);
    cr_assert(ge(dbl, until_counted(2, 3000), 0.0));
    gp_deaths_second(deaths);
    turn_until(deaths, 2);
    cr_assert(eq(u64, gp_deaths_count(deaths).processes, 2));
    programs_end();
    turn_until(deaths, 0);
    struct gp_deaths_count count = gp_deaths_count(deaths);
    gp_deaths_close(deaths);
    cr_assert(eq(u64, count.processes, 0));
    cr_assert(eq(u64, count.removed_late, 0), "the fallback removed a process that the tracepoint should have removed");
}

/* ---- processes that do not answer, or forge answers -------------------------------------------------------------- */

enum { NO_SESSION, NEVER_ANSWERS, NO_SLOT, NO_DRAIN, ALL_HOLES, RUBBISH, WRONG_STATES, MANY_FILES, HOSTILITIES };

static void session_write(int fd, uint64_t at, const void *from, size_t bytes)
{
    if (pwrite(fd, from, bytes, (off_t)at) != (ssize_t)bytes)
        _exit(98);
}

/* A session as peer.c expects it, without a drain thread. */
static void session_make(int how)
{
    struct gp_wire_header header = {.magic = GP_WIRE_MAGIC, .abi = GP_WIRE_ABI, .header_bytes = sizeof header};
    uint64_t at = 4096;
#define PART(_offset, _size, _bytes, _count)                                                                           \
    (header._offset = at, header._size = (uint32_t)(_bytes), at += ((uint64_t)(_bytes) * (_count) + 4095) / 4096 * 4096)
    header.pid = (uint32_t)getpid();
    header.device_count = GP_WIRE_DEVICES, header.scope_count = GP_WIRE_SCOPES;
    header.failure_count = GP_WIRE_FAILURES, header.slot_count = GP_WIRE_SLOTS, header.chunk_count = 1;
    PART(devices_offset, device_bytes, sizeof(struct gp_wire_device), GP_WIRE_DEVICES);
    PART(scopes_offset, scope_bytes, sizeof(struct gp_wire_scope), GP_WIRE_SCOPES);
    PART(failures_offset, failure_bytes, sizeof(struct gp_wire_failure), GP_WIRE_FAILURES);
    PART(oom_offset, oom_bytes, sizeof(struct gp_wire_oom), 1);
    PART(mailbox_offset, mailbox_bytes, sizeof(struct gp_wire_mailbox), 1);
    PART(ring_offset, chunk_bytes, sizeof(struct gp_wire_chunk), 1);
    header.total_bytes = at;
    int fd = memfd_create(GP_WIRE_SESSION_NAME, MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)at))
        _exit(97);
    if (how == RUBBISH)
        header.mailbox_offset = UINT64_MAX - 8;
    uint32_t head[2] = {0, (uint32_t)getpid()}, state = how == NO_SLOT ? GP_SLOT_SERVING : GP_SLOT_FREE;
    session_write(fd, 0, &header, sizeof header);
    if (how != NO_DRAIN && how != ALL_HOLES && how != RUBBISH)
        session_write(fd, header.mailbox_offset, head, sizeof head);
    for (unsigned i = 0; how == NO_SLOT && i < GP_WIRE_SLOTS; i++)
        session_write(fd, header.mailbox_offset + offsetof(struct gp_wire_mailbox, slots[i].state), &state, 4);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        _exit(96);
    for (uint32_t turn = 0; how == WRONG_STATES; turn++) { /* all states that a slot can have, and more */
        session_write(fd, header.mailbox_offset + offsetof(struct gp_wire_mailbox, slots[turn % 2].state), &turn, 4);
        if (turn > 6)
            turn = 0, usleep(100);
    }
}

static pid_t hostile_start(int how)
{
    int ready[2];
    char byte = 0;
    cr_assert(pipe2(ready, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit files = {20000, 20000};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setrlimit(RLIMIT_NOFILE, &files);
        for (int i = 0; how == MANY_FILES && i < 15000; i++)
            dup(0);
        if (how == WRONG_STATES)
            write(ready[1], "x", 1); /* the next call does not return */
        if (how != NO_SESSION)
            session_make(how);
        write(ready[1], "x", 1);
        for (;;)
            pause();
    }
    cr_assert(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    hostile[hostile_count++] = pid;
    return pid;
}

Test(query, hostile_processes_have_a_bounded_cost_and_delay_no_other)
{
    enum { OF_EACH = 4, HONEST = 3 };
    for (int how = 0; how < HOSTILITIES; how++)
        for (int i = 0; i < OF_EACH; i++)
            hostile_start(how);
    for (int i = 0; i < HONEST; i++)
        program_start();
    arm();
    cr_assert(gp_query_open(&querier) == 0);
    double from = cpu_ms();
    uint64_t start = gp_clock_ns();
    for (int i = 0; i < hostile_count; i++)
        gp_query_add(querier, hostile[i]);
    gp_query_add(querier, 1 << 22); /* no such process */
    for (int i = 0; i < HONEST; i++)
        gp_query_add(querier, spawned[i].pid);
    double took = until_counted(HONEST, 3000);
    cr_assert(ge(dbl, took, 0.0), "honest processes wait for hostile ones");
    cr_assert(wait_for(queue_is_empty, 60000));
    struct gp_query_count count = gp_query_count(querier);
    double seconds = (double)(gp_clock_ns() - start) / 1e9, cpu = cpu_ms() - from;
    cr_log_info(
        "honest processes counted after %.0f ms; all done after %.1f s with %.0f ms of CPU; %llu answered, %llu silent",
        took, seconds, cpu, (unsigned long long)count.answered, (unsigned long long)count.silent);
    cr_assert(eq(u64, count.answered + count.silent, (uint64_t)hostile_count + HONEST));
    cr_assert(ge(u64, count.silent, (HOSTILITIES - 1) * OF_EACH),
              "too few did not answer (one that changes its states may seem to answer)");
    /* Three tries of one second and pauses of 1 s and 4 s make 8 s; a loaded machine adds to that. */
    cr_assert(lt(dbl, seconds, 30.0));
    cr_assert(eq(u32, count.waiting, 0));
}

/* The number of pages that PID's session has, after the querier has asked it for three seconds. */
static int pages_once_asked(pid_t pid)
{
    char path[64];
    struct stat about;
    gp_query_add(querier, pid);
    sleep(3);
    for (int fd = 3; fd < 64; fd++) {
        char target[64] = "";
        snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, GP_WIRE_SESSION_NAME) &&
            stat(path, &about) == 0)
            return (int)(about.st_blocks / 8);
    }
    return -1;
}

/* The querier does not allocate pages that the process never created.  A viewer that lists all sessions of the machine at
 * that moment, for another test, may: then another process shows it. */
Test(query, holes_are_not_filled)
{
    int pages = -1, want = (int)((sizeof(struct gp_wire_header) + 4095) / 4096);
    cr_assert(gp_query_open(&querier) == 0);
    for (uint32_t turn = 1; turn <= 5 && pages != want; turn++) {
        pages = pages_once_asked(hostile_start(ALL_HOLES));
        cr_assert(ge(u32, gp_query_count(querier).waiting, 1));
    }
    cr_assert(eq(int, pages, want));
}

/* ---- many -------------------------------------------------------------------------------------------------------- */

/* More pids than there is room for, none of them a process; then there is room again. */
Test(query, more_than_there_is_room_for)
{
    cr_assert(gp_query_open(&querier) == 0);
    uint64_t from = gp_clock_ns(), most = 0;
    for (int i = 0; i < 3 * (int)GP_MAPS_PROCESSES; i++) {
        uint64_t before = gp_clock_ns();
        gp_query_add(querier, (1 << 22) + i);
        uint64_t took = gp_clock_ns() - before;
        most = took > most ? took : most;
    }
    double all = (double)(gp_clock_ns() - from) / 1e6;
    cr_assert(wait_for(queue_is_empty, 30000));
    struct gp_query_count count = gp_query_count(querier);
    cr_log_info("%d added in %.0f ms, the slowest took %.2f ms; %llu had no room", 3 * (int)GP_MAPS_PROCESSES, all,
                (double)most / 1e6, (unsigned long long)count.refused);
    cr_assert(eq(u64, count.answered + count.silent, 0));
    struct spawn *program = program_start();
    arm();
    gp_query_add(querier, program->pid);
    cr_assert(ge(dbl, until_counted(1, 3000), 0.0));
}
