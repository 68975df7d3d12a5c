/* SPDX-License-Identifier: MIT
 *
 * ground.h: the driver's memory under the blocks of frameworks.
 */
#ifndef GP_ACCOUNT_GROUND_H
#define GP_ACCOUNT_GROUND_H

#include "account/internal.h"
#include "base/compiler.h"
#include "base/map.h"
#include <stdbool.h>
#include <stdint.h>

/* The number of claims and provisional segments. 0: the blocks of frameworks lie in their own
 * segments, as far as is known. */
extern uint32_t gp_ground_x_odd;
/* A framework hands a block out. True: it is counted, as far as there is memory under it, and in the map of blocks;
 * status: of gp_map_insert. reserved_bytes: the framework's total; -1: unknown. */
bool gp_ground_block(struct gp_record *block, int64_t reserved_bytes, int *status);
/* It takes a block back whose link is not 0, and which has left its map. False: count it as any other. */
bool gp_ground_unblock(const struct gp_record *block);
/* The driver's memory is there, in its map and in the totals; or it has left its map, and is about to leave them. */
void gp_ground_enter(const struct gp_record *memory); /* for gp_ground_add */
void gp_ground_leave(const struct gp_record *memory); /* for gp_ground_gone */
static inline void gp_ground_add(const struct gp_record *memory)
{
    if (GP_UNLIKELY(__atomic_load_n(&gp_accounts.x_memory_on, __ATOMIC_RELAXED)))
        gp_ground_enter(memory);
}
static inline void gp_ground_gone(const struct gp_record *memory)
{
    if (GP_UNLIKELY(__atomic_load_n(&gp_accounts.x_memory_on, __ATOMIC_RELAXED) || memory->segment))
        gp_ground_leave(memory);
}
void gp_ground_context_gone(uint32_t ctx);
/* A segment that a framework has just taken as linear memory, whose block must be the next that its thread reports. */
void gp_ground_provisional(const struct gp_record *segment);
/* This thread adds memory (0), or frees that at the address. */
void gp_ground_decide(uint64_t address);
static inline void gp_ground_next(uint64_t address)
{
    if (GP_UNLIKELY(__atomic_load_n(&gp_accounts.x_memory_waits, __ATOMIC_RELAXED)))
        gp_ground_decide(address);
}
/* The numbers are about to be read. */
void gp_ground_look(void);
/* Returns GP_SEGMENT_*: the segment that memory at this place is to be. owner: of a framework's
 * segment; device: only memory of that one becomes it. */
uint8_t gp_ground_wants(uint64_t address, uint64_t bytes, uint8_t *owner, uint8_t *device);
/* A driver call has taken a record out of its map that is in no set. If it became ordinary a moment
 * ago, this waits until that is recorded: the call's own events come after it. */
void gp_ground_pass(void);
/* The program freed a reservation of addresses. */
void gp_ground_range_gone(uint64_t address, uint64_t bytes);

#endif
