/* SPDX-License-Identifier: MIT
 *
 * before.h: memory and blocks from before the attach.
 */
#ifndef GP_ACCOUNT_BEFORE_H
#define GP_ACCOUNT_BEFORE_H

#include "account/feed/feed.h"
#include "account/internal.h"
#include <stdbool.h>
#include <stdint.h>

/* True: the address was from before the attach. After the driver has freed it. */
bool gp_before_free(enum gp_space space, uint64_t address);
void gp_before_replaced(uint64_t address); /* for gp_before_alloc */
void gp_before_context(uint32_t ctx);
void gp_before_renumber(uint32_t from, uint32_t to);
/* The memory, by address; NULL: gpuprof was not attached late. */
static inline struct gp_map *gp_before_map(void)
{
    return __atomic_load_n(&gp_accounts.x_before, __ATOMIC_ACQUIRE); /* [before.A] */
}

/* A block has entered its map. */
static inline void gp_before_alloc(uint64_t address)
{
    if (GP_UNLIKELY(gp_before_map() != NULL))
        gp_before_replaced(address);
}

/* Before a block that a framework takes back leaves the map of blocks; and when one has been
 * handed out. Under the framework's lock of the device. */
void gp_before_block_freed(uint64_t address);
void gp_before_block_made(uint64_t address);
/* Whether the blocks are what the framework's totals say. */
void gp_before_block_compare(int device, int64_t before_bytes);
/* The blocks; NULL: not known. */
struct gp_map *gp_before_blocks(void);

#endif
