/* SPDX-License-Identifier: MIT
 * Shared by external.c and api/external.c.  Call everything with the lock held. */
#ifndef SIM_EXTERNAL_H
#define SIM_EXTERNAL_H

#include "cuda/memory.h"

struct sim_external {
    struct sim_external *next;
    int fd;
    uint64_t size;
    uint32_t context_uid;
    unsigned users; /* the handle itself and its mappings */
    bool destroyed;
};

/* The data of a mapping; the mapped bytes start at the page that contains the offset. */
struct sim_external_mapping {
    struct sim_external *external;
    CUdeviceptr base;
    size_t mapped;
    uint64_t size;
    int device;
};

/* external.c */
extern struct sim_external *sim_externals;
void sim_external_put(struct sim_external *external);
void sim_mapping_end(struct sim_external_mapping *mapping);

#endif
