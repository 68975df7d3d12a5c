/* SPDX-License-Identifier: MIT
 * Allocation and free in stream order, from the blocks of pool.c. */
#include "cuda/contents.h"
#include "cuda/pool.h"

CUresult sim_pool_alloc(struct sim_pool *p, size_t bytes, struct sim_stream *s, CUdeviceptr *out)
{
    struct sim_memory *m;
    struct sim_piece *f;
    CUresult r;

    if (bytes > UINT64_C(1) << 46) /* beyond any address space: sums below cannot overflow */
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = sim_op_begin(s);
    if (r)
        return r;
    f = sim_pool_place(p, sim_round_up(bytes, SIM_POOL_STEP), s);
    if (!f)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_piece_split(f, sim_round_up(bytes, SIM_POOL_STEP));
    sim_point_join(&s->point, &f->freed);
    sim_point_drop(&f->freed);
    m = sim_grow(NULL, sizeof *m);
    *m = (struct sim_memory){.base = f->base,
                             .size = bytes,
                             .type = SIM_MEMORY_POOL,
                             .kind = SIM_POOL,
                             .device = p->device,
                             .offset = f->chunk->offset + (f->base - f->chunk->base),
                             .free = sim_pool_free,
                             .access = sim_pool_record_access,
                             .owner = f};
    f->memory = m;
    f->chunk->used_pieces++;
    sim_memory_insert(m, NULL);
    sim_contents_forget(m->base, m->size);
    p->outstanding++;
    p->used += bytes;
    if (p->used > p->used_high)
        p->used_high = p->used;
    sim_ledger_kind(p->device, SIM_POOL, (int64_t)bytes);
    sim_ledger_allocated(p->device, (int64_t)bytes);
    sim_access(s, m->base, bytes, true, "cuMemAllocAsync");
    *out = m->base;
    return CUDA_SUCCESS;
}

/* cuMemFree of pool memory does not synchronise: the caller must have. */
CUresult sim_pool_free(struct sim_memory *m)
{
    if (sim_memory_on_device(m))
        sim_shadow_host(m->device, m->base, m->size, "cuMemFree");
    sim_piece_free(m->owner, NULL, UINT32_MAX);
    return CUDA_SUCCESS;
}

CUresult sim_pool_free_async(struct sim_memory *m, struct sim_stream *s)
{
    CUresult r = sim_op_begin(s);

    if (r)
        return r;
    sim_access(s, m->base, m->size, true, "cuMemFreeAsync");
    sim_piece_free(m->owner, &s->point, s->slot);
    return CUDA_SUCCESS;
}
