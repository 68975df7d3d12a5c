/* SPDX-License-Identifier: MIT
 * Shared by ipc.c and api/ipc.c.  Call everything with the lock held. */
#ifndef SIM_IPC_H
#define SIM_IPC_H

#include "cuda/memory.h"

struct sim_ipc_handle {
    uint32_t magic;
    int32_t pid, fd, device; /* device: physical number */
    uint64_t offset, mapped; /* of the block in the exporter's file */
    uint64_t size;           /* the requested bytes, counted as imported */
    uint64_t id;             /* of the block or allocation, so that a handle is not mistaken for that of a later one */
};

/* One per opened handle of this process: opening it again gives the same address. */
struct sim_ipc_import {
    struct sim_ipc_handle handle;
    unsigned opens;
};

#endif
