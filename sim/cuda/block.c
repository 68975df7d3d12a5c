/* SPDX-License-Identifier: MIT
 * Small linear memory: requests up to 1 MiB share 2 MiB blocks in steps of 512 bytes. Measured
 * addresses say so (ROCm/hip issue 2257); a block goes back when its last piece does.  Called by
 * linear.c. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define SIM_STEP       512
#define SIM_STEPS      (SIM_PAGE / SIM_STEP)
#define SIM_PIECES_NEW 16 /* pieces freed last, tried first */

struct sim_block {
    struct sim_block *next;
    struct sim_memory bytes; /* not in the tree: the pieces are */
    unsigned used;           /* steps */
    unsigned bound;          /* no run of more steps than this is free */
    uint64_t map[SIM_STEPS / 64];
    struct {
        uint16_t start, count;
    } recent[SIM_PIECES_NEW];
    unsigned recent_count;
};

static bool sim_steps_busy(const struct sim_block *block, unsigned start, unsigned count)
{
    for (unsigned i = start; i < start + count; i++)
        if (block->map[i / 64] >> i % 64 & 1)
            return true;
    return false;
}

static void sim_steps_mark(struct sim_block *block, unsigned start, unsigned count, bool busy)
{
    for (unsigned i = start; i < start + count; i++)
        if (busy)
            block->map[i / 64] |= UINT64_C(1) << i % 64;
        else
            block->map[i / 64] &= ~(UINT64_C(1) << i % 64);
    block->used = busy ? block->used + count : block->used - count;
}

/* First run of `count` free steps, or SIM_STEPS. */
static unsigned sim_steps_find(struct sim_block *block, unsigned count)
{
    for (unsigned i = block->recent_count; i-- > 0;)
        if (block->recent[i].count == count && !sim_steps_busy(block, block->recent[i].start, count))
            return block->recent[i].start;
    if (block->bound < count)
        return SIM_STEPS;
    for (unsigned start = 0, at = 0; at < SIM_STEPS; at++) {
        if (at % 64 == 0 && block->map[at / 64] == UINT64_MAX) {
            at += 63;
            start = at + 1;
        } else if (block->map[at / 64] >> at % 64 & 1) {
            start = at + 1;
        } else if (at + 1 - start == count) {
            return start;
        }
    }
    block->bound = count - 1;
    return SIM_STEPS;
}

static CUresult sim_block_new(struct sim_context *context, struct sim_block **out)
{
    struct sim_block *block = calloc(1, sizeof *block);
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->bytes.device = context->device;
    CUresult result = sim_bytes_take(&block->bytes, SIM_PAGE, SIM_PAGE, SIM_PAGE);
    if (result != CUDA_SUCCESS) {
        free(block);
        return result;
    }
    sim_clock_pages(SIM_PAGES_ALLOC, SIM_PAGE);
    block->bound = SIM_STEPS;
    block->next = context->blocks;
    context->blocks = block;
    *out = block;
    return CUDA_SUCCESS;
}

CUresult sim_block_take(struct sim_context *context, struct sim_memory *memory)
{
    unsigned count = (unsigned)(sim_round_up(memory->size, SIM_STEP) / SIM_STEP), start = SIM_STEPS;
    struct sim_block *block;
    for (block = context->blocks; block; block = block->next)
        if (SIM_STEPS - block->used >= count && (start = sim_steps_find(block, count)) < SIM_STEPS)
            break;
    if (!block) {
        CUresult result = sim_block_new(context, &block);
        if (result != CUDA_SUCCESS)
            return result;
        start = 0;
    }
    sim_steps_mark(block, start, count, true);
    memory->block = block;
    memory->base = block->bytes.base + (uint64_t)start * SIM_STEP;
    memory->offset = block->bytes.offset + (uint64_t)start * SIM_STEP;
    memory->footprint = 0; /* the block's, not the piece's */
    return CUDA_SUCCESS;
}

static void sim_block_end(struct sim_block *block, struct sim_context *context)
{
    struct sim_block **at = &context->blocks;
    while (*at != block)
        at = &(*at)->next;
    *at = block->next;
    sim_clock_pages(SIM_PAGES_FREE, SIM_PAGE);
    sim_bytes_give(&block->bytes, SIM_PAGE);
    free(block);
}

void sim_block_give(struct sim_memory *memory)
{
    struct sim_block *block = memory->block;
    unsigned start = (unsigned)((memory->base - block->bytes.base) / SIM_STEP);
    unsigned count = (unsigned)(sim_round_up(memory->size, SIM_STEP) / SIM_STEP);
    sim_steps_mark(block, start, count, false);
    block->bound = SIM_STEPS;
    if (block->used == 0) {
        sim_block_end(block, sim_context_by_uid(memory->context_uid));
        return;
    }
    if (block->recent_count == SIM_PIECES_NEW)
        memmove(block->recent, block->recent + 1, --block->recent_count * sizeof *block->recent);
    block->recent[block->recent_count].start = (uint16_t)start;
    block->recent[block->recent_count++].count = (uint16_t)count;
}

CUdeviceptr sim_block_base(const struct sim_block *block, uint64_t *offset)
{
    *offset = block->bytes.offset;
    return block->bytes.base;
}
