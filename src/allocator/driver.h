/* SPDX-License-Identifier: MIT
 *
 * driver.h: how the allocator calls the driver: the driver's own functions, never a wrapper of ours, and what must
 * surround such a call on the program's thread.  Called by all files of allocator/.
 */
#ifndef GP_ALLOCATOR_DRIVER_H
#define GP_ALLOCATOR_DRIVER_H

#include "source/abi.h"
#include <stdbool.h>
#include <stdint.h>

/* CUmemAccessDesc. */
struct gp_cu_access {
    struct gp_cu_location location;
    int flags;
};
#define GP_CU_ACCESS_READWRITE  3
#define GP_CU_ALLOCATION_PLAIN  1 /* CU_MEM_ALLOCATION_TYPE_PINNED: physical memory of a device */
#define GP_CU_STREAM_NONBLOCK   1u
#define GP_CU_STREAM_LEGACY     1u /* CU_STREAM_LEGACY; NULL means the same in the functions that we call */
#define GP_CU_STREAM_PER_THREAD 2u /* CU_STREAM_PER_THREAD: one handle for many streams */
#define GP_CU_EVENT_NO_TIMING   2u
#define GP_CU_RDMA_VMM          110 /* CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED */
#define GP_CU_SYNC_MEMOPS       6   /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */

/* CUresult. */
#define GP_CU_INVALID_VALUE   1u
#define GP_CU_OUT_OF_MEMORY   2u
#define GP_CU_NOT_INITIALIZED 3u
#define GP_CU_INVALID_CONTEXT 201u
#define GP_CU_NOT_FOUND       500u
#define GP_CU_NOT_SUPPORTED   801u
/* 900 .. 908: errors of stream capture. */
#define GP_CU_CAPTURE_FIRST    900u
#define GP_CU_CAPTURE_LAST     908u
#define GP_CU_CAPTURE_IMPLICIT 906u

#define GP_DRIVER_PARAM(_type, _name) _type _name
struct gp_allocator_driver {
#define GP_DRIVER(_name, ...) uint32_t (*_name)(GP_EACH_LIST(GP_DRIVER_PARAM, __VA_ARGS__));
#include "allocator/driver.def"
#undef GP_DRIVER
};

/* Filled by gp_driver_bind, constant from then on. */
extern struct gp_allocator_driver gp_driver_real;

/* Looks the functions up, once.  False: no driver in this process, or it lacks a function that the allocator cannot do
 * without.  Any thread. */
bool gp_driver_bind(void);

/* Around our own driver calls on the program's thread.  The calls are not accounted, do not disturb a capture (relaxed
 * mode: cuda.h, cuThreadExchangeStreamCaptureMode), and run with `ctx` current (NULL: the context that is current
 * anyway).  False: the process is ending or the context is gone; make no call, and do not call gp_driver_leave. */
struct gp_driver_guard {
    uint8_t heed;
    bool pushed, relaxed;
    int mode;
};
bool gp_driver_enter(struct gp_driver_guard *guard, void *ctx);
void gp_driver_leave(struct gp_driver_guard *guard);

/* The context that is current on this thread, or NULL. */
void *gp_driver_current(void);

/* Whether the stream captures, in *status, which is 0 in a driver older than captures.  Returns the driver's error. */
uint32_t gp_driver_capturing(void *stream, int *status);

/* From now on gp_driver_enter fails. */
void gp_driver_stop(void);
extern uint32_t gp_driver_stop_word;
static inline bool gp_driver_stopped(void)
{
    return __atomic_load_n(&gp_driver_stop_word, __ATOMIC_RELAXED);
}

#endif
