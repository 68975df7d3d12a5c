/* SPDX-License-Identifier: MIT
 * Stream-ordered memory pools: allocation and free in stream order, reuse under the three reuse
 * rules, growth and return of backing memory.  "Used" counts the bytes asked for at the time of the
 * call.  Called by poolapi.c, by cuMemFree through the record, by waits (thresholds) and by the
 * device when memory runs out. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/contents.h"
#include "cuda/pool.h"

struct sim_pool *sim_pools;

/* ---- backing ----------------------------------------------------------------------------------------------------- */
static void sim_pool_count(struct sim_pool *p, int64_t reserved)
{
    p->reserved += (uint64_t)reserved;
    if (p->reserved > p->reserved_high)
        p->reserved_high = p->reserved;
    sim_ledger_reserved(p->device, reserved);
}

static int sim_chunk_back(struct sim_pool *p, size_t size, uint64_t *offset)
{
    if (p->fd < 0)
        return sim_space_back(size, offset);
    if (ftruncate(p->fd, (off_t)(p->fd_end + size)))
        return -1;
    *offset = p->fd_end;
    p->fd_end += size;
    return 0;
}

static void sim_chunk_unback(struct sim_pool *p, uint64_t offset, size_t size)
{
    if (p->fd < 0)
        sim_space_unback(offset, size);
    else
        (void)fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size);
}

static struct sim_piece *sim_piece_new(struct sim_chunk *c, CUdeviceptr base, size_t size)
{
    struct sim_piece *f = sim_grow(NULL, sizeof *f);

    *f = (struct sim_piece){.chunk = c, .base = base, .size = size};
    return f;
}

static CUresult sim_chunk_add(struct sim_pool *p, size_t size)
{
    struct sim_chunk *c;
    CUdeviceptr base;
    uint64_t offset;

    if (p->props.maxSize && p->reserved + size > p->props.maxSize)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (p->device != SIM_HOST && sim_device_take(p->device, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    base = sim_space_reserve(size, SIM_PAGE, 0);
    if (!base || sim_chunk_back(p, size, &offset)) {
        if (base)
            sim_space_release(base, size);
        if (p->device != SIM_HOST)
            sim_device_give(p->device, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_space_map(base, size, p->fd < 0 ? sim_space_fd() : p->fd, offset, PROT_READ | PROT_WRITE);
    c = sim_grow(NULL, sizeof *c);
    *c = (struct sim_chunk){.next = p->chunks, .pool = p, .base = base, .size = size, .offset = offset};
    c->pieces = sim_piece_new(c, base, size);
    p->chunks = c;
    sim_pool_count(p, (int64_t)size);
    return CUDA_SUCCESS;
}

static void sim_chunk_drop(struct sim_chunk *c)
{
    struct sim_pool *p = c->pool;

    for (struct sim_chunk **at = &p->chunks; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    while (c->pieces) {
        struct sim_piece *f = c->pieces;

        c->pieces = f->next;
        sim_point_drop(&f->freed);
        free(f);
    }
    sim_shadow_forget(c->base, c->size);
    sim_space_unmap(c->base, c->size);
    sim_space_release(c->base, c->size);
    sim_chunk_unback(p, c->offset, c->size);
    if (p->device != SIM_HOST)
        sim_device_give(p->device, c->size);
    sim_pool_count(p, -(int64_t)c->size);
    free(c);
}

/* The step; just the needed bytes if the device or maxSize has less than a step left. */
static CUresult sim_pool_grow(struct sim_pool *p, size_t need)
{
    const size_t exact = sim_round_up(need, SIM_PAGE);
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

    if (exact < SIM_POOL_CHUNK)
        r = sim_chunk_add(p, SIM_POOL_CHUNK);
    return r ? sim_chunk_add(p, exact) : r;
}

/* ---- reuse ------------------------------------------------------------------------------------------------------- */
/* How willing: 0 same stream or long done, 1 event order, 2 finished by chance, 3 by making s wait;
 * -1 not at all. */
static int sim_piece_class(const struct sim_pool *p, const struct sim_piece *f, const struct sim_stream *s)
{
    if (sim_vector_covers(sim_host(), &f->freed.clock) || f->free_slot == s->slot)
        return 0;
    if (p->reuse[0] && sim_vector_covers(&s->point.clock, &f->freed.clock))
        return 1;
    if (p->reuse[1] && sim_point_finished(&f->freed))
        return 2;
    return p->reuse[2] ? 3 : -1;
}

static struct sim_piece *sim_pool_search(const struct sim_pool *p, size_t need, const struct sim_stream *s)
{
    struct sim_piece *best = NULL;
    int best_class = 4;

    for (const struct sim_chunk *c = p->chunks; c; c = c->next)
        for (struct sim_piece *f = c->pieces; f; f = f->next) {
            int class = f->memory || f->size < need ? -1 : sim_piece_class(p, f, s);

            if (class >= 0 && (class < best_class || (class == best_class && f->size < best->size))) {
                best = f;
                best_class = class;
            }
        }
    return best;
}

/* Neighbouring free pieces become one, free when both are; observed_only: only where the host knows
 * both. */
static void sim_pool_merge(struct sim_pool *p, bool observed_only)
{
    for (struct sim_chunk *c = p->chunks; c; c = c->next)
        for (struct sim_piece *f = c->pieces; f && f->next;) {
            struct sim_piece *n = f->next;
            bool known =
                sim_vector_covers(sim_host(), &f->freed.clock) && sim_vector_covers(sim_host(), &n->freed.clock);

            if (f->memory || n->memory || (observed_only && !known)) {
                f = n;
                continue;
            }
            if (f->free_slot != n->free_slot && !known)
                f->free_slot = UINT32_MAX; /* no single stream's order covers both */
            sim_point_join(&f->freed, &n->freed);
            f->size += n->size;
            f->next = n->next;
            sim_point_drop(&n->freed);
            free(n);
        }
}

static void sim_piece_split(struct sim_piece *f, size_t need)
{
    struct sim_piece *rest;

    if (f->size == need)
        return;
    rest = sim_piece_new(f->chunk, f->base + need, f->size - need);
    rest->free_slot = f->free_slot;
    sim_point_copy(&rest->freed, &f->freed);
    rest->next = f->next;
    f->next = rest;
    f->size = need;
}

static struct sim_piece *sim_pool_place(struct sim_pool *p, size_t need, const struct sim_stream *s)
{
    struct sim_piece *f = sim_pool_search(p, need, s);

    if (!f) {
        sim_pool_merge(p, false);
        f = sim_pool_search(p, need, s);
    }
    if (!f && !sim_pool_grow(p, need))
        f = sim_pool_search(p, need, s);
    return f;
}

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

/* ---- free -------------------------------------------------------------------------------------------------------- */
/* freed: when the memory may be reused; NULL: now. */
static void sim_piece_free(struct sim_piece *f, const struct sim_point *freed, uint32_t slot)
{
    struct sim_pool *p = f->chunk->pool;
    struct sim_memory *m = f->memory;

    p->used -= m->size;
    p->outstanding--;
    sim_ledger_kind(p->device, SIM_POOL, -(int64_t)m->size);
    sim_ledger_allocated(p->device, -(int64_t)m->size);
    sim_memory_remove(m);
    free(m);
    f->memory = NULL;
    f->chunk->used_pieces--;
    f->free_slot = slot;
    if (freed)
        sim_point_copy(&f->freed, freed);
    sim_pool_maybe_end(p);
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

/* ---- giving back ------------------------------------------------------------------------------------------------- */
static bool sim_chunk_idle(const struct sim_chunk *c, bool finished)
{
    if (c->used_pieces)
        return false;
    for (const struct sim_piece *f = c->pieces; f; f = f->next)
        if (!sim_vector_covers(sim_host(), &f->freed.clock) && !(finished && sim_point_finished(&f->freed)))
            return false;
    return true;
}

/* Gives back idle chunks while more than `keep` is reserved; below: the last one may go below it. */
void sim_pool_trim(struct sim_pool *p, uint64_t keep, bool below)
{
    struct sim_chunk *next;

    for (struct sim_chunk *c = p->chunks; c && p->reserved > keep; c = next) {
        next = c->next;
        if (sim_chunk_idle(c, false) && (below || p->reserved - c->size >= keep))
            sim_chunk_drop(c);
    }
}

void sim_pools_observe(void)
{
    struct sim_pool *next;

    for (struct sim_pool *p = sim_pools; p; p = next) {
        next = p->next;
        if (p->destroyed) {
            sim_pool_maybe_end(p);
        } else if (p->reserved > p->threshold) {
            sim_pool_merge(p, true);
            sim_pool_trim(p, p->threshold, true);
        }
    }
}

/* Before the device gives up it takes back what no work can touch any more, whatever the thresholds
 * say. */
uint64_t sim_pool_reclaim(int device)
{
    uint64_t got = 0;

    for (struct sim_pool *p = sim_pools; p; p = p->next) {
        struct sim_chunk *next;

        for (struct sim_chunk *c = p->device == device ? p->chunks : NULL; c; c = next) {
            next = c->next;
            if (sim_chunk_idle(c, true)) {
                got += c->size;
                sim_chunk_drop(c);
            }
        }
    }
    return got;
}

bool sim_pool_covers(CUdeviceptr address)
{
    for (const struct sim_pool *p = sim_pools; p; p = p->next)
        for (const struct sim_chunk *c = p->chunks; c; c = c->next)
            if (address >= c->base && address < c->base + c->size)
                return true;
    return false;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */
struct sim_pool *sim_pool_make(const CUmemPoolProps *props, int device, bool standard, int fd)
{
    struct sim_pool *p = sim_grow(NULL, sizeof *p);

    *p = (struct sim_pool){.magic = SIM_POOL_MAGIC,
                           .next = sim_pools,
                           .props = *props,
                           .device = device,
                           .standard = standard,
                           .fd = fd,
                           .fd_end = SIM_PAGE, /* the header's page, and chunks stay aligned */
                           .reuse = {1, 1, 1}};
    if (device >= 0)
        p->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    sim_pools = p;
    return p;
}

void sim_pool_end(struct sim_pool *p)
{
    while (p->chunks)
        sim_chunk_drop(p->chunks);
    for (struct sim_pool **at = &sim_pools; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    if (p->fd >= 0)
        close(p->fd);
    p->magic = 0;
    free(p);
}

void sim_pool_maybe_end(struct sim_pool *p)
{
    if (!p->destroyed || p->outstanding)
        return;
    for (const struct sim_chunk *c = p->chunks; c; c = c->next)
        if (!sim_chunk_idle(c, true))
            return;
    sim_pool_end(p);
}
