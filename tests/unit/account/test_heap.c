/* SPDX-License-Identifier: MIT
 *
 * test_heap.c: heaps of sub-allocators, blocks of a framework, and polled memory, in the accounts.  A model of two driver allocations with heaps
 * and blocks is compared with the accounts after each of thousands of random calls, a third of which contradict what is
 * known and must change nothing but the count of lost annotations.
 */
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/framework.h"
#include "account/feed/heap.h"
#include "account/feed/poll.h"
#include "account/feed/pool.h"
#include "account/feed/start.h"
#include "account/heap.h"
#include "account/internal.h"
#include "account/pool.h"
#include "account/segment.h"
#include "account/tap.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <string.h>

#include "heap_events.h"

#define MIB    ((int64_t)1 << 20)
#define CHUNKS 64u
#define UNIT   4096ull
#define UNITS  24u /* of an allocation */
#define BASE   0x7000000000ull

static struct gp_wire_oom oom;
static uint32_t not_read; /* the number of readers: none, so a thread counts blocks without a lock */

static void setup(void)
{
    accounts_start(CHUNKS, (struct gp_feed_setup){.oom = &oom, .listened = &not_read, .map_limit = 1 << 20});
    heard_reader = accounts_reader(CHUNKS);
    cr_assert_eq(gp_owner_start(), 0);
    cr_assert(gp_thread_enter());
}

TestSuite(heap, .init = setup, .fini = accounts_check, .timeout = 60);

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* ---- the model: units of one allocation, and the heap and the block that each is in ------------------------------ */

struct piece {
    unsigned from, count; /* count 0: none */
};

struct model {
    uint64_t at;
    struct piece heaps[UNITS], blocks[UNITS]; /* by their first unit */
    uint64_t lost;
};

static bool pieces_meet(const struct piece *pieces, unsigned from, unsigned count, unsigned but)
{
    for (unsigned i = 0; i < UNITS; i++)
        if (pieces[i].count && i != but && i < from + count && from < i + pieces[i].count)
            return true;
    return false;
}

/* The heap that contains all of the range, or NULL. */
static const struct piece *heap_of(const struct model *model, unsigned from, unsigned count)
{
    for (unsigned i = 0; i <= from && i < UNITS; i++)
        if (model->heaps[i].count && from + count <= i + model->heaps[i].count && from >= i)
            return &model->heaps[i];
    return NULL;
}

static int64_t model_allocated(const struct model *model)
{
    int64_t units = UNITS;
    for (unsigned i = 0; i < UNITS; i++)
        units += (int)model->blocks[i].count - (int)model->heaps[i].count;
    return units * (int64_t)UNIT;
}

static void blocks_gone(struct model *model, const struct piece *heap)
{
    for (unsigned i = heap->from; i < heap->from + heap->count; i++)
        model->blocks[i].count = 0;
}

static void heap_begins(struct model *model, unsigned from, unsigned count)
{
    bool wrong = count == 0, outside = from + count > UNITS;
    bool meets = !wrong && !outside && pieces_meet(model->heaps, from, count, UNITS);
    bool good = gp_feed_heap_begin(model->at + from * UNIT, count * UNIT);
    cr_assert_eq(good, !wrong && !outside && !meets, "a heap of %u units at %u", count, from);
    model->lost += wrong || meets;
    if (good)
        model->heaps[from] = (struct piece){from, count};
}

static void heap_ends(struct model *model, unsigned from)
{
    gp_feed_heap_end(model->at + from * UNIT);
    blocks_gone(model, &model->heaps[from]);
    model->heaps[from].count = 0;
}

static bool model_is_plain(const struct model *model)
{
    return !pieces_meet(model->heaps, 0, UNITS, UNITS);
}

static void block_begins(struct model *model, unsigned from, unsigned count, unsigned number)
{
    const struct piece *heap = &model->heaps[number];
    gp_feed_heap_block(model->at + number * UNIT, model->at + from * UNIT, count * UNIT);
    if (!heap->count)
        return; /* of an unknown heap: not noticed */
    if (!count || from < heap->from || from + count > heap->from + heap->count ||
        pieces_meet(model->blocks, from, count, UNITS))
        model->lost++;
    else
        model->blocks[from] = (struct piece){from, count};
}

static void block_resized(struct model *model, unsigned from, unsigned count)
{
    gp_feed_heap_resize(model->at + from * UNIT, count * UNIT);
    if (!model->blocks[from].count || !count || !heap_of(model, from, count) ||
        pieces_meet(model->blocks, from, count, from))
        model->lost++;
    else
        model->blocks[from].count = count;
}

static void model_step(struct model *model, uint64_t random)
{
    unsigned from = random % UNITS, count = random >> 8 & 7, number = (random >> 16) % UNITS;
    switch (random >> 32 & 15) {
    case 0:
    case 1:
        heap_begins(model, from, 2 * count);
        break;
    case 2:
        heap_ends(model, from);
        break;
    case 3:
        gp_feed_heap_reset(model->at + from * UNIT);
        blocks_gone(model, &model->heaps[from]);
        break;
    case 4:
    case 5:
    case 6:
        gp_feed_heap_unblock(model->at + from * UNIT);
        model->blocks[from].count = 0;
        break;
    case 7:
    case 8:
    case 9:
    case 10:
        block_resized(model, from, count);
        break;
    default: /* mostly in a heap that there is */
        for (unsigned i = 0; i < UNITS && !model->heaps[number].count; i++)
            number = (number + 1) % UNITS;
        block_begins(model, number + from % 8 < UNITS ? number + from % 8 : from, count, number);
    }
}

static void visit(void *arg, const struct gp_tap_block *block)
{
    *(int64_t *)arg += block->segment ? 0 : (int64_t)block->bytes;
}

static void no_rest(void *arg)
{
    (void)arg;
}

/* All memory here is the test's: blocks of heaps, and what lies beside them, have the owner of their memory. */
static void owners_check(const struct gp_wire_device *is, const char *what)
{
    struct gp_wire_owner_value owners[GP_WIRE_OWNERS];
    const struct gp_wire_value *allocated = &is->stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL];
    const struct gp_wire_value *reserved = &is->stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL];
    struct gp_wire_device again;
    cr_assert(gp_tap_owned(0, &again, owners));
    struct gp_wire_owner_value want = {.reserved_bytes = reserved->current,
                                       .reserved_peak_bytes = reserved->peak,
                                       .allocated_bytes = allocated->current,
                                       .allocated_peak_bytes = allocated->peak,
                                       .live = is->stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current};
    cr_assert_eq(memcmp(&owners[1], &want, sizeof(want)), 0, "%s: the owner has %lld bytes in %lld, not %lld in %lld",
                 what, (long long)owners[1].allocated_bytes, (long long)owners[1].live, (long long)want.allocated_bytes,
                 (long long)want.live);
}

static void compare(const struct model models[2], bool plain, unsigned step, unsigned call)
{
    struct gp_wire_device is;
    int64_t allocated = model_allocated(&models[0]) + model_allocated(&models[1]);
    uint64_t losses = models[0].lost + models[1].lost;
    cr_assert(gp_tap_device(0, &is));
    int64_t has = is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current;
    int64_t live = is.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current;
    cr_assert_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, 2 * UNITS * (int64_t)UNIT);
    owners_check(&is, "a step");
    cr_assert_eq(has, allocated, "step %u, call %u: %lld, not %lld", step, call, (long long)has, (long long)allocated);
    heard_read();
    cr_assert(heard_allocated == allocated && heard_blocks == live,
              "step %u, call %u: %lld allocated in %lld by events", step, call, (long long)heard_allocated,
              (long long)heard_blocks);
    cr_assert(!plain || live == 2, "step %u, call %u: %lld blocks of two allocations", step, call, (long long)live);
    cr_assert_eq(lost[GP_LOST_ANNOTATION], losses, "step %u, call %u: %llu lost, not %llu", step, call,
                 (unsigned long long)lost[GP_LOST_ANNOTATION], (unsigned long long)losses);
    cr_assert_eq(lost[GP_LOST_MAP] + lost[GP_LOST_MISSED_FREE] + lost[GP_LOST_UNKNOWN_FREE], 0);
    struct gp_wire_framework framework, heaps;
    int64_t count = 0, bytes = 0;
    for (unsigned i = 0; i < 2 * UNITS; i++) {
        count += models[i / UNITS].blocks[i % UNITS].count > 0;
        bytes += models[i / UNITS].blocks[i % UNITS].count * (int64_t)UNIT;
    }
    if (gp_tap_framework(0, &framework, &heaps))
        cr_assert(heaps.blocks == count && heaps.allocated_bytes == bytes,
                  "step %u, call %u: sub-allocators have %lld blocks of %lld, not %lld of %lld", step, call,
                  (long long)heaps.blocks, (long long)heaps.allocated_bytes, (long long)count, (long long)bytes);
    int64_t walked = 0;
    if (step % 16 == 0)
        gp_tap_blocks(GP_TAP_EVERY, &walked, visit, no_rest);
    cr_assert(step % 16 || walked == allocated, "step %u, call %u: a walk finds %lld, not %lld", step, call,
              (long long)walked, (long long)allocated);
}

Test(heap, calls_that_contradict_what_is_known_change_nothing)
{
    uint64_t seed = 15;
    struct model models[2] = {{.at = BASE}, {.at = BASE + UNITS * UNIT}}; /* beside each other */
    for (unsigned m = 0; m < 2; m++)
        accounts_linear(models[m].at, UNITS * UNIT);
    cr_assert(gp_feed_heap_begin(BASE, UNIT)); /* the first: before it, a resize is not counted */
    models[0].heaps[0] = (struct piece){0, 1};
    unsigned plains = 0;
    for (unsigned step = 0; step < 20000; step++) {
        uint64_t random = next_random(&seed);
        /* A heap of the second that is too large reaches over its end; one of the first, into the second. */
        model_step(&models[random >> 48 & 1], random);
        for (unsigned i = 0; i < 2 * UNITS && step % 64 == 63; i++) /* now and then all heaps end */
            heap_ends(&models[i % 2], i / 2);
        /* After its last heap an allocation waits for the next one, or for any other call, before it is plain again. */
        bool settled = random >> 49 & 1, plain[] = {model_is_plain(&models[0]), model_is_plain(&models[1])};
        if (settled)
            gp_heap_settle();
        plains += plain[0] && plain[1] && settled;
        if (settled || (!plain[0] && !plain[1]))
            compare(models, plain[0] && plain[1], step, (unsigned)(random >> 32 & 15));
    }
    cr_assert_gt(plains, 20);
}

static int64_t live_blocks(void)
{
    struct gp_wire_device is;
    cr_assert(gp_tap_device(0, &is));
    return is.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current;
}

/* What lies beside a heap is allocated, one block on each side where there is something. */
Test(heap, memory_beside_the_heap_is_a_block_if_there_is_some)
{
    static const struct {
        unsigned from, count;
        int64_t live;
    } cases[] = {{0, UNITS, 0},     {0, 1, 1}, {0, UNITS - 1, 1}, {1, UNITS - 1, 1},
                 {UNITS - 1, 1, 1}, {1, 1, 2}, {1, UNITS - 2, 2}};
    accounts_linear(BASE, UNITS * UNIT);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t heap = BASE + cases[i].from * UNIT;
        cr_assert(gp_feed_heap_begin(heap, cases[i].count * UNIT));
        cr_expect_eq(live_blocks(), cases[i].live, "case %u: %lld", i, (long long)live_blocks());
        gp_feed_heap_end(heap);
        if (i % 2) /* else the next heap begins in the memory that waits for it */
            gp_heap_settle();
    }
    gp_heap_settle();
    cr_expect_eq(live_blocks(), 1);
    cr_expect_eq(lost[GP_LOST_ANNOTATION], 0);
}

/* The end of the range would be behind the last address. */
Test(heap, a_range_that_wraps_is_none)
{
    cr_expect_not(gp_feed_heap_begin(UINT64_MAX - UNIT + 1, UNIT));
    cr_expect_not(gp_feed_heap_begin(0, UNIT));
    cr_expect_not(gp_feed_heap_begin(BASE, 0));
    cr_expect_eq(lost[GP_LOST_ANNOTATION], 3);
}

/* The driver refuses to free memory with a heap: it is one block again, which can be freed. */
Test(heap, a_free_that_fails_leaves_the_memory_without_heaps)
{
    struct gp_wire_device is;
    accounts_linear(BASE, UNITS * UNIT);
    cr_assert(gp_feed_heap_begin(BASE + UNIT, 4 * UNIT));
    gp_feed_heap_block(BASE + UNIT, BASE + 2 * UNIT, UNIT);
    for (int ok = 0; ok < 2; ok++) {
        accounts_free(BASE, ok);
        gp_heap_settle();
        cr_assert(gp_tap_device(0, &is));
        cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, ok ? 0 : (int64_t)(UNITS * UNIT));
        cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, ok ? 0 : (int64_t)(UNITS * UNIT));
        cr_expect_eq(is.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current, !ok);
    }
    struct gp_wire_framework framework, heaps;
    gp_tap_framework(0, &framework, &heaps);
    cr_expect_eq(heaps.segments, 0);
    cr_expect_eq(heaps.reserved_bytes, 0);
}

static void expect_heaps(int64_t segments, int64_t blocks, int64_t allocated, const char *what)
{
    struct gp_wire_framework framework, heaps;
    struct gp_wire_device is;
    cr_assert(gp_tap_device(0, &is)); /* first: it settles the segments */
    cr_assert(gp_tap_framework(0, &framework, &heaps));
    cr_expect(heaps.segments == segments && heaps.blocks == blocks, "%s: %lld segments, %lld blocks", what,
              (long long)heaps.segments, (long long)heaps.blocks);
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, allocated * (int64_t)UNIT, "%s", what);
}

/* What ends with memory is what lies in it: by a free, by a new allocation at its address, or with its context. */
Test(heap, heaps_end_with_their_memory_and_no_other)
{
    const uint64_t places[] = {BASE, BASE + UNITS * UNIT, BASE + 5 * UNITS * UNIT};
    gp_feed_context_created(5, 0);
    gp_feed_context_created(6, 0);
    for (uint32_t turn = 0; turn < 3; turn++) {
        for (uint32_t i = 0; i < 3; i++) {
            gp_feed_alloc(&(struct gp_allocation){.space = GP_SPACE_DEVICE,
                                                  .kind = GP_KIND_LINEAR,
                                                  .ctx = i == 1 ? 6 : 5,
                                                  .address = places[i],
                                                  .bytes = UNITS * UNIT,
                                                  .requested_bytes = UNITS * UNIT});
            cr_assert(gp_feed_heap_begin(places[i], UNITS * UNIT));
            gp_feed_heap_block(places[i], places[i] + UNIT, 3 * UNIT);
        }
        expect_heaps(3, 3, 9, "three");
        if (turn == 0)
            accounts_free(places[1], true);
        else if (turn == 1)
            gp_feed_context_destroyed(6, 0, true);
        else
            accounts_linear(places[1], UNITS * UNIT);
        expect_heaps(2, 2, turn == 2 ? 6 + UNITS : 6, "without the one in the middle");
        gp_feed_heap_end(places[2]);
        expect_heaps(1, 1, turn == 2 ? 3 + 2 * UNITS : 3 + UNITS, "a heap has ended");
        accounts_free(places[2], true);
        accounts_free(places[1], true);
        accounts_free(places[0], true);
        expect_heaps(0, 0, 0, "all");
        cr_expect_eq(lost[GP_LOST_MISSED_FREE], turn == 2);
    }
    /* A context takes with it segments that have lost their last heap, and what waits to become plain. */
    for (uint32_t i = 0; i < 3; i++) {
        gp_feed_alloc(&(struct gp_allocation){.space = GP_SPACE_DEVICE,
                                              .kind = GP_KIND_LINEAR,
                                              .ctx = 5,
                                              .address = places[i],
                                              .bytes = UNITS * UNIT,
                                              .requested_bytes = UNITS * UNIT});
        cr_assert(gp_feed_heap_begin(places[i], UNITS * UNIT));
    }
    gp_feed_heap_end(places[0]);
    gp_feed_context_destroyed(5, 0, true);
    expect_heaps(0, 0, 0, "the context");
}

/* A thread frees memory, and before the driver has, another one begins a heap in it. */
Test(heap, memory_that_is_being_freed_has_no_heaps)
{
    accounts_linear(BASE, UNITS * UNIT);
    accounts_linear(BASE + UNITS * UNIT, UNITS * UNIT);
    cr_assert(gp_feed_heap_begin(BASE + UNITS * UNIT, UNITS * UNIT));
    gp_feed_heap_block(BASE + UNITS * UNIT, BASE + UNITS * UNIT, UNIT);
    for (int ok = 0; ok < 2; ok++) {
        uint32_t token = gp_feed_free_begin(GP_SPACE_DEVICE, BASE);
        cr_expect_not(gp_feed_heap_begin(BASE, UNITS * UNIT));
        gp_feed_free_end(token, ok, 0);
        expect_heaps(1, 1, ok ? 1 : 1 + UNITS, "a free");
    }
    cr_expect_eq(lost[GP_LOST_ANNOTATION], 0);
}

/* The memory was freed unseen, and its address is a plain allocation's: the end of the old heap leaves that alone. */
Test(heap, an_old_heap_is_not_the_new_memory_s)
{
    for (int ended = 0; ended < 2; ended++) {
        accounts_linear(BASE, UNITS * UNIT);
        cr_assert(gp_feed_heap_begin(BASE, UNITS * UNIT));
        gp_feed_heap_block(BASE, BASE + UNIT, 3 * UNIT);
        if (ended) /* and its segment waits to become plain */
            gp_feed_heap_end(BASE);
        struct gp_record record;
        cr_assert_eq(gp_map_take(gp_accounts.blocks, GP_SPACE_DEVICE, BASE, &record), 0);
        record.segment = GP_SEGMENT_NONE;
        cr_assert_eq(gp_map_insert(gp_accounts.blocks, &record, NULL), 0);
        gp_feed_heap_end(BASE);
        expect_heaps(1 + ended, 0, 0, "its blocks have ended");
        cr_assert_eq(gp_map_take(gp_accounts.blocks, GP_SPACE_DEVICE, BASE, &record), 0);
        cr_expect_eq(record.segment, GP_SEGMENT_NONE);
    }
}

/* The record of the memory is taken away behind the back of its heaps. */
Test(heap, heaps_of_memory_that_is_gone_make_room)
{
    struct gp_record record;
    accounts_linear(BASE, UNITS * UNIT);
    cr_assert(gp_feed_heap_begin(BASE + UNIT, UNIT));
    cr_assert(gp_feed_heap_begin(BASE + 4 * UNIT, UNIT));
    cr_assert_eq(gp_map_take(gp_accounts.blocks, GP_SPACE_DEVICE, BASE, &record), 0);
    accounts_linear(BASE, UNITS * UNIT);
    cr_expect(gp_feed_heap_begin(BASE, UNITS * UNIT));
    cr_expect_eq(lost[GP_LOST_ANNOTATION], 0);
}

/* A heap that cannot be joined to its memory leaves nothing behind: the second try is as the first. */
Test(heap, a_heap_in_memory_that_a_framework_divides_is_ignored)
{
    struct gp_record segment = {.space = GP_SPACE_DEVICE,
                                .key = BASE,
                                .bytes = UNITS * UNIT,
                                .kind = GP_KIND_LINEAR,
                                .segment = GP_SEGMENT_FRAMEWORK};
    struct gp_record found;
    struct gp_wire_device is;
    accounts_linear(BASE + UNITS * UNIT, UNIT);
    cr_assert_eq(gp_map_insert(gp_accounts.blocks, &segment, NULL), 0);
    for (unsigned i = 0; i < 3; i++) {
        cr_expect_not(gp_feed_heap_begin(BASE + i * UNIT, 4 * UNIT));
        gp_feed_heap_block(BASE + i * UNIT, BASE + i * UNIT, UNIT);
        cr_expect_eq(lost[GP_LOST_ANNOTATION], 0);
    }
    cr_assert_eq(gp_map_find(gp_accounts.blocks, GP_SPACE_DEVICE, BASE, &found), 0);
    cr_expect_eq(found.segment, GP_SEGMENT_FRAMEWORK);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, (int64_t)UNIT);
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, (int64_t)UNIT);
}

/* ---- blocks of a framework --------------------------------------------------------------------------------------- */

#define BLOCKS 64

static void framework_block(unsigned i, int64_t bytes)
{
    gp_feed_framework_block(&(struct gp_framework_event){.device = 0,
                                                         .address = BASE + i * (uint64_t)(4 * MIB),
                                                         .bytes = bytes,
                                                         .allocated_bytes = -1,
                                                         .reserved_bytes = -1},
                            GP_OWNER_UNKNOWN);
}

static void expect_value(const struct gp_wire_value *has, const int64_t want[3], const char *what, unsigned pool)
{
    cr_expect(has->current == want[0] && has->allocated == want[1] && has->freed == want[2],
              "%s, pool %u: %lld, %lld, %lld, not %lld, %lld, %lld", what, pool, (long long)has->current,
              (long long)has->allocated, (long long)has->freed, (long long)want[0], (long long)want[1],
              (long long)want[2]);
}

/* Sizes around 1 MiB, which divides the pools; the numbers are far below their peaks, where a thread counts alone. */
Test(heap, blocks_below_the_peak_are_in_their_pools)
{
    static const int64_t sizes[] = {512, MIB - 512, MIB, MIB + 512, 3 * MIB};
    int64_t held[BLOCKS] = {0}, count[3][3] = {{0}}, bytes[3][3] = {{0}}; /* of a pool: now, allocated, freed */
    uint64_t seed = 60;
    accounts_linear(BASE - (uint64_t)MIB, UNIT);
    gp_feed_framework_start("test");
    for (unsigned i = 0; i < BLOCKS; i++)
        framework_block(i, held[i] = 4 * MIB);
    for (unsigned i = 0; i < BLOCKS; i++)
        framework_block(i, -held[i]);
    memset(held, 0, sizeof(held));
    struct gp_wire_before_after said;
    cr_assert(gp_tap_reset(0, GP_RESET_ACCUMULATED, &said));
    struct gp_wire_device first, is;
    cr_assert(gp_tap_device(0, &first));
    for (unsigned step = 1; step <= 8000; step++) {
        uint64_t random = next_random(&seed);
        unsigned i = random % (BLOCKS / 4);
        bool begins = held[i] == 0;
        int64_t size = begins ? sizes[(random >> 32) % 5] : held[i];
        framework_block(i, begins ? size : -size);
        held[i] = begins ? size : 0;
        for (unsigned pool = 0; pool < 3; pool++) {
            if (pool != GP_POOL_ALL && (pool == GP_POOL_LARGE) != (size > MIB))
                continue;
            count[pool][0] += begins ? 1 : -1;
            count[pool][begins ? 1 : 2]++;
            bytes[pool][0] += begins ? size : -size;
            bytes[pool][begins ? 1 : 2] += size;
        }
        if (step % 1000)
            continue;
        cr_assert(gp_tap_device(0, &is));
        for (unsigned pool = 0; pool < 3; pool++) {
            int64_t base_count = first.stats[GP_STAT_ALLOCATION][pool].current;
            int64_t base_bytes = first.stats[GP_STAT_ALLOCATED_BYTES][pool].current;
            const int64_t counts[] = {base_count + count[pool][0], count[pool][1], count[pool][2]};
            const int64_t sums[] = {base_bytes + bytes[pool][0], bytes[pool][1], bytes[pool][2]};
            expect_value(&is.stats[GP_STAT_ALLOCATION][pool], counts, "blocks", pool);
            expect_value(&is.stats[GP_STAT_ACTIVE][pool], counts, "active blocks", pool);
            expect_value(&is.stats[GP_STAT_ALLOCATED_BYTES][pool], sums, "bytes", pool);
            expect_value(&is.stats[GP_STAT_ACTIVE_BYTES][pool], sums, "active bytes", pool);
        }
    }
}

/* ---- polled memory ----------------------------------------------------------------------------------------------- */

static void poll_pool(uint64_t pool, int64_t reserved, int64_t high)
{
    gp_feed_poll_begin(0);
    gp_feed_poll_pool(pool, reserved, high);
    gp_feed_poll_end(0);
}

/* The driver's watermark is unknown (0), so a peak is the largest value that was shown since the reset, and the totals
 * are those of what came and went between polls. */
Test(heap, a_polled_value_that_was_shown_is_in_the_peak)
{
    static const int64_t polls[] = {8, 5, 6, 30, 2, 2, 0, 31, 0};
    const uint64_t pool = 0x9000;
    int64_t last = 0, peak = 0, allocated = 0, freed = 0;
    gp_feed_pool_create(pool, 0, 0);
    for (unsigned i = 0; i < sizeof(polls) / sizeof(polls[0]); i++) {
        struct gp_wire_device is;
        poll_pool(pool, polls[i] * MIB, 0);
        cr_assert(gp_tap_device(0, &is));
        peak = polls[i] > peak ? polls[i] : peak;
        allocated += polls[i] > last ? polls[i] - last : 0;
        freed += polls[i] < last ? last - polls[i] : 0;
        last = polls[i];
        for (unsigned p = GP_POOL_ALL; p <= GP_POOL_LARGE; p += GP_POOL_LARGE - GP_POOL_ALL) {
            const struct gp_wire_value *stat = &is.stats[GP_STAT_RESERVED_BYTES][p];
            cr_expect_eq(stat->current, last * MIB, "poll %u", i);
            cr_expect_eq(stat->peak, peak * MIB, "poll %u: the peak is %lld", i, (long long)stat->peak);
            cr_expect_eq(stat->allocated, allocated * MIB, "poll %u", i);
            cr_expect_eq(stat->freed, freed * MIB, "poll %u", i);
        }
        cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].peak, 0);
        if (i == 4) { /* from here the peak is that of the values after it */
            struct gp_wire_before_after said;
            cr_assert(gp_tap_reset(0, GP_RESET_PEAKS, &said));
            cr_expect_eq(said.before[GP_STAT_RESERVED_BYTES].peak, 30 * MIB);
            peak = last;
        }
    }
}

/* What a pool held at a poll is not added to memory that came later, until a poll has shown that it still holds it. */
Test(heap, what_a_poll_read_is_added_to_the_own_memory_of_its_time)
{
    static const struct {
        int64_t poll, current, peak; /* poll -1: none */
    } steps[] = {{-1, 8, 8}, {2, 5, 8}, {8, 11, 11}, {0, 3, 11}};
    struct gp_wire_device is;
    gp_feed_pool_create(0x9000, 0, 0);
    poll_pool(0x9000, 8 * MIB, 8 * MIB);
    accounts_linear(BASE, (uint64_t)(3 * MIB));
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (steps[i].poll >= 0)
            poll_pool(0x9000, steps[i].poll * MIB, 8 * MIB);
        for (int again = 0; again < 2; again++) {
            cr_assert(gp_tap_device(0, &is));
            cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, steps[i].current * MIB, "step %u", i);
            cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].peak, steps[i].peak * MIB, "step %u", i);
            cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_LARGE].peak, steps[i].peak * MIB, "step %u", i);
        }
    }
}

static void poll_delayed(void (*meanwhile)(void))
{
    gp_feed_poll_begin(0);
    gp_feed_poll_pool(0x9000, 32 * MIB, 32 * MIB);
    meanwhile();
    gp_feed_poll_end(0);
}

static void meanwhile_linear(void)
{
    accounts_linear(BASE, (uint64_t)(32 * MIB));
}

static void meanwhile_swaps(void)
{
    gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, BASE), true, 0);
    accounts_linear(BASE, (uint64_t)(32 * MIB));
}

/* The driver answered late: in the meantime the pool gave its memory back, and the program took it. */
Test(heap, memory_that_came_while_the_driver_was_asked_is_not_added)
{
    void (*const meanwhile[])(void) = {meanwhile_linear, meanwhile_swaps};
    struct gp_wire_device is;
    gp_feed_pool_create(0x9000, 0, 0);
    for (int i = 0; i < 2; i++) {
        poll_delayed(meanwhile[i]);
        cr_assert(gp_tap_device(0, &is));
        cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].peak, 32 * MIB, "%d", i);
    }
    poll_pool(0x9000, 32 * MIB, 32 * MIB); /* it still holds it */
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, 64 * MIB);
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].peak, 64 * MIB);
}

/* A pool gives memory back, and another one takes it, between the questions for the two. */
Test(heap, two_pools_that_had_the_same_memory_count_once)
{
    struct gp_wire_device is;
    gp_feed_pool_create(0x9000, 0, 0);
    gp_feed_pool_create(0x9010, 0, 0);
    gp_feed_poll_begin(0);
    gp_feed_poll_pool(0x9000, 32 * MIB, 32 * MIB);
    gp_feed_poll_pool(0x9010, 32 * MIB, 32 * MIB);
    cr_assert(gp_feed_poll_again(0));
    gp_feed_poll_pool(0x9000, 0, 32 * MIB);
    gp_feed_poll_pool(0x9010, 32 * MIB, 32 * MIB);
    gp_feed_poll_end(0);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].peak, 32 * MIB);
}

/* A destroyed pool may have given some of its reserve back: that is not added to memory that came later. */
Test(heap, what_a_destroyed_pool_had_is_not_added_to_later_memory)
{
    struct gp_wire_device is;
    gp_feed_pool_create(0x9000, 0, 0);
    gp_pool_count(0x9000, 1);
    poll_pool(0x9000, 32 * MIB, 32 * MIB);
    gp_feed_pool_destroy_end(gp_feed_pool_destroy_begin(0x9000), true);
    accounts_linear(BASE, (uint64_t)(8 * MIB));
    gp_feed_poll_begin(0);
    gp_feed_poll_end(0);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, 32 * MIB);
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].peak, 32 * MIB);
}

/* Nothing is certain of a poll that is late, and a reset begins with what is. */
Test(heap, a_reset_while_the_driver_is_late_begins_without_the_reserve)
{
    struct gp_wire_before_after said;
    struct gp_wire_device is;
    gp_feed_pool_create(0x9000, 0, 0);
    poll_pool(0x9000, 8 * MIB, 8 * MIB);
    gp_feed_poll_late(true);
    cr_assert(gp_tap_device(0, &is) && is.flags & GP_DEVICE_LATE);
    cr_assert(gp_tap_reset(0, GP_RESET_PEAKS, &said));
    cr_expect_eq(said.before[GP_STAT_RESERVED_BYTES].current, 8 * MIB);
    cr_expect_eq(said.after[GP_STAT_RESERVED_BYTES].peak, 0);
    gp_feed_poll_late(false);
    poll_pool(0x9000, 8 * MIB, 8 * MIB);
    cr_assert(gp_tap_device(0, &is) && !(is.flags & GP_DEVICE_LATE));
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].peak, 8 * MIB);
}
