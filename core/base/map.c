/* SPDX-License-Identifier: MIT
 *
 * map.c: the pointer map. account/'s feed calls it inside driver callbacks; it must never call
 * malloc, CUDA or the host program, and must leave errno unchanged. Picture, argument and figures:
 * docs/understand/map.md.
 *
 * A shard keeps its records in blocks, where they never move, and finds them through an index of
 * 8-byte entries:
 *
 *      index (now, old): linear probing, entry = slot + 64 : hash      blocks: 64, 128, 256 ... records; slot -> record
 *
 * Only the index grows and shrinks: the shard makes a second table, and each change of the shard
 * moves some entries over, one whole cluster at a time, so that the entries left in the old table
 * can still be probed. A deletion shifts the rest of the cluster back, so there are no tombstones
 * to clean. These hold at every release of the shard's lock:
 *
 *      count = entries(now) + old_left = sum over blocks(live)
 *      limit = x_room + sum over shards(room + count)
 *
 * Partners: [map.R1] unlock, release, pairs with [map.A1] lock, acquire; everything else in a shard
 * is plain memory.
 */
#include "base/map.h"
#include "base/compiler.h"
#include "base/lock.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* 64 locks: if 16 threads use only the map, two meet in a shard about one time in eight. */
#define GP_MAP_SHARD_BITS 6
#define GP_MAP_SHARDS     (1u << GP_MAP_SHARD_BITS)
/* The first block is one page of records. 26 doublings end below 2^32 slots, the most that an entry
 * can address. */
#define GP_MAP_FIRST_BITS 6u
#define GP_MAP_FIRST      (1u << GP_MAP_FIRST_BITS)
#define GP_MAP_BLOCKS     26u
/* Blocks 0 and 1 stay mapped, so that a program with few allocations does not map and unmap them
 * repeatedly. */
#define GP_MAP_KEPT_BLOCKS 2u
/* One page of entries. */
#define GP_MAP_INDEX_MIN 512u
/* A migration of n entries starts with room for 3/8 n more in the new table and ends after n/16
 * changes. */
#define GP_MAP_STEP 16u
#define GP_MAP_NONE UINT32_MAX

struct gp_map_index {
    uint64_t *entries; /* 0 empty; else (slot + GP_MAP_FIRST) << 32 | hash */
    uint64_t mask;
};

struct gp_map_chunk {
    struct gp_record
        *records;   /* NULL: not mapped. A record with space 0 is free, and its `key` is the next free record */
    uint32_t free;  /* first free record of the list; GP_MAP_NONE */
    uint32_t fresh; /* records from here on were never used */
    uint32_t live;
    uint32_t pad_;
};

struct gp_map_shard {
    uint32_t x_lock;    /* 0 free, 1 held */
    uint32_t open;      /* bit k: block k has a free record */
    uint64_t x_count;   /* written under the lock, read without it */
    uint32_t room;      /* records that it may still insert without taking room from the map */
    uint32_t room_most; /* with more it gives a batch back to the map; set when it takes the first one */
    /* Of the count, by the table and the blocks that there are (map_bounds). */
    uint32_t full_at;             /* no insertion from here on before the table grows */
    uint32_t trim_at;             /* below, a removal looks whether the table or the blocks shrink */
    struct gp_map_index now, old; /* old.entries NULL: no migration under way */
    /* The rest is another line, which the frequent case does not read. */
    uint64_t old_at; /* next slot to move: all slots before it are empty */
    uint64_t old_left;
    uint32_t block_count;
    uint32_t pad_;
    struct gp_map_chunk blocks[GP_MAP_BLOCKS];
} GP_ALIGNED_LINE;

struct gp_map {
    uint64_t limit; /* const */
    uint64_t batch; /* const: how much room a shard takes at a time */
    uint64_t x_room GP_ALIGNED_LINE;
    uint64_t x_walked;
    struct gp_map_shard shards[GP_MAP_SHARDS];
};

/* Where a key's entry is, and its record. */
struct gp_map_place {
    struct gp_map_index *index; /* NULL: not found */
    uint64_t at;
    unsigned block;
    uint32_t in_block;
};
/* ---- memory and lock --------------------------------------------------------------------------------------------- */

static GP_COLD void *map_memory(size_t bytes)
{
    int saved = errno;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    errno = saved;
    return memory == MAP_FAILED ? NULL : memory;
}

static GP_COLD void map_memory_give(void *memory, size_t bytes)
{
    int saved = errno;
    munmap(memory, bytes);
    errno = saved;
}

static GP_COLD void map_wait(const uint32_t *lock)
{
    for (unsigned i = 0; __atomic_load_n(lock, __ATOMIC_RELAXED); i++)
        gp_pause(i);
}

static inline void map_lock(struct gp_map_shard *shard)
{
    while (GP_UNLIKELY(__atomic_exchange_n(&shard->x_lock, 1, __ATOMIC_ACQUIRE))) /* [map.A1] */
        map_wait(&shard->x_lock);
    GP_TESTPOINT("map.locked");
}

static inline void map_unlock_word(uint32_t *lock)
{
    GP_TESTPOINT("map.unlock");
    __atomic_store_n(lock, 0, __ATOMIC_RELEASE); /* [map.R1] */
}

static inline void map_unlock(struct gp_map_shard *shard)
{
    map_unlock_word(&shard->x_lock);
}

/* ---- hash: the top bits choose the shard, the low 32 are the entry's --------------------------------------------- */

/* Addresses are multiples of 256 or 2 MiB; the high half of the product mixes their high bits into
 * the low ones. The constants are the golden ratio's and another odd random number. */
static inline uint64_t map_hash(uint8_t space, uint64_t key)
{
    unsigned __int128 wide = (unsigned __int128)(key + space * 0xd6e8feb86659fd93ull) * 0x9e3779b97f4a7c15ull;
    uint64_t hash = (uint64_t)wide ^ (uint64_t)(wide >> 64);
    return (hash ^ hash >> 32) * 0xd6e8feb86659fd93ull;
}

static inline struct gp_map_shard *map_shard(struct gp_map *map, uint64_t hash)
{
    return &map->shards[hash >> (64 - GP_MAP_SHARD_BITS)];
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static inline uint32_t map_block_slots(unsigned block)
{
    return GP_MAP_FIRST << block;
}

static inline uint32_t map_block_start(unsigned block)
{
    return GP_MAP_FIRST * ((1u << block) - 1);
}

static inline struct gp_record *map_place_record(struct gp_map_shard *shard, const struct gp_map_place *place)
{
    return &shard->blocks[place->block].records[place->in_block];
}
/* The block and the place in it of an entry's record. Of a slot's number, + 64, the highest bit tells the block: block k
 * begins at slot 64 * 2^k - 64. */
static inline void map_place_at(uint64_t entry, struct gp_map_place *place)
{
    uint32_t slot = (uint32_t)(entry >> 32);
    unsigned top = 31u ^ (unsigned)__builtin_clz(slot);
    place->block = top - GP_MAP_FIRST_BITS;
    place->in_block = slot ^ 1u << top;
}

/* After a change of the table or of the number of blocks. The index grows at 5/8, where a miss probes about four
 * entries, which are half a cache line. Below an eighth it is halved; after the migration it is at most a quarter full,
 * far from growing again. The highest block is unmapped if the others could hold twice the records. */
static GP_COLD void map_bounds(struct gp_map_shard *shard)
{
    uint64_t slots = shard->now.entries ? shard->now.mask + 1 : 0;
    uint32_t index = slots > GP_MAP_INDEX_MIN ? (uint32_t)(slots / 8) : 0;
    uint32_t blocks = shard->block_count > GP_MAP_KEPT_BLOCKS ? map_block_start(shard->block_count - 1) / 2 + 1 : 0;
    shard->full_at = (uint32_t)(slots * 5 / 8);
    shard->trim_at = index > blocks ? index : blocks;
}

static GP_COLD bool map_block_add(struct gp_map_shard *shard)
{
    unsigned k = shard->block_count;
    if (k == GP_MAP_BLOCKS)
        return false;
    struct gp_record *records = map_memory(map_block_slots(k) * sizeof *records);
    if (!records)
        return false;
    shard->blocks[k] = (struct gp_map_chunk){.records = records, .free = GP_MAP_NONE};
    shard->open |= 1u << k;
    shard->block_count++;
    map_bounds(shard);
    return true;
}

/* Take the lowest block with room, so that the highest, which is half of the memory, can become
 * empty. There is one. Returns the record; *slot: its number, + GP_MAP_FIRST. */
static inline struct gp_record *map_slot_take(struct gp_map_shard *shard, uint32_t *slot)
{
    unsigned k = (unsigned)__builtin_ctz(shard->open);
    struct gp_map_chunk *block = &shard->blocks[k];
    uint32_t at = block->free;
    if (at != GP_MAP_NONE)
        block->free = (uint32_t)block->records[at].key;
    else
        at = block->fresh++;
    block->live++;
    if (GP_UNLIKELY(block->live == map_block_slots(k)))
        shard->open &= ~(1u << k);
    *slot = map_block_slots(k) + at; /* + GP_MAP_FIRST */
    return &block->records[at];
}

static inline void map_slot_give(struct gp_map_shard *shard, const struct gp_map_place *place)
{
    struct gp_map_chunk *block = &shard->blocks[place->block];
    struct gp_record *record = &block->records[place->in_block];
    record->space = 0;
    record->key = block->free;
    block->free = place->in_block;
    block->live--;
    shard->open |= 1u << place->block;
}

/* Unmaps the highest block if it is empty and the others could hold twice the live records; at most
 * one per call. */
static void map_blocks_trim(struct gp_map_shard *shard)
{
    unsigned k = shard->block_count - 1;
    if (k < GP_MAP_KEPT_BLOCKS || shard->blocks[k].live || 2 * shard->x_count > map_block_start(k))
        return;
    map_memory_give(shard->blocks[k].records, map_block_slots(k) * sizeof(struct gp_record));
    shard->blocks[k].records = NULL;
    shard->blocks[k].fresh = 0;
    shard->open &= ~(1u << k);
    shard->block_count--;
    map_bounds(shard);
}

/* ---- index ------------------------------------------------------------------------------------------------------- */

/* place->at: the key's entry, or the empty one where it would be. */
static inline bool map_index_find(struct gp_map_shard *shard, struct gp_map_index *index, uint64_t hash, uint8_t space,
                                  uint64_t key, struct gp_map_place *place)
{
    const uint64_t *entries = index->entries, mask = index->mask;
    place->index = index;
    for (place->at = hash & mask;; place->at = (place->at + 1) & mask) {
        uint64_t entry = entries[place->at];
        if (!entry)
            return false;
        if ((uint32_t)entry != (uint32_t)hash)
            continue;
        map_place_at(entry, place);
        const struct gp_record *record = map_place_record(shard, place);
        if (GP_LIKELY(record->key == key && record->space == space))
            return true;
    }
}

static GP_COLD bool map_lookup_both(struct gp_map_shard *shard, uint64_t hash, uint8_t space, uint64_t key,
                                    struct gp_map_place *place)
{
    return (shard->now.entries && map_index_find(shard, &shard->now, hash, space, key, place)) ||
           (shard->old.entries && map_index_find(shard, &shard->old, hash, space, key, place));
}

/* One table, which is the most frequent case. */
static inline bool map_is_plain(const struct gp_map_shard *shard)
{
    return GP_LIKELY(shard->now.entries && !shard->old.entries);
}

static inline struct gp_record *map_lookup(struct gp_map_shard *shard, uint64_t hash, uint8_t space, uint64_t key,
                                           struct gp_map_place *place)
{
    bool found = map_is_plain(shard) ? map_index_find(shard, &shard->now, hash, space, key, place)
                                     : map_lookup_both(shard, hash, space, key, place);
    return found ? map_place_record(shard, place) : NULL;
}

static inline void map_index_put(struct gp_map_index *index, uint64_t entry)
{
    uint64_t at = entry & UINT32_MAX & index->mask;
    while (index->entries[at])
        at = (at + 1) & index->mask;
    index->entries[at] = entry;
}

/* Backward shift: an entry may fill the hole unless its preferred slot lies cyclically after the
 * hole. */
static void map_index_remove(struct gp_map_index *index, uint64_t hole)
{
    uint64_t mask = index->mask;
    for (uint64_t at = (hole + 1) & mask; index->entries[at]; at = (at + 1) & mask) {
        uint64_t preferred = index->entries[at] & UINT32_MAX & mask;
        if (((at - preferred) & mask) < ((at - hole) & mask))
            continue;
        index->entries[hole] = index->entries[at];
        hole = at;
    }
    index->entries[hole] = 0;
}

/* Moves a few entries to the new table. It stops only at an empty slot, because the rest of a
 * half-moved cluster could not be probed. */
static void map_migrate(struct gp_map_shard *shard)
{
    struct gp_map_index *old = &shard->old;
    for (unsigned i = 0; shard->old_left; i++) {
        uint64_t entry = old->entries[shard->old_at];
        if (entry) {
            map_index_put(&shard->now, entry);
            old->entries[shard->old_at] = 0;
            shard->old_left--;
        } else if (i >= GP_MAP_STEP) {
            return;
        }
        shard->old_at = (shard->old_at + 1) & old->mask;
    }
    map_memory_give(old->entries, (old->mask + 1) * sizeof *old->entries);
    *old = (struct gp_map_index){0};
    GP_TESTPOINT("map.migrated");
}

static GP_COLD bool map_index_resize(struct gp_map_shard *shard, uint64_t slots)
{
    uint64_t *entries = map_memory(slots * sizeof *entries);
    if (!entries)
        return false;
    shard->old = shard->now;
    /* gp_map_prefetch reads them without the lock. */
    __atomic_store_n(&shard->now.entries, entries, __ATOMIC_RELAXED);
    __atomic_store_n(&shard->now.mask, slots - 1, __ATOMIC_RELAXED);
    map_bounds(shard);
    if (!shard->old.entries)
        return true;
    shard->old_left = shard->x_count;
    shard->old_at = 0;
    return true;
}

/* Makes room for one more entry. Without memory for a larger table, the present one fills up to 7/8. */
static bool map_index_reserve(struct gp_map_shard *shard)
{
    uint64_t slots = shard->now.entries ? shard->now.mask + 1 : 0;
    if (shard->x_count < shard->full_at)
        return true;
    if (!shard->old.entries && map_index_resize(shard, slots ? slots * 2 : GP_MAP_INDEX_MIN))
        return true;
    return (shard->x_count + 1) * 8 <= slots * 7;
}

static GP_COLD void map_trim(struct gp_map_shard *shard)
{
    uint64_t slots = shard->now.mask + 1;
    map_blocks_trim(shard);
    if (slots > GP_MAP_INDEX_MIN && shard->x_count * 8 < slots && !shard->old.entries)
        map_index_resize(shard, slots / 2);
}

/* ---- room: the limit, dealt to the shards in batches ------------------------------------------------------------- */

static GP_COLD bool map_room_take(struct gp_map *map, struct gp_map_shard *shard)
{
    uint64_t room = __atomic_load_n(&map->x_room, __ATOMIC_RELAXED);
    uint64_t want;
    do {
        want = room < map->batch ? room : map->batch;
    } while (want &&
             !__atomic_compare_exchange_n(&map->x_room, &room, room - want, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    shard->room += (uint32_t)want;
    shard->room_most = 2 * (uint32_t)map->batch;
    return want;
}

/* Collects the unused room of other shards, so that the limit is exact for a single inserting
 * thread. */
static GP_COLD void map_room_gather(struct gp_map *map)
{
    for (unsigned i = 0; i < GP_MAP_SHARDS; i++) {
        struct gp_map_shard *shard = &map->shards[i];
        map_lock(shard);
        __atomic_fetch_add(&map->x_room, shard->room, __ATOMIC_RELAXED);
        shard->room = 0;
        map_unlock(shard);
    }
}

static inline void map_room_give(struct gp_map *map, struct gp_map_shard *shard)
{
    shard->room++;
    if (GP_UNLIKELY(shard->room > shard->room_most)) {
        shard->room -= (uint32_t)map->batch;
        __atomic_fetch_add(&map->x_room, map->batch, __ATOMIC_RELAXED);
    }
}

/* ---- operations, under the lock ---------------------------------------------------------------------------------- */

static inline void map_remove(struct gp_map *map, struct gp_map_shard *shard, const struct gp_map_place *place)
{
    map_index_remove(place->index, place->at);
    if (GP_UNLIKELY(place->index == &shard->old))
        shard->old_left--;
    map_slot_give(shard, place);
    uint64_t count = shard->x_count - 1;
    __atomic_store_n(&shard->x_count, count, __ATOMIC_RELAXED);
    map_room_give(map, shard);
    if (GP_UNLIKELY(count < shard->trim_at))
        map_trim(shard);
    if (GP_UNLIKELY(shard->old.entries))
        map_migrate(shard);
}

/* Returns its entry. There is room, in a block too. */
static inline uint64_t map_fill(struct gp_map_shard *shard, uint64_t hash, const struct gp_record *record,
                                struct gp_record **into)
{
    uint32_t slot;
    *into = map_slot_take(shard, &slot);
    **into = *record;
    __atomic_store_n(&shard->x_count, shard->x_count + 1, __ATOMIC_RELAXED);
    shard->room--;
    return (uint64_t)slot << 32 | (uint32_t)hash;
}

/* -EDQUOT: the room in other shards has to be collected first. */
static GP_COLD int map_add(struct gp_map *map, struct gp_map_shard *shard, uint64_t hash,
                           const struct gp_record *record, struct gp_record **into)
{
    if (!shard->room && !map_room_take(map, shard))
        return -EDQUOT;
    if (!map_index_reserve(shard) || (!shard->open && !map_block_add(shard)))
        return -ENOSPC;
    map_index_put(&shard->now, map_fill(shard, hash, record, into));
    if (shard->old.entries)
        map_migrate(shard);
    return 0;
}

/* ---- interface --------------------------------------------------------------------------------------------------- */

int gp_map_new(struct gp_map **out, uint64_t limit)
{
    if (!out || limit == 0)
        return -EINVAL;
    struct gp_map *map = map_memory(sizeof *map);
    if (!map)
        return -ENOMEM;
    map->limit = limit;
    map->x_room = limit;
    /* Up to a sixteenth of the limit may be unused in the shards before a thread has to collect it.
     * 256 makes accesses to the shared word rare. */
    map->batch = limit / (16 * GP_MAP_SHARDS);
    map->batch = map->batch < 1 ? 1 : map->batch > 256 ? 256 : map->batch;
    *out = map;
    return 0;
}

void gp_map_free(struct gp_map *map)
{
    if (!map)
        return;
    for (unsigned i = 0; i < GP_MAP_SHARDS; i++) {
        struct gp_map_shard *shard = &map->shards[i];
        for (unsigned k = 0; k < shard->block_count; k++)
            map_memory_give(shard->blocks[k].records, map_block_slots(k) * sizeof(struct gp_record));
        if (shard->now.entries)
            map_memory_give(shard->now.entries, (shard->now.mask + 1) * sizeof(uint64_t));
        if (shard->old.entries)
            map_memory_give(shard->old.entries, (shard->old.mask + 1) * sizeof(uint64_t));
    }
    map_memory_give(map, sizeof *map);
}

/* The two words may be of two tables, or the table unmapped by now: a prefetch does not fault. */
uint64_t gp_map_prefetch(struct gp_map *map, uint8_t space, uint64_t key)
{
    uint64_t hash = map_hash(space, key);
    struct gp_map_shard *shard = map_shard(map, hash);
    uintptr_t entries = (uintptr_t)__atomic_load_n(&shard->now.entries, __ATOMIC_RELAXED);
    uint64_t mask = __atomic_load_n(&shard->now.mask, __ATOMIC_RELAXED);
    __builtin_prefetch((const void *)(entries + (hash & mask) * sizeof(uint64_t)), 1);
    __builtin_prefetch(&shard->blocks, 1);
    return hash;
}

/* Whether the table, the blocks and the shard's part of the limit have room for one more record. */
static inline bool map_has_room(const struct gp_map_shard *shard)
{
    return GP_LIKELY(shard->room && shard->open && shard->x_count < shard->full_at);
}

/* Under the lock; as gp_map_insert, and -EDQUOT as map_add. */
static inline int map_insert(struct gp_map *map, struct gp_map_shard *shard, uint64_t hash,
                             const struct gp_record *record, struct gp_record *old, struct gp_record **into)
{
    struct gp_map_place place;
    struct gp_record *live = map_lookup(shard, hash, record->space, record->key, &place);
    if (GP_UNLIKELY(live)) {
        if (old)
            *old = *live;
        *live = *record;
        *into = live;
        return 1;
    }
    if (GP_UNLIKELY(!map_is_plain(shard) || !map_has_room(shard)))
        return map_add(map, shard, hash, record, into);
    place.index->entries[place.at] = map_fill(shard, hash, record, into);
    return 0;
}

/* It stays locked, unless the answer is negative. */
static inline int map_insert_lock(struct gp_map *map, uint64_t hash, const struct gp_record *record,
                                  struct gp_record *old, struct gp_map_hold *hold)
{
    struct gp_map_shard *shard = map_shard(map, hash);
    hold->lock = &shard->x_lock;
    for (bool gathered = false;; gathered = true) {
        map_lock(shard);
        int rc = map_insert(map, shard, hash, record, old, &hold->record);
        if (GP_LIKELY(rc >= 0))
            return rc;
        map_unlock(shard);
        if (rc != -EDQUOT)
            return rc;
        if (gathered)
            return -ENOSPC;
        map_room_gather(map);
    }
}

int gp_map_insert_hold(struct gp_map *map, uint64_t hash, const struct gp_record *record, struct gp_record *old,
                       struct gp_map_hold *hold)
{
    return map_insert_lock(map, hash, record, old, hold);
}

void gp_map_release(const struct gp_map_hold *hold)
{
    map_unlock_word(hold->lock);
}

int gp_map_insert(struct gp_map *map, const struct gp_record *record, struct gp_record *old)
{
    struct gp_map_hold hold;
    if (record->space == 0)
        return -EINVAL;
    int rc = map_insert_lock(map, map_hash(record->space, record->key), record, old, &hold);
    if (GP_LIKELY(rc >= 0))
        map_unlock_word(hold.lock);
    return rc;
}

static inline int map_take(struct gp_map *map, uint64_t hash, uint8_t space, uint64_t key, struct gp_record *out)
{
    struct gp_map_shard *shard = map_shard(map, hash);
    struct gp_map_place place;
    int rc = -ENOENT;
    map_lock(shard);
    struct gp_record *live = map_lookup(shard, hash, space, key, &place);
    if (GP_LIKELY(live)) {
        if (out)
            *out = *live;
        map_remove(map, shard, &place);
        rc = 0;
    }
    map_unlock(shard);
    return rc;
}

int gp_map_take_hashed(struct gp_map *map, uint64_t hash, uint8_t space, uint64_t key, struct gp_record *out)
{
    return map_take(map, hash, space, key, out);
}

int gp_map_take(struct gp_map *map, uint8_t space, uint64_t key, struct gp_record *out)
{
    return map_take(map, map_hash(space, key), space, key, out);
}

int gp_map_find(struct gp_map *map, uint8_t space, uint64_t key, struct gp_record *out)
{
    uint64_t hash = map_hash(space, key);
    struct gp_map_shard *shard = map_shard(map, hash);
    struct gp_map_place place;
    map_lock(shard);
    struct gp_record *live = map_lookup(shard, hash, space, key, &place);
    if (live && out)
        *out = *live;
    map_unlock(shard);
    return live ? 0 : -ENOENT;
}

int gp_map_update(struct gp_map *map, uint8_t space, uint64_t key, gp_map_fn fn, void *arg)
{
    uint64_t hash = map_hash(space, key);
    struct gp_map_shard *shard = map_shard(map, hash);
    struct gp_map_place place;
    map_lock(shard);
    struct gp_record *live = map_lookup(shard, hash, space, key, &place);
    if (live && fn(live, arg))
        map_remove(map, shard, &place);
    map_unlock(shard);
    return live ? 0 : -ENOENT;
}

/* Visits GP_MAP_WALK slots of a block from *at on. False: the end of the block. Under the lock. */
static bool map_walk(struct gp_map *map, struct gp_map_shard *shard, unsigned k, uint32_t *at, gp_map_fn fn, void *arg,
                     uint64_t *removed)
{
    struct gp_map_chunk *block = &shard->blocks[k];
    for (unsigned i = 0; i < GP_MAP_WALK; i++, (*at)++) {
        /* Check it again for every record: a removal may unmap the block, and then `fresh` is 0. */
        if (*at >= block->fresh)
            return false;
        struct gp_record *record = &block->records[*at];
        if (record->space == 0)
            continue;
        uint8_t space = record->space;
        uint64_t key = record->key;
        if (!fn(record, arg))
            continue;
        struct gp_map_place place;
        if (map_lookup(shard, map_hash(space, key), space, key, &place)) {
            map_remove(map, shard, &place);
            (*removed)++;
        }
    }
    return true;
}

uint64_t gp_map_each(struct gp_map *map, gp_map_fn fn, void *arg)
{
    return gp_map_each_rest(map, fn, NULL, arg);
}

uint64_t gp_map_each_rest(struct gp_map *map, gp_map_fn fn, void (*rest)(void *arg), void *arg)
{
    uint64_t removed = 0, walked = 0;
    for (unsigned i = 0; i < GP_MAP_SHARDS; i++) {
        struct gp_map_shard *shard = &map->shards[i];
        for (unsigned k = 0; k < GP_MAP_BLOCKS; k++) {
            uint32_t at = 0;
            bool more = true;
            while (more) {
                map_lock(shard);
                more = map_walk(map, shard, k, &at, fn, arg, &removed);
                map_unlock(shard);
                GP_TESTPOINT("map.each");
                if (rest)
                    rest(arg);
            }
            walked += at;
        }
    }
    __atomic_fetch_add(&map->x_walked, walked, __ATOMIC_RELAXED);
    return removed;
}

uint64_t gp_map_walked(struct gp_map *map)
{
    return __atomic_load_n(&map->x_walked, __ATOMIC_RELAXED);
}

uint64_t gp_map_count(struct gp_map *map)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < GP_MAP_SHARDS; i++)
        count += __atomic_load_n(&map->shards[i].x_count, __ATOMIC_RELAXED);
    return count;
}
