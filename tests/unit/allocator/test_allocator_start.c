/* SPDX-License-Identifier: MIT
 *
 * test_allocator_start.c: what the allocator's settings do, and the functions that callers use without the hooks: those
 * of gpuprof.h and of PyTorch's pluggable allocator, at their limits.
 */
#include "allocator/allocator.h"
#include "allocator/driver.h"
#include "allocator/route.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "allocator/torch.h"
#include "allocator_fixture.h"
#include "base/compiler.h"
#include "cache/cache.h"
#include "cache/policy.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(allocator_start, .fini = expect_lock_given);

static void accounts(void)
{
    start_accounts();
    calllog.skips = "cuThreadExchangeStreamCaptureMode";
    errno = ERRNO;
}

/* Outside, and no context was left current. */
static void expect_restored(void)
{
    expect_outside();
    cr_expect_eq(fakedriver_depth(), 0);
}

/* ---- settings ---------------------------------------------------------------------------------------------------------- */

Test(allocator_start, settings_are_checked)
{
    static const struct {
        const char *allocator, *conf;
        bool good;
        const char *why, *policy;
        uint64_t split;
    } rows[] = {
        {NULL, NULL, true, "", "caching", UINT64_MAX},
        {"", "", true, "", "caching", UINT64_MAX},
        {NULL, "max_split_size_mb:30", true,
         "max_split_size_mb: growable segments are exempt; it applies only to the others", "caching", 30 * MIB},
        {NULL, "max_split_size_mb:3", false, "max_split_size_mb:3 is too small: it must be at least 20", "caching",
         UINT64_MAX},
        {"other", "max_split_size_mb:30", false,
         "GPUPROF_ALLOCATOR=other is not one of caching, pytorch, auto_growth, prealloc, passthrough", "caching",
         UINT64_MAX},
        {"0123456789012345678901234567890123456789x", NULL, false,
         "GPUPROF_ALLOCATOR=0123456789012345678901234567890123456789 is not one of caching, pytorch, auto_growth, "
         "prealloc, passthrough",
         "caching", UINT64_MAX},
        {"auto_growth", "max_split_size_mb:30", false, "needs libgpuprof-shim.so in LD_PRELOAD (gpuprof run does that)",
         "auto_growth", 30 * MIB},
        {"passthrough", NULL, false, "needs libgpuprof-shim.so in LD_PRELOAD (gpuprof run does that)", "passthrough",
         UINT64_MAX},
    };
    static char handles[GP_COUNT(rows)];
    accounts();
    gp_allocator_prepare();
    cr_expect_str_eq(gp_allocator_in_use(), "off");
    for (unsigned i = 0; i < GP_COUNT(rows); i++) {
        char why[256] = "old", cut[256];
        struct gp_allocator_setup setup = {rows[i].allocator, rows[i].conf, 100 * MIB + i};
        for (size_t room = 1; room < sizeof(cut) / 2; room++) {
            memset(cut, 'x', sizeof(cut));
            cr_expect_eq(gp_allocator_start(&setup, cut, room), rows[i].good);
            cr_expect(strncmp(cut, rows[i].why, room - 1) == 0 && cut[room] == 'x' && strlen(cut) < room, "%u: %zu", i,
                      room);
        }
        cr_expect_eq(gp_allocator_start(&setup, why, sizeof(why)), rows[i].good, "%u", i);
        cr_expect_str_eq(why, rows[i].why);
        cr_expect_eq(gp_served_limit(), 100 * MIB + i);
        cr_expect_eq(gp_allocator_is_used(), i > 0);
        struct gp_served_context *served = gp_served_take(&handles[i], (int)i % 2, false);
        const struct gp_policy *policy = gp_cache_policy(gp_served_make_cache(served));
        cr_expect_str_eq(gp_allocator_in_use(), rows[i].policy);
        cr_expect_str_eq(policy->name, rows[i].policy);
        cr_expect_eq(policy->max_split_bytes, rows[i].split);
        cr_expect_eq(policy->granule_bytes, 512, "%u", i);
        cr_expect_eq(gp_cache_limit(gp_served_cache(served)), 100 * MIB + i);
    }
    cr_expect_not(gp_driver_stopped());
    gp_allocator_stop();
    cr_expect(gp_driver_stopped());
}

/* ---- gpuprof.h ------------------------------------------------------------------------------------------------------------ */

static void begin(void)
{
    char why[64];
    accounts();
    cr_assert(gp_allocator_start(&(struct gp_allocator_setup){.limit_bytes = 0}, why, sizeof(why)));
    errno = ERRNO;
}

static void *allocated(size_t bytes, int device, void *stream)
{
    void *pointer = NULL;
    cr_assert_eq(gpuprof_alloc(&pointer, bytes, device, stream), 0);
    expect_restored();
    return pointer;
}

static struct gp_cache *cache_of(int device)
{
    return gp_served_cache(gp_served_primary(device));
}

Test(allocator_start, requests_at_their_limits)
{
    void *pointer = &pointer;
    struct gp_grant grant;
    begin();
    cr_expect_eq(gpuprof_alloc(NULL, 100, 0, NULL), 1);
    cr_expect_eq(gpuprof_alloc(&pointer, 0, 0, NULL), 0);
    cr_expect_null(pointer);
    for (unsigned i = 0; i < 4; i++) {
        pointer = &pointer;
        cr_expect_eq(gpuprof_alloc(&pointer, 100, (const int[]){-1, 64, 1000, 63}[i], NULL), i == 3 ? 101 : 1);
        cr_expect_null(pointer);
        expect_restored();
    }
    pointer = &pointer;
    cr_expect_eq(gpuprof_alloc(&pointer, FAKEDRIVER_MEMORY + 1, 0, NULL), 2);
    cr_expect_null(pointer);
    cr_expect_eq(gpuprof_free(NULL), 0);
    cr_expect_eq(gpuprof_free(&pointer), 1);
    cr_expect_eq(gpuprof_record_stream(&pointer, NULL), 1);
    /* The per-thread stream stands for many, and the legacy stream is the default one. */
    for (uintptr_t stream = 0; stream < 4; stream++) {
        void *block = allocated(3 * MIB, 0, (void *)stream);
        cr_assert(gp_served_find((uintptr_t)block, &grant));
        cr_expect_eq(grant.stream, stream == 1 ? 0 : stream == 2 ? GP_STREAM_ANY : stream);
        cr_expect_eq(grant.requested_bytes, 3 * MIB);
        cr_expect_eq(gpuprof_record_stream(block, (void *)5), 0);
        cr_expect_eq(gpuprof_free(block), 0);
        cr_expect_eq(gpuprof_free(block), 1);
        expect_restored();
    }
    void *block = allocated(100, 1, NULL);
    cr_expect_eq(gp_served_find((uintptr_t)block, &grant), gp_served_primary(1));
    cr_expect_eq(gpuprof_free(block), 0);
    gp_driver_stop();
    cr_expect_eq(gpuprof_alloc(&pointer, 100, 0, NULL), 3);
    expect_restored();
}

/* Each function of the driver that makes the device's context fails. */
Test(allocator_start, a_context_that_cannot_be_had)
{
    static const char *const names[] = {"cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"};
    static char others[64];
    void *pointer = NULL;
    int64_t free = 5;
    begin();
    for (unsigned i = 0; i < 3; i++) {
        calllog.fails = names[i];
        calllog.code = 700 + i;
        cr_expect_eq(gpuprof_alloc(&pointer, 100, 0, NULL), (int)(700 + i));
        cr_expect_eq(gpuprof_set_memory_fraction(0.5, 0), (int)(700 + i));
        cr_expect_eq(gpuprof_set_memory_limit(5, 0), (int)(700 + i));
        cr_expect_eq(gpuprof_driver_calls(0), -1);
        cr_expect_eq(gpuprof_begin_pool(5, 0, NULL, 1), (int)(700 + i));
        cr_expect_eq(gpuprof_release_pool(5, 0), (int)(700 + i));
        cr_expect_eq(gpuprof_empty_cache(0), i < 2 ? (int)(700 + i) : 0);
        cr_expect_eq(gpuprof_mem_get_info(0, &free, NULL), -1);
        cr_expect_eq(free, 5);
        gpuprof_torch_set_memory_fraction(0.5, 0);
        gpuprof_torch_release_pool(0, (struct gpuprof_torch_pool){1, 0});
        gpuprof_torch_begin_allocate_to_pool(0, (struct gpuprof_torch_pool){1, 0}, NULL);
        cr_expect_null(gpuprof_torch_alloc(100, 0, NULL));
        expect_restored();
    }
    cr_expect_eq(gp_served_count(), 0);
    cr_expect_not(gp_route_any());
    calllog.fails = NULL;
    for (unsigned i = 0; i < 64; i++)
        cr_assert_not_null(gp_served_take(&others[i], 5, false));
    cr_expect_eq(gpuprof_alloc(&pointer, 100, 0, NULL), 2, "no row is left");
    expect_restored();
    gp_served_release(&gp_served_contexts[63]);
    cr_expect_eq(gpuprof_alloc(&pointer, 100, 0, NULL), 0);
    cr_expect_eq(gpuprof_free(pointer), 0);
}

Test(allocator_start, limits_are_shares_of_the_device)
{
    static const struct {
        double fraction;
        int result;
        uint64_t limit;
    } rows[] = {{0.5, 0, FAKEDRIVER_MEMORY / 2},
                {-0.0001, 1, FAKEDRIVER_MEMORY / 2},
                {1.0001, 1, FAKEDRIVER_MEMORY / 2},
                {NAN, 1, FAKEDRIVER_MEMORY / 2},
                {1, 0, FAKEDRIVER_MEMORY},
                {0.25, 0, FAKEDRIVER_MEMORY / 4},
                {0, 0, 0}};
    begin();
    for (unsigned torch = 0; torch < 2; torch++)
        for (unsigned i = 0; i < GP_COUNT(rows); i++) {
            if (torch)
                gpuprof_torch_set_memory_fraction(rows[i].fraction, 1);
            else
                cr_expect_eq(gpuprof_set_memory_fraction(rows[i].fraction, 1), rows[i].result);
            cr_expect_eq(gp_cache_limit(cache_of(1)), rows[i].limit, "%g", rows[i].fraction);
            expect_restored();
        }
    calllog.fails = "cuDeviceTotalMem_v2";
    calllog.code = 719;
    cr_expect_eq(gpuprof_set_memory_fraction(0.5, 1), 719);
    gp_driver_real.cuDeviceTotalMem_v2 = NULL;
    cr_expect_eq(gpuprof_set_memory_fraction(0.5, 1), GP_CU_NOT_SUPPORTED);
    cr_expect_eq(gpuprof_set_memory_limit(12345, 1), 0);
    cr_expect_eq(gp_cache_limit(cache_of(1)), 12345);
    expect_restored();
}

Test(allocator_start, caches_are_emptied_by_device)
{
    struct gp_cache_numbers numbers;
    begin();
    for (int device = 0; device < 2; device++)
        cr_expect_eq(gpuprof_free(allocated(30 * MIB, device, NULL)), 0);
    cr_expect_eq(gpuprof_empty_cache(-1), 1);
    cr_expect_eq(gpuprof_empty_cache(7), 101);
    cr_expect(fakedriver_held(0) >= 30 * MIB && fakedriver_held(1) >= 30 * MIB);
    gp_cache_numbers(cache_of(1), &numbers);
    cr_expect_eq(gpuprof_driver_calls(1), (int64_t)numbers.backend_calls);
    cr_expect_gt(numbers.backend_calls, 0);
    cr_expect_eq(gpuprof_driver_calls(64), -1);
    cr_expect_eq(gpuprof_empty_cache(1), 0);
    cr_expect(fakedriver_held(0) >= 30 * MIB && fakedriver_held(1) == 0);
    expect_restored();
    cr_expect_eq(gpuprof_free(allocated(30 * MIB, 1, NULL)), 0);
    gpuprof_torch_reset();
    cr_expect(fakedriver_held(0) == 0 && fakedriver_held(1) == 0);
    expect_restored();
}

Test(allocator_start, pools_begin_and_end)
{
    begin();
    cr_expect_eq(gpuprof_begin_pool(0, 0, NULL, 1), 1);
    cr_expect_eq(gpuprof_end_pool(5, 0), 1);
    cr_expect_eq(gpuprof_release_pool(5, 0), 1);
    cr_expect_eq(gpuprof_begin_pool(5, 0, (void *)7, 0), 0);
    cr_expect_eq(gp_route_pool(0, 7), 5);
    cr_expect_eq(gp_route_pool(0, 8), 0);
    cr_expect_not(gp_stream_fencing_begin(), "a capture is announced");
    cr_expect_eq(gpuprof_begin_pool(6, 0, (void *)7, 1), 0);
    cr_expect_eq(gp_route_pool(0, 8), 6);
    cr_expect_eq(gpuprof_end_pool(6, 1), 1);
    cr_expect_eq(gpuprof_end_pool(6, 0), 0);
    cr_expect_not(gp_stream_fencing_begin());
    cr_expect_eq(gpuprof_end_pool(5, 0), 0);
    cr_expect(gp_stream_fencing_begin());
    gp_stream_fencing_end();
    cr_expect_eq(gpuprof_release_pool(5, 0), 0);
    cr_expect_eq(gpuprof_release_pool(5, 0), 1);
    expect_restored();
    /* No more places: the pool is given up again, and no capture stays announced. */
    for (uint64_t i = 0; i < 64; i++)
        cr_assert_eq(gp_route_begin(&(struct gp_route){100 + i, 1, GP_ROUTE_STREAM, 999, NULL}), 0);
    cr_expect_eq(gpuprof_begin_pool(7, 0, NULL, 1), 2);
    cr_expect_eq(gpuprof_release_pool(7, 0), 1);
    cr_expect(gp_stream_fencing_begin());
    gp_stream_fencing_end();
    gpuprof_torch_begin_allocate_to_pool(0, (struct gpuprof_torch_pool){1, 0}, NULL);
    cr_expect(gp_stream_fencing_begin());
    gp_stream_fencing_end();
    expect_restored();
}

/* The calls that ask for the memory of a device, whether its context is current or not. */
Test(allocator_start, memory_of_a_device_is_asked_in_its_context)
{
    static const char *const names[] = {"cuInit",          "cuDeviceGet",         "cuCtxGetDevice",
                                        "cuMemGetInfo_v2", "cuCtxPushCurrent_v2", "cuDevicePrimaryCtxRetain"};
    int64_t free = 0, total = 0;
    void *ctx = NULL;
    begin();
    cr_assert(gp_driver_bind());
    calllog_clear();
    cr_expect_eq(gpuprof_mem_get_info(1, &free, &total), 0);
    EXPECT_CALLS("cuInit(0); cuDeviceGet(&, 1); cuCtxGetDevice(&); cuDevicePrimaryCtxRetain(&, 1); "
                 "cuCtxPushCurrent_v2(4112); cuMemGetInfo_v2(&, &); cuCtxPopCurrent_v2(&); "
                 "cuDevicePrimaryCtxRelease_v2(1)");
    cr_expect(free == (int64_t)FAKEDRIVER_MEMORY && total == (int64_t)FAKEDRIVER_MEMORY);
    cr_expect_eq(fakedriver_references(1), 0);
    expect_restored();
    for (unsigned i = 0; i < GP_COUNT(names); i++) {
        calllog.fails = names[i];
        calllog.code = 719;
        free = total = 5;
        cr_expect_eq(gpuprof_mem_get_info(1, &free, &total), i == 2 ? 0 : -1, "%s", names[i]);
        cr_expect(i == 2 || (free == 5 && total == 5));
        cr_expect_eq(fakedriver_references(1), 0);
        expect_restored();
    }
    calllog.fails = NULL;
    cr_assert_eq(gp_driver_real.cuDevicePrimaryCtxRetain(&ctx, 1), 0);
    cr_assert_eq(gp_driver_real.cuCtxPushCurrent_v2(ctx), 0);
    calllog_clear();
    cr_expect_eq(gpuprof_mem_get_info(1, NULL, &total), 0);
    EXPECT_CALLS("cuInit(0); cuDeviceGet(&, 1); cuCtxGetDevice(&); cuMemGetInfo_v2(&, &)");
    cr_expect_eq(gpuprof_mem_get_info(0, &free, NULL), 0);
    EXPECT_CALLS("cuInit(0); cuDeviceGet(&, 0); cuCtxGetDevice(&); cuDevicePrimaryCtxRetain(&, 0); "
                 "cuCtxPushCurrent_v2(4096); cuMemGetInfo_v2(&, &); cuCtxPopCurrent_v2(&); "
                 "cuDevicePrimaryCtxRelease_v2(0)");
    gp_driver_real.cuDevicePrimaryCtxRelease_v2 = NULL;
    cr_expect_eq(gpuprof_mem_get_info(0, &free, NULL), -1);
    gp_driver_stop();
    cr_expect_eq(gpuprof_mem_get_info(1, &free, &total), -1);
    cr_expect_eq(errno, ERRNO);
}

/* ---- PyTorch's functions ---------------------------------------------------------------------------------------------------- */

Test(allocator_start, pytorchs_functions_at_their_limits)
{
    struct gp_grant grant;
    size_t bytes = 5;
    begin();
    cr_expect_null(gpuprof_torch_alloc(0, 0, NULL));
    gpuprof_torch_init(2);
    gpuprof_torch_free(NULL, 0, 0, NULL);
    gpuprof_torch_free(&bytes, 0, 0, NULL);
    gpuprof_torch_record_stream(NULL, NULL);
    cr_expect_eq(gp_served_count(), 0);
    expect_restored();
    char *block = gpuprof_torch_alloc(3 * MIB, 1, (void *)7);
    cr_assert_eq(gp_served_find((uintptr_t)block, &grant), gp_served_primary(1));
    cr_expect_eq(grant.stream, 7);
    cr_expect_null(gpuprof_torch_base_alloc(&bytes, &bytes));
    cr_expect_eq(bytes, 0);
    char *base = gpuprof_torch_base_alloc(block + 3 * MIB - 1, &bytes);
    cr_expect(base && base <= block && base + bytes >= block + 3 * MIB);
    cr_expect_eq(gpuprof_torch_base_alloc(block, NULL), base);
    gpuprof_torch_free(block, 0, 0, NULL);
    cr_expect_not(gp_served_find((uintptr_t)block, &grant));
    expect_restored();
}

static uint64_t pool_of(struct gpuprof_torch_pool id)
{
    gpuprof_torch_begin_allocate_to_pool(0, id, NULL);
    uint64_t pool = gp_route_pool(0, 5);
    cr_expect_not(gp_stream_fencing_begin());
    gpuprof_torch_end_allocate_to_pool(1, id);
    cr_expect_eq(gp_route_pool(0, 5), pool, "another device's");
    gpuprof_torch_end_allocate_to_pool(0, id);
    gpuprof_torch_end_allocate_to_pool(0, id);
    cr_expect_eq(gp_route_pool(0, 5), 0);
    cr_expect(gp_stream_fencing_begin());
    gp_stream_fencing_end();
    expect_restored();
    return pool;
}

/* The two words of an id stand for different pools, none of which is one of gpuprof_begin_pool. */
Test(allocator_start, pytorchs_pools_are_kept_apart)
{
    static const struct gpuprof_torch_pool ids[] = {{0, 1}, {1, 0}, {0, 2}, {2, 0}, {1, 1}, {0, 3}};
    uint64_t pools[GP_COUNT(ids)];
    begin();
    for (unsigned i = 0; i < GP_COUNT(ids); i++) {
        pools[i] = pool_of(ids[i]);
        cr_expect(pools[i] >> 63);
        for (unsigned j = 0; j < i; j++)
            cr_expect_neq(pools[i], pools[j]);
        gpuprof_torch_release_pool(0, ids[i]);
        cr_expect_eq(gpuprof_release_pool(pools[i], 0), 1, "it was released");
    }
}
