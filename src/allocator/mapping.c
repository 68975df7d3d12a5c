/* SPDX-License-Identifier: MIT
 * mapping.c: see mapping.h.  A hash table in one reserved region: pages that are not used cost no memory. */
#include "allocator/mapping.h"
#include "allocator/served.h"
#include <sys/mman.h>

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
