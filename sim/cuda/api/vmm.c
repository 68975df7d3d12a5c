/* SPDX-License-Identifier: MIT
 * Entry points of address ranges and mappings (vmm.c). */
#include "cuda/vmm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct sim_tile { /* one mapped piece of a sparse array */
    struct sim_tile *next;
    CUarrayMapInfo info;
    struct sim_physical *physical;
};

static struct sim_tile *sim_tiles;

/* ---- reservations ------------------------------------------------------------------------------------------------ */

SIM_API5(547, 10020, cuMemAddressReserve, CUdeviceptr *, ptr, size_t, size, size_t, alignment, CUdeviceptr, addr,
         unsigned long long, flags)
{
    struct sim_context *c = sim_context_peek();
    struct sim_reservation *v;
    CUdeviceptr base = 0;

    if (!ptr || !size || size % 4096 || addr % 4096 || flags || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    /* Mapping asks for the granularity, so a reservation that starts elsewhere would be of no use. */
    if (alignment < SIM_VMM_GRANULARITY)
        alignment = SIM_VMM_GRANULARITY;
    if (addr && addr % alignment == 0)
        base = sim_space_reserve(size, alignment, addr);
    if (!base)
        base = sim_space_reserve(size, alignment, 0);
    if (!base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    v = sim_grow(NULL, sizeof *v);
    *v = (struct sim_reservation){.next = sim_reservations, .base = base, .size = size, .device = c ? c->device : 0};
    sim_reservations = v;
    sim_ledger_kind(v->device, SIM_VIRTUAL, (int64_t)size);
    *ptr = base;
    return CUDA_SUCCESS;
}

/* Does a record (a mapping) touch [p, p+size)? */
static bool sim_range_mapped(CUdeviceptr p, size_t size)
{
    struct sim_memory *next = sim_memory_next(p);

    return sim_memory_find(p) || (next && next->base < p + size);
}

SIM_API2(548, 10020, cuMemAddressFree, CUdeviceptr, ptr, size_t, size)
{
    for (struct sim_reservation **at = &sim_reservations; *at; at = &(*at)->next) {
        struct sim_reservation *v = *at;

        if (v->base != ptr)
            continue;
        if (v->size != size || sim_range_mapped(ptr, size))
            return CUDA_ERROR_INVALID_VALUE;
        *at = v->next;
        sim_space_release(ptr, size);
        sim_ledger_kind(v->device, SIM_VIRTUAL, -(int64_t)size);
        free(v);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

static CUresult sim_mapping_access(struct sim_memory *m, size_t offset, size_t size, int device, bool write)
{
    const struct sim_mapping *map = m->owner;

    (void)offset, (void)size;
    return (map->access[device + 1] & (write ? 2 : 1)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Only cuMemUnmap ends a mapping. */
static CUresult sim_mapping_free(struct sim_memory *m)
{
    (void)m;
    return CUDA_ERROR_INVALID_VALUE;
}

/* offset: the header says "currently must be zero" and also that it be a multiple of the
 * granularity. */
SIM_API5(551, 10020, cuMemMap, CUdeviceptr, ptr, size_t, size, size_t, offset, CUmemGenericAllocationHandle, handle,
         unsigned long long, flags)
{
    struct sim_physical *p = sim_physical_find(handle);
    struct sim_mapping *map;
    struct sim_memory *m;

    if (!p || flags || offset || !size || size > p->size || (p->multicast && !sim_multicast_complete(p)))
        return CUDA_ERROR_INVALID_VALUE;
    if (size != p->size) /* an H200 with driver 580.159: part of a handle cannot be mapped, at whatever address */
        return CUDA_ERROR_NOT_SUPPORTED;
    if (ptr % SIM_VMM_GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_reservation_of(ptr, size) || sim_range_mapped(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_space_map(ptr, size, p->fd, p->offset + offset, PROT_READ | PROT_WRITE))
        return CUDA_ERROR_OUT_OF_MEMORY;
    map = sim_grow(NULL, sizeof *map);
    *map = (struct sim_mapping){.physical = p, .offset = offset};
    if (p->device == SIM_HOST && !p->multicast)
        map->access[0] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    m = sim_grow(NULL, sizeof *m);
    *m = (struct sim_memory){.base = ptr,
                             .size = size,
                             .type = SIM_MEMORY_VMM,
                             .kind = SIM_VMM,
                             .device = p->device,
                             .offset = p->offset + offset,
                             .free = sim_mapping_free,
                             .access = sim_mapping_access,
                             .owner = map};
    sim_memory_insert(m, NULL);
    sim_hazard_born(m);
    p->mappings++;
    sim_physical_mapped(p, (int64_t)size);
    return CUDA_SUCCESS;
}

/* Is [p, p+size) made of whole mappings without gaps? */
static bool sim_range_whole(CUdeviceptr p, size_t size)
{
    const CUdeviceptr end = p + size;

    if (!size || end < p)
        return false;
    while (p < end) {
        struct sim_memory *m = sim_memory_find(p);

        if (!m || m->type != SIM_MEMORY_VMM || m->base != p || m->base + m->size > end)
            return false;
        p += m->size;
    }
    return true;
}

static void sim_mapping_end(struct sim_memory *m)
{
    struct sim_mapping *map = m->owner;
    struct sim_physical *p = map->physical;

    sim_shadow_host(m->device < 0 ? 0 : m->device, m->base, m->size, "cuMemUnmap");
    sim_memory_remove(m);
    sim_space_unmap(m->base, m->size);
    sim_physical_mapped(p, -(int64_t)m->size);
    p->mappings--;
    free(map);
    free(m);
    sim_physical_settle(p);
}

/* The first mapping that ends after p, or NULL if none begins before end. */
static struct sim_memory *sim_mapping_from(CUdeviceptr p, CUdeviceptr end)
{
    struct sim_memory *m = sim_memory_find(p);

    if (!m)
        m = sim_memory_next(p);
    return m && m->base < end ? m : NULL;
}

/* The header forbids to cut a mapping. An H200 with driver 580.159 unmaps a range of which nothing is mapped, so holes are
 * taken to be allowed beside mappings too. */
SIM_API2(552, 10020, cuMemUnmap, CUdeviceptr, ptr, size_t, size)
{
    const CUdeviceptr end = ptr + size;
    struct sim_memory *m;

    if (!size || (ptr | size) % SIM_VMM_GRANULARITY || !sim_reservation_of(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr at = ptr; (m = sim_mapping_from(at, end)); at = m->base + m->size)
        if (m->base < ptr || m->base + m->size > end)
            return CUDA_ERROR_INVALID_VALUE;
    while ((m = sim_mapping_from(ptr, end)))
        sim_mapping_end(m);
    return CUDA_SUCCESS;
}

/* ---- access ------------------------------------------------------------------------------------------------------ */

static bool sim_location_slot(const CUmemLocation *l, int *slot)
{
    switch (l->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *slot = l->id + 1;
        return sim_device_get(l->id) != NULL;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        *slot = 0;
        return true;
    default:
        return false;
    }
}

static CUresult sim_access_check(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *d)
{
    int slot;

    if (!sim_location_slot(&d->location, &slot))
        return d->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    if (d->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && d->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        d->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    /* The host can reach device memory only on coherent platforms; this one is a plain PCIe
     * machine. */
    for (CUdeviceptr at = ptr; slot == 0 && at < ptr + size;) {
        struct sim_memory *m = sim_memory_find(at);

        if (m->device != SIM_HOST)
            return CUDA_ERROR_NOT_SUPPORTED;
        at += m->size;
    }
    return CUDA_SUCCESS;
}

SIM_API4(553, 10020, cuMemSetAccess, CUdeviceptr, ptr, size_t, size, const CUmemAccessDesc *, desc, size_t, count)
{
    if (!desc || !count || !sim_range_whole(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult r = sim_access_check(ptr, size, &desc[i]);

        if (r)
            return r;
    }
    for (CUdeviceptr at = ptr; at < ptr + size;) {
        struct sim_memory *m = sim_memory_find(at);
        struct sim_mapping *map = m->owner;
        int slot;

        for (size_t i = 0; i < count; i++)
            if (sim_location_slot(&desc[i].location, &slot))
                map->access[slot] = (unsigned char)desc[i].flags;
        at += m->size;
    }
    return CUDA_SUCCESS;
}

SIM_API3(558, 10020, cuMemGetAccess, unsigned long long *, flags, const CUmemLocation *, location, CUdeviceptr, ptr)
{
    struct sim_memory *m = sim_memory_find(ptr);
    int slot;

    if (!flags || !location || !m || m->type != SIM_MEMORY_VMM || !sim_location_slot(location, &slot))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = ((struct sim_mapping *)m->owner)->access[slot];
    return CUDA_SUCCESS;
}

/* ---- tiles of sparse arrays -------------------------------------------------------------------------------------- */

static bool sim_tile_same(const CUarrayMapInfo *a, const CUarrayMapInfo *b)
{
    return a->resource.array == b->resource.array && a->subresourceType == b->subresourceType &&
           !memcmp(&a->subresource, &b->subresource, sizeof a->subresource);
}

static void sim_tile_unmap(const CUarrayMapInfo *info)
{
    for (struct sim_tile **at = &sim_tiles; *at; at = &(*at)->next)
        if (sim_tile_same(&(*at)->info, info)) {
            struct sim_tile *t = *at;

            *at = t->next;
            t->physical->mappings--;
            sim_physical_settle(t->physical);
            free(t);
            return;
        }
}

static CUresult sim_tile_check(const CUarrayMapInfo *info)
{
    struct sim_physical *p;

    if (info->memHandleType != CU_MEM_HANDLE_TYPE_GENERIC || info->flags || !info->resource.array)
        return CUDA_ERROR_INVALID_VALUE;
    if (info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP)
        return CUDA_SUCCESS;
    p = sim_physical_find(info->memHandle.memHandle);
    if (info->memOperationType != CU_MEM_OPERATION_TYPE_MAP || !p || info->offset >= p->size ||
        !(p->prop.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

SIM_API3_PTSZ(584, 585, 11010, cuMemMapArrayAsync, CUarrayMapInfo *, mapInfoList, unsigned int, count, CUstream,
              hStream)
{
    CUresult r = sim_stream_check(hStream);

    if (r || !mapInfoList || !count)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < count && !r; i++)
        r = sim_tile_check(&mapInfoList[i]);
    for (unsigned int i = 0; i < count && !r; i++) {
        const CUarrayMapInfo *info = &mapInfoList[i];
        struct sim_tile *t;

        sim_tile_unmap(info);
        if (info->memOperationType != CU_MEM_OPERATION_TYPE_MAP)
            continue;
        t = sim_grow(NULL, sizeof *t);
        *t = (struct sim_tile){sim_tiles, *info, sim_physical_find(info->memHandle.memHandle)};
        t->physical->mappings++;
        sim_tiles = t;
    }
    return r;
}
