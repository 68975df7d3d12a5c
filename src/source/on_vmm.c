/* SPDX-License-Identifier: MIT
 * on_vmm.c: virtual memory management and multicast (table D and part of G). */
#include "account/feed/before.h"
#include "account/feed/block.h"
#include "account/feed/feed.h"
#include "account/feed/vmm.h"
#include "source/internal.h"

static int current_or_first(const struct gp_call *call)
{
    int device = gp_call_device(call);
    return device < 0 ? 0 : device; /* needs no context: an address range belongs to no device */
}

static void on_va_reserve_exit(struct gp_call *call)
{
    const struct gp_params_cuMemAddressReserve *params = GP_PARAMS(call, cuMemAddressReserve);
    struct gp_allocation block = {
        .space = GP_SPACE_RANGE,
        .kind = GP_KIND_VIRTUAL,
        .device = current_or_first(call),
        .bytes = params->size,
        .requested_bytes = params->size,
    };
    if (!gp_call_ok(call))
        return;
    block.address = *params->ptr;
    gp_feed_alloc(&block);
}
const struct gp_handler gp_on_va_reserve = {NULL, on_va_reserve_exit};

static void on_va_free_enter(struct gp_call *call)
{
    *call->slot = gp_feed_free_begin(GP_SPACE_RANGE, GP_PARAMS(call, cuMemAddressFree)->ptr);
}

static void on_va_free_exit(struct gp_call *call)
{
    gp_feed_free_end((uint32_t)*call->slot, gp_call_ok(call), 0);
}
const struct gp_handler gp_on_va_free = {on_va_free_enter, on_va_free_exit};

static void on_vmm_create_exit(struct gp_call *call)
{
    const struct gp_params_cuMemCreate *params = GP_PARAMS(call, cuMemCreate);
    call->asked_bytes = params->size;
    call->asked_kind = GP_KIND_VMM;
    if (params->prop)
        call->device = gp_place_device(&params->prop->location);
    if (gp_call_ok(call))
        gp_feed_vmm_create(*params->handle, params->size, call->device);
}
const struct gp_handler gp_on_vmm_create = {NULL, on_vmm_create_exit};

static void on_vmm_release_enter(struct gp_call *call)
{
    *call->slot = gp_feed_vmm_release_begin(GP_PARAMS(call, cuMemRelease)->handle);
}

static void on_vmm_release_exit(struct gp_call *call)
{
    uint32_t token = (uint32_t)*call->slot;
    if (token)
        gp_feed_vmm_release_end(token, gp_call_ok(call));
    else if (gp_call_ok(call))
        gp_feed_unknown_free(GP_SPACE_VMM, GP_PARAMS(call, cuMemRelease)->handle);
}
const struct gp_handler gp_on_vmm_release = {on_vmm_release_enter, on_vmm_release_exit};

static void on_vmm_retain_exit(struct gp_call *call)
{
    if (gp_call_ok(call))
        gp_feed_vmm_retain(*GP_PARAMS(call, cuMemRetainAllocationHandle)->handle);
}
const struct gp_handler gp_on_vmm_retain = {NULL, on_vmm_retain_exit};

static void on_vmm_import_exit(struct gp_call *call)
{
    if (gp_call_ok(call))
        gp_feed_vmm_import(*GP_PARAMS(call, cuMemImportFromShareableHandle)->handle, current_or_first(call));
}
const struct gp_handler gp_on_vmm_import = {NULL, on_vmm_import_exit};

static void on_vmm_map_exit(struct gp_call *call)
{
    const struct gp_params_cuMemMap *params = GP_PARAMS(call, cuMemMap);
    if (gp_call_ok(call))
        gp_feed_vmm_map(params->ptr, params->size, params->offset, params->handle);
}
const struct gp_handler gp_on_vmm_map = {NULL, on_vmm_map_exit};

static void on_vmm_unmap_enter(struct gp_call *call)
{
    const struct gp_params_cuMemUnmap *params = GP_PARAMS(call, cuMemUnmap);
    *call->slot = gp_feed_vmm_unmap_begin(params->ptr, params->size);
}

static void on_vmm_unmap_exit(struct gp_call *call)
{
    gp_feed_vmm_unmap_end((uint32_t)*call->slot, gp_call_ok(call));
    if (gp_call_ok(call))
        gp_feed_before_unmapped(GP_PARAMS(call, cuMemUnmap)->ptr, GP_PARAMS(call, cuMemUnmap)->size);
}
const struct gp_handler gp_on_vmm_unmap = {on_vmm_unmap_enter, on_vmm_unmap_exit};

/* ---- multicast ------------------------------------------------------------------------------------------------ */

static void on_multicast_create_exit(struct gp_call *call)
{
    if (gp_call_ok(call))
        gp_feed_vmm_object(*GP_PARAMS(call, cuMulticastCreate)->mcHandle, current_or_first(call));
}
const struct gp_handler gp_on_multicast_create = {NULL, on_multicast_create_exit};

/* Another process made it, and here it was imported: an import does not say what it is of. */
static void on_multicast_join_exit(struct gp_call *call)
{
    if (gp_call_ok(call))
        gp_feed_vmm_join(GP_PARAMS(call, cuMulticastAddDevice)->mcHandle);
}
const struct gp_handler gp_on_multicast_join = {NULL, on_multicast_join_exit};

/* Pool memory has no handle; while bound it counts in the reserve of its pool. */
static void bind_memory(uint64_t object, int device, uint64_t offset, uint64_t bytes, uint64_t handle)
{
    if (handle)
        gp_feed_vmm_bind(object, device, offset, bytes, handle);
}

static void on_multicast_bind_exit(struct gp_call *call)
{
    const struct gp_params_cuMulticastBindMem *params = GP_PARAMS(call, cuMulticastBindMem);
    if (gp_call_ok(call))
        bind_memory(params->mcHandle, GP_DEVICE_UNKNOWN, params->mcOffset, params->size, params->memHandle);
}
const struct gp_handler gp_on_multicast_bind = {NULL, on_multicast_bind_exit};

static void on_multicast_bind_v2_exit(struct gp_call *call)
{
    const struct gp_params_cuMulticastBindMem_v2 *params = GP_PARAMS(call, cuMulticastBindMem_v2);
    if (gp_call_ok(call))
        bind_memory(params->mcHandle, params->dev, params->mcOffset, params->size, params->memHandle);
}
const struct gp_handler gp_on_multicast_bind_v2 = {NULL, on_multicast_bind_v2_exit};

static void on_multicast_bind_addr_exit(struct gp_call *call)
{
    const struct gp_params_cuMulticastBindAddr *params = GP_PARAMS(call, cuMulticastBindAddr);
    if (gp_call_ok(call))
        bind_memory(params->mcHandle, GP_DEVICE_UNKNOWN, params->mcOffset, params->size,
                    gp_feed_vmm_handle_at(params->memptr));
}
const struct gp_handler gp_on_multicast_bind_addr = {NULL, on_multicast_bind_addr_exit};

static void on_multicast_bind_addr_v2_exit(struct gp_call *call)
{
    const struct gp_params_cuMulticastBindAddr_v2 *params = GP_PARAMS(call, cuMulticastBindAddr_v2);
    if (gp_call_ok(call))
        bind_memory(params->mcHandle, params->dev, params->mcOffset, params->size,
                    gp_feed_vmm_handle_at(params->memptr));
}
const struct gp_handler gp_on_multicast_bind_addr_v2 = {NULL, on_multicast_bind_addr_v2_exit};

static void on_multicast_unbind_exit(struct gp_call *call)
{
    const struct gp_params_cuMulticastUnbind *params = GP_PARAMS(call, cuMulticastUnbind);
    if (gp_call_ok(call))
        gp_feed_vmm_unbind(params->mcHandle, params->dev, params->mcOffset, params->size);
}
const struct gp_handler gp_on_multicast_unbind = {NULL, on_multicast_unbind_exit};

/* ---- logical endpoints ---------------------------------------------------------------------------------------- */

/* Their ids are small numbers of their own; no allocation handle has the top bit. */
static uint64_t endpoint_object(uint32_t id)
{
    return 1ull << 63 | id;
}

static void on_endpoint_bind_exit(struct gp_call *call)
{
    const struct gp_params_cuLogicalEndpointBindMem *params = GP_PARAMS(call, cuLogicalEndpointBindMem);
    if (gp_call_ok(call))
        bind_memory(endpoint_object(params->leId), params->dev, params->offset, params->size, params->memHandle);
}
const struct gp_handler gp_on_endpoint_bind = {NULL, on_endpoint_bind_exit};

static void on_endpoint_bind_addr_exit(struct gp_call *call)
{
    const struct gp_params_cuLogicalEndpointBindAddr *params = GP_PARAMS(call, cuLogicalEndpointBindAddr);
    if (gp_call_ok(call))
        bind_memory(endpoint_object(params->leId), params->dev, params->offset, params->size,
                    gp_feed_vmm_handle_at((uint64_t)(uintptr_t)params->ptr));
}
const struct gp_handler gp_on_endpoint_bind_addr = {NULL, on_endpoint_bind_addr_exit};

static void on_endpoint_unbind_exit(struct gp_call *call)
{
    const struct gp_params_cuLogicalEndpointUnbind *params = GP_PARAMS(call, cuLogicalEndpointUnbind);
    if (gp_call_ok(call))
        gp_feed_vmm_unbind(endpoint_object(params->leId), params->dev, params->offset, params->size);
}
const struct gp_handler gp_on_endpoint_unbind = {NULL, on_endpoint_unbind_exit};

static void on_endpoint_destroy_exit(struct gp_call *call)
{
    if (gp_call_ok(call))
        gp_feed_vmm_unbind_all(endpoint_object(GP_PARAMS(call, cuLogicalEndpointDestroy)->leId));
}
const struct gp_handler gp_on_endpoint_destroy = {NULL, on_endpoint_destroy_exit};
