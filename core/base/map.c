/* SPDX-License-Identifier: MIT
 *
 * map.c: the pointer map. account/'s feed calls it inside driver callbacks; it must never call
 * malloc, CUDA or the host program, and must leave errno unchanged. Picture, argument and figures:
 * docs/understand/map.md.
 *
 * A shard keeps its records in blocks, where they never move, and finds them through an index of cache lines with 12
 * entries each:
 *
 *      index (now, old): line = 12 tags, 12 entries (slot, more of the tag)        blocks: 64, 128, 256 ... records
 *
 * A record's entry is in the line that its hash names, or, if that one was full, in one of the next; `passed` says whether
 * a search goes on. Only the index grows and shrinks: the shard makes a second table, and each change of the shard moves a
 * line over. These hold at every release of the shard's lock:
 *
 *      count = entries(now) + old_left = sum over blocks(live)
 *      limit = x_room + sum over shards(room + count)
 *      passed(line) = entries that belong into it or before it, and are in a later line
 *
 * The blocks k of all shards are one mapping, a level (maplevel.h), and so are their indexes of one size.
 *
 * Partners: [map.R1] unlock, release, pairs with [map.A1] lock, acquire; everything else in a shard
 * is plain memory. So is a level, under a lock of its own: a shard that uses it has held that lock.
 */
#include "base/map.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "base/maplevel.h"
#include <errno.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include <string.h>

/* 64 locks: if 16 threads use only the map, two meet in a shard about one time in eight. */
#define GP_MAP_SHARD_BITS 6
#define GP_MAP_SHARDS     (1u << GP_MAP_SHARD_BITS)
/* The first block is one page of records. 18 doublings end below 2^24 slots, the most that an entry
 * can address. */
#define GP_MAP_FIRST_BITS 6u
#define GP_MAP_FIRST      (1u << GP_MAP_FIRST_BITS)
#define GP_MAP_BLOCKS     18u
/* The level of this block is the first on huge pages: when a record comes into its 8 MiB, the others hold as much. */
#define GP_MAP_HUGE_BLOCK 5u
/* Blocks 0 and 1 stay mapped, so that a program with few allocations does not map and unmap them
 * repeatedly. */
#define GP_MAP_KEPT_BLOCKS 2u
/* One page of lines. */
#define GP_MAP_INDEX_MIN 64u
#define GP_MAP_INDEXES   20u
#define GP_MAP_ENTRIES   12u /* of a line */
#define GP_MAP_NONE      UINT32_MAX

struct gp_map_line {              /* of the index */
    uint8_t tags[GP_MAP_ENTRIES]; /* 0: empty */
    uint32_t passed;
    uint32_t entries[GP_MAP_ENTRIES]; /* (slot + GP_MAP_FIRST) << 8 | more of the tag */
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct gp_map_line) == 64, "one cache line");

struct gp_map_index {
    struct gp_map_line *lines;
    uint64_t mask;
};

struct gp_map_chunk {          /* the shard's part of a level */
    struct gp_record *records; /* a record with space 0 is free, and its `key` is the next free record */
    uint32_t free;             /* first free record of the list; GP_MAP_NONE */
    uint32_t fresh;            /* records from here on were never used */
    uint32_t live;
    uint32_t turns; /* which bits of a record's number tell how often the other shards' turn came before it */
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
    struct gp_map_index now, old; /* old.lines NULL: no migration under way */
    /* The rest is another line, which the frequent case does not read. */
    uint64_t old_at; /* next line to move: all lines before it are empty */
    uint64_t old_left;
    uint32_t block_count;
    uint32_t pad_;
    struct gp_map_chunk blocks[GP_MAP_BLOCKS];
} GP_ALIGNED_LINE;

struct gp_map {
    uint64_t limit; /* const */
    uint64_t batch; /* const: how much room a shard takes at a time */
    struct gp_maplevel blocks[GP_MAP_BLOCKS], indexes[GP_MAP_INDEXES]; /* each of all shards */
    uint64_t x_room GP_ALIGNED_LINE;
    uint64_t x_walked;
    struct gp_map_shard shards[GP_MAP_SHARDS];
};

/* Where a key's entry is, and its record. */
struct gp_map_place {
    struct gp_map_index *index; /* NULL: not found */
    uint64_t home, at;          /* the line that the hash names, and where the entry is */
    unsigned entry;
    unsigned block;
    uint32_t in_block;
    struct gp_record *record;
};
/* ---- lock ------------------------------------------------------------------------------------------------------- */

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

static inline struct gp_maplevel *map_index_level(struct gp_map *map, uint64_t lines)
{
    return &map->indexes[__builtin_ctzll(lines / GP_MAP_INDEX_MIN)];
}

static inline size_t map_index_bytes(uint64_t lines)
{
    return GP_MAP_SHARDS * lines * sizeof(struct gp_map_line);
}

static inline size_t map_block_bytes(unsigned block)
{
    return (GP_MAP_SHARDS * GP_MAP_FIRST * sizeof(struct gp_record)) << block;
}

_Static_assert(((GP_MAP_SHARDS * GP_MAP_FIRST * sizeof(struct gp_record)) << GP_MAP_HUGE_BLOCK) == GP_MAPLEVEL_HUGE,
               "the lowest level on huge pages");

/* ---- hash: the top bits choose the shard, the low 32 are the entry's --------------------------------------------- */

/* Addresses are multiples of 256 or 2 MiB; the high half of the product mixes their high bits into
 * the low ones. The constants are the golden ratio's and another odd random number. Two neighbours of 512 bytes have the
 * same line, and tags that differ: small blocks are often allocated one after the other. */
static inline uint64_t map_hash(uint8_t space, uint64_t key)
{
    const uint64_t neighbour = 1u << 9;
    unsigned __int128 wide =
        (unsigned __int128)((key & ~neighbour) + space * 0xd6e8feb86659fd93ull) * 0x9e3779b97f4a7c15ull;
    uint64_t hash = (uint64_t)wide ^ (uint64_t)(wide >> 64);
    return ((hash ^ hash >> 32) * 0xd6e8feb86659fd93ull) ^ (key & neighbour) << (32 - 9);
}

/* Of an entry, and more of it. */
static inline uint8_t map_tag(uint64_t hash)
{
    return (uint8_t)(hash >> 32) | 0x80;
}

static inline uint8_t map_tag_more(uint64_t hash)
{
    return (uint8_t)(hash >> 40);
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

/* In a level on huge pages, small pages of the shards take turns: the shards fill them at the same pace, and so little of a
 * huge page stays unused. In others each shard has its part in one piece. */
static inline struct gp_record *map_record(const struct gp_map_chunk *block, uint32_t in_block)
{
    return block->records + in_block + (uint64_t)(in_block & block->turns) * (GP_MAP_SHARDS - 1);
}

static inline uint32_t map_number(const struct gp_map *map, const struct gp_map_shard *shard)
{
    return (uint32_t)(shard - map->shards);
}

/* Of a slot's number, + 64, the highest bit tells the block: block k begins at slot 64 * 2^k - 64. */
static inline struct gp_record *map_place_at(const struct gp_map_shard *shard, uint32_t entry,
                                             struct gp_map_place *place)
{
    uint32_t slot = entry >> 8;
    unsigned top = 31u ^ (unsigned)__builtin_clz(slot);
    place->block = top - GP_MAP_FIRST_BITS;
    place->in_block = slot ^ 1u << top;
    return map_record(&shard->blocks[place->block], place->in_block);
}

/* After a change of the table or of the number of blocks. The index grows at 3/4, where one record of ten is not in the line
 * that its hash names. Below an eighth it is halved; after the migration it is at most a quarter full,
 * far from growing again. The highest block is given back if the others could hold twice the records. */
static GP_COLD void map_bounds(struct gp_map_shard *shard)
{
    uint64_t lines = shard->now.lines ? shard->now.mask + 1 : 0;
    uint32_t index = lines > GP_MAP_INDEX_MIN ? (uint32_t)(lines * GP_MAP_ENTRIES / 8) : 0;
    uint32_t blocks = shard->block_count > GP_MAP_KEPT_BLOCKS ? map_block_start(shard->block_count - 1) / 2 + 1 : 0;
    shard->full_at = (uint32_t)(lines * GP_MAP_ENTRIES / 4 * 3);
    shard->trim_at = index > blocks ? index : blocks;
}

static GP_COLD bool map_block_add(struct gp_map *map, struct gp_map_shard *shard)
{
    unsigned k = shard->block_count;
    if (k == GP_MAP_BLOCKS || !gp_maplevel_take(&map->blocks[k], map_block_bytes(k)))
        return false;
    bool huge = k >= GP_MAP_HUGE_BLOCK;
    struct gp_record *records = map->blocks[k].memory;
    shard->blocks[k] = (struct gp_map_chunk){
        .records = records + map_number(map, shard) * (huge ? GP_MAP_FIRST : map_block_slots(k)),
        .free = GP_MAP_NONE,
        .turns = huge ? ~(GP_MAP_FIRST - 1) : 0,
    };
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
    bool again = block->free != GP_MAP_NONE;
    uint32_t at = again ? block->free : block->fresh++;
    struct gp_record *record = map_record(block, at);
    if (again)
        block->free = (uint32_t)record->key;
    block->live++;
    if (GP_UNLIKELY(block->live == map_block_slots(k)))
        shard->open &= ~(1u << k);
    *slot = map_block_slots(k) + at; /* + GP_MAP_FIRST */
    return record;
}

static inline void map_slot_give(struct gp_map_shard *shard, const struct gp_map_place *place)
{
    struct gp_map_chunk *block = &shard->blocks[place->block];
    place->record->space = 0;
    place->record->key = block->free;
    block->free = place->in_block;
    block->live--;
    shard->open |= 1u << place->block;
}

/* Gives the highest block back if it is empty and the others could hold twice the live records; at most
 * one per call. */
static void map_blocks_trim(struct gp_map *map, struct gp_map_shard *shard)
{
    unsigned k = shard->block_count - 1;
    if (k < GP_MAP_KEPT_BLOCKS || shard->blocks[k].live || 2 * shard->x_count > map_block_start(k))
        return;
    shard->blocks[k].fresh = 0;
    shard->open &= ~(1u << k);
    shard->block_count--;
    gp_maplevel_give(&map->blocks[k], map_block_bytes(k), shard->blocks[k].records,
                     map_block_slots(k) * sizeof(struct gp_record));
    map_bounds(shard);
}

/* ---- index ------------------------------------------------------------------------------------------------------- */

/* The entries of a line with that tag, a bit for each. */
static inline unsigned map_line_tags(const struct gp_map_line *line, uint8_t tag)
{
#ifdef __SSE2__
    const __m128i tags = _mm_load_si128((const __m128i *)(const void *)line), wanted = _mm_set1_epi8((char)tag);
    return (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(tags, wanted)) & ((1u << GP_MAP_ENTRIES) - 1);
#else
    unsigned found = 0;
    for (unsigned i = 0; i < GP_MAP_ENTRIES; i++)
        found |= (unsigned)(line->tags[i] == tag) << i;
    return found;
#endif
}

/* Whether it is the key's entry; then place has its record. */
static inline bool map_entry_is(const struct gp_map_shard *shard, uint32_t entry, uint64_t hash, uint8_t space,
                                uint64_t key, struct gp_map_place *place)
{
    if ((uint8_t)entry != map_tag_more(hash))
        return false;
    place->record = map_place_at(shard, entry, place);
    return place->record->key == key && place->record->space == space;
}

static struct gp_record *map_index_find(const struct gp_map_shard *shard, struct gp_map_index *index, uint64_t hash,
                                        uint8_t space, uint64_t key, struct gp_map_place *place)
{
    place->index = index;
    place->home = hash & index->mask;
    for (place->at = place->home;; place->at = (place->at + 1) & index->mask) {
        const struct gp_map_line *line = &index->lines[place->at];
        for (unsigned found = map_line_tags(line, map_tag(hash)); found; found &= found - 1) {
            place->entry = (unsigned)__builtin_ctz(found);
            if (map_entry_is(shard, line->entries[place->entry], hash, space, key, place))
                return place->record;
        }
        if (!line->passed)
            return NULL;
    }
}

static __attribute__((noinline)) struct gp_record *
map_lookup_all(struct gp_map_shard *shard, uint64_t hash, uint8_t space, uint64_t key, struct gp_map_place *place)
{
    struct gp_record *record = shard->now.lines ? map_index_find(shard, &shard->now, hash, space, key, place) : NULL;
    return record || !shard->old.lines ? record : map_index_find(shard, &shard->old, hash, space, key, place);
}

/* One table, which is the most frequent case. */
static inline bool map_is_plain(const struct gp_map_shard *shard)
{
    return GP_LIKELY(shard->now.lines && !shard->old.lines);
}

/* place: of the key's entry. Nine of ten records are found in the line of their hash, most of them at the first tag. */
static inline struct gp_record *map_lookup(struct gp_map_shard *shard, uint64_t hash, uint8_t space, uint64_t key,
                                           struct gp_map_place *place)
{
    if (map_is_plain(shard)) {
        place->index = &shard->now;
        place->at = place->home = hash & shard->now.mask;
        const struct gp_map_line *line = &shard->now.lines[place->at];
        unsigned found = map_line_tags(line, map_tag(hash));
        if (GP_LIKELY(found)) {
            place->entry = (unsigned)__builtin_ctz(found);
            if (GP_LIKELY(map_entry_is(shard, line->entries[place->entry], hash, space, key, place)))
                return place->record;
        }
    }
    return map_lookup_all(shard, hash, space, key, place);
}

/* slot: + GP_MAP_FIRST. */
static inline void map_line_put(struct gp_map_line *line, unsigned empty, uint64_t hash, uint32_t slot)
{
    unsigned i = (unsigned)__builtin_ctz(empty);
    line->tags[i] = map_tag(hash);
    line->entries[i] = slot << 8 | map_tag_more(hash);
}

/* There is room. */
static void map_index_put(struct gp_map_index *index, uint64_t hash, uint32_t slot)
{
    uint64_t at = hash & index->mask;
    unsigned empty = map_line_tags(&index->lines[at], 0);
    while (!empty) {
        index->lines[at].passed++;
        at = (at + 1) & index->mask;
        empty = map_line_tags(&index->lines[at], 0);
    }
    map_line_put(&index->lines[at], empty, hash, slot);
}

static inline void map_index_remove(const struct gp_map_place *place)
{
    const struct gp_map_index *index = place->index;
    index->lines[place->at].tags[place->entry] = 0;
    for (uint64_t at = place->home; GP_UNLIKELY(at != place->at); at = (at + 1) & index->mask)
        index->lines[at].passed--;
}

/* The records are read, since an entry has less than their hash: they have arrived since the change before this one, which
 * asked for them. */
static void map_migrate_ask(const struct gp_map_shard *shard)
{
    const struct gp_map_line *line = &shard->old.lines[shard->old_at];
    struct gp_map_place place;
    for (unsigned used = ~map_line_tags(line, 0) & ((1u << GP_MAP_ENTRIES) - 1); used; used &= used - 1) {
        __builtin_prefetch(map_place_at(shard, line->entries[__builtin_ctz(used)], &place));
    }
}

static GP_COLD void map_migrated(struct gp_map *map, struct gp_map_shard *shard)
{
    const struct gp_map_index old = shard->old;
    uint64_t lines = old.mask + 1;
    shard->old = (struct gp_map_index){0};
    gp_maplevel_give(map_index_level(map, lines), map_index_bytes(lines), old.lines, lines * sizeof(*old.lines));
    GP_TESTPOINT("map.migrated");
}

/* Moves the entries of a line to the new table. The old table ends as it began, with zeros alone. */
static GP_COLD void map_migrate(struct gp_map *map, struct gp_map_shard *shard)
{
    struct gp_map_place place = {.index = &shard->old, .at = shard->old_at};
    struct gp_map_line *line = &shard->old.lines[place.at];
    for (unsigned used = ~map_line_tags(line, 0) & ((1u << GP_MAP_ENTRIES) - 1); used; used &= used - 1) {
        place.entry = (unsigned)__builtin_ctz(used);
        const struct gp_record *record = map_place_at(shard, line->entries[place.entry], &place);
        uint64_t hash = map_hash(record->space, record->key);
        place.home = hash & shard->old.mask;
        map_index_remove(&place);
        map_index_put(&shard->now, hash, line->entries[place.entry] >> 8);
        shard->old_left--;
    }
    shard->old_at++;
    if (shard->old_left)
        map_migrate_ask(shard);
    else
        map_migrated(map, shard);
}

static GP_COLD bool map_index_resize(struct gp_map *map, struct gp_map_shard *shard, uint64_t lines)
{
    struct gp_maplevel *level = map_index_level(map, lines);
    if (level >= &map->indexes[GP_MAP_INDEXES] || !gp_maplevel_take(level, map_index_bytes(lines)))
        return false;
    shard->old = shard->now;
    /* gp_map_prefetch reads them without the lock. */
    __atomic_store_n(&shard->now.lines, (struct gp_map_line *)level->memory + lines * map_number(map, shard),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&shard->now.mask, lines - 1, __ATOMIC_RELAXED);
    map_bounds(shard);
    shard->old_left = shard->x_count;
    shard->old_at = 0;
    if (shard->old.lines && !shard->old_left)
        map_migrated(map, shard);
    return true;
}

/* Makes room for one more entry. Without memory for a larger table, the present one fills up to 7/8. */
static bool map_index_reserve(struct gp_map *map, struct gp_map_shard *shard)
{
    uint64_t lines = shard->now.lines ? shard->now.mask + 1 : 0;
    if (shard->x_count < shard->full_at)
        return true;
    if (!shard->old.lines && map_index_resize(map, shard, lines ? lines * 2 : GP_MAP_INDEX_MIN))
        return true;
    return (shard->x_count + 1) * 8 <= lines * GP_MAP_ENTRIES * 7;
}

static GP_COLD void map_trim(struct gp_map *map, struct gp_map_shard *shard)
{
    uint64_t lines = shard->now.mask + 1;
    map_blocks_trim(map, shard);
    if (lines > GP_MAP_INDEX_MIN && shard->x_count * 8 < lines * GP_MAP_ENTRIES && !shard->old.lines)
        map_index_resize(map, shard, lines / 2);
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
    map_index_remove(place);
    if (GP_UNLIKELY(place->index == &shard->old))
        shard->old_left--;
    map_slot_give(shard, place);
    uint64_t count = shard->x_count - 1;
    __atomic_store_n(&shard->x_count, count, __ATOMIC_RELAXED);
    map_room_give(map, shard);
    if (GP_UNLIKELY(count < shard->trim_at))
        map_trim(map, shard);
    if (GP_UNLIKELY(shard->old.lines))
        map_migrate(map, shard);
}

/* There is room for it in a block and in the limit. Its entry is the caller's. Returns the slot, + GP_MAP_FIRST. */
static inline uint32_t map_fill(struct gp_map_shard *shard, const struct gp_record *record, struct gp_record **into)
{
    uint32_t slot;
    *into = map_slot_take(shard, &slot);
    **into = *record;
    __atomic_store_n(&shard->x_count, shard->x_count + 1, __ATOMIC_RELAXED);
    shard->room--;
    return slot;
}

/* -EDQUOT: the room in other shards has to be collected first. */
static int map_add(struct gp_map *map, struct gp_map_shard *shard, uint64_t hash, const struct gp_record *record,
                   struct gp_record **into)
{
    if (!shard->room && !map_room_take(map, shard))
        return -EDQUOT;
    if (!map_index_reserve(map, shard) || (!shard->open && !map_block_add(map, shard)))
        return -ENOSPC;
    map_index_put(&shard->now, hash, map_fill(shard, record, into));
    if (shard->old.lines)
        map_migrate(map, shard);
    return 0;
}

/* ---- interface --------------------------------------------------------------------------------------------------- */

int gp_map_new(struct gp_map **out, uint64_t limit)
{
    if (!out || limit == 0)
        return -EINVAL;
    struct gp_map *map = gp_maplevel_map(sizeof *map);
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
    for (unsigned k = 0; k < GP_MAP_BLOCKS; k++)
        if (map->blocks[k].memory)
            gp_maplevel_unmap(map->blocks[k].memory, map_block_bytes(k));
    for (unsigned k = 0; k < GP_MAP_INDEXES; k++)
        if (map->indexes[k].memory)
            gp_maplevel_unmap(map->indexes[k].memory, map_index_bytes((uint64_t)GP_MAP_INDEX_MIN << k));
    gp_maplevel_unmap(map, sizeof *map);
}

/* The two words may be of two tables, or the table unmapped by now: a prefetch does not fault. */
uint64_t gp_map_prefetch(struct gp_map *map, uint8_t space, uint64_t key)
{
    uint64_t hash = map_hash(space, key);
    struct gp_map_shard *shard = map_shard(map, hash);
    uintptr_t lines = (uintptr_t)__atomic_load_n(&shard->now.lines, __ATOMIC_RELAXED);
    uint64_t mask = __atomic_load_n(&shard->now.mask, __ATOMIC_RELAXED);
    __builtin_prefetch((const void *)(lines + (hash & mask) * sizeof(struct gp_map_line)), 1);
    __builtin_prefetch(&shard->blocks, 1);
    return hash;
}

/* Whether the table, the blocks and the shard's part of the limit have room for one more record. */
static inline bool map_has_room(const struct gp_map_shard *shard)
{
    return GP_LIKELY(shard->room && shard->open && shard->x_count < shard->full_at);
}

/* Under the lock; as gp_map_insert, and -EDQUOT as map_add. */
static __attribute__((noinline)) int map_insert_any(struct gp_map *map, struct gp_map_shard *shard, uint64_t hash,
                                                    const struct gp_record *record, struct gp_record *old,
                                                    struct gp_record **into)
{
    struct gp_map_place place;
    struct gp_record *live = map_lookup_all(shard, hash, record->space, record->key, &place);
    if (!live)
        return map_add(map, shard, hash, record, into);
    if (old)
        *old = *live;
    *live = *record;
    *into = live;
    return 1;
}

static inline int map_insert(struct gp_map *map, struct gp_map_shard *shard, uint64_t hash,
                             const struct gp_record *record, struct gp_record *old, struct gp_record **into)
{
    if (GP_LIKELY(map_is_plain(shard) && map_has_room(shard))) {
        struct gp_map_line *line = &shard->now.lines[hash & shard->now.mask];
        unsigned empty = map_line_tags(line, 0);
        /* No record of the hash is there for certain. */
        if (GP_LIKELY(empty && !line->passed && !map_line_tags(line, map_tag(hash)))) {
            uint32_t slot = map_fill(shard, record, into);
            map_line_put(line, empty, hash, slot);
            return 0;
        }
    }
    return map_insert_any(map, shard, hash, record, old, into);
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
        struct gp_record *record = map_record(block, *at);
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
