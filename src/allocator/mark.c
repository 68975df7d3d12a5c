/* SPDX-License-Identifier: MIT
 * mark.c: see mark.h. */
#include "allocator/mark.h"
#include "allocator/driver.h"
#include "allocator/mapping.h"
#include "base/compiler.h"

static uint32_t x_marks;           /* in the table */
static uint64_t x_id = 1ull << 63; /* the driver counts its ids from 1 */
static const enum gp_mapping_kind mark_kinds[] = {GP_MAPPING_BUFFER, GP_MAPPING_SYNCED};

static bool mark_add(enum gp_mapping_kind kind, const struct gp_served_context *served, uint64_t block, uint64_t value)
{
    bool added = gp_mapping_add(kind, gp_served_index(served), block, value);
    if (added)
        __atomic_fetch_add(&x_marks, 1,
                           __ATOMIC_RELAXED); /* relaxed: the thread that frees the block got its address after this */
    return added;
}

static uint64_t mark_take(enum gp_mapping_kind kind, uint64_t block)
{
    uint64_t value = gp_mapping_take(kind, block);
    if (value)
        __atomic_fetch_sub(&x_marks, 1, __ATOMIC_RELAXED);
    return value;
}

uint64_t gp_mark_buffer(const struct gp_served_context *served, uint64_t block)
{
    uint64_t id = gp_mapping_find(GP_MAPPING_BUFFER, block);
    if (id)
        return id;
    id = __atomic_add_fetch(&x_id, 1, __ATOMIC_RELAXED);
    if (!mark_add(GP_MAPPING_BUFFER, served, block, id))
        return 0;
    return gp_mapping_find(GP_MAPPING_BUFFER,
                           block); /* if two threads were first, the row added last counts for both */
}

bool gp_mark_is_synced(uint64_t block)
{
    return gp_mapping_find(GP_MAPPING_SYNCED, block) != 0;
}

void gp_mark_synced(const struct gp_served_context *served, uint64_t block, bool on)
{
    mark_take(GP_MAPPING_SYNCED, block);
    if (on)
        mark_add(GP_MAPPING_SYNCED, served, block, 1);
}

static void mark_unsync(struct gp_served_context *served, uint64_t block)
{
    const unsigned off = 0;
    struct gp_driver_guard guard;
    uint64_t base, bytes;
    bool dedicated = false;
    gp_cache_segment_of(gp_served_cache(served), block, &base, &bytes, &dedicated);
    if (dedicated && gp_driver_real.cuPointerSetAttribute && gp_driver_enter(&guard, NULL)) {
        gp_driver_real.cuPointerSetAttribute(&off, GP_CU_SYNC_MEMOPS, block);
        gp_driver_leave(&guard);
    }
}

void gp_mark_drop(struct gp_served_context *served, uint64_t address)
{
    struct gp_grant block;
    if (GP_LIKELY(__atomic_load_n(&x_marks, __ATOMIC_RELAXED) == 0))
        return;
    if (!gp_cache_find(gp_served_cache(served), address, &block) || block.address != address)
        return;
    while (mark_take(GP_MAPPING_BUFFER, address))
        continue;
    if (mark_take(GP_MAPPING_SYNCED, address))
        mark_unsync(served, address);
}

void gp_mark_forget(const struct gp_served_context *served)
{
    struct gp_mapping mapping;
    for (unsigned i = 0; i < GP_COUNT(mark_kinds); i++)
        for (unsigned at = 0; gp_mapping_next(mark_kinds[i], gp_served_index(served), &at, &mapping);)
            mark_take(mark_kinds[i], mapping.key);
}
