/* SPDX-License-Identifier: MIT
 *
 * test_feed_more.c: a framework's blocks, polled peaks, call sites without a reader, and memory of other processes, this
 * against a model after every one of thousands of random operations.
 */
#include "account/event.h"
#include "account/feed/block.h"
#include "account/feed/cache.h"
#include "account/feed/feed.h"
#include "account/feed/framework.h"
#include "account/feed/poll.h"
#include "account/feed/pool.h"
#include "account/feed/start.h"
#include "account/feed/vmm.h"
#include "account/feed/want.h"
#include "account/tap.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include "lib/random.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB    ((int64_t)1 << 20)
#define CHUNKS 64u
#define GPUS   2
#define ROWS   48

static struct gp_wire_oom oom;
static struct gp_ringread *reader;
static uint32_t listened;

static void begin(bool late, bool heard)
{
    listened = heard;
    accounts_start(CHUNKS,
                   (struct gp_feed_setup){.oom = &oom, .listened = &listened, .map_limit = 1 << 20, .late = late});
    reader = accounts_reader(CHUNKS);
    cr_assert(gp_thread_enter());
}

/* Not for the framework's: what it had before its first report has no records. */
TestSuite(imports, .fini = accounts_check);
TestSuite(pools, .fini = accounts_check);
TestSuite(sites, .fini = accounts_check);

static void value_move(struct gp_wire_value *value, int64_t by)
{
    value->current += by;
    if (by > 0)
        value->allocated += by;
    else
        value->freed -= by;
    if (value->current > value->peak)
        value->peak = value->current;
}

static const struct gp_wire_event *event_next(enum gp_wire_event_type type, const char *what)
{
    const struct gp_wire_event *event;
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &event), 1, "%s: an event", what);
    cr_assert_eq(event->type, type, "%s: event %u", what, event->type);
    cr_assert(event->tid == gp_thread.tid && event->cost == gp_thread.cost, "%s: of thread %u", what, event->tid);
    return event;
}

static void event_none(const char *what)
{
    const struct gp_wire_event *event;
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &event), 0, "%s: an event", what);
}

/* ---- a framework ------------------------------------------------------------------------------------------------- */

static void framework_block(uint64_t address, int64_t bytes, int64_t theirs, uint8_t owner)
{
    gp_feed_framework_block(&(struct gp_framework_event){.device = 1,
                                                         .address = address,
                                                         .bytes = bytes,
                                                         .allocated_bytes = theirs,
                                                         .reserved_bytes = theirs < 0 ? -1 : 0},
                            owner);
    if (listened && bytes) {
        const struct gp_wire_event *event = event_next(bytes > 0 ? GP_EVENT_ALLOC : GP_EVENT_FREE, "a block");
        cr_expect(event->device == 1 && event->kind == GP_KIND_LINEAR && event->time_ns && event->address == address &&
                  event->bytes == (uint64_t)llabs(bytes));
    }
    event_none("a block");
}

static void stat_is(enum gp_wire_stat stat, int64_t all, int64_t small, int64_t peak)
{
    struct gp_wire_device is;
    cr_assert(gp_tap_device(1, &is));
    const struct gp_wire_value *pools = is.stats[stat];
    cr_expect(pools[GP_POOL_ALL].current == all && pools[GP_POOL_SMALL].current == small &&
                  pools[GP_POOL_LARGE].current == all - small && pools[GP_POOL_ALL].peak == peak,
              "statistic %d: %lld (peak %lld), %lld small", stat, (long long)pools[GP_POOL_ALL].current,
              (long long)pools[GP_POOL_ALL].peak, (long long)pools[GP_POOL_SMALL].current);
}

/* Its blocks count whether or not a viewer hears of them; what was there before its first report counts as its own, and
 * each total that is not ours is noted. */
static void framework_counts(bool heard)
{
    struct gp_wire_framework is, heaps;
    struct gp_wire_device device;
    struct gp_wire_owner_value owners[GP_WIRE_OWNERS];
    begin(false, heard);
    cr_expect_not(gp_tap_framework(1, &is, &heaps));
    gp_feed_framework_start("pytorch");
    framework_block(0x1000, MIB, 4 * MIB, 3); /* 3 MiB were there before */
    framework_block(0x200000, 2 * MIB, 6 * MIB, 4);
    framework_block(0x600000, 5, 6 * MIB, 4); /* its total is wrong */
    stat_is(GP_STAT_ALLOCATED_BYTES, 6 * MIB + 5, MIB + 5, 6 * MIB + 5);
    stat_is(GP_STAT_ALLOCATION, 3, 2, 3);
    framework_block(0x200000, -2 * MIB, -1, 4);
    framework_block(0x700000, -MIB, 3 * MIB + 5, 3); /* from before */
    framework_block(0x8000, 0, 0, 3);                /* nothing */
    stat_is(GP_STAT_ALLOCATED_BYTES, 3 * MIB + 5, MIB + 5, 6 * MIB + 5);
    stat_is(GP_STAT_ACTIVE, 2, 2, 3);
    gp_feed_framework_oom("torch", 1, 5 * (uint64_t)MIB); /* its own limit refuses: it has retried */
    cr_expect(event_next(GP_EVENT_OOM, "it gives up")->bytes == 5 * (uint64_t)MIB);
    cr_assert(gp_tap_framework(1, &is, &heaps));
    cr_expect_str_eq(is.name, "pytorch");
    cr_expect(is.blocks == 2 && is.allocated_bytes == 3 * MIB + 5 && is.their_allocated_bytes == 3 * MIB + 5);
    cr_expect(is.events == 5 && is.allocated_differs == 1 && is.reserved_differs == 0 && is.segments == 0);
    cr_expect(is.retries == 1 && is.ooms == 1);
    cr_assert(gp_tap_owned(1, &device, owners));
    cr_expect(owners[3].allocated_bytes == 3 * MIB && owners[3].live == 1);
    cr_expect(owners[4].allocated_bytes == 5 && owners[4].allocated_peak_bytes == 2 * MIB + 5 && owners[4].live == 1);
}

Test(framework, its_blocks_count)
{
    framework_counts(true);
}

Test(framework, its_blocks_count_if_no_one_listens)
{
    framework_counts(false);
}

/* ---- memory of other processes ----------------------------------------------------------------------------------- */

struct import {
    bool pool, sized;
    unsigned opens;
    int device;
    uint64_t address;
    int64_t bytes;
};

static struct import imports[ROWS];
static struct gp_wire_kind_value imported[GPUS];

static void imported_move(int device, int64_t bytes, int64_t count)
{
    struct gp_wire_kind_value *kind = &imported[device];
    struct gp_wire_value value = {kind->current_bytes, kind->peak_bytes, kind->allocated_bytes, kind->freed_bytes};
    if (bytes)
        value_move(&value, bytes);
    kind->current_bytes = value.current, kind->peak_bytes = value.peak;
    kind->allocated_bytes = value.allocated, kind->freed_bytes = value.freed;
    kind->live += count;
    kind->calls += count > 0;
    kind->live_peak = kind->live > kind->live_peak ? kind->live : kind->live_peak;
}

static void imports_check(const char *what)
{
    for (int i = 0; i < GPUS; i++) {
        struct gp_wire_device device;
        if (!gp_tap_device((unsigned)i, &device))
            continue;
        const struct gp_wire_kind_value *is = &device.kinds[GP_KIND_IMPORTED], *want = &imported[i];
        cr_assert(is->current_bytes == want->current_bytes && is->peak_bytes == want->peak_bytes &&
                      is->allocated_bytes == want->allocated_bytes && is->freed_bytes == want->freed_bytes &&
                      is->live == want->live && is->live_peak == want->live_peak && is->calls == want->calls,
                  "%s, device %d: %lld bytes (peak %lld), %lld live (peak %lld), not %lld (%lld), %lld (%lld)", what, i,
                  (long long)is->current_bytes, (long long)is->peak_bytes, (long long)is->live,
                  (long long)is->live_peak, (long long)want->current_bytes, (long long)want->peak_bytes,
                  (long long)want->live, (long long)want->live_peak);
        cr_assert_eq(device.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, 0, "%s: it is not this process's",
                     what);
        cr_assert_eq(device.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, 0);
    }
}

static void import_event(enum gp_wire_event_type type, const struct import *import, const char *what)
{
    const struct gp_wire_event *event = event_next(type, what);
    cr_assert(event->address == import->address && event->kind == GP_KIND_IMPORTED && event->device == import->device,
              "%s", what);
}

static void do_open(struct import *import)
{
    bool first = !import->opens;
    if (import->pool && !first)
        return;
    gp_feed_poll_wanted();
    if (import->pool)
        gp_feed_pool_import_pointer(import->address, import->device);
    else
        gp_feed_ipc_open(import->address, import->device, 0);
    import->opens++;
    cr_assert_eq(gp_feed_poll_wanted() & GP_POLL_IMPORTS, first ? GP_POLL_IMPORTS : 0);
    if (first) {
        imported_move(import->device, 0, 1);
        import_event(GP_EVENT_ALLOC, import, "an import");
    }
    event_none("an import");
}

static void import_gone(struct import *import)
{
    imported_move(import->device, -import->bytes, -1);
    import_event(GP_EVENT_FREE, import, "the last close");
    import->bytes = 0;
    import->sized = false;
}

static void do_close(struct import *import)
{
    bool ok = draw_below(3);
    uint32_t token;
    if (!import->opens)
        return;
    if (import->pool) {
        token = gp_feed_free_begin(GP_SPACE_DEVICE, import->address);
        gp_feed_free_end(token, ok, 0);
    } else {
        token = gp_feed_ipc_close_begin(import->address);
        gp_feed_ipc_close_end(token, ok);
    }
    import->opens -= ok;
    if (ok && !import->opens)
        import_gone(import);
    event_none("a close");
}

/* The poller's answers, of which some come after the import has gone. */
static void do_answers(void)
{
    struct gp_poll_import asked;
    while (gp_feed_poll_import_next(&asked)) {
        for (unsigned i = 0; i < ROWS; i++) {
            struct import *import = &imports[i];
            if (import->address != asked.address)
                continue;
            cr_assert_eq(asked.space, import->pool ? GP_SPACE_DEVICE : GP_SPACE_IPC);
            gp_feed_poll_import(&asked, (uint64_t)(i + 1) * MIB);
            if (import->opens && !import->sized) {
                import->sized = true;
                import->bytes = (i + 1) * MIB;
                import_event(GP_EVENT_ALLOC, import, "its size");
                struct gp_wire_kind_value *kind = &imported[import->device];
                uint64_t calls = kind->calls;
                imported_move(import->device, import->bytes, 0);
                kind->calls = calls;
            }
        }
    }
}

Test(imports, count_once_and_are_no_allocation)
{
    begin(false, true);
    cr_assert_eq(gp_feed_ipc_close_begin(0x1234), 0, "never opened");
    for (unsigned i = 0; i < ROWS; i++)
        imports[i] =
            (struct import){.pool = i % 3 == 0, .device = (int)(i % GPUS), .address = 0x5000000000ull + (i << 20)};
    for (unsigned step = 0; step < 4000; step++) {
        struct import *import = &imports[draw_below(ROWS)];
        if (draw_below(10) == 0)
            do_answers();
        else if (draw_below(2))
            do_open(import);
        else
            do_close(import);
        imports_check("a step");
    }
    for (int cause = 0; cause < GP_LOSTS; cause++)
        cr_expect_eq(lost[cause], 0, "lost %d", cause);
}

/* ---- polled pools ------------------------------------------------------------------------------------------------ */

/* The polled part of a peak follows a reset of its word alone, in each pool. */
Test(pools, a_reset_of_one_word_alone_leaves_the_polled_peaks_of_the_other)
{
    struct gp_wire_before_after said;
    struct gp_wire_device is[3];
    begin(false, false);
    gp_feed_pool_create(0x9000, 0, 0);
    accounts_linear(0x100000, 3 * MIB);
    gp_feed_poll_begin(0);
    gp_feed_poll_pool(0x9000, 6 * MIB, 90 * MIB);
    gp_feed_poll_graph(0, 2 * MIB, 70 * MIB, 4 * MIB, 4 * MIB);
    gp_feed_poll_end(0);
    cr_assert(gp_tap_device(0, &is[0]));
    cr_assert(gp_tap_reset(0, GP_RESET_ALLOCATED, &said) && gp_tap_device(0, &is[1]));
    cr_assert(gp_tap_reset(0, GP_RESET_RESERVED, &said) && gp_tap_device(0, &is[2]));
    for (unsigned i = GP_POOL_ALL; i <= GP_POOL_LARGE; i++) {
        int64_t peak = i == GP_POOL_SMALL ? 0 : 90 * MIB;
        cr_expect_eq(is[0].stats[GP_STAT_RESERVED_BYTES][i].peak, peak, "pool %u", i);
        cr_expect_eq(is[1].stats[GP_STAT_RESERVED_BYTES][i].peak, peak, "pool %u: allocated was reset", i);
        for (unsigned k = 0; k < 3; k++) {
            unsigned stat =
                (const unsigned[]){GP_STAT_ALLOCATED_BYTES, GP_STAT_ACTIVE_BYTES, GP_STAT_REQUESTED_BYTES}[k];
            cr_expect_eq(is[0].stats[stat][i].peak, i == GP_POOL_SMALL ? 0 : 70 * MIB, "pool %u, %u", i, stat);
            cr_expect_eq(is[1].stats[stat][i].peak, is[1].stats[stat][i].current, "pool %u, %u", i, stat);
        }
        cr_expect_eq(is[2].stats[GP_STAT_RESERVED_BYTES][i].peak, is[2].stats[GP_STAT_RESERVED_BYTES][i].current,
                     "pool %u: reserved was reset", i);
    }
}

/* ---- call sites without a reader --------------------------------------------------------------------------------- */

static struct gp_wire_sites *sites_begin(void)
{
    uint64_t bytes = gp_site_bytes();
    struct gp_wire_sites *sites = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_eq(gp_site_start(sites, bytes, GP_SITES_NATIVE), 0);
    return sites;
}

static int64_t sites_hold(const struct gp_wire_sites *sites, unsigned device)
{
    const struct gp_wire_site *rows = (const struct gp_wire_site *)((const char *)sites + sites->rows_offset);
    int64_t sum = 0;
    for (uint32_t i = 0; i < sites->rows; i++)
        sum += rows[i].device == device && rows[i].summed ? rows[i].live_bytes : 0;
    cr_assert_eq(sites->devices[device].live_bytes, sum);
    return sum;
}

/* The blocks of a cache and of a framework are summed by call site whether or not someone reads the events. */
Test(sites, hold_blocks_that_no_one_hears)
{
    begin(false, false);
    cr_expect(!gp_feed_cache_wants_time() && !gp_feed_cache_wants_block(0) && gp_feed_cache_wants_block(1));
    struct gp_wire_sites *sites = sites_begin();
    cr_expect(gp_feed_cache_wants_time() && !gp_feed_cache_wants_block(0));
    gp_feed_framework_start("pytorch");
    for (int turn = 0; turn < 4; turn++) {
        listened = turn % 2;
        uint64_t time_ns = turn / 2 ? 5 : 0; /* without a time it is no event */
        struct gp_feed_event event = {.type = GP_EVENT_ALLOC, .device = 1, .bytes = 40, .time_ns = time_ns};
        event.address = 0x1000;
        event.site = gp_event_here(1, GP_KIND_LINEAR);
        cr_assert_neq(event.site, 0);
        gp_feed_cache_event(&event);
        cr_expect_eq(sites_hold(sites, 1), 40, "turn %d", turn);
        if (turn == 3)
            cr_expect_eq(event_next(GP_EVENT_ALLOC, "a block")->bytes, 40);
        event_none("a block");
        event.type = GP_EVENT_FREE;
        gp_feed_cache_event(&event);
        cr_expect_eq(sites_hold(sites, 1), 0, "turn %d", turn);
        if (turn == 3)
            cr_expect_eq(event_next(GP_EVENT_FREE, "a block")->site, event.site);
        event_none("a block");
        event.type = GP_EVENT_SEGMENT_ALLOC; /* is an event in any case, and its blocks are summed */
        gp_feed_cache_event(&event);
        cr_expect_eq(event_next(GP_EVENT_SEGMENT_ALLOC, "a segment")->kind, GP_KIND_LINEAR);
        cr_expect_eq(sites_hold(sites, 1), 0);
        for (int64_t bytes = 9; bytes >= -9; bytes -= 18) {
            gp_feed_framework_block(
                &(struct gp_framework_event){
                    .device = 1, .address = 0x2000, .bytes = bytes, .allocated_bytes = -1, .reserved_bytes = -1},
                3);
            cr_expect_eq(sites_hold(sites, 1), bytes > 0 ? 9 : 0, "turn %d", turn);
            if (listened)
                event_next(bytes > 0 ? GP_EVENT_ALLOC : GP_EVENT_FREE, "a framework's block");
            event_none("a framework's block");
        }
    }
    cr_expect_eq(sites_hold(sites, 0), 0);
    listened = 1;
    gp_feed_cache_event(&(struct gp_feed_event){.type = GP_EVENT_SEGMENT_FREE, .device = -1, .stream = 6});
    const struct gp_wire_event *event = event_next(GP_EVENT_SEGMENT_FREE, "of no device");
    cr_expect(event->device == 255 && event->stream == 6 && event->time_ns);
    cr_expect(gp_feed_cache_wants_block(0), "the event");
}

/* What is another process's is no row of a call site. */
Test(imports, have_no_call_site)
{
    static const struct import import = {.address = 0x5000000000ull, .device = 1};
    begin(false, true);
    sites_begin();
    gp_feed_ipc_open(import.address, import.device, 0);
    cr_expect_eq(event_next(GP_EVENT_ALLOC, "an import")->site, 0);
    gp_feed_pool_import_pointer(0x6000000000ull, 1);
    cr_expect_eq(event_next(GP_EVENT_ALLOC, "a pointer of another pool")->site, 0);
    gp_feed_vmm_import(77, 1);
    cr_expect_eq(event_next(GP_EVENT_SEGMENT_ALLOC, "a handle of another process")->site, 0);
    accounts_block(GP_SPACE_DEVICE, GP_KIND_LINEAR, 1, 64, 7);
    cr_expect_neq(event_next(GP_EVENT_ALLOC, "a block")->site, 0);
}
