/* SPDX-License-Identifier: MIT
 *
 * pjrt.c: the pools of XLA (JAX). Its plugin exports one function, which returns a table of
 * functions, PJRT's C interface; nothing tells of its pieces. So the poller asks by the table what
 * XLA says of its allocator. For that it needs XLA's client, which is learned from calls that have
 * it: their entries of the table lead through functions here.
 *
 * A client must not end while it is asked. Who ends it takes it from the poller first, and waits
 * for an answer under way; should that not come, the client is leaked, not freed below its reader.
 *
 * PJRT's rule for the arguments: an implementation takes a struct that is larger than its own, and
 * none that is smaller.
 */
#include "account/feed/door.h"
#include "account/feed/feed.h"
#include "account/framework/internal.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/futex.h"
#include "base/kept.h"
#include "base/log.h"
#include <errno.h>
#include <gpuprof/wire.h>
#include <string.h>

/* By their places in the table, which only grows at its end. */
enum {
    PJRT_ERROR_DESTROY = 0,
    PJRT_CLIENT_DESTROY = 11,
    PJRT_CLIENT_DEVICES = 15,
    PJRT_CLIENT_ADDRESSABLE_DEVICES = 16,
    PJRT_CLIENT_COMPILE = 20,
    PJRT_CLIENT_BUFFER_FROM_HOST = 22,
    PJRT_DEVICE_LOCAL_ID = 31,
    PJRT_DEVICE_MEMORY_STATS = 34,
    PJRT_FUNCTIONS
};

/* All arguments begin so; then come the results. */
struct pjrt_args {
    size_t struct_size;
    void *extensions;
    void *object; /* the client, the device or the error */
    union {
        struct {
            void *const *list;
            size_t count;
        } devices;
        int local_id;
        struct pjrt_stats {
            int64_t in_use;
            struct pjrt_stat {
                int64_t value;
                bool is_set;
            } in_use_peak, allocations, largest, limit, reserved, reserved_peak, reservable, largest_free, pool,
                pool_peak;
        } stats;
        char room[512 - 3 * sizeof(void *)]; /* for what newer versions add */
    };
};

/* Returns an error, NULL if there is none. */
typedef void *pjrt_fn(struct pjrt_args *args);

struct pjrt_api {
    size_t struct_size;
    void *extensions;
    struct {
        size_t struct_size;
        void *extensions;
        int major, minor;
    } version;
    pjrt_fn *functions[PJRT_FUNCTIONS];
};

static pjrt_fn pjrt_destroy, pjrt_devices, pjrt_addressable, pjrt_compile, pjrt_buffer;
static pjrt_fn *const replacements[PJRT_FUNCTIONS] = {
    [PJRT_CLIENT_DESTROY] = pjrt_destroy,
    [PJRT_CLIENT_DEVICES] = pjrt_devices,
    [PJRT_CLIENT_ADDRESSABLE_DEVICES] = pjrt_addressable,
    [PJRT_CLIENT_COMPILE] = pjrt_compile,
    [PJRT_CLIENT_BUFFER_FROM_HOST] = pjrt_buffer,
};

/* It is only looked up. */
static struct gp_slot_import import = {.name = "GetPjrtApi", .definer = "xla_cuda_plugin", .importer = "(none)"};

static struct pjrt_api *api; /* whose entries were replaced; as `originals`, set before the first of them */
static pjrt_fn *originals[PJRT_FUNCTIONS];
GP_KEEP(api);
GP_KEEP(originals);
static uint32_t x_looked; /* at the table */
static void *x_client;    /* to ask; NULL: none is known */
static uint32_t x_asking; /* the poller is inside PJRT */

#define PJRT_PATIENCE_NS 1000000000ull

/* ---- what JAX calls ------------------------------------------------------------------------------------------------ */

static void pjrt_learn(void *client)
{
    void *none = NULL;
    if (client && !__atomic_load_n(&x_client, __ATOMIC_RELAXED) && __atomic_load_n(&x_looked, __ATOMIC_RELAXED))
        __atomic_compare_exchange_n(&x_client, &none, client, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static void *pjrt_pass(unsigned function, struct pjrt_args *args)
{
    pjrt_learn(args->object); /* before the call, which makes the program's results */
    return originals[function](args);
}

static void *pjrt_devices(struct pjrt_args *args)
{
    return pjrt_pass(PJRT_CLIENT_DEVICES, args);
}

static void *pjrt_addressable(struct pjrt_args *args)
{
    return pjrt_pass(PJRT_CLIENT_ADDRESSABLE_DEVICES, args);
}

static void *pjrt_compile(struct pjrt_args *args)
{
    return pjrt_pass(PJRT_CLIENT_COMPILE, args);
}

static void *pjrt_buffer(struct pjrt_args *args)
{
    return pjrt_pass(PJRT_CLIENT_BUFFER_FROM_HOST, args);
}

static void pjrt_ask_client(void *client);

/* Nobody asks that client from here on. False: an answer is still under way. */
static bool pjrt_forget(void *client)
{
    void *known = client;
    uint64_t now = gp_clock_ns(), deadline = now + PJRT_PATIENCE_NS;
    if (!client || !__atomic_compare_exchange_n(&x_client, &known, NULL, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return true; /* it is not the one that is asked */
    /* Pairs with [client.B]. */
    for (; __atomic_load_n(&x_asking, __ATOMIC_SEQ_CST) && now < deadline; now = gp_clock_ns())
        gp_futex_wait(&x_asking, 1, deadline - now);
    bool free = !__atomic_load_n(&x_asking, __ATOMIC_SEQ_CST);
    if (free)
        pjrt_ask_client(client); /* its peak, for recordings */
    gp_feed_door_polled(GP_DOOR_XLA, GP_DEVICE_UNKNOWN, NULL);
    return free;
}

static void *pjrt_destroy(struct pjrt_args *args)
{
    int saved_errno = errno;
    bool free = pjrt_forget(args->object);
    errno = saved_errno;
    return free ? originals[PJRT_CLIENT_DESTROY](args) : NULL;
}

/* ---- the poller ---------------------------------------------------------------------------------------------------- */

/* Whether it answers. */
static bool pjrt_ask(unsigned function, struct pjrt_args *args, void *object)
{
    memset(args, 0, sizeof(*args));
    args->struct_size = sizeof(*args);
    args->object = object;
    void *error = originals[function](args);
    if (!error)
        return true;
    struct pjrt_args end = {.struct_size = sizeof(end), .object = error};
    originals[PJRT_ERROR_DESTROY](&end);
    return false;
}

static int64_t pjrt_value(struct pjrt_stat stat)
{
    return stat.is_set && stat.value >= 0 ? stat.value : -1;
}

static void pjrt_ask_device(void *device)
{
    struct pjrt_args args;
    if (!pjrt_ask(PJRT_DEVICE_LOCAL_ID, &args, device))
        return;
    int ordinal = args.local_id;
    bool known = pjrt_ask(PJRT_DEVICE_MEMORY_STATS, &args, device) && args.stats.in_use >= 0;
    struct gp_door_numbers numbers = {
        .allocated_bytes = args.stats.in_use,
        .allocated_peak_bytes = pjrt_value(args.stats.in_use_peak),
        .reserved_bytes = pjrt_value(args.stats.pool),
        .reserved_peak_bytes = pjrt_value(args.stats.pool_peak),
        .limit_bytes = pjrt_value(args.stats.limit),
        .time_ns = gp_clock_ns(),
    };
    gp_feed_door_polled(GP_DOOR_XLA, ordinal, known ? &numbers : NULL);
}

static void pjrt_ask_client(void *client)
{
    struct pjrt_args args;
    if (pjrt_ask(PJRT_CLIENT_ADDRESSABLE_DEVICES, &args, client))
        for (size_t i = 0; i < args.devices.count && i < GP_WIRE_GPUS; i++)
            pjrt_ask_device(args.devices.list[i]);
}

static void pjrt_poll(void)
{
    /* [client.B] the flag, then the client; who ends it takes the client, then looks at the flag:
     * one of the two sees the other. */
    __atomic_store_n(&x_asking, 1, __ATOMIC_SEQ_CST);
    void *client = __atomic_load_n(&x_client, __ATOMIC_SEQ_CST);
    if (client)
        pjrt_ask_client(client);
    __atomic_store_n(&x_asking, 0, __ATOMIC_SEQ_CST);
    gp_futex_wake(&x_asking);
}

/* ---- start --------------------------------------------------------------------------------------------------------- */

/* NULL: all is well. */
static const char *pjrt_why_not(struct pjrt_api *is)
{
    if (!is || is->struct_size < sizeof(*is) || is->version.major != 0)
        return "this version of its interface is not known";
    for (unsigned i = 0; i < PJRT_FUNCTIONS; i++)
        if (replacements[i] && !gp_slot_writable((uint64_t *)(void *)&is->functions[i]))
            return "its table of functions cannot be changed";
    return NULL;
}

void gp_pjrt_find(const struct gp_slot_caller *caller)
{
    if (!__atomic_load_n(&x_looked, __ATOMIC_RELAXED))
        gp_slots_replace(&import, 1, caller);
}

void gp_pjrt_look(void)
{
    struct pjrt_api *(*get)(void) = (struct pjrt_api * (*)(void)) __atomic_load_n(&import.x_original, __ATOMIC_RELAXED);
    if (!get || __atomic_exchange_n(&x_looked, 1, __ATOMIC_RELAXED))
        return;
    struct pjrt_api *is = get();
    const char *why = pjrt_why_not(is);
    gp_feed_door_say(GP_DOOR_XLA, why ? GP_WIRE_DOOR_OFF : GP_WIRE_DOOR_POLLED, why ? why : "");
    gp_log(why ? GP_LOG_WARN : GP_LOG_INFO, "XLA's pools: %s", why ? why : "it is asked what it has in use");
    if (why)
        return;
    if (api != is)
        memcpy(originals, is->functions, sizeof(originals));
    api = is;
    gp_feed_door_ask(pjrt_poll);
    for (unsigned i = 0; i < PJRT_FUNCTIONS; i++)
        if (replacements[i])
            __atomic_store_n(&is->functions[i], replacements[i], __ATOMIC_RELEASE);
}

void gp_pjrt_restore(void)
{
    if (!api)
        return;
    pjrt_forget(__atomic_load_n(&x_client, __ATOMIC_RELAXED));
    for (unsigned i = 0; i < PJRT_FUNCTIONS; i++)
        if (replacements[i] && api->functions[i] == replacements[i])
            __atomic_store_n(&api->functions[i], originals[i], __ATOMIC_RELAXED);
}
