/* SPDX-License-Identifier: MIT
 *
 * isolate.h: plays a trace on the simulated GPU through the real product: libgpuprof.so under the C interface of
 * gpuprof.h, in a child process of its own, so that every run begins with a fresh driver.  Called by `gpuprof replay`.
 *
 * What the product says about itself is not believed here: reserved bytes, driver calls and time come from the
 * simulated GPU's own ledger, allocated bytes from the trace.
 */
#ifndef GP_REPLAY_ISOLATE_H
#define GP_REPLAY_ISOLATE_H

#include "trace.h"

#define GP_REPLAY_CALLS 48 /* entry points that one run can use; there are 12 that an allocator has a use for */

struct gp_replay_settings {
    const char *allocator; /* policy */
    const char *conf;      /* GPUPROF_ALLOC_CONF or NULL */
    const char *sim;       /* SPEC of the simulated GPU */
    uint64_t limit_bytes;  /* 0 none */
    unsigned threads;      /* most real threads; 1: all operations on one */
    bool verify;           /* write patterns, check them, check that no two live blocks overlap */
    const char *library;   /* libgpuprof.so */
    const char *driver;    /* the simulated libcuda.so.1 */
    void *listener;
    void (*progress)(void *listener, uint32_t done, uint32_t of); /* every 100 ms or so; may be NULL */
};

struct gp_replay_device {
    uint64_t peak_allocated_bytes, peak_reserved_bytes, hazards;
};

struct gp_replay_call {
    char name[40];
    uint64_t calls, second_half;
    bool memory; /* changes what the driver has given out; else a fence or a question */
};

enum gp_replay_phase { GP_REPLAY_PLAYING, GP_REPLAY_PLAYED, GP_REPLAY_SEEN };

/* Written by the child in shared memory.  Sums over devices, unless it says otherwise. */
struct gp_replay_result {
    uint32_t done; /* operations so far: relaxed, for the progress bar alone */
    /* PLAYED: the child wrote everything and waits, so that its session can be read; SEEN: it may end.  Stored with
     * release, loaded with acquire by the other side: what one wrote before its step is the other's to read. */
    uint32_t phase;
    bool complete;
    char why[400]; /* why it is not */

    uint64_t operations; /* allocations and frees that were asked for, and streams recorded */
    uint64_t failed;     /* allocations refused */
    uint64_t refused;    /* frees and recordings refused: blocks that the product did not know */
    uint64_t elapsed_ns; /* in the operations, without handing over from thread to thread and without verifying */
    uint64_t simulated_ns;
    uint64_t driver_calls, driver_calls_second_half; /* those of `calls` with `memory` */
    uint64_t fence_calls, fence_calls_second_half;   /* the others */
    uint64_t peak_allocated_bytes;                   /* requests rounded to 512 bytes, the same for every policy */
    uint64_t peak_reserved_bytes;
    /* What the product says, for comparison; -1 nothing. */
    int64_t own_reserved_bytes, retries, syncs;
    uint64_t checked, damaged, overlaps, misaligned; /* blocks, with verify */

    uint32_t device_count, call_count;
    struct gp_replay_device devices[GP_REPLAY_DEVICES];
    struct gp_replay_call calls[GP_REPLAY_CALLS];
};

/* 0, or -errno with result->why.  Threads: forks, so the caller has one. */
int gp_replay_run(const struct gp_replay_trace *trace, const struct gp_replay_settings *settings,
                  struct gp_replay_result *result);

#endif
