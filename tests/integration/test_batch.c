/* SPDX-License-Identifier: MIT
 *
 * Batches of the library (gpuprof:batch), received by a real BPF program: exact numbers in every
 * batch, peaks between two batches, every event carried or counted, and no batch without events or
 * without a listener.
 * Run: alone
 */
#include "account/feed/block.h"
#include "account/feed/feed.h"
#include "account/feed/poll.h"
#include "account/feed/start.h"
#include "account/internal.h"
#include "account/tap.h"
#include "base/clock.h"
#include "base/counter.h"
#include "base/ring.h"
#include "base/thread.h"
#include "lib/build.h"
#include "lib/keeper.h"
#include "lib/listen.h"
#include "lib/paths.h"
#include "lib/spawn.h"
#include "session/batch.h"
#include "session/session.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <gpuprof/wire.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1024ll * 1024)

/* ---- what was heard ---------------------------------------------------------------------------------------------- */

struct heard { /* of one process */
    uint32_t pid;
    uint64_t batches, events, wrong;
    uint32_t why; /* a bit for each kind of wrong */
    uint64_t types[GP_EVENT_TYPES];
    int64_t high, reserved_high; /* the most of all batches, device 0 */
    uint64_t last_ns, seq;
    struct gp_batch_device device;
    uint64_t lost;
    uint32_t lasts;
};

static void heard_wrong(struct heard *heard, unsigned kind, bool is)
{
    heard->wrong += is;
    heard->why |= (uint32_t)is << kind;
}

static int heard_batch(void *arg, void *data, size_t bytes)
{
    struct heard *heard = arg;
    const struct kept *kept = data;
    const struct gp_batch *batch = &kept->batch;
    if (bytes < sizeof(*kept) || kept->tgid != heard->pid || !heard->pid)
        return 0;
    heard_wrong(heard, 0, batch->magic != GP_BATCH_MAGIC);
    heard_wrong(heard, 1, batch->seq != heard->seq + 1);
    heard_wrong(heard, 2, batch->time_ns < heard->last_ns);
    heard_wrong(heard, 3, batch->lost < heard->lost);
    heard_wrong(heard, 4, heard->lasts);
    heard->seq = batch->seq;
    heard->last_ns = batch->time_ns;
    heard->lost = batch->lost;
    heard->batches++;
    heard->lasts += batch->flags & GP_BATCH_LAST;
    for (unsigned i = 0; i < batch->device_count; i++) {
        const struct gp_batch_device *row = &batch->devices[i];
        heard_wrong(heard, 5, row->allocated_high_bytes < row->allocated_bytes || row->device < 0 || row->device > 63);
        if (row->device != 0)
            continue;
        heard_wrong(heard, 6, row->calls < heard->device.calls || row->frees < heard->device.frees);
        heard->device = *row;
        heard->high = row->allocated_high_bytes > heard->high ? row->allocated_high_bytes : heard->high;
        heard->reserved_high =
            row->reserved_high_bytes > heard->reserved_high ? row->reserved_high_bytes : heard->reserved_high;
    }
    /* Ordered; but what one round has stamped and not written yet is in the next one. */
    uint64_t event_ns = 0;
    for (unsigned i = 0; i < batch->event_count; i++) {
        const struct gp_wire_event *event = &batch->events[i];
        heard_wrong(heard, 7, event->type >= GP_EVENT_TYPES || event->time_ns > batch->time_ns);
        heard_wrong(heard, 8, event->time_ns < event_ns);
        event_ns = event->time_ns;
        heard->types[event->type % GP_EVENT_TYPES]++;
        heard->events++;
    }
    return 0;
}

/* Skips the test where BPF is not to be had. */
static void listen_or_skip(struct listen *listen, struct heard *heard)
{
    if (heard)
        *heard = (struct heard){0};
    int error = listen_open(listen, heard ? heard_batch : NULL, heard);
    if (error)
        cr_skip_test("no BPF here: %s", strerror(-error));
}

/* Until the batches that there are have been seen, and a little longer. */
static void listen_for(struct listen *listen, int ms)
{
    uint64_t until = gp_clock_ns() + (uint64_t)ms * 1000000;
    do
        ring_buffer__poll(listen->ring, 5);
    while (gp_clock_ns() < until);
}

/* Polls until the condition holds: on a loaded machine a batch may take long.  What has not come in
 * ten seconds does not come, and the checks that follow say what it was. */
#define LISTEN_UNTIL(listen, condition)                                                                                \
    for (uint64_t until_ns = gp_clock_ns() + 10000000000ull; !(condition) && gp_clock_ns() < until_ns;)                \
    ring_buffer__poll((listen)->ring, 5)

/* A copy of the library that only this test arms: a probe is in a file, and tests run side by
 * side.  An agent does not arm files that others may write. */
static char library[64];

static void library_copy(void)
{
    strcpy(library, "/tmp/gpuprof-test-batch-XXXXXX");
    int fd = mkstemp(library);
    cr_assert_geq(fd, 0);
    close(fd);
    keeper_start(library);
    cr_assert_eq(build_copy(path_library(), library), 0);
    cr_assert_eq(chmod(library, 0777), 0);
}

static void library_remove(void)
{
    if (library[0])
        unlink(library);
}

TestSuite(batch, .timeout = 120, .init = library_copy, .fini = library_remove);

static void program_begin(struct spawn *spawn, const char *program, const char *sim)
{
    char inject[96];
    const char *argv[] = {path_program(program), NULL}, *env[] = {inject, NULL};
    struct spawn_options options = {.argv = argv, .env = env, .sim = sim, .want_library = true, .want_hold = true};
    snprintf(inject, sizeof(inject), "CUDA_INJECTION64_PATH=%s", library);
    cr_assert_eq(spawn_start(spawn, &options), 0);
}

static void program_end(struct spawn *spawn)
{
    struct spawn_result result = {0};
    spawn_finish(spawn, &result);
    cr_expect(WIFEXITED(result.status) && WEXITSTATUS(result.status) == 0, "%s\n%s%s", spawn_status_text(&result),
              result.out, result.err);
    spawn_result_free(&result);
}

/* How often the drain thread of a process was put to sleep: each is one time that something woke
 * it. */
static long drain_wakes(pid_t pid)
{
    char path[320], line[128];
    long wakes = -1;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        bool drain = false;
        snprintf(path, sizeof(path), "/proc/%d/task/%.40s/status", (int)pid, task->d_name);
        FILE *status = fopen(path, "r");
        while (status && fgets(line, sizeof(line), status)) {
            drain |= strcmp(line, "Name:\tgpuprof-drain\n") == 0;
            if (drain)
                sscanf(line, "voluntary_ctxt_switches: %ld", &wakes);
        }
        if (status)
            fclose(status);
    }
    if (tasks)
        closedir(tasks);
    return wakes;
}

/* ---- programs under the library ---------------------------------------------------------------------------------- */

Test(batch, numbers_and_peaks_between_batches_are_exact)
{
    static const long long peaks[] = {1, 5, 3, 9};
    struct listen listen;
    struct heard heard;
    struct spawn spawn;
    listen_or_skip(&listen, &heard);
    cr_assert_eq(listen_arm(&listen, library), 0);
    program_begin(&spawn, "steps", NULL);
    heard.pid = (uint32_t)spawn.pid;
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    for (unsigned step = 0; step < 4; step++) {
        LISTEN_UNTIL(&listen, heard.device.calls > step && heard.device.frees >= step &&
                                  heard.device.flags & GP_DEVICE_IDENTIFIED);
        listen_for(&listen, 300); /* what else there is */
        /* A block that came and went: only the high-water knows of it. */
        cr_expect_eq(heard.device.allocated_bytes, MIB, "step %u: %lld", step, (long long)heard.device.allocated_bytes);
        cr_expect_eq(heard.high, peaks[step] * MIB, "step %u: high %lld", step, (long long)heard.high);
        cr_expect_eq(heard.reserved_high, peaks[step] * MIB);
        cr_expect_eq(heard.device.calls, (long long)step + 1);
        cr_expect_eq(heard.device.frees, (long long)step);
        heard.high = heard.reserved_high = 0;
        if (step < 3)
            cr_assert_eq(spawn_step(&spawn), 0);
    }
    cr_expect(heard.device.flags & GP_DEVICE_IDENTIFIED);
    cr_expect_gt(heard.device.total_bytes, 0);
    program_end(&spawn);
    listen_for(&listen, 50);
    cr_expect_eq(heard.lasts, 1, "%u last batches", heard.lasts);
    cr_expect_eq(heard.types[GP_EVENT_ALLOC], 4);
    cr_expect_eq(heard.types[GP_EVENT_FREE], 3);
    cr_expect_eq(heard.types[GP_EVENT_PROCESS_START], 1);
    cr_expect_eq(heard.types[GP_EVENT_PROCESS_EXIT], 1);
    cr_expect_eq(heard.lost, 0);
    cr_expect_eq(heard.wrong, 0, "wrong in %x", heard.why);
    listen_close(&listen);
}

Test(batch, an_idle_process_says_where_it_stands_when_it_is_asked)
{
    struct spawn_result result = {0};
    struct listen listen;
    struct heard heard;
    struct spawn spawn;
    char number[16];
    listen_or_skip(&listen, &heard);
    program_begin(&spawn, "steps", NULL);
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    heard.pid = (uint32_t)spawn.pid;
    /* Another viewer of the machine may ask it in some of these; a process that says it unasked does so in each. */
    uint64_t batches = 1;
    for (int i = 0; i < 20 && batches; i++) {
        heard.batches = heard.events = 0;
        cr_assert_eq(listen_arm(&listen, library), 0);
        listen_for(&listen, 100);
        batches = heard.batches;
        if (batches)
            listen_disarm(&listen);
    }
    cr_expect_eq(batches, 0, "it was not asked");
    snprintf(number, sizeof(number), "%d", (int)spawn.pid);
    cr_assert_eq(spawn_command(&result, "stat", "--json", "-p", number, NULL), 0);
    spawn_result_free(&result);
    ring_buffer__poll(listen.ring, 0); /* before the answer came, not a little later */
    cr_expect_geq(heard.batches, 1);
    cr_expect_eq(heard.device.allocated_bytes, MIB);
    cr_expect_eq(heard.device.allocated_high_bytes, MIB, "what it had before a listener came is not told");
    cr_expect_eq(heard.events, 0, "events of before a listener came");
    cr_expect_eq(heard.lost, 0);
    /* The listener goes and comes again: the numbers are right. */
    cr_assert_eq(spawn_step(&spawn), 0);
    LISTEN_UNTIL(&listen, heard.events >= 2);
    listen_for(&listen, 200); /* until its thread sleeps */
    cr_expect_eq(heard.events, 2);
    listen_disarm(&listen);
    long before = drain_wakes(spawn.pid);
    cr_assert_eq(spawn_step(&spawn), 0);
    usleep(50000); /* a thread that was awake sleeps again, which counts */
    /* If it was woken, by another viewer of the machine, it read its ring for nobody. */
    bool slept = drain_wakes(spawn.pid) == before;
    cr_assert_eq(listen_arm(&listen, library), 0);
    cr_assert_eq(spawn_step(&spawn), 0);
    LISTEN_UNTIL(&listen, heard.device.frees >= 3 && heard.types[GP_EVENT_ALLOC] + heard.lost >= 2u + slept);
    listen_for(&listen, 200);
    cr_expect_eq(heard.device.calls, 4);
    cr_expect_eq(heard.device.frees, 3);
    cr_expect_eq(heard.high, 9 * MIB);
    /* If the thread slept all the while, what happened meanwhile was still in the ring. */
    uint64_t told = heard.types[GP_EVENT_ALLOC] + heard.lost;
    cr_expect(told == 3 || (told == 2 && !slept), "%llu heard, %llu lost", (unsigned long long)heard.events,
              (unsigned long long)heard.lost);
    cr_expect_eq(heard.wrong, 0, "wrong in %x", heard.why);
    program_end(&spawn);
    listen_close(&listen);
}

Test(batch, an_idle_viewer_is_not_woken)
{
    struct listen listen;
    struct heard heard;
    struct spawn spawn;
    listen_or_skip(&listen, &heard);
    program_begin(&spawn, "steps", NULL);
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    heard.pid = (uint32_t)spawn.pid;
    long before = -1;
    for (int i = 0; i < 1000 && before < 0; i++, usleep(1000)) /* a thread names itself when it first runs */
        before = drain_wakes(spawn.pid);
    cr_assert_geq(before, 0);
    for (long last = -1; last != before; before = drain_wakes(spawn.pid)) { /* until its start is over */
        last = before;
        usleep(100000);
    }
    cr_assert_eq(spawn_step(&spawn), 0);
    cr_expect_eq(drain_wakes(spawn.pid), before, "no viewer listens, and an event woke the thread");
    cr_assert_eq(listen_arm(&listen, library), 0);
    cr_assert_eq(spawn_step(&spawn), 0);
    LISTEN_UNTIL(&listen, heard.batches > 0);
    cr_expect_gt(heard.batches, 0);
    /* A viewer or an agent outside the test, which asks every process of the machine, may wake it
     * in some of these; a thread that woke by itself would do so in each (its rounds are 4 ms
     * apart, its checks 100 ms). */
    bool quiet = false;
    for (int i = 0; i < 40 && !quiet; i++) {
        uint64_t batches = heard.batches;
        before = drain_wakes(spawn.pid);
        listen_for(&listen, 250);
        quiet = drain_wakes(spawn.pid) == before && heard.batches == batches;
    }
    cr_expect(quiet, "armed, idle, and woken");
    program_end(&spawn);
    listen_close(&listen);
}

Test(batch, many_devices_take_several_batches)
{
    struct listen listen;
    struct heard heard;
    struct spawn spawn;
    listen_or_skip(&listen, &heard);
    cr_assert_eq(listen_arm(&listen, library), 0);
    program_begin(&spawn, "devices", "devices=12,memory=1GiB");
    heard.pid = (uint32_t)spawn.pid;
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    listen_for(&listen, 300);
    program_end(&spawn);
    listen_for(&listen, 50);
    cr_expect_eq(heard.wrong, 0, "wrong in %x", heard.why);
    cr_expect_eq(heard.lasts, 1);
    cr_expect_gt(heard.device.allocated_bytes, 0);
    listen_close(&listen);
}

Test(batch, a_killed_process_and_a_forked_child_say_nothing_wrong)
{
    struct listen listen;
    struct heard heard;
    struct spawn spawn;
    struct spawn_result result = {0};
    listen_or_skip(&listen, &heard);
    cr_assert_eq(listen_arm(&listen, library), 0);
    program_begin(&spawn, "steps", NULL);
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    heard.pid = (uint32_t)spawn.pid;
    spawn_kill(&spawn, SIGKILL);
    spawn_finish(&spawn, &result);
    cr_expect(WIFSIGNALED(result.status));
    spawn_result_free(&result);
    listen_for(&listen, 50);
    cr_expect_eq(heard.lasts, 0);
    program_begin(&spawn, "fork", NULL);
    heard = (struct heard){.pid = (uint32_t)spawn.pid};
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    LISTEN_UNTIL(&listen, heard.device.allocated_bytes == MIB + 3 * 65536);
    listen_for(&listen, 300); /* what else there is */
    cr_expect_eq(heard.device.allocated_bytes, MIB + 3 * 65536);
    /* Its thread allocates as fast as it can: on a loaded machine the ring may come round before
     * the drain thread. */
    int64_t live = (int64_t)(heard.types[GP_EVENT_ALLOC] - heard.types[GP_EVENT_FREE]) - 4;
    cr_expect_leq(live < 0 ? -live : live, (int64_t)heard.lost);
    program_end(&spawn);
    listen_for(&listen, 50);
    cr_expect_eq(heard.wrong, 0, "wrong in %x", heard.why);
    cr_expect_eq(heard.lasts, 1);
    uint32_t key = 0, next;
    for (int fd = listen_map(&listen, "counts"); bpf_map_get_next_key(fd, key ? &key : NULL, &next) == 0; key = next) {
        struct count count = listen_count(&listen, (pid_t)next);
        cr_expect_eq(count.bad, 0);
        cr_expect_eq(count.gaps, 0);
    }
    listen_close(&listen);
}

/* Ends of every kind, and the ways in which events are found: heard whole, and none disturbed. */
static void program_heard(const char *program, const struct spawn_options *how, int code, struct heard *heard)
{
    char inject[96];
    const char *argv[] = {path_program(program), NULL}, *env[8] = {inject};
    struct spawn_options options = {.argv = argv, .env = env, .want_library = true, .source = how->source};
    struct spawn_result result = {0};
    struct listen listen;
    struct spawn spawn;
    listen_or_skip(&listen, heard);
    snprintf(inject, sizeof(inject), "CUDA_INJECTION64_PATH=%s", library);
    env[0] = how->source ? "GPUPROF_TEST_NOTHING=1" : inject; /* the shim loads the library of its own folder */
    for (int i = 0; how->env && how->env[i]; i++)
        env[i + 1] = how->env[i];
    cr_assert_eq(listen_arm(&listen, how->source ? path_library() : library), 0);
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    heard->pid = (uint32_t)spawn.pid;
    spawn_finish(&spawn, &result);
    cr_expect(WIFEXITED(result.status) && WEXITSTATUS(result.status) == code, "%s: %s\n%s%s", program,
              spawn_status_text(&result), result.out, result.err);
    spawn_result_free(&result);
    listen_for(&listen, 50);
    struct count count = listen_count(&listen, (pid_t)heard->pid);
    cr_expect_eq(count.bad, 0, "%s", program);
    cr_expect_eq(count.dropped, 0, "%s", program);
    listen_close(&listen);
}

Test(batch, ends_of_every_kind)
{
    static const struct {
        const char *program;
        int code;
        uint32_t lasts;
    } ends[] = {{"exit_now", 7, 0}, {"exit_worker", 5, 1}, {"fork_child", 0, 1}, {"dlclose", 0, 1}, {"rude", 0, 1}};
    for (unsigned i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct heard heard;
        program_heard(ends[i].program, &(struct spawn_options){0}, ends[i].code, &heard);
        /* Who leaves by _exit may have had no time to say anything. */
        cr_expect_eq(heard.lasts, ends[i].lasts, "%s: %u last", ends[i].program, heard.lasts);
        cr_expect_eq(heard.wrong, 0, "%s: wrong in %x", ends[i].program, heard.why);
    }
}

/* Each allocation is counted once in the numbers and carried once, or lost. */
static void expect_whole(const char *how, const struct heard *heard)
{
    cr_expect_eq(heard->wrong, 0, "%s: wrong in %x", how, heard->why);
    cr_expect_eq(heard->lasts, 1, "%s", how);
    cr_expect_gt(heard->device.calls, 0, "%s", how);
    int64_t calls = heard->device.calls, carried = (int64_t)heard->types[GP_EVENT_ALLOC];
    cr_expect(carried <= calls && carried + (int64_t)heard->lost >= calls, "%s: %lld calls, %lld carried, %llu lost",
              how, (long long)calls, (long long)carried, (unsigned long long)heard->lost);
    int64_t frees = heard->device.frees, freed = (int64_t)heard->types[GP_EVENT_FREE];
    cr_expect(freed <= frees && freed + (int64_t)heard->lost >= frees, "%s: %lld frees, %lld carried, %llu lost", how,
              (long long)frees, (long long)freed, (unsigned long long)heard->lost);
}

Test(batch, every_way_of_listening)
{
    char record[96], *file = record + strlen("GPUPROF_RECORD=");
    snprintf(record, sizeof(record), "GPUPROF_RECORD=%s.gpuprof", library);
    const char *const stacks[] = {"GPUPROF_STACKS=all", NULL}, *const both[] = {"GPUPROF_STACKS=all", record, NULL},
                      *const cache[] = {"GPUPROF_ALLOCATOR=pytorch", NULL};
    const struct {
        const char *name;
        struct spawn_options options;
    } ways[] = {{"stacks", {.env = stacks}},
                {"stacks and a recorder", {.env = both}},
                {"hooks", {.source = "hooks"}},
                {"hooks, stacks, a recorder", {.source = "hooks", .env = both}}};
    struct heard heard;
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        program_heard("linear", &ways[i].options, 0, &heard);
        expect_whole(ways[i].name, &heard);
        unlink(file); /* while it is there the next recorder takes another name */
    }
    program_heard("shim_threads", &(struct spawn_options){.source = "auto", .env = cache}, 0, &heard);
    expect_whole("the cache", &heard);
}

/* ---- in this process --------------------------------------------------------------------------------------------- */

static struct gp_session host_session;
static struct gp_ring host_ring;

static bool host_poll(uint64_t timeout_ns)
{
    (void)timeout_ns;
    return true;
}

/* wide: a recorder's ring. */
static void host_make(bool wide)
{
    const struct gp_session_size size = {.wide = wide};
    cr_assert_eq(gp_thread_life_start(), 0);
    cr_assert_eq(gp_session_open(&host_session, &size), 0);
    struct gp_wire_header *header = host_session.header;
    cr_assert_eq(gp_ring_init(&host_ring, host_session.chunks, host_session.chunk_count, &header->lost[GP_LOST_RING]),
                 0);
    cr_assert_eq(gp_feed_start(&(struct gp_feed_setup){.ring = &host_ring,
                                                       .lost = header->lost,
                                                       .failures = host_session.failures,
                                                       .map_limit = 1u << 20,
                                                       .armed = &gpuprof_batch_semaphore,
                                                       .coming = gp_batch_coming,
                                                       .heard = gp_batch_heard}),
                 0);
}

static void host_start(bool wide)
{
    const struct gp_session_hooks hooks = {.poll_now = host_poll, .event = gp_feed_event};
    host_make(wide);
    cr_assert_eq(gp_drain_start(&host_session, &hooks), 0);
}

struct flood {
    uint32_t events, burst; /* a pause after so many; 0 none */
    bool wide;
};

static void *flood_main(void *arg)
{
    const struct flood *flood = arg;
    for (uint32_t i = 0; i < flood->events; i++) {
        if (gp_thread_enter()) {
            gp_feed_event(GP_EVENT_MARK, "flood");
            gp_thread_leave();
        }
        if (flood->burst && i % flood->burst == flood->burst - 1)
            usleep(2000);
    }
    return NULL;
}

static void flood_with(const struct flood *flood)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, flood_main, (void *)(size_t)flood), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

static uint64_t flood_lost;

static void flood_and_count(const struct flood *flood)
{
    struct listen listen;
    listen_or_skip(&listen, NULL);
    cr_assert_eq(listen_arm_here(&listen), 0);
    cr_assert_neq(gpuprof_batch_semaphore, 0);
    host_start(flood->wide);
    if (flood->wide) { /* a wide ring is scanned once before its reader exists: events meanwhile are lost */
        flood_with(&(struct flood){.events = 1});
        usleep(300000);
    }
    flood_with(flood);
    cr_assert(gp_thread_enter());
    gp_batch_last();
    gp_thread_leave();
    struct count count = listen_count(&listen, getpid());
    cr_expect_eq(count.last, 1);
    cr_expect_eq(count.bad, 0);
    cr_expect_eq(count.gaps, 0);
    cr_expect_eq(count.events + count.lost, gp_tap_events(), "%llu carried, %llu lost, %llu made",
                 (unsigned long long)count.events, (unsigned long long)count.lost, (unsigned long long)gp_tap_events());
    /* Threads of the program enter the kernel where a burst begins, and nowhere else.  On a loaded machine one flood is
     * several bursts, and a viewer of another test may ring; a ring for each chunk would be one for 500 events. */
    cr_expect_leq(host_session.mailbox->doorbell, 5 + gp_tap_events() / 100000, "%u rings for %llu events",
                  host_session.mailbox->doorbell, (unsigned long long)gp_tap_events());
    flood_lost = count.lost;
    listen_close(&listen);
}

Test(batch, a_flood_is_carried_or_counted)
{
    flood_and_count(&(struct flood){.events = 2000000});
    cr_expect_gt(flood_lost, 0, "four threads did not outrun the ring: the test saw no loss");
}

/* 100 000 events a second: the ring holds a third of a second, longer than a loaded machine keeps a
 * thread waiting. */
Test(batch, a_stream_that_the_ring_holds_is_carried)
{
    flood_and_count(&(struct flood){.events = 10000, .burst = 50});
    cr_expect_leq(flood_lost, 3, "%llu lost: more than the other threads' first ones", (unsigned long long)flood_lost);
}

/* The ring of a recorder, whose reader starts with the next event and reads only chunks that can
 * have changed.  Bursts of more chunks than the reader looks ahead. */
Test(batch, a_stream_beside_a_recorder_is_carried)
{
    flood_and_count(&(struct flood){.events = 60000, .burst = 10000, .wide = true});
    cr_expect_leq(flood_lost, 2000, "%llu lost: more than came before the thread was awake",
                  (unsigned long long)flood_lost);
}

static void host_alloc(uint64_t address, uint64_t bytes)
{
    const struct gp_allocation block = {
        .space = GP_SPACE_DEVICE, .kind = GP_KIND_LINEAR, .address = address, .bytes = bytes, .requested_bytes = bytes};
    gp_feed_alloc(&block);
}

static void host_mark(unsigned count)
{
    cr_assert(gp_thread_enter());
    for (unsigned i = 0; i < count; i++)
        gp_feed_event(GP_EVENT_MARK, "host");
    gp_thread_leave();
}

/* The drain thread's part, by hand, until it would sleep for longer than a burst. */
static uint64_t host_work(void)
{
    uint64_t pause = 0;
    for (int i = 0; i < 1000 && pause < 1000000000; i++) {
        pause = gp_batch_work();
        if (pause < 1000000000)
            usleep((useconds_t)(pause / 1000));
    }
    return pause;
}

static bool host_watched(void)
{
    int64_t peaks[GP_GAUGES_MAX];
    return gp_counter_watch_read(gp_accounts.x_devices[0]->counter, GP_BATCH_WATCH, peaks) == 0;
}

/* Events without a listener are not lost, and their peaks are not for the next listener; a sleeping
 * thread checks by itself for listeners that went. */
Test(batch, time_without_a_listener_is_not_told)
{
    static const uint8_t uuid[16] = {1, 2, 3};
    struct listen listen;
    struct heard heard;
    listen_or_skip(&listen, &heard);
    heard.pid = (uint32_t)getpid();
    host_make(false);
    gp_batch_start(&host_session);
    cr_assert_eq(listen_arm_here(&listen), 0);
    cr_assert(gp_thread_enter());
    host_alloc(0x1000, MIB);
    gp_thread_leave();
    gp_feed_poll_device(0, uuid, "GPU", 1 << 30, 0);
    host_mark(9);
    cr_expect_leq(host_work(), 10000000000ull, "it would sleep for ever with the watch on");
    cr_expect(host_watched());
    listen_disarm(&listen);
    cr_assert(gp_thread_enter());
    host_alloc(0x2000, 7 * MIB);
    gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, 0x2000), true, 0);
    gp_thread_leave();
    host_mark(100000); /* three rings */
    cr_expect_eq(host_work(), UINT64_MAX);
    cr_expect_not(host_watched());
    cr_assert_eq(listen_arm_here(&listen), 0);
    heard.high = 0;
    host_mark(10);
    host_work();
    listen_for(&listen, 20);
    cr_expect_eq(heard.events, 20);
    cr_expect_eq(heard.lost, 0, "%llu lost", (unsigned long long)heard.lost);
    cr_expect_eq(heard.high, MIB, "%lld: the peak of a time without a listener", (long long)heard.high);
    cr_expect_eq(heard.wrong, 0, "wrong in %x", heard.why);
    listen_close(&listen);
}

/* A peak without a uuid is kept for the current listener, not for the next one. */
Test(batch, a_peak_without_a_name_ends_with_its_listener)
{
    struct listen listen;
    struct heard heard;
    listen_or_skip(&listen, &heard);
    heard.pid = (uint32_t)getpid();
    host_make(false);
    gp_batch_start(&host_session);
    cr_assert_eq(listen_arm_here(&listen), 0);
    cr_assert(gp_thread_enter());
    host_alloc(0x1000, 9 * MIB);
    gp_batch_work();
    gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, 0x1000), true, 0);
    gp_thread_leave();
    gp_batch_work();
    cr_expect_gt(listen_count(&listen, getpid()).batches, 0);
    listen_disarm(&listen);
    cr_expect_eq(gp_batch_work(), UINT64_MAX);
    cr_assert_eq(listen_arm_here(&listen), 0);
    listen_for(&listen, 1);
    heard.high = 0;
    host_mark(1);
    gp_batch_work();
    listen_for(&listen, 20);
    cr_expect_eq(heard.high, 0, "%lld", (long long)heard.high);
    listen_close(&listen);
}

/* A listener at the start may be gone before the thread first runs.  The test sets the semaphore
 * itself, without BPF. */
Test(batch, a_listener_of_the_start_leaves_no_watch)
{
    host_make(false);
    gpuprof_batch_semaphore = 1;
    gp_batch_start(&host_session);
    gpuprof_batch_semaphore = 0;
    gp_batch_work();
    cr_assert(gp_thread_enter());
    host_alloc(0x1000, MIB);
    gp_thread_leave();
    cr_expect_not(host_watched());
}

/* Events from before the session are sent in the first round. */
Test(batch, events_before_the_start_are_told)
{
    host_make(false);
    gpuprof_batch_semaphore = 1;
    host_mark(3);
    gp_batch_start(&host_session);
    cr_expect_lt(gp_batch_work(), 1000000000ull, "it sleeps over them");
}

/* So are those that the ring had no room for, as lost ones. */
Test(batch, what_the_ring_lost_before_the_first_batch_is_told)
{
    const struct gp_session_hooks hooks = {.poll_now = host_poll, .event = gp_feed_event};
    struct listen listen;
    listen_or_skip(&listen, NULL);
    cr_assert_eq(listen_arm_here(&listen), 0);
    host_make(false);
    host_mark(100000);
    cr_assert_eq(gp_drain_start(&host_session, &hooks), 0);
    cr_assert(gp_thread_enter());
    gp_batch_last();
    gp_thread_leave();
    struct count count = listen_count(&listen, getpid());
    cr_expect_gt(count.events, 0);
    cr_expect_gt(count.lost, 10000, "the ring holds them all");
    cr_expect_eq(count.events + count.lost, gp_tap_events(), "%llu carried, %llu lost, %llu made",
                 (unsigned long long)count.events, (unsigned long long)count.lost, (unsigned long long)gp_tap_events());
    listen_close(&listen);
}

/* Until the driver has reported the uuid of a device, its peaks are sent again. */
Test(batch, a_peak_of_a_device_without_a_name_is_not_lost)
{
    static const uint8_t uuid[16] = {1, 2, 3};
    struct listen listen;
    struct heard heard;
    listen_or_skip(&listen, &heard);
    cr_assert_eq(listen_arm_here(&listen), 0);
    heard.pid = (uint32_t)getpid();
    host_start(false);
    cr_assert(gp_thread_enter());
    host_alloc(0x1000, 3 * MIB);
    gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, 0x1000), true, 0);
    host_alloc(0x2000, MIB);
    LISTEN_UNTIL(&listen, heard.high >= 3 * MIB);
    cr_expect_eq(heard.high, 3 * MIB);
    heard.high = 0;
    gp_feed_poll_device(0, uuid, "GPU", 1 << 30, 0);
    LISTEN_UNTIL(&listen, heard.device.flags & GP_DEVICE_IDENTIFIED); /* it is asked for again, with no event */
    cr_expect(heard.device.flags & GP_DEVICE_IDENTIFIED);
    cr_expect_arr_eq(heard.device.uuid, uuid, 16);
    cr_expect_eq(heard.high, 3 * MIB);
    heard.high = 0;
    gp_feed_event(GP_EVENT_MARK, "once");
    LISTEN_UNTIL(&listen, heard.types[GP_EVENT_MARK]);
    listen_for(&listen, 50);
    cr_expect_eq(heard.high, MIB, "and once it has a name, only once: %lld", (long long)heard.high);
    gp_thread_leave();
    cr_expect_eq(heard.wrong, 0, "wrong in %x", heard.why);
    listen_close(&listen);
}

/* Resets of the totals take nothing from what batches tell; resets of the peaks neither. */
Test(batch, resets_do_not_show)
{
    struct listen listen;
    struct heard heard;
    struct gp_wire_before_after row;
    listen_or_skip(&listen, &heard);
    cr_assert_eq(listen_arm_here(&listen), 0);
    heard.pid = (uint32_t)getpid();
    host_start(false);
    cr_assert(gp_thread_enter());
    for (unsigned i = 0; i < 10; i++) {
        struct gp_allocation block = {.space = GP_SPACE_DEVICE,
                                      .kind = GP_KIND_LINEAR,
                                      .address = 0x1000 + i * 0x100000,
                                      .bytes = MIB,
                                      .requested_bytes = MIB};
        gp_feed_alloc(&block);
        if (i % 2)
            gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, block.address), true, 0);
        if (i % 3 == 0)
            cr_assert(gp_tap_reset(0, GP_RESET_ACCUMULATED, &row));
        cr_assert(gp_tap_reset(0, GP_RESET_PEAKS, &row));
    }
    gp_thread_leave();
    LISTEN_UNTIL(&listen, heard.device.calls >= 10 && heard.device.frees >= 5);
    listen_for(&listen, 300);
    cr_expect_eq(heard.device.calls, 10);
    cr_expect_eq(heard.device.frees, 5);
    cr_expect_eq(heard.device.allocated_bytes, 5 * MIB);
    cr_expect_eq(heard.high, 6 * MIB);
    cr_expect_eq(heard.wrong, 0, "wrong in %x", heard.why);
    listen_close(&listen);
}
