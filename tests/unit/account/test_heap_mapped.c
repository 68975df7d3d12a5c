/* SPDX-License-Identifier: MIT
 *
 * test_heap_mapped.c: heaps of sub-allocators over mapped memory: which mappings are segments of a heap, what is in the
 * peaks, and threads that unmap below the heaps of others.
 */
#include "account/feed/door.h"
#include "account/feed/feed.h"
#include "account/feed/heap.h"
#include "account/feed/start.h"
#include "account/feed/vmm.h"
#include "account/ground.h"
#include "account/heap.h"
#include "account/internal.h"
#include "account/tap.h"
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <pthread.h>
#include <string.h>

#include "heap_events.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include "lib/random.h"

#define CHUNKS 64u
#define UNIT   4096ull
#define BASE   0x7000000000ull

static struct gp_wire_oom oom;
static uint32_t not_read;

static void setup(void)
{
    accounts_start(CHUNKS, (struct gp_feed_setup){.oom = &oom, .listened = &not_read, .map_limit = 1 << 20});
    heard_reader = accounts_reader(CHUNKS);
    cr_assert(gp_thread_enter());
}

TestSuite(heap_mapped, .init = setup, .fini = accounts_check, .timeout = 60);

static void no_rest(void *arg)
{
    (void)arg;
}

/* ---- peaks ------------------------------------------------------------------------------------------------------- */

#define OTHER (BASE + (1ull << 36)) /* memory beside it, which stays */

static int64_t peak_of(enum gp_wire_stat stat)
{
    struct gp_wire_device is;
    struct gp_wire_owner_value owners[GP_WIRE_OWNERS];
    cr_assert(gp_tap_owned(0, &is, owners));
    int64_t peak = is.stats[stat][GP_POOL_ALL].peak;
    if (stat == GP_STAT_ALLOCATED_BYTES)
        cr_expect_eq(owners[0].allocated_peak_bytes, peak, "the owner's");
    cr_expect_eq(is.stats[stat][GP_POOL_SMALL].peak, peak, "the small pool's");
    return peak;
}

/* Memory that turns out to be a segment was never allocated: the peaks are the 12 units of before. Beside
 * it lie 10 units, so with it as a plain allocation of 24 units the peak is 34. */
static void expect_segment(const char *what)
{
    cr_expect_eq(peak_of(GP_STAT_ALLOCATED_BYTES), 12 * (int64_t)UNIT, "%s: %lld units", what,
                 (long long)(peak_of(GP_STAT_ALLOCATED_BYTES) / (int64_t)UNIT));
    cr_expect_eq(peak_of(GP_STAT_REQUESTED_BYTES), 12 * (int64_t)UNIT, "%s", what);
}

static void expect_plain(const char *what)
{
    cr_expect_eq(peak_of(GP_STAT_ALLOCATED_BYTES), 34 * (int64_t)UNIT, "%s: %lld units", what,
                 (long long)(peak_of(GP_STAT_ALLOCATED_BYTES) / (int64_t)UNIT));
}

static void others(void)
{
    for (uint64_t part = 1; part <= 100; part++) { /* the peak is raised a hundred times */
        accounts_linear(OTHER, 12 * UNIT * part / 100);
        accounts_free(OTHER, true);
    }
    accounts_linear(OTHER, 10 * UNIT);
}

Test(heap_mapped, an_allocation_that_is_a_segment_leaves_the_peaks)
{
    others();
    accounts_linear(BASE, 24 * UNIT);
    expect_plain("a new one");
    for (int turn = 0; turn < 3; turn++) {
        cr_assert(gp_feed_heap_begin(BASE, 24 * UNIT));
        expect_segment("a heap");
        if (turn == 0) {
            gp_feed_heap_end(BASE);
            gp_heap_settle();
        } else
            accounts_free(BASE, false);
        expect_plain("after its heap, or after a free that failed");
    }
    cr_assert(gp_feed_heap_begin(BASE, 23 * UNIT));
    expect_plain("a part of it was allocated indeed");
}

Test(heap_mapped, a_mapping_that_is_a_segment_leaves_the_peaks)
{
    others();
    gp_feed_vmm_create(1, 24 * UNIT, 0);
    gp_feed_vmm_map(BASE, 24 * UNIT, 0, 1);
    expect_plain("a new one");
    for (int turn = 0; turn < 3; turn++) {
        cr_assert(gp_feed_heap_begin(BASE, 24 * UNIT));
        expect_segment("a heap");
        if (turn == 0) {
            gp_feed_heap_end(BASE);
            gp_heap_settle();
        } else
            gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE, 24 * UNIT), false);
        expect_plain("after its heap, or after an unmap that failed");
        heard_read();
        cr_expect_eq(heard_allocated, 34 * (int64_t)UNIT, "in the events");
    }
    cr_assert(gp_feed_heap_begin(BASE, 24 * UNIT));
    gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE, 24 * UNIT), true);
    cr_assert_not(gp_feed_heap_begin(BASE, 24 * UNIT), "nothing is mapped");
    gp_feed_vmm_map(BASE, 24 * UNIT, 0, 1);
    cr_assert(gp_feed_heap_begin(BASE + UNIT, 23 * UNIT));
    expect_plain("a part of it was allocated indeed");
}

/* A mapping below a heap was a segment from the start. */
Test(heap_mapped, a_mapping_below_a_heap_is_in_no_peak)
{
    others();
    gp_feed_vmm_create(1, UNIT, 0);
    gp_feed_vmm_map(BASE, UNIT, 0, 1);
    cr_assert(gp_feed_heap_begin(BASE, 25 * UNIT));
    gp_feed_vmm_create(2, 24 * UNIT, 0);
    gp_feed_vmm_map(BASE + UNIT, 24 * UNIT, 0, 2);
    expect_segment("both");
    gp_feed_heap_block(BASE, BASE + UNIT, 24 * UNIT);
    expect_plain("its blocks count");
}

/* ---- mappings that are no pieces --------------------------------------------------------------------------------- */

static int64_t unmapped; /* units of handles without a mapping on the device */

static void expect_held(unsigned device, int64_t allocated, int64_t imported, int64_t segments, const char *what)
{
    struct gp_wire_device is;
    struct gp_wire_framework framework, heaps;
    cr_assert(gp_tap_device(device, &is));
    gp_tap_framework(device, &framework, &heaps);
    int64_t has = is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current;
    cr_expect_eq(has, allocated * (int64_t)UNIT, "%s: device %u: %lld units", what, device,
                 (long long)(has / (int64_t)UNIT));
    cr_expect_eq(is.kinds[GP_KIND_IMPORTED].current_bytes, imported * (int64_t)UNIT, "%s: device %u", what, device);
    const struct gp_account *account = gp_accounts.x_devices[device];
    cr_expect_eq(account->heaps[GP_DOOR_NVTX].x_segments, segments, "%s: device %u: %lld segments", what, device,
                 (long long)account->heaps[GP_DOOR_NVTX].x_segments);
    cr_expect_eq(gp_tap_site_bytes(device, &is), has + unmapped * (int64_t)UNIT, "%s: device %u: in sites", what,
                 device);
    heard_read();
}

/* Memory of another process, of another device, in several mappings or mapped in part, and of a framework. */
Test(heap_mapped, only_whole_mappings_of_the_heap_s_device_are_pieces)
{
    gp_account_of(1);
    gp_feed_vmm_create(1, UNIT, 0);
    gp_feed_vmm_map(BASE, UNIT, 0, 1);
    gp_feed_vmm_create(2, 2 * UNIT, 1);
    gp_feed_vmm_map(BASE + UNIT, 2 * UNIT, 0, 2); /* before the heap */
    cr_assert(gp_feed_heap_begin(BASE, 60 * UNIT));
    expect_held(0, 0, 0, 1, "a heap");
    expect_held(1, 2, 0, 0, "a heap");
    gp_feed_vmm_create(3, 4 * UNIT, 1);
    gp_feed_vmm_map(BASE + 3 * UNIT, 4 * UNIT, 0, 3); /* below it */
    expect_held(1, 6, 0, 0, "below it, on another device");
    gp_feed_vmm_import(4, 0);
    gp_feed_vmm_map(BASE + 7 * UNIT, 3 * UNIT, 0, 4);
    expect_held(0, 0, 3, 1, "another process's");
    gp_feed_vmm_create(5, 8 * UNIT, 0);
    gp_feed_vmm_map(BASE + 10 * UNIT, 4 * UNIT, 0, 5);
    unmapped = 4;
    expect_held(0, 4, 3, 1, "the half of a handle");
    unmapped = 0;
    gp_feed_vmm_map(BASE + 14 * UNIT, 8 * UNIT, 0, 5);
    expect_held(0, 8, 3, 1, "all of it again");
    gp_feed_vmm_create(6, 5 * UNIT, 0);
    gp_feed_vmm_map(BASE + (1ull << 30), 5 * UNIT, 0, 6); /* elsewhere */
    gp_feed_vmm_map(BASE + 22 * UNIT, 5 * UNIT, 0, 6);
    expect_held(0, 13, 3, 1, "it has another mapping");
    gp_feed_vmm_create(7, UNIT, GP_DEVICE_UNKNOWN);
    gp_feed_vmm_map(BASE + 27 * UNIT, UNIT, 0, 7);
    expect_held(0, 13, 3, 1, "on an unknown device");
    gp_feed_vmm_create(8, 6 * UNIT, 0);
    gp_feed_vmm_map(BASE + 28 * UNIT, 6 * UNIT, 0, 8);
    expect_held(0, 13, 3, 2, "a piece");
    gp_feed_vmm_map(BASE + (2ull << 30), 6 * UNIT, 0, 8);
    expect_held(0, 13, 3, 2, "a second mapping of a piece adds nothing");
    /* The piece is unmapped: its memory is allocated in the other mapping. */
    gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE + 28 * UNIT, 6 * UNIT), true);
    expect_held(0, 19, 3, 1, "it has one mapping");
    gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE + (2ull << 30), 6 * UNIT), true);
    unmapped = 6;
    expect_held(0, 13, 3, 1, "and none");
    gp_feed_heap_end(BASE);
    gp_heap_settle();
    expect_held(0, 14, 3, 0, "without the heap");
    unmapped = 0;
    expect_held(1, 6, 0, 0, "without the heap");
    for (uint64_t handle = 1; handle < 9; handle++)
        gp_feed_vmm_release_end(gp_feed_vmm_release_begin(handle), true);
    for (uint64_t unit = 0; unit < 40; unit++)
        gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE + unit * UNIT, UNIT), true);
    gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE + (1ull << 30), UNIT), true);
    expect_held(0, 0, 0, 0, "nothing");
    expect_held(1, 0, 0, 0, "nothing");
    cr_expect(heard_allocated == 0 && heard_reserved == 0);
    cr_expect_eq(gp_map_count(gp_accounts.objects), 0);
    cr_expect_eq(lost[GP_LOST_MISSED_FREE] + lost[GP_LOST_ANNOTATION], 0);
}

/* A heap reaches into a piece of another device's heap, which does not count it, before and after its end. */
Test(heap_mapped, a_piece_has_heaps_of_its_device_alone)
{
    gp_account_of(1);
    gp_feed_vmm_create(1, 4 * UNIT, 0);
    gp_feed_vmm_map(BASE, 4 * UNIT, 0, 1);
    gp_feed_vmm_create(2, 8 * UNIT, 1);
    gp_feed_vmm_map(BASE + 4 * UNIT, 8 * UNIT, 0, 2);
    cr_assert(gp_feed_heap_begin(BASE + 6 * UNIT, 6 * UNIT));
    expect_held(1, 2, 0, 1, "beside its heap");
    cr_assert(gp_feed_heap_begin(BASE, 6 * UNIT));
    expect_held(0, 0, 0, 1, "the other device's");
    expect_held(1, 2, 0, 1, "with the other device's");
    gp_feed_heap_end(BASE);
    expect_held(0, 4, 0, 0, "the other device's has ended");
    expect_held(1, 2, 0, 1, "its own has not");
    cr_assert(gp_feed_heap_begin(BASE, 6 * UNIT));
    gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE + 4 * UNIT, 8 * UNIT), true);
    unmapped = 8;
    expect_held(1, 0, 0, 0, "nothing is mapped");
    unmapped = 0;
    gp_feed_heap_block(BASE, BASE, 3 * UNIT);
    expect_held(0, 3, 0, 1, "the other device's heap is still there");
}

static void visit_halves(void *arg, const struct gp_tap_block *block)
{
    *(unsigned *)arg += block->bytes == 2 * UNIT && block->address >= BASE + (1ull << 30);
}

/* The memory of a piece that is unmapped is allocated where it is mapped, in each part what the part shows. */
Test(heap_mapped, two_halves_take_what_a_piece_leaves)
{
    unsigned halves = 0;
    gp_feed_vmm_create(1, 4 * UNIT, 0);
    gp_feed_vmm_map(BASE, 4 * UNIT, 0, 1);
    cr_assert(gp_feed_heap_begin(BASE, 4 * UNIT));
    gp_feed_vmm_map(BASE + (1ull << 30), 2 * UNIT, 0, 1);
    gp_feed_vmm_map(BASE + (2ull << 30), 2 * UNIT, 2 * UNIT, 1);
    expect_held(0, 0, 0, 1, "a piece with two other mappings");
    gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(BASE, 4 * UNIT), true);
    expect_held(0, 4, 0, 0, "two halves");
    cr_expect_eq(heard_allocated, 4 * (int64_t)UNIT);
    gp_tap_blocks(0, &halves, visit_halves, no_rest);
    cr_expect_eq(halves, 2);
}

/* The unmap of a piece was not seen: its memory is allocated in its other mapping, and the new one is a piece. */
Test(heap_mapped, a_mapping_in_the_place_of_a_piece)
{
    gp_feed_vmm_create(1, 4 * UNIT, 0);
    gp_feed_vmm_map(BASE, 4 * UNIT, 0, 1);
    cr_assert(gp_feed_heap_begin(BASE, 8 * UNIT));
    gp_feed_heap_block(BASE, BASE + UNIT, UNIT);
    gp_feed_vmm_map(BASE + (1ull << 30), 4 * UNIT, 0, 1);
    expect_held(0, 1, 0, 1, "a piece with a second mapping");
    gp_feed_vmm_create(2, 3 * UNIT, 0);
    gp_feed_vmm_map(BASE + 4 * UNIT, 3 * UNIT, 0, 2); /* so that the heap stays */
    gp_feed_vmm_create(3, 4 * UNIT, 0);
    gp_feed_vmm_map(BASE, 4 * UNIT, 0, 3);
    cr_expect_eq(lost[GP_LOST_MISSED_FREE], 1);
    struct gp_wire_device is;
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, 4 * (int64_t)UNIT, "in the second mapping");
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, 11 * (int64_t)UNIT);
    gp_feed_heap_block(BASE, BASE, 7 * UNIT);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, 11 * (int64_t)UNIT);
    cr_expect_eq(lost[GP_LOST_ANNOTATION], 0);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

#define THREADS 3u
#define SLOTS   16u /* of an area: linear memory in the lower half, mappings in the upper one */

static bool x_stop;
static uint64_t x_next_handle;

static uint64_t slot_of(unsigned area, unsigned slot)
{
    return BASE + ((uint64_t)area << 32) + slot * 4 * UNIT;
}

/* Takes memory of its area from the driver and gives it back, which the driver refuses at times. */
static void *memory_thread(void *arg)
{
    unsigned area = *(unsigned *)arg;
    uint64_t state = RANDOM_SEED + area, handles[SLOTS] = {0};
    cr_assert(gp_thread_enter());
    for (unsigned step = 0; step < 20000 + SLOTS; step++) {
        unsigned slot = step < 20000 ? random_below(&state, SLOTS) : step - 20000;
        bool mapped = slot >= SLOTS / 2, ok = step >= 20000 || random_below(&state, 8);
        uint64_t address = slot_of(area, slot);
        if (handles[slot] && mapped) {
            gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(address, 4 * UNIT), ok);
            if (ok)
                gp_feed_vmm_release_end(gp_feed_vmm_release_begin(handles[slot]), true);
        } else if (handles[slot]) {
            accounts_free(address, ok);
        }
        if (handles[slot] || step >= 20000) {
            handles[slot] = handles[slot] && !ok ? handles[slot] : 0;
            continue;
        }
        handles[slot] = __atomic_add_fetch(&x_next_handle, 1, __ATOMIC_RELAXED);
        if (mapped) {
            gp_feed_vmm_create(handles[slot], 4 * UNIT, 0);
            gp_feed_vmm_map(address, 4 * UNIT, 0, handles[slot]);
        } else {
            accounts_linear(address, 4 * UNIT);
        }
    }
    gp_thread_leave();
    return NULL;
}

/* Begins and ends heaps in the memory of another thread, and blocks in them. */
static void *heap_thread(void *arg)
{
    unsigned area = *(unsigned *)arg;
    uint64_t state = 99172645463325252ull + area;
    cr_assert(gp_thread_enter());
    while (!__atomic_load_n(&x_stop, __ATOMIC_RELAXED)) {
        uint64_t heap = slot_of(area, random_below(&state, SLOTS)) + random_below(&state, 2) * UNIT,
                 block = heap + random_below(&state, 3) * UNIT;
        unsigned what = random_below(&state, 5);
        if (what < 2)
            gp_feed_heap_begin(heap, (1 + random_below(&state, 6)) * UNIT);
        else if (what == 2)
            gp_feed_heap_end(heap);
        else if (what == 3)
            gp_feed_heap_block(heap, block, UNIT);
        else
            gp_feed_heap_unblock(block);
    }
    gp_thread_leave();
    return NULL;
}

static void *reader_thread(void *arg)
{
    struct gp_wire_device is;
    cr_assert(gp_thread_enter());
    while (!__atomic_load_n(&x_stop, __ATOMIC_RELAXED))
        gp_tap_device(0, &is);
    gp_thread_leave();
    return arg;
}

/* Nothing is left of memory that is all given back, nor of its heaps. */
Test(heap_mapped, threads_that_free_and_unmap_below_the_heaps_of_others)
{
    pthread_t threads[2 * THREADS + 1];
    unsigned areas[THREADS];
    struct gp_wire_device is;
    struct gp_wire_framework framework, heaps;
    gp_account_of(0);
    for (unsigned i = 0; i < THREADS; i++) {
        areas[i] = i;
        cr_assert_eq(pthread_create(&threads[i], NULL, memory_thread, &areas[i]), 0);
        cr_assert_eq(pthread_create(&threads[THREADS + i], NULL, heap_thread, &areas[i]), 0);
    }
    cr_assert_eq(pthread_create(&threads[2 * THREADS], NULL, reader_thread, NULL), 0);
    for (unsigned i = 0; i <= 2 * THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (i == THREADS - 1)
            __atomic_store_n(&x_stop, true, __ATOMIC_RELAXED);
    }
    cr_assert(gp_tap_device(0, &is));
    gp_tap_framework(0, &framework, &heaps);
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, 0);
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, 0);
    cr_expect_eq(is.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current, 0);
    cr_expect_eq(gp_tap_site_bytes(0, &is), 0);
    cr_expect(heaps.segments == 0 && heaps.blocks == 0 && heaps.allocated_bytes == 0 && heaps.reserved_bytes == 0);
    cr_expect(gp_map_count(gp_accounts.blocks) == 0 && gp_map_count(gp_accounts.objects) == 0);
    cr_expect_eq(gp_accounts.x_memory_waits, 0);
    cr_expect_eq(lost[GP_LOST_MISSED_FREE] + lost[GP_LOST_MAP], 0);
}
