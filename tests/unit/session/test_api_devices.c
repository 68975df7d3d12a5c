/* SPDX-License-Identifier: MIT
 *
 * test_api_devices.c: the functions of gpuprof.h with several devices and the host, each with numbers of its own: what each
 * function reads, what each reset and scope changes and leaves, which pieces a walk gives, and that none of them changes
 * errno or what is behind the caller's arrays.
 */
#include <account/feed/block.h>
#include <account/feed/feed.h>
#include <base/thread.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST ((int)GP_WIRE_HOST)

static const int gpus[] = {0, 2, 63};
#define GPUS 3

TestSuite(api_devices, .timeout = 60);

static void move(enum gp_wire_kind kind, int device, uint64_t address, int64_t bytes)
{
    enum gp_space space = device == HOST ? GP_SPACE_HOST : GP_SPACE_DEVICE;
    cr_assert(gp_thread_enter());
    if (bytes > 0)
        gp_feed_alloc(&(struct gp_allocation){.space = space,
                                              .kind = device == HOST ? GP_KIND_PINNED : kind,
                                              .device = device,
                                              .address = address,
                                              .bytes = (uint64_t)bytes,
                                              .requested_bytes = (uint64_t)bytes - 1,
                                              .stream = 9});
    else
        gp_feed_free_end(gp_feed_free_begin(space, address), true, 0);
    gp_thread_leave();
}

/* Of the device with number n in the list (the host: GPUS): allocated and reserved bytes, now and at the peak. */
static int64_t allocated(int n)
{
    return 100 * (n + 1) + 7;
}
static int64_t reserved(int n)
{
    return allocated(n) - (n == GPUS ? 7 : 0); /* the host has no pool */
}
static int64_t allocated_peak(int n)
{
    return allocated(n) + 10000 * (n + 1);
}
static int64_t reserved_peak(int n)
{
    return reserved(n) + 10000 * (n + 1);
}

static int device_of(int n)
{
    return n == GPUS ? HOST : gpus[n];
}

static void spike(int n)
{
    move(GP_KIND_LINEAR, device_of(n), 0x1000, 10000 * (n + 1));
    move(GP_KIND_LINEAR, device_of(n), 0x1000, 0);
}

/* A block that stays, one of a pool, whose reserve is at least that until a poll, and one that came and went. */
static void start(void)
{
    setenv("GPUPROF_SOURCE", "hooks", 1);
    cr_assert_eq(InitializeInjection(), 1);
    for (int n = 0; n <= GPUS; n++) {
        uint64_t at = 0x100000ull * (uint64_t)(n + 1);
        move(GP_KIND_LINEAR, device_of(n), at, 100 * (n + 1));
        if (n < GPUS) {
            cr_assert(gp_thread_enter());
            gp_feed_alloc(&(struct gp_allocation){.space = GP_SPACE_DEVICE,
                                                  .kind = GP_KIND_POOL,
                                                  .device = device_of(n),
                                                  .address = at + 0x1000,
                                                  .bytes = 7,
                                                  .requested_bytes = 7});
            gp_thread_leave();
        }
        spike(n);
    }
}

static int64_t stat_of(int device, const char *name)
{
    int64_t value = -77;
    cr_expect_eq(gpuprof_memory_stat(device, name, &value), 0, "%s", name);
    return value;
}

static int64_t host_stat(const char *name)
{
    int64_t values[GPUPROF_HOST_STATS];
    cr_assert_eq(gpuprof_host_memory_stats(values, GPUPROF_HOST_STATS), 0);
    for (unsigned i = 0; i < GPUPROF_HOST_STATS; i++)
        if (strcmp(gpuprof_host_stat_name(i), name) == 0)
            return values[i];
    cr_expect(false, "%s", name);
    return -1;
}

/* The peaks of allocated and reserved memory of each device; low: they were reset. */
static void expect_peaks(const bool low_allocated[GPUS], const bool low_reserved[GPUS], const char *what)
{
    for (int n = 0; n < GPUS; n++) {
        cr_expect_eq(gpuprof_memory_allocated(gpus[n]), allocated(n), "%s: %d", what, n);
        cr_expect_eq(gpuprof_memory_reserved(gpus[n]), reserved(n), "%s: %d", what, n);
        cr_expect_eq(gpuprof_max_memory_allocated(gpus[n]), low_allocated[n] ? allocated(n) : allocated_peak(n),
                     "%s: %d", what, n);
        cr_expect_eq(gpuprof_max_memory_reserved(gpus[n]), low_reserved[n] ? reserved(n) : reserved_peak(n), "%s: %d",
                     what, n);
    }
    cr_expect_eq(host_stat("active_bytes.peak"), 10000 * (GPUS + 1) + 100 * (GPUS + 1), "%s: the host", what);
}

Test(api_devices, each_device_has_its_own_numbers)
{
    bool low_allocated[GPUS] = {false}, low_reserved[GPUS] = {false};
    start();
    expect_peaks(low_allocated, low_reserved, "at the start");
    cr_expect_eq(gpuprof_device_count(), 64);
    cr_expect_eq(gpuprof_memory_allocated(1), -1, "it was not used");
    cr_expect_eq(gpuprof_max_memory_reserved(3), -1);
    for (int n = 0; n < GPUS; n++) {
        cr_expect_eq(stat_of(gpus[n], "allocated_bytes.all.current"), allocated(n));
        cr_expect_eq(stat_of(gpus[n], "reserved_bytes.all.peak"), reserved_peak(n));
        cr_expect_eq(stat_of(gpus[n], "requested_bytes.all.current"), allocated(n) - 1);
        cr_expect_eq(stat_of(gpus[n], "allocation.all.allocated"), 3);
        cr_expect_eq(stat_of(gpus[n], "segment.all.freed"), 1);
        cr_expect_eq(stat_of(gpus[n], "num_device_alloc"), 2);
        cr_expect_eq(stat_of(gpus[n], "num_device_free"), 1);
    }
    static const struct {
        const char *name;
        int64_t value;
    } host[GPUPROF_HOST_STATS] = {{"active_bytes.allocated", 40400},
                                  {"active_bytes.current", 400},
                                  {"active_bytes.freed", 40000},
                                  {"active_bytes.peak", 40400},
                                  {"active_requests.allocated", 2},
                                  {"active_requests.current", 1},
                                  {"active_requests.freed", 1},
                                  {"active_requests.peak", 2},
                                  {"allocated_bytes.allocated", 40400},
                                  {"allocated_bytes.current", 400},
                                  {"allocated_bytes.freed", 40000},
                                  {"allocated_bytes.peak", 40400},
                                  {"allocations.allocated", 2},
                                  {"allocations.current", 1},
                                  {"allocations.freed", 1},
                                  {"allocations.peak", 2},
                                  {"num_host_alloc", 2},
                                  {"num_host_free", 1}};
    for (unsigned i = 0; i < GPUPROF_HOST_STATS; i++) {
        cr_expect_str_eq(gpuprof_host_stat_name(i), host[i].name);
        cr_expect_eq(host_stat(host[i].name), host[i].value, "%s", host[i].name);
    }
    cr_expect_null(gpuprof_host_stat_name(GPUPROF_HOST_STATS));
    cr_expect_not_null(gpuprof_stat_name(GPUPROF_STATS - 1));
    cr_expect_null(gpuprof_stat_name(GPUPROF_STATS));
}

/* A reset changes the device that it names, and of that what it says. */
Test(api_devices, a_reset_is_of_one_device)
{
    bool low_allocated[GPUS] = {false}, low_reserved[GPUS] = {false};
    start();
    cr_expect_eq(gpuprof_reset_max_memory_allocated(2), 0);
    low_allocated[1] = true;
    expect_peaks(low_allocated, low_reserved, "allocated of 2");
    cr_expect_eq(gpuprof_reset_max_memory_reserved(63), 0);
    low_reserved[2] = true;
    expect_peaks(low_allocated, low_reserved, "reserved of 63");
    cr_expect_eq(gpuprof_reset_accumulated_memory_stats(63), 0);
    expect_peaks(low_allocated, low_reserved, "totals of 63");
    cr_expect_eq(stat_of(63, "allocation.all.allocated"), 0);
    cr_expect_eq(stat_of(63, "num_device_alloc"), 0);
    cr_expect_eq(stat_of(2, "allocation.all.allocated"), 3);
    cr_expect_eq(gpuprof_reset_peak_memory_stats(0), 0);
    low_allocated[0] = low_reserved[0] = true;
    expect_peaks(low_allocated, low_reserved, "all of 0");
    cr_expect_eq(stat_of(0, "allocation.all.allocated"), 3);
    cr_expect_eq(gpuprof_reset_host_memory_stats(GPUPROF_RESET_ACCUMULATED), 0);
    cr_expect_eq(host_stat("active_bytes.allocated"), 0);
    cr_expect_eq(host_stat("num_host_free"), 0);
    expect_peaks(low_allocated, low_reserved, "totals of the host");
    cr_expect_eq(gpuprof_reset_host_memory_stats(GPUPROF_RESET_PEAKS), 0);
    cr_expect_eq(host_stat("active_bytes.peak"), 400);
    cr_expect_eq(host_stat("allocated_bytes.peak"), 400);
    cr_expect_eq(gpuprof_reset_host_memory_stats(2), -1);
    cr_expect_eq(gpuprof_reset_host_memory_stats(-1), -1);
    static int (*const resets[])(int) = {gpuprof_reset_max_memory_allocated, gpuprof_reset_max_memory_reserved,
                                         gpuprof_reset_peak_memory_stats, gpuprof_reset_accumulated_memory_stats};
    for (unsigned i = 0; i < 4; i++)
        cr_expect(resets[i](-1) == -1 && resets[i](1) == -1 && resets[i](64) == -1 && resets[i](HOST) == -1);
}

Test(api_devices, arrays_are_filled_as_far_as_asked)
{
    int64_t values[GPUPROF_STATS + 3];
    start();
    for (unsigned count = 0; count <= GPUPROF_STATS + 2; count++) {
        for (unsigned i = 0; i < GPUPROF_STATS + 3; i++)
            values[i] = -77;
        cr_assert_eq(gpuprof_memory_stats(2, values, count), 0);
        for (unsigned i = 0; i < GPUPROF_STATS + 3; i++)
            cr_assert_eq(values[i] != -77, i < count && i < GPUPROF_STATS, "%u of %u", i, count);
    }
    for (unsigned count = 0; count <= GPUPROF_HOST_STATS + 2; count++) {
        for (unsigned i = 0; i < GPUPROF_STATS + 3; i++)
            values[i] = -77;
        cr_assert_eq(gpuprof_host_memory_stats(values, count), 0);
        for (unsigned i = 0; i < GPUPROF_STATS + 3; i++)
            cr_assert_eq(values[i] != -77, i < count && i < GPUPROF_HOST_STATS, "%u of %u", i, count);
    }
    cr_expect(gpuprof_memory_stats(-1, values, 1) == -1 && gpuprof_memory_stats(64, values, 1) == -1 &&
              gpuprof_memory_stats(1, values, 1) == -1 && gpuprof_host_memory_stats(NULL, 1) == -1);
    int64_t one = -77;
    cr_expect(gpuprof_memory_stat(1, "num_ooms", &one) == -1 && gpuprof_memory_stat(64, "num_ooms", &one) == -1 &&
              gpuprof_memory_stat(0, "num_oom", &one) == -1 && gpuprof_memory_stat(0, "", &one) == -1);
    cr_expect_eq(one, -77);
    cr_expect_eq(gpuprof_memory_stat(0, gpuprof_stat_name(GPUPROF_STATS - 1), &one), 0);
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

static void expect_scope(int scope, int n, int64_t allocated_want, int64_t reserved_want, int line)
{
    int64_t one = -77, two = -77;
    int device = n == GPUS ? GPUPROF_HOST : gpus[n];
    cr_expect_eq(gpuprof_scope_read(scope, device, &one, &two), 0, "line %d", line);
    cr_expect(one == allocated_want && two == reserved_want, "line %d, %d: %lld, %lld", line, n, (long long)one,
              (long long)two);
    one = two = -77;
    cr_expect_eq(gpuprof_scope_read(scope, device, NULL, &two), 0);
    cr_expect_eq(gpuprof_scope_read(scope, device, &one, NULL), 0);
    cr_expect(one == allocated_want && two == reserved_want, "line %d: one of them alone", line);
    cr_expect_eq(gpuprof_scope_read(scope, device, NULL, NULL), 0);
}

static void expect_no_scope(int scope, int device, int error, int line)
{
    int64_t one = -77, two = -77;
    cr_expect_eq(gpuprof_scope_read(scope, device, &one, &two), error, "line %d", line);
    cr_expect(one == -77 && two == -77, "line %d", line);
}

Test(api_devices, a_scope_has_the_peaks_of_each_device)
{
    start();
    int outer = gpuprof_scope_begin("outer");
    cr_assert_geq(outer, 0);
    spike(1);
    spike(3);
    int inner = gpuprof_scope_begin("inner");
    cr_assert(inner >= 0 && inner != outer);
    cr_expect_eq(gpuprof_reset_peak_memory_stats(2), 0);
    for (int n = 0; n <= GPUS; n++) {
        int64_t host = n == GPUS ? 7 : 0; /* the host has no pool */
        bool spiked = n == 1 || n == 3;
        expect_scope(outer, n, (spiked ? allocated_peak(n) : allocated(n)) - host,
                     spiked ? reserved_peak(n) : reserved(n), __LINE__);
        expect_scope(inner, n, allocated(n) - host, reserved(n), __LINE__);
    }
    expect_no_scope(outer, 1, -ENODEV, __LINE__);
    expect_no_scope(outer, -2, -ENODEV, __LINE__);
    expect_no_scope(outer, 64, -ENODEV, __LINE__);
    expect_no_scope(outer, HOST + 1, -ENODEV, __LINE__);
    expect_no_scope(1000, 0, -ENOENT, __LINE__);
    expect_no_scope(-1, 0, -ENOENT, __LINE__);
    cr_expect_eq(gpuprof_scope_end(outer), 0);
    cr_expect_eq(gpuprof_scope_end(outer), -ENOENT);
    expect_no_scope(outer, 0, -ENOENT, __LINE__);
    expect_scope(inner, 0, allocated(0), reserved(0), __LINE__);
    cr_expect_eq(gpuprof_scope_end(inner), 0);
    cr_expect(gpuprof_scope_begin(NULL) == -EINVAL && gpuprof_scope_begin("") == -EINVAL);
    cr_expect(gpuprof_mark(NULL) == -EINVAL && gpuprof_mark("") == -EINVAL && gpuprof_mark("x") == 0);
}

/* ---- walks ------------------------------------------------------------------------------------------------------- */

/* Each allocation is a segment with one live block. */
Test(api_devices, a_walk_is_over_one_device)
{
    struct gpuprof_piece pieces[8];
    start();
    for (int n = 0; n <= GPUS; n++) {
        int device = n == GPUS ? GPUPROF_HOST : gpus[n];
        uint64_t at = 0x100000ull * (uint64_t)(n + 1);
        unsigned seen = 0;
        int64_t count = n == GPUS ? 2 : 4;
        for (int64_t room = 0; room <= 6; room++) {
            memset(pieces, 0x55, sizeof(pieces));
            cr_assert_eq(gpuprof_walk(device, pieces, (uint64_t)room), count, "%d", n);
            for (int64_t i = room < count ? room : count; i < 8; i++)
                cr_assert_eq(pieces[i].address, 0x5555555555555555ull, "%lld of %lld", (long long)i, (long long)room);
        }
        cr_expect_eq(gpuprof_walk(device, NULL, 5), count);
        cr_assert_eq(gpuprof_walk(device, pieces, 8), count);
        for (int64_t i = 0; i < count; i++) {
            bool pool = pieces[i].address != at, is_block = i % 2;
            uint32_t kind = pool ? GP_KIND_POOL : n == GPUS ? GP_KIND_PINNED : GP_KIND_LINEAR;
            uint64_t bytes = pool ? 7 : 100 * (uint64_t)(n + 1);
            struct gpuprof_piece want = {.address = pool ? at + 0x1000 : at,
                                         .bytes = bytes,
                                         .requested_bytes = is_block ? bytes - !pool : 0,
                                         .what = is_block ? GPUPROF_BLOCK : GPUPROF_SEGMENT,
                                         .state = GPUPROF_LIVE,
                                         .kind = kind,
                                         .flags = pieces[i].flags};
            cr_expect_eq(memcmp(&pieces[i], &want, sizeof(want)), 0, "%d, piece %lld", n, (long long)i);
            cr_expect_eq(pieces[i].flags & (GPUPROF_GROWABLE | GPUPROF_OURS), 0);
            seen |= 1u << (2 * pool + is_block);
        }
        cr_expect_eq(seen, n == GPUS ? 3 : 15);
    }
    cr_expect(gpuprof_walk(1, pieces, 8) == -1 && gpuprof_walk(64, pieces, 8) == -1 &&
              gpuprof_walk(-2, pieces, 8) == -1 && gpuprof_walk(HOST + 1, pieces, 8) == -1);
}

/* ---- errno ------------------------------------------------------------------------------------------------------- */

/* Twice: a function that did not leave our code would find nothing known the second time. */
Test(api_devices, no_function_changes_errno_or_stays_inside)
{
    int64_t values[2];
    struct gpuprof_piece piece;
    start();
    for (int turn = 0; turn < 2; turn++) {
        errno = 4711;
        cr_expect(gpuprof_active() == 1 && errno == 4711);
        cr_expect(gpuprof_device_count() == 64 && errno == 4711);
        cr_expect(gpuprof_memory_allocated(2) == allocated(1) && errno == 4711);
        cr_expect(gpuprof_memory_allocated(1) == -1 && errno == 4711);
        cr_expect(gpuprof_memory_stats(2, values, 2) == 0 && errno == 4711);
        cr_expect(gpuprof_reset_peak_memory_stats(2) == 0 && errno == 4711);
        cr_expect(gpuprof_reset_peak_memory_stats(1) == -1 && errno == 4711);
        cr_expect(gpuprof_reset_host_memory_stats(0) == 0 && errno == 4711);
        cr_expect(gpuprof_mark("m") == 0 && errno == 4711);
        int scope = gpuprof_scope_begin("s");
        cr_expect(scope >= 0 && errno == 4711);
        cr_expect(gpuprof_scope_read(scope, 1, values, values) == -ENODEV && errno == 4711);
        cr_expect(gpuprof_scope_read(scope, 2, values, values) == 0 && errno == 4711);
        cr_expect(gpuprof_scope_end(scope) == 0 && errno == 4711);
        cr_expect(gpuprof_scope_end(scope) == -ENOENT && errno == 4711);
        cr_expect(gpuprof_walk(2, &piece, 1) == 4 && errno == 4711);
        cr_expect(gpuprof_walk(1, &piece, 1) == -1 && errno == 4711);
    }
}

/* Before the start, and on a thread that is inside our code, everything is as without gpuprof. */
static void expect_unknown(void)
{
    int64_t values[2] = {-77, -77};
    struct gpuprof_piece piece;
    cr_expect(gpuprof_active() == 0 && gpuprof_device_count() == 0);
    cr_expect(gpuprof_memory_allocated(0) == -1 && gpuprof_max_memory_reserved(0) == -1);
    cr_expect(gpuprof_memory_stats(0, values, 2) == -1 && gpuprof_memory_stat(0, "num_ooms", values) == -1);
    cr_expect(gpuprof_host_memory_stats(values, 2) == -1 && gpuprof_reset_host_memory_stats(0) == -1);
    cr_expect(gpuprof_reset_peak_memory_stats(0) == -1 && gpuprof_mark("x") == -ENODEV);
    cr_expect(gpuprof_scope_begin("x") == -ENODEV && gpuprof_scope_end(0) == -ENODEV);
    cr_expect(gpuprof_scope_read(0, 0, values, values) == -ENODEV && gpuprof_walk(0, &piece, 1) == -1);
    cr_expect(values[0] == -77 && values[1] == -77);
}

Test(api_devices, without_a_start_or_from_inside_nothing_is_known)
{
    expect_unknown();
    start();
    cr_assert(gp_thread_enter());
    expect_unknown();
    gp_thread_leave();
    cr_expect_eq(gpuprof_memory_allocated(0), allocated(0));
}
