/* SPDX-License-Identifier: MIT
 *
 * block.h: blocks: one address, one owner. Pointers from other processes too.
 */
#ifndef GP_ACCOUNT_FEED_BLOCK_H
#define GP_ACCOUNT_FEED_BLOCK_H

#include "account/feed/feed.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_allocation {
    enum gp_space space;
    enum gp_wire_kind kind;
    int device;   /* index in the session (GP_WIRE_HOST for host memory) or GP_DEVICE_UNKNOWN */
    uint32_t ctx; /* the context that owns it; 0: none, so it survives contexts */
    uint64_t address;
    uint64_t bytes;           /* granted */
    uint64_t requested_bytes; /* requested */
    uint64_t stream;
    uint64_t pool;  /* the created pool that it came from; 0: none, or the default pool */
    bool estimated; /* bytes are an estimate (arrays) */
};

void gp_feed_alloc(const struct gp_allocation *block);
/* The same for linear memory of a device. */
void gp_feed_linear(uint64_t address, uint64_t bytes, int device, uint32_t ctx);
/* And for that of a device's own pool. */
void gp_feed_pooled(uint64_t address, uint64_t bytes, int device, uint64_t stream);
uint32_t gp_feed_free_begin(enum gp_space space, uint64_t address);
void gp_feed_free_end(uint32_t token, bool ok, uint64_t stream);
/* The driver freed something whose allocation was not seen. */
void gp_feed_unknown_free(enum gp_space space, uint64_t address);

void gp_feed_ipc_open(uint64_t address, int device, uint32_t ctx);
uint32_t gp_feed_ipc_close_begin(uint64_t address);
void gp_feed_ipc_close_end(uint32_t token, bool ok);

/* A pointer from another process's pool: it owns 0 bytes here and is freed like any device
 * address. */
void gp_feed_pool_import_pointer(uint64_t address, int device);

#endif
