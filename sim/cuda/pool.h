/* SPDX-License-Identifier: MIT
 * A stream-ordered memory pool from inside: shared by pool.c (blocks, growth, reuse), poolorder.c
 * (allocation and free in stream order) and api/pool.c (attributes, access, sharing, which pool is
 * current).  Everything under the simulator's lock. */
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include "cuda/stream.h"

/* Backing comes in pieces of at least this: drivers do not document their step; users report 32
 * MiB, which is large enough that a loop of small allocations does not ask the device each time. */
#define SIM_POOL_CHUNK (32 * SIM_MIB)
/* Placement of allocations: cuMemAlloc's 512 bytes, so that switching between the two changes no
 * alignment. */
#define SIM_POOL_STEP  ((size_t)512)
#define SIM_POOL_MAGIC UINT64_C(0x6c6f6f702d6d6973)

/* A stretch of a chunk, used or free.  The pieces of a chunk are a list by address without gaps. */
struct sim_piece {
    struct sim_piece *next;
    struct sim_chunk *chunk;
    CUdeviceptr base;
    size_t size;
    struct sim_memory *memory; /* used: its record; NULL: free */
    uint32_t free_slot;        /* whose stream order freed it */
    struct sim_point freed;    /* free: when the free takes effect; empty once the host knows */
};
struct sim_chunk {
    struct sim_chunk *next;
    struct sim_pool *pool;
    CUdeviceptr base;
    size_t size;
    uint64_t offset; /* in the pool's own memfd or in the common one */
    size_t used_pieces;
    struct sim_piece *pieces;
};
struct sim_pool {
    uint64_t magic;
    struct sim_pool *next;
    CUmemPoolProps props;
    int device; /* SIM_HOST: host memory */
    bool standard, destroyed, imported;
    bool dead; /* its device's primary context has ended */
    int fd;    /* own memfd when it can be shared or is imported, else -1 */
    uint64_t fd_end;
    uint64_t threshold;
    int reuse[3]; /* FOLLOW_EVENT_DEPENDENCIES, ALLOW_OPPORTUNISTIC, ALLOW_INTERNAL_DEPENDENCIES */
    uint64_t reserved, reserved_high, used, used_high;
    uint64_t outstanding; /* live allocations; imported pools: live imported pointers */
    struct sim_chunk *chunks;
    unsigned char access[SIM_MAX_DEVICES]; /* CUmemAccess_flags */
};

/* First page of a pool's memfd: the facts that an importer needs. */
struct sim_pool_header {
    uint64_t magic;
    int physical; /* device, or SIM_HOST */
    CUmemPoolProps props;
};

extern struct sim_pool *sim_pools;
struct sim_pool *sim_pool_make(const CUmemPoolProps *props, int device, bool standard, int fd);
/* Returns unused memory to the device, whatever the thresholds say; its bytes. */
uint64_t sim_pool_reclaim(int device);
CUresult sim_pool_alloc(struct sim_pool *p, size_t bytes, struct sim_stream *s, CUdeviceptr *out);
void sim_pool_trim(struct sim_pool *p, uint64_t keep, bool below);
void sim_pool_end(struct sim_pool *p);
/* The pool goes once nothing is outstanding; until then it lives on without a handle. */
void sim_pool_maybe_end(struct sim_pool *p);
CUresult sim_pool_record_access(struct sim_memory *m, size_t offset, size_t size, int device, bool write);
/* The device's primary context has ended. */
void sim_pools_reset(int device);
/* Frees an imported pointer. */
CUresult sim_pool_import_free(struct sim_memory *m);

struct sim_pool_export {
    uint64_t magic, inode, offset, size;
};

/* An imported pointer: its record and the pages that were mapped for it. */
struct sim_pool_import {
    struct sim_pool *pool;
    CUdeviceptr base;
    size_t size;
    int device;
};

/* pool.c */
void sim_piece_split(struct sim_piece *f, size_t need);
struct sim_piece *sim_pool_place(struct sim_pool *p, size_t need, const struct sim_stream *s);
void sim_piece_free(struct sim_piece *f, const struct sim_point *freed, uint32_t slot);
extern struct sim_pool *sim_pool_defaults[SIM_MAX_DEVICES + 1];
extern struct sim_pool *sim_pool_currents[SIM_MAX_DEVICES + 1];
CUresult sim_pool_allows(const struct sim_pool *p, int device, bool write);

#endif
