/* SPDX-License-Identifier: MIT
 *
 * page.h: growable segments. Under grow, not lock.
 */
#ifndef GP_CACHE_PAGE_H
#define GP_CACHE_PAGE_H

#include "cache/cache.h"
#include "cache/internal.h"
#include <stdint.h>

/* How a heap gets pages. MOVE: idle pages of other places first, then new pages for the rest.
 * AHEAD: new pages, and some more ahead of need. EXACT: only as many new pages as needed. */
enum gp_growth { GP_GROW_MOVE, GP_GROW_AHEAD, GP_GROW_EXACT };
/* Maps memory for the request and allocates the block. GP_BACKEND_BUSY: another thread took the
 * mapped memory, or whole_pages: the request needs another hole; try again. */
uint32_t gp_page_grow(struct gp_cache *cache, struct gp_heap *heap, const struct gp_request *request, uint64_t bytes,
                      enum gp_growth how, struct gp_block **out);
/* Unmaps idle pages and returns them to the backend until at most keep_bytes are idle. Returns the
 * bytes released. */
uint64_t gp_page_release(struct gp_cache *cache, uint64_t keep_bytes);
/* Bytes of the pages that are idle as a whole. */
uint64_t gp_page_idle(struct gp_cache *cache); /* under lock */
/* Unreserves address ranges of destroyed streams that hold no pages any more. */
void gp_page_drop_ranges(struct gp_cache *cache);
void gp_page_end(struct gp_cache *cache,
                 struct gp_segment *segment); /* returns all its memory to the backend; no block of it is in use */

#endif
