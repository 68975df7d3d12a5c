/* SPDX-License-Identifier: MIT
 *
 * test_rmm.c: what RMM's pools hand out, from the calls of their functions (src/account/framework/rmm.c) to the accounts. The functions are
 * stand-ins that return what RMM's do, in memory or in registers; so is the loader, which names them. A model of the pools is
 * compared with the accounts after each of thousands of random calls; a call that contradicts it has to end the door.
 */
#include "account/feed/feed.h"
#include "account/feed/start.h"
#include "account/framework/internal.h"
#include "account/tap.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include "lib/standin.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <string.h>

#if defined(__x86_64__)

#define CHUNKS 64u
#define UNIT   256ull
#define UNITS  4096u /* of an allocation */
#define BASE   0x7000000000ull

static struct gp_wire_oom oom;
static uint32_t not_read;

/* ---- the loader --------------------------------------------------------------------------------------------------- */

static const char *const symbols[] = {
    "_ZN3rmm10_RMM_26_102mr6detail25pool_memory_resource_impl19block_from_upstreamEmN4cuda3__410stream_refE",
    "_ZN3rmm10_RMM_26_102mr6detail25pool_memory_resource_impl19allocate_from_blockERKNS2_5blockEm",
    "_ZN3rmm10_RMM_26_102mr6detail25pool_memory_resource_impl10free_blockEPvm",
    "_ZN3rmm10_RMM_26_102mr6detail31fixed_size_memory_resource_impl19allocate_from_blockERKNS2_10block_baseEm",
    "_ZN3rmm10_RMM_26_102mr6detail31fixed_size_memory_resource_impl10free_blockEPvm",
    "_ZN3rmm10_RMM_26_102mr6detail26arena_memory_resource_impl8allocateEN4cuda3__410stream_refEmm",
    "_ZN3rmm10_RMM_26_102mr6detail26arena_memory_resource_impl10deallocateEN4cuda3__410stream_refEPvmm",
};
enum { GROW, CUT, BACK, CUT_FIXED, BACK_FIXED, ALLOC, FREE, FUNCTIONS };

struct result {
    uint64_t low, high;
};
typedef struct result function(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e);
static function *hooks[FUNCTIONS];
static unsigned copies = 1, missing = FUNCTIONS, restored, named;
static uint32_t is_refused;

STANDIN(unsigned, gp_door_names, const char *library, const char *const *forms, unsigned count,
        char (*names)[GP_DOOR_NAME])
{
    cr_assert_str_eq(library, "librmm");
    named++;
    memset(names, 0, count * sizeof(*names));
    for (unsigned f = 0; f < count; f++)
        for (unsigned s = 0; s < FUNCTIONS; s++)
            if (s != missing && gp_door_form(forms[f], symbols[s]))
                strcpy(names[f], symbols[s]);
    return copies;
}

static uint64_t answer[8]; /* what a function writes where its result goes */
static bool in_memory;     /* a pool's functions return so */
static uint64_t answers;   /* in a register */

static struct result original(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    (void)b, (void)c, (void)d, (void)e;
    if (!in_memory)
        return (struct result){answers, 0};
    memcpy((void *)(uintptr_t)a, answer, 48);
    return (struct result){a, 0};
}

STANDIN(bool, gp_slots_replace, struct gp_slot_import *imports, unsigned count, const struct gp_slot_caller *caller)
{
    (void)caller;
    for (unsigned i = 0; i < count; i++) {
        imports[i].slots = imports[i].name[0] != '\0';
        imports[i].refused = is_refused;
        imports[i].copies = imports[i].name[0] ? copies : 0;
        imports[i].x_original = imports[i].name[0] ? (void *)original : NULL;
        cr_assert(strcmp(imports[i].definer, "librmm") == 0 && strcmp(imports[i].user, "librmm") == 0);
        for (unsigned s = 0; s < FUNCTIONS; s++)
            if (strcmp(imports[i].name, symbols[s]) == 0)
                hooks[s] = (function *)imports[i].replacement;
    }
    return true;
}

STANDIN(bool, gp_slots_restore, struct gp_slot_import *imports, unsigned count)
{
    (void)imports, (void)count;
    restored++;
    return true;
}

/* ---- the pools ----------------------------------------------------------------------------------------------------- */

static void setup(void)
{
    accounts_start(CHUNKS, (struct gp_feed_setup){.oom = &oom, .listened = &not_read, .map_limit = 1 << 20});
    cr_assert_eq(gp_owner_start(), 0);
}

TestSuite(rmm, .init = setup, .fini = accounts_check, .timeout = 60);

static void driver_gives(uint64_t address, uint64_t bytes)
{
    cr_assert(gp_thread_enter());
    accounts_block(GP_SPACE_DEVICE, GP_KIND_LINEAR, 0, address, (int64_t)bytes);
    gp_thread_leave();
}

static void driver_takes(uint64_t address)
{
    cr_assert(gp_thread_enter());
    accounts_free(address, true);
    gp_thread_leave();
}

static void grow(uint64_t pool, uint64_t address, uint64_t bytes)
{
    uint64_t result[6];
    in_memory = true;
    memcpy(answer, (uint64_t[6]){address, bytes, 1}, 48);
    hooks[GROW]((uint64_t)(uintptr_t)result, pool, bytes, 0, 0);
}

/* A piece from the front of a free block, returned as RMM's pools do, or as its blocks of one size are. */
static void cut(uint64_t pool, uint64_t address, uint64_t bytes, bool fixed)
{
    uint64_t result[6], block[3] = {address, 16 * bytes, 0}, at = (uint64_t)(uintptr_t)block;
    memcpy(answer, (uint64_t[6]){address, bytes}, 48);
    in_memory = !fixed;
    answers = address;
    if (fixed)
        hooks[CUT_FIXED](pool, at, bytes, 0, 0);
    else
        hooks[CUT]((uint64_t)(uintptr_t)result, pool, at, bytes, 0);
}

static void back(uint64_t pool, uint64_t address, uint64_t bytes, bool fixed)
{
    uint64_t result[6];
    memcpy(answer, (uint64_t[6]){address, bytes}, 48);
    in_memory = !fixed;
    answers = address;
    if (fixed)
        hooks[BACK_FIXED](pool, address, bytes, 0, 0);
    else
        hooks[BACK]((uint64_t)(uintptr_t)result, pool, address, bytes, 0);
}

static void arena_alloc(uint64_t arena, uint64_t address, uint64_t bytes)
{
    in_memory = false;
    answers = address;
    hooks[ALLOC](arena, 0, bytes, UNIT, 0);
}

static void arena_free(uint64_t arena, uint64_t address, uint64_t bytes)
{
    in_memory = false;
    hooks[FREE](arena, 0, address, bytes, UNIT);
}

static void open_door(void)
{
    const struct gp_slot_caller caller = {0};
    copies = 1, missing = FUNCTIONS, is_refused = 0;
    cr_assert(gp_rmm_find(&caller));
}

static int64_t stat_of(enum gp_wire_stat stat, bool peak)
{
    struct gp_wire_device is;
    cr_assert(gp_tap_device(0, &is));
    cr_assert_eq(is.flags & GP_DEVICE_UNSOUND, 0);
    return peak ? is.stats[stat][GP_POOL_ALL].peak : is.stats[stat][GP_POOL_ALL].current;
}
#define ALLOCATED stat_of(GP_STAT_ALLOCATED_BYTES, false)
#define RESERVED  stat_of(GP_STAT_RESERVED_BYTES, false)

static struct gp_wire_doors doors(void)
{
    static struct gp_wire_doors all;
    gp_tap_doors(&all);
    return all;
}

static void expect_shut(const char *why)
{
    struct gp_wire_doors is = doors();
    cr_expect_eq(is.door_count, 1);
    cr_expect_eq(is.doors[0].state, GP_WIRE_DOOR_OFF);
    cr_expect_str_eq(is.doors[0].name, "rmm");
    cr_expect_str_eq(is.doors[0].text, why);
}

/* ---- tests --------------------------------------------------------------------------------------------------------- */

Test(rmm, names_have_forms)
{
    static const char form[] = "_ZN3rmm#2mr6detail3fooERKNS*_5blockEm";
    cr_expect(gp_door_form(form, "_ZN3rmm2mr6detail3fooERKNS1_5blockEm"));
    cr_expect(gp_door_form(form, "_ZN3rmm10_RMM_26_102mr6detail3fooERKNS2_5blockEm"));
    static const char *const others[] = {"",
                                         "_ZN3rmm",
                                         "_ZN3rmm2mr6detail3fooERKNS1_5blockEmx",
                                         "_ZN3rmm2mr6detail3fooERKNS1_5blockE",
                                         "_ZN3rmm5other2mr6detail3fooERKNS1_5blockEm",
                                         "_ZN3rmm99_RMM_26_102mr6detail3fooERKNS2_5blockEm",
                                         "_ZN3rmm10_rmm_26_102mr6detail3fooERKNS2_5blockEm",
                                         "_ZN3rmm10_RMM"};
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        cr_expect(!gp_door_form(form, others[i]), "%s", others[i]);
}

/* Two pools and an arena over three allocations of the driver. */
Test(rmm, allocated_is_what_the_pools_have_handed_out)
{
    static uint16_t units[3][UNITS]; /* of the piece that starts there */
    uint64_t state = 7;
    int64_t sum = 0, peak = 0;
    open_door();
    for (uint64_t p = 0; p < 3; p++) {
        driver_gives(BASE + p * 2 * UNITS * UNIT, UNITS * UNIT);
        if (p == 0)
            grow(1, BASE, UNITS * UNIT);
    }
    for (unsigned step = 0; step < 20000; step++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        unsigned p = (unsigned)(state >> 33) % 3, at = (unsigned)(state >> 40) % UNITS;
        uint64_t address = BASE + p * 2 * UNITS * UNIT + at * UNIT;
        unsigned count = 1 + (unsigned)(state >> 52) % 64, room = 0;
        if (units[p][at]) {
            uint64_t bytes = units[p][at] * UNIT;
            p == 2 ? arena_free(3, address, bytes) : back(p + 1, address, bytes, p == 1);
            sum -= (int64_t)bytes;
            units[p][at] = 0;
        } else {
            bool inside = false;
            for (unsigned i = 0; i < at; i++)
                inside |= units[p][i] && i + units[p][i] > at;
            while (!inside && room < count && at + room < UNITS && !units[p][at + room])
                room++;
            if (room < count)
                continue;
            /* An arena rounds up to whole units. */
            p == 2 ? arena_alloc(3, address, count * UNIT - state % 255) : cut(p + 1, address, count * UNIT, p == 1);
            sum += (int64_t)(count * UNIT);
            units[p][at] = (uint16_t)count;
        }
        peak = sum > peak ? sum : peak;
        if (step < 10) /* a pool without a piece is an ordinary allocation, which the peak forgets at its first */
            continue;
        cr_assert_eq(ALLOCATED, sum, "step %u: %lld, not %lld", step, (long long)ALLOCATED, (long long)sum);
        cr_assert_eq(RESERVED, 3 * (int64_t)(UNITS * UNIT));
    }
    struct gp_wire_doors is = doors();
    cr_expect(is.doors[0].state == GP_WIRE_DOOR_EXACT && is.row_count == 1);
    cr_expect(is.rows[0].allocated_bytes == sum && is.rows[0].reserved_bytes == RESERVED && is.rows[0].pools == 3);
    for (uint64_t p = 0; p < 3; p++)
        driver_takes(BASE + p * 2 * UNITS * UNIT);
    cr_expect(ALLOCATED == 0 && RESERVED == 0);
    cr_expect_eq(doors().rows[0].pieces, 0);
}

/* The peak never has a pool as a whole, whatever comes between its memory and its first piece. */
Test(rmm, a_pool_is_none_of_the_peak)
{
    open_door();
    driver_gives(BASE, UNITS * UNIT);
    grow(1, BASE, UNITS * UNIT);
    driver_gives(2 * BASE, UNIT);
    cut(1, BASE, 2 * UNIT, false);
    cr_expect_eq(ALLOCATED, 3 * UNIT);
    cr_expect_eq(stat_of(GP_STAT_ALLOCATED_BYTES, true), 3 * UNIT);
}

/* A pool that takes its memory from another pool, and hands out all of it. */
Test(rmm, pieces_inside_pieces_count_once)
{
    open_door();
    driver_gives(BASE, UNITS * UNIT);
    cut(1, BASE, 64 * UNIT, false);
    grow(2, BASE, 64 * UNIT);
    cut(2, BASE, 64 * UNIT, false);
    back(2, BASE, 64 * UNIT, false);
    cut(2, BASE + 8 * UNIT, UNIT, true);
    cr_expect_eq(ALLOCATED, 64 * UNIT);
    back(2, BASE + 8 * UNIT, UNIT, true);
    back(1, BASE, 64 * UNIT, false);
    cr_expect_eq(ALLOCATED, 0);
    cr_expect_eq(doors().doors[0].state, GP_WIRE_DOOR_EXACT);
}

/* Memory that the driver never gave, or that a heap cannot be in. */
Test(rmm, pieces_elsewhere_are_ignored)
{
    open_door();
    cut(1, BASE, UNIT, false);
    back(1, BASE, UNIT, false);
    back(1, BASE + UNIT, UNIT, false);
    cr_expect_eq(doors().doors[0].state, GP_WIRE_DOOR_EXACT);
    cr_expect_eq(doors().row_count, 0);
}

static void contradict(unsigned how)
{
    uint64_t result[6], block[3] = {BASE, 64 * UNIT, 0}, at = (uint64_t)(uintptr_t)block;
    switch (how) {
    case 0: /* it is handed out twice */
        cut(1, BASE + UNIT, UNIT, false);
        break;
    case 1: /* it comes back twice */
        back(1, BASE + 32 * UNIT, UNIT, false);
        break;
    case 2: /* not at the front of its block */
        in_memory = true;
        answer[0] = BASE + UNIT;
        hooks[CUT]((uint64_t)(uintptr_t)result, 1, at, UNIT, 0);
        break;
    case 3: /* another size */
        cut(1, BASE + 32 * UNIT, UNIT + 1, false);
        break;
    case 4: /* another result */
        in_memory = false;
        answers = 0;
        hooks[BACK](1, BASE, 2 * UNIT, 0, 0);
        break;
    default:
        cr_assert_fail("no such contradiction");
    }
}

static void expect_end(unsigned how, const char *why)
{
    open_door();
    driver_gives(BASE, UNITS * UNIT);
    cut(1, BASE, 2 * UNIT, false);
    cr_expect_eq(ALLOCATED, 2 * UNIT);
    contradict(how);
    expect_shut(why);
    cr_expect(ALLOCATED == UNITS * UNIT && RESERVED == UNITS * UNIT);
    cut(1, BASE + 32 * UNIT, UNIT, false); /* goes on to RMM, and is nothing here */
    back(1, BASE, 2 * UNIT, false);
    cr_expect_eq(ALLOCATED, UNITS * UNIT);
}

Test(rmm, a_piece_on_another_one_ends_it)
{
    expect_end(0, "a piece lies where another one is");
}

Test(rmm, a_piece_that_was_not_handed_out_ends_it)
{
    expect_end(1, "a piece came back that was not handed out");
}

Test(rmm, a_piece_from_the_middle_of_its_block_ends_it)
{
    expect_end(2, "this version of RMM is not known");
}

Test(rmm, a_piece_of_another_size_ends_it)
{
    expect_end(3, "this version of RMM is not known");
}

Test(rmm, another_result_ends_it)
{
    expect_end(4, "this version of RMM is not known");
}

Test(rmm, an_unknown_version_stays_shut)
{
    const struct gp_slot_caller caller = {0};
    copies = 0;
    cr_expect(gp_rmm_find(&caller));
    cr_expect_eq(doors().door_count, 0, "not loaded");
    copies = 1, missing = BACK_FIXED;
    cr_expect(gp_rmm_find(&caller));
    expect_shut("this version of RMM is not known");
    cr_expect_eq(restored, 1);
    driver_gives(BASE, UNITS * UNIT);
    cut(1, BASE, UNIT, false);
    cr_expect_eq(ALLOCATED, UNITS * UNIT);
}

Test(rmm, calls_that_cannot_be_changed)
{
    const struct gp_slot_caller caller = {0};
    is_refused = 1;
    cr_expect(gp_rmm_find(&caller));
    expect_shut("its calls cannot be changed");
    cr_expect_eq(restored, 1);
}

Test(rmm, a_second_copy_ends_it)
{
    const struct gp_slot_caller caller = {0};
    open_door();
    driver_gives(BASE, UNITS * UNIT);
    cut(1, BASE, UNIT, false);
    cr_expect_eq(ALLOCATED, UNIT);
    cr_expect(gp_rmm_find(&caller) && ALLOCATED == UNIT);
    copies = 2;
    cr_expect(gp_rmm_find(&caller));
    cr_expect_eq(named, 1, "its names are read once");
    expect_shut("two copies of librmm.so are loaded");
    cr_expect_eq(ALLOCATED, UNITS * UNIT);
}

#endif
