/* SPDX-License-Identifier: MIT
 * Points in the device's work, and the worker that runs host functions, without the simulator's lock.
 * CUDA promises no concurrency between host functions, so they run one after the other, in the order in
 * which they were given.  Only one that waits for another process or thread, and says so (sim_host_waits), lets
 * others run meanwhile, on another worker: those that the program's streams do not order after it.  Lock order:
 * the simulator's lock, then sim_worker.mutex. */
#include "cuda/stream.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct task {
    struct task *next;
    void (*fn)(void *);
    void *data;
    /* Which operation it is, and what goes before it; slot SIM_NO_SLOT: everything that was given before. */
    struct sim_vector clock;
    uint32_t slot;
    uint64_t epoch;
    bool running;
};
#define SIM_NO_SLOT UINT32_MAX

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct task *head, **tail; /* that are not over, in the order in which they were given */
    bool active;               /* one runs and does not wait */
    unsigned idle;             /* workers without a task */
} sim_worker = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &sim_worker.head, false, 0};
static __thread bool sim_on_worker;

SIM_EXPORT void sim_host_waits(int begin);

/* Whether work with this clock comes after the task. */
static bool sim_task_before(const struct task *t, const struct sim_vector *clock)
{
    return t->slot == SIM_NO_SLOT || sim_vector_get(clock, t->slot) >= t->epoch;
}

static struct task *sim_task_next(void)
{
    for (struct task *t = sim_worker.head; t && !sim_worker.active; t = t->next) {
        const struct task *u = sim_worker.head;

        while (u != t && t->slot != SIM_NO_SLOT && !sim_task_before(u, &t->clock))
            u = u->next;
        if (u == t && !t->running)
            return t;
    }
    return NULL;
}

static void sim_task_over(struct task *t)
{
    struct task **at = &sim_worker.head;

    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    if (!t->next)
        sim_worker.tail = at;
    sim_vector_drop(&t->clock);
    free(t);
}

static void *sim_worker_main(void *unused)
{
    (void)unused;
    sim_on_worker = true;
    pthread_mutex_lock(&sim_worker.mutex);
    for (;;) {
        struct task *t = sim_task_next();

        if (!t) {
            sim_worker.idle++;
            pthread_cond_wait(&sim_worker.changed, &sim_worker.mutex);
            sim_worker.idle--;
            continue;
        }
        t->running = sim_worker.active = true;
        pthread_mutex_unlock(&sim_worker.mutex);
        /* What goes before it is over, and now the host knows: a program may wait for the function in place of
         * the stream. */
        sim_lock();
        sim_vector_join(sim_host(), &t->clock);
        sim_unlock();
        t->fn(t->data);
        pthread_mutex_lock(&sim_worker.mutex);
        sim_worker.active = false;
        sim_task_over(t);
        pthread_cond_broadcast(&sim_worker.changed);
    }
    return NULL;
}

/* If there is none that would take a task.  Signals belong to the program's own threads. */
static void sim_worker_start(void)
{
    pthread_t thread;
    sigset_t all, old;

    if (sim_worker.idle || sim_worker.active)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&thread, NULL, sim_worker_main, NULL) == 0)
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* For stand-ins of NVIDIA's libraries, which find it with dlsym: a host function begins, or ends,
 * to wait for another process or thread.  Of other threads it is ignored. */
void sim_host_waits(int begin)
{
    if (!sim_on_worker)
        return;
    pthread_mutex_lock(&sim_worker.mutex);
    if (begin) {
        sim_worker.active = false;
        sim_worker_start();
        pthread_cond_broadcast(&sim_worker.changed);
    } else {
        while (sim_worker.active)
            pthread_cond_wait(&sim_worker.changed, &sim_worker.mutex);
        sim_worker.active = true;
    }
    pthread_mutex_unlock(&sim_worker.mutex);
}

void sim_host_enqueue(void (*fn)(void *), void *data, struct sim_stream *s)
{
    struct task *t = sim_grow(NULL, sizeof *t);

    *t = (struct task){.fn = fn, .data = data, .slot = SIM_NO_SLOT};
    if (s) {
        sim_vector_join(&t->clock, &s->point.clock);
        t->slot = s->slot;
        t->epoch = sim_vector_get(&s->point.clock, s->slot);
        sim_vector_set(&t->clock, s->slot, t->epoch - 1);
        s->point.host = true;
    }
    pthread_mutex_lock(&sim_worker.mutex);
    *sim_worker.tail = t;
    sim_worker.tail = &t->next;
    sim_worker_start();
    pthread_cond_broadcast(&sim_worker.changed);
    pthread_mutex_unlock(&sim_worker.mutex);
}

/* With the worker's mutex. */
static bool sim_host_over(const struct sim_vector *clock)
{
    const struct task *t = sim_worker.head;

    while (t && (t->slot == SIM_NO_SLOT || !sim_task_before(t, clock)))
        t = t->next;
    return !t;
}

static bool sim_host_ran(const struct sim_point *p)
{
    bool ran;

    if (!p->host)
        return true;
    pthread_mutex_lock(&sim_worker.mutex);
    ran = sim_host_over(&p->clock);
    pthread_mutex_unlock(&sim_worker.mutex);
    return ran;
}

void sim_point_wait_host(const struct sim_point *p)
{
    struct sim_vector clock = {0}; /* p may change once the lock is dropped */

    if (sim_host_ran(p))
        return;
    sim_vector_join(&clock, &p->clock);
    sim_unlock();
    pthread_mutex_lock(&sim_worker.mutex);
    while (!sim_host_over(&clock))
        pthread_cond_wait(&sim_worker.changed, &sim_worker.mutex);
    pthread_mutex_unlock(&sim_worker.mutex);
    sim_lock();
    sim_vector_drop(&clock);
}

/* ---- points ------------------------------------------------------------------------------------------------------ */

void sim_point_join(struct sim_point *into, const struct sim_point *from)
{
    sim_vector_join(&into->clock, &from->clock);
    if (from->finish_ns > into->finish_ns)
        into->finish_ns = from->finish_ns;
    into->host |= from->host;
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
    return p->finish_ns <= sim_clock_now() && sim_host_ran(p);
}

void sim_point_observe(const struct sim_point *p)
{
    sim_vector_join(sim_host(), &p->clock);
}
