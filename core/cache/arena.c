/* SPDX-License-Identifier: MIT
 *
 * arena.c: memory for the cache's own records, and the table from an address to its block.
 * Everything here runs under the cache's lock, except gp_table_at, which a free may also call
 * without it. Chunks come from mmap, because malloc belongs to the program; they stay until the
 * cache is freed.
 */
#include "cache/arena.h"
#include "cache/internal.h"
#include <string.h>
#include <sys/mman.h>

/* Records come in chunks of 256 KiB: one system call for a few thousand blocks. Larger items
 * (the table's) come eight at a time. */
#define GP_CHUNK_BYTES (256u << 10)

struct gp_chunk {
    struct gp_chunk *next;
    size_t bytes;
    uint64_t pad_[6]; /* items start on a cache line of their own */
};

static void *map_bytes(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Where the item lies in its chunk. A processor's cache keeps a line at a place that its address names. Most calls
 * read only the first of a block record's two lines, which would use half of these places. So the records begin a line
 * later in one of two neighbouring pages, and in one of two pages 64 KiB apart, the size of a way of many caches. */
static size_t slab_offset(const struct gp_slab *slab, size_t item)
{
    const size_t page_bytes = 4096, line = 64, held = page_bytes / sizeof(struct gp_block) - 1;
    if (slab->item_bytes != sizeof(struct gp_block))
        return sizeof(struct gp_chunk) + item * slab->item_bytes;
    size_t page = item / held, first = (page ^ page >> 4) % 2 ? 0 : line; /* the first page begins with the chunk */
    return page * page_bytes + first + item % held * sizeof(struct gp_block);
}

static bool slab_refill(struct gp_slab *slab)
{
    size_t bytes = slab->item_bytes * 8 > GP_CHUNK_BYTES ? slab->item_bytes * 8 + 4096 : GP_CHUNK_BYTES, count = 0;
    struct gp_chunk *chunk = map_bytes(bytes);
    if (!chunk)
        return false;
    chunk->next = slab->chunks;
    chunk->bytes = bytes;
    slab->chunks = chunk;
    while (slab_offset(slab, count) + slab->item_bytes <= bytes)
        count++;
    while (count-- > 0) {
        void **item = (void **)((char *)chunk + slab_offset(slab, count));
        item[1] = slab->spare;
        slab->spare = item;
    }
    return true;
}

void *gp_arena_slab_take(struct gp_slab *slab)
{
    if (!slab->spare && !slab_refill(slab))
        return NULL;
    void **item = slab->spare;
    slab->spare = item[1];
    __atomic_store_n(&item[0], NULL, __ATOMIC_RELAXED); /* of a block: a free without the lock may be reading it */
    memset(item + 1, 0, slab->item_bytes - sizeof item[0]);
    return item;
}

/* For items that are never given back: all but the link to the next one is still as mmap made it, so
 * the pages of a large item stay untouched. */
static void *slab_take_fresh(struct gp_slab *slab)
{
    if (!slab->spare && !slab_refill(slab))
        return NULL;
    void **item = slab->spare;
    slab->spare = item[1];
    item[1] = NULL;
    return item;
}

void gp_arena_slab_give(struct gp_slab *slab, void *item)
{
    ((void **)item)[1] = slab->spare; /* keep the first word: a free without the lock may be reading it */
    slab->spare = item;
}

void gp_arena_slab_end(struct gp_slab *slab)
{
    struct gp_chunk *chunk = slab->chunks, *next;
    for (; chunk; chunk = next) {
        next = chunk->next;
        munmap(chunk, chunk->bytes);
    }
    slab->spare = slab->chunks = NULL;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

#define GP_ROOT_BYTES (sizeof(void *) << GP_ROOT_BITS)

bool gp_arena_table_open(struct gp_cache *cache)
{
    cache->mids.item_bytes = sizeof(uint64_t) << GP_MID_BITS;
    cache->table.root = map_bytes(GP_ROOT_BYTES);
    return cache->table.root != NULL;
}

void gp_arena_table_close(struct gp_cache *cache)
{
    if (cache->table.root)
        munmap(cache->table.root, GP_ROOT_BYTES);
    cache->table.root = NULL;
    for (struct gp_chunk *chunk = cache->leaf_chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        munmap(chunk, chunk->bytes);
    }
    cache->leaf_chunks = NULL;
}

static size_t leaf_bytes(unsigned sets_shift)
{
    return (sizeof(uint64_t) * GP_SET_PLACES) << sets_shift;
}

/* An empty leaf of 2 ^ sets_shift sets; 0: no memory. It is never given back: a free without the lock may
 * be reading it. */
static uint64_t leaf_new(struct gp_cache *cache, unsigned sets_shift)
{
    size_t bytes = leaf_bytes(sets_shift);
    struct gp_chunk *chunk = cache->leaf_chunks;
    if (bytes > GP_CHUNK_BYTES - sizeof *chunk)
        return 0;
    if (!chunk || cache->leaf_used + bytes > GP_CHUNK_BYTES) {
        chunk = map_bytes(GP_CHUNK_BYTES);
        if (!chunk)
            return 0;
        *chunk = (struct gp_chunk){.next = cache->leaf_chunks, .bytes = GP_CHUNK_BYTES};
        cache->leaf_chunks = chunk;
        cache->leaf_used = sizeof *chunk;
    }
    uint64_t leaf = (uint64_t)(uintptr_t)chunk + cache->leaf_used;
    cache->leaf_used += bytes;
    return leaf | (32 - sets_shift);
}

/* The address's own place in the leaf, or a free one; NULL: the set is full. */
static uint64_t *leaf_place(uint64_t leaf, uint64_t address)
{
    uint64_t *set = gp_leaf_set(leaf, address), *place = NULL;
    for (unsigned i = 0; i < GP_SET_PLACES; i++) {
        if (set[i] >> GP_PLACE_SHIFT == gp_place_key(address))
            return &set[i];
        if (!set[i])
            place = &set[i];
    }
    return place;
}

/* Copies the places of a leaf into an empty one with more sets. span: the first address of the leaf. False: a
 * set overflows. */
static bool leaf_copy(uint64_t from, uint64_t into, uint64_t span)
{
    const uint64_t *places = (const uint64_t *)(uintptr_t)(from & ~(uint64_t)GP_LEAF_LOW);
    size_t count = leaf_bytes(32 - (from & GP_LEAF_LOW)) / sizeof *places;
    for (size_t i = 0; i < count; i++) {
        uint64_t *place = places[i] ? leaf_place(into, gp_place_address(places[i], span)) : NULL;
        if (place)
            *place = places[i];
        else if (places[i])
            return false;
    }
    return true;
}

/* A leaf with the same blocks and a place for the address; 0: no memory. */
static uint64_t leaf_grow(struct gp_cache *cache, uint64_t leaf, uint64_t address)
{
    uint64_t span = address >> GP_LEAF_SHIFT << GP_LEAF_SHIFT;
    for (unsigned sets_shift = 33 - (leaf & GP_LEAF_LOW);; sets_shift++) {
        uint64_t grown = leaf_new(cache, sets_shift);
        if (!grown || (leaf_copy(leaf, grown, span) && leaf_place(grown, address)))
            return grown;
        /* No reader has seen it, so its memory can be used again. */
        memset((void *)(uintptr_t)(grown & ~(uint64_t)GP_LEAF_LOW), 0, leaf_bytes(sets_shift));
        cache->leaf_used -= leaf_bytes(sets_shift);
    }
}

/* [table.R1] release pairs with [table.A1]: a reader that sees a pointer sees the initialised
 * memory behind it. */
bool gp_arena_table_ready(struct gp_cache *cache, uint64_t address)
{
    uint64_t **mid = &cache->table.root[gp_table_top(address)];
    if (!*mid)
        __atomic_store_n(mid, slab_take_fresh(&cache->mids), __ATOMIC_RELEASE);
    if (!*mid)
        return false;
    uint64_t *leaf = &(*mid)[gp_table_mid(address)], grown = *leaf;
    if (!grown)
        grown = leaf_new(cache, 1);
    else if (!leaf_place(grown, address))
        grown = leaf_grow(cache, grown, address);
    if (grown && grown != *leaf)
        __atomic_store_n(leaf, grown, __ATOMIC_RELEASE);
    return grown != 0;
}

void gp_arena_table_set(struct gp_cache *cache, uint64_t address, struct gp_block *block)
{
    uint64_t *place = leaf_place(cache->table.root[gp_table_top(address)][gp_table_mid(address)], address);
    /* [table.R1] */
    if (block)
        __atomic_store_n(place, gp_place_key(address) << GP_PLACE_SHIFT | (uint64_t)(uintptr_t)block, __ATOMIC_RELEASE);
    else if (place) /* without a place the address is not in the table */
        __atomic_store_n(place, 0, __ATOMIC_RELEASE);
}
