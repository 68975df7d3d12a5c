/* SPDX-License-Identifier: MIT
 * Logical endpoints (CUDA 13.3): ids that the program reserves, endpoints that it makes at them, and
 * memory bound to those at offsets.  Bound memory stays alive until it is unbound or the endpoint is
 * destroyed.  The simulated machine has no fabric: nothing is exported or imported. */
#include <stdlib.h>

#include "cuda/vmm.h"

/* cuda.h of 13.3; the headers here are those of 13.0. */
typedef cuuint32_t sim_endpoint_id;
enum { SIM_ENDPOINT_UNICAST = 1, SIM_ENDPOINT_MULTICAST = 2 };
struct sim_endpoint_prop {
    int type;
    union {
        CUdevice device;
        unsigned int devices;
    };
    unsigned long long size;
    int handle_types;
    unsigned int flags;
};

struct sim_endpoint {
    struct sim_endpoint *next;
    sim_endpoint_id id;
    struct sim_endpoint_prop prop;
    uint64_t devices; /* bit per device of the team */
    unsigned int joined;
    bool asked; /* a query said that it is ready */
    struct sim_bind *binds;
};
struct sim_endpoint_range {
    struct sim_endpoint_range *next;
    sim_endpoint_id base;
    cuuint32_t count;
};
_Static_assert(SIM_MAX_DEVICES <= 64, "a bit per device");

static struct sim_endpoint *sim_endpoints;
static struct sim_endpoint_range *sim_endpoint_ranges;

static struct sim_endpoint *sim_endpoint_find(sim_endpoint_id id)
{
    struct sim_endpoint *e = sim_endpoints;

    while (e && e->id != id)
        e = e->next;
    return e;
}

static bool sim_endpoint_complete(const struct sim_endpoint *e)
{
    return e->prop.type == SIM_ENDPOINT_UNICAST || e->joined == e->prop.devices;
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */
SIM_API2(812, 13030, cuLogicalEndpointIdReserve, sim_endpoint_id *, baseLeId, cuuint32_t, count)
{
    static sim_endpoint_id next = 16;
    struct sim_endpoint_range *range;

    if (!baseLeId || !count || count > UINT32_MAX - next)
        return CUDA_ERROR_INVALID_VALUE;
    range = sim_grow(NULL, sizeof *range);
    *range = (struct sim_endpoint_range){sim_endpoint_ranges, next, count};
    sim_endpoint_ranges = range;
    *baseLeId = next;
    next += count;
    return CUDA_SUCCESS;
}

/* Whole ranges only; the real driver takes parts too. */
SIM_API2(813, 13030, cuLogicalEndpointIdRelease, sim_endpoint_id, baseLeId, cuuint32_t, count)
{
    for (const struct sim_endpoint *e = sim_endpoints; e; e = e->next)
        if (e->id - baseLeId < count)
            return CUDA_ERROR_INVALID_VALUE;
    for (struct sim_endpoint_range **at = &sim_endpoint_ranges; *at; at = &(*at)->next)
        if ((*at)->base == baseLeId && (*at)->count == count) {
            struct sim_endpoint_range *range = *at;

            *at = range->next;
            free(range);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static bool sim_endpoint_reserved(sim_endpoint_id id)
{
    for (const struct sim_endpoint_range *range = sim_endpoint_ranges; range; range = range->next)
        if (id - range->base < range->count)
            return true;
    return false;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */
static CUresult sim_endpoint_check(const struct sim_endpoint_prop *prop)
{
    if (!prop || prop->flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->handle_types)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->type == SIM_ENDPOINT_UNICAST)
        return sim_device_get(prop->device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    if (prop->type != SIM_ENDPOINT_MULTICAST || !prop->devices || prop->devices > (unsigned int)sim_device_count)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

SIM_API2(814, 13030, cuLogicalEndpointCreate, sim_endpoint_id, leId, const struct sim_endpoint_prop *, prop)
{
    struct sim_endpoint *e;
    CUresult r = sim_endpoint_check(prop);

    if (r)
        return r;
    if (!prop->size || prop->size % SIM_VMM_GRANULARITY || !sim_endpoint_reserved(leId) || sim_endpoint_find(leId))
        return CUDA_ERROR_INVALID_VALUE;
    e = sim_grow(NULL, sizeof *e);
    *e = (struct sim_endpoint){.next = sim_endpoints, .id = leId, .prop = *prop};
    if (prop->type == SIM_ENDPOINT_UNICAST)
        e->devices = UINT64_C(1) << prop->device;
    sim_endpoints = e;
    return CUDA_SUCCESS;
}

SIM_API2(815, 13030, cuLogicalEndpointAddDevice, sim_endpoint_id, leId, CUdevice, dev)
{
    struct sim_endpoint *e = sim_endpoint_find(leId);

    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!e || sim_endpoint_complete(e) || e->devices >> dev & 1)
        return CUDA_ERROR_INVALID_VALUE;
    e->devices |= UINT64_C(1) << dev;
    e->joined++;
    return CUDA_SUCCESS;
}

SIM_API1(816, 13030, cuLogicalEndpointDestroy, sim_endpoint_id, leId)
{
    for (struct sim_endpoint **at = &sim_endpoints; *at; at = &(*at)->next)
        if ((*at)->id == leId) {
            struct sim_endpoint *e = *at;

            sim_bind_remove_all(&e->binds);
            *at = e->next;
            free(e);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

/* ---- binding ----------------------------------------------------------------------------------------------------- */
static CUresult sim_endpoint_bind(sim_endpoint_id id, CUdevice dev, cuuint64_t offset, struct sim_physical *memory,
                                  size_t at, cuuint64_t size, unsigned long long flags)
{
    struct sim_endpoint *e = sim_endpoint_find(id);

    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!e || flags || !e->asked || !(e->devices >> dev & 1) || size > e->prop.size || offset > e->prop.size - size)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_bind_add(&e->binds, dev, offset, memory, at, size);
}

/* Pool memory can be bound on a real driver; here only mapped memory can. */
SIM_API6(817, 13030, cuLogicalEndpointBindAddr, sim_endpoint_id, leId, CUdevice, dev, cuuint64_t, offset, void *, ptr,
         cuuint64_t, size, unsigned long long, flags)
{
    size_t at = 0;
    struct sim_physical *memory = sim_physical_at((CUdeviceptr)(uintptr_t)ptr, &at);

    return sim_endpoint_bind(leId, dev, offset, memory, at, size, flags);
}

SIM_API7(818, 13030, cuLogicalEndpointBindMem, sim_endpoint_id, leId, CUdevice, dev, cuuint64_t, offset,
         CUmemGenericAllocationHandle, memHandle, cuuint64_t, memOffset, cuuint64_t, size, unsigned long long, flags)
{
    return sim_endpoint_bind(leId, dev, offset, sim_physical_find(memHandle), memOffset, size, flags);
}

SIM_API4(819, 13030, cuLogicalEndpointUnbind, sim_endpoint_id, leId, CUdevice, dev, cuuint64_t, offset, cuuint64_t,
         size)
{
    struct sim_endpoint *e = sim_endpoint_find(leId);

    return e ? sim_bind_remove(&e->binds, dev, offset, size) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- sharing and questions --------------------------------------------------------------------------------------- */
SIM_API3(820, 13030, cuLogicalEndpointExport, void *, handle, sim_endpoint_id, leId, int, handleType)
{
    (void)handleType;
    return handle && sim_endpoint_find(leId) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

SIM_API3(821, 13030, cuLogicalEndpointImport, sim_endpoint_id, leId, const void *, handle, int, handleType)
{
    (void)handleType;
    return handle && sim_endpoint_reserved(leId) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

SIM_API3(822, 13030, cuLogicalEndpointQuery, sim_endpoint_id, leId, cuuint32_t, count, int *, queryStatus)
{
    if (!queryStatus || !count)
        return CUDA_ERROR_INVALID_VALUE;
    *queryStatus = 1;
    for (cuuint32_t i = 0; i < count; i++) {
        struct sim_endpoint *e = sim_endpoint_find(leId + i);

        if (!e)
            return CUDA_ERROR_INVALID_VALUE;
        e->asked = sim_endpoint_complete(e);
        *queryStatus = *queryStatus && e->asked;
    }
    return CUDA_SUCCESS;
}

SIM_API3(823, 13030, cuLogicalEndpointGetLimits, cuuint64_t *, bindAlignment, cuuint64_t *, maxSize,
         const struct sim_endpoint_prop *, prop)
{
    CUresult r = sim_endpoint_check(prop);

    if (r || !bindAlignment || !maxSize)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *bindAlignment = SIM_VMM_GRANULARITY;
    *maxSize = 1024 * SIM_GIB;
    return CUDA_SUCCESS;
}
