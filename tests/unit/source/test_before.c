/* SPDX-License-Identifier: MIT
 *
 * test_before.c: the memory that a program had before gpuprof was attached: which addresses the driver is asked for, and what
 * becomes of the number while the program goes on.  The driver is a list of allocations in mappings of this process; the
 * program frees one of them while the driver answers.  test_beforemaps.c has which mappings may be the driver's.
 */
#include "account/feed/before.h"
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/start.h"
#include "account/tap.h"
#include "base/thread.h"
#include "lib/accounts.h"
#include "lib/random.h"
#include "source/internal.h"
#include <criterion/criterion.h>
#include <source/before.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MIB   ((uint64_t)1 << 20)
#define UNIT  (2 * MIB)
#define UNITS 64u
#define ROWS  4096u
#define GPUS  2

static void setup(void)
{
    accounts_start(8, (struct gp_feed_setup){.map_limit = 1 << 20, .late = true});
    cr_assert(gp_thread_enter());
    gp_feed_context_created(1, 0);
    gp_feed_context_created(2, 1);
    gp_feed_before_start();
}

TestSuite(before, .init = setup, .timeout = 60);

/* The look asks for each unit of the sanitizer's mappings, which are terabytes, and is over before it comes to the rest. */
static void skip_if_mappings_are_vast(void)
{
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("the sanitizer's mappings take the whole second");
#endif
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

struct row {
    uint64_t address, bytes; /* bytes 0: none */
    int device;
    bool managed, left_out; /* left_out: no address of it is asked for */
};

static struct row rows[ROWS];
static unsigned row_count;
static uint64_t asked, asked_below, asked_from, asked_to; /* calls; how many were in [from, to) */
static unsigned ask_at_most = ~0u;                        /* then the driver may not be asked any more */
static bool frees_meanwhile;

static bool ask(uint64_t address, struct gp_before_range *out)
{
    asked++;
    asked_below += address >= asked_from && address < asked_to;
    *out = (struct gp_before_range){.device = -1};
    for (unsigned i = 0; i < row_count; i++) {
        struct row *row = &rows[i];
        if (!row->bytes || address < row->address || address - row->address >= row->bytes)
            continue;
        *out =
            (struct gp_before_range){row->address, row->bytes, row->device, (void *)(row->device + 1ul), !row->managed};
        if (frees_meanwhile && draw_below(3) == 0) { /* after the answer, and before it is noted */
            struct row *gone = draw_below(2) ? row : &rows[draw_below(row_count)];
            gp_feed_unknown_free(GP_SPACE_DEVICE, gone->address);
            gone->bytes = 0;
        }
        break;
    }
    return asked <= ask_at_most;
}

static uint32_t number(void *context)
{
    return (uint32_t)(uintptr_t)context;
}

static void *place(uint64_t bytes, int protection, int flags, void *at)
{
    void *got = mmap(at, bytes, protection, flags | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);
    cr_assert(got != MAP_FAILED);
    return got;
}

/* Room that starts at a unit, with a mapping on each side that no driver makes. */
static uint64_t room(uint64_t bytes)
{
    uint64_t at = (uint64_t)(uintptr_t)place(bytes + 3 * UNIT, PROT_READ | PROT_WRITE, MAP_PRIVATE, NULL);
    return (at + 2 * UNIT - 1) & ~(UNIT - 1);
}

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static void driver_alloc(uint64_t address, uint64_t bytes)
{
    cr_assert(row_count < ROWS);
    rows[row_count++] = (struct row){address, bytes, (int)draw_below(GPUS), draw_below(12) == 0, false};
}

/* Allocations of all sizes: from the start of a unit on with gaps between them, or beside a free start. */
static void driver_fill(uint64_t from, unsigned units)
{
    static const uint64_t sizes[] = {1, 511, 512, 513, 4096, 100000, MIB, UNIT - 1, UNIT, UNIT + 1, 5 * MIB};
    uint64_t end = from + units * UNIT;
    for (uint64_t at = from; at < end;) {
        uint64_t bytes = sizes[draw_below(GP_COUNT(sizes))], unit_end = (at & ~(UNIT - 1)) + UNIT;
        if (at % UNIT == 0 && draw_below(4) == 0) {
            if (draw_below(2)) /* its first bytes are free: it is passed over */
                rows[row_count++] = (struct row){at + 512, 4096, 0, false, true};
            at = unit_end;
            continue;
        }
        if (at + bytes > end || (at % UNIT && at + bytes > unit_end && draw_below(2))) {
            at = unit_end;
            continue;
        }
        driver_alloc(at, bytes);
        at += (bytes + 511) & ~511ull;
        at += at % UNIT ? draw_below(3) * 512ull * draw_below(20) : 0;
        if (at > unit_end && at % UNIT && (at - 1) / UNIT != (at - 512) / UNIT)
            at = (at + UNIT - 1) & ~(UNIT - 1);
    }
}

/* A gap that reaches over the end of a unit begins another search there. */
static void driver_mark_hidden(uint64_t from, unsigned units)
{
    for (unsigned i = 0; i < units; i++) {
        uint64_t start = from + i * UNIT;
        bool covered = false;
        for (unsigned k = 0; k < row_count; k++)
            covered |= rows[k].address <= start && start < rows[k].address + rows[k].bytes;
        for (unsigned k = 0; k < row_count && !covered; k++)
            if (rows[k].address >= start && rows[k].address < start + UNIT)
                rows[k].left_out = true;
    }
}

/* ---- the number -------------------------------------------------------------------------------------------------- */

static int64_t at_attach[GPUS];
static uint64_t freed[GPUS];

static void number_check(enum gp_wire_before_source source, const char *what)
{
    for (int device = 0; device < GPUS; device++) {
        struct gp_wire_before_device is;
        int64_t bytes = 0, count = 0;
        for (unsigned i = 0; i < row_count; i++) {
            bool in = rows[i].bytes && rows[i].device == device && !rows[i].managed && !rows[i].left_out;
            bytes += in ? (int64_t)rows[i].bytes : 0;
            count += in;
        }
        gp_tap_before((unsigned)device, &is);
        cr_assert_eq(is.source, source, "%s", what);
        cr_assert_eq(is.bytes, bytes, "%s: device %d: %lld, not %lld", what, device, (long long)is.bytes,
                     (long long)bytes);
        cr_assert_eq(is.count, count, "%s: device %d: %lld blocks, not %lld", what, device, (long long)is.count,
                     (long long)count);
        cr_assert_eq(is.freed, freed[device], "%s: device %d: %llu frees", what, device, (unsigned long long)is.freed);
        if (at_attach[device])
            cr_assert_eq(is.at_attach_bytes, at_attach[device], "%s", what);
        else
            at_attach[device] = is.at_attach_bytes;
        cr_assert_eq(is.framework_reserved_bytes, -1);
    }
}

static bool row_counts(const struct row *row)
{
    return row->bytes && !row->managed && !row->left_out;
}

/* The program goes on: frees, frees of what is not known, new blocks at old addresses, and the end of a context. */
static void program_step(void)
{
    struct row *row = &rows[draw_below(row_count)];
    uint64_t unknown = lost[GP_LOST_UNKNOWN_FREE], address = row->bytes ? row->address : 0x123400;
    bool known = row_counts(row);
    if (draw_below(5) == 0 && row->bytes) {
        gp_feed_alloc(&(struct gp_allocation){
            .space = GP_SPACE_DEVICE, .kind = GP_KIND_LINEAR, .address = address, .bytes = 7, .requested_bytes = 7});
        gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, address), true, 0);
    } else {
        freed[row->device] += known;
        gp_feed_unknown_free(GP_SPACE_DEVICE, address);
        cr_assert_eq(lost[GP_LOST_UNKNOWN_FREE], unknown + !known);
    }
    row->bytes = 0;
}

static void look_at_all(void)
{
    uint64_t at = room(UNITS * UNIT);
    place(UNITS * UNIT, PROT_NONE, MAP_PRIVATE, pointer(at));
    driver_fill(at, UNITS);
    driver_mark_hidden(at, UNITS);
    gp_feed_before_end(gp_before_look(ask, number));
}

Test(before, all_that_the_driver_has_is_found_and_leaves)
{
    skip_if_mappings_are_vast();
    look_at_all();
    number_check(GP_BEFORE_DRIVER, "the look");
    for (unsigned step = 0; step < 1500; step++) {
        program_step();
        number_check(GP_BEFORE_DRIVER, "a step");
    }
    gp_feed_context_destroyed(2, 1, true);
    for (unsigned i = 0; i < row_count; i++)
        rows[i].bytes = rows[i].device == 1 ? 0 : rows[i].bytes;
    number_check(GP_BEFORE_DRIVER, "the end of a context");
    gp_feed_before_stop();
}

/* What follows a block that went away in its unit may be missed; what is gone is never counted. */
Test(before, what_is_freed_while_the_driver_answers_is_not_noted)
{
    skip_if_mappings_are_vast();
    struct gp_wire_before_device is;
    int64_t bytes[GPUS] = {0}, whole[GPUS] = {0};
    frees_meanwhile = true;
    look_at_all();
    for (unsigned i = 0; i < row_count; i++) {
        int64_t counted = row_counts(&rows[i]) ? (int64_t)rows[i].bytes : 0;
        bytes[rows[i].device] += counted;
        whole[rows[i].device] += rows[i].address % UNIT ? 0 : counted;
    }
    for (unsigned device = 0; device < GPUS; device++) {
        gp_tap_before(device, &is);
        cr_assert(is.bytes <= bytes[device] && is.bytes >= whole[device] && whole[device],
                  "device %u: %lld, not in %lld to %lld", device, (long long)is.bytes, (long long)whole[device],
                  (long long)bytes[device]);
        cr_assert_geq(is.at_attach_bytes, is.bytes);
    }
    for (unsigned i = 0; i < row_count; i++)
        if (rows[i].bytes)
            gp_feed_unknown_free(GP_SPACE_DEVICE, rows[i].address);
    for (unsigned device = 0; device < GPUS; device++) {
        gp_tap_before(device, &is);
        cr_assert_eq(is.bytes, 0, "device %u: %lld left", device, (long long)is.bytes);
        cr_assert_eq(is.count, 0);
    }
}

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

static void mapped_rows(uint64_t at, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        rows[row_count++] = (struct row){at + i * UNIT, UNIT, 0, false, false};
}

static void rows_gone(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        freed[rows[i].device]++;
        rows[i].bytes = 0;
    }
}

/* An unmap ends those that it covers, behind gaps too, and each of their handles may be released once. */
Test(before, an_unmap_ends_the_mappings_that_it_covers)
{
    uint64_t at = room(16 * UNIT);
    place(16 * UNIT, PROT_NONE, MAP_PRIVATE, pointer(at));
    mapped_rows(at, 10);
    gp_feed_before_end(gp_before_look(ask, number));
    number_check(GP_BEFORE_DRIVER, "the look");
    gp_feed_unknown_free(GP_SPACE_VMM, 1);
    cr_assert_eq(lost[GP_LOST_UNKNOWN_FREE], 1, "no mapping has ended");
    gp_feed_before_unmapped(at, 3 * UNIT);
    rows_gone(0, 3);
    number_check(GP_BEFORE_DRIVER, "three");
    gp_feed_before_unmapped(at, 3 * UNIT);
    number_check(GP_BEFORE_DRIVER, "again");
    gp_feed_before_unmapped(at + 4 * UNIT, 1);
    rows_gone(4, 5);
    number_check(GP_BEFORE_DRIVER, "one");
    gp_feed_before_unmapped(at + 3 * UNIT, 4 * UNIT);
    rows_gone(3, 4);
    rows_gone(5, 7);
    number_check(GP_BEFORE_DRIVER, "over a gap");
    gp_feed_before_unmapped(at, 7 * UNIT);
    number_check(GP_BEFORE_DRIVER, "nothing but a gap");
    for (unsigned i = 0; i < 9; i++)
        gp_feed_unknown_free(GP_SPACE_VMM, i);
    cr_assert_eq(lost[GP_LOST_UNKNOWN_FREE], 1 + 2, "seven mappings have ended");
}

/* ---- the list of mappings ----------------------------------------------------------------------------------------- */

static uint64_t look_count(uint64_t from, uint64_t to)
{
    asked_from = from, asked_to = to;
    gp_feed_before_end(gp_before_look(ask, NULL));
    return asked_below;
}

/* The list of mappings is longer than what one read of it gives. */
Test(before, every_one_of_many_mappings_is_seen)
{
    skip_if_mappings_are_vast();
    const unsigned count = 4000;
    uint64_t pages = room(count * 4096), at = room(1000 * 2 * UNIT);
    for (unsigned i = 0; i < count; i += 2)
        cr_assert_eq(mprotect(pointer(pages + i * 4096), 4096, PROT_READ), 0);
    for (unsigned i = 0; i < 1000; i++)
        place(UNIT, PROT_NONE, MAP_PRIVATE, pointer(at + i * 2 * UNIT));
    cr_assert_eq(look_count(at, at + 2000 * UNIT), 1000);
    struct gp_wire_before_device is;
    gp_tap_before(0, &is);
    cr_assert_eq(is.source, GP_BEFORE_DRIVER);
}

/* ---- when it cannot be asked ------------------------------------------------------------------------------------- */

Test(before, a_driver_that_may_not_be_asked_any_more_is_not)
{
    uint64_t at = room(8 * UNIT);
    place(8 * UNIT, PROT_NONE, MAP_PRIVATE, pointer(at));
    rows[row_count++] = (struct row){at + UNIT, UNIT, 0, false, false};
    ask_at_most = 1;
    gp_feed_before_end(gp_before_look(ask, number));
    cr_assert_eq(asked, 2);
    struct gp_wire_before_device is;
    gp_tap_before(0, &is);
    cr_assert_eq(is.source, GP_BEFORE_PART);
    cr_assert_eq(is.count, 0, "its last answer is none");
}

Test(before, without_the_list_of_mappings_nothing_is_complete)
{
    struct rlimit usual, none;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &usual), 0);
    none = usual;
    none.rlim_cur = 0;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool all = gp_before_look(ask, number);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &usual), 0);
    cr_assert_eq(all, false);
    cr_assert_eq(asked, 0);
}
