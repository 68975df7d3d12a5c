/* SPDX-License-Identifier: MIT
 *
 * batch_load.h: a profiled program inside a bench: the library's accounts, ring, session and drain
 * thread without a driver, and threads that allocate and free at a known rate.  The probe is in the
 * bench's own file, so a listener that arms /proc/self/exe hears only the bench.
 */
#ifndef GP_TEST_BENCH_BATCH_LOAD_H
#define GP_TEST_BENCH_BATCH_LOAD_H

#include "account/feed/block.h"
#include "account/feed/feed.h"
#include "account/feed/start.h"
#include "account/tap.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/ring.h"
#include "base/thread.h"
#include "bench/count.h"
#include "session/batch.h"
#include "session/session.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BURST  2000u /* events between two looks at the clock */
#define BURSTS BENCH_COUNT(500u, 20u)
#define ROUNDS BENCH_COUNT(5u, 1u)

static struct gp_session session;
static struct gp_ring ring;

static bool poll_nothing(uint64_t timeout_ns)
{
    (void)timeout_ns;
    return true;
}

static int start(void)
{
    static const struct gp_session_size size;
    const struct gp_session_hooks hooks = {.poll_now = poll_nothing, .event = gp_feed_event};
    int error = gp_thread_life_start();
    if (!error)
        error = gp_session_open(&session, &size);
    if (!error)
        error = gp_ring_init(&ring, session.chunks, session.chunk_count, &session.header->lost[GP_LOST_RING]);
    if (!error)
        error = gp_feed_start(&(struct gp_feed_setup){.ring = &ring,
                                                      .lost = session.header->lost,
                                                      .failures = session.failures,
                                                      .map_limit = 1u << 20,
                                                      .armed = &gpuprof_batch_semaphore,
                                                      .coming = gp_batch_coming,
                                                      .heard = gp_batch_heard});
    return error ? error : gp_drain_start(&session, &hooks);
}

static uint64_t cpu_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[count / 2];
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static void allocate(uint64_t address, uint64_t bytes)
{
    const struct gp_allocation block = {
        .space = GP_SPACE_DEVICE, .kind = GP_KIND_LINEAR, .address = address, .bytes = bytes, .requested_bytes = bytes};
    if (gp_thread_enter()) {
        gp_feed_alloc(&block);
        gp_thread_leave();
    }
}

static void release(uint64_t address)
{
    if (gp_thread_enter()) {
        gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, address), true, 0);
        gp_thread_leave();
    }
}

struct program { /* one thread of it */
    uint64_t base, seed;
    double thread_ns; /* an event */
};

#define LIVE 64u

/* Allocates the size that was freed: the total never reaches a new level. */
static bool steady;

/* Frees a random live block and allocates one of another size: the total varies below the peak. */
static void burst(struct program *program)
{
    for (uint32_t i = 0; i < BURST / 2; i++) {
        program->seed = program->seed * 6364136223846793005ull + 1442695040888963407ull;
        uint64_t address = program->base + (program->seed >> 33) % LIVE * 65536;
        release(address);
        allocate(address, steady ? 16384 : 512 + (program->seed >> 40) % 64 * 512);
    }
}

static void sleep_until(uint64_t ns)
{
    struct timespec at = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

struct cost {
    double thread, process; /* ns an event */
};

/* A million events a second, as far as sleeping is that exact. */
static void *program_main(void *arg)
{
    struct program *program = arg;
    uint64_t next = gp_clock_ns(), spent = 0;
    for (uint32_t i = 0; i < BURSTS; i++) {
        uint64_t before = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
        burst(program);
        spent += cpu_ns(CLOCK_THREAD_CPUTIME_ID) - before;
        sleep_until(next += BURST * 1000ull);
    }
    program->thread_ns = (double)spent / BURST / BURSTS;
    return NULL;
}

static struct program running[2];

static struct cost measure(unsigned threads)
{
    pthread_t ids[2];
    uint64_t process = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    struct cost cost = {0};
    for (unsigned i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, program_main, &running[i]);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        cost.thread += running[i].thread_ns / threads;
    }
    cost.process = (double)(cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - process) / BURST / BURSTS / threads;
    return cost;
}

/* Makes the first live blocks, and a peak far above every later total. */
static void prepare(void)
{
    for (unsigned i = 0; i < 2; i++) {
        running[i] = (struct program){.base = 0x700000000000ull + ((uint64_t)i << 36), .seed = 881726454ull + i};
        for (unsigned b = 0; b < LIVE; b++)
            allocate(running[i].base + b * 65536, 16384);
    }
    for (unsigned b = 0; b < 1024; b++)
        allocate(0x720000000000ull + b * 65536, 65536);
    for (unsigned b = 0; b < 1024; b++)
        release(0x720000000000ull + b * 65536);
}

#endif
