/* SPDX-License-Identifier: MIT
 *
 * stub.h: the piece of code that a stopped thread runs (stub.c).
 */
#ifndef GP_ATTACH_STUB_H
#define GP_ATTACH_STUB_H

#include <attach/attach.h>
#include <stdint.h>

enum gp_stub_state {
    GP_STUB_NONE,
    GP_STUB_ASKS,   /* the worker waits for the library's bytes in `fd` */
    GP_STUB_LOADS,  /* it is in dlopen */
    GP_STUB_CALLS,  /* it is in gpuprof_attach */
    GP_STUB_DONE,   /* `result` is valid; the worker waits for GP_STUB_LEAVE */
    GP_STUB_FAILED, /* the same, and `error` */
};

#define GP_STUB_PENDING INT32_MIN

enum gp_stub_order { GP_STUB_WAIT, GP_STUB_LOAD, GP_STUB_LEAVE };

/* Shared with the code in stub.c, which knows the offsets. */
struct gp_stub_data {
    uint32_t order, state;
    uint64_t pthread_create, pthread_detach, errno_location, dlopen, dlsym, dlerror, munmap;
    uint64_t region, region_bytes;
    uint64_t entry; /* gpuprof_attach, if it is there already */
    uint64_t handle, thread;
    int32_t created, result; /* created: of pthread_create, GP_STUB_PENDING until then */
    int32_t fd, tid;
    uint64_t worker, frame;
    char symbol[32], comm[16], file[32], path[48];
    char error[512];
    char settings[GP_ATTACH_SETTINGS];
    uint32_t spins; /* for how many rounds the borrowed thread waits for this command */
    uint32_t gone;  /* it has gone back by itself */
};

extern const char gp_stub_begin[], gp_stub_worker[], gp_stub_end[];

#endif
