/* SPDX-License-Identifier: MIT
 * Points in the device's work, and the one worker that runs host functions in the order in which
 * they were given. CUDA promises no concurrency between host functions, so one worker is enough; it
 * runs them without the simulator's lock.  Lock order: the simulator's lock, then sim_worker.mutex. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/sim.h"
#include "cuda/stream.h"

struct task {
    struct task *next;
    void (*fn)(void *);
    void *data;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct task *head, **tail;
    uint64_t given, done; /* done <= given, both under the mutex */
    bool running;
} sim_worker = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &sim_worker.head, 0, 0, false};

void *sim_grow(void *old, size_t bytes)
{
    void *p = realloc(old, bytes);

    if (!p) {
        fprintf(stderr, "simulated GPU: out of host memory: %zu bytes\n", bytes);
        abort();
    }
    return p;
}

static void *sim_worker_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&sim_worker.mutex);
    for (;;) {
        struct task *t = sim_worker.head;

        if (!t) {
            pthread_cond_wait(&sim_worker.changed, &sim_worker.mutex);
            continue;
        }
        sim_worker.head = t->next;
        if (!sim_worker.head)
            sim_worker.tail = &sim_worker.head;
        pthread_mutex_unlock(&sim_worker.mutex);
        t->fn(t->data);
        free(t);
        pthread_mutex_lock(&sim_worker.mutex);
        sim_worker.done++;
        pthread_cond_broadcast(&sim_worker.changed);
    }
    return NULL;
}

/* Signals belong to the program's own threads. */
static bool sim_worker_start(void)
{
    pthread_t thread;
    sigset_t all, old;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    failed = pthread_create(&thread, NULL, sim_worker_main, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!failed)
        pthread_detach(thread);
    return !failed;
}

uint64_t sim_host_enqueue(void (*fn)(void *), void *data)
{
    struct task *t = sim_grow(NULL, sizeof *t);
    uint64_t sequence;

    *t = (struct task){.fn = fn, .data = data};
    pthread_mutex_lock(&sim_worker.mutex);
    if (!sim_worker.running)
        sim_worker.running = sim_worker_start();
    *sim_worker.tail = t;
    sim_worker.tail = &t->next;
    sequence = ++sim_worker.given;
    pthread_cond_broadcast(&sim_worker.changed);
    pthread_mutex_unlock(&sim_worker.mutex);
    return sequence;
}

static bool sim_host_ran(uint64_t sequence)
{
    bool ran;

    if (!sequence)
        return true;
    pthread_mutex_lock(&sim_worker.mutex);
    ran = sim_worker.done >= sequence;
    pthread_mutex_unlock(&sim_worker.mutex);
    return ran;
}

void sim_point_wait_host(const struct sim_point *p)
{
    const uint64_t sequence = p->host_sequence; /* p may change once the lock is dropped */

    if (sim_host_ran(sequence))
        return;
    sim_unlock();
    pthread_mutex_lock(&sim_worker.mutex);
    while (sim_worker.done < sequence)
        pthread_cond_wait(&sim_worker.changed, &sim_worker.mutex);
    pthread_mutex_unlock(&sim_worker.mutex);
    sim_lock();
}

/* ---- points ------------------------------------------------------------------------------------------------------ */
void sim_point_join(struct sim_point *into, const struct sim_point *from)
{
    sim_vector_join(&into->clock, &from->clock);
    if (from->finish_ns > into->finish_ns)
        into->finish_ns = from->finish_ns;
    if (from->host_sequence > into->host_sequence)
        into->host_sequence = from->host_sequence;
}

void sim_point_copy(struct sim_point *into, const struct sim_point *from)
{
    sim_point_drop(into);
    sim_point_join(into, from);
}

void sim_point_drop(struct sim_point *p)
{
    sim_vector_drop(&p->clock);
    *p = (struct sim_point){0};
}

bool sim_point_finished(const struct sim_point *p)
{
    return p->finish_ns <= sim_clock_now() && sim_host_ran(p->host_sequence);
}

void sim_point_observe(const struct sim_point *p)
{
    sim_vector_join(sim_host(), &p->clock);
}

/* Works on a copy: while the lock is dropped the stream or event may move on or die. */
void sim_point_wait(const struct sim_point *p)
{
    struct sim_point copy = {0};

    sim_point_copy(&copy, p);
    sim_point_wait_host(&copy);
    if (copy.finish_ns > sim_clock_now())
        sim_clock_add(copy.finish_ns - sim_clock_now());
    sim_point_observe(&copy);
    sim_point_drop(&copy);
    sim_pools_observe();
}
