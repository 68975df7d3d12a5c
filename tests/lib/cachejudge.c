/* SPDX-License-Identifier: MIT
 *
 * cachejudge.c: checks after an operation that the cache, the model and the fake device agree.
 * cachemodel.c calls it after each step. It changes nothing in the cache.
 */
#include "lib/cachejudge.h"
#include "lib/cachecheck.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cachejudge_wrong(struct cachemodel *model, const char *format, ...)
{
    if (model->why[0])
        return false;
    int n = snprintf(model->why, sizeof model->why, "step %llu (%s): ", (unsigned long long)model->steps, model->last);
    va_list args;
    va_start(args, format);
    vsnprintf(model->why + n, sizeof model->why - (size_t)n, format, args);
    va_end(args);
    return false;
}

/* ---- one answer ------------------------------------------------------------------------------------------------- */

bool cachejudge_grant(struct cachemodel *model, const struct gp_request *request, const struct gp_grant *grant)
{
    const struct gp_policy *policy = &model->policy;
    uint64_t want = gp_policy_round(policy, request->bytes), over = grant->bytes - want, base, bytes;
    uint64_t align = policy->granule_bytes < 512 ? policy->granule_bytes : 512;
    struct gp_grant found;
    bool dedicated;
    if (grant->requested_bytes != request->bytes || grant->stream != request->stream)
        return cachejudge_wrong(model, "grant: another request's");
    if (grant->bytes < want || grant->bytes % policy->granule_bytes || grant->address % align)
        return cachejudge_wrong(model, "grant: %#llx + %llu for %llu", (unsigned long long)grant->address,
                                (unsigned long long)grant->bytes, (unsigned long long)request->bytes);
    if (!fakedev_holds(&model->dev, grant->address, grant->bytes))
        return cachejudge_wrong(model, "grant: no memory at %#llx", (unsigned long long)grant->address);
    if (!gp_cache_segment_of(model->cache, grant->address, &base, &bytes, &dedicated) || base > grant->address ||
        base + bytes < grant->address + grant->bytes)
        return cachejudge_wrong(model, "segment_of: does not know %#llx", (unsigned long long)grant->address);
    bool in_linear = fakedev_linear(&model->dev, grant->address, grant->bytes, NULL);
    if ((request->flags & GP_REQUEST_LINEAR) && !in_linear)
        return cachejudge_wrong(model, "grant: %#llx is mapped, a driver allocation was asked for",
                                (unsigned long long)grant->address);
    if (dedicated != !!(request->flags & GP_REQUEST_DEDICATED) && policy->growable)
        return cachejudge_wrong(model, "segment_of: dedicated %d, flags %u", dedicated, request->flags);
    if ((request->flags & GP_REQUEST_DEDICATED) && (base != grant->address || bytes != grant->bytes || !dedicated))
        return cachejudge_wrong(model, "grant: %#llx is not a driver allocation of its own",
                                (unsigned long long)grant->address);
    bool small = gp_policy_is_small(policy, want);
    bool slack = policy->thread_slack_shift && over <= want >> policy->thread_slack_shift;
    bool near = (request->flags & GP_REQUEST_DEDICATED) &&
                (over <= grant->bytes / 8 || over < policy->segment_round_bytes * 9 / 8);
    if (over && !slack && !near && gp_policy_splits(policy, grant->bytes, want, small, !in_linear))
        return cachejudge_wrong(model, "grant: %llu bytes for %llu, the rest should be split off",
                                (unsigned long long)grant->bytes, (unsigned long long)want);
    bool is_known = gp_cache_find(model->cache, grant->address + request->bytes / 2, &found);
    found.time_ns = grant->time_ns; /* only of a grant */
    if (!is_known || memcmp(&found, grant, sizeof found) != 0 ||
        !gp_cache_owns(model->cache, grant->address + grant->bytes - 1))
        return cachejudge_wrong(model, "find: does not know the inside of %#llx", (unsigned long long)grant->address);
    return true;
}

/* Checks that a refusal was right: the cache has released all memory that it could, and the rest leaves no
 * room for a segment. */
bool cachejudge_oom(struct cachemodel *model, const struct gp_request *request)
{
    struct gp_cache_numbers numbers;
    const struct gp_policy *policy = &model->policy;
    uint64_t want = gp_policy_round(policy, request->bytes), limit = model->dev.capacity;
    if (request->bytes > 1ull << 60)
        return true;
    bool growable = policy->growable && model->dev.page_bytes && !request->flags;
    uint64_t page = growable ? model->dev.page_bytes : 1;
    uint64_t need = growable ? (want + page - 1) / page * page : gp_policy_segment(policy, want);
    gp_cache_numbers(model->cache, &numbers);
    if (model->limit && model->limit < limit)
        limit = model->limit;
    if (policy->memory_fraction > 0 && (double)limit > policy->memory_fraction * (double)model->dev.capacity)
        limit = (uint64_t)(policy->memory_fraction * (double)model->dev.capacity);
    if (numbers.releasable_bytes)
        return cachejudge_wrong(model, "out of memory with %llu releasable bytes",
                                (unsigned long long)numbers.releasable_bytes);
    if (numbers.waiting_bytes)
        return cachejudge_wrong(model, "out of memory with %llu waiting bytes",
                                (unsigned long long)numbers.waiting_bytes);
    if (need <= limit && model->dev.held <= limit - need)
        return cachejudge_wrong(model, "out of memory for %llu: %llu held, limit %llu", (unsigned long long)need,
                                (unsigned long long)model->dev.held, (unsigned long long)limit);
    return true;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

struct walk {
    struct cachemodel *model;
    struct cachemodel_sums *sums;
    struct gp_cache_segment segment;
    enum gp_cache_state before; /* of the block before, in the same segment */
    uint64_t at;                /* where the next block must start; the segment is covered at its end */
    uint64_t last_end;
    unsigned next; /* of the model's blocks */
    uint64_t live, idle;
};

static void sum_pools(struct walk *walk, unsigned gauge, bool small, uint64_t amount)
{
    walk->sums->gauges[gauge + GP_POOL_ALL] += (int64_t)amount;
    walk->sums->gauges[gauge + (small ? GP_POOL_SMALL : GP_POOL_LARGE)] += (int64_t)amount;
}

/* A policy with a single pool cannot report a block's pool, so its blocks count by their size, as plain driver
 * allocations do. */
static bool block_is_small(const struct walk *walk, const struct gp_cache_block *block)
{
    return walk->model->policy.small_bytes ? walk->segment.small : block->bytes <= 1u << 20;
}

static bool segment_end(struct walk *walk)
{
    const struct gp_cache_segment *segment = &walk->segment;
    if (segment->bytes == 0)
        return true;
    if (walk->idle && !segment->growable)
        walk->sums->pinning += walk->live;
    if (walk->at != segment->address + segment->bytes)
        return cachejudge_wrong(walk->model, "walk: segment %#llx + %#llx is covered up to %#llx",
                                (unsigned long long)segment->address, (unsigned long long)segment->bytes,
                                (unsigned long long)walk->at);
    return true;
}

static bool walk_segment(void *arg, const struct gp_cache_segment *segment)
{
    struct walk *walk = arg;
    struct cachemodel *model = walk->model;
    struct fakedev_range range;
    if (!segment_end(walk))
        return false;
    if (segment->bytes == 0 || segment->address < walk->last_end)
        return cachejudge_wrong(model, "walk: segments empty or out of order at %#llx",
                                (unsigned long long)segment->address);
    walk->segment = *segment;
    walk->before = GP_CACHE_LIVE;
    walk->at = segment->address;
    walk->last_end = segment->address + segment->bytes;
    walk->live = walk->idle = 0;
    if (segment->growable) {
        walk->sums->growable = true;
        return true;
    }
    if (!fakedev_linear(&model->dev, segment->address, segment->bytes, &range) || range.address != segment->address ||
        range.bytes != segment->bytes)
        return cachejudge_wrong(model, "walk: segment %#llx + %#llx is not a driver allocation",
                                (unsigned long long)segment->address, (unsigned long long)segment->bytes);
    sum_pools(walk, GP_GAUGE_SEGMENT, segment->small, 1);
    walk->sums->gauges[GP_GAUGE_OVERSIZE_SEGMENTS] += gp_policy_is_oversize(&model->policy, segment->bytes);
    return true;
}

static void sum_active(struct walk *walk, const struct gp_cache_block *block)
{
    bool small = block_is_small(walk, block);
    sum_pools(walk, GP_GAUGE_ACTIVE, small, 1);
    sum_pools(walk, GP_GAUGE_ACTIVE_BYTES, small, block->bytes);
    sum_pools(walk, GP_GAUGE_REQUESTED_BYTES, small, block->requested_bytes);
}

static bool walk_live(struct walk *walk, const struct gp_cache_block *block)
{
    struct cachemodel *model = walk->model;
    struct cachemodel_sums *sums = walk->sums;
    bool small = block_is_small(walk, block);
    const struct cachemodel_block *mine = &model->blocks[walk->next];
    if (walk->next == model->count || mine->grant.address != block->address || mine->grant.bytes != block->bytes ||
        mine->grant.requested_bytes != block->requested_bytes || (!mine->orphan && mine->grant.stream != block->stream))
        return cachejudge_wrong(model, "walk: live block %#llx + %#llx is not the next of mine",
                                (unsigned long long)block->address, (unsigned long long)block->bytes);
    if (mine->pool != walk->segment.pool)
        return cachejudge_wrong(model, "walk: live block %#llx lies in pool %llu, not %llu",
                                (unsigned long long)block->address, (unsigned long long)walk->segment.pool,
                                (unsigned long long)mine->pool);
    walk->next++;
    walk->live++;
    sums->live += block->bytes;
    sum_pools(walk, GP_GAUGE_ALLOCATION, small, 1);
    sum_pools(walk, GP_GAUGE_ALLOCATED_BYTES, small, block->bytes);
    sum_active(walk, block);
    sums->gauges[GP_GAUGE_KIND_BYTES + GP_KIND_LINEAR] += (int64_t)block->requested_bytes;
    sums->gauges[GP_GAUGE_KIND_LIVE + GP_KIND_LINEAR]++;
    sums->gauges[GP_GAUGE_OVERSIZE_ALLOCATIONS] += gp_policy_is_oversize(&model->policy, block->bytes);
    return true;
}

static bool walk_idle(struct walk *walk, const struct gp_cache_block *block)
{
    struct cachemodel *model = walk->model;
    struct cachemodel_sums *sums = walk->sums;
    bool small = block_is_small(walk, block);
    if (walk->before == GP_CACHE_IDLE && model->policy.thread_blocks == 0 && !walk->segment.growable)
        return cachejudge_wrong(model, "walk: two idle neighbours at %#llx", (unsigned long long)block->address);
    walk->idle++;
    sums->idle += block->bytes;
    sums->idle_pieces++;
    sums->largest_idle = block->bytes > sums->largest_idle ? block->bytes : sums->largest_idle;
    if (!walk->segment.growable && block->bytes < walk->segment.bytes) {
        sum_pools(walk, GP_GAUGE_INACTIVE_SPLIT, small, 1);
        sum_pools(walk, GP_GAUGE_INACTIVE_SPLIT_BYTES, small, block->bytes);
    }
    return true;
}

static bool walk_block(void *arg, const struct gp_cache_block *block)
{
    struct walk *walk = arg;
    struct cachemodel *model = walk->model;
    bool right = true;
    if (block->bytes == 0 || block->address != walk->at || block->bytes > walk->last_end - walk->at)
        return cachejudge_wrong(model, "walk: block %#llx + %#llx where %#llx should begin",
                                (unsigned long long)block->address, (unsigned long long)block->bytes,
                                (unsigned long long)walk->at);
    walk->at += block->bytes;
    if (block->state == GP_CACHE_UNMAPPED) {
        walk->before = block->state;
        return !fakedev_holds_any(&model->dev, block->address, block->bytes) ||
               cachejudge_wrong(model, "walk: memory at %#llx is said to be unmapped",
                                (unsigned long long)block->address);
    }
    if (!fakedev_holds(&model->dev, block->address, block->bytes))
        return cachejudge_wrong(model, "walk: no memory at %#llx + %#llx", (unsigned long long)block->address,
                                (unsigned long long)block->bytes);
    walk->sums->reserved += block->bytes;
    sum_pools(walk, GP_GAUGE_RESERVED_BYTES, walk->segment.small, block->bytes);
    if (block->state == GP_CACHE_LIVE)
        right = walk_live(walk, block);
    else if (block->state == GP_CACHE_IDLE)
        right = walk_idle(walk, block);
    else {
        sum_active(walk, block);
        walk->live++; /* it pins the segment as a live block does */
        walk->sums->waiting += block->bytes;
        walk->sums->waiting_pieces++;
    }
    walk->before = block->state;
    return right;
}

static bool judge_walk(struct cachemodel *model)
{
    struct walk walk = {.model = model, .sums = &model->sums};
    memset(&model->sums, 0, sizeof model->sums);
    gp_cache_walk(model->cache, &walk, walk_segment, walk_block);
    if (model->why[0] || !segment_end(&walk))
        return false;
    if (walk.next != model->count)
        return cachejudge_wrong(model, "walk: %u live blocks, mine are %u", walk.next, model->count);
    return true;
}

/* ---- gauges ------------------------------------------------------------------------------------------------------ */

static const char *gauge_name(unsigned gauge)
{
    static const char *const names[] = {"allocation",     "allocated_bytes", "active",
                                        "active_bytes",   "requested",       "segment",
                                        "reserved_bytes", "inactive_split",  "inactive_split_bytes"};
    if (gauge < GP_GAUGE_OVERSIZE_ALLOCATIONS)
        return names[gauge / GP_POOLS];
    return gauge == GP_GAUGE_OVERSIZE_ALLOCATIONS ? "oversize_allocations"
           : gauge == GP_GAUGE_OVERSIZE_SEGMENTS  ? "oversize_segments"
                                                  : "kind";
}

/* An allocation only raises these gauges and a free only lowers them, so their peak is the greatest value after
 * any step. */
static bool gauge_is_plain(unsigned gauge)
{
    return gauge < GP_GAUGE_ACTIVE || gauge == GP_GAUGE_OVERSIZE_ALLOCATIONS ||
           gauge == GP_GAUGE_KIND_BYTES + GP_KIND_LINEAR || gauge == GP_GAUGE_KIND_LIVE + GP_KIND_LINEAR;
}

/* The model knows the greatest value of these between checks too. */
static bool gauge_is_running(unsigned gauge)
{
    return gauge == GP_GAUGE_ALLOCATION || gauge == GP_GAUGE_ALLOCATED_BYTES ||
           gauge == GP_GAUGE_KIND_BYTES + GP_KIND_LINEAR || gauge == GP_GAUGE_KIND_LIVE + GP_KIND_LINEAR;
}

static bool gauge_is_judged(unsigned gauge)
{
    return gauge <= GP_GAUGE_OVERSIZE_SEGMENTS || gauge_is_plain(gauge);
}

static bool judge_gauge(struct cachemodel *model, unsigned gauge, const struct gp_gauge_value *value)
{
    const char *name = gauge_name(gauge);
    long long current = value->current, sum = model->sums.gauges[gauge];
    if (current != sum)
        return cachejudge_wrong(model, "gauge %u (%s): %lld, the blocks make %lld", gauge, name, current, sum);
    model->peaks[gauge] = model->peaks[gauge] > current ? model->peaks[gauge] : current;
    if (value->peak < model->peaks[gauge])
        return cachejudge_wrong(model, "gauge %u (%s): peak %lld, but it was %lld", gauge, name, (long long)value->peak,
                                (long long)model->peaks[gauge]);
    if ((model->setup.check_every <= 1 ? gauge_is_plain(gauge) : gauge_is_running(gauge)) &&
        value->peak != model->peaks[gauge])
        return cachejudge_wrong(model, "gauge %u (%s): peak %lld, but it was %lld at most", gauge, name,
                                (long long)value->peak, (long long)model->peaks[gauge]);
    if (value->allocated - value->freed != current)
        return cachejudge_wrong(model, "gauge %u (%s): %lld allocated less %lld freed is not %lld", gauge, name,
                                (long long)value->allocated, (long long)value->freed, current);
    return true;
}

static bool judge_gauges(struct cachemodel *model)
{
    struct gp_gauge_value values[GP_GAUGES];
    gp_counter_snapshot(model->gauges, values);
    for (unsigned g = 0; g < GP_GAUGES; g++)
        if (gauge_is_judged(g) && !judge_gauge(model, g, &values[g]))
            return false;
    const struct gp_gauge_value *allocated = &values[GP_GAUGE_ALLOCATED_BYTES], *count = &values[GP_GAUGE_ALLOCATION];
    if (allocated->allocated != model->totals[GP_GAUGE_ALLOCATED_BYTES] ||
        count->allocated != model->totals[GP_GAUGE_ALLOCATION])
        return cachejudge_wrong(model, "totals: %lld bytes in %lld allocations, I was given %lld in %lld",
                                (long long)allocated->allocated, (long long)count->allocated,
                                (long long)model->totals[GP_GAUGE_ALLOCATED_BYTES],
                                (long long)model->totals[GP_GAUGE_ALLOCATION]);
    const struct gp_gauge_value *reserved = &values[GP_GAUGE_RESERVED_BYTES];
    /* A growth that fails half-way releases handles that never counted as reserved. */
    if (!model->troubled && !model->policy.growable && (uint64_t)reserved->peak != model->dev.held_peak)
        return cachejudge_wrong(model, "reserved: peak %lld, the device gave %llu at most", (long long)reserved->peak,
                                (unsigned long long)model->dev.held_peak);
    if ((uint64_t)reserved->peak > model->dev.held_peak)
        return cachejudge_wrong(model, "reserved: peak %lld, the device never gave more than %llu",
                                (long long)reserved->peak, (unsigned long long)model->dev.held_peak);
    return true;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static bool number_is(struct cachemodel *model, const char *name, uint64_t said, uint64_t right)
{
    return said == right || cachejudge_wrong(model, "numbers: %s %llu, should be %llu", name, (unsigned long long)said,
                                             (unsigned long long)right);
}

static bool judge_numbers(struct cachemodel *model)
{
    const struct cachemodel_sums *sums = &model->sums;
    struct gp_cache_numbers numbers;
    gp_cache_numbers(model->cache, &numbers);
    if (!number_is(model, "reserved, by the device", sums->reserved, model->dev.held) ||
        !number_is(model, "reserved", numbers.reserved_bytes, sums->reserved) ||
        !number_is(model, "allocated", numbers.allocated_bytes, sums->live) ||
        !number_is(model, "waiting", numbers.waiting_bytes, sums->waiting) ||
        !number_is(model, "idle", numbers.idle_bytes, sums->idle) ||
        !number_is(model, "largest idle", numbers.largest_idle_bytes, sums->largest_idle) ||
        !number_is(model, "idle pieces", numbers.idle_pieces, sums->idle_pieces) ||
        !number_is(model, "retries, by events", numbers.retries, model->listened_retry) ||
        !number_is(model, "syncs, by events", numbers.syncs, model->listened_sync) ||
        !number_is(model, "reserved, by events", (uint64_t)model->listened_bytes, sums->reserved))
        return false;
    if (!sums->growable && sums->waiting == 0 && !number_is(model, "pinning", numbers.pinning_blocks, sums->pinning))
        return false;
    if (numbers.releasable_bytes > numbers.idle_bytes)
        return cachejudge_wrong(model, "numbers: %llu releasable of %llu idle",
                                (unsigned long long)numbers.releasable_bytes, (unsigned long long)numbers.idle_bytes);
    return true;
}

bool cachemodel_check(struct cachemodel *model)
{
    char why[192] = "";
    if (model->why[0])
        return false;
    if (__atomic_load_n(&model->dev.faults, __ATOMIC_ACQUIRE))
        return cachejudge_wrong(model, "device: %s", model->dev.fault);
    if (cache_check(model->cache, why, sizeof why) != 0)
        return cachejudge_wrong(model, "its own check: %s", why);
    return judge_walk(model) && judge_gauges(model) && judge_numbers(model);
}
