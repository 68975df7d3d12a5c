/* SPDX-License-Identifier: MIT
 *
 * test_agent_kill.c: kills the agent with SIGKILL repeatedly under load. No probe stays armed, a
 * program that allocates all the time is not delayed, and the next agent sees the memory of idle
 * programs.
 * Run: quiet
 */
#include "integration/agentcase.h"
#include "lib/full.h"
#include <fcntl.h>
#include <sys/file.h>

TestSuite(agent_kill, .fini = end, .timeout = 900);

/* ---- latency of a program's calls -------------------------------------------------------------------------------- */

struct call { /* as agent_walk writes it */
    uint64_t start_ns, took_ns;
};
struct span { /* of time */
    uint64_t from_ns, to_ns;
};

enum { ROUNDS_MOST = 1000, CALLS_PER_S = 5000 };

static struct span kills[ROUNDS_MOST], starts[ROUNDS_MOST], calm[ROUNDS_MOST];

static long rounds_asked(void)
{
    const char *many = getenv("GPUPROF_TEST_MANY");
    long rounds = many ? atol(many) : test_is_full() ? 20 : 11; /* the second worst of eleven is nine of ten */
    return rounds < 1 ? 1 : rounds > ROUNDS_MOST ? ROUNDS_MOST : rounds;
}

/* The longest call in progress during that span, in ms. */
static double longest(const struct call *calls, size_t count, const struct span *span)
{
    uint64_t most = 0;
    for (size_t i = 0; i < count && calls[i].start_ns < span->to_ns; i++)
        if (calls[i].start_ns + calls[i].took_ns >= span->from_ns && calls[i].took_ns > most)
            most = calls[i].took_ns;
    return (double)most / 1e6;
}

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

struct latency {
    double median, ninth, worst; /* of the longest calls of each span, ms; ninth: nine of ten are below */
};

static struct latency latency_of(const struct call *calls, size_t count, const struct span *spans, long rounds)
{
    static double most[ROUNDS_MOST];
    for (long i = 0; i < rounds; i++)
        most[i] = longest(calls, count, &spans[i]);
    qsort(most, (size_t)rounds, sizeof most[0], by_size);
    return (struct latency){most[rounds / 2], most[rounds * 9 / 10], most[rounds - 1]};
}

static struct call *calls_of(struct kid *kid, size_t *count)
{
    char path[128];
    snprintf(path, sizeof path, "%s/calls", place.dir);
    long long number = kid_tell(kid, "q %s", path);
    cr_assert(gt(i64, number, 100), "calls were not timed");
    struct call *calls = calloc((size_t)number, sizeof *calls);
    FILE *file = fopen(path, "re");
    cr_assert(calls != NULL && file != NULL);
    *count = fread(calls, sizeof *calls, (size_t)number, file);
    fclose(file);
    cr_assert(eq(u64, *count, (uint64_t)number));
    return calls;
}

/* ---- one round --------------------------------------------------------------------------------------------------- */

/* From kid number `from` on. Reading a process's memory holds its address space for a moment, which
 * may delay the timed process. */
static void semaphores_fall(int from)
{
    for (int i = from; i < kid_count; i++) {
        int value = -1;
        for (int tries = 0; tries < 2000 && (value = agent_semaphore(kids[i].pid, place.library)) != 0; tries++)
            usleep(5000);
        cr_assert(eq(int, value, 0), "pid %d is still listened to", (int)kids[i].pid);
    }
}

static void kill_round(struct span *span)
{
    struct agent_ids ids;
    struct gp_map_meta meta;
    agent_ids_read(&ids, agent.pid);
    cr_assert(gt(uint, ids.program_count, 1));
    pid_t pid = agent.pid;
    close_maps();
    span->from_ns = now_ns();
    int status = agent_stop(&agent, SIGKILL);
    cr_assert(eq(int, status, SIGKILL)); /* as waitpid reports it */
    semaphores_fall(1);
    cr_assert(eq(uint, agent_ids_left(&ids, true), 0), "programs or links of the dead agent remain");
    usleep(20000);
    span->to_ns = now_ns();
    semaphores_fall(0);
    cr_assert(agent_meta(&place, &meta) == 0, "the pins are gone");
    cr_assert(eq(u32, meta.agent_pid, (uint32_t)pid));
}

static void start_round(struct span *span)
{
    span->from_ns = now_ns();
    start_agent(&(struct agent_options){0});
    usleep(20000);
    span->to_ns = now_ns();
}

/* The load: programs that allocate as fast as they can at ordinary priority. */
static void load_begin(void)
{
    for (int i = 1; i <= 2; i++)
        kid_send(walk(groups[i]), "c 1000000000 %lld", 2 * MIB);
}

static void rounds_run(long rounds)
{
    for (long i = 0; i < rounds; i++) {
        usleep(30000);
        calm[i].from_ns = now_ns();
        usleep(60000);
        calm[i].to_ns = now_ns();
        kill_round(&kills[i]);
        start_round(&starts[i]);
    }
}

/* The control is the calls in calm spans of the same run: same machine, same load, and the program
 * is listened to as before a kill. A kill's span may be longer than the calm one before it and
 * collect more of the machine's own delays, hence medians and nine of ten instead of the worst. A
 * stall caused by deaths comes with nearly every death, since each disarms the same probes, and
 * shows in the median; one in five deaths shows in nine of ten. The timed thread runs in real time
 * where allowed, so that the neighbours' load is not measured. A virtual machine's host may still
 * stop it, so the best of three tries counts. */
static bool stalls_are_the_machines(const struct call *calls, size_t count, long rounds)
{
    struct latency at_kill = latency_of(calls, count, kills, rounds),
                   at_start = latency_of(calls, count, starts, rounds);
    struct latency control = latency_of(calls, count, calm, rounds);
    cr_log_info(
        "%ld kills: the longest call around a kill %.3f ms in the median, %.3f nine of ten, %.3f worst; around a "
        "start %.3f, %.3f, %.3f; in calm %.3f, %.3f, %.3f",
        rounds, at_kill.median, at_kill.ninth, at_kill.worst, at_start.median, at_start.ninth, at_start.worst,
        control.median, control.ninth, control.worst);
    cr_assert(gt(dbl, control.median, 0), "no calls were timed in calm spans");
    return at_kill.median <= control.median + 1 && at_kill.ninth <= control.ninth + 1 &&
           at_start.median <= control.median + 1 && at_start.ninth <= control.ninth + 10;
}

/* Only one test at a time has a real-time thread: two would leave the agents, at ordinary priority,
 * almost no time on two processors. The lock is released when the test ends. */
static void only_one(void)
{
    int fd = open(path_command(), O_RDONLY | O_CLOEXEC);
    cr_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
}

static struct kid *timed_begin(long long bytes)
{
    only_one();
    struct kid *timed = walk_with(groups[0], bytes); /* it keeps one block */
    load_begin();
    return timed;
}

static struct call *timed_rounds(struct kid *timed, long long bytes, long rounds, size_t *count)
{
    long long real_time = kid_tell(timed, "s %d %lld", CALLS_PER_S, bytes);
    cr_assert(ge(i64, real_time, 0));
    cr_log_info("timed at %s priority", real_time ? "real-time" : "ordinary");
    rounds_run(rounds);
    return calls_of(timed, count);
}

/* Small blocks: the simulated driver needs no system call for them, so the library is timed. */
Test(agent_kill, no_program_is_delayed_and_no_probe_stays_armed, .init = begin)
{
    bool is_calm = false;
    struct kid *timed = timed_begin(4096);
    for (int tries = 0; tries < 3 && !is_calm; tries++) {
        size_t count;
        struct call *calls = timed_rounds(timed, 4096, rounds_asked(), &count);
        is_calm = stalls_are_the_machines(calls, count, rounds_asked());
        free(calls);
    }
    cr_assert(is_calm, "calls take more than 1 ms longer around the death or the start of an agent");
    for (int i = 0; i < kid_count; i++)
        cr_assert(eq(int, agent_semaphore(kids[i].pid, place.library), 1),
                  "the last agent is not attached exactly once");
}

/* The driver maps large blocks and so waits for the lock of the address space, which the kernel
 * holds while it places or removes a probe, for as long as the load keeps the holder from a
 * processor (real time does not help). That is some time slices of the load, also in calm spans,
 * and is printed. Only a program that hangs is an error. */
Test(agent_kill, calls_that_map_memory_do_not_hang, .init = begin)
{
    size_t count;
    long most = test_is_full() ? 20 : 4, rounds = rounds_asked() < most ? rounds_asked() : most;
    struct call *calls = timed_rounds(timed_begin(2 * MIB), 2 * MIB, rounds, &count);
    stalls_are_the_machines(calls, count, rounds);
    struct latency at_kill = latency_of(calls, count, kills, rounds),
                   at_start = latency_of(calls, count, starts, rounds);
    free(calls);
    cr_assert(lt(dbl, at_kill.worst, 2000.0));
    cr_assert(lt(dbl, at_start.worst, 2000.0));
}

/* ---- the next agent ---------------------------------------------------------------------------------------------- */

Test(agent_kill, pins_outlive_it_and_are_reported_as_old, .init = begin)
{
    walk_with(groups[0], 6 * MIB);
    close_maps();
    agent_stop(&agent, SIGKILL);
    for (int i = 0; i < 200 && agent_heartbeat_age_ns(&place) < 5500000000ull; i++)
        usleep(50000);
    json_t *top = top_json();
    const json_t *said = json_object_get(top, "agent");
    cr_assert(eq(int, json_is_false(json_object_get(said, "alive")), 1));
    cr_assert(ge(i64, number(said, "silent_ns"), 5000000000ll));
    cr_assert(eq(i64, number(top_device(top, 0), "allocated_bytes"), 6 * MIB), "the last numbers changed");
    json_decref(top);
    char *words = command_words("top", "--system", "--pins", place.pins, NULL);
    cr_assert(strstr(words, "not reported for") != NULL, "%s", words);
    free(words);
}

/* The programs are idle, so numbers change only by the agent's queries. */
Test(agent_kill, the_next_one_sees_what_idle_programs_hold_within_a_second, .init = begin)
{
    double worst = 0;
    for (int i = 0; i < 6; i++)
        walk_with(groups[i % 3], (i + 1) * 2 * MIB);
    usleep(500000); /* their threads sleep, and so does the watch for peaks */
    for (int round = 0; round < 3; round++) {
        struct span span;
        kill_round(&span);
        start_agent(&(struct agent_options){0});
        uint64_t ready = now_ns();
        while (device_sum(0).allocated_bytes != 42 * MIB && now_ns() < ready + 20000000000ull)
            usleep(2000);
        double took = (double)(now_ns() - ready) / 1e6;
        worst = took > worst ? took : worst;
        cr_assert(eq(i64, device_sum(0).allocated_bytes, 42 * MIB));
        cr_assert(eq(u32, device_sum(0).processes, 6));
        for (int g = 0; g < 3; g++)
            cr_assert(eq(i64, container_sum(groups[g], 0).allocated_bytes, (2 * g + 5) * 2 * MIB));
    }
    cr_log_info("a new agent has the numbers of idle programs %.1f ms after READY=1 at worst", worst);
    cr_assert(le(dbl, worst, 1000.0));
}

/* The agent is killed at every stage of its start; the next one must start all the same. */
Test(agent_kill, one_that_dies_while_it_starts_leaves_room_for_the_next, .init = begin)
{
    struct kid *kid = walk_with(groups[0], 2 * MIB);
    close_maps();
    agent_stop(&agent, SIGKILL);
    for (int i = 0; i < 12; i++) {
        pid_t pid = agent_launch(&agent, &place, &(struct agent_options){0});
        cr_assert(pid > 0);
        usleep((useconds_t)i * 15000);
        agent_stop(&agent, SIGKILL);
    }
    semaphores_fall(0);
    start_agent(&(struct agent_options){0});
    kid_tell(kid, "a 0 %lld", 2 * MIB);
    settle(kid, 0, 2, 0);
    cr_assert(eq(i64, device_sum(0).allocated_bytes, 4 * MIB));
    cr_assert(eq(int, agent_semaphore(kid->pid, place.library), 1));
}
