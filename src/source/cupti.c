/* SPDX-License-Identifier: MIT
 *
 * cupti.c: CUPTI as the source of events.  CUPTI is never linked, since the right copy is known
 * only at run time.  The copy of the first subscriber decides for the whole process, so a mapped
 * copy is tried first, then the loader's own search, then the places where NVIDIA's packages put
 * it.
 *
 * Before CUPTI 13.3 a process can have one subscriber.  If another tool has it, gpuprof reports the
 * tool and does nothing else.
 */
#include "account/feed.h"
#include "base/thread.h"
#include "source/dispatch.h"
#include "source/source.h"
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
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
    int (*callback_name)(uint32_t, uint32_t, const char **);
    void *subscriber;
    uint32_t x_yielded;
};

static struct gp_cupti cupti;

/* ---- callbacks ------------------------------------------------------------------------------------------------ */

static void cupti_on_driver(uint32_t id, const struct gp_cupti_call *data)
{
    const struct gp_hook *hook = gp_hook_find(id);
    if (!hook)
        return;
    struct gp_call call = {
        .hook = hook,
        .params = data->params,
        .context = data->context,
        .ctx = data->context ? data->context_uid : 0,
        .slot = data->slot,
    };
    if (data->site == GP_CUPTI_ENTER) {
        gp_dispatch_enter(&call);
    } else {
        call.result = *(const uint32_t *)data->result;
        gp_dispatch_exit(&call);
    }
}

static uint32_t cupti_number(void *context)
{
    uint32_t number = 0;
    if (!context || !cupti.number_of || cupti.number_of(context, &number) != GP_CUPTI_OK)
        return 0;
    return number;
}

static int cupti_device(void *context, uint32_t ctx)
{
    uint32_t device = 0;
    (void)ctx;
    if (!cupti.device_of || cupti.device_of(context, &device) != GP_CUPTI_OK || device >= GP_WIRE_GPUS)
        return -1;
    return (int)device;
}

static void cupti_on_resource(uint32_t id, const struct gp_cupti_resource *data)
{
    const struct gp_cupti_module *module = data->descriptor;
    const struct gp_cupti_graph *graph = data->descriptor;
    switch (id) {
    case GP_CUPTI_CONTEXT_CREATED: {
        uint32_t number = cupti_number(data->context);
        int device = cupti_device(data->context, number);
        if (number && device >= 0)
            gp_feed_context_created(number, device);
        break;
    }
    case GP_CUPTI_CONTEXT_DESTROY_STARTING:
        gp_feed_context_destroyed(cupti_number(data->context), cupti_device(data->context, 0), true);
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
            gp_thread.node_type = (uint16_t)(graph->node_type + 1);
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

/* Runs on the application's threads, inside driver calls, possibly with the driver's locks held: no
 * CUDA calls, no malloc, errno kept. */
static void cupti_callback(void *user, int domain, uint32_t id, const void *data)
{
    (void)user;
    if (!gp_thread_enter())
        return;
    int saved_errno = errno;
    if (domain == GP_CUPTI_DOMAIN_DRIVER)
        cupti_on_driver(id, data);
    else if (domain == GP_CUPTI_DOMAIN_RESOURCE)
        cupti_on_resource(id, data);
    errno = saved_errno;
    gp_thread_leave();
}

/* ---- finding the library -------------------------------------------------------------------------------------- */

/* Newest first: an older CUPTI under a newer driver works, a newer one under an older driver
 * answers NOT_INITIALIZED. */
static const char *const cupti_names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};

/* Below the folder of an environment variable, of the usual installation, and of a pip wheel's
 * libcudart. */
static const char *const cupti_below[] = {"extras/CUPTI/lib64", "lib64", "lib", "targets/x86_64-linux/lib",
                                          "targets/sbsa-linux/lib"};
static const char *const cupti_beside[] = {"", "/../../cuda_cupti/lib", "/../../cu13/lib"};

struct gp_cupti_search {
    void *handle;
    unsigned skip; /* candidates that were tried and failed */
    char path[PATH_MAX];
};

static bool cupti_try(struct gp_cupti_search *search, const char *path, int flags)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL | flags);
    if (!handle)
        return false;
    if (!dlsym(handle, "cuptiSubscribe") || !dlsym(handle, "cuptiEnableCallback") || search->skip) {
        /* Not CUPTI at all, or one that an earlier round refused: leave it mapped, unmapping runs
         * its code. */
        if (search->skip)
            search->skip--;
        return false;
    }
    search->handle = handle;
    snprintf(search->path, sizeof(search->path), "%s", path);
    return true;
}

static bool cupti_try_folder(struct gp_cupti_search *search, const char *folder, const char *below)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < GP_COUNT(cupti_names); i++) {
        snprintf(path, sizeof(path), "%s%s%s/%s", folder, *below && *below != '/' ? "/" : "", below, cupti_names[i]);
        if (cupti_try(search, path, 0))
            return true;
    }
    return false;
}

static bool cupti_try_home(struct gp_cupti_search *search, const char *home)
{
    for (size_t i = 0; home && *home == '/' && i < GP_COUNT(cupti_below); i++)
        if (cupti_try_folder(search, home, cupti_below[i]))
            return true;
    return false;
}

/* PyTorch and JAX wheels have CUPTI next to the runtime that they load. */
static int cupti_note_runtime(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    (void)bytes;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "/libcudart.so"))
        return 0;
    snprintf(arg, PATH_MAX, "%s", info->dlpi_name);
    *strrchr(arg, '/') = '\0';
    return 1;
}

static bool cupti_find(struct gp_cupti_search *search)
{
    char folder[PATH_MAX] = "";
    for (size_t i = 0; i < GP_COUNT(cupti_names); i++)
        if (cupti_try(search, cupti_names[i], RTLD_NOLOAD))
            return true;
    for (size_t i = 0; i < GP_COUNT(cupti_names); i++)
        if (cupti_try(search, cupti_names[i], 0))
            return true;
    if (dl_iterate_phdr(cupti_note_runtime, folder))
        for (size_t i = 0; i < GP_COUNT(cupti_beside); i++)
            if (cupti_try_folder(search, folder, cupti_beside[i]))
                return true;
    return cupti_try_home(search, secure_getenv("CUDA_HOME")) || cupti_try_home(search, secure_getenv("CUDA_PATH")) ||
           cupti_try_home(search, "/usr/local/cuda") || cupti_try_home(search, "/opt/cuda");
}

static void cupti_bind(void *handle)
{
    cupti.get_version = (int (*)(uint32_t *))dlsym(handle, "cuptiGetVersion");
    cupti.subscribe = (int (*)(void **, gp_cupti_callback_fn, void *))dlsym(handle, "cuptiSubscribe");
    cupti.subscribe_v2 = (int (*)(void **, gp_cupti_callback_fn, void *, struct gp_cupti_subscriber_params *))dlsym(
        handle, "cuptiSubscribe_v2");
    cupti.unsubscribe = (int (*)(void *))dlsym(handle, "cuptiUnsubscribe");
    cupti.enable = (int (*)(uint32_t, void *, int, uint32_t))dlsym(handle, "cuptiEnableCallback");
    cupti.device_of = (int (*)(void *, uint32_t *))dlsym(handle, "cuptiGetDeviceId");
    cupti.callback_name = (int (*)(uint32_t, uint32_t, const char **))dlsym(handle, "cuptiGetCallbackName");
    cupti.number_of = (int (*)(void *, uint32_t *))dlsym(handle, "cuptiGetContextId");
}

/* ---- subscribing ---------------------------------------------------------------------------------------------- */

static int cupti_subscribe(char *holder, size_t holder_bytes)
{
    holder[0] = '\0';
    if (cupti.subscribe_v2) {
        struct gp_cupti_subscriber_params params = {sizeof(params), GP_SUBSCRIBER_NAME, holder, holder_bytes};
        int status = cupti.subscribe_v2(&cupti.subscriber, cupti_callback, NULL, &params);
        holder[holder_bytes - 1] = '\0';
        if (status == GP_CUPTI_OK || status == GP_CUPTI_MULTIPLE_SUBSCRIBERS)
            return status;
        /* The parameters may have another version: the first form has none. */
    }
    return cupti.subscribe(&cupti.subscriber, cupti_callback, NULL);
}

static const char *cupti_driver_name(uint32_t id)
{
    const char *name = NULL;
    return cupti.callback_name(GP_CUPTI_DOMAIN_DRIVER, id, &name) == GP_CUPTI_OK ? name : NULL;
}

static uint32_t cupti_enable_rows(void)
{
    static const uint8_t resources[] = {
        GP_CUPTI_CONTEXT_CREATED,   GP_CUPTI_CONTEXT_DESTROY_STARTING,
        GP_CUPTI_STREAM_CREATED,    GP_CUPTI_STREAM_DESTROY_STARTING,
        GP_CUPTI_MODULE_LOADED,     GP_CUPTI_MODULE_UNLOAD_STARTING,
        GP_CUPTI_GRAPHNODE_CREATED, GP_CUPTI_GRAPHNODE_DESTROY_STARTING,
    };
    uint32_t enabled = 0;
    if (cupti.callback_name)
        gp_hook_learn_ids(cupti_driver_name);
    /* A row newer than this CUPTI answers INVALID_PARAMETER or has no id, and stays disabled. */
    for (unsigned i = 0; i < gp_hook_count; i++) {
        uint32_t id = gp_hook_id(&gp_hooks[i]);
        enabled += id && cupti.enable(1, cupti.subscriber, GP_CUPTI_DOMAIN_DRIVER, id) == GP_CUPTI_OK;
    }
    for (unsigned i = 0; i < sizeof(resources); i++)
        enabled += cupti.enable(1, cupti.subscriber, GP_CUPTI_DOMAIN_RESOURCE, resources[i]) == GP_CUPTI_OK;
    return enabled;
}

static void cupti_refused(int status, const char *holder, const char *path, struct gp_source_status *out)
{
    if (status == GP_CUPTI_MULTIPLE_SUBSCRIBERS || status == GP_CUPTI_MAX_LIMIT_REACHED)
        snprintf(out->detail, sizeof(out->detail), "the CUPTI subscriber is taken by %.64s",
                 *holder ? holder : "another tool");
    else if (status == GP_CUPTI_NOT_INITIALIZED)
        snprintf(out->detail, sizeof(out->detail), "%.80s does not fit the driver (CUPTI error 15)", path);
    else
        snprintf(out->detail, sizeof(out->detail), "%.80s: CUPTI error %d", path, status);
}

void gp_cupti_start(struct gp_source_status *out)
{
    char holder[128];
    snprintf(out->detail, sizeof(out->detail), "no CUPTI found: install the toolkit's CUPTI or set CUDA_HOME");
    /* Each round tries the next candidate; no machine has 8 copies. */
    for (unsigned round = 0; round < 8; round++) {
        struct gp_cupti_search search = {.skip = round};
        if (!cupti_find(&search))
            return;
        cupti_bind(search.handle);
        gp_call_ask_device = cupti_device;
        gp_call_ask_number = cupti_number;
        int status = cupti_subscribe(holder, sizeof(holder));
        if (cupti.get_version)
            cupti.get_version(&out->cupti_version);
        if (status == GP_CUPTI_OK) {
            out->source = GP_SOURCE_CUPTI;
            out->enabled = cupti_enable_rows();
            snprintf(out->detail, sizeof(out->detail), "%.120s", search.path);
            return;
        }
        cupti_refused(status, holder, search.path, out);
        if (status != GP_CUPTI_NOT_INITIALIZED)
            return;
    }
}

bool gp_cupti_yield(void)
{
    if (!cupti.subscriber || !cupti.unsubscribe)
        return false;
    if (!__atomic_exchange_n(&cupti.x_yielded, 1, __ATOMIC_ACQ_REL))
        cupti.unsubscribe(cupti.subscriber);
    return true;
}
