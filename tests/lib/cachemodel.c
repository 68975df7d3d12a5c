/* SPDX-License-Identifier: MIT
 * cachemodel.c: turns bytes into operations on a cache; see cachemodel.h. */
#include "lib/cachejudge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ull << 20)

/* A run below the peak: its first BELOW_PEAK_RISE operations only allocate; after that there are
 * never more than half as many blocks. A thread may keep so few blocks that it exceeds the limit
 * now and then. */
#define BELOW_PEAK_RISE  150
#define BELOW_PEAK_LOCAL 12

const struct cachemodel_setup cachemodel_places[CACHEMODEL_PLACES] = {
    {.policy = "pytorch"},
    {.policy = "pytorch", .conf = "max_split_size_mb:20"},
    {.policy = "pytorch", .conf = "max_split_size_mb:32,max_non_split_rounding_mb:24"},
    {.policy = "pytorch", .conf = "roundup_power2_divisions:4"},
    {.policy = "pytorch", .conf = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.7"},
    {.policy = "pytorch", .conf = "large_segment_size_mb:40"},
    {.policy = "auto_growth"},
    {.policy = "prealloc"},
    {.policy = "passthrough"},
    {.policy = "pytorch", .linear = true},
    {.policy = "pytorch", .conf = "expandable_segments:True", .page_bytes = 2 * MIB},
    {.policy = "pytorch", .conf = "expandable_segments:True"}, /* a device that cannot map */
    {.policy = "caching", .page_bytes = 2 * MIB},
    {.policy = "caching"},
    {.policy = "caching", .linear = true, .page_bytes = 2 * MIB},
    {.policy = "auto_growth", .conf = "expandable_segments:True", .page_bytes = 2 * MIB},
};

/* The bytes of one operation: its kind, the block, a few flags, the size. */
struct step {
    unsigned what, which, bits, shard, kind;
    uint32_t amount;
};

static unsigned block_seek(const struct cachemodel *model, uint64_t address)
{
    unsigned i = 0;
    while (i < model->count && model->blocks[i].grant.address < address)
        i++;
    return i;
}

static unsigned stream_number(const struct cachemodel *model, uint64_t id)
{
    unsigned i = 0;
    while (i < CACHEMODEL_STREAMS && model->stream_ids[i] != id)
        i++;
    return i;
}

/* ---- allocations ------------------------------------------------------------------------------------------------- */

/* Every boundary of the rules, and the sizes on both sides of it. */
static uint64_t step_size(const struct step *step)
{
    static const uint64_t borders[] = {1,        256,      512,     1024,     4096,      512 * 1024, MIB,
                                       2 * MIB,  4 * MIB,  8 * MIB, 10 * MIB, 20 * MIB,  32 * MIB,   40 * MIB,
                                       64 * MIB, 96 * MIB, 1 * MIB, 2 * MIB,  1280 * 64, 3 * MIB};
    uint64_t amount = step->amount;
    switch (step->bits % 16) {
    case 0:
    case 1:
    case 2:
        return 1 + amount % 2048;
    case 3:
    case 4:
    case 5:
        return 512 * (1 + amount % 64);
    case 6:
    case 7:
        return 1 + amount % MIB;
    case 8:
    case 9:
    case 10:
        return 1 + amount % (256 * 1024);
    case 11:
    case 12:
        return MIB + amount % (9 * MIB);
    case 13:
        return 10 * MIB + amount % (30 * MIB);
    case 14:
        return borders[amount % (sizeof borders / sizeof borders[0])] + (amount >> 8) % 3 - (amount % 20 == 0 ? 0 : 1);
    default:
        return amount % 16 ? 1 + amount % 16384 : (1ull << 60) + amount;
    }
}

/* Counters that an allocation raises at once and a free lowers: their peak is exact at any time. */
static void live_move(struct cachemodel *model, const struct gp_grant *grant, int sign)
{
    model->live_bytes += sign * (int64_t)grant->bytes;
    model->live_requested += sign * (int64_t)grant->requested_bytes;
    const int64_t values[] = {model->count, model->live_bytes, model->live_requested, model->count};
    static const unsigned gauges[] = {GP_GAUGE_ALLOCATION, GP_GAUGE_ALLOCATED_BYTES,
                                      GP_GAUGE_KIND_BYTES + GP_KIND_LINEAR, GP_GAUGE_KIND_LIVE + GP_KIND_LINEAR};
    for (unsigned i = 0; i < sizeof gauges / sizeof gauges[0]; i++)
        if (values[i] > model->peaks[gauges[i]])
            model->peaks[gauges[i]] = values[i];
}

/* Times never go back from one call to the next; within a call only that of the grant comes last. */
static bool time_passes(struct cachemodel *model, uint64_t time_ns, const char *what)
{
    if (!model->setup.full)
        return time_ns == 0 || cachejudge_wrong(model, "%s: a time without a clock", what);
    if (time_ns < model->last_ns)
        return cachejudge_wrong(model, "%s: time goes back", what);
    model->last_ns = time_ns;
    return true;
}

static bool block_add(struct cachemodel *model, const struct gp_request *request, const struct gp_grant *grant,
                      bool unordered)
{
    unsigned i = block_seek(model, grant->address), stream = stream_number(model, request->stream);
    unsigned index = FAKEUSE_ANY;
    if (request->stream != GP_STREAM_ANY)
        index = fakedev_stream_index(&model->dev, request->stream);
    fakeuse_grant(&model->use, grant->address, grant->bytes, index);
    memmove(&model->blocks[i + 1], &model->blocks[i], (model->count - i) * sizeof model->blocks[0]);
    model->blocks[i] = (struct cachemodel_block){.grant = *grant,
                                                 .pool = request->pool,
                                                 .flags = request->flags,
                                                 .unordered = unordered,
                                                 .recorded = stream < CACHEMODEL_STREAMS ? 1u << stream : 0,
                                                 .home = index};
    model->count++;
    model->allocs++;
    live_move(model, grant, 1);
    model->totals[GP_GAUGE_ALLOCATED_BYTES] += (int64_t)grant->bytes;
    model->totals[GP_GAUGE_ALLOCATION]++;
    return !model->dev.faults;
}

static bool alloc_failed(struct cachemodel *model, const struct gp_request *request, uint32_t rc, bool scripted,
                         uint64_t ooms)
{
    bool capturing = model->dev.capturing;
    model->troubled |= scripted || capturing;
    if (rc == GP_BACKEND_OOM && model->listened_oom == ooms && request->bytes <= 1ull << 60)
        return cachejudge_wrong(model, "out of memory without its event");
    if (scripted) {
        model->refused++;
        return rc == GP_BACKEND_OOM || rc == model->dev.fail_code || rc == FAKEDEV_FAILED ||
               cachejudge_wrong(model, "alloc: error %u, the device said %u", rc, model->dev.fail_code);
    }
    if (rc == GP_BACKEND_FORBIDDEN && capturing) {
        model->refused++;
        return true;
    }
    if (rc != GP_BACKEND_OOM)
        return cachejudge_wrong(model, "alloc: error %u out of nowhere", rc);
    model->ooms++;
    return capturing || cachejudge_oom(model, request);
}

static bool step_alloc(struct cachemodel *model, const struct step *step)
{
    unsigned kind = step->kind; /* 0..31: mostly plain */
    struct gp_request request = {.bytes = step_size(step), .shard = step->shard};
    struct gp_grant grant = {0};
    if (model->count == CACHEMODEL_BLOCKS)
        return true;
    request.stream = kind >= 28 ? GP_STREAM_ANY : model->stream_ids[step->which % CACHEMODEL_STREAMS];
    request.flags = kind == 27 ? GP_REQUEST_DEDICATED : kind == 26 ? GP_REQUEST_LINEAR : 0;
    request.flags |= model->setup.linear ? GP_REQUEST_LINEAR : 0;
    unsigned pool = step->which >> 4 & 3;
    if (pool > 0 && pool < CACHEMODEL_POOLS && model->pool_refs[pool])
        request.pool = pool;
    snprintf(model->last, sizeof model->last, "alloc %llu stream %llx pool %llu flags %u",
             (unsigned long long)request.bytes, (unsigned long long)request.stream, (unsigned long long)request.pool,
             request.flags);
    uint64_t failed = model->dev.failed, ooms = model->listened_oom;
    request.tag = model->setup.full ? model->steps : 0;
    bool is_short = model->setup.full && gp_cache_give(model->cache, &request, &grant);
    model->short_allocs += is_short;
    uint32_t rc = is_short ? 0 : gp_cache_alloc(model->cache, &request, &grant);
    if (rc)
        return alloc_failed(model, &request, rc, model->dev.failed != failed, ooms);
    model->troubled |= model->dev.failed != failed || model->dev.capturing;
    if (request.bytes > 1ull << 60)
        return cachejudge_wrong(model, "alloc: more than there is");
    if (grant.tag != request.tag || !time_passes(model, grant.time_ns, "alloc"))
        return cachejudge_wrong(model, "alloc: another tag");
    bool unordered = request.stream == GP_STREAM_ANY || kind >= 24;
    if (!block_add(model, &request, &grant, unordered))
        return true; /* the check will report it */
    if (step->amount >> 30)
        fakeuse_work(&model->use, grant.address,
                     request.stream == GP_STREAM_ANY
                         ? fakedev_stream_index(&model->dev, model->stream_ids[step->which % CACHEMODEL_STREAMS])
                         : fakedev_stream_index(&model->dev, request.stream));
    return cachejudge_grant(model, &request, &grant);
}

/* ---- the life of a block ----------------------------------------------------------------------------------------- */

static enum gp_free_order block_order(const struct cachemodel *model, const struct cachemodel_block *block)
{
    bool any = block->grant.stream == GP_STREAM_ANY;
    if (model->setup.full && (model->steps & 1) && any == block->unordered)
        return GP_FREE_BY_STREAM;
    if (model->setup.full && block->unordered && block->flags & GP_REQUEST_DEDICATED)
        return GP_FREE_RETURN;
    return block->unordered ? GP_FREE_UNORDERED : GP_FREE_ORDERED;
}

static bool block_release(struct cachemodel *model, unsigned i, unsigned shard)
{
    struct cachemodel_block block = model->blocks[i];
    struct gp_grant given = {0};
    enum gp_free_order order = block_order(model, &block);
    uint64_t failed = model->dev.failed;
    fakeuse_release(&model->use, block.grant.address, block.unordered);
    memmove(&model->blocks[i], &model->blocks[i + 1], (model->count - i - 1) * sizeof model->blocks[0]);
    model->count--;
    model->frees++;
    live_move(model, &block.grant, -1);
    model->troubled |= model->dev.capturing;
    bool is_short = model->setup.full && gp_cache_take(model->cache, block.grant.address, order, shard, &given);
    model->short_frees += is_short;
    if (model->setup.alone) {
        gp_cache_release_block(model->cache, block.grant.block, order, shard);
        given = block.grant;
    } else if (!is_short && !gp_cache_release(model->cache, block.grant.address, order, shard, &given))
        return cachejudge_wrong(model, "release: does not know %#llx", (unsigned long long)block.grant.address);
    if (!model->setup.alone && !time_passes(model, given.time_ns, "release"))
        return false;
    if (order == GP_FREE_RETURN && !block.pool && !model->dev.capturing && model->dev.failed == failed &&
        fakedev_holds_any(&model->dev, block.grant.address, block.grant.bytes))
        return cachejudge_wrong(model, "release: a block of its own did not go back at once");
    if (block.orphan)
        given.stream = block.grant.stream;
    given.time_ns = block.grant.time_ns; /* each has its own */
    if (memcmp(&given, &block.grant, sizeof given) != 0)
        return cachejudge_wrong(model, "release: gave up something else");
    return true;
}

static bool step_free(struct cachemodel *model, const struct step *step)
{
    if (model->count == 0)
        return true;
    unsigned i = (step->amount ^ step->which << 3) % model->count;
    snprintf(model->last, sizeof model->last, "free %#llx + %llu%s", (unsigned long long)model->blocks[i].grant.address,
             (unsigned long long)model->blocks[i].grant.bytes, model->blocks[i].unordered ? " unordered" : "");
    return block_release(model, i, step->shard);
}

/* Frees half of all blocks: far below the peak a cache may take its short paths. */
static bool step_ebb(struct cachemodel *model, const struct step *step)
{
    snprintf(model->last, sizeof model->last, "ebb");
    for (unsigned i = model->count / 2; i-- > 0;)
        if (!block_release(model, (i * 2 + step->which % 2) % model->count, (step->shard + i) % 5))
            return false;
    return true;
}

/* Submits work on a stream that may use the block: its own, a recorded one, or any if the free waits for all. */
static bool step_work(struct cachemodel *model, const struct step *step)
{
    if (model->count == 0)
        return true;
    struct cachemodel_block *block = &model->blocks[step->amount % model->count];
    unsigned stream = step->which % CACHEMODEL_STREAMS;
    unsigned index = fakedev_stream_index(&model->dev, model->stream_ids[stream]);
    bool own = index == block->home;
    if (own || block->unordered)
        fakeuse_work(&model->use, block->grant.address, index);
    return true;
}

static bool step_record(struct cachemodel *model, const struct step *step)
{
    if (model->count == 0)
        return true;
    struct cachemodel_block *block = &model->blocks[step->amount % model->count];
    unsigned stream = step->which % CACHEMODEL_STREAMS;
    unsigned index = fakedev_stream_index(&model->dev, model->stream_ids[stream]);
    snprintf(model->last, sizeof model->last, "record_stream %#llx on %llx", (unsigned long long)block->grant.address,
             (unsigned long long)model->stream_ids[stream]);
    /* The number of a destroyed stream may belong to a new stream now; the cache cannot tell the two apart. */
    if (block->grant.stream == model->stream_ids[stream] && block->home != index)
        return true;
    if (!gp_cache_record_stream(model->cache, block->grant.address, model->stream_ids[stream]))
        return cachejudge_wrong(model, "record_stream: does not know %#llx", (unsigned long long)block->grant.address);
    fakeuse_work(&model->use, block->grant.address, index);
    return true;
}

static bool step_unknown(struct cachemodel *model, const struct step *step)
{
    struct gp_grant grant;
    uint64_t base, bytes, address = FAKEDEV_BASE + FAKEDEV_ARENA + step->amount;
    bool dedicated;
    snprintf(model->last, sizeof model->last, "unknown pointers");
    if (step->which % 2 && model->count) {
        struct gp_grant *live = &model->blocks[step->amount % model->count].grant;
        address = live->address + live->bytes / 2; /* an address inside a block cannot be freed */
    } else if (gp_cache_owns(model->cache, address) || gp_cache_find(model->cache, address, &grant) ||
               gp_cache_segment_of(model->cache, address, &base, &bytes, &dedicated))
        return cachejudge_wrong(model, "knows memory that is not its own");
    if (gp_cache_release(model->cache, address, GP_FREE_ORDERED, step->shard, NULL) ||
        gp_cache_record_stream(model->cache, step->which % 2 ? FAKEDEV_BASE - 512 : address, model->stream_ids[0]))
        return cachejudge_wrong(model, "frees or records what does not begin a block");
    return true;
}

/* ---- time, streams, pools ---------------------------------------------------------------------------------------- */

static bool step_time(struct cachemodel *model, const struct step *step)
{
    unsigned index = fakedev_stream_index(&model->dev, model->stream_ids[step->which % CACHEMODEL_STREAMS]);
    uint64_t done = model->dev.streams[index].completed;
    snprintf(model->last, sizeof model->last, "work completes");
    fakedev_complete(&model->dev, index, step->bits % 4 ? done + 1 + step->amount % 8 : UINT64_MAX);
    return true;
}

static bool step_synchronized(struct cachemodel *model)
{
    snprintf(model->last, sizeof model->last, "synchronized");
    if (model->dev.capturing) /* a program cannot synchronise the device now */
        return true;
    fakedev_complete_all(&model->dev);
    return true;
}

static bool step_stream_gone(struct cachemodel *model, const struct step *step)
{
    unsigned stream = step->which % CACHEMODEL_STREAMS;
    uint64_t id = model->stream_ids[stream];
    snprintf(model->last, sizeof model->last, "stream %llx is gone", (unsigned long long)id);
    if (model->dev.stream_count == FAKEDEV_STREAMS)
        return true;
    for (unsigned i = model->count; i-- > 0;)
        if (model->blocks[i].recorded >> stream & 1 && !model->setup.gone_live && !block_release(model, i, step->shard))
            return false;
    for (unsigned i = 0; i < model->count; i++)
        model->blocks[i].orphan |= model->blocks[i].grant.stream == id;
    gp_cache_stream_gone(model->cache, id);
    fakedev_stream_close(&model->dev, id);
    if (step->bits & 1) /* another number; otherwise the same one again, as drivers often do */
        model->stream_ids[stream] = 0x55d000000000ull + model->dev.stream_count * 0x400;
    fakedev_stream_open(&model->dev, model->stream_ids[stream]);
    return true;
}

static bool step_pool(struct cachemodel *model, const struct step *step)
{
    unsigned pool = 1 + step->which % (CACHEMODEL_POOLS - 1);
    snprintf(model->last, sizeof model->last, "pool %u %s", pool, step->bits & 1 ? "begin" : "release");
    if (step->bits & 1) {
        model->pool_refs[pool]++;
        return gp_cache_pool_begin(model->cache, pool) == 0 || cachejudge_wrong(model, "refused");
    }
    int rc = gp_cache_pool_release(model->cache, pool);
    if (model->pool_refs[pool] == 0) /* the cache keeps the pool while blocks of it are live */
        return rc == -ENOENT || rc == 0 || cachejudge_wrong(model, "error %d", rc);
    model->pool_refs[pool]--;
    return rc == 0 || cachejudge_wrong(model, "error %d", rc);
}

/* ---- size -------------------------------------------------------------------------------------------------------- */

static bool step_trim(struct cachemodel *model, const struct step *step)
{
    struct gp_cache_numbers numbers;
    uint64_t keep = step->bits % 4 ? 0 : step->amount % (64 * MIB), held = model->dev.held;
    bool forbidden = model->dev.capturing;
    uint64_t failed = model->dev.failed;
    snprintf(model->last, sizeof model->last, "trim to %llu", (unsigned long long)keep);
    model->troubled |= forbidden;
    uint64_t given = gp_cache_trim(model->cache, keep);
    if (given != held - model->dev.held)
        return cachejudge_wrong(model, "said %llu bytes, gave %llu", (unsigned long long)given,
                                (unsigned long long)(held - model->dev.held));
    gp_cache_numbers(model->cache, &numbers);
    if (!forbidden && failed == model->dev.failed && numbers.releasable_bytes && numbers.idle_bytes > keep)
        return cachejudge_wrong(model, "%llu bytes idle, %llu of them releasable",
                                (unsigned long long)numbers.idle_bytes, (unsigned long long)numbers.releasable_bytes);
    return true;
}

static bool step_limit(struct cachemodel *model, const struct step *step)
{
    model->limit = step->bits % 4 ? 0 : 16 * MIB + step->amount % model->setup.capacity;
    snprintf(model->last, sizeof model->last, "limit %llu", (unsigned long long)model->limit);
    gp_cache_set_limit(model->cache, model->limit);
    return gp_cache_limit(model->cache) == model->limit || cachejudge_wrong(model, "is another");
}

static bool step_forget(struct cachemodel *model)
{
    struct gp_cache_numbers numbers;
    uint64_t calls = model->dev.call_count;
    snprintf(model->last, sizeof model->last, "forget");
    model->count = 0;
    model->live_bytes = model->live_requested = 0;
    fakeuse_forget(&model->use);
    fakedev_die(&model->dev);
    model->is_ending = true;
    gp_cache_forget(model->cache);
    model->is_ending = false;
    if (model->listened_bytes)
        return cachejudge_wrong(model, "did not report the end of all segments");
    gp_cache_numbers(model->cache, &numbers);
    if (model->dev.call_count != calls)
        return cachejudge_wrong(model, "called a dead device");
    if (numbers.reserved_bytes || numbers.allocated_bytes || numbers.waiting_bytes)
        return cachejudge_wrong(model, "remembers");
    return true;
}

static bool step_trouble(struct cachemodel *model, const struct step *step)
{
    static const uint32_t codes[] = {FAKEDEV_FAILED, GP_BACKEND_OOM, GP_BACKEND_INVALID, GP_BACKEND_FORBIDDEN};
    static const enum fakedev_call kinds[] = {FAKEDEV_ALLOCATE, FAKEDEV_RESERVE, FAKEDEV_CREATE, FAKEDEV_MAP,
                                              FAKEDEV_RECORD,   FAKEDEV_QUERY,   FAKEDEV_WAIT,   FAKEDEV_MEMORY};
    if (model->setup.captures && step->bits % 2)
        __atomic_store_n(&model->dev.capturing, !model->dev.capturing && step->bits % 4 == 1, __ATOMIC_RELEASE);
    if (model->setup.failures && step->bits % 2 == 0) {
        enum fakedev_call kind = kinds[step->which % 8];
        model->dev.fail_code = codes[step->amount % 4];
        model->dev.fail_kind_at[kind] = model->dev.calls[kind] + 1 + (step->amount >> 4) % 4;
        model->troubled = true;
    }
    return true;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* The cache holds no lock here unless it ends, so its functions may be called. */
static void listen(void *listener, const struct gp_cache_event *event)
{
    struct cachemodel *model = listener;
    struct gp_cache_numbers numbers;
    const uint64_t words[] = {event->type,   event->address,         event->bytes,
                              event->stream, event->requested_bytes, event->tag};
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
        model->listened_hash = (model->listened_hash ^ words[i]) * 0x100000001b3ull;
    if (event->type == GP_CACHE_SEGMENT_ALLOC || event->type == GP_CACHE_SEGMENT_MAP)
        model->listened_bytes += (int64_t)event->bytes;
    else if (event->type == GP_CACHE_SEGMENT_FREE || event->type == GP_CACHE_SEGMENT_UNMAP)
        model->listened_bytes -= (int64_t)event->bytes;
    model->listened_oom += event->type == GP_CACHE_OOM;
    model->listened_retry += event->type == GP_CACHE_RETRY;
    model->listened_sync += event->type == GP_CACHE_SYNC_ALL;
    if (model->cache && !model->is_ending)
        gp_cache_numbers(model->cache, &numbers);
}

int cachemodel_init(struct cachemodel *model, const struct cachemodel_setup *setup)
{
    static const uint64_t ids[CACHEMODEL_STREAMS] = {0, 2, 7, 0x55d0c0ffee00ull};
    const struct gp_policy *policy = gp_policy_find(setup->policy);
    char why[256];
    memset(model, 0, sizeof *model);
    model->setup = *setup;
    model->limit = setup->limit_bytes;
    if (!policy)
        return -1;
    model->policy = *policy;
    if (setup->conf && gp_policy_configure(&model->policy, setup->conf, why, sizeof why) != 0)
        return -1;
    if (setup->below_peak && model->policy.thread_blocks)
        model->policy.thread_blocks = BELOW_PEAK_LOCAL;
    if (fakedev_init(&model->dev, setup->capacity, setup->page_bytes) != 0 ||
        gp_counter_new(&model->gauges, GP_GAUGES, 8) != 0)
        abort();
    fakeuse_init(&model->use, &model->dev);
    for (unsigned i = 0; i < CACHEMODEL_STREAMS; i++)
        fakedev_stream_open(&model->dev, model->stream_ids[i] = ids[i]);
    struct gp_cache_setup cache = {.policy = &model->policy,
                                   .backend = fakedev_backend(&model->dev),
                                   .gauges = model->gauges,
                                   .limit_bytes = setup->limit_bytes,
                                   .times = setup->full,
                                   .alone = setup->alone,
                                   .listener = model,
                                   .listen = listen};
    if (gp_cache_new(&model->cache, &cache) != 0)
        abort();
    return 0;
}

static bool step_below_peak(struct cachemodel *model, struct step step)
{
    step.kind = 0;
    step.which %= 2;
    step.bits = step.bits & ~15u; /* up to 2 KiB */
    if (model->steps < BELOW_PEAK_RISE)
        return step_alloc(model, &step);
    if (step.what < 30 && model->count < BELOW_PEAK_RISE / 2)
        return step_alloc(model, &step);
    if (step.what < 60)
        return step_free(model, &step);
    if (step.what == 60)
        return step_record(model, &step);
    if (step.what == 61)
        return step.amount % 32 ? step_time(model, &step) : step_trim(model, &step);
    if (step.what == 62)
        return step.amount % 16 ? step_work(model, &step) : step_stream_gone(model, &step);
    return step.amount % 8 ? step_time(model, &step) : step_ebb(model, &step);
}

static bool step_do(struct cachemodel *model, const struct step *step)
{
    if (model->setup.below_peak)
        return step_below_peak(model, *step);
    if (step->what < 26)
        return step_alloc(model, step);
    if (step->what < 48)
        return step_free(model, step);
    if (step->what < 52)
        return step_work(model, step);
    if (step->what < 55)
        return step_record(model, step);
    if (step->what < 57)
        return step_time(model, step);
    switch (step->what) {
    case 57:
        return step_synchronized(model);
    case 58:
        return step_trim(model, step);
    case 59:
        return step_pool(model, step);
    case 60:
        return step->bits % 4 == 0 ? step_stream_gone(model, step) : step_unknown(model, step);
    case 61:
        return step_limit(model, step);
    case 62:
        return step_trouble(model, step);
    default:
        if (step->bits % 64 == 9 && !model->dev.capturing)
            return step_forget(model);
        return step->bits % 4 == 1 ? step_ebb(model, step) : step_time(model, step);
    }
}

bool cachemodel_step(struct cachemodel *model, const uint8_t bytes[CACHEMODEL_STEP])
{
    struct step step = {.what = bytes[0] % 64,
                        .which = bytes[1],
                        .bits = bytes[2],
                        .shard = bytes[3] % 5,
                        .kind = bytes[3] >> 3,
                        .amount =
                            bytes[4] | (uint32_t)bytes[5] << 8 | (uint32_t)bytes[6] << 16 | (uint32_t)bytes[7] << 24};
    model->steps++;
    unsigned every = model->setup.check_every ? model->setup.check_every : 1;
    return step_do(model, &step) && (model->steps % every || cachemodel_check(model));
}

static bool fini_look(struct cachemodel *model, bool free_blocks)
{
    struct gp_gauge_value values[GP_GAUGES];
    char left[160];
    snprintf(model->last, sizeof model->last, "the end");
    if (__atomic_load_n(&model->dev.faults, __ATOMIC_ACQUIRE))
        return cachejudge_wrong(model, "device: %s", model->dev.fault);
    if (fakedev_left(&model->dev, true, left, sizeof left))
        return cachejudge_wrong(model, "the device still holds %s", left);
    gp_counter_snapshot(model->gauges, values);
    for (unsigned g = 0; g < GP_GAUGES; g++)
        if (values[g].current && (free_blocks || g == GP_GAUGE_RESERVED_BYTES))
            return cachejudge_wrong(model, "gauge %u is %lld", g, (long long)values[g].current);
    return true;
}

static bool fini_empty(struct cachemodel *model)
{
    while (model->count)
        if (!block_release(model, model->count - 1, model->count % 5) || !cachemodel_check(model))
            return false;
    for (unsigned pool = 1; pool < CACHEMODEL_POOLS; pool++)
        for (; model->pool_refs[pool]; model->pool_refs[pool]--)
            if (gp_cache_pool_release(model->cache, pool) != 0)
                return cachejudge_wrong(model, "pool %u cannot be released", pool);
    gp_cache_trim(model->cache, 0);
    if (model->dev.held)
        return cachejudge_wrong(model, "%llu bytes stay after everything was freed and trimmed",
                                (unsigned long long)model->dev.held);
    return cachemodel_check(model);
}

bool cachemodel_fini(struct cachemodel *model, bool free_blocks)
{
    snprintf(model->last, sizeof model->last, "the end");
    __atomic_store_n(&model->dev.capturing, false, __ATOMIC_RELEASE);
    memset(model->dev.fail_kind_at, 0, sizeof model->dev.fail_kind_at);
    model->dev.fail_at = 0;
    bool right = !model->why[0];
    if (right && free_blocks)
        right = fini_empty(model);
    for (unsigned i = 0; i < model->count && right; i++)
        fakeuse_release(&model->use, model->blocks[i].grant.address, true);
    struct gp_cache *cache = model->cache;
    model->cache = NULL; /* the listener must not call the cache now */
    if (right)
        gp_cache_free(cache); /* a broken cache is not ended: that could hang */
    right = right && fini_look(model, free_blocks);
    gp_counter_free(model->gauges);
    fakeuse_fini(&model->use);
    fakedev_fini(&model->dev);
    return right;
}
