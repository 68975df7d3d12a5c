/* SPDX-License-Identifier: MIT
 *
 * heap.h: heaps of sub-allocators in the driver's memory.
 */
#ifndef GP_ACCOUNT_HEAP_H
#define GP_ACCOUNT_HEAP_H

#include "base/span.h"
#include <stdbool.h>
#include <stdint.h>

/* Memory is about to be added: segments without a heap become ordinary. */
void gp_heap_settle(void);

/* Those that follow are called under the lock of memory.h. A mapping that was made as a segment of
 * heaps is in the set. */
void gp_heap_memory_new(struct gp_span *memory);
/* Memory is about to leave the set: its heaps end, and their blocks. */
void gp_heap_memory_gone(struct gp_span *memory);
/* Whether a heap reaches into the range. */
bool gp_heap_over(uint64_t address, uint64_t bytes);
/* Segments without a heap become ordinary. */
void gp_heap_unheld_settle(void);

#endif
