/* SPDX-License-Identifier: MIT
 * test_allocator.c: the allocator's own tables, without a driver: mappings, routes to private pools, and the exclusion of
 * captures and fences.  Tests that need a driver are in tests/integration/test_shim.c. */
#include "allocator/driver.h"
#include "allocator/mapping.h"
#include "allocator/route.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "lib/lockfree.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* After each test, where Criterion counts a crash alone. */
static void expect_lock_given(void)
{
    if (!lock_is_as_new(&gp_served_lock))
        abort(); /* it was taken once more or less than given */
}

TestSuite(shim, .fini = expect_lock_given);

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

Test(shim, mappings_are_found_by_kind_and_key)
{
    cr_expect_eq(gp_mapping_find(GP_MAPPING_MAPPED, 4096), 0);
    cr_assert(gp_mapping_add(GP_MAPPING_MAPPED, 3, 4096, 10));
    cr_assert(gp_mapping_add(GP_MAPPING_RANGE, 3, 4096, 20));
    cr_expect_eq(gp_mapping_find(GP_MAPPING_MAPPED, 4096), 10);
    cr_expect_eq(gp_mapping_take(GP_MAPPING_RANGE, 4096), 20);
    cr_expect_eq(gp_mapping_take(GP_MAPPING_RANGE, 4096), 0);
    cr_expect_eq(gp_mapping_take(GP_MAPPING_MAPPED, 4096), 10);
}

Test(shim, mappings_of_a_context_survive_churn)
{
    struct gp_mapping mapping;
    uint64_t sum = 0;
    unsigned at = 0, count = 0;

    for (uint64_t i = 1; i <= 20000; i++)
        cr_assert(gp_mapping_add(GP_MAPPING_HANDLE, i % 2, i << 21, i));
    for (uint64_t i = 1; i <= 20000; i += 3)
        cr_assert_eq(gp_mapping_take(GP_MAPPING_HANDLE, i << 21), i);
    for (uint64_t i = 1; i <= 20000; i++)
        cr_assert_eq(gp_mapping_find(GP_MAPPING_HANDLE, i << 21), i % 3 == 1 ? 0 : i);
    while (gp_mapping_next(GP_MAPPING_HANDLE, 1, &at, &mapping)) {
        cr_assert_eq(mapping.bytes % 2, 1);
        sum += mapping.bytes;
        count++;
    }
    uint64_t want = 0, want_count = 0;
    for (uint64_t i = 1; i <= 20000; i += 2)
        if (i % 3 != 1) {
            want += i;
            want_count++;
        }
    cr_expect_eq(sum, want);
    cr_expect_eq(count, want_count);
}

/* ---- routes ------------------------------------------------------------------------------------------------------ */

Test(shim, a_route_takes_its_thread_or_stream_until_it_ends)
{
    cr_expect_eq(gp_route_pool(0, 5), 0);
    cr_assert_eq(gp_route_begin(&(struct gp_route){77, 0, GP_ROUTE_STREAM, 5, NULL}), 0);
    cr_expect_eq(gp_route_pool(0, 5), 77);
    cr_expect_eq(gp_route_pool(0, 6), 0);
    cr_expect_eq(gp_route_pool(1, 5), 0);
    cr_assert_eq(gp_route_begin(&(struct gp_route){78, 0, GP_ROUTE_THREAD, 0, NULL}), 0);
    cr_expect_eq(gp_route_pool(0, 5), 77, "the route that began first wins");
    cr_expect_eq(gp_route_pool(0, 6), 78);
    cr_expect_not(gp_route_end(77, 1));
    cr_expect(gp_route_end(77, 0));
    cr_expect_not(gp_route_end(77, 0));
    cr_expect_eq(gp_route_pool(0, 5), 78);
    cr_expect(gp_route_end(78, 0));
    cr_expect_eq(gp_route_pool(0, 5), 0);
}

static void *shim_ask(void *arg)
{
    *(uint64_t *)arg = gp_route_pool(0, 6);
    return NULL;
}

Test(shim, a_thread_route_is_not_for_others)
{
    uint64_t pool = 1;
    pthread_t thread;

    cr_assert_eq(gp_route_begin(&(struct gp_route){78, 0, GP_ROUTE_THREAD, 0, NULL}), 0);
    cr_assert_eq(pthread_create(&thread, NULL, shim_ask, &pool), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(pool, 0);
    cr_expect_eq(gp_route_pool(0, 6), 78);
}

static int shim_alive;

static bool shim_manage(void *to, const void *from, int operation)
{
    if (operation == 2)
        memcpy(to, from, 2 * sizeof(uint64_t));
    shim_alive += operation == 2 ? 1 : operation == 3 ? -1 : 0;
    return false;
}

static bool shim_match(const void *target, void **stream)
{
    uint64_t *calls = (uint64_t *)((uint64_t *)(uintptr_t)target)[1];
    ++*calls;
    return *(const uint64_t *)target == (uint64_t)(uintptr_t)*stream;
}

Test(shim, a_filter_is_copied_asked_and_destroyed)
{
    uint64_t calls = 0;
    struct gp_filter filter = {{9, (uint64_t)(uintptr_t)&calls}, shim_manage, shim_match};

    cr_assert(gp_route_filter_is_usable(&filter));
    cr_assert_eq(gp_route_begin(&(struct gp_route){5, 2, GP_ROUTE_FILTER, 0, &filter}), 0);
    filter = (struct gp_filter){{0}, NULL, NULL};
    cr_expect_eq(shim_alive, 1);
    cr_expect_eq(gp_route_pool(2, 9), 5);
    cr_expect_eq(gp_route_pool(2, 8), 0);
    cr_expect_eq(gp_route_pool(1, 9), 0);
    cr_expect_eq(calls, 2);
    cr_expect(gp_route_end(5, 2));
    cr_expect_eq(shim_alive, 0);
}

Test(shim, a_filter_without_functions_is_refused)
{
    struct gp_filter filter = {{0}, NULL, NULL};
    uint64_t data = 0;

    cr_expect_not(gp_route_filter_is_usable(NULL));
    cr_expect_not(gp_route_filter_is_usable(&filter));
    filter.manager = shim_manage;
    memcpy(&filter.invoker, &(uint64_t *){&data}, sizeof(filter.invoker));
    cr_expect_not(gp_route_filter_is_usable(&filter), "an address on the stack");
}

/* ---- fences and captures ----------------------------------------------------------------------------------------- */

Test(shim, nothing_is_recorded_while_a_capture_is_under_way)
{
    uint64_t fence = 0;
    void *stream = &fence;

    cr_assert(gp_stream_fencing_begin());
    gp_stream_fencing_end();
    gp_stream_capture_begin();
    cr_expect(gp_stream_capture_under_way());
    cr_expect_eq(gp_stream_fence_record(&gp_served_contexts[0], NULL, 0, &fence), GP_BACKEND_FORBIDDEN);
    gp_stream_capture_began(stream, false);
    cr_expect_not(gp_stream_capture_under_way());
    gp_stream_capture_begin();
    gp_stream_capture_began(stream, true);
    cr_expect_not(gp_stream_fencing_begin());
    gp_stream_capture_ended(&stream);
    cr_expect_not(gp_stream_fencing_begin(), "another stream's end changes nothing");
    gp_stream_capture_ended(stream);
    cr_expect(gp_stream_fencing_begin());
    gp_stream_fencing_end();
    gp_stream_capture_ended(stream);
    cr_expect(gp_stream_fencing_begin(), "an end is counted once");
    gp_stream_fencing_end();
}

#define SHIM_ROUNDS 20000

static uint32_t shim_capturing, shim_broken;

static void *shim_record(void *arg)
{
    (void)arg;
    for (int i = 0; i < SHIM_ROUNDS; i++)
        if (gp_stream_fencing_begin()) {
            if (__atomic_load_n(&shim_capturing, __ATOMIC_RELAXED))
                __atomic_store_n(&shim_broken, 1, __ATOMIC_RELAXED);
            gp_stream_fencing_end();
        }
    return NULL;
}

Test(shim, a_capture_keeps_fences_out)
{
    pthread_t threads[2];
    int stream;

    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, shim_record, NULL), 0);
    for (int i = 0; i < SHIM_ROUNDS / 10; i++) {
        gp_stream_capture_begin();
        __atomic_store_n(&shim_capturing, 1, __ATOMIC_RELAXED);
        gp_stream_capture_began(&stream, true);
        __atomic_store_n(&shim_capturing, 0, __ATOMIC_RELAXED);
        gp_stream_capture_ended(&stream);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(shim_broken, 0);
}

/* ---- fences without events --------------------------------------------------------------------------------------- */

static uint32_t shim_syncs, shim_sync_over;

/* The device works until the test says otherwise. */
static uint32_t shim_synchronize(void)
{
    __atomic_fetch_add(&shim_syncs, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&shim_sync_over, __ATOMIC_SEQ_CST))
        usleep(100);
    return 0;
}

static uint32_t shim_current(void **ctx)
{
    *ctx = &shim_syncs;
    return 0;
}

static struct gp_served_context *shim_untracked_context(void)
{
    gp_driver_real.cuCtxSynchronize = shim_synchronize;
    gp_driver_real.cuCtxGetCurrent = shim_current;
    struct gp_served_context *served = gp_served_take(&shim_syncs, 0, true);
    cr_assert_not_null(served);
    gp_stream_watch();
    gp_stream_add(served, &shim_sync_over, 0);
    gp_stream_untracked(0);
    return served;
}

static void *shim_wait(void *served)
{
    uint64_t fence = 0;
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), 0);
    cr_expect_neq(fence, 0);
    return NULL;
}

/* Neither waits for the device; without a bound, the test would hang. */
Test(shim, streams_and_captures_go_on_while_a_context_is_synchronised, .timeout = 60)
{
    struct gp_served_context *served = shim_untracked_context();
    pthread_t thread;
    int other;

    cr_assert_eq(pthread_create(&thread, NULL, shim_wait, served), 0);
    while (!__atomic_load_n(&shim_syncs, __ATOMIC_SEQ_CST))
        usleep(100);
    gp_stream_remove(&shim_sync_over);
    gp_stream_capture_begin();
    gp_stream_capture_began(&other, true);
    gp_stream_capture_ended(&other);
    __atomic_store_n(&shim_sync_over, 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    cr_expect_eq(shim_syncs, 1);
}

Test(shim, an_asynchronous_free_never_synchronises, .timeout = 60)
{
    struct gp_served_context *served = shim_untracked_context();
    uint64_t fence = 0;

    gp_thread.prompt = 1;
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), GP_BACKEND_FORBIDDEN);
    cr_expect_eq(shim_syncs, 0);
    gp_thread.prompt = 0;
    shim_sync_over = 1;
    cr_expect_eq(gp_stream_fence_record(served, NULL, 0, &fence), 0);
    cr_expect_eq(shim_syncs, 1);
}

/* ---- full tables ------------------------------------------------------------------------------------------------- */

Test(shim, routes_run_out_without_a_trace)
{
    uint64_t calls = 0;
    struct gp_filter filter = {{900, (uint64_t)(uintptr_t)&calls}, shim_manage, shim_match};
    struct gp_route last = {900, 0, GP_ROUTE_FILTER, 0, &filter};

    for (uint64_t i = 1; i <= 64; i++)
        cr_assert_eq(gp_route_begin(&(struct gp_route){i, 0, GP_ROUTE_STREAM, i * 16, NULL}), 0);
    cr_expect_eq(gp_route_begin(&last), -ENOSPC);
    cr_expect_eq(shim_alive, 0, "the copy of a filter that found no room is destroyed");
    cr_expect_eq(gp_route_begin(&(struct gp_route){901, 0, GP_ROUTE_STREAM, 901, NULL}), -ENOSPC);
    for (uint64_t i = 1; i <= 64; i++)
        cr_expect_eq(gp_route_pool(0, i * 16), i);
    cr_expect(gp_route_end(40, 0));
    cr_expect_eq(gp_route_begin(&last), 0);
    cr_expect_eq(gp_route_pool(0, 900), 900);
    cr_expect_eq(gp_route_pool(0, 40 * 16), 0);
    cr_expect_eq(shim_alive, 1);
    for (uint64_t i = 1; i <= 64; i++)
        cr_expect_eq(gp_route_end(i, 0), i != 40);
    cr_expect(gp_route_any());
    cr_expect(gp_route_end(900, 0));
    cr_expect_not(gp_route_any());
    cr_expect_eq(shim_alive, 0);
}

static bool shim_end_inside(const void *target, void **stream)
{
    (void)stream;
    cr_expect(gp_route_end(7, 1));
    cr_expect_eq(shim_alive, 1, "a filter lives while it is asked");
    cr_expect_eq(gp_route_begin(&(struct gp_route){8, 1, GP_ROUTE_STREAM, 3, NULL}), 0);
    return *(const uint64_t *)target == 5;
}

Test(shim, a_route_may_end_while_its_filter_is_asked)
{
    struct gp_filter filter = {{5, 0}, shim_manage, shim_end_inside};

    cr_assert_eq(gp_route_begin(&(struct gp_route){7, 1, GP_ROUTE_FILTER, 0, &filter}), 0);
    cr_expect_eq(gp_route_pool(1, 3), 7);
    cr_expect_eq(shim_alive, 0);
    cr_expect_eq(gp_route_pool(1, 3), 8);
    cr_expect(gp_route_end(8, 1));
    cr_expect_eq(gp_route_pool(1, 3), 0);
}

/* Of the captures that find no place nothing is kept, so that their ends are not missed. */
Test(shim, captures_run_out)
{
    static char streams[66];

    for (int i = 0; i < 66; i++) {
        gp_stream_capture_begin();
        gp_stream_capture_began(&streams[i], true);
    }
    cr_expect(gp_stream_capture_under_way());
    for (int i = 0; i < 66; i++) {
        cr_expect_eq(gp_stream_capture_under_way(), i < 64);
        cr_expect_eq(gp_stream_fencing_begin(), i >= 64);
        if (i >= 64)
            gp_stream_fencing_end();
        gp_stream_capture_ended(&streams[i]);
    }
}

static void *shim_end_capture(void *stream)
{
    gp_stream_capture_ended(stream);
    return NULL;
}

/* Two handles mean another stream on each thread. */
Test(shim, a_capture_of_a_threads_own_stream_ends_on_that_thread)
{
    for (uintptr_t stream = 2; stream <= 3; stream++) {
        pthread_t thread;
        gp_stream_capture_begin();
        gp_stream_capture_began((void *)stream, true);
        cr_assert_eq(pthread_create(&thread, NULL, shim_end_capture, (void *)stream), 0);
        pthread_join(thread, NULL);
        cr_expect_eq(gp_stream_capture_under_way(), stream == 2);
        gp_stream_capture_ended((void *)stream);
        cr_expect_not(gp_stream_capture_under_way());
    }
}

/* With hooks, captures are counted by what the hooks see alone. */
Test(shim, a_capture_is_announced_where_no_hook_sees_it)
{
    gp_stream_capture_announce(1);
    cr_expect_not(gp_stream_fencing_begin());
    gp_stream_capture_announce(-1);
    cr_expect(gp_stream_fencing_begin());
    gp_stream_fencing_end();
    gp_stream_watch();
    gp_stream_capture_announce(1);
    cr_expect(gp_stream_fencing_begin());
    gp_stream_fencing_end();
}

Test(shim, streams_are_found_by_their_context)
{
    struct gp_served_context *one, *two;
    static char handles[2050];
    unsigned at = 0, count = 0;
    void *stream;

    gp_driver_real.cuCtxGetCurrent = shim_current;
    one = gp_served_take(&handles[0], 3, false);
    two = gp_served_take(&handles[1], 4, true);
    cr_assert(one && two && one != two);
    cr_expect_eq(gp_served_of(&handles[1]), two);
    cr_expect_null(gp_served_of(&handles[2]));
    cr_expect_null(gp_served_primary(3), "not a primary context");
    cr_expect_eq(gp_served_primary(4), two);
    cr_expect(gp_stream_nameable(one, 4096), "it is not known which streams live");
    gp_stream_watch();
    cr_expect_not(gp_stream_nameable(one, 4096));
    cr_expect(gp_stream_nameable(one, 0) && gp_stream_nameable(one, 1));
    cr_expect_not(gp_stream_nameable(one, 2));
    for (unsigned i = 2; i < 2050; i++)
        gp_stream_add(i % 4 == 0 ? two : one, &handles[i], i % 2);
    cr_expect_eq(one->x_untracked, 0);
    for (unsigned i = 2; i < 2050; i++) {
        cr_expect(gp_stream_nameable(i % 4 == 0 ? two : one, (uintptr_t)&handles[i]));
        cr_expect_not(gp_stream_nameable(i % 4 == 0 ? one : two, (uintptr_t)&handles[i]));
    }
    while (gp_stream_next(one, &at, &stream)) {
        cr_expect_eq(((char *)stream - handles) % 2, 1, "a blocking stream");
        count++;
    }
    cr_expect_eq(count, 1024);
    at = 0;
    cr_expect_not(gp_stream_next(two, &at, &stream));
    gp_stream_add(two, &handles[0], 1);
    cr_expect_eq(two->x_untracked, 1, "one stream too many");
    gp_stream_remove(&handles[5]);
    cr_expect_not(gp_stream_nameable(one, (uintptr_t)&handles[5]));
    gp_stream_add(two, &handles[0], 1);
    cr_expect_eq(two->x_untracked, 1);
    cr_expect(gp_stream_nameable(two, (uintptr_t)&handles[0]));
    gp_stream_untracked(3);
    cr_expect(one->x_untracked == 1 && two->x_untracked == 1);
    gp_stream_untracked(-1);
    cr_expect(one->x_untracked == 2 && two->x_untracked == 2);
    gp_stream_fence_forget(two);
    cr_expect_not(gp_stream_nameable(two, (uintptr_t)&handles[4]));
    cr_expect(gp_stream_nameable(one, (uintptr_t)&handles[3]));
}

Test(shim, a_context_that_is_not_served_is_said)
{
    static char contexts[65];
    char path[] = "/tmp/gpuprof-test-contexts-XXXXXX", text[256] = "";
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && gp_log_open(GP_LOG_WARN, path) == 0);
    for (int i = 0; i < 64; i++)
        cr_expect_not_null(gp_served_add(&contexts[i], 0, false));
    cr_expect_eq(lseek(fd, 0, SEEK_END), 0, "nothing is said of those that are");
    cr_expect_null(gp_served_add(&contexts[64], 0, false));
    gp_log_close();
    cr_expect_gt(pread(fd, text, sizeof(text) - 1, 0), 0);
    cr_expect_not_null(strstr(text, "more than 64 contexts exist"), "%s", text);
    unlink(path);
    close(fd);
}

Test(shim, contexts_run_out)
{
    static char contexts[66];
    struct gp_served_context *rows[64];

    for (int i = 0; i < 64; i++) {
        rows[i] = gp_served_take(&contexts[i], i % 3, i < 3);
        cr_assert(rows[i]);
        cr_expect_eq(gp_served_count(), i + 1);
        rows[i]->x_access = UINT64_MAX;
    }
    cr_expect_null(gp_served_take(&contexts[64], 0, false));
    for (int i = 0; i < 64; i++)
        cr_expect_eq(gp_served_of(&contexts[i]), rows[i]);
    cr_expect_eq(gp_served_primary(2), rows[2]);
    gp_served_release(rows[2]);
    cr_expect_null(gp_served_primary(2));
    cr_expect_null(gp_served_of(&contexts[2]));
    cr_expect_eq(rows[63]->x_access, ~(1ull << gp_served_index(rows[2])));
    cr_expect_eq(gp_served_take(&contexts[65], 7, false), rows[2]);
    cr_expect(rows[2]->device == 7 && !rows[2]->primary && !rows[2]->x_access);
    cr_expect_eq(gp_served_count(), 64);
}
