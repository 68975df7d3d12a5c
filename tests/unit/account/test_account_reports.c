/* SPDX-License-Identifier: MIT
 *
 * test_account_reports.c: what the accounts say of a failed request, word by word, and to whom the driver's answer belongs;
 * how long a thread waits for the poller, by a clock of the test's own; and what a framework's segments and retries are.
 */
#include "account/feed/block.h"
#include "account/feed/cache.h"
#include "account/feed/context.h"
#include "account/feed/failed.h"
#include "account/feed/feed.h"
#include "account/feed/framework.h"
#include "account/feed/graph.h"
#include "account/feed/poll.h"
#include "account/feed/pool.h"
#include "account/feed/start.h"
#include "account/feed/vmm.h"
#include "account/feed/want.h"
#include "account/internal.h"
#include "account/move.h"
#include "account/oomfacts.h"
#include "account/segment.h"
#include "account/tap.h"
#include "lib/accounts.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <gpuprof/batch.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB    ((int64_t)1 << 20)
#define CHUNKS 64u
#define MS     1000000ull

/* ---- the clock --------------------------------------------------------------------------------------------------- */

static uint64_t clock_ns, clock_step; /* each look at it moves it on; 0: the machine's */
static unsigned clock_looks;

int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!clock_step)
        return (int)syscall(SYS_clock_gettime, clock, out);
    clock_ns += clock_step;
    clock_looks++;
    *out = (struct timespec){.tv_sec = (time_t)(clock_ns / 1000000000), .tv_nsec = (long)(clock_ns % 1000000000)};
    return 0;
}

static void clock_start(uint64_t step)
{
    clock_step = step;
    clock_looks = 0;
    clock_ns = clock_ns ? clock_ns : 1000000000000;
}

/* ---- the accounts ------------------------------------------------------------------------------------------------ */

static struct gp_wire_oom wire;
static struct gp_ringread *reader;
static uint64_t patience[8]; /* with which the poller was called */
static unsigned polls;
static bool poll_answers = true;

static bool poll_now(uint64_t timeout_ns)
{
    patience[polls++ % 8] = timeout_ns;
    return poll_answers;
}

static void begin(struct gp_wire_oom *report, bool (*poll)(uint64_t))
{
    accounts_start(CHUNKS, (struct gp_feed_setup){.oom = report, .poll_now = poll, .map_limit = 1 << 16});
    reader = accounts_reader(CHUNKS);
    cr_assert(gp_thread_enter());
}

static void setup(void)
{
    begin(&wire, poll_now);
}

TestSuite(reports, .init = setup, .timeout = 60);

static unsigned event_count(void)
{
    unsigned types[32];
    return accounts_events(reader, types);
}

static void fail(int device)
{
    gp_feed_failed("cuMemAlloc_v2", GP_ERROR_OUT_OF_MEMORY, 100, device, GP_KIND_LINEAR);
}

/* ---- the numbers of a report ------------------------------------------------------------------------------------- */

Test(reports, a_report_has_what_is_held_by_kind)
{
    const struct gp_wire_event *event;
    accounts_block(GP_SPACE_DEVICE, GP_KIND_LINEAR, 2, 0x100000, 1);
    accounts_block(GP_SPACE_DEVICE, GP_KIND_PITCHED, 2, 0x200000, 20);
    accounts_block(GP_SPACE_ARRAY, GP_KIND_ARRAY, 2, 0x300000, 300);
    accounts_block(GP_SPACE_DEVICE, GP_KIND_MANAGED, 2, 0x400000, 4000);
    gp_feed_pool_create(0x90, 2, 0);
    accounts_block(GP_SPACE_DEVICE, GP_KIND_POOL, 2, 0x500000, 50000);
    gp_feed_vmm_create(7, 600000, 2);
    gp_feed_vmm_map(0x40000000, 600000, 0, 7);
    gp_feed_graph_node(0x600000, 7000000, 2, 8, 9);
    gp_feed_poll_pool(0x90, 80000000, 0);
    gp_feed_poll_graph(2, 900000000, 0, 1000000000, 0);
    accounts_block(GP_SPACE_DEVICE, GP_KIND_LINEAR, 1, 0x700000, 5);
    event_count();
    gp_feed_failed("cuMemAlloc_v2", GP_ERROR_OUT_OF_MEMORY, 77, 2, GP_KIND_LINEAR);
    struct gp_wire_oom want = {
        .seq = 2,
        .count = 1,
        .time_ns = wire.time_ns,
        .holders_ns = wire.holders_ns,
        .api = "cuMemAlloc_v2",
        .error = GP_ERROR_OUT_OF_MEMORY,
        .device = 2,
        .tid = (uint32_t)gettid(),
        .asked_bytes = 77,
        .free_bytes = -1,
        .total_bytes = -1,
        .reserved_bytes = 1 + 20 + 300 + 600000 + 80000000 + 1000000000,
        .allocated_bytes = 1 + 20 + 300 + 50000 + 600000 + 900000000,
        .pool_reserved_bytes = 80000000,
        .graph_reserved_bytes = 1000000000,
        .graph_used_bytes = 900000000,
        .kinds = {-1, 1, 20, 300, 600000, 50000, 7000000, 4000, 0, 0, 0, 0, -1, 0},
        .limit_bytes = -1,
        .idle_bytes = -1,
        .largest_idle_bytes = -1,
        .releasable_bytes = -1,
        .waiting_bytes = -1,
        .idle_pieces = -1,
        .pinning_blocks = -1,
        .holder_count = 5,
        .holders = {{600000, 1, 0, GP_KIND_VMM, {0}},
                    {50000, 1, 0, GP_KIND_POOL, {0}},
                    {300, 1, 0, GP_KIND_ARRAY, {0}},
                    {20, 1, 0, GP_KIND_PITCHED, {0}},
                    {1, 1, 0, GP_KIND_LINEAR, {0}}},
    };
    cr_expect(wire.time_ns && wire.holders_ns >= wire.time_ns);
    cr_expect_eq(memcmp(&wire, &want, sizeof(want)), 0);
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &event), 1);
    cr_expect(event->type == GP_EVENT_OOM && event->device == 2 && event->error == GP_ERROR_OUT_OF_MEMORY);
    cr_expect(event->bytes == 77 && event->requested_bytes == 77 && event->site == 0);
}

Test(reports, a_report_of_an_unknown_device_has_no_numbers)
{
    char long_name[100];
    memset(long_name, 'x', sizeof(long_name));
    long_name[99] = '\0';
    accounts_linear(0x100000, 5);
    gp_feed_failed(long_name, GP_ERROR_OUT_OF_MEMORY, 0, GP_DEVICE_UNKNOWN, GP_KIND_LINEAR);
    cr_expect_eq(wire.device, -1);
    cr_expect(wire.reserved_bytes == -1 && wire.allocated_bytes == -1 && wire.pool_reserved_bytes == -1 &&
              wire.graph_reserved_bytes == -1 && wire.graph_used_bytes == -1);
    for (int kind = 0; kind < GP_KINDS; kind++)
        cr_expect_eq(wire.kinds[kind], -1, "%d", kind);
    cr_expect_eq(strnlen(wire.api, sizeof(wire.api)), sizeof(wire.api) - 1);
    gp_feed_failed("f", GP_ERROR_OUT_OF_MEMORY, 0, (int)GP_WIRE_DEVICES, GP_KIND_LINEAR);
    cr_expect(wire.device == -1 && wire.count == 2 && wire.holder_count == 0);
    gp_feed_failed("f", GP_ERROR_OUT_OF_MEMORY, 0, (int)GP_WIRE_DEVICES - 1, GP_KIND_LINEAR);
    cr_expect(wire.device == (int)GP_WIRE_DEVICES - 1 && wire.reserved_bytes == 0);
}

/* A free may come before the exit of the call that allocated: the gauge is below 0 for an instant. */
Test(reports, numbers_below_zero_are_zero)
{
    struct gp_wire_device is;
    struct gp_move move = {
        .kind = GP_KIND_LINEAR, .parts = 7, .bytes = 5, .requested_bytes = 5, .class_bytes = 5, .count = 1};
    gp_account_move(0, GP_SUB, &move);
    fail(0);
    cr_expect(wire.reserved_bytes == 0 && wire.allocated_bytes == 0 && wire.kinds[GP_KIND_LINEAR] == 0);
    cr_assert(gp_tap_device(0, &is));
    cr_expect(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current == 0 && is.kinds[GP_KIND_LINEAR].live == 0);
    cr_expect(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].freed == 5 && is.linear_rounded_bytes == 0);
    gp_account_move(0, GP_ADD, &move);
    gp_account_move(0, GP_ADD, &(struct gp_move){.parts = 3, .bytes = 1, .count = 1});
    fail(0);
    cr_expect(wire.reserved_bytes == 1 && wire.allocated_bytes == 1);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, 1);
}

/* Blocks of one size are one group for each kind and each call site; the largest sum comes first. */
Test(reports, holders_of_one_size_are_apart_by_kind_and_site)
{
    for (uint64_t i = 0; i < 5; i++)
        accounts_block(GP_SPACE_DEVICE, GP_KIND_PITCHED, 0, 0x100000 + (i << 12), 100);
    for (uint64_t i = 0; i < 2; i++)
        accounts_linear(0x200000 + (i << 12), 100);
    struct gp_record record = {.space = GP_SPACE_DEVICE, .kind = GP_KIND_LINEAR, .bytes = 100, .time_ns = 1};
    for (record.key = 0x300000; record.key < 0x303000; record.key += 0x400) {
        record.site = record.key < 0x301000 ? 7 : 9; /* four and eight */
        cr_assert_eq(gp_map_insert(gp_accounts.blocks, &record, NULL), 0);
    }
    record.segment = GP_SEGMENT_FRAMEWORK; /* its blocks hold it */
    cr_assert_eq(gp_map_insert(gp_accounts.blocks, &record, NULL), 0);
    fail(0);
    cr_assert_eq(wire.holder_count, 4);
    cr_expect(wire.holders[0].count == 8 && wire.holders[0].site == 9 && wire.holders[0].kind == GP_KIND_LINEAR);
    cr_expect(wire.holders[1].count == 5 && wire.holders[1].site == 0 && wire.holders[1].kind == GP_KIND_PITCHED);
    cr_expect(wire.holders[2].count == 4 && wire.holders[2].site == 7);
    cr_expect(wire.holders[3].count == 2 && wire.holders[3].site == 0 && wire.holders[3].kind == GP_KIND_LINEAR);
    cr_expect(wire.rest_count == 0 && wire.rest_bytes == 0 && wire.flags == 0);
}

/* Twelve groups are shown; the bytes and blocks of all others are the rest, in whatever order they were found. */
Test(reports, the_smallest_groups_are_the_rest)
{
    for (uint64_t groups = 11; groups < 40; groups++) {
        accounts_linear(groups << 20, (int64_t)(1000 * groups));
        accounts_linear(groups << 20 | 4096, (int64_t)(1000 * groups));
        fail(0);
        fail(1); /* so that the next list is a new one */
        fail(0);
        unsigned count = (unsigned)groups - 10, shown = count < GP_OOM_HOLDERS ? count : GP_OOM_HOLDERS;
        cr_assert_eq(wire.holder_count, shown);
        for (unsigned i = 0; i < shown; i++)
            cr_assert(wire.holders[i].block_bytes == 1000 * (groups - i) && wire.holders[i].count == 2);
        int64_t rest = 0;
        for (uint64_t i = 11; i + shown <= groups; i++)
            rest += (int64_t)(2000 * i);
        cr_assert(wire.rest_bytes == rest && wire.rest_count == 2 * (count - shown));
    }
}

/* A list is made at most every tenth of the time; in between it is that of before, if it is of the same device. */
Test(reports, lists_take_a_tenth_of_the_time)
{
    accounts_linear(0x100000, 5);
    clock_start(MS);
    fail(0); /* the report's time, the begin and the end of the walk, which so takes 1 ms */
    uint64_t listed = wire.holders_ns;
    cr_expect(listed && wire.holder_count == 1);
    clock_step = 1;
    clock_ns = listed + 11 * MS - 20000;
    fail(0);
    cr_expect_eq(wire.holders_ns, listed, "ten times 1 ms after its end");
    cr_expect_eq(wire.holder_count, 1);
    fail(1);
    cr_expect(wire.holders_ns != listed && wire.holder_count == 0, "another device's is a new one");
    fail(0);
    cr_expect(wire.holders_ns > listed && wire.holder_count == 1);
    listed = wire.holders_ns; /* it took 1 ns */
    fail(0);
    cr_expect_eq(wire.holders_ns, listed);
    clock_ns = listed + 11 - 3; /* two looks, for the event and the report, are before the one that counts */
    fail(0);
    cr_expect_eq(wire.holders_ns, listed + 11, "%llu", (unsigned long long)(wire.holders_ns - listed));
}

/* A second thread that fails while the blocks are walked over makes no list of its own. */
static void walk_and_fail(int device, void *arg, gp_feed_block_fn *visit)
{
    visit(arg, 3, 50);
    if (device == 0)
        fail(1);
}

Test(reports, one_thread_walks_at_a_time)
{
    accounts_linear(0x100000, 5);
    accounts_block(GP_SPACE_DEVICE, GP_KIND_LINEAR, 1, 0x200000, 6);
    gp_feed_oom_walker(walk_and_fail);
    fail(0);
    cr_expect(wire.count == 2 && wire.device == 0 && wire.holder_count == 2);
    cr_expect(wire.holders[0].block_bytes == 50 && wire.holders[0].site == 3);
    gp_feed_oom_walker(NULL);
    fail(1);
    cr_expect(wire.count == 3 && wire.holder_count == 1 && wire.holders[0].block_bytes == 6);
}

/* ---- what the cache adds ----------------------------------------------------------------------------------------- */

static struct gp_feed_oom cache_facts(void)
{
    return (struct gp_feed_oom){.stream = 1,
                                .limit_bytes = 2,
                                .free_bytes = 3,
                                .total_bytes = 4,
                                .idle_bytes = 5,
                                .idle_pieces = 6,
                                .largest_idle_bytes = 7,
                                .releasable_bytes = 8,
                                .waiting_bytes = 9,
                                .pinning_blocks = 10,
                                .policy = "caching",
                                .conf = "a:b"};
}

Test(reports, the_cache_adds_its_numbers)
{
    struct gp_feed_oom facts = cache_facts();
    char long_text[300];
    memset(long_text, 'x', sizeof(long_text));
    long_text[299] = '\0';
    fail(0);
    struct gp_wire_oom want = wire;
    gp_feed_oom_cache(0, &facts);
    want.seq = 4;
    want.flags = GP_OOM_CACHE | GP_OOM_DRIVER;
    want.stream = 1, want.limit_bytes = 2, want.free_bytes = 3, want.total_bytes = 4, want.idle_bytes = 5;
    want.idle_pieces = 6, want.largest_idle_bytes = 7, want.releasable_bytes = 8, want.waiting_bytes = 9;
    want.pinning_blocks = 10, want.driver_ns = wire.driver_ns;
    strcpy(want.policy, "caching");
    strcpy(want.conf, "a:b");
    cr_expect(wire.driver_ns >= wire.time_ns);
    cr_expect_eq(memcmp(&wire, &want, sizeof(want)), 0);
    fail(0);
    facts.free_bytes = -1;
    facts.policy = facts.conf = NULL;
    facts.limit_bytes = 1ull << 60;
    facts.idle_bytes = (1ull << 60) + 1;
    facts.idle_pieces = (1ull << 60) - 1;
    gp_feed_oom_cache(0, &facts);
    cr_expect(wire.flags == GP_OOM_CACHE && wire.driver_ns == 0 && wire.free_bytes == -1);
    cr_expect(wire.limit_bytes == 1ll << 60 && wire.idle_bytes == 1ll << 60 && wire.idle_pieces == (1ll << 60) - 1);
    cr_expect(wire.policy[0] == '\0' && wire.conf[0] == '\0');
    fail(0);
    facts.free_bytes = 0;
    facts.policy = facts.conf = long_text;
    gp_feed_oom_cache(0, &facts);
    cr_expect(wire.flags == (GP_OOM_CACHE | GP_OOM_DRIVER) && wire.driver_ns && wire.free_bytes == 0);
    cr_expect(strlen(wire.policy) == sizeof(wire.policy) - 1 && strlen(wire.conf) == sizeof(wire.conf) - 1);
}

static void *add_to_another_thread_s(void *arg)
{
    struct gp_feed_oom facts = cache_facts();
    (void)arg;
    if (!gp_thread_enter())
        return arg;
    gp_feed_oom_cache(0, &facts);
    gp_feed_oom_context(5, 0x50);
    gp_thread_leave();
    return NULL;
}

Test(reports, a_report_is_the_failed_thread_s)
{
    pthread_t thread;
    gp_feed_context_created(5, 0);
    fail(0);
    struct gp_wire_oom before = wire;
    cr_assert_eq(pthread_create(&thread, NULL, add_to_another_thread_s, NULL), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(memcmp(&wire, &before, sizeof(wire)), 0);
    cr_expect_eq(polls, 2, "it asks for a poll all the same");
}

/* ---- what the driver adds ---------------------------------------------------------------------------------------- */

Test(reports, the_driver_is_asked_in_the_context_of_the_failure)
{
    uint64_t context = 1;
    gp_feed_context_created(5, 0);
    gp_feed_context_created(6, 1);
    gp_feed_oom_context(5, 0x50);
    cr_expect_not(gp_feed_poll_oom_enter(&context), "nothing has failed");
    fail(0);
    gp_feed_oom_context(0, 0x50);
    gp_feed_oom_context(5, 0);
    gp_feed_oom_context(6, 0x60); /* of another device */
    gp_feed_oom_context(7, 0x70); /* not known */
    cr_expect(wire.flags == 0 && wire.seq == 2);
    cr_expect_not(gp_feed_poll_oom_enter(&context));
    gp_feed_poll_oom_leave(1, 2);
    cr_expect(wire.flags == 0 && wire.seq == 2, "there was no question");
    gp_feed_poll_wanted();
    gp_feed_oom_context(5, 0x50);
    cr_expect(wire.flags == GP_OOM_PENDING && wire.seq == 4);
    cr_expect_eq(gp_feed_poll_wanted(), GP_POLL_OOM);
    cr_expect(gp_feed_poll_oom_enter(&context) && context == 0x50);
    cr_expect_not(gp_feed_poll_oom_enter(&context), "it is asked once");
    gp_feed_poll_oom_leave(0, 9);
    cr_expect(wire.flags == GP_OOM_DRIVER && wire.seq == 6 && wire.free_bytes == 0 && wire.total_bytes == 9);
    cr_expect(wire.driver_ns >= wire.time_ns);
    fail(GP_DEVICE_UNKNOWN);
    gp_feed_oom_context(7, 0x70);
    cr_expect_eq(wire.flags, 0, "of no device");
    fail(0);
    gp_feed_oom_context(5, 0x50);
    cr_expect(gp_feed_poll_oom_enter(&context));
    gp_feed_poll_oom_leave(-1, 9);
    cr_expect(wire.flags == 0 && wire.free_bytes == -1 && wire.total_bytes == -1 && wire.driver_ns == 0);
}

/* The answer that comes after another failure is not the other's. */
Test(reports, an_answer_belongs_to_its_question)
{
    uint64_t context;
    gp_feed_context_created(5, 0);
    fail(0);
    gp_feed_oom_context(5, 0x50);
    cr_expect(gp_feed_poll_oom_enter(&context));
    fail(0);
    gp_feed_oom_context(5, 0x51);
    gp_feed_poll_oom_leave(11, 13);
    cr_expect(wire.flags == GP_OOM_PENDING && wire.free_bytes == -1 && wire.count == 2);
    cr_expect(gp_feed_poll_oom_enter(&context) && context == 0x51);
    gp_feed_poll_oom_leave(17, 19);
    cr_expect(wire.flags == GP_OOM_DRIVER && wire.free_bytes == 17 && wire.total_bytes == 19);
    struct gp_wire_oom report;
    struct gp_wire_oom_framework framework;
    cr_expect(gp_feed_poll_oom_report(&report, &framework));
    cr_expect(report.count == 2 && report.free_bytes == 17);
    cr_expect_not(gp_feed_poll_oom_report(&report, &framework));
    cr_expect_eq(report.count, 2, "it is given all the same");
}

Test(reports, a_context_that_ends_is_not_asked_in)
{
    uint64_t context;
    gp_feed_context_created(5, 0);
    gp_feed_context_created(6, 0);
    fail(0);
    gp_feed_oom_context(5, 0x50);
    gp_feed_context_destroyed(6, 0, true);
    cr_expect(wire.flags == GP_OOM_PENDING && wire.seq == 4);
    gp_feed_context_destroyed(5, 0, true);
    cr_expect(wire.flags == 0 && wire.seq == 6);
    cr_expect_not(gp_feed_poll_oom_enter(&context));
}

/* The end of a context waits for a question that is under way in it, and not for one that takes more than 20 ms. */
Test(reports, the_end_of_a_context_waits_for_the_driver_s_answer)
{
    uint64_t context;
    gp_feed_context_created(5, 0);
    fail(0);
    gp_feed_oom_context(5, 0x50);
    clock_start(5 * MS);
    gp_oom_context_gone(6);
    cr_expect_eq(clock_looks, 0);
    gp_oom_context_gone(0); /* no context has this number */
    cr_expect_eq(clock_looks, 1 + 4, "%u", clock_looks);
    clock_step = 0;
    fail(0);
    gp_feed_oom_context(5, 0x50);
    cr_expect(gp_feed_poll_oom_enter(&context));
    clock_start(5 * MS);
    gp_oom_context_gone(6);
    cr_expect_eq(clock_looks, 0, "another context");
    gp_oom_context_gone(5);
    cr_expect_eq(clock_looks, 1 + 4, "the deadline, and 5, 10, 15 and 20 ms after it was set");
    gp_feed_poll_oom_leave(1, 2);
    clock_looks = 0;
    gp_oom_context_gone(5);
    cr_expect_eq(clock_looks, 0, "the answer is there");
}

/* A poller that did not answer in time is not waited for again. */
Test(reports, the_poller_has_five_milliseconds_until_it_fails_once)
{
    gp_feed_context_created(5, 0);
    fail(0);
    gp_feed_oom_context(5, 0x50);
    gp_feed_oom_context(5, 0x50);
    poll_answers = false;
    gp_feed_oom_context(5, 0x50);
    gp_feed_oom_context(5, 0x50);
    poll_answers = true;
    gp_feed_oom_context(5, 0x50);
    cr_assert_eq(polls, 5);
    for (unsigned i = 0; i < 5; i++)
        cr_expect_eq(patience[i], i < 3 ? 5 * MS : 0, "call %u: %llu ns", i, (unsigned long long)patience[i]);
}

Test(reports_alone, without_a_place_and_a_poller)
{
    struct gp_wire_oom report;
    struct gp_wire_oom_framework framework;
    struct gp_feed_oom facts = cache_facts();
    begin(NULL, NULL);
    gp_feed_context_created(5, 0);
    fail(0);
    gp_feed_oom_context(5, 0x50);
    gp_feed_oom_cache(0, &facts);
    cr_expect(gp_feed_poll_oom_report(&report, &framework));
    cr_expect(report.count == 1 && report.seq == 0 && report.idle_bytes == 5);
    gp_feed_pool_create(0x90, 0, 0);
    gp_feed_alloc(&(struct gp_allocation){
        .space = GP_SPACE_DEVICE, .kind = GP_KIND_POOL, .address = 0x1000, .bytes = 5, .pool = 0x90});
    cr_expect_neq(gp_feed_pool_destroy_begin(0x90), 0);
}

/* ---- pools and the poller ---------------------------------------------------------------------------------------- */

/* A pool with live blocks is polled once more; the driver then may not be asked about it. A poll that is under way is
 * waited for, for 10 ms, and after a wait in vain for 1 ms. */
Test(reports, a_destroyed_pool_waits_for_its_poll)
{
    gp_feed_pool_create(0x90, 0, 0);
    gp_feed_pool_create(0xa0, 0, 0);
    uint32_t token = gp_feed_pool_destroy_begin(0x90);
    cr_expect_eq(polls, 0, "it has no blocks");
    gp_feed_pool_destroy_end(token, false);
    gp_feed_alloc(&(struct gp_allocation){
        .space = GP_SPACE_DEVICE, .kind = GP_KIND_POOL, .address = 0x1000, .bytes = 5, .pool = 0x90});
    gp_feed_pool_destroy_end(gp_feed_pool_destroy_begin(0x90), false);
    cr_expect(polls == 1 && patience[0] == 10 * MS);
    cr_expect(gp_feed_poll_enter(0x90));
    clock_start(100 * MS);
    gp_feed_pool_destroy_end(gp_feed_pool_destroy_begin(0xa0), false);
    cr_expect_eq(clock_looks, 0, "another pool is polled: %u", clock_looks);
    clock_looks = 0;
    token = gp_feed_pool_destroy_begin(0x90);
    cr_expect_eq(clock_looks, 2, "%u", clock_looks);
    gp_feed_poll_leave();
    cr_expect_not(gp_feed_poll_enter(0x90), "it is being destroyed");
    gp_feed_pool_destroy_end(token, false);
    clock_looks = 0;
    gp_feed_pool_destroy_end(gp_feed_pool_destroy_begin(0x90), false);
    cr_expect_eq(clock_looks, 0, "no poll is under way: %u", clock_looks);
    cr_expect(polls == 3 && patience[2] == 1 * MS, "%u polls", polls);
    cr_expect(gp_feed_poll_enter(0x90), "it was not destroyed");
}

/* ---- numbers for the outside ------------------------------------------------------------------------------------- */

Test(reports, the_counts_of_a_cache_and_its_resets)
{
    struct gp_wire_device is;
    struct gp_wire_before_after said;
    accounts_linear(0x1000, 5);
    accounts_free(0x1000, true);
    gp_feed_cache_count(0, GP_FEED_RETRIES, 10);
    gp_feed_cache_count(0, GP_FEED_SYNCS, 20);
    gp_feed_cache_count(0, GP_FEED_DEVICE_ALLOCS, 30);
    gp_feed_cache_count(0, GP_FEED_DEVICE_FREES, 40);
    gp_feed_cache_count(1, GP_FEED_SYNCS, 1);
    gp_feed_cache_split_limit(0, 77);
    gp_feed_context_created(5, 0);
    for (int reset = 0; reset < 3; reset++) {
        cr_assert(gp_tap_device(0, &is));
        bool kept = reset < 2;
        cr_expect_eq(is.num_alloc_retries, kept ? 10 : 0);
        cr_expect_eq(is.num_sync_all_streams, kept ? 20 : 0);
        cr_expect_eq(is.num_device_alloc, kept ? 31 : 0);
        cr_expect_eq(is.num_device_free, kept ? 41 : 0);
        cr_expect_eq(is.max_split_size, 77);
        cr_expect_eq(is.flags, GP_DEVICE_PRESENT);
        struct gp_wire_kind_value contexts = {-1, -1, -1, -1, 1, -1, -1, -1};
        cr_expect_eq(memcmp(&is.kinds[GP_KIND_CONTEXT], &contexts, sizeof(contexts)), 0);
        cr_assert(gp_tap_reset(0, reset ? GP_RESET_ACCUMULATED : GP_RESET_PEAKS, &said));
    }
    cr_assert(gp_tap_device(1, &is));
    cr_expect(is.num_sync_all_streams == 1 && is.max_split_size == -1 && is.total_bytes == -1 && is.ordinal == 1);
    gp_account_of(GP_WIRE_HOST);
    cr_assert(gp_tap_device(GP_WIRE_HOST, &is));
    cr_expect_eq(is.ordinal, -1);
}

/* What was allocated counts once, though its totals were reset. */
Test(reports, batches_count_from_the_start)
{
    struct gp_batch_device batch;
    struct gp_wire_before_after said;
    uint8_t uuid[16] = {5, [15] = 6};
    gp_feed_poll_device(1, uuid, "x", 99, 512);
    gp_account_of(0);
    gp_tap_batch_begin();
    for (int64_t turn = 1; turn < 6; turn++) {
        accounts_block(GP_SPACE_DEVICE, GP_KIND_LINEAR, 1, (uint64_t)turn << 20, 10 * turn);
        accounts_block(GP_SPACE_DEVICE, GP_KIND_LINEAR, 1, 0x1000, 1000);
        accounts_free(0x1000, true);
        fail(1);
        fail(1);
        if (turn % 2)
            cr_assert(gp_tap_reset(1, turn % 3 ? GP_RESET_ACCUMULATED : GP_RESET_PEAKS, &said));
        cr_assert(gp_tap_batch(1, &batch));
        int64_t held = 5 * turn * (turn + 1);
        struct gp_batch_device want = {.uuid = {5, [15] = 6},
                                       .device = 1,
                                       .flags = GP_DEVICE_PRESENT | GP_DEVICE_IDENTIFIED,
                                       .total_bytes = 99,
                                       .allocated_bytes = held,
                                       .reserved_bytes = held,
                                       .allocated_high_bytes = held + 1000,
                                       .reserved_high_bytes = held + 1000,
                                       .calls = 2 * turn,
                                       .frees = turn,
                                       .failures = 2 * turn};
        cr_expect_eq(memcmp(&batch, &want, sizeof(want)), 0, "turn %lld", (long long)turn);
        cr_assert(gp_tap_batch(0, &batch));
        want = (struct gp_batch_device){.flags = GP_DEVICE_PRESENT, .total_bytes = -1};
        cr_expect_eq(memcmp(&batch, &want, sizeof(want)), 0, "turn %lld: the other device", (long long)turn);
    }
    cr_expect_not(gp_tap_batch(2, &batch));
    cr_expect_not(gp_tap_batch(GP_WIRE_GPUS, &batch));
}

/* A second begin, which is refused, does not restart the peaks of the first. */
Test(reports, watches_begin_once)
{
    struct gp_wire_scope_value said[GP_WIRE_DEVICES];
    struct gp_batch_device batch;
    gp_feed_pool_create(0x90, 1, 0);
    gp_feed_poll_pool(0x90, 1 * MIB, 0);
    gp_tap_batch_begin();
    cr_assert_eq(gp_tap_scope_begin(3), 0);
    for (int64_t mib = 8; mib > 1; mib -= 3) {
        gp_feed_poll_begin(1);
        gp_feed_poll_pool(0x90, mib * MIB, 0);
        gp_feed_poll_end(1);
        gp_tap_batch_begin();
        cr_expect_eq(gp_tap_scope_begin(3), -EBUSY);
        cr_assert_eq(gp_tap_scope_read(3, 1, said), 0);
        cr_expect_eq(said[0].reserved_peak_bytes, 8 * MIB);
    }
    cr_assert(gp_tap_batch(1, &batch));
    cr_expect(batch.reserved_bytes == 2 * MIB && batch.reserved_high_bytes == 8 * MIB);
    cr_assert(gp_tap_batch(1, &batch));
    cr_expect_eq(batch.reserved_high_bytes, 2 * MIB);
    cr_assert_eq(gp_tap_scope_end(3, said), 0);
    cr_expect(said[1].reserved_peak_bytes == 8 * MIB && said[0].reserved_peak_bytes == 0);
    gp_tap_batch_end();
    gp_tap_batch_end();
    gp_feed_poll_begin(1);
    gp_feed_poll_pool(0x90, 9 * MIB, 0);
    gp_feed_poll_end(1);
    gp_tap_batch_begin();
    cr_assert(gp_tap_batch(1, &batch));
    cr_expect_eq(batch.reserved_high_bytes, 9 * MIB);
}

/* The polled peaks of a watch that has not begun are 0, whatever is polled, reset and read. */
Test(reports, polled_peaks_are_those_of_their_watches)
{
    struct gp_wire_scope_value said[GP_WIRE_DEVICES];
    struct gp_wire_before_after values;
    struct gp_batch_device batch;
    struct gp_wire_device is;
    accounts_linear(0x1000, 3 * MIB);
    cr_assert_eq(gp_tap_scope_begin(4), 0);
    gp_tap_batch_begin();
    for (int64_t turn = 1; turn < 4; turn++) {
        gp_feed_poll_begin(0);
        gp_feed_poll_graph(0, turn * MIB, 0, 20 * turn * MIB, 0);
        gp_feed_poll_end(0);
        cr_assert(gp_tap_device(0, &is) && gp_tap_batch(0, &batch));
        cr_assert_eq(gp_tap_scope_read(4, 0, said), 0);
        cr_assert(gp_tap_reset(0, turn == 2 ? GP_RESET_RESERVED : GP_RESET_PEAKS, &values));
    }
    const struct gp_polled *polled = &gp_account_of(0)->polled;
    for (unsigned row = 0; row < 1 + GP_WATCHES_MAX; row++)
        for (unsigned i = 0; i < GP_FOLDED; i++) {
            bool begun = row == 0 || row == 1 + 4 || row == 1 + GP_BATCH_WATCH;
            cr_expect_eq(polled->peaks[row][i],
                         !begun  ? 0
                         : i < 2 ? 63 * MIB
                                 : 6 * MIB,
                         "row %u, %u: %lld", row, i, (long long)polled->peaks[row][i]);
        }
    for (unsigned i = 0; i < GP_FOLDED; i++)
        cr_expect_eq(polled->begun[i].current, 3 * MIB, "%u", i);
}

Test(reports, events_that_were_lost_count_as_attempts)
{
    for (uint64_t i = 0; i < 10; i++)
        accounts_linear(i << 20 | 0x1000, 5);
    cr_expect_eq(gp_tap_events(), 10);
    lost[GP_LOST_RING] += 7;
    cr_expect_eq(gp_tap_events(), 17);
}

/* ---- segments of a framework ------------------------------------------------------------------------------------- */

static int64_t allocated(void)
{
    struct gp_wire_device is;
    cr_assert(gp_tap_device(0, &is));
    return is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current;
}

/* Its small segments have 2 MiB. A segment is reserved and not allocated; memory of other kinds is none. */
Test(reports, segments_of_a_framework_are_small_up_to_two_mebibytes)
{
    static const int64_t sizes[] = {1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 20 * MIB};
    struct gp_wire_framework framework, heaps;
    cr_assert_eq(gp_owner_start(), 0);
    gp_owner_segments_of(""); /* whoever is on the stack */
    gp_feed_framework_start("pytorch");
    accounts_framework_block(0x1000, 1);
    int64_t sum = 0, segments = 0;
    for (unsigned i = 0; i < GP_COUNT(sizes); i++)
        for (int vmm = 0; vmm < 2; vmm++) {
            struct gp_wire_device is, was;
            cr_assert(gp_tap_device(0, &was));
            vmm ? gp_feed_vmm_create(i + 1, (uint64_t)sizes[i], 0) : accounts_linear(0x10000000ull * (i + 1), sizes[i]);
            accounts_framework_block(0x10000000ull * (i + 1), 1); /* else it would be none */
            accounts_framework_block(0x10000000ull * (i + 1), -1);
            cr_assert(gp_tap_device(0, &is));
            unsigned pool = sizes[i] <= 2 * MIB ? GP_POOL_SMALL : GP_POOL_LARGE, other = 3 - pool;
            cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][pool].current,
                         was.stats[GP_STAT_RESERVED_BYTES][pool].current + sizes[i], "%lld", (long long)sizes[i]);
            cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][other].current,
                         was.stats[GP_STAT_RESERVED_BYTES][other].current);
            cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, 1);
            sum += sizes[i];
            cr_assert(gp_tap_framework(0, &framework, &heaps));
            cr_expect(framework.reserved_bytes == sum && framework.segments == ++segments);
        }
    accounts_block(GP_SPACE_DEVICE, GP_KIND_PITCHED, 0, 0x500000, 6);
    accounts_block(GP_SPACE_DEVICE, GP_KIND_MANAGED, 0, 0x600000, 6);
    cr_expect_eq(allocated(), 7, "pitched memory is not divided");
    cr_assert(gp_tap_framework(0, &framework, &heaps));
    cr_expect(framework.reserved_bytes == sum && framework.segments == segments);
    gp_owner_segments_of(NULL);
    accounts_linear(0x700000, 3);
    cr_expect_eq(allocated(), 10);
}

/* Of several failures of the driver in a row the framework has retried once. */
Test(reports, a_request_for_a_segment_that_fails_is_a_retry)
{
    struct gp_wire_device is;
    unsigned types[32];
    cr_assert_eq(gp_owner_start(), 0);
    gp_owner_segments_of("");
    gp_account_of(0);
    gp_feed_failed("cuMemAlloc_v2", GP_ERROR_OUT_OF_MEMORY, 5, 0, GP_KIND_LINEAR);
    cr_expect(accounts_events(reader, types) == 1 && types[GP_EVENT_OOM] == 1, "no framework reports");
    gp_feed_framework_start("pytorch");
    for (int turn = 1; turn < 4; turn++) {
        gp_feed_failed("cuMemAlloc_v2", GP_ERROR_OUT_OF_MEMORY, 5, 0, GP_KIND_LINEAR);
        gp_feed_failed("cuMemAlloc_v2", GP_ERROR_OUT_OF_MEMORY, 5, 0, GP_KIND_LINEAR);
        cr_expect_eq(event_count(), 0);
        cr_assert(gp_tap_device(0, &is));
        cr_expect(is.num_alloc_retries == turn && is.num_ooms == 1);
        accounts_framework_block(0x1000u * (unsigned)turn, 10); /* it came at last */
        event_count();
    }
    gp_feed_failed("cuMemAlloc_v2", GP_ERROR_OUT_OF_MEMORY, 5, -1, GP_KIND_LINEAR);
    cr_expect(accounts_events(reader, types) == 1 && types[GP_EVENT_OOM] == 1, "of no device");
    gp_owner_segments_of(NULL);
    gp_feed_failed("cuMemAlloc_v2", GP_ERROR_OUT_OF_MEMORY, 5, 0, GP_KIND_LINEAR);
    cr_expect(accounts_events(reader, types) == 1 && types[GP_EVENT_OOM] == 1, "no segment");
    cr_assert(gp_tap_device(0, &is));
    cr_expect(is.num_alloc_retries == 3 && is.num_ooms == 2);
}
