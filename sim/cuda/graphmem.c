/* SPDX-License-Identifier: MIT
 * Memory of graphs: addresses from allocation nodes, device memory from their first launch or
 * upload to a trim, frees inside and outside of graphs, and the device's graph memory attributes.
 * Each allocation has memory of its own; a real driver lets allocations of disjoint lifetimes share
 * it, so `reserved` here is an upper bound of its memory.
 */
#include "cuda/graph.h"

#include <stdlib.h>
#include <sys/mman.h>

static struct sim_allocation *sim_allocations;

struct sim_graph_memory *sim_graph_memory(int device)
{
    struct sim_device *d = &sim_devices[device];

    if (!d->graphs) {
        d->graphs = sim_grow(NULL, sizeof(struct sim_graph_memory));
        *(struct sim_graph_memory *)d->graphs = (struct sim_graph_memory){0};
    }
    return d->graphs;
}

static void sim_graph_reserve(int device, int64_t bytes)
{
    struct sim_graph_memory *g = sim_graph_memory(device);

    g->reserved += (uint64_t)bytes;
    if (g->reserved > g->reserved_high)
        g->reserved_high = g->reserved;
    sim_ledger_reserved(device, bytes);
}

static void sim_graph_use(int device, int64_t bytes)
{
    struct sim_graph_memory *g = sim_graph_memory(device);

    g->used += (uint64_t)bytes;
    if (g->used > g->used_high)
        g->used_high = g->used;
    sim_ledger_allocated(device, bytes);
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

/* Memory without pages faults; memory that is merely not allocated now is the hazard detector's
 * business. */
static CUresult sim_graph_access(struct sim_memory *m, size_t offset, size_t size, int device, bool write)
{
    (void)offset, (void)size, (void)device, (void)write;
    return ((const struct sim_allocation *)m->owner)->mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_allocation_new(CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params, struct sim_allocation **out)
{
    const CUmemPoolProps *props = &params->poolProps;
    struct sim_allocation *a;
    CUdeviceptr base;

    /* Graph memory cannot be shared with other processes and lies on a device. */
    if (!params->bytesize || params->bytesize > UINT64_C(1) << 46 ||
        props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || props->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_get(props->location.id) ||
        (params->accessDescCount && !params->accessDescs))
        return CUDA_ERROR_INVALID_VALUE;
    base = sim_space_reserve(sim_round_up(params->bytesize, SIM_PAGE), SIM_PAGE, 0);
    if (!base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    a = sim_grow(NULL, sizeof *a);
    *a = (struct sim_allocation){.next = sim_allocations, .pages = sim_round_up(params->bytesize, SIM_PAGE), .refs = 1};
    a->memory = (struct sim_memory){.base = base,
                                    .size = params->bytesize,
                                    .type = SIM_MEMORY_GRAPH,
                                    .kind = SIM_GRAPH,
                                    .device = props->location.id,
                                    .free = sim_graph_free,
                                    .access = sim_graph_access,
                                    .owner = a};
    sim_allocations = a;
    sim_memory_insert(&a->memory, NULL);
    params->dptr = base;
    *out = a;
    return CUDA_SUCCESS;
}

struct sim_allocation *sim_allocation_find(CUdeviceptr address)
{
    struct sim_memory *m = sim_memory_find(address);

    return m && m->type == SIM_MEMORY_GRAPH && m->base == address ? m->owner : NULL;
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

CUresult sim_allocation_map(struct sim_allocation *a)
{
    const int device = a->memory.device;
    struct sim_graph_memory *g = sim_graph_memory(device);
    uint64_t cached, fresh;

    if (a->mapped)
        return CUDA_SUCCESS;
    cached = g->cached < a->pages ? g->cached : a->pages;
    fresh = a->pages - cached;
    g->cached -= cached; /* before the device is asked, which may take the cached memory back */
    if (fresh && sim_device_take(device, fresh)) {
        g->cached += cached;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (sim_space_back(a->pages, &a->memory.offset)) {
        g->cached += cached;
        sim_device_give(device, fresh);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_graph_reserve(device, (int64_t)fresh);
    sim_space_map(a->memory.base, a->pages, sim_space_fd(), a->memory.offset, PROT_READ | PROT_WRITE);
    a->mapped = true;
    return CUDA_SUCCESS;
}

/* The bytes are gone, the device's memory stays with the graphs. */
static void sim_allocation_unmap(struct sim_allocation *a)
{
    if (!a->mapped)
        return;
    a->mapped = false;
    sim_shadow_forget(a->memory.base, a->memory.size);
    sim_space_unmap(a->memory.base, a->pages);
    sim_space_unback(a->memory.offset, a->pages);
    sim_graph_memory(a->memory.device)->cached += a->pages;
}

void sim_allocation_hold(struct sim_allocation *a)
{
    a->refs++;
}

void sim_allocation_release(struct sim_allocation *a)
{
    if (--a->refs)
        return;
    sim_allocation_unmap(a);
    for (struct sim_allocation **at = &sim_allocations; *at; at = &(*at)->next)
        if (*at == a) {
            *at = a->next;
            break;
        }
    /* Work of the graph may still be queued: the driver keeps the memory that it needs, so this
     * free is safe. */
    sim_shadow_forget(a->memory.base, a->memory.size);
    sim_memory_remove(&a->memory);
    sim_space_release(a->memory.base, a->pages);
    sim_point_drop(&a->last);
    free(a);
}

uint64_t sim_graph_reclaim(int device)
{
    struct sim_graph_memory *g = sim_graph_memory(device);
    uint64_t got;

    for (struct sim_allocation *a = sim_allocations; a; a = a->next)
        if (a->memory.device == device && !a->live && !a->busy && sim_point_finished(&a->last))
            sim_allocation_unmap(a);
    got = g->cached;
    g->cached = 0;
    sim_device_give(device, got);
    sim_graph_reserve(device, -(int64_t)got);
    return got;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

void sim_allocation_begin(struct sim_allocation *a, struct sim_stream *s)
{
    if (!a->live) {
        a->live = true;
        sim_allocation_hold(a);
        sim_graph_use(a->memory.device, (int64_t)a->memory.size);
    }
    sim_access(s, a->memory.base, a->memory.size, true, "graph allocation");
}

void sim_allocation_end(struct sim_allocation *a)
{
    if (!a->live)
        return;
    a->live = false;
    sim_graph_use(a->memory.device, -(int64_t)a->memory.size);
    sim_allocation_release(a);
}

/* Like pool memory: no implicit synchronisation, the caller must have waited. */
CUresult sim_graph_free(struct sim_memory *m)
{
    struct sim_allocation *a = m->owner;

    if (!a->live)
        return CUDA_ERROR_INVALID_VALUE;
    sim_shadow_host(m->device, m->base, m->size, "cuMemFree");
    sim_allocation_end(a);
    return CUDA_SUCCESS;
}

CUresult sim_graph_free_async(struct sim_memory *m, struct sim_stream *s)
{
    struct sim_allocation *a = m->owner;
    CUdeviceptr base = m->base;
    CUresult r;

    if (!a->live)
        return CUDA_ERROR_INVALID_VALUE;
    r = sim_op_begin(s); /* may drop the lock: look again */
    a = sim_allocation_find(base);
    if (r || !a || !a->live)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    sim_access(s, base, a->memory.size, true, "cuMemFreeAsync");
    sim_point_join(&a->last, &s->point);
    sim_allocation_end(a);
    return CUDA_SUCCESS;
}
