/* SPDX-License-Identifier: MIT
 * Stream-ordered memory pools: their blocks, reuse under the three reuse rules, growth and return of
 * backing memory, and who may reach it.  "Used" counts the bytes asked for at the time of the call.
 * Called by poolorder.c and api/pool.c, by waits (thresholds) and by the device when memory runs out. */
#include "cuda/pool.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

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
    if (!sim_space_allows(p->fd_end + size) || ftruncate(p->fd, (off_t)(p->fd_end + size)))
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

void sim_piece_split(struct sim_piece *f, size_t need)
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

struct sim_piece *sim_pool_place(struct sim_pool *p, size_t need, const struct sim_stream *s)
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

/* ---- free -------------------------------------------------------------------------------------------------------- */

/* freed: when the memory may be reused; NULL: now. */
void sim_piece_free(struct sim_piece *f, const struct sim_point *freed, uint32_t slot)
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

/* Slot 0 is the host, slot d + 1 device d. */
struct sim_pool *sim_pool_defaults[SIM_MAX_DEVICES + 1];
struct sim_pool *sim_pool_currents[SIM_MAX_DEVICES + 1];

void sim_pools_reset(int device)
{
    if (!sim_spec.reset_pools)
        return;
    for (struct sim_pool *p = sim_pools; p; p = p->next)
        if (p->device == device)
            p->dead = true;
    sim_pool_defaults[device + 1] = sim_pool_currents[device + 1] = NULL;
}

CUresult sim_pool_find(CUmemoryPool h, struct sim_pool **out)
{
    for (struct sim_pool *p = sim_pools; p; p = p->next)
        if ((CUmemoryPool)p == h && !p->destroyed) {
            if (p->dead) {
                fprintf(stderr, "gpuprof: sim: a pool is used that died with its device's primary context\n");
                abort();
            }
            *out = p;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

/* ---- access ------------------------------------------------------------------------------------------------------ */

CUresult sim_pool_allows(const struct sim_pool *p, int device, bool write)
{
    if (device == SIM_HOST)
        return CUDA_SUCCESS;
    return (p->access[device] & (write ? 2 : 1)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_pool_record_access(struct sim_memory *m, size_t offset, size_t size, int device, bool write)
{
    struct sim_piece *f = m->owner;

    (void)offset, (void)size;
    return sim_pool_allows(f->chunk->pool, device, write);
}

/* ---- sharing ----------------------------------------------------------------------------------------------------- */

_Static_assert(sizeof(struct sim_pool_export) <= sizeof(CUmemPoolPtrExportData), "fits the opaque export data");

CUresult sim_pool_import_free(struct sim_memory *m)
{
    struct sim_pool_import *i = m->owner;

    sim_shadow_forget(m->base, m->size);
    sim_ledger_kind(i->device, SIM_IMPORTED, -(int64_t)m->size);
    sim_memory_remove(m);
    sim_space_unmap(i->base, i->size);
    sim_space_release(i->base, i->size);
    i->pool->outstanding--;
    sim_pool_maybe_end(i->pool);
    free(i);
    free(m);
    return CUDA_SUCCESS;
}
