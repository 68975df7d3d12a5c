/* SPDX-License-Identifier: MIT
 *
 * isolate.h: plays a trace on the simulated GPU through the real product (libgpuprof.so, through
 * gpuprof.h), in a child process, so that every run starts with a fresh driver.  Called by `gpuprof
 * replay`.
 *
 * The figures do not come from the product: reserved bytes, driver calls and time come from the
 * ledger of the simulated GPU, allocated bytes from the trace.
 */
#ifndef GP_REPLAY_ISOLATE_H
#define GP_REPLAY_ISOLATE_H

#include "trace.h"

#define GP_REPLAY_CALLS 48 /* entry points that one run can use; an allocator needs 12 */

struct gp_replay_settings {
    const char *allocator; /* policy */
    const char *conf;      /* GPUPROF_ALLOC_CONF or NULL */
    const char *sim;       /* SPEC of the simulated GPU */
    uint64_t limit_bytes;  /* 0 none */
    unsigned threads;      /* limit of real threads; 1: all operations on one thread */
    bool verify;           /* write patterns, check them, check that no two live blocks overlap */
    const char *library;   /* libgpuprof.so */
    const char *driver;    /* the simulated libcuda.so.1 */
    void *listener;
    void (*progress)(void *listener, uint32_t done, uint32_t of); /* called about every 100 ms; may be NULL */
};

struct gp_replay_device {
    uint64_t peak_allocated_bytes, peak_reserved_bytes, hazards;
};

struct gp_replay_call {
    char name[40];
    uint64_t calls, second_half;
    bool memory; /* allocates or frees driver memory; else a fence or a query */
};

enum gp_replay_phase { GP_REPLAY_PLAYING, GP_REPLAY_PLAYED, GP_REPLAY_SEEN };

/* The child writes it in shared memory.  Figures are sums over devices unless noted. */
struct gp_replay_result {
    uint32_t done; /* operations so far: relaxed, for the progress bar alone */
    /* PLAYED: the child wrote everything and waits, so that its session can be read.  SEEN: the
     * child may end.  Each side stores with release and loads with acquire, so it reads everything
     * that the other wrote before its step. */
    uint32_t phase;
    bool complete;
    char why[400]; /* the reason, if it is not complete */

    uint64_t operations; /* allocations, frees and streams recorded, refused ones included */
    uint64_t failed;     /* allocations refused */
    uint64_t refused;    /* frees and recordings refused because the product did not know the block */
    uint64_t elapsed_ns; /* inside operations, without thread hand-over and verification */
    uint64_t simulated_ns;
    uint64_t driver_calls, driver_calls_second_half; /* those of `calls` with `memory` */
    uint64_t fence_calls, fence_calls_second_half;   /* the others */
    uint64_t peak_allocated_bytes;                   /* requests rounded to 512 bytes, the same for every policy */
    uint64_t peak_reserved_bytes;
    /* The product's own figures, for comparison; -1 unknown. */
    int64_t own_reserved_bytes, retries, syncs;
    uint64_t checked, damaged, overlaps, misaligned; /* blocks, with verify */

    uint32_t device_count, call_count;
    struct gp_replay_device devices[GP_REPLAY_DEVICES];
    struct gp_replay_call calls[GP_REPLAY_CALLS];
};

/* 0, or -errno with result->why.  It forks, so the caller must have one thread only. */
int gp_replay_run(const struct gp_replay_trace *trace, const struct gp_replay_settings *settings,
                  struct gp_replay_result *result);

#endif
