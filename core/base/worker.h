/* SPDX-License-Identifier: MIT
 *
 * worker.h: starts threads of our own inside the program.
 */
#ifndef GP_BASE_WORKER_H
#define GP_BASE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

/* taken: glibc's __pthread_get_minstack, or NULL in a C library without it. Threads that are started
 * before this call have a stack of the default size. */
void gp_worker_sizes(void *taken);

/* count, layout: glibc's __nptl_nthreads and _thread_db___nptl_nthreads, or NULL.  Threads that are
 * started after this call do not keep a process alive whose own threads have ended. */
void gp_worker_counts(void *count, const void *layout);

/* Starts a detached thread that never takes the program's signals but SIGSYS, whose driver calls are not
 * the program's (gp_thread.ignored), and that debuggers show as `name` (at most 15 characters).
 * 0 or -errno. */
int gp_worker_start(void *(*main)(void *), const char *name);

/* Waits until the threads have made the system calls of their start, of which a sandbox that the
 * program enters next may forbid one. */
void gp_worker_settle(uint64_t patience_ns);

/* How many of these threads have not ended yet. */
uint32_t gp_worker_count(void);
/* In a forked child, which has none. */
void gp_worker_forget(void);

#endif
