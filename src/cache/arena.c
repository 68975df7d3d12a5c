/* SPDX-License-Identifier: MIT
 *
 * arena.c: memory for the cache's own records, and the table from an address to its block.
 * Everything here runs under the cache's lock, except gp_table_at, which a free may also call
 * without it. Chunks come from mmap, because malloc belongs to the program; they stay until the
 * cache is freed.
 */
#include "cache/internal.h"
#include <string.h>
#include <sys/mman.h>

/* Records come in chunks of 256 KiB: one system call for a few thousand blocks. Larger items
 * (leaves) come eight at a time. */
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

static bool slab_refill(struct gp_slab *slab)
{
    size_t bytes = slab->item_bytes * 8 > GP_CHUNK_BYTES ? slab->item_bytes * 8 + 4096 : GP_CHUNK_BYTES;
    struct gp_chunk *chunk = map_bytes(bytes);
    if (!chunk)
        return false;
    chunk->next = slab->chunks;
    chunk->bytes = bytes;
    slab->chunks = chunk;
    size_t count = (bytes - sizeof(*chunk)) / slab->item_bytes;
    for (size_t i = count; i-- > 0;) {
        void **item = (void **)((char *)(chunk + 1) + i * slab->item_bytes);
        item[1] = slab->spare;
        slab->spare = item;
    }
    return true;
}

void *gp_slab_take(struct gp_slab *slab)
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

void gp_slab_give(struct gp_slab *slab, void *item)
{
    ((void **)item)[1] = slab->spare; /* keep the first word: a free without the lock may be reading it */
    slab->spare = item;
}

void gp_slab_end(struct gp_slab *slab)
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

bool gp_table_open(struct gp_cache *cache)
{
    unsigned shift = (unsigned)__builtin_ctzll(cache->policy.granule_bytes);
    cache->table.granule_shift = shift;
    cache->mids.item_bytes = sizeof(void *) << GP_MID_BITS;
    cache->leaves.item_bytes = (uint32_t)(sizeof(void *) << (GP_LEAF_SHIFT - shift));
    cache->table.root = map_bytes(GP_ROOT_BYTES);
    return cache->table.root != NULL;
}

void gp_table_close(struct gp_cache *cache)
{
    if (cache->table.root)
        munmap(cache->table.root, GP_ROOT_BYTES);
    cache->table.root = NULL;
}

/* [table.R1] release pairs with [table.A1]: a reader that sees a pointer sees the initialised
 * memory behind it. */
bool gp_table_ready(struct gp_cache *cache, uint64_t address)
{
    struct gp_leaf ***mid = &cache->table.root[gp_table_top(address)];
    if (!*mid)
        __atomic_store_n(mid, slab_take_fresh(&cache->mids), __ATOMIC_RELEASE);
    if (!*mid)
        return false;
    struct gp_leaf **leaf = &(*mid)[gp_table_mid(address)];
    if (!*leaf)
        __atomic_store_n(leaf, slab_take_fresh(&cache->leaves), __ATOMIC_RELEASE);
    return *leaf != NULL;
}

void gp_table_set(struct gp_cache *cache, uint64_t address, struct gp_block *block)
{
    struct gp_leaf *leaf = cache->table.root[gp_table_top(address)][gp_table_mid(address)];
    __atomic_store_n(&leaf->slots[gp_table_slot(cache, address)], block, __ATOMIC_RELEASE); /* [table.R1] */
}
