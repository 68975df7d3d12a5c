/* SPDX-License-Identifier: MIT
 *
 * test_feed_more.c: a framework's blocks and segments, and memory of other processes, against models:
 * each number of the accounts after every one of thousands of random operations.  Some of the
 * framework's blocks are from before its first report, and some of its totals are wrong.
 */
#include "account/tap.h"
#include "lib/accounts.h"
#include "lib/random.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <stdio.h>
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

#define OWNERS 2 /* of its blocks: rows 3 and 4, of which the first event's is the framework's own */

struct block {
    uint64_t address;
    int64_t bytes; /* 0: the row is free */
    uint8_t owner;
    bool known; /* its allocation was reported */
};

struct framework {
    struct gp_wire_framework is;
    struct gp_wire_device device;
    struct gp_wire_owner_value owner[OWNERS];
    struct block blocks[ROWS];
    int64_t theirs, theirs_reserved; /* its totals */
    int64_t before, before_reserved; /* of a late attach */
    bool failing, seen;
};

static struct framework frameworks[GPUS];
static bool is_late;

static void stats_move(struct framework *framework, int64_t bytes, bool large, int64_t count)
{
    static const enum gp_wire_stat counts[] = {GP_STAT_ALLOCATION, GP_STAT_ACTIVE};
    static const enum gp_wire_stat sums[] = {GP_STAT_ALLOCATED_BYTES, GP_STAT_ACTIVE_BYTES};
    for (int pool = 0; pool < 2; pool++) {
        int at = pool == 0 ? GP_POOL_ALL : large ? GP_POOL_LARGE : GP_POOL_SMALL;
        for (unsigned i = 0; i < 2 && count; i++)
            value_move(&framework->device.stats[counts[i]][at], count);
        for (unsigned i = 0; i < 2; i++)
            value_move(&framework->device.stats[sums[i]][at], bytes);
    }
}

static void owner_move(struct framework *framework, uint8_t owner, int64_t bytes, int64_t count)
{
    struct gp_wire_owner_value *value = &framework->owner[owner - 3];
    value->allocated_bytes += bytes;
    value->live += count;
    if (value->allocated_bytes > value->allocated_peak_bytes)
        value->allocated_peak_bytes = value->allocated_bytes;
}

struct listed {
    int64_t blocks, bytes;
};

static void list_block(void *arg, const struct gp_tap_block *block)
{
    struct listed *listed = arg;
    listed->blocks += block->inside;
    listed->bytes += block->inside ? (int64_t)block->bytes : 0;
}

static void no_rest(void *arg)
{
    (void)arg;
}

/* A walk finds each of its blocks, also those that were made below the peak while no one read the events, whose time
 * is not known. */
static void list_check(int index, const char *what)
{
    const struct framework *want = &frameworks[index];
    struct listed listed = {0}, live = {0};
    gp_tap_blocks((unsigned)index, &listed, list_block, no_rest);
    for (unsigned k = 0; k < ROWS; k++) {
        live.blocks += want->blocks[k].bytes && want->blocks[k].known;
        live.bytes += want->blocks[k].known ? want->blocks[k].bytes : 0;
    }
    cr_assert(listed.blocks == live.blocks && listed.bytes == live.bytes, "%s: device %d: %lld blocks, not %lld", what,
              index, (long long)listed.blocks, (long long)live.blocks);
}

static void framework_check(int index, const char *what)
{
    const struct framework *want = &frameworks[index];
    struct gp_wire_framework is, heaps;
    struct gp_wire_device device;
    struct gp_wire_owner_value owners[GP_WIRE_OWNERS];
    cr_assert_eq(gp_tap_framework((unsigned)index, &is, &heaps), want->seen, "%s", what);
    if (want->seen) {
        struct gp_wire_framework expected = want->is;
        strcpy(expected.name, "pytorch");
        cr_assert(memcmp(&is, &expected, sizeof(is)) == 0,
                  "%s, device %d: %lld blocks of %lld (theirs %lld), %lld segments of %lld (theirs %lld), %llu events, "
                  "%llu and %llu differ, %llu retries, %llu failures",
                  what, index, (long long)is.blocks, (long long)is.allocated_bytes, (long long)is.their_allocated_bytes,
                  (long long)is.segments, (long long)is.reserved_bytes, (long long)is.their_reserved_bytes,
                  (unsigned long long)is.events, (unsigned long long)is.allocated_differs,
                  (unsigned long long)is.reserved_differs, (unsigned long long)is.retries, (unsigned long long)is.ooms);
    }
    if (!gp_tap_device((unsigned)index, &device))
        return;
    for (int stat = 0; stat < GP_STATS; stat++)
        for (int pool = 0; pool < GP_POOLS; pool++) {
            const struct gp_wire_value *a = &device.stats[stat][pool], *b = &want->device.stats[stat][pool];
            cr_assert(memcmp(a, b, sizeof(*a)) == 0,
                      "%s: device %d, statistic %d, pool %d: %lld (peak %lld, allocated %lld), not %lld (%lld, %lld)",
                      what, index, stat, pool, (long long)a->current, (long long)a->peak, (long long)a->allocated,
                      (long long)b->current, (long long)b->peak, (long long)b->allocated);
        }
    cr_assert(gp_tap_owned((unsigned)index, &device, owners));
    for (int i = 0; i < OWNERS; i++)
        cr_assert(memcmp(&owners[3 + i], &want->owner[i], sizeof(owners[0])) == 0,
                  "%s: owner %d has %lld (%lld live), not %lld (%lld)", what, i,
                  (long long)owners[3 + i].allocated_bytes, (long long)owners[3 + i].live,
                  (long long)want->owner[i].allocated_bytes, (long long)want->owner[i].live);
}

/* What was allocated before the first report, as its totals show it. */
static void model_first(struct framework *framework, const struct gp_framework_event *event, uint8_t owner)
{
    int64_t before = event->allocated_bytes - event->bytes;
    if (framework->seen)
        return;
    framework->seen = true;
    if (is_late) {
        framework->before = event->allocated_bytes < 0 ? 0 : before;
        int64_t reserved = event->reserved_bytes - framework->is.reserved_bytes;
        framework->before_reserved = reserved > 0 ? reserved : 0;
    } else if (event->allocated_bytes >= 0 && before > 0) {
        stats_move(framework, before, true, 0);
        owner_move(framework, owner, before, 0);
        framework->is.allocated_bytes += before;
    }
}

static void model_compare(struct framework *framework, const struct gp_framework_event *event)
{
    struct gp_wire_framework *is = &framework->is;
    int64_t allocated = is->allocated_bytes, reserved = is->reserved_bytes;
    if (event->allocated_bytes < 0)
        return;
    is->their_allocated_bytes = event->allocated_bytes;
    is->their_reserved_bytes = event->reserved_bytes;
    if (is_late) {
        int64_t rest = event->reserved_bytes - reserved;
        if (rest >= 0 && rest < framework->before_reserved)
            framework->before_reserved = rest; /* it gave back segments from before */
        allocated += framework->before;
        reserved += framework->before_reserved;
    }
    is->allocated_differs += allocated != event->allocated_bytes;
    is->reserved_differs += reserved != event->reserved_bytes;
}

static void block_event(int index, struct block *block, int64_t bytes)
{
    struct framework *framework = &frameworks[index];
    bool told = draw_below(8), wrong = draw_below(16) == 0, known = block->known;
    framework->theirs += bytes;
    struct gp_framework_event event = {.device = index,
                                       .address = block->address,
                                       .bytes = bytes,
                                       .allocated_bytes = told ? framework->theirs + wrong : -1,
                                       .reserved_bytes = told ? framework->theirs_reserved + wrong : -1};
    model_first(framework, &event, block->owner);
    gp_feed_framework_block(&event, block->owner);
    framework->is.events++;
    if (bytes > 0 || known) {
        stats_move(framework, bytes, llabs(bytes) > MIB, bytes > 0 ? 1 : -1);
        owner_move(framework, block->owner, bytes, bytes > 0 ? 1 : -1);
        framework->is.blocks += bytes > 0 ? 1 : -1;
        framework->is.allocated_bytes += bytes;
    } else if (is_late) {
        framework->before += bytes;
    } else {
        stats_move(framework, bytes, true, 0);
        owner_move(framework, block->owner, bytes, 0);
        framework->is.allocated_bytes += bytes;
    }
    framework->failing = false;
    model_compare(framework, &event);
    if (!listened) {
        event_none("no viewer listens");
        return;
    }
    const struct gp_wire_event *is = event_next(bytes > 0 ? GP_EVENT_ALLOC : GP_EVENT_FREE, "a block");
    cr_assert(is->address == block->address && is->bytes == (uint64_t)llabs(bytes) && is->device == index &&
              is->kind == GP_KIND_LINEAR && is->time_ns);
    event_none("one block");
}

static void do_block(int index)
{
    static const int64_t sizes[] = {1, 511, 512, 513, MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB + 7};
    struct framework *framework = &frameworks[index];
    struct block *block = &framework->blocks[draw_below(ROWS)];
    if (block->bytes) {
        block_event(index, block, -block->bytes);
        block->bytes = 0;
        return;
    }
    block->bytes = sizes[draw_below(sizeof(sizes) / sizeof(sizes[0]))];
    block->known = true;
    block->owner = framework->seen && draw_below(4) == 0 ? 4 : 3;
    block_event(index, block, block->bytes);
}

static void do_segment(int index)
{
    struct framework *framework = &frameworks[index];
    int64_t bytes = (1 + (int64_t)draw_below(4)) * 2 * MIB;
    struct gp_record segment = {.device = (uint8_t)index, .segment = GP_SEGMENT_FRAMEWORK, .bytes = (uint64_t)bytes};
    bool take = framework->is.segments > 0 && draw_below(2);
    gp_segment_framework(&segment, take ? GP_SUB : GP_ADD);
    framework->is.segments += take ? -1 : 1;
    framework->is.reserved_bytes += take ? -bytes : bytes;
    framework->theirs_reserved += take ? -bytes : bytes;
}

/* The framework gives up; the context is that of the last driver call that failed. */
static void do_oom(int index)
{
    struct framework *framework = &frameworks[index];
    bool after = framework->failing;
    cr_assert_eq(gp_framework_failed_in(index, 7, 0x77), after);
    gp_feed_framework_oom("torch", index, 5 * (uint64_t)MIB);
    framework->is.ooms++;
    framework->is.retries += !after; /* it retried where its own limit refuses */
    framework->failing = false;
    const struct gp_wire_event *event = event_next(GP_EVENT_OOM, "it gives up");
    cr_assert(event->bytes == 5 * (uint64_t)MIB && event->device == index);
    event_none("one failure");
    cr_assert(!gp_framework_failed_in(index, 7, 0x77));
}

/* Segments are only counted here, so there is memory under the blocks that is in no total. */
static void memory_under(int index)
{
    const struct gp_record memory = {.key = 0x7000000000ull + ((uint64_t)index << 36),
                                     .space = GP_SPACE_DEVICE,
                                     .kind = GP_KIND_LINEAR,
                                     .device = (uint8_t)index,
                                     .segment = GP_SEGMENT_FRAMEWORK,
                                     .bytes = ROWS * (64ull << 20)};
    cr_assert_eq(gp_map_insert(gp_accounts.blocks, &memory, NULL), 0);
}

static void frameworks_walk(unsigned steps)
{
    for (int i = 0; i < GPUS; i++) {
        for (unsigned k = 0; k < ROWS; k++)
            frameworks[i].blocks[k].address = 0x7000000000ull + k * (64ull << 20) + ((uint64_t)i << 36);
        for (unsigned k = 0; k < 4; k++) { /* before the first report */
            frameworks[i].blocks[k].bytes = (k + 1) * MIB;
            frameworks[i].blocks[k].owner = 3;
            frameworks[i].theirs += (k + 1) * MIB;
        }
        frameworks[i].theirs_reserved = is_late ? 40 * MIB : 0;
        memory_under(i);
    }
    gp_feed_framework_start("pytorch");
    for (unsigned step = 0; step < steps; step++) {
        int index = (int)draw_below(GPUS);
        if (draw_below(8) == 0)
            do_segment(index);
        else if (draw_below(24) == 0 && frameworks[index].seen)
            do_oom(index);
        else
            do_block(index);
        framework_check(index, "a step");
    }
    gp_feed_framework_block(&(struct gp_framework_event){.device = 0, .address = 8}, 3); /* of 0 bytes: nothing */
    gp_feed_framework_block(&(struct gp_framework_event){.device = -1, .address = 8, .bytes = 8}, 3);
    for (int i = 0; i < GPUS; i++) {
        framework_check(i, "the end");
        list_check(i, "the end");
    }
    for (int cause = 0; cause < GP_LOSTS; cause++)
        cr_expect_eq(lost[cause], cause == GP_LOST_DEVICE, "lost %d", cause);
}

Test(framework, its_numbers_are_the_model_s)
{
    begin(false, true);
    frameworks_walk(4000);
}

Test(framework, and_so_if_no_one_listens)
{
    begin(false, false);
    for (int i = 0; i < GPUS; i++)
        gp_feed_framework_oom("torch", i, 1); /* known, and of no event: nothing is shown */
    struct gp_wire_framework is, heaps;
    cr_assert(!gp_tap_framework(0, &is, &heaps));
    cr_assert(!gp_tap_framework(GP_WIRE_GPUS, &is, &heaps));
    const struct gp_wire_event *event;
    while (gp_ringread_poll(reader, UINT64_MAX, &event) == 1)
        continue;
    for (int i = 0; i < GPUS; i++)
        frameworks[i].is.retries = frameworks[i].is.ooms = 1;
    frameworks_walk(4000);
}

Test(framework, what_was_there_before_a_late_attach_is_apart)
{
    begin(true, true);
    is_late = true;
    frameworks_walk(4000);
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
    gp_feed_alloc(&(struct gp_allocation){.space = GP_SPACE_DEVICE,
                                          .kind = GP_KIND_LINEAR,
                                          .address = 0x100000,
                                          .bytes = (uint64_t)(3 * MIB),
                                          .requested_bytes = (uint64_t)(3 * MIB)});
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
    gp_feed_alloc(&(struct gp_allocation){.space = GP_SPACE_DEVICE,
                                          .kind = GP_KIND_LINEAR,
                                          .device = 1,
                                          .address = 64,
                                          .bytes = 7,
                                          .requested_bytes = 7});
    cr_expect_neq(event_next(GP_EVENT_ALLOC, "a block")->site, 0);
}
