/* SPDX-License-Identifier: MIT
 *
 * internal.h: what the files of cache/ share, and nobody else sees.
 *
 * Locks.  `lock` guards every record.  `grow` is held around backend calls that get, give or wait for memory; it is
 * taken before `lock`, never inside it, and no backend call is made under `lock`.
 */
#ifndef GP_CACHE_INTERNAL_H
#define GP_CACHE_INTERNAL_H

#include "base/compiler.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "cache/policy.h"
#include "ds/counter.h"

struct gp_segment;
struct gp_heap;

enum gp_block_state {
    GP_BLOCK_SPARE,    /* a record without a block */
    GP_BLOCK_IDLE,     /* in its heap's index */
    GP_BLOCK_LIVE,     /* the program's */
    GP_BLOCK_WAITING,  /* freed, before its fence */
    GP_BLOCK_UNMAPPED, /* addresses of a growable segment without memory: in its heap's other index */
    GP_BLOCK_CACHED,   /* idle, in a thread's cache (threadcache.c) */
    GP_BLOCK_TAKEN,    /* on its way between two of these, in one thread's hand */
};
#define GP_BLOCK_STATE 0x0fu
/* Flags of a live block, beside its state: */
#define GP_BLOCK_LOCAL                                                                                                 \
    0x10u /* its free may put it into a thread's cache: small, growable, used by its heap's stream alone */
#define GP_BLOCK_FLAGS 0xffull /* addresses are multiples of 256 */

/* A heap, or a use, whose stream was destroyed. */
#define GP_STREAM_DESTROYED (GP_STREAM_ANY - 1)

struct gp_uses { /* other streams that work on a live block */
    struct gp_uses *next;
    uint64_t stream;
};

/* The first line is what a free looks at.  A free wins a live block by a compare-and-swap of `word`, with or without
 * the lock; in every other state a block belongs to the lock, but for CACHED (its gate, threadcache.c) and TAKEN. */
struct gp_block {
    uint64_t word; /* address | flags | state: the address, so that who swaps it knows whose record it is */
    uint64_t bytes, requested_bytes;
    uint64_t stream; /* that it was given for; idle: its heap's */
    struct gp_segment *segment;
    struct gp_block *left, *right; /* index; left: the next one that waits, or is cached */
    struct gp_uses *uses;

    uint64_t address;
    struct gp_block *before, *after; /* neighbours by address in the segment */
    uint64_t born;                   /* the cache's clock when it became idle: age for garbage collection */
    uint64_t epoch; /* the cache's when it became idle: quiet once a fence of that epoch or a later one was reached */
    uint32_t priority; /* of the treap */
    bool oversize;
    bool unordered;        /* was freed so */
    uint64_t tag, time_ns; /* the request's, of a live block; with tags alone */
};
_Static_assert(sizeof(struct gp_block) == 128, "two lines");

static inline enum gp_block_state gp_block_state(const struct gp_block *block)
{
    return (enum gp_block_state)(__atomic_load_n(&block->word, __ATOMIC_RELAXED) & GP_BLOCK_STATE);
}

/* [block.R1] release pairs with [block.A1]: who wins the block sees its record. */
static inline void gp_block_become(struct gp_block *block, unsigned state)
{
    __atomic_store_n(&block->word, block->address | state, __ATOMIC_RELEASE);
}

/* A live block at that address becomes `state`; false: it is none (any longer).  [block.A1] acquire pairs with
 * [block.R1]. */
static inline bool gp_block_win(struct gp_block *block, uint64_t address, uint64_t flags, unsigned state)
{
    uint64_t seen = address | flags | GP_BLOCK_LIVE;
    return __atomic_load_n(&block->word, __ATOMIC_RELAXED) == seen &&
           __atomic_compare_exchange_n(&block->word, &seen, address | state, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Whatever its flags; under lock, which alone changes them. */
static inline bool gp_block_claim(struct gp_block *block)
{
    return gp_block_win(block, block->address, 0, GP_BLOCK_TAKEN) ||
           gp_block_win(block, block->address, GP_BLOCK_LOCAL, GP_BLOCK_TAKEN);
}

/* Under lock: its free takes the long way from now on. */
static inline void gp_block_bar(struct gp_block *block)
{
    uint64_t seen = block->address | GP_BLOCK_LOCAL | GP_BLOCK_LIVE;
    /* [block.R1]; if it fails, the block was freed meanwhile, or was barred before. */
    __atomic_compare_exchange_n(&block->word, &seen, block->address | GP_BLOCK_LIVE, false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}

struct gp_page { /* physical memory in a growable segment; by address */
    struct gp_page *next;
    uint64_t handle, address, bytes;
};

struct gp_segment {
    struct gp_segment *next, *before; /* of the cache, in no order */
    struct gp_heap *heap;
    uint64_t address, bytes; /* growable: of the range */
    struct gp_block *first;
    struct gp_page *pages;
    uint64_t born;
    bool growable, dedicated, oversize, first_chunk;
};

struct gp_index { /* by (bytes, address) */
    struct gp_block *root;
    uint64_t count;
};

/* One bin of a thread's cache for each size of the small pool: multiples of 512 bytes to 1 MiB. */
#define GP_BIN_SHIFT 9
#define GP_BINS      2048

struct gp_heap { /* idle memory of one stream, pool and class */
    struct gp_heap *next;
    uint64_t stream, pool;
    bool small, linear, dedicated;
    bool pinned; /* of a private pool that is in use: a captured graph may use its idle memory, which stays where it is
                  */
    struct gp_index idle, unmapped;
    uint64_t idle_bytes, unordered_bytes; /* unordered: freed without an order, not idle yet */
};

struct gp_pool { /* a private one */
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

struct gp_slab { /* records of one size; chunks are kept until the cache goes */
    void *spare;
    void *chunks;
    uint32_t item_bytes;
};

/* Address -> the block that begins there: 49 bits (the most that CUDA's unified addresses have) as 14 + 14 + 21. */
#define GP_LEAF_SHIFT 21
#define GP_MID_BITS   14
#define GP_ROOT_BITS  14
struct gp_leaf {
    struct gp_block *slots[1]; /* leaf span / granule of them */
};
struct gp_table {
    struct gp_leaf ***root;
    uint32_t granule_shift;
};

/* The position of an iteration (iterate.c) while it does not hold the lock: cursor.c corrects it when the record that it
 * points to is dropped. */
struct gp_cursor {
    struct gp_cursor *next;
    struct gp_segment *segment; /* the next one */
    struct gp_block *block;     /* the next one; NULL: dropped with its segment, or the last one was visited */
};

struct gp_cache {
    struct gp_policy policy;
    struct gp_backend backend;
    struct gp_counter *gauges;
    bool owns_gauges, tags;
    void *listener;
    void (*listen)(void *listener, const struct gp_cache_event *event);

    struct gp_lock grow, lock;
    struct gp_table table;
    struct gp_thread_set *threads; /* caches of threads, one set for each counter shard; NULL: none */
    struct gp_slab blocks, segment_records, heap_records, page_records, use_records, pool_records, fenced_records, mids,
        leaves;
    struct gp_segment *segments;
    struct gp_cursor *cursors; /* of the iterations under way */
    struct gp_heap *heaps;
    struct gp_pool *pools;

    /* Waiting: `open` collects unordered frees; `asked` are freed blocks with uses, before their fence is recorded;
     * `fenced` is a queue. */
    struct gp_fenced_blocks open;
    struct gp_block *asked;
    uint64_t asked_count;
    struct gp_fenced_blocks *fenced, *fenced_last;
    uint64_t fences; /* in that queue */

    uint64_t clock;                    /* allocations so far */
    uint64_t limit_bytes, total_bytes; /* total: of the device, once asked */
    uint64_t reserved_bytes, idle_bytes, waiting_bytes, peak_bytes;
    uint64_t dedicated_idle_bytes;
    uint64_t x_retries, x_syncs, x_device_allocs, x_device_frees, x_calls;
    uint64_t moved_bytes; /* pages that were mapped elsewhere, ever: under grow */
    uint64_t epoch;       /* raised before each fence over everything ... */
    uint64_t settled; /* ... and the last such fence that was reached: idle blocks up to this epoch are quiet, no work
                         of any stream uses them */
    bool first_made;  /* prealloc's first chunk */
};

/* arena.c */
void *gp_slab_take(struct gp_slab *slab);
void gp_slab_give(struct gp_slab *slab, void *item);
void gp_slab_end(struct gp_slab *slab);
bool gp_table_open(struct gp_cache *cache);
void gp_table_close(struct gp_cache *cache);
/* Makes room for the address, so that gp_table_set cannot fail. */
bool gp_table_ready(struct gp_cache *cache, uint64_t address);
void gp_table_set(struct gp_cache *cache, uint64_t address, struct gp_block *block);
struct gp_block *gp_table_at(const struct gp_cache *cache, uint64_t address);

/* index.c */
void gp_index_put(struct gp_index *index, struct gp_block *block);
void gp_index_take(struct gp_index *index, struct gp_block *block);
/* The smallest of at least `bytes`, of these the lowest address. */
struct gp_block *gp_index_fit(const struct gp_index *index, uint64_t bytes);
struct gp_block *gp_index_largest(const struct gp_index *index);

/* heap.c: under lock */
/* Of the same pool and class, for whatever streams. */
bool gp_heap_alike(const struct gp_heap *one, const struct gp_heap *other);
/* The heap of the stream that is alike, or a new one.  NULL: no memory. */
struct gp_heap *gp_heap_of(struct gp_cache *cache, const struct gp_heap *like, uint64_t stream);
struct gp_block *gp_block_new(struct gp_cache *cache, struct gp_segment *segment, uint64_t address, uint64_t bytes);
void gp_block_drop(struct gp_cache *cache, struct gp_block *block);
void gp_block_idle(struct gp_cache *cache, struct gp_block *block); /* joins its neighbours and enters the index */
void gp_block_unidle(struct gp_cache *cache, struct gp_block *block);
void gp_block_unmapped(struct gp_cache *cache, struct gp_block *block);
/* Cuts [address, address + bytes) out of a block that is in no index; the new parts get state `rest` by the caller. */
struct gp_block *gp_block_cut(struct gp_cache *cache, struct gp_block *block, uint64_t first_bytes);
/* An idle block that the rules would give; NULL: none. */
struct gp_block *gp_heap_find(struct gp_cache *cache, struct gp_heap *heap, uint64_t bytes);
struct gp_block *gp_heap_give(struct gp_cache *cache, struct gp_heap *heap, const struct gp_request *request,
                              uint64_t bytes);
/* The same from this idle block, whatever the rules say of its size. */
struct gp_block *gp_block_give(struct gp_cache *cache, struct gp_block *block, const struct gp_request *request,
                               uint64_t bytes);
/* The stream of a heap is gone: joins it with the others of its class.  True: *place, which pointed to it, points to
 * the next one; false: it is the first and stays.  Under grow too. */
bool gp_heap_retire(struct gp_cache *cache, struct gp_heap *heap, struct gp_heap **place);
bool gp_block_is_split(const struct gp_block *block);

/* gauges.c */
void gp_gauges_alloc(struct gp_cache *cache, unsigned shard, const struct gp_block *block);
void gp_gauges_free(struct gp_cache *cache, unsigned shard, const struct gp_block *block);
/* Both at once, on the thread's own shard: what it gives up there it can take again without asking others. */
void gp_gauges_end(struct gp_cache *cache, unsigned shard, const struct gp_block *block);
void gp_gauges_done(struct gp_cache *cache, const struct gp_block *block); /* inactive now */
void gp_gauges_split(struct gp_cache *cache, const struct gp_block *block, bool up);
void gp_gauges_reserve(struct gp_cache *cache, const struct gp_heap *heap, uint64_t bytes, bool segment, bool oversize,
                       bool up);

/* segment.c: under grow, not lock */
/* A new segment for the request, and the block out of it.  GP_BACKEND_OOM also when the limit stands against it. */
uint32_t gp_segment_grow(struct gp_cache *cache, struct gp_heap *heap, const struct gp_request *request, uint64_t bytes,
                         struct gp_block **out);
/* May `bytes` more be reserved? */
bool gp_segment_allowed(struct gp_cache *cache, uint64_t bytes);
/* Gives idle segments and pages back until keep_bytes are idle or want_bytes were given; waits for the device's work
 * first. */
uint64_t gp_segment_release(struct gp_cache *cache, uint64_t keep_bytes);
/* PyTorch's release_available_cached_blocks: oversize ones alone. */
uint64_t gp_segment_release_oversize(struct gp_cache *cache, uint64_t bytes);
/* PyTorch's garbage_collect_cached_blocks, before `bytes` more are reserved. */
void gp_segment_collect(struct gp_cache *cache);
/* Dedicated segments beyond their share of idle memory, oldest first. */
void gp_segment_trim_dedicated(struct gp_cache *cache);
/* This one, which is idle as a whole: its records go under `lock`, its memory without. */
struct gp_unlinked_segment {
    struct gp_heap heap; /* a copy: the heap itself may go meanwhile */
    uint64_t address, bytes;
    bool first_chunk;
};
void gp_segment_unlink_idle(struct gp_cache *cache, struct gp_segment *segment, struct gp_unlinked_segment *out);
/* False: the backend refused, and it is back. */
bool gp_segment_free_unlinked(struct gp_cache *cache, const struct gp_unlinked_segment *gone);
/* One idle block, that may go back. */
bool gp_segment_is_idle(const struct gp_segment *segment);
struct gp_segment *gp_segment_new(struct gp_cache *cache, struct gp_heap *heap, uint64_t address, uint64_t bytes);
void gp_segment_drop(struct gp_cache *cache, struct gp_segment *segment); /* under lock: the records alone */

/* page.c: growable segments; under grow, not lock */
/* How memory is found: idle pages of other places first, then new ones for the rest; new ones, and some ahead of need;
 * no more new ones than needed. */
enum gp_growth { GP_GROW_MOVE, GP_GROW_AHEAD, GP_GROW_EXACT };
/* Maps memory for the request and gives the block.  GP_BACKEND_BUSY: another thread took what was mapped: once more. */
uint32_t gp_page_grow(struct gp_cache *cache, struct gp_heap *heap, const struct gp_request *request, uint64_t bytes,
                      enum gp_growth how, struct gp_block **out);
/* Unmaps idle pages and gives them to the backend. */
uint64_t gp_page_release(struct gp_cache *cache, uint64_t keep_bytes);
/* Pages that are idle as a whole. */
uint64_t gp_page_idle(struct gp_cache *cache); /* under lock */
/* Address ranges of destroyed streams that hold nothing any more. */
void gp_page_drop_ranges(struct gp_cache *cache);
void gp_page_end(struct gp_cache *cache, struct gp_segment *segment); /* gives all of it back; nobody uses it */

/* threadcache.c */
/* Without them in the policy there are none.  false: no memory. */
bool gp_thread_open(struct gp_cache *cache);
void gp_thread_close(struct gp_cache *cache);
/* No lock.  false: nothing happened, the long way is to be taken. */
bool gp_thread_give(struct gp_cache *cache, const struct gp_request *request, uint64_t bytes, struct gp_grant *out);
bool gp_thread_take(struct gp_cache *cache, struct gp_block *block, uint64_t address, unsigned shard,
                    struct gp_grant *out);
/* Under lock: every cached block becomes idle memory of its heap. */
void gp_thread_flush(struct gp_cache *cache);
/* Bytes that threads keep, more or less: nothing stands still meanwhile.  No lock. */
uint64_t gp_thread_held(struct gp_cache *cache);

/* cursor.c: under lock */
void gp_cursor_enter(struct gp_cache *cache, struct gp_cursor *cursor);
void gp_cursor_leave(struct gp_cache *cache, struct gp_cursor *cursor);
/* The record is about to be dropped; `into` is the block that has its addresses now, NULL: none. */
void gp_cursor_block_removed(struct gp_cache *cache, const struct gp_block *block, struct gp_block *into);
void gp_cursor_segment_removed(struct gp_cache *cache, const struct gp_segment *segment);

/* wait.c */
void gp_uses_drop(struct gp_cache *cache, struct gp_block *block);
void gp_wait_for(struct gp_cache *cache, struct gp_block *block, bool unordered); /* under lock */
/* Under grow, not lock: after a free that gp_wait_wants_record. */
void gp_wait_record(struct gp_cache *cache);
bool gp_wait_wants_record(const struct gp_cache *cache);
/* Records what is to be recorded and asks the fences; wait: until nothing waits.  Under grow, not lock. */
void gp_wait_settle(struct gp_cache *cache, bool open_too, bool wait);
/* All work of the device is done afterwards.  False: not possible now. */
bool gp_wait_all(struct gp_cache *cache);
void gp_wait_forget(struct gp_cache *cache); /* under lock: everything that waits is idle */

/* Idle bytes now.  Takes lock. */
static inline uint64_t gp_cache_idle(struct gp_cache *cache)
{
    gp_lock_take(&cache->lock);
    uint64_t bytes = cache->idle_bytes;
    gp_lock_give(&cache->lock);
    return bytes;
}

/* Reports an event to the listener.  Under no lock that the listener needs (cache.h). */
static inline void gp_cache_tell(struct gp_cache *cache, enum gp_cache_event_type type, uint64_t address,
                                 uint64_t bytes, uint64_t stream)
{
    const struct gp_cache_event event = {type, address, bytes, stream};
    if (cache->listen)
        cache->listen(cache->listener, &event);
}

/* After the block's word said that it is the caller's. */
static inline void gp_block_tag(const struct gp_cache *cache, struct gp_block *block, const struct gp_request *request)
{
    if (GP_UNLIKELY(cache->tags)) {
        __atomic_store_n(&block->tag, request->tag, __ATOMIC_RELAXED); /* inspect.c may look at it */
        __atomic_store_n(&block->time_ns, request->time_ns, __ATOMIC_RELAXED);
    }
}

static inline uint64_t gp_block_tag_of(const struct gp_cache *cache, const struct gp_block *block)
{
    return GP_UNLIKELY(cache->tags) ? __atomic_load_n(&block->tag, __ATOMIC_RELAXED) : 0;
}

static inline void gp_cache_called(struct gp_cache *cache)
{
    __atomic_fetch_add(&cache->x_calls, 1, __ATOMIC_RELAXED); /* a count */
}

#endif
