/* SPDX-License-Identifier: MIT
 * on_pool.c: stream-ordered pools (table E). */
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/graph.h"
#include "account/feed/pool.h"
#include "account/feed/want.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "source/internal.h"
#include <string.h>

/* Streams 0, 1 and 2 are the default ones of the current context (cuda.h: CU_STREAM_LEGACY,
 * CU_STREAM_PER_THREAD). */
static int stream_device(const struct gp_call *call, uint64_t stream)
{
    int current = gp_feed_context_device(call->ctx);
    if (GP_LIKELY(current >= 0 && gp_feed_context_is_only(current))) /* the stream's context is of no other */
        return current;
    int device = stream > 2 ? gp_feed_stream_device(stream) : GP_DEVICE_UNKNOWN;
    return device < 0 ? gp_call_device(call) : device;
}

/* While a stream captures, the call makes a node and allocates nothing. */
static bool captured(uint64_t stream)
{
    return gp_thread.node_type == GP_CU_NODE_ALLOC + 1 || gp_feed_stream_is_capturing(stream);
}

static void on_pool_block(struct gp_call *call, const uint64_t *address, uint64_t bytes, uint64_t pool, int device,
                          uint64_t stream)
{
    int pool_device = pool ? gp_feed_pool_device(pool) : GP_DEVICE_UNKNOWN;
    if (pool_device >= 0)
        device = pool_device; /* a device's current pool may lie on another device */
    else if (pool && gp_feed_pool_is_nowhere(pool))
        device = GP_DEVICE_UNKNOWN;
    call->asked_bytes = bytes;
    call->asked_kind = GP_KIND_POOL;
    call->device = device;
    if (!gp_call_ok(call))
        return;
    if (gp_feed_recaptured(*address))
        return; /* the node of the first capture, which is counted */
    if (captured(stream)) {
        uint64_t node = gp_thread.node_type ? gp_thread.node : 0, graph = gp_thread.node_type ? gp_thread.graph : 0;
        gp_feed_graph_node(*address, bytes, device, node, graph);
        gp_feed_capture_graph(stream, graph);
        return;
    }
    if (!pool) {
        gp_feed_pooled(*address, bytes, device, stream);
        return;
    }
    struct gp_allocation block = {
        .space = GP_SPACE_DEVICE,
        .kind = gp_feed_pool_is_managed(pool) ? GP_KIND_MANAGED : GP_KIND_POOL,
        .device = device,
        .address = *address,
        .bytes = bytes,
        .requested_bytes = bytes,
        .stream = stream,
        .pool = pool,
    };
    gp_feed_alloc(&block);
}

static void on_pool_alloc_exit(struct gp_call *call)
{
    const struct gp_params_cuMemAllocAsync *params = GP_PARAMS(call, cuMemAllocAsync);
    uint64_t stream = (uint64_t)(uintptr_t)params->hStream;
    int device = stream_device(call, stream);
    on_pool_block(call, params->dptr, params->bytesize, gp_feed_pool_of(device), device, stream);
}
const struct gp_handler gp_on_pool_alloc = {NULL, on_pool_alloc_exit};

static void on_pool_alloc_from_exit(struct gp_call *call)
{
    const struct gp_params_cuMemAllocFromPoolAsync *params = GP_PARAMS(call, cuMemAllocFromPoolAsync);
    uint64_t stream = (uint64_t)(uintptr_t)params->hStream;
    on_pool_block(call, params->dptr, params->bytesize, (uint64_t)(uintptr_t)params->pool, stream_device(call, stream),
                  stream);
}
const struct gp_handler gp_on_pool_alloc_from = {NULL, on_pool_alloc_from_exit};

static void on_pool_create_exit(struct gp_call *call)
{
    const struct gp_params_cuMemPoolCreate *params = GP_PARAMS(call, cuMemPoolCreate);
    if (!gp_call_ok(call))
        return;
    unsigned flags = params->poolProps->type == GP_CU_ALLOCATION_MANAGED ? GP_POOL_MANAGED : 0;
    gp_feed_pool_create((uint64_t)(uintptr_t)*params->pool, gp_place_device(&params->poolProps->location), flags);
}
const struct gp_handler gp_on_pool_create = {NULL, on_pool_create_exit};

static void on_pool_destroy_enter(struct gp_call *call)
{
    *call->slot = gp_feed_pool_destroy_begin((uint64_t)(uintptr_t)GP_PARAMS(call, cuMemPoolDestroy)->pool);
}

static void on_pool_destroy_exit(struct gp_call *call)
{
    gp_feed_pool_destroy_end((uint32_t)*call->slot, gp_call_ok(call));
}
const struct gp_handler gp_on_pool_destroy = {on_pool_destroy_enter, on_pool_destroy_exit};

/* Trimmed, or an attribute set. */
static void on_pool_change_exit(struct gp_call *call)
{
    if (gp_call_ok(call))
        gp_feed_pool_sure((uint64_t)(uintptr_t)GP_PARAMS(call, cuMemPoolTrimTo)->pool);
    gp_feed_poll_want(GP_POLL_POOLS);
}
const struct gp_handler gp_on_pool_change = {NULL, on_pool_change_exit};

static void on_pool_attribute_exit(struct gp_call *call)
{
    const struct gp_params_cuMemPoolSetAttribute *params = GP_PARAMS(call, cuMemPoolSetAttribute);
    on_pool_change_exit(call);
    uint64_t bytes = 0;
    if (!gp_call_ok(call) || params->attr != GP_CU_POOL_RELEASE_THRESHOLD || !params->value)
        return;
    memcpy(&bytes, params->value, sizeof(bytes));
    if (bytes)
        gp_feed_pool_keeps((uint64_t)(uintptr_t)params->pool, gp_call_device(call));
}
const struct gp_handler gp_on_pool_attribute = {NULL, on_pool_attribute_exit};

static void on_pool_set_exit(struct gp_call *call)
{
    const struct gp_params_cuDeviceSetMemPool *params = GP_PARAMS(call, cuDeviceSetMemPool);
    if (!gp_call_ok(call))
        return;
    gp_feed_pool_use(params->dev, (uint64_t)(uintptr_t)params->pool);
    gp_feed_pool_sure((uint64_t)(uintptr_t)params->pool);
}
const struct gp_handler gp_on_pool_set = {NULL, on_pool_set_exit};

static void on_pool_set_at_exit(struct gp_call *call)
{
    const struct gp_params_cuMemSetMemPool *params = GP_PARAMS(call, cuMemSetMemPool);
    if (gp_call_ok(call) && params->location->type == GP_CU_LOCATION_DEVICE && params->type == GP_CU_ALLOCATION_PINNED)
        gp_feed_pool_use(params->location->id, (uint64_t)(uintptr_t)params->pool);
}
const struct gp_handler gp_on_pool_set_at = {NULL, on_pool_set_at_exit};

/* The default pool of a location is not created by a call, and the poller asks only for those of
 * whole devices. */
static void on_pool_get_at_exit(struct gp_call *call)
{
    const struct gp_params_cuMemGetDefaultMemPool *params = GP_PARAMS(call, cuMemGetDefaultMemPool);
    if (gp_call_ok(call))
        gp_feed_pool_found((uint64_t)(uintptr_t)*params->pool_out, gp_place_device(params->location),
                           params->type == GP_CU_ALLOCATION_MANAGED ? GP_POOL_MANAGED : 0);
}
const struct gp_handler gp_on_pool_get_at = {NULL, on_pool_get_at_exit};

static void on_pool_import_exit(struct gp_call *call)
{
    const struct gp_params_cuMemPoolImportFromShareableHandle *params =
        GP_PARAMS(call, cuMemPoolImportFromShareableHandle);
    int device = gp_call_device(call);
    if (gp_call_ok(call))
        gp_feed_pool_create((uint64_t)(uintptr_t)*params->pool_out, device < 0 ? 0 : device, GP_POOL_IMPORTED);
}
const struct gp_handler gp_on_pool_import = {NULL, on_pool_import_exit};

static void on_pool_import_ptr_exit(struct gp_call *call)
{
    const struct gp_params_cuMemPoolImportPointer *params = GP_PARAMS(call, cuMemPoolImportPointer);
    int device = gp_feed_pool_device((uint64_t)(uintptr_t)params->pool);
    if (gp_call_ok(call))
        gp_feed_pool_import_pointer(*params->ptr_out, device < 0 ? 0 : device);
}
const struct gp_handler gp_on_pool_import_ptr = {NULL, on_pool_import_ptr_exit};
