/* SPDX-License-Identifier: MIT
 * oom.c: see oom.h. */
#include "allocator/oom.h"
#include "account/feed.h"
#include "cache/policy.h"
#include "allocator/driver.h"
#include "allocator/shim.h"

static const char *gp_oom_conf;

struct gp_oom_walk {
    void *arg;
    gp_feed_block_fn *visit;
};

static bool gp_oom_segment(void *arg, const struct gp_cache_segment *segment)
{
    (void)arg, (void)segment;
    return true;
}

static bool gp_oom_block(void *arg, const struct gp_cache_block *block)
{
    const struct gp_oom_walk *walk = arg;
    if (block->state == GP_CACHE_LIVE)
        walk->visit(walk->arg, (uint32_t)block->tag, block->requested_bytes);
    return true;
}

static void gp_oom_blocks(int device, void *arg, gp_feed_block_fn *visit)
{
    struct gp_oom_walk walk = {arg, visit};
    gp_shim_walk(device, &walk, gp_oom_segment, gp_oom_block);
}

void gp_oom_setup(const char *conf)
{
    gp_oom_conf = conf;
    gp_feed_oom_walker(gp_oom_blocks);
}

/* The cache has just given everything back that it could, so what the driver says now is what it had. */
static void gp_oom_facts(struct gp_home *home, uint64_t stream)
{
    struct gp_cache *cache = gp_home_has(home);
    struct gp_cache_numbers numbers;
    struct gp_backend backend;
    uint64_t free = 0, total = 0;
    gp_cache_numbers(cache, &numbers);
    gp_backend_fill(home, &backend);
    bool known = backend.memory(backend.self, &free, &total) == 0;
    gp_feed_oom_cache(home->device, &(struct gp_feed_oom){
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
                                        .conf = gp_oom_conf,
                                    });
}

void gp_oom_tell(struct gp_home *home, const char *api, uint32_t error, uint64_t bytes, uint64_t stream)
{
    gp_feed_failed(api, error, bytes, home->device);
    if (error == GP_ERROR_OUT_OF_MEMORY)
        gp_oom_facts(home, stream);
}
