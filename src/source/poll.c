/* SPDX-License-Identifier: MIT
 *
 * poll.c: queries that only the driver can answer: the reserve of pools and graphs, the size of an
 * import, the identity of devices.  CUDA forbids such calls in callbacks, so a thread of ours makes
 * them, in relaxed capture mode (a query must not invalidate a capture) and with its own callbacks
 * ignored.  It sleeps until a callback or a viewer needs it.
 */
#include "account/feed/poll.h"
#include "account/feed/before.h"
#include "account/feed/feed.h"
#include "account/feed/want.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/futex.h"
#include "base/kept.h"
#include "base/loader.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/worker.h"
#include "oom/oom.h"
#include "source/abi.h"
#include "source/before.h"
#include "source/internal.h"
#include "source/source.h"
#include <dlfcn.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <stdlib.h>
#include <string.h>

/* Reserves change after the last event too (a pool gives memory back at the next synchronisation):
 * query again at these steps, then sleep.  A person can see 10 updates per second; three queries
 * cover the synchronisation after the last free of a step. */
#define GP_POLL_PERIOD_NS 100000000ull
#define GP_POLL_TRAIL     3
#define GP_POLL_BEAT_NS   10000000000ull
#define GP_POLL_DOORS_NS  1000000000ull

/* No thread of the program waits for us longer than this. */
#define GP_POLL_PATIENCE_NS 20000000ull
/* But on a busy machine our thread may run only after this time; the exit waits for that too. */
#define GP_POLL_LATE_NS 200000000ull

struct gp_driver {
    int (*version)(int *);
    int (*device_count)(int *);
    int (*device_get)(int *, int);
    int (*device_uuid)(uint8_t *, int);
    int (*device_name)(char *, int, int);
    int (*device_total)(size_t *, int);
    int (*device_attribute)(int *, int, int);
    int (*device_default_pool)(void **, int);
    int (*pool_get)(void *, int, void *);
    int (*graph_get)(int, int, void *);
    int (*pointer_get)(void *, int, uint64_t);
    int (*pointer_get_all)(unsigned, int *, void **, uint64_t);
    int (*exchange_capture_mode)(int *);
    int (*context_push)(void *);
    int (*context_pop)(void **);
    int (*memory_info)(size_t *, size_t *);
};

static struct gp_driver driver;
static uint32_t x_ring;     /* doorbell */
static uint32_t x_asked;    /* viewers' requests */
static uint32_t x_noticed;  /* the last request that the thread has seen */
static uint32_t x_answered; /* the last request that is done */
static uint32_t x_version;
static uint32_t x_running;
static uint32_t x_busy; /* inside a driver call */
static uint32_t x_stopped;
static uint32_t x_polls;      /* pools or graphs are queried: their reserves are known by polls alone */
static uint32_t x_unnamed;    /* a device's name and size are not known yet */
static uint32_t x_registered; /* poll_last is an exit handler */
GP_KEEP(x_registered);

static const struct gp_poll_turns *poll_turns; /* set before the thread is started */

/* Every call of the poller goes through this.  [stop.B] the flag, then the look at x_stopped;
 * gp_poll_stop does it the other way round: one of the two sees the other. */
static bool ask_enter(void)
{
    __atomic_store_n(&x_busy, 1, __ATOMIC_SEQ_CST);
    if (GP_LIKELY(!__atomic_load_n(&x_stopped, __ATOMIC_SEQ_CST) && gp_feed_poll_ask()))
        return true;
    __atomic_store_n(&x_busy, 0, __ATOMIC_SEQ_CST);
    return false;
}

static int ask_leave(int result)
{
    if (GP_UNLIKELY(result == GP_CU_CAPTURE_UNSUPPORTED))
        gp_feed_poll_refused();
    __atomic_store_n(&x_busy, 0, __ATOMIC_SEQ_CST);
    if (GP_UNLIKELY(__atomic_load_n(&x_stopped, __ATOMIC_SEQ_CST)))
        gp_futex_wake(&x_busy);
    return result;
}

/* The result of a driver call; -1, which no call returns, once the program exits or may not be asked any more. */
#define GP_ASK(_call) (ask_enter() ? ask_leave(driver._call) : -1)

static bool driver_bind(void)
{
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {
        {"cuDriverGetVersion", offsetof(struct gp_driver, version)},
        {"cuDeviceGetCount", offsetof(struct gp_driver, device_count)},
        {"cuDeviceGet", offsetof(struct gp_driver, device_get)},
        {"cuDeviceGetUuid_v2", offsetof(struct gp_driver, device_uuid)},
        {"cuDeviceGetName", offsetof(struct gp_driver, device_name)},
        {"cuDeviceTotalMem_v2", offsetof(struct gp_driver, device_total)},
        {"cuDeviceGetAttribute", offsetof(struct gp_driver, device_attribute)},
        {"cuDeviceGetDefaultMemPool", offsetof(struct gp_driver, device_default_pool)},
        {"cuMemPoolGetAttribute", offsetof(struct gp_driver, pool_get)},
        {"cuDeviceGetGraphMemAttribute", offsetof(struct gp_driver, graph_get)},
        {"cuPointerGetAttribute", offsetof(struct gp_driver, pointer_get)},
        {"cuPointerGetAttributes", offsetof(struct gp_driver, pointer_get_all)},
        {"cuThreadExchangeStreamCaptureMode", offsetof(struct gp_driver, exchange_capture_mode)},
        {"cuCtxPushCurrent_v2", offsetof(struct gp_driver, context_push)},
        {"cuCtxPopCurrent_v2", offsetof(struct gp_driver, context_pop)},
        {"cuMemGetInfo_v2", offsetof(struct gp_driver, memory_info)},
    };
    if (driver.version)
        return true;
    /* The program has loaded the driver, or there would be no event: never load a second one. */
    void *handle = GP_LOADER(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD));
    if (!handle)
        return false;
    for (size_t i = 0; i < GP_COUNT(symbols); i++)
        *(void **)((char *)&driver + symbols[i].offset) = GP_LOADER(dlsym(handle, symbols[i].name));
    int version = 0;
    if (driver.version && GP_ASK(version(&version)) == 0)
        __atomic_store_n(&x_version, (uint32_t)version, __ATOMIC_RELAXED);
    return driver.version != NULL;
}

/* False until this thread is in relaxed mode: before that a query could invalidate a capture. */
static bool driver_relaxed(void)
{
    static bool relaxed;
    int mode = GP_CU_CAPTURE_RELAXED;
    if (!relaxed)
        relaxed = driver.exchange_capture_mode && GP_ASK(exchange_capture_mode(&mode)) == 0;
    return relaxed;
}

/* The program exits, or nothing may be asked any more. */
static bool is_over(void)
{
    return __atomic_load_n(&x_stopped, __ATOMIC_RELAXED) || gp_feed_poll_silent();
}

static int64_t device_attribute(int device, int attribute)
{
    int value = 0;
    return driver.device_attribute && GP_ASK(device_attribute(&value, attribute, device)) == 0 ? value : 0;
}

static void poll_devices(uint64_t devices)
{
    static uint64_t known;
    for (int i = 0; i < (int)GP_WIRE_GPUS; i++) {
        uint8_t uuid[16] = {0};
        char name[64] = "";
        size_t total = 0;
        int device;
        if (!(devices >> i & 1) || known >> i & 1 || !driver.device_get || GP_ASK(device_get(&device, i)) != 0)
            continue;
        if (driver.device_uuid)
            GP_ASK(device_uuid(uuid, device));
        if (driver.device_name)
            GP_ASK(device_name(name, sizeof(name), device));
        bool sized = driver.device_total && GP_ASK(device_total(&total, device)) == 0;
        int64_t threads = device_attribute(device, GP_CU_DEVICE_MULTIPROCESSORS) *
                          device_attribute(device, GP_CU_DEVICE_THREADS_EACH);
        if (is_over()) /* the answers are incomplete */
            return;
        gp_feed_poll_device(i, uuid, name, sized ? (int64_t)total : -1, threads);
        known |= 1ull << i;
    }
    __atomic_store_n(&x_unnamed, 0, __ATOMIC_RELAXED);
}

static int64_t pool_attribute(void *pool, int attribute)
{
    uint64_t value = 0;
    return GP_ASK(pool_get(pool, attribute, &value)) == 0 ? (int64_t)value : -1;
}

static void poll_pool(uint64_t pool)
{
    if (!gp_feed_poll_enter(pool))
        return; /* destroyed meanwhile */
    void *handle = (void *)(uintptr_t)pool;
    int64_t reserved = pool_attribute(handle, GP_CU_POOL_RESERVED_CURRENT);
    int64_t high = pool_attribute(handle, GP_CU_POOL_RESERVED_HIGH);
    if (reserved >= 0 && !is_over())
        gp_feed_poll_pool(pool, reserved, high);
    gp_feed_poll_leave();
}

static void poll_pools(uint64_t devices)
{
    struct gp_poll_pool
        pools[256]; /* more pools than that in one process are polled in part: none is known to make ten */
    /* Only default pools are looked up: they cannot be destroyed.  Every other pool's creation was
     * seen. */
    for (int i = 0; i < (int)GP_WIRE_GPUS; i++) {
        void *pool = NULL;
        if (!(devices >> i & 1))
            continue;
        if (driver.device_default_pool && GP_ASK(device_default_pool(&pool, i)) == 0 && pool)
            gp_feed_pool_default((uint64_t)(uintptr_t)pool, i);
    }
    unsigned count = driver.pool_get ? gp_feed_poll_pools(pools, GP_COUNT(pools)) : 0;
    for (unsigned i = 0; i < count; i++)
        if (pools[i].device >= (int)GP_WIRE_GPUS || devices >> pools[i].device & 1)
            poll_pool(pools[i].pool);
}

static int64_t graph_attribute(int device, int attribute)
{
    uint64_t value = 0;
    return GP_ASK(graph_get(device, attribute, &value)) == 0 ? (int64_t)value : -1;
}

static void poll_graphs(uint64_t devices)
{
    for (int i = 0; driver.graph_get && i < (int)GP_WIRE_GPUS; i++) {
        if (!(devices >> i & 1))
            continue;
        int64_t used = graph_attribute(i, GP_CU_GRAPH_USED_CURRENT),
                reserved = graph_attribute(i, GP_CU_GRAPH_RESERVED_CURRENT);
        int64_t used_high = graph_attribute(i, GP_CU_GRAPH_USED_HIGH),
                reserved_high = graph_attribute(i, GP_CU_GRAPH_RESERVED_HIGH);
        if (used >= 0 && reserved >= 0 && !is_over())
            gp_feed_poll_graph(i, used, used_high, reserved, reserved_high);
    }
}

static void poll_imports(void)
{
    struct gp_poll_import import;
    while (driver.pointer_get && gp_feed_poll_import_next(&import)) {
        size_t bytes = 0;
        if (GP_ASK(pointer_get(&bytes, GP_CU_POINTER_RANGE_SIZE, import.address)) == 0 && bytes)
            gp_feed_poll_import(&import, bytes);
    }
}

/* ---- what was there before an attach ----------------------------------------------------------------------------- */

enum { SCAN_NONE, SCAN_WANTED, SCAN_DONE };
static uint32_t x_scan;

/* The driver's range of virtual memory is all that the program reserved, mapped or not: a part is one mapping, or a hole.
 * Of other memory a mapping may be larger. */
static void scan_narrow(uint64_t address, bool mapped, struct gp_before_range *range)
{
    uint64_t base = 0, end = range->address + range->bytes;
    size_t size = 0;
    if (!driver.pointer_get)
        return;
    if (GP_ASK(pointer_get(&base, GP_CU_POINTER_MAPPING_BASE, address)) == 0 &&
        GP_ASK(pointer_get(&size, GP_CU_POINTER_MAPPING_SIZE, address)) == 0 && size && address - base < size) {
        end = base + size < end ? base + size : end;
        range->address = base > range->address ? base : range->address;
        range->bytes = end - range->address;
    } else if (!mapped) {
        range->bytes = 0;
    }
}

/* Unlike its single form this call succeeds for an address that the driver does not know, with zeros. No
 * context needs to be current. */
static bool scan_ask(uint64_t address, struct gp_before_range *out)
{
    int attributes[] = {GP_CU_POINTER_RANGE_START, GP_CU_POINTER_RANGE_SIZE, GP_CU_POINTER_DEVICE,
                        GP_CU_POINTER_CONTEXT,     GP_CU_POINTER_IS_MANAGED, GP_CU_POINTER_MEMORY_TYPE,
                        GP_CU_POINTER_MAPPED};
    uint32_t managed = 0, type = 0, mapped = 0; /* a driver may write one byte of those that are true or false */
    size_t bytes = 0;
    *out = (struct gp_before_range){.device = -1};
    void *answers[] = {&out->address, &bytes, &out->device, &out->context, &managed, &type, &mapped};
    if (!gp_thread_life_on() || GP_ASK(pointer_get_all(GP_COUNT(attributes), attributes, answers, address)) != 0)
        return false;
    out->bytes = bytes;
    out->counts = type == GP_CU_MEMORY_DEVICE && !managed;
    if (bytes && (out->counts || type == 0))
        scan_narrow(address, mapped, out);
    return true;
}

static void poll_scan(void)
{
    const uint64_t in_flight_ns = 5000000; /* calls that began before the source was there have ended */
    if (__atomic_load_n(&x_scan, __ATOMIC_ACQUIRE) != SCAN_WANTED) /* [scan.A] pairs with [scan.R] */
        return;
    if (driver_bind() && driver.pointer_get_all && driver_relaxed()) {
        gp_futex_wait(&x_stopped, 0, in_flight_ns);
        gp_feed_before_end(gp_before_look(scan_ask, gp_call_ask_number));
    }
    __atomic_store_n(&x_scan, SCAN_DONE, __ATOMIC_RELEASE);
    gp_futex_wake(&x_scan);
}

void gp_poll_scan(uint64_t timeout_ns)
{
    uint64_t now = gp_clock_ns(), deadline = now + timeout_ns;
    if (!__atomic_load_n(&x_running, __ATOMIC_ACQUIRE))
        return;
    __atomic_store_n(&x_scan, SCAN_WANTED, __ATOMIC_RELEASE); /* [scan.R] the source; pairs with [scan.A] */
    gp_poll_wake();
    for (; __atomic_load_n(&x_scan, __ATOMIC_ACQUIRE) == SCAN_WANTED && now < deadline; now = gp_clock_ns())
        gp_futex_wait(&x_scan, SCAN_WANTED, deadline - now);
}

/* ---- after a time without callbacks -------------------------------------------------------------------------------- */

static uint64_t gap_at, gap_bytes;

static bool gap_ask(uint64_t address, struct gp_before_range *out)
{
    if (!scan_ask(address, out))
        return false;
    if (out->counts && out->bytes && out->address != gap_at && !gp_feed_is_known(out->address))
        gap_bytes += out->bytes;
    gap_at = out->address;
    out->counts = false; /* the accounts do not take it: nothing will tell of its end */
    return true;
}

static void poll_gap(void)
{
    gap_at = gap_bytes = 0;
    if (!driver.pointer_get_all)
        return;
    gp_before_look(gap_ask, NULL);
    poll_turns->gap(gap_bytes);
}

/* Events of a framework that are replayed while the failing thread waits: some milliseconds. */
#define GP_REPLAY_SHORT 4096u

/* Reads the free memory after a failed request: as soon as possible, and in its context. */
static void poll_oom(void)
{
    uint64_t context;
    size_t free_bytes = 0, total_bytes = 0;
    bool known = false;
    if (!driver.context_push || !driver.context_pop || !driver.memory_info || !gp_feed_poll_oom_enter(&context))
        return;
    if (GP_ASK(context_push((void *)(uintptr_t)context)) == 0) {
        void *popped;
        known = GP_ASK(memory_info(&free_bytes, &total_bytes)) == 0;
        GP_ASK(context_pop(&popped));
    }
    gp_feed_poll_oom_leave(known ? (int64_t)free_bytes : -1, known ? (int64_t)total_bytes : -1);
}

static int64_t poll_device_total(int ordinal)
{
    size_t total = 0;
    int device;
    bool known = ordinal >= 0 && ordinal < (int)GP_WIRE_GPUS && driver_bind() && driver_relaxed() &&
                 driver.device_get && driver.device_total && GP_ASK(device_get(&device, ordinal)) == 0 &&
                 GP_ASK(device_total(&total, device)) == 0;
    return known ? (int64_t)total : -1;
}

/* Not in the callback of the failed call: writing a log may block, and a callback must not. */
static void poll_oom_log(void)
{
    struct gp_wire_oom oom;
    struct gp_wire_oom_framework framework;
    char page[GP_OOM_PAGE_BYTES], *rest = page, *line;
    if (!gp_feed_poll_oom_report(&oom, &framework))
        return;
    gp_oom_page(
        page, sizeof(page),
        &(struct gp_oom_facts){
            .oom = &oom, .framework = &framework, .total_bytes = poll_device_total(oom.device), .untracked_bytes = -1});
    while ((line = strsep(&rest, "\n")))
        if (*line)
            gp_log(GP_LOG_INFO, "%s", line);
}

static void poll_around(uint64_t devices, unsigned ever, void (*note)(int device))
{
    for (int i = 0; i < (int)GP_WIRE_GPUS && ever & (GP_POLL_POOLS | GP_POLL_GRAPHS); i++)
        if (devices >> i & 1)
            note(i);
}

static void poll_reserves(uint64_t devices, unsigned ever)
{
    if (ever & GP_POLL_POOLS)
        poll_pools(devices);
    if (ever & GP_POLL_GRAPHS)
        poll_graphs(devices);
}

static void poll_last(void);

void gp_poll_expect(void)
{
    if (__atomic_load_n(&x_registered, __ATOMIC_RELAXED) || __atomic_exchange_n(&x_registered, 1, __ATOMIC_RELAXED))
        return;
    __atomic_store_n(&x_unnamed, 1, __ATOMIC_RELAXED);
    atexit(poll_last);
}

/* Pools and graphs are queried only after an event of theirs: the first query may make the driver
 * create them. False: not now. */
static bool poll_once(unsigned wanted, unsigned *ever)
{
    uint64_t devices = gp_feed_devices();
    *ever |= wanted;
    if (gp_call_is_loading())
        return false;
    if (!devices || !driver_bind() || !driver_relaxed()) /* no device yet: the program is still inside cuInit */
        return true;
    gp_poll_expect();
    poll_oom();
    gp_feed_poll_oom_replay(GP_REPLAY_SHORT);
    poll_turns->handover();
    if (gp_feed_poll_silent())
        return true;
    if (poll_turns->beat(driver.device_count))
        poll_gap();
    poll_devices(devices);
    poll_imports();
    poll_around(devices, *ever, gp_feed_poll_begin);
    if (*ever & (GP_POLL_POOLS | GP_POLL_GRAPHS))
        __atomic_store_n(&x_polls, 1, __ATOMIC_RELAXED);
    poll_reserves(devices, *ever);
    uint64_t again = 0;
    for (unsigned i = 0; i < GP_WIRE_GPUS; i++)
        again |= devices >> i & 1 && gp_feed_poll_again((int)i) ? 1ull << i : 0;
    if (again)
        poll_reserves(again, *ever);
    poll_around(devices, *ever, gp_feed_poll_end);
    return true;
}

static void (*x_check)(void);
static uint32_t x_checked; /* the last check is over */

void gp_poll_check(void (*check)(void))
{
    __atomic_store_n(&x_check, check, __ATOMIC_RELEASE); /* [check.R] release: the source; pairs with [check.A] */
}

static void poll_check(void)
{
    void (*check)(void) = __atomic_load_n(&x_check, __ATOMIC_ACQUIRE); /* [check.A] acquire: pairs with [check.R] */
    if (check)
        check();
}

/* It goes into libraries of the program, which end as the driver does.  A recording must have what they said last. */
static void poll_doors(bool asked)
{
    static uint64_t next_ns; /* of this thread */
    uint64_t now = gp_clock_ns();
    bool due = gp_feed_followed() && now >= next_ns;
    if ((!asked && !due) || !gp_feed_poll_doors(false) || !ask_enter())
        return;
    next_ns = now + GP_POLL_DOORS_NS;
    gp_feed_poll_doors(true);
    ask_leave(0);
}

static void poll_round(unsigned *ever, unsigned *trail)
{
    poll_scan();
    /* Requests made before this read are answered by the poll that follows it. */
    uint32_t asked = __atomic_load_n(&x_asked, __ATOMIC_ACQUIRE);
    bool urgent = asked != __atomic_load_n(&x_answered, __ATOMIC_RELAXED);
    if (urgent) {
        __atomic_store_n(&x_noticed, asked, __ATOMIC_RELAXED);
        gp_futex_wake(&x_answered);
        poll_check();
    }
    poll_doors(urgent);
    unsigned wanted = gp_feed_poll_wanted();
    if (wanted & (GP_POLL_POOLS | GP_POLL_GRAPHS))
        *trail = GP_POLL_TRAIL;
    else if (*trail)
        (*trail)--;
    if (!poll_once(wanted, ever) && !*trail)
        *trail = 1;
    if (wanted & GP_POLL_OOM)
        poll_oom_log();
    if (asked != __atomic_load_n(&x_answered, __ATOMIC_RELAXED)) {
        /* [poll.R] release: the results of the poll; pairs with [poll.A]. */
        __atomic_store_n(&x_answered, asked, __ATOMIC_RELEASE);
        gp_feed_poll_late(false);
        gp_futex_wake(&x_answered);
    }
    gp_feed_poll_oom_replay(UINT32_MAX);
}

/* While a reader follows the events, it must see that they end. */
static uint64_t poll_pause(unsigned trail)
{
    if (trail)
        return GP_POLL_PERIOD_NS;
    return gp_feed_followed() ? GP_POLL_BEAT_NS : UINT64_MAX;
}

static void *poll_main(void *arg)
{
    unsigned ever = 0, trail = 0;
    uint64_t last = 0, devices = 0;
    (void)arg;
    for (;;) {
        if (!gp_thread_life_on())
            return NULL;
        if (__atomic_load_n(&x_stopped, __ATOMIC_RELAXED)) {
            poll_check();
            /* [checked.R] release: what it found; pairs with [checked.A]. */
            __atomic_store_n(&x_checked, 1, __ATOMIC_RELEASE);
            gp_futex_wake(&x_checked);
            return NULL;
        }
        uint32_t seen = __atomic_load_n(&x_ring, __ATOMIC_ACQUIRE);
        uint32_t asked = __atomic_load_n(&x_asked, __ATOMIC_ACQUIRE);
        uint64_t now = gp_clock_ns();
        bool urgent = asked != __atomic_load_n(&x_answered, __ATOMIC_RELAXED);
        /* The program may be over within milliseconds: a device that is new is asked about at once. */
        uint64_t used = gp_feed_devices();
        urgent |= (used & ~devices) != 0;
        devices |= used;
        if (urgent || now - last >= GP_POLL_PERIOD_NS) {
            poll_round(&ever, &trail);
            last = gp_clock_ns();
        }
        /* Events that come while we work rang the bell: look again, but not sooner than a period
         * after the last look. */
        if (__atomic_load_n(&x_ring, __ATOMIC_ACQUIRE) == seen)
            gp_futex_wait(&x_ring, seen, poll_pause(trail));
        now = gp_clock_ns();
        if (now - last < GP_POLL_PERIOD_NS && !(gp_feed_devices() & ~devices) &&
            __atomic_load_n(&x_asked, __ATOMIC_ACQUIRE) == __atomic_load_n(&x_answered, __ATOMIC_RELAXED))
            gp_futex_wait(&x_asked, __atomic_load_n(&x_asked, __ATOMIC_ACQUIRE), GP_POLL_PERIOD_NS - (now - last));
    }
}

int gp_poll_start(const struct gp_poll_turns *turns)
{
    poll_turns = turns;
    int error = gp_worker_start(poll_main, "gpuprof-poll");
    __atomic_store_n(&x_running, error == 0, __ATOMIC_RELEASE);
    return error;
}

void gp_poll_wake(void)
{
    __atomic_fetch_add(&x_ring, 1, __ATOMIC_RELEASE);
    gp_futex_wake(&x_ring);
}

/* late_ns: how much longer while the thread has not seen the request and is not in the driver: then it waits for
 * a processor alone. */
static bool poll_now(uint64_t timeout_ns, uint64_t late_ns)
{
    if (!__atomic_load_n(&x_running, __ATOMIC_ACQUIRE))
        return false;
    uint32_t mine = __atomic_add_fetch(&x_asked, 1, __ATOMIC_ACQ_REL);
    gp_futex_wake(&x_asked);
    gp_poll_wake();
    uint64_t now = gp_clock_ns(), deadline = now + timeout_ns + late_ns;
    for (;; now = gp_clock_ns()) {
        /* [poll.A] acquire: pairs with [poll.R]. */
        uint32_t answered = __atomic_load_n(&x_answered, __ATOMIC_ACQUIRE);
        if ((int32_t)(answered - mine) >= 0) {
            gp_feed_poll_late(false);
            return true;
        }
        if (late_ns && ((int32_t)(__atomic_load_n(&x_noticed, __ATOMIC_RELAXED) - mine) >= 0 ||
                        __atomic_load_n(&x_busy, __ATOMIC_RELAXED))) {
            deadline = now + timeout_ns;
            late_ns = 0;
        }
        if (now >= deadline) {
            gp_feed_poll_late(true);
            return false;
        }
        gp_futex_wait(&x_answered, answered, deadline - now);
    }
}

bool gp_poll_now(uint64_t timeout_ns)
{
    return poll_now(timeout_ns, 0);
}

/* Wherever the thread sleeps. */
static void poll_rouse(void)
{
    __atomic_fetch_add(&x_asked, 1, __ATOMIC_RELEASE);
    gp_futex_wake(&x_asked);
    gp_poll_wake();
}

/* From here on no query begins.  A query takes microseconds, unless a call of the program makes it
 * wait in the driver, perhaps for ever.  In that case the program exits with its own thread in the
 * driver anyway, and ours makes no difference.  So the wait is bounded. */
static void poll_stop(uint64_t patience_ns)
{
    uint64_t now = gp_clock_ns(), deadline = now + patience_ns;
    bool checks = __atomic_exchange_n(&x_running, 0, __ATOMIC_ACQ_REL) && gp_thread_life_on() &&
                  __atomic_load_n(&x_check, __ATOMIC_RELAXED);
    __atomic_store_n(&x_stopped, 1, __ATOMIC_SEQ_CST); /* pairs with [stop.B] */
    for (; __atomic_load_n(&x_busy, __ATOMIC_SEQ_CST) && now < deadline; now = gp_clock_ns())
        gp_futex_wait(&x_busy, 1, deadline - now);
    if (checks)
        poll_rouse();
    /* [checked.A] acquire: pairs with [checked.R]. */
    for (; checks && !__atomic_load_n(&x_checked, __ATOMIC_ACQUIRE) && now < deadline; now = gp_clock_ns())
        gp_futex_wait(&x_checked, 0, deadline - now);
}

void gp_poll_stop(void)
{
    poll_stop(GP_POLL_PATIENCE_NS);
}

/* An exit handler: polls once more, if anything is polled, a device has no name or an import no size yet, for at most 20 ms
 * once the thread runs, and stops. */
static void poll_last(void)
{
    if (!gp_thread_life_on())
        return;
    if (__atomic_load_n(&x_polls, __ATOMIC_RELAXED) || __atomic_load_n(&x_unnamed, __ATOMIC_RELAXED) ||
        gp_feed_poll_import_waits() || gp_feed_poll_doors(false))
        poll_now(GP_POLL_PATIENCE_NS / 2, GP_POLL_LATE_NS);
    poll_stop(GP_POLL_PATIENCE_NS / 2);
}

void gp_poll_end(void)
{
    gp_poll_stop();
    poll_rouse();
}

uint32_t gp_poll_driver_version(void)
{
    return __atomic_load_n(&x_version, __ATOMIC_RELAXED);
}
