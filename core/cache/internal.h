/* SPDX-License-Identifier: MIT
 *
 * internal.h: the records of the cache, which its files share. What the files call of each other is
 * in the headers with their names. No other folder includes them.
 *
 * Locks. `lock` guards every record. `grow` is held around backend calls that get memory, release
 * it or wait for fences. It is taken before `lock`, never inside it. No backend call is made under
 * `lock`.
 */
#ifndef GP_CACHE_INTERNAL_H
#define GP_CACHE_INTERNAL_H

#include "base/compiler.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "cache/policy.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_segment;
struct gp_heap;

enum gp_block_state {
    GP_BLOCK_SPARE,    /* a record without a block */
    GP_BLOCK_IDLE,     /* in its heap's index */
    GP_BLOCK_LIVE,     /* in use by the program */
    GP_BLOCK_WAITING,  /* freed; its fence is not reached yet */
    GP_BLOCK_UNMAPPED, /* addresses of a growable segment without memory: in its heap's other index */
    GP_BLOCK_CACHED,   /* idle, in a thread's cache (threadcache.c) */
    GP_BLOCK_TAKEN,    /* changing between two of these states; owned by one thread */
};
#define GP_BLOCK_STATE 0x0fu
/* A flag of a live block, stored beside its state: its free may put it into a thread's cache. The
 * block is small, in a growable segment, and used only by its heap's stream. */
#define GP_BLOCK_LOCAL 0x10u
#define GP_BLOCK_FLAGS 0xffull /* addresses are multiples of 256 */

/* The stream of a heap or a use after that stream was destroyed. */
#define GP_STREAM_DESTROYED (GP_STREAM_ANY - 1)

struct gp_uses { /* other streams that work on a live block */
    struct gp_uses *next;
    uint64_t stream;
};

/* A free reads only the first cache line. It claims a live block with a compare-and-swap of `word`,
 * with or without the lock. In every other state the lock guards the block, except CACHED (its gate
 * guards it, threadcache.c) and TAKEN (one thread owns it). */
struct gp_block {
    /* address | flags | state; it contains the address so that a compare-and-swap succeeds only on
     * the right block */
    uint64_t word;
    uint64_t bytes, requested_bytes;
    uint64_t stream; /* the stream it was allocated for; idle: its heap's stream */
    struct gp_segment *segment;
    struct gp_block *left, *right; /* index; left: the next waiting or cached block */
    union {
        struct gp_uses *uses; /* NULL in every state but live and waiting, and its place if it is in an index */
        uint64_t place;       /* its order among the blocks of its size there */
    };

    uint64_t address;
    struct gp_block *before, *after; /* neighbours by address in the segment */
    uint64_t born;                   /* the cache's clock when it became idle; its age for garbage collection */
    /* the cache's epoch when it became idle; it is quiet once a fence of that epoch or a later one
     * was reached */
    uint64_t epoch;
    bool oversize;
    bool unordered;        /* was freed with GP_FREE_UNORDERED */
    uint64_t tag, time_ns; /* of a live block: the request's and the grant's; 0 until a request has a tag */
};
_Static_assert(sizeof(struct gp_block) == 128, "two lines");

/* From the word, which is in the first line of the record; `address` is in the second. Not of a spare record. */
static inline uint64_t gp_block_at(const struct gp_block *block)
{
    return __atomic_load_n(&block->word, __ATOMIC_RELAXED) & ~GP_BLOCK_FLAGS;
}

static inline enum gp_block_state gp_block_state(const struct gp_block *block)
{
    return (enum gp_block_state)(__atomic_load_n(&block->word, __ATOMIC_RELAXED) & GP_BLOCK_STATE);
}

/* [block.R1] release pairs with [block.A1]: the thread that claims the block sees its record; and with [block.A2], who
 * visits it (iterate.c). */
static inline void gp_block_become(struct gp_block *block, unsigned state)
{
    __atomic_store_n(&block->word, block->address | state, __ATOMIC_RELEASE);
}

/* Claims the live block at that address and sets its state. false: the block is no longer live, or
 * has another address or other flags. [block.A1] acquire pairs with [block.R1]. */
static inline bool gp_block_win(struct gp_block *block, uint64_t address, uint64_t flags, unsigned state)
{
    uint64_t seen = address | flags | GP_BLOCK_LIVE;
    return __atomic_load_n(&block->word, __ATOMIC_RELAXED) == seen &&
           __atomic_compare_exchange_n(&block->word, &seen, address | state, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Claims a live block with any flags. Under lock; flags change only under lock. */
static inline bool gp_block_claim(struct gp_block *block)
{
    return gp_block_win(block, block->address, 0, GP_BLOCK_TAKEN) ||
           gp_block_win(block, block->address, GP_BLOCK_LOCAL, GP_BLOCK_TAKEN);
}

/* Under lock: from now on a free of this block takes the slow path. */
static inline void gp_block_bar(struct gp_block *block)
{
    uint64_t seen = block->address | GP_BLOCK_LOCAL | GP_BLOCK_LIVE;
    /* [block.R1]; if the swap fails, the block was freed meanwhile, or its flag was cleared
     * before. */
    __atomic_compare_exchange_n(&block->word, &seen, block->address | GP_BLOCK_LIVE, false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}

struct gp_page { /* physical memory in a growable segment; a list sorted by address */
    struct gp_page *next;
    uint64_t handle, address, bytes;
};

struct gp_segment {
    struct gp_segment *next, *before; /* the cache's list, in no order */
    struct gp_heap *heap;
    uint64_t address, bytes; /* growable: of the address range */
    struct gp_block *first;
    struct gp_page *pages;
    struct gp_page *near; /* one before the place where the last search of them ended; NULL: it begins with the first */
    uint64_t least_page;  /* no page is or was smaller; 0: there was none */
    uint64_t born, number; /* number: how many segments the cache had made before */
    bool growable, dedicated, oversize, first_chunk;
};

/* Blocks by size, those of one size by address, or by the segment's number and the address: a tree for each class of
 * sizes, sixteen classes to a power of two, so that the trees stay low. */
#define GP_INDEX_CLASSES 448u
struct gp_index {
    struct gp_block **roots; /* GP_INDEX_CLASSES of them, behind the heap's record */
    uint64_t count;
    uint64_t map[GP_INDEX_CLASSES / 64]; /* bit c: roots[c] is not NULL */
    bool oldest_first;                   /* as in the policy */
};

/* One bin of a thread's cache for each size of the small pool: multiples of 512 bytes to 1 MiB. */
#define GP_BIN_SHIFT 9
#define GP_BINS      2048

struct gp_heap_kind { /* what two heaps of different streams have in common */
    uint64_t pool;
    bool small, linear, dedicated;
};

struct gp_heap { /* idle memory of one stream and kind */
    struct gp_heap *next;
    uint64_t stream;
    struct gp_heap_kind kind;
    /* of a private pool in use: a captured graph may use its idle memory, so that memory is not
     * moved or released */
    bool pinned;
    struct gp_index idle, unmapped;
    uint64_t idle_bytes, unordered_bytes; /* unordered: freed without an order, still waiting */
};

struct gp_pool { /* a private pool */
    struct gp_pool *next;
    uint64_t id;
    uint32_t references;
};

struct gp_fenced_blocks { /* blocks behind one fence */
    struct gp_fenced_blocks *next;
    struct gp_block *blocks;
    uint64_t fence;
    uint64_t bytes, count;
};

struct gp_slab { /* records of one size; chunks are kept until the cache is freed */
    void *spare;
    void *chunks;
    uint32_t item_bytes;
};

/* Address -> the block that begins there: 49 bits (the most that CUDA's unified addresses have) as 14 + 14 + 21.
 *
 * A leaf has the blocks that begin in one span of 2 MiB, in sets of four places. The address's hash names
 * its set, so a look-up reads one cache line of the leaf. A leaf has two sets at first. If a set is full,
 * the leaf is replaced by one with twice as many, so the leaves of large blocks stay small. */
#define GP_LEAF_SHIFT 21
#define GP_MID_BITS   14
#define GP_ROOT_BITS  14
#define GP_SET_PLACES 4u
/* A leaf's address, which is a multiple of 64, and in the lower bits the shift that makes a hash the
 * number of a set. 0: no block began there yet. */
#define GP_LEAF_LOW 63u
/* A place is 0, or the block's record with the key of its address in the upper 16 bits. */
#define GP_PLACE_SHIFT 48

struct gp_table {
    uint64_t **root;
};

/* The position of an iteration (iterate.c) while the iteration does not hold the lock. block.c
 * corrects it when the record that it points to is dropped. */
struct gp_cursor {
    struct gp_cursor *next;
    struct gp_segment *segment; /* the next segment to visit */
    struct gp_block *block;     /* the next block; NULL: dropped with its segment, or the last one was visited */
};

struct gp_cache {
    /* What the thread caches read at every call (threadcache.c), in two lines; written when the cache
     * is made, and `tags` once. */
    struct gp_thread_set *threads; /* thread caches, one set per counter shard; NULL: none */
    struct gp_counter *gauges;
    struct gp_table table;
    bool (*wants_time)(void);
    uint64_t thread_bytes; /* these three as in the policy */
    uint32_t thread_blocks;
    uint32_t thread_slack_shift;
    bool owns_gauges, tags, times;
    bool rounds_to_granules; /* sizes are rounded to granules and nothing else */

    struct gp_policy policy;
    struct gp_backend backend;
    void *listener;
    void (*listen)(void *listener, const struct gp_cache_event *event);

    struct gp_lock grow, lock;
    struct gp_slab blocks, segment_records, heap_records, page_records, use_records, pool_records, fenced_records, mids;
    void *leaf_chunks; /* memory for the table's leaves ... */
    size_t leaf_used;  /* ... and how much of the first chunk is in use */
    struct gp_segment *segments;
    uint64_t lowest, highest;  /* all segments lie and lay between them; 0, 0: there was none */
    struct gp_cursor *cursors; /* of the running iterations */
    struct gp_heap *heaps;
    struct gp_pool *pools;

    /* Waiting blocks: `open` collects unordered frees; `asked` holds freed blocks with uses until
     * their fence is recorded; `fenced` is a queue of blocks with a recorded fence. */
    struct gp_fenced_blocks open;
    struct gp_block *asked;
    uint64_t refused_count; /* so many blocks waited when a fence was refused; 0: the last one was recorded */
    uint64_t asked_count;
    struct gp_fenced_blocks *fenced, *fenced_last;
    uint64_t fences; /* in that queue */

    uint64_t segments_made;            /* so far */
    uint64_t clock;                    /* requests for large blocks so far */
    uint64_t limit_bytes, total_bytes; /* total: of the device, once queried */
    uint64_t reserved_bytes, idle_bytes, waiting_bytes, peak_bytes;
    uint64_t dedicated_idle_bytes;
    uint64_t x_retries, x_syncs, x_device_allocs, x_device_frees, x_calls;
    uint64_t moved_bytes; /* bytes of pages moved to another place since the start; guarded by grow */
    uint64_t epoch;       /* raised before each fence over all streams ... */
    /* ... and the epoch of the last such fence that was reached; idle blocks up to this epoch are
     * quiet: no work of any stream uses them */
    uint64_t settled;
    bool uncounted;  /* the gauges stay as they are */
    bool first_made; /* prealloc has allocated its first chunk */
    bool retired;    /* a stream was destroyed that had a heap */
};

static inline unsigned gp_table_top(uint64_t address)
{
    return (unsigned)(address >> (GP_LEAF_SHIFT + GP_MID_BITS)) & ((1u << GP_ROOT_BITS) - 1);
}

static inline unsigned gp_table_mid(uint64_t address)
{
    return (unsigned)(address >> GP_LEAF_SHIFT) & ((1u << GP_MID_BITS) - 1);
}

/* The unit of 256 bytes, the smallest granule, in its span, and a bit, so that no place with a block is 0. */
#define GP_UNIT_SHIFT 8
#define GP_UNIT_MASK  ((1u << (GP_LEAF_SHIFT - GP_UNIT_SHIFT)) - 1)
#define GP_UNIT_USED  0x8000u

static inline uint64_t gp_place_key(uint64_t address)
{
    return (address >> GP_UNIT_SHIFT & GP_UNIT_MASK) | GP_UNIT_USED;
}

static inline uint64_t gp_place_address(uint64_t place, uint64_t span)
{
    return span | (place >> GP_PLACE_SHIFT & GP_UNIT_MASK) << GP_UNIT_SHIFT;
}

/* Fibonacci hashing: addresses at any regular distance go evenly to the sets. */
static inline uint64_t *gp_leaf_set(uint64_t leaf, uint64_t address)
{
    uint32_t hash = (uint32_t)(address >> GP_UNIT_SHIFT) * 0x9e3779b1u;
    uint64_t *places = (uint64_t *)(uintptr_t)(leaf & ~(uint64_t)GP_LEAF_LOW);
    return places + (size_t)(hash >> (leaf & 31)) * GP_SET_PLACES;
}

/* The record of the address; NULL: none. A place without its key leaves a bit of the upper 16, so the place
 * with the key is the least. All four are read, because a branch for each could not be predicted. */
static inline struct gp_block *gp_leaf_find(uint64_t leaf, uint64_t address)
{
    const uint64_t *set = gp_leaf_set(leaf, address);
    uint64_t key = gp_place_key(address) << GP_PLACE_SHIFT, least = UINT64_MAX;
#pragma GCC unroll 4
    for (unsigned i = 0; i < GP_SET_PLACES; i++) {
        uint64_t rest = __atomic_load_n(&set[i], __ATOMIC_ACQUIRE) ^ key; /* [table.A1] */
        least = rest < least ? rest : least;
    }
    return least >> GP_PLACE_SHIFT ? NULL : (struct gp_block *)(uintptr_t)least;
}

/* [table.A1] acquire pairs with [table.R1]. */
static inline struct gp_block *gp_table_at(const struct gp_cache *cache, uint64_t address)
{
    if (GP_UNLIKELY(address >> (GP_LEAF_SHIFT + GP_MID_BITS + GP_ROOT_BITS)))
        return NULL;
    const uint64_t *mid = __atomic_load_n(&cache->table.root[gp_table_top(address)], __ATOMIC_ACQUIRE);
    uint64_t leaf = mid ? __atomic_load_n(&mid[gp_table_mid(address)], __ATOMIC_ACQUIRE) : 0;
    if (GP_UNLIKELY(!leaf))
        return NULL;
    struct gp_block *block = gp_leaf_find(leaf, address);
    bool same = block && (__atomic_load_n(&block->word, __ATOMIC_RELAXED) & ~GP_BLOCK_FLAGS) == address;
    return same ? block : NULL;
}
/* The first class from `from` on that has a block; GP_INDEX_CLASSES: none. */
static inline unsigned gp_index_next(const struct gp_index *index, unsigned from)
{
    for (unsigned word = from / 64; word < GP_INDEX_CLASSES / 64; word++) {
        uint64_t bits = index->map[word] & (word == from / 64 ? ~0ull << from % 64 : ~0ull);
        if (bits)
            return word * 64 + (unsigned)__builtin_ctzll(bits);
    }
    return GP_INDEX_CLASSES;
}
#define GP_INDEX_EACH(_index, _class, _from)                                                                           \
    for (unsigned _class = gp_index_next(_index, _from); _class < GP_INDEX_CLASSES;                                    \
         _class = gp_index_next(_index, _class + 1))

/* block.c: under lock */
static inline bool gp_heap_kind_same(const struct gp_heap_kind *one, const struct gp_heap_kind *other)
{
    return one->pool == other->pool && one->small == other->small && one->linear == other->linear &&
           one->dedicated == other->dedicated;
}

/* Current idle bytes. Takes lock. */
static inline uint64_t gp_cache_idle(struct gp_cache *cache)
{
    gp_lock_take(&cache->lock);
    uint64_t bytes = cache->idle_bytes;
    gp_lock_give(&cache->lock);
    return bytes;
}

/* Reports an event to the listener. The caller holds no lock that the listener needs (cache.h). */
static inline void gp_cache_tell_for(struct gp_cache *cache, enum gp_cache_event_type type, uint64_t address,
                                     uint64_t bytes, uint64_t stream, uint64_t time_ns, uint64_t tag)
{
    const struct gp_cache_event event = {type, address, bytes, stream, time_ns, 0, tag};
    if (cache->listen)
        cache->listen(cache->listener, &event);
}

static inline void gp_cache_tell(struct gp_cache *cache, enum gp_cache_event_type type, uint64_t address,
                                 uint64_t bytes, uint64_t stream, uint64_t time_ns)
{
    gp_cache_tell_for(cache, type, address, bytes, stream, time_ns, 0);
}

/* Whether an allocation or a free of the thread's own cache reads the clock.  All others do: another thread
 * may allocate the block before the caller writes its event, which must have the earlier time. */
static inline bool gp_cache_is_timed(const struct gp_cache *cache)
{
    return cache->times && (!cache->wants_time || cache->wants_time());
}

/* Call it after the block's word shows that the caller owns the block. */
static inline void gp_block_tag(struct gp_cache *cache, struct gp_block *block, const struct gp_request *request)
{
    bool tags = __atomic_load_n(&cache->tags, __ATOMIC_RELAXED);
    if (GP_LIKELY(!tags && !request->tag))
        return;
    /* From the first tag on every request writes its own. A later owner took this block over from
     * us, so it sees the flag. */
    if (!tags)
        __atomic_store_n(&cache->tags, true, __ATOMIC_RELAXED);
    __atomic_store_n(&block->tag, request->tag, __ATOMIC_RELAXED); /* inspect.c may look at it */
    __atomic_store_n(&block->time_ns, 0, __ATOMIC_RELAXED);
}

static inline void gp_block_begun(const struct gp_cache *cache, struct gp_block *block, uint64_t time_ns)
{
    if (GP_UNLIKELY(__atomic_load_n(&cache->tags, __ATOMIC_RELAXED)))
        __atomic_store_n(&block->time_ns, time_ns, __ATOMIC_RELAXED);
}

static inline uint64_t gp_block_tag_of(const struct gp_cache *cache, const struct gp_block *block)
{
    return GP_UNLIKELY(__atomic_load_n(&cache->tags, __ATOMIC_RELAXED)) ? __atomic_load_n(&block->tag, __ATOMIC_RELAXED)
                                                                        : 0;
}

static inline void gp_cache_called(struct gp_cache *cache)
{
    __atomic_fetch_add(&cache->x_calls, 1, __ATOMIC_RELAXED); /* a count */
}

#endif
