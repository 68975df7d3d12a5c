/* SPDX-License-Identifier: MIT
 *
 * test_source.c: driver calls as the handlers see them, without a driver: on which device a call counts, above all when it
 * fails, which pool is current, and what each end of a capture leaves.
 */
#include "account/feed/context.h"
#include "account/feed/failed.h"
#include "account/feed/feed.h"
#include "account/feed/graph.h"
#include "account/feed/pool.h"
#include "account/feed/start.h"
#include "account/tap.h"
#include "base/clock.h"
#include "base/thread.h"
#include "lib/accounts.h"
#include "lib/random.h"
#include "source/internal.h"
#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

#define MIB     ((size_t)1 << 20)
#define CONTEXT 7 /* number of the current context, on device 0 */
#define OTHER   8 /* of one on device 1 */
#define STREAM  ((void *)0x5000)
#define POOL    ((void *)0x9000)

static struct gp_wire_oom oom;

static void setup(void)
{
    accounts_start(8, (struct gp_feed_setup){.oom = &oom, .map_limit = 1 << 16});
    cr_assert(gp_thread_enter());
    gp_feed_context_created(CONTEXT, 0);
    gp_feed_context_created(OTHER, 1);
    gp_feed_stream_created((uint64_t)(uintptr_t)STREAM, CONTEXT);
}

TestSuite(source, .init = setup);

/* The call as it is: node_type is what CUPTI said inside it. */
static void call_as(const char *name, const void *params, uint32_t result, uint32_t node_type)
{
    uint64_t slot;
    struct gp_call call = {.params = params, .ctx = CONTEXT, .result = result, .slot = &slot};
    for (unsigned i = 0; i < gp_hook_count && !call.hook; i++)
        call.hook = strcmp(gp_hooks[i].name, name) == 0 ? &gp_hooks[i] : NULL;
    cr_assert_not_null(call.hook, "%s", name);
    gp_dispatch_enter(&call);
    gp_thread.node_type = node_type;
    gp_dispatch_exit(&call);
    gp_thread.node_type = 0;
}

static void call(const char *name, const void *params, uint32_t result)
{
    call_as(name, params, result, 0);
}

static int64_t ooms(unsigned device)
{
    struct gp_wire_device is;
    return gp_tap_device(device, &is) ? is.num_ooms : 0;
}

static int64_t live(unsigned device, enum gp_wire_kind kind)
{
    struct gp_wire_device is;
    return gp_tap_device(device, &is) ? is.kinds[kind].live : 0;
}

/* ---- the device of a call ---------------------------------------------------------------------------------------- */

static uint64_t address;
static void *handle;
static struct gp_cu_mem_prop prop = {.location = {.type = GP_CU_LOCATION_DEVICE, .id = 1}};
static struct gp_cu_alloc_node node = {
    .pool = {.location = {.type = GP_CU_LOCATION_DEVICE, .id = 1}}, .bytes = 3 * MIB, .address = 0x700000};

static struct gp_cu_node_params alloc_node = {
    .type = GP_CU_NODE_ALLOC,
    .alloc = {.pool = {.location = {.type = GP_CU_LOCATION_DEVICE, .id = 1}}, .bytes = 100, .address = 0x30000000}};
static size_t pitch = 512;

/* Entry points that allocate 3 MiB, with the device on which they do. */
static const struct {
    const char *name;
    const void *params;
    unsigned device;
    enum gp_wire_kind kind;
} allocators[] = {
    {"cuMemAlloc_v2", &(struct gp_params_cuMemAlloc_v2){&address, 3 * MIB}, 0, GP_KIND_LINEAR},
    {"cuMemAllocManaged", &(struct gp_params_cuMemAllocManaged){&address, 3 * MIB, 0}, 0, GP_KIND_MANAGED},
    {"cuMemHostAlloc", &(struct gp_params_cuMemHostAlloc){&handle, 3 * MIB, 0}, GP_WIRE_HOST, GP_KIND_PINNED},
    {"cuMemCreate", &(struct gp_params_cuMemCreate){&address, 3 * MIB, &prop, 0}, 1, GP_KIND_VMM},
    {"cuMemAllocAsync", &(struct gp_params_cuMemAllocAsync){&address, 3 * MIB, STREAM}, 0, GP_KIND_POOL},
    {"cuMemAllocFromPoolAsync", &(struct gp_params_cuMemAllocFromPoolAsync){&address, 3 * MIB, POOL, STREAM}, 1,
     GP_KIND_POOL},
    {"cuGraphAddMemAllocNode", &(struct gp_params_cuGraphAddMemAllocNode){&handle, (void *)0x33, NULL, 0, &node}, 1,
     GP_KIND_GRAPH},
};

Test(source, a_failed_call_counts_on_its_own_device_and_moves_nothing)
{
    static const unsigned devices[] = {0, 1, GP_WIRE_HOST};
    gp_feed_pool_create((uint64_t)(uintptr_t)POOL, 1, 0);
    for (unsigned i = 0; i < GP_COUNT(allocators); i++) {
        const char *name = allocators[i].name;
        int64_t before[3];
        for (int d = 0; d < 3; d++)
            before[d] = ooms(devices[d]);
        address = 0xdead0000;
        handle = (void *)0xdead0000;
        call(name, allocators[i].params, GP_ERROR_OUT_OF_MEMORY);
        for (int d = 0; d < 3; d++)
            cr_expect_eq(ooms(devices[d]) - before[d], devices[d] == allocators[i].device, "%s: device %u", name,
                         devices[d]);
        cr_expect_eq(oom.device, (int)allocators[i].device, "%s: %d", name, oom.device);
        cr_expect_eq(oom.asked_bytes, 3 * MIB, "%s", name);
        cr_expect_str_eq(oom.api, name);
        call(name, allocators[i].params, 999);
        for (int d = 0; d < 3; d++)
            cr_expect_eq(live(devices[d], allocators[i].kind), 0, "%s", name);
        cr_expect_eq(failures[2 * i].error, GP_ERROR_OUT_OF_MEMORY, "%s", name);
        cr_expect_eq(failures[2 * i + 1].error, 999, "%s", name);
        cr_expect_eq(failures[2 * i + 1].count, 1, "%s", name);
    }
}

Test(source, an_allocation_counts_on_its_own_device)
{
    static const unsigned devices[] = {0, 1, GP_WIRE_HOST};
    gp_feed_pool_create((uint64_t)(uintptr_t)POOL, 1, 0);
    for (unsigned i = 0; i < GP_COUNT(allocators); i++) {
        int64_t before[3];
        for (int d = 0; d < 3; d++)
            before[d] = live(devices[d], allocators[i].kind);
        address = 0x10000000 + i * 0x1000000;
        handle = (void *)(uintptr_t)address;
        call(allocators[i].name, allocators[i].params, 0);
        for (int d = 0; d < 3; d++)
            cr_expect_eq(live(devices[d], allocators[i].kind) - before[d], devices[d] == allocators[i].device,
                         "%s: device %u", allocators[i].name, devices[d]);
    }
}

/* Entry points that end what others made, and whether an end of nothing is one that is not known. */
#define AT ((void *)0x30000000)
static const struct {
    const char *begin, *end;
    const void *begins, *ends;
    unsigned device;
    enum gp_wire_kind kind;
    unsigned unknown;
} lives[] = {
    {"cuMemAllocPitch_v2", "cuMemFree_v2", &(struct gp_params_cuMemAllocPitch_v2){&address, &pitch, 100, 3, 4},
     &(struct gp_params_cuMemFree_v2){0x30000000}, 0, GP_KIND_PITCHED, 1},
    {"cuMemAllocAsync_ptsz", "cuMemFreeAsync_ptsz", &(struct gp_params_cuMemAllocAsync_ptsz){&address, 100, STREAM},
     &(struct gp_params_cuMemFreeAsync_ptsz){0x30000000, STREAM}, 0, GP_KIND_POOL, 1},
    {"cuMemAllocHost_v2", "cuMemFreeHost", &(struct gp_params_cuMemAllocHost_v2){&handle, 100},
     &(struct gp_params_cuMemFreeHost){AT}, GP_WIRE_HOST, GP_KIND_PINNED, 1},
    {"cuMemHostRegister_v2", "cuMemHostUnregister", &(struct gp_params_cuMemHostRegister_v2){AT, 100, 1},
     &(struct gp_params_cuMemHostUnregister){AT}, GP_WIRE_HOST, GP_KIND_REGISTERED, 1},
    {"cuMipmappedArrayCreate", "cuMipmappedArrayDestroy", &(struct gp_params_cuMipmappedArrayCreate){&handle, NULL, 2},
     &(struct gp_params_cuMipmappedArrayDestroy){AT}, 0, GP_KIND_ARRAY, 1},
    {"cuMemCreate", "cuMemRelease", &(struct gp_params_cuMemCreate){&address, 100, &prop, 0},
     &(struct gp_params_cuMemRelease){0x30000000}, 1, GP_KIND_VMM, 1},
    {"cuMemAddressReserve", "cuMemAddressFree", &(struct gp_params_cuMemAddressReserve){&address, 100, 0, 0, 0},
     &(struct gp_params_cuMemAddressFree){0x30000000, 100}, 0, GP_KIND_VIRTUAL, 0},
    {"cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle", &(struct gp_params_cuIpcOpenMemHandle_v2){.pdptr = &address},
     &(struct gp_params_cuIpcCloseMemHandle){0x30000000}, 0, GP_KIND_IMPORTED, 0},
    {"cuGraphAddMemAllocNode", "cuGraphDestroy",
     &(struct gp_params_cuGraphAddMemAllocNode){&handle, (void *)0x33, NULL, 0, &node},
     &(struct gp_params_cuGraphDestroy){(void *)0x33}, 1, GP_KIND_GRAPH, 0},
    {"cuGraphAddNode", "cuGraphDestroyNode",
     &(struct gp_params_cuGraphAddNode){&handle, (void *)0x33, NULL, 0, &alloc_node}, NULL, 1, GP_KIND_GRAPH, 0},
};

/* An end that fails leaves all as it was. */
Test(source, what_a_call_made_ends_with_another)
{
    for (unsigned i = 0; i < GP_COUNT(lives); i++) {
        const char *name = lives[i].begin;
        address = 0x30000000;
        handle = AT;
        call(name, lives[i].begins, 1);
        cr_expect_eq(live(lives[i].device, lives[i].kind), 0, "%s failed", name);
        call(name, lives[i].begins, 0);
        cr_expect_eq(live(lives[i].device, lives[i].kind), 1, "%s", name);
        if (!lives[i].ends) /* CUPTI has a callback of a resource for it */
            continue;
        call(lives[i].end, lives[i].ends, 1);
        cr_expect_eq(live(lives[i].device, lives[i].kind), 1, "%s failed", lives[i].end);
        call(lives[i].end, lives[i].ends, 0);
        cr_expect_eq(live(lives[i].device, lives[i].kind), 0, "%s", lives[i].end);
        lost[GP_LOST_UNKNOWN_FREE] = 0;
        call(lives[i].end, lives[i].ends, 1);
        cr_expect_eq(lost[GP_LOST_UNKNOWN_FREE], 0, "%s failed", lives[i].end);
        call(lives[i].end, lives[i].ends, 0);
        cr_expect_eq(lost[GP_LOST_UNKNOWN_FREE], lives[i].unknown, "%s of nothing", lives[i].end);
    }
}

static int answer;
static unsigned asked;

static int device_of(void *context, uint32_t ctx)
{
    cr_expect(context == (void *)0xc9 && ctx == 9);
    asked++;
    return answer;
}

/* The driver is asked for the device of a context that is not known, and once it has said it no more. */
Test(source, a_context_that_is_not_known)
{
    struct gp_call made = {.ctx = 9};
    gp_call_ask_device = device_of;
    cr_expect_eq(gp_call_device(&made), -1, "without a context none is asked for");
    made.context = (void *)0xc9;
    made.ctx = OTHER;
    cr_expect(gp_call_device(&made) == 1 && asked == 0);
    made.ctx = 9;
    for (answer = -1; answer < 2; answer++)
        cr_expect_eq(gp_call_device(&made), answer < 0 ? -1 : 0);
    cr_expect(asked == 2 && gp_feed_context_device(9) == 0);
    made.ctx = 10;
    gp_call_ask_device = NULL;
    cr_expect_eq(gp_call_device(&made), -1);
}

static uint32_t number_of(void *context)
{
    return context == AT ? OTHER : 0;
}

/* Which context is a device's primary one, the source says. */
Test(source, the_primary_context_of_a_device)
{
    const struct gp_params_cuDevicePrimaryCtxRetain retain = {&handle, 1};
    handle = AT;
    call("cuDevicePrimaryCtxRetain", &retain, 0);
    cr_expect_eq(gp_feed_primary_of(1), 0, "it cannot say");
    gp_call_ask_number = number_of;
    call("cuDevicePrimaryCtxRetain", &retain, 1);
    cr_expect_eq(gp_feed_primary_of(1), 0, "the call failed");
    call("cuDevicePrimaryCtxRetain", &retain, 0);
    cr_expect_eq(gp_feed_primary_of(1), OTHER);
    gp_call_ask_number = NULL;
}

/* The event of a call says what the call took, and only where calls are timed. */
Test(source, the_cost_of_a_call)
{
    const struct gp_wire_event *event;
    struct gp_ringread *reader = accounts_reader(8);
    for (uint32_t timed = 0; timed < 2; timed++) {
        uint64_t slot, began = gp_clock_ns();
        struct gp_call made = {.params = allocators[0].params, .ctx = CONTEXT, .slot = &slot};
        for (unsigned i = 0; i < gp_hook_count && !made.hook; i++)
            made.hook = strcmp(gp_hooks[i].name, allocators[0].name) == 0 ? &gp_hooks[i] : NULL;
        address = 0x10000000 + timed * 0x1000000;
        gp_call_timed = timed;
        gp_dispatch_enter(&made);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        gp_dispatch_exit(&made);
        uint8_t most = gp_wire_cost((uint32_t)(gp_clock_ns() - began));
        cr_assert_eq(gp_ringread_poll(reader, UINT64_MAX, &event), 1);
        cr_expect(timed ? event->cost >= gp_wire_cost(2000000) && event->cost <= most : event->cost == 0);
        cr_expect_eq(gp_thread.cost, 0);
    }
    gp_call_timed = false;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

static int64_t array_bytes_now(void)
{
    struct gp_wire_device is;
    return gp_tap_device(0, &is) ? is.kinds[GP_KIND_ARRAY].current_bytes : -1;
}

/* What one array of the call takes. */
static int64_t array_bytes_of(const char *name, const void *params)
{
    int64_t before = array_bytes_now();
    handle = (void *)0x40;
    call(name, params, 0);
    int64_t bytes = array_bytes_now() - before;
    call("cuArrayDestroy", &(struct gp_params_cuArrayDestroy){handle}, 0);
    cr_assert_eq(array_bytes_now(), before);
    return bytes;
}

/* Bytes of 16 pixels of one channel; where the descriptor gives their number, it counts. */
Test(source, bytes_of_every_format_of_an_array)
{
    static const struct {
        int format, bytes;
        bool channels;
    } formats[] = {
        {0x01, 16, true},   {0x02, 32, true},  {0x03, 64, true},  {0x08, 16, true},  {0x09, 32, true},
        {0x0a, 64, true},   {0x10, 32, true},  {0x20, 64, true},  {0x50, 64, false}, {0x91, 8, false},
        {0x92, 8, false},   {0x93, 16, false}, {0x94, 16, false}, {0x95, 16, false}, {0x96, 16, false},
        {0x97, 8, false},   {0x98, 8, false},  {0x99, 16, false}, {0x9a, 16, false}, {0x9b, 16, false},
        {0x9c, 16, false},  {0x9d, 16, false}, {0x9e, 16, false}, {0x9f, 48, false}, {0xa1, 48, false},
        {0xa2, 32, false},  {0xa3, 64, false}, {0xa4, 64, false}, {0xa5, 32, false}, {0xa6, 64, false},
        {0xa7, 64, false},  {0xa8, 64, false}, {0xa9, 64, false}, {0xb0, 24, false}, {0xb1, 128, false},
        {0xb2, 48, false},  {0xb3, 96, false}, {0xb4, 48, false}, {0xb5, 96, false}, {0xc0, 16, false},
        {0xc1, 32, false},  {0xc2, 64, false}, {0xc3, 32, false}, {0xc4, 64, false}, {0xc5, 128, false},
        {0xc6, 16, false},  {0xc7, 32, false}, {0xc8, 64, false}, {0xc9, 32, false}, {0xca, 64, false},
        {0xcb, 128, false}, {0xcc, 32, false}, {0x21, 32, false}, {0, 32, false},    {0x7fffffff, 32, false},
    };
    for (unsigned i = 0; i < GP_COUNT(formats); i++)
        for (unsigned channels = 1; channels <= 4; channels += channels) {
            struct gp_cu_array_desc desc = {.width = 8, .height = 2, .format = formats[i].format, .channels = channels};
            int64_t bytes = array_bytes_of("cuArrayCreate_v2", &(struct gp_params_cuArrayCreate_v2){&handle, &desc});
            cr_expect_eq(bytes, formats[i].bytes * (formats[i].channels ? channels : 1), "format %#x: %lld",
                         formats[i].format, (long long)bytes);
        }
}

/* Every level halves what it can; layers stay; there are no more levels than the longest side has. */
Test(source, bytes_of_the_levels_of_an_array)
{
    for (unsigned round = 0; round < 9 * 9 * 6 * 3 * 8; round++) {
        struct gp_cu_array3d_desc desc = {.width = 1 + round % 9,
                                          .height = round / 9 % 9,
                                          .depth = round / 81 % 6,
                                          .format = 0x01,
                                          .channels = 2,
                                          .flags = (const unsigned[]){0, 1, 4}[round / 486 % 3]};
        unsigned levels = 1 + round / 1458, longest = 1, have = 1;
        longest = desc.width > desc.height ? (unsigned)desc.width : (unsigned)desc.height;
        longest = desc.depth > longest ? (unsigned)desc.depth : longest;
        while (longest >> have)
            have++;
        int64_t want = 0, first = 0;
        for (unsigned level = 0; level < levels && level < have; level++) {
            int64_t width = (int64_t)desc.width >> level, height = (int64_t)desc.height >> level;
            int64_t depth = (int64_t)desc.depth >> (desc.flags ? 0 : level);
            want += 2 * (width ? width : 1) * (height ? height : 1) * (depth ? depth : 1);
            first = first ? first : want;
        }
        int64_t is = array_bytes_of("cuMipmappedArrayCreate",
                                    &(struct gp_params_cuMipmappedArrayCreate){&handle, &desc, levels});
        cr_assert_eq(is, want, "%zu x %zu x %zu, flags %u, %u levels: %lld, not %lld", desc.width, desc.height,
                     desc.depth, desc.flags, levels, (long long)is, (long long)want);
        cr_assert_eq(array_bytes_of("cuArray3DCreate_v2", &(struct gp_params_cuArray3DCreate_v2){&handle, &desc}),
                     first);
        desc.flags |= round % 2 ? GP_CU_ARRAY_SPARSE : GP_CU_ARRAY_DEFERRED;
        cr_assert_eq(array_bytes_of("cuArray3DCreate_v2", &(struct gp_params_cuArray3DCreate_v2){&handle, &desc}), 0);
    }
}

/* ---- pools ------------------------------------------------------------------------------------------------------- */

static void set_pool_at(int type, int id, int kind, uint64_t to, uint32_t result)
{
    struct gp_cu_location location = {.type = type, .id = id};
    call("cuMemSetMemPool", &(struct gp_params_cuMemSetMemPool){&location, kind, (void *)(uintptr_t)to}, result);
}

Test(source, the_current_pool_is_the_one_that_was_set_last)
{
    cr_expect_eq(gp_feed_pool_of(0), 0);
    call("cuDeviceSetMemPool", &(struct gp_params_cuDeviceSetMemPool){1, POOL}, 0);
    cr_expect_eq(gp_feed_pool_of(1), 0x9000);
    cr_expect_eq(gp_feed_pool_of(0), 0);
    call("cuDeviceSetMemPool", &(struct gp_params_cuDeviceSetMemPool){1, (void *)0x9100}, 1);
    cr_expect_eq(gp_feed_pool_of(1), 0x9000, "the call failed");
    set_pool_at(GP_CU_LOCATION_DEVICE, 1, GP_CU_ALLOCATION_PINNED, 0x9200, 0);
    cr_expect_eq(gp_feed_pool_of(1), 0x9200);
    set_pool_at(GP_CU_LOCATION_DEVICE, 1, GP_CU_ALLOCATION_PINNED, 0x9300, 1);
    cr_expect_eq(gp_feed_pool_of(1), 0x9200, "the call failed");
    set_pool_at(GP_CU_LOCATION_HOST, 1, GP_CU_ALLOCATION_PINNED, 0x9400, 0);
    cr_expect_eq(gp_feed_pool_of(1), 0x9200, "of the host");
    set_pool_at(GP_CU_LOCATION_DEVICE, 1, GP_CU_ALLOCATION_MANAGED, 0x9500, 0);
    cr_expect_eq(gp_feed_pool_of(1), 0x9200, "of managed memory");
    set_pool_at(GP_CU_LOCATION_DEVICE, 0, GP_CU_ALLOCATION_PINNED, 0x9600, 0);
    cr_expect_eq(gp_feed_pool_of(0), 0x9600);
    cr_expect_eq(gp_feed_pool_of(1), 0x9200);
}

/* A device's current pool may lie on another device. */
Test(source, memory_of_the_current_pool_counts_where_the_pool_is)
{
    gp_feed_pool_create((uint64_t)(uintptr_t)POOL, 1, 0);
    call("cuDeviceSetMemPool", &(struct gp_params_cuDeviceSetMemPool){0, POOL}, 0);
    address = 0x10000000;
    call("cuMemAllocAsync", &(struct gp_params_cuMemAllocAsync){&address, MIB, STREAM}, 0);
    cr_expect_eq(live(0, GP_KIND_POOL), 0);
    cr_expect_eq(live(1, GP_KIND_POOL), 1);
    call("cuMemFreeAsync", &(struct gp_params_cuMemFreeAsync){address, STREAM}, 1);
    cr_expect_eq(live(1, GP_KIND_POOL), 1, "the free failed");
    call("cuMemFreeAsync", &(struct gp_params_cuMemFreeAsync){address, STREAM}, 0);
    cr_expect_eq(live(1, GP_KIND_POOL), 0);
}

/* Nothing says on which device it allocates. */
Test(source, memory_of_a_pool_that_is_nowhere_counts_on_no_device)
{
    gp_feed_pool_create((uint64_t)(uintptr_t)POOL, GP_DEVICE_UNKNOWN, 0);
    lost[GP_LOST_DEVICE] = 0;
    address = 0x10000000;
    call("cuMemAllocFromPoolAsync", &(struct gp_params_cuMemAllocFromPoolAsync){&address, MIB, POOL, STREAM}, 0);
    cr_expect(live(0, GP_KIND_POOL) == 0 && live(1, GP_KIND_POOL) == 0 && lost[GP_LOST_DEVICE] == 1);
}

/* A free that a stream captures, or of which the source says that it made a node, frees nothing yet. */
Test(source, a_free_that_is_captured_frees_nothing)
{
    const struct gp_params_cuMemFreeAsync free_it = {0x10000000, STREAM};
    address = 0x10000000;
    call("cuMemAllocAsync", &(struct gp_params_cuMemAllocAsync){&address, MIB, STREAM}, 0);
    call_as("cuMemFreeAsync", &free_it, 0, GP_CU_NODE_FREE + 1);
    cr_expect_eq(live(0, GP_KIND_POOL), 1);
    gp_feed_capture_begin((uint64_t)(uintptr_t)STREAM, GP_CAPTURE_NEW);
    call("cuMemFreeAsync", &free_it, 0);
    gp_feed_capture_end((uint64_t)(uintptr_t)STREAM, true);
    cr_expect_eq(live(0, GP_KIND_POOL), 1);
    call_as("cuMemFreeAsync", &free_it, 0, GP_CU_NODE_ALLOC + 1);
    cr_expect_eq(live(0, GP_KIND_POOL), 0);
}

/* ---- captures ---------------------------------------------------------------------------------------------------- */

static void captured_alloc(uint64_t at)
{
    address = at;
    gp_thread.node = at + 1;
    gp_thread.graph = 0x4400;
    call_as("cuMemAllocAsync", &(struct gp_params_cuMemAllocAsync){&address, MIB, STREAM}, 0, GP_CU_NODE_ALLOC + 1);
}

Test(source, each_end_of_a_capture_leaves_what_the_driver_leaves)
{
    static const struct {
        uint32_t result;
        bool capturing; /* it goes on */
        int64_t nodes;  /* live afterwards */
    } ends[] = {
        {0, false, 1},
        {GP_CU_CAPTURE_INVALIDATED, false, 0},
        {GP_CU_CAPTURE_UNJOINED, false, 0},
        {GP_CU_RECAPTURE_FAILED, false, 1},
        {1, true, 1},
        {700, true, 1},
    };
    uint64_t stream = (uint64_t)(uintptr_t)STREAM, at = 0x10000000;
    for (unsigned i = 0; i < GP_COUNT(ends); i++) {
        const struct gp_params_cuStreamBeginCapture_v2 begin = {STREAM, 0};
        call("cuStreamBeginCapture_v2", &begin, 1);
        cr_expect(!gp_feed_stream_is_capturing(stream), "a begin that failed");
        call("cuStreamBeginCapture_v2", &begin, 0);
        cr_expect(gp_feed_stream_is_capturing(stream));
        captured_alloc(at += MIB);
        cr_expect_eq(live(0, GP_KIND_GRAPH), 1);
        cr_expect_eq(live(0, GP_KIND_POOL), 0);
        call("cuStreamEndCapture", &(struct gp_params_cuStreamEndCapture){STREAM, &handle}, ends[i].result);
        cr_expect_eq(gp_feed_stream_is_capturing(stream), ends[i].capturing, "result %u", ends[i].result);
        cr_expect_eq(live(0, GP_KIND_GRAPH), ends[i].nodes, "result %u: %lld", ends[i].result,
                     (long long)live(0, GP_KIND_GRAPH));
        if (ends[i].capturing)
            call("cuStreamEndCapture", &(struct gp_params_cuStreamEndCapture){STREAM, &handle}, 0);
        gp_feed_graph_gone(0x4400);
        cr_expect_eq(live(0, GP_KIND_GRAPH), 0);
    }
}

/* An address is captured again as long as any stream captures a graph again, whatever order they end in. */
Test(source, memory_is_captured_again_while_a_stream_does_so)
{
    enum { STREAMS = 4, GRAPHS = 0x7700 };
    unsigned how[STREAMS] = {0};
    uint64_t random = RANDOM_SEED, kept = 0x66000000;
    bool exists[STREAMS] = {false};
    gp_feed_graph_node(kept, MIB, 0, 5, 0x6600);
    for (unsigned step = 0; step < 4000; step++) {
        random_next(&random);
        unsigned i = random >> 33 & 3, what = random >> 40 & 3, again = 0, nodes = 1;
        uint64_t stream = 0x8800 + i, at = 0x70000000 + i * MIB;
        if (!exists[i]) {
            gp_feed_stream_created(stream, CONTEXT);
            exists[i] = true;
        } else if (what == 0) {
            gp_feed_stream_destroyed(stream);
            exists[i] = false;
            if (how[i] != GP_CAPTURE_NEW)
                gp_feed_graph_gone(GRAPHS + i);
            how[i] = 0;
        } else if (what == 1 && !how[i]) {
            how[i] = 1 + (random >> 45) % 3;
            gp_feed_capture_begin(stream, (enum gp_capture)how[i]);
            gp_feed_graph_node(at, MIB, 0, at, GRAPHS + i);
            gp_feed_capture_graph(stream, GRAPHS + i);
        } else if (what > 1 && how[i]) {
            gp_feed_capture_end(stream, what == 2);
            if (what != 2 || how[i] != GP_CAPTURE_NEW) {
                cr_assert(gp_feed_graph_knows(at), "the graph is the program's");
                gp_feed_graph_gone(GRAPHS + i);
            }
            how[i] = 0;
        }
        for (unsigned k = 0; k < STREAMS; k++) {
            again += how[k] == GP_CAPTURE_AGAIN;
            nodes += how[k] != 0;
            cr_assert_eq(gp_feed_stream_is_capturing(0x8800 + k), how[k] != 0, "step %u", step);
        }
        cr_assert_eq(gp_feed_recaptured(kept), again > 0, "step %u", step);
        cr_assert_not(gp_feed_recaptured(0x1234));
        cr_assert_eq(live(0, GP_KIND_GRAPH), nodes, "step %u: %lld nodes, not %u", step,
                     (long long)live(0, GP_KIND_GRAPH), nodes);
    }
}
