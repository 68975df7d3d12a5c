/* SPDX-License-Identifier: MIT
 *
 * source.h: where events come from, and the thread that asks the driver what events do not tell.
 * Called by inject/.
 */
#ifndef GP_SOURCE_SOURCE_H
#define GP_SOURCE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_source_status {
    uint32_t source; /* enum gp_wire_source */
    uint32_t cupti_version;
    uint32_t enabled; /* callbacks that are on */
    char detail[128]; /* the path of CUPTI; or why there is no source and which tool holds the subscriber */
};

/* Tries the copies of CUPTI until one subscribes and enables the rows of hooks.def.  Called once,
 * inside cuInit, on the application's thread: of CUDA only cuDriverGetVersion is called.  Never
 * fails: `out` says what came of it, and `tried` what each copy answered. */
struct gp_wire_cupti;
void gp_cupti_start(struct gp_source_status *out, struct gp_wire_cupti *tried);

/* Gives the subscriber up, so that another tool can have it.  Callbacks that are under way end by
 * themselves.  Any thread. */
bool gp_cupti_yield(void);

/* Checks, with a driver call, whether callbacks still come.  device_count: cuDeviceGetCount.  Poll
 * thread only. */
void gp_cupti_beat(int (*device_count)(int *));
/* No callbacks come any more, as the program called cuptiFinalize.  Any thread. */
bool gp_cupti_gone(void);

/* The poller: a thread of ours that asks the driver about pools, graphs, imports and devices, off
 * every callback. 0 or -errno (no thread: polled quantities stay unknown). */
int gp_poll_start(void);
void gp_poll_wake(void);
/* Asks for a poll of everything now and waits at most timeout_ns.  False: not finished in time (the
 * driver is busy). */
bool gp_poll_now(uint64_t timeout_ns);
/* No driver call begins from here on; waits, at most 20 ms, for one that is under way.  For the exit
 * path: a driver that is being torn down may not be asked anything. */
void gp_poll_stop(void);
/* cuDriverGetVersion, once the poller has asked; 0 before. */
uint32_t gp_poll_driver_version(void);

/* Driver calls are timed: a look at the clock each way.  Set before a source is started, or never. */
extern bool gp_call_timed;

#endif
