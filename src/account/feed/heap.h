/* SPDX-License-Identifier: MIT
 *
 * heap.h: heaps of sub-allocators.
 *
 * A sub-allocator cuts blocks out of its heap, which lies in one driver allocation. While the heap
 * is there, its memory is reserved, and its blocks are allocated. The part of the driver allocation
 * outside of its heaps stays allocated. A heap or block that contradicts what is known is
 * counted in the session's `lost` and otherwise ignored. Any thread.
 */
#ifndef GP_ACCOUNT_FEED_HEAP_H
#define GP_ACCOUNT_FEED_HEAP_H

#include <stdbool.h>
#include <stdint.h>

/* False: ignored. Memory that is not the device's is not counted as lost. */
bool gp_feed_heap_begin(uint64_t address, uint64_t bytes);
/* Its blocks end with it, and the driver allocation, if it is still there, is allocated again. */
void gp_feed_heap_end(uint64_t address);
/* All of its blocks end. */
void gp_feed_heap_reset(uint64_t address);
void gp_feed_heap_block(uint64_t heap, uint64_t address, uint64_t bytes);
void gp_feed_heap_resize(uint64_t address, uint64_t bytes);
void gp_feed_heap_unblock(uint64_t address);

#endif
