/* SPDX-License-Identifier: MIT
 *
 * replay_model.h: a small model of PyTorch's caching allocator, written only from its
 * documentation, to compute the reserved bytes of a trace.  Sizes are rounded to 512 bytes; up to 1
 * MiB comes from 2 MiB segments, below 10 MiB from 20 MiB ones, larger ones from segments of their
 * own size rounded to 2 MiB; best fit per stream and pool, lowest address among equals; the rest of
 * a block is kept when it is at least 512 bytes (small) or more than 1 MiB (large); idle neighbours
 * join.  It has no limit and therefore no retries.  Work completes at once: a recorded block is idle when
 * it is freed.
 */
#ifndef GP_TEST_UNIT_REPLAY_MODEL_H
#define GP_TEST_UNIT_REPLAY_MODEL_H

#include <convert/replay/replay.h>

#include <stdlib.h>
#include <string.h>

struct model_block {
    uint64_t address, bytes;
    uint32_t stream;
    bool small, idle;
    struct model_block *before, *after; /* in its segment */
};

struct model {
    struct model_block **idle; /* sorted by pool, stream, size, address */
    struct model_block **blocks;
    uint64_t *asked; /* by block, rounded to 512 */
    uint32_t idle_count, idle_room, block_count;
    uint64_t next_address, reserved, allocated, peak_reserved, peak_allocated;
    uint64_t segments, segments_second_half;
};

static int model_compare(const struct model_block *l, const struct model_block *r)
{
    if (l->small != r->small)
        return l->small ? -1 : 1;
    if (l->stream != r->stream)
        return l->stream < r->stream ? -1 : 1;
    if (l->bytes != r->bytes)
        return l->bytes < r->bytes ? -1 : 1;
    return l->address < r->address ? -1 : l->address > r->address;
}

static uint32_t model_place(const struct model *m, const struct model_block *key)
{
    uint32_t low = 0, high = m->idle_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (model_compare(m->idle[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void model_insert(struct model *m, struct model_block *block)
{
    uint32_t at = model_place(m, block);
    if (m->idle_count == m->idle_room) {
        m->idle_room = m->idle_room ? 2 * m->idle_room : 256;
        m->idle = realloc(m->idle, m->idle_room * sizeof(m->idle[0]));
    }
    memmove(m->idle + at + 1, m->idle + at, (m->idle_count++ - at) * sizeof(m->idle[0]));
    m->idle[at] = block;
    block->idle = true;
}

static void model_remove(struct model *m, struct model_block *block)
{
    uint32_t at = model_place(m, block);
    memmove(m->idle + at, m->idle + at + 1, (--m->idle_count - at) * sizeof(m->idle[0]));
    block->idle = false;
}

static struct model_block *model_segment(struct model *m, uint64_t bytes, bool small, uint32_t stream)
{
    struct model_block *block = calloc(1, sizeof(*block));
    uint64_t whole = small ? 2ull << 20 : bytes < 10ull << 20 ? 20ull << 20 : (bytes + (2ull << 20) - 1) >> 21 << 21;
    *block = (struct model_block){.address = m->next_address, .bytes = whole, .small = small, .stream = stream};
    m->next_address += whole;
    m->reserved += whole;
    m->segments++;
    if (m->reserved > m->peak_reserved)
        m->peak_reserved = m->reserved;
    return block;
}

static struct model_block *model_alloc(struct model *m, uint64_t bytes, uint32_t stream)
{
    uint64_t rounded = bytes < 512 ? 512 : (bytes + 511) & ~511ull;
    struct model_block key = {.bytes = rounded, .small = rounded <= 1ull << 20, .stream = stream};
    uint32_t at = model_place(m, &key);
    struct model_block *block;
    if (at < m->idle_count && m->idle[at]->small == key.small && m->idle[at]->stream == stream) {
        block = m->idle[at];
        model_remove(m, block);
    } else {
        block = model_segment(m, rounded, key.small, stream);
    }
    uint64_t rest = block->bytes - rounded;
    if (key.small ? rest >= 512 : rest > 1ull << 20) {
        struct model_block *tail = calloc(1, sizeof(*tail));
        *tail = (struct model_block){.address = block->address + rounded,
                                     .bytes = rest,
                                     .small = block->small,
                                     .stream = stream,
                                     .before = block,
                                     .after = block->after};
        if (tail->after)
            tail->after->before = tail;
        block->after = tail;
        block->bytes = rounded;
        model_insert(m, tail);
    }
    return block;
}

static struct model_block *model_join(struct model_block *left, struct model_block *right)
{
    left->bytes += right->bytes;
    left->after = right->after;
    if (left->after)
        left->after->before = left;
    free(right);
    return left;
}

static void model_free(struct model *m, struct model_block *block)
{
    if (block->after && block->after->idle) {
        model_remove(m, block->after);
        model_join(block, block->after);
    }
    if (block->before && block->before->idle) {
        model_remove(m, block->before);
        block = model_join(block->before, block);
    }
    model_insert(m, block);
}

static void model_run(struct model *m, const struct gp_replay_trace *trace)
{
    memset(m, 0, sizeof(*m));
    m->next_address = 1ull << 40;
    m->blocks = calloc(trace->blocks + 1, sizeof(m->blocks[0]));
    m->asked = calloc(trace->blocks + 1, sizeof(m->asked[0]));
    for (uint32_t i = 0; i < trace->count; i++) {
        const struct gp_replay_op *op = &trace->ops[i];
        uint64_t before = m->segments;
        if (op->kind == GP_REPLAY_ALLOC && op->bytes) {
            m->blocks[op->block] = model_alloc(m, op->bytes, op->stream);
            m->asked[op->block] = (op->bytes + 511) & ~511ull;
            m->allocated += m->asked[op->block];
            if (m->allocated > m->peak_allocated)
                m->peak_allocated = m->allocated;
        } else if (op->kind == GP_REPLAY_FREE && m->blocks[op->block]) {
            model_free(m, m->blocks[op->block]);
            m->blocks[op->block] = NULL;
            m->allocated -= m->asked[op->block];
        }
        if (i >= trace->count / 2)
            m->segments_second_half += m->segments - before;
    }
    m->block_count = trace->blocks;
}

/* Everything that is not live is idle. */
static void model_drop(struct model *m)
{
    for (uint32_t i = 0; i < m->block_count; i++)
        free(m->blocks[i]);
    free(m->blocks);
    free(m->asked);
    for (uint32_t i = 0; i < m->idle_count; i++)
        free(m->idle[i]);
    free(m->idle);
    memset(m, 0, sizeof(*m));
}

#endif
