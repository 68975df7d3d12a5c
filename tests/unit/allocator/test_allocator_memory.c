/* SPDX-License-Identifier: MIT
 *
 * test_allocator_memory.c: the memory that programs get from the cache: which kind, what queries say about it, how it is
 * freed in odd moments, and what the limit does.
 */
#include "allocator/allocator.h"
#include "allocator/driver.h"
#include "allocator/internal.h"
#include "allocator/mapping.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "allocator_fixture.h"
#include "base/compiler.h"
#include "cache/cache.h"
#include "source/hooks.h"
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(allocator_memory, .fini = expect_lock_given);

static struct gp_cache_numbers numbers_of(const struct gp_served_context *served)
{
    struct gp_cache_numbers numbers;
    gp_cache_numbers(gp_served_cache(served), &numbers);
    return numbers;
}

static bool lives(uint64_t block)
{
    struct gp_grant grant;
    return gp_served_find(block, &grant) && grant.address == block;
}

static uint64_t failures_of(const char *api, uint32_t error)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < GP_WIRE_FAILURES; i++)
        count += strcmp(failures[i].api, api) == 0 && failures[i].error == error ? failures[i].count : 0;
    return count;
}

/* ---- kinds of memory ----------------------------------------------------------------------------------------------------- */

struct kinds {
    unsigned segments, growable, dedicated;
    uint64_t bytes;
};

static bool kinds_segment(void *arg, const struct gp_cache_segment *segment)
{
    struct kinds *kinds = arg;
    kinds->segments++;
    kinds->growable += segment->growable;
    kinds->dedicated += segment->dedicated;
    kinds->bytes += segment->bytes;
    return true;
}

static bool kinds_block(void *arg, const struct gp_cache_block *block)
{
    (void)arg, (void)block;
    return true;
}

static unsigned rests;
static void kinds_rest(void *arg)
{
    (void)arg;
    rests++;
}

/* Of 2 MiB and more a block is a driver allocation of its own, but not where the user wants another kind. */
Test(allocator_memory, large_blocks_are_driver_allocations_of_their_own)
{
    static const struct {
        enum gp_serve_kind kind;
        unsigned growable, dedicated[3];
    } rows[] = {{GP_SERVE_DEDICATED, 0, {0, 1, 1}}, {GP_SERVE_LINEAR, 0, {0, 0, 0}}, {GP_SERVE_GROWABLE, 1, {0, 0, 0}}};
    static const size_t sizes[] = {2 * MIB - 1, 2 * MIB, 2 * MIB + 1};
    start(GP_SERVE_DEDICATED, "caching", 0);
    enter(0);
    for (unsigned i = 0; i < GP_COUNT(rows); i++)
        for (unsigned j = 0; j < GP_COUNT(sizes); j++) {
            struct kinds kinds = {0}, same = {0}, none = {0};
            gp_serve_memory_kind = rows[i].kind;
            uint64_t address = taken(sizes[j]);
            gp_allocator_walk(0, &kinds, kinds_segment, kinds_block);
            gp_allocator_iterate(0, &same, kinds_segment, kinds_block, kinds_rest);
            gp_allocator_walk(1, &none, kinds_segment, kinds_block);
            gp_allocator_iterate(1, &none, kinds_segment, kinds_block, NULL);
            cr_expect_eq(memcmp(&kinds, &same, sizeof(kinds)), 0);
            cr_expect_eq(none.segments, 0);
            cr_expect_eq(kinds.segments, 1);
            cr_expect_eq(kinds.growable, rows[i].growable, "%u: %zu", i, sizes[j]);
            cr_expect_eq(kinds.dedicated, rows[i].dedicated[j], "%u: %zu", i, sizes[j]);
            given(address);
            cr_assert_eq(gpuprof_empty_cache(0), 0);
        }
    gp_serve_memory_kind = GP_SERVE_DEDICATED;
}

/* Idle memory of another context on the same device is given back before a request fails. */
Test(allocator_memory, another_context_gives_way)
{
    void *ctx = NULL;
    start(GP_SERVE_DEDICATED, "caching", 0);
    struct gp_served_context *first = enter(0);
    given(taken(200 * MIB));
    cr_assert_eq(gp_wrap_cuCtxCreate_v2(&ctx, 0, 0), 0);
    struct gp_served_context *second = gp_served_of(ctx);
    cr_assert(second && second != first);
    uint64_t block = taken(100 * MIB);
    cr_expect_eq(numbers_of(first).reserved_bytes, 0);
    cr_expect_eq(numbers_of(second).reserved_bytes, 100 * MIB);
    given(block);
    leave();
    uint64_t most = taken(FAKEDRIVER_MEMORY);
    cr_expect_eq(numbers_of(second).reserved_bytes, 0);
    cr_expect_eq(failures_of("cuMemAlloc_v2", GP_CU_OUT_OF_MEMORY), 0);
    uint64_t address = 5;
    cr_expect_eq(gp_wrap_cuMemAlloc_v2(&address, 1), GP_CU_OUT_OF_MEMORY);
    cr_expect_eq(address, 0);
    cr_expect_eq(failures_of("cuMemAlloc_v2", GP_CU_OUT_OF_MEMORY), 1);
    expect_outside();
    given(most);
}

/* ---- pitch ----------------------------------------------------------------------------------------------------------------- */

/* The driver is asked once for each width, size of elements and device. */
Test(allocator_memory, the_pitch_is_learnt_for_each_width_element_and_device)
{
    static const struct {
        size_t width;
        unsigned element;
        int device;
    } rows[] = {{1000, 4, 0}, {1001, 4, 0}, {1000, 8, 0}, {1000, 4, 1}, {1024, 16, 1}, {1025, 16, 1}};
    start(GP_SERVE_DEDICATED, "caching", 0);
    enter(0);
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < GP_COUNT(rows); i++) {
            uint64_t address = 0;
            size_t pitch = 0, expected = (rows[i].width + 511) / 512 * 512;
            if (rows[i].device)
                enter(rows[i].device);
            calllog_clear();
            cr_expect_eq(gp_wrap_cuMemAllocPitch_v2(&address, &pitch, rows[i].width, 3, rows[i].element), 0);
            cr_expect_eq(pitch, expected);
            cr_expect_eq(strstr(calllog_take(), "pass cuMemAllocPitch_v2") != NULL, round == 0, "%u", i);
            struct gp_grant grant;
            cr_expect_eq(gp_served_find(address, &grant) != NULL, round > 0);
            if (round)
                cr_expect_eq(grant.requested_bytes, 3 * expected);
            expect_outside();
            given(address);
            if (rows[i].device)
                leave();
        }
    /* More bytes than there are numbers: the driver says what that is worth. */
    uint64_t address = 0;
    size_t pitch = 0;
    calllog_clear();
    calllog.stubs = "cuMemAllocPitch";
    calllog.result = 1;
    cr_expect_eq(gp_wrap_cuMemAllocPitch_v2(&address, &pitch, 1000, SIZE_MAX / 1024 + 1, 4), 1);
    cr_expect_not_null(strstr(calllog_take(), "pass cuMemAllocPitch_v2"));
    expect_outside();
    calllog.stubs = NULL;
    cr_expect_eq(gp_wrap_cuMemAllocPitch_v2(&address, &pitch, 1000, FAKEDRIVER_MEMORY / 1000, 4), GP_CU_OUT_OF_MEMORY);
    cr_expect(pitch == 0 && address == 0);
    cr_expect_eq(failures_of("cuMemAllocPitch_v2", GP_CU_OUT_OF_MEMORY), 1);
    /* The first call with a width finds no memory: idle memory goes back. */
    given(taken(FAKEDRIVER_MEMORY));
    cr_expect_eq(gp_wrap_cuMemAllocPitch_v2(&address, &pitch, 3000, 100, 4), 0);
    cr_expect_eq(pitch, 3072);
    calllog_clear();
    cr_expect_eq(gp_wrap_cuMemAllocPitch_v2(&address, &pitch, 5000, FAKEDRIVER_MEMORY / 5000, 4), GP_CU_OUT_OF_MEMORY);
    EXPECT_CALLS("cuCtxGetCurrent(&); pass cuMemAllocPitch_v2(&, &, 5000, 53687, 4); cuCtxGetDevice(&)");
    expect_outside();
    /* During a capture the driver decides. */
    gp_stream_capture_begin();
    gp_stream_capture_began(NULL, true);
    calllog_clear();
    cr_expect_eq(gp_wrap_cuMemAllocPitch_v2(&address, &pitch, 1000, 3, 4), 0);
    EXPECT_CALLS("pass cuMemAllocPitch_v2(&, &, 1000, 3, 4)");
    gp_stream_capture_ended(NULL);
}

/* ---- frees in odd moments ---------------------------------------------------------------------------------------------------- */

/* A call out of our own code, as from a signal handler: the block stays, and the driver does not see its address. */
Test(allocator_memory, a_free_that_interrupts_our_own_code_leaves_the_block)
{
    start(GP_SERVE_DEDICATED, "caching", 0);
    enter(0);
    uint64_t block = taken(5 * MIB), foreign = 0;
    cr_assert_eq(gp_driver_real.cuMemAlloc_v2(&foreign, 100), 0);
    calllog_clear();
    cr_assert(gp_thread_enter());
    cr_expect_eq(gp_wrap_cuMemFree_v2(block), 0);
    cr_expect_eq(gp_wrap_cuMemFreeAsync(block, NULL), 0);
    cr_expect_eq(gp_wrap_cuMemFreeAsync_ptsz(block, NULL), 0);
    EXPECT_CALLS("");
    cr_expect(lives(block));
    calllog.code = 719;
    calllog.fails = "cuMemFree_v2";
    cr_expect_eq(gp_wrap_cuMemFree_v2(foreign), 719);
    calllog.fails = "cuMemFreeAsync";
    cr_expect_eq(gp_wrap_cuMemFreeAsync(foreign, (void *)5), 719);
    calllog.fails = "cuMemFreeAsync_ptsz";
    cr_expect_eq(gp_wrap_cuMemFreeAsync_ptsz(foreign, (void *)5), 719);
    EXPECT_CALLS("cuMemFree_v2(@8M); cuMemFreeAsync(@8M, 5); cuMemFreeAsync_ptsz(@8M, 5)");
    gp_thread_leave();
    cr_expect_eq(errno, ERRNO);
}

/* In a forked child the driver says what a free is worth, of an address that it does not know. */
Test(allocator_memory, a_free_in_a_forked_child_frees_nothing)
{
    start(GP_SERVE_DEDICATED, "caching", 0);
    enter(0);
    uint64_t block = taken(5 * MIB);
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        bool good = gp_wrap_cuMemFree_v2(block) == 0;
        const char *calls = calllog_take();
        good &= strcmp(calls, "pass cuMemFree_v2(16)") == 0;
        good &= gp_wrap_cuMemFreeAsync(block, NULL) == 0;
        good &= strcmp(calllog_take(), "pass cuMemFreeAsync(16, 0)") == 0;
        calllog.fails = "cuMemFree_v2";
        calllog.code = 3;
        good &= gp_wrap_cuMemFree_v2(block) == 3;
        good &= lives(block) && errno == ERRNO;
        errno = 0;
        _exit(good ? 0 : 1);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect_eq(status, 0);
}

/* Without a current context a free fails, as in the driver. */
Test(allocator_memory, a_free_needs_a_context)
{
    start(GP_SERVE_DEDICATED, "caching", 0);
    enter(0);
    uint64_t block = taken(5 * MIB), base = 0;
    size_t bytes = 0;
    leave();
    cr_expect_eq(gp_wrap_cuMemFree_v2(block), GP_CU_INVALID_CONTEXT);
    cr_expect_eq(failures_of("cuMemFree_v2", GP_CU_INVALID_CONTEXT), 1);
    cr_expect_eq(gp_wrap_cuMemGetAddressRange_v2(&base, &bytes, block), GP_CU_INVALID_CONTEXT);
    cr_expect_eq(gp_wrap_cuMemFreeAsync(block, NULL), GP_CU_INVALID_CONTEXT);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuCtxGetCurrent(&); cuStreamIsCapturing(0, &); cuCtxGetCurrent(&)");
    calllog.fails = "cuCtxGetCurrent";
    calllog.code = 719;
    cr_expect_eq(gp_wrap_cuMemFree_v2(block), 719);
    calllog.fails = "cuStreamIsCapturing";
    cr_expect_eq(gp_wrap_cuMemFreeAsync(block, NULL), 719);
    cr_expect_eq(failures_of("cuMemFreeAsync", 719), 1);
    cr_expect_eq(gp_wrap_cuMemFreeAsync_ptsz(block, NULL), 719);
    cr_expect_eq(failures_of("cuMemFreeAsync_ptsz", 719), 1);
    calllog_take();
    cr_expect(lives(block));
    expect_outside();
    calllog.fails = NULL;
    enter(1);
    cr_expect_eq(gp_wrap_cuMemFreeAsync_ptsz(block, NULL), 0, "any context serves");
    const char *calls = calllog_take();
    cr_expect_eq(strncmp(calls, "cuStreamIsCapturing(2, &);", 26), 0, "%s", calls);
    cr_expect_eq(gp_wrap_cuMemFree_v2(block), GP_CU_INVALID_VALUE, "freed twice");
    cr_expect_eq(gp_wrap_cuMemGetAddressRange_v2(&base, &bytes, block), GP_CU_NOT_FOUND);
    cr_expect_eq(failures_of("cuMemFree_v2", GP_CU_INVALID_VALUE), 1);
    expect_outside();
}

/* ---- info ----------------------------------------------------------------------------------------------------------------------- */

Test(allocator_memory, a_limit_makes_the_device_look_smaller)
{
    size_t free = 0, total = 0;
    start(GP_SERVE_DEDICATED, "caching", 64 * MIB);
    struct gp_served_context *served = enter(0);
    cr_assert_eq(gp_wrap_cuMemGetInfo_v2(&free, &total), 0);
    cr_expect(total == 64 * MIB && free == 64 * MIB, "%zu of %zu", free, total);
    uint64_t block = taken(20 * MIB), idle = taken(10 * MIB), foreign = 0;
    given(idle);
    cr_assert_eq(gp_wrap_cuMemGetInfo_v2(&free, &total), 0);
    cr_expect(total == 64 * MIB && free == 44 * MIB, "%zu of %zu", free, total);
    /* The device itself has less than the limit leaves. */
    cr_assert_eq(gp_driver_real.cuMemAlloc_v2(&foreign, 216 * MIB), 0);
    cr_assert_eq(gp_wrap_cuMemGetInfo_v2(&free, &total), 0);
    cr_expect(total == 64 * MIB && free == 20 * MIB, "%zu of %zu", free, total);
    cr_assert_eq(gp_driver_real.cuMemFree_v2(foreign), 0);
    /* The cache's own limit counts: of more than the device, of the device, and below what lives. */
    static const struct {
        uint64_t limit;
        size_t free, total;
    } rows[] = {{0, 236, 256},     {257 * MIB, 236, 256}, {256 * MIB, 236, 256}, {255 * MIB, 235, 255},
                {21 * MIB, 1, 21}, {20 * MIB, 0, 20},     {19 * MIB, 0, 19}};
    for (unsigned i = 0; i < GP_COUNT(rows); i++) {
        gp_cache_set_limit(gp_served_cache(served), rows[i].limit);
        cr_assert_eq(gp_wrap_cuMemGetInfo_v2(&free, &total), 0);
        cr_expect(total == rows[i].total * MIB && free == rows[i].free * MIB, "%u: %zu of %zu", i, free, total);
        expect_outside();
    }
    /* Another device has the limit that all begin with. */
    enter(1);
    cr_assert_eq(gp_wrap_cuMemGetInfo_v2(&free, &total), 0);
    cr_expect(total == 64 * MIB && free == 64 * MIB, "%zu of %zu", free, total);
    calllog.fails = "cuMemGetInfo_v2";
    calllog.code = 719;
    free = total = 5;
    cr_expect_eq(gp_wrap_cuMemGetInfo_v2(&free, &total), 719);
    cr_expect(free == 5 && total == 5);
    given(block);
}

/* ---- queries about addresses --------------------------------------------------------------------------------------------------------- */

/* The kinds of addresses of which the driver would say something else than of the block. */
Test(allocator_memory, attributes_are_those_of_the_block)
{
    static int attributes[] = {1, 11, 12, 19, 18, 10, 6, 2};
    uint64_t values[GP_COUNT(attributes)], ids[4];
    void *data[GP_COUNT(attributes)];
    start(GP_SERVE_DEDICATED, "caching", 0);
    struct gp_served_context *served = enter(0);
    uint64_t small[2] = {taken(1000), taken(3000)}, large = taken(3 * MIB);
    for (unsigned i = 0; i < GP_COUNT(attributes); i++)
        data[i] = &values[i];
    for (unsigned i = 0; i < 3; i++) {
        uint64_t block = i < 2 ? small[i] : large, bytes = i == 0 ? 1000 : i == 1 ? 3000 : 3 * MIB;
        memset(values, 0, sizeof(values));
        values[7] = 5; /* 2 is not a matter of blocks: the fake driver has no arrays of attributes */
        values[5] = 1;
        calllog_clear();
        cr_expect_eq(gp_wrap_cuPointerGetAttributes(GP_COUNT(attributes), attributes, data, block + bytes - 1), 0);
        cr_expect_not_null(strstr(calllog_take(), "pass cuPointerGetAttributes(8, &, &, @"));
        cr_expect(values[0] == (uintptr_t)served->x_ctx && values[1] == block && values[2] == bytes &&
                  values[3] == block && values[4] == bytes);
        cr_expect_eq(values[5], i != 1, "only at the start of a driver allocation");
        cr_expect(values[6] == 0 && values[7] == 5);
        cr_expect_eq(gp_wrap_cuPointerGetAttribute(&ids[i], 7, block), 0);
        for (unsigned j = 0; j < i; j++)
            cr_expect_neq(ids[i], ids[j]);
        cr_expect_eq(gp_wrap_cuPointerGetAttribute(&ids[3], 7, block + bytes - 1), 0);
        cr_expect_eq(ids[3], ids[i]);
        cr_expect_eq(gp_wrap_cuIpcGetMemHandle(NULL, block), i == 1 ? GP_CU_NOT_SUPPORTED : 0);
        calllog.fails = "cuPointerGetAttribute";
        calllog.code = 1;
        values[0] = 5;
        cr_expect_eq(gp_wrap_cuPointerGetAttribute(&values[0], 11, block), 1);
        cr_expect_eq(values[0], 5);
        cr_expect_eq(gp_wrap_cuPointerGetAttribute(&values[0], 1, block), 0, "growable memory has no context");
        cr_expect_eq(values[0], (uintptr_t)served->x_ctx);
        cr_expect_eq(gp_wrap_cuPointerGetAttribute(NULL, 1, block), 1);
        calllog.fails = "cuPointerGetAttributes";
        cr_expect_eq(gp_wrap_cuPointerGetAttributes(2, attributes, data, block), 1);
        cr_expect_eq(values[1], block);
        calllog.fails = NULL;
        expect_outside();
    }
    /* Behind the end of a block, and in one that was freed, there is nothing. */
    given(small[0]);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t dead = i ? small[1] + 3000 : small[0];
        unsigned on = 1;
        calllog_clear();
        calllog.stubs = "cuPointerGetAttributes";
        cr_expect_eq(gp_wrap_cuPointerGetAttribute(values, 11, dead), 1);
        cr_expect_eq(gp_wrap_cuPointerGetAttributes(1, attributes, data, dead), 0);
        cr_expect_eq(gp_wrap_cuPointerSetAttribute(&on, 6, dead), 1);
        cr_expect_eq(gp_wrap_cuIpcGetMemHandle(NULL, dead), 1);
        EXPECT_CALLS("pass cuPointerGetAttribute(&, 11, 16); pass cuPointerGetAttributes(1, &, &, 16); "
                     "pass cuPointerSetAttribute(&, 6, 16 1); pass cuIpcGetMemHandle(0, 16)");
        calllog.stubs = NULL;
        expect_outside();
    }
    /* An id is not given again. */
    given(large);
    large = taken(3 * MIB);
    cr_expect_eq(gp_wrap_cuPointerGetAttribute(&ids[3], 7, large), 0);
    cr_expect(ids[3] > ids[2] && ids[2] > ids[1] && ids[1] > ids[0] && ids[0] > 1ull << 63);
}

/* The driver has SYNC_MEMOPS for the whole of a driver allocation. */
Test(allocator_memory, sync_memops_is_a_matter_of_blocks)
{
    const unsigned on = 1, off = 0;
    uint32_t value = 5;
    start(GP_SERVE_DEDICATED, "caching", 0);
    struct gp_served_context *served = enter(0);
    uint64_t small[2] = {taken(1000), taken(3000)}, large = taken(3 * MIB);
    cr_expect_eq(gp_wrap_cuPointerSetAttribute(&on, 6, small[1]), 0);
    cr_expect_eq(gp_wrap_cuPointerGetAttribute(&value, 6, small[1]), 0);
    cr_expect_eq(value, 1);
    cr_expect_eq(gp_wrap_cuPointerGetAttribute(&value, 6, small[0]), 0);
    cr_expect_eq(value, 0);
    calllog_clear();
    cr_expect_eq(gp_wrap_cuPointerSetAttribute(&off, 6, small[1]), 0, "stays on for the others");
    EXPECT_CALLS("");
    cr_expect(fakedriver_synced(small[1]) && !gp_mapping_mark_is_synced(small[1]));
    cr_expect_eq(gp_wrap_cuPointerSetAttribute(&on, 6, large), 0);
    cr_expect(fakedriver_synced(large) && gp_mapping_mark_is_synced(large));
    calllog.fails = "cuPointerSetAttribute";
    calllog.code = 1;
    cr_expect_eq(gp_wrap_cuPointerSetAttribute(&off, 6, large), 1);
    cr_expect(gp_mapping_mark_is_synced(large));
    calllog.fails = NULL;
    cr_expect_eq(gp_wrap_cuPointerSetAttribute(&off, 6, large), 0);
    cr_expect(!fakedriver_synced(large) && !gp_mapping_mark_is_synced(large));
    calllog_clear();
    calllog.stubs = "cuPointerSetAttribute";
    cr_expect_eq(gp_wrap_cuPointerSetAttribute(&on, 5, large), 0);
    EXPECT_CALLS("pass cuPointerSetAttribute(&, 5, @4M 1)");
    cr_expect_not(gp_mapping_mark_is_synced(large));
    calllog.stubs = NULL;
    /* It is switched off with the block's end, where the block is a driver allocation. */
    cr_expect_eq(gp_wrap_cuPointerSetAttribute(&on, 6, large), 0);
    cr_expect_eq(gp_wrap_cuPointerSetAttribute(&on, 6, small[1]), 0);
    calllog_clear();
    gp_mapping_mark_drop(served, large + 512);
    cr_expect(gp_mapping_mark_is_synced(large), "no block begins there");
    cr_expect_eq(gp_wrap_cuMemFree_v2(large), 0);
    const char *calls = calllog_take();
    cr_expect_not_null(strstr(calls, "cuPointerSetAttribute(&, 6, @4M 0)"), "%s", calls);
    cr_expect(!fakedriver_synced(large) && !gp_mapping_mark_is_synced(large));
    cr_expect_eq(gp_wrap_cuMemFree_v2(small[1]), 0);
    cr_expect(fakedriver_synced(small[0]) && !gp_mapping_mark_is_synced(small[1]));
    expect_outside();
    /* All marks end with the context. */
    large = taken(3 * MIB);
    uint64_t id = gp_mapping_mark_buffer(served, large);
    cr_expect_eq(gp_wrap_cuPointerSetAttribute(&on, 6, large), 0);
    cr_expect_eq(gp_mapping_mark_buffer(served, large), id);
    gp_mapping_mark_forget(served);
    cr_expect_not(gp_mapping_mark_is_synced(large));
    cr_expect_eq(gp_mapping_mark_buffer(served, large), id + 1);
}
