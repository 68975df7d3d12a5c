/* SPDX-License-Identifier: MIT
 *
 * cachecheck.h: the invariants of a caching allocator.
 */
#ifndef GP_TEST_LIB_CACHECHECK_H
#define GP_TEST_LIB_CACHECHECK_H

#include "cache/cache.h"

/* While no other call is running.  Returns 0, or -1 with the first broken invariant in why. */
int cache_check(struct gp_cache *cache, char *why, size_t why_bytes);

/* The gauges of a cache, also those that it made itself. */
struct gp_counter *cache_check_gauges(struct gp_cache *cache);

#endif
