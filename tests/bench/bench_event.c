/* SPDX-License-Identifier: MIT
 *
 * bench_event.c: what one event costs inside the program: a driver callback's way through dispatch,
 * counters, pointer map and ring, with 10^6 live allocations, no stack.  An event is one allocation
 * (enter + exit) or one free (enter + exit).  Then the same loop under a seccomp filter that kills
 * the process at its first system call: zero system calls is proved, not counted.
 *
 * TSV: name, threads, ns.
 */
#include "account/feed/context.h"
#include "account/feed/start.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/ring.h"
#include "base/thread.h"
#include "bench/count.h"
#include "lib/random.h"
#include "source/internal.h"
#include <gpuprof/wire.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIVE    BENCH_COUNT(1000000u, 1000u)
#define BATCH   32u /* events timed together: the clock's own 20-40 ns disappear in them */
#define BATCHES BENCH_COUNT(20000u, 20u)
#define CHUNKS  512u /* as the session has */

static struct gp_ring ring;
static uint64_t lost[GP_LOSTS];
static struct gp_wire_failure failures[GP_WIRE_FAILURES];

static void wake_nobody(void)
{
}

/* A callback pair exactly as the CUPTI source makes it. */
static void call_driver(const struct gp_hook *hook, const void *params)
{
    uint64_t slot;
    struct gp_call call = {.hook = hook, .params = params, .ctx = 1, .slot = &slot};
    if (gp_thread_enter()) {
        gp_dispatch_enter(&call);
        gp_thread_leave();
    }
    if (gp_thread_enter()) {
        gp_dispatch_exit(&call);
        gp_thread_leave();
    }
}

struct worker {
    uint64_t *addresses;   /* its share of the live ones */
    uint32_t count, reach; /* frees pick among the first `reach` of its live allocations */
    uint64_t next, seed;
    uint32_t batches;
    double *ns; /* per event, by batch */
    const struct gp_hook *alloc, *free;
};

static uint64_t random_bytes(struct worker *worker)
{
    return 512 + random_next(&worker->seed) % 4096;
}

/* Returns the time of its events. The victims' addresses are read before: in a program, they are at hand. */
static uint64_t one_batch(struct worker *worker)
{
    uint64_t *victims[BATCH / 2];
    for (uint32_t i = 0; i < BATCH / 2; i++) {
        victims[i] = &worker->addresses[random_next(&worker->seed) % worker->reach];
        __atomic_load_n(victims[i], __ATOMIC_RELAXED);
    }
    uint64_t begin = gp_clock_ns();
    for (uint32_t i = 0; i < BATCH / 2; i++) {
        struct gp_params_cuMemFree_v2 free_params = {.dptr = *victims[i]};
        call_driver(worker->free, &free_params);
        uint64_t fresh = worker->next;
        worker->next += 512;
        struct gp_params_cuMemAlloc_v2 alloc_params = {.dptr = &fresh, .bytesize = random_bytes(worker)};
        call_driver(worker->alloc, &alloc_params);
        *victims[i] = fresh;
    }
    return gp_clock_ns() - begin;
}

static void *run(void *arg)
{
    struct worker *worker = arg;
    for (uint32_t i = 0; i < worker->batches; i++)
        worker->ns[i] = (double)one_batch(worker) / BATCH;
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* With the sizes of those that replace them: otherwise the total would rise above its peak again. */
static void fill(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->count; i++) {
        worker->addresses[i] = worker->next;
        worker->next += 512;
        struct gp_params_cuMemAlloc_v2 params = {.dptr = &worker->addresses[i], .bytesize = random_bytes(worker)};
        call_driver(worker->alloc, &params);
    }
}

/* Rises one percent above the live total and returns, as a program does most of the time. */
static void raise_peak(struct worker *worker)
{
    static uint64_t extra[LIVE / 100];
    struct worker above = *worker;
    above.addresses = extra;
    above.count = LIVE / 100;
    fill(&above);
    worker->next = above.next;
    for (uint32_t i = 0; i < above.count; i++) {
        struct gp_params_cuMemFree_v2 params = {.dptr = extra[i]};
        call_driver(worker->free, &params);
    }
}

/* Only exit is allowed (not strict mode: that forbids the time stamp counter too, and with it the
 * clock). */
static int forbid_system_calls(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {GP_COUNT(rules), rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) : -1;
}

/* True when the loop made no system call.  The child is a fork, where gpuprof is off by design, so
 * the life page is created again. */
static bool no_system_call(struct worker *worker)
{
    pid_t child = fork();
    if (child == 0) {
        gp_thread_life_start();
        one_batch(worker); /* page faults and first uses */
        if (forbid_system_calls() != 0)
            syscall(SYS_exit, 2);
        for (int i = 0; i < 1000; i++)
            one_batch(worker);
        syscall(SYS_exit, 0); /* _exit() would be exit_group */
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void measure(const char *name, struct worker *workers, unsigned threads, uint32_t reach)
{
    pthread_t ids[8];
    double *all = malloc(sizeof(double) * threads * BATCHES);
    for (unsigned i = 0; i < threads; i++) {
        workers[i].batches = BATCHES;
        workers[i].reach = reach;
        workers[i].ns = all + i * BATCHES;
        pthread_create(&ids[i], NULL, run, &workers[i]);
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    qsort(all, threads * BATCHES, sizeof(double), by_value);
    printf("%s_p50\t%u\t%.1f\n%s_p99\t%u\t%.1f\n", name, threads, all[threads * BATCHES / 2], name, threads,
           all[threads * BATCHES / 100 * 99]);
    free(all);
}

int main(void)
{
    void *chunks =
        mmap(NULL, CHUNKS * sizeof(struct gp_wire_chunk), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (chunks == MAP_FAILED || gp_ring_init(&ring, chunks, CHUNKS, &lost[GP_LOST_RING]) != 0 ||
        gp_thread_life_start() != 0 ||
        gp_feed_start(&(struct gp_feed_setup){
            .ring = &ring, .lost = lost, .failures = failures, .wake_poller = wake_nobody, .map_limit = 1u << 24}) !=
            0) {
        fprintf(stderr, "bench_event: cannot set up\n");
        return 1;
    }
    gp_feed_context_created(1, 0);
    static uint64_t addresses[LIVE];
    struct worker workers[2] = {0};
    for (unsigned i = 0; i < 2; i++) {
        workers[i] = (struct worker){
            .addresses = addresses + i * LIVE / 2,
            .count = LIVE / 2,
            .next = 0x700000000000ull + ((uint64_t)i << 40),
            .seed = 88172645463325252ull + i,
            .alloc = gp_dispatch_find(243),
            .free = gp_dispatch_find(245),
        };
        fill(&workers[i]);
    }
    /* Most programs free recent allocations; the other extreme is a random one among a million,
     * which misses every cache.  At the peak every allocation may be a new peak, so the counters
     * need a total order; below it they do not. */
    measure("event_1e6_at_peak_recent", workers, 1, 1000);
    measure("event_1e6_at_peak_recent", workers, 2, 1000);
    raise_peak(&workers[0]);
    measure("event_1e6_recent", workers, 1, 1000);
    measure("event_1e6_recent", workers, 2, 1000);
    measure("event_1e6_random", workers, 1, LIVE / 2);
    measure("event_1e6_random", workers, 2, LIVE / 2);
    printf("event_system_calls\t1\t%s\n", no_system_call(&workers[0]) ? "0" : "some");
    for (unsigned i = 0; i < GP_LOSTS; i++)
        if (lost[i])
            printf("event_lost_%u\t1\t%lu\n", i, (unsigned long)lost[i]);
    return 0;
}
