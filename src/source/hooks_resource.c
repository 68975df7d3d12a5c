/* SPDX-License-Identifier: MIT
 *
 * hooks_resource.c: derives the events of CUPTI's resource callbacks from the entry points:
 * contexts, streams, modules and the nodes that a capture makes.  hooks.c calls it before and after
 * the driver's call, on the program's thread, so it may query the driver with calls that are allowed
 * during a capture.
 *
 * CUPTI also sees modules of libraries (cuLibraryLoad*: loaded lazily, by launches), modules whose
 * image is not ELF (PTX and fat binaries: only the driver knows the result), and streams that end
 * with their context without a call.
 */
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/graph.h"
#include "account/feed/pool.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "source/hooks_number.h"
#include "source/internal.h"
#include <elf.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GP_CAPTURE_ACTIVE 1 /* CU_STREAM_CAPTURE_STATUS_ACTIVE */

typedef uint32_t (*gp_capture_info_fn)(void *stream, int *status, uint64_t *id, void **graph, void *const **nodes,
                                       const void **edges, size_t *count); /* cuStreamGetCaptureInfo_v3 */
typedef uint32_t (*gp_capture_info_old_fn)(void *stream, int *status, uint64_t *id, void **graph, void *const **nodes,
                                           size_t *count); /* _v2 */

static struct {
    uint32_t (*current)(void **);
    uint32_t (*device)(int *);
    uint32_t (*primary_state)(int, unsigned *, int *);
    uint32_t (*from_green)(void **, void *);
    gp_capture_info_fn capture[2]; /* of the plain and of the per-thread-default-stream entry points */
    gp_capture_info_old_fn capture_old[2];
} gp_ask;

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

#define GP_REFS_UNKNOWN (1u << 30)

static struct {
    uint64_t x_handle; /* of the primary context, once retained */
    uint32_t x_refs;   /* retains less releases that went through here; more than GP_REFS_UNKNOWN: not all did */
    uint32_t x_number; /* under which it was counted as created; 0 not */
} gp_primaries[GP_WIRE_GPUS];

/* Handlers ask only about the current context. */
static int hooks_ask_device(void *context, uint32_t ctx)
{
    int device = -1;
    (void)context;
    (void)ctx;
    if (!gp_ask.device || gp_ask.device(&device) != 0 || device < 0 || device >= (int)GP_WIRE_GPUS)
        return -1;
    return device;
}

void gp_hooks_current(struct gp_call *call)
{
    void *context = NULL;
    if (!gp_ask.current || gp_ask.current(&context) != 0 || !context)
        return;
    call->context = context;
    call->ctx = gp_hooks_number_of(&gp_hooks_contexts, (uint64_t)(uintptr_t)context);
    if (GP_LIKELY(call->ctx))
        return;
    /* Created before the hooks, or destroyed and still current; then it has no device. */
    int device = hooks_ask_device(context, 0);
    if (device >= 0) {
        call->ctx = gp_hooks_number_learn(&gp_hooks_contexts, (uint64_t)(uintptr_t)context);
        gp_feed_context_learned(call->ctx, device);
    }
}

static uint64_t primary_handle(int device)
{
    bool known = device >= 0 && device < (int)GP_WIRE_GPUS;
    return known ? __atomic_load_n(&gp_primaries[device].x_handle, __ATOMIC_RELAXED) : 0;
}

static uint32_t hooks_ask_number(void *context)
{
    return gp_hooks_number_of(&gp_hooks_contexts, (uint64_t)(uintptr_t)context);
}

/* The number of a new context. One that its handle has already is that of a context whose end was
 * missed, or is about to be reported: the driver gives a handle to one context at a time. */
static uint32_t context_new(uint64_t handle, int device)
{
    uint32_t last = gp_hooks_number_of(&gp_hooks_contexts, handle);
    uint32_t number = gp_hooks_number_new(&gp_hooks_contexts, handle);
    bool is_green = last && last == gp_feed_primary_of(device) && handle != primary_handle(device);
    if (last && !is_green)
        gp_feed_context_destroyed(last, device, false);
    return number;
}

static void context_made(const struct gp_hooks_call *call, void *const *made, int device)
{
    if (!gp_call_ok(&call->call))
        return;
    uint32_t number = context_new((uint64_t)(uintptr_t)*made, device);
    if (!number)
        return;
    gp_feed_context_created(number, device);
    gp_poll_expect();
}

#define GP_CONTEXT_MADE(_name)                                                                                         \
    static void gp_after_##_name(struct gp_hooks_call *call)                                                           \
    {                                                                                                                  \
        const struct gp_params_##_name *params = GP_PARAMS(&call->call, _name);                                        \
        context_made(call, params->pctx, params->dev);                                                                 \
    }
GP_CONTEXT_MADE(cuCtxCreate)
GP_CONTEXT_MADE(cuCtxCreate_v2)
GP_CONTEXT_MADE(cuCtxCreate_v3)
GP_CONTEXT_MADE(cuCtxCreate_v4)

/* The context may end in the call. Its number is removed before the driver can reuse the handle, and its memory leaves
 * the totals before the driver can hand it to another thread. */
static void context_may_end(struct gp_hooks_call *call, uint64_t handle, int device)
{
    call->own = gp_hooks_number_take(&gp_hooks_contexts, handle);
    if (call->own)
        call->token = gp_feed_context_destroy_begin(call->own, device < 0 ? gp_feed_context_device(call->own) : device);
}

static void context_has_ended(struct gp_hooks_call *call, int device, bool announced)
{
    if (call->token)
        gp_feed_context_destroy_end(call->token, true, announced);
    else
        gp_feed_context_destroyed(call->own, device, announced);
    call->token = 0;
}

static void context_stays(struct gp_hooks_call *call, uint64_t handle)
{
    if (call->own)
        gp_hooks_number_put(&gp_hooks_contexts, handle, call->own);
    gp_feed_context_destroy_end(call->token, false, false);
    call->token = 0;
}

static uint64_t destroyed_handle(const struct gp_hooks_call *call)
{
    return (uint64_t)(uintptr_t)GP_PARAMS(&call->call, cuCtxDestroy_v2)->ctx;
}

static void before_destroy(struct gp_hooks_call *call)
{
    context_may_end(call, destroyed_handle(call), GP_DEVICE_UNKNOWN);
}

static void after_destroy(struct gp_hooks_call *call)
{
    if (!call->own)
        return;
    if (gp_call_ok(&call->call))
        context_has_ended(call, gp_feed_context_device(call->own), true);
    else
        context_stays(call, destroyed_handle(call));
}

/* ---- primary contexts -------------------------------------------------------------------------------------------- */

static void after_retain(struct gp_hooks_call *call)
{
    const struct gp_params_cuDevicePrimaryCtxRetain *params = GP_PARAMS(&call->call, cuDevicePrimaryCtxRetain);
    if (!gp_call_ok(&call->call) || params->dev < 0 || params->dev >= (int)GP_WIRE_GPUS)
        return;
    uint64_t handle = (uint64_t)(uintptr_t)*params->pctx;
    __atomic_store_n(&gp_primaries[params->dev].x_handle, handle, __ATOMIC_RELAXED);
    __atomic_fetch_add(&gp_primaries[params->dev].x_refs, 1, __ATOMIC_RELAXED);
    uint32_t number = gp_hooks_number_learn(&gp_hooks_contexts, handle);
    if (number && __atomic_exchange_n(&gp_primaries[params->dev].x_number, number, __ATOMIC_RELAXED) != number) {
        gp_feed_context_created(number, params->dev);
        gp_poll_expect();
    }
}

static bool primary_is_active(int device)
{
    unsigned flags;
    int active = 0;
    return gp_ask.primary_state && gp_ask.primary_state(device, &flags, &active) == 0 && active;
}

/* One reference less, never below zero: references from before the hooks are not counted. Returns how many there were. */
static uint32_t primary_let(int device)
{
    uint32_t *refs = &gp_primaries[device].x_refs, count = __atomic_load_n(refs, __ATOMIC_RELAXED);
    while (count && !__atomic_compare_exchange_n(refs, &count, count - 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return count;
}

/* Our own count tells whether this is the last reference, because another thread may retain the context again before a
 * query. Of two threads that release at once, one takes the last off. */
static void primary_may_end(struct gp_hooks_call *call, int device)
{
    uint32_t count = primary_let(device);
    call->let = count > 0;
    if (count != 1)
        return;
    context_may_end(call, primary_handle(device), device);
    gp_feed_pools_unsure(device);
}

static void primary_not_let(struct gp_hooks_call *call, int device)
{
    if (call->let)
        __atomic_fetch_add(&gp_primaries[device].x_refs, 1, __ATOMIC_RELAXED);
    context_stays(call, primary_handle(device));
}

static void before_release(struct gp_hooks_call *call)
{
    int device = GP_PARAMS(&call->call, cuDevicePrimaryCtxRelease_v2)->dev;
    if (primary_handle(device))
        primary_may_end(call, device);
}

static void primary_ended(struct gp_hooks_call *call, int device)
{
    uint64_t handle = primary_handle(device);
    if (!call->own)
        call->own = gp_hooks_number_take(&gp_hooks_contexts, handle);
    uint32_t counted = call->own;
    bool known = __atomic_compare_exchange_n(&gp_primaries[device].x_number, &counted, 0, false, __ATOMIC_RELAXED,
                                             __ATOMIC_RELAXED);
    if (__atomic_load_n(&gp_primaries[device].x_refs, __ATOMIC_RELAXED) >= GP_REFS_UNKNOWN)
        __atomic_store_n(&gp_primaries[device].x_refs, 0, __ATOMIC_RELAXED);
    context_has_ended(call, device, known);
}

/* After the call that let a reference go. */
static void primary_let_go(struct gp_hooks_call *call, int device)
{
    uint64_t handle = primary_handle(device);
    bool active = primary_is_active(device);
    /* Active under a new number: another thread's retain came between.  Active without one: it has
     * a holder that we did not see, and stays alive. */
    if (call->own && active && !gp_hooks_number_of(&gp_hooks_contexts, handle))
        context_stays(call, handle);
    else if (call->own || !active)
        primary_ended(call, device);
}

static void after_release(struct gp_hooks_call *call)
{
    int device = GP_PARAMS(&call->call, cuDevicePrimaryCtxRelease_v2)->dev;
    if (!primary_handle(device))
        return;
    if (gp_call_ok(&call->call))
        primary_let_go(call, device);
    else
        primary_not_let(call, device);
}

/* A reset takes effect for all holders; they keep their references. */
static void before_reset(struct gp_hooks_call *call)
{
    int device = GP_PARAMS(&call->call, cuDevicePrimaryCtxReset_v2)->dev;
    if (primary_handle(device))
        context_may_end(call, primary_handle(device), device);
}

static void after_reset(struct gp_hooks_call *call)
{
    int device = GP_PARAMS(&call->call, cuDevicePrimaryCtxReset_v2)->dev;
    if (!call->own)
        return;
    if (!gp_call_ok(&call->call)) {
        context_stays(call, primary_handle(device));
        return;
    }
    primary_ended(call, device);
    __atomic_store_n(&gp_primaries[device].x_refs, 0, __ATOMIC_RELAXED);
}

/* A green context retains the primary one and owns no memory: its handle is a second one of the
 * primary context. */
static void after_green(struct gp_hooks_call *call)
{
    const struct gp_params_cuGreenCtxCreate *params = GP_PARAMS(&call->call, cuGreenCtxCreate);
    void *context = NULL;
    uint32_t number = gp_hooks_number_of(&gp_hooks_contexts, primary_handle(params->dev));
    if (gp_call_ok(&call->call) && number && gp_ask.from_green && gp_ask.from_green(&context, *params->phCtx) == 0) {
        gp_hooks_number_put(&gp_hooks_contexts, (uint64_t)(uintptr_t)context, number);
        __atomic_fetch_add(&gp_primaries[params->dev].x_refs, 1, __ATOMIC_RELAXED);
    }
}

static uint64_t green_handle(const struct gp_hooks_call *call)
{
    void *context = NULL;
    bool known = gp_ask.from_green && gp_ask.from_green(&context, GP_PARAMS(&call->call, cuGreenCtxDestroy)->hCtx) == 0;
    return known ? (uint64_t)(uintptr_t)context : 0;
}

/* If it holds the last reference, the primary context ends in the same call. */
static void before_green_end(struct gp_hooks_call *call)
{
    uint32_t number = gp_hooks_number_take(&gp_hooks_contexts, green_handle(call));
    int device = number ? gp_feed_context_device(number) : -1;
    if (device >= 0)
        primary_may_end(call, device);
    call->green = number;
}

static void after_green_end(struct gp_hooks_call *call)
{
    int device = call->green ? gp_feed_context_device(call->green) : -1;
    if (!gp_call_ok(&call->call)) {
        if (call->green)
            gp_hooks_number_put(&gp_hooks_contexts, green_handle(call), call->green);
        if (device >= 0)
            primary_not_let(call, device);
        return;
    }
    if (device < 0)
        return;
    uint32_t primary = gp_feed_primary_of(device);
    if (primary && call->green != primary)
        gp_feed_green_destroyed(call->green, device); /* CUPTI gave it a number of its own */
    primary_let_go(call, device);
}

/* ---- ends that are reported late --------------------------------------------------------------------------------- */

uint32_t gp_hooks_ends(enum gp_hooks_row row, const void *params)
{
    void *context = NULL;
    if (row != GP_HOOKS_cuGreenCtxDestroy)
        context = ((const struct gp_params_cuCtxDestroy_v2 *)params)->ctx;
    else if (!gp_ask.from_green ||
             gp_ask.from_green(&context, ((const struct gp_params_cuGreenCtxDestroy *)params)->hCtx) != 0)
        return 0;
    return gp_hooks_number_of(&gp_hooks_contexts, (uint64_t)(uintptr_t)context);
}

void gp_hooks_ended(enum gp_hooks_row row, struct gp_hooks_call *call)
{
    if (!call->own || !gp_call_ok(&call->call))
        return;
    if (row == GP_HOOKS_cuGreenCtxDestroy) {
        int device = gp_feed_context_device(call->own);
        call->green = call->own;
        call->own = 0;
        if (device >= 0)
            primary_let(device);
        after_green_end(call);
        return;
    }
    gp_hooks_number_drop(&gp_hooks_contexts, (uint64_t)(uintptr_t)GP_PARAMS(&call->call, cuCtxDestroy_v2)->ctx,
                         call->own);
    gp_feed_context_destroyed(call->own, gp_feed_context_device(call->own), false);
}

/* ---- streams and graph nodes ------------------------------------------------------------------------------------- */

static void after_stream(struct gp_hooks_call *call)
{
    if (gp_call_ok(&call->call))
        gp_feed_stream_created((uint64_t)(uintptr_t)*GP_PARAMS(&call->call, cuStreamCreate)->phStream, call->call.ctx);
}

static void after_green_stream(struct gp_hooks_call *call)
{
    const struct gp_params_cuGreenCtxStreamCreate *params = GP_PARAMS(&call->call, cuGreenCtxStreamCreate);
    void *context = NULL;
    if (gp_call_ok(&call->call) && gp_ask.from_green && gp_ask.from_green(&context, params->greenCtx) == 0)
        gp_feed_stream_created((uint64_t)(uintptr_t)*params->phStream, hooks_ask_number(context));
}

/* Before the call: another thread's stream may get the handle as soon as the driver returns. */
static void before_stream_end(struct gp_hooks_call *call)
{
    gp_feed_stream_destroyed((uint64_t)(uintptr_t)GP_PARAMS(&call->call, cuStreamDestroy)->hStream);
}

static void before_node_end(struct gp_hooks_call *call)
{
    call->token =
        gp_feed_graph_node_destroy_begin((uint64_t)(uintptr_t)GP_PARAMS(&call->call, cuGraphDestroyNode)->hNode);
}

static void after_node_end(struct gp_hooks_call *call)
{
    gp_feed_graph_node_destroy_end(call->token, gp_call_ok(&call->call));
}

/* A call in a capturing stream made a node, and the stream's next node depends only on that one. */
static void hooks_captured(const struct gp_hooks_call *call, void *stream, int twin, uint16_t type)
{
    int status = 0;
    uint64_t id;
    void *graph = NULL, *const *nodes = NULL;
    const void *edges;
    size_t count = 0;
    uint32_t result = 1;
    if (!gp_call_ok(&call->call))
        return;
    if (gp_ask.capture[twin])
        result = gp_ask.capture[twin](stream, &status, &id, &graph, &nodes, &edges, &count);
    else if (gp_ask.capture_old[twin])
        result = gp_ask.capture_old[twin](stream, &status, &id, &graph, &nodes, &count);
    if (result != 0 || status != GP_CAPTURE_ACTIVE)
        return;
    gp_thread.node_type = (uint8_t)(type + 1);
    gp_thread.graph = (uint64_t)(uintptr_t)graph;
    gp_thread.node = count == 1 && nodes ? (uint64_t)(uintptr_t)nodes[0] : 0;
}

/* A stream joins a capture by waiting for another stream, so the driver is asked; but not while there can be none. */
#define GP_CAPTURED(_name, _twin, _type)                                                                               \
    static void gp_after_##_name(struct gp_hooks_call *call)                                                           \
    {                                                                                                                  \
        if (GP_UNLIKELY(__atomic_load_n(&gp_call_x_captures, __ATOMIC_RELAXED)))                                       \
            hooks_captured(call, GP_PARAMS(&call->call, _name)->hStream, _twin, _type);                                \
    }
GP_CAPTURED(cuMemAllocAsync, 0, GP_CU_NODE_ALLOC)
GP_CAPTURED(cuMemAllocAsync_ptsz, 1, GP_CU_NODE_ALLOC)
GP_CAPTURED(cuMemAllocFromPoolAsync, 0, GP_CU_NODE_ALLOC)
GP_CAPTURED(cuMemAllocFromPoolAsync_ptsz, 1, GP_CU_NODE_ALLOC)
GP_CAPTURED(cuMemFreeAsync, 0, GP_CU_NODE_FREE)
GP_CAPTURED(cuMemFreeAsync_ptsz, 1, GP_CU_NODE_FREE)

/* ---- modules ----------------------------------------------------------------------------------------------------- */

/* Where an ELF image ends: its last section, or the tables themselves.  0: no ELF. */
static uint64_t module_elf_bytes(const void *image)
{
    Elf64_Ehdr header;
    if (!image || strncmp(image, ELFMAG, SELFMAG) != 0) /* text ends at its NUL: read no further than that */
        return 0;
    memcpy(&header, image, sizeof(header));
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr))
        return 0;
    uint64_t end = header.e_shoff + (uint64_t)header.e_shnum * header.e_shentsize;
    uint64_t programs = header.e_phoff + (uint64_t)header.e_phnum * header.e_phentsize;
    end = programs > end ? programs : end;
    for (unsigned i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, (const char *)image + header.e_shoff + i * sizeof(section), sizeof(section));
        if (section.sh_type != SHT_NOBITS && section.sh_offset + section.sh_size > end)
            end = section.sh_offset + section.sh_size;
    }
    return end;
}

static uint64_t module_file_bytes(const char *path)
{
    char magic[SELFMAG] = "";
    struct stat status = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe that was read to its end has no writer any more */
    if (fd < 0)
        return 0;
    bool elf = pread(fd, magic, sizeof(magic), 0) == SELFMAG && memcmp(magic, ELFMAG, SELFMAG) == 0;
    uint64_t bytes = elf && fstat(fd, &status) == 0 ? (uint64_t)status.st_size : 0;
    close(fd);
    return bytes;
}

static void module_made(const struct gp_hooks_call *call, void *module, uint64_t bytes)
{
    uint32_t number = bytes ? gp_hooks_number_new(&gp_hooks_modules, (uint64_t)(uintptr_t)module) : 0;
    if (number)
        gp_feed_module_loaded(number, bytes, call->call.ctx);
}

static void after_module_file(struct gp_hooks_call *call)
{
    const struct gp_params_cuModuleLoad *params = GP_PARAMS(&call->call, cuModuleLoad);
    if (gp_call_ok(&call->call))
        module_made(call, *params->module, module_file_bytes(params->fname));
}

/* cuModuleLoadDataEx and cuModuleLoadFatBinary begin with the same two parameters. */
static void after_module(struct gp_hooks_call *call)
{
    const struct gp_params_cuModuleLoadData *params = GP_PARAMS(&call->call, cuModuleLoadData);
    if (gp_call_ok(&call->call))
        module_made(call, *params->module, module_elf_bytes(params->image));
}

static void before_module_end(struct gp_hooks_call *call)
{
    call->own =
        gp_hooks_number_take(&gp_hooks_modules, (uint64_t)(uintptr_t)GP_PARAMS(&call->call, cuModuleUnload)->hmod);
    if (call->own)
        call->token = gp_feed_free_begin(GP_SPACE_MODULE, call->own);
}

static void after_module_end(struct gp_hooks_call *call)
{
    uint64_t handle = (uint64_t)(uintptr_t)GP_PARAMS(&call->call, cuModuleUnload)->hmod;
    if (call->token)
        gp_feed_free_end(call->token, gp_call_ok(&call->call), 0);
    if (call->own && !gp_call_ok(&call->call))
        gp_hooks_number_put(&gp_hooks_modules, handle, call->own);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

const struct gp_hooks_resource gp_hooks_resources[GP_HOOKS_ROWS] = {
    [GP_HOOKS_cuCtxCreate] = {NULL, gp_after_cuCtxCreate, true},
    [GP_HOOKS_cuCtxCreate_v2] = {NULL, gp_after_cuCtxCreate_v2, true},
    [GP_HOOKS_cuCtxCreate_v3] = {NULL, gp_after_cuCtxCreate_v3, true},
    [GP_HOOKS_cuCtxCreate_v4] = {NULL, gp_after_cuCtxCreate_v4, true},
    [GP_HOOKS_cuCtxDestroy] = {before_destroy, after_destroy},
    [GP_HOOKS_cuCtxDestroy_v2] = {before_destroy, after_destroy},
    [GP_HOOKS_cuCtxDetach] = {before_destroy, after_destroy},
    [GP_HOOKS_cuDevicePrimaryCtxRetain] = {NULL, after_retain},
    [GP_HOOKS_cuDevicePrimaryCtxRelease] = {before_release, after_release},
    [GP_HOOKS_cuDevicePrimaryCtxRelease_v2] = {before_release, after_release},
    [GP_HOOKS_cuDevicePrimaryCtxReset] = {before_reset, after_reset},
    [GP_HOOKS_cuDevicePrimaryCtxReset_v2] = {before_reset, after_reset},
    [GP_HOOKS_cuGreenCtxCreate] = {NULL, after_green},
    [GP_HOOKS_cuGreenCtxDestroy] = {before_green_end, after_green_end},
    [GP_HOOKS_cuStreamCreate] = {NULL, after_stream},
    [GP_HOOKS_cuStreamCreateWithPriority] = {NULL, after_stream},
    [GP_HOOKS_cuGreenCtxStreamCreate] = {NULL, after_green_stream},
    [GP_HOOKS_cuStreamDestroy] = {before_stream_end, NULL},
    [GP_HOOKS_cuStreamDestroy_v2] = {before_stream_end, NULL},
    [GP_HOOKS_cuGraphDestroyNode] = {before_node_end, after_node_end},
    [GP_HOOKS_cuMemAllocAsync] = {NULL, gp_after_cuMemAllocAsync},
    [GP_HOOKS_cuMemAllocAsync_ptsz] = {NULL, gp_after_cuMemAllocAsync_ptsz},
    [GP_HOOKS_cuMemAllocFromPoolAsync] = {NULL, gp_after_cuMemAllocFromPoolAsync},
    [GP_HOOKS_cuMemAllocFromPoolAsync_ptsz] = {NULL, gp_after_cuMemAllocFromPoolAsync_ptsz},
    [GP_HOOKS_cuMemFreeAsync] = {NULL, gp_after_cuMemFreeAsync},
    [GP_HOOKS_cuMemFreeAsync_ptsz] = {NULL, gp_after_cuMemFreeAsync_ptsz},
    [GP_HOOKS_cuModuleLoad] = {NULL, after_module_file},
    [GP_HOOKS_cuModuleLoadData] = {NULL, after_module},
    [GP_HOOKS_cuModuleLoadDataEx] = {NULL, after_module},
    [GP_HOOKS_cuModuleLoadFatBinary] = {NULL, after_module},
    [GP_HOOKS_cuModuleUnload] = {before_module_end, after_module_end},
};

void gp_hooks_resource_prepare(void)
{
    *(void **)&gp_ask.current = gp_hooks_driver("cuCtxGetCurrent");
    *(void **)&gp_ask.device = gp_hooks_driver("cuCtxGetDevice");
    *(void **)&gp_ask.primary_state = gp_hooks_driver("cuDevicePrimaryCtxGetState");
    *(void **)&gp_ask.from_green = gp_hooks_driver("cuCtxFromGreenCtx");
    *(void **)&gp_ask.capture[0] = gp_hooks_driver("cuStreamGetCaptureInfo_v3");
    *(void **)&gp_ask.capture[1] = gp_hooks_driver("cuStreamGetCaptureInfo_v3_ptsz");
    *(void **)&gp_ask.capture_old[0] = gp_hooks_driver("cuStreamGetCaptureInfo_v2");
    *(void **)&gp_ask.capture_old[1] = gp_hooks_driver("cuStreamGetCaptureInfo_v2_ptsz");
}

static void note_context(void *context, uint32_t number)
{
    if (number)
        gp_hooks_number_put(&gp_hooks_contexts, (uint64_t)(uintptr_t)context, number);
    else
        gp_hooks_number_take(&gp_hooks_contexts, (uint64_t)(uintptr_t)context);
}

static void note_primary(int device, void *context, uint32_t number)
{
    if (device < 0 || device >= (int)GP_WIRE_GPUS)
        return;
    __atomic_store_n(&gp_primaries[device].x_handle, (uint64_t)(uintptr_t)context, __ATOMIC_RELAXED);
    __atomic_store_n(&gp_primaries[device].x_number, number, __ATOMIC_RELAXED);
}

static uint32_t table_number(void *context, int device)
{
    if (device >= 0) /* it is new */
        return context_new((uint64_t)(uintptr_t)context, device);
    return gp_hooks_number_learn(&gp_hooks_contexts, (uint64_t)(uintptr_t)context);
}

void gp_hooks_resource_note(void)
{
    gp_call_note_context = note_context;
    gp_call_note_primary = note_primary;
    gp_call_table_number = table_number;
}

void gp_hooks_resource_apart(void)
{
    /* CUPTI numbers modules and contexts from 1 on, and may number one in a call that has begun. */
    const uint32_t first = 1u << 30;
    gp_hooks_number_after(&gp_hooks_modules, first);
    gp_hooks_number_after(&gp_hooks_contexts, first);
    for (unsigned i = 0; i < GP_WIRE_GPUS; i++)
        __atomic_fetch_or(&gp_primaries[i].x_refs, GP_REFS_UNKNOWN, __ATOMIC_RELAXED);
}

void gp_hooks_resource_start(void)
{
    if (!gp_ask.current)
        gp_hooks_resource_prepare();
    gp_call_ask_device = hooks_ask_device;
    gp_call_ask_number = hooks_ask_number;
}
