/* SPDX-License-Identifier: MIT
 * contents=none: the small writes that are kept, and the pages behind device memory.  contents.c says which writes those
 * are. */
#include "cuda/contents.h"
#include "cuda/stream.h"

#include <string.h>
#include <sys/mman.h>

#define SIM_HOST_PAGE 4096u

struct sim_kept sim_kept;

static CUdeviceptr sim_page_down(CUdeviceptr address)
{
    return address & ~(CUdeviceptr)(SIM_HOST_PAGE - 1);
}

static CUdeviceptr sim_page_up(CUdeviceptr address)
{
    return sim_page_down(address + SIM_HOST_PAGE - 1);
}

static uint64_t sim_piece_bytes(const struct sim_kept_piece *piece)
{
    return sim_page_up(piece->end) - sim_page_down(piece->base);
}

/* ---- the pieces -------------------------------------------------------------------------------------------------- */

/* The first piece that ends beyond the address. */
size_t sim_piece_find(CUdeviceptr address)
{
    size_t low = 0, high = sim_kept.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (sim_kept.at[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool sim_piece_within(CUdeviceptr base, CUdeviceptr end)
{
    size_t at = sim_piece_find(base);
    return at < sim_kept.count && sim_kept.at[at].base < end;
}

void sim_piece_insert(size_t at, struct sim_kept_piece piece)
{
    if (sim_kept.count == sim_kept.capacity) {
        sim_kept.capacity = sim_kept.capacity ? 2 * sim_kept.capacity : 256;
        sim_kept.at = sim_grow(sim_kept.at, sim_kept.capacity * sizeof *sim_kept.at);
    }
    memmove(&sim_kept.at[at + 1], &sim_kept.at[at], (sim_kept.count - at) * sizeof piece);
    sim_kept.at[at] = piece;
    sim_kept.count++;
    sim_kept.bytes += sim_piece_bytes(&piece);
}

/* No piece covers any of [base, end) from now on. */
void sim_piece_cut(CUdeviceptr base, CUdeviceptr end)
{
    size_t first = sim_piece_find(base), last = first;
    struct sim_kept_piece before = {0}, after = {0};
    for (; last < sim_kept.count && sim_kept.at[last].base < end; last++) {
        struct sim_kept_piece piece = sim_kept.at[last];
        sim_kept.bytes -= sim_piece_bytes(&piece);
        if (piece.base < base)
            before = (struct sim_kept_piece){piece.base, base, piece.given, piece.age};
        if (piece.end > end)
            after = (struct sim_kept_piece){end, piece.end, piece.given, piece.age};
    }
    memmove(&sim_kept.at[first], &sim_kept.at[last], (sim_kept.count - last) * sizeof *sim_kept.at);
    sim_kept.count -= last - first;
    if (after.end)
        sim_piece_insert(first, after);
    if (before.end)
        sim_piece_insert(first, before);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Whether a page has memory behind it.  One that the machine has swapped out looks like a hole, so
 * the pieces are asked too; the others may have been written by another process. */
static bool sim_page_there(CUdeviceptr page, unsigned char resident)
{
    return resident & 1 || sim_piece_within(page, page + SIM_HOST_PAGE);
}

static void sim_page_clear(CUdeviceptr from, CUdeviceptr to)
{
    static const char zeros[SIM_HOST_PAGE];
    CUdeviceptr page = sim_page_down(from);
    unsigned char resident;
    if (from == to || mincore((void *)page, SIM_HOST_PAGE, &resident) != 0 || !sim_page_there(page, resident))
        return;
    memset((void *)from, 0, to - from);
    if (!memcmp((void *)page, zeros, SIM_HOST_PAGE))
        madvise((void *)page, SIM_HOST_PAGE, MADV_REMOVE);
}

/* Zeros, by giving the pages back. */
void sim_bytes_clear(CUdeviceptr base, CUdeviceptr end)
{
    CUdeviceptr first = sim_page_up(base), last = sim_page_down(end);
    if (first > last) { /* inside one page */
        sim_page_clear(base, end);
    } else {
        sim_page_clear(base, first);
        sim_page_clear(last, end);
        if (first < last)
            madvise((void *)first, last - first, MADV_REMOVE);
    }
    sim_piece_cut(base, end);
}

/* Copies out of device memory without making pages of it.  zeros: `to` holds zeros, and gets no pages for a hole.
 * False: all of it was holes. */
bool sim_bytes_fetch(void *to, CUdeviceptr from, size_t size, bool zeros)
{
    unsigned char resident[1024];
    bool any = false;
    for (CUdeviceptr at = from, end = from + size; at < end;) {
        CUdeviceptr page = sim_page_down(at), stop = page + sizeof resident * SIM_HOST_PAGE;
        size_t pages = (sim_page_up(stop < end ? stop : end) - page) / SIM_HOST_PAGE;
        if (mincore((void *)page, pages * SIM_HOST_PAGE, resident) != 0)
            memset(resident, 1, pages); /* let the copy fault */
        for (size_t i = 0; i < pages; i++, page += SIM_HOST_PAGE) {
            size_t bytes = (page + SIM_HOST_PAGE < end ? page + SIM_HOST_PAGE : end) - at;
            bool there = sim_page_there(page, resident[i]);
            if (there)
                memcpy((char *)to + (at - from), (const void *)at, bytes);
            else if (!zeros)
                memset((char *)to + (at - from), 0, bytes);
            any |= there;
            at += bytes;
        }
    }
    return any;
}

/* ---- what others say of ranges ----------------------------------------------------------------------------------- */

void sim_contents_forget(CUdeviceptr base, size_t size)
{
    if (sim_spec.dropped && size)
        sim_bytes_clear(base, base + size);
}

void sim_contents_unmapped(CUdeviceptr base, size_t size)
{
    if (sim_kept.count)
        sim_piece_cut(base, base + size);
}
