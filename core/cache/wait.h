/* SPDX-License-Identifier: MIT
 *
 * wait.h: blocks that wait for other streams.
 */
#ifndef GP_CACHE_WAIT_H
#define GP_CACHE_WAIT_H

#include "cache/internal.h"
#include <stdbool.h>

void gp_wait_uses_drop(struct gp_cache *cache, struct gp_block *block);
void gp_wait_for(struct gp_cache *cache, struct gp_block *block, bool unordered); /* under lock */
/* Records the fences that are due. Under grow, not lock; called after a free if
 * gp_wait_wants_record returned true. */
void gp_wait_record(struct gp_cache *cache);
bool gp_wait_wants_record(const struct gp_cache *cache);
/* Records the fences of waiting blocks (open_too: also of the open batch) and queries all fences;
 * wait: blocks until they are reached. Under grow, not lock. */
void gp_wait_settle(struct gp_cache *cache, bool open_too, bool wait);
/* Waits until all work of the device is done. False: not possible now. */
bool gp_wait_all(struct gp_cache *cache);
void gp_wait_forget(struct gp_cache *cache); /* under lock: makes every waiting block idle */

#endif
