/* SPDX-License-Identifier: MIT
 *
 * memory.h: the driver's memory in the order of its addresses, and how it becomes a segment.
 * memory.c, heap.c and ground.c share it under one lock.
 *
 * A driver call changes the map of records first and then looks whether the table is kept. So a
 * holder of the lock that finds no record leaves the rest to that call, which comes for the lock.
 */
#ifndef GP_ACCOUNT_MEMORY_H
#define GP_ACCOUNT_MEMORY_H

#include "account/feed/feed.h"
#include "account/internal.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/span.h"
#include <stdbool.h>
#include <stdint.h>

/* The driver did not free a segment with heaps after all, and its bytes are back: it is
 * an ordinary allocation. */
void gp_memory_refused(struct gp_record *segment);

extern struct gp_memory {
    struct gp_lock lock;
    struct gp_span_set set;
    bool lacks; /* some memory found no room in it */
} gp_memory;

static inline bool gp_memory_on(void)
{
    return GP_UNLIKELY(__atomic_load_n(&gp_accounts.x_memory_on, __ATOMIC_RELAXED));
}

/* All that follows is under the lock. */
void gp_memory_start(void);
bool gp_memory_is(const struct gp_record *record);
/* No other memory of the set may overlap it. NULL: no room, which is counted as lost. */
struct gp_span *gp_memory_put(const struct gp_record *record);
/* want: GP_SEGMENT_*. owner: of a framework's. whole: it was never allocated, so that the peaks
 * forget it. False: it cannot become one. */
bool gp_memory_make(struct gp_span *memory, uint8_t want, uint8_t owner, bool whole);
/* It is an ordinary allocation or mapping again, if it still is such a segment. */
void gp_memory_unmake(enum gp_space space, uint64_t address, uint8_t segment);

#endif
