/* SPDX-License-Identifier: MIT
 *
 * mapping.c: what is known of memory by its address: mappings of growable memory, and properties of
 * blocks; see mapping.h.
 */
#include "allocator/mapping.h"
#include "allocator/driver.h"
#include "allocator/served.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "cache/cache.h"
#include <sys/mman.h>

/* ==== growable memory ============================================================================================= */
/* A hash table in one reserved region: pages that are not used cost no memory. */

/* Twice the number of 2 MiB pages in 1 TB. */
#define GP_MAPPINGS (1u << 20)
#define GP_BUCKETS  4096

/* All of it under gp_served_lock. */
static struct gp_mapping *mappings;
static uint32_t mapping_buckets[GP_BUCKETS];
static uint32_t mapping_free, mapping_high;

static uint32_t *mapping_bucket(enum gp_mapping_kind kind, uint64_t key)
{
    /* Fibonacci hashing: the multiplier spreads page numbers over the high bits. */
    return &mapping_buckets[((key + kind) * 0x9e3779b97f4a7c15ull) >> 52];
}

static bool mapping_room(void)
{
    if (mappings)
        return mapping_free || mapping_high < GP_MAPPINGS;
    void *at = mmap(NULL, GP_MAPPINGS * sizeof(struct gp_mapping), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return false;
    mappings = at;
    return true;
}

bool gp_mapping_add(enum gp_mapping_kind kind, unsigned served, uint64_t key, uint64_t bytes)
{
    gp_lock_take(&gp_served_lock);
    bool room = mapping_room();
    if (room) {
        uint32_t index = mapping_free ? mapping_free : ++mapping_high, *bucket = mapping_bucket(kind, key);
        struct gp_mapping *mapping = &mappings[index - 1];
        if (mapping_free)
            mapping_free = mapping->next;
        *mapping = (struct gp_mapping){key, bytes, *bucket, (uint8_t)kind, (uint8_t)served};
        *bucket = index;
    }
    gp_lock_give(&gp_served_lock);
    return room;
}

uint64_t gp_mapping_take(enum gp_mapping_kind kind, uint64_t key)
{
    uint64_t bytes = 0;
    gp_lock_take(&gp_served_lock);
    for (uint32_t *at = mapping_bucket(kind, key); *at; at = &mappings[*at - 1].next) {
        struct gp_mapping *mapping = &mappings[*at - 1];
        if (mapping->kind != kind || mapping->key != key)
            continue;
        uint32_t index = *at;
        bytes = mapping->bytes;
        *at = mapping->next;
        mapping->kind = GP_MAPPING_NONE;
        mapping->next = mapping_free;
        mapping_free = index;
        break;
    }
    gp_lock_give(&gp_served_lock);
    return bytes;
}

uint64_t gp_mapping_find(enum gp_mapping_kind kind, uint64_t key)
{
    uint64_t bytes = 0;
    gp_lock_take(&gp_served_lock);
    for (uint32_t at = *mapping_bucket(kind, key); at && !bytes; at = mappings[at - 1].next)
        if (mappings[at - 1].kind == kind && mappings[at - 1].key == key)
            bytes = mappings[at - 1].bytes;
    gp_lock_give(&gp_served_lock);
    return bytes;
}

bool gp_mapping_next(enum gp_mapping_kind kind, unsigned served, unsigned *at, struct gp_mapping *out)
{
    bool found = false;
    gp_lock_take(&gp_served_lock);
    for (; !found && *at < mapping_high; (*at)++) {
        *out = mappings[*at];
        found = out->kind == kind && out->served == served;
    }
    gp_lock_give(&gp_served_lock);
    return found;
}

/* ==== properties of blocks ======================================================================================== */

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

uint64_t gp_mapping_mark_buffer(const struct gp_served_context *served, uint64_t block)
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

bool gp_mapping_mark_is_synced(uint64_t block)
{
    return gp_mapping_find(GP_MAPPING_SYNCED, block) != 0;
}

void gp_mapping_mark_synced(const struct gp_served_context *served, uint64_t block, bool on)
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

void gp_mapping_mark_drop(struct gp_served_context *served, uint64_t address)
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

void gp_mapping_mark_forget(const struct gp_served_context *served)
{
    struct gp_mapping mapping;
    for (unsigned i = 0; i < GP_COUNT(mark_kinds); i++)
        for (unsigned at = 0; gp_mapping_next(mark_kinds[i], gp_served_index(served), &at, &mapping);)
            mark_take(mark_kinds[i], mapping.key);
}
