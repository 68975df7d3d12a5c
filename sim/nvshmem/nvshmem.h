/* SPDX-License-Identifier: MIT
 * A stand-in for NVSHMEM's library of the host, libnvshmem_host.so.3: what its files share. */
#ifndef SIM_NVSHMEM_H
#define SIM_NVSHMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "nccl/nccl.h"

#define NVSHMEM_LIBRARY "libnvshmem_host.so.3"
#define NVSHMEM_TEAMS   128 /* as many as the real one makes room for, unless NVSHMEM_MAX_TEAMS says otherwise */
#define NVSHMEM_MOST    64  /* processing elements (PEs): the real one reserves addresses for each */

/* The job that this process is a PE of (exchange.c).  `room` is NULL before the start and after the end. */
struct nvshmem_job {
    struct nccl_room *room;
    int pe, pes;
};
extern struct nvshmem_job nvshmem_job;

/* Whether to wait on for a PE since `begun`; false after a message. */
bool nvshmem_job_waits(int peer, time_t begun);
/* Sends `bytes` to each other PE and takes as many of each into rows of `all`, its own row
 * included.  Each PE makes the same calls in the same order.  0, or -1 after a message: a PE has
 * ended, or does not come. */
int nvshmem_exchange(const void *own, size_t bytes, void *all);

/* ---- the symmetric heap (heap.c) --------------------------------------------------------------------------------- */

/* With the library's own part.  0, or -1 after a message. */
int nvshmem_heap_begin(void);
void nvshmem_heap_end(void);

#endif
