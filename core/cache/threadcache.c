/* SPDX-License-Identifier: MIT
 *
 * threadcache.c: small idle blocks that a thread keeps for itself, in bins by size, not joined with
 * their neighbours. The thread's next allocation of about that size takes one without a shared
 * lock. alloc.c and cache.c call here first. Whenever this cannot serve a call, they take the slow
 * path (block.c), so nothing here waits, retries or fails finally.
 *
 * One set of bins belongs to a counter shard and is guarded by its gate (base/counter.h): the same
 * compare-and-swap covers the statistics, so a block is moved and counted in one step. At a peak of
 * the statistics the gates are closed, and blocks take the slow path. Lock order: cache->lock, then
 * gates.
 *
 * The gauges count these blocks as inactive; the heaps count them as allocated. Only blocks of
 * growable small heaps are cached here, because no gauge counts their idle blocks one by one.
 */
#include "cache/threadcache.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "base/gauge.h"
#include "base/lock.h"
#include "cache/block.h"
#include "cache/cache.h"
#include "cache/internal.h"
#include "cache/policy.h"
#include <errno.h>
#include <gpuprof/wire.h>
#include <sys/mman.h>

/* Streams per thread that have bins at a time; a further stream replaces empty bins, or takes the
 * slow path. */
#define GP_THREAD_STREAMS 4
/* An overflow returns a 64th of the allowed contents to the heap. A block takes some 500 ns there,
 * so a larger part would hold the lock for longer than others spin for it, and leave the thread
 * with fewer sizes to choose from. */
#define GP_THREAD_EXCESS 64

struct gp_bins {
    uint64_t stream;
    uint64_t bytes;
    uint32_t blocks; /* 0: free for any stream */
    uint32_t cursor; /* of evictions, so that all sizes take turns */
    uint64_t words;  /* bit w: map[w] is not 0 */
    uint64_t map[GP_BINS / 64];
    struct gp_block *bin[GP_BINS];
};

struct gp_thread_set { /* of one shard */
    struct gp_bins bins[GP_THREAD_STREAMS];
};

/* The gauges that one small block changes, as bundles. */
enum { GP_BUNDLE_COUNT, GP_BUNDLE_BYTES, GP_BUNDLE_REQUESTED };

static uint64_t bundle_pools(unsigned gauge)
{
    return 1ull << (gauge + GP_POOL_ALL) | 1ull << (gauge + GP_POOL_SMALL);
}

static bool policy_is_plain(const struct gp_policy *policy)
{
    unsigned divisions = 0;
    for (unsigned i = 0; i < GP_POLICY_DIVISIONS; i++)
        divisions |= policy->divisions[i];
    return !divisions;
}

bool gp_thread_open(struct gp_cache *cache)
{
    const struct gp_policy *policy = &cache->policy;
    bool wanted = policy->thread_blocks && policy->growable && policy->small_bytes &&
                  policy->granule_bytes == 1u << GP_BIN_SHIFT && policy->max_split_bytes > 1u << 20;
    if (!wanted)
        return true;
    size_t bytes = gp_counter_shards(cache->gauges) * sizeof(struct gp_thread_set);
    /* Lazily backed: a thread touches only the bins of the sizes that it uses. */
    void *sets = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sets == MAP_FAILED)
        return false;
    cache->threads = sets;
    cache->thread_bytes = policy->thread_bytes;
    cache->thread_blocks = policy->thread_blocks;
    cache->thread_slack_shift = policy->thread_slack_shift;
    cache->rounds_to_granules = policy_is_plain(policy);
    gp_counter_bundle(cache->gauges, GP_BUNDLE_COUNT,
                      bundle_pools(GP_GAUGE_ALLOCATION) | bundle_pools(GP_GAUGE_ACTIVE) |
                          1ull << (GP_GAUGE_KIND_LIVE + GP_KIND_LINEAR));
    gp_counter_bundle(cache->gauges, GP_BUNDLE_BYTES,
                      bundle_pools(GP_GAUGE_ALLOCATED_BYTES) | bundle_pools(GP_GAUGE_ACTIVE_BYTES));
    gp_counter_bundle(cache->gauges, GP_BUNDLE_REQUESTED,
                      bundle_pools(GP_GAUGE_REQUESTED_BYTES) | 1ull << (GP_GAUGE_KIND_BYTES + GP_KIND_LINEAR));
    return true;
}

void gp_thread_close(struct gp_cache *cache)
{
    if (cache->threads)
        munmap(cache->threads, gp_counter_shards(cache->gauges) * sizeof(struct gp_thread_set));
    cache->threads = NULL;
}

/* ---- bins: the gate is held, or the counters are frozen ---------------------------------------------------------- */

/* The first bin from `from` on that is not empty; GP_BINS: none. */
static inline unsigned bins_next(const struct gp_bins *bins, unsigned from)
{
    unsigned word = from / 64;
    uint64_t bits = bins->map[word] & ~0ull << from % 64;
    if (!bits) {
        /* Two shifts, because a shift by 64 is undefined. Words past the last have no bit. */
        uint64_t words = bins->words & ~0ull << word & ~(1ull << word);
        if (!words)
            return GP_BINS;
        word = (unsigned)__builtin_ctzll(words);
        bits = bins->map[word];
    }
    return word * 64 + (unsigned)__builtin_ctzll(bits);
}

static inline void bins_push(struct gp_bins *bins, struct gp_block *block)
{
    unsigned index = (unsigned)(block->bytes >> GP_BIN_SHIFT) - 1;
    block->left = bins->bin[index];
    bins->bin[index] = block;
    bins->map[index / 64] |= 1ull << index % 64;
    bins->words |= 1ull << index / 64;
    bins->blocks++;
    __atomic_store_n(&bins->bytes, bins->bytes + block->bytes, __ATOMIC_RELAXED); /* read by gp_thread_holds_more */
}

static inline struct gp_block *bins_pop(struct gp_bins *bins, unsigned index)
{
    struct gp_block *block = bins->bin[index];
    bins->bin[index] = block->left;
    bins->blocks--;
    __atomic_store_n(&bins->bytes, bins->bytes - block->bytes, __ATOMIC_RELAXED);
    if (!block->left) {
        bins->map[index / 64] &= ~(1ull << index % 64);
        if (!bins->map[index / 64])
            bins->words &= ~(1ull << index / 64);
    }
    return block;
}

static inline struct gp_bins *bins_of(struct gp_thread_set *set, uint64_t stream)
{
    for (unsigned i = 0; i < GP_THREAD_STREAMS; i++)
        if (set->bins[i].stream == stream && set->bins[i].blocks)
            return &set->bins[i];
    return NULL;
}

static inline struct gp_bins *bins_for(struct gp_thread_set *set, uint64_t stream)
{
    struct gp_bins *bins = bins_of(set, stream);
    for (unsigned i = 0; !bins && i < GP_THREAD_STREAMS; i++)
        if (!set->bins[i].blocks) {
            bins = &set->bins[i];
            bins->stream = stream;
        }
    return bins;
}

/* A caller's number is below the number of shards unless it has as many threads. */
static inline unsigned thread_shard(const struct gp_cache *cache, unsigned shard)
{
    unsigned shards = gp_counter_shards(cache->gauges);
    return GP_LIKELY(shard < shards) ? shard : shard % shards;
}

/* gp_policy_round without a division; bytes are at most those of the last bin. */
static inline uint64_t thread_round(const struct gp_cache *cache, uint64_t bytes)
{
    const uint64_t granule = 1u << GP_BIN_SHIFT;
    if (GP_UNLIKELY(!cache->rounds_to_granules))
        return gp_policy_round(&cache->policy, bytes);
    return bytes ? (bytes + granule - 1) & ~(granule - 1) : granule;
}

/* ---- the fast paths ---------------------------------------------------------------------------------------------- */

bool gp_cache_give(struct gp_cache *cache, const struct gp_request *request, struct gp_grant *out)
{
    if (GP_UNLIKELY(!cache->threads || request->bytes > (uint64_t)GP_BINS << GP_BIN_SHIFT || request->pool ||
                    request->flags))
        return false;
    uint64_t bytes = thread_round(cache, request->bytes), from = (bytes >> GP_BIN_SHIFT) - 1;
    unsigned shard = thread_shard(cache, request->shard);
    struct gp_gate *gate = gp_counter_gate(cache->gauges, shard);
    if (from >= GP_BINS || !gp_gate_hold(gate))
        return false;
    struct gp_bins *bins = bins_of(&cache->threads[shard], request->stream);
    unsigned index = bins ? bins_next(bins, (unsigned)from) : GP_BINS;
    uint64_t have = (uint64_t)(index + 1) << GP_BIN_SHIFT;
    const int64_t amounts[GP_BUNDLES] = {1, (int64_t)have, (int64_t)request->bytes};
    bool fits = index < GP_BINS && have - bytes <= bytes >> cache->thread_slack_shift;
    if (!fits || !gp_gate_add(cache->gauges, gate, amounts)) {
        gp_gate_release(gate);
        return false;
    }
    /* Read while the gate is held, as gp_counter_apply_timed does. */
    uint64_t time_ns = gp_cache_is_timed(cache) ? gp_clock_ns() : 0;
    struct gp_block *block = bins_pop(bins, index);
    /* From the word, which is in the first line of the record; `address` is in the second. */
    uint64_t address = __atomic_load_n(&block->word, __ATOMIC_RELAXED) & ~GP_BLOCK_FLAGS;
    *out = (struct gp_grant){address, have, request->bytes, request->stream, request->tag, time_ns, block};
    __atomic_store_n(&block->requested_bytes, request->bytes,
                     __ATOMIC_RELAXED); /* ordered by the release store of the word below */
    gp_block_tag(cache, block, request);
    gp_block_begun(cache, block, time_ns);
    __atomic_store_n(&block->word, address | GP_BLOCK_LOCAL | GP_BLOCK_LIVE, __ATOMIC_RELEASE); /* [block.R1] */
    gp_gate_release(gate);
    return true;
}

/* Returns the excess to the heap. If the gate cannot be taken, the next free tries again. */
static __attribute__((noinline)) void thread_shrink(struct gp_cache *cache, struct gp_gate *gate, struct gp_bins *bins)
{
    struct gp_block *list = NULL, *next;
    int saved_errno = errno;
    gp_lock_take(&cache->lock);
    if (gp_gate_hold(gate)) {
        uint32_t blocks = cache->policy.thread_blocks - cache->policy.thread_blocks / GP_THREAD_EXCESS;
        uint64_t bytes = cache->policy.thread_bytes - cache->policy.thread_bytes / GP_THREAD_EXCESS;
        while (bins->blocks > blocks || bins->bytes > bytes) {
            unsigned index = bins_next(bins, bins->cursor);
            bins->cursor = index + 1 < GP_BINS ? index + 1 : 0;
            if (index == GP_BINS)
                continue;
            struct gp_block *block = bins_pop(bins, index);
            block->left = list;
            list = block;
        }
        gp_gate_release(gate);
    }
    for (; list; list = next) {
        next = list->left;
        gp_block_idle(cache, list);
    }
    gp_lock_give(&cache->lock);
    errno = saved_errno;
}

bool gp_cache_take(struct gp_cache *cache, uint64_t address, enum gp_free_order order, unsigned shard,
                   struct gp_grant *out)
{
    if (GP_UNLIKELY(!cache->threads || (order != GP_FREE_ORDERED && order != GP_FREE_BY_STREAM)))
        return false;
    struct gp_block *block = gp_table_at(cache, address);
    /* Check first: the word of most blocks that cannot be cached shows it. The flag also says that the
     * block was allocated for a stream (block.c), so GP_FREE_BY_STREAM is ordered. */
    if (!block || __atomic_load_n(&block->word, __ATOMIC_RELAXED) != (address | GP_BLOCK_LOCAL | GP_BLOCK_LIVE))
        return false;
    shard = thread_shard(cache, shard);
    struct gp_gate *gate = gp_counter_gate(cache->gauges, shard);
    if (!gp_gate_hold(gate))
        return false;
    /* The record may describe another block by now, so the stream is checked again once the block
     * is claimed. */
    uint64_t stream = __atomic_load_n(&block->stream, __ATOMIC_RELAXED);
    struct gp_bins *bins = bins_for(&cache->threads[shard], stream);
    if (!bins || !gp_block_win(block, address, GP_BLOCK_LOCAL, GP_BLOCK_CACHED)) {
        gp_gate_release(gate);
        return false;
    }
    if (GP_UNLIKELY(__atomic_load_n(&block->stream, __ATOMIC_RELAXED) != stream)) {
        gp_block_become(block, GP_BLOCK_LOCAL | GP_BLOCK_LIVE);
        gp_gate_release(gate);
        return false;
    }
    const int64_t amounts[GP_BUNDLES] = {1, (int64_t)block->bytes, (int64_t)block->requested_bytes};
    gp_gate_sub(gate, amounts);
    uint64_t time_ns = gp_cache_is_timed(cache) ? gp_clock_ns() : 0;
    *out = (struct gp_grant){address, block->bytes, block->requested_bytes, stream, gp_block_tag_of(cache, block),
                             time_ns, block};
    bins_push(bins, block);
    bool full = bins->blocks > cache->thread_blocks || bins->bytes > cache->thread_bytes;
    if (GP_UNLIKELY(full) && cache->times && !time_ns) /* the block may leave this thread below */
        out->time_ns = gp_clock_ns();
    gp_gate_release(gate);
    if (GP_UNLIKELY(full))
        thread_shrink(cache, gate, bins);
    return true;
}

/* ---- all threads ------------------------------------------------------------------------------------------- */

bool gp_thread_holds_more(struct gp_cache *cache, uint64_t one_bytes, uint64_t all_bytes)
{
    uint64_t all = 0;
    unsigned shards = cache->threads ? gp_counter_shards(cache->gauges) : 0;
    for (unsigned s = 0; s < shards; s++) {
        uint64_t held = 0;
        for (unsigned i = 0; i < GP_THREAD_STREAMS; i++)
            held +=
                __atomic_load_n(&cache->threads[s].bins[i].bytes, __ATOMIC_RELAXED); /* an approximate sum is enough */
        all += held;
        if (held > one_bytes || all > all_bytes)
            return true;
    }
    return false;
}

static void bins_flush(struct gp_cache *cache, struct gp_bins *bins)
{
    for (unsigned index; bins->blocks && (index = bins_next(bins, 0)) < GP_BINS;)
        gp_block_idle(cache, bins_pop(bins, index));
}

bool gp_thread_yield(struct gp_cache *cache, const struct gp_request *request, uint64_t bytes)
{
    uint64_t from = (bytes >> GP_BIN_SHIFT) - 1;
    struct gp_block *block = NULL;
    if (!cache->threads || from >= GP_BINS)
        return false;
    unsigned shard = thread_shard(cache, request->shard);
    struct gp_gate *gate = gp_counter_gate(cache->gauges, shard);
    if (!gp_gate_hold(gate))
        return false;
    struct gp_bins *bins = bins_of(&cache->threads[shard], request->stream);
    unsigned index = bins ? bins_next(bins, (unsigned)from) : GP_BINS;
    if (index < GP_BINS)
        block = bins_pop(bins, index);
    gp_gate_release(gate);
    if (block)
        gp_block_idle(cache, block);
    return block != NULL;
}

void gp_thread_pass(struct gp_cache *cache)
{
    if (!cache->threads)
        return;
    gp_counter_freeze(cache->gauges);
    gp_counter_thaw(cache->gauges);
}

void gp_thread_flush(struct gp_cache *cache)
{
    if (!cache->threads)
        return;
    unsigned shards = gp_counter_shards(cache->gauges);
    gp_counter_freeze(cache->gauges);
    for (unsigned s = 0; s < shards; s++)
        if (gp_counter_used(cache->gauges, s))
            for (unsigned i = 0; i < GP_THREAD_STREAMS; i++)
                bins_flush(cache, &cache->threads[s].bins[i]);
    gp_counter_thaw(cache->gauges);
}
