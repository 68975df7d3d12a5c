/* SPDX-License-Identifier: MIT
 *
 * test_pool.c: pools, graphs' memory and resets against a model, after every one of thousands of random calls: what is
 * reserved and allocated, its peaks by the watermarks of polls, which pools are polled, and where each pool is.
 */
#include "account/feed/block.h"
#include "account/feed/failed.h"
#include "account/feed/feed.h"
#include "account/feed/poll.h"
#include "account/feed/pool.h"
#include "account/feed/start.h"
#include "account/feed/want.h"
#include "account/internal.h"
#include "account/tap.h"
#include "base/thread.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include "lib/random.h"
#include <criterion/criterion.h>
#include <gpuprof/batch.h>
#include <gpuprof/wire.h>
#include <string.h>

#define MIB    ((int64_t)1 << 20)
#define GPUS   2
#define POOLS  7
#define BLOCKS 24

static struct gp_wire_oom oom;

static void setup(void)
{
    accounts_start(8, (struct gp_feed_setup){.oom = &oom, .map_limit = 1 << 16});
    cr_assert(gp_thread_enter());
}

TestSuite(pool, .init = setup, .fini = accounts_check, .timeout = 60);

/* ---- the model --------------------------------------------------------------------------------------------------- */

struct pool {
    bool known, held; /* held: not destroyed by the program */
    int device;       /* GP_DEVICE_UNKNOWN: somewhere else */
    unsigned flags, blocks;
    int64_t reserved, high;
};

enum part { RESERVED, ALLOCATED, PARTS };
enum { LINEAR = POOLS }; /* what a block is of */

static struct pool pools[POOLS]; /* [0] is none */
static struct block {
    bool live;
    unsigned of;
    int device;
    int64_t bytes;
} blocks[BLOCKS];
static int64_t graph_reserved[GPUS], graph_used[GPUS], graph_high[GPUS][PARTS];
static int64_t peak[GPUS][PARTS][GP_POOLS];
static int64_t lifted[GPUS]; /* what was handed out and is in no polled reserve */
static int64_t allocated_before[GPUS];
static bool polled[GPUS];
static uint64_t current_pool[GPUS], missed;

static uint64_t pool_key(unsigned number)
{
    return 0x9000 + number * 16;
}

static int64_t shown[GPUS][PARTS][GP_POOLS];

static int64_t pools_reserved(int device)
{
    int64_t sum = 0;
    for (unsigned i = 1; i < POOLS; i++)
        sum += pools[i].device == device ? pools[i].reserved : 0;
    return sum;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* When the numbers are read. */
static void lift(int device)
{
    int64_t out = 0;
    for (unsigned i = 0; i < BLOCKS; i++)
        out += blocks[i].live && blocks[i].device == device && blocks[i].of != LINEAR ? blocks[i].bytes : 0;
    if (polled[device])
        lifted[device] = larger(lifted[device], out - pools_reserved(device));
}

/* A reserve that rises shows what was lifted. */
static void pool_reserve(int device, int64_t last, int64_t now)
{
    int64_t rise = now - last < lifted[device] ? now - last : lifted[device];
    if (rise > 0)
        lifted[device] -= rise;
    polled[device] = true;
}

static int64_t now_of(int device, enum part part, enum gp_wire_pool size)
{
    bool all = size == GP_POOL_ALL, large = size == GP_POOL_LARGE;
    int64_t sum = all || large ? (part == RESERVED ? graph_reserved : graph_used)[device] : 0;
    if (part == RESERVED && (all || large))
        sum += pools_reserved(device) + lifted[device];
    for (unsigned i = 0; i < BLOCKS; i++)
        if (blocks[i].live && blocks[i].device == device && (all || large == (blocks[i].bytes > MIB)))
            sum += part == ALLOCATED || blocks[i].of == LINEAR ? blocks[i].bytes : 0;
    return sum;
}

/* The part that is certain in any reading. */
static int64_t sure_of(int device, enum part part, enum gp_wire_pool size)
{
    bool all = size == GP_POOL_ALL, large = size == GP_POOL_LARGE;
    int64_t sum = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        bool of_size = all || large == (blocks[i].bytes > MIB), is_own = part == ALLOCATED || blocks[i].of == LINEAR;
        if (blocks[i].live && blocks[i].device == device &&
            (is_own ? of_size : polled[device] && size != GP_POOL_SMALL))
            sum += blocks[i].bytes;
    }
    return sum;
}

/* What was allocated at its peak lay in reserved memory. */
static void peak_follows(int device, int size)
{
    int64_t allocated = peak[device][ALLOCATED][size];
    if (polled[device] && size != GP_POOL_SMALL && allocated > allocated_before[device])
        peak[device][RESERVED][size] = larger(peak[device][RESERVED][size], allocated);
}

static void pool_settle(struct pool *pool)
{
    if (pool->known && !pool->held && !pool->blocks)
        *pool = (struct pool){.device = GP_DEVICE_UNKNOWN};
}

/* A watermark that rose says that at least this much was held. */
static void watermark(int device, enum part part, int64_t *last, int64_t high)
{
    for (int size = 0; size < GP_POOLS && high > *last; size++)
        if (size != GP_POOL_SMALL && high > peak[device][part][size])
            peak[device][part][size] = high;
    *last = high;
}

static void check(const char *what)
{
    enum { SAME = 3 }; /* statistics that are the same here */
    static const enum gp_wire_stat stats[][SAME] = {
        {GP_STAT_RESERVED_BYTES, GP_STAT_RESERVED_BYTES, GP_STAT_RESERVED_BYTES},
        {GP_STAT_ALLOCATED_BYTES, GP_STAT_ACTIVE_BYTES, GP_STAT_REQUESTED_BYTES}};
    for (int device = 0; device < GPUS; device++) {
        struct gp_wire_device is;
        if (!gp_tap_device((unsigned)device, &is))
            continue;
        lift(device);
        for (int i = PARTS * SAME * GP_POOLS - 1; i >= 0; i--) { /* allocated first */
            int part = i / SAME / GP_POOLS, size = i % GP_POOLS;
            const struct gp_wire_value *value = &is.stats[stats[part][i / GP_POOLS % SAME]][size];
            int64_t *high = &peak[device][part][size], now = now_of(device, (enum part)part, (enum gp_wire_pool)size);
            *high = larger(*high, sure_of(device, (enum part)part, (enum gp_wire_pool)size));
            if (part == RESERVED)
                peak_follows(device, size);
            int64_t most = part == RESERVED ? larger(*high, shown[device][ALLOCATED][size]) : *high;
            shown[device][part][size] = now = now < most ? now : most; /* polls were at other times */
            *high = larger(*high, now);
            cr_assert_eq(value->current, now, "%s: device %d, part %d, size %d: %lld, not %lld", what, device, part,
                         size, (long long)value->current, (long long)now);
            cr_assert_eq(value->peak, *high, "%s: device %d, part %d, size %d: peak %lld, not %lld", what, device, part,
                         size, (long long)value->peak, (long long)*high);
            cr_assert_geq(value->allocated - value->freed, now, "%s: the sums", what);
        }
        cr_assert_eq(gp_feed_pool_of(device), current_pool[device], "%s: the current pool", what);
    }
    for (unsigned i = 1; i < POOLS; i++) {
        bool nowhere = pools[i].known && pools[i].device < 0 && !(pools[i].flags & GP_POOL_MANAGED);
        cr_assert_eq(gp_feed_pool_device(pool_key(i)), pools[i].known ? pools[i].device : GP_DEVICE_UNKNOWN, "%s",
                     what);
        cr_assert_eq(gp_feed_pool_is_nowhere(pool_key(i)), nowhere, "%s: pool %u", what, i);
        cr_assert_eq(gp_feed_pool_is_managed(pool_key(i)), pools[i].known && pools[i].flags & GP_POOL_MANAGED, "%s",
                     what);
    }
    for (int cause = 0; cause < GP_LOSTS; cause++)
        cr_assert_eq(lost[cause], cause == GP_LOST_MISSED_FREE ? missed : 0, "%s: lost %d", what, cause);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void pool_made(struct pool *pool, bool by_poll, unsigned number)
{
    static const unsigned flags[] = {0, 0, 0, GP_POOL_MANAGED, GP_POOL_IMPORTED};
    *pool = (struct pool){.known = true, .held = true, .device = (int)draw_below(GPUS)};
    pool->flags = flags[draw_below(5)];
    pool->device = draw_below(8) ? pool->device : GP_DEVICE_UNKNOWN;
    (by_poll ? gp_feed_pool_found : gp_feed_pool_create)(pool_key(number), pool->device, pool->flags);
}

static void do_create(void)
{
    unsigned number = 1 + draw_below(POOLS - 1);
    struct pool *pool = &pools[number];
    if (pool->known && draw_below(2)) {
        gp_feed_pool_found(pool_key(number), 1, GP_POOL_MANAGED); /* it is as it was */
        return;
    }
    if (pool->known && pool->blocks)
        return;
    missed += pool->known;
    pool_made(pool, !pool->known && draw_below(2), number);
    cr_assert(gp_feed_poll_wanted() & GP_POLL_POOLS);
}

static void do_destroy(void)
{
    unsigned number = 1 + draw_below(POOLS - 1);
    struct pool *pool = &pools[number];
    bool ok = draw_below(3);
    uint32_t token = gp_feed_pool_destroy_begin(pool_key(number));
    cr_assert_eq(token != 0, pool->known);
    cr_assert(!gp_feed_poll_enter(pool_key(number)), "it may be gone");
    gp_feed_pool_destroy_end(token, ok && pool->held);
    if (!pool->held || !ok)
        return;
    pool->held = false;
    for (int device = 0; device < GPUS; device++)
        current_pool[device] = current_pool[device] == pool_key(number) ? 0 : current_pool[device];
    pool_settle(pool);
}

static uint64_t block_address(unsigned i)
{
    return 0x10000000ull + ((uint64_t)i << 28);
}

static void do_alloc(void)
{
    static const int64_t sizes[] = {1, 512, MIB, MIB + 1, 5 * MIB};
    unsigned i = draw_below(BLOCKS), of = 1 + draw_below(POOLS);
    if (blocks[i].live || (of != LINEAR && (!pools[of].held || pools[of].flags || pools[of].device < 0)))
        return;
    blocks[i] = (struct block){true, of, of == LINEAR ? (int)draw_below(GPUS) : pools[of].device, sizes[draw_below(5)]};
    gp_feed_alloc(&(struct gp_allocation){.space = GP_SPACE_DEVICE,
                                          .kind = of == LINEAR ? GP_KIND_LINEAR : GP_KIND_POOL,
                                          .device = blocks[i].device,
                                          .address = block_address(i),
                                          .bytes = (uint64_t)blocks[i].bytes,
                                          .requested_bytes = (uint64_t)blocks[i].bytes,
                                          .pool = of == LINEAR ? 0 : pool_key(of)});
    if (of != LINEAR)
        pools[of].blocks++;
    polled[blocks[i].device] |= of != LINEAR;
}

static void do_free(void)
{
    unsigned i = draw_below(BLOCKS);
    bool ok = draw_below(4);
    uint32_t token = gp_feed_free_begin(GP_SPACE_DEVICE, block_address(i));
    gp_feed_free_end(token, ok, 0);
    if (!blocks[i].live || !ok)
        return;
    blocks[i].live = false;
    if (blocks[i].of == LINEAR)
        return;
    pools[blocks[i].of].blocks--;
    pool_settle(&pools[blocks[i].of]);
}

static void poll_one(uint64_t key)
{
    unsigned number = (unsigned)(key - 0x9000) / 16;
    struct pool *pool = &pools[number];
    int64_t reserved = (int64_t)draw_below(6) * 16 * MIB,
            high = reserved + (draw_below(3) ? 0 : (int64_t)draw_below(4) * 8 * MIB);
    if (!gp_feed_poll_enter(key))
        cr_assert_fail("pool %u", number);
    gp_feed_poll_pool(key, reserved, high);
    gp_feed_poll_leave();
    watermark(pool->device, RESERVED, &pool->high, high);
    pool_reserve(pool->device, pool->reserved, reserved);
    pool->reserved = reserved;
}

static void do_poll(void)
{
    struct gp_poll_pool list[POOLS + 1];
    unsigned want = 0, count = gp_feed_poll_pools(list, POOLS + 1), most = draw_below(3);
    for (unsigned i = 1; i < POOLS; i++)
        want += pools[i].held && !pools[i].flags && pools[i].device >= 0;
    cr_assert_eq(count, want, "%u pools, not %u", count, want);
    cr_assert_eq(gp_feed_poll_pools(list, most), most < want ? most : want);
    cr_assert_eq(gp_feed_poll_pools(list, POOLS + 1), want);
    for (unsigned i = 0; i < count; i++) {
        cr_assert_eq(list[i].device, pools[(list[i].pool - 0x9000) / 16].device);
        poll_one(list[i].pool);
        check("a poll");
    }
    gp_feed_poll_pool(pool_key(POOLS + 3), 5, 5); /* it has gone */
}

static void do_graph(void)
{
    int device = (int)draw_below(GPUS);
    int64_t used = (int64_t)draw_below(5) * 4 * MIB, used_high = used + (int64_t)draw_below(3) * 8 * MIB;
    int64_t reserved = (int64_t)draw_below(5) * 32 * MIB, reserved_high = reserved + (int64_t)draw_below(3) * 16 * MIB;
    if (!gp_account_of(device))
        return;
    gp_feed_poll_graph(device, used, used_high, reserved, reserved_high);
    watermark(device, RESERVED, &graph_high[device][RESERVED], reserved_high);
    watermark(device, ALLOCATED, &graph_high[device][ALLOCATED], used_high);
    polled[device] = true;
    graph_reserved[device] = reserved;
    graph_used[device] = used;
}

static void do_use(void)
{
    int device = (int)draw_below(GPUS);
    unsigned number = draw_below(POOLS);
    if (number && !pools[number].held)
        return;
    current_pool[device] = number ? pool_key(number) : 0;
    gp_feed_pool_use(device, current_pool[device]);
}

static void do_reset(void)
{
    static const unsigned whats[] = {GP_RESET_ALLOCATED, GP_RESET_RESERVED, GP_RESET_PEAKS};
    unsigned what = whats[draw_below(3)], device = draw_below(GPUS);
    struct gp_wire_before_after said;
    if (!gp_tap_reset(device, what, &said))
        return;
    if (what & GP_RESET_ALLOCATED)
        allocated_before[device] = 0;
    else
        allocated_before[device] = peak[device][ALLOCATED][GP_POOL_ALL];
    for (int part = 0; part < PARTS; part++)
        for (int size = 0; size < GP_POOLS; size++)
            if (what & (part == RESERVED ? GP_RESET_RESERVED : GP_RESET_ALLOCATED))
                peak[device][part][size] = shown[device][part][size];
    for (int size = 0; size < GP_POOLS; size++)
        peak_follows((int)device, size);
    for (int part = 0; part < PARTS; part++) {
        enum gp_wire_stat stat = part == RESERVED ? GP_STAT_RESERVED_BYTES : GP_STAT_ALLOCATED_BYTES;
        cr_assert_eq(said.after[stat].peak, peak[device][part][GP_POOL_ALL], "a reset says its peak");
    }
}

Test(pool, every_call_moves_what_the_model_moves)
{
    static const struct {
        void (*run)(void);
        const char *name;
        unsigned weight;
    } calls[] = {{do_create, "create", 6}, {do_destroy, "destroy", 5}, {do_alloc, "alloc", 14}, {do_free, "free", 12},
                 {do_poll, "poll", 4},     {do_graph, "graph", 2},     {do_use, "use", 4},      {do_reset, "reset", 3}};
    for (unsigned i = 0; i < POOLS; i++)
        pools[i].device = GP_DEVICE_UNKNOWN;
    for (int device = 0; device < GPUS; device++)
        cr_assert_not_null(gp_account_of(device));
    for (unsigned step = 0; step < 12000; step++) {
        unsigned at = draw_below(50), i = 0;
        for (; at >= calls[i].weight; i++)
            at -= calls[i].weight;
        calls[i].run();
        check(calls[i].name);
    }
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static void hold_for_a_moment(int64_t bytes)
{
    accounts_linear(0x4000, bytes);
    gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, 0x4000), true, 0);
}

/* What happens between two of them is in neither. */
Test(pool, high_marks_of_batches_are_of_their_own_time)
{
    struct gp_batch_device batch;
    hold_for_a_moment(1 * MIB);
    for (int64_t turn = 2; turn < 5; turn++) {
        gp_tap_batch_begin();
        hold_for_a_moment(turn * 7);
        gp_tap_batch_begin(); /* it has begun already */
        cr_assert(gp_tap_batch(0, &batch));
        cr_expect_eq(batch.allocated_high_bytes, turn * 7);
        cr_expect_eq(batch.reserved_high_bytes, turn * 7);
        hold_for_a_moment(turn * 3);
        cr_assert(gp_tap_batch(0, &batch));
        cr_expect_eq(batch.allocated_high_bytes, turn * 3);
        cr_expect_eq(batch.calls, turn * 3 - 3);
        cr_expect_eq(batch.calls, batch.frees);
        gp_tap_batch_end();
        gp_tap_batch_end();
        hold_for_a_moment(100 * MIB);
    }
    cr_expect_not(gp_tap_batch(GP_WIRE_HOST, &batch), "the host has none");
}

/* ---- what is polled ---------------------------------------------------------------------------------------------- */

static void poll_first(int64_t reserved, int64_t high)
{
    gp_feed_poll_begin(0);
    gp_feed_poll_pool(pool_key(0), reserved, high);
    gp_feed_poll_end(0);
}

static void linear_alloc(uint64_t address, int64_t bytes)
{
    accounts_linear(address, bytes);
}

/* The reserve of a pool is polled, and is in no gauge of the own allocations. */
Test(pool, the_reserve_of_pools_is_in_totals_scopes_batches_and_reports)
{
    struct gp_wire_scope_value scope;
    struct gp_wire_device is;
    struct gp_batch_device batch;
    gp_tap_batch_begin();
    gp_feed_pool_create(pool_key(0), 0, 0);
    linear_alloc(0x100000, 3 * MIB);
    poll_first(8 * MIB, 8 * MIB);
    cr_assert_eq(gp_tap_scope_begin(2), 0);
    cr_assert_eq(gp_tap_scope_read(2, 0, &scope), 0);
    cr_expect_eq(scope.reserved_peak_bytes, 11 * MIB, "a scope begins with what is held");
    poll_first(32 * MIB, 32 * MIB);
    poll_first(6 * MIB, 32 * MIB);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, 9 * MIB);
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].peak, 35 * MIB);
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, 3 * MIB);
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].peak, 3 * MIB);
    cr_expect_eq(is.kinds[GP_KIND_POOL].reserved_bytes, 6 * MIB);
    cr_assert_eq(gp_tap_scope_read(2, 0, &scope), 0);
    cr_expect_eq(scope.reserved_peak_bytes, 35 * MIB);
    cr_expect_eq(scope.allocated_peak_bytes, 3 * MIB);
    static const int64_t highs[] = {35 * MIB, 9 * MIB}; /* since the batch before */
    for (int i = 0; i < 2; i++) {
        cr_assert(gp_tap_batch(0, &batch));
        cr_expect_eq(batch.reserved_bytes, 9 * MIB);
        cr_expect_eq(batch.reserved_high_bytes, highs[i]);
        cr_expect_eq(batch.allocated_high_bytes, 3 * MIB);
    }
    gp_tap_batch_end();

    /* Between two polls the pool held more, as its watermark says, and the other memory was there all the time. */
    poll_first(6 * MIB, 50 * MIB);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, 9 * MIB);
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].peak, 53 * MIB);
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].peak, 3 * MIB);
    cr_assert_eq(gp_tap_scope_read(2, 0, &scope), 0);
    cr_expect_eq(scope.reserved_peak_bytes, 53 * MIB);
    cr_expect_eq(scope.allocated_peak_bytes, 3 * MIB);
    struct gp_wire_before_after said;
    cr_assert(gp_tap_reset(0, GP_RESET_PEAKS, &said));
    cr_expect_eq(said.before[GP_STAT_RESERVED_BYTES].peak, 53 * MIB);
    cr_expect_eq(said.after[GP_STAT_RESERVED_BYTES].peak, 9 * MIB, "the reset's period has no watermark");
    cr_assert_eq(gp_tap_scope_read(2, 0, &scope), 0);
    cr_expect_eq(scope.reserved_peak_bytes, 53 * MIB, "a reset leaves scopes");

    gp_feed_failed("cuMemAlloc_v2", GP_ERROR_OUT_OF_MEMORY, 100 * MIB, 0, GP_KIND_LINEAR);
    cr_expect_eq(oom.reserved_bytes, 9 * MIB);
    cr_expect_eq(oom.allocated_bytes, 3 * MIB);
    cr_expect_eq(oom.pool_reserved_bytes, 6 * MIB);
    cr_expect_eq(oom.kinds[GP_KIND_LINEAR], 3 * MIB);
    cr_expect_eq(oom.asked_bytes, 100 * (uint64_t)MIB);

    uint32_t token = gp_feed_pool_destroy_begin(pool_key(0));
    gp_feed_pool_destroy_end(token, true);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, 3 * MIB);
    cr_expect_eq(is.num_ooms, 1);
    cr_assert(gp_tap_reset(0, GP_RESET_PEAKS, &said) && gp_tap_device(0, &is));
    cr_expect_eq(is.num_ooms, 1);
    cr_assert(gp_tap_reset(0, GP_RESET_ACCUMULATED, &said) && gp_tap_device(0, &is));
    cr_expect_eq(is.num_ooms, 0);
}
