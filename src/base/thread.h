/* SPDX-License-Identifier: MIT
 *
 * thread.h: what one application thread carries for us.  It lives in initial-exec thread-local storage, because the
 * general model may call malloc on first use, inside somebody's allocator; and a library that is dlopened (as
 * CUDA_INJECTION64_PATH does) shares a small static block with all others, hence the limit of 64 bytes.
 */
#ifndef GP_BASE_THREAD_H
#define GP_BASE_THREAD_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

struct gp_thread {
    uint32_t number; /* 1, 2, 3 ... in order of first event; 0 not yet: chooses the counter shard */
    uint32_t tid;
    uint8_t inside;      /* our code is running on this thread */
    uint8_t ignored;     /* its driver calls are not the program's: one of our own threads, or our cache at work */
    uint16_t node_type;  /* graph node made during the current driver call (CUgraphNodeType), + 1; 0 none */
    uint32_t range;      /* open NVTX ranges (source/nvtx.c) */
    uint64_t node;       /* its handle ... */
    uint64_t graph;      /* ... and its graph's */
    uint64_t chunk_turn; /* the event ring's cursor (ds/ring.h) */
    uint16_t chunk_used;
    uint8_t cost; /* of the driver call whose exit is being handled (wire.h: gp_wire_cost); 0 not known */
    uint8_t pad_;
    uint32_t call_ns; /* when the driver call under way began: the clock's lower half */
};
_Static_assert(sizeof(struct gp_thread) <= 64, "static TLS is scarce");

extern __thread struct gp_thread gp_thread __attribute__((tls_model("initial-exec")));

/* Enters our code on this thread: false if we are switched off, in a forked child, on one of our own threads or already
 * inside (a signal handler that calls CUDA); the last is counted by the caller through gp_thread_nested().  Every true
 * needs a leave. */
bool gp_thread_enter(void);
void gp_thread_leave(void);

/* Around driver calls that our own code makes on the program's thread: nobody accounts them.  Nests; gives the old
 * value for gp_thread_heed. */
static inline uint8_t gp_thread_ignore(void)
{
    uint8_t before = gp_thread.ignored;
    gp_thread.ignored = 1;
    return before;
}

static inline void gp_thread_heed(uint8_t before)
{
    gp_thread.ignored = before;
}

/* Process-wide life: off until gp_life_start, off for good in a forked child (also raw fork: the page is wiped) and
 * after life_end.  0 or -errno from start. */
int gp_life_start(void);
void gp_life_end(void);
bool gp_life_on(void);

/* Where to count callbacks that interrupted our own code; may be NULL. */
extern uint64_t *gp_thread_nested;

#endif
