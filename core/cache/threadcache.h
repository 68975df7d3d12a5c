/* SPDX-License-Identifier: MIT
 *
 * threadcache.h: the caches of threads.
 */
#ifndef GP_CACHE_THREADCACHE_H
#define GP_CACHE_THREADCACHE_H

#include "cache/internal.h"
#include <stdbool.h>
#include <stdint.h>

/* Does nothing if the policy has no thread caches. false: no memory. */
bool gp_thread_open(struct gp_cache *cache);
void gp_thread_close(struct gp_cache *cache);
/* Takes every gate once, and gives it back: what a thread did in its cache before is visible after it, and
 * what it does later comes after all that the caller did before. */
void gp_thread_pass(struct gp_cache *cache);
/* Under lock: returns every cached block to its heap as idle memory. */
void gp_thread_flush(struct gp_cache *cache);
/* The smallest block of the requesting thread's own cache that holds `bytes` becomes idle. false: there
 * is none, or the counters are closed. */
bool gp_thread_yield(struct gp_cache *cache, const struct gp_request *request, uint64_t bytes);
/* True if the cache of one thread holds more than one_bytes, or those of all threads together more
 * than all_bytes. Approximate, because threads keep changing it. No lock. */
bool gp_thread_holds_more(struct gp_cache *cache, uint64_t one_bytes, uint64_t all_bytes);

#endif
