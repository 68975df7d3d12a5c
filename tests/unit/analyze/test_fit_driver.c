/* SPDX-License-Identifier: MIT
 *
 * test_fit_driver.c: the driver that a replay gives to a cache: its addresses, its memory, its refusals, and
 * the pages of requests.
 */
#include <analyze/fit.h>
#include <analyze/flow.h>
#include <cache/cache.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "checked_memory.h"
#include "train_fixture.h"

#define PAGE GP_FIT_PAGE

TestSuite(fit_driver, .timeout = 60);

/* ---- addresses ----------------------------------------------------------------------------------------------------- */

Test(fit_driver, hands_out_addresses_one_after_the_other)
{
    static const uint64_t sizes[] = {PAGE, 3 * PAGE, PAGE + 1, 2 * PAGE - 1, 2 * PAGE, 1, 512, PAGE - 1};
    for (unsigned downward = 0; downward < 2; downward++) {
        struct gp_fit_device device = {.size = 64 * PAGE, .downward = downward};
        struct gp_backend backend;
        struct gp_fit_driver *driver = gp_fit_driver_new(&device, &backend);
        uint64_t next = downward ? 1ull << 47 : 1ull << 32, pages = 0;
        cr_assert_eq(backend.page_bytes, PAGE);
        for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            uint64_t bytes = (sizes[i] + PAGE - 1) / PAGE * PAGE, address = 0, free_bytes, total;
            next -= downward ? bytes : 0;
            cr_assert_eq(backend.allocate(backend.self, sizes[i], &address), 0);
            cr_assert_eq(address, next, "%u: %llx", i, (unsigned long long)address);
            next += downward ? 0 : bytes;
            pages += sizes[i] > MIB ? bytes / PAGE : i == 5; /* the small ones share a page */
            pages += sizes[i] == PAGE - 1 && sizes[i] <= MIB;
            cr_assert_eq(backend.memory(backend.self, &free_bytes, &total), 0);
            cr_assert(total == 64 * PAGE && free_bytes == (64 - pages) * PAGE, "%u: %llu pages", i,
                      (unsigned long long)((total - free_bytes) / PAGE));
        }
        gp_fit_driver_free(driver);
        gp_fit_device_fini(&device);
    }
}

/* The addresses that were freed last are used first, by requests of as many pages. */
Test(fit_driver, uses_addresses_again)
{
    struct gp_fit_device device = {.size = 64 * PAGE};
    struct gp_backend backend;
    struct gp_fit_driver *driver = gp_fit_driver_new(&device, &backend);
    uint64_t two[4], one, again;
    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(backend.allocate(backend.self, 2 * PAGE, &two[i]), 0);
    for (unsigned i = 0; i < 3; i++)
        cr_assert_eq(backend.free(backend.self, two[i]), 0);
    cr_assert_eq(device.used, 2 * PAGE);
    cr_assert_eq(backend.allocate(backend.self, PAGE, &one), 0);
    cr_assert_eq(one, two[3] + 2 * PAGE, "another size has other addresses");
    for (unsigned i = 3; i-- > 0;) {
        cr_assert_eq(backend.allocate(backend.self, 2 * PAGE - i, &again), 0);
        cr_assert_eq(again, two[i]);
    }
    cr_assert_eq(backend.allocate(backend.self, 2 * PAGE, &again), 0);
    cr_assert_eq(again, one + PAGE);
    cr_assert_eq(device.used, 11 * PAGE);
    gp_fit_driver_free(driver);
    gp_fit_device_fini(&device);
}

/* Reservations of addresses take no memory, and each kind of end frees what its start took. */
Test(fit_driver, reserves_and_refuses)
{
    struct gp_fit_device device = {.size = 4 * PAGE};
    struct gp_backend backend;
    struct gp_fit_driver *driver = gp_fit_driver_new(&device, &backend);
    uint64_t range, handle, more = 77, fence = 0;
    cr_assert_eq(backend.reserve(backend.self, 1000 * PAGE, &range), 0);
    cr_assert_eq(device.used, 0);
    cr_assert_eq(backend.create(backend.self, 3 * PAGE, &handle), 0);
    cr_assert(handle == range + 1000 * PAGE && device.used == 3 * PAGE);
    cr_assert_eq(backend.map(backend.self, range, 3 * PAGE, &handle, NULL, 1), 0);
    cr_assert_eq(backend.allocate(backend.self, PAGE + 1, &more), GP_BACKEND_OOM);
    cr_assert(more == 77 && device.used == 3 * PAGE && device.peak == 3 * PAGE);
    cr_assert_eq(backend.allocate(backend.self, PAGE, &more), 0, "what is left is enough");
    cr_assert_eq(backend.free(backend.self, more), 0);
    cr_assert_eq(backend.free(backend.self, more), GP_BACKEND_INVALID, "it is free already");
    cr_assert_eq(backend.free(backend.self, 4711), GP_BACKEND_INVALID);
    cr_assert_eq(backend.unreserve(backend.self, 4711, PAGE), GP_BACKEND_INVALID);
    cr_assert_eq(backend.unmap(backend.self, range, 3 * PAGE), 0);
    cr_assert_eq(backend.destroy(backend.self, handle), 0);
    cr_assert_eq(device.used, 0);
    cr_assert_eq(backend.unreserve(backend.self, range, 1000 * PAGE), 0);
    cr_assert_eq(backend.unreserve(backend.self, range, 1000 * PAGE), GP_BACKEND_INVALID);
    cr_assert_eq(device.used, 0);
    cr_assert(device.peak == 4 * PAGE);
    cr_assert(backend.record(backend.self, NULL, 0, &fence) == 0 && fence);
    cr_assert(backend.query(backend.self, fence) == 0 && backend.wait(backend.self, fence) == 0);
    gp_fit_driver_free(driver);
    gp_fit_driver_free(NULL);
    gp_fit_device_fini(&device);
}

/* One behind the other, each at the first place with room. */
Test(fit_driver, small_requests_share_a_page)
{
    static const unsigned steps[] = {1, 63, 64, 65, 127, 129, 700, 2047, 900}; /* of 512 bytes: all that a page has */
    struct gp_fit_device device = {.size = PAGE};
    uint64_t place, at = 0;
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); at += steps[i++]) {
        cr_assert(gp_fit_device_take(&device, steps[i] * 512ull - i, &place));
        cr_expect_eq(place, at, "%u", i);
    }
    cr_expect(!gp_fit_device_take(&device, 1, &place), "it is full");
    at = 0;
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); at += steps[i++]) {
        gp_fit_device_give(&device, steps[i] * 512ull - i, at);
        cr_expect(!gp_fit_device_take(&device, (steps[i] + 1) * 512ull, &place), "%u", i);
        cr_assert(gp_fit_device_take(&device, steps[i] * 512ull, &place));
        cr_expect_eq(place, at, "%u", i);
    }
    cr_expect(device.used == PAGE && device.peak == PAGE);
    gp_fit_device_fini(&device);
}

/* From 1 MiB on a request has pages of its own; one of nothing has none. */
Test(fit_driver, large_requests_have_pages_of_their_own)
{
    static const struct {
        uint64_t bytes, used;
        bool whole;
    } cases[] = {{0, 0, true},       {1, PAGE, false},           {MIB - 1, PAGE, false},
                 {MIB, PAGE, false}, {MIB + 1, PAGE, true},      {PAGE - 1, PAGE, true},
                 {PAGE, PAGE, true}, {PAGE + 1, 2 * PAGE, true}, {4 * PAGE, 4 * PAGE, true}};
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gp_fit_device device = {.size = 4 * PAGE};
        uint64_t place = 4711, other;
        cr_assert(gp_fit_device_take(&device, cases[i].bytes, &place));
        cr_expect_eq(device.used, cases[i].used, "%u", i);
        cr_expect_eq(place == GP_FIT_WHOLE, cases[i].whole, "%u", i);
        cr_expect_eq(gp_fit_device_take(&device, 4 * PAGE - cases[i].used + 1, &other), false);
        cr_expect_eq(device.used, cases[i].used, "what was refused counts");
        gp_fit_device_give(&device, cases[i].bytes, place);
        cr_expect(device.used == 0 && device.peak == cases[i].used);
        gp_fit_device_fini(&device);
    }
}

/* ---- replays ------------------------------------------------------------------------------------------------------- */

/* A request of one page each, all of which stay. */
static struct gp_fit_trace *pages_taken(const struct gp_recording *recording, size_t count)
{
    struct gp_fit_trace *trace = calloc(1, sizeof(*trace));
    trace->recording = recording;
    trace->ops = calloc(count + 1, sizeof(*trace->ops));
    trace->count = trace->slots = (uint32_t)count;
    trace->load_bytes = count * PAGE;
    for (size_t i = 0; i < count; i++)
        trace->ops[i] =
            (struct gp_fit_op){.bytes = PAGE, .kind = GP_FIT_TAKE, .slot = (uint32_t)i, .event = (uint32_t)i};
    return trace;
}

/* Replays look at each other after 4096 operations each. */
Test(fit_driver, replays_of_any_length_end_where_memory_does)
{
    static const size_t counts[] = {0, 1, 4095, 4096, 4097, 8191, 8192, 8193};
    struct gp_recording *recording = recmake_done(recmake_new(GIB));
    const struct gp_fit_setup off = {0};
    for (unsigned c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        struct gp_fit_trace *trace = pages_taken(recording, counts[c]);
        struct gp_fit_sizes fit;
        cr_assert_eq(gp_fit_find(trace, &off, &fit), 0);
        cr_assert(fit.enough_bytes == counts[c] * PAGE && fit.smallest_bytes == fit.enough_bytes && fit.replays == 1);
        cr_assert(fit.step_bytes == PAGE && !fit.spare_bytes);
        cr_assert_eq(fit.fails_bytes, counts[c] > 1 ? (counts[c] - 1) * PAGE : 0);
        for (unsigned k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
            for (unsigned less = 0; less < 2; less++) {
                size_t pages = counts[k] < counts[c] ? counts[k] : counts[c];
                size_t right = less && pages && pages == counts[k] ? pages - 1 : pages;
                struct gp_fit_end end;
                bool fits;
                cr_assert_eq(gp_fit_play(trace, &off, counts[k] * PAGE - (counts[k] ? less : 0), &end), 0);
                cr_assert(end.failed == right && end.used == right * PAGE && end.peak == right * PAGE,
                          "%zu operations on %zu pages: %zu, not %zu", counts[c], counts[k], end.failed, right);
                uint64_t peak;
                cr_assert_eq(gp_fit_fits(trace, &off, counts[k] * PAGE - (counts[k] ? less : 0), &fits, &peak, &fit),
                             0);
                cr_assert(fits == (right == counts[c]) && peak == right * PAGE);
            }
        cr_assert_eq(fit.replays, 17);
        gp_fit_trace_free(trace);
    }
    gp_recording_free(recording);
}

/* ---- pools --------------------------------------------------------------------------------------------------------- */

/* A chunk is 32 MiB, or what the request needs where that is more, or where there is no room for a chunk. */
Test(fit_driver, a_pool_takes_chunks)
{
    struct gp_fit_device device = {.size = 50 * PAGE};
    struct gp_fit_pool *pool = gp_fit_pool_new(&device);
    uint32_t small, rest, large, last, none;
    uint64_t place;
    cr_expect(gp_fit_pool_take(pool, 1, &small) && device.used == 16 * PAGE);
    cr_expect(gp_fit_pool_take(pool, 16 * PAGE - 512, &rest) && device.used == 16 * PAGE, "the rest of the chunk");
    cr_expect(gp_fit_pool_take(pool, 20 * PAGE - 1, &large) && device.used == 36 * PAGE);
    cr_expect(gp_fit_pool_take(pool, PAGE + 1, &last) && device.used == 38 * PAGE, "no room for a chunk");
    cr_expect(!gp_fit_pool_take(pool, 13 * PAGE, &none) && device.used == 38 * PAGE);
    cr_expect_eq(gp_fit_pool_idle(pool), 0);
    /* A piece is no chunk; the driver gets whole ones back when its own memory is short. */
    gp_fit_pool_give(pool, rest);
    gp_fit_pool_give(pool, large);
    cr_expect(device.used == 38 * PAGE && gp_fit_pool_idle(pool) == 36 * PAGE);
    cr_expect(gp_fit_device_take(&device, 13 * PAGE, &place) && device.used == 31 * PAGE);
    cr_expect(!gp_fit_device_take(&device, 20 * PAGE, &place));
    gp_fit_pool_free(pool);
    gp_fit_device_fini(&device);
}

/* Idle neighbours serve a request together if none of them can, and a chunk that is idle goes when work is waited for. */
Test(fit_driver, a_pool_joins_what_is_idle)
{
    struct gp_fit_device device = {.size = 64 * PAGE};
    struct gp_fit_pool *pool = gp_fit_pool_new(&device);
    uint32_t pieces[16], whole;
    for (unsigned i = 0; i < 16; i++)
        cr_assert(gp_fit_pool_take(pool, PAGE, &pieces[i]));
    cr_expect_eq(device.used, 16 * PAGE);
    for (unsigned i = 1; i < 16; i++)
        gp_fit_pool_give(pool, pieces[i]);
    cr_expect(gp_fit_pool_take(pool, 15 * PAGE, &whole) && device.used == 16 * PAGE);
    gp_fit_pool_give(pool, whole);
    gp_fit_pool_settle(pool);
    cr_expect_eq(device.used, 16 * PAGE, "one page of it is in use");
    gp_fit_pool_give(pool, pieces[0]);
    cr_expect_eq(device.used, 16 * PAGE);
    gp_fit_pool_settle(pool);
    cr_expect_eq(device.used, 0);
    cr_expect(gp_fit_pool_take(pool, 0, &whole) && device.used == 0);
    gp_fit_pool_give(pool, whole);
    gp_fit_pool_free(pool);
    gp_fit_device_fini(&device);
}

/* Whether a pool keeps what is idle while the program waits is recorded: then its two chunks cannot become one. */
Test(fit_driver, a_pool_that_keeps_needs_more)
{
    for (unsigned keeps = 0; keeps < 2; keeps++) {
        struct recmake *make = recmake_new(80 * GIB);
        recmake_at(make, 1001 * MS);
        recmake_alloc(make, 0, GP_KIND_POOL, GIB, 100 * MIB, 0);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 2 * GIB, 4 * MIB, 0);
        recmake_at(make, 1002 * MS);
        recmake_free(make, 0, GP_KIND_POOL, GIB);
        recmake_free(make, 0, GP_KIND_LINEAR, 2 * GIB);
        recmake_at(make, 1003 * MS);
        recmake_alloc(make, 0, GP_KIND_POOL, GIB, 200 * MIB, 0);
        struct gp_recording *recording = recmake_done(make);
        recording->devices[0].last.flags |= keeps ? GP_DEVICE_KEEPS : 0;
        struct gp_flow *flow = gp_flow_new(recording);
        const struct gp_fit_question question = {.gpu_bytes = GIB, .tenants = 1};
        struct gp_fit_result is;
        cr_assert_eq(gp_fit_judge(flow, 0, &question, &is), 0);
        cr_expect_eq(is.rows[0].smallest_bytes, 200 * MIB, "short of memory, it gives back");
        cr_expect_eq(is.rows[0].peak_bytes, (keeps ? 300 : 200) * MIB);
        gp_fit_result_fini(&is);
        gp_flow_free(flow);
        gp_recording_free(recording);
    }
}

/* What NVML reports beyond the reserved bytes, at most; 256 MiB without a report. */
Test(fit_driver, contexts_of_samples)
{
    static const struct {
        int64_t process, reserved;
        uint32_t device;
    } samples[] = {{-1, 5, 0}, {5, -1, 0}, {900, 0, 1}, {7, 7, 0}, {8, 7, 0}, {11, 7, 0}, {10, 7, 0}, {0, 100, 0}};
    static const uint64_t most[] = {0, 0, 0, 0, 1, 4, 4, 4};
    for (unsigned count = 0; count <= 8; count++) {
        struct recmake *make = recmake_new(GIB);
        recmake_device(make, 1, GIB);
        for (unsigned i = 0; i < count; i++)
            recmake_sample(make, &(struct gp_rec_sample){.time_ns = 1000 * MS + i,
                                                         .device = samples[i].device,
                                                         .process_bytes = samples[i].process,
                                                         .reserved_bytes = samples[i].reserved});
        struct gp_recording *recording = recmake_done(make);
        uint64_t bytes = 4711;
        enum gp_fit_context context = gp_fit_context_find(recording, 0, 0, 0, &bytes);
        cr_expect_eq(context, count < 4 ? GP_FIT_ASSUMED : GP_FIT_MEASURED, "%u samples", count);
        cr_expect_eq(bytes, count < 4 ? 256ull << 20 : most[count - 1], "%u samples: %llu", count,
                     (unsigned long long)bytes);
        cr_expect_eq(gp_fit_context_find(recording, 1, 0, 0, &bytes), count < 3 ? GP_FIT_ASSUMED : GP_FIT_MEASURED);
        cr_expect_eq(bytes, count < 3 ? 256ull << 20 : 900);
        gp_recording_free(recording);
    }
}

/* What is known of the recorded GPU and of the one that is asked about decides how the context is estimated. */
Test(fit_driver, contexts_of_gpus)
{
    enum { UNKNOWN = 0, H200 = 132 * 2048, L40S = 142 * 1536, T4 = 40 * 1024, ODD = 57 * 1536 };
    static const struct {
        uint32_t own, other;
        int64_t measured; /* MiB; 0: not */
        enum gp_fit_context how;
        uint64_t mib;
    } cases[] = {
        {UNKNOWN, UNKNOWN, 0, GP_FIT_ASSUMED, 256},
        {H200, UNKNOWN, 0, GP_FIT_ESTIMATED, 528},
        {H200, L40S, 0, GP_FIT_ESTIMATED, 426},
        {UNKNOWN, T4, 0, GP_FIT_ESTIMATED, 80},
        {UNKNOWN, ODD, 0, GP_FIT_ESTIMATED, 172}, /* whole pages */
        {UNKNOWN, UNKNOWN, 518, GP_FIT_MEASURED, 518},
        {H200, UNKNOWN, 518, GP_FIT_MEASURED, 518},
        {H200, H200, 518, GP_FIT_MEASURED, 518},
        {H200, L40S, 618, GP_FIT_SCALED, 516},
        {L40S, H200, 618, GP_FIT_SCALED, 720},
        {H200, T4, 500, GP_FIT_ESTIMATED, 80}, /* less was measured than the estimate takes away */
        {UNKNOWN, H200, 618, GP_FIT_MEASURED, 618},
        {UNKNOWN, H200, 300, GP_FIT_ESTIMATED, 528},
    };
    for (unsigned i = 0; i < GP_COUNT(cases); i++) {
        struct recmake *make = recmake_new(GIB);
        if (cases[i].measured)
            recmake_sample(make, &(struct gp_rec_sample){.time_ns = 1000 * MS,
                                                         .process_bytes = (cases[i].measured + 64) * (int64_t)MIB,
                                                         .reserved_bytes = 64 * MIB});
        struct gp_recording *recording = recmake_done(make);
        recording->devices[0].last.flags = GP_DEVICE_PRESENT | cases[i].own / GP_DEVICE_THREADS_UNIT
                                                                   << GP_DEVICE_THREADS_SHIFT;
        uint64_t bytes = 4711;
        cr_expect_eq(gp_fit_context_find(recording, 0, cases[i].other, 0, &bytes), cases[i].how, "case %u", i);
        cr_expect_eq(bytes, cases[i].mib * MIB, "case %u: %llu", i, (unsigned long long)bytes);
        gp_recording_free(recording);
    }
}

/* On a GPU of which only the size is known it is at most an eighth, and kernels make it larger by a sixth. */
Test(fit_driver, contexts_of_sizes)
{
    const uint64_t bare = 528 * MIB, kernels = (528 + 88) * MIB;
    cr_expect_eq(gp_fit_context_with(bare, 0), bare);
    cr_expect_eq(gp_fit_context_with(bare, GP_FIT_THREAD_STACK), kernels);
    cr_expect_eq(gp_fit_context_in(bare, 80 * GIB), bare);
    cr_expect_eq(gp_fit_context_in(bare, 100 * MIB), 12 * MIB);
    cr_expect_eq(gp_fit_context_device(0, bare, 1, 0, 0), 0);
    cr_expect_eq(gp_fit_context_device(8 * GIB, bare, 1, 1, GP_FIT_THREAD_STACK), 8 * GIB + bare + kernels);
    cr_expect_eq(gp_fit_context_device(100 * MIB, bare, 9, 0, 0), 100 * MIB + 9 * bare); /* nine eighths are too much */
    for (uint64_t bytes = PAGE; bytes < 6 * GIB; bytes += 34 * MIB)
        for (unsigned with = 0; with < 3; with++) {
            const uint32_t stack = with == 2 ? 4096 : with * GP_FIT_THREAD_STACK;
            uint64_t size = gp_fit_context_device(bytes, bare, !with, with != 0, stack), less = size - PAGE;
            cr_expect_leq(bytes + gp_fit_context_with(gp_fit_context_in(bare, size), stack), size);
            cr_expect_gt(bytes + gp_fit_context_with(gp_fit_context_in(bare, less), stack), less);
        }
}

/* Of each thread that the GPU can hold, what a kernel's stack has beyond 1 KiB, if that is more than the sixth. */
Test(fit_driver, contexts_with_stacks)
{
    const uint64_t bare = 528 * MIB; /* an H100: 132 multiprocessors with 2048 threads */
    cr_expect_eq(gp_fit_context_with(bare, 256), bare + 88 * MIB);
    cr_expect_eq(gp_fit_context_with(bare, 1365), bare + 88 * MIB);
    cr_expect_eq(gp_fit_context_with(bare, 1366), bare + 90 * MIB);
    cr_expect_eq(gp_fit_context_with(bare, 2048), 2 * bare - bare / 2);
    cr_expect_eq(gp_fit_context_with(bare, 9 * 1024), 5 * bare);
}

/* ---- judgements ---------------------------------------------------------------------------------------------------- */

/* Two blocks of two pages each, the second one of which stays, then one of five pages: seven are the most. */
static struct gp_recording *three_blocks(void)
{
    struct recmake *make = recmake_new(GIB);
    for (unsigned i = 0; i < 2; i++) {
        recmake_at(make, (1010 + i) * MS);
        recmake_alloc(make, 0, GP_KIND_LINEAR, GIB + i * 64 * MIB, 3 * MIB, 0);
    }
    recmake_at(make, 1020 * MS);
    recmake_free(make, 0, GP_KIND_LINEAR, GIB);
    recmake_event(make, &(struct gp_rec_event){.time_ns = 1020 * MS, .type = GP_EVENT_OOM, .bytes = 10 * MIB});
    recmake_event(make, &(struct gp_rec_event){.time_ns = 1020 * MS, .type = GP_EVENT_OOM, .bytes = GIB, .device = 1});
    recmake_at(make, 1030 * MS);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 2 * GIB, 10 * MIB, 0);
    recmake_device(make, 1, GIB);
    return recmake_done(make);
}

/* A size is enough if the share of each program has room for its context and for seven pages. */
Test(fit_driver, judges_around_the_size_that_is_enough)
{
    struct gp_recording *recording = three_blocks();
    struct gp_flow *flow = gp_flow_new(recording);
    for (uint32_t tenants = 1; tenants <= 3; tenants++)
        for (uint64_t context = 0; context < 2 * PAGE; context += 700000)
            for (int by = -1; by <= 1; by++) {
                uint64_t enough = (7 * PAGE + context) * tenants;
                const struct gp_fit_question question = {.gpu_bytes = enough + (uint64_t)(by * (int)tenants),
                                                         .tenants = tenants,
                                                         .context_bytes = (int64_t)context,
                                                         .allocator = "off"};
                struct gp_fit_result is;
                cr_assert_eq(gp_fit_judge(flow, 0, &question, &is), 0);
                cr_assert_eq(gp_fit_judge_held(flow, &is), 0);
                cr_assert(is.count == 1 && is.retried_requests == 1 && !is.refused_requests &&
                          is.context == GP_FIT_GIVEN);
                cr_assert(is.requested_bytes == 13 * MIB && is.requests == GP_FIT_OF_DRIVER && !is.unexplained_bytes);
                cr_assert_eq(is.rows[0].fits, by >= 0, "%u tenants, %llu bytes", tenants, (unsigned long long)context);
                cr_assert(is.rows[0].smallest_bytes == enough && is.rows[0].peak_bytes == enough);
                cr_assert(is.rows[0].step_bytes == PAGE * tenants && is.rows[0].replays == 1);
                if (by >= 0) {
                    cr_assert(is.held->bytes == 13 * MIB && is.event == GP_REC_NONE && !is.asked_bytes);
                } else {
                    cr_assert(is.asked_bytes == 10 * MIB && is.free_bytes == 5 * PAGE - 1 && is.fails_ns == 1030 * MS);
                    cr_assert(is.held->bytes == 3 * MIB && recording->events[is.event].bytes == 10 * MIB);
                }
                gp_fit_result_fini(&is);
            }
    /* Not even the context fits: nothing was asked for. */
    struct gp_fit_result is;
    const struct gp_fit_question small = {.gpu_bytes = 1000, .tenants = 1, .context_bytes = 1000, .allocator = "off"};
    cr_assert_eq(gp_fit_judge(flow, 0, &small, &is), 0);
    cr_assert(!is.rows[0].fits && !is.asked_bytes && !is.free_bytes && is.event == GP_REC_NONE);
    cr_assert(is.fails_ns == recording->begin_ns);
    gp_fit_result_fini(&is);
    gp_flow_free(flow);
    gp_recording_free(recording);
}
