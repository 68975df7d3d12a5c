/* SPDX-License-Identifier: MIT
 *
 * contents=none: the programs of a dry run use more device memory than this machine has, and few of
 * its bytes are ever read.  Writes above SIM_KEEP are dropped, and what was never written stays a
 * hole of the file behind the memory: it reads as zeros, and reading it makes no pages.  Smaller
 * writes are kept, since programs read back what they wrote; the oldest go when SIM_KEPT is full.
 *
 * Kernels compute nothing here, so the result of each is zeros.  A caching allocator gives the
 * address of an old small write to the result of a kernel, and the simulator does not see it do so;
 * it sees the pointer among the launch's parameters (layout.c).  A launch therefore clears the
 * pieces that its parameters point into, and one whose parameters are not known clears all.  How
 * far a kernel writes is not known, but a program reads a result from its start: pieces up to
 * SIM_KEEP behind such a pointer remember it, and are cleared when a read begins at or before the
 * pointer and reaches them. */
#include "contents.h"
#include "module.h"
#include "stream.h"

#include <stdlib.h>
#include <string.h>

SIM_EXPORT void sim_read_as(const uint64_t *number);

#define SIM_KEEP SIM_MIB
#define SIM_KEPT (32 * SIM_MIB)

/* ---- copies and sets --------------------------------------------------------------------------------------------- */

static bool sim_side_dropped(const struct sim_side *side)
{
    if (side->array)
        return true;
    if (side->host)
        return false;
    const struct sim_memory *memory = sim_memory_find(side->base);
    if (!memory)
        return sim_pool_covers(side->base);
    return sim_memory_on_device(memory) && memory->type != SIM_MEMORY_MANAGED && memory->type != SIM_MEMORY_EXTERNAL &&
           memory->type != SIM_MEMORY_LOW;
}

static size_t sim_side_span(const struct sim_work *work, const struct sim_side *side)
{
    return (work->depth - 1) * side->slice + (work->height - 1) * side->pitch + work->width;
}

static CUdeviceptr sim_side_row(const struct sim_side *side, size_t z, size_t y)
{
    return side->base + z * side->slice + y * side->pitch;
}

static void sim_side_forget(const struct sim_work *work, const struct sim_side *side)
{
    size_t bytes = work->width * work->height * work->depth;
    if (sim_side_span(work, side) == bytes) {
        sim_bytes_clear(side->base, side->base + bytes);
        return;
    }
    for (size_t z = 0; z < work->depth; z++)
        for (size_t y = 0; y < work->height; y++) {
            CUdeviceptr row = sim_side_row(side, z, y);
            sim_bytes_clear(row, row + work->width);
        }
}

/* The side was just written; of rows with gaps the whole span is one piece. */
static void sim_side_keep(const struct sim_work *work, const struct sim_side *side)
{
    CUdeviceptr base = side->base, end = base + sim_side_span(work, side);
    sim_piece_cut(base, end);
    sim_piece_insert(sim_piece_find(base), (struct sim_kept_piece){base, end, 0, ++sim_kept.writes});
    while (sim_kept.bytes > SIM_KEPT) {
        const struct sim_kept_piece *oldest = sim_kept.at;
        for (size_t i = 1; i < sim_kept.count; i++)
            if (sim_kept.at[i].age < oldest->age)
                oldest = &sim_kept.at[i];
        sim_bytes_clear(oldest->base, oldest->end);
    }
}

/* Before a read: what kernels have had since it was written is not there any more. */
static void sim_side_settle(const struct sim_work *work, const struct sim_side *side)
{
    CUdeviceptr end = side->base + sim_side_span(work, side);
    for (size_t at = sim_piece_find(side->base); at < sim_kept.count && sim_kept.at[at].base < end;)
        if (sim_kept.at[at].given >= side->base)
            sim_bytes_clear(sim_kept.at[at].base, sim_kept.at[at].end);
        else
            at++;
}

/* Rows to a row after row buffer. */
static bool sim_side_fetch(const struct sim_work *work, char *to)
{
    bool any = false;
    for (size_t z = 0; z < work->depth; z++)
        for (size_t y = 0; y < work->height; y++, to += work->width)
            any |= sim_bytes_fetch(to, sim_side_row(&work->source, z, y), work->width, false);
    return any;
}

static void sim_side_store(const struct sim_work *work, const char *from)
{
    for (size_t z = 0; z < work->depth; z++)
        for (size_t y = 0; y < work->height; y++, from += work->width)
            memcpy((void *)sim_side_row(&work->destination, z, y), from, work->width);
    sim_side_keep(work, &work->destination);
}

/* Whether the host wrote all of the range, and it is still there. */
static bool sim_bytes_kept(CUdeviceptr base, CUdeviceptr end)
{
    for (size_t at = sim_piece_find(base); base < end && at < sim_kept.count && sim_kept.at[at].base <= base; at++)
        base = sim_kept.at[at].end;
    return base >= end;
}

/* What the host has not written, of what was read. */
static void sim_side_fill(const struct sim_work *work)
{
    const size_t read = work->width * work->height * work->depth;
    for (size_t z = 0; z < work->depth; z++)
        for (size_t y = 0; y < work->height; y++) {
            CUdeviceptr row = sim_side_row(&work->source, z, y), end = row + work->width, at = row;
            char *to = (char *)sim_side_row(&work->destination, z, y);
            for (size_t i = sim_piece_find(row); at < end; i++) {
                const struct sim_kept_piece *piece = i < sim_kept.count ? &sim_kept.at[i] : NULL;
                CUdeviceptr stop = piece && piece->base < end ? piece->base : end;
                if (stop > at)
                    sim_fill_bytes(to + (at - row), at, stop - at, work->fill, read);
                at = stop < end ? piece->end : end;
            }
        }
}

void sim_read_as(const uint64_t *number)
{
    sim_self.told = number != NULL;
    sim_self.number = number ? *number : 0;
}

static bool sim_is_told(const struct sim_work *work)
{
    CUdeviceptr base = work->source.base;
    return work->told && work->width <= sizeof work->number && work->height == 1 && work->depth == 1 &&
           !sim_bytes_kept(base, base + work->width);
}

/* Host memory that the driver gave, from the same file as device memory: a program may save gigabytes of results there. */
static bool sim_side_pinned(const struct sim_side *side)
{
    const struct sim_memory *memory = side->host || side->array ? NULL : sim_memory_find(side->base);
    return memory && memory->type == SIM_MEMORY_PINNED;
}

static void sim_contents_to_host(const struct sim_work *work)
{
    CUdeviceptr base = work->source.base;
    const bool told = sim_is_told(work);
    if (!told && !sim_bytes_kept(base, base + sim_side_span(work, &work->source)))
        sim_self.read_bytes += work->width * work->height * work->depth;
    const bool large = sim_side_pinned(&work->destination) && work->width > SIM_KEEP;
    for (size_t z = 0; z < work->depth; z++)
        for (size_t y = 0; y < work->height; y++) {
            CUdeviceptr to = sim_side_row(&work->destination, z, y);
            if (large)
                sim_bytes_clear(to, to + work->width);
            sim_bytes_fetch((void *)to, sim_side_row(&work->source, z, y), work->width, large);
        }
    if (told)
        memcpy((void *)work->destination.base, &work->number, work->width);
    else if (sim_spec.filled)
        sim_side_fill(work);
}

void sim_contents_moved(const struct sim_work *work)
{
    if (sim_spec.dropped && sim_side_dropped(&work->destination))
        sim_side_keep(work, &work->destination);
}

bool sim_contents_done(const struct sim_work *work)
{
    if (!sim_spec.dropped)
        return false;
    const bool copy = work->type == SIM_WORK_COPY, to = sim_side_dropped(&work->destination);
    const bool from = copy && sim_side_dropped(&work->source);
    if (!to && !from)
        return false;
    if (from)
        sim_side_settle(work, &work->source);
    if (!to) {
        sim_contents_to_host(work);
        return true;
    }
    if (sim_side_span(work, &work->destination) > SIM_KEEP || (!copy && work->value == 0 && !sim_spec.filled)) {
        sim_side_forget(work, &work->destination);
        return true;
    }
    if (!from)
        return false;
    char *bytes = sim_grow(NULL, work->width * work->height * work->depth);
    if (sim_side_fetch(work, bytes))
        sim_side_store(work, bytes);
    else
        sim_side_forget(work, &work->destination);
    free(bytes);
    return true;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

static void sim_word_given(CUdeviceptr p)
{
    size_t at = sim_piece_find(p);
    if (sim_spec.filled)
        sim_fill_given(p);
    if (at == sim_kept.count || sim_kept.at[at].base >= p + SIM_KEEP)
        return;
    if (sim_kept.at[at].base <= p)
        sim_bytes_clear(p, sim_kept.at[at].end);
    for (at = sim_piece_find(p); at < sim_kept.count && sim_kept.at[at].base < p + SIM_KEEP; at++)
        if (sim_kept.at[at].given < p)
            sim_kept.at[at].given = p;
}

static void sim_contents_begin(struct sim_function *f)
{
    if (sim_spec.filled)
        sim_fill_launch(f);
}

/* For stand-ins: what a launch does with this pointer among its parameters.  Any thread, no lock. */
SIM_EXPORT void sim_memory_given(CUdeviceptr p);
void sim_memory_given(CUdeviceptr p)
{
    if (!sim_spec.dropped)
        return;
    sim_lock();
    sim_contents_begin(NULL);
    sim_word_given(p);
    sim_unlock();
}

static void sim_everything_given(void)
{
    while (sim_kept.count)
        sim_bytes_clear(sim_kept.at[0].base, sim_kept.at[0].end);
}

static void sim_word_collect(struct sim_given *given, CUdeviceptr p)
{
    if (!sim_memory_find(p) && !sim_pool_covers(p))
        return;
    if (given->count < sizeof given->at / sizeof given->at[0])
        given->at[given->count++] = p;
    else
        given->more = true;
}

/* given NULL: the launch is now. */
static void sim_words(struct sim_given *given, const void *bytes, size_t size)
{
    for (size_t i = 0; i + sizeof(CUdeviceptr) <= size; i += sizeof(CUdeviceptr)) {
        CUdeviceptr p;
        memcpy(&p, (const char *)bytes + i, sizeof p);
        if (given)
            sim_word_collect(given, p);
        else if (p)
            sim_word_given(p);
    }
}

static bool sim_layout_known(struct sim_function *f)
{
    if (f->given_count == -2)
        f->given_count =
            sim_layout_find(f->module, f->name, f->given_size, sizeof f->given_size / sizeof f->given_size[0]);
    return f->given_count >= 0;
}

static void sim_words_launch(struct sim_function *f, void **params, void **extra, struct sim_given *given)
{
    if (extra) {
        const void *buffer = NULL;
        size_t size = 0;
        for (; *extra != CU_LAUNCH_PARAM_END; extra += 2)
            if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
                buffer = extra[1];
            else
                size = *(size_t *)extra[1];
        sim_words(given, buffer, buffer ? size : 0);
    } else if (params && f->param_count >= 0 && !sim_image_fat(f->module->image)) {
        for (int i = 0; i < f->param_count; i++)
            sim_words(given, params[i], f->param_size[i]);
    } else if (params && sim_layout_known(f)) {
        for (int i = 0; i < f->given_count; i++)
            sim_words(given, params[i], f->given_size[i]);
    } else if (params && given) {
        given->more = true;
    } else if (params) {
        sim_everything_given();
    }
}

void sim_contents_launch(struct sim_function *f, void **params, void **extra)
{
    sim_contents_begin(f);
    if (sim_kept.count || sim_spec.filled)
        sim_words_launch(f, params, extra, NULL);
}

void sim_contents_collect(struct sim_function *f, void **params, void **extra, struct sim_given *given)
{
    *given = (struct sim_given){0};
    if (sim_spec.dropped)
        sim_words_launch(f, params, extra, given);
}

void sim_contents_launch_given(const struct sim_given *given)
{
    sim_contents_begin(NULL);
    if (!sim_kept.count)
        return;
    for (uint32_t i = 0; i < given->count; i++)
        sim_word_given(given->at[i]);
    if (given->more)
        sim_everything_given();
}
