/* SPDX-License-Identifier: MIT
 *
 * extentnest.c: puts segments and blocks that come in any order into a list in which each segment is
 * followed by its blocks and by the idle memory between them; see internal.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mremap */
#endif
#include "account/tap.h"
#include "session/internal.h"
#include "session/session.h"
#include <gpuprof/gpuprof.h>
#include <stdbool.h>
#include <sys/mman.h>

#define NEST_FIRST 4096u /* extents: 256 KiB */

static void list_add(struct gp_nest *nest, struct gp_nest_list *list, const struct gp_wire_extent *extent)
{
    if (list->count < list->room)
        list->items[list->count++] = *extent;
    else
        nest->missed++;
}

void gp_extent_nest_add(struct gp_nest *nest, const struct gp_wire_extent *extent)
{
    list_add(nest, extent->what == GP_EXTENT_SEGMENT ? &nest->segments : &nest->blocks, extent);
}

static void list_grow(struct gp_nest_list *list)
{
    uint64_t room = list->room ? 2 * list->room : NEST_FIRST, bytes = room * sizeof(*list->items);
    if (list->room - list->count >= GP_TAP_REST)
        return;
    void *items = list->items ? mremap(list->items, list->room * sizeof(*list->items), bytes, MREMAP_MAYMOVE)
                              : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (items == MAP_FAILED)
        return;
    list->items = items;
    list->room = room;
}

void gp_extent_nest_rest(struct gp_nest *nest)
{
    list_grow(&nest->segments);
    list_grow(&nest->blocks);
}

static void list_free(struct gp_nest_list *list)
{
    if (list->items)
        munmap(list->items, list->room * sizeof(*list->items));
    *list = (struct gp_nest_list){0};
}

/* ---- order --------------------------------------------------------------------------------------------------------- */

/* By device, then by address: addresses end at bit 56 on every processor with CUDA. */
static uint64_t extent_key(const struct gp_wire_extent *extent)
{
    return (uint64_t)extent->device << 56 | (extent->address & ((1ull << 56) - 1));
}

/* A pass of a radix sort; the next pass keeps the order of equal bytes. False: all bytes are equal,
 * and nothing was moved. */
static bool list_pass(const struct gp_nest_list *list, struct gp_wire_extent *to, unsigned shift)
{
    uint64_t places[256] = {0}, sum = 0;
    for (uint64_t i = 0; i < list->count; i++)
        places[extent_key(&list->items[i]) >> shift & 255]++;
    if (places[extent_key(&list->items[0]) >> shift & 255] == list->count)
        return false;
    for (unsigned i = 0; i < 256; i++) {
        uint64_t n = places[i];
        places[i] = sum;
        sum += n;
    }
    for (uint64_t i = 0; i < list->count; i++)
        to[places[extent_key(&list->items[i]) >> shift & 255]++] = list->items[i];
    return true;
}

/* libc's qsort may call malloc, which this code may not do on a thread of the program. */
static bool list_sort(struct gp_nest_list *list)
{
    struct gp_nest_list other = {.count = list->count, .room = list->room};
    if (list->count < 2)
        return true;
    other.items =
        mmap(NULL, list->room * sizeof(*list->items), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (other.items == MAP_FAILED)
        return false;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if (!list_pass(list, other.items, shift))
            continue;
        struct gp_nest_list sorted = other;
        other = *list;
        *list = sorted;
    }
    list_free(&other);
    return true;
}

/* ---- nesting ------------------------------------------------------------------------------------------------------- */

struct nesting {
    const struct gp_nest *nest;
    void *arg;
    gp_extent_fn *visit;
    void (*rest)(void *arg);
    uint64_t block; /* the next one */
};

static void nest_idle(const struct nesting *nesting, const struct gp_wire_extent *segment, uint64_t from, uint64_t to)
{
    if (from < to)
        nesting->visit(nesting->arg, &(struct gp_wire_extent){.address = from,
                                                              .bytes = to - from,
                                                              .what = GP_EXTENT_BLOCK,
                                                              .state = GPUPROF_IDLE,
                                                              .kind = segment->kind,
                                                              .device = segment->device});
}

static void nest_segment(struct nesting *nesting, const struct gp_wire_extent *segment)
{
    const struct gp_nest_list *blocks = &nesting->nest->blocks;
    uint64_t at = segment->address, end = segment->address + segment->bytes;
    uint64_t first = extent_key(segment), last = first + segment->bytes;
    while (nesting->block < blocks->count && extent_key(&blocks->items[nesting->block]) < first)
        nesting->block++; /* outside every segment */
    nesting->visit(nesting->arg, segment);
    for (; nesting->block < blocks->count && extent_key(&blocks->items[nesting->block]) < last; nesting->block++) {
        const struct gp_wire_extent *block = &blocks->items[nesting->block];
        if (block->address < at || block->address + block->bytes > end)
            continue; /* freed, or allocated again, while the lists were read */
        nest_idle(nesting, segment, at, block->address);
        nesting->visit(nesting->arg, block);
        at = block->address + block->bytes;
        if (nesting->rest)
            nesting->rest(nesting->arg);
    }
    nest_idle(nesting, segment, at, end);
    if (nesting->rest)
        nesting->rest(nesting->arg);
}

static bool nest_adjacent(const struct gp_wire_extent *one, const struct gp_wire_extent *next)
{
    unsigned differ = (one->flags ^ next->flags) & ~GP_EXTENT_BEFORE;
    return one->flags & GPUPROF_GROWABLE && !differ && extent_key(one) + one->bytes == extent_key(next);
}

void gp_extent_nest_end(struct gp_nest *nest, void *arg, gp_extent_fn *visit, void (*rest)(void *arg))
{
    struct nesting nesting = {.nest = nest, .arg = arg, .visit = visit, .rest = rest};
    const struct gp_nest_list *segments = &nest->segments;
    bool sorted = list_sort(&nest->segments) && list_sort(&nest->blocks);
    for (uint64_t i = 0; sorted && i < segments->count; i++) {
        struct gp_wire_extent whole = segments->items[i];
        while (i + 1 < segments->count && nest_adjacent(&whole, &segments->items[i + 1]))
            whole.bytes += segments->items[++i].bytes;
        nest_segment(&nesting, &whole);
    }
    list_free(&nest->segments);
    list_free(&nest->blocks);
}
