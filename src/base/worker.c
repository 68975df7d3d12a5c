/* SPDX-License-Identifier: MIT
 * worker.c: see worker.h. */
#include "base/worker.h"
#include "base/thread.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

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

struct gp_worker {
    void *(*main)(void *);
    const char *name;
};

static void *worker_main(void *arg)
{
    const struct gp_worker *worker = arg;
    pthread_setname_np(pthread_self(), worker->name);
    gp_thread_enter(); /* gives the thread its number and tid first ... */
    gp_thread_leave();
    gp_thread.ignored = 1; /* ... and only then ignores its callbacks */
    return worker->main(NULL);
}

int gp_worker_start(void *(*main)(void *), const char *name)
{
    /* Load, drain, poll and record: the thread that injects the library starts each once. */
    static struct gp_worker workers[4];
    static unsigned count;
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, old;
    struct gp_worker *worker = &workers[count++ % 4];
    *worker = (struct gp_worker){main, name};
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (worker_sized)
        pthread_attr_setstacksize(&attr, worker_stack(&attr));
    /* A thread inherits the mask of its creator, and it must start with every signal blocked. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&thread, &attr, worker_main, worker);
    if (error == EINVAL) { /* the C library needs more than it reports */
        pthread_attr_destroy(&attr);
        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        error = pthread_create(&thread, &attr, worker_main, worker);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return -error;
}
