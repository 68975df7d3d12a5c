/* SPDX-License-Identifier: MIT
 *
 * test_framework_oom.c: what an out-of-memory report says of a framework's segments: idle pieces between its blocks, who
 * refused, what is known of private pools, and the history that is handed to the replays.
 */
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/failed.h"
#include "account/feed/feed.h"
#include "account/feed/framework.h"
#include "account/feed/graph.h"
#include "account/feed/poll.h"
#include "account/feed/start.h"
#include "account/feed/vmm.h"
#include "account/tap.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <string.h>

#define MIB    ((int64_t)1 << 20)
#define CHUNKS 64u

static struct gp_wire_oom wire;
static struct gp_wire_oom_framework part;
static uint64_t pools;
static struct gp_feed_replay replayed;

static uint64_t pools_made(void)
{
    return pools;
}

static void replay(struct gp_feed_replay *replay)
{
    replayed = *replay;
    replay->agrees = true;
    replay->helps = 1;
}

static void setup(void)
{
    accounts_start(CHUNKS, (struct gp_feed_setup){.oom = &wire, .oom_framework = &part, .map_limit = 1 << 16});
    cr_assert(gp_thread_enter());
    cr_assert_eq(gp_owner_start(), 0);
    gp_owner_segments_of(""); /* whoever is on the stack */
    gp_feed_framework_conf(&(struct gp_framework_conf){.pools = pools_made});
    gp_feed_framework_start("pytorch");
    gp_feed_oom_replayer(replay);
}

TestSuite(framework_oom, .init = setup, .fini = accounts_check, .timeout = 60);

static void segment(uint64_t at, int64_t mib)
{
    accounts_linear(at, mib * MIB);
}

static void segment_freed(uint64_t at)
{
    gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, at), true, 0);
}

static void block(uint64_t at, int64_t mib) /* < 0: freed */
{
    static int64_t total;
    total += mib * MIB;
    gp_feed_framework_block(
        &(struct gp_framework_event){.address = at, .bytes = mib * MIB, .allocated_bytes = total, .reserved_bytes = -1},
        0);
}

static void driver_fails(enum gp_wire_kind kind)
{
    gp_feed_failed("cuMemAlloc_v2", GP_ERROR_OUT_OF_MEMORY, 5, 0, kind);
}

static void gives_up(int64_t mib)
{
    gp_feed_framework_oom("PyTorch's allocator", 0, (uint64_t)(mib * MIB));
}

#define A                  0x10000000ull
#define B                  0x20000000ull
#define C                  0x40000000ull
#define AT(_segment, _mib) ((_segment) + (uint64_t)(_mib)*MIB)

/* The first block takes its segment before it is reported. */
static void three_segments(void)
{
    segment(A, 100);
    block(AT(A, 10), 20);
    segment(B, 50);
    block(AT(B, 0), 50);
    segment(C, 40);
    block(AT(C, 0), 30);
    block(AT(A, 90), 10);
    block(AT(C, 0), -30);
}

Test(framework_oom, idle_is_what_blocks_leave)
{
    three_segments();
    driver_fails(GP_KIND_LINEAR);
    driver_fails(GP_KIND_LINEAR);
    cr_expect_eq(wire.count, 0);
    gives_up(300);
    cr_expect_eq(part.flags, GP_OOM_FRAMEWORK | GP_OOM_NO_POOLS);
    cr_expect(part.segment_bytes == 190 * MIB && part.blocks == 3);
    cr_expect(wire.idle_bytes == 110 * MIB && wire.idle_pieces == 3 && wire.largest_idle_bytes == 60 * MIB);
    cr_expect(wire.releasable_bytes == 40 * MIB && part.private_bytes == 0 && wire.pinning_blocks == 2);
    cr_expect_str_eq(wire.policy, "pytorch");
    cr_expect_eq(wire.flags & GP_OOM_CACHE, 0);
}

Test(framework_oom, pages_of_a_growable_segment)
{
    segment(A, 20);
    block(A, 20);
    for (unsigned i = 0; i < 4; i++) { /* one region: 80 MiB in pages of 20 */
        gp_feed_vmm_create(i + 1, (uint64_t)(20 * MIB), 0);
        gp_feed_vmm_map(AT(B, 20 * i), (uint64_t)(20 * MIB), 0, i + 1);
    }
    block(AT(B, 0), 5);
    block(AT(B, 65), 10);
    driver_fails(GP_KIND_VMM);
    driver_fails(GP_KIND_VMM);
    gives_up(100);
    cr_expect(wire.idle_bytes == 65 * MIB && wire.idle_pieces == 2 && wire.largest_idle_bytes == 60 * MIB);
    cr_expect_eq(wire.releasable_bytes, 40 * MIB, "the two pages in the middle");
}

/* Of a pool's pages only those without a part of a block are idle memory of pools. */
Test(framework_oom, pages_of_a_private_pool)
{
    pools = 1;
    gp_feed_stream_created(7, 0);
    segment(A, 20);
    block(A, 20);
    gp_feed_capture_begin(7, GP_CAPTURE_NEW);
    for (unsigned i = 0; i < 3; i++) {
        gp_feed_vmm_create(i + 1, (uint64_t)(20 * MIB), 0);
        gp_feed_vmm_map(AT(B, 20 * i), (uint64_t)(20 * MIB), 0, i + 1);
    }
    block(AT(B, 45), 15);
    gp_feed_capture_end(7, false);
    gives_up(100);
    cr_expect(wire.releasable_bytes == 40 * MIB && part.private_bytes == 40 * MIB, "%lld",
              (long long)part.private_bytes);
}

/* A request beside the framework that the allocator of --allocator refused. */
Test(framework_oom, numbers_of_the_cache_that_was_asked_replace_those_of_the_framework)
{
    three_segments();
    gp_owner_segments_of(NULL);
    driver_fails(GP_KIND_LINEAR);
    cr_expect(part.flags & GP_OOM_FRAMEWORK && !(wire.flags & GP_OOM_CACHE));
    gp_feed_oom_cache(0, &(struct gp_feed_oom){.idle_bytes = 5, .free_bytes = -1, .policy = "caching"});
    cr_expect(part.flags == 0 && wire.flags & GP_OOM_CACHE && wire.idle_bytes == 5);
    cr_expect_str_eq(wire.policy, "caching");
}

Test(framework_oom, who_refused)
{
    three_segments();
    gives_up(300);
    cr_expect(part.flags & GP_OOM_REFUSED && !(part.flags & GP_OOM_BESIDE), "without a call of the driver");
    pools = 1;
    driver_fails(GP_KIND_LINEAR);
    gives_up(300);
    cr_expect(part.flags & GP_OOM_KEPT && !(part.flags & (GP_OOM_REFUSED | GP_OOM_NO_POOLS)), "after one");
    driver_fails(GP_KIND_LINEAR);
    driver_fails(GP_KIND_LINEAR);
    gives_up(300);
    cr_expect_eq(part.flags & (GP_OOM_KEPT | GP_OOM_REFUSED), 0);
    gp_owner_segments_of(NULL);
    gp_feed_failed("cuMemAlloc_v2", GP_ERROR_OUT_OF_MEMORY, 5, 0, GP_KIND_LINEAR);
    cr_expect(part.flags & GP_OOM_BESIDE && wire.count == 4);
}

/* PyTorch hands out memory of cudaMallocAsync as it is. */
Test(framework_oom, memory_that_is_no_segment_fails_for_good)
{
    struct gp_wire_device is;
    driver_fails(GP_KIND_POOL);
    cr_expect_eq(wire.count, 1);
    cr_assert(gp_tap_device(0, &is));
    cr_expect(is.num_ooms == 1 && is.num_alloc_retries == 0);
}

/* A segment of a capture, and one that had no block when the cache was emptied, are pools'. */
Test(framework_oom, private_pools)
{
    pools = 1;
    gp_feed_stream_created(7, 0);
    segment(A, 20);
    block(A, 1);
    gp_feed_capture_begin(7, GP_CAPTURE_NEW);
    segment(B, 30);
    block(B, 30);
    gp_feed_capture_end(7, false);
    block(B, -30);
    segment(C, 40);
    block(C, 40);
    gives_up(100);
    cr_expect(wire.releasable_bytes == 30 * MIB && part.private_bytes == 30 * MIB);
    block(C, -40);
    gives_up(100);
    cr_expect(wire.releasable_bytes == 70 * MIB && part.private_bytes == 30 * MIB);
    segment(AT(C, 100), 2);
    block(AT(C, 100), 1);
    block(AT(C, 100), -1);
    segment_freed(AT(C, 100)); /* it empties its cache, and C stays */
    block(AT(A, 1), 1);
    gives_up(100);
    cr_expect(wire.releasable_bytes == 70 * MIB && part.private_bytes == 70 * MIB, "%lld",
              (long long)part.private_bytes);
    struct gp_wire_framework framework, heaps;
    cr_expect(gp_tap_framework(0, &framework, &heaps) && framework.private_bytes == 70 * MIB);
    segment_freed(B);
    cr_expect(gp_tap_framework(0, &framework, &heaps) && framework.private_bytes == 40 * MIB);
}

Test(framework_oom, a_block_without_memory_makes_the_numbers_unknown)
{
    three_segments();
    block(0x7000000000, 3);
    gives_up(300);
    cr_expect(!(part.flags & GP_OOM_FRAMEWORK) && part.segment_bytes == -1 && wire.idle_bytes == -1);
}

static void driver_says(int64_t free_bytes)
{
    uint64_t context;
    gp_feed_context_created(5, 0);
    gp_feed_context_used(0, 5, 0x50);
    gives_up(300);
    cr_assert(gp_feed_poll_oom_enter(&context) && context == 0x50);
    gp_feed_poll_oom_leave(free_bytes, 4096 * MIB);
}

/* Idle memory of others is of no use to a request of a pool, and a replay cannot tell which requests are. */
Test(framework_oom, no_history_is_replayed_of_a_program_with_pools)
{
    pools = 1;
    three_segments();
    segment_freed(C);
    driver_says(7);
    part.flags &= ~GP_OOM_KEPT; /* as where the framework has given back what it could */
    gp_feed_poll_oom_replay(UINT32_MAX);
    cr_expect(replayed.count == 0 && !(part.flags & GP_OOM_REPLAYED));
}

Test(framework_oom, the_history_is_replayed_once)
{
    three_segments();
    segment_freed(C);
    driver_says(7);
    gp_feed_poll_oom_replay(5);
    cr_expect_eq(replayed.count, 0, "it is longer");
    gp_feed_poll_oom_replay(6);
    cr_expect(part.flags & GP_OOM_REPLAYED && part.helps == 1 && part.fails == 0);
    static const uint64_t events[] = {20ull << 22,    50ull << 22, 30ull << 22, 10ull << 22, 2 << 2 | GP_HISTORY_FREE,
                                      GP_HISTORY_TRIM};
    cr_assert_eq(replayed.count, 6);
    cr_expect_arr_eq(replayed.history, events, sizeof(events));
    cr_expect(replayed.allocs == 4 && replayed.asked_bytes == (uint64_t)(300 * MIB) && replayed.free_bytes == 7);
    cr_expect(replayed.reserved_bytes == (uint64_t)(150 * MIB) && replayed.peak_bytes == (uint64_t)(190 * MIB));
    replayed.count = 0;
    gp_feed_poll_oom_replay(UINT32_MAX);
    cr_expect_eq(replayed.count, 0);
}
