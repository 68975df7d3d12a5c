/* SPDX-License-Identifier: MIT
 * bench_record.c: the cost of a recording: bytes and recorder time per event on the traces of
 * `gpuprof generate`, the host's time per event with and without a recorder, and the time and
 * memory to open 10^7 events.  TSV on stdout: name, value, unit. */
#include "base/clock.h"
#include "base/ring.h"
#include "bench/count.h"
#include "inject/inject.h"
#include "session/session.h"
#include <base/thread.h>
#include <convert/replay/replay.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <record/file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BENCH_HOST_EVENTS BENCH_COUNT(2000000u, 20000u)
#define BENCH_OPEN_EVENTS BENCH_COUNT(10000000u, 10000u)
#define BENCH_STEPS       BENCH_COUNT(1000u, 3u)

static const char bench_file[] = "/tmp/gpuprof-bench.gpuprof";

static double bench_cpu(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ---- events as a caching allocator makes them of a trace --------------------------------------------------------- */

struct bench_blocks { /* address of each block: those that are free are used again, by size */
    uint64_t *address, *bytes;
    uint64_t *idle[64];
    uint32_t idle_count[64], idle_room[64];
    uint64_t next;
};

static unsigned bench_class(uint64_t bytes)
{
    return bytes < 2 ? 0 : 63 - (unsigned)__builtin_clzll(bytes - 1);
}

static uint64_t bench_take(struct bench_blocks *blocks, uint64_t bytes)
{
    unsigned class = bench_class(bytes);
    if (blocks->idle_count[class])
        return blocks->idle[class][--blocks->idle_count[class]];
    uint64_t at = blocks->next;
    blocks->next += 2ull << class;
    return at;
}

static void bench_give(struct bench_blocks *blocks, uint64_t address, uint64_t bytes)
{
    unsigned class = bench_class(bytes);
    if (blocks->idle_count[class] == blocks->idle_room[class]) {
        blocks->idle_room[class] = blocks->idle_room[class] ? 2 * blocks->idle_room[class] : 64;
        blocks->idle[class] = realloc(blocks->idle[class], blocks->idle_room[class] * sizeof(uint64_t));
    }
    blocks->idle[class][blocks->idle_count[class]++] = address;
}

/* Times: 2 to 20 us between two events (a step of a large model makes about 10^5 a second), and no
 * two steps alike. */
static uint64_t bench_write(struct gp_file *file, const struct gp_replay_trace *trace, uint64_t *time_ns)
{
    struct bench_blocks blocks = {calloc(trace->blocks + 1, 8), calloc(trace->blocks + 1, 8),
                                  .next = 0x7f1000000000ull};
    uint64_t events = 0, random = 88172645463325252ull;
    for (uint32_t i = 0; i < trace->count; i++) {
        const struct gp_replay_op *op = &trace->ops[i];
        struct gp_wire_event event = {.type = GP_EVENT_ALLOC, .kind = GP_KIND_LINEAR, .tid = 4000u + op->thread};
        if (op->kind != GP_REPLAY_ALLOC && op->kind != GP_REPLAY_FREE)
            continue;
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        event.time_ns = *time_ns += 2000 + random % 18000;
        if (op->kind == GP_REPLAY_ALLOC) {
            blocks.bytes[op->block] = op->bytes;
            blocks.address[op->block] = bench_take(&blocks, op->bytes);
            event.stream = op->stream;
        } else {
            event.type = GP_EVENT_FREE;
            bench_give(&blocks, blocks.address[op->block], blocks.bytes[op->block]);
        }
        event.address = blocks.address[op->block];
        event.requested_bytes = blocks.bytes[op->block];
        event.bytes = (event.requested_bytes + 511) & ~511ull;
        event.site = 1 + bench_class(event.bytes) * 7 % 40;
        gp_file_add(file, &event, GP_BLOCK_EVENTS);
        events++;
    }
    for (unsigned i = 0; i < 64; i++)
        free(blocks.idle[i]);
    free(blocks.address);
    free(blocks.bytes);
    return events;
}

static struct gp_file *bench_open(void)
{
    struct gp_file *file = NULL;
    unlink(bench_file);
    int fd = gp_file_open(bench_file, true);
    if (fd < 0 || gp_file_new(&file, fd, &(struct gp_file_who){.pid = 1}) != 0)
        abort();
    return file;
}

static void bench_traces(void)
{
    for (unsigned i = 0; gp_generate_at(i); i++) {
        const struct gp_generator *generator = gp_generate_at(i);
        struct gp_replay_trace trace;
        struct gp_replay_problem problem;
        struct gp_file_stats stats;
        uint64_t time_ns = 1000000000ull;
        if (gp_generate(&trace, generator, 1, BENCH_STEPS, &problem) != 0)
            abort();
        struct gp_file *file = bench_open();
        double begin = bench_cpu();
        uint64_t events = bench_write(file, &trace, &time_ns);
        gp_file_flush(file, GP_BLOCK_EVENTS);
        double ns = bench_cpu() - begin;
        gp_file_stats(file, &stats);
        gp_file_end(file);
        printf("record/%s/events\t%llu\tevents\n", generator->name, (unsigned long long)events);
        printf("record/%s/bytes\t%.2f\tB/event\n", generator->name, (double)stats.bytes / (double)events);
        printf("record/%s/pack\t%.1f\tns/event\n", generator->name, ns / (double)events);
        gp_replay_trace_free(&trace);
    }
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void bench_big(uint64_t wanted)
{
    struct gp_replay_trace trace;
    struct gp_replay_problem problem;
    uint64_t time_ns = 1000000000ull, events = 0;
    if (gp_generate(&trace, gp_generate_at(0), 1, BENCH_STEPS, &problem) != 0)
        abort();
    struct gp_file *file = bench_open();
    while (events < wanted)
        events += bench_write(file, &trace, &time_ns);
    gp_file_flush(file, GP_BLOCK_EVENTS);
    gp_file_end(file);
    gp_replay_trace_free(&trace);
    printf("record/open/events\t%llu\tevents\n", (unsigned long long)events);
}

static void bench_reopen(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) { /* its memory peak is that of opening only */
        struct gp_recording *recording;
        char why[200];
        struct rusage usage;
        double begin = (double)gp_clock_ns();
        if (gp_recording_open(&recording, bench_file, why, sizeof(why), NULL, NULL) != 0)
            _exit(1);
        double ns = (double)gp_clock_ns() - begin;
        getrusage(RUSAGE_SELF, &usage);
        printf("record/open/time\t%.3f\ts\n", ns / 1e9);
        printf("record/open/rss\t%.0f\tMB\n", (double)usage.ru_maxrss * 1024 / 1e6);
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status)
        abort();
}

/* ---- the host ---------------------------------------------------------------------------------------------------- */

static double bench_host_events(struct gp_ring *ring)
{
    struct gp_ring_cursor cursor = {0};
    double begin = bench_cpu();
    for (unsigned i = 0; i < BENCH_HOST_EVENTS; i++) {
        struct gp_wire_event event = {.time_ns = gp_clock_ns(), .type = i % 2 ? GP_EVENT_FREE : GP_EVENT_ALLOC};
        event.kind = GP_KIND_LINEAR;
        event.address = 0x7f0000000000ull + i / 2 % 4096 * 512;
        event.bytes = event.requested_bytes = 512;
        gp_ring_write(ring, &cursor, &event, 1);
        if (i % 1000 == 0)
            usleep(500); /* 10^6 a second at most, as the busiest of programs */
    }
    return (bench_cpu() - begin) / BENCH_HOST_EVENTS;
}

/* The same thread, the same ring, in one run: without a recorder, with one, and without again. */
static void bench_host(void)
{
    struct gp_session session;
    struct gp_ring ring;
    struct rusage before, after;
    char why[160];
    unlink(bench_file);
    if (gp_thread_life_start() != 0 || gp_session_open(&session, &(struct gp_session_size){.wide = true}) != 0 ||
        gp_ring_init(&ring, session.chunks, session.chunk_count, &session.header->lost[GP_LOST_RING]) != 0)
        abort();
    bench_host_events(&ring); /* pages are there now */
    double off = bench_host_events(&ring);
    /* A new session: events from before the recorder would count as missed. */
    if (gp_session_open(&session, &(struct gp_session_size){.wide = true}) != 0 ||
        gp_ring_init(&ring, session.chunks, session.chunk_count, &session.header->lost[GP_LOST_RING]) != 0)
        abort();
    const struct gp_record_setup setup = {.path = bench_file, .header = session.header};
    if (gp_record_start(&setup, why, sizeof(why)) != 0)
        abort();
    bench_host_events(&ring);
    uint64_t recorded_before = session.header->recorded;
    getrusage(RUSAGE_SELF, &before);
    double thread = bench_cpu();
    double on = bench_host_events(&ring);
    thread = bench_cpu() - thread;
    gp_record_stop(false);
    getrusage(RUSAGE_SELF, &after);
    double all =
        (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) *
            1e9 +
        (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec) *
            1e3;
    double recorded = (double)(session.header->recorded - recorded_before);
    printf("record/host/off\t%.1f\tns/event\n", off);
    printf("record/host/on\t%.1f\tns/event\n", on);
    printf("record/host/recorder\t%.1f\tns/event\n", (all - thread) / (recorded > 0 ? recorded : 1));
    printf("record/host/lost\t%llu\tevents\n", (unsigned long long)session.header->record_lost);
}

int main(void)
{
    bench_traces();
    bench_big(BENCH_OPEN_EVENTS);
    bench_reopen();
    bench_host();
    unlink(bench_file);
    return 0;
}
