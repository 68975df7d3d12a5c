/* SPDX-License-Identifier: MIT
 *
 * test_account_limits.c: the accounts when something has run out: the pointer maps, the frames of calls under way, the
 * memory of the process, the table of failures, the numbers of devices. What cannot be recorded is counted as lost, and
 * everything else is as if the call had not been made.
 */
#include "account/feed/block.h"
#include "account/feed/cache.h"
#include "account/feed/context.h"
#include "account/feed/failed.h"
#include "account/feed/feed.h"
#include "account/feed/framework.h"
#include "account/feed/graph.h"
#include "account/feed/heap.h"
#include "account/feed/poll.h"
#include "account/feed/pool.h"
#include "account/feed/start.h"
#include "account/feed/vmm.h"
#include "account/frame.h"
#include "account/framework.h"
#include "account/internal.h"
#include "account/move.h"
#include "account/tap.h"
#include "lib/accounts.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB    ((int64_t)1 << 20)
#define CHUNKS 64u
#define FRAMES 4095u

/* ---- the process's memory, which can run out --------------------------------------------------------------------- */

static long calls_left = -1; /* -1: no call fails; 0: all of them do */
static int64_t mapped;       /* bytes */
static void (*at_map)(void); /* called once, in the next mmap */

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    void (*hook)(void) = at_map;
    at_map = NULL;
    if (hook)
        hook();
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

/* ---- the accounts ------------------------------------------------------------------------------------------------ */

static struct gp_wire_oom oom;
static struct gp_ringread *reader;

static void setup(void)
{
    accounts_start(CHUNKS, (struct gp_feed_setup){.oom = &oom, .map_limit = 1 << 16});
    reader = accounts_reader(CHUNKS);
    cr_assert(gp_thread_enter());
}

TestSuite(limits, .init = setup, .timeout = 60);

/* Maps of at most so many records each. */
static void maps_of(uint64_t blocks, uint64_t objects)
{
    gp_map_free(gp_accounts.blocks);
    gp_map_free(gp_accounts.objects);
    cr_assert_eq(gp_map_new(&gp_accounts.blocks, blocks), 0);
    cr_assert_eq(gp_map_new(&gp_accounts.objects, objects), 0);
}

/* The causes in the order of the list, which -1 ends, were counted once each, and no other was. */
static void expect_lost(const char *what, const int *causes)
{
    uint64_t want[GP_LOSTS] = {0};
    for (; *causes >= 0; causes++)
        want[*causes]++;
    for (int cause = 0; cause < GP_LOSTS; cause++)
        cr_expect_eq(lost[cause], want[cause], "%s: lost %d: %llu, not %llu", what, cause,
                     (unsigned long long)lost[cause], (unsigned long long)want[cause]);
    memset(lost, 0, sizeof(lost));
}
#define LOST(_what, ...) expect_lost(_what, (const int[]){__VA_ARGS__, -1})
#define NONE             -1

/* What is held on a device now: bytes reserved and allocated, blocks, and of each kind. */
struct held {
    int64_t reserved, allocated, blocks, segments, kind_bytes[GP_KINDS], kind_live[GP_KINDS];
};

static struct held held_on(unsigned device)
{
    struct held held = {0};
    struct gp_wire_device is;
    if (!gp_tap_device(device, &is))
        return held;
    held.reserved = is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current;
    held.allocated = is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current;
    held.blocks = is.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current;
    held.segments = is.stats[GP_STAT_SEGMENT][GP_POOL_ALL].current;
    for (int kind = 1; kind < GP_KINDS; kind++) {
        held.kind_bytes[kind] = kind == GP_KIND_CONTEXT ? 0 : is.kinds[kind].current_bytes;
        held.kind_live[kind] = is.kinds[kind].live;
    }
    return held;
}

static bool holds_nothing(unsigned device)
{
    struct held held = held_on(device), none = {0};
    return memcmp(&held, &none, sizeof(none)) == 0;
}

static unsigned event_count(void)
{
    unsigned types[32];
    return accounts_events(reader, types);
}

/* ---- no memory for a device -------------------------------------------------------------------------------------- */

Test(limits, a_device_without_memory_is_not_known)
{
    for (int most = 0; most < 2; most++) {
        int64_t before = mapped;
        calls_left = most;
        cr_expect_null(gp_account_of(5), "%d mappings", most);
        calls_left = -1;
        cr_expect_eq(mapped, before, "%d mappings: %lld bytes are left", most, (long long)(mapped - before));
        cr_expect_not(gp_tap_known(5));
        cr_expect_eq(gp_feed_devices(), 0);
        LOST("no memory", GP_LOST_DEVICE);
    }
    calls_left = 3;
    const struct gp_account *account = gp_account_of(5);
    calls_left = -1;
    cr_assert_not_null(account);
    cr_expect_eq(gp_account_of(5), account);
    cr_expect_eq(gp_feed_devices(), 1u << 5);
    LOST("memory for all of it", NONE);
}

/* No call does anything but count, in whatever order. */
Test(limits, calls_for_a_device_without_memory)
{
    struct gp_wire_framework framework, heaps;
    struct gp_wire_device none;
    struct gp_wire_owner_value owners[GP_WIRE_OWNERS];
    struct gp_wire_before_after said;
    struct gp_batch_device *batch = NULL;
    gp_account_of(1);
    accounts_linear(0x100000, 1);
    accounts_free(0x100000, true);
    for (int device = 2; device < 1000; device += device == 2 ? 64 : 1000) { /* no memory; out of range */
        uint8_t uuid[16] = {1};
        memset(lost, 0, sizeof(lost));
        calls_left = 0;
        gp_feed_context_created(3, device);
        cr_expect_eq(gp_feed_context_device(3), GP_DEVICE_UNKNOWN);
        gp_feed_context_destroyed(3, device, true);
        gp_feed_primary_context(device, 3);
        cr_expect_eq(gp_feed_primary_of(device), 0);
        gp_feed_pool_create(0x90, device, 0);
        cr_expect_eq(gp_feed_pool_device(0x90), GP_DEVICE_UNKNOWN);
        gp_feed_pool_use(device, 0x90);
        cr_expect_eq(gp_feed_pool_of(device), 0);
        gp_feed_vmm_create(7, 5, device);
        cr_expect_eq(gp_feed_vmm_release_begin(7), 0);
        gp_feed_graph_node(0x1000, 5, device, 8, 9);
        cr_expect_not(gp_feed_graph_knows(0x1000));
        gp_feed_ipc_open(0x2000, device, 0);
        cr_expect_eq(gp_feed_ipc_close_begin(0x2000), 0);
        gp_feed_cache_count(device, GP_FEED_SYNCS, 1);
        gp_feed_cache_split_limit(device, 1);
        cr_expect_null(gp_feed_cache_gauges(device));
        gp_feed_poll_begin(device);
        gp_feed_poll_graph(device, 1, 1, 1, 1);
        gp_feed_poll_end(device);
        gp_feed_poll_device(device, uuid, "name", 5, 0);
        gp_feed_framework_block(
            &(struct gp_framework_event){.device = device, .address = 0x100, .bytes = 5, .allocated_bytes = -1}, 0);
        gp_feed_framework_oom("f", device, 5);
        cr_expect_eq(gp_account_raises(device), 0);
        gp_account_retract(device, 0, &(struct gp_move){.parts = GP_PART_ALLOCATED, .bytes = 1, .count = 1});
        cr_expect_eq(gp_account_move(device, GP_ADD, &(struct gp_move){.parts = 3, .bytes = 1, .count = 1}), 0);
        cr_expect(!gp_framework_failed(device, GP_KIND_LINEAR) && !gp_framework_failed_in(device, 1, 1));
        calls_left = -1;
        cr_expect_eq(lost[GP_LOST_DEVICE], 25, "device %d: %llu", device, (unsigned long long)lost[GP_LOST_DEVICE]);
        cr_expect_eq(lost[GP_LOST_MAP], 0);
        cr_expect_eq(event_count(), device == 2 ? 2 : 0, "of the block of before");
        if (device < (int)GP_WIRE_DEVICES)
            cr_expect(!gp_tap_known(2) && !gp_tap_owned(2, &none, owners) && !gp_tap_framework(2, &framework, &heaps) &&
                      !gp_tap_reset(2, GP_RESET_PEAKS, &said) && !gp_tap_batch(2, batch));
        cr_expect_eq(gp_map_count(gp_accounts.objects) + gp_map_count(gp_accounts.blocks), 0);
    }
    cr_expect(holds_nothing(0) && holds_nothing(1));
    cr_expect_eq(gp_feed_devices(), 3);
}

/* Two threads use a device for the first time at once: the second account is given back. */
static struct gp_account *other_account;

static void other_thread(void)
{
    other_account = gp_account_of(4);
}

Test(limits, two_threads_make_one_account)
{
    int64_t before = mapped;
    gp_account_of(3);
    int64_t one = mapped - before;
    at_map = other_thread;
    struct gp_account *account = gp_account_of(4);
    cr_expect(account && account == other_account);
    cr_expect_eq(mapped, before + 2 * one);
    cr_expect_eq(gp_accounts.x_devices[4], account);
}

/* The watches that are under way begin with the account, and no other does. */
Test(limits, a_device_that_is_used_later_is_watched)
{
    struct gp_wire_scope_value said[GP_WIRE_DEVICES];
    int64_t peaks[GP_GAUGES_MAX];
    cr_assert_eq(gp_tap_scope_begin(0), 0);
    cr_assert_eq(gp_tap_scope_begin(GP_WIRE_SCOPES - 1), 0);
    gp_tap_batch_begin();
    const struct gp_account *account = gp_account_of(0);
    for (unsigned slot = 0; slot <= GP_BATCH_WATCH; slot++) {
        bool begun = slot == 0 || slot >= GP_WIRE_SCOPES - 1;
        cr_expect_eq(gp_counter_watch_read(account->counter, slot, peaks), begun ? 0 : -ENOENT, "slot %u", slot);
    }
    accounts_linear(0x1000, 7);
    accounts_free(0x1000, true);
    cr_assert_eq(gp_tap_scope_end(GP_WIRE_SCOPES - 1, said), 0);
    cr_expect(said[0].allocated_peak_bytes == 7 && said[0].reserved_peak_bytes == 7);
    for (unsigned i = 1; i < GP_WIRE_DEVICES; i++)
        cr_expect(said[i].allocated_peak_bytes == 0 && said[i].reserved_peak_bytes == 0);
    cr_expect_eq(gp_tap_scope_begin(GP_WIRE_SCOPES), -EINVAL);
    cr_expect_eq(gp_tap_scope_end(GP_WIRE_SCOPES, said), -ENOENT);
    cr_expect_eq(gp_tap_scope_read(0, 1, said), -ENODEV);
    cr_expect_eq(gp_tap_scope_read(1, 0, said), -ENOENT);
    cr_expect_eq(gp_tap_scope_read(0, 0, said), 0);
    gp_tap_batch_end();
    cr_expect_eq(gp_counter_watch_read(account->counter, GP_BATCH_WATCH, peaks), -ENOENT);
}

Test(limits, numbers_of_devices_out_of_range)
{
    static const int numbers[] = {-1, INT32_MIN, GP_WIRE_DEVICES, GP_WIRE_DEVICES + 1, INT32_MAX};
    for (unsigned i = 0; i < GP_COUNT(numbers); i++) {
        cr_expect_null(gp_account_of(numbers[i]));
        LOST("out of range", GP_LOST_DEVICE);
    }
    cr_expect_not_null(gp_account_of(GP_WIRE_DEVICES - 1));
    cr_expect(gp_tap_known(GP_WIRE_DEVICES - 1) && !gp_tap_known(GP_WIRE_DEVICES) && !gp_tap_known(UINT32_MAX));
    cr_expect_eq(gp_feed_devices(), 0, "the host is no GPU");
    cr_expect_not_null(gp_account_of(GP_WIRE_GPUS - 1));
    cr_expect_eq(gp_feed_devices(), 1ull << (GP_WIRE_GPUS - 1));
    LOST("in range", NONE);
}

Test(limits, the_accounts_do_not_start_without_memory)
{
    const struct gp_feed_setup setting = gp_accounts.setup;
    gp_feed_end();
    for (int most = 0; most < 2; most++) {
        int64_t before = mapped;
        calls_left = most;
        cr_expect_eq(gp_feed_start(&setting), -ENOMEM, "%d mappings", most);
        calls_left = -1;
        cr_expect_eq(mapped, before);
        cr_expect_null(gp_accounts.blocks);
        gp_feed_end();
        cr_expect_eq(mapped, before);
    }
    cr_assert_eq(gp_feed_start(&setting), 0);
    int64_t before = mapped;
    for (uint64_t i = 1; i < 100; i++)
        gp_feed_stream_created(i, 1);
    gp_feed_end();
    cr_expect(!gp_accounts.blocks && !gp_accounts.objects);
    cr_expect_lt(mapped, before, "the maps are given back");
    gp_feed_end();
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

/* Each thread has a frame of its own as long as these last, and all threads share the rest. */
static uint32_t frame_of_thread(unsigned index, struct gp_frame **frame)
{
    gp_thread.number = index + 1;
    return gp_account_frame_get(frame);
}

Test(limits, as_many_calls_at_once_as_there_are_frames)
{
    const uint32_t number = gp_thread.number;
    static bool seen[FRAMES + 1];
    static uint32_t tokens[FRAMES];
    struct gp_frame *frame;
    struct held before;
    accounts_linear(0x1000, 5);
    gp_feed_vmm_create(7, 9, 0);
    gp_feed_vmm_map(0x40000000, 9, 0, 7);
    gp_feed_ipc_open(0x2000, 0, 0);
    gp_feed_pool_create(0x90, 0, 0);
    gp_feed_graph_node(0x3000, 5, 0, 8, 9);
    before = held_on(0);
    cr_expect_eq(event_count(), 5);
    for (unsigned i = 0; i < FRAMES; i++) {
        tokens[i] = frame_of_thread(i, &frame);
        cr_assert(tokens[i] && tokens[i] <= FRAMES && !seen[tokens[i]], "token %u", tokens[i]);
        seen[tokens[i]] = true;
        frame->what = GP_SPACE_RANGE;
        cr_assert_eq(gp_account_frame_of(tokens[i], GP_SPACE_RANGE), frame);
        cr_assert_null(gp_account_frame_of(tokens[i], GP_SPACE_DEVICE));
    }
    LOST("all frames", NONE);
    cr_expect_eq(gp_account_frame_get(&frame), 0);
    LOST("one more", GP_LOST_FRAMES);
    cr_expect_eq(gp_feed_free_begin(GP_SPACE_DEVICE, 0x1000), 0);
    cr_expect_eq(gp_feed_vmm_release_begin(7), 0);
    cr_expect_eq(gp_feed_vmm_unmap_begin(0x40000000, 9), 0);
    cr_expect_eq(gp_feed_ipc_close_begin(0x2000), 0);
    cr_expect_eq(gp_feed_pool_destroy_begin(0x90), 0);
    cr_expect_eq(gp_feed_graph_destroy_begin(9), 0);
    cr_expect_eq(lost[GP_LOST_FRAMES], 6);
    lost[GP_LOST_FRAMES] = 0;
    for (int ok = 0; ok < 2; ok++) {
        gp_feed_free_end(0, ok, 0);
        gp_feed_vmm_release_end(0, ok);
        gp_feed_vmm_unmap_end(0, ok);
        gp_feed_ipc_close_end(0, ok);
        gp_feed_pool_destroy_end(0, ok);
        gp_feed_graph_destroy_end(0, ok);
    }
    struct held after = held_on(0);
    cr_expect_eq(memcmp(&before, &after, sizeof(after)), 0);
    cr_expect(gp_feed_graph_knows(0x3000) && gp_feed_pool_device(0x90) == 0);
    cr_expect_eq(gp_feed_vmm_handle_at(0x40000000), 7);
    cr_expect_eq(event_count(), 0);
    for (unsigned i = 0; i < FRAMES; i++)
        gp_account_frame_put(tokens[i]);
    cr_expect_null(gp_account_frame_of(tokens[5], GP_SPACE_RANGE), "it was put back");
    cr_expect(!gp_account_frame_of(0, GP_SPACE_NONE) && !gp_account_frame_of(FRAMES + 1, 0) &&
              !gp_account_frame_of(UINT32_MAX, 0));
    LOST("the ends of no call", NONE);
    /* One thread with many calls takes the shared ones. */
    gp_thread.number = 1;
    for (unsigned i = 0; i < 2000; i++)
        cr_assert((tokens[i] = gp_account_frame_get(&frame)) != 0);
    for (unsigned i = 0; i < 2000; i++)
        gp_account_frame_put(tokens[i]);
    gp_thread.number = number;
}

/* A call of something that is not known gives its frame back, and so does each end. */
Test(limits, no_call_keeps_a_frame)
{
    static uint32_t tokens[FRAMES];
    struct gp_frame *frame;
    gp_feed_graph_node(0x3000, 5, 0, 8, 9);
    for (unsigned turn = 0; turn < FRAMES / 4; turn++) {
        cr_assert_eq(gp_feed_free_begin(GP_SPACE_DEVICE, 0x1000), 0);
        cr_assert_eq(gp_feed_vmm_release_begin(7), 0);
        cr_assert_eq(gp_feed_ipc_close_begin(0x2000), 0);
        cr_assert_eq(gp_feed_pool_destroy_begin(0x90), 0);
        gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(0x40000000, 9), turn % 2);
        gp_feed_graph_destroy_end(gp_feed_graph_destroy_begin(1), turn % 2);
        accounts_linear(0x1000, 5);
        accounts_free(0x1000, false);
        accounts_free(0x1000, true);
        gp_feed_vmm_create(7, 9, 0);
        gp_feed_vmm_release_end(gp_feed_vmm_release_begin(7), false);
        gp_feed_vmm_release_end(gp_feed_vmm_release_begin(7), true);
        gp_feed_ipc_open(0x2000, 0, 0);
        gp_feed_ipc_close_end(gp_feed_ipc_close_begin(0x2000), turn % 2);
        gp_feed_ipc_close_end(gp_feed_ipc_close_begin(0x2000), true);
        gp_feed_pool_create(0x90, 0, 0);
        gp_feed_pool_destroy_end(gp_feed_pool_destroy_begin(0x90), false);
        gp_feed_pool_destroy_end(gp_feed_pool_destroy_begin(0x90), true);
        event_count();
    }
    for (unsigned i = 0; i < FRAMES; i++)
        cr_assert(tokens[i] = frame_of_thread(i, &frame));
    LOST("every frame was free", NONE);
}

/* ---- a full map -------------------------------------------------------------------------------------------------- */

Test(limits, blocks_for_which_the_map_has_no_room)
{
    maps_of(2, 1);
    accounts_linear(0x1000, 5);
    accounts_block(GP_SPACE_HOST, GP_KIND_PINNED, (int)GP_WIRE_HOST, 0x1000, 6);
    LOST("room", NONE);
    event_count();
    struct held before = held_on(0), host = held_on(GP_WIRE_HOST);
    accounts_linear(0x2000, 7);
    LOST("no room", GP_LOST_MAP);
    accounts_block(GP_SPACE_HOST, GP_KIND_PINNED, (int)GP_WIRE_HOST, 0x2000, 6);
    LOST("no room", GP_LOST_MAP);
    struct held after = held_on(0), host_after = held_on(GP_WIRE_HOST);
    cr_expect_eq(memcmp(&before, &after, sizeof(after)), 0);
    cr_expect_eq(memcmp(&host, &host_after, sizeof(after)), 0);
    cr_expect_eq(event_count(), 0);
    cr_expect_eq(gp_feed_free_begin(GP_SPACE_DEVICE, 0x2000), 0);

    /* Another block takes the room while the driver refuses to free this one. */
    uint32_t token = gp_feed_free_begin(GP_SPACE_DEVICE, 0x1000);
    accounts_linear(0x3000, 50);
    gp_feed_free_end(token, false, 0);
    LOST("its room is taken", GP_LOST_MAP);
    after = held_on(0);
    cr_expect(after.reserved == 50 && after.allocated == 50 && after.blocks == 1 && after.segments == 1);
    accounts_free(0x3000, true);
    cr_expect(holds_nothing(0));
    cr_expect_eq(gp_feed_free_begin(GP_SPACE_DEVICE, 0x1000), 0);
}

/* The address is another block's by the time at which the driver refuses to free it. */
Test(limits, an_address_that_is_used_again_before_its_free_has_failed)
{
    unsigned types[32];
    accounts_linear(0x1000, 5);
    uint32_t token = gp_feed_free_begin(GP_SPACE_DEVICE, 0x1000);
    accounts_linear(0x1000, 70);
    event_count();
    gp_feed_free_end(token, false, 0);
    LOST("the other's free was not seen", GP_LOST_MISSED_FREE);
    cr_expect_eq(held_on(0).allocated, 5);
    cr_expect(accounts_events(reader, types) == 1 && types[GP_EVENT_FREE] == 1);
    accounts_free(0x1000, true);
    cr_expect(holds_nothing(0));
}

/* Blocks on a device that is not known are followed and in no total. */
Test(limits, blocks_of_an_unknown_device)
{
    const struct gp_wire_event *event;
    gp_feed_context_created(5, 0);
    gp_feed_alloc(&(struct gp_allocation){
        .space = GP_SPACE_DEVICE, .kind = GP_KIND_LINEAR, .device = -1, .ctx = 5, .address = 0x1000, .bytes = 8});
    LOST("a device is lacking", GP_LOST_DEVICE);
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &event), 1);
    cr_expect(event->type == GP_EVENT_ALLOC && event->device == 255 && event->bytes == 8 && event->time_ns);
    gp_feed_context_destroyed(5, 0, true);
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &event), 2);
    cr_expect(event->type == GP_EVENT_FREE && event->device == 255 && event->address == 0x1000);
    gp_feed_vmm_create(7, 9, -1);
    LOST("a device is lacking", GP_LOST_DEVICE);
    gp_feed_vmm_map(0x40000000, 9, 0, 7);
    gp_feed_graph_node(0x3000, 5, -1, 8, 9);
    LOST("a device is lacking", GP_LOST_DEVICE);
    cr_expect_eq(event_count(), 3);
    gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(0x40000000, 9), true);
    gp_feed_vmm_release_end(gp_feed_vmm_release_begin(7), true);
    gp_feed_graph_gone(9);
    cr_expect_eq(event_count(), 3);
    cr_expect(holds_nothing(0));
    LOST("all were known", NONE);
    cr_expect_eq(gp_feed_devices(), 1);
}

Test(limits, handles_and_streams_for_which_the_map_has_no_room)
{
    for (uint64_t room = 1; room < 8; room++) {
        maps_of(1, room);
        for (uint64_t i = 1; i < 8; i++)
            gp_feed_vmm_create(i, (uint64_t)(2 * MIB), 0);
        cr_expect_eq(lost[GP_LOST_MAP], 7 - room);
        cr_expect_eq(held_on(0).reserved, (int64_t)room * 2 * MIB);
        cr_expect_eq(event_count(), room);
        gp_feed_stream_created(0x50, 1);
        cr_expect_eq(lost[GP_LOST_MAP], 8 - room);
        gp_feed_pool_create(0x90, 0, 0);
        cr_expect_eq(lost[GP_LOST_MAP], 9 - room);
        gp_feed_ipc_open(0x2000, 0, 0);
        cr_expect_eq(lost[GP_LOST_MAP], 10 - room);
        cr_expect_eq(held_on(0).kind_live[GP_KIND_IMPORTED], 0);
        cr_expect_eq(event_count(), 0);
        /* The room of the first is taken when its release has failed. */
        uint32_t token = gp_feed_vmm_release_begin(1);
        gp_feed_vmm_create(9, (uint64_t)(4 * MIB), 0);
        gp_feed_vmm_release_end(token, false);
        cr_expect_eq(lost[GP_LOST_MAP], 11 - room);
        gp_feed_vmm_release_end(gp_feed_vmm_release_begin(9), true);
        for (uint64_t i = 2; i < 8; i++)
            gp_feed_vmm_release_end(gp_feed_vmm_release_begin(i), true);
        cr_expect_eq(gp_map_count(gp_accounts.objects), 0);
        cr_expect_eq(held_on(0).reserved, 2 * MIB, "the one that the map has lost is not free");
        gp_account_move(0, GP_SUB,
                        &(struct gp_move){.kind = GP_KIND_VMM,
                                          .parts = GP_PART_RESERVED | GP_PART_KIND,
                                          .bytes = 2 * MIB,
                                          .count = 1,
                                          .class_bytes = 2 * MIB});
        memset(lost, 0, sizeof(lost));
        event_count();
    }
}

/* A graph whose nodes did not all find room leaves nothing behind, wherever the room ended. */
Test(limits, graphs_for_whose_nodes_the_map_has_no_room)
{
    for (unsigned moved = 0; moved < 3; moved++)
        for (uint64_t room = 1; room < 20; room++) {
            unsigned entered = 0;
            maps_of(1, room);
            for (uint64_t i = 1; i < 5; i++) {
                gp_feed_graph_node(0x1000 * i, 100, 0, 0x80 + i, i % 2 ? 0x7 : 0x8);
                entered += gp_feed_graph_knows(0x1000 * i);
                cr_assert_eq(held_on(0).kind_live[GP_KIND_GRAPH], entered);
                cr_assert_eq(held_on(0).kind_bytes[GP_KIND_GRAPH], 100 * entered);
                cr_assert_eq(lost[GP_LOST_MAP], i - entered);
            }
            cr_expect_eq(event_count(), entered);
            /* Two graphs of two nodes: owner, and per node the node and its number. */
            cr_expect(room < 10 || entered == 4, "%u in %llu", entered, (unsigned long long)room);
            cr_expect(room > 1 || entered == 0, "%u in %llu", entered, (unsigned long long)room);
            if (moved)
                gp_feed_graph_moved(0x8, moved == 1 ? 0x7 : 0x9);
            cr_expect_eq(held_on(0).kind_live[GP_KIND_GRAPH], entered);
            gp_feed_graph_gone(0x7);
            gp_feed_graph_gone(0x9);
            gp_feed_graph_gone(0x8);
            cr_expect_eq(event_count(), entered);
            cr_expect(holds_nothing(0), "room %llu: %lld nodes", (unsigned long long)room,
                      (long long)held_on(0).kind_live[GP_KIND_GRAPH]);
            cr_expect_eq(gp_map_count(gp_accounts.objects), 0, "room %llu, %u: %llu records", (unsigned long long)room,
                         moved, (unsigned long long)gp_map_count(gp_accounts.objects));
            cr_expect_eq(gp_feed_graph_destroy_begin(7), 0, "no graph holds memory");
            memset(lost, 0, sizeof(lost));
        }
}

Test(limits, mappings_for_which_the_map_has_no_room)
{
    maps_of(1, 2);
    gp_feed_vmm_create(7, (uint64_t)(4 * MIB), 0);
    gp_feed_vmm_map(0x40000000, (uint64_t)(2 * MIB), 0, 7);
    LOST("room", NONE);
    gp_feed_vmm_map(0x40200000, (uint64_t)(2 * MIB), 0, 7);
    LOST("no room", GP_LOST_MAP);
    cr_expect_eq(held_on(0).allocated, 4 * MIB, "it is mapped");
    gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(0x40000000, (uint64_t)(4 * MIB)), true);
    cr_expect_eq(held_on(0).allocated, 2 * MIB, "the second is not known");
    LOST("an unmap", NONE);
}

/* ---- blocks of frameworks and heaps ------------------------------------------------------------------------------ */

/* A free brings its size, so the totals are right all the same. */
Test(limits, blocks_of_a_framework_for_which_the_map_has_no_room)
{
    struct gp_wire_framework framework, heaps;
    gp_feed_framework_start("pytorch");
    maps_of(1, 1);
    accounts_framework_block(0x1000, 10);
    LOST("room", NONE);
    accounts_framework_block(0x2000, 20);
    LOST("no room", GP_LOST_MAP);
    accounts_framework_block(0x1000, 40);
    LOST("twice", GP_LOST_MISSED_FREE);
    cr_expect_eq(event_count(), 3, "without a word that counts the readers there is always one");
    cr_expect_eq(held_on(0).allocated, 70);
    cr_assert(gp_tap_framework(0, &framework, &heaps));
    cr_expect(framework.blocks == 1 && framework.allocated_bytes == 70 && framework.events == 3);
    accounts_framework_block(0x2000, -20);
    cr_expect_eq(held_on(0).allocated, 50);
    accounts_framework_block(0x1000, -50);
    cr_expect_eq(held_on(0).allocated, 0);
    LOST("frees", NONE);
}

Test(limits, heaps_without_memory_or_room)
{
    struct gp_wire_framework framework, heaps;
    maps_of(2, 1);
    accounts_linear(0x100000, 64);
    calls_left = 0;
    cr_expect_not(gp_feed_heap_begin(0x100000, 64));
    calls_left = -1;
    LOST("no memory for the heap", GP_LOST_MAP);
    cr_expect(held_on(0).allocated == 64 && held_on(0).blocks == 1);
    cr_assert(gp_feed_heap_begin(0x100000, 64));
    calls_left = 0;
    gp_feed_heap_block(0x100000, 0x100000, 8);
    calls_left = -1;
    LOST("no memory for the block", GP_LOST_MAP);
    cr_expect_eq(held_on(0).allocated, 0);
    gp_feed_heap_block(0x100000, 0x100000, 8);
    LOST("room", NONE);
    gp_feed_heap_block(0x100000, 0x100010, 16);
    LOST("no room in the map", GP_LOST_MAP);
    cr_expect(held_on(0).allocated == 24 && held_on(0).blocks == 2);
    gp_feed_heap_resize(0x100010, 32);
    LOST("no room again", GP_LOST_MAP);
    cr_expect(held_on(0).allocated == 40 && held_on(0).blocks == 2);
    cr_assert(gp_tap_framework(0, &framework, &heaps));
    cr_expect(heaps.blocks == 2 && heaps.allocated_bytes == 40 && heaps.segments == 1);
    gp_feed_heap_unblock(0x100010);
    cr_expect(held_on(0).allocated == 8 && held_on(0).blocks == 1);
    calls_left = 0; /* there is no memory to note that the segment has lost its heap: it is plain at once */
    gp_feed_heap_end(0x100000);
    calls_left = -1;
    struct gp_wire_device is;
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, 64);
    accounts_free(0x100000, true);
    cr_expect(holds_nothing(0));
    LOST("the end", NONE);
}

/* A segment that cannot wait for its next heap is a plain mapping. */
Test(limits, heaps_over_mappings_without_memory)
{
    gp_feed_vmm_create(7, 64, 0);
    gp_feed_vmm_map(0x40000000, 64, 0, 7);
    accounts_linear(0x100000, 64);
    cr_assert(gp_feed_heap_begin(0x100000, 64)); /* so that there is room for heaps */
    calls_left = 0;
    cr_assert(gp_feed_heap_begin(0x40000000, 64));
    calls_left = -1;
    cr_expect_eq(held_on(0).allocated, 0);
    calls_left = 0;
    gp_feed_heap_end(0x40000000);
    calls_left = -1;
    struct gp_wire_device is;
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, 64);
    gp_feed_vmm_unmap_end(gp_feed_vmm_unmap_begin(0x40000000, 64), true);
    gp_feed_vmm_release_end(gp_feed_vmm_release_begin(7), true);
    accounts_free(0x100000, true);
    cr_expect(holds_nothing(0));
    LOST("the end", NONE);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

Test(limits, failures_of_more_calls_than_the_table_holds)
{
    char name[64];
    for (unsigned turn = 0; turn < 3; turn++)
        for (unsigned i = 0; i < GP_WIRE_FAILURES; i++) {
            snprintf(name, sizeof(name), "call%u", i / 2);
            gp_feed_failed(name, 1 + i % 2 * 700, 0, 0,
                           GP_KIND_LINEAR); /* the same call with two errors, and the reverse */
        }
    LOST("all have a row", NONE);
    gp_feed_failed("call0", 5, 0, 0, GP_KIND_LINEAR);
    LOST("another error", GP_LOST_FAILURE);
    gp_feed_failed("call", 1, 0, 0, GP_KIND_LINEAR);
    LOST("another name", GP_LOST_FAILURE);
    for (unsigned i = 0; i < GP_WIRE_FAILURES; i++) {
        snprintf(name, sizeof(name), "call%u", i / 2);
        cr_expect_str_eq(failures[i].api, name);
        cr_expect(failures[i].error == 1 + i % 2 * 700 && failures[i].count == 3);
    }
    cr_expect_eq(event_count(), 0, "none was for lack of memory");
}

Test(limits, long_names)
{
    const struct gp_wire_event *event;
    char api[100], name[100];
    memset(api, 'a', sizeof(api));
    memset(name, 'n', sizeof(name));
    api[99] = name[99] = '\0';
    gp_feed_failed(api, 7, 0, 0, GP_KIND_LINEAR);
    cr_expect_eq(strlen(failures[0].api), sizeof(failures[0].api) - 1);
    api[sizeof(failures[0].api) - 1] = '\0';
    gp_feed_failed(api, 7, 0, 0, GP_KIND_LINEAR);
    cr_expect_eq(failures[0].count, 2);
    gp_feed_event(GP_EVENT_MARK, name);
    gp_feed_event(GP_EVENT_MARK, NULL);
    cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &event), 2);
    cr_expect_eq(strnlen(event[0].name, sizeof(event[0].name)), sizeof(event[0].name) - 1);
    cr_expect(event[0].device == 255 && event[0].type == GP_EVENT_MARK && event[0].time_ns);
    cr_expect_str_eq(event[1].name, "");
    struct gp_wire_device is;
    uint8_t uuid[16] = {3, [15] = 4};
    gp_feed_poll_device(0, uuid, name, 77, 132 * 2048);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.flags >> GP_DEVICE_THREADS_SHIFT, 132 * 4);
    static const struct {
        int64_t said;
        unsigned kept;
    } threads[] = {{-512, 0}, {511, 0}, {512, 1}, {(1 << 25) - 1, 65535}, {1 << 25, 0}, {INT64_MAX, 0}, {0, 0}};
    for (unsigned i = 0; i < GP_COUNT(threads); i++) {
        gp_feed_poll_device(0, uuid, name, 77, threads[i].said);
        cr_assert(gp_tap_device(0, &is));
        cr_expect_eq(is.flags >> GP_DEVICE_THREADS_SHIFT, threads[i].kept, "%lld", (long long)threads[i].said);
    }
    cr_expect(strlen(is.name) == sizeof(is.name) - 1 && is.total_bytes == 77 && is.uuid[0] == 3 && is.uuid[15] == 4);
    cr_expect(is.flags == (GP_DEVICE_PRESENT | GP_DEVICE_IDENTIFIED) && is.ordinal == 0);
    gp_feed_framework_start(name);
    accounts_framework_block(0x1000, 10);
    struct gp_wire_framework framework, heaps;
    cr_assert(gp_tap_framework(0, &framework, &heaps));
    cr_expect_eq(strlen(framework.name), sizeof(framework.name) - 1);
}

/* The sizes of imports are asked for, the newest first, and of no more than 256 between two polls. */
Test(limits, imports_that_are_asked_for)
{
    struct gp_poll_import asked;
    cr_expect_not(gp_feed_poll_import_next(&asked));
    for (int turn = 0; turn < 2; turn++) {
        for (uint64_t i = 0; i < 300; i++)
            gp_feed_ipc_open(0x1000000 + (i << 20) + ((uint64_t)turn << 40), 0, 0);
        for (uint64_t i = 256; i-- > 0;) {
            cr_assert(gp_feed_poll_import_waits() && gp_feed_poll_import_next(&asked));
            cr_assert(asked.address == 0x1000000 + (i << 20) + ((uint64_t)turn << 40) && asked.space == GP_SPACE_IPC);
            gp_feed_poll_import(&asked, 10);
            gp_feed_poll_import(&asked, 10); /* the second answer is none */
        }
        cr_expect(!gp_feed_poll_import_waits() && !gp_feed_poll_import_next(&asked));
        cr_expect_eq(held_on(0).kind_bytes[GP_KIND_IMPORTED], (turn + 1) * 2560);
        cr_expect_eq(held_on(0).kind_live[GP_KIND_IMPORTED], (turn + 1) * 300);
        event_count();
    }
}
