/* SPDX-License-Identifier: MIT
 *
 * sandbox.h: whether a seccomp filter came after the start. A program that enters a sandbox forbids
 * the system calls that it does not need, and a forbidden call may end it, or run a handler of its
 * own on our thread. So our code asks before a call that a program with CUDA need not make, and
 * gives it up. What it needs is opened at the start.
 *
 * Seccomp itself cannot be asked: prctl may be forbidden too. The answer is in /proc, in a file
 * that was opened before the filter came, so that it takes one pread. A filter that was there at
 * the start, as in every container, does not count: what it forbids fails with an error, or failed
 * at the start.
 */
#ifndef GP_BASE_SANDBOX_H
#define GP_BASE_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>

struct gp_sandbox {
    int fd;         /* of the thread's status; -1: not opened */
    uint64_t start; /* the mode and the number of filters then */
};

/* Opens the status of the process's first thread, which has the filters that are for all threads.
 * In the calling thread's table of descriptors, at a number that the program does not meet. */
void gp_sandbox_open(struct gp_sandbox *sandbox);
void gp_sandbox_close(struct gp_sandbox *sandbox);

/* Any doubt is a yes. errno is kept. */
bool gp_sandbox_entered(const struct gp_sandbox *sandbox);

/* The same with one that is in the program's table, and false before the start. gp_sandboxed: as of
 * at most 1 ms ago, for the program's threads. */
void gp_sandbox_start(void);
void gp_sandbox_stop(void);
bool gp_sandboxed_now(void);
bool gp_sandboxed(void);

#endif
