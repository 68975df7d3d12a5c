/* SPDX-License-Identifier: MIT
 * on_context.c: legacy IPC, external memory, contexts and loads of modules (tables G and H). */
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/pool.h"
#include "base/clock.h"
#include "base/thread.h"
#include "source/internal.h"

static void on_ipc_open_exit(struct gp_call *call)
{
    const struct gp_params_cuIpcOpenMemHandle_v2 *params = GP_PARAMS(call, cuIpcOpenMemHandle_v2);
    if (gp_call_ok(call))
        gp_feed_ipc_open(*params->pdptr, gp_call_device(call), call->ctx);
}
const struct gp_handler gp_on_ipc_open = {NULL, on_ipc_open_exit};

static void on_ipc_close_enter(struct gp_call *call)
{
    *call->slot = gp_feed_ipc_close_begin(GP_PARAMS(call, cuIpcCloseMemHandle)->dptr);
}

static void on_ipc_close_exit(struct gp_call *call)
{
    gp_feed_ipc_close_end((uint32_t)*call->slot, gp_call_ok(call));
}
const struct gp_handler gp_on_ipc_close = {on_ipc_close_enter, on_ipc_close_exit};

static void on_external(struct gp_call *call, enum gp_space space, uint64_t address, uint64_t bytes)
{
    struct gp_allocation block = {
        .space = space,
        .kind = GP_KIND_IMPORTED,
        .device = gp_call_device(call),
        .ctx = call->ctx,
        .address = address,
        .bytes = bytes,
        .requested_bytes = bytes,
    };
    gp_feed_alloc(&block);
}

static void on_external_buffer_exit(struct gp_call *call)
{
    const struct gp_params_cuExternalMemoryGetMappedBuffer *params = GP_PARAMS(call, cuExternalMemoryGetMappedBuffer);
    if (gp_call_ok(call))
        on_external(call, GP_SPACE_DEVICE, *params->devPtr, params->bufferDesc->size);
}
const struct gp_handler gp_on_external_buffer = {NULL, on_external_buffer_exit};

static void on_external_array_exit(struct gp_call *call)
{
    const struct gp_params_cuExternalMemoryGetMappedMipmappedArray *params =
        GP_PARAMS(call, cuExternalMemoryGetMappedMipmappedArray);
    if (gp_call_ok(call))
        on_external(call, GP_SPACE_ARRAY, (uint64_t)(uintptr_t)*params->mipmap, 0);
}
const struct gp_handler gp_on_external_array = {NULL, on_external_array_exit};

/* CUPTI reports the end of a green context inside this call like that of any other. */
static void on_green_destroy_enter(struct gp_call *call)
{
    (void)call;
    gp_thread.green_ends = 1;
}

static void on_green_destroy_exit(struct gp_call *call)
{
    (void)call;
    gp_thread.green_ends = 0;
}
const struct gp_handler gp_on_green_destroy = {on_green_destroy_enter, on_green_destroy_exit};

/* Which context is a device's primary one: needed where a reset does not announce the context that
 * dies. */
static void on_primary_retain_exit(struct gp_call *call)
{
    const struct gp_params_cuDevicePrimaryCtxRetain *params = GP_PARAMS(call, cuDevicePrimaryCtxRetain);
    if (!gp_call_ok(call) || !gp_call_ask_number)
        return;
    uint32_t number = gp_call_ask_number(*params->pctx);
    if (number)
        gp_feed_primary_context(params->dev, number);
    if (number && gp_call_note_primary)
        gp_call_note_primary(params->dev, *params->pctx, number);
}
const struct gp_handler gp_on_primary_retain = {NULL, on_primary_retain_exit};

static void on_primary_reset_enter(struct gp_call *call)
{
    *call->slot = gp_feed_primary_of(GP_PARAMS(call, cuDevicePrimaryCtxReset_v2)->dev);
    gp_feed_pools_unsure(GP_PARAMS(call, cuDevicePrimaryCtxReset_v2)->dev);
}

static void on_primary_reset_exit(struct gp_call *call)
{
    /* Nothing is left to do if CONTEXT_DESTROY_STARTING came: the number owns no block any more. */
    if (gp_call_ok(call))
        gp_feed_context_destroyed((uint32_t)*call->slot, GP_PARAMS(call, cuDevicePrimaryCtxReset_v2)->dev, false);
}
const struct gp_handler gp_on_primary_reset = {on_primary_reset_enter, on_primary_reset_exit};

/* ---- loads of modules ------------------------------------------------------------------------------------------ */

static uint32_t x_loads; /* under way; what a callback that never came left there does no harm */
static uint64_t x_load_ns;

static void on_load_enter(struct gp_call *call)
{
    *call->slot = 1;
    __atomic_store_n(&x_load_ns, gp_clock_ns(), __ATOMIC_RELAXED);
    __atomic_fetch_add(&x_loads, 1, __ATOMIC_RELAXED);
}

static void on_load_exit(struct gp_call *call)
{
    if (*call->slot) /* its begin was seen */
        __atomic_fetch_sub(&x_loads, 1, __ATOMIC_RELAXED);
}
const struct gp_handler gp_on_load = {on_load_enter, on_load_exit};

bool gp_call_is_loading(void)
{
    const uint64_t longest_ns = 2000000000; /* to read, check and copy a large module; compiling one may take longer */
    return __atomic_load_n(&x_loads, __ATOMIC_RELAXED) &&
           gp_clock_ns() - __atomic_load_n(&x_load_ns, __ATOMIC_RELAXED) < longest_ns;
}
