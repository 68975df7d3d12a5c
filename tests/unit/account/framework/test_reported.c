/* SPDX-License-Identifier: MIT
 *
 * test_reported.c: what TensorFlow's and PaddlePaddle's pools hand out, from their reports (src/account/framework/reported.c) to the accounts. The
 * loader is a stand-in, and so is TensorFlow's function. A model of two pools is compared with the accounts after each of thousands
 * of random calls; a call that contradicts it has to end the door.
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
#include <errno.h>
#include <string.h>

#define CHUNKS 64u
#define UNIT   256ull
#define UNITS  4096u /* of an allocation */
#define BASE   0x7000000000ull

static struct gp_wire_oom oom;
static uint32_t not_read;

/* ---- TensorFlow's library ------------------------------------------------------------------------------------------ */

typedef void trace(uint64_t pool, uint64_t length, const char *text, uint64_t address, uint64_t asked, uint64_t bytes);
static trace *hook;
static bool is_loaded, is_refused;
static unsigned restored, passed_on;
static uint64_t last[6];

static void original(uint64_t pool, uint64_t length, const char *text, uint64_t address, uint64_t asked, uint64_t bytes)
{
    passed_on++;
    memcpy(last, (uint64_t[6]){pool, length, (uint64_t)(uintptr_t)text, address, asked, bytes}, sizeof(last));
}

typedef void record(void *made, uint64_t address, const void *place, uint64_t bytes, int event);
static record *paddle;
static bool paddle_loaded;

static void paddle_original(void *made, uint64_t address, const void *place, uint64_t bytes, int event)
{
    passed_on++;
    memcpy(last, (uint64_t[5]){(uint64_t)(uintptr_t)made, address, (uint64_t)(uintptr_t)place, bytes, (uint64_t)event},
           40);
}

STANDIN(bool, gp_slots_replace, struct gp_slot_import *imports, unsigned count, const struct gp_slot_caller *caller)
{
    (void)caller;
    cr_assert_eq(count, 1);
    if (strcmp(imports->importer, "libpaddle.so") == 0) {
        imports->slots = paddle_loaded;
        imports->x_original = paddle_loaded ? (void *)paddle_original : NULL;
        paddle = (record *)imports->replacement;
        return true;
    }
    cr_assert_str_eq(imports->importer, "libtensorflow_framework");
    imports->slots = is_loaded;
    imports->refused = is_refused;
    imports->x_original = is_loaded ? (void *)original : NULL;
    hook = is_loaded && !is_refused ? (trace *)imports->replacement : original;
    return true;
}

STANDIN(bool, gp_slots_restore, struct gp_slot_import *imports, unsigned count)
{
    (void)imports, (void)count;
    restored++;
    return true;
}

static void setup(void)
{
    accounts_start(CHUNKS, (struct gp_feed_setup){.oom = &oom, .listened = &not_read, .map_limit = 1 << 20});
    cr_assert_eq(gp_owner_start(), 0);
    is_loaded = true;
}

TestSuite(reported, .init = setup, .fini = accounts_check, .timeout = 60);

static bool find(void)
{
    const struct gp_slot_caller caller = {0};
    return gp_reported_find(&caller);
}

static void driver_gives(uint64_t address, uint64_t bytes, enum gp_space space, enum gp_wire_kind kind)
{
    cr_assert(gp_thread_enter());
    accounts_block(space, kind, 0, address, (int64_t)bytes);
    gp_thread_leave();
}

static void driver_takes(uint64_t address)
{
    cr_assert(gp_thread_enter());
    accounts_free(address, true);
    gp_thread_leave();
}

/* The text has no end: a std::string_view has none. */
static void tell(const char *event, uint64_t pool, uint64_t address, uint64_t asked, uint64_t bytes)
{
    char text[32];
    memset(text, 'x', sizeof(text));
    memcpy(text, event, strlen(event));
    hook(pool, strlen(event), text, address, asked, bytes);
}

static void out(uint64_t pool, uint64_t address, uint64_t bytes)
{
    tell("MemoryAllocation", pool, address, bytes - 1, bytes);
}

static void back(uint64_t pool, uint64_t address, uint64_t bytes)
{
    tell("MemoryDeallocation", pool, address, bytes - 1, bytes);
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

/* ---- tests --------------------------------------------------------------------------------------------------------- */

Test(reported, allocated_is_what_the_pools_have_handed_out)
{
    static uint16_t units[2][UNITS]; /* of the piece that starts there */
    uint64_t state = 7;
    int64_t sum = 0, peak = 0;
    cr_assert(find());
    for (uint64_t p = 0; p < 2; p++) {
        driver_gives(BASE + p * 2 * UNITS * UNIT, UNITS * UNIT, GP_SPACE_DEVICE, GP_KIND_LINEAR);
        out(p + 1, BASE + p * 2 * UNITS * UNIT, UNIT);
        sum += (int64_t)UNIT;
        units[p][0] = 1;
    }
    for (unsigned step = 0; step < 20000; step++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        unsigned p = (unsigned)(state >> 33) % 2, at = (unsigned)(state >> 40) % UNITS;
        uint64_t address = BASE + p * 2 * UNITS * UNIT + at * UNIT;
        unsigned count = 1 + (unsigned)(state >> 52) % 64, room = 0;
        if (units[p][at]) {
            back(p + 1, address, units[p][at] * UNIT);
            sum -= (int64_t)(units[p][at] * UNIT);
            units[p][at] = 0;
        } else {
            bool inside = false;
            for (unsigned i = 0; i < at; i++)
                inside |= units[p][i] && i + units[p][i] > at;
            while (!inside && room < count && at + room < UNITS && !units[p][at + room])
                room++;
            if (room < count)
                continue;
            out(p + 1, address, count * UNIT);
            sum += (int64_t)(count * UNIT);
            units[p][at] = (uint16_t)count;
        }
        peak = sum > peak ? sum : peak;
        cr_assert_eq(ALLOCATED, sum, "step %u: %lld, not %lld", step, (long long)ALLOCATED, (long long)sum);
        cr_assert_eq(RESERVED, 2 * (int64_t)(UNITS * UNIT));
        cr_assert_eq(stat_of(GP_STAT_ALLOCATED_BYTES, true), peak);
    }
    struct gp_wire_doors is = doors();
    cr_expect(is.doors[0].state == GP_WIRE_DOOR_EXACT && is.row_count == 1);
    cr_expect_str_eq(is.doors[0].name, "tensorflow");
    cr_expect(is.rows[0].allocated_bytes == sum && is.rows[0].reserved_bytes == RESERVED && is.rows[0].pools == 2);
    driver_takes(BASE);
    driver_takes(BASE + 2 * UNITS * UNIT);
    cr_expect(ALLOCATED == 0 && RESERVED == 0 && doors().rows[0].pieces == 0);
}

/* Pinned memory has such a pool too; and what the driver gave before an attach is not known. */
Test(reported, pieces_elsewhere_are_ignored)
{
    cr_assert(find());
    driver_gives(BASE, UNITS * UNIT, GP_SPACE_HOST, GP_KIND_PINNED);
    int64_t before = ALLOCATED;
    for (uint64_t at = BASE; at <= 2 * BASE; at += BASE) {
        out(1, at, UNIT);
        back(1, at, UNIT);
        back(1, at + UNIT, UNIT);
    }
    cr_expect_eq(doors().doors[0].state, GP_WIRE_DOOR_EXACT);
    cr_expect_eq(ALLOCATED, before);
}

static void contradict(unsigned how)
{
    switch (how) {
    case 0:
        out(1, BASE, UNIT); /* it is handed out twice */
        break;
    case 1:
        back(1, BASE + 32 * UNIT, UNIT); /* it comes back twice */
        break;
    case 2:
        out(1, BASE + 32 * UNIT, UNIT + 1); /* no unit */
        break;
    case 3:
        tell("MemoryAllocation", 1, BASE + 32 * UNIT, 2 * UNIT, UNIT); /* less than was asked for */
        break;
    case 4:
        tell("MemoryAllocated", 1, BASE + 32 * UNIT, UNIT, UNIT); /* another event */
        break;
    default:
        out(1, BASE + (UNITS - 1) * UNIT, 2 * UNIT); /* over the end */
    }
}

static void expect_end(unsigned how, const char *why)
{
    cr_assert(find());
    driver_gives(BASE, UNITS * UNIT, GP_SPACE_DEVICE, GP_KIND_LINEAR);
    out(1, BASE, 2 * UNIT);
    cr_expect_eq(ALLOCATED, 2 * UNIT);
    contradict(how);
    cr_expect_eq(doors().doors[0].state, GP_WIRE_DOOR_OFF);
    cr_expect_str_eq(doors().doors[0].text, why);
    cr_expect_eq(ALLOCATED, UNITS * UNIT, "as a whole");
    out(1, BASE + 8 * UNIT, UNIT); /* nothing more is counted, and all is passed on */
    cr_expect(find() && ALLOCATED == UNITS * UNIT && passed_on == 3);
}

#define TWICE   "a piece lies where another one is"
#define NEVER   "a piece came back that was not handed out"
#define UNKNOWN "this version of TensorFlow is not known"
#define ENDS(_name, _how, _why)                                                                                        \
    Test(reported, _name##_ends_it)                                                                                    \
    {                                                                                                                  \
        expect_end(_how, _why);                                                                                        \
    }
ENDS(a_piece_that_is_out_already, 0, TWICE)
ENDS(a_piece_that_was_not_out, 1, NEVER)
ENDS(another_unit, 2, UNKNOWN)
ENDS(less_than_was_asked_for, 3, UNKNOWN)
ENDS(another_event, 4, UNKNOWN)
ENDS(a_piece_over_the_end, 5, TWICE)

Test(reported, tensorflow_gets_its_call_as_it_was)
{
    cr_assert(find());
    const char text[] = "MemoryAllocation";
    errno = EDOM;
    hook(5, 16, text, BASE, 17, UNIT);
    cr_expect_eq(errno, EDOM);
    cr_expect_arr_eq(last, ((uint64_t[6]){5, 16, (uint64_t)(uintptr_t)text, BASE, 17, UNIT}), sizeof(last));
}

Test(reported, not_loaded_is_not_there)
{
    is_loaded = false;
    cr_expect(find());
    cr_expect_eq(doors().door_count, 0);
    is_loaded = true; /* later */
    cr_expect(find());
    cr_expect_eq(doors().doors[0].state, GP_WIRE_DOOR_EXACT);
    gp_reported_restore();
    cr_expect_eq(restored, 1);
}

Test(reported, calls_that_cannot_be_changed)
{
    is_refused = true;
    cr_expect(find());
    cr_expect_eq(doors().doors[0].state, GP_WIRE_DOOR_OFF);
    cr_expect_str_eq(doors().doors[0].text, "its calls cannot be changed");
    cr_expect_eq(restored, 1);
}

/* ---- PaddlePaddle -------------------------------------------------------------------------------------------------- */

static void paddle_start(void)
{
    is_loaded = false;
    paddle_loaded = true;
    cr_assert(find());
    driver_gives(BASE, UNITS * UNIT, GP_SPACE_DEVICE, GP_KIND_LINEAR);
}

Test(reported, paddle_tells_of_pieces_and_of_much_else)
{
    int made, place;
    paddle_start();
    paddle(&made, BASE, &place, UNITS * UNIT, 2); /* what it took from the driver */
    paddle(&made, BASE, &place, 4 * UNIT, 0);
    paddle(&made, BASE + 4 * UNIT, &place, UNIT, 0);
    paddle(&made, 16, &place, 100, 0); /* of the host */
    cr_expect_eq(ALLOCATED, 5 * UNIT);
    paddle(&made, BASE, &place, 4 * UNIT, 1);
    paddle(&made, 16, &place, 100, 1);
    paddle(&made, 0, &place, 0, 0);
    cr_expect_eq(ALLOCATED, UNIT);
    cr_expect_eq(stat_of(GP_STAT_ALLOCATED_BYTES, true), 5 * UNIT);
    cr_expect_eq(RESERVED, UNITS * UNIT);
    cr_expect_eq(passed_on, 7);
    cr_expect_arr_eq(last, ((uint64_t[5]){(uint64_t)(uintptr_t)&made, 0, (uint64_t)(uintptr_t)&place, 0, 0}), 40);
    struct gp_wire_doors is = doors();
    cr_expect(is.door_count == 1 && is.doors[0].state == GP_WIRE_DOOR_EXACT && is.rows[0].pieces == 1);
    cr_expect_str_eq(is.doors[0].name, "paddle");
}

Test(reported, paddle_with_another_event_ends_it)
{
    int made, place;
    paddle_start();
    paddle(&made, BASE, &place, 4 * UNIT, 0);
    paddle(&made, BASE + 4 * UNIT, &place, UNIT, 4);
    cr_expect_eq(doors().doors[0].state, GP_WIRE_DOOR_OFF);
    cr_expect_str_eq(doors().doors[0].text, "this version of PaddlePaddle is not known");
    cr_expect_eq(ALLOCATED, UNITS * UNIT);
}
