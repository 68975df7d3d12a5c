/* SPDX-License-Identifier: MIT
 *
 * test_poll.c: the poller against a made-up driver that lacks one of its functions, or in which one of them fails.  What
 * depends on that function stays unknown, and everything else is as with the whole driver.  When it looks is judged by a
 * clock that only its waits move.
 */
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/pool.h"
#include "account/feed/start.h"
#include "account/feed/want.h"
#include "account/tap.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/worker.h"
#include "lib/accounts.h"
#include "lib/build.h"
#include "lib/standin.h"
#include "source/internal.h"
#include "source/source.h"
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB      ((int64_t)1 << 20)
#define PATIENCE 20000000000ull
#define IMPORTED 0x10500000ull /* an import of 5 MiB, as the driver says */

enum {
    VERSION,
    COUNT,
    GET,
    UUID,
    NAME,
    TOTAL,
    DEFAULT_POOL,
    POOL_GET,
    GRAPH_GET,
    POINTER,
    POINTERS,
    MODE,
    PUSH,
    POP,
    INFO,
    ATTRIBUTE
};
#define FUNCTIONS (ATTRIBUTE + 1)

static const struct gp_poll_turns turns = {gp_handover_look, gp_cupti_beat, gp_cupti_gap_holds};
static struct gp_wire_oom oom;
static unsigned *fails, *calls, *wrong, *slow, *queries, *fresh, *inside_at, *asked;
static void (**inside)(void);
static int *attribute, *current;
static uint64_t *held, *height;

static void open_driver(unsigned lacks)
{
    char *folder = build_folder(), path[256], options[256];
    snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
    snprintf(options, sizeof(options), "@%s/options", folder);
    FILE *file = fopen(options + 1, "w");
    cr_assert_not_null(file);
    fprintf(file, "-DFAKE_LACKS=%u -Wl,-soname,libcuda.so.1\n", lacks);
    fclose(file);
    cr_assert_eq(build_shared(folder, "fakecuda.c", "libcuda.so.1", options), 0);
    void *library = dlopen(path, RTLD_NOW);
    cr_assert_not_null(library, "%s", dlerror());
    /* Only its soname is looked for. */
    cr_assert_eq(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), library);
    build_remove(folder);
    fails = dlsym(library, "fake_fails");
    calls = dlsym(library, "fake_calls");
    wrong = dlsym(library, "fake_wrong");
    attribute = dlsym(library, "fake_attribute");
    current = dlsym(library, "fake_current");
    slow = dlsym(library, "fake_slow");
    queries = dlsym(library, "fake_asked");
    fresh = dlsym(library, "fake_default");
    inside = dlsym(library, "fake_inside");
    inside_at = dlsym(library, "fake_inside_at");
    asked = dlsym(library, "fake_count");
    held = dlsym(library, "fake_held");
    height = dlsym(library, "fake_height");
    *held = 64 * (uint64_t)MIB;
    *height = 96 * (uint64_t)MIB;
}

static void call(const char *name, const void *params, uint32_t ctx, uint32_t result)
{
    uint64_t slot;
    struct gp_call call = {.params = params, .ctx = ctx, .context = (void *)0xc0, .result = result, .slot = &slot};
    for (unsigned i = 0; i < gp_hook_count; i++)
        if (strcmp(gp_hooks[i].name, name) == 0)
            call.hook = &gp_hooks[i];
    gp_dispatch_enter(&call);
    gp_dispatch_exit(&call);
}

/* Two devices, a call that failed in a context on the second one, and an import. */
static void start(void)
{
    static uint64_t address;
    accounts_start(8, (struct gp_feed_setup){
                          .oom = &oom, .wake_poller = gp_poll_wake, .poll_now = gp_poll_now, .map_limit = 1 << 16});
    cr_assert(gp_thread_enter());
    gp_feed_context_created(7, 0);
    gp_feed_context_created(8, 1);
    call("cuMemAlloc_v2", &(struct gp_params_cuMemAlloc_v2){&address, (size_t)MIB}, 8, 2);
    gp_feed_ipc_open(IMPORTED, 1, 8);
    gp_feed_poll_want(GP_POLL_DEVICES | GP_POLL_POOLS | GP_POLL_GRAPHS);
    gp_thread_leave();
}

struct known { /* what the poller can learn */
    bool any, device, uuid, name, total, threads, pools, graphs, import, oom_asked, oom;
};

static struct known known_without(unsigned lacks, unsigned failing)
{
    unsigned off = lacks | failing;
    bool any = !(lacks & 1u << VERSION) && !(off & 1u << MODE);
    bool device = any && !(off & 1u << GET);
    bool is_asked = any && !(lacks & (1u << PUSH | 1u << POP | 1u << INFO));
    return (struct known){
        .any = any,
        .device = device,
        .uuid = device && !(off & 1u << UUID),
        .name = device && !(off & 1u << NAME),
        .total = device && !(off & 1u << TOTAL),
        .threads = device && !(off & 1u << ATTRIBUTE),
        .pools = any && !(off & (1u << DEFAULT_POOL | 1u << POOL_GET)),
        .graphs = any && !(off & 1u << GRAPH_GET),
        .import = any && !(off & 1u << POINTER),
        .oom_asked = is_asked,
        .oom = is_asked && !(failing & (1u << PUSH | 1u << INFO)),
    };
}

static void check_device(int i, const struct known *known)
{
    struct gp_wire_device is;
    char name[64] = "";
    uint8_t uuid[16] = {0};
    cr_assert(gp_tap_device((unsigned)i, &is));
    if (known->name)
        snprintf(name, sizeof(name), "Fake %d", 40 + i);
    if (known->uuid)
        memset(uuid, 40 + i, sizeof(uuid));
    cr_expect_eq(!!(is.flags & GP_DEVICE_IDENTIFIED), known->device);
    cr_expect_str_eq(is.name, name);
    cr_expect_eq(memcmp(is.uuid, uuid, sizeof(uuid)), 0);
    cr_expect_eq(is.total_bytes, known->total ? (40 + i) * 1000 * MIB : -1, "%lld", (long long)is.total_bytes);
    cr_expect_eq(is.flags >> GP_DEVICE_THREADS_SHIFT, known->threads ? (40 + (unsigned)i) * 3 : 0);
    int64_t pool = known->pools ? (int64_t)*held + i * MIB : 0, graph = known->graphs ? (int64_t)*held + i * MIB : 0;
    cr_expect_eq(is.kinds[GP_KIND_POOL].reserved_bytes, pool, "%lld", (long long)is.kinds[GP_KIND_POOL].reserved_bytes);
    cr_expect_eq(is.kinds[GP_KIND_GRAPH].reserved_bytes, graph, "%lld",
                 (long long)is.kinds[GP_KIND_GRAPH].reserved_bytes);
    const struct gp_wire_value *reserved = &is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL];
    const struct gp_wire_value *allocated = &is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL];
    cr_expect_eq(reserved->current, pool + graph);
    cr_expect_eq(allocated->current, known->graphs ? (int64_t)*held / 2 + i * MIB : 0);
    int64_t high = known->pools || known->graphs ? (int64_t)*height + i * MIB : 0;
    cr_expect_eq(reserved->peak, high > pool + graph ? high : pool + graph, "%lld", (long long)reserved->peak);
    cr_expect_eq(allocated->peak, known->graphs ? (int64_t)*height / 2 + i * MIB : 0);
    cr_expect_eq(is.kinds[GP_KIND_IMPORTED].current_bytes, i == 1 && known->import ? 5 * MIB : 0);
}

static void check(const struct known *known)
{
    for (int i = 0; i < 2; i++)
        check_device(i, known);
    cr_expect_eq(!!(oom.flags & GP_OOM_PENDING), !known->oom_asked);
    cr_expect_eq(!!(oom.flags & GP_OOM_DRIVER), known->oom);
    cr_expect(!known->oom || (oom.free_bytes == 3 * MIB && oom.total_bytes == 5 * MIB));
    cr_expect_eq(*wrong, 0, "%u calls when they are not allowed", *wrong);
    cr_expect_eq(*current, 0, "a context is left");
    cr_expect_eq(gp_tap_known(2), false);
}

static void poll_with(unsigned lacks, unsigned failing)
{
    struct known known = known_without(lacks, failing);
    open_driver(lacks);
    *fails = failing;
    start();
    cr_assert_not(gp_poll_now(PATIENCE), "there is no poller yet");
    cr_assert_eq(gp_poll_start(&turns), 0);
    cr_assert(gp_poll_now(PATIENCE));
    check(&known);
    cr_expect_eq(gp_poll_driver_version(), (lacks | failing) & 1u << VERSION ? 0 : 13010);
    unsigned names = calls[NAME];
    *held += 8 * (uint64_t)MIB;
    *height += 80 * (uint64_t)MIB;
    cr_assert(gp_poll_now(PATIENCE));
    check(&known);
    cr_expect_eq(calls[NAME], names, "a device is asked for its name once");
    gp_poll_end();
    memset(calls, 0, FUNCTIONS * sizeof(*calls));
    cr_assert_not(gp_poll_now(PATIENCE), "the poller has ended");
    for (unsigned i = 0; i < FUNCTIONS; i++)
        cr_expect_eq(calls[i], 0, "function %u is called after the end", i);
}

/* Number -1: all of them; 0 and on: without that function; and on: it fails. */
ParameterizedTestParameters(poll, a_driver_without_one_function)
{
    static int numbers[1 + 2 * FUNCTIONS];
    for (int i = 0; i < 1 + 2 * FUNCTIONS; i++)
        numbers[i] = i - 1;
    return cr_make_param_array(int, numbers, 1 + 2 * FUNCTIONS);
}

ParameterizedTest(int *number, poll, a_driver_without_one_function, .timeout = 120)
{
    int i = *number;
    poll_with(i >= 0 && i < FUNCTIONS ? 1u << i : 0, i >= FUNCTIONS ? 1u << (i - FUNCTIONS) : 0);
}

/* Either watermark may be missing; without the current value nothing is known. */
Test(poll, one_attribute_fails, .timeout = 120)
{
    struct gp_wire_device is;
    open_driver(0);
    *attribute = 5;
    start();
    cr_assert_eq(gp_poll_start(&turns), 0);
    cr_assert(gp_poll_now(PATIENCE));
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.kinds[GP_KIND_POOL].reserved_bytes, 0);
    for (*attribute = 0; *attribute <= 2; *attribute += 2) {
        *held += 8 * (uint64_t)MIB;
        int64_t before = is.kinds[GP_KIND_GRAPH].reserved_bytes;
        cr_assert(gp_poll_now(PATIENCE));
        cr_assert(gp_tap_device(0, &is));
        cr_expect_eq(is.kinds[GP_KIND_GRAPH].reserved_bytes, before, "attribute %d", *attribute);
        cr_expect_eq(is.kinds[GP_KIND_POOL].reserved_bytes, *held);
    }
    int64_t peak = is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].peak;
    *height += 900 * (uint64_t)MIB;
    *attribute = 6; /* the pool's watermark: the graphs' is known */
    cr_assert(gp_poll_now(PATIENCE));
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].peak, (int64_t)*height);
    cr_expect_lt(peak, (int64_t)*height);
    gp_poll_end();
}

/* Memory that was freed before the numbers are read was there together with what pools and graphs held. */
Test(poll, peaks_hold_own_and_polled_bytes_of_one_time, .timeout = 120)
{
    struct gp_wire_device is;
    uint64_t address = 0x20000000;
    open_driver(0);
    *height = *held;
    start();
    cr_assert(gp_thread_enter());
    call("cuMemAlloc_v2", &(struct gp_params_cuMemAlloc_v2){&address, (size_t)(16 * MIB)}, 7, 0);
    gp_thread_leave();
    cr_assert_eq(gp_poll_start(&turns), 0);
    cr_assert(gp_poll_now(PATIENCE));
    cr_assert(gp_thread_enter());
    call("cuMemFree_v2", &(struct gp_params_cuMemFree_v2){address}, 7, 0);
    gp_thread_leave();
    cr_assert(gp_tap_device(0, &is));
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].current, 128 * MIB);
    cr_expect_eq(is.stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL].peak, 144 * MIB);
    cr_expect_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].peak, 48 * MIB);
    gp_poll_end();
}

/* ---- threads of the program -------------------------------------------------------------------------------------- */

#define POOL 0x7050

static void await(const unsigned *count, unsigned more_than)
{
    for (int i = 0; i < 2000 && __atomic_load_n(count, __ATOMIC_RELAXED) <= more_than; i++)
        usleep(10000);
    cr_assert_gt(__atomic_load_n(count, __ATOMIC_RELAXED), more_than);
}

/* The only pool, which the driver takes two seconds to look at. */
Test(poll, a_destroy_does_not_wait_for_a_slow_driver, .timeout = 120)
{
    struct gp_allocation block = {
        .space = GP_SPACE_DEVICE, .kind = GP_KIND_POOL, .bytes = 4096, .requested_bytes = 4096, .pool = POOL};
    open_driver(1u << DEFAULT_POOL);
    *slow = 2000;
    start();
    cr_assert_eq(gp_poll_start(&turns), 0);
    cr_assert(gp_thread_enter());
    for (unsigned i = 0; i < 3; i++) {
        gp_feed_pool_create(POOL, 0, 0);
        block.address = 0x1000 * (i + 1);
        gp_feed_alloc(&block);
        await(&calls[MODE], 0);
        usleep(200000); /* the poller is inside a query now */
        uint64_t begin = gp_clock_ns();
        uint32_t token = gp_feed_pool_destroy_begin(POOL);
        uint64_t took = gp_clock_ns() - begin;
        cr_expect_lt(took, 500000000, "%u: a thread of the program waited %.3f s", i, (double)took / 1e9);
        gp_feed_pool_destroy_end(token, true);
        gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, block.address), true, 0);
    }
    gp_thread_leave();
    gp_poll_end();
}

/* The driver keeps other threads waiting while it loads a module. */
Test(poll, nothing_is_asked_while_a_module_is_loaded, .timeout = 120)
{
    static void *module;
    uint64_t slot = 0;
    struct gp_call load = {.params = &(struct gp_params_cuModuleLoadData){&module, NULL}, .slot = &slot};
    for (unsigned i = 0; i < gp_hook_count; i++)
        if (strcmp(gp_hooks[i].name, "cuModuleLoadData") == 0)
            load.hook = &gp_hooks[i];
    open_driver(0);
    start();
    cr_assert(gp_thread_enter());
    gp_dispatch_enter(&load);
    cr_assert_eq(gp_poll_start(&turns), 0);
    cr_assert(gp_poll_now(PATIENCE), "a viewer is answered");
    cr_expect_eq(calls[POOL_GET] + calls[GRAPH_GET] + calls[INFO] + calls[NAME], 0);
    gp_dispatch_exit(&load);
    gp_thread_leave();
    await(&calls[POOL_GET], 0); /* by itself */
    cr_assert(gp_poll_now(PATIENCE));
    check(&(struct known){true, true, true, true, true, true, true, true, true, true, true});
    gp_poll_end();
}

/* ---- pools of a context that ended --------------------------------------------------------------------------------- */

static bool is_asked(unsigned pool)
{
    unsigned before = queries[pool];
    cr_assert(gp_poll_now(PATIENCE));
    return queries[pool] != before;
}

static int64_t pools_of(unsigned device)
{
    struct gp_wire_device is;
    cr_assert(gp_tap_device(device, &is));
    return is.kinds[GP_KIND_POOL].reserved_bytes;
}

/* Pool 5 is the program's, 0 and 3 are default pools of the first device, 1 is that of the second. A pool of number i
 * holds i MiB more than all of them do. */
Test(poll, a_pool_of_an_ended_primary_context_is_not_asked, .timeout = 120)
{
    struct gp_allocation block = {
        .space = GP_SPACE_DEVICE, .kind = GP_KIND_POOL, .address = 0x1000, .bytes = 4096, .pool = POOL};
    int device = 0;
    open_driver(0);
    start();
    cr_assert_eq(gp_poll_start(&turns), 0);
    cr_assert(gp_thread_enter());
    gp_feed_primary_context(0, 7);
    gp_feed_pool_create(POOL, 0, 0);
    cr_expect(is_asked(5) && is_asked(0) && is_asked(1));
    cr_expect_eq(pools_of(0), 2 * (int64_t)*held + 5 * MIB);
    gp_feed_context_destroyed(9, 0, true);
    cr_expect(is_asked(5), "another context of the device ended");
    gp_feed_context_destroyed(8, 1, true);
    cr_expect(is_asked(5), "a context of another device ended");

    *fresh = 3;
    gp_feed_context_destroyed(7, 0, true);
    cr_expect_not(is_asked(5));
    cr_expect_not(is_asked(0));
    cr_expect(is_asked(3), "the new default pool");
    cr_expect(is_asked(1));
    cr_expect_eq(pools_of(0), 2 * (int64_t)*held + 8 * MIB, "what the old default pool held is gone");

    gp_feed_alloc(&block);
    cr_expect(is_asked(5), "the program uses it");
    call("cuDevicePrimaryCtxReset_v2", &device, 0, 0);
    cr_expect_not(is_asked(5), "a reset");
    call("cuMemPoolTrimTo", &(struct gp_params_cuMemPoolTrimTo){(void *)POOL, 0}, 0, 1);
    cr_expect_not(is_asked(5), "a call with it failed");
    call("cuMemPoolTrimTo", &(struct gp_params_cuMemPoolTrimTo){(void *)POOL, 0}, 0, 0);
    cr_expect(is_asked(5));
    cr_expect_eq(pools_of(0), 2 * (int64_t)*held + 8 * MIB);

    /* The driver makes another pool of the same handle. */
    gp_feed_context_destroyed(7, 0, true);
    gp_feed_pool_create(POOL, 0, 0);
    cr_expect(is_asked(5));
    cr_expect_eq(lost[GP_LOST_MISSED_FREE], 0);
    gp_thread_leave();
    gp_poll_end();
}

/* ---- captures ------------------------------------------------------------------------------------------------------ */

#define STREAM ((void *)0x5000)

static void capture(bool is_asked, uint32_t result)
{
    call("cuStreamBeginCapture_v2", &(struct gp_params_cuStreamBeginCapture_v2){STREAM, 0}, 7, 0);
    if (is_asked)
        cr_assert(gp_poll_now(PATIENCE));
    call("cuStreamEndCapture", &(struct gp_params_cuStreamEndCapture){STREAM, NULL}, 7, result);
}

Test(poll, a_capture_that_fails_beside_a_question_ends_the_questions, .timeout = 120)
{
    open_driver(0);
    start();
    cr_assert_eq(gp_poll_start(&turns), 0);
    cr_assert(gp_poll_now(PATIENCE));
    cr_assert(gp_thread_enter());
    gp_feed_stream_created((uint64_t)(uintptr_t)STREAM, 7);
    usleep(500000); /* the polls after the first events are over: no question but on request */
    capture(false, 901);
    capture(true, 0);
    capture(true, 904);
    cr_expect_not(gp_feed_poll_silent());
    call("cuStreamBeginCapture_v2", &(struct gp_params_cuStreamBeginCapture_v2){STREAM, 0}, 7, 0);
    cr_assert(gp_poll_now(PATIENCE));
    call("cuMemFree_v2", &(struct gp_params_cuMemFree_v2){0x1000}, 7, 900);
    call("cuStreamEndCapture", &(struct gp_params_cuStreamEndCapture){STREAM, NULL}, 7, 901);
    cr_expect_not(gp_feed_poll_silent(), "a call of the program broke it");
    capture(true, 901);
    cr_expect(gp_feed_poll_silent());
    unsigned before = calls[POOL_GET] + calls[GRAPH_GET] + calls[COUNT];
    cr_expect(gp_poll_now(PATIENCE), "a viewer is answered");
    cr_expect_eq(calls[POOL_GET] + calls[GRAPH_GET] + calls[COUNT], before);
    gp_thread_leave();
    gp_poll_end();
}

/* ---- when ---------------------------------------------------------------------------------------------------------- */

#define MS ((uint64_t)1000000)

static bool is_virtual;
static uint64_t start_ns = 77 * 1000 * MS, now_ns;
static uint64_t rounds_ms[32];
static unsigned rounds;

static struct {
    uint64_t at_ms;
    void (*happens)(void);
} plan[16];
static unsigned planned, happened;

STANDIN(int, clock_gettime, clockid_t clock, struct timespec *out)
{
    if (!is_virtual || clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, out);
    *out = (struct timespec){(time_t)(now_ns / 1000000000), (long)(now_ns % 1000000000)};
    return 0;
}

static jmp_buf asleep;
static bool is_nested; /* the poller runs while another thread waits */

static void wait_until(uint64_t deadline)
{
    if (is_nested)
        longjmp(asleep, 1);
    bool comes = happened < planned && start_ns + plan[happened].at_ms * MS <= deadline;
    now_ns = comes ? start_ns + plan[happened].at_ms * MS : deadline;
    cr_assert_neq(now_ns, UINT64_MAX, "it waits for ever, and nothing is planned");
    if (comes)
        plan[happened++].happens();
}

STANDIN(long, syscall, long number, ...)
{
    va_list arguments;
    long a[6];
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (!is_virtual || number != SYS_futex)
        return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    const struct timespec *limit = (const struct timespec *)a[3];
    if ((int)a[1] == FUTEX_WAIT && __atomic_load_n((uint32_t *)a[0], __ATOMIC_RELAXED) == (uint32_t)a[2])
        wait_until(limit ? now_ns + (uint64_t)limit->tv_sec * 1000 * MS + (uint64_t)limit->tv_nsec : UINT64_MAX);
    return 0;
}

STANDIN(unsigned, gp_feed_poll_wanted, void)
{
    if (is_virtual && rounds < GP_COUNT(rounds_ms))
        rounds_ms[rounds++] = (now_ns - start_ns) / MS;
    return __real_gp_feed_poll_wanted();
}

static void *(*poll_main)(void *);
static int worker_error;

/* The poller runs in the test's own thread. */
STANDIN(int, gp_worker_start, void *(*main)(void *), const char *name)
{
    poll_main = main;
    return is_virtual ? worker_error : __real_gp_worker_start(main, name);
}

static void (*at_exit)(void);

STANDIN(int, atexit, void (*handler)(void))
{
    at_exit = handler;
    return 0;
}

static char logged[4096];

STANDIN(void, gp_log, enum gp_log_level level, const char *format, ...)
{
    size_t used = strlen(logged);
    va_list arguments;
    (void)level;
    va_start(arguments, format);
    vsnprintf(logged + used, sizeof(logged) - used, format, arguments);
    va_end(arguments);
}

static void at(uint64_t ms, void (*happens)(void))
{
    plan[planned].at_ms = ms;
    plan[planned++].happens = happens;
}

/* The account of a program with one device, which wants nothing yet. */
static void begin(void)
{
    static uint32_t listened;
    listened = 1;
    accounts_start(8, (struct gp_feed_setup){
                          .oom = &oom, .wake_poller = gp_poll_wake, .listened = &listened, .map_limit = 1 << 16});
    cr_assert(gp_thread_enter());
    gp_feed_context_created(8, 0);
    is_virtual = true;
    now_ns = start_ns;
    gp_feed_poll_wanted();
    rounds = 0;
    cr_assert_eq(gp_poll_start(&turns), 0);
}

static void run_times(const char *want)
{
    char times[256] = "";
    cr_assert_null(poll_main(NULL));
    for (unsigned i = 0; i < rounds; i++)
        snprintf(times + strlen(times), sizeof(times) - strlen(times), "%lu ", (unsigned long)rounds_ms[i]);
    cr_expect_str_eq(times, want, "%s, not %s", times, want);
}

static void want_nothing(void)
{
    gp_poll_wake();
}

static void want_graphs(void)
{
    gp_feed_poll_want(GP_POLL_GRAPHS);
}

static void want_pools(void)
{
    gp_feed_poll_want(GP_POLL_POOLS);
}

static void events_come(void)
{
    gp_feed_poll_want(GP_POLL_DEVICES);
}

static void ask_at_once(void)
{
    cr_expect_not(gp_poll_now(0), "there was no time");
}

static void library_ends(void)
{
    gp_thread_life_end();
    gp_poll_wake();
}

/* At once, and not again within a period of the last round; a viewer's request is not kept waiting; after the last event
 * of pools or graphs three rounds more, then one every 10 s, as there is a reader. */
static const struct {
    struct {
        uint64_t at_ms;
        void (*happens)(void);
    } events[8];
    const char *times;
} schedules[] = {
    {{{50, want_nothing},
      {60, want_nothing},
      {99, want_nothing},
      {101, want_nothing},
      {350, want_nothing},
      {1000, want_nothing},
      {1001, want_nothing},
      {5000, gp_poll_end}},
     "0 100 200 350 1000 1100 "},
    {{{300, want_pools}, {1000, want_graphs}, {1150, want_graphs}, {25000, gp_poll_end}},
     "0 300 400 500 600 700 1000 1100 1200 1300 1400 1500 11500 21500 "},
    {{{20, ask_at_once}, {150, want_nothing}, {170, ask_at_once}, {171, ask_at_once}, {1000, gp_poll_end}},
     "0 20 150 170 171 "},
    {{{250, library_ends}}, "0 "},
};

ParameterizedTestParameters(poll, rounds_have_a_period)
{
    static unsigned numbers[GP_COUNT(schedules)];
    for (unsigned i = 0; i < GP_COUNT(schedules); i++)
        numbers[i] = i;
    return cr_make_param_array(unsigned, numbers, GP_COUNT(schedules));
}

ParameterizedTest(unsigned *number, poll, rounds_have_a_period, .timeout = 60)
{
    open_driver(0);
    for (unsigned i = 0; i < 8 && schedules[*number].events[i].happens; i++)
        at(schedules[*number].events[i].at_ms, schedules[*number].events[i].happens);
    begin();
    run_times(schedules[*number].times);
}

/* An event during a round is looked at after it, when the period is over. */
Test(poll, events_during_a_round, .timeout = 60)
{
    open_driver(0);
    *inside = events_come;
    *inside_at = 3;
    at(1000, gp_poll_end);
    begin();
    run_times("0 100 ");
}

static void driver_comes(void)
{
    open_driver(0);
    *fails = 1u << MODE;
    gp_poll_wake();
}

static void mode_comes(void)
{
    cr_expect_eq(*asked, 2, "the version, and the mode");
    *fails = 0;
    gp_poll_wake();
}

/* Until the program has a driver and the thread its mode, nothing is asked; of pools and graphs only what had an event. */
Test(poll, nothing_is_asked_too_early, .timeout = 60)
{
    at(400, driver_comes);
    at(600, mode_comes);
    at(601, gp_poll_end);
    begin();
    run_times("0 400 600 ");
    cr_expect(calls[MODE] == 2 && calls[VERSION] == 1 && calls[NAME] == 1);
    cr_expect_eq(calls[DEFAULT_POOL] + calls[POOL_GET] + calls[GRAPH_GET], 0);
}

static uint64_t waited_ms(void)
{
    uint64_t ms = (now_ns - start_ns) / MS;
    start_ns = now_ns;
    return ms;
}

Test(poll, each_wait_has_a_deadline, .timeout = 60)
{
    is_virtual = true;
    now_ns = start_ns;
    for (worker_error = -11; worker_error <= 0; worker_error += 11) {
        cr_expect_not(gp_poll_now(50 * MS), "there is no poller");
        gp_poll_scan(50 * MS);
        cr_expect_eq(waited_ms(), 0);
        cr_expect_eq(gp_poll_start(&turns), worker_error);
    }
    cr_expect_not(gp_poll_now(50 * MS));
    cr_expect_eq(waited_ms(), 50);
    gp_poll_scan(70 * MS);
    cr_expect_eq(waited_ms(), 70);
    gp_poll_stop();
    cr_expect_eq(waited_ms(), 0, "no call is under way");
    cr_expect_not(gp_poll_now(50 * MS), "it is stopped");
    cr_expect_eq(waited_ms(), 0);
}

static unsigned asked_at_stop;
static struct gp_wire_device at_stop;

static void stop(void)
{
    uint64_t before = now_ns;
    gp_poll_stop();
    cr_expect_eq(now_ns - before, 20 * MS, "a call is under way");
    asked_at_stop = *asked;
    cr_assert(gp_tap_device(0, &at_stop));
}

/* Stopped during any call, the poller makes no other one, passes on no half of an answer, and its thread ends. */
Test(poll, nothing_is_asked_after_a_stop, .timeout = 120)
{
    static uint64_t address;
    open_driver(0);
    for (unsigned i = 1; i <= 20; i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
            struct gp_wire_device is;
            begin();
            call("cuMemAlloc_v2", &(struct gp_params_cuMemAlloc_v2){&address, (size_t)MIB}, 8, 2);
            gp_feed_poll_want(GP_POLL_POOLS | GP_POLL_GRAPHS);
            *inside = stop;
            *inside_at = i;
            poll_main(NULL);
            cr_assert(gp_tap_device(0, &is));
            _exit(*asked == asked_at_stop && memcmp(&is, &at_stop, sizeof(is)) == 0 ? 0 : (int)*asked);
        }
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_expect_eq(status, 0, "call %u: %x", i, status);
    }
}

/* A failure in a context of the second device: the log has its page, with the size of the device. */
Test(poll, a_failure_is_logged_with_the_devices_size, .timeout = 60)
{
    open_driver(0);
    at(100, gp_poll_end);
    start();
    is_virtual = true;
    now_ns = start_ns;
    cr_assert_eq(gp_poll_start(&turns), 0);
    cr_assert_null(poll_main(NULL));
    cr_expect_not_null(strstr(logged, "cuMemAlloc"), "%s", logged);
    cr_expect_not_null(strstr(logged, "40.04 GiB"), "%s", logged);
}

/* Until it sleeps. */
static void poller_runs(void)
{
    is_nested = true;
    if (!setjmp(asleep))
        poll_main(NULL);
    is_nested = false;
}

static void program_exits(void)
{
    start_ns = now_ns;
    at_exit();
    cr_expect_eq(waited_ms(), 20, "a call is under way");
}

/* A program that ends at once on a busy machine: its exit waits until the poller has run. */
Test(poll, a_last_look_waits_for_a_processor, .timeout = 60)
{
    struct gp_wire_device is;
    open_driver(0);
    at(170, poller_runs);
    begin();
    gp_poll_expect();
    at_exit();
    cr_expect_eq(waited_ms(), 170);
    cr_assert(gp_tap_device(0, &is));
    cr_expect_str_eq(is.name, "Fake 40");
}

Test(poll, a_last_look_has_an_end, .timeout = 60)
{
    open_driver(0);
    begin();
    gp_poll_expect();
    at_exit();
    cr_expect_eq(waited_ms(), 210, "the poller never runs");
}

Test(poll, a_last_look_does_not_wait_long_for_the_driver, .timeout = 60)
{
    open_driver(0);
    *inside = program_exits;
    *inside_at = 3;
    begin();
    gp_poll_expect();
    poll_main(NULL);
}
