/* SPDX-License-Identifier: MIT
 *
 * cupti.c: CUPTI as the source of events.  CUPTI is never linked, since the right copy is known
 * only at run time: cuptifind.c lists the copies, and each is tried until one subscribes.  The copy
 * of the first subscriber decides for the whole process.
 *
 * Before CUPTI 13.3 a process can have one subscriber.  If another tool has it, the search ends:
 * the hooks become the source where the shim is preloaded, and otherwise gpuprof reports the tool
 * and does nothing else.
 */
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/graph.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/log.h"
#include "base/opener.h"
#include "base/thread.h"
#include "source/cuptifind.h"
#include "source/hooks.h"
#include "source/internal.h"
#include "source/source.h"
#include <dlfcn.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <stdio.h>
#include <string.h>

#define GP_SUBSCRIBER_NAME "gpuprof"

struct gp_cupti {
    int (*get_version)(uint32_t *);
    int (*subscribe)(void **, gp_cupti_callback_fn, void *);
    int (*subscribe_v2)(void **, gp_cupti_callback_fn, void *, struct gp_cupti_subscriber_params *); /* since 13.0 */
    int (*unsubscribe)(void *);
    int (*enable)(uint32_t, void *, int, uint32_t);
    int (*device_of)(void *, uint32_t *);
    int (*number_of)(void *, uint32_t *);
    int (*result_text)(int, const char **);
    gp_cupti_name_fn callback_name;
    void *subscriber;
    uint32_t version;
    enum gp_cupti_form form;
    uint32_t pulse;    /* callback id of cuDeviceGetCount; 0 unknown */
    uint32_t x_on;     /* callbacks are enabled */
    uint32_t x_held;   /* the subscriber must be given back; taken by the thread that does so */
    uint32_t x_beats;  /* callbacks of `pulse` */
    uint32_t x_gone;   /* no callbacks come */
    uint32_t x_fatal;  /* CUPTI said so itself */
    uint32_t x_fatals; /* how often */
    uint32_t x_yielded;
    uint32_t x_returned;         /* it is the source again, after the hooks */
    uint64_t alive_ns, tried_ns; /* the last callback of `pulse`; the last attempt to subscribe again */
    uint32_t x_gaps;             /* times without callbacks that are over */
    uint64_t x_gap_ns;           /* their length together, at most */
    uint64_t x_gap_bytes;        /* what was allocated in them and is there still */
};

static struct gp_cupti cupti;

/* ---- callbacks ------------------------------------------------------------------------------------------------ */

/* Once the hooks have been the source, contexts have the numbers that they know. */
static bool cupti_has_returned(void)
{
    return GP_UNLIKELY(__atomic_load_n(&cupti.x_returned, __ATOMIC_RELAXED));
}

static uint32_t cupti_known(void *context, uint32_t number)
{
    return cupti_has_returned() ? gp_call_table_number(context, -1) : number;
}

static void cupti_note(void *context, uint32_t number)
{
    if (gp_call_note_context && context)
        gp_call_note_context(context, number);
}

/* The call may have begun before this subscription: under an earlier one, which kept its slot, or under none; then its
 * wrapper reports it. */
static bool cupti_has_begun(struct gp_call *call)
{
    if (gp_thread.reported != GP_REPORTED_BEGIN)
        return false;
    if (call->hook->handler->enter)
        *call->slot = gp_call_slots[gp_thread.number % GP_CALL_SLOTS];
    return true;
}

/* The begin of most calls: their handlers have nothing to do then, so it needs no entry. False: it needs one. */
static inline bool cupti_is_entered(const struct gp_hook *hook, const struct gp_cupti_call *data)
{
    if (hook->handler->enter || gp_call_timed || !gp_thread_is_known())
        return false;
    *data->slot = 0;
    gp_thread.node_type = 0;
    gp_thread.reported = GP_REPORTED_BEGIN;
    return true;
}

static inline struct gp_call cupti_call(const struct gp_hook *hook, const struct gp_cupti_call *data)
{
    return (struct gp_call){
        .hook = hook,
        .params = data->params,
        .context = data->context,
        .ctx = data->context ? cupti_known(data->context, data->context_uid) : 0,
        .slot = data->slot,
    };
}

static __attribute__((noinline)) void cupti_on_enter(const struct gp_hook *hook, const struct gp_cupti_call *data)
{
    if (!gp_thread_enter())
        return;
    int saved_errno = errno;
    struct gp_call call = cupti_call(hook, data);
    gp_dispatch_enter(&call);
    if (hook->handler->enter && hook->handler != &gp_on_green_destroy) /* else the hooks have a note of theirs there */
        gp_call_slots[gp_thread.number % GP_CALL_SLOTS] = (uint32_t)*call.slot;
    gp_thread.reported = GP_REPORTED_BEGIN;
    errno = saved_errno;
    gp_thread_leave();
}

static __attribute__((noinline)) void cupti_on_exit(const struct gp_hook *hook, const struct gp_cupti_call *data)
{
    if (!gp_thread_enter())
        return;
    int saved_errno = errno;
    struct gp_call call = cupti_call(hook, data);
    if (!cupti_has_returned() || cupti_has_begun(&call)) {
        call.result = *(const uint32_t *)data->result;
        gp_thread_entered(__builtin_frame_address(0));
        gp_dispatch_exit(&call);
        gp_thread_entered(NULL);
        gp_thread.reported = GP_REPORTED_ALL;
    }
    errno = saved_errno;
    gp_thread_leave();
}

static uint32_t cupti_number(void *context)
{
    uint32_t number = 0;
    if (!context || !cupti.number_of || cupti.number_of(context, &number) != GP_CUPTI_OK)
        return 0;
    return cupti_known(context, number);
}

static int cupti_device(void *context, uint32_t ctx)
{
    uint32_t device = 0;
    (void)ctx;
    if (!cupti.device_of || cupti.device_of(context, &device) != GP_CUPTI_OK || device >= GP_WIRE_GPUS)
        return -1;
    return (int)device;
}

/* The green context ends first. If it held the last reference to its primary context, that follows in the same call. */
static void cupti_on_context_end(uint32_t ctx, int device)
{
    bool is_green = gp_thread.green_ends && ctx != gp_feed_primary_of(device);
    gp_thread.green_ends = 0;
    if (is_green)
        gp_feed_green_destroyed(ctx, device);
    else
        gp_feed_context_destroyed(ctx, device, true);
}

static void cupti_on_resource(uint32_t id, const struct gp_cupti_resource *data)
{
    const struct gp_cupti_module *module = data->descriptor;
    const struct gp_cupti_graph *graph = data->descriptor;
    switch (id) {
    case GP_CUPTI_CONTEXT_CREATED: {
        int device = cupti_device(data->context, 0);
        uint32_t number =
            cupti_has_returned() ? gp_call_table_number(data->context, device) : cupti_number(data->context);
        gp_thread.made = 1;
        if (number && device >= 0) {
            gp_feed_context_created(number, device);
            gp_poll_expect();
        }
        cupti_note(data->context, number);
        break;
    }
    case GP_CUPTI_CONTEXT_DESTROY_STARTING:
        cupti_on_context_end(cupti_number(data->context), cupti_device(data->context, 0));
        cupti_note(data->context, 0);
        break;
    case GP_CUPTI_STREAM_CREATED:
        gp_feed_stream_created((uint64_t)(uintptr_t)data->stream, cupti_number(data->context));
        break;
    case GP_CUPTI_STREAM_DESTROY_STARTING:
        gp_feed_stream_destroyed((uint64_t)(uintptr_t)data->stream);
        break;
    case GP_CUPTI_MODULE_LOADED:
        if (module)
            gp_feed_module_loaded(module->module, module->cubin_bytes, cupti_number(data->context));
        break;
    case GP_CUPTI_MODULE_UNLOAD_STARTING:
        if (module)
            gp_feed_module_unloaded(module->module);
        break;
    case GP_CUPTI_GRAPHNODE_CREATED:
        if (graph) {
            gp_thread.node_type = (uint8_t)(graph->node_type + 1);
            gp_thread.node = (uint64_t)(uintptr_t)graph->node;
            gp_thread.graph = (uint64_t)(uintptr_t)graph->graph;
        }
        break;
    case GP_CUPTI_GRAPHNODE_DESTROY_STARTING:
        if (graph && graph->node_type == GP_CU_NODE_ALLOC) /* each costs a walk: kernel nodes are many */
            gp_feed_graph_node_destroyed((uint64_t)(uintptr_t)graph->node);
        break;
    default:
        break;
    }
}

static GP_COLD void cupti_on_state(void)
{
    __atomic_store_n(&cupti.x_fatal, 1, __ATOMIC_RELAXED);
    int saved_errno = errno;
    gp_poll_wake();
    errno = saved_errno;
}

static __attribute__((noinline)) void cupti_on_other(int domain, uint32_t id, const void *data)
{
    if (domain == GP_CUPTI_DOMAIN_DRIVER) {
        if (id == cupti.pulse) /* on the poll thread too */
            __atomic_fetch_add(&cupti.x_beats, 1, __ATOMIC_RELAXED);
    } else if (domain == GP_CUPTI_DOMAIN_STATE) {
        cupti_on_state();
    } else if (domain == GP_CUPTI_DOMAIN_RESOURCE && gp_thread_enter()) {
        int saved_errno = errno;
        cupti_on_resource(id, data);
        errno = saved_errno;
        gp_thread_leave();
    }
}

/* Runs on the application's threads, inside driver calls, possibly with the driver's locks held: no
 * CUDA calls, no malloc, errno kept. */
static void cupti_callback(void *user, int domain, uint32_t id, const void *data)
{
    const struct gp_hook *hook = domain == GP_CUPTI_DOMAIN_DRIVER ? gp_dispatch_find(id) : NULL;
    (void)user;
    if (GP_UNLIKELY(!hook))
        cupti_on_other(domain, id, data);
    else if (((const struct gp_cupti_call *)data)->site != GP_CUPTI_ENTER)
        cupti_on_exit(hook, data);
    else if (!cupti_is_entered(hook, data))
        cupti_on_enter(hook, data);
}

/* ---- one copy of the library ---------------------------------------------------------------------------------- */

static void cupti_bind(void *handle)
{
    cupti.get_version = (int (*)(uint32_t *))gp_opener_symbol(handle, "cuptiGetVersion");
    cupti.subscribe = (int (*)(void **, gp_cupti_callback_fn, void *))gp_opener_symbol(handle, "cuptiSubscribe");
    cupti.subscribe_v2 = (int (*)(void **, gp_cupti_callback_fn, void *,
                                  struct gp_cupti_subscriber_params *))gp_opener_symbol(handle, "cuptiSubscribe_v2");
    cupti.unsubscribe = (int (*)(void *))gp_opener_symbol(handle, "cuptiUnsubscribe");
    cupti.enable = (int (*)(uint32_t, void *, int, uint32_t))gp_opener_symbol(handle, "cuptiEnableCallback");
    cupti.device_of = (int (*)(void *, uint32_t *))gp_opener_symbol(handle, "cuptiGetDeviceId");
    cupti.number_of = (int (*)(void *, uint32_t *))gp_opener_symbol(handle, "cuptiGetContextId");
    cupti.result_text = (int (*)(int, const char **))gp_opener_symbol(handle, "cuptiGetResultString");
    cupti.callback_name = (gp_cupti_name_fn)gp_opener_symbol(handle, "cuptiGetCallbackName");
}

static bool cupti_is_taken(int status)
{
    return status == GP_CUPTI_MULTIPLE_SUBSCRIBERS || status == GP_CUPTI_MAX_LIMIT_REACHED;
}

/* Tries the newest form of the parameters that is wanted and that the version knows, then the older: a driver that is
 * older than CUPTI may refuse to share. */
static int cupti_subscribe_v2(enum gp_cupti_form form, char *holder, size_t holder_bytes, uint32_t *shared)
{
    static const uint32_t sizes[] = {GP_CUPTI_PARAMS_SHARED, GP_CUPTI_PARAMS_BYTES};
    bool can_share = form != GP_CUPTI_V2 && cupti.version >= GP_CUPTI_SHARED_VERSION;
    int status = GP_CUPTI_NOT_INITIALIZED;
    for (size_t i = can_share ? 0 : 1; cupti.subscribe_v2 && i < GP_COUNT(sizes); i++) {
        bool is_shared = sizes[i] == GP_CUPTI_PARAMS_SHARED;
        struct gp_cupti_subscriber_params params = {sizes[i], GP_SUBSCRIBER_NAME, holder, holder_bytes, is_shared, {0}};
        status = cupti.subscribe_v2(&cupti.subscriber, cupti_callback, NULL, &params);
        holder[holder_bytes - 1] = '\0';
        *shared = status == GP_CUPTI_OK && is_shared;
        if (status == GP_CUPTI_OK || cupti_is_taken(status))
            break;
    }
    return status;
}

/* Where CUPTI has both forms in one process, it refuses the second with 39, and V1 is what
 * profilers use: V2 comes first only if one of them is linked to it, or if the user wants it. After
 * a 39, V2 tells the holder's name, or succeeds beside a V2 tool that was there before. */
static int cupti_subscribe(char *holder, size_t holder_bytes, uint32_t *shared)
{
    bool is_v2_first =
        cupti.form == GP_CUPTI_AUTO ? gp_cupti_find_user("cuptiSubscribe_v2") : cupti.form != GP_CUPTI_V1;
    int status = GP_CUPTI_NOT_INITIALIZED, second;
    holder[0] = '\0';
    *shared = 0;
    if (is_v2_first)
        status = cupti_subscribe_v2(cupti.form, holder, holder_bytes, shared);
    if (status == GP_CUPTI_OK || (is_v2_first && cupti_is_taken(status)))
        return status;
    status = cupti.subscribe(&cupti.subscriber, cupti_callback, NULL);
    if (status != GP_CUPTI_MULTIPLE_SUBSCRIBERS || is_v2_first || cupti.form == GP_CUPTI_V1)
        return status;
    second = cupti_subscribe_v2(cupti.form, holder, holder_bytes, shared);
    return second == GP_CUPTI_OK ? second : status;
}

/* Returns the number of enabled callbacks, or 0 if none of the driver's could be enabled. */
static uint32_t cupti_enable_rows(void)
{
    static const uint8_t resources[] = {
        GP_CUPTI_CONTEXT_CREATED,   GP_CUPTI_CONTEXT_DESTROY_STARTING,
        GP_CUPTI_STREAM_CREATED,    GP_CUPTI_STREAM_DESTROY_STARTING,
        GP_CUPTI_MODULE_LOADED,     GP_CUPTI_MODULE_UNLOAD_STARTING,
        GP_CUPTI_GRAPHNODE_CREATED, GP_CUPTI_GRAPHNODE_DESTROY_STARTING,
    };
    uint32_t enabled = 0;
    /* A row newer than this CUPTI answers INVALID_PARAMETER and stays disabled. */
    for (uint32_t id = 1; id < GP_HOOK_IDS; id++)
        if (gp_dispatch_find(id))
            enabled += cupti.enable(1, cupti.subscriber, GP_CUPTI_DOMAIN_DRIVER, id) == GP_CUPTI_OK;
    if (!enabled)
        return 0;
    for (unsigned i = 0; i < sizeof(resources); i++)
        enabled += cupti.enable(1, cupti.subscriber, GP_CUPTI_DOMAIN_RESOURCE, resources[i]) == GP_CUPTI_OK;
    if (cupti.pulse)
        cupti.enable(1, cupti.subscriber, GP_CUPTI_DOMAIN_DRIVER, cupti.pulse);
    cupti.enable(1, cupti.subscriber, GP_CUPTI_DOMAIN_STATE, GP_CUPTI_FATAL_ERROR);
    return enabled;
}

/* ---- the copies in turn ----------------------------------------------------------------------------------------- */

/* PyTorch and JAX open the CUPTI of their wheel by path, and the libraries that they open next find
 * it by its soname.  So that file must keep its soname. */
static bool cupti_is_wheel(const char *path)
{
    return strstr(path, "/site-packages/") || strstr(path, "/dist-packages/");
}

static void *cupti_load(const char *path, struct gp_wire_copy *row)
{
    void *handle = gp_opener_open(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle)
        return handle;
    handle = gp_opener_open(path, RTLD_LAZY | RTLD_LOCAL);
    if (!handle) {
        const char *text = gp_opener_error();
        size_t length = strlen(path);
        if (strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0)
            text += length + 2;
        snprintf(row->answer, sizeof(row->answer), "%s", *text ? text : "cannot be loaded");
        row->status = GP_COPY_LOAD;
        return NULL;
    }
    if (cupti_is_wheel(path) || gp_cupti_hide_soname(handle))
        return handle;
    snprintf(row->answer, sizeof(row->answer), "its name could not be hidden");
    row->status = GP_COPY_NAMED;
    return NULL;
}

static void cupti_answer(struct gp_wire_copy *row, int status, const char *text)
{
    if (!text && (!cupti.result_text || cupti.result_text(status, &text) != GP_CUPTI_OK))
        text = "";
    snprintf(row->answer, sizeof(row->answer), "%s", text);
    row->status = status;
}

/* True: this copy is the source. */
static bool cupti_try(const char *path, struct gp_wire_copy *row, struct gp_wire_cupti *tried, char *holder,
                      size_t holder_bytes, struct gp_source_status *out)
{
    uint32_t version = 0, shared;
    void *handle = cupti_load(path, row);
    if (!handle)
        return false;
    if (!gp_opener_is_free()) /* CUPTI takes the loader's lock itself */
        return false;
    /* A copy that is refused stays mapped: unmapping runs its code. */
    cupti_bind(handle);
    if (!cupti.subscribe || !cupti.unsubscribe || !cupti.enable) {
        cupti_answer(row, GP_COPY_FOREIGN, "it is not CUPTI");
        return false;
    }
    if (cupti.get_version)
        cupti.get_version(&version);
    row->version = out->cupti_version = cupti.version = version;
    int status = cupti_subscribe(holder, holder_bytes, &shared);
    cupti_answer(row, status, NULL);
    if (status != GP_CUPTI_OK)
        return false;
    cupti.pulse = gp_dispatch_name_rows(cupti.callback_name, tried);
    gp_call_ask_device = cupti_device;
    gp_call_ask_number = cupti_number;
    out->enabled = cupti_enable_rows();
    if (out->enabled) {
        tried->shared = shared;
        return true;
    }
    cupti_answer(row, GP_COPY_DEAF, "it enabled no callback");
    cupti.unsubscribe(cupti.subscriber);
    cupti.subscriber = NULL;
    return false;
}

/* The end of a long path says more than its start. */
static void cupti_path(char *to, size_t to_bytes, const char *path)
{
    size_t length = strlen(path), skip = length < to_bytes ? 0 : length - to_bytes + 1;
    memcpy(to, path + skip, length - skip + 1);
}

/* CUPTI 13.0 says "<not provided>" of a tool that subscribed without a name.  first: the copy that fits best. */
static void cupti_explain(struct gp_source_status *out, const struct gp_wire_copy *first,
                          const struct gp_wire_copy *last, unsigned count, const char *holder)
{
    if (!count)
        snprintf(out->detail, sizeof(out->detail), "no CUPTI found: install the toolkit's CUPTI or set CUDA_HOME");
    else if (cupti_is_taken(last->status))
        snprintf(out->detail, sizeof(out->detail), "the CUPTI subscriber is taken by %.64s",
                 *holder && *holder != '<' ? holder : "another tool");
    else if (count == 1)
        snprintf(out->detail, sizeof(out->detail), "%.70s: %.40s (%d)", first->path, first->answer, first->status);
    else
        snprintf(out->detail, sizeof(out->detail), "none of %u copies of CUPTI works here; the best: %.32s (%d)", count,
                 first->answer, first->status);
}

/* Through the opener, since this runs inside cuInit. */
static uint32_t cupti_driver_version(void)
{
    void *driver = gp_opener_open("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    int (*get)(int *) = driver ? (int (*)(int *))gp_opener_symbol(driver, "cuDriverGetVersion") : NULL;
    int version = 0;
    return get && get(&version) == 0 && version > 0 ? (uint32_t)version : 0;
}

void gp_cupti_start(enum gp_cupti_form form, struct gp_source_status *out, struct gp_wire_cupti *tried)
{
    static struct gp_cupti_list list; /* 40 KiB, too much for a program's stack; one thread starts us */
    struct gp_wire_copy row = {0}, first = {0};
    char holder[128] = "";
    const char *path;
    unsigned count = 0;
    cupti.form = form;
    gp_cupti_find_begin(&list, cupti_driver_version());
    while (!cupti_is_taken(row.status) && (path = gp_cupti_find_next(&list))) {
        row = (struct gp_wire_copy){0};
        cupti_path(row.path, sizeof(row.path), path);
        bool is_source = cupti_try(path, &row, tried, holder, sizeof(holder), out);
        gp_log(is_source ? GP_LOG_INFO : GP_LOG_WARN, "%s: version %u: %s (%d)", row.path, row.version, row.answer,
               row.status);
        first = count ? first : row;
        if (count < GP_WIRE_COPIES)
            tried->copy[count] = row;
        __atomic_store_n(&tried->copies, ++count, __ATOMIC_RELEASE);
        if (!is_source)
            continue;
        out->source = GP_SOURCE_CUPTI;
        cupti_path(out->detail, sizeof(out->detail), path);
        cupti.alive_ns = gp_clock_ns();
        cupti.x_held = 1;
        __atomic_store_n(&cupti.x_on, 1, __ATOMIC_RELEASE); /* [cupti.R] the functions and ids */
        return;
    }
    gp_call_ask_device = NULL;
    gp_call_ask_number = NULL;
    cupti_explain(out, &first, &row, count, holder);
}

static void cupti_give_back(void)
{
    if (__atomic_exchange_n(&cupti.x_held, 0, __ATOMIC_SEQ_CST))
        cupti.unsubscribe(cupti.subscriber);
}

bool gp_cupti_yield(void)
{
    if (!__atomic_load_n(&cupti.x_on, __ATOMIC_ACQUIRE)) /* [cupti.A] pairs with [cupti.R] */
        return false;
    __atomic_store_n(&cupti.x_yielded, 1, __ATOMIC_SEQ_CST); /* pairs with the load in cupti_again */
    cupti_give_back();
    return true;
}

bool gp_cupti_is_held(void)
{
    return __atomic_load_n(&cupti.x_on, __ATOMIC_ACQUIRE) && /* [cupti.A] */
           __atomic_load_n(&cupti.x_held, __ATOMIC_SEQ_CST);
}

uint32_t gp_cupti_resume(void)
{
    char holder[128];
    uint32_t shared, enabled;
    if (!__atomic_load_n(&cupti.x_yielded, __ATOMIC_SEQ_CST) ||
        cupti_subscribe(holder, sizeof(holder), &shared) != GP_CUPTI_OK)
        return 0;
    __atomic_store_n(&cupti.x_returned, 1, __ATOMIC_RELAXED); /* before the first callback */
    __atomic_store_n(&cupti.x_held, 1, __ATOMIC_SEQ_CST);
    enabled = cupti_enable_rows();
    if (!enabled) {
        cupti_give_back();
        return 0;
    }
    gp_call_ask_device = cupti_device;
    gp_call_ask_number = cupti_number;
    cupti.alive_ns = gp_clock_ns();
    __atomic_store_n(&cupti.x_yielded, 0, __ATOMIC_SEQ_CST);
    return enabled;
}

/* ---- after cuptiFinalize ----------------------------------------------------------------------------------------- */

/* A tool that ends CUPTI may be about to subscribe again, or to end it once more. */
#define CUPTI_AGAIN_NS 1000000000ull

/* After so many fatal errors CUPTI is left alone: what it does may be what breaks it. */
#define CUPTI_FATALS 3u

/* One call whose callback is enabled: 1 if the callback came, 0 if not, -1 if that is not known. */
static int cupti_pulse(int (*device_count)(int *))
{
    int count;
    uint32_t before = __atomic_load_n(&cupti.x_beats, __ATOMIC_RELAXED);
    if (device_count(&count) != 0 || __atomic_load_n(&cupti.x_yielded, __ATOMIC_ACQUIRE))
        return -1;
    if (__atomic_load_n(&cupti.x_beats, __ATOMIC_RELAXED) != before)
        return 1;
    /* Only if a callback came before, for a call of the program or of ours, CUPTI reports this
     * call. */
    return before ? 0 : -1;
}

/* "Any subsequent CUPTI call reinitializes CUPTI." What the program allocated and freed meanwhile
 * is not known. After a fatal error the subscriber may still be ours, and so in the way. */
static bool cupti_again(int (*device_count)(int *))
{
    char holder[128];
    uint32_t shared;
    cupti.tried_ns = gp_clock_ns();
    if (__atomic_exchange_n(&cupti.x_fatal, 0, __ATOMIC_RELAXED))
        cupti.unsubscribe(cupti.subscriber);
    if (cupti_subscribe(holder, sizeof(holder), &shared) != GP_CUPTI_OK)
        return false;
    /* Pairs with the store in gp_cupti_yield: one of the two threads gives the subscriber back. */
    __atomic_store_n(&cupti.x_held, 1, __ATOMIC_SEQ_CST);
    if (!cupti_enable_rows() || cupti_pulse(device_count) != 1) {
        cupti_give_back();
        return false;
    }
    uint64_t now = gp_clock_ns();
    __atomic_fetch_add(&cupti.x_gap_ns, now - cupti.alive_ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&cupti.x_gaps, 1, __ATOMIC_RELEASE); /* [gaps.R] release: their length; pairs with [gaps.A] */
    cupti.alive_ns = now;
    gp_feed_event(GP_EVENT_MARK, "gpuprof: events before this were missed");
    gp_log(GP_LOG_WARN, "CUPTI calls back again");
    __atomic_store_n(&cupti.x_gone, 0, __ATOMIC_RELEASE);
    return true;
}

/* If the program calls cuptiFinalize, our callbacks end without a notification, and CUPTI must not
 * be called with the dead handle. */
bool gp_cupti_beat(int (*device_count)(int *))
{
    if (!__atomic_load_n(&cupti.x_on, __ATOMIC_ACQUIRE) || !cupti.pulse || !device_count) /* [cupti.A] */
        return false;
    if (!__atomic_load_n(&cupti.x_gone, __ATOMIC_RELAXED)) {
        bool is_fatal = __atomic_load_n(&cupti.x_fatal, __ATOMIC_RELAXED);
        int came = is_fatal ? 0 : cupti_pulse(device_count);
        cupti.alive_ns = came > 0 ? gp_clock_ns() : cupti.alive_ns;
        if (came)
            return false;
        gp_log(GP_LOG_WARN, "%s: later events are missing",
               is_fatal ? "CUPTI reports a fatal error" : "the program ended CUPTI (cuptiFinalize)");
        __atomic_fetch_add(&cupti.x_fatals, is_fatal, __ATOMIC_RELAXED);
        __atomic_store_n(&cupti.x_held, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&cupti.x_gone, 1, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(&cupti.x_fatals, __ATOMIC_RELAXED) < CUPTI_FATALS &&
           !__atomic_load_n(&cupti.x_yielded, __ATOMIC_SEQ_CST) && gp_clock_ns() - cupti.tried_ns >= CUPTI_AGAIN_NS &&
           cupti_again(device_count);
}

void gp_cupti_gap_holds(uint64_t bytes)
{
    __atomic_store_n(&cupti.x_gap_bytes, bytes, __ATOMIC_RELAXED);
}

bool gp_cupti_gone(void)
{
    return __atomic_load_n(&cupti.x_gone, __ATOMIC_ACQUIRE);
}

bool gp_cupti_gaps(char *text, size_t bytes)
{
    uint32_t gaps = __atomic_load_n(&cupti.x_gaps, __ATOMIC_ACQUIRE); /* [gaps.A] acquire: pairs with [gaps.R] */
    uint32_t fatals = __atomic_load_n(&cupti.x_fatals, __ATOMIC_RELAXED);
    if (fatals && gp_cupti_gone())
        snprintf(text, bytes, "CUPTI reported a fatal error: later events are missing");
    else if (gaps)
        snprintf(text, bytes, "%s %u times: events of up to %.1f s are missing, and %.1f MiB of then",
                 fatals ? "CUPTI failed or was ended" : "the program ended CUPTI (cuptiFinalize)", gaps,
                 (double)__atomic_load_n(&cupti.x_gap_ns, __ATOMIC_RELAXED) / 1e9,
                 (double)__atomic_load_n(&cupti.x_gap_bytes, __ATOMIC_RELAXED) / (1 << 20));
    return text[0] != '\0';
}
