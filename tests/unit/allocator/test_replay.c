/* SPDX-License-Identifier: MIT
 *
 * test_replay.c: histories of a framework's requests, replayed with other settings. The programs are those of users'
 * reports; tests/real/torch_oom.py compares many more with PyTorch.
 */
#include <account/feed/failed.h>
#include <allocator/internal.h>
#include <gpuprof/wire.h>

#include <criterion/criterion.h>

#define MIB (1ull << 20)

static uint64_t history[64];
static struct gp_feed_replay replay;

static void begin(uint64_t asked, uint64_t reserved, uint64_t free)
{
    replay = (struct gp_feed_replay){.history = history,
                                     .asked_bytes = asked * MIB,
                                     .reserved_bytes = reserved * MIB,
                                     .peak_bytes = reserved * MIB,
                                     .free_bytes = free * MIB,
                                     .conf = ""};
}

static unsigned made(uint64_t mib)
{
    history[replay.count++] = mib * MIB << 2 | GP_HISTORY_ALLOC;
    return replay.allocs++;
}

static void freed(unsigned number)
{
    history[replay.count++] = (uint64_t)number << 2 | GP_HISTORY_FREE;
}

static void emptied(void)
{
    history[replay.count++] = GP_HISTORY_TRIM;
}

#define TRY(_name) (1u << GP_OOM_TRY_##_name)
#define REPLAYED(_agrees, _helps, _fails)                                                                              \
    do {                                                                                                               \
        gp_replay(&replay);                                                                                            \
        cr_expect(replay.agrees == (_agrees) && replay.helps == (_helps) && replay.fails == (_fails),                  \
                  "line %d: agrees %d, helps %x, fails %x", __LINE__, replay.agrees, replay.helps, replay.fails);      \
    } while (0)

/* A small block in a large segment that was freed before. */
static void small_in_large(uint64_t asked)
{
    begin(asked, 1000, 1044);
    freed(made(1000));
    made(30);
}

Test(replay, a_small_block_holds_a_large_segment)
{
    small_in_large(1200);
    REPLAYED(true, TRY(EXPANDABLE) | TRY(SPLIT), 0);
    cr_expect_eq(replay.split_bytes, 600 * MIB);
    small_in_large(2044 - 40); /* two pages of 20 MiB have the block */
    REPLAYED(true, TRY(EXPANDABLE) | TRY(SPLIT), 0);
    small_in_large(2044 - 20);
    REPLAYED(true, 0, TRY(EXPANDABLE));
}

/* Holes of 9 MiB in segments of 20: no whole page is idle. */
Test(replay, holes_that_are_smaller_than_a_page)
{
    begin(400, 400, 300);
    for (unsigned i = 0; i < 20; i++) {
        unsigned hole = made(9);
        made(9);
        freed(hole), replay.count--; /* later, or the next one gets it */
    }
    for (unsigned i = 0; i < 20; i++)
        freed(2 * i);
    REPLAYED(true, 0, TRY(EXPANDABLE));
}

/* What the model does not explain proves nothing. */
Test(replay, another_state_is_no_proof)
{
    small_in_large(1200);
    replay.reserved_bytes += 2 * MIB;
    REPLAYED(false, 0, 0);
    small_in_large(900); /* it would have been served */
    REPLAYED(false, 0, 0);
    small_in_large(1200);
    history[2] = (999 * MIB + 1) << 2 | GP_HISTORY_ALLOC; /* no block has such a size */
    REPLAYED(false, 0, 0);
    small_in_large(1200);
    replay.conf = "unknown:1";
    REPLAYED(false, 0, 0);
}

Test(replay, an_emptied_cache)
{
    begin(1500, 30, 1400);
    freed(made(1000));
    emptied();
    made(30);
    REPLAYED(true, 0, TRY(EXPANDABLE));
}

/* The limit lies between what was held at most and what this would have needed. */
Test(replay, its_own_limit)
{
    small_in_large(1200);
    replay.flags = GP_OOM_REFUSED;
    replay.free_bytes = 3000 * MIB;
    REPLAYED(true, TRY(FRACTION), 0); /* expandable segments: with a limit of 1000 MiB no, of 2199 yes */
    small_in_large(1200);
    replay.flags = GP_OOM_REFUSED;
    replay.free_bytes = 1100 * MIB;
    REPLAYED(true, 0, TRY(FRACTION));
    small_in_large(1200); /* PyTorch's setting for it is of the whole device */
    replay.flags = GP_OOM_REFUSED;
    replay.free_bytes = 3000 * MIB;
    replay.conf = "per_process_memory_fraction:0.3";
    REPLAYED(true, TRY(FRACTION), 0);
}

/* Another library asks for 1200 MiB: what would PyTorch have left? */
Test(replay, beside_another_library)
{
    small_in_large(1200);
    replay.flags = GP_OOM_BESIDE;
    REPLAYED(true, 0, TRY(EXPANDABLE)); /* it once had 1000 at a time, and pages stay mapped */
    begin(900, 1300, 744);
    replay.flags = GP_OOM_BESIDE;
    freed(made(600));
    made(700);
    REPLAYED(true, TRY(FRACTION) | TRY(EXPANDABLE), 0);
    /* Where the other library has had memory at times that are not known, PyTorch must never be in its way. */
    begin(900, 1300, 144);
    replay.flags = GP_OOM_BESIDE;
    replay.others_bytes = 600 * MIB;
    freed(made(600));
    made(700);
    REPLAYED(true, 0, TRY(EXPANDABLE));
}

Test(replay, a_history_that_is_not_sound)
{
    begin(1200, 30, 100);
    freed(3); /* never made */
    made(30);
    replay.allocs = 0; /* fewer than there are */
    REPLAYED(false, 0, 0);
}
