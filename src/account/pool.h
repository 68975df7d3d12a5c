/* SPDX-License-Identifier: MIT
 *
 * pool.h: created pools.
 */
#ifndef GP_ACCOUNT_POOL_H
#define GP_ACCOUNT_POOL_H

#include <stdint.h>

/* Blocks of a created pool were allocated (+) or freed (-). */
void gp_pool_count(uint64_t pool, int blocks);

#endif
