/* SPDX-License-Identifier: MIT
 *
 * attach.h: brings libgpuprof.so into a process that runs already, and starts it there.  Called by
 * cmd/attach.c.  docs/attach.md describes the way in, the promises and the refusals.
 */
#ifndef GP_ATTACH_ATTACH_H
#define GP_ATTACH_ATTACH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Settings of the library, lines of NAME=VALUE: what fits into the memory that is lent to it. */
#define GP_ATTACH_SETTINGS 2560
#define GP_ATTACH_WHY      512

enum gp_attach_outcome {
    GP_ATTACH_DONE,       /* gpuprof_attach was called: see `returned` */
    GP_ATTACH_ALREADY,    /* the process is profiled */
    GP_ATTACH_GONE,       /* there is no such process, or it ended meanwhile */
    GP_ATTACH_REFUSED,    /* not possible, and the process was not touched */
    GP_ATTACH_IMPOSSIBLE, /* the same, for no process of this machine */
    GP_ATTACH_FAILED,     /* something went wrong inside the process, and was undone */
    GP_ATTACH_LATE,       /* the library is still being loaded, by a thread of its own */
};

struct gp_attach {
    pid_t pid;
    uint64_t started;     /* if not 0: only the process that started then, in clock ticks since the boot */
    const char *library;  /* file to load */
    const char *settings; /* lines of NAME=VALUE */
    uint64_t find_ns;     /* how long to look for a thread that may be borrowed */
    uint64_t load_ns;     /* how long to wait for the library to be loaded */
    /* Results. */
    int returned;             /* by gpuprof_attach: 0 or -errno */
    bool was_loaded;          /* a copy of the library was in the process already, and was used */
    pid_t thread;             /* that was borrowed */
    uint64_t pause_ns;        /* how long it was stopped */
    bool by_python;           /* its interpreter loaded the library; pause_ns: how long that took */
    int stops;                /* how many stops of threads it took in all */
    char note[GP_ATTACH_WHY]; /* why a Python that could have been asked was not; "" nothing to say */
    char why[GP_ATTACH_WHY];  /* unless DONE: a sentence without a period */
    char hint[GP_ATTACH_WHY]; /* what would help; "" unknown */
};

/* One attach to a process at a time: takes the lock, for which it waits so long. It ends when the
 * descriptor is closed, or with this command. A descriptor; -ETIMEDOUT: another command has it; another
 * -errno: there is no lock, and gp_attach tells why. */
int gp_attach_lock(pid_t pid, uint64_t wait_ns);

/* Needs SIGCHLD blocked in the calling thread, which is the only one that waits for children. */
enum gp_attach_outcome gp_attach(struct gp_attach *attach);

/* What the library in the process says about its start.  0; -ENOENT: there is no library that says
 * it; -errno. */
struct gp_wire_attach_state;
int gp_attach_state(pid_t pid, struct gp_wire_attach_state *state);

#endif
