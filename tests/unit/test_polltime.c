/* SPDX-License-Identifier: MIT
 *
 * test_polltime.c: when the poller looks, what it asks the driver in which order, and that it asks nothing once it is
 * stopped.  Its thread's function runs in the test's own thread, with a clock that only its waits move, between which things
 * happen as the test has planned.  The driver and the accounts are made up; every call is written into one text.
 */
#include "lib/sanitized.h"

#if GP_TEST_SANITIZED
GP_TEST_UNSANITIZED_ONLY(polltime)
#else

#include "base/futex.h"
#include "base/log.h"
#include "base/worker.h"
#include "feed_log.h"
#include "lib/standin.h"
#include "session/oom/oom.h"
#include "source/abi.h"
#include "source/internal.h"
#include "source/source.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <sys/wait.h>

#define MS        ((uint64_t)1000000)
#define PTR(_n)   ((void *)(uintptr_t)(_n))

/* ---- clock and waits --------------------------------------------------------------------------------------------- */

static bool is_virtual;
static uint64_t start_ns = 77 * 1000 * MS, now_ns;

struct event {
    uint64_t at_ms;
    void (*happens)(void);
};

static struct event plan[32];
static unsigned planned, happened;

STANDIN(int, clock_gettime, clockid_t clock, struct timespec *out)
{
    if (is_virtual && clock == CLOCK_MONOTONIC) {
        *out = (struct timespec){(time_t)(now_ns / 1000000000), (long)(now_ns % 1000000000)};
        return 0;
    }
    return __real_clock_gettime(clock, out);
}

static void wait_until(uint64_t deadline)
{
    bool comes = happened < planned && start_ns + plan[happened].at_ms * MS <= deadline;
    now_ns = comes ? start_ns + plan[happened].at_ms * MS : deadline;
    cr_assert_neq(now_ns, UINT64_MAX, "it waits for ever, and nothing is planned");
    if (comes)
        plan[happened++].happens();
}

STANDIN(long, syscall, long number, ...)
{
    va_list arguments;
    va_start(arguments, number);
    long a = va_arg(arguments, long), b = va_arg(arguments, long), c = va_arg(arguments, long),
         d = va_arg(arguments, long), e = va_arg(arguments, long), f = va_arg(arguments, long);
    va_end(arguments);
    if (!is_virtual || number != SYS_futex)
        return __real_syscall(number, a, b, c, d, e, f);
    const struct timespec *limit = (const struct timespec *)d;
    if ((int)b == FUTEX_WAIT && __atomic_load_n((uint32_t *)a, __ATOMIC_RELAXED) == (uint32_t)c)
        wait_until(limit ? now_ns + (uint64_t)limit->tv_sec * 1000 * MS + (uint64_t)limit->tv_nsec : UINT64_MAX);
    return 0;
}

/* libc's own, of any version. */
static void *libcs(const char *name)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    void *found = NULL;
    for (unsigned i = 0; !found && i < sizeof(versions) / sizeof(versions[0]); i++)
        found = dlvsym(RTLD_NEXT, name, versions[i]);
    return found;
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static const char *lacks = "", *fails = "";
static void (*inside)(void); /* happens in the call of this number, from 1 on */
static unsigned inside_at, called;
static uint64_t value; /* the driver's numbers */

static int driver_call(const char *name, uint64_t first, uint64_t second)
{
    feed_note("%s %lx %lx", name, (unsigned long)first, (unsigned long)second);
    if (++called == inside_at && inside)
        inside();
    return strcmp(fails, name) == 0 ? 2 : 0;
}

static int version(int *out)
{
    *out = 13010;
    return driver_call("version", 0, 0);
}

static int device_count(int *count)
{
    *count = 2;
    return driver_call("count", 0, 0);
}

static int device_get(int *device, int ordinal)
{
    *device = 40 + ordinal;
    return driver_call("get", (uint64_t)ordinal, 0);
}

static int device_uuid(uint8_t *uuid, int device)
{
    memset(uuid, device, 16);
    return driver_call("uuid", (uint64_t)device, 0);
}

static int device_name(char *name, int room, int device)
{
    memset(name, 'n', (size_t)room - 1);
    return driver_call("name", (uint64_t)device, 0);
}

static int device_total(size_t *bytes, int device)
{
    *bytes = 1000 + (size_t)device;
    return driver_call("total", (uint64_t)device, 0);
}

static int default_pool(void **pool, int device)
{
    *pool = device == 2 ? NULL : PTR(0xe0 + device);
    return driver_call("default", (uint64_t)device, 0);
}

static int pool_get(void *pool, int attribute, void *out)
{
    value++;
    memcpy(out, &value, 8);
    return driver_call("pool", (uint64_t)(uintptr_t)pool, (uint64_t)attribute);
}

static int graph_get(int device, int attribute, void *out)
{
    value++;
    memcpy(out, &value, 8);
    return driver_call("graph", (uint64_t)device, (uint64_t)attribute);
}

static int pointer_get(void *out, int attribute, uint64_t address)
{
    size_t bytes = address == 0x5000 ? 0 : address == 0x5001 ? 1 : 100;
    memcpy(out, &bytes, 8);
    return driver_call("pointer", (uint64_t)attribute, address);
}

static uint32_t scan_managed, scan_type = GP_CU_MEMORY_DEVICE;

/* In the order of the attributes that are asked for. */
static int pointer_get_all(unsigned count, int *attributes, void **out, uint64_t address)
{
    static const uint64_t answers[16] = {[GP_CU_POINTER_RANGE_START] = 0x3000,
                                         [GP_CU_POINTER_RANGE_SIZE] = 300,
                                         [GP_CU_POINTER_DEVICE] = 3,
                                         [GP_CU_POINTER_CONTEXT] = 0xc3};
    for (unsigned i = 0; i < count && strcmp(fails, "pointers") != 0; i++) {
        int attribute = attributes[i];
        bool is_word = attribute == GP_CU_POINTER_DEVICE || attribute == GP_CU_POINTER_IS_MANAGED ||
                       attribute == GP_CU_POINTER_MEMORY_TYPE;
        uint32_t word = attribute == GP_CU_POINTER_IS_MANAGED    ? scan_managed
                        : attribute == GP_CU_POINTER_MEMORY_TYPE ? scan_type
                                                                 : (uint32_t)answers[attribute];
        memcpy(out[i], is_word ? (const void *)&word : &answers[attribute], is_word ? 4 : 8);
    }
    return driver_call("pointers", count, address);
}

static int exchange_mode(int *mode)
{
    return driver_call("mode", (uint64_t)*mode, 0);
}

static int context_push(void *context)
{
    return driver_call("push", (uint64_t)(uintptr_t)context, 0);
}

static int context_pop(void **context)
{
    *context = NULL;
    return driver_call("pop", 0, 0);
}

static int memory_info(size_t *free, size_t *total)
{
    *free = 30;
    *total = 50;
    return driver_call("info", 0, 0);
}

static const struct {
    const char *symbol, *name;
    void *function;
} functions[] = {
    {"cuDriverGetVersion", "version", (void *)version},
    {"cuDeviceGetCount", "count", (void *)device_count},
    {"cuDeviceGet", "get", (void *)device_get},
    {"cuDeviceGetUuid_v2", "uuid", (void *)device_uuid},
    {"cuDeviceGetName", "name", (void *)device_name},
    {"cuDeviceTotalMem_v2", "total", (void *)device_total},
    {"cuDeviceGetDefaultMemPool", "default", (void *)default_pool},
    {"cuMemPoolGetAttribute", "pool", (void *)pool_get},
    {"cuDeviceGetGraphMemAttribute", "graph", (void *)graph_get},
    {"cuPointerGetAttribute", "pointer", (void *)pointer_get},
    {"cuPointerGetAttributes", "pointers", (void *)pointer_get_all},
    {"cuThreadExchangeStreamCaptureMode", "mode", (void *)exchange_mode},
    {"cuCtxPushCurrent_v2", "push", (void *)context_push},
    {"cuCtxPopCurrent_v2", "pop", (void *)context_pop},
    {"cuMemGetInfo_v2", "info", (void *)memory_info},
};
#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static bool no_driver;

/* The product asks for old versions of these two (base/glibc.h), which --wrap does not see. */
void *dlopen(const char *file, int flags)
{
    if (file && strcmp(file, "libcuda.so.1") == 0) {
        cr_assert_eq(flags, RTLD_LAZY | RTLD_NOLOAD);
        return no_driver ? NULL : &plan;
    }
    return ((void *(*)(const char *, int))libcs("dlopen"))(file, flags);
}

void *dlsym(void *handle, const char *name)
{
    for (size_t i = 0; handle == &plan && i < FUNCTIONS; i++)
        if (strcmp(functions[i].symbol, name) == 0)
            return strcmp(functions[i].name, lacks) == 0 ? NULL : functions[i].function;
    return ((void *(*)(void *, const char *))libcs("dlsym"))(handle, name);
}

/* ---- the accounts, the worker, and what else poll.c calls ------------------------------------------------------- */

static unsigned wanted; /* bits of the next round */
static uint64_t devices = 1;
static struct gp_poll_pool pools[4];
static unsigned pool_count, imports;
static int oom_device;
static bool has_report;
static uint64_t oom_context;
static bool pool_is_gone;

STANDIN(unsigned, gp_feed_poll_wanted, void)
{
    unsigned bits = wanted;
    feed_note("\n%lu: round", (unsigned long)((now_ns - start_ns) / MS));
    wanted = 0;
    return bits;
}

STANDIN(uint64_t, gp_feed_devices, void)
{
    return devices;
}

STANDIN(unsigned, gp_feed_poll_pools, struct gp_poll_pool *out, unsigned max)
{
    cr_assert_eq(max, 256);
    memcpy(out, pools, pool_count * sizeof(*out));
    return pool_count;
}

STANDIN(bool, gp_feed_poll_enter, uint64_t pool)
{
    feed_note("enter %lx", (unsigned long)pool);
    return !pool_is_gone;
}

STANDIN(void, gp_feed_poll_leave, void)
{
    feed_note("leave");
}

STANDIN(void, gp_feed_poll_begin, int device)
{
    feed_note("begin %d", device);
}

STANDIN(void, gp_feed_poll_end, int device)
{
    feed_note("end %d", device);
}

STANDIN(void, gp_feed_poll_pool, uint64_t pool, int64_t reserved, int64_t high)
{
    feed_note("pool %lx has %ld high %ld", (unsigned long)pool, (long)reserved, (long)high);
}

STANDIN(void, gp_feed_poll_graph, int device, int64_t used, int64_t used_high, int64_t reserved, int64_t reserved_high)
{
    feed_note("graphs of %d have %ld high %ld of %ld high %ld", device, (long)used, (long)used_high, (long)reserved,
              (long)reserved_high);
}

STANDIN(void, gp_feed_poll_device, int device, const uint8_t uuid[16], const char *name, int64_t total_bytes)
{
    feed_note("device %d is %d %d %zu %ld", device, uuid[0], uuid[15], strlen(name), (long)total_bytes);
}

STANDIN(bool, gp_feed_poll_import_next, struct gp_poll_import *out)
{
    *out = (struct gp_poll_import){.space = 1, .address = 0x5000 + imports};
    return imports && imports--;
}

STANDIN(void, gp_feed_poll_import, const struct gp_poll_import *import, uint64_t bytes)
{
    feed_note("import %lx has %lu", (unsigned long)import->address, (unsigned long)bytes);
}

STANDIN(bool, gp_feed_poll_oom_enter, uint64_t *context)
{
    *context = oom_context;
    return oom_context != 0;
}

STANDIN(void, gp_feed_poll_oom_leave, int64_t free_bytes, int64_t total_bytes)
{
    feed_note("free %ld of %ld", (long)free_bytes, (long)total_bytes);
    oom_context = 0;
}

STANDIN(bool, gp_feed_poll_oom_report, struct gp_wire_oom *out, struct gp_wire_oom_framework *framework)
{
    *framework = (struct gp_wire_oom_framework){0};
    *out = (struct gp_wire_oom){.device = oom_device};
    return has_report;
}

STANDIN(size_t, gp_oom_page, char *out, size_t out_bytes, const struct gp_oom_facts *facts)
{
    cr_assert_eq(facts->untracked_bytes, -1);
    return (size_t)snprintf(out, out_bytes, "one\n\n%d of %ld\n", facts->oom->device, (long)facts->total_bytes);
}

STANDIN(bool, gp_before_look, bool (*ask)(uint64_t address, struct gp_before_range *out),
        uint32_t (*number)(void *context))
{
    struct gp_before_range range = {.address = 5, .bytes = 5, .device = 55, .context = &range, .counts = true};
    bool known = ask(0x3010, &range);
    feed_note("range %d at %lx of %lu device %d context %lx counts %d number %d", known, (unsigned long)range.address,
              (unsigned long)range.bytes, range.device, (unsigned long)(uintptr_t)range.context, range.counts,
              number == gp_call_ask_number);
    return known;
}

STANDIN(void, gp_feed_before_end, bool complete)
{
    feed_note("before end %d", complete);
}

STANDIN(bool, gp_cupti_beat, int (*count)(int *))
{
    feed_note("beat%s", count ? "" : " without");
    return false;
}

STANDIN(void, gp_log, enum gp_log_level level, const char *format, ...)
{
    va_list arguments;
    char line[256];
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    feed_note("log %d %s", level, line);
}

static void *(*poll_main)(void *);
static int worker_error;

STANDIN(int, gp_worker_start, void *(*main)(void *), const char *name)
{
    cr_assert_str_eq(name, "gpuprof-poll");
    poll_main = main;
    return worker_error;
}

/* Changes of the source, of which nothing is wanted. */
STANDIN(void, gp_handover_look, void)
{
}

STANDIN(void, gp_cupti_gap_holds, uint64_t bytes)
{
    (void)bytes;
}

/* ---- running it -------------------------------------------------------------------------------------------------- */

static void at(uint64_t ms, void (*happens)(void))
{
    plan[planned++] = (struct event){ms, happens};
}

static void begin(void)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    is_virtual = true;
    now_ns = start_ns;
    cr_assert_eq(gp_poll_start(), 0);
}

static void run(const char *want)
{
    cr_assert_null(poll_main(NULL));
    const char *is = feed_taken();
    cr_expect_str_eq(is, want, "%s\n---- not:%s", is, want);
}

/* The times of the rounds alone. */
static void run_times(const char *want)
{
    char times[256] = "";
    cr_assert_null(poll_main(NULL));
    const char *text = feed_taken();
    for (const char *line = strchr(text, '\n'); line; line = strchr(line + 1, '\n'))
        snprintf(times + strlen(times), sizeof(times) - strlen(times), "%lu ", strtoul(line + 1, NULL, 10));
    cr_expect_str_eq(times, want, "%s, not %s", times, want);
}

TestSuite(polltime, .timeout = 60);

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

Test(polltime, what_is_asked_in_which_order)
{
    devices = 5;
    wanted = GP_POLL_POOLS | GP_POLL_GRAPHS;
    pools[0].pool = 0xe0;
    pools[1].pool = 0xe9;
    pool_count = 2;
    imports = 3;
    oom_context = 0xc0;
    at(10, gp_poll_end);
    begin();
    run("\n0: round;version 0 0;mode 2 0;"
        "push c0 0;info 0 0;pop 0 0;free 30 of 50;beat;"
        "get 0 0;uuid 28 0;name 28 0;total 28 0;device 0 is 40 40 63 1040;"
        "get 2 0;uuid 2a 0;name 2a 0;total 2a 0;device 2 is 42 42 63 1042;"
        "pointer c 5003;import 5003 has 100;pointer c 5002;import 5002 has 100;pointer c 5001;import 5001 has 1;"
        "begin 0;begin 2;"
        "default 0 0;named pool e0 device 0;default 2 0;"
        "enter e0;pool e0 5;pool e0 6;pool e0 has 1 high 2;leave;"
        "enter e9;pool e9 5;pool e9 6;pool e9 has 3 high 4;leave;"
        "graph 0 0;graph 0 2;graph 0 1;graph 0 3;graphs of 0 have 5 high 7 of 6 high 8;"
        "graph 2 0;graph 2 2;graph 2 1;graph 2 3;graphs of 2 have 9 high 11 of 10 high 12;"
        "end 0;end 2;");
    cr_expect_eq(gp_poll_driver_version(), 13010);
}

static void want_nothing(void)
{
    gp_poll_wake();
}

static void want_graphs(void)
{
    wanted = GP_POLL_GRAPHS;
    gp_poll_wake();
}

static void want_pools(void)
{
    wanted = GP_POLL_POOLS;
    gp_poll_wake();
}

/* Of pools and graphs only those are asked that ever had an event; a device, its version and the mode once. */
Test(polltime, only_what_had_an_event_is_asked)
{
    at(200, want_graphs);
    at(250, want_nothing);
    at(700, want_nothing);
    at(1000, want_pools);
    at(1001, gp_poll_end);
    begin();
    run("\n0: round;version 0 0;mode 2 0;beat;get 0 0;uuid 28 0;name 28 0;total 28 0;device 0 is 40 40 63 1040;"
        "\n200: round;beat;begin 0;graph 0 0;graph 0 2;graph 0 1;graph 0 3;"
        "graphs of 0 have 1 high 3 of 2 high 4;end 0;"
        "\n300: round;beat;begin 0;graph 0 0;graph 0 2;graph 0 1;graph 0 3;"
        "graphs of 0 have 5 high 7 of 6 high 8;end 0;"
        "\n400: round;beat;begin 0;graph 0 0;graph 0 2;graph 0 1;graph 0 3;"
        "graphs of 0 have 9 high 11 of 10 high 12;end 0;"
        "\n500: round;beat;begin 0;graph 0 0;graph 0 2;graph 0 1;graph 0 3;"
        "graphs of 0 have 13 high 15 of 14 high 16;end 0;"
        "\n700: round;beat;begin 0;graph 0 0;graph 0 2;graph 0 1;graph 0 3;"
        "graphs of 0 have 17 high 19 of 18 high 20;end 0;"
        "\n1000: round;beat;begin 0;default 0 0;named pool e0 device 0;graph 0 0;graph 0 2;graph 0 1;graph 0 3;"
        "graphs of 0 have 21 high 23 of 22 high 24;end 0;");
}

/* Until the program has a device, a driver and the mode, nothing is asked; a new device is looked at at once. */
static void devices_come(void)
{
    devices = 1;
    gp_poll_wake();
}

static void driver_comes(void)
{
    no_driver = false;
    fails = "mode";
    gp_poll_wake();
}

static void mode_comes(void)
{
    fails = "";
    gp_poll_wake();
}

Test(polltime, nothing_is_asked_too_early)
{
    devices = 0;
    no_driver = true;
    at(10, devices_come);
    at(400, driver_comes);
    at(600, mode_comes);
    at(601, gp_poll_end);
    begin();
    run("\n0: round;\n10: round;\n400: round;version 0 0;mode 2 0;\n600: round;mode 2 0;beat;"
        "get 0 0;uuid 28 0;name 28 0;total 28 0;device 0 is 40 40 63 1040;");
}

/* A pool that was destroyed meanwhile is not asked about; the check of CUPTI has to do without a function. */
Test(polltime, a_pool_that_is_gone)
{
    pool_is_gone = true;
    pools[0].pool = 0xe9;
    pool_count = 1;
    wanted = GP_POLL_POOLS;
    at(1, gp_poll_end);
    lacks = "count";
    begin();
    run("\n0: round;version 0 0;mode 2 0;beat without;get 0 0;uuid 28 0;name 28 0;total 28 0;device 0 is 40 40 63 1040;"
        "begin 0;default 0 0;named pool e0 device 0;enter e9;end 0;");
}

/* ---- the log of a failure ---------------------------------------------------------------------------------------- */

static void next_report(void)
{
    static const int ordinals[] = {-1, GP_WIRE_GPUS, GP_WIRE_GPUS - 1, 0};
    static unsigned next;
    oom_device = ordinals[next++];
    has_report = true;
    wanted = GP_POLL_OOM;
    gp_poll_wake();
}

Test(polltime, a_failure_is_logged_with_the_devices_size)
{
    devices = 0;
    for (unsigned i = 1; i <= 4; i++)
        at(i * 1000, next_report);
    at(9000, gp_poll_end);
    begin();
    run("\n0: round;\n1000: round;log 3 one;log 3 -1 of -1;\n2000: round;log 3 one;log 3 64 of -1;"
        "\n3000: round;version 0 0;mode 2 0;get 3f 0;total 67 0;log 3 one;log 3 63 of 1103;"
        "\n4000: round;get 0 0;total 28 0;log 3 one;log 3 0 of 1040;");
}

Test(polltime, without_a_report_nothing_is_logged)
{
    devices = 0;
    wanted = GP_POLL_OOM;
    at(1, gp_poll_end);
    begin();
    run("\n0: round;");
}

/* ---- when -------------------------------------------------------------------------------------------------------- */

/* At once, and not again within a period of the last round; then it sleeps. */
Test(polltime, rounds_have_a_period)
{
    at(50, want_nothing);
    at(60, want_nothing);
    at(99, want_nothing);
    at(101, want_nothing);
    at(350, want_nothing);
    at(1000, want_nothing);
    at(1001, want_nothing);
    at(5000, gp_poll_end);
    begin();
    run_times("0 100 200 350 1000 1100 ");
}

/* Three rounds more after the last event of pools or graphs; then every 10 s, for a reader. */
Test(polltime, rounds_go_on_after_an_event)
{
    at(300, want_pools);
    at(1000, want_graphs);
    at(1150, want_graphs);
    at(25000, gp_poll_end);
    is_followed = true;
    begin();
    run_times("0 300 400 500 600 1000 1100 1200 1300 1400 1500 11500 21500 ");
}

static void events_come(void)
{
    wanted = GP_POLL_DEVICES;
    gp_poll_wake();
}

/* An event during a round is looked at after it, when the period is over. */
Test(polltime, events_during_a_round)
{
    inside = events_come;
    inside_at = 3;
    at(1000, gp_poll_end);
    begin();
    run_times("0 100 ");
}

static void ask_at_once(void)
{
    cr_expect_not(gp_poll_now(0), "there was no time");
}

/* A viewer's request is not kept waiting. */
Test(polltime, a_request_is_answered_at_once)
{
    at(20, ask_at_once);
    at(150, want_nothing);
    at(170, ask_at_once);
    at(171, ask_at_once);
    at(1000, gp_poll_end);
    begin();
    run_times("0 20 150 170 171 ");
}

static void library_ends(void)
{
    gp_thread_life_end();
    gp_poll_wake();
}

Test(polltime, it_ends_with_the_library)
{
    at(250, library_ends);
    begin();
    run_times("0 ");
}

/* ---- waits for it ------------------------------------------------------------------------------------------------ */

static uint64_t waited_ms(void)
{
    uint64_t ms = (now_ns - start_ns) / MS;
    start_ns = now_ns;
    return ms;
}

Test(polltime, each_wait_has_a_deadline)
{
    is_virtual = true;
    now_ns = start_ns;
    cr_expect_not(gp_poll_now(50 * MS), "there is no poller");
    gp_poll_scan(50 * MS);
    cr_expect_eq(waited_ms(), 0);
    worker_error = -11;
    cr_expect_eq(gp_poll_start(), -11);
    cr_expect_not(gp_poll_now(50 * MS));
    gp_poll_scan(50 * MS);
    cr_expect_eq(waited_ms(), 0);
    worker_error = 0;
    cr_expect_eq(gp_poll_start(), 0);
    cr_expect_not(gp_poll_now(50 * MS));
    cr_expect_eq(waited_ms(), 50);
    gp_poll_scan(70 * MS);
    cr_expect_eq(waited_ms(), 70);
    gp_poll_stop();
    cr_expect_eq(waited_ms(), 0, "no call is under way");
    cr_expect_not(gp_poll_now(50 * MS), "it is stopped");
    cr_expect_eq(waited_ms(), 0);
}

static void stop(void)
{
    uint64_t before = now_ns;
    gp_poll_stop();
    cr_expect_eq(now_ns - before, 20 * MS, "a call is under way");
    feed_note("stopped");
}

/* What is reported after the stop, in a process of its own: false, if the driver is asked, or half an answer is passed on. */
static bool stops_at(unsigned number)
{
    static const char *const never[] = {"device ", "graphs ", "pool ",    "get ",     "uuid ",
                                        "name ",   "total ",  "mode ",    "graph ",   "push ",
                                        "info ",   "pop ",    "version ", "default ", "pointer "};
    inside_at = number;
    begin();
    poll_main(NULL);
    char *text = strstr(feed_text, "stopped;");
    bool good = text != NULL;
    for (char *item = text ? strtok(text, ";") : NULL; item; item = strtok(NULL, ";"))
        for (unsigned i = 0; i < sizeof(never) / sizeof(never[0]); i++)
            good &= strncmp(item, never[i], strlen(never[i])) != 0;
    return good;
}

/* Stopped during any call, the poller makes no other one, and its thread ends. */
Test(polltime, nothing_is_asked_after_a_stop)
{
    wanted = GP_POLL_POOLS | GP_POLL_GRAPHS;
    pools[0].pool = 0xe9;
    pool_count = 1;
    imports = 1;
    oom_context = 0xc0;
    inside = stop;
    for (unsigned i = 1; i <= 17; i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
            _exit(stops_at(i) ? 0 : 1);
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_expect_eq(status, 0, "call %u", i);
    }
}

/* ---- what was there before an attach ----------------------------------------------------------------------------- */

static void scan(void)
{
    gp_poll_scan(0);
}

static void scan_other(void)
{
    scan_type = 1;
    gp_poll_scan(0);
}

static void scan_managed_memory(void)
{
    scan_type = GP_CU_MEMORY_DEVICE;
    scan_managed = 1;
    gp_poll_scan(0);
}

static void scan_in_vain(void)
{
    fails = "pointers";
    gp_poll_scan(0);
}

/* Once for each request, after the calls that were under way have had 5 ms; then the round begins. */
Test(polltime, memory_from_before)
{
    devices = 0;
    at(1000, scan);
    at(2000, want_nothing);
    at(3000, scan_other);
    at(4000, scan_managed_memory);
    at(5000, scan_in_vain);
    at(6000, gp_poll_end);
    begin();
#define RANGE     "pointers 6 3010;range 1 at 3000 of 300 device 3 context c3 counts "
    run("\n0: round;version 0 0;mode 2 0;" RANGE "1 number 1;before end 1;\n1005: round;\n2000: round;" RANGE
        "0 number 1;before end 1;\n3005: round;" RANGE "0 number 1;before end 1;\n4005: round;"
        "pointers 6 3010;range 0 at 0 of 0 device -1 context 0 counts 0 number 1;before end 0;\n5005: round;");
}

/* What cannot be asked is not, and the wait for it ends. */
Test(polltime, without_the_means_nothing_is_looked_for)
{
    devices = 0;
    lacks = "pointers";
    at(1000, scan);
    at(9000, gp_poll_end);
    begin();
    run("\n0: round;version 0 0;\n1000: round;");
}

#endif
