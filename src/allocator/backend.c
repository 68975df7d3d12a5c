/* SPDX-License-Identifier: MIT
 * backend.c: the driver as the cache sees it (struct gp_backend of cache.h), for one context.  Every call runs on the
 * program's thread with the context current.  It is not accounted and does not disturb a capture (driver.h). */
#include "allocator/backend.h"
#include "allocator/driver.h"
#include "allocator/mapping.h"
#include "allocator/served.h"
#include "allocator/stream.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "cache/cache.h"

/* The granularity of physical memory on every GPU so far.  backend_page asks the driver all the same. */
#define GP_PAGE_BYTES (2ull << 20)

static bool backend_enter(struct gp_served_context *served, struct gp_driver_guard *guard)
{
    return gp_served_is_live(served) && gp_driver_enter(guard, served->x_ctx);
}

/* ---- linear ------------------------------------------------------------------------------------------------------ */

static uint32_t backend_allocate(void *self, uint64_t bytes, uint64_t *address)
{
    struct gp_driver_guard guard;
    if (!backend_enter(self, &guard))
        return GP_BACKEND_INVALID;
    uint32_t result = gp_driver_real.cuMemAlloc_v2(address, bytes);
    gp_driver_leave(&guard);
    return result;
}

static uint32_t backend_free(void *self, uint64_t address)
{
    struct gp_driver_guard guard;
    if (!backend_enter(self, &guard))
        return GP_BACKEND_INVALID;
    uint32_t result = gp_driver_real.cuMemFree_v2(address);
    gp_driver_leave(&guard);
    return result;
}

static uint32_t backend_memory(void *self, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct gp_driver_guard guard;
    size_t free = 0, total = 0;
    if (!backend_enter(self, &guard))
        return GP_BACKEND_INVALID;
    uint32_t result = gp_driver_real.cuMemGetInfo_v2(&free, &total);
    gp_driver_leave(&guard);
    *free_bytes = free;
    *total_bytes = total;
    return result;
}

/* ---- growable ---------------------------------------------------------------------------------------------------- */

static struct gp_cu_mem_prop backend_prop(const struct gp_served_context *served)
{
    struct gp_cu_mem_prop prop = {.type = GP_CU_ALLOCATION_PLAIN,
                                  .location = {.type = GP_CU_LOCATION_DEVICE, .id = served->device}};
    prop.flags[1] = served->rdma; /* gpuDirectRDMACapable, as cuMemAlloc's memory is */
    return prop;
}

static uint32_t backend_reserve(void *self, uint64_t bytes, uint64_t *address)
{
    struct gp_driver_guard guard;
    if (!backend_enter(self, &guard))
        return GP_BACKEND_INVALID;
    uint32_t result = gp_driver_real.cuMemAddressReserve(address, bytes, 0, 0, 0);
    if (!result && !gp_mapping_add(GP_MAPPING_RANGE, gp_served_index(self), *address, bytes)) {
        gp_driver_real.cuMemAddressFree(*address, bytes);
        result = GP_BACKEND_OOM;
    }
    gp_driver_leave(&guard);
    return result;
}

static uint32_t backend_unreserve(void *self, uint64_t address, uint64_t bytes)
{
    struct gp_driver_guard guard;
    if (!backend_enter(self, &guard))
        return GP_BACKEND_INVALID;
    uint32_t result = gp_driver_real.cuMemAddressFree(address, bytes);
    if (!result)
        gp_mapping_take(GP_MAPPING_RANGE, address);
    gp_driver_leave(&guard);
    return result;
}

static uint32_t backend_create(void *self, uint64_t bytes, uint64_t *handle)
{
    struct gp_cu_mem_prop prop = backend_prop(self);
    struct gp_driver_guard guard;
    if (!backend_enter(self, &guard))
        return GP_BACKEND_INVALID;
    uint32_t result = gp_driver_real.cuMemCreate(handle, bytes, &prop, 0);
    if (!result && !gp_mapping_add(GP_MAPPING_HANDLE, gp_served_index(self), *handle, bytes)) {
        gp_driver_real.cuMemRelease(*handle);
        result = GP_BACKEND_OOM;
    }
    gp_driver_leave(&guard);
    return result;
}

static uint32_t backend_destroy(void *self, uint64_t handle)
{
    struct gp_driver_guard guard;
    if (!backend_enter(self, &guard))
        return GP_BACKEND_INVALID;
    uint32_t result = gp_driver_real.cuMemRelease(handle);
    if (!result)
        gp_mapping_take(GP_MAPPING_HANDLE, handle);
    gp_driver_leave(&guard);
    return result;
}

/* Gives access to the context's own device and to the devices of contexts that enabled peer
 * access.  The caller adds the mapping to the table before x_access is read here;
 * gp_backend_share's caller sets its bit in x_access before it reads the table.  So one of the two
 * sees the other. */
static uint32_t backend_access(const struct gp_served_context *served, uint64_t address, uint64_t bytes)
{
    struct gp_cu_access access[GP_SERVED_LIMIT];
    unsigned count = 0;
    gp_lock_take(&gp_served_lock);
    uint64_t peers = served->x_access;
    gp_lock_give(&gp_served_lock);
    access[count++] = (struct gp_cu_access){{GP_CU_LOCATION_DEVICE, served->device}, GP_CU_ACCESS_READWRITE};
    for (unsigned i = 0; i < GP_SERVED_LIMIT; i++) {
        bool is_new = peers >> i & 1;
        for (unsigned j = 0; is_new && j < count; j++)
            is_new = access[j].location.id != gp_served_contexts[i].device; /* the driver accepts a device only once */
        if (is_new)
            access[count++] =
                (struct gp_cu_access){{GP_CU_LOCATION_DEVICE, gp_served_contexts[i].device}, GP_CU_ACCESS_READWRITE};
    }
    return gp_driver_real.cuMemSetAccess(address, bytes, access, count);
}

/* Unmaps handle by handle, as they were mapped: the driver cannot unmap a part of a mapping. */
static uint32_t backend_undo(uint64_t address, uint64_t end)
{
    uint32_t result = 0;
    while (!result && address < end) {
        uint64_t bytes = gp_mapping_take(GP_MAPPING_MAPPED, address);
        if (!bytes)
            return GP_BACKEND_INVALID;
        result = gp_driver_real.cuMemUnmap(address, bytes);
        address += bytes;
    }
    return result;
}

static uint32_t backend_map(void *self, uint64_t address, uint64_t bytes, const uint64_t *handles,
                            const uint64_t *handle_bytes, unsigned count)
{
    struct gp_driver_guard guard;
    uint64_t at = address;
    uint32_t result = 0;
    if (!backend_enter(self, &guard))
        return GP_BACKEND_INVALID;
    for (unsigned i = 0; !result && i < count; i++) {
        result = gp_driver_real.cuMemMap(at, handle_bytes[i], 0, handles[i], 0);
        if (!result && !gp_mapping_add(GP_MAPPING_MAPPED, gp_served_index(self), at, handle_bytes[i])) {
            gp_driver_real.cuMemUnmap(at, handle_bytes[i]);
            result = GP_BACKEND_OOM;
        }
        if (!result)
            at += handle_bytes[i];
    }
    if (!result)
        result = backend_access(self, address, bytes);
    if (result)
        backend_undo(address, at);
    gp_driver_leave(&guard);
    return result;
}

static uint32_t backend_unmap(void *self, uint64_t address, uint64_t bytes)
{
    struct gp_driver_guard guard;
    if (!backend_enter(self, &guard))
        return GP_BACKEND_INVALID;
    uint32_t result = backend_undo(address, address + bytes);
    gp_driver_leave(&guard);
    return result;
}

void gp_backend_share(struct gp_served_context *served, int device)
{
    const struct gp_cu_access access = {{GP_CU_LOCATION_DEVICE, device}, GP_CU_ACCESS_READWRITE};
    struct gp_driver_guard guard;
    struct gp_mapping mapping;
    unsigned at = 0;
    if (!backend_enter(served, &guard))
        return;
    /* An error means that another thread has unmapped this one meanwhile. */
    while (gp_mapping_next(GP_MAPPING_MAPPED, gp_served_index(served), &at, &mapping))
        gp_driver_real.cuMemSetAccess(mapping.key, mapping.bytes, &access, 1);
    gp_driver_leave(&guard);
}

void gp_backend_clear(struct gp_served_context *served)
{
    unsigned index = gp_served_index(served), at = 0;
    struct gp_driver_guard guard;
    struct gp_mapping mapping;
    if (!gp_driver_enter(&guard, NULL))
        return;
    for (at = 0; gp_mapping_next(GP_MAPPING_MAPPED, index, &at, &mapping);)
        backend_undo(mapping.key, mapping.key + mapping.bytes);
    for (at = 0; gp_mapping_next(GP_MAPPING_HANDLE, index, &at, &mapping);) {
        gp_mapping_take(GP_MAPPING_HANDLE, mapping.key);
        gp_driver_real.cuMemRelease(mapping.key);
    }
    for (at = 0; gp_mapping_next(GP_MAPPING_RANGE, index, &at, &mapping);) {
        gp_mapping_take(GP_MAPPING_RANGE, mapping.key);
        gp_driver_real.cuMemAddressFree(mapping.key, mapping.bytes);
    }
    gp_driver_leave(&guard);
}

/* ---- fences ------------------------------------------------------------------------------------------------------ */

static uint32_t backend_record(void *self, const uint64_t *streams, unsigned count, uint64_t *fence)
{
    return gp_stream_fence_record(self, streams, count, fence);
}

static uint32_t backend_query(void *self, uint64_t fence)
{
    return gp_stream_fence_query(self, fence);
}

static uint32_t backend_wait(void *self, uint64_t fence)
{
    return gp_stream_fence_wait(self, fence);
}

/* ---- table ------------------------------------------------------------------------------------------------------- */

/* Bytes of one page of physical memory; 0: the driver has no virtual memory management. */
static uint64_t backend_page(struct gp_served_context *served)
{
    const struct gp_allocator_driver *d = &gp_driver_real;
    struct gp_driver_guard guard;
    size_t bytes = 0;
    int rdma = 0;
    if (!d->cuMemGetAllocationGranularity || !d->cuMemAddressReserve || !d->cuMemAddressFree || !d->cuMemCreate ||
        !d->cuMemRelease || !d->cuMemMap || !d->cuMemUnmap || !d->cuMemSetAccess || !backend_enter(served, &guard))
        return 0;
    if (d->cuDeviceGetAttribute && d->cuDeviceGetAttribute(&rdma, GP_CU_RDMA_VMM, served->device) == 0)
        served->rdma = rdma != 0;
    const struct gp_cu_mem_prop prop = backend_prop(served);
    uint32_t result = d->cuMemGetAllocationGranularity(&bytes, &prop, 0);
    gp_driver_leave(&guard);
    return result || !bytes ? 0 : (bytes + GP_PAGE_BYTES - 1) / GP_PAGE_BYTES * GP_PAGE_BYTES;
}

void gp_backend_fill(struct gp_served_context *served, struct gp_backend *out)
{
    *out = (struct gp_backend){
        .self = served,
        .page_bytes = backend_page(served),
        .allocate = backend_allocate,
        .free = backend_free,
        .reserve = backend_reserve,
        .unreserve = backend_unreserve,
        .create = backend_create,
        .destroy = backend_destroy,
        .map = backend_map,
        .unmap = backend_unmap,
        .record = backend_record,
        .query = backend_query,
        .wait = backend_wait,
        .memory = backend_memory,
    };
}
