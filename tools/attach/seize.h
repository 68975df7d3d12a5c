/* SPDX-License-Identifier: MIT
 *
 * seize.h: stops a thread, lets it make a system call or run a piece of code (stub.h), and puts it
 * back.
 */
#ifndef GP_ATTACH_SEIZE_H
#define GP_ATTACH_SEIZE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_seized;

/* What the C library sends to each thread in setuid and its kin (SIGSETXID). */
#define GP_SETXID_SIGNAL 33

struct gp_seize_code { /* in the C library of the process */
    uint64_t enter;    /* an instruction that enters the kernel, and one that returns behind it */
    uint64_t back;     /* the end of a signal handler: rt_sigreturn */
    struct gp_stacks *stacks;
};

/* 0 or -errno. -ESRCH: it has ended; -ETIMEDOUT: it does not stop, and stops no more once this
 * process has ended; -EAGAIN: it is stopped by a signal. */
int gp_seize(struct gp_seized **seized, pid_t pid, pid_t tid, uint64_t deadline_ns);
/* Whether its user code is at a place where it may be led away from. */
bool gp_seized_may_leave(const struct gp_seized *seized);
/* Saves everything, and writes a frame below the thread's stack with which it gets back by itself if
 * this process dies.  0 or -errno; -ENOSPC: there is no room for it; -EXDEV: the stack is not known
 * to be the thread's own. */
int gp_seized_save(struct gp_seized *seized, const struct gp_seize_code *code);
/* The frame's address: a thread whose stack pointer is this, and which returns, gets back. */
uint64_t gp_seized_frame(const struct gp_seized *seized);
/* Lets the thread make a system call, with its signals blocked.  Its result, or -errno; -ETIMEDOUT: it is
 * still in there, and gets back by itself once this process has ended. */
long gp_seized_call(struct gp_seized *seized, long number, const uint64_t arguments[6]);
/* Lets the thread run gp_stub_begin until it says in the data what came of it.  0, -errno of the thread's
 * start; -ETIMEDOUT: it still runs, and will return by itself; -ESRCH: it ended; -EFAULT: it failed.
 * The code, the data and the stack lie in the region. */
int gp_seized_run(struct gp_seized *seized, uint64_t region, uint64_t region_bytes, uint64_t stack, uint64_t data,
                  uint64_t deadline_ns);
/* Stops it again, for more calls.  0 or -errno. */
int gp_seized_halt(struct gp_seized *seized);
/* Lets go of a thread that still runs what it was led to.  It gets back by itself at its end. */
void gp_seized_leave(struct gp_seized *seized);
/* Puts the thread back and lets it go.  How long it was stopped, in nanoseconds. */
uint64_t gp_seized_release(struct gp_seized *seized);

#endif
