/* SPDX-License-Identifier: MIT
 *
 * source.h: the source of events, and the thread that queries the driver for what events lack.
 * Called by inject/.
 */
#ifndef GP_SOURCE_SOURCE_H
#define GP_SOURCE_SOURCE_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ==== the source ================================================================================================== */

struct gp_source_status {
    uint32_t source; /* enum gp_wire_source */
    uint32_t cupti_version;
    uint32_t enabled; /* callbacks that are on */
    char detail[128]; /* the path of CUPTI; or why there is no source and which tool holds the subscriber */
};

/* How CUPTI is subscribed to. AUTO: V1, unless the process has a tool that is V2. */
enum gp_cupti_form { GP_CUPTI_AUTO, GP_CUPTI_V1, GP_CUPTI_V2, GP_CUPTI_SHARED };

/* Tries the copies of CUPTI until one subscribes and enables the rows of hooks.def.  Called once,
 * inside cuInit, on the application's thread: of CUDA only cuDriverGetVersion is called.  Never
 * fails: `out` has the result, and `tried` the answer of each copy. */
struct gp_wire_cupti;
void gp_cupti_start(enum gp_cupti_form form, struct gp_source_status *out, struct gp_wire_cupti *tried);

/* Gives the subscriber up, so that another tool can get it.  Callbacks in progress still complete.
 * Any thread. */
bool gp_cupti_yield(void);

/* Whether the subscriber is ours now. Any thread. */
bool gp_cupti_is_held(void);
/* After gp_cupti_yield: subscribes again. Returns the number of callbacks that are on; 0: it did not succeed. Poll
 * thread only. */
uint32_t gp_cupti_resume(void);

/* A hand-over (handover.c): the source of events changes while the program runs. changed: what it is now, or
 * GP_SOURCE_NONE. */
void gp_handover_start(void (*changed)(const struct gp_source_status *status));
/* Gives the subscriber of CUPTI up; the hooks become the source, if the shim is preloaded. False: the subscriber is not
 * ours. Any thread but in a callback. */
bool gp_handover_give(void);
/* The other tool has given the subscriber up: the poll thread subscribes again. Any thread. */
void gp_handover_want(void);
/* Does that, if it is wanted. Poll thread only. */
void gp_handover_look(void);

/* Checks, with a driver call, whether callbacks still come, and subscribes again if they do not; true: it just did.
 * device_count: cuDeviceGetCount.  Poll thread only. */
bool gp_cupti_beat(int (*device_count)(int *));
/* Bytes that the driver has since then, and that no callback reported. Poll thread only. */
void gp_cupti_gap_holds(uint64_t bytes);
/* Returns whether callbacks have ended because the program called cuptiFinalize.  Any thread. */
bool gp_cupti_gone(void);
/* When they had ended for a while, as a sentence; false: they never had. text: "" at first. */
bool gp_cupti_gaps(char *text, size_t bytes);

/* What the poll thread does for others between its queries. */
struct gp_poll_turns {
    void (*handover)(void);                   /* gp_handover_look */
    bool (*beat)(int (*device_count)(int *)); /* gp_cupti_beat */
    void (*gap)(uint64_t bytes);              /* gp_cupti_gap_holds, after a beat that was true */
};

/* Starts the poller: a thread of ours that queries the driver about pools, graphs, imports and
 * devices, outside of callbacks.  turns: kept.  0 or -errno; without the thread, polled values stay
 * unknown. */
int gp_poll_start(const struct gp_poll_turns *turns);
void gp_poll_wake(void);
/* Asks the driver what the program has had before the source was started, and waits at most timeout_ns. */
void gp_poll_scan(uint64_t timeout_ns);
/* Requests a poll of everything and waits at most timeout_ns.  False: not finished in time (the driver
 * is busy). */
bool gp_poll_now(uint64_t timeout_ns);
/* The program has a context: registers poll_last, if that was not done. Called after the driver's call that made
 * it, and by the poller before its first query: handlers run in reverse order, so ours runs before those that the
 * driver has registered by then, and the driver can still be asked. Hold no lock. */
void gp_poll_expect(void);
/* No driver call begins from here on; waits, at most 20 ms, for one that is under way.  For the exit
 * path: a driver that is being torn down may not be asked anything. */
void gp_poll_stop(void);
/* Lets the poller look for what the source does not see, at each gp_poll_now and once at its
 * end. */
void gp_poll_check(void (*check)(void));
/* The same as gp_poll_stop, and the thread ends at the next occasion. */
void gp_poll_end(void);
/* cuDriverGetVersion, once the poller has asked; 0 before. */
uint32_t gp_poll_driver_version(void);

/* Whether driver calls are timed, with two clock readings each.  Set before a source is started. */
extern bool gp_call_timed GP_HIDDEN;

/* Not 0: a stream may be captured: a capture has begun, or one may have begun that the source does not see. */
extern uint32_t gp_call_x_captures GP_HIDDEN;

/* ==== NVTX ======================================================================================================== */
/* NVTX ranges and marks as marks among the events: "nvtx:NAME" where a range begins, "/nvtx:NAME"
 * where it ends, "nvtx.NAME" for an instant.  A program with NVTX version 3 in it loads us for that,
 * if NVTX_INJECTION64_PATH says so (InitializeInjectionNvtx2, gpuprof.h), whether or not it ever
 * calls CUDA; docs/nvtx.md. */

/* Events can be written from here on; what NVTX says before is not kept.  Called by inject/, once. */
void gp_nvtx_start(void);

/* gp_thread_enter, after gp_nvtx_start. */
bool gp_nvtx_enter(void);

#endif
