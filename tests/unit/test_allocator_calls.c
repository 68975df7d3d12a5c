/* SPDX-License-Identifier: MIT
 *
 * test_allocator_calls.c: which driver calls the allocator makes, in which order and with which arguments, when all goes
 * well, when a call fails, and when a table is full.
 */
#include "allocator/allocator.h"
#include "allocator/cache/policy.h"
#include "allocator/driver.h"
#include "allocator/internal.h"
#include "allocator_fixture.h"
#include <gpuprof/gpuprof.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)

TestSuite(allocator_calls, .fini = expect_lock_given);

static void start(const char *policy)
{
    struct gp_policy found = policy_of(policy);
    cr_assert_eq(gp_thread_life_start(), 0);
    gp_served_setup(&found, 0);
    cr_assert(gp_driver_bind());
    errno = ERRNO;
    calllog_clear();
}

/* The primary context of a device as the program retains it, current or not. */
static struct gp_served_context *primary(int device, bool current)
{
    void *ctx = NULL;
    cr_assert_eq(gp_driver_real.cuDevicePrimaryCtxRetain(&ctx, device), 0);
    if (current)
        cr_assert_eq(gp_driver_real.cuCtxPushCurrent_v2(ctx), 0);
    struct gp_served_context *served = gp_served_add(ctx, device, true);
    cr_assert_not_null(served);
    calllog_clear();
    return served;
}

static unsigned rows_of(enum gp_mapping_kind kind, const struct gp_served_context *served)
{
    struct gp_mapping mapping;
    unsigned count = 0;
    for (unsigned at = 0; gp_mapping_next(kind, gp_served_index(served), &at, &mapping);)
        count++;
    return count;
}

/* ---- backend: each function as it is, failed, and in a context that is not live -------------------------------------- */

#define ENTER          "cuCtxGetCurrent(&); cuThreadExchangeStreamCaptureMode(& 2); "
#define LEAVE          "; cuThreadExchangeStreamCaptureMode(& 0)"
#define AROUND(_calls) ENTER _calls LEAVE

struct backend_use {
    const char *function; /* of the driver */
    const char *calls;    /* when it succeeds */
};

/* Calls the backend's function for one function of the driver. */
static uint32_t backend_use(const struct gp_backend *b, unsigned which, uint64_t *made)
{
    uint64_t handle_bytes[2] = {2 * MIB, 4 * MIB};
    switch (which) {
    case 0:
        return b->allocate(b->self, 3 * MIB, &made[0]);
    case 1:
        return b->free(b->self, made[0]);
    case 2:
        return b->reserve(b->self, 8 * MIB, &made[1]);
    case 3:
        return b->create(b->self, 2 * MIB, &made[2]);
    case 4:
        return b->create(b->self, 4 * MIB, &made[3]);
    case 5:
        return b->map(b->self, made[1] + 2 * MIB, 6 * MIB, &made[2], handle_bytes, 2);
    case 6:
        return b->unmap(b->self, made[1] + 2 * MIB, 6 * MIB);
    case 7:
        return b->destroy(b->self, made[2]);
    case 8:
        return b->destroy(b->self, made[3]);
    default:
        return b->unreserve(b->self, made[1], 8 * MIB);
    }
}

static const struct backend_use uses[] = {
    {"cuMemAlloc_v2", AROUND("cuMemAlloc_v2(&, 3M)")},
    {"cuMemFree_v2", AROUND("cuMemFree_v2(@0)")},
    {"cuMemAddressReserve", AROUND("cuMemAddressReserve(&, 8M, 0, 0, 0)")},
    {"cuMemCreate", AROUND("cuMemCreate(&, 2M, &, 0 1:1:0:01000000)")},
    {"cuMemCreate", AROUND("cuMemCreate(&, 4M, &, 0 1:1:0:01000000)")},
    {"cuMemMap",
     AROUND("cuMemMap(@6M, 2M, 0, 20496, 0); cuMemMap(@8M, 4M, 0, 20512, 0); cuMemSetAccess(@6M, 6M, &, 1 1:0:3)")},
    {"cuMemUnmap", AROUND("cuMemUnmap(@6M, 2M); cuMemUnmap(@8M, 4M)")},
    {"cuMemRelease", AROUND("cuMemRelease(20496)")},
    {"cuMemRelease", AROUND("cuMemRelease(20512)")},
    {"cuMemAddressFree", AROUND("cuMemAddressFree(@4M, 8M)")},
};

Test(allocator_calls, each_backend_function_makes_its_call_and_reports_its_error)
{
    struct gp_backend b;
    uint64_t made[4] = {0}, free = 0, total = 0;
    start("caching");
    struct gp_served_context *served = primary(0, true);
    gp_backend_fill(served, &b);
    EXPECT_CALLS(AROUND("cuDeviceGetAttribute(&, 110, 0); cuMemGetAllocationGranularity(&, &, 0)"));
    cr_expect(b.self == served && b.page_bytes == 2 * MIB && served->rdma);
    for (unsigned i = 0; i < GP_COUNT(uses); i++) {
        unsigned rows[3], now[3];
        for (unsigned kind = 0; kind < 3; kind++)
            rows[kind] = rows_of(GP_MAPPING_RANGE + kind, served);
        served->x_state = GP_SERVED_DYING;
        cr_expect_eq(backend_use(&b, i, made), GP_BACKEND_INVALID, "%s in a dying context", uses[i].function);
        EXPECT_CALLS("");
        served->x_state = GP_SERVED_LIVE;
        calllog.fails = uses[i].function;
        calllog.code = 719;
        cr_expect_eq(backend_use(&b, i, made), 719, "%s fails", uses[i].function);
        calllog.fails = NULL;
        for (unsigned kind = 0; kind < 3; kind++) {
            now[kind] = rows_of(GP_MAPPING_RANGE + kind, served);
            /* What cannot be unmapped is not tried again. */
            cr_expect_eq(now[kind], rows[kind] - (i == 6 && kind == 2), "%s fails: rows", uses[i].function);
        }
        expect_outside();
        if (i == 6) /* the row that the failure took */
            gp_mapping_add(GP_MAPPING_MAPPED, gp_served_index(served), made[1] + 2 * MIB, 2 * MIB);
        calllog_clear();
        cr_expect_eq(backend_use(&b, i, made), 0, "%s", uses[i].function);
        EXPECT_CALLS(uses[i].calls);
        expect_outside();
    }
    for (unsigned kind = 0; kind < 3; kind++)
        cr_expect_eq(rows_of(GP_MAPPING_RANGE + kind, served), 0);
    cr_expect_eq(fakedriver_growable(), 0);
    cr_expect_eq(b.memory(b.self, &free, &total), 0);
    EXPECT_CALLS(AROUND("cuMemGetInfo_v2(&, &)"));
    cr_expect(free == FAKEDRIVER_MEMORY && total == FAKEDRIVER_MEMORY);
    calllog.fails = "cuMemGetInfo_v2";
    cr_expect_eq(b.memory(b.self, &free, &total), 719);
    cr_expect(free == 0 && total == 0);
    served->x_state = GP_SERVED_DYING;
    cr_expect_eq(b.memory(b.self, &free, &total), GP_BACKEND_INVALID);
}

/* Of a range that was mapped in part, that part is unmapped again. */
Test(allocator_calls, a_mapping_that_fails_leaves_nothing)
{
    static const char *const fails[] = {"cuMemMap", "cuMemMap", "cuMemSetAccess"};
    static const char *const calls[] = {
        AROUND("cuMemMap(@0, 2M, 0, 20496, 0)"),
        AROUND("cuMemMap(@0, 2M, 0, 20496, 0); cuMemMap(@2M, 2M, 0, 20512, 0); cuMemUnmap(@0, 2M)"),
        AROUND("cuMemMap(@0, 2M, 0, 20496, 0); cuMemMap(@2M, 2M, 0, 20512, 0); cuMemSetAccess(@0, 4M, &, 1 1:0:3); "
               "cuMemUnmap(@0, 2M); cuMemUnmap(@2M, 2M)"),
    };
    struct gp_backend b;
    uint64_t range, handles[2], bytes[2] = {2 * MIB, 2 * MIB};
    start("caching");
    struct gp_served_context *served = primary(0, true);
    gp_backend_fill(served, &b);
    cr_assert_eq(b.reserve(b.self, 4 * MIB, &range), 0);
    cr_assert_eq(b.create(b.self, 2 * MIB, &handles[0]) + b.create(b.self, 2 * MIB, &handles[1]), 0);
    for (unsigned i = 0; i < 3; i++) {
        calllog_clear();
        calllog.fails = fails[i];
        calllog.number = i == 1 ? 2 : 1;
        calllog.code = 700 + i;
        cr_expect_eq(b.map(b.self, range, 4 * MIB, handles, bytes, 2), 700 + i);
        EXPECT_CALLS(calls[i]);
        cr_expect_eq(rows_of(GP_MAPPING_MAPPED, served), 0);
    }
    calllog.fails = NULL;
    cr_expect_eq(b.unmap(b.self, range, 2 * MIB), GP_BACKEND_INVALID, "nothing is mapped there");
    EXPECT_CALLS(ENTER "cuThreadExchangeStreamCaptureMode(& 0)");
    cr_expect_eq(b.map(b.self, range, 4 * MIB, handles, bytes, 2), 0);
    calllog_clear();
    cr_expect_eq(b.unmap(b.self, range, 2 * MIB), 0, "a mapping alone");
    EXPECT_CALLS(AROUND("cuMemUnmap(@0, 2M)"));
    cr_expect_eq(rows_of(GP_MAPPING_MAPPED, served), 1);
}

Test(allocator_calls, a_full_table_of_mappings_undoes_the_call)
{
    struct gp_backend b;
    uint64_t range, handle, other, bytes = 2 * MIB;
    start("caching");
    struct gp_served_context *served = primary(0, true);
    gp_backend_fill(served, &b);
    cr_assert_eq(b.reserve(b.self, 2 * MIB, &range), 0);
    cr_assert_eq(b.create(b.self, 2 * MIB, &handle), 0);
    cr_expect_eq(gp_mapping_mark_buffer(served, 4096), (1ull << 63) + 1);
    uint64_t rows = 3;
    while (gp_mapping_add(GP_MAPPING_NONE, 63, 1ull << 50 | rows << 12, 1))
        rows++;
    cr_expect_eq(rows, 1u << 20);
    calllog_clear();
    cr_expect_eq(b.reserve(b.self, 2 * MIB, &other), GP_BACKEND_OOM);
    EXPECT_CALLS(AROUND("cuMemAddressReserve(&, 2M, 0, 0, 0); cuMemAddressFree(@4M, 2M)"));
    cr_expect_eq(b.create(b.self, 4 * MIB, &other), GP_BACKEND_OOM);
    EXPECT_CALLS(AROUND("cuMemCreate(&, 4M, &, 0 1:1:0:01000000); cuMemRelease(20512)"));
    cr_expect_eq(b.map(b.self, range, 2 * MIB, &handle, &bytes, 1), GP_BACKEND_OOM);
    EXPECT_CALLS(AROUND("cuMemMap(@0, 2M, 0, 20496, 0); cuMemUnmap(@0, 2M)"));
    cr_expect_eq(gp_mapping_mark_buffer(served, 8192), 0);
    cr_expect_eq(gp_mapping_mark_buffer(served, 4096), (1ull << 63) + 1);
    gp_mapping_mark_synced(served, 4096, true);
    cr_expect_not(gp_mapping_mark_is_synced(4096));
    cr_expect_eq(gp_mapping_take(GP_MAPPING_NONE, 1ull << 50 | 3 << 12), 1);
    cr_expect_eq(b.map(b.self, range, 2 * MIB, &handle, &bytes, 1), 0, "a row that was taken out is used again");
}

/* Not in sanitizer builds: the sanitizers have mappings of their own. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
Test(allocator_calls, no_mapping_is_kept_without_memory)
{
    struct rlimit limit = {16 << 20, 16 << 20};
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    cr_expect_not(gp_mapping_add(GP_MAPPING_RANGE, 0, 4096, 1));
    cr_expect_eq(gp_mapping_find(GP_MAPPING_RANGE, 4096), 0);
    cr_expect_eq(gp_mapping_take(GP_MAPPING_RANGE, 4096), 0);
}
#endif

/* Two contexts of one device count once. */
Test(allocator_calls, memory_is_made_accessible_to_each_peers_device_once)
{
    static char others[2];
    struct gp_backend b;
    uint64_t range, handle, bytes = 2 * MIB;
    start("caching");
    struct gp_served_context *served = primary(0, true), *second = primary(1, false);
    struct gp_served_context *third = gp_served_take(&others[0], 1, false),
                             *same = gp_served_take(&others[1], 0, false);
    gp_backend_fill(served, &b);
    served->x_access = 1ull << gp_served_index(second) | 1ull << gp_served_index(third) | 1ull << gp_served_index(same);
    cr_assert_eq(b.reserve(b.self, 2 * MIB, &range) + b.create(b.self, 2 * MIB, &handle), 0);
    calllog_clear();
    cr_expect_eq(b.map(b.self, range, 2 * MIB, &handle, &bytes, 1), 0);
    EXPECT_CALLS(AROUND("cuMemMap(@0, 2M, 0, 20496, 0); cuMemSetAccess(@0, 2M, &, 2 1:0:3 1:1:3)"));
    gp_backend_share(served, 1);
    EXPECT_CALLS(AROUND("cuMemSetAccess(@0, 2M, &, 1 1:1:3)"));
    gp_backend_share(second, 0);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuCtxPushCurrent_v2(4112); cuThreadExchangeStreamCaptureMode(& 2); "
                 "cuThreadExchangeStreamCaptureMode(& 0); cuCtxPopCurrent_v2(&)");
    gp_backend_clear(second);
    EXPECT_CALLS("cuThreadExchangeStreamCaptureMode(& 2); cuThreadExchangeStreamCaptureMode(& 0)");
    gp_backend_clear(served);
    EXPECT_CALLS("cuThreadExchangeStreamCaptureMode(& 2); cuMemUnmap(@0, 2M); cuMemRelease(20496); "
                 "cuMemAddressFree(@0, 2M); cuThreadExchangeStreamCaptureMode(& 0)");
    cr_expect_eq(fakedriver_growable(), 0);
    gp_driver_stop();
    gp_backend_clear(served);
    gp_backend_share(served, 1);
    cr_expect_eq(b.free(b.self, 16), GP_BACKEND_INVALID);
    EXPECT_CALLS("");
}

/* The granularity of a driver that has another one is rounded up to whole 2 MiB. */
static size_t granularity;
static uint32_t other_granularity(size_t *bytes, const struct gp_cu_mem_prop *prop, int option)
{
    (void)prop, (void)option;
    *bytes = granularity;
    return 0;
}

Test(allocator_calls, memory_grows_by_whole_pages_of_2_mib)
{
    static const struct {
        size_t said;
        uint64_t page;
    } rows[] = {
        {0, 0}, {1, 2 * MIB}, {2 * MIB - 1, 2 * MIB}, {2 * MIB, 2 * MIB}, {2 * MIB + 1, 4 * MIB}, {4 * MIB, 4 * MIB}};
    struct gp_backend b;
    start("caching");
    struct gp_served_context *served = primary(0, true);
    calllog.fails = "cuMemGetAllocationGranularity";
    calllog.code = 1;
    gp_backend_fill(served, &b);
    cr_expect_eq(b.page_bytes, 0);
    calllog.fails = "cuDeviceGetAttribute";
    gp_backend_fill(served, &b);
    cr_expect(b.page_bytes == 2 * MIB && served->rdma, "what was known of the device stays");
    gp_driver_real.cuMemGetAllocationGranularity = other_granularity;
    for (unsigned i = 0; i < GP_COUNT(rows); i++) {
        granularity = rows[i].said;
        gp_backend_fill(served, &b);
        cr_expect_eq(b.page_bytes, rows[i].page, "%zu", rows[i].said);
    }
    served->x_state = GP_SERVED_DYING;
    gp_backend_fill(served, &b);
    cr_expect_eq(b.page_bytes, 0);
}

/* ---- around a call of our own ------------------------------------------------------------------------------------------ */

Test(allocator_calls, a_context_is_pushed_only_if_another_one_is_current)
{
    struct gp_driver_guard guard;
    start("caching");
    struct gp_served_context *served = primary(0, true), *other = primary(1, false);
    void *first = served->x_ctx;
    cr_expect(gp_driver_enter(&guard, first) && !guard.pushed && guard.relaxed && gp_thread.ignored);
    gp_driver_leave(&guard);
    EXPECT_CALLS("cuCtxGetCurrent(&); cuThreadExchangeStreamCaptureMode(& 2); cuThreadExchangeStreamCaptureMode(& 0)");
    cr_expect(gp_driver_enter(&guard, other->x_ctx) && guard.pushed);
    cr_expect_eq(fakedriver_current(), other->x_ctx);
    gp_driver_leave(&guard);
    cr_expect_eq(fakedriver_current(), first);
    expect_outside();
    calllog_clear();
    fakedriver.capture_mode = 2;
    cr_expect(gp_driver_enter(&guard, NULL));
    gp_driver_leave(&guard);
    EXPECT_CALLS("cuThreadExchangeStreamCaptureMode(& 2)");
    fakedriver.capture_mode = 0;
    uint8_t heed = gp_thread_ignore();
    cr_expect(gp_driver_enter(&guard, NULL));
    gp_driver_leave(&guard);
    cr_expect(gp_thread.ignored, "calls nest");
    gp_thread_heed(heed);
    calllog_clear();
    calllog.fails = "cuCtxPushCurrent_v2";
    calllog.code = 201;
    cr_expect_not(gp_driver_enter(&guard, other->x_ctx));
    EXPECT_CALLS("cuCtxGetCurrent(&); cuCtxPushCurrent_v2(4112)");
    expect_outside();
    calllog.fails = "cuThreadExchangeStreamCaptureMode";
    cr_expect(gp_driver_enter(&guard, NULL) && !guard.relaxed);
    gp_driver_leave(&guard);
    EXPECT_CALLS("cuThreadExchangeStreamCaptureMode(& 2)");
    calllog.fails = "cuCtxGetCurrent";
    cr_expect_null(gp_driver_current());
    calllog.fails = NULL;
    gp_driver_stop();
    cr_expect_not(gp_driver_enter(&guard, first));
    expect_outside();
}
