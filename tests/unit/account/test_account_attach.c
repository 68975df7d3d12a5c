/* SPDX-License-Identifier: MIT
 *
 * test_account_attach.c: what the accounts know of memory from before the attach, call by call: which answers of the driver
 * count, whose numbers are shown when the driver and a framework differ, what a walk visits, and what happens without
 * memory. test_before.c and test_survey.c have whole programs.
 */
#include "account/before.h"
#include "account/feed/before.h"
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/framework.h"
#include "account/feed/start.h"
#include "account/feed/survey.h"
#include "account/feed/vmm.h"
#include "account/internal.h"
#include "account/segment.h"
#include "account/tap.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB  (1ull << 20)
#define BASE 0x7000000000ull

static long calls_left = -1; /* of mmap; -1: no call fails */
static int64_t mapped;

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    if (calls_left == 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    calls_left -= calls_left > 0;
    long result = syscall(SYS_mmap, at, bytes, prot, flags, fd, offset);
    mapped += result == -1 ? 0 : (int64_t)bytes;
    return (void *)result;
}

int munmap(void *at, size_t bytes)
{
    mapped -= (int64_t)bytes;
    return (int)syscall(SYS_munmap, at, bytes);
}

static void begin(bool late)
{
    accounts_start(64, (struct gp_feed_setup){.map_limit = 1 << 16, .late = late});
    cr_assert(gp_thread_enter());
}

static void setup(void)
{
    begin(true);
    gp_account_of(0);
    gp_account_of(1);
    gp_account_of(GP_WIRE_GPUS - 1);
    gp_feed_before_start();
}

TestSuite(attached, .init = setup, .fini = accounts_check, .timeout = 60);

static void expect_before(unsigned device, int64_t bytes, int64_t at_attach, int64_t count, uint64_t freed, int line)
{
    struct gp_wire_before_device is;
    gp_tap_before(device, &is);
    cr_expect(is.bytes == bytes && is.at_attach_bytes == at_attach && is.count == count && is.freed == freed,
              "line %d: %lld bytes of %lld in %lld, %llu freed", line, (long long)is.bytes,
              (long long)is.at_attach_bytes, (long long)is.count, (unsigned long long)is.freed);
}
#define BEFORE(...) expect_before(__VA_ARGS__, __LINE__)

static bool noted(uint64_t address, uint64_t bytes, int device, uint32_t ctx)
{
    return gp_feed_before(gp_feed_before_begin(), address, bytes, device, ctx);
}

/* ---- the driver's memory ----------------------------------------------------------------------------------------- */

Test(attached, an_answer_counts_once_on_its_device)
{
    BEFORE(0, -1, -1, -1, 0); /* the driver was not asked */
    cr_expect(noted(BASE, 10, 0, 5));
    cr_expect(noted(BASE, 10, 0, 5), "once more");
    cr_expect(noted(BASE + 4096, 20, 1, 6));
    cr_expect(noted(BASE + 8192, 40, GP_WIRE_GPUS - 1, 6));
    cr_expect(noted(BASE + 12288, 80, -1, 5) && noted(BASE + 12288, 80, GP_WIRE_GPUS, 5), "of no GPU");
    accounts_linear(BASE + 16384, 7);
    cr_expect(noted(BASE + 16384, 7, 0, 5), "a block from after the attach");
    cr_expect_eq(gp_map_count(gp_before_map()), 3);
    gp_feed_before_end(true);
    BEFORE(0, 10, 10, 1, 0);
    BEFORE(1, 20, 20, 1, 0);
    BEFORE(GP_WIRE_GPUS - 1, 40, 40, 1, 0);
    BEFORE(2, 0, 0, 0, 0);
    gp_feed_context_destroyed(6, 1, true);
    BEFORE(0, 10, 10, 1, 0);
    BEFORE(1, 0, 20, 0, 0);
    BEFORE(GP_WIRE_GPUS - 1, 0, 40, 0, 0);
    cr_expect_eq(gp_map_count(gp_before_map()), 1);
    accounts_linear(BASE, 3); /* its address is another block's: its free was not seen */
    BEFORE(0, 0, 10, 0, 0);
    cr_expect_eq(gp_map_count(gp_before_map()), 0);
}

/* Between the question and the note something was freed: it may have been this address. */
Test(attached, an_answer_that_may_be_old_is_asked_for_again)
{
    uint64_t begun = gp_feed_before_begin();
    gp_feed_unknown_free(GP_SPACE_DEVICE, BASE + 4096);
    cr_expect_eq(lost[GP_LOST_UNKNOWN_FREE], 1);
    cr_expect_not(gp_feed_before(begun, BASE, 10, 0, 5));
    gp_feed_before_end(true);
    BEFORE(0, 0, 0, 0, 0);
    cr_expect_eq(gp_map_count(gp_before_map()), 0);
    begun = gp_feed_before_begin();
    gp_feed_unknown_free(GP_SPACE_HOST, BASE + 4096);
    gp_feed_unknown_free(GP_SPACE_VMM, BASE + 4096);
    cr_expect_eq(lost[GP_LOST_UNKNOWN_FREE], 3);
    cr_expect(gp_feed_before(begun, BASE, 10, 0, 5), "other spaces have other addresses");
    cr_expect(gp_feed_before(begun - 1, BASE, 10, 0, 5), "it is known");
    BEFORE(0, 10, 10, 1, 0);
    gp_feed_unknown_free(GP_SPACE_DEVICE, BASE);
    cr_expect_eq(lost[GP_LOST_UNKNOWN_FREE], 3);
    BEFORE(0, 0, 10, 0, 1);
}

/* Each handle of a mapping that has ended may be released once. */
Test(attached, unmapped_ranges)
{
    for (uint64_t i = 0; i < 4; i++)
        cr_assert(noted(BASE + i * 2 * MIB, 2 * MIB, 0, 5));
    gp_feed_before_end(true);
    gp_feed_before_unmapped(BASE + 2 * MIB, 2 * MIB);
    BEFORE(0, (int64_t)(6 * MIB), (int64_t)(8 * MIB), 3, 1);
    gp_feed_before_unmapped(BASE + 4 * MIB, 0);
    BEFORE(0, (int64_t)(6 * MIB), (int64_t)(8 * MIB), 3, 1);
    gp_feed_before_unmapped(BASE + 4 * MIB, 2 * MIB + 1);
    BEFORE(0, (int64_t)(2 * MIB), (int64_t)(8 * MIB), 1, 3);
    for (unsigned i = 0; i < 5; i++) {
        gp_feed_unknown_free(GP_SPACE_VMM, i);
        cr_expect_eq(lost[GP_LOST_UNKNOWN_FREE], i < 3 ? 0 : i - 2, "release %u", i);
    }
}

Test(not_attached, nothing_is_from_before)
{
    begin(false);
    gp_account_of(0);
    cr_expect_null(gp_before_map());
    cr_expect(noted(BASE, 10, 0, 5));
    gp_feed_before_unmapped(BASE, 10);
    gp_feed_unknown_free(GP_SPACE_DEVICE, BASE);
    cr_expect_eq(lost[GP_LOST_UNKNOWN_FREE], 1);
    gp_feed_context_destroyed(5, 0, true);
    gp_feed_before_end(false);
    BEFORE(0, 0, 0, 0, 0);
    gp_feed_before_stop();
    gp_feed_survey_stop();
    cr_expect_not(gp_feed_survey_late());
    cr_expect_not(gp_feed_survey_reported());
    gp_before_block_freed(BASE);
    gp_before_block_made(BASE);
    cr_expect_null(gp_before_blocks());
    calls_left = 0;
    gp_feed_before_start();
    calls_left = -1;
    cr_expect_null(gp_before_map(), "without memory");
    int64_t before = mapped;
    gp_feed_before_start();
    cr_expect(gp_before_map() && mapped > before);
    gp_feed_before_stop();
    cr_expect(!gp_before_map() && mapped == before);
}

/* ---- a framework's totals ---------------------------------------------------------------------------------------- */

static void framework_reports(int64_t bytes, int64_t allocated, int64_t reserved)
{
    gp_feed_framework_block(&(struct gp_framework_event){.device = 0,
                                                         .address = BASE + 64 * MIB,
                                                         .bytes = bytes,
                                                         .allocated_bytes = allocated,
                                                         .reserved_bytes = reserved},
                            3);
}

static void expect_framework(enum gp_wire_before_source source, int64_t bytes, int64_t count, int64_t allocated,
                             int64_t reserved, int line)
{
    struct gp_wire_before_device is;
    gp_tap_before(0, &is);
    cr_expect(is.source == source && is.bytes == bytes && is.count == count &&
                  is.framework_allocated_bytes == allocated && is.framework_reserved_bytes == reserved,
              "line %d: source %u, %lld bytes in %lld, the framework's %lld of %lld", line, is.source,
              (long long)is.bytes, (long long)is.count, (long long)is.framework_allocated_bytes,
              (long long)is.framework_reserved_bytes);
    cr_expect_eq(is.at_attach_bytes, count < 0 ? -1 : 100, "line %d", line);
}
#define FRAMEWORK(...) expect_framework(__VA_ARGS__, __LINE__)

/* What it had reserved is shown up to what the driver says, and instead of it if the driver could not be asked. */
Test(attached, the_driver_s_number_and_the_framework_s)
{
    gp_feed_framework_start("pytorch");
    cr_assert(noted(BASE, 100, 0, 5));
    FRAMEWORK(GP_BEFORE_NONE, -1, -1, -1, -1);
    gp_feed_before_end(true);
    FRAMEWORK(GP_BEFORE_DRIVER, 100, 1, -1, -1);
    framework_reports(5, 65, 0);
    FRAMEWORK(GP_BEFORE_DRIVER, 100, 1, -1, -1); /* it has no memory */
    framework_reports(-5, 60, 1);
    FRAMEWORK(GP_BEFORE_DRIVER, 100, 1, 60, 0); /* its first report said that nothing was reserved */
    gp_feed_before_end(false);
    FRAMEWORK(GP_BEFORE_PART, 100, 1, 60, 0);
}

Test(attached, a_framework_that_had_more_than_the_driver_says)
{
    gp_feed_framework_start("pytorch");
    cr_assert(noted(BASE, 100, 0, 5));
    framework_reports(5, 65, 101);
    FRAMEWORK(GP_BEFORE_FRAMEWORK, 101, -1, 60, 101);
    gp_feed_before_end(false);
    FRAMEWORK(GP_BEFORE_FRAMEWORK, 101, -1, 60, 101);
    gp_feed_before_end(true);
    FRAMEWORK(GP_BEFORE_DRIVER, 100, 1, 60, 100);
    framework_reports(-5, 60, 100); /* it gave one byte back */
    gp_feed_before_end(false);
    FRAMEWORK(GP_BEFORE_PART, 100, 1, 60, 100);
    framework_reports(5, 65, 99);
    FRAMEWORK(GP_BEFORE_PART, 100, 1, 60, 99);
    framework_reports(-5, 60, 200); /* a segment of now that was not seen: what was before does not grow */
    FRAMEWORK(GP_BEFORE_PART, 100, 1, 60, 99);
    framework_reports(5, 65, -1);
    framework_reports(-5, -1, -1); /* totals that are not told */
    struct gp_wire_framework framework, heaps;
    cr_assert(gp_tap_framework(0, &framework, &heaps));
    cr_expect(framework.their_allocated_bytes == 65 && framework.their_reserved_bytes == -1);
    cr_expect_eq(framework.allocated_differs, 0);
    cr_expect_eq(framework.reserved_differs, 2, "the segment that was not seen, and the -1");
}

/* A segment that it has taken since the attach is not from before. */
Test(attached, a_framework_that_has_taken_a_segment_before_its_first_report)
{
    const struct gp_record segment = {.device = 0, .segment = GP_SEGMENT_FRAMEWORK, .bytes = 30};
    gp_feed_framework_start("pytorch");
    cr_assert(noted(BASE, 100, 0, 5));
    gp_feed_before_end(true);
    gp_segment_framework(&segment, GP_ADD);
    framework_reports(5, 65, 100);
    FRAMEWORK(GP_BEFORE_DRIVER, 100, 1, 60, 70);
    gp_segment_framework(&segment, GP_SUB);
    framework_reports(-5, 60, 70);
    FRAMEWORK(GP_BEFORE_DRIVER, 100, 1, 60, 70);
}

/* The first report is of the last block that was there. */
Test(attached, a_framework_that_gives_back_all_it_had)
{
    struct gp_wire_framework framework, heaps;
    gp_feed_framework_start("pytorch");
    cr_assert(noted(BASE, 100, 0, 5));
    gp_feed_before_end(true);
    framework_reports(-5, 0, 100);
    FRAMEWORK(GP_BEFORE_DRIVER, 100, 1, 0, 100);
    cr_assert(gp_tap_framework(0, &framework, &heaps));
    cr_expect(framework.allocated_differs == 0 && framework.reserved_differs == 0 && framework.blocks == 0);
    cr_expect(framework.allocated_bytes == 0 && framework.their_reserved_bytes == 100);
}

/* ---- blocks and segments of before ------------------------------------------------------------------------------- */

static void survey_block(uint64_t address, uint64_t bytes, int device)
{
    gp_feed_survey_block(
        &(struct gp_survey_piece){.device = device, .address = address, .bytes = bytes, .requested_bytes = bytes - 1});
}

static void survey_say(uint32_t state, const char *text)
{
    cr_assert(gp_feed_survey_say(gp_feed_survey_state(), state, text));
}

static struct gp_tap_block visited[32];
static unsigned visits, rests;

static void visit(void *arg, const struct gp_tap_block *piece)
{
    (void)arg;
    unsigned at = visits++; /* by address */
    for (; at > 0 && visited[at - 1].address > piece->address; at--)
        visited[at] = visited[at - 1];
    visited[at] = *piece;
}

static void rest(void *arg)
{
    (void)arg;
    rests++;
}

static void walk(unsigned index)
{
    visits = rests = 0;
    gp_tap_blocks(index, NULL, visit, rest);
}

static void expect_visit(unsigned at, const struct gp_tap_block *want, int line)
{
    const struct gp_tap_block *is = &visited[at];
    cr_expect(is->address == want->address && is->bytes == want->bytes &&
                  is->requested_bytes == want->requested_bytes && is->device == want->device && is->kind == want->kind,
              "line %d: %llx, %llu bytes", line, (unsigned long long)is->address, (unsigned long long)is->bytes);
    cr_expect(is->segment == want->segment && is->inside == want->inside && is->mapped == want->mapped &&
                  is->before == want->before && (is->time_ns == 0) == want->before,
              "line %d: segment %d, inside %d, mapped %d, before %d", line, is->segment, is->inside, is->mapped,
              is->before);
}
#define VISIT(_at, ...) expect_visit(_at, &(struct gp_tap_block){__VA_ARGS__}, __LINE__)

/* A segment is all the driver's memory in its range, from piece to piece, and over what is not known in steps of 2 MiB. */
Test(attached, a_walk_visits_what_a_framework_had)
{
    cr_assert(noted(BASE, 6 * MIB, 0, 5));
    cr_assert(noted(BASE + 10 * MIB, 2 * MIB, 0, 5)); /* after a gap of two steps */
    cr_assert(noted(BASE + 12 * MIB, 2 * MIB, 0, 5)); /* behind the segment */
    cr_assert(noted(BASE + 16 * MIB, 4 * MIB, 1, 5));
    cr_assert(noted(BASE + 32 * MIB, 4 * MIB, 1, 5)); /* not the framework's */
    gp_feed_before_end(true);
    cr_assert(gp_feed_survey_begin());
    gp_feed_survey_segment(
        &(struct gp_survey_piece){.device = 0, .address = BASE, .bytes = 12 * MIB, .growable = true});
    gp_feed_survey_segment(&(struct gp_survey_piece){.device = 1, .address = BASE + 16 * MIB, .bytes = 4 * MIB});
    survey_block(BASE + 512, 1024, 0);
    survey_block(BASE + 512, 1024, 0); /* twice */
    survey_block(BASE + 17 * MIB, 100, 1);
    survey_block(BASE + 18 * MIB, 0, 1);
    survey_block(BASE + 18 * MIB, 7, -1);
    survey_block(BASE + 18 * MIB, 7, GP_WIRE_GPUS);
    accounts_linear(BASE + 40 * MIB, 5);
    gp_feed_vmm_create(7, 3 * MIB, 1);
    gp_feed_vmm_map(BASE + 50 * MIB, 1 * MIB, 0, 7);
    walk(GP_TAP_EVERY);
    cr_expect_eq(visits, 3, "the survey is not done");
    cr_assert(gp_feed_survey_end(true, 12345));
    survey_say(GP_BLOCKS_DONE, "text");
    walk(GP_TAP_EVERY);
    cr_assert_eq(visits, 8);
    VISIT(0, .address = 7, .bytes = 2 * MIB, .requested_bytes = 3 * MIB, .device = 1, .kind = GP_KIND_VMM);
    VISIT(1, .address = BASE, .bytes = 6 * MIB, .kind = GP_KIND_LINEAR, .segment = true, .mapped = true,
          .before = true);
    VISIT(2, .address = BASE + 512, .bytes = 1024, .requested_bytes = 1023, .kind = GP_KIND_LINEAR, .inside = true,
          .before = true);
    VISIT(3, .address = BASE + 10 * MIB, .bytes = 2 * MIB, .kind = GP_KIND_LINEAR, .segment = true, .mapped = true,
          .before = true);
    VISIT(4, .address = BASE + 16 * MIB, .bytes = 4 * MIB, .device = 1, .kind = GP_KIND_LINEAR, .segment = true,
          .before = true);
    VISIT(5, .address = BASE + 17 * MIB, .bytes = 100, .requested_bytes = 99, .device = 1, .kind = GP_KIND_LINEAR,
          .inside = true, .before = true);
    VISIT(6, .address = BASE + 40 * MIB, .bytes = 5, .requested_bytes = 5, .kind = GP_KIND_LINEAR);
    VISIT(7, .address = BASE + 50 * MIB, .bytes = MIB, .requested_bytes = MIB, .device = 1, .kind = GP_KIND_VMM,
          .mapped = true);
    walk(1);
    cr_expect_eq(visits, 4);
    for (unsigned i = 0; i < visits; i++)
        cr_expect_eq(visited[i].device, 1);
    walk(2);
    cr_expect_eq(visits, 0);
    struct gp_wire_blocks blocks;
    gp_tap_before_blocks(&blocks);
    cr_expect(blocks.state == GP_BLOCKS_DONE && blocks.took_ns == 12345);
    cr_expect_str_eq(blocks.text, "text");
    cr_expect(blocks.devices[0].count == 1 && blocks.devices[0].bytes == 1024 && blocks.devices[0].differs == 0);
    cr_expect(blocks.devices[1].count == 1 && blocks.devices[1].bytes == 100);
    cr_expect(blocks.devices[2].count == 0 && blocks.devices[GP_WIRE_GPUS - 1].bytes == 0);
    gp_before_block_freed(BASE + 512);
    gp_before_block_made(BASE + 17 * MIB); /* its free was not reported */
    gp_tap_before_blocks(&blocks);
    cr_expect(blocks.devices[0].count == 0 && blocks.devices[0].bytes == 0 && blocks.devices[1].count == 0);
    walk(GP_TAP_EVERY);
    cr_expect_eq(visits, 6);
    gp_feed_before_stop();
    walk(GP_TAP_EVERY);
    cr_expect_eq(visits, 3);
}

/* While the snapshot is read, a block that was freed since it was taken, or handed out and reported, is not noted. */
Test(attached, blocks_that_moved_since_the_snapshot)
{
    struct gp_wire_blocks blocks;
    for (int turn = 0; turn < 2; turn++) {
        cr_assert(gp_feed_survey_begin());
        gp_before_block_freed(BASE);
        survey_block(BASE, 10, 0);
        struct gp_record reported = {.key = BASE + 4096, .space = GP_SPACE_BLOCK, .time_ns = 1};
        gp_map_insert(gp_accounts.blocks, &reported, NULL);
        survey_block(BASE + 4096, 20, 0);
        if (turn)
            survey_block(BASE + 8192, 40, 0); /* it was freed in the turn before, before this snapshot */
        else
            gp_before_block_freed(BASE + 8192);
        cr_assert(gp_feed_survey_end(true, 1));
        survey_say(GP_BLOCKS_DONE, NULL);
        gp_tap_before_blocks(&blocks);
        cr_expect(blocks.devices[0].count == turn && blocks.devices[0].bytes == 40 * turn, "turn %d: %lld", turn,
                  (long long)blocks.devices[0].count);
        survey_say(GP_BLOCKS_NONE, NULL);
        gp_before_block_freed(BASE + 12288); /* no one watches */
    }
    cr_assert(gp_feed_survey_begin());
    survey_block(BASE + 12288, 80, 0);
    cr_assert(gp_feed_survey_end(true, 1));
    survey_say(GP_BLOCKS_DONE, NULL);
    gp_tap_before_blocks(&blocks);
    cr_expect_eq(blocks.devices[0].bytes, 120);
}

static void expect_nothing_noted(bool done)
{
    struct gp_wire_blocks blocks;
    survey_say(GP_BLOCKS_DONE, NULL);
    gp_tap_before_blocks(&blocks);
    cr_expect(!done && blocks.devices[0].count == 0 && blocks.devices[0].bytes == 0);
    walk(GP_TAP_EVERY);
    cr_expect_eq(visits, 0);
    survey_say(GP_BLOCKS_NONE, NULL);
}

/* What could not be noted, or written down as freed, leaves the list incomplete, so there is none. */
Test(attached, a_survey_without_memory)
{
    struct gp_wire_blocks blocks;
    int64_t before = mapped;
    for (int most = 0; most < 2; most++) {
        calls_left = most;
        cr_expect_not(gp_feed_survey_begin());
        calls_left = -1;
    }
    cr_assert(gp_feed_survey_begin());
    int64_t begun = mapped;
    survey_block(BASE + 4096, 10, 0);
    calls_left = 0;
    survey_block(BASE, 10, 0);
    for (uint64_t i = 1; i < 6000; i++) /* the shards' first pages were mapped together, for 4096 records */
        survey_block(BASE + i * MIB, 10, 0);
    calls_left = -1;
    expect_nothing_noted(gp_feed_survey_end(true, 1));
    cr_assert(gp_feed_survey_begin());
    survey_block(BASE, 10, 0);
    calls_left = 0;
    for (uint64_t i = 1; i < 200; i++)
        gp_before_block_freed(BASE + i * MIB);
    calls_left = -1;
    expect_nothing_noted(gp_feed_survey_end(true, 1));
    cr_assert(gp_feed_survey_begin());
    survey_block(BASE, 10, 0);
    expect_nothing_noted(gp_feed_survey_end(false, 1));
    cr_assert(gp_feed_survey_begin()); /* the next one is as the first */
    survey_block(BASE, 10, 0);
    cr_assert(gp_feed_survey_end(true, 1));
    survey_say(GP_BLOCKS_DONE, NULL);
    gp_tap_before_blocks(&blocks);
    cr_expect(blocks.devices[0].count == 1 && blocks.devices[0].bytes == 10);
    int64_t ended = mapped;
    for (uint64_t i = 1; i < 20000; i++)
        gp_before_block_freed(BASE + i * 512);
    cr_expect_eq(mapped, ended, "after the survey no frees are written down");
    gp_feed_survey_stop();
    cr_expect_leq(mapped, before, "both maps are given back");
    cr_expect_lt(mapped, begun);
}

/* The blocks' sum is compared with what the framework's totals leave for them, once they are known. */
Test(attached, sums_that_differ)
{
    struct gp_wire_blocks blocks;
    cr_assert(gp_feed_survey_begin());
    survey_block(BASE, 10, 1);
    cr_assert(gp_feed_survey_end(true, 1));
    gp_before_block_compare(1, 11);
    survey_say(GP_BLOCKS_DONE, NULL);
    gp_before_block_compare(1, 10);
    gp_before_block_compare(0, 0);
    gp_before_block_compare(GP_WIRE_GPUS, 1);
    gp_before_block_compare(GP_WIRE_GPUS - 1, 1);
    gp_before_block_compare(1, 11);
    gp_before_block_compare(1, 9);
    gp_tap_before_blocks(&blocks);
    for (unsigned i = 0; i < GP_WIRE_GPUS; i++)
        cr_expect_eq(blocks.devices[i].differs, i == 1 ? 2 : i == GP_WIRE_GPUS - 1 ? 1 : 0, "device %u", i);
    char text[200];
    memset(text, 'x', sizeof(text));
    text[199] = '\0';
    survey_say(GP_BLOCKS_ABSENT, text);
    gp_tap_before_blocks(&blocks);
    cr_expect(blocks.state == GP_BLOCKS_ABSENT && strlen(blocks.text) == sizeof(blocks.text) - 1);
    cr_expect(blocks.devices[1].count == -1 && blocks.devices[1].bytes == -1 && blocks.devices[1].differs == 2);
}
