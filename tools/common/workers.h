/* SPDX-License-Identifier: MIT
 *
 * workers.h: numbered tasks, each about one file, done in several processes.  A process gives all memory of a file back, and
 * what a damaged one does to it ends that process alone.  Called by rankworkers.c and exportfolder.c.
 */
#ifndef GP_COMMON_WORKERS_H
#define GP_COMMON_WORKERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_workers {
    uint32_t count;    /* of tasks, from 0 */
    const char *doing; /* "reading": for the bar on a terminal */
    void *arg;
    /* Does a task, in a worker or, where none can be started, in the caller.  False: no further one begins. */
    bool (*work)(void *arg, uint32_t task);
    /* In the worker: sends what `work` found (gp_workers_write), and frees it.  False: the caller has ended. */
    bool (*send)(void *arg, uint32_t task, int fd);
    /* In the caller: takes it (gp_workers_read).  False: the worker has ended, or there is no memory for it. */
    bool (*take)(void *arg, uint32_t task, int fd);
    /* In the caller: what the worker found of this task is lost, and why. */
    void (*lost)(void *arg, uint32_t task, const char *why);
};

/* Does all tasks, with a bar on a terminal.  Of each task that began, there was one call of `work` here, `take` or `lost`
 * when it returns; only after a `work` that was false are there others. */
void gp_workers_run(const struct gp_workers *job);

/* All bytes, or false: the other process has ended. */
bool gp_workers_write(int fd, const void *bytes, size_t count);
bool gp_workers_read(int fd, void *bytes, size_t count);

#endif
