/* SPDX-License-Identifier: MIT
 *
 * workers.c: does numbered tasks in several processes; see workers.h.
 *
 * The caller gives each worker one task after the other, over a pair of sockets, so it knows at which a worker ended.
 * Another worker then takes its place.
 */
#include <common/progress.h>
#include <common/workers.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS_MOST 8u /* each holds one whole recording */
#define WORKERS_IDLE UINT32_MAX

struct workers_one {
    pid_t pid;
    int fd; /* -1: there is none */
    uint32_t task;
};

struct workers {
    const struct gp_workers *job;
    struct workers_one each[WORKERS_MOST];
    uint32_t next, done, alive;
    uint32_t starts; /* that are left: what ends each worker must not go on for ever */
    bool stopped;
};

bool gp_workers_write(int fd, const void *bytes, size_t count)
{
    for (const char *at = bytes; count;) {
        ssize_t done = send(fd, at, count, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        count -= (size_t)done;
    }
    return true;
}

bool gp_workers_read(int fd, void *bytes, size_t count)
{
    for (char *at = bytes; count;) {
        ssize_t done = read(fd, at, count);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        count -= (size_t)done;
    }
    return true;
}

/* ---- the worker -------------------------------------------------------------------------------------------------- */

static void worker_run(const struct gp_workers *job, int fd)
{
    for (uint32_t task; gp_workers_read(fd, &task, sizeof(task));) {
        bool more = job->work(job->arg, task);
        if (!gp_workers_write(fd, &more, sizeof(more)) || !job->send(job->arg, task, fd))
            break;
    }
    fflush(stderr);
    _exit(0);
}

/* ---- the caller -------------------------------------------------------------------------------------------------- */

static bool workers_more(const struct workers *w)
{
    return !w->stopped && w->next < w->job->count;
}

static void workers_start(struct workers *w, struct workers_one *worker)
{
    const pid_t parent = getpid();
    int ends[2];
    worker->fd = -1;
    if (!w->starts || !workers_more(w) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return;
    w->starts--;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        /* A lock that the command holds must go with it, not with a worker that outlives it. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        for (uint32_t i = 0; i < WORKERS_MOST; i++)
            if (w->each[i].fd >= 0)
                close(w->each[i].fd);
        close(ends[0]);
        worker_run(w->job, ends[1]);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return;
    }
    *worker = (struct workers_one){.pid = pid, .fd = ends[0], .task = WORKERS_IDLE};
    w->alive++;
}

/* Ends a worker that has no task, or has ended.  Its status. */
static int workers_end(struct workers *w, struct workers_one *worker)
{
    int status = 0;
    close(worker->fd);
    worker->fd = -1;
    w->alive--;
    while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static void workers_lose(struct workers *w, struct workers_one *worker)
{
    char why[128];
    int status = workers_end(w, worker);
    if (WIFSIGNALED(status))
        snprintf(why, sizeof(why), "the process that read it was ended by signal %d%s", WTERMSIG(status),
                 WTERMSIG(status) == SIGKILL ? ": too little memory?" : "");
    else
        snprintf(why, sizeof(why), "there is too little memory for what was found in it");
    w->job->lost(w->job->arg, worker->task, why);
    w->done++;
    workers_start(w, worker);
}

/* Gives each worker without a task one, or ends it. */
static void workers_give(struct workers *w)
{
    for (uint32_t i = 0; i < WORKERS_MOST; i++) {
        struct workers_one *worker = &w->each[i];
        while (worker->fd >= 0 && worker->task == WORKERS_IDLE) {
            if (workers_more(w) && gp_workers_write(worker->fd, &w->next, sizeof(w->next))) {
                worker->task = w->next++;
            } else {
                workers_end(w, worker);
                workers_start(w, worker); /* nothing, if there is no further task */
            }
        }
    }
}

static void workers_take(struct workers *w, struct workers_one *worker)
{
    bool more;
    if (!gp_workers_read(worker->fd, &more, sizeof(more)) || !w->job->take(w->job->arg, worker->task, worker->fd)) {
        workers_lose(w, worker);
        return;
    }
    worker->task = WORKERS_IDLE;
    w->stopped |= !more;
    w->done++;
}

static void workers_poll(struct workers *w)
{
    struct pollfd fds[WORKERS_MOST];
    for (uint32_t i = 0; i < WORKERS_MOST; i++) {
        bool busy = w->each[i].fd >= 0 && w->each[i].task != WORKERS_IDLE;
        fds[i] = (struct pollfd){.fd = busy ? w->each[i].fd : -1, .events = POLLIN};
    }
    while (poll(fds, WORKERS_MOST, -1) < 0 && errno == EINTR)
        ;
    for (uint32_t i = 0; i < WORKERS_MOST; i++)
        if (fds[i].revents)
            workers_take(w, &w->each[i]);
}

static void workers_step(const struct workers *w)
{
    gp_progress_step((unsigned)(1000ull * w->done / w->job->count));
}

void gp_workers_run(const struct gp_workers *job)
{
    struct workers w = {.job = job};
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t most = cpus < 2 ? 2 : cpus < (long)WORKERS_MOST ? (uint32_t)cpus : WORKERS_MOST;
    char what[64];
    snprintf(what, sizeof(what), "%s %u recordings", job->doing, job->count);
    gp_progress_begin(what);
    w.starts = job->count > 1 ? job->count + most : 0;
    for (uint32_t i = 0; i < WORKERS_MOST; i++)
        w.each[i].fd = -1;
    for (uint32_t i = 0; i < most && i < job->count; i++)
        workers_start(&w, &w.each[i]);
    for (workers_give(&w); w.alive; workers_give(&w)) {
        workers_poll(&w);
        workers_step(&w);
    }
    for (; workers_more(&w); w.next++) { /* no worker could be started */
        w.stopped = !job->work(job->arg, w.next);
        w.done++;
        workers_step(&w);
    }
    gp_progress_end();
}
