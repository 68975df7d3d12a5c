/* SPDX-License-Identifier: MIT
 *
 * pool.h: the driver's pools of stream-ordered memory.
 */
#ifndef GP_ACCOUNT_FEED_POOL_H
#define GP_ACCOUNT_FEED_POOL_H

#include <stdbool.h>
#include <stdint.h>

#define GP_POOL_IMPORTED 1u /* nothing can be allocated from it, nothing is polled */
#define GP_POOL_MANAGED  2u /* hands out managed memory, which is never added to the totals */
#define GP_POOL_NOWHERE  4u /* set by gp_feed_pool_create if the device is unknown: nothing is polled */
#define GP_POOL_UNSURE   8u /* set by gp_feed_pools_unsure: perhaps the handle is dead, so nothing is polled */
void gp_feed_pool_create(uint64_t pool, int device, unsigned flags);
/* The same, if the pool is not known yet: a pool that no call created. */
void gp_feed_pool_found(uint64_t pool, int device, unsigned flags);
/* The device's primary context ends, and it is not known whether the pools' handles outlive that: none is
 * polled until the program has used it again, or the driver has named it. Waits as gp_feed_pool_destroy_begin. */
void gp_feed_pools_unsure(int device);
/* The program has set the pool's release threshold above 0.  device: of the call, if the pool's is not known. */
void gp_feed_pool_keeps(uint64_t pool, int device);
/* The program has used the pool, and the driver knew it. */
void gp_feed_pool_sure(uint64_t pool);
/* Returns a token. The driver must not be asked about a destroyed pool, so this waits, at most 10 ms,
 * until a query of this pool has ended. Before that, if blocks of the pool are live and so keep it
 * alive, it waits at most 10 ms for a last poll. After a wait in vain each is 1 ms. */
uint32_t gp_feed_pool_destroy_begin(uint64_t pool);
void gp_feed_pool_destroy_end(uint32_t token, bool ok);
void gp_feed_pool_use(int device, uint64_t pool); /* the device's current pool changed; 0: it is the default pool */
uint64_t gp_feed_pool_of(int device);
/* The device of a known pool, else GP_DEVICE_UNKNOWN. */
int gp_feed_pool_device(uint64_t pool);
bool gp_feed_pool_is_managed(uint64_t pool);
/* The pool's memory is not managed, and lies at a place that this build does not know. */
bool gp_feed_pool_is_nowhere(uint64_t pool);

#endif
