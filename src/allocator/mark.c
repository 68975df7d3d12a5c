/* SPDX-License-Identifier: MIT
 * mark.c: see mark.h. */
#include "allocator/mark.h"
#include "base/compiler.h"
#include "allocator/driver.h"
#include "allocator/piece.h"

static uint32_t x_marks;           /* in the table */
static uint64_t x_id = 1ull << 63; /* the driver counts from below */
static const enum gp_piece_kind gp_mark_kinds[] = {GP_PIECE_BUFFER, GP_PIECE_SYNCED};

static bool gp_mark_add(enum gp_piece_kind kind, const struct gp_home *home, uint64_t block, uint64_t value)
{
    bool added = gp_piece_add(kind, gp_home_index(home), block, value);
    if (added)
        __atomic_fetch_add(&x_marks, 1, __ATOMIC_RELAXED); /* the thread that frees the block learned of it first */
    return added;
}

static uint64_t gp_mark_take(enum gp_piece_kind kind, uint64_t block)
{
    uint64_t value = gp_piece_take(kind, block);
    if (value)
        __atomic_fetch_sub(&x_marks, 1, __ATOMIC_RELAXED);
    return value;
}

uint64_t gp_mark_buffer(const struct gp_home *home, uint64_t block)
{
    uint64_t id = gp_piece_find(GP_PIECE_BUFFER, block);
    if (id)
        return id;
    id = __atomic_add_fetch(&x_id, 1, __ATOMIC_RELAXED);
    if (!gp_mark_add(GP_PIECE_BUFFER, home, block, id))
        return 0;
    return gp_piece_find(GP_PIECE_BUFFER, block); /* of two threads that ask first, the one that added last */
}

bool gp_mark_is_synced(uint64_t block)
{
    return gp_piece_find(GP_PIECE_SYNCED, block) != 0;
}

void gp_mark_synced(const struct gp_home *home, uint64_t block, bool on)
{
    gp_mark_take(GP_PIECE_SYNCED, block);
    if (on)
        gp_mark_add(GP_PIECE_SYNCED, home, block, 1);
}

static void gp_mark_unsync(struct gp_home *home, uint64_t block)
{
    const unsigned off = 0;
    struct gp_driver_guard guard;
    uint64_t base, bytes;
    bool dedicated = false;
    gp_cache_segment_of(gp_home_has(home), block, &base, &bytes, &dedicated);
    if (dedicated && gp_driver_real.cuPointerSetAttribute && gp_driver_enter(&guard, NULL)) {
        gp_driver_real.cuPointerSetAttribute(&off, GP_CU_SYNC_MEMOPS, block);
        gp_driver_leave(&guard);
    }
}

void gp_mark_drop(struct gp_home *home, uint64_t address)
{
    struct gp_grant block;
    if (GP_LIKELY(__atomic_load_n(&x_marks, __ATOMIC_RELAXED) == 0))
        return;
    if (!gp_cache_find(gp_home_has(home), address, &block) || block.address != address)
        return;
    while (gp_mark_take(GP_PIECE_BUFFER, address))
        continue;
    if (gp_mark_take(GP_PIECE_SYNCED, address))
        gp_mark_unsync(home, address);
}

void gp_mark_forget(const struct gp_home *home)
{
    struct gp_piece piece;
    for (unsigned i = 0; i < GP_COUNT(gp_mark_kinds); i++)
        for (unsigned at = 0; gp_piece_next(gp_mark_kinds[i], gp_home_index(home), &at, &piece);)
            gp_mark_take(gp_mark_kinds[i], piece.key);
}
