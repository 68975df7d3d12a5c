/* SPDX-License-Identifier: MIT
 * worker.c: starts threads of ours, with all signals blocked. */
#include "base/worker.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/kept.h"
#include "base/thread.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* CUDA's own frames run on the poller's stack; measured needs are far below this, and pages are
 * touched only when used. */
#define GP_WORKER_STACK (256 << 10)

/* The C library takes the program's static TLS, which may be larger than this, out of the stack.
 * A function without a header reports how much (glibc; other libraries add it to the stack
 * themselves). */
static size_t (*worker_taken)(const pthread_attr_t *attr);
static bool worker_sized;

void gp_worker_sizes(void *taken)
{
    *(void **)&worker_taken = taken;
    worker_sized = true;
}

static size_t worker_stack(const pthread_attr_t *attr)
{
    return GP_WORKER_STACK + (worker_taken ? (worker_taken(attr) + 4095) & ~(size_t)4095 : 0);
}

/* ---- the program's last thread ----------------------------------------------------------------------------------- */
/* A process whose main thread has left main by pthread_exit ends with its last thread: glibc counts
 * its threads, and the one that brings the count to 0 calls exit(0).  Ours live until the process
 * ends, so they must not be in that count: it would never end.  No header declares the count; glibc
 * exports it and its layout for debuggers (libthread_db), from 2.34 on.
 *
 * Invariant: the count is that of the program's threads, and of ours that have started or are about
 * to end.  At 0 the process is in exit, and the count is not used any more. */

static uint32_t *worker_counted;
GP_KEEP(worker_counted);

enum gp_worker_place { GP_PLACE_OPEN, GP_PLACE_COUNTED, GP_PLACE_APART };

/* layout: bits, elements and offset of a field as libthread_db wants to know them. */
void gp_worker_counts(void *count, const void *layout)
{
    static const uint32_t known[3] = {32, 1, 0};
    if (count && layout && memcmp(layout, known, sizeof(known)) == 0)
        worker_counted = count; /* never taken back: threads of an earlier life may be about to end */
}

/* By the thread that has made the worker.  Without a thread of the program the worker stays counted:
 * its end is then the end of the last thread. */
static enum gp_worker_place worker_part(void)
{
    uint32_t count = worker_counted ? __atomic_load_n(worker_counted, __ATOMIC_RELAXED) : 0;
    while (count > 1)
        if (__atomic_compare_exchange_n(worker_counted, &count, count - 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return GP_PLACE_APART;
    return GP_PLACE_COUNTED;
}

/* By the worker, which glibc takes out of the count when it has returned.  In a process that is in
 * exit it would be the last one a second time, so it stays where it is. */
static void worker_join(void)
{
    static uint32_t never;
    uint32_t count = __atomic_load_n(worker_counted, __ATOMIC_RELAXED);
    while (count)
        if (__atomic_compare_exchange_n(worker_counted, &count, count + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return;
    for (;;)
        gp_futex_wait(&never, 0, UINT64_MAX);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static uint32_t x_workers; /* threads that have been started and have not ended */
GP_KEEP(x_workers);
static uint32_t x_unnamed; /* of these, the ones that may still call prctl */

uint32_t gp_worker_count(void)
{
    return __atomic_load_n(&x_workers, __ATOMIC_ACQUIRE);
}

void gp_worker_forget(void)
{
    __atomic_store_n(&x_workers, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&x_unnamed, 0, __ATOMIC_RELAXED);
}

void gp_worker_settle(uint64_t patience_ns)
{
    uint64_t now = gp_clock_ns(), deadline = now + patience_ns;
    uint32_t unnamed;
    while ((unnamed = __atomic_load_n(&x_unnamed, __ATOMIC_RELAXED)) != 0 && now < deadline) {
        gp_futex_wait(&x_unnamed, unnamed, deadline - now);
        now = gp_clock_ns();
    }
}

struct gp_worker {
    void *(*main)(void *);
    const char *name;
    uint32_t x_place; /* enum gp_worker_place */
};

static void *worker_main(void *arg)
{
    struct gp_worker *worker = arg;
    uint32_t place;
    /* The slot may be another thread's before this one ends. */
    while ((place = __atomic_load_n(&worker->x_place, __ATOMIC_RELAXED)) == GP_PLACE_OPEN)
        gp_futex_wait(&worker->x_place, GP_PLACE_OPEN, UINT64_MAX);
    pthread_setname_np(pthread_self(), worker->name);
    __atomic_fetch_sub(&x_unnamed, 1, __ATOMIC_RELAXED);
    gp_futex_wake(&x_unnamed);
    gp_thread_enrol();
    gp_thread.ignored = 1;
    void *result = worker->main(NULL);
    /* Release: what the thread did; pairs with the load of gp_worker_count. */
    __atomic_fetch_sub(&x_workers, 1, __ATOMIC_RELEASE);
    if (place == GP_PLACE_APART)
        worker_join();
    return result;
}

int gp_worker_start(void *(*main)(void *), const char *name)
{
    /* Attach, load, drain, poll and record: each is started once in a life of the library. */
    static struct gp_worker workers[8];
    static unsigned count;
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, old;
    struct gp_worker *worker = &workers[count++ % 8];
    *worker = (struct gp_worker){main, name, GP_PLACE_OPEN};
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (worker_sized)
        pthread_attr_setstacksize(&attr, worker_stack(&attr));
    /* A thread inherits the mask of its creator, and it must start with every signal blocked. But a
     * system call that a seccomp filter traps would then end the program instead of running its
     * handler. */
    sigfillset(&all);
    sigdelset(&all, SIGSYS);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    __atomic_fetch_add(&x_workers, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&x_unnamed, 1, __ATOMIC_RELAXED);
    int error = pthread_create(&thread, &attr, worker_main, worker);
    if (error == EINVAL) { /* the C library needs more than it reports */
        pthread_attr_destroy(&attr);
        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        error = pthread_create(&thread, &attr, worker_main, worker);
    }
    if (error) {
        __atomic_fetch_sub(&x_unnamed, 1, __ATOMIC_RELAXED);
        __atomic_fetch_sub(&x_workers, 1, __ATOMIC_RELAXED);
    } else {
        __atomic_store_n(&worker->x_place, worker_part(), __ATOMIC_RELAXED); /* publishes nothing */
        gp_futex_wake(&worker->x_place);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return -error;
}
