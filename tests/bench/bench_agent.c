/* SPDX-License-Identifier: MIT
 *
 * bench_agent.c: measures the path of an event from an allocation to the agent that has read it,
 * with the real agent as a process beside the program, and the cost of the agent.
 *
 *   agent_event_*      ns of the program's thread per event, without and with an agent; the cost added
 *                      to the thread, and to the process with drain thread and BPF program
 *   agent_path_RATE_*  events offered and carried per second; lost in the program, dropped before the
 *                      kernel's ring (both counted), neither of both (unaccounted), left unread in the
 *                      ring; the agent's CPU time per event; the BPF program's per batch
 *                      (kernel.bpf_stats)
 *   agent_death_*      us from the parent's waitpid of a killed process until it has left the sums, and
 *                      the same from the kill
 *   agent_stall_*      us of the longest event within 20 ms: without a disturbance, and after a kill -9
 *                      of the agent
 *   agent_idle_*       with IDLE silent processes that have memory: the agent's memory, that of its
 *                      maps, its CPU time per second
 *
 * TSV: name, threads or processes, median, minimum, maximum.  A figure that this machine cannot
 * give is `skipped`, with the reason.
 */
#include "account/feed/poll.h"
#include "bench/agent_process.h"
#include "bench/batch_load.h"
#include "bench/count.h"
#include <sched.h>
#include <spawn.h>

#define REPEATS BENCH_COUNT(3u, 1u)
#define SECONDS BENCH_COUNT(2u, 1u)
#define RATE    BENCH_COUNT(4000000u, 1000000u) /* events a second, at most */
#define DEATHS  BENCH_COUNT(100u, 2u)
#define KILLS   BENCH_COUNT(100u, 2u)
#define IDLE    BENCH_COUNT(1000u, 10u)
#define WATCHED BENCH_COUNT(5u, 1u) /* seconds beside the idle ones */
#define WINDOW_NS                                                                                                      \
    20000000ull /* by then the kernel has taken a dead agent's probes away; and half a dozen time slices */

extern char **environ;

static const uint8_t bench_uuid[16] = "gpuprof-bench";
static struct agent agent;
static char self[4096];

static void say(const char *name, unsigned threads, double *values, size_t count, int digits)
{
    double middle = median(values, count);
    printf("agent_%s\t%u\t%.*f\t%.*f\t%.*f\n", name, threads, digits, middle, digits, values[0], digits,
           values[count - 1]);
}

static void say_one(const char *name, unsigned threads, double value, int digits)
{
    say(name, threads, &value, 1, digits);
}

static bool arm(void)
{
    if (agent_start(&agent, self, false))
        return true;
    printf("agent_skipped\t1\t%s\n", agent.why);
    return false;
}

/* ---- what listening costs the program ---------------------------------------------------------------------------- */

static bool measure_cost(unsigned threads)
{
    double off[ROUNDS], on[ROUNDS], extra[ROUNDS], all[ROUNDS];
    measure(threads); /* first uses */
    for (unsigned r = 0; r < ROUNDS; r++) {
        struct cost unarmed = measure(threads);
        if (!arm())
            return false;
        struct cost armed = measure(threads);
        agent_stop(&agent, SIGTERM);
        off[r] = unarmed.thread;
        on[r] = armed.thread;
        extra[r] = armed.thread - unarmed.thread;
        all[r] = armed.process - unarmed.process;
    }
    say("event_unarmed_ns", threads, off, ROUNDS, 1);
    say("event_armed_ns", threads, on, ROUNDS, 1);
    say("event_extra_thread_ns", threads, extra, ROUNDS, 2);
    say("event_extra_process_ns", threads, all, ROUNDS, 2);
    return true;
}

/* ---- the whole path ---------------------------------------------------------------------------------------------- */

struct offer {
    uint64_t base, rate, seconds;
};

/* Sends the events of a millisecond, then sleeps; a late thread catches up, so the rate holds. */
static void *offer_main(void *arg)
{
    const struct offer *offer = arg;
    uint64_t begin = gp_clock_ns(), made = 0;
    for (uint64_t ms = 1; ms <= offer->seconds * 1000; ms++) {
        for (; made < offer->rate * ms / 1000; made += 2) {
            uint64_t address = offer->base + (made / 2 % 64) * 4096;
            allocate(address, 4096);
            release(address);
        }
        if (gp_clock_ns() < begin + ms * 1000000)
            sleep_until(begin + ms * 1000000);
    }
    return NULL;
}

struct path { /* of one repeat */
    double offered, carried, agent_ns, batch_ns, batch_events;
    int64_t lost, dropped, unaccounted, unread;
};

/* Run time and run count of the BPF program, while its statistics are switched on. */
static void program_spent(uint64_t *ns, uint64_t *runs)
{
    struct bpf_prog_info info = {0};
    uint32_t bytes = sizeof(info);
    if (agent.program >= 0 && bpf_obj_get_info_by_fd(agent.program, &info, &bytes) == 0)
        *ns = info.run_time_ns, *runs = info.run_cnt;
}

static void offer_all(unsigned threads, uint64_t rate)
{
    pthread_t ids[2];
    struct offer offers[2];
    for (unsigned i = 0; i < threads; i++) {
        offers[i] = (struct offer){0x730000000000ull + ((uint64_t)i << 36), rate / threads, SECONDS};
        pthread_create(&ids[i], NULL, offer_main, &offers[i]);
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
}

static struct path path_once(unsigned threads, uint64_t rate)
{
    struct gp_map_meta before = agent_meta(&agent);
    uint64_t made = gp_tap_events(), cpu = agent_cpu_ns(&agent), begin = gp_clock_ns();
    uint64_t ns[2] = {0}, runs[2] = {0};
    program_spent(&ns[0], &runs[0]);
    offer_all(threads, rate);
    double seconds = (double)(gp_clock_ns() - begin) / 1e9;
    /* The batch after the silence, and the agent's next poll of a ring that did not wake it. */
    usleep(1200000);
    cpu = agent_cpu_ns(&agent) - cpu;
    program_spent(&ns[1], &runs[1]);
    made = gp_tap_events() - made;
    struct gp_map_meta after = agent_meta(&agent);
    struct agent_ring ring_at = {0, UINT64_MAX};
    agent_ring(&agent, &ring_at);
    uint64_t carried = after.events - before.events, batches = runs[1] - runs[0];
    return (struct path){
        .offered = (double)made / seconds,
        .carried = (double)carried / seconds,
        .agent_ns = carried ? (double)cpu / (double)carried : 0,
        .batch_ns = batches ? (double)(ns[1] - ns[0]) / (double)batches : -1,
        .batch_events = batches ? (double)carried / (double)batches : -1,
        .lost = (int64_t)(after.lost - before.lost),
        .dropped = (int64_t)(after.ring_dropped - before.ring_dropped),
        .unaccounted = (int64_t)(made - carried - (after.lost - before.lost)),
        .unread = (int64_t)(ring_at.put - ring_at.taken),
    };
}

static void measure_path(unsigned threads, uint64_t rate)
{
    struct path all[REPEATS], sum = {0};
    double values[REPEATS];
    char name[64];
    for (unsigned r = 0; r < REPEATS; r++) {
        all[r] = path_once(threads, rate);
        sum.lost += all[r].lost;
        sum.dropped += all[r].dropped;
        sum.unaccounted += all[r].unaccounted < 0 ? -all[r].unaccounted : all[r].unaccounted;
        sum.unread += all[r].unread;
    }
#define SAY(_field, _name, _digits)                                                                                    \
    do {                                                                                                               \
        for (unsigned r = 0; r < REPEATS; r++)                                                                         \
            values[r] = all[r]._field;                                                                                 \
        snprintf(name, sizeof(name), "path_%luk_%s", (unsigned long)(rate / 1000), _name);                             \
        say(name, threads, values, REPEATS, _digits);                                                                  \
    } while (0)
    SAY(offered, "offered_per_s", 0);
    SAY(carried, "carried_per_s", 0);
    SAY(agent_ns, "agent_ns_an_event", 1);
    if (all[0].batch_ns >= 0) {
        SAY(batch_ns, "bpf_ns_a_batch", 0);
        SAY(batch_events, "events_a_batch", 0);
    }
#undef SAY
    const int64_t sums[] = {sum.lost, sum.dropped, sum.unaccounted, sum.unread};
    static const char *const names[] = {"lost", "ring_dropped", "unaccounted", "unread_bytes"};
    for (unsigned i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "path_%luk_%s", (unsigned long)(rate / 1000), names[i]);
        say_one(name, threads, (double)sums[i], 0);
    }
}

/* A batch counts losses since the first listener; those before this agent do not belong to this
 * measurement. */
static void settle(void)
{
    allocate(0x750000000000ull, 4096);
    release(0x750000000000ull);
    usleep(400000);
}

static void measure_paths(void)
{
    if (!arm())
        return;
    settle();
    int stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
    if (stats < 0)
        printf("agent_path_bpf_ns_a_batch\t1\tskipped: %s\n", strerror(errno));
    for (uint64_t rate = 1000000; rate <= RATE; rate *= 2)
        for (unsigned threads = 1; threads <= 2; threads++)
            measure_path(threads, rate);
    if (stats >= 0)
        close(stats);
    agent_stop(&agent, SIGTERM);
}

/* ---- other processes --------------------------------------------------------------------------------------------- */

/* This program again: takes a mebibyte and says nothing more until its stdin ends. */
static int idle_main(void)
{
    char byte;
    if (start() != 0)
        return 1;
    gp_feed_poll_device(0, bench_uuid, "bench", 80ll << 30, 0);
    allocate(0x700000000000ull, 1 << 20);
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}

static int hold[2]; /* read by the other processes; ends with this one */

static pid_t idle_start(void)
{
    char *words[] = {self, "--idle", NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, hold[0], 0);
    if (posix_spawn(&pid, self, &actions, NULL, words, environ) != 0)
        pid = -1;
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static uint32_t processes(void)
{
    return agent_device(&agent, bench_uuid).processes;
}

/* Whether so many are in the sums, within that time. */
static bool processes_wait(uint32_t count, unsigned seconds)
{
    uint64_t end = gp_clock_ns() + seconds * 1000000000ull;
    while (processes() != count)
        if (gp_clock_ns() > end)
            return false;
        else
            usleep(1000);
    return true;
}

static bool death_once(double *from_wait, double *from_kill)
{
    uint32_t others = processes();
    int64_t held = agent_device(&agent, bench_uuid).allocated_bytes;
    pid_t pid = idle_start();
    if (pid < 0 || !processes_wait(others + 1, 20))
        return false;
    uint64_t killed = gp_clock_ns();
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    uint64_t seen = gp_clock_ns(), now;
    struct gp_map_sum sum;
    do {
        sum = agent_device(&agent, bench_uuid);
        now = gp_clock_ns();
    } while ((sum.processes != others || sum.allocated_bytes != held) && now < seen + 5000000000ull);
    *from_wait = (double)(now - seen) / 1e3;
    *from_kill = (double)(now - killed) / 1e3;
    return true;
}

static void measure_deaths(void)
{
    double from_wait[DEATHS], from_kill[DEATHS];
    if (!arm())
        return;
    settle(); /* this process is in the sums too */
    for (unsigned i = 0; i < DEATHS; i++)
        if (!death_once(&from_wait[i], &from_kill[i])) {
            printf("agent_death\t1\tskipped: a process did not come into the sums\n");
            agent_stop(&agent, SIGTERM);
            return;
        }
    say("death_seen_to_gone_us", 1, from_wait, DEATHS, 1);
    say("death_kill_to_gone_us", 1, from_kill, DEATHS, 1);
    agent_stop(&agent, SIGTERM);
}

/* ---- an agent that dies ------------------------------------------------------------------------------------------ */

static uint32_t x_window; /* which one the program's thread is in; 0 none, UINT32_MAX the end */
static double longest[2 * KILLS + 1];

/* Twenty events, each looked at, and a pause.  Above other programs where we may: how long they are
 * let run is not the agent's doing.  What waits for the agent, or for the kernel at work on its
 * probes, waits all the same. */
static void *stall_main(void *arg)
{
    const struct sched_param above = {.sched_priority = 1};
    (void)arg;
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &above) != 0)
        printf("agent_stall_priority\t1\tordinary: other programs' time is in it\n");
    for (uint32_t window; (window = __atomic_load_n(&x_window, __ATOMIC_RELAXED)) != UINT32_MAX;) {
        for (unsigned i = 0; i < 10; i++) {
            uint64_t begin = gp_clock_ns();
            allocate(0x740000000000ull + i * 4096, 4096);
            release(0x740000000000ull + i * 4096);
            double us = (double)(gp_clock_ns() - begin) / 1e3;
            if (window && us > longest[window])
                longest[window] = us;
        }
        sleep_until(gp_clock_ns() + 50000);
    }
    return NULL;
}

static void window(uint32_t number)
{
    __atomic_store_n(&x_window, number, __ATOMIC_RELAXED); /* only a number; the results are read after a join */
}

static unsigned stall_rounds(void)
{
    unsigned done = 0;
    for (; done < KILLS && arm(); done++) {
        uint64_t begin = gp_clock_ns();
        window(2 * done + 1);
        sleep_until(begin + WINDOW_NS);
        window(2 * done + 2);
        begin = gp_clock_ns();
        agent_stop(&agent, SIGKILL);
        sleep_until(begin + WINDOW_NS);
        window(0);
    }
    window(UINT32_MAX);
    return done;
}

static void measure_stalls(void)
{
    pthread_t id;
    double quiet[KILLS], killed[KILLS];
    pthread_create(&id, NULL, stall_main, NULL);
    unsigned done = stall_rounds();
    pthread_join(id, NULL);
    for (unsigned i = 0; i < done; i++) {
        quiet[i] = longest[2 * i + 1];
        killed[i] = longest[2 * i + 2];
    }
    if (!done)
        return;
    say("stall_quiet_us", 1, quiet, done, 1);
    say("stall_killed_us", 1, killed, done, 1);
    say_one("stall_quiet_p90_us", 1, quiet[done * 9 / 10], 1); /* sorted by now */
    say_one("stall_killed_p90_us", 1, killed[done * 9 / 10], 1);
}

/* ---- a thousand processes ---------------------------------------------------------------------------------------- */

static void measure_idle(void)
{
    static pid_t pids[IDLE];
    unsigned started = 0;
    /* By default the agent also discovers copies of the library and would arm those of other
     * programs. */
    if (!agent_start(&agent, self, getenv("GPUPROF_BENCH_DISCOVER") != NULL)) {
        printf("agent_idle\t1\tskipped: %s\n", agent.why);
        return;
    }
    uint32_t others = processes();
    say_one("idle_none_rss_kib", 0, (double)agent_status_kib(&agent, "VmRSS:"), 0);
    while (started < IDLE && (pids[started] = idle_start()) > 0)
        started++;
    if (processes_wait(others + started, BENCH_COUNT(120, 20))) {
        sleep(3); /* it holds each by a descriptor from its next looks through the table on */
        uint64_t cpu = agent_cpu_ns(&agent), begin = gp_clock_ns();
        sleep(WATCHED);
        double share = (double)(agent_cpu_ns(&agent) - cpu) / (double)(gp_clock_ns() - begin);
        struct agent_maps maps = agent_maps(&agent);
        say_one("idle_rss_kib", started, (double)agent_status_kib(&agent, "VmRSS:"), 0);
        say_one("idle_peak_rss_kib", started, (double)agent_status_kib(&agent, "VmHWM:"), 0);
        say_one("idle_maps_kib", started, (double)maps.bytes / 1024, 0);
        say_one("idle_cpu_ms_a_second", started, share * 1e3, 2);
    } else {
        printf("agent_idle\t%u\tskipped: %u of them came into the sums\n", started, processes() - others);
    }
    for (unsigned i = 0; i < started; i++)
        kill(pids[i], SIGKILL);
    for (unsigned i = 0; i < started; i++)
        waitpid(pids[i], NULL, 0);
    say_one("idle_left_in_the_sums", started, (double)(processes() - others), 0);
    agent_stop(&agent, SIGTERM);
}

int main(int argc, char **argv)
{
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0 || pipe2(hold, O_CLOEXEC) != 0)
        return 1;
    if (argc > 1 && strcmp(argv[1], "--idle") == 0)
        return idle_main();
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!arm())
        return 0;
    agent_stop(&agent, SIGTERM);
    if (start() != 0)
        return 1;
    gp_feed_poll_device(0, bench_uuid, "bench", 80ll << 30, 0);
    prepare();
    for (unsigned threads = 1; threads <= 2; threads++)
        measure_cost(threads);
    measure_paths();
    measure_deaths();
    measure_idle();
    measure_stalls();
    agent_end(&agent);
    return 0;
}
