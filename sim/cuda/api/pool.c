/* SPDX-License-Identifier: MIT
 * Entry points of memory pools: allocation and free calls, attributes, access, which pool is
 * current, and sharing between processes.  The pools
 * themselves are pool.c and poolorder.c. */
#include "cuda/pool.h"
#include "cuda/memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct sim_pool *sim_pool_default(int device)
{
    struct sim_pool **slot = &sim_pool_defaults[device + 1];
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = device < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                                         .id = device < 0 ? 0 : device}};

    if (!*slot)
        *slot = sim_pool_make(&props, device, true, -1);
    return *slot;
}

static struct sim_pool *sim_pool_current(int device)
{
    struct sim_pool *p = sim_pool_currents[device + 1];

    return p ? p : sim_pool_default(device);
}

/* For a call that a capture may forbid. */
static CUresult sim_pool_ask(CUmemoryPool h, struct sim_pool **out)
{
    CUresult r = sim_pool_find(h, out);

    return r ? r : sim_capture_check();
}

/* ---- allocation -------------------------------------------------------------------------------------------------- */

/* pool NULL: the current pool of the stream's device. */
static CUresult sim_pool_alloc_call(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, bool named, CUstream hs)
{
    struct sim_stream *s;
    struct sim_pool *p;
    CUresult r = sim_stream_resolve(hs, &s);

    if (r)
        return r;
    if (!dptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (named)
        r = sim_pool_find(pool, &p);
    else
        p = sim_pool_current(s->device);
    if (r || p->imported)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_stream_capturing(s))
        return bytes ? sim_graph_capture_alloc(s, &p->props, bytes, dptr) : CUDA_ERROR_INVALID_VALUE;
    r = sim_capture_check(); /* beside a capture it is as unsafe as cuMemAlloc */
    if (r)
        return r;
    *dptr = 0;
    if (!bytes) /* as cuMemAllocHost (host.c) */
        return CUDA_SUCCESS;
    return sim_pool_alloc(p, bytes, s, dptr);
}

SIM_API3_PTSZ(598, 599, 11020, cuMemAllocAsync, CUdeviceptr *, dptr, size_t, bytesize, CUstream, hStream)
{
    return sim_pool_alloc_call(dptr, bytesize, NULL, false, hStream);
}

SIM_API4_PTSZ(611, 612, 11020, cuMemAllocFromPoolAsync, CUdeviceptr *, dptr, size_t, bytesize, CUmemoryPool, pool,
              CUstream, hStream)
{
    return sim_pool_alloc_call(dptr, bytesize, pool, true, hStream);
}

/* The programming guide lets cuMemAlloc's memory be freed in stream order too, which cuda.h does
 * not mention.  It has no pool to go back to: it goes once the stream has come this far.  The wait
 * drops the lock: look again. */
static CUresult sim_linear_free_async(struct sim_memory *m, struct sim_stream *s)
{
    const CUdeviceptr base = m->base;
    const uint64_t id = m->id;
    CUresult r = sim_op_begin(s);

    m = sim_memory_find(base);
    if (r || !m || m->id != id)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    sim_access(s, m->base, m->size, true, "cuMemFreeAsync");
    sim_host_sync_stream(s);
    m = sim_memory_find(base);
    if (!m || m->id != id)
        return CUDA_ERROR_INVALID_VALUE;
    sim_memory_dispose(m);
    return CUDA_SUCCESS;
}

SIM_API2_PTSZ(600, 601, 11020, cuMemFreeAsync, CUdeviceptr, dptr, CUstream, hStream)
{
    struct sim_memory *m;
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r)
        return r;
    if (!dptr)
        return CUDA_SUCCESS;
    m = sim_memory_find(dptr);
    if (!m || m->base != dptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_stream_capturing(s))
        return m->type == SIM_MEMORY_GRAPH ? sim_graph_capture_free(s, m) : CUDA_ERROR_INVALID_VALUE;
    if (m->type == SIM_MEMORY_POOL)
        return sim_pool_free_async(m, s);
    if (m->type == SIM_MEMORY_GRAPH)
        return sim_graph_free_async(m, s);
    if (m->type == SIM_MEMORY_POOL_IMPORTED) {
        sim_point_wait_host(&s->point);
        return sim_pool_import_free(m);
    }
    return m->type == SIM_MEMORY_LINEAR ? sim_linear_free_async(m, s) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static CUresult sim_pool_place_of(const CUmemPoolProps *props, int *device)
{
    const CUmemLocation *l = &props->location;

    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE && props->handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    switch ((int)l->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *device = l->id;
        return sim_device_get(l->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case SIM_LOCATION_LOCALITY_DOMAIN:
        *device = l->id & 0xff;
        return l->id & 0xff00 || !sim_device_get(*device) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
        *device = SIM_HOST;
        return props->handleTypes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        *device = SIM_HOST;
        return l->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; /* the simulated machine has one node */
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* A pool that can be shared has a memfd of its own, whose first page describes it. */
static CUresult sim_pool_file(const CUmemPoolProps *props, int device, int *fd)
{
    struct sim_pool_header h = {
        .magic = SIM_POOL_MAGIC, .physical = device < 0 ? SIM_HOST : sim_device_get(device)->physical, .props = *props};

    *fd = memfd_create("sim-pool", MFD_CLOEXEC);
    if (*fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (sim_space_allows(SIM_PAGE) && pwrite(*fd, &h, sizeof h, 0) == (ssize_t)sizeof h && !ftruncate(*fd, SIM_PAGE))
        return CUDA_SUCCESS;
    close(*fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API2(607, 11020, cuMemPoolCreate, CUmemoryPool *, pool, const CUmemPoolProps *, poolProps)
{
    CUmemPoolProps props;
    int device = 0, fd = -1;
    CUresult r;

    if (!pool || !poolProps)
        return CUDA_ERROR_INVALID_VALUE;
    props = *poolProps;
    r = sim_pool_place_of(&props, &device);
    if (!r && props.handleTypes)
        r = sim_pool_file(&props, device, &fd);
    if (!r)
        *pool = (CUmemoryPool)sim_pool_make(&props, device, false, fd);
    return r;
}

SIM_API1(608, 11020, cuMemPoolDestroy, CUmemoryPool, pool)
{
    struct sim_pool *p;
    CUresult r = sim_pool_find(pool, &p);

    if (r || p->standard)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i <= SIM_MAX_DEVICES; i++)
        if (sim_pool_currents[i] == p)
            sim_pool_currents[i] = NULL;
    p->destroyed = true;
    sim_pool_maybe_end(p);
    return CUDA_SUCCESS;
}

SIM_API2(602, 11020, cuMemPoolTrimTo, CUmemoryPool, pool, size_t, minBytesToKeep)
{
    struct sim_pool *p;
    CUresult r = sim_pool_ask(pool, &p);

    if (!r)
        sim_pool_trim(p, minBytesToKeep, false);
    return r;
}

/* ---- which pool is current --------------------------------------------------------------------------------------- */

SIM_API2(606, 11020, cuDeviceGetDefaultMemPool, CUmemoryPool *, pool_out, CUdevice, dev)
{
    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pool_out)
        return CUDA_ERROR_INVALID_VALUE;
    *pool_out = (CUmemoryPool)sim_pool_default(dev);
    return CUDA_SUCCESS;
}

SIM_API2(610, 11020, cuDeviceGetMemPool, CUmemoryPool *, pool, CUdevice, dev)
{
    if (!sim_device_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    *pool = (CUmemoryPool)sim_pool_current(dev);
    return CUDA_SUCCESS;
}

static CUresult sim_pool_select(int device, CUmemoryPool pool)
{
    struct sim_pool *p;
    CUresult r = sim_pool_find(pool, &p);

    if (r || p->device != device || p->imported)
        return CUDA_ERROR_INVALID_VALUE;
    sim_pool_currents[device + 1] = p;
    return CUDA_SUCCESS;
}

SIM_API2(609, 11020, cuDeviceSetMemPool, CUdevice, dev, CUmemoryPool, pool)
{
    return sim_device_get(dev) ? sim_pool_select(dev, pool) : CUDA_ERROR_INVALID_DEVICE;
}

/* Location and type to device number; managed pools do not exist here. */
static CUresult sim_pool_location(const CUmemLocation *l, CUmemAllocationType type, int *device)
{
    CUmemPoolProps props = {.allocType = type};

    if (!l || l->type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return CUDA_ERROR_INVALID_VALUE;
    props.location = *l;
    return sim_pool_place_of(&props, device);
}

SIM_API3(801, 13000, cuMemGetDefaultMemPool, CUmemoryPool *, pool_out, CUmemLocation *, location, CUmemAllocationType,
         type)
{
    int device;
    CUresult r = sim_pool_location(location, type, &device);

    if (r || !pool_out)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *pool_out = (CUmemoryPool)sim_pool_default(device);
    return CUDA_SUCCESS;
}

SIM_API3(802, 13000, cuMemGetMemPool, CUmemoryPool *, pool, CUmemLocation *, location, CUmemAllocationType, type)
{
    int device;
    CUresult r = sim_pool_location(location, type, &device);

    if (r || !pool)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *pool = (CUmemoryPool)sim_pool_current(device);
    return CUDA_SUCCESS;
}

SIM_API3(803, 13000, cuMemSetMemPool, CUmemLocation *, location, CUmemAllocationType, type, CUmemoryPool, pool)
{
    int device;
    CUresult r = sim_pool_location(location, type, &device);

    return r ? r : sim_pool_select(device, pool);
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

SIM_API3(603, 11020, cuMemPoolSetAttribute, CUmemoryPool, pool, CUmemPool_attribute, attr, void *, value)
{
    struct sim_pool *p;
    CUresult r = sim_pool_ask(pool, &p);

    if (r || !value)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        p->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        if (p->imported)
            return CUDA_ERROR_INVALID_VALUE;
        p->threshold = *(cuuint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: /* high-water marks restart at the current value */
        if (*(cuuint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
            p->reserved_high = p->reserved;
        else
            p->used_high = p->used;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_API3(604, 11020, cuMemPoolGetAttribute, CUmemoryPool, pool, CUmemPool_attribute, attr, void *, value)
{
    struct sim_pool *p;
    CUresult r = sim_pool_ask(pool, &p);

    if (r || !value)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = p->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = p->threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = p->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = p->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = p->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = p->used_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- access ------------------------------------------------------------------------------------------------------ */

static bool sim_access_flags_valid(CUmemAccess_flags f)
{
    return f == CU_MEM_ACCESS_FLAGS_PROT_NONE || f == CU_MEM_ACCESS_FLAGS_PROT_READ ||
           f == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* Nothing changes unless all descriptors are valid.  The pool's own device cannot be shut out. */
SIM_API3(605, 11020, cuMemPoolSetAccess, CUmemoryPool, pool, const CUmemAccessDesc *, map, size_t, count)
{
    struct sim_pool *p;
    CUresult r = sim_pool_find(pool, &p);

    if (r || (!map && count))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_get(map[i].location.id))
            return CUDA_ERROR_INVALID_VALUE;
        if (!sim_access_flags_valid(map[i].flags) ||
            (map[i].location.id == p->device && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++)
        p->access[map[i].location.id] = (unsigned char)map[i].flags;
    return CUDA_SUCCESS;
}

SIM_API3(617, 11020, cuMemPoolGetAccess, CUmemAccess_flags *, flags, CUmemoryPool, memPool, CUmemLocation *, location)
{
    struct sim_pool *p;
    CUresult r = sim_pool_find(memPool, &p);

    if (r || !flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_get(location->id))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = p->access[location->id];
    return CUDA_SUCCESS;
}

/* ---- sharing ----------------------------------------------------------------------------------------------------- */

static uint64_t sim_inode(int fd)
{
    struct stat st;

    return fstat(fd, &st) ? 0 : st.st_ino;
}

SIM_API4(613, 11020, cuMemPoolExportToShareableHandle, void *, handle_out, CUmemoryPool, pool,
         CUmemAllocationHandleType, handleType, unsigned long long, flags)
{
    struct sim_pool *p;
    CUresult r = sim_pool_find(pool, &p);
    int fd;

    if (r || !handle_out || flags || p->imported || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || p->fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)handle_out = fd;
    return CUDA_SUCCESS;
}

/* For POSIX handles, `handle` is the descriptor itself. */
SIM_API4(614, 11020, cuMemPoolImportFromShareableHandle, CUmemoryPool *, pool_out, void *, handle,
         CUmemAllocationHandleType, handleType, unsigned long long, flags)
{
    struct sim_pool_header h;
    struct sim_pool *p;
    int device = SIM_HOST, fd = (int)(intptr_t)handle;

    if (!pool_out || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    if (pread(fd, &h, sizeof h, 0) != (ssize_t)sizeof h || h.magic != SIM_POOL_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < sim_device_count; i++)
        if (sim_devices[i].physical == h.physical)
            device = i;
    if (h.physical != SIM_HOST && device == SIM_HOST)
        return CUDA_ERROR_INVALID_DEVICE;
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    p = sim_pool_make(&h.props, device, false, fd);
    p->props.location.id = device < 0 ? 0 : device;
    p->imported = true;
    *pool_out = (CUmemoryPool)p;
    return CUDA_SUCCESS;
}

SIM_API2(615, 11020, cuMemPoolExportPointer, CUmemPoolPtrExportData *, shareData_out, CUdeviceptr, ptr)
{
    struct sim_memory *m = sim_memory_find(ptr);
    struct sim_piece *f;
    struct sim_pool_export e;

    if (!shareData_out || !m || m->type != SIM_MEMORY_POOL || m->base != ptr)
        return CUDA_ERROR_INVALID_VALUE;
    f = m->owner;
    if (f->chunk->pool->fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    e = (struct sim_pool_export){SIM_POOL_MAGIC, sim_inode(f->chunk->pool->fd), m->offset, m->size};
    memset(shareData_out, 0, sizeof *shareData_out);
    memcpy(shareData_out, &e, sizeof e);
    return CUDA_SUCCESS;
}

static CUresult sim_import_access(struct sim_memory *m, size_t offset, size_t size, int device, bool write)
{
    struct sim_pool_import *i = m->owner;

    (void)offset, (void)size;
    return sim_pool_allows(i->pool, device, write);
}

SIM_API3(616, 11020, cuMemPoolImportPointer, CUdeviceptr *, ptr_out, CUmemoryPool, pool, CUmemPoolPtrExportData *,
         shareData)
{
    struct sim_context *c = sim_context_peek();
    struct sim_pool_export e;
    struct sim_pool_import *i;
    struct sim_memory *m;
    struct sim_pool *p;
    uint64_t start;
    CUresult r = sim_pool_find(pool, &p);

    if (r || !ptr_out || !shareData || !p->imported)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&e, shareData, sizeof e);
    if (e.magic != SIM_POOL_MAGIC || e.inode != sim_inode(p->fd) || !e.size)
        return CUDA_ERROR_INVALID_VALUE;
    start = e.offset & ~UINT64_C(4095); /* mappings start at pages */
    i = sim_grow(NULL, sizeof *i);
    *i =
        (struct sim_pool_import){.pool = p, .size = sim_round_up(e.offset + e.size - start, 4096), .device = p->device};
    i->base = sim_space_reserve(i->size, SIM_PAGE, 0);
    if (!i->base || sim_space_map(i->base, i->size, p->fd, start, PROT_READ | PROT_WRITE)) {
        free(i);
        return CUDA_ERROR_MAP_FAILED;
    }
    if (c)
        i->device = c->device;
    m = sim_grow(NULL, sizeof *m);
    *m = (struct sim_memory){.base = i->base + (e.offset - start),
                             .size = e.size,
                             .type = SIM_MEMORY_POOL_IMPORTED,
                             .kind = SIM_IMPORTED,
                             .device = p->device,
                             .free = sim_pool_import_free,
                             .access = sim_import_access,
                             .owner = i};
    sim_memory_insert(m, NULL);
    p->outstanding++;
    sim_ledger_kind(i->device, SIM_IMPORTED, (int64_t)e.size);
    *ptr_out = m->base;
    return CUDA_SUCCESS;
}
