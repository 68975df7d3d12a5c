/* SPDX-License-Identifier: MIT
 *
 * test_allocator_serve.c: what becomes of a program's calls: which go on to the driver, with which arguments, and what
 * is known of its contexts, streams, captures and peers afterwards.
 */
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

TestSuite(allocator_serve, .fini = expect_lock_given);

static uint64_t reserved(const struct gp_served_context *served)
{
    struct gp_cache_numbers numbers;
    gp_cache_numbers(gp_served_cache(served), &numbers);
    return numbers.reserved_bytes;
}

/* ---- calls that go on to the driver ------------------------------------------------------------------------------------ */

#define P(_value) ((void *)(uintptr_t)(_value))

/* The call goes on with the same arguments, and the driver's error comes back. */
#define EXPECT_PASSED_ON(_name, _text, ...)                                                                            \
    do {                                                                                                               \
        calllog.fails = #_name;                                                                                        \
        calllog.code = 719;                                                                                            \
        cr_expect_eq(gp_wrap_##_name(__VA_ARGS__), 719, #_name);                                                       \
        EXPECT_CALLS(_text);                                                                                           \
        expect_outside();                                                                                              \
    } while (0)

Test(allocator_serve, calls_go_on_to_the_driver_with_their_arguments)
{
    start(GP_SERVE_DEDICATED, "caching", 0);
    EXPECT_PASSED_ON(cuCtxCreate, "pass cuCtxCreate(11, 22, 33)", P(11), 22, 33);
    EXPECT_PASSED_ON(cuCtxCreate_v2, "pass cuCtxCreate_v2(11, 22, 33)", P(11), 22, 33);
    EXPECT_PASSED_ON(cuCtxCreate_v3, "pass cuCtxCreate_v3(11, 22, 33, 44, 55)", P(11), P(22), 33, 44, 55);
    EXPECT_PASSED_ON(cuCtxCreate_v4, "pass cuCtxCreate_v4(11, 22, 33, 44)", P(11), P(22), 33, 44);
    EXPECT_PASSED_ON(cuDevicePrimaryCtxRetain, "pass cuDevicePrimaryCtxRetain(11, 22)", P(11), 22);
    EXPECT_PASSED_ON(cuCtxDestroy, "pass cuCtxDestroy(11)", P(11));
    EXPECT_PASSED_ON(cuCtxDestroy_v2, "pass cuCtxDestroy_v2(11)", P(11));
    EXPECT_PASSED_ON(cuCtxDetach, "pass cuCtxDetach(11)", P(11));
    EXPECT_PASSED_ON(cuDevicePrimaryCtxReset, "pass cuDevicePrimaryCtxReset(11)", 11);
    EXPECT_PASSED_ON(cuDevicePrimaryCtxReset_v2, "pass cuDevicePrimaryCtxReset_v2(11)", 11);
    EXPECT_PASSED_ON(cuDevicePrimaryCtxRelease, "pass cuDevicePrimaryCtxRelease(11)", 11);
    EXPECT_PASSED_ON(cuDevicePrimaryCtxRelease_v2, "pass cuDevicePrimaryCtxRelease_v2(11)", 11);
    EXPECT_PASSED_ON(cuCtxEnablePeerAccess, "pass cuCtxEnablePeerAccess(11, 22)", P(11), 22);
    EXPECT_PASSED_ON(cuStreamCreate, "pass cuStreamCreate(11, 22)", P(11), 22);
    EXPECT_PASSED_ON(cuStreamCreateWithPriority, "pass cuStreamCreateWithPriority(11, 22, 33)", P(11), 22, 33);
    EXPECT_PASSED_ON(cuGreenCtxStreamCreate, "pass cuGreenCtxStreamCreate(11, 22, 33, 44)", P(11), P(22), 33, 44);
    EXPECT_PASSED_ON(cuStreamDestroy, "pass cuStreamDestroy(11)", P(11));
    EXPECT_PASSED_ON(cuStreamDestroy_v2, "pass cuStreamDestroy_v2(11)", P(11));
    EXPECT_PASSED_ON(cuMemAllocAsync, "pass cuMemAllocAsync(11, 22, 33)", P(11), 22, P(33));
    EXPECT_PASSED_ON(cuMemAllocAsync_ptsz, "pass cuMemAllocAsync_ptsz(11, 22, 33)", P(11), 22, P(33));
    EXPECT_PASSED_ON(cuMemAllocFromPoolAsync, "pass cuMemAllocFromPoolAsync(11, 22, 33, 44)", P(11), 22, P(33), P(44));
    EXPECT_PASSED_ON(cuMemAllocFromPoolAsync_ptsz, "pass cuMemAllocFromPoolAsync_ptsz(11, 22, 33, 44)", P(11), 22,
                     P(33), P(44));
    EXPECT_PASSED_ON(cuArrayCreate_v2, "pass cuArrayCreate_v2(11, 22)", P(11), P(22));
    EXPECT_PASSED_ON(cuArray3DCreate_v2, "pass cuArray3DCreate_v2(11, 22)", P(11), P(22));
    EXPECT_PASSED_ON(cuMipmappedArrayCreate, "pass cuMipmappedArrayCreate(11, 22, 33)", P(11), P(22), 33);
    EXPECT_PASSED_ON(cuMemAlloc_v2, "cuCtxGetCurrent(&); pass cuMemAlloc_v2(11, 22)", P(11), 22);
    EXPECT_PASSED_ON(cuMemAlloc_v2, "pass cuMemAlloc_v2(0, 22)", NULL, 22);
    EXPECT_PASSED_ON(cuMemAlloc_v2, "pass cuMemAlloc_v2(11, 0)", P(11), 0);
    EXPECT_PASSED_ON(cuMemAllocPitch_v2, "cuCtxGetCurrent(&); pass cuMemAllocPitch_v2(11, 22, 33, 44, 4)", P(11), P(22),
                     33, 44, 4);
    EXPECT_PASSED_ON(cuMemFree_v2, "cuCtxGetCurrent(&); pass cuMemFree_v2(11)", 11);
    EXPECT_PASSED_ON(cuMemFree_v2, "pass cuMemFree_v2(0)", 0);
    EXPECT_PASSED_ON(cuMemFreeAsync, "pass cuMemFreeAsync(11, 22)", 11, P(22));
    EXPECT_PASSED_ON(cuMemFreeAsync, "pass cuMemFreeAsync(0, 22)", 0, P(22));
    EXPECT_PASSED_ON(cuMemFreeAsync_ptsz, "pass cuMemFreeAsync_ptsz(11, 22)", 11, P(22));
    EXPECT_PASSED_ON(cuMemFreeAsync_ptsz, "pass cuMemFreeAsync_ptsz(11, 0)", 11, NULL);
    EXPECT_PASSED_ON(cuMemGetInfo_v2, "pass cuMemGetInfo_v2(11, 22)", P(11), P(22));
    EXPECT_PASSED_ON(cuMemGetAddressRange_v2, "pass cuMemGetAddressRange_v2(11, 22, 33)", P(11), P(22), 33);
    EXPECT_PASSED_ON(cuPointerGetAttribute, "pass cuPointerGetAttribute(11, 22, 33)", P(11), 22, 33);
    EXPECT_PASSED_ON(cuPointerGetAttributes, "pass cuPointerGetAttributes(11, 22, 33, 44)", 11, P(22), P(33), 44);
    EXPECT_PASSED_ON(cuIpcGetMemHandle, "pass cuIpcGetMemHandle(11, 22)", P(11), 22);
    cr_expect_eq(gp_served_count(), 0);
    struct gp_served_context *served = enter(0);
    EXPECT_PASSED_ON(cuMemAllocPitch_v2, "pass cuMemAllocPitch_v2(0, 22, 33, 44, 4)", NULL, P(22), 33, 44, 4);
    EXPECT_PASSED_ON(cuMemAllocPitch_v2, "pass cuMemAllocPitch_v2(11, 0, 33, 44, 4)", P(11), NULL, 33, 44, 4);
    EXPECT_PASSED_ON(cuMemAllocPitch_v2, "pass cuMemAllocPitch_v2(11, 22, 0, 44, 4)", P(11), P(22), 0, 44, 4);
    EXPECT_PASSED_ON(cuMemAllocPitch_v2, "pass cuMemAllocPitch_v2(11, 22, 33, 0, 4)", P(11), P(22), 33, 0, 4);
    EXPECT_PASSED_ON(cuCtxEnablePeerAccess, "pass cuCtxEnablePeerAccess(4096, 0)", served->x_ctx, 0);
    cr_expect(!served->x_untracked && !served->x_access);
}

/* The call is made again if idle memory went back, and only then. */
#define EXPECT_TWICE(_name, _text, ...)                                                                                \
    do {                                                                                                               \
        uint64_t block = taken(30 * MIB), kept = taken(10 * MIB);                                                      \
        calllog.fails = #_name;                                                                                        \
        calllog.code = GP_CU_OUT_OF_MEMORY;                                                                            \
        calllog.number = 1;                                                                                            \
        cr_expect_eq(gp_wrap_##_name(__VA_ARGS__), GP_CU_OUT_OF_MEMORY, #_name);                                       \
        EXPECT_CALLS("pass " _text "; cuCtxGetDevice(&)");                                                             \
        expect_outside();                                                                                              \
        calllog.fails = NULL;                                                                                          \
        gp_wrap_cuMemFree_v2(block);                                                                                   \
        calllog.fails = #_name;                                                                                        \
        calllog_clear();                                                                                               \
        calllog.skips = "cuE";                                                                                         \
        cr_expect_eq(gp_wrap_##_name(__VA_ARGS__), 0, #_name);                                                         \
        calllog.skips = "cuThreadExchangeStreamCaptureMode";                                                           \
        cr_expect_not_null(strstr(calllog_take(), "pass " _text), #_name);                                             \
        cr_expect_eq(calllog.fails ? reserved(served) : 0, 10 * MIB, #_name);                                          \
        expect_outside();                                                                                              \
        calllog.fails = NULL;                                                                                          \
        gp_wrap_cuMemFree_v2(kept);                                                                                    \
        cr_assert_eq(gpuprof_empty_cache(0), 0);                                                                       \
        errno = ERRNO;                                                                                                 \
    } while (0)

static unsigned passed_on(const char *calls, const char *name)
{
    unsigned count = 0;
    for (const char *at = calls; (at = strstr(at, name)) != NULL; at++)
        count++;
    return count;
}

Test(allocator_serve, a_call_without_memory_is_made_again_once_idle_memory_went_back)
{
    struct gp_cu_mem_prop prop = {.type = 1, .location = {.type = 1, .id = 1}};
    start(GP_SERVE_DEDICATED, "caching", 0);
    struct gp_served_context *served = enter(0);
    uint64_t made = 0;
    size_t pitch = 0;
    EXPECT_TWICE(cuMemAllocAsync, "cuMemAllocAsync(&, 1M, 0)", &made, MIB, NULL);
    EXPECT_TWICE(cuMemAllocAsync_ptsz, "cuMemAllocAsync_ptsz(&, 1M, 0)", &made, MIB, NULL);
    EXPECT_TWICE(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync(&, 1M, 5, 6)", &made, MIB, P(5), P(6));
    EXPECT_TWICE(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync_ptsz(&, 1M, 5, 6)", &made, MIB, P(5), P(6));
    EXPECT_TWICE(cuMemCreate, "cuMemCreate(&, 2M, &, 0 1:1:1:00000000)", &made, 2 * MIB, &prop, 0);
    EXPECT_TWICE(cuArrayCreate_v2, "cuArrayCreate_v2(5, 6)", P(5), P(6));
    EXPECT_TWICE(cuArray3DCreate_v2, "cuArray3DCreate_v2(5, 6)", P(5), P(6));
    EXPECT_TWICE(cuMipmappedArrayCreate, "cuMipmappedArrayCreate(5, 6, 7)", P(5), P(6), 7);
    (void)pitch;
    /* At the process's end idle memory stays. */
    gp_wrap_cuMemFree_v2(taken(30 * MIB));
    calllog_clear();
    calllog.fails = "cuArrayCreate_v2";
    gp_driver_stop();
    cr_expect_eq(gp_wrap_cuArrayCreate_v2(P(5), P(6)), GP_CU_OUT_OF_MEMORY);
    EXPECT_CALLS("pass cuArrayCreate_v2(5, 6)");
    cr_expect_eq(reserved(served), 30 * MIB);
    expect_outside();
}

Test(allocator_serve, only_idle_memory_of_the_device_goes_back)
{
    start(GP_SERVE_DEDICATED, "caching", 0);
    struct gp_served_context *first = enter(0);
    gp_wrap_cuMemFree_v2(taken(30 * MIB));
    struct gp_served_context *second = enter(1);
    calllog.fails = "cuArrayCreate_v2";
    calllog.code = GP_CU_OUT_OF_MEMORY;
    cr_expect_eq(gp_wrap_cuArrayCreate_v2(P(5), P(6)), GP_CU_OUT_OF_MEMORY);
    EXPECT_CALLS("pass cuArrayCreate_v2(5, 6); cuCtxGetDevice(&)");
    cr_expect_eq(reserved(first), 30 * MIB);
    gp_wrap_cuMemFree_v2(taken(20 * MIB));
    cr_expect_eq(gp_wrap_cuArrayCreate_v2(P(5), P(6)), GP_CU_OUT_OF_MEMORY);
    cr_expect(reserved(first) == 30 * MIB && reserved(second) == 0);
    leave();
    leave();
    calllog_clear();
    cr_expect_eq(gp_wrap_cuArrayCreate_v2(P(5), P(6)), GP_CU_OUT_OF_MEMORY);
    cr_expect_eq(passed_on(calllog_take(), "pass cuArrayCreate_v2"), 1, "no context is current");
}

/* ---- contexts ---------------------------------------------------------------------------------------------------------- */

static uint32_t context_make(unsigned how, void **ctx, int device)
{
    switch (how) {
    case 0:
        return gp_wrap_cuCtxCreate(ctx, 0, device);
    case 1:
        return gp_wrap_cuCtxCreate_v2(ctx, 0, device);
    case 2:
        return gp_wrap_cuCtxCreate_v3(ctx, NULL, 0, 0, device);
    case 3:
        return gp_wrap_cuCtxCreate_v4(ctx, NULL, 0, device);
    default:
        return gp_wrap_cuDevicePrimaryCtxRetain(ctx, device);
    }
}

static uint32_t context_end(unsigned how, void *ctx, int device)
{
    switch (how) {
    case 0:
        return gp_wrap_cuCtxDestroy(ctx);
    case 1:
        return gp_wrap_cuCtxDestroy_v2(ctx);
    case 2:
        return gp_wrap_cuCtxDetach(ctx);
    case 3:
        return gp_wrap_cuDevicePrimaryCtxRelease(device);
    default:
        return gp_wrap_cuDevicePrimaryCtxRelease_v2(device);
    }
}

Test(allocator_serve, a_context_is_served_from_its_making_to_its_end)
{
    static const char *const ends[] = {"cuCtxDestroy", "cuCtxDestroy_v2", "cuCtxDetach", "cuDevicePrimaryCtxRelease",
                                       "cuDevicePrimaryCtxRelease_v2"};
    static char handles[16];
    start(GP_SERVE_DEDICATED, "caching", 0);
    for (unsigned how = 0; how < 5; how++)
        for (unsigned end = 0; end < 5; end++) {
            void *ctx = &handles[how];
            int device = (int)(how + end) % 2;
            calllog.fails = NULL;
            cr_assert_eq(context_make(how, &ctx, device), 0);
            expect_outside();
            struct gp_served_context *served = gp_served_of(ctx);
            cr_assert_not_null(served, "made by %u", how);
            cr_expect(served->device == device && served->primary == (how == 4));
            cr_expect_eq(gp_served_primary(device), how == 4 ? served : NULL);
            calllog.fails = ends[end];
            calllog.code = 1;
            cr_expect_eq(context_end(end, ctx, device), 1);
            expect_outside();
            cr_expect_eq(gp_served_of(ctx), served, "an end that failed");
            cr_expect(gp_served_is_live(served));
            calllog.fails = NULL;
            if (how == 4 && end == 4) /* retained twice */
                cr_assert_eq(gp_wrap_cuDevicePrimaryCtxRetain(&ctx, device), 0);
            uint32_t result = context_end(end, ctx, device);
            expect_outside();
            bool over = end < 3 && result == 0;
            cr_expect_eq(gp_served_of(ctx), over ? NULL : served, "made by %u, ended by %u", how, end);
            if (how == 4 && end == 4)
                cr_expect_eq(gp_wrap_cuDevicePrimaryCtxRelease_v2(device), 0);
            if (gp_served_of(ctx) && how == 4 && end == 3 && fakedriver_references(device) == 1)
                gp_wrap_cuDevicePrimaryCtxRelease_v2(device);
            if (how == 4 && end > 2)
                cr_expect_null(gp_served_of(ctx), "the last release, by %u", end);
            if (gp_served_of(ctx))
                gp_served_remove(gp_served_of(ctx));
            while (fakedriver_references(device))
                gp_driver_real.cuDevicePrimaryCtxRelease_v2(device);
            while (fakedriver_depth())
                leave();
        }
}

Test(allocator_serve, a_primary_context_that_is_reset_goes_on)
{
    start(GP_SERVE_DEDICATED, "caching", 0);
    struct gp_served_context *served = enter(1);
    void *ctx = served->x_ctx;
    for (unsigned how = 0; how < 2; how++) {
        uint64_t block = taken(5 * MIB);
        calllog.fails = how ? "cuDevicePrimaryCtxReset" : "cuDevicePrimaryCtxReset_v2";
        calllog.code = 719;
        cr_expect_eq(how ? gp_wrap_cuDevicePrimaryCtxReset(1) : gp_wrap_cuDevicePrimaryCtxReset_v2(1), 719);
        cr_expect_eq(gp_served_primary(1), served);
        cr_expect_eq(gp_served_owning(block), served, "its memory is still there");
        expect_outside();
        calllog.fails = NULL;
        cr_expect_eq(how ? gp_wrap_cuDevicePrimaryCtxReset(1) : gp_wrap_cuDevicePrimaryCtxReset_v2(1), 0);
        cr_expect_eq(gp_served_primary(1), served);
        cr_expect(served->x_ctx == ctx && served->primary && served->device == 1);
        cr_expect_null(gp_served_owning(block));
        cr_expect_eq(gp_wrap_cuDevicePrimaryCtxReset_v2(0), 0);
        cr_expect_null(gp_served_primary(0));
        expect_outside();
    }
}

/* Only the driver knows which release is the last. */
Test(allocator_serve, a_release_ends_the_context_if_the_driver_says_so)
{
    start(GP_SERVE_DEDICATED, "caching", 0);
    struct gp_served_context *served = enter(1);
    cr_assert_eq(gp_driver_real.cuDevicePrimaryCtxRetain(&(void *){0}, 1), 0);
    cr_assert_eq(gp_driver_real.cuDevicePrimaryCtxRetain(&(void *){0}, 1), 0);
    calllog_clear();
    cr_expect_eq(gp_wrap_cuDevicePrimaryCtxRelease_v2(1), 0);
    EXPECT_CALLS("pass cuDevicePrimaryCtxRelease_v2(1); pass cuDevicePrimaryCtxGetState(1, &, &)");
    cr_expect_eq(gp_served_primary(1), served);
    calllog.fails = "cuDevicePrimaryCtxGetState";
    calllog.code = 1;
    cr_expect_eq(gp_wrap_cuDevicePrimaryCtxRelease_v2(1), 0);
    cr_expect_eq(gp_wrap_cuDevicePrimaryCtxRelease(1), 0);
    cr_expect_eq(gp_served_primary(1), served, "the driver does not say");
    calllog.fails = NULL;
    cr_expect_eq(gp_wrap_cuDevicePrimaryCtxRelease_v2(1), 0);
    cr_expect_null(gp_served_primary(1));
    calllog_clear();
    cr_expect_eq(gp_wrap_cuDevicePrimaryCtxRelease(0), 0);
    EXPECT_CALLS("pass cuDevicePrimaryCtxRelease(0)");
    expect_outside();
}

/* A handle that is given again belongs to a new context. */
Test(allocator_serve, a_handle_that_comes_again_is_another_context)
{
    static char handle;
    start(GP_SERVE_DEDICATED, "caching", 0);
    struct gp_served_context *served = gp_served_add(&handle, 0, true);
    cr_assert_not_null(gp_served_make_cache(served));
    served->x_access = 5;
    cr_expect_eq(gp_served_add(&handle, 0, true), served);
    cr_expect_eq(served->x_access, 5, "retained once more");
    cr_expect_eq(gp_served_add(&handle, 0, false), served);
    cr_expect(served->x_access == 0 && !served->primary);
    served->x_access = 5;
    cr_expect_eq(gp_served_add(&handle, 0, true), served);
    cr_expect_eq(served->x_access, 0);
    struct gp_served_context *other = gp_served_add(&handle, 1, true);
    cr_expect(other != served && other->device == 1, "a cache counts for its device");
    cr_expect_null(gp_served_primary(0));
    cr_expect_eq(served->x_state, GP_SERVED_EMPTY);
}

/* ---- peers ------------------------------------------------------------------------------------------------------------- */

Test(allocator_serve, memory_is_shared_with_peers)
{
    void *ctx = NULL;
    start(GP_SERVE_GROWABLE, "caching", 0);
    struct gp_served_context *owner = enter(1);
    taken(5 * MIB);
    leave();
    struct gp_served_context *user = enter(0);
    cr_expect_eq(gp_wrap_cuCtxEnablePeerAccess(owner->x_ctx, 0), 0);
    const char *calls = calllog_take();
    cr_expect_not_null(strstr(calls, "cuMemSetAccess("), "%s", calls);
    cr_expect_not_null(strstr(calls, "1 1:0:3)"), "%s", calls);
    cr_expect_eq(owner->x_access, 1ull << gp_served_index(user));
    cr_expect_eq(user->x_access, 0);
    cr_expect_eq(owner->x_untracked + user->x_untracked, 0);
    expect_outside();
    leave();
    /* A context that is not served uses it. */
    uint32_t (*create)(void **, unsigned, int) = fakedriver_function("cuCtxCreate_v2");
    cr_assert_eq(create(&ctx, 0, 0), 0);
    calllog_clear();
    cr_expect_eq(gp_wrap_cuCtxEnablePeerAccess(owner->x_ctx, 0), 0);
    EXPECT_CALLS("pass cuCtxEnablePeerAccess(4112, 0); pass cuCtxGetCurrent(&)");
    cr_expect(owner->x_untracked == 1 && user->x_untracked == 1);
    cr_expect_eq(gp_wrap_cuCtxEnablePeerAccess(ctx, 0), 0);
    cr_expect(owner->x_untracked == 1 && user->x_untracked == 1, "the peer's memory is not served");
    expect_outside();
}

/* ---- streams and captures ------------------------------------------------------------------------------------------------ */

Test(allocator_serve, streams_are_known_from_their_making_to_their_end)
{
    static char handle;
    void *stream = &handle, *ctx;
    start(GP_SERVE_DEDICATED, "caching", 0);
    struct gp_served_context *served = enter(0);
    for (unsigned flags = 0; flags < 2; flags++) {
        unsigned at = 0;
        void *found;
        cr_assert_eq(gp_wrap_cuStreamCreate(&stream, flags), 0);
        cr_expect(gp_stream_nameable(served, (uintptr_t)stream));
        cr_expect_eq(gp_stream_next(served, &at, &found), flags == 1);
        cr_expect_eq(gp_wrap_cuStreamDestroy_v2(stream), 0);
        cr_expect_not(gp_stream_nameable(served, (uintptr_t)stream));
        stream = &handle;
        cr_assert_eq(gp_wrap_cuStreamCreateWithPriority(&stream, flags, -1), 0);
        cr_expect(gp_stream_nameable(served, (uintptr_t)stream));
        at = 0;
        cr_expect_eq(gp_stream_next(served, &at, &found), flags == 1);
        cr_expect_eq(gp_wrap_cuStreamDestroy(stream), 0);
        cr_expect_not(gp_stream_nameable(served, (uintptr_t)stream));
        expect_outside();
    }
    cr_expect_eq(served->x_untracked, 0);
    calllog.fails = "cuStreamCreate";
    calllog.code = 2;
    cr_expect_eq(gp_wrap_cuStreamCreate(&stream, 0), 2);
    calllog.fails = "cuGreenCtxStreamCreate";
    cr_expect_eq(gp_wrap_cuGreenCtxStreamCreate(&stream, NULL, 0, 0), 2);
    cr_expect_eq(served->x_untracked, 0);
    calllog.fails = NULL;
    struct gp_served_context *other = enter(1);
    cr_expect_eq(gp_wrap_cuGreenCtxStreamCreate(&stream, NULL, 0, 0), 0);
    cr_expect(served->x_untracked == 1 && other->x_untracked == 1);
    /* A stream of a context that is not served may touch memory of its device. */
    uint32_t (*create)(void **, unsigned, int) = fakedriver_function("cuCtxCreate_v2");
    cr_assert_eq(create(&ctx, 0, 1), 0);
    cr_assert_eq(gp_wrap_cuStreamCreate(&stream, 1), 0);
    cr_expect(served->x_untracked == 1 && other->x_untracked == 2);
    calllog.fails = "cuCtxGetDevice";
    cr_assert_eq(gp_wrap_cuStreamCreate(&stream, 1), 0);
    cr_expect(served->x_untracked == 1 && other->x_untracked == 2);
    expect_outside();
}

static uint32_t capture_begin(unsigned how, void *stream)
{
    switch (how) {
    case 0:
        return gp_wrap_cuStreamBeginCapture(stream);
    case 1:
        return gp_wrap_cuStreamBeginCapture_ptsz(stream);
    case 2:
        return gp_wrap_cuStreamBeginCapture_v2(stream, 22);
    case 3:
        return gp_wrap_cuStreamBeginCapture_v2_ptsz(stream, 22);
    case 4:
        return gp_wrap_cuStreamBeginCaptureToGraph(stream, P(22), P(33), P(44), 55, 66);
    case 5:
        return gp_wrap_cuStreamBeginCaptureToGraph_ptsz(stream, P(22), P(33), P(44), 55, 66);
    default:
        return gp_wrap_cuStreamBeginRecaptureToGraph(stream, 22, P(33), P(44), P(55));
    }
}

Test(allocator_serve, a_capture_lasts_from_its_beginning_to_its_end_or_break)
{
    static const char *const begins[] = {
        "cuStreamBeginCapture(11)",
        "cuStreamBeginCapture_ptsz(11)",
        "cuStreamBeginCapture_v2(11, 22)",
        "cuStreamBeginCapture_v2_ptsz(11, 22)",
        "cuStreamBeginCaptureToGraph(11, 22, 33, 44, 55, 66)",
        "cuStreamBeginCaptureToGraph_ptsz(11, 22, 33, 44, 55, 66)",
        "cuStreamBeginRecaptureToGraph(11, 22, 33, 44, 55)",
    };
    static const struct {
        uint32_t result;
        bool over;
    } ends[] = {{1, false},  {900, false}, {901, true},  {902, false}, {903, false},
                {904, true}, {905, false}, {917, false}, {918, true},  {0, true}};
    start(GP_SERVE_DEDICATED, "caching", 0);
    enter(0);
    calllog.stubs = "cuStream";
    calllog.skips = "cuCtxGetCurrent";
    for (unsigned how = 0; how < GP_COUNT(begins); how++)
        for (unsigned ptsz = 0; ptsz < 2; ptsz++)
            for (unsigned i = 0; i < GP_COUNT(ends); i++) {
                char expected[96];
                snprintf(expected, sizeof(expected), "pass %s", begins[how]);
                calllog.result = 1;
                cr_expect_eq(capture_begin(how, P(11)), 1);
                EXPECT_CALLS(expected);
                cr_expect_not(gp_stream_capture_under_way());
                calllog.result = 0;
                cr_expect_eq(capture_begin(how, P(11)), 0);
                EXPECT_CALLS(expected);
                cr_expect(gp_stream_capture_under_way());
                cr_expect_not(gp_stream_fencing_begin());
                calllog.result = ends[i].result;
                cr_expect_eq(ptsz ? gp_wrap_cuStreamEndCapture_ptsz(P(11), P(22))
                                  : gp_wrap_cuStreamEndCapture(P(11), P(22)),
                             ends[i].result);
                EXPECT_CALLS(ptsz ? "pass cuStreamEndCapture_ptsz(11, 22)" : "pass cuStreamEndCapture(11, 22)");
                cr_expect_eq(gp_stream_capture_under_way(), !ends[i].over, "%u", ends[i].result);
                gp_stream_capture_ended(P(11));
                expect_outside();
            }
}

Test(allocator_serve, events_of_fences_are_kept_and_used_again)
{
    uint64_t fences[300], one = 1;
    start(GP_SERVE_DEDICATED, "caching", 0);
    struct gp_served_context *served = enter(0);
    for (unsigned i = 0; i < 300; i++)
        cr_assert_eq(gp_stream_fence_record(served, &one, 1, &fences[i]), 0);
    cr_expect_eq(fakedriver_events(), 300);
    for (unsigned i = 0; i < 300; i++)
        cr_assert_eq(gp_stream_fence_wait(served, fences[i]), 0);
    cr_expect(served->event_count == 256 && fakedriver_events() == 256, "as many as there is room for");
    calllog.fails = "cuEventRecord";
    calllog.code = 719;
    cr_expect_eq(gp_stream_fence_record(served, &one, 1, fences), 719);
    cr_expect_eq(served->event_count, 256, "the event of a record that failed is kept too");
    expect_outside();
}

/* Another thread may capture in the global mode, in which a call that allocates breaks the capture. */
Test(allocator_serve, calls_of_our_own_are_made_in_the_relaxed_mode)
{
    start(GP_SERVE_DEDICATED, "caching", 0);
    enter(0);
    calllog.skips = NULL;
    uint64_t address = 0;
    cr_assert_eq(gp_wrap_cuMemAlloc_v2(&address, 3 * MIB), 0);
    const char *calls = calllog_take(), *call = strstr(calls, "cuMemAlloc_v2(&");
    const char *relaxed = strstr(calls, "cuThreadExchangeStreamCaptureMode(& 2)");
    cr_expect(relaxed && call > relaxed, "%s", calls);
    cr_expect(call && strstr(call, "cuThreadExchangeStreamCaptureMode(& 0)"), "%s", calls);
    expect_outside();
}

Test(allocator_serve, a_full_table_of_mappings_refuses_memory_and_leaves_none)
{
    uint64_t address = 0, row = 1;
    start(GP_SERVE_GROWABLE, "caching", 0);
    struct gp_served_context *served = enter(0);
    while (gp_mapping_add(GP_MAPPING_NONE, 63, 1ull << 50 | row << 12, 1))
        row++;
    cr_expect_eq(gp_wrap_cuMemAlloc_v2(&address, 3 * MIB), GP_CU_OUT_OF_MEMORY);
    cr_expect_eq(fakedriver_growable(), 0);
    cr_expect_eq(gp_mapping_mark_buffer(served, 8192), 0);
    expect_outside();
}
