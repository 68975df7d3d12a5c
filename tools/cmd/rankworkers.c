/* SPDX-License-Identifier: MIT
 *
 * rankworkers.c: reads the recordings of many ranks in several processes (rankread.h).  A process gives all
 * memory of a recording back, and what a damaged one does to it ends that process alone.  Called by ranks.c.
 */
#include <analyze/rankleaks.h>
#include <cmd/rankread.h>
#include <common/progress.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define GP_WORKERS_MOST 8u /* each holds one whole recording */
#define GP_WORKERS_FROM 4u /* fewer files are not worth a process */

struct rank_worker {
    pid_t pid;
    int fd; /* -1: ended */
    uint32_t now;
};

/* What a worker sends of a file, before what the rank points to. */
struct rank_answer {
    uint32_t order;
    int rc;
    bool begins; /* the file is being read: if nothing follows, it is the one at which the worker ended */
    struct gp_rank_read read;
    uint64_t series_bytes, site_bytes, gpu_bytes, growth_bytes;
};

static bool worker_write(int fd, const void *bytes, size_t count)
{
    for (const char *at = bytes; count;) {
        ssize_t done = write(fd, at, count);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        count -= (size_t)done;
    }
    return true;
}

static bool worker_read(int fd, void *bytes, size_t count)
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

static void worker_run(int fd, atomic_uint *next, uint32_t count, const struct gp_load_options *options)
{
    bool ok = true;
    for (uint32_t order; ok && (order = atomic_fetch_add(next, 1)) < count;) {
        struct rank_answer answer = {.order = order, .begins = true};
        const struct gp_job_rank *rank = &answer.read.rank;
        ok = worker_write(fd, &answer, sizeof(answer));
        if (!ok)
            break;
        answer.begins = false;
        answer.rc = gp_rank_file_read(&answer.read, options, order);
        answer.series_bytes =
            rank->allocated ? sizeof(*rank->allocated) + rank->allocated->count * sizeof(rank->allocated->points[0])
                            : 0;
        answer.site_bytes = rank->sites ? rank->site_count * sizeof(*rank->sites) : 0;
        answer.gpu_bytes = rank->gpus ? rank->device_count * sizeof(*rank->gpus) : 0;
        answer.growth_bytes = rank->growth ? sizeof(*rank->growth) : 0;
        ok = worker_write(fd, &answer, sizeof(answer)) && worker_write(fd, rank->allocated, answer.series_bytes) &&
             worker_write(fd, rank->sites, answer.site_bytes) && worker_write(fd, rank->gpus, answer.gpu_bytes) &&
             worker_write(fd, rank->growth, answer.growth_bytes) && !answer.rc;
        gp_rank_free(&answer.read.rank);
    }
    fflush(stderr);
    _exit(0);
}

/* The bytes that follow, with room for one more row as ranks.c makes it.  NULL: out of memory, or the worker ended. */
static void *worker_part(int fd, uint64_t bytes, size_t row)
{
    void *part = calloc(1, bytes + row);
    if (part && !worker_read(fd, part, bytes)) {
        free(part);
        part = NULL;
    }
    return part;
}

/* Takes one answer.  1: a file is done, 0: another answer, -1: the worker has ended, or memory ran out. */
static int worker_take(struct rank_worker *worker, struct gp_rank_read *reads, const struct gp_load_options *options,
                       int *rc)
{
    struct rank_answer answer;
    if (!worker_read(worker->fd, &answer, sizeof(answer)))
        return -1;
    worker->now = answer.order;
    if (answer.begins)
        return 0;
    struct gp_rank_read *read = &reads[answer.order];
    struct gp_job_rank *rank = &answer.read.rank;
    bool series = rank->allocated != NULL, sites = rank->sites != NULL, gpus = rank->gpus != NULL,
         growth = rank->growth != NULL;
    rank->file = answer.order ? options->more[answer.order - 1] : options->files[0];
    rank->allocated = series ? worker_part(worker->fd, answer.series_bytes, sizeof(rank->allocated->points[0])) : NULL;
    rank->sites = sites ? worker_part(worker->fd, answer.site_bytes, sizeof(*rank->sites)) : NULL;
    rank->gpus = gpus ? worker_part(worker->fd, answer.gpu_bytes, sizeof(*rank->gpus)) : NULL;
    rank->growth = growth ? worker_part(worker->fd, answer.growth_bytes, 0) : NULL;
    *read = answer.read;
    if ((series && !rank->allocated) || (sites && !rank->sites) || (gpus && !rank->gpus) || (growth && !rank->growth))
        return -1;
    worker->now = UINT32_MAX;
    if (answer.rc && !*rc)
        *rc = answer.rc;
    return 1;
}

static void worker_end(struct rank_worker *worker, struct gp_rank_read *reads, const struct gp_load_options *options)
{
    int status = 0;
    close(worker->fd);
    worker->fd = -1;
    while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (worker->now == UINT32_MAX)
        return;
    struct gp_rank_read *read = &reads[worker->now];
    gp_rank_free(&read->rank);
    *read = (struct gp_rank_read){.refused = true,
                                  .rank.file = worker->now ? options->more[worker->now - 1] : options->files[0]};
    snprintf(read->why, sizeof(read->why), "the process that read it was ended by signal %d: too little memory?",
             WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static uint32_t workers_start(struct rank_worker *workers, uint32_t most, atomic_uint *next, uint32_t count,
                              const struct gp_load_options *options)
{
    uint32_t started = 0;
    fflush(stdout);
    for (; started < most; started++) {
        int ends[2];
        if (pipe(ends) != 0)
            break;
        pid_t pid = fork();
        if (pid == 0) {
            signal(SIGPIPE, SIG_IGN);
            for (uint32_t i = 0; i < started; i++)
                close(workers[i].fd);
            close(ends[0]);
            worker_run(ends[1], next, count, options);
        }
        close(ends[1]);
        if (pid < 0) {
            close(ends[0]);
            break;
        }
        workers[started] = (struct rank_worker){.pid = pid, .fd = ends[0], .now = UINT32_MAX};
    }
    return started;
}

static uint32_t workers_poll(const struct rank_worker *workers, uint32_t count)
{
    struct pollfd fds[GP_WORKERS_MOST];
    for (uint32_t i = 0; i < count; i++)
        fds[i] = (struct pollfd){.fd = workers[i].fd, .events = POLLIN};
    while (poll(fds, count, -1) < 0 && errno == EINTR)
        ;
    uint32_t ready = 0;
    for (uint32_t i = 0; i < count; i++)
        if (workers[i].fd >= 0 && fds[i].revents)
            ready |= 1u << i;
    return ready;
}

/* Takes answers until all workers have ended, or one file ends the command. */
static int workers_collect(struct rank_worker *workers, uint32_t count, struct gp_rank_read *reads, uint32_t files,
                           const struct gp_load_options *options, uint32_t *done)
{
    int rc = GP_EXIT_OK;
    for (uint32_t alive = count; alive;) {
        uint32_t ready = rc ? UINT32_MAX : workers_poll(workers, count);
        for (uint32_t i = 0; i < count; i++) {
            if (workers[i].fd < 0 || !(ready & 1u << i))
                continue;
            int took = rc ? -1 : worker_take(&workers[i], reads, options, &rc);
            if (took < 0) {
                *done += workers[i].now != UINT32_MAX;
                worker_end(&workers[i], reads, options);
                alive--;
            }
            *done += took > 0;
        }
        gp_progress_step((unsigned)(1000ull * *done / files));
    }
    return rc;
}

int gp_rank_workers(struct gp_rank_read *reads, uint32_t count, const struct gp_load_options *options)
{
    struct rank_worker workers[GP_WORKERS_MOST];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t most = cpus < 2 ? 2 : cpus < (long)GP_WORKERS_MOST ? (uint32_t)cpus : GP_WORKERS_MOST, done = 0;
    atomic_uint *next = MAP_FAILED;
    char what[40];
    int rc = GP_EXIT_OK;
    snprintf(what, sizeof(what), "reading %u recordings", count);
    gp_progress_begin(what);
    if (count >= GP_WORKERS_FROM)
        next = mmap(NULL, sizeof(*next), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (next != MAP_FAILED) {
        uint32_t started = workers_start(workers, most, next, count, options);
        rc = workers_collect(workers, started, reads, count, options, &done);
        munmap(next, sizeof(*next));
    }
    /* What no worker has read: there was none, or each one has ended. */
    for (uint32_t i = 0; !rc && i < count; i++) {
        if (!reads[i].rank.file)
            rc = gp_rank_file_read(&reads[i], options, i);
        gp_progress_step((unsigned)(1000ull * (i + 1) / count));
    }
    gp_progress_end();
    return rc;
}
