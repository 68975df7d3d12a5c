/* SPDX-License-Identifier: MIT
 * failed.c: reports a failed request to the accounts (internal.h). */
#include "account/feed/failed.h"
#include "allocator/allocator.h"
#include "allocator/backend.h"
#include "allocator/driver.h"
#include "allocator/internal.h"
#include "allocator/served.h"
#include "cache/cache.h"
#include "cache/policy.h"

static const char *failed_conf;

struct gp_failed_walk {
    void *arg;
    gp_feed_block_fn *visit;
};

static bool failed_segment(void *arg, const struct gp_cache_segment *segment)
{
    (void)arg, (void)segment;
    return true;
}

static bool failed_block(void *arg, const struct gp_cache_block *block)
{
    const struct gp_failed_walk *walk = arg;
    if (block->state == GP_CACHE_LIVE)
        walk->visit(walk->arg, (uint32_t)block->tag, block->requested_bytes);
    return true;
}

static void failed_blocks(int device, void *arg, gp_feed_block_fn *visit)
{
    struct gp_failed_walk walk = {arg, visit};
    gp_allocator_walk(device, &walk, failed_segment, failed_block);
}

void gp_failed_setup(const char *conf)
{
    failed_conf = conf;
    gp_feed_oom_walker(failed_blocks);
    gp_feed_oom_replayer(gp_replay);
}

/* The cache has just given back all it could, so the driver's free bytes now are those that the request met. */
static void failed_facts(struct gp_served_context *served, uint64_t stream)
{
    struct gp_cache *cache = gp_served_cache(served);
    struct gp_cache_numbers numbers;
    struct gp_backend backend;
    uint64_t free = 0, total = 0;
    gp_cache_numbers(cache, &numbers);
    gp_backend_fill(served, &backend);
    bool known = backend.memory(backend.self, &free, &total) == 0;
    gp_feed_oom_cache(served->device, &(struct gp_feed_oom){
                                          .stream = stream == GP_STREAM_ANY ? 0 : stream,
                                          .limit_bytes = gp_cache_limit(cache),
                                          .free_bytes = known ? (int64_t)free : -1,
                                          .total_bytes = known ? (int64_t)total : -1,
                                          .idle_bytes = numbers.idle_bytes,
                                          .idle_pieces = numbers.idle_pieces,
                                          .largest_idle_bytes = numbers.largest_idle_bytes,
                                          .releasable_bytes = numbers.releasable_bytes,
                                          .waiting_bytes = numbers.waiting_bytes,
                                          .pinning_blocks = numbers.pinning_blocks,
                                          .policy = gp_cache_policy(cache)->name,
                                          .conf = failed_conf,
                                      });
}

void gp_failed_report(struct gp_served_context *served, const char *api, uint32_t error, uint64_t bytes,
                      uint64_t stream)
{
    gp_feed_failed(api, error, bytes, served->device, GP_KIND_LINEAR);
    if (error == GP_ERROR_OUT_OF_MEMORY)
        failed_facts(served, stream);
}
